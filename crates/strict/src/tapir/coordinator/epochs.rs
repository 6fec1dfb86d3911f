//! Shards whose replicas change while transactions are under way, and the operator who changes them (Corrections 83).
//!
//! What a shard's replicas said in one epoch counts with nothing that those of another say: whatever a transaction was
//! counting at the shard begins anew. What had succeeded stays, since the next epoch begins with it.

use super::super::message::{Message, Timer};
use super::super::node::IrMessage;
use super::super::operation::Transactions;
use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::ir::{Configuration, Tally, epoch_of, first_view};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{Address, Instant, NodeId, ProcessId};

/// How often the coordinator asks a member to move its shard.
const ASK_EVERY: Duration = Duration::from_millis(500);
/// For how long: whoever joins may have to fetch the state first.
const ASK_FOR: Duration = Duration::from_secs(60);

/// A move of replicas that an operator commanded.
#[derive(Debug)]
pub(super) struct ReplicaMove {
    processes: Vec<ProcessId>,
    accept_loss: bool,
    /// The epoch that is to end.
    epoch: u32,
    tries: usize,
    until: Instant,
}

impl Coordinator {
    /// True if what a replica says counts: it speaks in the epoch that is known of its shard. A later one must satisfy
    /// more. The one place where a coordinator compares epochs.
    pub(super) fn is_of_epoch(
        &mut self,
        (shard, member): (u16, usize),
        message: &Message,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let view = match message {
            Message::ReadReply { view, .. } | Message::CheckReply { view, .. } => Some(*view),
            Message::Ir { message } => message.view(),
            _ => None,
        };
        let (Some(view), epoch) = (view, self.topology.epoch(shard)) else { return true };
        if epoch_of(view) > epoch {
            let message = Message::Ir { message: IrMessage::WhichEpoch { epoch } };
            step.out.send(self.topology.replicas(shard)[member], message);
        }
        epoch_of(view) == epoch || self.options.mutants.has(Mutant::CountTwoEpochs)
    }

    /// A replica that is of no shard as known here, or somebody else.
    pub(super) fn on_stranger(&mut self, from: NodeId, message: Message, step: &mut Step<'_, '_>) {
        match message {
            Message::Ir { message: IrMessage::Epoch { configuration, .. } } => {
                if let Some(shard) = self.topology.shard_of_node(from) {
                    self.on_epoch(shard, &configuration, step);
                }
            }
            Message::Place { shard, processes, accept_loss } if from.process == self.process => {
                self.place(shard, processes, accept_loss, step);
            }
            _ => {}
        }
    }

    /// A shard is of a later epoch: whatever waits for its replicas asks the present ones.
    pub(super) fn on_epoch(&mut self, shard: u16, configuration: &Configuration, step: &mut Step<'_, '_>) {
        if !self.topology.learn(shard, configuration) {
            return;
        }
        self.protocol.replicas.forget(shard);
        self.protocol.preferred.remove(&shard);
        self.protocol.views.insert(shard, first_view(configuration.epoch));
        let numbers: Vec<u64> = self.transactions.keys().copied().collect();
        for number in numbers {
            if let Some(transaction) = self.take(number) {
                self.ask_anew(transaction, shard, step);
            }
        }
        self.settle_anew(shard, step);
        if self
            .protocol
            .replica_move
            .get(&shard)
            .is_some_and(|replica_move| replica_move.epoch < configuration.epoch)
        {
            self.protocol.replica_move.remove(&shard);
            step.out.disarm(Timer::ReplicaMove { shard });
        }
    }

    /// The coordinator repeats to the present replicas of a shard what a transaction had asked the replicas of the
    /// epoch before.
    fn ask_anew(&mut self, mut transaction: Transaction, shard: u16, step: &mut Step<'_, '_>) {
        let fresh: Tally<Transactions> = self.tally(shard);
        match &mut transaction.phase {
            Phase::Preparing(preparing) => {
                let votes = preparing.shards.get_mut(&shard);
                let Some(votes) = votes.filter(|votes| votes.tally.succeeded().is_none()) else {
                    return self.keep(transaction, step);
                };
                #[cfg(debug_assertions)]
                let fresh = match self.options.mutants.has(Mutant::CountTwoEpochs) {
                    true => votes.tally.carried_into(first_view(self.topology.epoch(shard))),
                    false => fresh,
                };
                (votes.tally, votes.quorum_at) = (fresh, None);
                self.propose(&transaction, step);
            }
            Phase::QuorumRead(read)
                if transaction.steps.list().first().is_some_and(|s| s.call.shard == shard) =>
            {
                read.answers.clear();
                read.since = step.now.instant;
                read.queried = (0..self.topology.replicas(shard).len()).collect();
                for member in read.queried.clone() {
                    self.read(&transaction, &[0], member, step);
                }
            }
            Phase::Checking(_) => self.check_anew(&mut transaction, shard, step),
            Phase::Executing => {
                let requested = transaction.steps.requested().filter(|(_, call)| call.shard == shard);
                let requested: Vec<usize> = requested.map(|(index, _)| index).collect();
                for index in requested {
                    self.ask(&mut transaction, index, step);
                }
            }
            _ => {}
        }
        self.keep(transaction, step);
    }

    /// An operator wants a shard to move, or to go on after a loss.
    fn place(&mut self, shard: u16, processes: Vec<ProcessId>, accept_loss: bool, step: &mut Step<'_, '_>) {
        if self.topology.replicas(shard).is_empty() {
            return;
        }
        let (epoch, until) = (self.topology.epoch(shard), step.now.instant + ASK_FOR);
        let replica_move = ReplicaMove { processes, accept_loss, epoch, tries: 0, until };
        self.protocol.replica_move.insert(shard, replica_move);
        self.on_placing_timer(shard, step);
    }

    /// Asks one member after the other to end the epoch, until one has, or it has taken too long.
    pub(super) fn on_placing_timer(&mut self, shard: u16, step: &mut Step<'_, '_>) {
        let Some(replica_move) = self.protocol.replica_move.get_mut(&shard) else { return };
        if step.now.instant >= replica_move.until {
            self.protocol.replica_move.remove(&shard);
            return;
        }
        let (alone, epoch) = (replica_move.accept_loss, replica_move.epoch + 1);
        let present = self.topology.replicas(shard);
        let Some(slot) = present.first().map(|replica| replica.slot) else { return };
        let at = |process: &ProcessId| Address { process: *process, slot };
        let members: Vec<Address> = replica_move.processes.iter().map(at).collect();
        let to = match alone {
            true => members.first().copied(),
            // A replica that stays in the group is likelier to be alive than one that leaves it.
            false => {
                let staying: BTreeSet<&Address> = members.iter().collect();
                let mut candidates: Vec<Address> = present.to_vec();
                candidates.sort_by_key(|replica| !staying.contains(replica));
                candidates.get(replica_move.tries % candidates.len().max(1)).copied()
            }
        };
        replica_move.tries += 1;
        if let Some(to) = to {
            let configuration = Configuration { epoch, members };
            step.out.send(to, Message::Ir { message: IrMessage::Reconfigure { configuration, alone } });
        }
        step.out.arm(Timer::ReplicaMove { shard }, step.now.instant + ASK_EVERY);
    }

    /// The shards that an operator has asked to move and that have not moved yet.
    pub fn replica_move(&self) -> impl Iterator<Item = u16> + '_ {
        self.protocol.replica_move.keys().copied()
    }

    /// The replicas of a shard, as far as this coordinator has heard.
    pub fn configuration(&self, shard: u16) -> Configuration {
        self.topology.configuration(shard)
    }
}
