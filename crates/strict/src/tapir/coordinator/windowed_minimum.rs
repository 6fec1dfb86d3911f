//! The duration of a Prepare without waiting: the minimum of a recent window.
//!
//! How long a transaction's own runs take says little where it is refused again and again: they contain the waiting for
//! others. If a reservation lasted a multiple of that, those who wait for it would take longer in turn, and so on.

use std::time::Duration;
use types::Instant;

/// For how long what was measured counts, at least; and twice that at most.
const WINDOW: Duration = Duration::from_secs(5);

/// The shortest of this window and of the one before.
#[derive(Debug, Default)]
pub(super) struct WindowedMinimum {
    shortest: [Option<Duration>; 2],
    since: Instant,
}

impl WindowedMinimum {
    /// A Prepare succeeded after this time.
    pub fn note(&mut self, took: Duration, now: Instant) {
        if now - self.since >= WINDOW {
            (self.shortest, self.since) = ([None, self.shortest[0]], now);
        }
        self.shortest[0] = Some(self.shortest[0].map_or(took, |shortest| shortest.min(took)));
    }

    /// The shortest, if any was measured lately.
    pub fn get(&self) -> Option<Duration> {
        self.shortest.into_iter().flatten().min()
    }
}
