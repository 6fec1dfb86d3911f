//! A coordinator's count of the votes of one transaction.

use std::collections::BTreeSet;
use types::Timestamp;

/// Collects the proposals of a transaction's participants; the commit timestamp is their maximum (Wren, Algorithm 5,
/// line 25).
#[derive(Clone, Debug)]
pub struct Votes<P> {
    missing: BTreeSet<P>,
    highest: Timestamp,
}

impl<P: Ord + Copy> Votes<P> {
    /// No participant has voted.
    pub fn new(participants: impl IntoIterator<Item = P>) -> Self {
        Votes { missing: participants.into_iter().collect(), highest: Timestamp::ZERO }
    }

    /// Takes a proposal, each participant's once; the commit timestamp when it was the last one missing.
    pub fn vote(&mut self, participant: P, proposed: Timestamp) -> Option<Timestamp> {
        if !self.missing.remove(&participant) {
            return None;
        }
        self.highest = self.highest.max(proposed);
        self.missing.is_empty().then_some(self.highest)
    }

    /// Whose vote is missing.
    pub fn missing(&self) -> impl Iterator<Item = P> {
        self.missing.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_decision_is_the_maximum_and_comes_once() {
        let mut votes = Votes::new([0, 1, 2]);
        assert_eq!(votes.vote(1, Timestamp(9)), None);
        assert_eq!(votes.vote(1, Timestamp(99)), None, "a repeated vote does not count");
        assert_eq!(votes.vote(0, Timestamp(3)), None);
        assert_eq!(votes.missing().collect::<Vec<_>>(), [2]);
        assert_eq!(votes.vote(2, Timestamp(4)), Some(Timestamp(9)));
        assert_eq!(votes.vote(2, Timestamp(4)), None);
    }
}
