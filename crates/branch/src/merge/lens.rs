//! Of a collection the elements that a merge is about. What no side has changed is the same on all of them, so that what a
//! merge costs grows with what was changed and not with what there is.

use super::value::{Clash, Judge, part, sum_of_scores};
use datatypes::collections::{Member, PackedMap, PackedSet, ScoredTree};
use datatypes::register::parse_integer;
use datatypes::{Cell, Kind, Value};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// What a collection has of one element: a score, a field's value, or that it is a member.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Part {
    Member,
    Score(f64),
    Field(Box<[u8]>),
}

/// So many elements are not looked for one after the other.
const MANY: usize = 8;

/// What a value has of some elements, in their order.
pub(super) type Parts = Vec<Option<Part>>;

/// Shows of values some elements. They must agree in all others, of which one is a witness: without it a collection might
/// be empty, which is no value at all.
#[derive(Debug)]
pub(super) struct Lens<'c> {
    /// In ascending order.
    elements: Vec<&'c [u8]>,
    /// By state the places of the elements that it sees changed, and none before it.
    firsts: BTreeMap<usize, Vec<usize>>,
    witness: Box<[u8]>,
    kind: Kind,
    expires_at: u64,
}

impl<'c> Lens<'c> {
    /// For changes of a collection, which is this for one who sees them: of each which state is the first to see it,
    /// and which elements it may have changed. Nothing, if that is hardly less than the whole. An element that the
    /// other value lacks is no witness.
    pub fn new(cell: &Cell, other_side: Option<&Cell>, changes: &[(usize, Vec<&'c [u8]>)]) -> Option<Self> {
        let mut elements: Vec<&[u8]> = changes.iter().flat_map(|(_, changed)| changed).copied().collect();
        let on_each = elements.len() / changes.len().max(1);
        elements.sort_unstable();
        elements.dedup();
        let is_other = |element: &&[u8]| {
            elements.binary_search(element).is_err()
                && other_side.is_none_or(|other_side| part_of(other_side, element).is_some())
        };
        let (len, witness) = match cell.value.as_ref().filter(|_| is_collection(cell))? {
            Value::Set(set) => {
                let other = set.iter().find(|member| is_other(&&**member)).map(|member| Box::from(&*member));
                (set.len(), other)
            }
            Value::Dict(dict) => {
                (dict.len(), dict.iter().map(|(field, _)| field).find(is_other).map(Box::from))
            }
            Value::ScoredSet(set) => {
                (set.len(), set.iter().map(|(_, member)| member).find(is_other).map(Box::from))
            }
            _ => return None,
        };
        let kind = cell.kind().filter(|_| 4 * on_each + 4 < len)?;
        let mut firsts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (first, changed) in changes {
            let places = changed.iter().filter_map(|element| elements.binary_search(element).ok());
            firsts.entry(*first).or_default().extend(places);
        }
        for places in firsts.values_mut() {
            places.sort_unstable();
            places.dedup();
        }
        Some(Lens { elements, firsts, witness: witness?, kind, expires_at: cell.expires_at })
    }

    /// How many elements it shows.
    pub fn len(&self) -> usize {
        self.elements.len()
    }

    /// The places of those elements that this state sees changed, and none before it, in ascending order.
    pub fn changed_first_at(&self, state: usize) -> &[usize] {
        self.firsts.get(&state).map_or(&[][..], Vec::as_slice)
    }

    /// What a value has of the elements at these places; nothing, if it differs in more.
    pub fn parts(&self, cell: &Cell, places: impl ExactSizeIterator<Item = usize>) -> Option<Parts> {
        let is_alike = cell.kind() == Some(self.kind) && cell.expires_at == self.expires_at;
        part_of(cell, &self.witness).filter(|_| is_alike && is_collection(cell))?;
        if places.len() < MANY || size(cell) / 4 > places.len() {
            return Some(places.map(|place| part_of(cell, self.elements[place])).collect());
        }
        let table = table(cell)?;
        Some(places.map(|place| table.get(self.elements[place]).map(|held| Part::from(*held))).collect())
    }

    /// Two values that differ as these parts of all elements do.
    pub fn differing_cells(&self, from: &Parts, to: &Parts) -> (Cell, Cell) {
        let differing = || (0..self.len()).filter(|place| from[*place] != to[*place]);
        let cell = |parts: &Parts| {
            let some = differing().filter_map(|place| Some((self.elements[place], parts[place].as_ref()?)));
            self.collected(some)
        };
        (cell(from), cell(to))
    }

    /// True if an addition to a field or a score is among what makes one of the other.
    pub fn adds(&self, from: &Parts, to: &Parts) -> bool {
        let are_integers = |both: [&Option<Part>; 2]| both.into_iter().all(|part| integer(part).is_some());
        let mut both = from.iter().zip(to);
        both.any(|(from, to)| {
            let is_score = matches!(to, Some(Part::Score(_)));
            from != to && to.is_some() && (is_score || are_integers([from, to]))
        })
    }

    /// A collection of the witness and these elements.
    fn collected<'p>(&self, parts: impl Iterator<Item = (&'p [u8], &'p Part)>) -> Cell {
        let value = match self.kind {
            Kind::Set => {
                let mut set = PackedSet::default();
                parts.map(|(member, _)| member).chain([&*self.witness]).for_each(|member| {
                    set.insert(member);
                });
                Value::Set(Box::new(set))
            }
            Kind::Dict => {
                let mut dict = PackedMap::default();
                dict.insert(&self.witness, b"");
                for (field, part) in parts {
                    if let Part::Field(value) = part {
                        dict.insert(field, value);
                    }
                }
                Value::Dict(Box::new(dict))
            }
            _ => {
                let mut set = ScoredTree::default();
                set.insert(&self.witness, 0.0);
                for (member, part) in parts {
                    if let Part::Score(score) = part {
                        set.insert(member, *score);
                    }
                }
                Value::ScoredSet(Box::new(set))
            }
        };
        Cell { value: Some(value), expires_at: self.expires_at }
    }
}

/// True of what may be looked at by its elements. What has fields with deadlines is merged as a whole.
pub(super) fn is_collection(cell: &Cell) -> bool {
    match &cell.value {
        Some(Value::Dict(dict)) => dict.deadlines().is_none(),
        value => matches!(value, Some(Value::Set(_) | Value::ScoredSet(_))),
    }
}

/// What a collection has of an element, where it is.
#[derive(Clone, Copy, PartialEq)]
enum HeldElement<'c> {
    Member,
    Score(f64),
    Field(&'c [u8]),
}

impl From<HeldElement<'_>> for Part {
    fn from(held: HeldElement<'_>) -> Self {
        match held {
            HeldElement::Member => Part::Member,
            HeldElement::Score(score) => Part::Score(score),
            HeldElement::Field(value) => Part::Field(value.into()),
        }
    }
}

/// All elements of a collection. A small one is a list: to look for some of it after the other is to go through it again and
/// again.
fn each<'c>(cell: &'c Cell, mut visit: impl FnMut(Cow<'c, [u8]>, HeldElement<'c>)) -> Option<()> {
    match cell.value.as_ref()? {
        Value::Set(set) => set.iter().for_each(|member| match member {
            Member::Bytes(bytes) => visit(bytes.into(), HeldElement::Member),
            integer @ Member::Integer { .. } => visit(integer.to_vec().into(), HeldElement::Member),
        }),
        Value::Dict(dict) => {
            dict.iter().for_each(|(field, value)| visit(field.into(), HeldElement::Field(value)))
        }
        Value::ScoredSet(set) => {
            set.iter().for_each(|(score, member)| visit(member.into(), HeldElement::Score(score)))
        }
        _ => return None,
    }
    Some(())
}

fn table(cell: &Cell) -> Option<BTreeMap<Cow<'_, [u8]>, HeldElement<'_>>> {
    let mut table = BTreeMap::new();
    each(cell, |element, held| {
        table.insert(element, held);
    })?;
    Some(table)
}

fn size(cell: &Cell) -> usize {
    match &cell.value {
        Some(Value::Set(set)) => set.len(),
        Some(Value::Dict(dict)) => dict.len(),
        Some(Value::ScoredSet(set)) => set.len(),
        _ => 0,
    }
}

/// The elements that two collections do not have alike; nothing, if they differ in more.
pub(super) fn differing(from: &Cell, to: &Cell) -> Option<Vec<Box<[u8]>>> {
    let are_alike = from.expires_at == to.expires_at && from.kind() == to.kind();
    if !are_alike || !is_collection(from) || !is_collection(to) {
        return None;
    }
    if let (Some(Value::ScoredSet(from)), Some(Value::ScoredSet(to))) = (&from.value, &to.value) {
        let differing = from.beyond(to).chain(to.beyond(from));
        let differing: BTreeSet<&[u8]> = differing.map(|(_, member)| member).collect();
        return Some(differing.into_iter().map(Box::from).collect());
    }
    let (mut gone, mut differing) = (table(from)?, Vec::new());
    each(to, |element, held| {
        if gone.remove(&*element) != Some(held) {
            differing.push(element.into());
        }
    })?;
    differing.extend(gone.into_keys().map(Box::from));
    Some(differing)
}

fn part_of(cell: &Cell, element: &[u8]) -> Option<Part> {
    match cell.value.as_ref()? {
        Value::Set(set) => set.contains(element).then_some(Part::Member),
        Value::Dict(dict) => dict.get(element).map(|value| Part::Field(value.into())),
        Value::ScoredSet(set) => set.score(element).map(Part::Score),
        _ => None,
    }
}

/// An absent field counts as 0.
fn integer(part: &Option<Part>) -> Option<i64> {
    match part {
        None => Some(0),
        Some(Part::Field(value)) => parse_integer(value),
        Some(_) => None,
    }
}

fn score(part: &Option<Part>) -> Option<f64> {
    match part {
        Some(Part::Score(score)) => Some(*score),
        _ => None,
    }
}

/// What both sides make of one element; where all sides only add to fields or scores, the sum.
pub(super) fn merged(
    base: Option<Part>,
    left: Option<Part>,
    right: Option<Part>,
    (judge, is_additive): (Judge, bool),
) -> Result<Option<Part>, Clash> {
    let was_there = base.is_some() || right.is_some();
    if is_additive
        && was_there
        && let (Some(base), Some(left), Some(right)) = (integer(&base), integer(&left), integer(&right))
    {
        let sum = left.wrapping_add(right).wrapping_sub(base);
        return Ok(Some(Part::Field(sum.to_string().into_bytes().into())));
    }
    let scores = [&base, &left, &right].map(score);
    if let Some(sum) = sum_of_scores(scores).filter(|_| is_additive) {
        return Ok(Some(Part::Score(sum)));
    }
    part(base, left, right, judge)
}
