//! Virtual time with gateways: machines that take together what has come while they were busy, as the servers do.

use super::gateway::{Keyspace, News, Station};
use super::measure::Tally;
use super::system::Counters;
use super::{COSTS, Costs, GATEWAYS, SHARDS, Setup};
use crate::agenda::Agenda;
use crate::system::{Deployed, LIFE, Place};
use crate::world::{EPOCH, KEYSPACE, REPLICAS, count_records, topology};
use bench::claret::{Batch, Command, Event, Form, Plan, Source};
use protocol::{Durable, Input, Now, Packet, Protocol, Replica, Replies};
use resp::Value;
use std::collections::{BTreeMap, VecDeque};
use strict::Topology;
use types::{HashSeed, Instant, NodeId, ProcessId, ReplyBuf, ReplySink, RequestId, Rng, WallTime};

/// Commands that a transaction of those has that fill the keyspace.
const LOADED_AT_ONCE: usize = 128;
/// Machines with replicas: those of gateways come after them.
const HOSTS: usize = SHARDS as usize * REPLICAS;

/// What travels as one: all that a step sends to one machine.
type Bundle<P> = Vec<(NodeId, Packet<P>)>;

enum Happening<P: Protocol> {
    Deliver {
        to: usize,
        bundle: Bundle<P>,
    },
    /// The machine is done with what it did, and something has come.
    Work {
        machine: usize,
    },
    Wake {
        machine: usize,
    },
    /// A client has rested.
    Retry {
        machine: usize,
        client: usize,
    },
}

struct Machine<P: Protocol> {
    replica: Replica<P>,
    random: Rng,
    skew: i64,
    inbox: VecDeque<Bundle<P>>,
    is_due: bool,
    busy_until: u64,
    busy: u64,
    wake_at: u64,
    /// Of gateways.
    station: Option<Station>,
}

/// Replicas answer nobody.
struct Nobody(ReplyBuf);

impl Replies for Nobody {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        &mut self.0
    }
}

/// Some of the commands that fill a keyspace.
struct Filling(Vec<Command>);

impl Plan for Filling {
    fn kind(&self) -> &'static str {
        "load"
    }

    fn step(&self, _: &[Vec<Value>]) -> Batch {
        Batch::last(self.0.clone())
    }
}

/// Where transactions come from.
struct Workload {
    source: Box<dyn Source>,
    /// What is yet to be loaded.
    filling: Vec<Vec<Command>>,
    is_filling: bool,
    /// Clients that have nothing to do any more.
    idle: usize,
}

impl Workload {
    fn next(&mut self, event: Option<Event>, random: &mut Rng) -> Option<Box<dyn Plan>> {
        if self.is_filling {
            let Some(commands) = self.filling.pop() else {
                self.idle += 1;
                return None;
            };
            return Some(Box::new(Filling(commands)));
        }
        if let Some(event) = event {
            self.source.learn(event, random);
        }
        Some(self.source.draw(random))
    }
}

/// See the module.
pub(super) struct World<'s, D: Deployed> {
    setup: &'s Setup,
    deployed: D,
    now: u64,
    agenda: Agenda<Happening<D::Protocol>>,
    machines: Vec<Machine<D::Protocol>>,
    workload: Workload,
    costs: Costs,
    tally: Tally,
}

impl<'s, D: Deployed> World<'s, D>
where
    D::Protocol: Counters,
{
    pub fn new(setup: &'s Setup, deployed: D) -> Self {
        let topology = topology(SHARDS, HashSeed(setup.seed));
        let source = setup.workload.source(setup.seed);
        let filling = filling(&*source);
        let mut world = World {
            setup,
            deployed,
            now: 0,
            agenda: Agenda::default(),
            machines: Vec::new(),
            workload: Workload { source, filling, is_filling: true, idle: 0 },
            costs: Costs::NOTHING,
            tally: Tally::default(),
        };
        let mut random = Rng::with_seed(setup.seed);
        for index in 0..HOSTS {
            let (shard, member) = ((index / REPLICAS) as u16, index % REPLICAS);
            let place =
                Place { topology: &topology, environment: &setup.environment, near: member, clock: None };
            let node = world.deployed.replica(&place, shard, member);
            let replica = Replica::new(topology.replicas(shard)[member].at(LIFE), node);
            world.start(replica, None, &mut random);
        }
        for gateway in 0..GATEWAYS {
            world.start_gateway(gateway, &topology, &mut random);
        }
        world
    }

    fn start_gateway(&mut self, gateway: usize, topology: &Topology, random: &mut Rng) {
        let process = ProcessId((HOSTS + gateway) as u16);
        let place =
            Place { topology, environment: &self.setup.environment, near: gateway % REPLICAS, clock: None };
        let node = self.deployed.coordinator(&place, process);
        let replica = Replica::new(topology.coordinator(process).at(LIFE), node);
        self.start(replica, Some(Station::new(topology.seed)), random);
        let has_transactions = !matches!(self.setup.workload, bench::claret::Workload::Unmodified(_));
        let form = match has_transactions && self.setup.system.has_transactions() {
            true => Form::AtOnce,
            false => Form::Single { interactive: false },
        };
        let now = self.clock(HOSTS + gateway, self.now);
        let Machine { replica, station, random: own, .. } = &mut self.machines[HOSTS + gateway];
        let Some(station) = station else { return };
        for number in (gateway..self.setup.clients).step_by(GATEWAYS) {
            let host = &mut Keyspace { id: KEYSPACE, replica, now, random: own };
            station.open(number as u64 + 1, form, random.fork(), host);
        }
    }

    fn start(&mut self, replica: Replica<D::Protocol>, station: Option<Station>, random: &mut Rng) {
        let skew = self.setup.environment.skew as i64;
        let skew = random.i64(-skew..=skew);
        self.machines.push(Machine {
            replica,
            random: random.fork(),
            skew,
            inbox: VecDeque::new(),
            is_due: false,
            busy_until: 0,
            busy: 0,
            wake_at: u64::MAX,
            station,
        });
        self.act(self.machines.len() - 1, 0, |replica, now, random, replies| {
            replica.step(now, &mut vec![Input::Recovered { complete: true }], random, replies);
        });
    }

    /// Where a machine stands: the replicas of a shard, and the gateways, take turns.
    fn region(&self, machine: usize) -> usize {
        machine % REPLICAS % self.setup.environment.regions.len()
    }

    fn clock(&self, machine: usize, at: u64) -> Now {
        let wall = WallTime((EPOCH + at).saturating_add_signed(self.machines[machine].skew));
        Now { wall, instant: Instant(at) }
    }

    /// A machine reacts; it has received for so long, in nanoseconds.
    fn act(
        &mut self,
        index: usize,
        received: u64,
        react: impl FnOnce(&mut Replica<D::Protocol>, Now, &mut Rng, &mut dyn Replies),
    ) {
        let begin = self.now.max(self.machines[index].busy_until);
        let now = self.clock(index, begin);
        let machine = &mut self.machines[index];
        let mut spent = received;
        match &mut machine.station {
            None => react(&mut machine.replica, now, &mut machine.random, &mut Nobody(ReplyBuf::new())),
            Some(station) => {
                react(&mut machine.replica, now, &mut machine.random, station.replies());
                let Machine { replica, random, .. } = machine;
                let host = &mut Keyspace { id: KEYSPACE, replica, now, random };
                let workload = &mut self.workload;
                let news = station.settle(host, |event, random| workload.next(event, random));
                spent += self.costs.packet * news.exchanged;
                self.note(index, begin, news);
            }
        }
        self.leave(index, begin, spent);
    }

    /// What clients have come to.
    fn note(&mut self, machine: usize, now: u64, news: News) {
        for (kind, began) in news.committed {
            self.tally.committed(kind, now, began);
        }
        self.tally.failed(now, news.failed);
        for (client, at) in news.resting {
            self.agenda.schedule(at, Happening::Retry { machine, client });
        }
    }

    /// What a step has brought about leaves when the machine is done with it.
    fn leave(&mut self, index: usize, begin: u64, mut spent: u64) {
        let machine = &mut self.machines[index];
        let records = count_records(machine.replica.records());
        machine.replica.appended(1);
        machine.replica.release(Instant(begin), Durable { written: u64::MAX, synced: u64::MAX });
        let from = machine.replica.node();
        let mut bundles: BTreeMap<usize, Bundle<D::Protocol>> = BTreeMap::new();
        for (to, packet) in machine.replica.packets() {
            bundles.entry(usize::from(to.process.0)).or_default().push((from, packet));
        }
        let messages: usize = bundles.values().map(Vec::len).sum();
        let Costs { packet, message, record } = self.costs;
        spent += packet * bundles.len() as u64 + message * messages as u64 + record * records;
        if machine.station.is_some() {
            spent /= super::CORES;
        }
        let took = spent / 1000;
        machine.busy_until = begin + took;
        let (done, deadline) = (machine.busy_until, machine.replica.deadline());
        if self.tally.is_measured(begin) {
            machine.busy += took;
            self.tally.sent(bundles.len() as u64, messages as u64, records);
        }
        if let Some(at) = deadline.map(|at| at.0.max(done))
            && at < machine.wake_at
        {
            machine.wake_at = at;
            self.agenda.schedule(at, Happening::Wake { machine: index });
        }
        for (to, bundle) in bundles {
            let delay = self.setup.environment.delay(self.region(index), self.region(to));
            self.agenda.schedule(done + delay, Happening::Deliver { to, bundle });
        }
        self.look(index);
    }

    /// A machine takes what has come as soon as it is done.
    fn look(&mut self, index: usize) {
        let machine = &mut self.machines[index];
        if !machine.is_due && !machine.inbox.is_empty() {
            machine.is_due = true;
            let at = machine.busy_until.max(self.now);
            self.agenda.schedule(at, Happening::Work { machine: index });
        }
    }

    fn on(&mut self, happening: Happening<D::Protocol>) {
        match happening {
            Happening::Deliver { to, bundle } => {
                self.machines[to].inbox.push_back(bundle);
                self.look(to);
            }
            Happening::Work { machine } => {
                self.machines[machine].is_due = false;
                let bundles = std::mem::take(&mut self.machines[machine].inbox);
                let messages: usize = bundles.iter().map(Vec::len).sum();
                let Costs { packet, message, .. } = self.costs;
                let received = packet * bundles.len() as u64 + message * messages as u64;
                self.act(machine, received, |replica, now, random, replies| {
                    let packets = bundles.into_iter().flatten();
                    let outcome = replica.receive_all(now, packets, random, replies);
                    debug_assert!(outcome.is_ok(), "our own packets are well formed");
                });
            }
            Happening::Wake { machine } => {
                self.machines[machine].wake_at = u64::MAX;
                self.act(machine, 0, |replica, now, random, replies| replica.fire(now, random, replies));
            }
            Happening::Retry { machine, client } => {
                if let Some(station) = &mut self.machines[machine].station {
                    station.begin(client, None, self.now);
                }
                self.act(machine, 0, |_, _, _, _| {});
            }
        }
    }

    /// Until then, or until the last client is idle.
    fn run_until(&mut self, end: u64) {
        while self.workload.idle < self.setup.clients {
            let Some((at, happening)) = self.agenda.next(end) else {
                self.now = end;
                return;
            };
            self.now = at;
            self.on(happening);
        }
    }

    /// Every client begins a transaction.
    fn begin(&mut self) {
        self.workload.idle = 0;
        for index in HOSTS..self.machines.len() {
            let now = self.now;
            let Machine { station: Some(station), .. } = &mut self.machines[index] else { continue };
            for client in 0..station.clients() {
                if let Some(plan) = self.workload.next(None, station.random(client)) {
                    station.begin(client, Some(plan), now);
                }
            }
            self.act(index, 0, |_, _, _, _| {});
        }
    }

    fn is_ready(&self) -> bool {
        let mut hosts = self.machines.iter().take(HOSTS).enumerate();
        hosts.all(|(index, machine)| self.deployed.is_ready(machine.replica.protocol(), index % REPLICAS))
    }

    fn combined(&self) -> u64 {
        self.machines.iter().map(|machine| machine.replica.protocol().combined()).sum()
    }

    /// Elects leaders, fills the keyspace at no cost, lets the clients warm up, and measures.
    pub fn run(mut self) -> Tally {
        const SECOND: u64 = 1_000_000;
        while !self.is_ready() && self.now < 60 * SECOND {
            self.run_until(self.now + SECOND / 10);
        }
        self.begin();
        self.run_until(self.now + 600 * SECOND);
        debug_assert!(self.workload.filling.is_empty(), "all of it is loaded");
        (self.costs, self.workload.is_filling) = (COSTS, false);
        self.begin();
        let warm = self.now + self.setup.warm_up;
        self.run_until(warm);
        self.tally.measure(warm, warm + self.setup.measured);
        let mut tally = std::mem::take(&mut self.tally);
        tally.begin(self.replicas(), self.combined());
        self.tally = tally;
        self.machines.iter_mut().for_each(|machine| machine.replica.protocol_mut().forget());
        self.run_until(warm + self.setup.measured);
        let busy = |machines: &[Machine<D::Protocol>]| machines.iter().map(|machine| machine.busy).max();
        let (hosts, gateways) = self.machines.split_at(HOSTS);
        self.tally.busiest = busy(hosts).unwrap_or(0);
        self.tally.busiest_gateway = busy(gateways).unwrap_or(0);
        let mut tally = std::mem::take(&mut self.tally);
        tally.end(self.replicas(), self.combined());
        tally
    }

    fn replicas(&self) -> impl Iterator<Item = &D::Protocol> {
        self.machines.iter().take(HOSTS).map(|machine| machine.replica.protocol())
    }
}

/// What fills the keyspace, in transactions of some commands.
fn filling(source: &dyn Source) -> Vec<Vec<Command>> {
    let blind = |command: Command| std::iter::once(b"BLIND".to_vec()).chain(command).collect();
    let mut commands = source.load().map(blind);
    let mut all: Vec<Vec<Command>> = Vec::new();
    loop {
        let some: Vec<Command> = commands.by_ref().take(LOADED_AT_ONCE).collect();
        if some.is_empty() {
            return all;
        }
        all.push(some);
    }
}
