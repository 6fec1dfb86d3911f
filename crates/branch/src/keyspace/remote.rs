//! A keyspace whose records lie in partitions of other processes (T14): keys have to be here before an operation.

use super::Keyspace;
use crate::collect::CollectedState;
use crate::dag::Dag;
use crate::merge::conflicting_keys;
use crate::records::{Order, Records, Stored};
use crate::{Mutant, StateId, Transaction};
use mvcc::CompactKey;
use types::{Incarnation, Malformed, Reader};

impl Keyspace {
    /// True if its records lie elsewhere.
    pub fn is_parted(&self) -> bool {
        self.records.are_remote()
    }

    /// The partition of a key, if records lie elsewhere.
    pub fn partition_of(&self, key: &CompactKey) -> Option<usize> {
        self.records.partition_of(key)
    }

    /// True if all these keys can be read now; the site requests the others.
    pub fn fetch<'k>(&mut self, keys: impl Iterator<Item = &'k CompactKey>) -> bool {
        let mut are_here = true;
        for key in keys {
            if !self.records.is_here(key) {
                self.records.want(key);
                are_here = false;
            }
        }
        are_here
    }

    /// True if a read since the last call missed a record that is not here. The keyspace requests the record.
    pub fn has_missed(&mut self) -> bool {
        let missed = self.records.take_missed();
        missed.iter().for_each(|key| self.records.want(key));
        !missed.is_empty()
    }

    /// True if all keys that a merge of these states has to write can be read now; the keyspace requests those that
    /// cannot.
    pub fn fetch_conflicts(&mut self, states: &[StateId]) -> bool {
        if !self.is_parted() {
            return true;
        }
        let nodes: Vec<_> = states.iter().filter_map(|id| self.dag.open(*id)).collect();
        let keys = conflicting_keys(&self.dag, &nodes);
        self.fetch(keys.iter())
    }

    /// True if all keys that the merge still has to write can be read now; the site requests the others.
    pub fn fetch_unresolved(&mut self, transaction: &Transaction) -> bool {
        let keys: Vec<CompactKey> = transaction.unresolved().cloned().collect();
        self.fetch(keys.iter())
    }

    /// True if the keys that a state wrote can be read now; the site requests the others.
    pub fn fetch_written(&mut self, state: StateId) -> bool {
        let Some(node) = self.dag.node(state).filter(|_| self.is_parted()) else { return true };
        let keys: Vec<CompactKey> = self.dag.writes(node).iter().map(|(key, _)| key.clone()).collect();
        self.fetch(keys.iter())
    }

    /// The keys to request from a partition now, with the question's number.
    pub fn question(&mut self, partition: usize) -> Option<(u64, Vec<CompactKey>)> {
        self.records.question(partition)
    }

    /// A partition has forgotten its questions.
    pub fn ask_again(&mut self, partition: usize) {
        self.records.ask_again(partition);
    }

    /// A partition's answer.
    pub fn loaded(&mut self, question: u64, records: Vec<Stored>) {
        self.records.loaded(question, records);
    }

    /// Keeps so many keys here at most.
    pub fn shrink(&mut self, most: usize) {
        self.records.shrink(most);
    }

    /// The orders for a partition after this number, with theirs.
    pub fn orders_after(&self, partition: usize, number: u64) -> impl Iterator<Item = (u64, &Order)> {
        self.records.orders_after(partition, number)
    }

    /// A partition has everything up to this number on its disk.
    pub fn is_safe(&mut self, partition: usize, number: u64) {
        self.records.is_safe(partition, number);
    }

    /// The greatest number that a partition had on its disk as far as it said.
    pub fn safe(&self, partition: usize) -> u64 {
        self.records.safe(partition)
    }

    /// The number of the last order.
    pub fn last_order(&self) -> u64 {
        self.records.last_order()
    }

    /// The bytes of orders that a partition may not have on its disk.
    pub fn pending_bytes(&self, partition: usize) -> usize {
        self.records.pending_bytes(partition)
    }

    /// How many orders partitions may not have on their disks.
    pub fn pending_orders(&self) -> usize {
        self.records.pending()
    }

    /// A life of the site begins: no view sees what an earlier life may have sent to partitions and the log has lost
    /// (Corrections 57 and 67).
    pub fn begin_life(&mut self, incarnation: Incarnation) {
        if !self.options.mutants.has(Mutant::ReuseLabels) {
            self.dag.begin_life(incarnation);
        }
        self.records.begin_life(incarnation, self.dag.labels());
    }

    /// The states that the log is to have gone, since the last call.
    pub fn take_unlogged(&mut self) -> Vec<CollectedState> {
        self.collector.take_unlogged()
    }

    /// Takes a state out as the log says.
    pub fn repeat(&mut self, gone: &CollectedState) {
        self.collector.repeat(
            gone,
            (&mut self.dag, &mut self.records),
            &mut self.sessions,
            &mut self.retained,
        );
    }

    /// Forgets everything, at the partitions too.
    pub fn start_over(&mut self) {
        let mut records = std::mem::take(&mut self.records);
        records.clear();
        *self = Keyspace { records, ..Keyspace::new(self.options) };
    }

    /// Appends everything but the records, and the orders that partitions may not have on their disks.
    pub fn put_image(&mut self, out: &mut Vec<u8>) {
        self.settle();
        self.dag.put(out);
        self.records.put_orders(out);
    }

    /// Reads that, into a keyspace that is new.
    ///
    /// # Errors
    /// It is something else.
    pub fn read_image(&mut self, input: &mut Reader<'_>) -> Result<(), Malformed> {
        self.dag = Dag::read(input, self.options.mutants)?;
        self.collector.wake();
        self.records.read_orders(input)
    }
}

impl Records {
    /// Of an order for a partition: does it, for all its keys.
    pub(crate) fn obey_all(&mut self, order: &Order, meter: &crate::dag::Branches) {
        self.obey(order, meter, |_, _| true);
    }
}
