//! Reads that wait, in protocols whose snapshots are as fresh as a clock: until everything that the snapshot shows is
//! installed here (Cure: the thesis, section 4.3.1; BPR: section 5.5). And votes that wait for a clock that follows no
//! other one, to propose a time above what their transaction has seen. Protocols of stable snapshots never wait.
//!
//! A read at time t is answered once no clock here stamps at or below t any more and nothing prepared below t is
//! undecided. What commits is known to readers at once: nothing waits for it to be applied, unless
//! `Options::applied_reads` says so. Where a snapshot shows what may not have been received (POCC), a read waits for that, too.

use super::Partition;
use crate::stable::message::{Message, Outcome};
use crate::stable::{Mutant, Node, Timer, Times};
use protocol::hosted::Waits;
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Instant, Rng, Timestamp, TransactionId};

/// What waits at a partition.
#[derive(Debug)]
pub(super) struct Waiting<S: Times> {
    /// Reads, by the time that must be installed.
    reads: BTreeMap<(Timestamp, u64), Held<S>>,
    /// Votes, by the time that the clock must have passed.
    votes: BTreeMap<(Timestamp, u64), Held<S>>,
    /// A waiting message, which its sender retries.
    known: BTreeSet<(TransactionId, u32)>,
    next: u64,
    waits: Waits,
}

/// A message, and since when it waits.
#[derive(Debug)]
struct Held<S: Times> {
    from: Address,
    message: Message<S>,
    since: Instant,
}

impl<S: Times> Default for Waiting<S> {
    fn default() -> Self {
        let (reads, votes, known) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Waiting { reads, votes, known, next: 0, waits: Waits::default() }
    }
}

/// A vote has no round: this is none of a read.
const VOTE: u32 = u32::MAX;

fn name<S: Times>(message: &Message<S>) -> Option<(TransactionId, u32)> {
    match message {
        Message::SliceReq { id, round, .. } => Some((*id, *round)),
        Message::Prepare { id, .. } => Some((*id, VOTE)),
        _ => None,
    }
}

impl<S: Times> Waiting<S> {
    fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    fn hold(&mut self, until: Timestamp, from: Address, message: Message<S>, since: Instant) {
        let Some(name) = name(&message).filter(|name| !self.known.contains(name)) else { return };
        self.known.insert(name);
        self.next += 1;
        let queue = if name.1 == VOTE { &mut self.votes } else { &mut self.reads };
        queue.insert((until, self.next), Held { from, message, since });
    }

    /// Takes the first read that may be answered when this is installed, and this has been received.
    fn take_read(
        &mut self,
        installed: Timestamp,
        is_received: impl Fn(S) -> bool,
        now: Instant,
    ) -> Option<Held<S>> {
        let is_due = |held: &Held<S>| match &held.message {
            Message::SliceReq { snapshot, .. } => is_received(*snapshot),
            _ => true,
        };
        let mut installed = self.reads.range(..=(installed, u64::MAX));
        let place = *installed.find(|(_, held)| is_due(held))?.0;
        let held = self.reads.remove(&place)?;
        self.forget(&held.message);
        self.waits.micros += (now - held.since).as_micros() as u64;
        Some(held)
    }

    /// Takes the first vote that waits for a time before this.
    fn take_vote(&mut self, clock: Timestamp) -> Option<Held<S>> {
        let first = self.votes.first_entry().filter(|first| first.key().0 < clock)?;
        let held = first.remove();
        self.forget(&held.message);
        Some(held)
    }

    fn forget(&mut self, message: &Message<S>) {
        if let Some(name) = name(message) {
            self.known.remove(&name);
        }
    }

    /// Drops what has waited for so long that its coordinator has given it up.
    fn drop_older(&mut self, now: Instant, patience: Duration) {
        self.reads.retain(|_, held| now - held.since < patience);
        self.votes.retain(|_, held| now - held.since < patience);
        let left = self.reads.values().chain(self.votes.values());
        self.known = left.filter_map(|held| name(&held.message)).collect();
    }
}

impl<S: Times> Partition<S> {
    /// How much reads have waited here.
    pub fn waits(&self) -> Waits {
        self.waiting.waits
    }

    /// How many reads wait.
    pub fn waiting_reads(&self) -> usize {
        self.waiting.reads.len()
    }

    /// What of it is installed for readers, and the log will not let fall.
    fn installed_for_readers(&mut self, now: Now, out: &mut Outputs<'_, Node<S>>) -> Timestamp {
        let bound = match self.options.applied_reads {
            true => self.installed,
            false => self.publishable(now),
        };
        let bound = self.promise(bound, out);
        S::installed(bound, crate::stable::oldest_of(self.received()))
    }

    /// True if everything that is needed of the region is decided (Corrections 41).
    fn is_decided(&mut self, now: Now, needed: Timestamp, out: &mut Outputs<'_, Node<S>>) -> bool {
        self.options.mutants.has(Mutant::LocalEntryIgnored) || self.installed_for_readers(now, out) >= needed
    }

    /// Holds a read back whose snapshot is not installed. Returns it otherwise.
    pub(super) fn when_installed(
        &mut self,
        now: Now,
        from: Address,
        request: Message<S>,
        snapshot: S,
        out: &mut Outputs<'_, Node<S>>,
    ) -> Option<Message<S>> {
        let needed = snapshot.needed(self.region);
        if needed == Timestamp::ZERO && self.has_received(snapshot) {
            return Some(request);
        }
        self.waiting.waits.reads += 1;
        if self.options.mutants.has(Mutant::ReadNotInstalled)
            || (self.is_decided(now, needed, out) && self.has_received(snapshot))
        {
            return Some(request);
        }
        if let (Message::SliceReq { id, round, .. }, true) = (&request, self.is_refusing()) {
            // What it waits for would have to be logged.
            let (id, round, outcome) = (*id, *round, Outcome::Refused { error: protocol::unlogged(None) });
            self.answer(from, Message::SliceResp { id, round, outcome, received: None }, out);
            return None;
        }
        self.waiting.waits.waited += 1;
        self.waiting.hold(needed, from, request, now.instant);
        self.wake_when_due(now, out);
        None
    }

    /// Holds a vote back whose proposal would not be above what its transaction has seen, if the clock follows no other
    /// one. Returns it otherwise; also if that is so far ahead that it is refused.
    pub(super) fn when_clock_passes(
        &mut self,
        now: Now,
        from: Address,
        request: Message<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) -> Option<Message<S>> {
        let Message::Prepare { highest, .. } = &request else { return Some(request) };
        let (highest, clock) = (*highest, Timestamp::from_wall(now.wall).max(self.clock.last()));
        let ahead = Duration::from_micros(highest.wall().0.saturating_sub(clock.wall().0));
        if S::FOLLOWS || highest < clock || ahead > self.options.clock_bound {
            return Some(request);
        }
        self.waiting.hold(highest, from, request, now.instant);
        self.wake_when_due(now, out);
        None
    }

    /// The clock alone may bring what the first ones wait for.
    fn wake_when_due(&self, now: Now, out: &mut Outputs<'_, Node<S>>) {
        let first = self.waiting.reads.keys().next().into_iter().chain(self.waiting.votes.keys().next());
        let clock = Timestamp::from_wall(now.wall);
        if let Some((until, _)) = first.filter(|(until, _)| *until >= clock).min() {
            let wait = Duration::from_micros(until.wall().0.saturating_sub(now.wall.0) + 1);
            out.arm(Timer::Waiting, now.instant + wait);
        }
    }

    /// Something has happened: what waited for it goes on.
    pub(super) fn go_on_waiting(&mut self, now: Now, random: &mut Rng, out: &mut Outputs<'_, Node<S>>) {
        if self.waiting.is_empty() {
            return;
        }
        let clock = Timestamp::from_wall(now.wall).max(self.clock.last());
        while let Some(held) = self.waiting.take_vote(clock) {
            self.on_prepare(now, held.from, held.message, random, out);
        }
        let installed = self.installed_for_readers(now, out);
        let installed =
            if self.options.mutants.has(Mutant::LocalEntryIgnored) { Timestamp::MAX } else { installed };
        let received = self.version_vector(Timestamp::MAX);
        loop {
            let mut waiting = std::mem::take(&mut self.waiting);
            let is_received = |snapshot: S| !snapshot.lacks(received) && self.is_left(snapshot);
            let held = waiting.take_read(installed, is_received, now.instant);
            self.waiting = waiting;
            let Some(held) = held else { break };
            self.answer_slice(now, held.from, held.message, random, out);
        }
        self.wake_when_due(now, out);
    }

    /// Coordinators ask no more for what is older.
    pub(super) fn drop_waiting(&mut self, now: Now) {
        self.waiting.drop_older(now.instant, self.options.give_up_after);
    }
}
