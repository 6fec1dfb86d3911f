//! The log as the library sees it: entries in memory, from the oldest that a member may still need. What must survive
//! is in the journal.

use raft::eraftpb::{ConfState, Entry, HardState, Snapshot};
use raft::{Error, GetEntriesContext, RaftState, Result, Storage, StorageError};
use std::collections::VecDeque;

/// See the module.
#[derive(Debug)]
pub(super) struct Memory {
    voters: Vec<u64>,
    hard: HardState,
    /// Index and term of the entry before the first retained one.
    dropped: (u64, u64),
    /// The state began here: recovered or transferred.
    base: (u64, u64),
    entries: VecDeque<Entry>,
}

impl Memory {
    pub(super) fn new(members: usize) -> Self {
        Memory {
            voters: (0..members).map(super::id).collect(),
            hard: HardState::default(),
            dropped: (0, 0),
            base: (0, 0),
            entries: VecDeque::new(),
        }
    }

    pub(super) fn hard(&self) -> &HardState {
        &self.hard
    }

    pub(super) fn set_hard(&mut self, term: u64, vote: u64, commit: u64) {
        self.hard.term = term;
        self.hard.vote = vote;
        self.hard.commit = commit;
    }

    pub(super) fn set_commit(&mut self, commit: u64) {
        self.hard.commit = commit;
    }

    /// Index and term up to which the state was recovered.
    pub(super) fn base(&self) -> (u64, u64) {
        self.base
    }

    /// The state now stands for every entry up to `index`.
    pub(super) fn set_base(&mut self, index: u64, term: u64) {
        self.base = (index, term);
        if self.term_at(index) == Some(term) {
            self.drop_below(index, 0);
        } else {
            self.entries.clear();
            self.dropped = (index, term);
        }
        self.hard.commit = self.hard.commit.max(index);
        self.hard.term = self.hard.term.max(term);
    }

    fn last(&self) -> u64 {
        self.dropped.0 + self.entries.len() as u64
    }

    /// Makes what was recovered fit together: a commit index beyond the last entry is of entries that were lost.
    pub(super) fn settle(&mut self) {
        self.hard.commit = self.hard.commit.clamp(self.base.0, self.last());
    }

    /// The term of an entry, if the log retains it or dropped it last.
    pub(super) fn term_at(&self, index: u64) -> Option<u64> {
        if index == self.dropped.0 {
            return Some(self.dropped.1);
        }
        let place = index.checked_sub(self.dropped.0 + 1)?;
        self.entries.get(place as usize).map(|entry| entry.term)
    }

    /// Appends entries, in place of those with the same and later indices.
    pub(super) fn append(&mut self, entries: impl IntoIterator<Item = Entry>) {
        for entry in entries {
            let Some(place) = entry.index.checked_sub(self.dropped.0 + 1) else { continue };
            if place > self.entries.len() as u64 {
                // Entries between were lost with the power: nothing after them counts.
                return;
            }
            self.entries.truncate(place as usize);
            self.entries.push_back(entry);
        }
    }

    /// The entries after `index`.
    pub(super) fn after(&self, index: u64) -> Vec<Entry> {
        self.entries.iter().filter(|entry| entry.index > index).cloned().collect()
    }

    /// The newest entry that is not empty.
    pub(super) fn newest(&self) -> Option<&[u8]> {
        let mut entries = self.entries.iter().rev();
        entries.find(|entry| !entry.data.is_empty()).map(|entry| &*entry.data)
    }

    /// Drops entries up to `index`, once there are more than `at_once`.
    pub(super) fn drop_below(&mut self, index: u64, at_once: u64) {
        if index <= self.dropped.0 + at_once {
            return;
        }
        while self.dropped.0 < index
            && let Some(entry) = self.entries.pop_front()
        {
            self.dropped = (entry.index, entry.term);
        }
    }
}

impl Storage for Memory {
    fn initial_state(&self) -> Result<RaftState> {
        let mut members = ConfState::default();
        members.set_voters(self.voters.clone());
        Ok(RaftState::new(self.hard.clone(), members))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> Result<Vec<Entry>> {
        if low <= self.dropped.0 {
            return Err(Error::Store(StorageError::Compacted));
        }
        if high > self.last() + 1 {
            return Err(Error::Store(StorageError::Unavailable));
        }
        let (from, to) = (low - self.dropped.0 - 1, high - self.dropped.0 - 1);
        let mut left = max_size.into().unwrap_or(u64::MAX);
        let mut found = Vec::new();
        for entry in self.entries.range(from as usize..to as usize) {
            let size = entry.data.len() as u64;
            if !found.is_empty() && size > left {
                break;
            }
            left = left.saturating_sub(size);
            found.push(entry.clone());
        }
        Ok(found)
    }

    fn term(&self, index: u64) -> Result<u64> {
        let missing =
            if index < self.dropped.0 { StorageError::Compacted } else { StorageError::Unavailable };
        self.term_at(index).ok_or(Error::Store(missing))
    }

    fn first_index(&self) -> Result<u64> {
        Ok(self.dropped.0 + 1)
    }

    fn last_index(&self) -> Result<u64> {
        Ok(self.last())
    }

    /// Only says which state it would be: the member that needs it fetches it in pieces.
    fn snapshot(&self, request_index: u64, _: u64) -> Result<Snapshot> {
        let index = self.hard.commit.max(request_index);
        let term = self.term_at(index).ok_or(Error::Store(StorageError::SnapshotTemporarilyUnavailable))?;
        let mut snapshot = Snapshot::default();
        let metadata = snapshot.mut_metadata();
        metadata.index = index;
        metadata.term = term;
        metadata.mut_conf_state().set_voters(self.voters.clone());
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u64, term: u64) -> Entry {
        Entry { index, term, ..Entry::default() }
    }

    #[test]
    fn a_later_leaders_entries_take_the_place_of_an_earlier_ones() {
        let mut memory = Memory::new(3);
        memory.append([entry(1, 1), entry(2, 1), entry(3, 1)]);
        memory.append([entry(2, 2)]);
        assert_eq!((memory.last(), memory.term_at(2), memory.term_at(3)), (2, Some(2), None));
    }

    #[test]
    fn dropped_entries_keep_the_last_ones_term() {
        let mut memory = Memory::new(3);
        memory.append((1..=9).map(|index| entry(index, index)));
        memory.drop_below(5, 0);
        assert_eq!(
            (memory.term_at(5), memory.term_at(4), memory.first_index().ok()),
            (Some(5), None, Some(6))
        );
        assert!(matches!(memory.term(4), Err(Error::Store(StorageError::Compacted))));
        assert_eq!(memory.after(7).len(), 2);
    }

    #[test]
    fn a_commit_index_beyond_what_was_recovered_is_taken_back() {
        let mut memory = Memory::new(3);
        memory.set_base(4, 1);
        memory.append([entry(5, 2), entry(7, 2)]);
        memory.set_hard(2, 1, 9);
        memory.settle();
        assert_eq!((memory.hard().commit, memory.last()), (5, 5));
    }
}
