//! Three kinds of time, three types, so that none is taken for another.

use crate::wire_struct;
use std::ops::{Add, Sub};
use std::time::Duration;

/// A process's wall clock: microseconds since 1970. May be skewed and may jump.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub u64);
wire_struct!(WallTime(0));

impl WallTime {
    /// Milliseconds since 1970, the unit of every expiry.
    pub fn as_millis(self) -> u64 {
        self.0 / 1000
    }
}

/// A process's monotonic clock: microseconds since it started. Never goes back, means nothing elsewhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(pub u64);

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(duration.as_micros() as u64))
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, earlier: Instant) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// A hybrid timestamp: 52 bits of microseconds since 1970, 12 bits of counter. Orders events; made by [`crate::HybridClock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(pub u64);
wire_struct!(Timestamp(0));

impl Timestamp {
    /// Below every timestamp a clock gives.
    pub const ZERO: Timestamp = Timestamp(0);
    /// Above every timestamp a clock gives.
    pub const MAX: Timestamp = Timestamp(u64::MAX);
    const COUNTER_BITS: u32 = 12;

    /// The smallest timestamp of this wall time.
    pub fn from_wall(wall: WallTime) -> Self {
        Timestamp(wall.0 << Self::COUNTER_BITS)
    }

    /// The wall time it was made at.
    pub fn wall(self) -> WallTime {
        WallTime(self.0 >> Self::COUNTER_BITS)
    }

    /// The next one.
    pub fn next(self) -> Self {
        Timestamp(self.0.saturating_add(1))
    }

    /// The one before; `ZERO` has none before it and stays.
    pub fn previous(self) -> Self {
        Timestamp(self.0.saturating_sub(1))
    }
}
