//! A replica's copy of a shard: the store, the prepared transactions, and validation. IR's application.

mod contention;
mod keyset;
mod mutants;
mod prefetch;
mod reading;
mod revalidation;

use super::keys::{KeyState, Keys};
use super::operation::{Decision, Part, Prepare, Transactions, Vote};
use super::options::Isolation;
use super::record::{KeyCell, KeyStamps, KeysetStamps, Record, put};
use crate::ir::{self, Application};
use crate::part::{Invoked, encoded};
use crate::tapir::order::{CommittedRead, validate_in_order};
use crate::validation::{Access, ModeStamps, Observed, Stamp, Undecided, Verdict, overwrites, validate};
use crate::{Mutant, Mutants};
use datatypes::{Aspect, Cell, Effect};
use keyset::Keyset;
use mutants::BoundedSubtraction;
use mvcc::{CompactKey, DeferredDrop, Store, Tracked};
pub(super) use prefetch::{KeyUse, KeyUses};
use protocol::{Contention, ContentionStats};
pub(super) use reading::Question;
use std::collections::{BTreeMap, BTreeSet};
use types::{HashSeed, Incarnation, KeyHash, Malformed, ProcessId, Reader, Timestamp, TransactionId};

/// See the module.
pub(super) struct Shard {
    store: Store<Stamp>,
    keys: Keys,
    /// Every committed effect at or below it is here.
    closed: Stamp,
    /// The greatest timestamp that is believed.
    latest: Timestamp,
    prepared: BTreeMap<TransactionId, Prepare>,
    /// Which keys there are, as an object of its own.
    keyset: Keyset,
    isolation: Isolation,
    /// What may be forgotten by others.
    let_go: Stamp,
    /// A vote that succeeded may be judged again by a replica that has missed the proposal.
    is_wide: bool,
    /// While a vote is judged again: what stands in its way by its stamp, on its keys.
    again: Option<revalidation::CommittedAbove>,
    /// Who is in whose way.
    contention: ContentionStats,
    mutants: Mutants,
}

impl Shard {
    pub(super) fn new(seed: HashSeed, isolation: Isolation, mutants: Mutants) -> Self {
        let mut store = Store::new(seed, Stamp::ZERO);
        // Commits arrive out of order: the store retains histories.
        store.set_horizon(Some(Stamp::ZERO));
        Shard {
            store,
            keys: Keys::new(seed),
            closed: Stamp::ZERO,
            latest: Timestamp::MAX,
            prepared: BTreeMap::new(),
            keyset: Keyset::default(),
            isolation,
            let_go: Stamp::ZERO,
            is_wide: false,
            again: None,
            contention: ContentionStats::default(),
            mutants,
        }
    }

    pub(super) fn store(&self) -> &Store<Stamp> {
        &self.store
    }

    /// Tracks the use of keys, or no more.
    pub(super) fn track(&mut self, tracked: Option<Tracked>) {
        self.store.track(tracked);
    }

    /// Refuses timestamps above this one from now on.
    pub(super) fn set_latest(&mut self, latest: Timestamp) {
        self.latest = latest;
    }

    /// Folds histories that no snapshot needs any more.
    pub(super) fn tidy(&mut self, count: usize) {
        self.store.fold_some(count);
    }

    /// What is left to be freed when this state is not needed any more.
    pub(super) fn into_deferred_drop(self) -> DeferredDrop<Stamp> {
        self.store.into_deferred_drop()
    }

    /// The stamp below which effects are part of the cells.
    pub(super) fn horizon(&self) -> Stamp {
        self.store.horizon().unwrap_or(Stamp::ZERO)
    }

    pub(super) fn mutants(&self) -> Mutants {
        self.mutants
    }

    /// Makes an empty state one that begins at a horizon: a key that the transfer does not mention has been absent
    /// since some moment at or below the horizon, and a transaction that saw less of it may have seen it alive.
    pub(super) fn begin_at(&mut self, horizon: Stamp) {
        self.store.set_horizon(Some(horizon.max(self.horizon())));
        if !self.mutants.has(Mutant::ForgetAbsence) {
            self.store.clear(horizon);
        }
    }

    /// The stamps that validation retains of the keyset, sent before the keys.
    pub(super) fn tell_keyset(&self) -> KeysetStamps {
        self.keyset.stamps()
    }

    /// Takes it.
    pub(super) fn take_keyset(&mut self, stamps: KeysetStamps) {
        self.keyset.take(stamps);
    }

    /// Appends keys of one place of the index to a piece of the state; returns the next place, 0 at the end. The
    /// horizon stays while the replica sends the pieces of one state.
    pub(super) fn tell_keys(&mut self, cursor: u64, piece: &mut Vec<u8>) -> u64 {
        let mut keys: Vec<CompactKey> = Vec::new();
        let next = self.store.scan_all(cursor, |key| keys.push(CompactKey::new(key)));
        let horizon = self.horizon();
        for key in &keys {
            let hash = self.store.hash(key);
            let mut cell = Vec::new();
            let encode = |state: &Cell| {
                if state.value.is_some() {
                    state.encode(&mut cell);
                }
            };
            self.store.with_state(hash, key, |stamp| *stamp <= horizon, &[], encode);
            let effects = self.store.effects(hash, key).map(|(stamp, effect)| (stamp, encoded(&effect)));
            let effects = effects.collect();
            put(piece, &Record::Key(KeyCell { key: (**key).into(), cell: cell.into(), effects }));
        }
        next
    }

    /// Appends what validation keeps of the keys of one place of their index to a piece of the state; returns the next
    /// place, 0 at the end.
    pub(super) fn tell_stamps(&self, cursor: u64, piece: &mut Vec<u8>) -> u64 {
        self.keys.scan(cursor, |state| {
            if state.is_stamped() {
                let (modes, newest, closed) = (state.modes.clone(), state.newest, state.closed);
                let (key, waiting) = (state.name().into(), state.waiting.clone());
                let reads = state.reads.clone();
                put(piece, &Record::Stamps(KeyStamps { key, modes, newest, closed, waiting, reads }));
            }
        })
    }

    /// Takes a key as a piece tells it, once.
    pub(super) fn take_key(&mut self, received: &KeyCell) -> Result<(), Malformed> {
        let hash = self.store.hash(&received.key);
        if !received.cell.is_empty() {
            let cell = Cell::decode(&mut Reader::new(&received.cell))?;
            self.store.restore(&received.key, self.horizon(), cell);
        }
        let mut held = (Stamp::ZERO, false);
        for (stamp, bytes) in &received.effects {
            if held.0 != *stamp {
                held = (*stamp, self.store.has_effect(hash, &received.key, *stamp));
            }
            if !held.1 {
                let effect = Effect::decode(&mut Reader::new(bytes))?;
                self.store.commit(hash, &received.key, *stamp, &effect);
            }
        }
        Ok(())
    }

    /// Takes what validation keeps of a key as a piece tells it.
    pub(super) fn take_stamps(&mut self, received: KeyStamps) {
        if self.keys.get(&received.key).is_none_or(|state| !state.is_stamped()) {
            let state = self.keys.stamped(&received.key, received.newest);
            (state.modes, state.closed, state.waiting) = (received.modes, received.closed, received.waiting);
            state.reads = received.reads;
        }
    }

    /// The transactions prepared here and undecided.
    pub(super) fn prepared(&self) -> &BTreeMap<TransactionId, Prepare> {
        &self.prepared
    }

    /// At least the greatest stamp of an effect that is held of the key: what is not above it needs no look at the
    /// history.
    fn newest_effect(&self, hash: KeyHash, key: &[u8]) -> Stamp {
        self.store.record(hash, key).map_or(Stamp::ZERO, |record| record.stamp())
    }

    /// What others have prepared on a key.
    fn prepared_on<'s>(
        &'s self,
        key: &'s [u8],
        except: TransactionId,
    ) -> impl Iterator<Item = Undecided<'s>> {
        let ids = self.keys.get(key).map_or(&[][..], KeyState::prepared).iter();
        let ids = ids.filter(move |id| **id != except);
        ids.filter_map(|id| Some((*id, self.prepared.get(id)?))).flat_map(move |(transaction, prepared)| {
            prepared.part.undecided_on(key, Stamp { at: prepared.at, transaction })
        })
    }

    /// A younger transaction that a proposal has to wait for, if only such stand in its way.
    pub(super) fn waits_for(&mut self, id: TransactionId, operation: &Prepare) -> Option<TransactionId> {
        let (mut behind, mut at) = (None, 0);
        let held = |key: &[u8]| self.keys.get(key).map_or(&[][..], KeyState::prepared);
        if operation
            .part
            .invocations
            .iter()
            .all(|invoked| held(&invoked.key).iter().all(|other| *other == id))
        {
            return None;
        }
        for (index, invoked) in operation.part.invocations.iter().enumerate() {
            let access = invoked.access().ok()?;
            for other in self.prepared_on(&invoked.key, id).filter(|other| other.is_in_the_way_of(&access)) {
                let transaction = other.stamp.transaction;
                if self.prepared.get(&transaction).is_none_or(|held| held.age <= operation.age) {
                    return None;
                }
                (behind, at) = (Some(transaction), index);
            }
        }
        let stamp = Stamp { at: operation.at, transaction: id };
        let behind = behind.filter(|_| self.judge(stamp, &operation.part).0 == Verdict::Abstain)?;
        self.note_contention(id, &operation.part, at, Contention::Wait);
        Some(behind)
    }

    /// Whether what a transaction without effects observed is current: its verdict, were it to commit last of all.
    pub(super) fn check(&mut self, transaction: TransactionId, part: &Part) -> (Vote, Option<u32>) {
        let (verdict, hint) = self.judge(Stamp { at: Timestamp::MAX, transaction }, part);
        self.note_refusal(transaction, part, verdict, hint);
        (vote(verdict), hint)
    }

    /// The verdict over a whole part, and the index of the invocation that decided it.
    fn judge(&mut self, stamp: Stamp, part: &Part) -> (Verdict, Option<u32>) {
        let mut worst = (Verdict::Ok, None);
        // The last one of several on a key that have observed the same, if that is everything that is here.
        let mut complete: Option<&Invoked> = None;
        for (index, invoked) in part.invocations.iter().enumerate() {
            let same = |other: &&Invoked| other.key == invoked.key && other.observed == invoked.observed;
            let known = complete.filter(same).is_some();
            let again = part.invocations.get(index + 1).filter(same).is_some();
            complete = (again && (known || self.is_complete(invoked))).then_some(invoked);
            let verdict = match invoked.access() {
                // The coordinator evaluates it: its stamp then says whether the key has expired.
                Ok(_) if invoked.ignores_expiry() && self.has_deadline(&invoked.key) => Verdict::Abort,
                Ok(access) if self.saw_too_little(&invoked.key, &access) => Verdict::Abort,
                Ok(access) => {
                    let against = self.judge_against_keyset(stamp, &invoked.key, &access);
                    let take = self.bounded(part, &invoked.key);
                    self.judge_access(stamp, &invoked.key, &access, take, known).max(against)
                }
                Err(_) => Verdict::Abort,
            };
            if verdict > worst.0 {
                worst = (verdict, Some(index as u32));
            }
        }
        if let Some(keyset) = &part.keyset {
            let verdict = self.judge_keyset(stamp, part, keyset);
            if verdict > worst.0 {
                worst = (verdict, None);
            }
        }
        worst
    }

    fn has_deadline(&self, key: &[u8]) -> bool {
        let record = self.store.record(self.store.hash(key), key);
        record.is_some_and(|record| record.cell().next_deadline(0) != 0)
            && !self.mutants.has(Mutant::BlindWritesIgnoreDeadlines)
    }

    /// Its verdict; `complete` if it is known to have observed all effects on the key.
    fn judge_access(
        &self,
        stamp: Stamp,
        key: &[u8],
        access: &Access<'_>,
        take: Option<BoundedSubtraction>,
        complete: bool,
    ) -> Verdict {
        if self.isolation == Isolation::Serializable {
            let committed = self.store.effects(self.store.hash(key), key).rev();
            let prepared = self.prepared_on(key, stamp.transaction);
            let reads = self.keys.get(key).map_or(&[][..], |state| &state.reads);
            return validate_in_order(stamp, access, committed, prepared, reads);
        }
        let fresh = ModeStamps::default();
        let modes = self.keys.get(key).map_or(&fresh, |state| &state.modes);
        let modes = self.again.as_ref().map_or(modes, |above| above.on(stamp, key, access, modes));
        let newest = access.observed.map_or(Stamp::ZERO, Observed::newest);
        let absent = self.mutants.has(Mutant::AbsentReadsPass) && newest == Stamp::ZERO;
        let counts = |other: Stamp| !self.mutants.has(Mutant::TrustStamps) || other < stamp;
        let (hash, base) = (self.store.hash(key), access.observed.map_or(Stamp::ZERO, Observed::base));
        // What has been seen is looked at too where something is undecided beside it.
        let complete = complete && self.prepared_on(key, stamp.transaction).next().is_none();
        let missing =
            !complete && !access.invocation.observation.is_nothing() && self.newest_effect(hash, key) > base;
        let committed = missing.then(|| self.store.effects(hash, key).rev()).into_iter().flatten();
        let missed = |effect: &Effect<'_>| take.is_none_or(|take| !self.fits_after(take, effect, key));
        let committed = committed.filter(|(other, effect)| counts(*other) && !absent && missed(effect));
        let conflicts =
            |other: Stamp| take.is_none_or(|take| !self.fits_with_prepared(take, other.transaction, key));
        let prepared = self.prepared_on(key, stamp.transaction);
        let prepared = prepared.filter(|other| counts(other.stamp) && conflicts(other.stamp));
        let above_reads = Stamp { at: newest.at.next(), ..stamp };
        let lenient = self.mutants.has(Mutant::StampBelowReads);
        let stamp = if lenient { stamp.max(above_reads) } else { stamp };
        validate(stamp, access, committed, prepared, modes)
    }

    /// True if effects may be folded into the cell that are above what was observed as a whole, here or at another
    /// replica that judges the same vote again: the replica no longer knows which of them were observed. Where others
    /// may commute with what was observed, that replica may take one that comes yet for one of these.
    fn saw_too_little(&self, key: &[u8], access: &Access<'_>) -> bool {
        let (observation, base) =
            (&access.invocation.observation, access.observed.map_or(Stamp::ZERO, Observed::base));
        if observation.is_nothing() || base >= self.oldest() {
            return false;
        }
        let commutes = base >= self.horizon() && observation.aspect != Some(Aspect::Whole);
        commutes || self.store.stamp(self.store.hash(key), key) > base
    }

    /// Where what has ended may be forgotten, here or, when a vote is given, at another replica that judges it again.
    pub(super) fn oldest(&self) -> Stamp {
        let elsewhere = self.is_wide && !self.keyset.is_again();
        if elsewhere { self.horizon().max(self.let_go) } else { self.horizon() }
    }

    /// Promises what an earlier state has promised.
    pub(super) fn promise_as(&mut self, earlier: &Shard) {
        (self.let_go, self.is_wide) = (earlier.let_go, earlier.is_wide);
    }

    /// Tells how many replicas the shard has.
    pub(super) fn set_members(&mut self, members: usize) {
        self.is_wide = ir::fast_quorum(members) < members;
    }

    fn commit(&mut self, stamp: Stamp, part: &Part) {
        // During recovery some keys may have the effects already: those of one transaction on a key come together.
        let held = |invoked: &&Invoked| {
            let (hash, key) = (self.store.hash(&invoked.key), &invoked.key);
            self.newest_effect(hash, key) >= stamp && self.store.has_effect(hash, key, stamp)
        };
        let again = self.mutants.has(Mutant::ExecuteAgain);
        let changes = part.invocations.iter().filter(|invoked| invoked.effect.is_some());
        let held = changes.filter(held).filter(|_| !again);
        let held: BTreeSet<&[u8]> = held.map(|invoked| &*invoked.key).collect();
        self.keyset.commit(stamp, part);
        let horizon = self.horizon();
        let flushed_after = part.keyset.as_ref().and_then(|keyset| keyset.flushed_after);
        let mut waits = false;
        for (index, invoked) in part.invocations.iter().enumerate() {
            if flushed_after == Some(index as u32) {
                self.flush(stamp, part, &held);
            }
            let Ok(access) = invoked.access() else { continue };
            let effect = access.invocation.effect.as_ref();
            if let Some(effect) = effect.filter(|_| !held.contains(&*invoked.key)) {
                let hash = self.store.hash(&invoked.key);
                self.store.commit(hash, &invoked.key, stamp, effect);
                self.store.touch(hash, stamp.at.wall().as_millis());
                self.flush_late(&invoked.key, stamp);
            }
            let state = self.keys.stamped(&invoked.key, stamp);
            let observation = &access.invocation.observation;
            if let Some(mode) = access.invocation.observed_mode() {
                state.modes.raise(mode, stamp);
            }
            if let (Isolation::Serializable, Some(operation), Some(observed)) =
                (self.isolation, &invoked.operation, access.observed)
            {
                state.reads.retain(|read| read.at > horizon);
                let (operation, observed) = ((**operation).into(), observed.clone());
                state.reads.push(CommittedRead { at: stamp, operation, observed });
            }
            if let Some(effect) = effect {
                state.modes.raise(effect.mode(), stamp);
                if overwrites(effect) {
                    state.closed = state.closed.max(stamp);
                }
            }
            if let (Some(Aspect::Whole), Some(observed)) = (&observation.aspect, access.observed) {
                let closed = state.closed.max(self.closed);
                if observed.base() <= closed && observed.above().is_empty() {
                    // Everything it saw is here: the usual case needs no place to wait.
                    state.closed = closed.max(stamp);
                } else {
                    state.waiting.push((stamp, observed.clone()));
                }
            }
            waits |= !state.waiting.is_empty();
        }
        if flushed_after.is_some_and(|after| after as usize >= part.invocations.len()) {
            self.flush(stamp, part, &held);
        }
        if waits {
            part.invocations.iter().for_each(|invoked| self.raise_closed(&invoked.key));
        }
    }

    /// Raises a key's closed base. A committed observer of the whole key saw every committed effect below its own
    /// stamp: of two conflicting transactions that committed, some replica validated one knowing the other's
    /// decision. So the base may rise to it as soon as everything it saw is here.
    fn raise_closed(&mut self, key: &[u8]) {
        let Some(state) = self.keys.get_mut(key).filter(|state| !state.waiting.is_empty()) else { return };
        let hash = self.store.hash(key);
        state.closed = state.closed.max(self.closed);
        loop {
            let closed = state.closed;
            state.waiting.retain(|(stamp, _)| *stamp > closed);
            let held = |stamp: &Stamp| *stamp <= closed || self.store.has_effect(hash, key, *stamp);
            let complete =
                |observed: &Observed| observed.base() <= closed && observed.above().iter().all(held);
            let next =
                state.waiting.iter().filter(|(_, observed)| complete(observed)).map(|(stamp, _)| *stamp);
            match next.max() {
                Some(stamp) => state.closed = stamp,
                None => break,
            }
        }
        if state.waiting.is_empty() {
            // There are many keys, and few of them have observers that wait.
            state.waiting = Vec::new();
        }
    }
}

fn vote(verdict: Verdict) -> Vote {
    match verdict {
        Verdict::Ok => Vote::PrepareOk,
        Verdict::Retry { above } => Vote::Retry { above },
        Verdict::Abstain => Vote::Abstain,
        Verdict::Abort => Vote::Abort,
    }
}

impl Application<Transactions> for Shard {
    fn execute_consensus(&mut self, group: TransactionId, operation: &Prepare) -> (Vote, Option<u32>) {
        if self.mutants.has(Mutant::SkipValidation) {
            return (Vote::PrepareOk, None);
        }
        if operation.at > self.latest {
            return (Vote::Early { latest: self.latest }, None);
        }
        let (verdict, hint) = self.judge(Stamp { at: operation.at, transaction: group }, &operation.part);
        self.note_refusal(group, &operation.part, verdict, hint);
        (vote(verdict), hint)
    }

    fn execute_again(
        &mut self,
        group: TransactionId,
        operation: &Prepare,
        ended: &[(TransactionId, &Decision)],
    ) -> Vote {
        if self.mutants.has(Mutant::SkipValidation) {
            return Vote::PrepareOk;
        }
        let stamp = Stamp { at: operation.at, transaction: group };
        let committed = ended.iter().filter_map(|(_, decision)| match decision {
            Decision::Commit { part, .. } => Some(&**part),
            Decision::Abort => None,
        });
        let prepared = self.prepared.values().map(|prepared| &*prepared.part);
        if revalidation::is_observed(stamp, committed.chain(prepared)) {
            return Vote::PrepareOk;
        }
        if !self.mutants.has(Mutant::RevalidateByModes) {
            self.again = Some(revalidation::CommittedAbove::new(stamp, &operation.part, ended));
        }
        self.keyset.set_again(true);
        let (verdict, _) = self.judge(stamp, &operation.part);
        self.keyset.set_again(false);
        self.again = None;
        vote(verdict)
    }

    fn hold(&mut self, group: TransactionId, operation: &Prepare) {
        self.release(group);
        for invoked in &operation.part.invocations {
            self.keys.hold(&invoked.key, group);
        }
        self.hold_keyset(group, &operation.part);
        self.prepared.insert(group, operation.clone());
    }

    fn release(&mut self, group: TransactionId) {
        let Some(prepared) = self.prepared.remove(&group) else { return };
        self.keyset.release(group);
        for invoked in &prepared.part.invocations {
            self.keys.release(&invoked.key, group);
        }
    }

    fn execute_inconsistent(&mut self, group: TransactionId, operation: &Decision) {
        self.release(group);
        if let Decision::Commit { at, part } = operation {
            self.commit(Stamp { at: *at, transaction: group }, part);
        }
    }

    fn needs(&self, operation: &Prepare) -> Timestamp {
        let looks = operation.part.invocations.iter().filter_map(|invoked| invoked.observed.as_ref());
        let looks = looks.chain(operation.part.keyset.iter().flat_map(|keyset| &keyset.observed));
        looks.map(|observed| before(observed.base())).fold(self.closed.at, Timestamp::min)
    }

    fn let_go(&mut self, up_to: Timestamp) {
        if up_to > Timestamp::ZERO {
            self.let_go = self.let_go.max(last_at(up_to));
        }
    }

    fn forgettable(&self, up_to: Timestamp) -> Timestamp {
        self.keyset.forgettable(up_to)
    }

    fn close(&mut self, base: Timestamp) {
        self.closed = self.closed.max(last_at(base));
    }

    fn trim(&mut self, trimmed: Timestamp) {
        let horizon = last_at(trimmed).max(self.horizon());
        self.store.set_horizon(Some(horizon));
        self.keys.trim(horizon.at);
        self.keyset.trim(horizon);
    }
}

/// The greatest timestamp all of whose stamps are at or below this one.
fn before(stamp: Stamp) -> Timestamp {
    if stamp == last_at(stamp.at) { stamp.at } else { Timestamp(stamp.at.0.saturating_sub(1)) }
}

/// The last stamp of a timestamp.
fn last_at(at: Timestamp) -> Stamp {
    let last =
        TransactionId { process: ProcessId(u16::MAX), incarnation: Incarnation(u32::MAX), number: u64::MAX };
    Stamp { at, transaction: last }
}

impl std::fmt::Debug for Shard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut names: BTreeSet<Box<[u8]>> = BTreeSet::new();
        let mut cursor = self.keys.scan(0, |state| names.extend([Box::from(state.name())]));
        while cursor != 0 {
            cursor = self.keys.scan(cursor, |state| names.extend([Box::from(state.name())]));
        }
        cursor = self.store.scan_all(0, |key| names.extend([Box::from(key)]));
        while cursor != 0 {
            cursor = self.store.scan_all(cursor, |key| names.extend([Box::from(key)]));
        }
        let keys = names.iter().map(|key| {
            let hash = self.store.hash(key);
            let effects: Vec<Stamp> = self.store.effects(hash, key).map(|(stamp, _)| stamp).collect();
            (key, self.keys.get(key), self.store.cell(hash, key, 0), effects)
        });
        let keys: Vec<_> = keys.collect();
        f.debug_struct("Shard")
            .field("keys", &keys)
            .field("prepared", &self.prepared)
            .field("keyset", &self.keyset)
            .finish_non_exhaustive()
    }
}
