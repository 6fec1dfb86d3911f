//! Labelling, rippling and compression over *all* State DAGs of a few states.

use crate::model::{SESSION, World, key, operate, set, write};
use anabranch_branch::{Begin, Commit, End, Mutant, Mutants, StateId};
use std::collections::BTreeSet;
use types::{Incarnation, ProcessId};

fn id(number: usize) -> StateId {
    match number {
        0 => StateId::ROOT,
        _ => StateId::made_by(number as u64, ProcessId(9), Incarnation(1)),
    }
}

/// The parents of states 1, 2, ..., each one or two earlier states of which none descends from the other.
fn all_dags(states: usize) -> Vec<Vec<Vec<usize>>> {
    let mut dags: Vec<Vec<Vec<usize>>> = vec![Vec::new()];
    for number in 1..=states {
        dags = dags
            .iter()
            .flat_map(|dag| {
                let singles = (0..number).map(|parent| vec![parent]);
                let pairs = (0..number).flat_map(|b| (0..b).map(move |a| vec![a, b]));
                let independent = pairs.filter(|pair| !ancestors(dag, pair[1]).contains(&pair[0]));
                singles
                    .chain(independent)
                    .map(|parents| [dag.clone(), vec![parents]].concat())
                    .collect::<Vec<_>>()
            })
            .collect();
    }
    dags
}

fn ancestors(dag: &[Vec<usize>], state: usize) -> BTreeSet<usize> {
    let mut found = BTreeSet::from([state]);
    if state > 0 {
        dag[state - 1].iter().for_each(|parent| found.extend(ancestors(dag, *parent)));
    }
    found
}

/// A world with this DAG, where bit i of `writes` says which of two keys state i + 1 writes. Merges also write what
/// conflicts.
fn build(dag: &[Vec<usize>], writes: usize, mutants: Mutants) -> World {
    let mut world = World::new(mutants);
    for (index, parents) in dag.iter().enumerate() {
        let parents: Vec<StateId> = parents.iter().map(|parent| id(*parent)).collect();
        let mut keys = world.model.conflicting(&parents);
        keys.insert(key(if writes >> index & 1 == 0 { "a" } else { "b" }));
        let value = set(&format!("{}", index + 1));
        let writes = keys.into_iter().map(|key| (key, vec![value.clone()])).collect();
        world.apply(Commit { id: id(index + 1), parents, writes });
    }
    world
}

#[test]
fn labels_are_right_in_every_dag_of_six_states() {
    let dags = all_dags(6);
    assert_eq!(dags.len(), 3730);
    for dag in dags {
        let world = build(&dag, 0, Mutants::default());
        let found = world.keyspace.dag();
        for x in 0..=6 {
            for y in 0..=6 {
                let (nx, ny) = (found.node(id(x)).unwrap(), found.node(id(y)).unwrap());
                assert_eq!(found.sees(nx, ny), ancestors(&dag, y).contains(&x), "{dag:?}: {y} sees {x}");
            }
        }
    }
}

/// Lets a transaction read key `a` at state `from`, collects in so many steps, and commits where rippling says; returns a
/// complaint.
fn ripple(
    dag: &[Vec<usize>],
    writes: usize,
    from: usize,
    collect: usize,
    mutants: Mutants,
) -> Option<String> {
    let mut world = build(dag, writes, mutants);
    let mut transaction = world.keyspace.begin(SESSION, &Begin::State(id(from))).unwrap();
    operate(&mut world.keyspace, &mut transaction, "a", &crate::model::READ).unwrap();
    operate(&mut world.keyspace, &mut transaction, "c", &write(b"1")).unwrap();
    for _ in 0..collect {
        world.keyspace.collect(1);
    }
    let retained: BTreeSet<StateId> = world.retained().into_iter().collect();
    let made = world.commit(transaction, &End::Serializability).unwrap().unwrap();
    let parent = world.model.states[&made].parents[0];
    let is_intact = |state: StateId| !world.model.written_between(id(from), state).contains(&key("a"));
    if !is_intact(parent) {
        return Some(format!("{dag:?} {writes:b}: read at {from}, committed below {parent}"));
    }
    // It went as far as it could: no state below would have done.
    let below = |state: &&StateId| {
        **state != made && world.model.states[*state].parents.contains(&parent) && is_intact(**state)
    };
    let further = world.model.states.keys().filter(|state| retained.contains(state)).find(below);
    further.map(|state| format!("{dag:?} {writes:b}: read at {from}, stopped at {parent} before {state}"))
}

#[test]
fn rippling_is_sound_and_goes_as_far_as_it_may_in_every_dag_of_four_states() {
    for dag in all_dags(4) {
        for writes in 0..16 {
            for from in 0..=4 {
                assert_eq!(ripple(&dag, writes, from, 0, Mutants::default()), None);
            }
        }
    }
}

#[test]
fn rippling_past_a_merge_must_test_the_other_side() {
    // Corrections 52.
    let mutant = Mutants::from(Mutant::RippleOwnWrites);
    let caught = all_dags(4)
        .iter()
        .any(|dag| (0..16).any(|writes| (0..=4).any(|from| ripple(dag, writes, from, 0, mutant).is_some())));
    assert!(caught);
}

#[test]
fn compression_changes_no_read_and_no_conflict_in_every_dag_of_five_states() {
    let keys = ["a", "b"].map(key);
    for (number, dag) in all_dags(5).iter().enumerate() {
        // Another assignment of keys for every DAG, and another state that is held.
        let (writes, held) = (number % 32, number % 6);
        let mut world = build(dag, writes, Mutants::default());
        let transaction = world.keyspace.begin(SESSION, &Begin::State(id(held))).unwrap();
        let before = world.retained().len();
        loop {
            let work = world.keyspace.collect(1);
            assert_eq!(world.difference(&keys), None, "{dag:?} {writes:b} held {held}");
            world.keyspace.assert_consistent();
            if work == 0 {
                break;
            }
        }
        let retained = world.retained();
        assert!(retained.contains(&id(held)) && retained.len() <= before);
        world.keyspace.abort(transaction);
        while world.keyspace.collect(100) > 0 {}
        assert_eq!(world.difference(&keys), None, "{dag:?} {writes:b} released");
        // Nothing is left but heads and what forks between them.
        let heads = world.keyspace.heads();
        for state in world.retained().iter().filter(|state| !heads.contains(state)) {
            let node = world.keyspace.dag().node(*state).unwrap();
            assert!(world.keyspace.dag().children(node).len() > 1, "{dag:?}: {state} could go");
        }
    }
}

#[test]
fn rippling_is_sound_after_compression_in_every_dag_of_four_states() {
    for dag in all_dags(4) {
        for writes in 0..16 {
            for from in 0..=4 {
                // Also in the middle of it: a state on its way out is nobody's parent.
                for collect in [1, 2, 3, 4, 5, 7, 9, 12, 100] {
                    assert_eq!(ripple(&dag, writes, from, collect, Mutants::default()), None, "{collect}");
                }
            }
        }
    }
    // Corrections 52: a state that takes over another's identity takes over its writes.
    let mutant = Mutants::from(Mutant::DropWriteSets);
    let caught = all_dags(4).iter().any(|dag| {
        (0..16).any(|writes| (0..=4).any(|from| ripple(dag, writes, from, 100, mutant).is_some()))
    });
    assert!(caught);
}
