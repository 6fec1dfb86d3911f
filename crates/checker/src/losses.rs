//! Writes that were lost to concurrent ones: every one is listed in every region at rest, and nothing else is, but for what
//! was settled. Found here write by write, from who observed whom as it is claimed; what decides, says
//! `docs/decisions/0028`.

use crate::history::{Commit, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::report::{Check, Findings, Violation};
use datatypes::merge::{LostPart, lasting_kind};
use datatypes::{Effect, dict, key, register, scored_set};
use std::collections::{BTreeMap, BTreeSet};
use types::{Incarnation, ProcessId, Timestamp, TransactionId, Wire};

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
struct Deed<'d> {
    commit: Commit,
    transaction: [u64; 3],
    effect: &'d Effect<'d>,
}

/// Compares what each region lists, by its number, with what the history has lost.
pub fn check_losses(history: &[Transaction], listed: &BTreeMap<u16, Vec<ListedLoss>>) -> Vec<Violation> {
    let mut findings = Findings::default();
    let decoded = decode_all(history, &mut findings);
    let mut findings = Findings::default();
    // What is given up nobody has lost, and nothing is lost to it.
    let counts = |t: &&Decoded<'_>| t.transaction.place().is_some() && !t.transaction.given_up;
    let mut writers: Vec<_> = decoded.iter().filter(counts).collect();
    writers.sort_by_key(|t| t.transaction.place());
    let mut keys: BTreeMap<&[u8], Vec<Deed<'_>>> = BTreeMap::new();
    for writer in writers {
        let Some(claim) = &writer.transaction.claim else { continue };
        let Some(commit) = claim.commit else { continue };
        for (key, effect) in &writer.effects {
            let deed = Deed { commit, transaction: claim.transaction, effect };
            keys.entry(key).or_default().push(deed);
        }
    }
    // Keys of one type only: who wins among types is another rule, which has its own tests.
    keys.retain(|_, deeds| {
        let kinds = deeds.iter().filter_map(|deed| lasting_kind(deed.effect));
        kinds.collect::<BTreeSet<_>>().len() <= 1
    });
    let wanted: BTreeSet<ListedLoss> = keys.iter().flat_map(|(key, deeds)| lost(key, deeds)).collect();
    for (region, listed) in listed {
        let judged = listed.iter().filter(|loss| keys.contains_key(loss.key.as_slice()));
        let found: BTreeSet<ListedLoss> = judged.cloned().collect();
        let told = |loss: &ListedLoss| {
            let text = |bytes: &[u8]| bytes.escape_ascii().to_string();
            format!("{} of {} to {}", text(&loss.value), text(&loss.key), text(&loss.instead))
        };
        if let Some(missing) = wanted.difference(&found).next() {
            let message = format!("region {region} does not list that it lost {}", told(missing));
            findings.add(Check::ExactlyOnce, message, Vec::new());
        }
        if let Some(invented) = found.difference(&wanted).next() {
            let message =
                format!("region {region} lists as lost what is not, or was settled: {}", told(invented));
            findings.add(Check::ExactlyOnce, message, Vec::new());
        }
    }
    findings.into_violations()
}

fn lost(key: &[u8], deeds: &[Deed<'_>]) -> Vec<ListedLoss> {
    let mut settled: BTreeSet<&[u8]> = BTreeSet::new();
    for deed in deeds {
        if let Effect::Key(key::Effect::Resolve { losses }) = deed.effect {
            settled.extend(losses.iter());
        }
    }
    let mut found = Vec::new();
    for (place, deed) in deeds.iter().enumerate() {
        for part in parts(deed.effect) {
            let name = name(deed, &part);
            let Some(instead) = lost_to(deeds, place, &part) else { continue };
            let value = said(deed.effect, &part).unwrap_or_default();
            if !settled.contains(name.as_slice()) && found.iter().all(|loss: &ListedLoss| loss.name != name) {
                found.push(ListedLoss { key: key.to_vec(), name, value, instead });
            }
        }
    }
    found
}

/// What somebody sees instead of what the write at this place says of a part, if nobody who saw it replaced that.
fn lost_to(deeds: &[Deed<'_>], place: usize, part: &LostPart) -> Option<Vec<u8>> {
    let saw = |later: usize, earlier: usize| {
        let (later, earlier) = (deeds[later].commit, deeds[earlier].commit);
        later.region == earlier.region || earlier.at <= later.depends_on
    };
    let value = said(deeds[place].effect, part);
    let later = place + 1..deeds.len();
    let rivals: Vec<usize> = later.clone().filter(|other| !saw(*other, place)).collect();
    let knows_all =
        |other: usize| saw(other, place) && rivals.iter().all(|rival| *rival < other && saw(other, *rival));
    // What those decide who do not know all: the others saw what comes of it.
    let deciding: Vec<usize> = later.filter(|other| !knows_all(*other)).collect();
    let shown = |view: &[usize]| {
        let undone = |write: usize| {
            view.iter()
                .any(|other| *other > write && saw(*other, write) && replaces(deeds[*other].effect, part))
        };
        let last =
            view.iter().rev().find(|other| said(deeds[**other].effect, part).is_some() && !undone(**other));
        last.map_or_else(|| value.clone(), |last| said(deeds[*last].effect, part))
    };
    let replacing: Vec<usize> =
        deciding.iter().copied().filter(|o| saw(*o, place) && replaces(deeds[*o].effect, part)).collect();
    let mut seen_by_first = None;
    for replaced in &replacing {
        if replacing.iter().any(|earlier| earlier < replaced && saw(*replaced, *earlier)) {
            continue;
        }
        let view: Vec<usize> =
            deciding.iter().copied().filter(|o| o < replaced && saw(*replaced, *o)).collect();
        let seen = shown(&view);
        if seen == value {
            return None;
        }
        seen_by_first = seen_by_first.or(seen);
    }
    if replacing.is_empty() {
        shown(&deciding).filter(|seen| Some(seen) != value.as_ref())
    } else {
        seen_by_first
    }
}

/// What a write says that another one may contradict.
fn parts(effect: &Effect<'_>) -> Vec<LostPart> {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => vec![LostPart::Value],
        Effect::Dict(dict::Effect::Put { pairs }) => {
            pairs.pairs().map(|(field, _)| LostPart::Field { field: field.to_vec() }).collect()
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) => {
            items.iter().map(|(_, member)| LostPart::Score { member: member.to_vec() }).collect()
        }
        _ => Vec::new(),
    }
}

fn said(effect: &Effect<'_>, part: &LostPart) -> Option<Vec<u8>> {
    match (effect, part) {
        (Effect::Register(register::Effect::Set { value, .. }), LostPart::Value) => Some(value.to_vec()),
        (Effect::Dict(dict::Effect::Put { pairs }), LostPart::Field { field }) => {
            let mut values =
                pairs.pairs().filter(|(other, _)| other == field).map(|(_, value)| value.to_vec());
            let first = values.next();
            values.last().or(first)
        }
        (Effect::ScoredSet(scored_set::Effect::Put { items }), LostPart::Score { member }) => {
            let score = items.iter().rfind(|(_, other)| other == member);
            score.map(|(score, _)| score.to_string().into_bytes())
        }
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

fn name(deed: &Deed<'_>, part: &LostPart) -> Vec<u8> {
    let [process, incarnation, number] = deed.transaction;
    let transaction = TransactionId {
        process: ProcessId(process as u16),
        incarnation: Incarnation(incarnation as u32),
        number,
    };
    let mut name = Vec::new();
    (Timestamp(deed.commit.at), transaction).encode(&mut name);
    part.encode(&mut name);
    name
}
