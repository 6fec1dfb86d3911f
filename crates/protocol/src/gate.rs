//! The durability gate: which log groups must be how durable before an output may leave.

use crate::contract::Durability;

/// How far a log is durable, in group numbers; everything up to and including the number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Durable {
    /// Handed to the kernel: survives the death of the process.
    pub written: u64,
    /// Synced: survives the loss of power.
    pub synced: u64,
}

/// The groups that must be durable before an output may leave; 0 for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gate {
    /// Up to here the log must be written.
    pub written: u64,
    /// Up to here the log must be synced.
    pub synced: u64,
}

impl Gate {
    /// Nothing to wait for.
    pub const OPEN: Gate = Gate { written: 0, synced: 0 };

    /// What follows records of this class in a group waits for.
    pub(crate) fn of(group: u64, class: Option<Durability>) -> Gate {
        match class {
            Some(Durability::Synced) => Gate { written: group, synced: group },
            Some(Durability::Written) => Gate { written: group, synced: 0 },
            Some(Durability::Volatile) | None => Gate::OPEN,
        }
    }

    /// Waits for groups up to this one only.
    pub(crate) fn up_to(self, group: u64) -> Gate {
        Gate { written: self.written.min(group), synced: self.synced.min(group) }
    }

    /// True when everything it waits for is durable.
    #[inline]
    pub fn is_open(self, durable: Durable) -> bool {
        self.written <= durable.written && self.synced <= durable.synced
    }

    /// Waits for both.
    #[inline]
    pub fn and(self, other: Gate) -> Gate {
        Gate { written: self.written.max(other.written), synced: self.synced.max(other.synced) }
    }
}
