//! View changes and the recovery of a replica that may have forgotten.

use super::replica::{Change, Port, Replica, Status};
use super::{Application, Group, Groups, Message, Operations, merge, tolerated};
use crate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Incarnation, NodeId, TransactionId};

/// How often what has not been answered is said again.
const RESEND_EVERY: Duration = Duration::from_millis(100);
/// Longer by this for every group of the record, which has to be sent, merged and installed: said again sooner, it
/// only keeps the others from doing so.
const RESEND_LATER_BY: Duration = Duration::from_micros(250);
/// The longest wait between two StartViews to a replica that does not answer.
const RESEND_AT_MOST: Duration = Duration::from_secs(5);
/// After how many resendings a replica gives a view up for the next.
const PATIENCE: u32 = 5;

/// What a replica keeps while views change.
#[derive(Debug)]
pub(super) struct Changing<O: Operations> {
    /// As leader of the view: the records received, by replica, with their last normal view.
    records: BTreeMap<usize, (u64, Groups<O>)>,
    /// As leader of a started view: its record, and who has not acknowledged it.
    started: Option<(Groups<O>, BTreeSet<usize>)>,
    /// How often something was said in this view without success.
    resent: u32,
    /// How many views in a row have not started.
    failed: u32,
    /// While recovering: the views of others, by replica.
    views: BTreeMap<usize, u64>,
    /// While recovering: only this view or a later one may end it; `None` until f+1 others have answered.
    not_before: Option<u64>,
}

impl<O: Operations> Default for Changing<O> {
    fn default() -> Self {
        Changing {
            records: BTreeMap::new(),
            started: None,
            resent: 0,
            failed: 0,
            views: BTreeMap::new(),
            not_before: None,
        }
    }
}

impl<O: Operations> Replica<O> {
    fn leader(&self, view: u64) -> usize {
        (view % self.members.len() as u64) as usize
    }

    /// Takes a change back from the log or a checkpoint; `Recovered` comes after all of them.
    pub fn recover(&mut self, change: Recovering<O>) {
        match change {
            Recovering::View { view, last_normal } => {
                self.view = self.view.max(view);
                self.last_normal = self.last_normal.max(last_normal);
            }
            Recovering::Group { id, group } => self.recover_group(id, group),
            Recovering::Record { view, first, groups } => {
                self.view = self.view.max(view);
                self.last_normal = self.last_normal.max(view);
                let old = self.groups.iter().filter(|(_, group)| group.revision < first);
                let old: Vec<TransactionId> = old.map(|(id, _)| *id).collect();
                old.into_iter().for_each(|id| self.remove(id));
                groups.into_iter().for_each(|(id, group)| self.recover_group(id, group));
            }
        }
    }

    fn recover_group(&mut self, id: TransactionId, group: Group<O>) {
        if self.groups.get(&id).is_none_or(|known| known.revision < group.revision) {
            self.insert(id, group);
        }
    }

    /// Recovery from the log is over; `incarnation` is this life's. With `complete` the replica goes on where it
    /// was; else it must learn from f+1 others before it says anything (Corrections 4, 7 and 67).
    pub fn recovered(
        &mut self,
        incarnation: Incarnation,
        complete: bool,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        self.incarnation = incarnation;
        for (id, group) in self.since(0) {
            if let Some(outcome) = &group.outcome {
                app.execute_inconsistent(id, outcome);
            } else if let Some(held) = &group.held {
                app.hold(id, &held.operation);
            }
        }
        let alone = self.members.len() == 1;
        let fresh = self.revision == 0 && self.view == 0;
        if alone || self.mutants.has(Mutant::ForgetRecovery) || (complete && fresh) {
            (self.status, self.last_normal) = (Status::Normal, self.view);
        } else if complete {
            // What was missed while away comes with a new view.
            self.status = Status::ViewChanging;
            self.enter_view(self.view + 1, port);
        } else {
            self.status = Status::Recovering;
            self.ask_views(port);
        }
    }

    fn ask_views(&mut self, port: &mut impl Port<O>) {
        self.changing.views.clear();
        self.changing.not_before = None;
        for to in self.others() {
            port.send(to, Message::WhichView { incarnation: self.incarnation });
        }
        port.arm_view_timer(RESEND_EVERY);
    }

    pub(super) fn on_which_view(&mut self, from: NodeId, incarnation: Incarnation, port: &mut impl Port<O>) {
        if self.status != Status::Recovering && self.member(from).is_some() {
            port.send(from.address(), Message::ThisView { incarnation, view: self.view });
        }
    }

    pub(super) fn on_this_view(
        &mut self,
        from: NodeId,
        incarnation: Incarnation,
        view: u64,
        port: &mut impl Port<O>,
    ) {
        let Some(member) = self.member(from) else { return };
        if self.status != Status::Recovering || incarnation != self.incarnation {
            return;
        }
        self.changing.views.insert(member, view);
        if self.changing.views.len() < self.quorum() || self.changing.not_before.is_some() {
            return;
        }
        let highest = self.changing.views.values().copied().max().unwrap_or(0).max(self.view);
        self.demand_view(highest + 1, port);
    }

    /// As a recovering replica: asks the others to enter a view that this one does not lead.
    fn demand_view(&mut self, mut view: u64, port: &mut impl Port<O>) {
        if self.changing.not_before.is_none() {
            self.changing.not_before = Some(view);
        }
        if self.leader(view) == self.me {
            view += 1;
        }
        self.view = view;
        self.persist_view(port);
        for to in self.others() {
            port.send(to, Message::StartViewChange { view });
        }
        self.changing.failed += 1;
        port.arm_view_timer(self.pause() * PATIENCE);
    }

    fn persist_view(&self, port: &mut impl Port<O>) {
        port.persist(&Change::View { view: self.view, last_normal: self.last_normal });
    }

    /// Stops serving and enters a view.
    pub(super) fn enter_view(&mut self, view: u64, port: &mut impl Port<O>) {
        debug_assert!(view > self.view && self.status != Status::Recovering, "views only rise");
        let failed = if self.status == Status::ViewChanging { self.changing.failed + 1 } else { 0 };
        self.view = view;
        self.status = Status::ViewChanging;
        self.changing = Changing { failed, ..Changing::default() };
        self.persist_view(port);
        self.say_view_change(port);
    }

    fn say_view_change(&mut self, port: &mut impl Port<O>) {
        for to in self.others() {
            port.send(to, Message::StartViewChange { view: self.view });
        }
        let leader = self.leader(self.view);
        if leader == self.me {
            self.changing.records.insert(self.me, (self.last_normal, self.groups.clone()));
        } else {
            let (view, last_normal) = (self.view, self.last_normal);
            let message = Message::DoViewChange { view, last_normal, groups: self.groups.clone() };
            port.send(self.members[leader], message);
        }
        port.arm_view_timer(self.pause());
    }

    /// How long to wait for answers: longer after every view that did not start, so that slow networks catch up.
    fn pause(&self) -> Duration {
        self.resend_every() * 2u32.pow(self.changing.failed.min(5))
    }

    fn resend_every(&self) -> Duration {
        let groups = u32::try_from(self.groups.len()).unwrap_or(u32::MAX);
        RESEND_EVERY + RESEND_LATER_BY.saturating_mul(groups)
    }

    pub(super) fn on_start_view_change(&mut self, from: NodeId, view: u64, port: &mut impl Port<O>) {
        if self.member(from).is_none() || self.status == Status::Recovering {
            return;
        }
        if view > self.view {
            self.enter_view(view, port);
        } else if view < self.view {
            port.send(from.address(), Message::StartViewChange { view: self.view });
        } else if self.status == Status::Normal {
            self.send_start_view(from, port);
        }
    }

    /// Sends the record that the present view started with, if this replica leads it and still has it.
    fn send_start_view(&mut self, to: NodeId, port: &mut impl Port<O>) {
        if let Some((groups, _)) = &self.changing.started {
            port.send(to.address(), Message::StartView { view: self.view, groups: groups.clone() });
        }
    }

    pub(super) fn on_do_view_change(
        &mut self,
        from: NodeId,
        view: u64,
        last_normal: u64,
        groups: Groups<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(member) = self.member(from) else { return };
        if self.status == Status::Recovering {
            return;
        }
        if view > self.view {
            self.enter_view(view, port);
        }
        if view < self.view {
            return port.send(from.address(), Message::StartViewChange { view: self.view });
        }
        match self.status {
            Status::ViewChanging if self.leader(view) == self.me => {
                self.changing.records.insert(member, (last_normal, groups));
                if self.changing.records.len() >= self.quorum() {
                    self.lead(app, port);
                }
            }
            Status::Normal if self.changing.started.is_some() => self.send_start_view(from, port),
            // Everybody has started this view, the sender too: it said this before, and it came late. A new view
            // for it would make the next late one, and no view would last.
            _ => {}
        }
    }

    /// Merges f+1 records and starts the view.
    fn lead(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let records = std::mem::take(&mut self.changing.records);
        let highest = records.values().map(|(last_normal, _)| *last_normal).max().unwrap_or(0);
        // An outcome is a fact, whoever knows it; results count only in the highest last normal view.
        for (_, groups) in records.values() {
            self.take_outcomes(groups, app);
        }
        let held = self.groups.iter().filter(|(_, group)| group.held.is_some()).map(|(id, _)| *id);
        held.filter(|_| !self.mutants.has(Mutant::KeepLocksInMerge)).for_each(|id| app.release(id));
        let every = self.mutants.has(Mutant::MergeEveryView);
        let counted = records.values().filter(|(last_normal, _)| *last_normal == highest || every);
        let counted: Vec<&Groups<O>> = counted.map(|(_, groups)| groups).collect();
        let majority = tolerated(self.members.len()).div_ceil(2) + 1;
        let merged = merge(&counted, &self.groups, majority, self.mutants, app);
        self.install(merged.clone(), app, port);
        let others: BTreeSet<usize> = (0..self.members.len()).filter(|member| *member != self.me).collect();
        for to in self.others() {
            port.send(to, Message::StartView { view: self.view, groups: merged.clone() });
        }
        self.changing.started = Some((merged, others));
        port.arm_view_timer(self.resend_every());
    }

    /// Executes the outcomes in `groups` that this replica does not know.
    fn take_outcomes(&mut self, groups: &Groups<O>, app: &mut impl Application<O>) {
        for (id, group) in groups {
            let Some(outcome) = &group.outcome else { continue };
            if self.groups.get(id).is_none_or(|known| known.outcome.is_none()) {
                app.execute_inconsistent(*id, outcome);
                let ended = Group { outcome: Some(outcome.clone()), ..Group::default() };
                self.insert_fresh(*id, ended);
            }
        }
    }

    fn insert_fresh(&mut self, id: TransactionId, mut group: Group<O>) {
        self.revision += 1;
        group.revision = self.revision;
        self.insert(id, group);
    }

    /// Replaces the record by the merged one, adopts its decisions (Sync) and becomes NORMAL. What only this
    /// replica knows and no record can contradict stays: outcomes, promises, and locks (Corrections 10).
    fn install(&mut self, merged: Groups<O>, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        self.take_outcomes(&merged, app);
        let first = self.revision + 1;
        let ids: BTreeSet<TransactionId> = self.groups.keys().chain(merged.keys()).copied().collect();
        for id in ids {
            let own = self.groups.get(&id).cloned().unwrap_or_default();
            let mut group = match merged.get(&id) {
                Some(group) => group.clone(),
                None if self.mutants.has(Mutant::DropUnmentionedLocks) => Group::default(),
                None => Group { held: own.held.clone(), ..Group::default() },
            };
            group.promised = group.promised.max(own.promised);
            group.outcome = group.outcome.or(own.outcome);
            if group.outcome.is_some() {
                (group.entry, group.held) = (None, None);
            } else {
                match &group.held {
                    Some(held) => app.hold(id, &held.operation),
                    None if own.held.is_some() => app.release(id),
                    None => {}
                }
            }
            self.insert_fresh(id, group);
        }
        self.status = Status::Normal;
        self.last_normal = self.view;
        self.changing = Changing::default();
        port.persist(&Change::Record { view: self.view, first, groups: &self.groups });
    }

    pub(super) fn on_start_view(
        &mut self,
        from: NodeId,
        view: u64,
        groups: Groups<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let recovering = self.status == Status::Recovering;
        let too_early = recovering && self.changing.not_before.is_none_or(|not_before| view < not_before);
        if self.member(from) != Some(self.leader(view)) || too_early || (view < self.view && !recovering) {
            return;
        }
        if view > self.view || self.status != Status::Normal {
            self.view = view;
            let forgotten = self.mutants.has(Mutant::StartViewWithoutRecord);
            self.install(if forgotten { self.groups.clone() } else { groups }, app, port);
        }
        port.send(from.address(), Message::ViewStarted { view });
    }

    pub(super) fn on_view_started(&mut self, from: NodeId, view: u64) {
        let Some(member) = self.member(from) else { return };
        if view != self.view {
            return;
        }
        if let Some((_, waiting)) = &mut self.changing.started {
            waiting.remove(&member);
            if waiting.is_empty() {
                self.changing.started = None;
            }
        }
    }

    /// Says again what was not answered; gives up a view that does not start.
    pub fn on_view_timer(&mut self, port: &mut impl Port<O>) {
        self.changing.resent += 1;
        match self.status {
            Status::Recovering => match self.changing.not_before {
                None => self.ask_views(port),
                Some(_) => self.demand_view(self.view + 1, port),
            },
            Status::ViewChanging if self.changing.resent > PATIENCE => self.enter_view(self.view + 1, port),
            Status::ViewChanging => self.say_view_change(port),
            Status::Normal => {
                let Some((groups, waiting)) = &self.changing.started else { return };
                for member in waiting {
                    let message = Message::StartView { view: self.view, groups: groups.clone() };
                    port.send(self.members[*member], message);
                }
                let wait = self.resend_every() * 2u32.saturating_pow(self.changing.resent.min(8));
                port.arm_view_timer(wait.min(RESEND_AT_MOST.max(self.resend_every())));
            }
        }
    }
}

/// A change of the durable state, read back.
#[derive(Debug)]
pub enum Recovering<O: Operations> {
    /// See [`Change::Group`].
    Group {
        /// The group.
        id: TransactionId,
        /// All of it.
        group: Group<O>,
    },
    /// See [`Change::View`].
    View {
        /// The view entered.
        view: u64,
        /// The last normal view.
        last_normal: u64,
    },
    /// See [`Change::Record`].
    Record {
        /// The view.
        view: u64,
        /// The revision from which on the groups are counted.
        first: u64,
        /// Every group.
        groups: Groups<O>,
    },
}
