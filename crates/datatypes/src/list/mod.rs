//! List: elements in order. Redis's list.
//!
//! Effects name places, not wishes: `prepare` resolves negative indexes, pivots and counts, so that an effect
//! does the same whoever performs it. Pushes at opposite ends commute, and so do replacements at different
//! places.

mod execute;
mod patch;
mod positions;

pub use execute::{apply, decode_state, encode_state, prepare};
pub use patch::{Patch, exchange};
pub use positions::Positions;

use crate::codec::{borrowed_enum, wire_fields};
use crate::observation::Footprint;
use crate::{Aspect, Items, Kind, Observation};
use types::wire_enum;

/// An end of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Where index 0 is (LPUSH, LPOP).
    Front,
    /// Where index -1 is (RPUSH, RPOP).
    Back,
}
wire_enum!(End { 0 => Front, 1 => Back });
wire_fields!(End);

/// An operation on a list. Indexes may be negative: -1 is the last element.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Pushes values one after the other: the new length.
    Push {
        /// Where.
        end: End,
        /// The values.
        values: Items<'a>,
        /// Does nothing and replies 0 when the key is absent (LPUSHX).
        only_if_exists: bool,
    },
    /// Removes elements: one or null, or with a count an array of at most so many, or the null array when the
    /// key is absent.
    Pop {
        /// Where.
        end: End,
        /// How many.
        count: Option<u64>,
    },
    /// The elements from `start` to `stop`.
    Range {
        /// The first.
        start: i64,
        /// The last.
        stop: i64,
    },
    /// How many elements there are.
    Length,
    /// The element at an index or null.
    Index {
        /// Where.
        index: i64,
    },
    /// Replaces an element: `OK`. Refused when the key is absent or the index is outside.
    Put {
        /// Where.
        index: i64,
        /// The value.
        value: &'a [u8],
    },
    /// Removes all elements but those from `start` to `stop`: `OK`.
    Trim {
        /// The first.
        start: i64,
        /// The last.
        stop: i64,
    },
    /// Removes elements that are equal to `value`: how many.
    Remove {
        /// At most so many from the front, or if negative from the back; 0 for all.
        count: i64,
        /// The value.
        value: &'a [u8],
    },
    /// Inserts beside the first element equal to `pivot`: the new length, -1 without a pivot, 0 without a key.
    InsertNextTo {
        /// Before it, else behind it.
        before: bool,
        /// Beside which.
        pivot: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// The index of an element equal to `value`, or null; with a count an array of indexes.
    Position {
        /// The value.
        value: &'a [u8],
        /// Which of the equal elements is the first that counts: 1 for the first from the front, -1 for the last.
        rank: i64,
        /// How many indexes; 0 for all.
        count: Option<u64>,
        /// How many elements are compared; 0 for all.
        max_len: u64,
    },
}

/// A mutation of a list. Places outside the list mean nothing.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// Pushes values one after the other.
    Push {
        /// Where.
        end: End,
        /// The values.
        values: Items<'a>,
    },
    /// Removes elements.
    Pop {
        /// Where.
        end: End,
        /// How many, or as many as there are.
        count: u64,
    },
    /// Replaces an element.
    Put {
        /// Where.
        index: u64,
        /// The value.
        value: &'a [u8],
    },
    /// Removes all elements but a range.
    Keep {
        /// The first to keep.
        start: u64,
        /// How many to keep.
        len: u64,
    },
    /// Removes the elements at these positions, all counted before the first is removed.
    RemoveAt {
        /// The positions.
        positions: Positions,
    },
    /// Inserts before the element that is at an index, or at the end.
    InsertAt {
        /// Where.
        index: u64,
        /// The value.
        value: &'a [u8],
    },
}

borrowed_enum!(Operation, "list operation tag", {
    0 => Push { end, values, only_if_exists },
    1 => Pop { end, count },
    2 => Range { start, stop },
    3 => Length,
    4 => Index { index },
    5 => Put { index, value },
    6 => Trim { start, stop },
    7 => Remove { count, value },
    8 => InsertNextTo { before, pivot, value },
    9 => Position { value, rank, count, max_len },
});

borrowed_enum!(Effect, "list effect tag", {
    0 => Push { end, values },
    1 => Pop { end, count },
    2 => Put { index, value },
    3 => Keep { start, len },
    4 => RemoveAt { positions },
    5 => InsertAt { index, value },
});

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        matches!(
            self,
            Operation::Range { .. }
                | Operation::Length
                | Operation::Index { .. }
                | Operation::Position { .. }
        )
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let aspect = match self {
            Operation::Push { .. } | Operation::Length | Operation::Put { .. } | Operation::Trim { .. } => {
                Aspect::Size
            }
            _ => Aspect::Whole,
        };
        Observation::of(Kind::List, aspect)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Push { end, values, only_if_exists: false } => {
                Some(Effect::Push { end: *end, values: values.clone() })
            }
            Operation::Pop { end, count } => Some(Effect::Pop { end: *end, count: count.unwrap_or(1) }),
            _ => None,
        }
    }
}

impl Effect<'_> {
    /// Which aspects it may change: of a list, all.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }
}

/// Equal effects commute, pushes at opposite ends do, and replacements at different places do.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Push { end: a, .. }, Effect::Push { end: b, .. }) if a != b => true,
        (Effect::Put { index: a, .. }, Effect::Put { index: b, .. }) if a != b => true,
        _ => a == b,
    }
}
