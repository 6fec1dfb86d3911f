//! Retained transactions: those whose states some site may lack, and those whose states were collected early (TARDiS
//! 6.4, optimistic), before every site had promised to begin nothing at them.
//!
//! ```text
//!   root ... p   x1   x2   heir        p: whole, the values of its class are here
//!            o---.----.----o           x1, x2: collected early, only their transactions are here
//!                                      heir: bears them; its class holds what they wrote and it did not overwrite
//! ```
//!
//! The site can recreate a state that was collected early: from its transaction, and those of its ancestors, down to
//! states that are here. So the site asks no peer for it, and a transaction whose parent it is never waits for a peer.
//! For that these things hold:
//!
//! - The site retains the transaction of a state that was collected early, and its heir's, until all sites promised to
//!   begin nothing above the heir.
//! - A parent of a state that was collected early is here, or was collected early itself.
//! - The heir's class holds what the heir and those that it bears wrote, and nothing else: the retained transactions
//!   say who wrote a key.

use crate::dag::{Dag, Label};
use crate::{Change, Commit, StateId};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;
use types::Instant;

#[derive(Debug)]
struct Entry {
    commit: Commit,
    bytes: usize,
    since: Instant,
    /// Every site has it: the site retains it because its state was collected early, or is the heir of one that was.
    is_everywhere: bool,
}

/// A state that was collected early.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CollectedEarly {
    /// Its label when it went; none if that was in an earlier life of the site.
    pub label: Option<Label>,
    group: u64,
}

/// Those that one state bears.
#[derive(Debug)]
struct Group {
    heir: StateId,
    members: BTreeSet<StateId>,
}

/// Of keys, how they were changed by some states together.
pub(crate) type Changes = BTreeMap<CompactKey, Change>;

/// See the module.
#[derive(Debug, Default)]
pub struct RetainedTransactions {
    entries: BTreeMap<StateId, Entry>,
    /// How many of them some site may lack, and their bytes.
    lacked: usize,
    lacked_bytes: usize,
    early: BTreeMap<StateId, CollectedEarly>,
    groups: BTreeMap<u64, Group>,
    /// The group of a state that bears some.
    borne_by: BTreeMap<StateId, u64>,
    /// Of the parents of states that were collected early, how many of these there are.
    parents: BTreeMap<StateId, usize>,
    last_group: u64,
}

impl RetainedTransactions {
    /// Keeps a transaction.
    pub fn insert(&mut self, commit: Commit, since: Instant) {
        if self.entries.contains_key(&commit.id) {
            return;
        }
        let bytes = commit.size();
        (self.lacked, self.lacked_bytes) = (self.lacked + 1, self.lacked_bytes + bytes);
        self.entries.insert(commit.id, Entry { commit, bytes, since, is_everywhere: false });
    }

    /// Forgets a transaction.
    pub(crate) fn remove(&mut self, id: StateId) {
        debug_assert!(!self.is_early(id), "what was collected early is needed");
        if let Some(entry) = self.entries.remove(&id).filter(|entry| !entry.is_everywhere) {
            (self.lacked, self.lacked_bytes) = (self.lacked - 1, self.lacked_bytes - entry.bytes);
        }
    }

    /// Every site has this state. Its transaction is forgotten, unless it takes that to make a state anew that was collected
    /// early: as long as a client of some site begins at such a state, which no time limits.
    pub(crate) fn received(&mut self, id: StateId) {
        if !self.is_early(id) && !self.bears(id) {
            return self.remove(id);
        }
        if let Some(entry) = self.entries.get_mut(&id).filter(|entry| !entry.is_everywhere) {
            entry.is_everywhere = true;
            (self.lacked, self.lacked_bytes) = (self.lacked - 1, self.lacked_bytes - entry.bytes);
        }
    }

    /// The transaction of a state.
    pub fn get(&self, id: StateId) -> Option<&Commit> {
        self.entries.get(&id).map(|entry| &entry.commit)
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// True without any.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// How many of them some site may lack.
    pub fn lacked(&self) -> usize {
        self.lacked
    }

    /// About how many bytes those occupy that some site may lack.
    pub fn lacked_bytes(&self) -> usize {
        self.lacked_bytes
    }

    /// The least id.
    pub(crate) fn first(&self) -> Option<StateId> {
        self.entries.first_key_value().map(|(id, _)| *id)
    }

    /// The first transaction after a state.
    pub(crate) fn after(&self, state: StateId) -> Option<(StateId, &Commit)> {
        let from = (Bound::Excluded(state), Bound::Unbounded);
        self.entries.range(from).next().map(|(id, entry)| (*id, &entry.commit))
    }

    /// The transactions that have been retained for so long.
    pub(crate) fn older_than(&self, age: Duration, now: Instant) -> impl Iterator<Item = StateId> {
        self.entries.iter().filter(move |(_, entry)| entry.since + age <= now).map(|(id, _)| *id)
    }

    /// The states that were collected early, in ascending order.
    pub fn early(&self) -> impl Iterator<Item = StateId> {
        self.early.keys().copied()
    }

    /// How many states were collected early.
    pub fn early_len(&self) -> usize {
        self.early.len()
    }

    /// True of a state that was collected early.
    pub fn is_early(&self, id: StateId) -> bool {
        self.early.contains_key(&id)
    }

    /// The heir of a state collected early: a view that sees one sees the other.
    pub fn heir(&self, id: StateId) -> Option<StateId> {
        let early = self.early.get(&id)?;
        Some(self.groups.get(&early.group)?.heir)
    }

    /// True if the state could be made anew from the retained transactions.
    pub(crate) fn is_spare(&self, id: StateId, dag: &Dag) -> bool {
        let is_near = |parent: &StateId| dag.node(*parent).is_some() || self.is_early(*parent);
        self.get(id).is_some_and(|commit| commit.parents.iter().all(is_near))
    }

    /// True if the state must not go for good, nor take in another one that does.
    pub(crate) fn is_needed(&self, id: StateId) -> bool {
        self.parents.contains_key(&id) || self.bears(id)
    }

    /// True if the state bears some that were collected early.
    pub(crate) fn bears(&self, id: StateId) -> bool {
        self.borne_by.contains_key(&id)
    }

    /// The states that bear some.
    pub(crate) fn bearers(&self) -> impl Iterator<Item = StateId> {
        self.borne_by.keys().copied()
    }

    /// A state is collected early: the heir bears it, and those that it bore.
    pub(crate) fn leave(&mut self, id: StateId, heir: StateId, label: Option<Label>) {
        self.inherit(id, heir);
        let group = self.group_of(heir);
        self.early.insert(id, CollectedEarly { label, group });
        if let Some(group) = self.groups.get_mut(&group) {
            group.members.insert(id);
        }
        for parent in self.get(id).map(|commit| commit.parents.clone()).unwrap_or_default() {
            *self.parents.entry(parent).or_default() += 1;
        }
    }

    fn group_of(&mut self, heir: StateId) -> u64 {
        if let Some(group) = self.borne_by.get(&heir) {
            return *group;
        }
        self.last_group += 1;
        self.groups.insert(self.last_group, Group { heir, members: BTreeSet::new() });
        self.borne_by.insert(heir, self.last_group);
        self.last_group
    }

    /// What one state bore another one bears from now on.
    fn inherit(&mut self, from: StateId, heir: StateId) {
        let Some(number) = self.borne_by.remove(&from) else { return };
        let Some(other) = self.borne_by.get(&heir).copied() else {
            self.borne_by.insert(heir, number);
            if let Some(group) = self.groups.get_mut(&number) {
                group.heir = heir;
            }
            return;
        };
        let size = |number: &u64| self.groups.get(number).map_or(0, |group| group.members.len());
        let (few, many) = if size(&number) < size(&other) { (number, other) } else { (other, number) };
        let moved = self.groups.remove(&few).map(|group| group.members).unwrap_or_default();
        for member in &moved {
            if let Some(early) = self.early.get_mut(member) {
                early.group = many;
            }
        }
        if let Some(group) = self.groups.get_mut(&many) {
            group.heir = heir;
            group.members.extend(moved);
        }
        self.borne_by.insert(heir, many);
    }

    /// Of some states that were collected early, with those of their ancestors without which they cannot be made anew:
    /// these, ancestors first, and their parents.
    pub(crate) fn lines(&self, of: impl Iterator<Item = StateId>) -> (BTreeSet<StateId>, BTreeSet<StateId>) {
        let (mut open, mut met, mut parents) = (of.collect::<Vec<_>>(), BTreeSet::new(), BTreeSet::new());
        while let Some(id) = open.pop() {
            if self.is_early(id) && met.insert(id) {
                let above = self.get(id).into_iter().flat_map(|commit| commit.parents.iter().copied());
                open.extend(above.clone());
                parents.extend(above);
            }
        }
        (met, parents)
    }

    /// A state is recreated: it has no heir any more. Returns its label, as far as it is known.
    pub(crate) fn recall(&mut self, id: StateId) -> Option<Label> {
        let early = self.early.remove(&id)?;
        if let Some(group) = self.groups.get_mut(&early.group) {
            group.members.remove(&id);
            if group.members.is_empty() {
                let heir = group.heir;
                self.groups.remove(&early.group);
                self.borne_by.remove(&heir);
            }
        }
        for parent in self.get(id).map(|commit| commit.parents.clone()).unwrap_or_default() {
            self.release_parent(parent);
        }
        early.label
    }

    fn release_parent(&mut self, parent: StateId) {
        if let Some(children) = self.parents.get_mut(&parent) {
            *children -= 1;
            if *children == 0 {
                self.parents.remove(&parent);
            }
        }
    }

    /// What a state and the states that it is heir of wrote.
    pub(crate) fn changes(&self, heir: StateId) -> Changes {
        let borne = self.borne_by.get(&heir).and_then(|group| self.groups.get(group));
        let members = borne.into_iter().flat_map(|group| group.members.iter().copied());
        let mut changes = Changes::new();
        for commit in members.chain([heir]).filter_map(|id| self.get(id)) {
            for (key, change) in commit.write_set().iter() {
                changes.entry(key.clone()).and_modify(|all| *all = all.and(change)).or_insert(change);
            }
        }
        changes
    }

    /// No transaction begins above these heirs any more: the site forgets the states that they are heirs of, except
    /// those that are needed to recreate a state with another heir. True if any are.
    pub(crate) fn forget_borne_by(&mut self, heirs: &[StateId]) -> bool {
        let mut groups: BTreeSet<u64> =
            heirs.iter().filter_map(|heir| self.borne_by.get(heir).copied()).collect();
        loop {
            // How many children of each parent would go.
            let mut going: BTreeMap<StateId, usize> = BTreeMap::new();
            let members =
                groups.iter().filter_map(|group| self.groups.get(group)).flat_map(|group| &group.members);
            for parent in members.filter_map(|id| self.get(*id)).flat_map(|commit| &commit.parents) {
                *going.entry(*parent).or_default() += 1;
            }
            let is_free =
                |group: &Group| group.members.iter().all(|id| self.parents.get(id) == going.get(id));
            let free: BTreeSet<u64> =
                groups.iter().copied().filter(|group| self.groups.get(group).is_some_and(is_free)).collect();
            if free == groups {
                break;
            }
            groups = free;
        }
        for group in &groups {
            let members = self.groups.get(group).map(|group| group.members.clone()).unwrap_or_default();
            for id in members {
                self.recall(id);
                self.remove(id);
            }
        }
        !groups.is_empty()
    }
}
