//! The binary form of states, effects and calls: little-endian, lengths in four bytes.

use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Bytes that are read from the front.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Reads from these.
    pub fn new(bytes: &'a [u8]) -> Self {
        Input(bytes)
    }

    /// True when nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next `len` bytes; `None` if there are fewer.
    pub fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    /// A byte string behind its length.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = u32::decode(self)?;
        self.take(len as usize)
    }
}

/// Appends a byte string behind its length.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    (bytes.len() as u32).encode(out);
    out.extend_from_slice(bytes);
}

/// What has a binary form. Equal values must have equal forms: states are compared by them.
pub trait Codec: Sized {
    /// Appends the binary form.
    fn encode(&self, out: &mut Vec<u8>);
    /// Reads one value and leaves what follows; `None` if there is none.
    fn decode(input: &mut Input<'_>) -> Option<Self>;
}

macro_rules! integers {
    ($($int:ty),*) => {$(
        impl Codec for $int {
            fn encode(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn decode(input: &mut Input<'_>) -> Option<Self> {
                input.take(size_of::<$int>())?.try_into().ok().map(<$int>::from_le_bytes)
            }
        }
    )*};
}
integers!(u8, u16, u32, u64, i64, i128);

impl Codec for bool {
    fn encode(&self, out: &mut Vec<u8>) {
        out.push(u8::from(*self));
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        match u8::decode(input)? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }
}

impl Codec for String {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.as_bytes());
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        core::str::from_utf8(input.bytes()?).ok().map(String::from)
    }
}

impl<T: Codec> Codec for Option<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.is_some().encode(out);
        if let Some(value) = self {
            value.encode(out);
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        if bool::decode(input)? { T::decode(input).map(Some) } else { Some(None) }
    }
}

/// A sequence. `Vec<u8>` is a byte string.
impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        self.iter().for_each(|element| element.encode(out));
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        let len = u32::decode(input)?;
        (0..len).map(|_| T::decode(input)).collect()
    }
}

/// In the order of its keys.
impl<K: Codec + Ord, V: Codec> Codec for BTreeMap<K, V> {
    fn encode(&self, out: &mut Vec<u8>) {
        (self.len() as u32).encode(out);
        for (key, value) in self {
            key.encode(out);
            value.encode(out);
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        let len = u32::decode(input)?;
        (0..len).map(|_| Some((K::decode(input)?, V::decode(input)?))).collect()
    }
}

macro_rules! tuples {
    ($(($($name:ident $index:tt),*)),* $(,)?) => {$(
        impl<$($name: Codec),*> Codec for ($($name,)*) {
            fn encode(&self, out: &mut Vec<u8>) { $(self.$index.encode(out);)* }
            fn decode(input: &mut Input<'_>) -> Option<Self> { Some(($($name::decode(input)?,)*)) }
        }
    )*};
}
tuples!((A 0, B 1), (A 0, B 1, C 2), (A 0, B 1, C 2, D 3));
