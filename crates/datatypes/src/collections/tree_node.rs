//! The nodes of the order-statistic tree: sorted arrays.

/// Entries of a leaf and children of an inner node; both kinds take 744 bytes, so that a page of them takes a size class of
/// the allocator.
pub(super) const LEAF: usize = 61;
pub(super) const FAN: usize = 37;
/// No leaf.
pub(super) const NONE: u32 = u32::MAX;

/// A score and a record position.
pub(super) type Entry = (f64, u32);

/// Entries in order, and the neighbouring leaves.
#[derive(Clone, Copy)]
pub(super) struct Leaf {
    pub(super) scores: [f64; LEAF],
    pub(super) items: [u32; LEAF],
    pub(super) len: u32,
    pub(super) previous: u32,
    pub(super) next: u32,
}

/// Children in order: each one's first entry, its node and the number of entries below it.
#[derive(Clone, Copy)]
pub(super) struct Inner {
    pub(super) scores: [f64; FAN],
    pub(super) items: [u32; FAN],
    pub(super) children: [u32; FAN],
    pub(super) counts: [u32; FAN],
    pub(super) len: u32,
}

impl Leaf {
    pub(super) fn new() -> Leaf {
        Leaf { scores: [0.0; LEAF], items: [0; LEAF], len: 0, previous: NONE, next: NONE }
    }

    pub(super) fn first(&self) -> Entry {
        (self.scores[0], self.items[0])
    }

    pub(super) fn insert(&mut self, at: usize, (score, item): Entry) {
        let len = self.len as usize;
        self.scores.copy_within(at..len, at + 1);
        self.items.copy_within(at..len, at + 1);
        (self.scores[at], self.items[at]) = (score, item);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.scores.copy_within(at + 1..len, at);
        self.items.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// Appends the entries of another leaf from `at` on, which loses them.
    pub(super) fn take(&mut self, other: &mut Leaf, at: usize) {
        let (len, end) = (self.len as usize, other.len as usize);
        self.scores[len..len + end - at].copy_from_slice(&other.scores[at..end]);
        self.items[len..len + end - at].copy_from_slice(&other.items[at..end]);
        self.len += (end - at) as u32;
        other.len = at as u32;
    }
}

impl Inner {
    pub(super) fn new() -> Inner {
        Inner { scores: [0.0; FAN], items: [0; FAN], children: [0; FAN], counts: [0; FAN], len: 0 }
    }

    pub(super) fn first(&self) -> Entry {
        (self.scores[0], self.items[0])
    }

    pub(super) fn count(&self) -> u32 {
        self.counts[..self.len as usize].iter().sum()
    }

    pub(super) fn set_first(&mut self, at: usize, (score, item): Entry) {
        (self.scores[at], self.items[at]) = (score, item)
    }

    pub(super) fn insert(&mut self, at: usize, first: Entry, child: u32, count: u32) {
        let len = self.len as usize;
        self.scores.copy_within(at..len, at + 1);
        self.items.copy_within(at..len, at + 1);
        self.children.copy_within(at..len, at + 1);
        self.counts.copy_within(at..len, at + 1);
        self.set_first(at, first);
        (self.children[at], self.counts[at]) = (child, count);
        self.len += 1;
    }

    pub(super) fn remove(&mut self, at: usize) {
        let len = self.len as usize;
        self.scores.copy_within(at + 1..len, at);
        self.items.copy_within(at + 1..len, at);
        self.children.copy_within(at + 1..len, at);
        self.counts.copy_within(at + 1..len, at);
        self.len -= 1;
    }

    /// Appends the children of another node from `at` on, which loses them.
    pub(super) fn take(&mut self, other: &mut Inner, at: usize) {
        let (len, end) = (self.len as usize, other.len as usize);
        let to = len..len + end - at;
        self.scores[to.clone()].copy_from_slice(&other.scores[at..end]);
        self.items[to.clone()].copy_from_slice(&other.items[at..end]);
        self.children[to.clone()].copy_from_slice(&other.children[at..end]);
        self.counts[to].copy_from_slice(&other.counts[at..end]);
        self.len += (end - at) as u32;
        other.len = at as u32;
    }
}
