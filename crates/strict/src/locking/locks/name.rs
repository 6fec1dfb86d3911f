//! What a lock is on: a key, or an element of a key's value (`datatypes::Claim`).
//!
//! A lock on an element is one like any other, with a phaser of its own: what the essay says of deadlocks holds of all of
//! them. A transaction that requests one holds the key's lock already, in a mode in which others have other elements.
//! Messages to people name keys.

use datatypes::{Claim, Mode};
use mvcc::CompactKey;
use protocol::Pair;
use types::{HashSeed, KeyHash};

/// Elements are known by their hashes: where two have one, they are one.
const SEED: HashSeed = HashSeed(0);

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Name {
    key: CompactKey,
    /// The element, and in which mode the key is locked for it.
    element: Option<(Mode, KeyHash)>,
}

impl Name {
    /// A key's.
    pub(super) fn of(key: &[u8]) -> Self {
        Name { key: key.into(), element: None }
    }

    /// Those of the elements that are claimed with this key.
    pub(super) fn elements<'n>(&'n self, claim: &'n Claim<'_>) -> impl Iterator<Item = Name> + 'n {
        let element = |element| Some((claim.mode, SEED.hash(element)));
        claim.elements.iter().map(move |it| Name { key: self.key.clone(), element: element(it) })
    }

    /// The key, whatever is locked of it.
    pub(super) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The conflicting operations, as contention statistics show them for the key.
    pub(super) fn seen(&self, pair: Pair) -> Pair {
        self.element.map_or(pair, |(mode, _)| Pair { wanted: mode, met: Some(mode) })
    }
}
