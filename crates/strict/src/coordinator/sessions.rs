//! What sessions keep between their requests: watches, an open transaction, and the operations of a pipeline whose
//! turn has not come.
//!
//! A later operation of a pipeline must not take effect, or read, before an earlier one has: the operations of one
//! turn run as one transaction, and what came meanwhile waits for the next turn. Gateways send nothing else of a
//! session while one of its requests is in progress.

use super::Call;
use super::steps::Watched;
use crate::validation::Stamp;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Error, Instant, RequestId, SessionId};

/// An operation whose turn has not come.
#[derive(Debug)]
pub struct Queued {
    pub id: RequestId,
    pub call: Call,
    /// When it is given up.
    pub deadline: Instant,
}

/// What a session may do next.
#[derive(Debug)]
pub struct Turn {
    pub session: SessionId,
    /// Requests that have waited for too long; they have not begun.
    pub late: Vec<RequestId>,
    /// What runs now; nothing if the pipeline has ended.
    pub operations: Vec<Queued>,
}

/// A session that begins a transaction within this time after it lost one is taken to try the same again.
const TRIES_AGAIN_WITHIN: Duration = Duration::from_secs(2);

/// Transactions that a session's own client has to begin anew, interactive ones and those with watches, and that were
/// refused, one after the other. What it begins next is as old as the first of them, so that it wins in the end
/// (Corrections 12).
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    pub age: Stamp,
    pub times: u32,
    /// When the latest was refused.
    pub at: Instant,
    /// The client's think time since then: between replies and its next request.
    pub think_time: Duration,
    /// The shortest such time until it was refused again. It excludes the time of replicas: the longer others wait for
    /// keys reserved for the transaction, the longer its reads wait for them.
    pub shortest_think_time: Option<Duration>,
}

#[derive(Debug, Default)]
struct Session {
    watches: Vec<Watched>,
    /// The number of its open interactive transaction.
    open: Option<u64>,
    /// Why the transaction that the session has open ended: it hears so until it ends it too.
    failed: Option<Error>,
    lost: Option<Lost>,
    /// When the session's last request was answered, if the session has lost a transaction and sent no request since.
    answered: Option<Instant>,
    /// Operations of the pipeline are in progress, or about to be.
    in_turn: bool,
    /// The operations behind them.
    queue: VecDeque<Queued>,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions whose queued operations may run.
    turns: Vec<SessionId>,
}

impl Sessions {
    /// Queues an operation behind the session's earlier ones.
    pub fn queue(&mut self, session: SessionId, queued: Queued, now: Instant) {
        let state = self.sessions.entry(session).or_default();
        state.on_request(now);
        state.queue.push_back(queued);
        if !std::mem::replace(&mut state.in_turn, true) {
            self.turns.push(session);
        }
    }

    /// The next operations, `most` or fewer, of a session whose last ones have ended; `None` if there is no such
    /// session.
    pub fn next_turn(&mut self, now: Instant, most: usize) -> Option<Turn> {
        while let Some(session) = self.turns.pop() {
            let Some(state) = self.sessions.get_mut(&session) else { continue };
            let mut late = Vec::new();
            while let Some(queued) = state.queue.pop_front_if(|queued| queued.deadline <= now) {
                late.push(queued.id);
            }
            let operations: Vec<Queued> = state.queue.drain(..state.queue.len().min(most)).collect();
            state.in_turn = !operations.is_empty();
            return Some(Turn { session, late, operations });
        }
        None
    }

    /// Operations of a turn go back to the front of their queue. Of a session that is closed nobody waits for them.
    pub fn put_back(&mut self, session: SessionId, operations: impl DoubleEndedIterator<Item = Queued>) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        for queued in operations.rev() {
            state.queue.push_front(queued);
        }
    }

    /// Takes everything that waits for its turn.
    pub fn take_queue(&mut self, session: SessionId) -> VecDeque<Queued> {
        self.sessions.get_mut(&session).map(|state| std::mem::take(&mut state.queue)).unwrap_or_default()
    }

    /// The session's turn is over.
    pub fn end_turn(&mut self, session: SessionId) {
        self.turns.push(session);
    }

    /// Notes what was seen of a watched key.
    pub fn watch(&mut self, session: SessionId, watched: Watched) {
        self.sessions.entry(session).or_default().watches.push(watched);
    }

    /// Ends all watches of a session, and returns them.
    pub fn take_watches(&mut self, session: SessionId) -> Vec<Watched> {
        self.sessions.get_mut(&session).map(|state| std::mem::take(&mut state.watches)).unwrap_or_default()
    }

    /// The session's open transaction is this one.
    pub fn open(&mut self, session: SessionId, number: u64) {
        self.sessions.entry(session).or_default().open = Some(number);
    }

    /// The number of the session's open transaction.
    pub fn opened(&self, session: SessionId) -> Option<u64> {
        self.sessions.get(&session)?.open
    }

    /// The session's open transaction is this one no longer.
    pub fn close(&mut self, session: SessionId, number: u64) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.close(number);
        }
    }

    /// A transaction of the session has ended, and been answered.
    pub fn end(&mut self, session: SessionId, number: u64, now: Instant) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.close(number);
            state.answered(now);
        }
    }

    /// The transaction that the session has open has ended, for this reason.
    pub fn fail(&mut self, session: SessionId, error: Error) {
        self.sessions.entry(session).or_default().failed = Some(error);
    }

    /// Why the transaction that the session has open ended, if it has.
    pub fn failure(&self, session: SessionId) -> Option<Error> {
        self.sessions.get(&session)?.failed.clone()
    }

    /// The session has ended its failed transaction too.
    pub fn end_failed(&mut self, session: SessionId) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.failed = None;
        }
    }

    /// The session asks for something.
    pub fn on_request(&mut self, session: SessionId, now: Instant) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.on_request(now);
        }
    }

    /// A request of the session has been answered.
    pub fn answered(&mut self, session: SessionId, now: Instant) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.answered(now);
        }
    }

    /// A transaction of this age that the session's client has to begin anew was refused, and so often before.
    pub fn lose(&mut self, session: SessionId, age: Stamp, retries: u32, now: Instant) {
        let Some(state) = self.sessions.get_mut(&session) else { return };
        let before = state.lost.filter(|lost| lost.age == age);
        let shortest_think_time = before.map(|lost| lost.think_time);
        state.lost = Some(Lost {
            age,
            times: before.map_or(0, |lost| lost.times) + 1 + retries,
            at: now,
            think_time: Duration::ZERO,
            shortest_think_time: before
                .and_then(|lost| lost.shortest_think_time)
                .into_iter()
                .chain(shortest_think_time)
                .min(),
        });
    }

    /// What the session has lost lately, and may be trying again.
    pub fn lost(&self, session: SessionId, now: Instant) -> Option<Lost> {
        self.sessions.get(&session)?.lost.filter(|lost| now - lost.at < TRIES_AGAIN_WITHIN)
    }

    /// Such a transaction has committed.
    pub fn win(&mut self, session: SessionId) {
        if let Some(state) = self.sessions.get_mut(&session) {
            state.lost = None;
        }
    }

    /// The session has ended.
    pub fn remove(&mut self, session: SessionId) {
        self.sessions.remove(&session);
    }
}

impl Session {
    fn close(&mut self, number: u64) {
        self.open = self.open.filter(|open| *open != number);
    }

    fn answered(&mut self, now: Instant) {
        self.answered = self.lost.map(|_| now);
    }

    fn on_request(&mut self, now: Instant) {
        if let (Some(lost), Some(answered)) = (&mut self.lost, self.answered.take()) {
            lost.think_time += now - answered;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SESSION: SessionId = SessionId(7);

    fn queued(id: u64, deadline: u64) -> Queued {
        let key = mvcc::CompactKey::new(&id.to_be_bytes());
        let call = Call { key, shard: 0, operation: mvcc::CompactKey::default(), blind: true, keyset: None };
        Queued { id: RequestId(id), call, deadline: Instant(deadline) }
    }

    fn turn(sessions: &mut Sessions, now: u64, most: usize) -> Option<(Vec<u64>, Vec<u64>)> {
        let turn = sessions.next_turn(Instant(now), most)?;
        let late = turn.late.iter().map(|id| id.0).collect();
        Some((late, turn.operations.iter().map(|queued| queued.id.0).collect()))
    }

    #[test]
    fn operations_run_in_order_and_one_turn_at_a_time() {
        let mut sessions = Sessions::default();
        (1..=3).for_each(|id| sessions.queue(SESSION, queued(id, 100), Instant(0)));
        assert_eq!(turn(&mut sessions, 0, 2), Some((vec![], vec![1, 2])));
        sessions.queue(SESSION, queued(4, 100), Instant(0));
        assert_eq!(turn(&mut sessions, 0, 2), None, "the first turn has not ended");
        sessions.end_turn(SESSION);
        assert_eq!(turn(&mut sessions, 0, 2), Some((vec![], vec![3, 4])));
        sessions.end_turn(SESSION);
        assert_eq!(turn(&mut sessions, 0, 2), Some((vec![], vec![])), "the pipeline has ended");
        sessions.queue(SESSION, queued(5, 100), Instant(0));
        assert_eq!(turn(&mut sessions, 0, 2), Some((vec![], vec![5])), "and begins again");
    }

    #[test]
    fn what_was_put_back_keeps_its_place() {
        let mut sessions = Sessions::default();
        (1..=4).for_each(|id| sessions.queue(SESSION, queued(id, 100), Instant(0)));
        let mut operations =
            sessions.next_turn(Instant(0), 3).map(|turn| turn.operations).unwrap_or_default();
        sessions.put_back(SESSION, operations.split_off(1).into_iter());
        sessions.end_turn(SESSION);
        assert_eq!(turn(&mut sessions, 0, 9), Some((vec![], vec![2, 3, 4])));
    }

    #[test]
    fn what_has_waited_too_long_does_not_run() {
        let mut sessions = Sessions::default();
        [(1, 5), (2, 10), (3, 11)]
            .into_iter()
            .for_each(|(id, at)| sessions.queue(SESSION, queued(id, at), Instant(0)));
        assert_eq!(turn(&mut sessions, 10, 9), Some((vec![1, 2], vec![3])));
    }

    #[test]
    fn a_session_that_has_ended_has_no_turn() {
        let mut sessions = Sessions::default();
        sessions.queue(SESSION, queued(1, 100), Instant(0));
        sessions.remove(SESSION);
        assert_eq!(turn(&mut sessions, 0, 9), None);
    }

    #[test]
    fn who_tries_again_keeps_its_age_until_it_wins_or_gives_up() {
        let age = |at| Stamp { at: types::Timestamp(at), ..Stamp::ZERO };
        let at = |millis: u64| Instant(millis * 1000);
        let mut sessions = Sessions::default();
        sessions.open(SESSION, 1);
        sessions.lose(SESSION, age(5), 0, at(100));
        for (requested_at, answered) in [(102, 110), (115, 128), (129, 130)] {
            sessions.answered(SESSION, at(requested_at - 1));
            sessions.on_request(SESSION, at(requested_at));
            sessions.on_request(SESSION, at(requested_at + 1));
            sessions.answered(SESSION, at(answered));
        }
        sessions.lose(SESSION, age(5), 2, at(140));
        let lost = sessions.lost(SESSION, at(150)).expect("it has lost");
        assert_eq!(
            (lost.age, lost.times, lost.shortest_think_time),
            (age(5), 4, Some(Duration::from_millis(3)))
        );
        sessions.answered(SESSION, at(140));
        sessions.on_request(SESSION, at(149));
        sessions.lose(SESSION, age(5), 0, at(150));
        assert_eq!(
            sessions.lost(SESSION, at(150)).and_then(|lost| lost.shortest_think_time),
            Some(Duration::from_millis(3))
        );
        assert!(sessions.lost(SESSION, at(2150)).is_none(), "that is long ago");
        sessions.lose(SESSION, age(7), 0, at(3000));
        assert_eq!(
            sessions.lost(SESSION, at(3001)).map(|lost| (lost.times, lost.shortest_think_time)),
            Some((1, None))
        );
        sessions.win(SESSION);
        assert!(sessions.lost(SESSION, at(3001)).is_none());
    }

    #[test]
    fn an_open_transaction_is_closed_by_its_own_number_only() {
        let mut sessions = Sessions::default();
        sessions.open(SESSION, 1);
        sessions.open(SESSION, 2);
        sessions.close(SESSION, 1);
        assert_eq!(sessions.opened(SESSION), Some(2));
        sessions.close(SESSION, 2);
        assert_eq!(sessions.opened(SESSION), None);
    }
}
