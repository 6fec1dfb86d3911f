//! What a leader carries out by itself: single commands, and transactions of one request whose keys are all on its shard.

use super::leader::{claim_of, claim_of_unread};
use super::machine::Evaluation;
use super::message::{Calls, Last, Message};
use crate::coordinator::unread_effect;
use crate::validation::Stamp;
use crate::{Invoked, Part};
use datatypes::{Claim, Effect, Mode, Operation};
use smallvec::SmallVec;
use std::collections::BTreeMap;
use types::{Malformed, Reader, TransactionId};

/// Keys, each once: mostly one.
pub(super) type Keys<'k> = SmallVec<[&'k [u8]; 2]>;

/// What is locked of a key.
pub(super) type Claims<'o> = SmallVec<[Claim<'o>; 1]>;

/// Requested operations: a command, several on one key that a process has sent together, or a transaction, or the
/// steps of it that are left to this shard.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    /// Which step of its request.
    pub index: u32,
    /// Each operation's key, and the operation in its binary form.
    pub calls: Calls,
    /// Other shards have voted for the transaction that they are the last ones of.
    pub last: Option<Last>,
}

impl Single {
    /// The keys, each with its operation.
    pub(super) fn decoded(&self) -> Result<Vec<(&[u8], Operation<'_>)>, Malformed> {
        let decode = |bytes| Operation::decode(&mut Reader::new(bytes));
        self.calls.iter().map(|(key, bytes)| Ok((&**key, decode(bytes)?))).collect()
    }

    /// True if some of the operations only read.
    pub(super) fn reads(&self) -> bool {
        self.decoded().is_ok_and(|calls| calls.iter().any(|(_, operation)| operation.is_read()))
    }

    /// True if all do.
    pub(super) fn only_reads(&self) -> bool {
        self.decoded().is_ok_and(|calls| calls.iter().all(|(_, operation)| operation.is_read()))
    }

    /// The effect of this operation, if it is of those left to the last shard and needs no evaluation.
    pub(super) fn unread<'o>(&self, index: usize, operation: &Operation<'o>) -> Option<Effect<'o>> {
        self.last.as_ref()?;
        unread_effect(operation, self.is_blind(index))
    }

    /// True if no client sees this operation's result.
    pub(super) fn is_blind(&self, index: usize) -> bool {
        self.last.as_ref().is_some_and(|last| last.blind & 1 << index != 0)
    }

    /// What is locked of each key while the last steps of a transaction are carried out. All of it where modes differ, where a deadline may
    /// pass, and where a user-defined type is evaluated, which may see more than its mode protects.
    pub(super) fn claims(
        &self,
        mut has_deadline: impl FnMut(&[u8]) -> Result<bool, Malformed>,
    ) -> Result<BTreeMap<&[u8], Claims<'_>>, Malformed> {
        let mut claims: BTreeMap<&[u8], Claims<'_>> = BTreeMap::new();
        for (index, (key, operation)) in self.decoded()?.into_iter().enumerate() {
            let claim = match self.unread(index, &operation) {
                _ if has_deadline(key)? => Mode::Write.into(),
                Some(_) => claim_of_unread(&operation),
                None => claim_of(&operation, matches!(operation, Operation::User(_))),
            };
            claims.entry(key).or_default().push(claim);
        }
        for claims in claims.values_mut() {
            if claims.iter().any(|claim| claim.mode != claims[0].mode) {
                *claims = Claims::from([Mode::Write.into()]);
            }
        }
        Ok(claims)
    }

    /// The keys, in ascending order.
    pub(super) fn keys(&self) -> Keys<'_> {
        let mut keys: Keys<'_> = self.calls.iter().map(|(key, _)| &**key).collect();
        keys.sort_unstable();
        keys.dedup();
        keys
    }
}

impl From<Single> for Message {
    fn from(one: Single) -> Self {
        let Single { transaction, age, floor, term, index, calls, last } = one;
        Message::Run { transaction, age, floor, term, step: index, calls, last }
    }
}

/// What the operations on these keys change; before each the deletion of what had expired of the key (Corrections 69).
pub(super) fn part<'k>(
    participants: Vec<u16>,
    keys: impl Iterator<Item = &'k [u8]>,
    evaluations: &[Evaluation],
) -> Part {
    let invocations = keys.zip(evaluations).flat_map(|(key, evaluation)| {
        let invoked = |effect| Invoked { key: key.into(), operation: None, effect, observed: None };
        let deletion = evaluation.expiry.clone().map(|expiry| invoked(Some(expiry)));
        deletion.into_iter().chain([invoked(evaluation.effect.clone())])
    });
    let invocations = invocations.collect();
    Part { participants, invocations, ..Part::default() }
}
