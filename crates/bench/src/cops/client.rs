//! One client: an operation after the other, each a `GET` or a `SET`, with a rest between them. It never waits.

use super::plan::{Drawn, Plan};
use crate::redis::Target;
use crate::transactions::{
    Driven, End, Link, RECONNECT_WAIT, RunError, SILENCE, Totals, Trouble, refusal, rest,
};
use mio::{Registry, Token};
use std::time::{Duration, Instant};

/// What all clients share.
pub(super) struct Shared<'s> {
    pub urls: &'s [Target],
    pub keyspace: &'s str,
    pub plan: Plan,
    pub value: &'s [u8],
    pub delay: Duration,
    pub registry: &'s Registry,
    pub buffer: Box<[u8]>,
    /// When no operation begins any more.
    pub end: Instant,
    pub totals: Totals,
}

enum State {
    /// Nothing, until then.
    Resting(Instant),
    /// An operation is under way.
    Asking(Drawn),
    Done,
}

pub(super) struct Client {
    index: usize,
    link: Option<Link>,
    connections: usize,
    random: fastrand::Rng,
    state: State,
    begun: Instant,
    /// How often it failed in turn.
    failures: u32,
}

impl Driven<Shared<'_>> for Client {
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Resting(until) => Some(until),
            State::Asking(_) => Some(self.begun + SILENCE),
            State::Done => None,
        }
    }

    fn wake(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        match self.state {
            State::Done => Ok(()),
            State::Resting(_) => self.begin(now, shared),
            State::Asking(drawn) => self.fail(drawn, Trouble::Lost, shared),
        }
    }

    fn ready(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let answered = link.advance(&mut shared.buffer);
        let State::Asking(drawn) = self.state else {
            if answered.is_err() {
                self.link = None;
            }
            return Ok(());
        };
        let replies = match answered {
            Ok(None) => return Ok(()),
            Ok(Some(replies)) => replies,
            Err(_) => return self.fail(drawn, Trouble::Lost, shared),
        };
        if let Err(trouble) = replies.iter().try_for_each(refusal) {
            return self.fail(drawn, trouble, shared);
        }
        let kind = if drawn.is_put { "put" } else { "get" };
        shared.totals.note_commit(kind, self.begun.elapsed());
        self.failures = 0;
        self.rest(shared.delay, shared)
    }
}

impl Client {
    pub fn new(index: usize, now: Instant) -> Self {
        let (link, random, state) = (None, fastrand::Rng::new(), State::Resting(now));
        Client { index, link, connections: 0, random, state, begun: now, failures: 0 }
    }

    /// Draws an operation and asks for it.
    fn begin(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        if now >= shared.end {
            self.state = State::Done;
            return Ok(());
        }
        let drawn = shared.plan.draw(self.index as u32, &mut self.random);
        (self.state, self.begun) = (State::Asking(drawn), now);
        match self.ask(drawn, shared) {
            Ok(()) => Ok(()),
            Err(trouble) => self.fail(drawn, trouble, shared),
        }
    }

    fn ask(&mut self, drawn: Drawn, shared: &Shared<'_>) -> Result<(), Trouble> {
        let mut link = match self.link.take() {
            Some(link) => link,
            None => {
                let url = &shared.urls[(self.index + self.connections) % shared.urls.len()];
                self.connections += 1;
                let mut link = Link::open(url, shared.registry, Token(self.index))?;
                // Answered with the first operation.
                link.put(&["KEYSPACE", "USE", shared.keyspace]);
                link
            }
        };
        let key = super::key(drawn.key);
        match drawn.is_put {
            true => link.put(&[b"SET", &key[..], shared.value]),
            false => link.put(&[b"GET", &key[..]]),
        }
        link.send()?;
        self.link = Some(link);
        Ok(())
    }

    /// An operation ended without a result.
    fn fail(&mut self, drawn: Drawn, trouble: Trouble, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let (end, least) = match trouble {
            Trouble::Refused(text) => return Err(RunError::Refused(text)),
            Trouble::Said(end) => (end, Duration::ZERO),
            Trouble::Lost => {
                self.link = None;
                shared.totals.lost_connections += 1;
                (if drawn.is_put { End::Unknown } else { End::Failed }, RECONNECT_WAIT)
            }
        };
        match end {
            End::Unknown => shared.totals.unknown += 1,
            End::Committed | End::Failed => shared.totals.aborts += 1,
        }
        let wait = least + rest(self.failures, &mut self.random);
        self.failures += 1;
        self.rest(wait, shared)
    }

    /// The next operation begins after so long.
    fn rest(&mut self, wait: Duration, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let now = Instant::now();
        if wait.is_zero() {
            return self.begin(now, shared);
        }
        self.state = if now + wait >= shared.end { State::Done } else { State::Resting(now + wait) };
        Ok(())
    }
}
