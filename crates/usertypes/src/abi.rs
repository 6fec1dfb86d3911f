//! What passes between a server and a module, as data. `docs/user-types.md` has the same for authors in other languages.

use crate::codec::{Codec, Input, put_bytes};
use alloc::string::String;
use alloc::vec::Vec;

/// The version of this interface, the first byte of every [`Spec`]. Of version 1, which has no lock modes and no
/// [`Entry::Combine`], a server understands what it says, too.
pub const VERSION: u8 = 2;
const WITHOUT_MODES: u8 = 1;
/// The most lock modes of a type: a set of them fits a byte.
pub const MAX_MODES: usize = 8;

/// Which function of the module is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Entry {
    /// Nothing in, the [`Spec`] out.
    Describe = 0,
    /// State, operation and arguments in; the reply and perhaps an effect out.
    Execute = 1,
    /// State and effect in, state out.
    Apply = 2,
    /// Two effects in; out: do they commute?
    Commute = 3,
    /// Operation, arguments, perhaps its reply, and an effect in; out: is the reply the same after the effect?
    Unchanged = 4,
    /// Operation and arguments in; out: perhaps the effect it has in every state that does not refuse it.
    Blind = 5,
    /// Operation, arguments and reply of an operation, operation and arguments of another one in; out: perhaps what the
    /// other one comes to right after it, the reply and perhaps an effect. Only called of a type whose [`Spec`] says
    /// so.
    Combine = 6,
}

impl Entry {
    /// The entry of this number.
    pub fn of(number: u32) -> Option<Self> {
        let all = [
            Entry::Describe,
            Entry::Execute,
            Entry::Apply,
            Entry::Commute,
            Entry::Unchanged,
            Entry::Blind,
            Entry::Combine,
        ];
        all.into_iter().find(|entry| *entry as u32 == number)
    }
}

/// What an argument may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A signed number of 64 bits.
    Integer,
    /// Any bytes.
    Bytes,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Argument {
    /// See [`Kind::Integer`].
    Integer(i64),
    /// See [`Kind::Bytes`].
    Bytes(Vec<u8>),
}

impl Codec for Argument {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Argument::Integer(value) => (0u8, *value).encode(out),
            Argument::Bytes(bytes) => {
                out.push(1);
                put_bytes(out, bytes);
            }
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        match u8::decode(input)? {
            0 => i64::decode(input).map(Argument::Integer),
            1 => input.bytes().map(|bytes| Argument::Bytes(bytes.into())),
            _ => None,
        }
    }
}

/// How an argument is called, what it may be, and values worth trying beside the usual ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgumentSpec {
    /// Its name in messages.
    pub name: String,
    /// What it may be.
    pub kind: Kind,
    /// Values that the check tries besides its own: what operations of this type accept, if that is not just anything.
    pub examples: Vec<Argument>,
}

impl Codec for ArgumentSpec {
    fn encode(&self, out: &mut Vec<u8>) {
        self.name.encode(out);
        out.push(u8::from(self.kind == Kind::Bytes));
        self.examples.encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        let name = String::decode(input)?;
        let kind = if bool::decode(input)? { Kind::Bytes } else { Kind::Integer };
        Some(ArgumentSpec { name, kind, examples: Vec::decode(input)? })
    }
}

/// An operation as it is called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationSpec {
    /// Its name in commands.
    pub name: String,
    /// It never has an effect.
    pub reads: bool,
    /// Its arguments, all of which must be given.
    pub arguments: Vec<ArgumentSpec>,
    /// The number of its lock mode. Without one it locks like whatever observes, or, if it writes, by itself.
    pub mode: Option<u8>,
}

/// As version 1 has it: without its mode.
impl Codec for OperationSpec {
    fn encode(&self, out: &mut Vec<u8>) {
        self.name.encode(out);
        self.reads.encode(out);
        self.arguments.encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(OperationSpec {
            name: String::decode(input)?,
            reads: bool::decode(input)?,
            arguments: Vec::decode(input)?,
            mode: None,
        })
    }
}

/// A lock mode of a type's own: who holds it, and who may hold the lock beside them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModeSpec {
    /// Its name, for people.
    pub name: String,
    /// The modes that may be held beside it, a bit for each number; perhaps itself.
    pub compatible_with: u8,
}

impl Codec for ModeSpec {
    fn encode(&self, out: &mut Vec<u8>) {
        self.name.encode(out);
        out.push(self.compatible_with);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(ModeSpec { name: String::decode(input)?, compatible_with: u8::decode(input)? })
    }
}

/// What a module says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spec {
    /// Its operations; the place of one is its number.
    pub operations: Vec<OperationSpec>,
    /// Its lock modes; the place of one is its number.
    pub modes: Vec<ModeSpec>,
    /// It answers [`Entry::Combine`].
    pub combines: bool,
}

impl Spec {
    /// True if holders of these modes may have the lock together.
    pub fn are_compatible(&self, a: u8, b: u8) -> bool {
        self.modes.get(usize::from(a)).is_some_and(|mode| u32::from(mode.compatible_with) >> b & 1 == 1)
    }

    /// True if no operation of this mode has an effect.
    pub fn only_reads(&self, mode: u8) -> bool {
        self.operations.iter().all(|operation| operation.mode != Some(mode) || operation.reads)
    }
}

impl Codec for Spec {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(VERSION);
        self.operations.encode(out);
        let numbers: Vec<u8> =
            self.operations.iter().map(|operation| operation.mode.map_or(0, |mode| mode + 1)).collect();
        put_bytes(out, &numbers);
        self.modes.encode(out);
        self.combines.encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        let version = u8::decode(input)?;
        if !matches!(version, WITHOUT_MODES | VERSION) {
            return None;
        }
        let mut operations: Vec<OperationSpec> = Vec::decode(input)?;
        if version == WITHOUT_MODES {
            return Some(Spec { operations, modes: Vec::new(), combines: false });
        }
        let numbers = input.bytes()?;
        if numbers.len() != operations.len() {
            return None;
        }
        for (operation, number) in operations.iter_mut().zip(numbers) {
            operation.mode = number.checked_sub(1);
        }
        Some(Spec { operations, modes: Vec::decode(input)?, combines: bool::decode(input)? })
    }
}

/// A reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// `OK`.
    Ok,
    /// A number.
    Integer(i64),
    /// A byte string.
    Bytes(Vec<u8>),
    /// No value.
    Null,
    /// Several replies.
    Array(Vec<Reply>),
    /// The operation is refused, and has no effect: why.
    Error(String),
}

/// How deep arrays may be nested.
const MAX_DEPTH: usize = 8;

impl Reply {
    fn decode_at(input: &mut Input<'_>, depth: usize) -> Option<Self> {
        Some(match u8::decode(input)? {
            0 => Reply::Ok,
            1 => Reply::Integer(i64::decode(input)?),
            2 => Reply::Bytes(input.bytes()?.into()),
            3 => Reply::Null,
            4 if depth < MAX_DEPTH => {
                let len = u32::decode(input)?;
                Reply::Array((0..len).map(|_| Reply::decode_at(input, depth + 1)).collect::<Option<_>>()?)
            }
            5 => Reply::Error(String::decode(input)?),
            _ => return None,
        })
    }
}

impl Codec for Reply {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Reply::Ok => out.push(0),
            Reply::Integer(value) => (1u8, *value).encode(out),
            Reply::Bytes(bytes) => {
                out.push(2);
                put_bytes(out, bytes);
            }
            Reply::Null => out.push(3),
            Reply::Array(replies) => {
                out.push(4);
                replies.encode(out);
            }
            Reply::Error(text) => {
                out.push(5);
                text.encode(out);
            }
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Reply::decode_at(input, 0)
    }
}
