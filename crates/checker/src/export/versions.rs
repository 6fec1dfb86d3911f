//! A history as reads and writes of versions, by number: for checkers that know registers only.
//!
//! A value that is written once names a version. A register is a variable. So is each element of a set or a list that only
//! grows: its addition is the only write, and whoever sees all elements reads each of them, as there or not; the order of a list is not
//! told. Counters name no version where concurrent updates are merged, and are left out.
//!
//! An initial transaction writes every variable, and each session begins with a transaction that reads from it, so that it
//! comes first whatever the level. Of a transaction only what is between it and others is told: not what it read a second
//! time, read of its own, or overwrote itself. If it does not read its own write, that is told.

use super::{ExportError, LeftOut, inexpressible, unless_all};
use crate::history::Outcome;
use crate::invocations::{Decoded, DecodedStep};
use crate::touches::{Content, Touch, elements, members, quoted, touches};
use datatypes::{Operation, key, list, set};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// What a step says about versions.
enum Said {
    /// It read, or wrote, a register.
    Register(Vec<Touch>),
    /// It added elements.
    Adds(Vec<String>),
    /// It saw all elements.
    Shows(Vec<String>),
    /// It saw whether one element is there.
    Contains(String, bool),
    /// Nothing that names a version.
    Nothing,
    /// It wrote something that names no version.
    Unclear,
}

fn said(step: &DecodedStep<'_>) -> Said {
    let is_read = step.operation.is_read();
    let unclear = if is_read { Said::Nothing } else { Said::Unclear };
    if step.observed.is_some_and(|reply| reply.starts_with('-')) {
        return unclear;
    }
    match (&step.operation, step.observed) {
        (Operation::Set(set::Operation::Add { members }), _) => {
            Said::Adds(members.iter().map(quoted).collect())
        }
        (Operation::List(list::Operation::Push { values, only_if_exists: false, .. }), _) => {
            Said::Adds(values.iter().map(quoted).collect())
        }
        (Operation::Set(set::Operation::Members), Some(reply)) => members(reply).map_or(unclear, Said::Shows),
        (Operation::List(list::Operation::Range { start: 0, stop: -1 }), Some(reply)) => {
            elements(reply).map_or(unclear, Said::Shows)
        }
        (Operation::Set(set::Operation::Contains { member }), Some(reply)) => {
            Said::Contains(quoted(member), reply == "(integer) 1")
        }
        (Operation::Register(_), _) => {
            let touches = touches(step, true);
            let is_clear = |touch: &Touch| matches!(touch, Touch::Read(_) | Touch::Write(_));
            match touches.is_empty() || !touches.iter().all(is_clear) {
                true => unclear,
                false => Said::Register(touches),
            }
        }
        // It takes off what is recorded beside the state.
        (Operation::Key(key::Operation::Resolve { .. }), _) => Said::Nothing,
        _ => unclear,
    }
}

/// What is known of a key.
#[derive(Default)]
struct Facts {
    is_register: bool,
    /// All elements that were added or seen.
    elements: BTreeSet<String>,
    /// Who wrote each value, or added each element.
    writers: BTreeMap<String, u64>,
}

impl Facts {
    /// Notes a write; the transaction that wrote the same before, if one did.
    fn note_write(&mut self, value: &str, writer: u64) -> Option<u64> {
        self.writers.insert(value.to_owned(), writer).filter(|first| *first != writer)
    }

    fn note(&mut self, said: &Said, writer: u64) -> Result<(), String> {
        let mut twice = None;
        match said {
            Said::Register(touches) => {
                self.is_register = true;
                for touch in touches {
                    if let Touch::Write(value) = touch {
                        twice = twice.or(self.note_write(value, writer).map(|first| (first, value.clone())));
                    }
                }
            }
            Said::Adds(added) => {
                for value in added {
                    self.elements.insert(value.clone());
                    twice = twice.or(self.note_write(value, writer).map(|first| (first, value.clone())));
                }
            }
            Said::Shows(seen) => self.elements.extend(seen.iter().cloned()),
            Said::Contains(element, _) => {
                self.elements.insert(element.clone());
            }
            Said::Nothing | Said::Unclear => {}
        }
        match twice {
            Some((first, value)) => Err(format!("transactions {first} and {writer} both wrote {value}")),
            None if self.is_register && !self.elements.is_empty() => Err("it had several types".to_owned()),
            None => Ok(()),
        }
    }
}

/// A key, or an element of one.
type Variable<'h> = (&'h [u8], Option<String>);

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
#[derive(Default)]
struct Numbers<'h> {
    variables: BTreeMap<Variable<'h>, usize>,
    versions: BTreeMap<(usize, String), usize>,
}

impl Numbers<'_> {
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
}

struct Versions<'d, 'h> {
    numbers: Numbers<'h>,
    exported: Vec<Exported<'d, 'h>>,
    left_out: LeftOut,
}

impl<'d, 'h> Versions<'d, 'h> {
    fn new(history: &'d [Decoded<'h>]) -> Result<Self, ExportError> {
        let (facts, left_out) = facts(history);
        let (numbers, exported) = (Numbers::default(), Vec::new());
        let mut versions = Versions { numbers, exported, left_out: unless_all(left_out)? };
        let kept = facts.iter().filter(|(key, _)| !versions.left_out.has(key));
        let variables = kept.flat_map(|(key, facts)| {
            let elements = facts.elements.iter().map(|element| (*key, Some(element.clone())));
            elements.chain(facts.is_register.then_some((*key, None)))
        });
        versions.numbers.variables =
            variables.enumerate().map(|(index, variable)| (variable, index + 1)).collect();
        for transaction in history {
            let events = (transaction.steps.iter()).flat_map(|step| versions.events(step, &facts)).collect();
            versions.exported.push(Exported { transaction, events: between(events) });
        }
        versions.keep_what_happened();
        Ok(versions)
    }

    fn events(&mut self, step: &DecodedStep<'h>, facts: &BTreeMap<&'h [u8], Facts>) -> Vec<Event> {
        if self.left_out.has(step.key) {
            return Vec::new();
        }
        let element = |element: &String| Some(element.clone());
        match said(step) {
            Said::Register(touches) => {
                touches.into_iter().filter_map(|touch| self.touch(step.key, touch)).collect()
            }
            Said::Adds(added) => added
                .iter()
                .map(|added| self.event(step.key, element(added), Some(added.clone()), true))
                .collect(),
            Said::Shows(seen) => {
                let all = facts.get(step.key).into_iter().flat_map(|facts| &facts.elements);
                let seen: BTreeSet<&String> = seen.iter().collect();
                let value = |one: &String| seen.contains(one).then(|| one.clone());
                all.map(|one| self.event(step.key, element(one), value(one), false)).collect()
            }
            Said::Contains(one, is_there) => {
                vec![self.event(step.key, element(&one), is_there.then(|| one.clone()), false)]
            }
            Said::Nothing | Said::Unclear => {
                self.left_out.reads += usize::from(step.observed.is_some());
                Vec::new()
            }
        }
    }

    fn touch(&mut self, key: &'h [u8], touch: Touch) -> Option<Event> {
        match touch {
            Touch::Read(Content::Absent) => Some(self.event(key, None, None, false)),
            Touch::Read(Content::Value(value)) => Some(self.event(key, None, Some(value), false)),
            Touch::Write(value) => Some(self.event(key, None, Some(value), true)),
            _ => None,
        }
    }

    fn event(
        &mut self,
        key: &'h [u8],
        element: Option<String>,
        value: Option<String>,
        is_write: bool,
    ) -> Event {
        let variable = self.numbers.variables.get(&(key, element)).copied().unwrap_or_default();
        let version = match value {
            Some(value) => self.numbers.version(variable, value),
            None => Numbers::initial(variable),
        };
        Event { is_write, variable, version }
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

/// What is known of each key, and which cannot be told.
fn facts<'h>(history: &[Decoded<'h>]) -> (BTreeMap<&'h [u8], Facts>, LeftOut) {
    let (mut facts, mut left_out) = (BTreeMap::<&[u8], Facts>::new(), LeftOut::default());
    for transaction in history {
        for (index, step) in transaction.steps.iter().enumerate() {
            let said = said(step);
            if matches!(said, Said::Unclear) && transaction.transaction.outcome != Outcome::Aborted {
                left_out.key(step.key, || inexpressible(transaction, index));
            }
            if let Err(why) = facts.entry(step.key).or_default().note(&said, transaction.number()) {
                left_out.key(step.key, || why);
            }
        }
    }
    left_out.of_keys = facts.len();
    (facts, left_out)
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
