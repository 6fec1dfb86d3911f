//! Rebase of writes concurrent with a merge: clients go on while a merge is in progress, and the merge covers only what
//! they had committed before it began.
//!
//! ```text
//!    s --- M          M merged s with other heads, while somebody went on from s by u and t;
//!     \     \         m is the merge of t with M
//!      u - t - m
//! ```
//!
//! Without a rebase t would be a head that does not see M. If clients always had a transaction open, none would ever
//! commit below a merge, and every merge would reach back to the first one. So the site merges t with M as soon as t
//! commits: they diverged at s, few keys were written since, and the site remembers what M sees of others' changes of
//! these keys. If no client is active, the site does the same by itself, for one head after the other.
//!
//! If much was done since, a piece of it is merged at a time: first u, then t with the merge of u, which parted at u.
//!
//! ```text
//!    s --- M                with every commit the line gets a state longer, and a piece shorter
//!     \     \
//!      \     m --- m'
//!       \   /     /
//!        u ----- t - v
//! ```

use super::Keyspace;
use super::merge_in_progress::MergeInProgress;
use crate::changes::Written;
use crate::dag::{Label, Node, SeenBy, VisibilitySplit};
use crate::merge::{Changed, Changes, Divergence, Policy};
use crate::{Change, Commit, Mutant, StateId};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::SessionId;

/// Of a merge of more keys it is not remembered how they were changed.
const MOST_KEYS: usize = 100_000;
/// So many states beside a merge are looked through for one of its heads.
const LONGEST_LINE: usize = 4_096;

/// A merge, and how its heads had changed keys.
#[derive(Debug)]
pub(super) struct Rebase {
    /// The keyspace holds it, so that transactions may commit below it.
    merge: Node,
    /// What it merged, in the order that `changes` has.
    heads: Vec<StateId>,
    changes: Changes,
    /// States concurrent with it, except the last of each line. They are held: they are merged piece by piece, which
    /// takes that one may begin at each, and that they do not become one.
    left: BTreeSet<Node>,
    /// Lines of which pieces were merged, by the last state of these.
    begun: BTreeMap<StateId, PartialRebase>,
}

/// A line of which pieces were merged.
#[derive(Debug)]
struct PartialRebase {
    /// The last of these merges. It is held, too.
    merge: Node,
    /// What they wrote, with the label of the newest version.
    written: BTreeMap<CompactKey, (Change, Label)>,
}

impl Rebase {
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
            let (heads, left) = (commit.parents.clone(), BTreeSet::new());
            let mut rebase = Rebase { merge, heads, changes, left, begun: BTreeMap::new() };
            let heads: Vec<Node> = self.dag.heads().filter(|head| !self.dag.sees(merge, *head)).collect();
            for head in heads {
                if let Some(line) = self.line_to_rebase(&rebase, head) {
                    self.hold_line(&mut rebase, &line);
                }
            }
            self.rebase = Some(rebase);
            self.forget_merge();
        }
    }

    fn let_go_of_merge(&mut self) {
        if let Some(Rebase { merge, left, begun, .. }) = self.rebase.take() {
            let pieces = begun.values().map(|begun| begun.merge);
            left.into_iter().chain(pieces).chain([merge]).for_each(|node| self.dag.release(node));
        }
    }

    /// Lets the last merge go, unless something goes on, or may, from what it does not see, or from what it merged.
    pub(super) fn forget_merge(&mut self) {
        let Some(Rebase { merge, left, .. }) = &self.rebase else { return };
        let is_concurrent = |node: Node| !self.dag.sees(*merge, node);
        let mut others = self.dag.held().into_iter().filter(|node| !left.contains(node));
        if !self.dag.heads().any(is_concurrent) && !others.any(is_concurrent) {
            self.let_go_of_merge();
        }
    }

    /// The heads that do not see the last merge and at which nobody has a transaction open.
    pub fn left_to_rebase(&self) -> Vec<StateId> {
        let Some(Rebase { merge, .. }) = self.rebase else { return Vec::new() };
        let is_left = |head: &Node| !self.dag.is_held(*head) && !self.dag.sees(merge, *head);
        self.dag.heads().filter(is_left).map(|head| self.dag.id(head)).collect()
    }

    /// Rebases a head onto the last merge, if it is concurrent with that: if it descends from one of the merge's heads.
    /// Of what was done since a piece of about so many keys is merged, the oldest first.
    pub fn rebase_onto_merge(
        &mut self,
        session: SessionId,
        head: StateId,
        policy: Policy,
        keys: usize,
    ) -> Option<Commit> {
        let mut rebase = self.rebase.take()?;
        let commit = self.merge_piece(session, &mut rebase, head, policy, keys);
        self.rebase = Some(rebase);
        commit
    }

    fn merge_piece(
        &mut self,
        session: SessionId,
        rebase: &mut Rebase,
        head: StateId,
        policy: Policy,
        keys: usize,
    ) -> Option<Commit> {
        let head = self.dag.open(head)?;
        if self.dag.sees(rebase.merge, head) || !self.dag.children(head).is_empty() {
            return None;
        }
        let line = self.line_to_rebase(rebase, head)?;
        self.hold_line(rebase, &line);
        let piece = self.piece(session, &line.states, keys);
        let begun = rebase.begun.get(&line.from);
        let (own, merge) = (*piece.first()?, begun.map_or(rebase.merge, |begun| begun.merge));
        if !self.may_begin(session, own) || !self.may_begin(session, merge) {
            return None;
        }
        let mut states: SmallVec<[Node; 1]> = SmallVec::from_slice(&[own, merge]);
        states.sort_by_key(|node| self.dag.id(*node));
        let divergence = self.rebase_part(rebase, (&line, piece), (own, merge), states[1] == merge)?;
        let transaction = self.open(session, states);
        let merging = MergeInProgress::parted(&self.dag, transaction, divergence, policy, self.options);
        let commit = self.work_out(merging).ok()?.0;
        self.note_piece(rebase, (&line, piece), commit.id);
        Some(commit)
    }

    /// Keeps the states of a line, but for the last one.
    fn hold_line(&mut self, rebase: &mut Rebase, line: &RebaseLine) {
        for node in line.states.iter().skip(1) {
            if rebase.left.insert(*node) {
                self.dag.hold(*node);
            }
        }
    }

    /// The oldest states of a line, which wrote about so many keys, or twice as many as the newest one, so that the line gets
    /// shorter while a client goes on; all of them, if a session may not begin at the last of these.
    fn piece<'l>(&self, session: SessionId, line: &'l [Node], keys: usize) -> &'l [Node] {
        let written_by = |node: &Node| self.dag.writes(*node).len();
        let (mut written, keys) = (0, keys.max(2 * line.first().map_or(0, written_by)));
        let fits = |node: &&Node| {
            written += written_by(node);
            written <= keys
        };
        let states = line.iter().rev().take_while(fits).count().max(1);
        let piece = &line[line.len().saturating_sub(states)..];
        if piece.first().is_some_and(|last| self.may_begin(session, *last)) { piece } else { line }
    }

    /// How a piece of a line, with `own` at its end, and a merge beside it parted.
    fn rebase_part(
        &self,
        rebase: &Rebase,
        (line, piece): (&RebaseLine, &[Node]),
        (own, merge): (Node, Node),
        merge_is_second: bool,
    ) -> Option<Divergence> {
        let seen_by = |node: Node| SeenBy::only(usize::from((node == merge) == merge_is_second), 2);
        // With the label of the newest version.
        let mut written: BTreeMap<&CompactKey, (Label, SmallVec<[&Written; 1]>)> = BTreeMap::new();
        let is_remembered = !self.options.mutants.has(Mutant::ForgetMeanwhile);
        for node in piece.iter().filter(|_| is_remembered) {
            for (key, change) in self.dag.writes(*node).each() {
                let newest = self.dag.versions(*node);
                written.entry(key).or_insert_with(|| (newest, SmallVec::new())).1.push(change);
            }
        }
        let begun = rebase.begun.get(&line.from);
        let both = |(key, (label, written)): (&CompactKey, (Label, SmallVec<[&Written; 1]>))| {
            // Whatever merges wrote, they changed, also where one of their heads had it like that.
            let by_merge = self.dag.writes(rebase.merge).get(key);
            let by_pieces = begun.and_then(|begun| begun.written.get(key));
            let by_pieces_how = by_pieces.map(|(change, _)| *change);
            let others = [rebase.change(key, line.head), by_merge, by_pieces_how];
            let others = others.into_iter().flatten().reduce(Change::and)?;
            let newest = by_pieces.map(|(_, label)| *label);
            let newest = newest.or_else(|| by_merge.map(|_| self.dag.versions(rebase.merge)));
            let changed = |node, written, newest| Changed { seen: seen_by(node).into(), written, newest };
            let its_own = changed(own, Written::all(&written)?, Some(label));
            Some((key.clone(), vec![changed(merge, others.into(), newest), its_own]))
        };
        let changes: Changes = written.into_iter().filter_map(both).collect();
        let mut divergent: Vec<(Node, SeenBy)> = piece.iter().map(|node| (*node, seen_by(own))).collect();
        divergent.push((merge, seen_by(merge)));
        let common = vec![self.dag.node(line.from)?];
        let conflicting: Vec<CompactKey> = changes.keys().cloned().collect();
        Some(Divergence { visibility_split: VisibilitySplit { divergent, common }, conflicting, changes })
    }

    /// A piece of a line was merged, which may be all that there is.
    fn note_piece(&mut self, rebase: &mut Rebase, (line, piece): (&RebaseLine, &[Node]), merge: StateId) {
        let begun = rebase.begun.remove(&line.from);
        let released = piece.iter().copied().filter(|node| rebase.left.remove(node));
        let released: Vec<Node> = released.chain(begun.as_ref().map(|begun| begun.merge)).collect();
        released.into_iter().for_each(|node| self.dag.release(node));
        let (Some(upto), Some(merge)) = (piece.first(), self.dag.node(merge)) else { return };
        if line.states.first() == Some(upto) {
            return;
        }
        self.dag.hold(merge);
        let mut written = begun.map(|begun| begun.written).unwrap_or_default();
        let label = self.dag.versions(merge);
        for (key, Written { change, .. }) in self.dag.writes(merge).each() {
            let known = written.entry(key.clone()).or_insert((*change, label));
            *known = (known.0.and(*change), label);
        }
        rebase.begun.insert(self.dag.id(*upto), PartialRebase { merge, written });
    }

    /// By which states one went on from one of the merge's heads. Nothing, if there are merges among these, or if it went on
    /// from elsewhere.
    fn line_to_rebase(&self, rebase: &Rebase, state: Node) -> Option<RebaseLine> {
        let (mut node, mut states, mut from) = (state, Vec::new(), None);
        while let [parent] = self.dag.parents(node)
            && states.len() < LONGEST_LINE
        {
            if from.is_none() {
                states.push(node);
            }
            self.dag.meter().states(1);
            let id = self.dag.id(*parent);
            if self.dag.sees(*parent, rebase.merge) {
                let head = rebase.heads.binary_search(&id).ok()?;
                return Some(RebaseLine { head, from: from.unwrap_or(id), states });
            }
            if from.is_none() && rebase.begun.contains_key(&id) {
                from = Some(id);
            }
            node = *parent;
        }
        None
    }
}

/// States beside a merge.
struct RebaseLine {
    /// The merge's head from which they went on.
    head: usize,
    /// The last state before them that is merged.
    from: StateId,
    /// The most recent first.
    states: Vec<Node>,
}
