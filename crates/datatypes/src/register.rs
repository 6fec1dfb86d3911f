//! Register: bytes, or an integer that counts. Redis's string, with all that Redis sees in one: bits, floating-point
//! numbers, HyperLogLogs.
//!
//! Blind increments commute with one another, unions of HyperLogLogs too, and writes of different bits. Everything else is
//! a read, a write of the whole, or an edit, which changes what it finds where it is applied.

mod apply;
mod big;
pub mod bits;
mod effect;
mod execute;
pub mod hyperloglog;
mod long_double;
mod operation;

pub use apply::apply;
pub(crate) use apply::{add, exchange_splice, exchange_tail};
pub use effect::{Effect, effects_commute};
pub use execute::prepare;
pub use long_double::{LongDouble, Parsed};
pub use operation::{Condition, Deadline, Operation, SetReply, UnionReply};

use types::{Malformed, Reader, put_bytes};

/// The longest value, in bytes (Redis's proto-max-bulk-len).
pub const MAX_BYTES: usize = 512 * 1024 * 1024;

/// The state: canonical decimal integers are stored as numbers, everything else as bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Register {
    /// The number whose canonical decimal form is the value.
    Integer(i64),
    /// Any other bytes.
    Bytes(Vec<u8>),
}

impl Default for Register {
    fn default() -> Self {
        Register::Bytes(Vec::new())
    }
}

impl Register {
    /// The state for these bytes.
    pub fn new(bytes: &[u8]) -> Self {
        match parse_integer(bytes) {
            Some(number) => Register::Integer(number),
            None => Register::Bytes(bytes.to_vec()),
        }
    }

    /// The state for bytes that are given away.
    fn from_bytes(bytes: Vec<u8>) -> Self {
        match parse_integer(&bytes) {
            Some(number) => Register::Integer(number),
            None => Register::Bytes(bytes),
        }
    }

    fn into_bytes(self) -> Vec<u8> {
        match self {
            Register::Integer(number) => itoa::Buffer::new().format(number).as_bytes().to_vec(),
            Register::Bytes(bytes) => bytes,
        }
    }

    /// Calls `read` with the value's bytes.
    pub fn with_bytes<R>(&self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Register::Integer(number) => read(itoa::Buffer::new().format(*number).as_bytes()),
            Register::Bytes(bytes) => read(bytes),
        }
    }

    /// The length of the value, in bytes.
    pub fn len(&self) -> usize {
        self.with_bytes(<[u8]>::len)
    }

    /// True for the empty value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        match self {
            Register::Integer(_) => 0,
            Register::Bytes(bytes) => bytes.capacity().next_multiple_of(16),
        }
    }

    /// Takes new bytes, in place if they fit well.
    fn set(&mut self, value: &[u8]) {
        if let Some(number) = parse_integer(value) {
            *self = Register::Integer(number);
            return;
        }
        match self {
            Register::Bytes(bytes)
                if value.len() <= bytes.capacity() && bytes.capacity() <= 2 * value.len() + 32 =>
            {
                bytes.clear();
                bytes.extend_from_slice(value);
            }
            _ => *self = Register::Bytes(value.to_vec()),
        }
    }
}

/// The integer whose canonical decimal form `bytes` are, if they are one.
#[inline]
pub fn parse_integer(bytes: &[u8]) -> Option<i64> {
    let (negative, digits) = match bytes {
        [b'-', digits @ ..] => (true, digits),
        digits => (false, digits),
    };
    match digits {
        [b'0'] if !negative => return Some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < 19 && rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    // At most 19 digits: the magnitude fits into u64.
    let magnitude =
        digits.iter().fold(0u64, |sum, digit| sum.wrapping_mul(10).wrapping_add(u64::from(digit - b'0')));
    if negative {
        (magnitude <= 1 << 63).then(|| (magnitude as i64).wrapping_neg())
    } else {
        i64::try_from(magnitude).ok()
    }
}

/// Appends a state's binary form.
pub fn encode_state(register: &Register, out: &mut Vec<u8>) {
    register.with_bytes(|bytes| put_bytes(out, bytes));
}

/// Reads a state's binary form.
pub fn decode_state(input: &mut Reader<'_>) -> Result<Register, Malformed> {
    Ok(Register::new(input.bytes()?))
}
