//! What a run came to.

use super::system::Counters;
use super::world::World;
use super::{PIECE, Setup};
use crate::system::Tapir;
use bench::claret::{Workload, unevenness};
use protocol::{ContentionCounts, HotKey, Pair};
use serde::Serialize;
use std::collections::BTreeMap;

/// What is counted between two moments.
#[derive(Default)]
pub(super) struct Tally {
    from: u64,
    to: u64,
    latencies: Vec<u64>,
    kinds: BTreeMap<&'static str, u64>,
    trace: Vec<u32>,
    failed: u64,
    packets: u64,
    messages: u64,
    records: u64,
    met: ContentionCounts,
    combined: u64,
    conflicts: BTreeMap<(String, Pair), u64>,
    /// For how long the busiest replica and the busiest gateway were busy, in microseconds.
    pub busiest: u64,
    pub busiest_gateway: u64,
}

impl Tally {
    pub fn measure(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
        self.trace = vec![0; (to - from).div_ceil(PIECE) as usize];
    }

    pub fn is_measured(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }

    pub fn committed(&mut self, kind: &'static str, now: u64, began: u64) {
        if self.is_measured(now) {
            self.latencies.push(now - began);
            *self.kinds.entry(kind).or_default() += 1;
            self.trace[((now - self.from) / PIECE) as usize] += 1;
        }
    }

    pub fn failed(&mut self, now: u64, count: u64) {
        self.failed += if self.is_measured(now) { count } else { 0 };
    }

    pub fn sent(&mut self, packets: u64, messages: u64, records: u64) {
        self.packets += packets;
        self.messages += messages;
        self.records += records;
    }

    pub fn begin<'p, T: Counters + 'p>(&mut self, replicas: impl Iterator<Item = &'p T>, combined: u64) {
        self.combined = combined;
        self.met = replicas
            .filter_map(Counters::met)
            .fold(ContentionCounts::default(), |sum, (met, _)| sum.and(met));
    }

    pub fn end<'p, T: Counters + 'p>(&mut self, replicas: impl Iterator<Item = &'p T>, combined: u64) {
        let before = std::mem::take(&mut self.met);
        for (met, keys) in replicas.filter_map(Counters::met) {
            self.met = self.met.and(met);
            keys.iter().for_each(|key| self.note(key));
        }
        self.met.waits -= before.waits;
        self.met.conflicts -= before.conflicts;
        self.met.wounds -= before.wounds;
        self.combined = combined - self.combined;
    }

    fn note(&mut self, hot: &HotKey) {
        let name = hot.key.split(|byte| *byte == b':').next().unwrap_or_default();
        let name = String::from_utf8_lossy(name).into_owned();
        for (pair, contention) in &hot.pairs {
            *self.conflicts.entry((name.clone(), *pair)).or_default() += contention.total();
        }
    }
}

/// Operations on keys of a kind that met.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Conflict {
    /// What the keys' names begin with.
    pub keys: String,
    /// What the transaction wanted to do that waited, was refused or lost a lock.
    pub wanted: String,
    /// What stood in its way; `newer` for what had committed since it looked.
    pub met: String,
    /// How often, on the keys with the most.
    pub count: u64,
}

/// A point of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which system.
    pub system: &'static str,
    /// Which workload.
    pub workload: &'static str,
    /// Of a hundred operations or transactions, how many add, bid or post.
    pub share: u8,
    /// The exponent of Zipf's law by which keys are drawn; 0 where that is not how.
    pub zipf: f64,
    /// How many clients.
    pub clients: usize,
    /// Transactions a second that committed; without transactions: groups of the same operations.
    pub throughput: f64,
    /// From the first try to the commit, in microseconds: on average.
    pub mean_us: f64,
    /// Half of the transactions took at most this.
    pub p50_us: u64,
    /// 99 of 100 took at most this.
    pub p99_us: u64,
    /// How many committed, by kind.
    pub committed: BTreeMap<&'static str, u64>,
    /// How many tries of clients failed. Servers try again themselves before they tell a client.
    pub failed: u64,
    /// How often transactions waited, were refused or lost locks.
    pub waits: u64,
    /// See `waits`.
    pub conflicts: u64,
    /// See `waits`.
    pub wounds: u64,
    /// How many committed with another one of their gateway.
    pub combined: u64,
    /// Who met whom, the most first.
    pub pairs: Vec<Conflict>,
    /// What travelled at once, for each that committed.
    pub packets: f64,
    /// Messages for each that committed.
    pub messages: f64,
    /// Records that replicas wrote, likewise.
    pub records: f64,
    /// For which share of the time the busiest replica was busy.
    pub busiest: f64,
    /// The same of the gateways.
    pub busiest_gateway: f64,
    /// Commits of every fiftieth of a second.
    pub trace: Vec<u32>,
    /// The standard deviation of these through their mean.
    pub unevenness: f64,
}

/// Runs a system.
pub fn run(setup: &Setup) -> Measured {
    let tally = match setup.system.led() {
        Some(led) => World::new(setup, led).run(),
        None => World::new(setup, Tapir).run(),
    };
    sum_up(setup, tally)
}

/// What a workload is called, its share of what changes, and its exponent.
pub(super) fn described(workload: &Workload) -> (&'static str, u8, f64) {
    match workload {
        Workload::RawMix(mix) => ("rawmix", mix.adds, mix.zipf),
        Workload::Rubis(rubis) => ("rubis", if rubis.bid_heavy { 50 } else { 10 }, 0.0),
        Workload::Retwis(retwis) => ("retwis", if retwis.post_heavy { 40 } else { 4 }, 0.0),
        Workload::Unmodified(unmodified) => ("unmodified", 50, unmodified.zipf),
    }
}

fn sum_up(setup: &Setup, mut tally: Tally) -> Measured {
    tally.latencies.sort_unstable();
    let committed = tally.latencies.len();
    let percentile = |percent: usize| {
        let index = (committed * percent).div_ceil(100).saturating_sub(1);
        tally.latencies.get(index).copied().unwrap_or(0)
    };
    let (measured, each) = (setup.measured as f64, committed.max(1) as f64);
    let name = |mode: Option<datatypes::Mode>| mode.map_or("newer".to_owned(), |mode| mode.name().to_owned());
    let mut pairs: Vec<Conflict> = tally
        .conflicts
        .iter()
        .map(|((keys, pair), count)| Conflict {
            keys: keys.clone(),
            wanted: name(Some(pair.wanted)),
            met: name(pair.met),
            count: *count,
        })
        .collect();
    pairs.sort_by_key(|pair| std::cmp::Reverse(pair.count));
    let (workload, share, zipf) = described(&setup.workload);
    Measured {
        system: setup.system.name(),
        workload,
        share,
        zipf,
        clients: setup.clients,
        throughput: committed as f64 * 1e6 / measured,
        mean_us: tally.latencies.iter().sum::<u64>() as f64 / each,
        p50_us: percentile(50),
        p99_us: percentile(99),
        committed: tally.kinds,
        failed: tally.failed,
        waits: tally.met.waits,
        conflicts: tally.met.conflicts,
        wounds: tally.met.wounds,
        combined: tally.combined,
        pairs,
        packets: tally.packets as f64 / each,
        messages: tally.messages as f64 / each,
        records: tally.records as f64 / each,
        busiest: tally.busiest as f64 / measured,
        busiest_gateway: tally.busiest_gateway as f64 / measured,
        unevenness: unevenness(&tally.trace),
        trace: tally.trace,
    }
}
