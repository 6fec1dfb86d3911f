//! Some of a key's places, in order. Collection takes the first ones out, one by one: a gap before the first takes what is left in order
//! without moving all.

use super::line::growth;
use super::places::Place;
use std::ops::{Deref, DerefMut};

/// See the module.
#[derive(Clone, Debug, Default)]
pub(super) struct Chunk {
    all: Vec<Place>,
    /// How many at the front are left over.
    gap: usize,
}

impl Chunk {
    pub fn insert(&mut self, at: usize, place: Place) {
        if at < self.len() / 2 && self.gap > 0 {
            self.gap -= 1;
            self[..=at].rotate_left(1);
            self[at] = place;
            return;
        }
        if self.all.len() == self.all.capacity() && self.gap > self.len() / 4 {
            self.close();
        } else if self.all.len() == self.all.capacity() {
            self.all.reserve_exact(growth(self.all.len()));
        }
        self.all.insert(self.gap + at, place);
    }

    pub fn remove(&mut self, at: usize) -> Place {
        if at >= self.len() / 2 {
            let place = self.all.remove(self.gap + at);
            self.shrink();
            return place;
        }
        self[..=at].rotate_right(1);
        let place = self[0];
        self.gap += 1;
        self.shrink();
        place
    }

    /// Gives back what is not needed once that is half of it.
    fn shrink(&mut self) {
        if self.len() <= self.all.capacity() / 2 {
            self.close();
            self.all.shrink_to_fit();
        }
    }

    fn close(&mut self) {
        self.all.drain(..self.gap);
        self.gap = 0;
    }

    /// Those from a place on are taken out.
    pub fn split_off(&mut self, at: usize) -> Chunk {
        self.close();
        let all = self.all.split_off(at);
        self.all.shrink_to_fit();
        Chunk { all, gap: 0 }
    }

    /// These come behind.
    pub fn append(&mut self, behind: Chunk) {
        self.close();
        self.all.reserve_exact(behind.len());
        self.all.extend_from_slice(&behind);
        self.all.shrink_to_fit();
    }

    pub fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Place>()
    }
}

impl Deref for Chunk {
    type Target = [Place];

    fn deref(&self) -> &[Place] {
        &self.all[self.gap..]
    }
}

impl DerefMut for Chunk {
    fn deref_mut(&mut self) -> &mut [Place] {
        &mut self.all[self.gap..]
    }
}
