//! Collection (COPS, section 5.1; Corrections 46 and 47).
//!
//! A version that every region has written is one that nobody need depend on: the paper's never-depend flag. Here it is a time for
//! each partition, the least of what all equivalents say that they have written of all regions. Every effect that is still to come has
//! observed what is at or below, so that who did what is forgotten there, and the cells hold it. While a region is cut off the
//! time stands still.
//!
//! What a get transaction may ask for in its second round is kept by a lease: the state of its first round, and everything later,
//! stays readable for [`Options::lease`]. Who comes later is told that the version is gone, and begins again.

use super::{Mutant, Partition};
use crate::cops::{Options, Stamp};
use protocol::Now;
use std::collections::VecDeque;
use types::{Instant, Timestamp};

/// How many steps a tick spends at most on keys in which effects wait, on average: about a millisecond.
const REFRESHED: u64 = 5000;

/// States that may still be asked for.
#[derive(Debug, Default)]
pub(super) struct Leases(VecDeque<Lease>);

#[derive(Debug)]
struct Lease {
    since: Instant,
    until: Instant,
    /// Everything up to here is part of every state that was leased.
    from: Timestamp,
}

impl Leases {
    /// A state is read that contains everything up to `from`, which only rises.
    pub(super) fn grant(&mut self, now: Instant, options: &Options, from: Timestamp) {
        let until = now + options.lease;
        match self.0.back_mut() {
            Some(last) if now - last.since < options.tick_every => last.until = until,
            _ => self.0.push_back(Lease { since: now, until, from }),
        }
    }

    /// What every leased state contains; `None` if none is.
    fn oldest(&mut self, now: Instant) -> Option<Timestamp> {
        while self.0.pop_front_if(|lease| lease.until <= now).is_some() {}
        self.0.front().map(|lease| lease.from)
    }
}

impl Partition {
    /// Forgets what nobody needs any more.
    pub(super) fn collect(&mut self, now: Now) {
        let everywhere = self.equivalents.values().map(|equivalent| equivalent.written.least());
        let stable = everywhere.fold(self.written.least(), Timestamp::min);
        if stable > self.stable {
            self.stable = stable;
            self.store.set_watershed(Stamp::last_at(stable));
            self.causes.values_mut().for_each(|causes| causes.forget(stable));
        }
        let leased = self.leases.oldest(now.instant).filter(|_| !self.has(Mutant::LeaseIgnored));
        let horizon = self.stable.min(leased.unwrap_or(Timestamp::MAX));
        if !self.checkpointing {
            self.raise_horizon(horizon);
        }
        self.store.refresh_some(REFRESHED);
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
    use std::time::Duration;

    /// Corrections 46: what is leased is kept as long as the lease says, and no longer.
    #[test]
    fn a_lease_ends() {
        let options = Options { lease: Duration::from_micros(100), ..Options::default() };
        let mut leases = Leases::default();
        assert_eq!(leases.oldest(Instant(0)), None);
        leases.grant(Instant(0), &options, Timestamp(5));
        leases.grant(Instant(6_000), &options, Timestamp(9));
        assert_eq!(leases.oldest(Instant(99)), Some(Timestamp(5)));
        assert_eq!(leases.oldest(Instant(100)), Some(Timestamp(9)));
        assert_eq!(leases.oldest(Instant(6_100)), None);
    }
}
