//! What this replica has told its peers and some of them may still lack.

use std::collections::BTreeMap;
use types::{RegionId, Timestamp, TransactionId};

/// Committed items in the order of their place, kept until every peer has said that it holds them durably. A peer
/// in a new life is sent again what it lacks from here, whatever became of the stream to its earlier life.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    items: BTreeMap<(Timestamp, TransactionId), T>,
    received: BTreeMap<RegionId, Timestamp>,
}

impl<T> Outbox<T> {
    /// An empty one for these peers, none of which has received anything.
    pub fn new(peers: impl IntoIterator<Item = RegionId>) -> Self {
        let received = peers.into_iter().map(|peer| (peer, Timestamp::ZERO)).collect();
        Outbox { items: BTreeMap::new(), received }
    }

    /// Keeps an item; without peers nothing is kept. The same item again changes nothing.
    pub fn push(&mut self, at: Timestamp, id: TransactionId, item: T) {
        if self.received.values().any(|received| *received < at) {
            self.items.insert((at, id), item);
        }
    }

    /// The items placed after `received` and not after `until`, in order.
    pub fn between(
        &self,
        received: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, TransactionId, &T)> {
        let all = self.items.iter().map(|((at, id), item)| (*at, *id, item));
        all.skip_while(move |(at, ..)| *at <= received).take_while(move |(at, ..)| *at <= until)
    }

    /// The peer holds everything up to `received` durably; what every peer holds is forgotten.
    pub fn received(&mut self, peer: RegionId, received: Timestamp) {
        let Some(known) = self.received.get_mut(&peer) else { return };
        *known = received.max(*known);
        let by_all = self.received.values().copied().min().unwrap_or(Timestamp::MAX);
        while self.items.first_key_value().is_some_and(|((at, _), _)| *at <= by_all) {
            self.items.pop_first();
        }
    }

    /// Everything kept, in order.
    pub fn iter(&self) -> impl Iterator<Item = (Timestamp, TransactionId, &T)> {
        self.items.iter().map(|((at, id), item)| (*at, *id, item))
    }

    /// How many items are kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when every peer holds everything.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    #[test]
    fn an_item_is_kept_until_the_last_peer_holds_it() {
        let mut outbox = Outbox::new([RegionId(1), RegionId(2)]);
        for number in 1..=4 {
            outbox.push(Timestamp(number * 10), id(number), number);
        }
        outbox.received(RegionId(1), Timestamp(40));
        assert_eq!(outbox.len(), 4);
        outbox.received(RegionId(2), Timestamp(20));
        let left: Vec<u64> = outbox.iter().map(|(_, _, item)| *item).collect();
        assert_eq!(left, [3, 4]);
        let sent: Vec<u64> = outbox.between(Timestamp(20), Timestamp(30)).map(|(_, _, item)| *item).collect();
        assert_eq!(sent, [3], "what is not applied yet is not sent");
        outbox.received(RegionId(2), Timestamp(5));
        assert_eq!(outbox.len(), 2, "what a peer holds it does not lose");
    }

    #[test]
    fn nothing_is_kept_without_peers() {
        let mut outbox = Outbox::new([]);
        outbox.push(Timestamp(1), id(1), ());
        assert!(outbox.is_empty());
    }
}
