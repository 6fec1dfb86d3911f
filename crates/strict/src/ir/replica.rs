//! An IR replica in normal operation: proposals, results, promises, outcomes. View changes are next door.

use super::view_change::Changing;
use super::{Application, CoordinatorView, Entry, Group, Groups, Held, Message, Operations, quorum};
use crate::{Mutant, Mutants};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Incarnation, NodeId, TransactionId};

/// What a replica does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Serves clients.
    Normal,
    /// Has entered a view and waits for its record; silent towards clients.
    ViewChanging,
    /// May have forgotten what it said: silent, neither leads nor contributes.
    Recovering,
}

/// A change of the durable state.
#[derive(Debug)]
pub enum Change<'a, O: Operations> {
    /// A group is now this.
    Group {
        /// The group.
        id: TransactionId,
        /// All of it.
        group: &'a Group<O>,
    },
    /// This view was entered, after that one was last normal.
    View {
        /// The view entered.
        view: u64,
        /// The last view in which the replica was NORMAL.
        last_normal: u64,
    },
    /// This view has started, and the record is this: groups of a lower revision than `first` are gone.
    Record {
        /// The view, now the last normal one.
        view: u64,
        /// The revision from which on the groups below are counted.
        first: u64,
        /// Every group.
        groups: &'a Groups<O>,
    },
}

/// Where a replica's messages and records go.
pub trait Port<O: Operations> {
    /// Sends, once everything persisted before is durable.
    fn send(&mut self, to: Address, message: Message<O>);
    /// Writes to the log.
    fn persist(&mut self, change: &Change<'_, O>);
    /// Calls `Replica::on_view_timer` after this time, instead of when it was asked to before.
    fn arm_view_timer(&mut self, after: Duration);
}

/// A replica of one group of 2f+1. Feed it messages with `on_message`; it drives `app` and speaks through a port.
#[derive(Debug)]
pub struct Replica<O: Operations> {
    pub(super) members: Vec<Address>,
    pub(super) me: usize,
    pub(super) mutants: Mutants,
    pub(super) status: Status,
    pub(super) view: u64,
    pub(super) last_normal: u64,
    pub(super) groups: Groups<O>,
    /// Groups by their revision: the order in which a checkpoint tells them.
    by_revision: BTreeMap<u64, TransactionId>,
    pub(super) revision: u64,
    pub(super) incarnation: Incarnation,
    pub(super) changing: Changing<O>,
}

impl<O: Operations> Replica<O> {
    /// The replica `me` of `members`, which are an odd number. It serves after `recovered`.
    pub fn new(members: Vec<Address>, me: usize, mutants: Mutants) -> Self {
        assert!(members.len() % 2 == 1 && me < members.len(), "2f+1 replicas, this one among them");
        Replica {
            changing: Changing::default(),
            members,
            me,
            mutants,
            status: Status::Recovering,
            view: 0,
            last_normal: 0,
            groups: Groups::new(),
            by_revision: BTreeMap::new(),
            revision: 0,
            incarnation: Incarnation(0),
        }
    }

    /// What it does at present.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Which of the replicas this is.
    pub fn me(&self) -> usize {
        self.me
    }

    /// The highest view entered.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The record.
    pub fn groups(&self) -> &Groups<O> {
        &self.groups
    }

    /// The other replicas.
    pub(super) fn others(&self) -> impl Iterator<Item = Address> + '_ {
        self.members.iter().enumerate().filter(|(member, _)| *member != self.me).map(|(_, address)| *address)
    }

    pub(super) fn member(&self, from: NodeId) -> Option<usize> {
        self.members.iter().position(|address| *address == from.address())
    }

    pub(super) fn quorum(&self) -> usize {
        quorum(self.members.len())
    }

    /// Reacts to a message.
    pub fn on_message(
        &mut self,
        from: NodeId,
        message: Message<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let to = from.address();
        match message {
            Message::Propose { group, attempt, view, operation } => {
                if self.serves(view, port) {
                    self.on_propose(to, group, attempt, operation, app, port);
                }
            }
            Message::Finalize { group, attempt, view, ballot, operation, result } => {
                if self.serves(view, port) {
                    let entry = Entry { attempt, operation, result, ballot, finalized: true };
                    self.on_finalize(to, group, view, entry, app, port);
                }
            }
            Message::Execute { group, operation } => {
                if self.serves(0, port) {
                    self.on_execute(to, group, operation, app, port);
                }
            }
            Message::CoordinatorChange { group, ballot, view } => {
                if self.serves(view, port) {
                    self.on_coordinator_change(to, group, ballot, port);
                }
            }
            Message::StartViewChange { view } => self.on_start_view_change(from, view, port),
            Message::DoViewChange { view, last_normal, groups } => {
                self.on_do_view_change(from, view, last_normal, groups, app, port);
            }
            Message::StartView { view, groups } => self.on_start_view(from, view, groups, app, port),
            Message::ViewStarted { view } => self.on_view_started(from, view),
            Message::WhichView { incarnation } => self.on_which_view(from, incarnation, port),
            Message::ThisView { incarnation, view } => self.on_this_view(from, incarnation, view, port),
            // For clients and backup coordinators.
            Message::Reply { .. }
            | Message::Confirm { .. }
            | Message::Executed { .. }
            | Message::Outcome { .. }
            | Message::Superseded { .. }
            | Message::CoordinatorPromise { .. } => {}
        }
    }

    /// True if a client that has seen `view` may be served; a higher view than ours is joined first.
    fn serves(&mut self, view: u64, port: &mut impl Port<O>) -> bool {
        if view > self.view && self.status != Status::Recovering {
            self.enter_view(view, port);
        }
        self.status == Status::Normal
    }

    fn on_propose(
        &mut self,
        to: Address,
        id: TransactionId,
        attempt: u32,
        operation: O::Consensus,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let mut group = self.groups.get(&id).cloned().unwrap_or_default();
        if self.mutants.has(Mutant::NoTombstones) && group.outcome.is_some() {
            group = Group::default();
        }
        if self.ended_or_superseded(to, id, &group, CoordinatorView::ORIGINAL, port) {
            return;
        }
        let known = group.entry.as_ref().map_or(0, |entry| entry.attempt);
        if attempt < known || group.entry.as_ref().is_some_and(|entry| entry.ballot.round > 0) {
            return;
        }
        let mut hint = None;
        if attempt > known {
            let result;
            (result, hint) = app.execute_consensus(id, &operation);
            if O::holds(result) {
                app.hold(id, &operation);
                group.held = Some(Held { attempt, operation: operation.clone() });
            } else if group.held.take().is_some() {
                app.release(id);
            }
            let ballot = CoordinatorView::ORIGINAL;
            group.entry =
                Some(Entry { attempt, operation: Some(operation), result, ballot, finalized: false });
            self.put(id, group, port);
        }
        self.reply(to, id, hint, port);
    }

    /// Tells the entry of a group as it is.
    fn reply(&self, to: Address, group: TransactionId, hint: Option<u32>, port: &mut impl Port<O>) {
        let Some(entry) = self.groups.get(&group).and_then(|group| group.entry.as_ref()) else { return };
        let (attempt, result, finalized) = (entry.attempt, entry.result, entry.finalized);
        port.send(to, Message::Reply { group, attempt, view: self.view, result, finalized, hint });
    }

    /// Answers whoever speaks for a group that has ended, or under too low a coordinator view.
    fn ended_or_superseded(
        &self,
        to: Address,
        id: TransactionId,
        group: &Group<O>,
        ballot: CoordinatorView,
        port: &mut impl Port<O>,
    ) -> bool {
        if let Some(outcome) = &group.outcome {
            port.send(to, Message::Outcome { group: id, operation: outcome.clone() });
            return true;
        }
        if group.promised > ballot {
            port.send(to, Message::Superseded { group: id, promised: group.promised });
            return true;
        }
        false
    }

    fn on_finalize(
        &mut self,
        to: Address,
        id: TransactionId,
        view: u64,
        chosen: Entry<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let mut group = self.groups.get(&id).cloned().unwrap_or_default();
        if self.ended_or_superseded(to, id, &group, chosen.ballot, port) {
            return;
        }
        let present = if self.mutants.has(Mutant::FinalizeWithoutView) { view } else { self.view };
        if view != present {
            // Chosen in an earlier view: the sender learns the view and what became of the operation in it.
            return self.reply(to, id, None, port);
        }
        let (attempt, ballot) = (chosen.attempt, chosen.ballot);
        if let Some(entry) = &group.entry {
            let taken = entry.finalized && entry.ballot() == chosen.ballot() && entry.result != chosen.result;
            if entry.ballot() > chosen.ballot() || taken {
                return;
            }
        }
        let repeated = group.entry.as_ref().is_some_and(|e| e.finalized && e.ballot() == chosen.ballot());
        let result = chosen.result;
        if !repeated {
            self.adopt(id, &mut group, chosen, app);
            self.put(id, group, port);
        }
        port.send(to, Message::Confirm { group: id, attempt, view: present, ballot, result });
    }

    /// Adopts a chosen result. Locks stay beside another result than theirs, except those of a lower attempt.
    fn adopt(
        &self,
        id: TransactionId,
        group: &mut Group<O>,
        mut chosen: Entry<O>,
        app: &mut impl Application<O>,
    ) {
        let known = group.entry.take().filter(|entry| entry.attempt == chosen.attempt);
        chosen.operation = chosen.operation.or(known.and_then(|entry| entry.operation));
        match &chosen.operation {
            Some(operation) if O::holds(chosen.result) => {
                app.hold(id, operation);
                group.held = Some(Held { attempt: chosen.attempt, operation: operation.clone() });
            }
            _ => {
                let lower = group.held.as_ref().is_some_and(|held| held.attempt < chosen.attempt);
                if lower || self.mutants.has(Mutant::ReleaseOnAdoptedNonOk) {
                    group.held = None;
                    app.release(id);
                }
            }
        }
        group.promised = group.promised.max(chosen.ballot);
        group.entry = Some(chosen);
    }

    fn on_execute(
        &mut self,
        to: Address,
        id: TransactionId,
        operation: O::Inconsistent,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let mut group = self.groups.get(&id).cloned().unwrap_or_default();
        if group.outcome.is_none() || self.mutants.has(Mutant::ExecuteAgain) {
            app.execute_inconsistent(id, &operation);
            group = Group { promised: group.promised, outcome: Some(operation), ..Group::default() };
            self.put(id, group, port);
        }
        port.send(to, Message::Executed { group: id, view: self.view });
    }

    fn on_coordinator_change(
        &mut self,
        to: Address,
        id: TransactionId,
        ballot: CoordinatorView,
        port: &mut impl Port<O>,
    ) {
        let mut group = self.groups.get(&id).cloned().unwrap_or_default();
        if self.ended_or_superseded(to, id, &group, ballot, port) {
            return;
        }
        let never = Entry {
            attempt: 0,
            operation: None,
            result: O::NO_VOTE,
            ballot: CoordinatorView::ORIGINAL,
            finalized: false,
        };
        let mut entry = group.entry.take().unwrap_or(never);
        if !entry.finalized && !O::holds(entry.result) {
            entry.result = O::NO_VOTE;
        }
        group.entry = Some(entry.clone());
        if self.groups.get(&id).is_none_or(|known| known.promised != ballot || known.entry != group.entry) {
            group.promised = ballot;
            self.put(id, group, port);
        }
        port.send(to, Message::CoordinatorPromise { group: id, ballot, view: self.view, entry });
    }

    /// Records a group and writes it to the log.
    pub(super) fn put(&mut self, id: TransactionId, mut group: Group<O>, port: &mut impl Port<O>) {
        self.revision += 1;
        group.revision = self.revision;
        self.insert(id, group);
        if let Some(group) = self.groups.get(&id) {
            port.persist(&Change::Group { id, group });
        }
    }

    pub(super) fn insert(&mut self, id: TransactionId, group: Group<O>) {
        self.revision = self.revision.max(group.revision);
        self.by_revision.insert(group.revision, id);
        let revision = group.revision;
        if let Some(old) = self.groups.insert(id, group).filter(|old| old.revision != revision) {
            self.by_revision.remove(&old.revision);
        }
    }

    pub(super) fn remove(&mut self, id: TransactionId) {
        if let Some(old) = self.groups.remove(&id) {
            self.by_revision.remove(&old.revision);
        }
    }

    /// The groups whose revision is at least `from`, in the order of revisions.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (TransactionId, &Group<O>)> {
        self.by_revision.range(from..).filter_map(|(_, id)| self.groups.get(id).map(|group| (*id, group)))
    }

    /// The revision of the latest change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The last view in which it was NORMAL.
    pub fn last_normal(&self) -> u64 {
        self.last_normal
    }
}
