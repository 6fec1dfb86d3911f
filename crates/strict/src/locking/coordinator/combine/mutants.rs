//! What a known bug does, where that is more than a rule left out.

use super::super::transaction::Transaction;
use super::super::{Coordinator, Step};
use super::LockSet;
use crate::locking::options::Combining;

impl Coordinator {
    /// [`Mutant::CombineAfterCommitBegan`](crate::Mutant::CombineAfterCommitBegan): whoever has begun to commit is joined like
    /// any other.
    pub(super) fn join_too_late(
        &mut self,
        transaction: Transaction,
        wants: LockSet,
        step: &mut Step<'_, '_>,
    ) {
        let committing = self.protocol.combiner.committing(&wants);
        let host = committing.filter(|host| self.suits(&transaction, *host, Combining::default(), step));
        match host.and_then(|host| self.take(host)) {
            Some(mut host) => {
                self.take_one_in(&mut host, transaction, step);
                self.keep(host, step);
            }
            None => self.lead(transaction, wants, Combining::default(), step),
        }
    }
}
