//! The place of a strict transaction in the commit order.

use std::fmt;
use types::{Incarnation, ProcessId, Timestamp, TransactionId, wire_struct};

/// Compared by time, then by the transaction's id, so that no two transactions share a place (Corrections 31).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp {
    /// The timestamp that the coordinator proposed and every participant accepted.
    pub at: Timestamp,
    /// The transaction.
    pub transaction: TransactionId,
}
wire_struct!(Stamp { at, transaction });
impl mvcc::Stamp for Stamp {}

impl Stamp {
    /// Below every stamp of a transaction.
    pub const ZERO: Stamp = Stamp {
        at: Timestamp::ZERO,
        transaction: TransactionId { process: ProcessId(0), incarnation: Incarnation(0), number: 0 },
    };
}

impl fmt::Display for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.transaction, self.at.0)
    }
}
