//! What orders an effect.

use super::Times;
use mvcc::DependencyVector;
use std::fmt::Debug;
use types::{RegionId, Timestamp, TransactionId, Wire, wire_struct};

/// What a stamp says of what its effects depend on: where stamps merge, up to where they observed the other groups.
pub trait Depends: Wire + Copy + Ord + Debug + Default + Send + 'static {
    /// Up to where they observed this group, if that is another time for each of them.
    fn of_group(&self, group: u16) -> Option<Timestamp> {
        let _ = group;
        None
    }

    /// What two of them have both observed.
    fn of_both(self, other: Self) -> Self {
        self.min(other)
    }

    /// What one of two has observed.
    fn of_either(self, other: Self) -> Self {
        self.max(other)
    }
}

impl Depends for Timestamp {}

/// The place of an effect: all of one transaction share it. Ordered by update time, then by the transaction's id,
/// which is unique, so that every region orders alike (Corrections 31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp<D = Timestamp> {
    /// The commit timestamp: the paper's `ut`.
    pub at: Timestamp,
    /// The transaction: the paper's `id_T`.
    pub transaction: TransactionId,
    /// Where it committed: the paper's `sr`.
    pub region: RegionId,
    /// Up to where it may depend on other regions: the paper's `rdt`, or what a protocol has in its place
    /// ([`Times::Depends`]).
    pub depends_on: D,
}

wire_struct!(Stamp<D> { at, transaction, region, depends_on });

impl<D: Depends> mvcc::Stamp for Stamp<D> {
    fn is_observed(&self, group: u16, upto: &Self) -> bool {
        upto.depends_on.of_group(group).map_or(self <= upto, |upto| self.at <= upto)
    }

    fn observed_by_both(self, other: Self) -> Self {
        Stamp { depends_on: self.depends_on.of_both(other.depends_on), ..self.min(other) }
    }
}

impl<D: Copy + Default> Stamp<D> {
    /// Names it for operators: the same in every region, and shorter than all of it.
    pub(crate) fn name(&self) -> Vec<u8> {
        let mut name = Vec::new();
        (self.at, self.transaction).encode(&mut name);
        name
    }

    /// Above every stamp with this time and below every later one.
    pub(crate) fn last_at(at: Timestamp) -> Self {
        let transaction = TransactionId {
            process: types::ProcessId(u16::MAX),
            incarnation: types::Incarnation(u32::MAX),
            number: u64::MAX,
        };
        Stamp { at, transaction, region: RegionId(u16::MAX), depends_on: D::default() }
    }
}

/// What the effect observed of those before it: everything of its group, and of the others what its snapshot showed. In
/// Wren the group is the region, whose primary put it after them; in PaRiS the process that its client spoke to. It is a
/// little more than its client saw where another client of the group was ahead, never less.
pub(crate) fn dependencies<S: Times>(stamp: &Stamp<S::Depends>) -> DependencyVector<Stamp<S::Depends>> {
    DependencyVector { group: S::group(stamp), upto: S::upto(stamp.depends_on) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stable::{Entries, Origins};
    use crate::{cops, paris, pocc, wren};
    use datatypes::{Effect, register};
    use mvcc::Store;
    use types::{HashSeed, Incarnation, ProcessId, WallTime};

    const KEYS: u64 = 10_000;

    /// The bytes for a key of 8 bytes that one of three regions set to 5 and then deleted, or let expire, while another is silent.
    fn bytes_of_dead_keys<S: Times>(depends_on: S::Depends) -> usize {
        let now = 1_764_000_000_000_000;
        let mut store = Store::new(HashSeed(7), Stamp::default());
        store.merge_by_dependencies(dependencies::<S>);
        store.set_horizon(Some(Stamp::default()));
        let fresh = store.memory();
        let stamp = |number: u64| Stamp {
            at: Timestamp::from_wall(WallTime(now + 137 * number)),
            transaction: TransactionId { process: ProcessId(3), incarnation: Incarnation(9), number },
            region: RegionId(1),
            depends_on,
        };
        for number in 0..KEYS {
            let key = number.to_be_bytes();
            let deadline = match number % 2 {
                0 => register::Deadline::Clear,
                _ => register::Deadline::At { millis: now / 1000 },
            };
            let set = Effect::Register(register::Effect::Set { value: b"value", deadline });
            store.commit(store.hash(&key), &key, stamp(2 * number), &set);
            if number % 2 == 0 {
                store.commit(store.hash(&key), &key, stamp(2 * number + 1), &Effect::DELETE);
            }
        }
        store.pass_time(now);
        (0..KEYS).for_each(|_| store.pack_some(10, Stamp::last_at(Timestamp::MAX)));
        assert_eq!((store.packed() as u64, store.len()), (KEYS, 0));
        (store.memory() - fresh) / KEYS as usize
    }

    #[test]
    fn dead_keys_occupy_little_while_a_region_is_silent() {
        let at = Timestamp::from_wall(WallTime(1_763_000_000_000_000));
        let (mut entries, third) = (Entries::default(), WallTime(1_763_999_999_000_000));
        let times = [at, Timestamp::from_wall(third), at];
        (0..3).zip(times).for_each(|(region, at)| entries.set(RegionId(region), at));
        let of_protocols = [
            ("wren", bytes_of_dead_keys::<wren::Snapshot>(at)),
            ("paris", bytes_of_dead_keys::<paris::Universal>(Origins { observed: at, ..Origins::default() })),
            ("pocc", bytes_of_dead_keys::<pocc::Snapshot>(entries)),
            ("cops", bytes_of_dead_keys::<cops::Cut>(entries)),
        ];
        for (protocol, each) in of_protocols {
            assert!(each < 180, "{protocol}: {each} bytes for a key that is gone");
        }
    }
}
