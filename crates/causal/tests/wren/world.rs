//! Nodes, a network and logs in virtual time: what the scripts and the random runs play in. The protocol is the one that
//! stands under `under_test` in the tests that hold this module.

use super::inspect::{is_stabilization, replicated};
use super::under_test::{Message, Node, Options, Topology};
use protocol::{Claim, Durable, Frame, Input, Now, Packet, Replica, Replies, Request, SpoolRequest};
use std::collections::{BTreeMap, BTreeSet};
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, RegionId,
    ReplyBuf, ReplySink, RequestId, Rng, Slot, WallTime, Wire,
};

pub const KEYSPACE: KeyspaceId = KeyspaceId(3);
pub const SEED: HashSeed = HashSeed(7);
/// The wall time at which every run begins: 2026, in microseconds.
pub const EPOCH: u64 = 1_790_000_000_000_000;

/// What the network and the disks do to what passes them.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// In percent.
    pub loss: u64,
    /// In percent.
    pub duplication: u64,
    /// Microseconds inside a region; a fast packet overtakes a slow one.
    pub near: (u64, u64),
    /// Microseconds between regions.
    pub far: (u64, u64),
    /// Microseconds until a group of records is durable.
    pub log: u64,
}

impl Faults {
    /// A network and disks that only take their time.
    pub const NONE: Faults =
        Faults { loss: 0, duplication: 0, near: (100, 100), far: (20_000, 20_000), log: 0 };
}

#[derive(Default)]
pub struct Inbox(pub BTreeMap<RequestId, ReplyBuf>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

pub struct Host {
    region: RegionId,
    incarnation: Incarnation,
    /// `None` while it is down.
    pub replica: Option<Replica<Node>>,
    /// The latest checkpoint.
    pub snapshot: Vec<Vec<u8>>,
    /// The groups of records since, each with its number and the time at which it is durable.
    pub log: Vec<(u64, u64, Vec<u8>)>,
    /// The number of the last group in this life.
    groups: u64,
    /// Up to which group the log is durable.
    synced: u64,
    /// Of this life.
    pub spool: BTreeMap<u64, Vec<u8>>,
    /// Microseconds that its clock is ahead; may be negative.
    pub skew: i64,
    started: u64,
}

#[derive(Clone)]
pub(super) struct Flight {
    pub(super) from: NodeId,
    pub(super) to: Address,
    bytes: Vec<u8>,
}

/// See the module.
pub struct World {
    pub now: u64,
    pub faults: Faults,
    pub inbox: Inbox,
    pub topology: Topology,
    /// What nodes are started with from now on.
    pub options: Options,
    /// Of the chunks that are spilled or fetched, the share that is lost, in percent.
    pub spool_loss: u64,
    pub hosts: BTreeMap<Address, Host>,
    pub(super) flights: BTreeMap<(u64, u64), Flight>,
    pub(super) cut: BTreeSet<(RegionId, RegionId)>,
    /// Nothing passes from one of these to the other.
    pub cut_links: BTreeSet<(Address, Address)>,
    sent: u64,
    requests: u64,
    pub random: Rng,
    /// Of all coordinators.
    pub claims: Vec<Claim>,
    /// What was replicated: it committed, whatever the reply said.
    pub replicated: Vec<Claim>,
    /// How many messages of stabilization each has sent and received.
    pub stabilization: BTreeMap<Address, u64>,
}

/// Where the coordinator with this number in a region is.
pub fn coordinator(region: u16, number: u16) -> Address {
    Address { process: ProcessId(1000 + region * 100 + number), slot: Slot::coordinator(KEYSPACE) }
}

/// Where the replica of a partition in a region is.
pub fn replica(region: u16, index: u16) -> Address {
    Address { process: ProcessId(region * 100 + index), slot: Slot::replica(KEYSPACE, PartitionId(index)) }
}

impl World {
    /// Regions that hold what they hold, each with so many coordinators.
    pub fn of(topology: Topology, coordinators: u16, options: Options, seed: u64) -> Self {
        let mut world = World {
            now: 0,
            faults: Faults::NONE,
            inbox: Inbox::default(),
            topology,
            options,
            spool_loss: 0,
            hosts: BTreeMap::new(),
            flights: BTreeMap::new(),
            cut: BTreeSet::new(),
            cut_links: BTreeSet::new(),
            sent: 0,
            requests: 0,
            random: Rng::with_seed(seed),
            claims: Vec::new(),
            replicated: Vec::new(),
            stabilization: BTreeMap::new(),
        };
        for region in 0..world.topology.regions.len() as u16 {
            let replicas: Vec<Address> =
                world.topology.regions[usize::from(region)].partitions.values().copied().collect();
            for address in
                replicas.into_iter().chain((0..coordinators).map(|number| coordinator(region, number)))
            {
                let (region, incarnation) = (RegionId(region), Incarnation(0));
                let host = Host {
                    region,
                    incarnation,
                    replica: None,
                    snapshot: Vec::new(),
                    log: Vec::new(),
                    groups: 0,
                    synced: 0,
                    spool: BTreeMap::new(),
                    skew: 0,
                    started: 0,
                };
                world.hosts.insert(address, host);
            }
        }
        let addresses: Vec<Address> = world.hosts.keys().copied().collect();
        addresses.into_iter().for_each(|address| world.start(address));
        world
    }

    pub fn host(&mut self, address: Address) -> &mut Host {
        self.hosts.get_mut(&address).expect("a host of this world")
    }

    /// A node, to look at.
    pub fn node(&self, address: Address) -> &Node {
        self.hosts[&address].replica.as_ref().expect("it is up").protocol()
    }

    pub(super) fn times(&self, address: Address) -> Now {
        let host = &self.hosts[&address];
        let wall = (EPOCH + self.now).saturating_add_signed(host.skew);
        Now { wall: WallTime(wall), instant: Instant(self.now - host.started) }
    }

    /// Starts a node in a new life from what its log holds durably.
    pub fn start(&mut self, address: Address) {
        self.start_from(address, true);
    }

    /// The same; `complete` is false if the log may lack what the node had relied on.
    pub fn start_from(&mut self, address: Address, complete: bool) {
        let (topology, options, now) = (self.topology.clone(), self.options, self.now);
        let host = self.host(address);
        host.incarnation = Incarnation(host.incarnation.0 + 1);
        host.started = now;
        let (region, incarnation) = (host.region, host.incarnation);
        let node = match address.slot.partition {
            Some(partition) => Node::partition(topology, region, partition.0, options),
            None => Node::coordinator(topology, region, address.process, incarnation, options),
        };
        host.replica = Some(Replica::new(address.at(incarnation), node));
        let log: Vec<Vec<u8>> = host.log.iter().map(|(.., records)| records.clone()).collect();
        let snapshot = host.snapshot.clone();
        let mut batch = snapshot.iter().map(|piece| Input::Snapshot(piece)).collect();
        self.step(address, &mut batch);
        for records in &log {
            let mut batch = split(records).map(Input::Recover).collect();
            self.step(address, &mut batch);
        }
        self.step(address, &mut vec![Input::Recovered { complete }]);
    }

    /// Kills a node; what its log did not hold durably is gone.
    pub fn crash(&mut self, address: Address) {
        let now = self.now;
        let host = self.host(address);
        host.replica = None;
        host.spool.clear();
        host.log.retain(|(_, durable_at, _)| *durable_at <= now);
        host.log.iter_mut().for_each(|(number, ..)| *number = 0);
        (host.groups, host.synced) = (0, 0);
    }

    /// Kills a node and destroys its disk.
    pub fn destroy(&mut self, address: Address) {
        self.crash(address);
        let host = self.host(address);
        host.snapshot.clear();
        host.log.clear();
    }

    /// Lets nothing pass between two regions.
    pub fn cut(&mut self, a: u16, b: u16) {
        self.cut.extend([(RegionId(a), RegionId(b)), (RegionId(b), RegionId(a))]);
    }

    /// Lets everything pass.
    pub fn heal(&mut self) {
        self.cut.clear();
        self.cut_links.clear();
    }

    /// Asks a coordinator.
    pub fn request(&mut self, address: Address, request: Request<'_>) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        self.step(address, &mut vec![Input::Request { id, request }]);
        id
    }

    fn step(&mut self, address: Address, batch: &mut Vec<Input<'_, Node>>) {
        let times = self.times(address);
        let Some(replica) = self.hosts.get_mut(&address).and_then(|host| host.replica.as_mut()) else {
            return;
        };
        replica.step(times, batch, &mut self.random, &mut self.inbox);
        self.settle(address);
    }

    /// Appends what was persisted, releases what may leave, and puts it on its way.
    pub(super) fn settle(&mut self, address: Address) {
        let (times, durable_at) = (self.times(address), self.now + self.faults.log);
        let host = self.hosts.get_mut(&address).expect("a host of this world");
        let Some(replica) = host.replica.as_mut() else { return };
        if !replica.records().is_empty() {
            host.groups += 1;
            host.log.push((host.groups, durable_at, replica.records().to_vec()));
            replica.appended(host.groups);
        }
        let written = host.log.iter().rev().find(|(_, at, _)| *at <= self.now);
        let durable = written.map_or(host.synced, |(number, ..)| host.synced.max(*number));
        if durable > host.synced {
            host.synced = durable;
            replica.logged(durable);
        }
        replica.release(times.instant, Durable { written: durable, synced: durable });
        if let Node::Coordinator(_) = replica.protocol() {
            self.claims.extend(replica.protocol_mut().take_claims());
        }
        let (from, packets) = (replica.node(), replica.packets().collect::<Vec<_>>());
        for (to, packet) in packets {
            self.put_on_its_way(from, to, &packet);
        }
        self.spool(address);
    }

    /// Keeps chunks and gives them back, but for those that are lost.
    fn spool(&mut self, address: Address) {
        let times = self.times(address);
        let host = self.hosts.get_mut(&address).expect("a host of this world");
        let Some(replica) = host.replica.as_mut() else { return };
        let requests = replica.spool_requests();
        let is_stirred = !requests.is_empty();
        for request in requests {
            let is_lost = self.spool_loss > 0 && self.random.u64(..100) < self.spool_loss;
            match request {
                SpoolRequest::Spill { chunk, bytes } if !is_lost => {
                    host.spool.insert(chunk, bytes);
                }
                SpoolRequest::Spill { chunk, .. } => replica.spooled(times, chunk, None, &mut self.inbox),
                SpoolRequest::Fetch { chunk } => {
                    let bytes = host.spool.get(&chunk).filter(|_| !is_lost);
                    replica.spooled(times, chunk, bytes.map(Vec::as_slice), &mut self.inbox);
                }
                SpoolRequest::Forget { through } => host.spool.retain(|chunk, _| *chunk > through),
            }
        }
        if is_stirred {
            self.settle(address);
        }
    }

    fn put_on_its_way(&mut self, from: NodeId, to: Address, packet: &Packet<Node>) {
        if said(packet).is_some_and(|message| is_stabilization(&message)) {
            [from.address(), to].into_iter().for_each(|at| *self.stabilization.entry(at).or_default() += 1);
        }
        let (here, there) = (self.hosts[&from.address()].region, self.hosts[&to].region);
        let copies = if self.random.u64(..100) < self.faults.duplication { 2 } else { 1 };
        for _ in 0..copies {
            let is_cut = self.cut.contains(&(here, there)) || self.cut_links.contains(&(from.address(), to));
            if is_cut || self.random.u64(..100) < self.faults.loss {
                continue;
            }
            let (least, most) = if here == there { self.faults.near } else { self.faults.far };
            let arrives = self.now + self.random.u64(least..=most);
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            self.sent += 1;
            self.flights.insert((arrives, self.sent), Flight { from, to, bytes });
        }
    }

    /// Lets time pass until something happens, or until `limit`.
    fn advance(&mut self, limit: u64) {
        let mut next = limit;
        if let Some(((arrives, _), _)) = self.flights.first_key_value() {
            next = next.min(*arrives);
        }
        for host in self.hosts.values() {
            let Some(replica) = &host.replica else { continue };
            if let Some(deadline) = replica.deadline() {
                next = next.min((deadline.0 + host.started).max(self.now));
            }
            let unsynced = host.log.iter().find(|(number, ..)| *number > host.synced);
            next = unsynced.map_or(next, |(_, durable_at, _)| next.min((*durable_at).max(self.now)));
        }
        self.now = next.max(self.now);
        while self.flights.first_key_value().is_some_and(|((arrives, _), _)| *arrives <= self.now) {
            let Some((_, flight)) = self.flights.pop_first() else { break };
            self.deliver(flight);
        }
        let addresses: Vec<Address> = self.hosts.keys().copied().collect();
        for address in addresses {
            let times = self.times(address);
            let Some(replica) = self.hosts.get_mut(&address).and_then(|host| host.replica.as_mut()) else {
                continue;
            };
            if replica.deadline().is_some_and(|deadline| deadline <= times.instant) {
                replica.fire(times, &mut self.random, &mut self.inbox);
            }
            self.settle(address);
        }
    }

    pub(super) fn deliver(&mut self, flight: Flight) {
        let times = self.times(flight.to);
        let Some(replica) = self.hosts.get_mut(&flight.to).and_then(|host| host.replica.as_mut()) else {
            return;
        };
        let packet = Packet::decode(&mut Reader::new(&flight.bytes)).expect("what was encoded decodes");
        self.replicated.extend(said(&packet).and_then(|message| replicated(&message)));
        replica
            .receive(times, flight.from, packet, &mut self.random, &mut self.inbox)
            .expect("stream messages decode");
        self.settle(flight.to);
    }

    /// Lets milliseconds pass.
    pub fn run_ms(&mut self, millis: u64) {
        self.run_us(millis * 1000);
    }

    /// Lets microseconds pass.
    pub fn run_us(&mut self, micros: u64) {
        let end = self.now + micros;
        while self.now < end {
            self.advance(end);
        }
    }

    /// Lets time pass until a request is answered.
    pub fn await_reply(&mut self, id: RequestId) -> ReplyBuf {
        let limit = self.now + 60_000_000;
        while !self.inbox.0.contains_key(&id) {
            assert!(self.now < limit, "request {id} is not answered within a minute");
            self.advance(limit);
        }
        self.inbox.0.remove(&id).expect("it has just been seen")
    }
}

/// What a packet says.
fn said(packet: &Packet<Node>) -> Option<Message> {
    match packet {
        Packet::Frame(Frame::Data { message, .. }) => Message::decode(&mut Reader::new(message)).ok(),
        Packet::Frame(_) => None,
        Packet::Datagram(message) => Some(message.clone()),
    }
}

/// The records of a group, each behind its length in four bytes.
fn split(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (len, rest) = bytes.split_first_chunk::<4>()?;
        let (record, rest) = rest.split_at(u32::from_le_bytes(*len) as usize);
        bytes = rest;
        Some(record)
    })
}
