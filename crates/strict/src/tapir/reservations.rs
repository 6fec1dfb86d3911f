//! Reservations: a replica reserves keys for a transaction that was refused again and again (Corrections 12).
//!
//! That the oldest of those that are undecided is refused by none of the others is not enough for one that observes:
//! where others change its keys all the time, what it saw is old before it is judged, by what has been committed
//! meanwhile. So a transaction that was refused often asks with Prepare that the replica reserve its keys, should it be
//! refused once more, until it retries. Until it commits, or until its reservation ends, the replica delays conflicting
//! proposals of younger transactions. So what the transaction reads in its next run stays valid, except for what was
//! already in flight.
//!
//! Reservations cause no lasting deadlock. The older transaction may wait at another shard for a younger one that is
//! prepared there. So when the older one is prepared here and does not end soon, the replica judges the younger ones,
//! and refuses them as usual; and a proposal that has waited until the end of the first reservation that it met waits
//! for no other one, nor for a prolongation. Reservations do not delay older transactions, whose number only falls: so
//! a transaction that is refused for long enough becomes the oldest and commits. As with every wait, nothing is
//! recorded and safety does not depend on it. Nor does a proposal wait for a transaction that will not retry: one that
//! has come back without a reservation, or whose coordinator is silent.

use super::operation::{Part, Prepare};
use crate::validation::Stamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use types::{Incarnation, Instant, ProcessId, Timestamp, TransactionId};

/// A proposal waits for a holder that is prepared, or waits itself, for this fraction of the reserved time.
const ENDING: u32 = 12;

/// One transaction's reservation.
#[derive(Debug)]
struct Reservation {
    /// Its number in its latest run.
    group: TransactionId,
    part: Arc<Part>,
    until: Instant,
    /// Until when the younger ones wait for the end of one that is prepared here, or waits here itself.
    ends_by: Instant,
    waits: bool,
    /// Until when its coordinator is taken to live, if nothing more is heard of it.
    lives: Instant,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Reservations {
    /// By the age of the transaction that holds the reservation.
    reserved: BTreeMap<Stamp, Reservation>,
    /// The latest time until which delayed transactions wait.
    patience: BTreeMap<TransactionId, Instant>,
}

impl Reservations {
    /// Reserves the keys of a transaction, in place of the reservation of its earlier runs, while its coordinator
    /// gives a sign of life within every `patience`.
    pub(super) fn keep(
        &mut self,
        now: Instant,
        group: TransactionId,
        operation: &Prepare,
        patience: Duration,
    ) {
        self.reserved.retain(|_, reservation| reservation.until > now);
        if operation.keep.is_zero() {
            self.reserved.remove(&operation.age);
            return;
        }
        let (part, until) = (operation.part.clone(), now + operation.keep);
        let (ends_by, lives) = (now + operation.keep / ENDING, now + patience);
        self.reserved.insert(operation.age, Reservation { group, part, until, ends_by, waits: false, lives });
    }

    /// Something is heard of a process, which is now taken to live until then.
    pub(super) fn heard(&mut self, process: ProcessId, incarnation: Incarnation, lives: Instant) {
        let of = |reservation: &&mut Reservation| {
            (reservation.group.process, reservation.group.incarnation) == (process, incarnation)
        };
        self.reserved.values_mut().filter(of).for_each(|reservation| reservation.lives = lives);
    }

    /// The transaction waits here itself, after it has come again.
    pub(super) fn waits(&mut self, age: Stamp) {
        if let Some(reservation) = self.reserved.get_mut(&age) {
            reservation.waits = true;
        }
    }

    /// A transaction has ended; one that was refused may come again.
    pub(super) fn end(&mut self, group: TransactionId, refused: bool) {
        self.patience.remove(&group);
        self.reserved.retain(|_, reservation| refused || reservation.group != group);
        self.reserved
            .values_mut()
            .filter(|reservation| reservation.group == group)
            .for_each(|reservation| reservation.waits = false);
    }

    /// The age of the oldest transaction that a younger one's proposal has to wait for.
    pub(super) fn before(
        &mut self,
        now: Instant,
        group: TransactionId,
        operation: &Prepare,
        prepared: &BTreeMap<TransactionId, Prepare>,
    ) -> Option<Stamp> {
        let older =
            self.reserved.range(..operation.age).filter(|(_, reservation)| reservation.ends(prepared) > now);
        let mut against = older.filter(|(_, reservation)| conflict(&reservation.part, &operation.part));
        let (age, reservation) = against.next()?;
        (*self.patience.entry(group).or_insert(reservation.until) > now).then_some(*age)
    }

    /// Until when a proposal waits for the transaction of this age, as far as is known now; `None` if it does not.
    pub(super) fn ends(
        &self,
        now: Instant,
        group: TransactionId,
        age: Stamp,
        prepared: &BTreeMap<TransactionId, Prepare>,
    ) -> Option<Instant> {
        let patience = self.patience.get(&group)?;
        let end = self.reserved.get(&age)?.ends(prepared).min(*patience);
        Some(end).filter(|end| *end > now)
    }

    /// Forgets those that have waited in vain, and have not been heard of since.
    pub(super) fn forget(&mut self, now: Instant, after: Duration) {
        self.patience.retain(|_, until| *until + after > now);
    }
}

impl Reservation {
    fn ends(&self, prepared: &BTreeMap<TransactionId, Prepare>) -> Instant {
        let ends = if self.waits || prepared.contains_key(&self.group) { self.ends_by } else { self.until };
        ends.min(self.lives)
    }
}

/// True if the transactions of which these are parts may not both be prepared.
fn conflict(older: &Part, younger: &Part) -> bool {
    let changes = |part: &Part| part.flushes() || part.invocations.iter().any(|known| known.effect.is_some());
    if older.keyset.is_some() && changes(younger) || younger.keyset.is_some() && changes(older) {
        return true;
    }
    // What is yet to be prepared has been seen by nobody.
    let unseen = Stamp { at: Timestamp::MAX, transaction: TransactionId::default() };
    younger.invocations.iter().any(|invoked| {
        let Ok(access) = invoked.access() else { return false };
        older.undecided_on(&invoked.key, unseen).any(|other| other.is_in_the_way_of(&access))
    })
}

#[cfg(test)]
mod tests {
    use super::super::operation::Invoked;
    use super::*;
    use crate::validation::Observed;
    use datatypes::{Effect, Operation, register};

    const PATIENCE: Duration = Duration::from_millis(500);

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    fn prepare(age: u64, keep: u64, invoked: Invoked) -> Prepare {
        let part = Part { invocations: vec![invoked], ..Part::default() };
        let age = Stamp { at: Timestamp(age), transaction: id(age) };
        Prepare { at: Timestamp(100), age, keep: Duration::from_millis(keep), part: Arc::new(part) }
    }

    fn look(key: &[u8]) -> Invoked {
        let mut operation = Vec::new();
        Operation::Register(register::Operation::Get).encode(&mut operation);
        let observed = Some(Observed::new(Stamp::ZERO, []));
        Invoked { key: key.into(), operation: Some(operation.into()), effect: None, observed }
    }

    fn add(key: &[u8]) -> Invoked {
        let mut effect = Vec::new();
        Effect::Register(register::Effect::Add { by: 1 }).encode(&mut effect);
        Invoked { key: key.into(), operation: None, effect: Some(effect.into()), observed: None }
    }

    /// Milliseconds.
    fn at(millis: u64) -> Instant {
        Instant(millis * 1000)
    }

    #[test]
    fn younger_conflicting_proposals_wait_for_the_end_or_the_reserved_time() {
        let (mut reservations, nobody) = (Reservations::default(), BTreeMap::new());
        reservations.keep(at(0), id(5), &prepare(5, 24, look(b"a")), PATIENCE);
        let age = Stamp { at: Timestamp(5), transaction: id(5) };
        let waits = |reservations: &mut Reservations, now, operation: Prepare| {
            reservations.before(at(now), id(9), &operation, &nobody)
        };
        assert_eq!(waits(&mut reservations, 1, prepare(4, 0, add(b"a"))), None, "an older one");
        assert_eq!(waits(&mut reservations, 1, prepare(6, 0, add(b"b"))), None, "another key");
        assert_eq!(waits(&mut reservations, 1, prepare(6, 0, look(b"a"))), None, "they commute");
        assert_eq!(waits(&mut reservations, 24, prepare(6, 0, add(b"a"))), None, "its time is over");
        assert_eq!(waits(&mut reservations, 1, prepare(6, 0, add(b"a"))), Some(age));
        // It comes again, as 7.
        reservations.keep(at(20), id(7), &prepare(5, 24, look(b"a")), PATIENCE);
        reservations.end(id(5), true);
        assert_eq!(reservations.ends(at(23), id(9), age, &nobody), Some(at(24)), "the end of the first one");
        assert_eq!(
            waits(&mut reservations, 24, prepare(6, 0, add(b"a"))),
            None,
            "who has waited for the first"
        );
        assert_eq!(
            reservations.before(at(24), id(8), &prepare(6, 0, add(b"a")), &nobody),
            Some(age),
            "somebody else"
        );
        reservations.end(id(7), false);
        assert_eq!(reservations.ends(at(25), id(8), age, &nobody), None);
    }

    #[test]
    fn nobody_waits_for_one_that_has_come_without_asking_or_whose_coordinator_is_silent() {
        let (mut reservations, nobody) = (Reservations::default(), BTreeMap::new());
        let waits = |reservations: &mut Reservations, now, number| {
            reservations.before(at(now), id(number), &prepare(6, 0, add(b"a")), &nobody).is_some()
        };
        reservations.keep(at(0), id(5), &prepare(5, 2000, look(b"a")), PATIENCE);
        assert!(waits(&mut reservations, 1, 9));
        reservations.keep(at(2), id(7), &prepare(5, 0, look(b"a")), PATIENCE);
        assert!(!waits(&mut reservations, 3, 9), "it has come, and is not to be kept off from anything");
        reservations.keep(at(10), id(8), &prepare(5, 2000, look(b"a")), PATIENCE);
        let lives = |reservations: &mut Reservations, now: u64, incarnation| {
            reservations.heard(ProcessId::default(), Incarnation(incarnation), at(now) + PATIENCE);
        };
        lives(&mut reservations, 400, 0);
        assert!(waits(&mut reservations, 600, 10));
        lives(&mut reservations, 600, 1);
        assert!(!waits(&mut reservations, 901, 11), "it was another one that was heard of");
    }

    #[test]
    fn who_has_come_again_and_waits_here_is_waited_for_for_a_short_time() {
        let (mut reservations, nobody) = (Reservations::default(), BTreeMap::new());
        let operation = prepare(5, 24, look(b"a"));
        let waits = |reservations: &mut Reservations, now, number| {
            reservations.before(at(now), id(number), &prepare(6, 0, add(b"a")), &nobody).is_some()
        };
        reservations.keep(at(0), id(5), &operation, PATIENCE);
        reservations.waits(operation.age);
        assert!(
            waits(&mut reservations, 1, 9) && !waits(&mut reservations, 2, 10),
            "those may be waiting for each other"
        );
        reservations.end(id(5), true);
        assert!(waits(&mut reservations, 3, 11), "now it is awaited anew");
    }

    #[test]
    fn once_it_is_prepared_it_is_waited_for_for_a_short_time() {
        let operation = prepare(5, 24, look(b"a"));
        let mut reservations = Reservations::default();
        reservations.keep(at(0), id(5), &operation, PATIENCE);
        assert!(reservations.before(at(0), id(9), &prepare(6, 0, add(b"a")), &BTreeMap::new()).is_some());
        let prepared = BTreeMap::from([(id(5), operation.clone())]);
        assert_eq!(reservations.ends(at(1), id(9), operation.age, &prepared), Some(at(2)));
        assert_eq!(reservations.ends(at(2), id(9), operation.age, &prepared), None);
    }

    #[test]
    fn who_looks_at_the_whole_keyspace_keeps_off_all_that_change_it() {
        let (mut reservations, nobody) = (Reservations::default(), BTreeMap::new());
        let mut counting = prepare(5, 24, look(b"a"));
        Arc::make_mut(&mut counting.part).keyset = Some(Default::default());
        reservations.keep(at(0), id(5), &counting, PATIENCE);
        assert!(reservations.before(at(1), id(9), &prepare(6, 0, add(b"b")), &nobody).is_some());
        assert!(reservations.before(at(1), id(9), &prepare(6, 0, look(b"b")), &nobody).is_none());
    }
}
