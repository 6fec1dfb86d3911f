//! Merges that are worked out piece by piece (Corrections 87).
//!
//! What a merge of many heads looks at and writes may take a second, and no step should take more than about a millisecond.
//! So a merge is of the heads as they were when it began, and goes through stages, each of which can stop anywhere:
//!
//! ```text
//! parting    who has changed which keys
//! planning   over which states they are merged
//! resolving  what they become: the merge's writes, and with them its id
//! writing    its versions, with a label that nobody sees yet
//! ```
//!
//! At the end the state appears, below heads that clients have gone on from meanwhile; how these come to stand below it,
//! `rebase` says. Nothing is collected until then, so that what was found stays as it is.

use super::{Keyspace, Options};
use crate::dag::{Bounds, Dag, Label};
use crate::id::MergeId;
use crate::merge::{Changes, Divergence, DivergenceFinder, Plan, Planning, Policy};
use crate::records::Records;
use crate::transaction::{Effects, written};
use crate::{Commit, Effort, Ids, Mutant, Refusal, StateId, Transaction, WriteSet};
use mvcc::CompactKey;
use std::time::Duration;
use std::vec;
use types::{SessionId, Wire};

/// The bytes of an effect on an element of a collection, about.
const ELEMENT: usize = 32;

/// See the module.
#[derive(Debug)]
pub(super) struct MergeInProgress {
    transaction: Transaction,
    policy: Policy,
    stage: Stage,
    /// The keys that it has to write and of which it is not known yet what they become, in ascending order.
    keys: vec::IntoIter<CompactKey>,
    /// Those that neither a type's rule nor a policy resolves.
    unresolved: Vec<CompactKey>,
    /// What it writes, in the same order.
    writes: Vec<(CompactKey, Effects)>,
    /// The same, as far as it is written.
    set: WriteSet,
}

#[derive(Debug)]
enum Stage {
    Divergence(Box<DivergenceFinder>),
    Planning(Box<Planning>),
    /// With what its heads see together.
    Resolving(Plan, Bounds, Box<MergeId>),
    Writing(Plan, Bounds, (StateId, Label)),
    /// With the label of its versions, unless the very merge is here already.
    Complete(Changes, StateId, Option<Label>),
}

/// What a merge is worked out with, and for how long.
struct MergeContext<'k> {
    dag: &'k mut Dag,
    records: &'k mut Records,
    ids: &'k mut Ids,
    options: Options,
    before: Effort,
    limit: Duration,
}

impl MergeContext<'_> {
    fn is_late(&self) -> bool {
        (self.dag.meter().read() - self.before).time() >= self.limit
    }

    /// Does something again and again; true when there is no more of it to do, false when it is late.
    fn exhaust(&self, mut step: impl FnMut(&Dag) -> bool) -> bool {
        while step(self.dag) {
            if self.is_late() {
                return false;
            }
        }
        true
    }
}

impl MergeInProgress {
    /// Of the heads that the transaction is open at.
    pub fn new(dag: &Dag, transaction: Transaction, policy: Policy) -> Self {
        let divergence_finder = DivergenceFinder::new(dag, &transaction.from);
        MergeInProgress::at(Stage::Divergence(divergence_finder.into()), Vec::new(), transaction, policy)
    }

    /// The same, where it is known how they parted.
    pub fn parted(
        dag: &Dag,
        transaction: Transaction,
        divergence: Divergence,
        policy: Policy,
        of: Options,
    ) -> Self {
        let Divergence { visibility_split, changes, conflicting } = divergence;
        let planning = Planning::new(dag, &transaction.from, (visibility_split, changes), of.mutants);
        MergeInProgress::at(Stage::Planning(planning.into()), conflicting, transaction, policy)
    }

    fn at(stage: Stage, keys: Vec<CompactKey>, transaction: Transaction, policy: Policy) -> Self {
        MergeInProgress {
            transaction,
            policy,
            stage,
            keys: keys.into_iter(),
            unresolved: Vec::new(),
            writes: Vec::new(),
            set: WriteSet::default(),
        }
    }

    fn is_complete(&self) -> bool {
        matches!(self.stage, Stage::Complete(..))
    }

    /// Its id, once that is known.
    fn id(&self) -> Option<StateId> {
        match &self.stage {
            Stage::Writing(_, _, (id, _)) | Stage::Complete(_, id, _) => Some(*id),
            _ => None,
        }
    }

    /// Goes on until it is complete or the bench's time is over.
    fn go_on(&mut self, bench: &mut MergeContext<'_>) {
        while !self.is_complete() && !bench.is_late() {
            let nothing = Stage::Complete(Changes::default(), StateId::ROOT, None);
            let stage = std::mem::replace(&mut self.stage, nothing);
            self.stage = self.advance(stage, bench);
        }
    }

    /// Goes on in a stage; returns the same or the next one.
    fn advance(&mut self, stage: Stage, bench: &mut MergeContext<'_>) -> Stage {
        match stage {
            Stage::Divergence(mut divergence_finder) => {
                if !bench.exhaust(|dag| divergence_finder.step(dag)) {
                    return Stage::Divergence(divergence_finder);
                }
                let Divergence { visibility_split, changes, conflicting } = divergence_finder.finish();
                self.keys = conflicting.into_iter();
                let (states, mutants) = (&self.transaction.from, bench.options.mutants);
                Stage::Planning(Planning::new(bench.dag, states, (visibility_split, changes), mutants).into())
            }
            Stage::Planning(mut planning) => {
                if !bench.exhaust(|dag| planning.step(dag)) {
                    return Stage::Planning(planning);
                }
                let bounds = bench.dag.view(&self.transaction.from).gathered().into_bounds();
                let id = MergeId::new(&self.parents(bench.dag), self.transaction.handler);
                Stage::Resolving(planning.finish(), bounds, id.into())
            }
            Stage::Resolving(plan, bounds, id) => self.resolve(plan, bounds, id, bench),
            Stage::Writing(plan, bounds, of) => self.write(plan, bounds, of, bench),
            Stage::Complete(..) => stage,
        }
    }

    fn parents(&self, dag: &Dag) -> Vec<StateId> {
        self.transaction.from.iter().map(|node| dag.id(*node)).collect()
    }

    fn resolve(
        &mut self,
        plan: Plan,
        bounds: Bounds,
        mut id: Box<MergeId>,
        bench: &mut MergeContext<'_>,
    ) -> Stage {
        let view = bench.dag.view_within(bounds);
        let declared = bench.options.policy;
        while let Some(key) = self.keys.next() {
            let mut by = |policy| plan.effects((&*bench.dag, &mut *bench.records), &view, &key, policy);
            let mut effects = by(self.policy);
            if effects.is_err() && declared != Policy::Refuse {
                effects = by(declared);
            }
            match effects {
                Ok((effects, _)) => {
                    let mut bytes = Vec::new();
                    effects.encode(&mut bytes);
                    id.writes(&key, &bytes);
                    self.writes.push((key, effects));
                }
                Err(_) => self.unresolved.push(key),
            }
            if bench.is_late() && self.keys.len() > 0 {
                return Stage::Resolving(plan, view.into_bounds(), id);
            }
        }
        let bounds = view.into_bounds();
        let id = match bench.options.mutants.has(Mutant::MergeIdsBySite) {
            true => bench.ids.next(&self.parents(bench.dag)),
            false => id.finish(),
        };
        if !self.unresolved.is_empty() || bench.dag.node(id).is_some() {
            return Stage::Complete(plan.into_changes(), id, None);
        }
        let label = bench.dag.reserve(&self.transaction.from);
        Stage::Writing(plan, bounds, (id, label))
    }

    fn write(
        &mut self,
        plan: Plan,
        bounds: Bounds,
        of: (StateId, Label),
        bench: &mut MergeContext<'_>,
    ) -> Stage {
        let (id, label) = of;
        let view = bench.dag.view_within(bounds);
        if bench.records.are_remote() {
            bench.records.write_all(&view, label, id, &self.writes);
        }
        while let Some((key, effects)) = self.writes.get(self.set.len()) {
            if !bench.records.are_remote() {
                bench.records.put(key, &view, label, id, effects.iter().map(|effect| &**effect));
                // Of a collection a merge may write many elements.
                bench.dag.meter().keys(effects.iter().map(|effect| effect.len()).sum::<usize>() / ELEMENT);
            }
            self.set.note(key.clone(), written(effects));
            if bench.is_late() && !bench.records.are_remote() {
                return Stage::Writing(plan, view.into_bounds(), of);
            }
        }
        Stage::Complete(plan.into_changes(), id, Some(label))
    }
}

impl Keyspace {
    fn bench(&mut self, limit: Duration) -> MergeContext<'_> {
        let before = self.dag.meter().read();
        let Keyspace { dag, records, ids, options, .. } = self;
        MergeContext { dag, records, ids, options: *options, before, limit }
    }

    /// Works a merge out in one go. Returns how its heads had changed keys, too.
    pub(super) fn work_out(&mut self, mut merge: MergeInProgress) -> Result<(Commit, Changes), Refusal> {
        merge.go_on(&mut self.bench(Duration::MAX));
        self.complete(merge)
    }

    /// The state of a merge that is complete appears.
    fn complete(&mut self, merge: MergeInProgress) -> Result<(Commit, Changes), Refusal> {
        let parents = merge.parents(&self.dag);
        let MergeInProgress { transaction, stage, unresolved, writes, set, .. } = merge;
        let (session, from) = (transaction.session, transaction.from.clone());
        self.abort(transaction);
        let Stage::Complete(changes, id, label) = stage else { return Err(Refusal::NothingToMerge) };
        if let [key, more @ ..] = &unresolved[..] {
            return Err(Refusal::Unresolved { key: key.clone(), more: more.len() });
        }
        let node = match label {
            Some(label) => self.dag.insert_reserved((id, label), from, set),
            None => self.dag.node(id).ok_or(Refusal::UnknownState(id))?,
        };
        self.sessions.has_committed(&mut self.dag, session, node);
        self.collector.wake();
        Ok((Commit { id, parents, writes }, changes))
    }

    /// Begins to merge heads by the types' own rules, and what they leave open by `policy`. False while a state is on its way
    /// out: try again soon.
    pub fn begin_merging(
        &mut self,
        session: SessionId,
        heads: &[StateId],
        policy: Policy,
    ) -> Result<bool, Refusal> {
        let states = self.to_merge(session, heads)?;
        if self.dag.is_closing() {
            return Ok(false);
        }
        let transaction = self.open(session, states);
        self.underway = Some(MergeInProgress::new(&self.dag, transaction, policy).into());
        Ok(true)
    }

    /// Goes on with the merge that was begun, for as long as such work takes by assumed costs (a key may exceed that). Returns it
    /// when it is complete.
    pub fn go_on_merging(&mut self, limit: Duration) -> Option<Result<Commit, Refusal>> {
        let mut merge = self.underway.take()?;
        merge.go_on(&mut self.bench(limit));
        if !merge.is_complete() {
            self.underway = Some(merge);
            return None;
        }
        let complete = self.complete(*merge);
        Some(complete.map(|(commit, changes)| {
            self.note_merge(&commit, changes);
            commit
        }))
    }

    /// True while a merge is worked out.
    pub fn is_merging(&self) -> bool {
        self.underway.is_some()
    }

    /// The id of the merge that is worked out, once that is known.
    pub fn merging_to(&self) -> Option<StateId> {
        self.underway.as_ref()?.id()
    }
}
