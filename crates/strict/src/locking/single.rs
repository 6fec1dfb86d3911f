//! What a leader carries out by itself: single commands, and transactions of one request whose keys are all on its shard.

use super::machine::Evaluation;
use super::message::{Calls, Message};
use crate::part::encoded;
use crate::{Invoked, Part};
use commit::Stamp;
use datatypes::{Effect, Operation};
use smallvec::SmallVec;
use types::{Malformed, Reader, TransactionId};

/// Keys, each once: mostly one.
pub(super) type Keys<'k> = SmallVec<[&'k [u8]; 2]>;

/// Operations that are asked for: a command, several on one key that a process has sent together, or a transaction.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    /// Which step of its request.
    pub index: u32,
    /// Each operation's key, and the operation in its binary form.
    pub calls: Calls,
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
        let Single { transaction, age, floor, term, index, calls } = one;
        Message::Run { transaction, age, floor, term, step: index, calls }
    }
}

/// What the operations on these keys change; before each the key's deletion, if it had expired (Corrections 69).
pub(super) fn part<'k>(shard: u16, keys: impl Iterator<Item = &'k [u8]>, evaluations: &[Evaluation]) -> Part {
    let invocations = keys.zip(evaluations).flat_map(|(key, evaluation)| {
        let invoked = |effect| Invoked { key: key.into(), operation: None, effect, observed: None };
        let deletion = evaluation.expired.then(|| invoked(Some(encoded(&Effect::DELETE))));
        deletion.into_iter().chain([invoked(evaluation.effect.clone())])
    });
    let invocations = invocations.collect();
    Part { participants: vec![shard], invocations, ..Part::default() }
}
