//! A history as reads and writes of versions, by number: for checkers that know registers only.
//!
//! An initial transaction writes every variable, and each session begins with a transaction that reads from it, so that it
//! comes first whatever the level. The export holds only what is between a transaction and others: not what it read a
//! second time, read of its own, or overwrote itself. It holds a read that does not see the transaction's own write.

use super::{ExportError, LeftOut, unless_all};
use crate::history::Outcome;
use crate::invocations::Decoded;
use crate::variables::{Access, Variable, Variables};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// A read or a write of a version, by number.
#[derive(Clone, Copy)]
struct Event {
    is_write: bool,
    variable: usize,
    version: usize,
}

/// A transaction as events.
struct Exported<'d, 'h> {
    transaction: &'d Decoded<'h>,
    events: Vec<Event>,
}

/// Variables and versions by number. Variable 0 is there for the initial transaction alone; version `variable + 1` is what
/// the initial transaction wrote, so later versions are numbered above. Version 0, which AWDIT adds by itself, is not used.
struct Numbers<'h> {
    variables: BTreeMap<Variable<'h>, usize>,
    versions: BTreeMap<(usize, String), usize>,
}

impl<'h> Numbers<'h> {
    fn initial(variable: usize) -> usize {
        variable + 1
    }

    fn count(&self) -> usize {
        self.variables.len() + 1
    }

    fn version(&mut self, variable: usize, value: String) -> usize {
        let next = self.count() + 1 + self.versions.len();
        *self.versions.entry((variable, value)).or_insert(next)
    }

    fn event(&mut self, access: Access<'h>) -> Event {
        let variable = self.variables.get(&access.variable).copied().unwrap_or_default();
        let version = match access.value {
            Some(value) => self.version(variable, value),
            None => Numbers::initial(variable),
        };
        Event { is_write: access.is_write, variable, version }
    }
}

struct Versions<'d, 'h> {
    numbers: Numbers<'h>,
    exported: Vec<Exported<'d, 'h>>,
    left_out: LeftOut,
}

impl<'d, 'h> Versions<'d, 'h> {
    fn new(history: &'d [Decoded<'h>]) -> Result<Self, ExportError> {
        let variables = Variables::new(history);
        let mut left_out = LeftOut::default();
        (left_out.of_keys, left_out.elements) = (variables.keys(), variables.repeated());
        variables.left_out.iter().for_each(|(key, why)| left_out.key(key, || why.clone()));
        let mut left_out = unless_all(left_out)?;
        let numbered = variables.iter().enumerate().map(|(index, variable)| (variable, index + 1));
        let mut numbers = Numbers { variables: numbered.collect(), versions: BTreeMap::new() };
        let mut exported = Vec::new();
        for transaction in history {
            let mut events = Vec::new();
            for step in &transaction.steps {
                match variables.accesses(step) {
                    Some(accesses) => events.extend(accesses.into_iter().map(|access| numbers.event(access))),
                    None => left_out.reads += usize::from(step.observed.is_some()),
                }
            }
            exported.push(Exported { transaction, events: between(events) });
        }
        let mut versions = Versions { numbers, exported, left_out };
        versions.keep_what_happened();
        Ok(versions)
    }

    /// Leaves out the transactions of unknown outcome of which nobody saw anything, and those without an event.
    fn keep_what_happened(&mut self) {
        let certain = |one: &&Exported<'_, '_>| outcome(one) == Outcome::Committed;
        let seen: BTreeSet<usize> = (self.exported.iter().filter(certain))
            .flat_map(|one| &one.events)
            .filter(|event| !event.is_write)
            .map(|event| event.version)
            .collect();
        self.exported.retain(|one| {
            let was_seen = one.events.iter().any(|event| event.is_write && seen.contains(&event.version));
            !one.events.is_empty() && (outcome(one) != Outcome::Unknown || was_seen)
        });
    }

    /// Sessions in order of their numbers. The transactions of unknown outcome come last, each for itself: it may have
    /// happened after what its session did since.
    fn sessions(&self) -> Vec<Vec<&Exported<'d, 'h>>> {
        let mut sessions: BTreeMap<(bool, u64), Vec<&Exported<'d, 'h>>> = BTreeMap::new();
        for one in &self.exported {
            let alone = outcome(one) == Outcome::Unknown;
            let id = if alone { one.transaction.number() } else { one.transaction.transaction.session };
            sessions.entry((alone, id)).or_default().push(one);
        }
        sessions.into_values().collect()
    }
}

fn outcome(exported: &Exported<'_, '_>) -> Outcome {
    exported.transaction.transaction.outcome
}

/// What is between a transaction and others: neither what it reads a second time, or of its own, nor what it overwrites.
fn between(events: Vec<Event>) -> Vec<Event> {
    let mut known: BTreeMap<usize, usize> = BTreeMap::new();
    let mut left: Vec<Event> = Vec::new();
    for event in events {
        let before = known.insert(event.variable, event.version);
        if event.is_write {
            left.retain(|earlier| !(earlier.is_write && earlier.variable == event.variable));
        }
        if event.is_write || before != Some(event.version) {
            left.push(event);
        }
    }
    left
}

/// As AWDIT parses it: four numbers a line, transactions numbered through all sessions, -1 for an aborted one.
pub(super) fn plume(history: &[Decoded<'_>], output: &mut impl Write) -> Result<LeftOut, ExportError> {
    let versions = Versions::new(history)?;
    for variable in 0..versions.numbers.count() {
        writeln!(output, "w({variable},{},0,0)", Numbers::initial(variable))?;
    }
    let mut next = 0;
    for (index, session) in versions.sessions().into_iter().enumerate() {
        let session_number = index + 1;
        next += 1;
        writeln!(output, "r(0,{},{session_number},{next})", Numbers::initial(0))?;
        for one in session {
            next += 1;
            let transaction = if outcome(one) == Outcome::Aborted { -1 } else { next };
            for Event { is_write, variable, version } in &one.events {
                let name = if *is_write { 'w' } else { 'r' };
                writeln!(output, "{name}({variable},{version},{session_number},{transaction})")?;
            }
        }
    }
    Ok(versions.left_out)
}

/// DBCop's JSON: `data` is an array of sessions, each an array of `{"events": [...], "committed": true}`, with events
/// `{"Read": {"variable": .., "version": ..}}` and `{"Write": {..}}`. What describes the run is constant or counted. DBCop
/// takes aborted transactions for committed ones, so they are left out.
pub(super) fn dbcop(history: &[Decoded<'_>], output: &mut impl Write) -> Result<LeftOut, ExportError> {
    let versions = Versions::new(history)?;
    let variables = versions.numbers.count();
    let event = |event: &Event| {
        let fields = json!({"variable": event.variable, "version": event.version});
        if event.is_write { json!({"Write": fields}) } else { json!({"Read": fields}) }
    };
    let transaction = |events: Vec<Value>| json!({"events": events, "committed": true});
    let initial =
        |is_write, variable| event(&Event { is_write, variable, version: Numbers::initial(variable) });
    let mut data = vec![vec![transaction((0..variables).map(|variable| initial(true, variable)).collect())]];
    for session in versions.sessions() {
        let happened = session.into_iter().filter(|one| outcome(one) != Outcome::Aborted);
        let rest = happened.map(|one| transaction(one.events.iter().map(event).collect()));
        data.push(std::iter::once(transaction(vec![initial(false, 0)])).chain(rest).collect());
    }
    let history = json!({
        "params": {
            "id": 0,
            "n_node": data.len(),
            "n_variable": variables,
            "n_transaction": data.iter().map(Vec::len).max().unwrap_or(0),
            "n_event": versions.exported.iter().map(|one| one.events.len()).max().unwrap_or(0),
        },
        "info": "anabranch",
        "start": "1970-01-01T00:00:00Z",
        "end": "1970-01-01T00:00:00Z",
        "data": data,
    });
    serde_json::to_writer(&mut *output, &history).map_err(io::Error::from)?;
    writeln!(output)?;
    Ok(versions.left_out)
}
