//! Sites whose records lie in partitions: over a network that delays, with processes that end and begin again from what of
//! their logs reached the disk.

mod cut;

use anabranch_branch::site::{Merging, Options, Topology};
use anabranch_branch::{Instance, Keep, Mutant, Mutants};
use datatypes::{Operation, register};
use protocol::{Durability, Durable, Input, KeyedOperation, Now, Packet, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{
    Address, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reply, ReplyBuf,
    ReplySink, RequestId, Rng, SessionId, Slot, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);
const PARTITIONS: u16 = 3;

/// A reply, in short.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Said {
    Done,
    Number(i64),
    Text(String),
    Absent,
    Refused(String),
    Nothing,
}

impl Said {
    fn of(reply: &ReplyBuf) -> Said {
        match reply.first() {
            Some(Reply::Simple(_)) => Said::Done,
            Some(Reply::Integer(number)) => Said::Number(number),
            Some(Reply::Bulk(bytes)) => Said::Text(String::from_utf8_lossy(bytes).into()),
            Some(Reply::Null) => Said::Absent,
            Some(Reply::Error(error)) => Said::Refused(error.to_string()),
            other => panic!("{other:?}"),
        }
    }
}

#[derive(Default)]
struct Inbox(BTreeMap<RequestId, ReplyBuf>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

/// A process with one instance, and its log: what is written, and how much of it is synced.
struct Host {
    replica: Option<Replica<Instance>>,
    log: Vec<u8>,
    synced: usize,
    life: u32,
}

/// Process 10 r is the site of region r, process 10 r + p its record partition p.
struct World {
    topology: Topology,
    options: Options,
    hosts: BTreeMap<u16, Host>,
    wire: BTreeMap<(Instant, u64), (NodeId, Address, Vec<u8>)>,
    sent: u64,
    now: Instant,
    random: Rng,
    inbox: Inbox,
    request_count: u64,
}

fn address(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KEYSPACE, PartitionId(process % 10)) }
}

impl World {
    fn new(regions: u16, options: Options, seed: u64) -> Self {
        let sites: Vec<u16> = (1..=regions).map(|region| region * 10).collect();
        let records = |site: &u16| (1..=PARTITIONS).map(|partition| address(site + partition)).collect();
        let topology = Topology {
            sites: sites.iter().map(|site| address(*site)).collect(),
            partitions: sites.iter().map(records).collect(),
            keyspace: KEYSPACE,
        };
        let mut world = World {
            topology,
            options,
            hosts: BTreeMap::new(),
            wire: BTreeMap::new(),
            sent: 0,
            now: Instant(1_000_000),
            random: Rng::with_seed(seed),
            inbox: Inbox::default(),
            request_count: 0,
        };
        for process in sites.iter().flat_map(|site| *site..=site + PARTITIONS) {
            world.hosts.insert(process, Host { replica: None, log: Vec::new(), synced: 0, life: 0 });
            world.start(process);
        }
        world.pass(Duration::from_millis(500));
        world
    }

    fn instance(&self, process: u16, life: Incarnation) -> Instance {
        let region = usize::from(process / 10 - 1);
        match process % 10 {
            0 => Instance::site(self.topology.clone(), region, life, self.options),
            _ => Instance::part(self.topology.sites[region], self.options.durability, self.options.mutants),
        }
    }

    /// Begins a life from what is in the log.
    fn start(&mut self, process: u16) {
        self.start_with(process, true);
    }

    /// The same with a log that is complete, or is not.
    fn start_with(&mut self, process: u16, complete: bool) {
        let host = self.hosts.get_mut(&process).expect("it is a process");
        host.life += 1;
        let (life, log) = (Incarnation(host.life), host.log.clone());
        let replica = Replica::new(address(process).at(life), self.instance(process, life));
        self.hosts.get_mut(&process).expect("it is a process").replica = Some(replica);
        let mut rest = &log[..];
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            self.input(process, Input::Recover(&after[..len]));
            rest = &after[len..];
        }
        self.input(process, Input::Recovered { complete });
    }

    fn kill(&mut self, process: u16) {
        self.hosts.get_mut(&process).expect("it is a process").replica = None;
    }

    /// Ends a life, and takes what was not synced.
    fn cut_power(&mut self, process: u16) {
        self.kill(process);
        let host = self.hosts.get_mut(&process).expect("it is a process");
        host.log.truncate(host.synced);
    }

    fn lose_disk(&mut self, process: u16) {
        self.kill(process);
        let host = self.hosts.get_mut(&process).expect("it is a process");
        (host.log, host.synced) = (Vec::new(), 0);
    }

    fn time(&self) -> Now {
        Now { wall: WallTime(self.now.0), instant: self.now }
    }

    fn input(&mut self, process: u16, input: Input<'_, Instance>) {
        let now = self.time();
        let host = self.hosts.get_mut(&process).expect("it is a process");
        if let Some(replica) = &mut host.replica {
            replica.step(now, &mut vec![input], &mut self.random, &mut self.inbox);
        }
        self.release(process);
    }

    fn release(&mut self, process: u16) {
        let host = self.hosts.get_mut(&process).expect("it is a process");
        let Some(replica) = &mut host.replica else { return };
        host.log.extend_from_slice(replica.records());
        replica.appended(1);
        if replica.gate().synced > 0 {
            host.synced = host.log.len();
        }
        replica.release(self.now, Durable { written: u64::MAX, synced: u64::MAX });
        let from = replica.node();
        let packets: Vec<_> = replica.packets().collect();
        for (to, packet) in packets {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            let delay = Duration::from_micros(self.random.u64(500..20_000));
            self.sent += 1;
            self.wire.insert((self.now + delay, self.sent), (from, to, bytes));
        }
    }

    /// Lets so much time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let lives = self.hosts.values().filter_map(|host| host.replica.as_ref());
            let timer = lives.filter_map(Replica::deadline).min();
            let Some(next) = arrival.into_iter().chain(timer).min().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                let packet = Packet::decode(&mut types::Reader::new(&bytes)).expect("it was encoded");
                let now = self.time();
                let host = self.hosts.get_mut(&to.process.0).expect("it is a process");
                if let Some(replica) = &mut host.replica {
                    let received = replica.receive(now, from, packet, &mut self.random, &mut self.inbox);
                    assert_eq!(received, Ok(()));
                }
                self.release(to.process.0);
            }
            for process in self.hosts.keys().copied().collect::<Vec<u16>>() {
                let now = self.time();
                let host = self.hosts.get_mut(&process).expect("it is a process");
                let is_due = |replica: &&mut Replica<Instance>| {
                    replica.deadline().is_some_and(|deadline| deadline <= now.instant)
                };
                if let Some(replica) = host.replica.as_mut().filter(is_due) {
                    replica.fire(now, &mut self.random, &mut self.inbox);
                    self.release(process);
                }
            }
        }
        self.now = until;
    }

    fn ask(&mut self, process: u16, request: Request<'_>) -> RequestId {
        self.request_count += 1;
        let id = RequestId(self.request_count);
        self.input(process, Input::Request { id, request });
        id
    }

    /// The reply, once it is there; nothing after five seconds.
    fn reply(&mut self, id: RequestId) -> Said {
        for _ in 0..500 {
            if let Some(reply) = self.inbox.0.remove(&id) {
                return Said::of(&reply);
            }
            self.pass(Duration::from_millis(10));
        }
        Said::Nothing
    }

    fn one(&mut self, process: u16, key: &str, operation: Operation<'_>) -> RequestId {
        let key = key.as_bytes();
        let operation = KeyedOperation { key, hash: HashSeed(1).hash(key), blind: false, operation };
        self.ask(process, Request::One { session: SessionId(7), operation })
    }

    fn set(&mut self, process: u16, key: &str, value: &str) {
        let write = Operation::Register(register::Operation::Set {
            value: value.as_bytes(),
            deadline: register::Deadline::Clear,
            condition: register::Condition::Always,
            reply: register::SetReply::Status,
        });
        let id = self.one(process, key, write);
        assert_eq!(self.reply(id), Said::Done, "SET {key} {value}");
    }

    fn increment(&mut self, process: u16, key: &str) -> Option<i64> {
        let id = self.one(process, key, Operation::Register(register::Operation::Increment { by: 1 }));
        match self.reply(id) {
            Said::Number(number) => Some(number),
            _ => None,
        }
    }

    fn get(&mut self, process: u16, key: &str) -> Said {
        let id = self.one(process, key, Operation::Register(register::Operation::Get));
        self.reply(id)
    }

    fn number(&mut self, process: u16, key: &str) -> i64 {
        match self.get(process, key) {
            Said::Text(number) => number.parse().expect("a number"),
            Said::Absent => 0,
            other => panic!("{key}: {other:?}"),
        }
    }

    fn keys_of(&self, process: u16) -> usize {
        let replica = self.hosts[&process].replica.as_ref().expect("it lives");
        replica.protocol().as_part().expect("it is a record partition").keys()
    }

    fn near(&self, process: u16) -> usize {
        let replica = self.hosts[&process].replica.as_ref().expect("it lives");
        replica.protocol().as_site().expect("it is a site").keyspace().census().keys
    }
}

fn options() -> Options {
    let every = Duration::from_millis(20);
    Options { keep: Keep::states(0), near: 2, merging: Merging::Auto { every }, ..Options::default() }
}

#[test]
fn keys_lie_in_partitions_and_hardly_any_of_them_beside_the_state_dag() {
    let mut world = World::new(1, options(), 1);
    for key in 0..60 {
        world.set(10, &format!("k{key}"), &key.to_string());
    }
    for key in 0..60 {
        assert_eq!(world.number(10, &format!("k{key}")), key);
    }
    world.pass(Duration::from_secs(1));
    let held: Vec<usize> = (11..=13).map(|process| world.keys_of(process)).collect();
    assert_eq!(held.iter().sum::<usize>(), 60, "{held:?}");
    assert!(held.iter().all(|keys| *keys > 5), "{held:?}");
    assert!(world.near(10) <= 2);
}

/// Requests of a session are served in their order, though the second needs nothing that is away.
#[test]
fn a_session_does_not_overtake_itself() {
    let mut world = World::new(1, options(), 2);
    world.set(10, "far", "1");
    world.set(10, "x", "1");
    world.set(10, "near", "1");
    world.pass(Duration::from_secs(1));
    world.number(10, "x");
    world.number(10, "near");
    let add = Operation::Register(register::Operation::Increment { by: 1 });
    let first = world.one(10, "far", add.clone());
    let second = world.one(10, "near", add);
    assert!(world.inbox.0.is_empty(), "neither is served before what the first needs has come");
    assert_eq!(world.reply(first), Said::Number(2));
    assert_eq!(world.reply(second), Said::Number(2));
}

#[test]
fn a_partition_that_does_not_answer_refuses_its_keys_and_no_others() {
    let mut world = World::new(1, options(), 3);
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.pass(Duration::from_secs(1));
    let lost = world.keys_of(12);
    world.kill(12);
    world.pass(Duration::from_secs(2));
    let replies: Vec<Said> = keys.iter().map(|key| world.get(10, key)).collect();
    let served = replies.iter().filter(|reply| **reply == Said::Text("1".into())).count();
    let refusal = |reply: &&Said| matches!(reply, Said::Refused(text) if text.contains("UNAVAILABLE record partition 1"));
    let refused = replies.iter().filter(refusal).count();
    assert_eq!(served + refused, keys.len(), "{replies:?}");
    assert!(refused + 2 >= lost && refused <= lost && lost > 5, "{refused} of {lost}");
    world.start(12);
    world.pass(Duration::from_secs(1));
    keys.iter().for_each(|key| assert_eq!(world.number(10, key), 1));
}

/// As in Redis, `EXEC` ends a watch whatever comes of it.
#[test]
fn an_exec_that_is_refused_ends_the_watch() {
    let mut world = World::new(1, options(), 3);
    let keys: Vec<String> = (0..40).map(|key| format!("k{key}")).collect();
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.kill(12);
    world.pass(Duration::from_secs(2));
    let (served, refused): (Vec<_>, Vec<_>) =
        keys.iter().partition(|key| world.get(10, key) == Said::Text("1".into()));
    let (session, hash) = (SessionId(7), HashSeed(1));
    let (watched, away) = (served[0].as_bytes(), refused[0].as_bytes());
    let said = |world: &mut World, request: Request<'_>| {
        let id = world.ask(10, request);
        world.reply(id)
    };
    assert_eq!(
        said(&mut world, Request::Watch { session, keys: &[(watched, hash.hash(watched))] }),
        Said::Done
    );
    let operation = Operation::Register(register::Operation::Get);
    let look = [Step::Key(KeyedOperation { key: away, hash: hash.hash(away), blind: false, operation })];
    let exec = Request::Many { session, steps: &look, watched: true, multi: true };
    assert!(matches!(said(&mut world, exec), Said::Refused(_)));
    world.set(10, served[0], "2");
    let begun = said(&mut world, Request::Own { session, words: &[b"BRANCH", b"BEGIN"], steps: &[] });
    assert!(matches!(begun, Said::Text(_)), "{begun:?}");
    world.set(10, served[0], "3");
    let committed = said(&mut world, Request::Own { session, words: &[b"BRANCH", b"COMMIT"], steps: &[] });
    assert_eq!(committed, Said::Absent, "nothing was watched, and nothing written");
}

#[test]
fn a_partition_whose_disk_is_lost_does_not_answer_with_nothing() {
    let mut world = World::new(1, options(), 4);
    let keys: Vec<String> = (0..20).map(|key| format!("k{key}")).collect();
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.pass(Duration::from_secs(1));
    world.lose_disk(11);
    world.start(11);
    world.pass(Duration::from_secs(1));
    let replies: BTreeSet<Said> = keys.iter().map(|key| world.get(10, key)).collect();
    let has_lost = |reply: &Said| matches!(reply, Said::Refused(text) if text.contains("has lost its disk"));
    assert!(replies.iter().any(has_lost), "{replies:?}");
    assert!(replies.iter().all(|reply| has_lost(reply) || *reply == Said::Text("1".into())), "{replies:?}");
}

/// Two sites count at the same keys while processes of both lose power.
fn counted(seed: u64, options: Options) -> Result<(), String> {
    let mut world = World::new(2, options, seed);
    let (keys, mut counts) = (["a", "b", "c", "d", "e", "f", "g", "h"], BTreeMap::<&str, i64>::new());
    let mut unknown = BTreeMap::<&str, i64>::new();
    for round in 0..60 {
        let key = keys[world.random.usize(0..keys.len())];
        let site = if world.random.bool() { 10 } else { 20 };
        match world.increment(site, key) {
            Some(_) => *counts.entry(key).or_default() += 1,
            None => *unknown.entry(key).or_default() += 1,
        }
        if round % 7 == 6 {
            let process = site + world.random.u16(1..=PARTITIONS);
            world.cut_power(process);
            world.pass(Duration::from_millis(200));
            world.start(process);
        }
        if round % 11 == 10 {
            // What a reply rests on is on the disk; orders to partitions may not be.
            world.cut_power(site);
            world.start(site);
        }
    }
    world.pass(Duration::from_secs(8));
    for site in [10, 20] {
        for key in keys {
            let (least, found) = (counts.get(key).copied().unwrap_or(0), world.number(site, key));
            let most = least + unknown.get(key).copied().unwrap_or(0);
            if !(least..=most).contains(&found) {
                return Err(format!(
                    "seed {seed}, site {site}: {key} is {found}, and was counted {least} to {most}"
                ));
            }
        }
    }
    Ok(())
}

#[test]
fn increments_are_counted_once_whoever_loses_power() {
    for seed in 1..=8 {
        let options = Options { durability: Durability::Synced, ..options() };
        assert_eq!(counted(seed, options), Ok(()));
    }
}

#[test]
fn answers_that_do_not_know_what_was_written_since_are_caught() {
    let options =
        Options { durability: Durability::Synced, mutants: Mutant::StaleAnswers.into(), ..options() };
    assert!((1..=8).any(|seed| counted(seed, options).is_err()));
}

#[test]
fn a_site_without_anything_takes_over_the_records_of_another_ones_partitions() {
    let mut world = World::new(2, options(), 5);
    for key in 0..30 {
        world.set(10, &format!("k{key}"), &key.to_string());
    }
    world.pass(Duration::from_secs(2));
    world.lose_disk(20);
    world.start(20);
    world.pass(Duration::from_secs(3));
    for key in 0..30 {
        assert_eq!(world.number(20, &format!("k{key}")), key);
    }
    assert!((21..=23).map(|process| world.keys_of(process)).sum::<usize>() >= 30);
    assert_eq!(world.increment(20, "k7"), Some(8));
    world.pass(Duration::from_secs(1));
    assert_eq!(world.number(10, "k7"), 8);
}

/// What clients read after a power cut that took what their last replies rest on; `None` if the disk had that by
/// chance.
fn read_after_a_cut(wait: u64) -> Option<Vec<i64>> {
    let mut world = World::new(1, options(), 6);
    let keys = ["a", "b", "c"];
    keys.iter().for_each(|key| world.set(10, key, "1"));
    world.pass(Duration::from_millis(1000 + wait));
    for host in world.hosts.values_mut() {
        host.synced = host.log.len();
    }
    let synced = world.hosts[&10].synced;
    keys.iter().for_each(|key| world.set(10, key, "2"));
    world.pass(Duration::from_millis(30));
    if world.hosts[&10].synced > synced {
        return None;
    }
    world.cut_power(10);
    world.start(10);
    world.pass(Duration::from_secs(1));
    // Other keys are written, so that states take the places of those that were lost.
    (0..6).for_each(|key| world.set(10, &format!("other{key}"), "1"));
    Some(keys.map(|key| world.number(10, key)).to_vec())
}

/// Orders that a site sent to its partitions, and that its log lost, are seen by nobody: its next life's labels are
/// others.
#[test]
fn what_a_log_lost_is_not_seen_though_partitions_have_it() {
    let right: Vec<Vec<i64>> = (0..10).filter_map(|step| read_after_a_cut(20 * step)).collect();
    assert!(!right.is_empty() && right.iter().all(|read| *read == [1, 1, 1]), "{right:?}");
}

/// What clients read when all record partitions have lost power, and with it what they had not synced.
fn read_after_partitions_lost_power(mutants: Mutants) -> BTreeSet<Said> {
    let mut world = World::new(1, Options { mutants, ..options() }, 8);
    let keys = ["a", "b", "c", "d", "e", "f"];
    keys.iter().for_each(|key| world.set(10, key, "1"));
    // They say what they have on their disks, and the site forgets the orders that it sent so far.
    world.pass(Duration::from_secs(2));
    (11..=13).for_each(|process| world.cut_power(process));
    (11..=13).for_each(|process| world.start(process));
    world.pass(Duration::from_secs(1));
    keys.iter().map(|key| world.get(10, key)).collect()
}

#[test]
fn orders_that_are_said_to_be_on_the_disk_and_are_not_are_caught() {
    let written = BTreeSet::from([Said::Text("1".into())]);
    assert_eq!(read_after_partitions_lost_power(Mutants::default()), written);
    assert_ne!(read_after_partitions_lost_power(Mutant::UnsyncedOrders.into()), written);
}

/// And it is freed: partitions keep one version of every key once all is collected.
#[test]
fn what_a_log_lost_is_freed() {
    let mut world = World::new(1, options(), 7);
    for round in 0..12 {
        for key in 0..10 {
            world.set(10, &format!("k{key}"), &round.to_string());
        }
        world.pass(Duration::from_millis(30));
        world.cut_power(10);
        world.start(10);
        world.pass(Duration::from_millis(300));
    }
    // Which keys no disk had by chance does not matter.
    (0..10).for_each(|key| world.set(10, &format!("k{key}"), "last"));
    world.pass(Duration::from_secs(5));
    let part = |process: &u16| {
        let replica = world.hosts[process].replica.as_ref().expect("it lives");
        let part = replica.protocol().as_part().expect("it is a record partition");
        (part.keys(), part.versions())
    };
    let held: Vec<(usize, usize)> = [11, 12, 13].iter().map(part).collect();
    assert_eq!(held.iter().map(|held| held.0).sum::<usize>(), 10, "{held:?}");
    assert!(held.iter().all(|(keys, versions)| keys == versions), "{held:?}");
}
