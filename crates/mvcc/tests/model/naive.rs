//! The model: effects in lists, states by replay from nothing.

use crate::Stamp;
use datatypes::{Cell, Effect, apply};

/// Everything that was committed on one key.
#[derive(Default)]
pub struct NaiveKey {
    /// What no snapshot may leave out any more, in the order in which it took effect.
    pub settled: Vec<(Stamp, Effect<'static>)>,
    /// What is above the horizon, in stamp order.
    pub kept: Vec<(Stamp, Effect<'static>)>,
}

impl NaiveKey {
    pub fn commit(&mut self, horizon: Option<Stamp>, stamp: Stamp, effect: Effect<'static>) {
        if Some(stamp) > horizon && horizon.is_some() {
            let place = self.kept.partition_point(|(other, _)| *other <= stamp);
            self.kept.insert(place, (stamp, effect));
        } else {
            self.settled.push((stamp, effect));
        }
    }

    /// True if there was one.
    pub fn retract(&mut self, stamp: Stamp) -> bool {
        let before = self.kept.len();
        self.kept.retain(|(other, _)| *other != stamp);
        self.kept.len() < before
    }

    pub fn settle(&mut self, horizon: Option<Stamp>) {
        let settled =
            horizon.map_or(self.kept.len(), |horizon| self.kept.partition_point(|(at, _)| *at <= horizon));
        self.settled.extend(self.kept.drain(..settled));
    }

    /// The state of the effects that are shown, and then `own`.
    pub fn state(&self, shows: impl Fn(Stamp) -> bool, own: &[Effect<'static>]) -> Cell {
        let mut cell = Cell::ABSENT;
        let kept = self.kept.iter().filter(|(stamp, _)| shows(*stamp));
        for effect in self.settled.iter().chain(kept).map(|(_, effect)| effect).chain(own) {
            apply::<false>(&mut cell, effect);
        }
        cell
    }

    pub fn newest(&self) -> Cell {
        self.state(|_| true, &[])
    }

    /// The greatest stamp of an effect that was not retracted.
    pub fn stamp(&self) -> Option<Stamp> {
        self.settled.iter().chain(&self.kept).map(|(stamp, _)| *stamp).max()
    }
}
