//! Validation where the order of stamps is all that counts: serializability, not strict (TAPIR, technical report 6.3).
//! A transaction may read the past, and write it, as long as nobody has seen that it was otherwise.

use crate::validation::{Access, Observed, Seen, Stamp, Undecided, Verdict};
use datatypes::{Effect, Kind, Operation, key};
use smallvec::SmallVec;
use types::{Malformed, Reader, wire_struct};

/// What a committed transaction observed of a key, and when: whatever it has not seen, and would have, can no longer
/// commit below it.
#[derive(Clone, Debug, PartialEq)]
pub struct CommittedRead {
    /// The transaction's place.
    pub at: Stamp,
    /// The operation in its binary form.
    pub operation: Box<[u8]>,
    /// The exact effects that it saw.
    pub observed: Observed,
}
wire_struct!(CommittedRead { at, operation, observed });

impl CommittedRead {
    /// True if the effect at this place would have changed what was seen.
    fn misses(&self, stamp: Stamp, effect: &Effect<'_>) -> Result<bool, Malformed> {
        let changed = || {
            let observation = Operation::decode(&mut Reader::new(&self.operation))?.observation();
            Ok(!observation.unchanged_by(effect))
        };
        if stamp < self.at && !self.observed.contains(stamp) { changed() } else { Ok(false) }
    }
}

/// Judges `access`, proposed at `stamp`, against one key, as [`crate::validation::validate`] does, but by the order of stamps:
///
/// 1. what it observes must be all there is below its stamp: an effect there that it has not seen aborts it if it is
///    committed, and makes it wait if it is undecided; effects above its stamp are nothing to it;
/// 2. what it changes must not be missing in what an observer above it has seen: else the replica tells it to retry
///    above that one;
/// 3. effects on registers may both commit, in the order of their stamps, whichever came first (Thomas's write rule;
///    Corrections 71: for registers only); other effects that do not commute conflict as usual.
pub fn validate_in_order<'e>(
    stamp: Stamp,
    access: &Access<'_>,
    committed: impl Iterator<Item = (Stamp, Effect<'e>)>,
    prepared: impl Iterator<Item = Undecided<'e>>,
    reads: &[CommittedRead],
) -> Verdict {
    let observation = &access.invocation.observation;
    let base = access.observed.map_or(Stamp::ZERO, Observed::base);
    let seen = |other: Stamp| access.observed.is_some_and(|observed| observed.contains(other));
    let prepared: SmallVec<[Undecided<'e>; 1]> = prepared.collect();
    let mut known = Seen::new(access, &prepared);
    let observes = |effect: &Effect<'_>| !observation.is_nothing() && !observation.unchanged_by(effect);
    let mine = access.invocation.effect.as_ref();
    let clashes = |effect: &Effect<'_>| {
        mine.is_some_and(|mine| !(mine.commutes_with(effect) || in_any_order(mine) && in_any_order(effect)))
    };
    let mut above = access.observed.map_or(Stamp::ZERO, Observed::newest);
    let mut worst = Verdict::Ok;
    // The effect that it would have to see if it retried above it.
    let mut unseen = None;
    for (other, effect) in committed {
        if other > stamp {
            above = if clashes(&effect) { above.max(other) } else { above };
            unseen = if !seen(other) && observes(&effect) { Some(other) } else { unseen };
        } else if other <= base {
            break;
        } else if let Some(effect) = known.note(other, effect)
            && (observes(&effect) || !known.commutes_with(other, &effect))
        {
            return Verdict::Abort;
        }
    }
    for Undecided { stamp: other, access: theirs, .. } in prepared.iter().filter(|other| !seen(other.stamp)) {
        let other = *other;
        let knows = theirs.observed.is_some_and(|observed| observed.contains(stamp));
        let misses = mine.is_some_and(|mine| !theirs.invocation.observation.unchanged_by(mine));
        let overtaken = stamp < other && !knows && misses && !theirs.invocation.observation.is_nothing();
        if overtaken {
            above = above.max(other);
        }
        if let Some(effect) = &theirs.invocation.effect
            && (((other < stamp || overtaken) && observes(effect))
                || other < stamp && !known.commutes_with(other, effect)
                || clashes(effect))
        {
            worst = Verdict::Abstain;
        }
    }
    for read in reads {
        if mine.is_some_and(|mine| read.misses(stamp, mine).unwrap_or(true)) {
            above = above.max(read.at);
        }
    }
    if unseen.is_some_and(|unseen| unseen <= above) {
        return Verdict::Abort;
    }
    if stamp <= above { worst.max(Verdict::Retry { above: above.at }) } else { worst }
}

/// True for effects that Thomas's write rule is for.
fn in_any_order(effect: &Effect<'_>) -> bool {
    effect.kind() == Some(Kind::Register)
        || matches!(effect, Effect::Register(_) | Effect::Key(key::Effect::Delete))
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::{Invocation, list, register};
    use types::{Timestamp, TransactionId};

    fn stamp(at: u64) -> Stamp {
        Stamp { at: Timestamp(at), transaction: TransactionId { number: at, ..TransactionId::default() } }
    }

    fn undecided(at: u64, access: Access<'_>) -> Undecided<'_> {
        Undecided { stamp: stamp(at), changes: access.invocation.effect.is_some(), access }
    }

    fn set() -> Effect<'static> {
        Effect::Register(register::Effect::Set { value: b"v", deadline: register::Deadline::Clear })
    }

    fn push(value: &'static [u8]) -> Effect<'static> {
        let values = datatypes::Items::one(value);
        Effect::List(list::Effect::Push { end: list::End::Back, values })
    }

    const GET: Operation<'static> = Operation::Register(register::Operation::Get);

    fn read(at: u64, observed: Observed) -> CommittedRead {
        let mut operation = Vec::new();
        GET.encode(&mut operation);
        CommittedRead { at: stamp(at), operation: operation.into(), observed }
    }

    fn blind(effect: Effect<'static>) -> Access<'static> {
        Access { invocation: Invocation::blind(effect), observed: None }
    }

    #[test]
    fn a_read_of_the_past_is_no_conflict_and_one_of_half_the_past_is() {
        let observed = Observed::new(Stamp::ZERO, [stamp(5)]);
        let access = Access { invocation: Invocation::observed(&GET, None), observed: Some(&observed) };
        let judge = |at| {
            let committed = [(stamp(20), set()), (stamp(5), set())].into_iter();
            validate_in_order(stamp(at), &access, committed, std::iter::empty(), &[])
        };
        assert_eq!(judge(10), Verdict::Ok, "what was written at 20 is yet to come");
        assert_eq!(judge(30), Verdict::Abort, "it was there, and was not seen");
        assert_eq!(judge(4), Verdict::Retry { above: Timestamp(5) }, "it has seen what is yet to come");
        let pending = |at| std::iter::once(undecided(at, blind(set())));
        let judge =
            |at, other| validate_in_order(stamp(at), &access, std::iter::empty(), pending(other), &[]);
        assert_eq!((judge(10, 9), judge(10, 11)), (Verdict::Abstain, Verdict::Ok));
    }

    #[test]
    fn a_write_of_the_past_must_be_missed_by_nobody() {
        let reads =
            [read(20, Observed::new(Stamp::ZERO, [stamp(5)])), read(40, Observed::new(stamp(30), []))];
        let judge = |at| {
            let committed = [(stamp(30), set()), (stamp(5), set())].into_iter();
            validate_in_order(stamp(at), &blind(set()), committed, std::iter::empty(), &reads)
        };
        assert_eq!(judge(10), Verdict::Retry { above: Timestamp(20) });
        assert_eq!(judge(25), Verdict::Ok, "overwritten before anybody looked: Thomas's write rule");
        assert_eq!(judge(35), Verdict::Retry { above: Timestamp(40) });
        assert_eq!(judge(41), Verdict::Ok);
        let observed = Observed::new(Stamp::ZERO, [stamp(5)]);
        let reader = || Access { invocation: Invocation::observed(&GET, None), observed: Some(&observed) };
        let against_pending = |at| {
            let pending = std::iter::once(undecided(20, reader()));
            validate_in_order(stamp(at), &blind(set()), std::iter::empty(), pending, &[])
        };
        assert_eq!(against_pending(10), Verdict::Retry { above: Timestamp(20) });
        assert_eq!(against_pending(21), Verdict::Ok, "it need not wait for a reader before it");
    }

    #[test]
    fn who_would_have_to_come_above_what_it_has_not_seen_is_refused_at_once() {
        let add = || Effect::Register(register::Effect::Add { by: 1 });
        let observed = Observed::new(Stamp::ZERO, [stamp(5)]);
        let increment =
            || Access { invocation: Invocation::observed(&GET, Some(add())), observed: Some(&observed) };
        let pending = std::iter::once(undecided(20, increment()));
        let against_pending = validate_in_order(stamp(10), &increment(), std::iter::empty(), pending, &[]);
        assert_eq!(against_pending, Verdict::Abstain, "each misses the other");
        let reads = [read(20, Observed::new(Stamp::ZERO, [stamp(5)]))];
        let committed = [(stamp(20), add()), (stamp(5), add())].into_iter();
        let behind = validate_in_order(stamp(10), &increment(), committed, std::iter::empty(), &reads);
        assert_eq!(behind, Verdict::Abort);
    }

    #[test]
    fn only_registers_are_written_in_any_order() {
        let judge = |mine: Effect<'static>, other: Effect<'static>, prepared: bool| {
            let committed = (!prepared).then(|| (stamp(20), other.clone()));
            let pending = prepared.then(|| undecided(20, blind(other.clone())));
            validate_in_order(stamp(10), &blind(mine), committed.into_iter(), pending.into_iter(), &[])
        };
        assert_eq!((judge(set(), set(), false), judge(set(), set(), true)), (Verdict::Ok, Verdict::Ok));
        let (a, b) = (push(b"a"), push(b"b"));
        assert_eq!(judge(a.clone(), b.clone(), false), Verdict::Retry { above: Timestamp(20) });
        assert_eq!(judge(a, b, true), Verdict::Abstain);
        assert_eq!(judge(set(), push(b"b"), true), Verdict::Abstain);
    }
}
