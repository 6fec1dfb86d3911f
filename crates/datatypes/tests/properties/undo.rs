//! A patch takes its effect back and performs it again, any number of times.

use crate::properties::for_all;
use crate::properties::strategies::{effect, effect_of, scene};
use datatypes::{Cell, Patch, apply, exchange};
use proptest::prelude::*;

#[test]
fn patches_undo_and_redo_a_history_exactly() {
    for_all(1500, scene(effect_of, || effect().boxed(), 8), |(cell, effects)| {
        let mut states = vec![cell.clone()];
        let mut patches: Vec<Patch> = Vec::new();
        let mut state = cell;
        for effect in &effects {
            patches.push(apply::<true>(&mut state, effect));
            states.push(state.clone());
        }
        for round in 0..2 {
            for place in (0..patches.len()).rev() {
                exchange(&mut state, &mut patches[place]);
                prop_assert_eq!(&state, &states[place], "undo of {:?}, round {}", &effects[place], round);
            }
            for place in 0..patches.len() {
                exchange(&mut state, &mut patches[place]);
                prop_assert_eq!(&state, &states[place + 1], "redo of {:?}, round {}", &effects[place], round);
            }
        }
        Ok(())
    });
}

#[test]
fn a_suffix_is_undone_and_other_effects_take_its_place() {
    let branches = scene(effect_of, || effect().boxed(), 9);
    for_all(1000, branches, |(cell, effects)| {
        let (common, rest) = effects.split_at(3);
        let (left, right) = rest.split_at(3);
        let mut state = cell.clone();
        common.iter().for_each(|effect| drop(apply::<true>(&mut state, effect)));
        let fork = state.clone();
        let mut patches: Vec<Patch> = left.iter().map(|effect| apply::<true>(&mut state, effect)).collect();
        patches.iter_mut().rev().for_each(|patch| exchange(&mut state, patch));
        right.iter().for_each(|effect| drop(apply::<true>(&mut state, effect)));
        let mut expected = fork;
        right.iter().for_each(|effect| drop(apply::<false>(&mut expected, effect)));
        prop_assert_eq!(state, expected);
        Ok(())
    });
}

#[test]
fn keeping_a_patch_changes_nothing_else() {
    for_all(1500, scene(effect_of, || effect().boxed(), 4), |(cell, effects)| {
        let (mut with, mut without): (Cell, Cell) = (cell.clone(), cell);
        for effect in &effects {
            apply::<true>(&mut with, effect);
            let patch = apply::<false>(&mut without, effect);
            prop_assert_eq!(&with, &without, "after {:?}", effect);
            prop_assert_eq!(patch, Patch::Nothing);
        }
        Ok(())
    });
}
