//! How much was done, in units that are the same on every machine: for bounds on steps (Corrections 87), and for costs in
//! virtual time.

use std::cell::Cell;
use std::ops::{Add, Sub};
use std::time::Duration;

/// How much a keyspace has done since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Labels compared, versions looked for, effects taken back.
    pub lookups: u64,
    /// States visited.
    pub states: u64,
    /// Keys read, written, merged or moved to another class.
    pub keys: u64,
    /// Bytes of the values that merges put together.
    pub bytes: u64,
}

/// What each of these costs on a slow processor, about, in nanoseconds; where from, `docs/evidence/figures.md` says.
impl Effort {
    /// A lookup.
    pub const LOOKUP: u64 = 20;
    /// A state.
    pub const STATE: u64 = 60;
    /// A key.
    pub const KEY: u64 = 200;
    /// A byte.
    pub const BYTE: u64 = 2;

    /// About how long all of it takes.
    pub fn time(self) -> Duration {
        let Effort { lookups, states, keys, bytes } = self;
        let nanos = Self::LOOKUP * lookups + Self::STATE * states + Self::KEY * keys + Self::BYTE * bytes;
        Duration::from_nanos(nanos)
    }
}

impl Add for Effort {
    type Output = Effort;

    fn add(self, more: Effort) -> Effort {
        Effort {
            lookups: self.lookups + more.lookups,
            states: self.states + more.states,
            keys: self.keys + more.keys,
            bytes: self.bytes + more.bytes,
        }
    }
}

impl Sub for Effort {
    type Output = Effort;

    fn sub(self, before: Effort) -> Effort {
        Effort {
            lookups: self.lookups - before.lookups,
            states: self.states - before.states,
            keys: self.keys - before.keys,
            bytes: self.bytes - before.bytes,
        }
    }
}

/// Counts it, wherever something is looked at.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    lookups: Cell<u64>,
    states: Cell<u64>,
    keys: Cell<u64>,
    bytes: Cell<u64>,
}

fn add(counter: &Cell<u64>, count: usize) {
    counter.set(counter.get() + count as u64);
}

impl Meter {
    pub fn lookups(&self, count: usize) {
        add(&self.lookups, count);
    }

    pub fn states(&self, count: usize) {
        add(&self.states, count);
    }

    pub fn keys(&self, count: usize) {
        add(&self.keys, count);
    }

    pub fn bytes(&self, count: usize) {
        add(&self.bytes, count);
    }

    /// Does something that only a check does, and that does not count.
    pub fn uncounted<R>(&self, check: impl FnOnce() -> R) -> R {
        let before = self.read();
        let outcome = check();
        self.lookups.set(before.lookups);
        self.states.set(before.states);
        self.keys.set(before.keys);
        self.bytes.set(before.bytes);
        outcome
    }

    pub fn read(&self) -> Effort {
        Effort {
            lookups: self.lookups.get(),
            states: self.states.get(),
            keys: self.keys.get(),
            bytes: self.bytes.get(),
        }
    }
}
