//! The places of a key's versions, in order. Collection takes the first ones out, one by one, of keys that may have thousands: a gap
//! before the first takes what is left in order without moving all.

use super::line::growth;
use super::lines::At;
use super::newest::Labelled;
use crate::StateId;
use crate::dag::Label;
use std::ops::{Deref, DerefMut};

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
#[derive(Clone, Debug, Default)]
pub(super) struct Places {
    all: Vec<Place>,
    /// How many at the front are left over.
    gap: usize,
}

impl Places {
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

    /// The bytes that they occupy beyond their own size.
    pub fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Place>()
    }
}

impl Deref for Places {
    type Target = [Place];

    fn deref(&self) -> &[Place] {
        &self.all[self.gap..]
    }
}

impl DerefMut for Places {
    fn deref_mut(&mut self) -> &mut [Place] {
        &mut self.all[self.gap..]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Incarnation, ProcessId};

    #[test]
    fn places_are_those_of_a_plain_list() {
        for seed in 0..200 {
            let mut random = fastrand::Rng::with_seed(seed);
            let (mut places, mut plain) = (Places::default(), Vec::new());
            let most = [2, 10, 200][random.usize(..3)];
            for version in 0..1_000 {
                if plain.len() < most && random.bool() || plain.is_empty() {
                    let at = random.usize(..=plain.len());
                    let id = StateId::made_by(version, ProcessId(1), Incarnation(1));
                    let label = Label { branch: 0, sequence: version };
                    places.insert(at, Place { label, id, line: 0, version: version as u32 });
                    plain.insert(at, version);
                } else {
                    let at = if random.bool() { 0 } else { random.usize(..plain.len()) };
                    assert_eq!(u64::from(places.remove(at).version), plain.remove(at));
                }
                assert!(
                    places.iter().map(|place| u64::from(place.version)).eq(plain.iter().copied()),
                    "seed {seed}"
                );
                assert!(
                    places.all.capacity() <= 2 * plain.len().max(1) + 1,
                    "seed {seed}: memory is given back"
                );
            }
        }
    }
}
