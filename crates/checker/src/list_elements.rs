//! Which element of a list an effect is about: found by giving every pushed element a name of its own, and looking at the
//! list that the effect observed.

use datatypes::merge::{Among, Trace, perform};
use datatypes::{Cell, Effect, Items, Value, key, list, register};
use std::collections::{BTreeMap, BTreeSet};

type Name = Vec<u8>;

/// For each effect on a list that is about elements which are there, their names; in the order of the effects.
pub(crate) fn elements(effects: &[&Effect<'_>], saw: &dyn Fn(usize, usize) -> bool) -> Vec<BTreeSet<Name>> {
    let replaces = |effect: &&Effect<'_>| matches!(effect, Effect::List(list::Effect::Put { .. }));
    if !effects.iter().any(replaces) {
        return vec![BTreeSet::new(); effects.len()];
    }
    let named: Vec<Vec<Name>> = effects.iter().enumerate().map(|(place, e)| names(place, e)).collect();
    let find = |place: usize| {
        let seen: Vec<usize> = (0..place).filter(|earlier| saw(place, *earlier)).collect();
        meant(effects[place], || list_of(effects, &named, &seen, saw))
    };
    (0..effects.len()).map(find).collect()
}

/// The names of what an effect inserts.
fn names(place: usize, effect: &Effect<'_>) -> Vec<Name> {
    let count = match effect {
        Effect::List(list::Effect::Push { values, .. }) => values.len(),
        Effect::List(list::Effect::InsertAt { .. }) => 1,
        _ => 0,
    };
    (0..count).map(|number| format!("{place} {number}").into_bytes()).collect()
}

/// The names in the list that some of the effects make.
fn list_of(
    effects: &[&Effect<'_>],
    named: &[Vec<Name>],
    places: &[usize],
    saw: &dyn Fn(usize, usize) -> bool,
) -> Vec<Name> {
    let slices: BTreeMap<usize, Vec<&[u8]>> =
        places.iter().map(|place| (*place, named[*place].iter().map(Vec::as_slice).collect())).collect();
    let (mut cell, mut done, mut traces) = (Cell::default(), Vec::new(), Vec::<Option<Trace>>::new());
    let mut places_so_far: Vec<usize> = Vec::new();
    for place in places {
        let effect = match effects[*place] {
            // It leaves the names as they are.
            Effect::List(list::Effect::Put { .. }) => continue,
            Effect::List(list::Effect::Push { end, .. }) => {
                let values = Items::Slices(&slices[place]);
                Effect::List(list::Effect::Push { end: *end, values })
            }
            Effect::List(list::Effect::InsertAt { index, .. }) => {
                Effect::List(list::Effect::InsertAt { index: *index, value: slices[place][0] })
            }
            other => other.clone(),
        };
        done.push(effect);
        places_so_far.push(*place);
        let known: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).chain([None]).collect();
        let sees = |later: usize, earlier: usize| saw(places_so_far[later], places_so_far[earlier]);
        let performed = perform(&mut cell, &Among { effects: &done, traces: &known, sees: &sees });
        traces.push(performed.trace);
    }
    match cell.value {
        Some(Value::List(list)) => list.iter().map(<[u8]>::to_vec).collect(),
        _ => Vec::new(),
    }
}

/// The names of what an effect replaces or removes of the list that it observed.
fn meant(effect: &Effect<'_>, list: impl Fn() -> Vec<Name>) -> BTreeSet<Name> {
    let take = |wanted: &dyn Fn(usize, usize) -> bool| -> BTreeSet<Name> {
        let list = list();
        let len = list.len();
        list.into_iter().enumerate().filter(|(at, _)| wanted(*at, len)).map(|(_, name)| name).collect()
    };
    let at = |index: u64| usize::try_from(index).unwrap_or(usize::MAX);
    match effect {
        Effect::Key(key::Effect::Delete | key::Effect::Restore(_))
        | Effect::Register(register::Effect::Delete | register::Effect::Set { .. }) => take(&|_, _| true),
        Effect::List(list::Effect::Put { index, .. }) => take(&|place, _| place == at(*index)),
        Effect::List(list::Effect::Pop { end: list::End::Front, count }) => {
            take(&|place, _| place < at(*count))
        }
        Effect::List(list::Effect::Pop { end: list::End::Back, count }) => {
            take(&|place, len| place >= len.saturating_sub(at(*count)))
        }
        Effect::List(list::Effect::Keep { start, len: length }) => {
            let end = start.saturating_add(*length);
            take(&|place, _| place < at(*start) || place >= at(end))
        }
        Effect::List(list::Effect::RemoveAt { positions }) => {
            let positions: BTreeSet<usize> = positions.iter().map(at).collect();
            take(&|place, _| positions.contains(&place))
        }
        _ => BTreeSet::new(),
    }
}
