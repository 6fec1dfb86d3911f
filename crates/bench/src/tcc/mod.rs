//! `bench tcc`: the workload of Wren and PaRiS on causal keyspaces of a running cluster, one protocol after the other.
//!
//! Every measurement has a keyspace of its own, which is created for it, filled, and dropped, so that nothing of another
//! one goes on beside it but the cluster's `default`. A round measures every protocol once, in an order that turns from
//! round to round; ratios are of two protocols in one round.
//!
//! Clients ask which partition a key lies in (`KEYSPACE LOCATE`) and which regions hold it (`KEYSPACE INFO`), and draw
//! transactions by that. Each is a causal thread of its own (`SESSION SCOPE connection`), as in the thesis.

mod locate;
mod plan;
mod report;

pub use locate::locate;
pub use plan::{Mix, OPERATIONS, Plan};
pub use report::{Comparison, Measured, Ratios, Spread, table};

use crate::keyspaces;
use crate::redis::Target;
use crate::transactions::{self, Keys, RunError, Summary, Workload};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

/// A protocol of causal keyspaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Stable snapshots of two times.
    Wren,
    /// Fresh snapshots of a time for each region, by physical clocks.
    Cure,
    /// The same by hybrid clocks.
    HybridCure,
    /// Stable snapshots of one time, partial replication.
    Paris,
    /// Fresh snapshots of one time.
    Bpr,
    /// Cure whose reads wait for the next application.
    CureApplied,
    /// Cure with hybrid clocks, likewise.
    HybridCureApplied,
    /// No snapshots.
    NoCc,
}

const PROTOCOLS: [Protocol; 8] = [
    Protocol::Wren,
    Protocol::Cure,
    Protocol::HybridCure,
    Protocol::Bpr,
    Protocol::CureApplied,
    Protocol::HybridCureApplied,
    Protocol::NoCc,
    Protocol::Paris,
];

impl Protocol {
    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Wren => "wren",
            Protocol::Cure => "cure",
            Protocol::HybridCure => "h-cure",
            Protocol::Paris => "paris",
            Protocol::Bpr => "bpr",
            Protocol::CureApplied => "cure-applied",
            Protocol::HybridCureApplied => "h-cure-applied",
            Protocol::NoCc => "nocc",
        }
    }

    /// True if it can leave partitions out of regions.
    fn is_partial(self) -> bool {
        matches!(self, Protocol::Paris | Protocol::Bpr | Protocol::NoCc)
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
        found.ok_or_else(|| {
            let names: Vec<&str> = PROTOCOLS.iter().map(|protocol| protocol.name()).collect();
            format!("`{text}` is none of {}", names.join(", "))
        })
    }
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The processes of one cluster. Clients are spread over them.
    pub urls: Vec<Target>,
    /// The protocols; the others are compared with the first.
    pub protocols: Vec<Protocol>,
    /// How many partitions each keyspace has.
    pub partitions: u16,
    /// How many regions hold each partition, for protocols that leave some out; all if it is not said.
    pub replicas: Option<u16>,
    /// What clients run.
    pub mix: Mix,
    /// How many keys there are.
    pub keys: u32,
    /// The exponent of Zipf's law by which keys of a partition are drawn; all alike if it is not said.
    pub exponent: Option<f64>,
    /// Bytes of a value, at least.
    pub value_bytes: usize,
    /// Connections, each with a transaction under way.
    pub clients: usize,
    /// How long each protocol is run unmeasured.
    pub warm_up: Duration,
    /// How long it is measured.
    pub duration: Duration,
    /// Measurements of each.
    pub rounds: usize,
    /// What tells values of this run from those of others.
    pub run: u64,
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
    let keyspace = format!("tcc-{protocol}");
    create(settings, protocol, &keyspace)?;
    let words = |words: &[&str]| words.iter().map(|word| word.as_bytes().to_vec()).collect::<Vec<_>>();
    let load = transactions::Settings {
        urls: settings.urls.clone(),
        // Replaced below, when it is known where keys are.
        workload: Workload::Retwis,
        keys: Keys::new(settings.keys, None),
        clients: settings.clients,
        warm_up: settings.warm_up,
        duration: settings.duration,
        pause: Duration::ZERO,
        txn: true,
        branch: false,
        steps: false,
        round_trip: Duration::ZERO,
        value_bytes: settings.value_bytes,
        history: None,
        run: settings.run,
        keyspace: Some(keyspace.clone()),
        prologue: vec![words(&["KEYSPACE", "USE", &keyspace]), words(&["SESSION", "SCOPE", "connection"])],
    };
    let load = locate(load, settings.mix, settings.exponent)?;
    let (totals, elapsed) = transactions::run(&load)?;
    keyspaces::remove(&settings.urls, &keyspace)?;
    Ok(Summary::of(&load, &totals, elapsed))
}

/// Creates the keyspace, anew if there is one, and waits until every process knows it.
fn create(settings: &Settings, protocol: Protocol, keyspace: &str) -> Result<(), RunError> {
    let (partitions, replicas) = (settings.partitions.to_string(), settings.replicas.map(|n| n.to_string()));
    let mut words = vec!["MODEL", "causal", "PARTITIONS", &partitions, "PROTOCOL", protocol.name()];
    if let Some(replicas) = replicas.as_deref().filter(|_| protocol.is_partial()) {
        words.extend(["REPLICAS", replicas]);
    }
    keyspaces::create(&settings.urls, keyspace, &words)
}

/// Where keys lie: makes the workload of settings.
fn with_plan(load: transactions::Settings, plan: Plan) -> transactions::Settings {
    transactions::Settings { workload: Workload::Tcc(Arc::new(plan)), ..load }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn protocols_are_named_as_in_the_server() {
        for protocol in PROTOCOLS {
            assert_eq!(protocol.name().parse(), Ok(protocol));
        }
        assert!("occ".parse::<Protocol>().unwrap_err().contains("h-cure"));
    }
}
