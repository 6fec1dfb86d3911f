//! What this worker's clients tell other gateways leaves when what they were replied may leave.

use super::{PATIENCE, Worker};
use crate::journal::Journal;
use crate::process::{MANY_NEWS_BYTES, MOST_NEWS_BYTES, bytes_of};
use crate::solo::Outcome;
use gateway::{Audience, News};
use protocol::{Durable, Gate};
use std::sync::Arc;

/// News that wait for a gate.
pub(super) struct Told {
    pub(super) gate: Gate,
    /// The group up to which the same turn's replies tell of what is undone if the log refuses it; 0 for nothing.
    undoable: u64,
    whom: Audience,
    news: Arc<News>,
}

impl Worker {
    /// What was told since the last call waits for what the replies of the same turn wait for. What went with effects that
    /// the log has refused is told to nobody.
    pub(super) fn hold_told(&mut self, outcome: &Outcome) {
        // Turns of those that wait rest on nothing that the log may refuse.
        let is_message = |news: &News| matches!(news, News::Published { .. });
        let (told, turns): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.host.told).into_iter().partition(|(_, news)| is_message(news));
        let open = |(whom, news)| Told { gate: Gate::OPEN, undoable: 0, whom, news };
        self.turns.extend(turns.into_iter().map(open));
        if told.is_empty() || outcome.refused {
            return;
        }
        let Outcome { gate, undoable, .. } = *outcome;
        if self.told_bytes > MOST_NEWS_BYTES {
            // The log is slow, and news arrive at most once.
            return;
        }
        self.told_bytes += told.iter().map(|(_, news)| bytes_of(news)).sum::<usize>();
        self.told.extend(told.into_iter().map(|(whom, news)| Told { gate, undoable, whom, news }));
    }

    /// Tells what may be told, in order.
    pub(super) fn send_told(&mut self, durable: Durable) {
        if !self.turns.is_empty() {
            let turns = std::mem::take(&mut self.turns);
            self.spread(&turns);
        }
        if self.told.is_empty() {
            return;
        }
        if let Some(journal) = &self.host.process.journal
            && journal.failures() != 0
        {
            let is_late = journal.refuses_for().is_some_and(|refusing| refusing >= PATIENCE);
            let is_closed = |told: &Told| is_late && told.gate.written > durable.written;
            self.told.retain(|told| !journal.has_failed(told.undoable) && !is_closed(told));
        }
        let before = self.told.len();
        let closed = self.told.iter().position(|told| !told.gate.is_open(durable));
        let open: Vec<Told> = self.told.drain(..closed.unwrap_or(self.told.len())).collect();
        if !open.is_empty() {
            self.spread(&open);
        }
        if self.told.len() < before {
            self.told_bytes = self.told.iter().map(|told| bytes_of(&told.news)).sum();
        }
        self.host.is_congested |= self.is_told_much();
    }

    /// Once the log takes records again, elements are there that were taken in vain: those that wait look for them.
    pub(super) fn wake_after_refusal(&mut self) {
        let failures = self.log_failures();
        if failures == self.failures_seen {
            return;
        }
        // Behind its lock: until everything is undone, it is suspended.
        let is_suspended = |journal: &Journal| journal.with_log(|log| log.is_suspended());
        if self.host.process.journal.as_ref().is_some_and(is_suspended) {
            return;
        }
        self.failures_seen = failures;
        self.gateway.look_at_all_lines(&mut self.host);
    }

    /// True if so much waits for the log that publishers are to wait, too.
    pub(super) fn is_told_much(&self) -> bool {
        self.told_bytes > MANY_NEWS_BYTES
    }

    fn spread(&mut self, open: &[Told]) {
        let process = Arc::clone(&self.host.process);
        let own = process.view.process();
        let is_for = |whom: Audience, number: usize| match whom {
            Audience::Others | Audience::Here => true,
            Audience::Elsewhere => false,
            Audience::Worker(worker) => usize::from(worker) == number,
            Audience::Process(process) => process == own,
        };
        let mut is_congested = false;
        let workers = process.workers.read();
        for (number, worker) in workers.iter().enumerate().filter(|(_, it)| !Arc::ptr_eq(it, &self.host.me)) {
            let its = open.iter().filter(|told| is_for(told.whom, number));
            worker.hand_news(its.map(|told| (own, Arc::clone(&told.news))));
            is_congested |= worker.is_congested();
        }
        drop(workers);
        self.host.is_congested = is_congested;
        let is_inner = |told: &Told| matches!(told.whom, Audience::Here | Audience::Worker(_));
        if !process.view.has_peers() || open.iter().all(is_inner) {
            return;
        }
        let mut cluster = process.cluster.lock();
        open.iter().for_each(|told| cluster.tell(told.whom, &told.news));
        cluster.flush(self.host.now.instant);
    }
}
