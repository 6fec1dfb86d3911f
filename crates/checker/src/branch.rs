//! Branch isolation: every session sees sequential storage along its branch (TARDiS, sections 4 and 6).
//!
//! A transaction claims the states it read, the state it made and that state's parents. Checked: a state is made once,
//! by a transaction that committed, on parents that exist; a transaction begins at or after everything its session has
//! read or made (monotonic reads included, Corrections 56); its results hold where it read and, if others came between
//! (ripple down), still hold on the parent it committed on; the state it leaves is the parent's with its effects.
//! What a transaction demanded of these states itself takes the place of both rules ([`constraints`]).
//!
//! A merge has several parents. What two of them changed independently of each other, to different ends, the merge must
//! write itself (Corrections 55); of anything else the one that knows most changes has the value, and a merge that no
//! client requested leaves it. What such a merge writes must be what the types' rules make of its parents' values over
//! their fork points, for plain types ([`values`]). A merge may say for each step which parent it read.
//!
//! The check holds the contents of a state while some transaction has still to read them, and copied at forks only.

use crate::history::{ROOT, Transaction};
use crate::invocations::{Decoded, decode_all};
use crate::plain::Key;
use crate::render::readable;
use crate::replay::{Cells, execute_step, replay};
use crate::report::{Check, Findings};
use std::collections::{BTreeMap, BTreeSet};
use values::{Layers, Versions};

mod constraints;
mod rules;
mod values;

/// A state, once its maker is known.
struct State<'d, 'h> {
    maker: Option<&'d Decoded<'h>>,
    parents: Vec<&'h str>,
    /// The longest way from the root.
    depth: usize,
    /// Who has still to look at its contents.
    uses: usize,
}

struct Dag<'d, 'h> {
    states: BTreeMap<&'h str, State<'d, 'h>>,
    contents: BTreeMap<&'h str, Cells<'h>>,
    /// What every state made of the keys that it wrote.
    versions: Versions<'h>,
}

pub(crate) fn check(history: &[Transaction], findings: &mut Findings) {
    let decoded = decode_all(history, findings);
    let mut dag = Dag::new(&decoded, findings);
    if !findings.is_empty() {
        return;
    }
    let Some(order) = dag.order() else {
        return findings.add(Check::Claims, "some state is its own ancestor".into(), Vec::new());
    };
    dag.check_beginnings(&decoded, findings);
    dag.check_sessions(history, &decoded, findings);
    if findings.is_empty() {
        dag.replay(&order, &decoded, findings);
    }
}

impl<'d, 'h> Dag<'d, 'h> {
    fn new(decoded: &'d [Decoded<'h>], findings: &mut Findings) -> Self {
        let root = State { maker: None, parents: Vec::new(), depth: 0, uses: 1 };
        let mut dag = Dag {
            states: BTreeMap::from([(ROOT, root)]),
            contents: BTreeMap::new(),
            versions: Versions::new(),
        };
        for transaction in decoded {
            let number = transaction.number();
            let Some(branch) = branch(transaction) else {
                let message = format!("transaction {number} claims no state that it read");
                findings.add(Check::Claims, message, vec![number]);
                continue;
            };
            let Some(state) = &branch.state else { continue };
            let parents = branch.parents.iter().map(String::as_str).collect();
            let made = State { maker: Some(transaction), parents, depth: 0, uses: 0 };
            if let Some(other) = dag.states.insert(state, made) {
                let other = other.maker.map_or(0, |maker| maker.number());
                let message = format!("state {state} was made by {number} and by {other}");
                findings.add(Check::Claims, message, vec![other, number]);
            }
        }
        for transaction in decoded {
            let Some(branch) = branch(transaction) else { continue };
            let no_parent = branch.state.is_some() && branch.parents.is_empty();
            let unknown =
                branch.read.iter().chain(&branch.parents).find(|id| !dag.states.contains_key(id.as_str()));
            if let Some(unknown) = unknown {
                let message =
                    format!("transaction {} names state {unknown}, which nobody made", transaction.number());
                findings.add(Check::Claims, message, vec![transaction.number()]);
            } else if no_parent || branch.read.is_empty() {
                let message = format!(
                    "transaction {} read no state, or left one without parents",
                    transaction.number()
                );
                findings.add(Check::Claims, message, vec![transaction.number()]);
            }
            for looked_at in looked_at(transaction) {
                if let Some(state) = dag.states.get_mut(looked_at) {
                    state.uses += 1;
                }
            }
        }
        dag
    }

    /// Parents before children; nothing if there is a cycle. Sets the depths.
    fn order(&mut self) -> Option<Vec<&'h str>> {
        let mut waits: BTreeMap<&str, usize> =
            self.states.iter().map(|(id, s)| (*id, s.parents.len())).collect();
        let mut children: BTreeMap<&'h str, Vec<&'h str>> = BTreeMap::new();
        for (id, state) in &self.states {
            state.parents.iter().for_each(|parent| children.entry(parent).or_default().push(id));
        }
        let mut order = vec![ROOT];
        let mut next = 0;
        while let Some(id) = order.get(next).copied() {
            next += 1;
            let depth = self.states[id].depth;
            for child in children.get(id).into_iter().flatten() {
                if let Some(state) = self.states.get_mut(child) {
                    state.depth = state.depth.max(depth + 1);
                }
                let waits = waits.entry(child).or_default();
                *waits = waits.saturating_sub(1);
                if *waits == 0 {
                    order.push(child);
                }
            }
        }
        (order.len() == self.states.len()).then_some(order)
    }

    /// True if `later` is `earlier` or comes after it.
    fn descends(&self, later: &'h str, earlier: &'h str) -> bool {
        let lowest = self.states[earlier].depth;
        let (mut open, mut known) = (vec![later], BTreeSet::from([later]));
        while let Some(id) = open.pop() {
            if id == earlier {
                return true;
            }
            let parents = &self.states[id].parents;
            let above = parents.iter().filter(|parent| self.states[**parent].depth >= lowest);
            open.extend(above.copied().filter(|parent| known.insert(parent)));
        }
        false
    }

    fn check_beginnings(&self, decoded: &'d [Decoded<'h>], findings: &mut Findings) {
        for transaction in decoded {
            let Some(branch) = branch(transaction).filter(|branch| branch.state.is_some()) else { continue };
            let lost = branch.read.iter().find(|read| {
                !branch.parents.iter().any(|parent| self.descends(parent.as_str(), read.as_str()))
            });
            if let Some(read) = lost {
                let number = transaction.number();
                let message = format!(
                    "transaction {number} read state {read} and committed on [{}], where it is not \
                    included",
                    branch.parents.join(", ")
                );
                findings.add(Check::Order, message, vec![number]);
            }
        }
    }

    fn replay(&mut self, order: &[&'h str], decoded: &'d [Decoded<'h>], findings: &mut Findings) {
        let mut readers: BTreeMap<&'h str, Vec<&'d Decoded<'h>>> = BTreeMap::new();
        for transaction in decoded {
            // A merge reads at its parents, which `merge` looks after.
            if let Some(branch) = branch(transaction).filter(|branch| branch.parents.len() < 2) {
                branch.read.iter().for_each(|read| readers.entry(read).or_default().push(transaction));
            }
        }
        for id in order {
            let cells = match self.states[id].maker {
                None => Cells::default(),
                Some(maker) => self.made(id, maker, findings),
            };
            self.contents.insert(id, cells);
            for reader in readers.get(id).into_iter().flatten() {
                let whence = format!("state {id}");
                if let Err((check, message)) = replay(reader, None, &self.contents[id], &whence).1 {
                    findings.add(check, message, vec![reader.number()]);
                }
                self.used(id);
            }
            if self.states[id].uses == 0 {
                self.contents.remove(id);
            }
            if !findings.is_empty() {
                return;
            }
        }
    }

    /// One look at a state less is to come.
    fn used(&mut self, id: &str) {
        if let Some(state) = self.states.get_mut(id) {
            state.uses -= 1;
        }
    }

    /// The contents of a state, which are given away with the last look.
    fn take(&mut self, id: &'h str) -> Cells<'h> {
        self.used(id);
        let last = self.states[id].uses == 0;
        let cells = if last { self.contents.remove(id) } else { self.contents.get(id).cloned() };
        cells.unwrap_or_default()
    }

    /// What a transaction leaves.
    fn made(&mut self, id: &'h str, maker: &'d Decoded<'h>, findings: &mut Findings) -> Cells<'h> {
        let parents: Vec<&'h str> =
            branch(maker).into_iter().flat_map(|b| &b.parents).map(String::as_str).collect();
        let [parent] = parents[..] else { return self.merge(id, maker, &parents, findings) };
        let mut cells = self.take(parent);
        if !constraints::is_serializable(maker) {
            // What it read may have changed since.
            maker.effects.iter().for_each(|(key, effect)| cells.apply(key, effect));
            self.note_made(id, maker, |key| cells.cell(key).clone());
            return cells;
        }
        let (left, result) = replay(maker, None, &cells, &format!("its parent, state {parent},"));
        if let Err((check, message)) = result {
            findings.add(check, message, vec![maker.number()]);
        }
        cells.update(left);
        self.note_made(id, maker, |key| cells.cell(key).clone());
        cells
    }

    fn merge(
        &mut self,
        id: &'h str,
        maker: &'d Decoded<'h>,
        parents: &[&'h str],
        findings: &mut Findings,
    ) -> Cells<'h> {
        let writers = self.writers_since_fork(parents);
        let contents: Vec<Cells<'h>> = parents.iter().map(|parent| self.take(parent)).collect();
        let written: BTreeSet<&[u8]> = maker.effects.iter().map(|(key, _)| *key).collect();
        let mut merged = contents.first().cloned().unwrap_or_default();
        let number = maker.number();
        let mut complain = |what: String| {
            let message = format!("transaction {number} merges [{}]{what}", parents.join(", "));
            findings.add(Check::Effects, message, vec![number]);
        };
        let pairs = || (0..parents.len()).flat_map(|a| (0..a).map(move |b| (a, b)));
        let mut independent = BTreeSet::new();
        for (key, by_side) in &writers {
            let part = |(a, b): &(usize, usize)| {
                !by_side[*a].is_subset(&by_side[*b]) && !by_side[*b].is_subset(&by_side[*a])
            };
            let differ = |(a, b): (usize, usize)| contents[a].cell(key) != contents[b].cell(key);
            if pairs().any(|pair| part(&pair)) {
                independent.insert(*key);
            }
            if pairs().filter(part).any(differ) && !written.contains(key) {
                complain(format!(", which disagree about {}, and does not write it", key.escape_ascii()));
            }
            let newest = (0..parents.len()).max_by_key(|side| by_side[*side].len()).unwrap_or(0);
            merged.put(key, contents[newest].cell(key).clone());
            self.note_left(id, key, parents[newest]);
        }
        if maker.steps.is_empty() {
            for key in written.difference(&independent) {
                complain(format!(" and writes {}, which they agree about, unasked", key.escape_ascii()));
            }
        }
        let mut executed = merged.clone();
        for (index, step) in maker.steps.iter().enumerate() {
            let at = maker.transaction.steps[index].state.as_deref();
            let side = at.and_then(|at| parents.iter().position(|parent| *parent == at));
            let mut there = side.map(|side| contents[side].clone());
            if let Err(expected) = execute_step(step, 0, there.as_mut().unwrap_or(&mut executed)) {
                let message = format!(
                    "transaction {}, step {index} on {}: the merge saw {}, {} gives {expected}",
                    maker.number(),
                    step.key.escape_ascii(),
                    step.observed.unwrap_or("nothing"),
                    at.map_or_else(|| "what its parents agree on".to_owned(), |at| format!("state {at}"))
                );
                findings.add(Check::Replies, message, vec![maker.number()]);
            }
        }
        maker.effects.iter().for_each(|(key, effect)| merged.apply(key, effect));
        self.check_values(id, (maker, parents), &independent, &merged, findings);
        merged
    }

    /// What parents changed apart has the value that the types' rules give, unless a client or a handler has decided.
    fn check_values(
        &mut self,
        id: &'h str,
        (maker, parents): (&'d Decoded<'h>, &[&'h str]),
        independent: &BTreeSet<&'h [u8]>,
        merged: &Cells<'h>,
        findings: &mut Findings,
    ) {
        let is_handled = branch(maker).is_some_and(|branch| branch.handled);
        let mut layers = Layers::new();
        for key in independent.iter().copied() {
            let resolved = self.resolve(parents, key, &mut layers);
            self.note_merged(
                id,
                key,
                merged.cell(key),
                resolved.as_ref().and_then(|resolved| resolved.change),
            );
            let Some(resolved) = resolved.filter(|resolved| !(is_handled && resolved.is_chosen)) else {
                continue;
            };
            let found = Key::read(merged.cell(key)).map(|key| key.held);
            if maker.steps.is_empty() && found.as_ref() != Some(&resolved.held) {
                let number = maker.number();
                let message = format!(
                    "transaction {number} merges [{}] and makes {} {found:?}, but by the rule of its type it is {:?}",
                    parents.join(", "),
                    key.escape_ascii(),
                    resolved.held
                );
                findings.add(Check::Effects, readable(&message), vec![number]);
            }
        }
        for key in maker.effects.iter().map(|(key, _)| *key).filter(|key| !independent.contains(key)) {
            self.note_merged(id, key, merged.cell(key), None);
        }
    }

    /// By key: for each of some states the states on the way there, but not on the way to all of them, that wrote it.
    fn writers_since_fork(&self, parents: &[&'h str]) -> BTreeMap<&'h [u8], Vec<BTreeSet<&'h str>>> {
        let pasts: Vec<BTreeSet<&'h str>> = parents.iter().map(|parent| self.past(parent)).collect();
        let mut writers: BTreeMap<&'h [u8], Vec<BTreeSet<&'h str>>> = BTreeMap::new();
        for (side, past) in pasts.iter().enumerate() {
            for id in past.iter().filter(|id| !pasts.iter().all(|past| past.contains(**id))) {
                let effects = self.states[*id].maker.into_iter().flat_map(|maker| &maker.effects);
                for (key, _) in effects {
                    let sides = writers.entry(key).or_insert_with(|| vec![BTreeSet::new(); parents.len()]);
                    sides[side].insert(id);
                }
            }
        }
        writers
    }

    fn past(&self, id: &'h str) -> BTreeSet<&'h str> {
        let (mut open, mut past) = (vec![id], BTreeSet::from([id]));
        while let Some(id) = open.pop() {
            open.extend(self.states[id].parents.iter().copied().filter(|parent| past.insert(parent)));
        }
        past
    }
}

fn branch<'h>(transaction: &Decoded<'h>) -> Option<&'h crate::history::Branch> {
    transaction.transaction.claim.as_ref()?.branch.as_ref()
}

/// The states whose contents are needed to check a transaction.
fn looked_at<'h>(transaction: &Decoded<'h>) -> impl Iterator<Item = &'h str> {
    let branch = branch(transaction);
    let parents = branch.into_iter().flat_map(|branch| &branch.parents);
    let reads = branch.into_iter().filter(|branch| branch.parents.len() < 2).flat_map(|branch| &branch.read);
    parents.chain(reads).map(String::as_str)
}
