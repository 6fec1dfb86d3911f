//! A partition of three copies, played in virtual time: a leader that was replaced without knowing it.

use anabranch_causal::stable::{RegionTopology, Scope, Topology};
use anabranch_causal::{cops, pocc};
use checker::render;
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Replica, Replies, Request};
use replication::copies::{self, Copied, Groups};
use replication::{Mutant, Mutants};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RegionId,
    ReplyBuf, ReplySink, RequestId, Rng, SessionId, Slot, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(3);
const SEED: HashSeed = HashSeed(7);
const EPOCH: u64 = 1_790_000_000_000_000;
const DELAY: u64 = 100;
const LIFE: Incarnation = Incarnation(1);

#[derive(Default)]
struct Inbox(BTreeMap<RequestId, ReplyBuf>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

fn member(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KEYSPACE, PartitionId(0)) }
}

fn gateway(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::coordinator(KEYSPACE) }
}

/// Three processes, each with a copy of the only partition and a coordinator, whose logs take no time.
struct Network<P: Copied> {
    now: u64,
    nodes: BTreeMap<Address, Replica<copies::Node<P>>>,
    flights: BTreeMap<(u64, u64), (NodeId, Address, Vec<u8>)>,
    sent: u64,
    groups: u64,
    /// These stand still.
    still: BTreeSet<ProcessId>,
    /// Nothing leaves these for another one.
    alone: BTreeSet<ProcessId>,
    /// Of how many microseconds a wall clock is behind.
    behind: BTreeMap<ProcessId, u64>,
    random: Rng,
    inbox: Inbox,
    request_count: u64,
}

impl<P: Copied> Network<P> {
    /// `build` makes a process's instance: a replica, or the coordinator.
    fn new(build: &dyn Fn(&Topology, Address) -> P, mutants: Mutants) -> Self {
        let groups = Groups::new([(0..3).map(member).collect()]);
        let of_region = RegionTopology::full("here".to_owned(), [member(0)]);
        let topology = Topology { regions: vec![of_region], keyspace: KEYSPACE, seed: SEED };
        let options = copies::Options { mutants, ..copies::Options::default() };
        let mut network = Network {
            now: 0,
            nodes: BTreeMap::new(),
            flights: BTreeMap::new(),
            sent: 0,
            groups: 0,
            still: BTreeSet::new(),
            alone: BTreeSet::new(),
            behind: BTreeMap::new(),
            random: Rng::with_seed(1),
            inbox: Inbox::default(),
            request_count: 0,
        };
        for at in (0..3).flat_map(|process| [member(process), gateway(process)]) {
            let (node, instance) = (at.at(LIFE), build(&topology, at));
            let node = match at.slot.partition {
                Some(_) => copies::Node::member(node, instance, groups.clone(), options),
                None => copies::Node::group_client(node, instance, groups.clone()),
            };
            network.nodes.insert(at, Replica::new(at.at(LIFE), node));
            network.step(at, Input::Recovered { complete: true });
        }
        network.run_ms(2_000);
        network
    }

    fn times(&self, process: ProcessId) -> Now {
        let behind = self.behind.get(&process).copied().unwrap_or_default();
        Now { wall: WallTime(EPOCH + self.now - behind), instant: Instant(self.now) }
    }

    fn step(&mut self, at: Address, input: Input<'_, copies::Node<P>>) {
        let times = self.times(at.process);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        node.step(times, &mut vec![input], &mut self.random, &mut self.inbox);
        self.settle(at);
    }

    fn settle(&mut self, at: Address) {
        let times = self.times(at.process);
        let Some(node) = self.nodes.get_mut(&at) else { return };
        if !node.records().is_empty() {
            self.groups += 1;
            node.appended(self.groups);
            node.logged(self.groups);
        }
        node.release(times.instant, Durable { written: self.groups, synced: self.groups });
        let from = node.node();
        for (to, packet) in node.packets() {
            if from.process == to.process || !self.alone.contains(&from.process) {
                let mut bytes = Vec::new();
                packet.encode(&mut bytes);
                self.sent += 1;
                self.flights.insert((self.now + DELAY, self.sent), (from, to, bytes));
            }
        }
    }

    fn run_ms(&mut self, millis: u64) {
        let end = self.now + 1_000 * millis;
        while self.now < end {
            self.advance();
        }
    }

    /// The next moment.
    fn advance(&mut self) {
        let goes_on = |at: &Address| !self.still.contains(&at.process);
        let nodes = self.nodes.iter().filter(|(at, _)| goes_on(at));
        let due = nodes.filter_map(|(_, node)| Some(node.deadline()?.0));
        let next = due.chain(self.flights.keys().map(|(arrives, _)| *arrives)).min();
        self.now = next.unwrap_or_default().max(self.now + 1);
        while let Some(flight) = self.flights.first_entry().filter(|flight| flight.key().0 <= self.now) {
            let (from, to, bytes) = flight.remove();
            let times = self.times(to.process);
            if let Some(node) = self.nodes.get_mut(&to).filter(|_| !self.still.contains(&to.process)) {
                let packet = Packet::decode(&mut Reader::new(&bytes)).expect("what was encoded decodes");
                let taken = node.receive(times, from, packet, &mut self.random, &mut self.inbox);
                taken.expect("frames decode");
                self.settle(to);
            }
        }
        let goes_on = |at: &Address| !self.still.contains(&at.process);
        let addresses: Vec<Address> = self.nodes.keys().copied().filter(goes_on).collect();
        for at in addresses {
            let times = self.times(at.process);
            let is_due = |node: &&mut Replica<_>| node.deadline().is_some_and(|due| due <= times.instant);
            if let Some(node) = self.nodes.get_mut(&at).filter(is_due) {
                node.fire(times, &mut self.random, &mut self.inbox);
                self.settle(at);
            }
        }
    }

    fn ask(&mut self, process: u16, operation: Operation<'_>) -> String {
        self.request_count += 1;
        let id = RequestId(self.request_count);
        let key = b"key".as_slice();
        let operation = KeyedOperation { key, hash: SEED.hash(key), operation, blind: false };
        let session = SessionId(u64::from(process));
        self.step(gateway(process), Input::Request { id, request: Request::One { session, operation } });
        while !self.inbox.0.contains_key(&id) {
            self.advance();
        }
        render(&self.inbox.0[&id])
    }

    fn increment(&mut self, process: u16) -> String {
        self.ask(process, Operation::Register(register::Operation::Increment { by: 1 }))
    }
}

/// A process stands still while the others replace the leader that it may have, and write. When it goes on, its wall clock, by
/// which a leader says now and then that it leads, is behind, and nobody hears it. Returns its reply to a read then,
/// by process.
fn read_by_who_was_away<P: Copied>(build: &dyn Fn(&Topology, Address) -> P, mutants: Mutants) -> Vec<String> {
    let away = |process: u16| {
        let mut network = Network::new(build, mutants);
        assert_eq!(network.increment(process), "(integer) 1");
        network.run_ms(20);
        network.still.insert(ProcessId(process));
        network.run_ms(3_000);
        assert_eq!(network.increment((process + 1) % 3), "(integer) 2");
        network.still.clear();
        network.alone.insert(ProcessId(process));
        network.behind.insert(ProcessId(process), 10_000_000);
        network.ask(process, Operation::Register(register::Operation::Get))
    };
    (0..3).map(away).collect()
}

/// Corrections 42.
#[track_caller]
fn assert_only_the_leader_answers<P: Copied>(build: impl Fn(&Topology, Address) -> P) {
    let said = read_by_who_was_away(&build, Mutants::default());
    assert!(said.iter().all(|said| said != "\"1\""), "{said:?}");
    let said = read_by_who_was_away(&build, Mutant::ReadsUnconfirmed.into());
    assert!(said.iter().any(|said| said == "\"1\""), "the mutant says what is no longer so: {said:?}");
}

#[test]
fn a_leader_of_cops_that_was_replaced_unawares_answers_no_read() {
    assert_only_the_leader_answers(|topology, at| {
        let options = cops::Options { copied: true, ..cops::Options::default() };
        match at.slot.partition {
            Some(_) => cops::Node::partition(topology.clone(), RegionId(0), 0, options),
            None => cops::Node::coordinator(topology.clone(), RegionId(0), at.process, LIFE, options),
        }
    });
}

#[test]
fn a_leader_of_pocc_that_was_replaced_unawares_answers_no_read() {
    assert_only_the_leader_answers(|topology, at| {
        let options = pocc::Options { copied: true, scope: Scope::Session, ..pocc::Options::default() };
        match at.slot.partition {
            Some(_) => pocc::Node::partition(topology.clone(), RegionId(0), 0, options),
            None => pocc::Node::coordinator(topology.clone(), RegionId(0), at.process, LIFE, options),
        }
    });
}
