//! Dict: fields with values. Redis's hash.
//!
//! Writes of different fields commute, and so do blind increments, of the same field too.
//!
//! A field may have a deadline. It is part of what was written to the field: who writes the field anew says what becomes of
//! it. A field whose deadline has passed is removed before anything is evaluated ([`crate::Cell::expiry`]).

mod effect;
mod execute;
mod expiry;
mod visits;

pub use effect::{Effect, Until, effects_commute};
pub use execute::prepare;

use crate::codec::{borrowed_enum, wire_fields};
use crate::collections::PackedMap;
use crate::key::{ExpireCondition, TimeFormat};
use crate::register::{LongDouble, parse_integer};
use crate::{Aspect, Items, Kind, Observation, register};
use smallvec::SmallVec;
use types::{Malformed, Reader, put_bytes, put_varint, wire_enum};

/// What a write of pairs replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutReply {
    /// How many fields are new (HSET).
    Added,
    /// `OK` (HMSET).
    Status,
}
wire_enum!(PutReply { 0 => Added, 1 => Status });

/// When HSETEX takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PutCondition {
    /// Always.
    Always,
    /// Only if none of the fields is there (FNX).
    IfAbsent,
    /// Only if all of them are (FXX).
    IfPresent,
}
wire_enum!(PutCondition { 0 => Always, 1 => IfAbsent, 2 => IfPresent });
wire_fields!(PutReply, PutCondition, LongDouble, ExpireCondition, TimeFormat, register::Deadline);

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
    /// Gives fields a deadline. For each: 1 if it has it, 0 if the condition does not hold, 2 if the deadline has passed and
    /// the field is gone, -2 if it is not there.
    ExpireAt {
        /// The fields.
        fields: Items<'a>,
        /// Milliseconds since 1970.
        at_millis: u64,
        /// When to do it.
        condition: ExpireCondition,
    },
    /// The deadlines of fields: -1 for none, -2 if the field is not there.
    Deadlines {
        /// The fields.
        fields: Items<'a>,
        /// The format of the reply; seconds are rounded up.
        format: TimeFormat,
    },
    /// Drops the deadlines of fields. For each: 1 if it had one, -1 if it had none, -2 if it is not there.
    Persist {
        /// The fields.
        fields: Items<'a>,
    },
    /// The values of fields, null for each that is not there; those that are there get another deadline, and one that has
    /// passed removes them (HGETEX).
    GetAndExpire {
        /// The fields.
        fields: Items<'a>,
        /// Milliseconds since 1970; 0 for none.
        at_millis: u64,
    },
    /// The values of fields, null for each that is not there; then they are removed (HGETDEL).
    GetAndDelete {
        /// The fields.
        fields: Items<'a>,
    },
    /// Writes fields with a deadline: 1, or 0 if the condition does not hold (HSETEX).
    PutUntil {
        /// Field, value, field, value, ...
        pairs: Items<'a>,
        /// When to do it.
        condition: PutCondition,
        /// That of all fields. One that has passed removes them.
        deadline: register::Deadline,
    },
    /// The first deadline of a field, in milliseconds since 1970; -1 if no field has one.
    FirstDeadline,
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
    15 => ExpireAt { fields, at_millis, condition },
    16 => Deadlines { fields, format },
    17 => Persist { fields },
    18 => GetAndExpire { fields, at_millis },
    19 => GetAndDelete { fields },
    20 => PutUntil { pairs, condition, deadline },
    21 => FirstDeadline,
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
                | Operation::ExpireAt { .. }
                | Operation::Persist { .. }
                | Operation::GetAndExpire { .. }
                | Operation::GetAndDelete { .. }
                | Operation::PutUntil { .. }
        )
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let aspect = match self {
            Operation::Put { reply: PutReply::Status, .. }
            | Operation::PutUntil {
                condition: PutCondition::Always,
                deadline: register::Deadline::Clear,
                ..
            } => return Observation::only_kind(Kind::Dict),
            Operation::Put { pairs, reply: PutReply::Added } | Operation::PutUntil { pairs, .. } => {
                Aspect::Elements(pairs.keys_of_pairs())
            }
            Operation::GetMany { fields }
            | Operation::Delete { fields }
            | Operation::ExpireAt { fields, .. }
            | Operation::Deadlines { fields, .. }
            | Operation::Persist { fields }
            | Operation::GetAndExpire { fields, .. }
            | Operation::GetAndDelete { fields } => Aspect::Elements(fields.clone()),
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
            | Operation::Random { .. }
            | Operation::FirstDeadline => Aspect::Whole,
        };
        Observation::of(Kind::Dict, aspect)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Put { pairs, .. }
            | Operation::PutUntil {
                pairs,
                condition: PutCondition::Always,
                deadline: register::Deadline::Clear,
            } => Some(Effect::put(pairs.clone())),
            Operation::Delete { fields } | Operation::GetAndDelete { fields } => {
                Some(Effect::Remove { fields: fields.clone() })
            }
            Operation::Increment { field, by } => Some(Effect::Add { field, by: *by }),
            _ => None,
        }
    }
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
    /// Milliseconds since 1970; 0 for none.
    deadline: u64,
}

impl Entry {
    fn of(state: &PackedMap, field: &[u8]) -> Entry {
        Entry {
            field: field.into(),
            value: state.get(field).map(Into::into),
            deadline: state.deadline(field),
        }
    }
}

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(state: &mut PackedMap, effect: &Effect<'_>) -> Option<Patch> {
    let mut entries = SmallVec::new();
    match effect {
        Effect::Put { pairs, until } => {
            for (place, (field, value)) in pairs.pairs().enumerate() {
                if UNDO {
                    entries.push(Entry::of(state, field));
                }
                state.insert(field, value);
                state.set_deadline(field, until.of(place));
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
            state.replace(field, itoa::Buffer::new().format(current.wrapping_add(*by)).as_bytes());
        }
        Effect::SetDeadline { fields, at_millis } => {
            for field in fields.iter().filter(|field| state.contains(field)).collect::<Vec<_>>() {
                if UNDO {
                    entries.push(Entry::of(state, field));
                }
                state.set_deadline(field, *at_millis);
            }
        }
    }
    (!entries.is_empty()).then_some(Patch { entries })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut PackedMap, patch: &mut Patch) {
    for entry in patch.entries.iter_mut().rev() {
        let before = Entry::of(state, &entry.field);
        match &entry.value {
            Some(value) => {
                state.insert(&entry.field, value);
                state.set_deadline(&entry.field, entry.deadline);
            }
            None => drop(state.remove(&entry.field)),
        }
        *entry = before;
    }
    patch.entries.reverse();
}

/// Appends a state's binary form: how many fields there are, and each with its value. Where fields have deadlines, that
/// stands behind a zero, and each value has the deadline behind it, or zero.
pub fn encode_state(state: &PackedMap, out: &mut Vec<u8>) {
    let dated = state.deadlines().is_some();
    if dated {
        put_varint(out, 0);
    }
    put_varint(out, state.len() as u64);
    for (field, value) in state.iter() {
        put_bytes(out, field);
        put_bytes(out, value);
        if dated {
            put_varint(out, state.deadline(field));
        }
    }
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<PackedMap, Malformed> {
    let mut state = PackedMap::default();
    let (count, dated) = match input.count()? {
        0 => (input.count()?, true),
        count => (count, false),
    };
    for _ in 0..count {
        let field = input.bytes()?;
        state.insert(field, input.bytes()?);
        if dated {
            state.set_deadline(field, input.varint()?);
        }
    }
    Ok(state)
}
