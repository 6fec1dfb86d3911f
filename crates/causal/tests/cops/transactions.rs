//! Section 4.6: get transactions of COPS-GT (figure 7).

use super::client::Client;
use super::client::GET;
use super::client::step;
use super::scenes::{client, get_trans, key, options, set, values, world};
use super::world::{World, coordinator, replica};
use anabranch_causal::cops::{Mutant, Options};
use types::RequestId;

/// Alice makes her album private and writes something personal, between the two halves of Eve's first round: she has read that the
/// album is public, and the question for it is still on its way. Returns Eve's replies: the access and the album.
pub fn acl_and_album(mutant: Option<Mutant>) -> Vec<String> {
    let mut world = world(2, options(true, mutant));
    let (acl, album) = (key(0), key(1));
    let (alice, eve) = (Client::new(coordinator(0, 1), 1), Client::new(coordinator(0, 0), 2));
    set(&mut world, alice, &acl, "public");
    set(&mut world, alice, &album, "holidays");
    let id = begin_half_lost(&mut world, eve, 1, &[&acl, &album]);
    set(&mut world, alice, &acl, "friends");
    set(&mut world, alice, &album, "personal");
    world.heal();
    values(&world.await_reply(id))
}

/// A get transaction whose question to a partition is lost at first.
fn begin_half_lost(world: &mut World, client: Client, lost: u16, keys: &[&str]) -> RequestId {
    world.part(client.at, replica(0, lost));
    let steps: Vec<_> = keys.iter().map(|key| step(key, GET)).collect();
    let id = client.send(world, &steps);
    world.run_ms(10);
    id
}

#[test]
fn section_4_6_eve_does_not_read_the_personal_album_as_public() {
    assert_eq!(acl_and_album(None), ["friends", "personal"]);
}

/// The other straw man: Alice then removes what is personal and opens the album again, while Eve has read the personal one.
#[test]
fn section_4_6_no_order_of_reads_is_needed() {
    let mut world = world(2, options(true, None));
    let (acl, album) = (key(0), key(1));
    let (alice, eve) = (Client::new(coordinator(0, 1), 1), Client::new(coordinator(0, 0), 2));
    set(&mut world, alice, &acl, "friends");
    set(&mut world, alice, &album, "personal");
    let id = begin_half_lost(&mut world, eve, 0, &[&acl, &album]);
    set(&mut world, alice, &album, "cleaned");
    set(&mut world, alice, &acl, "public");
    world.heal();
    assert_eq!(values(&world.await_reply(id)), ["public", "cleaned"]);
}

/// The second round asks for the versions that the first one named, and not for the latest: what was written since would bring new
/// dependencies.
#[test]
fn figure_7_the_second_round_reads_named_versions() {
    let mut world = world(2, options(true, None));
    let (x, y) = (key(0), key(1));
    let (writer, reader) = (Client::new(coordinator(0, 1), 1), Client::new(coordinator(0, 0), 2));
    set(&mut world, writer, &x, "x1");
    set(&mut world, writer, &y, "y1");
    let id = begin_half_lost(&mut world, reader, 1, &[&x, &y]);
    set(&mut world, writer, &x, "x2");
    set(&mut world, writer, &y, "y2");
    world.heal();
    // The answer for y is on its way; the second round for x is held up.
    world.run_ms(89);
    world.part(reader.at, replica(0, 0));
    world.run_ms(20);
    set(&mut world, writer, &x, "x3");
    world.heal();
    assert_eq!(values(&world.await_reply(id)), ["x2", "y2"]);
}

/// Dependencies of dependencies: z names y only as nearest, and y names x. Returns what is read of x and z.
pub fn far_dependency(mutant: Option<Mutant>) -> Vec<String> {
    let mut world = world(2, options(true, mutant));
    let (x, y, z) = (key(0), key(1), key(2));
    let (writer, reader) = (Client::new(coordinator(0, 1), 1), Client::new(coordinator(0, 0), 2));
    set(&mut world, writer, &x, "x1");
    set(&mut world, writer, &z, "z1");
    let id = begin_half_lost(&mut world, reader, 2, &[&x, &z]);
    for (key, value) in [(&x, "x2"), (&y, "y2"), (&z, "z2")] {
        set(&mut world, writer, key, value);
    }
    world.heal();
    values(&world.await_reply(id))
}

#[test]
fn figure_7_versions_keep_all_that_they_depend_on() {
    assert_eq!(far_dependency(None), ["x2", "z2"]);
}

/// In another region, too, the second round finds everything there.
#[test]
fn section_4_6_what_another_region_wrote_is_read_together() {
    let mut world = world(2, options(true, None));
    let (x, y) = (key(0), key(1));
    let (writer, reader) = (client(0, 1), Client::new(coordinator(1, 0), 2));
    set(&mut world, writer, &x, "x1");
    set(&mut world, writer, &y, "y1");
    world.run_ms(200);
    world.part(reader.at, replica(1, 1));
    let steps = [step(&x, GET), step(&y, GET)];
    let id = reader.send(&mut world, &steps);
    world.run_ms(5);
    set(&mut world, writer, &x, "x2");
    set(&mut world, writer, &y, "y2");
    world.run_ms(60);
    world.heal();
    assert_eq!(values(&world.await_reply(id)), ["x2", "y2"]);
}

/// A session reads what it wrote, and together what it read one by one.
#[test]
fn section_4_3_get_transactions_are_part_of_the_context() {
    let mut world = world(3, options(true, None));
    let (x, y, z) = (key(0), key(1), key(2));
    let (one, other, far) = (client(0, 1), client(1, 2), client(2, 3));
    world.part(replica(0, 0), replica(2, 0));
    set(&mut world, one, &x, "x1");
    world.run_ms(100);
    assert_eq!(get_trans(&mut world, other, &[&x, &y]), ["x1", "(nil)"]);
    set(&mut world, other, &z, "z1");
    world.run_ms(300);
    assert_eq!(get_trans(&mut world, far, &[&x, &z]), ["(nil)", "(nil)"]);
    world.heal();
    world.run_ms(500);
    assert_eq!(get_trans(&mut world, far, &[&x, &z]), ["x1", "z1"]);
}

/// Corrections 46: the version that the second round asks for is collected meanwhile. The transaction begins again.
/// Returns what it reads.
pub fn collected_meanwhile(mutant: Option<Mutant>, lease_ms: u64) -> Vec<String> {
    let lease = std::time::Duration::from_millis(lease_ms);
    let mut world = world(2, Options { lease, ..options(true, mutant) });
    let (x, y) = (key(0), key(1));
    let (writer, reader) = (Client::new(coordinator(0, 1), 1), Client::new(coordinator(0, 0), 2));
    set(&mut world, writer, &x, "x1");
    set(&mut world, writer, &y, "y1");
    let id = begin_half_lost(&mut world, reader, 1, &[&x, &y]);
    set(&mut world, writer, &x, "x2");
    set(&mut world, writer, &y, "y2");
    world.heal();
    world.run_ms(89);
    world.part(reader.at, replica(0, 0));
    world.run_ms(20);
    set(&mut world, writer, &y, "y3");
    set(&mut world, writer, &x, "x3");
    // What x was is forgotten: every region has x3.
    world.run_ms(1_000);
    world.heal();
    values(&world.await_reply(id))
}

#[test]
fn section_5_1_a_version_that_is_gone_begins_the_transaction_again() {
    assert_eq!(collected_meanwhile(None, 150), ["x3", "y3"]);
}

#[test]
fn section_5_1_a_leased_version_is_retained() {
    assert_eq!(collected_meanwhile(None, 5_000), ["x2", "y2"]);
}

/// What y depends on was lost where it was, with the operator's consent, and the region that wrote it is cut off. Reads of one
/// key go on.
#[test]
fn corrections_46_a_transaction_that_never_finds_a_version_ends() {
    let mut world = world(2, Options { accept_loss: true, ..options(true, None) });
    let (own, there) = (client(0, 1), client(1, 2));
    let (x, y) = (key(0), key(1));
    set(&mut world, there, &x, "x");
    set(&mut world, there, &y, "y");
    // It arrives, and nobody will know that it has.
    world.cut(0, 1);
    world.run_ms(25);
    assert_eq!(get_trans(&mut world, own, &[&x, &y]), ["x", "y"]);
    world.destroy(replica(0, 0));
    world.start_from(replica(0, 0), false);
    world.run_ms(3_000);
    let steps = [step(&x, GET), step(&y, GET)];
    let reply = own.many(&mut world, &steps);
    assert!(reply.starts_with("-UNAVAILABLE partition 0 of the region"), "{reply}");
    assert_eq!(super::scenes::get(&mut world, own, &y), "y");
}
