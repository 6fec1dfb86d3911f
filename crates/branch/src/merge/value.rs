//! The three-way merge of one key's values, type by type (T15; Corrections 53 and 75).
//!
//! | type | rule |
//! |---|---|
//! | register | additions alone on both sides, or beside a SET or a DEL: their sum; else the same value, or a conflict |
//! | hash | field by field: one side's change; both added alone: the sum; a change beside a removal stays; else a conflict |
//! | set | member by member: what one side added or removed |
//! | sorted set | member by member: one side's change; both added alone: the sum; a change beside a removal stays; else a conflict |
//! | list | what one side removed goes, what one side inserted stays, the older side's first |
//! | counter, summary | the sum of what both sides added |
//! | top | of every member the greater score; of two reservations the larger |
//! | stream | what one side removed goes, what one side added stays: [`stream`](super::stream) |
//! | deadline, of a key or of a field | one side's change; else the later one |
//!
//! Values of different types conflict. Where a policy decides a conflict, it decides for the smallest part that
//! conflicts: a field, a member, a register.

use super::{list, stream};
use crate::{Change, StateId};
use datatypes::collections::{PackedMap, PackedSet, ScoredTree};
use datatypes::counter::Counter;
use datatypes::register::{Register, parse_integer};
use datatypes::scored_set::ScoredItems;
use datatypes::stream::Stream;
use datatypes::summary::SummaryBag;
use datatypes::top::{self, Top};
use datatypes::{Cell, Effect, Kind, Mode, Value, apply, counter};

/// What becomes of what both sides changed in ways that no rule joins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Policy {
    /// The merge is refused: the application decides.
    #[default]
    Refuse,
    /// The newer state's change stays.
    Newest,
}

/// Both sides changed the same in different ways, and the policy does not decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("both sides changed the same in different ways")]
pub struct Clash;

/// One side of a merge.
#[derive(Clone, Copy, Debug)]
pub struct Side<'a> {
    /// The value there.
    pub cell: &'a Cell,
    /// How it was changed since the base.
    pub change: Change,
    /// Which state wrote it.
    pub newest: Option<StateId>,
}

/// Decides what no rule joins.
#[derive(Clone, Copy)]
pub(super) struct Judge {
    pub policy: Policy,
    pub left_is_newer: bool,
}

impl Judge {
    fn choose<T>(self, left: T, right: T) -> Result<T, Clash> {
        match self.policy {
            Policy::Refuse => Err(Clash),
            Policy::Newest => Ok(if self.left_is_newer { left } else { right }),
        }
    }
}

/// What both sides make of `base` together. The same whichever side is left.
pub fn three_way(base: &Cell, left: &Side<'_>, right: &Side<'_>, policy: Policy) -> Result<Cell, Clash> {
    if base == left.cell {
        return Ok(right.cell.clone());
    }
    if base == right.cell {
        return Ok(left.cell.clone());
    }
    let judge = Judge { policy, left_is_newer: left.newest > right.newest };
    let value = match (left.cell.kind(), right.cell.kind()) {
        (None, None) => None,
        _ if left.cell.value == base.value => right.cell.value.clone(),
        _ if right.cell.value == base.value => left.cell.value.clone(),
        (Some(a), Some(b)) if a != b => return judge.choose(left.cell, right.cell).cloned(),
        (Some(kind), _) | (None, Some(kind)) => merge_kind(kind, base, left, right, judge)?,
    };
    let expires_at = match (left.cell.kind(), right.cell.kind()) {
        (Some(_), None) => left.cell.expires_at,
        (None, _) => right.cell.expires_at,
        _ => deadline(base.expires_at, left.cell.expires_at, right.cell.expires_at),
    };
    Ok(value.map_or(Cell::ABSENT, |value| Cell { value: Some(value), expires_at }))
}

/// 0 is never, and so the latest.
fn deadline(base: u64, left: u64, right: u64) -> u64 {
    match (left, right) {
        (left, right) if left == base => right,
        (left, right) if right == base => left,
        (0, _) | (_, 0) => 0,
        (left, right) => left.max(right),
    }
}

/// The state of one type in a cell, if it holds that type.
macro_rules! of_kind {
    ($variant:ident, $($cell:expr),*) => {
        [$(match &$cell.value { Some(Value::$variant(state)) => Some(state), _ => None }),*]
    };
}

/// Both sides hold this type or nothing, and one holds it. An absent collection is an empty one.
fn merge_kind(
    kind: Kind,
    base: &Cell,
    left: &Side<'_>,
    right: &Side<'_>,
    judge: Judge,
) -> Result<Option<Value>, Clash> {
    let additive = |change| left.change == change && right.change == change;
    Ok(match kind {
        Kind::Register => {
            let [base, left_value, right_value] = of_kind!(Register, base, left.cell, right.cell);
            registers(base, (left_value, left.change), (right_value, right.change), judge)?
                .map(Value::Register)
        }
        Kind::Dict => {
            let none = PackedMap::default();
            let [base, left, right] =
                of_kind!(Dict, base, left.cell, right.cell).map(|dict| dict.map_or(&none, |dict| &**dict));
            let merged = dicts(base, left, right, additive(Change::Additive(Mode::IncrementFields)), judge)?;
            (!merged.is_empty()).then(|| Value::Dict(Box::new(merged)))
        }
        Kind::Set => {
            let none = PackedSet::default();
            let [base, left, right] =
                of_kind!(Set, base, left.cell, right.cell).map(|set| set.map_or(&none, |set| &**set));
            let merged = sets(base, left, right);
            (!merged.is_empty()).then(|| Value::Set(Box::new(merged)))
        }
        Kind::ScoredSet => {
            let none = ScoredTree::default();
            let [base, left, right] =
                of_kind!(ScoredSet, base, left.cell, right.cell).map(|set| set.map_or(&none, |set| &**set));
            let merged = scored_sets(base, left, right, additive(Change::AdditiveScores), judge)?;
            (!merged.is_empty()).then(|| Value::ScoredSet(Box::new(merged)))
        }
        Kind::List => {
            let [base, left_list, right_list] = of_kind!(List, base, left.cell, right.cell);
            let merged = list::merge(
                base.map(|list| &**list),
                left_list.map(|list| &**list),
                right_list.map(|list| &**list),
                left.newest > right.newest,
            );
            match merged {
                Some(merged) => (!merged.is_empty()).then(|| Value::List(Box::new(merged))),
                None => judge.choose(left, right)?.cell.value.clone(),
            }
        }
        Kind::Counter => {
            counters(of_kind!(Counter, base, left.cell, right.cell).map(|counter| counter.map(|sum| &**sum)))
        }
        Kind::SummaryBag => match of_kind!(SummaryBag, base, left.cell, right.cell) {
            [base, Some(left), Some(right)] => {
                let none = SummaryBag::default();
                let base = base.map_or(&none, |base| &**base);
                Some(Value::SummaryBag(Box::new(SummaryBag::merged(base, left, right))))
            }
            // Which numbers came after the deletion is unknown.
            _ => judge.choose(left, right)?.cell.value.clone(),
        },
        Kind::Top => {
            let [base, left, right] =
                of_kind!(Top, base, left.cell, right.cell).map(|top| top.map(|top| &**top));
            tops(base, left, right)
        }
        Kind::UidGenerator => left.cell.value.clone().or_else(|| right.cell.value.clone()),
        Kind::Stream => {
            let sides = of_kind!(Stream, base, left.cell, right.cell);
            let [base, older, newer] = match left.newest > right.newest {
                true => [sides[0], sides[2], sides[1]],
                false => sides,
            };
            let none = Stream::default();
            let [base, older, newer] =
                [base, older, newer].map(|stream| stream.map_or(&none, |stream| &**stream));
            stream::merge(base, older, newer).map(|merged| Value::Stream(Box::new(merged)))
        }
        Kind::User(_) => judge.choose(left, right)?.cell.value.clone(),
    })
}

/// Additions of both sides count; what an addition meets on the other side, a SET or a DEL, did not observe it.
fn registers(
    base: Option<&Register>,
    (left, left_change): (Option<&Register>, Change),
    (right, right_change): (Option<&Register>, Change),
    judge: Judge,
) -> Result<Option<Register>, Clash> {
    let integer = |register: Option<&Register>| match register {
        None => Some(0),
        Some(Register::Integer(number)) => Some(*number),
        Some(Register::Bytes(_)) => None,
    };
    let added = Change::Additive(Mode::Increment);
    if (left_change == added || right_change == added)
        && let (Some(base), Some(a), Some(b)) = (integer(base), integer(left), integer(right))
    {
        return Ok(Some(Register::Integer(a.wrapping_add(b).wrapping_sub(base))));
    }
    Ok(part(base, left, right, judge)?.cloned())
}

/// What one part of a collection becomes: one side's change, a change before a removal, equal changes, or a conflict.
pub(super) fn part<T: PartialEq>(
    base: Option<T>,
    left: Option<T>,
    right: Option<T>,
    judge: Judge,
) -> Result<Option<T>, Clash> {
    if left == base {
        return Ok(right);
    }
    if right == base || left == right {
        return Ok(left);
    }
    match (left, right) {
        (Some(left), Some(right)) => judge.choose(Some(left), Some(right)),
        (left, right) => Ok(left.or(right)),
    }
}

fn dicts(
    base: &PackedMap,
    left: &PackedMap,
    right: &PackedMap,
    additive: bool,
    judge: Judge,
) -> Result<PackedMap, Clash> {
    let mut merged = left.clone();
    let gone = base.iter().filter(|(field, _)| !right.contains(field));
    for (field, _) in right.iter().chain(gone) {
        let sides = [base, left, right];
        let values = sides.map(|dict| dict.get(field));
        let [base_until, left_until, right_until] = sides.map(|dict| dict.deadline(field));
        let until = match values {
            [_, Some(_), Some(_)] => deadline(base_until, left_until, right_until),
            // What was changed beside a removal stays, and a deadline is a change.
            _ => left_until.max(right_until),
        };
        let has_new_deadline = matches!(values, [Some(_), Some(_), None]) && left_until != base_until
            || matches!(values, [Some(_), None, Some(_)]) && right_until != base_until;
        let integers = values.map(|value| value.map_or(Some(0), parse_integer));
        if let ([Some(base), Some(left), Some(right)], true) = (integers, additive) {
            let sum = left.wrapping_add(right).wrapping_sub(base);
            merged.insert(field, sum.to_string().as_bytes());
            merged.set_deadline(field, until);
            continue;
        }
        let survivor = values[1].or(values[2]).filter(|_| has_new_deadline);
        match survivor
            .map_or_else(|| part(values[0], values[1], values[2], judge), |survivor| Ok(Some(survivor)))?
        {
            Some(value) => {
                merged.insert(field, value);
                merged.set_deadline(field, until);
            }
            None => drop(merged.remove(field)),
        }
    }
    Ok(merged)
}

fn sets(base: &PackedSet, left: &PackedSet, right: &PackedSet) -> PackedSet {
    let mut merged = left.clone();
    for member in right.iter().filter(|member| !base.contains(member)) {
        merged.insert(&member);
    }
    for member in base.iter().filter(|member| !right.contains(member)) {
        merged.remove(&member);
    }
    merged
}

fn scored_sets(
    base: &ScoredTree,
    left: &ScoredTree,
    right: &ScoredTree,
    additive: bool,
    judge: Judge,
) -> Result<ScoredTree, Clash> {
    let mut merged = left.clone();
    let gone = base.beyond(right).filter(|(_, member)| !right.contains(member));
    let gone = gone.map(|(_, member)| (None, member));
    for (score, member) in right.beyond(base).map(|(score, member)| (Some(score), member)).chain(gone) {
        let scores = [base.score(member), left.score(member), score];
        let sum = sum_of_scores(scores).filter(|_| additive);
        match sum.map_or_else(|| part(scores[0], scores[1], scores[2], judge), |sum| Ok(Some(sum)))? {
            Some(score) => merged.insert(member, score),
            None => merged.remove(member),
        };
    }
    Ok(merged)
}

/// What two sides have added to a score, where a member that is absent has none of it; nothing, if that is no number.
pub(super) fn sum_of_scores(scores: [Option<f64>; 3]) -> Option<f64> {
    let [base, left, right] = scores.map(|score| score.unwrap_or(0.0));
    Some(left + right - base).filter(|sum| scores != [None; 3] && !sum.is_nan())
}

fn counters([base, left, right]: [Option<&Counter>; 3]) -> Option<Value> {
    let sum = |counter: Option<&Counter>| counter.map_or(0, Counter::sum);
    let mut cell = Cell::ABSENT;
    for by in pieces(sum(left) + sum(right) - sum(base)) {
        apply::<false>(&mut cell, &Effect::Counter(counter::Effect::Add { by }));
    }
    cell.value
}

/// Summands of 64 bits that make up a difference; at least one.
pub(super) fn pieces(mut difference: i128) -> Vec<i64> {
    let mut pieces = Vec::new();
    loop {
        let piece = difference.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
        pieces.push(piece);
        difference -= i128::from(piece);
        if difference == 0 {
            return pieces;
        }
    }
}

/// Additions only raise; a deletion resets what it observed.
fn tops(base: Option<&Top>, left: Option<&Top>, right: Option<&Top>) -> Option<Value> {
    let observed: Vec<(f64, &[u8])> = base.into_iter().flat_map(Top::iter).collect();
    let beyond = |top: Option<&Top>, other: Option<&Top>| -> Vec<(f64, Vec<u8>)> {
        let items = top.into_iter().flat_map(Top::iter);
        let remaining = items.filter(|item| other.is_some() || !observed.contains(item));
        remaining.map(|(score, member)| (score, member.to_vec())).collect()
    };
    let capacity = |top: Option<&Top>| top.map(Top::capacity);
    let capacity = match (capacity(base), capacity(left), capacity(right)) {
        (base, left, right) if left == base && right.is_some() => right,
        (base, left, right) if right == base && left.is_some() => left,
        (_, left, right) => left.max(right),
    };
    let mut cell = Cell::ABSENT;
    if let Some(capacity) = capacity.filter(|capacity| *capacity != top::DEFAULT_CAPACITY) {
        let effect = top::Effect::Reserve { capacity: u64::from(capacity) };
        apply::<false>(&mut cell, &Effect::Top(effect));
    }
    for (score, member) in beyond(left, right).iter().chain(&beyond(right, left)) {
        let items = ScoredItems::one(*score, member);
        apply::<false>(&mut cell, &Effect::Top(top::Effect::Add { items }));
    }
    cell.value
}
