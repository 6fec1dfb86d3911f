//! `bench cops`: the dynamic workload of COPS (its section 6.3) on causal keyspaces of a running cluster, one protocol after the
//! other.
//!
//! Every measurement has a keyspace of its own, which is created for it, filled, and dropped. A round measures every protocol
//! once, in an order that turns from round to round; ratios are of two protocols in one round. Each client has a connection, and
//! is a causal thread of its own.

mod client;
mod plan;

pub use plan::{Drawn, Plan};

use crate::keyspaces::{self, open};
use crate::redis::Target;
use crate::tcc::{Comparison, Measured};
use crate::transactions::{Connection, INPUT_BYTES, RunError, Summary, Totals, ask, drive};
use client::{Client, Shared};
use mio::Poll;
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

/// Keys that are loaded, or looked at, at once.
const KEYS_AT_ONCE: usize = 500;
/// How long servers may take to show what was loaded.
const LONGEST_LOADING: Duration = Duration::from_secs(60);

/// A protocol that the paper compares (table 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Logs are exchanged: one partition.
    Log,
    /// Writes name what they depend on.
    Cops,
    /// With get transactions.
    CopsGt,
}

const PROTOCOLS: [Protocol; 3] = [Protocol::Log, Protocol::Cops, Protocol::CopsGt];

impl Protocol {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Log => "log",
            Protocol::Cops => "cops",
            Protocol::CopsGt => "cops-gt",
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Protocol {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = PROTOCOLS.into_iter().find(|protocol| protocol.name() == text);
        found.ok_or_else(|| format!("`{text}` is none of log, cops, cops-gt"))
    }
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The processes of one cluster that clients are spread over: those of one region, as in the paper.
    pub urls: Vec<Target>,
    /// The protocols; the others are compared with the first.
    pub protocols: Vec<Protocol>,
    /// How many partitions each keyspace has; that of LOG has one.
    pub partitions: u16,
    /// What clients run; as many groups as there are clients.
    pub plan: Plan,
    /// How long a client rests after each operation.
    pub delay: Duration,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// How long each protocol is run unmeasured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub duration: Duration,
    /// Measurements of each.
    pub rounds: usize,
}

/// Measures all protocols in turn, and tells of each measurement as it ends.
///
/// # Errors
/// A server cannot be reached, or refuses a command for good.
pub fn compare(settings: &Settings, mut note: impl FnMut(&Measured)) -> Result<Comparison, RunError> {
    let mut measured: Vec<Measured> = Vec::new();
    for round in 0..settings.rounds.max(1) {
        let mut order = settings.protocols.clone();
        let turned = round % order.len().max(1);
        order.rotate_left(turned);
        for protocol in order {
            let measurement =
                Measured { protocol: protocol.name(), round, summary: one(settings, protocol)? };
            note(&measurement);
            measured.push(measurement);
        }
    }
    let names: Vec<&'static str> = settings.protocols.iter().map(|protocol| protocol.name()).collect();
    Ok(Comparison::of(&names, measured))
}

/// One measurement, on a keyspace of its own.
fn one(settings: &Settings, protocol: Protocol) -> Result<Summary, RunError> {
    let (urls, keyspace) = (&settings.urls, format!("bench-{protocol}"));
    create(settings, protocol, &keyspace)?;
    let value = vec![b'.'; settings.value_bytes.max(1)];
    load(settings, &keyspace, &value)?;
    if !settings.warm_up.is_zero() {
        run_clients(settings, &keyspace, &value, Instant::now() + settings.warm_up)?;
    }
    let (before, begun) = (ask(urls, Some(&keyspace)), Instant::now());
    let mut totals = run_clients(settings, &keyspace, &value, begun + settings.duration)?;
    let elapsed = begun.elapsed();
    totals.servers = ask(urls, Some(&keyspace)).since(before);
    keyspaces::remove(urls, &keyspace)?;
    let Plan { groups, .. } = settings.plan;
    Ok(Summary::named("cops", "single", (groups as usize, settings.plan.all_keys()), &totals, elapsed))
}

fn create(settings: &Settings, protocol: Protocol, keyspace: &str) -> Result<(), RunError> {
    let partitions = settings.partitions.to_string();
    let options: &[&str] = match protocol {
        Protocol::Log => &["MODEL", "causal", "PROTOCOL", "log"],
        Protocol::Cops => &["MODEL", "causal", "PROTOCOL", "cops", "PARTITIONS", &partitions],
        Protocol::CopsGt => {
            &["MODEL", "causal", "PROTOCOL", "cops", "TRANSACTIONS", "on", "PARTITIONS", &partitions]
        }
    };
    keyspaces::create(&settings.urls, keyspace, options)
}

/// The name of a key.
fn key(number: u32) -> Vec<u8> {
    format!("cops:{number}").into_bytes()
}

/// Gives every key a value, one by one as they are of several partitions, and waits until every server shows all of them.
fn load(settings: &Settings, keyspace: &str, value: &[u8]) -> Result<(), RunError> {
    let first = settings.urls.first().ok_or_else(|| RunError::Refused("no server was named".into()))?;
    let numbers: Vec<u32> = (0..settings.plan.all_keys()).collect();
    let set = |number: u32| vec![b"SET".to_vec(), key(number), value.to_vec()];
    let mut loader = using(first, keyspace)?;
    for chunk in numbers.chunks(KEYS_AT_ONCE) {
        call(&mut loader, chunk.iter().map(|number| set(*number)).collect())?;
    }
    let end = Instant::now() + LONGEST_LOADING;
    for url in &settings.urls {
        let mut reader = using(url, keyspace)?;
        for chunk in numbers.chunks(KEYS_AT_ONCE) {
            let gets = || chunk.iter().map(|number| vec![b"GET".to_vec(), key(*number)]).collect();
            while call(&mut reader, gets())?.iter().any(|reply| reply.as_bytes().is_none()) {
                if Instant::now() > end {
                    return Err(RunError::ReadBack(url.clone(), "some keys are still missing".into()));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    }
    Ok(())
}

/// A connection that uses the keyspace.
fn using(url: &Target, keyspace: &str) -> Result<Connection, RunError> {
    let mut connection = open(url)?;
    call(&mut connection, vec![["KEYSPACE", "USE", keyspace].map(|word| word.as_bytes().to_vec()).to_vec()])?;
    Ok(connection)
}

fn call(connection: &mut Connection, commands: Vec<Vec<Vec<u8>>>) -> Result<Vec<resp::Value>, RunError> {
    let replies = connection.call(&commands).map_err(|error| RunError::Refused(error.to_string()))?;
    match replies.iter().find_map(resp::Value::as_error) {
        Some(error) => Err(RunError::Refused(error.into_owned())),
        None => Ok(replies),
    }
}

fn run_clients(settings: &Settings, keyspace: &str, value: &[u8], end: Instant) -> Result<Totals, RunError> {
    let poll = Poll::new().map_err(RunError::System)?;
    let registry = poll.registry().try_clone().map_err(RunError::System)?;
    let mut shared = Shared {
        urls: &settings.urls,
        keyspace,
        plan: settings.plan,
        value,
        delay: settings.delay,
        registry: &registry,
        buffer: vec![0; INPUT_BYTES].into(),
        end,
        totals: Totals::default(),
    };
    let now = Instant::now();
    let mut clients: Vec<Client> =
        (0..settings.plan.groups as usize).map(|index| Client::new(index, now)).collect();
    drive(poll, &mut clients, &mut shared)?;
    Ok(shared.totals)
}
