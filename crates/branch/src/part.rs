//! A record partition (T14): some keys of one site, with their versions, at another place than the site's State DAG.
//!
//! # Guarantee
//! What it has is what the manager's orders up to a number make of nothing, in their order. It decides nothing: which state
//! sees which version is said by labels, which the manager gives, and a version that no state sees is as good as none.
//!
//! # Flow
//! ```text
//!  manager                                          partition
//!     <------ Standing { applied } ---------------- a life begins, of either
//!     ------- Order 1, Order 2, Load { keys } ----> persist, obey; answer
//!     <------ Loaded { versions of these keys } ---
//!     <------ Safe { number } --------------------- everything up to it is on the disk: the manager forgets it
//! ```
//!
//! # Log
//! Every order, behind its number. A checkpoint says of every key which order it reaches up to, and recovery applies
//! only later orders to a key: so the partition serves while it takes the checkpoint.

use crate::dag::{Branches, Label};
use crate::instance::Instance;
use crate::records::{Order, Records, Stored};
use crate::site::{Message, Record, Timer, put, split};
use crate::{Mutant, Mutants};
use mvcc::CompactKey;
use protocol::{Durability, Input, Now, Outputs};
use replication::Link;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Address, Malformed, Reader, Wire};

/// How often it says what is on its disk.
pub(crate) const SAY_EVERY: Duration = Duration::from_millis(100);
/// How many keys are looked at in one go for what a manager's log has lost.
const SWEPT: usize = 500;
/// How large a piece of a checkpoint becomes before it is handed over, in bytes.
const PIECE_BYTES: usize = 64 * 1024;

/// A checkpoint under way.
#[derive(Debug, Default)]
struct Progress {
    /// The last key that was shown.
    last: Option<CompactKey>,
    /// Keys that went since it began, with the numbers of the orders that took them.
    removed: BTreeMap<CompactKey, u64>,
}

/// A search for versions of states that a manager's log has lost (Corrections 57).
#[derive(Debug)]
struct Sweep {
    /// See `Order::Life`.
    first: u64,
    labels: BTreeSet<Label>,
    /// The last key that was looked at.
    last: Option<CompactKey>,
}

/// See the module.
#[derive(Debug)]
pub struct Part {
    manager: Address,
    durability: Durability,
    mutants: Mutants,
    link: Link,
    records: Records,
    /// Counts work; it has no branches.
    meter: Branches,
    /// The number of the last order.
    applied: u64,
    /// The number of the last order that is known to be on the disk.
    safe: u64,
    checkpoint: Option<Progress>,
    /// What a manager's log has lost is looked for.
    sweep: Option<Sweep>,
    /// While it recovers: up to which order a checkpoint shows a key.
    shown: BTreeMap<CompactKey, u64>,
}

impl Part {
    /// Empty, for the site whose State DAG is at `manager`. With less than `written`, the part could not distinguish a
    /// lost order from one never sent.
    pub(crate) fn new(manager: Address, durability: Durability, mutants: Mutants) -> Self {
        Part {
            manager,
            durability: durability.max(Durability::Written),
            mutants,
            link: Link::default(),
            records: Records::default(),
            meter: Branches::new(),
            applied: 0,
            safe: 0,
            checkpoint: None,
            sweep: None,
            shown: BTreeMap::new(),
        }
    }

    /// How many keys it keeps.
    pub fn keys(&self) -> usize {
        self.records.len()
    }

    /// How many versions of keys it keeps.
    pub fn versions(&self) -> usize {
        self.records.versions()
    }

    /// The number of the last order that it has.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    pub(crate) fn on_input(&mut self, input: Input<'_, Instance>, now: Now, out: &mut Outputs<'_, Instance>) {
        match input {
            Input::Message { from, message } if from.address() == self.manager => {
                self.on_message(message, out);
            }
            Input::PeerStarted { peer }
                if peer.address() == self.manager && self.link.started(peer.incarnation) =>
            {
                out.stream(self.manager, Message::SessionPosition { applied: self.applied });
            }
            Input::Timer(Timer::Safe) => {
                self.say_safe(out);
                self.sweep();
                out.arm(Timer::Safe, now.instant + SAY_EVERY);
            }
            Input::Snapshot(piece) => {
                let outcome = split(piece).try_for_each(|record| self.recover(record?));
                debug_assert!(outcome.is_ok(), "checkpoints are checksummed: {outcome:?}");
            }
            Input::Recover(record) => {
                let outcome = self.recover(record);
                debug_assert!(outcome.is_ok(), "log records are checksummed: {outcome:?}");
            }
            Input::Recovered { .. } => {
                self.shown.clear();
                out.stream(self.manager, Message::SessionPosition { applied: self.applied });
                out.arm(Timer::Safe, now.instant + SAY_EVERY);
            }
            _ => {}
        }
    }

    fn on_message(&mut self, message: Message, out: &mut Outputs<'_, Instance>) {
        match message {
            Message::Order { number, order } => self.on_order(number, &order, out),
            Message::Load { question, keys } => {
                let records = keys.iter().map(|key| self.records.stored(key)).collect();
                out.stream(self.manager, Message::Loaded { question, records });
            }
            Message::Page { question, after, count } => {
                let (records, is_last) = self.page(after, count as usize);
                out.stream(self.manager, Message::Paged { question, records, is_last });
            }
            _ => {}
        }
    }

    /// An order comes again if the manager does not know that it came.
    fn on_order(&mut self, number: u64, order: &Order, out: &mut Outputs<'_, Instance>) {
        if number <= self.applied {
            return;
        }
        out.persist(&Record::Order { number, order }, self.durability);
        self.note_removed(order, number);
        self.records.obey_all(order, &self.meter);
        self.note_life(order);
        self.applied = number;
    }

    fn note_life(&mut self, order: &Order) {
        match order {
            Order::Life { first, labels } => {
                let labels = labels.iter().copied().collect();
                self.sweep = Some(Sweep { first: *first, labels, last: None });
            }
            // Labels begin anew.
            Order::Clear => self.sweep = None,
            Order::Write { .. } | Order::Restore { .. } | Order::Fold { .. } => {}
        }
    }

    /// Frees some versions that no state sees. They are not shown by a checkpoint that comes later, and do no harm in one
    /// that came before.
    fn sweep(&mut self) {
        if self.checkpoint.is_some() {
            return;
        }
        let Some(sweep) = &mut self.sweep else { return };
        let is_meant = |label: Label| !label.is_before(sweep.first) || sweep.labels.contains(&label);
        sweep.last = self.records.retain(sweep.last.as_ref(), SWEPT, is_meant);
        if sweep.last.is_none() {
            self.sweep = None;
        }
    }

    /// Keys that an order may take away are not shown by the checkpoint under way: it has to say so.
    fn note_removed(&mut self, order: &Order, number: u64) {
        let Some(progress) = &mut self.checkpoint else { return };
        match order {
            Order::Clear => progress.removed.extend(self.records.keys().map(|key| (key.clone(), number))),
            Order::Fold { keys, .. } => progress.removed.extend(keys.iter().map(|key| (key.clone(), number))),
            Order::Write { .. } | Order::Restore { .. } | Order::Life { .. } => {}
        }
    }

    /// The next keys after one, in the order of their places, and whether these are the last.
    fn page(&mut self, after: Option<CompactKey>, count: usize) -> (Vec<Stored>, bool) {
        let (mut last, mut page) = (after, Vec::new());
        while page.len() < count {
            let mut versions = Vec::new();
            let visit = |label, id, cell: &datatypes::Cell| versions.push((label, id, cell.clone()));
            let Some(key) = self.records.next_key(last.as_ref(), visit) else { return (page, true) };
            page.push(Stored { key: key.clone(), versions });
            last = Some(key);
        }
        (page, false)
    }

    /// Says what is on the disk; also when that is nothing new, so that the manager knows that it is here.
    fn say_safe(&mut self, out: &mut Outputs<'_, Instance>) {
        if self.applied > self.safe {
            let class = match self.mutants.has(Mutant::UnsyncedOrders) {
                true => self.durability,
                false => Durability::Synced,
            };
            out.persist(&Record::Applied { number: self.applied }, class);
            self.safe = self.applied;
        }
        out.stream(self.manager, Message::Safe { number: self.safe });
    }

    /// Appends the next piece of a checkpoint; returns where to go on.
    pub(crate) fn put_checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        if cursor == 0 {
            self.checkpoint = Some(Progress::default());
            put(chunk, &Record::Applied { number: self.applied });
        }
        let number = self.applied;
        while chunk.len() < PIECE_BYTES {
            let progress = self.checkpoint.as_mut()?;
            let mut versions = Vec::new();
            let visit = |label, id, cell: &datatypes::Cell| versions.push((label, id, cell.clone()));
            let Some(key) = self.records.next_key(progress.last.as_ref(), visit) else {
                let removed = std::mem::take(&mut progress.removed);
                for (key, number) in removed {
                    // One that a later order brought back, or did not take, is as it is now.
                    let (stored, number) = match self.records.stored(&key) {
                        stored if stored.versions.is_empty() => (stored, number),
                        stored => (stored, self.applied),
                    };
                    put(chunk, &Record::Stored { number, stored: &stored });
                }
                self.checkpoint = None;
                return None;
            };
            put(chunk, &Record::Stored { number, stored: &Stored { key: key.clone(), versions } });
            progress.last = Some(key);
        }
        Some(cursor + 1)
    }

    fn recover(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let mut input = Reader::new(bytes);
        match input.byte()? {
            Record::ORDER => {
                let (number, order) = (u64::decode(&mut input)?, Order::decode(&mut input)?);
                if number <= self.applied {
                    return Ok(());
                }
                let shown = &self.shown;
                let is_later = |key: &CompactKey| shown.get(key).is_none_or(|shown| *shown < number);
                if order == Order::Clear {
                    let keys: Vec<CompactKey> =
                        self.records.keys().filter(|key| is_later(key)).cloned().collect();
                    keys.iter().for_each(|key| self.records.forget(key));
                } else {
                    self.records.obey(&order, &self.meter, |_, key| is_later(key));
                }
                self.note_life(&order);
                self.applied = number;
            }
            Record::STORED => {
                let (number, stored) = (u64::decode(&mut input)?, Stored::decode(&mut input)?);
                self.shown.insert(stored.key.clone(), number);
                match stored.versions.is_empty() {
                    true => self.records.forget(&stored.key),
                    false => self.records.take_stored(stored),
                }
            }
            Record::APPLIED => self.applied = self.applied.max(u64::decode(&mut input)?),
            _ => return Err(Malformed("record of a record partition")),
        }
        Ok(())
    }
}
