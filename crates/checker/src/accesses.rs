//! A history as reads and writes of versions, without believing any claim: who read whose version, and which version
//! is known to follow which.
//!
//! A version is named by its value, which must be written only once (see `touches`). Transactions of unknown outcome
//! count where a reader saw their writes; an unseen one may be left out of any explanation. What contradicts every
//! level is found on the way: values from nowhere, from aborted transactions, from the middle of one.

use crate::history::{Outcome, Transaction};
use crate::invocations::{Decoded, DecodedStep};
use crate::report::{Check, Level};
use crate::touches::{Content, Touch, touches};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Whose version a read saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Source {
    /// The absence before every write.
    Initial,
    /// That of a unit, by its index.
    Written(usize),
}

/// What is atomic at the level in question: a transaction, or one step of it.
pub(crate) struct Unit<'d, 'h> {
    pub decoded: &'d Decoded<'h>,
    pub steps: Range<usize>,
    /// Keys with whose version it saw there before it wrote itself.
    pub reads: Vec<(usize, Source)>,
    /// The keys that it wrote.
    pub writes: BTreeSet<usize>,
}

impl Unit<'_, '_> {
    pub fn number(&self) -> u64 {
        self.decoded.number()
    }

    pub fn session(&self) -> u64 {
        self.decoded.transaction.session
    }

    /// True if its client knows that it took effect.
    pub fn is_certain(&self) -> bool {
        self.decoded.transaction.outcome == Outcome::Committed
    }

    /// When it was answered, if its client knows the outcome.
    pub fn answered(&self) -> Option<u64> {
        self.decoded.transaction.responded.filter(|_| self.is_certain())
    }

    /// Where it stands in its session.
    pub fn moment(&self) -> (u64, u64, usize) {
        (self.decoded.transaction.invoked, self.number(), self.steps.start)
    }
}

/// What is known about the versions of a key.
#[derive(Default)]
pub(crate) struct Versions<'h> {
    pub name: &'h [u8],
    pub writers: Vec<usize>,
    /// Versions with one that is known to come later, next except for those whose place is unknown.
    pub next: Vec<(Source, usize)>,
    /// Every write names its version, and none erases them.
    clear: bool,
    /// Some write leaves an unknown value, which may be one that another write names too.
    ambiguous: bool,
    /// The longest list that was seen.
    trace: Vec<String>,
    /// Units by the length that the list had after them.
    lengths: BTreeMap<usize, usize>,
}

/// A promise that is broken whatever the level.
pub(crate) type Broken = (Check, String, Vec<u64>);

/// A history as reads and writes of versions.
pub(crate) struct Accesses<'d, 'h> {
    pub units: Vec<Unit<'d, 'h>>,
    pub keys: Vec<Versions<'h>>,
    /// Every result that was seen names a version.
    pub complete: bool,
    pub broken: Vec<Broken>,
}

/// Decodes all requested transactions; `None` if a binary form is malformed.
pub(crate) fn decode(history: &[Transaction]) -> Option<Vec<Decoded<'_>>> {
    history.iter().map(Decoded::new).collect()
}

impl<'d, 'h> Accesses<'d, 'h> {
    /// What a level asks about: every step is a unit of its own for one that knows no transactions, and below snapshot
    /// isolation concurrent updates of counters and lists may be merged.
    pub fn new(decoded: &'d [Decoded<'h>], level: Level) -> Self {
        let by_step = level == Level::Causal;
        let merged = !matches!(level, Level::Snapshot | Level::Serializable | Level::StrictSerializable);
        let mut reading = Reading { merged, ..Reading::default() };
        for transaction in decoded {
            let steps = transaction.steps.len();
            if by_step {
                (0..steps).for_each(|step| reading.take(transaction, step..step + 1));
            } else {
                reading.take(transaction, 0..steps);
            }
        }
        reading.resolve();
        reading.order_lists();
        reading.finish()
    }
}

/// Which unit left a content, and whether it left that in the end.
#[derive(Clone, Copy)]
struct Writer {
    unit: usize,
    is_final: bool,
}

struct Reading<'d, 'h> {
    merged: bool,
    units: Vec<Unit<'d, 'h>>,
    touches: Vec<Vec<(usize, Touch)>>,
    ids: BTreeMap<&'h [u8], usize>,
    keys: Vec<Versions<'h>>,
    writers: BTreeMap<(usize, String), Vec<Writer>>,
    complete: bool,
    broken: Vec<Broken>,
}

impl Default for Reading<'_, '_> {
    fn default() -> Self {
        let (units, touches, ids, keys) = (Vec::new(), Vec::new(), BTreeMap::new(), Vec::new());
        Reading {
            merged: false,
            units,
            touches,
            ids,
            keys,
            writers: BTreeMap::new(),
            complete: true,
            broken: Vec::new(),
        }
    }
}

impl<'d, 'h> Reading<'d, 'h> {
    /// Notes what a unit did, and who wrote what.
    fn take(&mut self, decoded: &'d Decoded<'h>, steps: Range<usize>) {
        let unit = self.units.len();
        let unknown = decoded.transaction.outcome == Outcome::Unknown;
        let mut mine = Vec::new();
        let mut last: BTreeMap<usize, String> = BTreeMap::new();
        for (step, seen) in
            decoded.steps.iter().zip(&decoded.transaction.steps).take(steps.end).skip(steps.start)
        {
            let key = self.key(step.key);
            // A transaction of unknown outcome need not be explained, but tells what it read if it took effect.
            let without_reply = unknown && step.operation.is_read() && !seen.blind;
            let observed = if without_reply { seen.reply.as_deref() } else { step.observed };
            let step = DecodedStep { key: step.key, operation: step.operation.clone(), observed };
            for touch in touches(&step, self.merged) {
                match &touch {
                    Touch::Write(value) => {
                        self.note_writes(key, unit, std::slice::from_ref(value), &mut last)
                    }
                    Touch::Append(values, _) => self.note_writes(key, unit, values, &mut last),
                    Touch::Erase => self.keys[key].clear = false,
                    Touch::UnclearWrite => {
                        self.keys[key].clear = false;
                        self.keys[key].ambiguous = true;
                        self.complete = false;
                    }
                    Touch::UnclearRead => self.complete &= unknown,
                    Touch::Read(_) | Touch::Trace(_) => {}
                }
                mine.push((key, touch));
            }
        }
        for (key, value) in last {
            if let Some(writer) = self.writers.get_mut(&(key, value)).and_then(|writers| writers.last_mut()) {
                writer.is_final = true;
            }
        }
        self.units.push(Unit { decoded, steps, reads: Vec::new(), writes: BTreeSet::new() });
        self.touches.push(mine);
    }

    fn key(&mut self, name: &'h [u8]) -> usize {
        let next = self.keys.len();
        let id = *self.ids.entry(name).or_insert(next);
        if id == next {
            self.keys.push(Versions { name, clear: true, ..Versions::default() });
        }
        id
    }

    fn note_writes(
        &mut self,
        key: usize,
        unit: usize,
        values: &[String],
        last: &mut BTreeMap<usize, String>,
    ) {
        for value in values {
            let writers = self.writers.entry((key, value.clone())).or_default();
            writers.push(Writer { unit, is_final: false });
            last.insert(key, value.clone());
        }
    }

    fn outcome(&self, unit: usize) -> Outcome {
        self.units[unit].decoded.transaction.outcome
    }

    /// Finds whose version every committed read saw.
    fn resolve(&mut self) {
        for unit in 0..self.units.len() {
            match self.outcome(unit) {
                Outcome::Committed => {}
                Outcome::Unknown => {
                    self.resolve_unknown(unit);
                    continue;
                }
                Outcome::Aborted => continue,
            }
            // What it left itself; nothing where that has no name.
            let mut own: BTreeMap<usize, Option<Vec<String>>> = BTreeMap::new();
            for (key, touch) in std::mem::take(&mut self.touches[unit]) {
                match touch {
                    Touch::Read(content) => self.read(unit, key, content, own.get(&key)),
                    Touch::Trace(elements) => self.trace(unit, key, elements, own.get(&key)),
                    Touch::Write(value) => {
                        own.insert(key, Some(vec![value]));
                    }
                    Touch::Append(values, length) => {
                        if let Some(length) = length {
                            self.note_length(unit, key, length);
                        }
                        if let Some(values_before) = own.entry(key).or_insert_with(|| Some(Vec::new())) {
                            values_before.extend(values);
                        }
                    }
                    Touch::Erase => {
                        self.units[unit].writes.insert(key);
                        own.insert(key, None);
                    }
                    Touch::UnclearWrite => {
                        own.insert(key, None);
                    }
                    Touch::UnclearRead => {}
                }
            }
        }
    }

    /// What a transaction of unknown outcome read is part of it if it took effect, and nothing otherwise: nobody is
    /// blamed for it.
    fn resolve_unknown(&mut self, unit: usize) {
        let mut own = BTreeSet::new();
        for (key, touch) in std::mem::take(&mut self.touches[unit]) {
            let value = match touch {
                Touch::Read(_) if own.contains(&key) => continue,
                Touch::Read(Content::Value(value)) => value,
                Touch::Read(Content::Number(number)) if number != 0 => format!("\"{number}\""),
                Touch::Read(Content::Number(_)) => continue,
                Touch::Read(Content::Absent) => {
                    let source = self.source_of_absence(key);
                    self.units[unit].reads.extend(source.map(|source| (key, source)));
                    continue;
                }
                Touch::Write(_) | Touch::Append(..) | Touch::Erase | Touch::UnclearWrite => {
                    own.insert(key);
                    continue;
                }
                Touch::Trace(_) | Touch::UnclearRead => continue,
            };
            if let Some([writer]) = self.writers.get(&(key, value)).map(Vec::as_slice)
                && writer.is_final
                && writer.unit != unit
                && !self.keys[key].ambiguous
                && self.outcome(writer.unit) != Outcome::Aborted
            {
                self.units[unit].reads.push((key, Source::Written(writer.unit)));
            }
        }
    }

    fn read(&mut self, unit: usize, key: usize, content: Content, own: Option<&Option<Vec<String>>>) {
        if let Some(own) = own {
            let number = |value: &str| value.trim_matches('"').parse().ok();
            let agrees = |value: &String| match &content {
                Content::Absent => false,
                Content::Value(seen) => seen == value,
                Content::Number(seen) => number(value) == Some(*seen),
            };
            if let Some(value) = own.as_ref().and_then(|values| values.last())
                && !agrees(value)
            {
                let message = format!("wrote {value} to {} and then did not read it", self.name(key));
                self.break_with(Check::Replies, unit, &message, None);
            }
            return;
        }
        let source = match content {
            Content::Value(value) => self.source(unit, key, value),
            // Nothing and a written 0 are the same to an increment.
            Content::Number(0) if self.writers.contains_key(&(key, "\"0\"".to_owned())) => None,
            Content::Number(0) => self.source_of_absence(key),
            Content::Number(number) => self.source(unit, key, format!("\"{number}\"")),
            Content::Absent => self.source_of_absence(key),
        };
        self.note_read(unit, key, source);
    }

    fn note_read(&mut self, unit: usize, key: usize, source: Option<Source>) {
        match source {
            Some(source) => self.units[unit].reads.push((key, source)),
            None => self.complete = false,
        }
    }

    fn source_of_absence(&self, key: usize) -> Option<Source> {
        self.keys[key].clear.then_some(Source::Initial)
    }

    fn source(&mut self, unit: usize, key: usize, value: String) -> Option<Source> {
        if self.keys[key].ambiguous {
            return None;
        }
        let clear = self.keys[key].clear;
        let writers = self.writers.get(&(key, value.clone())).map_or(&[][..], Vec::as_slice);
        let name = self.keys[key].name.escape_ascii().to_string();
        match *writers {
            [] if clear => {
                let message = format!("saw {value} on {name}, which nobody wrote");
                self.break_with(Check::Replies, unit, &message, None);
                None
            }
            [writer] => {
                let number = self.units[writer.unit].number();
                if self.outcome(writer.unit) == Outcome::Aborted {
                    let message =
                        format!("saw {value} on {name}, which {number} wrote, and {number} aborted");
                    self.break_with(Check::Replies, unit, &message, Some(number));
                    return None;
                }
                if !writer.is_final {
                    let message =
                        format!("saw {value} on {name}, which {number} wrote and replaced before it ended");
                    self.break_with(Check::Replies, unit, &message, Some(number));
                }
                if writer.unit == unit {
                    let message = format!("saw {value} on {name} before it wrote that itself");
                    self.break_with(Check::Replies, unit, &message, None);
                    return None;
                }
                Some(Source::Written(writer.unit))
            }
            _ => None,
        }
    }

    /// A list was seen whole, with what the unit appended itself at its end.
    fn trace(
        &mut self,
        unit: usize,
        key: usize,
        mut elements: Vec<String>,
        own: Option<&Option<Vec<String>>>,
    ) {
        let Some(own) = own.map_or(Some(&[][..]), |own| own.as_deref()) else { return };
        let name = self.name(key);
        if !elements.ends_with(own) {
            let message = format!("appended [{}] to {name} and then did not read it", own.join(", "));
            return self.break_with(Check::Replies, unit, &message, None);
        }
        elements.truncate(elements.len() - own.len());
        let distinct: BTreeSet<&String> = elements.iter().collect();
        if self.keys[key].clear && distinct.len() < elements.len() {
            let message = format!("saw an element of {name} twice: [{}]", elements.join(", "));
            let twice = elements.iter().any(|element| {
                let appended = self.writers.get(&(key, element.clone())).map_or(0, Vec::len);
                elements.iter().filter(|other| *other == element).count() > appended
            });
            if twice {
                return self.break_with(Check::ExactlyOnce, unit, &message, None);
            }
        }
        let source = match elements.last() {
            Some(last) => self.source(unit, key, last.clone()),
            None => self.source_of_absence(key),
        };
        self.note_read(unit, key, source);
        if !self.keys[key].clear {
            // Something else than appends happened to it.
            return;
        }
        let known = &mut self.keys[key].trace;
        let shared = known.len().min(elements.len());
        if known[..shared] != elements[..shared] {
            let message = format!(
                "saw [{}] on {name}, which is no continuation of [{}], and somebody saw that",
                elements.join(", "),
                known.join(", ")
            );
            self.break_with(Check::Order, unit, &message, None);
        } else if elements.len() > known.len() {
            *known = elements;
        }
    }

    fn note_length(&mut self, unit: usize, key: usize, length: usize) {
        if !self.keys[key].clear {
            // Something else than appends happened to it.
            return;
        }
        let other = self.keys[key].lengths.insert(length, unit);
        if let Some(other) = other.filter(|other| *other != unit) {
            let number = self.units[other].number();
            let message = format!(
                "appended to {} and was told the length {length}, and so was {number}",
                self.name(key)
            );
            self.break_with(Check::Replies, unit, &message, Some(number));
        }
    }

    fn name(&self, key: usize) -> String {
        self.keys[key].name.escape_ascii().to_string()
    }

    fn break_with(&mut self, check: Check, unit: usize, message: &str, other: Option<u64>) {
        let number = self.units[unit].number();
        let numbers = other.into_iter().chain([number]).collect();
        self.broken.push((check, format!("transaction {number} {message}"), numbers));
    }

    /// Lists tell the order of what was appended to them.
    fn order_lists(&mut self) {
        for key in 0..self.keys.len() {
            let mut places = std::mem::take(&mut self.keys[key].lengths);
            for (index, element) in self.keys[key].trace.iter().enumerate() {
                if let Some([writer]) = self.writers.get(&(key, element.clone())).map(Vec::as_slice)
                    && writer.is_final
                {
                    places.entry(index + 1).or_insert(writer.unit);
                }
            }
            let mut before = Source::Initial;
            for unit in places.into_values() {
                if before != Source::Written(unit) {
                    self.keys[key].next.push((before, unit));
                }
                before = Source::Written(unit);
            }
        }
    }

    /// Leaves out unseen transactions of unknown outcome, and derives what followed each version that was read.
    fn finish(mut self) -> Accesses<'d, 'h> {
        let mut counts: Vec<bool> =
            (0..self.units.len()).map(|unit| self.outcome(unit) == Outcome::Committed).collect();
        let certain = (0..self.units.len()).filter(|unit| counts[*unit]);
        let listed = self.keys.iter().flat_map(|key| &key.next).map(|(_, unit)| *unit);
        let mut seeing: Vec<usize> = certain.chain(listed.clone()).collect();
        listed.for_each(|unit| counts[unit] = true);
        while let Some(unit) = seeing.pop() {
            for (_, source) in &self.units[unit].reads {
                if let Source::Written(seen) = source
                    && !std::mem::replace(&mut counts[*seen], true)
                {
                    seeing.push(*seen);
                }
            }
        }
        let places: Vec<Option<usize>> = counts
            .iter()
            .scan(0, |next, counts| {
                let place = counts.then_some(*next);
                *next += usize::from(*counts);
                Some(place)
            })
            .collect();
        for ((key, _), writers) in &self.writers {
            for writer in writers.iter().filter(|writer| counts[writer.unit]) {
                self.units[writer.unit].writes.insert(*key);
            }
        }
        let moved = |source: Source| match source {
            Source::Written(unit) => Source::Written(places[unit].unwrap_or(unit)),
            Source::Initial => Source::Initial,
        };
        for key in &mut self.keys {
            key.next = key.next.iter().filter_map(|(from, to)| Some((moved(*from), places[*to]?))).collect();
        }
        let counted = self.units.into_iter().zip(&counts).filter(|(_, counts)| **counts);
        let mut units: Vec<Unit<'d, 'h>> = counted.map(|(unit, _)| unit).collect();
        for (index, unit) in units.iter_mut().enumerate() {
            unit.reads.iter_mut().for_each(|(_, source)| *source = moved(*source));
            for key in &unit.writes {
                self.keys[*key].writers.push(index);
            }
            for (key, source) in &unit.reads {
                if unit.writes.contains(key) {
                    self.keys[*key].next.push((*source, index));
                }
            }
        }
        Accesses { units, keys: self.keys, complete: self.complete, broken: self.broken }
    }
}
