//! Checkpoints, and the way back from a checkpoint and the log.

use super::Solo;
use super::record::{self, Record, Recovered};
use datatypes::Effect;
use types::{Malformed, Reader, Timestamp};

/// How large a piece of a checkpoint becomes before it is handed over, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

impl Solo {
    /// Checkpoints show this snapshot from now on, which the caller has leased; `None`: the newest state.
    pub fn set_checkpoint_snapshot(&mut self, snapshot: Option<Timestamp>) {
        self.checkpoint_at = snapshot;
    }

    /// A piece of a checkpoint came. Its owner has verified a checksum, so a piece that makes no sense was written by
    /// another program, or names a type that is not loaded.
    pub(super) fn on_snapshot(&mut self, piece: &[u8]) {
        let outcome = Record::split(piece).try_for_each(|record| self.recover(record?));
        self.unreadable = self.unreadable.take().or(outcome.err());
    }

    /// A record of the log came; see `on_snapshot`.
    pub(super) fn on_recover(&mut self, record: &[u8]) {
        let outcome = self.recover(record);
        self.unreadable = self.unreadable.take().or(outcome.err());
    }

    /// What was wrong with the first record that could not be read: what follows it must not be believed.
    pub fn unreadable(&self) -> Option<&Malformed> {
        self.unreadable.as_ref()
    }

    /// The checkpoint was taken beside traffic, so the log is applied only to what is older.
    fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        match Recovered::decode(&mut Reader::new(bytes))? {
            Recovered::State { stamp, key, cell } => {
                self.clock.recover(stamp);
                self.store.restore(key, stamp, cell);
            }
            Recovered::Effect { stamp, key, effect } => {
                self.clock.recover(stamp);
                let hash = self.store.hash(key);
                if self.store.record(hash, key).is_none_or(|record| record.stamp() < stamp) {
                    self.store.commit(hash, key, stamp, &effect);
                }
            }
            Recovered::Flush { stamp } => {
                self.clock.recover(stamp);
                self.recover_flush(stamp);
            }
        }
        Ok(())
    }

    fn recover_flush(&mut self, stamp: Timestamp) {
        for key in self.keys() {
            let hash = self.store.hash(&key);
            if self.store.record(hash, &key).is_some_and(|record| record.stamp() < stamp) {
                self.store.commit(hash, &key, stamp, &Effect::DELETE);
            }
        }
    }

    /// Appends a piece of the checkpoint; returns where to go on, `None` at the end.
    pub(super) fn next_piece(&mut self, mut cursor: u64, piece: &mut Vec<u8>) -> Option<u64> {
        loop {
            cursor = match self.checkpoint_at {
                Some(snapshot) => self.put_snapshot(snapshot, cursor, piece),
                None => self.store.scan(cursor, |key, held| {
                    record::put(piece, &Record::State { stamp: held.stamp(), key, cell: held.cell() });
                }),
            };
            if cursor == 0 {
                return None;
            }
            if piece.len() >= PIECE_BYTES {
                return Some(cursor);
            }
        }
    }

    /// Adds one place of the index to a checkpoint, as the snapshot shows it. Keys deleted since are found because
    /// their records stay while the snapshot needs them.
    fn put_snapshot(&mut self, snapshot: Timestamp, cursor: u64, piece: &mut Vec<u8>) -> u64 {
        let mut keys: Vec<Box<[u8]>> = Vec::new();
        let next = self.store.scan_all(cursor, |key| keys.push(key.into()));
        for key in keys {
            let hash = self.store.hash(&key);
            let stamp = self.store.stamp(hash, &key).min(snapshot);
            let shown = |effect: &Timestamp| *effect <= snapshot;
            self.store.with_state(hash, &key, shown, &[], |cell| {
                if cell.value.is_some() {
                    record::put(piece, &Record::State { stamp, key: &key, cell });
                }
            });
        }
        next
    }
}
