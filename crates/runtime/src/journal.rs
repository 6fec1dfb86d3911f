//! The process's log as its threads share it: append under the partition's lock, one write per turn, one syncer.

use crate::keyspace::PartitionCell;
use crate::process::fatal;
use ::journal::{GroupNumber, Log, LogError, SyncTicket};
use parking_lot::{Condvar, Mutex, RwLock};
use protocol::{Durable, Replica};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use strict::solo::Solo;
use types::{KeyspaceId, PartitionId};

/// The tag of a record that belongs to a strict partition; the keyspace's number and the partition's records follow.
pub(crate) const SOLO_RECORDS: u8 = 1;
/// The tag of a record that belongs to a replica of a cluster; the keyspace's and the partition's numbers and the
/// replica's records follow.
pub(crate) const CLUSTER_RECORDS: u8 = 2;

struct Shared {
    log: Log,
    /// Partitions with records in the open group.
    dirty: Vec<Arc<PartitionCell>>,
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
    /// What the log refuses cannot be undone here.
    refusal_is_fatal: bool,
    sync_wanted: Mutex<bool>,
    sync_condition: Condvar,
    /// How many groups were written and how many syncs done, for metrics.
    pub(crate) groups: AtomicU64,
    pub(crate) syncs: AtomicU64,
}

impl Journal {
    /// A log for replicas that have peers: when it refuses their records, the process ends and the peers go on.
    pub(crate) fn of_replicas(log: Log, grown: u64) -> Self {
        Journal { refusal_is_fatal: true, ..Journal::new(log, grown) }
    }

    /// A log that has grown by so many bytes since its checkpoint: a process that is killed often takes one in time, too.
    pub(crate) fn new(log: Log, grown: u64) -> Self {
        let (written, synced) = (log.written().0, log.synced().0);
        Journal {
            shared: Mutex::new(Shared { log, dirty: Vec::new(), grown }),
            written: AtomicU64::new(written),
            synced: AtomicU64::new(synced),
            failed: RwLock::new(Vec::new()),
            failures: AtomicU64::new(0),
            suspended: AtomicBool::new(false),
            refusal_is_fatal: false,
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

    /// True if this group could not be written: what waits for it waits in vain.
    pub(crate) fn has_failed(&self, group: u64) -> bool {
        self.failures.load(Ordering::Acquire) != 0 && self.failed.read().contains(&group)
    }

    /// True while the log takes no records.
    pub(crate) fn is_suspended(&self) -> bool {
        self.suspended.load(Ordering::Acquire)
    }

    /// Appends what the partitions persisted, all of it to one group. The caller holds their locks. False if the
    /// log refused: then it never happened, and the replies just written must not leave.
    #[must_use]
    pub(crate) fn append(&self, partitions: &mut [(&Arc<PartitionCell>, &mut Replica<Solo>)]) -> bool {
        if partitions.iter().all(|(_, replica)| replica.records().is_empty()) {
            return true;
        }
        let mut shared = self.shared.lock();
        match shared.append(partitions) {
            Ok(group) => {
                partitions.iter_mut().for_each(|(_, replica)| replica.appended(group.0));
                true
            }
            Err(_) => {
                let written = shared.log.written().0;
                for (_, replica) in partitions {
                    if !replica.refused(written) {
                        fatal(
                            "the log refused records that cannot be undone; what was acknowledged is safe on disk",
                        );
                    }
                }
                false
            }
        }
    }

    /// Appends what a replica persisted, and says to which group. A log that refuses ends the process.
    pub(crate) fn append_replica(
        &self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        records: &[u8],
    ) -> GroupNumber {
        let mut shared = self.shared.lock();
        match shared.append_replica(keyspace, partition, records) {
            Ok(group) => group,
            Err(error) => refused(&error),
        }
    }

    /// Writes the open group out. On failure everything in it is undone and the log is suspended.
    pub(crate) fn write_out(&self) {
        let mut shared = self.shared.lock();
        if shared.log.open_bytes() == 0 {
            return;
        }
        let outcome = shared.log.write_out();
        let dirty = std::mem::take(&mut shared.dirty);
        dirty.iter().for_each(|cell| cell.dirty.store(false, Ordering::Relaxed));
        let written = shared.log.written().0;
        match outcome {
            Ok(_) => {
                self.written.store(written, Ordering::Release);
                self.groups.fetch_add(1, Ordering::Relaxed);
                drop(shared);
                dirty.iter().for_each(|cell| cell.replica.lock().logged(written));
            }
            Err(error) if self.refusal_is_fatal => refused(&error),
            Err(LogError::NotWritten { group, error }) => {
                tracing::error!(%error, group = group.0, "the log cannot be written; writes are refused until it can");
                self.failed.write().push(group.0);
                self.failures.fetch_add(1, Ordering::Release);
                self.suspended.store(true, Ordering::Release);
                drop(shared);
                for cell in dirty {
                    if !cell.replica.lock().refused(written) {
                        fatal(
                            "the log refused records that cannot be undone; what was acknowledged is safe on disk",
                        );
                    }
                }
            }
            Err(error) => fatal(&format!("the log failed: {error}")),
        }
    }

    /// Asks the syncer for a sync as soon as it can.
    pub(crate) fn want_sync(&self) {
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
            Err(error) => fatal(&format!("the log failed: {error}")),
        };
        let finished = ticket.sync();
        let outcome = self.shared.lock().log.finish_sync(finished);
        match outcome {
            Ok(group) => self.synced.store(group.0, Ordering::Release),
            Err(error) => fatal(&format!("the log cannot be synced: {error}")),
        }
        true
    }

    /// Tries to end a suspension. True when the log takes records again.
    pub(crate) fn retry(&self) -> bool {
        if !self.is_suspended() {
            return false;
        }
        let healed = self.shared.lock().log.retry().is_ok();
        if healed {
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

    /// Begins a checkpoint: growth counts from now on.
    pub(crate) fn begin_checkpoint(&self) -> Result<::journal::CheckpointWriter, LogError> {
        self.write_out();
        let mut shared = self.shared.lock();
        shared.grown = 0;
        shared.log.begin_checkpoint()
    }

    /// The newest group that may hold what a partition shows now.
    pub(crate) fn open_group(&self) -> GroupNumber {
        let shared = self.shared.lock();
        if shared.log.open_bytes() > 0 { shared.log.open_group() } else { shared.log.written() }
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

/// The log did not take what a replica has already acted on.
fn refused(error: &LogError) -> ! {
    fatal(&format!("the log refused the records of a replica, whose peers go on without it: {error}"))
}

impl Shared {
    fn append_replica(
        &mut self,
        keyspace: KeyspaceId,
        partition: PartitionId,
        records: &[u8],
    ) -> Result<GroupNumber, LogError> {
        if self.log.open_bytes() + records.len() + 16 > ::journal::MAX_GROUP_BYTES {
            self.log.write_out()?;
        }
        self.grown += records.len() as u64 + 16;
        self.log.append_with(|buffer| {
            buffer.push(CLUSTER_RECORDS);
            buffer.extend_from_slice(&keyspace.0.to_le_bytes());
            buffer.extend_from_slice(&partition.0.to_le_bytes());
            buffer.extend_from_slice(records);
        })
    }

    fn append(
        &mut self,
        partitions: &[(&Arc<PartitionCell>, &mut Replica<Solo>)],
    ) -> Result<GroupNumber, LogError> {
        let bytes: usize = partitions.iter().map(|(_, replica)| replica.records().len() + 16).sum();
        if self.log.open_bytes() + bytes > ::journal::MAX_GROUP_BYTES {
            self.log.write_out()?;
        }
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
