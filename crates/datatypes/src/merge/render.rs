//! Renders effects as text, for the operator who reads the list of lost updates.

use super::items::{Item, Said, dated, says};
use super::lasting_kind;
use super::typed::{restored, restored_field, restored_score};
use crate::{Cell, Effect, Kind, Value, dict, key, list, register, scored_set, set};
use types::Reader;

/// What an effect says of an item, for people: the value, or if it says something else, the command that does it.
pub(super) fn said(effect: &Effect<'_>, item: Item<'_>) -> Vec<u8> {
    let of_whole = |value: &Value| match item {
        Item::Field(field) | Item::FieldSum(field) => restored_field(value, field),
        Item::Score(member) => restored_score(value, member).map(|score| score.to_string().into_bytes()),
        _ => None,
    };
    if let Some(said) = restored(effect).as_ref().and_then(of_whole) {
        return said;
    }
    if let (Item::Lasting, Some(at)) = (item, dated(effect)) {
        return format!("PEXPIREAT {at}").into_bytes();
    }
    let item = match (item, effect) {
        // What is there instead of a sum is what was written.
        (Item::FieldSum(field), Effect::Dict(dict::Effect::Put { .. })) => Item::Field(field),
        (item, _) => item,
    };
    match (says(effect, item), effect) {
        (Some(Said::Bytes(value)), _) => value.to_vec(),
        (Some(Said::Score(score)), _) => score.to_string().into_bytes(),
        (Some(Said::Cell(cell)), _) => whole(cell),
        (None, Effect::List(list::Effect::Put { value, .. })) => value.to_vec(),
        (None, effect) => rendered(effect),
    }
}

fn whole(cell: &[u8]) -> Vec<u8> {
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
fn rendered(effect: &Effect<'_>) -> Vec<u8> {
    let mut words: Vec<Vec<u8>> = Vec::new();
    let mut name = |name: &str| words.push(name.as_bytes().to_vec());
    match effect {
        Effect::Register(register::Effect::Set { value, .. }) => return value.to_vec(),
        Effect::Key(key::Effect::Restore(cell)) => return whole(cell),
        Effect::Key(key::Effect::Delete) | Effect::Register(register::Effect::Delete) => name("DEL"),
        Effect::Register(register::Effect::Add { by }) => name(&format!("INCRBY {by}")),
        Effect::Register(edit) => register_words(edit, &mut words),
        Effect::Dict(dict::Effect::Put { pairs, .. }) => {
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
        Effect::List(effect) => list_words(effect, &mut words),
        effect => {
            let kind = lasting_kind(effect).map_or("key", Kind::redis_name);
            name(&format!("an addition to a {kind}"));
        }
    }
    words.join(&b' ')
}

fn register_words(effect: &register::Effect<'_>, words: &mut Vec<Vec<u8>>) {
    let number = |number: u64| number.to_string().into_bytes();
    match effect {
        register::Effect::Set { value, .. } => words.push(value.to_vec()),
        register::Effect::Delete => words.push(b"DEL".to_vec()),
        register::Effect::Add { by } => words.extend([b"INCRBY".to_vec(), by.to_string().into_bytes()]),
        register::Effect::Append { value } => words.extend([b"APPEND".to_vec(), value.to_vec()]),
        register::Effect::SetRange { offset, value } => {
            words.extend([b"SETRANGE".to_vec(), number(*offset), value.to_vec()]);
        }
        register::Effect::AddFloat { by } => words.extend([b"INCRBYFLOAT".to_vec(), by.to_text()]),
        register::Effect::SetBit { offset, bit } => {
            words.extend([b"SETBIT".to_vec(), number(*offset), number((*bit).into())]);
        }
        register::Effect::BitField { .. } => words.push(b"BITFIELD".to_vec()),
        register::Effect::Unite { .. } => words.push(b"PFMERGE".to_vec()),
    }
}

fn list_words(effect: &list::Effect<'_>, words: &mut Vec<Vec<u8>>) {
    let at = |end: &list::End, front: &str, back: &str| match end {
        list::End::Front => front.as_bytes().to_vec(),
        list::End::Back => back.as_bytes().to_vec(),
    };
    match effect {
        list::Effect::Push { end, values } => {
            words.push(at(end, "LPUSH", "RPUSH"));
            words.extend(values.iter().map(<[u8]>::to_vec));
        }
        list::Effect::InsertAt { value, .. } => words.extend([b"LINSERT".to_vec(), value.to_vec()]),
        list::Effect::Put { index, value } => {
            words.extend([b"LSET".to_vec(), index.to_string().into_bytes(), value.to_vec()]);
        }
        list::Effect::Pop { end, .. } => words.push(at(end, "LPOP", "RPOP")),
        list::Effect::Keep { .. } => words.push(b"LTRIM".to_vec()),
        list::Effect::RemoveAt { .. } => words.push(b"LREM".to_vec()),
    }
}
