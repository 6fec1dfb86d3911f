//! Virtual time for COPS's evaluation (its section 6): two regions of servers, and clients beside the servers of the first one.
//!
//! A server has a partition. A client machine has a coordinator, which is the paper's client library, and clients, each a causal
//! thread of its own. Some threads take turns at them, each an operation of the next client, without pauses: so the delay between two
//! operations of a client grows with their number. There are as many machines of clients as of servers, as in the paper; what they do
//! takes no time, so that servers are what ends throughput.

use super::measure::Tally;
use super::{Setup, System};
use crate::agenda::{Agenda, Answers};
use crate::tcc::{SKEW, count_records, delay};
use bench::cops::{Drawn, Plan};
use causal::cops::{Message, Node, Options, Partition, RegionTopology, Topology};
use datatypes::{Operation, register};
use protocol::{Durability, Durable};
use protocol::{Frame, Input, KeyedOperation, Now, Packet, Replica, Request, Step};
use std::time::Duration;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RegionId,
    ReplyBuf, RequestId, Rng, SessionId, Slot, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const LIFE: Incarnation = Incarnation(1);
/// The wall time at virtual time 0, in microseconds since 1970.
const EPOCH: u64 = 1_790_000_000_000_000;
const MILLI: u64 = 1_000_000;
/// The region with the clients, and the other one.
const REGIONS: [&str; 2] = ["virginia", "oregon"];
const THERE: u16 = 1;
/// How many threads of a client machine have an operation under way: enough to keep a server busy.
const THREADS: usize = 64;
/// For how long COPS-GT keeps what get transactions may ask for: the paper's `trans_time`, there 5 s.
pub(super) const LEASE: Duration = Duration::from_millis(300);
/// Nothing is lost here, so a repeated request is late only.
const PATIENCE: Duration = Duration::from_secs(20);
/// When clients begin.
const BEGIN: u64 = 200 * MILLI;
/// How long after that measuring begins: then what every region has is collected. COPS-GT does so after the lease.
const WARM: u64 = 250 * MILLI;

enum Event {
    Deliver { to: usize, from: NodeId, packet: Packet<Node>, bytes: u64 },
    Wake { machine: usize },
    Reply { thread: usize, reply: ReplyBuf },
    Ask { thread: usize },
}

struct Machine {
    region: u16,
    replica: Replica<Node>,
    is_server: bool,
    wake_at: u64,
    random: Rng,
    skew: i64,
    busy_until: u64,
    busy: u64,
}

/// A thread of a client machine.
struct Thread {
    machine: usize,
    /// The first of the machine's clients, and the one whose turn it is.
    first: usize,
    turn: usize,
    is_put: bool,
    began: u64,
    random: Rng,
}

/// See the module. Times are in nanoseconds.
pub(super) struct World<'s> {
    setup: &'s Setup,
    plan: Plan,
    seed: HashSeed,
    /// When measuring begins.
    warm: u64,
    value: Vec<u8>,
    now: u64,
    agenda: Agenda<Event>,
    machines: Vec<Machine>,
    threads: Vec<Thread>,
    requests: u64,
    /// Writes that have arrived in the other region.
    arrived: u64,
    tally: Tally,
}

fn topology(partitions: u16, seed: HashSeed) -> Topology {
    let regions = (0..).zip(REGIONS).map(|(region, name)| {
        let held = (0..partitions).map(|partition| {
            let process = ProcessId(region * partitions + partition);
            (partition, Address { process, slot: Slot::replica(KEYSPACE, PartitionId(partition)) })
        });
        RegionTopology { name: name.to_owned(), partitions: held.collect() }
    });
    Topology { regions: regions.collect(), keyspace: KEYSPACE, seed }
}

fn options(system: System) -> Options {
    let usual = Options::default();
    let mut window = usual.window;
    // Values of 16 KiB are not to wait for it.
    window.bytes *= 16;
    Options {
        transactions: system == System::CopsGt,
        serialized: system == System::Log,
        durability: Durability::Written,
        retry_after: PATIENCE,
        give_up_after: 2 * PATIENCE,
        lease: LEASE,
        // What the other region cannot keep up with is seen by what it has written.
        queue_bytes: usize::MAX,
        window,
        ..usual
    }
}

impl<'s> World<'s> {
    pub fn new(system: System, setup: &'s Setup) -> Self {
        let groups = u32::from(setup.servers) * setup.clients as u32;
        let plan = Plan { groups, ..setup.plan };
        let seed = HashSeed(setup.seed);
        let mut world = World {
            setup,
            plan,
            seed,
            warm: BEGIN + WARM + if system == System::CopsGt { LEASE.as_nanos() as u64 } else { 0 },
            value: vec![b'.'; setup.value_bytes],
            now: 0,
            agenda: Agenda::default(),
            machines: Vec::new(),
            threads: Vec::new(),
            requests: 0,
            arrived: 0,
            tally: Tally::default(),
        };
        // A log is on one server, however many there are.
        let partitions = if system == System::Log { 1 } else { setup.servers };
        world.start_all(&topology(partitions, seed), options(system));
        // They greet one another.
        for machine in 0..world.machines.len() {
            world.step(machine, 0, |replica, now, random, sink| {
                replica.step(now, &mut vec![Input::Recovered { complete: true }], random, sink);
            });
        }
        world
    }

    fn start_all(&mut self, topology: &Topology, options: Options) {
        let mut random = Rng::with_seed(self.setup.seed);
        for region in (0..REGIONS.len() as u16).map(RegionId) {
            for (partition, address) in topology.held(region) {
                let node = Node::partition(topology.clone(), region, partition, options);
                self.start(region, address, node, true, &mut random);
            }
        }
        for number in 0..usize::from(self.setup.servers) {
            let first = number * self.setup.clients;
            let process = ProcessId(self.machines.len() as u16);
            let address = Address { process, slot: Slot::coordinator(KEYSPACE) };
            let node = Node::coordinator(topology.clone(), RegionId(0), process, LIFE, options);
            self.start(RegionId(0), address, node, false, &mut random);
            for turn in 0..self.setup.clients.min(THREADS) {
                let (machine, random) = (usize::from(process.0), random.fork());
                self.threads.push(Thread { machine, first, turn, is_put: false, began: 0, random });
            }
        }
    }

    fn start(&mut self, region: RegionId, address: Address, node: Node, is_server: bool, random: &mut Rng) {
        let skew = SKEW as i64;
        self.machines.push(Machine {
            region: region.0,
            replica: Replica::new(address.at(LIFE), node),
            is_server,
            wake_at: u64::MAX,
            skew: random.i64(-skew..=skew),
            random: random.fork(),
            busy_until: 0,
            busy: 0,
        });
    }

    /// A machine reacts to something that has come, once it is done with what came before; `cost` for receiving it.
    fn step(
        &mut self,
        index: usize,
        cost: u64,
        react: impl FnOnce(&mut Replica<Node>, Now, &mut Rng, &mut Answers),
    ) {
        let costs = self.setup.costs;
        let machine = &mut self.machines[index];
        let begin = self.now.max(machine.busy_until);
        let wall = WallTime((EPOCH + begin / 1000).saturating_add_signed(machine.skew));
        let now = Now { wall, instant: Instant(begin / 1000) };
        let mut sink = Answers::default();
        react(&mut machine.replica, now, &mut machine.random, &mut sink);
        let records = count_records(machine.replica.records());
        machine.replica.appended(1);
        machine.replica.release(now.instant, Durable { written: u64::MAX, synced: u64::MAX });
        let (from, deadline) = (machine.replica.node(), machine.replica.deadline());
        let packets: Vec<(Address, Packet<Node>, u64)> =
            machine.replica.packets().map(|(to, packet)| sized(to, packet)).collect();
        let sent: u64 = packets.iter().map(|(_, _, bytes)| costs.message + costs.byte * bytes).sum();
        let took = if machine.is_server { cost + sent + costs.record * records } else { 0 };
        let done = begin + took;
        machine.busy_until = done;
        machine.busy += if self.tally.is_measured(self.now) { took } else { 0 };
        if let Some(at) = deadline.map(|at| (at.0 * 1000).max(done))
            && at < machine.wake_at
        {
            machine.wake_at = at;
            self.agenda.schedule(at, Event::Wake { machine: index });
        }
        for (to, packet, bytes) in packets {
            self.send(index, done, from, to, packet, bytes);
        }
        for (id, reply) in sink.0 {
            let thread = (id.0 % self.threads.len() as u64) as usize;
            self.agenda.schedule(done, Event::Reply { thread, reply });
        }
    }

    fn send(&mut self, index: usize, done: u64, from: NodeId, to: Address, packet: Packet<Node>, bytes: u64) {
        let there = usize::from(to.process.0);
        let takes = delay(self.machines[index].region, self.machines[there].region, false) * 1000;
        self.agenda.schedule(done + takes, Event::Deliver { to: there, from, packet, bytes });
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Deliver { to, from, packet, bytes } => {
                self.count(to, &packet);
                let cost = self.setup.costs.message + self.setup.costs.byte * bytes;
                self.step(to, cost, |replica, now, random, sink| {
                    let outcome = replica.receive(now, from, packet, random, sink);
                    debug_assert!(outcome.is_ok(), "our own packets are well formed");
                });
            }
            Event::Wake { machine } => {
                self.machines[machine].wake_at = u64::MAX;
                self.step(machine, 0, |replica, now, random, sink| replica.fire(now, random, sink));
            }
            Event::Ask { thread } => self.ask(thread),
            Event::Reply { thread, reply } => self.on_reply(thread, &reply),
        }
    }

    /// What is counted of messages that arrive.
    fn count(&mut self, to: usize, packet: &Packet<Node>) {
        let is_measured = self.tally.is_measured(self.now);
        match packet {
            Packet::Datagram(Message::PutAfter { nearest, all, .. }) if is_measured => {
                self.tally.put(nearest.len(), all.len());
            }
            Packet::Datagram(Message::DepCheck { .. }) if is_measured => self.tally.checks += 1,
            Packet::Frame(Frame::Data { message, .. }) if self.machines[to].region == THERE => {
                let message = Message::decode(&mut Reader::new(message));
                self.arrived += u64::from(matches!(message, Ok(Message::Replicate { .. })));
            }
            _ => {}
        }
    }

    fn ask(&mut self, thread: usize) {
        self.requests += 1;
        let id = RequestId(self.requests * self.threads.len() as u64 + thread as u64);
        let asking = &mut self.threads[thread];
        let client = asking.first + asking.turn;
        let next = asking.turn + THREADS;
        asking.turn = if next < self.setup.clients { next } else { asking.turn % THREADS };
        let Drawn { key, is_put } = self.plan.draw(client as u32, &mut asking.random);
        (asking.is_put, asking.began) = (is_put, self.now);
        let (machine, session) = (asking.machine, SessionId(client as u64 + 1));
        let (name, value) = (key.to_be_bytes(), std::mem::take(&mut self.value));
        let operation = match is_put {
            false => register::Operation::Get,
            true => register::Operation::Set {
                value: &value,
                deadline: register::Deadline::Clear,
                condition: register::Condition::Always,
                reply: register::SetReply::Status,
            },
        };
        let (key, hash, operation) = (&name[..], self.seed.hash(&name), Operation::Register(operation));
        let steps = [Step::Key(KeyedOperation { key, hash, operation, blind: false })];
        let request = Request::Many { session, steps: &steps, watched: false, multi: false };
        self.step(machine, 0, |replica, now, random, sink| {
            replica.step(now, &mut vec![Input::Request { id, request }], random, sink);
        });
        self.value = value;
    }

    fn on_reply(&mut self, thread: usize, reply: &ReplyBuf) {
        let Thread { is_put, began, .. } = self.threads[thread];
        if reply.as_error().is_some() {
            self.tally.failed(self.now);
            return self.agenda.schedule(self.now + MILLI, Event::Ask { thread });
        }
        self.tally.done(self.now, began, is_put);
        self.ask(thread);
    }

    fn run_until(&mut self, end: u64) {
        while let Some((at, event)) = self.agenda.next(end) {
            self.now = at;
            self.on_event(event);
        }
        self.now = end;
    }

    /// How many writes the other region has written.
    fn written(&self) -> u64 {
        let there = self.machines.iter().filter(|machine| machine.region == THERE);
        let partitions = there.filter_map(|machine| machine.replica.protocol().as_partition());
        self.arrived - partitions.map(Partition::waiting).sum::<usize>() as u64
    }

    /// For which share of the time the busiest server of a region was busy.
    fn busiest(&self, region: u16) -> f64 {
        let of = self.machines.iter().filter(|machine| machine.region == region && machine.is_server);
        of.map(|machine| machine.busy).max().unwrap_or(0) as f64 / (self.setup.measured * MILLI) as f64
    }

    /// Lets clients warm up, and measures.
    pub fn run(mut self) -> Tally {
        self.run_until(BEGIN);
        for thread in 0..self.threads.len() {
            // Not all at once.
            let at = self.now + self.threads[thread].random.u64(..10 * MILLI);
            self.agenda.schedule(at, Event::Ask { thread });
        }
        let end = self.warm + self.setup.measured * MILLI;
        self.tally.measure(self.warm, end);
        self.run_until(self.warm);
        let before = self.written();
        self.run_until(end);
        self.tally.written = self.written() - before;
        self.tally.busiest = [self.busiest(0), self.busiest(THERE)];
        self.tally
    }
}

/// A packet with its length in bytes.
fn sized(to: Address, packet: Packet<Node>) -> (Address, Packet<Node>, u64) {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    (to, packet, bytes.len() as u64)
}
