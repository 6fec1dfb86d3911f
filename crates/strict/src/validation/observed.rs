//! The exact effects that a read observed on one key.

use super::Stamp;
use types::{Malformed, Reader, Wire};

/// A set of stamps: everything up to a closed base, and single ones above it. A greatest version would not do:
/// of commuting effects a replica may miss an earlier one and hold a later one (Corrections 65).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    base: Stamp,
    /// Ascending, all above `base`.
    above: Vec<Stamp>,
}

impl Observed {
    /// Everything up to `base`, which the caller knows to be closed: every committed effect below it is either
    /// held or overwritten. `above` are the others, in any order, repeated or not.
    pub fn new(base: Stamp, above: impl IntoIterator<Item = Stamp>) -> Self {
        let mut above: Vec<Stamp> = above.into_iter().filter(|stamp| *stamp > base).collect();
        above.sort_unstable();
        above.dedup();
        Observed { base, above }
    }

    /// The closed base.
    pub fn base(&self) -> Stamp {
        self.base
    }

    /// The single stamps above the base, ascending.
    pub fn above(&self) -> &[Stamp] {
        &self.above
    }

    /// True if the effect with this stamp was observed, or could not matter because what was observed overwrote it.
    pub fn contains(&self, stamp: Stamp) -> bool {
        stamp <= self.base || self.above.binary_search(&stamp).is_ok()
    }

    /// The greatest stamp observed; the observer must commit above it (Corrections 2).
    pub fn newest(&self) -> Stamp {
        self.above.last().copied().unwrap_or(self.base)
    }
}

impl Wire for Observed {
    fn encode(&self, out: &mut Vec<u8>) {
        self.base.encode(out);
        self.above.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let base = Stamp::decode(input)?;
        Ok(Observed::new(base, Vec::<Stamp>::decode(input)?))
    }
}
