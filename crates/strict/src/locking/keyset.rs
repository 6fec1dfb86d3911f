//! Which keys a shard has, as an object of its own (Corrections 78): KEYS, DBSIZE and SCAN inside transactions look at
//! it, FLUSHDB empties it, and whatever may create or remove a key changes it.
//!
//! It has no lock, whatever keys have: every transaction would have to take it. A keyset read returns the last applied
//! entry, and the vote validates it. A look is still true if since then no entry has created or removed a key, nor
//! changed one that the transaction itself takes from, whose being there depends on how much others have put into it.
//! From its vote to its end nobody gets a vote who might make it untrue. So at the moment of the last vote all that a
//! transaction has seen is true, what it saw under locks and what it saw without.
//!
//! A deletion of everything looks at nothing. It gets a vote only when no other transaction has an undecided vote, and
//! until its own end no other transaction gets one. With locks it takes over the locks of younger transactions, and
//! waits for older ones; after its vote, operations wait for its end.
//!
//! A look waits for the ends of those that were voted for before it and may change what it sees: they may have been
//! answered. With locks, a vote for a transaction that read or emptied the keyset waits for those that did neither,
//! which wait for no other transaction. No transaction waits here for others: a refused one retries. The leader makes a
//! reservation for a transaction that was refused several times: for a while it refuses younger conflicting ones, so
//! that undecided transactions end and the refused one gets its vote. Reservations are keyed by age, which a
//! transaction retains when it runs again. None of it bears on safety.

use super::leader::{Leader, OpenTransaction, VoteConflict};
use super::locks::Asker;
use super::machine::Machine;
use super::options::Options;
use crate::validation::{Observed, Stamp};
use crate::{Mutant, Part};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use types::{Instant, TransactionId};

/// A reservation lasts for this fraction of the lock timeout.
const RESERVATION_DIVISOR: u32 = 4;

/// One that was refused.
#[derive(Debug)]
struct Reservation {
    refusals: u32,
    flushes: bool,
    until: Instant,
}

/// A leader's state of the shard's keyset.
#[derive(Debug, Default)]
pub(super) struct Keyset {
    /// Those that were voted for, or are about to be, and looked or delete everything; true for the latter.
    held: BTreeMap<TransactionId, bool>,
    /// By age.
    reservations: BTreeMap<Stamp, Reservation>,
}

impl Keyset {
    /// True if nobody looks, nor deletes everything.
    pub(super) fn is_idle(&self) -> bool {
        self.held.is_empty() && self.reservations.is_empty()
    }

    /// A transaction has been voted for, or is about to be.
    pub(super) fn hold(&mut self, id: TransactionId, part: &Part) {
        if part.keyset.is_some() {
            self.held.insert(id, part.flushes());
        }
    }

    /// It has ended.
    pub(super) fn release(&mut self, id: TransactionId) {
        self.held.remove(&id);
    }

    /// A transaction with a reservation gets its vote.
    pub(super) fn come(&mut self, age: Stamp) {
        self.reservations.remove(&age);
    }

    /// Such a transaction was refused: if that happened often enough, the leader makes a reservation for it.
    pub(super) fn keep(&mut self, age: Stamp, part: &Part, now: Instant, options: &Options) {
        self.reservations.retain(|_, reservations| reservations.until > now);
        let until = now + options.lock_timeout / RESERVATION_DIVISOR;
        let refusals = self.reservations.get(&age).map_or(0, |reservations| reservations.refusals) + 1;
        self.reservations.insert(age, Reservation { refusals, flushes: part.flushes(), until });
    }
}

impl Leader {
    /// The others that have a vote, or are about to, and delete everything.
    pub(super) fn flushing(&self, except: TransactionId) -> impl Iterator<Item = TransactionId> {
        let held = self.keyset.held.iter().filter(move |(id, flushes)| **flushes && **id != except);
        held.map(|(id, _)| *id)
    }

    /// True if there is any.
    pub(super) fn is_flushing(&self, except: TransactionId) -> bool {
        self.flushing(except).next().is_some()
    }

    /// The others that have a vote, or are about to, and may create or remove a key.
    pub(super) fn changing_keys(&self, except: TransactionId, machine: &Machine) -> BTreeSet<TransactionId> {
        let changes = |part: &&Arc<Part>| changes_keys(part, state_for(part, machine));
        let others = self.open.iter().filter(|(id, _)| **id != except);
        others
            .filter(|(_, open)| open.stage.part().is_some_and(|part| changes(&part)))
            .map(|(id, _)| *id)
            .collect()
    }

    /// Those that a vote for a part may wait for.
    pub(super) fn in_conflict_with_keyset_access(
        &self,
        except: TransactionId,
        part: &Part,
        machine: &Machine,
    ) -> BTreeSet<TransactionId> {
        let conflicts = |held: &Arc<Part>| {
            held.keyset.is_none() && conflicts_with_keyset_access(part, held, machine, false)
        };
        let others = self.open.iter().filter(|(id, _)| **id != except);
        others.filter(|(_, open)| open.stage.part().is_some_and(&conflicts)).map(|(id, _)| *id).collect()
    }

    /// What stands in the way of a part, as far as the shard's keys as a whole are concerned; rather what has changed than
    /// what is undecided.
    pub(super) fn judge_keyset(
        &self,
        asker: Asker,
        (part, read_only): (&Part, bool),
        machine: &Machine,
        options: &Options,
    ) -> Result<(), VoteConflict> {
        let trusting = options.mutants.has(Mutant::KeysetUnvalidated);
        if !trusting && part.looks() && !is_still_true(part, machine) {
            return Err(VoteConflict { key: None, undecided: false });
        }
        let voted = |(id, open): (&TransactionId, &OpenTransaction)| {
            open.stage.part().filter(|_| *id != asker.id).cloned()
        };
        let meets = match &part.keyset {
            Some(_) => self
                .open
                .iter()
                .filter_map(voted)
                .any(|other| conflicts_with_keyset_access(part, &other, machine, trusting)),
            None => {
                let held = self.keyset.held.keys().filter_map(|id| self.open.get_key_value(id));
                held.filter_map(voted)
                    .any(|other| conflicts_with_keyset_access(part, &other, machine, trusting))
            }
        };
        let enough = options.reserve_after.unwrap_or(u32::MAX);
        let mut older = self
            .keyset
            .reservations
            .range(..asker.age)
            .filter(|(_, reservations)| reservations.until > asker.now);
        let reserved = !read_only
            && older.any(|(_, reservations)| {
                reservations.refusals >= enough
                    && (reservations.flushes || changes_keys(part, state_for(part, machine)))
            });
        if meets || reserved {
            return Err(VoteConflict { key: None, undecided: true });
        }
        Ok(())
    }
}

/// True if no entry has changed what the part's looks saw.
fn is_still_true(part: &Part, machine: &Machine) -> bool {
    let looks = part.keyset.iter().flat_map(|keyset| &keyset.observed);
    let Some(seen) = looks.map(Observed::newest).min().map(|stamp| stamp.at.0) else { return true };
    machine.keys_changed() <= seen && part.taken_from().all(|key| machine.version(key) <= seen)
}

/// True if a part may not get a vote while another part has one. Where that one commits at this shard alone its
/// timestamp is known, and what comes later has a later one. Else whichever of the two is answered first might get the
/// later one: then they have to commute in every state, as those who check histories take it.
fn conflicts_with_keyset_access(part: &Part, held: &Part, machine: &Machine, trusting: bool) -> bool {
    let state = state_for(held, machine);
    let looks_past = |looking: &Part, other: &Part| {
        if !looking.looks() || trusting {
            return false;
        }
        let taken: BTreeSet<&[u8]> = looking.taken_from().collect();
        let mut changed = other.invocations.iter().filter(|invoked| invoked.effect.is_some());
        changed.any(|invoked| taken.contains(&*invoked.key)) || changes_keys(other, state)
    };
    part.flushes() || held.flushes() || looks_past(part, held) || looks_past(held, part)
}

/// The state in which those have to commute with a part that come after it: this one, or any.
fn state_for<'m>(part: &Part, machine: &'m Machine) -> Option<&'m Machine> {
    Some(machine).filter(|_| part.participants.len() == 1)
}

/// True if a part may create or remove a key: in this state, or in any.
fn changes_keys(part: &Part, state: Option<&Machine>) -> bool {
    let changes = |effect: &datatypes::Effect<'_>, key: &[u8]| match state {
        Some(machine) => machine.may_come_or_go(key, effect),
        None => effect.may_create() || effect.may_remove(),
    };
    let mut effects = part.invocations.iter().map(|invoked| (invoked.effect(), &*invoked.key));
    part.flushes()
        || effects
            .any(|(effect, key)| effect.map_or(true, |effect| effect.is_some_and(|it| changes(&it, key))))
}
