//! What operations combine to is what they come to one after the other (Claret 5.3, Corrections 63).

use crate::properties::strategies::{KINDS, cell_of, effect_of, kinds, operation_of};
use crate::properties::{evaluate, for_all};
use datatypes::combine::{Outstanding, combine, then};
use datatypes::{Cell, Effect, Kind, Operation, Value, apply};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use std::cell::Cell as Counter;
use types::ReplyBuf;
use types::ReplySink as _;

/// What one operation comes to in a state: its reply, its effect, the state after it.
fn come(
    cell: &Cell,
    operation: &Operation<'static>,
    blind: bool,
) -> (ReplyBuf, Option<Effect<'static>>, Cell) {
    let (reply, effect) = match operation.blind_effect().filter(|_| blind) {
        Some(effect) => (ReplyBuf::new(), Some(effect)),
        None => evaluate(cell, operation),
    };
    let mut shown = reply.clone();
    if blind {
        shown.clear();
        shown.simple("OK");
    }
    let mut after = cell.clone();
    if let Some(effect) = &effect {
        apply::<false>(&mut after, effect);
    }
    (shown, effect, after)
}

/// The same to whoever looks: a counter also knows how often it was added to, so that additions can be taken back.
fn assert_alike(a: &Cell, b: &Cell, what: impl Fn() -> String) -> Result<(), TestCaseError> {
    match (&a.value, &b.value) {
        (Some(Value::Counter(x)), Some(Value::Counter(y))) => {
            prop_assert_eq!((x.sum(), a.expires_at), (y.sum(), b.expires_at), "{}", what());
        }
        _ => prop_assert_eq!(a, b, "{}", what()),
    }
    Ok(())
}

/// Asks operations one after the other, each combined with those before it as long as that works: how many were.
fn check(cell: &Cell, steps: &[(Operation<'static>, bool)]) -> Result<usize, TestCaseError> {
    let (first, rest) = steps.split_first().expect("there are steps");
    let (mut reply, mut effect, mut after) = come(cell, &first.0, first.1);
    let mut held = first;
    for (combined, next) in rest.iter().enumerate() {
        let outstanding =
            Outstanding { operation: &held.0, blind: held.1, reply: &reply, effect: effect.as_ref() };
        let Some(both) = combine(&outstanding, &next.0, next.1) else { return Ok(combined) };
        let (expected, _, now) = come(&after, &next.0, next.1);
        prop_assert_eq!(&both.reply, &expected, "{:?} after {:?}", next, held);
        let mut at_once = cell.clone();
        if let Some(effect) = &both.effect {
            apply::<false>(&mut at_once, effect);
        }
        assert_alike(&at_once, &now, || format!("{next:?} after {held:?}: {:?}", both.effect))?;
        (reply, effect, after, held) = (both.reply, both.effect, now, next);
    }
    Ok(rest.len())
}

/// Half of the time the same operation again, since equal ones combine more often than others.
fn steps(kind: Kind) -> impl Strategy<Value = Vec<(Operation<'static>, bool)>> {
    let step = move || (operation_of(kind), prop::bool::weighted(0.3));
    (step(), vec(option::of(step()), 2)).prop_map(|(first, rest)| {
        let mut steps = vec![first];
        for step in rest {
            let again = steps[steps.len() - 1].clone();
            steps.push(step.unwrap_or(again));
        }
        steps
    })
}

#[test]
fn combined_operations_come_to_what_they_do_one_after_the_other() {
    for kind in kinds() {
        let combined = Counter::new([0; 3]);
        for_all(
            6000,
            (prop_oneof![9 => cell_of(kind), 1 => Just(Cell::ABSENT)], steps(kind)),
            |(cell, steps)| {
                let mut counts = combined.get();
                counts[check(&cell, &steps)?] += 1;
                combined.set(counts);
                Ok(())
            },
        );
        let [_, two, three] = combined.get();
        assert!(two > 100 && three > 100, "the test must meet {kind:?} that combine: {two}, {three}");
    }
}

#[test]
fn one_effect_does_what_two_do() {
    for kind in KINDS {
        let joined = Counter::new(0);
        for_all(8000, (cell_of(kind), effect_of(kind), effect_of(kind)), |(cell, first, second)| {
            let Some(both) = then(&first, &second) else { return Ok(()) };
            joined.set(joined.get() + 1);
            let (mut one_by_one, mut at_once) = (cell.clone(), cell);
            apply::<false>(&mut one_by_one, &first);
            apply::<false>(&mut one_by_one, &second);
            apply::<false>(&mut at_once, &both);
            assert_alike(&at_once, &one_by_one, || format!("{second:?} after {first:?}: {both:?}"))
        });
        assert!(joined.get() > 50, "the test must meet {kind:?} with effects that join: {}", joined.get());
    }
}

#[test]
fn what_holds_no_lock_for_it_combines_with_nothing() {
    for kind in kinds() {
        for_all(1000, (cell_of(kind), operation_of(kind), operation_of(kind)), |(cell, held, next)| {
            let (reply, effect, _) = come(&cell, &held, false);
            let outstanding =
                Outstanding { operation: &held, blind: false, reply: &reply, effect: effect.as_ref() };
            let crosses = held.is_read() != next.is_read();
            prop_assert!(!crosses || combine(&outstanding, &next, false).is_none());
            let blind = Outstanding { blind: true, ..outstanding };
            prop_assert!(combine(&blind, &next, false).is_none(), "a blind one has seen nothing");
            Ok(())
        });
    }
}
