//! Since when keys are absent, so that one that came and went in between is not taken for one that was never there.

use std::collections::BTreeMap;
use types::{Malformed, Reader, Wire, put_bytes};

/// How many deletions are remembered, at most; beyond that the older half is forgotten together.
const KEYS: usize = 32 * 1024;

/// The entries that deleted keys which are absent now. What is forgotten counts as deleted by the latest forgotten
/// entry: a transaction that saw such a key absent earlier is refused once although the key may be unchanged; no
/// change is ever missed.
#[derive(Debug, Default)]
pub(super) struct Absent {
    keys: BTreeMap<Box<[u8]>, u64>,
    /// The latest entry that was forgotten.
    forgotten: u64,
}

impl Absent {
    /// The version of an absent key.
    pub(super) fn version(&self, key: &[u8]) -> u64 {
        self.keys.get(key).copied().unwrap_or(self.forgotten)
    }

    /// An entry has deleted the key, or left it absent.
    pub(super) fn deleted(&mut self, key: &[u8], index: u64) {
        self.keys.insert(key.into(), index);
        if self.keys.len() > KEYS {
            let mut all: Vec<u64> = self.keys.values().copied().collect();
            all.sort_unstable();
            self.forgotten = self.forgotten.max(all[all.len() / 2]);
            let forgotten = self.forgotten;
            self.keys.retain(|_, index| *index > forgotten);
        }
    }

    /// The key is there.
    pub(super) fn present(&mut self, key: &[u8]) {
        self.keys.remove(key);
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        self.forgotten.encode(out);
        self.keys.len().encode(out);
        for (key, index) in &self.keys {
            put_bytes(out, key);
            index.encode(out);
        }
    }

    pub(super) fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut absent = Absent { forgotten: Wire::decode(input)?, ..Absent::default() };
        for _ in 0..input.count()? {
            let key = input.bytes()?.into();
            absent.keys.insert(key, Wire::decode(input)?);
        }
        Ok(absent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_never_falls_however_much_is_forgotten() {
        let mut absent = Absent::default();
        let key = |number: u64| number.to_be_bytes();
        absent.deleted(&key(0), 1);
        let mut before = absent.version(&key(0));
        for number in 1..3 * KEYS as u64 {
            absent.deleted(&key(number), number + 1);
            let version = absent.version(&key(0));
            assert!(version >= before, "after {number}");
            before = version;
        }
        assert!(absent.keys.len() <= KEYS && before > 1);
        assert_eq!(absent.version(&key(3 * KEYS as u64 - 1)), 3 * KEYS as u64, "the latest are remembered");
        absent.present(&key(3 * KEYS as u64 - 1));
        let mut bytes = Vec::new();
        absent.encode(&mut bytes);
        let again = Absent::decode(&mut Reader::new(&bytes)).expect("its own binary form");
        assert_eq!((again.keys, again.forgotten), (absent.keys, absent.forgotten));
    }
}
