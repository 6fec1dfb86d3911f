//! Values of sets of states: a three-way merge over a recursive virtual base (Corrections 53).
//!
//! The value of one state is what it sees. The value of several is that of all but the last, merged with the last over
//! the value of their greatest common ancestors, which may be several again. Where values are sums this is inclusion
//! and exclusion: every addition counts once, however merges cross. States are taken in the order of their ids, so
//! every site computes the same.

use super::value::{Clash, Policy, Side, three_way};
use crate::dag::{Dag, Node};
use crate::records::Records;
use crate::{Change, Mutant, Mutants, StateId};
use datatypes::Cell;
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};

/// How a key was changed on each side of a merge, where it was.
type Changes = BTreeMap<CompactKey, Change>;

#[derive(Debug)]
enum Step {
    State(Node),
    Merge { left: usize, right: usize, base: usize, left_changes: Changes, right_changes: Changes },
}

/// Which states to read and to merge, in an order in which what is needed comes first.
#[derive(Debug)]
pub(crate) struct Plan {
    steps: Vec<Step>,
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
    keys: &'d BTreeSet<CompactKey>,
    mutants: Mutants,
    steps: Vec<Step>,
    known: BTreeMap<Vec<StateId>, usize>,
}

impl Planner<'_> {
    fn step(&mut self, states: &[Node]) -> usize {
        let mut states = self.dag.greatest(states).to_vec();
        states.sort_by_key(|node| self.dag.id(*node));
        let ids: Vec<StateId> = states.iter().map(|node| self.dag.id(*node)).collect();
        if let Some(step) = self.known.get(&ids) {
            return *step;
        }
        let step = match &states[..] {
            [] => Step::State(self.dag.root()),
            [state] => Step::State(*state),
            [others @ .., last] => {
                let mut common = self.dag.common(others, &[*last]);
                if self.mutants.has(Mutant::SingleForkPoint) {
                    common.truncate(1);
                }
                let (left, right, base) = (self.step(others), self.step(&[*last]), self.step(&common));
                let left_changes = self.changes(others, &[*last]);
                let right_changes = self.changes(&[*last], others);
                Step::Merge { left, right, base, left_changes, right_changes }
            }
        };
        self.steps.push(step);
        self.known.insert(ids, self.steps.len() - 1);
        self.steps.len() - 1
    }

    fn changes(&self, of: &[Node], but: &[Node]) -> Changes {
        let mut changes = Changes::new();
        for state in self.dag.beyond(of, but) {
            let writes = self.dag.writes(state);
            let mut note = |key: &CompactKey, change: Change| {
                changes
                    .entry(key.clone())
                    .and_modify(|before| *before = before.and(change))
                    .or_insert(change);
            };
            // Whichever are fewer: a root's class has written all keys, a single transaction some few.
            if writes.len() < self.keys.len() {
                let wanted = writes.iter().filter(|(key, _)| self.keys.contains(*key));
                wanted.for_each(|(key, change)| note(key, change));
            } else {
                let written = self.keys.iter().filter_map(|key| Some((key, writes.get(key)?)));
                written.for_each(|(key, change)| note(key, change));
            }
        }
        changes
    }
}

impl Plan {
    /// For the values of these keys at these states together.
    pub fn new(dag: &Dag, states: &[Node], keys: &BTreeSet<CompactKey>, mutants: Mutants) -> Self {
        let mut planner = Planner { dag, keys, mutants, steps: Vec::new(), known: BTreeMap::new() };
        planner.step(states);
        Plan { steps: planner.steps }
    }

    /// The value of a key, which is one that the plan was made for.
    pub fn resolve(
        &self,
        dag: &Dag,
        records: &mut Records,
        key: &CompactKey,
        policy: Policy,
    ) -> Result<Resolved, Clash> {
        let mut values: Vec<Result<Resolved, Clash>> = Vec::with_capacity(self.steps.len());
        for step in &self.steps {
            let value = match step {
                Step::State(node) => {
                    let view = dag.view(&[*node]);
                    let (cell, newest) = (records.cell(key, &view), records.newest(key, &view));
                    Ok(Resolved { cell, newest, change: None })
                }
                Step::Merge { left, right, base, left_changes, right_changes } => {
                    let sides = (left_changes.get(key).copied(), right_changes.get(key).copied());
                    merge_step(&values, [*base, *left, *right], sides, policy)
                }
            };
            values.push(value);
        }
        values.pop().unwrap_or(Err(Clash))
    }
}

/// One side's value where the other did not change the key, else the merge of both. A base that clashes is no base
/// that the policy allows.
fn merge_step(
    values: &[Result<Resolved, Clash>],
    [base, left, right]: [usize; 3],
    changes: (Option<Change>, Option<Change>),
    policy: Policy,
) -> Result<Resolved, Clash> {
    let value = |step: usize| values[step].as_ref().map_err(|clash| *clash);
    let (left, right) = (value(left)?, value(right)?);
    let (left_change, right_change) = match changes {
        (_, None) => return Ok(Resolved { change: left.change.or(changes.0), ..left.clone() }),
        (None, Some(_)) => return Ok(Resolved { change: changes.1, ..right.clone() }),
        (Some(left_change), Some(right_change)) => (left_change, right_change),
    };
    let left_side = Side { cell: &left.cell, change: left_change, newest: left.newest };
    let right_side = Side { cell: &right.cell, change: right_change, newest: right.newest };
    let cell = three_way(&value(base)?.cell, &left_side, &right_side, policy)?;
    let change = left_change.and(right_change);
    let change = left.change.map_or(change, |before| before.and(change));
    Ok(Resolved { cell, newest: left.newest.max(right.newest), change: Some(change) })
}
