//! States of other sites that wait for their parents (TARDiS 6.4).

use super::gossip::WINDOW;
use crate::keyspace::ByValue;
use crate::{Commit, StateId};
use std::collections::{BTreeMap, BTreeSet};

/// How many wait at most: the site drops more, and their senders repeat them.
const MAX_ORPHANS: usize = 4 * WINDOW;

/// A state that waits for its parents.
#[derive(Clone, Debug)]
pub(super) enum Orphan {
    Commit(Commit),
    Value(ByValue),
}

impl Orphan {
    pub fn id(&self) -> StateId {
        match self {
            Orphan::Commit(commit) => commit.id,
            Orphan::Value(state) => state.id,
        }
    }

    pub fn parents(&self) -> &[StateId] {
        match self {
            Orphan::Commit(commit) => &commit.parents,
            Orphan::Value(state) => &state.parents,
        }
    }
}

/// One of them.
#[derive(Debug)]
struct Waiting {
    number: u64,
    /// The parent that it waits under; none if there was no room for it.
    missing: Option<StateId>,
}

/// See the module. They are numbered in the order in which they came.
#[derive(Debug, Default)]
pub(super) struct Orphans {
    /// By one of the parents that are not here.
    by_missing: BTreeMap<StateId, Vec<Orphan>>,
    retained: usize,
    waiting: BTreeMap<StateId, Waiting>,
    numbers: BTreeSet<u64>,
    last: u64,
}

impl Orphans {
    /// How many there are, but for those that had no room.
    pub fn len(&self) -> usize {
        self.retained
    }

    /// The number of the first one that still waits.
    pub fn first_number(&self) -> Option<u64> {
        self.numbers.first().copied()
    }

    /// The number of the last one that came.
    pub fn last_number(&self) -> u64 {
        self.last
    }

    /// What they wait for.
    pub fn missing(&self) -> Vec<StateId> {
        self.by_missing.keys().copied().collect()
    }

    /// Takes those that wait for this state. Each has to be handed back, by [`Orphans::adopt`] or [`Orphans::arrived`].
    pub fn take(&mut self, missing: StateId) -> Vec<Orphan> {
        let freed = self.by_missing.remove(&missing).unwrap_or_default();
        self.retained -= freed.len();
        for orphan in &freed {
            if let Some(waiting) = self.waiting.get_mut(&orphan.id()) {
                waiting.missing = None;
            }
        }
        freed
    }

    /// A state came, or waits on, for a parent that is not here.
    pub fn adopt(&mut self, missing: StateId, orphan: Orphan) {
        let waiting = self.waiting.entry(orphan.id()).or_insert_with(|| {
            self.last += 1;
            self.numbers.insert(self.last);
            Waiting { number: self.last, missing: None }
        });
        if waiting.missing.is_none() && self.retained < MAX_ORPHANS {
            waiting.missing = Some(missing);
            self.retained += 1;
            self.by_missing.entry(missing).or_default().push(orphan);
        }
    }

    /// A state is here, or was: it waits no more.
    pub fn arrived(&mut self, id: StateId) {
        let Some(Waiting { number, missing }) = self.waiting.remove(&id) else { return };
        self.numbers.remove(&number);
        // The transaction arrived twice: the other copy was applied.
        if let Some(missing) = missing
            && let Some(siblings) = self.by_missing.get_mut(&missing)
        {
            let before = siblings.len();
            siblings.retain(|orphan| orphan.id() != id);
            self.retained -= before - siblings.len();
            if siblings.is_empty() {
                self.by_missing.remove(&missing);
            }
        }
    }
}
