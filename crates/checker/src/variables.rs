//! What can be expressed of a history as reads and writes of registers, each value of which names a version.
//!
//! A register is a variable. So is each element of a set or a list that only grows: its addition is the only write, and
//! whoever sees all elements reads each of them, as there or not; the order of a list is not expressed. What names no
//! version is left out in a way that makes no good history bad: with a write that names none its key is left out of
//! every transaction, as is an element that was added twice; a read that names none is left out by itself. Counters
//! name no version where concurrent updates are merged.

use crate::history::{Outcome, Step, Transaction};
use crate::invocations::{Decoded, DecodedStep};
use crate::touches::{Content, Touch, elements, members, quoted, touches};
use datatypes::{Items, Operation, key, list, register, set};
use std::collections::{BTreeMap, BTreeSet};

/// What a step says about versions.
pub(crate) enum Said {
    /// It read or wrote a register.
    Register(Vec<Touch>),
    /// It added elements.
    Adds(BTreeSet<String>),
    /// It saw all elements.
    Shows(Vec<String>),
    /// It saw whether one element is there.
    Contains(String, bool),
    /// Nothing that names a version.
    Nothing,
    /// It wrote something that names no version.
    Unclear,
}

impl Said {
    pub(crate) fn of(step: &DecodedStep<'_>) -> Said {
        let unclear = if step.operation.is_read() { Said::Nothing } else { Said::Unclear };
        if step.observed.is_some_and(|reply| reply.starts_with('-')) {
            return unclear;
        }
        let all = |values: &Items<'_>| values.iter().map(quoted).collect();
        match (&step.operation, step.observed) {
            (Operation::Set(set::Operation::Add { members }), _) => Said::Adds(all(members)),
            (Operation::List(list::Operation::Push { values, only_if_exists: false, .. }), _) => {
                Said::Adds(all(values))
            }
            (Operation::Set(set::Operation::Members), Some(reply)) => {
                members(reply).map_or(unclear, Said::Shows)
            }
            (Operation::List(list::Operation::Range { start: 0, stop: -1 }), Some(reply)) => {
                elements(reply).map_or(unclear, Said::Shows)
            }
            (Operation::Set(set::Operation::Contains { member }), Some(reply)) => {
                Said::Contains(quoted(member), reply == "(integer) 1")
            }
            // It takes off what is recorded beside the state.
            (Operation::Key(key::Operation::Resolve { .. }), _) => Said::Nothing,
            (Operation::Register(_), _) => {
                let touches = touches(step, true);
                let is_clear = |touch: &Touch| matches!(touch, Touch::Read(_) | Touch::Write(_));
                match touches.is_empty() || !touches.iter().all(is_clear) {
                    true => unclear,
                    false => Said::Register(touches),
                }
            }
            _ => unclear,
        }
    }

    /// What it wrote.
    fn written(&self) -> Vec<&String> {
        match self {
            Said::Register(touches) => (touches.iter())
                .filter_map(|touch| match touch {
                    Touch::Write(value) => Some(value),
                    _ => None,
                })
                .collect(),
            Said::Adds(added) => added.iter().collect(),
            _ => Vec::new(),
        }
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
    /// Values that several transactions wrote, and the first two of these; elements that several steps added.
    twice: BTreeMap<String, [u64; 2]>,
    /// Why it is left out.
    left_out: Option<String>,
}

impl Facts {
    fn note(&mut self, said: &Said, writer: u64) {
        for value in said.written() {
            let first = self.writers.get(value).copied();
            self.writers.entry(value.clone()).or_insert(writer);
            let is_element = matches!(said, Said::Adds(_));
            if let Some(first) = first.filter(|first| *first != writer || is_element) {
                self.twice.entry(value.clone()).or_insert([first, writer]);
            }
        }
        match said {
            Said::Register(_) => self.is_register = true,
            Said::Adds(added) => self.elements.extend(added.iter().cloned()),
            Said::Shows(seen) => self.elements.extend(seen.iter().cloned()),
            Said::Contains(element, _) => {
                self.elements.insert(element.clone());
            }
            Said::Nothing | Said::Unclear => {}
        }
    }

    fn why_left_out(self) -> Result<Self, String> {
        if let Some(why) = self.left_out {
            return Err(why);
        }
        if self.is_register && !self.elements.is_empty() {
            return Err("it had several types".to_owned());
        }
        match self.twice.iter().next().filter(|_| self.is_register) {
            Some((value, [first, second])) => {
                Err(format!("transactions {first} and {second} both wrote {value}"))
            }
            None => Ok(self),
        }
    }
}

/// The variables of a history.
pub(crate) struct Variables<'h> {
    expressed: BTreeMap<&'h [u8], Facts>,
    /// Keys that are left out, and why.
    pub left_out: BTreeMap<&'h [u8], String>,
}

/// A key, or an element of one.
pub(crate) type Variable<'h> = (&'h [u8], Option<String>);

/// A read or a write of a variable; no value is that nothing is there.
pub(crate) struct Access<'h> {
    pub is_write: bool,
    pub variable: Variable<'h>,
    pub value: Option<String>,
}

impl<'h> Variables<'h> {
    pub fn new(history: &[Decoded<'h>]) -> Self {
        let mut all = BTreeMap::<&[u8], Facts>::new();
        for transaction in history {
            for (index, step) in transaction.steps.iter().enumerate() {
                let (said, facts) = (Said::of(step), all.entry(step.key).or_default());
                facts.note(&said, transaction.number());
                if matches!(said, Said::Unclear) && transaction.transaction.outcome != Outcome::Aborted {
                    facts.left_out.get_or_insert_with(|| inexpressible(transaction, index));
                }
            }
        }
        let mut variables = Variables { expressed: BTreeMap::new(), left_out: BTreeMap::new() };
        for (key, facts) in all {
            match facts.why_left_out() {
                Ok(facts) => {
                    variables.expressed.insert(key, facts);
                }
                Err(why) => {
                    variables.left_out.insert(key, why);
                }
            }
        }
        variables
    }

    /// How many keys the history has.
    pub fn keys(&self) -> usize {
        self.expressed.len() + self.left_out.len()
    }

    /// How many elements were added twice.
    pub fn repeated(&self) -> usize {
        self.expressed.values().filter(|facts| !facts.is_register).map(|facts| facts.twice.len()).sum()
    }

    /// All variables, in order.
    pub fn iter(&self) -> impl Iterator<Item = Variable<'h>> + '_ {
        self.expressed.iter().flat_map(|(key, facts)| {
            let register = facts.is_register.then_some((*key, None));
            register.into_iter().chain(elements_of(facts).map(|element| (*key, Some(element.clone()))))
        })
    }

    /// What a step did; `None` if its key is expressed and the step names no version.
    pub fn accesses(&self, step: &DecodedStep<'h>) -> Option<Vec<Access<'h>>> {
        let Some(facts) = self.expressed.get(step.key) else { return Some(Vec::new()) };
        let access = |is_write, element: Option<&String>, value: Option<&String>| Access {
            is_write,
            variable: (step.key, element.cloned()),
            value: value.cloned(),
        };
        let names_version = |element: &&String| !facts.twice.contains_key(*element);
        Some(match Said::of(step) {
            Said::Register(touches) => {
                let as_access = |touch: &Touch| match touch {
                    Touch::Read(Content::Value(value)) => Some(access(false, None, Some(value))),
                    Touch::Read(_) => Some(access(false, None, None)),
                    Touch::Write(value) => Some(access(true, None, Some(value))),
                    _ => None,
                };
                touches.iter().filter_map(as_access).collect()
            }
            Said::Adds(added) => {
                added.iter().filter(names_version).map(|one| access(true, Some(one), Some(one))).collect()
            }
            Said::Shows(seen) => {
                let seen: BTreeSet<&String> = seen.iter().collect();
                elements_of(facts).map(|one| access(false, Some(one), seen.get(one).copied())).collect()
            }
            Said::Contains(one, is_there) => {
                let one = Some(&one).filter(names_version);
                one.map(|one| access(false, Some(one), is_there.then_some(one))).into_iter().collect()
            }
            Said::Nothing | Said::Unclear => return None,
        })
    }
}

/// The elements of which each was added once, at most.
fn elements_of(facts: &Facts) -> impl Iterator<Item = &String> {
    facts.elements.iter().filter(|element| !facts.twice.contains_key(*element))
}

/// The history on its variables alone, each as a register; `None` if a binary form is malformed, or if nobody read
/// a variable. What breaks a level there breaks it in the whole history.
pub(crate) fn on_registers(history: &[Transaction]) -> Option<Vec<Transaction>> {
    let decoded: Vec<Decoded<'_>> = history.iter().map(Decoded::new).collect::<Option<_>>()?;
    let variables = Variables::new(&decoded);
    let steps = |(step, recorded): (&DecodedStep<'_>, &Step)| match (&step.operation, Said::of(step)) {
        (_, Said::Register(_)) if variables.expressed.contains_key(step.key) => vec![recorded.clone()],
        // What a transaction of unknown outcome read is known, too, if it took effect.
        (Operation::Register(register::Operation::Get), _) if variables.expressed.contains_key(step.key) => {
            vec![recorded.clone()]
        }
        _ => variables.accesses(step).unwrap_or_default().iter().map(Access::as_step).collect(),
    };
    let transaction = |decoded: &Decoded<'_>| {
        let recorded = decoded.transaction;
        let steps = decoded.steps.iter().zip(&recorded.steps).flat_map(steps).collect();
        Transaction { steps, ..recorded.clone() }
    };
    let registers: Vec<Transaction> = decoded.iter().map(transaction).collect();
    let certain = registers.iter().filter(|transaction| transaction.outcome == Outcome::Committed);
    let is_read = |step: &Step| step.reply.as_ref().is_some_and(|reply| reply != "OK");
    certain.flat_map(|transaction| &transaction.steps).any(is_read).then_some(registers)
}

impl Access<'_> {
    /// The same of a register with a name of its own.
    fn as_step(&self) -> Step {
        let (key, element) = &self.variable;
        let name = [key, element.as_deref().unwrap_or_default().as_bytes()].join(&b' ');
        let value = self.value.as_ref().map(String::as_bytes);
        match value.filter(|_| self.is_write) {
            Some(value) => Step::set(&name, value, true),
            None => Step::get(&name, Some(value)),
        }
    }
}

/// Why a step makes its key be left out.
pub(crate) fn inexpressible(transaction: &Decoded<'_>, step: usize) -> String {
    format!("transaction {} did {}", transaction.number(), transaction.transaction.steps[step].text)
}
