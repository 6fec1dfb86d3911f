//! One client: has transactions drawn and tries each until it commits. It never waits.

use super::dialogue::{Dialogue, Form, Next};
use super::plan::{Command, Source};
use crate::redis::Target;
use crate::transactions::{Driven, End, Link, RECONNECT_WAIT, RunError, SILENCE, Totals, Trouble, rest};
use mio::{Registry, Token};
use std::time::{Duration, Instant};

/// Commits are counted for pieces of this length.
const TRACED: Duration = Duration::from_millis(100);

/// What all clients share.
pub(super) struct Shared<'s> {
    pub urls: &'s [Target],
    pub prologue: &'s [Command],
    pub source: &'s mut dyn Source,
    pub registry: &'s Registry,
    pub buffer: Box<[u8]>,
    pub begun: Instant,
    /// When no transaction begins any more.
    pub end: Instant,
    pub totals: Totals,
    /// Commits of every [`TRACED`].
    pub trace: Vec<u32>,
}

impl Shared<'_> {
    fn note_commit(&mut self, kind: &'static str, latency: Duration) {
        self.totals.note_commit(kind, latency);
        let piece = (self.begun.elapsed().as_micros() / TRACED.as_micros()) as usize;
        // What began in time and ended late belongs to no full piece.
        if Instant::now() < self.end {
            self.trace.resize(self.trace.len().max(piece + 1), 0);
            self.trace[piece] += 1;
        }
    }
}

enum State {
    /// Nothing, until then.
    Resting(Instant),
    /// Commands are under way.
    Asking,
    /// Whatever failed, the connection must not stay inside the transaction.
    Aborting(Trouble),
    Done,
}

pub(super) struct Client {
    index: usize,
    link: Option<Link>,
    connections: usize,
    random: fastrand::Rng,
    state: State,
    dialogue: Dialogue,
    begun: Instant,
    failures: u32,
    sent_at: Instant,
}

impl Driven<Shared<'_>> for Client {
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Resting(until) => Some(until),
            State::Asking | State::Aborting(_) => Some(self.sent_at + SILENCE),
            State::Done => None,
        }
    }

    fn wake(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        match self.state {
            State::Done => Ok(()),
            State::Resting(_) if self.failures == 0 => self.begin(now, shared),
            State::Resting(_) => self.attempt(shared),
            _ => self.fail(Trouble::Lost, shared),
        }
    }

    fn ready(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let replies = match link.advance(&mut shared.buffer) {
            Ok(None) => return Ok(()),
            Ok(Some(replies)) => replies,
            Err(_) if matches!(self.state, State::Resting(_) | State::Done) => {
                self.link = None;
                return Ok(());
            }
            Err(_) => return self.fail(Trouble::Lost, shared),
        };
        match std::mem::replace(&mut self.state, State::Done) {
            State::Asking => {}
            State::Aborting(trouble) => return self.fail(trouble, shared),
            other => {
                self.state = other;
                return Ok(());
            }
        }
        match self.dialogue.take(replies) {
            Ok(()) => self.go_on(shared),
            Err(trouble) if self.dialogue.is_open() && !matches!(trouble, Trouble::Lost) => {
                self.abort(trouble, shared)
            }
            Err(trouble) => self.fail(trouble, shared),
        }
    }
}

impl Client {
    pub fn new(index: usize, now: Instant, form: Form) -> Self {
        Client {
            index,
            link: None,
            connections: 0,
            random: fastrand::Rng::new(),
            state: State::Resting(now),
            dialogue: Dialogue::new(form),
            begun: now,
            failures: 0,
            sent_at: now,
        }
    }

    /// Draws a transaction, unless the time is over.
    fn begin(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        if now >= shared.end {
            self.state = State::Done;
            return Ok(());
        }
        self.dialogue.plan(shared.source.draw(&mut self.random));
        (self.begun, self.failures) = (now, 0);
        self.attempt(shared)
    }

    fn attempt(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        self.dialogue.begin();
        if self.link.is_none() {
            let url = &shared.urls[(self.index + self.connections) % shared.urls.len()];
            self.connections += 1;
            match Link::open(url, shared.registry, Token(self.index)) {
                Ok(mut link) => {
                    // Their replies come with those of the first step.
                    shared.prologue.iter().for_each(|command| link.put(command));
                    self.dialogue.skip(shared.prologue.len());
                    self.link = Some(link);
                }
                Err(_) => {
                    self.rest(RECONNECT_WAIT, shared);
                    return Ok(());
                }
            }
        }
        self.ask(shared)
    }

    /// Sends what the transaction has next.
    fn ask(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return self.fail(Trouble::Lost, shared) };
        let sent = self.dialogue.ask();
        sent.iter().for_each(|command| link.put(command));
        self.sent_at = Instant::now();
        if sent.is_empty() {
            // Nothing to ask, and no transaction to commit.
            return self.go_on(shared);
        }
        if link.send().is_err() {
            return self.fail(Trouble::Lost, shared);
        }
        self.state = State::Asking;
        Ok(())
    }

    /// What was sent is answered: the next operations, or the end.
    fn go_on(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let event = match self.dialogue.go_on() {
            Next::Ask => return self.ask(shared),
            Next::Done(event) => event,
        };
        shared.note_commit(self.dialogue.kind(), self.begun.elapsed());
        if let Some(event) = event {
            shared.source.learn(event, &mut self.random);
        }
        self.begin(Instant::now(), shared)
    }

    /// The try is over without a commit.
    fn fail(&mut self, trouble: Trouble, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let end = match trouble {
            Trouble::Refused(text) => return Err(RunError::Refused(text)),
            Trouble::Said(end) => end,
            Trouble::Lost => {
                self.link = None;
                shared.totals.lost_connections += 1;
                if self.dialogue.may_have_happened() { End::Unknown } else { End::Failed }
            }
        };
        if matches!(end, End::Unknown) {
            shared.totals.unknown += 1;
            return self.begin(Instant::now(), shared);
        }
        self.rest(Duration::ZERO, shared);
        Ok(())
    }

    /// Rests before the next try, at least so long, if there is one.
    fn rest(&mut self, least: Duration, shared: &mut Shared<'_>) {
        shared.totals.aborts += 1;
        let now = Instant::now();
        if now >= shared.end {
            shared.totals.given_up += 1;
            self.state = State::Done;
            return;
        }
        let rest = rest(self.failures, &mut self.random);
        self.failures += 1;
        self.state = State::Resting(now + least + rest);
    }

    /// Takes the connection out of the transaction; the try ends with this trouble.
    fn abort(&mut self, trouble: Trouble, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return self.fail(Trouble::Lost, shared) };
        link.put(&["TXN", "ABORT"]);
        self.sent_at = Instant::now();
        if link.send().is_err() {
            return self.fail(Trouble::Lost, shared);
        }
        self.state = State::Aborting(trouble);
        Ok(())
    }
}
