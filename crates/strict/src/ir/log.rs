//! The record as a container: groups by id, by the order of their changes and by birth, and digests of the outcomes.

use super::{Group, Groups, Operations};
use std::collections::{BTreeMap, BTreeSet, VecDeque, btree_map};
use types::{Malformed, Reader, Timestamp, TransactionId, Wire, wire_struct};

/// The width of a bucket, as a power of two of timestamps: 65 ms.
const BUCKET_BITS: u32 = 28;

/// Each change leaves one revision behind at most, and so does each group that goes.
const FORGOTTEN_PER_CHANGE: usize = 4;

/// The bucket that a timestamp falls into.
pub(super) fn bucket(at: Timestamp) -> u64 {
    at.0 >> BUCKET_BITS
}

/// The last timestamp of a bucket.
pub(super) fn end_of(bucket: u64) -> Timestamp {
    Timestamp(bucket << BUCKET_BITS | ((1 << BUCKET_BITS) - 1))
}

/// The last timestamp of a bucket that is not above `at`; `ZERO` if there is none.
pub(super) fn aligned(at: Timestamp) -> Timestamp {
    match bucket(at.next()) {
        0 => Timestamp::ZERO,
        next => end_of(next - 1),
    }
}

/// Tells which outcomes of a bucket a replica has: how many, and a sum that no two sets share by chance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest {
    /// How many groups born in the bucket have ended.
    pub count: u32,
    /// The sum of their hashes.
    pub sum: u64,
}
wire_struct!(Digest { count, sum });

/// An outcome on its way to a replica that lacks it.
#[derive(Clone, Debug, PartialEq)]
pub struct EndedGroup<O: Operations> {
    /// The group.
    pub id: TransactionId,
    /// When it was born.
    pub born: Timestamp,
    /// How it ended.
    pub operation: O::Inconsistent,
}

impl<O: Operations> Wire for EndedGroup<O> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.born.encode(out);
        self.operation.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(EndedGroup {
            id: Wire::decode(input)?,
            born: Wire::decode(input)?,
            operation: Wire::decode(input)?,
        })
    }
}

/// How far a replica's synchronization is. All are ends of buckets, or zero, and never fall.
///
/// `trimmed <= base <= accepted`, and `accepted <= floor`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Points {
    /// No new attempt of a group born at or below it is accepted (the paper's sync point; Corrections 14).
    pub floor: Timestamp,
    /// In the last normal view this replica has agreed that all up to here is closed. Not yet known to f+1.
    pub accepted: Timestamp,
    /// The stable base: f+1 have agreed. Every group born at or below it that will ever commit is executed here.
    pub base: Timestamp,
    /// Outcomes of groups born at or below it are forgotten here.
    pub trimmed: Timestamp,
}
wire_struct!(Points { floor, accepted, base, trimmed });

/// What a replica tells of itself for others to compare.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// How far it is.
    pub points: Points,
    /// Its outcomes by bucket of birth; empty buckets are left out.
    pub digests: BTreeMap<u64, Digest>,
}
wire_struct!(Summary { points, digests });

/// See the module.
pub(super) struct Log<O: Operations> {
    groups: Groups<O>,
    /// Ascending; what has changed since, or gone, is left where it is for a while.
    by_revision: VecDeque<(u64, TransactionId)>,
    by_birth: BTreeSet<(Timestamp, TransactionId)>,
    undecided: BTreeSet<TransactionId>,
    digests: BTreeMap<u64, Digest>,
    revision: u64,
}

impl<O: Operations> std::fmt::Debug for Log<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The rest follows from the groups: model checking takes two logs that print alike for the same.
        f.debug_struct("Log").field("groups", &self.groups).field("revision", &self.revision).finish()
    }
}

impl<O: Operations> Default for Log<O> {
    fn default() -> Self {
        Log {
            groups: Groups::new(),
            by_revision: VecDeque::new(),
            by_birth: BTreeSet::new(),
            undecided: BTreeSet::new(),
            digests: BTreeMap::new(),
            revision: 0,
        }
    }
}

/// A hash of an id that spreads over all bits, so that sums of different sets differ.
fn hash(id: TransactionId) -> u64 {
    let mut state = id.number ^ u64::from(id.process.0) << 48 ^ u64::from(id.incarnation.0) << 16;
    for _ in 0..2 {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        state = (state ^ state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        state = (state ^ state >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        state ^= state >> 31;
    }
    state
}

/// A group that had ended goes.
fn uncount(digests: &mut BTreeMap<u64, Digest>, born: Timestamp, id: TransactionId) {
    let of = bucket(born);
    let Some(digest) = digests.get_mut(&of) else { return };
    digest.count -= 1;
    digest.sum = digest.sum.wrapping_sub(hash(id));
    if digest.count == 0 {
        digests.remove(&of);
    }
}

impl<O: Operations> Log<O> {
    pub fn all(&self) -> &Groups<O> {
        &self.groups
    }

    pub fn get(&self, id: TransactionId) -> Option<&Group<O>> {
        self.groups.get(&id)
    }

    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Puts a group as the latest change, and returns it.
    pub fn put(&mut self, id: TransactionId, mut group: Group<O>) -> &Group<O> {
        group.revision = self.revision + 1;
        self.insert(id, group)
    }

    /// Puts a group with the revision it has, and returns it.
    pub fn insert(&mut self, id: TransactionId, group: Group<O>) -> &Group<O> {
        let (born, revision, ended) = (group.born, group.revision, group.outcome.is_some());
        self.forget_revisions();
        let put = match self.groups.entry(id) {
            btree_map::Entry::Occupied(known) => {
                let known = known.into_mut();
                let old = std::mem::replace(known, group);
                if old.born != born {
                    self.by_birth.remove(&(old.born, id));
                    self.by_birth.insert((born, id));
                }
                match (old.outcome.is_some(), ended) {
                    (true, _) => uncount(&mut self.digests, old.born, id),
                    (false, true) => drop(self.undecided.remove(&id)),
                    (false, false) => {}
                }
                if !ended && old.outcome.is_some() {
                    self.undecided.insert(id);
                }
                known
            }
            btree_map::Entry::Vacant(place) => {
                self.by_birth.insert((born, id));
                if !ended {
                    self.undecided.insert(id);
                }
                place.insert(group)
            }
        };
        if ended {
            let digest = self.digests.entry(bucket(born)).or_default();
            digest.count += 1;
            digest.sum = digest.sum.wrapping_add(hash(id));
        }
        self.revision = self.revision.max(revision);
        // Only recovery may meet an earlier one after a later one.
        let place = match self.by_revision.back() {
            Some((last, _)) if *last > revision => self.by_revision.partition_point(|(of, _)| *of < revision),
            _ => self.by_revision.len(),
        };
        self.by_revision.insert(place, (revision, id));
        put
    }

    /// Drops the first few revisions that nothing has any more. An old one that something has holds the others up, but
    /// what has not ended is seen to, and then what is old goes.
    fn forget_revisions(&mut self) {
        for _ in 0..FORGOTTEN_PER_CHANGE {
            let Some((revision, id)) = self.by_revision.front() else { return };
            if self.groups.get(id).is_some_and(|group| group.revision == *revision) {
                return;
            }
            self.by_revision.pop_front();
        }
    }

    pub fn remove(&mut self, id: TransactionId) {
        let Some(old) = self.groups.remove(&id) else { return };
        self.by_birth.remove(&(old.born, id));
        self.undecided.remove(&id);
        if old.outcome.is_some() {
            uncount(&mut self.digests, old.born, id);
        }
    }

    /// The groups whose revision is at least `from`, in the order of revisions.
    pub fn since(&self, from: u64) -> impl Iterator<Item = (TransactionId, &Group<O>)> {
        let first = self.by_revision.partition_point(|(revision, _)| *revision < from);
        self.by_revision.range(first..).filter_map(|(revision, id)| {
            let group = self.groups.get(id).filter(|group| group.revision == *revision)?;
            Some((*id, group))
        })
    }

    /// The groups that have not ended.
    pub fn undecided(&self) -> impl Iterator<Item = (TransactionId, &Group<O>)> {
        self.undecided.iter().filter_map(|id| self.groups.get(id).map(|group| (*id, group)))
    }

    /// The ids of the groups born at or below `at`.
    pub fn born_up_to(&self, at: Timestamp) -> impl Iterator<Item = TransactionId> {
        self.by_birth.iter().take_while(move |(born, _)| *born <= at).map(|(_, id)| *id)
    }

    /// The ended groups of a bucket.
    pub fn ended_in(&self, of: u64) -> impl Iterator<Item = (TransactionId, &Group<O>)> {
        let first = (Timestamp(of << BUCKET_BITS), TransactionId::default());
        let born = self.by_birth.range(first..).take_while(move |(born, _)| bucket(*born) == of);
        let groups = born.filter_map(|(_, id)| self.groups.get(id).map(|group| (*id, group)));
        groups.filter(|(_, group)| group.outcome.is_some())
    }

    /// The greatest birth.
    pub fn youngest(&self) -> Option<Timestamp> {
        self.by_birth.last().map(|(born, _)| *born)
    }

    /// The digests of the buckets that end above `above` and at or below `up_to`.
    pub fn digests(&self, above: Timestamp, up_to: Timestamp) -> BTreeMap<u64, Digest> {
        let within = self.digests.iter().filter(|(of, _)| end_of(**of) > above && end_of(**of) <= up_to);
        within.map(|(of, digest)| (*of, *digest)).collect()
    }

    pub fn digest(&self, of: u64) -> Digest {
        self.digests.get(&of).copied().unwrap_or_default()
    }

    /// Cuts `limit` down so that about `most` ended groups lie between `above` and it, at least one bucket.
    pub fn cut(&self, above: Timestamp, limit: Timestamp, most: u32) -> Timestamp {
        let mut count = 0u32;
        let mut within = self.digests.iter().filter(|(of, _)| end_of(**of) > above);
        let full = within.find(|(_, digest)| {
            count = count.saturating_add(digest.count);
            count >= most
        });
        full.map_or(limit, |(of, _)| end_of(*of).min(limit))
    }
}
