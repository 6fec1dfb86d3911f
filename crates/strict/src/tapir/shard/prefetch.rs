//! Asks for what the messages that have arrived will look at, before any of it is looked at: the misses of the cache
//! overlap, over all keys of all of them. Nothing here changes a result.

use super::Shard;
use smallvec::SmallVec;
use types::KeyHash;

/// What a message does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Copies its value.
    Read,
    /// Asks what is kept for validation.
    Judge,
    /// Puts an effect into its history.
    Commit,
}

/// So many keys are asked for at once without an allocation.
pub type Uses<'k> = SmallVec<[(Use, &'k [u8]); 64]>;

impl Shard {
    /// See the module. Each pass reads what the one before it has asked for.
    pub fn prefetch(&self, uses: &Uses<'_>) {
        let hashes: SmallVec<[KeyHash; 64]> = uses.iter().map(|(_, key)| self.store.hash(key)).collect();
        let places = || uses.iter().zip(&hashes).map(|((of, key), hash)| (*of, *key, *hash));
        for (of, _, hash) in places() {
            self.store.prefetch_bucket(hash);
            self.keys.prefetch_bucket(hash);
            if of == Use::Commit {
                self.store.prefetch_history_bucket(hash);
            }
        }
        for (of, _, hash) in places() {
            self.store.prefetch_record(hash);
            self.keys.prefetch_state(hash);
            if of == Use::Commit {
                self.store.prefetch_history(hash);
            }
        }
        for (of, key, hash) in places() {
            match of {
                Use::Read => self.store.prefetch_value(hash, key),
                Use::Judge => {}
                Use::Commit => self.store.prefetch_last_effect(hash, key),
            }
        }
    }
}
