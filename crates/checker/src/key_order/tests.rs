//! Every pair compared is what the order of a key is measured by.

use super::*;
use datatypes::stream::{self, Ids, NewId, StreamId};
use datatypes::{Kind as Type, Observation};
use types::Rng;

const WORDS: [&[u8]; 3] = [b"", b"a", b"b"];
const TYPES: [Type; 9] = [
    Type::Register,
    Type::Dict,
    Type::Set,
    Type::ScoredSet,
    Type::List,
    Type::Counter,
    Type::SummaryBag,
    Type::Top,
    Type::Stream,
];

/// An edge for every pair that does not commute.
fn order_pairwise<'d>(key: &'d [u8], users: Vec<(usize, User<'d>)>, graph: &mut Graph<'d>) {
    for (index, (later, invocations)) in users.iter().enumerate() {
        for (earlier, others) in &users[..index] {
            if conflict(others, invocations) {
                graph.add_edge(*earlier, *later, Reason::Key(key));
            }
        }
    }
}

fn word(random: &mut Rng) -> &'static [u8] {
    WORDS[random.usize(..WORDS.len())]
}

fn words(random: &mut Rng) -> Items<'static> {
    Items::collect((0..random.usize(1..3)).map(|_| word(random)).collect::<Vec<_>>().into_iter())
}

fn scored(random: &mut Rng) -> ScoredItems<'static> {
    (0..random.usize(1..3)).map(|_| (random.usize(..2) as f64, word(random))).collect()
}

fn observation(of: Type, random: &mut Rng) -> Observation<'static> {
    let member = word(random);
    if of == Type::Stream && random.bool() {
        return of_stream(random).observation();
    }
    let aspect = match random.usize(..9) {
        0 => Aspect::Existence,
        1 => Aspect::Size,
        2 => Aspect::Expiry,
        3 => Aspect::Whole,
        4 if of == Type::Counter => [Aspect::Rise, Aspect::Fall][random.usize(..2)].clone(),
        4 => Aspect::DownTo { score: random.usize(..2) as f64, member },
        5 => return Observation::only_kind(of),
        _ => Aspect::Elements(words(random)),
    };
    if random.usize(..4) == 0 { Observation::any(aspect) } else { Observation::of(of, aspect) }
}

fn key_effect(random: &mut Rng) -> key::Effect<'static> {
    match random.usize(..4) {
        0 => key::Effect::Delete,
        1 => key::Effect::SetDeadline(random.usize(..3) as u64),
        2 => key::Effect::Restore(Cow::Borrowed(word(random))),
        _ => key::Effect::Resolve { losses: words(random) },
    }
}

fn list_effect(random: &mut Rng) -> list::Effect<'static> {
    let index = random.usize(..2) as u64;
    let end = [list::End::Front, list::End::Back][random.usize(..2)];
    match random.usize(..6) {
        0 | 1 => list::Effect::Push { end, values: words(random) },
        2 => list::Effect::Put { index, value: word(random) },
        3 => list::Effect::Pop { end, count: index },
        4 => list::Effect::Keep { start: 0, len: index },
        _ => list::Effect::InsertAt { index, value: word(random) },
    }
}

/// What observes all entries, a group, or both.
fn of_stream(random: &mut Rng) -> stream::Operation<'static> {
    let (group, consumer) = (word(random), word(random));
    match random.usize(..4) {
        0 => stream::Operation::Length,
        1 => stream::Operation::Acknowledge { group, ids: Items::NONE },
        2 => {
            let (key, own_after, count, no_ack) = (b"k", None, 0, false);
            stream::Operation::ReadGroup { key, group, consumer, own_after, count, no_ack }
        }
        _ => {
            let (id, items) = (NewId::Next, Items::NONE);
            stream::Operation::Add { id, items, only_if_exists: false, trim: None }
        }
    }
}

fn stream_effect(random: &mut Rng) -> stream::Effect<'static> {
    let (group, consumer) = (word(random), word(random));
    let (id, ids) = (StreamId::new(1, random.u64(..3)), || Ids::from_iter([StreamId::new(1, 1)]));
    match random.usize(..8) {
        0 => stream::Effect::CreateGroup { group, last: id, read: None },
        1 => stream::Effect::DestroyGroup { group },
        2 => stream::Effect::DeleteConsumer { group, consumer },
        3 => stream::Effect::Acknowledge { group, ids: ids() },
        4 => stream::Effect::Remove { ids: ids(), trims: random.bool() },
        5 => stream::Effect::SetLast { last: id, added: None, max_deleted: None },
        6 => stream::Effect::SetGroup { group, last: id, read: None },
        _ => stream::Effect::Add { id, items: words(random), trimmed: Ids::none() },
    }
}

fn effect(of: Type, random: &mut Rng) -> Effect<'static> {
    use register::Deadline;
    if random.usize(..8) == 0 {
        return Effect::Key(key_effect(random));
    }
    let (value, by, choice) = (word(random), random.usize(..3) as i64 - 1, random.usize(..5));
    match of {
        Type::Register => Effect::Register(match choice {
            0 => register::Effect::Add { by },
            1 => register::Effect::Append { value },
            2 => register::Effect::Delete,
            _ => register::Effect::Set { value, deadline: [Deadline::Clear, Deadline::Keep][choice - 3] },
        }),
        Type::Dict => Effect::Dict(match choice {
            0 => dict::Effect::Remove { fields: words(random) },
            1 => dict::Effect::Add { field: value, by },
            2 => dict::Effect::put(Items::collect(
                [word(random), word(random), word(random), value].into_iter(),
            )),
            _ => dict::Effect::put(Items::two(word(random), value)),
        }),
        Type::Set => Effect::Set(match choice {
            0 | 1 => set::Effect::Remove { members: words(random) },
            _ => set::Effect::Add { members: words(random) },
        }),
        Type::ScoredSet => Effect::ScoredSet(match choice {
            0 => scored_set::Effect::Remove { members: words(random) },
            1 => scored_set::Effect::Add { member: value, by: by as f64 },
            _ => scored_set::Effect::Put { items: scored(random) },
        }),
        Type::List => Effect::List(list_effect(random)),
        Type::Counter => Effect::Counter(counter::Effect::Add { by }),
        Type::SummaryBag => {
            let numbers = summary::Numbers::new(std::iter::once(by as f64)).unwrap_or_default();
            Effect::SummaryBag(summary::Effect::Add { numbers })
        }
        Type::Stream => Effect::Stream(stream_effect(random)),
        _ => Effect::Top(match choice {
            0 => datatypes::top::Effect::Reserve { capacity: 1 },
            _ => datatypes::top::Effect::Add { items: scored(random) },
        }),
    }
}

fn user(of: Type, random: &mut Rng) -> User<'static> {
    let steps = if random.usize(..3) == 0 { random.usize(2..4) } else { 1 };
    let invocation = |_| match random.usize(..3) {
        0 => Invocation { observation: observation(of, random), effect: None },
        _ => Invocation::blind(effect(of, random)),
    };
    (0..steps).map(invocation).collect()
}

/// Users of a few keys, mostly of one type each; `nodes` transactions, whose places are their numbers.
fn random_keys(nodes: usize, random: &mut Rng) -> Vec<Vec<(usize, User<'static>)>> {
    let of_key = |random: &mut Rng| {
        let (of, other) = (TYPES[random.usize(..TYPES.len())], TYPES[random.usize(..TYPES.len())]);
        let mixed = random.usize(..8) == 0;
        let pick = |random: &mut Rng| if mixed && random.usize(..4) == 0 { other } else { of };
        let users = (0..nodes).filter(|_| random.usize(..3) > 0).collect::<Vec<_>>();
        users.into_iter().map(|node| (node, user(pick(random), random))).collect()
    };
    (0..random.usize(1..4)).map(|_| of_key(random)).collect()
}

fn graph_by(
    order: impl Fn(&'static [u8], Vec<(usize, User<'static>)>, &mut Graph<'static>),
    nodes: usize,
    keys: &[Vec<(usize, User<'static>)>],
) -> Graph<'static> {
    let mut graph = Graph::new(nodes);
    keys.iter().for_each(|users| order(b"k", users.clone(), &mut graph));
    graph
}

/// Which of the first `nodes` nodes are reached from each.
fn reached(graph: &Graph<'_>, nodes: usize) -> Vec<BTreeSet<usize>> {
    let from = |start: usize| {
        let (mut reached, mut open) = (BTreeSet::new(), vec![start]);
        while let Some(node) = open.pop() {
            open.extend(graph.after(node).filter(|to| reached.insert(*to)));
        }
        reached.into_iter().filter(|node| *node < nodes).collect()
    };
    (0..nodes).map(from).collect()
}

#[test]
fn whoever_comes_before_whom_pair_by_pair_does_so_here_and_nobody_else() {
    const NODES: usize = 12;
    for seed in 0..20_000 {
        let mut random = Rng::with_seed(seed);
        let keys = random_keys(NODES, &mut random);
        for users in keys {
            let one = std::slice::from_ref(&users);
            let expected = reached(&graph_by(order_pairwise, NODES, one), NODES);
            let found = reached(&graph_by(order_users, NODES, one), NODES);
            assert_eq!(found, expected, "seed {seed}: {users:#?}");
        }
    }
}

/// Lists pushed to at both ends at once agree with a later push at one end, and conflict with each other at the other end.
#[test]
fn who_agrees_with_the_last_two_runs_may_conflict_with_an_earlier_one() {
    let push = |end, value: &'static [u8]| {
        Invocation::blind(Effect::List(list::Effect::Push { end, values: Items::one(value) }))
    };
    let both = |front, back| vec![push(list::End::Front, front), push(list::End::Back, back)];
    let users =
        vec![both(b"b", b"1"), both(b"a", b"2"), both(b"a", b"3"), vec![push(list::End::Front, b"a")]];
    let users: Vec<(usize, User<'static>)> = users.into_iter().enumerate().collect();
    let expected = reached(&graph_by(order_pairwise, 4, std::slice::from_ref(&users)), 4);
    assert_eq!(expected[0], BTreeSet::from([1, 2, 3]));
    assert!(!expected[1].contains(&3) && !expected[2].contains(&3));
    assert_eq!(reached(&graph_by(order_users, 4, &[users]), 4), expected);
}

#[test]
fn histories_are_judged_as_pair_by_pair() {
    const NODES: usize = 12;
    let mut refused = 0;
    for seed in 0..10_000 {
        let mut random = Rng::with_seed(seed);
        let keys = random_keys(NODES, &mut random);
        // Places follow time but for some.
        let begin = |node: usize, random: &mut Rng| (node * 10 + random.usize(..60)) as u64;
        let intervals: Vec<(usize, u64, Option<u64>)> = (0..NODES)
            .map(|node| (node, begin(node, &mut random)))
            .map(|(node, begin)| (node, begin, Some(begin + 15)))
            .collect();
        let is_good = |mut graph: Graph<'static>| {
            graph.add_moments(&intervals);
            graph.topological_order(|node| node).is_ok()
        };
        let expected = is_good(graph_by(order_pairwise, NODES, &keys));
        assert_eq!(is_good(graph_by(order_users, NODES, &keys)), expected, "seed {seed}");
        refused += usize::from(!expected);
    }
    assert!(
        (1_000..9_000).contains(&refused),
        "{refused} of 10000 are refused: both verdicts are to be common"
    );
}

/// Edges and nodes for so many users of one key, as what they do follows from their number.
fn size(users: usize, invocation: impl Fn(usize) -> Invocation<'static>) -> usize {
    let users = (0..users).map(|node| (node, vec![invocation(node)])).collect::<Vec<_>>();
    let graph = graph_by(order_users, users.len(), &[users]);
    (0..graph.len()).map(|node| 1 + graph.after(node).count()).sum()
}

#[test]
fn edges_grow_with_users_and_not_with_pairs() {
    let named = |number: usize| Items::collect(std::iter::once(&number.to_be_bytes()[..]));
    let read = |of, aspect| Invocation { observation: Observation::of(of, aspect), effect: None };
    let number = |value: usize| &*value.to_be_bytes().to_vec().leak();
    let register = |node: usize| match node % 1000 {
        0..400 => read(Type::Register, Aspect::Whole),
        400..800 => Invocation::blind(Effect::Register(register::Effect::Add { by: node as i64 })),
        _ => Invocation::blind(Effect::Register(register::Effect::Set {
            value: number(node),
            deadline: register::Deadline::Clear,
        })),
    };
    let members = |node: usize| match node % 1000 {
        0..500 => Invocation::blind(Effect::Set(set::Effect::Add { members: named(node) })),
        500..900 => read(Type::Set, Aspect::Elements(named(node - 500))),
        900..950 => read(Type::Set, Aspect::Size),
        _ => Invocation::blind(Effect::Set(set::Effect::Remove { members: named(node) })),
    };
    let fields = |node: usize| match node % 3 {
        0 => Invocation::blind(Effect::Dict(dict::Effect::put(Items::two(number(node % 50), number(node))))),
        1 => read(Type::Dict, Aspect::Elements(named(node % 50))),
        _ => Invocation::blind(Effect::Dict(dict::Effect::Add { field: number(node % 50), by: 1 })),
    };
    let streams = |node: usize| match node % 3 {
        0 => Invocation::blind(Effect::Stream(stream::Effect::Add {
            id: StreamId::new(node as u64, 0),
            items: named(node),
            trimmed: Ids::none(),
        })),
        1 => Invocation::blind(Effect::Stream(stream::Effect::Acknowledge {
            group: b"g",
            ids: Ids::from_iter([StreamId::new(node as u64, 0)]),
        })),
        _ => read(Type::Stream, stream::Operation::Length.observation().aspect.unwrap_or(Aspect::Whole)),
    };
    assert!(size(6_000, register) < 6_000 * 6);
    assert!(size(6_000, members) < 6_000 * 12);
    assert!(size(6_000, fields) < 6_000 * 12);
    assert!(size(6_000, streams) < 6_000 * 12);
}
