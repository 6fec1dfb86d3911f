//! Section 5.2: a region is lost for good, and the others go on (Corrections 36, 47 and 48).

use super::client::{Client, GET, increment};
use super::scenes::{client, get, get_trans, key, options, partition, restore, set, token, world};
use super::world::{World, coordinator, replica};
use anabranch_causal::cops::{Message, Mutant, Options};
use types::{Address, RegionId};

/// The region burns down, and what it has sent arrives.
fn lose(world: &mut World, region: u16) {
    (0..3).for_each(|index| world.destroy(replica(region, index)));
    (0..2).for_each(|number| world.crash(coordinator(region, number)));
    world.run_ms(100);
    world.heal();
}

/// An operator tells the partitions of a region.
fn evict(world: &mut World, at: u16, lost: u16) {
    for index in 0..3 {
        world.tell(replica(at, index), Message::Evict { regions: vec![RegionId(lost)] });
    }
}

fn is_over(world: &World, region: u16) -> bool {
    (0..3).all(|index| {
        let partition = partition(world, replica(region, index));
        partition.evicted().next().is_some() && !partition.is_evicting()
    })
}

/// What regions read of these keys, all alike once they have gone on.
#[track_caller]
fn agreed(world: &mut World, regions: &[u16], keys: &[&str]) -> Vec<String> {
    let mut seen = regions.iter().map(|region| {
        assert!(is_over(world, *region), "region {region}");
        keys.iter().map(|key| get(world, client(*region, 90), key)).collect::<Vec<_>>()
    });
    let first = seen.next().expect("a region");
    assert!(seen.all(|other| other == first));
    first
}

/// A photo of region 2 reaches region 0 alone, where somebody comments on it. Returns what region 1 sees of both in the end.
pub fn commented_photo(mutant: Option<Mutant>) -> (String, String) {
    let mut world = world(3, options(false, mutant));
    let (photo, comment) = (key(0), key(1));
    world.cut_one_way(2, 1);
    set(&mut world, client(2, 1), &photo, "photo");
    world.run_ms(100);
    let own = client(0, 2);
    assert_eq!(get(&mut world, own, &photo), "photo");
    set(&mut world, own, &comment, "nice");
    lose(&mut world, 2);
    world.run_ms(300);
    let there = client(1, 3);
    assert_eq!(get(&mut world, there, &comment), "(nil)", "it waits for the photo");
    evict(&mut world, 0, 2);
    world.run_ms(1_000);
    (get(&mut world, there, &comment), get(&mut world, there, &photo))
}

#[test]
fn corrections_48_survivors_forward_what_a_lost_region_left() {
    assert_eq!(commented_photo(None), ("nice".into(), "photo".into()));
}

/// Region 2 writes a photo and then an album: the photo reaches these regions, the album those.
fn photo_and_album(photo_to: &[u16], album_to: &[u16], options: Options) -> World {
    let mut world = world(3, options);
    for to in [0, 1] {
        for (index, reached) in [(0, photo_to), (1, album_to)] {
            if !reached.contains(&to) {
                world.part(replica(2, index), replica(to, index));
            }
        }
    }
    let own = client(2, 1);
    set(&mut world, own, &key(0), "photo");
    set(&mut world, own, &key(1), "with-photo");
    own.one(&mut world, &key(1), super::operations::write("with-photo-too"));
    world.run_ms(100);
    lose(&mut world, 2);
    world
}

#[test]
fn what_waits_is_written_where_somebody_has_what_it_depends_on() {
    for transactions in [false, true] {
        let mut world = photo_and_album(&[0], &[1], options(transactions, None));
        assert_eq!(partition(&world, replica(1, 1)).waiting(), 2);
        evict(&mut world, 1, 2);
        world.run_ms(1_500);
        assert_eq!(agreed(&mut world, &[0, 1], &[&key(0), &key(1)]), ["photo", "with-photo-too"]);
        if transactions {
            let seen = get_trans(&mut world, client(0, 5), &[&key(0), &key(1)]);
            assert_eq!(seen, ["photo", "with-photo-too"]);
        }
    }
}

/// Nobody who is left has the photo. Returns what they see of the album.
pub fn album_without_photo(mutant: Option<Mutant>) -> Vec<String> {
    let mut world = photo_and_album(&[], &[1], options(false, mutant));
    evict(&mut world, 0, 2);
    world.run_ms(1_500);
    let given_up_lists = [0, 1].map(|region| partition(&world, replica(region, 1)).given_up());
    if mutant.is_none() {
        let text = format!("2 writes given up that depended on lost ones ({0}, {0})", key(1));
        assert_eq!(given_up_lists[1].as_ref(), Some(&text), "who had them tells");
        assert!(
            given_up_lists[0].as_ref().is_none_or(|given_up_lists| *given_up_lists == text),
            "who has taken them tells the same"
        );
        // A checkpoint and a restart change nothing.
        world.checkpoint(replica(1, 1));
        restart(&mut world, replica(1, 1));
        assert!(partition(&world, replica(1, 1)).given_up().is_some());
    }
    agreed(&mut world, &[0, 1], &[&key(1), &key(0)])
}

#[test]
fn corrections_36_what_depends_on_a_write_that_nobody_has_is_given_up() {
    assert_eq!(album_without_photo(None), ["(nil)", "(nil)"]);
}

#[test]
fn survivors_go_on() {
    let mut world = world(3, Options::default());
    set(&mut world, client(2, 1), &key(0), "before");
    world.run_ms(100);
    lose(&mut world, 2);
    world.run_ms(500);
    let stood = partition(&world, replica(0, 0)).stable();
    world.run_ms(500);
    assert_eq!(partition(&world, replica(0, 0)).stable(), stood, "Corrections 47: nothing is collected");
    evict(&mut world, 1, 2);
    world.run_ms(1_000);
    for number in 0..4 {
        set(&mut world, client(number % 2, 3), &key(number % 3), "v");
    }
    world.run_ms(200);
    assert_eq!(agreed(&mut world, &[0, 1], &[&key(0), &key(1), &key(2)]), ["v", "v", "v"]);
    for index in 0..3 {
        let partition = partition(&world, replica(0, index));
        assert!(partition.stable() > stood && partition.unreceived() == 0 && partition.waiting() == 0);
        assert_eq!(partition.retained(key(index).as_bytes()), 0, "it is in the cells");
    }
}

#[test]
fn an_evicted_region_that_comes_back_is_refused() {
    let mut world = world(3, Options::default());
    set(&mut world, client(0, 1), &key(0), "v");
    world.run_ms(100);
    (0..3).for_each(|index| world.crash(replica(2, index)));
    evict(&mut world, 0, 2);
    world.run_ms(500);
    for _ in 0..2 {
        for index in 0..3 {
            world.crash(replica(2, index));
            world.start(replica(2, index));
        }
        world.run_ms(300);
        let reply = client(2, 3).one(&mut world, &key(0), GET);
        assert!(reply.starts_with("-UNAVAILABLE region 2 was evicted from the keyspace"), "{reply}");
    }
    assert_eq!(agreed(&mut world, &[0, 1], &[&key(0)]), ["v"]);
}

#[test]
fn a_context_that_names_a_lost_write_is_refused() {
    let mut world = world(3, Options::default());
    let there = client(2, 1);
    set(&mut world, there, &key(0), "everywhere");
    world.run_ms(200);
    let known = token(&mut world, there);
    [0, 1].iter().for_each(|to| world.part(replica(2, 0), replica(*to, 0)));
    set(&mut world, there, &key(0), "nowhere");
    let lost = token(&mut world, there);
    lose(&mut world, 2);
    let here = client(0, 2);
    let reply = restore(&mut world, here, &lost, 100);
    assert!(reply.contains("has not written yet"), "{reply}");
    evict(&mut world, 0, 2);
    let reply = restore(&mut world, here, &lost, 2_000);
    assert!(
        reply.starts_with("-UNAVAILABLE the context depends on writes that were lost when region 2"),
        "{reply}"
    );
    assert_eq!(restore(&mut world, here, &known, 100), "OK");
    assert_eq!(get(&mut world, here, &key(0)), "everywhere");
}

fn restart(world: &mut World, at: Address) {
    world.crash(at);
    world.run_ms(20);
    world.start(at);
    world.run_ms(300);
}

/// Whoever dies whenever, with its log or without: the survivors agree, and lose nothing that one of them had.
#[test]
fn survivors_that_die_meanwhile_agree() {
    // What waits is in no log before the fence is.
    for pause in crate::some_of((1..400).step_by(25)) {
        let mut world = photo_and_album(&[0], &[1], Options::default());
        world.faults.log = 500;
        set(&mut world, client(0, 5), &key(2), "own");
        evict(&mut world, 1, 2);
        world.run_ms(pause);
        let down = [replica(1, 1), replica(0, 0), replica(1, 0), replica(0, 1)];
        for at in down {
            world.crash(at);
            world.run_ms(15);
            world.start(at);
            world.run_ms(pause % 90);
        }
        // A partition that died before its log had the eviction gets it again.
        evict(&mut world, 1, 2);
        world.run_ms(2_500);
        let keys = [key(0), key(1), key(2)];
        let keys: Vec<&str> = keys.iter().map(|key| &**key).collect();
        assert_eq!(agreed(&mut world, &[0, 1], &keys), ["photo", "with-photo-too", "own"], "{pause}");
        // Whoever loses its disk takes it from the others, and hears of the eviction from them.
        world.destroy(down[(pause / 25 % 4) as usize]);
        world.start_from(down[(pause / 25 % 4) as usize], false);
        world.run_ms(2_500);
        assert_eq!(agreed(&mut world, &[0, 1], &keys), ["photo", "with-photo-too", "own"], "{pause}");
        client(1, 6).one(&mut world, &key(2), increment(1));
    }
}

/// Region 3 is lost with a photo that region 0 has, and region 2, which has what follows, while that is being settled.
#[test]
fn a_second_region_may_be_lost_meanwhile() {
    for pause in crate::some_of((0..400).step_by(25)) {
        let mut world = world(4, Options::default());
        let keys = [key(0), key(1), key(2)];
        [1, 2].iter().for_each(|to| world.part(replica(3, 0), replica(*to, 0)));
        [0, 1].iter().for_each(|to| world.part(replica(3, 1), replica(*to, 1)));
        let own = client(3, 1);
        set(&mut world, own, &keys[0], "photo");
        set(&mut world, own, &keys[1], "album");
        world.run_ms(100);
        let reader = client(0, 2);
        assert_eq!(get(&mut world, reader, &keys[0]), "photo");
        set(&mut world, reader, &keys[2], "comment");
        lose(&mut world, 3);
        evict(&mut world, 1, 3);
        world.run_ms(pause);
        lose(&mut world, 2);
        evict(&mut world, 0, 2);
        world.run_ms(3_000);
        let seen = agreed(&mut world, &[0, 1], &[&keys[0], &keys[2], &keys[1]]);
        assert_eq!(seen[..2], ["photo", "comment"], "{pause}");
        assert!(pause > 0 || seen[2] == "(nil)", "only region 2 had it");
        set(&mut world, Client::new(coordinator(1, 0), 9), &keys[1], "new");
        world.run_ms(300);
        assert_eq!(agreed(&mut world, &[0, 1], &[&keys[1]]), ["new"]);
    }
}

/// Region 2 gives region 0 what only it has of region 3, and is lost before region 1 has heard of that.
#[test]
fn what_one_that_is_lost_later_has_given_counts() {
    let mut world = world(4, Options::default());
    let (photo, album) = (key(0), key(1));
    for (to, index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        world.part(replica(3, index), replica(to, index));
    }
    let own = client(3, 1);
    set(&mut world, own, &photo, "photo");
    set(&mut world, own, &album, "album");
    world.run_ms(100);
    lose(&mut world, 3);
    [(0, 0), (1, 0), (1, 1)]
        .iter()
        .for_each(|(to, index)| world.part(replica(2, *index), replica(*to, *index)));
    evict(&mut world, 0, 3);
    world.run_ms(500);
    assert_eq!(partition(&world, replica(0, 1)).waiting(), 1, "it has the album, and waits for the photo");
    world.part(replica(0, 1), replica(1, 1));
    world.part(replica(1, 1), replica(0, 1));
    world.tell(replica(1, 1), Message::Evict { regions: vec![RegionId(2)] });
    world.run_ms(500);
    world.cut_links.remove(&(replica(2, 0), replica(0, 0)));
    world.run_ms(500);
    assert_eq!(get(&mut world, client(0, 2), &album), "album");
    lose(&mut world, 2);
    evict(&mut world, 0, 2);
    world.run_ms(3_000);
    assert_eq!(agreed(&mut world, &[0, 1], &[&photo, &album]), ["photo", "album"]);
}
