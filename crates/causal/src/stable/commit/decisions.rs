//! What became of transactions, so that a repeated message counts once (Corrections 23, 34 and 73).

use std::collections::BTreeMap;
use types::{Incarnation, ProcessId, TransactionId};

/// The decisions a participant remembers. A coordinator numbers its transactions and says below which number all of
/// them have ended everywhere; those are forgotten here, and what still arrives about them is refused rather than
/// done again. Which decisions outlive their coordinator's incarnation is the caller's choice: a participant in
/// doubt may still ask about them.
#[derive(Clone, Debug)]
pub struct Decisions<O> {
    coordinators: BTreeMap<ProcessId, (Incarnation, u64)>,
    decided: BTreeMap<TransactionId, O>,
}

impl<O> Default for Decisions<O> {
    fn default() -> Self {
        Decisions { coordinators: BTreeMap::new(), decided: BTreeMap::new() }
    }
}

impl<O> Decisions<O> {
    /// The coordinator of `id` says that its transactions below `settled` have ended everywhere. With a new
    /// incarnation, decisions of the earlier ones go unless `outlives`. True if `id` itself is still to be heard.
    pub fn admit(&mut self, id: TransactionId, settled: u64, outlives: impl Fn(&O) -> bool) -> bool {
        let (mut known, mut advanced) = (settled, settled > 0);
        match self.coordinators.get(&id.process) {
            Some((incarnation, _)) if id.incarnation < *incarnation => return false,
            Some((incarnation, before)) if id.incarnation == *incarnation => {
                advanced = settled > *before;
                known = settled.max(*before);
            }
            _ => self.decided.retain(|old, outcome| {
                old.process != id.process || old.incarnation == id.incarnation || outlives(outcome)
            }),
        }
        self.coordinators.insert(id.process, (id.incarnation, known));
        if advanced {
            let first = TransactionId { number: 0, ..id };
            let ended: Vec<TransactionId> =
                self.decided.range(first..TransactionId { number: known, ..id }).map(|(id, _)| *id).collect();
            for id in ended {
                self.decided.remove(&id);
            }
        }
        id.number >= known
    }

    /// Remembers a decision; the first one stands.
    pub fn decide(&mut self, id: TransactionId, outcome: O) {
        self.decided.entry(id).or_insert(outcome);
    }

    /// What became of a transaction, if it is remembered.
    pub fn get(&self, id: TransactionId) -> Option<&O> {
        self.decided.get(&id)
    }

    /// Everything remembered.
    pub fn iter(&self) -> impl Iterator<Item = (TransactionId, &O)> {
        self.decided.iter().map(|(id, outcome)| (*id, outcome))
    }

    /// By life of a coordinator the number below which all of its transactions have ended everywhere, as the id of that
    /// transaction.
    pub fn settled(&self) -> impl Iterator<Item = TransactionId> + '_ {
        let known = self.coordinators.iter();
        known.map(|(process, (incarnation, number))| TransactionId {
            process: *process,
            incarnation: *incarnation,
            number: *number,
        })
    }

    /// How many decisions are remembered.
    pub fn len(&self) -> usize {
        self.decided.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(process: u16, incarnation: u32, number: u64) -> TransactionId {
        TransactionId { process: ProcessId(process), incarnation: Incarnation(incarnation), number }
    }

    #[test]
    fn what_has_ended_everywhere_is_forgotten_and_refused() {
        let mut decisions = Decisions::default();
        assert!(decisions.admit(id(1, 1, 3), 0, |_| true));
        decisions.decide(id(1, 1, 3), "committed");
        decisions.decide(id(1, 1, 3), "aborted");
        assert_eq!(decisions.get(id(1, 1, 3)), Some(&"committed"), "the first decision stands");
        assert!(decisions.admit(id(1, 1, 5), 4, |_| true));
        assert_eq!(decisions.len(), 0);
        assert!(!decisions.admit(id(1, 1, 3), 0, |_| true), "a late repetition is not done again");
    }

    #[test]
    fn a_new_incarnation_ends_the_earlier_ones_except_for_what_outlives_them() {
        let mut decisions = Decisions::default();
        decisions.decide(id(1, 1, 3), "committed");
        decisions.decide(id(1, 1, 4), "aborted");
        decisions.decide(id(2, 1, 1), "aborted");
        assert!(decisions.admit(id(1, 2, 0), 0, |outcome| *outcome == "committed"));
        assert!(!decisions.admit(id(1, 1, 9), 0, |_| true));
        let left: Vec<_> = decisions.iter().map(|(id, _)| id).collect();
        assert_eq!(left, [id(1, 1, 3), id(2, 1, 1)], "another coordinator's decisions stay");
    }
}
