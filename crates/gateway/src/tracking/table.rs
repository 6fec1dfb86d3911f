//! Which clients of a gateway have read which keys, and which follow all keys with a prefix.

use super::TrackingFigures;
use crate::gateway::ConnectionId;
use std::collections::{BTreeMap, BTreeSet};
use types::KeyspaceId;

type Key = (KeyspaceId, Box<[u8]>);

/// With no more clients than these, the table does not look for those that are gone.
const FEW_CLIENTS: usize = 8;

/// See the module. A client that is gone stays in the entry of a key until that goes, or others read it and half of the
/// entry may be gone; its connection's name is never used again.
#[derive(Debug, Default)]
pub(crate) struct Table {
    keys: BTreeMap<Key, Entry>,
    items: usize,
    /// All tracked connections.
    clients: BTreeSet<ConnectionId>,
    /// The clients that track prefixes, with their prefixes.
    broadcast: BTreeMap<ConnectionId, BTreeSet<Box<[u8]>>>,
    /// When keys expire, in milliseconds since 1970.
    deadlines: BTreeSet<(u64, Key)>,
    /// Where the key was that went last because there were too many.
    cursor: Option<Key>,
}

#[derive(Debug, Default)]
struct Entry {
    /// In order.
    clients: Vec<ConnectionId>,
    /// When it expires, if that is known.
    deadline: Option<u64>,
}

impl Table {
    /// A connection is tracked from now on, and with these prefixes if it follows all keys.
    pub(crate) fn begin(&mut self, id: ConnectionId, prefixes: Option<BTreeSet<Box<[u8]>>>) {
        self.clients.insert(id);
        match prefixes {
            Some(prefixes) => drop(self.broadcast.insert(id, prefixes)),
            None => drop(self.broadcast.remove(&id)),
        }
    }

    /// It is not tracked any longer.
    pub(crate) fn end(&mut self, id: ConnectionId) {
        self.clients.remove(&id);
        self.broadcast.remove(&id);
        if self.clients.is_empty() {
            *self = Table::default();
        }
    }

    /// True if nobody is tracked.
    pub(crate) fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// All tracked connections, in order.
    pub(crate) fn clients(&self) -> Vec<ConnectionId> {
        self.clients.iter().copied().collect()
    }

    /// True if some client relies on notifications.
    pub(crate) fn relies_on_news(&self) -> bool {
        !self.keys.is_empty() || !self.broadcast.is_empty()
    }

    /// True if anything has been read since all was forgotten.
    pub(crate) fn has_keys(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The clients that track all keys with a prefix.
    pub(crate) fn broadcast(&self) -> Vec<ConnectionId> {
        self.broadcast.keys().copied().collect()
    }

    /// A connection is about to read a key. True if nobody else in the table has.
    pub(crate) fn remember(&mut self, keyspace: KeyspaceId, key: &[u8], id: ConnectionId) -> bool {
        let before = self.keys.len();
        let entry = self.keys.entry((keyspace, key.into())).or_default();
        if entry.clients.len() >= 2 * self.clients.len().max(FEW_CLIENTS) {
            let before = entry.clients.len();
            entry.clients.retain(|id| self.clients.contains(id));
            self.items -= before - entry.clients.len();
        }
        if let Err(position) = entry.clients.binary_search(&id) {
            entry.clients.insert(position, id);
            self.items += 1;
        }
        self.keys.len() > before
    }

    /// True if somebody has read the key.
    pub(crate) fn has(&self, keyspace: KeyspaceId, key: &[u8]) -> bool {
        self.keys.contains_key(&(keyspace, key.into()))
    }

    /// A key has changed: it leaves the table, and its readers are to be notified. `keeps` is a connection that stays.
    pub(crate) fn forget(
        &mut self,
        keyspace: KeyspaceId,
        key: &[u8],
        keeps: Option<ConnectionId>,
    ) -> Vec<ConnectionId> {
        let place = (keyspace, key.into());
        let Some(mut entry) = self.keys.remove(&place) else { return Vec::new() };
        self.items -= entry.clients.len();
        if let Some(id) = keeps
            && let Ok(position) = entry.clients.binary_search(&id)
        {
            entry.clients.remove(position);
            self.items += 1;
            let remaining = Entry { clients: vec![id], deadline: entry.deadline };
            self.keys.insert(place, remaining);
        } else if let Some(deadline) = entry.deadline {
            self.deadlines.remove(&(deadline, place));
        }
        entry.clients
    }

    /// Forgets all keys.
    pub(crate) fn forget_all(&mut self) {
        self.keys.clear();
        self.deadlines.clear();
        self.items = 0;
    }

    /// A key expires at this time, in milliseconds since 1970.
    pub(crate) fn set_deadline(&mut self, keyspace: KeyspaceId, key: &[u8], at_millis: u64) {
        let place = (keyspace, key.into());
        let Some(entry) = self.keys.get_mut(&place) else { return };
        if let Some(before) = entry.deadline.replace(at_millis) {
            // The sooner counts: the later one may have been set after the value was read, and that write was
            // announced.
            let sooner = before.min(at_millis);
            entry.deadline = Some(sooner);
            self.deadlines.remove(&(before, place.clone()));
            self.deadlines.insert((sooner, place));
        } else {
            self.deadlines.insert((at_millis, place));
        }
    }

    /// When the next key expires, in milliseconds since 1970.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| *at)
    }

    /// A key that has expired.
    pub(crate) fn expired(&self, now_millis: u64) -> Option<Key> {
        self.deadlines.first().filter(|(at, _)| *at <= now_millis).map(|(_, place)| place.clone())
    }

    /// A key that goes because there are more than `most`: not one that came last, if there are others.
    pub(crate) fn surplus(&mut self, most: usize) -> Option<Key> {
        if self.keys.len() <= most {
            return None;
        }
        let behind = self.cursor.take().and_then(|cursor| {
            use std::ops::Bound::{Excluded, Unbounded};
            self.keys.range((Excluded(cursor), Unbounded)).next().map(|(place, _)| place.clone())
        });
        let place = behind.or_else(|| self.keys.keys().next().cloned());
        self.cursor.clone_from(&place);
        place
    }

    /// How much there is.
    pub(crate) fn figures(&self) -> TrackingFigures {
        let prefixes: BTreeSet<&[u8]> = self.broadcast.values().flatten().map(|prefix| &**prefix).collect();
        TrackingFigures {
            clients: self.clients.len() as u64,
            keys: self.keys.len() as u64,
            items: self.items as u64,
            prefixes: prefixes.len() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: KeyspaceId = KeyspaceId(0);

    fn client(number: u32) -> ConnectionId {
        ConnectionId::numbered(number)
    }

    #[test]
    fn readers_are_notified_once() {
        let mut table = Table::default();
        assert!(table.remember(HERE, b"k", client(2)));
        assert!(!table.remember(HERE, b"k", client(1)));
        assert!(!table.remember(HERE, b"k", client(1)), "twice");
        assert!(table.remember(KeyspaceId(1), b"k", client(3)), "another keyspace");
        assert_eq!((table.figures().keys, table.figures().items), (2, 3));
        assert_eq!(table.forget(HERE, b"k", None), [client(1), client(2)]);
        assert_eq!(table.forget(HERE, b"k", None), []);
        assert_eq!((table.figures().keys, table.figures().items), (1, 1));
    }

    #[test]
    fn who_changes_a_key_may_stay() {
        let mut table = Table::default();
        table.remember(HERE, b"k", client(1));
        table.remember(HERE, b"k", client(2));
        table.set_deadline(HERE, b"k", 70);
        assert_eq!(table.forget(HERE, b"k", Some(client(1))), [client(2)]);
        assert_eq!((table.figures().keys, table.figures().items), (1, 1));
        assert_eq!(table.next_deadline(), Some(70));
        assert_eq!(table.forget(HERE, b"k", None), [client(1)]);
        assert_eq!(table.next_deadline(), None);
    }

    #[test]
    fn keys_expire_in_the_order_of_their_deadlines() {
        let mut table = Table::default();
        for (key, at) in [(b"a", 30), (b"b", 10), (b"c", 20)] {
            table.remember(HERE, key, client(1));
            table.set_deadline(HERE, key, at);
        }
        table.set_deadline(HERE, b"c", 40);
        table.set_deadline(HERE, b"gone", 1);
        table.forget(HERE, b"b", None);
        assert_eq!(table.expired(19), None);
        assert_eq!(table.expired(20), Some((HERE, (*b"c").into())), "the sooner of two deadlines");
    }

    #[test]
    fn clients_that_are_gone_do_not_pile_up() {
        let mut table = Table::default();
        table.begin(client(0), None);
        table.remember(HERE, b"a", client(0));
        for number in 1..1000 {
            table.begin(client(number), None);
            table.remember(HERE, b"a", client(number));
            table.end(client(number));
            assert!(table.figures().items <= 16, "after {number}");
        }
        let readers = table.forget(HERE, b"a", None);
        assert!(readers.contains(&client(0)) && readers.contains(&client(999)), "{readers:?}");
        assert_eq!(table.figures().items, 0);
    }

    #[test]
    fn a_full_table_gives_up_one_key_after_the_other() {
        let mut table = Table::default();
        table.begin(client(1), None);
        for key in [b"a", b"b", b"c"] {
            table.remember(HERE, key, client(1));
        }
        assert_eq!(table.surplus(3), None);
        assert_eq!(table.surplus(2), Some((HERE, (*b"a").into())));
        assert_eq!(table.surplus(2), Some((HERE, (*b"b").into())));
        table.end(client(1));
        assert!(table.is_empty());
        assert_eq!(table.figures(), TrackingFigures::default());
    }
}
