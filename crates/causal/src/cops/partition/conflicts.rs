//! Conflict detection (COPS-CD, section 5.3). Two writes of a key are in conflict if neither observed the other. What a write
//! observed is a set of versions, which its stamp tells exactly: a time for each region (Corrections 50).
//!
//! The last writer wins, and what it costs others is listed and settled as in the other causal protocols (Corrections 75). Or the
//! values stay beside one another ([`Options::keeps_siblings`]): then reads are refused until somebody who observed all of them
//! replaces the key. Of values that merge nothing is in conflict.
//!
//! [`Options::keeps_siblings`]: crate::cops::Options::keeps_siblings

use super::{Entries, Partition, Stamp};
use crate::stable::{Evaluation, LossList, Settlement, effect, settle};
use datatypes::merge::{LostPart, is_reset};
use datatypes::{Aspect, Operation, Value, key};
use mvcc::LostWrite;
use protocol::Conflict;
use types::{Error, ErrorCode, KeyHash, Malformed, Reader, ReplyBuf, ReplySink};

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

    /// Answers what cannot be told of one value alone, if the key has several. False if it can be evaluated on the one that is
    /// shown.
    pub(super) fn answer_siblings(
        &mut self,
        version: Option<Entries>,
        evaluation: &Evaluation<'_, Entries>,
        reply: &mut ReplyBuf,
    ) -> Result<bool, Malformed> {
        let operation = Operation::decode(&mut Reader::new(evaluation.operation))?;
        let asks = operation == Operation::Key(key::Operation::Siblings);
        let replaced =
            evaluation.before.iter().filter_map(|bytes| effect(bytes)).any(|effect| is_reset(&effect));
        if replaced || !(asks || observes_value(&operation)) {
            return Ok(false);
        }
        let (hash, key) = (evaluation.hash, evaluation.key);
        let siblings = self.siblings(hash, key, version);
        if siblings.is_empty() && !asks {
            return Ok(false);
        }
        let shown = self.shown(version, evaluation);
        match shown {
            // With a deadline that has passed everything went.
            None if asks => reply.array(0),
            None => return Ok(false),
            Some(shown) if asks => self.tell_siblings(&shown, &siblings, reply),
            Some(_) => reply.error(&has_siblings(key, siblings.len() + 1)),
        }
        Ok(true)
    }

    /// The values of concurrent writes of a key, beside the one that is shown.
    fn siblings(&self, hash: KeyHash, key: &[u8], version: Option<Entries>) -> Vec<LostWrite<Stamp>> {
        let visible = |stamp: &Stamp| version.is_none_or(|version| stamp.at <= version.of(stamp.region));
        let mut siblings = self.store.siblings(hash, key, &visible);
        siblings.retain(|loss| loss.part == LostPart::Value);
        siblings
    }

    /// The value that is shown, if there is one; the name of its type, if it is no register.
    fn shown(&mut self, version: Option<Entries>, evaluation: &Evaluation<'_, Entries>) -> Option<Vec<u8>> {
        let Evaluation { hash, key, now_millis, .. } = *evaluation;
        let bounds = version.is_none().then(|| self.everything());
        let visible = |stamp: &Stamp| version.is_none_or(|version| stamp.at <= version.of(stamp.region));
        self.store.with_later(hash, key, visible, bounds, &[], &[], |cell| match &cell.value {
            _ if cell.is_expired(now_millis) => None,
            None => None,
            Some(Value::Register(register)) => Some(register.with_bytes(<[u8]>::to_vec)),
            Some(other) => Some(format!("a {}", other.kind().redis_name()).into_bytes()),
        })
    }

    fn tell_siblings(&self, shown: &[u8], siblings: &[LostWrite<Stamp>], reply: &mut ReplyBuf) {
        reply.array(siblings.len() + 1);
        // Who is shown is known while it is shown instead of somebody.
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
        Operation::Key(operation) => matches!(operation, key::Operation::Copy | key::Operation::Take),
        _ => false,
    }
}

fn has_siblings(key: &[u8], values: usize) -> Error {
    let key = String::from_utf8_lossy(key);
    let text = format!(
        "'{key}' has {values} concurrent values; nothing was done; CONFLICTS OF {key} tells them, and SET {key} replaces all that \
         this region has"
    );
    Error::new(ErrorCode::Siblings, text)
}
