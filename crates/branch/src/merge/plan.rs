//! Values of sets of states: a three-way merge over a recursive virtual base (Corrections 53).
//!
//! The value of one state is what it sees. The value of several is that of all but the last, merged with the last over
//! the value of their greatest common ancestors, which may be several again. Where values are sums this is inclusion
//! and exclusion: every addition counts once, however merges cross. States are taken in the order of their ids, so
//! every site computes the same.
//!
//! A key is merged only with those states at which it was changed, so that what a merge costs grows with the changes and
//! not with changes times branches.

use super::effects_between;
use super::lens::{self, Lens, Parts};
use super::value::{Clash, Judge, Policy, Side, three_way};
use super::parting::Notes;
use super::{Changed, Changes};
use crate::dag::{Dag, Label, Node, SeenBy, Spread, View};
use crate::records::{Record, Records};
use crate::transaction::Effects;
use crate::{Change, Mutant, Mutants, StateId};
use datatypes::{Cell, Mode, Value};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Some states together.
#[derive(Debug)]
struct Layer {
    /// In ascending order of ids.
    states: Vec<Node>,
    /// Of every state the layer of what it has in common with those before it, where a key needs that.
    bases: Vec<Option<usize>>,
    /// The greatest that all of them see.
    together: Vec<Node>,
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
            let spread = dag.spread(&states);
            let changes = changes(dag, &spread, &keys);
            (spread, changes)
        });
        self.known.insert(ids, (place, keys));
        if let Some((spread, changes)) = made {
            let mut bases = Bases::new(dag, (place, states.len()), spread, changes);
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
fn changes(dag: &Dag, spread: &Spread, keys: &BTreeSet<CompactKey>) -> Changes {
    let sketch = keys.iter().collect();
    let mut notes = Notes::default();
    for (state, seen) in &spread.apart {
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
    fn new(dag: &Dag, (layer, states): (usize, usize), spread: Spread, changes: Changes) -> Self {
        dag.meter().states(spread.apart.len() / 8);
        Bases {
            layer,
            changes,
            shared: spread.apart.into_iter().filter(|(_, seen)| seen.count() > 1).collect(),
            together: spread.together,
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
    if are_apart(changes) {
        let least = changes.iter().map(|changed| changed.seen.first()).min();
        let others = changes.iter().map(|changed| changed.seen.first());
        others.filter(|state| Some(*state) != least).for_each(&mut meets);
    } else {
        let sides = sides(changes, states).into_iter().enumerate();
        sides.filter(|(_, (left, right))| left.is_some() && right.is_some()).for_each(|(state, _)| meets(state));
    }
}

/// Of states that have changed a key apart the label of the newest version that each sees of it, as far as it is known.
fn newest_of_each(changes: &[Changed]) -> BTreeMap<usize, Label> {
    let apart = if are_apart(changes) { changes } else { &[] };
    apart.iter().filter_map(|changed| Some((changed.seen.first(), changed.newest?))).collect()
}

/// True if every change is seen by one state alone.
fn are_apart(changes: &[Changed]) -> bool {
    changes.iter().all(|changed| changed.seen.count() == 1)
}

/// For each of so many states, how a key was changed by what it does not see of those before it, and by what it sees and
/// none before it.
fn sides(changes: &[Changed], states: usize) -> Vec<(Option<Change>, Option<Change>)> {
    let and =
        |before: Option<Change>, change: Change| Some(before.map_or(change, |before| before.and(change)));
    let mut sides = vec![(None, None); states];
    let mut kinds: SmallVec<[Change; 2]> = SmallVec::new();
    for Changed { seen, written, .. } in changes {
        let change = written.change;
        let right = &mut sides[seen.first()].1;
        *right = and(*right, change);
        if !kinds.contains(&change) {
            kinds.push(change);
        }
    }
    for kind in kinds {
        // How many more changes those before a state see than those before the one before it, and how many of all these
        // it sees itself.
        let (mut more, mut own) = (vec![0usize; states + 1], vec![0usize; states]);
        for Changed { seen, .. } in changes.iter().filter(|changed| changed.written.change == kind) {
            more[seen.first() + 1] += 1;
            seen.heads().skip(1).for_each(|state| own[state] += 1);
        }
        let mut before = 0;
        for (state, (left, _)) in sides.iter_mut().enumerate() {
            before += more[state];
            if before > own[state] {
                *left = and(*left, kind);
            }
        }
    }
    sides
}

/// A state, and the label of the version that it sees of the key, where that is known.
type At = (Node, Option<Label>);

/// One evaluation of a plan.
struct Evaluation<'e> {
    plan: &'e Plan,
    dag: &'e Dag,
    record: Record<'e>,
    key: &'e CompactKey,
    policy: Policy,
    /// By layer.
    known: Vec<Option<Result<Rc<Resolved>, Clash>>>,
}

impl<'e> Evaluation<'e> {
    fn new(
        plan: &'e Plan,
        (dag, records): (&'e Dag, &'e mut Records),
        key: &'e CompactKey,
        policy: Policy,
    ) -> Self {
        let known = plan.layers.iter().map(|_| None).collect();
        let record = records.record(key);
        Evaluation { plan, dag, record, key, policy, known }
    }

    fn changes(&self, place: usize) -> &'e [Changed] {
        self.plan.layers[place].changes.of(self.key)
    }

    fn as_a_whole(&mut self, view: &View<'_>) -> Result<(Effects, Change), Clash> {
        let resolved = self.layer(self.plan.top)?;
        let change = resolved.change.unwrap_or(Change::Other);
        let effects = self.record.with(view, |newest, _| effects_between(newest, &resolved.cell, change));
        Ok((effects, change))
    }

    /// The same of a collection, found by its changed elements; nothing, if it has to be looked at as a whole.
    fn by_elements(&mut self, view: &View<'_>) -> Option<Result<(Effects, Change), Clash>> {
        let (layer, changes) = (&self.plan.layers[self.plan.top], self.changes(self.plan.top));
        let learned = self.learned(view, layer, changes)?;
        let mut learned = learned.iter();
        let mut touched = |Changed { seen, written, .. }: &'e Changed| {
            let elements: Vec<&[u8]> = match &written.elements {
                Some(known) => known.iter().map(|element| &**element).collect(),
                None => learned.next()?.iter().map(|element| &**element).collect(),
            };
            Some((seen.first(), elements))
        };
        let touched = changes.iter().map(&mut touched).collect::<Option<Vec<_>>>()?;
        let lens = self.record.with(view, |newest, _| Lens::new(newest, &touched))?;
        let labels = newest_of_each(changes);
        let at = |state: usize| (layer.states[state], labels.get(&state).copied());
        // What is merged of the elements that were met.
        let (mut merged, mut is_met): (Parts, _) = (vec![None; lens.len()], vec![false; lens.len()]);
        let mut newest_left = self.take_parts(at(0), &lens, lens.changed_first_at(0), &mut merged)?;
        let mut change: Option<Change> = None;
        for (state, sides) in sides(changes, layer.states.len()).into_iter().enumerate().skip(1) {
            lens.changed_first_at(state - 1).iter().for_each(|place| is_met[*place] = true);
            let own = lens.changed_first_at(state);
            let (left, right) = match sides {
                (left, None) => {
                    change = change.or(left);
                    continue;
                }
                (None, right) => {
                    let met = (0..lens.len()).filter(|place| is_met[*place]);
                    let seen: Vec<usize> = met.chain(own.iter().copied()).collect();
                    newest_left = self.take_parts(at(state), &lens, &seen, &mut merged)?;
                    change = right;
                    continue;
                }
                (Some(left), Some(right)) => (left, right),
            };
            // What none before it has changed is as the state sees it; of the rest it sees what their base does, but for its own.
            let (met, new): (Vec<usize>, Vec<usize>) = own.iter().partition(|place| is_met[**place]);
            let newest = self.take_parts(at(state), &lens, &new, &mut merged)?;
            if !met.is_empty() {
                let base = &self.plan.layers[layer.bases[state]?];
                if !base.changes.of(self.key).is_empty() {
                    return None;
                }
                let (before, _) = self.parts((base.states[0], None), &lens, &met)?;
                let (here, _) = self.parts(at(state), &lens, &met)?;
                let judge = Judge { policy: self.policy, left_is_newer: newest_left > newest };
                let is_additive = left == right && right == Change::Additive(Mode::IncrementFields);
                for ((place, before), here) in met.into_iter().zip(before).zip(here) {
                    match lens::merged(before, merged[place].take(), here, (judge, is_additive)) {
                        Ok(part) => merged[place] = part,
                        Err(clash) => return Some(Err(clash)),
                    }
                }
            }
            let both = left.and(right);
            change = Some(change.map_or(both, |before| before.and(both)));
            newest_left = newest_left.max(newest);
        }
        self.dag.meter().keys(lens.len());
        let newest = self.record.with(view, |newest, _| lens.parts(newest, 0..lens.len()))?;
        let change = change.unwrap_or(Change::Other);
        // An addition of nothing would be to the first field of all.
        if change == Change::Additive(Mode::IncrementFields) && !lens.adds(&newest, &merged) {
            return None;
        }
        let (from, to) = lens.apart(&newest, &merged);
        Some(Ok((effects_between(&from, &to, change), change)))
    }

    /// Of the changes of which is not known which elements they changed, in their order: those that they may have changed. Nothing, if
    /// not even that is known.
    fn learned(
        &mut self,
        view: &View<'_>,
        layer: &Layer,
        changes: &[Changed],
    ) -> Option<Vec<Vec<Box<[u8]>>>> {
        let (known, unknown): (Vec<&Changed>, Vec<&Changed>) =
            changes.iter().partition(|changed| changed.written.elements.is_some());
        if unknown.is_empty() {
            return Some(Vec::new());
        }
        let newest = self.record.with(view, |newest, id| lens::is_collection(newest).then_some(id))?;
        let first_at = |changed: &Changed| (layer.states[changed.seen.first()], None);
        if let [only] = &unknown[..]
            && self.read(first_at(only), |_, seen| seen) == newest
        {
            // What nobody else has changed stays as it is in the newest version.
            let elements = known.iter().filter_map(|changed| changed.written.elements.as_ref()).flatten();
            return Some(vec![elements.map(|element| Box::from(&**element)).collect()]);
        }
        let [fork] = layer.together[..] else { return None };
        let base = self.read((fork, None), |cell, _| cell.clone());
        let bytes = base.value.as_ref().map_or(0, Value::memory);
        self.dag.meter().bytes((unknown.len() + 1) * bytes);
        let differing =
            |changed: &&Changed| self.read(first_at(changed), |cell, _| lens::differing(&base, cell));
        unknown.iter().map(differing).collect()
    }

    /// What a state sees of the elements at these places, and which state wrote that.
    fn parts(&mut self, at: At, lens: &Lens<'_>, places: &[usize]) -> Option<(Parts, Option<StateId>)> {
        self.dag.meter().keys(places.len());
        self.read(at, |cell, newest| Some((lens.parts(cell, places.iter().copied())?, newest)))
    }

    /// The same, put where it belongs among those of all elements.
    fn take_parts(
        &mut self,
        at: At,
        lens: &Lens<'_>,
        places: &[usize],
        all: &mut Parts,
    ) -> Option<Option<StateId>> {
        let (parts, newest) = self.parts(at, lens, places)?;
        places.iter().zip(parts).for_each(|(place, part)| all[*place] = part);
        Some(newest)
    }

    fn layer(&mut self, place: usize) -> Result<Rc<Resolved>, Clash> {
        if let Some(known) = &self.known[place] {
            return known.clone();
        }
        let value = self.fold(place).map(Rc::new);
        self.known[place] = Some(value.clone());
        value
    }

    fn fold(&mut self, place: usize) -> Result<Resolved, Clash> {
        let (layer, changes) = (&self.plan.layers[place], self.changes(place));
        if changes.is_empty() {
            return Ok(self.at((layer.states[0], None)));
        }
        match are_apart(changes) {
            true => self.fold_apart(layer, changes),
            false => self.fold_mixed(layer, changes),
        }
    }

    /// Every change is seen by one state alone.
    fn fold_apart(&mut self, layer: &Layer, changes: &[Changed]) -> Result<Resolved, Clash> {
        self.dag.meter().lookups(changes.len());
        let mut changed: Vec<(usize, &Changed)> =
            changes.iter().map(|changed| (changed.seen.first(), changed)).collect();
        changed.sort_by_key(|(state, _)| *state);
        let mut value: Option<Resolved> = None;
        for (state, Changed { written, newest, .. }) in changed {
            let (at, change) = ((layer.states[state], *newest), written.change);
            value = Some(match value {
                None => Resolved { change: Some(change), ..self.at(at) },
                Some(before) => {
                    let left = before.change.unwrap_or(change);
                    self.meet(layer.bases[state], (&before, left), (at, change))?
                }
            });
        }
        Ok(value.unwrap_or_else(|| self.at((layer.states[0], None))))
    }

    /// Some changes are seen by several.
    fn fold_mixed(&mut self, layer: &Layer, changes: &[Changed]) -> Result<Resolved, Clash> {
        let mut value = self.at((layer.states[0], None));
        self.dag.meter().lookups(layer.states.len() / 4 + changes.len());
        for (state, sides) in sides(changes, layer.states.len()).into_iter().enumerate().skip(1) {
            let at = (layer.states[state], None);
            match sides {
                (left, None) => value.change = value.change.or(left),
                (None, right) => value = Resolved { change: right, ..self.at(at) },
                (Some(left), Some(right)) => {
                    value = self.meet(layer.bases[state], (&value, left), (at, right))?;
                }
            }
        }
        Ok(value)
    }

    /// Both sides have changed the key: what was merged so far, and one state.
    fn meet(
        &mut self,
        base: Option<usize>,
        (left, left_change): (&Resolved, Change),
        (at, change): (At, Change),
    ) -> Result<Resolved, Clash> {
        let base = base.map(|base| self.layer(base)).transpose()?;
        let base = base.as_ref().map_or(&Cell::ABSENT, |base| &base.cell);
        self.dag.meter().bytes(base.value.as_ref().map_or(0, Value::memory));
        let left_side = Side { cell: &left.cell, change: left_change, newest: left.newest };
        let both = left_change.and(change);
        let policy = self.policy;
        self.read(at, |cell, newest| {
            let cell = three_way(base, &left_side, &Side { cell, change, newest }, policy)?;
            let change = left.change.map_or(both, |before| before.and(both));
            Ok(Resolved { cell, newest: left.newest.max(newest), change: Some(change) })
        })
    }

    fn at(&mut self, at: At) -> Resolved {
        self.read(at, |cell, newest| Resolved { cell: cell.clone(), newest, change: None })
    }

    fn read<R>(&mut self, (state, newest): At, read: impl FnOnce(&Cell, Option<StateId>) -> R) -> R {
        let view = self.dag.view(&[state]);
        match newest {
            Some(label) => self.record.with_labelled(&view, label, read),
            None => self.record.with(&view, read),
        }
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
        (spread, changes): (Spread, Changes),
        mutants: Mutants,
    ) -> Self {
        let mut planner = Planner::new(mutants);
        let layer = planner.add(states.to_vec());
        Planning { planner, bases: Bases::new(dag, (layer, states.len()), spread, changes) }
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
                debug_assert_eq!(effects, whole(), "elements are enough");
                effects
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn sides_are_what_each_state_sees_and_what_it_lacks() {
        let kinds =
            [Change::Additive(Mode::Increment), Change::Additive(Mode::IncrementFields), Change::Other];
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let states = random.usize(2..150);
            let kind_count = random.usize(1..=3);
            let changed = |random: &mut fastrand::Rng| {
                let heads: Vec<usize> = (0..random.usize(1..4)).map(|_| random.usize(..states)).collect();
                let seen = Arc::new(SeenBy::these(&heads, states));
                Changed { seen, written: kinds[random.usize(..kind_count)].into(), newest: None }
            };
            let changes: Vec<Changed> = (0..random.usize(1..20)).map(|_| changed(&mut random)).collect();
            for (state, sides) in sides(&changes, states).into_iter().enumerate() {
                let all = |is_meant: &dyn Fn(&SeenBy) -> bool| {
                    let meant = changes.iter().filter(|changed| is_meant(&changed.seen));
                    meant.map(|changed| changed.written.change).reduce(Change::and)
                };
                let lacked = all(&|seen| seen.first() < state && !seen.has(state));
                assert_eq!(sides, (lacked, all(&|seen| seen.first() == state)), "seed {seed}, state {state}");
            }
        }
    }
}
