//! What a run came to.

use super::Setup;
use super::load::Op;
use super::system::{Flat, Residue, Sites, System};
use super::world::World;
use branch::site::Local;
use serde::Serialize;
use strict::locking::Concurrency;

/// What a request of a transaction is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Begin,
    Get,
    Put,
    Commit,
}

impl Kind {
    pub fn of(ops: &[Op]) -> Kind {
        if ops.iter().any(Op::is_write) { Kind::Put } else { Kind::Get }
    }
}

/// How much a site keeps at some time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Slice {
    /// Transactions that committed since the slice before.
    pub committed: u64,
    /// States, of all sites together.
    pub states: usize,
    /// States without children.
    pub heads: usize,
    /// Versions of keys.
    pub versions: usize,
    /// Bytes.
    pub memory: usize,
}

impl Slice {
    pub(super) fn new(residue: &Residue) -> Self {
        let Residue { states, heads, versions, memory, .. } = *residue;
        Slice { committed: 0, states, heads, versions, memory }
    }
}

/// What is counted between two moments, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    from: u64,
    to: u64,
    latencies: Vec<u64>,
    failed: u64,
    busy: u64,
    useful: u64,
    longest: u64,
    /// By kind of request: how many, the processor's time, the time until the reply.
    kinds: [(u64, u64, u64); 4],
    slices: Vec<Slice>,
    in_slice: u64,
    pub settled: Residue,
    /// What sites hold a while after the clients have stopped.
    pub rested: Residue,
}

impl Tally {
    pub fn measure(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
    }

    fn is_measured(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }

    pub fn turn(&mut self, now: u64, took: u64) {
        if self.is_measured(now) {
            self.busy += took;
            self.longest = self.longest.max(took);
        }
    }

    /// The processor's time that a committed transaction took.
    pub fn useful(&mut self, now: u64, took: u64) {
        self.useful += if self.is_measured(now) { took } else { 0 };
    }

    pub fn failed(&mut self, now: u64) {
        self.failed += u64::from(self.is_measured(now));
    }

    pub fn committed(&mut self, now: u64, took: u64) {
        if self.is_measured(now) {
            self.latencies.push(took / 1000);
            self.in_slice += 1;
        }
    }

    pub fn served(&mut self, now: u64, kind: Kind, took: u64) {
        if self.is_measured(now) {
            let of = &mut self.kinds[kind as usize];
            (of.0, of.1) = (of.0 + 1, of.1 + took);
        }
    }

    pub fn answered(&mut self, now: u64, kind: Kind, after: u64) {
        if self.is_measured(now) {
            self.kinds[kind as usize].2 += after;
        }
    }

    pub fn slice(&mut self, slice: Slice) {
        let committed = std::mem::take(&mut self.in_slice);
        self.slices.push(Slice { committed, ..slice });
    }
}

/// A point of a figure. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which system.
    pub system: &'static str,
    /// How many sites.
    pub sites: u16,
    /// Clients of each.
    pub clients: usize,
    /// Transactions a second that committed, of all sites together.
    pub throughput: f64,
    /// From the first try's begin to the commit.
    pub mean_us: f64,
    /// Half of them took at most this.
    pub p50_us: u64,
    /// 99 of 100 took at most this.
    pub p99_us: u64,
    /// How many committed.
    pub committed: u64,
    /// How many tries failed.
    pub failed: u64,
    /// For which share of the time sites were busy.
    pub busy: f64,
    /// Of that, the share that went into transactions that committed.
    pub useful: f64,
    /// The processor's time for each committed transaction, everything included.
    pub processor_us: f64,
    /// The longest that a site was busy with one thing.
    pub longest_us: f64,
    /// Of a begin, a read, a write and a commit, the processor's time.
    pub service_us: [f64; 4],
    /// Of the same, how long the site took to answer.
    pub answered_us: [f64; 4],
    /// States of all sites together: the mean.
    pub states: f64,
    /// States that collection would leave at the end if it took no time.
    pub ideal_states: usize,
    /// Heads: the mean.
    pub heads: f64,
    /// Versions of keys: the mean.
    pub versions: f64,
    /// Bytes: the mean.
    pub memory: f64,
    /// Bytes that they keep five seconds after the last client has stopped.
    pub rested_memory: usize,
    /// Over time.
    pub slices: Vec<Slice>,
}

/// Runs a system.
pub fn run(setup: &Setup) -> Measured {
    let sites = |local, keep| Sites { local, keep };
    let flat = |concurrency, typed| Flat { concurrency, typed };
    let tally = match setup.system {
        System::Plain => World::new(setup, sites(Local::Serialize, setup.keep)).run(),
        System::Tardis(_) => World::new(setup, sites(Local::Branch, setup.keep)).run(),
        System::Hoarding => World::new(setup, sites(Local::Branch, usize::MAX)).run(),
        System::Locking => World::new(setup, flat(Concurrency::Locking, false)).run(),
        System::Typed => World::new(setup, flat(Concurrency::Locking, true)).run(),
        System::Occ => World::new(setup, flat(Concurrency::Optimistic, false)).run(),
    };
    sum_up(setup, tally)
}

fn sum_up(setup: &Setup, mut tally: Tally) -> Measured {
    tally.latencies.sort_unstable();
    let (committed, seconds) = (tally.latencies.len(), setup.measured as f64 / 1e3);
    let each = committed.max(1) as f64;
    let percentile = |percent: usize| {
        let index = (committed * percent).div_ceil(100).saturating_sub(1);
        tally.latencies.get(index).copied().unwrap_or(0)
    };
    let mean = |of: fn(&Slice) -> usize| {
        tally.slices.iter().map(|slice| of(slice) as f64).sum::<f64>() / tally.slices.len().max(1) as f64
    };
    Measured {
        system: setup.system.name(),
        sites: setup.sites,
        clients: setup.clients,
        throughput: committed as f64 / seconds,
        mean_us: tally.latencies.iter().sum::<u64>() as f64 / each,
        p50_us: percentile(50),
        p99_us: percentile(99),
        committed: committed as u64,
        failed: tally.failed,
        busy: tally.busy as f64 / 1e9 / seconds / f64::from(setup.sites),
        useful: tally.useful as f64 / tally.busy.max(1) as f64,
        processor_us: tally.busy as f64 / 1e3 / each,
        longest_us: tally.longest as f64 / 1e3,
        service_us: tally.kinds.map(|(count, took, _)| took as f64 / 1e3 / count.max(1) as f64),
        answered_us: tally.kinds.map(|(count, _, after)| after as f64 / 1e3 / count.max(1) as f64),
        states: mean(|slice| slice.states),
        ideal_states: tally.settled.states,
        heads: mean(|slice| slice.heads),
        versions: mean(|slice| slice.versions),
        memory: mean(|slice| slice.memory),
        rested_memory: tally.rested.memory,
        slices: tally.slices,
    }
}
