//! Transactions that were open while a merge was made, and that commit beside it since what they read was merged.
//!
//! ```text
//!    s --- M        M merged s with other heads while a transaction was open at s;
//!     \     \       t is what it committed, m the merge of t with M
//!      t --- m
//! ```
//!
//! By itself t would be a head that does not see M. Where clients always have a transaction open, none would ever come to
//! stand below a merge, and every merge would reach back to the first one. So t is merged with M at once: they parted at
//! s, t wrote a few keys, and what M sees of others' changes of these is remembered as long as a transaction is open at
//! one of M's heads.

use super::Keyspace;
use crate::changes::Written;
use crate::dag::{Node, SeenBy, Spread};
use crate::merge::{Changed, Changes, Parting, Policy};
use crate::{Commit, Mutant, StateId};
use mvcc::CompactKey;
use smallvec::SmallVec;
use types::SessionId;

/// Of a merge of more keys it is not remembered how they were changed.
const MOST_KEYS: usize = 100_000;

/// A merge, and how its heads had changed keys.
#[derive(Debug)]
pub(super) struct Meanwhile {
    /// It is held, so that one may go on below it.
    merge: Node,
    /// What it merged, in the order that `changes` has.
    heads: Vec<StateId>,
    changes: Changes,
}

impl Meanwhile {
    /// What of a key was changed by what the merge sees and one of its heads does not.
    fn written(&self, key: &CompactKey, head: usize) -> Option<Written> {
        let others = self.changes.get(key)?.iter().filter(|changed| !changed.seen.has(head));
        Written::all(&others.map(|changed| &changed.written).collect::<Vec<_>>())
    }
}

impl Keyspace {
    /// Heads were merged, which had changed keys like this.
    pub(super) fn note_merge(&mut self, commit: &Commit, changes: Changes) {
        self.let_go_of_merge();
        let Some(merge) = self.dag.node(commit.id) else { return };
        let heads = commit.parents.clone();
        if changes.len() <= MOST_KEYS && !self.is_parted() && self.are_held(&heads) {
            self.dag.hold(merge);
            self.meanwhile = Some(Meanwhile { merge, heads, changes });
        }
    }

    fn are_held(&self, states: &[StateId]) -> bool {
        states.iter().filter_map(|id| self.dag.node(*id)).any(|node| self.dag.is_held(node))
    }

    fn let_go_of_merge(&mut self) {
        if let Some(meanwhile) = self.meanwhile.take() {
            self.dag.release(meanwhile.merge);
        }
    }

    /// Lets the last merge go, unless a transaction is open at one of its heads.
    pub(super) fn forget_merge(&mut self) {
        if self.meanwhile.as_ref().is_some_and(|meanwhile| !self.are_held(&meanwhile.heads)) {
            self.let_go_of_merge();
        }
    }

    /// Merges what has just been committed with the merge that was made while its transaction was open, if there is one.
    pub fn merge_beside(&mut self, session: SessionId, commit: &Commit, policy: Policy) -> Option<Commit> {
        let ([parent], Some(meanwhile)) = (&commit.parents[..], &self.meanwhile) else { return None };
        let head = meanwhile.heads.binary_search(parent).ok()?;
        let (own, merge) = (self.dag.open(commit.id)?, meanwhile.merge);
        if !self.may_begin(session, own) || !self.may_begin(session, merge) {
            return None;
        }
        let mut states: SmallVec<[Node; 1]> = SmallVec::from_slice(&[own, merge]);
        states.sort_by_key(|node| self.dag.id(*node));
        let seen_by = |node: Node| SeenBy::only(usize::from(states[1] == node), 2);
        let forgets = self.options.mutants.has(Mutant::ForgetMeanwhile);
        let both = |(key, written): (&CompactKey, &Written)| {
            // Whatever the merge wrote, it changed, also where one of its heads had it like that.
            let (others, its_own) = (meanwhile.written(key, head), self.dag.writes(merge).written(key));
            let of_merge = match (others, its_own) {
                (Some(others), Some(its_own)) => others.and(its_own),
                (others, its_own) => others.or(its_own.cloned())?,
            };
            let changed = |node, written| Changed { seen: seen_by(node).into(), written, newest: None };
            Some((key.clone(), vec![changed(merge, of_merge), changed(own, written.clone())]))
        };
        let changes: Changes = self.dag.writes(own).each().filter(|_| !forgets).filter_map(both).collect();
        let apart = [states[1], states[0]].map(|node| (node, seen_by(node))).into();
        let spread = Spread { apart, together: vec![self.dag.node(*parent)?] };
        let parting = Parting { spread, conflicting: changes.keys().cloned().collect(), changes };
        let mut transaction = self.open(session, states);
        transaction.conflicting.clone_from(&parting.conflicting);
        Some(self.merge_parted(transaction, parting, policy).ok()?.0)
    }
}
