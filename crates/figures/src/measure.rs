//! What a run came to.

use crate::client::{Client, Load};
use crate::system::{Conventional, QwStore, System, Tapir};
use crate::world::{Setup, World};
use serde::Serialize;
use strict::locking::{Concurrency, Coordinates};

/// What is counted between two moments.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    from: u64,
    to: u64,
    latencies: Vec<u64>,
    hops: u64,
    aborts: u64,
    /// Sent because of requests: what time alone brings about, such as a leader's heartbeats, is left out.
    pub messages: u64,
    pub records: u64,
    /// For how long the busiest replica was busy, in microseconds.
    pub busiest: u64,
}

impl Tally {
    pub fn measure(&mut self, from: u64, to: u64) {
        (self.from, self.to) = (from, to);
    }

    pub fn is_measured(&self, now: u64) -> bool {
        (self.from..self.to).contains(&now)
    }

    pub fn aborted(&mut self, now: u64) {
        self.aborts += u64::from(self.is_measured(now));
    }

    pub fn committed(&mut self, now: u64, client: &Client) {
        if self.is_measured(now) {
            self.latencies.push(now - client.began);
            self.hops += u64::from(client.hops);
        }
    }
}

/// A point of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which system.
    pub system: &'static str,
    /// Which network.
    pub environment: &'static str,
    /// How many shards of three replicas.
    pub shards: u16,
    /// How many shards each transaction touches; 0 where that varies.
    pub touched: u16,
    /// How many clients.
    pub clients: usize,
    /// The region that they are in, or `all`.
    pub clients_in: &'static str,
    /// Transactions a second that committed; of a system without transactions, those that were performed.
    pub throughput: f64,
    /// From the first try to the commit, in microseconds: half of the transactions took at most this.
    pub p50_us: u64,
    /// 99 of 100 took at most this.
    pub p99_us: u64,
    /// How many committed.
    pub committed: u64,
    /// How many tries failed.
    pub aborts: u64,
    /// Messages for each that committed, failed tries included.
    pub messages: f64,
    /// Records written by all replicas, likewise.
    pub records: f64,
    /// Round trips one after the other, on average: between regions, or between machines where there is one region.
    pub round_trips: f64,
    /// For which share of the time the busiest replica was busy.
    pub busiest: f64,
}

/// Runs a system.
pub fn run(system: System, setup: &Setup) -> Measured {
    let tally = match system {
        System::Tapir => World::new(setup, Tapir).run(),
        System::TxnLocking => {
            World::new(setup, Conventional::new(Concurrency::Locking, Coordinates::Client)).run()
        }
        System::TxnOcc => {
            let system = Conventional::new(Concurrency::Optimistic, Coordinates::Client);
            World::new(setup, system.with_clock()).run()
        }
        System::SpanLocking => {
            World::new(setup, Conventional::new(Concurrency::Locking, Coordinates::Participant)).run()
        }
        System::SpanOcc => {
            World::new(setup, Conventional::new(Concurrency::Optimistic, Coordinates::Participant)).run()
        }
        System::QwStore => World::new(setup, QwStore).run(),
    };
    sum_up(system, setup, tally)
}

fn sum_up(system: System, setup: &Setup, mut tally: Tally) -> Measured {
    tally.latencies.sort_unstable();
    let committed = tally.latencies.len();
    let percentile = |percent: usize| {
        let index = (committed * percent).div_ceil(100).saturating_sub(1);
        tally.latencies.get(index).copied().unwrap_or(0)
    };
    let (seconds, each) = (setup.measured as f64 / 1e6, committed.max(1) as f64);
    Measured {
        system: system.name(),
        environment: setup.environment.name,
        shards: setup.shards,
        touched: match setup.load {
            Load::Shards(touched, _) => touched,
            Load::Mix(..) | Load::Only(..) => 0,
        },
        clients: setup.clients,
        clients_in: match setup.client_regions.as_slice() {
            [only] => setup.environment.regions[*only],
            _ => "all",
        },
        throughput: committed as f64 / seconds,
        p50_us: percentile(50),
        p99_us: percentile(99),
        committed: committed as u64,
        aborts: tally.aborts,
        messages: tally.messages as f64 / each,
        records: tally.records as f64 / each,
        round_trips: tally.hops as f64 / 2.0 / each,
        busiest: tally.busiest as f64 / setup.measured as f64,
    }
}
