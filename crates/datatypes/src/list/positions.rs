//! Places in a list, in ascending order.

use crate::codec::Field;
use smallvec::SmallVec;
use types::{Malformed, Reader, put_varint};

/// Positions in strictly ascending order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Positions(SmallVec<[u64; 2]>);

impl Positions {
    /// The positions, in ascending order; also from the back.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<u64> for Positions {
    fn from_iter<I: IntoIterator<Item = u64>>(positions: I) -> Self {
        let mut positions: SmallVec<[u64; 2]> = positions.into_iter().collect();
        positions.sort_unstable();
        positions.dedup();
        Positions(positions)
    }
}

/// Count, then the first position and the distances.
impl Field<'_> for Positions {
    fn put(&self, out: &mut Vec<u8>) {
        put_varint(out, self.0.len() as u64);
        let mut next = 0;
        for position in self.iter() {
            put_varint(out, position.wrapping_sub(next));
            next = position.wrapping_add(1);
        }
    }

    fn take(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut positions = SmallVec::new();
        let mut next = Some(0u64);
        for _ in 0..input.count()? {
            let distance = input.varint()?;
            let position = next.and_then(|next| next.checked_add(distance)).ok_or(Malformed("position"))?;
            positions.push(position);
            next = position.checked_add(1);
        }
        Ok(Positions(positions))
    }
}
