//! How far behind the clock a shard is synchronized: long enough for transactions to get through.
//!
//! What is born below the floor must begin again, so a lag that is shorter than proposals take would stop everything
//! that comes from far away or from a slow clock. Every replica measures how old transactions are when they are first
//! proposed to it, and waits for twice the greatest age of late. A coordinator gives a request up at its deadline, so
//! an age above that is a wrong clock's, which learns better from being refused.

use super::options::Options;
use std::time::Duration;
use types::{Instant, Timestamp, WallTime};

/// For how many lags a measured age counts, at least; and twice that at most.
const WINDOW: u32 = 16;

/// The greatest ages of this window and of the one before.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Lag {
    greatest: [Duration; 2],
    since: Instant,
}

impl Lag {
    /// A transaction was proposed here.
    pub(super) fn proposed(&mut self, born: Timestamp, wall: WallTime, now: Instant, options: &Options) {
        if now - self.since >= options.sync_lag * WINDOW {
            (self.greatest, self.since) = ([Duration::ZERO, self.greatest[0]], now);
        }
        let age = Duration::from_micros(wall.0.saturating_sub(born.wall().0));
        self.greatest[0] = self.greatest[0].max(age.min(options.request_timeout));
    }

    /// How old a birth must be to be closed.
    pub(super) fn now(&self, options: &Options) -> Duration {
        let age = self.greatest[0].max(self.greatest[1]);
        options.sync_lag.max(age * 2)
    }
}
