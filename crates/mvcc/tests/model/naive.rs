//! The model: effects in lists, states by replay from nothing.

use crate::Stamp;
use datatypes::{Cell, Effect, apply};

/// Everything that was committed on one key.
#[derive(Default)]
pub struct NaiveKey {
    /// What no snapshot may leave out any more, in the order in which it took effect.
    pub settled: Vec<(Stamp, Effect<'static>)>,
    /// What is above the horizon, in stamp order.
    pub retained: Vec<(Stamp, Effect<'static>)>,
}

impl NaiveKey {
    pub fn commit(&mut self, horizon: Option<Stamp>, stamp: Stamp, effect: Effect<'static>) {
        if Some(stamp) > horizon && horizon.is_some() {
            let place = self.retained.partition_point(|(other, _)| *other <= stamp);
            self.retained.insert(place, (stamp, effect));
        } else {
            self.settled.push((stamp, effect));
        }
    }

    /// True if there was one.
    pub fn retract(&mut self, stamp: Stamp) -> bool {
        let before = self.retained.len();
        self.retained.retain(|(other, _)| *other != stamp);
        self.retained.len() < before
    }

    pub fn settle(&mut self, horizon: Option<Stamp>) {
        let settled = horizon
            .map_or(self.retained.len(), |horizon| self.retained.partition_point(|(at, _)| *at <= horizon));
        self.settled.extend(self.retained.drain(..settled));
    }

    /// The state of the effects that are shown, and then `own`.
    pub fn state(&self, shows: impl Fn(Stamp) -> bool, own: &[Effect<'static>]) -> Cell {
        let mut cell = Cell::ABSENT;
        let retained = self.retained.iter().filter(|(stamp, _)| shows(*stamp));
        for effect in self.settled.iter().chain(retained).map(|(_, effect)| effect).chain(own) {
            apply::<false>(&mut cell, effect);
        }
        cell
    }

    pub fn newest(&self) -> Cell {
        self.state(|_| true, &[])
    }

    /// The greatest stamp of an effect that was not retracted.
    pub fn stamp(&self) -> Option<Stamp> {
        self.settled.iter().chain(&self.retained).map(|(stamp, _)| *stamp).max()
    }
}
