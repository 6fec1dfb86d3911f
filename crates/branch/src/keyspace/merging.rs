//! Merges: which keys conflict, what the types' rules make of them, and what a merge may commit with (TARDiS 5.1, 6.2).

use super::Keyspace;
use super::merge_in_progress::MergeInProgress;
use crate::constraint::{Begin, End, Intact};
use crate::dag::Node;
use crate::merge::{Clash, Plan, Policy, conflicting_keys};
use crate::{Commit, Mutant, Refusal, StateId, Transaction};
use datatypes::{Effect, apply};
use mvcc::CompactKey;
use smallvec::SmallVec;
use types::{Reader, SessionId};

impl Keyspace {
    /// Opens a merge of all heads that the constraint admits.
    pub fn begin_merge(&mut self, session: SessionId, begin: &Begin) -> Result<Transaction, Refusal> {
        let position = self.sessions.position(&self.dag, session);
        let heads = self.dag.heads().filter(|head| begin.admits(&self.dag, &position, *head));
        let heads = self.in_order(&heads.collect::<Vec<_>>())?;
        Ok(self.open_merge(session, heads))
    }

    /// Opens a merge of these states.
    pub fn begin_merge_of(&mut self, session: SessionId, states: &[StateId]) -> Result<Transaction, Refusal> {
        let states = self.to_merge(session, states)?;
        Ok(self.open_merge(session, states))
    }

    /// The greatest of these states in the order of their ids, if they may be merged.
    pub(super) fn to_merge(
        &self,
        session: SessionId,
        states: &[StateId],
    ) -> Result<SmallVec<[Node; 1]>, Refusal> {
        let node = |id: &StateId| self.dag.open(*id).ok_or(Refusal::UnknownState(*id));
        let states = states.iter().map(node).collect::<Result<SmallVec<[Node; 1]>, _>>()?;
        if let Some(refused) = states.iter().find(|node| !self.may_begin(session, **node)) {
            return Err(Refusal::UnknownState(self.dag.id(*refused)));
        }
        self.in_order(&states)
    }

    fn in_order(&self, states: &[Node]) -> Result<SmallVec<[Node; 1]>, Refusal> {
        let mut states = self.dag.greatest(states);
        if states.len() < 2 {
            return Err(Refusal::NothingToMerge);
        }
        states.sort_by_key(|node| self.dag.id(*node));
        Ok(states)
    }

    fn open_merge(&mut self, session: SessionId, states: SmallVec<[Node; 1]>) -> Transaction {
        let conflicting = conflicting_keys(&self.dag, &states);
        let mut transaction = self.open(session, states);
        transaction.conflicting = conflicting.into_iter().collect();
        transaction
    }

    /// The fork points of these states (`findForkPoints`): the greatest that all of them descend from.
    pub fn fork_points(&self, states: &[StateId]) -> Result<Vec<StateId>, Refusal> {
        let nodes = self.nodes(states)?;
        Ok(self.dag.fork_points(&nodes).iter().map(|node| self.dag.id(*node)).collect())
    }

    /// The keys that two of these states changed independently (`findConflictWrites`), in ascending order.
    pub fn conflicting(&self, states: &[StateId]) -> Result<Vec<CompactKey>, Refusal> {
        Ok(conflicting_keys(&self.dag, &self.nodes(states)?))
    }

    /// Resolves a conflicting key of a merge by its type's own rule; `policy` decides what that leaves open.
    pub fn resolve(
        &mut self,
        transaction: &mut Transaction,
        key: &CompactKey,
        policy: Policy,
    ) -> Result<(), Clash> {
        let plan = self.plan(transaction);
        self.resolve_each(transaction, &plan, std::slice::from_ref(key), policy)
    }

    fn plan(&self, transaction: &Transaction) -> Plan {
        Plan::new(&self.dag, &transaction.from, &transaction.conflicting, self.options.mutants)
    }

    /// An error if one of the keys clashes: that one stays, the others are resolved.
    fn resolve_each(
        &mut self,
        transaction: &mut Transaction,
        plan: &Plan,
        keys: &[CompactKey],
        policy: Policy,
    ) -> Result<(), Clash> {
        let view = self.dag.view(&transaction.from).gathered();
        let mut outcome = Ok(());
        for key in keys {
            match plan.effects((&self.dag, &mut self.records), &view, key, policy) {
                Ok(effects) => {
                    transaction.writes.insert(key.clone(), effects);
                }
                Err(clash) => outcome = Err(clash),
            }
        }
        outcome
    }

    /// Resolves the conflicting keys that have the same value in all read states, where the type's own rule leaves that as it is:
    /// there is nothing to decide. Keys of records that are not here stay.
    pub fn resolve_agreed(&mut self, transaction: &mut Transaction) {
        let (mut agreed, from) = (Vec::new(), transaction.from.clone());
        for key in transaction.unresolved() {
            if !self.records.is_here(key) {
                continue;
            }
            let mut cells = from.iter().map(|node| self.records.cell(key, &self.dag.view(&[*node])));
            let Some(first) = cells.next() else { continue };
            if cells.all(|cell| cell == first) {
                agreed.push((key.clone(), first));
            }
        }
        if agreed.is_empty() {
            return;
        }
        let keys: Vec<CompactKey> = agreed.iter().map(|(key, _)| key.clone()).collect();
        let plan = self.plan(transaction);
        // A clash leaves the key unresolved.
        let _ = self.resolve_each(transaction, &plan, &keys, Policy::Refuse);
        let view = self.dag.view(&transaction.from);
        for (key, value) in agreed {
            let Some((effects, _)) = transaction.writes.get(&key) else { continue };
            let mut merged = self.records.cell(&key, &view);
            for effect in effects.iter().filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok()) {
                apply::<false>(&mut merged, &effect);
            }
            // Sums: what both sides added counts twice.
            if merged != value {
                transaction.writes.remove(&key);
            }
        }
    }

    /// Resolves every conflicting key that the merge has not written, by the types' own rules; those that clash stay.
    pub fn resolve_all(&mut self, transaction: &mut Transaction, policy: Policy) {
        let keys: Vec<CompactKey> = transaction.unresolved().cloned().collect();
        if keys.is_empty() {
            return;
        }
        let plan = self.plan(transaction);
        // A clash leaves the key unresolved: the commit says so.
        let _ = self.resolve_each(transaction, &plan, &keys, policy);
    }

    /// Merges all heads by the types' own rules, and what they leave open by `policy`.
    pub fn merge(&mut self, session: SessionId, policy: Policy) -> Result<Commit, Refusal> {
        self.merge_of(session, &self.heads(), policy)
    }

    /// The same for some heads.
    pub fn merge_of(
        &mut self,
        session: SessionId,
        heads: &[StateId],
        policy: Policy,
    ) -> Result<Commit, Refusal> {
        let states = self.to_merge(session, heads)?;
        let transaction = self.open(session, states);
        let (commit, changes) = self.work_out(MergeInProgress::new(&self.dag, transaction, policy))?;
        self.note_merge(&commit, changes);
        Ok(commit)
    }

    /// What refuses a merge as it is now: an end constraint that its read states do not satisfy, or keys that it leaves
    /// open and no policy resolves (Corrections 55). A transaction on one branch is not looked at.
    pub fn check_merge(&self, transaction: &Transaction, end: &End) -> Result<(), Refusal> {
        if !transaction.is_merge() {
            return Ok(());
        }
        let position = self.sessions.position(&self.dag, transaction.session);
        if !transaction.from.iter().all(|node| end.admits(&self.dag, &position, *node, Intact::ALL)) {
            return Err(Refusal::NotAdmitted);
        }
        if self.options.policy != Policy::Refuse || self.options.mutants.has(Mutant::LeaveConflicts) {
            return Ok(());
        }
        transaction.check_resolved()
    }
}
