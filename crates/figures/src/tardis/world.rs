//! Virtual time: a site is a machine with some processors, of which one at a time works on the keyspace, as in the server;
//! clients have machines of their own, and the network only delays. Times are in nanoseconds.
//!
//! What a request brings about inside of its machine is done in one turn; what waits there, as for a lock, is answered by a
//! later turn.

use super::Setup;
use super::load::{Op, Script, with_steps};
use super::measure::{Kind, Slice, Tally};
use super::system::{Constraints, Deployed, KEYSPACE, LIFE, Residue};
use crate::agenda::{Agenda, Answers};
use protocol::{Durable, Input, Now, Packet, Protocol, Replica, Request};
use std::collections::{BTreeMap, VecDeque};
use types::{
    Address, HashSeed, Instant, NodeId, ProcessId, ReplyBuf, RequestId, Rng, SessionId, WallTime, Wire,
};

/// The wall time at virtual time 0, in microseconds since 1970.
const EPOCH: u64 = 1_790_000_000_000_000;
const MILLI: u64 = 1_000_000;
/// How long after the last client has stopped the residue is measured.
const REST: u64 = 5_000 * MILLI;
const SEED: HashSeed = HashSeed(1);
/// After so many failed tries the wait is drawn from the widest window.
const DOUBLINGS: u32 = 6;
/// Into how many pieces what is measured is cut.
pub(super) const SLICES: u64 = 20;
/// The session that loads the keys.
const LOADER: SessionId = SessionId(1 << 40);

enum Event<P: Protocol> {
    /// A packet of another machine.
    Deliver {
        to: Address,
        from: NodeId,
        packet: Packet<P>,
        bytes: u64,
    },
    Wake {
        machine: usize,
        node: usize,
    },
    /// A client's request comes to its site, and some time later to the keyspace there.
    Arrive {
        client: usize,
    },
    Ask {
        client: usize,
    },
    Reply {
        client: usize,
        reply: ReplyBuf,
    },
    Begin {
        client: usize,
        again: bool,
    },
    Slice,
}

struct Machine<P: Protocol> {
    nodes: Vec<Replica<P>>,
    addresses: Vec<Address>,
    wake_at: Vec<u64>,
    random: Rng,
    /// Of every processor, until when it is busy with a client's request.
    processors: Vec<u64>,
    /// Until when the keyspace is.
    busy_until: u64,
    /// What its nodes' own work came to so far.
    worked: Vec<u64>,
}

/// A client: a closed loop.
struct Client {
    machine: usize,
    random: Rng,
    waiting: VecDeque<Script>,
    script: Script,
    /// How many requests of the script have been sent.
    sent: usize,
    last: ReplyBuf,
    began: u64,
    tries: u32,
    /// For how long the processor has worked for this try.
    took: u64,
    sent_at: u64,
    /// How many transactions it has committed.
    committed: u64,
}

/// See the module.
pub(super) struct World<'s, D: Deployed> {
    setup: &'s Setup,
    deployed: D,
    now: u64,
    agenda: Agenda<Event<D::Protocol>>,
    machines: Vec<Machine<D::Protocol>>,
    clients: Vec<Client>,
    /// Requests under way, by number; the loader's are not among them.
    requests: BTreeMap<RequestId, usize>,
    request_count: u64,
    /// Clients begin nothing more.
    rests: bool,
    tally: Tally,
}

impl<'s, D: Deployed> World<'s, D> {
    pub fn new(setup: &'s Setup, deployed: D) -> Self {
        let mut random = Rng::with_seed(setup.seed);
        let mut machines = Vec::new();
        for site in 0..setup.sites {
            let instances = deployed.instances(setup.sites, site);
            let at = |slot| Address { process: ProcessId(site), slot };
            let addresses: Vec<Address> = instances.iter().map(|(slot, _)| at(*slot)).collect();
            let nodes: Vec<_> =
                instances.into_iter().map(|(slot, node)| Replica::new(at(slot).at(LIFE), node)).collect();
            let (wake_at, worked) = (vec![u64::MAX; nodes.len()], vec![0; nodes.len()]);
            machines.push(Machine {
                nodes,
                addresses,
                wake_at,
                random: random.fork(),
                processors: vec![0; setup.processors],
                busy_until: 0,
                worked,
            });
        }
        debug_assert!(
            machines.iter().all(|machine: &Machine<_>| machine.addresses[0].slot.keyspace == KEYSPACE)
        );
        let client = |number: usize| Client {
            machine: number % usize::from(setup.sites),
            random: random.fork(),
            waiting: VecDeque::new(),
            script: Script::default(),
            sent: 0,
            last: ReplyBuf::new(),
            began: 0,
            tries: 0,
            took: 0,
            sent_at: 0,
            committed: 0,
        };
        let clients = (0..setup.clients * usize::from(setup.sites)).map(client).collect();
        World {
            setup,
            deployed,
            now: 0,
            agenda: Agenda::default(),
            machines,
            clients,
            requests: BTreeMap::new(),
            request_count: 0,
            rests: false,
            tally: Tally::default(),
        }
    }

    /// A node reacts, and then every node of its machine to what the others of it said. Returns for how long.
    fn turn(
        &mut self,
        index: usize,
        node: usize,
        cost: u64,
        react: impl FnOnce(&mut Replica<D::Protocol>, Now, &mut Rng, &mut Answers),
    ) -> u64 {
        let costs = self.setup.costs;
        let machine = &mut self.machines[index];
        let begin = self.now.max(machine.busy_until);
        let now = Now { wall: WallTime(EPOCH + begin / 1000), instant: Instant(begin / 1000) };
        let (mut sink, mut took, mut leaving) = (Answers::default(), cost, Vec::new());
        let mut inside: VecDeque<(usize, NodeId, Packet<D::Protocol>)> = VecDeque::new();
        react(&mut machine.nodes[node], now, &mut machine.random, &mut sink);
        let mut next = Some(node);
        while let Some(node) = next {
            let replica = &mut machine.nodes[node];
            took += costs.record * count_records(replica.records());
            replica.appended(1);
            replica.logged(1);
            replica.release(now.instant, Durable { written: u64::MAX, synced: u64::MAX });
            let worked = self.deployed.worked(replica.protocol(), &costs);
            // A site that joined the others began anew.
            took += worked.saturating_sub(std::mem::replace(&mut machine.worked[node], worked));
            let from = replica.node();
            let packets: Vec<(Address, Packet<D::Protocol>)> = replica.packets().collect();
            for (to, packet) in packets {
                match machine.addresses.iter().position(|address| *address == to) {
                    Some(there) => inside.push_back((there, from, packet)),
                    None => leaving.push((to, from, packet)),
                }
            }
            next = inside.pop_front().map(|(there, from, packet)| {
                took += costs.local_message;
                let outcome = machine.nodes[there].receive(now, from, packet, &mut machine.random, &mut sink);
                debug_assert!(outcome.is_ok(), "our own packets are well formed");
                there
            });
        }
        let mut sized = Vec::new();
        for (to, from, packet) in leaving {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            took += costs.message + costs.byte * bytes.len() as u64;
            sized.push((to, from, packet, bytes.len() as u64));
        }
        machine.busy_until = begin + took;
        let done = begin + took;
        for node in 0..machine.nodes.len() {
            if let Some(at) = machine.nodes[node].deadline().map(|at| (at.0 * 1000).max(done))
                && at < machine.wake_at[node]
            {
                machine.wake_at[node] = at;
                self.agenda.schedule(at, Event::Wake { machine: index, node });
            }
        }
        for (to, from, packet, bytes) in sized {
            let at = done + self.setup.delay(index, usize::from(to.process.0));
            self.agenda.schedule(at, Event::Deliver { to, from, packet, bytes });
        }
        self.tally.turn(self.now, took);
        for (id, reply) in sink.0 {
            if let Some(client) = self.requests.remove(&id) {
                self.agenda.schedule(done + self.setup.round_trip / 2, Event::Reply { client, reply });
            }
        }
        took
    }

    fn on_event(&mut self, event: Event<D::Protocol>) {
        let costs = self.setup.costs;
        match event {
            Event::Deliver { to, from, packet, bytes } => {
                let machine = usize::from(to.process.0);
                let node = self.machines[machine].addresses.iter().position(|address| *address == to);
                let cost = costs.message + costs.byte * bytes;
                let took = self.turn(machine, node.unwrap_or(0), cost, |replica, now, random, sink| {
                    let outcome = replica.receive(now, from, packet, random, sink);
                    debug_assert!(outcome.is_ok(), "our own packets are well formed");
                });
                self.tally.useful(self.now, took);
            }
            Event::Wake { machine, node } => {
                self.machines[machine].wake_at[node] = u64::MAX;
                self.turn(machine, node, 0, |replica, now, random, sink| replica.fire(now, random, sink));
            }
            Event::Arrive { client } => self.on_arrival(client),
            Event::Ask { client } => self.on_ask(client),
            Event::Reply { client, reply } => self.on_reply(client, reply),
            Event::Slice if self.rests => {}
            Event::Begin { client, again } => self.begin(client, again),
            Event::Slice => {
                self.tally.slice(Slice::new(&self.residue()));
                self.agenda.schedule(self.now + self.setup.measured * MILLI / SLICES, Event::Slice);
            }
        }
    }

    fn begin(&mut self, client: usize, again: bool) {
        if self.rests {
            return;
        }
        let (now, load) = (self.now, &self.setup.load);
        let asking = &mut self.clients[client];
        if again {
            asking.tries += 1;
        } else {
            if asking.waiting.is_empty() {
                asking.waiting = load.draw(client as u32, now / 1000, &mut asking.random).into();
            }
            asking.script = asking.waiting.pop_front().unwrap_or_default();
            (asking.began, asking.tries) = (now, 0);
        }
        (asking.sent, asking.took) = (0, 0);
        self.send(client);
    }

    fn send(&mut self, client: usize) {
        self.clients[client].sent += 1;
        self.agenda.schedule(self.now + self.setup.round_trip / 2, Event::Arrive { client });
    }

    /// One of the processors reads the request.
    fn on_arrival(&mut self, client: usize) {
        let now = self.now;
        let asking = &mut self.clients[client];
        asking.sent_at = now;
        let machine = &mut self.machines[asking.machine];
        let Some(free) = machine.processors.iter_mut().min() else { return };
        *free = now.max(*free) + self.setup.costs.request;
        let at = *free;
        self.agenda.schedule(at, Event::Ask { client });
    }

    fn kind(&self, client: usize) -> Kind {
        let Client { script, sent, .. } = &self.clients[client];
        if !script.is_transaction {
            return Kind::of(&script.requests[0]);
        }
        match *sent {
            1 => Kind::Begin,
            sent if sent > script.requests.len() + 1 => Kind::Commit,
            sent => Kind::of(&script.requests[sent - 2]),
        }
    }

    fn on_ask(&mut self, client: usize) {
        let kind = self.kind(client);
        let asking = &mut self.clients[client];
        let (machine, session) = (asking.machine, SessionId(client as u64 + 1));
        let (script, last) = (std::mem::take(&mut asking.script), std::mem::take(&mut asking.last));
        let none = Vec::new();
        let ops = match (script.is_transaction, kind) {
            (false, _) => &script.requests[0],
            (true, Kind::Begin | Kind::Commit) => &none,
            (true, _) => &script.requests[asking.sent - 2],
        };
        let read_only = !script.requests.iter().flatten().any(Op::is_write);
        self.request_count += 1;
        let id = RequestId(self.request_count);
        self.requests.insert(id, client);
        let entry = self.machines[machine].nodes.len() - 1;
        let mut took = 0;
        with_steps(ops, &last, SEED, |steps| {
            let request = match kind {
                Kind::Begin => Request::Begin { session, read_only, watched: false },
                Kind::Commit => Request::Commit { session },
                _ if script.is_transaction => Request::Operate { session, steps },
                _ => Request::Many { session, steps, watched: false, multi: false },
            };
            let cost = self.setup.costs.operation * steps.len().max(1) as u64;
            took = self.turn(machine, entry, cost, |replica, now, random, sink| {
                replica.step(now, &mut vec![Input::Request { id, request }], random, sink);
            });
        });
        let asking = &mut self.clients[client];
        (asking.script, asking.last) = (script, last);
        asking.took += took;
        self.tally.served(self.now, kind, took);
    }

    fn on_reply(&mut self, client: usize, reply: ReplyBuf) {
        let (now, kind) = (self.now, self.kind(client));
        let asking = &mut self.clients[client];
        let answered = now - self.setup.round_trip / 2;
        self.tally.answered(now, kind, answered - asking.sent_at);
        if reply.elements().any(|element| matches!(element, types::Reply::Error(_))) {
            self.tally.failed(now);
            let window = self.setup.round_trip << asking.tries.min(DOUBLINGS);
            let wait = asking.random.u64(0..=window);
            return self.agenda.schedule(now + wait, Event::Begin { client, again: true });
        }
        let is_over = !asking.script.is_transaction || kind == Kind::Commit;
        if !is_over {
            if kind != Kind::Begin {
                asking.last = reply;
            }
            return self.send(client);
        }
        self.tally.useful(now, asking.took);
        asking.committed += 1;
        if self.setup.ceilings.is_some_and(|every| asking.committed.is_multiple_of(every)) {
            self.place_ceiling(client);
        }
        let asking = &mut self.clients[client];
        if asking.script.counts {
            self.tally.committed(now, now - asking.began);
        }
        self.begin(client, false);
    }

    fn run_until(&mut self, end: u64) {
        while let Some((at, event)) = self.agenda.next(end) {
            self.now = at;
            self.on_event(event);
        }
        self.now = end;
    }

    /// A request that no client waits for.
    fn prepare(&mut self, machine: usize, request: Request<'_>) {
        self.request_count += 1;
        let (id, entry) = (RequestId(self.request_count), self.machines[machine].nodes.len() - 1);
        self.turn(machine, entry, self.setup.costs.operation, |replica, now, random, sink| {
            replica.step(now, &mut vec![Input::Request { id, request }], random, sink);
        });
    }

    /// The client promises to begin nothing above what it read last.
    fn place_ceiling(&mut self, client: usize) {
        let (machine, session) = (self.clients[client].machine, SessionId(client as u64 + 1));
        self.prepare(machine, Request::Own { session, words: &[b"BRANCH", b"CEILING"], steps: &[] });
    }

    /// Starts the nodes, loads the keys and has sessions say what they demand.
    fn set_up(&mut self, constraints: Option<Constraints>) {
        for machine in 0..self.machines.len() {
            for node in 0..self.machines[machine].nodes.len() {
                self.turn(machine, node, 0, |replica, now, random, sink| {
                    replica.step(now, &mut vec![Input::Recovered { complete: true }], random, sink);
                });
            }
        }
        let is_ready = |world: &Self| {
            let mut nodes = world.machines.iter().flat_map(|machine| &machine.nodes);
            nodes.all(|node| world.deployed.is_ready(node.protocol()))
        };
        while !is_ready(self) && self.now < 60_000 * MILLI {
            self.run_until(self.now + 100 * MILLI);
        }
        // Branch keyspaces tell the other sites; the others are loaded everywhere.
        let loaded = if self.setup.system.branches() { 1 } else { self.machines.len() };
        for machine in 0..loaded {
            let mut random = Rng::with_seed(self.setup.seed);
            for ops in self.setup.load.loading(&mut random) {
                with_steps(&ops, &ReplyBuf::new(), SEED, |steps| {
                    let session = LOADER;
                    self.prepare(machine, Request::Many { session, steps, watched: false, multi: true });
                });
                self.run_until(self.now.max(self.machines[machine].busy_until));
            }
            self.prepare(machine, Request::Close { session: LOADER });
        }
        // So that everything has arrived and is collected.
        self.run_until(self.now + 2_000 * MILLI);
        let Some(Constraints { begin, end, .. }) = constraints else { return };
        for client in 0..self.clients.len() {
            let (machine, session) = (self.clients[client].machine, SessionId(client as u64 + 1));
            let words = ["BRANCH", "DEFAULTS", "BEGIN"].into_iter().chain(begin.split(' '));
            let words = words.chain(["COMMIT"]).chain(end.split(' '));
            let words: Vec<&[u8]> = words.map(str::as_bytes).collect();
            self.prepare(machine, Request::Own { session, words: &words, steps: &[] });
            if self.setup.ceilings.is_some() {
                self.place_ceiling(client);
            }
        }
    }

    /// Warms up and measures.
    pub fn run(mut self) -> Tally {
        self.set_up(self.setup.system.constraints());
        for client in 0..self.clients.len() {
            // Not all at once.
            let at = self.now + self.clients[client].random.u64(..5 * MILLI);
            self.agenda.schedule(at, Event::Begin { client, again: false });
        }
        let warm = self.now + self.setup.warm_up * MILLI;
        let end = warm + self.setup.measured * MILLI;
        self.tally.measure(warm, end);
        self.agenda.schedule(warm + self.setup.measured * MILLI / SLICES, Event::Slice);
        self.run_until(end);
        while self.is_merging() {
            self.run_until(self.now + MILLI);
        }
        self.settle();
        self.rests = true;
        self.run_until(self.now + REST);
        self.tally.rested = self.residue();
        self.tally
    }

    fn is_merging(&self) -> bool {
        let mut nodes = self.machines.iter().flat_map(|machine| &machine.nodes);
        nodes.any(|node| self.deployed.is_merging(node.protocol()))
    }

    /// What collection would leave if it took no time.
    fn settle(&mut self) {
        for node in self.machines.iter_mut().flat_map(|machine| &mut machine.nodes) {
            self.deployed.settle(node.protocol_mut());
        }
        self.tally.settled = self.residue();
    }

    /// What all sites together keep.
    fn residue(&self) -> Residue {
        let nodes = self.machines.iter().flat_map(|machine| &machine.nodes);
        nodes.map(|node| self.deployed.residue(node.protocol())).sum()
    }
}

/// How many records these bytes hold, each behind its length.
fn count_records(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while let Some((len, rest)) = bytes.split_first_chunk::<4>() {
        bytes = rest.get(u32::from_le_bytes(*len) as usize..).unwrap_or_default();
        count += 1;
    }
    count
}

impl Setup {
    /// One way between machines of different sites, in nanoseconds.
    fn delay(&self, from: usize, to: usize) -> u64 {
        /// Half the round trips between us-central1, europe-west1 and asia-east1; farther sites as far as the farthest.
        const DELAYS: [[u64; 3]; 3] = [[0, 52_000, 78_000], [52_000, 0, 130_000], [78_000, 130_000, 0]];
        let between = DELAYS.get(from).and_then(|row| row.get(to));
        between.copied().unwrap_or(130_000) * 1000
    }
}
