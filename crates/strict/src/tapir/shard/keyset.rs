//! Which keys a shard has, as an object of its own (Corrections 78): KEYS, DBSIZE and SCAN inside transactions look at
//! it, FLUSHDB empties it, and whatever may create or remove a key changes it.
//!
//! Writes store nothing for it. A look names the exact effects it saw that may have created or removed a key, above a
//! closed base, like any other read (Corrections 65); replicas find those effects in the histories of the keys that
//! changed lately. That makes a look cost time in proportion to them, and all other transactions next to nothing.
//!
//! # The rule
//! A look and an effect on a key commute if the look saw the key exist and the effect never removes one, or if it saw no
//! such key and the effect never creates one. What the look saw of the key follows from the effects that it names, so
//! every replica that holds them all comes to the same answer, whatever else it holds; one that lacks some takes every
//! effect for a conflict. Effects that commute one by one with a look do so together: none of them removes what was
//! seen, or creates what was not. So the rule is pairwise, as Corrections 66 demands.
//!
//! A transaction sees its own effects as well. Where it takes from a key itself, by popping or removing members, whether
//! the key is still there afterwards depends on how much others have put into it: then nothing commutes with what it saw
//! of that key, if it existed. An own effect that overwrites leaves nothing that others could matter to.
//!
//! Stamps are stricter: a look is stamped above every effect that may create or remove a key and that some replica
//! judged before it, and the other way round, so that the order of stamps still is that of decisions. This holds for a
//! first vote only: in a new view a look that may have succeeded has to stay, though effects were accepted since.
//!
//! # FLUSHDB
//! One deletion of every key, at one stamp: a tombstone for the range of all keys. It conflicts with everything
//! undecided, and is stamped above everything committed. Effects with lower stamps that come later than it are deleted
//! on arrival. Like any overwriting effect it is a closed base by itself: for every key at once.
//!
//! Deadlines play no part: an expired key counts until a transaction that touches it deletes it (Corrections 69).

use super::{Question, Shard};
use crate::Mutant;
use crate::coordinator::{KeysetRead, KeysetReadRequest, look_at};
use crate::part::{KeysetAccess, Part, takes};
use crate::tapir::record::KeysetStamps;
use crate::validation::{Access, Observed, Stamp, Verdict};
use datatypes::Effect;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use types::{Malformed, Reader, Timestamp, TransactionId};

/// A key, a stamp, and the binary form of an effect.
type ChangedKey = (Box<[u8]>, Stamp, Box<[u8]>);

/// What validation keeps of the keyset.
#[derive(Debug, Default)]
pub(super) struct Keyset {
    /// The committed deletions of everything, as far as histories go back.
    flushes: BTreeSet<Stamp>,
    /// The greatest of all.
    flushed: Stamp,
    /// What committed looks have seen, as far as histories go back.
    looked: BTreeMap<Stamp, Vec<Observed>>,
    /// A vote is looked at again, in a new view.
    again: bool,
    /// The greatest stamp of anything committed.
    newest: Stamp,
    /// Undecided transactions that looked, and whether all that they saw was here when they were prepared.
    looks: BTreeMap<TransactionId, bool>,
    /// Undecided transactions that delete everything.
    flushing: BTreeSet<TransactionId>,
}

impl Keyset {
    /// Below it no effect on any key matters.
    pub fn flushed(&self) -> Stamp {
        self.flushed
    }

    /// True while another transaction that deletes everything is undecided.
    pub fn is_flushing(&self, except: TransactionId) -> bool {
        self.flushing.iter().any(|id| *id != except)
    }

    /// Notes a commit.
    pub fn commit(&mut self, stamp: Stamp, part: &Part) {
        self.newest = self.newest.max(stamp);
        if let Some(keyset) = part.keyset.as_ref().filter(|_| part.looks()) {
            self.looked.insert(stamp, keyset.observed.clone());
        }
    }

    /// The greatest timestamp up to this one below which no look's base lies that stays: votes may be judged again by what
    /// it saw.
    pub fn forgettable(&self, up_to: Timestamp) -> Timestamp {
        let stays = self.looked.range((Bound::Excluded(super::last_at(up_to)), Bound::Unbounded));
        let bases = stays.flat_map(|(_, seen)| seen).map(|observed| super::before(observed.base()));
        bases.fold(up_to, Timestamp::min)
    }

    /// Whether a vote is looked at again.
    pub fn is_again(&self) -> bool {
        self.again
    }

    /// Tells that.
    pub fn set_again(&mut self, again: bool) {
        self.again = again;
    }

    /// The verdict over a stamp against one that commutes with it.
    fn after(&self, stamp: Stamp, other: Stamp) -> Verdict {
        if self.again { Verdict::Ok } else { above(stamp, other) }
    }

    /// Deletions of everything above a stamp.
    pub fn flushes_above(&self, stamp: Stamp) -> Vec<Stamp> {
        if stamp >= self.flushed {
            return Vec::new();
        }
        self.flushes.range((Bound::Excluded(stamp), Bound::Unbounded)).copied().collect()
    }

    pub fn release(&mut self, transaction: TransactionId) {
        self.looks.remove(&transaction);
        self.flushing.remove(&transaction);
    }

    /// What happened up to here is part of every state.
    pub fn trim(&mut self, horizon: Stamp) {
        self.flushes = self.flushes.split_off(&horizon);
        self.looked = self.looked.split_off(&horizon);
    }

    pub fn stamps(&self) -> KeysetStamps {
        let flushes = self.flushes.iter().copied().collect();
        let looked = self.looked.iter().map(|(stamp, observed)| (*stamp, observed.clone())).collect();
        KeysetStamps { flushes, flushed: self.flushed, looked, newest: self.newest }
    }

    pub fn take(&mut self, stamps: KeysetStamps) {
        self.flushes.extend(stamps.flushes);
        self.flushed = self.flushed.max(stamps.flushed);
        self.looked.extend(stamps.looked);
        self.newest = self.newest.max(stamps.newest);
    }
}

/// True if an effect may change which keys there are.
fn changes_keyset(effect: &Effect<'_>) -> bool {
    effect.may_create() || effect.may_remove()
}

/// The verdict of a stamp that has to be above another one.
fn above(stamp: Stamp, other: Stamp) -> Verdict {
    if stamp <= other { Verdict::Retry { above: other.at } } else { Verdict::Ok }
}

impl Shard {
    /// The base that a look may name.
    fn keyset_base(&self) -> Stamp {
        self.closed.max(self.keyset.flushed)
    }

    /// Keys and stamps of the effects above a base that may have created or removed a key.
    fn keyset_effects(&self, base: Stamp) -> impl Iterator<Item = (&[u8], Stamp, Effect<'_>)> {
        self.keys.newer_than(base).into_iter().flat_map(move |state| {
            let key = state.name();
            let effects = self.store.effects(self.store.hash(key), key).rev();
            let above = effects.take_while(move |(stamp, _)| *stamp > base);
            above
                .filter(|(_, effect)| changes_keyset(effect))
                .map(move |(stamp, effect)| (key, stamp, effect))
        })
    }

    /// True if every effect that a look saw is here, and distinct from others.
    fn holds_all_of(&self, observed: &Observed) -> bool {
        let base = observed.base();
        if base < self.horizon() || base > self.keyset_base() {
            return false;
        }
        let held: BTreeSet<Stamp> = self.keyset_effects(base).map(|(_, stamp, _)| stamp).collect();
        observed.above().iter().all(|stamp| held.contains(stamp))
    }

    /// True if what a look saw of a key stays true whatever the effect finds there; see the module. `takes`: the
    /// looking transaction takes from the key itself. Called only where everything that the look saw is here.
    fn keeps(&mut self, observed: &Observed, takes: bool, key: &[u8], effect: &Effect<'_>) -> bool {
        if observed.base() < self.horizon() {
            return false;
        }
        let hash = self.store.hash(key);
        let existed = |cell: &datatypes::Cell| cell.value.is_some();
        match self.store.with_state(hash, key, |stamp| observed.contains(*stamp), &[], existed) {
            true => !effect.may_remove() && !takes,
            false => !effect.may_create(),
        }
    }

    /// True if a committed transaction takes from a key.
    fn has_taken(&self, at: Stamp, key: &[u8]) -> bool {
        let effects = self.store.effects(self.store.hash(key), key).rev();
        let mut own = effects.skip_while(|(stamp, _)| *stamp > at).take_while(|(stamp, _)| *stamp == at);
        own.any(|(_, effect)| takes(&effect))
    }

    /// Evaluates a look on the newest state and the asker's own effects.
    pub(in crate::tapir) fn look(&mut self, question: &KeysetReadRequest) -> Result<KeysetRead, Malformed> {
        let base = self.keyset_base();
        let observed = Observed::new(base, self.keyset_effects(base).map(|(_, stamp, _)| stamp));
        look_at(&mut self.store, question, observed)
    }

    /// The verdict over what a transaction did with the keyset.
    pub(super) fn judge_keyset(&mut self, stamp: Stamp, part: &Part, keyset: &KeysetAccess) -> Verdict {
        let mut worst = Verdict::Ok;
        if !self.mutants.has(Mutant::KeysetUnvalidated) {
            for observed in &keyset.observed {
                worst = worst.max(self.judge_look(stamp, part, observed));
            }
        }
        if keyset.flushed_after.is_some() {
            let others = self.prepared.keys().any(|id| *id != stamp.transaction);
            let verdict = if others { Verdict::Abstain } else { above(stamp, self.keyset.newest) };
            worst = worst.max(verdict);
        }
        worst
    }

    fn judge_look(&mut self, stamp: Stamp, part: &Part, observed: &Observed) -> Verdict {
        let base = observed.base();
        if base < self.oldest() || !observed.contains(self.keyset.flushed) {
            return Verdict::Abort;
        }
        let lacks = self.is_wide && !self.keyset.again && !self.mutants.has(Mutant::AcceptBlindLooks);
        if lacks && !self.holds_all_of(observed) {
            return Verdict::Abstain;
        }
        let unseen: Vec<ChangedKey> = self
            .keyset_effects(base)
            .filter(|(_, other, _)| !observed.contains(*other))
            .map(|(key, other, effect)| (key.into(), other, crate::part::encoded(&effect)))
            .collect();
        let undecided = self.undecided_keyset_effects(stamp.transaction, observed);
        if undecided.iter().any(|(_, _, effect)| effect.is_none()) {
            return Verdict::Abstain;
        }
        let complete = (unseen.is_empty() && undecided.is_empty()) || self.holds_all_of(observed);
        let mut worst = above(stamp, observed.newest());
        let committed = unseen.iter().map(|(key, other, effect)| (key, *other, effect, Verdict::Abort));
        let prepared = undecided
            .iter()
            .filter_map(|(key, other, effect)| Some((key, *other, effect.as_ref()?, Verdict::Abstain)));
        for (key, other, effect, conflict) in committed.chain(prepared) {
            let Ok(effect) = Effect::decode(&mut Reader::new(effect)) else { return Verdict::Abort };
            let preserved = complete && self.keeps(observed, part.takes_from(key), key, &effect);
            worst = worst.max(if preserved { self.keyset.after(stamp, other) } else { conflict });
        }
        worst
    }

    /// What others have prepared that may change which keys there are, and that a look has not seen; without an effect,
    /// one that deletes everything.
    #[allow(clippy::type_complexity)]
    fn undecided_keyset_effects(
        &self,
        except: TransactionId,
        observed: &Observed,
    ) -> Vec<(Box<[u8]>, Stamp, Option<Box<[u8]>>)> {
        let mut effects = Vec::new();
        for (id, prepared) in self.prepared.iter().filter(|(id, _)| **id != except) {
            let stamp = Stamp { at: prepared.at, transaction: *id };
            if observed.contains(stamp) {
                continue;
            }
            if prepared.part.flushes() {
                effects.push((Box::default(), stamp, None));
            }
            for invoked in &prepared.part.invocations {
                if invoked.effect().ok().flatten().is_some_and(|effect| changes_keyset(&effect)) {
                    effects.push(((*invoked.key).into(), stamp, invoked.effect.clone()));
                }
            }
        }
        effects
    }

    /// The verdict over an access to one key against looks and deletions of everything.
    pub(super) fn judge_against_keyset(&mut self, stamp: Stamp, key: &[u8], access: &Access<'_>) -> Verdict {
        let transaction = stamp.transaction;
        let flushed = self.keyset.flushed;
        let seen = access.observed.is_some_and(|observed| observed.contains(flushed));
        let observation = &access.invocation.observation;
        if flushed != Stamp::ZERO && !seen && !observation.unchanged_by(&Effect::DELETE) {
            return Verdict::Abort;
        }
        if self.keyset.is_flushing(transaction) {
            return Verdict::Abstain;
        }
        let mut worst = above(stamp, flushed);
        let Some(effect) = access.invocation.effect.as_ref().filter(|effect| changes_keyset(effect)) else {
            return worst;
        };
        let later = self.keyset.looked.last_key_value().is_some_and(|(last, _)| *last >= stamp);
        let undecided = self.keyset.looks.keys().any(|id| *id != transaction);
        if (later || undecided) && !self.mutants.has(Mutant::KeysetUnvalidated) {
            worst = worst.max(self.judge_against_committed_looks(stamp, key, effect));
            worst = worst.max(self.judge_against_looks(stamp, key, effect));
        }
        worst
    }

    fn judge_against_committed_looks(&mut self, stamp: Stamp, key: &[u8], effect: &Effect<'_>) -> Verdict {
        let later =
            self.keyset.looked.range(stamp..).flat_map(|(at, seen)| seen.iter().map(|one| (*at, one)));
        let unaware = later.filter(|(_, observed)| !observed.contains(stamp));
        let looks: Vec<(Stamp, Observed)> = unaware.map(|(at, observed)| (at, observed.clone())).collect();
        let mut worst = Verdict::Ok;
        for (at, observed) in looks {
            let preserved = self.keyset.again
                && self.holds_all_of(&observed)
                && self.keeps(&observed, self.has_taken(at, key), key, effect);
            worst = worst.max(if preserved { Verdict::Ok } else { above(stamp, at) });
        }
        worst
    }

    fn judge_against_looks(&mut self, stamp: Stamp, key: &[u8], effect: &Effect<'_>) -> Verdict {
        let others = self.keyset.looks.iter().filter(|(id, _)| **id != stamp.transaction);
        let mut looks: Vec<(Stamp, bool, bool, Observed)> = Vec::new();
        for (id, complete) in others {
            let Some(prepared) = self.prepared.get(id) else { continue };
            let seen = prepared.part.keyset.iter().flat_map(|keyset| &keyset.observed);
            let unaware = seen.filter(|observed| !observed.contains(stamp));
            let at = Stamp { at: prepared.at, transaction: *id };
            let takes = prepared.part.takes_from(key);
            looks.extend(unaware.map(|observed| (at, *complete, takes, observed.clone())));
        }
        let mut worst = Verdict::Ok;
        for (at, complete, takes, observed) in looks {
            let preserved = complete && self.keeps(&observed, takes, key, effect);
            worst = worst.max(if preserved { self.keyset.after(stamp, at) } else { Verdict::Abstain });
        }
        worst
    }

    /// Notes what a prepared transaction does with the keyset.
    pub(super) fn hold_keyset(&mut self, transaction: TransactionId, part: &Part) {
        let Some(keyset) = &part.keyset else { return };
        if part.looks() {
            let complete = keyset.observed.iter().all(|observed| self.holds_all_of(observed));
            self.keyset.looks.insert(transaction, complete);
        }
        if part.flushes() {
            self.keyset.flushing.insert(transaction);
        }
    }

    /// Deletes every key, those included that the part itself has written so far or will write: what comes below the
    /// stamp later must find the deletion there. `held` are the part's keys that have its effects already.
    pub(super) fn flush(&mut self, stamp: Stamp, part: &Part, held: &BTreeSet<&[u8]>) {
        if stamp > self.horizon() {
            self.keyset.flushes.insert(stamp);
        }
        self.keyset.flushed = self.keyset.flushed.max(stamp);
        let own: BTreeSet<&[u8]> = part.invocations.iter().map(|invoked| &*invoked.key).collect();
        let (mut keys, mut cursor): (Vec<Box<[u8]>>, u64) =
            (own.iter().map(|key| (*key).into()).collect(), 0);
        loop {
            cursor = self.store.scan_all(cursor, |key| {
                if !own.contains(key) {
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
            let hash = self.store.hash(&key);
            let done = match own.contains(&*key) {
                true => held.contains(&*key),
                false => self.store.has_effect(hash, &key, stamp),
            };
            if !done {
                self.store.commit(hash, &key, stamp, &Effect::DELETE);
            }
        }
    }

    /// Deletes what came later than deletions of everything with higher stamps.
    pub(super) fn flush_late(&mut self, key: &[u8], stamp: Stamp) {
        for flush in self.keyset.flushes_above(stamp) {
            let hash = self.store.hash(key);
            if !self.store.has_effect(hash, key, flush) {
                self.store.commit(hash, key, flush, &Effect::DELETE);
            }
        }
    }

    /// True if an undecided transaction would delete what a read finds.
    pub(super) fn is_flushing_for(&self, question: &Question<'_>) -> bool {
        self.keyset.is_flushing(question.transaction)
    }
}
