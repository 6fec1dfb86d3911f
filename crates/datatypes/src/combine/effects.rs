//! Two effects as one.

use crate::register::hyperloglog;
use crate::scored_set::ScoredItems;
use crate::{Effect, Items, counter, dict, key, list, register, scored_set, set, stream, summary, top, uid};

/// The effect that does what `first` and then `second` do, in every state, if there is one of this form.
pub fn then<'a>(first: &Effect<'a>, second: &Effect<'a>) -> Option<Effect<'a>> {
    match (first, second) {
        (_, Effect::Key(key::Effect::Delete | key::Effect::Restore(_))) => Some(second.clone()),
        (_, Effect::Register(register::Effect::Set { deadline, .. }))
            if *deadline != register::Deadline::Keep =>
        {
            Some(second.clone())
        }
        (
            Effect::Register(register::Effect::Add { by: a }),
            Effect::Register(register::Effect::Add { by: b }),
        ) => Some(Effect::Register(register::Effect::Add { by: a.wrapping_add(*b) })),
        (
            Effect::Register(register::Effect::Unite { with: a }),
            Effect::Register(register::Effect::Unite { with: b }),
        ) => {
            let with = hyperloglog::union(a, b).ok()?.into_owned().into();
            Some(Effect::Register(register::Effect::Unite { with }))
        }
        (Effect::Dict(a), Effect::Dict(b)) => dicts(a, b).map(Effect::Dict),
        (Effect::Set(a), Effect::Set(b)) => sets(a, b).map(Effect::Set),
        (Effect::ScoredSet(a), Effect::ScoredSet(b)) => scored_sets(a, b).map(Effect::ScoredSet),
        (Effect::List(a), Effect::List(b)) => lists(a, b).map(Effect::List),
        (Effect::Stream(a), Effect::Stream(b)) => streams(a, b).map(Effect::Stream),
        (
            Effect::Counter(counter::Effect::Add { by: a }),
            Effect::Counter(counter::Effect::Add { by: b }),
        ) => Some(Effect::Counter(counter::Effect::Add { by: a.checked_add(*b)? })),
        (
            Effect::SummaryBag(summary::Effect::Add { numbers: a }),
            Effect::SummaryBag(summary::Effect::Add { numbers: b }),
        ) => {
            let numbers = summary::Numbers::new(a.iter().chain(b.iter()))?;
            Some(Effect::SummaryBag(summary::Effect::Add { numbers }))
        }
        (Effect::Top(top::Effect::Add { items: a }), Effect::Top(top::Effect::Add { items: b })) => {
            Some(Effect::Top(top::Effect::Add { items: scored(a, b) }))
        }
        (Effect::UidGenerator(uid::Effect::Create), Effect::UidGenerator(uid::Effect::Create)) => {
            Some(second.clone())
        }
        _ => None,
    }
}

fn joined(a: &Items<'_>, b: &Items<'_>) -> Items<'static> {
    Items::collect(a.iter().chain(b.iter()))
}

fn scored<'a>(a: &ScoredItems<'a>, b: &ScoredItems<'a>) -> ScoredItems<'a> {
    a.iter().chain(b.iter()).copied().collect()
}

fn dicts<'a>(first: &dict::Effect<'a>, second: &dict::Effect<'a>) -> Option<dict::Effect<'a>> {
    use dict::Effect::{Add, Put, Remove};
    match (first, second) {
        (Put { pairs: a, .. }, Put { pairs: b, .. }) => {
            let deadlines = first.written().chain(second.written()).map(|(.., at)| at);
            Some(Put { pairs: joined(a, b), until: dict::Until::each(deadlines) })
        }
        (Remove { fields: a }, Remove { fields: b }) => Some(Remove { fields: joined(a, b) }),
        (Add { field: a, by: x }, Add { field: b, by: y }) if a == b => {
            Some(Add { field: a, by: x.wrapping_add(*y) })
        }
        _ => None,
    }
}

fn sets<'a>(first: &set::Effect<'a>, second: &set::Effect<'a>) -> Option<set::Effect<'a>> {
    use set::Effect::{Add, Remove};
    match (first, second) {
        (Add { members: a }, Add { members: b }) => Some(Add { members: joined(a, b) }),
        (Remove { members: a }, Remove { members: b }) => Some(Remove { members: joined(a, b) }),
        _ => None,
    }
}

fn scored_sets<'a>(
    first: &scored_set::Effect<'a>,
    second: &scored_set::Effect<'a>,
) -> Option<scored_set::Effect<'a>> {
    use scored_set::Effect::{Put, Remove};
    match (first, second) {
        (Put { items: a }, Put { items: b }) => Some(Put { items: scored(a, b) }),
        (Remove { members: a }, Remove { members: b }) => Some(Remove { members: joined(a, b) }),
        _ => None,
    }
}

fn lists<'a>(first: &list::Effect<'a>, second: &list::Effect<'a>) -> Option<list::Effect<'a>> {
    use list::Effect::{Pop, Push};
    match (first, second) {
        (Push { end: a, values: x }, Push { end: b, values: y }) if a == b => {
            Some(Push { end: *a, values: joined(x, y) })
        }
        (Pop { end: a, count: x }, Pop { end: b, count: y }) if a == b => {
            Some(Pop { end: *a, count: x.checked_add(*y)? })
        }
        _ => None,
    }
}

fn streams<'a>(first: &stream::Effect<'a>, second: &stream::Effect<'a>) -> Option<stream::Effect<'a>> {
    use stream::Effect::{Acknowledge, Remove};
    match (first, second) {
        (Remove { ids: x, trims: a }, Remove { ids: y, trims: b }) if a == b => {
            Some(Remove { ids: x.iter().chain(y.iter()).collect(), trims: *a })
        }
        (Acknowledge { group: a, ids: x }, Acknowledge { group: b, ids: y }) if a == b => {
            Some(Acknowledge { group: a, ids: x.iter().chain(y.iter()).collect() })
        }
        _ => None,
    }
}
