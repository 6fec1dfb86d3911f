//! The order in which a large collection is visited piece by piece.
//!
//! Elements are visited in the order of their *places*, and a place depends on nothing but the element's hash. So a cursor
//! means the same in every version of the collection, whatever comes and goes between two calls and in whatever order: an
//! element that is there at every call is in the piece that has its place.
//!
//! A place is the part of the hash that chooses the shard of the index, read backwards. The shards that linear hashing
//! makes of one by splitting therefore take adjacent ranges of places, as the buckets of Redis's tables do, and a shard is
//! visited as a few pieces, between whose bounds all cursors lie. A cursor so tells of hashes little more than which shard
//! comes next.

use std::ops::Range;

use super::index::SHARD_SHIFT;

/// Places are below this: cursors fit in what drivers read as a signed integer.
pub(super) const END: u64 = 1 << PLACE_BITS;
const PLACE_BITS: u32 = u64::BITS - SHARD_SHIFT;

/// The pieces of a shard. Every piece costs a look at the whole shard, so more of them cost more time.
const PIECES: u64 = 16;

/// Where an element with this hash is visited.
#[inline]
pub(super) fn place(hash: u64) -> u64 {
    (hash >> SHARD_SHIFT).reverse_bits() >> SHARD_SHIFT
}

/// A hash with this place.
#[inline]
pub(super) fn hash_at(place: u64) -> u64 {
    (place << SHARD_SHIFT).reverse_bits() << SHARD_SHIFT
}

/// The places of the shard that has `place`, of shards that `bits` bits of the hash distinguish.
pub(super) fn shard_places(place: u64, bits: u32) -> Range<u64> {
    let width = END >> bits.min(PLACE_BITS);
    let start = place - place % width;
    start..start + width
}

/// The end of the pieces that begin at `from`, in a shard with these places and `len` elements, and have about `count`
/// elements, at least one.
pub(super) fn pieces_end(shard: &Range<u64>, len: usize, from: u64, count: usize) -> u64 {
    let width = ((shard.end - shard.start) / PIECES).max(1);
    let pieces = (count as u64).saturating_mul(PIECES).div_ceil(len.max(1) as u64).clamp(1, PIECES);
    (from - from % width + pieces * width).min(shard.end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_that_are_split_take_adjacent_places() {
        for hash in [0, u64::MAX, 0x0123_4567_89ab_cdef, 1 << 24, 1 << 25, 1 << 63] {
            let place = place(hash);
            assert!(place < END);
            assert_eq!(hash_at(place), hash >> SHARD_SHIFT << SHARD_SHIFT);
            for bits in 0..PLACE_BITS {
                let (whole, half) = (shard_places(place, bits), shard_places(place, bits + 1));
                assert!(whole.contains(&place) && half.contains(&place));
                let upper = hash >> (SHARD_SHIFT + bits) & 1 == 1;
                assert!(if upper { half.end == whole.end } else { half.start == whole.start });
            }
        }
    }

    #[test]
    fn pieces_have_about_as_many_elements_as_requested() {
        let shard = 0..1600;
        assert_eq!(pieces_end(&shard, 800, 0, 10), 100);
        assert_eq!(pieces_end(&shard, 800, 0, 51), 200);
        assert_eq!(pieces_end(&shard, 800, 100, usize::MAX), 1600);
        assert_eq!(pieces_end(&shard, 0, 1500, 10), 1600);
        assert_eq!(pieces_end(&shard, 800, 150, 10), 200, "a cursor of another version");
        assert_eq!(pieces_end(&(5..6), 3, 5, 1), 6);
    }
}
