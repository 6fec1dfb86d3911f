//! A process whose wall clock is far from those of its peers follows their clocks: deadlines of keys compare with wall
//! clocks, so one clock that is an hour ahead would expire every lock of the cluster.
//!
//! Each process tells every peer what its own clock shows, once a second. The process corrects its clock by the median of
//! the differences to all clocks that it hears of, its own among them, where that median is larger than [`TOLERATED`]. With
//! fewer than three clocks there is no majority, and each process keeps the correction that it has. What a protocol promises
//! depends on no clock; correct deadlines do.
//!
//! With peers, the present time is that of the last tick plus the monotonic time since: a clock that leaps is looked at
//! before anybody is shown the leap.

use crate::cluster::Cluster;
use protocol::Now;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use types::{Instant, KeyspaceId, PartitionId, ProcessId, Reader, Slot, WallTime, Wire};

/// A larger difference to the other clocks is corrected. What is smaller may be the time that packets travel.
const TOLERATED: Duration = Duration::from_secs(1);
const EVERY: Duration = Duration::from_secs(1);
/// Clocks that were not heard of for so long do not count.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(30);
/// Where processes tell each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(3)) };

/// A packet that was late makes its sender's clock look late: the best of so long counts.
const BEST_OF: Duration = Duration::from_secs(10);

/// Another process's clock.
#[derive(Clone, Copy, Debug)]
struct Heard {
    /// How far it is ahead of this process's clock, in microseconds.
    ahead_micros: i64,
    /// When it was seen so.
    seen_at: Instant,
    /// When it was heard of last.
    at: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Clocks {
    heard: BTreeMap<ProcessId, Heard>,
    /// This process's clock and the monotonic time when both were last read.
    last: Option<(u64, Instant)>,
    next: Instant,
    corrected_micros: i64,
}

impl Clocks {
    /// Notes that a peer's clock shows `theirs` when this process's shows `own`, in microseconds since 1970.
    fn hear(&mut self, from: ProcessId, theirs: u64, own: u64, at: Instant) {
        self.note(own, at);
        let ahead_micros = theirs.wrapping_sub(own) as i64;
        let heard = self.heard.entry(from).or_insert(Heard { ahead_micros, seen_at: at, at });
        heard.at = at;
        if ahead_micros >= heard.ahead_micros || at - heard.seen_at >= BEST_OF {
            (heard.ahead_micros, heard.seen_at) = (ahead_micros, at);
        }
    }

    /// Notes what this process's clock shows: a leap of it moves the differences to all others, and what corrects it.
    fn note(&mut self, own: u64, at: Instant) {
        if let Some((shown, when)) = self.last {
            let due = shown.saturating_add((at - when).as_micros() as u64);
            let leap = own.wrapping_sub(due) as i64;
            self.heard
                .values_mut()
                .for_each(|heard| heard.ahead_micros = heard.ahead_micros.saturating_sub(leap));
            if self.corrected_micros != 0 {
                self.corrected_micros = self.corrected_micros.saturating_sub(leap);
            }
        }
        self.last = Some((own, at));
    }

    /// By how much this process's clock, which shows `own`, is to be corrected, in microseconds.
    fn correction(&mut self, own: u64, at: Instant) -> i64 {
        self.note(own, at);
        self.heard.retain(|_, heard| at - heard.at < FORGOTTEN_AFTER);
        let mut all: Vec<i64> = self.heard.values().map(|heard| heard.ahead_micros).chain([0]).collect();
        all.sort_unstable();
        // Of an even number, the one of the middle two that is nearer to this process's own clock.
        let middle = [all[(all.len() - 1) / 2], all[all.len() / 2]];
        let median = middle.into_iter().min_by_key(|micros| micros.unsigned_abs()).unwrap_or(0);
        if all.len() < 3 {
            return self.corrected_micros;
        }
        // A difference that is about as large as what is tolerated does not come and go.
        let tolerated = TOLERATED / if self.corrected_micros == 0 { 1 } else { 2 };
        if median.unsigned_abs() < tolerated.as_micros() as u64 { 0 } else { median }
    }
}

/// What this process's own clock shows, `skew_millis` added, in microseconds since 1970.
pub(crate) fn own_clock(skew_millis: i64) -> u64 {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
    wall.saturating_add_signed(skew_millis.saturating_mul(1000))
}

impl Cluster {
    /// Looks at the clocks and tells the peers what this process's shows. To be called at every tick.
    pub(super) fn compare_clocks(&mut self, now: Now) {
        if !self.view.has_peers() {
            return;
        }
        let own = own_clock(self.view.options.clock_skew_ms);
        let before = self.clocks.corrected_micros;
        let correction = self.clocks.correction(own, now.instant);
        let change = correction.abs_diff(before);
        if change >= TOLERATED.as_micros() as u64 {
            tracing::warn!(
                correction_ms = correction / 1000,
                "this process's clock differs from those of most processes of the cluster; it follows theirs"
            );
        }
        self.clocks.corrected_micros = correction;
        self.view.set_clock(WallTime(own.saturating_add_signed(correction)), now.instant, correction);
        if now.instant < self.clocks.next {
            return;
        }
        self.clocks.next = now.instant + EVERY;
        for process in self.peers.all() {
            self.peers.send(process, self.peers.node(SLOT), SLOT, &own, Some(now.instant));
        }
    }

    /// A peer has sent its clock.
    pub(super) fn hear_clock(&mut self, from: ProcessId, packet: &[u8], now: Now) {
        let Ok(theirs) = u64::decode(&mut Reader::new(packet)) else {
            return tracing::warn!(%from, "a packet with a clock makes no sense and was dropped");
        };
        let own = own_clock(self.view.options.clock_skew_ms);
        self.clocks.hear(from, theirs, own, now.instant);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000;

    /// The correction of a clock that shows `own` where the others show these, all in seconds.
    fn corrected(own: i64, others: &[i64]) -> i64 {
        let (base, mut clocks) = (1_000_000 * SECOND, Clocks::default());
        let micros = |seconds: i64| (base + seconds * SECOND) as u64;
        for (id, other) in (0..).zip(others) {
            clocks.hear(ProcessId(id), micros(*other), micros(own), Instant(0));
        }
        clocks.correction(micros(own), Instant(0)) / SECOND
    }

    #[test]
    fn a_clock_follows_the_majority() {
        assert_eq!(corrected(3600, &[0, 0]), -3600);
        assert_eq!(corrected(-3600, &[0, 0]), 3600);
        assert_eq!(corrected(0, &[3600, 0]), 0);
        assert_eq!(corrected(0, &[3600, -3600]), 0);
        assert_eq!(corrected(5, &[0, 0, 0, 9]), -5);
    }

    #[test]
    fn without_a_majority_a_clock_stays() {
        assert_eq!(corrected(3600, &[]), 0);
        assert_eq!(corrected(3600, &[0]), 0);
        assert_eq!(corrected(0, &[0, 3600, 3600]), 0);
    }

    #[test]
    fn a_leap_is_corrected_before_the_others_are_heard_of_again() {
        let mut clocks = Clocks::default();
        let at = |seconds: i64| Instant((seconds * SECOND) as u64);
        let wall = |seconds: i64| (1_000_000 * SECOND + seconds * SECOND) as u64;
        for id in 1..3 {
            clocks.hear(ProcessId(id), wall(0), wall(0), at(0));
        }
        assert_eq!(clocks.correction(wall(0), at(0)), 0);
        assert_eq!(clocks.correction(wall(1 + 3600), at(1)), -3600 * SECOND);
        assert_eq!(clocks.correction(wall(2), at(2)), 0, "it leapt back");
    }

    #[test]
    fn a_correction_stays_while_there_is_no_majority() {
        let mut clocks = Clocks::default();
        let at = |seconds: i64| Instant((seconds * SECOND) as u64);
        let wall = |seconds: i64| (1_000_000 * SECOND + seconds * SECOND) as u64;
        for id in 1..3 {
            clocks.hear(ProcessId(id), wall(0), wall(3600), at(0));
        }
        clocks.corrected_micros = clocks.correction(wall(3600), at(0));
        assert_eq!(clocks.corrected_micros, -3600 * SECOND);
        assert_eq!(clocks.correction(wall(3600 + 60), at(60)), -3600 * SECOND, "nobody is heard of");
        assert_eq!(clocks.correction(wall(61), at(61)), 0, "it leapt back meanwhile");
    }

    #[test]
    fn a_late_packet_makes_no_clock_late() {
        let mut clocks = Clocks::default();
        let at = |seconds: i64| Instant((seconds * SECOND) as u64);
        for id in 1..3 {
            clocks.hear(ProcessId(id), at(100).0, at(100).0, at(0));
            clocks.hear(ProcessId(id), at(100).0, at(105).0, at(5));
        }
        assert_eq!(clocks.correction(at(105).0, at(5)), 0);
    }

    #[test]
    fn clocks_that_are_silent_do_not_count() {
        let mut clocks = Clocks::default();
        for id in 1..3 {
            clocks.hear(ProcessId(id), 100 * SECOND as u64, 0, Instant(0));
        }
        assert_eq!(clocks.correction(0, Instant(0)), 100 * SECOND);
        assert_eq!(clocks.correction(60 * SECOND as u64, Instant(60 * SECOND as u64)), 0);
    }
}
