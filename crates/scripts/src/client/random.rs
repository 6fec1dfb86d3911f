//! `math.random` and `math.randomseed` as Redis has them: the same seed gives the same numbers.

use super::arguments::{Arguments, define};
use mlua::{Error, Lua, Table};
use std::cell::Cell;
use std::rc::Rc;

/// The constants of `lrand48`.
const FACTOR: u64 = 0x5_deec_e66d;
const ADDEND: u64 = 0xb;
const SEED_END: u64 = 0x330e;
const MASK: u64 = (1 << 48) - 1;
const MOST: f64 = i32::MAX as f64;

/// Where the sequence of random numbers stands.
#[derive(Debug, Default)]
pub(super) struct Random(Cell<u64>);

impl Random {
    /// Begins where this seed says, which is that of a transaction.
    pub fn begin(&self, seed: u64) {
        self.0.set(seed & MASK);
    }

    fn seed(&self, seed: i32) {
        self.0.set(u64::from(seed.cast_unsigned()) << 16 | SEED_END);
    }

    /// The next number, from 0 to 2^31 - 1.
    fn next(&self) -> u64 {
        self.0.set(self.0.get().wrapping_mul(FACTOR).wrapping_add(ADDEND) & MASK);
        self.0.get() >> 17
    }

    fn draw(&self, arguments: &Arguments) -> mlua::Result<f64> {
        let part = (self.next() % u64::from(i32::MAX.unsigned_abs())) as f64 / MOST;
        let (low, high) = match arguments.count() {
            0 => return Ok(part),
            1 => (1, arguments.int(1)?),
            2 => (arguments.int(1)?, arguments.int(2)?),
            _ => return Err(Error::runtime("wrong number of arguments")),
        };
        if low > high {
            return Err(arguments.bad(arguments.count(), "interval is empty"));
        }
        let size = high.wrapping_sub(low).wrapping_add(1);
        Ok((part * f64::from(size)).floor() + f64::from(low))
    }
}

/// Puts the functions into the library `math`.
pub(super) fn define_in(lua: &Lua, math: &Table, random: &Rc<Random>) -> mlua::Result<()> {
    let (seeded, drawn) = (Rc::clone(random), Rc::clone(random));
    define(lua, math, "randomseed", move |arguments| arguments.int(1).map(|seed| seeded.seed(seed)))?;
    define(lua, math, "random", move |arguments| drawn.draw(arguments))
}
