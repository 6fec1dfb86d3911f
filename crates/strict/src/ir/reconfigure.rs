//! A group of replicas moves from one epoch to the next (Corrections 83; the paper refers to viewstamped replication).
//!
//! ```text
//!  operator        member L           other members        those that join        clients
//!    |- Reconfigure ->|                     |                     |                  |
//!    |                |- Invite --------------------------------->|  fetch the state |
//!    |                |<-------------------------------- Invited -|                  |
//!    |                |  enters a view that it leads, as ever; the merged record     |
//!    |                |  says what follows                        |                  |
//!    |                |- StartView(next) -->|  SEALED, durably    |                  |
//!    |                |<-------ViewStarted -|                     |                  |
//!    |                |  f+1 are sealed                           |                  |
//!    |                |- StartEpoch ----------------------------->|  record, durably |
//!    |                |<----------------------------- EpochReady -|                  |
//!    |                |  f'+1 of the next epoch have the record: it has begun        |
//!    |                |- Epoch ------------>|-------------------->|  NORMAL          |
//!    |                |                     |<------- Propose(earlier epoch) --------|
//!    |                |                     |-------------------- Epoch ------------>|
//! ```
//!
//! # Why only one configuration follows
//! It is part of the record of a view. A view has one leader and starts with one record, and what f+1 have started is
//! in every later merge, since that meets one of them and takes the records of the highest last normal view. So as
//! soon as f+1 are sealed, every later view of the epoch says the same; before, a later view may have forgotten it, and
//! whoever was sealed serves again. Two operators, or one twice, end in one of the configurations; nothing else decides.
//!
//! # Why nothing is lost
//! In the last view nobody serves, so its record stays as it was merged, from view to view: only outcomes, which are
//! facts, come to be known. It holds every result that succeeded, as every merge does. StartEpoch is sent after f+1 are
//! sealed, so whoever has got it has this record; a member has it if its last normal view is at or above the one that
//! `Epoch` names. The next epoch has begun when f'+1 of its members have it durably, and nobody speaks of it, or in it,
//! before. From then on each quorum of it has one with the record; one who only hears that the epoch has begun makes
//! one as who slept through a view does. Who has forgotten recovers in the new epoch among those who have not.
//!
//! # Who is left behind
//! A replica answers whatever speaks in an earlier epoch with its own: its members and the view it began after. So
//! whoever knows some epoch finds the present one, from answer to answer, and nothing is counted on the way.

use super::replica::{Change, Port, Replica, Status};
use super::sync::SyncState;
use super::view_change::{PATIENCE, PartialRecord, Starting, parts};
use super::{
    Application, Configuration, Groups, HeldAttempt, Membership, Message, Operations, Part, Summary,
    epoch_of, first_view, quorum,
};
use crate::Mutant;
use std::collections::BTreeSet;
use types::{Address, NodeId, Timestamp};

/// So many times longer than a view that does not start is a sealed member patient with the leader of the last view: it
/// may have to tell a state.
const SEALED_PATIENCE: u32 = 4 * PATIENCE;

/// The configuration that a member was asked to propose, before the epoch ends.
#[derive(Debug, Default)]
pub(super) struct Changeover {
    /// What is to follow, and who of those that join is ready.
    inviting: Option<(Configuration, BTreeSet<Address>)>,
    /// What the record of this view is to say, unless it says something else already.
    pub(super) proposing: Option<(u64, Configuration)>,
    /// In this view only these members are left: the leader counts all that they have and waits for no other member.
    pub(super) left: Option<(u64, BTreeSet<Address>)>,
}

impl Changeover {
    /// What is to follow the epoch, if this view is to be its last.
    pub fn proposed_in(&self, view: u64) -> Option<Configuration> {
        self.proposing.as_ref().filter(|(of, _)| *of == view).map(|(_, configuration)| configuration.clone())
    }

    /// Who beside the leader is left of the group in this view, if the loss of the others was accepted.
    pub fn left_in(&self, view: u64) -> Option<&BTreeSet<Address>> {
        self.left.as_ref().filter(|(of, _)| *of == view).map(|(_, left)| left)
    }
}

/// What the leader of an epoch's last view has heard.
#[derive(Debug)]
pub(super) struct Closing {
    /// Who is sealed.
    sealed: BTreeSet<Address>,
    /// Who has what the next epoch begins with.
    ready: BTreeSet<Address>,
    /// StartEpoch was sent.
    start_sent: bool,
}

impl<O: Operations> Replica<O> {
    pub(super) fn on_epoch_message(
        &mut self,
        from: NodeId,
        message: Message<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let to = from.address();
        match message {
            Message::Reconfigure { configuration, alone: true } => {
                self.on_go_on_alone(&configuration, app, port);
            }
            Message::Reconfigure { configuration, alone: false } => {
                self.on_reconfigure(to, configuration, app, port);
            }
            Message::Invite { configuration, trimmed } => self.on_invite(to, &configuration, trimmed, port),
            Message::Invited { epoch } => self.on_invited(to, epoch, app, port),
            Message::StartEpoch { configuration, after, summary, part, groups } => {
                self.on_start_epoch(from, (configuration, after), summary, (part, groups), app, port);
            }
            Message::EpochReady { epoch, after } => {
                let of = self.membership.next.as_ref().map(|next| next.epoch);
                if of == Some(epoch)
                    && after == self.view
                    && let Some(closing) = &mut self.changing.closing
                {
                    closing.ready.insert(to);
                    self.hand_over(app, port);
                }
            }
            Message::WhichEpoch { epoch } if epoch < self.membership.present.epoch => {
                self.tell_epoch(to, port)
            }
            Message::Epoch { configuration, after } => self.on_epoch(configuration, after, app, port),
            _ => {}
        }
    }

    /// Asks the other members whether they know a later epoch.
    pub fn ask_epoch(&self, port: &mut impl Port<O>) {
        let Configuration { epoch, members } = &self.membership.present;
        for to in members.iter().filter(|to| **to != self.address) {
            port.send(*to, Message::WhichEpoch { epoch: *epoch });
        }
    }

    /// A sender that asks a replica outside any epoch must look elsewhere; or it knows of an epoch that began while
    /// this replica was down.
    pub fn turn_away(&self, from: Address, port: &mut impl Port<O>) {
        self.tell_epoch(from, port);
        self.ask_epoch(port);
    }

    /// Tells the present epoch.
    pub fn tell_epoch(&self, to: Address, port: &mut impl Port<O>) {
        let Membership { present, after, .. } = &self.membership;
        port.send(to, Message::Epoch { configuration: present.clone(), after: *after });
    }

    pub(super) fn persist_membership(&self, port: &mut impl Port<O>) {
        if !self.mutants.has(Mutant::EpochNotDurable) {
            port.persist(&Change::Membership(&self.membership));
        }
    }

    /// True if it may follow the present epoch.
    fn may_follow(&self, configuration: &Configuration) -> bool {
        let Configuration { epoch, members } = configuration;
        let different: BTreeSet<&Address> = members.iter().collect();
        *epoch == self.membership.present.epoch + 1
            && members.len() % 2 == 1
            && different.len() == members.len()
            && members.iter().all(|member| member.slot == self.address.slot)
    }

    /// Ends the epoch, once those that join are ready. Before that, nothing has changed.
    fn on_reconfigure(
        &mut self,
        from: Address,
        configuration: Configuration,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        if configuration.epoch <= self.membership.present.epoch {
            return self.tell_epoch(from, port);
        }
        if self.status != Status::Normal || !self.may_follow(&configuration) {
            return;
        }
        if self.changeover.inviting.as_ref().is_none_or(|(inviting, _)| *inviting != configuration) {
            self.changeover.inviting = Some((configuration, BTreeSet::new()));
        }
        let Some((configuration, ready)) = &self.changeover.inviting else { return };
        let trimmed = self.points.trimmed;
        for to in
            configuration.members.iter().filter(|to| !self.members().contains(to) && !ready.contains(to))
        {
            port.send(*to, Message::Invite { configuration: configuration.clone(), trimmed });
        }
        self.close_if_ready(app, port);
    }

    /// Gets ready to join: fetches the state if outcomes have been forgotten that this replica never had.
    fn on_invite(
        &mut self,
        from: Address,
        configuration: &Configuration,
        trimmed: Timestamp,
        port: &mut impl Port<O>,
    ) {
        let Configuration { epoch, .. } = *configuration;
        if self.status != Status::Outside {
            return port.send(from, Message::WhichEpoch { epoch: self.membership.present.epoch });
        }
        if epoch <= self.membership.present.epoch {
            return self.tell_epoch(from, port);
        }
        if trimmed > self.points.base {
            self.behind.get_or_insert(from);
        } else if !self.forgetful || self.mutants.has(Mutant::BeginForgetful) {
            port.send(from, Message::Invited { epoch });
        }
    }

    fn on_invited(
        &mut self,
        from: Address,
        epoch: u32,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        if let Some((configuration, ready)) = &mut self.changeover.inviting
            && configuration.epoch == epoch
        {
            ready.insert(from);
            self.close_if_ready(app, port);
        }
    }

    /// Enters a view that is to be the epoch's last, if everybody who joins is ready.
    fn close_if_ready(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let Some((configuration, ready)) = &self.changeover.inviting else { return };
        let joins = |member: &&Address| !self.members().contains(member) && !ready.contains(member);
        let waits = configuration.members.iter().any(|member| joins(&member));
        if self.status != Status::Normal || waits || !self.may_follow(configuration) {
            return;
        }
        let Some((configuration, _)) = self.changeover.inviting.take() else { return };
        let mut view = self.view + 1;
        while Some(self.leader(view)) != self.me {
            view += 1;
        }
        self.changeover.proposing = Some((view, configuration));
        self.enter_view(view, port);
        self.lead_if_enough(app, port);
    }

    /// As leader of a view that has started: if it is the epoch's last, waits for f+1 to be sealed.
    pub(super) fn begin_closing(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        self.changeover = Changeover::default();
        if self.status != Status::Sealed {
            return;
        }
        let (sealed, ready) = (BTreeSet::new(), BTreeSet::new());
        self.changing.closing = Some(Closing { sealed, ready, start_sent: false });
        self.on_sealed(self.address, !self.forgetful, app, port);
    }

    /// A member has started the epoch's last view.
    pub(super) fn on_sealed(
        &mut self,
        member: Address,
        ready: bool,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(closing) = &mut self.changing.closing else { return };
        closing.sealed.insert(member);
        if ready {
            closing.ready.insert(member);
        }
        self.hand_over(app, port);
    }

    /// As leader of the epoch's last view: tells its record to those that join once f+1 are sealed, and that the next
    /// epoch has begun once f'+1 of it have that record.
    fn hand_over(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let early = self.mutants.has(Mutant::StartBeforeSealed);
        let needed = if early { 1 } else { self.quorum() };
        let Some(next) = self.membership.next.clone() else { return };
        let Some(closing) = self.changing.closing.as_mut().filter(|closing| closing.sealed.len() >= needed)
        else {
            return;
        };
        let first = !std::mem::replace(&mut closing.start_sent, true);
        let ready = next.members.iter().filter(|member| closing.ready.contains(member)).count();
        if first {
            self.say_start_epoch(port);
        }
        if ready < quorum(next.members.len()) {
            return;
        }
        let after = self.view;
        let everybody: BTreeSet<Address> = self.members().iter().chain(&next.members).copied().collect();
        self.on_epoch(next, after, app, port);
        everybody.into_iter().filter(|to| *to != self.address).for_each(|to| self.tell_epoch(to, port));
    }

    /// Sends what the next epoch begins with to those that join and have not got it.
    fn say_start_epoch(&self, port: &mut impl Port<O>) {
        let (Some(closing), Some(started)) = (&self.changing.closing, &self.changing.started) else { return };
        let Some(next) = &self.membership.next else { return };
        let lost = self.mutants.has(Mutant::DropUndecidedAtChange);
        let undecided = started.groups.iter().filter(|_| !lost).map(|(id, group)| (*id, group));
        let parts = parts(undecided);
        let of = parts.len() as u32;
        for (number, groups) in (0..).zip(parts) {
            let part = Part { number, of, revision: 0 };
            for to in &next.members {
                if self.members().contains(to) || closing.ready.contains(to) {
                    continue;
                }
                // As the view started, but for what cannot be fetched any more, and with what is known by now.
                let summary = self.summary(self.points.trimmed, Timestamp::MAX);
                let (configuration, after, groups) = (next.clone(), self.view, groups.clone());
                port.send(*to, Message::StartEpoch { configuration, after, summary, part, groups });
            }
        }
    }

    /// Takes a part of what an epoch begins with that this replica joins.
    fn on_start_epoch(
        &mut self,
        from: NodeId,
        (configuration, after): (Configuration, u64),
        summary: Summary,
        (part, groups): (Part, Groups<O>),
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let present = self.membership.present.epoch;
        if configuration.epoch <= present {
            return self.tell_epoch(from.address(), port);
        }
        if self.status != Status::Outside {
            // It takes itself for a member of an epoch that is over.
            return port.send(from.address(), Message::WhichEpoch { epoch: present });
        }
        let forgetful = self.forgetful && !self.mutants.has(Mutant::BeginForgetful);
        if forgetful || !configuration.members.contains(&self.address) {
            return;
        }
        if self.membership.next.as_ref() == Some(&configuration) {
            return port.send(from.address(), Message::EpochReady { epoch: configuration.epoch, after });
        }
        let of = |starting: &Starting<O>| {
            (starting.record_parts.next.as_ref().map_or(0, |next| next.epoch), starting.view)
        };
        let this = (configuration.epoch, after);
        if self.changing.starting.as_ref().is_none_or(|starting| of(starting) < this) {
            let record_parts = PartialRecord::new(0, Some(configuration), part);
            self.changing.starting = Some(Starting { view: after, source: from, joins: true, record_parts });
        }
        let Some(starting) = &mut self.changing.starting else { return };
        if of(starting) == this && starting.record_parts.take(part, summary, groups) {
            starting.source = from;
            self.complete_start(app, port);
        }
    }

    /// All that the next epoch begins with is here.
    pub(super) fn get_ready(
        &mut self,
        source: NodeId,
        after: u64,
        record_parts: PartialRecord<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let (base, next) = (record_parts.summary.points.base, record_parts.next.clone());
        let Some(epoch) = next.as_ref().map(|next| next.epoch) else { return };
        self.install_record(base, record_parts.groups(), app, port);
        self.membership.next = next;
        self.persist_membership(port);
        self.changing.resent = 0;
        port.send(source.address(), Message::EpochReady { epoch, after });
        port.arm_view_timer(self.pause());
    }

    /// An epoch has begun: f+1 of its members have its first record.
    pub(super) fn on_epoch(
        &mut self,
        configuration: Configuration,
        after: u64,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Membership { present, next, .. } = &self.membership;
        if configuration.epoch <= present.epoch {
            return;
        }
        let place = configuration.members.iter().position(|member| *member == self.address);
        // What this replica has is what the epoch began with.
        let of_last = self.me.is_none() || (epoch_of(after) == present.epoch && self.last_normal >= after);
        let forgetful = self.forgetful && !self.mutants.has(Mutant::BeginForgetful);
        let begins = !forgetful && of_last && next.as_ref() == Some(&configuration);
        #[cfg(debug_assertions)]
        if begins {
            self.drop_undecided_at_change(app);
        }
        self.me = place;
        self.view = first_view(configuration.epoch);
        self.membership = Membership { present: configuration, after, next: None };
        (self.changing, self.sync, self.changeover) =
            (Default::default(), SyncState::default(), Default::default());
        self.vote_retention.begin_epoch();
        self.pulls.clear();
        self.behind = None;
        self.persist_membership(port);
        self.status = match place {
            None => Status::Outside,
            Some(_) if begins => Status::Normal,
            Some(_) if forgetful => Status::Recovering,
            Some(_) => Status::ViewChanging,
        };
        if self.status == Status::Normal {
            self.last_normal = self.view;
            if self.vote_retention.forgets_itself() {
                app.let_go(self.points.base);
            }
        }
        self.persist_view(port);
        match self.status {
            Status::ViewChanging => self.enter_view(self.view + 1, port),
            Status::Recovering => self.ask_views(port),
            Status::Outside if self.forgetful => port.arm_view_timer(self.pause()),
            _ => {}
        }
    }

    /// Says again what was not answered, when sealed or about to join; asks whether the next epoch has begun.
    pub(super) fn on_epoch_timer(&mut self, port: &mut impl Port<O>) {
        let epoch = self.membership.present.epoch;
        if self.status == Status::Outside && self.forgetful {
            self.ask_views(port);
        }
        let Some(next) = &self.membership.next else { return };
        for to in next.members.iter().filter(|to| **to != self.address) {
            port.send(*to, Message::WhichEpoch { epoch });
        }
        if self.status == Status::Outside {
            return port.arm_view_timer(self.patient());
        }
        if self.leads() {
            self.say_start_view(port);
            if self.changing.closing.as_ref().is_some_and(|closing| closing.start_sent) {
                self.say_start_epoch(port);
            }
            port.arm_view_timer(self.patient());
        } else if self.changing.resent > SEALED_PATIENCE {
            self.enter_view(self.view + 1, port);
        } else {
            port.arm_view_timer(self.pause());
        }
    }

    /// The groups that are undecided here, with the locks that they hold.
    pub fn undecided(&self) -> impl Iterator<Item = (types::TransactionId, Option<&HeldAttempt<O>>)> {
        self.log.undecided().map(|(id, group)| (id, group.held.as_ref()))
    }
}
