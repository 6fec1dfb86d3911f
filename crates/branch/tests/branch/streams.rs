//! Merges of streams: every entry is there once, whatever ids coincided.

use crate::model::{SESSION, World, encoded, key};
use anabranch_branch::{Begin, End, Mutants, Policy, StateId};
use datatypes::stream::{Effect, Ids, NewId, Operation, StreamId};
use datatypes::{Items, Value};
use std::collections::BTreeMap;
use types::Rng;

fn entry(id: StreamId, value: &str) -> Box<[u8]> {
    let items = Items::two(b"f", value.as_bytes());
    encoded(&datatypes::Effect::Stream(Effect::Add { id, items, trimmed: Ids::none() }))
}

fn removal(id: StreamId) -> Box<[u8]> {
    encoded(&datatypes::Effect::Stream(Effect::Remove { ids: Ids::from_iter([id]), trims: false }))
}

/// The values of the stream at a state, by id.
fn entries(world: &mut World, state: StateId) -> BTreeMap<StreamId, String> {
    let Some(Value::Stream(stream)) = world.keyspace.value_at(state, &key("k")).unwrap().value else {
        return BTreeMap::new();
    };
    let value = |strings: Vec<&[u8]>| String::from_utf8_lossy(strings[1]).into_owned();
    stream.entries.iter().map(|entry| (entry.id, value(entry.strings().collect()))).collect()
}

fn merge(world: &mut World, states: &[StateId]) -> StateId {
    let mut transaction = world.keyspace.begin_merge_of(SESSION, states).unwrap();
    world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
    world.commit(transaction, &End::Any).unwrap().unwrap()
}

/// Every state of a random DAG holds each entry that was added above it once: under the id that it got there, or behind
/// it, where all ids between are taken.
#[test]
fn each_entry_above_a_state_is_there_once() {
    for seed in 0..40 {
        let (mut world, mut random) = (World::new(Mutants::default()), Rng::with_seed(seed));
        let mut given = BTreeMap::new();
        for number in 1..40u64 {
            let heads = world.keyspace.heads();
            let made = if random.u8(..3) == 0 && heads.len() > 1 {
                let some: Vec<StateId> = heads.iter().copied().take(2 + random.usize(..2)).collect();
                merge(&mut world, &some)
            } else {
                let retained = world.retained();
                let from = retained[retained.len() - 1 - random.usize(..retained.len().min(5))];
                let last = entries(&mut world, from).into_keys().next_back().unwrap_or_default();
                let id = last.next().unwrap().max(StreamId::new(number / 20, 0));
                let value = number.to_string();
                let items = Items::two(b"f", value.as_bytes());
                let new = NewId::Given { id };
                let add = Operation::Add { id: new, items, only_if_exists: false, trim: None };
                let (begin, end) = (Begin::State(from), End::State(from));
                let add = [("k", datatypes::Operation::Stream(add))];
                let made = world.transact(SESSION, &begin, &add, &end).unwrap().unwrap();
                given.insert(made, (id, value));
                made
            };
            let found = entries(&mut world, made);
            let above = world.model.states[&made].ancestors.iter().filter_map(|id| given.get(id));
            let mut count = 0;
            for (id, value) in above {
                count += 1;
                let places: Vec<&StreamId> =
                    found.iter().filter(|(_, other)| *other == value).map(|(place, _)| place).collect();
                let [place] = places[..] else { panic!("seed {seed}: {value} is at {places:?}: {found:?}") };
                let run = std::iter::successors(Some(*id), |id| id.next()).take_while(|id| id < place);
                assert!(
                    id <= place && run.into_iter().all(|id| found.contains_key(&id)),
                    "seed {seed}: {value} was added as {id:?}, and is at {place:?}: {found:?}"
                );
            }
            assert_eq!(found.len(), count, "seed {seed}");
        }
    }
}

/// A third side has moved an entry of the base: who removed or moved it elsewhere meant the same.
#[test]
fn an_entry_that_was_moved_is_the_same() {
    let ids = [0, 1, 2].map(|sequence| StreamId::new(1, sequence));
    let forked = || {
        let mut world = World::new(Mutants::default());
        let root = world.state(1, &[StateId::ROOT], &[("k", entry(StreamId::new(0, 1), "o"))]);
        let [y, z] = [2, 3].map(|number| {
            world.state(number, &[root], &[("k", entry(ids[0], if number == 2 { "y" } else { "z" }))])
        });
        let x = world.state(4, &[root], &[("k", entry(ids[0], "x"))]);
        let with_y = merge(&mut world, &[x, y]);
        assert_eq!(entries(&mut world, with_y)[&ids[1]], "x", "the newer one is moved");
        (world, [x, with_y, z])
    };
    let (mut world, [x, with_y, _]) = forked();
    let without = world.state(9, &[x], &[("k", removal(ids[0]))]);
    let all = merge(&mut world, &[with_y, without]);
    assert_eq!(entries(&mut world, all).into_values().collect::<Vec<_>>(), ["o", "y"]);
    let (mut world, [x, with_y, z]) = forked();
    let with_z = merge(&mut world, &[x, z]);
    let all = merge(&mut world, &[with_y, with_z]);
    let mut values: Vec<String> = entries(&mut world, all).into_values().collect();
    values.sort();
    assert_eq!(values, ["o", "x", "y", "z"]);
}
