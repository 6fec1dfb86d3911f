//! The ids of states: unique in a deployment for ever, rising along every path of the State DAG at every site
//! (Corrections 51 and 57).

use crate::{Mutant, Mutants};
use std::fmt;
use std::str::FromStr;
use types::{Incarnation, ProcessId, TransactionId, wire_struct};
use xxhash_rust::xxh3::Xxh3;

/// Set in the maker of a merge; the bits below are a hash.
const MERGE: u64 = 1 << 63;

/// Names a state. Ordered by number, then by maker: an ancestor is less than its descendants.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StateId {
    /// A Lamport clock: greater than every parent's.
    pub number: u64,
    /// The site and its incarnation, or the hash of a merge.
    maker: u64,
}
wire_struct!(StateId { number, maker });

impl StateId {
    /// The state before every transaction, the same at all sites.
    pub const ROOT: StateId = StateId { number: 0, maker: 0 };

    /// Greater than every other.
    pub(crate) const MAX: StateId = StateId { number: u64::MAX, maker: u64::MAX };

    /// The state that a site makes.
    pub fn made_by(number: u64, site: ProcessId, incarnation: Incarnation) -> Self {
        StateId { number, maker: u64::from(site.0) << 32 | u64::from(incarnation.0) }
    }

    /// The state that merging these states by these writes makes, wherever it is made: equal merges coincide (Corrections 53).
    pub fn of_merge<'w>(
        parents: &[StateId],
        handler: Option<u64>,
        writes: impl Iterator<Item = (&'w [u8], &'w [u8])>,
    ) -> Self {
        let mut id = MergeId::new(parents, handler);
        writes.for_each(|(key, effects)| id.writes(key, effects));
        id.finish()
    }

    /// The transaction that made it, its number above `base`; the same at all sites that make the same merge.
    pub(crate) fn transaction(self, base: u64) -> TransactionId {
        match self.site() {
            Some(process) => TransactionId {
                process,
                incarnation: Incarnation(self.maker as u32),
                number: base | self.number,
            },
            None => TransactionId {
                process: ProcessId(u16::MAX),
                incarnation: Incarnation((self.maker >> 32) as u32),
                number: base | (self.maker << 32 ^ self.number) & (base - 1),
            },
        }
    }

    /// The site that made it; `None` for a merge, which no site owns.
    pub fn site(self) -> Option<ProcessId> {
        (self.maker & MERGE == 0).then_some(ProcessId((self.maker >> 32) as u16))
    }
}

/// Finds the id of a merge write by write. It is the same wherever these states are merged by these writes: equal merges
/// coincide (Corrections 53). Merges by another version of the keyspace's handler are others.
pub(crate) struct MergeId {
    hash: Xxh3,
    number: u64,
}

impl std::fmt::Debug for MergeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MergeId").field("number", &self.number).finish_non_exhaustive()
    }
}

/// A merge of several heads is numbered so far ahead of them that what clients do while it is worked out comes before it:
/// what they did is merged with it then, and is written on top of what it has put together; else all of that would be written
/// once more on top of each client's work.
const AHEAD: u64 = 1 << 20;

impl MergeId {
    /// Of a merge of these states, in ascending order.
    pub fn new(parents: &[StateId], handler: Option<u64>) -> Self {
        debug_assert!(parents.is_sorted());
        let mut hash = Xxh3::new();
        if let Some(version) = handler {
            hash.update(b"handler");
            hash.update(&version.to_le_bytes());
        }
        for parent in parents {
            hash.update(&parent.number.to_le_bytes());
            hash.update(&parent.maker.to_le_bytes());
        }
        let ahead = if parents.len() > 2 { AHEAD } else { 0 };
        MergeId { hash, number: number_above(parents) + ahead }
    }

    /// It writes a key, behind those that it wrote before, with these effects.
    pub fn writes(&mut self, key: &[u8], effects: &[u8]) {
        for bytes in [key, effects] {
            self.hash.update(&(bytes.len() as u64).to_le_bytes());
            self.hash.update(bytes);
        }
    }

    /// Its id.
    pub fn finish(&self) -> StateId {
        StateId { number: self.number, maker: self.hash.digest() | MERGE }
    }
}

fn number_above(parents: &[StateId]) -> u64 {
    parents.iter().map(|parent| parent.number).max().unwrap_or(0) + 1
}

/// `12@3.1` for the 12th number of site 3 in its first incarnation, `13@m5f...` for a merge, `0@0.0` for the root.
impl fmt::Display for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.maker & MERGE == 0 {
            write!(f, "{}@{}.{}", self.number, self.maker >> 32, self.maker as u32)
        } else {
            write!(f, "{}@m{:015x}", self.number, self.maker & !MERGE)
        }
    }
}

impl fmt::Debug for StateId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that names no state.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no state id; one looks like 12@3.1, or 13@m00c0ffee for a merge")]
pub struct MalformedId(pub String);

impl FromStr for StateId {
    type Err = MalformedId;

    fn from_str(text: &str) -> Result<Self, MalformedId> {
        let parse = || {
            let (number, maker) = text.split_once('@')?;
            let number = number.parse().ok()?;
            if let Some(hash) = maker.strip_prefix('m') {
                let hash = u64::from_str_radix(hash, 16).ok().filter(|hash| hash & MERGE == 0)?;
                return Some(StateId { number, maker: hash | MERGE });
            }
            let (site, incarnation) = maker.split_once('.')?;
            let (site, incarnation) = (site.parse().ok()?, incarnation.parse().ok()?);
            Some(StateId::made_by(number, ProcessId(site), Incarnation(incarnation)))
        };
        parse().ok_or_else(|| MalformedId(text.to_owned()))
    }
}

/// Gives a site's states their ids. A new incarnation may have forgotten every number it gave: its ids differ by the
/// incarnation alone (Corrections 57).
#[derive(Clone, Debug)]
pub struct Ids {
    site: ProcessId,
    incarnation: Incarnation,
    last: u64,
}

impl Ids {
    /// For one life of a site.
    pub fn new(site: ProcessId, incarnation: Incarnation, mutants: Mutants) -> Self {
        let incarnation = if mutants.has(Mutant::ReuseIds) { Incarnation(0) } else { incarnation };
        Ids { site, incarnation, last: 0 }
    }

    /// An id above these parents and above every id given before.
    pub fn next(&mut self, parents: &[StateId]) -> StateId {
        self.last = number_above(parents).max(self.last + 1);
        StateId::made_by(self.last, self.site, self.incarnation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_read_as_they_are_written() {
        let made = StateId::made_by(12, ProcessId(3), Incarnation(1));
        let merged = StateId::of_merge(&[StateId::ROOT, made], None, std::iter::empty());
        for id in [StateId::ROOT, made, merged] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        assert_eq!((made.to_string().as_str(), made.site()), ("12@3.1", Some(ProcessId(3))));
        assert_eq!((merged.number, merged.site()), (13, None));
        for text in ["", "12", "12@", "12@3", "x@3.1", "12@mffffffffffffffff", "12@m", "12@99999.1"] {
            assert!(text.parse::<StateId>().is_err(), "{text}");
        }
    }

    #[test]
    fn equal_merges_coincide_and_others_do_not() {
        let [a, b] = [1, 2].map(|number| StateId::made_by(number, ProcessId(1), Incarnation(1)));
        let of = |parents: &[StateId], writes: &[(&[u8], &[u8])]| {
            StateId::of_merge(parents, None, writes.iter().copied())
        };
        let by =
            |handler: Option<u64>| StateId::of_merge(&[a, b], handler, [(&b"k"[..], &b"1"[..])].into_iter());
        assert_eq!(by(Some(7)), by(Some(7)));
        assert!(by(Some(7)) != by(Some(8)) && by(Some(7)) != by(None));
        assert_eq!(of(&[a, b], &[(b"k", b"1")]), of(&[a, b], &[(b"k", b"1")]));
        assert_ne!(of(&[a, b], &[(b"k", b"1")]), of(&[a, b], &[(b"k", b"2")]));
        assert_ne!(of(&[a, b], &[(b"k", b"1")]), of(&[a, b], &[(b"k1", b"")]));
        assert_ne!(of(&[a, b], &[]), of(&[StateId::ROOT, b], &[]));
    }

    #[test]
    fn a_new_incarnation_that_forgot_its_numbers_gives_other_ids() {
        let first = |incarnation| {
            Ids::new(ProcessId(1), Incarnation(incarnation), Mutants::default()).next(&[StateId::ROOT])
        };
        assert_ne!(first(1), first(2));
        let reused = |incarnation| {
            Ids::new(ProcessId(1), Incarnation(incarnation), Mutant::ReuseIds.into()).next(&[StateId::ROOT])
        };
        assert_eq!(reused(1), reused(2), "the mutant issues an id twice");
    }
}
