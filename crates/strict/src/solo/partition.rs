//! One partition: its state, its inputs and its timer.

use super::keyset::Keyset;
use super::undo::Unlogged;
use super::watches::Watches;
use mvcc::{Choice, DeferredDrop, Store, Tracked};
use protocol::{Durability, Input, Now, Outputs, Protocol, Request};
use std::time::Duration;
use types::{HashSeed, HybridClock, Malformed, Rng, Timestamp};

use super::record::Record;

/// How a partition is set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How durable an effect is before its reply leaves.
    pub durability: Durability,
    /// Hashes the keys.
    pub seed: HashSeed,
}

/// What a partition can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// Delete expired keys that nobody has met, fold histories, free removed storage.
    Housekeeping,
}

/// How long housekeeping waits when it has nothing left to do.
const HOUSEKEEPING_EVERY: Duration = Duration::from_millis(100);
/// How long it waits when it has stopped in the middle.
const HOUSEKEEPING_PAUSE: Duration = Duration::from_millis(1);
/// How many expired keys one turn deletes.
const EXPIRED_PER_TURN: usize = 200;
/// How many histories one turn folds.
const FOLDED_PER_TURN: usize = 500;
/// How many removed records one turn frees.
const FREED_PER_TURN: usize = 2000;

/// See the module's documentation.
pub struct Solo {
    options: Options,
    pub(super) clock: HybridClock,
    pub(super) store: Store<Timestamp>,
    pub(super) watches: Watches,
    pub(super) unlogged: Unlogged,
    /// While the log is failed, writes are refused.
    pub(super) fenced: bool,
    /// The oldest snapshot that a transaction may read.
    pub(super) lease: Option<Timestamp>,
    /// What open transactions must know of the keys that came and went.
    pub(super) keyset: Keyset,
    /// The first record that recovery could not read.
    pub(super) unreadable: Option<Malformed>,
    /// Expired keys deleted since the last call, if the caller wants them.
    pub(super) expired: Option<Vec<Box<[u8]>>>,
    /// A transaction works on it that may yet fail; see [`super::Lent`].
    pub(super) is_lent: bool,
    /// What was removed and is not freed yet.
    pub(super) freed: Vec<DeferredDrop<Timestamp>>,
    /// The snapshot that a checkpoint shows; `None`: each key as it is when its turn comes.
    pub(super) checkpoint_at: Option<Timestamp>,
}

impl Solo {
    /// An empty partition. Feed it recovery, then requests.
    pub fn new(options: Options) -> Self {
        Solo {
            clock: HybridClock::new(Duration::from_secs(60)),
            store: Store::new(options.seed, Timestamp::ZERO),
            watches: Watches::default(),
            unlogged: Unlogged::default(),
            fenced: false,
            lease: None,
            keyset: Keyset::default(),
            expired: None,
            is_lent: false,
            freed: Vec::new(),
            checkpoint_at: None,
            unreadable: None,
            options,
        }
    }

    /// How many keys it holds.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// True without keys.
    pub fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    /// How many keys have a deadline of their own.
    pub fn deadlines(&self) -> usize {
        self.store.dated()
    }

    /// About how many bytes it occupies, without what is about to be freed.
    pub fn memory(&self) -> usize {
        self.store.memory()
    }

    /// Of that, what the partition frees when no older snapshot is read any more.
    pub fn retained(&self) -> usize {
        self.store.retained()
    }

    /// Notes from now on, or no more, which keys it deletes because they have expired.
    #[inline]
    pub fn note_expired(&mut self, notes: bool) {
        if self.expired.is_some() != notes {
            self.expired = notes.then(Vec::new);
        }
    }

    /// What it has noted since the last call.
    pub fn take_expired(&mut self) -> Vec<Box<[u8]>> {
        self.expired.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Tracks the use of keys from now on, or no more.
    pub fn track(&mut self, tracked: Option<Tracked>) {
        self.store.track(tracked);
    }

    /// The key that goes next; `None` if no key may go.
    pub fn victim(&self, choice: Choice, now: Now, random: &mut Rng) -> Option<&[u8]> {
        self.store.victim(choice, now.wall.as_millis(), random)
    }

    /// The state of its keys, to look at.
    pub fn store(&self) -> &Store<Timestamp> {
        &self.store
    }

    /// How durable its effects are.
    pub fn durability(&self) -> Durability {
        self.options.durability
    }

    /// Gives new effects this durability from now on.
    pub fn set_durability(&mut self, durability: Durability) {
        self.options.durability = durability;
    }

    /// True if its effects go to the log.
    #[inline]
    pub(super) fn is_logged(&self) -> bool {
        self.options.durability != Durability::Volatile
    }

    /// True while the log is failed and writes are refused.
    pub fn is_fenced(&self) -> bool {
        self.fenced
    }

    /// The greatest stamp given; while the partition is held, everything that comes is above it.
    pub(super) fn now(&mut self, now: Now) -> Timestamp {
        self.clock.read(now.wall)
    }

    /// Everything that comes is above `stamp`.
    pub(super) fn advance(&mut self, stamp: Timestamp) {
        self.clock.recover(stamp);
    }

    fn housekeeping(&mut self, now: Now, out: &mut Outputs<'_, Self>) {
        let now_millis = now.wall.as_millis();
        if !self.fenced {
            let expired = self.store.expired(now_millis, EXPIRED_PER_TURN);
            let expired: Vec<Box<[u8]>> = expired.map(Into::into).collect();
            for key in expired {
                self.settle_expiry(now, now_millis, self.store.hash(&key), &key, out);
            }
        }
        let mut left = self.store.fold_some(FOLDED_PER_TURN);
        if let Some(removed) = self.freed.last_mut() {
            if !removed.free_some(FREED_PER_TURN) {
                self.freed.pop();
            }
            left |= !self.freed.is_empty();
        }
        left |= !self.fenced && self.store.next_deadline().is_some_and(|at| at <= now_millis);
        let wait = if left { HOUSEKEEPING_PAUSE } else { HOUSEKEEPING_EVERY };
        out.arm(Timer::Housekeeping, now.instant + wait);
    }

    fn prefetch(&self, batch: &[Input<'_, Self>]) {
        let hashes = || {
            batch.iter().filter_map(|input| match input {
                Input::Request { request: Request::One { operation, .. }, .. } => Some(operation.hash),
                _ => None,
            })
        };
        hashes().for_each(|hash| self.store.prefetch_bucket(hash));
        hashes().for_each(|hash| self.store.prefetch_record(hash));
    }
}

impl Protocol for Solo {
    type Message = ();
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        if batch.len() > 1 {
            self.prefetch(batch);
        }
        for input in batch.drain(..) {
            match input {
                Input::Request { id, request } => self.on_request(now, id, &request, random, out),
                Input::Snapshot(chunk) => self.on_snapshot(chunk),
                Input::Recover(record) => self.on_recover(record),
                Input::Recovered { .. } => out.arm(Timer::Housekeeping, now.instant + HOUSEKEEPING_EVERY),
                Input::Timer(Timer::Housekeeping) => self.housekeeping(now, out),
                Input::Message { .. } | Input::PeerStarted { .. } => {}
            }
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        self.next_piece(cursor, chunk)
    }

    fn logged(&mut self, records: u64) {
        self.forget_logged(records);
    }

    fn log_failed(&mut self) -> bool {
        self.fenced = true;
        self.take_all_back();
        true
    }

    fn log_healed(&mut self) {
        self.fenced = false;
    }
}
