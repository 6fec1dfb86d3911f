//! A partition lent to one transaction, whose driver holds it meanwhile: operations take effect at once, and in the end the
//! transaction keeps all of them or takes all of them back. Nobody else sees anything in between, so it meets no conflicts.

use super::Solo;
use super::keyset::Keyset;
use protocol::{KeyedOperation, Now, Persisted, Replica, Replies};
use std::collections::BTreeSet;
use types::{RequestId, Rng, SessionId};

/// How the partition was before the transaction.
#[derive(Debug)]
pub struct Lent {
    persisted: Persisted,
    unlogged: (usize, u64),
    touched: BTreeSet<SessionId>,
    keyset: Keyset,
    expired: usize,
}

impl Lent {
    /// A transaction begins. Nothing but it may step the partition until [`Lent::keep`] or [`Lent::take_back`].
    pub fn begin(replica: &mut Replica<Solo>) -> Self {
        let persisted = replica.persisted();
        let solo = replica.protocol_mut();
        debug_assert!(
            !solo.is_lent && !solo.fenced,
            "one transaction at a time, of a partition that takes writes"
        );
        solo.is_lent = true;
        Lent {
            persisted,
            unlogged: solo.unlogged.reach(),
            touched: solo.watches.touched().clone(),
            keyset: solo.keyset,
            expired: solo.expired.as_ref().map_or(0, Vec::len),
        }
    }

    /// Executes an operation of the transaction.
    pub fn operate(
        replica: &mut Replica<Solo>,
        now: Now,
        id: RequestId,
        operation: &KeyedOperation<'_>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        replica.drive(replies, |solo, out| solo.execute(now, id, operation, random, out));
    }

    /// What the transaction did stays, and is for the log like what other steps did.
    pub fn keep(self, replica: &mut Replica<Solo>) {
        let solo = replica.protocol_mut();
        solo.is_lent = false;
        if !solo.is_logged() && self.unlogged.0 == 0 {
            solo.unlogged.clear();
        }
    }

    /// What the transaction did never happened.
    pub fn take_back(self, replica: &mut Replica<Solo>) {
        replica.forget_since(self.persisted);
        let solo = replica.protocol_mut();
        solo.take_back_to(self.unlogged);
        solo.is_lent = false;
        solo.keyset = self.keyset;
        solo.watches.set_touched(self.touched);
        if let Some(expired) = &mut solo.expired {
            expired.truncate(self.expired);
        }
    }
}
