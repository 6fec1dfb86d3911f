//! TopK: members with scores, of which only the highest stay (Claret, table 1). Additions never conflict.
//!
//! A member's score is the greatest that was ever given to it, so those that stay are the highest of all members ever
//! added, in whatever order they came: a dropped member is below as many others as stay, and they only rise. Equal
//! scores are ordered by member, the greater one higher, as in Redis's reverse ranges.

use crate::codec::{Field, borrowed_enum};
use crate::collections::ScoredTree;
use crate::observation::Footprint;
use crate::scored_set::{self, Entry, ScoredItems};
use crate::{Aspect, Context, Kind, Observation, index};
use smallvec::SmallVec;
use types::{Error, Malformed, Reader, Reply, ReplyBuf, ReplySink, Wire};

/// The capacity where nothing was reserved.
pub const DEFAULT_CAPACITY: u32 = 100;
/// The greatest capacity.
pub const MAX_CAPACITY: u32 = 1_000_000;

/// An operation on the top of something.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Adds members: OK.
    Add {
        /// Scores, none of them NaN, with members.
        items: ScoredItems<'a>,
    },
    /// Keeps so many from now on: OK.
    Reserve {
        /// How many, from 1 to [`MAX_CAPACITY`].
        capacity: u64,
    },
    /// The members from a place to another one, highest first.
    Range {
        /// The first place; negative ones count from the lowest.
        start: i64,
        /// The last place.
        stop: i64,
        /// With their scores.
        with_scores: bool,
    },
    /// The score of a member, or null if it is not there.
    Score {
        /// The member.
        member: &'a [u8],
    },
    /// How many members there are at present.
    Length,
    /// The capacity.
    Capacity,
    /// The place of a member, 0 for the highest, or null if it is not there.
    Rank {
        /// The member.
        member: &'a [u8],
    },
    /// The members down to a score and a member, highest first, with their scores.
    DownTo {
        /// The lowest score.
        score: f64,
        /// The last member of that score.
        member: &'a [u8],
    },
}

/// A mutation.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// Adds members.
    Add {
        /// Scores with members.
        items: ScoredItems<'a>,
    },
    /// Keeps so many from now on.
    Reserve {
        /// How many.
        capacity: u64,
    },
}

borrowed_enum!(Operation, "top operation tag", {
    0 => Add { items },
    1 => Reserve { capacity },
    2 => Range { start, stop, with_scores },
    3 => Score { member },
    4 => Length,
    5 => Capacity,
    6 => Rank { member },
    7 => DownTo { score, member },
});

borrowed_enum!(Effect, "top effect tag", {
    0 => Add { items },
    1 => Reserve { capacity },
});

/// The state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Top {
    reserved: Option<u32>,
    members: ScoredTree,
}

impl Top {
    /// True when there is no member and no reservation.
    pub fn is_empty(&self) -> bool {
        self.reserved.is_none() && self.members.is_empty()
    }

    /// How many members there may be.
    pub fn capacity(&self) -> u32 {
        self.reserved.unwrap_or(DEFAULT_CAPACITY)
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        size_of::<Self>() + self.members.memory()
    }

    /// The members with their scores, highest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (f64, &[u8])> {
        (0..self.members.len()).rev().filter_map(|rank| self.members.entry_at(rank))
    }

    fn has_room_for(&self, score: f64, member: &[u8]) -> bool {
        self.members.len() < self.capacity() as usize
            || self.members.first().is_some_and(|(lowest, last)| (lowest, last) < (score, member))
    }
}

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        !matches!(self, Operation::Add { .. } | Operation::Reserve { .. })
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        match self {
            Operation::Add { .. } | Operation::Reserve { .. } => Observation::only_kind(Kind::Top),
            Operation::DownTo { score, member } => {
                Observation::of(Kind::Top, Aspect::DownTo { score: *score, member })
            }
            _ => Observation::of(Kind::Top, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::narrowed`]. As many of the highest as were requested stay what they are while nothing
    /// is added above the last one: what is below it changes no place, and it drops what is lower still.
    pub fn narrowed<'r>(&self, reply: &'r ReplyBuf) -> Option<Operation<'r>> {
        let Operation::Range { start, stop, with_scores: true } = self else { return None };
        let wanted = usize::try_from(stop.checked_sub(*start)?.checked_add(1)?).ok()?;
        let elements: SmallVec<[Reply<'r>; 8]> = reply.elements().collect();
        match elements[..] {
            [Reply::Pairs(count), .., Reply::Pair, Reply::Bulk(member), Reply::Double(score)]
                if *start >= 0 && count == wanted =>
            {
                Some(Operation::DownTo { score, member })
            }
            _ => None,
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Add { items } => Some(Effect::Add { items: items.clone() }),
            Operation::Reserve { capacity } => Some(Effect::Reserve { capacity: *capacity }),
            _ => None,
        }
    }
}

impl Effect<'_> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        let Effect::Add { items } = self else { return Footprint::whole() };
        let added =
            items.iter().filter(|(score, _)| !score.is_nan()).map(|(score, member)| (score + 0.0, member));
        let highest = added.reduce(|a, b| if a < b { b } else { a });
        let up_to = highest.map(|(score, member)| Aspect::UpTo { score, member });
        Footprint { aspects: std::iter::once(Aspect::Existence).chain(up_to).collect() }
    }
}

/// Additions commute: of every member the greatest score counts.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    matches!((a, b), (Effect::Add { .. }, Effect::Add { .. }))
}

fn is_possible(capacity: &u32) -> bool {
    (1..=MAX_CAPACITY).contains(capacity)
}

/// Evaluates an operation; see [`crate::prepare`].
pub fn prepare<'a>(
    state: Option<&Top>,
    operation: &Operation<'a>,
    _: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let len = state.map_or(0, |state| state.members.len());
    match operation {
        Operation::Reserve { capacity } if !u32::try_from(*capacity).is_ok_and(|it| is_possible(&it)) => {
            sink.error(&Error::err(format!("the capacity must be from 1 to {MAX_CAPACITY}")));
            return None;
        }
        Operation::Add { .. } | Operation::Reserve { .. } => sink.simple("OK"),
        Operation::Range { start, stop, with_scores } => {
            let (first, count) = index::resolve_range(*start, *stop, len);
            write_range(state, first, count, *with_scores, sink);
        }
        Operation::DownTo { score, member } => {
            let descending = state.into_iter().flat_map(Top::iter);
            let count = descending.take_while(|(it, of)| (it, *of) >= (score, *member)).count();
            write_range(state, 0, count, true, sink);
        }
        Operation::Rank { member } => match state.and_then(|state| state.members.rank(member)) {
            Some(rank) => sink.integer((len - 1 - rank) as i64),
            None => sink.null(),
        },
        Operation::Score { member } => match state.and_then(|state| state.members.score(member)) {
            Some(score) => sink.double(score),
            None => sink.null(),
        },
        Operation::Length => sink.integer(len as i64),
        Operation::Capacity => sink.integer(i64::from(state.map_or(DEFAULT_CAPACITY, Top::capacity))),
    }
    operation.blind_effect()
}

fn write_range(state: Option<&Top>, first: usize, count: usize, with_scores: bool, sink: &mut dyn ReplySink) {
    if with_scores {
        sink.pairs(count);
    } else {
        sink.array(count);
    }
    for (score, member) in state.into_iter().flat_map(Top::iter).skip(first).take(count) {
        if with_scores {
            sink.pair();
        }
        sink.bulk(member);
        if with_scores {
            sink.double(score);
        }
    }
}

/// What was reserved, and members with the scores they had.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    reserved: Option<u32>,
    members: scored_set::Patch,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        self.members.memory()
    }
}

/// Performs an effect; see [`crate::apply`].
pub fn apply<const UNDO: bool>(state: &mut Top, effect: &Effect<'_>) -> Option<Patch> {
    let reserved = state.reserved;
    let mut entries: SmallVec<[Entry; 1]> = SmallVec::new();
    match effect {
        Effect::Reserve { capacity } => {
            let possible = u32::try_from(*capacity).ok().filter(is_possible);
            state.reserved = possible.or(state.reserved);
        }
        Effect::Add { items } => {
            for (score, member) in items.iter().filter(|(score, _)| !score.is_nan()) {
                let (score, before) = (score + 0.0, state.members.score(member));
                let rises = before.map_or_else(|| state.has_room_for(score, member), |before| score > before);
                if rises {
                    state.members.insert(member, score);
                    if UNDO {
                        entries.push(((*member).into(), before));
                    }
                    drop_lowest::<UNDO>(state, &mut entries);
                }
            }
        }
    }
    drop_lowest::<UNDO>(state, &mut entries);
    let changed = !entries.is_empty() || reserved != state.reserved;
    (UNDO && changed).then(|| Patch { reserved, members: scored_set::Patch::new(entries) })
}

fn drop_lowest<const UNDO: bool>(state: &mut Top, entries: &mut SmallVec<[Entry; 1]>) {
    while state.members.len() > state.capacity() as usize {
        let Some((score, member)) = state.members.pop_first() else { return };
        if UNDO {
            entries.push((member.into(), Some(score)));
        }
    }
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut Top, patch: &mut Patch) {
    std::mem::swap(&mut state.reserved, &mut patch.reserved);
    scored_set::exchange(&mut state.members, &mut patch.members);
}

/// Appends a state's binary form.
pub fn encode_state(state: &Top, out: &mut Vec<u8>) {
    Field::put(&state.reserved.map(u64::from), out);
    scored_set::encode_state(&state.members, out);
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<Top, Malformed> {
    let malformed = Malformed("top");
    let reserved = Option::<u64>::decode(input)?;
    let reserved = reserved.map(|reserved| u32::try_from(reserved).map_err(|_| malformed)).transpose()?;
    let top = Top { reserved, members: scored_set::decode_state(input)? };
    let possible = is_possible(&top.capacity()) && top.members.len() <= top.capacity() as usize;
    if possible { Ok(top) } else { Err(Malformed("top")) }
}
