//! What two sides make of a value together, by the rules that the types' documentation gives (docs/internals/tardis.md),
//! for the plain types and written without the servers' own merge.
//!
//! | type | rule |
//! |---|---|
//! | register | additions alone on a side: the sum, where all are integers; else one side's change, or the newer |
//! | counter | the sum of what both sides added |
//! | set | member by member: what a side added or removed |
//! | dict | field by field; both sides added alone: the sum; a change beside a removal stays; else the newer |
//! | list | what both appended, the older side's first; other changes are not judged |

use crate::plain::{Held, Text, number};
use datatypes::{Effect, dict, register};
use std::collections::{BTreeMap, BTreeSet};

/// How a key was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// By additions to a register alone.
    Added,
    /// By additions to fields alone.
    AddedToFields,
    Otherwise,
}

impl Change {
    pub fn of(effect: &Effect<'_>) -> Change {
        match effect {
            Effect::Register(register::Effect::Add { .. }) => Change::Added,
            Effect::Dict(dict::Effect::Add { .. }) => Change::AddedToFields,
            _ => Change::Otherwise,
        }
    }

    /// How all of these change it together; nothing, if there are none.
    pub fn all(changes: impl Iterator<Item = Change>) -> Option<Change> {
        changes.reduce(|one, other| if one == other { one } else { Change::Otherwise })
    }
}

/// One side: what it holds, and how it was changed since the base.
pub(super) type Side<'a> = (&'a Option<Held>, Change);

/// What is left open by the rules goes to the newer side, if that is known.
pub(super) struct Judge {
    /// `None` if nothing tells.
    pub left_is_newer: Option<bool>,
    /// True once a rule consulted it.
    pub was_consulted: bool,
}

impl Judge {
    fn choose<T>(&mut self, left: T, right: T) -> Option<T> {
        self.was_consulted = true;
        self.left_is_newer.map(|left_is_newer| if left_is_newer { left } else { right })
    }

    /// One part of a value: a change of one side, a change beside a removal, or the newer of two.
    fn part<T: PartialEq + Clone>(
        &mut self,
        base: Option<&T>,
        left: Option<&T>,
        right: Option<&T>,
    ) -> Option<Option<T>> {
        Some(match (left, right) {
            _ if left == base => right.cloned(),
            _ if right == base || left == right => left.cloned(),
            (Some(left), Some(right)) => Some(self.choose(left, right)?.clone()),
            (left, right) => left.or(right).cloned(),
        })
    }
}

/// What both sides make of a base together; nothing where that is not judged.
pub(super) fn together(
    base: &Option<Held>,
    (left, left_change): Side<'_>,
    (right, right_change): Side<'_>,
    judge: &mut Judge,
) -> Option<Option<Held>> {
    if left == base || right == base {
        return Some(if left == base { right.clone() } else { left.clone() });
    }
    let both_added = |change| left_change == change && right_change == change;
    match (left, right) {
        (None, None) => Some(None),
        (None | Some(Held::Register(_)), None | Some(Held::Register(_))) => {
            let text = |held: &Option<Held>| match held {
                Some(Held::Register(text)) => Some(text.clone()),
                _ => None,
            };
            let [base, left, right] = [base, left, right].map(text);
            if (left_change == Change::Added || right_change == Change::Added)
                && let Some(sum) = sum([base.as_ref(), left.as_ref(), right.as_ref()])
            {
                return Some(Some(Held::Register(sum)));
            }
            Some(judge.part(base.as_ref(), left.as_ref(), right.as_ref())?.map(Held::Register))
        }
        (None | Some(Held::Counter(_)), None | Some(Held::Counter(_))) => {
            let [base, left, right] = [base, left, right].map(|held| match held {
                Some(Held::Counter(sum)) => *sum,
                _ => 0,
            });
            Some(Some(Held::Counter(left + right - base)))
        }
        (None | Some(Held::Set(_)), None | Some(Held::Set(_))) => {
            let [base, left, right] = [base, left, right].map(|held| match held {
                Some(Held::Set(set)) => set.clone(),
                _ => BTreeSet::new(),
            });
            // A member is there that a side brought, or that neither took away.
            let all: BTreeSet<&Text> = left.union(&right).collect();
            let stays = |member: &&&Text| {
                !base.contains(**member) || (left.contains(**member) && right.contains(**member))
            };
            let merged: BTreeSet<Text> = all.iter().filter(stays).map(|member| (*member).clone()).collect();
            Some((!merged.is_empty()).then_some(Held::Set(merged)))
        }
        (None | Some(Held::Dict(_)), None | Some(Held::Dict(_))) => {
            let [base, left, right] = [base, left, right].map(|held| match held {
                // Where fields have deadlines nothing is judged.
                Some(Held::Dict(dict)) => {
                    dict.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect()
                }
                _ => BTreeMap::new(),
            });
            let merged = fields([&base, &left, &right], both_added(Change::AddedToFields), judge)?;
            let merged = merged.into_iter().map(|(field, value)| (field, (value, 0)));
            Some((merged.len() != 0).then(|| Held::Dict(merged.collect())))
        }
        (None | Some(Held::List(_)), None | Some(Held::List(_))) => {
            let [base, left, right] = [base, left, right].map(|held| match held {
                Some(Held::List(list)) => list.clone(),
                _ => Vec::new(),
            });
            let (left, right) = (left.strip_prefix(&base[..])?, right.strip_prefix(&base[..])?);
            // Where a base ends as an addition begins, what was added is not distinct from it.
            let (older, newer) = if judge.left_is_newer? { (right, left) } else { (left, right) };
            Some(Some(Held::List([&base[..], older, newer].concat())))
        }
        // What groups deliver is merged by rules of its own.
        (None | Some(Held::Stream(_)), None | Some(Held::Stream(_))) => None,
        (Some(_), Some(_)) => Some(judge.choose(left, right)?.clone()),
    }
}

fn fields(
    [base, left, right]: [&BTreeMap<Text, Text>; 3],
    both_added: bool,
    judge: &mut Judge,
) -> Option<BTreeMap<Text, Text>> {
    let names: BTreeSet<&Text> = left.keys().chain(right.keys()).collect();
    let mut merged = BTreeMap::new();
    for name in names {
        let values = [base.get(name), left.get(name), right.get(name)];
        let value = match sum(values).filter(|_| both_added) {
            Some(sum) => Some(sum),
            None => judge.part(values[0], values[1], values[2])?,
        };
        merged.extend(value.map(|value| (name.clone(), value)));
    }
    Some(merged)
}

/// What two sides have added to a base, if all are integers; nothing counts as 0.
fn sum(values: [Option<&Text>; 3]) -> Option<Text> {
    let [base, left, right] = values.map(|value| value.map_or(Some(0), |text| number(text)));
    Some(left?.wrapping_add(right?).wrapping_sub(base?).to_string().into_bytes())
}
