//! The process's log as its threads share it: append under the partition's lock, one write per turn, one syncer.
//!
//! # A log that refuses records
//! A group that cannot be written (disk full, I/O error) suspends the log until [`Journal::retry`] succeeds. What the
//! group holds of solo partitions is undone, and they refuse writes. Replicas have acted on their records in it: the
//! journal retains these in memory, with all that the replicas persist meanwhile, in order; the retry writes them
//! before anything else. Until all of it is written, [`Journal::durable`] stays where it was, so that the gates of
//! replicas stay closed: nothing that is not logged leaves this process.

#[cfg(test)]
mod tests;

use crate::keyspace::PartitionCell;
use crate::process::fatal;
use ::journal::{GroupNumber, Log, LogError, SyncTicket};
use parking_lot::{Condvar, Mutex, RwLock};
use protocol::{Durable, Replica};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strict::solo::Solo;
use types::{KeyspaceId, PartitionId};

/// The tag of a record that belongs to a strict partition; the keyspace's number and the partition's records follow.
pub(crate) const SOLO_RECORDS: u8 = 1;
/// The tag of a record that belongs to a replica of a cluster; the keyspace's and the partition's numbers and the
/// replica's records follow.
pub(crate) const CLUSTER_RECORDS: u8 = 2;
/// The retained records are written in groups of about so many bytes: as much as a retry of the log asks room for.
const RETRY_GROUP_BYTES: usize = 1 << 20;

struct Shared {
    log: Log,
    /// Partitions with records in the open group.
    dirty: Vec<Arc<PartitionCell>>,
    /// Partitions with records in a group that could not be written, to be undone as soon as nobody holds their locks.
    undone: Vec<Arc<PartitionCell>>,
    /// Records of replicas that the log has refused, in order. The log is suspended while there are any.
    retained: VecDeque<Vec<u8>>,
    /// Appended since the last checkpoint began, in bytes.
    grown: u64,
}

/// See the module.
pub(crate) struct Journal {
    shared: Mutex<Shared>,
    written: AtomicU64,
    synced: AtomicU64,
    /// Groups that could not be written. Hardly ever any.
    failed: RwLock<Vec<u64>>,
    failures: AtomicU64,
    suspended: AtomicBool,
    suspended_since: Mutex<Option<Instant>>,
    sync_wanted: Mutex<bool>,
    sync_condition: Condvar,
    /// How many groups were written and how many syncs done, for metrics.
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

impl Journal {
    /// A log that has grown by so many bytes since its checkpoint: a process that is killed often takes one in time, too.
    pub(crate) fn new(log: Log, grown: u64) -> Self {
        let (written, synced) = (log.written().0, log.synced().0);
        Journal {
            shared: Mutex::new(Shared {
                log,
                dirty: Vec::new(),
                undone: Vec::new(),
                retained: VecDeque::new(),
                grown,
            }),
            written: AtomicU64::new(written),
            synced: AtomicU64::new(synced),
            failed: RwLock::new(Vec::new()),
            failures: AtomicU64::new(0),
            suspended: AtomicBool::new(false),
            suspended_since: Mutex::new(None),
            sync_wanted: Mutex::new(false),
            sync_condition: Condvar::new(),
            groups: AtomicU64::new(0),
            syncs: AtomicU64::new(0),
        }
    }

    /// How far the log is durable.
    #[inline]
    pub(crate) fn durable(&self) -> Durable {
        Durable { written: self.written.load(Ordering::Acquire), synced: self.synced.load(Ordering::Acquire) }
    }

    /// True if this group could not be written: what waits for solo partitions' records in it waits in vain.
    pub(crate) fn has_failed(&self, group: u64) -> bool {
        self.failures.load(Ordering::Acquire) != 0 && self.failed.read().contains(&group)
    }

    /// True while the log takes no records.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// For how long the log has taken no records.
    pub(crate) fn refuses_for(&self) -> Option<Duration> {
        let since = *self.suspended_since.lock();
        since.filter(|_| self.is_suspended()).map(|since| since.elapsed())
    }

    /// A partition hears that the log is suspended before it does anything that would be undone. The caller holds its lock.
    pub(crate) fn fence(&self, replica: &mut Replica<Solo>) {
        if self.is_suspended() && !replica.protocol().is_fenced() {
            undo(replica, self.durable().written);
        }
    }

    /// Appends what the partitions persisted, all of it to one group. The caller holds their locks. False if the
    /// log refused: then it never happened, and the replies just written must not leave.
    #[must_use]
    pub(crate) fn append(&self, partitions: &mut [(&Arc<PartitionCell>, &mut Replica<Solo>)]) -> bool {
        if partitions.iter().all(|(_, replica)| replica.records().is_empty()) {
            return true;
        }
        let mut shared = self.shared.lock();
        let bytes = partitions.iter().map(|(_, replica)| replica.records().len() + 16).sum();
        self.make_room(&mut shared, bytes);
        match shared.append(partitions, bytes) {
            Ok(group) => {
                partitions.iter_mut().for_each(|(_, replica)| replica.appended(group.0));
                true
            }
            Err(_) => {
                let written = self.durable().written;
                partitions.iter_mut().for_each(|(_, replica)| undo(replica, written));
                false
            }
        }
    }

    /// Appends what a replica persisted, and says to which group. While the log is suspended the journal retains the
    /// record; then the number is of the group in which it will be at the earliest.
    pub(crate) fn append_replica(
        &self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        records: &[u8],
    ) -> GroupNumber {
        let mut shared = self.shared.lock();
        self.make_room(&mut shared, records.len() + 16);
        shared.append_replica(keyspace, partition, records)
    }

    /// Writes the open group out. On failure what it holds of solo partitions is undone, the journal retains the rest,
    /// and the log is suspended.
    pub(crate) fn write_out(&self) {
        let mut shared = self.shared.lock();
        if shared.log.open_bytes() > 0 {
            self.write(&mut shared);
        }
        if shared.dirty.is_empty() && shared.undone.is_empty() {
            return;
        }
        let (dirty, undone) = (std::mem::take(&mut shared.dirty), shared.undone.clone());
        let written = self.durable().written;
        dirty.iter().for_each(|cell| cell.dirty.store(false, Ordering::Relaxed));
        drop(shared);
        dirty.iter().for_each(|cell| cell.replica.lock().logged(written));
        undone.iter().for_each(|cell| undo(&mut cell.replica.lock(), written));
        if !undone.is_empty() {
            // Only now may the log heal: an undo takes back whatever it finds.
            let is_left = |cell: &Arc<PartitionCell>| !undone.iter().any(|done| Arc::ptr_eq(cell, done));
            self.shared.lock().undone.retain(is_left);
        }
    }

    /// Writes the open group out if it has no room for so many bytes. The caller may hold locks of partitions, so those
    /// with records in the group hear of it with the next `write_out`.
    fn make_room(&self, shared: &mut Shared, bytes: usize) {
        if shared.log.open_bytes() + bytes > ::journal::MAX_GROUP_BYTES {
            self.write(shared);
        }
    }

    fn write(&self, shared: &mut Shared) {
        match shared.log.write_out() {
            Ok(_) => {
                self.written.store(shared.log.written().0, Ordering::Release);
                self.groups.fetch_add(1, Ordering::Relaxed);
            }
            Err(LogError::NotWritten { group, error }) => {
                tracing::error!(%error, group = group.0, "the log cannot be written; writes are refused until it can");
                shared.take_back();
                self.failed.write().push(group.0);
                self.failures.fetch_add(1, Ordering::Release);
                *self.suspended_since.lock() = Some(Instant::now());
                self.suspended.store(true, Ordering::Release);
            }
            Err(error) => failed(&error),
        }
    }

    /// Asks the syncer for a sync as soon as it can. While the log is suspended it comes by itself, with every retry.
    pub(crate) fn want_sync(&self) {
        if self.is_suspended() {
            return;
        }
        let mut wanted = self.sync_wanted.lock();
        if !*wanted {
            *wanted = true;
            self.sync_condition.notify_one();
        }
    }

    /// Waits until a sync is wanted or `timeout` is over; true if one is wanted.
    pub(crate) fn await_sync(&self, timeout: Duration) -> bool {
        let mut wanted = self.sync_wanted.lock();
        if !*wanted {
            self.sync_condition.wait_for(&mut wanted, timeout);
        }
        std::mem::take(&mut *wanted)
    }

    /// Syncs what is written, without the lock meanwhile. True if there was anything. A failure ends the process:
    /// nobody knows what the disk holds (Corrections 82).
    pub(crate) fn sync(&self) -> bool {
        let begun = self.shared.lock().log.begin_sync();
        let is_done = self.finish(begun);
        if is_done {
            self.syncs.fetch_add(1, Ordering::Relaxed);
        }
        is_done
    }

    /// Writes and syncs everything, unless the log refuses it; another thread may be syncing.
    pub(crate) fn sync_all(&self) {
        self.write_out();
        while self.durable().synced < self.durable().written && !self.is_suspended() {
            if !self.sync() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Syncs what says how far the log was synced, where there is nothing else to sync.
    pub(crate) fn sync_mark(&self) {
        let begun = self.shared.lock().log.begin_idle_sync();
        self.finish(begun);
    }

    fn finish(&self, begun: Result<Option<SyncTicket>, LogError>) -> bool {
        let ticket = match begun {
            Ok(Some(ticket)) => ticket,
            Ok(None) => return false,
            Err(LogError::Suspended) => return false,
            Err(error) => failed(&error),
        };
        let finished = ticket.sync();
        let mut shared = self.shared.lock();
        match shared.log.finish_sync(finished) {
            // What a retry has written before the log refused again counts with the rest of the retained records.
            Ok(group) => self.synced.store(group.0.min(self.durable().written), Ordering::Release),
            Err(error) => fatal(&format!("the log cannot be synced: {error}")),
        }
        true
    }

    /// Tries to end a suspension. True when the log takes records again, and has the retained ones.
    pub(crate) fn retry(&self) -> bool {
        if !self.is_suspended() {
            return false;
        }
        let mut shared = self.shared.lock();
        let healed = shared.undone.is_empty()
            && match shared.log.retry() {
                Ok(()) => shared.write_hosting(),
                Err(error @ (LogError::SyncFailed(_) | LogError::Closed)) => failed(&error),
                Err(_) => false,
            };
        if healed {
            self.written.store(shared.log.written().0, Ordering::Release);
            self.suspended.store(false, Ordering::Release);
        }
        healed
    }

    /// How many bytes were appended since the last checkpoint began.
    pub(crate) fn grown(&self) -> u64 {
        self.shared.lock().grown
    }

    /// Works on the log itself, for checkpoints and the end.
    pub(crate) fn with_log<R>(&self, work: impl FnOnce(&mut Log) -> R) -> R {
        work(&mut self.shared.lock().log)
    }

    /// Begins a checkpoint: growth counts from now on. Refused while the log is suspended; one that was begun before is to
    /// be given up when `failures` has changed, since it may show effects that were taken back or records that are
    /// retained.
    pub(crate) fn begin_checkpoint(&self) -> Result<::journal::CheckpointWriter, LogError> {
        self.write_out();
        let mut shared = self.shared.lock();
        if shared.log.open_bytes() > 0 {
            self.write(&mut shared);
        }
        if shared.log.is_suspended() {
            return Err(LogError::Suspended);
        }
        let writer = shared.log.begin_checkpoint()?;
        shared.grown = 0;
        Ok(writer)
    }

    /// The newest group that may hold what a partition shows now.
    pub(crate) fn open_group(&self) -> GroupNumber {
        let shared = self.shared.lock();
        if shared.log.open_bytes() > 0 || !shared.retained.is_empty() {
            shared.log.open_group()
        } else {
            shared.log.written()
        }
    }

    /// How often a group could not be written so far.
    pub(crate) fn failures(&self) -> u64 {
        self.failures.load(Ordering::Acquire)
    }

    /// Ends in order; nothing more is taken.
    pub(crate) fn close(&self) -> Result<(), LogError> {
        self.shared.lock().log.close()
    }
}

/// The log is of no use any more.
fn failed(error: &LogError) -> ! {
    fatal(&format!("the log failed: {error}"))
}

/// What a solo partition has done beyond this group never happened.
fn undo(replica: &mut Replica<Solo>, written: u64) {
    if !replica.refused(written) {
        fatal("the log refused records that cannot be undone; what was acknowledged is safe on disk");
    }
}

impl Shared {
    fn append_replica(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        records: &[u8],
    ) -> GroupNumber {
        self.grown += records.len() as u64 + 16;
        let encode = |buffer: &mut Vec<u8>| {
            buffer.push(CLUSTER_RECORDS);
            buffer.extend_from_slice(&keyspace.0.to_le_bytes());
            buffer.extend_from_slice(&partition.0.to_le_bytes());
            buffer.extend_from_slice(records);
        };
        if self.log.is_suspended() {
            let mut record = Vec::with_capacity(records.len() + 5);
            encode(&mut record);
            self.retained.push_back(record);
            return self.log.open_group();
        }
        self.log.append_with(encode).unwrap_or_else(|error| failed(&error))
    }

    /// The open group could not be written: keeps what it holds of replicas, and notes which partitions to undo.
    fn take_back(&mut self) {
        let refused = self.log.take_refused();
        self.retained.extend(refused.into_iter().filter(|record| record.first() == Some(&CLUSTER_RECORDS)));
        self.dirty.iter().for_each(|cell| cell.dirty.store(false, Ordering::Relaxed));
        self.undone.append(&mut self.dirty);
    }

    /// Writes the retained records, in order. False if the log refuses again; records that it has not taken stay
    /// retained.
    fn write_hosting(&mut self) -> bool {
        while !self.retained.is_empty() {
            let mut count = 0;
            while let Some(record) = self.retained.get(count)
                && self.log.open_bytes() < RETRY_GROUP_BYTES
            {
                match self.log.append(record) {
                    Ok(_) => count += 1,
                    Err(LogError::TooLarge) if count > 0 => break,
                    Err(error) => failed(&error),
                }
            }
            match self.log.write_out() {
                Ok(_) => drop(self.retained.drain(..count)),
                Err(LogError::NotWritten { .. }) => return false,
                Err(error) => failed(&error),
            }
        }
        true
    }

    fn append(
        &mut self,
        partitions: &[(&Arc<PartitionCell>, &mut Replica<Solo>)],
        bytes: usize,
    ) -> Result<GroupNumber, LogError> {
        let mut group = self.log.open_group();
        for (cell, replica) in partitions {
            if replica.records().is_empty() {
                continue;
            }
            group = self.log.append_with(|buffer| {
                buffer.push(SOLO_RECORDS);
                buffer.extend_from_slice(&cell.keyspace.0.to_le_bytes());
                buffer.extend_from_slice(replica.records());
            })?;
            if !cell.dirty.swap(true, Ordering::Relaxed) {
                self.dirty.push(Arc::clone(cell));
            }
        }
        self.grown += bytes as u64;
        Ok(group)
    }
}
