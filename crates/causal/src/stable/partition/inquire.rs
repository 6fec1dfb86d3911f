//! A decider that lost records cannot take "unknown" for "aborted" (Corrections 23 and 67): it may have decided, told
//! somebody, and forgotten. It asks the other partitions of its region, or of
//! all regions where transactions have parts in several. If one of them knows the decision, that stands.
//! If none does, nobody has acted on one, and those who are prepared take none from anybody else any more: it aborts.
//! Only a reply to the client may then have said otherwise; that decision was in what the log lost.
//!
//! Whoever waits for the answer asks again, so nothing is kept of them.

use super::{Decided, Partition};
use crate::stable::message::{Gained, Message};
use crate::stable::record::Record;
use crate::stable::{Node, Times};
use protocol::Outputs;
use std::borrow::Cow;
use std::collections::BTreeSet;
use types::{Address, RegionId, Timestamp, TransactionId};

/// A question about a transaction that may have been forgotten.
#[derive(Debug)]
pub(super) struct Inquiry {
    unanswered: BTreeSet<Address>,
}

impl<S: Times> Partition<S> {
    /// Begins to find out what became of a transaction, unless that is under way.
    pub(super) fn inquire(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.inquiries.contains_key(&id) {
            return;
        }
        let unanswered = self.possible_participants();
        unanswered.iter().for_each(|address| out.send(*address, Message::Inquire { id }));
        self.inquiries.insert(id, Inquiry { unanswered });
        self.end_inquiry(id, out);
    }

    /// Who may have a part in a transaction that has one here.
    fn possible_participants(&self) -> BTreeSet<Address> {
        let regions = 0..self.topology.regions.len() as u16;
        let regions = regions.map(RegionId).filter(|region| S::UNIVERSAL || *region == self.region);
        let regions = regions.filter(|region| !self.evictions.has(*region));
        let replicas = regions.flat_map(|region| self.topology.held(region));
        replicas.filter(|(index, _)| *index != self.index).map(|(_, address)| address).collect()
    }

    /// Asks those again who have not answered.
    pub(super) fn inquire_again(&mut self, out: &mut Outputs<'_, Node<S>>) {
        let ids: Vec<TransactionId> = self.inquiries.keys().copied().collect();
        for id in ids {
            if self.is_left_to_survivors(id) {
                self.inquiries.remove(&id);
                continue;
            }
            for address in self.inquiries.get(&id).into_iter().flat_map(|inquiry| &inquiry.unanswered) {
                out.send(*address, Message::Inquire { id });
            }
            self.end_inquiry(id, out);
        }
    }

    pub(super) fn on_inquire(&mut self, from: Address, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.is_filling() {
            return;
        }
        let at = self.decisions.get(id).and_then(|decided| decided.at).or(self.found(id));
        if at.is_none()
            && let Some(pending) = self.participant.prepared_mut(id)
        {
            pending.fenced = true;
        }
        out.send(from, Message::Inquired { id, at });
    }

    pub(super) fn on_inquired(
        &mut self,
        from: Address,
        id: TransactionId,
        at: Option<Timestamp>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(inquiry) = self.inquiries.get_mut(&id) else { return };
        inquiry.unanswered.remove(&from);
        if self.is_left_to_survivors(id) {
            self.inquiries.remove(&id);
            return;
        }
        let Some(at) = at else { return self.end_inquiry(id, out) };
        self.inquiries.remove(&id);
        self.commit_prepared(id, at, out);
        if self.decisions.get(id).is_none() {
            let gained = Cow::Owned(Gained::default());
            self.persist(&Record::Decided { id, at: Some(at), outlives: true, gained }, out);
            self.decisions.decide(id, Decided { at: Some(at), outlives: true, gained: Gained::default() });
        }
    }

    /// A lost region answers nothing more.
    pub(super) fn inquire_without(&mut self, region: RegionId) {
        let topology = &self.topology;
        let is_of_it = |address: &Address| topology.locate(*address).is_some_and(|(of, _)| of == region);
        for inquiry in self.inquiries.values_mut() {
            inquiry.unanswered.retain(|address| !is_of_it(address));
        }
    }

    /// Everybody has answered, and nobody knows of a decision.
    fn end_inquiry(&mut self, id: TransactionId, out: &mut Outputs<'_, Node<S>>) {
        if self.inquiries.get(&id).is_some_and(|inquiry| inquiry.unanswered.is_empty()) {
            self.inquiries.remove(&id);
            self.on_abort(id, out);
        }
    }
}
