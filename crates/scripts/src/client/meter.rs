//! What a script has used of what it may use.

use mlua::{Error, VmState};
use std::cell::Cell;
use std::time::{Duration, Instant};

/// Instructions are counted so many at a time.
pub(super) const STRIDE: u32 = 100;
/// How many instructions a script executes before others have their turn, and how long it computes if these are slow
/// (Corrections 87).
const SLICE: u64 = 20_000;
const SLICE_TIME: Duration = Duration::from_micros(500);

/// What a script may use.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    pub instructions: u64,
    /// Of computing: a few instructions that handle much memory take long.
    pub time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits { instructions: 200_000_000, time: Duration::from_secs(10) }
    }
}

/// See the module.
#[derive(Debug)]
pub(super) struct Meter {
    allowed: Limits,
    executed: Cell<u64>,
    /// The instruction at which the slice ends, and when it began.
    pause_at: Cell<u64>,
    began: Cell<Instant>,
    /// How long the slices before it took.
    computed: Cell<Duration>,
    is_out_of_time: Cell<bool>,
}

impl Meter {
    pub(super) fn new(allowed: Limits) -> Self {
        Meter {
            allowed,
            executed: Cell::new(0),
            pause_at: Cell::new(0),
            began: Cell::new(Instant::now()),
            computed: Cell::new(Duration::ZERO),
            is_out_of_time: Cell::new(false),
        }
    }

    /// Another script begins.
    pub(super) fn restart(&self) {
        self.executed.set(0);
        self.computed.set(Duration::ZERO);
        self.is_out_of_time.set(false);
    }

    /// The script goes on.
    pub(super) fn begin_slice(&self) {
        self.pause_at.set(self.executed.get() + SLICE);
        self.began.set(Instant::now());
    }

    /// It stands still.
    pub(super) fn end_slice(&self) {
        self.computed.set(self.computed.get() + self.began.get().elapsed());
    }

    /// Counts the next instructions: the script goes on, pauses if it can where it is, or ends.
    pub(super) fn count(&self) -> mlua::Result<VmState> {
        self.executed.set(self.executed.get() + u64::from(STRIDE));
        let slice = self.began.get().elapsed();
        if slice > self.allowed.time.saturating_sub(self.computed.get()) {
            self.is_out_of_time.set(true);
        }
        if self.is_used_up() {
            return Err(Error::runtime(self.limit()));
        }
        let pauses = self.executed.get() >= self.pause_at.get() || slice >= SLICE_TIME;
        Ok(if pauses { VmState::Yield } else { VmState::Continue })
    }

    /// True if the script may execute nothing more.
    pub(super) fn is_used_up(&self) -> bool {
        self.is_out_of_time.get() || self.executed.get() > self.allowed.instructions
    }

    /// What a script is told that may execute nothing more.
    pub(super) fn limit(&self) -> String {
        match self.is_out_of_time.get() {
            true => format!("the script computed for more than {} ms", self.allowed.time.as_millis()),
            false => format!("the script executed more than {} instructions", self.allowed.instructions),
        }
    }
}
