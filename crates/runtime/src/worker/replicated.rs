//! A worker's turn with what is behind the cluster's lock: packets, timers, the log, in the order that the gates need.

use super::{TICK, TIMEKEEPER, Worker};
use crate::journal::Journal;
use crate::routed::Routed;
use protocol::Durable;
use protocol::hosted::Turn;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often a turn goes round before clients and peers are heard again.
const ROUNDS: usize = 32;

impl Worker {
    pub(super) fn peer_ready(&mut self, token: usize, ending: bool) {
        self.host.process.cluster.lock().ready(token, ending);
        self.host.stirred = true;
    }

    /// True if the cluster is to be pumped in this turn.
    pub(super) fn is_due(&self) -> bool {
        let view = &self.host.process.view;
        let is_time = || view.is_active() && view.wakes_at() <= self.host.now.instant;
        self.host.stirred || (self.index == TIMEKEEPER && is_time())
    }

    /// How long the loop may sleep when nothing is left to do.
    pub(super) fn rest(&self) -> Duration {
        let process = &self.host.process;
        if self.host.stirred {
            return Duration::ZERO;
        }
        if self.index != TIMEKEEPER || !process.view.is_active() {
            return TICK;
        }
        let cluster = process.cluster.lock();
        let now = process.now().instant;
        let latest = now + TICK;
        let wake = cluster.deadline(now).map_or(latest, |deadline| deadline.min(latest));
        process.view.set_wake(wake);
        wake - now
    }

    /// Does for the instances what can be done without waiting, and leaves the clients' replies to be sent.
    pub(super) fn turn_cluster(&mut self) {
        for _ in 0..ROUNDS {
            // Read before: what another thread writes while this one pumps opens gates, too.
            let durable = self.host.process.journal.as_ref().map(Journal::durable);
            self.pump();
            let is_more_durable = durable.is_some_and(|durable| self.write_log(durable));
            if !self.host.stirred && !is_more_durable {
                break;
            }
        }
        let process = &self.host.process;
        let mut cluster = process.cluster.lock();
        let now = self.host.now.instant;
        cluster.flush(now);
        if process.locals.memory.limit() > 0 {
            cluster.note_memory();
        }
        if self.index != TIMEKEEPER && cluster.deadline(now).is_some_and(|at| at < process.view.wakes_at()) {
            process.workers.read()[TIMEKEEPER].wake();
        }
    }

    /// Pumps the keyspaces. While the log refuses records it does so one by one: replies that wait for it in one do not
    /// hold up those of the others.
    fn pump(&mut self) {
        self.host.stirred = false;
        let process = Arc::clone(&self.host.process);
        let is_suspended = process.journal.as_ref().is_some_and(Journal::is_suspended);
        let mut first = 0;
        loop {
            let host = &mut self.host;
            let mut routed = Routed::new(host.worker, &mut self.gateway);
            let mut cluster = process.cluster.lock();
            // Read behind the lock, so that time does not go back from one worker to the next.
            host.now = process.now();
            cluster.deliver(host.now);
            let count = cluster.count();
            let end = if is_suspended { count.min(first + 1) } else { count };
            let mut turn = Turn { now: host.now, random: &mut host.random, replies: &mut routed };
            let gate = cluster.pump(first..end, process.journal.as_ref(), &mut turn);
            let dropped = cluster.take_dropped();
            // Behind the lock, so that two workers do not exchange the news of one process.
            process.hand_on(cluster.take_heard());
            drop(cluster);
            host.outcome.gate = host.outcome.gate.and(gate);
            routed.hand_out(&process, gate);
            process.tell_dropped(&dropped);
            // Replies have come, so connections go on, and may have sent more requests.
            self.settle();
            first = end;
            if first >= count {
                return;
            }
        }
    }

    /// Makes the replicas' records as durable as this thread can without waiting for the disk. True if the log has become
    /// more durable than `durable`, and something waited for that.
    fn write_log(&mut self, durable: Durable) -> bool {
        let Some(journal) = &self.host.process.journal else { return false };
        let work = self.host.process.cluster.lock().log_work(durable);
        self.awaits_log = work.write || work.sync;
        if work.write {
            journal.write_out();
        }
        if work.sync {
            self.host.me.awaits_log.store(true, Ordering::Release);
            journal.want_sync();
        }
        let is_more_durable = journal.durable() != durable;
        if work.write {
            // Replies that an earlier turn left waiting for a sync may have waited for this.
            for token in std::mem::take(&mut self.holding) {
                self.touch(token);
            }
        }
        self.awaits_log && is_more_durable
    }
}
