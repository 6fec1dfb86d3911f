//! What known bugs do, where that is more than a rule left out.

use super::Partition;
use crate::stable::message::KeyEffects;
use crate::stable::stamp::Stamp;
use crate::stable::{Mutant, Times};
use types::{Incarnation, ProcessId, TransactionId};

/// Above every id that a transaction has.
const LAST: TransactionId =
    TransactionId { process: ProcessId(u16::MAX), incarnation: Incarnation(u32::MAX), number: u64::MAX };

impl<S: Times> Partition<S> {
    /// [`Mutant::OwnFirstAtATie`]: where an effect of this region is at the same time on the same key, another region's
    /// comes after it.
    pub(super) fn after_own_at_a_tie(
        &self,
        stamp: Stamp<S::Depends>,
        effects: &[KeyEffects],
    ) -> Stamp<S::Depends> {
        let is_tied = |of_key: &KeyEffects| {
            let mut known = self.store.effects(self.store.hash(&of_key.key), &of_key.key);
            known.any(|(own, _)| own.at == stamp.at && own.region == self.region)
        };
        match self.options.mutants.has(Mutant::OwnFirstAtATie) && effects.iter().any(is_tied) {
            true => Stamp { transaction: LAST, ..stamp },
            false => stamp,
        }
    }
}
