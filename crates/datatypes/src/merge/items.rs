//! What a write says of a key, item by item, and what others do to it.

use super::typed::{resets_element, restored, restored_field};
use super::{LostPart, is_reset, lasting_kind};
use crate::register::{Register, parse_integer};
use crate::{Cell, Effect, Kind, Value, dict, key, list, register, scored_set, set};
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::Reader;

/// Something that a write says, and that other effects may contradict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'e> {
    Value,
    Field(&'e [u8]),
    Score(&'e [u8]),
    Member(&'e [u8]),
    /// An increment of a register.
    Sum,
    /// An increment of a field.
    FieldSum(&'e [u8]),
    /// An increment of a score.
    ScoreSum(&'e [u8]),
    /// An element of a list, by its place.
    Element(u64),
    /// Anything else that is added.
    Added,
    /// That what is added stays, unless it is removed.
    Lasting,
}

impl Item<'_> {
    pub(super) fn part(self) -> LostPart {
        match self {
            Item::Value => LostPart::Value,
            Item::Field(field) | Item::FieldSum(field) => LostPart::Field { field: field.to_vec() },
            Item::Score(member) | Item::ScoreSum(member) => LostPart::Score { member: member.to_vec() },
            Item::Element(index) => LostPart::Element { index },
            Item::Member(_) | Item::Sum | Item::Added => LostPart::Contents,
            Item::Lasting => LostPart::Deadline,
        }
    }
}

pub(super) fn items<'a>(effect: &'a Effect<'_>) -> Vec<Item<'a>> {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => vec![Item::Value],
        Effect::Key(key::Effect::Restore(_)) if lasting_kind(effect).is_some() => vec![Item::Value],
        Effect::Dict(dict::Effect::Put { pairs, .. }) => {
            let fields: BTreeSet<&[u8]> = pairs.pairs().map(|(field, _)| field).collect();
            fields.into_iter().map(Item::Field).collect()
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            let members: BTreeSet<&[u8]> = items.iter().map(|(_, member)| *member).collect();
            members.into_iter().map(Item::Score).collect()
        }
        Effect::Set(set::Effect::Add { members }) => {
            // The members live as long as the effect; what iterates over them does not.
            members.iter().map(Item::Member).collect()
        }
        Effect::Register(register::Effect::Add { .. }) => vec![Item::Sum],
        Effect::Dict(dict::Effect::Add { field, .. }) => vec![Item::FieldSum(field)],
        Effect::ScoredSet(scored_set::Effect::Add { member, .. }) => vec![Item::ScoreSum(member)],
        Effect::List(list::Effect::Put { index, .. }) => vec![Item::Element(*index)],
        effect if lasting_kind(effect).is_some() => vec![Item::Added],
        _ => Vec::new(),
    }
}

/// True for an effect after which no deadline that it observed counts, whether it says one or not.
pub(super) fn ends_deadline(effect: &Effect<'_>) -> bool {
    let keeps = || {
        matches!(effect, Effect::Register(register::Effect::Set { deadline: register::Deadline::Keep, .. }))
    };
    is_reset(effect) && !keeps()
}

/// When the key is to go, if an effect says that, in milliseconds since 1970; 0 for never.
pub(super) fn dated(effect: &Effect<'_>) -> Option<u64> {
    match effect {
        Effect::Key(key::Effect::SetDeadline(at)) => Some(*at),
        Effect::Register(register::Effect::Set { deadline, .. }) => match deadline {
            register::Deadline::Clear => Some(0),
            register::Deadline::Keep => None,
            register::Deadline::At { millis } => Some(*millis),
        },
        Effect::Key(key::Effect::Restore(bytes)) => {
            Cell::decode(&mut Reader::new(bytes)).ok().map(|cell| cell.expires_at)
        }
        _ => None,
    }
}

/// The type of the key that an effect is meant for.
pub(super) fn kind_of(effect: &Effect<'_>) -> Option<Kind> {
    lasting_kind(effect).or_else(|| effect.kind())
}

/// True if an effect that observed another one replaces or removes what that one says.
pub(super) fn kills(killer: &Effect<'_>, effect: &Effect<'_>, item: Item<'_>) -> bool {
    let (kind, other) = (lasting_kind(killer), kind_of(effect));
    if is_reset(killer) || (kind.is_some() && kind != other) {
        return true;
    }
    match item {
        Item::Field(element)
        | Item::Score(element)
        | Item::Member(element)
        | Item::FieldSum(element)
        | Item::ScoreSum(element) => killer.kind() == other && resets_element(killer, element),
        // Whoever says a deadline over what he observed, or removes all of that, means it.
        Item::Lasting => {
            let own = items(effect);
            let removes = || matches!(own.as_slice(), [only] if kills(killer, effect, *only));
            dated(killer).is_some() || removes()
        }
        Item::Value | Item::Sum | Item::Element(_) | Item::Added => false,
    }
}

/// True for an effect that makes a register something to which nothing can be added.
pub(super) fn spoils(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Register(register::Effect::Set { value, .. }) => is_no_number(value),
        Effect::Register(register::Effect::Append { value }) => !value.iter().all(u8::is_ascii_digit),
        Effect::Register(edit) => edit.is_edit(),
        Effect::Key(key::Effect::Restore(_)) => {
            matches!(restored(effect), Some(Value::Register(Register::Bytes(_))))
        }
        _ => false,
    }
}

pub(super) fn is_no_number(value: &[u8]) -> bool {
    parse_integer(value).is_none()
}

/// The value of a field that an effect writes or puts.
pub(super) fn field_in<'e>(effect: &'e Effect<'_>, field: &[u8]) -> Option<Cow<'e, [u8]>> {
    match effect {
        Effect::Dict(dict::Effect::Put { pairs, .. }) => {
            pairs.pairs().filter(|(other, _)| *other == field).last().map(|(_, value)| Cow::Borrowed(value))
        }
        effect => restored(effect).and_then(|value| restored_field(&value, field)).map(Cow::Owned),
    }
}

/// What an effect says of an item, beside its type, as far as two such effects contradict each other.
pub(super) fn says<'e>(effect: &'e Effect<'_>, item: Item<'_>) -> Option<Said<'e>> {
    match (item, effect) {
        (Item::Value, Effect::Register(register::Effect::Set { value, .. })) => Some(Said::Bytes(value)),
        (Item::Value, Effect::Key(key::Effect::Restore(cell))) => {
            lasting_kind(effect).map(|_| Said::Cell(cell))
        }
        (Item::Field(field), Effect::Dict(dict::Effect::Put { pairs, .. })) => {
            pairs.pairs().filter(|(other, _)| *other == field).last().map(|(_, value)| Said::Bytes(value))
        }
        (Item::Score(member), Effect::ScoredSet(scored_set::Effect::Put { items })) => {
            let score = items.iter().rfind(|(_, other)| *other == member);
            score.map(|(score, _)| Said::Score(*score))
        }
        _ => None,
    }
}

/// What a whole value says of a field or a score in it.
pub(super) fn part_of<'v>(value: &'v Value, part: Item<'_>) -> Option<Said<'v>> {
    match (part, value) {
        (Item::Field(field), Value::Dict(held)) => held.get(field).map(Said::Bytes),
        (Item::Score(member), Value::ScoredSet(held)) => held.score(member).map(Said::Score),
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Said<'e> {
    Bytes(&'e [u8]),
    Score(f64),
    /// A value in its binary form.
    Cell(&'e [u8]),
}
