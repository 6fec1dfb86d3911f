//! What concurrent writes cost others ([`datatypes::merge::lost`]), for the operator: a bounded list.

use crate::CompactKey;
use datatypes::merge::LostPart;
use std::collections::{BTreeMap, BTreeSet};
use types::Wire;

/// A write that was acknowledged, and that is out of sight because of a concurrent one.
#[derive(Clone, Debug, PartialEq)]
pub struct LostWrite<S> {
    /// The key.
    pub key: Box<[u8]>,
    /// Which part of it.
    pub part: LostPart,
    /// The place of the write that is lost.
    pub stamp: S,
    /// What it said.
    pub value: Box<[u8]>,
    /// The place of the write that it is lost to.
    pub winner: S,
    /// What that one said.
    pub instead: Box<[u8]>,
}

impl<S> LostWrite<S> {
    /// About how many bytes it occupies, with its places in the indices.
    fn memory(&self) -> usize {
        2 * size_of::<Self>() + 3 * self.key.len() + self.value.len() + self.instead.len()
    }
}

/// How the store records losses.
#[derive(Clone, Copy, Debug)]
pub struct LossOptions<S> {
    /// Makes a name of a stamp: equal ones only for equal stamps.
    pub name: fn(&S) -> Vec<u8>,
    /// How much memory the list may occupy, in bytes. Beyond, the earliest writes are dropped from it, and counted.
    pub bytes: usize,
    /// True if a loss ends when an effect that observed the write replaces or removes the key, whether its client saw
    /// the value or not: the losses are then siblings, the values concurrent with the shown one.
    pub until_replaced: bool,
}

/// The list. A loss is named by its key, the stamp and the part; the names mean the same in every replica.
#[derive(Debug)]
pub(crate) struct Losses<S> {
    options: LossOptions<S>,
    /// In the order in which they became known here.
    listed: BTreeMap<u64, LostWrite<S>>,
    by_name: BTreeMap<(CompactKey, Vec<u8>), u64>,
    by_age: BTreeSet<(S, u64)>,
    /// Losses that effects settle which may still be taken back, by name; with the effects' stamps.
    hidden: BTreeMap<(CompactKey, Vec<u8>), BTreeSet<S>>,
    next: u64,
    bytes: usize,
    dropped: u64,
}

impl<S: Copy + Ord> Losses<S> {
    pub fn new(options: LossOptions<S>) -> Self {
        Losses {
            options,
            listed: BTreeMap::new(),
            by_name: BTreeMap::new(),
            by_age: BTreeSet::new(),
            hidden: BTreeMap::new(),
            next: 1,
            bytes: 0,
            dropped: 0,
        }
    }

    /// See [`LossOptions::until_replaced`].
    pub fn last_until_replaced(&self) -> bool {
        self.options.until_replaced
    }

    /// The name of a loss among those of its key.
    pub fn name(&self, loss: &LostWrite<S>) -> Vec<u8> {
        let mut name = (self.options.name)(&loss.stamp);
        loss.part.encode(&mut name);
        name
    }

    /// True if the loss is listed.
    pub fn contains(&self, loss: &LostWrite<S>) -> bool {
        self.by_name.contains_key(&(CompactKey::new(&loss.key), self.name(loss)))
    }

    /// How many are shown.
    pub fn len(&self) -> usize {
        self.listed.len() - self.hidden.keys().filter(|name| self.by_name.contains_key(name)).count()
    }

    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    pub fn count_dropped(&mut self, dropped: u64) {
        self.dropped = self.dropped.max(dropped);
    }

    pub fn memory(&self) -> usize {
        self.bytes
    }

    /// Lists a loss, unless it is listed.
    pub fn add(&mut self, loss: LostWrite<S>) {
        let name = (CompactKey::new(&loss.key), self.name(&loss));
        if self.by_name.contains_key(&name) {
            return;
        }
        let number = self.next;
        self.next += 1;
        self.bytes += loss.memory();
        self.by_age.insert((loss.stamp, number));
        self.by_name.insert(name, number);
        self.listed.insert(number, loss);
        while self.bytes > self.options.bytes
            && let Some((_, oldest)) = self.by_age.first().copied()
        {
            self.remove(oldest);
            self.dropped += 1;
        }
    }

    fn remove(&mut self, number: u64) {
        let Some(loss) = self.listed.remove(&number) else { return };
        self.bytes -= loss.memory();
        self.by_age.remove(&(loss.stamp, number));
        let name = (CompactKey::new(&loss.key), self.name(&loss));
        self.by_name.remove(&name);
    }

    /// Lists the lost updates of forgotten effects on a key, and removes for good what they settled: an effect that
    /// settles a loss comes after it.
    pub fn list(&mut self, key: &[u8], found: Vec<LostWrite<S>>, settled: &[Vec<u8>]) {
        found.into_iter().for_each(|loss| self.add(loss));
        settled.iter().for_each(|name| self.resolve(key, name));
    }

    /// Takes off for good what of a key some effect that is forgotten replaced.
    pub fn end(&mut self, key: &[u8], is_replaced: impl Fn(&S) -> bool) {
        let from = (CompactKey::new(key), Vec::new());
        let named = self.by_name.range(from..).take_while(|((other, _), _)| **other == *key);
        let ended: Vec<(Vec<u8>, u64)> = named.map(|((_, name), number)| (name.clone(), *number)).collect();
        for (name, number) in ended {
            if self.listed.get(&number).is_some_and(|loss| is_replaced(&loss.stamp)) {
                self.resolve(key, &name);
            }
        }
    }

    /// Takes a key's loss off the list, for good.
    pub fn resolve(&mut self, key: &[u8], name: &[u8]) {
        let name = (CompactKey::new(key), name.to_vec());
        self.hidden.remove(&name);
        if let Some(number) = self.by_name.get(&name) {
            self.remove(*number);
        }
    }

    /// An effect settles a key's loss: it is not shown, as long as the effect is not taken back.
    pub fn hide(&mut self, key: &[u8], name: &[u8], by: S) {
        self.hidden.entry((CompactKey::new(key), name.to_vec())).or_default().insert(by);
    }

    /// True if an effect up to this one settles the loss: none of these is taken back any more.
    pub fn is_settled(&self, loss: &LostWrite<S>, upto: Option<S>) -> bool {
        let hiders = self.hidden.get(&(CompactKey::new(&loss.key), self.name(loss)));
        hiders.and_then(BTreeSet::first).is_some_and(|first| Some(*first) <= upto)
    }

    /// The effect on a key was taken back.
    pub fn show(&mut self, key: &[u8], by: S) {
        let of_key = self.hidden.range_mut((CompactKey::new(key), Vec::new())..);
        for ((_, _), hiders) in of_key.take_while(|((other, _), _)| **other == *key) {
            hiders.remove(&by);
        }
        self.hidden.retain(|_, hiders| !hiders.is_empty());
    }

    /// True if any of a key are listed.
    pub fn has_of_key(&self, key: &[u8]) -> bool {
        let mut named = self.by_name.range((CompactKey::new(key), Vec::new())..);
        named.next().is_some_and(|((other, _), _)| **other == *key)
    }

    /// Those of a key.
    pub fn of_key(&self, key: &[u8]) -> impl Iterator<Item = &LostWrite<S>> {
        let from = (CompactKey::new(key), Vec::new());
        let named = self.by_name.range(from..).take_while(move |((other, _), _)| **other == *key);
        let shown = named.filter(|(name, _)| !self.hidden.contains_key(name));
        shown.filter_map(|(_, number)| self.listed.get(number))
    }

    /// Those after a number, with theirs, in ascending order.
    pub fn after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        let is_shown = |loss: &LostWrite<S>| {
            self.hidden.is_empty()
                || !self.hidden.contains_key(&(CompactKey::new(&loss.key), self.name(loss)))
        };
        self.all_after(number).filter(move |(_, loss)| is_shown(loss))
    }

    /// The same with those that are not shown.
    pub fn all_after(&self, number: u64) -> impl Iterator<Item = (u64, &LostWrite<S>)> {
        self.listed.range(number + 1..).map(|(number, loss)| (*number, loss))
    }
}
