//! What is hosted, with a protocol that only passes numbers on.

use super::*;
use crate::model::{ClusterShape, RegionShape};
use crate::{Durability, Input, NoReplies, Now, Outputs, Protocol, Unlogged};
use types::{Address, HashSeed, Incarnation, RegionId, ReplyBuf, ReplySink, Rng, SessionId};

/// Asks others for each request; a queried instance logs the question and answers. An instance that reads alone
/// replies at once with what it has logged.
struct Echo<const ALONE: bool = false> {
    others: Vec<Address>,
    heard: Vec<u64>,
    unlogged: Unlogged<u64>,
}

const ASK: u64 = 1;
const ANSWER: u64 = 2;
const READ: u64 = 3;

impl<const ALONE: bool> Protocol for Echo<ALONE> {
    const READS_ALONE: bool = ALONE;

    type Message = u64;
    type Timer = ();
    type Record<'a> = u64;

    fn step(&mut self, _: Now, batch: &mut Vec<Input<'_, Self>>, _: &mut Rng, out: &mut Outputs<'_, Self>) {
        for input in batch.drain(..) {
            match input {
                Input::Request { request: Request::Close { .. }, .. } => {
                    self.others.iter().for_each(|other| out.send(*other, READ));
                }
                Input::Message { from, message: READ } => {
                    let unlogged = self.unlogged.refused().count() as u64;
                    out.send_logged(from.address(), 10 * (out.persisted() - unlogged));
                }
                Input::Request { id, .. } => {
                    out.reply(id).simple("OK");
                    self.others.iter().for_each(|other| out.send(*other, ASK));
                }
                Input::Message { from, message: ASK } => {
                    out.persist(&ASK, Durability::Written);
                    self.unlogged.note(out.persisted(), ASK);
                    out.send(from.address(), ANSWER);
                    self.heard.push(ASK);
                }
                Input::Message { message, .. } => self.heard.push(message),
                Input::Recover(_) => self.heard.push(0),
                _ => {}
            }
        }
    }

    fn checkpoint(&mut self, _: u64, _: &mut Vec<u8>) -> Option<u64> {
        None
    }

    fn is_read(message: &u64) -> bool {
        *message == READ
    }

    fn logged(&mut self, records: u64) {
        self.unlogged.logged(records, drop);
    }

    fn log_refuses(&mut self) {
        self.unlogged.set_refusing(true);
    }

    fn log_healed(&mut self) {
        self.unlogged.set_refusing(false);
    }
}

struct Quiet<const ALONE: bool>;

impl<const ALONE: bool> Hosting for Quiet<ALONE> {
    type Protocol = Echo<ALONE>;

    fn state(&self, nodes: &Locked<'_, Echo<ALONE>>) -> Vec<String> {
        nodes.protocols().map(|node| format!("{:?}", node.heard)).collect()
    }
}

/// A log that is as durable as a test says, and what was sent to other processes.
#[derive(Default)]
struct World {
    durable: Durable,
    is_suspended: bool,
    groups: u64,
    sent: Vec<(ProcessId, Slot)>,
}

impl Environment for World {
    fn append(&mut self, _: KeyspaceId, _: PartitionId, records: &[u8]) -> u64 {
        assert!(!records.is_empty());
        self.groups += 1;
        self.groups
    }

    fn is_suspended(&self) -> bool {
        self.is_suspended
    }

    fn durable(&self) -> Durable {
        self.durable
    }

    fn send(&mut self, to: ProcessId, _: NodeId, slot: Slot, _: &dyn Encode, _: Option<Instant>) {
        self.sent.push((to, slot));
    }

    fn spool(&mut self, _: KeyspaceId, _: PartitionId, _: SpoolRequest) -> Option<(u64, Option<Vec<u8>>)> {
        unreachable!("nothing is spilled")
    }

    fn malformed(&mut self, error: Malformed) {
        panic!("{error}");
    }
}

#[derive(Default)]
struct Answers(ReplyBuf);

impl crate::Replies for Answers {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        &mut self.0
    }
}

const KEYSPACE: KeyspaceId = KeyspaceId(3);

fn address(process: u16, partition: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KEYSPACE, PartitionId(partition)) }
}

/// The coordinator of process 1 with partition 0; partition 1 is on process 2.
fn hosted() -> Box<dyn Hosted> {
    hosted_as::<false>()
}

fn hosted_as<const ALONE: bool>() -> Box<dyn Hosted> {
    let regions = vec![RegionShape { name: "a".to_owned(), processes: vec![1, 2] }];
    let cluster = ClusterShape { seed: HashSeed(1), regions };
    let life = Life {
        process: ProcessId(1),
        region: RegionId(0),
        incarnation: Incarnation(1),
        durability: Durability::Written,
        accept_loss: false,
        region_queue_bytes: 0,
        region_spill_bytes: 0,
    };
    let place = Place { cluster: &cluster, keyspace: KEYSPACE, life };
    let echo = |others| Echo::<ALONE> { others, heard: Vec::new(), unlogged: Unlogged::default() };
    let others = vec![address(1, 0), address(2, 1)];
    let mut nodes = Nodes::new(&place, place.coordinator(), echo(others));
    assert!(nodes.host(address(1, 0), echo(Vec::new())) && !nodes.host(address(1, 0), echo(Vec::new())));
    Box::new(HostedNodes::new(nodes, Quiet::<ALONE>))
}

#[test]
fn what_an_instance_says_waits_for_its_records_also_inside_a_process() {
    let (hosted, mut world, mut answers) = (hosted(), World::default(), Answers::default());
    let mut random = Rng::with_seed(1);
    let mut turn = Turn { now: Now::default(), random: &mut random, replies: &mut answers };
    let request = Request::Unwatch { session: SessionId(1) };
    let gate = hosted.submit(&mut vec![(RequestId(7), request)], &mut world, &mut turn);
    assert_eq!((gate, hosted.pending().is_left), (Gate::OPEN, true));
    hosted.pump(false, &mut world, &mut turn);
    assert_eq!(world.sent, [(ProcessId(2), address(2, 1).slot)]);
    assert_eq!((hosted.state(), world.groups), (vec!["[]".to_owned(), "[1]".to_owned()], 1));
    let pending = hosted.pending();
    assert_eq!((pending.work, pending.is_left), (LogWork { write: true, sync: false }, false));
    let log = |durable| LogState { durable, is_suspended: false };
    assert!(!pending.awaits(log(world.durable)));
    world.durable.written = 1;
    assert!(pending.awaits(log(world.durable)));
    hosted.pump(false, &mut world, &mut turn);
    assert_eq!(hosted.state(), ["[2]", "[1]"]);
    let pending = hosted.pending();
    assert_eq!((pending.work, pending.deadline, pending.is_left), (LogWork::default(), None, false));
    assert!(!pending.awaits(log(world.durable)));
    assert!(!answers.0.is_empty());
}

#[test]
fn a_log_is_recovered_by_the_instances_that_wrote_it() {
    let hosted = hosted();
    let record = [[8, 0, 0, 0].as_slice(), &[1; 8]].concat();
    assert_eq!(hosted.recover(PartitionId(0), &[record.clone(), record].concat()), Ok(()));
    assert_eq!(hosted.state(), ["[]", "[0, 0]"]);
    assert!(hosted.recover(PartitionId(0), &[9, 0, 0, 0, 1]).unwrap_err().contains("cut"));
    assert!(hosted.recover(PartitionId(1), &[]).unwrap_err().contains("not kept here any more"));
    let mut random = Rng::with_seed(1);
    let mut replies = NoReplies::default();
    hosted.recovered(true, &mut Turn { now: Now::default(), random: &mut random, replies: &mut replies });
    assert_eq!(hosted.partitions(), [0]);
}

#[test]
fn while_the_log_refuses_its_records_a_replica_hears_nothing_and_nothing_piles_up() {
    let (mut hosted, mut world, mut answers) = (hosted(), World::default(), Answers::default());
    let mut random = Rng::with_seed(1);
    let mut turn = Turn { now: Now::default(), random: &mut random, replies: &mut answers };
    let mut ask = |hosted: &mut Box<dyn Hosted>, world: &mut World| {
        let request = Request::Unwatch { session: SessionId(1) };
        hosted.submit(&mut vec![(RequestId(7), request)], world, &mut turn);
        hosted.pump(false, world, &mut turn);
        hosted.state()
    };
    world.is_suspended = true;
    assert_eq!(ask(&mut hosted, &mut world), ["[]", "[1]"], "it has nothing that the log lacks, and hears");
    for _ in 0..3 {
        assert_eq!(ask(&mut hosted, &mut world), ["[]", "[1]"]);
    }
    assert_eq!((world.groups, world.sent.len()), (1, 4), "the coordinator goes on");
    (world.is_suspended, world.durable.written) = (false, 1);
    assert_eq!(ask(&mut hosted, &mut world), ["[2]", "[1, 1]"]);
}

#[test]
fn while_the_log_refuses_its_records_a_replica_that_reads_alone_hears_reads_and_tells_what_the_log_has() {
    let (mut hosted, mut world, mut answers) = (hosted_as::<true>(), World::default(), Answers::default());
    let mut random = Rng::with_seed(1);
    let mut turn = Turn { now: Now::default(), random: &mut random, replies: &mut answers };
    let session = SessionId(1);
    let mut ask = |hosted: &mut Box<dyn Hosted>, world: &mut World, request: Request<'_>| {
        hosted.submit(&mut vec![(RequestId(7), request)], world, &mut turn);
        hosted.pump(false, world, &mut turn);
        hosted.state()
    };
    ask(&mut hosted, &mut world, Request::Unwatch { session });
    world.durable.written = 1;
    assert_eq!(ask(&mut hosted, &mut world, Request::Unwatch { session }), ["[2]", "[1, 1]"]);
    world.is_suspended = true;
    for reads in 1..3 {
        let reply = format!("[2{}]", ", 10".repeat(reads));
        let expected = vec![reply, "[1, 1]".to_owned()];
        assert_eq!(
            ask(&mut hosted, &mut world, Request::Close { session }),
            expected,
            "one of two is logged"
        );
        assert_eq!(ask(&mut hosted, &mut world, Request::Unwatch { session }), expected, "no write is heard");
    }
    (world.is_suspended, world.durable.written) = (false, 2);
    assert_eq!(ask(&mut hosted, &mut world, Request::Close { session })[0], "[2, 10, 10, 20, 2]");
}

#[test]
fn a_request_may_write_if_a_step_of_it_may() {
    use datatypes::{Operation, counter};
    let keyed = |operation| crate::KeyedOperation {
        key: b"k",
        hash: types::KeyHash(1),
        operation: Operation::Counter(operation),
        blind: false,
    };
    let session = SessionId(1);
    let read = crate::Step::Key(keyed(counter::Operation::Get));
    let write = crate::Step::Key(keyed(counter::Operation::Add { by: 1 }));
    let many = |steps: &[crate::Step<'_>]| Request::Operate { session, steps }.may_write();
    assert!(many(&[read.clone(), write.clone()]) && many(&[crate::Step::Flush]));
    assert!(!many(&[read.clone(), crate::Step::Count]));
    let own = |words: &[&[u8]], steps: &[crate::Step<'_>]| Request::Own { session, words, steps }.may_write();
    assert!(own(&[b"BRANCH", b"name", b"x"], &[]) && own(&[b"AT", b"s"], &[write]));
    assert!(!own(&[b"BRANCH", b"HEADS"], &[]) && !own(&[b"AT", b"s"], &[read]));
}

/// Finds one key that has expired and one that is to go, at every call.
struct Tidy;

impl Hosting for Tidy {
    type Protocol = Echo;

    const HAS_CHORES: bool = true;

    fn add_maintenance(&self, node: &Echo, _: &mut Turn<'_>, tasks: &mut Vec<MaintenanceTask>) {
        if node.others.is_empty() {
            tasks.push(MaintenanceTask::Expire(b"old".as_slice().into()));
            tasks.push(MaintenanceTask::Evict(b"cold".as_slice().into()));
        }
    }

    fn state(&self, nodes: &Locked<'_, Echo>) -> Vec<String> {
        nodes.protocols().map(|node| format!("{:?}", node.heard)).collect()
    }
}

#[test]
fn maintenance_runs_now_and_then_and_clients_see_nothing_of_it() {
    let cluster = ClusterShape { seed: HashSeed(1), regions: Vec::new() };
    let life = Life {
        process: ProcessId(1),
        region: RegionId(0),
        incarnation: Incarnation(1),
        durability: Durability::Written,
        accept_loss: false,
        region_queue_bytes: 0,
        region_spill_bytes: 0,
    };
    let place = Place { cluster: &cluster, keyspace: KEYSPACE, life };
    let echo = |others| Echo { others, heard: Vec::new(), unlogged: Unlogged::default() };
    let mut nodes = Nodes::new(&place, place.coordinator(), echo(vec![address(1, 0)]));
    assert!(nodes.host(address(1, 0), echo(Vec::new())));
    let mut hosted = HostedNodes::new(nodes, Tidy);
    let (mut world, mut answers) = (World::default(), Answers::default());
    let mut random = Rng::with_seed(1);
    let mut pump = |hosted: &mut HostedNodes<Tidy>, world: &mut World, millis: u64| {
        let now = Now { instant: Instant(millis * 1000), ..Now::default() };
        hosted.pump(false, world, &mut Turn { now, random: &mut random, replies: &mut answers });
        (hosted.state()[1].len(), hosted.holdings().evicted)
    };
    world.is_suspended = true;
    assert_eq!(pump(&mut hosted, &mut world, 0), ("[]".len(), 0), "nothing could be logged");
    world.is_suspended = false;
    assert_eq!(pump(&mut hosted, &mut world, 50), ("[]".len(), 0), "it is not time");
    assert_eq!(pump(&mut hosted, &mut world, 100), ("[1, 1]".len(), 1));
    world.durable.written = 1;
    assert_eq!(
        pump(&mut hosted, &mut world, 200),
        ("[1, 1, 1, 1]".len(), 2),
        "what was asked before is done"
    );
    assert_eq!(hosted.pending().deadline, Some(Instant(202_000)));
    assert!(answers.0.is_empty(), "no client gets a reply");
}
