//! A call: what a step of a transaction asks for.

use super::keyset::{KeysetCall, KeysetKind};
use super::steps::Done;
use crate::Topology;
use crate::part::{Invoked, USUAL_BYTES, encoded};
use crate::validation::{deadline_set, overwrites};
use datatypes::{Cell, Context, Effect, Operation, key, prepare};
use mvcc::CompactKey;
use protocol::KeyedOperation;
use types::{Reader, ReplyBuf, ReplySink, Rng};

/// An operation, owned, with its shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub key: CompactKey,
    pub shard: u16,
    /// The operation's binary form.
    pub operation: CompactKey,
    /// Nobody will see its result.
    pub blind: bool,
    /// For a call on the shard's keys as a whole: what it does. Then it has neither a key nor an operation.
    pub keyset: Option<KeysetCall>,
}

impl Call {
    pub fn new(topology: &Topology, keyed: &KeyedOperation<'_>) -> Self {
        let mut operation = Vec::with_capacity(USUAL_BYTES);
        keyed.operation.encode(&mut operation);
        Call {
            key: keyed.key.into(),
            shard: keyed.hash.share(topology.shards.len() as u16),
            operation: operation.into(),
            blind: keyed.blind,
            keyset: None,
        }
    }

    /// True if it deletes every key of the shard.
    pub fn is_flush(&self) -> bool {
        self.keyset.is_some_and(|keyset| keyset.kind == KeysetKind::Flush)
    }

    /// Writes its result: a blind one shows an error or `OK`.
    pub fn reply(&self, result: &ReplyBuf, sink: &mut dyn ReplySink) {
        match (self.blind, result.as_error()) {
            (true, None) => sink.simple("OK"),
            _ => result.replay(sink),
        }
    }

    /// True if it only reads.
    pub fn is_read(&self) -> bool {
        Operation::decode(&mut Reader::new(&self.operation)).is_ok_and(|operation| operation.is_read())
    }

    /// True if its reply tells nothing of the key.
    pub fn reveals_nothing(&self) -> bool {
        let operation = Operation::decode(&mut Reader::new(&self.operation));
        self.keyset.is_none() && operation.is_ok_and(|it| unread_effect(&it, self.blind).is_some())
    }

    /// The effect that the operation has in every state, for a blind call.
    pub(super) fn unread<'o>(&self, operation: &Operation<'o>, may_expire: bool) -> Option<Effect<'o>> {
        let effect = unread_effect(operation, self.blind);
        effect.filter(|effect| overwrites(effect) || !may_expire)
    }

    /// Evaluates an operation that needs no state: the client wants no result, or the result reveals nothing. Where
    /// the key may expire, only an operation that replaces the key needs no state.
    pub fn without_reading(&self, now_millis: u64, may_expire: bool, random: &mut Rng) -> Option<Done> {
        let operation = Operation::decode(&mut Reader::new(&self.operation)).ok()?;
        let unread = self.unread(&operation, may_expire)?;
        let result = result_unread(&operation, self.blind, now_millis, random);
        // What has passed of the deadlines deletes; what has not must not pass before the commit.
        let (effect, expires_at) = settled(unread, now_millis);
        let effect = Some(encoded(&effect));
        let invoked = Invoked { key: self.key.clone(), operation: None, effect, observed: None };
        Some(Done { result, invoked, expires_at })
    }
}

/// An effect that was evaluated on nothing, without what has expired of what it writes; and the first deadline that it sets,
/// in milliseconds since 1970, 0 for none.
fn settled(effect: Effect<'_>, now_millis: u64) -> (Effect<'_>, u64) {
    let deadline = deadline_set(&effect).unwrap_or(0);
    if deadline == 0 || deadline > now_millis {
        return (effect, deadline);
    }
    let Effect::Key(key::Effect::Restore(bytes)) = &effect else { return (Effect::DELETE, 0) };
    let Ok(cell) = Cell::decode(&mut Reader::new(bytes)) else { return (Effect::DELETE, 0) };
    let living = cell.living(now_millis);
    if living.value.is_none() {
        return (Effect::DELETE, 0);
    }
    let mut bytes = Vec::new();
    living.encode(&mut bytes);
    (Effect::Key(key::Effect::Restore(bytes.into())), living.next_deadline(now_millis))
}

/// The effect that an operation has in every state, if nobody asks for more: it is blind, or reveals nothing.
pub fn unread_effect<'o>(operation: &Operation<'o>, blind: bool) -> Option<Effect<'o>> {
    let unseen = blind || operation.observation().is_nothing();
    if unseen { operation.blind_effect() } else { None }
}

/// The result of such an operation.
pub fn result_unread(operation: &Operation<'_>, blind: bool, now_millis: u64, random: &mut Rng) -> ReplyBuf {
    let mut result = ReplyBuf::new();
    if blind {
        result.simple("OK");
    } else {
        prepare(&Cell::ABSENT, operation, &mut Context { now_millis, random, site: None }, &mut result);
    }
    result
}

/// An operation that observes everything of a key and returns little.
pub fn observe_whole() -> Operation<'static> {
    Operation::Key(key::Operation::Deadline(key::TimeFormat::MillisAt))
}

/// The same in its binary form.
pub fn whole_key() -> CompactKey {
    let mut bytes = Vec::new();
    observe_whole().encode(&mut bytes);
    bytes.into()
}
