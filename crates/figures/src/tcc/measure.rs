//! What a run came to.

use super::System;
use super::freshness::Items;
use super::load::Load;
use super::world::{Setup, World};
use baselines::{Blocking, Cure, HybridCure, Uncoordinated};
use causal::stable::{Stamp, Times};
use causal::{paris, pocc, wren};
use serde::Serialize;
use types::RegionId;

/// A write, until it is visible in a region.
#[derive(Debug)]
pub(crate) struct Sample<S: Times> {
    pub stamp: Stamp<S::Depends>,
    pub partition: u16,
    pub to: RegionId,
    /// True in the region where it was written.
    pub local: bool,
}

/// What is counted between two moments, in nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    from: u64,
    to: u64,
    latencies: Vec<u64>,
    /// Of commands that read: for how long all took, and how many there were.
    reads: (u64, u64),
    failed: u64,
    /// Bytes of effects, and of what tells of time alone: between regions, and inside of them.
    replication: [u64; 2],
    stabilization: [u64; 2],
    ages: (u64, u64),
    local: Vec<u64>,
    remote: Vec<u64>,
    /// Reads that might wait, those that did, and for how long: in microseconds.
    pub waits: (u64, u64, u64),
    pub items: Items,
    pub busiest: u64,
    /// Of all machines together.
    pub busy: u64,
}

impl Tally {
    pub fn measure(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
    }

    pub fn is_measured(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }

    pub fn failed(&mut self, now: u64) {
        self.failed += u64::from(self.is_measured(now));
    }

    pub fn committed(&mut self, now: u64, began: u64) {
        if self.is_measured(now) {
            self.latencies.push((now - began) / 1000);
        }
    }

    pub fn read(&mut self, now: u64, began: u64) {
        if self.is_measured(now) {
            self.reads = (self.reads.0 + (now - began) / 1000, self.reads.1 + 1);
        }
    }

    pub fn sent(&mut self, now: u64, far: bool, effects: bool, bytes: u64) {
        if self.is_measured(now) {
            let of = if effects { &mut self.replication } else { &mut self.stabilization };
            of[usize::from(!far)] += bytes;
        }
    }

    /// A transaction began on a snapshot of this age, in microseconds.
    pub fn aged(&mut self, now: u64, age: u64) {
        if self.is_measured(now) {
            self.ages = (self.ages.0 + age, self.ages.1 + 1);
        }
    }

    /// A write became visible so many microseconds after it was committed.
    pub fn visible(&mut self, local: bool, age: u64) {
        if local { &mut self.local } else { &mut self.remote }.push(age);
    }
}

/// A point of a figure. Times are in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which system.
    pub system: &'static str,
    /// How many regions.
    pub regions: u16,
    /// How many partitions.
    pub partitions: u16,
    /// How many regions keep each.
    pub replicas: u16,
    /// Of 20 operations, how many write.
    pub writes: u16,
    /// How many partitions a transaction touches.
    pub touched: u16,
    /// Of a hundred transactions, how many stay in their region.
    pub local_share: u8,
    /// Clients beside each machine.
    pub clients: usize,
    /// Transactions a second.
    pub throughput: f64,
    /// From the begin to the commit.
    pub mean_us: f64,
    /// Half of them took at most this.
    pub p50_us: u64,
    /// 99 of 100 took at most this.
    pub p99_us: u64,
    /// How many committed.
    pub committed: u64,
    /// How many failed.
    pub failed: u64,
    /// The share of partition reads that waited for their snapshot.
    pub waited_share: f64,
    /// How long these waited, on average.
    pub wait_us: f64,
    /// Bytes of replicated effects between regions for each transaction.
    pub replication_bytes: f64,
    /// Bytes a second between regions that only tell of time.
    pub stabilization_far: f64,
    /// The same inside of regions.
    pub stabilization_near: f64,
    /// How old a snapshot was when its transaction began, on average: what it shows of all regions.
    pub age_us: f64,
    /// How long after its commit a write was visible in its own region: half of them, and 99 of 100.
    pub local_visible_us: (u64, u64),
    /// The same in another region.
    pub remote_visible_us: (u64, u64),
    /// The same by percent: so many of a hundred writes were visible in their own region after the first, and in another one
    /// after the second of the times.
    pub visible_us: Vec<(u8, u64, u64)>,
    /// For which share of the time the busiest machine was busy.
    pub busiest: f64,
    /// How long all machines together were busy for each transaction, what goes on without any included.
    pub processor_us: f64,
    /// What else is measured of single commands.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub commands: Option<Commands>,
}

/// What is measured of single commands: then a transaction is one of them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Commands {
    /// How many keys of different partitions are read for each that is written.
    pub keys: u16,
    /// True if one transaction reads all of them.
    pub read_only: bool,
    /// From a request that reads to its reply, on average, in microseconds.
    pub read_us: f64,
    /// Items that partitions returned.
    pub read: u64,
    /// The share of them of which the partition had a newer version.
    pub stale_share: f64,
    /// The share of them of which the newest version was one of another region, and another one was returned.
    pub unstable_share: f64,
    /// How many newer versions there were of one that was stale, on average.
    pub behind: f64,
}

/// The points of a curve of visibility, of a hundred writes.
const CURVE: [u8; 13] = [1, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95, 99];

/// Runs a system.
pub fn run(system: System, setup: &Setup) -> Measured {
    let applied = system.is_applied();
    let tally = match system {
        System::Wren => World::<wren::Snapshot>::new(setup, applied).run(),
        System::Cure | System::CureApplied => World::<Cure>::new(setup, applied).run(),
        System::HybridCure | System::HybridCureApplied => World::<HybridCure>::new(setup, applied).run(),
        System::Paris => World::<paris::Universal>::new(setup, applied).run(),
        System::Bpr => World::<Blocking>::new(setup, applied).run(),
        System::Pocc => World::<pocc::Snapshot>::new(setup, applied).run(),
        System::NoCc => World::<Uncoordinated>::new(setup, applied).run(),
    };
    sum_up(system, setup, tally)
}

fn percentile(sorted: &[u64], percent: usize) -> u64 {
    let index = (sorted.len() * percent).div_ceil(100).saturating_sub(1);
    sorted.get(index).copied().unwrap_or(0)
}

fn commands(load: Load, tally: &Tally) -> Option<Commands> {
    let (keys, read_only) = match load {
        Load::Transactions(_) => return None,
        Load::Gets(keys) => (keys, false),
        Load::ReadOnly(keys) => (keys, true),
    };
    let Items { read, stale, unstable, behind } = tally.items;
    Some(Commands {
        keys,
        read_only,
        read_us: tally.reads.0 as f64 / tally.reads.1.max(1) as f64,
        read,
        stale_share: stale as f64 / read.max(1) as f64,
        unstable_share: unstable as f64 / read.max(1) as f64,
        behind: behind as f64 / stale.max(1) as f64,
    })
}

fn sum_up(system: System, setup: &Setup, mut tally: Tally) -> Measured {
    for times in [&mut tally.latencies, &mut tally.local, &mut tally.remote] {
        times.sort_unstable();
    }
    let committed = tally.latencies.len();
    let (seconds, each) = (setup.measured as f64 / 1e3, committed.max(1) as f64);
    let (reads, waited, waited_us) = tally.waits;
    let visible = |times: &[u64]| (percentile(times, 50), percentile(times, 99));
    let mix = setup.load.mix();
    Measured {
        system: system.name(),
        regions: setup.regions,
        partitions: setup.partitions,
        replicas: setup.replicas,
        writes: mix.writes,
        touched: mix.partitions,
        local_share: mix.local,
        clients: setup.clients,
        throughput: committed as f64 / seconds,
        mean_us: tally.latencies.iter().sum::<u64>() as f64 / each,
        p50_us: percentile(&tally.latencies, 50),
        p99_us: percentile(&tally.latencies, 99),
        committed: committed as u64,
        failed: tally.failed,
        waited_share: waited as f64 / reads.max(1) as f64,
        wait_us: waited_us as f64 / waited.max(1) as f64,
        replication_bytes: tally.replication[0] as f64 / each,
        stabilization_far: tally.stabilization[0] as f64 / seconds,
        stabilization_near: tally.stabilization[1] as f64 / seconds,
        age_us: tally.ages.0 as f64 / tally.ages.1.max(1) as f64,
        local_visible_us: visible(&tally.local),
        remote_visible_us: visible(&tally.remote),
        visible_us: CURVE
            .iter()
            .map(|percent| {
                let after = |times: &[u64]| percentile(times, usize::from(*percent));
                (*percent, after(&tally.local), after(&tally.remote))
            })
            .collect(),
        busiest: tally.busiest as f64 / 1e6 / setup.measured as f64,
        processor_us: tally.busy as f64 / 1e3 / each,
        commands: commands(setup.load, &tally),
    }
}
