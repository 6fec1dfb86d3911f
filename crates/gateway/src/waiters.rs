//! Clients that wait for a key to hold something, and whose turn it is to try.
//!
//! A key that clients wait for has a line of them, in the order in which they came, at one process: its home among the
//! processes that share the line. A waiting client tries to take something when it has the line's turn, by an ordinary
//! operation: nothing here decides who gets what, so a turn too many or too late harms nobody.
//!
//! ```text
//!   waiter -- enter --> line --+-- the first of an empty line: turn
//!   writer -- signal --> line -+-- turn --> first waiter --+-- leave: it got something; the next one, if more may be left
//!                                                          +-- missed: it found nothing; it stays where it is
//! ```
//!
//! A stream has several lines, which are signalled together: its entries go to each reader, and to one consumer of each group.
//!
//! Whoever enters an empty line has the turn at once, after it entered, so that nothing that was written before is
//! overlooked; what is written later is signalled. Where a write may be visible later than its signal comes, or a signal may be
//! lost (the line *lags*), a turn that found nothing is followed by others, soon and then once a second.
//!
//! News from other processes counts for a while only, and they repeat it: a process that is gone is forgotten.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use types::{HashSeed, Instant, KeyspaceId, ProcessId, wire_enum, wire_struct};

/// More than anybody counts: turns go on until one finds nothing.
pub(crate) const UNTIL_NOTHING: u64 = u64::MAX >> 1;
/// How soon a turn follows one that found nothing where something is owed, at first; then four times that, and so on.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// How often the first of a line that lags has a turn without a signal.
const LAST_PAUSE: Duration = Duration::from_secs(1);
/// So many clients that wait, or lines, share that many attempts a second that nothing was signalled for.
pub(crate) const ATTEMPTS_PER_SECOND: u64 = 500;
/// A waiter of another process that keeps the turn for so long is forgotten, with all that its process has not repeated since.
const TURN_TIME: Duration = Duration::from_secs(2);
/// What another process has not repeated for so long is forgotten.
const FORGET_AFTER: Duration = Duration::from_secs(15);
/// A line of at most so many is searched waiter by waiter.
const FEW: usize = 8;
/// At most so often this process announces to others that its clients wait for a key, and for so long they believe it.
const TELL_EVERY: Duration = Duration::from_millis(1500);
const BELIEVED_FOR: Duration = Duration::from_secs(10);

/// What waiting clients hope to find at a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sought {
    /// A list.
    List,
    /// A sorted set.
    ScoredSet,
    /// Entries of a stream.
    Entries {
        /// Which of the key's lines: consumers of a group share one, a reader has one of its own. 0 for all of them.
        line: u64,
    },
}
wire_enum!(Sought { 0 => List, 1 => ScoredSet, 2 => Entries { line } });

/// What a line is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The key.
    pub key: Box<[u8]>,
    /// What is to be there.
    pub sought: Sought,
}
wire_struct!(Place { keyspace, key, sought });

impl Place {
    /// What writers signal and processes announce: it does not tell the lines of a stream apart.
    pub(crate) fn signalled(&self) -> Self {
        let sought = match self.sought {
            Sought::Entries { .. } => Sought::Entries { line: 0 },
            other => other,
        };
        Place { sought, ..self.clone() }
    }

    fn is_of_stream(&self) -> bool {
        matches!(self.sought, Sought::Entries { .. })
    }

    /// The process, of those that share the line, that keeps it: the same wherever they ask.
    pub(crate) fn home(&self, sharing: &[ProcessId], seed: HashSeed) -> Option<ProcessId> {
        let weight =
            |process: &ProcessId| HashSeed(seed.0.wrapping_add(u64::from(process.0))).hash(&self.key).0;
        sharing.iter().copied().max_by_key(|process| (weight(process), *process))
    }
}

/// A client that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Waiter {
    /// Its process.
    pub process: ProcessId,
    /// The gateway of the process that has its connection.
    pub worker: u16,
    /// Its number at the process.
    pub client: u64,
}
wire_struct!(Waiter { process, worker, client });

/// A waiter's turn to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The line.
    pub place: Place,
    /// Whose turn it is.
    pub waiter: Waiter,
}

/// The lines of which this process is the home, and what it knows of waiting clients beside. A process has one, which its
/// gateways share.
#[derive(Debug)]
pub struct Waiters {
    own: ProcessId,
    lines: BTreeMap<Place, Line>,
    /// When to look at which line.
    alarms: BTreeSet<(Instant, Place)>,
    /// What clients of other processes wait for, and until when that is believed.
    elsewhere: BTreeMap<Place, Instant>,
    /// When to forget what is not believed any more, and what was announced to others long ago.
    sweep_at: Option<Instant>,
    /// When this process announced to others that its clients wait for a place.
    announced: BTreeMap<Place, Instant>,
    /// The blocked clients of this process, and their gateways.
    blocked: BTreeMap<u64, u16>,
    /// Turns that are not announced yet.
    turns: Vec<Turn>,
    /// How many of the lines, and of what is waited for elsewhere, are of streams.
    streams: usize,
}

/// The clients that wait for a key, in order.
#[derive(Debug, Default)]
struct Line {
    /// By their numbers, which rise.
    order: VecDeque<Waiting>,
    /// The numbers of all of them, once there are more than a few.
    numbers: BTreeMap<Waiter, u64>,
    next_number: u64,
    /// A write may be visible later than its signal comes, or signals may be lost.
    lags: bool,
    /// How many elements may be there that no turn was for.
    owed: u64,
    turn: Option<Given>,
    /// How long the next pause is, and when it ends.
    pause: Duration,
    try_at: Option<Instant>,
}

#[derive(Debug)]
struct Waiting {
    number: u64,
    waiter: Waiter,
    seen_at: Instant,
}

/// A turn that is not over.
#[derive(Debug)]
struct Given {
    waiter: Waiter,
    at: Instant,
    /// Something was signalled since: what it finds may be older.
    is_stale: bool,
}

impl Waiters {
    /// Of this process: nobody waits.
    pub fn new(own: ProcessId) -> Self {
        Waiters {
            own,
            lines: BTreeMap::new(),
            alarms: BTreeSet::new(),
            elsewhere: BTreeMap::new(),
            sweep_at: None,
            announced: BTreeMap::new(),
            blocked: BTreeMap::new(),
            turns: Vec::new(),
            streams: 0,
        }
    }

    /// True if writers have somebody to tell.
    pub fn is_concerned(&self) -> bool {
        !self.lines.is_empty() || !self.elsewhere.is_empty()
    }

    /// True if somebody waits for entries of a stream, and is to hear when it is gone.
    pub fn awaits_streams(&self) -> bool {
        self.streams > 0
    }

    /// How many clients of this process are blocked.
    pub fn blocked(&self) -> usize {
        self.blocked.len()
    }

    /// A client of this process, of this gateway, is blocked from now on.
    pub(crate) fn begin(&mut self, client: u64, worker: u16) {
        self.blocked.insert(client, worker);
    }

    /// A client of this process is not blocked any more.
    pub(crate) fn end(&mut self, client: u64) {
        self.blocked.remove(&client);
    }

    /// The gateway of a client of this process, if it is blocked.
    pub(crate) fn gateway_of(&self, client: u64) -> Option<u16> {
        self.blocked.get(&client).copied()
    }

    /// True if somebody waits for this, as far as is known here.
    pub(crate) fn is_sought(&self, place: &Place) -> bool {
        self.lines_of(place).next().is_some() || self.elsewhere.contains_key(place)
    }

    /// The lines to which a signal for this place goes.
    fn lines_of(&self, place: &Place) -> impl Iterator<Item = &Place> + use<'_> {
        let last = if place.is_of_stream() { Sought::Entries { line: u64::MAX } } else { place.sought };
        let last = Place { sought: last, ..place.clone() };
        self.lines.range(place.clone()..=last).map(|(place, _)| place)
    }

    /// True if a line is here.
    pub(crate) fn has_line(&self, place: &Place) -> bool {
        self.lines.contains_key(place)
    }

    /// A waiter comes to the end of the line, or says again that it is there.
    pub(crate) fn enter(&mut self, place: &Place, waiter: Waiter, lags: bool, now: Instant) {
        if !self.lines.contains_key(place) {
            // Most lines have one waiter.
            let order = VecDeque::with_capacity(1);
            self.lines.insert(place.clone(), Line { order, lags, pause: FIRST_PAUSE, ..Line::default() });
            self.streams += usize::from(place.is_of_stream());
        }
        self.at(place, |line| line.enter(waiter, now));
    }

    /// So many elements were written that a waiter may take.
    pub(crate) fn signal(&mut self, place: &Place, elements: u64, now: Instant) {
        let places: Vec<Place> = self.lines_of(place).cloned().collect();
        places.iter().for_each(|place| self.at(place, |line| line.signal(elements, now)));
    }

    /// Anything may have been written, to this keyspace if one is named, that waiters may take.
    pub(crate) fn signal_all(&mut self, keyspace: Option<KeyspaceId>, now: Instant) {
        let of_keyspace = |place: &&Place| keyspace.is_none_or(|keyspace| place.keyspace == keyspace);
        let places: Vec<Place> = self.lines.keys().filter(of_keyspace).cloned().collect();
        places.iter().for_each(|place| self.at(place, |line| line.signal(UNTIL_NOTHING, now)));
    }

    /// A waiter has found nothing, and waits on.
    pub(crate) fn missed(&mut self, place: &Place, waiter: Waiter, now: Instant) {
        // All lines together have so many turns a second without a signal.
        let lines = u32::try_from(self.lines.len() as u64 / ATTEMPTS_PER_SECOND).unwrap_or(u32::MAX);
        let last_pause = LAST_PAUSE * lines.saturating_add(1);
        self.at(place, |line| line.missed(waiter, last_pause, now));
    }

    /// A waiter goes; `served` tells whether it has taken something from here.
    pub(crate) fn leave(&mut self, place: &Place, waiter: Waiter, served: bool, now: Instant) {
        self.at(place, |line| line.leave(waiter, served, now));
    }

    /// Clients of another process wait for this.
    pub(crate) fn note_elsewhere(&mut self, place: &Place, now: Instant) {
        if self.elsewhere.insert(place.clone(), now + BELIEVED_FOR).is_none() {
            self.streams += usize::from(place.is_of_stream());
        }
        self.sweep_at.get_or_insert(now + BELIEVED_FOR);
    }

    /// True if this process must announce to others that a client waits for this place; the caller does it then.
    pub(crate) fn must_tell(&mut self, place: &Place, now: Instant) -> bool {
        if self.announced.get(place).is_some_and(|at| now - *at < TELL_EVERY) {
            return false;
        }
        self.announced.insert(place.clone(), now);
        self.sweep_at.get_or_insert(now + BELIEVED_FOR);
        true
    }

    /// When [`Waiters::tick`] is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.alarms.first().map(|(at, _)| *at).into_iter().chain(self.sweep_at).min()
    }

    /// Does what is due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.sweep_at.is_some_and(|at| at <= now) {
            self.elsewhere.retain(|place, until| {
                let is_believed = *until > now;
                self.streams -= usize::from(!is_believed && place.is_of_stream());
                is_believed
            });
            self.announced.retain(|_, at| now - *at < TELL_EVERY);
            let is_empty = self.elsewhere.is_empty() && self.announced.is_empty();
            self.sweep_at = (!is_empty).then(|| now + TELL_EVERY);
        }
        while self.alarms.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, place)) = self.alarms.pop_first() else { return };
            let own = self.own;
            self.at(&place, |line| line.on_alarm(own, now));
        }
    }

    /// The turns that were given since the last call.
    pub(crate) fn take_turns(&mut self) -> Vec<Turn> {
        std::mem::take(&mut self.turns)
    }

    /// Works on a line, if it is there, and tells whom it gave the turn.
    fn at(&mut self, place: &Place, work: impl FnOnce(&mut Line) -> Option<Waiter>) {
        let Some(line) = self.lines.get_mut(place) else { return };
        let before = line.alarm(self.own);
        let given = work(line);
        let after = line.alarm(self.own).filter(|_| !line.order.is_empty());
        if line.order.is_empty() {
            self.lines.remove(place);
            self.streams -= usize::from(place.is_of_stream());
        }
        if let Some(at) = before {
            self.alarms.remove(&(at, place.clone()));
        }
        if let Some(at) = after {
            self.alarms.insert((at, place.clone()));
        }
        self.turns.extend(given.map(|waiter| Turn { place: place.clone(), waiter }));
    }
}

impl Line {
    fn enter(&mut self, waiter: Waiter, now: Instant) -> Option<Waiter> {
        if let Some(at) = self.position(waiter) {
            self.order[at].seen_at = now;
            return None;
        }
        let number = self.next_number;
        self.next_number += 1;
        self.order.push_back(Waiting { number, waiter, seen_at: now });
        if !self.numbers.is_empty() {
            self.numbers.insert(waiter, number);
        } else if self.order.len() > FEW {
            self.numbers = self.order.iter().map(|waiting| (waiting.waiter, waiting.number)).collect();
        }
        if self.order.len() > 1 {
            return None;
        }
        self.owed = UNTIL_NOTHING;
        self.give(now)
    }

    fn signal(&mut self, elements: u64, now: Instant) -> Option<Waiter> {
        self.owed = self.owed.saturating_add(elements).min(UNTIL_NOTHING);
        self.pause = FIRST_PAUSE;
        match &mut self.turn {
            Some(given) => {
                given.is_stale = true;
                None
            }
            None => self.give(now),
        }
    }

    fn missed(&mut self, waiter: Waiter, last_pause: Duration, now: Instant) -> Option<Waiter> {
        let given = self.turn.take_if(|given| given.waiter == waiter)?;
        if given.is_stale {
            return self.give(now);
        }
        if !self.lags {
            self.owed = 0;
            return None;
        }
        if self.pause >= LAST_PAUSE {
            self.owed = 0;
        }
        let pause = if self.owed > 0 { self.pause } else { last_pause };
        self.pause = (pause * 4).min(LAST_PAUSE);
        self.try_at = Some(now + pause);
        None
    }

    fn leave(&mut self, waiter: Waiter, served: bool, now: Instant) -> Option<Waiter> {
        let at = self.position(waiter)?;
        self.order.remove(at);
        self.numbers.remove(&waiter);
        if served {
            self.owed = self.owed.saturating_sub(1);
        }
        self.turn.take_if(|given| given.waiter == waiter)?;
        if self.owed > 0 {
            return self.give(now);
        }
        self.try_at = self.lags.then_some(now + LAST_PAUSE);
        None
    }

    /// Gives the turn to the first waiter.
    fn give(&mut self, now: Instant) -> Option<Waiter> {
        let waiter = self.order.front()?.waiter;
        self.try_at = None;
        self.turn = Some(Given { waiter, at: now, is_stale: false });
        Some(waiter)
    }

    /// When to look at it. What waiters of the own process do is never lost.
    fn alarm(&self, own: ProcessId) -> Option<Instant> {
        match &self.turn {
            Some(given) => (given.waiter.process != own).then(|| given.at + TURN_TIME),
            None => self.try_at,
        }
    }

    fn on_alarm(&mut self, own: ProcessId, now: Instant) -> Option<Waiter> {
        match self.turn.take() {
            // It does not come back.
            Some(given) => {
                let process = given.waiter.process;
                self.forget(|waiting| waiting.waiter.process == process && waiting.seen_at <= given.at);
            }
            None => {
                self.forget(|waiting| waiting.waiter.process != own && now - waiting.seen_at > FORGET_AFTER)
            }
        }
        if self.owed == 0 {
            // Should this turn find something, a signal was lost.
            self.owed = UNTIL_NOTHING;
            self.pause = LAST_PAUSE;
        }
        self.give(now)
    }

    fn forget(&mut self, is_gone: impl Fn(&Waiting) -> bool) {
        let numbers = &mut self.numbers;
        self.order.retain(|waiting| {
            let is_gone = is_gone(waiting);
            if is_gone {
                numbers.remove(&waiting.waiter);
            }
            !is_gone
        });
    }

    /// Where a waiter stands.
    fn position(&self, waiter: Waiter) -> Option<usize> {
        if self.numbers.is_empty() {
            return self.order.iter().position(|waiting| waiting.waiter == waiter);
        }
        let number = self.numbers.get(&waiter)?;
        self.order.binary_search_by_key(number, |waiting| waiting.number).ok()
    }
}

#[cfg(test)]
mod tests;
