//! The greatest stamps committed on one key, one per lock mode.

use crate::Stamp;
use datatypes::Mode;
use types::{Malformed, Reader, Wire};

/// One stamp per lock mode: a mutation must be stamped above those of the modes it does not commute with, and of
/// those only (Corrections 71), so that increments commit in any order of their stamps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeStamps([Stamp; Mode::ALL.len()]);

impl ModeStamps {
    /// Notes that an invocation in this mode committed at `stamp`.
    pub fn raise(&mut self, mode: Mode, stamp: Stamp) {
        for (of, held) in Mode::ALL.into_iter().zip(&mut self.0) {
            if of == mode {
                *held = stamp.max(*held);
            }
        }
    }

    /// The greatest stamp of a mode that is not compatible with `mode`.
    pub fn against(&self, mode: Mode) -> Stamp {
        let against = Mode::ALL.into_iter().zip(self.0).filter(|(of, _)| !mode.compatible(*of));
        against.map(|(_, stamp)| stamp).max().unwrap_or(Stamp::ZERO)
    }
}

impl Wire for ModeStamps {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|stamp| stamp.encode(out));
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut modes = ModeStamps::default();
        for stamp in &mut modes.0 {
            *stamp = Stamp::decode(input)?;
        }
        Ok(modes)
    }
}
