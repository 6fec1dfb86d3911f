//! What clients send that know nothing of us: single commands, whose replies show the state (Corrections 89).

use super::plan::{Command, OneStep, Plan, Source, words};
use crate::transactions::Keys;

/// Sizes of the load of unmodified clients: a quarter `INCR`, a quarter `LPUSH`, a half `GET` and `LLEN`.
#[derive(Clone, Debug)]
pub struct Unmodified {
    /// How many counters there are, and how many lists.
    pub keys: u32,
    /// The exponent of Zipf's law by which they are drawn.
    pub zipf: f64,
}

pub(super) struct Commands {
    keys: Keys,
}

impl Commands {
    pub fn new(unmodified: &Unmodified) -> Self {
        Commands { keys: Keys::new(unmodified.keys, Some(unmodified.zipf)) }
    }
}

impl Source for Commands {
    fn load(&self) -> Box<dyn Iterator<Item = Command> + '_> {
        let of = |key| {
            [words(&format!("INCR plain:count:{key}")), words(&format!("LPUSH plain:list:{key} first"))]
        };
        Box::new((0..self.keys.count()).flat_map(of))
    }

    fn draw(&mut self, random: &mut fastrand::Rng) -> Box<dyn Plan> {
        let key = self.keys.draw(random);
        let (kind, text) = match random.u8(..4) {
            0 => ("incr", format!("INCR plain:count:{key}")),
            1 => ("lpush", format!("LPUSH plain:list:{key} {:x}", random.u32(..))),
            2 => ("get", format!("GET plain:count:{key}")),
            _ => ("llen", format!("LLEN plain:list:{key}")),
        };
        Box::new(OneStep { kind, commands: vec![words(&text)] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_commands_change_what_they_show() {
        let mut commands = Commands::new(&Unmodified { keys: 10, zipf: 0.6 });
        let mut random = fastrand::Rng::with_seed(1);
        assert_eq!(commands.load().count(), 20);
        let drawn: Vec<_> = (0..4_000).map(|_| commands.draw(&mut random).kind()).collect();
        for kind in ["incr", "lpush", "get", "llen"] {
            let share = drawn.iter().filter(|drawn| **drawn == kind).count();
            assert!((850..1_150).contains(&share), "{kind}: {share}");
        }
    }
}
