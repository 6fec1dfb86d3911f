//! One client: draws transactions and tries each until it commits. It never waits: the loop tells it when replies have
//! come and when its rest is over.

use super::history::{Recorder, Try};
use super::link::Link;
use super::measure::{Driven, RunError, Settings, Totals};
use super::plan::PlannedStep;
use super::tries::{End, RECONNECT_WAIT, SILENCE, Trouble, refusal, rest};
use checker::{Outcome, Step};
use mio::{Registry, Token};
use resp::Value;
use std::io;
use std::time::{Duration, Instant};

/// What a client is about.
enum State {
    /// Nothing, until then.
    Resting(Instant),
    /// What it reads is under way.
    Reading,
    /// What it writes is.
    Writing,
    /// One command after the other: this one is.
    Stepping(usize),
    /// Until then the answer to the one before this one, and this one, are on their way.
    Travelling(usize, Instant),
    /// Whatever failed, the connection must not stay inside the transaction: the end of that is under way.
    Aborting(Trouble),
    /// Nothing any more.
    Done,
}

/// What all clients share.
pub(super) struct Shared<'s> {
    pub settings: &'s Settings,
    pub recorder: Option<&'s Recorder>,
    pub registry: &'s Registry,
    pub buffer: Box<[u8]>,
    /// When no transaction begins any more.
    pub end: Instant,
    pub totals: Totals,
}

pub(super) struct Client {
    /// Which of all clients.
    index: usize,
    link: Option<Link>,
    /// How many connections it has had.
    connections: u64,
    random: fastrand::Rng,
    /// How many values it has written.
    values: u64,
    state: State,
    planned: PlannedStep,
    /// When it was tried first.
    begun: Instant,
    /// How often it failed.
    failures: u32,
    attempt: Attempt,
}

/// What is known of a try while it goes on.
struct Attempt {
    invoked: Instant,
    /// When it last sent a request.
    sent_at: Instant,
    keys: Vec<Vec<u8>>,
    steps: Vec<Step>,
    /// Keys and values, where what is answered to them is recorded.
    written: Vec<(Vec<u8>, Vec<u8>)>,
    /// From here on it may take effect.
    may_have_happened: bool,
}

impl Attempt {
    fn new(now: Instant) -> Self {
        let (keys, steps, written) = (Vec::new(), Vec::new(), Vec::new());
        Attempt { invoked: now, sent_at: now, keys, steps, written, may_have_happened: false }
    }
}

impl Driven<Shared<'_>> for Client {
    /// When `wake` is due at the latest; never, if it has ended.
    fn due(&self) -> Option<Instant> {
        match self.state {
            State::Resting(until) | State::Travelling(_, until) => Some(until),
            State::Reading | State::Writing | State::Stepping(_) | State::Aborting(_) => {
                Some(self.attempt.sent_at + SILENCE)
            }
            State::Done => None,
        }
    }

    /// Its rest is over, or the server has been silent for too long.
    fn wake(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        match self.state {
            State::Done => Ok(()),
            State::Resting(_) if self.failures == 0 => self.begin(now, shared),
            State::Resting(_) => self.attempt(now, shared),
            State::Travelling(step, _) => match self.ask_step(step, shared.settings) {
                Ok(state) => {
                    self.state = state;
                    Ok(())
                }
                Err(trouble) => self.finish(Err(trouble), shared),
            },
            _ => self.finish(Err(Trouble::Lost), shared),
        }
    }

    /// Its connection has news.
    fn ready(&mut self, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return Ok(()) };
        let replies = match link.advance(&mut shared.buffer) {
            Ok(None) => return Ok(()),
            Ok(Some(replies)) => replies,
            Err(_) if matches!(self.state, State::Resting(_) | State::Done) => {
                self.link = None;
                shared.totals.lost_connections += 1;
                return Ok(());
            }
            Err(_) => return self.finish(Err(Trouble::Lost), shared),
        };
        let (result, in_transaction) = match std::mem::replace(&mut self.state, State::Done) {
            State::Reading => (self.read(&replies, shared), !self.planned.writes.is_empty()),
            State::Writing => (self.written(&replies, shared), true),
            State::Stepping(step) => (self.stepped(step, &replies, shared), true),
            State::Aborting(trouble) => (Err(trouble), false),
            resting @ (State::Resting(_) | State::Travelling(..) | State::Done) => {
                self.state = resting;
                return Ok(());
            }
        };
        match result {
            Ok(State::Done) => self.finish(Ok(()), shared),
            Ok(next) => {
                self.state = next;
                Ok(())
            }
            Err(Trouble::Lost) => self.finish(Err(Trouble::Lost), shared),
            Err(trouble) if (shared.settings.txn || shared.settings.branch) && in_transaction => {
                self.abort(trouble, shared)
            }
            Err(trouble) => self.finish(Err(trouble), shared),
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
            values: 0,
            state: State::Resting(now),
            planned: PlannedStep { kind: "", reads: Vec::new(), writes: Vec::new() },
            begun: now,
            failures: 0,
            attempt: Attempt::new(now),
        }
    }

    fn session(&self, shared: &Shared<'_>) -> u64 {
        self.index as u64 + (self.connections - 1) * shared.settings.clients as u64
    }

    /// Draws a transaction, unless the time is over.
    fn begin(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        if now >= shared.end {
            self.state = State::Done;
            return Ok(());
        }
        let settings = shared.settings;
        let server = (self.index + self.connections.saturating_sub(1) as usize) % settings.urls.len();
        self.planned = settings.workload.draw(&settings.keys, server, &mut self.random);
        (self.begun, self.failures) = (now, 0);
        self.attempt(now, shared)
    }

    /// Tries the transaction.
    fn attempt(&mut self, now: Instant, shared: &mut Shared<'_>) -> Result<(), RunError> {
        self.attempt = Attempt::new(now);
        if self.link.is_none() {
            let urls = &shared.settings.urls;
            let url = &urls[(self.index + self.connections as usize) % urls.len()];
            self.connections += 1;
            match Link::open(url, shared.registry, Token(self.index)) {
                Ok(mut link) => {
                    shared.settings.prologue.iter().for_each(|command| link.put(command));
                    self.link = Some(link);
                }
                Err(_) => {
                    self.failed(RECONNECT_WAIT, shared);
                    return Ok(());
                }
            }
        }
        let sent = match shared.settings.steps {
            true => self.travel(0, shared.settings),
            false => self.ask_reads(shared.settings).map(|()| State::Reading),
        };
        match sent {
            Ok(state) => {
                self.state = state;
                Ok(())
            }
            Err(trouble) => self.finish(Err(trouble), shared),
        }
    }

    /// Asks for one step of the transaction: its begin, its reads, its writes, its commit. The next state is the
    /// request sent.
    fn ask_step(&mut self, step: usize, settings: &Settings) -> Result<State, Trouble> {
        let Some(link) = &mut self.link else { return Err(Trouble::Lost) };
        let family = if settings.branch { "BRANCH" } else { "TXN" };
        let reads = self.planned.reads.len();
        match step.checked_sub(1) {
            None => link.put(&[family, "BEGIN"]),
            Some(read) if read < reads => link.put(&[b"GET", &settings.key(self.planned.reads[read])[..]]),
            Some(at) => match self.planned.writes.get(at - reads) {
                Some(key) => {
                    self.values += 1;
                    let (key, value) = (settings.key(*key), settings.value(self.index, self.values));
                    link.put(&[b"SET", &key[..], &value]);
                }
                None => {
                    link.put(&[family, "COMMIT"]);
                    self.attempt.may_have_happened = true;
                }
            },
        }
        self.attempt.sent_at = Instant::now();
        link.send()?;
        Ok(State::Stepping(step))
    }

    /// A step was answered: the next one, if there is one.
    fn stepped(&mut self, step: usize, replies: &[Value], shared: &Shared<'_>) -> Result<State, Trouble> {
        replies.iter().try_for_each(refusal)?;
        let commit = 1 + self.planned.reads.len() + self.planned.writes.len();
        if step == commit { Ok(State::Done) } else { self.travel(step + 1, shared.settings) }
    }

    /// Asks for a step, after a round trip where one is wanted.
    fn travel(&mut self, step: usize, settings: &Settings) -> Result<State, Trouble> {
        match settings.round_trip {
            Duration::ZERO => self.ask_step(step, settings),
            round_trip => Ok(State::Travelling(step, Instant::now() + round_trip)),
        }
    }

    /// The try is over.
    fn finish(&mut self, result: Result<(), Trouble>, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let end = match result {
            Ok(()) => End::Committed,
            Err(Trouble::Refused(text)) => return Err(RunError::Refused(text)),
            Err(Trouble::Said(end)) => end,
            Err(Trouble::Lost) => {
                self.link = None;
                shared.totals.lost_connections += 1;
                if self.attempt.may_have_happened { End::Unknown } else { End::Failed }
            }
        };
        self.record(&end, shared).map_err(RunError::History)?;
        match end {
            End::Committed => shared.totals.note_commit(self.planned.kind, self.begun.elapsed()),
            End::Unknown => shared.totals.unknown += 1,
            End::Failed => {
                self.failed(Duration::ZERO, shared);
                return Ok(());
            }
        }
        let (now, pause) = (Instant::now(), shared.settings.pause);
        if pause.is_zero() || now >= shared.end {
            return self.begin(now, shared);
        }
        self.failures = 0;
        self.state = State::Resting(now + pause);
        Ok(())
    }

    /// Rests before the next try, at least so long, if there is one.
    fn failed(&mut self, least: Duration, shared: &mut Shared<'_>) {
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

    fn record(&mut self, end: &End, shared: &mut Shared<'_>) -> io::Result<()> {
        let Some(recorder) = shared.recorder else { return Ok(()) };
        let outcome = match end {
            End::Committed => Outcome::Committed,
            End::Failed => Outcome::Aborted,
            End::Unknown => Outcome::Unknown,
        };
        if outcome != Outcome::Aborted {
            shared.totals.written.extend(&self.planned.writes);
        }
        let steps = std::mem::take(&mut self.attempt.steps);
        let (session, invoked) = (self.session(shared), self.attempt.invoked);
        recorder.note(Try { session, invoked, outcome, steps, at_rest: false })
    }

    /// Asks for what the transaction reads.
    fn ask_reads(&mut self, settings: &Settings) -> Result<(), Trouble> {
        let Some(link) = &mut self.link else { return Err(Trouble::Lost) };
        self.attempt.keys = self.planned.reads.iter().map(|key| settings.key(*key)).collect();
        let named = |name: &'static [u8]| -> Vec<&[u8]> {
            std::iter::once(name).chain(self.attempt.keys.iter().map(Vec::as_slice)).collect()
        };
        match (self.planned.writes.is_empty(), settings.txn) {
            (true, _) => {}
            (_, true) => link.put(&["TXN", "BEGIN"]),
            (_, false) => link.put(&named(b"WATCH")),
        }
        link.put(&named(b"MGET"));
        Ok(link.send()?)
    }

    /// What was read has come: asks for what the transaction writes.
    fn read(&mut self, replies: &[Value], shared: &mut Shared<'_>) -> Result<State, Trouble> {
        replies.iter().try_for_each(refusal)?;
        let seen = replies.last().and_then(Value::as_elements).unwrap_or_default();
        if seen.len() != self.attempt.keys.len() {
            return Err(Trouble::Refused(format!("MGET was answered with {:?}", replies.last())));
        }
        if shared.recorder.is_some() {
            let read = self.attempt.keys.iter().zip(seen);
            self.attempt.steps = read.map(|(key, seen)| Step::get(key, Some(seen.as_bytes()))).collect();
        }
        if self.planned.writes.is_empty() {
            return Ok(State::Done);
        }
        shared.totals.note_reads(self.begun.elapsed());
        self.ask_writes(shared)?;
        Ok(State::Writing)
    }

    fn ask_writes(&mut self, shared: &Shared<'_>) -> Result<(), Trouble> {
        let (settings, recording) = (shared.settings, shared.recorder.is_some());
        let Some(link) = &mut self.link else { return Err(Trouble::Lost) };
        if !settings.txn {
            link.put(&["MULTI"]);
        }
        for key in &self.planned.writes {
            self.values += 1;
            let (key, value) = (settings.key(*key), settings.value(self.index, self.values));
            let words: [&[u8]; 4] = [b"SET", &key, &value, b"GET"];
            link.put(&words[..if recording { 4 } else { 3 }]);
            if recording {
                self.attempt.steps.push(Step::swap(&key, &value, None));
                self.attempt.written.push((key, value));
            }
        }
        if settings.txn {
            link.put(&["TXN", "COMMIT"])
        } else {
            link.put(&["EXEC"])
        }
        self.attempt.may_have_happened = true;
        self.attempt.sent_at = Instant::now();
        Ok(link.send()?)
    }

    /// The writes were answered, and the commit.
    fn written(&mut self, replies: &[Value], shared: &Shared<'_>) -> Result<State, Trouble> {
        let txn = shared.settings.txn;
        if !txn && replies.last().is_some_and(|reply| matches!(reply, Value::Null | Value::NullArray)) {
            return Err(Trouble::Said(End::Failed));
        }
        replies.iter().try_for_each(refusal)?;
        let answers = replies.last().and_then(Value::as_elements).unwrap_or_default();
        answers.iter().try_for_each(refusal)?;
        // Within TXN each write was answered for itself.
        let answers = if txn { replies } else { answers };
        let reads = self.attempt.steps.len() - self.attempt.written.len();
        let steps = self.attempt.steps[reads..].iter_mut();
        for ((step, (key, value)), answer) in steps.zip(&self.attempt.written).zip(answers) {
            *step = Step::swap(key, value, Some(answer.as_bytes()));
        }
        Ok(State::Done)
    }

    /// Takes the connection out of the transaction; the try ends with this trouble.
    fn abort(&mut self, trouble: Trouble, shared: &mut Shared<'_>) -> Result<(), RunError> {
        let Some(link) = &mut self.link else { return self.finish(Err(Trouble::Lost), shared) };
        link.put(&[if shared.settings.branch { "BRANCH" } else { "TXN" }, "ABORT"]);
        self.attempt.sent_at = Instant::now();
        if link.send().is_err() {
            return self.finish(Err(Trouble::Lost), shared);
        }
        self.state = State::Aborting(trouble);
        Ok(())
    }
}
