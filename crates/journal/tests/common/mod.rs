//! A model of the journal and a harness that holds the journal against it through appends, syncs, faults, kills and
//! power cuts.

use anabranch_journal::{
    Damage, DirectoryId, FinishedCheckpoint, GroupNumber, Log, LogError, LogOptions, OpenError, Piece,
    Recovered, SimulatedDisk, SyncTicket,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use types::{Incarnation, Rng};

/// How far a checkpoint gets.
#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// The writer is dropped.
    Begun,
    /// The file is complete, but never installed.
    Finished,
    /// The manifest names it, but the log never hears of that.
    Run,
    /// All of it.
    Installed,
}

/// One step of a scenario.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    Append(usize),
    WriteOut,
    Sync,
    BeginSync,
    EndSync,
    Retry,
    Checkpoint(Stage),
    Crash(u64),
    Kill,
    Close,
    FailWrite(usize),
    FailSync,
    Full(u64),
    Heal,
    KillAfter(u64),
    /// The process is killed and its disk damaged; if the journal refuses it, a backup is restored.
    Damage(Damage, u64),
}

/// Scenarios: mostly appending and syncing, with an end of the process every few steps.
pub fn scenarios() -> impl Strategy<Value = Vec<Op>> {
    let stage =
        prop_oneof![Just(Stage::Begun), Just(Stage::Finished), Just(Stage::Run), Just(Stage::Installed)];
    let damage =
        prop_oneof![Just(Damage::Bit), Just(Damage::Tail), Just(Damage::Segment), Just(Damage::Exchange)];
    let op = prop_oneof![
        20 => (0usize..400).prop_map(Op::Append),
        4 => (0usize..6000).prop_map(Op::Append),
        12 => Just(Op::WriteOut),
        6 => Just(Op::Sync),
        4 => Just(Op::BeginSync),
        4 => Just(Op::EndSync),
        2 => Just(Op::Retry),
        2 => stage.prop_map(Op::Checkpoint),
        6 => any::<u64>().prop_map(Op::Crash),
        2 => Just(Op::Kill),
        1 => Just(Op::Close),
        1 => (0usize..500).prop_map(Op::FailWrite),
        1 => Just(Op::FailSync),
        1 => (0u64..16384).prop_map(Op::Full),
        2 => Just(Op::Heal),
        2 => (0u64..12).prop_map(Op::KillAfter),
        2 => (damage, any::<u64>()).prop_map(|(damage, seed)| Op::Damage(damage, seed)),
    ];
    proptest::collection::vec(op, 1..80)
}

/// Small segments, so that scenarios roll, recycle and exceed them.
pub fn options() -> LogOptions {
    LogOptions { segment_bytes: 8192, spare_segments: 2, fresh_id: DirectoryId(77), ..LogOptions::default() }
}

/// What an opening yielded.
pub struct Opened {
    pub log: Log,
    pub recovered: Recovered,
    pub chunks: Vec<u8>,
    pub groups: BTreeMap<u64, Vec<Vec<u8>>>,
}

/// Opens the log on a fresh mount of the disk.
pub fn open(disk: &SimulatedDisk, options: &LogOptions) -> Result<Opened, OpenError> {
    let (mut chunks, mut groups) = (Vec::new(), BTreeMap::<u64, Vec<Vec<u8>>>::new());
    let (log, recovered) = Log::open(disk.mount(), options, &mut |piece| {
        match piece {
            Piece::Chunk(bytes) => chunks.extend_from_slice(bytes),
            Piece::Record { group: GroupNumber(group), bytes } => {
                groups.entry(group).or_default().push(bytes.to_vec())
            }
        }
        Ok(())
    })?;
    Ok(Opened { log, recovered, chunks, groups })
}

type Groups = BTreeMap<u64, Vec<Vec<u8>>>;

/// What the journal must still know.
#[derive(Default)]
struct Model {
    /// Every group written, from the beginning.
    written: Groups,
    /// The records of the open group.
    open: Vec<Vec<u8>>,
    /// A group whose write failed and was not wiped yet: it may come back whole, or not.
    failed: Option<(u64, Vec<Vec<u8>>)>,
    synced: u64,
    /// Where the checkpoint may stand.
    bases: Vec<u64>,
    incarnations: Vec<u32>,
    /// Whether the last end was clean, where that is known.
    clean: Option<bool>,
    serial: u64,
}

impl Model {
    fn chunks(&self, base: u64) -> Vec<u8> {
        let below = self.written.range(..=base);
        below
            .flat_map(|(number, records)| [*number, records.len() as u64])
            .flat_map(u64::to_le_bytes)
            .collect()
    }

    /// Compares a recovery and takes over what it decided.
    fn check(&mut self, opened: &Opened, power_cut: bool) -> Result<(), String> {
        let Recovered { checkpoint: GroupNumber(base), last: GroupNumber(last), .. } = opened.recovered;
        ensure(self.bases.contains(&base) || opened.recovered.fell_back, || {
            format!("checkpoint at {base}, expected one of {:?}", self.bases)
        })?;
        ensure(opened.chunks == self.chunks(base), || format!("the checkpoint at {base} has other content"))?;
        ensure(last >= self.synced, || format!("synced {}, recovered only {last}", self.synced))?;
        let newest = self.written.keys().next_back().copied().unwrap_or(0);
        ensure(power_cut || last >= newest, || format!("a kill lost groups {} to {newest}", last + 1))?;
        if let Some((number, records)) = self.failed.take()
            && number == last
        {
            self.written.insert(number, records);
        }
        self.written.retain(|number, _| *number <= last);
        let expected: Groups = self.written.range(base + 1..).map(|(n, r)| (*n, r.clone())).collect();
        ensure(opened.groups == expected, || {
            format!("recovered groups {:?}, expected {:?}", summary(&opened.groups), summary(&expected))
        })?;
        let newest = expected.keys().next_back().copied().unwrap_or(base);
        ensure(newest == last, || format!("says the last group is {last}, yielded {newest}"))?;
        let clean = opened.recovered.clean_shutdown;
        ensure(self.clean.is_none_or(|expected| expected == clean), || format!("clean shutdown: {clean}"))?;
        let incarnation = opened.recovered.incarnation.0;
        ensure(self.incarnations.contains(&incarnation), || format!("incarnation {incarnation}"))?;
        self.open.clear();
        self.synced = last;
        self.bases = vec![base];
        self.incarnations = vec![incarnation];
        self.clean = Some(false);
        Ok(())
    }
}

fn summary(groups: &Groups) -> Vec<(u64, usize)> {
    groups.iter().map(|(number, records)| (*number, records.len())).collect()
}

fn ensure(holds: bool, message: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(message()) }
}

struct Harness {
    disk: SimulatedDisk,
    options: LogOptions,
    random: Rng,
    log: Option<Log>,
    ticket: Option<SyncTicket>,
    model: Model,
    /// It may have died unnoticed: then a sync that it thinks has succeeded has not, and nobody has heard of it.
    may_be_dead: bool,
}

/// Runs a scenario; an error says what the journal did wrong.
pub fn check(ops: &[Op], options: &LogOptions) -> Result<(), String> {
    let disk = SimulatedDisk::new();
    let model = Model { bases: vec![0], incarnations: vec![0], ..Model::default() };
    let mut harness = Harness {
        disk,
        options: options.clone(),
        random: Rng::with_seed(1),
        log: None,
        ticket: None,
        model,
        may_be_dead: false,
    };
    harness.reopen(false)?;
    for op in ops {
        harness.step(*op)?;
    }
    harness.step(Op::Crash(9))
}

impl Harness {
    fn step(&mut self, op: Op) -> Result<(), String> {
        match op {
            Op::Crash(seed) => {
                self.random = Rng::with_seed(seed);
                return self.end(true);
            }
            Op::Kill => return self.end(false),
            Op::FailWrite(after) => self.disk.fail_next_write(after),
            Op::FailSync => self.disk.fail_next_sync(),
            Op::Full(bytes) => self.disk.set_capacity(Some(self.disk.used() + bytes)),
            Op::Heal => self.disk.heal(),
            Op::KillAfter(operations) => {
                self.may_be_dead = true;
                self.disk.kill_after(operations);
            }
            Op::Damage(damage, seed) if !self.may_be_dead => return self.damage(damage, seed),
            Op::Damage(..) => return self.end(false),
            Op::Close => return self.close(),
            Op::Append(size) => self.append(size)?,
            _ => {
                let Some(mut log) = self.log.take() else { return Ok(()) };
                let result = self.drive(op, &mut log);
                self.log = Some(log);
                return self.judge(result);
            }
        }
        Ok(())
    }

    /// Errors are allowed where a fault was injected; only a closed log must end.
    fn judge(&mut self, result: Result<(), LogError>) -> Result<(), String> {
        let dead = self.log.as_ref().is_none_or(Log::is_closed);
        match result {
            Err(LogError::Closed | LogError::SyncFailed(_)) if !dead => {
                Err("claims to be closed, but is not".into())
            }
            // After a failed sync the process ends, and the power may stay.
            _ if dead => {
                let power_cut = self.random.bool();
                self.end(power_cut)
            }
            _ => Ok(()),
        }
    }

    fn append(&mut self, size: usize) -> Result<(), String> {
        let Some(log) = &mut self.log else { return Ok(()) };
        self.model.serial += 1;
        let mut record = self.model.serial.to_le_bytes().to_vec();
        record.resize(8 + size, self.model.serial as u8);
        let expected = log.open_group();
        match log.append(&record) {
            Ok(group) => {
                self.model.open.push(record);
                ensure(group == expected, || format!("appended to {group}, expected {expected}"))
            }
            Err(LogError::Suspended) if log.is_suspended() => Ok(()),
            Err(error) => Err(error.to_string()),
        }
    }

    fn drive(&mut self, op: Op, log: &mut Log) -> Result<(), LogError> {
        match op {
            Op::WriteOut => self.write_out(log),
            Op::Sync => {
                self.write_out(log)?;
                self.sync(log)
            }
            Op::BeginSync => {
                if let Some(ticket) = log.begin_sync()? {
                    self.ticket = Some(ticket);
                }
                Ok(())
            }
            Op::EndSync => self.end_sync(log),
            Op::Retry => {
                log.retry()?;
                self.model.failed = None;
                Ok(())
            }
            Op::Checkpoint(stage) => self.checkpoint(log, stage),
            _ => Ok(()),
        }
    }

    fn write_out(&mut self, log: &mut Log) -> Result<(), LogError> {
        let (number, records) = (log.open_group().0, self.model.open.clone());
        match log.write_out() {
            Ok(None) => assert!(records.is_empty()),
            Ok(Some(group)) => {
                assert_eq!((group.0, log.written()), (number, group));
                self.model.written.insert(number, records);
            }
            Err(error) => {
                if let LogError::NotWritten { group, .. } = &error {
                    assert_eq!(log.take_refused(), records, "what was refused is handed back");
                    self.model.failed = Some((group.0, records));
                    self.model.open.clear();
                }
                return Err(error);
            }
        }
        self.model.open.clear();
        Ok(())
    }

    fn sync(&mut self, log: &mut Log) -> Result<(), LogError> {
        self.end_sync(log)?;
        if let Some(ticket) = log.begin_sync()? {
            self.model.synced = log.finish_sync(ticket.sync())?.0;
        }
        assert_eq!(log.synced(), log.written());
        Ok(())
    }

    fn end_sync(&mut self, log: &mut Log) -> Result<(), LogError> {
        if let Some(ticket) = self.ticket.take() {
            let upto = ticket.upto();
            self.model.synced = log.finish_sync(ticket.sync())?.0;
            assert!(log.synced() >= upto);
        }
        Ok(())
    }

    fn checkpoint(&mut self, log: &mut Log, stage: Stage) -> Result<(), LogError> {
        self.write_out(log)?;
        let mut writer = log.begin_checkpoint()?;
        let content = self.model.chunks(writer.base().0);
        for chunk in content.chunks(100) {
            writer.chunk(chunk)?;
        }
        if matches!(stage, Stage::Begun) {
            return Ok(());
        }
        let finished = writer.finish()?;
        if matches!(stage, Stage::Finished) {
            return Ok(());
        }
        self.sync(log)?;
        self.install(log, stage, finished)
    }

    fn install(&mut self, log: &mut Log, stage: Stage, finished: FinishedCheckpoint) -> Result<(), LogError> {
        let base = finished.reflects().0;
        self.model.bases.push(base);
        let run = log.begin_install(finished)?.run();
        if matches!(stage, Stage::Run) {
            // The process goes on without having heard: as if it died here.
            self.may_be_dead = true;
            self.disk.kill_after(0);
            return Ok(());
        }
        log.finish_install(run)?;
        self.model.bases = vec![base];
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let Some(mut log) = self.log.take() else { return Ok(()) };
        let result = self.write_out(&mut log).and_then(|()| self.sync(&mut log)).and_then(|()| log.close());
        self.model.clean = if result.is_ok() { Some(true) } else { None };
        self.end(result.is_err())
    }

    /// Ends the process, with a power cut or without, and opens the log again.
    fn end(&mut self, power_cut: bool) -> Result<(), String> {
        self.log = None;
        self.ticket = None;
        self.model.open.clear();
        if power_cut {
            self.disk.crash(&mut self.random);
        }
        self.disk.heal();
        self.reopen(power_cut)
    }

    /// Kills the process and damages its disk: what was synced is there, or the journal refuses, until a backup is
    /// restored.
    fn damage(&mut self, damage: Damage, seed: u64) -> Result<(), String> {
        (self.log, self.ticket) = (None, None);
        self.model.open.clear();
        self.disk.heal();
        let intact = self.disk.copy();
        let Some(what) = self.disk.damage(damage, &mut Rng::with_seed(seed)) else {
            return self.reopen(false);
        };
        match open(&self.disk, &self.options) {
            Ok(opened) => self.begin(opened, true).map_err(|error| format!("{what}: {error}")),
            Err(OpenError::Corrupt { .. }) => {
                self.disk = intact;
                self.reopen(false)
            }
            Err(error) => Err(format!("{what}: {error}")),
        }
    }

    /// Opens the log; now and then the process dies in the middle of that, and once more.
    fn reopen(&mut self, mut power_cut: bool) -> Result<(), String> {
        for _ in 0..2 {
            if self.random.u8(..3) > 0 {
                continue;
            }
            let mount = self.disk.mount();
            self.disk.kill_after(self.random.u64(..16));
            match Log::open(mount, &self.options, &mut |_| Ok(())) {
                Ok(_) => self.model.clean = Some(false),
                Err(OpenError::Disk(_)) => self.model.clean = None,
                Err(error) => return Err(format!("refused to open: {error}")),
            }
            power_cut = true;
            self.disk.crash(&mut self.random);
        }
        let opened = open(&self.disk, &self.options).map_err(|error| format!("refused to open: {error}"))?;
        self.begin(opened, power_cut)
    }

    fn begin(&mut self, mut opened: Opened, power_cut: bool) -> Result<(), String> {
        self.may_be_dead = false;
        self.model.check(&opened, power_cut)?;
        if !opened.recovered.clean_shutdown {
            let next = opened.recovered.incarnation.0 + 1;
            opened.log.set_incarnation(Incarnation(next)).map_err(|error| error.to_string())?;
            self.model.incarnations = vec![next];
        }
        self.log = Some(opened.log);
        Ok(())
    }
}
