//! A region that is cut off, or came back with less than it had, costs the others no more than what they need of it.

use super::client::{Client, increment, key_in, step};
use super::operations::write;
use super::scenes::{PARTITIONS, client, get, key, options, partition, set, world};
use super::world::{World, replica};
use anabranch_causal::cops::Options;
use checker::render;
use protocol::Step;
use types::Address;

fn restart(world: &mut World, at: Address) {
    world.crash(at);
    world.run_ms(20);
    world.start(at);
}

fn lose(world: &mut World, at: Address) {
    world.destroy(at);
    world.run_ms(20);
    world.start_from(at, false);
}

fn count(world: &mut World, client: Client) -> String {
    client.many(world, &[Step::Count])
}

/// The last heartbeats of region 1 reach region 0 only. No write of it is missing anywhere, so that nothing waits for it.
#[test]
fn a_count_depends_on_no_heartbeat() {
    let mut world = world(3, Options::default());
    let own = client(0, 1);
    set(&mut world, client(1, 2), &key(0), "v");
    world.run_ms(300);
    (0..PARTITIONS).for_each(|index| world.part(replica(1, index), replica(2, index)));
    world.run_ms(50);
    world.cut(0, 1);
    world.run_ms(50);
    assert_eq!(count(&mut world, own), "(integer) 1");
    set(&mut world, own, &key(1), "w");
    world.run_ms(300);
    assert_eq!(get(&mut world, client(2, 3), &key(1)), "w");
}

/// It does depend on the keys that it has counted, also on those that a checkpoint or another region brought.
#[test]
fn a_count_depends_on_what_it_shows() {
    let nothing = |_: &mut World| {};
    let checkpointed = |world: &mut World| {
        world.checkpoint(replica(0, 0));
        restart(world, replica(0, 0));
    };
    let ways: [fn(&mut World); 4] =
        [nothing, |world| restart(world, replica(0, 0)), checkpointed, |world| lose(world, replica(0, 0))];
    for way in ways {
        let mut world = world(3, Options::default());
        let own = client(0, 1);
        world.part(replica(1, 0), replica(2, 0));
        set(&mut world, client(1, 2), &key(0), "v");
        world.run_ms(300);
        way(&mut world);
        world.run_ms(1_000);
        assert_eq!(count(&mut world, own), "(integer) 1");
        set(&mut world, own, &key(1), "w");
        world.run_ms(300);
        assert_eq!(get(&mut world, client(2, 3), &key(1)), "(nil)");
    }
}

/// Two regions, the clocks of the second one two minutes ahead; a key that the second one has written.
fn far_ahead() -> World {
    let mut world = world(2, Options::default());
    (0..PARTITIONS).for_each(|index| world.host(replica(1, index)).skew = 120_000_000);
    set(&mut world, client(1, 2), &key(0), "theirs");
    world.run_ms(300);
    assert_eq!(get(&mut world, client(0, 3), &key(0)), "theirs");
    world
}

/// Corrections 50: a write that no clock here can place above the version that is shown is refused, not lost.
#[test]
fn no_write_is_placed_below_what_its_region_shows_of_the_key() {
    let mut world = far_ahead();
    let own = client(0, 1);
    let reply = own.one(&mut world, &key(0), write("own"));
    assert!(reply.contains("ahead of the clock of partition 0"), "{reply}");
    assert_eq!(get(&mut world, own, &key(0)), "theirs");
    let other = key_in(0, PARTITIONS, "other");
    set(&mut world, client(0, 4), &other, "own");
}

/// A restart or a state transfer takes no time of another region over.
#[test]
fn a_clock_that_is_far_ahead_stays_in_its_region() {
    let ways: [fn(&mut World); 2] =
        [|world| restart(world, replica(0, 0)), |world| lose(world, replica(0, 0))];
    for way in ways {
        let mut world = far_ahead();
        way(&mut world);
        world.run_ms(1_000);
        let own = client(0, 1);
        set(&mut world, own, &key_in(0, PARTITIONS, "other"), "own");
        set(&mut world, own, &key(1), "own");
        world.run_ms(300);
        assert_eq!(get(&mut world, client(1, 4), &key(1)), "own");
    }
}

/// Nothing of partition 2 in region 1 is missing in region 0, whose partition 0 is filled again.
#[test]
fn a_state_transfer_waits_for_no_heartbeat() {
    let mut world = world(3, Options::default());
    let own = client(0, 1);
    (0..PARTITIONS).for_each(|index| set(&mut world, client(1, 2), &key(index), "v"));
    world.run_ms(300);
    world.part(replica(1, 2), replica(0, 2));
    world.run_ms(100);
    lose(&mut world, replica(0, 0));
    world.run_ms(1_000);
    assert_eq!(get(&mut world, own, &key(0)), "v");
}

/// Corrections 84: region 1 is gone, and with it what region 0 lacks; what is found of region 0 goes on to region 3.
#[test]
fn an_accepted_loss_waits_for_no_region_that_is_gone() {
    let mut world = world(4, Options { accept_loss: true, ..Options::default() });
    let own = client(0, 1);
    set(&mut world, own, &key(0), "before");
    world.run_ms(300);
    for index in 0..PARTITIONS {
        world.part(replica(1, index), replica(0, index));
        world.part(replica(1, index), replica(3, index));
    }
    world.part(replica(0, 0), replica(3, 0));
    // It reaches region 2 only.
    set(&mut world, client(1, 2), &key(1), "theirs");
    world.run_ms(100);
    (0..4).filter(|region| *region != 1).for_each(|region| world.cut(1, region));
    set(&mut world, own, &key(0), "after");
    world.run_ms(100);
    world.crash(replica(0, 0));
    world.run_ms(20);
    world.start_from(replica(0, 0), false);
    world.cut_links.clear();
    world.run_ms(8_000);
    assert_eq!(get(&mut world, own, &key(0)), "after");
}

/// Who waits for its region says for whom.
#[test]
fn a_partition_that_waits_for_its_region_names_who_is_behind() {
    let mut world = world(2, Options::default());
    let own = client(0, 1);
    world.part(replica(1, 2), replica(0, 2));
    set(&mut world, client(1, 2), &key(2), "photo");
    lose(&mut world, replica(0, 0));
    world.run_ms(1_000);
    let reply = own.one(&mut world, &key(0), write("v"));
    assert!(reply.contains("until partition 2 has written what region 1"), "{reply}");
    world.heal();
    world.run_ms(500);
    set(&mut world, own, &key(0), "v");
}

/// Region 0 has acknowledged a write, lost it, and accepted the loss. It is given the state again, also by a partition that has
/// restarted since.
#[test]
fn who_has_less_than_it_acknowledged_is_given_the_state() {
    for restarted in [false, true] {
        let mut world = world(2, Options { accept_loss: true, ..options(restarted, None) });
        let (own, there) = (client(0, 1), client(1, 2));
        set(&mut world, there, &key(0), "lost");
        world.run_ms(500);
        world.cut(0, 1);
        lose(&mut world, replica(0, 0));
        world.run_ms(3_000);
        assert_eq!(get(&mut world, own, &key(0)), "(nil)");
        let other = key_in(0, PARTITIONS, "other");
        set(&mut world, own, &other, "own");
        if restarted {
            world.checkpoint(replica(1, 0));
            restart(&mut world, replica(1, 0));
        }
        set(&mut world, there, &key_in(0, PARTITIONS, "new"), "new");
        world.heal();
        world.run_ms(1_000);
        assert_eq!(get(&mut world, own, &key(0)), "lost");
        assert_eq!(get(&mut world, own, &key_in(0, PARTITIONS, "new")), "new");
        assert_eq!(get(&mut world, there, &other), "own");
        assert_eq!(partition(&world, replica(1, 0)).unreceived(), 0);
        assert!(partition(&world, replica(0, 0)).is_serving());
    }
}

/// Each of two partitions lost what it had acknowledged of the other one, and accepted the loss. Both take the other one's state at the
/// same time.
#[test]
fn two_that_take_the_state_of_one_another_do_not_wait() {
    let mut world = world(2, Options { accept_loss: true, ..Options::default() });
    let (own, there, at, other) = (client(0, 1), client(1, 2), replica(0, 0), replica(1, 0));
    let (mine, theirs) = (key_in(0, PARTITIONS, "mine"), key_in(0, PARTITIONS, "theirs"));
    set(&mut world, there, &theirs, "theirs");
    world.run_ms(500);
    world.checkpoint(other);
    world.cut(0, 1);
    lose(&mut world, at);
    world.run_ms(3_000);
    set(&mut world, own, &mine, "mine");
    // The other region acknowledges that, and is cut off before it has given anything.
    world.cut.clear();
    let is_acknowledged = |world: &mut World| {
        world.run_us(100);
        partition(world, at).unreceived() == 0
    };
    assert!((0..3_000).any(|_| is_acknowledged(&mut world)));
    world.cut(0, 1);
    world.crash(other);
    world.host(other).log.clear();
    world.start_from(other, false);
    world.run_ms(5_000);
    assert_eq!(
        (get(&mut world, own, &theirs), get(&mut world, there, &mine)),
        ("(nil)".into(), "(nil)".into())
    );
    assert_eq!(
        (get(&mut world, own, &mine), get(&mut world, there, &theirs)),
        ("mine".into(), "theirs".into())
    );
    world.cut.clear();
    let taking = |world: &World| [at, other].iter().all(|at| !partition(world, *at).is_serving());
    let take_at_once = |world: &mut World| {
        world.run_us(100);
        taking(world)
    };
    assert!((0..2_000).any(|_| take_at_once(&mut world)), "both take at the same time");
    world.run_ms(1_000);
    for client in [own, there] {
        assert_eq!(get(&mut world, client, &mine), "mine");
        assert_eq!(get(&mut world, client, &theirs), "theirs");
    }
}

/// A partition that takes the state remembers the requests that it received since it accepted the loss: a put that it
/// has not done before is in no doubt. The coordinator does not know the life that it sends the put to.
#[test]
fn a_put_is_in_no_doubt_while_the_state_is_taken() {
    for (taken, answer) in [(false, "-UNAVAILABLE"), (true, "(integer) 1")] {
        let mut world = world(2, Options { accept_loss: true, ..Options::default() });
        let (own, at, counter) = (client(0, 1), replica(0, 0), key_in(0, PARTITIONS, "counter"));
        set(&mut world, client(1, 2), &key(0), "lost");
        world.run_ms(500);
        world.cut(0, 1);
        lose(&mut world, at);
        world.run_ms(3_000);
        assert_eq!(get(&mut world, own, &key(0)), "(nil)");
        world.checkpoint(at);
        restart(&mut world, at);
        world.part(at, own.at);
        world.cut.clear();
        let serves = |world: &mut World| {
            world.run_us(100);
            partition(world, at).is_serving()
        };
        assert!((0..30_000).any(|_| !serves(&mut world)));
        assert!(!taken || (0..30_000).any(|_| serves(&mut world)));
        let id = own.send(&mut world, &[step(&counter, increment(1))]);
        world.run_ms(250);
        world.heal();
        let reply = render(&world.await_reply(id));
        assert!(reply.starts_with(answer), "{reply}");
        assert_eq!(get(&mut world, own, &counter), if taken { "1" } else { "(nil)" });
        assert_eq!(get(&mut world, own, &key(0)), "lost");
    }
}

/// A later life of a partition does not retain what a region has acknowledged: the queue is not full of it.
#[test]
fn a_restart_knows_what_a_silent_region_holds() {
    let mut world = world(2, Options { queue_bytes: 2_000, ..Options::default() });
    let own = client(0, 1);
    for number in 0..40 {
        set(&mut world, own, &key(0), &number.to_string());
        world.run_ms(50);
    }
    world.run_ms(500);
    world.cut(0, 1);
    restart(&mut world, replica(0, 0));
    world.run_ms(100);
    set(&mut world, own, &key(0), "more");
}
