//! Which keys there are, as an open transaction sees it: KEYS, SCAN, DBSIZE, RANDOMKEY and FLUSHDB inside
//! `TXN`.
//!
//! They observe the keys of the snapshot with the transaction's own changes. A key that came or went since, in any
//! partition, is a conflict at commit: the coarse mode of Corrections 78. A key that changed its value is none.

use super::Solo;
use super::group::{CURSOR_BITS, Group};
use super::open::OpenTransaction;
use super::requests::PLACES_PER_KEY;
use mvcc::CompactKey;
use types::{KeyHash, Reply, ReplyBuf, ReplySink, Rng, Timestamp};

/// How many keys are drawn, and found not to be there, before one of a list is taken.
const DRAWS: usize = 64;

/// A partition's record of created and removed keys, for open transactions; retained while a snapshot is open.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Keyset {
    /// When a key last came or went, expiry apart.
    pub(super) changed: Timestamp,
    /// The latest deadline of a key that was deleted because of it, in milliseconds since 1970.
    pub(super) expired_until: u64,
}

impl Keyset {
    /// True if another key is there, or one less, than `snapshot` shows to a transaction that began at
    /// `begun_millis`: keys that had expired by then were absent for it.
    fn differs_from(self, snapshot: Timestamp, begun_millis: u64) -> bool {
        self.changed > snapshot || self.expired_until > begun_millis
    }
}

impl Solo {
    /// Every key that holds a value, or did at some snapshot that is open, at one place of the index; returns the
    /// next place, 0 at the end.
    fn known_keys(&self, cursor: u64, keys: &mut Vec<Box<[u8]>>) -> u64 {
        self.store.scan_all(cursor, |key| keys.push(key.into()))
    }
}

impl OpenTransaction {
    /// A reply tells which keys there are. Whether those are there that the transaction itself has taken from depends on
    /// what others do to them, even where no key comes or goes by that: a set that loses its last other member is gone
    /// once the transaction's own removal is applied.
    fn observe_keys(&mut self, group: &mut Group<'_, '_>) {
        if self.is_flushed() {
            return;
        }
        self.observes_keys = true;
        for (key, hash) in self.touched_keys() {
            self.observe_presence(hash, &key, group);
        }
    }

    /// How many keys the transaction sees; like DBSIZE, with expired ones that nobody has met.
    pub(super) fn count(&mut self, group: &mut Group<'_, '_>) -> i64 {
        let flushed = self.is_flushed();
        self.observe_keys(group);
        let mut count = if flushed { 0 } else { self.keys_at_snapshot as i64 };
        for (key, hash) in self.touched_keys() {
            let before = !flushed && self.in_snapshot(hash, &key, group, |cell| cell.value.is_some());
            count += i64::from(self.shows(hash, &key, group)) - i64::from(before);
        }
        count
    }

    /// Adds every key that the transaction sees to `keys`; returns how many there are.
    pub(super) fn keys(&mut self, group: &mut Group<'_, '_>, keys: &mut ReplyBuf) -> usize {
        let (mut cursor, mut found) = (0, 0);
        loop {
            let (next, more) = self.scan(cursor, u32::MAX, group, keys);
            (cursor, found) = (next, found + more);
            if cursor == 0 {
                return found;
            }
        }
    }

    /// Adds about `count` keys that the transaction sees, from `cursor` on; returns where to go on, 0 at the end, and
    /// how many there are. Keys that only the transaction itself has made come first.
    pub(super) fn scan(
        &mut self,
        mut cursor: u64,
        count: u32,
        group: &mut Group<'_, '_>,
        keys: &mut ReplyBuf,
    ) -> (u64, usize) {
        self.observe_keys(group);
        let mut found = 0;
        if cursor == 0 {
            for (key, hash) in self.touched_keys() {
                if !self.in_snapshot(hash, &key, group, |cell| cell.value.is_some())
                    && self.shows(hash, &key, group)
                {
                    keys.bulk(&key);
                    found += 1;
                }
            }
        }
        if (cursor >> CURSOR_BITS) as usize >= group.len() {
            return (0, found);
        }
        let mut known = Vec::new();
        for _ in 0..count.max(1).saturating_mul(PLACES_PER_KEY) {
            let (index, inner) = ((cursor >> CURSOR_BITS) as usize, cursor & ((1 << CURSOR_BITS) - 1));
            let inner = group.partition(index).known_keys(inner, &mut known);
            for key in known.drain(..) {
                let hash = group.partition(index).store.hash(&key);
                if self.in_snapshot(hash, &key, group, |cell| cell.value.is_some())
                    && self.shows(hash, &key, group)
                {
                    keys.bulk(&key);
                    found += 1;
                }
            }
            cursor = group.next_cursor(index, inner);
            if cursor == 0 || found >= count as usize {
                break;
            }
        }
        (cursor, found)
    }

    /// Draws one of the keys that the transaction sees. That there is none is an observation, which key it was is none.
    pub(super) fn draw(&mut self, group: &mut Group<'_, '_>, random: &mut Rng, sink: &mut dyn ReplySink) {
        let touched = self.touched_keys();
        for _ in 0..DRAWS {
            if let Some(key) = self.draw_once(&touched, group, random) {
                return sink.bulk(&key);
            }
        }
        let before = self.observes_keys;
        let mut keys = ReplyBuf::new();
        let found = self.keys(group, &mut keys);
        if found == 0 {
            return sink.null();
        }
        self.observes_keys = before;
        if let Some(Reply::Bulk(key)) = keys.elements().nth(random.usize(0..found)) {
            sink.bulk(key);
        }
    }

    /// One draw among the keys that are known and those that the transaction has touched; `None` if it does not see that
    /// one.
    fn draw_once(
        &self,
        touched: &[(CompactKey, KeyHash)],
        group: &mut Group<'_, '_>,
        random: &mut Rng,
    ) -> Option<CompactKey> {
        let others = if self.is_flushed() { 0 } else { group.known() };
        let mut place = random.usize(0..(others + touched.len()).max(1));
        if place >= others {
            let (key, hash) = touched.get(place - others)?;
            return self.shows(*hash, key, group).then(|| key.clone());
        }
        for index in 0..group.len() {
            let store = &group.partition(index).store;
            if place >= store.known() {
                place -= store.known();
                continue;
            }
            let key = CompactKey::new(store.random_known(random)?);
            let hash = store.hash(&key);
            // What it has touched was among the others.
            let seen = !self.by_key.contains_key(&key)
                && self.in_snapshot(hash, &key, group, |cell| cell.value.is_some())
                && self.shows(hash, &key, group);
            return seen.then_some(key);
        }
        None
    }

    /// True if a key came or went that the transaction has observed not to.
    pub(super) fn keys_are_overtaken(&self, group: &mut Group<'_, '_>) -> bool {
        let (snapshot, begun_millis) = (self.snapshot, self.begun.wall.as_millis());
        self.observes_keys
            && group.all().any(|partition| partition.protocol().keyset.differs_from(snapshot, begun_millis))
    }

    /// The keys that the transaction has evaluated something on.
    fn touched_keys(&self) -> Vec<(CompactKey, KeyHash)> {
        let hash_of = |places: &Vec<usize>| places.first().map(|place| self.done[*place].hash);
        self.by_key.iter().filter_map(|(key, places)| Some((key.clone(), hash_of(places)?))).collect()
    }

    /// True if the transaction sees a value under this key.
    fn shows(&self, hash: KeyHash, key: &[u8], group: &mut Group<'_, '_>) -> bool {
        let now_millis = self.begun.wall.as_millis();
        self.with_state(hash, key, group, |cell, _| cell.value.is_some() && !cell.is_expired(now_millis))
    }
}
