//! The primitives of every format we write: log, checkpoint, messages. Hand-written, length-checked, panic-free.
//!
//! Integers are LEB128 varints, signed ones zigzag; byte strings carry their length. Version numbers and
//! checksums belong to the frames around (the journal's group, the transport's envelope), not to the fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Bytes that are not what they should be; says which part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("malformed {0}")]
pub struct Malformed(pub &'static str);

/// A value with a binary form. Decoding what was encoded gives the value back; decoding anything never panics.
pub trait Wire: Sized {
    /// Appends the binary form.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads one value, leaving what follows.
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed>;
}

/// Reads primitives off the front of a byte slice.
#[derive(Clone, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Reader(bytes)
    }

    /// What has not been read.
    pub fn rest(&self) -> &'a [u8] {
        self.0
    }

    /// True when everything has been read.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// One byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed("end of input"))?;
        self.0 = rest;
        Ok(*first)
    }

    /// `len` raw bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len > self.0.len() {
            return Err(Malformed("length"));
        }
        let (taken, rest) = self.0.split_at(len);
        self.0 = rest;
        Ok(taken)
    }

    /// A varint in its shortest form: a value has one form only, so that equal values are equal bytes.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                let (is_shortest, fits) = (byte != 0 || shift == 0, value >> shift == u64::from(byte));
                return if is_shortest && fits { Ok(value) } else { Err(Malformed("varint")) };
            }
        }
        Err(Malformed("varint"))
    }

    /// A byte string with its length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let len = self.varint()?;
        self.take(usize::try_from(len).map_err(|_| Malformed("length"))?)
    }

    /// The count of a sequence whose elements take at least one byte each, so that it cannot be absurd.
    pub fn count(&mut self) -> Result<usize, Malformed> {
        let count = self.varint()?;
        if count > self.0.len() as u64 { Err(Malformed("count")) } else { Ok(count as usize) }
    }
}

/// The longest binary form of a number.
const MAX_VARINT_BYTES: usize = 10;
/// For how many elements of a sequence room is made before the first of them is read.
const MOST_AT_ONCE: usize = 1024;

/// Appends a varint.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    if value < 0x80 {
        return out.push(value as u8);
    }
    // Put together first, copied once.
    let (mut bytes, mut len) = ([0; MAX_VARINT_BYTES], 0);
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    out.extend_from_slice(&bytes[..=len]);
}

/// Appends a byte string with its length.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Implements [`Wire`] for a struct: its fields in the order given.
#[macro_export]
macro_rules! wire_struct {
    ($name:ident $(<$param:ident $(: $bound:path)?>)? { $($field:ident),* $(,)? }) => {
        impl $(<$param: $crate::Wire $(+ $bound)?>)? $crate::Wire for $name $(<$param>)? {
            fn encode(&self, out: &mut Vec<u8>) { $( $crate::Wire::encode(&self.$field, out); )* let _ = out; }
            fn decode(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                let _ = &input;
                Ok($name { $( $field: $crate::Wire::decode(input)?, )* })
            }
        }
    };
    ($name:ident(0)) => {
        impl $crate::Wire for $name {
            fn encode(&self, out: &mut Vec<u8>) { $crate::Wire::encode(&self.0, out); }
            fn decode(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                Ok($name($crate::Wire::decode(input)?))
            }
        }
    };
}

/// Implements [`Wire`] for an enum whose variants have named fields (or none): a tag byte, then the fields.
#[macro_export]
macro_rules! wire_enum {
    ($name:ident $(<$param:ident $(: $bound:path)?>)? {
        $($tag:literal => $variant:ident $({ $($field:ident),* $(,)? })?),* $(,)?
    }) => {
        impl $(<$param: $crate::Wire $(+ $bound)?>)? $crate::Wire for $name $(<$param>)? {
            fn encode(&self, out: &mut Vec<u8>) {
                match self { $( $name::$variant $({ $($field),* })? => {
                    out.push($tag);
                    $( $( $crate::Wire::encode($field, out); )* )?
                } )* }
            }
            fn decode(input: &mut $crate::Reader<'_>) -> Result<Self, $crate::Malformed> {
                match input.byte()? {
                    $( $tag => Ok($name::$variant $({ $($field: $crate::Wire::decode(input)?),* })?), )*
                    _ => Err($crate::Malformed(concat!(stringify!($name), " tag"))),
                }
            }
        }
    };
}

macro_rules! unsigned {
    ($($int:ty),*) => {$(
        impl Wire for $int {
            fn encode(&self, out: &mut Vec<u8>) { put_varint(out, *self as u64); }
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
                <$int>::try_from(input.varint()?).map_err(|_| Malformed(stringify!($int)))
            }
        }
    )*};
}
unsigned!(u8, u16, u32, u64, usize);

impl Wire for i64 {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, ((*self << 1) ^ (*self >> 63)) as u64);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let zigzag = input.varint()?;
        Ok((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64))
    }
}

impl Wire for f64 {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.to_bits().to_le_bytes());
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = input.take(8)?.try_into().map_err(|_| Malformed("f64"))?;
        Ok(f64::from_bits(u64::from_le_bytes(bytes)))
    }
}

impl Wire for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed("bool")),
        }
    }
}

impl Wire for () {
    fn encode(&self, _out: &mut Vec<u8>) {}
    fn decode(_input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(())
    }
}

impl<T: Wire> Wire for Box<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        T::encode(self, out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::decode(input).map(Box::new)
    }
}

impl Wire for Box<[u8]> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(input.bytes()?.into())
    }
}

impl<T: Wire> Wire for Arc<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (**self).encode(out);
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        T::decode(input).map(Arc::new)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            None => out.push(0),
            Some(value) => {
                out.push(1);
                value.encode(out);
            }
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(None),
            1 => Ok(Some(T::decode(input)?)),
            _ => Err(Malformed("option")),
        }
    }
}

impl<T: Wire> Wire for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|value| value.encode(out));
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = input.count()?;
        // Collected, it would take more memory than it needs, and copy while it grows.
        let mut values = Vec::with_capacity(count.min(MOST_AT_ONCE));
        for _ in 0..count {
            values.push(T::decode(input)?);
        }
        Ok(values)
    }
}

impl<T: Wire + Ord> Wire for BTreeSet<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        self.iter().for_each(|value| value.encode(out));
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = input.count()?;
        (0..count).map(|_| T::decode(input)).collect()
    }
}

impl<K: Wire + Ord, V: Wire> Wire for BTreeMap<K, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.len() as u64);
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }
    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let count = input.count()?;
        (0..count).map(|_| Ok((K::decode(input)?, V::decode(input)?))).collect()
    }
}

macro_rules! tuple {
    ($($name:ident $index:tt),*) => {
        impl<$($name: Wire),*> Wire for ($($name,)*) {
            fn encode(&self, out: &mut Vec<u8>) { $(self.$index.encode(out);)* }
            fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> { Ok(($($name::decode(input)?,)*)) }
        }
    };
}
tuple!(A 0, B 1);
tuple!(A 0, B 1, C 2);
tuple!(A 0, B 1, C 2, D 3);

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq)]
    enum Sample {
        Empty,
        Pair { left: i64, right: Option<Box<[u8]>> },
    }
    wire_enum!(Sample { 0 => Empty, 1 => Pair { left, right } });

    fn round_trip<T: Wire + PartialEq + std::fmt::Debug>(value: T) {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(T::decode(&mut reader), Ok(value));
        assert!(reader.is_empty());
        for len in 0..bytes.len() {
            assert!(T::decode(&mut Reader::new(&bytes[..len])).is_err(), "a cut form must not decode");
        }
    }

    #[test]
    fn values_survive_their_binary_form_and_cut_forms_are_refused() {
        round_trip(i64::MIN);
        round_trip(u64::MAX);
        round_trip(vec![Some(1u32), None]);
        round_trip(Sample::Pair { left: -3, right: Some(b"x".to_vec().into()) });
        round_trip(Sample::Empty);
        round_trip(BTreeMap::from([(1u16, 2.5f64)]));
    }

    #[test]
    fn a_number_has_one_binary_form() {
        for longer in [&[0x80, 0][..], &[0xaf, 0], &[0xff, 0x80, 0]] {
            assert_eq!(Reader::new(longer).varint(), Err(Malformed("varint")));
        }
        let ten_bytes = |last| [[0xff; 9].as_slice(), &[last]].concat();
        assert_eq!(Reader::new(&ten_bytes(1)).varint(), Ok(u64::MAX));
        assert_eq!(Reader::new(&ten_bytes(2)).varint(), Err(Malformed("varint")), "it does not fit 64 bits");
        assert_eq!(Reader::new(&[0]).varint(), Ok(0));
        // An array of 47 elements, announced in two bytes, found by the fuzz target `wire`.
        assert!(crate::ReplyBuf::decode(&mut Reader::new(&[3, 10, 0xaf, 0, 0xf6])).is_err());
    }

    #[test]
    fn an_absurd_count_is_refused_before_anything_is_allocated() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, u64::MAX);
        assert_eq!(Vec::<u64>::decode(&mut Reader::new(&bytes)), Err(Malformed("count")));
    }
}
