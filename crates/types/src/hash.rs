//! The one hash of a key. Its top bits choose a partition, its low bits a bucket.

/// A deployment's hash seed, so that nobody can choose keys that collide. The same on every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// The hash of a key under a deployment's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

impl HashSeed {
    /// The hash of `key`.
    #[inline]
    pub fn hash(self, key: &[u8]) -> KeyHash {
        KeyHash(xxhash_rust::xxh3::xxh3_64_with_seed(key, self.0))
    }
}

impl KeyHash {
    /// Which of `partitions` equal shares the key falls into.
    #[inline]
    pub fn share(self, partitions: u16) -> u16 {
        ((u128::from(self.0) * u128::from(partitions)) >> 64) as u16
    }
}
