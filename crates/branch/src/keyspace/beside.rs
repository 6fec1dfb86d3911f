//! What clients did beside a merge: they go on while it is worked out, and it is of what they had done before.
//!
//! ```text
//!    s --- M          M merged s with other heads, while somebody went on from s by u and t;
//!     \     \         m is the merge of t with M
//!      u - t - m
//! ```
//!
//! By itself t would be a head that does not see M. Where clients always have a transaction open, none would ever come to
//! stand below a merge, and every merge would reach back to the first one. So t is merged with M as soon as it commits: they
//! parted at s, a few keys were written since, and what M sees of others' changes of these is remembered. Where nobody is at
//! work, a site does the same by itself, for one head after the other.

use super::Keyspace;
use super::underway::Underway;
use crate::changes::Written;
use crate::dag::{Label, Node, SeenBy, Spread};
use crate::merge::{Changed, Changes, Parting, Policy};
use crate::{Change, Commit, Mutant, StateId};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::SessionId;

/// Of a merge of more keys it is not remembered how they were changed.
const MOST_KEYS: usize = 100_000;
/// So many states beside a merge are looked through for one of its heads.
const LONGEST_LINE: usize = 4_096;

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
    /// How a key was changed by what the merge sees and one of its heads does not.
    fn change(&self, key: &CompactKey, head: usize) -> Option<Change> {
        let others = self.changes.of(key).iter().filter(|changed| !changed.seen.has(head));
        others.map(|changed| changed.written.change).reduce(Change::and)
    }
}

impl Keyspace {
    /// Heads were merged, which had changed keys like this.
    pub(super) fn note_merge(&mut self, commit: &Commit, changes: Changes) {
        self.let_go_of_merge();
        let Some(merge) = self.dag.node(commit.id) else { return };
        if changes.len() <= MOST_KEYS && !self.is_parted() {
            self.dag.hold(merge);
            self.meanwhile = Some(Meanwhile { merge, heads: commit.parents.clone(), changes });
            self.forget_merge();
        }
    }

    fn let_go_of_merge(&mut self) {
        if let Some(meanwhile) = self.meanwhile.take() {
            self.dag.release(meanwhile.merge);
        }
    }

    /// Lets the last merge go, unless something goes on, or may, from what it does not see, or from what it merged.
    pub(super) fn forget_merge(&mut self) {
        let Some(Meanwhile { merge, .. }) = self.meanwhile else { return };
        let is_beside = |node: Node| !self.dag.sees(merge, node);
        if !self.dag.heads().any(is_beside) && !self.dag.held().into_iter().any(is_beside) {
            self.let_go_of_merge();
        }
    }

    /// The heads that do not see the last merge and at which nobody has a transaction open.
    pub fn left_beside(&self) -> Vec<StateId> {
        let Some(Meanwhile { merge, .. }) = self.meanwhile else { return Vec::new() };
        let is_left = |head: &Node| !self.dag.is_held(*head) && !self.dag.sees(merge, *head);
        self.dag.heads().filter(is_left).map(|head| self.dag.id(head)).collect()
    }

    /// Merges a state with the last merge, if it is beside that: it went on from one of the merge's heads.
    pub fn merge_beside(&mut self, session: SessionId, state: StateId, policy: Policy) -> Option<Commit> {
        let (meanwhile, own) = (self.meanwhile.as_ref()?, self.dag.open(state)?);
        let merge = meanwhile.merge;
        if self.dag.sees(merge, own) || !self.may_begin(session, own) || !self.may_begin(session, merge) {
            return None;
        }
        let (head, line) = self.line_beside(meanwhile, own)?;
        let mut states: SmallVec<[Node; 1]> = SmallVec::from_slice(&[own, merge]);
        states.sort_by_key(|node| self.dag.id(*node));
        let seen_by = |node: Node| SeenBy::only(usize::from(states[1] == node), 2);
        // With the label of the newest version.
        let mut written: BTreeMap<&CompactKey, (Label, SmallVec<[&Written; 1]>)> = BTreeMap::new();
        let is_remembered = !self.options.mutants.has(Mutant::ForgetMeanwhile);
        for node in line.iter().filter(|_| is_remembered) {
            for (key, change) in self.dag.writes(*node).each() {
                let newest = self.dag.versions(*node);
                written.entry(key).or_insert_with(|| (newest, SmallVec::new())).1.push(change);
            }
        }
        let both = |(key, (label, written)): (&CompactKey, (Label, SmallVec<[&Written; 1]>))| {
            // Whatever the merge wrote, it changed, also where one of its heads had it like that.
            let (others, its_own) = (meanwhile.change(key, head), self.dag.writes(merge).get(key));
            let of_merge = match (others, its_own) {
                (Some(others), Some(its_own)) => others.and(its_own),
                (others, its_own) => others.or(its_own)?,
            };
            let newest = its_own.map(|_| self.dag.versions(merge));
            let changed = |node, written, newest| Changed { seen: seen_by(node).into(), written, newest };
            let its_own = changed(own, Written::all(&written)?, Some(label));
            Some((key.clone(), vec![changed(merge, of_merge.into(), newest), its_own]))
        };
        let changes: Changes = written.into_iter().filter_map(both).collect();
        let mut apart: Vec<(Node, SeenBy)> = line.iter().map(|node| (*node, seen_by(own))).collect();
        apart.push((merge, seen_by(merge)));
        let together = vec![self.dag.node(meanwhile.heads[head])?];
        let conflicting: Vec<CompactKey> = changes.keys().cloned().collect();
        let parting = Parting { spread: Spread { apart, together }, conflicting, changes };
        let transaction = self.open(session, states);
        let merge = Underway::parted(&self.dag, transaction, parting, policy, self.options);
        Some(self.work_out(merge).ok()?.0)
    }

    /// From which of the merge's heads a state went on, and by which states, the most recent first. Nothing, if there are
    /// merges among these, or if it went on from elsewhere.
    fn line_beside(&self, meanwhile: &Meanwhile, state: Node) -> Option<(usize, Vec<Node>)> {
        let (mut node, mut line) = (state, Vec::new());
        while let [parent] = self.dag.parents(node)
            && line.len() < LONGEST_LINE
        {
            line.push(node);
            self.dag.meter().states(1);
            if self.dag.sees(*parent, meanwhile.merge) {
                let head = meanwhile.heads.binary_search(&self.dag.id(*parent)).ok()?;
                return Some((head, line));
            }
            node = *parent;
        }
        None
    }
}
