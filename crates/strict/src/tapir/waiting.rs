//! Proposals that wait for younger transactions, so that contenders do not refuse one another without end
//! (Corrections 12).
//!
//! Transactions of several coordinators that prepare at the same time meet each other in different orders at different
//! replicas: each is accepted somewhere, none by enough, and all are refused. So a replica does not refuse a proposal at
//! once that only younger transactions stand in the way of. It lets it wait until they have ended, and judges it then; to
//! whoever waits for the vote it is as if the message had taken longer. A younger proposal is refused at once, as ever.
//! The oldest is refused by nobody that is undecided, and since only older ones wait for younger ones, nobody waits in a
//! circle. Ages are those of coordinators' clocks: a wrong one is unfair and does no other harm.

use super::node::Node;
use super::operation::Transactions;
use super::replica::{Replica, Wires};
use crate::ir::{self, Status};
use commit::Stamp;
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use types::{Instant, NodeId, TransactionId};

/// A proposal that is not said again for so many times the coordinator's patience is forgotten.
const PATIENCE: u32 = 4;

/// A proposal that waits.
#[derive(Debug)]
struct Proposal {
    from: NodeId,
    message: ir::Message<Transactions>,
    /// One that must end first.
    behind: TransactionId,
    /// When it was said last.
    said: Instant,
}

/// Those that wait, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Waiting {
    proposals: BTreeMap<(Stamp, TransactionId), Proposal>,
}

impl Waiting {
    fn forget(&mut self, group: TransactionId) {
        if !self.proposals.is_empty() {
            self.proposals.retain(|(_, waiting), _| *waiting != group);
        }
    }
}

impl Replica {
    /// Takes a message that is a proposal which has to wait, and returns any other one.
    pub(super) fn set_aside(
        &mut self,
        now: Now,
        from: NodeId,
        message: ir::Message<Transactions>,
    ) -> Option<ir::Message<Transactions>> {
        let (group, attempt, view, operation) = match &message {
            ir::Message::Propose { group, attempt, view, operation, .. } => {
                (*group, *attempt, *view, operation)
            }
            ir::Message::Execute { group, .. } => {
                self.waiting.forget(*group);
                return Some(message);
            }
            _ => return Some(message),
        };
        let news = self.ir.get(group).is_none_or(|known| {
            let older = known.entry.as_ref().is_none_or(|entry| entry.attempt < attempt);
            known.outcome.is_none() && known.promised.round == 0 && older
        });
        let serves = self.ir.status() == Status::Normal && view <= self.ir.view();
        let behind = if news && serves { self.state.waits_for(group, operation) } else { None };
        let age = operation.age;
        self.waiting.forget(group);
        let Some(behind) = behind else { return Some(message) };
        let proposal = Proposal { from, message, behind, said: now.instant };
        self.waiting.proposals.insert((age, group), proposal);
        None
    }

    /// Judges the proposals that nobody stands in the way of any more, the oldest first.
    pub(super) fn resume(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        loop {
            let prepared = self.state.prepared();
            let free = |(_, proposal): &(&_, &Proposal)| !prepared.contains_key(&proposal.behind);
            let Some(place) = self.waiting.proposals.iter().find(free).map(|(place, _)| *place) else {
                return;
            };
            let Some(Proposal { from, message, .. }) = self.waiting.proposals.remove(&place) else { return };
            if let Some(message) = self.set_aside(now, from, message) {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.on_message(from, message, &mut self.state, &mut port);
            }
        }
    }

    /// Forgets proposals whose coordinators do not ask any more.
    pub(super) fn forget_waiting(&mut self, now: Instant) {
        let patience = self.options.resend_every * PATIENCE;
        self.waiting.proposals.retain(|_, proposal| now - proposal.said < patience);
    }
}
