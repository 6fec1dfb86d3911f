//! The timer table: at most one deadline per timer, fired in order of time, then of timer.

use std::collections::{BTreeMap, BTreeSet};
use types::Instant;

/// The armed timers of one replica.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    deadlines: BTreeMap<T, Instant>,
    order: BTreeSet<(Instant, T)>,
}

impl<T: Copy + Ord> Timers<T> {
    pub(crate) fn new() -> Self {
        Timers { deadlines: BTreeMap::new(), order: BTreeSet::new() }
    }

    /// Sets the timer's only deadline.
    pub(crate) fn arm(&mut self, timer: T, at: Instant) {
        match self.deadlines.insert(timer, at) {
            Some(before) if before == at => return,
            Some(before) => drop(self.order.remove(&(before, timer))),
            None => {}
        }
        self.order.insert((at, timer));
    }

    pub(crate) fn disarm(&mut self, timer: T) {
        if let Some(at) = self.deadlines.remove(&timer) {
            self.order.remove(&(at, timer));
        }
    }

    pub(crate) fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes the earliest timer whose deadline has come.
    pub(crate) fn pop(&mut self, now: Instant) -> Option<T> {
        let (at, timer) = *self.order.first()?;
        if at > now {
            return None;
        }
        self.disarm(timer);
        Some(timer)
    }
}
