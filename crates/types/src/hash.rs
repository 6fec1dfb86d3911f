//! The one hash of a key. Its top bits choose a partition, its low bits a bucket.

/// A deployment's hash seed, so that nobody can choose keys that collide. The same on every process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashSeed(pub u64);

/// The hash of a key under a deployment's seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash(pub u64);

/// How many of the lowest bits say nothing about the partition.
const PLACE_SHIFT: u32 = 48;

impl HashSeed {
    /// The hash of `key`. What chooses a partition is that of the tag, where there is one (`{tag}key`: Claret, section
    /// 6, and Redis Cluster), so that keys of one tag are together.
    #[inline]
    pub fn hash(self, key: &[u8]) -> KeyHash {
        let whole = self.of(key);
        if !key.contains(&b'{') {
            return KeyHash(whole);
        }
        let bucket = (1 << PLACE_SHIFT) - 1;
        KeyHash(tag(key).map_or(whole, |tag| self.of(tag) & !bucket | whole & bucket))
    }

    #[inline]
    fn of(self, bytes: &[u8]) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(bytes, self.0)
    }
}

/// What is between the first `{` and the first `}` after it, if that is something.
fn tag(key: &[u8]) -> Option<&[u8]> {
    let (_, rest) = key.split_at(key.iter().position(|byte| *byte == b'{')? + 1);
    let tag = &rest[..rest.iter().position(|byte| *byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

impl KeyHash {
    /// Which of `partitions` equal shares the key falls into.
    #[inline]
    pub fn share(self, partitions: u16) -> u16 {
        (((self.0 >> PLACE_SHIFT) * u64::from(partitions)) >> 16) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_one_tag_share_a_partition_and_no_bucket() {
        let seed = HashSeed(7);
        for partitions in [1, 2, 3, 7, 1000] {
            let share = |key: &str| seed.hash(key.as_bytes()).share(partitions);
            assert_eq!(share("{user:1}.name"), share("friends of {user:1}{x}"));
            assert_eq!(share("{user:1}"), share("user:1"));
            assert!(share("any") < partitions);
        }
        assert_ne!(seed.hash(b"{user:1}.name").0 << 16, seed.hash(b"{user:1}.mail").0 << 16);
    }

    #[test]
    fn what_is_no_tag_is_part_of_the_key() {
        for key in ["{}key", "{key", "}key{", "key", "{", "}{}"] {
            assert_eq!(tag(key.as_bytes()), None, "{key}");
            assert_eq!(HashSeed(7).hash(key.as_bytes()).0, HashSeed(7).of(key.as_bytes()), "{key}");
        }
        assert_eq!(tag(b"a{b{c}d}"), Some(&b"b{c"[..]));
    }

    #[test]
    fn shares_are_equal() {
        let mut shares = [0; 3];
        (0..30_000u32)
            .for_each(|key| shares[usize::from(HashSeed(1).hash(&key.to_le_bytes()).share(3))] += 1);
        assert!(shares.iter().all(|share| (9_600..10_400).contains(share)), "{shares:?}");
    }
}
