//! From the log, and from a checkpoint that was taken beside traffic, to the same state.

use crate::solo::for_all;
use crate::solo::strategies::{effect, effect_of, encoded, scene};
use crate::solo::traffic::{perform, traffic};
use crate::solo::world::{World, set};
use datatypes::{Cell, Effect, apply, key};
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{Durability, Encode};
use strict::solo::Record;
use types::Timestamp;

#[test]
fn the_log_gives_the_state_back_on_any_number_of_partitions() {
    for_all(250, (vec(traffic(), 1..60), 1..6usize), |(traffic, partitions)| {
        let mut world = World::new(4, Durability::Written);
        traffic.iter().for_each(|traffic| drop(perform(&mut world, traffic)));
        prop_assert_eq!(World::recovered(4, &[], &world.log).state(), world.state());
        prop_assert_eq!(World::recovered(partitions, &[], &world.log).state(), world.state());
        Ok(())
    });
}

/// Enough keys that the checkpoint of a partition has several pieces.
fn fill(world: &mut World, partitions: usize) {
    let value = [b'v'; 500];
    for filler in 0..400 * partitions {
        world.one(set(format!("filler {filler}").as_bytes(), &value));
    }
}

#[test]
fn a_checkpoint_in_pieces_and_the_log_since_its_beginning_give_the_state_back() {
    let parts = (vec(traffic(), 0..30), vec(vec(traffic(), 0..8), 12), vec(traffic(), 0..20), 1..4usize);
    for_all(40, parts, |(before, between, after, partitions)| {
        let mut world = World::new(2, Durability::Written);
        fill(&mut world, 2);
        before.iter().for_each(|traffic| drop(perform(&mut world, traffic)));
        let beginning = world.log.len();
        let (mut pieces, mut between) = (Vec::new(), between.iter());
        for index in 0..2 {
            let mut cursor = Some(0);
            while let Some(from) = cursor {
                let (piece, next) = world.piece(index, from);
                pieces.push(piece);
                cursor = next;
                let traffic = between.next().into_iter().flatten();
                traffic.for_each(|traffic| drop(perform(&mut world, traffic)));
            }
        }
        after.iter().for_each(|traffic| drop(perform(&mut world, traffic)));
        let recovered = World::recovered(partitions, &pieces, &world.log[beginning..]);
        prop_assert_eq!(recovered.state(), world.state());
        Ok(())
    });
}

#[test]
fn a_checkpoint_has_pieces() {
    let mut world = World::new(2, Durability::Written);
    fill(&mut world, 2);
    let pieces = world.checkpoint();
    assert!(pieces.len() > 4, "{} pieces", pieces.len());
    assert!(pieces.iter().all(|piece| piece.len() < 128 * 1024));
    assert_eq!(World::recovered(3, &pieces, &[]).state(), world.state());
}

#[test]
fn what_comes_after_recovery_is_stamped_above_what_came_before() {
    let mut world = World::new(1, Durability::Written);
    world.advance_millis(1_000_000);
    world.one(set(b"k", b"1"));
    // The new life's wall clock is far behind.
    let mut again = World::recovered(1, &[], &world.log);
    again.one(set(b"k", b"2"));
    let log = [world.log.clone(), again.log.clone()].concat();
    assert_eq!(World::recovered(1, &[], &log).value(b"k"), "2");
}

fn record(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes);
    bytes
}

/// The log may begin before the checkpoint was complete: what the checkpoint holds is not applied again.
#[test]
fn records_that_a_checkpoint_reflects_are_not_applied_again() {
    let scenes = (scene(effect_of, || effect().boxed(), 6), 0..6usize);
    for_all(500, scenes, |((cell, effects), reflected)| {
        let name: &[u8] = b"key";
        let log: Vec<Vec<u8>> = (2..)
            .zip(&effects)
            .map(|(at, effect)| record(&Record::Effect { stamp: Timestamp(at), key: name, effect }))
            .collect();
        let restore = Effect::Key(key::Effect::Restore(encoded(&cell).into()));
        let first = record(&Record::Effect { stamp: Timestamp(1), key: name, effect: &restore });
        let mut checkpointed = cell;
        effects[..reflected].iter().for_each(|effect| drop(apply::<false>(&mut checkpointed, effect)));
        let state = Record::State { stamp: Timestamp(1 + reflected as u64), key: name, cell: &checkpointed };
        let mut piece = Vec::new();
        if checkpointed != Cell::ABSENT {
            let state = record(&state);
            piece.extend_from_slice(&(state.len() as u32).to_le_bytes());
            piece.extend_from_slice(&state);
        }
        let all = [vec![first], log.clone()].concat();
        let expected = World::recovered(1, &[], &all).state();
        prop_assert_eq!(&World::recovered(1, &[piece.clone()], &all).state(), &expected);
        if checkpointed != Cell::ABSENT {
            prop_assert_eq!(World::recovered(1, &[piece], &log).state(), expected);
        }
        Ok(())
    });
}
