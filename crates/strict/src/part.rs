//! What a transaction did on a shard: the invocations that replicas judge, keep and apply.

use commit::{Access, Observed, overwrites};
use datatypes::{Effect, Invocation, Observation, Operation};
use types::{Malformed, Reader, wire_struct};

/// One evaluated operation of a transaction on one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Invoked {
    /// The key.
    pub key: Box<[u8]>,
    /// The operation in its binary form, for what it observes; `None` if nobody sees its result (blind).
    pub operation: Option<Box<[u8]>>,
    /// The effect in its binary form, if it changes anything.
    pub effect: Option<Box<[u8]>>,
    /// The exact effects that its evaluation saw; `None` if it was not evaluated on a replica's state.
    pub observed: Option<Observed>,
}
wire_struct!(Invoked { key, operation, effect, observed });

impl Invoked {
    /// What it observes and changes.
    pub fn access(&self) -> Result<Access<'_>, Malformed> {
        let observation = match &self.operation {
            Some(bytes) => Operation::decode(&mut Reader::new(bytes))?.observation(),
            None => Observation::NOTHING,
        };
        Ok(Access {
            invocation: Invocation { observation, effect: self.effect()? },
            observed: self.observed.as_ref(),
        })
    }

    /// True if it was not evaluated, though it matters whether the key has expired (Corrections 69).
    pub fn ignores_expiry(&self) -> bool {
        let keeps = |effect: Option<Effect<'_>>| effect.is_some_and(|effect| !overwrites(&effect));
        self.observed.is_none() && self.effect().is_ok_and(keeps)
    }

    /// What it changes.
    pub fn effect(&self) -> Result<Option<Effect<'_>>, Malformed> {
        self.effect.as_ref().map(|bytes| Effect::decode(&mut Reader::new(bytes))).transpose()
    }
}

/// A shard's part of a transaction, and who else takes part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Every participant shard, ascending; the replicas of the first are the backup coordinators.
    pub participants: Vec<u16>,
    /// The invocations on this shard's keys, in the order of the transaction.
    pub invocations: Vec<Invoked>,
}
wire_struct!(Part { participants, invocations });

/// The binary form of an effect.
pub(crate) fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes.into()
}
