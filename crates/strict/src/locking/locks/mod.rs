//! A shard's lock table: strict two-phase locking in the types' lock modes. A key has a lock, and so have elements of its
//! value for those that change only these ([`name`]).
//!
//! With phases ([`phaser`]), a transaction waits for its turn behind whoever has the lock, older or younger. A younger
//! one that itself waits somewhere, at this shard or as its coordinator says at another one, loses what an older one
//! waits for (it is *wounded* and runs again, with the age it has). Every cycle of waiting transactions contains such a
//! younger one, so every deadlock is broken (Corrections 62).
//!
//! Without phases the table uses wound-wait: a transaction that meets an older one waits for it, and one that meets a
//! younger one takes over its locks. So a waiting transaction is younger than the one that it waits for, or waits for
//! one that has a vote and waits for no other: waiting is deadlock-free.

mod name;
mod phaser;
#[cfg(test)]
mod tests;

use crate::validation::Stamp;
use crate::{Mutant, Mutants};
use datatypes::{Claim, Mode, Modes};
use name::Name;
use phaser::Phaser;
pub use phaser::Phasing;
use protocol::{Contention, ContentionStats, Pair};
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, TransactionId};

/// How locks are handed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockOptions {
    /// Phases; without, wound-wait.
    pub phasing: Option<Phasing>,
    /// Readers and writers only, in place of the types' modes: a baseline for measurements.
    pub readers_and_writers: bool,
}

impl Default for LockOptions {
    fn default() -> Self {
        LockOptions { phasing: Some(Phasing::default()), readers_and_writers: false }
    }
}

impl LockOptions {
    /// The mode that stands for this one.
    pub(in crate::locking) fn mode(self, mode: Mode) -> Mode {
        match mode {
            _ if !self.readers_and_writers => mode,
            _ if Mode::Observe.covers(mode) => Mode::Observe,
            _ => Mode::Write,
        }
    }
}

#[derive(Debug)]
struct Owner {
    age: Stamp,
    /// The shard has voted for it: it cannot be wounded.
    firm: bool,
    /// It waits at another shard, as its coordinator says.
    waits_elsewhere: bool,
    /// Where it holds or waits.
    names: BTreeSet<Name>,
    /// Where it waits.
    waiting: BTreeSet<Name>,
}

impl Owner {
    fn new(age: Stamp) -> Self {
        let (names, waiting) = (BTreeSet::new(), BTreeSet::new());
        Owner { age, firm: false, waits_elsewhere: false, names, waiting }
    }

    fn waits(&self) -> bool {
        self.waits_elsewhere || !self.waiting.is_empty()
    }

    /// Where it waits, if it waits nowhere else.
    fn waits_only_at(&self) -> Option<&Name> {
        self.waiting.first().filter(|_| self.waiting.len() == 1 && !self.waits_elsewhere)
    }

    /// True if it waits anywhere but here.
    fn waits_for_more_than(&self, name: &Name) -> bool {
        self.waits_elsewhere || self.waiting.iter().any(|waiting| waiting != name)
    }
}

/// The transaction that requests a lock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asker {
    pub id: TransactionId,
    pub age: Stamp,
    /// Other shards vote for it too, and cannot take that back: it must not wait.
    pub votes: bool,
    /// It needs all of its locks for one step only: it waits for their holders, and not for other waiters.
    pub passes: bool,
    pub now: Instant,
}

/// See the module.
#[derive(Debug)]
pub(super) struct LockTable {
    options: LockOptions,
    mutants: Mutants,
    phasers: BTreeMap<Name, Phaser>,
    owners: BTreeMap<TransactionId, Owner>,
    wounded: Vec<(TransactionId, Box<[u8]>)>,
    freed: BTreeSet<Name>,
    granted: BTreeSet<(Stamp, TransactionId)>,
    /// Who is in whose way.
    pub contention: ContentionStats,
}

impl LockTable {
    pub(super) fn new(options: LockOptions, mutants: Mutants) -> Self {
        LockTable {
            options,
            mutants,
            phasers: BTreeMap::new(),
            owners: BTreeMap::new(),
            wounded: Vec::new(),
            freed: BTreeSet::new(),
            granted: BTreeSet::new(),
            contention: ContentionStats::default(),
        }
    }

    /// Asks for a key's lock, and when it has that, for those of elements. True if all are granted; else the transaction
    /// waits, and can ask for the rest when [`LockTable::take_ready`] names it. Those that have to give way are wounded,
    /// perhaps the asker itself.
    pub(super) fn lock(&mut self, asker: Asker, key: &[u8], claim: &Claim<'_>) -> bool {
        let name = Name::of(key);
        let has_key = self.lock_one(asker, &name, self.options.mode(claim.mode));
        has_key
            && self.elements(asker.id, &name, claim).into_iter().fold(true, |all, element| {
                let granted = self.lock_one(asker, &element, Mode::Write);
                all && granted
            })
    }

    /// The same for several claims on a key.
    pub(super) fn lock_all(&mut self, asker: Asker, key: &[u8], claims: &[Claim<'_>]) -> bool {
        claims.iter().fold(true, |all, claim| {
            let granted = self.lock(asker, key, claim);
            all && granted
        })
    }

    /// The elements that need locks beside the key's: none where the transaction has all of the key.
    fn elements(&self, id: TransactionId, name: &Name, claim: &Claim<'_>) -> Vec<Name> {
        let none = claim.elements.is_empty() || self.mutants.has(Mutant::PlaceWithoutElements);
        if none || self.holds(id, name, Mode::Write) { Vec::new() } else { name.elements(claim).collect() }
    }

    fn lock_one(&mut self, asker: Asker, name: &Name, mode: Mode) -> bool {
        let Asker { id, age, now, .. } = asker;
        if self.holds(id, name, mode) {
            return true;
        }
        let owner = self.owners.entry(id).or_insert_with(|| Owner::new(age));
        debug_assert_eq!(owner.age, age, "it keeps its age");
        owner.names.insert(name.clone());
        if asker.votes && self.options.phasing.is_some() {
            return self.lock_now(asker, name, mode);
        }
        let waited = owner.waits();
        let is_new = owner.waiting.insert(name.clone());
        let phaser = self.phasers.entry(name.clone()).or_default();
        phaser.enqueue(id, age, mode, asker.passes);
        if self.mutants.has(Mutant::LatecomersOvertake) && phaser.opponents(id, mode).next().is_none() {
            self.grant(id, age, name, mode, now);
            return true;
        }
        self.hand_on(name, now, Some(id));
        if !self.holds(id, name, mode) && self.wound_opponents(asker, name, mode) {
            self.hand_on(name, now, Some(id));
        }
        if self.options.phasing.is_some() && self.owners.get(&id).is_some_and(Owner::waits) {
            // Had it waited before, a transaction that wants another one of its locks has wounded it.
            self.wound_if_wanted(id, waited.then_some(name));
        }
        let granted = self.holds(id, name, mode);
        if is_new && !granted {
            self.note(name, mode, Contention::Wait);
        }
        granted
    }

    /// For a vote that must not wait: by wound-wait, past the phases.
    fn lock_now(&mut self, asker: Asker, name: &Name, mode: Mode) -> bool {
        self.wound_opponents(asker, name, mode);
        let phaser = self.phasers.entry(name.clone()).or_default();
        let wanted = phaser.is_wanted_by_older(asker.age, Modes::default().with(mode));
        let free = !wanted && phaser.opponents(asker.id, mode).next().is_none();
        if free {
            self.grant(asker.id, asker.age, name, mode, asker.now);
        } else {
            self.note(name, mode, Contention::Conflict);
        }
        free
    }

    /// Notes contention: a transaction that wants the lock in this mode conflicts with holders in other modes, or
    /// queues behind waiters.
    fn note(&mut self, name: &Name, wanted: Mode, contention: Contention) {
        let met = self.phasers.get(name).and_then(|phaser| phaser.in_the_way_of(wanted));
        self.contention.note(name.key(), name.seen(Pair { wanted, met }), contention);
    }

    /// Takes locks for a transaction that an earlier leader has voted for.
    pub(super) fn reinstate(
        &mut self,
        id: TransactionId,
        age: Stamp,
        key: &[u8],
        claim: &Claim<'_>,
        now: Instant,
    ) {
        let name = Name::of(key);
        self.reinstate_one(id, age, &name, self.options.mode(claim.mode), now);
        for element in self.elements(id, &name, claim) {
            self.reinstate_one(id, age, &element, Mode::Write, now);
        }
    }

    fn reinstate_one(&mut self, id: TransactionId, age: Stamp, name: &Name, mode: Mode, now: Instant) {
        let owner = self.owners.entry(id).or_insert_with(|| Owner::new(age));
        owner.firm = true;
        owner.names.insert(name.clone());
        self.phasers.entry(name.clone()).or_default().grant(id, age, mode, now);
    }

    fn holds(&self, id: TransactionId, name: &Name, mode: Mode) -> bool {
        let held = self.phasers.get(name).and_then(|phaser| phaser.held.get(&id));
        held.is_some_and(|modes| modes.cover(mode))
    }

    /// True if the transaction may rely on what an invocation in this mode observed of the key: an invocation in the
    /// mode of a mutation observes at most the type, which no concurrent transaction changes.
    pub(super) fn protects(&self, id: TransactionId, key: &[u8], mode: Mode) -> bool {
        let name = Name::of(key);
        self.holds(id, &name, Mode::Observe) || self.holds(id, &name, self.options.mode(mode))
    }

    /// True if the transaction has the key's lock in some mode.
    pub(super) fn holds_any(&self, id: TransactionId, key: &[u8]) -> bool {
        self.has(id, &Name::of(key))
    }

    fn has(&self, id: TransactionId, name: &Name) -> bool {
        self.phasers.get(name).is_some_and(|phaser| phaser.held.contains_key(&id))
    }

    /// True if somebody else has a lock that stands in the way of these.
    pub(super) fn is_taken(&self, id: TransactionId, key: &[u8], claim: &Claim<'_>) -> bool {
        let taken = |name: &Name, mode: Mode| {
            self.phasers.get(name).is_some_and(|phaser| phaser.opponents(id, mode).next().is_some())
        };
        let name = Name::of(key);
        let elements = self.elements(id, &name, claim);
        taken(&name, self.options.mode(claim.mode))
            || elements.iter().any(|element| taken(element, Mode::Write))
    }

    /// The shard votes for the transaction: from now on it keeps its locks.
    pub(super) fn make_firm(&mut self, id: TransactionId) {
        if let Some(owner) = self.owners.get_mut(&id) {
            owner.firm = true;
        }
    }

    /// The transaction's coordinator says whether it waits at another shard.
    pub(super) fn set_waiting_elsewhere(&mut self, id: TransactionId, waits: bool) {
        let Some(owner) = self.owners.get_mut(&id) else { return };
        let waited = owner.waits();
        owner.waits_elsewhere = waits;
        if !waits || self.options.phasing.is_none() {
            self.freed.extend(owner.waits_only_at().cloned());
        } else if !waited {
            self.wound_if_wanted(id, None);
        }
    }

    /// Wounds all others that have locks, if all of them are younger and the shard has voted for none; else false.
    pub(super) fn take_from_younger(&mut self, asker: Asker) -> bool {
        let holds =
            |id: TransactionId, owner: &Owner| owner.names.iter().find(|name| self.has(id, name)).cloned();
        let others = self.owners.iter().filter(|(id, _)| **id != asker.id);
        let holders: Vec<(TransactionId, bool, Name)> = others
            .filter_map(|(id, owner)| Some((*id, !owner.firm && owner.age >= asker.age, holds(*id, owner)?)))
            .collect();
        let yield_all = holders.iter().all(|(_, yields, _)| *yields);
        for (id, _, name) in holders.iter().filter(|_| yield_all) {
            self.wound(*id, name, None);
        }
        yield_all
    }

    /// Takes locks from transactions that older transactions have waited for too long.
    pub(super) fn end_overdue_phases(&mut self, now: Instant) {
        let Some(phasing) = self.options.phasing else { return };
        let overdue = self.phasers.values().filter(|phaser| phaser.is_overdue(now, phasing));
        let holders: BTreeSet<TransactionId> =
            overdue.flat_map(|phaser| phaser.held.keys().copied()).collect();
        for id in holders {
            self.wound_if_wanted(id, None);
        }
    }

    /// Gives every lock and every wait of a transaction up.
    pub(super) fn release(&mut self, id: TransactionId) {
        let Some(owner) = self.owners.remove(&id) else { return };
        for name in owner.names {
            let Some(phaser) = self.phasers.get_mut(&name) else { continue };
            phaser.held.remove(&id);
            phaser.leave_all(id, owner.age);
            if phaser.is_unused() {
                self.phasers.remove(&name);
            } else {
                self.freed.insert(name);
            }
        }
    }

    /// True if the transaction has no lock, and waits for none.
    pub(super) fn is_stranger(&self, id: TransactionId) -> bool {
        !self.owners.contains_key(&id)
    }

    /// A key of which the transaction has a lock that another one waits for.
    pub(super) fn wanted_from(&self, id: TransactionId) -> Option<&[u8]> {
        let in_the_way = |phaser: &Phaser| {
            let mut waiting = phaser.waiting().into_iter();
            waiting.any(|(_, other, mode)| {
                other != id && phaser.opponents(other, mode).any(|holder| holder == id)
            })
        };
        let names = &self.owners.get(&id)?.names;
        names.iter().find(|name| self.phasers.get(name).is_some_and(in_the_way)).map(Name::key)
    }

    /// A key whose lock the transaction waits for, or has not got.
    pub(super) fn waited_for(&self, id: TransactionId) -> Option<&[u8]> {
        let owner = self.owners.get(&id)?;
        let lacks = owner.names.iter().find(|name| !self.has(id, name));
        owner.waiting.first().or(lacks).map(Name::key)
    }

    /// The transactions wounded since the last call, with the key that each lost first.
    pub(super) fn take_wounded(&mut self) -> Vec<(TransactionId, Box<[u8]>)> {
        std::mem::take(&mut self.wounded)
    }

    /// Hands on the locks freed since the last call. Returns the transactions that were granted a lock, the oldest
    /// first: each may retry its request.
    pub(super) fn take_ready(&mut self, now: Instant) -> Vec<TransactionId> {
        while let Some(name) = self.freed.pop_first() {
            self.hand_on(&name, now, None);
        }
        std::mem::take(&mut self.granted).into_iter().map(|(_, id)| id).collect()
    }

    /// Grants a lock to the transactions that can have it now. All but the asker are noted as ready.
    fn hand_on(&mut self, name: &Name, now: Instant, asker: Option<TransactionId>) {
        match self.options.phasing {
            Some(phasing) => {
                while let Some((id, age, mode)) = self.next(name, now, phasing) {
                    self.note_granted(id, age, asker);
                    self.grant(id, age, name, mode, now);
                    // It may have more of the lock than before.
                    if self.owners.get(&id).is_some_and(Owner::waits) {
                        self.wound_if_wanted(id, Some(name));
                    }
                }
            }
            None => self.hand_on_by_age(name, now, asker),
        }
        if self.phasers.get(name).is_some_and(Phaser::is_unused) {
            self.phasers.remove(name);
        }
    }

    fn next(&mut self, name: &Name, now: Instant, phasing: Phasing) -> Option<(TransactionId, Stamp, Mode)> {
        let owners = &self.owners;
        let may_hold =
            |id: TransactionId| owners.get(&id).is_some_and(|owner| !owner.waits_for_more_than(name));
        self.phasers.get_mut(name)?.next(now, phasing, self.mutants, may_hold)
    }

    /// Without phases: who waits has the lock as soon as neither a holder nor an older one that waits is in the way.
    fn hand_on_by_age(&mut self, name: &Name, now: Instant, asker: Option<TransactionId>) {
        let waiting = self.phasers.get(name).map(Phaser::waiting).unwrap_or_default();
        let mut before: Vec<(TransactionId, Mode)> = Vec::new();
        for (age, id, mode) in waiting {
            let Some(phaser) = self.phasers.get(name) else { return };
            let behind = before.iter().any(|(other, wanted)| *other != id && !wanted.compatible(mode));
            if behind || phaser.opponents(id, mode).next().is_some() {
                before.push((id, mode));
            } else if !self.holds(id, name, mode) {
                self.note_granted(id, age, asker);
                self.grant(id, age, name, mode, now);
            }
        }
    }

    fn note_granted(&mut self, id: TransactionId, age: Stamp, asker: Option<TransactionId>) {
        if asker != Some(id) {
            self.granted.insert((age, id));
        }
    }

    fn grant(&mut self, id: TransactionId, age: Stamp, name: &Name, mode: Mode, now: Instant) {
        let phaser = self.phasers.entry(name.clone()).or_default();
        phaser.grant(id, age, mode, now);
        let Some(owner) = self.owners.get_mut(&id) else { return };
        if !phaser.is_waiting(id, age) {
            owner.waiting.remove(name);
        }
        // Where it was passed over because it waited here too, it may be next.
        self.freed.extend(owner.waits_only_at().cloned());
    }

    /// Wounds the younger ones that stand in the asker's way: with phases those that wait, unless the asker votes.
    fn wound_opponents(&mut self, asker: Asker, name: &Name, mode: Mode) -> bool {
        let Some(phaser) = self.phasers.get(name) else { return false };
        let any = self.options.phasing.is_none() || asker.votes;
        let must_yield = |id: &TransactionId| {
            let owner = self.owners.get(id);
            let Some(owner) = owner.filter(|owner| !owner.firm) else { return false };
            // An earlier run of the asker's has its age, and is over.
            owner.age == asker.age || owner.age > asker.age && (any || self.yields(owner))
        };
        let victims: Vec<TransactionId> = phaser.opponents(asker.id, mode).filter(must_yield).collect();
        for victim in &victims {
            self.wound(*victim, name, Some(mode));
        }
        !victims.is_empty()
    }

    /// Wounds a transaction if an older one waits for one of its locks, or for this one.
    fn wound_if_wanted(&mut self, id: TransactionId, only: Option<&Name>) {
        let Some(owner) = self.owners.get(&id).filter(|owner| !owner.firm) else { return };
        if self.mutants.has(Mutant::WaitersKeepLocks) {
            return;
        }
        let wanted = |name: &Name| {
            let phaser = self.phasers.get(name);
            let held = phaser.and_then(|phaser| Some((phaser, *phaser.held.get(&id)?)));
            held.is_some_and(|(phaser, modes)| phaser.is_wanted_by_older(owner.age, modes))
        };
        let mut names = owner.names.iter().filter(|name| only.is_none_or(|only| only == *name));
        if let Some(name) = names.find(|name| wanted(name)).cloned() {
            self.wound(id, &name, None);
        }
    }

    fn yields(&self, owner: &Owner) -> bool {
        owner.waits() && !self.mutants.has(Mutant::WaitersKeepLocks)
    }

    fn wound(&mut self, id: TransactionId, name: &Name, wanted: Option<Mode>) {
        if let Some(pair) = self.phasers.get(name).and_then(|phaser| phaser.taken_from(id, wanted)) {
            self.contention.note(name.key(), name.seen(pair), Contention::Wound);
        }
        self.release(id);
        self.wounded.push((id, name.key().into()));
    }
}
