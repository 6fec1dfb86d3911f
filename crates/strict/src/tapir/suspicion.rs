//! Suspicion of coordinators that do not come back, and when a backup coordinator takes over (Corrections 14).
//!
//! A replica suspects a transaction's coordinator when the transaction is prepared here and no coordinator has advanced
//! it for a while, which is longer where proposals come from far away. A coordinator that lives repeats itself, and
//! each repetition counts; after a promise to a backup coordinator only higher promises do. Backup coordinators that
//! start together only take the promises from each other, on slow networks without end. So they stand in a line,
//! another one for each transaction and coordinator view: the first starts at once, each other one half the patience
//! later, and patience doubles with every coordinator view that did not suffice. Last of all comes the replica in the
//! process of the coordinator that is suspected, which may be dead itself. A backup coordinator repeats what was not
//! answered until its patience is over.

use super::message::{Message, Timer};
use super::node::Node;
use super::operation::Transactions;
use super::recovery::Recovery;
use super::replica::{Replica, Wires};
use crate::ir::{self, CoordinatorView, Status};
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{Address, Instant, ProcessId, Rng, Timestamp, TransactionId, WallTime};

/// Patience doubles at most so often.
const DOUBLINGS: u32 = 3;
/// After so many times the patience of a first coordinator, a replica asks which epoch it is.
const FORSAKEN: u32 = 4;
/// A coordinator is given so many times its distance longer, as two round trips and something take.
const DISTANCES: u32 = 5;
/// But no longer than by so many timeouts: its clock may be wrong.
const LONGER: u32 = 2;
/// The share of a later proposal in how far its coordinator is taken to be: one in so many.
const SMOOTHING: u32 = 8;

/// When somebody last came on with a transaction, under the highest coordinator view promised for it.
#[derive(Clone, Copy, Debug)]
struct LastActivity {
    since: Instant,
    promised: CoordinatorView,
}

/// What a replica remembers of transactions that are prepared here, for suspicion.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    last_activity: BTreeMap<TransactionId, LastActivity>,
    /// The highest round of a coordinator view heard of, where it stood in the way.
    rounds: BTreeMap<TransactionId, u32>,
    /// How long proposals of a process are on their way, by its clock and ours, smoothed.
    distances: BTreeMap<ProcessId, Duration>,
    /// When signs were looked for last.
    looked: Instant,
}

impl Suspicion {
    /// The original coordinator speaks.
    pub(super) fn heard(&mut self, message: &ir::Message<Transactions>, now: Instant) {
        let group = match message {
            ir::Message::Propose { group, .. } => group,
            ir::Message::Finalize { group, ballot, .. } if ballot.round == 0 => group,
            _ => return,
        };
        if let Some(activity) =
            self.last_activity.get_mut(group).filter(|activity| activity.promised.round == 0)
        {
            activity.since = now;
        }
    }

    /// A transaction was proposed here, for the first time. What comes late comes so for many reasons, what comes soon for
    /// one: the distance falls faster than it rises.
    pub(super) fn proposed(&mut self, group: TransactionId, at: Timestamp, wall: WallTime) {
        let age = Duration::from_micros(wall.0.saturating_sub(at.wall().0));
        let distance = self.distances.entry(group.process).or_insert(age);
        *distance = match age < *distance {
            true => (*distance + age) / 2,
            false => *distance - *distance / SMOOTHING + age / SMOOTHING,
        };
    }

    /// About when a transaction came that was not prepared yet when signs were looked for last. It came then or later,
    /// unless it waited here before it was judged.
    fn came(&self, group: TransactionId, at: Timestamp, looked: Instant, now: Now) -> Instant {
        let age = Duration::from_micros(now.wall.0.saturating_sub(at.wall().0));
        let here = age.saturating_sub(self.distance(group));
        Instant(now.instant.0.saturating_sub(here.as_micros() as u64).max(looked.0))
    }

    /// How far away its coordinator is, in time.
    fn distance(&self, group: TransactionId) -> Duration {
        self.distances.get(&group.process).copied().unwrap_or_default()
    }

    /// How long a coordinator may be silent.
    fn timeout(&self, group: TransactionId, least: Duration) -> Duration {
        least + (self.distance(group) * DISTANCES).min(least * LONGER)
    }

    /// A recovery met a higher coordinator view.
    pub(super) fn superseded(&mut self, group: TransactionId, promised: CoordinatorView, now: Instant) {
        self.rounds.insert(group, promised.round);
        if let Some(activity) =
            self.last_activity.get_mut(&group).filter(|activity| activity.promised < promised)
        {
            *activity = LastActivity { since: now, promised };
        }
    }
}

/// How long a coordinator view is given.
fn patience(timeout: Duration, round: u32) -> Duration {
    timeout * 2u32.pow(round.min(DOUBLINGS))
}

impl Replica {
    pub(super) fn arm_suspicion(&self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let quarter = (self.options.prepared_timeout.as_micros() as u64 / 4).max(1);
        let wait = Duration::from_micros(quarter + random.u64(0..=quarter));
        let next = now.instant + wait;
        let due = |(id, activity): (&TransactionId, &LastActivity)| {
            activity.since + self.patience_for(*id, activity.promised.round)
        };
        let soonest = self.suspicion.last_activity.iter().map(due).filter(|due| *due > now.instant).min();
        out.arm(Timer::Suspicion, soonest.map_or(next, |due| due.min(next)));
    }

    /// How long a transaction may go without a sign once `round` coordinator views have not sufficed.
    fn patience_for(&self, id: TransactionId, round: u32) -> Duration {
        patience(self.suspicion.timeout(id, self.options.prepared_timeout), round)
    }

    /// Starts the recovery of transactions that nobody has come on with for too long; repeats what recoveries have
    /// not been answered, and gives up those that do not come on, to be started again under a higher coordinator view.
    pub(super) fn on_suspicion(&mut self, now: Now, out: &mut Outputs<'_, Node>) {
        let timeout = self.options.prepared_timeout;
        self.recoveries
            .retain(|_, known| now.instant - known.started() < patience(timeout, known.ballot().round));
        self.forget_waiting(now.instant);
        let looked = std::mem::replace(&mut self.suspicion.looked, now.instant);
        if self.ir.status() != Status::Normal {
            return;
        }
        for recovery in self.recoveries.values() {
            for (shard, message) in recovery.unanswered() {
                self.tell(shard, message, out);
            }
        }
        let prepared = self.state.prepared();
        self.suspicion.last_activity.retain(|id, _| prepared.contains_key(id));
        self.suspicion.rounds.retain(|id, _| prepared.contains_key(id));
        let (mut overdue, mut forsaken) = (Vec::new(), false);
        for (id, operation) in prepared {
            let (born, promised) =
                self.ir.get(*id).map_or((operation.at, CoordinatorView::ORIGINAL), |g| (g.born, g.promised));
            let activity = match self.suspicion.last_activity.get(id) {
                Some(known) if known.promised >= promised => *known,
                Some(_) => LastActivity { since: now.instant, promised },
                None => LastActivity { since: self.suspicion.came(*id, operation.at, looked, now), promised },
            };
            self.suspicion.last_activity.insert(*id, activity);
            forsaken |= now.instant - activity.since >= self.suspicion.timeout(*id, timeout) * FORSAKEN;
            let participants = &operation.part.participants;
            let due = now.instant - activity.since >= self.patience_for(*id, activity.promised.round);
            if due && self.is_next(*id, activity, participants.first() == Some(&self.shard), now.instant) {
                overdue.push(((*id, born), activity.promised.round, participants.clone()));
            }
        }
        for (transaction, round, participants) in overdue {
            self.suspect(now, transaction, round, participants, out);
        }
        if forsaken {
            self.ir.ask_epoch(&mut Wires { out, options: &self.options, now: now.instant });
        }
    }

    /// True if this backup coordinator's turn has come. Replicas of other shards only remind the one that is first.
    fn is_next(&self, id: TransactionId, activity: LastActivity, backup: bool, now: Instant) -> bool {
        let members = self.topology.replicas(self.shard);
        let before = line(id, activity.promised.round, members).position(|member| member == self.address);
        let before = before.unwrap_or(members.len());
        let patience = self.patience_for(id, activity.promised.round);
        !backup || now - activity.since >= patience + patience * before as u32 / 2
    }

    /// Takes the recovery on if this replica is a backup coordinator of the transaction, else asks one that is.
    fn suspect(
        &mut self,
        now: Now,
        (transaction, born): (TransactionId, Timestamp),
        round: u32,
        participants: Vec<u16>,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(first) = participants.first().copied() else { return };
        if first == self.shard {
            return self.recover(now, (transaction, born), participants, out);
        }
        let backups = self.topology.replicas(first);
        let Some(activity) = self.suspicion.last_activity.get(&transaction) else { return };
        // The first in line, then the others, one after the other.
        let patience = self.patience_for(transaction, round);
        let late = (now.instant - activity.since).saturating_sub(patience).as_micros()
            / (patience.as_micros() / 2).max(1);
        if let Some(backup) = line(transaction, round, backups).cycle().nth(late as usize) {
            out.send(backup, Message::Suspect { transaction, born, participants });
        }
    }

    /// Begins to recover a transaction as its backup coordinator.
    pub(super) fn recover(
        &mut self,
        now: Now,
        (transaction, born): (TransactionId, Timestamp),
        participants: Vec<u16>,
        out: &mut Outputs<'_, Node>,
    ) {
        let known = participants.iter().all(|shard| !self.topology.replicas(*shard).is_empty());
        let backup = known && participants.first() == Some(&self.shard);
        if !backup || self.ir.status() != Status::Normal || self.recoveries.contains_key(&transaction) {
            return;
        }
        let promised = self.ir.get(transaction).map_or(0, |group| group.promised.round);
        let round = promised.max(self.suspicion.rounds.get(&transaction).copied().unwrap_or(0)) + 1;
        self.suspicion.rounds.insert(transaction, round);
        let process = self.address.process;
        let ballot = CoordinatorView { round, process, incarnation: self.incarnation };
        let group = (transaction, born);
        let recovery = Recovery::new(group, ballot, &participants, &self.topology, now.instant);
        for (shard, message) in recovery.unanswered() {
            self.tell(shard, message, out);
        }
        self.recoveries.insert(transaction, recovery);
    }
}

/// The backup coordinators in their line, once `round` coordinator views have not sufficed.
fn line(id: TransactionId, round: u32, members: &[Address]) -> impl Iterator<Item = Address> + Clone {
    let first = ((id.number + u64::from(round)) % members.len().max(1) as u64) as usize;
    let turn = members[first..].iter().chain(&members[..first]).copied();
    let is_colocated = move |member: &Address| member.process == id.process;
    turn.clone().filter(move |member| !is_colocated(member)).chain(turn.filter(is_colocated))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_late_proposals_do_not_make_a_coordinator_far() {
        let mut suspicion = Suspicion::default();
        let group = TransactionId::default();
        let mut proposed = |age: u64| {
            let wall = WallTime(10_000_000);
            suspicion.proposed(group, Timestamp::from_wall(WallTime(wall.0 - age)), wall);
            suspicion.timeout(group, Duration::from_millis(600))
        };
        for age in [1000, 250_000, 1000, 500_000, 1000, 250_000, 1000, 1000, 1000] {
            proposed(age);
        }
        assert!(proposed(1000) < Duration::from_millis(650), "one round trip of a millisecond");
        for _ in 0..64 {
            proposed(100_000);
        }
        let far = proposed(100_000);
        assert!(far > Duration::from_millis(1050) && far <= Duration::from_millis(1100), "{far:?}");
    }
}
