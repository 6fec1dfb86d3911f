//! Lost updates, as keyspaces report them.

use datatypes::merge::LostPart;
use types::wire_struct;

/// One of the two writes of a [`Conflict`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConflictingWrite {
    /// What it said: a value, or the command that says it.
    pub value: Box<[u8]>,
    /// The name of the region where it committed.
    pub region: Box<[u8]>,
    /// When it committed, in microseconds since 1970 by that region's clock.
    pub at_micros: u64,
}
wire_struct!(ConflictingWrite { value, region, at_micros });

/// A write that was acknowledged and is out of sight, because a concurrent one that had not observed it stays. In its
/// binary form it is an element of the reply to [`crate::Losses::List`].
#[derive(Clone, Debug, PartialEq)]
pub struct Conflict {
    /// The key.
    pub key: Box<[u8]>,
    /// Its name among those of the key, the same in every region.
    pub name: Box<[u8]>,
    /// Which part of the key.
    pub part: LostPart,
    /// The write that is lost.
    pub lost: ConflictingWrite,
    /// The write that it is lost to.
    pub winner: ConflictingWrite,
}
wire_struct!(Conflict { key, name, part, lost, winner });
