//! The raw operation mix: transactions of a fixed number of operations on sets, `set.size` or `set.add` (section 6.1).

use super::plan::{Command, OneStep, Plan, Source, words};
use crate::transactions::Keys;

/// Shares and sizes of the raw mix.
#[derive(Clone, Debug)]
pub struct RawMix {
    /// How many sets there are; the paper: 10,000.
    pub keys: u32,
    /// The exponent of Zipf's law by which they are drawn; the paper: 0.6, and up to 2.
    pub zipf: f64,
    /// Of a hundred operations, how many add; the others tell the size.
    pub adds: u8,
    /// Operations of a transaction; the paper: 4.
    pub operations: usize,
}

pub(super) struct Sets {
    keys: Keys,
    adds: u8,
    operations: usize,
}

impl Sets {
    pub fn new(mix: &RawMix) -> Self {
        Sets { keys: Keys::new(mix.keys, Some(mix.zipf)), adds: mix.adds, operations: mix.operations }
    }
}

impl Source for Sets {
    /// One member each, so that every key is a set.
    fn load(&self) -> Box<dyn Iterator<Item = Command> + '_> {
        Box::new((0..self.keys.count()).map(|key| words(&format!("SADD rawmix:{key} first"))))
    }

    fn draw(&mut self, random: &mut fastrand::Rng) -> Box<dyn Plan> {
        let mut adds = 0;
        let commands: Vec<Command> = (0..self.operations)
            .map(|_| {
                let key = self.keys.draw(random);
                if random.u8(..100) < self.adds {
                    adds += 1;
                    // A new member each time, so that every addition changes what the others would see.
                    words(&format!("BLIND SADD rawmix:{key} {:x}", random.u64(..)))
                } else {
                    words(&format!("SCARD rawmix:{key}"))
                }
            })
            .collect();
        let kind = match adds {
            0 => "size",
            n if n == self.operations => "add",
            _ => "mixed",
        };
        Box::new(OneStep { kind, commands })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_have_their_shares() {
        let mix = RawMix { keys: 100, zipf: 0.6, adds: 20, operations: 4 };
        let (mut sets, mut random) = (Sets::new(&mix), fastrand::Rng::with_seed(1));
        let (mut adds, mut first) = (0, 0);
        for _ in 0..5_000 {
            let plan = sets.draw(&mut random);
            let batch = plan.step(&[]);
            assert!(batch.last && batch.commands.len() == 4);
            let added = batch.commands.iter().filter(|command| command[0] == b"BLIND").count();
            assert_eq!(plan.kind(), ["size", "mixed", "mixed", "mixed", "add"][added]);
            adds += added;
            first += batch
                .commands
                .iter()
                .filter(|command| command.iter().any(|word| word == b"rawmix:0"))
                .count();
        }
        assert!((3_800..4_200).contains(&adds), "{adds}");
        let expected = 20_000.0 / (1..=100).map(|rank| f64::from(rank).powf(-0.6)).sum::<f64>();
        assert!(
            (f64::from(first as u32) - expected).abs() < 5.0 * expected.sqrt(),
            "{first}, expected {expected}"
        );
        assert_eq!(sets.load().count(), 100);
    }
}
