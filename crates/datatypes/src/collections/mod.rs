//! The containers underneath the data types: maps, sets, lists and sorted sets of byte strings.
//!
//! Each container has a packed form for few and short elements, one buffer with about two bytes of overhead per
//! element, and changes by itself to a form for many elements whose operations stay fast. It never changes back.
//! Two containers are equal when they hold the same elements, whatever their forms.
//!
//! | container | packed form | form for many elements |
//! |---|---|---|
//! | [`PackedMap`] | fields and values in insertion order | record table |
//! | [`PackedSet`] | sorted integers, or members in insertion order | record table |
//! | [`ScoredTree`] | members in score order | record table and an order-statistic B+tree |
//! | [`ChunkedList`] | one chunk | a deque of chunks of at most 8 KiB, each shared by clones |
//!
//! A *record table* (`record_table`) numbers its records 0, 1, 2, ... without gaps, keeps their bytes in an arena
//! of pages (`arena`) and finds them through a hash index that grows by linear hashing (`index`), so that no
//! single insertion rehashes a large table. The numbering makes random choice exact, and iteration a function of
//! the operations alone. The index makes a scan resumable, in every version of the collection (`visit`): see
//! [`PackedMap::scan`].
//!
//! *Clones share* the forms for many elements page by page (`paged`): a clone is a list of pages, and who writes to a page that
//! somebody else has too copies it first. So a branch that writes to a collection for the first time, and whoever keeps a
//! value as it was, pays for a few pages and not for the collection. A container's pages are its own where nobody has cloned
//! it, which a look at a count tells.
//!
//! `memory()` answers in constant time: the bytes on the heap, each allocation rounded up to the allocator's
//! size class, without the container's own struct. What clones share each of them counts as its own.

mod arena;
mod buffer;
mod chunk;
mod chunked_list;
mod exact_sum;
mod index;
mod int_set;
mod order_tree;
mod packed_map;
mod packed_scores;
mod packed_set;
mod paged;
mod record_table;
mod scored_tree;
mod tree_node;
mod visit;

#[cfg(test)]
mod tests;

use foldhash::SharedSeed;
use std::sync::OnceLock;

pub use chunked_list::{ChunkedList, Elements};
pub use exact_sum::ExactSum;
pub use packed_map::{Entries, MAX_DEADLINE, PackedMap};
pub use packed_set::{Member, Members, PackedSet};
pub use scored_tree::{Scored, ScoredTree};

/// The most elements a packed map, set or sorted set holds.
pub const PACKED_ENTRIES: usize = 128;

/// The longest element, in bytes, that a packed map, set or sorted set holds.
pub const PACKED_ELEMENT_BYTES: usize = 64;

/// The most members a set of integers holds in its packed form.
pub const PACKED_INTEGERS: usize = 512;

/// What the hashes of this process's containers depend on.
struct Seeds {
    own: u64,
    shared: SharedSeed,
}

/// The seed where nobody has given one: in tests and simulations.
const DEFAULT_SEED: u64 = 0x616e_6162_7261_6e63;

static SEEDS: OnceLock<Seeds> = OnceLock::new();

fn seeds() -> &'static Seeds {
    SEEDS.get_or_init(|| Seeds::new(DEFAULT_SEED))
}

impl Seeds {
    fn new(seed: u64) -> Self {
        Seeds { own: seed, shared: SharedSeed::from_u64(seed) }
    }
}

/// Lets the hashes of all containers of this process depend on `seed`, so that nobody can choose elements that collide.
/// False if some were made before, or a seed was given before; then nothing changes. Which seed it is shows in no effect,
/// since the order of iteration is a function of the operations alone, and in no reply but those of scans. Who resumes
/// a scan in another process, or after a restart, needs the same seed there.
pub fn seed_collections(seed: u64) -> bool {
    SEEDS.set(Seeds::new(seed)).is_ok()
}

impl Default for PackedMap {
    fn default() -> Self {
        PackedMap::new(seeds().own)
    }
}

impl Default for PackedSet {
    fn default() -> Self {
        PackedSet::new(seeds().own)
    }
}

impl Default for ScoredTree {
    fn default() -> Self {
        ScoredTree::new(seeds().own)
    }
}
