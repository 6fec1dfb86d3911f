//! One measurement: all clients at once, for some seconds.

use super::client::{Client, Shared};
use super::connection::Connection;
use super::history::{Recorder, Try};
use super::plan::{Keys, Workload};
use super::servers::{self, ServerCounters};
use crate::redis::Target;
use checker::{Outcome, Step};
use hdrhistogram::Histogram;
use mio::{Events, Poll};
use resp::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Keys that one command loads or reads back.
const KEYS_AT_ONCE: usize = 1000;
/// The bytes read at once.
pub(crate) const INPUT_BYTES: usize = 64 << 10;
/// How long servers may take to agree about what was written, once nobody writes.
const LONGEST_SETTLING: Duration = Duration::from_secs(30);
/// The first session of those that read at the end: above those of all clients' connections.
const READING_BACK: u64 = 1 << 32;
/// The longest latency with a bucket of its own, in nanoseconds.
const LONGEST_NANOSECONDS: u64 = 60_000_000_000;

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The servers: processes of one deployment. Clients are spread over them.
    pub urls: Vec<Target>,
    /// The mix.
    pub workload: Workload,
    /// How keys are drawn.
    pub keys: Keys,
    /// Connections, each with a transaction under way.
    pub clients: usize,
    /// How long the same is run before, unmeasured.
    pub warm_up: Duration,
    /// How long.
    pub duration: Duration,
    /// How long a client rests after each transaction.
    pub pause: Duration,
    /// `TXN BEGIN` and `TXN COMMIT` instead of `WATCH`, `MULTI` and `EXEC`.
    pub txn: bool,
    /// `BRANCH BEGIN` and `BRANCH COMMIT` instead: what conflicts forks.
    pub branch: bool,
    /// A round trip for every operation, for the begin and for the commit, of transactions that only read too.
    pub steps: bool,
    /// With `steps`, how long a client waits before each: as far away would it be.
    pub round_trip: Duration,
    /// Bytes of a value, at least; a recorded run has short ones.
    pub value_bytes: usize,
    /// Where what clients saw is written.
    pub history: Option<PathBuf>,
    /// What tells the keys and values of this run from those of others.
    pub run: u64,
    /// The keyspace to query our servers about; `default` if none is named.
    pub keyspace: Option<String>,
    /// What every connection sends first, and is to be answered without an error.
    pub prologue: Vec<Vec<Vec<u8>>>,
}

impl Settings {
    /// A key by number. A recorded run has keys of its own, which nobody has written before.
    pub(crate) fn key(&self, number: u32) -> Vec<u8> {
        match self.history {
            Some(_) => format!("{}:{:x}:{number}", self.workload.name(), self.run),
            None => format!("{}:{number}", self.workload.name()),
        }
        .into_bytes()
    }

    /// A value that is written once.
    pub(super) fn value(&self, client: usize, number: u64) -> Vec<u8> {
        let mut value = format!("{:x}.{client}.{number}", self.run).into_bytes();
        if self.history.is_none() {
            value.resize(value.len().max(self.value_bytes), b'.');
        }
        value
    }
}

/// Why there is no measurement.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No server can be reached.
    #[error("cannot connect to {0}: {1}")]
    Connect(Target, io::Error),
    /// A server refused what no repetition would make it accept.
    #[error("the server refused a command: {0}")]
    Refused(String),
    /// The history cannot be written.
    #[error("cannot write the history: {0}")]
    History(io::Error),
    /// The written keys cannot be read at the end.
    #[error("{0} did not let all that was written be read at the end: {1}")]
    ReadBack(Target, String),
    /// The system gives no event loop.
    #[error("cannot wait for replies: {0}")]
    System(io::Error),
}

/// What came of a run.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Committed transactions by kind.
    pub committed: BTreeMap<&'static str, u64>,
    /// Tries that failed: conflicts, and servers that could not serve. Nothing happened.
    pub aborts: u64,
    /// Tries of unknown outcome.
    pub unknown: u64,
    /// Transactions that were still being tried at the end.
    pub given_up: u64,
    /// Connections that broke.
    pub lost_connections: u64,
    /// Nanoseconds from the first try to the commit.
    pub latency: Histogram<u64>,
    /// The same by kind.
    pub by_kind: BTreeMap<&'static str, Histogram<u64>>,
    /// Nanoseconds from the first try of a transaction that writes to the answer to its reads.
    pub reads: Histogram<u64>,
    /// What the servers tell of the run.
    pub servers: ServerCounters,
    /// The keys that may have been written.
    pub(super) written: BTreeSet<u32>,
}

fn latencies() -> Histogram<u64> {
    Histogram::new_with_bounds(1_000, LONGEST_NANOSECONDS, 3)
        .expect("the bounds are constants that hdrhistogram accepts")
}

fn nanoseconds(latency: Duration) -> u64 {
    latency.as_nanos().min(u128::from(LONGEST_NANOSECONDS)) as u64
}

impl Default for Totals {
    fn default() -> Self {
        let (committed, written) = (BTreeMap::new(), BTreeSet::new());
        Totals {
            committed,
            aborts: 0,
            unknown: 0,
            given_up: 0,
            lost_connections: 0,
            latency: latencies(),
            by_kind: BTreeMap::new(),
            reads: latencies(),
            servers: ServerCounters::default(),
            written,
        }
    }
}

impl Totals {
    pub(crate) fn note_commit(&mut self, kind: &'static str, latency: Duration) {
        *self.committed.entry(kind).or_default() += 1;
        let latency = nanoseconds(latency);
        self.latency.saturating_record(latency);
        self.by_kind.entry(kind).or_insert_with(latencies).saturating_record(latency);
    }

    pub(super) fn note_reads(&mut self, latency: Duration) {
        self.reads.saturating_record(nanoseconds(latency));
    }

    /// Committed transactions of all kinds.
    pub fn commits(&self) -> u64 {
        self.committed.values().sum()
    }
}

/// Runs a workload; also how long it took, which is a little longer than requested.
///
/// # Errors
/// No server can be reached at the beginning, one refuses a command for good, or the history cannot be written.
pub fn run(settings: &Settings) -> Result<(Totals, Duration), RunError> {
    let first = settings.urls.first().ok_or_else(|| RunError::Refused("no server was named".into()))?;
    let mut loader = Connection::open(first).map_err(|error| RunError::Connect(first.clone(), error))?;
    let recorder = settings.history.as_deref().map(open_history).transpose()?;
    if recorder.is_none() {
        load(settings, &mut loader)?;
    }
    drop(loader);
    if recorder.is_none() && matches!(settings.workload, Workload::Tcc(_)) {
        await_loaded(settings)?;
    }
    if !settings.warm_up.is_zero() {
        run_clients(settings, None, Instant::now() + settings.warm_up)?;
    }
    let (urls, keyspace) = (&settings.urls, settings.keyspace.as_deref());
    let before = servers::ask(urls, keyspace);
    let begun = Instant::now();
    let mut totals = run_clients(settings, recorder.as_ref(), begun + settings.duration)?;
    let elapsed = begun.elapsed();
    totals.servers = servers::ask(urls, keyspace).since(before);
    if let Some(recorder) = recorder {
        read_back(settings, &totals.written, &recorder)?;
        recorder.finish().map_err(RunError::History)?;
    }
    Ok((totals, elapsed))
}

/// All clients, in one event loop on this thread: threads that wait for one reply each would cost more than the work.
fn run_clients(settings: &Settings, recorder: Option<&Recorder>, end: Instant) -> Result<Totals, RunError> {
    let poll = Poll::new().map_err(RunError::System)?;
    let registry = poll.registry().try_clone().map_err(RunError::System)?;
    let (buffer, totals) = (vec![0; INPUT_BYTES].into(), Totals::default());
    let mut shared = Shared { settings, recorder, registry: &registry, buffer, end, totals };
    let now = Instant::now();
    let mut clients: Vec<Client> = (0..settings.clients).map(|index| Client::new(index, now)).collect();
    drive(poll, &mut clients, &mut shared)?;
    Ok(shared.totals)
}

/// A client of an event loop. It never waits.
pub(crate) trait Driven<S> {
    /// When `wake` is due at the latest; never, if it has ended.
    fn due(&self) -> Option<Instant>;
    /// Its rest is over, or the server has been silent for too long.
    fn wake(&mut self, now: Instant, shared: &mut S) -> Result<(), RunError>;
    /// Its connection has news.
    fn ready(&mut self, shared: &mut S) -> Result<(), RunError>;
}

/// Drives clients until all have ended. A client's place is the token of its connection.
pub(crate) fn drive<S, C: Driven<S>>(
    mut poll: Poll,
    clients: &mut [C],
    shared: &mut S,
) -> Result<(), RunError> {
    let (mut now, mut events) = (Instant::now(), Events::with_capacity(1024));
    while let Some(due) = clients.iter().filter_map(C::due).min() {
        match poll.poll(&mut events, Some(due.saturating_duration_since(now))) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => events.clear(),
            other => other.map_err(RunError::System)?,
        }
        for event in &events {
            clients[event.token().0].ready(shared)?;
        }
        now = Instant::now();
        for client in clients.iter_mut().filter(|client| client.due().is_some_and(|due| due <= now)) {
            client.wake(now, shared)?;
        }
    }
    Ok(())
}

fn open_history(path: &Path) -> Result<Recorder, RunError> {
    Recorder::create(path).map_err(RunError::History)
}

/// Gives every key a value.
fn load(settings: &Settings, connection: &mut Connection) -> Result<(), RunError> {
    settings.prologue.iter().try_for_each(|command| order(connection, command.clone()))?;
    let numbers: Vec<u32> = (0..settings.keys.count()).collect();
    for chunk in numbers.chunks(KEYS_AT_ONCE) {
        let pairs =
            chunk.iter().flat_map(|key| [settings.key(*key), settings.value(usize::MAX, u64::from(*key))]);
        let command: Vec<Vec<u8>> = std::iter::once(b"MSET".to_vec()).chain(pairs).collect();
        order(connection, command)?;
    }
    Ok(())
}

/// Waits until every server shows every key.
fn await_loaded(settings: &Settings) -> Result<(), RunError> {
    let keys: Vec<Vec<u8>> = (0..settings.keys.count()).map(|key| settings.key(key)).collect();
    let end = Instant::now() + LONGEST_SETTLING;
    for url in &settings.urls {
        loop {
            let outcome = read_all(url, settings, &keys);
            let missing =
                |answers: &Answers| answers.iter().flat_map(|(_, values)| values).any(Option::is_none);
            match outcome {
                Ok(answers) if !missing(&answers) => break,
                Ok(_) if Instant::now() > end => {
                    return Err(RunError::ReadBack(url.clone(), "some keys are still missing".into()));
                }
                Err(error) if Instant::now() > end => return Err(error),
                _ => std::thread::sleep(Duration::from_millis(50)),
            }
        }
    }
    Ok(())
}

/// Has a command done that must not fail.
pub(crate) fn order(connection: &mut Connection, command: Vec<Vec<u8>>) -> Result<(), RunError> {
    let replies = connection.call(&[command]).map_err(|error| RunError::Refused(error.to_string()))?;
    match replies.first().and_then(Value::as_error) {
        Some(error) => Err(RunError::Refused(error.into_owned())),
        None => Ok(()),
    }
}

/// A server's answers, and when each request was sent: one entry for every command.
type Answers = Vec<(Instant, Vec<Option<Vec<u8>>>)>;

/// Reads everything that was written at every server, again and again until all agree, and records the last answers.
fn read_back(settings: &Settings, written: &BTreeSet<u32>, recorder: &Recorder) -> Result<(), RunError> {
    let keys: Vec<Vec<u8>> = written.iter().map(|key| settings.key(*key)).collect();
    let begun = Instant::now();
    loop {
        let outcome: Result<Vec<Answers>, RunError> =
            settings.urls.iter().map(|url| read_all(url, settings, &keys)).collect();
        let is_late = begun.elapsed() > LONGEST_SETTLING;
        let answers = match outcome {
            Err(error) if is_late => return Err(error),
            Err(_) => {
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
            Ok(answers) => answers,
        };
        let values = |answers: &Answers| answers.iter().map(|(_, values)| values.clone()).collect::<Vec<_>>();
        if !is_late && answers.windows(2).any(|pair| values(&pair[0]) != values(&pair[1])) {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        }
        for (server, answers) in answers.into_iter().enumerate() {
            for ((invoked, values), keys) in answers.into_iter().zip(keys.chunks(KEYS_AT_ONCE)) {
                let steps = keys
                    .iter()
                    .zip(&values)
                    .map(|(key, value)| Step::get(key, Some(value.as_deref())))
                    .collect();
                let session = READING_BACK + server as u64;
                let tried = Try { session, invoked, outcome: Outcome::Committed, steps, at_rest: true };
                recorder.note(tried).map_err(RunError::History)?;
            }
        }
        return Ok(());
    }
}

fn read_all(url: &Target, settings: &Settings, keys: &[Vec<u8>]) -> Result<Answers, RunError> {
    let failed = |text: String| RunError::ReadBack(url.clone(), text);
    let mut connection = Connection::open(url).map_err(|error| failed(error.to_string()))?;
    settings.prologue.iter().try_for_each(|command| order(&mut connection, command.clone()))?;
    let mut answers = Answers::new();
    for chunk in keys.chunks(KEYS_AT_ONCE) {
        let invoked = Instant::now();
        let command: Vec<Vec<u8>> = std::iter::once(b"MGET".to_vec()).chain(chunk.iter().cloned()).collect();
        let replies = connection.call(&[command]).map_err(|error| failed(error.to_string()))?;
        let values =
            replies.first().and_then(Value::as_elements).filter(|values| values.len() == chunk.len());
        let values = values.ok_or_else(|| failed(format!("{replies:?}")))?;
        answers.push((invoked, values.iter().map(|value| value.as_bytes().map(<[u8]>::to_vec)).collect()));
    }
    Ok(answers)
}
