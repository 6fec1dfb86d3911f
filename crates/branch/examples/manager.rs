//! What a transaction takes of the processor of a site's manager, and of its record partitions (T14): the limit of one manager.
//!
//! `cargo run --profile ci -p anabranch-branch --example manager` (Linux). The step functions run one after the other on one
//! thread, with the messages between them in binary form; there are no sockets and no disk. Time is what the thread got of
//! a processor, so other programs disturb little.

#![allow(
    clippy::disallowed_macros,
    clippy::disallowed_methods,
    reason = "a measurement reads the system's clock and prints; the crate itself does neither"
)]

use anabranch_branch::site::{Options, Topology};
use anabranch_branch::{Instance, Keep};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, VecDeque};
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, ReplyBuf, ReplySink,
    RequestId, Rng, SessionId, Slot, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const KEYS: usize = 20_000;
const TRANSACTIONS: usize = 40_000;
const BATCH: usize = 64;

#[derive(Default)]
struct Inbox(BTreeMap<RequestId, ReplyBuf>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// What this thread has had of a processor, in nanoseconds.
fn processor() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

struct MergeContext {
    replicas: Vec<Replica<Instance>>,
    spent: Vec<u64>,
    waiting: Vec<VecDeque<(NodeId, Vec<u8>)>>,
    now: Instant,
    random: Rng,
    inbox: Inbox,
}

fn address(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KEYSPACE, PartitionId(process)) }
}

impl MergeContext {
    fn new(partitions: u16, near: usize) -> Self {
        let topology = Topology {
            sites: vec![address(0)],
            partitions: vec![(1..=partitions).map(address).collect()],
            keyspace: KEYSPACE,
        };
        let options = Options { near, keep: Keep::states(0), ..Options::default() };
        let instance = |process| match process {
            0 => Instance::site(topology.clone(), 0, Incarnation(1), options),
            _ => Instance::part(address(0), options.durability, options.mutants),
        };
        let replica = |process| Replica::new(address(process).at(Incarnation(1)), instance(process));
        let count = usize::from(partitions) + 1;
        let mut bench = MergeContext {
            replicas: (0..=partitions).map(replica).collect(),
            spent: vec![0; count],
            waiting: vec![VecDeque::new(); count],
            now: Instant(1_000_000),
            random: Rng::with_seed(1),
            inbox: Inbox::default(),
        };
        for process in 0..count {
            bench.step(process, vec![Input::Recovered { complete: true }]);
        }
        bench.settle();
        bench
    }

    fn time(&self) -> Now {
        Now { wall: WallTime(self.now.0), instant: self.now }
    }

    fn step(&mut self, process: usize, mut batch: Vec<Input<'_, Instance>>) {
        let (began, now) = (processor(), self.time());
        self.replicas[process].step(now, &mut batch, &mut self.random, &mut self.inbox);
        self.release(process, began);
    }

    fn release(&mut self, process: usize, began: u64) {
        let replica = &mut self.replicas[process];
        replica.appended(1);
        replica.release(self.now, Durable { written: u64::MAX, synced: u64::MAX });
        let from = replica.node();
        for (to, packet) in replica.packets() {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            self.waiting[usize::from(to.process.0)].push_back((from, bytes));
        }
        self.spent[process] += processor() - began;
    }

    /// Delivers everything, and lets a little time pass.
    fn settle(&mut self) {
        while self.waiting.iter().any(|waiting| !waiting.is_empty()) {
            for process in 0..self.replicas.len() {
                let packets = std::mem::take(&mut self.waiting[process]);
                let (began, now) = (processor(), self.time());
                let packets = packets.iter().filter_map(|(from, bytes)| {
                    Some((*from, Packet::decode(&mut types::Reader::new(bytes)).ok()?))
                });
                let received =
                    self.replicas[process].receive_all(now, packets, &mut self.random, &mut self.inbox);
                assert_eq!(received, Ok(()), "packets are well formed");
                self.release(process, began);
            }
        }
        self.now = self.now + std::time::Duration::from_millis(5);
        for process in 0..self.replicas.len() {
            let (began, now) = (processor(), self.time());
            if self.replicas[process].deadline().is_some_and(|deadline| deadline <= self.now) {
                self.replicas[process].fire(now, &mut self.random, &mut self.inbox);
                self.release(process, began);
            }
        }
    }

    /// So many transactions of so many increments each.
    fn run(&mut self, transactions: usize, keys: usize) {
        for first in (0..transactions).step_by(BATCH) {
            let names: Vec<Vec<String>> = (0..BATCH)
                .map(|_| (0..keys).map(|_| format!("key:{}", self.random.usize(0..KEYS))).collect())
                .collect();
            let steps: Vec<Vec<Step<'_>>> = names.iter().map(|names| steps(names)).collect();
            let batch: Vec<Input<'_, Instance>> = steps
                .iter()
                .enumerate()
                .map(|(number, steps)| Input::Request {
                    id: RequestId((first + number) as u64),
                    request: Request::Many {
                        session: SessionId(number as u64 + 1),
                        steps,
                        watched: false,
                        multi: true,
                    },
                })
                .collect();
            self.step(0, batch);
            self.settle();
            self.inbox.0.clear();
        }
    }
}

fn steps(names: &[String]) -> Vec<Step<'_>> {
    names
        .iter()
        .map(|name| {
            let operation = Operation::Register(register::Operation::Increment { by: 1 });
            let (key, hash) = (name.as_bytes(), HashSeed(1).hash(name.as_bytes()));
            Step::Key(KeyedOperation { key, hash, blind: false, operation })
        })
        .collect()
}

fn main() {
    println!(
        "| partitions | keys near | keys of a transaction | manager, us | busiest partition, us | manager's limit, 1/s |"
    );
    println!("|---|---|---|---|---|---|");
    for keys in [1, 4] {
        for (partitions, near) in [(0, KEYS), (1, KEYS), (2, KEYS), (4, KEYS), (1, 64), (2, 64), (4, 64)] {
            let mut bench = MergeContext::new(partitions, near);
            bench.run(TRANSACTIONS / 2, keys);
            bench.spent.iter_mut().for_each(|spent| *spent = 0);
            bench.run(TRANSACTIONS, keys);
            let each = |spent: u64| spent as f64 / 1e3 / TRANSACTIONS as f64;
            let (manager, busiest) =
                (each(bench.spent[0]), each(bench.spent[1..].iter().copied().max().unwrap_or(0)));
            println!(
                "| {partitions} | {near} | {keys} | {manager:.1} | {busiest:.1} | {:.0} |",
                1e6 / manager
            );
        }
    }
}
