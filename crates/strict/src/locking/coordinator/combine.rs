//! Combining (Claret, 4.3): transactions of this coordinator that share what another one finds out under its locks, and
//! commit with it. Decision 0031.
//!
//! ```text
//!   host:   asks leaders ------ has its answers --> takes its guests in --> Prepare: one part for all --> replies of all
//!   guest:       comes, waits ----------------------^  combined: a member, one after the other; its locks are the host's
//!                                                   \- not combined, or the host was refused: asks for itself
//!   member: ---------------------------------- refused: all run again as one ([`super::gather`]), then each by itself
//! ```
//!
//! # Invariants
//! - A guest has sent no request, and is a transaction of the coordinator like any other: whatever becomes of its host,
//!   it goes on by itself, at the latest when its patience ends.
//! - No transaction joins once the host has begun to commit: leaders may have its parts by then.
//! - Locks protect what members saw from before their host's answers until its end, and members joined before the host
//!   began to commit: each could have run right after the one before it.
//! - Members have no message, lock, vote or outcome of their own: their host's are theirs.

#[cfg(debug_assertions)]
mod mutants;

use super::share::{may_share, share};
use super::transaction::{Phase, Transaction, is_alone};
use super::{Coordinator, Step};
use crate::Mutant;
use crate::coordinator::{CallStep, Progress, Purpose};
use crate::locking::message::Timer;
use crate::locking::options::{Combining, Concurrency};
use datatypes::Mode;
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Instant;

/// How many hosts of a key are looked at.
const LOOKED_AT: usize = 8;
/// A transaction of more steps neither joins nor is joined.
const STEPS: usize = 16;

/// A transaction's keys, each with the mode of lock that is enough for all it does there.
pub(super) type LockSet = BTreeMap<CompactKey, Mode>;

/// A transaction that others may join, or that has begun to commit.
#[derive(Debug)]
pub(super) struct Host {
    pub wants: LockSet,
    /// It has not begun to commit.
    open: bool,
    /// It has sent no request yet: a transaction that would have to wait for it, or together with it, becomes a part of
    /// it.
    pub gathers: bool,
    /// Those that wait for its answers, in the order in which they came.
    guests: Vec<u64>,
    /// Those that wait for its end.
    pub followers: Vec<u64>,
}

/// Who may combine with whom, by the numbers of transactions.
#[derive(Debug, Default)]
pub(super) struct Combiner {
    pub hosts: BTreeMap<u64, Host>,
    by_key: BTreeMap<CompactKey, SmallVec<[u64; 2]>>,
    /// Those whose wait is over.
    released: Vec<u64>,
    /// How many have committed with another one.
    combined: u64,
}

impl Combiner {
    /// Others may join from now on.
    fn open(&mut self, number: u64, wants: LockSet) {
        for key in wants.keys() {
            self.by_key.entry(key.clone()).or_default().push(number);
        }
        let (guests, followers) = (Vec::new(), Vec::new());
        self.hosts.insert(number, Host { wants, open: true, gathers: false, guests, followers });
    }

    /// The hosts of a key that came last.
    pub(super) fn of_key(&self, key: &CompactKey) -> impl Iterator<Item = (u64, &Host)> {
        let numbers = self.by_key.get(key).into_iter().flatten().rev().take(LOOKED_AT);
        numbers.filter_map(|number| Some((*number, self.hosts.get(number)?)))
    }

    /// Hosts that have all of these keys, of those of one key that came last.
    fn of_keys<'c>(&'c self, wants: &'c LockSet) -> impl Iterator<Item = (u64, &'c Host)> {
        let hosts = wants.keys().next().into_iter().flat_map(|key| self.of_key(key));
        hosts.filter(|(_, host)| wants.keys().all(|key| host.wants.contains_key(key)))
    }

    /// One that may be joined.
    fn joinable(&self, wants: &LockSet, limits: Combining) -> Option<u64> {
        let has_room = |host: &Host| host.open && !host.gathers && host.guests.len() + 1 < limits.members;
        self.of_keys(wants).find(|(_, host)| has_room(host)).map(|(number, _)| number)
    }

    /// One that is being committed.
    fn committing(&self, wants: &LockSet) -> Option<u64> {
        self.of_keys(wants).find(|(_, host)| !host.open).map(|(number, _)| number)
    }

    /// A host that gathers wants these too.
    pub(super) fn extend(&mut self, number: u64, wants: &LockSet) {
        let Some(host) = self.hosts.get_mut(&number) else { return };
        for (key, mode) in wants {
            if !host.wants.contains_key(key) {
                self.by_key.entry(key.clone()).or_default().push(number);
            }
            want(&mut host.wants, key, *mode);
        }
    }

    /// It begins to commit: who waits for its answers?
    fn close(&mut self, number: u64) -> Vec<u64> {
        let Some(host) = self.hosts.get_mut(&number) else { return Vec::new() };
        host.open = false;
        std::mem::take(&mut host.guests)
    }

    /// A guest waits no more.
    fn leave(&mut self, host: u64, guest: u64) {
        if let Some(host) = self.hosts.get_mut(&host) {
            host.guests.retain(|number| *number != guest);
        }
    }

    /// It has ended, or runs again: no transaction waits for it any more.
    pub(super) fn release(&mut self, number: u64) {
        let Some(host) = self.hosts.remove(&number) else { return };
        for key in host.wants.keys() {
            if let Some(numbers) = self.by_key.get_mut(key) {
                numbers.retain(|other| *other != number);
                if numbers.is_empty() {
                    self.by_key.remove(key);
                }
            }
        }
        self.released.extend(host.guests);
        self.released.extend(host.followers);
    }
}

/// Adds a mode to what is wanted.
pub(super) fn want(wants: &mut LockSet, key: &CompactKey, mode: Mode) {
    let wanted = wants.entry(key.clone()).or_insert(mode);
    *wanted = wanted.and(mode);
}

impl Coordinator {
    /// How many transactions have committed with another one.
    pub fn combined(&self) -> u64 {
        self.protocol.combiner.combined
    }

    /// The limits of combining, if this transaction takes part in it: one request on few keys.
    fn combining(&self, transaction: &Transaction) -> Option<Combining> {
        let takes_part = self.options.concurrency == Concurrency::Locking
            && transaction.purpose == Purpose::Auto
            && transaction.watches.is_empty()
            && !transaction.steps.list().is_empty()
            && !transaction.steps.has_keyset()
            && (transaction.steps.list().len() <= STEPS || !transaction.own.members.is_empty());
        self.options.combining.filter(|_| takes_part)
    }

    /// A transaction begins: with another one, or by itself. A refused transaction sends its own requests.
    pub(super) fn join_or_advance(&mut self, transaction: Transaction, step: &mut Step<'_, '_>) {
        let Some(limits) = self.combining(&transaction) else { return self.set_out(transaction, step) };
        let wants = self.wants(&transaction);
        let is_first = transaction.retries == 0;
        #[cfg(debug_assertions)]
        if is_first && self.options.mutants.has(Mutant::CombineAfterCommitBegan) {
            return self.join_too_late(transaction, wants, step);
        }
        let host = self.protocol.combiner.joinable(&wants, limits).filter(|_| is_first);
        if let Some(host) = host.filter(|host| self.suits(&transaction, *host, limits, step)) {
            return self.visit(transaction, host, limits.patience, step);
        }
        self.board_or_lead(transaction, wants, limits, step);
    }

    /// A transaction that no host will combine becomes a part of a gathering one, or goes on by itself.
    fn board_or_lead(
        &mut self,
        transaction: Transaction,
        wants: LockSet,
        limits: Combining,
        step: &mut Step<'_, '_>,
    ) {
        match self.boardable(&transaction, &wants, limits, step) {
            Some(host) => self.board(transaction, host, &wants, step),
            None => self.lead(transaction, wants, limits, step),
        }
    }

    /// True if the host's answers are likely to give all that a transaction needs, and the host has about as much
    /// time.
    fn suits(
        &self,
        transaction: &Transaction,
        host: u64,
        limits: Combining,
        step: &mut Step<'_, '_>,
    ) -> bool {
        let host = self.transactions.get(&host);
        let Some(host) = host.filter(|host| host.deadline + limits.patience >= transaction.deadline) else {
            return false;
        };
        let mut likely = |wanted: &CallStep| {
            let same = |held: &&CallStep| {
                held.call.key == wanted.call.key && !matches!(held.progress, Progress::Deferred)
            };
            let mut held = host.steps.list().iter().filter(same);
            held.any(|held| may_share(&held.call, &wanted.call, step.random))
        };
        transaction.steps.list().iter().all(&mut likely)
    }

    fn visit(
        &mut self,
        mut transaction: Transaction,
        host: u64,
        patience: Duration,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(host) = self.protocol.combiner.hosts.get_mut(&host) {
            host.guests.push(transaction.id.number);
        }
        transaction.phase = Phase::Visiting { host, until: step.now.instant + patience };
        self.keep(transaction, step);
    }

    /// A transaction goes on by itself, and others may join it. One that has nothing to find out would give nobody the
    /// time for that: it waits for the end of one on its keys that is being committed, as long as it would not
    /// be the only one anyway.
    fn lead(
        &mut self,
        mut transaction: Transaction,
        mut wants: LockSet,
        limits: Combining,
        step: &mut Step<'_, '_>,
    ) {
        if is_alone(&transaction) || self.is_one_message(&transaction) {
            // A leader that has answered it holds nothing for it.
            return self.set_out(transaction, step);
        }
        self.leave_last(&mut transaction);
        for (_, call) in transaction.steps.deferred() {
            wants.remove(&call.key);
        }
        let number = transaction.id.number;
        let ahead = self.protocol.combiner.in_the_way(number, &wants).filter(|_| !self.leaves_shards());
        let busy = self.protocol.combiner.committing(&wants);
        let busy = busy.filter(|_| ahead.is_none() && self.is_unread(&transaction));
        let busy = busy.filter(|busy| self.suits(&transaction, *busy, limits, step));
        self.protocol.combiner.open(number, wants);
        match (ahead, busy) {
            (Some(ahead), _) => self.gather(transaction, ahead, step.now.instant + limits.patience, step),
            (None, Some(busy)) => self.follow(transaction, busy, step.now.instant + limits.gather, step),
            (None, None) => self.start(transaction, step),
        }
    }

    /// Waits for another one's end.
    pub(super) fn follow(
        &mut self,
        mut transaction: Transaction,
        ahead: u64,
        until: Instant,
        step: &mut Step<'_, '_>,
    ) {
        if let Some(host) = self.protocol.combiner.hosts.get_mut(&ahead) {
            host.followers.push(transaction.id.number);
        }
        transaction.phase = Phase::Gathering { until };
        self.keep(transaction, step);
    }

    fn is_unread(&self, transaction: &Transaction) -> bool {
        (0..transaction.steps.list().len()).all(|index| transaction.steps.is_unread(index, &self.expiring))
    }

    /// A guest, or one that has waited to be joined, goes on by itself.
    pub(super) fn go_by_itself(&mut self, mut transaction: Transaction, step: &mut Step<'_, '_>) {
        if let Phase::Visiting { host, .. } = transaction.phase {
            self.protocol.combiner.leave(host, transaction.id.number);
            transaction.phase = Phase::Executing;
            (transaction.began, transaction.own.signed) = (step.now.instant, step.now.instant);
            return match self.combining(&transaction) {
                Some(limits) => {
                    let wants = self.wants(&transaction);
                    self.board_or_lead(transaction, wants, limits, step)
                }
                None => self.set_out(transaction, step),
            };
        }
        if let Some((ahead, until)) = self.still_in_the_way(&transaction, step.now.instant) {
            return self.follow(transaction, ahead, until, step);
        }
        transaction.phase = Phase::Executing;
        (transaction.began, transaction.own.signed) = (step.now.instant, step.now.instant);
        self.start(transaction, step);
    }

    /// Lets those go on whose wait is over; false if there are none.
    pub(super) fn run_released(&mut self, step: &mut Step<'_, '_>) -> bool {
        let released = std::mem::take(&mut self.protocol.combiner.released);
        for number in &released {
            let waits =
                |run: &Transaction| matches!(run.phase, Phase::Visiting { .. } | Phase::Gathering { .. });
            if self.transactions.get(number).is_some_and(|transaction| waits(transaction))
                && let Some(transaction) = self.take(*number)
            {
                self.go_by_itself(transaction, step);
            }
        }
        !released.is_empty()
    }

    /// A host has its answers and begins to commit: its guests become members, one after the other, or leave.
    pub(super) fn take_in(&mut self, host: &mut Transaction, step: &mut Step<'_, '_>) {
        for number in self.protocol.combiner.close(host.id.number) {
            if let Some(guest) = self.take(number) {
                self.take_one_in(host, guest, step);
            }
        }
    }

    fn take_one_in(&mut self, host: &mut Transaction, guest: Transaction, step: &mut Step<'_, '_>) {
        let number = guest.id.number;
        if share(&mut host.steps, &guest.steps, host.now_millis, &self.expiring, step.random) {
            step.out.disarm(Timer::Transaction { number });
            host.own.members.push(guest);
        } else {
            self.protocol.combiner.released.push(number);
            self.keep(guest, step);
        }
    }

    /// The coordinator separates the host from its members again: their common commit failed.
    pub(super) fn part_with(&mut self, host: &mut Transaction) -> Vec<Transaction> {
        self.protocol.combiner.release(host.id.number);
        let members = std::mem::take(&mut host.own.members);
        host.steps.split_off(host.steps.list().len() - steps_of(&members));
        if self.options.mutants.has(Mutant::OrphanSharers) { Vec::new() } else { members }
    }

    /// A host has committed, and its members with it: each gets its own results.
    pub(super) fn reply_all(&mut self, mut host: Transaction, step: &mut Step<'_, '_>) {
        let members = std::mem::take(&mut host.own.members);
        self.protocol.combiner.combined += members.len() as u64;
        let own = host.steps.list().len() - steps_of(&members);
        let mut results = host.steps.split_off(own).into_iter().map(|step| step.progress);
        self.reply_results(host, step);
        for mut member in members {
            if self.options.mutants.has(Mutant::MemberCountedTwice) {
                self.run(member, step);
                continue;
            }
            let steps = member.steps.list().len();
            let own = results.by_ref().take(steps).enumerate();
            own.for_each(|(index, result)| member.steps.set(index, result));
            self.reply_results(member, step);
        }
    }
}

/// How many steps members have.
fn steps_of(members: &[Transaction]) -> usize {
    members.iter().map(|member| member.steps.list().len()).sum()
}
