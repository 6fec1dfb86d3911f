//! The hybrid logical clock: strictly monotone timestamps near the wall clock, above everything observed.
//!
//! It never reads a clock itself: the wall time is an argument, so that the simulator can skew it. Foreign
//! timestamps are accepted only within a bound, so that one poisoned clock cannot drag the others along
//! (Corrections 35 and 85).

use crate::{Timestamp, WallTime};
use std::time::Duration;

/// A timestamp farther ahead of the local wall clock than the bound allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFarAhead {
    /// How far.
    pub ahead: Duration,
}

/// A hybrid logical clock.
#[derive(Clone, Debug)]
pub struct HybridClock {
    last: Timestamp,
    bound: Duration,
}

impl HybridClock {
    /// A clock that has given nothing yet and accepts foreign timestamps up to `bound` ahead of the wall clock.
    pub fn new(bound: Duration) -> Self {
        HybridClock { last: Timestamp::ZERO, bound }
    }

    /// A timestamp above every one given or observed before, and not below the wall time.
    #[inline]
    pub fn tick(&mut self, wall: WallTime) -> Timestamp {
        self.last = self.last.next().max(Timestamp::from_wall(wall));
        self.last
    }

    /// The greatest timestamp given or observed, or the wall time if that is later; everything given from now on
    /// is above it (Corrections 21).
    pub fn read(&mut self, wall: WallTime) -> Timestamp {
        self.last = self.last.max(Timestamp::from_wall(wall));
        self.last
    }

    /// The greatest timestamp given or observed.
    pub fn last(&self) -> Timestamp {
        self.last
    }

    /// Makes everything given from now on greater than `foreign`, unless that is too far ahead.
    pub fn observe(&mut self, foreign: Timestamp, wall: WallTime) -> Result<(), TooFarAhead> {
        let ahead = foreign.wall().0.saturating_sub(wall.0.max(self.last.wall().0));
        if ahead > self.bound.as_micros() as u64 {
            return Err(TooFarAhead { ahead: Duration::from_micros(ahead) });
        }
        self.last = self.last.max(foreign);
        Ok(())
    }

    /// Makes everything given from now on greater than `own`, which this clock gave in an earlier life or which a
    /// quorum has accepted: not subject to the bound.
    pub fn recover(&mut self, own: Timestamp) {
        self.last = self.last.max(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOUND: Duration = Duration::from_millis(500);

    proptest! {
        #[test]
        fn timestamps_rise_strictly_whatever_the_wall_clock_does(walls in proptest::collection::vec(0u64..1000, 1..50)) {
            let mut clock = HybridClock::new(BOUND);
            let mut last = Timestamp::ZERO;
            for wall in walls {
                let given = clock.tick(WallTime(wall));
                prop_assert!(given > last && given >= Timestamp::from_wall(WallTime(wall)));
                last = given;
            }
        }

        #[test]
        fn what_was_observed_or_read_is_below_what_comes(wall in 0u64..1000, foreign in 0u64..1000) {
            let mut clock = HybridClock::new(BOUND);
            clock.observe(Timestamp::from_wall(WallTime(foreign)), WallTime(wall)).expect("within the bound");
            let read = clock.read(WallTime(wall));
            prop_assert!(clock.tick(WallTime(wall)) > read);
            prop_assert!(read >= Timestamp::from_wall(WallTime(foreign)));
        }
    }

    #[test]
    fn a_poisoned_timestamp_is_refused_and_changes_nothing() {
        let mut clock = HybridClock::new(BOUND);
        let year = WallTime(365 * 24 * 3600 * 1_000_000);
        assert!(clock.observe(Timestamp::from_wall(year), WallTime(0)).is_err());
        assert_eq!(clock.tick(WallTime(7)), Timestamp::from_wall(WallTime(7)));
    }
}
