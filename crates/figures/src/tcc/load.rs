//! The workload of both evaluations, which is that of `bench tcc`, on keys of partitions in virtual time.

use bench::tcc::Plan;
use bench::transactions::Planned;
use causal::stable::Topology;
use types::{HashSeed, RegionId, Rng};

pub use bench::tcc::{Mix, OPERATIONS};

/// Keys of each partition.
const KEYS: usize = 1_000;
/// How uneven they are asked for: the exponent of Zipf's law.
const ZIPF: f64 = 0.99;

/// The name of a key.
pub(crate) type Name = [u8; 8];

/// The name of the key of this number.
pub(crate) fn name(number: u32) -> Name {
    u64::from(number).to_be_bytes()
}

/// Keys by partition.
#[derive(Debug)]
pub(crate) struct KeySpace {
    plan: Plan,
}

impl KeySpace {
    pub fn new(topology: &Topology, seed: HashSeed, mix: Mix) -> Self {
        let mut keys: Vec<Vec<u32>> = vec![Vec::new(); usize::from(topology.partitions())];
        let mut number = 0;
        while keys.iter().any(|keys| keys.len() < KEYS) {
            keys[usize::from(topology.partition_of(seed.hash(&name(number))))].push(number);
            number += 1;
        }
        let regions = (0..topology.regions.len() as u16).map(RegionId);
        let held = regions.map(|region| topology.held(region).map(|(partition, _)| partition).collect());
        KeySpace { plan: Plan::new(mix, keys, Some(ZIPF), held.collect()) }
    }

    /// Draws a transaction of a client in `region`.
    pub fn draw(&self, region: RegionId, random: &mut Rng) -> Planned {
        self.plan.draw(usize::from(region.0), random)
    }
}
