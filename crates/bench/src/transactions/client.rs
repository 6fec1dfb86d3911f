//! One client: draws transactions and tries each until it commits.

use super::connection::Connection;
use super::history::{Recorder, Try};
use super::measure::{RunError, Settings, Totals};
use super::plan::Planned;
use checker::{Outcome, Step};
use resp::Value;
use std::io;
use std::time::{Duration, Instant};

/// The longest wait after a first conflict; it doubles with every further one.
const FIRST_WAIT: Duration = Duration::from_micros(200);
/// So often does it double.
const MOST_DOUBLINGS: u32 = 7;
/// How long a client waits before it turns to the next server.
const RECONNECT_WAIT: Duration = Duration::from_millis(20);

/// How a try ended.
enum End {
    Committed,
    /// Nothing happened, and another try may do better.
    Failed,
    /// Nobody told.
    Unknown,
}

/// Why a try ended without a commit.
enum Trouble {
    Lost,
    /// The server said so, with a code that asks for another try.
    Said(End),
    /// Another try will do no better.
    Refused(String),
}

impl From<io::Error> for Trouble {
    fn from(_: io::Error) -> Self {
        Trouble::Lost
    }
}

pub(super) struct Client<'s> {
    settings: &'s Settings,
    recorder: Option<&'s Recorder>,
    /// Which of all clients.
    index: usize,
    connection: Option<Connection>,
    /// How many connections it has had.
    connections: u64,
    random: fastrand::Rng,
    /// How many values it has written.
    values: u64,
    totals: Totals,
}

/// What is known of a try while it goes on.
struct Attempt {
    invoked: Instant,
    steps: Vec<Step>,
    /// From here on it may take effect.
    may_have_happened: bool,
}

impl<'s> Client<'s> {
    pub fn new(settings: &'s Settings, recorder: Option<&'s Recorder>, index: usize) -> Self {
        let random = fastrand::Rng::new();
        let totals = Totals::default();
        Client { settings, recorder, index, connection: None, connections: 0, random, values: 0, totals }
    }

    /// Runs transactions until the end.
    pub fn run(mut self, end: Instant) -> Result<Totals, RunError> {
        while Instant::now() < end {
            let planned = self.settings.workload.draw(&self.settings.keys, &mut self.random);
            let begun = Instant::now();
            let mut failures = 0;
            loop {
                match self.attempt(&planned)? {
                    End::Committed => {
                        self.totals.note_commit(planned.kind, begun.elapsed());
                        break;
                    }
                    End::Unknown => {
                        self.totals.unknown += 1;
                        break;
                    }
                    End::Failed => self.totals.aborts += 1,
                }
                if Instant::now() >= end {
                    self.totals.given_up += 1;
                    break;
                }
                let longest = FIRST_WAIT * 2u32.pow(MOST_DOUBLINGS.min(failures));
                failures += 1;
                std::thread::sleep(longest.mul_f64(self.random.f64()));
            }
        }
        Ok(self.totals)
    }

    fn session(&self) -> u64 {
        self.index as u64 + (self.connections - 1) * self.settings.clients as u64
    }

    fn attempt(&mut self, planned: &Planned) -> Result<End, RunError> {
        if self.connection.is_none() {
            let urls = &self.settings.urls;
            let url = &urls[(self.index + self.connections as usize) % urls.len()];
            self.connections += 1;
            match Connection::open(url) {
                Ok(connection) => self.connection = Some(connection),
                Err(_) => {
                    std::thread::sleep(RECONNECT_WAIT);
                    return Ok(End::Failed);
                }
            }
        }
        let mut attempt = Attempt { invoked: Instant::now(), steps: Vec::new(), may_have_happened: false };
        let result = self.execute(planned, &mut attempt);
        let end = match result {
            Ok(()) => End::Committed,
            Err(Trouble::Refused(text)) => return Err(RunError::Refused(text)),
            Err(Trouble::Said(end)) => end,
            Err(Trouble::Lost) => {
                self.connection = None;
                self.totals.lost_connections += 1;
                if attempt.may_have_happened { End::Unknown } else { End::Failed }
            }
        };
        if !matches!(end, End::Failed) {
            self.totals.written.extend(&planned.writes);
        }
        self.record(attempt, &end).map_err(RunError::History)?;
        Ok(end)
    }

    fn record(&self, attempt: Attempt, end: &End) -> io::Result<()> {
        let Some(recorder) = self.recorder else { return Ok(()) };
        let outcome = match end {
            End::Committed => Outcome::Committed,
            End::Failed => Outcome::Aborted,
            End::Unknown => Outcome::Unknown,
        };
        let Attempt { invoked, steps, .. } = attempt;
        recorder.note(Try { session: self.session(), invoked, outcome, steps, at_rest: false })
    }

    fn execute(&mut self, planned: &Planned, attempt: &mut Attempt) -> Result<(), Trouble> {
        let settings = self.settings;
        let Some(connection) = &mut self.connection else { return Err(Trouble::Lost) };
        let read: Vec<Vec<u8>> = planned.reads.iter().map(|key| settings.key(*key)).collect();
        let command = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
        let get = [command(&["MGET"]), read.clone()].concat();
        let mut first = match (planned.writes.is_empty(), settings.txn) {
            (true, _) => Vec::new(),
            (_, true) => vec![command(&["TXN", "BEGIN"])],
            (_, false) => vec![[command(&["WATCH"]), read.clone()].concat()],
        };
        first.push(get);
        let replies = connection.call(&first)?;
        let outcome = replies.iter().try_for_each(refusal);
        if outcome.is_err() && settings.txn && !planned.writes.is_empty() {
            abort(connection)?;
        }
        outcome?;
        let seen = replies.last().and_then(Value::as_elements).unwrap_or_default();
        if seen.len() != read.len() {
            return Err(Trouble::Refused(format!("MGET was answered with {:?}", replies.last())));
        }
        attempt.steps =
            read.iter().zip(seen).map(|(key, seen)| Step::get(key, Some(seen.as_bytes()))).collect();
        if planned.writes.is_empty() {
            return Ok(());
        }
        let mut second = if settings.txn { Vec::new() } else { vec![command(&["MULTI"])] };
        let reads = attempt.steps.len();
        let mut written = Vec::new();
        for key in &planned.writes {
            self.values += 1;
            let (key, value) = (settings.key(*key), settings.value(self.index, self.values));
            let mut set = vec![b"SET".to_vec(), key.clone(), value.clone()];
            if self.recorder.is_some() {
                set.push(b"GET".to_vec());
            }
            attempt.steps.push(Step::swap(&key, &value, None));
            second.push(set);
            written.push((key, value));
        }
        second.push(if settings.txn { command(&["TXN", "COMMIT"]) } else { command(&["EXEC"]) });
        attempt.may_have_happened = true;
        let replies = connection.call(&second)?;
        if !settings.txn
            && replies.last().is_some_and(|reply| matches!(reply, Value::Null | Value::NullArray))
        {
            return Err(Trouble::Said(End::Failed));
        }
        let outcome = replies.iter().try_for_each(refusal);
        if outcome.is_err() && settings.txn {
            abort(connection)?;
        }
        outcome?;
        let answers = replies.last().and_then(Value::as_elements).unwrap_or_default();
        answers.iter().try_for_each(refusal)?;
        // Within TXN each write was answered for itself.
        let answers = if settings.txn { &replies[..] } else { answers };
        for ((step, (key, value)), answer) in attempt.steps[reads..].iter_mut().zip(&written).zip(answers) {
            *step = Step::swap(key, value, Some(answer.as_bytes()));
        }
        Ok(())
    }
}

/// Whatever failed, the connection must not stay inside the transaction.
fn abort(connection: &mut Connection) -> Result<(), Trouble> {
    connection.call(&[vec![b"TXN".to_vec(), b"ABORT".to_vec()]])?;
    Ok(())
}

/// What an error reply means for the try.
fn refusal(reply: &Value) -> Result<(), Trouble> {
    let Some(error) = reply.as_error() else { return Ok(()) };
    match error.split_whitespace().next().unwrap_or_default() {
        "UNKNOWNOUTCOME" => Err(Trouble::Said(End::Unknown)),
        "CONFLICT" | "UNAVAILABLE" | "EXECABORT" | "LOADING" | "SNAPSHOTTOOOLD" => {
            Err(Trouble::Said(End::Failed))
        }
        _ => Err(Trouble::Refused(error.into_owned())),
    }
}
