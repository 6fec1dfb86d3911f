//! Conflict detection (COPS-CD, section 5.3). Two writes of a key are in conflict if neither observed the other. What a write
//! observed is a set of versions, which its stamp tells exactly: a time for each region (Corrections 50).
//!
//! The last writer wins, and what it costs others is listed and settled as in the other causal protocols (Corrections
//! 75). Or the values remain siblings ([`Options::keeps_siblings`]) until a write that observed all of them replaces
//! the key: then the partition refuses an operation that depends on one of them, or evaluates it on a handler's merge
//! of all. Of values that merge nothing is in conflict.
//!
//! [`Options::keeps_siblings`]: crate::cops::Options::keeps_siblings

use super::{Entries, Partition, Stamp};
use crate::cops::handler::merge_all;
use crate::stable::{Evaluation, LossList, Settlement, effect, encoded, settle};
use datatypes::merge::{LostPart, is_reset};
use datatypes::{Aspect, Effect, Operation, Value, key, register};
use mvcc::LostWrite;
use protocol::Conflict;
use types::{Error, ErrorCode, KeyHash, Malformed, Reader, ReplyBuf, ReplySink};

/// What becomes of an operation where a key may have concurrent values.
pub(super) enum Concurrent {
    /// It has none, or they do not matter to it.
    None,
    /// This is what it is answered.
    Reply(ReplyBuf),
    /// It is evaluated on what this writes.
    Merged(Box<[u8]>),
}

impl Partition {
    /// Every write that is known to be lost here: first those of which effects to come may still tell that they are not,
    /// then the list.
    pub fn conflicts(&self) -> Vec<Conflict> {
        self.losses().all()
    }

    /// How many of these nothing to come can change, and how many were dropped; without looking at all that may change.
    pub fn listed_conflicts(&self) -> (usize, u64) {
        self.store.listed_losses()
    }

    pub(super) fn losses(&self) -> LossList<'_, Entries> {
        LossList { store: &self.store, topology: &self.topology }
    }

    /// What an operation comes to that settles losses of a key; `None` for any other one.
    pub(super) fn settle(&mut self, hash: KeyHash, key: &[u8], operation: &[u8]) -> Option<Settlement> {
        let lists = self.options.conflict_bytes > 0;
        settle(&self.store, &mut self.clock, lists, (hash, key), operation)
    }

    /// What becomes of an operation where a key has concurrent values.
    pub(super) fn concurrent(
        &mut self,
        version: Option<Entries>,
        evaluation: &Evaluation<'_, Entries>,
    ) -> Result<Concurrent, Malformed> {
        let operation = Operation::decode(&mut Reader::new(evaluation.operation))?;
        let asks = operation == Operation::Key(key::Operation::Siblings);
        let mut before = evaluation.before.iter().filter_map(|bytes| effect(bytes));
        if before.any(|effect| is_reset(&effect)) || !(asks || observes_value(&operation)) {
            return Ok(Concurrent::None);
        }
        let siblings = self.siblings(evaluation.hash, evaluation.key, version);
        if siblings.is_empty() && !asks {
            return Ok(Concurrent::None);
        }
        let mut reply = ReplyBuf::new();
        match self.shown(version, evaluation) {
            // With a deadline that has passed everything went.
            None if asks => reply.array(0),
            None => return Ok(Concurrent::None),
            Some((shown, _)) if asks => self.tell_siblings(&shown, &siblings, &mut reply),
            Some((shown, is_register)) => match self.merged(evaluation.key, &shown, is_register, &siblings) {
                Ok(merged) => return Ok(Concurrent::Merged(merged)),
                Err(why) => reply.error(&has_siblings(evaluation.key, siblings.len() + 1, &why)),
            },
        }
        Ok(Concurrent::Reply(reply))
    }

    /// The write of what the values come to, by the handler; or why there is none.
    fn merged(
        &self,
        key: &[u8],
        shown: &[u8],
        is_register: bool,
        siblings: &[LostWrite<Stamp>],
    ) -> Result<Box<[u8]>, String> {
        let handler = self.handler.as_ref().ok_or_else(String::new)?;
        if !is_register || siblings.iter().any(|loss| loss.part == LostPart::Whole) {
            return Err(", and one is no string, which the handler could merge".to_owned());
        }
        let values = siblings.iter().map(|loss| &*loss.value).chain([shown]);
        let merged = merge_all(&**handler, key, values);
        let merged = merged.map_err(|reason| format!(", and the handler did not merge them: {reason}"))?;
        let deadline = register::Deadline::Keep;
        Ok(encoded(&Effect::Register(register::Effect::Set { value: &merged, deadline })))
    }

    /// The siblings of a key: the values of concurrent writes, except the shown one.
    fn siblings(&self, hash: KeyHash, key: &[u8], version: Option<Entries>) -> Vec<LostWrite<Stamp>> {
        let visible = |stamp: &Stamp| version.is_none_or(|version| stamp.at <= version.of(stamp.region));
        let mut siblings = self.store.siblings(hash, key, &visible);
        siblings.retain(|loss| matches!(loss.part, LostPart::Value | LostPart::Whole));
        siblings
    }

    /// The value that is shown, if there is one, and whether it is a register's; else it is the name of the type.
    fn shown(
        &mut self,
        version: Option<Entries>,
        evaluation: &Evaluation<'_, Entries>,
    ) -> Option<(Vec<u8>, bool)> {
        let Evaluation { hash, key, now_millis, .. } = *evaluation;
        let bounds = version.is_none().then(|| self.everything());
        let visible = |stamp: &Stamp| version.is_none_or(|version| stamp.at <= version.of(stamp.region));
        self.store.with_later(hash, key, visible, bounds, &[], &[], |cell| match &cell.value {
            _ if cell.is_expired(now_millis) => None,
            None => None,
            Some(Value::Register(register)) => Some((register.with_bytes(<[u8]>::to_vec), true)),
            Some(other) => Some((format!("a {}", other.kind().redis_name()).into_bytes(), false)),
        })
    }

    fn tell_siblings(&self, shown: &[u8], siblings: &[LostWrite<Stamp>], reply: &mut ReplyBuf) {
        reply.array(siblings.len() + 1);
        // The shown value is known while it is shown instead of another one.
        let winner = siblings.iter().map(|loss| loss.winner).max();
        let lost = siblings.iter().map(|loss| (&*loss.value, Some(loss.stamp)));
        for (value, stamp) in std::iter::once((shown, winner)).chain(lost) {
            reply.map(3);
            reply.bulk(b"value");
            reply.bulk(value);
            reply.bulk(b"region");
            match stamp {
                Some(stamp) => reply.bulk(self.topology.name(stamp.region).as_bytes()),
                None => reply.null(),
            }
            reply.bulk(b"time_us");
            match stamp {
                Some(stamp) => reply.integer(i64::try_from(stamp.at.wall().0).unwrap_or(i64::MAX)),
                None => reply.null(),
            }
        }
    }
}

/// True if what an operation replies or does depends on a register's value, or on a key's as a whole.
fn observes_value(operation: &Operation<'_>) -> bool {
    match operation {
        Operation::Register(operation) => operation.observation().aspect == Some(Aspect::Whole),
        Operation::Key(operation) => matches!(
            operation,
            key::Operation::Copy
                | key::Operation::Take
                | key::Operation::Dump
                | key::Operation::Object(key::ObjectField::Encoding)
        ),
        _ => false,
    }
}

fn has_siblings(key: &[u8], values: usize, why: &str) -> Error {
    let key = String::from_utf8_lossy(key);
    let text = format!(
        "'{key}' has {values} concurrent values{why}; nothing was done; CONFLICTS OF {key} tells them, and SET {key} replaces all \
         that this region has"
    );
    Error::new(ErrorCode::Siblings, text)
}
