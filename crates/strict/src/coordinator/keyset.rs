//! Steps on the whole keyspace inside transactions (Corrections 78): one call for every shard that the step concerns,
//! whose answers become one reply.

use super::call::Call;
use super::steps::{CallStep, Done, Progress, Steps};
use crate::Topology;
use crate::part::{Invoked, KeysetAccess};
use crate::validation::Observed;
use datatypes::Effect;
use mvcc::{CompactKey, Stamp, Store};
use std::collections::BTreeMap;
use types::{Malformed, Reader, Reply, ReplyBuf, ReplySink, wire_enum, wire_struct};

/// A scan cursor: the shard in the top bits, the place in the replica's index below.
pub const CURSOR_BITS: u32 = 48;

/// How many places of the index a scan visits at most for each requested key.
const PLACES_PER_KEY: u32 = 10;

/// What a look asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysetReadKind {
    /// How many keys there are.
    Count,
    /// All of them.
    Keys,
    /// A piece of them.
    Scan {
        /// Where to begin in the replica's index.
        place: u64,
        /// About how many keys.
        count: u32,
    },
}
wire_enum!(KeysetReadKind { 0 => Count, 1 => Keys, 2 => Scan { place, count } });

/// A key, and the binary forms of effects on it.
pub type OwnEffects = (Box<[u8]>, Vec<Box<[u8]>>);

/// A look at which keys a shard has, and what the asking transaction has done to them so far.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysetReadRequest {
    /// What to read.
    pub kind: KeysetReadKind,
    /// The transaction has deleted every key: there are only those that it has made since.
    pub flushed: bool,
    /// The keys that it has written, with the binary forms of all its effects on them, in order.
    pub own: Vec<OwnEffects>,
}
wire_struct!(KeysetReadRequest { kind, flushed, own });

/// What was seen.
#[derive(Clone, Debug, PartialEq)]
pub struct KeysetRead {
    /// The number of keys, if the request wants it.
    pub count: u64,
    /// The keys, if the request wants them, in any order.
    pub keys: Vec<Box<[u8]>>,
    /// Where a scan goes on; 0 at the end.
    pub cursor: u64,
    /// The exact effects that may have created or removed a key.
    pub observed: Observed,
}
wire_struct!(KeysetRead { count, keys, cursor, observed });

/// What a call does with a shard's keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeysetKind {
    /// Looks.
    KeysetRead(KeysetReadKind),
    /// Deletes all.
    Flush,
}

/// The call of a step on the whole keyspace for one shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysetCall {
    /// What it does.
    pub kind: KeysetKind,
    /// With the last call of a step: how many calls it has. Their answers are one reply.
    pub last_of: Option<u16>,
}

/// The asker's own keys: whether each existed before, and whether it does now.
type OwnKeys<'q> = BTreeMap<&'q [u8], (bool, bool)>;

/// A replica's answer to a look: its newest state, with the asker's own effects.
pub fn look_at<S: Stamp>(
    store: &mut Store<S>,
    question: &KeysetReadRequest,
    observed: Observed,
) -> Result<KeysetRead, Malformed> {
    let mut own = OwnKeys::new();
    for (key, effects) in &question.own {
        let effects = effects.iter().map(|bytes| Effect::decode(&mut Reader::new(bytes)));
        let effects: Vec<Effect<'_>> = effects.collect::<Result<_, _>>()?;
        let hash = store.hash(key);
        let existed = store.record(hash, key).is_some_and(|record| record.cell().value.is_some());
        let exists = store.with_state(hash, key, |_| true, &effects, |cell| cell.value.is_some());
        own.insert(key, (existed && !question.flushed, exists));
    }
    let mut look = KeysetRead { count: 0, keys: Vec::new(), cursor: 0, observed };
    match question.kind {
        KeysetReadKind::Count => {
            let before = own.values().filter(|(existed, _)| *existed).count();
            let after = own.values().filter(|(_, exists)| *exists).count();
            let committed = if question.flushed { 0 } else { store.len() };
            look.count = (committed - before + after) as u64;
        }
        KeysetReadKind::Keys => {
            let mut cursor = 0;
            loop {
                cursor = visit(store, cursor, question.flushed, &own, &mut look.keys);
                if cursor == 0 {
                    break;
                }
            }
            add_created(&own, &mut look.keys);
        }
        KeysetReadKind::Scan { place, count } => {
            look.cursor = place;
            for _ in 0..count.max(1).saturating_mul(PLACES_PER_KEY) {
                look.cursor = visit(store, look.cursor, question.flushed, &own, &mut look.keys);
                if look.cursor == 0 || look.keys.len() >= count as usize {
                    break;
                }
            }
            if place == 0 {
                add_created(&own, &mut look.keys);
            }
        }
    }
    Ok(look)
}

/// Adds the keys of one place of the index that exist and that the asker has not removed.
fn visit<S: Stamp>(
    store: &Store<S>,
    cursor: u64,
    flushed: bool,
    own: &OwnKeys<'_>,
    keys: &mut Vec<Box<[u8]>>,
) -> u64 {
    if flushed {
        return 0;
    }
    store.scan(cursor, |key, _| {
        if own.get(key).is_none_or(|(_, exists)| *exists) {
            keys.push(key.into());
        }
    })
}

fn add_created(own: &OwnKeys<'_>, keys: &mut Vec<Box<[u8]>>) {
    let created = own.iter().filter(|(_, (existed, exists))| *exists && !*existed);
    keys.extend(created.map(|(key, _)| Box::from(*key)));
}

/// The calls of a step on the whole keyspace; `None` for a scan from a cursor that no scan replied.
pub fn calls(topology: &Topology, step: &protocol::Step<'_>) -> Option<Vec<Call>> {
    let shards = topology.shards.len() as u16;
    let call = |shard, kind, last_of| Call {
        key: CompactKey::default(),
        shard,
        operation: CompactKey::default(),
        blind: false,
        keyset: Some(KeysetCall { kind, last_of }),
    };
    let all = |kind| {
        let last_of = |shard| (shard + 1 == shards).then_some(shards);
        Some((0..shards).map(|shard| call(shard, kind, last_of(shard))).collect())
    };
    match step {
        protocol::Step::Count => all(KeysetKind::KeysetRead(KeysetReadKind::Count)),
        protocol::Step::Keys => all(KeysetKind::KeysetRead(KeysetReadKind::Keys)),
        protocol::Step::Flush => all(KeysetKind::Flush),
        protocol::Step::Scan { cursor, count } => {
            let shard = u16::try_from(cursor >> CURSOR_BITS).ok().filter(|shard| *shard < shards)?;
            let place = cursor & ((1 << CURSOR_BITS) - 1);
            Some(vec![call(
                shard,
                KeysetKind::KeysetRead(KeysetReadKind::Scan { place, count: *count }),
                Some(1),
            )])
        }
        protocol::Step::Key(_) | protocol::Step::Losses(_) | protocol::Step::Random => None,
    }
}

/// The cursor behind a place of a shard's index, 0 where the shard ends.
pub fn next_cursor(shard: u16, place: u64, shards: u16) -> u64 {
    match place {
        0 if shard + 1 >= shards => 0,
        0 => u64::from(shard + 1) << CURSOR_BITS,
        place => u64::from(shard) << CURSOR_BITS | place,
    }
}

impl Steps {
    /// What a look has to know of the steps before it.
    pub fn look_question(&self, index: usize) -> Option<KeysetReadRequest> {
        let CallStep { call, .. } = self.list().get(index)?;
        let Some(KeysetCall { kind: KeysetKind::KeysetRead(kind), .. }) = call.keyset else { return None };
        let earlier = self.list()[..index].iter().filter(|step| step.call.shard == call.shard);
        let flushed = earlier.clone().any(|step| step.call.is_flush());
        let expired = self.expiries.iter().filter(|(_, (shard, _))| *shard == call.shard);
        let mut own: BTreeMap<&[u8], ()> = expired.map(|(key, _)| (&**key, ())).collect();
        own.extend(earlier.filter(|step| step.call.keyset.is_none()).map(|step| (&*step.call.key, ())));
        let own = own.into_keys().map(|key| (key.into(), self.own_effects(key, call.shard, index)));
        Some(KeysetReadRequest { kind, flushed, own: own.collect() })
    }

    /// Takes a replica's answer to a look.
    pub fn take_look(&mut self, index: usize, look: KeysetRead, shards: u16) {
        let Some(question) = self.look_question(index) else { return };
        let Some(step) = self.list().get(index) else { return };
        let mut result = ReplyBuf::new();
        match question.kind {
            KeysetReadKind::Count => result.integer(i64::try_from(look.count).unwrap_or(i64::MAX)),
            KeysetReadKind::Keys => look.keys.iter().for_each(|key| result.bulk(key)),
            KeysetReadKind::Scan { .. } => {
                result.integer(next_cursor(step.call.shard, look.cursor, shards) as i64);
                look.keys.iter().for_each(|key| result.bulk(key));
            }
        }
        // What comes after a deletion of everything depends on nothing that others do.
        let observed = (!question.flushed).then_some(look.observed);
        let invoked = Invoked { key: CompactKey::default(), operation: None, effect: None, observed };
        self.set(index, Progress::Done(Done { result, invoked, expires_at: 0 }));
    }

    /// What the steps did with every shard's keys as a whole. Deletions of everything are placed among the shard's
    /// invocations; of several only the last one matters.
    pub fn keysets(&self) -> BTreeMap<u16, KeysetAccess> {
        let mut keysets: BTreeMap<u16, KeysetAccess> = BTreeMap::new();
        let mut invocations: BTreeMap<u16, u32> = BTreeMap::new();
        self.expiries.values().for_each(|(shard, _)| *invocations.entry(*shard).or_default() += 1);
        for (step, done) in self.done() {
            let shard = step.call.shard;
            let Some(keyset) = &step.call.keyset else {
                *invocations.entry(shard).or_default() += 1;
                continue;
            };
            let access = keysets.entry(shard).or_default();
            match keyset.kind {
                KeysetKind::KeysetRead(_) => access.observed.extend(done.invoked.observed.clone()),
                KeysetKind::Flush => {
                    access.flushed_after = Some(invocations.get(&shard).copied().unwrap_or(0));
                }
            }
        }
        keysets
    }

    /// Writes the reply of the step on the whole keyspace whose last call is this one.
    pub fn reply_keyset(&self, last: usize, keyset: KeysetCall, sink: &mut dyn ReplySink) {
        let Some(calls) = keyset.last_of else { return };
        let first = (last + 1).saturating_sub(usize::from(calls));
        let answers = self.list()[first..=last].iter().filter_map(|step| match &step.progress {
            Progress::Done(done) => Some(&done.result),
            _ => None,
        });
        match keyset.kind {
            KeysetKind::Flush => sink.simple("OK"),
            KeysetKind::KeysetRead(KeysetReadKind::Count) => {
                let counted = answers.flat_map(|answer| answer.elements());
                let sum = counted.map(|element| if let Reply::Integer(count) = element { count } else { 0 });
                sink.integer(sum.sum());
            }
            KeysetKind::KeysetRead(KeysetReadKind::Keys) => {
                let keys: Vec<Reply<'_>> = answers.flat_map(|answer| answer.elements()).collect();
                reply_keys(&keys, sink);
            }
            KeysetKind::KeysetRead(KeysetReadKind::Scan { .. }) => {
                let elements: Vec<Reply<'_>> = answers.flat_map(|answer| answer.elements()).collect();
                let Some((Reply::Integer(cursor), keys)) = elements.split_first() else { return };
                sink.array(2);
                sink.integer(*cursor);
                reply_keys(keys, sink);
            }
        }
    }
}

fn reply_keys(keys: &[Reply<'_>], sink: &mut dyn ReplySink) {
    sink.array(keys.len());
    for key in keys {
        if let Reply::Bulk(key) = key {
            sink.bulk(key);
        }
    }
}
