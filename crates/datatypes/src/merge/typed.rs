//! Effects of one type beside concurrent ones of the same type: members, fields and scores each by themselves, lists by
//! identity.

use super::{Among, Trace, is_live, line};
use crate::{Cell, Effect, Items, Patch, Value, apply, dict, key, list, register, scored_set, set};
use std::collections::BTreeMap;
use types::Reader;

/// True if what an effect says of an element is dead: a later one before the last, which observed it, said something
/// else of the element.
fn is_dead(among: &Among<'_, '_>, place: usize, element: &[u8]) -> bool {
    let last = among.effects.len() - 1;
    (place + 1..last)
        .any(|later| among.observed(later, place) && resets_element(&among.effects[later], element))
}

pub(super) fn resets_element(effect: &Effect<'_>, element: &[u8]) -> bool {
    match effect {
        Effect::Set(set::Effect::Remove { members }) => members.iter().any(|member| member == element),
        Effect::Dict(dict::Effect::Remove { fields }) => fields.iter().any(|field| field == element),
        Effect::Dict(dict::Effect::Put { pairs, .. }) => pairs.pairs().any(|(field, _)| field == element),
        Effect::ScoredSet(scored_set::Effect::Remove { members }) => {
            members.iter().any(|member| member == element)
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().any(|(_, member)| *member == element)
        }
        _ => false,
    }
}

/// What of an effect is live, if anything is.
pub(super) fn live_part<'e>(among: &Among<'_, 'e>, place: usize) -> Option<Effect<'e>> {
    let dead = |element: &[u8]| is_dead(among, place, element);
    let effect = &among.effects[place];
    Some(match effect {
        Effect::Set(set::Effect::Add { members }) => {
            let members = Items::collect(members.iter().filter(|member| !dead(member)));
            (!members.is_empty()).then_some(Effect::Set(set::Effect::Add { members }))?
        }
        Effect::Dict(put @ dict::Effect::Put { .. }) => {
            let live: Vec<(&[u8], &[u8], u64)> = put.written().filter(|(field, ..)| !dead(field)).collect();
            let pairs = Items::collect(live.iter().flat_map(|(field, value, _)| [*field, *value]));
            let until = dict::Until::each(live.iter().map(|(.., at)| *at));
            (!pairs.is_empty()).then_some(Effect::Dict(dict::Effect::Put { pairs, until }))?
        }
        Effect::Dict(dict::Effect::SetDeadline { fields, at_millis }) => {
            let fields = Items::collect(fields.iter().filter(|field| !dead(field)));
            let at_millis = *at_millis;
            (!fields.is_empty()).then_some(Effect::Dict(dict::Effect::SetDeadline { fields, at_millis }))?
        }
        Effect::Dict(dict::Effect::Add { field, .. }) if dead(field) => return None,
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            let items: scored_set::ScoredItems<'e> =
                items.iter().filter(|(_, member)| !dead(member)).copied().collect();
            (!items.is_empty()).then_some(Effect::ScoredSet(scored_set::Effect::Put { items }))?
        }
        Effect::ScoredSet(scored_set::Effect::Add { member, .. }) if dead(member) => return None,
        effect => effect.clone(),
    })
}

/// The live effects that say something of an element and that the last one did not observe.
fn concurrent_on<'a, 'e>(
    among: &'a Among<'_, 'e>,
    element: &'a [u8],
) -> impl Iterator<Item = &'a Effect<'e>> {
    let last = among.effects.len() - 1;
    let live = move |place: &usize| {
        !among.observed(last, *place) && !is_dead(among, *place, element) && is_live(among, *place)
    };
    (0..last).filter(live).map(|place| &among.effects[place])
}

/// The whole value that the key got last, and its place, where the last effect did not observe that.
fn concurrent_whole(among: &Among<'_, '_>) -> Option<(Value, usize)> {
    let last = among.effects.len() - 1;
    let puts_whole = |place: &usize| matches!(among.effects[*place], Effect::Key(key::Effect::Restore(_)));
    let place = (0..last).rev().find(|place| puts_whole(place) && is_live(among, *place))?;
    if among.observed(last, place) {
        return None;
    }
    restored(&among.effects[place]).map(|value| (value, place))
}

/// What `of` tells of such a value, unless somebody who observed it said something else of the element.
fn of_whole<R>(
    among: &Among<'_, '_>,
    whole: &Option<(Value, usize)>,
    element: &[u8],
    of: impl Fn(&Value) -> Option<R>,
) -> Option<R> {
    let (value, place) = whole.as_ref()?;
    of(value).filter(|_| !is_dead(among, *place, element))
}

/// The whole value that an effect puts, if it puts one.
pub(super) fn restored(effect: &Effect<'_>) -> Option<Value> {
    let Effect::Key(key::Effect::Restore(bytes)) = effect else { return None };
    Cell::decode(&mut Reader::new(bytes)).ok()?.value
}

fn restored_member(value: &Value, member: &[u8]) -> Option<()> {
    let Value::Set(members) = value else { return None };
    members.contains(member).then_some(())
}

/// The value of a field in a whole dict.
pub(super) fn restored_field(value: &Value, field: &[u8]) -> Option<Vec<u8>> {
    let Value::Dict(fields) = value else { return None };
    fields.get(field).map(<[u8]>::to_vec)
}

/// The score of a member in a whole sorted set.
pub(super) fn restored_score(value: &Value, member: &[u8]) -> Option<f64> {
    let Value::ScoredSet(scores) = value else { return None };
    scores.score(member)
}

/// Performs the last effect, which leaves the type as it is.
pub(super) fn perform_typed(cell: &mut Cell, among: &Among<'_, '_>, noted: &mut Trace) -> Patch {
    let last = among.effects.len() - 1;
    let effect = &among.effects[last];
    if (0..last).all(|other| among.observed(last, other)) {
        return apply::<true>(cell, effect);
    }
    let effects = match effect {
        Effect::Set(set::Effect::Remove { members }) => {
            let whole = &concurrent_whole(among);
            let stays = |member: &[u8]| {
                concurrent_on(among, member).any(|other| match other {
                    Effect::Set(set::Effect::Add { members }) => members.iter().any(|added| added == member),
                    _ => false,
                }) || of_whole(among, whole, member, |value| restored_member(value, member)).is_some()
            };
            let members = Items::collect(members.iter().filter(|member| !stays(member)));
            return apply::<true>(cell, &Effect::Set(set::Effect::Remove { members }));
        }
        Effect::Dict(put @ dict::Effect::Put { .. }) => {
            let written: BTreeMap<&[u8], (&[u8], u64)> =
                put.written().map(|(field, value, at)| (field, (value, at))).collect();
            fields(among, written.into_iter().map(|(field, written)| (field, Some(written))))
        }
        Effect::Dict(dict::Effect::Remove { fields: removed }) => {
            fields(among, removed.iter().map(|field| (field, None)))
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            let written: BTreeMap<&[u8], f64> =
                items.iter().map(|(score, member)| (*member, *score)).collect();
            scores(among, written.into_iter().map(|(member, score)| (member, Some(score))))
        }
        Effect::ScoredSet(scored_set::Effect::Remove { members }) => {
            scores(among, members.iter().map(|member| (member, None)))
        }
        Effect::Stream(effect) => super::streams::resolve_among(cell, among, effect),
        Effect::List(list::Effect::Push { .. }) => return apply::<true>(cell, effect),
        Effect::List(_) => {
            let resolved = line::resolve(among);
            (noted.also, noted.anchors) = (resolved.also, resolved.anchors);
            resolved.effects.into_iter().map(Effect::List).collect()
        }
        _ => return apply::<true>(cell, effect),
    };
    Patch::Many(effects.iter().map(|effect| apply::<true>(cell, effect)).collect())
}

/// Fields that are written or removed: on top of what is written, or of what was written concurrently to a removal, come
/// the concurrent additions. The deadline is what was said last of those that stay.
fn fields<'a>(
    among: &Among<'_, '_>,
    written: impl Iterator<Item = (&'a [u8], Option<(&'a [u8], u64)>)>,
) -> Vec<Effect<'static>> {
    let whole = concurrent_whole(among);
    let (mut put, mut deadlines, mut gone) = (Vec::new(), Vec::new(), Vec::new());
    for (field, value) in written {
        let (mut left, mut deadline) = match value {
            Some((value, at)) => (Some(value.to_vec()), at),
            None => {
                let said = |other: &Effect<'_>| match other {
                    Effect::Dict(effect) => effect.value_of(field).map(|(value, _)| value.to_vec()),
                    _ => None,
                };
                let writes = concurrent_on(among, field).filter_map(said).last();
                let whole_field = || of_whole(among, &whole, field, |value| restored_field(value, field));
                (writes.or_else(whole_field), 0)
            }
        };
        if value.is_none() {
            deadline = said_deadline(among, &whole, field);
        }
        for other in concurrent_on(among, field) {
            let Effect::Dict(dict::Effect::Add { field: other, by }) = other else { continue };
            if *other == field
                && let Some(sum) = left.as_deref().map_or(Some(0), register::parse_integer)
            {
                left = Some(itoa::Buffer::new().format(sum.wrapping_add(*by)).as_bytes().to_vec());
            }
        }
        match left {
            Some(value) => {
                put.extend([field.to_vec(), value]);
                deadlines.push(deadline);
            }
            None => gone.push(field),
        }
    }
    let pairs = Items::collect(put.iter().map(Vec::as_slice));
    let until = dict::Until::each(deadlines.into_iter());
    let gone = Items::collect(gone.into_iter());
    [dict::Effect::Put { pairs, until }, dict::Effect::Remove { fields: gone }].map(Effect::Dict).into()
}

/// What live effects that the last one did not observe say last of a field's deadline, of those that found the field there.
fn said_deadline(among: &Among<'_, '_>, whole: &Option<(Value, usize)>, field: &[u8]) -> u64 {
    let of_whole_field = of_whole(among, whole, field, |value| match value {
        Value::Dict(fields) => fields.contains(field).then(|| fields.deadline(field)),
        _ => None,
    });
    let (mut is_there, mut deadline) = (of_whole_field.is_some(), of_whole_field.unwrap_or(0));
    for other in concurrent_on(among, field) {
        let Effect::Dict(effect) = other else { continue };
        match effect {
            dict::Effect::Add { field: other, .. } => is_there |= *other == field,
            _ => {
                is_there |= effect.value_of(field).is_some();
                deadline = effect.deadline_of(field).filter(|_| is_there).unwrap_or(deadline);
            }
        }
    }
    deadline
}

/// What [`fields`] does, of scores.
fn scores<'a>(
    among: &Among<'_, '_>,
    written: impl Iterator<Item = (&'a [u8], Option<f64>)>,
) -> Vec<Effect<'a>> {
    let whole = concurrent_whole(among);
    let (mut put, mut gone) = (scored_set::ScoredItems::default(), Vec::new());
    for (member, score) in written {
        let mut left = score;
        if score.is_none() {
            let writes = concurrent_on(among, member).filter_map(|other| match other {
                Effect::ScoredSet(scored_set::Effect::Put { items }) => {
                    items.iter().filter(|(_, m)| *m == member).map(|(score, _)| *score).next_back()
                }
                _ => None,
            });
            left = writes
                .last()
                .or_else(|| of_whole(among, &whole, member, |value| restored_score(value, member)));
        }
        for other in concurrent_on(among, member) {
            let Effect::ScoredSet(scored_set::Effect::Add { member: other, by }) = other else { continue };
            if *other == member {
                left = Some(scored_set::sum(left, *by));
            }
        }
        match left {
            Some(score) => put.push((score, member)),
            None => gone.push(member),
        }
    }
    let gone = Items::collect(gone.into_iter());
    [scored_set::Effect::Put { items: put }, scored_set::Effect::Remove { members: gone }]
        .map(Effect::ScoredSet)
        .into()
}
