//! A key's phaser (Claret 4.2, 5.2): who holds the key's lock, who waits in which mode, and who is next.
//!
//! Transactions in one mode run together in a *phase*. While others wait, a phase takes a bounded number of members for
//! a bounded time; who comes later waits in its mode's queue. When the last member has let go, the next queue that is
//! not empty has its phase, in turn (Corrections 61). A phase of writers has one at a time.
//!
//! Who is older than all that wait in other modes is a member whenever it can be one: nobody waits in a queue behind a
//! younger one, which the proof that no deadlock lasts needs (`docs/internals/claret.md`).

use super::Modes;
use crate::validation::Stamp;
use crate::{Mutant, Mutants};
use datatypes::Mode;
use protocol::Pair;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Instant, TransactionId};

/// For how long, and for how many, a phase goes on while others wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phasing {
    /// So many transactions have the lock in one phase.
    pub members: u32,
    /// Later nobody joins the phase.
    pub lasts: Duration,
    /// Members that are still there after this lose the lock to older transactions that wait.
    pub patience: Duration,
}

impl Default for Phasing {
    fn default() -> Self {
        let (lasts, patience) = (Duration::from_millis(20), Duration::from_millis(250));
        Phasing { members: 32, lasts, patience }
    }
}

/// A phase, running or just over.
#[derive(Clone, Copy, Debug)]
struct Phase {
    mode: Mode,
    members: u32,
    began: Instant,
}

/// Who holds a key's lock, and who waits for it.
#[derive(Debug, Default)]
pub(super) struct Phaser {
    pub held: BTreeMap<TransactionId, Modes>,
    /// By mode, then by age, the oldest first. No queue is empty.
    queues: BTreeMap<Mode, BTreeSet<(Stamp, TransactionId)>>,
    /// Of the queues: those that hold the lock in another mode, or are to pass.
    upgrades: BTreeSet<(Stamp, TransactionId, Mode)>,
    phase: Option<Phase>,
}

impl Phaser {
    pub(super) fn is_unused(&self) -> bool {
        self.held.is_empty() && self.queues.is_empty()
    }

    /// Waits in a mode's queue; one that `passes` before those that do not.
    pub(super) fn enqueue(&mut self, id: TransactionId, age: Stamp, mode: Mode, passes: bool) {
        self.queues.entry(mode).or_default().insert((age, id));
        if passes || self.held.contains_key(&id) {
            self.upgrades.insert((age, id, mode));
        }
    }

    /// Leaves every queue.
    pub(super) fn leave_all(&mut self, id: TransactionId, age: Stamp) {
        self.upgrades.retain(|(_, other, _)| *other != id);
        self.queues.retain(|_, queue| {
            queue.remove(&(age, id));
            !queue.is_empty()
        });
    }

    /// Leaves a mode's queue.
    fn leave(&mut self, id: TransactionId, age: Stamp, mode: Mode) {
        self.upgrades.remove(&(age, id, mode));
        let Some(queue) = self.queues.get_mut(&mode) else { return };
        queue.remove(&(age, id));
        if queue.is_empty() {
            self.queues.remove(&mode);
        }
    }

    /// True if the transaction waits in some mode.
    pub(super) fn is_waiting(&self, id: TransactionId, age: Stamp) -> bool {
        self.queues.values().any(|queue| queue.contains(&(age, id)))
    }

    /// Who waits, the oldest first; one that waits in several modes is there for each of them.
    pub(super) fn waiting(&self) -> Vec<(Stamp, TransactionId, Mode)> {
        let all =
            self.queues.iter().flat_map(|(mode, queue)| queue.iter().map(|(age, id)| (*age, *id, *mode)));
        let mut all: Vec<_> = all.collect();
        all.sort_unstable();
        all
    }

    /// The holders that stand in the way of a mode.
    pub(super) fn opponents(&self, id: TransactionId, mode: Mode) -> impl Iterator<Item = TransactionId> {
        let others = self.held.iter().filter(move |(other, modes)| **other != id && modes.conflict(mode));
        others.map(|(other, _)| *other)
    }

    /// What stands in the way of a mode: another one that is held, or waited for.
    pub(super) fn in_the_way_of(&self, mode: Mode) -> Option<Mode> {
        let held = self.held.values().find_map(|modes| modes.against(mode));
        held.or_else(|| self.queues.keys().copied().find(|waiting| !waiting.compatible(mode)))
    }

    /// Who takes the lock from a holder: somebody in this mode, or in the first that waits for it.
    pub(super) fn taken_from(&self, id: TransactionId, wanted: Option<Mode>) -> Option<Pair> {
        let held = *self.held.get(&id)?;
        let wanted = wanted.or_else(|| self.queues.keys().copied().find(|mode| held.conflict(*mode)))?;
        Some(Pair { wanted, met: held.against(wanted) })
    }

    /// True if a transaction older than `age` waits for what is held, or requested, in `modes`.
    pub(super) fn is_wanted_by_older(&self, age: Stamp, modes: Modes) -> bool {
        let older =
            |queue: &BTreeSet<(Stamp, TransactionId)>| queue.first().is_some_and(|first| first.0 < age);
        self.queues.iter().any(|(mode, queue)| modes.conflict(*mode) && older(queue))
    }

    /// True if members have been there for too long.
    pub(super) fn is_overdue(&self, now: Instant, phasing: Phasing) -> bool {
        !self.queues.is_empty() && self.phase.is_some_and(|phase| now - phase.began >= phasing.patience)
    }

    /// Hands the lock to a transaction.
    pub(super) fn grant(&mut self, id: TransactionId, age: Stamp, mode: Mode, now: Instant) {
        // Who passes is gone at once, and no member of a phase.
        let passes = !self.held.contains_key(&id) && self.upgrades.contains(&(age, id, mode));
        if !passes && self.held.is_empty() && self.phase.is_none_or(|phase| phase.mode != mode) {
            self.phase = Some(Phase { mode, members: 0, began: now });
        }
        if let Some(phase) = self.phase.as_mut().filter(|_| !passes) {
            phase.members = phase.members.saturating_add(1);
        }
        let own = self.held.entry(id).or_default();
        *own = own.with(mode);
        if mode == Mode::Write {
            // It covers the others.
            self.leave_all(id, age);
        } else {
            self.leave(id, age, mode);
        }
        let waits = self.queues.iter().filter(|(_, queue)| queue.contains(&(age, id)));
        self.upgrades.extend(waits.map(|(mode, _)| (age, id, *mode)));
    }

    /// Who has the lock next under phasing, if anybody can have it now: `may_hold` says who may while an older
    /// one waits in another mode.
    pub(super) fn next(
        &mut self,
        now: Instant,
        phasing: Phasing,
        mutants: Mutants,
        may_hold: impl Fn(TransactionId) -> bool,
    ) -> Option<(TransactionId, Stamp, Mode)> {
        // All the others wait for who holds the lock already: it goes first, and so does who lets go of it at once.
        let free =
            |(_, id, mode): &&(Stamp, TransactionId, Mode)| self.opponents(*id, *mode).next().is_none();
        if let Some((age, id, mode)) = self.upgrades.iter().find(free) {
            return Some((*id, *age, *mode));
        }
        if self.held.is_empty() {
            let mode = self.turn(now, phasing, mutants, &may_hold)?;
            let (age, id) = self.first_of(mode, &may_hold)?;
            return Some((id, age, mode));
        }
        let phase = self.phase?;
        let is_open = self.is_open(&phase, now, phasing, mutants);
        let others = self.queues.keys().copied().filter(|mode| *mode != phase.mode);
        std::iter::once(phase.mode).chain(others).find_map(|mode| self.joiner(mode, is_open, &may_hold))
    }

    /// Who joins the holders in a mode: one that only user-defined types have beside the phase's.
    fn joiner(
        &self,
        mode: Mode,
        is_open: bool,
        may_hold: impl Fn(TransactionId) -> bool,
    ) -> Option<(TransactionId, Stamp, Mode)> {
        if self.held.values().any(|modes| modes.conflict(mode)) {
            return None;
        }
        let (age, id) = self.first_of(mode, may_hold)?;
        let contested = self.queues.keys().any(|other| !other.compatible(mode));
        let eldest = !self.is_wanted_by_older(age, Modes::default().with(mode));
        (!contested || eldest || is_open).then_some((id, age, mode))
    }

    /// True while the phase takes members beside waiting transactions.
    fn is_open(&self, phase: &Phase, now: Instant, phasing: Phasing, mutants: Mutants) -> bool {
        let in_time = phase.members < phasing.members && now - phase.began < phasing.lasts;
        in_time || mutants.has(Mutant::PhaseWithoutEnd)
    }

    /// The oldest one of a queue that may hold the lock.
    fn first_of(
        &self,
        mode: Mode,
        may_hold: impl Fn(TransactionId) -> bool,
    ) -> Option<(Stamp, TransactionId)> {
        let modes = Modes::default().with(mode);
        let can =
            |(age, id): &&(Stamp, TransactionId)| may_hold(*id) || !self.is_wanted_by_older(*age, modes);
        self.queues.get(&mode)?.iter().find(can).copied()
    }

    /// Which mode has the free lock: the one whose phase it is while that is open, else the next one in turn.
    fn turn(
        &mut self,
        now: Instant,
        phasing: Phasing,
        mutants: Mutants,
        may_hold: impl Fn(TransactionId) -> bool,
    ) -> Option<Mode> {
        let ready = |mode: &Mode| self.first_of(*mode, &may_hold).is_some();
        let Some(last) = self.phase else { return self.queues.keys().copied().find(ready) };
        if self.is_open(&last, now, phasing, mutants) && ready(&last.mode) {
            return Some(last.mode);
        }
        let after = self.queues.keys().copied().filter(|mode| *mode > last.mode);
        let before = self.queues.keys().copied().filter(|mode| *mode < last.mode);
        let again = Some(last.mode).filter(|_| !mutants.has(Mutant::SignalOthersOnly));
        let next = after.chain(before).chain(again).find(ready)?;
        self.phase = None;
        Some(next)
    }
}
