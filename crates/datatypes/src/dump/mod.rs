//! Redis's own form of a value, as DUMP replies and RESTORE takes it: a value of an RDB file, the version, a
//! checksum.
//!
//! ```text
//!   type (1 byte) | value | version (2 bytes) | CRC-64 of all before (8 bytes)
//! ```
//!
//! [`encode`] writes version 11, that of Redis 7.2, in the shapes that Redis's default limits choose
//! ([`Encoding`]); of a hash with fields that expire version 12, that of Redis 7.4. [`decode`] also reads the
//! shapes of older versions. It trusts nothing: whatever the bytes
//! say, decoding ends with a value or a [`Refusal`], and takes no more memory than a constant times their
//! length and what compressed strings come to, which is bounded.
//!
//! Types that Redis does not have (counters, summary bags, tops, generators of identifiers, user-defined
//! types) have no form here, and neither have modules, which we do not have.

mod blobs;
mod decode;
mod encode;
mod encoding;
mod functions;
mod input;
mod listpack;
mod lzf;
mod streams;
#[cfg(test)]
mod tests;
mod ziplist;

pub use decode::decode;
pub use encode::{encode, sign};
pub use encoding::{Encoding, encoding};
pub use functions::{decode_functions, encode_functions};

use crc::{CRC_64_REDIS, Crc, Table};

/// The version of the format that [`encode`] writes of all but hashes with fields that expire.
const VERSION: u16 = 11;
/// The version that has fields that expire; [`decode`] reads it and older ones.
const VERSION_WITH_FIELD_EXPIRY: u16 = 12;
/// The version of libraries of functions: that of Redis 7.0, which has them in this shape first.
const FUNCTIONS_VERSION: u16 = 10;
/// The bytes behind the value: version and checksum.
const FOOTER_BYTES: usize = 10;
/// The most bytes that the strings of a payload may come to when they are decompressed.
const MAX_BYTES: usize = crate::register::MAX_BYTES;

static CRC: Crc<u64, Table<16>> = Crc::<u64, Table<16>>::new(&CRC_64_REDIS);

/// Why [`decode`] or [`decode_functions`] refuses a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The checksum is wrong, or the version a later one.
    Footer,
    /// What the checksum vouches for is no value, or one of a type that we do not have.
    Format,
    /// What should be a library of functions is something else.
    Type,
}

/// The numbers of the types of values in RDB files.
mod tag {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const ZSET: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const ZSET_2: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const ZSET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_QUICKLIST: u8 = 14;
    pub(super) const STREAM: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const ZSET_LISTPACK: u8 = 17;
    pub(super) const LIST_QUICKLIST_2: u8 = 18;
    pub(super) const STREAM_2: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM_3: u8 = 21;
    /// The earliest deadline of a field in eight bytes; the number of fields; each field's deadline, as a length, counted
    /// from one before the earliest, 0 for none, then field and value.
    pub(super) const HASH_METADATA: u8 = 24;
    /// The earliest deadline of a field in eight bytes; a listpack of field, value and deadline, 0 for none, in the order of
    /// deadlines, those without one at the end.
    pub(super) const HASH_LISTPACK_EX: u8 = 25;
}

/// How a node of a quicklist stores what it has.
mod container {
    /// One element.
    pub(super) const PLAIN: u64 = 1;
    /// A listpack of elements.
    pub(super) const PACKED: u64 = 2;
}

/// The first byte of a length or of a string in RDB files.
mod length {
    /// 14 bits, of which the next byte has the low ones.
    pub(super) const BITS_14: u8 = 0x40;
    /// Four bytes follow, the high one first.
    pub(super) const BITS_32: u8 = 0x80;
    /// Eight bytes follow, the high one first.
    pub(super) const BITS_64: u8 = 0x81;
    /// Not a length: the string is an integer of one byte.
    pub(super) const INT_8: u8 = 0xC0;
    /// An integer of two bytes.
    pub(super) const INT_16: u8 = 0xC1;
    /// An integer of four bytes.
    pub(super) const INT_32: u8 = 0xC2;
    /// A compressed string.
    pub(super) const LZF: u8 = 0xC3;
}
