//! Additions that go with a deadline which they had not observed, judged like other losses.

use super::{PlacedEffect, saw};
use datatypes::{Effect, dict, key, register, scored_set, set};

/// The deadline, as a command, with which the addition at a place goes; nothing if its writer had observed it, or observed a
/// deadline that is concurrent with it, or if somebody who observed the addition said another one or removed it.
pub(super) fn goes_with(effects_in_place: &[PlacedEffect<'_>], place: usize) -> Option<Vec<u8>> {
    let effect = |other: usize| effects_in_place[other].effect;
    let saw = |later: usize, earlier: usize| saw(effects_in_place, later, earlier);
    let is_unseen = |other: usize| match other < place {
        true => !saw(place, other),
        false => other > place && !saw(other, place),
    };
    let all = 0..effects_in_place.len();
    let is_rival = |other: &usize| is_unseen(*other) && (*other > place || dated(effect(*other)).is_some());
    let rivals: Vec<usize> = all.clone().filter(is_rival).collect();
    let knows_all =
        |other: usize| saw(other, place) && rivals.iter().all(|rival| *rival < other && saw(other, *rival));
    let deciding: Vec<usize> = (place + 1..all.end).filter(|other| !knows_all(*other)).collect();
    let around: Vec<usize> = (0..place).chain(deciding.iter().copied()).collect();
    // The last deadline for one who sees these.
    let last_date = |view: &[usize]| {
        let is_over = |other: usize| {
            view.iter().any(|later| *later > other && ends_deadline(effect(*later)) && saw(*later, other))
        };
        let last = view.iter().rev().find(|other| dated(effect(**other)).is_some() && !is_over(**other))?;
        Some(*last).filter(|last| dated(effect(*last)) != Some(0))
    };
    let own = last_date(&(0..place).filter(|other| saw(place, *other)).collect::<Vec<_>>());
    let deadline = |view: &[usize]| {
        let last = last_date(view).filter(|last| is_unseen(*last))?;
        let is_new = own.is_none_or(|own| own < last && saw(last, own));
        is_new.then(|| dated(effect(last)).map(|at| format!("PEXPIREAT {at}").into_bytes())).flatten()
    };
    let means_it = |other: &usize| {
        let says = resets(effect(*other)) || dated(effect(*other)).is_some();
        (says || removes(effect(*other), effect(place))) && saw(*other, place)
    };
    let meant: Vec<usize> = deciding.iter().copied().filter(means_it).collect();
    let is_first = |other: &usize| !meant.iter().any(|earlier| earlier < other && saw(*other, *earlier));
    let mut found = None;
    for first in meant.iter().filter(|other| is_first(other)) {
        let view = around.iter().copied().filter(|other| other < first && saw(*first, *other));
        let shown = deadline(&view.collect::<Vec<_>>())?;
        found = found.or(Some(shown));
    }
    if meant.is_empty() { deadline(&around) } else { found }
}

/// True for an effect that adds to what is there.
pub(super) fn adds(effect: &Effect<'_>) -> bool {
    datatypes::merge::lasting_kind(effect).is_some() && !resets(effect)
}

/// True if somebody who observed an effect replaced or removed the key.
pub(super) fn is_replaced(effects_in_place: &[PlacedEffect<'_>], place: usize) -> bool {
    (place + 1..effects_in_place.len())
        .any(|later| resets(effects_in_place[later].effect) && saw(effects_in_place, later, place))
}

fn resets(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::Key(key::Effect::Delete | key::Effect::Restore(_))
            | Effect::Register(register::Effect::Set { .. } | register::Effect::Delete)
    )
}

/// True for an effect after which no deadline that it observed counts.
fn ends_deadline(effect: &Effect<'_>) -> bool {
    let keep = register::Deadline::Keep;
    resets(effect)
        && !matches!(effect, Effect::Register(register::Effect::Set { deadline, .. }) if *deadline == keep)
}

/// When the key is to go, as an effect says; 0 for never.
fn dated(effect: &Effect<'_>) -> Option<u64> {
    match effect {
        Effect::Key(key::Effect::SetDeadline(at)) => Some(*at),
        Effect::Register(register::Effect::Set { deadline, .. }) => match deadline {
            register::Deadline::Clear => Some(0),
            register::Deadline::Keep => None,
            register::Deadline::At { millis } => Some(*millis),
        },
        _ => None,
    }
}

/// True if an effect removes or replaces the only element that an addition names.
fn removes(remover: &Effect<'_>, addition: &Effect<'_>) -> bool {
    let [only] = elements(addition)[..] else { return false };
    let names_it = || elements(remover).contains(&only);
    match (remover, addition) {
        (Effect::Set(set::Effect::Remove { members }), Effect::Set(_)) => {
            members.iter().any(|other| other == only)
        }
        (Effect::Dict(dict::Effect::Remove { fields }), Effect::Dict(_)) => {
            fields.iter().any(|other| other == only)
        }
        (Effect::ScoredSet(scored_set::Effect::Remove { members }), Effect::ScoredSet(_)) => {
            members.iter().any(|other| other == only)
        }
        (Effect::Dict(dict::Effect::Put { .. }), Effect::Dict(_))
        | (Effect::ScoredSet(scored_set::Effect::Put { .. }), Effect::ScoredSet(_)) => names_it(),
        _ => false,
    }
}

/// The elements that an addition names.
fn elements<'e>(effect: &'e Effect<'_>) -> Vec<&'e [u8]> {
    let mut elements: Vec<&[u8]> = match effect {
        Effect::Dict(dict::Effect::Put { pairs, .. }) => pairs.pairs().map(|(field, _)| field).collect(),
        Effect::Dict(dict::Effect::Add { field, .. }) => vec![field],
        Effect::Set(set::Effect::Add { members }) => members.iter().collect(),
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().map(|(_, member)| *member).collect()
        }
        Effect::ScoredSet(scored_set::Effect::Add { member, .. }) => vec![member],
        _ => Vec::new(),
    };
    elements.sort_unstable();
    elements.dedup();
    elements
}
