//! The network between processes: delay, loss, duplication, reordering, and links cut in one direction or both.

use crate::faults::{Swarm, exponential};
use std::collections::BTreeMap;
use types::{ProcessId, RegionId, Rng};

/// The longest that a packet is held back to be overtaken, in microseconds.
const HELD_BACK: u64 = 500_000;

/// Decides what becomes of each packet.
pub(crate) struct Network {
    /// The cut links, from and to, with the number of cuts on each.
    cut: BTreeMap<(ProcessId, ProcessId), u32>,
    healed: bool,
}

impl Network {
    pub fn new() -> Self {
        Network { cut: BTreeMap::new(), healed: false }
    }

    /// Cuts the link in this direction, until as many `join`s have been called.
    pub fn cut(&mut self, from: ProcessId, to: ProcessId) {
        *self.cut.entry((from, to)).or_default() += 1;
    }

    /// Takes one cut back.
    pub fn join(&mut self, from: ProcessId, to: ProcessId) {
        if let Some(cuts) = self.cut.get_mut(&(from, to)) {
            *cuts = cuts.saturating_sub(1);
        }
    }

    /// Ends all faults for good; delays remain.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.healed = true;
    }

    /// After how many microseconds the packet arrives: never, once, or several times.
    pub fn fate(
        &self,
        (from, from_region): (ProcessId, RegionId),
        (to, to_region): (ProcessId, RegionId),
        swarm: &Swarm,
        random: &mut Rng,
    ) -> Vec<u64> {
        if from == to {
            return vec![random.u64(1..20)];
        }
        let base = if from_region == to_region { swarm.near } else { swarm.far };
        let mut delay = || base + exponential(random, (base as f64 * swarm.jitter) as u64);
        let mut arrivals = vec![delay()];
        if self.healed {
            return arrivals;
        }
        let second = delay();
        if self.cut.get(&(from, to)).is_some_and(|cuts| *cuts > 0) || random.f64() < swarm.loss {
            arrivals.clear();
        }
        if random.f64() < swarm.duplication {
            arrivals.push(second);
        }
        for arrival in &mut arrivals {
            if random.f64() < swarm.reordering {
                *arrival += random.u64(0..HELD_BACK);
            }
        }
        if self.cut.get(&(from, to)).is_some_and(|cuts| *cuts > 0) {
            arrivals.clear();
        }
        arrivals
    }
}
