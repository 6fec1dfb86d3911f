//! An operation that a request asks for.

use super::message::{Effects, encoded};
use datatypes::{Cell, Context, Effect, Operation, prepare};
use protocol::KeyedOperation;
use strict::Topology;
use strict::validation::{deadline_set, overwrites};
use types::{Reader, ReplyBuf, ReplySink, Rng};

/// An operation, owned, with its shard.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub(super) key: Box<[u8]>,
    pub(super) shard: u16,
    /// The operation's binary form.
    pub(super) operation: Box<[u8]>,
    /// Nobody will see its result.
    blind: bool,
}

impl Call {
    pub(super) fn new(topology: &Topology, keyed: &KeyedOperation<'_>) -> Self {
        let mut operation = Vec::new();
        keyed.operation.encode(&mut operation);
        Call {
            key: keyed.key.into(),
            shard: keyed.hash.share(topology.shards.len() as u16),
            operation: operation.into(),
            blind: keyed.blind,
        }
    }

    /// Writes its result: a blind one shows an error or `OK`.
    pub(super) fn reply(&self, result: &ReplyBuf, sink: &mut dyn ReplySink) {
        match (self.blind, result.as_error()) {
            (true, None) => sink.simple("OK"),
            _ => result.replay(sink),
        }
    }

    /// True if it only reads.
    pub(super) fn is_read(&self) -> bool {
        Operation::decode(&mut Reader::new(&self.operation)).is_ok_and(|operation| operation.is_read())
    }

    /// Result and effects of an operation that needs no state: the client wants no result, or the result reveals
    /// nothing, and it replaces the key, so that it does not matter whether that has expired.
    pub(super) fn without_reading(&self, now_millis: u64, random: &mut Rng) -> Option<(ReplyBuf, Effects)> {
        let operation = Operation::decode(&mut Reader::new(&self.operation)).ok()?;
        let unseen = self.blind || operation.observation().is_nothing();
        let effect = operation.blind_effect().filter(|effect| unseen && overwrites(effect))?;
        let mut result = ReplyBuf::new();
        if self.blind {
            result.simple("OK");
        } else {
            prepare(&Cell::ABSENT, &operation, &mut Context { now_millis, random, site: None }, &mut result);
        }
        // A deadline that has passed deletes.
        let is_over = deadline_set(&effect).is_some_and(|deadline| deadline != 0 && deadline <= now_millis);
        let effect = if is_over { Effect::DELETE } else { effect };
        Some((result, vec![encoded(&effect)]))
    }
}
