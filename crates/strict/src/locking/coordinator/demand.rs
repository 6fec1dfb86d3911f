//! About how often keys are requested: it determines which shard comes last, and whether one key is in many of the
//! transactions.

use types::KeyHash;

/// Counters in a row.
const COUNTERS: usize = 4096;
/// When so many transactions are counted, all counts are halved.
const MOST: u32 = 8192;

/// A count-min sketch of two rows that forgets by halves.
pub(super) struct Demand {
    rows: [Vec<u16>; 2],
    /// How many transactions are counted.
    counted: u32,
    /// How many of them are on the key that most are on.
    crowd: u16,
}

impl Default for Demand {
    fn default() -> Self {
        Demand { rows: [vec![0; COUNTERS], vec![0; COUNTERS]], counted: 0, crowd: 0 }
    }
}

impl std::fmt::Debug for Demand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let counts = self.rows.iter().flatten().enumerate().filter(|(_, count)| **count > 0);
        let mut debug = f.debug_struct("Demand");
        debug.field("counted", &self.counted).field("crowd", &self.crowd);
        debug.field("counts", &counts.collect::<Vec<_>>()).finish()
    }
}

fn places(key: KeyHash) -> [usize; 2] {
    [key.0 as usize % COUNTERS, (key.0 >> 16) as usize % COUNTERS]
}

impl Demand {
    /// A transaction is on these keys.
    pub fn count(&mut self, keys: impl IntoIterator<Item = KeyHash>) {
        for key in keys {
            for (row, place) in self.rows.iter_mut().zip(places(key)) {
                row[place] = row[place].saturating_add(1);
            }
            self.crowd = self.crowd.max(self.of(key));
        }
        self.counted += 1;
        if self.counted == MOST {
            (self.counted, self.crowd) = (self.counted / 2, self.crowd / 2);
            self.rows.iter_mut().flatten().for_each(|count| *count /= 2);
        }
    }

    /// How many of late were on the key, or a few more.
    pub fn of(&self, key: KeyHash) -> u16 {
        let counts = self.rows.iter().zip(places(key)).map(|(row, place)| row[place]);
        counts.min().unwrap_or(0)
    }

    /// True if some key is in more than one of so many transactions; nothing is known before this many have come.
    pub fn is_crowded(&self, one_of: u32, after: u32) -> bool {
        self.counted < after || u32::from(self.crowd) * one_of > self.counted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::HashSeed;

    fn key(number: u64) -> KeyHash {
        HashSeed(1).hash(&number.to_be_bytes())
    }

    #[test]
    fn a_key_that_many_are_on_is_a_crowd_until_others_have_come() {
        let mut demand = Demand::default();
        (0..300).for_each(|number| demand.count([key(number), key(1_000 + number)]));
        assert!(demand.is_crowded(10, 301), "too few have come");
        assert!(!demand.is_crowded(10, 300));
        (0..300).for_each(|number| demand.count([key(0), key(1_000 + number)]));
        assert!(demand.is_crowded(10, 300) && !demand.is_crowded(1, 300));
        assert!(demand.of(key(0)) >= 301 && demand.of(key(1)) < 10);
        let half = demand.of(key(0));
        (0..u64::from(MOST)).for_each(|number| demand.count([key(number)]));
        assert!(demand.of(key(0)) <= half / 2 + 10);
        assert!(!demand.is_crowded(10, 300));
    }
}
