//! Ranges of a scored set: by place, by score or by member.

use crate::codec::{Field, borrowed_enum};
use crate::collections::ScoredTree;
use crate::index::resolve_range;
use std::ops::{Bound, Range};
use types::{Malformed, Reader, put_bytes};

/// One end of a range of scores; infinite ends are infinite scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ScoreBound {
    /// This score too.
    Inclusive(f64),
    /// Not this score.
    Exclusive(f64),
}

impl ScoreBound {
    /// Below every score (`-inf`).
    pub const LOWEST: ScoreBound = ScoreBound::Inclusive(f64::NEG_INFINITY);
    /// Above every score (`+inf`).
    pub const HIGHEST: ScoreBound = ScoreBound::Inclusive(f64::INFINITY);

    fn bound(self) -> Bound<f64> {
        match self {
            ScoreBound::Inclusive(score) => Bound::Included(score),
            ScoreBound::Exclusive(score) => Bound::Excluded(score),
        }
    }
}

impl Field<'_> for ScoreBound {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, score) = match self {
            ScoreBound::Inclusive(score) => (0, score),
            ScoreBound::Exclusive(score) => (1, score),
        };
        out.push(tag);
        Field::put(score, out);
    }

    fn take(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(ScoreBound::Inclusive(Field::take(input)?)),
            1 => Ok(ScoreBound::Exclusive(Field::take(input)?)),
            _ => Err(Malformed("score bound tag")),
        }
    }
}

/// One end of a range of members, in the order of their bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LexBound<'a> {
    /// Below every member (`-`).
    Lowest,
    /// Above every member (`+`).
    Highest,
    /// This member too (`[member`).
    Inclusive(&'a [u8]),
    /// Not this member (`(member`).
    Exclusive(&'a [u8]),
}

impl<'a> Field<'a> for LexBound<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        let (tag, member) = match self {
            LexBound::Lowest => return out.push(0),
            LexBound::Highest => return out.push(1),
            LexBound::Inclusive(member) => (2, member),
            LexBound::Exclusive(member) => (3, member),
        };
        out.push(tag);
        put_bytes(out, member);
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(LexBound::Lowest),
            1 => Ok(LexBound::Highest),
            2 => Ok(LexBound::Inclusive(input.bytes()?)),
            3 => Ok(LexBound::Exclusive(input.bytes()?)),
            _ => Err(Malformed("lex bound tag")),
        }
    }
}

/// Which members a range means. The minimum comes first, whatever the direction in which they are listed.
#[derive(Clone, Debug, PartialEq)]
pub enum RangeBy<'a> {
    /// By place; negative ones count from the end, and in reverse the highest member is at place 0.
    Index {
        /// The first place.
        start: i64,
        /// The last place.
        stop: i64,
    },
    /// By score.
    Score {
        /// The lowest.
        min: ScoreBound,
        /// The highest.
        max: ScoreBound,
    },
    /// By member, where all scores are equal; elsewhere unspecified, as in Redis.
    Lex {
        /// The lowest.
        min: LexBound<'a>,
        /// The highest.
        max: LexBound<'a>,
    },
}

borrowed_enum!(RangeBy, "range tag", {
    0 => Index { start, stop },
    1 => Score { min, max },
    2 => Lex { min, max },
});

impl<'a> Field<'a> for RangeBy<'a> {
    fn put(&self, out: &mut Vec<u8>) {
        self.encode(out);
    }

    fn take(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        RangeBy::decode(input)
    }
}

impl RangeBy<'_> {
    /// The ranks that it means.
    pub(super) fn ranks(&self, state: &ScoredTree, reverse: bool) -> Range<usize> {
        match self {
            RangeBy::Index { start, stop } => {
                let (start, count) = resolve_range(*start, *stop, state.len());
                let first = if reverse { state.len() - start - count } else { start };
                first..first + count
            }
            RangeBy::Score { min, max } => score_ranks(state, *min, *max),
            RangeBy::Lex { min, max } => lex_ranks(state, *min, *max),
        }
    }
}

/// The ranks of the scores from `min` to `max`.
pub(super) fn score_ranks(state: &ScoredTree, min: ScoreBound, max: ScoreBound) -> Range<usize> {
    state.score_range(min.bound(), max.bound())
}

/// The ranks of the members from `min` to `max`.
pub(super) fn lex_ranks(state: &ScoredTree, min: LexBound<'_>, max: LexBound<'_>) -> Range<usize> {
    let min = match min {
        LexBound::Lowest => Bound::Unbounded,
        LexBound::Highest => return 0..0,
        LexBound::Inclusive(member) => Bound::Included(member),
        LexBound::Exclusive(member) => Bound::Excluded(member),
    };
    let max = match max {
        LexBound::Lowest => return 0..0,
        LexBound::Highest => Bound::Unbounded,
        LexBound::Inclusive(member) => Bound::Included(member),
        LexBound::Exclusive(member) => Bound::Excluded(member),
    };
    state.lex_range(min, max)
}
