//! What concurrent changes of a key come to, without the rules that the protocol follows: from who observed whom, as it
//! is claimed, and from reads at rest (Corrections 75). An addition that no removal observed is there; a member whose
//! additions were all observed by removals stays away; a register holds the last write that none observed, and on top
//! every increment that no write and no deletion observed.

use crate::history::{ObservedPlace, Outcome, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::report::{Check, Findings};
use crate::touches::quoted;
use datatypes::{Effect, Operation, key, register, set};
use std::collections::{BTreeMap, BTreeSet};

/// What was done to a key, in order of place.
type PlacedEffects<'d, 'h> = Vec<(ObservedPlace<'d>, &'d Effect<'h>)>;

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let decoded = decode_all(history, findings);
    let in_force = |t: &&Decoded<'_>| t.transaction.place().is_some() && !t.transaction.given_up;
    let mut writers: Vec<&Decoded<'_>> = decoded.iter().filter(in_force).collect();
    writers.sort_by_key(|t| t.transaction.place());
    let mut keys: BTreeMap<&[u8], PlacedEffects<'_, '_>> = BTreeMap::new();
    for writer in writers {
        let claim = writer.transaction.claim.as_ref();
        let Some(commit) = claim.and_then(|claim| claim.place_among_concurrent()) else { continue };
        for (key, effect) in &writer.effects {
            keys.entry(key).or_default().push((commit, effect));
        }
    }
    let at_rest =
        decoded.iter().filter(|t| t.transaction.at_rest && t.transaction.outcome == Outcome::Committed);
    for (transaction, step) in at_rest.flat_map(|t| t.steps.iter().map(move |step| (t, step))) {
        let (Some(reply), Some(effects_in_place)) = (step.observed, keys.get(step.key)) else { continue };
        let wanted = match step.operation {
            Operation::Set(set::Operation::Members) => members(effects_in_place),
            Operation::Register(register::Operation::Get) => value(effects_in_place),
            _ => None,
        };
        let same = |wanted: &String| match step.operation {
            Operation::Set(_) => parts(wanted) == parts(reply),
            _ => wanted == reply,
        };
        if let Some(wanted) = wanted.filter(|wanted| !same(wanted)) {
            let name = step.key.escape_ascii();
            let message =
                format!("{name} at rest is {reply}, but what nobody undid who observed it is {wanted}");
            findings.add(Check::ExactlyOnce, message, vec![transaction.number()]);
        }
    }
}

fn parts(reply: &str) -> BTreeSet<&str> {
    let inner = reply.strip_prefix('{').and_then(|reply| reply.strip_suffix('}')).unwrap_or(reply);
    inner.split(", ").filter(|part| !part.is_empty()).collect()
}

fn observed(later: ObservedPlace<'_>, earlier: ObservedPlace<'_>) -> bool {
    later.observed(&earlier)
}

/// True if nothing after a place that observed it satisfies `kills`.
fn is_live(
    effects_in_place: &PlacedEffects<'_, '_>,
    place: usize,
    kills: impl Fn(&Effect<'_>) -> bool,
) -> bool {
    let (commit, _) = effects_in_place[place];
    !effects_in_place[place + 1..].iter().any(|(later, effect)| observed(*later, commit) && kills(effect))
}

/// The members that must be there, if the key was a set and nothing else.
fn members(effects_in_place: &PlacedEffects<'_, '_>) -> Option<String> {
    let mut live = BTreeSet::new();
    for (place, (_, effect)) in effects_in_place.iter().enumerate() {
        let added = match effect {
            Effect::Set(set::Effect::Add { members }) => members,
            Effect::Set(set::Effect::Remove { .. })
            | Effect::Key(key::Effect::Delete | key::Effect::Resolve { .. }) => continue,
            _ => return None,
        };
        for member in added.iter() {
            let kills = |effect: &Effect<'_>| match effect {
                Effect::Set(set::Effect::Remove { members }) => members.iter().any(|other| other == member),
                effect => matches!(effect, Effect::Key(key::Effect::Delete)),
            };
            if is_live(effects_in_place, place, kills) {
                live.insert(quoted(member));
            }
        }
    }
    Some(format!("{{{}}}", live.into_iter().collect::<Vec<_>>().join(", ")))
}

/// The value that must be there, if the key was a register that was written, added to and deleted, and nothing else.
fn value(effects_in_place: &PlacedEffects<'_, '_>) -> Option<String> {
    let kills = |effect: &Effect<'_>| {
        matches!(
            effect,
            Effect::Key(key::Effect::Delete)
                | Effect::Register(register::Effect::Set { .. } | register::Effect::Delete)
        )
    };
    let (mut value, mut sum, mut counted): (Option<&[u8]>, i64, bool) = (None, 0, false);
    for (place, (_, effect)) in effects_in_place.iter().enumerate() {
        match effect {
            Effect::Register(register::Effect::Set { value: written, .. }) => {
                value = if is_live(effects_in_place, place, kills) { Some(written) } else { value };
            }
            Effect::Register(register::Effect::Add { by }) => {
                if is_live(effects_in_place, place, kills) {
                    (sum, counted) = (sum.wrapping_add(*by), true);
                }
            }
            Effect::Key(key::Effect::Delete | key::Effect::Resolve { .. })
            | Effect::Register(register::Effect::Delete) => {}
            _ => return None,
        }
    }
    match (value, counted) {
        (None, false) => Some("(nil)".into()),
        (Some(value), false) => Some(quoted(value)),
        (value, true) => {
            let base = value.map_or(Some(0), register::parse_integer)?;
            Some(quoted(base.wrapping_add(sum).to_string().as_bytes()))
        }
    }
}
