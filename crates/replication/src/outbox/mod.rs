//! What this replica has to tell its peers and some of them may still lack.

mod spilled;

pub use spilled::Fetched;

use spilled::Spilled;
use std::collections::{BTreeMap, VecDeque};
use types::{RegionId, Timestamp, TransactionId};

/// A chunk of the spool holds about so much of what memory held, in bytes; a quarter of the memory if that is less.
const CHUNK: usize = 256 << 10;

/// How far one peer is.
#[derive(Clone, Debug, Default)]
struct Peer {
    /// It holds everything up to here durably.
    received: Timestamp,
    /// Everything up to here is on its way to it.
    sent: Timestamp,
    /// The places and sizes of the items that are on their way.
    under_way: VecDeque<(Timestamp, usize)>,
    /// The sizes of these together.
    bytes: usize,
}

impl Peer {
    /// True if nothing more may be on its way.
    fn is_full(&self, window: Window) -> bool {
        self.under_way.len() >= window.items || self.bytes > window.bytes
    }

    /// Notes an item that is sent, unless the window is full. Items of one place go together: a peer's times say
    /// nothing of a part of them.
    fn send(&mut self, at: Timestamp, bytes: usize, last: Timestamp, window: Window) -> bool {
        let may_go = at <= last || !self.is_full(window);
        if may_go {
            self.under_way.push_back((at, bytes));
            self.bytes += bytes;
        }
        may_go
    }

    /// Forgets what it has received of what was sent.
    fn forget_received(&mut self) {
        while let Some((_, bytes)) = self.under_way.pop_front_if(|(at, _)| *at <= self.received) {
            self.bytes -= bytes;
        }
    }
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

/// Committed items in the order of their place, retained until every peer has acknowledged them as durable, and sent
/// to each at its own pace: a peer that is slow or cut off has a window's worth on its way, and no more.
///
/// Beyond a limit the oldest items leave the memory. Where the replica has a spool, they go there, in chunks
/// ([`Outbox::spill`]), and are fetched one after the other when a peer is due to be sent them
/// ([`Outbox::look_ahead`], [`Outbox::put`]). Without one, beyond what the spool may hold, and when it has lost a chunk
/// ([`Outbox::lost`]), they are dropped, with everything before them: a peer that lacks one of them ([`Outbox::lacks`])
/// is sent nothing until it has taken the state another way and greets again.
///
/// ```text
///   dropped | chunk, chunk, ... chunk | items in memory        places ascend to the right
///             ^ a lagging peer's `sent`           ^ another one's
/// ```
#[derive(Clone, Debug)]
pub struct Outbox<T> {
    items: BTreeMap<(Timestamp, TransactionId), Item<T>>,
    /// Everything in it is placed below every item.
    spilled: Spilled<T>,
    peers: BTreeMap<RegionId, Peer>,
    bytes: usize,
    limit: usize,
    /// How much the spool may hold, in bytes.
    spill_limit: u64,
    /// Of what was placed up to here, something may be missing.
    dropped: Timestamp,
}

impl<T> Outbox<T> {
    /// An empty one for these peers, none of which has received anything, which keeps about `limit` bytes in memory, and
    /// so many in the spool, at most; 0 if there is none.
    pub fn new(peers: impl IntoIterator<Item = RegionId>, limit: usize, spill_limit: u64) -> Self {
        let peers = peers.into_iter().map(|peer| (peer, Peer::default())).collect();
        let (items, spilled) = (BTreeMap::new(), Spilled::new());
        Outbox { items, spilled, peers, bytes: 0, limit, spill_limit, dropped: Timestamp::ZERO }
    }

    /// Keeps an item that occupies about so many bytes; ignores one that every peer has, or that has been dropped. The
    /// same item again changes nothing. Where there is a spool, [`Outbox::spill`] is due afterwards.
    pub fn push(&mut self, at: Timestamp, id: TransactionId, bytes: usize, content: T) {
        let lacking = self.peers.values().any(|peer| peer.received < at);
        if !lacking || at <= self.dropped || self.items.contains_key(&(at, id)) {
            return;
        }
        if self.spilled.last().is_some_and(|last| at <= last) {
            // Nobody places below what has been applied; and no chunk takes anything in.
            return self.drop_through(at);
        }
        self.items.insert((at, id), Item { bytes, content });
        self.bytes += bytes;
        while self.spill_limit == 0
            && self.bytes > self.limit
            && let Some(((at, _), item)) = self.items.pop_first()
        {
            self.bytes -= item.bytes;
            self.dropped = at;
        }
    }

    /// Takes the oldest items out of the memory, if they exceed its limit and there is a spool: a chunk's number and
    /// its bytes, to which `encode` appends each of them in order. No item of a place that is in it may be pushed later.
    pub fn spill(
        &mut self,
        mut encode: impl FnMut(Timestamp, TransactionId, &T, &mut Vec<u8>),
    ) -> Option<(u64, Vec<u8>)> {
        if self.spill_limit == 0 || self.bytes <= self.limit {
            return None;
        }
        let size = (self.limit / 4).min(CHUNK);
        let (mut chunk, mut last, mut items, mut taken) = (Vec::new(), Timestamp::ZERO, 0, 0);
        while let Some(entry) = self.items.first_entry() {
            let (at, id) = *entry.key();
            if taken > size && at > last {
                break;
            }
            let item = entry.remove();
            encode(at, id, &item.content, &mut chunk);
            (last, items, taken) = (at, items + 1, taken + item.bytes);
        }
        self.bytes -= taken;
        let number = self.spilled.add(last, items, chunk.len());
        while self.spilled.bytes() > self.spill_limit
            && let Some(oldest) = self.spilled.forget_first()
        {
            self.dropped = self.dropped.max(oldest.last);
        }
        Some((number, chunk))
    }

    /// These peers are being sent what is due: the numbers of the chunks that are to be fetched, each of which is
    /// waited for from now on. Items that no peer needs soon do not stay in memory.
    pub fn look_ahead(&mut self, peers: &[RegionId], window: Window) -> Vec<u64> {
        let places = self.peers.iter().filter(|(_, known)| known.sent >= self.dropped);
        let is_served = |region: &RegionId, known: &Peer| peers.contains(region) && !known.is_full(window);
        self.spilled.look_ahead(places.map(|(region, known)| (known.sent, is_served(region, known))))
    }

    /// Takes the number up to which chunks have been forgotten since the last call, if any have.
    pub fn take_forgotten(&mut self) -> Option<u64> {
        self.spilled.take_forgotten()
    }

    /// A chunk that was to be fetched is here, in the order in which it was encoded.
    pub fn put(&mut self, number: u64, items: Vec<Fetched<T>>) {
        if !self.spilled.is_awaited(number) {
            return;
        }
        match self.spilled.fits(number, &items) {
            true => self.spilled.put(number, items),
            false => self.lost(number),
        }
    }

    /// The spool does not have a chunk any more, or never had it: that is dropped, with everything before it.
    pub fn lost(&mut self, number: u64) {
        if let Some(chunk) = self.spilled.get(number) {
            self.drop_through(chunk.last);
        }
    }

    /// The peer begins to be sent what is placed after `received`, which it holds.
    pub fn resume(&mut self, peer: RegionId, received: Timestamp) {
        if let Some(known) = self.peers.get_mut(&peer) {
            known.sent = received;
            known.under_way.clear();
            known.bytes = 0;
        }
        self.received(peer, received);
    }

    /// The peer holds everything up to `received` durably; what every peer holds is forgotten.
    pub fn received(&mut self, peer: RegionId, received: Timestamp) {
        let Some(known) = self.peers.get_mut(&peer) else { return };
        known.received = received.max(known.received);
        known.forget_received();
        self.forget_received();
    }

    /// The peer is gone for good: the outbox retains nothing for it.
    pub fn forget(&mut self, peer: RegionId) {
        self.peers.remove(&peer);
        self.forget_received();
    }

    /// Drops the items in memory of which this is not true: they are to be sent to nobody. Those in the spool stay.
    pub fn retain(&mut self, mut stays: impl FnMut(Timestamp, TransactionId, &T) -> bool) {
        let bytes = &mut self.bytes;
        self.items.retain(|(at, id), item| {
            let stays = stays(*at, *id, &item.content);
            *bytes -= if stays { 0 } else { item.bytes };
            stays
        });
    }

    fn forget_received(&mut self) {
        let by_all = self.peers.values().map(|peer| peer.received).min().unwrap_or(Timestamp::MAX);
        // A peer that has forgotten more than the last item that it held has lost something.
        if let Some(last) = self.spilled.forget_through(by_all) {
            self.dropped = self.dropped.max(last.previous());
        }
        while let Some(entry) = self.items.first_entry().filter(|entry| entry.key().0 <= by_all) {
            self.dropped = self.dropped.max(entry.key().0.previous());
            self.bytes -= entry.remove().bytes;
        }
    }

    /// The items to be sent to the peer next, in order, of those placed up to `until`; with them everything up to the
    /// returned time has been sent. They end where a chunk is missing.
    pub fn take_due(
        &mut self,
        peer: RegionId,
        until: Timestamp,
        window: Window,
    ) -> (Vec<(Timestamp, TransactionId, &T)>, Timestamp) {
        if self.lacks(peer) {
            return (Vec::new(), self.sent(peer));
        }
        let Some(known) = self.peers.get_mut(&peer) else { return (Vec::new(), Timestamp::ZERO) };
        let sent = known.sent;
        let (first, chunks) = self.spilled.after(sent);
        let here =
            (first..first + chunks as u64).take_while(|number| self.spilled.fetched(*number).is_some());
        let fetched = first..first + here.count() as u64;
        // What is in memory comes when nothing is missing before it.
        let mut is_all = fetched.end == first + chunks as u64;
        let fetched = fetched.filter_map(|number| self.spilled.fetched(number)).flatten();
        let fetched = fetched.map(|(at, id, bytes, content)| (*at, *id, *bytes, content));
        let in_memory = is_all.then(|| self.items.range((sent.next(), TransactionId::default())..));
        let in_memory = in_memory.into_iter().flatten();
        let in_memory = in_memory.map(|((at, id), item)| (*at, *id, item.bytes, &item.content));
        let (mut due, mut last) = (Vec::new(), sent);
        let next = fetched.chain(in_memory).filter(|(at, ..)| *at > sent);
        for (at, id, bytes, content) in next.take_while(|(at, ..)| *at <= until) {
            if !known.send(at, bytes, last, window) {
                is_all = false;
                break;
            }
            last = at;
            due.push((at, id, content));
        }
        known.sent = if is_all { until.max(sent) } else { last };
        (due, known.sent)
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

    /// Up to where something may be missing of what is in memory: what an outbox lacks that is filled from
    /// [`Outbox::after`] in another life, which begins with an empty spool.
    pub fn dropped_from_memory(&self) -> Timestamp {
        self.dropped.max(self.spilled.last().unwrap_or_default())
    }

    /// Of what was placed up to here, something may be missing.
    pub fn drop_through(&mut self, at: Timestamp) {
        self.dropped = self.dropped.max(at);
        self.spilled.forget_through(at);
    }

    /// What is in memory, placed after `at`, in order.
    pub fn after(&self, at: Timestamp) -> impl Iterator<Item = (Timestamp, TransactionId, &T)> {
        let beyond = (at.next(), TransactionId::default());
        self.items.range(beyond..).map(|((at, id), item)| (*at, *id, &item.content))
    }

    /// Where the chunk ends that the peer is to be sent next, while it is awaited.
    pub fn awaits(&self, peer: RegionId) -> Option<Timestamp> {
        let (number, _) = self.spilled.after(self.sent(peer));
        self.spilled.get(number).filter(|_| self.spilled.is_awaited(number)).map(|chunk| chunk.last)
    }

    /// How many items the outbox holds.
    pub fn len(&self) -> usize {
        self.items.len() + self.spilled.items()
    }

    /// True when every peer holds everything.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// About how many bytes of memory it occupies.
    pub fn bytes(&self) -> usize {
        self.bytes + self.spilled.fetched_bytes()
    }

    /// How many bytes are in the spool.
    pub fn spilled_bytes(&self) -> u64 {
        self.spilled.bytes()
    }
}

#[cfg(test)]
mod tests;
