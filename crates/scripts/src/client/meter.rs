//! What a script has used of what it may use.

use mlua::{Error, VmState};
use std::cell::Cell;

/// Instructions are counted so many at a time.
pub(super) const STRIDE: u32 = 1000;
/// How many instructions a script executes before others have their turn (Corrections 87).
const SLICE: u64 = 20_000;
/// How many a script may execute, unless that is said.
pub(super) const INSTRUCTIONS: u64 = 200_000_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Meter {
    allowed: u64,
    executed: Cell<u64>,
    pause_at: Cell<u64>,
}

impl Meter {
    pub(super) fn new(allowed: u64) -> Self {
        Meter { allowed, executed: Cell::new(0), pause_at: Cell::new(0) }
    }

    /// Another script begins.
    pub(super) fn restart(&self) {
        self.executed.set(0);
        self.begin_slice();
    }

    /// The script goes on.
    pub(super) fn begin_slice(&self) {
        self.pause_at.set(self.executed.get() + SLICE);
    }

    /// Counts the next instructions: the script goes on, pauses if it can where it is, or ends.
    pub(super) fn count(&self) -> mlua::Result<VmState> {
        self.executed.set(self.executed.get() + u64::from(STRIDE));
        if self.is_used_up() {
            return Err(Error::runtime(self.limit()));
        }
        Ok(if self.executed.get() >= self.pause_at.get() { VmState::Yield } else { VmState::Continue })
    }

    /// True if the script may execute nothing more.
    pub(super) fn is_used_up(&self) -> bool {
        self.executed.get() > self.allowed
    }

    /// What a script is told that may execute nothing more.
    pub(super) fn limit(&self) -> String {
        format!("the script executed more than {} instructions", self.allowed)
    }
}
