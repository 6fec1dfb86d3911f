//! Single commands that a leader carries out by themselves.

use super::machine::Evaluation;
use super::message::Message;
use crate::part::encoded;
use crate::{Invoked, Part};
use commit::Stamp;
use datatypes::{Effect, Operation};
use types::{Malformed, Reader, TransactionId};

/// Operations on a key that are asked for: a command, or several that one process has sent together.
pub(super) struct Single {
    pub transaction: TransactionId,
    pub age: Stamp,
    pub floor: u64,
    pub term: u64,
    /// Which step of its request.
    pub index: u32,
    pub key: Box<[u8]>,
    pub operations: Vec<Box<[u8]>>,
}

impl Single {
    /// The operations.
    pub(super) fn decoded(&self) -> Result<Vec<Operation<'_>>, Malformed> {
        self.operations.iter().map(|bytes| Operation::decode(&mut Reader::new(bytes))).collect()
    }
}

impl From<Single> for Message {
    fn from(one: Single) -> Self {
        let Single { transaction, age, floor, term, index, key, operations } = one;
        Message::Run { transaction, age, floor, term, step: index, key, operations }
    }
}

/// What the operations change; before each the key's deletion, if it had expired (Corrections 69).
pub(super) fn part(shard: u16, key: &[u8], evaluations: &[Evaluation]) -> Part {
    let invoked = |effect| Invoked { key: key.into(), operation: None, effect, observed: None };
    let invocations = evaluations.iter().flat_map(|evaluation| {
        let deletion = evaluation.expired.then(|| invoked(Some(encoded(&Effect::DELETE))));
        deletion.into_iter().chain([invoked(evaluation.effect.clone())])
    });
    let invocations = invocations.collect();
    Part { participants: vec![shard], invocations, keyset: None }
}
