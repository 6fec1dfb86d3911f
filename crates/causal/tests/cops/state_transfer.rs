//! Corrections 67: a partition that lost records takes what it had announced from other regions before it serves
//! again.

use super::client::{Client, GET, increment, step};
use super::operations::{add, write};
use super::scenes::{client, get, get_trans, key, nearest, options, partition, set, world};
use super::world::{Faults, World, replica};
use anabranch_causal::cops::Options;
use checker::render;
use types::{Address, RequestId};

fn lose(world: &mut World, at: Address) {
    world.destroy(at);
    world.run_ms(20);
    world.start_from(at, false);
}

#[test]
fn a_lost_disk_is_filled_from_other_regions() {
    let mut world = world(3, Options::default());
    let own = client(0, 1);
    for number in 0..300 {
        set(&mut world, own, &format!("k{number}"), &number.to_string());
    }
    own.one(&mut world, &key(0), increment(5));
    world.run_ms(500);
    own.one(&mut world, &key(0), increment(2));
    world.run_ms(100);
    lose(&mut world, replica(0, 0));
    let reply = own.one(&mut world, &key(0), GET);
    assert!(reply.starts_with("-UNAVAILABLE partition 0 of region 0 lost records"), "{reply}");
    world.run_ms(2_000);
    assert_eq!(get(&mut world, own, &key(0)), "7");
    assert!((0..300).all(|number| get(&mut world, own, &format!("k{number}")) == number.to_string()));
    own.one(&mut world, &key(0), increment(1));
    world.run_ms(300);
    assert_eq!(get(&mut world, client(2, 3), &key(0)), "8");
}

/// What one region has of the lost partition's writes, and another one lacks, is sent on.
#[test]
fn what_some_regions_lack_is_sent_again() {
    let mut world = world(3, Options::default());
    let (own, far) = (client(0, 1), client(2, 3));
    set(&mut world, own, &key(0), "before");
    world.run_ms(300);
    world.part(replica(0, 0), replica(2, 0));
    set(&mut world, own, &key(0), "after");
    own.one(&mut world, &key(0), super::operations::write("last"));
    world.run_ms(300);
    assert_eq!(get(&mut world, far, &key(0)), "before");
    lose(&mut world, replica(0, 0));
    world.heal();
    world.run_ms(2_000);
    assert_eq!(get(&mut world, own, &key(0)), "last");
    assert_eq!(get(&mut world, far, &key(0)), "last");
    assert_eq!(partition(&world, replica(0, 0)).unreceived(), 0);
}

/// A whole region loses its disks: its partitions wait for one another, and for nothing that cannot come.
#[test]
fn a_region_that_lost_everything_comes_back() {
    for transactions in [false, true] {
        let mut world = world(3, options(transactions, None));
        let (own, other) = (client(0, 1), client(1, 2));
        for number in 0..30 {
            set(&mut world, own, &key(number % 3), &number.to_string());
            other.one(&mut world, &format!("set{}", number % 5), add(&number.to_string()));
        }
        world.run_ms(300);
        (0..3).for_each(|index| lose(&mut world, replica(0, index)));
        set(&mut world, other, &key(1), "while lost");
        world.run_ms(3_000);
        assert_eq!(get(&mut world, own, &key(0)), "27");
        assert_eq!(get(&mut world, own, &key(1)), "while lost");
        assert_eq!(get(&mut world, own, &key(2)), "29");
        if transactions {
            assert_eq!(get_trans(&mut world, own, &[&key(0), &key(1)]), ["27", "while lost"]);
        }
    }
}

/// It does not serve what it has taken before its region has written what that depends on.
#[test]
fn what_was_taken_is_not_shown_before_what_it_depends_on() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    let (photo, album) = (key(0), key(1));
    world.run_ms(200);
    world.part(replica(1, 0), replica(0, 0));
    set(&mut world, there, &photo, "photo");
    set(&mut world, there, &album, "with-photo");
    world.run_ms(200);
    lose(&mut world, replica(0, 1));
    world.run_ms(1_000);
    let reply = own.one(&mut world, &album, GET);
    assert!(reply.starts_with("-UNAVAILABLE partition 1"), "{reply}");
    world.heal();
    world.run_ms(1_000);
    assert_eq!(
        (get(&mut world, own, &album), get(&mut world, own, &photo)),
        ("with-photo".into(), "photo".into())
    );
}

/// Until a checkpoint has what was taken, it is taken again.
#[test]
fn what_was_taken_is_in_no_log() {
    let mut world = world(2, Options::default());
    let own = client(0, 1);
    set(&mut world, own, &key(0), "v");
    world.run_ms(300);
    lose(&mut world, replica(0, 0));
    world.run_ms(1_000);
    world.crash(replica(0, 0));
    world.run_ms(20);
    world.start(replica(0, 0));
    world.run_ms(1_000);
    assert_eq!(get(&mut world, own, &key(0)), "v");
    world.destroy(replica(0, 0));
    world.cut(0, 1);
    world.start_from(replica(0, 0), false);
    world.run_ms(500);
    let reply = own.one(&mut world, &key(0), GET);
    assert!(reply.contains("waits for partition 0 of region 1"), "{reply}");
}

/// Lets time pass until a partition of region 0 has taken all pieces, and asks region 1 what it must wait for.
fn until_query(world: &mut World) {
    let asks = |world: &mut World| {
        world.run_us(100);
        partition(world, replica(0, 0)).why_not().contains("waits for partition 1 of region 1")
    };
    assert!((0..30_000).any(|_| asks(world)));
}

/// An answer to a state transfer of the life before comes late, when region 1 shows more.
#[test]
fn a_late_answer_to_an_earlier_refill_does_not_count() {
    let mut world = world(2, Options::default());
    let (own, there, at) = (client(0, 1), client(1, 2), replica(0, 0));
    let (photo, album) = (key(1), key(0));
    set(&mut world, there, &album, "empty");
    world.run_ms(300);
    lose(&mut world, at);
    until_query(&mut world);
    world.run_ms(30);
    let answers =
        world.flights.values().filter(|flight| (flight.from.address(), flight.to) == (replica(1, 1), at));
    let late: Vec<_> = answers.cloned().collect();
    assert!(!late.is_empty());
    world.crash(at);
    world.part(replica(1, 1), replica(0, 1));
    set(&mut world, there, &photo, "photo");
    set(&mut world, there, &album, "with-photo");
    world.run_ms(200);
    world.start(at);
    until_query(&mut world);
    late.into_iter().for_each(|answer| world.deliver(answer));
    world.run_ms(1_000);
    let reply = own.one(&mut world, &album, GET);
    assert!(reply.contains("until partition 1 has written what region 1 wrote"), "{reply}");
    world.heal();
    world.run_ms(1_000);
    assert_eq!(get(&mut world, own, &photo), "photo");
    assert_eq!(get(&mut world, own, &album), "with-photo");
}

/// Corrections 84: an operator may go on with what is left.
#[test]
fn an_accepted_loss_goes_on_with_what_is_left() {
    let mut world = world(2, Options { accept_loss: true, ..Options::default() });
    let own = client(0, 1);
    set(&mut world, own, &key(0), "v");
    world.run_ms(300);
    world.cut(0, 1);
    lose(&mut world, replica(0, 0));
    world.run_ms(3_000);
    assert_eq!(get(&mut world, own, &key(0)), "(nil)");
    set(&mut world, own, &key(0), "w");
    world.heal();
    world.run_ms(1_000);
    assert_eq!(get(&mut world, client(1, 2), &key(0)), "w");
}

/// Every partition of every region lost something: what is left anywhere is what they go on with.
#[test]
fn who_lost_records_answers_others_that_did() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    (0..3).for_each(|index| set(&mut world, own, &key(index), "v"));
    world.run_ms(300);
    for region in 0..2 {
        for index in 0..3 {
            // One log of partition 1 is whole, but nobody knows that.
            match (region, index) {
                (1, 1) => world.crash(replica(1, 1)),
                _ => world.destroy(replica(region, index)),
            }
        }
    }
    (0..2).for_each(|region| (0..3).for_each(|index| world.start_from(replica(region, index), false)));
    world.run_ms(3_000);
    for client in [own, there] {
        assert_eq!(get(&mut world, client, &key(0)), "(nil)");
        assert_eq!(get(&mut world, client, &key(1)), "v");
    }
    set(&mut world, there, &key(0), "w");
    world.run_ms(500);
    assert_eq!(get(&mut world, own, &key(0)), "w");
}

/// A client counts, and whoever counts is about to lose its memory when another region has that; the answer is lost.
fn count_unanswered(world: &mut World, own: Client) -> RequestId {
    get(world, own, &key(0));
    world.part(replica(0, 0), own.at);
    let id = own.send(world, &[step(&key(0), increment(1))]);
    world.run_ms(50);
    id
}

/// Corrections 67: what a partition did before it lost its memory it must not deny.
#[test]
fn a_put_before_the_loss_is_in_doubt() {
    // The coordinator's clock, in milliseconds.
    for skew in [0, 5_000, -5_000] {
        let mut world = world(2, Options::default());
        let (own, other) = (client(0, 1), client(0, 2));
        world.host(own.at).skew = skew * 1_000;
        let id = count_unanswered(&mut world, own);
        lose(&mut world, replica(0, 0));
        world.heal();
        let reply = render(&world.await_reply(id));
        assert!(reply.starts_with("-UNKNOWNOUTCOME partition 0 of the region lost its memory"), "{reply}");
        assert_eq!(get(&mut world, other, &key(0)), "1", "it took effect, once");
        let reply = own.one(&mut world, &key(0), increment(1));
        assert_eq!(reply, "(integer) 2", "what was asked afterwards is in no doubt");
    }
}

/// Nor when only a checkpoint says that records were lost.
#[test]
fn a_put_before_the_loss_is_in_doubt_after_a_restart() {
    let mut world = world(2, Options::default());
    let (own, other) = (client(0, 1), client(0, 2));
    let id = count_unanswered(&mut world, own);
    lose(&mut world, replica(0, 0));
    world.run_ms(1_000);
    world.checkpoint(replica(0, 0));
    world.crash(replica(0, 0));
    world.start(replica(0, 0));
    world.run_ms(1_000);
    world.heal();
    let reply = render(&world.await_reply(id));
    assert!(reply.starts_with("-UNKNOWNOUTCOME partition 0 of the region lost its memory"), "{reply}");
    assert_eq!(get(&mut world, other, &key(0)), "1");
}

/// Corrections 49: the session waits until it knows what the put may have been, and depends on that.
#[test]
fn the_session_depends_on_a_put_that_a_loss_left_in_doubt() {
    let mut world = world(3, Options::default());
    let (own, far) = (client(0, 1), client(2, 3));
    let id = count_unanswered(&mut world, own);
    world.destroy(replica(0, 0));
    let reply = render(&world.await_reply(id));
    assert!(reply.starts_with("-UNKNOWNOUTCOME"), "{reply}");
    // It cannot hear from a region, so it goes on taking.
    world.heal();
    world.part(replica(0, 0), replica(2, 0));
    world.start_from(replica(0, 0), false);
    let id = own.send(&mut world, &[step(&key(1), write("after"))]);
    world.run_ms(2_000);
    assert_eq!(get(&mut world, far, &key(1)), "(nil)");
    assert_eq!(nearest(&world, own), 0);
    world.heal();
    let depends = |world: &mut World| {
        world.run_us(100);
        let coordinator = world.node(own.at).as_coordinator().expect("one");
        coordinator.context(own.session).is_some_and(|context| context.nearest().of(0).next().is_some())
    };
    assert!((0..30_000).any(|_| depends(&mut world)));
    drop(world.await_reply(id));
    world.run_ms(1_000);
    assert_eq!(get(&mut world, far, &key(0)), "1");
    assert_eq!(get(&mut world, far, &key(1)), "after");
}

/// The repetition of a put first sent during the state transfer is not done afterwards.
#[test]
fn a_put_that_was_refused_while_it_took_is_not_written_afterwards() {
    let mut world = world(2, Options::default());
    let (own, other) = (client(0, 1), client(0, 2));
    set(&mut world, own, &key(0), "1");
    world.run_ms(300);
    world.destroy(replica(0, 0));
    world.part(replica(1, 0), replica(0, 0));
    world.start_from(replica(0, 0), false);
    let reply = own.one(&mut world, &key(0), GET);
    assert!(reply.starts_with("-UNAVAILABLE"), "{reply}");
    // Some copies are on their way for longer than the taking lasts.
    world.faults.near = (600_000, 600_000);
    let id = own.send(&mut world, &[step(&key(0), increment(1))]);
    world.run_ms(601);
    world.faults = Faults::NONE;
    world.heal();
    let reply = render(&world.await_reply(id));
    assert!(reply.contains("nothing was done"), "{reply}");
    world.run_ms(700);
    assert_eq!(get(&mut world, other, &key(0)), "1");
}
