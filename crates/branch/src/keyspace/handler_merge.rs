//! Merges by the keyspace's handler (T13).

use super::Keyspace;
use crate::dag::Node;
use crate::handler::{Conflict, Conflicts, Failure, Handler};
use crate::merge::{Plan, effects_between};
use crate::{Change, Commit, End, Policy, Refusal, StateId, Transaction};
use datatypes::Cell;
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::SessionId;

/// What the handler sees of an open merge.
struct Open<'k> {
    keyspace: &'k mut Keyspace,
    heads: SmallVec<[Node; 1]>,
    /// In the order of their ids.
    forks: SmallVec<[Node; 4]>,
    keys: Vec<CompactKey>,
    /// For the values at the heads together, and at the fork points together.
    plan: Plan,
    base: Plan,
}

impl Open<'_> {
    fn at(&mut self, nodes: &[Node], key: &CompactKey) -> Cell {
        self.keyspace.records.cell(key, &self.keyspace.dag.view(nodes))
    }
}

impl Conflicts for Open<'_> {
    fn keys(&self) -> &[CompactKey] {
        &self.keys
    }

    fn conflict(&mut self, key: &CompactKey) -> Option<Conflict> {
        self.keys.binary_search(key).ok()?;
        let Keyspace { dag, records, .. } = &mut *self.keyspace;
        let fork = self.base.resolve(dag, records, key, Policy::Newest).map(|base| base.cell);
        let merged = self.plan.resolve(dag, records, key, Policy::Refuse).map(|merged| merged.cell);
        let newest =
            self.plan.resolve(dag, records, key, Policy::Newest).map(|newest| newest.cell.expires_at);
        let (forks, heads) = (self.forks.clone(), self.heads.clone());
        Some(Conflict {
            fork: fork.unwrap_or(Cell::ABSENT),
            forks: forks.iter().map(|node| self.at(&[*node], key)).collect(),
            branches: heads.iter().map(|node| self.at(&[*node], key)).collect(),
            merged: merged.ok(),
            expires_at: newest.unwrap_or(0),
        })
    }

    fn read(&mut self, key: &CompactKey) -> Option<Cell> {
        let heads = self.heads.clone();
        self.keys.binary_search(key).is_err().then(|| self.at(&heads, key))
    }
}

/// What came of an attempt to merge by the handler.
#[derive(Debug)]
pub struct HandlerMerge {
    /// The merge, or why there is none.
    pub outcome: Result<Commit, Refusal>,
    /// The handler's, also where the keyspace declares what happens then.
    pub failure: Option<Failure>,
}

impl Keyspace {
    /// Merges heads by the handler; what it leaves open by the types' own rules, and what these leave open by `policy`. If
    /// it fails, `policy` decides too: without one that decides, the heads stay as they are.
    pub fn merge_by_dependencies(
        &mut self,
        session: SessionId,
        heads: &[StateId],
        handler: &mut dyn Handler,
        policy: Policy,
    ) -> HandlerMerge {
        let mut transaction = match self.begin_merge_of(session, heads) {
            Ok(transaction) => transaction,
            Err(refusal) => return HandlerMerge { outcome: Err(refusal), failure: None },
        };
        let failure = match self.resolve_by_handler(&mut transaction, None, handler) {
            Ok(()) => None,
            Err(Refusal::Handler(failure)) => Some(failure),
            Err(refusal) => {
                self.abort(transaction);
                return HandlerMerge { outcome: Err(refusal), failure: None };
            }
        };
        if let (Some(failure), Policy::Refuse) = (&failure, policy) {
            self.abort(transaction);
            return HandlerMerge {
                outcome: Err(Refusal::Handler(failure.clone())),
                failure: Some(failure.clone()),
            };
        }
        self.resolve_all(&mut transaction, policy);
        let outcome = self.commit(transaction, &End::Any);
        HandlerMerge { outcome: outcome.and_then(|commit| commit.ok_or(Refusal::NothingToMerge)), failure }
    }

    /// Asks the handler about the keys that the merge has not written, or about one of them. Its answers are written, all
    /// or none.
    ///
    /// # Errors
    /// The handler's; or the handler read what lies elsewhere, which the keyspace then requests.
    pub fn resolve_by_handler(
        &mut self,
        transaction: &mut Transaction,
        only: Option<&CompactKey>,
        handler: &mut dyn Handler,
    ) -> Result<(), Refusal> {
        let is_meant = |key: &&CompactKey| only.is_none_or(|only| *key == only);
        let keys: Vec<CompactKey> = transaction.unresolved().filter(is_meant).cloned().collect();
        if keys.is_empty() {
            return Ok(());
        }
        let heads = transaction.from.clone();
        let mut forks: SmallVec<[Node; 4]> = self.dag.fork_points(&heads).iter().copied().collect();
        forks.sort_by_key(|node| self.dag.id(*node));
        let wanted: BTreeSet<CompactKey> = keys.iter().cloned().collect();
        let (plan, base) = (
            Plan::new(&self.dag, &heads, &wanted, self.options.mutants),
            Plan::new(&self.dag, &forks, &wanted, self.options.mutants),
        );
        let mut open = Open { keyspace: self, heads, forks, keys, plan, base };
        let answers = handler.handle(&mut open);
        let (plan, heads) = (open.plan, open.heads);
        // What it said about values that were not here is no answer.
        if self.has_missed() {
            return Err(Refusal::Elsewhere);
        }
        let answers: BTreeMap<CompactKey, Cell> = answers.map_err(Refusal::Handler)?.into_iter().collect();
        if !self.fetch(answers.keys()) {
            return Err(Refusal::Elsewhere);
        }
        let view = self.dag.view(&heads).gathered();
        for (key, cell) in answers {
            if transaction.writes.contains_key(&key) {
                continue;
            }
            let is_conflict = wanted.contains(&key);
            if !is_conflict && transaction.conflicting.contains(&key) {
                continue;
            }
            // Where all branches only added, the answer is an addition too: a branch that comes later is added to it.
            let merged =
                is_conflict.then(|| plan.resolve(&self.dag, &mut self.records, &key, Policy::Refuse));
            let change =
                merged.and_then(Result::ok).and_then(|merged| merged.change).unwrap_or(Change::Other);
            let newest = self.records.cell(&key, &view);
            let effects = effects_between(&newest, &cell, change);
            if is_conflict || !effects.is_empty() {
                transaction.writes.insert(key, (effects, change));
            }
        }
        transaction.handler = Some(handler.version());
        Ok(())
    }
}
