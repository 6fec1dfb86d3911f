//! What a concurrent write costs another one: a value that somebody was told is written, that nobody who saw it
//! replaced, and that is out of sight because of a write that had not observed it.
//!
//! A write is lost
//!
//! - where the later one of two concurrent ones says another value of the same register, field or score; or says that
//!   the key has another type;
//! - unless somebody wrote over it, or removed it, who saw it.
//!
//! Whoever had observed both saw the one that stayed, so writing over that does not settle what became of the other.
//! Additions (increments, appended bytes, members, pushed elements) are merged and not lost, but to another type; what
//! a removal removed unseen stays. Two equal values cost nothing.
//!
//! Whether a write is lost depends on the effects that had not observed it and all that those had not. Everybody who
//! had observed these saw the same. So when all effects to come have, the answer is final, and it is the same wherever
//! and in whatever order the effects arrived.
//!
//! Not told: an element of a list that two set, an increment that meets a string which is no number, a part of a whole
//! value that was put by RENAME or COPY.

use super::typed::resets_element;
use super::{is_reset, lasting_kind};
use crate::{Cell, Effect, Kind, Value, dict, key, list, register, scored_set, set};
use std::collections::BTreeSet;
use types::{Reader, wire_enum};

/// Which part of a key was written.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LostPart {
    /// The whole value.
    Value,
    /// A field of a dict.
    Field {
        /// Its name.
        field: Vec<u8>,
    },
    /// A member's score.
    Score {
        /// The member.
        member: Vec<u8>,
    },
    /// What was added to a collection or to a sum.
    Contents,
}
wire_enum!(LostPart { 0 => Value, 1 => Field { field }, 2 => Score { member }, 3 => Contents });

/// A part of a write that is lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// Which part.
    pub part: LostPart,
    /// The place, among the effects, of the write that it is lost to.
    pub to: usize,
    /// What was written.
    pub value: Vec<u8>,
    /// What was written instead.
    pub instead: Vec<u8>,
}

/// Something that a write says, and that other effects may contradict.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Item<'e> {
    Value,
    Field(&'e [u8]),
    Score(&'e [u8]),
    Member(&'e [u8]),
    /// Anything else that is added.
    Added,
}

/// What of the effect at place `of` is lost. `effects` are those on the key, in order, of which the ones before `of` do
/// not matter; `sees` tells whether the first of two effects observed the second, which is earlier.
pub fn lost(effects: &[Effect<'_>], sees: &dyn Fn(usize, usize) -> bool, of: usize) -> Vec<Loss> {
    let rivals: Vec<usize> = (of + 1..effects.len()).filter(|later| !sees(*later, of)).collect();
    let base = Base { effects, sees, of, rivals, mixed: true };
    base.losses(|_| of + 1..effects.len())
}

/// The effects after one that decide what becomes of it.
pub(super) struct Base<'a, 'e> {
    pub(super) effects: &'a [Effect<'e>],
    pub(super) sees: &'a dyn Fn(usize, usize) -> bool,
    pub(super) of: usize,
    /// Those that did not observe it; of each group at least the last.
    pub(super) rivals: Vec<usize>,
    /// Effects of several types, or whole values, may be among them.
    pub(super) mixed: bool,
}

impl Base<'_, '_> {
    /// What is lost of the effect. `places` tells which of those after it may matter to an item.
    pub(super) fn losses<P: Iterator<Item = usize>>(&self, places: impl Fn(Item<'_>) -> P) -> Vec<Loss> {
        let mut losses: Vec<Loss> = Vec::new();
        if self.rivals.is_empty() {
            return losses;
        }
        for item in items(&self.effects[self.of]) {
            // What is added is only lost to another type.
            let merges = matches!(item, Item::Member(_) | Item::Added);
            if merges && !self.mixed {
                continue;
            }
            let Some(to) = self.hider_of(item, places(item)) else { continue };
            let part = match item {
                Item::Value => LostPart::Value,
                Item::Field(field) => LostPart::Field { field: field.to_vec() },
                Item::Score(member) => LostPart::Score { member: member.to_vec() },
                Item::Member(_) | Item::Added => LostPart::Contents,
            };
            if losses.iter().all(|loss| loss.part != part) {
                let (value, instead) = (said(&self.effects[self.of], item), said(&self.effects[to], item));
                losses.push(Loss { part, to, value, instead });
            }
        }
        losses
    }

    /// True if the effect decides: it has not observed the one in question, or not all of its rivals.
    fn decides(&self, place: usize) -> bool {
        let observed = |rival: &usize| *rival < place && (self.sees)(place, *rival);
        !(self.sees)(place, self.of) || !self.rivals.iter().rev().all(observed)
    }

    fn kills(&self, place: usize, item: Item<'_>) -> bool {
        (self.sees)(place, self.of) && kills(&self.effects[place], &self.effects[self.of], item)
    }

    /// The write that puts an item out of sight for good, if one does.
    fn hider_of(&self, item: Item<'_>, places: impl Iterator<Item = usize>) -> Option<usize> {
        let (mut passed, mut killers) = (Vec::new(), Vec::new());
        let mut unseen = None;
        for place in places.filter(|place| self.decides(*place)) {
            if self.kills(place, item) {
                // Whoever sees a killer does not decide as one: there was nothing left to kill.
                if !killers.iter().any(|killer| (self.sees)(place, *killer)) {
                    let seen = passed.iter().copied().filter(|before| (self.sees)(place, *before));
                    // Who sees it settles it.
                    let hider = self.hider(&seen.collect::<Vec<_>>(), item)?;
                    unseen = unseen.or(Some(hider));
                    killers.push(place);
                }
            }
            passed.push(place);
        }
        match killers.is_empty() {
            true => self.hider(&passed, item),
            false => unseen,
        }
    }

    /// What whoever sees these effects, and the one in question, sees instead of what that one says; `None` if it sees
    /// just that.
    fn hider(&self, view: &[usize], item: Item<'_>) -> Option<usize> {
        let own = lasting_kind(&self.effects[self.of]);
        let kind = |place: &usize| lasting_kind(&self.effects[*place]);
        let says_kind = |place: &&usize| kind(place).is_some() && self.is_alive(view, **place);
        let types = view.iter().rev().find(|place| self.mixed && says_kind(place));
        if let Some(last) = types
            && kind(last) != own
        {
            return Some(*last);
        }
        let says = |place: &&usize| {
            says(&self.effects[**place], item).is_some() && self.is_item_alive(view, **place, item)
        };
        let last = view.iter().rev().find(says)?;
        (says_value(&self.effects[*last], item) != says_value(&self.effects[self.of], item)).then_some(*last)
    }

    fn is_alive(&self, view: &[usize], place: usize) -> bool {
        items(&self.effects[place]).into_iter().any(|item| self.is_item_alive(view, place, item))
    }

    fn is_item_alive(&self, view: &[usize], place: usize, item: Item<'_>) -> bool {
        let effect = &self.effects[place];
        let later = view.iter().filter(|later| **later > place && (self.sees)(**later, place));
        !later.into_iter().any(|later| kills(&self.effects[*later], effect, item))
    }
}

fn items<'a>(effect: &'a Effect<'_>) -> Vec<Item<'a>> {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => vec![Item::Value],
        Effect::Key(key::Effect::Restore(_)) if lasting_kind(effect).is_some() => vec![Item::Value],
        Effect::Dict(dict::Effect::Put { pairs }) => {
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
        effect if lasting_kind(effect).is_some() => vec![Item::Added],
        _ => Vec::new(),
    }
}

/// True if an effect that observed another one replaces or removes what that one says.
fn kills(killer: &Effect<'_>, effect: &Effect<'_>, item: Item<'_>) -> bool {
    let (kind, other) = (lasting_kind(killer), lasting_kind(effect));
    if is_reset(killer) || (kind.is_some() && kind != other) {
        return true;
    }
    let element = match (item, effect) {
        (Item::Field(element) | Item::Score(element) | Item::Member(element), _) => element,
        (Item::Added, Effect::Dict(dict::Effect::Add { field, .. })) => field,
        (Item::Added, Effect::ScoredSet(scored_set::Effect::Add { member, .. })) => member,
        _ => return false,
    };
    killer.kind() == effect.kind() && resets_element(killer, element)
}

/// What an effect says of an item, beside its type, as far as two such effects contradict each other.
fn says<'e>(effect: &'e Effect<'_>, item: Item<'_>) -> Option<Said<'e>> {
    match (item, effect) {
        (Item::Value, Effect::Register(register::Effect::Set { value, .. })) => Some(Said::Bytes(value)),
        (Item::Value, Effect::Key(key::Effect::Restore(cell))) => {
            lasting_kind(effect).map(|_| Said::Cell(cell))
        }
        (Item::Field(field), Effect::Dict(dict::Effect::Put { pairs })) => {
            pairs.pairs().filter(|(other, _)| *other == field).last().map(|(_, value)| Said::Bytes(value))
        }
        (Item::Score(member), Effect::ScoredSet(scored_set::Effect::Put { items })) => {
            let score = items.iter().rfind(|(_, other)| *other == member);
            score.map(|(score, _)| Said::Score(*score))
        }
        _ => None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Said<'e> {
    Bytes(&'e [u8]),
    Score(f64),
    /// A value in its binary form.
    Cell(&'e [u8]),
}

/// What two writes are compared by.
fn says_value<'e>(effect: &'e Effect<'_>, item: Item<'_>) -> Option<Said<'e>> {
    says(effect, item)
}

/// What an effect says of an item, for people: the value, or if it says something else, the command that does it.
fn said(effect: &Effect<'_>, item: Item<'_>) -> Vec<u8> {
    match says(effect, item) {
        Some(Said::Bytes(value)) => value.to_vec(),
        Some(Said::Score(score)) => score.to_string().into_bytes(),
        Some(Said::Cell(cell)) => restored(cell),
        None => told(effect),
    }
}

fn restored(cell: &[u8]) -> Vec<u8> {
    match Cell::decode(&mut Reader::new(cell)).ok().and_then(|cell| cell.value) {
        Some(Value::Register(register)) => {
            let mut bytes = Vec::new();
            register.with_bytes(|value| bytes.extend_from_slice(value));
            bytes
        }
        Some(value) => format!("a whole {}", value.kind().redis_name()).into_bytes(),
        None => Vec::new(),
    }
}

/// The command that an effect stands for, for people.
fn told(effect: &Effect<'_>) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut name = |name: &str| words.push(name.as_bytes().to_vec());
    match effect {
        Effect::Register(register::Effect::Set { value, .. }) => return value.to_vec(),
        Effect::Key(key::Effect::Restore(cell)) => return restored(cell),
        Effect::Register(register::Effect::Add { by }) => name(&format!("INCRBY {by}")),
        Effect::Register(register::Effect::Append { value }) => {
            name("APPEND");
            words.push(value.to_vec());
        }
        Effect::Dict(dict::Effect::Put { pairs }) => {
            name("HSET");
            words.extend(pairs.iter().map(<[u8]>::to_vec));
        }
        Effect::Dict(dict::Effect::Add { field, by }) => {
            name("HINCRBY");
            words.extend([field.to_vec(), by.to_string().into_bytes()]);
        }
        Effect::Set(set::Effect::Add { members }) => {
            name("SADD");
            words.extend(members.iter().map(<[u8]>::to_vec));
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            name("ZADD");
            words.extend(
                items.iter().flat_map(|(score, member)| [score.to_string().into_bytes(), member.to_vec()]),
            );
        }
        Effect::ScoredSet(scored_set::Effect::Add { member, by }) => {
            name("ZINCRBY");
            words.extend([by.to_string().into_bytes(), member.to_vec()]);
        }
        Effect::List(list::Effect::Push { end, values }) => {
            name(if *end == list::End::Front { "LPUSH" } else { "RPUSH" });
            words.extend(values.iter().map(<[u8]>::to_vec));
        }
        Effect::List(list::Effect::InsertAt { value, .. }) => {
            name("LINSERT");
            words.push(value.to_vec());
        }
        effect => {
            let kind = lasting_kind(effect).map_or("key", Kind::redis_name);
            name(&format!("an addition to a {kind}"));
        }
    }
    words.join(&b' ')
}
