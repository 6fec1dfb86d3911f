//! On each key an edge from any transaction to a later one that does not commute with it there: not all of them, but so
//! many that where one would be there is a way. That takes time in proportion to the operations on the key and to the kinds
//! of them, not to the pairs.
//!
//! 1. Users of a key that do the same, arguments apart, are of one *kind*, and the users of a kind are in *runs* by place:
//!    who conflicts with the last run begins the next. Between runs every pair conflicts, within one none does.
//! 2. A user comes behind the last run of every kind that it conflicts with, and by that run behind all earlier ones. It
//!    may agree with the last one by chance, as writes of one value do; then it conflicts with the run before that, or
//!    with none.
//! 3. It comes behind a run by way of a *joint*: a node of the graph, behind the members of the run so far.
//! 4. Elements of a collection are distinguished, each a [`Facet`] of the key: what users do to one element, and what
//!    they do to the collection whatever the elements. Two users conflict if and only if they do in one of these.
//!
//! Kinds are few, but for tops and for dicts and scored sets that somebody writes a field of twice in one command.

use crate::graph::{Graph, Reason};
use crate::invocations::{Decoded, conflict};
use datatypes::scored_set::ScoredItems;
use datatypes::{
    Aspect, Effect, Invocation, Items, counter, dict, key, list, register, scored_set, set, stream, summary,
};
use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

#[cfg(test)]
mod tests;

/// What a transaction did to a key.
type User<'d> = Vec<Invocation<'d>>;

/// Adds the edges of all keys. The transactions are the graph's first nodes.
pub(crate) fn add_key_edges<'d>(placed: &'d [Decoded<'_>], graph: &mut Graph<'d>) {
    for (key, users) in users_of_keys(placed) {
        order_users(key, users, graph);
    }
}

/// The users of each key in order of their places.
fn users_of_keys<'d>(placed: &'d [Decoded<'_>]) -> BTreeMap<&'d [u8], Vec<(usize, User<'d>)>> {
    let mut keys: BTreeMap<&'d [u8], Vec<(usize, User<'d>)>> = BTreeMap::new();
    let mut nodes: Vec<usize> = (0..placed.len()).collect();
    nodes.sort_by_key(|node| placed[*node].transaction.place());
    for node in nodes {
        for (key, invocations) in placed[node].by_key() {
            keys.entry(key).or_default().push((node, invocations));
        }
    }
    keys
}

/// Adds the edges of one key, whose users come in order.
fn order_users<'d>(key: &'d [u8], users: Vec<(usize, User<'d>)>, graph: &mut Graph<'d>) {
    let mut facets: BTreeMap<Option<Vec<u8>>, Facet<'d>> = BTreeMap::new();
    if users.iter().all(|(_, user)| user.iter().all(names_elements_once)) {
        for (node, user) in users {
            let elements: BTreeSet<Vec<u8>> = user.iter().flat_map(elements_of).collect();
            for element in elements.into_iter().map(Some).chain([None]) {
                let part: User<'d> =
                    user.iter().filter_map(|it| restricted(it, element.as_deref())).collect();
                let kind = kind_of(&part);
                facets.entry(element).or_default().add(node, part, kind, key, graph);
            }
        }
    } else {
        let all = facets.entry(None).or_default();
        for (node, user) in users {
            all.add(node, user.clone(), user, key, graph);
        }
    }
}

/// The kinds of users so far: of one element, or of a collection whatever the elements.
#[derive(Default)]
struct Facet<'d>(Vec<Kind<'d>>);

/// Users that do the same, arguments apart.
struct Kind<'d> {
    of: User<'d>,
    last: Run<'d>,
    before: Option<Run<'d>>,
}

/// Users that commute with each other, and with whatever one of them does.
struct Run<'d> {
    like: User<'d>,
    /// A node behind all members but the newest.
    joint: Option<usize>,
    newest: Vec<usize>,
}

impl<'d> Facet<'d> {
    /// Adds a user behind all others.
    fn add(&mut self, node: usize, user: User<'d>, of: User<'d>, key: &'d [u8], graph: &mut Graph<'d>) {
        let mut own = None;
        for (index, kind) in self.0.iter_mut().enumerate() {
            let follows = conflict(&kind.last.like, &user);
            let before = kind.before.as_mut().filter(|run| !follows && conflict(&run.like, &user));
            if let Some(run) = if follows { Some(&mut kind.last) } else { before } {
                let end = run.end(key, graph);
                graph.add_edge(end, node, Reason::Key(key));
            }
            if kind.of == of {
                own = Some((index, follows));
            }
        }
        match own {
            Some((index, false)) => self.0[index].last.newest.push(node),
            Some((index, true)) => {
                let kind = &mut self.0[index];
                kind.before = Some(std::mem::replace(&mut kind.last, Run::of(node, user)));
            }
            None => self.0.push(Kind { of, last: Run::of(node, user), before: None }),
        }
    }
}

impl<'d> Run<'d> {
    fn of(node: usize, user: User<'d>) -> Self {
        Run { like: user, joint: None, newest: vec![node] }
    }

    /// A node behind all members so far.
    fn end(&mut self, key: &'d [u8], graph: &mut Graph<'d>) -> usize {
        match (self.joint, &self.newest[..]) {
            (Some(joint), []) => joint,
            (None, [only]) => *only,
            _ => {
                let joint = graph.add_node();
                for member in self.newest.drain(..).chain(self.joint) {
                    graph.add_edge(member, joint, Reason::Key(key));
                }
                *self.joint.insert(joint)
            }
        }
    }
}

/// The elements that an invocation observes or changes.
fn elements_of(invocation: &Invocation<'_>) -> Vec<Vec<u8>> {
    let observed = invocation.observation.aspect.iter().cloned();
    let changed = invocation.effect.iter().flat_map(|effect| effect.footprint().aspects);
    let items = observed.chain(changed).filter_map(|aspect| match aspect {
        Aspect::Elements(items) => Some(items.iter().map(<[u8]>::to_vec).collect::<Vec<_>>()),
        _ => None,
    });
    items.flatten().collect()
}

/// False for a command that gives an element two values: it commutes with nothing, other elements included.
fn names_elements_once(invocation: &Invocation<'_>) -> bool {
    match &invocation.effect {
        Some(Effect::Dict(dict::Effect::Put { pairs, .. })) => {
            all_differ(pairs.pairs().map(|(field, _)| field))
        }
        Some(Effect::ScoredSet(scored_set::Effect::Put { items })) => {
            all_differ(items.iter().map(|(_, member)| *member))
        }
        _ => true,
    }
}

fn all_differ<'e>(mut elements: impl Iterator<Item = &'e [u8]>) -> bool {
    let mut seen = BTreeSet::new();
    elements.all(|element| seen.insert(element))
}

/// What an invocation does to one element, if anything; without one, what it does to the collection whatever the
/// elements.
fn restricted<'d>(invocation: &Invocation<'d>, element: Option<&[u8]>) -> Option<Invocation<'d>> {
    let Some(element) = element else { return Some(over(invocation, |_| false)) };
    elements_of(invocation).iter().any(|it| it == element).then(|| over(invocation, |it| it == element))
}

/// An invocation on those of its elements that are meant, each named once. What is done to entries or to a group of a stream
/// names no other.
fn over<'d>(invocation: &Invocation<'d>, is_meant: impl Fn(&[u8]) -> bool) -> Invocation<'d> {
    let named = |items: &Items<'_>| Items::collect(items.iter().find(|item| is_meant(item)).into_iter());
    let mut it = invocation.clone();
    if let Some(Aspect::Elements(items)) = &mut it.observation.aspect {
        *items = named(items);
    }
    match &mut it.effect {
        Some(Effect::Dict(dict::Effect::Put { pairs, until })) => {
            let meant = pairs.pairs().enumerate().find(|(_, (field, _))| is_meant(field));
            *until = dict::Until::each(meant.iter().map(|(place, _)| until.of(*place)));
            *pairs = Items::collect(meant.iter().flat_map(|(_, (field, value))| [*field, *value]));
        }
        Some(Effect::ScoredSet(scored_set::Effect::Put { items })) => {
            let meant = items.iter().find(|(_, member)| is_meant(member));
            *items = meant.map_or_else(ScoredItems::default, |(score, member)| {
                [(*score, *member)].into_iter().collect()
            });
        }
        Some(
            Effect::Dict(
                dict::Effect::Remove { fields: items } | dict::Effect::SetDeadline { fields: items, .. },
            )
            | Effect::Set(set::Effect::Add { members: items } | set::Effect::Remove { members: items })
            | Effect::ScoredSet(scored_set::Effect::Remove { members: items }),
        ) => *items = named(items),
        _ => {}
    }
    it
}

/// What a user does, without the arguments that matter to nobody or only to those that do the same.
///
/// Of effects that commute if they are equal at most one may lose its argument: of two a run could agree with another one
/// by the first and conflict by the second.
fn kind_of<'d>(user: &[Invocation<'d>]) -> User<'d> {
    let (mut kind, mut values) = (User::new(), User::new());
    for invocation in user {
        let Some(effect) = &invocation.effect else {
            push_new(&mut kind, invocation.clone());
            continue;
        };
        let (effect, has_value) = without_argument(effect);
        let same = Invocation { observation: invocation.observation.clone(), effect: Some(effect) };
        if has_value {
            push_new(&mut values, same.clone());
        }
        push_new(&mut kind, same);
    }
    if values.len() > 1 { user.to_vec() } else { kind }
}

fn push_new<'d>(kind: &mut User<'d>, invocation: Invocation<'d>) {
    if !kind.contains(&invocation) {
        kind.push(invocation);
    }
}

/// An effect of the same kind, and whether two of that kind commute only if they are equal.
fn without_argument<'d>(effect: &Effect<'d>) -> (Effect<'d>, bool) {
    match effect {
        Effect::Register(register::Effect::Set { .. }) => (
            Effect::Register(register::Effect::Set { value: b"", deadline: register::Deadline::Clear }),
            true,
        ),
        Effect::Register(register::Effect::Add { .. }) => {
            (Effect::Register(register::Effect::Add { by: 0 }), false)
        }
        Effect::Register(register::Effect::Append { .. }) => {
            (Effect::Register(register::Effect::Append { value: b"" }), false)
        }
        Effect::Dict(dict::Effect::Put { pairs, .. }) if !pairs.is_empty() => {
            (Effect::Dict(dict::Effect::put(Items::two(b"", b""))), true)
        }
        Effect::Dict(dict::Effect::Add { .. }) => {
            (Effect::Dict(dict::Effect::Add { field: b"", by: 0 }), false)
        }
        Effect::ScoredSet(scored_set::Effect::Put { items }) if !items.is_empty() => {
            let items = ScoredItems::one(0.0, b"");
            (Effect::ScoredSet(scored_set::Effect::Put { items }), true)
        }
        Effect::ScoredSet(scored_set::Effect::Add { .. }) => {
            (Effect::ScoredSet(scored_set::Effect::Add { member: b"", by: 0.0 }), false)
        }
        Effect::Stream(effect) => (Effect::Stream(of_stream(effect)), false),
        Effect::List(list::Effect::Push { end, .. }) => {
            (Effect::List(list::Effect::Push { end: *end, values: Items::NONE }), true)
        }
        Effect::List(list::Effect::Put { index, .. }) => {
            (Effect::List(list::Effect::Put { index: *index, value: b"" }), true)
        }
        Effect::List(_) => (Effect::List(list::Effect::Pop { end: list::End::Front, count: 0 }), true),
        Effect::Counter(counter::Effect::Add { by }) => {
            (Effect::Counter(counter::Effect::Add { by: by.signum() }), false)
        }
        Effect::SummaryBag(summary::Effect::Add { .. }) => {
            let numbers = summary::Numbers::default();
            (Effect::SummaryBag(summary::Effect::Add { numbers }), false)
        }
        Effect::Key(key::Effect::Restore(_)) => (Effect::Key(key::Effect::Restore(Cow::Borrowed(b""))), true),
        Effect::Dict(dict::Effect::SetDeadline { fields, .. }) => {
            let fields = fields.clone();
            (Effect::Dict(dict::Effect::SetDeadline { fields, at_millis: 1 }), true)
        }
        Effect::Key(key::Effect::SetDeadline(1..)) => (Effect::Key(key::Effect::SetDeadline(1)), true),
        other => (other.clone(), false),
    }
}

/// The same for streams, where only the kind of an effect and its group matter.
fn of_stream<'d>(effect: &stream::Effect<'d>) -> stream::Effect<'d> {
    use stream::{Effect, Ids, StreamId};
    match effect {
        Effect::Remove { trims, .. } => Effect::Remove { ids: Ids::none(), trims: *trims },
        Effect::Acknowledge { group, .. } => Effect::Acknowledge { group, ids: Ids::none() },
        Effect::CreateGroup { group, .. } => Effect::CreateGroup { group, last: StreamId::ZERO, read: None },
        effect => match effect.group() {
            None => Effect::Add { id: StreamId::ZERO, items: Items::NONE, trimmed: Ids::none() },
            Some(group) => Effect::DestroyGroup { group },
        },
    }
}
