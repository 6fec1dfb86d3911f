//! A site's state in pieces, while it serves (TARDiS 6.5): for checkpoints of the log, and for sites that lack
//! transactions which no site retains any more.
//!
//! A checkpoint shows the states that were here when it began, with the versions of their classes. What is committed
//! meanwhile stands in the log, or is sent, behind it. Nothing is collected, and nothing comes back that was collected
//! early, until it is complete.

use super::Keyspace;
use crate::dag::Label;
use crate::records::{KeyValue, Stored};
use crate::{Commit, StateId, WriteSet};
use datatypes::Cell;
use mvcc::CompactKey;
use std::collections::BTreeMap;
use types::{Instant, Malformed, Reader, Wire, put_bytes};

/// A piece of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// A state. The first one is the root; parents come before children.
    State {
        /// Its id.
        id: StateId,
        /// Its parents, ascending.
        parents: Vec<StateId>,
        /// What its class wrote.
        writes: WriteSet,
    },
    /// A version of a key.
    Version {
        /// The key.
        key: CompactKey,
        /// The state whose class it belongs to.
        class: StateId,
        /// The state that wrote it.
        id: StateId,
        /// The value.
        cell: Cell,
    },
    /// A retained transaction: some site may lack its state, or the state was collected early.
    RetainedTransactions {
        /// It.
        commit: Commit,
        /// The state that bears the one that was collected early.
        heir: Option<StateId>,
    },
}

/// How far a checkpoint is.
#[derive(Debug)]
pub(super) struct Frozen {
    /// The states that it shows, by the label of their versions.
    classes: BTreeMap<Label, StateId>,
    /// Those that have not been shown, the last one first.
    states: Vec<StateId>,
    /// The last key that was shown.
    key: Option<CompactKey>,
}

impl Keyspace {
    /// True while a checkpoint is being taken.
    pub fn is_frozen(&self) -> bool {
        self.frozen.is_some()
    }

    /// Begins a checkpoint; one under way is given up.
    pub fn begin_checkpoint(&mut self) {
        self.settle();
        let classes = self.dag.states().map(|node| (self.dag.versions(node), self.dag.id(node))).collect();
        let states = self.dag.states().rev().map(|node| self.dag.id(node)).collect();
        self.frozen = Some(Frozen { classes, states, key: None });
    }

    /// The checkpoint is complete, or given up.
    pub fn end_checkpoint(&mut self) {
        self.frozen = None;
        self.collector.wake();
    }

    /// Hands over what comes next of the checkpoint: a state, or all versions of a key. False when that was all:
    /// retained transactions come last, and then [`Keyspace::end_checkpoint`].
    pub fn next_piece(&mut self, mut put: impl FnMut(Piece)) -> bool {
        let Some(frozen) = &mut self.frozen else { return false };
        if let Some(id) = frozen.states.pop() {
            if let Some(node) = self.dag.node(id) {
                let mut parents: Vec<StateId> =
                    self.dag.parents(node).iter().map(|parent| self.dag.id(*parent)).collect();
                parents.sort_unstable();
                put(Piece::State { id, parents, writes: self.dag.writes(node).clone() });
            }
            return true;
        }
        if self.records.are_remote() {
            return false;
        }
        let mut versions = Vec::new();
        let visit = |label: Label, id: StateId, cell: &Cell| {
            if let Some(class) = frozen.classes.get(&label) {
                versions.push((*class, id, cell.clone()));
            }
        };
        let Some(key) = self.records.next_key(frozen.key.as_ref(), visit) else { return false };
        for (class, id, cell) in versions {
            put(Piece::Version { key: key.clone(), class, id, cell });
        }
        frozen.key = Some(key);
        true
    }

    /// What a checkpoint shows of records that lie elsewhere.
    pub fn pieces_of(&self, records: Vec<Stored>) -> Vec<Piece> {
        let Some(frozen) = &self.frozen else { return Vec::new() };
        let mut pieces = Vec::new();
        for Stored { key, versions } in records {
            for (label, id, cell) in versions {
                if let Some(class) = frozen.classes.get(&label) {
                    pieces.push(Piece::Version { key: key.clone(), class: *class, id, cell });
                }
            }
        }
        pieces
    }

    /// Takes a piece of a checkpoint, into a keyspace that is new; false if it does not fit what came before. Retained
    /// transactions count as retained since `now`.
    #[must_use]
    pub fn restore(&mut self, piece: Piece, now: Instant) -> bool {
        match piece {
            Piece::State { id, parents, .. } if parents.is_empty() => {
                let is_first = self.dag.len() == 1 && self.records.is_empty();
                if is_first {
                    self.dag.found(id);
                }
                is_first
            }
            Piece::State { id, parents, writes } => {
                parents.iter().all(|parent| *parent < id) && self.dag.restore(id, &parents, writes).is_ok()
            }
            Piece::Version { key, class, id, cell } => {
                let node = self.dag.node(class);
                if let Some(node) = node {
                    self.records.restore_all(self.dag.versions(node), id, vec![KeyValue { key, cell }]);
                }
                node.is_some()
            }
            Piece::RetainedTransactions { commit, heir } => {
                let id = commit.id;
                self.retained.insert(commit, now);
                let Some(heir) = heir.filter(|_| self.dag.node(id).is_none()) else { return true };
                self.retained.leave(id, heir, None);
                self.dag.node(heir).is_some()
            }
        }
    }
}

impl Wire for Piece {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Piece::State { id, parents, writes } => {
                out.push(0);
                id.encode(out);
                parents.encode(out);
                writes.encode(out);
            }
            Piece::Version { key, class, id, cell } => {
                out.push(1);
                put_bytes(out, key);
                class.encode(out);
                id.encode(out);
                cell.encode(out);
            }
            Piece::RetainedTransactions { commit, heir } => {
                out.push(2);
                Wire::encode(commit, out);
                Wire::encode(heir, out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Piece::State {
                id: StateId::decode(input)?,
                parents: Vec::decode(input)?,
                writes: WriteSet::decode(input)?,
            },
            1 => Piece::Version {
                key: CompactKey::new(input.bytes()?),
                class: StateId::decode(input)?,
                id: StateId::decode(input)?,
                cell: Cell::decode(input)?,
            },
            2 => Piece::RetainedTransactions { commit: Commit::decode(input)?, heir: Option::decode(input)? },
            _ => return Err(Malformed("piece of a branch keyspace")),
        })
    }
}
