//! What known bugs do, where that is more than a rule left out.

use super::client::Tally;
use super::{Application, Operations, Replica};
use crate::Mutant;

impl<O: Operations> Tally<O> {
    /// [`Mutant::CountTwoEpochs`]: what was said in an earlier epoch passes for something of this view.
    pub fn carried_into(&self, view: u64) -> Self {
        let mut carried = self.clone();
        carried.finalizing = None;
        carried.answers.values_mut().for_each(|answer| answer.view = view);
        carried
    }
}

impl<O: Operations> Replica<O> {
    /// [`Mutant::DropUndecidedAtChange`]: the record of the next epoch begins without what is undecided.
    pub(super) fn drop_undecided_at_change(&mut self, app: &mut impl Application<O>) {
        let is_dropped = self.mutants.has(Mutant::DropUndecidedAtChange);
        let ids: Vec<_> = self.log.undecided().filter(|_| is_dropped).map(|(id, _)| id).collect();
        for id in ids {
            app.release(id);
            self.log.remove(id);
        }
    }
}
