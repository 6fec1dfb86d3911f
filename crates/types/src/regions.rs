//! A set of regions in one word.

use crate::{Malformed, Reader, RegionId, Wire, put_varint};

/// The number of the last bit, which stands for all regions from there on.
const LAST: u16 = 63;

/// A set of regions. Those from number 63 on share a bit: one of them stands for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RegionSet(u64);

impl RegionSet {
    /// How many regions have a bit of their own.
    pub const DISTINCT: u16 = LAST;

    fn bit(region: RegionId) -> u64 {
        1 << region.0.min(LAST)
    }

    /// Adds a region.
    pub fn insert(&mut self, region: RegionId) {
        self.0 |= Self::bit(region);
    }

    /// True if the region is in it, or shares its bit with one that is.
    pub fn contains(self, region: RegionId) -> bool {
        self.0 & Self::bit(region) != 0
    }

    /// True if there is none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

impl FromIterator<RegionId> for RegionSet {
    fn from_iter<I: IntoIterator<Item = RegionId>>(regions: I) -> Self {
        let mut set = RegionSet::default();
        regions.into_iter().for_each(|region| set.insert(region));
        set
    }
}

impl Wire for RegionSet {
    fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        input.varint().map(RegionSet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn regions_beyond_the_word_stand_for_one_another() {
        let set: RegionSet = [RegionId(2), RegionId(70)].into_iter().collect();
        assert!(set.contains(RegionId(2)) && !set.contains(RegionId(3)) && !set.is_empty());
        assert!(set.contains(RegionId(70)) && set.contains(RegionId(63)) && !set.contains(RegionId(62)));
        let mut bytes = Vec::new();
        set.encode(&mut bytes);
        assert_eq!(RegionSet::decode(&mut Reader::new(&bytes)), Ok(set));
        assert!(RegionSet::default().is_empty());
    }
}
