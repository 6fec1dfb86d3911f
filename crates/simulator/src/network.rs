//! The network between processes: delay, loss, duplication, reordering, and links that are cut or slow, in one
//! direction or both. Every link draws from a stream of its own, so that what is left out of a run elsewhere does not
//! change what happens to it.

use crate::faults::{Swarm, exponential};
use crate::script::{Link, stream};
use std::collections::BTreeMap;
use types::{ProcessId, RegionId, Rng};

/// The longest that a packet is held back to be overtaken, in microseconds.
const HELD_BACK: u64 = 500_000;

/// The mean delay of the longest link between regions, in microseconds.
const FARTHEST: u64 = 100_000;

/// Decides what becomes of each packet.
pub(crate) struct Network {
    seed: u64,
    links: BTreeMap<Link, LinkState>,
    healed: bool,
}

struct LinkState {
    random: Rng,
    /// By which its delays are multiplied.
    factor: f64,
    /// The number of cuts on it.
    cuts: u32,
    /// What is added to its delays at present.
    extra: u64,
    /// How many of a thousand packets it loses at present, beside those that all links lose.
    lossy: u64,
}

impl Network {
    pub fn new(seed: u64) -> Self {
        Network { seed, links: BTreeMap::new(), healed: false }
    }

    fn link(&mut self, link: Link) -> &mut LinkState {
        let seed = self.seed;
        self.links.entry(link).or_insert_with(|| {
            let mut random = stream(seed, "link", u64::from(link.0) << 16 | u64::from(link.1));
            LinkState { factor: random.f64(), random, cuts: 0, extra: 0, lossy: 0 }
        })
    }

    /// Cuts the link, until as many `join`s have been called.
    pub fn cut(&mut self, link: Link) {
        self.link(link).cuts += 1;
    }

    /// Takes one cut back.
    pub fn join(&mut self, link: Link) {
        let state = self.link(link);
        state.cuts = state.cuts.saturating_sub(1);
    }

    /// Makes a link slower by so many microseconds; faster again when it is negative.
    pub fn slow_down(&mut self, link: Link, by: i64) {
        let state = self.link(link);
        state.extra = state.extra.saturating_add_signed(by);
    }

    /// Lets a link lose so many of a thousand packets more; fewer again when it is negative.
    pub fn lose(&mut self, link: Link, share: i64) {
        let state = self.link(link);
        state.lossy = state.lossy.saturating_add_signed(share);
    }

    /// Ends all faults for good; delays remain.
    pub fn heal(&mut self) {
        self.links.values_mut().for_each(|link| (link.cuts, link.extra, link.lossy) = (0, 0, 0));
        self.healed = true;
    }

    /// After how many microseconds the packet arrives: never, once, or several times.
    pub fn fate(
        &mut self,
        (from, from_region): (ProcessId, RegionId),
        (to, to_region): (ProcessId, RegionId),
        swarm: &Swarm,
    ) -> Vec<u64> {
        let healed = self.healed;
        let LinkState { random, factor, cuts, extra, lossy } = self.link((from.0, to.0));
        if from == to {
            return vec![random.u64(1..20)];
        }
        let base = match from_region == to_region {
            true => swarm.near,
            false => {
                let far = (swarm.far as f64 * (1.0 + *factor * (swarm.asymmetry - 1.0))) as u64;
                far.min(FARTHEST.max(swarm.far))
            }
        };
        let mut delay = || base + *extra + exponential(random, (base as f64 * swarm.jitter) as u64);
        let mut arrivals = vec![delay()];
        if healed {
            return arrivals;
        }
        let second = delay();
        if random.f64() < swarm.loss + *lossy as f64 / 1_000.0 {
            arrivals.clear();
        }
        if random.f64() < swarm.duplication {
            arrivals.push(second);
        }
        for arrival in &mut arrivals {
            if random.f64() < swarm.reordering {
                *arrival += random.u64(0..HELD_BACK);
            }
        }
        if *cuts > 0 {
            arrivals.clear();
        }
        arrivals
    }
}
