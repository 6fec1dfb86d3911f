//! Virtual time for keyspaces of several regions: machines that do one thing at a time, clocks that are off, and a network
//! that only delays.
//!
//! A machine has a replica of one partition and a coordinator, beside which its clients are, as in the thesis. Each client
//! is a closed loop and a causal thread of its own.

use super::freshness::Freshness;
use super::load::{ClientCall, KeySpace, Load, Name, name};
use super::measure::{Sample, Tally};
use super::network::{Costs, REGIONS, delay};
use crate::agenda::{Agenda, Answers};
use bench::transactions::PlannedStep;
use causal::stable::{Message, Node, Options, RegionTopology, Scope, Stamp, Times, Topology};
use datatypes::{Operation, register};
use protocol::{Durability, Durable, Frame, Input, KeyedOperation, Now, Packet, Replica, Request, Step};
use std::time::Duration;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RegionId,
    ReplyBuf, RequestId, Rng, SessionId, Slot, Timestamp, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const LIFE: Incarnation = Incarnation(1);
/// The wall time at virtual time 0, in microseconds since 1970.
const EPOCH: u64 = 1_790_000_000_000_000;
/// How often it is looked whether sampled writes are visible, in nanoseconds.
const LOOK_EVERY: u64 = 500_000;
/// Of so many transactions that a region sends to others, one is sampled.
const SAMPLED: u64 = 40;
const MILLI: u64 = 1_000_000;
/// How long partitions retain snapshots for a silent coordinator.
const LEASE: Duration = Duration::from_millis(500);
/// Nothing is lost here, so a repeated request is late only.
const PATIENCE: Duration = Duration::from_secs(20);

/// What is run.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// How many regions, in the order of the thesis.
    pub regions: u16,
    /// How many partitions there are.
    pub partitions: u16,
    /// How many of the regions keep each: all of them in Wren's experiments.
    pub replicas: u16,
    /// Clients beside each machine.
    pub clients: usize,
    /// How long they pause between a reply and the next command, in milliseconds.
    pub think: u64,
    /// What they run.
    pub load: Load,
    /// What machines are busy with.
    pub costs: Costs,
    /// Wall clocks are off by this at most, in microseconds.
    pub skew: u64,
    /// How long is measured, in milliseconds.
    pub measured: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

enum Event<S: Times> {
    Deliver { to: Address, from: NodeId, packet: Packet<Node<S>>, bytes: u64 },
    Wake { machine: usize, coordinator: bool },
    Reply { client: usize, reply: ReplyBuf },
    Begin { client: usize },
    Ask { client: usize },
    KeysetRead,
}

struct Machine<S: Times> {
    region: RegionId,
    /// The replica of the partition, then the coordinator.
    nodes: [Replica<Node<S>>; 2],
    wake_at: [u64; 2],
    random: Rng,
    skew: i64,
    busy_until: u64,
    busy: u64,
}

/// A client under way.
struct Client {
    machine: usize,
    planned: PlannedStep,
    /// How many requests of the transaction, or commands, have been sent.
    sent: u16,
    began: u64,
    random: Rng,
}

/// See the module. Times are in nanoseconds.
pub(crate) struct World<'s, S: Times> {
    setup: &'s Setup,
    topology: Topology,
    keys: KeySpace,
    now: u64,
    agenda: Agenda<Event<S>>,
    machines: Vec<Machine<S>>,
    clients: Vec<Client>,
    requests: u64,
    replicated: u64,
    tally: Tally,
    samples: Vec<Sample<S>>,
    freshness: Freshness,
}

fn topology(setup: &Setup) -> Topology {
    let mut process = 0;
    let regions = (0..setup.regions).map(|region| {
        let holds = |partition: &u16| {
            (region + setup.regions - partition % setup.regions) % setup.regions < setup.replicas
        };
        let held = (0..setup.partitions).filter(holds).map(|partition| {
            let replica = Address {
                process: ProcessId(process),
                slot: Slot::replica(KEYSPACE, PartitionId(partition)),
            };
            process += 1;
            (partition, replica)
        });
        RegionTopology { name: REGIONS[usize::from(region)].to_owned(), partitions: held.collect() }
    });
    Topology { regions: regions.collect(), keyspace: KEYSPACE, seed: HashSeed(setup.seed) }
}

impl<'s, S: Times> World<'s, S> {
    /// Where reads wait, they wait for the next application if `applied`.
    pub fn new(setup: &'s Setup, applied: bool) -> Self {
        let topology = topology(setup);
        let keys = KeySpace::new(&topology, topology.seed, setup.load);
        let mut world = World {
            setup,
            keys,
            now: 0,
            agenda: Agenda::default(),
            machines: Vec::new(),
            clients: Vec::new(),
            requests: 0,
            replicated: 0,
            tally: Tally::default(),
            samples: Vec::new(),
            freshness: Freshness::default(),
            topology,
        };
        let mut random = Rng::with_seed(setup.seed);
        for region in (0..setup.regions).map(RegionId) {
            let held: Vec<(u16, Address)> = world.topology.held(region).collect();
            held.into_iter().for_each(|(partition, address)| {
                world.start(region, partition, address, applied, &mut random);
            });
        }
        // They greet one another.
        for machine in 0..world.machines.len() {
            for which in 0..2 {
                world.step(machine, which, 0, |replica, now, random, sink| {
                    replica.step(now, &mut vec![Input::Recovered { complete: true }], random, sink);
                });
            }
            for _ in 0..setup.clients {
                let planned = PlannedStep { kind: "", reads: Vec::new(), writes: Vec::new() };
                let random = random.fork();
                world.clients.push(Client { machine, planned, sent: 0, began: 0, random });
            }
        }
        world
    }

    fn start(
        &mut self,
        region: RegionId,
        partition: u16,
        address: Address,
        applied_reads: bool,
        random: &mut Rng,
    ) {
        let options = Options {
            durability: Durability::Written,
            scope: Scope::Session,
            retry_after: PATIENCE,
            give_up_after: 2 * PATIENCE,
            doubt_after: 2 * PATIENCE,
            suspect_after: PATIENCE,
            // So that what nobody reads is forgotten within a run.
            lease: LEASE,
            applied_reads,
            ..Options::default()
        };
        let replica = Node::partition(self.topology.clone(), region, partition, options);
        let process = address.process;
        let coordinator = Node::coordinator(self.topology.clone(), region, process, LIFE, options);
        let slot = Slot::coordinator(KEYSPACE);
        let skew = self.setup.skew as i64;
        self.machines.push(Machine {
            region,
            nodes: [
                Replica::new(address.at(LIFE), replica),
                Replica::new(Address { process, slot }.at(LIFE), coordinator),
            ],
            wake_at: [u64::MAX; 2],
            skew: random.i64(-skew..=skew),
            random: random.fork(),
            busy_until: 0,
            busy: 0,
        });
    }

    fn wall(&self, machine: usize, at: u64) -> WallTime {
        WallTime((EPOCH + at / 1000).saturating_add_signed(self.machines[machine].skew))
    }

    /// A machine reacts to something that has come, once it is done with what came before; `cost` for receiving it.
    fn step(
        &mut self,
        index: usize,
        which: usize,
        cost: u64,
        react: impl FnOnce(&mut Replica<Node<S>>, Now, &mut Rng, &mut Answers),
    ) {
        let begin = self.now.max(self.machines[index].busy_until);
        let now = Now { wall: self.wall(index, begin), instant: Instant(begin / 1000) };
        let machine = &mut self.machines[index];
        let (node, mut sink) = (&mut machine.nodes[which], Answers::default());
        react(node, now, &mut machine.random, &mut sink);
        let records = count_records(node.records());
        node.appended(1);
        node.logged(1);
        node.release(now.instant, Durable { written: u64::MAX, synced: u64::MAX });
        let (from, deadline) = (node.node(), node.deadline());
        let packets: Vec<(Address, Packet<Node<S>>, u64)> =
            node.packets().map(|(to, packet)| sized(to, packet)).collect();
        let costs = self.setup.costs;
        let sent: u64 = packets.iter().map(|(to, _, bytes)| self.cost_of(index, *to, *bytes)).sum();
        let took = cost + sent + costs.record * records;
        let done = begin + took;
        let measured = self.tally.is_measured(self.now);
        let machine = &mut self.machines[index];
        if self.setup.load.is_commands()
            && let Some(partition) = machine.nodes[which].protocol().as_partition()
        {
            let of = (partition, machine.region);
            packets.iter().for_each(|(_, packet, _)| self.freshness.leaves(index, packet, of, measured));
        }
        machine.busy_until = done;
        machine.busy += if measured { took } else { 0 };
        if let Some(at) = deadline.map(|at| (at.0 * 1000).max(done))
            && at < machine.wake_at[which]
        {
            machine.wake_at[which] = at;
            self.agenda.schedule(at, Event::Wake { machine: index, coordinator: which == 1 });
        }
        for (to, packet, bytes) in packets {
            self.send(index, done, from, to, packet, bytes);
        }
        for (id, reply) in sink.0 {
            let client = (id.0 % self.clients.len() as u64) as usize;
            self.agenda.schedule(done, Event::Reply { client, reply });
        }
    }

    fn cost_of(&self, machine: usize, peer: Address, bytes: u64) -> u64 {
        let costs = self.setup.costs;
        match usize::from(peer.process.0) == machine {
            true => costs.local_message,
            false => costs.message + costs.byte * bytes,
        }
    }

    fn send(
        &mut self,
        index: usize,
        done: u64,
        from: NodeId,
        to: Address,
        packet: Packet<Node<S>>,
        bytes: u64,
    ) {
        let there = usize::from(to.process.0);
        let (from_region, to_region) = (self.machines[index].region, self.machines[there].region);
        if let Packet::Frame(Frame::Data { message, .. }) = &packet
            && let Ok(Message::<S>::Replicate { origin, id, at, depends_on, .. }) =
                Message::decode(&mut Reader::new(message))
        {
            self.replicated += 1;
            let is_sampled = self.replicated.is_multiple_of(SAMPLED) && !self.setup.load.is_commands();
            if self.tally.is_measured(self.now) && is_sampled {
                let stamp = Stamp { at, transaction: id, region: origin, depends_on };
                let partition = to.slot.partition.map_or(0, |partition| partition.0);
                self.samples.push(Sample { stamp, partition, to: to_region, local: false });
                self.samples.push(Sample { stamp, partition, to: origin, local: true });
            }
            self.tally.sent(self.now, from_region != to_region, true, bytes);
        } else if is_stabilization(&packet) {
            self.tally.sent(self.now, from_region != to_region, false, bytes);
        }
        let takes = delay(from_region.0, to_region.0, index == there) * 1000;
        self.agenda.schedule(done + takes, Event::Deliver { to, from, packet, bytes });
    }

    fn on_event(&mut self, event: Event<S>) {
        match event {
            Event::Deliver { to, from, packet, bytes } => {
                let (machine, which) = (usize::from(to.process.0), usize::from(to.slot.partition.is_none()));
                let cost = self.cost_of(machine, from.address(), bytes);
                if self.setup.load.is_commands() {
                    self.freshness.arrives(machine, &packet);
                }
                self.step(machine, which, cost, |replica, now, random, sink| {
                    let outcome = replica.receive(now, from, packet, random, sink);
                    debug_assert!(outcome.is_ok(), "our own packets are well formed");
                });
            }
            Event::Wake { machine, coordinator } => {
                let which = usize::from(coordinator);
                self.machines[machine].wake_at[which] = u64::MAX;
                self.step(machine, which, 0, |replica, now, random, sink| replica.fire(now, random, sink));
            }
            Event::Begin { client } => self.begin(client),
            Event::Ask { client } => self.ask(client),
            Event::Reply { client, reply } => self.on_reply(client, &reply),
            Event::KeysetRead => {
                self.look();
                self.agenda.schedule(self.now + LOOK_EVERY, Event::KeysetRead);
            }
        }
    }

    fn begin(&mut self, client: usize) {
        let asking = &mut self.clients[client];
        let region = self.machines[asking.machine].region;
        asking.planned = self.keys.draw(region, &mut asking.random);
        (asking.sent, asking.began) = (0, self.now);
        if let Some(coordinator) = self.machines[asking.machine].nodes[1].protocol().as_coordinator() {
            let shown = coordinator.stable().begin(region, self.clock()).whole().wall().0;
            let age = (EPOCH + self.now / 1000).saturating_sub(shown);
            self.tally.aged(self.now, age);
        }
        self.ask(client);
    }

    /// A client begins anywhere among its commands, so that not all clients write at the same time.
    fn under_way(&mut self, client: usize) -> Event<S> {
        let asking = &mut self.clients[client];
        asking.planned = self.keys.draw(self.machines[asking.machine].region, &mut asking.random);
        let PlannedStep { reads, writes, .. } = &asking.planned;
        let commands = match self.setup.load {
            Load::ReadOnly(_) => 2,
            Load::Gets(_) | Load::Transactions(_) => (reads.len() + writes.len()) as u16,
        };
        asking.sent = asking.random.u16(..commands);
        Event::Ask { client }
    }

    fn clock(&self) -> Timestamp {
        Timestamp::from_wall(WallTime(EPOCH + self.now / 1000))
    }

    fn ask(&mut self, client: usize) {
        self.requests += 1;
        let id = RequestId(self.requests * self.clients.len() as u64 + client as u64);
        let (session, seed) = (SessionId(client as u64 + 1), self.topology.seed);
        let asking = &mut self.clients[client];
        asking.sent += 1;
        if self.setup.load.is_commands() {
            asking.began = self.now;
        }
        let machine = asking.machine;
        let Some(call) = self.setup.load.request(&asking.planned, asking.sent) else { return };
        // No two writes have the same value.
        let value = id.0.to_be_bytes();
        let get = register::Operation::Get;
        let set = register::Operation::Set {
            value: &value,
            deadline: register::Deadline::Clear,
            condition: register::Condition::Always,
            reply: register::SetReply::Status,
        };
        let (numbers, operation): (&[u32], _) = match &call {
            ClientCall::Read(keys) | ClientCall::ReadOnly(keys) => (keys, get),
            ClientCall::Write(keys) => (keys, set),
            ClientCall::Get(key) => (std::slice::from_ref(key), get),
            ClientCall::Set(key) => (std::slice::from_ref(key), set),
            ClientCall::Begin | ClientCall::Commit => (&[], get),
        };
        let names: Vec<Name> = numbers.iter().map(|number| name(*number)).collect();
        let keyed = |name| KeyedOperation {
            key: name,
            hash: seed.hash(name),
            operation: Operation::Register(operation.clone()),
            blind: false,
        };
        let request = |steps| match call {
            ClientCall::Begin => Request::Begin { session, read_only: false, watched: false },
            ClientCall::Read(_) | ClientCall::Write(_) => Request::Operate { session, steps },
            ClientCall::Commit => Request::Commit { session },
            ClientCall::Get(_) | ClientCall::ReadOnly(_) | ClientCall::Set(_) => {
                Request::Many { session, steps, watched: false, multi: false }
            }
        };
        let steps: Vec<Step<'_>> = names.iter().map(|name| Step::Key(keyed(name.as_slice()))).collect();
        let request = request(&steps);
        self.step(machine, 1, self.setup.costs.request, |replica, now, random, sink| {
            replica.step(now, &mut vec![Input::Request { id, request }], random, sink);
        });
    }

    fn on_reply(&mut self, client: usize, reply: &ReplyBuf) {
        if reply.as_error().is_some() {
            self.tally.failed(self.now);
            return self.agenda.schedule(self.now + MILLI, Event::Begin { client });
        }
        let Client { planned, sent, began, .. } = &self.clients[client];
        let (sent, began, load) = (*sent, *began, self.setup.load);
        let goes_on = load.request(planned, sent + 1).is_some();
        if load.is_commands() {
            self.tally.committed(self.now, began);
            if goes_on {
                // All but the last one read.
                self.tally.read(self.now, began);
            }
            let next = if goes_on { Event::Ask { client } } else { Event::Begin { client } };
            return self.agenda.schedule(self.now + self.setup.think * MILLI, next);
        }
        if goes_on {
            return self.ask(client);
        }
        self.tally.committed(self.now, began);
        self.begin(client);
    }

    /// Notes which of the sampled writes have become visible.
    fn look(&mut self) {
        let samples = std::mem::take(&mut self.samples);
        for sample in samples {
            match self.is_visible(&sample) {
                true => {
                    let committed = sample.stamp.at.wall().0;
                    let age = (EPOCH + self.now / 1000).saturating_sub(committed);
                    self.tally.visible(sample.local, age);
                }
                false => self.samples.push(sample),
            }
        }
    }

    /// True once a transaction that begins in the region is shown it without waiting for longer than for its clock.
    fn is_visible(&self, sample: &Sample<S>) -> bool {
        let Some(replica) = self.topology.holders(sample.partition).find(|(region, _)| *region == sample.to)
        else {
            return false;
        };
        let machine = &self.machines[usize::from(replica.1.process.0)];
        let (Some(partition), Some(coordinator)) =
            (machine.nodes[0].protocol().as_partition(), machine.nodes[1].protocol().as_coordinator())
        else {
            return false;
        };
        let snapshot = coordinator.stable().begin(sample.to, self.clock().next());
        let origin = self.topology.regions[usize::from(sample.stamp.region.0)].name.as_str();
        let received = || partition.received_of_regions();
        let is_here = sample.local || received().any(|(from, at)| from == origin && at >= sample.stamp.at);
        let of_all = received().map(|(_, at)| at).min().unwrap_or(Timestamp::MAX);
        let waits = snapshot.needed(sample.to) > Timestamp::ZERO;
        let is_installed = !waits || S::installed(Timestamp::MAX, of_all) >= sample.stamp.at;
        is_here && is_installed && snapshot.shows(&sample.stamp, sample.to)
    }

    fn run_until(&mut self, end: u64) {
        while let Some((at, event)) = self.agenda.next(end) {
            self.now = at;
            self.on_event(event);
        }
        self.now = end;
    }

    fn waits(&self) -> (u64, u64, u64) {
        let all = self.machines.iter().filter_map(|machine| machine.nodes[0].protocol().as_partition());
        all.map(|partition| partition.waits()).fold((0, 0, 0), |(reads, waited, micros), waits| {
            (reads + waits.reads, waited + waits.waited, micros + waits.micros)
        })
    }

    /// Lets stable times rise and clients warm up, and measures.
    pub fn run(mut self) -> Tally {
        let first = 800 * MILLI;
        self.run_until(first);
        let is_commands = self.setup.load.is_commands();
        for client in 0..self.clients.len() {
            // Not all at once.
            let within = self.setup.think.max(10) * MILLI;
            let at = self.now + self.clients[client].random.u64(..within);
            let event = if is_commands { self.under_way(client) } else { Event::Begin { client } };
            self.agenda.schedule(at, event);
        }
        let warm = first + if is_commands { 200 } else { 400 } * MILLI;
        let end = warm + self.setup.measured * MILLI;
        self.tally.measure(warm, end);
        if !is_commands {
            self.agenda.schedule(warm, Event::KeysetRead);
        }
        self.run_until(warm);
        let before = self.waits();
        self.run_until(end);
        let after = self.waits();
        self.tally.items = self.freshness.items;
        self.tally.waits = (after.0 - before.0, after.1 - before.1, after.2 - before.2);
        self.tally.busy = self.machines.iter().map(|machine| machine.busy).sum();
        self.tally.busiest = self.machines.iter().map(|machine| machine.busy).max().unwrap_or(0);
        self.tally
    }
}

/// A packet with its length in bytes.
fn sized<S: Times>(to: Address, packet: Packet<Node<S>>) -> (Address, Packet<Node<S>>, u64) {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    (to, packet, bytes.len() as u64)
}

/// True for what tells of time alone: heartbeats, reports, stable times and acknowledgements.
fn is_stabilization<S: Times>(packet: &Packet<Node<S>>) -> bool {
    match packet {
        Packet::Frame(_) => true,
        Packet::Datagram(message) => {
            matches!(message, Message::StartTx { .. } | Message::StartTxResp { .. })
        }
    }
}

/// How many records these bytes hold, each behind its length.
pub(crate) fn count_records(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        bytes = rest.get(u32::from_le_bytes(*len) as usize..).unwrap_or_default();
        count += 1;
    }
    count
}
