//! News of this worker's clients to other gateways leave when the replies of the same turn may leave.

use super::{PATIENCE, Worker};
use crate::journal::Journal;
use crate::process::{MANY_NEWS_BYTES, MOST_NEWS_BYTES, bytes_of};
use crate::solo::Outcome;
use gateway::{Audience, News};
use protocol::{Durable, Gate};
use std::sync::Arc;

/// News that wait for a gate.
pub(super) struct HeldNews {
    pub(super) gate: Gate,
    /// The group up to which the same turn's replies tell of what is undone if the log refuses it; 0 for nothing.
    undoable: u64,
    whom: Audience,
    news: Arc<News>,
}

impl Worker {
    /// News since the last call wait for the gate of the same turn's replies. The worker drops news of effects that the
    /// log has refused.
    pub(super) fn hold_news(&mut self, outcome: &Outcome) {
        // Turns of those that wait rest on nothing that the log may refuse.
        let is_message = |news: &News| matches!(news, News::Published { .. });
        let (held_news, turns): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.host.news).into_iter().partition(|(_, news)| is_message(news));
        let open = |(whom, news)| HeldNews { gate: Gate::OPEN, undoable: 0, whom, news };
        self.turns.extend(turns.into_iter().map(open));
        if held_news.is_empty() || outcome.refused {
            return;
        }
        let Outcome { gate, undoable, .. } = *outcome;
        if self.held_news_bytes > MOST_NEWS_BYTES {
            // The log is slow, and news arrive at most once.
            return;
        }
        self.held_news_bytes += held_news.iter().map(|(_, news)| bytes_of(news)).sum::<usize>();
        self.held_news.extend(held_news.into_iter().map(|(whom, news)| HeldNews {
            gate,
            undoable,
            whom,
            news,
        }));
    }

    /// Sends the news whose gates are open, in order.
    pub(super) fn send_held_news(&mut self, durable: Durable) {
        if !self.turns.is_empty() {
            let turns = std::mem::take(&mut self.turns);
            self.spread(&turns);
        }
        if self.held_news.is_empty() {
            return;
        }
        if let Some(journal) = &self.host.process.journal
            && journal.failures() != 0
        {
            let is_late = journal.refuses_for().is_some_and(|refusing| refusing >= PATIENCE);
            let is_closed = |held_news: &HeldNews| is_late && held_news.gate.written > durable.written;
            self.held_news
                .retain(|held_news| !journal.has_failed(held_news.undoable) && !is_closed(held_news));
        }
        let before = self.held_news.len();
        let closed = self.held_news.iter().position(|held_news| !held_news.gate.is_open(durable));
        let open: Vec<HeldNews> = self.held_news.drain(..closed.unwrap_or(self.held_news.len())).collect();
        if !open.is_empty() {
            self.spread(&open);
        }
        if self.held_news.len() < before {
            self.held_news_bytes = self.held_news.iter().map(|held_news| bytes_of(&held_news.news)).sum();
        }
        self.host.is_congested |= self.holds_much_news();
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
    pub(super) fn holds_much_news(&self) -> bool {
        self.held_news_bytes > MANY_NEWS_BYTES
    }

    fn spread(&mut self, open: &[HeldNews]) {
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
            let its = open.iter().filter(|held_news| is_for(held_news.whom, number));
            worker.hand_news(its.map(|held_news| (own, Arc::clone(&held_news.news))));
            is_congested |= worker.is_congested();
        }
        drop(workers);
        self.host.is_congested = is_congested;
        let is_inner = |held_news: &HeldNews| matches!(held_news.whom, Audience::Here | Audience::Worker(_));
        if !process.view.has_peers() || open.iter().all(is_inner) {
            return;
        }
        open.iter().for_each(|held_news| process.peers.tell(held_news.whom, &held_news.news));
        process.peers.flush(self.host.now.instant);
    }
}
