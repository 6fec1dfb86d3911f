//! QWStore over a network that a test decides on.

use super::{Acknowledgements, Message, Node, Options};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Protocol, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, VecDeque};
use strict::Topology;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, PartitionId, ProcessId, Reader, ReplyBuf, ReplySink,
    RequestId, Rng, SessionId, Slot, WallTime,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const GET: Operation<'static> = Operation::Register(register::Operation::Get);
const ADD: Operation<'static> = Operation::Register(register::Operation::Increment { by: 1 });

fn set(value: &[u8]) -> Operation<'_> {
    Operation::Register(register::Operation::Set {
        value,
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    })
}

#[derive(Default)]
struct Sink(BTreeMap<RequestId, ReplyBuf>);

impl Replies for Sink {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// Three replicas, on processes 0 to 2, and two coordinators, on 3 and 4.
struct World {
    nodes: Vec<Replica<Node>>,
    queue: VecDeque<(Address, Address, Packet<Node>)>,
    replies: Sink,
    now: u64,
    /// How far the wall clock of each process is ahead.
    skew: [u64; 5],
    /// Nothing reaches this replica.
    cut: Option<u16>,
    random: Rng,
    requests: u64,
    /// Questions that replicas received.
    reads: Vec<u16>,
    /// The records of replica 0.
    logged: Vec<Vec<u8>>,
}

impl World {
    fn new(options: &Options) -> Self {
        let slot = Slot::replica(KEYSPACE, PartitionId(0));
        let replica = |process| Address { process: ProcessId(process), slot };
        let topology = Topology {
            shards: vec![(0..3).map(replica).collect()],
            epochs: Default::default(),
            keyspace: KEYSPACE,
            seed: HashSeed(1),
        };
        let node = |process: u16| {
            let (life, id) = (Incarnation(1), ProcessId(process));
            if process < 3 {
                Replica::new(replica(process).at(life), Node::replica(&topology, options))
            } else {
                let node = Node::coordinator(topology.clone(), id, life, options.clone());
                Replica::new(topology.coordinator(id).at(life), node)
            }
        };
        World {
            nodes: (0..5).map(node).collect(),
            queue: VecDeque::new(),
            replies: Sink::default(),
            now: 0,
            skew: [0; 5],
            cut: None,
            random: Rng::with_seed(1),
            requests: 0,
            reads: Vec::new(),
            logged: Vec::new(),
        }
    }

    fn with(&mut self, process: u16, react: impl FnOnce(&mut Replica<Node>, Now, &mut Rng, &mut Sink)) {
        let index = usize::from(process);
        let wall = WallTime(1_000_000_000 + self.now + self.skew[index]);
        let node = &mut self.nodes[index];
        react(node, Now { wall, instant: Instant(self.now) }, &mut self.random, &mut self.replies);
        let mut records = Reader::new(node.records());
        while process == 0 && !records.is_empty() {
            let len = records.take(4).expect("a length").try_into().expect("four bytes");
            let len = u32::from_le_bytes(len);
            self.logged.push(records.take(len as usize).expect("a record").to_vec());
        }
        node.appended(1);
        node.release(Instant(self.now), Durable { written: u64::MAX, synced: u64::MAX });
        let from = node.node().address();
        self.queue.extend(node.packets().map(|(to, packet)| (from, to, packet)));
    }

    fn ask(&mut self, process: u16, operations: &[(&str, Operation<'_>)]) -> RequestId {
        self.requests += 1;
        let id = RequestId(self.requests);
        let mut steps: Vec<Step<'_>> = Vec::new();
        for (key, operation) in operations {
            let (key, operation) = (key.as_bytes(), operation.clone());
            let hash = HashSeed(1).hash(key);
            steps.push(Step::Key(KeyedOperation { key, hash, operation, blind: false }));
        }
        self.with(process, |node, now, random, replies| {
            let request =
                Request::Many { session: SessionId(1), steps: &steps, watched: false, multi: false };
            node.step(now, &mut vec![Input::Request { id, request }], random, replies);
        });
        id
    }

    /// Delivers one packet, the `index`-th of those on their way.
    fn deliver(&mut self, index: usize) {
        let Some((from, to, packet)) = self.queue.remove(index) else { return };
        if self.cut == Some(to.process.0) {
            return;
        }
        if matches!(packet, Packet::Datagram(Message::Read { .. })) {
            self.reads.push(to.process.0);
        }
        self.with(to.process.0, |node, now, random, replies| {
            node.receive(now, from.at(Incarnation(1)), packet, random, replies).expect("a packet");
        });
    }

    fn settle(&mut self) {
        while !self.queue.is_empty() {
            self.deliver(0);
        }
    }

    fn pass(&mut self, micros: u64) {
        self.now += micros;
        (0..5).for_each(|process| {
            self.with(process, |node, now, random, replies| node.fire(now, random, replies));
        });
        self.settle();
    }

    fn reply(&self, id: RequestId) -> String {
        self.replies
            .0
            .get(&id)
            .map_or("nothing".to_owned(), |reply| format!("{:?}", reply.elements().collect::<Vec<_>>()))
    }

    /// What each replica holds.
    fn held(&self, key: &str) -> Vec<String> {
        let replica = |node: &Replica<Node>| match node.protocol() {
            Node::Replica(replica) => {
                let store = replica.store();
                format!("{:?}", store.cell(store.hash(key.as_bytes()), key.as_bytes(), 0))
            }
            Node::Coordinator(_) => String::new(),
        };
        self.nodes[..3].iter().map(replica).collect()
    }
}

fn alike(held: &[String]) -> bool {
    held.iter().all(|state| *state == held[0])
}

#[test]
fn a_write_waits_for_all_replicas_or_for_a_quorum() {
    let mut world = World::new(&Options::default());
    let first = world.ask(3, &[("a", set(b"1"))]);
    assert_eq!(world.queue.len(), 3, "one message to each replica");
    world.cut = Some(2);
    world.settle();
    assert_eq!(world.reply(first), "nothing", "two of three are not all");
    world.cut = None;
    world.pass(300_000);
    assert!(world.reply(first).contains("OK"), "sent again: {}", world.reply(first));
    assert!(alike(&world.held("a")));

    let acknowledgements = Acknowledgements::Quorum;
    let mut world = World::new(&Options { acknowledgements, ..Options::default() });
    world.cut = Some(2);
    let first = world.ask(3, &[("a", set(b"1"))]);
    world.settle();
    assert!(world.reply(first).contains("OK"), "{}", world.reply(first));
    assert!(!alike(&world.held("a")), "the third has not heard of it");
}

#[test]
fn a_read_asks_the_closest_replica_and_the_next_one_when_it_is_silent() {
    let mut world = World::new(&Options { near: 1, ..Options::default() });
    let got = world.ask(3, &[("a", GET)]);
    world.settle();
    assert_eq!((world.reads.as_slice(), world.reply(got).as_str()), (&[1][..], "[Null]"));
    world.cut = Some(1);
    let got = world.ask(3, &[("a", GET)]);
    world.settle();
    assert_eq!(world.reply(got), "nothing");
    world.pass(300_000);
    assert_eq!((world.reads.as_slice(), world.reply(got).as_str()), (&[1, 2][..], "[Null]"));
}

#[test]
fn the_last_writer_wins_at_every_replica_whatever_arrives_first() {
    for order in 0..6 {
        let mut world = World::new(&Options::default());
        // The second writer's clock is behind: its write is the earlier one.
        world.skew[3] = 500;
        let ids = [world.ask(3, &[("a", set(b"late"))]), world.ask(4, &[("a", set(b"early"))])];
        let mut index = order;
        while !world.queue.is_empty() {
            world.deliver(index % world.queue.len());
            index += order + 1;
        }
        assert!(ids.iter().all(|id| world.reply(*id).contains("OK")));
        let held = world.held("a");
        assert!(alike(&held) && held[0] != world.held("b")[0], "{held:?}");
        let got = world.ask(4, &[("a", GET)]);
        world.settle();
        assert!(world.reply(got).contains("[108, 97, 116, 101]"), "late: {}", world.reply(got));
    }
}

#[test]
fn the_operations_of_a_request_are_performed_one_after_the_other() {
    let mut world = World::new(&Options::default());
    let id = world.ask(3, &[("a", set(b"1")), ("b", set(b"2")), ("a", ADD), ("a", GET)]);
    assert_eq!(world.queue.len(), 3, "the second waits for the first");
    world.settle();
    assert!(world.reply(id).contains("Integer(2)"), "{}", world.reply(id));
    assert!(alike(&world.held("a")) && alike(&world.held("b")));
}

/// Allowed here, and what transactions are for: two clients read the same value and write it plus one.
#[test]
fn updates_are_lost_without_transactions() {
    let mut world = World::new(&Options::default());
    let reads = [world.ask(3, &[("a", GET)]), world.ask(4, &[("a", GET)])];
    world.settle();
    assert!(reads.iter().all(|id| world.reply(*id) == "[Null]"));
    let writes = [world.ask(3, &[("a", set(b"1"))]), world.ask(4, &[("a", set(b"1"))])];
    world.settle();
    assert!(writes.iter().all(|id| world.reply(*id).contains("OK")));
    let got = world.ask(3, &[("a", GET)]);
    world.settle();
    assert!(world.reply(got).contains("[49]"), "1, not 2: {}", world.reply(got));
}

#[test]
fn a_write_that_comes_again_changes_nothing_and_is_acknowledged_again() {
    let mut world = World::new(&Options::default());
    let add = world.ask(3, &[("a", ADD)]);
    world.cut = Some(2);
    world.settle();
    world.cut = None;
    world.pass(300_000);
    assert!(world.reply(add).contains("Integer(1)"), "{}", world.reply(add));
    assert!(alike(&world.held("a")), "{:?}", world.held("a"));
}

#[test]
fn a_request_that_nobody_answers_ends_with_what_is_known() {
    let mut world = World::new(&Options::default());
    world.cut = Some(0);
    let (read, write) = (world.ask(3, &[("a", GET)]), world.ask(4, &[("a", set(b"1"))]));
    (0..3).for_each(|process| {
        world.cut = Some(process);
        world.deliver(0);
    });
    world.queue.clear();
    (0..25).for_each(|_| {
        world.now += 250_000;
        (3..5).for_each(|process| {
            world.with(process, |node, now, random, replies| node.fire(now, random, replies));
        });
        world.queue.clear();
    });
    assert!(world.reply(read).contains("Unavailable"), "{}", world.reply(read));
    assert!(world.reply(write).contains("UnknownOutcome"), "{}", world.reply(write));
}

#[test]
fn a_checkpoint_and_the_log_bring_a_replica_back() {
    let mut world = World::new(&Options::default());
    world.ask(3, &[("a", set(b"1")), ("b", set(b"2")), ("a", ADD)]);
    world.settle();
    let mut pieces = vec![Vec::new()];
    let mut cursor = Some(0);
    while let Some(at) = cursor {
        let mut piece = Vec::new();
        cursor = world.nodes[0].protocol_mut().checkpoint(at, &mut piece);
        pieces.push(piece);
    }
    world.logged.clear();
    world.ask(4, &[("b", ADD)]);
    world.settle();
    let logged = std::mem::take(&mut world.logged);
    assert_eq!(logged.len(), 1, "what came after the checkpoint");
    let before = [world.held("a")[0].clone(), world.held("b")[0].clone()];
    let options = Options::default();
    let fresh = World::new(&options);
    let mut world = World { nodes: fresh.nodes, ..world };
    world.with(0, |node, now, random, replies| {
        let snapshots = pieces.iter().map(|piece| Input::Snapshot(piece));
        let records = logged.iter().map(|bytes| Input::Recover(bytes));
        let mut batch = snapshots.chain(records).collect();
        node.step(now, &mut batch, random, replies);
    });
    assert_eq!([world.held("a")[0].clone(), world.held("b")[0].clone()], before);
}
