//! Proposals that a replica does not judge at once.
//!
//! *For younger transactions to end*, so that contenders do not refuse one another without end (Corrections 12).
//! Transactions of several coordinators that prepare at the same time meet each other in different orders at different
//! replicas: each is accepted somewhere, none by enough, and all are refused. So a replica does not refuse a proposal
//! at once that only younger transactions stand in the way of. It lets it wait until they have ended, and judges it
//! then. A younger proposal is refused at once, as ever. No undecided transaction causes the oldest one to be refused,
//! and since only older transactions wait for younger ones, waiting is deadlock-free. Ages are those of coordinators'
//! clocks: a wrong one is unfair and does no other harm.
//!
//! *For an older transaction that was refused again and again*, whose keys are reserved until its next run: see
//! [`super::reservations`].
//!
//! *For others with lower timestamps to come*, where clocks differ much and an option says so (the paper's 6.6). A
//! replica that judges transactions as they arrive tells those with lower timestamps to come again (RETRY). One that
//! waits for a while first, and judges what has come meanwhile in the order of timestamps, tells fewer.
//!
//! To whoever waits for the vote it is as if the message had taken longer. What waits is nowhere recorded: nothing was
//! said of it, and its coordinator sends it again.

use super::message::Timer;
use super::node::{IrMessage, Node};
use super::operation::{Decision, Prepare};
use super::replica::{Replica, Wires};
use crate::ir::{self, Status};
use crate::validation::Stamp;
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Instant, NodeId, Timestamp, TransactionId, WallTime};

/// A proposal that is not said again for so many times the coordinator's patience is not judged any more, but forgotten. A
/// dead coordinator's would stand in the way of others once more, until it is suspected for this one too.
const PATIENCE: u32 = 2;

/// What a proposal waits for.
#[derive(Debug, PartialEq)]
enum Until {
    /// A moment: those with lower timestamps may come until then.
    Due(Instant),
    /// A younger transaction, which must end first.
    Ended(TransactionId),
    /// The transaction of this age, which holds a reservation.
    Reserved(Stamp),
}

/// A proposal that waits.
#[derive(Debug)]
struct Proposal {
    from: NodeId,
    message: IrMessage,
    attempt: u32,
    at: Timestamp,
    age: Stamp,
    until: Until,
    /// When it was said last.
    said: Instant,
}

/// Those that wait: of each transaction its latest attempt.
#[derive(Debug, Default)]
pub(super) struct Waiting(BTreeMap<TransactionId, Proposal>);

impl Waiting {
    /// True if a proposal of this transaction waits.
    pub(super) fn holds(&self, group: TransactionId) -> bool {
        self.0.contains_key(&group)
    }

    /// When the next one has waited for long enough, if it is known; `ends` says until when keys are reserved.
    fn next_due(&self, ends: impl Fn(TransactionId, Stamp) -> Option<Instant>) -> Option<Instant> {
        let due = self.0.iter().filter_map(|(id, proposal)| match proposal.until {
            Until::Due(at) => Some(at),
            Until::Reserved(age) => ends(*id, age),
            Until::Ended(_) => None,
        });
        due.min()
    }

    /// What has waited for long enough for those with lower timestamps, and all of them that came, in the order of
    /// timestamps.
    fn take_due(&mut self, now: Instant) -> Vec<(NodeId, IrMessage)> {
        let held = self.0.iter().filter_map(|(id, proposal)| match proposal.until {
            Until::Due(due) => Some(((proposal.at, *id), due)),
            Until::Ended(_) | Until::Reserved(_) => None,
        });
        let mut held: Vec<((Timestamp, TransactionId), Instant)> = held.collect();
        held.sort_unstable();
        let count = held.iter().rposition(|(_, due)| *due <= now).map_or(0, |last| last + 1);
        let taken = held[..count].iter().filter_map(|((_, id), _)| self.0.remove(id));
        taken.map(|proposal| (proposal.from, proposal.message)).collect()
    }

    /// Takes the oldest that waits for no transaction any more, of those that were said since `lately`.
    fn take_free(
        &mut self,
        lately: Instant,
        ends: impl Fn(TransactionId, Stamp) -> Option<Instant>,
        prepared: &BTreeMap<TransactionId, Prepare>,
    ) -> Option<(NodeId, IrMessage)> {
        let free = self.0.iter().filter(|(id, proposal)| match proposal.until {
            Until::Due(_) => false,
            Until::Ended(behind) => !prepared.contains_key(&behind),
            Until::Reserved(age) => ends(**id, age).is_none(),
        });
        let free = free.filter(|(_, proposal)| proposal.said >= lately);
        let (_, id) = free.map(|(id, proposal)| (proposal.age, *id)).min()?;
        self.0.remove(&id).map(|proposal| (proposal.from, proposal.message))
    }
}

impl Replica {
    /// Takes a message that is a proposal which has to wait, and returns any other one.
    pub(super) fn set_aside(
        &mut self,
        now: Now,
        from: NodeId,
        message: IrMessage,
        out: &mut Outputs<'_, Node>,
    ) -> Option<IrMessage> {
        let (group, attempt, operation) = match &message {
            ir::Message::Propose { group, attempt, operation, .. } => (*group, *attempt, operation),
            ir::Message::Execute { group, operation, .. } => {
                self.waiting.0.remove(group);
                self.reservations.end(*group, *operation == ir::Ending::Whole(Decision::Abort));
                return Some(message);
            }
            _ => return Some(message),
        };
        let known = self.waiting.0.get(&group).map_or(0, |proposal| proposal.attempt);
        if attempt < known {
            // Replies to an earlier attempt do not count.
            return None;
        }
        let time = skew_wait(operation.at, now.wall, self.options.skew_wait);
        if time.is_zero() || !self.is_new(&message) {
            let message = self.stand_in_line(now, from, message);
            if message.is_none() {
                self.arm_skew_wait(now, out);
            }
            return message;
        }
        match self.waiting.0.get_mut(&group).filter(|_| attempt == known) {
            Some(held) => held.said = now.instant,
            None => self.hold(now, from, message, Until::Due(now.instant + time)),
        }
        self.arm_skew_wait(now, out);
        None
    }

    /// True if IR would judge a proposal now.
    fn is_new(&self, message: &IrMessage) -> bool {
        let ir::Message::Propose { group, attempt, view, .. } = message else { return false };
        let news = self.ir.get(*group).is_none_or(|known| {
            let older = known.entry.as_ref().is_none_or(|entry| entry.attempt < *attempt);
            known.outcome.is_none() && known.promised.round == 0 && older
        });
        news && self.ir.status() == Status::Normal && *view <= self.ir.view()
    }

    /// Takes a proposal that only younger transactions stand in the way of, or that an older one keeps off.
    fn stand_in_line(&mut self, now: Now, from: NodeId, message: IrMessage) -> Option<IrMessage> {
        let ir::Message::Propose { group, operation, .. } = &message else { return Some(message) };
        self.waiting.0.remove(group);
        if !self.is_new(&message) {
            return Some(message);
        }
        self.reservations.keep(now.instant, *group, operation, self.options.resend_every * PATIENCE);
        let reserved = self.reservations.before(now.instant, *group, operation, self.state.prepared());
        let Some(until) = reserved
            .map(Until::Reserved)
            .or_else(|| self.state.waits_for(*group, operation).map(Until::Ended))
        else {
            return Some(message);
        };
        self.reservations.waits(operation.age);
        self.hold(now, from, message, until);
        None
    }

    fn hold(&mut self, now: Now, from: NodeId, message: IrMessage, until: Until) {
        let ir::Message::Propose { group, attempt, operation, .. } = &message else { return };
        let (group, attempt, at, age) = (*group, *attempt, operation.at, operation.age);
        let proposal = Proposal { from, message, attempt, at, age, until, said: now.instant };
        self.waiting.0.insert(group, proposal);
    }

    /// Something is heard of a coordinator.
    pub(super) fn coordinator_lives(&mut self, now: Instant, from: NodeId) {
        let lives = now + self.options.resend_every * PATIENCE;
        self.reservations.heard(from.process, from.incarnation, lives);
    }

    pub(super) fn arm_skew_wait(&self, now: Now, out: &mut Outputs<'_, Node>) {
        let ends = |id, age| self.reservations.ends(now.instant, id, age, self.state.prepared());
        if let Some(next) = self.waiting.next_due(ends).into_iter().chain(self.next_late()).min() {
            out.arm(Timer::SkewWait, next);
        }
    }

    /// Judges the proposals that have waited for long enough.
    pub(super) fn on_skew_wait(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        for (from, message) in self.waiting.take_due(now.instant) {
            if let Some(message) = self.stand_in_line(now, from, message) {
                self.serve_ir(now, from, message, out);
            }
        }
        self.resume(now, out);
    }

    /// Judges the proposals that nobody stands in the way of any more, the oldest first.
    pub(super) fn resume(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        while let Some((from, message)) = self.next_free(now.instant) {
            if let Some(message) = self.stand_in_line(now, from, message) {
                let mut port = Wires { out, options: &self.options, now: now.instant };
                self.ir.on_message(from, message, &mut self.state, &mut port);
            }
        }
        self.arm_skew_wait(now, out);
    }

    fn next_free(&mut self, now: Instant) -> Option<(NodeId, IrMessage)> {
        let ends = |id, age| self.reservations.ends(now, id, age, self.state.prepared());
        let patience = self.options.resend_every * PATIENCE;
        let lately = Instant(now.0.saturating_sub(patience.as_micros() as u64));
        self.waiting.take_free(lately, ends, self.state.prepared())
    }

    /// Forgets proposals whose coordinators do not ask any more.
    pub(super) fn forget_waiting(&mut self, now: Instant) {
        let patience = self.options.resend_every * PATIENCE;
        self.waiting.0.retain(|_, proposal| now - proposal.said < patience);
        self.reservations.forget(now, patience);
    }
}

/// For how long a proposal waits that arrives now: until the clock has passed its timestamp by `wait`.
fn skew_wait(at: Timestamp, wall: WallTime, wait: Duration) -> Duration {
    let due = at.wall().0.saturating_add(wait.as_micros() as u64);
    Duration::from_micros(due.saturating_sub(wall.0)).min(2 * wait)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, KeyspaceId, ProcessId, Slot};

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    fn hold(waiting: &mut Waiting, number: u64, until: Until) {
        let from = NodeId {
            process: ProcessId(1),
            incarnation: Incarnation(1),
            slot: Slot::coordinator(KeyspaceId(1)),
        };
        let message = ir::Message::Forgotten { group: id(number) };
        let (at, age) = (Timestamp(number), Stamp { at: Timestamp(100 - number), transaction: id(number) });
        let proposal = Proposal { from, message, attempt: 1, at, age, until, said: Instant(0) };
        waiting.0.insert(id(number), proposal);
    }

    fn number((_, message): (NodeId, IrMessage)) -> u64 {
        match message {
            ir::Message::Forgotten { group } => group.number,
            _ => 0,
        }
    }

    fn taken(waiting: &mut Waiting, now: u64) -> Vec<u64> {
        waiting.take_due(Instant(now)).into_iter().map(number).collect()
    }

    #[test]
    fn what_is_due_takes_along_what_has_lower_timestamps() {
        let mut waiting = Waiting::default();
        for (at, until) in [(5, 50), (3, 90), (9, 70), (7, 60)] {
            hold(&mut waiting, at, Until::Due(Instant(until)));
        }
        hold(&mut waiting, 4, Until::Ended(id(5)));
        assert_eq!(waiting.next_due(|_, _| None), Some(Instant(50)));
        assert!(taken(&mut waiting, 49).is_empty());
        assert_eq!(taken(&mut waiting, 60), [3, 5, 7], "who waits for somebody's end stays");
        assert_eq!(waiting.next_due(|_, _| None), Some(Instant(70)));
        assert_eq!(taken(&mut waiting, 200), [9]);
        assert_eq!(waiting.next_due(|_, _| None), None);
    }

    #[test]
    fn of_those_that_waited_for_an_end_the_oldest_comes_first() {
        let mut waiting = Waiting::default();
        hold(&mut waiting, 3, Until::Ended(id(1)));
        hold(&mut waiting, 5, Until::Ended(id(2)));
        hold(&mut waiting, 7, Until::Due(Instant(50)));
        let (nobody, mut free) = (BTreeMap::new(), Vec::new());
        while let Some(taken) = waiting.take_free(Instant(0), |_, _| None, &nobody) {
            free.push(number(taken));
        }
        assert_eq!(free, [5, 3]);
    }

    #[test]
    fn it_waits_until_the_clock_has_passed_the_timestamp_but_not_for_ever() {
        let wait = Duration::from_millis(10);
        let time = |at: u64, wall: u64| skew_wait(Timestamp::from_wall(WallTime(at)), WallTime(wall), wait);
        assert_eq!(time(1_000_000, 1_000_000), wait);
        assert_eq!(time(1_000_000, 1_004_000), Duration::from_millis(6));
        assert_eq!(time(1_000_000, 1_010_000), Duration::ZERO);
        assert_eq!(time(9_000_000, 1_000_000), 2 * wait);
        assert_eq!(skew_wait(Timestamp::from_wall(WallTime(9)), WallTime(0), Duration::ZERO), Duration::ZERO);
    }
}
