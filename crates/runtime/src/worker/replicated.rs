//! A worker's turn in a process of a cluster: packets, timers, the log, in the order that the gates need.

use super::Worker;
use crate::cluster::dropped;
use crate::journal::Journal;
use protocol::hosted::Turn;
use std::sync::atomic::Ordering;

/// How often a turn goes round before clients and peers are heard again.
const ROUNDS: usize = 32;

impl Worker {
    pub(super) fn peer_ready(&mut self, token: usize, ending: bool) {
        if let Some(cluster) = &mut self.host.cluster {
            cluster.ready(token, ending, self.poll.registry());
        }
    }

    /// Does for the replicas what can be done without waiting, and leaves the clients' replies to be sent.
    pub(super) fn turn_cluster(&mut self) {
        let host = &mut self.host;
        let Some(cluster) = &mut host.cluster else { return };
        for keyspace in cluster.take_dropped() {
            self.gateway.give_up_waiting(keyspace, &dropped());
        }
        cluster.deliver(host.now);
        for _ in 0..ROUNDS {
            self.pump();
            if !self.is_stirred() && !self.write_log() {
                break;
            }
        }
        self.checkpoint();
        let host = &mut self.host;
        if let (Some(cluster), Some(view)) = (&mut host.cluster, &host.process.cluster) {
            cluster.flush(host.now.instant, self.poll.registry(), view);
        }
    }

    /// Pumps the keyspaces. While the log refuses records it does so one by one: replies that wait for it in one do not
    /// hold up those of the others.
    fn pump(&mut self) {
        let count = self.host.cluster.as_ref().map_or(0, |cluster| cluster.count());
        let is_suspended = self.host.process.journal.as_ref().is_some_and(Journal::is_suspended);
        let together = if is_suspended { 1 } else { count.max(1) };
        for first in (0..count.max(1)).step_by(together) {
            let host = &mut self.host;
            let Some(cluster) = &mut host.cluster else { return };
            let mut turn = Turn { now: host.now, random: &mut host.random, replies: &mut self.gateway };
            let which = first..count.min(first + together);
            let gate = cluster.pump(which, host.process.journal.as_ref(), &mut turn);
            host.outcome.gate = host.outcome.gate.and(gate);
            // Replies have come, so connections go on, and may have asked for more.
            self.settle();
        }
    }

    fn is_stirred(&self) -> bool {
        self.host.cluster.as_ref().is_some_and(|cluster| cluster.is_stirred())
    }

    /// Makes the replicas' records as durable as this thread can without waiting for the disk. True if that opened
    /// a gate.
    fn write_log(&mut self) -> bool {
        let (Some(cluster), Some(journal)) = (&self.host.cluster, &self.host.process.journal) else {
            return false;
        };
        let durable = journal.durable();
        let work = cluster.log_work(journal);
        if work.write {
            journal.write_out();
        }
        if work.sync {
            self.host.me.awaits_log.store(true, Ordering::Release);
            journal.want_sync();
        }
        // Did it become durable between the look and the note? Then nobody else will wake us.
        let is_more_durable = journal.durable() != durable;
        if work.write {
            // Replies that an earlier turn left waiting for a sync may have waited for this.
            for token in std::mem::take(&mut self.holding) {
                self.touch(token);
            }
        }
        (work.write || work.sync) && is_more_durable
    }

    /// Begins a checkpoint when the log has grown enough, or writes the next piece of the one under way.
    fn checkpoint(&mut self) {
        let host = &mut self.host;
        let process = &host.process;
        let (Some(cluster), Some(journal), Some(view)) =
            (&mut host.cluster, &process.journal, &process.cluster)
        else {
            return;
        };
        let written = cluster.continue_checkpoint(journal).and_then(|writer| {
            view.hand_over(writer);
            let threshold =
                process.options.checkpoint_after_bytes.max(view.checkpoint_bytes.load(Ordering::Relaxed));
            let due = (journal.grown() >= threshold || cluster.has_remains()) && !view.is_installing();
            if due && !journal.is_suspended() { cluster.begin_checkpoint(journal) } else { Ok(()) }
        });
        if let Err(error) = written {
            tracing::warn!(%error, "a checkpoint failed; the log grows on and the next one is tried");
        }
        if let Some(directory) = &process.options.data {
            if !journal.is_suspended() {
                cluster.note_complete(journal, directory);
            }
            cluster.tell_standing(journal, host.now.instant);
        }
    }
}
