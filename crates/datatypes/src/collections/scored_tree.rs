//! A sorted set: members ordered by score, then by bytes.

use std::fmt;
use std::ops::{Bound, Range};

use super::buffer::allocated;
use super::order_tree::{Cursor, OrderTree};
use super::packed_scores::{PackedBackward, PackedEntries, PackedScores};
use super::record_table::{Format, RecordTable};
use super::{PACKED_ELEMENT_BYTES, PACKED_ENTRIES};

/// Unique members with scores, in the order of (score, member). A rank is a place in this order, from 0.
///
/// Ranges are read in two steps: [`score_range`](Self::score_range) and [`lex_range`](Self::lex_range) give ranks,
/// whose number is a count, and [`range`](Self::range) iterates over ranks, forward and backward. All steps take
/// logarithmic time. Scores are never NaN; negative zero is stored as zero.
#[derive(Clone)]
pub struct ScoredTree {
    seed: u64,
    form: Form,
}

#[derive(Clone)]
enum Form {
    Packed(PackedScores),
    Tree(Box<Large>),
}

/// The record table finds the score of a member; the tree orders the records' positions.
#[derive(Clone)]
struct Large {
    table: RecordTable<ScoreThenMember>,
    tree: OrderTree,
}

/// A record: eight bytes of score, then the member.
struct ScoreThenMember;

impl Format for ScoreThenMember {
    #[inline]
    fn key(record: &[u8]) -> &[u8] {
        &record[8..]
    }
}

impl Large {
    /// A large set of entries that come in order.
    fn from_sorted<'a>(seed: u64, len: usize, entries: impl Iterator<Item = (f64, &'a [u8])>) -> Large {
        let mut large = Large { table: RecordTable::new(seed, len + len / 2), tree: OrderTree::new() };
        for (score, member) in entries {
            let position = large.table.push(large.table.hash(member), [&score.to_le_bytes(), member, &[]]);
            large.tree.insert((score, position), |_, _| true);
        }
        large
    }

    fn score(&self, position: u32) -> f64 {
        split_record(self.table.record(position)).0
    }

    fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        let hash = self.table.hash(member);
        let (position, old) = match self.table.find(hash, member) {
            Some(position) => {
                let old = self.score(position);
                if old == score {
                    return Some(old);
                }
                self.remove_from_tree(member, old);
                self.table.record_mut(position)[..8].copy_from_slice(&score.to_le_bytes());
                (position, Some(old))
            }
            None => (self.table.push(hash, [&score.to_le_bytes(), member, &[]]), None),
        };
        let table = &self.table;
        self.tree.insert((score, position), |other, item| {
            other < score || (other == score && table.key(item) < member)
        });
        old
    }

    fn remove_from_tree(&mut self, member: &[u8], score: f64) {
        let table = &self.table;
        self.tree.remove(|other, item| other < score || (other == score && table.key(item) <= member));
    }

    fn remove(&mut self, member: &[u8]) -> Option<f64> {
        let hash = self.table.hash(member);
        let position = self.table.find(hash, member)?;
        let score = self.score(position);
        self.remove_from_tree(member, score);
        // The table is going to move its last record to the free position: so the tree must know it by that.
        let last = self.table.len() as u32 - 1;
        if position != last {
            let table = &self.table;
            let (moved_score, moved) = split_record(table.record(last));
            let up_to =
                |other, item| other < moved_score || (other == moved_score && table.key(item) <= moved);
            self.tree.renumber(up_to, position);
        }
        self.table.remove(hash, position);
        if self.tree.is_mostly_free() {
            self.tree.compact();
        }
        Some(score)
    }
}

#[inline]
fn split_record(record: &[u8]) -> (f64, &[u8]) {
    let (score, member) = record.split_at(8);
    let mut raw = [0; 8];
    raw.copy_from_slice(score);
    (f64::from_le_bytes(raw), member)
}

impl ScoredTree {
    /// An empty set. The seed keeps strangers from choosing members that collide; it has no effect on content.
    pub fn new(seed: u64) -> Self {
        ScoredTree { seed, form: Form::Packed(PackedScores::default()) }
    }

    /// The number of members.
    pub fn len(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.len(),
            Form::Tree(large) => large.tree.len(),
        }
    }

    /// True when there is no member.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes on the heap, in constant time.
    pub fn memory(&self) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.memory(),
            Form::Tree(large) => allocated(size_of::<Large>()) + large.table.memory() + large.tree.memory(),
        }
    }

    /// The score of a member.
    pub fn score(&self, member: &[u8]) -> Option<f64> {
        match &self.form {
            Form::Packed(packed) => packed.find(member).map(|(_, score)| score),
            Form::Tree(large) => Some(large.score(large.table.find(large.table.hash(member), member)?)),
        }
    }

    /// True when the set has the member.
    pub fn contains(&self, member: &[u8]) -> bool {
        self.score(member).is_some()
    }

    /// Adds a member or changes its score; returns the score it had. The score must not be NaN.
    pub fn insert(&mut self, member: &[u8], score: f64) -> Option<f64> {
        debug_assert!(!score.is_nan(), "NaN has no place in an order");
        // Minus zero plus zero is zero; any other score stays what it is.
        let score = score + 0.0;
        let packed = match &mut self.form {
            Form::Tree(large) => return large.insert(member, score),
            Form::Packed(packed) => packed,
        };
        let old = packed.find(member).map(|(_, old)| old);
        if old == Some(score) {
            return old;
        }
        if old.is_some() {
            packed.remove(member);
        } else if packed.len() == PACKED_ENTRIES || member.len() > PACKED_ELEMENT_BYTES {
            let mut large = Large::from_sorted(self.seed, packed.len(), packed.entries(0));
            large.insert(member, score);
            self.form = Form::Tree(Box::new(large));
            return None;
        }
        packed.insert(score, member);
        old
    }

    /// Removes a member; returns the score it had.
    pub fn remove(&mut self, member: &[u8]) -> Option<f64> {
        match &mut self.form {
            Form::Packed(packed) => packed.remove(member),
            Form::Tree(large) => large.remove(member),
        }
    }

    /// The rank of a member.
    pub fn rank(&self, member: &[u8]) -> Option<usize> {
        match &self.form {
            Form::Packed(packed) => packed.find(member).map(|(rank, _)| rank),
            Form::Tree(large) => {
                let score = self.score(member)?;
                let before =
                    |other, item| other < score || (other == score && large.table.key(item) < member);
                Some(large.tree.partition_point(before))
            }
        }
    }

    /// The rank of a member counted from the last, from 0.
    pub fn reverse_rank(&self, member: &[u8]) -> Option<usize> {
        self.rank(member).map(|rank| self.len() - 1 - rank)
    }

    /// The ranks of the scores from `min` to `max`. Their number is `ranks.len()`.
    pub fn score_range(&self, min: Bound<f64>, max: Bound<f64>) -> Range<usize> {
        let start = match min {
            Bound::Included(min) => self.partition_point(|score, _| score < min),
            Bound::Excluded(min) => self.partition_point(|score, _| score <= min),
            Bound::Unbounded => 0,
        };
        let end = match max {
            Bound::Included(max) => self.partition_point(|score, _| score <= max),
            Bound::Excluded(max) => self.partition_point(|score, _| score < max),
            Bound::Unbounded => self.len(),
        };
        start..end.max(start)
    }

    /// The ranks of the members from `min` to `max`, in a set whose scores are all equal; in any other set some
    /// range of ranks.
    pub fn lex_range(&self, min: Bound<&[u8]>, max: Bound<&[u8]>) -> Range<usize> {
        let start = match min {
            Bound::Included(min) => self.partition_point(|_, member| member < min),
            Bound::Excluded(min) => self.partition_point(|_, member| member <= min),
            Bound::Unbounded => 0,
        };
        let end = match max {
            Bound::Included(max) => self.partition_point(|_, member| member <= max),
            Bound::Excluded(max) => self.partition_point(|_, member| member < max),
            Bound::Unbounded => self.len(),
        };
        start..end.max(start)
    }

    fn partition_point(&self, before: impl Fn(f64, &[u8]) -> bool) -> usize {
        match &self.form {
            Form::Packed(packed) => packed.partition_point(before),
            Form::Tree(large) => {
                large.tree.partition_point(|score, item| before(score, large.table.key(item)))
            }
        }
    }

    /// The score and the member of a rank.
    pub fn entry_at(&self, rank: usize) -> Option<(f64, &[u8])> {
        self.range(rank..rank.saturating_add(1)).next()
    }

    /// The first score and member.
    pub fn first(&self) -> Option<(f64, &[u8])> {
        self.entry_at(0)
    }

    /// The last score and member.
    pub fn last(&self) -> Option<(f64, &[u8])> {
        self.entry_at(self.len().checked_sub(1)?)
    }

    /// Removes the first score and member.
    pub fn pop_first(&mut self) -> Option<(f64, Vec<u8>)> {
        let (score, member) = self.first().map(|(score, member)| (score, member.to_vec()))?;
        self.remove(&member);
        Some((score, member))
    }

    /// Removes the last score and member.
    pub fn pop_last(&mut self) -> Option<(f64, Vec<u8>)> {
        let (score, member) = self.last().map(|(score, member)| (score, member.to_vec()))?;
        self.remove(&member);
        Some((score, member))
    }

    /// A score and member, each member equally likely; none of an empty set.
    pub fn random(&self, rng: &mut types::Rng) -> Option<(f64, &[u8])> {
        if self.is_empty() {
            return None;
        }
        let position = rng.usize(..self.len());
        match &self.form {
            Form::Packed(_) => self.entry_at(position),
            Form::Tree(large) => Some(split_record(large.table.record(position as u32))),
        }
    }

    /// Resumes a scan: calls `visit` for about `count` entries and returns the cursor to go on with, 0 at the
    /// end. A scan starts with cursor 0. Every member that stays in the set from start to end is visited at
    /// least once, whatever else comes and goes and whatever its score becomes; a packed set is visited whole.
    pub fn scan<'a>(&'a self, cursor: u64, count: usize, mut visit: impl FnMut(f64, &'a [u8])) -> u64 {
        match &self.form {
            Form::Packed(packed) => {
                packed.entries(0).for_each(|(score, member)| visit(score, member));
                0
            }
            Form::Tree(large) => large.table.scan(cursor, count, |record| {
                let (score, member) = split_record(record);
                visit(score, member);
            }),
        }
    }

    /// All scores and members in order; also from the last.
    pub fn iter(&self) -> Scored<'_> {
        self.range(0..self.len())
    }

    /// The scores and members that another set does not have like that, in order. Takes time for each entry of both, and no more.
    pub fn beyond<'a>(&'a self, other: &'a ScoredTree) -> impl Iterator<Item = (f64, &'a [u8])> {
        let mut others = other.iter().peekable();
        self.iter().filter(move |entry| {
            let is_before =
                |(score, member): &(f64, &[u8])| *score < entry.0 || (*score == entry.0 && *member < entry.1);
            while others.next_if(is_before).is_some() {}
            others.peek() != Some(entry)
        })
    }

    /// The scores and members of a range of ranks in order; also from the last. Ranks beyond the length are
    /// ignored.
    pub fn range(&self, ranks: Range<usize>) -> Scored<'_> {
        let end = ranks.end.min(self.len());
        let ranks = ranks.start.min(end)..end;
        let source = match &self.form {
            Form::Packed(packed) => Source::Packed { packed, front: None, back: None },
            Form::Tree(large) => Source::Tree { large, front: None, back: None },
        };
        Scored { ranks, source }
    }

    #[cfg(test)]
    pub(super) fn check_invariants(&self) {
        match &self.form {
            Form::Packed(packed) => {
                assert!(packed.len() <= PACKED_ENTRIES);
                assert_eq!(packed.entries(0).count(), packed.len());
            }
            Form::Tree(large) => {
                large.table.check_invariants();
                let entries = large.tree.check_invariants();
                assert_eq!(entries.len(), large.table.len());
                entries.iter().for_each(|&(score, item)| assert_eq!(score, large.score(item)));
            }
        }
        let entries = self.iter().collect::<Vec<_>>();
        assert!(entries.windows(2).all(|pair| pair[0] < pair[1]));
    }
}

/// Scores and members in order, from either end.
#[derive(Clone)]
pub struct Scored<'a> {
    ranks: Range<usize>,
    source: Source<'a>,
}

/// Where each end is, found when first needed. In a tree it is the place of the next entry.
#[derive(Clone)]
enum Source<'a> {
    Packed { packed: &'a PackedScores, front: Option<PackedEntries<'a>>, back: Option<PackedBackward<'a>> },
    Tree { large: &'a Large, front: Option<Cursor>, back: Option<Cursor> },
}

impl<'a> Iterator for Scored<'a> {
    type Item = (f64, &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next()?;
        match &mut self.source {
            Source::Packed { packed, front, .. } => front.get_or_insert_with(|| packed.entries(rank)).next(),
            Source::Tree { large, front, .. } => {
                let place = front.unwrap_or_else(|| large.tree.cursor(rank));
                *front = large.tree.next(place);
                let (score, item) = large.tree.entry(place);
                Some((score, large.table.key(item)))
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.ranks.size_hint()
    }
}

impl DoubleEndedIterator for Scored<'_> {
    fn next_back(&mut self) -> Option<Self::Item> {
        let rank = self.ranks.next_back()?;
        match &mut self.source {
            Source::Packed { packed, back, .. } => {
                back.get_or_insert_with(|| packed.entries_backward(rank + 1)).next()
            }
            Source::Tree { large, back, .. } => {
                let place = back.unwrap_or_else(|| large.tree.cursor(rank));
                *back = large.tree.previous(place);
                let (score, item) = large.tree.entry(place);
                Some((score, large.table.key(item)))
            }
        }
    }
}

impl ExactSizeIterator for Scored<'_> {}

impl PartialEq for ScoredTree {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.iter().eq(other.iter())
    }
}

impl fmt::Debug for ScoredTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map()
            .entries(self.iter().map(|(score, member)| (member.escape_ascii().to_string(), score)))
            .finish()
    }
}
