//! One client: has transactions drawn and tries each until it commits. It never waits.

use super::plan::{Asked, Command, OneStep, Plan, Source};
use crate::redis::Target;
use crate::transactions::{
    Driven, End, Link, RECONNECT_WAIT, RunError, SILENCE, Totals, Trouble, refusal, rest,
};
use mio::{Registry, Token};
use resp::Value;
use std::time::{Duration, Instant};

/// Commits are counted for pieces of this length.
const TRACED: Duration = Duration::from_millis(100);

/// How operations become transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// `MULTI` where nothing depends on a reply, else `TXN` with a round trip for each step.
    AtOnce,
    /// `TXN`, a round trip for each operation.
    Interactive,
    /// No transactions.
    Single { interactive: bool },
}

impl Form {
    pub fn name(self) -> &'static str {
        match self {
            Form::AtOnce => "multi",
            Form::Interactive => "txn",
            Form::Single { .. } => "single",
        }
    }

    fn is_one_by_one(self) -> bool {
        matches!(self, Form::Interactive | Form::Single { interactive: true })
    }

    fn has_transactions(self) -> bool {
        !matches!(self, Form::Single { .. })
    }
}

/// What all clients share.
pub(super) struct Shared<'s> {
    pub urls: &'s [Target],
    pub prologue: &'s [Command],
    pub form: Form,
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

/// How replies are wrapped that are under way.
#[derive(Clone, Copy, Default)]
struct Wrapped {
    /// In `MULTI` and `EXEC`.
    multi: bool,
    /// So many replies come before those to operations.
    before: usize,
    /// The last reply is that to `TXN COMMIT`.
    commits: bool,
}

pub(super) struct Client {
    index: usize,
    link: Option<Link>,
    connections: usize,
    random: fastrand::Rng,
    state: State,
    plan: Box<dyn Plan>,
    begun: Instant,
    failures: u32,
    asked_at: Instant,
    /// The replies of the steps that are over.
    replies: Vec<Vec<Value>>,
    /// The present step, and how many of its commands were sent.
    step: Asked,
    sent: usize,
    /// The replies to those that were answered.
    answered: Vec<Value>,
    wrapped: Wrapped,
    /// `TXN BEGIN` was sent.
    opened: bool,
    /// From here on it may take effect.
    may_have_happened: bool,
}

impl Driven<Shared<'_>> for Client {
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Resting(until) => Some(until),
            State::Asking | State::Aborting(_) => Some(self.asked_at + SILENCE),
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
        match self.take(replies) {
            Ok(()) => self.go_on(shared),
            Err(trouble) if self.opened && !matches!(trouble, Trouble::Lost) => self.abort(trouble, shared),
            Err(trouble) => self.fail(trouble, shared),
        }
    }
}

impl Client {
    pub fn new(index: usize, now: Instant) -> Self {
        Client {
            index,
            link: None,
            connections: 0,
            random: fastrand::Rng::new(),
            state: State::Resting(now),
            plan: Box::new(OneStep { kind: "", commands: Vec::new() }),
            begun: now,
            failures: 0,
            asked_at: now,
            replies: Vec::new(),
            step: Asked::default(),
            sent: 0,
            answered: Vec::new(),
            wrapped: Wrapped::default(),
            opened: false,
            may_have_happened: false,
        }
    }

    /// Draws a transaction, unless the time is over.
    fn begin(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        if now >= shared.end {
            self.state = State::Done;
            return Ok(());
        }
        self.plan = shared.source.draw(&mut self.random);
        (self.begun, self.failures) = (now, 0);
        self.attempt(shared)
    }

    fn attempt(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        (self.opened, self.may_have_happened) = (false, false);
        self.replies.clear();
        if self.link.is_none() {
            let url = &shared.urls[(self.index + self.connections) % shared.urls.len()];
            self.connections += 1;
            match Link::open(url, shared.registry, Token(self.index)) {
                Ok(mut link) => {
                    // Their replies come with those of the first step.
                    shared.prologue.iter().for_each(|command| link.put(command));
                    self.wrapped.before = shared.prologue.len();
                    self.link = Some(link);
                }
                Err(_) => {
                    self.rest(RECONNECT_WAIT, shared);
                    return Ok(());
                }
            }
        }
        self.next_step();
        self.ask(shared)
    }

    fn next_step(&mut self) {
        self.step = self.plan.step(&self.replies);
        self.sent = 0;
        self.answered.clear();
    }

    /// Sends what the present step has next.
    fn ask(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let form = shared.form;
        let Some(link) = &mut self.link else { return self.fail(Trouble::Lost, shared) };
        let rest = &self.step.commands[self.sent..];
        let now = if form.is_one_by_one() { &rest[..rest.len().min(1)] } else { rest };
        let ends = self.step.last && now.len() == rest.len();
        let mut wrapped = Wrapped { before: self.wrapped.before, ..Wrapped::default() };
        let mut count = now.len();
        if form.has_transactions() {
            wrapped.multi = form == Form::AtOnce && self.replies.is_empty() && self.step.last;
            if wrapped.multi {
                link.put(&["MULTI"]);
                // Each is answered by QUEUED.
                wrapped.before += 1 + now.len();
            } else if !self.opened {
                link.put(&["TXN", "BEGIN"]);
                wrapped.before += 1;
                self.opened = true;
            }
            wrapped.commits = ends && !wrapped.multi;
            count += wrapped.before + 1;
        }
        now.iter().for_each(|command| link.put(command));
        if wrapped.multi {
            link.put(&["EXEC"]);
        } else if wrapped.commits {
            link.put(&["TXN", "COMMIT"]);
        }
        self.sent += now.len();
        self.may_have_happened |= ends || !form.has_transactions();
        self.wrapped = wrapped;
        self.asked_at = Instant::now();
        if count == 0 {
            // Nothing to ask, and no transaction to commit.
            return self.go_on(shared);
        }
        if link.send().is_err() {
            return self.fail(Trouble::Lost, shared);
        }
        self.state = State::Asking;
        Ok(())
    }

    /// Keeps the replies to operations.
    fn take(&mut self, mut replies: Vec<Value>) -> Result<(), Trouble> {
        replies.iter().try_for_each(refusal)?;
        let Wrapped { multi, before, commits } = std::mem::take(&mut self.wrapped);
        if multi {
            return match replies.pop() {
                Some(Value::Array(answers)) => {
                    answers.iter().try_for_each(refusal)?;
                    self.answered.extend(answers);
                    Ok(())
                }
                Some(Value::Null | Value::NullArray) => Err(Trouble::Said(End::Failed)),
                other => Err(Trouble::Refused(format!("EXEC was answered with {other:?}"))),
            };
        }
        if commits {
            replies.pop();
        }
        self.answered.extend(replies.into_iter().skip(before));
        Ok(())
    }

    /// What was sent is answered: the next operations, the next step, or the end.
    fn go_on(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        if self.sent < self.step.commands.len() {
            return self.ask(shared);
        }
        self.replies.push(std::mem::take(&mut self.answered));
        if !self.step.last {
            self.next_step();
            return self.ask(shared);
        }
        shared.note_commit(self.plan.kind(), self.begun.elapsed());
        if let Some(event) = self.plan.outcome(&self.replies) {
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
                if self.may_have_happened { End::Unknown } else { End::Failed }
            }
        };
        self.wrapped = Wrapped::default();
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
        self.asked_at = Instant::now();
        if link.send().is_err() {
            return self.fail(Trouble::Lost, shared);
        }
        self.state = State::Aborting(trouble);
        Ok(())
    }
}
