//! An IR replica in normal operation: proposals, results, promises, outcomes. View changes are next door.

use super::log::Log;
use super::outcomes::OutcomeFetch;
use super::reconfigure::Changeover;
use super::sync::SyncState;
use super::view_change::ViewChangeState;
use super::vote_retention::VoteRetention;
use super::{
    Application, Configuration, CoordinatorView, Ending, Entry, Group, Groups, HeldAttempt, Membership,
    Message, Operations, Points, epoch_of, first_view, quorum,
};
use crate::{Mutant, Mutants};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Incarnation, NodeId, Timestamp, TransactionId};

/// What a replica does at present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Serves clients.
    Normal,
    /// Has entered a view and waits for its record; silent towards clients.
    ViewChanging,
    /// May have forgotten what it said: silent, neither leads nor contributes.
    Recovering,
    /// Has started the last view of its epoch: silent towards clients for good, hands its record to the next epoch.
    Sealed,
    /// No member of the epoch that it knows: not yet, or no longer.
    Outside,
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
    /// Who the group is, or is about to be, has changed.
    Membership(&'a Membership),
    /// Synchronization is so far. Undecided groups born at or below the base are gone, and every group at or below
    /// what is trimmed.
    Points(Points),
}

/// Where a replica's messages and records go.
pub trait Port<O: Operations> {
    /// Sends, once everything persisted before is durable.
    fn send(&mut self, to: Address, message: Message<O>);
    /// Writes to the log.
    fn persist(&mut self, change: &Change<'_, O>);
    /// Arms the view timer: `Replica::on_view_timer` is called after this time, and not at the time set before.
    fn arm_view_timer(&mut self, after: Duration);
}

/// A replica of one group of 2f+1. Feed it messages with `on_message`; it drives `app` and speaks through a port.
#[derive(Debug)]
pub struct Replica<O: Operations> {
    pub(super) address: Address,
    pub(super) membership: Membership,
    /// Its place among the present members.
    pub(super) me: Option<usize>,
    pub(super) mutants: Mutants,
    pub(super) status: Status,
    pub(super) view: u64,
    pub(super) last_normal: u64,
    pub(super) log: Log<O>,
    pub(super) points: Points,
    pub(super) incarnation: Incarnation,
    pub(super) changing: ViewChangeState<O>,
    pub(super) sync: SyncState,
    pub(super) vote_retention: VoteRetention,
    /// Outcomes that are being fetched, by the replica that has them.
    pub(super) pulls: BTreeMap<Address, OutcomeFetch>,
    /// Who has forgotten outcomes that this replica never had: the state itself must come from there.
    pub(super) behind: Option<Address>,
    /// It may have forgotten what it said in an earlier life, and has not been NORMAL since.
    pub(super) forgetful: bool,
    pub(super) changeover: Changeover,
}

impl<O: Operations> Replica<O> {
    /// The replica at `address`, which may be one of the configuration's members, an odd number, or join later. It
    /// serves after `recovered`. Of a configuration that is not the first it must be known that its epoch has begun.
    pub fn new(configuration: Configuration, address: Address, mutants: Mutants) -> Self {
        assert!(configuration.members.len() % 2 == 1, "2f+1 replicas");
        Replica {
            changing: ViewChangeState::default(),
            address,
            me: configuration.members.iter().position(|member| *member == address),
            mutants,
            status: Status::Recovering,
            view: first_view(configuration.epoch),
            last_normal: 0,
            membership: Membership { present: configuration, after: 0, next: None },
            log: Log::default(),
            points: Points::default(),
            incarnation: Incarnation(0),
            sync: SyncState::default(),
            vote_retention: VoteRetention::default(),
            pulls: BTreeMap::new(),
            behind: None,
            forgetful: false,
            changeover: Changeover::default(),
        }
    }

    /// What it does at present.
    pub fn status(&self) -> Status {
        self.status
    }

    /// Which of the present members this is.
    pub fn me(&self) -> Option<usize> {
        self.me
    }

    /// Who the group is, as far as it knows.
    pub fn membership(&self) -> &Membership {
        &self.membership
    }

    /// True while this replica may have forgotten what it said in an earlier life: it counts towards no quorum until
    /// then.
    pub fn is_forgetful(&self) -> bool {
        self.forgetful
    }

    /// The present members.
    pub(super) fn members(&self) -> &[Address] {
        &self.membership.present.members
    }

    /// The highest view entered.
    pub fn view(&self) -> u64 {
        self.view
    }

    /// The record: what is undecided, and the outcomes that are not trimmed.
    pub fn groups(&self) -> &Groups<O> {
        self.log.all()
    }

    /// How far synchronization is.
    pub fn points(&self) -> Points {
        self.points
    }

    /// The other replicas.
    pub(super) fn others(&self) -> impl Iterator<Item = Address> + '_ {
        self.members().iter().copied().filter(|address| *address != self.address)
    }

    pub(super) fn member(&self, from: NodeId) -> Option<usize> {
        self.members().iter().position(|address| *address == from.address())
    }

    pub(super) fn quorum(&self) -> usize {
        quorum(self.members().len())
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
        if message.view().is_some_and(|view| !self.is_of_epoch(to, view, port)) {
            return;
        }
        match message {
            Message::Propose { group, born, attempt, view, operation } => {
                if self.serves(view, port) {
                    self.on_propose(to, (group, born), attempt, operation, app, port);
                }
            }
            Message::Finalize { group, born, attempt, view, ballot, operation, result } => {
                if self.serves(view, port) {
                    let entry = Entry { attempt, operation, result, ballot, finalized: true };
                    self.on_finalize(to, (group, born), view, entry, app, port);
                }
            }
            Message::Execute { group, born, operation } => {
                if self.serves(0, port) {
                    self.on_execute(to, (group, born), operation, app, port);
                } else if self.status == Status::Outside {
                    // A decision is of no epoch.
                    self.turn_away(to, port);
                }
            }
            Message::CoordinatorChange { group, born, ballot, view } => {
                if self.serves(view, port) {
                    self.on_coordinator_change(to, (group, born), ballot, port);
                }
            }
            Message::StartViewChange { .. }
            | Message::DoViewChange { .. }
            | Message::StartView { .. }
            | Message::ViewStarted { .. }
            | Message::WhichView { .. }
            | Message::ThisView { .. } => self.on_view_message(from, message, app, port),
            Message::Lacking { .. }
            | Message::Ended { .. }
            | Message::Sync { .. }
            | Message::Synced { .. }
            | Message::FinishSync { .. }
            | Message::SyncFinished { .. } => self.on_sync_message(from, message, app, port),
            Message::Reconfigure { .. }
            | Message::Invite { .. }
            | Message::Invited { .. }
            | Message::StartEpoch { .. }
            | Message::EpochReady { .. }
            | Message::WhichEpoch { .. }
            | Message::Epoch { .. } => self.on_epoch_message(from, message, app, port),
            // For clients and backup coordinators.
            Message::Reply { .. }
            | Message::Confirm { .. }
            | Message::Executed { .. }
            | Message::Outcome { .. }
            | Message::Forgotten { .. }
            | Message::Superseded { .. }
            | Message::CoordinatorPromise { .. } => {}
        }
    }

    /// True if a message speaks in a view of the present epoch. The replica tells a sender that is behind about the
    /// present epoch, and asks a sender that is ahead. The one place where epochs are compared (Corrections 19, 83).
    fn is_of_epoch(&self, from: Address, view: u64, port: &mut impl Port<O>) -> bool {
        let present = self.membership.present.epoch;
        if epoch_of(view) < present {
            self.tell_epoch(from, port);
        } else if epoch_of(view) > present {
            port.send(from, Message::WhichEpoch { epoch: present });
        }
        epoch_of(view) == present
    }

    /// True if a client that has seen `view` may be served; a higher view than ours is joined first.
    fn serves(&mut self, view: u64, port: &mut impl Port<O>) -> bool {
        if view > self.view && !matches!(self.status, Status::Recovering | Status::Outside) {
            self.enter_view(view, port);
        }
        self.status == Status::Normal
    }

    fn on_propose(
        &mut self,
        to: Address,
        (id, born): (TransactionId, Timestamp),
        attempt: u32,
        operation: O::Consensus,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let ended = || self.log.get(id).is_some_and(|group| group.outcome.is_some());
        let no_tombstones = self.mutants.has(Mutant::NoTombstones) && ended();
        if !no_tombstones && self.ended_or_superseded(to, (id, born), CoordinatorView::ORIGINAL, port) {
            return;
        }
        let mut group = self.group(id, born);
        if no_tombstones {
            group = Group { born, ..Group::default() };
        }
        let known = group.entry.as_ref().map_or(0, |entry| entry.attempt);
        if attempt < known || group.entry.as_ref().is_some_and(|entry| entry.ballot.round > 0) {
            return;
        }
        let mut hint = None;
        if attempt > known {
            let result;
            if born <= self.points.floor && !self.mutants.has(Mutant::ForgetFloor) {
                result = O::late(self.points.floor);
            } else {
                (result, hint) = app.execute_consensus(id, &operation);
            }
            if O::holds(result) {
                self.vote_retention.voted(born, app.needs(&operation));
                app.hold(id, &operation);
                group.held = Some(HeldAttempt { attempt, operation: operation.clone() });
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

    /// What is known of a group.
    fn group(&self, id: TransactionId, born: Timestamp) -> Group<O> {
        self.log.get(id).cloned().unwrap_or_else(|| Group { born, ..Group::default() })
    }

    /// Tells the entry of a group as it is.
    fn reply(&self, to: Address, group: TransactionId, hint: Option<u32>, port: &mut impl Port<O>) {
        let Some(entry) = self.log.get(group).and_then(|group| group.entry.as_ref()) else { return };
        let (attempt, result, finalized) = (entry.attempt, entry.result, entry.finalized);
        port.send(to, Message::Reply { group, attempt, view: self.view, result, finalized, hint });
    }

    /// Answers whoever speaks for a group that has ended, or under too low a coordinator view. One that is unknown
    /// and was born above what is trimmed, but not above the base, can never commit.
    fn ended_or_superseded(
        &self,
        to: Address,
        (id, born): (TransactionId, Timestamp),
        ballot: CoordinatorView,
        port: &mut impl Port<O>,
    ) -> bool {
        let message = match self.log.get(id) {
            Some(Group { outcome: Some(outcome), .. }) => {
                Message::Outcome { group: id, operation: outcome.clone() }
            }
            Some(group) if group.promised > ballot => {
                Message::Superseded { group: id, promised: group.promised }
            }
            None if born <= self.points.trimmed && !self.mutants.has(Mutant::ForgottenIsAborted) => {
                Message::Forgotten { group: id }
            }
            None if born <= self.points.base => Message::Outcome { group: id, operation: O::ABORT },
            _ => return false,
        };
        port.send(to, message);
        true
    }

    fn on_finalize(
        &mut self,
        to: Address,
        (id, born): (TransactionId, Timestamp),
        view: u64,
        chosen: Entry<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        if self.ended_or_superseded(to, (id, born), chosen.ballot, port) {
            return;
        }
        let present = if self.mutants.has(Mutant::FinalizeWithoutView) { view } else { self.view };
        if view != present {
            // Chosen in an earlier view: the sender learns the view and what became of the operation in it.
            return self.reply(to, id, None, port);
        }
        let mut group = self.group(id, born);
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
                group.held = Some(HeldAttempt { attempt: chosen.attempt, operation: operation.clone() });
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
        (id, born): (TransactionId, Timestamp),
        operation: Ending<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let known = self.log.get(id);
        let operation = match operation {
            Ending::Whole(operation) => Some(operation),
            Ending::Rest(rest) => known.and_then(|group| {
                let proposed = || group.operation().map(|known| O::complete(&rest, known));
                group.outcome.clone().or_else(proposed)
            }),
        };
        match operation {
            Some(operation) => self.end(id, born, operation, app, port),
            None if born <= self.points.base => {}
            // The vote that this relies on is forgotten here.
            None => return,
        }
        port.send(to, Message::Executed { group: id, view: self.view });
    }

    /// Executes the operation that ends a group, unless it has ended. Nothing at or below the base is news.
    pub(super) fn end(
        &mut self,
        id: TransactionId,
        born: Timestamp,
        operation: O::Inconsistent,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let known = self.log.get(id);
        let ended = known.is_some_and(|group| group.outcome.is_some()) || born <= self.points.base;
        if ended && !self.mutants.has(Mutant::ExecuteAgain) {
            return;
        }
        app.execute_inconsistent(id, &operation);
        let promised = known.map_or_else(Default::default, |group| group.promised);
        self.put(id, Group { born, promised, outcome: Some(operation), ..Group::default() }, port);
    }

    fn on_coordinator_change(
        &mut self,
        to: Address,
        (id, born): (TransactionId, Timestamp),
        ballot: CoordinatorView,
        port: &mut impl Port<O>,
    ) {
        if self.ended_or_superseded(to, (id, born), ballot, port) {
            return;
        }
        let mut group = self.group(id, born);
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
        if self.log.get(id).is_none_or(|known| known.promised != ballot || known.entry != group.entry) {
            group.promised = ballot;
            self.put(id, group, port);
        }
        port.send(to, Message::CoordinatorPromise { group: id, ballot, view: self.view, entry });
    }

    /// Records a group and writes it to the log.
    pub(super) fn put(&mut self, id: TransactionId, group: Group<O>, port: &mut impl Port<O>) {
        let group = self.log.put(id, group);
        port.persist(&Change::Group { id, group });
    }

    /// The groups whose revision is at least `from`, in the order of revisions.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (TransactionId, &Group<O>)> {
        self.log.since(from)
    }

    /// The revision of the latest change.
    pub fn revision(&self) -> u64 {
        self.log.revision()
    }

    /// What is known of a group.
    pub fn get(&self, id: TransactionId) -> Option<&Group<O>> {
        self.log.get(id)
    }

    /// The last view in which it was NORMAL.
    pub fn last_normal(&self) -> u64 {
        self.last_normal
    }
}
