//! Garbage collection (TARDiS 6.3): ceilings say where nobody begins any more, states above them join the class of
//! their only child, and of the versions of a key in one class the newest stays. In steps of bounded work.
//!
//! What all agree about goes for good. If only the ceilings of silent sites hold a state, the site may collect it early
//! (TARDiS 6.4, optimistic): the site retains its transaction, and recreates the state when another state builds on it.

use crate::changes::Written;
use crate::dag::{Bounds, Dag, Label, Node};
use crate::records::Records;
use crate::retained::RetainedTransactions;
use crate::retention::{Keep, Retention};
use crate::session::Sessions;
use crate::{Mutant, Mutants, StateId};
use mvcc::CompactKey;
use smallvec::{SmallVec, smallvec};
use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, ProcessId, SessionId};

/// Who promises not to begin above certain states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Owner {
    /// A client (TARDiS 6.3).
    Client(SessionId),
    /// A site, this one too (TARDiS 6.4, Corrections 54).
    Site(ProcessId),
}

/// How much there is of everything, for tests, metrics and people.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// States of the DAG.
    pub states: usize,
    /// States without children.
    pub heads: usize,
    /// Branches of the labelling.
    pub branches: usize,
    /// Keys that have a version.
    pub keys: usize,
    /// Versions of keys.
    pub versions: usize,
    /// Entries of the promotion table.
    pub promotions: usize,
    /// States that were collected early.
    pub early: usize,
    /// Clients that placed a ceiling.
    pub ceilings: usize,
    /// Bytes, about.
    pub memory: usize,
}

/// Which owners agree that a state may be collected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Consent {
    All,
    /// All but sites that are not waited for.
    SiteState,
    /// An owner that collection waits for may begin at it.
    Lacking,
}

/// So many states become one at a time at most, if but for one they wrote no more keys than that.
const RUN: usize = 32;
const RUN_KEYS: usize = 64;

/// A state on its way out, key by key.
#[derive(Debug)]
struct Fold {
    is_early: bool,
    gone: Node,
    heir: Node,
    /// Whose write set is moved, with its versions' label, and whose it joins.
    drained: Node,
    from: Label,
    into: Node,
    to: Label,
}

/// A state that went, as the log has it where versions lie elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CollectedState {
    /// The state.
    pub state: StateId,
    /// The one that took its identity.
    pub heir: StateId,
    /// True if the heir's versions took the label of the state's.
    pub keeps_label: bool,
}
types::wire_struct!(CollectedState { state, heir, keeps_label });

/// What is above ceilings.
#[derive(Debug)]
struct Marks {
    /// Above those of the policy and of every owner.
    all: Bounds,
    /// Above those of each.
    each: Vec<(Option<Owner>, Bounds)>,
}

/// What is above these states.
pub(crate) fn above(dag: &Dag, states: &[StateId]) -> Bounds {
    let nodes = states.iter().filter_map(|id| dag.node(*id));
    let parents: Vec<Node> = nodes.flat_map(|node| dag.parents(node).iter().copied()).collect();
    dag.seen_together(&parents)
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Collector {
    ceilings: BTreeMap<Owner, Vec<StateId>>,
    /// What stays to be read by id.
    retention: Retention,
    /// States to look at in this pass, ancestors first.
    waiting: BTreeSet<StateId>,
    /// By the place of a state, the last pass that met it there.
    met: Vec<u32>,
    pass: u32,
    fold: Option<Fold>,
    /// What is above the ceilings, while they are as they are.
    marks: Option<Marks>,
    /// Sites that are not waited for.
    silent: BTreeSet<ProcessId>,
    /// How many keys were moved and states taken out ever.
    done: u64,
    /// Collected states that the caller has not taken yet.
    gone: Vec<StateId>,
    /// Those of them that the log is to have, where versions lie elsewhere.
    unlogged: Vec<CollectedState>,
    /// Something changed since the pass began.
    is_due: bool,
    mutants: Mutants,
}

impl Collector {
    pub fn new(keep: Keep, mutants: Mutants) -> Self {
        Collector {
            ceilings: BTreeMap::new(),
            retention: Retention::new(keep),
            waiting: BTreeSet::new(),
            met: Vec::new(),
            pass: 0,
            fold: None,
            marks: None,
            silent: BTreeSet::new(),
            done: 0,
            gone: Vec::new(),
            unlogged: Vec::new(),
            is_due: false,
            mutants,
        }
    }

    /// The states that went since the last call.
    pub fn take_collected(&mut self) -> Vec<StateId> {
        std::mem::take(&mut self.gone)
    }

    /// The states that the log is to have gone, since the last call.
    pub fn take_unlogged(&mut self) -> Vec<CollectedState> {
        std::mem::take(&mut self.unlogged)
    }

    /// Takes a state out as the log says.
    pub fn repeat(
        &mut self,
        gone: &CollectedState,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
    ) {
        // A checkpoint may have been taken when it had gone.
        let (Some(node), Some(heir)) = (dag.node(gone.state), dag.node(gone.heir)) else { return };
        dag.close(node, heir);
        let (drained, into) = if gone.keeps_label { (heir, node) } else { (node, heir) };
        let (from, to) = (dag.versions(drained), dag.versions(into));
        self.fold = Some(Fold { is_early: false, gone: node, heir, drained, from, into, to });
        self.settle((dag, records), sessions, retained);
        self.unlogged.clear();
    }

    /// True while it looks for what stays to be read: the pass behind that waits for it.
    pub fn is_ruling(&self) -> bool {
        self.retention.is_looking()
    }

    /// How many keys were moved and states taken out ever.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Keeps that much to be read from now on.
    pub fn keep(&mut self, keep: Keep) {
        self.retention.alter(keep);
        self.is_due = true;
    }

    /// It is that late.
    pub fn tell_time(&mut self, dag: &Dag, now: Instant) {
        self.is_due |= self.retention.tell_time(dag, now);
    }

    /// There may be something to collect.
    pub fn wake(&mut self) {
        self.is_due = true;
    }

    /// States came between others: what was found out about ceilings does not hold.
    pub fn look_anew(&mut self) {
        (self.is_due, self.marks) = (true, None);
    }

    /// These sites are not waited for.
    pub fn go_without(&mut self, silent: BTreeSet<ProcessId>) {
        if self.silent != silent {
            (self.silent, self.is_due) = (silent, true);
        }
    }

    /// True if every site promised to begin nothing above this state.
    pub fn is_passed(&self, dag: &Dag, node: Node) -> bool {
        self.ceilings.iter().filter(|(owner, _)| matches!(owner, Owner::Site(_))).all(|(_, states)| {
            states.iter().filter_map(|id| dag.node(*id)).any(|ceiling| dag.sees(node, ceiling))
        })
    }

    /// The owner will not begin at an ancestor of these states, which replace the ones before. One that was never
    /// heard of has the root for its ceiling: nothing goes.
    pub fn place(&mut self, owner: Owner, states: Vec<StateId>) {
        self.ceilings.insert(owner, states);
        (self.is_due, self.marks) = (true, None);
    }

    /// The owner is gone: its promises are not needed.
    pub fn lift(&mut self, owner: Owner) {
        self.ceilings.remove(&owner);
        (self.is_due, self.marks) = (true, None);
    }

    /// What is above an owner's ceiling: where it promised not to begin.
    pub fn above(&self, dag: &Dag, owner: Owner) -> Bounds {
        above(dag, self.ceiling(owner))
    }

    /// The ceilings of clients.
    pub fn clients(&self) -> impl Iterator<Item = &[StateId]> {
        let all = self.ceilings.iter().filter(|(owner, _)| matches!(owner, Owner::Client(_)));
        all.map(|(_, states)| states.as_slice())
    }

    /// The states of an owner's ceiling.
    pub fn ceiling(&self, owner: Owner) -> &[StateId] {
        self.ceilings.get(&owner).map_or(&[], Vec::as_slice)
    }

    /// Does up to about `budget` units of work: states looked at, keys moved, sessions and labels swept. Returns how
    /// many it did; 0 when there is nothing to do.
    pub fn step(
        &mut self,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
        budget: usize,
    ) -> usize {
        let some = budget / 8 + 1;
        let swept = dag.sweep_labels(some) + sessions.sweep(dag, some);
        let (mut work, mut keys, mut has_begun) = (0, 0, false);
        while work < budget {
            work += 1;
            if self.fold.is_some() {
                keys += usize::from(self.continue_fold((dag, records), sessions, retained));
            } else if let Some(id) = self.waiting.pop_first() {
                let (states, moved) = self.consider((dag, records), sessions, retained, id);
                (work, keys) = (work + states + moved, keys + moved);
            } else if let Some(states) = self.retention.step(dag) {
                work += states;
                if !self.retention.is_looking() {
                    self.begin_pass(dag);
                }
            } else if self.is_due && !has_begun {
                // Little has come since the pass before: the next step does more at once.
                has_begun = true;
                self.is_due = false;
                self.retention.set_out(dag);
            } else {
                work -= 1;
                break;
            }
        }
        dag.meter().states(work - keys + swept);
        work + swept
    }

    /// Ends what it is in the middle of, so that every class is whole.
    pub fn settle(
        &mut self,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
    ) {
        while self.fold.is_some() {
            self.continue_fold((dag, records), sessions, retained);
        }
    }

    fn begin_pass(&mut self, dag: &Dag) {
        self.pass = self.pass.wrapping_add(1);
        self.marks = None;
        self.waiting.insert(dag.id(dag.root()));
    }

    /// Who begins at the state no more.
    fn consent(&mut self, dag: &Dag, node: Node) -> Consent {
        let marks = self.marks.get_or_insert_with(|| {
            let is_meant =
                |owner: &Owner| !matches!(owner, Owner::Site(_)) || !self.mutants.has(Mutant::IgnoreSites);
            let owners = self.ceilings.iter().filter(|(owner, _)| is_meant(owner));
            let owners = owners.map(|(owner, states)| (Some(*owner), states));
            let above = |(owner, states): (Option<Owner>, &Vec<StateId>)| (owner, above(dag, states));
            let of_policy = std::iter::once((None, self.retention.given_up().clone()));
            let each: Vec<_> = of_policy.chain(owners.map(above)).collect();
            let all = each.iter().skip(1).fold(each[0].1.clone(), |all, (_, seen)| all.and(seen));
            Marks { all, each }
        });
        if dag.is_among(node, &marks.all) {
            return Consent::All;
        }
        let mut consent = Consent::All;
        for (owner, _) in marks.each.iter().filter(|(_, seen)| !dag.is_among(node, seen)) {
            match owner {
                Some(Owner::Site(site)) if self.silent.contains(site) => consent = Consent::SiteState,
                _ => return Consent::Lacking,
            }
        }
        consent
    }

    /// How the state may go: nothing if it stays, true if it goes early.
    fn goes_early(
        &self,
        dag: &Dag,
        retained: &RetainedTransactions,
        consent: Consent,
        (node, heir): (Node, Node),
    ) -> Option<bool> {
        let (id, heir) = (dag.id(node), dag.id(heir));
        if consent == Consent::All && !retained.is_needed(id) && !retained.bears(heir) {
            return Some(false);
        }
        let may_return =
            !self.silent.is_empty() && retained.is_spare(id, dag) && retained.is_spare(heir, dag);
        may_return.then_some(true)
    }

    /// Looks at a state. Returns how many more states it looked at or took out, and how many keys it moved.
    fn consider(
        &mut self,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
        id: StateId,
    ) -> (usize, usize) {
        let Some(node) = dag.node(id) else { return (0, 0) };
        let consent = self.consent(dag, node);
        if consent == Consent::Lacking {
            return (0, 0);
        }
        let heir = dag.only_child(node);
        let way = heir.and_then(|heir| Some((heir, self.goes_early(dag, retained, consent, (node, heir))?)));
        let Some((heir, is_early)) = way else {
            for child in dag.children(node) {
                if self.meets(*child) {
                    self.waiting.insert(dag.id(*child));
                }
            }
            return (0, 0);
        };
        if is_early {
            retained.leave(id, dag.id(heir), Some(dag.label(node)));
        } else if !records.are_remote() && !self.mutants.has(Mutant::DropWriteSets) {
            let run = self.run(dag, retained, (node, heir));
            if run.len() > 2 {
                let moved = self.fold_run((dag, records), sessions, retained, &run);
                return (2 * run.len() - 3, moved);
            }
        }
        self.begin_fold(dag, (node, heir), is_early);
        (0, 0)
    }

    /// States one below the other that are to become one, of which all but one wrote few keys.
    fn run(
        &mut self,
        dag: &Dag,
        retained: &RetainedTransactions,
        (node, heir): (Node, Node),
    ) -> SmallVec<[Node; RUN]> {
        let (mut run, mut last): (SmallVec<[Node; RUN]>, Node) = (SmallVec::new(), node);
        // What joins the root's class is moved there, however much that is.
        let is_root = node == dag.root();
        let (mut keys, mut most) = (0, 0);
        run.push(node);
        let mut next = Some(heir);
        while let Some(heir) = next.filter(|_| run.len() < RUN) {
            let wrote = dag.writes(heir).len().max(dag.writes(last).len());
            (keys, most) = (keys + dag.writes(last).len(), if is_root { 0 } else { wrote.max(most) });
            if keys + dag.writes(heir).len() - most > RUN_KEYS {
                break;
            }
            run.push(heir);
            last = heir;
            let goes =
                |next: &Node| self.goes_early(dag, retained, Consent::All, (heir, *next)) == Some(false);
            next = dag.only_child(heir).filter(goes);
            if self.consent(dag, heir) != Consent::All {
                break;
            }
        }
        run
    }

    /// Makes them one, which is the last of them; returns how many keys were moved. The versions may keep the label of any:
    /// the same states see all of these.
    fn fold_run(
        &mut self,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
        run: &[Node],
    ) -> usize {
        let [first, .., heir] = *run else { return 0 };
        let is_root = first == dag.root();
        let largest = run.iter().copied().max_by_key(|node| dag.writes(*node).len());
        let into = largest.filter(|_| !is_root).unwrap_or(first);
        let mut moved: BTreeMap<CompactKey, (SmallVec<[Label; 4]>, Written)> = BTreeMap::new();
        for node in run.iter().filter(|node| **node != into) {
            let from = dag.versions(*node);
            while let Some((key, written)) = dag.pop_write(*node) {
                dag.meter().lookups(1);
                match moved.entry(key) {
                    Entry::Vacant(entry) => drop(entry.insert((smallvec![from], written))),
                    Entry::Occupied(mut entry) => {
                        let (labels, known) = entry.get_mut();
                        labels.push(from);
                        known.join(&written);
                    }
                }
            }
        }
        let count = moved.len();
        dag.meter().keys(count);
        self.done += (count + run.len() - 1) as u64;
        let to = dag.versions(into);
        for (key, (labels, written)) in moved {
            records.relabel_all(&key, &labels, to, is_root);
            if !is_root {
                dag.note_write(into, key, written);
            }
        }
        if into != heir {
            dag.inherit(heir, into);
        }
        self.waiting.insert(dag.id(heir));
        for pair in run.windows(2) {
            let gone = dag.id(pair[0]);
            self.waiting.extend(dag.parents(pair[0]).iter().map(|parent| dag.id(*parent)));
            retained.remove(gone);
            sessions.promote(gone, dag.id(heir), is_root);
            self.gone.push(gone);
            dag.remove(pair[0], pair[1]);
        }
        count
    }

    /// True the first time in a pass. (Of another state at the same place, too: it is met in the next pass.)
    fn meets(&mut self, node: Node) -> bool {
        if self.met.len() <= node.place() {
            self.met.resize(node.place() + 1, 0);
        }
        std::mem::replace(&mut self.met[node.place()], self.pass) != self.pass
    }

    fn begin_fold(&mut self, dag: &mut Dag, (node, heir): (Node, Node), is_early: bool) {
        dag.close(node, heir);
        // The root's class is all that everybody sees: the largest, though the DAG does not store its write set.
        let is_larger = dag.writes(node).len() > dag.writes(heir).len();
        let (drained, into) = if node == dag.root() || (is_larger && !self.mutants.has(Mutant::DropWriteSets))
        {
            (heir, node)
        } else {
            (node, heir)
        };
        let (from, to) = (dag.versions(drained), dag.versions(into));
        self.fold = Some(Fold { is_early, gone: node, heir, drained, from, into, to });
    }

    /// Moves one key; or ends, which is false.
    fn continue_fold(
        &mut self,
        (dag, records): (&mut Dag, &mut Records),
        sessions: &mut Sessions,
        retained: &mut RetainedTransactions,
    ) -> bool {
        let Some(fold) = &self.fold else { return false };
        self.done += 1;
        if let Some((key, written)) = dag.pop_write(fold.drained) {
            dag.meter().keys(1);
            let is_root = fold.gone == dag.root();
            records.relabel(&key, fold.from, fold.to, is_root);
            // All states see what the root wrote.
            let is_noted = !is_root && !self.mutants.has(Mutant::DropWriteSets);
            if is_noted {
                dag.note_write(fold.into, key, written);
            }
            return true;
        }
        let Some(Fold { is_early, gone, heir, into, from, to, .. }) = self.fold.take() else { return false };
        records.fold(from, to, gone == dag.root());
        if !is_early {
            retained.remove(dag.id(gone));
        }
        if records.are_remote() {
            let (state, heir) = (dag.id(gone), dag.id(heir));
            self.unlogged.push(CollectedState { state, heir, keeps_label: into == gone });
        }
        if into == gone {
            dag.inherit(heir, gone);
        }
        sessions.promote(dag.id(gone), dag.id(heir), gone == dag.root());
        self.gone.push(dag.id(gone));
        self.waiting.insert(dag.id(heir));
        let above: Vec<StateId> = dag.parents(gone).iter().map(|parent| dag.id(*parent)).collect();
        self.waiting.extend(above);
        dag.remove(gone, heir);
        false
    }
}
