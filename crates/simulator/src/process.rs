//! A simulated process: a disk that outlives it, and in each life a log and the protocol instances.

use crate::damage::Damaged;
use crate::deployment::{Deployment, Host, Mutant, Mutants, Setting};
use crate::script::stream;
use journal::{
    CheckpointWriter, DirectoryId, FinishedCheckpoint, GroupNumber, Log, LogOptions, Piece, SyncTicket,
};
use journal::{LogError, OpenError, SimulatedDisk};
use protocol::{Claim, Durability, Durable, Gate, Input, Now, Protocol, Replica, Replies};
use std::collections::BTreeMap;
use types::{
    Error, ErrorCode, Incarnation, Instant, PartitionId, Reader, ReplyBuf, ReplySink, RequestId, Rng, Slot,
    WallTime, Wire,
};

/// The wall time at virtual time 0, in microseconds since 1970.
pub(crate) const EPOCH: u64 = 1_790_000_000_000_000;
/// Small segments, so that a short run uses several.
const SEGMENT_BYTES: u64 = 64 << 10;

/// Where the replies of a step go.
#[derive(Default)]
pub(crate) struct Sink(pub BTreeMap<RequestId, ReplyBuf>);

impl Replies for Sink {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// A process, dead or alive.
pub(crate) struct Process<P: Protocol> {
    pub host: Host,
    pub disk: SimulatedDisk,
    /// What the protocol draws from.
    pub random: Rng,
    /// What the times of writes, syncs and checkpoints are drawn from, and what a crash leaves.
    pub noise: Rng,
    /// What the fate of chunks in spools is drawn from.
    pub spool_noise: Rng,
    /// How far its wall clock is from virtual time.
    pub clock_offset: i64,
    /// How far it is from that when nothing goes wrong.
    clock_skew: i64,
    /// How far ahead it was at most.
    pub furthest_ahead: i64,
    /// What its wall clock advances by at a time.
    clock_tick: u64,
    /// Until when it stands still.
    pub paused_until: u64,
    /// How long it takes for a step at present, in microseconds; 0 unless it is slow.
    pub slow_by: u64,
    /// Until when a slow process is busy with the last step.
    pub busy_until: u64,
    /// It is to lose power right after its next write, before a sync, for so long.
    pub doomed: Option<u64>,
    /// It is to die: after so many events, once a client's request has come, for so long.
    pub condemned: Option<(u32, u64)>,
    /// True once that request has come.
    pub counting: bool,
    /// It is to die with its next reply to a client that leaves together with packets to others, for so long.
    pub last_reply: Option<u64>,
    /// True when it lost what it had acknowledged, by its disk or by power, and may not have learned it again.
    pub lost: bool,
    /// True if it never comes back.
    pub is_gone: bool,
    /// Its disk was damaged, and it has not started since.
    pub damaged: Option<Damaged>,
    /// A copy of its disk.
    pub older: Option<SimulatedDisk>,
    /// The highest incarnation so far: a new disk does not know it.
    incarnation: Incarnation,
    pub life: Option<Life<P>>,
    /// Claims of served requests that wait for the log.
    pub unlogged: Vec<Served>,
}

/// What a step did for a request, as far as a crash may still take it back.
pub(crate) struct Served {
    /// The group that all it did and saw is in.
    pub group: u64,
    /// The transaction's place in the history, if it is known.
    pub place: Option<usize>,
    pub claim: Claim,
}

/// How a life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Killed,
    PowerCut,
    DiskLost,
}

/// One life of a process.
pub(crate) struct Life<P: Protocol> {
    pub incarnation: Incarnation,
    pub log: Log,
    pub replicas: Vec<Replica<P>>,
    /// What each of them has spilled.
    pub spools: Vec<BTreeMap<u64, Vec<u8>>>,
    /// Replies behind their gates.
    pub replies: Vec<(Gate, RequestId, ReplyBuf)>,
    pub write_scheduled: bool,
    pub sync: Option<SyncTicket>,
    pub checkpoint: Option<Checkpointing>,
    pub finished_checkpoint: Option<FinishedCheckpoint>,
    pub wake_at: Option<u64>,
    started_at: u64,
}

/// A checkpoint being taken beside traffic.
pub(crate) struct Checkpointing {
    writer: CheckpointWriter,
    replica: usize,
    cursor: u64,
}

/// Why a life does not begin.
pub(crate) enum StartError {
    /// The disk failed: another attempt may succeed.
    Disk(String),
    /// The journal refuses what it finds.
    Refused(String),
}

impl From<OpenError> for StartError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Disk(error) => StartError::Disk(error.to_string()),
            error => StartError::Refused(error.to_string()),
        }
    }
}

/// Why a life ends: its log failed.
pub(crate) struct LogFailed(pub String);

impl From<LogError> for LogFailed {
    fn from(error: LogError) -> Self {
        LogFailed(error.to_string())
    }
}

impl<P: Protocol> Process<P> {
    pub fn new(host: Host, seed: u64, clock_skew: u64, clock_tick: u64) -> Self {
        let index = u64::from(host.process.0);
        let mut noise = stream(seed, "process", index);
        let skew = clock_skew as i64;
        let clock_skew = noise.i64(-skew..=skew);
        Process {
            host,
            disk: SimulatedDisk::new(),
            random: stream(seed, "protocol", index),
            spool_noise: stream(seed, "spool", index),
            clock_offset: clock_skew,
            clock_skew,
            furthest_ahead: clock_skew,
            clock_tick,
            noise,
            paused_until: 0,
            slow_by: 0,
            busy_until: 0,
            doomed: None,
            condemned: None,
            last_reply: None,
            counting: false,
            lost: false,
            is_gone: false,
            damaged: None,
            older: None,
            incarnation: Incarnation(0),
            life: None,
            unlogged: Vec::new(),
        }
    }

    /// Takes the claims that hold because the log has everything up to this group.
    pub fn claims_logged(&mut self, group: u64) -> Vec<Served> {
        self.unlogged.extract_if(.., |served| served.group <= group).collect()
    }

    /// The times that a step at this virtual time uses.
    pub fn now(&self, now: u64) -> Now {
        let started_at = self.life.as_ref().map_or(now, |life| life.started_at);
        let wall = (EPOCH + now).saturating_add_signed(self.clock_offset);
        let wall = wall / self.clock_tick * self.clock_tick;
        Now { wall: WallTime(wall), instant: Instant(now - started_at) }
    }

    /// Its wall clock jumps.
    pub fn jump(&mut self, by: i64) {
        self.clock_offset += by;
        self.furthest_ahead = self.furthest_ahead.max(self.clock_offset);
    }

    /// Sets its wall clock to so much ahead of virtual time, as precisely as clocks ever are.
    pub fn set_clock(&mut self, ahead: i64) {
        self.clock_offset = ahead.saturating_add(self.clock_skew);
    }

    /// The virtual time of an instant of this life.
    pub fn virtual_time(&self, instant: Instant) -> u64 {
        self.life.as_ref().map_or(u64::MAX, |life| life.started_at.saturating_add(instant.0))
    }

    fn slots(&self, serves_at_replicas: bool) -> Vec<Slot> {
        let replica = |partition: &PartitionId| Slot::replica(crate::KEYSPACE, *partition);
        let is_served = serves_at_replicas && !self.host.partitions.is_empty();
        let coordinator = (self.host.gateway && !is_served).then(|| Slot::coordinator(crate::KEYSPACE));
        self.host.partitions.iter().map(replica).chain(coordinator).collect()
    }

    /// Begins a life: opens the log, and lets every instance recover from it.
    ///
    /// # Errors
    /// The journal's words, if it cannot or will not start.
    pub fn start<D: Deployment<Protocol = P>>(
        &mut self,
        now: u64,
        deployment: &D,
        setting: Setting,
        mutants: Mutants,
    ) -> Result<(Sink, journal::Recovered), StartError> {
        let options = LogOptions {
            segment_bytes: SEGMENT_BYTES,
            fresh_id: DirectoryId(self.noise.u128(..)),
            accept_loss: self.damaged.as_ref().is_some_and(|damaged| damaged.accepts),
            mutants: match () {
                () if mutants.has(Mutant::TornGroups) => journal::Mutant::TornGroups.into(),
                () if mutants.has(Mutant::IgnoredMarks) => journal::Mutant::IgnoredMarks.into(),
                () => journal::Mutants::NONE,
            },
            ..LogOptions::default()
        };
        let mut found: BTreeMap<Slot, Recovered> = BTreeMap::new();
        let visit = &mut |piece: Piece<'_>| {
            let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
            let mut reader = Reader::new(bytes);
            match Slot::decode(&mut reader) {
                Ok(slot) => found.entry(slot).or_default().take(piece, reader.rest()),
                // Only a torn group that a mutant accepted has such records.
                Err(_) if mutants.has(Mutant::TornGroups) => {}
                Err(error) => return Err(error.to_string()),
            }
            Ok(())
        };
        let (mut log, recovered) = Log::open(self.disk.mount(), &options, visit)?;
        let incarnation = Incarnation(recovered.incarnation.max(self.incarnation).0 + 1);
        log.set_incarnation(incarnation).map_err(|error| StartError::Disk(error.to_string()))?;
        self.incarnation = incarnation;
        let cut = recovered.cut.is_some() && setting.durability < Durability::Synced;
        self.lost |= cut || recovered.lost.is_some();
        let complete = !self.lost;
        self.life = Some(Life {
            incarnation,
            log,
            replicas: Vec::new(),
            spools: Vec::new(),
            replies: Vec::new(),
            write_scheduled: false,
            sync: None,
            checkpoint: None,
            finished_checkpoint: None,
            wake_at: None,
            started_at: now,
        });
        let mut sink = Sink::default();
        let time = self.now(now);
        for slot in self.slots(deployment.serves_at_replicas()) {
            let node = types::Address { process: self.host.process, slot }.at(incarnation);
            let protocol = deployment.start(node, setting, &mut self.random);
            let mut replica = Replica::new(node, protocol);
            if mutants.has(Mutant::Ungated) {
                replica = replica.with_mutants(protocol::Mutant::Ungated.into());
            }
            let pieces = found.remove(&slot).unwrap_or_default();
            let mut batch: Vec<Input<'_, P>> = (pieces.chunks.iter().map(|bytes| Input::Snapshot(bytes)))
                .chain(pieces.records.iter().map(|bytes| Input::Recover(bytes)))
                .collect();
            batch.push(Input::Recovered { complete });
            replica.step(time, &mut batch, &mut self.random, &mut sink);
            if let Some(life) = &mut self.life {
                life.replicas.push(replica);
                life.spools.push(BTreeMap::new());
            }
        }
        Ok((sink, recovered))
    }

    /// Ends the life. With the power goes what was not synced, with the disk everything.
    pub fn end(&mut self, how: End, durability: Durability) {
        self.life = None;
        (self.paused_until, self.busy_until) = (0, 0);
        (self.doomed, self.condemned, self.counting, self.last_reply) = (None, None, false, None);
        match how {
            End::Killed => {}
            End::PowerCut => {
                self.disk.crash(&mut self.noise);
                self.lost |= durability < Durability::Synced;
            }
            End::DiskLost => {
                self.disk = SimulatedDisk::new();
                self.lost = true;
            }
        }
    }
}

/// What the log holds for one instance.
#[derive(Default)]
struct Recovered {
    chunks: Vec<Vec<u8>>,
    records: Vec<Vec<u8>>,
}

impl Recovered {
    fn take(&mut self, piece: Piece<'_>, body: &[u8]) {
        match piece {
            Piece::Chunk(_) => self.chunks.push(body.to_vec()),
            Piece::Record { .. } => self.records.push(body.to_vec()),
        }
    }
}

impl<P: Protocol> Life<P> {
    /// How far the log is durable.
    pub fn durable(&self) -> Durable {
        Durable { written: self.log.written().0, synced: self.log.synced().0 }
    }

    /// Moves the records of a replica's steps into the open group; true if there were any.
    pub fn append(&mut self, index: usize) -> Result<bool, LogFailed> {
        let replica = &mut self.replicas[index];
        let mut reader = Reader::new(replica.records());
        if reader.is_empty() {
            return Ok(false);
        }
        let slot = replica.node().slot;
        while let Ok(length) = reader.take(4) {
            let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
            let Ok(record) = reader.take(length) else { break };
            self.log.append_with(|out| {
                slot.encode(out);
                out.extend_from_slice(record);
            })?;
        }
        replica.appended(self.log.open_group().0);
        Ok(true)
    }

    /// Writes the open group to the kernel. False if the disk refused it and the protocol has taken it back: then
    /// the log is suspended until [`Life::retry`].
    pub fn write_out(&mut self, mutants: Mutants) -> Result<bool, LogFailed> {
        assert!(!self.log.is_suspended(), "a suspended log is retried, not written");
        self.write_scheduled = false;
        match self.log.write_out() {
            Err(error @ LogError::NotWritten { .. }) => self.refuse(mutants, &error).map(|()| false),
            result => {
                result?;
                self.tell_logged();
                Ok(true)
            }
        }
    }

    /// The records beyond what is written are gone: their effects are taken back, and who waits for them hears that
    /// the outcome is unknown.
    fn refuse(&mut self, mutants: Mutants, error: &LogError) -> Result<(), LogFailed> {
        let written = self.log.written().0;
        // It may show what is taken back.
        self.drop_checkpoint();
        for replica in &mut self.replicas {
            if mutants.has(Mutant::UndoLeftOut) {
                replica.logged(u64::MAX);
            } else if !replica.refused(written) {
                return Err(LogFailed(error.to_string()));
            }
        }
        for (gate, _, reply) in self.replies.iter_mut().filter(|(gate, ..)| gate.written > written) {
            *gate = Gate::OPEN;
            reply.clear();
            reply.error(&Error::new(ErrorCode::UnknownOutcome, error.to_string()));
        }
        Ok(())
    }

    /// Tries to end a suspension; true if it has ended.
    pub fn retry(&mut self) -> Result<bool, LogFailed> {
        match self.log.retry() {
            Ok(()) => {
                self.replicas.iter_mut().for_each(|replica| replica.protocol_mut().log_healed());
                Ok(true)
            }
            Err(error @ (LogError::SyncFailed(_) | LogError::Closed)) => Err(error.into()),
            Err(_) => Ok(false),
        }
    }

    fn tell_logged(&mut self) {
        let written = self.log.written().0;
        self.replicas.iter_mut().for_each(|replica| replica.logged(written));
    }

    /// Begins a sync if there is something to sync and none is under way; true if one began.
    pub fn begin_sync(&mut self) -> Result<bool, LogFailed> {
        if self.sync.is_none() {
            self.sync = self.log.begin_sync()?;
            return Ok(self.sync.is_some());
        }
        Ok(false)
    }

    /// Writes and syncs all there is, as when nothing has come for a while.
    pub fn come_to_rest(&mut self) -> Result<(), LogFailed> {
        self.finish_sync()?;
        self.log.sync_now()?;
        Ok(())
    }

    /// Ends the sync under way.
    pub fn finish_sync(&mut self) -> Result<(), LogFailed> {
        if let Some(ticket) = self.sync.take() {
            self.log.finish_sync(ticket.sync())?;
        }
        if self.finished_checkpoint.as_ref().is_some_and(|finished| finished.reflects() <= self.log.synced())
            && let Some(finished) = self.finished_checkpoint.take()
        {
            // What cannot be installed is left: the log grows on.
            let _ = self.log.install(finished);
        }
        Ok(())
    }

    /// Begins a checkpoint behind a log that was just written out, unless one is under way.
    pub fn begin_checkpoint(&mut self) -> Result<(), LogFailed> {
        if self.checkpoint.is_none() && self.finished_checkpoint.is_none() && !self.log.is_suspended() {
            let writer = self.log.begin_checkpoint()?;
            self.tell_logged();
            self.checkpoint = Some(Checkpointing { writer, replica: 0, cursor: 0 });
        }
        Ok(())
    }

    /// Gives up the checkpoint under way: its disk failed, or it may show what was taken back. The log grows on.
    pub fn drop_checkpoint(&mut self) {
        (self.checkpoint, self.finished_checkpoint) = (None, None);
    }

    /// Writes the next piece of the checkpoint; false when it is complete.
    pub fn continue_checkpoint(&mut self) -> Result<bool, LogFailed> {
        let failed = |error: journal::DiskError| LogFailed(error.to_string());
        let newest = GroupNumber(self.newest_group());
        let Some(progress) = &mut self.checkpoint else { return Ok(false) };
        if let Some(replica) = self.replicas.get_mut(progress.replica) {
            let mut chunk = Vec::new();
            replica.node().slot.encode(&mut chunk);
            match replica.protocol_mut().checkpoint(progress.cursor, &mut chunk) {
                Some(cursor) => progress.cursor = cursor,
                None => (progress.replica, progress.cursor) = (progress.replica + 1, 0),
            }
            progress.writer.reflect(newest);
            progress.writer.chunk(&chunk).map_err(failed)?;
            return Ok(true);
        }
        if let Some(progress) = self.checkpoint.take() {
            self.finished_checkpoint = Some(progress.writer.finish().map_err(failed)?);
        }
        Ok(false)
    }

    /// The newest group that a step just taken is part of, or has seen.
    pub fn newest_group(&self) -> u64 {
        if self.log.open_bytes() > 0 { self.log.open_group().0 } else { self.log.written().0 }
    }

    /// The earliest deadline of any instance.
    pub fn deadline(&self) -> Option<Instant> {
        self.replicas.iter().filter_map(Replica::deadline).min()
    }
}
