//! View changes.

use super::epoch::within_epoch;
use super::outcomes::MESSAGE_BYTES;
use super::reconfigure::Closing;
use super::replica::{Change, Port, Replica, Status};
use super::sync::SyncState;
use super::{Application, Configuration, Group, Groups, Message, Operations, Part, Summary, epoch_of, merge};
use crate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, NodeId, Timestamp, TransactionId, Wire};

/// How often what has not been answered is said again.
pub(super) const RESEND_EVERY: Duration = Duration::from_millis(100);
/// Longer by this for every group of the record, which has to be sent, merged and installed: said again sooner, it
/// only keeps the others from doing so.
const RESEND_LATER_BY: Duration = Duration::from_micros(250);
/// The longest wait between two StartViews to a replica that does not answer.
const RESEND_AT_MOST: Duration = Duration::from_secs(5);
/// After how many resendings a replica gives a view up for the next.
pub(super) const PATIENCE: u32 = 5;

/// Another replica's record, received part by part.
#[derive(Debug)]
pub(super) struct PartialRecord<O: Operations> {
    last_normal: u64,
    /// What follows the epoch.
    pub(super) next: Option<Configuration>,
    pub(super) summary: Summary,
    revision: u64,
    of: u32,
    parts: BTreeMap<u32, Groups<O>>,
    /// This replica has every outcome that the other has.
    pulled: bool,
}

impl<O: Operations> PartialRecord<O> {
    pub(super) fn new(last_normal: u64, next: Option<Configuration>, part: Part) -> Self {
        let (summary, parts) = Default::default();
        PartialRecord {
            last_normal,
            next,
            summary,
            revision: part.revision,
            of: part.of,
            parts,
            pulled: false,
        }
    }

    /// What a replica without the leader's record would start with.
    fn of_own(groups: Groups<O>) -> Self {
        let mut record_parts = PartialRecord::new(0, None, Part::default());
        record_parts.parts.insert(0, groups);
        record_parts
    }

    /// Takes a part; true when all of them are there.
    pub(super) fn take(&mut self, part: Part, summary: Summary, groups: Groups<O>) -> bool {
        self.summary = summary;
        self.parts.insert(part.number, groups);
        self.is_whole()
    }

    pub(super) fn is_whole(&self) -> bool {
        self.parts.len() == self.of as usize
    }

    /// True if it counts: all of it is here, and every outcome in it.
    pub(super) fn is_ready(&self) -> bool {
        self.is_whole() && self.pulled
    }

    pub(super) fn groups(self) -> Groups<O> {
        self.parts.into_values().flatten().collect()
    }
}

/// What a view started with. The leader retains it until every member has it, and for as long as the next epoch begins
/// with it.
#[derive(Debug)]
pub(super) struct Started<O: Operations> {
    pub(super) groups: Groups<O>,
    pub(super) summary: Summary,
    /// Who has not acknowledged it.
    waiting: BTreeSet<usize>,
}

/// The beginning of a view, or of an epoch that this replica joins, while its record arrives.
#[derive(Debug)]
pub(super) struct Starting<O: Operations> {
    /// The view; of an epoch the last one before it.
    pub(super) view: u64,
    pub(super) source: NodeId,
    /// True if it is the beginning of the epoch that `record_parts` names.
    pub(super) joins: bool,
    pub(super) record_parts: PartialRecord<O>,
}

/// A replica's state during a view change.
#[derive(Debug)]
pub(super) struct ViewChangeState<O: Operations> {
    /// As leader of the view: the records of others, by replica.
    pub(super) record_parts: BTreeMap<usize, PartialRecord<O>>,
    /// As follower: the beginning of a view.
    pub(super) starting: Option<Starting<O>>,
    /// As leader of a started view: what was undecided then.
    pub(super) started: Option<Started<O>>,
    /// As leader of the last view of an epoch.
    pub(super) closing: Option<Closing>,
    /// How often something was said in this view without success.
    pub(super) resent: u32,
    /// How many views in a row have not started.
    pub(super) failed: u32,
    /// While recovering: the views of others, by replica.
    pub(super) views: BTreeMap<usize, u64>,
    /// While recovering: only this view or a later one may end it; `None` until f+1 others have answered.
    pub(super) not_before: Option<u64>,
}

impl<O: Operations> Default for ViewChangeState<O> {
    fn default() -> Self {
        ViewChangeState {
            record_parts: BTreeMap::new(),
            starting: None,
            started: None,
            closing: None,
            resent: 0,
            failed: 0,
            views: BTreeMap::new(),
            not_before: None,
        }
    }
}

impl<O: Operations> ViewChangeState<O> {
    /// A requested part has arrived: the timeout begins anew.
    pub fn came_on(&mut self) {
        self.resent = 0;
    }
}

/// The groups in parts of about a message's size; one empty part if there is none.
pub(super) fn parts<'g, O: Operations>(
    groups: impl Iterator<Item = (TransactionId, &'g Group<O>)>,
) -> Vec<Groups<O>> {
    let (mut parts, mut bytes) = (vec![Groups::new()], Vec::new());
    for (id, group) in groups {
        if bytes.len() >= MESSAGE_BYTES {
            parts.push(Groups::new());
            bytes.clear();
        }
        group.encode(&mut bytes);
        if let Some(part) = parts.last_mut() {
            part.insert(id, group.clone());
        }
    }
    parts
}

impl<O: Operations> Replica<O> {
    pub(super) fn leader(&self, view: u64) -> usize {
        (within_epoch(view) % self.members().len().max(1) as u64) as usize
    }

    /// True if this replica leads the present view.
    pub(super) fn leads(&self) -> bool {
        Some(self.leader(self.view)) == self.me
    }

    pub(super) fn on_view_message(
        &mut self,
        from: NodeId,
        message: Message<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        match message {
            Message::WhichView { incarnation } => self.on_which_view(from, incarnation, port),
            Message::ThisView { incarnation, view, serving } => {
                self.on_this_view(from, incarnation, (view, serving), port);
            }
            _ if self.me.is_none() => {}
            Message::StartViewChange { view } => self.on_start_view_change(from, view, port),
            Message::DoViewChange { view, last_normal, next, summary, part, groups } => {
                let record = (last_normal, next, summary);
                self.on_do_view_change(from, view, record, (part, groups), app, port);
            }
            Message::StartView { view, next, summary, part, groups } => {
                self.on_start_view(from, (view, next), summary, (part, groups), app, port);
            }
            Message::ViewStarted { view, ready } => self.on_view_started(from, view, ready, app, port),
            _ => {}
        }
    }

    pub(super) fn persist_view(&self, port: &mut impl Port<O>) {
        if self.mutants.has(Mutant::EpochNotDurable) && epoch_of(self.view) > 0 {
            return;
        }
        port.persist(&Change::View { view: self.view, last_normal: self.last_normal });
    }

    /// Stops serving and enters a view.
    pub(super) fn enter_view(&mut self, view: u64, port: &mut impl Port<O>) {
        debug_assert!(view > self.view && self.status != Status::Recovering, "views only rise");
        let waited = matches!(self.status, Status::ViewChanging | Status::Sealed);
        let failed = if waited { self.changing.failed + 1 } else { 0 };
        self.stop_serving(view, failed, port);
        self.say_view_change(port);
    }

    fn stop_serving(&mut self, view: u64, failed: u32, port: &mut impl Port<O>) {
        self.view = view;
        self.status = Status::ViewChanging;
        self.changing = ViewChangeState { failed, ..ViewChangeState::default() };
        self.sync = SyncState::default();
        self.vote_retention.begin_view();
        self.pulls.clear();
        self.persist_view(port);
    }

    fn say_view_change(&mut self, port: &mut impl Port<O>) {
        for to in self.others() {
            port.send(to, Message::StartViewChange { view: self.view });
        }
        let leader = self.leader(self.view);
        if Some(leader) != self.me {
            let (view, last_normal) = (self.view, self.last_normal);
            let parts = parts(self.log.undecided());
            let (of, revision) = (parts.len() as u32, self.log.revision());
            for (number, groups) in (0..).zip(parts) {
                let summary = self.summary(self.points.trimmed, Timestamp::MAX);
                let part = Part { number, of, revision };
                let next = self.membership.next.clone();
                let message = Message::DoViewChange { view, last_normal, next, summary, part, groups };
                port.send(self.members()[leader], message);
            }
        }
        port.arm_view_timer(self.pause());
    }

    /// How long to wait for answers: longer after every view that did not start, so that slow networks catch up.
    pub(super) fn pause(&self) -> Duration {
        self.resend_every() * 2u32.pow(self.changing.failed.min(5))
    }

    pub(super) fn resend_every(&self) -> Duration {
        let groups = u32::try_from(self.log.undecided().count()).unwrap_or(u32::MAX);
        RESEND_EVERY + RESEND_LATER_BY.saturating_mul(groups)
    }

    fn on_start_view_change(&mut self, from: NodeId, view: u64, port: &mut impl Port<O>) {
        let Some(member) = self.member(from) else { return };
        if self.status == Status::Recovering {
            return;
        }
        if view > self.view {
            self.enter_view(view, port);
        } else if view < self.view {
            port.send(from.address(), Message::StartViewChange { view: self.view });
        } else if matches!(self.status, Status::Normal | Status::Sealed) {
            self.send_start_view(member, port);
        }
    }

    /// Sends what was undecided when the present view started, if this replica leads it and still has it.
    fn send_start_view(&self, to: usize, port: &mut impl Port<O>) {
        let Some(Started { groups, summary, .. }) = &self.changing.started else { return };
        let parts = parts(groups.iter().map(|(id, group)| (*id, group)));
        let (view, of, revision) = (self.view, parts.len() as u32, 0);
        for (number, groups) in (0..).zip(parts) {
            // As the view started, but for what cannot be fetched any more.
            let mut summary = summary.clone();
            summary.points.trimmed = self.points.trimmed;
            let part = Part { number, of, revision };
            let next = self.membership.next.clone();
            port.send(self.members()[to], Message::StartView { view, next, summary, part, groups });
        }
    }

    fn on_do_view_change(
        &mut self,
        from: NodeId,
        view: u64,
        record: (u64, Option<Configuration>, Summary),
        (part, groups): (Part, Groups<O>),
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
            Status::ViewChanging if self.leads() => {
                self.take_record((from, member), record, (part, groups), app, port);
            }
            Status::Normal | Status::Sealed => self.send_start_view(member, port),
            // Everybody has started this view, the sender too: it said this before, and it came late. A new view
            // for it would make the next late one, and no view would last.
            _ => {}
        }
    }

    /// As leader of the view: takes a part of a record. Before it counts, every outcome in it must be here.
    fn take_record(
        &mut self,
        (from, member): (NodeId, usize),
        (last_normal, next, summary): (u64, Option<Configuration>, Summary),
        (part, groups): (Part, Groups<O>),
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        if summary.points.trimmed > self.points.base {
            // What the other has forgotten this replica never had: it cannot lead before it has the state.
            return self.enter_view(self.view + 1, port);
        }
        let fresh = || PartialRecord::new(last_normal, next.clone(), part);
        let record_parts = self.changing.record_parts.entry(member).or_insert_with(fresh);
        if part.revision < record_parts.revision {
            return;
        }
        if part.revision > record_parts.revision {
            *record_parts = fresh();
        }
        if record_parts.take(part, summary.clone(), groups) {
            let pulled = self.has_all(from, &summary, self.points.base, port);
            if let Some(record_parts) = self.changing.record_parts.get_mut(&member) {
                record_parts.pulled = pulled;
            }
            self.lead_if_enough(app, port);
        }
    }

    /// What was fetched from a replica is here.
    pub(super) fn pulled(&mut self, source: Address, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        if self.status == Status::Normal {
            return self.learn_base(source, app);
        }
        let member = self.members().iter().position(|member| *member == source);
        if let Some(record_parts) = member.and_then(|member| self.changing.record_parts.get_mut(&member)) {
            record_parts.pulled = true;
            return self.lead_if_enough(app, port);
        }
        if let Some(Starting { source: of, record_parts, .. }) = &mut self.changing.starting
            && of.address() == source
            && record_parts.is_whole()
        {
            record_parts.pulled = true;
            self.start_if_whole(app, port);
        }
    }

    /// Merges f+1 records, with its own, and starts the view. In any epoch but the first, some member must have the
    /// epoch's first record: members that only know that it has begun form a quorum together with one that has the
    /// record, never among themselves.
    pub(super) fn lead_if_enough(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let ready = |record_parts: &&PartialRecord<O>| record_parts.is_ready();
        let present = self.membership.present.epoch;
        let begun = |last_normal: u64| present == 0 || epoch_of(last_normal) == present;
        if self.changeover.left_in(self.view).is_some() {
            return self.take_over_if_complete(app, port);
        }
        let others = self.changing.record_parts.values().filter(ready);
        let known =
            begun(self.last_normal) || others.clone().any(|record_parts| begun(record_parts.last_normal));
        if others.count() + 1 < self.quorum() || !known {
            return;
        }
        let record_parts = std::mem::take(&mut self.changing.record_parts)
            .into_iter()
            .filter(|(_, record_parts)| ready(&record_parts));
        self.lead(record_parts.collect(), app, port);
    }

    /// Starts the view with what its own record and those of others make.
    pub(super) fn lead(
        &mut self,
        record_parts: BTreeMap<usize, PartialRecord<O>>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(me) = self.me else { return };
        let mut own =
            PartialRecord::of_own(self.log.undecided().map(|(id, group)| (id, group.clone())).collect());
        (own.last_normal, own.next) = (self.last_normal, self.membership.next.clone());
        own.summary.points = self.points;
        let mut records = record_parts;
        records.insert(me, own);
        let known = records.len();
        // An outcome is a fact, whoever knows it; results count only in the highest last normal view.
        let highest = records.values().map(|record_parts| record_parts.last_normal).max().unwrap_or(0);
        let every = self.mutants.has(Mutant::MergeEveryView);
        records.retain(|_, record_parts| record_parts.last_normal == highest || every);
        let accepted = records
            .values()
            .map(|record_parts| record_parts.summary.points.accepted)
            .max()
            .unwrap_or_default();
        let base = accepted.max(self.points.base);
        let decided = records.values().find_map(|record_parts| record_parts.next.clone());
        let next = decided.or_else(|| self.changeover.proposed_in(self.view));
        // Votes are judged again by what the base closes: who voted knew of it.
        self.close_through(base, app);
        let held = self.log.undecided().filter(|(_, group)| group.held.is_some()).map(|(id, _)| id);
        held.filter(|_| !self.mutants.has(Mutant::KeepLocksInMerge)).for_each(|id| app.release(id));
        let majority = self.likely_votes(known);
        let records: Vec<Groups<O>> = records.into_values().map(PartialRecord::groups).collect();
        let counted: Vec<&Groups<O>> = records.iter().collect();
        let over = |id: TransactionId, group: &Group<O>| {
            group.born <= base || self.log.get(id).is_some_and(|known| known.outcome.is_some())
        };
        let ended = self.log.all().iter();
        let ended: Vec<(TransactionId, &O::Inconsistent)> =
            ended.filter_map(|(id, group)| Some((*id, group.outcome.as_ref()?))).collect();
        let merged = merge(&counted, &over, &ended, majority, self.mutants, app);
        self.install(base, merged.clone(), next, app, port);
        let others: BTreeSet<usize> = (0..self.members().len()).filter(|member| *member != me).collect();
        let summary = self.summary(self.points.trimmed, Timestamp::MAX);
        self.changing.started = Some(Started { groups: merged, summary, waiting: others.clone() });
        others.into_iter().for_each(|member| self.send_start_view(member, port));
        port.arm_view_timer(self.resend_every());
        self.begin_closing(app, port);
    }

    /// Replaces what is undecided by the merged record, adopts its decisions (Sync) and becomes NORMAL. What only
    /// this replica knows and no record can contradict stays: outcomes, promises, and locks (Corrections 10). Every
    /// outcome that the leader has is here.
    fn install(
        &mut self,
        base: Timestamp,
        merged: Groups<O>,
        next: Option<Configuration>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        self.install_record(base, merged, app, port);
        if self.membership.next != next {
            self.membership.next = next;
            self.persist_membership(port);
        }
        let ends = self.membership.next.is_some();
        self.status = if ends { Status::Sealed } else { Status::Normal };
        // Whoever has forgotten may have been in the next epoch before.
        self.forgetful &= ends;
        self.last_normal = self.view;
        self.changing = ViewChangeState::default();
        self.sync = SyncState::default();
        self.pulls.clear();
        self.persist_view(port);
        if ends {
            port.arm_view_timer(self.pause());
        }
    }

    /// What was born at or below the base commits no more, and what has committed there is all there is.
    fn close_through(&mut self, base: Timestamp, app: &mut impl Application<O>) {
        self.drop_undecided(base, app);
        self.points.raise_base(base);
        app.close(base);
    }

    /// The record's part of that.
    pub(super) fn install_record(
        &mut self,
        base: Timestamp,
        merged: Groups<O>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        self.points.accepted = base.max(self.points.base);
        self.close_through(base, app);
        if self.vote_retention.forgets_itself() {
            app.let_go(self.points.base);
        }
        port.persist(&Change::Points(self.points));
        let undecided = self.log.undecided().map(|(id, _)| id);
        let ids: BTreeSet<TransactionId> = undecided.chain(merged.keys().copied()).collect();
        for id in ids {
            let own = self.log.get(id).cloned();
            let of_merged = merged.get(&id);
            let ended = own.as_ref().is_some_and(|own| own.outcome.is_some());
            if ended || of_merged.is_some_and(|group| group.born <= base) {
                continue;
            }
            let own = own.unwrap_or_default();
            let mut group = match of_merged {
                Some(group) => group.clone(),
                None if self.mutants.has(Mutant::DropUnmentionedLocks) => {
                    Group { born: own.born, ..Group::default() }
                }
                None => Group { born: own.born, held: own.held.clone(), ..Group::default() },
            };
            group.promised = group.promised.max(own.promised);
            match &group.held {
                Some(held) => app.hold(id, &held.operation),
                None if own.held.is_some() => app.release(id),
                None => {}
            }
            group.revision = own.revision;
            if group != own {
                self.put(id, group, port);
            }
        }
    }

    fn on_start_view(
        &mut self,
        from: NodeId,
        (view, next): (u64, Option<Configuration>),
        summary: Summary,
        (part, groups): (Part, Groups<O>),
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let recovering = self.status == Status::Recovering;
        let too_early = recovering && self.changing.not_before.is_none_or(|not_before| view < not_before);
        let leader = self.leader(view);
        if self.member(from) != Some(leader) || too_early || (view < self.view && !recovering) {
            return;
        }
        if view == self.view && matches!(self.status, Status::Normal | Status::Sealed) {
            return port.send(from.address(), Message::ViewStarted { view, ready: !self.forgetful });
        }
        if view > self.view && !recovering {
            self.stop_serving(view, 0, port);
            port.arm_view_timer(self.pause());
        }
        if self.changing.starting.as_ref().is_none_or(|starting| starting.view < view) {
            let record_parts = PartialRecord::new(0, next, part);
            self.changing.starting = Some(Starting { view, source: from, joins: false, record_parts });
        }
        let Some(Starting { view: starting, record_parts, .. }) = &mut self.changing.starting else { return };
        if *starting == view && record_parts.take(part, summary, groups) {
            if self.mutants.has(Mutant::StartViewWithoutRecord) {
                let own = self.log.undecided().map(|(id, group)| (id, group.clone())).collect();
                *record_parts =
                    PartialRecord { next: record_parts.next.take(), ..PartialRecord::of_own(own) };
                return self.start_if_whole(app, port);
            }
            self.complete_start(app, port);
        }
    }

    /// The replica has the record that a view or an epoch starts with: starts it, once the outcomes or the state are
    /// here too.
    pub(super) fn complete_start(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let Some(Starting { source, record_parts, .. }) = &self.changing.starting else { return };
        let (source, summary) = (*source, record_parts.summary.clone());
        if !record_parts.is_whole() {
            return;
        }
        self.changing.came_on();
        if summary.points.trimmed > self.points.base {
            self.behind = Some(source.address());
        } else if self.mutants.has(Mutant::DropUnmentionedLocks)
            || self.has_all(source, &summary, self.points.base, port)
        {
            self.pulled(source.address(), app, port);
        }
    }

    /// The state has come that a start waited for.
    pub(super) fn look_again(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        match &self.changing.starting {
            Some(starting) if starting.joins => self.complete_start(app, port),
            // The leader may have gone on: it tells anew.
            Some(Starting { view, source, .. }) => {
                port.send(source.address(), Message::StartViewChange { view: *view });
            }
            None => {}
        }
    }

    /// Starts the view or the epoch once its record has arrived completely.
    fn start_if_whole(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let Some(Starting { view, source, joins, record_parts }) = self.changing.starting.take() else {
            return;
        };
        if joins {
            return self.get_ready(source, view, record_parts, app, port);
        }
        self.view = view;
        let (base, next) = (record_parts.summary.points.base, record_parts.next.clone());
        self.install(base, record_parts.groups(), next, app, port);
        port.send(source.address(), Message::ViewStarted { view, ready: !self.forgetful });
    }

    fn on_view_started(
        &mut self,
        from: NodeId,
        view: u64,
        ready: bool,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(member) = self.member(from) else { return };
        if view != self.view {
            return;
        }
        if let Some(started) = &mut self.changing.started {
            started.waiting.remove(&member);
            if started.waiting.is_empty() && self.status == Status::Normal {
                self.changing.started = None;
            }
        }
        self.on_sealed(from.address(), ready, app, port);
    }

    /// Says again what was not answered; gives up a view that does not start.
    pub fn on_view_timer(&mut self, port: &mut impl Port<O>) {
        self.changing.resent += 1;
        if self.behind.is_some() && self.status != Status::Normal {
            // The view has started; this replica needs the state before it may join, which takes as long as it does.
            return port.arm_view_timer(self.pause());
        }
        match self.status {
            Status::Recovering => match self.changing.not_before {
                None => self.ask_views(port),
                Some(_) if self.changing.starting.is_some() && self.changing.resent <= PATIENCE => {
                    port.arm_view_timer(self.pause());
                }
                Some(_) => self.demand_view(self.view + 1, port),
            },
            Status::ViewChanging if self.changing.resent > PATIENCE => self.enter_view(self.view + 1, port),
            Status::ViewChanging => self.say_view_change(port),
            Status::Sealed | Status::Outside => self.on_epoch_timer(port),
            Status::Normal => self.say_start_view(port),
        }
    }

    /// Says again with what the view started, less and less often.
    pub(super) fn say_start_view(&self, port: &mut impl Port<O>) {
        let Some(started) = &self.changing.started else { return };
        started.waiting.iter().for_each(|member| self.send_start_view(*member, port));
        port.arm_view_timer(self.patient());
    }

    /// A wait that doubles with every repetition.
    pub(super) fn patient(&self) -> Duration {
        let wait = self.resend_every() * 2u32.saturating_pow(self.changing.resent.min(8));
        wait.min(RESEND_AT_MOST.max(self.resend_every()))
    }
}
