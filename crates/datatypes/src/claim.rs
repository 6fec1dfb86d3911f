//! The claims on locks of two levels: a key in a mode, and elements of its value.
//!
//! Two writes of different members of a scored set commute, and two of different fields of a dict; two of the same do not
//! (Corrections 60). So such a write takes the key's lock in a mode that is compatible with itself, and a lock on each of
//! its elements that is not. Removals take none: beside a write of another element one may empty the collection, and
//! with it goes a deadline that would have outlived the write.

use crate::items::has_duplicates;
use crate::{Effect, Invocation, Items, Mode, Operation, dict, scored_set};

/// What has more elements locks the whole key.
const ELEMENTS: usize = 8;

/// A key's lock in a mode, and an exclusive one on each of these elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Claim<'a> {
    /// The key's.
    pub mode: Mode,
    /// The elements.
    pub elements: Items<'a>,
}

impl From<Mode> for Claim<'_> {
    fn from(mode: Mode) -> Self {
        Claim { mode, elements: Items::NONE }
    }
}

impl<'a> Claim<'a> {
    fn place(mode: Mode, elements: Items<'a>) -> Self {
        // A write of an element twice counts like two that disagree.
        let lockable = elements.len() <= ELEMENTS && !has_duplicates(elements.iter());
        if lockable { Claim { mode, elements } } else { Mode::Write.into() }
    }

    /// True if two transactions may have both: then what they do always commutes.
    pub fn is_compatible(&self, other: &Claim<'_>) -> bool {
        self.mode.compatible(other.mode) && !self.elements.intersects(&other.elements)
    }

    /// True if who has this one needs nothing more for the other one.
    pub fn covers(&self, other: &Claim<'_>) -> bool {
        let has = |element: &[u8]| self.elements.iter().any(|own| own == element);
        self.mode == Mode::Write || self.mode.covers(other.mode) && other.elements.iter().all(has)
    }
}

impl<'a> Effect<'a> {
    /// The locks that it needs where elements have locks of their own; [`Effect::mode`] where they have not.
    pub fn claim(&self) -> Claim<'a> {
        match self {
            Effect::ScoredSet(scored_set::Effect::Put { items }) => {
                Claim::place(Mode::Place, items.members())
            }
            Effect::Dict(dict::Effect::Put { pairs, .. }) => {
                Claim::place(Mode::PlaceFields, pairs.keys_of_pairs())
            }
            Effect::Dict(dict::Effect::SetDeadline { fields, .. }) => {
                Claim::place(Mode::PlaceFields, fields.clone())
            }
            _ => self.mode().into(),
        }
    }
}

impl<'a> Invocation<'a> {
    /// The locks that it needs; `None` if it neither observes nor changes anything.
    pub fn claim(&self) -> Option<Claim<'a>> {
        match &self.effect {
            Some(effect) if self.is_effect_only() => Some(effect.claim()),
            _ => self.mode().map(Claim::from),
        }
    }
}

impl<'a> Operation<'a> {
    /// The locks that it needs to be evaluated, as [`Operation::mode`] has it.
    pub fn claim(&self) -> Claim<'a> {
        let invocation = Invocation { observation: self.observation(), effect: self.blind_effect() };
        match &invocation.effect {
            Some(effect) if invocation.is_effect_only() => effect.claim(),
            _ => self.mode().into(),
        }
    }
}
