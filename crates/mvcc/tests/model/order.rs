//! Effects that arrive in any order.

use crate::strategies::{effect, effect_of, scene};
use crate::{Stamp, for_all};
use datatypes::{Cell, Effect, apply};
use mvcc::Store;
use proptest::prelude::*;
use types::HashSeed;

const KEY: &[u8] = b"key";

/// A key that holds `cell`, with a snapshot open.
fn store_of(cell: &Cell) -> Store<Stamp> {
    let mut store = Store::new(HashSeed(1), (0, false));
    store.restore(KEY, (1, false), cell.clone());
    store.set_horizon(Some((1, false)));
    store
}

#[test]
fn every_prefix_is_a_snapshot_whatever_the_order_of_arrival() {
    let scenes = scene(effect_of, || effect().boxed(), 8);
    let order = Just((0..8usize).collect::<Vec<_>>()).prop_shuffle();
    for_all(600, (scenes, order), |((cell, effects), order)| {
        let mut store = store_of(&cell);
        let hash = store.hash(KEY);
        for place in order {
            store.commit(hash, KEY, (2 + place as u32, false), &effects[place]);
        }
        let mut expected = cell;
        for (place, effect) in effects.iter().enumerate() {
            let read = store.with_state(hash, KEY, |stamp| stamp.0 < 2 + place as u32, &[], Cell::clone);
            prop_assert_eq!(&read, &expected, "before effect {}", place);
            apply::<false>(&mut expected, effect);
        }
        prop_assert_eq!(store.cell(hash, KEY, 0), &expected);
        store.assert_consistent();
        Ok(())
    });
}

#[test]
fn a_retracted_effect_has_never_been() {
    for_all(600, (scene(effect_of, || effect().boxed(), 6), 0..6usize), |((cell, effects), gone)| {
        let (mut with, mut without) = (store_of(&cell), store_of(&cell));
        let hash = with.hash(KEY);
        for (place, effect) in effects.iter().enumerate() {
            with.commit(hash, KEY, (2 + place as u32, false), effect);
            if place != gone {
                without.commit(hash, KEY, (2 + place as u32, false), effect);
            }
        }
        prop_assert!(with.retract(hash, KEY, (2 + gone as u32, false)));
        prop_assert!(!with.retract(hash, KEY, (2 + gone as u32, false)));
        for upto in 0..9 {
            let view = |stamp: &Stamp| stamp.0 <= upto;
            let read = with.with_state(hash, KEY, view, &[], Cell::clone);
            prop_assert_eq!(read, without.with_state(hash, KEY, view, &[], Cell::clone));
        }
        with.assert_consistent();
        Ok(())
    });
}

/// What a snapshot needs, it needs until the horizon passes; an effect that comes below is under all retained ones.
#[test]
fn an_effect_that_arrives_below_the_horizon_is_under_the_retained_ones() {
    let mut store = store_of(&Cell::ABSENT);
    let hash = store.hash(KEY);
    let set = |value| Effect::Register(datatypes::register::Effect::Set { value, deadline: CLEAR });
    store.commit(hash, KEY, (9, false), &set(b"late"));
    store.set_horizon(Some((5, true)));
    store.commit(hash, KEY, (3, false), &set(b"early"));
    let read = |store: &mut Store<Stamp>, upto: u32| {
        store.with_state(hash, KEY, |stamp| stamp.0 <= upto, &[], |cell| cell.value.clone())
    };
    let value = |bytes: &[u8]| Some(datatypes::Value::Register(datatypes::register::Register::new(bytes)));
    assert_eq!(read(&mut store, 9), value(b"late"));
    assert_eq!(read(&mut store, 8), value(b"early"));
    assert_eq!(read(&mut store, 0), value(b"early"), "what is below the horizon cannot be hidden");
    assert!(!store.has_effect(hash, KEY, (3, false)) && !store.retract(hash, KEY, (3, false)));
    store.assert_consistent();
}

const CLEAR: datatypes::register::Deadline = datatypes::register::Deadline::Clear;
