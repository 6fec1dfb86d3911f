//! Virtual time: machines that do one thing at a time, and a network that only delays.
//!
//! Events are in the order of their times, then of their scheduling. A machine takes what comes in the order of arrival;
//! what it brings about leaves when the machine is done with it. One step at a time: a machine that is behind does not
//! put messages together.

use crate::agenda::Agenda;
use crate::client::{Client, Load, key_name};
use crate::environment::{Cost, Environment};
use crate::measure::Tally;
use crate::system::{Deployed, LIFE, Place};
use protocol::{Durable, Input, Now, Packet, Replica, Replies};
use strict::Topology;
use types::{
    Address, HashSeed, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, ReplyBuf, ReplySink, RequestId,
    Rng, Slot, WallTime,
};

pub(crate) const KEYSPACE: KeyspaceId = KeyspaceId(1);
/// The wall time at virtual time 0, in microseconds since 1970.
pub(crate) const EPOCH: u64 = 1_790_000_000_000_000;
/// Copies of a shard.
pub(crate) const REPLICAS: usize = 3;

/// What is run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The network.
    pub environment: Environment,
    /// What machines are busy with.
    pub cost: Cost,
    /// How many shards; each of its replicas has a machine of its own.
    pub shards: u16,
    /// How many clients; each has a machine of its own.
    pub clients: usize,
    /// The regions that the clients stand in, in turn.
    pub client_regions: Vec<usize>,
    /// What they run.
    pub load: Load,
    /// How long is measured, in microseconds.
    pub measured: u64,
    /// Decides everything that is drawn.
    pub seed: u64,
}

enum Event<P: protocol::Protocol> {
    Deliver {
        to: usize,
        from: NodeId,
        packet: Packet<P>,
        hops: Option<u32>,
    },
    Wake {
        machine: usize,
    },
    /// A client begins its next transaction, or its last one again.
    Begin {
        client: usize,
        again: bool,
    },
    Reply {
        client: usize,
        reply: ReplyBuf,
        hops: Option<u32>,
    },
}

/// A machine with one instance of the protocol.
struct Machine<P: protocol::Protocol> {
    replica: Replica<P>,
    region: usize,
    random: Rng,
    skew: i64,
    busy_until: u64,
    /// What it was busy with while it was measured.
    busy: u64,
    wake_at: u64,
    /// Far messages before the last input that a request caused; of client machines only.
    hops: Option<u32>,
}

#[derive(Default)]
struct Sink(Option<ReplyBuf>);

impl Replies for Sink {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        self.0.get_or_insert_default()
    }
}

/// See the module.
pub(crate) struct World<'s, D: Deployed> {
    setup: &'s Setup,
    deployed: D,
    topology: Topology,
    now: u64,
    agenda: Agenda<Event<D::Protocol>>,
    machines: Vec<Machine<D::Protocol>>,
    clients: Vec<Client>,
    requests: u64,
    tally: Tally,
}

pub(crate) fn topology(shards: u16, seed: HashSeed) -> Topology {
    let replica = |shard: u16, member: usize| Address {
        process: ProcessId(shard * REPLICAS as u16 + member as u16),
        slot: Slot::replica(KEYSPACE, PartitionId(shard)),
    };
    let shard = |shard| (0..REPLICAS).map(|member| replica(shard, member)).collect();
    Topology {
        shards: (0..shards).map(shard).collect(),
        epochs: Default::default(),
        keyspace: KEYSPACE,
        seed,
    }
}

impl<'s, D: Deployed> World<'s, D> {
    pub fn new(setup: &'s Setup, deployed: D) -> Self {
        let topology = topology(setup.shards, HashSeed(setup.seed));
        let mut world = World {
            setup,
            deployed,
            topology,
            now: 0,
            agenda: Agenda::default(),
            machines: Vec::new(),
            clients: Vec::new(),
            requests: 0,
            tally: Tally::default(),
        };
        let mut random = Rng::with_seed(setup.seed);
        let server = usize::from(setup.shards) * REPLICAS + setup.clients;
        let server = world.topology.coordinator(ProcessId(server as u16));
        let clock = world.deployed.has_clock().then_some(server);
        for shard in 0..setup.shards {
            for member in 0..REPLICAS {
                let environment = &setup.environment;
                let place = Place { topology: &world.topology, environment, near: member, clock };
                let node = world.deployed.replica(&place, shard, member);
                let address = world.topology.replicas(shard)[member];
                world.start(address, node, member % environment.regions.len(), &mut random);
            }
        }
        for client in 0..setup.clients {
            let environment = &setup.environment;
            let region = setup.client_regions[client % setup.client_regions.len()];
            // In one region clients are spread over the replicas; in several the one in their own is close.
            let near = if environment.regions.len() == 1 { client % REPLICAS } else { region };
            let process = ProcessId((world.machines.len()) as u16);
            let place = Place { topology: &world.topology, environment, near, clock };
            let node = world.deployed.coordinator(&place, process);
            world.start(world.topology.coordinator(process), node, region, &mut random);
            world.clients.push(Client::new(client as u64 + 1, random.fork()));
        }
        if let Some(server) = clock {
            let place =
                Place { topology: &world.topology, environment: &setup.environment, near: 0, clock: None };
            let node = world.deployed.coordinator(&place, server.process);
            world.start(server, node, 0, &mut random);
        }
        world
    }

    fn start(&mut self, address: Address, node: D::Protocol, region: usize, random: &mut Rng) {
        let skew = self.setup.environment.skew as i64;
        let skew = random.i64(-skew..=skew);
        self.machines.push(Machine {
            replica: Replica::new(address.at(LIFE), node),
            region,
            random: random.fork(),
            skew,
            busy_until: 0,
            busy: 0,
            wake_at: u64::MAX,
            hops: None,
        });
        self.step(self.machines.len() - 1, 0, None, |replica, now, random, sink| {
            replica.step(now, &mut vec![Input::Recovered { complete: true }], random, sink);
        });
    }

    /// A machine reacts to something that has come, once it is done with what came before; `messages` were received.
    fn step(
        &mut self,
        index: usize,
        messages: u64,
        hops: Option<u32>,
        react: impl FnOnce(&mut Replica<D::Protocol>, Now, &mut Rng, &mut Sink),
    ) {
        let machine = &mut self.machines[index];
        let begin = self.now.max(machine.busy_until);
        let wall = WallTime((EPOCH + begin).saturating_add_signed(machine.skew));
        let now = Now { wall, instant: Instant(begin) };
        let mut sink = Sink::default();
        react(&mut machine.replica, now, &mut machine.random, &mut sink);
        let records = count_records(machine.replica.records());
        machine.replica.appended(1);
        machine.replica.release(now.instant, Durable { written: u64::MAX, synced: u64::MAX });
        let from = machine.replica.node();
        let packets: Vec<_> = machine.replica.packets().collect();
        let Cost { message, record } = self.setup.cost;
        let took = message * (messages + packets.len() as u64) + record * records;
        machine.busy_until = begin + took;
        let (done, region, deadline) = (machine.busy_until, machine.region, machine.replica.deadline());
        if self.tally.is_measured(self.now) {
            machine.busy += took;
            self.tally.records += records;
            self.tally.messages += if hops.is_some() { packets.len() as u64 } else { 0 };
        }
        if let Some(at) = deadline.map(|at| at.0.max(done))
            && at < machine.wake_at
        {
            machine.wake_at = at;
            self.agenda.schedule(at, Event::Wake { machine: index });
        }
        for (to, packet) in packets {
            let to = usize::from(to.process.0);
            let there = self.machines[to].region;
            let far = u32::from(self.setup.environment.is_far(region, there));
            let at = done + self.setup.environment.delay(region, there);
            let hops = hops.map(|hops| hops + far);
            self.agenda.schedule(at, Event::Deliver { to, from, packet, hops });
        }
        if let (Some(reply), Some(client)) = (sink.0, index.checked_sub(self.replicas())) {
            self.agenda.schedule(done, Event::Reply { client, reply, hops });
        }
    }

    fn replicas(&self) -> usize {
        usize::from(self.setup.shards) * REPLICAS
    }

    fn on_event(&mut self, event: Event<D::Protocol>) {
        match event {
            Event::Deliver { to, from, packet, hops } => {
                if to >= self.replicas() {
                    self.machines[to].hops = hops;
                }
                self.step(to, 1, hops, |replica, now, random, sink| {
                    let outcome = replica.receive(now, from, packet, random, sink);
                    debug_assert!(outcome.is_ok(), "our own packets are well formed");
                });
            }
            Event::Wake { machine } => {
                self.machines[machine].wake_at = u64::MAX;
                let hops = self.machines[machine].hops;
                self.step(machine, 0, hops, |replica, now, random, sink| replica.fire(now, random, sink));
            }
            Event::Begin { client, again: false } => self.begin(client),
            Event::Begin { client, again: true } => {
                self.clients[client].restart();
                self.ask(client);
            }
            Event::Reply { client, reply, hops } => self.on_reply(client, &reply, hops),
        }
    }

    fn begin(&mut self, client: usize) {
        let topology = &self.topology;
        let shard_of = |key| topology.shard_of(&key_name(key));
        self.clients[client].plan(self.now, &self.setup.load, &shard_of);
        self.ask(client);
    }

    fn ask(&mut self, client: usize) {
        self.requests += 1;
        let (id, seed) = (RequestId(self.requests), self.topology.seed);
        let machine = self.replicas() + client;
        let hops = Some(self.clients[client].hops);
        self.machines[machine].hops = hops;
        // No step looks at clients: their replies are events.
        let mut clients = std::mem::take(&mut self.clients);
        clients[client].ask(seed, |request| {
            self.step(machine, 0, hops, |replica, now, random, sink| {
                replica.step(now, &mut vec![Input::Request { id, request }], random, sink);
            });
        });
        self.clients = clients;
    }

    fn on_reply(&mut self, client: usize, reply: &ReplyBuf, hops: Option<u32>) {
        let now = self.now;
        let asking = &mut self.clients[client];
        asking.hops = asking.hops.max(hops.unwrap_or(0));
        if reply.as_error().is_some() {
            self.tally.aborted(now);
            let wait = asking.backoff(self.setup.environment.longest_round_trip());
            return self.agenda.schedule(now + wait, Event::Begin { client, again: true });
        }
        if !asking.is_committing() {
            return self.ask(client);
        }
        self.tally.committed(now, asking);
        self.begin(client);
    }

    fn run_until(&mut self, end: u64) {
        while let Some((at, event)) = self.agenda.next(end) {
            self.now = at;
            self.on_event(event);
        }
        self.now = end;
    }

    /// True once every shard that needs a leader has it where it is expected.
    fn is_ready(&self) -> bool {
        let replicas = self.machines.iter().take(self.replicas()).enumerate();
        replicas
            .into_iter()
            .all(|(index, machine)| self.deployed.is_ready(machine.replica.protocol(), index % REPLICAS))
    }

    /// Elects leaders, lets the clients warm up, and measures.
    pub fn run(mut self) -> Tally {
        let second = 1_000_000;
        while !self.is_ready() && self.now < 60 * second {
            self.run_until(self.now + second / 10);
        }
        let warm = self.now + (20 * self.setup.environment.longest_round_trip()).max(second / 2);
        self.tally.measure(warm, warm + self.setup.measured);
        for client in 0..self.clients.len() {
            // Not all at once.
            let at = self.now + self.clients[client].backoff(self.setup.environment.longest_round_trip());
            self.agenda.schedule(at, Event::Begin { client, again: false });
        }
        self.run_until(warm + self.setup.measured);
        let busiest = self.machines.iter().take(self.replicas()).map(|machine| machine.busy).max();
        self.tally.busiest = busiest.unwrap_or(0);
        self.tally
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
