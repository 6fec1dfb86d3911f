//! Writes that were lost to concurrent ones: every one is listed in every region at rest, and nothing else is, but for what
//! was settled. Found here write by write, from who observed whom as it is claimed; what decides, says
//! `docs/internals/merging.md`.

mod deadlines;

use crate::history::{ObservedPlace, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::list_elements::elements;
use crate::report::{Check, Findings, Violation};
use datatypes::merge::{LostPart, lasting_kind};
use datatypes::{Effect, dict, key, list, register, scored_set};
use deadlines::{adds, goes_with, is_replaced};
use std::collections::{BTreeMap, BTreeSet};
use types::{Incarnation, ProcessId, Reader, Timestamp, TransactionId, Wire};

/// A loss as a region lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ListedLoss {
    /// The key.
    pub key: Vec<u8>,
    /// Its name among those of the key.
    pub name: Vec<u8>,
    /// What was lost.
    pub value: Vec<u8>,
    /// What it was lost to.
    pub instead: Vec<u8>,
}

/// What a transaction did to a key.
struct PlacedEffect<'d> {
    commit: ObservedPlace<'d>,
    transaction: [u64; 3],
    effect: &'d Effect<'d>,
}

/// Compares what each region lists, by its number, with what the history has lost of the keys that it holds. A loss
/// lasts until a transaction that observed it replaces it, or else until one that saw it overwrites it.
pub fn check_losses(
    history: &[Transaction],
    listed: &BTreeMap<u16, Vec<ListedLoss>>,
    holds: &dyn Fn(u16, &[u8]) -> bool,
    until_replaced: bool,
) -> Vec<Violation> {
    let mut findings = Findings::default();
    let decoded = decode_all(history, &mut findings);
    let mut findings = Findings::default();
    // What is given up nobody has lost, and nothing is lost to it.
    let counts = |t: &&Decoded<'_>| t.transaction.place().is_some() && !t.transaction.given_up;
    let mut writers: Vec<_> = decoded.iter().filter(counts).collect();
    writers.sort_by_key(|t| t.transaction.place());
    let mut keys: BTreeMap<&[u8], Vec<PlacedEffect<'_>>> = BTreeMap::new();
    for writer in writers {
        let Some(claim) = &writer.transaction.claim else { continue };
        let Some(commit) = claim.place_among_concurrent() else { continue };
        for (key, effect) in &writer.effects {
            let placed = PlacedEffect { commit, transaction: claim.transaction, effect };
            keys.entry(key).or_default().push(placed);
        }
    }
    // Keys of one type only: who wins among types is another rule, which has its own tests. Not judged either is a key that a
    // whole value was put under (RENAME): docs/evidence/simulation.md.
    keys.retain(|_, effects_in_place| {
        if effects_in_place.iter().any(|placed| matches!(placed.effect, Effect::Key(key::Effect::Restore(_))))
        {
            return false;
        }
        let kinds = effects_in_place.iter().filter_map(|placed| lasting_kind(placed.effect));
        kinds.collect::<BTreeSet<_>>().len() <= 1
    });
    let wanted: BTreeSet<ListedLoss> =
        keys.iter().flat_map(|(key, effects_in_place)| lost(key, effects_in_place, until_replaced)).collect();
    for (region, listed) in listed {
        let judged = listed.iter().filter(|loss| keys.contains_key(loss.key.as_slice()));
        // To whom a sibling was lost first is nothing that stays.
        let comparable = |loss: &ListedLoss| ListedLoss {
            instead: if until_replaced { Vec::new() } else { loss.instead.clone() },
            // Additions are listed in many words.
            value: if part(&loss.name) == Some(LostPart::Deadline) { Vec::new() } else { loss.value.clone() },
            ..loss.clone()
        };
        let found: BTreeSet<ListedLoss> = judged.map(comparable).collect();
        let in_words = |loss: &ListedLoss| {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            format!("{} of {} to {}", text(&loss.value), text(&loss.key), text(&loss.instead))
        };
        if let Some(missing) = wanted.difference(&found).find(|loss| holds(*region, &loss.key)) {
            let message = format!("region {region} does not list that it lost {}", in_words(missing));
            findings.add(Check::ExactlyOnce, message, Vec::new());
        }
        if let Some(invented) = found.difference(&wanted).next() {
            let message =
                format!("region {region} lists as lost what is not, or was settled: {}", in_words(invented));
            findings.add(Check::ExactlyOnce, message, Vec::new());
        }
    }
    findings.into_violations()
}

fn saw(effects_in_place: &[PlacedEffect<'_>], later: usize, earlier: usize) -> bool {
    effects_in_place[later].commit.observed(&effects_in_place[earlier].commit)
}

fn lost(key: &[u8], effects_in_place: &[PlacedEffect<'_>], until_replaced: bool) -> Vec<ListedLoss> {
    let mut settled: BTreeSet<&[u8]> = BTreeSet::new();
    for placed in effects_in_place {
        if let Effect::Key(key::Effect::Resolve { losses }) = placed.effect {
            settled.extend(losses.iter());
        }
    }
    let effects: Vec<&Effect<'_>> = effects_in_place.iter().map(|placed| placed.effect).collect();
    let elements = elements(&effects, &|later, earlier| saw(effects_in_place, later, earlier));
    let mut found = Vec::new();
    for (place, placed) in effects_in_place.iter().enumerate() {
        let mut is_lost = false;
        for part in parts(placed.effect) {
            let name = name(placed, &part);
            let judged = Judged { effects_in_place, elements: &elements, place, part: &part };
            let instead = if until_replaced { judged.sibling_of() } else { judged.lost_to() };
            let Some(instead) = instead else { continue };
            is_lost = true;
            let value = said(placed.effect, &part).unwrap_or_else(|| shown_effect(placed.effect));
            if !settled.contains(name.as_slice()) && found.iter().all(|loss: &ListedLoss| loss.name != name) {
                found.push(ListedLoss { key: key.to_vec(), name, value, instead });
            }
        }
        let name = name(placed, &LostPart::Deadline);
        let is_over = until_replaced && is_replaced(effects_in_place, place);
        if adds(placed.effect)
            && !is_lost
            && !settled.contains(name.as_slice())
            && !is_over
            && let Some(instead) = goes_with(effects_in_place, place)
        {
            let instead = if until_replaced { Vec::new() } else { instead };
            found.push(ListedLoss { key: key.to_vec(), name, value: Vec::new(), instead });
        }
    }
    found
}

/// What the write at a place says of a part.
struct Judged<'j, 'd> {
    effects_in_place: &'j [PlacedEffect<'d>],
    /// Which elements of a list each replaces or removes.
    elements: &'j [BTreeSet<Vec<u8>>],
    place: usize,
    part: &'j LostPart,
}

/// What a reader finds of a part.
#[derive(PartialEq)]
enum Found {
    /// What was written.
    Own,
    Other(Vec<u8>),
    Nothing,
}

impl Judged<'_, '_> {
    fn saw(&self, later: usize, earlier: usize) -> bool {
        saw(self.effects_in_place, later, earlier)
    }

    fn effect(&self, place: usize) -> &Effect<'_> {
        self.effects_in_place[place].effect
    }

    /// Nothing, if it is a value beside the one that is shown, which nobody who observed it replaced; of other parts than values,
    /// if it is lost.
    fn sibling_of(&self) -> Option<Vec<u8>> {
        let resets = |other: usize| {
            matches!(
                self.effect(other),
                Effect::Key(key::Effect::Delete)
                    | Effect::Register(register::Effect::Set { .. } | register::Effect::Delete)
            )
        };
        let all = 0..self.effects_in_place.len();
        let stays = |place: usize| !(place + 1..all.end).any(|other| resets(other) && self.saw(other, place));
        let value = |place: usize| said(self.effect(place), &LostPart::Value);
        let is_sibling = match self.part {
            LostPart::Value => {
                let mut values = all.clone().rev().filter(|place| value(*place).is_some() && stays(*place));
                values.next().is_some_and(|shown| value(shown) != value(self.place))
            }
            _ => self.lost_to().is_some(),
        };
        (is_sibling && stays(self.place)).then(Vec::new)
    }

    /// What a reader sees instead, if no reader of it replaced that.
    fn lost_to(&self) -> Option<Vec<u8>> {
        let later = self.place + 1..self.effects_in_place.len();
        let mut rivals: Vec<usize> = later.clone().filter(|other| !self.saw(*other, self.place)).collect();
        let earlier = |other: &usize| !self.saw(self.place, *other) && self.hides_later(*other);
        rivals.extend((0..self.place).filter(earlier));
        let knows_all = |other: usize| {
            self.saw(other, self.place)
                && rivals.iter().all(|rival| *rival < other && self.saw(other, *rival))
        };
        // Later effects that had not observed everything decide: the others saw the result.
        let deciding: Vec<usize> = later.filter(|other| !knows_all(*other)).collect();
        let before = (0..self.place).filter(|_| self.may_be_hidden());
        let around: Vec<usize> = before.chain(deciding.iter().copied()).collect();
        let replacing: Vec<usize> =
            deciding.into_iter().filter(|o| self.saw(*o, self.place) && self.replaces(*o)).collect();
        let mut seen_by_first = None;
        for replaced in &replacing {
            if replacing.iter().any(|earlier| earlier < replaced && self.saw(*replaced, *earlier)) {
                continue;
            }
            let view = around.iter().copied().filter(|o| o < replaced && self.saw(*replaced, *o));
            match self.shown(&view.collect::<Vec<_>>()) {
                Found::Own => return None,
                Found::Other(value) => seen_by_first = seen_by_first.or(Some(value)),
                Found::Nothing => {}
            }
        }
        if !replacing.is_empty() {
            return seen_by_first;
        }
        match self.shown(&around) {
            Found::Other(value) => Some(value),
            Found::Own | Found::Nothing => None,
        }
    }

    /// What there is of the part, of what these say and the write itself.
    fn shown(&self, view: &[usize]) -> Found {
        let undone = |write: usize| {
            view.iter().any(|other| *other > write && self.saw(*other, write) && self.resets(*other))
        };
        let unseen = |other: usize| {
            if other < self.place { !self.saw(self.place, other) } else { !self.saw(other, self.place) }
        };
        let last = view
            .iter()
            .rev()
            .find(|other| said(self.effect(**other), &self.written()).is_some() && !undone(**other));
        let written = last.and_then(|last| said(self.effect(*last), &self.written()));
        let own = self.effect(self.place);
        match own {
            Effect::Register(register::Effect::Add { .. }) | Effect::Dict(dict::Effect::Add { .. }) => {
                if let (Some(value), Some(last)) = (written, last)
                    && unseen(*last)
                    && register::parse_integer(&value).is_none()
                {
                    return Found::Other(value);
                }
                let appended = |other: &&usize| {
                    **other < self.place && unseen(**other) && leaves_no_number(self.effect(**other))
                };
                let spoils = view.iter().rev().filter(appended).find(|other| !undone(**other));
                match (own, spoils) {
                    (Effect::Register(_), Some(other)) => Found::Other(shown_effect(self.effect(*other))),
                    _ => Found::Own,
                }
            }
            Effect::List(_) => {
                let touched = |other: &&usize| self.is_same_element(**other);
                let is_put =
                    |other: usize| matches!(self.effect(other), Effect::List(list::Effect::Put { .. }));
                if let Some(removed) = view.iter().filter(touched).find(|other| !is_put(**other)) {
                    return Found::Other(shown_effect(self.effect(*removed)));
                }
                let put = view.iter().rev().filter(touched).find(|other| **other > self.place);
                let value = put.and_then(|put| said(self.effect(*put), self.part));
                match value {
                    Some(value) if Some(&value) != said(own, self.part).as_ref() => Found::Other(value),
                    _ => Found::Own,
                }
            }
            _ => match last {
                None => Found::Own,
                Some(_) if written == said(own, self.part) => Found::Own,
                Some(_) => written.map_or(Found::Nothing, Found::Other),
            },
        }
    }

    /// The part as others write it.
    fn written(&self) -> LostPart {
        match self.part {
            LostPart::Contents => LostPart::Value,
            part => part.clone(),
        }
    }

    fn is_same_element(&self, other: usize) -> bool {
        !self.elements[self.place].is_disjoint(&self.elements[other])
    }

    /// True if an effect leaves nothing of what those that it observed said of the part.
    fn replaces(&self, other: usize) -> bool {
        match self.effect(self.place) {
            Effect::List(_) => self.is_same_element(other),
            _ => self.resets(other),
        }
    }

    fn resets(&self, other: usize) -> bool {
        replaces(self.effect(other), &self.written())
    }

    /// True if an earlier effect may hide what is written.
    fn may_be_hidden(&self) -> bool {
        matches!(
            self.effect(self.place),
            Effect::Register(register::Effect::Add { .. })
                | Effect::Dict(dict::Effect::Add { .. })
                | Effect::List(list::Effect::Put { .. })
        )
    }

    /// True if an effect hides such a later one that did not observe it.
    fn hides_later(&self, other: usize) -> bool {
        let other_effect = self.effect(other);
        match self.effect(self.place) {
            Effect::List(_) => {
                !matches!(other_effect, Effect::List(list::Effect::Put { .. })) && self.is_same_element(other)
            }
            _ if !self.may_be_hidden() => false,
            _ => {
                let value = said(other_effect, &self.written());
                value.is_some_and(|value| register::parse_integer(&value).is_none())
                    || leaves_no_number(other_effect)
            }
        }
    }
}

fn leaves_no_number(effect: &Effect<'_>) -> bool {
    match effect {
        Effect::Register(register::Effect::Append { value }) => !value.iter().all(u8::is_ascii_digit),
        Effect::Register(edit) => edit.is_edit(),
        _ => false,
    }
}

/// A write that is no value, in words.
fn shown_effect(effect: &Effect<'_>) -> Vec<u8> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let words = match effect {
        Effect::Register(register::Effect::Add { by }) => format!("INCRBY {by}"),
        Effect::Register(register::Effect::Append { value }) => format!("APPEND {}", text(value)),
        Effect::Dict(dict::Effect::Add { field, by }) => format!("HINCRBY {} {by}", text(field)),
        Effect::List(list::Effect::Pop { end: list::End::Front, .. }) => "LPOP".into(),
        Effect::List(list::Effect::Pop { end: list::End::Back, .. }) => "RPOP".into(),
        Effect::List(list::Effect::Keep { .. }) => "LTRIM".into(),
        Effect::List(list::Effect::RemoveAt { .. }) => "LREM".into(),
        _ => "DEL".into(),
    };
    words.into_bytes()
}

/// What a write says that another one may contradict.
fn parts(effect: &Effect<'_>) -> Vec<LostPart> {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => vec![LostPart::Value],
        Effect::Dict(dict::Effect::Put { pairs, .. }) => {
            pairs.pairs().map(|(field, _)| LostPart::Field { field: field.to_vec() }).collect()
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().map(|(_, member)| LostPart::Score { member: member.to_vec() }).collect()
        }
        Effect::Register(register::Effect::Add { .. }) => vec![LostPart::Contents],
        Effect::Dict(dict::Effect::Add { field, .. }) => vec![LostPart::Field { field: field.to_vec() }],
        Effect::List(list::Effect::Put { index, .. }) => vec![LostPart::Element { index: *index }],
        _ => Vec::new(),
    }
}

fn said(effect: &Effect<'_>, part: &LostPart) -> Option<Vec<u8>> {
    match (effect, part) {
        (Effect::Register(register::Effect::Set { value, .. }), LostPart::Value) => Some(value.to_vec()),
        (Effect::Dict(dict::Effect::Put { pairs, .. }), LostPart::Field { field }) => {
            let mut values =
                pairs.pairs().filter(|(other, _)| other == field).map(|(_, value)| value.to_vec());
            let first = values.next();
            values.last().or(first)
        }
        (Effect::ScoredSet(scored_set::Effect::Put { items }), LostPart::Score { member }) => {
            let score = items.iter().rfind(|(_, other)| other == member);
            score.map(|(score, _)| score.to_string().into_bytes())
        }
        (Effect::List(list::Effect::Put { value, .. }), LostPart::Element { .. }) => Some(value.to_vec()),
        _ => None,
    }
}

/// True if an effect leaves nothing of what those that it observed said of a part.
fn replaces(effect: &Effect<'_>, part: &LostPart) -> bool {
    let removes = match (effect, part) {
        (Effect::Key(effect), _) => matches!(effect, key::Effect::Delete | key::Effect::Restore(_)),
        (Effect::Register(effect), _) => {
            matches!(effect, register::Effect::Delete | register::Effect::Set { .. })
        }
        (Effect::Dict(dict::Effect::Remove { fields }), LostPart::Field { field }) => {
            fields.iter().any(|other| other == field)
        }
        (Effect::ScoredSet(scored_set::Effect::Remove { members }), LostPart::Score { member }) => {
            members.iter().any(|other| other == member)
        }
        _ => false,
    };
    removes || said(effect, part).is_some()
}

fn name(placed: &PlacedEffect<'_>, part: &LostPart) -> Vec<u8> {
    let [process, incarnation, number] = placed.transaction;
    let transaction = TransactionId {
        process: ProcessId(process as u16),
        incarnation: Incarnation(incarnation as u32),
        number,
    };
    let mut name = Vec::new();
    (Timestamp(placed.commit.at), transaction).encode(&mut name);
    part.encode(&mut name);
    name
}

/// Which part of a key a loss with this name is of.
fn part(name: &[u8]) -> Option<LostPart> {
    let mut input = Reader::new(name);
    <(Timestamp, TransactionId)>::decode(&mut input).ok()?;
    LostPart::decode(&mut input).ok()
}
