//! A worker's turn with the keyspaces that have locks of their own: packets, timers, the log, in the order that the gates
//! need.

use super::{TICK, TIMEKEEPER, Worker};
use crate::cluster::{HostedKeyspace, KeyspaceHosting, Pumped, Visit, deliver};
use crate::journal::Journal;
use crate::process::Process;
use crate::routed::Routed;
use gateway::News;
use protocol::{Durable, Gate};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use types::{Instant, KeyspaceId, ProcessId};

/// How often a turn goes round before clients and peers are heard again.
const ROUNDS: usize = 32;

impl Worker {
    pub(super) fn peer_ready(&mut self, token: usize, ending: bool) {
        let (peers, now) = (&self.host.process.peers, self.host.now.instant);
        peers.ready((token, ending), now, &mut self.buffer, &mut self.arrived);
        self.host.stirred = true;
    }

    /// Every 100 ms, what the cluster has to do. What another worker's command keeps from it is done the next time.
    pub(super) fn tick_cluster(&mut self) {
        let process = Arc::clone(&self.host.process);
        let Some(mut cluster) = process.cluster.try_lock() else { return };
        let mut routed = Routed::new(self.host.worker, &mut self.gateway);
        let (journal, directory) = (process.journal.as_ref(), process.options.data.as_deref());
        cluster.tick(process.now(), journal, directory, &mut routed);
        drop(cluster);
        routed.hand_out(&process, Gate::OPEN);
        self.host.stirred |= process.view.is_active();
    }

    /// True if keyspaces are to be pumped in this turn.
    pub(super) fn is_due(&self) -> bool {
        let view = &self.host.process.view;
        let is_time = || view.is_active() && view.wakes_at() <= self.host.now.instant;
        self.is_stirred() || (self.index == TIMEKEEPER && is_time())
    }

    fn is_stirred(&self) -> bool {
        self.host.stirred || !self.host.submitted.is_empty()
    }

    /// How long the loop may sleep when nothing is left to do.
    pub(super) fn rest(&self) -> Duration {
        let process = &self.host.process;
        if self.is_stirred() {
            return Duration::ZERO;
        }
        if self.index != TIMEKEEPER || !process.view.is_active() {
            return TICK;
        }
        let now = process.now().instant;
        let latest = now + TICK;
        // Noted before it looks: a thread that notes an earlier deadline afterwards wakes this one.
        process.view.set_wake(latest);
        let wake = deadline(process).map_or(latest, |deadline| deadline.min(latest));
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
            if !self.is_stirred() && !is_more_durable {
                break;
            }
        }
        for keyspace in self.attended.drain(..) {
            self.host.stirred |= keyspace.leave_off();
        }
        let process = &self.host.process;
        process.peers.flush(self.host.now.instant);
        if process.locals.memory.limit() > 0 {
            process.hostings.note_memory(&process.locals.memory, &process.view);
        }
        if self.index != TIMEKEEPER && deadline(process).is_some_and(|at| at < process.view.wakes_at()) {
            process.workers.read()[TIMEKEEPER].wake();
        }
    }

    /// Pumps the keyspaces. While the log refuses records, replies that wait for it in one do not hold up those of the others.
    fn pump(&mut self) {
        let process = Arc::clone(&self.host.process);
        let is_stirred = std::mem::take(&mut self.host.stirred);
        let submitted = std::mem::take(&mut self.host.submitted);
        let heard = self.deliver(&process);
        let is_suspended = process.journal.as_ref().is_some_and(Journal::is_suspended);
        for keyspace in process.hostings.list().iter().filter_map(KeyspaceHosting::hosted) {
            let visit = match self.attends(keyspace, &submitted) {
                true => Visit::Attending,
                false if is_stirred => Visit::Anything,
                false => Visit::Time,
            };
            let host = &mut self.host;
            let mut routed = Routed::new(host.worker, &mut self.gateway);
            let pumped = keyspace.pump(&process, (visit, host.now.instant), &mut host.random, &mut routed);
            let Some(Pumped { now, gate, is_left }) = pumped else { continue };
            host.now = now;
            host.stirred |= is_left;
            host.outcome.gate = host.outcome.gate.and(gate);
            routed.hand_out(&process, gate);
            if is_suspended {
                self.settle();
            }
        }
        process.hand_on(heard);
        process.tell_dropped(&process.hostings.take_dropped());
        // Replies have come, so connections go on, and may have sent more requests.
        self.settle();
    }

    /// True if this worker has submitted something to the keyspace in this turn.
    fn attends(&mut self, keyspace: &Arc<HostedKeyspace>, submitted: &[KeyspaceId]) -> bool {
        let is_attended = self.attended.iter().any(|attended| attended.id == keyspace.id);
        let begins = !is_attended && submitted.contains(&keyspace.id);
        if begins {
            keyspace.attend();
            self.attended.push(Arc::clone(keyspace));
        }
        is_attended || begins
    }

    /// Hands out what peers have sent. Returns news.
    fn deliver(&mut self, process: &Process) -> Vec<(ProcessId, Arc<News>)> {
        if self.arrived.is_empty() {
            return Vec::new();
        }
        let mut routed = Routed::new(self.host.worker, &mut self.gateway);
        let heard = deliver(process, &self.arrived, process.now(), &mut routed);
        self.arrived.clear();
        routed.hand_out(process, Gate::OPEN);
        heard
    }

    /// Makes the replicas' records as durable as this thread can without waiting for the disk. True if the log has become
    /// more durable than `durable`, and something waited for that.
    fn write_log(&mut self, durable: Durable) -> bool {
        let Some(journal) = &self.host.process.journal else { return false };
        let work = self.host.process.hostings.log_work();
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

/// When the timekeeper must pump at the latest.
fn deadline(process: &Process) -> Option<Instant> {
    process.hostings.deadline().into_iter().chain(process.peers.deadline()).min()
}
