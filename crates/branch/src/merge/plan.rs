//! Values of sets of states: a three-way merge over a recursive virtual base (Corrections 53).
//!
//! The value of one state is what it sees. The value of several is that of all but the last, merged with the last over
//! the value of their greatest common ancestors, which may be several again. Where values are sums this is inclusion
//! and exclusion: every addition counts once, however merges cross. States are taken in the order of their ids, so
//! every site computes the same.
//!
//! A key is merged only with those states at which it was changed, so that what a merge costs grows with the changes and
//! not with changes times branches.

use super::value::{Clash, Policy, Side, three_way};
use super::{Changes, Parting, note};
use crate::dag::{Dag, Node, SeenBy, Spread};
use crate::records::Records;
use crate::{Change, Mutant, Mutants, StateId};
use datatypes::{Cell, Value};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};

/// Some states together.
#[derive(Debug)]
struct Layer {
    /// In ascending order of ids.
    states: Vec<Node>,
    /// Of every state the layer of what it has in common with those before it, where a key needs that.
    bases: Vec<Option<usize>>,
    /// Of the keys that are asked for here: who sees the changes that not all see, and how they changed it.
    changes: Changes,
}

/// Which states to read and to merge for the values of some keys.
#[derive(Debug)]
pub(crate) struct Plan {
    layers: Vec<Layer>,
    top: usize,
}

/// A key's value at a set of states.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub cell: Cell,
    /// Which state wrote the newest version that went into it.
    newest: Option<StateId>,
    /// How the key was changed since the fork, on all sides together; `None` if on none.
    pub change: Option<Change>,
}

struct Planner<'d> {
    dag: &'d Dag,
    mutants: Mutants,
    layers: Vec<Layer>,
    /// Layers of several states, with the keys they were made for.
    known: BTreeMap<Vec<StateId>, (usize, BTreeSet<CompactKey>)>,
}

impl Planner<'_> {
    fn layer(&mut self, states: &[Node], keys: &BTreeSet<CompactKey>) -> usize {
        let mut states = self.dag.greatest(states).to_vec();
        states.sort_by_key(|node| self.dag.id(*node));
        if states.is_empty() {
            states.push(self.dag.root());
        }
        let ids: Vec<StateId> = states.iter().map(|node| self.dag.id(*node)).collect();
        if let Some((layer, made_for)) = self.known.get(&ids)
            && (states.len() == 1 || keys.is_subset(made_for))
        {
            return *layer;
        }
        let place = self.layers.len();
        self.known.insert(ids, (place, keys.clone()));
        self.add(states.clone());
        if states.len() > 1 {
            let spread = self.dag.spread(&states);
            let changes = self.changes(&spread, keys);
            self.found(place, &spread, changes);
        }
        place
    }

    fn add(&mut self, states: Vec<Node>) {
        let bases = vec![None; states.len()];
        self.layers.push(Layer { states, bases, changes: BTreeMap::new() });
    }

    /// A layer has these changes: it needs the layers below it.
    fn found(&mut self, place: usize, spread: &Spread, changes: Changes) {
        self.dag.meter().states(spread.apart.len() / 8);
        let shared: Vec<&(Node, SeenBy)> = spread.apart.iter().filter(|(_, seen)| seen.count() > 1).collect();
        for (state, keys) in met(&changes) {
            let common = self.common((&shared, &spread.together), state);
            self.layers[place].bases[state] = Some(self.layer(&common, &keys));
        }
        self.layers[place].changes = changes;
    }

    /// What a state and one before it both see: the greatest of it.
    fn common(&self, (shared, together): (&[&(Node, SeenBy)], &[Node]), state: usize) -> Vec<Node> {
        self.dag.meter().states(shared.len() / 8);
        let shared = shared.iter().filter(|(_, seen)| seen.has(state) && seen.first() < state);
        let mut common: Vec<Node> = Vec::new();
        // A descendant of it was met before.
        for node in shared.map(|(node, _)| *node).chain(together.iter().copied()) {
            if !self.dag.seen_by_any(node, &common) {
                common.push(node);
            }
        }
        common.sort_by_key(|node| std::cmp::Reverse(self.dag.id(*node)));
        if self.mutants.has(Mutant::SingleForkPoint) {
            common.truncate(1);
        }
        common
    }

    fn changes(&self, spread: &Spread, keys: &BTreeSet<CompactKey>) -> Changes {
        let sketch = keys.iter().collect();
        let mut changes = Changes::new();
        for (state, seen) in &spread.apart {
            let writes = self.dag.writes(*state);
            if !writes.may_touch(sketch) {
                continue;
            }
            self.dag.meter().keys(writes.len().min(keys.len()));
            // Whichever are fewer: a root's class has written all keys, a single transaction some few.
            if writes.len() < keys.len() {
                let wanted = writes.iter().filter(|(key, _)| keys.contains(*key));
                wanted.for_each(|(key, change)| note(&mut changes, key, seen, change));
            } else {
                let written = keys.iter().filter_map(|key| Some((key, writes.get(key)?)));
                written.for_each(|(key, change)| note(&mut changes, key, seen, change));
            }
        }
        changes
    }
}

/// The states at which keys meet other changes of them, with these keys.
fn met(changes: &Changes) -> BTreeMap<usize, BTreeSet<CompactKey>> {
    let mut met: BTreeMap<usize, BTreeSet<CompactKey>> = BTreeMap::new();
    for (key, changes) in changes {
        for (seen, _) in changes {
            let state = seen.first();
            if matches!(sides(changes, state), (Some(_), Some(_))) {
                met.entry(state).or_default().insert(key.clone());
            }
        }
    }
    met
}

/// How a key was changed by what a state does not see of those before it, and by what it alone sees.
fn sides(changes: &[(SeenBy, Change)], state: usize) -> (Option<Change>, Option<Change>) {
    let (mut left, mut right): (Option<Change>, Option<Change>) = (None, None);
    for (seen, change) in changes {
        let side = match (seen.first().cmp(&state), seen.has(state)) {
            (std::cmp::Ordering::Less, false) => &mut left,
            (std::cmp::Ordering::Equal, _) => &mut right,
            _ => continue,
        };
        *side = Some(side.map_or(*change, |before| before.and(*change)));
    }
    (left, right)
}

/// One evaluation of a plan.
struct Evaluation<'e> {
    plan: &'e Plan,
    dag: &'e Dag,
    records: &'e mut Records,
    key: &'e CompactKey,
    policy: Policy,
    /// By layer.
    known: Vec<Option<Result<Resolved, Clash>>>,
}

impl Evaluation<'_> {
    fn layer(&mut self, place: usize) -> Result<Resolved, Clash> {
        if let Some(known) = &self.known[place] {
            return known.clone();
        }
        let value = self.fold(place);
        self.known[place] = Some(value.clone());
        value
    }

    fn fold(&mut self, place: usize) -> Result<Resolved, Clash> {
        let layer = &self.plan.layers[place];
        let changes = layer.changes.get(self.key).map_or(&[][..], Vec::as_slice);
        if changes.is_empty() {
            return Ok(self.at(layer.states[0]));
        }
        match changes.iter().all(|(seen, _)| seen.count() == 1) {
            true => self.fold_apart(layer, changes),
            false => self.fold_mixed(layer, changes),
        }
    }

    /// Every change is seen by one state alone.
    fn fold_apart(&mut self, layer: &Layer, changes: &[(SeenBy, Change)]) -> Result<Resolved, Clash> {
        self.dag.meter().lookups(changes.len());
        let mut changed: Vec<(usize, Change)> =
            changes.iter().map(|(seen, change)| (seen.first(), *change)).collect();
        changed.sort_by_key(|(state, _)| *state);
        let mut value: Option<Resolved> = None;
        for (state, change) in changed {
            let here = Resolved { change: Some(change), ..self.at(layer.states[state]) };
            value = Some(match value {
                None => here,
                Some(before) => {
                    let left = before.change.unwrap_or(change);
                    self.meet(layer.bases[state], (&before, left), (&here, change))?
                }
            });
        }
        Ok(value.unwrap_or_else(|| self.at(layer.states[0])))
    }

    /// Some changes are seen by several.
    fn fold_mixed(&mut self, layer: &Layer, changes: &[(SeenBy, Change)]) -> Result<Resolved, Clash> {
        let mut value = self.at(layer.states[0]);
        let mut changed: Vec<usize> = changes.iter().map(|(seen, _)| seen.first()).collect();
        changed.sort_unstable();
        self.dag.meter().lookups(layer.states.len() + changes.len() * changes.len() / 2);
        for state in 1..layer.states.len() {
            if value.change.is_some() && changed.binary_search(&state).is_err() {
                continue;
            }
            match sides(changes, state) {
                (left, None) => value.change = value.change.or(left),
                (None, right) => value = Resolved { change: right, ..self.at(layer.states[state]) },
                (Some(left), Some(right)) => {
                    let here = self.at(layer.states[state]);
                    value = self.meet(layer.bases[state], (&value, left), (&here, right))?;
                }
            }
        }
        Ok(value)
    }

    /// Both sides have changed the key.
    fn meet(
        &mut self,
        base: Option<usize>,
        left: (&Resolved, Change),
        right: (&Resolved, Change),
    ) -> Result<Resolved, Clash> {
        let base = base.map(|base| self.layer(base)).transpose()?;
        let base = base.map_or(Cell::ABSENT, |base| base.cell);
        self.dag.meter().bytes(base.value.as_ref().map_or(0, Value::memory));
        merged(&base, left, right, self.policy)
    }

    fn at(&mut self, state: Node) -> Resolved {
        let (cell, newest) = self.records.version(self.key, &self.dag.view(&[state]));
        Resolved { cell, newest, change: None }
    }
}

impl Plan {
    /// For the values of these keys at these states together.
    pub fn new(dag: &Dag, states: &[Node], keys: &BTreeSet<CompactKey>, mutants: Mutants) -> Self {
        let mut planner = Planner { dag, mutants, layers: Vec::new(), known: BTreeMap::new() };
        let top = planner.layer(states, keys);
        Plan { layers: planner.layers, top }
    }

    /// The same for the keys that these states, the greatest in the order of their ids, have changed apart.
    pub fn of(dag: &Dag, states: &[Node], parting: Parting, mutants: Mutants) -> Self {
        let mut planner = Planner { dag, mutants, layers: Vec::new(), known: BTreeMap::new() };
        planner.add(states.to_vec());
        planner.found(0, &parting.spread, parting.changes);
        Plan { layers: planner.layers, top: 0 }
    }

    /// What the states changed apart, as far as the plan was told.
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
        let known = self.layers.iter().map(|_| None).collect();
        Evaluation { plan: self, dag, records, key, policy, known }.layer(self.top)
    }
}

/// The merge of two sides that both changed the key, each with its change.
fn merged(
    base: &Cell,
    (left, left_change): (&Resolved, Change),
    (right, right_change): (&Resolved, Change),
    policy: Policy,
) -> Result<Resolved, Clash> {
    let left_side = Side { cell: &left.cell, change: left_change, newest: left.newest };
    let right_side = Side { cell: &right.cell, change: right_change, newest: right.newest };
    let cell = three_way(base, &left_side, &right_side, policy)?;
    let change = left_change.and(right_change);
    let change = left.change.map_or(change, |before| before.and(change));
    Ok(Resolved { cell, newest: left.newest.max(right.newest), change: Some(change) })
}
