//! What this replica has to tell its peers and some of them may still lack.

use std::collections::BTreeMap;
use types::{RegionId, Timestamp, TransactionId};

/// How far one peer is.
#[derive(Clone, Copy, Debug, Default)]
struct Peer {
    /// It holds everything up to here durably.
    received: Timestamp,
    /// Everything up to here is on its way to it.
    sent: Timestamp,
    /// The window is full until it has received more.
    is_full: bool,
}

/// How much may be on its way to a peer that has not said that it holds it.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Items; at least one is sent.
    pub items: usize,
    /// Their sizes together.
    pub bytes: usize,
}

#[derive(Clone, Debug)]
struct Item<T> {
    bytes: usize,
    content: T,
}

/// Committed items in the order of their place, kept until every peer has said that it holds them durably, and sent to
/// each at its own pace: a peer that is slow or cut off has a window's worth on its way, and no more.
///
/// Beyond a limit the oldest items are dropped: a peer that lacks one of them ([`Outbox::lacks`]) is sent nothing until
/// it has taken the state another way and greets again.
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    items: BTreeMap<(Timestamp, TransactionId), Item<T>>,
    peers: BTreeMap<RegionId, Peer>,
    bytes: usize,
    limit: usize,
    /// Of what was placed up to here, something may be missing.
    dropped: Timestamp,
}

impl<T> Outbox<T> {
    /// An empty one for these peers, none of which has received anything, which keeps about `limit` bytes at most.
    pub fn new(peers: impl IntoIterator<Item = RegionId>, limit: usize) -> Self {
        let peers = peers.into_iter().map(|peer| (peer, Peer::default())).collect();
        Outbox { items: BTreeMap::new(), peers, bytes: 0, limit, dropped: Timestamp::ZERO }
    }

    /// Keeps an item that occupies about so many bytes; one that every peer has, or that has been dropped, is not
    /// kept. The same item again changes nothing.
    pub fn push(&mut self, at: Timestamp, id: TransactionId, bytes: usize, content: T) {
        let lacking = self.peers.values().any(|peer| peer.received < at);
        if !lacking || at <= self.dropped || self.items.contains_key(&(at, id)) {
            return;
        }
        self.items.insert((at, id), Item { bytes, content });
        self.bytes += bytes;
        while self.bytes > self.limit
            && let Some(((at, _), item)) = self.items.pop_first()
        {
            self.bytes -= item.bytes;
            self.dropped = at;
        }
    }

    /// The peer begins to be sent what is placed after `received`, which it holds.
    pub fn resume(&mut self, peer: RegionId, received: Timestamp) {
        if let Some(known) = self.peers.get_mut(&peer) {
            (known.sent, known.is_full) = (received, false);
        }
        self.received(peer, received);
    }

    /// The peer holds everything up to `received` durably; what every peer holds is forgotten.
    pub fn received(&mut self, peer: RegionId, received: Timestamp) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.is_full &= received <= known.received;
        known.received = received.max(known.received);
        self.forget_received();
    }

    /// The peer is gone for good: nothing is kept for it.
    pub fn forget(&mut self, peer: RegionId) {
        self.peers.remove(&peer);
        self.forget_received();
    }

    fn forget_received(&mut self) {
        let by_all = self.peers.values().map(|peer| peer.received).min().unwrap_or(Timestamp::MAX);
        while let Some(entry) = self.items.first_entry().filter(|entry| entry.key().0 <= by_all) {
            // A peer that has forgotten more than the last item that it held has lost something.
            self.dropped = self.dropped.max(entry.key().0.previous());
            self.bytes -= entry.remove().bytes;
        }
    }

    /// The items to be sent to the peer next, in order, of those placed up to `until`; with them everything up to the
    /// returned time has been sent.
    pub fn take_due(
        &mut self,
        peer: RegionId,
        until: Timestamp,
        window: Window,
    ) -> (Vec<(Timestamp, TransactionId, &T)>, Timestamp) {
        if self.lacks(peer) {
            return (Vec::new(), self.peers.get(&peer).map_or(Timestamp::ZERO, |peer| peer.sent));
        }
        let Some(known) = self.peers.get_mut(&peer) else { return (Vec::new(), Timestamp::ZERO) };
        let (mut due, mut bytes, mut count) = (Vec::new(), 0, 0);
        if known.is_full {
            return (due, known.sent);
        }
        let (sent, mut position) = (known.sent, until.max(known.sent));
        let beyond = (known.received.min(sent).next(), TransactionId::default());
        let mut last = known.received;
        for ((at, id), item) in self.items.range(beyond..).take_while(|((at, _), _)| *at <= until) {
            // Items of one place go together: a peer's times say nothing of a part of them.
            if (count >= window.items || bytes > window.bytes) && *at > last {
                position = last.max(sent);
                known.is_full = due.is_empty();
                break;
            }
            (count, bytes, last) = (count + 1, bytes + item.bytes, *at);
            if *at > sent {
                due.push((*at, *id, &item.content));
            }
        }
        known.sent = position;
        (due, position)
    }

    /// Everything up to here has been sent to the peer.
    pub fn sent(&self, peer: RegionId) -> Timestamp {
        self.peers.get(&peer).map_or(Timestamp::ZERO, |peer| peer.sent)
    }

    /// Everything up to here is held by the peer, durably.
    pub fn held_by(&self, peer: RegionId) -> Timestamp {
        self.peers.get(&peer).map_or(Timestamp::ZERO, |peer| peer.received)
    }

    /// True if the peer needs something that has been dropped.
    pub fn lacks(&self, peer: RegionId) -> bool {
        self.peers.get(&peer).is_some_and(|peer| peer.sent < self.dropped)
    }

    /// Up to where something may be missing.
    pub fn dropped(&self) -> Timestamp {
        self.dropped
    }

    /// Of what was placed up to here, something may be missing.
    pub fn drop_through(&mut self, at: Timestamp) {
        self.dropped = self.dropped.max(at);
    }

    /// What is kept after a place, in order.
    pub fn after(&self, at: Timestamp) -> impl Iterator<Item = (Timestamp, TransactionId, &T)> {
        let beyond = (at.next(), TransactionId::default());
        self.items.range(beyond..).map(|((at, id), item)| (*at, *id, &item.content))
    }

    /// How many items are kept.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when every peer holds everything.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// About how many bytes are kept.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WIDE: Window = Window { items: 100, bytes: 1000 };
    const A: RegionId = RegionId(1);
    const B: RegionId = RegionId(2);

    fn id(number: u64) -> TransactionId {
        TransactionId { number, ..TransactionId::default() }
    }

    /// Items at 10, 20, 30, 40, of ten bytes each.
    fn filled(limit: usize) -> Outbox<u64> {
        let mut outbox = Outbox::new([A, B], limit);
        (1..=4).for_each(|number| outbox.push(Timestamp(number * 10), id(number), 10, number));
        outbox
    }

    fn due(outbox: &mut Outbox<u64>, peer: RegionId, until: u64, window: Window) -> (Vec<u64>, u64) {
        let (due, position) = outbox.take_due(peer, Timestamp(until), window);
        (due.into_iter().map(|(_, _, item)| *item).collect(), position.0)
    }

    #[test]
    fn an_item_is_kept_until_the_last_peer_holds_it() {
        let mut outbox = filled(1000);
        outbox.received(A, Timestamp(40));
        assert_eq!((outbox.len(), outbox.bytes()), (4, 40));
        outbox.received(B, Timestamp(20));
        let left: Vec<u64> = outbox.after(Timestamp::ZERO).map(|(_, _, item)| *item).collect();
        assert_eq!((left, outbox.bytes()), (vec![3, 4], 20));
        outbox.received(B, Timestamp(5));
        assert_eq!(outbox.dropped(), Timestamp(19));
        assert_eq!(outbox.len(), 2, "what a peer holds it does not lose");
        outbox.push(Timestamp(50), id(5), 10, 5);
        outbox.push(Timestamp(50), id(5), 10, 5);
        assert_eq!(outbox.bytes(), 30);
    }

    #[test]
    fn each_peer_is_sent_what_it_lacks_once() {
        let mut outbox = filled(1000);
        assert_eq!(due(&mut outbox, A, 35, WIDE), (vec![1, 2, 3], 35));
        assert_eq!(due(&mut outbox, A, 36, WIDE), (vec![], 36));
        assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![4], 45));
        outbox.resume(A, Timestamp(20));
        assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![3, 4], 45), "a new life begins at what it holds");
        assert_eq!(due(&mut outbox, B, 15, WIDE), (vec![1], 15));
    }

    #[test]
    fn what_is_on_its_way_is_bounded() {
        let mut outbox = filled(1000);
        let narrow = Window { items: 2, bytes: 1000 };
        assert_eq!(due(&mut outbox, A, 45, narrow), (vec![1, 2], 20));
        assert_eq!(due(&mut outbox, A, 45, narrow), (vec![], 20), "nothing is vouched for that was not sent");
        outbox.received(A, Timestamp(10));
        assert_eq!(due(&mut outbox, A, 45, narrow), (vec![3], 30));
        outbox.push(Timestamp(30), id(9), 10, 9);
        outbox.received(A, Timestamp(30));
        outbox.resume(B, Timestamp(20));
        let thin = Window { items: 100, bytes: 0 };
        assert_eq!(due(&mut outbox, B, 45, thin), (vec![3, 9], 30), "items of one place go together");
    }

    #[test]
    fn beyond_the_limit_the_oldest_are_dropped_and_who_lacks_them_is_told_nothing() {
        let mut outbox = filled(1000);
        due(&mut outbox, A, 45, WIDE);
        outbox.limit = 30;
        outbox.push(Timestamp(50), id(5), 10, 5);
        assert_eq!((outbox.len(), outbox.dropped()), (3, Timestamp(20)));
        assert!(outbox.lacks(B) && !outbox.lacks(A), "A has been sent it");
        assert_eq!(due(&mut outbox, B, 55, WIDE), (vec![], 0));
        assert_eq!(due(&mut outbox, A, 55, WIDE), (vec![5], 55));
        outbox.resume(B, Timestamp(45));
        assert_eq!(due(&mut outbox, B, 55, WIDE), (vec![5], 55));
    }

    #[test]
    fn nothing_is_kept_for_a_peer_that_is_gone() {
        let mut outbox = filled(1000);
        assert_eq!(due(&mut outbox, A, 35, WIDE), (vec![1, 2, 3], 35));
        outbox.received(A, Timestamp(30));
        outbox.forget(B);
        assert_eq!((outbox.len(), outbox.bytes()), (1, 10));
        outbox.received(B, Timestamp(40));
        assert_eq!(outbox.len(), 1);
        assert_eq!(due(&mut outbox, A, 45, WIDE), (vec![4], 45));
    }

    #[test]
    fn nothing_is_kept_without_peers() {
        let mut outbox = Outbox::new([], 100);
        outbox.push(Timestamp(1), id(1), 1, ());
        assert!(outbox.is_empty());
    }
}
