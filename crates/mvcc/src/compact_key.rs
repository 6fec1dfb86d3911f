//! An owned key in 24 bytes.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use types::{Malformed, Reader, Wire, put_bytes};

/// The longest key that is stored without an allocation.
const INLINE_BYTES: usize = 22;

/// An owned, immutable key. Up to 22 bytes lie in the value itself, beside the rest of a record on the cache line
/// that a lookup has to read anyway; longer keys are on the heap.
#[derive(Clone)]
pub struct CompactKey(Repr);

#[derive(Clone)]
enum Repr {
    Inline { length: u8, bytes: [u8; INLINE_BYTES] },
    Heap(Box<[u8]>),
}

impl CompactKey {
    /// A copy of `key`.
    #[inline]
    pub fn new(key: &[u8]) -> CompactKey {
        if key.len() > INLINE_BYTES {
            return CompactKey(Repr::Heap(key.into()));
        }
        let mut bytes = [0; INLINE_BYTES];
        bytes[..key.len()].copy_from_slice(key);
        CompactKey(Repr::Inline { length: key.len() as u8, bytes })
    }

    /// The bytes the key takes beyond the value itself.
    pub fn heap_bytes(&self) -> usize {
        Self::heap_bytes_of(self)
    }

    /// What [`CompactKey::heap_bytes`] says of a copy of `key`.
    pub(crate) fn heap_bytes_of(key: &[u8]) -> usize {
        if key.len() > INLINE_BYTES { key.len() } else { 0 }
    }
}

impl Deref for CompactKey {
    type Target = [u8];

    #[inline(always)]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Inline { length, bytes } => &bytes[..usize::from(*length)],
            Repr::Heap(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for CompactKey {
    fn from(key: &[u8]) -> CompactKey {
        CompactKey::new(key)
    }
}

impl From<Vec<u8>> for CompactKey {
    /// A long one stays where it is.
    fn from(key: Vec<u8>) -> CompactKey {
        if key.len() > INLINE_BYTES { CompactKey(Repr::Heap(key.into())) } else { CompactKey::new(&key) }
    }
}

impl Default for CompactKey {
    fn default() -> CompactKey {
        CompactKey::new(b"")
    }
}

impl Hash for CompactKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

impl Borrow<[u8]> for CompactKey {
    fn borrow(&self) -> &[u8] {
        self
    }
}

impl Wire for CompactKey {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(CompactKey::new(input.bytes()?))
    }
}

impl PartialEq for CompactKey {
    fn eq(&self, other: &CompactKey) -> bool {
        **self == **other
    }
}

impl Eq for CompactKey {}

impl PartialOrd for CompactKey {
    fn partial_cmp(&self, other: &CompactKey) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for CompactKey {
    /// The order of the bytes, wherever they lie.
    fn cmp(&self, other: &CompactKey) -> Ordering {
        (**self).cmp(&**other)
    }
}

impl fmt::Debug for CompactKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.escape_ascii())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_fills_three_words() {
        assert_eq!(size_of::<CompactKey>(), 24);
        assert_eq!(size_of::<Option<CompactKey>>(), 24);
    }

    #[test]
    fn keys_of_every_length_come_back_whole() {
        for length in 0..300 {
            let bytes: Vec<u8> = (0..length).map(|byte| byte as u8).collect();
            let key = CompactKey::new(&bytes);
            assert_eq!(&*key, &bytes[..]);
            assert_eq!(key.clone(), key);
            assert_eq!(key.heap_bytes(), if length > 22 { length } else { 0 });
        }
    }

    #[test]
    fn keys_are_ordered_by_their_bytes() {
        let long = CompactKey::new(&[b'b'; 30]);
        assert!(CompactKey::new(b"a") < long && long < CompactKey::new(b"c"));
        assert!(CompactKey::new(b"b") < long && CompactKey::new(b"") < CompactKey::new(b"\0"));
    }

    #[test]
    fn keys_that_differ_are_not_equal() {
        assert_ne!(CompactKey::new(b"a"), CompactKey::new(b"a\0"));
        assert_ne!(CompactKey::new(&[0; 22]), CompactKey::new(&[0; 23]));
        assert_eq!(format!("{:?}", CompactKey::new(b"a\xff")), "a\\xff");
    }
}
