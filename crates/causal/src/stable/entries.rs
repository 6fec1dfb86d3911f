//! A time for each region: what the snapshots of Cure and POCC are made of, and what their effects depend on.

use super::stamp::Depends;
use types::{Malformed, Reader, RegionId, Timestamp, Wire};

/// How many regions a keyspace of these protocols may have.
pub const MAX_REGIONS: usize = 8;

/// A time for each region, element by element. Of regions that are not named, and before any is, it says `rest`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entries {
    rest: Timestamp,
    named: u8,
    entries: [Timestamp; MAX_REGIONS],
}

impl Entries {
    /// The same time for every region.
    pub fn all(at: Timestamp) -> Self {
        Entries { rest: at, ..Entries::default() }
    }

    /// The time of a region.
    pub fn of(&self, region: RegionId) -> Timestamp {
        let named = &self.entries[..usize::from(self.named)];
        named.get(usize::from(region.0)).copied().unwrap_or(self.rest)
    }

    /// Sets the time of a region.
    pub fn set(&mut self, region: RegionId, at: Timestamp) {
        while usize::from(self.named) <= usize::from(region.0) {
            self.entries[usize::from(self.named)] = self.rest;
            self.named += 1;
        }
        self.entries[usize::from(region.0)] = at;
    }

    /// The times of the regions that are named; of all of them if none is.
    pub fn named(&self) -> &[Timestamp] {
        match self.named {
            0 => std::slice::from_ref(&self.rest),
            named => &self.entries[..usize::from(named)],
        }
    }

    /// The regions that either names.
    pub fn regions(&self, other: &Entries) -> impl Iterator<Item = RegionId> + use<> {
        (0..u16::from(self.named.max(other.named))).map(RegionId)
    }

    /// Of each region the time that is chosen of the two.
    pub fn combine(&self, other: &Entries, choose: fn(Timestamp, Timestamp) -> Timestamp) -> Entries {
        let mut combined = Entries::all(choose(self.rest, other.rest));
        for region in self.regions(other) {
            combined.set(region, choose(self.of(region), other.of(region)));
        }
        combined
    }

    /// Zero for regions that are not named.
    pub fn of_named(self) -> Entries {
        Entries { rest: Timestamp::ZERO, ..self }
    }

    /// The least of them.
    pub fn least(&self) -> Timestamp {
        self.named().iter().copied().min().unwrap_or_default()
    }

    /// The greatest of them.
    pub fn greatest(&self) -> Timestamp {
        self.named().iter().copied().max().unwrap_or_default()
    }

    /// True if none is above the other's.
    pub fn is_within(&self, other: &Entries) -> bool {
        self.regions(other).all(|region| self.of(region) <= other.of(region))
    }

    /// The times of so many regions.
    pub fn by_region(&self, regions: usize) -> Vec<Timestamp> {
        (0..regions as u16).map(|region| self.of(RegionId(region))).collect()
    }
}

impl Depends for Entries {
    fn of_group(&self, group: u16) -> Option<Timestamp> {
        Some(self.of(RegionId(group)))
    }

    fn of_both(self, other: Self) -> Self {
        self.combine(&other, Timestamp::min)
    }

    fn of_either(self, other: Self) -> Self {
        self.combine(&other, Timestamp::max)
    }
}

/// How `rest` is encoded, next to the number of regions.
const REST_ZERO: u8 = 0;
const REST_MAX: u8 = 1;
const REST_LISTED: u8 = 2;
const REST_SHIFT: u32 = 6;

impl Wire for Entries {
    fn encode(&self, out: &mut Vec<u8>) {
        let rest = match self.rest {
            Timestamp::ZERO => REST_ZERO,
            Timestamp::MAX => REST_MAX,
            _ => REST_LISTED,
        };
        out.push(self.named | rest << REST_SHIFT);
        self.entries[..usize::from(self.named)].iter().for_each(|at| at.encode(out));
        if rest == REST_LISTED {
            self.rest.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let first = input.byte()?;
        let named = first & ((1 << REST_SHIFT) - 1);
        if usize::from(named) > MAX_REGIONS {
            return Err(Malformed("vector"));
        }
        let mut entries = Entries { named, ..Entries::default() };
        for entry in &mut entries.entries[..usize::from(named)] {
            *entry = Wire::decode(input)?;
        }
        entries.rest = match first >> REST_SHIFT {
            REST_ZERO => Timestamp::ZERO,
            REST_MAX => Timestamp::MAX,
            REST_LISTED => Wire::decode(input)?,
            _ => return Err(Malformed("vector")),
        };
        Ok(entries)
    }
}
