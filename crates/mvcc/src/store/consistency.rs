//! Everything the store counts beside its records, counted anew.

use super::{Counted, Stamp, Store};
use crate::Keyed;
use std::collections::BTreeSet;

impl<S: Stamp> Store<S> {
    /// Panics unless every count equals what it counts: memory, tombstones, deadlines, what is due. Visits
    /// everything; for tests and simulations.
    pub fn assert_consistent(&self) {
        let records: usize = self.table.iter().map(|record| record.memory()).sum();
        let histories: usize = self.histories.iter().map(|history| history.heap_bytes()).sum();
        let deadlines = self.deadlines.iter().chain(&self.ends);
        let deadlines: usize = deadlines.map(|(_, key)| key.heap_bytes()).sum();
        assert_eq!(self.memory, records + histories + deadlines, "memory");
        assert_eq!(self.history_bytes, histories, "memory of histories");
        self.packing.assert_consistent();
        for packed in self.packing.table().iter() {
            let hash = self.hash(packed.key());
            assert!(self.table.get(hash, packed.key()).is_none(), "{:?} is packed", packed.key());
        }
        self.assert_records();
        self.assert_histories();
    }

    fn assert_records(&self) {
        let (mut tombstones, mut buried, mut dated, mut lapsed) = (0, 0, 0, 0);
        let (mut deadlines, mut ends) = (BTreeSet::new(), BTreeSet::new());
        for record in self.table.iter() {
            let counted = Counted::of(&record.cell);
            if counted.absent {
                tombstones += 1;
                buried += record.memory();
                let hash = self.hash(&record.key);
                let key_history = self.histories.get(hash, &record.key);
                assert!(key_history.is_some(), "the absent record of {:?} has a history", record.key);
            }
            dated += usize::from(record.cell.expires_at != 0);
            let end = record.cell.end();
            lapsed += usize::from(end != 0 && end <= self.lapsed_until);
            if end != 0 && end != counted.deadline {
                ends.insert((end, record.key.clone()));
            }
            if counted.deadline != 0 {
                deadlines.insert((counted.deadline, record.key.clone()));
            }
        }
        assert_eq!(self.tombstones, tombstones, "tombstones");
        assert_eq!(self.buried, buried, "memory of tombstones");
        assert!(self.retained() <= self.memory(), "what is kept for snapshots is part of the memory");
        assert_eq!(self.dated, dated, "keys with a deadline of their own");
        assert_eq!(self.lapsed, lapsed, "keys whose deadline has passed");
        assert_eq!(self.ends, ends, "keys that go later than at their first deadline");
        assert_eq!(self.deadlines, deadlines, "deadlines");
    }

    fn assert_histories(&self) {
        let due: BTreeSet<_> = self.due.iter().copied().collect();
        let released: BTreeSet<_> = self.released.iter().map(|(_, hash)| *hash).collect();
        for key_history in self.histories.iter() {
            let key = &key_history.key;
            key_history.history.assert_consistent();
            let queued = key_history.queued.map(|at| (at, key_history.hash));
            let stands = queued.is_some_and(|queued| self.waiting.iter().any(|waiting| *waiting == queued));
            assert!(stands || !key_history.history.waits(), "{key:?}, some of which waits, is in the queue");
            assert!(
                self.table.get(key_history.hash, key).is_some(),
                "{key:?}, which has a history, has a record"
            );
            let last = key_history.history.last();
            assert!(
                last.is_some_and(|last| key_history.due <= last),
                "the history of {key:?} is folded in time"
            );
            if key_history.era == self.era {
                assert!(
                    due.contains(&(key_history.due, key_history.hash)),
                    "the history of {key:?} is due once"
                );
            } else {
                assert!(released.contains(&key_history.hash), "the released history of {key:?} is due");
            }
        }
    }
}
