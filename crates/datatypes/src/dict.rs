//! Dict: fields with values. Redis's hash.
//!
//! Writes of different fields commute, and so do blind increments, of the same field too.

mod visits;

use crate::codec::{borrowed_enum, wire_fields};
use crate::collections::PackedMap;
use crate::items::count_distinct;
use crate::observation::Footprint;
use crate::register::{LongDouble, Parsed, parse_integer};
use crate::{Aspect, Context, Items, Kind, Observation};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::{Error, Malformed, Reader, ReplySink, put_bytes, put_varint, wire_enum};

/// What a write of pairs replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutReply {
    /// How many fields are new (HSET).
    Added,
    /// `OK` (HMSET).
    Status,
}
wire_enum!(PutReply { 0 => Added, 1 => Status });
wire_fields!(PutReply, LongDouble);

/// An operation on a dict.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Writes fields; of a field that is named twice the last value counts.
    Put {
        /// Field, value, field, value, ...
        pairs: Items<'a>,
        /// What to reply.
        reply: PutReply,
    },
    /// Writes a field that is not there: 1, else 0.
    PutIfAbsent {
        /// The field.
        field: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The value of a field or null.
    Get {
        /// The field.
        field: &'a [u8],
    },
    /// The values of fields, null for each that is not there.
    GetMany {
        /// The fields.
        fields: Items<'a>,
    },
    /// All fields with their values.
    GetAll,
    /// All fields.
    Fields,
    /// All values.
    Values,
    /// How many fields there are.
    Length,
    /// 1 if the field is there, else 0.
    Contains {
        /// The field.
        field: &'a [u8],
    },
    /// The length of a field's value in bytes; 0 if it is not there.
    FieldLength {
        /// The field.
        field: &'a [u8],
    },
    /// Removes fields: how many were there.
    Delete {
        /// The fields.
        fields: Items<'a>,
    },
    /// Adds to a field: the sum. Refused when the value is no integer or the sum overflows.
    Increment {
        /// The field.
        field: &'a [u8],
        /// The summand.
        by: i64,
    },
    /// A piece of the dict: the cursor of the next one, "0" after the last, and the fields, each followed by its value if
    /// it is wanted.
    Scan {
        /// Where the piece begins; 0 for the first one.
        cursor: u64,
        /// About how many fields are looked at.
        count: u64,
        /// Which of them are listed ([`crate::glob`]).
        pattern: &'a [u8],
        /// Lists values too.
        values: bool,
    },
    /// Fields at random: one or null, or with a count at most so many different ones, or with a negative count exactly so
    /// many, repeated ones among them.
    Random {
        /// How many.
        count: Option<i64>,
        /// Makes a pair of each field and its value; not without a count.
        values: bool,
    },
    /// Adds to a field in Redis's floating-point numbers and writes the sum, which is replied: what others add at the same
    /// time rounds, so it is no addition of its own. Refused when the value is no number or the sum is infinite.
    IncrementFloat {
        /// The field.
        field: &'a [u8],
        /// The summand.
        by: LongDouble,
    },
}

/// A mutation of a dict.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// These fields have these values.
    Put {
        /// Field, value, field, value, ...
        pairs: Items<'a>,
    },
    /// These fields are gone.
    Remove {
        /// The fields.
        fields: Items<'a>,
    },
    /// Adds to a field, wrapping, so that it commutes and cannot fail; a missing field counts as 0, and a value
    /// that is no integer stays.
    Add {
        /// The field.
        field: &'a [u8],
        /// The summand.
        by: i64,
    },
}

borrowed_enum!(Operation, "dict operation tag", {
    0 => Put { pairs, reply },
    1 => PutIfAbsent { field, value },
    2 => Get { field },
    3 => GetMany { fields },
    4 => GetAll,
    5 => Fields,
    6 => Values,
    7 => Length,
    8 => Contains { field },
    9 => FieldLength { field },
    10 => Delete { fields },
    11 => Increment { field, by },
    12 => Scan { cursor, count, pattern, values },
    13 => Random { count, values },
    14 => IncrementFloat { field, by },
});

borrowed_enum!(Effect, "dict effect tag", {
    0 => Put { pairs },
    1 => Remove { fields },
    2 => Add { field, by },
});

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        !matches!(
            self,
            Operation::Put { .. }
                | Operation::PutIfAbsent { .. }
                | Operation::Delete { .. }
                | Operation::Increment { .. }
                | Operation::IncrementFloat { .. }
        )
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let aspect = match self {
            Operation::Put { reply: PutReply::Status, .. } => return Observation::only_kind(Kind::Dict),
            Operation::Put { pairs, reply: PutReply::Added } => Aspect::Elements(pairs.keys_of_pairs()),
            Operation::GetMany { fields } | Operation::Delete { fields } => Aspect::Elements(fields.clone()),
            Operation::PutIfAbsent { field, .. }
            | Operation::Get { field }
            | Operation::Contains { field }
            | Operation::FieldLength { field }
            | Operation::Increment { field, .. }
            | Operation::IncrementFloat { field, .. } => Aspect::Elements(Items::one(field)),
            Operation::Length => Aspect::Size,
            Operation::GetAll
            | Operation::Fields
            | Operation::Values
            | Operation::Scan { .. }
            | Operation::Random { .. } => Aspect::Whole,
        };
        Observation::of(Kind::Dict, aspect)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Put { pairs, .. } => Some(Effect::Put { pairs: pairs.clone() }),
            Operation::Delete { fields } => Some(Effect::Remove { fields: fields.clone() }),
            Operation::Increment { field, by } => Some(Effect::Add { field, by: *by }),
            _ => None,
        }
    }
}

impl Effect<'_> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::elements(match self {
            Effect::Put { pairs } => pairs.keys_of_pairs(),
            Effect::Remove { fields } => fields.clone(),
            Effect::Add { field, .. } => Items::one(field),
        })
    }
}

/// Writes commute when the fields differ or the values are the same; removals commute; additions commute with
/// each other and with writes of other fields. Adding beside removing does not: whoever empties the dict drops
/// its deadline.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Remove { .. }, Effect::Remove { .. }) | (Effect::Add { .. }, Effect::Add { .. }) => true,
        (Effect::Put { pairs: a }, Effect::Put { pairs: b }) => a == b || agree(a, b),
        (Effect::Put { pairs }, Effect::Add { field, .. })
        | (Effect::Add { field, .. }, Effect::Put { pairs }) => {
            pairs.pairs().all(|(other, _)| other != *field)
        }
        (Effect::Remove { .. }, _) | (_, Effect::Remove { .. }) => false,
    }
}

/// True when no field has different values in the two.
fn agree(a: &Items<'_>, b: &Items<'_>) -> bool {
    if a.len() == 2 && b.len() == 2 {
        return a
            .pairs()
            .all(|(field, value)| b.pairs().all(|(other, theirs)| field != other || value == theirs));
    }
    let mut values = BTreeMap::new();
    a.pairs().chain(b.pairs()).all(|(field, value)| *values.entry(field).or_insert(value) == value)
}

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    state: Option<&PackedMap>,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let get = |field: &[u8]| state.and_then(|state| state.get(field));
    match operation {
        Operation::Put { pairs, reply } => {
            match reply {
                PutReply::Status => sink.simple("OK"),
                PutReply::Added => {
                    let fields = pairs.pairs().map(|(field, _)| field);
                    sink.integer(count_distinct(fields, |field| get(field).is_none()) as i64);
                }
            }
            return Some(Effect::Put { pairs: pairs.clone() });
        }
        Operation::PutIfAbsent { field, value } => {
            let absent = get(field).is_none();
            sink.integer(i64::from(absent));
            return absent.then(|| Effect::Put { pairs: Items::two(field, value) });
        }
        Operation::Delete { fields } => {
            let found = count_distinct(fields.iter(), |field| get(field).is_some());
            sink.integer(found as i64);
            return (found > 0).then(|| Effect::Remove { fields: fields.clone() });
        }
        Operation::Increment { field, by } => return increment(get(field), field, *by, sink),
        Operation::IncrementFloat { field, by } => return increment_float(get(field), field, *by, sink),
        Operation::Get { field } => reply_value(get(field), sink),
        Operation::GetMany { fields } => {
            sink.array(fields.len());
            fields.iter().for_each(|field| reply_value(get(field), sink));
        }
        Operation::GetAll | Operation::Fields | Operation::Values => reply_all(state, operation, sink),
        Operation::Length => sink.integer(state.map_or(0, PackedMap::len) as i64),
        Operation::Scan { cursor, count, pattern, values } => {
            visits::scan(state, (*cursor, *count), pattern, *values, sink);
        }
        Operation::Random { count, values } => visits::random(state, *count, *values, context.random, sink),
        Operation::Contains { field } => sink.integer(i64::from(get(field).is_some())),
        Operation::FieldLength { field } => sink.integer(get(field).map_or(0, <[u8]>::len) as i64),
    }
    None
}

fn reply_value(value: Option<&[u8]>, sink: &mut dyn ReplySink) {
    match value {
        Some(value) => sink.bulk(value),
        None => sink.null(),
    }
}

fn reply_all(state: Option<&PackedMap>, operation: &Operation<'_>, sink: &mut dyn ReplySink) {
    let len = state.map_or(0, PackedMap::len);
    match operation {
        Operation::GetAll => sink.map(len),
        _ => sink.array(len),
    }
    for (field, value) in state.into_iter().flat_map(PackedMap::iter) {
        if !matches!(operation, Operation::Values) {
            sink.bulk(field);
        }
        if !matches!(operation, Operation::Fields) {
            sink.bulk(value);
        }
    }
}

fn increment<'a>(
    current: Option<&[u8]>,
    field: &'a [u8],
    by: i64,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let Some(current) = current.map_or(Some(0), parse_integer) else {
        sink.error(&Error::err("hash value is not an integer"));
        return None;
    };
    let Some(sum) = current.checked_add(by) else {
        sink.error(&Error::err("increment or decrement would overflow"));
        return None;
    };
    sink.integer(sum);
    Some(Effect::Add { field, by })
}

fn increment_float(
    current: Option<&[u8]>,
    field: &[u8],
    by: LongDouble,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    let Some(current) = current.map_or(Some(Parsed::Finite(LongDouble::ZERO)), LongDouble::parse) else {
        sink.error(&Error::err("hash value is not a float"));
        return None;
    };
    let sum = match current {
        Parsed::Finite(current) => current.plus(by),
        Parsed::Infinite => None,
    };
    let Some(sum) = sum else {
        sink.error(&Error::err("increment would produce NaN or Infinity"));
        return None;
    };
    let sum = sum.to_text();
    sink.bulk(&sum);
    Some(Effect::Put { pairs: Items::collect([field, &sum].into_iter()) })
}

/// Fields as they were.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// In the order in which they were changed; [`exchange`] goes backwards.
    entries: SmallVec<[Entry; 1]>,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let spilled = if self.entries.spilled() { self.entries.capacity() * size_of::<Entry>() } else { 0 };
        let strings = |entry: &Entry| entry.field.len() + entry.value.as_ref().map_or(0, |value| value.len());
        spilled + self.entries.iter().map(strings).sum::<usize>()
    }
}

#[derive(Clone, Debug, PartialEq)]
struct Entry {
    field: Box<[u8]>,
    value: Option<Box<[u8]>>,
}

impl Entry {
    fn of(state: &PackedMap, field: &[u8]) -> Entry {
        Entry { field: field.into(), value: state.get(field).map(Into::into) }
    }
}

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(state: &mut PackedMap, effect: &Effect<'_>) -> Option<Patch> {
    let mut entries = SmallVec::new();
    match effect {
        Effect::Put { pairs } => {
            for (field, value) in pairs.pairs() {
                if UNDO {
                    entries.push(Entry::of(state, field));
                }
                state.insert(field, value);
            }
        }
        Effect::Remove { fields } => {
            for field in fields.iter() {
                if UNDO && state.contains(field) {
                    entries.push(Entry::of(state, field));
                }
                state.remove(field);
            }
        }
        Effect::Add { field, by } => {
            let current = state.get(field).map_or(Some(0), parse_integer)?;
            if UNDO {
                entries.push(Entry::of(state, field));
            }
            state.insert(field, itoa::Buffer::new().format(current.wrapping_add(*by)).as_bytes());
        }
    }
    (!entries.is_empty()).then_some(Patch { entries })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut PackedMap, patch: &mut Patch) {
    for entry in patch.entries.iter_mut().rev() {
        let before = Entry::of(state, &entry.field).value;
        match std::mem::replace(&mut entry.value, before) {
            Some(value) => drop(state.insert(&entry.field, &value)),
            None => drop(state.remove(&entry.field)),
        }
    }
    patch.entries.reverse();
}

/// Appends a state's binary form.
pub fn encode_state(state: &PackedMap, out: &mut Vec<u8>) {
    put_varint(out, state.len() as u64);
    for (field, value) in state.iter() {
        put_bytes(out, field);
        put_bytes(out, value);
    }
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<PackedMap, Malformed> {
    let mut state = PackedMap::default();
    for _ in 0..input.count()? {
        state.insert(input.bytes()?, input.bytes()?);
    }
    Ok(state)
}
