//! What one operation says about versions: a value that is written once in a history names the version it makes.
//!
//! Registers are understood by `GET`, `SET`, `INCRBY`, `GETDEL` and `DEL`; lists by `RPUSH` and the reading of all elements, whose last
//! names the version and whose others name those before it. Anything else is unclear: it is left to checks that
//! execute operations. Where concurrent updates are merged, counters and lists name no version either.

use crate::invocations::DecodedStep;
use datatypes::{Operation, key, list, register};

/// What is at a key, as far as it names a version.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Content {
    /// Nothing.
    Absent,
    /// A register's value, quoted as in replies.
    Value(String),
    /// An integer that an increment started from: a missing key counts as 0.
    Number(i64),
}

/// A step's part in the order of versions.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Touch {
    /// It saw this.
    Read(Content),
    /// It left this.
    Write(String),
    /// It removed what was there.
    Erase,
    /// It appended these and saw the new length.
    Append(Vec<String>, Option<usize>),
    /// It saw all elements.
    Trace(Vec<String>),
    /// It read something that names no version.
    UnclearRead,
    /// It wrote something that names no version, or nothing at all.
    UnclearWrite,
}

/// What a step did; nothing for a read whose result nobody knows. Only registers are understood where updates may be
/// merged.
pub(crate) fn touches(step: &DecodedStep<'_>, merged: bool) -> Vec<Touch> {
    let unclear = || {
        let touch = if step.operation.is_read() { Touch::UnclearRead } else { Touch::UnclearWrite };
        vec![touch]
    };
    let settles = matches!(step.operation, Operation::Key(key::Operation::Resolve { .. }));
    if (step.observed.is_none() && step.operation.is_read()) || settles {
        return Vec::new();
    }
    if step.observed.is_some_and(|reply| reply.starts_with('-')) {
        return unclear();
    }
    match &step.operation {
        Operation::Register(register::Operation::Increment { .. }) | Operation::List(_) if merged => {
            unclear()
        }
        Operation::Register(operation) => register_touches(operation, step.observed).unwrap_or_else(unclear),
        Operation::List(operation) => list_touches(operation, step.observed).unwrap_or_else(unclear),
        Operation::Key(key::Operation::Delete) if step.observed == Some("(integer) 1") => vec![Touch::Erase],
        _ => unclear(),
    }
}

fn register_touches(operation: &register::Operation<'_>, observed: Option<&str>) -> Option<Vec<Touch>> {
    use register::{Condition, Deadline, Operation, SetReply};
    match operation {
        Operation::Get => Some(vec![Touch::Read(content(observed?)?)]),
        Operation::Set { value, deadline: Deadline::Clear | Deadline::Keep, condition, reply }
            if *condition == Condition::Always =>
        {
            let old = observed.filter(|_| *reply == SetReply::Old).map(content);
            let mut touches = Vec::new();
            if let Some(old) = old {
                touches.push(Touch::Read(old?));
            }
            touches.push(Touch::Write(quoted(value)));
            Some(touches)
        }
        Operation::Increment { by } => {
            let sum: i64 = observed?.strip_prefix("(integer) ")?.parse().ok()?;
            let before = Touch::Read(Content::Number(sum.checked_sub(*by)?));
            Some(vec![before, Touch::Write(format!("\"{sum}\""))])
        }
        Operation::GetDelete => match content(observed?)? {
            Content::Absent => Some(vec![Touch::Read(Content::Absent)]),
            value => Some(vec![Touch::Read(value), Touch::Erase]),
        },
        _ => None,
    }
}

fn list_touches(operation: &list::Operation<'_>, observed: Option<&str>) -> Option<Vec<Touch>> {
    match operation {
        list::Operation::Push { end: list::End::Back, values, only_if_exists: false } => {
            let length = observed.and_then(|reply| reply.strip_prefix("(integer) ")?.parse().ok());
            Some(vec![Touch::Append(values.iter().map(quoted).collect(), length)])
        }
        list::Operation::Range { start: 0, stop: -1 } => Some(vec![Touch::Trace(elements(observed?)?)]),
        _ => None,
    }
}

/// A value as [`crate::render`] writes it.
pub(crate) fn quoted(bytes: impl AsRef<[u8]>) -> String {
    format!("\"{}\"", bytes.as_ref().escape_ascii())
}

fn content(reply: &str) -> Option<Content> {
    match reply {
        "(nil)" => Some(Content::Absent),
        text if text.starts_with('"') => Some(Content::Value(text.to_owned())),
        _ => None,
    }
}

/// The elements of `["a", "b"]`, each with its quotes.
pub(crate) fn elements(reply: &str) -> Option<Vec<String>> {
    let mut rest = reply.strip_prefix('[')?.strip_suffix(']')?;
    let mut elements = Vec::new();
    while !rest.is_empty() {
        let mut escaped = false;
        let end = rest.char_indices().skip(1).find(|(_, character)| match character {
            '"' if !escaped => true,
            _ => {
                escaped = *character == '\\' && !escaped;
                false
            }
        })?;
        elements.push(rest[..=end.0].to_owned());
        rest = &rest[end.0 + 1..];
        rest = rest.strip_prefix(", ").unwrap_or(rest);
    }
    Some(elements)
}

/// The members of `{"a", "b"}`, each with its quotes.
pub(crate) fn members(reply: &str) -> Option<Vec<String>> {
    elements(&format!("[{}]", reply.strip_prefix('{')?.strip_suffix('}')?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_may_hold_what_separates_them() {
        assert_eq!(elements("[]"), Some(vec![]));
        let tricky = [quoted(b"a\", \"b"), quoted(b"\\"), quoted(b"")];
        assert_eq!(elements(&format!("[{}]", tricky.join(", "))), Some(tricky.to_vec()));
        assert_eq!(elements("[\"a]"), None);
        assert_eq!(members("{\"a\", \"}\"}"), Some(vec![quoted(b"a"), quoted(b"}")]));
    }
}
