//! How constraints, states and values are written and read in commands.
//!
//! A constraint is one of the table in `docs/consistency/branch.md`; `AND` is intersection and binds tighter than `OR`,
//! which is union: `ANCESTOR AND K 3 OR STATE 12@3.1`.

use crate::site::Named;
use crate::{Begin, End, StateId};
use datatypes::{
    Operation, Value, counter, dict, key, list, register, scored_set, set, stream, summary, top,
};
use std::str::FromStr;
use types::Error;

/// The words of a command that have not been read, and the names that may stand for states in them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Words<'a>(&'a [&'a [u8]], &'a Named);

impl<'a> Words<'a> {
    pub fn new(words: &'a [&'a [u8]], names: &'a Named) -> Self {
        Words(words, names)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next word.
    pub fn word(&mut self) -> Result<&'a [u8], Error> {
        let (first, rest) = self.0.split_first().ok_or_else(Error::syntax)?;
        self.0 = rest;
        Ok(first)
    }

    /// The next word, which stays.
    pub fn peek(&self) -> Result<&'a [u8], Error> {
        self.0.first().copied().ok_or_else(Error::syntax)
    }

    /// The next word in upper case, if there is one.
    pub fn upper(&mut self) -> Option<String> {
        let word = self.word().ok()?;
        Some(String::from_utf8_lossy(word).to_ascii_uppercase())
    }

    /// Takes the next word if it is this one, in any case.
    pub fn take(&mut self, word: &str) -> bool {
        let is_next = self.0.first().is_some_and(|next| next.eq_ignore_ascii_case(word.as_bytes()));
        if is_next {
            self.0 = &self.0[1..];
        }
        is_next
    }

    /// A number.
    pub fn number<N: FromStr>(&mut self) -> Result<N, Error> {
        let word = self.word()?;
        let number = std::str::from_utf8(word).ok().and_then(|word| word.parse().ok());
        number.ok_or_else(Error::not_an_integer)
    }

    /// The id of a state, or the name of one.
    pub fn state(&mut self) -> Result<StateId, Error> {
        let word = String::from_utf8_lossy(self.word()?);
        if let Some(state) = self.1.get(&*word) {
            return Ok(*state);
        }
        word.parse().map_err(|malformed: crate::MalformedId| Error::err(malformed.to_string()))
    }

    /// There must be nothing more.
    pub fn end(&self) -> Result<(), Error> {
        match self.0.first() {
            None => Ok(()),
            Some(word) => {
                Err(Error::err(format!("'{}' is not expected here", String::from_utf8_lossy(word))))
            }
        }
    }
}

/// Reads parts joined by OR and, tighter, by AND.
fn joined<'a, C>(
    words: &mut Words<'a>,
    part: fn(&mut Words<'a>) -> Result<C, Error>,
    all: fn(Vec<C>) -> C,
    either: fn(Vec<C>) -> C,
) -> Result<C, Error> {
    let mut some = Vec::new();
    loop {
        let mut every = vec![part(words)?];
        while words.take("AND") {
            every.push(part(words)?);
        }
        some.push(one_or(every, all));
        if !words.take("OR") {
            return Ok(one_or(some, either));
        }
    }
}

fn one_or<C>(mut constraints: Vec<C>, join: fn(Vec<C>) -> C) -> C {
    match constraints.len() {
        1 => constraints.remove(0),
        _ => join(constraints),
    }
}

/// A begin constraint.
///
/// # Errors
/// Says what is possible.
pub(crate) fn begin(words: &mut Words<'_>) -> Result<Begin, Error> {
    joined(words, begin_part, Begin::All, Begin::Either)
}

fn begin_part(words: &mut Words<'_>) -> Result<Begin, Error> {
    Ok(match words.upper().as_deref() {
        Some("ANY") => Begin::Any,
        Some("ANCESTOR") => Begin::Ancestor,
        Some("PARENT") => Begin::Parent,
        Some("STATE") => Begin::State(words.state()?),
        Some("K") => Begin::Branching(words.number()?),
        _ => {
            return Err(Error::err(
                "a begin constraint is ANY, ANCESTOR, PARENT, STATE id or K n, joined by AND and OR",
            ));
        }
    })
}

/// An end constraint.
///
/// # Errors
/// Says what is possible.
pub(crate) fn end(words: &mut Words<'_>) -> Result<End, Error> {
    joined(words, end_part, End::All, End::Either)
}

fn end_part(words: &mut Words<'_>) -> Result<End, Error> {
    Ok(match words.upper().as_deref() {
        Some("ANY") => End::Any,
        Some("SERIALIZABLE") => End::Serializability,
        Some("SNAPSHOT") => End::SnapshotIsolation,
        Some("READCOMMITTED") => End::ReadCommitted,
        Some("NOBRANCH") => End::NoBranching,
        Some("K") => End::Branching(words.number()?),
        Some("ANCESTOR") => End::Ancestor,
        Some("PARENT") => End::Parent,
        Some("STATE") => End::State(words.state()?),
        _ => {
            return Err(Error::err(
                "an end constraint is ANY, SERIALIZABLE, SNAPSHOT, READCOMMITTED, NOBRANCH, K n, ANCESTOR, PARENT or \
                 STATE id, joined by AND and OR",
            ));
        }
    })
}

/// The operation that shows all of a value.
pub(crate) fn all_of(value: &Value) -> Operation<'static> {
    match value {
        Value::Register(_) => Operation::Register(register::Operation::Get),
        Value::Dict(_) => Operation::Dict(dict::Operation::GetAll),
        Value::Set(_) => Operation::Set(set::Operation::Members),
        Value::ScoredSet(_) => Operation::ScoredSet(scored_set::Operation::Range {
            by: scored_set::RangeBy::Index { start: 0, stop: -1 },
            reverse: false,
            limit: None,
            with_scores: true,
        }),
        Value::List(_) => Operation::List(list::Operation::Range { start: 0, stop: -1 }),
        Value::Counter(_) => Operation::Counter(counter::Operation::Get),
        Value::SummaryBag(_) => Operation::SummaryBag(summary::Operation::ReadAll),
        Value::Top(_) => Operation::Top(top::Operation::Range { start: 0, stop: -1, with_scores: true }),
        // It has nothing that two reads could agree on.
        Value::UidGenerator(_) => Operation::Key(key::Operation::Type),
        Value::Stream(_) => Operation::Stream(stream::Operation::DescribeAll { count: 0 }),
        Value::User(_) => Operation::Key(key::Operation::Copy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read<C>(text: &str, parse: fn(&mut Words<'_>) -> Result<C, Error>) -> Result<C, Error> {
        let words: Vec<&[u8]> = text.split(' ').map(str::as_bytes).collect();
        let names = Named::new();
        let mut words = Words::new(&words, &names);
        let constraint = parse(&mut words)?;
        words.end()?;
        Ok(constraint)
    }

    #[test]
    fn constraints_are_joined_by_and_before_or() {
        assert_eq!(read("any", begin).ok(), Some(Begin::Any));
        let joined = read("Ancestor AND K 3 OR state 12@3.1", begin).ok();
        let id = "12@3.1".parse().unwrap_or_default();
        assert_eq!(
            joined,
            Some(Begin::Either(vec![
                Begin::All(vec![Begin::Ancestor, Begin::Branching(3)]),
                Begin::State(id)
            ]))
        );
        assert_eq!(
            read("SERIALIZABLE AND NOBRANCH", end).ok(),
            Some(End::All(vec![End::Serializability, End::NoBranching]))
        );
    }

    #[test]
    fn what_is_no_constraint_is_refused() {
        for text in ["", "SERIALIZABLE", "ANY OR", "ANY ANY", "K", "K x", "STATE", "STATE 12", "AND ANY"] {
            assert!(read(text, begin).is_err(), "{text}");
        }
        assert!(read("ANCESTRY", end).is_err());
    }
}
