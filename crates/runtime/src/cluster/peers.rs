//! The transport between processes: one TCP connection each way, frames with their addresses, no promise beyond
//! what replicas expect of a network. What cannot be sent is dropped; replicas send again.
//!
//! A connection begins with 8 bytes that name the format and 8 bytes that name the cluster, and goes on with frames:
//! a `u32` length, little-endian, the sender's [`NodeId`], the receiver's [`Slot`], the packet. Whoever connected
//! writes, the other side only reads. Peers trust one another: the addresses belong into a private network.
//!
//! The connections are spread over the workers' event loops. One worker reads a connection, so that packets keep their
//! order; any thread sends.

use crate::cluster::incoming::{Arrivals, Incoming};
use crate::cluster::outgoing::{MAX_QUEUE_BYTES, Outgoing};
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use parking_lot::Mutex;
use protocol::Encode;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use types::{Incarnation, Instant, KeyspaceId, NodeId, ProcessId, Slot};

/// Tokens from here on belong to peers; clients have smaller ones.
pub(crate) const FIRST_TOKEN: usize = 1 << 40;
const LISTENER: usize = FIRST_TOKEN;
pub(super) const MAGIC: &[u8; 8] = b"ANBPEER3";
pub(super) const HANDSHAKE_BYTES: usize = 16;
pub(super) const MAX_FRAME_BYTES: usize = 1 << 30;

/// The workers' event loops, among which connections are spread by their tokens: even ones of connections that peers have
/// made, odd ones of those to peers.
pub(super) struct EventLoops {
    registries: Vec<Registry>,
    /// How many connections of each kind there have been.
    made: [AtomicUsize; 2],
}

impl EventLoops {
    fn next(&self, kind: usize) -> usize {
        let number = self.made[kind].fetch_add(1, Ordering::Relaxed) + 1;
        FIRST_TOKEN + 2 * number + kind
    }

    fn of(&self, token: usize) -> &Registry {
        &self.registries[token / 2 % self.registries.len()]
    }

    fn add_incoming(&self, socket: &mut TcpStream) -> std::io::Result<usize> {
        let token = self.next(0);
        self.of(token).register(socket, Token(token), Interest::READABLE)?;
        Ok(token)
    }

    /// Registers a connection to a peer; its token.
    pub(super) fn add_outgoing(&self, socket: &mut TcpStream) -> std::io::Result<usize> {
        let token = self.next(1);
        self.of(token).register(socket, Token(token), Interest::READABLE | Interest::WRITABLE)?;
        Ok(token)
    }

    /// Forgets a connection.
    pub(super) fn remove(&self, socket: &mut TcpStream, token: usize) {
        // A socket that cannot be deregistered is closed all the same.
        let _ = self.of(token).deregister(socket);
    }
}

/// All connections to and from peers.
pub(crate) struct Peers {
    seed: u64,
    own: ProcessId,
    incarnation: Incarnation,
    /// `None` if there are no peers.
    listener: Mutex<Option<TcpListener>>,
    outgoing: BTreeMap<ProcessId, Outgoing>,
    incoming: Mutex<BTreeMap<usize, Arc<Mutex<Incoming>>>>,
    /// Nothing is connected before there are any.
    loops: OnceLock<EventLoops>,
    /// How many types of the cluster's list this process may name: see [`known_types`](super::known_types).
    types: Arc<AtomicU64>,
    /// See [`Peers::note_ahead`].
    has_ahead: AtomicBool,
}

impl Peers {
    /// Nothing is connected before [`Peers::begin`].
    pub(crate) fn new(
        seed: u64,
        (own, incarnation): (ProcessId, Incarnation),
        listener: Option<TcpListener>,
        peers: impl Iterator<Item = (ProcessId, SocketAddr)>,
        types: Arc<AtomicU64>,
    ) -> Self {
        Peers {
            seed,
            own,
            incarnation,
            listener: Mutex::new(listener),
            outgoing: peers.map(|(process, address)| (process, Outgoing::new(address))).collect(),
            incoming: Mutex::default(),
            loops: OnceLock::new(),
            types,
            has_ahead: AtomicBool::new(false),
        }
    }

    /// Listens and connects, in these event loops from now on, each of a worker; the first one accepts.
    pub(crate) fn begin(&self, now: Instant, registries: Vec<Registry>) -> std::io::Result<()> {
        if let (Some(listener), Some(first)) = (&mut *self.listener.lock(), registries.first()) {
            first.register(listener, Token(LISTENER), Interest::READABLE)?;
        }
        if self.loops.set(EventLoops { registries, made: Default::default() }).is_ok() {
            self.flush(now);
        }
        Ok(())
    }

    /// What a message between processes that belongs to no keyspace names as its sender.
    pub(super) fn node(&self, slot: Slot) -> NodeId {
        NodeId { process: self.own, incarnation: self.incarnation, slot }
    }

    /// The other processes of the cluster, connected or not.
    pub(crate) fn all(&self) -> impl Iterator<Item = ProcessId> {
        self.outgoing.keys().copied()
    }

    /// True if so much waits for the peer that what need not arrive is not to be sent.
    pub(crate) fn is_far_behind(&self, process: ProcessId) -> bool {
        self.outgoing.get(&process).is_some_and(|peer| peer.waiting() > MAX_QUEUE_BYTES / 8)
    }

    /// Queues a packet; `flush` sends it. One that can wait says so by the present time.
    pub(crate) fn send(
        &self,
        to: ProcessId,
        from: NodeId,
        slot: Slot,
        packet: &dyn Encode,
        can_wait: Option<Instant>,
    ) {
        if let Some(peer) = self.outgoing.get(&to) {
            peer.send(to, (from, slot), packet, can_wait, self.types.load(Ordering::Acquire));
        }
    }

    /// Some of the peers name types that this process does not know.
    pub(super) fn note_ahead(&self, has_ahead: bool) {
        self.has_ahead.store(has_ahead, Ordering::Release);
    }

    /// See [`Peers::note_ahead`].
    pub(super) fn has_ahead(&self) -> bool {
        self.has_ahead.load(Ordering::Acquire)
    }

    /// How many bytes of a keyspace have been queued for each peer since the start.
    pub(crate) fn sent(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (ProcessId, u64)> {
        self.outgoing.iter().filter_map(move |(to, peer)| Some((*to, peer.sent(keyspace)?)))
    }

    /// Connects what is down and sends what is queued and cannot wait any more. The caller holds no lock.
    pub(crate) fn flush(&self, now: Instant) {
        let Some(loops) = self.loops.get() else { return };
        self.outgoing.values().for_each(|peer| peer.flush(now, self.seed, loops));
    }

    /// When `flush` is due at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.outgoing.values().filter_map(Outgoing::deadline).min()
    }

    /// Something happened to a peer's socket: hands on the packets that are complete. `chunk` is room to read into.
    pub(crate) fn ready(
        &self,
        (token, ending): (usize, bool),
        now: Instant,
        chunk: &mut [u8],
        arrived: &mut Arrivals,
    ) {
        let Some(loops) = self.loops.get() else { return };
        if token == LISTENER {
            return self.accept(loops);
        }
        let incoming = self.incoming.lock().get(&token).cloned();
        if let Some(incoming) = incoming {
            let mut incoming = incoming.lock();
            if !incoming.read(self.seed, ending, chunk, arrived) {
                self.incoming.lock().remove(&token);
                loops.remove(&mut incoming.socket, token);
            }
        } else if let Some(peer) = self.outgoing.values().find(|peer| peer.has_token(token)) {
            peer.ready(now, loops);
        }
    }

    fn accept(&self, loops: &EventLoops) {
        let listener = self.listener.lock();
        while let Some(Ok((mut socket, _))) = listener.as_ref().map(TcpListener::accept) {
            // Behind its lock: the worker of the connection may have an event of it before it is among the others.
            let mut incoming = self.incoming.lock();
            if let Ok(token) = loops.add_incoming(&mut socket) {
                incoming.insert(token, Arc::new(Mutex::new(Incoming::new(socket))));
            }
        }
    }

    /// How many peers are connected.
    pub(crate) fn connected(&self) -> usize {
        self.outgoing.values().filter(|peer| peer.is_established()).count()
    }

    /// True if this peer is.
    pub(crate) fn is_connected(&self, process: ProcessId) -> bool {
        self.outgoing.get(&process).is_some_and(Outgoing::is_established)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::known_types;
    use crate::cluster::outgoing::LINGER;
    use mio::{Events, Poll};
    use std::time::Duration;
    use types::{PartitionId, Reader, ReplyBuf, ReplySink, Wire};

    struct End {
        poll: Poll,
        peers: Peers,
        arrived: Arrivals,
        now: Instant,
    }

    impl End {
        fn new(seed: u64, listener: TcpListener, peer: (u16, SocketAddr)) -> Self {
            let poll = Poll::new().unwrap();
            let others = std::iter::once((ProcessId(peer.0), peer.1));
            let own = (ProcessId(3 - peer.0), Incarnation(9));
            let peers = Peers::new(seed, own, Some(listener), others, Arc::default());
            peers.begin(Instant(0), vec![poll.registry().try_clone().unwrap()]).unwrap();
            End { poll, peers, arrived: Arrivals::default(), now: Instant(0) }
        }

        fn turn(&mut self) {
            let mut events = Events::with_capacity(16);
            self.poll.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
            for event in &events {
                let ending = event.is_read_closed() || event.is_error();
                let (event, chunk) = ((event.token().0, ending), &mut [0; 65536]);
                self.peers.ready(event, self.now, chunk, &mut self.arrived);
            }
            self.peers.flush(self.now);
        }
    }

    fn two(seed_of_second: u64) -> (End, End) {
        let listen = || TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let (first, second) = (listen(), listen());
        let addresses = (first.local_addr().unwrap(), second.local_addr().unwrap());
        (End::new(7, first, (2, addresses.1)), End::new(seed_of_second, second, (1, addresses.0)))
    }

    fn slot(partition: u16) -> Slot {
        Slot::replica(KeyspaceId(3), PartitionId(partition))
    }

    fn say(end: &mut End, text: &[u8]) -> NodeId {
        let from = NodeId { process: ProcessId(1), incarnation: Incarnation(9), slot: slot(0) };
        let mut packet = ReplyBuf::new();
        packet.bulk(text);
        end.peers.send(ProcessId(2), from, slot(5), &packet, None);
        from
    }

    fn until(first: &mut End, second: &mut End, done: impl Fn(&End, &End) -> bool) -> bool {
        (0..400).any(|_| {
            first.turn();
            second.turn();
            done(first, second)
        })
    }

    #[test]
    fn packets_arrive_whole_and_in_order_whatever_their_size() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        let large = vec![b'x'; 5 << 20];
        let from = say(&mut first, b"small");
        say(&mut first, &large);
        say(&mut first, b"last");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.iter().count() == 3));
        for (arrived, text) in second.arrived.iter().zip([&b"small"[..], &large, b"last"]) {
            assert_eq!((arrived.0, arrived.1), (from, slot(5)));
            let packet = ReplyBuf::decode(&mut Reader::new(arrived.2)).unwrap();
            assert_eq!(packet.first(), Some(types::Reply::Bulk(text)));
        }
    }

    #[test]
    fn what_can_wait_travels_with_what_cannot_or_after_a_while() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        let linger = |first: &mut End, text: &[u8]| {
            let from = NodeId { process: ProcessId(1), incarnation: Incarnation(9), slot: slot(0) };
            let mut packet = ReplyBuf::new();
            packet.bulk(text);
            first.peers.send(ProcessId(2), from, slot(5), &packet, Some(first.now));
        };
        linger(&mut first, b"a");
        linger(&mut first, b"b");
        (0..20).for_each(|_| (first.turn(), second.turn()).0);
        assert_eq!((second.arrived.iter().count(), first.peers.deadline()), (0, Some(first.now + LINGER)));
        say(&mut first, b"now");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.iter().count() == 3));
        assert_eq!(first.peers.deadline(), None);
        linger(&mut first, b"c");
        first.now = first.now + LINGER;
        assert!(until(&mut first, &mut second, |_, second| second.arrived.iter().count() == 4));
        assert_eq!(first.peers.deadline(), None);
    }

    #[test]
    fn a_peer_of_another_cluster_is_turned_away() {
        let (mut first, mut second) = two(8);
        for _ in 0..40 {
            say(&mut first, b"foreign");
            first.turn();
            second.turn();
        }
        assert!(
            second.arrived.is_empty()
                && second.peers.incoming.lock().values().all(|peer| !peer.lock().is_greeted())
        );
    }

    #[test]
    fn a_peer_gets_types_before_another_packet_on_every_connection() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        let slots =
            |end: &End| end.arrived.iter().map(|(_, to, _)| to == known_types::SLOT).collect::<Vec<bool>>();
        say(&mut first, b"before");
        first.peers.types.store(3, Ordering::Release);
        say(&mut first, b"after");
        say(&mut first, b"and again");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.iter().count() == 4));
        assert_eq!(slots(&second), [false, true, false, false]);
        let (from, _, packet) = second.arrived.iter().nth(1).unwrap();
        assert_eq!((from.process, u64::decode(&mut Reader::new(packet))), (ProcessId(1), Ok(3)));
        second.arrived.clear();
        second.peers.incoming.lock().clear();
        say(&mut first, b"lost");
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 0));
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        say(&mut first, b"found");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.iter().count() == 2));
        assert_eq!(slots(&second), [true, false]);
    }

    #[test]
    fn a_peer_that_comes_back_is_connected_again() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        second.peers.incoming.lock().clear();
        say(&mut first, b"lost");
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 0));
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        say(&mut first, b"found");
        assert!(until(&mut first, &mut second, |_, second| !second.arrived.is_empty()));
    }
}
