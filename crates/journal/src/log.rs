//! The open log: appending, writing out, syncing, failing, truncating.

use crate::checkpoint::{CheckpointWriter, FinishedCheckpoint, FinishedInstallation, Installation};
use crate::disk::{DiskAction, DiskError, OpenFile};
use crate::error::LogError;
use crate::format::{DirectoryId, GROUP_HEADER, GroupHeader, GroupNumber, SegmentHeader};
use crate::manifest::Manifest;
use crate::marks::{Mark, Marks};
use crate::segment::{CurrentSegment, Numbered, SegmentFiles};
use types::Incarnation;

/// The largest group, header included.
pub const MAX_GROUP_BYTES: usize = 1 << 30;
/// A group buffer that grew beyond this is given back after use.
const RETAINED_BUFFER_BYTES: usize = 8 << 20;
/// The most room that a retry asks for.
const RETRY_BYTES: usize = 1 << 20;
/// Bytes before each record: its length.
const RECORD_HEADER: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// A group of so many bytes could not be written; its remains are at the end of the current segment.
    Suspended {
        refused: usize,
    },
    /// A sync failed.
    Closed,
}

/// The write-ahead log of one process.
///
/// It has no lock, thread or clock: whoever shares it between threads puts a mutex around it. The cycle is
///
/// 1. **append** ([`append`](Log::append), [`append_with`](Log::append_with), [`record`](Log::record)): copies into
///    the open group in memory. All that is appended between two calls of `write_out` is one group: after a crash all
///    of it is there or nothing.
/// 2. **write** ([`write_out`](Log::write_out)): hands the group to the kernel with one write. A killed process loses
///    nothing of it.
/// 3. **sync** ([`begin_sync`](Log::begin_sync) under the mutex, [`SyncTicket::sync`] without it,
///    [`finish_sync`](Log::finish_sync) under it again): a power cut loses nothing of it.
///
/// [`written`](Log::written) and [`synced`](Log::synced) say how far each has come. A group that cannot be written
/// ([`LogError::NotWritten`]) suspends the log until [`retry`](Log::retry) succeeds; a sync that fails closes it for
/// good. [`close`](Log::close) ends in order; a log that is merely dropped counts as killed.
pub struct Log {
    pub(crate) files: SegmentFiles,
    manifest: Manifest,
    marks: Marks,
    segment: CurrentSegment,
    /// The open group: room for its header, then its records.
    buffer: Vec<u8>,
    records: u32,
    /// The records of the group that could not be written, as they stood in the buffer.
    refused: Vec<u8>,
    /// The open group's number.
    number: u64,
    written: u64,
    synced: u64,
    /// Segments with writes that no sync has begun to cover.
    dirty: Vec<OpenFile>,
    directory_dirty: bool,
    syncing: bool,
    installing: bool,
    next_checkpoint: u64,
    retain_previous_checkpoint: bool,
    state: State,
}

impl Log {
    /// A log that goes on after `manifest.synced`, in an empty segment.
    pub(crate) fn new(
        files: SegmentFiles,
        (manifest, marks): (Manifest, Marks),
        segment: CurrentSegment,
        retain_previous_checkpoint: bool,
    ) -> Self {
        let last = manifest.synced;
        Log {
            next_checkpoint: segment.generation,
            files,
            segment,
            buffer: vec![0; GROUP_HEADER],
            records: 0,
            refused: Vec::new(),
            number: last + 1,
            written: last,
            synced: last,
            dirty: Vec::new(),
            directory_dirty: false,
            syncing: false,
            installing: false,
            retain_previous_checkpoint,
            state: State::Open,
            manifest,
            marks,
        }
    }

    /// Appends a record to the open group and says which that is.
    #[inline]
    pub fn append(&mut self, record: &[u8]) -> Result<GroupNumber, LogError> {
        let mut writer = self.record()?;
        writer.buffer().extend_from_slice(record);
        writer.finish()
    }

    /// Appends the record that `encode` writes to the end of the given buffer.
    #[inline]
    pub fn append_with(&mut self, encode: impl FnOnce(&mut Vec<u8>)) -> Result<GroupNumber, LogError> {
        let mut writer = self.record()?;
        encode(writer.buffer());
        writer.finish()
    }

    /// Begins a record, to be encoded in place. It becomes part of the group with [`RecordWriter::finish`]; dropped
    /// before, it leaves no trace.
    #[inline]
    pub fn record(&mut self) -> Result<RecordWriter<'_>, LogError> {
        self.check_open()?;
        let start = self.buffer.len();
        self.buffer.extend_from_slice(&[0; RECORD_HEADER]);
        Ok(RecordWriter { log: self, start })
    }

    /// The group that the next record becomes part of.
    pub fn open_group(&self) -> GroupNumber {
        GroupNumber(self.number)
    }

    /// The bytes the open group would write now, 0 if it has no record: for deciding when to write it out.
    pub fn open_bytes(&self) -> usize {
        if self.records == 0 { 0 } else { self.buffer.len() }
    }

    /// The newest group handed to the kernel.
    pub fn written(&self) -> GroupNumber {
        GroupNumber(self.written)
    }

    /// The newest group that no power cut can take.
    pub fn synced(&self) -> GroupNumber {
        GroupNumber(self.synced)
    }

    /// True after a failed write, until [`retry`](Log::retry) succeeds.
    pub fn is_suspended(&self) -> bool {
        matches!(self.state, State::Suspended { .. })
    }

    /// True after a failed sync.
    pub fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The data directory's identity.
    pub fn directory_id(&self) -> DirectoryId {
        self.manifest.id
    }

    /// The incarnation last recorded.
    pub fn incarnation(&self) -> Incarnation {
        self.manifest.incarnation
    }

    /// Writes the open group to the kernel, if it has records, and begins the next one.
    ///
    /// On [`LogError::NotWritten`] the group is gone: its number is not used again and none of its records will be
    /// recovered once [`retry`](Log::retry) succeeded. (If the process dies before, and only if the failed write had
    /// in fact reached the medium whole, the next recovery may yield the group: an unknown outcome.)
    /// [`take_refused`](Log::take_refused) hands its records back.
    pub fn write_out(&mut self) -> Result<Option<GroupNumber>, LogError> {
        self.check_open()?;
        if self.records == 0 {
            return Ok(None);
        }
        let (number, refused) = (self.number, self.buffer.len());
        let written = self.write_group();
        self.number += 1;
        self.records = 0;
        if written.is_err() {
            self.refused = self.buffer.split_off(GROUP_HEADER);
        }
        self.buffer.truncate(GROUP_HEADER);
        self.buffer.shrink_to(RETAINED_BUFFER_BYTES);
        match written {
            Ok(()) => {
                self.written = number;
                Ok(Some(GroupNumber(number)))
            }
            Err(error) => {
                self.state = State::Suspended { refused };
                // A first attempt, for the case that the process dies before `retry`.
                let _ = self.wipe(GROUP_HEADER);
                Err(LogError::NotWritten { group: GroupNumber(number), error })
            }
        }
    }

    /// Takes the records of the last group that could not be written, in order, for what cannot be undone: the caller
    /// appends them again after [`retry`](Log::retry), before anything else. Nothing if they were taken before.
    pub fn take_refused(&mut self) -> Vec<Vec<u8>> {
        let refused = std::mem::take(&mut self.refused);
        let (mut records, mut rest) = (Vec::new(), refused.as_slice());
        while let Some((length, after)) = rest.split_first_chunk::<RECORD_HEADER>() {
            let (record, after) = after.split_at(u32::from_le_bytes(*length) as usize);
            records.push(record.to_vec());
            rest = after;
        }
        records
    }

    fn write_group(&mut self) -> Result<(), DiskError> {
        let bytes = self.buffer.len() as u64;
        if self.segment.offset + bytes > self.segment.size {
            self.roll(bytes)?;
        }
        let header = GroupHeader {
            generation: self.segment.generation,
            number: self.number,
            previous: self.written,
            synced: self.synced,
            length: (self.buffer.len() - GROUP_HEADER) as u32,
            records: self.records,
            payload_checksum: crc32fast::hash(&self.buffer[GROUP_HEADER..]),
        };
        header.write(&mut self.buffer, self.manifest.id);
        self.mark_dirty();
        self.segment.file.write_at(self.segment.offset, &self.buffer)?;
        self.segment.offset += bytes;
        Ok(())
    }

    fn mark_dirty(&mut self) {
        if self.dirty.last().is_none_or(|last| last.name != self.segment.file.name) {
            self.dirty.push(self.segment.file.clone());
        }
    }

    /// Marks what holds now; see [`crate::marks`].
    fn mark(&mut self) {
        self.marks.note(Mark {
            synced: self.synced,
            written: self.written,
            segment: self.segment.generation,
            incarnation: self.manifest.incarnation.0,
            ..Mark::default()
        });
    }

    /// Begins a new segment. Its name and header become durable with the next sync.
    fn roll(&mut self, group_bytes: u64) -> Result<(), DiskError> {
        let header = SegmentHeader {
            id: self.manifest.id,
            generation: 0,
            previous: self.written,
            synced: self.synced,
        };
        self.directory_dirty = true;
        self.segment = self.files.begin(header, group_bytes)?;
        self.mark_dirty();
        self.mark();
        Ok(())
    }

    /// Overwrites so many bytes, if the segment has them, from where the next group's header belongs, so that nothing parses there.
    fn wipe(&mut self, bytes: usize) -> Result<(), DiskError> {
        let room = self.segment.size.saturating_sub(self.segment.offset).min(bytes as u64);
        self.segment.file.write_at(self.segment.offset, &vec![0; room as usize])
    }

    /// Ends a suspension: removes what is left of the group that could not be written, durably. Fails as long as the
    /// disk does, or has no room for as much as was refused (up to a megabyte), lest small writes be taken and large ones
    /// refused in turn; harmless if the log is not suspended.
    pub fn retry(&mut self) -> Result<(), LogError> {
        match self.state {
            State::Open => Ok(()),
            State::Closed => Err(LogError::Closed),
            State::Suspended { refused } => {
                self.wipe(GROUP_HEADER)?;
                let needed = refused.min(RETRY_BYTES);
                if self.segment.offset + needed as u64 > self.segment.size {
                    self.roll(needed as u64)?;
                }
                self.wipe(needed)?;
                if let Err(error) = self.segment.file.sync() {
                    return Err(self.sync_failed(error));
                }
                self.state = State::Open;
                self.refused = Vec::new();
                Ok(())
            }
        }
    }

    /// Begins to sync what has been written, or answers `None` if all of it is synced or another sync is under way.
    /// The ticket must come back through [`finish_sync`](Log::finish_sync); until then no other sync begins.
    pub fn begin_sync(&mut self) -> Result<Option<SyncTicket>, LogError> {
        if self.state == State::Closed {
            return Err(LogError::Closed);
        }
        if self.syncing || (self.dirty.is_empty() && !self.directory_dirty) {
            return Ok(None);
        }
        self.syncing = true;
        let files = std::mem::take(&mut self.dirty);
        let directory = std::mem::take(&mut self.directory_dirty);
        Ok(Some(SyncTicket {
            files,
            directory: directory.then(|| self.files.store.clone()),
            upto: self.written,
        }))
    }

    /// Begins to sync the mark of the last sync, or answers `None` if it is synced or there is something else to sync:
    /// for a log that has come to rest, so that a later power cut leaves the mark. Its ticket is like that of
    /// [`begin_sync`](Log::begin_sync).
    pub fn begin_idle_sync(&mut self) -> Result<Option<SyncTicket>, LogError> {
        if self.state == State::Closed {
            return Err(LogError::Closed);
        }
        if self.syncing || !self.dirty.is_empty() || self.directory_dirty {
            return Ok(None);
        }
        let Some(file) = self.marks.take_dirty() else { return Ok(None) };
        self.syncing = true;
        Ok(Some(SyncTicket { files: vec![file], directory: None, upto: self.synced }))
    }

    /// Takes the result of a sync and says which group is the newest synced one. If the sync failed, the log is
    /// closed for good: the kernel may have dropped what it could not write, and a second sync would not tell.
    pub fn finish_sync(&mut self, finished: FinishedSync) -> Result<GroupNumber, LogError> {
        self.syncing = false;
        if self.state == State::Closed {
            return Err(LogError::Closed);
        }
        match finished.result {
            Ok(()) => {
                if finished.upto > self.synced {
                    self.synced = finished.upto;
                    self.mark();
                }
                Ok(self.synced())
            }
            Err(error) => Err(self.sync_failed(error)),
        }
    }

    /// Closes the log for good, since a sync of its segments failed.
    fn sync_failed(&mut self, error: DiskError) -> LogError {
        self.state = State::Closed;
        // The kernel may forget what it was handed, and the next process must know of it.
        self.mark();
        LogError::SyncFailed(error)
    }

    /// Writes the open group out and syncs, all on this thread.
    pub fn sync_now(&mut self) -> Result<GroupNumber, LogError> {
        self.write_out()?;
        match self.begin_sync()? {
            Some(ticket) => self.finish_sync(ticket.sync()),
            None => Ok(self.synced()),
        }
    }

    /// Records the incarnation durably. To be called before anything is said under it (Corrections 67).
    pub fn set_incarnation(&mut self, incarnation: Incarnation) -> Result<(), LogError> {
        self.write_manifest(Manifest { incarnation, synced: self.synced, ..self.manifest.clone() })?;
        self.mark();
        Ok(())
    }

    fn write_manifest(&mut self, manifest: Manifest) -> Result<(), LogError> {
        if self.state == State::Closed {
            return Err(LogError::Closed);
        }
        if self.installing {
            return Err(LogError::Installing);
        }
        let written = manifest.write(&self.files.store);
        self.manifest_written(manifest, written)
    }

    fn manifest_written(
        &mut self,
        manifest: Manifest,
        written: Result<(), DiskError>,
    ) -> Result<(), LogError> {
        match written {
            Ok(()) => {
                self.manifest = manifest;
                Ok(())
            }
            Err(error) if error.action == DiskAction::Sync => {
                self.state = State::Closed;
                Err(LogError::SyncFailed(error))
            }
            Err(error) => Err(LogError::Disk(error)),
        }
    }

    /// Begins a checkpoint of the state after everything appended so far. Writes the open group out and begins a new
    /// segment, so that everything below can be truncated once the checkpoint is installed.
    ///
    /// The writer is independent of the log; it may be filled on another thread while the log takes traffic.
    pub fn begin_checkpoint(&mut self) -> Result<CheckpointWriter, LogError> {
        self.write_out()?;
        if !self.segment.is_empty() {
            self.roll(0)?;
        }
        self.next_checkpoint += 1;
        let (id, generation) = (self.manifest.id, self.segment.generation);
        Ok(CheckpointWriter::create(&self.files.store, id, self.next_checkpoint, self.written, generation)?)
    }

    /// Begins to make a finished checkpoint the current one. Refused while a group that the checkpoint reflects is
    /// not synced: the log must never end below its checkpoint. The work is done by [`Installation::run`], without
    /// the log, and comes back through [`finish_install`](Log::finish_install).
    pub fn begin_install(&mut self, checkpoint: FinishedCheckpoint) -> Result<Installation, LogError> {
        if self.state == State::Closed {
            return Err(LogError::Closed);
        }
        if self.installing {
            return Err(LogError::Installing);
        }
        if checkpoint.reflects() > self.synced() {
            return Err(LogError::NotSynced { needed: checkpoint.reflects(), synced: self.synced() });
        }
        self.installing = true;
        let mut manifest = Manifest { synced: self.synced, ..self.manifest.clone() };
        manifest.checkpoints.insert(0, checkpoint.entry());
        manifest.checkpoints.truncate(if self.retain_previous_checkpoint { 2 } else { 1 });
        Ok(Installation::new(self.files.store.clone(), manifest))
    }

    /// Ends an installation: truncates the log below the oldest checkpoint that counts, and deletes the checkpoints
    /// that no longer do.
    pub fn finish_install(&mut self, finished: FinishedInstallation) -> Result<(), LogError> {
        self.installing = false;
        let superseded = std::mem::take(&mut self.manifest.checkpoints);
        let outcome = self.manifest_written(finished.manifest, finished.result);
        if outcome.is_err() {
            self.manifest.checkpoints = superseded;
            return outcome;
        }
        for entry in superseded {
            if !self.manifest.checkpoints.contains(&entry) {
                // What cannot be deleted now is deleted by the next recovery.
                let _ = self.files.store.delete_if_present(&Numbered::Checkpoint(entry.number).name());
            }
        }
        let needed = self.manifest.checkpoints.iter().map(|entry| entry.generation).min().unwrap_or(0);
        let below: Vec<u64> =
            self.files.live.iter().copied().filter(|generation| *generation < needed).collect();
        for generation in below {
            self.files.recycle(generation);
        }
        Ok(())
    }

    /// Makes a finished checkpoint the current one, all on this thread.
    pub fn install(&mut self, checkpoint: FinishedCheckpoint) -> Result<(), LogError> {
        let installation = self.begin_install(checkpoint)?;
        self.finish_install(installation.run())
    }

    /// Ends in order: writes, syncs and marks the shutdown as clean.
    pub fn close(&mut self) -> Result<(), LogError> {
        if self.syncing {
            // A sync that never came back may have failed.
            return Err(LogError::Closed);
        }
        let synced = self.sync_now()?.0;
        self.write_manifest(Manifest { clean: true, synced, ..self.manifest.clone() })?;
        self.state = State::Closed;
        Ok(())
    }

    #[inline]
    fn check_open(&self) -> Result<(), LogError> {
        match self.state {
            State::Open => Ok(()),
            State::Suspended { .. } => Err(LogError::Suspended),
            State::Closed => Err(LogError::Closed),
        }
    }
}

/// A record being encoded at the end of the open group.
pub struct RecordWriter<'a> {
    log: &'a mut Log,
    start: usize,
}

impl RecordWriter<'_> {
    /// The buffer to append the record's bytes to. What it already holds belongs to others: only append.
    #[inline]
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        &mut self.log.buffer
    }

    /// Makes the record part of the open group. [`LogError::TooLarge`] if the group would exceed
    /// [`MAX_GROUP_BYTES`]; the group is then as it was before the record.
    #[inline]
    pub fn finish(self) -> Result<GroupNumber, LogError> {
        let mut writer = std::mem::ManuallyDrop::new(self);
        let start = writer.start;
        let log = &mut *writer.log;
        assert!(log.buffer.len() >= start + RECORD_HEADER, "an encoder may only append");
        if log.buffer.len() > MAX_GROUP_BYTES {
            log.buffer.truncate(start);
            return Err(LogError::TooLarge);
        }
        let length = (log.buffer.len() - start - RECORD_HEADER) as u32;
        log.buffer[start..start + RECORD_HEADER].copy_from_slice(&length.to_le_bytes());
        log.records += 1;
        Ok(GroupNumber(log.number))
    }
}

impl Drop for RecordWriter<'_> {
    fn drop(&mut self) {
        self.log.buffer.truncate(self.start);
    }
}

/// A sync that has begun; holds what it needs, so it runs without the log.
#[must_use = "no other sync begins before this one comes back through `Log::finish_sync`"]
pub struct SyncTicket {
    files: Vec<OpenFile>,
    directory: Option<crate::disk::Store>,
    upto: u64,
}

impl SyncTicket {
    /// The newest group that the sync covers.
    pub fn upto(&self) -> GroupNumber {
        GroupNumber(self.upto)
    }

    /// Syncs; may take long. The result goes to [`Log::finish_sync`].
    pub fn sync(self) -> FinishedSync {
        let files = self.files.iter().try_for_each(OpenFile::sync);
        let result = files.and_then(|()| self.directory.map_or(Ok(()), |store| store.sync_directory()));
        FinishedSync { result, upto: self.upto }
    }
}

/// The result of a sync, for [`Log::finish_sync`].
#[must_use = "the log learns of the sync only through `Log::finish_sync`"]
pub struct FinishedSync {
    result: Result<(), DiskError>,
    upto: u64,
}

impl FinishedSync {
    /// True if the sync succeeded.
    pub fn is_ok(&self) -> bool {
        self.result.is_ok()
    }
}
