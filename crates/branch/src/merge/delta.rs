//! The effects that lead from one value to another: what a merge writes on top of the newest version.

use super::list::{edits, middle};
use super::value::pieces;
use crate::Change;
use datatypes::collections::{ChunkedList, ScoredTree};
use datatypes::list::Positions;
use datatypes::register::{Deadline, Register, parse_integer};
use datatypes::scored_set::ScoredItems;
use datatypes::{
    Cell, Effect, Items, Mode, Value, apply, counter, dict, key, list, register, scored_set, set,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use types::Reader;

/// Effects in their binary form that make `to` of `from`: the few elements that differ, where the type allows it. With
/// an additive change they are additions.
pub(crate) fn effects_between(from: &Cell, to: &Cell, change: Change) -> Vec<Box<[u8]>> {
    let mut effects = Effects::default();
    match (&from.value, &to.value) {
        (None, None) => {}
        (_, None) => effects.push(&Effect::DELETE),
        (from, Some(to)) => between(from.as_ref(), to, change, &mut effects),
    }
    let mut reached = from.clone();
    for bytes in &effects.0 {
        if let Ok(effect) = Effect::decode(&mut Reader::new(bytes)) {
            apply::<false>(&mut reached, &effect);
        }
    }
    if reached.expires_at != to.expires_at {
        effects.push(&Effect::Key(key::Effect::SetDeadline(to.expires_at)));
        reached.expires_at = to.expires_at;
    }
    if reached != *to && !is_equal_sum(&reached, to) {
        let mut bytes = Vec::new();
        to.encode(&mut bytes);
        effects = Effects::default();
        effects.push(&Effect::Key(key::Effect::Restore(Cow::Owned(bytes))));
    }
    effects.0
}

/// Counters may have come to one sum by different numbers of additions.
fn is_equal_sum(a: &Cell, b: &Cell) -> bool {
    match (&a.value, &b.value) {
        (Some(Value::Counter(a)), Some(Value::Counter(b))) => a.sum() == b.sum(),
        _ => false,
    }
}

#[derive(Default)]
struct Effects(Vec<Box<[u8]>>);

impl Effects {
    fn push(&mut self, effect: &Effect<'_>) {
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        self.0.push(bytes.into());
    }
}

/// The elements that differ, or nothing: then the caller writes the whole.
fn between(from: Option<&Value>, to: &Value, change: Change, effects: &mut Effects) {
    match (from, to) {
        (None, Value::Register(Register::Integer(to))) if change == Change::Additive(Mode::Increment) => {
            effects.push(&Effect::Register(register::Effect::Add { by: *to }));
        }
        (Some(Value::Register(Register::Integer(from))), Value::Register(Register::Integer(to)))
            if change == Change::Additive(Mode::Increment) =>
        {
            // By nothing, too: what was merged from additions alone is one itself.
            effects.push(&Effect::Register(register::Effect::Add { by: to.wrapping_sub(*from) }));
        }
        (Some(Value::Register(from)), Value::Register(to)) if from != to => to.with_bytes(|value| {
            let effect = register::Effect::Set { value, deadline: Deadline::Keep };
            effects.push(&Effect::Register(effect));
        }),
        (Some(Value::Dict(from)), Value::Dict(to)) => dicts(from, to, change, effects),
        (Some(Value::Set(from)), Value::Set(to)) => {
            // In an order that does not tell how the sets came about.
            let sorted = |members: &mut dyn Iterator<Item = Vec<u8>>| {
                let mut members: Vec<Vec<u8>> = members.collect();
                members.sort_unstable();
                Items::collect(members.iter().map(Vec::as_slice))
            };
            let mut added = to.iter().filter(|member| !from.contains(member)).map(|member| member.to_vec());
            let members = sorted(&mut added);
            if !members.is_empty() {
                effects.push(&Effect::Set(set::Effect::Add { members }));
            }
            let mut removed = from.iter().filter(|member| !to.contains(member)).map(|member| member.to_vec());
            let members = sorted(&mut removed);
            if !members.is_empty() {
                effects.push(&Effect::Set(set::Effect::Remove { members }));
            }
        }
        (Some(Value::ScoredSet(from)), Value::ScoredSet(to)) => scores(from, to, change, effects),
        (Some(Value::List(from)), Value::List(to)) => lists(from, to, effects),
        (Some(Value::Stream(from)), Value::Stream(to)) => {
            super::stream::between(from, to, &mut |effect| effects.push(&Effect::Stream(effect.clone())));
        }
        (Some(Value::Counter(from)), Value::Counter(to)) if from.sum() != to.sum() => {
            sums(to.sum() - from.sum(), effects);
        }
        (None, Value::Counter(to)) => sums(to.sum(), effects),
        _ => {}
    }
}

fn sums(difference: i128, effects: &mut Effects) {
    for by in pieces(difference) {
        effects.push(&Effect::Counter(counter::Effect::Add { by }));
    }
}

fn scores(from: &ScoredTree, to: &ScoredTree, change: Change, effects: &mut Effects) {
    let (before, mut written) = (effects.0.len(), Vec::new());
    for (score, member) in to.beyond(from) {
        let known = from.score(member).unwrap_or(0.0);
        let by = score - known;
        // Floats round: what no summand makes is written.
        if change == Change::AdditiveScores && known + by == score {
            effects.push(&Effect::ScoredSet(scored_set::Effect::Add { member, by }));
        } else {
            written.push((score, member));
        }
    }
    if !written.is_empty() {
        effects.push(&Effect::ScoredSet(scored_set::Effect::Put { items: ScoredItems::Many(written) }));
    }
    if change == Change::AdditiveScores
        && effects.0.len() == before
        && let Some(member) = to.iter().map(|(_, member)| member).min()
    {
        // By nothing, too, as with fields.
        effects.push(&Effect::ScoredSet(scored_set::Effect::Add { member, by: 0.0 }));
    }
    let gone = from.beyond(to).map(|(_, member)| member).filter(|member| !to.contains(member));
    let members = Items::collect(gone);
    if !members.is_empty() {
        effects.push(&Effect::ScoredSet(scored_set::Effect::Remove { members }));
    }
}

fn dicts(
    from: &datatypes::collections::PackedMap,
    to: &datatypes::collections::PackedMap,
    change: Change,
    effects: &mut Effects,
) {
    let mut changed: Vec<(&[u8], &[u8])> =
        to.iter().filter(|(field, value)| from.get(field) != Some(*value)).collect();
    changed.sort_unstable();
    let additions = effects.0.len();
    let mut pairs: Vec<&[u8]> = Vec::new();
    for (field, value) in changed {
        let integers = (from.get(field).map_or(Some(0), parse_integer), parse_integer(value));
        match integers {
            (Some(from), Some(to)) if change == Change::Additive(Mode::IncrementFields) => {
                effects.push(&Effect::Dict(dict::Effect::Add { field, by: to.wrapping_sub(from) }));
            }
            _ => pairs.extend([field, value]),
        }
    }
    if !pairs.is_empty() {
        let until = dict::Until::each(pairs.chunks(2).map(|pair| to.deadline(pair[0])));
        effects.push(&Effect::Dict(dict::Effect::Put { pairs: Items::Slices(&pairs), until }));
    }
    let integers = to.iter().filter(|(_, value)| parse_integer(value).is_some());
    if change == Change::Additive(Mode::IncrementFields)
        && effects.0.len() == additions
        && let Some(field) = integers.map(|(field, _)| field).min()
    {
        // By nothing, too: what was merged from additions alone is one itself.
        effects.push(&Effect::Dict(dict::Effect::Add { field, by: 0 }));
    }
    let mut gone: Vec<&[u8]> =
        from.iter().map(|(field, _)| field).filter(|field| !to.contains(field)).collect();
    gone.sort_unstable();
    let fields = Items::collect(gone.into_iter());
    if !fields.is_empty() {
        effects.push(&Effect::Dict(dict::Effect::Remove { fields }));
    }
    deadlines(from, to, effects);
}

/// Deadlines of fields that have the same values, or got them by additions.
fn deadlines(
    from: &datatypes::collections::PackedMap,
    to: &datatypes::collections::PackedMap,
    effects: &mut Effects,
) {
    if from.deadlines().is_none() && to.deadlines().is_none() {
        return;
    }
    let mut changed: BTreeMap<u64, BTreeSet<&[u8]>> = BTreeMap::new();
    for (field, value) in to.iter() {
        let (before, at) = (from.deadline(field), to.deadline(field));
        let is_same = from.get(field) == Some(value);
        if before != at && (is_same || parse_integer(value).is_some()) {
            changed.entry(at).or_default().insert(field);
        }
    }
    for (at_millis, fields) in changed {
        let fields = Items::collect(fields.into_iter());
        effects.push(&Effect::Dict(dict::Effect::SetDeadline { fields, at_millis }));
    }
}

fn lists(from: &ChunkedList, to: &ChunkedList, effects: &mut Effects) {
    let ends @ (front, _) = from.same_ends(to);
    let Some(found) = edits(&middle(from, ends), &middle(to, ends)) else { return };
    let gone =
        (front as u64..).zip(&found.unchanged).filter(|(_, unchanged)| !**unchanged).map(|(place, _)| place);
    let positions: Positions = gone.collect();
    if !positions.is_empty() {
        effects.push(&Effect::List(list::Effect::RemoveAt { positions }));
    }
    let mut index = front as u64;
    for (gap, inserted) in found.inserted.iter().enumerate() {
        for value in inserted {
            effects.push(&Effect::List(list::Effect::InsertAt { index, value }));
            index += 1;
        }
        index += u64::from(found.unchanged.get(gap).copied().unwrap_or(false));
    }
}
