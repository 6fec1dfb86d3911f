//! Hot keys: where transactions have met conflicts lately, those of one coordinator take turns, the oldest first,
//! instead of refusing each other at the replicas (Corrections 12). A hot key is not a lock: it is local to the
//! coordinator, and validation at the replicas decides as usual. It only spares the replicas proposals that they would
//! refuse.
//!
//! A transaction holds all of its hot keys or none, and waits in the queue of each until it does. The transaction whose
//! first run began earlier goes first, and retains its age over retries. So the oldest waits only for holders, which
//! wait for no other transaction here: waiting is deadlock-free and starvation-free.

use super::transaction::{Phase, Transaction};
use super::{Coordinator, Step};
use crate::coordinator::Call;
use datatypes::{Invocation, Observation, Operation, commutes};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use types::{Instant, Reader};

/// For how long after the last conflict a key is hot.
const HOT_FOR: Duration = Duration::from_secs(1);
/// With so many keys more than were left the last time, those that are no longer hot are looked for and forgotten.
const MANY: usize = 16;

/// Orders transactions of one coordinator by their first run.
type Age = u64;

#[derive(Debug)]
struct HotKey {
    until: Instant,
    holder: Option<Age>,
    line: BTreeSet<Age>,
}

/// Where a transaction stands.
#[derive(Debug)]
struct Place {
    /// Its number in its present run.
    number: u64,
    keys: BTreeSet<Box<[u8]>>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    keys: BTreeMap<Box<[u8]>, HotKey>,
    /// How many keys were left when those were forgotten that are no longer hot.
    left: usize,
    places: BTreeMap<Age, Place>,
    /// Numbers of transactions that may go now.
    ready: Vec<u64>,
}

impl HotKeys {
    /// A conflict was met on this key.
    fn note_contention(&mut self, key: &[u8], now: Instant) {
        if self.keys.len() >= 2 * self.left + MANY {
            self.keys.retain(|_, hot| hot.until > now || hot.holder.is_some() || !hot.line.is_empty());
            self.left = self.keys.len();
        }
        let until = now + HOT_FOR;
        let fresh = || HotKey { until, holder: None, line: BTreeSet::new() };
        self.keys.entry(key.into()).or_insert_with(fresh).until = until;
    }

    /// True where a conflict was met lately, or somebody waits.
    pub(super) fn is_hot(&self, key: &[u8], now: Instant) -> bool {
        self.keys.get(key).is_some_and(|hot| hot.until > now || hot.holder.is_some() || !hot.line.is_empty())
    }

    /// Requests these keys, in place of those held or requested before. True when all of them are held now. A
    /// transaction that holds them already goes on holding them: replicas would delay a younger one that took them.
    fn enter(&mut self, age: Age, number: u64, keys: BTreeSet<Box<[u8]>>) -> bool {
        let holds = |key: &[u8]| self.keys.get(key).is_some_and(|hot| hot.holder == Some(age));
        if keys.iter().all(|key| holds(key))
            && let Some(place) = self.places.get_mut(&age).filter(|place| place.keys == keys)
        {
            place.number = number;
            return true;
        }
        self.leave(age);
        for key in &keys {
            if let Some(hot) = self.keys.get_mut(key) {
                hot.line.insert(age);
            }
        }
        self.places.insert(age, Place { number, keys });
        self.take(age)
    }

    /// Takes all keys of a transaction if no other transaction holds one of them and no older one waits for one.
    fn take(&mut self, age: Age) -> bool {
        let Some(place) = self.places.get(&age) else { return true };
        let mut wanted = place.keys.iter().filter_map(|key| self.keys.get(key));
        if !wanted.all(|hot| hot.holder.is_none() && hot.line.first() == Some(&age)) {
            return false;
        }
        for key in &place.keys {
            if let Some(hot) = self.keys.get_mut(key) {
                hot.line.remove(&age);
                hot.holder = Some(age);
            }
        }
        true
    }

    /// Gives up what a transaction holds and waits for, and lets those behind it go.
    fn leave(&mut self, age: Age) {
        let Some(place) = self.places.remove(&age) else { return };
        let mut next = BTreeSet::new();
        for key in &place.keys {
            let Some(hot) = self.keys.get_mut(key) else { continue };
            hot.line.remove(&age);
            hot.holder = hot.holder.filter(|holder| *holder != age);
            next.extend(hot.line.first().copied());
        }
        for age in next {
            let waits = self.places.get(&age).map(|place| place.number);
            if let Some(number) = waits.filter(|_| self.take(age)) {
                self.ready.push(number);
            }
        }
    }
}

impl Coordinator {
    /// Takes the transaction's turn at its hot keys. False while it has to wait.
    pub(super) fn take_hot_keys(&mut self, transaction: &Transaction, step: &Step<'_, '_>) -> bool {
        let now = step.now.instant;
        let calls = transaction.steps.list().iter().map(|step| &step.call);
        let hot = calls.filter(|call| self.protocol.hot.is_hot(&call.key, now) && !is_sociable(call));
        let keys: BTreeSet<Box<[u8]>> = hot.map(|call| (*call.key).into()).collect();
        if keys.is_empty() {
            self.protocol.hot.leave(age(transaction));
            return true;
        }
        self.protocol.hot.enter(age(transaction), transaction.id.number, keys)
    }

    /// A transaction was refused because of this key.
    pub(super) fn note_contention(&mut self, key: &[u8], step: &Step<'_, '_>) {
        self.protocol.hot.note_contention(key, step.now.instant);
    }

    /// The transaction is over.
    pub(super) fn leave_hot_keys(&mut self, transaction: &Transaction) {
        self.protocol.hot.leave(age(transaction));
    }

    /// Runs those whose turn has come; false if there was none.
    pub(super) fn run_ready(&mut self, step: &mut Step<'_, '_>) -> bool {
        let ready = std::mem::take(&mut self.protocol.hot.ready);
        let any = !ready.is_empty();
        for number in ready {
            let Some(transaction) = self.take(number) else { continue };
            match transaction.phase {
                Phase::InLine => self.begin_in_turn(transaction, step),
                _ => self.keep(transaction, step),
            }
        }
        any
    }
}

fn age(transaction: &Transaction) -> Age {
    transaction.age.transaction.number
}

/// True for an operation that commutes with another one like it.
fn is_sociable(call: &Call) -> bool {
    let Ok(operation) = Operation::decode(&mut Reader::new(&call.operation)) else { return true };
    if operation.is_read() {
        return true;
    }
    let Some(effect) = operation.blind_effect() else { return false };
    let observation = if call.blind { Observation::NOTHING } else { operation.observation() };
    let invocation = Invocation { observation, effect: Some(effect) };
    commutes(&invocation, &invocation, None)
}
