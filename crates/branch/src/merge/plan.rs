//! Values of sets of states: a three-way merge over a recursive virtual base (Corrections 53).
//!
//! The value of one state is what it sees. The value of several is that of all but the last, merged with the last over
//! the value of their greatest common ancestors, which may be several again. Where values are sums this is inclusion
//! and exclusion: every addition counts once, however merges cross. States are taken in the order of their ids, so
//! every site computes the same.
//!
//! A key is merged only with those states at which it was changed, so that what a merge costs grows with the changes and
//! not with changes times branches.

use super::divergence::Notes;
use super::evaluation::{Evaluation, are_independent, sides};
use super::value::{Clash, Policy};
use super::{Changed, Changes, Resolved};
use crate::dag::{Dag, Node, SeenBy, View, VisibilitySplit};
use crate::records::Records;
use crate::transaction::Effects;
use crate::{Change, Mutant, Mutants, StateId};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Some states together.
#[derive(Debug)]
pub(super) struct Layer {
    /// In ascending order of ids.
    pub states: Vec<Node>,
    /// Of every state the layer of what it has in common with those before it, where a key needs that.
    pub bases: Vec<Option<usize>>,
    /// The greatest that all of them see.
    pub together: Vec<Node>,
    /// Of the requested keys: which heads see the changes that not all see, and how they changed the key.
    pub changes: Changes,
}

/// Which states to read and to merge for the values of some keys.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(super) layers: Vec<Layer>,
    pub(super) top: usize,
}

/// Makes a plan layer by layer.
#[derive(Debug)]
struct Planner {
    mutants: Mutants,
    layers: Vec<Layer>,
    /// Layers of several states, with the keys they were made for.
    known: BTreeMap<Vec<StateId>, (usize, BTreeSet<CompactKey>)>,
}

impl Planner {
    fn new(mutants: Mutants) -> Self {
        Planner { mutants, layers: Vec::new(), known: BTreeMap::new() }
    }

    fn layer(&mut self, dag: &Dag, states: &[Node], keys: &[&CompactKey]) -> usize {
        let mut states = dag.greatest(states).to_vec();
        states.sort_by_key(|node| dag.id(*node));
        if states.is_empty() {
            states.push(dag.root());
        }
        // One state needs to know no keys.
        let keys = keys.iter().filter(|_| states.len() > 1).map(|key| (*key).clone());
        let keys: BTreeSet<CompactKey> = keys.collect();
        let ids: Vec<StateId> = states.iter().map(|node| dag.id(*node)).collect();
        if let Some((layer, made_for)) = self.known.get(&ids)
            && keys.is_subset(made_for)
        {
            return *layer;
        }
        let place = self.add(states.clone());
        let made = (states.len() > 1).then(|| {
            let visibility_split = dag.visibility_split(&states);
            let changes = changes(dag, &visibility_split, &keys);
            (visibility_split, changes)
        });
        self.known.insert(ids, (place, keys));
        if let Some((visibility_split, changes)) = made {
            let mut bases = Bases::new(dag, (place, states.len()), visibility_split, changes);
            while bases.step(dag, self) {}
            bases.finish(self);
        }
        place
    }

    fn add(&mut self, states: Vec<Node>) -> usize {
        let bases = vec![None; states.len()];
        self.layers.push(Layer { states, bases, together: Vec::new(), changes: Changes::default() });
        self.layers.len() - 1
    }
}

/// Of some keys what not all see.
fn changes(dag: &Dag, visibility_split: &VisibilitySplit, keys: &BTreeSet<CompactKey>) -> Changes {
    let sketch = keys.iter().collect();
    let mut notes = Notes::default();
    for (state, seen) in &visibility_split.divergent {
        let writes = dag.writes(*state);
        if !writes.may_touch(sketch) {
            continue;
        }
        dag.meter().keys(writes.len().min(keys.len()));
        let (by, label) = (notes.number(seen), dag.versions(*state));
        // Whichever are fewer: a root's class has written all keys, a single transaction some few.
        if writes.len() < keys.len() {
            for (key, written) in writes.each().filter(|(key, _)| keys.contains(*key)) {
                notes.note(key, by, written, label);
            }
        } else {
            for (key, written) in keys.iter().filter_map(|key| Some((key, writes.written(key)?))) {
                notes.note(key, by, written, label);
            }
        }
    }
    notes.into_changes()
}

/// Finds what the states of a layer with these changes are merged over, a key or a state at a time.
#[derive(Debug)]
struct Bases {
    layer: usize,
    changes: Changes,
    /// What several see, the most recent first.
    shared: Vec<(Node, SeenBy)>,
    together: Vec<Node>,
    /// By state the places of the keys that meet other changes of them there; known of so many keys.
    met: Vec<Vec<u32>>,
    keys: usize,
    /// Of so many states it is known.
    states: usize,
}

impl Bases {
    fn new(
        dag: &Dag,
        (layer, states): (usize, usize),
        visibility_split: VisibilitySplit,
        changes: Changes,
    ) -> Self {
        dag.meter().states(visibility_split.divergent.len() / 8);
        Bases {
            layer,
            changes,
            shared: visibility_split.divergent.into_iter().filter(|(_, seen)| seen.count() > 1).collect(),
            together: visibility_split.common,
            met: vec![Vec::new(); states],
            keys: 0,
            states: 0,
        }
    }

    /// Goes on a little; false if all is known.
    fn step(&mut self, dag: &Dag, planner: &mut Planner) -> bool {
        if let Some((_, changes)) = self.changes.at(self.keys) {
            meetings(changes, self.met.len(), |state| {
                let keys = &mut self.met[state];
                if keys.last() != Some(&(self.keys as u32)) {
                    keys.push(self.keys as u32);
                }
            });
            self.keys += 1;
            return true;
        }
        let Some(met) = self.met.get(self.states) else { return false };
        if !met.is_empty() {
            let mut common = self.common(dag, self.states);
            if planner.mutants.has(Mutant::SingleForkPoint) {
                common.truncate(1);
            }
            let key = |place: &u32| self.changes.at(*place as usize).map(|(key, _)| key);
            let met = met.iter().filter(|_| common.len() > 1).filter_map(key);
            let base = planner.layer(dag, &common, &met.collect::<Vec<_>>());
            planner.layers[self.layer].bases[self.states] = Some(base);
        }
        self.states += 1;
        true
    }

    /// What a state and one before it both see: the greatest of it, the most recent first.
    fn common(&self, dag: &Dag, state: usize) -> Vec<Node> {
        dag.meter().states(self.shared.len() / 8);
        let shared = self.shared.iter().filter(|(_, seen)| seen.has(state) && seen.first() < state);
        let mut common: Vec<Node> = Vec::new();
        // A descendant of it was met before.
        for node in shared.map(|(node, _)| *node).chain(self.together.iter().copied()) {
            if !dag.seen_by_any(node, &common) {
                common.push(node);
            }
        }
        common.sort_by_key(|node| std::cmp::Reverse(dag.id(*node)));
        common
    }

    fn finish(self, planner: &mut Planner) {
        let layer = &mut planner.layers[self.layer];
        (layer.together, layer.changes) = (self.together, self.changes);
    }
}

/// Names of so many states those at which a key with these changes meets other ones; one may be named several times.
fn meetings(changes: &[Changed], states: usize, mut meets: impl FnMut(usize)) {
    if are_independent(changes) {
        let least = changes.iter().map(|changed| changed.seen.first()).min();
        let others = changes.iter().map(|changed| changed.seen.first());
        others.filter(|state| Some(*state) != least).for_each(&mut meets);
    } else {
        let sides = sides(changes, states).into_iter().enumerate();
        sides
            .filter(|(_, (left, right))| left.is_some() && right.is_some())
            .for_each(|(state, _)| meets(state));
    }
}

/// Makes a [`Plan`] for the keys that some states have changed apart, a key or a state at a time. Nothing may be collected
/// meanwhile, and nothing that was may come back.
#[derive(Debug)]
pub(crate) struct Planning {
    planner: Planner,
    bases: Bases,
}

impl Planning {
    /// For these states, the greatest in the order of their ids.
    pub fn new(
        dag: &Dag,
        states: &[Node],
        (visibility_split, changes): (VisibilitySplit, Changes),
        mutants: Mutants,
    ) -> Self {
        let mut planner = Planner::new(mutants);
        let layer = planner.add(states.to_vec());
        Planning { planner, bases: Bases::new(dag, (layer, states.len()), visibility_split, changes) }
    }

    /// Goes on a little; false if the plan is made.
    pub fn step(&mut self, dag: &Dag) -> bool {
        self.bases.step(dag, &mut self.planner)
    }

    /// The plan.
    pub fn finish(mut self) -> Plan {
        let top = self.bases.layer;
        self.bases.finish(&mut self.planner);
        Plan { layers: self.planner.layers, top }
    }
}

impl Plan {
    /// For the values of these keys at these states together.
    pub fn new(dag: &Dag, states: &[Node], keys: &BTreeSet<CompactKey>, mutants: Mutants) -> Self {
        let mut planner = Planner::new(mutants);
        let top = planner.layer(dag, states, &keys.iter().collect::<Vec<_>>());
        Plan { layers: planner.layers, top }
    }

    /// What the states changed independently, as far as the plan has been built.
    pub fn into_changes(mut self) -> Changes {
        std::mem::take(&mut self.layers[self.top].changes)
    }

    /// The value of a key, which is one that the plan was made for.
    pub fn resolve(
        &self,
        dag: &Dag,
        records: &mut Records,
        key: &CompactKey,
        policy: Policy,
    ) -> Result<Resolved, Clash> {
        let resolved = Evaluation::new(self, (dag, records), key, policy).layer(self.top)?;
        Ok(Rc::unwrap_or_clone(resolved))
    }

    /// What a merge writes to a key, which is one that the plan was made for, on top of the newest version that its states
    /// see together; and how that changes the key.
    pub fn effects(
        &self,
        (dag, records): (&Dag, &mut Records),
        view: &View<'_>,
        key: &CompactKey,
        policy: Policy,
    ) -> Result<(Effects, Change), Clash> {
        let mut evaluation = Evaluation::new(self, (dag, records), key, policy);
        match evaluation.by_elements(view) {
            None => evaluation.as_a_whole(view),
            Some(effects) => {
                let mut whole = || dag.meter().uncounted(|| evaluation.as_a_whole(view));
                debug_assert_eq!(Ok(&effects), whole().as_ref(), "elements are enough");
                Ok(effects)
            }
        }
    }
}
