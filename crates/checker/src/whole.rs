//! Whole values in replies, of which RENAME is made: the binary form of a collection lists what it holds in any order.

use datatypes::{Cell, Operation, key};
use types::Reader;

/// True for two replies that hold the same value.
pub(crate) fn is_same_value(operation: &Operation<'_>, expected: &str, seen: &str) -> bool {
    let is_whole = matches!(operation, Operation::Key(key::Operation::Copy | key::Operation::Take));
    is_whole && cell(expected).is_some_and(|expected| cell(seen) == Some(expected))
}

fn cell(reply: &str) -> Option<Cell> {
    let quoted = reply.strip_prefix('"')?.strip_suffix('"')?;
    let bytes = unescaped(quoted.as_bytes())?;
    let mut input = Reader::new(&bytes);
    Cell::decode(&mut input).ok().filter(|_| input.is_empty())
}

/// Takes back what `escape_ascii` did.
fn unescaped(mut text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    while let Some((first, rest)) = text.split_first() {
        let (byte, rest) = match (first, rest) {
            (b'\\', [b'x', digits @ ..]) => {
                let (number, rest) = digits.split_at_checked(2)?;
                (u8::from_str_radix(std::str::from_utf8(number).ok()?, 16).ok()?, rest)
            }
            (b'\\', [b't', rest @ ..]) => (b'\t', rest),
            (b'\\', [b'r', rest @ ..]) => (b'\r', rest),
            (b'\\', [b'n', rest @ ..]) => (b'\n', rest),
            (b'\\', [other, rest @ ..]) => (*other, rest),
            (byte, rest) => (*byte, rest),
        };
        bytes.push(byte);
        text = rest;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::{Effect, Items, apply, set};

    #[test]
    fn every_byte_comes_back() {
        let all: Vec<u8> = (0..=u8::MAX).collect();
        assert_eq!(unescaped(all.escape_ascii().to_string().as_bytes()), Some(all));
    }

    #[test]
    fn the_order_of_members_is_of_no_matter() {
        let reply = |members: [&[u8]; 2]| {
            let mut cell = Cell::ABSENT;
            for member in members {
                let effect = Effect::Set(set::Effect::Add { members: Items::one(member) });
                apply::<false>(&mut cell, &effect);
            }
            let mut bytes = Vec::new();
            cell.encode(&mut bytes);
            format!("\"{}\"", bytes.escape_ascii())
        };
        let take = Operation::Key(key::Operation::Take);
        let (one, other) = (reply([b"a", b"b"]), reply([b"b", b"a"]));
        assert_ne!(one, other, "else there is nothing to show");
        assert!(is_same_value(&take, &one, &other));
        assert!(!is_same_value(&take, &one, &reply([b"a", b"c"])));
        assert!(!is_same_value(&Operation::Key(key::Operation::Exists), &one, &other));
    }
}
