//! Register: bytes, or an integer that counts. Redis's string.
//!
//! Blind increments commute with one another; everything else is a read or a write of the whole.

mod big;
mod long_double;

pub use long_double::{LongDouble, Parsed};

use crate::observation::Footprint;
use crate::{Aspect, Cell, Context, Kind, Observation, Patch, Value};
use types::{Error, Malformed, Reader, ReplySink, Wire, put_bytes, wire_enum};

/// The longest value, in bytes (Redis's proto-max-bulk-len).
pub const MAX_BYTES: usize = 512 * 1024 * 1024;

/// The state: canonical decimal integers are kept as numbers, everything else as bytes.
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

/// When SET takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Always.
    Always,
    /// NX: only if the key is absent.
    IfAbsent,
    /// XX: only if the key is there.
    IfPresent,
}
wire_enum!(Condition { 0 => Always, 1 => IfAbsent, 2 => IfPresent });

/// What becomes of the deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Deadline {
    /// It is dropped.
    Clear,
    /// It stays.
    Keep,
    /// It is this, in milliseconds since 1970.
    At {
        /// Milliseconds since 1970.
        millis: u64,
    },
}
wire_enum!(Deadline { 0 => Clear, 1 => Keep, 2 => At { millis } });

/// What SET replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetReply {
    /// `OK`, or null when the condition failed.
    Status,
    /// 1, or 0 when the condition failed (SETNX).
    Flag,
    /// The old value or null, whatever the condition (SET GET, GETSET).
    Old,
}
wire_enum!(SetReply { 0 => Status, 1 => Flag, 2 => Old });

/// An operation on a register.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// The value or null.
    Get,
    /// Writes the value, over any type.
    Set {
        /// The value.
        value: &'a [u8],
        /// What becomes of the deadline.
        deadline: Deadline,
        /// When to do it.
        condition: Condition,
        /// What to reply.
        reply: SetReply,
    },
    /// Appends: the new length.
    Append {
        /// What to append.
        value: &'a [u8],
    },
    /// The length; 0 if absent.
    Length,
    /// Adds: the sum. Refused when the value is no integer or the sum overflows.
    Increment {
        /// The summand.
        by: i64,
    },
    /// The value or null, and the key is removed.
    GetDelete,
}

/// A mutation of a register.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// The value is this, whatever was there.
    Set {
        /// The value.
        value: &'a [u8],
        /// What becomes of the deadline.
        deadline: Deadline,
    },
    /// Adds, wrapping, so that it commutes and cannot fail; an absent key counts as 0.
    Add {
        /// The summand.
        by: i64,
    },
    /// Appends to the bytes; an absent key counts as empty.
    Append {
        /// What to append.
        value: &'a [u8],
    },
    /// The key is gone.
    Delete,
}

impl<'a> Operation<'a> {
    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        matches!(self, Operation::Get | Operation::Length)
    }

    /// What its result reveals at most.
    pub fn observation(&self) -> Observation<'a> {
        match self {
            // Whoever keeps a deadline must know whether it has passed.
            Operation::Set {
                deadline: Deadline::Keep,
                condition: Condition::Always,
                reply: SetReply::Status,
                ..
            } => Observation::any(Aspect::Expiry),
            Operation::Set { condition: Condition::Always, reply: SetReply::Status, .. } => {
                Observation::NOTHING
            }
            Operation::Set { reply: SetReply::Status | SetReply::Flag, .. } => {
                Observation::any(Aspect::Existence)
            }
            Operation::Set { .. } => Observation::any(Aspect::Whole),
            _ => Observation::of(Kind::Register, Aspect::Whole),
        }
    }

    /// See [`crate::Operation::blind_effect`].
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            // Whoever keeps a deadline must know whether it has passed.
            Operation::Set { deadline: Deadline::Keep, .. } => None,
            Operation::Set { value, deadline, condition: Condition::Always, .. } => {
                Some(Effect::Set { value, deadline: *deadline })
            }
            Operation::Append { value } => Some(Effect::Append { value }),
            Operation::Increment { by } => Some(Effect::Add { by: *by }),
            _ => None,
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Operation::Get => out.push(0),
            Operation::Set { value, deadline, condition, reply } => {
                out.push(1);
                put_bytes(out, value);
                deadline.encode(out);
                condition.encode(out);
                reply.encode(out);
            }
            Operation::Append { value } => {
                out.push(2);
                put_bytes(out, value);
            }
            Operation::Length => out.push(3),
            Operation::Increment { by } => {
                out.push(4);
                by.encode(out);
            }
            Operation::GetDelete => out.push(5),
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Operation::Get,
            1 => Operation::Set {
                value: input.bytes()?,
                deadline: Wire::decode(input)?,
                condition: Wire::decode(input)?,
                reply: Wire::decode(input)?,
            },
            2 => Operation::Append { value: input.bytes()? },
            3 => Operation::Length,
            4 => Operation::Increment { by: Wire::decode(input)? },
            5 => Operation::GetDelete,
            _ => return Err(Malformed("register operation tag")),
        })
    }
}

impl<'a> Effect<'a> {
    /// The type it needs; a SET or a deletion needs none.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Effect::Set { .. } | Effect::Delete => None,
            Effect::Add { .. } | Effect::Append { .. } => Some(Kind::Register),
        }
    }

    /// Which aspects it may change: a register is a whole.
    pub fn footprint(&self) -> Footprint<'_> {
        Footprint::whole()
    }

    /// Appends the binary form.
    #[inline]
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Set { value, deadline } => {
                out.push(0);
                put_bytes(out, value);
                deadline.encode(out);
            }
            Effect::Add { by } => {
                out.push(1);
                by.encode(out);
            }
            Effect::Append { value } => {
                out.push(2);
                put_bytes(out, value);
            }
            Effect::Delete => out.push(3),
        }
    }

    /// Reads the binary form.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Effect::Set { value: input.bytes()?, deadline: Wire::decode(input)? },
            1 => Effect::Add { by: Wire::decode(input)? },
            2 => Effect::Append { value: input.bytes()? },
            3 => Effect::Delete,
            _ => return Err(Malformed("register effect tag")),
        })
    }
}

/// Additions commute; so do deletions, and writes of the same value with the same deadline.
pub fn effects_commute(a: &Effect<'_>, b: &Effect<'_>) -> bool {
    match (a, b) {
        (Effect::Add { .. }, Effect::Add { .. }) => true,
        (Effect::Append { .. }, _) | (_, Effect::Append { .. }) => false,
        _ => a == b,
    }
}

/// Evaluates an operation; see [`crate::prepare`].
#[inline]
pub fn prepare<'a>(
    cell: &Cell,
    operation: &Operation<'a>,
    context: &mut Context<'_>,
    sink: &mut dyn ReplySink,
) -> Option<Effect<'a>> {
    let register = match &cell.value {
        None => None,
        Some(Value::Register(register)) => Some(register),
        Some(_) => match operation {
            Operation::Set { reply: SetReply::Status | SetReply::Flag, .. } => None,
            _ => {
                sink.error(&Error::wrong_type());
                return None;
            }
        },
    };
    match operation {
        Operation::Get => reply_value(register, sink),
        Operation::Set { value, deadline, condition, reply } => {
            let exists = cell.value.is_some();
            let done = match condition {
                Condition::Always => true,
                Condition::IfAbsent => !exists,
                Condition::IfPresent => exists,
            };
            match reply {
                SetReply::Status if done => sink.simple("OK"),
                SetReply::Status => sink.null(),
                SetReply::Flag => sink.integer(i64::from(done)),
                SetReply::Old => reply_value(register, sink),
            }
            let over = matches!(deadline, Deadline::At { millis } if *millis <= context.now_millis);
            let effect = if over { Effect::Delete } else { Effect::Set { value, deadline: *deadline } };
            return done.then_some(effect);
        }
        Operation::Append { value } => return append(register, value, sink),
        Operation::Length => sink.integer(register.map_or(0, |register| register.len() as i64)),
        Operation::Increment { by } => return increment(register, *by, sink),
        Operation::GetDelete => {
            reply_value(register, sink);
            return register.map(|_| Effect::Delete);
        }
    }
    None
}

fn reply_value(register: Option<&Register>, sink: &mut dyn ReplySink) {
    match register {
        None => sink.null(),
        Some(register) => register.with_bytes(|bytes| sink.bulk(bytes)),
    }
}

fn append<'a>(register: Option<&Register>, value: &'a [u8], sink: &mut dyn ReplySink) -> Option<Effect<'a>> {
    let len = register.map_or(0, Register::len) + value.len();
    if len > MAX_BYTES {
        sink.error(&Error::err("string exceeds maximum allowed size (proto-max-bulk-len)"));
        return None;
    }
    sink.integer(len as i64);
    // An empty append still creates the key.
    (register.is_none() || !value.is_empty()).then_some(Effect::Append { value })
}

fn increment<'a>(register: Option<&Register>, by: i64, sink: &mut dyn ReplySink) -> Option<Effect<'a>> {
    let current = match register {
        None => 0,
        Some(Register::Integer(number)) => *number,
        Some(Register::Bytes(_)) => {
            sink.error(&Error::not_an_integer());
            return None;
        }
    };
    match current.checked_add(by) {
        Some(sum) => {
            sink.integer(sum);
            Some(Effect::Add { by })
        }
        None => {
            sink.error(&Error::err("increment or decrement would overflow"));
            None
        }
    }
}

/// Performs an effect; see [`crate::apply`].
#[inline]
pub fn apply<const UNDO: bool>(cell: &mut Cell, effect: &Effect<'_>) -> Patch {
    match effect {
        Effect::Set { value, deadline } => {
            let expires_at = match deadline {
                Deadline::Clear => 0,
                Deadline::Keep => cell.expires_at,
                Deadline::At { millis } => *millis,
            };
            if UNDO {
                let value = Some(Value::Register(Register::new(value)));
                return Patch::Cell(std::mem::replace(cell, Cell { value, expires_at }));
            }
            match &mut cell.value {
                Some(Value::Register(register)) => register.set(value),
                other => *other = Some(Value::Register(Register::new(value))),
            }
            cell.expires_at = expires_at;
            Patch::Nothing
        }
        Effect::Add { by } => {
            let existed = cell.value.is_some();
            add(cell, *by);
            match (UNDO, existed) {
                (false, _) => Patch::Nothing,
                (true, false) => Patch::Cell(Cell::ABSENT),
                (true, true) => Patch::Added { by: *by },
            }
        }
        Effect::Append { value } => {
            if !matches!(cell.value, None | Some(Value::Register(_))) {
                return Patch::Nothing;
            }
            // More bytes make an integer only of an empty string or a sign.
            let longer = match &cell.value {
                Some(Value::Register(Register::Bytes(bytes))) => {
                    Some(bytes.len()).filter(|length| *length > 1)
                }
                _ => None,
            };
            let before = match longer {
                _ if !UNDO => Patch::Nothing,
                Some(at) => Patch::Tail { at, tail: Vec::new() },
                None => Patch::Cell(cell.clone()),
            };
            append_bytes(cell, value);
            before
        }
        Effect::Delete => {
            let before = cell.clear();
            if UNDO { Patch::Cell(before) } else { Patch::Nothing }
        }
    }
}

/// Adds to the integer register, creating it at 0; anything else is left as it is.
pub(crate) fn add(cell: &mut Cell, by: i64) {
    match &mut cell.value {
        None => cell.value = Some(Value::Register(Register::Integer(by))),
        Some(Value::Register(Register::Integer(number))) => *number = number.wrapping_add(by),
        Some(_) => {}
    }
}

/// Swaps what a string has from a place on.
pub(crate) fn exchange_tail(cell: &mut Cell, at: usize, tail: &mut Vec<u8>) {
    if let Some(Value::Register(Register::Bytes(bytes))) = &mut cell.value {
        let other = bytes.split_off(at.min(bytes.len()));
        bytes.append(tail);
        *tail = other;
    }
}

fn append_bytes(cell: &mut Cell, value: &[u8]) {
    let register = match &mut cell.value {
        Some(Value::Register(register)) => register,
        _ => {
            cell.value = Some(Value::Register(Register::new(value)));
            return;
        }
    };
    let mut bytes = match std::mem::take(register) {
        Register::Bytes(bytes) => bytes,
        Register::Integer(number) => itoa::Buffer::new().format(number).as_bytes().to_vec(),
    };
    bytes.extend_from_slice(value);
    *register = match parse_integer(&bytes) {
        Some(number) => Register::Integer(number),
        None => Register::Bytes(bytes),
    };
}
