//! How Redis 7.4 would store a value, with its default limits: what OBJECT ENCODING names and DUMP writes.
//!
//! Redis's choice also depends on a key's past: a hash that was large stays a table. Ours depends on the
//! value alone.

use super::listpack::Listpack;
use crate::Value;
use crate::register::{Register, parse_integer};

/// `hash-max-listpack-entries`, `zset-max-listpack-entries`, `set-max-listpack-entries`.
const MAX_PACKED_ENTRIES: usize = 128;
/// `hash-max-listpack-value`, `zset-max-listpack-value`, `set-max-listpack-value`, in bytes.
const MAX_PACKED_BYTES: usize = 64;
/// `set-max-intset-entries`.
const MAX_INTEGERS: usize = 512;
/// `list-max-listpack-size -2`, in bytes.
pub(super) const MAX_NODE_BYTES: usize = 8 << 10;
/// The longest string that Redis stores together with its header.
const MAX_EMBEDDED_BYTES: usize = 44;

/// A way in which Redis stores values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// An integer.
    Int,
    /// A short string.
    EmbStr,
    /// A long string.
    Raw,
    /// A few short elements in one piece.
    ListPack,
    /// The same of fields that have deadlines.
    ListPackEx,
    /// A linked list of pieces.
    QuickList,
    /// A few integers in order.
    IntSet,
    /// A hash table.
    HashTable,
    /// A sorted set beyond a few members.
    SkipList,
    /// Chunks of entries in a tree.
    Stream,
    /// A type that Redis does not have.
    Own,
}

impl Encoding {
    /// The name in the reply of OBJECT ENCODING.
    pub fn as_str(self) -> &'static str {
        match self {
            Encoding::Int => "int",
            Encoding::EmbStr => "embstr",
            Encoding::Raw => "raw",
            Encoding::ListPack => "listpack",
            Encoding::ListPackEx => "listpackex",
            Encoding::QuickList => "quicklist",
            Encoding::IntSet => "intset",
            Encoding::HashTable => "hashtable",
            Encoding::SkipList => "skiplist",
            Encoding::Stream => "stream",
            Encoding::Own => "own",
        }
    }
}

/// How Redis would store the value.
pub fn encoding(value: &Value) -> Encoding {
    let packs = |len: usize| len <= MAX_PACKED_ENTRIES;
    let short = |element: &[u8]| element.len() <= MAX_PACKED_BYTES;
    let choose = |packed: bool, other| if packed { Encoding::ListPack } else { other };
    match value {
        Value::Register(Register::Integer(_)) => Encoding::Int,
        Value::Register(Register::Bytes(bytes)) if bytes.len() <= MAX_EMBEDDED_BYTES => Encoding::EmbStr,
        Value::Register(Register::Bytes(_)) => Encoding::Raw,
        Value::Dict(dict) => {
            let packed = packs(dict.len()) && dict.iter().all(|(field, value)| short(field) && short(value));
            match choose(packed, Encoding::HashTable) {
                Encoding::ListPack if dict.deadlines().is_some() => Encoding::ListPackEx,
                other => other,
            }
        }
        Value::Set(set) => {
            let is_integer = |member: &[u8]| parse_integer(member).is_some();
            if set.len() <= MAX_INTEGERS && set.iter().all(|member| is_integer(&member)) {
                return Encoding::IntSet;
            }
            choose(packs(set.len()) && set.iter().all(|member| short(&member)), Encoding::HashTable)
        }
        Value::ScoredSet(set) => {
            choose(packs(set.len()) && set.iter().all(|(_, member)| short(member)), Encoding::SkipList)
        }
        Value::List(list) => {
            let mut node = Listpack::new();
            let fits = list.iter().all(|element| {
                // An element that is too long by itself is not copied to find that out.
                element.len() <= MAX_NODE_BYTES && {
                    node.push(element);
                    node.size() <= MAX_NODE_BYTES
                }
            });
            choose(fits, Encoding::QuickList)
        }
        Value::Stream(_) => Encoding::Stream,
        Value::Counter(_)
        | Value::SummaryBag(_)
        | Value::Top(_)
        | Value::UidGenerator(_)
        | Value::User(_) => Encoding::Own,
    }
}
