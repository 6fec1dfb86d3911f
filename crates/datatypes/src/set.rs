//! Set: members. Redis's set.
//!
//! Additions commute with each other, and so do removals; the two meet only where the owner of the key looks at
//! its state (see [`crate::commutes`]).

use crate::codec::borrowed_enum;
use crate::collections::PackedSet;
use crate::glob::Pattern;
use crate::items::count_distinct;
use crate::observation::Footprint;
use crate::{Aspect, Context, Items, Kind, Observation};
use smallvec::SmallVec;
use std::collections::BTreeSet;
use types::{Malformed, Reader, ReplySink, Rng, put_bytes, put_varint};

/// An operation on a set.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// Adds members: how many are new.
    Add {
        /// The members.
        members: Items<'a>,
    },
    /// Removes members: how many were there.
    Remove {
        /// The members.
        members: Items<'a>,
    },
    /// 1 if the member is there, else 0.
    Contains {
        /// The member.
        member: &'a [u8],
    },
    /// 1 or 0 for each member.
    ContainsMany {
        /// The members.
        members: Items<'a>,
    },
    /// All members.
    Members,
    /// How many members there are.
    Length,
    /// Removes members at random: one or null, or with a count a set of at most so many.
    Pop {
        /// How many.
        count: Option<u64>,
    },
    /// Members at random: one or null, or with a count at most so many different ones, or with a negative count
    /// exactly so many, repeated ones among them.
    Random {
        /// How many.
        count: Option<i64>,
    },
    /// A piece of the set: the cursor of the next one, "0" after the last, and the members.
    Scan {
        /// Where the piece begins; 0 for the first one.
        cursor: u64,
        /// About how many members are looked at.
        count: u64,
        /// Which of them are listed ([`crate::glob`]).
        pattern: &'a [u8],
    },
}

/// A mutation of a set.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// These are members.
    Add {
        /// The members.
        members: Items<'a>,
    },
    /// These are not members.
    Remove {
        /// The members.
        members: Items<'a>,
    },
}

borrowed_enum!(Operation, "set operation tag", {
    0 => Add { members },
    1 => Remove { members },
    2 => Contains { member },
    3 => ContainsMany { members },
    4 => Members,
    5 => Length,
    6 => Pop { count },
    7 => Random { count },
    8 => Scan { cursor, count, pattern },
});

borrowed_enum!(Effect, "set effect tag", {
    0 => Add { members },
    1 => Remove { members },
});

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        !matches!(self, Operation::Add { .. } | Operation::Remove { .. } | Operation::Pop { .. })
    }

    /// What its result, and the choice of its effect, reveal at most.
    pub fn observation(&self) -> Observation<'a> {
        let aspect = match self {
            Operation::Add { members }
            | Operation::Remove { members }
            | Operation::ContainsMany { members } => Aspect::Elements(members.clone()),
            Operation::Contains { member } => Aspect::Elements(Items::one(member)),
            Operation::Length => Aspect::Size,
            Operation::Members
            | Operation::Pop { .. }
            | Operation::Random { .. }
            | Operation::Scan { .. } => Aspect::Whole,
        };
        Observation::of(Kind::Set, aspect)
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Add { members } => Some(Effect::Add { members: members.clone() }),
            Operation::Remove { members } => Some(Effect::Remove { members: members.clone() }),
            _ => None,
        }
    }
}

impl Effect<'_> {
    /// Which aspects it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        let (Effect::Add { members } | Effect::Remove { members }) = self;
        Footprint::elements(members.clone())
    }
}

/// Additions commute with additions and removals with removals.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    std::mem::discriminant(a) == std::mem::discriminant(b)
}

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    state: Option<&PackedSet>,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let contains = |member: &[u8]| state.is_some_and(|state| state.contains(member));
    match operation {
        Operation::Add { members } => {
            let added = count_distinct(members.iter(), |member| !contains(member));
            sink.integer(added as i64);
            return (added > 0).then(|| Effect::Add { members: members.clone() });
        }
        Operation::Remove { members } => {
            let removed = count_distinct(members.iter(), contains);
            sink.integer(removed as i64);
            return (removed > 0).then(|| Effect::Remove { members: members.clone() });
        }
        Operation::Pop { count } => return pop(state, *count, context.random, sink),
        Operation::Random { count } => random(state, *count, context.random, sink),
        Operation::Contains { member } => sink.integer(i64::from(contains(member))),
        Operation::ContainsMany { members } => {
            sink.array(members.len());
            members.iter().for_each(|member| sink.integer(i64::from(contains(member))));
        }
        Operation::Members => {
            sink.set(state.map_or(0, PackedSet::len));
            state.into_iter().flat_map(PackedSet::iter).for_each(|member| sink.bulk(&member));
        }
        Operation::Length => sink.integer(state.map_or(0, PackedSet::len) as i64),
        Operation::Scan { cursor, count, pattern } => scan(state, *cursor, *count, pattern, sink),
    }
    None
}

/// `count` different positions below `len`, each choice equally likely (Floyd's algorithm), in ascending order.
pub(crate) fn sample(len: usize, count: usize, random: &mut Rng) -> BTreeSet<usize> {
    let mut chosen = BTreeSet::new();
    for last in len.saturating_sub(count)..len {
        let position = random.usize(..=last);
        if !chosen.insert(position) {
            chosen.insert(last);
        }
    }
    chosen
}

fn pop(
    state: Option<&PackedSet>,
    count: Option<u64>,
    random: &mut Rng,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'static>> {
    let Some(state) = state else {
        match count {
            None => sink.null(),
            Some(_) => sink.set(0),
        }
        return None;
    };
    let Some(count) = count else {
        let member = state.random(random)?;
        sink.bulk(&member);
        return Some(Effect::Remove { members: Items::collect(std::iter::once(&*member)) });
    };
    let count = usize::try_from(count).map_or(state.len(), |count| count.min(state.len()));
    sink.set(count);
    let mut members = Vec::new();
    for position in sample(state.len(), count, random) {
        let member = state.member_at(position)?;
        sink.bulk(&member);
        put_bytes(&mut members, &member);
    }
    (count > 0).then(|| Effect::Remove { members: Items::Packed { count, bytes: members.into() } })
}

fn random(state: Option<&PackedSet>, count: Option<i64>, random: &mut Rng, sink: &mut dyn ReplySink) {
    let Some(state) = state else {
        match count {
            None => sink.null(),
            Some(_) => sink.array(0),
        }
        return;
    };
    let reply_one = |random: &mut Rng, sink: &mut dyn ReplySink| match state.random(random) {
        Some(member) => sink.bulk(&member),
        None => sink.null(),
    };
    match count {
        None => reply_one(random, sink),
        Some(count) if count < 0 => {
            let count = usize::try_from(count.unsigned_abs()).unwrap_or(usize::MAX);
            sink.array(count);
            for _ in 0..count {
                reply_one(random, sink);
                if sink.is_full() {
                    break;
                }
            }
        }
        Some(count) => {
            let count = usize::try_from(count).map_or(state.len(), |count| count.min(state.len()));
            sink.array(count);
            let positions = sample(state.len(), count, random);
            positions
                .into_iter()
                .filter_map(|position| state.member_at(position))
                .for_each(|member| sink.bulk(&member));
        }
    }
}

fn scan(state: Option<&PackedSet>, cursor: u64, count: u64, pattern: &[u8], sink: &mut dyn ReplySink) {
    let (mut found, mut bytes, pattern) = (0, Vec::new(), Pattern::new(pattern, false));
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let next = state.map_or(0, |state| {
        state.scan(cursor, count, |member| {
            if pattern.matches(member) {
                put_bytes(&mut bytes, member);
                found += 1;
            }
        })
    });
    reply_piece(next, &Items::Packed { count: found, bytes: bytes.into() }, sink);
}

/// Replies what a scan has found: the next cursor and the elements.
pub(crate) fn reply_piece(next: u64, found: &Items<'_>, sink: &mut dyn ReplySink) {
    sink.array(2);
    sink.bulk(itoa::Buffer::new().format(next).as_bytes());
    sink.array(found.len());
    found.iter().for_each(|element| sink.bulk(element));
}

/// Members whose presence changed.
#[derive(Clone, Debug, PartialEq)]
pub struct Patch {
    /// Whether they are to be added or removed.
    present: bool,
    members: SmallVec<[Box<[u8]>; 1]>,
}

impl Patch {
    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let spilled =
            if self.members.spilled() { self.members.capacity() * size_of::<Box<[u8]>>() } else { 0 };
        spilled + self.members.iter().map(|member| member.len()).sum::<usize>()
    }
}

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(state: &mut PackedSet, effect: &Effect<'_>) -> Option<Patch> {
    let mut changed = SmallVec::new();
    let (present, members) = match effect {
        Effect::Add { members } => (true, members),
        Effect::Remove { members } => (false, members),
    };
    for member in members.iter() {
        let changes = if present { state.insert(member) } else { state.remove(member) };
        if UNDO && changes {
            changed.push(member.into());
        }
    }
    (!changed.is_empty()).then_some(Patch { present: !present, members: changed })
}

/// Swaps a patch with the state; see [`crate::exchange`].
pub fn exchange(state: &mut PackedSet, patch: &mut Patch) {
    for member in &patch.members {
        let changed = if patch.present { state.insert(member) } else { state.remove(member) };
        debug_assert!(changed, "a patch is exchanged with the state it came from");
    }
    patch.present = !patch.present;
}

/// Appends a state's binary form.
pub fn encode_state(state: &PackedSet, out: &mut Vec<u8>) {
    put_varint(out, state.len() as u64);
    state.iter().for_each(|member| put_bytes(out, &member));
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<PackedSet, Malformed> {
    let mut state = PackedSet::default();
    for _ in 0..input.count()? {
        state.insert(input.bytes()?);
    }
    Ok(state)
}
