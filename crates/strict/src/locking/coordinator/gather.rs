//! Gathering (Claret, 4.3: "merged lock sets"): transactions of this coordinator that would have to wait for one another
//! become one before they ask for anything. Decision 0031.
//!
//! ```text
//!   ahead:   asks leaders --- Prepare --- its end
//!   host:        comes, is in conflict: gathers --> one question to every leader, all its locks --> Prepare --> replies of all
//!   riders:          come, would wait for either --^  steps behind the host's: whoever comes now gathers anew
//! ```
//!
//! A [combined](super::combine) transaction gets its results from another one's answers, so its keys must be among that
//! one's keys. Here the steps of all are evaluated one transaction after the other, as those of one `MULTI` are, and
//! any keys will do.
//!
//! # Invariants
//! - A gathering transaction has sent no request and holds no lock: no transaction waits for it at a leader.
//! - A group asks for each lock once, in a mode that is enough for all of its steps on that key: it never holds one mode
//!   while it waits for another one on the same key.
//! - A group that is refused runs again as a group, as old as it is; what is refused all the time falls apart.

use super::combine::{Combiner, Host, LockSet, want};
use super::share::{may_share, tell};
use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::coordinator::{CallStep, Progress, Steps};
use crate::locking::leader::claim_of_unread;
use crate::locking::message::Timer;
use crate::locking::options::Combining;
use datatypes::{Claim, Mode, Operation};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, Reader};

/// A group has no more steps.
const STEPS: usize = 256;
/// A group that was refused so often splits into its members. Until then it retains its age and so gets its locks in
/// the end; members that run separately would delay the next group until that splits too, and no group would ever form
/// again.
const TOGETHER: u32 = 64;

/// What a transaction that asks for its locks first need not ask for, and what it asks for at once.
#[derive(Debug, Default)]
pub struct LockPlan {
    /// Steps without an evaluation whose lock another step asks for.
    spared: BTreeSet<usize>,
    /// Keys that are needed in several modes.
    written: BTreeSet<CompactKey>,
}

impl LockPlan {
    /// True if the coordinator sends no request for this step unless the step has to be evaluated.
    pub(super) fn spares(&self, index: usize) -> bool {
        self.spared.contains(&index)
    }

    /// True if the key is locked in `write`, whatever the step needs.
    pub(super) fn writes(&self, key: &CompactKey) -> bool {
        self.written.contains(key)
    }
}

impl Combiner {
    /// A transaction that is in the way of what is wanted, and has begun or came before.
    pub(super) fn in_the_way(&self, number: u64, wants: &LockSet) -> Option<u64> {
        let ahead = |key: &CompactKey, mode: Mode| {
            let mut hosts = self.of_key(key).filter(|(other, host)| match host.gathers {
                true => *other < number,
                false => *other != number,
            });
            let opposes = |host: &Host| host.wants.get(key).is_some_and(|held| !held.compatible(mode));
            hosts.find(|(_, host)| opposes(host)).map(|(other, _)| other)
        };
        wants.iter().find_map(|(key, mode)| ahead(key, *mode))
    }

    /// One that gathers on a key where these wants would have to wait for anybody.
    fn gathering(&self, wants: &LockSet, may_board: impl Fn(u64) -> bool) -> Option<u64> {
        let waits = |key: &CompactKey, mode: Mode| {
            let mut hosts = self.of_key(key);
            hosts.any(|(_, host)| host.wants.get(key).is_some_and(|held| !held.compatible(mode)))
        };
        let contended = wants.iter().filter(|(key, mode)| waits(key, **mode));
        let mut groups = contended.flat_map(|(key, _)| self.of_key(key)).filter(|(_, host)| host.gathers);
        groups.find(|(number, _)| may_board(*number)).map(|(number, _)| number)
    }
}

impl Coordinator {
    /// The locks that a transaction will ask for.
    pub(super) fn wants(&self, transaction: &Transaction) -> LockSet {
        let mut wants = LockSet::new();
        for (index, CallStep { call, .. }) in transaction.steps.list().iter().enumerate() {
            let claim = self.claimed(&transaction.steps, index);
            want(&mut wants, &call.key, claim.mode);
        }
        wants
    }

    fn claimed<'s>(&self, steps: &'s Steps, index: usize) -> Claim<'s> {
        let operation = Operation::decode(&mut Reader::new(&steps.list()[index].call.operation));
        let claim = match operation {
            Ok(operation) if steps.is_unread(index, &self.expiring) => claim_of_unread(&operation),
            Ok(operation) if !steps.observes_whole(index, &self.expiring) => operation.claim(),
            _ => Mode::Write.into(),
        };
        match self.options.locks.mode(claim.mode) {
            mode if mode == claim.mode => claim,
            mode => mode.into(),
        }
    }

    /// A group that a transaction can become a part of, where it would wait otherwise.
    pub(super) fn boardable(
        &self,
        transaction: &Transaction,
        wants: &LockSet,
        limits: Combining,
        step: &mut Step<'_, '_>,
    ) -> Option<u64> {
        let may_board = |number: u64| {
            self.transactions.get(&number).is_some_and(|host| {
                host.own.members.len() + 1 < limits.members
                    && host.steps.list().len() + transaction.steps.list().len() <= STEPS
                    && host.deadline + limits.patience >= transaction.deadline
            })
        };
        if transaction.retries > 0 {
            return None;
        }
        let group = self.protocol.combiner.gathering(wants, may_board)?;
        let host = self.transactions.get(&group)?;
        // A step that has to be evaluated after another one's answer would hold up all.
        let mut alone = transaction.steps.list().iter().enumerate().filter(|(index, wanted)| {
            !transaction.steps.is_unread(*index, &self.expiring) && !wanted.call.is_read()
        });
        let shared = alone.all(|(_, wanted)| {
            let mut own = host.steps.before(host.steps.list().len(), &wanted.call.key);
            own.all(|other| may_share(&other.call, &wanted.call, step.random))
        });
        shared.then_some(group)
    }

    /// Becomes a part of a group.
    pub(super) fn board(
        &mut self,
        mut rider: Transaction,
        group: u64,
        wants: &LockSet,
        step: &mut Step<'_, '_>,
    ) {
        let Some(mut host) = self.take(group) else { return self.set_out(rider, step) };
        self.protocol.combiner.extend(group, wants);
        host.steps.push(rider.steps.list().iter().map(|step| step.call.clone()));
        rider.phase = Phase::Executing;
        step.out.disarm(Timer::Transaction { number: rider.id.number });
        host.own.members.push(rider);
        self.keep(host, step);
    }

    /// Waits for the end of another one, and takes in whoever would wait for either.
    pub(super) fn gather(
        &mut self,
        mut transaction: Transaction,
        ahead: u64,
        until: Instant,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(host) = self.protocol.combiner.hosts.get_mut(&transaction.id.number) {
            host.gathers = true;
        }
        transaction.own.locks_first = true;
        self.follow(transaction, ahead, until, step);
    }

    /// Whom a transaction that has gathered has to wait for still, and until when.
    pub(super) fn still_in_the_way(&self, transaction: &Transaction, now: Instant) -> Option<(u64, Instant)> {
        let Phase::Gathering { until } = transaction.phase else { return None };
        let number = transaction.id.number;
        let host = self.protocol.combiner.hosts.get(&number).filter(|host| host.gathers && now < until)?;
        Some((self.protocol.combiner.in_the_way(number, &host.wants)?, until))
    }

    /// The coordinator sends the questions that are due.
    pub(super) fn start(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if let Some(host) = self.protocol.combiner.hosts.get_mut(&transaction.id.number) {
            host.gathers = false;
        }
        transaction.now_millis = step.now.wall.as_millis();
        if transaction.own.locks_first {
            self.plan(&mut transaction, step);
        }
        self.advance(transaction, step);
    }

    /// Says what each key is locked for, and evaluates at once what needs no question of its own.
    fn plan(&self, transaction: &mut Transaction, step: &mut Step<'_, '_>) {
        let mut by_key: BTreeMap<CompactKey, Vec<usize>> = BTreeMap::new();
        let immediate = |step: &CallStep| !matches!(step.progress, Progress::Deferred);
        let steps = transaction.steps.list().iter().enumerate().filter(|(_, step)| immediate(step));
        for (index, CallStep { call, .. }) in steps {
            by_key.entry(call.key.clone()).or_default().push(index);
        }
        let mut plan = LockPlan::default();
        for (key, indices) in by_key {
            let claims = indices.iter().map(|index| self.claimed(&transaction.steps, *index));
            let claims: SmallVec<[Claim<'_>; 4]> = claims.collect();
            let one_mode = claims.iter().all(|claim| claim.mode == claims[0].mode);
            if !one_mode {
                plan.written.insert(key);
            } else if claims.iter().any(|claim| !claim.elements.is_empty()) {
                // Each asks for its own elements.
                continue;
            }
            let (unread, evaluated): (Vec<usize>, Vec<usize>) =
                indices.iter().partition(|index| transaction.steps.is_unread(**index, &self.expiring));
            let asks = usize::from(evaluated.is_empty());
            plan.spared.extend(unread.into_iter().skip(asks));
        }
        for index in &plan.spared {
            let steps = &mut transaction.steps;
            let waits =
                |other: &CallStep| !matches!(other.progress, Progress::Done(_)) && !other.call.is_read();
            let is_next = !steps.before(*index, &steps.list()[*index].call.key).any(waits);
            if is_next {
                steps.evaluate_here(*index, transaction.now_millis, &self.expiring, step.random);
            }
        }
        transaction.own.plan = plan;
    }

    /// Evaluates a step of a group by what an earlier one has found out.
    pub(super) fn tell_own(
        &self,
        transaction: &mut Transaction,
        index: usize,
        step: &mut Step<'_, '_>,
    ) -> bool {
        if transaction.own.members.is_empty() {
            return false;
        }
        let steps = &transaction.steps;
        let call = steps.list()[index].call.clone();
        let Some(done) = tell(steps, index, &call, transaction.now_millis, &self.expiring, step.random)
        else {
            return false;
        };
        transaction.steps.set(index, Progress::Done(done));
        true
    }

    /// True if a group that was refused runs again as it is.
    pub(super) fn stays_together(&self, transaction: &Transaction) -> bool {
        !transaction.own.members.is_empty()
            && !transaction.is_unheard()
            && !self.options.mutants.has(Mutant::OrphanSharers)
            && transaction.retries < self.options.retries.min(TOGETHER)
    }
}
