//! What a replica takes back from its log, and how it learns what it may have forgotten.

use super::replica::{Port, Replica, Status};
use super::view_change::{PATIENCE, RESEND_EVERY};
use super::{Application, Group, Membership, Message, Operations, Points, epoch_of, first_view};
use crate::Mutant;
use types::{Incarnation, NodeId, Timestamp, TransactionId};

impl<O: Operations> Replica<O> {
    /// Takes a change back from the log or a checkpoint; `Recovered` comes after all of them.
    pub fn recover(&mut self, change: Recovering<O>, app: &mut impl Application<O>) {
        match change {
            Recovering::View { view, last_normal } => {
                self.view = self.view.max(view);
                self.last_normal = self.last_normal.max(last_normal);
            }
            Recovering::Membership(membership) => {
                // What this replica remembers takes precedence over the configuration that it was started with.
                if epoch_of(self.view) > membership.present.epoch {
                    self.view = first_view(membership.present.epoch);
                }
                self.me = membership.present.members.iter().position(|member| *member == self.address);
                self.membership = membership;
            }
            Recovering::Group { id, group } => {
                let older = |known: &Group<O>| known.revision < group.revision;
                if group.born > self.points.trimmed && self.log.get(id).is_none_or(older) {
                    if let Some(outcome) = &group.outcome {
                        app.execute_inconsistent(id, outcome);
                    }
                    self.log.insert(id, group);
                }
            }
            Recovering::Points(Points { floor, accepted, base, trimmed }) => {
                self.points.floor = self.points.floor.max(floor);
                self.points.accepted = accepted;
                if base > self.points.base {
                    self.drop_undecided(base, app);
                    app.close(base);
                }
                self.points.raise_base(base);
                if trimmed > self.points.trimmed {
                    self.points.trimmed = trimmed;
                    self.forget(trimmed, app);
                }
            }
            Recovering::State { base } => self.take_state(base, app),
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
        for (id, group) in self.log.undecided() {
            if let Some(held) = &group.held {
                app.hold(id, &held.operation);
            }
        }
        let forgets = self.mutants.has(Mutant::ForgetRecovery);
        let alone = self.me.is_some() && self.members().len() == 1;
        let first = self.membership.present.epoch == 0;
        let fresh = first && self.log.revision() == 0 && self.view == 0 && self.points == Points::default();
        self.forgetful = !complete && !alone && !forgets;
        if self.me.is_none() {
            self.status = Status::Outside;
            port.arm_view_timer(RESEND_EVERY);
        } else if alone && self.membership.next.is_some() {
            self.status = Status::ViewChanging;
            self.enter_view(self.view + 1, port);
            self.lead_if_enough(app, port);
        } else if alone || forgets || (complete && fresh) {
            (self.status, self.last_normal) = (Status::Normal, self.view);
        } else if complete {
            // A new view brings what the replica missed while it was down.
            self.status = Status::ViewChanging;
            self.enter_view(self.view + 1, port);
        } else {
            self.status = Status::Recovering;
            self.ask_views(port);
        }
    }

    pub(super) fn ask_views(&mut self, port: &mut impl Port<O>) {
        self.changing.views.clear();
        self.changing.not_before = None;
        for to in self.others() {
            port.send(to, Message::WhichView { incarnation: self.incarnation });
        }
        port.arm_view_timer(RESEND_EVERY);
    }

    pub(super) fn on_which_view(&mut self, from: NodeId, incarnation: Incarnation, port: &mut impl Port<O>) {
        if self.me.is_none() {
            self.tell_epoch(from.address(), port);
        } else if self.status != Status::Recovering {
            let (view, serving) = (self.view, self.status == Status::Normal);
            port.send(from.address(), Message::ThisView { incarnation, view, serving });
        }
    }

    pub(super) fn on_this_view(
        &mut self,
        from: NodeId,
        incarnation: Incarnation,
        (view, serving): (u64, bool),
        port: &mut impl Port<O>,
    ) {
        let Some(member) = self.member(from) else { return };
        if self.status == Status::Normal && incarnation == self.incarnation {
            return self.on_neighbour(member, (view, serving), port);
        }
        let asks = self.status == Status::Recovering
            || (self.status == Status::Outside && self.forgetful && serving);
        if !asks || incarnation != self.incarnation {
            return;
        }
        self.changing.views.insert(member, view);
        if self.changing.views.len() < self.quorum() || self.changing.not_before.is_some() {
            return;
        }
        if self.status == Status::Outside {
            // f+1 still serve in an epoch without this replica: it has never been in a later one.
            self.forgetful = false;
            return;
        }
        let highest = self.changing.views.values().copied().max().unwrap_or(0).max(self.view);
        self.demand_view(highest + 1, port);
    }

    /// As a recovering replica: asks the others to enter a view that this one does not lead.
    pub(super) fn demand_view(&mut self, mut view: u64, port: &mut impl Port<O>) {
        if self.changing.not_before.is_none() {
            self.changing.not_before = Some(view);
        }
        if Some(self.leader(view)) == self.me {
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
}

/// A change of the durable state, read back.
#[derive(Debug)]
pub enum Recovering<O: Operations> {
    /// See [`Change::Group`](super::replica::Change::Group).
    Group {
        /// The group.
        id: TransactionId,
        /// All of it.
        group: Group<O>,
    },
    /// See [`Change::View`](super::replica::Change::View).
    View {
        /// The view entered.
        view: u64,
        /// The last normal view.
        last_normal: u64,
    },
    /// See [`Change::Membership`](super::replica::Change::Membership).
    Membership(Membership),
    /// See [`Change::Points`](super::replica::Change::Points).
    Points(Points),
    /// See [`Replica::state_arrived`]; the application has taken the state.
    State {
        /// What the state's owner had trimmed.
        base: Timestamp,
    },
}
