//! The options of SORT.

use crate::plan::Call;
use datatypes::{Operation, dict, register};
use types::Error;

/// The options of SORT.
#[derive(Debug, Default)]
pub(super) struct Options {
    pub(super) descending: bool,
    /// Compares bytes, not numbers.
    pub(super) alpha: bool,
    /// How many elements are skipped, and how many are wanted; all if negative.
    pub(super) limit: Option<(i64, i64)>,
    pub(super) by: Option<Pattern>,
    pub(super) get: Vec<Pattern>,
    pub(super) store: Option<Box<[u8]>>,
}

impl Options {
    pub(super) fn read(call: &Call<'_>, may_store: bool) -> Result<Self, Error> {
        let (mut options, mut index) = (Options::default(), 2);
        while index < call.len() {
            // How many arguments the option has.
            let arguments = match () {
                () if call.is(index, "LIMIT") => 2,
                () if ["STORE", "BY", "GET"].iter().any(|word| call.is(index, word)) => 1,
                () => 0,
            };
            if index + arguments >= call.len() {
                return Err(Error::syntax());
            }
            match () {
                () if call.is(index, "ASC") => options.descending = false,
                () if call.is(index, "DESC") => options.descending = true,
                () if call.is(index, "ALPHA") => options.alpha = true,
                () if call.is(index, "LIMIT") => {
                    options.limit = Some((call.integer(index + 1)?, call.integer(index + 2)?));
                }
                () if call.is(index, "BY") => options.by = Some(Pattern::ordering(call.bytes(index + 1))),
                () if call.is(index, "GET") => options.get.push(Pattern::new(call.bytes(index + 1))),
                () if call.is(index, "STORE") && may_store => {
                    options.store = Some(call.bytes(index + 1).into());
                }
                () => return Err(Error::syntax()),
            }
            index += 1 + arguments;
        }
        Ok(options)
    }

    /// False when a pattern without a place for the element asks to leave the order as it is.
    pub(super) fn sorts(&self) -> bool {
        !matches!(self.by, Some(Pattern::Nothing))
    }

    /// True when it reads other keys than the collection's.
    pub(super) fn looks_up(&self) -> bool {
        let is_key = |pattern: &Pattern| matches!(pattern, Pattern::Key { .. });
        self.by.as_ref().is_some_and(is_key) || self.get.iter().any(is_key)
    }

    /// The collection is a set, which has no order to leave as it is: its members are sorted by their bytes,
    /// so that scripts and STORE do the same everywhere.
    pub(super) fn order_set(&mut self) {
        if !self.sorts() {
            (self.by, self.alpha) = (None, true);
        }
    }
}

/// Where a command's key for STORE stands, if it has one: COMMAND GETKEYS tells it.
pub(crate) fn destination(arguments: resp::Arguments<'_>) -> Option<usize> {
    let is = |index: &usize, word: &str| {
        arguments.get(*index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    };
    let (mut index, mut found) = (2, None);
    while index < arguments.len() {
        if is(&index, "STORE") && index + 1 < arguments.len() {
            found = Some(index + 1);
        }
        index += match () {
            () if is(&index, "LIMIT") => 3,
            () if ["STORE", "BY", "GET"].iter().any(|word| is(&index, word)) => 2,
            () => 1,
        };
    }
    found
}

/// Which key belongs to an element.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    /// `#`: none, the element itself is meant.
    Element,
    /// None: there is no `*` for the element.
    Nothing,
    /// The element stands for the `*`.
    Key {
        /// What stands before it.
        before: Vec<u8>,
        /// What stands behind it.
        behind: Vec<u8>,
        /// The field of the hash at that key; without one, the string there is meant.
        field: Option<Vec<u8>>,
    },
}

impl Pattern {
    pub(super) fn new(text: &[u8]) -> Self {
        if text == b"#" { Pattern::Element } else { Pattern::ordering(text) }
    }

    /// The pattern of BY, for which `#` is a text as any other.
    fn ordering(text: &[u8]) -> Self {
        let Some(star) = text.iter().position(|byte| *byte == b'*') else { return Pattern::Nothing };
        let (before, behind) = (&text[..star], &text[star + 1..]);
        let arrow = behind.windows(2).position(|pair| pair == b"->");
        let (behind, field) = match arrow {
            // An arrow without a field behind it is part of the key.
            Some(arrow) if arrow + 2 < behind.len() => (&behind[..arrow], Some(behind[arrow + 2..].to_vec())),
            _ => (behind, None),
        };
        Pattern::Key { before: before.to_vec(), behind: behind.to_vec(), field }
    }

    /// The key of an element.
    pub(super) fn key(&self, element: &[u8]) -> Option<Vec<u8>> {
        match self {
            Pattern::Element | Pattern::Nothing => None,
            Pattern::Key { before, behind, .. } => Some([before, element, behind].concat()),
        }
    }

    /// What reads the key.
    pub(super) fn operation(&self) -> Operation<'_> {
        match self {
            Pattern::Key { field: Some(field), .. } => Operation::Dict(dict::Operation::Get { field }),
            _ => Operation::Register(register::Operation::Get),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pattern;

    #[test]
    fn patterns_name_keys_and_fields() {
        let key = |before: &[u8], behind: &[u8], field: Option<&[u8]>| Pattern::Key {
            before: before.to_vec(),
            behind: behind.to_vec(),
            field: field.map(<[u8]>::to_vec),
        };
        for (text, pattern) in [
            ("#", Pattern::Element),
            ("nosort", Pattern::Nothing),
            ("a->b", Pattern::Nothing),
            ("w_*", key(b"w_", b"", None)),
            ("w_*_x*", key(b"w_", b"_x*", None)),
            ("h_*->f", key(b"h_", b"", Some(b"f"))),
            ("h_*x->f->g", key(b"h_", b"x", Some(b"f->g"))),
            ("h_*->", key(b"h_", b"->", None)),
            ("->*", key(b"->", b"", None)),
        ] {
            assert_eq!(Pattern::new(text.as_bytes()), pattern, "{text}");
        }
    }
}
