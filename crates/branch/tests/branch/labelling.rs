//! The State DAG against explicit sets of ancestors.

use crate::model::Model;
use anabranch_branch::{Commit, Dag, Mutant, Mutants, Node, StateId, WriteSet};
use std::collections::BTreeSet;
use types::{Incarnation, ProcessId, Rng};

/// A DAG and its model, from a seed.
fn random(seed: u64, states: u64, mutants: Mutants) -> (Dag, Model) {
    let (mut random, mut dag, mut model) = (Rng::with_seed(seed), Dag::new(mutants), Model::new());
    let mut all = vec![StateId::ROOT];
    for number in 1..=states {
        let window = all.len().min(1 + random.usize(..8));
        let mut parents: Vec<StateId> = (0..1 + random.usize(..3) / 2 + random.usize(..4) / 3)
            .map(|_| all[all.len() - 1 - random.usize(..window)])
            .collect();
        parents.sort_unstable();
        parents.dedup();
        let id = StateId::made_by(number, ProcessId(1), Incarnation(1));
        dag.insert(id, &parents, WriteSet::default()).unwrap();
        model.add(&Commit { id, parents, writes: Vec::new() });
        all.push(id);
    }
    (dag, model)
}

fn ids(dag: &Dag, nodes: impl IntoIterator<Item = Node>) -> BTreeSet<StateId> {
    nodes.into_iter().map(|node| dag.id(node)).collect()
}

fn misjudged(dag: &Dag, model: &Model) -> bool {
    dag.states().any(|x| dag.states().any(|y| dag.sees(x, y) != model.sees(dag.id(x), dag.id(y))))
}

#[test]
fn the_descendant_check_is_the_ancestor_relation() {
    for seed in 0..200 {
        let (dag, model) = random(seed, 40, Mutants::default());
        assert!(!misjudged(&dag, &model), "seed {seed}");
        assert_eq!(ids(&dag, dag.heads()), model.greatest(&model.states.keys().copied().collect()));
        assert!(dag.heads().map(|head| dag.id(head)).is_sorted_by(|a, b| a > b), "the most recent first");
    }
}

#[test]
fn a_sibling_must_not_see_its_elder_siblings_branch() {
    // Corrections 51: the second child comes when the first has descendants already.
    let caught = (0..20).any(|seed| {
        let (dag, model) = random(seed, 40, Mutant::ForkSeesSibling.into());
        misjudged(&dag, &model)
    });
    assert!(caught);
}

#[test]
fn common_ancestors_and_differences_are_those_of_the_sets() {
    for seed in 0..100 {
        let (dag, model) = random(seed, 30, Mutants::default());
        let nodes: Vec<Node> = dag.states().collect();
        let mut random = Rng::with_seed(seed);
        for _ in 0..60 {
            let some = |random: &mut Rng| -> Vec<Node> {
                (0..1 + random.usize(..3)).map(|_| nodes[random.usize(..nodes.len())]).collect()
            };
            let (a, b) = (some(&mut random), some(&mut random));
            let id = |nodes: &[Node]| -> Vec<StateId> { nodes.iter().map(|node| dag.id(*node)).collect() };
            let (seen_a, seen_b) = (model.union(&id(&a)), model.union(&id(&b)));
            assert_eq!(ids(&dag, dag.common(&a, &b)), model.greatest(&(&seen_a & &seen_b)), "seed {seed}");
            assert_eq!(ids(&dag, dag.beyond(&a, &b)), &seen_a - &seen_b, "seed {seed}");
            assert_eq!(ids(&dag, dag.fork_points(&a)), model.fork_points(&id(&a)), "seed {seed}");
            assert_eq!(ids(&dag, dag.greatest(&a)), model.greatest(&id(&a).into_iter().collect()));
        }
    }
}

#[test]
fn a_state_whose_parent_is_unknown_is_refused() {
    let mut dag = Dag::new(Mutants::default());
    let [a, b] = [1, 2].map(|number| StateId::made_by(number, ProcessId(1), Incarnation(1)));
    let refused = dag.insert(b, &[a], WriteSet::default()).unwrap_err();
    assert_eq!(refused.0, a);
    assert_eq!(dag.len(), 1);
}
