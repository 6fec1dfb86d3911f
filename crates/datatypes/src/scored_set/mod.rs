//! ScoredSet: members in the order of their scores. Redis's sorted set.
//!
//! Writes of different members commute, and writes of the same score to the same member; the same member with
//! different scores does not (Corrections 60). Negative zero is zero.

mod bounds;
mod execute;
mod items;
mod near;
mod visits;
mod write;

pub use bounds::{LexBound, RangeBy, ScoreBound};
pub use execute::prepare;
pub use items::ScoredItems;
pub use near::{Center, Listing, Order, Search};
pub(crate) use write::Entry;
pub use write::{Patch, apply, decode_state, encode_state, exchange};

use crate::codec::{borrowed_enum, wire_fields};
use crate::observation::Footprint;
use crate::{Aspect, Items, Kind, Observation};
use std::collections::BTreeMap;
use types::{wire_enum, wire_struct};

/// When ZADD writes, and what it counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AddFlags {
    /// NX: only members that are not there.
    pub if_absent: bool,
    /// XX: only members that are there.
    pub if_present: bool,
    /// GT: of members that are there, only to a higher score.
    pub if_greater: bool,
    /// LT: of members that are there, only to a lower score.
    pub if_less: bool,
    /// CH: counts changed members, not only new ones.
    pub count_changed: bool,
}
wire_struct!(AddFlags { if_absent, if_present, if_greater, if_less, count_changed });
wire_fields!(AddFlags);

impl AddFlags {
    fn is_conditional(self) -> bool {
        self.if_absent || self.if_present || self.if_greater || self.if_less
    }
}

/// An end of the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The lowest score (ZPOPMIN).
    Min,
    /// The highest score (ZPOPMAX).
    Max,
}
wire_enum!(End { 0 => Min, 1 => Max });
wire_fields!(End);

/// An operation on a scored set.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Writes scores: how many members are new, or changed.
    Add {
        /// When to write, and what to count.
        flags: AddFlags,
        /// Scores, none of them NaN, with members.
        items: ScoredItems<'a>,
    },
    /// Adds to a score: the sum, or null when the flags forbid it. Refused when the sum is not a number.
    Increment {
        /// When to write.
        flags: AddFlags,
        /// The summand, not NaN.
        by: f64,
        /// The member.
        member: &'a [u8],
    },
    /// Removes members: how many were there.
    Remove {
        /// The members.
        members: Items<'a>,
    },
    /// The score of a member or null.
    Score {
        /// The member.
        member: &'a [u8],
    },
    /// The score of each member or null.
    Scores {
        /// The members.
        members: Items<'a>,
    },
    /// How many members there are.
    Length,
    /// The place of a member, or null.
    Rank {
        /// The member.
        member: &'a [u8],
        /// Counted from the highest score.
        reverse: bool,
    },
    /// The members of a range, in order.
    Range {
        /// Which.
        by: RangeBy<'a>,
        /// From the highest score down.
        reverse: bool,
        /// How many to skip, where a negative number skips all, and how many to list, where a negative number
        /// lists all.
        limit: Option<(i64, i64)>,
        /// With their scores.
        with_scores: bool,
    },
    /// How many scores are between these.
    Count {
        /// The lowest.
        min: ScoreBound,
        /// The highest.
        max: ScoreBound,
    },
    /// How many members are between these.
    LexCount {
        /// The lowest.
        min: LexBound<'a>,
        /// The highest.
        max: LexBound<'a>,
    },
    /// Removes the members of a range: how many.
    RemoveRange {
        /// Which.
        by: RangeBy<'a>,
    },
    /// Removes members from an end: one with its score in a flat array, or with a count pairs of at most so many.
    Pop {
        /// Which end.
        end: End,
        /// How many.
        count: Option<u64>,
    },
    /// The place of a member with its score, or a null array.
    RankWithScore {
        /// The member.
        member: &'a [u8],
        /// Counted from the highest score.
        reverse: bool,
    },
    /// Members at random: one or null, or with a count at most so many different ones, or with a negative count
    /// exactly so many, repeated ones among them.
    Random {
        /// How many.
        count: Option<i64>,
        /// With their scores.
        with_scores: bool,
    },
    /// Where members are on the map, each two coordinates or a null array.
    Positions {
        /// The members.
        members: Items<'a>,
    },
    /// The geohashes of members as texts, or nulls.
    Geohashes {
        /// The members.
        members: Items<'a>,
    },
    /// How far two members are apart, or null.
    Distance {
        /// The one.
        from: &'a [u8],
        /// The other.
        to: &'a [u8],
        /// The unit in meters.
        unit: f64,
    },
    /// The members in a shape on the map.
    Search {
        /// Which.
        search: Search<'a>,
        /// What is listed.
        listing: Listing,
    },
    /// The members in a shape on the map, each with a number: what GEOSEARCHSTORE stores.
    SearchScores {
        /// Which.
        search: Search<'a>,
        /// The distance in the search's unit, not the score.
        by_distance: bool,
    },
    /// A piece of the set: the cursor of the next one, "0" after the last, and each member followed by its score.
    Scan {
        /// Where the piece begins; 0 for the first one.
        cursor: u64,
        /// About how many members are looked at.
        count: u64,
        /// Which of them are listed ([`crate::glob`]).
        pattern: &'a [u8],
    },
}

/// A mutation of a scored set.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// These members have these scores.
    Put {
        /// Scores with members; the last one of a member counts.
        items: ScoredItems<'a>,
    },
    /// These members are gone.
    Remove {
        /// The members.
        members: Items<'a>,
    },
    /// Adds to a score; a new member has the summand. What gives no number changes nothing.
    Add {
        /// The member.
        member: &'a [u8],
        /// The summand.
        by: f64,
    },
}

borrowed_enum!(Operation, "scored set operation tag", {
    0 => Add { flags, items },
    1 => Increment { flags, by, member },
    2 => Remove { members },
    3 => Score { member },
    4 => Scores { members },
    5 => Length,
    6 => Rank { member, reverse },
    7 => Range { by, reverse, limit, with_scores },
    8 => Count { min, max },
    9 => LexCount { min, max },
    10 => RemoveRange { by },
    11 => Pop { end, count },
    12 => RankWithScore { member, reverse },
    13 => Random { count, with_scores },
    14 => Positions { members },
    15 => Geohashes { members },
    16 => Distance { from, to, unit },
    17 => Search { search, listing },
    18 => SearchScores { search, by_distance },
    19 => Scan { cursor, count, pattern },
});

borrowed_enum!(Effect, "scored set effect tag", {
    0 => Put { items },
    1 => Remove { members },
    2 => Add { member, by },
});

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        !matches!(
            self,
            Operation::Add { .. }
                | Operation::Increment { .. }
                | Operation::Remove { .. }
                | Operation::RemoveRange { .. }
                | Operation::Pop { .. }
        )
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let aspect = match self {
            Operation::Add { items, .. } => Aspect::Elements(items.members()),
            Operation::Increment { member, .. } | Operation::Score { member } => {
                Aspect::Elements(Items::one(member))
            }
            Operation::Remove { members }
            | Operation::Scores { members }
            | Operation::Positions { members }
            | Operation::Geohashes { members } => Aspect::Elements(members.clone()),
            Operation::Distance { from, to, .. } => Aspect::Elements(Items::two(from, to)),
            Operation::Length => Aspect::Size,
            _ => Aspect::Whole,
        };
        Observation::of(Kind::ScoredSet, aspect)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Add { flags, items } if !flags.is_conditional() => {
                Some(Effect::Put { items: items.clone() })
            }
            Operation::Remove { members } => Some(Effect::Remove { members: members.clone() }),
            _ => None,
        }
    }
}

impl Effect<'_> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::elements(match self {
            Effect::Put { items } => items.members(),
            Effect::Remove { members } => members.clone(),
            Effect::Add { member, .. } => Items::one(member),
        })
    }
}

/// Writes commute when the members differ or the scores are the same, and removals commute. A write and a removal do
/// not commute: a removal that empties the set drops its deadline. Additions to scores do not: floats round.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Put { items: a }, Effect::Put { items: b }) => a == b || agree(a, b),
        (Effect::Remove { .. }, Effect::Remove { .. }) => true,
        (Effect::Put { .. }, Effect::Remove { .. }) | (Effect::Remove { .. }, Effect::Put { .. }) => false,
        (Effect::Add { .. }, _) | (_, Effect::Add { .. }) => false,
    }
}

/// True when no member has different scores in the two.
fn agree(a: &ScoredItems<'_>, b: &ScoredItems<'_>) -> bool {
    if let ([(score, member)], [(other_score, other)]) = (&**a, &**b) {
        return member != other || score == other_score;
    }
    let mut scores = BTreeMap::new();
    a.iter().chain(b.iter()).all(|(score, member)| *scores.entry(*member).or_insert(*score) == *score)
}

/// A score with a summand added; a new member keeps the sign of minus zero, which a sum with zero would lose. What gives
/// no number leaves the score as it is.
pub fn sum(score: Option<f64>, by: f64) -> f64 {
    match score {
        None => by,
        Some(score) if (score + by).is_nan() => score,
        Some(score) => score + by,
    }
}
