//! What the paper says, and what the project aims at, beside what was found.

use super::measure::Measured;
use super::system::System;
use crate::tapir::{Claim, Points, at_least};

/// Some points of an experiment.
struct Of<'p> {
    points: &'p [Measured],
}

impl<'p> Of<'p> {
    fn experiment(points: &Points<'p, Measured>, id: &str) -> Self {
        let found = points.iter().find(|(name, _)| *name == id);
        Of { points: found.map_or(&[], |(_, points)| points) }
    }

    /// The greatest throughput of a system among the points that match.
    fn peak(&self, system: System, matches: impl Fn(&Measured) -> bool) -> f64 {
        let of = self.points.iter().filter(|point| point.system == system.name() && matches(point));
        of.map(|point| point.throughput).fold(0.0, f64::max)
    }

    /// Of one system's peak through another one's.
    fn ratio(&self, system: System, against: System, matches: impl Fn(&Measured) -> bool) -> f64 {
        self.peak(system, &matches) / self.peak(against, &matches)
    }

    /// Of Claret's peak through another one's.
    fn claret(&self, against: System, matches: impl Fn(&Measured) -> bool) -> f64 {
        self.ratio(System::Claret, against, matches)
    }
}

/// The claims, compared.
pub fn claims(points: &Points<'_, Measured>) -> Vec<Claim> {
    let of = |id: &str| Of::experiment(points, id);
    let mut all = raw_mix(&of("fig5"), &of("fig6"), &of("fig7"), &of("calm"));
    all.extend(applications(&of("fig9-read-heavy"), &of("fig9-bid-heavy"), &of("fig11")));
    all.extend(retwis(&of("fig13-read-heavy"), &of("fig13-post-heavy")));
    all
}

fn any(_: &Measured) -> bool {
    true
}

fn raw_mix(clients: &Of<'_>, shares: &Of<'_>, exponents: &Of<'_>, calm: &Of<'_>) -> Vec<Claim> {
    use System::{Claret, ReadWrite, ReadWritePhased, TypedPhased, Unlocked};
    let highest = |least: f64| {
        let all = exponents.points.iter().map(|point| point.zipf).filter(|zipf| *zipf >= least);
        let ratios = all.map(|zipf| exponents.claret(ReadWrite, |point| point.zipf == zipf));
        ratios.fold(0.0, f64::max)
    };
    let at = |zipf: f64| exponents.claret(ReadWrite, move |point| point.zipf == zipf);
    vec![
        at_least(
            "claret/rawmix",
            "fig. 5, gate: peak over readwrite, Zipf 0.6",
            2.6,
            clients.claret(ReadWrite, any),
            "x",
        ),
        at_least(
            "claret/rawmix-none",
            "fig. 5: peak through none (gate 0.80)",
            0.63,
            clients.claret(Unlocked, any),
            "x",
        ),
        at_least("gate/rawmix-none", "gate: the same", 0.8, clients.claret(Unlocked, any), "x"),
        at_least(
            "claret/phasing-typed",
            "fig. 5: typed-phased over typed, more than boosting brings alone",
            clients.ratio(System::Typed, ReadWrite, any),
            clients.ratio(TypedPhased, System::Typed, any),
            "x",
        ),
        at_least(
            "claret/phasing-20-percent",
            "fig. 6: phasing helps with a fifth of additions: readwrite-phased over readwrite",
            1.0,
            shares.ratio(ReadWritePhased, ReadWrite, |point| point.share == 20),
            "x",
        ),
        at_least(
            "claret/combining-reads",
            "fig. 6: combining helps where all only read",
            1.0,
            shares.ratio(Claret, TypedPhased, |point| point.share == 0),
            "x",
        ),
        at_least("gate/zipf-1.2", "gate: peak over readwrite, Zipf 1.2", 10.0, at(1.2), "x"),
        at_least("claret/zipf-most", "fig. 7: the most at Zipf 1.2 and more", 49.0, highest(1.2), "x"),
        at_least(
            "claret/zipf-2-none",
            "fig. 7: with extreme skew more than none, which cannot combine",
            1.0,
            exponents.claret(Unlocked, |point| point.zipf == 2.0),
            "x",
        ),
        at_least(
            "gate/calm",
            "gate: nothing is lost where nobody meets anybody: claret through readwrite",
            0.97,
            calm.claret(ReadWrite, any),
            "x",
        ),
    ]
}

fn applications(read: &Of<'_>, bid: &Of<'_>, trace: &Of<'_>) -> Vec<Claim> {
    use System::{Claret, ReadWrite, ReadWritePhased, TypedPhased, Unlocked};
    let uneven = |system: System| {
        let of = trace.points.iter().find(|point| point.system == system.name());
        of.map_or(f64::NAN, |point| point.unevenness)
    };
    vec![
        at_least(
            "claret/rubis-bids-text",
            "fig. 9, bid-heavy, as the text says: peak over readwrite-phased",
            2.0,
            bid.claret(ReadWritePhased, any),
            "x",
        ),
        at_least(
            "claret/rubis-bids",
            "the same as the abstract says, gate: over readwrite",
            4.3,
            bid.claret(ReadWrite, any),
            "x",
        ),
        at_least(
            "claret/rubis-none",
            "section 6.2: bid-heavy through none (gate 0.80)",
            0.68,
            bid.claret(Unlocked, any),
            "x",
        ),
        at_least("gate/rubis-none", "gate: the same", 0.8, bid.claret(Unlocked, any), "x"),
        at_least(
            "claret/rubis-same",
            "fig. 9: bid-heavy through read-heavy, which boosting keeps the same",
            1.0,
            bid.peak(Claret, any) / read.peak(Claret, any),
            "x",
        ),
        at_least(
            "claret/rubis-reads",
            "fig. 9, read-heavy: readwrite-phased nearly as good as typed-phased",
            0.9,
            read.ratio(ReadWritePhased, TypedPhased, any),
            "x",
        ),
        at_least(
            "claret/rubis-trace",
            "fig. 11: how much less uneven typed-phased is than readwrite-phased",
            2.8,
            uneven(ReadWritePhased) / uneven(TypedPhased),
            "x",
        ),
    ]
}

fn retwis(read: &Of<'_>, post: &Of<'_>) -> Vec<Claim> {
    use System::{ReadWrite, ReadWritePhased, Unlocked};
    vec![
        at_least(
            "claret/retwis-posts",
            "fig. 13, post-heavy, gate: peak over readwrite",
            3.6,
            post.claret(ReadWrite, any),
            "x",
        ),
        at_least(
            "claret/retwis-posts-phased",
            "fig. 13 as drawn: over readwrite-phased",
            3.6,
            post.claret(ReadWritePhased, any),
            "x",
        ),
        at_least(
            "claret/retwis-none",
            "section 6.3: through none, at best (gate 0.80)",
            0.82,
            post.claret(Unlocked, any).max(read.claret(Unlocked, any)),
            "x",
        ),
        at_least("gate/retwis-none", "gate: post-heavy through none", 0.8, post.claret(Unlocked, any), "x"),
        at_least(
            "claret/retwis-reads",
            "fig. 13, read-heavy: readwrite-phased keeps up reasonably well",
            0.7,
            1.0 / read.claret(ReadWritePhased, any),
            "x",
        ),
    ]
}
