//! Reads against replay along the path, under forks, merges, old reads and arrivals out of order.

use crate::model::{SESSION, World, encoded, key, set};
use anabranch_branch::{Begin, Commit, End, Mutants, StateId};
use datatypes::{Effect, Items};
use mvcc::CompactKey;
use types::{Reader, Rng, Wire};

/// A random world: transactions at any state, merges of heads, sometimes with collection.
pub fn random(seed: u64, steps: usize, mutants: Mutants, collect: bool) -> (World, Vec<CompactKey>) {
    let (mut world, mut random) = (World::new(mutants), Rng::with_seed(seed));
    let names = ["a", "b", "c", "d"];
    for step in 0..steps {
        if random.u8(..8) == 0 {
            let _ = world.merge();
        } else {
            let retained = world.retained();
            let window = retained.len().min(1 + random.usize(..6));
            let parent = retained[retained.len() - 1 - random.usize(..window)];
            let mut transaction = world.keyspace.begin(SESSION, &Begin::State(parent));
            if let Ok(transaction) = &mut transaction {
                for _ in 0..1 + random.usize(..2) {
                    let (name, value) = (names[random.usize(..4)], step.to_string());
                    let operation = match name {
                        "a" | "b" => crate::model::increment(random.i64(1..100)),
                        _ => crate::model::write(value.as_bytes()),
                    };
                    crate::model::operate(&mut world.keyspace, transaction, name, &operation).unwrap();
                }
            }
            if let Ok(transaction) = transaction {
                world.commit(transaction, &End::State(parent)).unwrap();
            }
        }
        if collect && random.bool() {
            world.keyspace.collect(random.usize(..12));
        }
    }
    (world, names.map(key).to_vec())
}

#[test]
fn every_state_reads_what_replay_along_its_path_gives() {
    for seed in 0..60 {
        let (mut world, keys) = random(seed, 60, Mutants::default(), false);
        assert_eq!(world.difference(&keys), None, "seed {seed}");
        world.keyspace.assert_consistent();
        assert_eq!(world.difference(&keys), None, "seed {seed}: reading changed something");
    }
}

#[test]
fn a_commit_survives_its_binary_form_and_what_is_none_is_refused() {
    let (world, _) = random(1, 40, Mutants::default(), false);
    assert!(world.commits.iter().any(|commit| commit.parents.len() > 1), "merges are among them");
    for commit in &world.commits {
        let mut bytes = Vec::new();
        commit.encode(&mut bytes);
        assert_eq!(Commit::decode(&mut Reader::new(&bytes)).as_ref(), Ok(commit));
        assert!((0..bytes.len()).all(|len| Commit::decode(&mut Reader::new(&bytes[..len])).is_err()));
    }
    let bad_effect = Commit { writes: vec![(key("k"), vec![[99].into()])], ..world.commits[0].clone() };
    let above = Commit { parents: vec![world.commits[9].id], ..world.commits[0].clone() };
    for commit in [bad_effect, above] {
        let mut bytes = Vec::new();
        commit.encode(&mut bytes);
        assert!(Commit::decode(&mut Reader::new(&bytes)).is_err(), "{commit:?}");
    }
}

#[test]
fn a_site_that_gets_the_states_in_another_order_reads_the_same() {
    for seed in 0..40 {
        let (world, keys) = random(seed, 40, Mutants::default(), false);
        let (mut other, mut random) = (World::new(Mutants::default()), Rng::with_seed(seed));
        let mut waiting: Vec<Commit> = world.commits.clone();
        while !waiting.is_empty() {
            let commit = waiting.swap_remove(random.usize(..waiting.len()));
            match other.keyspace.apply(&commit) {
                Ok(_) => other.model.add(&commit),
                Err(_) => waiting.push(commit),
            }
        }
        assert_eq!(other.difference(&keys), None, "seed {seed}");
        assert_eq!(other.keyspace.heads(), world.keyspace.heads(), "seed {seed}");
    }
}

#[test]
fn a_read_costs_the_same_however_many_branches_hold_versions_of_the_key() {
    // TARDiS 6.1.3, T6.
    let cost = |branches: u64| {
        let mut world = World::new(Mutants::default());
        let base = world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
        let mine = world.state(2, &[base], &[("k", set("mine"))]);
        for number in 3..3 + branches {
            world.state(number, &[base], &[("k", set(&number.to_string()))]);
        }
        assert_eq!(world.text(mine, "k"), "mine");
        world.keyspace.lookups(mine, &key("k"))
    };
    assert_eq!(cost(2000), cost(20));
    assert!(cost(2000) <= 2);
}

/// What began below the same merge looks for a key's version among those of all its branches once; and so does what is a merge of that
/// one and of a little beside it.
#[test]
fn below_a_merge_of_many_branches_a_key_is_looked_for_once() {
    let costs = |branches: u64| {
        let mut world = World::new(Mutants::default());
        let large = |number: u64| set(&number.to_string().repeat(300));
        let base = world.state(1, &[StateId::ROOT], &[("k", large(1))]);
        let heads: Vec<StateId> =
            (2..2 + branches).map(|number| world.state(number, &[base], &[("k", large(number))])).collect();
        let merge = world.state(1 << 20, &heads, &[("other", set("1"))]);
        let sibling = world.state((1 << 20) + 1, &[base], &[("l", set("1"))]);
        let begun: Vec<StateId> =
            (2..6).map(|number| world.state((1 << 20) + number, &[merge], &[("l", set("2"))])).collect();
        let again = world.state(1 << 21, &[sibling, begun[1]], &[("l", set("3"))]);
        let expected = (1 + branches).to_string().repeat(300);
        assert!([begun[0], begun[1], again].iter().all(|state| world.text(*state, "k") == expected));
        [begun[1], begun[3], again].map(|state| world.keyspace.lookups(state, &key("k")))
    };
    let (few, many) = (costs(20), costs(2000));
    assert_eq!(few, many);
    assert!(many.iter().all(|lookups| *lookups <= 4), "{many:?}");
}

#[test]
fn neither_an_unforked_key_nor_a_large_forked_one_is_copied() {
    let growth = |parent_of: fn(u64) -> u64| {
        let mut world = World::new(Mutants::default());
        let member = |number: u64| {
            let name = format!("member {number}");
            let members = Items::one(name.as_bytes());
            encoded(&Effect::Set(datatypes::set::Effect::Add { members }))
        };
        let id = |number| StateId::made_by(number, types::ProcessId(9), types::Incarnation(1));
        let large: Vec<_> = (1000..2000).map(member).collect();
        let commit = Commit { id: id(1), parents: vec![StateId::ROOT], writes: vec![(key("k"), large)] };
        world.apply(commit);
        let before = world.keyspace.census().memory;
        for number in 2..40 {
            world.state(number, &[id(parent_of(number))], &[("k", member(number))]);
        }
        (world.keyspace.census().memory - before) / before
    };
    let (chain, fan) = (growth(|number| number - 1), growth(|_| 1));
    assert_eq!(chain, 0, "38 states on one branch");
    assert_eq!(fan, 0, "38 branches");
}

#[test]
fn a_key_is_drawn_of_those_that_the_transaction_sees() {
    let mut world = World::new(Mutants::default());
    let root = world.retained()[0];
    let left: Vec<(String, Box<[u8]>)> = (0..100).map(|number| (format!("k{number}"), set("1"))).collect();
    let left: Vec<(&str, Box<[u8]>)> = left.iter().map(|(name, effect)| (&**name, effect.clone())).collect();
    let left = world.state(1, &[root], &left);
    world.state(2, &[root], &[("other", set("1"))]);
    let mut transaction = world.keyspace.begin(SESSION, &Begin::State(left)).expect("it is there");
    crate::model::operate(&mut world.keyspace, &mut transaction, "own", &crate::model::write(b"1")).unwrap();
    let delete = datatypes::Operation::Key(datatypes::key::Operation::Delete);
    crate::model::operate(&mut world.keyspace, &mut transaction, "k7", &delete).unwrap();
    let mut random = Rng::with_seed(1);
    let mut counts = std::collections::BTreeMap::new();
    for _ in 0..10_000 {
        let key = world.keyspace.draw(&mut transaction, 0, &mut random).expect("a key");
        *counts.entry(key).or_insert(0) += 1;
    }
    assert_eq!(counts.len(), 100, "neither what it deleted nor what it does not see");
    assert!(counts.contains_key(&key("own")) && !counts.contains_key(&key("other")));
    let (least, most) = (counts.values().min().unwrap(), counts.values().max().unwrap());
    assert!(*least > 25 && *most < 250, "{least} to {most} of 10 000");
    let delete_all: Vec<CompactKey> = counts.keys().cloned().collect();
    for key in delete_all {
        let name = std::str::from_utf8(&key).unwrap().to_owned();
        crate::model::operate(&mut world.keyspace, &mut transaction, &name, &delete).unwrap();
    }
    assert_eq!(world.keyspace.draw(&mut transaction, 0, &mut random), None);
}
