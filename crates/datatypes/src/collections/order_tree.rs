//! An order-statistic B+tree of scores and record positions.
//!
//! Leaves hold entries in order and are linked both ways; an inner node holds, for each child, its first entry
//! and the number of entries below it. The tree does not know the members that order entries of equal score:
//! where a method needs the order, it takes `before`, a predicate that holds for a first part of the entries
//! and for none of the rest. Nodes that fall below a quarter are joined with a neighbour if both fit into three
//! quarters of a node; they never borrow.

use super::buffer::allocated;
use super::paged::{PAGE_OF_NODES, Paged};
use super::tree_node::{Entry, FAN, Inner, LEAF, Leaf, NONE};

/// More levels of inner nodes than 2^32 entries need, joined at a quarter of [`FAN`].
const LEVELS: usize = 16;

/// The tree.
#[derive(Clone)]
pub(super) struct OrderTree {
    leaves: Paged<Leaf, PAGE_OF_NODES>,
    inners: Paged<Inner, PAGE_OF_NODES>,
    free_leaves: Vec<u32>,
    free_inners: Vec<u32>,
    root: u32,
    /// Levels of inner nodes.
    height: usize,
    len: usize,
}

/// An entry's place: from the root, each inner node and the child taken; then the leaf, the place in it and the
/// number of entries before it.
pub(super) struct Path {
    steps: [(u32, u32); LEVELS],
    leaf: u32,
    at: usize,
    rank: usize,
}

/// A place in a leaf.
#[derive(Clone, Copy)]
pub(super) struct Cursor {
    leaf: u32,
    at: u32,
}

#[inline]
fn partition(len: usize, before: impl Fn(usize) -> bool) -> usize {
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = (low + high) / 2;
        if before(middle) { low = middle + 1 } else { high = middle }
    }
    low
}

impl OrderTree {
    /// An empty tree.
    pub(super) fn new() -> Self {
        let mut leaves = Paged::with_capacity(1);
        leaves.push(Leaf::new());
        OrderTree {
            leaves,
            inners: Paged::with_capacity(0),
            free_leaves: Vec::new(),
            free_inners: Vec::new(),
            root: 0,
            height: 0,
            len: 0,
        }
    }

    /// The number of entries.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The bytes this takes from the allocator, shared ones included.
    pub(super) fn memory(&self) -> usize {
        self.leaves.memory()
            + self.inners.memory()
            + allocated((self.free_leaves.capacity() + self.free_inners.capacity()) * 4)
    }

    /// The place of the first entry for which `before` does not hold, or the end of the leaf before it.
    fn descend(&self, before: &impl Fn(f64, u32) -> bool) -> Path {
        let mut path = Path { steps: [(0, 0); LEVELS], leaf: self.root, at: 0, rank: 0 };
        for step in &mut path.steps[..self.height] {
            let inner = self.inners.get(path.leaf as usize);
            // Binary search among the children behind the first, whose own first entry does not matter.
            let child =
                partition(inner.len as usize - 1, |i| before(inner.scores[i + 1], inner.items[i + 1]));
            path.rank += inner.counts[..child].iter().sum::<u32>() as usize;
            *step = (path.leaf, child as u32);
            path.leaf = inner.children[child];
        }
        let leaf = self.leaves.get(path.leaf as usize);
        path.at = partition(leaf.len as usize, |i| before(leaf.scores[i], leaf.items[i]));
        path.rank += path.at;
        path
    }

    /// The number of entries for which `before` holds.
    pub(super) fn partition_point(&self, before: impl Fn(f64, u32) -> bool) -> usize {
        self.descend(&before).rank
    }

    /// The place of the last entry for which `up_to` holds. There must be one.
    fn find_last(&self, up_to: &impl Fn(f64, u32) -> bool) -> Path {
        let mut path = self.descend(up_to);
        debug_assert!(path.at > 0, "the entry is in the tree");
        path.at -= 1;
        path.rank -= 1;
        path
    }

    /// The place of the entry with a rank below the length.
    pub(super) fn cursor(&self, rank: usize) -> Cursor {
        let (mut node, mut left) = (self.root, rank as u32);
        for _ in 0..self.height {
            let inner = self.inners.get(node as usize);
            let mut child = 0;
            while left >= inner.counts[child] {
                left -= inner.counts[child];
                child += 1;
            }
            node = inner.children[child];
        }
        Cursor { leaf: node, at: left }
    }

    /// The entry at a place.
    #[inline]
    pub(super) fn entry(&self, cursor: Cursor) -> Entry {
        let leaf = self.leaves.get(cursor.leaf as usize);
        (leaf.scores[cursor.at as usize], leaf.items[cursor.at as usize])
    }

    /// The place behind another, if there is one.
    #[inline]
    pub(super) fn next(&self, cursor: Cursor) -> Option<Cursor> {
        let leaf = self.leaves.get(cursor.leaf as usize);
        if cursor.at + 1 < leaf.len {
            return Some(Cursor { leaf: cursor.leaf, at: cursor.at + 1 });
        }
        (leaf.next != NONE).then_some(Cursor { leaf: leaf.next, at: 0 })
    }

    /// The place before another, if there is one.
    #[inline]
    pub(super) fn previous(&self, cursor: Cursor) -> Option<Cursor> {
        if cursor.at > 0 {
            return Some(Cursor { leaf: cursor.leaf, at: cursor.at - 1 });
        }
        let leaf = self.leaves.get(cursor.leaf as usize).previous;
        (leaf != NONE).then(|| Cursor { leaf, at: self.leaves.get(leaf as usize).len - 1 })
    }

    /// Records a new first entry of the node at `level` of a path (the leaf is at the level of the height).
    fn set_first(&mut self, path: &Path, level: usize, first: Entry) {
        for &(inner, child) in path.steps[..level].iter().rev() {
            self.inners.get_mut(inner as usize).set_first(child as usize, first);
            if child != 0 {
                break;
            }
        }
    }

    /// Adds an entry behind those for which `before` holds.
    pub(super) fn insert(&mut self, entry: Entry, before: impl Fn(f64, u32) -> bool) {
        let path = self.descend(&before);
        self.len += 1;
        for &(inner, child) in &path.steps[..self.height] {
            self.inners.get_mut(inner as usize).counts[child as usize] += 1;
        }
        if path.at == 0 {
            self.set_first(&path, self.height, entry);
        }
        let leaf = self.leaves.get_mut(path.leaf as usize);
        if (leaf.len as usize) < LEAF {
            leaf.insert(path.at, entry);
        } else {
            self.split_leaf(&path, entry);
        }
    }

    /// Splits a full leaf to add an entry: in half, or at its end when entries come in ascending order.
    fn split_leaf(&mut self, path: &Path, entry: Entry) {
        let right_id = self.add_leaf();
        let (mut left, mut right) = (*self.leaves.get(path.leaf as usize), Leaf::new());
        let ascending = left.next == NONE && path.at == LEAF;
        let middle = if ascending { LEAF } else { LEAF / 2 };
        right.take(&mut left, middle);
        if path.at <= middle && !ascending {
            left.insert(path.at, entry);
        } else {
            right.insert(path.at - middle, entry);
        }
        (right.previous, right.next) = (path.leaf, left.next);
        left.next = right_id;
        let (left_first, left_count) = (left.first(), left.len);
        let (right_first, right_count, next) = (right.first(), right.len, right.next);
        *self.leaves.get_mut(path.leaf as usize) = left;
        *self.leaves.get_mut(right_id as usize) = right;
        if next != NONE {
            self.leaves.get_mut(next as usize).previous = right_id;
        }
        let new = (right_first, right_id, right_count);
        self.insert_child(path, ascending, (left_first, left_count), new);
    }

    /// Adds a child behind the path's at each level, from the bottom up, splitting full nodes.
    fn insert_child(&mut self, path: &Path, ascending: bool, left: (Entry, u32), new: (Entry, u32, u32)) {
        let (mut left, mut new) = (left, new);
        for &(node, child) in path.steps[..self.height].iter().rev() {
            let at = child as usize + 1;
            self.inners.get_mut(node as usize).counts[child as usize] = left.1;
            if (self.inners.get(node as usize).len as usize) < FAN {
                self.inners.get_mut(node as usize).insert(at, new.0, new.1, new.2);
                return;
            }
            let right_id = self.add_inner();
            let (mut inner, mut right) = (*self.inners.get(node as usize), Inner::new());
            let middle = if ascending { FAN } else { FAN / 2 };
            right.take(&mut inner, middle);
            let (half, at) =
                if at <= middle && !ascending { (&mut inner, at) } else { (&mut right, at - middle) };
            half.insert(at, new.0, new.1, new.2);
            left = (inner.first(), inner.count());
            new = (right.first(), right_id, right.count());
            *self.inners.get_mut(node as usize) = inner;
            *self.inners.get_mut(right_id as usize) = right;
        }
        let mut root = Inner::new();
        root.insert(0, left.0, self.root, left.1);
        root.insert(1, new.0, new.1, new.2);
        let id = self.add_inner();
        *self.inners.get_mut(id as usize) = root;
        self.root = id;
        self.height += 1;
    }

    fn add_leaf(&mut self) -> u32 {
        self.free_leaves.pop().unwrap_or_else(|| {
            self.leaves.push(Leaf::new());
            self.leaves.len() as u32 - 1
        })
    }

    fn add_inner(&mut self) -> u32 {
        self.free_inners.pop().unwrap_or_else(|| {
            self.inners.push(Inner::new());
            self.inners.len() as u32 - 1
        })
    }

    /// Gives the last entry for which `up_to` holds another record position.
    pub(super) fn renumber(&mut self, up_to: impl Fn(f64, u32) -> bool, item: u32) {
        let path = self.find_last(&up_to);
        let leaf = self.leaves.get_mut(path.leaf as usize);
        leaf.items[path.at] = item;
        if path.at == 0 {
            let first = leaf.first();
            self.set_first(&path, self.height, first);
        }
    }

    /// Removes the last entry for which `up_to` holds. There must be one.
    pub(super) fn remove(&mut self, up_to: impl Fn(f64, u32) -> bool) {
        let path = self.find_last(&up_to);
        self.len -= 1;
        for &(inner, child) in &path.steps[..self.height] {
            self.inners.get_mut(inner as usize).counts[child as usize] -= 1;
        }
        let leaf = self.leaves.get_mut(path.leaf as usize);
        leaf.remove(path.at);
        if path.at == 0 && leaf.len > 0 {
            let first = leaf.first();
            self.set_first(&path, self.height, first);
        }
        if self.height > 0 && (self.leaves.get(path.leaf as usize).len as usize) < LEAF / 4 {
            self.join_leaf(&path);
            self.lower_root();
        }
    }

    /// Joins a leaf with a neighbour of the same parent if they fit, or drops it if it is empty.
    fn join_leaf(&mut self, path: &Path) {
        let level = self.height - 1;
        let (parent, child) = (path.steps[level].0 as usize, path.steps[level].1 as usize);
        if self.leaves.get(path.leaf as usize).len == 0 {
            self.unlink_leaf(path.leaf);
            self.remove_child(path, level, child);
            return;
        }
        let node = self.inners.get(parent);
        for left in [child, child.wrapping_sub(1)] {
            let right = left.wrapping_add(1);
            if left >= node.len as usize || right >= node.len as usize {
                continue;
            }
            if (node.counts[left] + node.counts[right]) as usize > LEAF * 3 / 4 {
                continue;
            }
            let (left_id, right_id) = (node.children[left], node.children[right]);
            let mut second = *self.leaves.get(right_id as usize);
            let first = self.leaves.get_mut(left_id as usize);
            first.take(&mut second, 0);
            let count = first.len;
            self.inners.get_mut(parent).counts[left] = count;
            self.unlink_leaf(right_id);
            self.remove_child(path, level, right);
            return;
        }
    }

    fn unlink_leaf(&mut self, id: u32) {
        let (previous, next) = (self.leaves.get(id as usize).previous, self.leaves.get(id as usize).next);
        if previous != NONE {
            self.leaves.get_mut(previous as usize).next = next;
        }
        if next != NONE {
            self.leaves.get_mut(next as usize).previous = previous;
        }
        *self.leaves.get_mut(id as usize) = Leaf::new();
        self.free_leaves.push(id);
    }

    /// Removes a child of the path's inner node at `level`, then the nodes that become empty, and joins those
    /// that become small.
    fn remove_child(&mut self, path: &Path, level: usize, child: usize) {
        let id = path.steps[level].0;
        let node = self.inners.get_mut(id as usize);
        node.remove(child);
        if node.len == 0 {
            self.free_inners.push(id);
            if level > 0 {
                self.remove_child(path, level - 1, path.steps[level - 1].1 as usize);
            } else {
                self.root = self.add_leaf();
                self.height = 0;
            }
            return;
        }
        if child == 0 {
            let first = node.first();
            self.set_first(path, level, first);
        }
        if level > 0 && (self.inners.get(id as usize).len as usize) < FAN / 4 {
            self.join_inner(path, level);
        }
    }

    fn join_inner(&mut self, path: &Path, level: usize) {
        let (parent, child) = (path.steps[level - 1].0 as usize, path.steps[level - 1].1 as usize);
        for left in [child, child.wrapping_sub(1)] {
            let (right, node) = (left.wrapping_add(1), self.inners.get(parent));
            if left >= node.len as usize || right >= node.len as usize {
                continue;
            }
            let (left_id, right_id) = (node.children[left], node.children[right]);
            let mut second = *self.inners.get(right_id as usize);
            if (self.inners.get(left_id as usize).len + second.len) as usize > FAN * 3 / 4 {
                continue;
            }
            let first = self.inners.get_mut(left_id as usize);
            first.take(&mut second, 0);
            let count = first.count();
            self.inners.get_mut(parent).counts[left] = count;
            self.free_inners.push(right_id);
            self.remove_child(path, level - 1, right);
            return;
        }
    }

    /// Drops roots with one child.
    fn lower_root(&mut self) {
        while self.height > 0 && self.inners.get(self.root as usize).len == 1 {
            self.free_inners.push(self.root);
            self.root = self.inners.get(self.root as usize).children[0];
            self.height -= 1;
        }
    }

    /// True when most leaves are free, so that building the tree anew pays.
    pub(super) fn is_mostly_free(&self) -> bool {
        self.free_leaves.len() > self.leaves.len() / 2 + 16
    }

    /// Builds the tree anew with full leaves.
    pub(super) fn compact(&mut self) {
        let mut compacted = OrderTree::new();
        let mut cursor = (self.len > 0).then(|| self.cursor(0));
        while let Some(place) = cursor {
            compacted.insert(self.entry(place), |_, _| true);
            cursor = self.next(place);
        }
        *self = compacted;
    }
}

#[cfg(test)]
impl OrderTree {
    /// Checks the structure and returns the entries in order.
    pub(super) fn check_invariants(&self) -> Vec<Entry> {
        let (mut leaves, mut inners) = (Vec::new(), 0);
        self.check_node(self.root, self.height, &mut leaves, &mut inners);
        assert_eq!(leaves.len() + self.free_leaves.len(), self.leaves.len());
        assert_eq!(inners + self.free_inners.len(), self.inners.len());
        let mut entries = Vec::new();
        for (i, &id) in leaves.iter().enumerate() {
            let leaf = self.leaves.get(id as usize);
            assert_eq!(leaf.previous, if i == 0 { NONE } else { leaves[i - 1] });
            assert_eq!(leaf.next, leaves.get(i + 1).copied().unwrap_or(NONE));
            assert!(leaf.len > 0 || self.height == 0);
            entries.extend((0..leaf.len as usize).map(|at| (leaf.scores[at], leaf.items[at])));
        }
        assert_eq!(entries.len(), self.len);
        entries
    }

    fn check_node(&self, id: u32, height: usize, leaves: &mut Vec<u32>, inners: &mut usize) -> (Entry, u32) {
        if height == 0 {
            leaves.push(id);
            return (self.leaves.get(id as usize).first(), self.leaves.get(id as usize).len);
        }
        *inners += 1;
        let inner = self.inners.get(id as usize);
        assert!(inner.len > 0);
        for at in 0..inner.len as usize {
            let (first, count) = self.check_node(inner.children[at], height - 1, leaves, inners);
            assert_eq!((inner.scores[at], inner.items[at], inner.counts[at]), (first.0, first.1, count));
        }
        (inner.first(), inner.count())
    }
}
