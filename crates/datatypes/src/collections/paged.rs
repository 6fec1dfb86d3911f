//! Memory that clones share until they write: bytes, and sequences in pages.
//!
//! A clone of a collection is a list of pages that both have; who writes to a page that somebody else has too copies it first.

use super::buffer::allocated;
use triomphe::Arc;

/// What an allocation of shared bytes or elements takes beyond them.
pub(super) const HEADER: usize = 8;

/// Handles of 4 bytes in a page.
pub(super) const PAGE_OF_HANDLES: usize = 4094;
/// Nodes of a tree in a page.
pub(super) const PAGE_OF_NODES: usize = 32;

static ZEROS: [u8; 32 << 10] = [0; 32 << 10];

/// Zeros.
pub(super) fn zeroed(len: usize) -> Arc<[u8]> {
    match ZEROS.get(..len) {
        Some(zeros) => Arc::from(zeros),
        None => Arc::from(vec![0; len]),
    }
}

/// The elements, to be written to: copied first if somebody else has them too.
#[inline]
pub(super) fn make_mut<T: Copy>(shared: &mut Arc<[T]>) -> &mut [T] {
    if !shared.is_unique() {
        *shared = copied(shared);
    }
    match Arc::get_mut(shared) {
        Some(own) => own,
        None => unreachable!("nobody else has what was copied"),
    }
}

#[cold]
fn copied<T: Copy>(shared: &[T]) -> Arc<[T]> {
    Arc::from(shared)
}

/// A sequence in pages of `N` elements, which clones share; the last of them are in one piece, which they do not. So that what
/// grows and shrinks at a page's end does not copy all the time, they are up to two pages.
#[derive(Clone)]
pub(super) struct Paged<T, const N: usize> {
    pages: Vec<Arc<[T]>>,
    last: Vec<T>,
}

impl<T: Copy, const N: usize> Paged<T, N> {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Paged { pages: Vec::new(), last: Vec::with_capacity(capacity.min(2 * N)) }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.pages.len() * N + self.last.len()
    }

    #[inline]
    pub(super) fn get(&self, index: usize) -> &T {
        match self.pages.get(index / N) {
            Some(page) => &page[index % N],
            None => &self.last[index - self.pages.len() * N],
        }
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: usize) -> &mut T {
        let paged = self.pages.len() * N;
        match self.pages.get_mut(index / N) {
            Some(page) => &mut make_mut(page)[index % N],
            None => &mut self.last[index - paged],
        }
    }

    pub(super) fn push(&mut self, element: T) {
        if self.last.len() == 2 * N {
            self.pages.push(Arc::from(&self.last[..N]));
            self.last.drain(..N);
        }
        if self.last.len() == self.last.capacity() {
            // By a third, since there are many that stay small.
            let more = (self.last.len() / 3 + 1).max(64 / size_of::<T>()).min(2 * N - self.last.len());
            self.last.reserve_exact(more);
        }
        self.last.push(element);
    }

    pub(super) fn pop(&mut self) -> Option<T> {
        if self.last.is_empty()
            && let Some(page) = self.pages.pop()
        {
            self.last.extend_from_slice(&page);
        }
        self.last.pop()
    }

    /// Removes an element, whose place the last one takes.
    pub(super) fn swap_remove(&mut self, index: usize) -> T {
        let Some(last) = self.pop() else { unreachable!("there is an element at the index") };
        if index == self.len() { last } else { std::mem::replace(self.get_mut(index), last) }
    }

    #[cfg(test)]
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pages.iter().flat_map(|page| page.iter()).chain(&self.last)
    }

    /// The bytes this takes from the allocator, shared ones included.
    pub(super) fn memory(&self) -> usize {
        self.pages.len() * allocated(N * size_of::<T>() + HEADER)
            + allocated(self.pages.capacity() * size_of::<Arc<[T]>>())
            + allocated(self.last.capacity() * size_of::<T>())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_paged_sequence_is_a_vector_and_its_clones_stay_as_they_are() {
        let mut random = types::Rng::with_seed(1);
        let (mut paged, mut plain) = (Paged::<u32, 4>::with_capacity(0), Vec::new());
        let mut clones = Vec::new();
        for number in 0..5_000 {
            match random.u32(0..10) {
                0..5 => {
                    paged.push(number);
                    plain.push(number);
                }
                5..7 => assert_eq!(paged.pop(), plain.pop()),
                7 if !plain.is_empty() => {
                    let at = random.usize(0..plain.len());
                    assert_eq!(paged.swap_remove(at), plain.swap_remove(at));
                }
                8 if !plain.is_empty() => {
                    let at = random.usize(0..plain.len());
                    (*paged.get_mut(at), plain[at]) = (number, number);
                }
                _ if number % 50 == 0 => clones.push((paged.clone(), plain.clone())),
                _ => {}
            }
            assert_eq!(paged.len(), plain.len());
        }
        clones.push((paged, plain));
        for (paged, plain) in &clones {
            assert!(paged.iter().eq(plain) && (0..plain.len()).all(|at| *paged.get(at) == plain[at]));
        }
        assert!(clones.iter().any(|(paged, _)| paged.pages.len() > 2));
    }

    #[test]
    fn a_page_takes_a_size_class() {
        let nodes = PAGE_OF_NODES * size_of::<super::super::tree_node::Leaf>();
        for bytes in [nodes, PAGE_OF_HANDLES * size_of::<u32>()] {
            assert!(allocated(bytes + HEADER) - bytes < bytes / 25);
        }
    }
}
