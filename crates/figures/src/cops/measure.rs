//! What a run came to.

use super::world::World;
use super::{Setup, System};
use serde::Serialize;

/// What is counted between two moments, in nanoseconds.
#[derive(Debug, Default)]
pub(super) struct Tally {
    from: u64,
    to: u64,
    /// Of gets and of puts, in microseconds.
    latencies: [Vec<u64>; 2],
    failed: u64,
    /// Puts that arrived at their partition, with what they name as nearest and as all that they depend on.
    puts: u64,
    nearest: u64,
    all: u64,
    /// Messages that ask whether a dependency is written.
    pub checks: u64,
    /// Writes that the other region has written.
    pub written: u64,
    /// For which share of the time the busiest server was busy: of the region with the clients, and of the other one.
    pub busiest: [f64; 2],
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

    pub fn done(&mut self, now: u64, began: u64, is_put: bool) {
        if self.is_measured(now) {
            self.latencies[usize::from(is_put)].push((now - began) / 1000);
        }
    }

    pub fn put(&mut self, nearest: usize, all: usize) {
        self.puts += 1;
        self.nearest += nearest as u64;
        self.all += all as u64;
    }
}

/// A point of a figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// Which system.
    pub system: &'static str,
    /// Servers of each region.
    pub servers: u16,
    /// Clients beside each server.
    pub clients: usize,
    /// Operations that write, for each `gets` that read.
    pub puts: u32,
    /// See `puts`.
    pub gets: u32,
    /// Of the distribution by which a client draws groups of keys.
    pub variance: f64,
    /// Keys of a group.
    pub keys: u32,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Operations a second that both regions keep up with: what clients were answered, or, if that is less, what it was with the
    /// writes that the other region has written.
    pub throughput: f64,
    /// Operations a second that clients were answered.
    pub answered: f64,
    /// Between two operations of a client, on average, in milliseconds.
    pub delay_ms: f64,
    /// Half of the gets took at most this, in microseconds; 99 of 100; 999 of 1000.
    pub get_us: [u64; 3],
    /// The same of the puts.
    pub put_us: [u64; 3],
    /// How many versions a put names as its nearest dependencies.
    pub nearest: f64,
    /// How many it names in all, in COPS-GT.
    pub all: f64,
    /// Messages for each put that ask whether a dependency is written.
    pub checks: f64,
    /// Operations that failed.
    pub failed: u64,
    /// For which share of the time the busiest server was busy: of the region with the clients, and of the other one.
    pub busiest: [f64; 2],
}

impl Measured {
    /// What sets a curve apart from others of its system.
    pub(super) fn legend(&self) -> String {
        let Measured { puts, gets, variance, .. } = self;
        format!("{} {puts}:{gets} var {variance}", self.system)
    }
}

/// Runs a system.
pub fn run((system, setup): &(System, Setup)) -> Measured {
    let mut tally = World::new(*system, setup).run();
    tally.latencies.iter_mut().for_each(|latencies| latencies.sort_unstable());
    let [gets, puts] = &tally.latencies;
    let seconds = setup.measured as f64 / 1e3;
    let answered = (gets.len() + puts.len()) as f64 / seconds;
    let share = f64::from(setup.plan.puts) / f64::from(setup.plan.puts + setup.plan.gets);
    let sustained = if share > 0.0 { tally.written as f64 / seconds / share } else { f64::INFINITY };
    let clients = setup.clients * usize::from(setup.servers);
    let of_puts = |count: u64| count as f64 / tally.puts.max(1) as f64;
    Measured {
        system: system.name(),
        servers: setup.servers,
        clients: setup.clients,
        puts: setup.plan.puts,
        gets: setup.plan.gets,
        variance: setup.plan.variance,
        keys: setup.plan.keys,
        value_bytes: setup.value_bytes,
        throughput: answered.min(sustained),
        answered,
        delay_ms: clients as f64 / answered.max(1.0) * 1e3,
        get_us: percentiles(gets),
        put_us: percentiles(puts),
        nearest: of_puts(tally.nearest),
        all: of_puts(tally.all),
        checks: of_puts(tally.checks),
        failed: tally.failed,
        busiest: tally.busiest,
    }
}

fn percentiles(sorted: &[u64]) -> [u64; 3] {
    [500, 990, 999].map(|permille| {
        let index = (sorted.len() * permille).div_ceil(1000).saturating_sub(1);
        sorted.get(index).copied().unwrap_or(0)
    })
}
