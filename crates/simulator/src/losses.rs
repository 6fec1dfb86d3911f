//! More than f replicas of a partition are lost for good, and an operator accepts that (Corrections 84).
//!
//! What clients saw before the loss must be explained by all that was committed; what they see once those that are left have
//! gone on, by what of it these had executed, whatever else was answered. So the history is judged twice: as it was known
//! when the processes were lost, and as it went on, on top of what survived. Of what was under way in between only the
//! effects count. And what was answered stays if the only one that is left had voted for it, and nothing has committed
//! above it on its keys.
//!
//! Outcomes are facts, whatever the epoch: a coordinator that says again that a transaction has committed brings it back
//! after others have missed it. What these saw is not in the order of the stamps then, and such a run remains undecided
//! unless that explains it all the same.

use crate::deployment::{Deployment, ReplicaStatus};
use crate::world::{Event, World};
use checker::{Check, Key, Outcome, Report, Transaction, Violation, check, check_replies};
use protocol::{Packet, Replica};
use std::collections::{BTreeMap, BTreeSet};
use types::{PartitionId, ProcessId, Timestamp, TransactionId};

/// How often the operator looks, in microseconds.
const LOOKS: u64 = 50_000;
/// How often it repeats its command.
const REPEATS: u64 = 2_000_000;

/// A transaction's name as histories have it.
type Name = [u64; 3];

/// What a replica was known to have.
#[derive(Debug, Default)]
struct Known {
    executed: BTreeSet<Name>,
    base: Timestamp,
}

/// What has been seen of replicas, for the sake of a loss to come.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    replicas: BTreeMap<(usize, PartitionId), Known>,
    births: BTreeMap<Name, Timestamp>,
    /// Processes that have forgotten something: what they have is not what was seen of them.
    forgot: BTreeSet<usize>,
}

/// A loss that has happened.
#[derive(Debug)]
pub(crate) struct Loss {
    at: u64,
    /// The processes that are left of each partition that has lost too many.
    left: BTreeMap<PartitionId, Vec<usize>>,
    /// The processes that got the command to go on, and the time of its last repetition.
    notified: BTreeMap<PartitionId, (usize, u64)>,
    /// When the last of them had gone on.
    accepted_at: Option<u64>,
    /// Up to where, of each partition, everything that committed was known to those that are left.
    bases: BTreeMap<PartitionId, Timestamp>,
    /// What had been claimed when it happened.
    claimed: BTreeSet<Name>,
    /// What the only one that is left of a partition had voted for.
    voted: BTreeMap<PartitionId, BTreeSet<(Name, u64)>>,
    /// What came to them only later, from a coordinator that said it again: others may have missed it meanwhile.
    late: bool,
    /// What those that are left, or have joined them, have executed.
    executed: BTreeMap<PartitionId, BTreeSet<Name>>,
}

impl Loss {
    /// A replica of a partition that has gone on has executed a transaction.
    fn executed(&mut self, partition: PartitionId, of: Name) {
        let Some(executed) = self.executed.get_mut(&partition) else { return };
        let is_new = executed.insert(of);
        let voted = self.voted.get(&partition).is_some_and(|voted| voted.iter().any(|(id, _)| *id == of));
        self.late |= is_new && !voted && self.accepted_at.is_some() && self.claimed.contains(&of);
    }
}

impl Seen {
    /// A loss that leaves these processes of the partitions that lose too many.
    fn loss(
        &self,
        at: u64,
        left: BTreeMap<PartitionId, Vec<usize>>,
        claimed: BTreeSet<Name>,
        voted: BTreeMap<PartitionId, BTreeSet<(Name, u64)>>,
    ) -> Loss {
        let base = |processes: &[usize], partition: PartitionId| {
            let of = |process: &usize| Some(self.replicas.get(&(*process, partition))?.base);
            processes.iter().filter_map(of).max().unwrap_or_default()
        };
        let bases =
            left.iter().map(|(partition, processes)| (*partition, base(processes, *partition))).collect();
        let executed = left.keys().map(|partition| (*partition, BTreeSet::new())).collect();
        let (notified, accepted_at, late) = (BTreeMap::new(), None, false);
        Loss { at, left, notified, accepted_at, bases, claimed, voted, late, executed }
    }
}

impl ReplicaStatus {
    /// What it has voted for, and when.
    fn votes(self) -> BTreeSet<(Name, u64)> {
        self.held.into_iter().map(|(id, at)| (name(id), at.0)).collect()
    }
}

fn name(id: TransactionId) -> Name {
    [u64::from(id.process.0), u64::from(id.incarnation.0), id.number]
}

impl<D: Deployment> World<D> {
    fn replica_status(&self, process: usize, partition: PartitionId) -> Option<ReplicaStatus> {
        let life = self.processes[process].life.as_ref()?;
        let replica =
            life.replicas.iter().find(|replica| replica.node().slot.partition == Some(partition))?;
        self.deployment.replica_status(replica.protocol())
    }

    /// Notes what every replica has.
    pub(crate) fn see_replicas(&mut self) {
        for process in 0..self.processes.len() {
            if self.processes[process].lost {
                self.seen.forgot.insert(process);
            }
            for partition in self.processes[process].host.partitions.clone() {
                let Some(replica_status) = self.replica_status(process, partition) else { continue };
                let known = self.seen.replicas.entry((process, partition)).or_default();
                known.base = known.base.max(replica_status.base);
                for (id, born) in replica_status.executed {
                    known.executed.insert(name(id));
                    self.seen.births.insert(name(id), born);
                    if let Some(loss) = self.loss.as_mut().filter(|_| replica_status.goes_on) {
                        loss.executed(partition, name(id));
                    }
                }
            }
        }
    }

    /// The replicas of a partition when the run began.
    fn members(&self, partition: PartitionId) -> Vec<usize> {
        let first = self.processes.len() - usize::from(self.setting.layout.spares);
        (0..first).filter(|process| self.processes[*process].host.partitions.contains(&partition)).collect()
    }

    /// Loses these processes, if of every partition somebody is left who has forgotten nothing.
    pub(crate) fn lose_processes(&mut self, lost: &[u16], after: u64) {
        if self.deployment.accept_loss(PartitionId(0), &[]).is_none() {
            return;
        }
        self.see_replicas();
        let mut left = BTreeMap::new();
        for partition in (0..self.setting.layout.partitions).map(PartitionId) {
            let members = self.members(partition);
            let stays = |process: &usize| !lost.contains(&(*process as u16));
            let staying: Vec<usize> = members.iter().copied().filter(stays).collect();
            if staying.len() <= members.len() / 2 {
                let sound = staying.into_iter().filter(|process| !self.seen.forgot.contains(process));
                left.insert(partition, sound.collect::<Vec<_>>());
            }
        }
        if self.loss.is_some() || left.is_empty() || left.values().any(Vec::is_empty) {
            return;
        }
        self.observe();
        let mut voted = BTreeMap::new();
        for (partition, processes) in &left {
            if let [only] = processes[..]
                && let Some(replica_status) = self.replica_status(only, *partition)
            {
                voted.insert(*partition, replica_status.votes());
            }
        }
        self.loss = Some(self.seen.loss(self.now, left, self.recorder.claimed(), voted));
        for process in lost {
            self.on_lose(usize::from(*process));
        }
        self.after(after, Event::Accept);
    }

    /// The operator looks whether those that are left have gone on, and tells them to.
    pub(crate) fn on_accept(&mut self) {
        let Some(loss) = &self.loss else { return };
        let mut all = true;
        for (partition, left) in loss.left.clone() {
            let replica_status =
                |process: &usize| Some((self.replica_status(*process, partition)?, *process));
            let replica_statuses: Vec<(ReplicaStatus, usize)> =
                left.iter().filter_map(replica_status).collect();
            if replica_statuses.iter().any(|(replica_status, _)| replica_status.goes_on) {
                continue;
            }
            all = false;
            let notified = self.loss.as_ref().and_then(|loss| loss.notified.get(&partition).copied());
            // It asks the one that is furthest, which is known when all have answered.
            let furthest = || {
                replica_statuses
                    .iter()
                    .max_by_key(|(replica_status, process)| (replica_status.base, *process))
            };
            let first = match notified {
                Some((_, at)) if self.now < at + REPEATS => None,
                Some((first, _)) => Some(first),
                None if replica_statuses.len() < left.len() => None,
                None => furthest().map(|(_, process)| *process),
            };
            if let Some(first) = first {
                let others = left.iter().filter(|process| **process != first);
                let processes: Vec<ProcessId> =
                    [first].iter().chain(others).map(|process| ProcessId(*process as u16)).collect();
                if self.say_accept(partition, &processes)
                    && let Some(loss) = &mut self.loss
                {
                    loss.notified.insert(partition, (first, self.now));
                }
            }
        }
        match &mut self.loss {
            Some(loss) if all => loss.accepted_at = Some(self.now),
            _ => return self.after(LOOKS, Event::Accept),
        }
        self.note("those that are left have gone on");
        self.grow();
    }

    /// Tells a living gateway.
    fn say_accept(&mut self, partition: PartitionId, processes: &[ProcessId]) -> bool {
        let Some(message) = self.deployment.accept_loss(partition, processes) else { return false };
        let is_sent = self.tell_gateway(message);
        if is_sent {
            self.note(&format!("partition {} is to go on with {processes:?}", partition.0));
        }
        is_sent
    }

    /// The partitions get three replicas again, where there are enough processes.
    fn grow(&mut self) {
        let spares = self.processes.len() - usize::from(self.setting.layout.spares);
        let Some((notified, left)) =
            self.loss.as_ref().map(|loss| (loss.notified.clone(), loss.left.clone()))
        else {
            return;
        };
        for (partition, (first, _)) in notified {
            let others = left[&partition].iter().copied().chain(spares..self.processes.len());
            let others = others.filter(|process| *process != first);
            let to: Vec<ProcessId> =
                [first].into_iter().chain(others).take(3).map(|process| ProcessId(process as u16)).collect();
            if to.len() == 3
                && let Some(message) = self.deployment.move_to(partition, &to)
            {
                self.note(&format!("partition {} is to move to {to:?}", partition.0));
                self.tell_gateway(message);
            }
        }
    }

    /// An operator speaks to the coordinator of some gateway that lives.
    fn tell_gateway(&mut self, message: <D::Protocol as protocol::Protocol>::Message) -> bool {
        let coordinator = |replica: &Replica<D::Protocol>| replica.node().slot.partition.is_none();
        for gateway in self.gateways() {
            let Some(life) = &self.processes[gateway].life else { continue };
            let Some(index) = life.replicas.iter().position(coordinator) else { continue };
            let from = life.replicas[index].node();
            self.step(gateway, index, |replica, now, random, sink| {
                // What a process says to itself is well formed.
                let _ = replica.receive(now, from, Packet::Datagram(message), random, sink);
            });
            return true;
        }
        false
    }

    /// True unless a loss has not been accepted.
    pub(crate) fn has_gone_on(&self) -> bool {
        self.loss.as_ref().is_none_or(|loss| loss.accepted_at.is_some())
    }

    /// Judges what clients saw before the loss and after it; `None` if there was none.
    pub(crate) fn judge_loss(&mut self) -> Option<Report> {
        let loss = self.loss.take()?;
        let level = self.deployment.level();
        let Some(accepted_at) = loss.accepted_at else {
            self.recorder.no_progress("those that are left have not gone on without the lost".into());
            return Some(check(&[], level));
        };
        let history = &self.recorder.history;
        let mut report = check(&before(history, &loss), level);
        let after = self.after_loss(&loss, accepted_at);
        let later = check_replies(&after, level);
        report.undecided |= later.undecided || loss.late && !later.ok;
        if !loss.late {
            report.violations.extend(later.violations);
        }
        report.violations.extend(self.lost_votes(&loss));
        report.transactions = history.len();
        Some(report)
    }

    fn partition_of(&self, key: &Key) -> PartitionId {
        PartitionId(self.setting.hash_seed.hash(&key.0).share(self.setting.layout.partitions.max(1)))
    }

    /// True if a transaction's effects on a partition have outlived the loss.
    fn survives(&self, loss: &Loss, partition: PartitionId, of: Name, at: u64) -> bool {
        let (Some(left), Some(executed)) = (loss.left.get(&partition), loss.executed.get(&partition)) else {
            return true;
        };
        // Who is born up to the base may be forgotten; a stamp is never below the birth.
        let born = self.seen.births.get(&of).copied().unwrap_or(Timestamp(at));
        let knows = |process: &usize| {
            let known = self.seen.replicas.get(&(*process, partition));
            known.is_some_and(|known| known.executed.contains(&of))
        };
        executed.contains(&of)
            || left.iter().any(knows)
            || loss.bases.get(&partition).is_some_and(|base| born <= *base)
    }

    /// The history since the survivors have gone on, on top of the state that they retained.
    fn after_loss(&self, loss: &Loss, accepted_at: u64) -> Vec<Transaction> {
        let mut after = Vec::new();
        for transaction in &self.recorder.history {
            let is_new = !transaction.steps.is_empty() && transaction.invoked >= accepted_at;
            let mut transaction = transaction.clone();
            if let (Some(place), Some(claim)) = (transaction.place(), transaction.claim.as_mut())
                && !is_new
            {
                let at = place.0;
                let of = claim.transaction;
                claim.effects.retain(|(key, _)| self.survives(loss, self.partition_of(key), of, at));
            }
            if !is_new {
                let has_effects = transaction.claim.as_ref().is_some_and(|claim| !claim.effects.is_empty());
                if transaction.place().is_none() || !has_effects {
                    continue;
                }
                transaction.steps.clear();
                (transaction.invoked, transaction.responded) = (0, None);
                transaction.outcome = Outcome::Unknown;
            }
            after.push(transaction);
        }
        after
    }

    /// True if others have committed above it on its keys: then the vote, judged again, may be refused.
    fn is_overtaken(&self, transaction: &Transaction, place: (u64, Name)) -> bool {
        let touches = |key: &Key| transaction.steps.iter().any(|step| step.key == *key);
        let mut above = self.recorder.history.iter().filter(|other| other.place() > Some(place));
        above.any(|other| other.claim.iter().flat_map(|claim| &claim.effects).any(|(key, _)| touches(key)))
    }

    /// What was answered, was voted for by the only one that is left, and is lost all the same.
    fn lost_votes(&self, loss: &Loss) -> Vec<Violation> {
        let mut found = Vec::new();
        for transaction in &self.recorder.history {
            let answered = transaction.outcome == Outcome::Committed
                && transaction.responded.is_some_and(|responded| responded <= loss.at);
            let (Some(claim), Some(place), true) = (&transaction.claim, transaction.place(), answered) else {
                continue;
            };
            for (partition, voted) in &loss.voted {
                let writes = claim.effects.iter().any(|(key, _)| self.partition_of(key) == *partition);
                if writes
                    && voted.contains(&(claim.transaction, place.0))
                    && !self.is_overtaken(transaction, place)
                    && !self.survives(loss, *partition, claim.transaction, place.0)
                {
                    let message = format!(
                        "transaction {} was answered, and is lost in partition {} though the one that is left had \
                         voted for it",
                        transaction.number, partition.0
                    );
                    let transactions = vec![transaction.number];
                    found.push(Violation { check: Check::ExactlyOnce, message, transactions });
                }
            }
        }
        found
    }
}

/// The history as it was known when the processes were lost.
fn before(history: &[Transaction], loss: &Loss) -> Vec<Transaction> {
    let mut before = Vec::new();
    for transaction in history.iter().filter(|transaction| transaction.invoked <= loss.at) {
        let mut transaction = transaction.clone();
        let known = |of: Name| loss.claimed.contains(&of);
        if transaction.responded.is_none_or(|responded| responded > loss.at) {
            (transaction.outcome, transaction.responded) = (Outcome::Unknown, None);
            if !transaction.claim.as_ref().is_some_and(|claim| known(claim.transaction)) {
                transaction.claim = None;
            }
            if transaction.steps.is_empty() && transaction.claim.is_none() {
                continue;
            }
        }
        before.push(transaction);
    }
    before
}
