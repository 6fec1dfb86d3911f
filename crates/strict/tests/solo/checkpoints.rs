//! Checkpoints of a keyspace without a log: one snapshot, whatever happens meanwhile.

use crate::solo::for_all;
use crate::solo::traffic::{perform, traffic};
use crate::solo::world::{World, get, increment, set};
use datatypes::Cell;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Durability, Step};

#[test]
fn a_pinned_checkpoint_shows_the_moment_of_the_pin() {
    let parts = (vec(traffic(), 0..40), vec(vec(traffic(), 0..12), 4), 1..5usize);
    for_all(200, parts, |(before, between, partitions)| {
        let mut world = World::new(3, Durability::Volatile);
        before.iter().for_each(|traffic| drop(perform(&mut world, traffic)));
        world.with_group(|now, transactions, group| transactions.pin(now, group));
        let pinned = world.state();
        let (mut pieces, mut between) = (Vec::new(), between.iter());
        for index in 0..3 {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let traffic = between.next().into_iter().flatten();
                traffic.for_each(|traffic| drop(perform(&mut world, traffic)));
                let (piece, next) = world.piece(index, from);
                pieces.push(piece);
                cursor = next;
            }
        }
        world.with_group(|_, transactions, group| transactions.unpin(group));
        prop_assert_eq!(World::recovered(partitions, &pieces, &[]).state(), pinned);
        prop_assert!(world.log.is_empty());
        world.state();
        Ok(())
    });
}

#[test]
fn a_flush_during_a_pinned_checkpoint_is_not_in_it() {
    let mut world = World::new(2, Durability::Volatile);
    (0..50u8).for_each(|key| drop(world.one(set(&[key], b"v"))));
    world.with_group(|now, transactions, group| transactions.pin(now, group));
    assert_eq!(world.many(0, false, &[Step::Flush, Step::Count]), "OK 0");
    world.one(set(b"later", b"v"));
    let pieces = world.checkpoint();
    let recovered = World::recovered(2, &pieces, &[]).state();
    assert_eq!(recovered.len(), 50);
    assert!(recovered.iter().all(|(_, cell)| *cell != Cell::ABSENT));
    world.with_group(|_, transactions, group| transactions.unpin(group));
    assert!(!world.retains());
    assert_eq!(
        World::recovered(2, &world.checkpoint(), &[]).state().len(),
        1,
        "unpinned, it shows the present"
    );
}

#[test]
fn a_pin_and_transactions_end_apart() {
    let mut world = World::new(2, Durability::Volatile);
    world.one(set(b"n", b"1"));
    world.begin(1);
    world.one(increment(b"n", 1));
    world.with_group(|now, transactions, group| transactions.pin(now, group));
    world.one(increment(b"n", 1));
    assert_eq!(world.within(1, get(b"n")), "1");
    assert_eq!(world.commit(1), "OK");
    assert!(world.retains(), "the pin still needs its snapshot");
    let mut recovered = World::recovered(2, &world.checkpoint(), &[]);
    assert_eq!(recovered.value(b"n"), "2");
    world.with_group(|_, transactions, group| transactions.unpin(group));
    assert!(!world.retains());
}
