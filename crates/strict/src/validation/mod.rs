//! Optimistic validation over invocations: one invocation of a transaction against everything that one replica
//! knows of the same key. Rigorous: no rule trusts a clock (Corrections 1).

mod modes;
mod observed;
mod seen;
mod stamp;

pub use modes::ModeStamps;
pub use observed::Observed;
pub(crate) use seen::Seen;
pub use stamp::Stamp;

use datatypes::{Cell, Effect, Invocation, commutes, dict, key, register};
use smallvec::SmallVec;
use types::{Reader, Timestamp};

/// An invocation and what its evaluation saw.
#[derive(Clone, Debug)]
pub struct Access<'a> {
    /// What it observed of the state's aspects, and what it changes.
    pub invocation: Invocation<'a>,
    /// The effects that its evaluation saw; `None` for one that was not evaluated (a blind effect).
    pub observed: Option<&'a Observed>,
}

/// An access to the same key by another transaction, which is prepared and undecided.
#[derive(Clone, Debug)]
pub struct Undecided<'a> {
    /// The stamp at which it is prepared.
    pub stamp: Stamp,
    /// True if its transaction changes the key, by this access or by another one.
    pub changes: bool,
    /// What it does.
    pub access: Access<'a>,
}

impl Undecided<'_> {
    /// True if an access may conflict with it.
    ///
    /// What was observed is decided, even where the news of it has not arrived; and so is, or never commits, what changes
    /// the key below the observed base. But a look leaves nothing to be observed: it may be undecided at whatever
    /// stamp, and an effect that it has not seen must wait for it.
    pub fn is_in_the_way_of(&self, access: &Access<'_>) -> bool {
        let seen = access.observed.is_some_and(|observed| observed.contains(self.stamp));
        !(seen && self.changes || commutes(&access.invocation, &self.access.invocation, None))
    }
}

/// What validation finds; a greater one stands above a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No conflict.
    Ok,
    /// It may commit at a stamp later than this.
    Retry {
        /// The timestamp to exceed.
        above: Timestamp,
    },
    /// It conflicts with a transaction that is prepared and undecided.
    Abstain,
    /// It missed a committed effect that its result depends on: only a new evaluation can help.
    Abort,
}

/// Judges `access`, proposed at `stamp`, against one key: the `committed` effects that the replica holds, newest
/// first, down to the observed base; the `prepared` accesses of other transactions; and the greatest committed stamps
/// by mode.
pub fn validate<'e>(
    stamp: Stamp,
    access: &Access<'_>,
    committed: impl Iterator<Item = (Stamp, Effect<'e>)>,
    prepared: impl Iterator<Item = Undecided<'e>>,
    modes: &ModeStamps,
) -> Verdict {
    let invocation = &access.invocation;
    let prepared: SmallVec<[Undecided<'e>; 1]> = prepared.collect();
    let mut seen = Seen::new(access, &prepared);
    if !invocation.observation.is_nothing() {
        let base = access.observed.map_or(Stamp::ZERO, Observed::base);
        for (other, effect) in committed.take_while(|(other, _)| *other > base) {
            if let Some(effect) = seen.note(other, effect)
                && !(invocation.observation.unchanged_by(&effect) && seen.commutes_with(other, &effect))
            {
                return Verdict::Abort;
            }
        }
    }
    let turns = |other: &Undecided<'_>| {
        let effect = other.access.invocation.effect.as_ref();
        effect.is_some_and(|effect| !seen.commutes_with(other.stamp, effect))
    };
    if prepared.iter().any(|other| other.is_in_the_way_of(access) || turns(other)) {
        return Verdict::Abstain;
    }
    let read = access.observed.map_or(Stamp::ZERO, Observed::newest);
    let changed = invocation.effect.as_ref().map_or(Stamp::ZERO, |effect| modes.against(effect.mode()));
    let above = read.max(changed);
    if stamp <= above { Verdict::Retry { above: above.at } } else { Verdict::Ok }
}

/// True for an effect after which nothing below it matters: the state is the same whatever was there.
pub fn overwrites(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Key(key::Effect::Delete | key::Effect::Restore(_)) => true,
        Effect::Register(register::Effect::Set { deadline, .. }) => *deadline != register::Deadline::Keep,
        Effect::Register(register::Effect::Delete) => true,
        _ => false,
    }
}

/// The first deadline that an effect gives the key or fields of it, in milliseconds since 1970.
pub fn deadline_set(effect: &Effect<'_>) -> Option<u64> {
    let at_millis = match effect {
        Effect::Key(key::Effect::SetDeadline(at_millis)) => *at_millis,
        Effect::Key(key::Effect::Restore(cell)) => {
            Cell::decode(&mut Reader::new(cell)).ok()?.next_deadline(0)
        }
        Effect::Dict(dict::Effect::Put { until, .. }) => until.first()?,
        Effect::Dict(dict::Effect::SetDeadline { at_millis, .. }) => *at_millis,
        Effect::Register(register::Effect::Set { deadline: register::Deadline::At { millis }, .. }) => {
            *millis
        }
        _ => 0,
    };
    (at_millis != 0).then_some(at_millis)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::TransactionId;

    fn stamp(at: u64) -> Stamp {
        let transaction = TransactionId { number: at, ..TransactionId::default() };
        Stamp { at: Timestamp(at), transaction }
    }

    fn add() -> Effect<'static> {
        Effect::Register(register::Effect::Add { by: 1 })
    }

    fn get() -> Invocation<'static> {
        Invocation::observed(&datatypes::Operation::Register(register::Operation::Get), None)
    }

    fn judge(
        at: u64,
        access: &Access<'_>,
        committed: &[u64],
        prepared: &[(u64, Invocation<'static>)],
    ) -> Verdict {
        let mut modes = ModeStamps::default();
        committed.iter().for_each(|at| modes.raise(add().mode(), stamp(*at)));
        let effects = committed.iter().rev().map(|at| (stamp(*at), add()));
        let pending = prepared.iter().map(|(at, invocation)| Undecided {
            stamp: stamp(*at),
            changes: invocation.effect.is_some(),
            access: Access { invocation: invocation.clone(), observed: None },
        });
        validate(stamp(at), access, effects, pending, &modes)
    }

    #[test]
    fn a_read_that_missed_an_earlier_commuting_effect_is_stopped() {
        // Corrections 65: the read saw the increment at 9, not the one at 7.
        let observed = Observed::new(Stamp::ZERO, [stamp(9)]);
        let access = Access { invocation: get(), observed: Some(&observed) };
        assert_eq!(judge(20, &access, &[7, 9], &[]), Verdict::Abort);
        assert_eq!(judge(20, &access, &[9], &[]), Verdict::Ok);
        assert_eq!(judge(20, &access, &[9], &[(7, Invocation::blind(add()))]), Verdict::Abstain);
    }

    #[test]
    fn commuting_increments_pass_each_other_in_any_order_of_stamps() {
        let access = Access { invocation: Invocation::blind(add()), observed: None };
        assert_eq!(judge(7, &access, &[9], &[(11, Invocation::blind(add()))]), Verdict::Ok);
    }

    #[test]
    fn a_write_below_a_committed_one_learns_where_to_retry() {
        let write = Effect::DELETE;
        let access = Access { invocation: Invocation::blind(write), observed: None };
        assert_eq!(judge(7, &access, &[9], &[]), Verdict::Retry { above: Timestamp(9) });
        assert_eq!(judge(10, &access, &[9], &[]), Verdict::Ok);
    }

    #[test]
    fn a_stamp_not_above_what_was_read_is_refused() {
        let observed = Observed::new(stamp(9), []);
        let access = Access { invocation: get(), observed: Some(&observed) };
        assert_eq!(judge(8, &access, &[], &[]), Verdict::Retry { above: Timestamp(9) });
    }

    /// A field of a hash, and in its place another one of the same hash. Whoever looks at the first one does not see that the
    /// other is removed; but a hash without fields loses its deadline, so the removal and the write do not commute.
    #[test]
    fn what_was_not_seen_must_not_come_before_what_was_seen_unless_they_commute() {
        use datatypes::Items;
        let remove = || Effect::Dict(dict::Effect::Remove { fields: Items::one(b"other") });
        let write = || Effect::Dict(dict::Effect::put(Items::two(b"field", b"value")));
        let get = datatypes::Operation::Dict(dict::Operation::Get { field: b"field" });
        let observed = Observed::new(stamp(5), [stamp(9)]);
        let access = Access { invocation: Invocation::observed(&get, None), observed: Some(&observed) };
        let undecided = |at, effect| Undecided {
            stamp: stamp(at),
            changes: true,
            access: Access { invocation: Invocation::blind(effect), observed: None },
        };
        let judge = |committed: Vec<(u64, Effect<'static>)>, prepared: Vec<(u64, Effect<'static>)>| {
            let committed = committed.into_iter().map(|(at, effect)| (stamp(at), effect));
            let prepared = prepared.into_iter().map(|(at, effect)| undecided(at, effect));
            validate(stamp(20), &access, committed, prepared, &ModeStamps::default())
        };
        assert_eq!(judge(vec![(9, write()), (7, remove())], vec![]), Verdict::Abort);
        assert_eq!(
            judge(vec![(7, remove())], vec![(9, write())]),
            Verdict::Abort,
            "its decision has not arrived"
        );
        assert_eq!(judge(vec![(7, remove())], vec![]), Verdict::Abort, "nobody here knows what was seen");
        assert_eq!(judge(vec![(9, write())], vec![(7, remove())]), Verdict::Abstain);
        assert_eq!(judge(vec![(11, remove()), (9, write())], vec![]), Verdict::Ok, "behind what was seen");
        assert_eq!(judge(vec![(9, remove()), (7, remove())], vec![]), Verdict::Ok, "removals commute");
        assert_eq!(judge(vec![(7, remove())], vec![(9, remove())]), Verdict::Ok);
    }

    #[test]
    fn what_a_read_observed_no_longer_stands_in_its_way() {
        let observed = Observed::new(Stamp::ZERO, [stamp(7)]);
        let access = Access { invocation: get(), observed: Some(&observed) };
        assert_eq!(judge(20, &access, &[], &[(7, Invocation::blind(add()))]), Verdict::Ok);
    }

    #[test]
    fn an_undecided_look_below_the_observed_base_stands_in_the_way_of_an_effect() {
        // A look at 9 has committed and raised the base above the undecided one at 7, which saw as much.
        let observed = Observed::new(stamp(9), []);
        let increment = datatypes::Operation::Register(register::Operation::Increment { by: 1 });
        let invocation = Invocation::observed(&increment, Some(add()));
        let access = Access { invocation, observed: Some(&observed) };
        assert_eq!(judge(20, &access, &[], &[(7, get())]), Verdict::Abstain);
        assert_eq!(judge(20, &access, &[], &[(7, Invocation::blind(add()))]), Verdict::Ok);
    }
}
