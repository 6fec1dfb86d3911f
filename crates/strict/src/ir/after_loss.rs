//! More than f members are lost for good, and an operator accepts that (Corrections 84).
//!
//! The first of those that are left enters a view that it leads, waits for the records of the others, merges them as in
//! any view, and goes on as the only member of an epoch that none of the lost can have begun.
//!
//! # What is saved
//! Outcomes are facts, whichever surviving member knows them. What succeeded in an earlier view is in the record that
//! the highest last normal view among them began with, as ever. A tentative result may have succeeded on the fast path
//! if, with all of the lost, it has a fast quorum: so often it has to be found. That is once where few are left. A vote
//! to commit and a refusal of the same transaction may both be found so often: the vote stays, so that nothing is lost
//! that was acknowledged; what was refused may commit. Of two transactions that exclude each other the new leader
//! retains one, which need not be the one that succeeded. What no survivor has heard of is lost.
//!
//! # Two commands at once
//! Of two members that name each other only one goes on: a member that has sent its record in the higher view does not
//! take over in a lower one. Two members that do not name each other both go on: the operator must command only one.

use super::epoch::after_loss;
use super::replica::{Port, Replica, Status};
use super::view_change::PartialRecord;
use super::{Application, Configuration, Operations, fast_quorum, tolerated};
use crate::Mutant;
use std::collections::{BTreeMap, BTreeSet};
use types::Address;

impl<O: Operations> Replica<O> {
    /// More than f members are lost for good (Corrections 84): the first of those that are left seals the epoch with what
    /// all of them have and goes on as the only member of the first epoch that none of the lost can have begun.
    pub(super) fn on_go_on_alone(
        &mut self,
        requested: &Configuration,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let present = self.membership.present.epoch;
        let may = self.me.is_some() && !self.forgetful && self.status != Status::Recovering;
        let of_group = requested.members.iter().all(|left| self.members().contains(left));
        if !may
            || requested.epoch != present + 1
            || requested.members.first() != Some(&self.address)
            || !of_group
        {
            return;
        }
        let others: BTreeSet<Address> =
            requested.members.iter().copied().filter(|left| *left != self.address).collect();
        if self.status == Status::ViewChanging && self.changeover.left_in(self.view) == Some(&others) {
            // It got the command before, and waits for them.
            return;
        }
        let configuration = Configuration { epoch: after_loss(present), members: vec![self.address] };
        let mut view = self.view + 1;
        while Some(self.leader(view)) != self.me {
            view += 1;
        }
        self.changeover.proposing = Some((view, configuration));
        self.changeover.left = Some((view, others));
        self.enter_view(view, port);
        self.lead_if_enough(app, port);
    }

    /// The records of all that are left are here.
    pub(super) fn take_over(
        &mut self,
        mut record_parts: BTreeMap<usize, PartialRecord<O>>,
        app: &mut impl Application<O>,
        port: &mut impl Port<O>,
    ) {
        let Some(configuration) = self.changeover.proposed_in(self.view) else { return };
        // What had been decided to follow can only have begun without their knowledge: it is given up too.
        self.membership.next = None;
        record_parts.values_mut().for_each(|record_parts| record_parts.next = None);
        self.lead(record_parts, app, port);
        let after = self.view;
        self.on_epoch(configuration, after, app, port);
    }

    /// Goes on once the records of all that are left are here.
    pub(super) fn take_over_if_complete(&mut self, app: &mut impl Application<O>, port: &mut impl Port<O>) {
        let Some(left) = self.changeover.left_in(self.view) else { return };
        let place = |of: &Address| self.members().iter().position(|member| member == of);
        let record_parts =
            |of: &Address| place(of).and_then(|member| self.changing.record_parts.get(&member));
        if left.iter().all(|of| record_parts(of).is_some_and(PartialRecord::is_ready)) {
            let record_parts = std::mem::take(&mut self.changing.record_parts);
            let record_parts =
                record_parts.into_iter().filter(|(_, record_parts)| record_parts.is_ready()).collect();
            self.take_over(record_parts, app, port);
        }
    }

    /// How often a tentative result is found at least, among the records of so many, if it succeeded on the fast path.
    pub(super) fn likely_votes(&self, records: usize) -> usize {
        let members = self.members().len();
        match self.changeover.left_in(self.view) {
            // Who is lost may have voted alike.
            Some(_) if !self.mutants.has(Mutant::LostVotedAgainst) => {
                (fast_quorum(members) + records).saturating_sub(members).max(1)
            }
            _ => tolerated(members).div_ceil(2) + 1,
        }
    }
}
