//! What clients run, on keys of partitions in virtual time: interactive transactions (Wren and PaRiS: the workload of `bench
//! tcc`), or single commands (POCC).

use bench::tcc::Plan;
use bench::transactions::PlannedStep;
use causal::stable::Topology;
use types::{HashSeed, RegionId, Rng};

pub use bench::tcc::{Mix, OPERATIONS};

/// Keys of each partition for transactions.
const FEW_KEYS: usize = 1_000;
/// The same for commands (the thesis, section 3.8.1).
const MANY_KEYS: usize = 1_000_000;
/// How uneven their use is: the exponent of Zipf's law.
const ZIPF: f64 = 0.99;

/// The name of a key.
pub(crate) type Name = [u8; 8];

/// The name of the key of this number.
pub(crate) fn name(number: u32) -> Name {
    u64::from(number).to_be_bytes()
}

/// What clients run, each in a closed loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Load {
    /// Interactive transactions.
    Transactions(Mix),
    /// A `GET` in each of so many partitions, then a `SET` in any.
    Gets(u16),
    /// A read-only transaction of a key in each of so many partitions, then a `SET` in any.
    ReadOnly(u16),
}

/// What a client asks next.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ClientCall<'p> {
    Begin,
    /// Inside the transaction.
    Read(&'p [u32]),
    Write(&'p [u32]),
    Commit,
    Get(u32),
    ReadOnly(&'p [u32]),
    Set(u32),
}

impl Load {
    /// True for single commands, each of which is measured by itself.
    pub fn is_commands(self) -> bool {
        !matches!(self, Load::Transactions(_))
    }

    /// The transactions, or what comes closest: how many writes, and partitions that are touched.
    pub(crate) fn mix(self) -> Mix {
        match self {
            Load::Transactions(mix) => mix,
            Load::Gets(partitions) | Load::ReadOnly(partitions) => {
                Mix { writes: 1, partitions, local: 100, read_only: 0 }
            }
        }
    }

    /// The request of this number, from 1, if there are so many.
    pub(crate) fn request(self, planned: &PlannedStep, number: u16) -> Option<ClientCall<'_>> {
        let set = || planned.writes.first().copied().map(ClientCall::Set);
        let index = usize::from(number.checked_sub(1)?);
        match (self, number) {
            (Load::Transactions(_), 1) => Some(ClientCall::Begin),
            (Load::Transactions(_), 2) => Some(ClientCall::Read(&planned.reads)),
            (Load::Transactions(_), 3) => Some(ClientCall::Write(&planned.writes)),
            (Load::Transactions(_), 4) => Some(ClientCall::Commit),
            (Load::ReadOnly(_), 1) => Some(ClientCall::ReadOnly(&planned.reads)),
            (Load::ReadOnly(_), 2) => set(),
            (Load::Gets(_), _) if index == planned.reads.len() => set(),
            (Load::Gets(_), _) => planned.reads.get(index).copied().map(ClientCall::Get),
            _ => None,
        }
    }
}

/// Keys by partition.
#[derive(Debug)]
pub(crate) struct KeySpace {
    load: Load,
    partitions: u16,
    plan: Plan,
}

impl KeySpace {
    pub fn new(topology: &Topology, seed: HashSeed, load: Load) -> Self {
        let partitions = topology.partitions();
        let of_each = if load.is_commands() { MANY_KEYS } else { FEW_KEYS };
        let mut keys: Vec<Vec<u32>> = vec![Vec::new(); usize::from(partitions)];
        let (mut number, mut unfilled) = (0, partitions);
        while unfilled > 0 {
            let keys = &mut keys[usize::from(topology.partition_of(seed.hash(&name(number))))];
            keys.push(number);
            unfilled -= u16::from(keys.len() == of_each);
            number += 1;
        }
        let regions = (0..topology.regions.len() as u16).map(RegionId);
        let held = regions.map(|region| topology.held(region).map(|(partition, _)| partition).collect());
        let plan = Plan::new(load.mix(), keys, Some(ZIPF), held.collect());
        KeySpace { load, partitions, plan }
    }

    /// Draws what a client in `region` asks next: a transaction, or commands.
    pub fn draw(&self, region: RegionId, random: &mut Rng) -> PlannedStep {
        let (Load::Gets(reads) | Load::ReadOnly(reads)) = self.load else {
            return self.plan.draw(usize::from(region.0), random);
        };
        let mut partitions: Vec<u16> = (0..self.partitions).collect();
        random.shuffle(&mut partitions);
        let read = partitions.iter().take(usize::from(reads));
        let reads = read.map(|partition| self.plan.draw_of(*partition, random)).collect();
        let written = random.u16(..self.partitions);
        PlannedStep { kind: "", reads, writes: vec![self.plan.draw_of(written, random)] }
    }
}
