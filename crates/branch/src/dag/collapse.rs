//! Path compression (TARDiS 6.3): a state leaves, and the child below which all that follows stands takes its place.

use super::{Dag, Label, Node};
use crate::StateId;
use crate::changes::Written;
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::cmp::Reverse;

impl Dag {
    /// The child that every other descendant of the state descends from, if there is one and no transaction holds the
    /// state: then a view that sees the state sees the child.
    pub(crate) fn only_child(&self, node: Node) -> Option<Node> {
        let state = self.state(node);
        if state.holds > 0 {
            return None;
        }
        // An ancestor of the others has the least id.
        let least = *state.children.iter().min_by_key(|child| self.id(**child))?;
        state.children.iter().all(|child| *child == least || self.sees(least, *child)).then_some(least)
    }

    /// Nothing begins at this state any more.
    pub(crate) fn close(&mut self, node: Node, heir: Node) {
        self.closing = Some((node, heir));
    }

    /// Where a state comes among others, the most recent first. One that is on its way out comes behind its heir, whose writes it may
    /// have already: nothing between them wrote a key that one of them wrote and the heir did not.
    pub(super) fn recency(&self, node: Node) -> Reverse<(StateId, bool)> {
        match self.closing {
            Some((closing, heir)) if closing == node => Reverse((self.id(heir), false)),
            _ => Reverse((self.id(node), true)),
        }
    }

    /// Takes one key out of a state's write set.
    pub(crate) fn pop_write(&mut self, node: Node) -> Option<(CompactKey, Written)> {
        self.state_mut(node).writes.pop()
    }

    /// Adds a key to a state's write set.
    pub(crate) fn note_write(&mut self, node: Node, key: CompactKey, written: Written) {
        self.state_mut(node).writes.note(key, written);
    }

    /// Gives a state the write set and the versions' label of another one, whose set is empty then.
    pub(crate) fn inherit(&mut self, heir: Node, from: Node) {
        let writes = std::mem::take(&mut self.state_mut(from).writes);
        let label = self.state(from).versions;
        let before: Label = self.state(heir).versions;
        self.branches.retain(label);
        self.branches.release(before);
        let heir = self.state_mut(heir);
        (heir.writes, heir.versions) = (writes, label);
    }

    /// Gives up the last slots that are empty.
    fn shrink(&mut self) {
        while self.states.last().is_some_and(Option::is_none) {
            self.states.pop();
        }
        if self.states.len().max(64) < self.states.capacity() / 4 {
            self.states.shrink_to(2 * self.states.len());
            self.free.retain(|Reverse(place)| (*place as usize) < self.states.len());
        }
    }

    /// Removes a state whose only child is `child`. Edges that another path implies go with it.
    pub(crate) fn remove(&mut self, node: Node, child: Node) {
        let Some(state) = self.states[node.0 as usize].take() else { return };
        self.closing = self.closing.filter(|(closing, _)| *closing != node);
        self.free.push(Reverse(node.0));
        self.shrink();
        self.by_id.remove(&state.id);
        for other in state.children {
            self.state_mut(other).parents.retain(|parent| *parent != node);
        }
        let mut parents = std::mem::take(&mut self.state_mut(child).parents);
        // None of the child's other parents is above one of the state's: it would be above the state.
        let is_greatest = |parent: &&Node| !parents.iter().any(|other| self.sees(**parent, *other));
        let new: SmallVec<[Node; 1]> = state.parents.iter().filter(is_greatest).copied().collect();
        parents.extend(new);
        for parent in state.parents {
            let children = &mut self.state_mut(parent).children;
            children.retain(|other| *other != node && *other != child);
            if parents.contains(&parent) {
                children.push(child);
            }
        }
        self.state_mut(child).parents = parents;
        self.branches.release(state.label);
        self.branches.release(state.versions);
        if self.root == node {
            self.root = child;
        }
    }

    /// Forgets a little of what labels say of branches that are gone; returns how much work that was.
    pub(crate) fn sweep_labels(&mut self, budget: usize) -> usize {
        self.branches.sweep(budget)
    }
}
