//! A reply that a client received, owned.

use std::borrow::Cow;
use std::fmt;

/// One reply of either protocol version. Attributes, which annotate a reply in RESP3, are not kept.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// The absence of a value: RESP2's null bulk string, RESP3's null.
    Null,
    /// RESP2's null array.
    NullArray,
    /// A status such as `OK`.
    Simple(Vec<u8>),
    /// An error, its code included.
    Error(Vec<u8>),
    /// An integer.
    Integer(i64),
    /// A byte string.
    Bulk(Vec<u8>),
    /// A floating-point number.
    Double(f64),
    /// A truth value.
    Boolean(bool),
    /// An integer of any size, in decimal.
    BigNumber(Vec<u8>),
    /// Human-readable text.
    Verbatim {
        /// What kind of text: `txt` or `mkd` (Markdown).
        format: [u8; 3],
        /// The text.
        text: Vec<u8>,
    },
    /// An array.
    Array(Vec<Value>),
    /// A set, in the order of its arrival.
    Set(Vec<Value>),
    /// A map, in the order of its arrival.
    Map(Vec<(Value, Value)>),
    /// A message that answers no command.
    Push(Vec<Value>),
}

impl Value {
    /// The bytes of anything textual: a status, a byte string, text, a big number.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match self {
            Value::Simple(bytes) | Value::Bulk(bytes) | Value::BigNumber(bytes) => Some(bytes),
            Value::Verbatim { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The integer, if the reply is one.
    pub fn as_integer(&self) -> Option<i64> {
        match self {
            Value::Integer(value) => Some(*value),
            _ => None,
        }
    }

    /// The error's text with its code, if the reply is an error; bytes that are not UTF-8 are replaced.
    pub fn as_error(&self) -> Option<Cow<'_, str>> {
        match self {
            Value::Error(text) => Some(String::from_utf8_lossy(text)),
            _ => None,
        }
    }

    /// The elements of an array, a set or a push.
    pub fn as_elements(&self) -> Option<&[Value]> {
        match self {
            Value::Array(elements) | Value::Set(elements) | Value::Push(elements) => Some(elements),
            _ => None,
        }
    }
}

impl fmt::Debug for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Null => f.write_str("Null"),
            Value::NullArray => f.write_str("NullArray"),
            Value::Simple(text) => write!(f, "Simple({})", text.escape_ascii()),
            Value::Error(text) => write!(f, "Error({})", text.escape_ascii()),
            Value::Integer(value) => write!(f, "{value}"),
            Value::Bulk(bytes) => write!(f, "\"{}\"", bytes.escape_ascii()),
            Value::Double(value) => write!(f, "Double({value})"),
            Value::Boolean(value) => write!(f, "{value}"),
            Value::BigNumber(digits) => write!(f, "BigNumber({})", digits.escape_ascii()),
            Value::Verbatim { text, .. } => write!(f, "Verbatim(\"{}\")", text.escape_ascii()),
            Value::Array(elements) => f.debug_list().entries(elements).finish(),
            Value::Set(elements) => {
                f.write_str("Set")?;
                f.debug_list().entries(elements).finish()
            }
            Value::Map(pairs) => {
                f.debug_map().entries(pairs.iter().map(|(key, value)| (key, value))).finish()
            }
            Value::Push(elements) => {
                f.write_str("Push")?;
                f.debug_list().entries(elements).finish()
            }
        }
    }
}
