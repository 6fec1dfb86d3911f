//! Prefetches what the arrived messages will access, before any access: the misses of the cache overlap, over all keys
//! of all of them. Nothing here changes a result.

use super::Shard;
use smallvec::SmallVec;
use types::KeyHash;

/// What a message does with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyUse {
    /// Copies its value.
    Read,
    /// Reads a key's validation state.
    Judge,
    /// Puts an effect into its history.
    Commit,
}

/// So many keys fit without an allocation.
pub type KeyUses<'k> = SmallVec<[(KeyUse, &'k [u8]); 64]>;

impl Shard {
    /// See the module. Each pass reads what the pass before it has prefetched.
    pub fn prefetch(&self, uses: &KeyUses<'_>) {
        let hashes: SmallVec<[KeyHash; 64]> = uses.iter().map(|(_, key)| self.store.hash(key)).collect();
        let places = || uses.iter().zip(&hashes).map(|((of, key), hash)| (*of, *key, *hash));
        for (of, _, hash) in places() {
            self.store.prefetch_bucket(hash);
            self.keys.prefetch_bucket(hash);
            if of == KeyUse::Commit {
                self.store.prefetch_history_bucket(hash);
            }
        }
        for (of, _, hash) in places() {
            self.store.prefetch_record(hash);
            self.keys.prefetch_state(hash);
            if of == KeyUse::Commit {
                self.store.prefetch_history(hash);
            }
        }
        for (of, key, hash) in places() {
            match of {
                KeyUse::Read => self.store.prefetch_value(hash, key),
                KeyUse::Judge => {}
                KeyUse::Commit => self.store.prefetch_last_effect(hash, key),
            }
        }
    }
}
