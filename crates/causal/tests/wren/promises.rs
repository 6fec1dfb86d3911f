//! What a client may rely on when nothing fails.

use crate::wren::client::{Client, GET, blind_step, increment, key_in, step};
use crate::wren::operations::{DELETE, add, pop, push, write, write_if_absent};
use crate::wren::world::{World, coordinator};
use anabranch_causal::wren::{Options, Scope};
use protocol::{Request, Step};
use types::SessionId;

/// Two regions of two partitions with two coordinators each, at rest.
fn world() -> World {
    let mut world = World::new(2, 2, 2, Options::default(), 1);
    world.run_ms(200);
    world
}

/// Wren, section 4.3.2: the cache makes up for what the stable snapshot does not show yet.
#[test]
fn a_session_reads_its_own_write_at_once() {
    let mut world = world();
    let client = Client::new(coordinator(0, 0), 1);
    assert_eq!(client.one(&mut world, "k", write("v")), "OK");
    assert_eq!(client.one(&mut world, "k", GET), "\"v\"");
    assert_eq!(client.one(&mut world, "k", DELETE), "(integer) 1");
    assert_eq!(client.one(&mut world, "k", GET), "(nil)");
}

/// The default scope: what one connection wrote another one of the same process reads at once, as in Redis.
#[test]
fn connections_of_a_process_read_each_others_writes() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 0), 2));
    one.one(&mut world, "k", write("v"));
    assert_eq!(other.one(&mut world, "k", GET), "\"v\"");
    let elsewhere = Client::new(coordinator(0, 1), 3);
    assert_eq!(elsewhere.one(&mut world, "k", GET), "(nil)", "not stable yet");
    world.run_ms(40);
    assert_eq!(elsewhere.one(&mut world, "k", GET), "\"v\"");
}

#[test]
fn with_a_thread_per_session_another_connection_waits_for_stability() {
    let options = Options { scope: Scope::Session, ..Options::default() };
    let mut world = World::new(1, 2, 1, options, 1);
    world.run_ms(200);
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 0), 2));
    one.one(&mut world, "k", write("v"));
    assert_eq!(one.one(&mut world, "k", GET), "\"v\"");
    assert_eq!(other.one(&mut world, "k", GET), "(nil)");
    world.run_ms(40);
    assert_eq!(other.one(&mut world, "k", GET), "\"v\"");
}

/// Corrections 37: for types that are no registers the cache holds effects, which are performed on the base.
#[test]
fn cached_effects_are_performed_on_what_the_snapshot_shows() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    other.many(&mut world, &[blind_step("count", increment(5)), blind_step("set", add("x"))]);
    world.run_ms(40);
    one.many(&mut world, &[blind_step("count", increment(2)), blind_step("set", add("y"))]);
    assert_eq!(one.one(&mut world, "count", GET), "\"7\"");
    assert_eq!(one.one(&mut world, "set", crate::wren::operations::MEMBERS), "{\"x\", \"y\"}");
}

/// Wren, section 4.4.3: writes are atomic. A reader of both keys never sees one of two.
#[test]
fn a_commit_over_two_partitions_is_never_torn() {
    let mut world = world();
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let writer = Client::new(coordinator(0, 0), 1);
    let readers = [coordinator(0, 1), coordinator(1, 0)].map(|at| Client::new(at, 9));
    for round in 0..60 {
        let value = round.to_string();
        let done = writer.send(&mut world, &[step(&a, write(&value)), step(&b, write(&value))]);
        for reader in readers {
            let seen = reader.many(&mut world, &[step(&a, GET), step(&b, GET)]);
            let (left, right) = seen.split_once("; ").expect("two values");
            assert_eq!(left, right, "round {round}");
        }
        world.await_reply(done);
    }
}

/// Wren, section 4.3.2: a read takes a round trip inside its region, whatever is undecided there and however far behind
/// another region is.
#[test]
fn no_read_waits_for_what_is_undecided_or_far_behind() {
    let mut world = world();
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let (writer, reader) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    let timed = |world: &mut World| {
        let began = world.now;
        reader.many(world, &[step(&a, GET), step(&b, GET)]);
        world.now - began
    };
    let undisturbed = timed(&mut world);
    world.cut(0, 1);
    for round in 0..60 {
        let done = writer.send(&mut world, &[step(&a, write("v")), step(&b, write("v"))]);
        world.run_us(round * 10);
        assert_eq!(timed(&mut world), undisturbed, "round {round}");
        world.await_reply(done);
    }
}

/// Wren, section 4.3.3: another region sees an update once the remote stable time has passed it, not before.
#[test]
fn another_region_sees_a_write_when_it_is_stable_there() {
    let mut world = world();
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    here.one(&mut world, "k", write("v"));
    world.run_ms(15);
    assert_eq!(there.one(&mut world, "k", GET), "(nil)", "it is on its way");
    world.run_ms(60);
    assert_eq!(there.one(&mut world, "k", GET), "\"v\"");
}

/// Causality over three regions: who sees the answer sees the question, even where the question's own link is slow.
#[test]
fn an_effect_is_not_visible_before_what_it_depends_on() {
    let mut world = World::new(3, 2, 1, Options::default(), 4);
    world.run_ms(200);
    let (question, answer) = (key_in(0, 2, "question"), key_in(1, 2, "answer"));
    let [asker, replier, reader] = [0, 1, 2].map(|region| Client::new(coordinator(region, 0), 1));
    world.cut(0, 2);
    asker.one(&mut world, &question, write("?"));
    world.run_ms(100);
    assert_eq!(replier.one(&mut world, &question, GET), "\"?\"");
    replier.one(&mut world, &answer, write("!"));
    world.run_ms(300);
    let both = [step(&answer, GET), step(&question, GET)];
    assert_eq!(
        reader.many(&mut world, &both),
        "(nil); (nil)",
        "the answer has arrived, the question has not"
    );
    world.heal();
    world.run_ms(800);
    assert_eq!(reader.many(&mut world, &both), "\"!\"; \"?\"");
}

/// Registers take the last writer's value by place, counters add up, and every region agrees.
#[test]
fn concurrent_writes_of_two_regions_converge() {
    let mut world = world();
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    let first = here.send(&mut world, &[step("k", write("here")), blind_step("n", increment(1))]);
    let second = there.send(&mut world, &[step("k", write("there")), blind_step("n", increment(2))]);
    world.await_reply(first);
    world.await_reply(second);
    world.run_ms(200);
    let both = [step("k", GET), step("n", GET)];
    let seen = here.many(&mut world, &both);
    assert_eq!(seen, there.many(&mut world, &both));
    assert!(seen.ends_with("\"3\""), "{seen}");
}

/// Corrections 70: what observes runs at the primary and is exclusive in its region.
#[test]
fn of_two_pops_in_a_region_each_gets_another_element() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    one.many(&mut world, &[step("jobs", push("1")), step("jobs", push("2"))]);
    let first = one.send(&mut world, &[step("jobs", pop())]);
    let second = other.send(&mut world, &[step("jobs", pop())]);
    let popped = [first, second].map(|id| checker::render(&world.await_reply(id)));
    assert!(popped.contains(&"\"1\"".into()) && popped.contains(&"\"2\"".into()), "{popped:?}");
    let won = [one, other].map(|client| client.send(&mut world, &[step("lock", write_if_absent("x"))]));
    let won = won.map(|id| checker::render(&world.await_reply(id)));
    assert!(won.contains(&"OK".into()) && won.contains(&"(nil)".into()), "{won:?}");
}

/// Two transactions over the same two counters, observed: both take effect, one after the other.
#[test]
fn observing_transactions_over_two_partitions_retry_until_they_pass() {
    let mut world = world();
    let (a, b) = (key_in(0, 2, "a"), key_in(1, 2, "b"));
    let clients = [0, 1].map(|number| Client::new(coordinator(0, number), 1));
    let steps = [step(&a, increment(1)), step(&b, increment(1))];
    for round in 0..10 {
        let requests = clients.map(|client| client.send(&mut world, &steps));
        let mut seen = requests.map(|id| checker::render(&world.await_reply(id)));
        seen.sort_by_key(|reply| reply.len());
        let value = |n: i64| format!("(integer) {n}; (integer) {n}");
        let expected = [2 * round + 1, 2 * round + 2].map(value);
        assert!(seen.iter().all(|reply| expected.contains(reply)) && seen[0] != seen[1], "{seen:?}");
    }
}

/// A session that observed another's fresh write reads it afterwards: the reply waited for stability.
#[test]
fn after_an_observed_increment_a_session_does_not_read_less() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    one.one(&mut world, "n", increment(10));
    assert_eq!(other.one(&mut world, "n", increment(1)), "(integer) 11");
    assert_eq!(other.one(&mut world, "n", GET), "\"11\"");
}

#[test]
fn an_interactive_transaction_reads_one_snapshot_and_its_own_writes() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    one.one(&mut world, "k", write("old"));
    world.run_ms(40);
    assert_eq!(one.begin(&mut world), "OK");
    other.one(&mut world, "k", write("new"));
    world.run_ms(40);
    assert_eq!(one.operate(&mut world, "k", GET), "\"old\"");
    assert_eq!(one.operate(&mut world, "mine", write("1")), "OK");
    assert_eq!(one.operate(&mut world, "mine", increment(1)), "(integer) 2");
    assert_eq!(other.one(&mut world, "mine", GET), "(nil)");
    assert_eq!(one.commit(&mut world), "OK");
    assert_eq!(one.one(&mut world, "mine", GET), "\"2\"");
    assert_eq!(one.one(&mut world, "k", GET), "\"new\"");
    assert_eq!(one.commit(&mut world), "-ERR no transaction is open in this session");
}

/// What came before the first stable snapshot was known runs in one step: in order, and not one call inside another.
#[test]
fn a_long_pipeline_of_a_session_is_served_in_order() {
    let mut world = World::new(2, 2, 1, Options::default(), 1);
    let (at, session) = (coordinator(0, 0), SessionId(1));
    let begun = world.request(at, Request::Begin { session, read_only: false, watched: false });
    let steps = [blind_step("n", increment(1))];
    let requests: Vec<_> =
        (0..4_000).map(|_| world.request(at, Request::Operate { session, steps: &steps })).collect();
    let committed = world.request(at, Request::Commit { session });
    assert!(world.inbox.0.is_empty(), "no snapshot is known yet");
    assert_eq!(checker::render(&world.await_reply(committed)), "OK");
    assert!(requests.iter().chain([&begun]).all(|id| world.inbox.0.contains_key(id)));
    assert_eq!(Client { at, session }.one(&mut world, "n", GET), "\"4000\"");
}

#[test]
fn an_interactive_transaction_whose_observation_is_outdated_conflicts() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    one.begin(&mut world);
    assert_eq!(one.operate(&mut world, "n", increment(1)), "(integer) 1");
    other.one(&mut world, "n", increment(5));
    assert!(one.commit(&mut world).starts_with("-CONFLICT key 'n'"));
    world.run_ms(40);
    assert_eq!(one.one(&mut world, "n", GET), "\"5\"");
}

/// WATCH, GET, MULTI, EXEC: fails when somebody of the region changed the key, also if that was not visible yet.
#[test]
fn a_touched_watch_stops_the_transaction() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    one.one(&mut world, "k", write("1"));
    assert_eq!(one.watch(&mut world, "k"), "OK");
    assert_eq!(
        one.watched(&mut world, &[step("k", write("2"))]),
        "OK",
        "its own earlier write does not touch"
    );
    one.watch(&mut world, "k");
    other.one(&mut world, "k", write("3"));
    assert_eq!(one.watched(&mut world, &[step("k", write("4"))]), "(nil array)");
    world.run_ms(40);
    assert_eq!(one.one(&mut world, "k", GET), "\"3\"");
}

/// Also when somebody of another region did, as soon as the transaction would see it: what was read before and what it reads
/// would belong to two snapshots.
#[test]
fn a_watch_is_touched_by_what_comes_to_be_seen_of_another_region() {
    let mut world = world();
    let (one, far) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    one.one(&mut world, "k", write("1"));
    world.run_ms(200);
    one.watch(&mut world, "k");
    far.one(&mut world, "k", write("2"));
    assert_eq!(one.one(&mut world, "k", GET), "\"1\"", "it is on its way");
    world.run_ms(200);
    assert_eq!(one.watched(&mut world, &[step("k", write("3"))]), "(nil array)");
    one.watch(&mut world, "k");
    assert_eq!(one.watched(&mut world, &[step("k", write("3"))]), "OK");
}

#[test]
fn the_whole_keyspace_is_counted_scanned_and_flushed() {
    let mut world = world();
    let client = Client::new(coordinator(0, 0), 1);
    for number in 0..20 {
        client.one(&mut world, &format!("k{number}"), write("v"));
    }
    assert_eq!(client.many(&mut world, &[Step::Count]), "(integer) 20");
    let (mut cursor, mut found) = (0, std::collections::BTreeSet::new());
    loop {
        let reply = client.many(&mut world, &[Step::Scan { cursor, count: 4 }]);
        let numbers = reply.trim_start_matches("[(integer) ");
        let (next, keys) = numbers.split_once(", ").expect("cursor and keys");
        found.extend(keys.split('"').filter(|part| part.starts_with('k')).map(str::to_owned));
        cursor = next.parse().expect("a cursor");
        if cursor == 0 {
            break;
        }
    }
    assert_eq!(found.len(), 20);
    let steps = [step("new", write("1")), Step::Flush, step("k3", write("kept"))];
    assert_eq!(client.many(&mut world, &steps), "OK; OK; OK");
    let left = client.many(&mut world, &[step("k3", GET), step("k4", GET), step("new", GET)]);
    assert_eq!(left, "\"kept\"; (nil); (nil)");
    world.run_ms(200);
    let elsewhere = Client::new(coordinator(1, 0), 1);
    assert_eq!(elsewhere.many(&mut world, &[Step::Count, step("k3", GET)]), "(integer) 1; \"kept\"");
}

/// What so many draws come to, sorted; in the open transaction if there is one.
fn drawn(world: &mut World, client: Client, open: bool) -> String {
    let draw = |_| {
        let (session, steps) = (client.session, &[Step::Random]);
        let request = match open {
            true => Request::Operate { session, steps },
            false => Request::Many { session, steps, watched: false, multi: false },
        };
        client.ask(world, request)
    };
    let found: std::collections::BTreeSet<String> = (0..200).map(draw).collect();
    found.into_iter().collect()
}

#[test]
fn a_key_is_drawn_of_those_that_the_snapshot_and_own_writes_show() {
    let mut world = world();
    let (one, far) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    assert_eq!(drawn(&mut world, one, false), "(nil)");
    one.one(&mut world, "a", write("1"));
    assert_eq!(far.many(&mut world, &[Step::Random]), "(nil)", "it is on its way");
    assert_eq!(one.many(&mut world, &[Step::Random]), "\"a\"", "it is not stable yet");
    one.one(&mut world, "b", write("1"));
    one.one(&mut world, "a", DELETE);
    assert_eq!(drawn(&mut world, one, false), "\"b\"");
    one.one(&mut world, "c", write("1"));
    world.run_ms(200);
    assert_eq!(drawn(&mut world, far, false), "\"b\"\"c\"");
    far.begin(&mut world);
    far.operate(&mut world, "d", write("1"));
    far.operate(&mut world, "b", DELETE);
    one.one(&mut world, "e", write("1"));
    one.one(&mut world, "c", DELETE);
    world.run_ms(200);
    assert_eq!(drawn(&mut world, far, true), "\"c\"\"d\"", "its snapshot is older");
    far.operate(&mut world, "c", DELETE);
    far.operate(&mut world, "d", DELETE);
    assert_eq!(drawn(&mut world, far, true), "(nil)");
    assert_eq!(far.commit(&mut world), "OK");
}

#[test]
fn caches_queues_and_decisions_do_not_grow() {
    let options = Options { lease: std::time::Duration::from_millis(500), ..Options::default() };
    let mut world = World::new(2, 2, 1, options, 1);
    world.run_ms(700);
    let client = Client::new(coordinator(0, 0), 1);
    for round in 0..100 {
        client.one(&mut world, &format!("k{round}"), write("v"));
        client.many(&mut world, &[step("a", write("1")), step("b", write("2")), step("c", write("3"))]);
    }
    client.ask(&mut world, Request::Unwatch { session: client.session });
    world.run_ms(500);
    client.many(&mut world, &[step("a", write("1")), step("b", write("2")), step("c", write("3"))]);
    world.run_ms(500);
    let coordinator = world.node(client.at).as_coordinator().expect("a coordinator");
    assert_eq!((coordinator.cached(), coordinator.unsettled()), (0, 0));
    for index in 0..2 {
        let partition = world.node(crate::wren::world::replica(0, index)).as_partition().expect("a replica");
        assert_eq!((partition.undecided(), partition.unreceived()), (0, 0));
        assert!(partition.remembered() <= 2, "{}", partition.remembered());
        let behind = partition.stable().local.wall().0 - partition.horizon().remote.wall().0;
        assert!(behind < 100_000, "the horizon follows the stable times, {behind} us behind");
    }
}
