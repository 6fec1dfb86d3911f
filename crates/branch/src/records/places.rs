//! The places of a key's versions, in order. A key may have hundreds of thousands while a site that was cut off tells what it did, on
//! branches among others: so they lie in chunks, and no step moves more than one of these.

use super::chunk::Chunk;
use super::lines::At;
use super::newest::{Labelled, List};
use crate::StateId;
use crate::dag::Label;
use std::ops::{Index, IndexMut};
use std::slice;

/// So many places at most lie in one chunk: to move half of them takes about as long as to count on where a thousand chunks begin.
const CHUNK: usize = 512;

/// A version: who sees it, how new it is, and its value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub label: Label,
    pub id: StateId,
    pub line: u32,
    pub version: u32,
}

impl Place {
    /// Where its value is.
    pub fn at(&self) -> At {
        (self.line, self.version)
    }
}

impl Labelled for Place {
    fn label(&self) -> Label {
        self.label
    }

    fn id(&self) -> StateId {
        self.id
    }
}

/// See the module.
#[derive(Clone, Debug)]
pub(super) enum Places {
    Few(Chunk),
    Many(Box<Chunks>),
}

impl Default for Places {
    fn default() -> Self {
        Places::Few(Chunk::default())
    }
}

impl Places {
    pub fn insert(&mut self, at: usize, place: Place) {
        match self {
            Places::Few(chunk) if chunk.len() < CHUNK => chunk.insert(at, place),
            Places::Few(chunk) => {
                let mut chunks = Chunks::of(std::mem::take(chunk));
                chunks.insert(at, place);
                *self = Places::Many(Box::new(chunks));
            }
            Places::Many(chunks) => chunks.insert(at, place),
        }
    }

    pub fn remove(&mut self, at: usize) -> Place {
        let chunks = match self {
            Places::Few(chunk) => return chunk.remove(at),
            Places::Many(chunks) => chunks,
        };
        let place = chunks.remove(at);
        if let [only] = &mut chunks.all[..]
            && only.len() <= CHUNK / 2
        {
            *self = Places::Few(std::mem::take(only));
        }
        place
    }

    pub fn len(&self) -> usize {
        match self {
            Places::Few(chunk) => chunk.len(),
            Places::Many(chunks) => chunks.len(),
        }
    }

    /// The only one there is.
    pub fn only(&self) -> Option<Place> {
        match self {
            Places::Few(chunk) if chunk.len() == 1 => chunk.first().copied(),
            _ => None,
        }
    }

    fn chunks(&self) -> &[Chunk] {
        match self {
            Places::Few(chunk) => slice::from_ref(chunk),
            Places::Many(chunks) => &chunks.all,
        }
    }

    fn chunks_mut(&mut self) -> &mut [Chunk] {
        match self {
            Places::Few(chunk) => slice::from_mut(chunk),
            Places::Many(chunks) => &mut chunks.all,
        }
    }

    /// In which chunk a place is, and where there. The end is in the last one.
    fn find(&self, at: usize) -> (usize, usize) {
        match self {
            Places::Few(_) => (0, at),
            Places::Many(chunks) => chunks.find(at),
        }
    }

    /// Where a chunk begins.
    fn start(&self, chunk: usize) -> usize {
        match self {
            Places::Few(_) => 0,
            Places::Many(chunks) => chunks.starts[chunk],
        }
    }

    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Place> {
        self.chunks().iter().flat_map(|chunk| chunk.iter())
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.chunks_mut().iter_mut().flat_map(|chunk| chunk.iter_mut())
    }

    pub fn place_of(&self, label: Label) -> Option<usize> {
        let at = self.partition_point(|place| place.label < label);
        (at < self.len() && self[at].label == label).then_some(at)
    }

    /// The same, where it is probably one of the first: of thousands few are looked at.
    pub fn early_place_of(&self, label: Label) -> Option<usize> {
        let chunks = self.chunks();
        let ends_before = |chunk: usize| chunks[chunk].last().is_none_or(|place| place.label < label);
        let of = early_point(chunks.len(), ends_before);
        let chunk = chunks.get(of)?;
        let at = early_point(chunk.len(), |at| chunk[at].label < label);
        chunk.get(at).filter(|place| place.label == label).map(|_| self.start(of) + at)
    }

    /// The bytes that they occupy beyond their own size.
    pub fn memory(&self) -> usize {
        let own = match self {
            Places::Few(_) => 0,
            Places::Many(chunks) => chunks.memory(),
        };
        own + self.chunks().iter().map(Chunk::memory).sum::<usize>()
    }
}

/// Of so many in order the first that does not come before something, probably one of the first.
fn early_point(len: usize, comes_before: impl Fn(usize) -> bool) -> usize {
    let mut most = 1;
    while most < len && comes_before(most) {
        most *= 2;
    }
    let (mut from, mut to) = (most / 2, most.min(len));
    while from < to {
        let middle = from + (to - from) / 2;
        match comes_before(middle) {
            true => from = middle + 1,
            false => to = middle,
        }
    }
    from
}

impl Index<usize> for Places {
    type Output = Place;

    fn index(&self, at: usize) -> &Place {
        let (chunk, at) = self.find(at);
        &self.chunks()[chunk][at]
    }
}

impl IndexMut<usize> for Places {
    fn index_mut(&mut self, at: usize) -> &mut Place {
        let (chunk, at) = self.find(at);
        &mut self.chunks_mut()[chunk][at]
    }
}

impl List for Places {
    type Item = Place;

    fn at(&self, at: usize) -> &Place {
        &self[at]
    }

    fn partition_point(&self, is_before: impl Fn(&Place) -> bool) -> usize {
        let chunks = self.chunks();
        let chunk = chunks.partition_point(|chunk| chunk.first().is_some_and(&is_before)).saturating_sub(1);
        self.start(chunk) + chunks[chunk].partition_point(is_before)
    }

    fn before(&self, end: usize) -> impl Iterator<Item = &Place> {
        let (chunk, at) = self.find(end);
        let whole = self.chunks()[..chunk].iter().flat_map(|chunk| chunk.iter());
        whole.chain(&self.chunks()[chunk][..at]).rev()
    }
}

/// Places one behind the other, none of them empty.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunks {
    all: Vec<Chunk>,
    /// How many places are before each.
    starts: Vec<usize>,
}

impl Chunks {
    fn of(chunk: Chunk) -> Self {
        Chunks { all: vec![chunk], starts: vec![0] }
    }

    fn len(&self) -> usize {
        self.starts.last().zip(self.all.last()).map_or(0, |(start, chunk)| start + chunk.len())
    }

    fn find(&self, at: usize) -> (usize, usize) {
        let chunk = self.starts.partition_point(|start| *start <= at).saturating_sub(1);
        (chunk, at - self.starts[chunk])
    }

    fn insert(&mut self, at: usize, place: Place) {
        let chunk = self.with_room(at);
        self.all[chunk].insert(at - self.starts[chunk], place);
        self.starts[chunk + 1..].iter_mut().for_each(|start| *start += 1);
    }

    /// The chunk that takes in what comes to be here. Where one ends and the next begins, what comes goes on filling one: a branch
    /// that grows fills chunk by chunk.
    fn with_room(&mut self, at: usize) -> usize {
        let (chunk, inside) = self.find(at);
        if inside == 0 && chunk > 0 && self.all[chunk - 1].len() < CHUNK {
            return chunk - 1;
        }
        let len = self.all[chunk].len();
        if len < CHUNK {
            return chunk;
        }
        if inside == 0 {
            self.all.insert(chunk, Chunk::default());
            self.starts.insert(chunk, at);
            return chunk;
        }
        let keeps = if inside == len { len } else { len / 2 };
        let behind = self.all[chunk].split_off(keeps);
        self.all.insert(chunk + 1, behind);
        self.starts.insert(chunk + 1, self.starts[chunk] + keeps);
        chunk + usize::from(inside >= keeps)
    }

    fn remove(&mut self, at: usize) -> Place {
        let (chunk, inside) = self.find(at);
        let place = self.all[chunk].remove(inside);
        self.starts[chunk + 1..].iter_mut().for_each(|start| *start -= 1);
        if self.all[chunk].len() < CHUNK / 4 {
            self.join_neighbours(chunk);
        }
        place
    }

    /// A chunk that has become small becomes one with the one behind it, or before it, if that is not large.
    fn join_neighbours(&mut self, chunk: usize) {
        let joined = |first: &usize| {
            let both = self.all.get(*first..first + 2).unwrap_or_default();
            let len = both.iter().map(|chunk| chunk.len()).sum::<usize>();
            both.len() == 2 && (len <= CHUNK / 2 || both.iter().any(|chunk| chunk.is_empty()))
        };
        if let Some(first) = [Some(chunk), chunk.checked_sub(1)].into_iter().flatten().find(joined) {
            let behind = self.all.remove(first + 1);
            self.starts.remove(first + 1);
            self.all[first].append(behind);
        }
    }

    fn memory(&self) -> usize {
        size_of::<Self>()
            + self.all.capacity() * size_of::<Chunk>()
            + self.starts.capacity() * size_of::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, ProcessId};

    fn place(branch: u64, sequence: u64) -> Place {
        let id = StateId::made_by(sequence + 1, ProcessId(1), Incarnation(1));
        Place { label: Label { branch, sequence }, id, line: 0, version: sequence as u32 }
    }

    /// Panics unless no step has to move many, and there is no memory without need.
    fn assert_in_order(places: &Places) {
        let (chunks, len) = (places.chunks(), places.len());
        assert!(chunks.iter().all(|chunk| chunk.len() <= CHUNK), "a step moves one chunk at most");
        assert!(chunks.len() == 1 || chunks.iter().all(|chunk| !chunk.is_empty()), "no chunk is empty");
        let small = chunks.windows(2).filter(|pair| pair[0].len() + pair[1].len() <= CHUNK / 4).count();
        assert!(small <= len / CHUNK, "{small} small chunks of {}", chunks.len());
        let capacity: usize = chunks.iter().map(|chunk| chunk.memory() / size_of::<Place>()).sum();
        assert!(capacity <= 2 * len.max(1) + chunks.len(), "memory is given back");
        let Places::Many(all) = places else { return };
        let starts = chunks.iter().scan(0, |start, chunk| {
            *start += chunk.len();
            Some(*start - chunk.len())
        });
        assert!(starts.eq(all.starts.iter().copied()), "every chunk is where it is said to be");
    }

    #[test]
    fn places_are_those_of_a_plain_list() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut places, mut plain): (Places, Vec<u64>) = Default::default();
            let most = [2, 10, 200, 2 * CHUNK, 6 * CHUNK][random.usize(..5)];
            // Of many, most are put behind the one before, as if branches grew.
            let (mut grows, mut at) = (true, 0);
            for version in 0..(4 * most as u64).max(1_000) {
                grows = if plain.len() >= most { false } else { grows || random.usize(..=most) == 0 };
                if plain.is_empty() || random.usize(..8) < if grows { 7 } else { 1 } {
                    at = if random.u32(..50) == 0 {
                        random.usize(..=plain.len())
                    } else {
                        at.min(plain.len())
                    };
                    places.insert(at, place(0, version));
                    plain.insert(at, version);
                    at += 1;
                } else {
                    let at = if random.bool() { 0 } else { random.usize(..plain.len()) };
                    assert_eq!(u64::from(places.remove(at).version), plain.remove(at));
                    grows |= plain.is_empty();
                }
                let at = random.usize(..=plain.len());
                assert_eq!(plain.get(at), plain.get(at).map(|_| &places[at].label.sequence), "seed {seed}");
                if most > 10 && version % 64 > 0 {
                    continue;
                }
                assert!(
                    places.iter().map(|place| place.label.sequence).eq(plain.iter().copied()),
                    "seed {seed}"
                );
                let before = places.before(at).map(|place| place.label.sequence);
                assert!(before.eq(plain[..at].iter().rev().copied()), "seed {seed}");
                assert_in_order(&places);
            }
        }
    }

    #[test]
    fn a_place_is_found_among_many() {
        for len in [0, 1, 2, 7, CHUNK as u64, 5 * CHUNK as u64 + 3] {
            let mut places = Places::default();
            (0..len)
                .for_each(|number| places.insert(number as usize, place(number / 100, 2 * (number % 100))));
            assert_eq!(places.only().is_some(), len == 1);
            for number in 0..len {
                let Label { branch, sequence } = places[number as usize].label;
                let next = Label { branch, sequence: sequence + 1 };
                let label = Label { branch, sequence };
                assert_eq!(places.place_of(label), Some(number as usize));
                assert_eq!(places.early_place_of(label), Some(number as usize));
                assert_eq!((places.place_of(next), places.early_place_of(next)), (None, None));
            }
        }
    }

    /// A site that was cut off from two others, and did as much as they, gets to know what they did by turns.
    #[test]
    fn branches_that_grow_beside_each_other_fill_half_of_their_chunks() {
        let (mut places, each) = (Places::default(), 20 * CHUNK as u64);
        for (branches, from) in [(2..3, 0), (0..2, 0)] {
            for sequence in from..each {
                for branch in branches.clone() {
                    let new = place(branch, sequence);
                    let at = places.partition_point(|place| place.label < new.label);
                    places.insert(at, new);
                }
            }
        }
        assert_in_order(&places);
        assert!(places.chunks().len() < 5 * 20, "{} chunks", places.chunks().len());
        for _ in 0..places.len() {
            places.remove(0);
        }
        assert!(matches!(places, Places::Few(_)));
    }
}
