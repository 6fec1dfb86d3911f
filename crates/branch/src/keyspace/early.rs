//! States that were collected early come back (TARDiS 6.4, Corrections 54): when a transaction arrives whose parent such a
//! state is, it is made anew where it was, between its ancestors and its heir, and with what it wrote.

use super::Keyspace;
use crate::StateId;
use crate::dag::MissingParent;
use crate::retained::{Changes, RetainedTransactions};
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::ProcessId;

impl Keyspace {
    /// Collection does not wait for the promises of these sites from now on: what they may still build on and what cannot
    /// be made anew stays.
    pub fn go_without(&mut self, silent: BTreeSet<ProcessId>) {
        self.collector.go_without(silent);
    }

    /// The retained transactions.
    pub fn retained(&self) -> &RetainedTransactions {
        &self.retained
    }

    /// The same, to be added to.
    pub fn retained_mut(&mut self) -> &mut RetainedTransactions {
        &mut self.retained
    }

    /// Forgets the states that were collected early and that no site will build on any more.
    pub fn forget_early(&mut self) {
        if self.frozen.is_some() {
            return;
        }
        let passed =
            |id: &StateId| self.dag.node(*id).is_some_and(|node| self.collector.is_passed(&self.dag, node));
        let heirs: Vec<StateId> = self.retained.bearers().filter(passed).collect();
        if self.retained.forget_borne_by(&heirs) {
            self.collector.wake();
        }
    }

    /// True if a state was collected early and may come back now.
    pub fn may_come_back(&self, id: StateId) -> bool {
        !self.stands_still() && self.retained.is_early(id)
    }

    /// Makes a state anew that was collected early, and those of its ancestors that were. False if it was not, or while a
    /// checkpoint is being taken or a merge worked out.
    pub(super) fn bring_back(&mut self, id: StateId) -> Result<bool, MissingParent> {
        if !self.may_come_back(id) {
            return Ok(false);
        }
        self.settle();
        let (line, _) = self.retained.lines(std::iter::once(id));
        let heirs: Vec<StateId> = line.iter().filter_map(|id| self.retained.heir(*id)).collect();
        heirs.iter().for_each(|heir| self.own_versions(*heir));
        let labels: Vec<_> = line.iter().map(|id| self.retained.recall(*id)).collect();
        let mut left: BTreeMap<StateId, Changes> = BTreeMap::new();
        for heir in &heirs {
            left.entry(*heir).or_insert_with(|| self.retained.changes(*heir));
        }
        for ((id, heir), label) in line.into_iter().zip(&heirs).zip(labels) {
            self.come_back(id, (*heir, &left[heir]), label)?;
        }
        for (heir, changes) in left {
            if let Some(node) = self.dag.node(heir) {
                self.dag.replace_writes(node, changes.into_iter().collect());
            }
        }
        self.collector.look_anew();
        Ok(true)
    }

    /// The versions of a state's class are labelled as the state is: states that come back above it must not see them.
    fn own_versions(&mut self, id: StateId) {
        let Some(node) = self.dag.node(id) else { return };
        let Some(before) = self.dag.own_versions(node) else { return };
        let own = self.dag.versions(node);
        for (key, _) in self.dag.writes(node).iter() {
            self.records.relabel(key, before, own, false);
        }
    }

    /// Puts a state back, whose parents are here. Of a key that the heir's class wrote again later (`left`) it gets a
    /// version of its own; of any other the version of the class is its.
    fn come_back(
        &mut self,
        id: StateId,
        (heir, left): (StateId, &Changes),
        label: Option<crate::Label>,
    ) -> Result<(), MissingParent> {
        let commit = self.retained.get(id).cloned().ok_or(MissingParent(id))?;
        let heir = self.dag.node(heir).ok_or(MissingParent(heir))?;
        let node = self.dag.recall((id, &commit.parents), commit.write_set(), label, heir)?;
        let parents: SmallVec<[_; 1]> = self.dag.parents(node).into();
        let view = self.dag.view(&parents).gathered();
        let (label, class) = (self.dag.versions(node), self.dag.versions(heir));
        for (key, effects) in &commit.writes {
            if !left.contains_key(key) && self.records.writer(key, class) == Some(id) {
                self.records.relabel(key, class, label, false);
            } else {
                self.records.put(key, &view, label, id, effects.iter().map(|effect| &**effect));
            }
        }
        Ok(())
    }
}
