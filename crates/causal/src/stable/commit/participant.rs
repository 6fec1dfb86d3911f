//! A participant's two queues in a two-phase commit with proposed timestamps (Wren, Algorithms 6 and 7; PaRiS alike).

use std::collections::BTreeMap;
use types::{Timestamp, TransactionId};

/// Transactions this participant has proposed a timestamp for, and transactions whose timestamp is decided and that
/// wait to be applied in timestamp order. `P` is the state of the former, `C` of the latter.
///
/// The bound that may be published is below every proposal: a decided timestamp is the maximum of the proposals, so
/// nothing can still commit at or below it (Wren, Algorithm 7, line 6). A caller with a clock publishes the clock's
/// reading when nothing is proposed, and must make the clock remember it (Corrections 21).
#[derive(Clone, Debug)]
pub struct Participant<P, C> {
    prepared: BTreeMap<TransactionId, (Timestamp, P)>,
    committed: BTreeMap<(Timestamp, TransactionId), C>,
}

impl<P, C> Default for Participant<P, C> {
    fn default() -> Self {
        Participant { prepared: BTreeMap::new(), committed: BTreeMap::new() }
    }
}

impl<P, C> Participant<P, C> {
    /// Proposes `at` for a transaction.
    pub fn prepare(&mut self, id: TransactionId, at: Timestamp, work: P) {
        self.prepared.insert(id, (at, work));
    }

    /// What was proposed for a transaction that is not decided here.
    pub fn prepared(&self, id: TransactionId) -> Option<(Timestamp, &P)> {
        self.prepared.get(&id).map(|(at, work)| (*at, work))
    }

    /// The mutable state of an undecided transaction.
    pub fn prepared_mut(&mut self, id: TransactionId) -> Option<&mut P> {
        self.prepared.get_mut(&id).map(|(_, work)| work)
    }

    /// Every transaction that is not decided here, in order of its id.
    pub fn undecided(&self) -> impl Iterator<Item = (TransactionId, Timestamp, &P)> {
        self.prepared.iter().map(|(id, (at, work))| (*id, *at, work))
    }

    /// The mutable state of every undecided transaction.
    pub fn undecided_mut(&mut self) -> impl Iterator<Item = &mut P> {
        self.prepared.values_mut().map(|(_, work)| work)
    }

    /// The transaction commits at `at`: takes it out of the proposed ones. The caller makes its effects known and
    /// hands the work to [`Participant::commit`]. `None` if it is not prepared here.
    pub fn take(&mut self, id: TransactionId) -> Option<P> {
        self.prepared.remove(&id).map(|(_, work)| work)
    }

    /// Queues decided work until everything that may be placed before it is known.
    pub fn commit(&mut self, at: Timestamp, id: TransactionId, work: C) {
        self.committed.insert((at, id), work);
    }

    /// What may be published when the clock, which gives nothing at or below its reading any more, reads `clock`.
    pub fn bound(&self, clock: Timestamp) -> Timestamp {
        self.prepared.values().map(|(at, _)| *at).min().map_or(clock, |lowest| lowest.previous().min(clock))
    }

    /// Takes the decided work up to and including `bound`, in order (Corrections 20).
    pub fn apply_through(&mut self, bound: Timestamp) -> Vec<(Timestamp, TransactionId, C)> {
        let mut due = Vec::new();
        while self.committed.first_key_value().is_some_and(|((at, _), _)| *at <= bound) {
            due.extend(self.committed.pop_first().map(|((at, id), work)| (at, id, work)));
        }
        due
    }

    /// Drops the decided work of which this is not true.
    pub fn retain_committed(&mut self, mut stays: impl FnMut(Timestamp, TransactionId, &C) -> bool) {
        self.committed.retain(|(at, id), work| stays(*at, *id, work));
    }

    /// The decided work that waits, in order.
    pub fn waiting(&self) -> impl Iterator<Item = (Timestamp, TransactionId, &C)> {
        self.committed.iter().map(|((at, id), work)| (*at, *id, work))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    #[test]
    fn the_bound_is_below_every_proposal_and_below_the_clock() {
        let mut participant: Participant<(), ()> = Participant::default();
        assert_eq!(participant.bound(Timestamp(9)), Timestamp(9));
        participant.prepare(id(1), Timestamp(5), ());
        participant.prepare(id(2), Timestamp(7), ());
        assert_eq!(participant.bound(Timestamp(9)), Timestamp(4));
        participant.take(id(1)).expect("it is prepared");
        assert_eq!(participant.bound(Timestamp(9)), Timestamp(6));
        assert_eq!(participant.take(id(1)), None, "a decision counts once");
    }

    #[test]
    fn decided_work_may_be_given_up() {
        let mut participant: Participant<(), u8> = Participant::default();
        participant.commit(Timestamp(4), id(1), 1);
        participant.commit(Timestamp(6), id(2), 2);
        participant.retain_committed(|at, _, _| at < Timestamp(5));
        assert_eq!(participant.apply_through(Timestamp(9)), [(Timestamp(4), id(1), 1)]);
    }

    proptest! {
        /// Wren, section 4.4.2: transactions are applied in increasing order of commit timestamp, and nothing
        /// commits at or below a bound that was published.
        #[test]
        fn nothing_is_applied_below_a_published_bound(script in proptest::collection::vec((0u8..3, 0u64..8), 1..120)) {
            let mut participant = Participant::default();
            let (mut clock, mut next, mut published) = (0, 0, Timestamp::ZERO);
            let mut last = (Timestamp::ZERO, id(0));
            for (what, choice) in script {
                match what {
                    0 => {
                        (clock, next) = (clock + 1, next + 1);
                        participant.prepare(id(next), Timestamp(clock), ());
                    }
                    1 => {
                        let chosen = participant.undecided().nth(choice as usize).map(|(id, at, _)| (id, at));
                        if let Some((id, at)) = chosen {
                            let commit = Timestamp(at.0 + choice);
                            prop_assert!(commit > published);
                            clock = clock.max(commit.0);
                            participant.take(id);
                            participant.commit(commit, id, ());
                        }
                    }
                    _ => {
                        published = published.max(participant.bound(Timestamp(clock)));
                        for (at, id, ()) in participant.apply_through(published) {
                            prop_assert!((at, id) > last);
                            last = (at, id);
                        }
                        prop_assert!(participant.waiting().all(|(at, ..)| at > published));
                    }
                }
            }
        }
    }
}
