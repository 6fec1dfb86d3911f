//! Collection (COPS, section 5.1; Corrections 46 and 47).
//!
//! No write needs to depend on a version that every region has written: the paper's never-depend flag. Here it is a
//! time for each partition, the least of what all equivalents say that they have written of all regions. Every effect
//! that is still to come has observed what is at or below, so that who did what is forgotten there, and the cells hold
//! it. While a region is cut off the time stands still.
//!
//! In COPS-GT the time lags by [`Options::lease`]: for so long the partition retains the versions that a get
//! transaction may request in its second round, and the dependencies of versions that it may have read in part before.
//! A transaction that takes longer restarts, by its coordinator's clock; a request that is delayed on its way to a
//! partition gets the answer that the version is collected.
//!
//! [`Options::lease`]: crate::cops::Options::lease

use super::{Mutant, Partition};
use crate::cops::Stamp;
use crate::stable::{PACKED, long_before};
use protocol::Now;
use std::collections::VecDeque;
use std::time::Duration;
use types::{Instant, Timestamp};

/// How many steps a tick spends at most on keys in which effects wait, on average: about a millisecond.
const REFRESHED: u64 = 5000;
/// How many earlier times a partition retains at most, to lag by the lease.
const EARLIER: u32 = 16;

/// What was written in every region, and when that was known.
#[derive(Debug, Default)]
pub(super) struct Lag(VecDeque<(Instant, Timestamp)>);

impl Lag {
    /// It is so much now. Returns what it was before the lease; `None` if that is not known any better than last time.
    fn note(&mut self, now: Instant, everywhere: Timestamp, lease: Duration) -> Option<Timestamp> {
        if self.0.back().is_none_or(|(last, _)| now - *last >= lease / EARLIER) {
            self.0.push_back((now, everywhere));
        }
        let mut before = None;
        while let Some((_, at)) = self.0.pop_front_if(|(known, _)| now - *known >= lease) {
            before = Some(at);
        }
        before
    }
}

impl Partition {
    /// Garbage collection: forgets what no snapshot needs any more.
    pub(super) fn collect(&mut self, now: Now) {
        let everywhere = self.equivalents.values().map(|equivalent| equivalent.written.least());
        let everywhere = match self.has(Mutant::FlaggedTooSoon) {
            true => self.written.least(),
            false => everywhere.fold(self.written.least(), Timestamp::min),
        };
        let lags = self.options.transactions && !self.has(Mutant::LeaseIgnored);
        let stable = match lags {
            true => self.lag.note(now.instant, everywhere, self.options.lease).unwrap_or_default(),
            false => everywhere,
        };
        self.raise_stable(stable);
        let gives = self.giver.is_giving(now.instant, self.options.transfer_patience);
        if !self.checkpointing && !self.lent && !gives {
            self.raise_horizon(self.stable);
        }
        self.free_some();
        self.store.refresh_some(REFRESHED);
        self.store.pack_some(PACKED, Stamp::last_at(long_before(now.wall)));
    }

    /// Nobody need depend on versions up to here.
    pub(super) fn raise_stable(&mut self, stable: Timestamp) {
        if stable > self.stable {
            self.stable = stable;
            self.store.set_stability_frontier(Stamp::last_at(stable));
            self.dependencies.values_mut().for_each(|dependencies| dependencies.forget(stable));
        }
    }

    pub(super) fn raise_horizon(&mut self, horizon: Timestamp) {
        if horizon > self.horizon {
            self.horizon = horizon;
            self.store.set_horizon(Some(Stamp::last_at(horizon)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Corrections 46: a leased version stays as long as the lease says.
    #[test]
    fn what_is_known_counts_after_the_lease() {
        let (lease, mut lag) = (Duration::from_micros(160), Lag::default());
        let known: Vec<_> = (0..20).map(|at| lag.note(Instant(at * 10), Timestamp(at), lease)).collect();
        assert!(known[..16].iter().all(Option::is_none));
        assert_eq!(known[16..], [0, 1, 2, 3].map(|at| Some(Timestamp(at))));
        assert!(lag.0.len() <= EARLIER as usize);
    }
}
