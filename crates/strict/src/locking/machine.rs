//! What the log's entries build at every replica: the store, the prepared transactions, the outcomes.

#[cfg(test)]
mod tests;

use super::absent::Absent;
use super::leader::observed;
use super::unapplied::{Unapplied, UnappliedEffects};
use crate::coordinator::{KeysetRead, KeysetReadRequest, look_at};
use crate::part::{Part, encoded};
use datatypes::{Cell, Context, Effect, Operation, apply, prepare};
use mvcc::{Store, Tracked};
use replication::log::Application;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{
    HashSeed, Incarnation, Malformed, ProcessId, Reader, ReplyBuf, Rng, Timestamp, TransactionId, Wire,
    put_bytes, wire_enum, wire_struct,
};

/// About how many bytes a piece of the state has.
const PIECE_BYTES: usize = 64 * 1024;

/// An entry of a shard's log: an outcome that its leader has found, never a question.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Entry {
    /// The shard has voted for the transaction and holds its locks until the decision.
    Prepare { transaction: TransactionId, floor: u64, at: Timestamp, part: Part },
    /// It commits; with a part if this is the only shard, else as it was prepared.
    Commit { transaction: TransactionId, floor: u64, at: Timestamp, part: Option<Part> },
    /// The transaction does not commit, whatever a late message says.
    Abort { transaction: TransactionId, floor: u64 },
    /// Single commands commit, and these are their results: who asks again gets them from any leader.
    Run { transaction: TransactionId, floor: u64, at: Timestamp, part: Part, results: Vec<SingleResult> },
}
wire_enum!(Entry {
    0 => Prepare { transaction, floor, at, part },
    1 => Commit { transaction, floor, at, part },
    2 => Abort { transaction, floor },
    3 => Run { transaction, floor, at, part, results },
});

/// The result of a single command.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SingleResult {
    pub result: ReplyBuf,
    /// Something had expired of the key: in the entry its deletion comes before the command's effect.
    pub expired: bool,
}
wire_struct!(SingleResult { result, expired });

/// A transaction that the shard has voted for.
#[derive(Clone, Debug)]
pub(super) struct Prepared {
    pub at: Timestamp,
    pub part: Arc<Part>,
}

/// How a transaction ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Outcome {
    Committed { at: Timestamp, part: Arc<Part> },
    Aborted,
}

impl Outcome {
    /// The commit timestamp, if it committed.
    pub(super) fn at(&self) -> Option<Timestamp> {
        match self {
            Outcome::Committed { at, .. } => Some(*at),
            Outcome::Aborted => None,
        }
    }
}

/// What an applied entry did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Prepared(TransactionId),
    Ended(TransactionId),
}

/// What a leader made of an operation.
#[derive(Clone, Debug, PartialEq)]
pub struct Evaluation {
    /// The result, as the client will see it.
    pub result: ReplyBuf,
    /// The effect to commit, in its binary form.
    pub effect: Option<Box<[u8]>>,
    /// The log's index of the key's newest effect; 0 for an absent key.
    pub version: u64,
    /// The first deadline of the key or of a field, in milliseconds since 1970, 0 for none: the transaction must commit below
    /// it.
    pub expires_at: u64,
    /// The deletion of what had expired of the key, in its binary form: it must commit with the transaction
    /// (Corrections 69).
    pub expiry: Option<Box<[u8]>>,
}
wire_struct!(Evaluation { result, effect, version, expires_at, expiry });

/// An operation to evaluate.
pub(super) struct Question<'q> {
    pub key: &'q [u8],
    pub operation: &'q Operation<'q>,
    /// The transaction's own effects on the key so far, in their binary form, in order.
    pub own: &'q [Box<[u8]>],
    /// The transaction's time for expiries.
    pub now_millis: u64,
}

impl<'q> Question<'q> {
    fn effects(&self) -> Result<Vec<Effect<'q>>, Malformed> {
        self.own.iter().map(|bytes| Effect::decode(&mut Reader::new(bytes))).collect()
    }

    /// What the operation comes to on a state of this version, which may have expired.
    fn on(&self, cell: &Cell, version: u64, random: &mut Rng) -> Evaluation {
        let (mut result, now_millis) = (ReplyBuf::new(), self.now_millis);
        let (expiry, cell) = (cell.expiry(now_millis), cell.living(now_millis));
        let effect =
            prepare(&cell, self.operation, &mut Context { now_millis, random, site: None }, &mut result);
        let effect = effect.map(|effect| encoded(&effect));
        // The transaction's own deadlines count too: what it saw must be true when it commits.
        let (expires_at, expiry) = (cell.next_deadline(0), expiry.as_ref().map(encoded));
        Evaluation { result, effect, version, expires_at, expiry }
    }
}

/// What has expired is deleted before anything else is done.
fn put_first<'e>(own: &mut Vec<Effect<'e>>, expiry: Option<&Effect<'e>>) {
    if let Some(expiry) = expiry
        && own.first() != Some(expiry)
    {
        own.insert(0, expiry.clone());
    }
}

/// See the module.
pub(super) struct Machine {
    seed: HashSeed,
    store: Store<u64>,
    absent: Absent,
    prepared: BTreeMap<TransactionId, Prepared>,
    outcomes: BTreeMap<TransactionId, Outcome>,
    /// Of those, the results of single commands.
    results: BTreeMap<TransactionId, Vec<SingleResult>>,
    /// By life of a coordinator: it asks for nothing below this any more.
    floors: BTreeMap<(ProcessId, Incarnation), u64>,
    /// The greatest timestamp of any entry.
    latest: Timestamp,
    /// The entry that was applied last.
    applied: u64,
    /// The last entry that created or removed a key.
    keys_changed: u64,
    events: Vec<Event>,
    /// For checkers: every commit of this life, including those that it began with, whether a coordinator may still ask
    /// for it or not.
    committed: Option<BTreeMap<TransactionId, Outcome>>,
}

impl Machine {
    /// An empty one; with `claims` it remembers every commit for checkers.
    pub(super) fn new(seed: HashSeed, claims: bool) -> Self {
        Machine {
            seed,
            store: Store::new(seed, 0),
            absent: Absent::default(),
            prepared: BTreeMap::new(),
            outcomes: BTreeMap::new(),
            results: BTreeMap::new(),
            floors: BTreeMap::new(),
            latest: Timestamp::ZERO,
            applied: 0,
            keys_changed: 0,
            events: Vec::new(),
            committed: claims.then(BTreeMap::new),
        }
    }

    pub(super) fn store(&self) -> &Store<u64> {
        &self.store
    }

    /// Tracks the use of keys, or no more.
    pub(super) fn track(&mut self, tracked: Option<Tracked>) {
        self.store.track(tracked);
    }

    pub(super) fn prepared(&self) -> &BTreeMap<TransactionId, Prepared> {
        &self.prepared
    }

    pub(super) fn outcomes(&self) -> &BTreeMap<TransactionId, Outcome> {
        &self.outcomes
    }

    /// What single commands that have ended came to, and when; `None` of any other transaction.
    pub(super) fn results(&self, id: TransactionId) -> Option<(Timestamp, Vec<Evaluation>)> {
        let Outcome::Committed { at, part } = self.outcomes.get(&id)? else { return None };
        let mut invocations = part.invocations.iter();
        let evaluation = |SingleResult { result, expired }: &SingleResult| {
            let mut next = || invocations.next().and_then(|invoked| invoked.effect.clone());
            let expiry = if *expired { next() } else { None };
            Evaluation { result: result.clone(), effect: next(), version: 0, expires_at: 0, expiry }
        };
        Some((*at, self.results.get(&id)?.iter().map(evaluation).collect()))
    }

    /// The commits that checkers get.
    pub(super) fn committed(&self) -> &BTreeMap<TransactionId, Outcome> {
        self.committed.as_ref().unwrap_or(&self.outcomes)
    }

    pub(super) fn latest(&self) -> Timestamp {
        self.latest
    }

    /// The events of entries applied since the last call.
    pub(super) fn take_events(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.events)
    }

    /// True if the transaction's coordinator asks for nothing about it any more.
    pub(super) fn is_over(&self, id: TransactionId) -> bool {
        self.floors.get(&(id.process, id.incarnation)).is_some_and(|floor| id.number < *floor)
    }

    /// The version of a key: the entry that changed it last. Of one that has been absent for long, a later one.
    pub(super) fn version(&self, key: &[u8]) -> u64 {
        let record = self.store.record(self.store.hash(key), key);
        record.map_or_else(|| self.absent.version(key), mvcc::Record::stamp)
    }

    /// The last entry that created or removed a key.
    pub(super) fn keys_changed(&self) -> u64 {
        self.keys_changed
    }

    /// True if an effect in the state that there is would create the key, or might remove it.
    pub(super) fn may_come_or_go(&self, key: &[u8], effect: &Effect<'_>) -> bool {
        match self.store.record(self.store.hash(key), key) {
            Some(_) => effect.may_remove(),
            None => effect.may_create(),
        }
    }

    /// Looks at which keys there are: what it saw is named by the entry that was applied last.
    pub(super) fn look(&mut self, question: &KeysetReadRequest) -> Result<KeysetRead, Malformed> {
        look_at(&mut self.store, question, observed(self.applied))
    }

    /// True if something of the key has a deadline that has passed, behind what is on its way.
    pub(super) fn is_expired(
        &mut self,
        key: &[u8],
        unapplied: Option<&mut UnappliedEffects>,
        now_millis: u64,
    ) -> bool {
        let deadline = self.deadline(key, unapplied);
        deadline.is_ok_and(|deadline| deadline != 0 && deadline <= now_millis)
    }

    /// The first deadline of the key or of a field, likewise, in milliseconds since 1970; 0 for none.
    pub(super) fn deadline(
        &mut self,
        key: &[u8],
        unapplied: Option<&mut UnappliedEffects>,
    ) -> Result<u64, Malformed> {
        if unapplied.is_some() {
            return self.behind(key, unapplied, &[], |cell| cell.next_deadline(0));
        }
        let record = self.store.record(self.store.hash(key), key);
        Ok(record.map_or(0, |record| record.cell().next_deadline(0)))
    }

    /// A key that has a deadline and that the part writes without having been evaluated there: the coordinator
    /// evaluates it, since the commit's timestamp says whether the key has expired.
    pub(super) fn ignored_deadline<'p>(
        &mut self,
        part: &'p Part,
        unapplied: &mut Unapplied,
    ) -> Option<&'p [u8]> {
        let mut blind = part.invocations.iter().filter(|invoked| invoked.ignores_expiry());
        let ignored = blind.find(|invoked| {
            let deadline = self.deadline(&invoked.key, unapplied.on(&invoked.key));
            deadline.is_ok_and(|deadline| deadline != 0)
        });
        ignored.map(|invoked| &*invoked.key)
    }

    /// Evaluates an operation on the newest state, with what is in the log and not applied, and the asker's own effects.
    /// Whether the key has expired that state shows.
    pub(super) fn evaluate(
        &mut self,
        question: &Question<'_>,
        mut unapplied: Option<&mut UnappliedEffects>,
        random: &mut Rng,
    ) -> Result<Evaluation, Malformed> {
        self.store.touch(self.store.hash(question.key), question.now_millis);
        let version =
            unapplied.as_ref().map_or_else(|| self.version(question.key), |unapplied| unapplied.version());
        let mut own = question.effects()?;
        if own.is_empty() {
            return self.behind(question.key, unapplied, &own, |cell| question.on(cell, version, random));
        }
        let of = |cell: &Cell| cell.expiry(question.now_millis);
        let expiry = self.behind(question.key, unapplied.as_deref_mut(), &[], of)?;
        put_first(&mut own, expiry.as_ref());
        let found = self.behind(question.key, unapplied, &own, |cell| question.on(cell, version, random))?;
        Ok(Evaluation { expiry: expiry.as_ref().map(encoded), ..found })
    }

    /// The same, and of operations of later steps, each behind those before it.
    pub(super) fn evaluate_all(
        &mut self,
        question: &Question<'_>,
        then: &[(u32, Box<[u8]>)],
        mut unapplied: Option<&mut UnappliedEffects>,
        random: &mut Rng,
    ) -> Result<(Evaluation, Vec<(u32, Evaluation)>), Malformed> {
        let first = self.evaluate(question, unapplied.as_deref_mut(), random)?;
        if then.is_empty() {
            return Ok((first, Vec::new()));
        }
        let mut own = question.effects()?;
        let expiry =
            first.expiry.as_ref().map(|bytes| Effect::decode(&mut Reader::new(bytes))).transpose()?;
        put_first(&mut own, expiry.as_ref());
        let mut state = self.behind(question.key, unapplied, &own, Cell::clone)?;
        let mut behind: Vec<(u32, Evaluation)> = Vec::with_capacity(then.len());
        for (step, operation) in then {
            let before = behind.last().map_or(&first, |(_, evaluation)| evaluation);
            if let Some(effect) = &before.effect {
                apply::<false>(&mut state, &Effect::decode(&mut Reader::new(effect))?);
            }
            let operation = Operation::decode(&mut Reader::new(operation))?;
            let found = Question { operation: &operation, ..*question }.on(&state, first.version, random);
            behind.push((*step, Evaluation { expiry: first.expiry.clone(), ..found }));
        }
        Ok((first, behind))
    }

    /// Shows a key's state behind what is on its way, and behind these effects.
    fn behind<R>(
        &mut self,
        key: &[u8],
        unapplied: Option<&mut UnappliedEffects>,
        own: &[Effect<'_>],
        read: impl FnOnce(&Cell) -> R,
    ) -> Result<R, Malformed> {
        let hash = self.store.hash(key);
        let Some(unapplied) = unapplied else {
            return Ok(self.store.with_state(hash, key, |_| true, own, read));
        };
        let applied = self.store.record(hash, key).map_or(&Cell::ABSENT, mvcc::Record::cell);
        match unapplied.state(applied)? {
            Some(state) if own.is_empty() => Ok(read(state)),
            Some(state) => {
                let mut state = state.clone();
                own.iter().for_each(|effect| drop(apply::<false>(&mut state, effect)));
                Ok(read(&state))
            }
            None => {
                let mut before = unapplied.effects()?;
                before.extend_from_slice(own);
                Ok(self.store.with_state(hash, key, |_| true, &before, read))
            }
        }
    }

    fn commit(&mut self, index: u64, part: &Part) {
        let flushed_after = part.keyset.as_ref().and_then(|keyset| keyset.flushed_after);
        if flushed_after.is_some() {
            self.flush(index);
        }
        // By key: whether this entry is news to it, and whether it existed.
        let mut before: BTreeMap<&[u8], (bool, bool)> = BTreeMap::new();
        for invoked in part.invocations.iter().skip(flushed_after.unwrap_or(0) as usize) {
            let Ok(Some(effect)) = invoked.effect() else { continue };
            let hash = self.store.hash(&invoked.key);
            // A state that was taken beside traffic may hold this entry already.
            let stamp = self.store.record(hash, &invoked.key).map(mvcc::Record::stamp);
            let known = (stamp.unwrap_or(0) < index, stamp.is_some());
            if before.entry(&invoked.key).or_insert(known).0 {
                self.store.commit(hash, &invoked.key, index, &effect);
                self.store.touch(hash, self.latest.wall().as_millis());
            }
        }
        for (key, (is_news, existed)) in before {
            let exists = self.store.record(self.store.hash(key), key).is_some();
            match exists {
                true => self.absent.present(key),
                false => self.absent.deleted(key, index),
            }
            if !is_news || exists != existed {
                self.keys_changed = self.keys_changed.max(index);
            }
        }
    }

    /// Deletes every key.
    fn flush(&mut self, index: u64) {
        let (mut keys, mut cursor): (Vec<Box<[u8]>>, u64) = (Vec::new(), 0);
        loop {
            cursor = self.store.scan(cursor, |key, record| {
                // A state that was taken beside traffic may hold later entries already.
                if record.stamp() < index {
                    keys.push(key.into());
                }
            });
            if cursor == 0 {
                break;
            }
        }
        // A place of the index may be visited twice.
        keys.sort_unstable();
        keys.dedup();
        for key in keys {
            self.store.commit(self.store.hash(&key), &key, index, &Effect::DELETE);
            self.absent.deleted(&key, index);
        }
        self.keys_changed = self.keys_changed.max(index);
    }

    /// Notes how a transaction ended, for as long as somebody may ask.
    fn end(&mut self, id: TransactionId, outcome: Outcome) {
        if let (Some(committed), Outcome::Committed { .. }) = (&mut self.committed, &outcome) {
            committed.insert(id, outcome.clone());
        }
        if !self.is_over(id) {
            self.outcomes.insert(id, outcome);
        }
        self.events.push(Event::Ended(id));
    }

    fn raise_floor(&mut self, id: TransactionId, floor: u64) {
        let known = self.floors.entry((id.process, id.incarnation)).or_default();
        if floor <= *known {
            return;
        }
        *known = floor;
        let first = TransactionId { number: 0, ..id };
        let over: Vec<TransactionId> =
            self.outcomes.range(first..TransactionId { number: floor, ..id }).map(|(id, _)| *id).collect();
        for id in over {
            self.outcomes.remove(&id);
            self.results.remove(&id);
        }
    }

    fn perform(&mut self, index: u64, entry: Entry) {
        match entry {
            Entry::Prepare { transaction, floor, at, part } => {
                self.latest = self.latest.max(at);
                if !self.is_over(transaction) && !self.outcomes.contains_key(&transaction) {
                    self.prepared.insert(transaction, Prepared { at, part: Arc::new(part) });
                    self.events.push(Event::Prepared(transaction));
                } else {
                    self.events.push(Event::Ended(transaction));
                }
                self.raise_floor(transaction, floor);
            }
            Entry::Commit { transaction, floor, at, part } => {
                self.latest = self.latest.max(at);
                let known = self.outcomes.contains_key(&transaction);
                let prepared = self.prepared.remove(&transaction).map(|prepared| prepared.part);
                let alone = part.filter(|_| !known && !self.is_over(transaction)).map(Arc::new);
                if let Some(part) = prepared.or(alone) {
                    self.commit(index, &part);
                    self.end(transaction, Outcome::Committed { at, part });
                } else {
                    self.events.push(Event::Ended(transaction));
                }
                self.raise_floor(transaction, floor);
            }
            Entry::Run { transaction, floor, at, part, results } => {
                self.run(index, transaction, (at, part, results));
                self.raise_floor(transaction, floor);
            }
            Entry::Abort { transaction, floor } => {
                self.prepared.remove(&transaction);
                if !self.outcomes.contains_key(&transaction) {
                    self.end(transaction, Outcome::Aborted);
                } else {
                    self.events.push(Event::Ended(transaction));
                }
                self.raise_floor(transaction, floor);
            }
        }
    }

    /// Single commands, unless it is known how they ended.
    fn run(
        &mut self,
        index: u64,
        id: TransactionId,
        (at, part, results): (Timestamp, Part, Vec<SingleResult>),
    ) {
        self.latest = self.latest.max(at);
        if self.is_over(id) || self.outcomes.contains_key(&id) {
            self.events.push(Event::Ended(id));
            return;
        }
        self.commit(index, &part);
        self.results.insert(id, results);
        self.end(id, Outcome::Committed { at, part: Arc::new(part) });
    }

    /// The tables that entries are judged by, as one piece.
    fn save_tables(&self, chunk: &mut Vec<u8>) {
        (self.latest, self.applied, self.keys_changed).encode(chunk);
        self.absent.encode(chunk);
        self.floors.len().encode(chunk);
        for ((process, incarnation), floor) in &self.floors {
            (*process, *incarnation, *floor).encode(chunk);
        }
        self.prepared.len().encode(chunk);
        for (id, prepared) in &self.prepared {
            (*id, prepared.at).encode(chunk);
            prepared.part.encode(chunk);
        }
        self.outcomes.len().encode(chunk);
        for (id, outcome) in &self.outcomes {
            (*id, outcome.at()).encode(chunk);
            if let Outcome::Committed { part, .. } = outcome {
                part.encode(chunk);
            }
        }
        self.results.len().encode(chunk);
        for (id, results) in &self.results {
            id.encode(chunk);
            results.encode(chunk);
        }
    }

    fn restore_tables(&mut self, input: &mut Reader<'_>) -> Result<(), Malformed> {
        (self.latest, self.applied, self.keys_changed) = Wire::decode(input)?;
        self.absent = Absent::decode(input)?;
        for _ in 0..input.count()? {
            let (process, incarnation, floor) = Wire::decode(input)?;
            self.floors.insert((process, incarnation), floor);
        }
        for _ in 0..input.count()? {
            let (id, at) = Wire::decode(input)?;
            self.prepared.insert(id, Prepared { at, part: Arc::new(Part::decode(input)?) });
        }
        for _ in 0..input.count()? {
            let (id, at): (TransactionId, Option<Timestamp>) = Wire::decode(input)?;
            let outcome = match at {
                Some(at) => Outcome::Committed { at, part: Arc::new(Part::decode(input)?) },
                None => Outcome::Aborted,
            };
            if let (Some(committed), Outcome::Committed { .. }) = (&mut self.committed, &outcome) {
                committed.insert(id, outcome.clone());
            }
            self.outcomes.insert(id, outcome);
        }
        // Tables of earlier versions end here.
        let results = if input.is_empty() { 0 } else { input.count()? };
        for _ in 0..results {
            let (id, results) = Wire::decode(input)?;
            self.results.insert(id, results);
        }
        Ok(())
    }
}

impl Application for Machine {
    fn apply(&mut self, index: u64, entry: &[u8]) {
        let entry = Entry::decode(&mut Reader::new(entry));
        debug_assert!(entry.is_ok(), "entries are made by the same software");
        self.applied = index;
        if let Ok(entry) = entry {
            self.perform(index, entry);
        }
    }

    /// The tables first, all of them at one moment; then the store, as it is when it is visited.
    fn save(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 {
            chunk.push(0);
            self.save_tables(chunk);
            return Some(1);
        }
        chunk.push(1);
        let mut place = cursor - 1;
        loop {
            place = self.store.scan(place, |key, record| {
                put_bytes(chunk, key);
                record.stamp().encode(chunk);
                let mut cell = Vec::new();
                record.cell().encode(&mut cell);
                put_bytes(chunk, &cell);
            });
            if place == 0 {
                return None;
            }
            if chunk.len() >= PIECE_BYTES {
                return Some(place + 1);
            }
        }
    }

    fn clear(&mut self) {
        // Freed at once: it happens only to a replica that has lagged far behind, before it serves.
        *self = Machine { committed: self.committed.take(), ..Machine::new(self.seed, false) };
    }

    fn restore(&mut self, chunk: &[u8]) -> Result<(), Malformed> {
        let mut input = Reader::new(chunk);
        if input.byte()? == 0 {
            return self.restore_tables(&mut input);
        }
        while !input.is_empty() {
            let key = input.bytes()?;
            let stamp = u64::decode(&mut input)?;
            let cell = Cell::decode(&mut Reader::new(input.bytes()?))?;
            self.store.restore(key, stamp, cell);
        }
        Ok(())
    }
}
