//! Sites that talk to one another over a network that delays and cuts, and that restart from their logs.

mod cut;

use anabranch_branch::site::{Collecting, Local, Merging, Options, Topology};
use anabranch_branch::{Instance, Keep, Mutant, Mutants, StateId};
use datatypes::{Operation, register};
use protocol::{Durable, Input, KeyedOperation, Now, Packet, Protocol, Replica, Replies, Request, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{
    Address, ErrorCode, HashSeed, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reply,
    ReplyBuf, ReplySink, RequestId, Rng, SessionId, Slot, WallTime, Wire,
};

const KEYSPACE: KeyspaceId = KeyspaceId(1);

#[derive(Default)]
struct Inbox(BTreeMap<RequestId, ReplyBuf>);

impl Replies for Inbox {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.0.entry(id).or_default()
    }
}

struct World {
    topology: Topology,
    options: Options,
    sites: Vec<Replica<Instance>>,
    /// Each site's log: every record behind its length.
    logs: Vec<Vec<u8>>,
    wire: BTreeMap<(Instant, u64), (NodeId, Address, Vec<u8>)>,
    sent: u64,
    cut: BTreeSet<(usize, usize)>,
    /// Between sites, at most.
    slowest: Duration,
    now: Instant,
    random: Rng,
    inbox: Inbox,
    request_count: u64,
}

fn address(site: usize) -> Address {
    Address { process: ProcessId(site as u16 + 1), slot: Slot::replica(KEYSPACE, PartitionId(0)) }
}

impl World {
    fn new(count: usize, options: Options, seed: u64) -> Self {
        let topology = Topology::of_sites((0..count).map(address).collect(), KEYSPACE);
        let mut world = World {
            topology,
            options,
            sites: Vec::new(),
            logs: vec![Vec::new(); count],
            wire: BTreeMap::new(),
            sent: 0,
            cut: BTreeSet::new(),
            slowest: Duration::from_millis(20),
            now: Instant(1_000_000),
            random: Rng::with_seed(seed),
            inbox: Inbox::default(),
            request_count: 0,
        };
        for site in 0..count {
            let replica = world.fresh(site, 1);
            world.sites.push(replica);
            world.input(site, Input::Recovered { complete: true });
        }
        // Each hears that the others have nothing either.
        world.pass(Duration::from_millis(100));
        world
    }

    fn fresh(&self, site: usize, life: u32) -> Replica<Instance> {
        let node = address(site).at(Incarnation(life));
        Replica::new(node, Instance::site(self.topology.clone(), site, Incarnation(life), self.options))
    }

    fn time(&self) -> Now {
        Now { wall: WallTime(self.now.0), instant: self.now }
    }

    fn input(&mut self, site: usize, input: Input<'_, Instance>) {
        let now = self.time();
        self.sites[site].step(now, &mut vec![input], &mut self.random, &mut self.inbox);
        self.release(site);
    }

    fn release(&mut self, site: usize) {
        let replica = &mut self.sites[site];
        self.logs[site].extend_from_slice(replica.records());
        replica.appended(1);
        replica.release(self.now, Durable { written: u64::MAX, synced: u64::MAX });
        let from = replica.node();
        let packets: Vec<_> = replica.packets().collect();
        for (to, packet) in packets {
            let other = usize::from(to.process.0 - 1);
            if self.cut.contains(&(site.min(other), site.max(other))) {
                continue;
            }
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            let delay = Duration::from_micros(self.random.u64(500..self.slowest.as_micros() as u64));
            self.sent += 1;
            self.wire.insert((self.now + delay, self.sent), (from, to, bytes));
        }
    }

    /// Lets so much time pass.
    fn pass(&mut self, time: Duration) {
        let until = self.now + time;
        loop {
            let arrival = self.wire.keys().next().map(|(at, _)| *at);
            let timer = self.sites.iter().filter_map(Replica::deadline).min();
            let Some(next) = arrival.into_iter().chain(timer).min().filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            while let Some(entry) = self.wire.first_entry().filter(|entry| entry.key().0 <= self.now) {
                let (from, to, bytes) = entry.remove();
                let site = usize::from(to.process.0 - 1);
                let packet = Packet::decode(&mut types::Reader::new(&bytes)).expect("it was encoded");
                let now = self.time();
                let received = self.sites[site].receive(now, from, packet, &mut self.random, &mut self.inbox);
                assert_eq!(received, Ok(()));
                self.release(site);
            }
            for site in 0..self.sites.len() {
                if self.sites[site].deadline().is_some_and(|deadline| deadline <= self.now) {
                    let now = self.time();
                    self.sites[site].fire(now, &mut self.random, &mut self.inbox);
                    self.release(site);
                }
            }
        }
        self.now = until;
    }

    fn ask(&mut self, site: usize, request: Request<'_>) -> ReplyBuf {
        self.request_count += 1;
        let id = RequestId(self.request_count);
        self.input(site, Input::Request { id, request });
        self.inbox.0.remove(&id).unwrap_or_default()
    }

    fn increment(&mut self, site: usize, keys: &[&str]) {
        let steps: Vec<Step<'_>> = keys
            .iter()
            .map(|key| step(key, Operation::Register(register::Operation::Increment { by: 1 })))
            .collect();
        let reply = self
            .ask(site, Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true });
        assert!(matches!(reply.first(), Some(Reply::Integer(_))), "{reply:?}");
    }

    fn number(&mut self, site: usize, key: &str) -> i64 {
        let steps = [step(key, Operation::Register(register::Operation::Get))];
        let reply = self
            .ask(site, Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true });
        match reply.first() {
            Some(Reply::Bulk(bytes)) => String::from_utf8_lossy(bytes).parse().expect("a number"),
            Some(Reply::Null) => 0,
            other => panic!("{other:?}"),
        }
    }

    /// Ends a site's life, and the next one finds an empty disk.
    fn lose(&mut self, site: usize) {
        self.logs[site].clear();
        self.restart(site);
    }

    /// True if every other site has what this one has.
    fn is_received(&self, site: usize) -> bool {
        self.sites[site].protocol().as_site().expect("it is a site").unreceived() == 0
    }

    fn is_joining(&self, site: usize) -> bool {
        self.sites[site].protocol().as_site().expect("it is a site").is_joining()
    }

    /// Ends a site's life and begins the next one from its log.
    fn restart(&mut self, site: usize) {
        self.restart_from(site, &[]);
    }

    /// The same from a checkpoint and the log behind it.
    fn restart_from(&mut self, site: usize, checkpoint: &[Vec<u8>]) {
        self.begin_life(site, checkpoint, true);
    }

    /// A site's next life begins from a checkpoint and the log, of which something is missing unless it is complete.
    fn begin_life(&mut self, site: usize, checkpoint: &[Vec<u8>], complete: bool) {
        let life = self.sites[site].node().incarnation.0 + 1;
        self.sites[site] = self.fresh(site, life);
        for piece in checkpoint {
            self.input(site, Input::Snapshot(piece));
        }
        let log = self.logs[site].clone();
        let mut rest = &log[..];
        while let Some((len, after)) = rest.split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            self.input(site, Input::Recover(&after[..len]));
            rest = &after[len..];
        }
        self.input(site, Input::Recovered { complete });
    }

    /// How many bytes a site keeps for others.
    fn queued(&self, site: usize) -> usize {
        self.sites[site].protocol().as_site().expect("it is a site").queued_bytes()
    }

    /// How many states a site has.
    fn states(&self, site: usize) -> usize {
        self.sites[site].protocol().as_site().expect("it is a site").keyspace().census().states
    }

    fn heads(&self, site: usize) -> Vec<StateId> {
        self.sites[site].protocol().as_site().expect("it is a site").keyspace().heads()
    }
}

fn step<'a>(key: &'a str, operation: Operation<'a>) -> Step<'a> {
    let (key, hash) = (key.as_bytes(), HashSeed(0).hash(key.as_bytes()));
    Step::Key(KeyedOperation { key, hash, operation, blind: false })
}

/// Every increment counts once, whatever is cut, merged and restarted meanwhile.
fn count(seed: u64, sites: usize, loses: bool) {
    let mut random = Rng::with_seed(seed ^ 0xabcdef);
    let every = Duration::from_millis(random.u64(2..60));
    let collect = if random.bool() { Collecting::Optimistic } else { Collecting::Pessimistic };
    let window = [1, 4, 20, 16_000][random.usize(..4)];
    let options = Options {
        keep: Keep::states(0),
        merging: Merging::Auto { every },
        collect,
        window,
        ..Options::default()
    };
    let mut world = World::new(sites, options, seed);
    let mut total = 0;
    let longest = [2_000, 30_000][random.usize(..2)];
    for _ in 0..random.usize(20..300) {
        let site = random.usize(..sites);
        match random.u32(..60) {
            0 => {
                let other = random.usize(..sites);
                world.cut.insert((site.min(other), site.max(other)));
            }
            1 => world.cut.clear(),
            2 => world.restart(site),
            // What it alone had would be lost with it, and clients had read it.
            3 if loses && world.is_received(site) => world.lose(site),
            _ if world.is_joining(site) => {}
            _ => {
                let own = format!("of {site}");
                world.increment(site, &["all", &own]);
                total += 1;
            }
        }
        let pause = random.u64(..longest);
        world.pass(Duration::from_micros(pause));
    }
    world.cut.clear();
    world.pass(Duration::from_secs(20));
    let heads = world.heads(0);
    assert_eq!(heads.len(), 1, "seed {seed}");
    for site in 0..sites {
        assert_eq!(world.heads(site), heads, "seed {seed}, site {site}");
        let own: i64 = (0..sites).map(|owner| world.number(site, &format!("of {owner}"))).sum();
        assert_eq!((world.number(site, "all"), own), (total, total), "seed {seed}, site {site}");
        let states = world.sites[site].protocol().as_site().map(|site| site.keyspace().census().states);
        assert!(states <= Some(3), "seed {seed}: {states:?} states are kept");
    }
}

/// Sites that write without a pause, far from one another, and merge often: two sites have parted from one merge alone, so
/// that no merge is over a base that has to be merged itself.
#[test]
fn merges_of_sites_that_are_far_apart_do_not_cross() {
    let every = Duration::from_millis(10);
    let options =
        Options { keep: Keep::states(100_000), merging: Merging::Auto { every }, ..Options::default() };
    let mut world = World::new(3, options, 7);
    world.slowest = Duration::from_millis(120);
    for round in 0..600 {
        world.increment(round % 3, &["all", &format!("of {}", round % 3)]);
        world.pass(Duration::from_millis(5));
    }
    world.pass(Duration::from_secs(3));
    assert_eq!(world.number(1, "all"), 600);
    let Some(site) = world.sites[1].protocol().as_site() else { panic!("it is a site") };
    let dag = site.keyspace().dag();
    let parents = dag.states().map(|node| dag.parents(node)).filter(|parents| parents.len() > 1);
    let parents: Vec<Vec<StateId>> =
        parents.map(|parents| parents.iter().map(|node| dag.id(*node)).collect()).collect();
    assert!(parents.len() > 20, "{} merges", parents.len());
    for parents in &parents {
        assert_eq!(site.keyspace().fork_points(parents).unwrap().len(), 1);
    }
}

/// Three sites that wrote, each cut off from the others, so much that it receives it in several pieces: they are
/// merged once all of it has come, and not again and again while it comes.
#[test]
fn what_still_comes_is_not_merged_piece_by_piece() {
    let every = Duration::from_millis(10);
    let options = Options {
        keep: Keep::states(1_000_000),
        merging: Merging::Auto { every },
        window: 1_000,
        ..Options::default()
    };
    let mut world = World::new(3, options, 7);
    world.slowest = Duration::from_millis(800);
    (0..3).for_each(|site| world.increment(site, &["all"]));
    world.pass(Duration::from_secs(10));
    let before = merges(&world, 0);
    world.cut.extend([(0, 1), (0, 2), (1, 2)]);
    for round in 0..1_500 {
        (0..3).for_each(|site| world.increment(site, &["all"]));
        if round % 100 == 0 {
            world.pass(Duration::from_millis(10));
        }
    }
    world.cut.clear();
    world.pass(Duration::from_secs(20));
    assert_eq!(world.heads(0).len(), 1);
    for site in 0..3 {
        assert_eq!((world.heads(site), world.number(site, "all")), (world.heads(0), 4_503));
    }
    let made = merges(&world, 0) - before;
    assert!(made <= 4, "{made} merges");
}

/// How many merges there are at a site.
fn merges(world: &World, site: usize) -> usize {
    let dag = world.sites[site].protocol().as_site().expect("it is a site").keyspace().dag();
    dag.states().filter(|node| dag.parents(*node).len() > 1).count()
}

/// Three sites that were cut off count up a number that one of them had set.
fn add_to_a_set_number(seed: u64) {
    let mut world = World::new(3, Options::default(), seed);
    world.increment(0, &["s", "h"]);
    let set = register::Operation::Set {
        value: b"10",
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    let steps = [step("n", Operation::Register(set))];
    world.ask(0, Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true });
    world.pass(Duration::from_millis(150));
    world.cut = [(0, 1), (0, 2), (1, 2)].into();
    for site in [0, 1, 2] {
        for _ in 0..100 {
            world.increment(site, &["n"]);
            world.pass(Duration::from_micros(200));
        }
    }
    world.cut.clear();
    world.pass(Duration::from_secs(5));
    for site in 0..3 {
        assert_eq!(world.heads(site), world.heads(0), "seed {seed}, site {site}");
        assert_eq!(world.number(site, "n"), 310, "seed {seed}, site {site}");
    }
}

#[test]
fn a_number_that_was_set_is_added_to_on_three_branches() {
    (0..20).for_each(add_to_a_set_number);
}

#[test]
fn increments_at_cut_and_restarted_sites_are_counted_once() {
    crate::some_of(0..120).for_each(|seed| count(seed, 2 + seed as usize % 3, false));
}

#[test]
fn sites_that_lose_their_disks_learn_everything_from_another_one() {
    crate::some_of(0..120).for_each(|seed| count(seed, 2 + seed as usize % 3, true));
}

/// The states on which the others stand have long been taken out everywhere; a client asks before the site has heard of
/// them, and is answered afterwards.
#[test]
fn a_site_that_lost_its_disk_serves_once_it_has_what_another_one_has() {
    let mut world = World::new(3, Options { keep: Keep::states(0), ..Options::default() }, 5);
    for _ in 0..20 {
        world.increment(0, &["n"]);
        world.pass(Duration::from_millis(100));
    }
    // One that is cut off from the one that helps has made something meanwhile.
    world.cut = [(0, 2), (1, 2)].into();
    world.increment(2, &["n"]);
    world.pass(Duration::from_secs(2));
    world.lose(0);
    let steps = [step("n", Operation::Register(register::Operation::Increment { by: 1 }))];
    let request = Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true };
    assert!(world.ask(0, request).is_empty() && world.is_joining(0), "it has to wait");
    world.pass(Duration::from_secs(1));
    let answers: Vec<ReplyBuf> = std::mem::take(&mut world.inbox.0).into_values().collect();
    assert!(matches!(answers[..], [ref reply] if reply.first() == Some(Reply::Integer(21))), "{answers:?}");
    world.cut.clear();
    world.pass(Duration::from_secs(10));
    for site in 0..3 {
        assert_eq!((world.number(site, "n"), world.heads(site)), (22, world.heads(0)), "site {site}");
    }
}

/// The site with the request for everything is cut off before it answers, or before the request comes: another one
/// helps.
#[test]
fn a_site_without_anything_asks_another_one_if_the_first_falls_silent() {
    for wait in [5, 15, 25, 35, 45] {
        let mut world = World::new(3, Options { keep: Keep::states(0), ..Options::default() }, wait);
        for _ in 0..20 {
            world.increment(0, &["n"]);
            world.pass(Duration::from_millis(100));
        }
        world.pass(Duration::from_secs(2));
        world.cut = [(0, 2)].into();
        world.lose(0);
        world.pass(Duration::from_millis(wait));
        world.cut = [(0, 1)].into();
        world.pass(Duration::from_secs(15));
        assert!(!world.is_joining(0), "after {wait} ms");
        world.cut.clear();
        world.pass(Duration::from_secs(10));
        assert_eq!([0, 1, 2].map(|site| world.number(site, "n")), [20; 3], "after {wait} ms");
    }
}

/// It has states whose values have not come when another one greets it, which must not take them for what they are: a sum
/// that only the first one knows is missing there for good.
#[test]
fn a_site_tells_nothing_before_it_has_everything() {
    for seed in 0..20 {
        let mut world = World::new(3, Options::default(), seed);
        world.cut = [(0, 2), (1, 2)].into();
        let keys: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
        let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
        for _ in 0..10 {
            keys.chunks(10).for_each(|some| world.increment(0, some));
            world.pass(Duration::from_millis(20));
        }
        world.pass(Duration::from_secs(1));
        world.lose(1);
        while world.states(1) < 100 {
            assert!(world.is_joining(1), "seed {seed}: it has everything at once");
            world.pass(Duration::from_micros(100));
        }
        // What remains is lost on its way, and comes later.
        world.cut = [(0, 2), (0, 1)].into();
        world.wire.clear();
        world.restart(2);
        world.pass(Duration::from_secs(1));
        world.cut = [(0, 2)].into();
        world.pass(Duration::from_secs(10));
        world.cut.clear();
        world.pass(Duration::from_secs(10));
        for site in 0..3 {
            assert_eq!(world.heads(site), world.heads(0), "seed {seed}, site {site}");
            let numbers: Vec<i64> = keys.iter().map(|key| world.number(site, key)).collect();
            assert_eq!(numbers, [10; 100], "seed {seed}, site {site}");
        }
    }
}

/// Two sites of three lost their disks, and the third one cannot be heard: nobody begins on nothing.
#[test]
fn sites_without_anything_wait_for_all_others() {
    let mut world = World::new(3, Options::default(), 6);
    world.increment(2, &["n"]);
    world.pass(Duration::from_secs(2));
    world.cut = [(0, 2), (1, 2)].into();
    (0..2).for_each(|site| world.lose(site));
    let steps = [step("n", Operation::Register(register::Operation::Get))];
    let request = Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true };
    assert!(world.ask(1, request).is_empty());
    world.pass(Duration::from_secs(5));
    let answers: Vec<ReplyBuf> = std::mem::take(&mut world.inbox.0).into_values().collect();
    let error = answers[0].as_error().expect("it is refused");
    assert!(
        error.code == types::ErrorCode::Loading && error.message.contains("process 3"),
        "{}",
        error.message
    );
    assert!(world.is_joining(0) && world.is_joining(1));
    world.cut.clear();
    world.pass(Duration::from_secs(5));
    assert_eq!([0, 1, 2].map(|site| world.number(site, "n")), [1; 3]);
}

/// What a site keeps for another one that is cut off has a limit: then it refuses writes, says why, and goes on when the
/// other one is back.
#[test]
fn a_site_refuses_writes_before_what_a_cut_queues_fills_its_memory() {
    let options = Options { queue: 20_000, ..Options::default() };
    let mut world = World::new(2, options, 1);
    world.cut = [(0, 1)].into();
    let steps = [step("n", Operation::Register(register::Operation::Increment { by: 1 }))];
    let write = |world: &mut World| {
        let request = Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true };
        world.ask(0, request).as_error()
    };
    let mut written = 0;
    let refused = loop {
        match write(&mut world) {
            None => written += 1,
            Some(error) => break error,
        }
        world.pass(Duration::from_millis(10));
        assert!(written < 1000);
    };
    assert_eq!(refused.code, types::ErrorCode::Unavailable);
    assert!(refused.message.contains("process 2 does not answer"), "{}", refused.message);
    assert!(world.queued(0) < 21_000, "{} bytes", world.queued(0));
    assert_eq!(world.number(0, "n"), written, "reads go on, and what was refused had no effect");
    world.cut.clear();
    world.pass(Duration::from_secs(5));
    assert_eq!(write(&mut world), None);
    world.pass(Duration::from_secs(5));
    assert_eq!((world.number(1, "n"), world.queued(0)), (written + 1, 0));
}

/// What a site collected early while it was cut off stays as long as a client of the other one may build on it. Nobody lacks that:
/// the site's queue empties, keeps nothing that is written later, and does not refuse writes.
#[test]
fn a_queue_empties_although_a_client_stands_where_states_were_collected_early() {
    let collect = Collecting::Optimistic;
    let options = Options { keep: Keep::states(0), collect, queue: 10_000, ..Options::default() };
    let mut world = World::new(2, options, 1);
    let held = |world: &World| {
        let keyspace = world.sites[0].protocol().as_site().expect("it is a site").keyspace();
        (keyspace.retained().len(), keyspace.census().early)
    };
    let write = |world: &mut World, times: usize| {
        for _ in 0..times {
            world.increment(0, &["n"]);
            world.pass(Duration::from_millis(20));
        }
        world.pass(Duration::from_secs(5));
    };
    write(&mut world, 1);
    let session = SessionId(9);
    world.ask(1, Request::Own { session, words: &[b"BRANCH", b"CEILING"], steps: &[] });
    world.pass(Duration::from_secs(1));
    world.cut = [(0, 1)].into();
    write(&mut world, 50);
    world.cut.clear();
    world.pass(Duration::from_secs(5));
    let (transactions, early) = held(&world);
    assert!(early > 40 && transactions == early + 1, "{early} states early, {transactions} transactions");
    assert!(world.is_received(0) && world.queued(0) == 0);
    write(&mut world, 300);
    assert_eq!(held(&world), (transactions, early));
    assert!(world.is_received(0) && world.queued(0) == 0);
    world.ask(1, Request::Close { session });
    world.pass(Duration::from_secs(2));
    assert_eq!((held(&world), world.number(1, "n")), ((0, 0), 351));
}

/// How many states and early ones, how many versions, and how many bytes a site holds.
fn occupied(world: &World, site: usize) -> (usize, usize, usize) {
    let site = world.sites[site].protocol().as_site().expect("it is a site");
    let census = site.keyspace().census();
    (census.states + census.early + census.promotions, census.versions, census.memory + site.queued_bytes())
}

/// Three sites count, each on some keys, for so many minutes, and merge by themselves.
fn steady(world: &mut World, minutes: u64, most: &mut [(usize, usize, usize); 3]) -> i64 {
    let mut counted = 0;
    for turn in 0..minutes * 60 * 10 {
        for site in 0..3 {
            let own = format!("{} of {site}", turn % 50);
            world.increment(site, &["all", &own]);
            counted += 1;
        }
        world.pass(Duration::from_millis(100));
        if turn % 10 == 0 {
            for (site, most) in most.iter_mut().enumerate() {
                let now = occupied(world, site);
                *most = (most.0.max(now.0), most.1.max(now.1), most.2.max(now.2));
            }
        }
    }
    counted
}

/// Figure 13 of the paper, over sites: an hour of steady load, or two minutes of it, occupies what its first minute does.
#[test]
#[expect(clippy::disallowed_macros, reason = "what it saw")]
fn memory_is_flat_over_an_hour_of_steady_load() {
    let minutes = if crate::soaks() { 60 } else { 2 };
    for collect in [Collecting::Pessimistic, Collecting::Optimistic] {
        let mut world = World::new(3, Options { keep: Keep::states(0), collect, ..Options::default() }, 1);
        let (mut early, mut late) = ([(0, 0, 0); 3], [(0, 0, 0); 3]);
        let mut counted = steady(&mut world, 1, &mut early);
        counted += steady(&mut world, minutes - 1, &mut late);
        println!("{minutes} minutes, {counted} transactions, {collect:?}: {early:?}, then {late:?}");
        for ((states, versions, bytes), (more_states, more_versions, more_bytes)) in
            early.into_iter().zip(late)
        {
            assert!(more_states <= 2 * states && more_states < 200, "{more_states} states, not {states}");
            assert!(more_versions <= versions + 100, "{more_versions} versions, not {versions}");
            assert!(more_bytes <= bytes * 3 / 2, "{more_bytes} bytes, not {bytes}");
        }
        world.pass(Duration::from_secs(5));
        assert_eq!([0, 1, 2].map(|site| world.number(site, "all")), [counted; 3]);
    }
}

mod soak {
    use super::*;

    /// While one of three sites is cut off, the others keep few states and versions; it does so too. Then nothing is lost.
    #[test]
    fn states_stay_few_while_a_site_is_cut_off() {
        let seeds = if crate::soaks() { 20 } else { 1 };
        for seed in 0..seeds {
            let mut world = World::new(
                3,
                Options { keep: Keep::states(0), collect: Collecting::Optimistic, ..Options::default() },
                seed,
            );
            let mut counted = steady(&mut world, 1, &mut [(0, 0, 0); 3]);
            world.cut = [(0, 2), (1, 2)].into();
            counted += steady(&mut world, 1, &mut [(0, 0, 0); 3]);
            for site in 0..3 {
                let census =
                    world.sites[site].protocol().as_site().expect("it is a site").keyspace().census();
                // 600 transactions at each, and the merges.
                assert!(census.states < 40 && census.early > 500, "seed {seed}, site {site}: {census:?}");
                assert!(census.versions < 500, "seed {seed}, site {site}: {census:?}");
            }
            if seed % 2 == 0 {
                (0..3).for_each(|site| world.restart(site));
            }
            world.pass(Duration::from_millis(100));
            world.cut.clear();
            counted += steady(&mut world, 1, &mut [(0, 0, 0); 3]);
            world.pass(Duration::from_secs(10));
            for site in 0..3 {
                assert_eq!(world.heads(site), world.heads(0), "seed {seed}, site {site}");
                assert_eq!(world.number(site, "all"), counted, "seed {seed}, site {site}");
                let (states, ..) = occupied(&world, site);
                assert!(states <= 3 && world.is_received(site), "seed {seed}, site {site}: {states} states");
            }
        }
    }
}

/// One of three sites is cut off while all write, and takes a checkpoint when it hears the others again: does it come to what they
/// have?
fn is_one_after_a_checkpoint(seed: u64, mutants: Mutants) -> bool {
    let options = Options {
        keep: Keep::states(0),
        collect: Collecting::Optimistic,
        piece: 1,
        mutants,
        ..Options::default()
    };
    let mut world = World::new(3, options, seed);
    world.cut = [(0, 2), (1, 2)].into();
    let mut counted = write_often(&mut world, Duration::from_secs(3));
    let mut cursor = world.sites[2].protocol_mut().checkpoint(0, &mut Vec::new());
    assert!(cursor.is_some());
    world.cut.clear();
    counted += write_often(&mut world, Duration::from_millis(200 + 100 * seed));
    while let Some(next) = cursor {
        cursor = world.sites[2].protocol_mut().checkpoint(next, &mut Vec::new());
    }
    world.pass(Duration::from_secs(10));
    (0..3).all(|site| world.heads(site) == world.heads(0) && world.number(site, "all") == counted)
}

/// A transaction waits while a checkpoint is being taken, because its parent was collected early. What its site promises behind
/// it holds only once it is here: else the parent would be forgotten, and nothing that is built on it could ever come.
#[test]
fn promises_do_not_overtake_what_waits_for_a_checkpoint() {
    for seed in crate::some_of(0..8) {
        assert!(is_one_after_a_checkpoint(seed, Mutants::default()), "seed {seed}");
    }
    assert!((0..8).any(|seed| !is_one_after_a_checkpoint(seed, Mutant::PromisesOvertake.into())));
}

/// The log begins anew for a checkpoint, which is written some time later, and shows that moment. What the log says of the time
/// between must not be made again: a state that was collected meanwhile would be a head once more. Behind it all counts, also if the
/// log never heard of the checkpoint, because the next one had begun already, or the site died.
#[test]
fn what_a_checkpoint_shows_of_the_log_behind_it_is_not_made_again() {
    for after in ["it was written", "the next one began", "a restart"] {
        let mut world = World::new(2, Options { keep: Keep::states(0), ..Options::default() }, 5);
        let count = |world: &mut World| {
            (0..10).for_each(|_| {
                world.increment(0, &["n"]);
                world.increment(1, &["n"]);
                world.pass(Duration::from_millis(100));
            });
        };
        count(&mut world);
        world.logs[0].clear();
        count(&mut world);
        let (mut checkpoint, mut cursor) = (Vec::new(), Some(0));
        while let Some(at) = cursor {
            let mut piece = Vec::new();
            cursor = world.sites[0].protocol_mut().checkpoint(at, &mut piece);
            checkpoint.push(piece);
        }
        match after {
            "the next one began" => {
                world.sites[0].protocol_mut().checkpoint(0, &mut Vec::new());
            }
            "a restart" => world.restart_from(0, &checkpoint),
            _ => {}
        }
        count(&mut world);
        world.restart_from(0, &checkpoint);
        world.pass(Duration::from_secs(2));
        assert_eq!(world.heads(0), world.heads(1), "after {after}");
        assert_eq!((world.heads(0).len(), world.number(0, "n")), (1, 60), "after {after}");
    }
}

/// Three sites count, a hundred times a second each, for so long.
fn write_often(world: &mut World, time: Duration) -> i64 {
    let until = world.now + time;
    let mut counted = 0;
    while world.now < until {
        for site in 0..3 {
            world.increment(site, &["all", &format!("of {site}")]);
            counted += 1;
        }
        world.pass(Duration::from_millis(10));
    }
    counted
}

/// A site without state answers a request late, after the asking process has restarted: the process does not take it
/// for the answer to its present request.
#[test]
fn an_answer_to_an_earlier_life_of_another_process_is_nobody_s() {
    let mut world = World::new(2, Options::default(), 9);
    world.increment(1, &["n"]);
    world.pass(Duration::from_secs(2));
    world.cut = [(0, 1)].into();
    world.lose(0);
    let gateway = Address { process: ProcessId(3), slot: Slot::coordinator(KEYSPACE) };
    let forward = |life| Replica::new(gateway.at(life), Instance::forward(address(0), life));
    world.sites.push(forward(Incarnation(1)));
    world.logs.push(Vec::new());
    let get = [step("n", Operation::Register(register::Operation::Get))];
    let length = [step("n", Operation::Register(register::Operation::Length))];
    let request = |steps| Request::Many { session: SessionId(7), steps, watched: false, multi: true };
    world.input(2, Input::Recovered { complete: true });
    assert!(world.ask(2, request(&length)).is_empty());
    world.pass(Duration::from_secs(1));
    world.sites[2] = forward(Incarnation(2));
    world.input(2, Input::Recovered { complete: true });
    world.inbox.0.clear();
    assert!(world.ask(2, request(&get)).is_empty());
    world.pass(Duration::from_millis(500));
    world.cut.clear();
    world.pass(Duration::from_secs(2));
    let answers: Vec<ReplyBuf> = std::mem::take(&mut world.inbox.0).into_values().collect();
    assert!(matches!(answers[..], [ref reply] if reply.first() == Some(Reply::Bulk(b"1"))), "{answers:?}");
}

/// A client's ceiling keeps what is below it, to be written on, until it is moved, taken back, or the client goes; of nobody else.
#[test]
fn a_clients_ceiling_holds_at_every_site() {
    let manual = Options {
        local: Local::Branch,
        merging: Merging::Manual,
        keep: Keep::states(0),
        ..Options::default()
    };
    let mut world = World::new(2, manual, 4);
    let own = |world: &mut World, words: &str| {
        let words: Vec<&[u8]> = words.split(' ').map(str::as_bytes).collect();
        world.ask(0, Request::Own { session: SessionId(7), words: &words, steps: &[] })
    };
    let states = |world: &World, site: usize| {
        world.sites[site].protocol().as_site().expect("it is a site").keyspace().census().states
    };
    let write = |world: &mut World| {
        for _ in 0..10 {
            world.increment(0, &["n"]);
        }
        world.pass(Duration::from_secs(2));
    };
    write(&mut world);
    assert_eq!([states(&world, 0), states(&world, 1)], [1, 1]);
    let at = world.heads(0)[0].to_string();
    assert_eq!(own(&mut world, "BRANCH CEILING").elements().nth(1), Some(Reply::Bulk(at.as_bytes())));
    write(&mut world);
    assert_eq!([states(&world, 0), states(&world, 1)], [11, 11]);
    let begun = own(&mut world, &format!("BRANCH BEGIN STATE {at}"));
    assert_eq!(begun.first(), Some(Reply::Bulk(at.as_bytes())));
    own(&mut world, "BRANCH ABORT");
    let refused = own(&mut world, "BRANCH CEILING 99@9.1");
    assert!(matches!(refused.first(), Some(Reply::Error(_))), "{refused:?}");
    // Moved down, it promises to begin at the former no more.
    let now = world.heads(0)[0].to_string();
    own(&mut world, &format!("BRANCH CEILING {now}"));
    let refused = own(&mut world, &format!("BRANCH BEGIN STATE {at}"));
    assert!(matches!(refused.first(), Some(Reply::Error(_))), "{refused:?}");
    world.pass(Duration::from_secs(2));
    assert_eq!([states(&world, 0), states(&world, 1)], [1, 1]);
    write(&mut world);
    assert_eq!([states(&world, 0), states(&world, 1)], [11, 11]);
    own(&mut world, "BRANCH CEILING OFF");
    world.pass(Duration::from_secs(2));
    assert_eq!([states(&world, 0), states(&world, 1)], [1, 1]);
    own(&mut world, "BRANCH CEILING");
    write(&mut world);
    assert_eq!([states(&world, 0), states(&world, 1)], [11, 11]);
    world.ask(0, Request::Close { session: SessionId(7) });
    world.pass(Duration::from_secs(2));
    assert_eq!([states(&world, 0), states(&world, 1)], [1, 1]);
}

/// A client of another process of the region is on a branch of its own when the site restarts: it goes on there.
#[test]
fn clients_of_another_process_stay_on_their_branches_when_the_site_restarts() {
    let manual = Options {
        local: Local::Branch,
        merging: Merging::Manual,
        keep: Keep::states(0),
        ..Options::default()
    };
    let mut world = World::new(2, manual, 3);
    let gateway = Address { process: ProcessId(3), slot: Slot::coordinator(KEYSPACE) };
    let forward = Instance::forward(address(0), Incarnation(1));
    world.sites.push(Replica::new(gateway.at(Incarnation(1)), forward));
    world.logs.push(Vec::new());
    world.input(2, Input::Recovered { complete: true });
    let reply_to = |world: &mut World, request: Request<'_>| {
        assert!(world.ask(2, request).is_empty());
        world.pass(Duration::from_millis(100));
        std::mem::take(&mut world.inbox.0).into_values().next().expect("an answer")
    };
    let get = [step("n", Operation::Register(register::Operation::Get))];
    let number = |world: &mut World, session: u64| {
        let session = SessionId(session);
        let reply = reply_to(world, Request::Many { session, steps: &get, watched: false, multi: true });
        match reply.first() {
            Some(Reply::Bulk(bytes)) => String::from_utf8_lossy(bytes).parse::<i64>().expect("a number"),
            other => panic!("{other:?}"),
        }
    };
    // They write at the same time, each on a branch.
    for session in 1..=3 {
        let add = Operation::Register(register::Operation::Increment { by: session as i64 });
        let session = SessionId(session);
        reply_to(&mut world, Request::Begin { session, read_only: false, watched: false });
        reply_to(&mut world, Request::Operate { session, steps: &[step("n", add)] });
    }
    for session in 1..=3 {
        reply_to(&mut world, Request::Commit { session: SessionId(session) });
    }
    assert_eq!(world.heads(0).len(), 3);
    for life in 1..=3 {
        for session in 1..=3 {
            assert_eq!(number(&mut world, session), session as i64, "life {life}");
        }
        world.restart(0);
        // The site does not answer a request sent before the asker knows that the site began anew.
        reply_to(&mut world, Request::Unwatch { session: SessionId(4) });
    }
    // Also when its disk is lost, and it cannot say anything for a while.
    world.pass(Duration::from_secs(1));
    world.cut = [(0, 1)].into();
    world.lose(0);
    reply_to(&mut world, Request::Unwatch { session: SessionId(4) });
    let session = SessionId(1);
    assert!(world.ask(2, Request::Many { session, steps: &get, watched: false, multi: true }).is_empty());
    world.pass(Duration::from_secs(4));
    let replies: Vec<ReplyBuf> = std::mem::take(&mut world.inbox.0).into_values().collect();
    let is_loading =
        |reply: &ReplyBuf| reply.as_error().is_some_and(|error| error.code == ErrorCode::Loading);
    assert!(matches!(&replies[..], [reply] if is_loading(reply)), "{replies:?}");
    world.cut.clear();
    world.pass(Duration::from_secs(2));
    for session in 1..=3 {
        assert_eq!(number(&mut world, session), session as i64, "without its disk");
    }
}
