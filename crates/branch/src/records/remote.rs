//! Records that lie in partitions of other processes (T14): the manager's cache of them, and its pending orders.
//!
//! # State and invariants
//! - Every change of a record is an order, numbered when it is given; numbers only rise, over all lives.
//! - What is here of a key is what its partition has after the orders given so far. A requested key is here once the
//!   answer came, with the orders that were given since the request.
//! - The site retains an order until its partition has it on its disk.

use super::order::{KeyValue, Order, Stored};
use super::{Records, place_of};
use crate::dag::{Branches, Label, View};
use crate::transaction::Effects;
use crate::{Mutant, Mutants, StateId};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Incarnation, Malformed, Reader, Wire, put_varint};

/// More orders than a log loses.
const LOST: u64 = 1 << 20;

/// The most keys that wait for a request: a session that wants more retries.
const MOST_WANTED: usize = 10_000;

/// What is for one partition.
#[derive(Debug, Default)]
struct PartitionQueue {
    /// Orders that may not be on its disk, with their numbers and sizes.
    pending: VecDeque<(u64, usize, Order)>,
    bytes: usize,
    /// The greatest number that is on its disk as far as it said.
    safe: u64,
    /// Keys to request.
    wanted: BTreeSet<CompactKey>,
}

/// A key whose request is in flight.
#[derive(Debug)]
struct Loading {
    question: u64,
    /// What the answer does not know of.
    since: Vec<Order>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RemoteRecords {
    lanes: Vec<PartitionQueue>,
    /// The number of the last order.
    last: u64,
    questions: u64,
    loading: BTreeMap<CompactKey, Loading>,
    /// When the cached keys were last used, by a count of uses.
    used: BTreeMap<CompactKey, u64>,
    by_use: BTreeMap<u64, CompactKey>,
    uses: u64,
    /// Keys that were looked at and are not here.
    missed: BTreeSet<CompactKey>,
    /// The keys of the class that is about to join another one.
    folding: Vec<CompactKey>,
    /// Counts work on orders.
    meter: Branches,
    mutants: Mutants,
}

impl RemoteRecords {
    pub fn new(partitions: usize, mutants: Mutants) -> Self {
        RemoteRecords {
            lanes: (0..partitions).map(|_| PartitionQueue::default()).collect(),
            last: 0,
            questions: 0,
            loading: BTreeMap::new(),
            used: BTreeMap::new(),
            by_use: BTreeMap::new(),
            uses: 0,
            missed: BTreeSet::new(),
            folding: Vec::new(),
            meter: Branches::new(),
            mutants,
        }
    }

    fn lane_of(&self, key: &CompactKey) -> usize {
        (place_of(key) % self.lanes.len() as u64) as usize
    }

    /// Groups what is said of keys by their partitions.
    fn parted<T>(&self, all: impl Iterator<Item = T>, key: impl Fn(&T) -> &CompactKey) -> Vec<Vec<T>> {
        let mut parted: Vec<Vec<T>> = self.lanes.iter().map(|_| Vec::new()).collect();
        for one in all {
            parted[self.lane_of(key(&one))].push(one);
        }
        parted
    }

    pub fn touch(&mut self, key: &CompactKey) {
        self.uses += 1;
        if let Some(before) = self.used.insert(key.clone(), self.uses) {
            self.by_use.remove(&before);
        }
        self.by_use.insert(self.uses, key.clone());
    }

    pub fn miss(&mut self, key: &CompactKey) {
        self.missed.insert(key.clone());
    }
}

impl Records {
    /// Nothing, with all records to lie in so many partitions elsewhere.
    pub(crate) fn in_partitions(count: usize, mutants: Mutants) -> Self {
        Records { keys: BTreeMap::new(), remote: Some(Box::new(RemoteRecords::new(count, mutants))) }
    }

    /// True if records lie in partitions elsewhere.
    pub(crate) fn are_remote(&self) -> bool {
        self.remote.is_some()
    }

    /// The partition of a key, if records lie elsewhere.
    pub(crate) fn partition_of(&self, key: &CompactKey) -> Option<usize> {
        Some(self.remote.as_ref()?.lane_of(key))
    }

    /// Performs what a state writes, on top of what a view of its parents sees.
    pub(crate) fn write_all(
        &mut self,
        view: &View<'_>,
        label: Label,
        id: StateId,
        writes: &[(CompactKey, Effects)],
    ) {
        let Some(remote) = &self.remote else {
            for (key, effects) in writes {
                self.put(key, view, label, id, effects.iter().map(|effect| &**effect));
            }
            return;
        };
        view.meter().keys(writes.len());
        for (lane, writes) in remote.parted(writes.iter().cloned(), |(key, _)| key).into_iter().enumerate() {
            if !writes.is_empty() {
                self.give(lane, Order::Write { label, id, portable: view.portable(), writes });
            }
        }
    }

    /// Versions as they are.
    pub(crate) fn restore_all(&mut self, label: Label, id: StateId, writes: Vec<KeyValue>) {
        let Some(remote) = &self.remote else {
            writes.into_iter().for_each(|KeyValue { key, cell }| self.put_value(&key, label, id, cell));
            return;
        };
        for (lane, writes) in remote.parted(writes.into_iter(), |whole| &whole.key).into_iter().enumerate() {
            if !writes.is_empty() {
                self.give(lane, Order::Restore { label, id, writes });
            }
        }
    }

    /// The version of a key labelled `from` is to join those labelled `to`, which every state sees if that is `for_all`; at the
    /// latest when the class has joined.
    pub(crate) fn relabel(&mut self, key: &CompactKey, from: Label, to: Label, for_all: bool) {
        match &mut self.remote {
            Some(remote) => remote.folding.push(key.clone()),
            None => self.join(key, &[from], to, for_all),
        }
    }

    /// The same of several labels, ancestors first, where all lies here.
    pub(crate) fn relabel_all(&mut self, key: &CompactKey, from: &[Label], to: Label, for_all: bool) {
        debug_assert!(!self.are_remote(), "partitions are told of one class after the other");
        self.join(key, from, to, for_all);
    }

    /// A class has joined another one: what was relabelled since the last call.
    pub(crate) fn fold(&mut self, from: Label, to: Label, for_all: bool) {
        let Some(remote) = &mut self.remote else { return };
        let keys = std::mem::take(&mut remote.folding);
        for (lane, keys) in remote.parted(keys.into_iter(), |key| key).into_iter().enumerate() {
            if !keys.is_empty() {
                self.give(lane, Order::Fold { from, to, for_all, keys });
            }
        }
    }

    /// Forgets all records, here and elsewhere. No partition needs earlier orders any more.
    pub(crate) fn clear(&mut self) {
        let Some(remote) = &mut self.remote else { return self.keys.clear() };
        (remote.used, remote.by_use) = Default::default();
        remote.folding.clear();
        remote.lanes.fill_with(PartitionQueue::default);
        for lane in 0..remote.lanes.len() {
            self.give(lane, Order::Clear);
        }
    }

    /// Gives a partition an order, and does the same to what is here of it.
    fn give(&mut self, lane: usize, order: Order) {
        let Some(mut remote) = self.remote.take() else { return };
        self.obey(&order, &remote.meter, |records, key| records.has_versions_of(key));
        for (key, loading) in &mut remote.loading {
            loading.since.extend(order.of(|meant| meant == key));
        }
        remote.last += 1;
        let bytes = order.bytes();
        remote.lanes[lane].bytes += bytes;
        remote.lanes[lane].pending.push_back((remote.last, bytes, order));
        self.remote = Some(remote);
    }

    /// True if a key can be read. It counts as used now.
    pub(crate) fn is_here(&mut self, key: &CompactKey) -> bool {
        if self.remote.is_none() {
            return true;
        }
        let is_here = self.has_versions_of(key);
        if let (Some(remote), true) = (&mut self.remote, is_here) {
            remote.touch(key);
        }
        is_here
    }

    /// Requests a key, unless a request is in flight.
    pub(crate) fn want(&mut self, key: &CompactKey) {
        let Some(remote) = &mut self.remote else { return };
        let lane = remote.lane_of(key);
        if !remote.loading.contains_key(key) && remote.lanes[lane].wanted.len() < MOST_WANTED {
            remote.lanes[lane].wanted.insert(key.clone());
        }
    }

    /// The keys that were looked at and are not here, since the last call.
    pub(crate) fn take_missed(&mut self) -> BTreeSet<CompactKey> {
        self.remote.as_mut().map(|remote| std::mem::take(&mut remote.missed)).unwrap_or_default()
    }

    /// The keys to request from a partition now, with the question's number. Every earlier order precedes it.
    pub(crate) fn question(&mut self, lane: usize) -> Option<(u64, Vec<CompactKey>)> {
        let remote = self.remote.as_mut()?;
        let wanted = std::mem::take(&mut remote.lanes.get_mut(lane)?.wanted);
        if wanted.is_empty() {
            return None;
        }
        remote.questions += 1;
        let question = remote.questions;
        for key in &wanted {
            remote.loading.insert(key.clone(), Loading { question, since: Vec::new() });
        }
        Some((question, wanted.into_iter().collect()))
    }

    /// Repeats the questions to a partition, which has forgotten them.
    pub(crate) fn ask_again(&mut self, lane: usize) {
        let Some(remote) = &mut self.remote else { return };
        let of_it = |key: &CompactKey| (place_of(key) % remote.lanes.len() as u64) as usize == lane;
        let keys: Vec<CompactKey> = remote.loading.keys().filter(|key| of_it(key)).cloned().collect();
        for key in keys {
            remote.loading.remove(&key);
            remote.lanes[lane].wanted.insert(key);
        }
    }

    /// A partition's answer.
    pub(crate) fn loaded(&mut self, question: u64, stored: Vec<Stored>) {
        let Some(mut remote) = self.remote.take() else { return };
        for stored in stored {
            let is_meant =
                remote.loading.get(&stored.key).is_some_and(|loading| loading.question == question);
            let Some(loading) = remote.loading.remove(&stored.key).filter(|_| is_meant) else { continue };
            let key = stored.key.clone();
            self.take_stored(stored);
            let is_stale = remote.mutants.has(Mutant::StaleAnswers);
            for order in loading.since.iter().filter(|_| !is_stale) {
                match order {
                    Order::Clear => self.take_stored(Stored { key: key.clone(), versions: Vec::new() }),
                    _ => self.obey(order, &remote.meter, |_, _| true),
                }
            }
            if self.has_versions_of(&key) {
                remote.touch(&key);
            }
        }
        self.remote = Some(remote);
    }

    /// Forgets the keys that were not used for the longest time, until so many are here.
    pub(crate) fn shrink(&mut self, most: usize) {
        let Some(mut remote) = self.remote.take() else { return };
        // Of keys that went by themselves the uses are left.
        while (self.keys.len() > most || remote.by_use.len() > self.keys.len() + most)
            && let Some((_, key)) = remote.by_use.pop_first()
        {
            remote.used.remove(&key);
            self.forget(&key);
        }
        self.remote = Some(remote);
    }

    /// The orders for a partition after this number, with theirs.
    pub(crate) fn orders_after(&self, lane: usize, number: u64) -> impl Iterator<Item = (u64, &Order)> {
        let pending =
            self.remote.as_ref().and_then(|remote| remote.lanes.get(lane)).map(|lane| &lane.pending);
        let pending = pending.into_iter().flatten();
        // They are in order: what is new is at the end.
        let first = pending.clone().rev().take_while(|(given, ..)| *given > number).count();
        let skipped = pending.clone().count() - first;
        pending.skip(skipped).map(|(number, _, order)| (*number, order))
    }

    /// A partition has everything up to this number on its disk.
    pub(crate) fn is_safe(&mut self, lane: usize, number: u64) {
        let Some(lane) = self.remote.as_mut().and_then(|remote| remote.lanes.get_mut(lane)) else { return };
        while let Some((_, bytes, _)) = lane.pending.pop_front_if(|(given, ..)| *given <= number) {
            lane.bytes -= bytes;
        }
        lane.safe = lane.safe.max(number);
    }

    /// The greatest number that a partition had on its disk as far as it said.
    pub(crate) fn safe(&self, lane: usize) -> u64 {
        self.remote.as_ref().and_then(|remote| remote.lanes.get(lane)).map_or(0, |lane| lane.safe)
    }

    /// The number of the last order.
    pub(crate) fn last_order(&self) -> u64 {
        self.remote.as_ref().map_or(0, |remote| remote.last)
    }

    /// The bytes of orders that a partition may not have on its disk.
    pub(crate) fn pending_bytes(&self, lane: usize) -> usize {
        self.remote.as_ref().and_then(|remote| remote.lanes.get(lane)).map_or(0, |lane| lane.bytes)
    }

    /// How many orders partitions may not have on their disks.
    pub(crate) fn pending(&self) -> usize {
        self.remote.as_ref().map_or(0, |remote| remote.lanes.iter().map(|lane| lane.pending.len()).sum())
    }

    /// Numbers of this life are above those of every life before, also where the log has lost the last ones, and those of
    /// questions, which an earlier life may have sent and whose answers may still come. Versions labelled before this
    /// branch are labelled by one of these labels, or of states that are lost.
    pub(crate) fn begin_life(&mut self, incarnation: Incarnation, (first, labels): (u64, Vec<Label>)) {
        let Some(remote) = &mut self.remote else { return };
        remote.last = (remote.last + LOST).max(u64::from(incarnation.0) << 32);
        remote.questions = u64::from(incarnation.0) << 32;
        for lane in 0..remote.lanes.len() {
            self.give(lane, Order::Life { first, labels: labels.clone() });
        }
    }

    /// Appends what is to be remembered of the partitions.
    pub(crate) fn put_orders(&self, out: &mut Vec<u8>) {
        let Some(remote) = &self.remote else { return };
        put_varint(out, remote.last);
        put_varint(out, remote.lanes.len() as u64);
        for lane in &remote.lanes {
            put_varint(out, lane.safe);
            put_varint(out, lane.pending.len() as u64);
            for (number, _, order) in &lane.pending {
                put_varint(out, *number);
                order.encode(out);
            }
        }
    }

    /// Reads that.
    ///
    /// # Errors
    /// It is something else, or of another number of partitions.
    pub(crate) fn read_orders(&mut self, input: &mut Reader<'_>) -> Result<(), Malformed> {
        let Some(remote) = &mut self.remote else { return Err(Malformed("orders without partitions")) };
        remote.last = input.varint()?;
        if input.count()? != remote.lanes.len() {
            return Err(Malformed("number of partitions"));
        }
        for lane in &mut remote.lanes {
            *lane = PartitionQueue { safe: input.varint()?, ..PartitionQueue::default() };
            for _ in 0..input.count()? {
                let (number, order) = (input.varint()?, Order::decode(input)?);
                let bytes = order.bytes();
                lane.bytes += bytes;
                lane.pending.push_back((number, bytes, order));
            }
        }
        Ok(())
    }
}
