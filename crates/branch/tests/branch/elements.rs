//! Merges of large collections: found by the elements that were changed, they are what looking at the whole finds (which
//! builds with assertions compare), and they cost what was changed.

use crate::model::{World, key, operate, options, write};
use anabranch_branch::{Begin, End, Keyspace, Policy, Refusal, StateId};
use datatypes::scored_set::{AddFlags, ScoredItems};
use datatypes::{Items, Operation, dict, key as keys, scored_set, set};
use types::{Rng, SessionId};

const MERGER: SessionId = SessionId(1000);

fn session(number: u64) -> SessionId {
    SessionId(number + 1)
}

fn transact(world: &mut World, number: u64, name: &str, operations: &[Operation<'_>]) {
    let mut transaction = world.keyspace.begin(session(number), &Begin::Ancestor).unwrap();
    for operation in operations {
        // An operation of another type is refused, and changes nothing.
        operate(&mut world.keyspace, &mut transaction, name, operation).unwrap();
    }
    world.commit(transaction, &End::Serializability).unwrap();
}

fn fill(world: &mut World, members: usize) {
    let texts: Vec<String> = (0..members).map(|number| format!("m{number}")).collect();
    for text in &texts {
        let item = text.as_bytes();
        transact(world, 0, "set", &[Operation::Set(set::Operation::Add { members: Items::one(item) })]);
        transact(world, 0, "dict", &[put(item, b"1")]);
        transact(world, 0, "scores", &[score(item, 1.0)]);
    }
    world.keyspace.announce_ceiling();
    while world.keyspace.collect(1000) > 0 {}
}

fn put<'a>(field: &'a [u8], value: &'a [u8]) -> Operation<'a> {
    let pairs = Items::two(field, value);
    Operation::Dict(dict::Operation::Put { pairs, reply: dict::PutReply::Added })
}

fn score(member: &[u8], score: f64) -> Operation<'_> {
    let items = ScoredItems::one(score, member);
    Operation::ScoredSet(scored_set::Operation::Add { flags: AddFlags::default(), items })
}

fn add_score(member: &[u8], by: f64) -> Operation<'_> {
    let flags = AddFlags::default();
    Operation::ScoredSet(scored_set::Operation::Increment { flags, by, member })
}

/// One change of a key that is a collection most of the time.
fn change(world: &mut World, number: u64, random: &mut Rng) {
    let member = format!("m{}", random.u32(..60));
    let (member, text) = (member.as_bytes(), random.u32(..5).to_string());
    let name = ["set", "dict", "scores"][random.usize(..3)];
    let members = Items::one(member);
    let names: Vec<String> = (0..random.usize(250..400)).map(|number| format!("m{number}")).collect();
    let many: Vec<&[u8]> = names.iter().map(|name| name.as_bytes()).collect();
    let pairs: Vec<&[u8]> = many.iter().flat_map(|field| [*field, text.as_bytes()]).collect();
    let operation = match (random.u32(..40), name) {
        (0, _) => Operation::Key(keys::Operation::Delete),
        (1, _) => Operation::Key(keys::Operation::Persist),
        (2, _) => write(b"text"),
        // So many that the record does not store which.
        (38.., "set") => Operation::Set(set::Operation::Add { members: Items::Slices(&many) }),
        (38.., "dict") => Operation::Dict(dict::Operation::Put {
            pairs: Items::Slices(&pairs),
            reply: dict::PutReply::Added,
        }),
        (38.., _) => Operation::ScoredSet(scored_set::Operation::Add {
            flags: AddFlags::default(),
            items: ScoredItems::Many(
                many.iter().map(|member| (f64::from(random.u32(..2)), *member)).collect(),
            ),
        }),
        (3..15, "set") => Operation::Set(set::Operation::Remove { members }),
        (_, "set") => Operation::Set(set::Operation::Add { members }),
        (3..15, "dict") => Operation::Dict(dict::Operation::Delete { fields: members }),
        (15..25, "dict") => Operation::Dict(dict::Operation::Increment { field: member, by: 1 }),
        (_, "dict") => put(member, text.as_bytes()),
        (3..15, _) => Operation::ScoredSet(scored_set::Operation::Remove { members }),
        (15..30, _) => add_score(member, f64::from(random.u32(..5)) / 8.0),
        _ => score(member, f64::from(random.u32(..5))),
    };
    transact(world, number, name, &[operation]);
}

#[test]
fn merges_of_elements_are_merges_of_the_whole() {
    for seed in crate::some_of(0..150) {
        let (mut world, mut random) = (World::with(options(1)), Rng::with_seed(seed));
        fill(&mut world, 50);
        let (mut other, mut applied) = (Keyspace::new(options(2)), 0);
        for _ in 0..60 {
            if random.u32(..8) > 0 {
                change(&mut world, random.u64(..5), &mut random);
                continue;
            }
            // Another site, which collects nothing, finds the same merge.
            world.commits[applied..].iter().for_each(|commit| assert_eq!(other.apply(commit), Ok(true)));
            applied = world.commits.len();
            let heads = world.keyspace.heads();
            let some: Vec<StateId> = heads.iter().copied().filter(|_| random.u32(..4) > 0).collect();
            let merge = world.keyspace.merge_of(MERGER, &some, Policy::Newest);
            assert_eq!(other.merge_of(MERGER, &some, Policy::Newest), merge, "seed {seed}");
            match merge {
                Ok(merge) => {
                    applied += 1;
                    world.note(merge);
                }
                Err(refusal) => assert_eq!(refusal, Refusal::NothingToMerge),
            }
            if random.bool() {
                world.keyspace.announce_ceiling();
                world.keyspace.collect(random.usize(..100));
            }
        }
        let names = ["set", "dict", "scores"].map(key);
        assert_eq!(world.difference(&names), None, "seed {seed}");
    }
}

#[test]
fn a_merge_of_a_large_collection_costs_what_was_changed() {
    let cost = |members: usize| {
        let mut world = World::with(options(1));
        fill(&mut world, members);
        let open = (0..8).map(|number| {
            let mut transaction = world.keyspace.begin(session(number), &Begin::Ancestor).unwrap();
            let member = format!("new{number}");
            let operation = Operation::Set(set::Operation::Add { members: Items::one(member.as_bytes()) });
            operate(&mut world.keyspace, &mut transaction, "set", &operation).unwrap();
            operate(&mut world.keyspace, &mut transaction, "dict", &put(member.as_bytes(), b"1")).unwrap();
            operate(&mut world.keyspace, &mut transaction, "scores", &score(member.as_bytes(), 1.0)).unwrap();
            transaction
        });
        let open: Vec<_> = open.collect();
        for transaction in open {
            // Whoever looks at the size parts from the others.
            let mut transaction = transaction;
            let length = Operation::Set(set::Operation::Length);
            operate(&mut world.keyspace, &mut transaction, "set", &length).unwrap();
            world.commit(transaction, &End::Serializability).unwrap();
        }
        let heads = world.keyspace.heads();
        assert_eq!(heads.len(), 8);
        let before = world.keyspace.effort();
        let merge = world.keyspace.merge_of(MERGER, &heads, Policy::Newest).unwrap();
        assert_eq!(merge.writes.len(), 3);
        let effort = world.keyspace.effort() - before;
        assert_eq!(effort.bytes, 0);
        (effort.lookups, effort.keys, effort.states)
    };
    let (few, many) = if crate::soaks() { (1000, 2500) } else { (400, 1000) };
    assert_eq!(cost(few), cost(many));
}
