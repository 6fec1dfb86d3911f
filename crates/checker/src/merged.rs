//! The state of a key that effects make of which some did not observe others (Corrections 75).

use crate::history::ObservedPlace;
use datatypes::merge::{Among, Trace, perform, perform_plainly, stands_alone};
use datatypes::{Cell, Effect};
use std::collections::BTreeMap;

/// See the module. Effects come in order of place.
#[derive(Default)]
pub(crate) struct Merged<'h> {
    cell: Cell,
    commits: Vec<ObservedPlace<'h>>,
    effects: Vec<Effect<'h>>,
    traces: Vec<Option<Trace>>,
    /// The latest place of each region.
    latest: BTreeMap<u16, u64>,
}

impl<'h> Merged<'h> {
    pub fn add(&mut self, commit: ObservedPlace<'h>, effect: &Effect<'h>) {
        self.commits.push(commit);
        self.effects.push(effect.clone());
        let hides = |(region, at): (&u16, &u64)| *region != commit.region && !commit.reaches(*region, *at);
        let performed = if stands_alone(&self.cell, effect) || !self.latest.iter().any(hides) {
            perform_plainly(&mut self.cell, effect)
        } else {
            let traces: Vec<Option<&Trace>> = self.traces.iter().map(Option::as_ref).chain([None]).collect();
            let sees = |later: usize, earlier: usize| self.commits[later].observed(&self.commits[earlier]);
            perform(&mut self.cell, &Among { effects: &self.effects, traces: &traces, sees: &sees })
        };
        self.traces.push(performed.trace);
        self.latest.insert(commit.region, commit.at);
    }

    pub fn into_cell(self) -> Cell {
        self.cell
    }
}
