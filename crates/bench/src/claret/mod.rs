//! The workloads of Claret's evaluation (section 6) on strict keyspaces of a running cluster, one setting after the other.
//!
//! *Raw mix* (6.1): some random operations on sets, `SCARD` or `BLIND SADD`. *RUBiS* (6.2): an auction site. *Retwis* (6.3): a
//! social network on a Kronecker graph. The types are those of the paper: sets, dicts, scored sets, `TOP.*` for bids,
//! `SUMMARY.*` for ratings, `UID.*` for identifiers; mutators whose results nobody needs are `BLIND`.
//!
//! [`Workload::source`] and [`Dialogue`] know of no socket and no clock.
//!
//! # How transactions are run
//! Operations that do not depend on one another are one `MULTI` ... `EXEC`: the gateway is the paper's client, and
//! gets all replies at once instead of step by step. Where later operations depend on what earlier ones showed, it is
//! `TXN`, with a round trip for each such step. [`Settings::interactive`] has a round trip for each operation. What
//! fails by a conflict is tried again after a short random wait.
//!
//! # Settings
//! A measurement has a keyspace of its own, created with the setting's options, filled, and dropped. A round measures
//! every setting once, in an order that turns from round to round; ratios are of two settings in one round. A setting
//! with `LOCKS none` gets the same operations one by one, without transactions: they are counted in the same groups.

mod client;
mod dialogue;
mod graph;
mod plan;
mod rawmix;
mod report;
mod retwis;
mod rubis;
mod setting;
mod unmodified;

pub use dialogue::{Dialogue, Form, Next};
pub use plan::{Batch, Command, Event, Plan, Source};
pub use rawmix::RawMix;
pub use report::{Comparison, Measured, Ratio, table, unevenness};
pub use retwis::Retwis;
pub use rubis::Rubis;
pub use setting::Setting;
pub use unmodified::Unmodified;

use crate::keyspaces;
use crate::redis::Target;
use crate::transactions::{Driven, INPUT_BYTES, RunError, Summary, Totals, ask, drive};
use client::{Client, Shared};
use mio::Poll;
use resp::Value;
use std::time::{Duration, Instant};

/// Commands that are sent at once to fill a keyspace.
const LOADED_AT_ONCE: usize = 500;

/// A workload with its shares and sizes.
#[derive(Clone, Debug)]
pub enum Workload {
    /// Section 6.1.
    RawMix(RawMix),
    /// Section 6.2.
    Rubis(Rubis),
    /// Section 6.3.
    Retwis(Retwis),
    /// None of the paper's.
    Unmodified(Unmodified),
}

impl Workload {
    fn name(&self) -> &'static str {
        match self {
            Workload::RawMix(_) => "rawmix",
            Workload::Rubis(_) => "rubis",
            Workload::Retwis(_) => "retwis-graph",
            Workload::Unmodified(_) => "unmodified",
        }
    }

    /// How many sets, items or users there are.
    fn keys(&self) -> u32 {
        match self {
            Workload::RawMix(mix) => mix.keys,
            Workload::Rubis(rubis) => rubis.items,
            Workload::Retwis(retwis) => 1 << retwis.scale,
            Workload::Unmodified(unmodified) => unmodified.keys,
        }
    }

    /// What fills a keyspace, and what transactions are drawn from; the seed decides the graph, and which auction ends
    /// when.
    pub fn source(&self, seed: u64) -> Box<dyn Source> {
        match self {
            Workload::RawMix(mix) => Box::new(rawmix::Sets::new(mix)),
            Workload::Rubis(rubis) => Box::new(rubis::Site::new(rubis, seed)),
            Workload::Retwis(retwis) => Box::new(retwis::Network::new(retwis, seed)),
            Workload::Unmodified(unmodified) => Box::new(unmodified::Commands::new(unmodified)),
        }
    }
}

/// What to run, and where.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The processes of one cluster. Clients are spread over them.
    pub urls: Vec<Target>,
    /// What they run.
    pub workload: Workload,
    /// What is compared; none: the keyspace that the urls name, as it is.
    pub settings: Vec<Setting>,
    /// How many partitions each setting's keyspace has.
    pub partitions: u16,
    /// How many processes keep each; all if it is not said.
    pub replicas: Option<u16>,
    /// Connections, each with a transaction under way.
    pub clients: usize,
    /// A round trip for each operation.
    pub interactive: bool,
    /// How long each setting is run unmeasured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub duration: Duration,
    /// Measurements of each.
    pub rounds: usize,
    /// Decides the graph, and which auction ends when.
    pub seed: u64,
}

/// Measures all settings in turn, and tells of each measurement as it ends.
///
/// # Errors
/// A server cannot be reached, or refuses a command for good.
pub fn compare(settings: &Settings, mut note: impl FnMut(&Measured)) -> Result<Comparison, RunError> {
    let all = match settings.settings.is_empty() {
        true => vec![Setting::as_is()],
        false => settings.settings.clone(),
    };
    let mut measured = Vec::new();
    for round in 0..settings.rounds.max(1) {
        let mut order = all.clone();
        order.rotate_left(round % all.len());
        for setting in order {
            let (summary, trace) = one(settings, &setting)?;
            let measurement = Measured::new(&setting, round, summary, trace);
            note(&measurement);
            measured.push(measurement);
        }
    }
    Ok(Comparison::of(&all, measured))
}

/// One measurement; also the commits of every tenth of a second.
fn one(settings: &Settings, setting: &Setting) -> Result<(Summary, Vec<u32>), RunError> {
    let keyspace = setting.keyspace();
    if let Some(name) = &keyspace {
        let (partitions, replicas) =
            (settings.partitions.to_string(), settings.replicas.map(|n| n.to_string()));
        let mut words = vec!["MODEL", "strict", "PARTITIONS", &partitions];
        if let Some(replicas) = &replicas {
            words.extend(["REPLICAS", replicas]);
        }
        words.extend(setting.options.iter().map(String::as_str));
        keyspaces::create(&settings.urls, name, &words)?;
    }
    let result = measure(settings, setting, keyspace.as_deref());
    if let Some(name) = &keyspace {
        keyspaces::remove(&settings.urls, name)?;
    }
    result
}

fn measure(
    settings: &Settings,
    setting: &Setting,
    keyspace: Option<&str>,
) -> Result<(Summary, Vec<u32>), RunError> {
    let mut source = settings.workload.source(settings.seed);
    let prologue: Vec<Command> =
        keyspace.map(|name| plan::words(&format!("KEYSPACE USE {name}"))).into_iter().collect();
    load(settings, &*source, &prologue)?;
    let form = match (setting.has_transactions(), settings.interactive) {
        (false, interactive) => Form::Single { interactive },
        (true, true) => Form::Interactive,
        (true, false) => Form::AtOnce,
    };
    let run = |duration: Duration, source: &mut dyn Source| {
        run_clients(settings, form, &prologue, duration, source)
    };
    if !settings.warm_up.is_zero() {
        run(settings.warm_up, &mut *source)?;
    }
    let before = ask(&settings.urls, keyspace);
    let begun = Instant::now();
    let (mut totals, trace) = run(settings.duration, &mut *source)?;
    let elapsed = begun.elapsed();
    totals.servers = ask(&settings.urls, keyspace).since(before);
    let size = (settings.clients, settings.workload.keys());
    Ok((Summary::named(settings.workload.name(), form.name(), size, &totals, elapsed), trace))
}

fn run_clients(
    settings: &Settings,
    form: Form,
    prologue: &[Command],
    duration: Duration,
    source: &mut dyn Source,
) -> Result<(Totals, Vec<u32>), RunError> {
    let poll = Poll::new().map_err(RunError::System)?;
    let registry = poll.registry().try_clone().map_err(RunError::System)?;
    let begun = Instant::now();
    let mut shared = Shared {
        urls: &settings.urls,
        prologue,
        source,
        registry: &registry,
        buffer: vec![0; INPUT_BYTES].into(),
        begun,
        end: begun + duration,
        totals: Totals::default(),
        trace: Vec::new(),
    };
    let mut clients: Vec<Client> =
        (0..settings.clients).map(|index| Client::new(index, begun, form)).collect();
    debug_assert!(clients.iter().all(|client| client.due().is_some()), "each begins at once");
    drive(poll, &mut clients, &mut shared)?;
    Ok((shared.totals, shared.trace))
}

/// Fills the keyspace. What was there of an earlier run without settings stays.
fn load(settings: &Settings, source: &dyn Source, prologue: &[Command]) -> Result<(), RunError> {
    let first = settings.urls.first().ok_or_else(|| RunError::Refused("no server was named".into()))?;
    let mut connection = keyspaces::open(first)?;
    let mut commands = prologue.iter().cloned().chain(source.load()).peekable();
    while commands.peek().is_some() {
        let some: Vec<Command> = commands.by_ref().take(LOADED_AT_ONCE).collect();
        let replies = connection.call(&some).map_err(|error| RunError::Refused(error.to_string()))?;
        if let Some(error) = replies.iter().find_map(Value::as_error) {
            return Err(RunError::Refused(error.into_owned()));
        }
    }
    Ok(())
}
