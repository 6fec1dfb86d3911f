//! A transaction in progress: what it reads from, what it read, what it will write.

use crate::changes::Written;
use crate::dag::Node;
use crate::{Change, Refusal, StateId, WriteSet};
use datatypes::{Cell, Context, Effect, Operation, apply, exchange, prepare};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::{Malformed, Reader, ReplySink, SessionId, Wire, put_bytes, put_varint};

/// The effects of a transaction on one key, in their binary form, in order.
pub type Effects = Vec<Box<[u8]>>;

/// An open transaction. It holds its read states: end it by `commit` or `abort` of the keyspace it came from.
#[derive(Debug)]
pub struct Transaction {
    pub(crate) session: SessionId,
    pub(crate) from: SmallVec<[Node; 1]>,
    /// Keys that the read states changed independently; only for a merge.
    pub(crate) conflicting: BTreeSet<CompactKey>,
    /// The version of the handler that resolved some of them.
    pub(crate) handler: Option<u64>,
    pub(crate) reads: BTreeSet<CompactKey>,
    /// It looked at the whole keyspace.
    pub(crate) reads_all: bool,
    pub(crate) writes: BTreeMap<CompactKey, (Effects, Change)>,
    /// The keys that it has written more than a few times, behind that.
    pub(crate) ahead: BTreeMap<CompactKey, OverlaidState>,
}

impl Transaction {
    /// True for a merge.
    pub fn is_merge(&self) -> bool {
        self.from.len() > 1
    }

    /// The keys that the merge still has to write.
    pub fn unresolved(&self) -> impl Iterator<Item = &CompactKey> {
        self.conflicting.iter().filter(|key| !self.writes.contains_key(*key))
    }

    /// What refuses its commit as long as keys are open.
    pub(crate) fn check_resolved(&self) -> Result<(), Refusal> {
        let mut unresolved = self.unresolved();
        unresolved
            .next()
            .map_or(Ok(()), |key| Err(Refusal::Unresolved { key: key.clone(), more: unresolved.count() }))
    }

    /// The keys it wrote so far.
    pub fn written(&self) -> impl Iterator<Item = &CompactKey> {
        self.writes.keys()
    }

    /// True if a key whose value at the read state is `cell` is there for the transaction.
    pub(crate) fn has(&self, key: &CompactKey, cell: &mut Cell, now_millis: u64) -> bool {
        let own = self.writes.get(key).map_or(&[][..], |(effects, _)| effects);
        let mut undo = performed(own, cell);
        let has = cell.value.is_some() && !cell.is_expired(now_millis);
        undo.iter_mut().rev().for_each(|patch| exchange(cell, patch));
        has
    }

    pub(crate) fn write_set(&self) -> WriteSet {
        self.writes.iter().map(|(key, (_, change))| (key.clone(), *change)).collect()
    }

    pub(crate) fn note(&mut self, key: &CompactKey, effect: &Effect<'_>) {
        let mut bytes = Vec::new();
        effect.encode(&mut bytes);
        let change = Change::of(effect);
        let (effects, before) = self.writes.entry(key.clone()).or_insert((Vec::new(), change));
        effects.push(bytes.into());
        *before = before.and(change);
    }

    /// Evaluates an operation on a key whose value at the read state is `cell`, which stays as it is. What the
    /// transaction wrote itself is seen. What has expired reads as absent; who writes the key commits its deletion
    /// first (Corrections 69).
    pub(crate) fn evaluate(
        &mut self,
        key: &CompactKey,
        cell: &mut Cell,
        operation: &Operation<'_>,
        blind: bool,
        context: &mut Context<'_>,
        sink: &mut dyn ReplySink,
    ) {
        let own = self.writes.get(key).map_or(&[][..], |(effects, _)| effects);
        if own.len() < FEW {
            let mut undo = performed(own, cell);
            self.evaluate_on(key, cell, (operation, blind), context, sink);
            undo.iter_mut().rev().for_each(|patch| exchange(cell, patch));
            return;
        }
        let cached = self.ahead.remove(key);
        let mut ahead = cached.unwrap_or_else(|| OverlaidState { effects: 0, cell: cell.clone() });
        let later = own.get(ahead.effects..).unwrap_or_default();
        for effect in later.iter().filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok()) {
            apply::<false>(&mut ahead.cell, &effect);
        }
        ahead.effects = own.len();
        self.evaluate_on(key, &ahead.cell, (operation, blind), context, sink);
        self.ahead.insert(key.clone(), ahead);
    }

    /// Evaluates an operation on the value that the transaction sees.
    fn evaluate_on(
        &mut self,
        key: &CompactKey,
        cell: &Cell,
        (operation, blind): (&Operation<'_>, bool),
        context: &mut Context<'_>,
        sink: &mut dyn ReplySink,
    ) {
        let (expiry, cell) = (cell.expiry(context.now_millis), cell.living(context.now_millis));
        let unseen = if blind && expiry.is_none() { operation.blind_effect() } else { None };
        let observes = unseen.is_none() && (expiry.is_some() || !operation.observation().is_nothing());
        let effect = match unseen {
            Some(effect) => {
                sink.simple("OK");
                Some(effect)
            }
            None => prepare(&cell, operation, context, sink),
        };
        if observes {
            self.reads.insert(key.clone());
        }
        if let Some(effect) = effect {
            if let Some(expiry) = expiry {
                self.note(key, &expiry);
            }
            self.note(key, &effect);
        }
    }
}

/// From so many effects on a key on, the transaction caches the value behind them for the next operation on it.
const FEW: usize = 8;

/// A key's value behind what the transaction wrote to it.
#[derive(Debug)]
pub(crate) struct OverlaidState {
    /// Behind so many effects.
    effects: usize,
    cell: Cell,
}

/// Performs effects on a value; returns what takes them back.
fn performed(effects: &[Box<[u8]>], cell: &mut Cell) -> SmallVec<[datatypes::Patch; 2]> {
    effects
        .iter()
        .filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
        .map(|effect| apply::<true>(cell, &effect))
        .collect()
}

/// A committed transaction as other sites, and the log, learn of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Commit {
    /// The state it made.
    pub id: StateId,
    /// Below which states, in ascending order.
    pub parents: Vec<StateId>,
    /// The keys it wrote, in ascending order, with their effects.
    pub writes: Vec<(CompactKey, Effects)>,
}

impl Commit {
    /// About how many bytes it occupies.
    pub(crate) fn size(&self) -> usize {
        let effects = |effects: &Effects| effects.iter().map(|effect| effect.len() + 16).sum::<usize>();
        64 + self.writes.iter().map(|(key, written)| key.len() + effects(written)).sum::<usize>()
    }

    /// What it writes, and of every key how.
    pub fn write_set(&self) -> WriteSet {
        self.writes.iter().map(|(key, effects)| (key.clone(), written(effects))).collect()
    }
}

/// What effects on one key change of it.
pub(crate) fn written(effects: &Effects) -> Written {
    effects
        .iter()
        .filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
        .map(|effect| Written::by(&effect))
        .reduce(|before, effect| before.and(&effect))
        .unwrap_or(Change::Other.into())
}

impl Wire for Commit {
    fn encode(&self, out: &mut Vec<u8>) {
        self.id.encode(out);
        self.parents.encode(out);
        put_varint(out, self.writes.len() as u64);
        for (key, effects) in &self.writes {
            put_bytes(out, key);
            effects.encode(out);
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let (id, parents) = (StateId::decode(input)?, Vec::<StateId>::decode(input)?);
        let mut writes: Vec<(CompactKey, Effects)> = Vec::new();
        for _ in 0..input.count()? {
            let (key, effects) = (CompactKey::new(input.bytes()?), Effects::decode(input)?);
            if !effects.iter().all(|bytes| is_effect(bytes)) {
                return Err(Malformed("effect of a commit"));
            }
            writes.push((key, effects));
        }
        let rises = parents.iter().all(|parent| *parent < id) && parents.is_sorted_by(|a, b| a < b);
        if !rises || !writes.is_sorted_by(|a, b| a.0 < b.0) {
            return Err(Malformed("order of a commit"));
        }
        Ok(Commit { id, parents, writes })
    }
}

fn is_effect(bytes: &[u8]) -> bool {
    let mut input = Reader::new(bytes);
    Effect::decode(&mut input).is_ok() && input.is_empty()
}
