//! States inserted between others: states collected early that come back, and those of a checkpoint.
//!
//! Labels never change, so a state that comes back needs one that its descendants see and no other state does. Where
//! its heir is on its own old branch, that is its old label: everything between its ancestors on the branch and the
//! heir had gone, and what other branches see of this one was never forgotten. Elsewhere it gets a new label, and the
//! branches of its descendants are extended to see it. No branch has states of both kinds: a branch is a chain, the
//! first state on it that descends from another branch's state is the first of all.

use super::{Dag, Label, MissingParent, Node};
use crate::{Mutants, StateId, WriteSet};
use smallvec::SmallVec;

impl Dag {
    /// The label of a state.
    pub(crate) fn label(&self, node: Node) -> Label {
        self.state(node).label
    }

    /// Brings back a state whose descendants are the heir and the heir's. Its parents are here.
    ///
    /// # Errors
    /// A parent is not here.
    pub(crate) fn recall(
        &mut self,
        (id, parents): (StateId, &[StateId]),
        writes: WriteSet,
        label: Option<Label>,
        heir: Node,
    ) -> Result<Node, MissingParent> {
        let parents = self.parents_of(parents)?;
        let branch = self.label(heir).branch;
        let label = match label.filter(|label| label.branch == branch) {
            Some(label) => label,
            None => {
                let labels = self.labels_of(&parents);
                let label = self.branches.label(&labels, Mutants::NONE);
                self.reveal(label, heir);
                label
            }
        };
        let node = self.place(id, label, parents, writes);
        self.heads.remove(&(id, node));
        self.put_between(node, heir);
        Ok(node)
    }

    fn reveal(&mut self, label: Label, heir: Node) {
        let below = self.by_id.values().filter(|node| self.sees(heir, **node));
        let mut branches: Vec<u64> = below.map(|node| self.label(*node).branch).collect();
        branches.sort_unstable();
        branches.dedup();
        self.meter().states(self.by_id.len());
        branches.into_iter().for_each(|branch| self.branches.reveal(label, branch));
    }

    /// The heir is a child of the state, and of those of its parents which that does not imply.
    fn put_between(&mut self, node: Node, heir: Node) {
        let mut all: SmallVec<[Node; 4]> = self.state(heir).parents.iter().copied().collect();
        all.push(node);
        let parents = self.greatest(&all);
        for parent in all {
            let children = &mut self.state_mut(parent).children;
            children.retain(|child| *child != heir);
            if parents.contains(&parent) {
                children.push(heir);
            }
        }
        self.state_mut(heir).parents = parents;
    }

    /// From now on the versions of a state's class have its own label. Returns their former label, if it was another.
    pub(crate) fn own_versions(&mut self, node: Node) -> Option<Label> {
        let state = self.state_mut(node);
        let (own, before) = (state.label, std::mem::replace(&mut state.versions, state.label));
        self.branches.retain(own);
        self.branches.release(before);
        (before != own).then_some(before)
    }

    /// Gives a state another write set; returns the one that it had.
    pub(crate) fn replace_writes(&mut self, node: Node, writes: WriteSet) -> WriteSet {
        std::mem::replace(&mut self.state_mut(node).writes, writes)
    }

    /// Appends a state as a checkpoint found it, on a branch of its own: states that had been collected early may come
    /// back between it and its parents.
    ///
    /// # Errors
    /// A parent is not here.
    pub(crate) fn restore(
        &mut self,
        id: StateId,
        parents: &[StateId],
        writes: WriteSet,
    ) -> Result<Node, MissingParent> {
        if let Some(node) = self.node(id) {
            return Ok(node);
        }
        let parents = self.parents_of(parents)?;
        let labels = self.labels_of(&parents);
        let label = self.branches.label_on_new_branch(&labels, Mutants::NONE);
        Ok(self.place(id, label, parents, writes))
    }
}
