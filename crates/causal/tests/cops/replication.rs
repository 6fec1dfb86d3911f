//! Sections 4.2 to 4.5: writes are local, replicated in the background, and shown after what they depend on.

use super::client::key_in;
use super::scenes::{PARTITIONS, client, get, key, nearest, options, partition, set, world};
use super::world::{World, replica};
use anabranch_causal::cops::{Mutant, Options};

/// Alice uploads a photo, then adds it to her album; the photo is slow. Returns what Bob sees of the album and of the photo.
pub fn photo_and_album(mutant: Option<Mutant>) -> (String, String) {
    let mut world = world(2, options(false, mutant));
    let (photo, album) = (key(0), key(1));
    world.part(replica(0, 0), replica(1, 0));
    let (alice, bob) = (client(0, 1), client(1, 2));
    set(&mut world, alice, &photo, "photo");
    set(&mut world, alice, &album, "with-photo");
    world.run_ms(500);
    (get(&mut world, bob, &album), get(&mut world, bob, &photo))
}

#[test]
fn section_3_2_a_write_is_never_shown_before_what_it_depends_on() {
    assert_eq!(photo_and_album(None), ("(nil)".into(), "(nil)".into()));
}

/// Who reads something depends on it: Bob comments on Alice's photo, Carol sees the comment with the photo or not at all. Returns
/// what she sees of the comment, of the photo before the photo comes.
pub fn comment_on_a_photo(mutant: Option<Mutant>) -> (String, String) {
    let mut world = world(3, options(false, mutant));
    let (photo, comment) = (key(0), key(1));
    world.part(replica(0, 0), replica(2, 0));
    let (alice, bob, carol) = (client(0, 1), client(1, 2), client(2, 3));
    set(&mut world, alice, &photo, "photo");
    world.run_ms(100);
    assert_eq!(get(&mut world, bob, &photo), "photo");
    set(&mut world, bob, &comment, "nice");
    world.run_ms(500);
    (get(&mut world, carol, &comment), get(&mut world, carol, &photo))
}

#[test]
fn section_3_what_is_read_is_depended_on() {
    assert_eq!(comment_on_a_photo(None), ("(nil)".into(), "(nil)".into()));
}

#[test]
fn section_4_4_a_dependency_check_waits_until_the_version_is_written() {
    let mut world = world(2, Options::default());
    let (photo, album) = (key(0), key(1));
    world.part(replica(0, 0), replica(1, 0));
    let (alice, bob) = (client(0, 1), client(1, 2));
    set(&mut world, alice, &photo, "photo");
    set(&mut world, alice, &album, "with-photo");
    world.run_ms(500);
    assert_eq!(partition(&world, replica(1, 1)).waiting(), 1, "the album has arrived, and waits");
    world.heal();
    world.run_ms(500);
    assert_eq!(partition(&world, replica(1, 1)).waiting(), 0);
    assert_eq!(
        (get(&mut world, bob, &album), get(&mut world, bob, &photo)),
        ("with-photo".into(), "photo".into())
    );
}

/// The asker that began a new life, and a queried partition that did, go on.
#[test]
fn section_4_4_a_dependency_check_is_repeated() {
    for restarted in [0, 1] {
        let mut world = world(2, Options::default());
        let (photo, album) = (key(0), key(1));
        world.part(replica(0, 0), replica(1, 0));
        let (alice, bob) = (client(0, 1), client(1, 2));
        set(&mut world, alice, &photo, "photo");
        set(&mut world, alice, &album, "with-photo");
        world.run_ms(300);
        world.crash(replica(1, restarted));
        world.run_ms(100);
        world.start(replica(1, restarted));
        world.run_ms(300);
        assert_eq!(get(&mut world, bob, &album), "(nil)");
        world.heal();
        world.run_ms(1_000);
        assert_eq!(get(&mut world, bob, &album), "with-photo");
    }
}

#[test]
fn section_4_5_reads_and_writes_need_the_own_region_only() {
    let mut world = world(2, Options::default());
    let (here, there) = (client(0, 1), client(1, 2));
    world.cut(0, 1);
    set(&mut world, here, &key(0), "here");
    set(&mut world, there, &key(0), "there");
    let before = world.now;
    assert_eq!(get(&mut world, here, &key(0)), "here");
    assert_eq!(get(&mut world, there, &key(0)), "there");
    assert!(world.now - before < 2_000, "a read never waits");
    world.heal();
    world.run_ms(500);
    assert_eq!(get(&mut world, here, &key(0)), "there", "the last writer wins");
    assert_eq!(get(&mut world, there, &key(0)), "there");
}

/// A write after a read is later than what was read, whatever the clocks say.
#[test]
fn section_4_4_versions_are_lamport_times() {
    let mut world = world(2, Options::default());
    world.host(replica(0, 0)).skew = 3_000_000;
    let (fast, slow) = (client(0, 1), client(1, 2));
    set(&mut world, fast, &key(0), "fast");
    world.run_ms(100);
    assert_eq!(get(&mut world, slow, &key(0)), "fast");
    set(&mut world, slow, &key(0), "slow");
    world.run_ms(100);
    assert_eq!(get(&mut world, fast, &key(0)), "slow");
}

#[test]
fn section_4_3_what_was_written_last_is_the_nearest_dependency() {
    let mut world = world(2, Options::default());
    let (writer, reader) = (client(0, 1), client(0, 2));
    (0..3).for_each(|partition| set(&mut world, writer, &key(partition), "v"));
    assert_eq!(nearest(&world, writer), 1, "each write depends on the one before");
    (0..3).for_each(|partition| drop(get(&mut world, reader, &key(partition))));
    assert_eq!(nearest(&world, reader), 3);
    set(&mut world, reader, &key(0), "w");
    assert_eq!(nearest(&world, reader), 1);
}

/// A node that was down takes part again with everything that it had, and is sent what it lacks.
#[test]
fn section_5_2_a_node_that_restarts_has_what_it_had() {
    let mut world = world(2, Options::default());
    let (here, there) = (client(0, 1), client(1, 2));
    set(&mut world, here, &key(0), "before");
    world.run_ms(100);
    for (region, of) in [(0, here), (1, there)] {
        world.crash(replica(region, 0));
        world.run_ms(50);
        world.start(replica(region, 0));
        world.run_ms(200);
        assert_eq!(get(&mut world, of, &key(0)), "before");
    }
    world.crash(replica(1, 0));
    set(&mut world, here, &key(0), "while down");
    world.run_ms(500);
    world.start(replica(1, 0));
    world.run_ms(500);
    assert_eq!(get(&mut world, there, &key(0)), "while down");
    assert_eq!(unreceived(&world), 0);
}

fn unreceived(world: &World) -> usize {
    (0..2).map(|region| partition(world, replica(region, 0)).unreceived()).sum()
}

/// Figure 12, LOG: nothing names what it depends on, and what a region writes is shown after all that it had of other regions,
/// whether its session had read that or not.
#[test]
fn figure_12_a_log_is_shown_after_what_it_lacks_of_third_regions() {
    let mut world = world(3, Options { serialized: true, ..Options::default() });
    let (photo, comment) = (key(0), key_in(0, PARTITIONS, "comment"));
    world.part(replica(0, 0), replica(2, 0));
    let (alice, bob, carol) = (client(0, 1), client(1, 2), client(2, 3));
    set(&mut world, alice, &photo, "photo");
    world.run_ms(100);
    set(&mut world, bob, &comment, "nice");
    world.run_ms(500);
    assert_eq!(get(&mut world, carol, &comment), "(nil)");
    assert_eq!(partition(&world, replica(2, 0)).waiting(), 1);
    world.heal();
    world.run_ms(500);
    assert_eq!(
        (get(&mut world, carol, &comment), get(&mut world, carol, &photo)),
        ("nice".into(), "photo".into())
    );
}

/// Two logs that were cut off for longer than heartbeats are queued: the photo waits for a time of region 1, which is before the
/// comment; the comment waits for the photo.
#[test]
fn a_log_does_not_wait_for_a_heartbeat_behind_a_write_that_waits_for_it() {
    let mut world = world(3, Options { serialized: true, ..Options::default() });
    let (photo, comment) = (key(0), key_in(0, PARTITIONS, "comment"));
    (0..2).for_each(|region| world.cut(region, 2));
    world.run_ms(1_000);
    let (alice, bob, carol) = (client(0, 1), client(1, 2), client(2, 3));
    set(&mut world, alice, &photo, "photo");
    world.run_ms(100);
    set(&mut world, bob, &comment, "nice");
    world.run_ms(100);
    world.heal();
    world.run_ms(500);
    let shown = [&photo, &comment].map(|key| get(&mut world, carol, key));
    assert_eq!(shown, ["photo", "nice"]);
}
