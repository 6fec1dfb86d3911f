//! The instance as one member has it, and how it stands to the log.

use super::Copied;
use super::rebuild::Rebuild;
use crate::log::Application;
use crate::{Mutant, Mutants};
use protocol::{Durable, Input, Now, Replica, Replies};
use std::collections::VecDeque;
use types::{
    Address, Incarnation, Malformed, NodeId, Reader, ReplyBuf, ReplySink, RequestId, Rng, Wire, put_bytes,
};

/// Members serve no requests.
pub(super) struct DiscardedReplies(ReplyBuf);

impl DiscardedReplies {
    pub(super) fn new() -> Self {
        DiscardedReplies(ReplyBuf::new())
    }
}

impl Replies for DiscardedReplies {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        self.0.clear();
        &mut self.0
    }
}

/// The leader's turn: its records, each behind its length.
pub(super) struct LeaderTurn<'t> {
    term: u64,
    number: u64,
    records: &'t [u8],
}

impl<'t> LeaderTurn<'t> {
    fn encode(&self) -> Vec<u8> {
        let mut entry = Vec::with_capacity(self.records.len() + 16);
        (self.term, self.number).encode(&mut entry);
        put_bytes(&mut entry, self.records);
        entry
    }

    fn decode(entry: &'t [u8]) -> Result<Self, Malformed> {
        let mut input = Reader::new(entry);
        let (term, number) = Wire::decode(&mut input)?;
        Ok(LeaderTurn { term, number, records: input.bytes()? })
    }
}

/// What a member does with its instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// It applies what the leader's turns recorded.
    Follows,
    /// It leads in this term; so many of its turns are entries, and so many of these committed.
    Leads { term: u64, proposed: u64, committed: u64 },
}

/// Turns up to this one are in the state, and may never be committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SpeculativeTurns {
    pub(super) term: u64,
    pub(super) number: u64,
}

impl SpeculativeTurns {
    /// True if this entry is that turn.
    pub(super) fn is(self, entry: &[u8]) -> bool {
        LeaderTurn::decode(entry).is_ok_and(|turn| (turn.term, turn.number) == (self.term, self.number))
    }
}

/// See the module.
pub(super) struct Copy<P: Copied> {
    group: Address,
    pub(super) inner: Replica<P>,
    pub(super) role: Role,
    pub(super) speculative: Option<SpeculativeTurns>,
    /// False if the instance's state is not what the log says: it is not looked at any more.
    pub(super) is_valid: bool,
    /// Another member's state on its way here.
    pub(super) rebuild: Option<Rebuild<P>>,
    /// Counts the states that took another's place in this life.
    pub(super) states: u64,
    mutants: Mutants,
}

impl<P: Copied> Copy<P> {
    pub(super) fn new(group: Address, protocol: P, mutants: Mutants) -> Self {
        Copy {
            group,
            inner: Replica::new(group.at(Incarnation(0)), protocol),
            role: Role::Follows,
            speculative: None,
            is_valid: true,
            rebuild: None,
            states: 0,
            mutants,
        }
    }

    fn node(&self, life: u64) -> NodeId {
        self.group.at(Incarnation(u32::try_from(life).unwrap_or(u32::MAX)))
    }

    /// A driver around the instance in another life of the group.
    fn begin_life(&mut self, life: u64) {
        let node = self.node(life);
        let fresh = Replica::new(node, self.inner.protocol().fresh());
        let protocol = std::mem::replace(&mut self.inner, fresh).into_protocol();
        self.inner = Replica::new(node, protocol);
    }

    /// An empty instance.
    pub(super) fn empty(&self) -> Replica<P> {
        Replica::new(self.node(0), self.inner.protocol().fresh())
    }

    /// Another state takes this one's place.
    pub(super) fn replace(&mut self, inner: Replica<P>) {
        self.inner = inner;
        (self.role, self.speculative, self.is_valid) = (Role::Follows, None, true);
        self.states += 1;
    }

    /// True while it is exactly what the applied entries say, or waits for the log with what it says.
    pub(super) fn may_be_given(&self) -> bool {
        self.is_valid && self.speculative.is_none() && !self.inner.protocol().is_outdated()
    }

    /// It has applied everything that any leader before it applied: it leads.
    pub(super) fn lead(&mut self, term: u64, now: Now, random: &mut Rng) {
        self.begin_life(term);
        (self.role, self.rebuild) = (Role::Leads { term, proposed: 0, committed: 0 }, None);
        let mut batch = vec![Input::Recovered { complete: true }];
        self.inner.step(now, &mut batch, random, &mut DiscardedReplies::new());
    }

    /// It does not lead any more.
    pub(super) fn depose(&mut self) {
        let Role::Leads { term, proposed, committed } = self.role else { return };
        self.role = Role::Follows;
        self.inner.protocol_mut().demote();
        self.begin_life(0);
        if committed < proposed {
            self.speculative = Some(SpeculativeTurns { term, number: proposed });
        }
    }

    /// Records of the leader's steps that are no entry yet: the entry to propose.
    pub(super) fn take_turn(&mut self) -> Option<Vec<u8>> {
        let Role::Leads { term, proposed, .. } = &mut self.role else { return None };
        if self.inner.records().is_empty() {
            return None;
        }
        *proposed += 1;
        let entry = LeaderTurn { term: *term, number: *proposed, records: self.inner.records() }.encode();
        self.inner.appended(*proposed);
        Some(entry)
    }

    /// The last turn that is committed, and the last one proposed.
    pub(super) fn turns(&self) -> (u64, u64) {
        match self.role {
            Role::Follows => (0, 0),
            Role::Leads { proposed, .. } if self.mutants.has(Mutant::SaidBeforeCommitted) => {
                (proposed, proposed)
            }
            Role::Leads { proposed, committed, .. } => (committed, proposed),
        }
    }

    /// What the leader's steps said leaves as far as the log has what they recorded.
    pub(super) fn release(&mut self, now: Now) {
        let (committed, _) = self.turns();
        self.inner.logged(committed);
        self.inner.release(now.instant, Durable { written: committed, synced: committed });
    }

    fn feed(inner: &mut Replica<P>, records: &[u8]) {
        let mut input = Reader::new(records);
        while let Ok(length) = input.take(4) {
            let length = length.try_into().map_or(0, u32::from_le_bytes) as usize;
            let Ok(record) = input.take(length) else { break };
            Self::recover(inner, Input::Recover(record));
        }
    }

    /// An input of recovery: it says nothing to anybody and draws nothing.
    pub(super) fn recover(inner: &mut Replica<P>, input: Input<'_, P>) {
        inner.step(Now::default(), &mut vec![input], &mut Rng::with_seed(0), &mut DiscardedReplies::new());
    }

    /// The state is not the log's: another member's is taken, which has everything up to this entry at least.
    pub(super) fn invalidate_after(&mut self, index: u64) {
        self.speculative = None;
        if !self.mutants.has(Mutant::StateKept) {
            self.inner = self.empty();
            self.is_valid = false;
            self.rebuild = Some(Rebuild::new(index));
        }
    }

    /// Entries that were applied to the old state while another one was on its way, after the entry `applied`.
    pub(super) fn catch_up(&mut self, waiting: VecDeque<(u64, Vec<u8>)>, applied: u64) {
        for (index, entry) in waiting.into_iter().filter(|(index, _)| *index > applied) {
            self.apply(index, &entry);
        }
    }
}

impl<P: Copied> Application for Copy<P> {
    fn apply(&mut self, index: u64, entry: &[u8]) {
        let turn = LeaderTurn::decode(entry);
        debug_assert!(turn.is_ok(), "entries are made by the same software");
        let Ok(turn) = turn else { return };
        match &mut self.role {
            Role::Leads { term, committed, .. } if *term == turn.term => {
                *committed = turn.number;
                return;
            }
            // Another member leads, and the log has announced that before any request.
            Role::Leads { .. } => self.depose(),
            Role::Follows => {}
        }
        match self.speculative {
            Some(speculative) if speculative.term != turn.term => {
                self.invalidate_after(index.saturating_sub(1))
            }
            Some(speculative) if speculative.number <= turn.number => self.speculative = None,
            _ => {}
        }
        if let Some(rebuild) = &mut self.rebuild {
            rebuild.waiting.push_back((index, entry.to_vec()));
        }
        if self.is_valid {
            Self::feed(&mut self.inner, turn.records);
            if self.rebuild.is_none() && self.inner.protocol().is_outdated() {
                self.rebuild = Some(Rebuild::new(index));
            }
        }
    }

    fn save(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.inner.protocol_mut().piece(cursor, chunk)
    }

    fn clear(&mut self) {
        let empty = self.empty();
        self.replace(empty);
        self.rebuild = None;
    }

    fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        Self::recover(&mut self.inner, Input::Snapshot(chunk));
        Ok(())
    }
}
