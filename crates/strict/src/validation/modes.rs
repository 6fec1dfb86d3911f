//! The greatest stamps committed on one key, one per lock mode.

use super::Stamp;
use datatypes::Mode;
use smallvec::SmallVec;
use types::{Malformed, Reader, Wire, put_varint};

/// One stamp per lock mode: a mutation must be stamped above those of the modes it does not commute with, and of
/// those only (Corrections 71), so that increments commit in any order of their stamps. A key meets few modes, so it
/// stores only those.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModeStamps(SmallVec<[(Mode, Stamp); 2]>);

impl ModeStamps {
    /// Notes that an invocation in this mode committed at `stamp`.
    pub fn raise(&mut self, mode: Mode, stamp: Stamp) {
        match self.0.binary_search_by_key(&mode, |(of, _)| *of) {
            Ok(place) => self.0[place].1 = stamp.max(self.0[place].1),
            Err(place) => self.0.insert(place, (mode, stamp)),
        }
    }

    /// The greatest stamp of a mode that is not compatible with `mode`.
    pub fn against(&self, mode: Mode) -> Stamp {
        let against = self.0.iter().filter(|(of, _)| !mode.compatible(*of));
        against.map(|(_, stamp)| *stamp).max().unwrap_or(Stamp::ZERO)
    }
}

impl Wire for ModeStamps {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        for (mode, stamp) in &self.0 {
            mode.encode(out);
            stamp.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut modes = ModeStamps::default();
        for _ in 0..input.count()? {
            let mode = Mode::decode(input)?;
            if modes.0.last().is_some_and(|(last, _)| *last >= mode) {
                return Err(Malformed("lock modes out of order"));
            }
            modes.0.push((mode, Stamp::decode(input)?));
        }
        Ok(modes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::{Timestamp, TransactionId};

    fn stamp(at: u64) -> Stamp {
        Stamp { at: Timestamp(at), transaction: TransactionId::default() }
    }

    #[test]
    fn only_modes_that_do_not_commute_stand_in_the_way() {
        let mut modes = ModeStamps::default();
        assert_eq!(modes.against(Mode::Write), Stamp::ZERO);
        modes.raise(Mode::Increment, stamp(9));
        modes.raise(Mode::Observe, stamp(4));
        modes.raise(Mode::Increment, stamp(7));
        assert_eq!(modes.against(Mode::Increment), stamp(4));
        assert_eq!(modes.against(Mode::Observe), stamp(9));
        assert_eq!(modes.against(Mode::Write), stamp(9));
    }

    #[test]
    fn the_binary_form_gives_back_what_was_noted() {
        let mut modes = ModeStamps::default();
        for (place, mode) in Mode::BUILT_IN.into_iter().enumerate() {
            modes.raise(mode, stamp(place as u64));
            let mut bytes = Vec::new();
            modes.encode(&mut bytes);
            assert_eq!(ModeStamps::decode(&mut Reader::new(&bytes)), Ok(modes.clone()));
        }
        assert!(ModeStamps::decode(&mut Reader::new(&[1, 200])).is_err());
    }
}
