//! Which auction is bid on next: popular ones more often, by a power law, and more so the sooner they close (figure 8).
//!
//! Time is counted in bids, so that every setting sees the same auctions however fast it is: an auction is open for ten times as
//! many bids as there are items. A slot's auctions follow one another, each as popular as the one before.

use std::collections::BTreeSet;

/// Bids that an auction gets on average.
const BIDS_EACH: f64 = 10.0;
/// The length of the rush, in the time that an auction is open: bids fall off by e with every such step away from the close.
const RUSH: f64 = 0.1;
/// Slots that close at about the same time are drawn from together.
const BUCKETS: usize = 256;

pub(super) struct Auctions {
    /// When each slot's auction closes, as a part of the period.
    phases: Vec<f64>,
    /// Slots by when they close, with the sum of popularity up to and with each.
    buckets: Vec<Vec<(f64, u32)>>,
    /// The popularity of the most popular bucket.
    most: f64,
    /// The next to close: periods in millionths, then slots.
    closing: BTreeSet<(u64, u32)>,
    bids: u64,
}

const MILLION: f64 = 1e6;

impl Auctions {
    pub fn new(items: u32, random: &mut fastrand::Rng) -> Self {
        let items = items.max(1);
        let mut ranks: Vec<u32> = (1..=items).collect();
        random.shuffle(&mut ranks);
        let phases: Vec<f64> = (0..items).map(|_| random.f64()).collect();
        let mut buckets: Vec<Vec<(f64, u32)>> = vec![Vec::new(); BUCKETS];
        for (slot, (rank, phase)) in ranks.iter().zip(&phases).enumerate() {
            let bucket = &mut buckets[(phase * BUCKETS as f64) as usize % BUCKETS];
            let before = bucket.last().map_or(0.0, |(sum, _)| *sum);
            bucket.push((before + 1.0 / f64::from(*rank), slot as u32));
        }
        let most = buckets.iter().filter_map(|bucket| bucket.last()).map(|(sum, _)| *sum).fold(0.0, f64::max);
        let closing =
            phases.iter().enumerate().map(|(slot, phase)| ((phase * MILLION) as u64, slot as u32)).collect();
        Auctions { phases, buckets, most, closing, bids: 0 }
    }

    /// When the slot's first auction closes, as a part of the period.
    pub fn phase(&self, slot: u32) -> f64 {
        self.phases[slot as usize]
    }

    /// The time, in periods.
    fn now(&self) -> f64 {
        self.bids as f64 / (BIDS_EACH * self.phases.len() as f64)
    }

    /// Draws the auction of a bid; the time goes on.
    pub fn bid(&mut self, random: &mut fastrand::Rng) -> u32 {
        self.bids += 1;
        self.draw(random)
    }

    /// Draws an auction as a bid would.
    pub fn draw(&self, random: &mut fastrand::Rng) -> u32 {
        loop {
            // How long before its close it is bid on: exponential, and no longer than it is open.
            let before = -RUSH * (1.0 - random.f64() * (1.0 - (-1.0 / RUSH).exp())).ln();
            let at = (self.now() + before).fract();
            let bucket = &self.buckets[(at * BUCKETS as f64) as usize % BUCKETS];
            let point = random.f64() * self.most;
            // Past the last one: another bucket has more of the popularity.
            if let Some((_, slot)) = bucket.get(bucket.partition_point(|(sum, _)| *sum <= point)) {
                return *slot;
            }
        }
    }

    /// The auction that is to close next, if one has come to its end; the slot's next one begins.
    pub fn close(&mut self) -> Option<u32> {
        let (at, slot) = *self.closing.first()?;
        if at as f64 / MILLION > self.now() {
            return None;
        }
        self.closing.pop_first();
        self.closing.insert((at + MILLION as u64, slot));
        Some(slot)
    }

    /// When the slot's present auction ends, in periods.
    pub fn end(&self, slot: u32) -> f64 {
        let (now, phase) = (self.now(), self.phases[slot as usize]);
        let this = now.floor() + phase;
        if this > now { this } else { this + 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bids_follow_a_power_law() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut auctions = Auctions::new(1_000, &mut random);
        let mut counts = vec![0u32; 1_000];
        // Ten periods, so that every auction has had its rush ten times.
        for _ in 0..100_000 {
            counts[auctions.bid(&mut random) as usize] += 1;
        }
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let sum: f64 = (1..=1_000).map(|rank| 1.0 / f64::from(rank)).sum();
        // Zipf's law with exponent 1, less what a popular auction takes from those that close with it.
        for rank in [1u32, 2, 4, 10, 50] {
            let expected = 100_000.0 / sum / f64::from(rank);
            let found = f64::from(counts[rank as usize - 1]);
            assert!((0.6..1.5).contains(&(found / expected)), "rank {rank}: {found}, expected {expected}");
        }
    }

    #[test]
    fn bids_come_in_a_rush_before_the_close() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut auctions = Auctions::new(5_000, &mut random);
        let mut left = [0u32; 10];
        for _ in 0..50_000 {
            let slot = auctions.bid(&mut random);
            let remaining = (auctions.phase(slot) - auctions.now()).rem_euclid(1.0);
            left[(remaining * 10.0) as usize] += 1;
        }
        let ratio = |a: usize| f64::from(left[a]) / f64::from(left[a + 1]);
        assert!(left[0] > 25_000, "more than half in the last tenth: {left:?}");
        assert!((1.8..4.0).contains(&ratio(1)), "each tenth before has about e times fewer: {left:?}");
    }

    #[test]
    fn each_auction_closes_once_a_period() {
        let mut random = fastrand::Rng::with_seed(3);
        let mut auctions = Auctions::new(200, &mut random);
        let mut closed = vec![0; 200];
        for _ in 0..4_000 {
            auctions.bid(&mut random);
            while let Some(slot) = auctions.close() {
                closed[slot as usize] += 1;
            }
        }
        assert_eq!(auctions.now(), 2.0);
        assert!(closed.iter().all(|count| *count == 2), "{closed:?}");
        assert!(auctions.end(0) > 2.0 && auctions.end(0) <= 3.0);
    }
}
