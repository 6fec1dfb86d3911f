//! What a plan makes of one key.

use super::lens::{self, Lens, Parts};
use super::plan::{Layer, Plan};
use super::value::{Clash, Judge, Policy, Side, three_way};
use super::{Changed, effects_between};
use crate::dag::{Dag, Label, Node, View};
use crate::records::{Record, Records};
use crate::transaction::Effects;
use crate::{Change, StateId};
use datatypes::{Cell, Value};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A key's value at a set of states.
#[derive(Clone, Debug)]
pub(crate) struct Resolved {
    pub cell: Cell,
    /// Which state wrote the newest version that went into it.
    newest: Option<StateId>,
    /// How the key was changed since the fork, on all sides together; `None` if on none.
    pub change: Option<Change>,
}

/// For states that have changed a key independently, the label of the newest version that each sees, as far as it is
/// known.
fn newest_of_each(changes: &[Changed]) -> BTreeMap<usize, Label> {
    let independent = if are_independent(changes) { changes } else { &[] };
    independent.iter().filter_map(|changed| Some((changed.seen.first(), changed.newest?))).collect()
}

/// So many labels are not looked through in vain.
const FEW: usize = 4;

/// Of one of them.
fn newest_of(changes: &[Changed], place: usize) -> Option<Label> {
    changes[place].newest.filter(|_| are_independent(changes))
}

/// True if every change is seen by one state alone.
pub(super) fn are_independent(changes: &[Changed]) -> bool {
    changes.iter().all(|changed| changed.seen.count() == 1)
}

/// For each of so many states, how a key was changed by what it does not see of those before it, and by what it sees and
/// none before it.
pub(super) fn sides(changes: &[Changed], states: usize) -> Vec<(Option<Change>, Option<Change>)> {
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
pub(super) struct Evaluation<'e> {
    plan: &'e Plan,
    dag: &'e Dag,
    record: Record<'e>,
    key: &'e CompactKey,
    policy: Policy,
    /// By layer.
    known: Vec<Option<Result<Rc<Resolved>, Clash>>>,
}

impl<'e> Evaluation<'e> {
    pub fn new(
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

    pub fn as_a_whole(&mut self, view: &View<'_>) -> Result<(Effects, Change), Clash> {
        let resolved = self.layer(self.plan.top)?;
        let change = resolved.change.unwrap_or(Change::Other);
        let effects = self.record.with(view, |newest, _| effects_between(newest, &resolved.cell, change));
        Ok((effects, change))
    }

    /// The same of a collection, found by its changed elements; nothing, if it has to be looked at as a whole, as after a clash.
    pub fn by_elements(&mut self, view: &View<'_>) -> Option<(Effects, Change)> {
        let (layer, changes) = (&self.plan.layers[self.plan.top], self.changes(self.plan.top));
        // What differs from a base that was put together itself is not what was changed since the fork.
        let is_one = |base: &usize| self.plan.layers[*base].changes.of(self.key).is_empty();
        if !layer.bases.iter().flatten().all(is_one) {
            return None;
        }
        let as_is = self.as_it_is(view, layer, changes);
        let learned = self.learned(view, layer, changes, as_is)?;
        let mut learned = learned.iter();
        let mut touched = |(place, Changed { seen, written, .. }): (usize, &'e Changed)| {
            let elements: Vec<&[u8]> = match &written.elements {
                Some(known) if as_is != Some(place) => known.slice.iter().map(|element| &**element).collect(),
                _ => learned.next()?.iter().map(|element| &**element).collect(),
            };
            Some((seen.first(), elements))
        };
        let touched = changes.iter().enumerate().map(&mut touched).collect::<Option<Vec<_>>>()?;
        let other_side = match as_is {
            Some(place) if changes.len() == 2 => {
                let other = layer.states[changes[1 - place].seen.first()];
                Some(self.read((other, newest_of(changes, 1 - place)), |cell, _| cell.clone()))
            }
            _ => None,
        };
        let lens =
            self.newest(view, changes, |newest, _| Lens::new(newest, other_side.as_ref(), &touched))?;
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
                let judge = Judge { policy: self.policy, left_is_newer: newest_left > newest };
                let rule = (judge, left == right && right.adds_to_elements());
                let sides = [(base.states[0], None), at(state)];
                self.merge_elements(sides, &lens, &met, rule, &mut merged)?;
            }
            let both = left.and(right);
            change = Some(change.map_or(both, |before| before.and(both)));
            newest_left = newest_left.max(newest);
        }
        self.dag.meter().keys(lens.len());
        let newest = self.newest(view, changes, |newest, _| lens.parts(newest, 0..lens.len()))?;
        let change = change.unwrap_or(Change::Other);
        // An addition of nothing would be to the first element of all.
        if change.adds_to_elements() && !lens.adds(&newest, &merged) {
            return None;
        }
        let (from, to) = lens.differing_cells(&newest, &merged);
        Some((effects_between(&from, &to, change), change))
    }

    /// Shows the newest version that the view shows, which one of these changes made. Of a few that are known by their labels it is
    /// not looked for.
    fn newest<R>(
        &mut self,
        view: &View<'_>,
        changes: &[Changed],
        read: impl FnOnce(&Cell, Option<StateId>) -> R,
    ) -> R {
        let labels = (changes.len() <= FEW).then(|| changes.iter().map(|changed| changed.newest).collect());
        let labels: Option<SmallVec<[Label; FEW]>> = labels.flatten();
        let newest = labels.and_then(|labels| {
            self.dag.meter().lookups(labels.len());
            let with_id = |label: Label| Some((self.record.writer(label)?, label));
            labels.into_iter().map(with_id).collect::<Option<SmallVec<[_; FEW]>>>()?.into_iter().max()
        });
        match newest {
            Some((_, label)) => self.record.with_labelled(view, label, read),
            None => self.record.with(view, read),
        }
    }

    /// The place of a change that the newest version shows, and of which therefore only those elements count that others have
    /// changed as well: all others' elements are known. It is the one change whose elements are not, or the larger one of two.
    fn as_it_is(&mut self, view: &View<'_>, layer: &Layer, changes: &[Changed]) -> Option<usize> {
        let count = |changed: &Changed| {
            changed.written.elements.as_ref().map_or(usize::MAX, |elements| elements.slice.len())
        };
        let unknown = changes.iter().filter(|changed| changed.written.elements.is_none()).count();
        let place = match (unknown, changes) {
            (1, _) => changes.iter().position(|changed| changed.written.elements.is_none())?,
            (0, [one, other]) => usize::from(count(one) < count(other)),
            _ => return None,
        };
        let newest = self.newest(view, changes, |newest, id| lens::is_collection(newest).then_some(id))?;
        let at = (layer.states[changes[place].seen.first()], newest_of(changes, place));
        let seen = self.read(at, |_, seen| seen);
        (seen == newest).then_some(place)
    }

    /// Of the changes of which is not known which elements they changed, and of the one that the newest version shows (`as_is`), in
    /// their order: those that matter. Nothing, if not even that is known.
    fn learned(
        &mut self,
        view: &View<'_>,
        layer: &Layer,
        changes: &[Changed],
        as_is: Option<usize>,
    ) -> Option<Vec<Vec<Box<[u8]>>>> {
        if let Some(as_is) = as_is {
            let others = changes.iter().enumerate().filter(|(place, _)| *place != as_is);
            let elements =
                others.filter_map(|(_, changed)| Some(&changed.written.elements.as_ref()?.slice)).flatten();
            return Some(vec![elements.map(|element| Box::from(&**element)).collect()]);
        }
        let unknown: Vec<&Changed> =
            changes.iter().filter(|changed| changed.written.elements.is_none()).collect();
        if unknown.is_empty() {
            return Some(Vec::new());
        }
        self.record.with(view, |newest, _| lens::is_collection(newest).then_some(()))?;
        let first_at = |changed: &Changed| (layer.states[changed.seen.first()], None);
        let [fork] = layer.together[..] else { return None };
        // What a state took back to how it was at the fork, but not at its base, would not be found.
        let is_fork = |base: &usize| self.plan.layers[*base].states[..] == [fork];
        if !layer.bases.iter().flatten().all(is_fork) {
            return None;
        }
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

    /// Merges elements that both `here` and the states before it have changed since `base`; nothing, if they differ in more or clash.
    fn merge_elements(
        &mut self,
        [base, here]: [At; 2],
        lens: &Lens<'_>,
        places: &[usize],
        rule: (Judge, bool),
        merged: &mut Parts,
    ) -> Option<()> {
        let (before, _) = self.parts(base, lens, places)?;
        let (here, _) = self.parts(here, lens, places)?;
        for ((place, before), here) in places.iter().zip(before).zip(here) {
            merged[*place] = lens::merged(before, merged[*place].take(), here, rule).ok()?;
        }
        Some(())
    }

    pub fn layer(&mut self, place: usize) -> Result<Rc<Resolved>, Clash> {
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
        match are_independent(changes) {
            true => self.fold_independent(layer, changes),
            false => self.fold_mixed(layer, changes),
        }
    }

    /// Every change is seen by one state alone.
    fn fold_independent(&mut self, layer: &Layer, changes: &[Changed]) -> Result<Resolved, Clash> {
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

    /// Some changes are seen by several. A state that sees all changes before it settles what clashed among them.
    fn fold_mixed(&mut self, layer: &Layer, changes: &[Changed]) -> Result<Resolved, Clash> {
        let mut value = Ok(self.at((layer.states[0], None)));
        self.dag.meter().lookups(layer.states.len() / 4 + changes.len());
        for (state, sides) in sides(changes, layer.states.len()).into_iter().enumerate().skip(1) {
            let at = (layer.states[state], None);
            value = match (sides, value) {
                ((None, Some(right)), _) => Ok(Resolved { change: Some(right), ..self.at(at) }),
                (_, Err(clash)) => Err(clash),
                ((left, None), Ok(before)) => Ok(Resolved { change: before.change.or(left), ..before }),
                ((Some(left), Some(right)), Ok(before)) => {
                    self.meet(layer.bases[state], (&before, left), (at, right))
                }
            };
        }
        value
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::SeenBy;
    use datatypes::Mode;
    use std::sync::Arc;

    #[test]
    fn sides_are_what_each_state_sees_and_what_it_lacks() {
        let kinds = [
            Change::Additive(Mode::Increment),
            Change::Additive(Mode::IncrementFields),
            Change::AdditiveScores,
            Change::Other,
        ];
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let states = random.usize(2..150);
            let kind_count = random.usize(1..=kinds.len());
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
