//! The transport between processes: one TCP connection each way, frames with their addresses, no promise beyond
//! what replicas expect of a network. What cannot be sent is dropped; replicas send again.
//!
//! A connection begins with 8 bytes that name the format and 8 bytes that name the cluster, and goes on with frames:
//! a `u32` length, little-endian, the sender's [`NodeId`], the receiver's [`Slot`], the packet. Whoever connected
//! writes, the other side only reads. Peers trust one another: the addresses belong into a private network.

use crate::cluster::known_types;
use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use protocol::Encode;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};
use types::{KeyspaceId, NodeId, ProcessId, Reader, Slot, Wire};

/// Tokens from here on belong to peers; clients have smaller ones.
pub(crate) const FIRST_TOKEN: usize = 1 << 40;
const LISTENER: usize = FIRST_TOKEN;
const MAGIC: &[u8; 8] = b"ANBPEER3";
const HANDSHAKE_BYTES: usize = 16;
const MAX_FRAME_BYTES: usize = 1 << 30;
/// What may wait for one peer, in bytes; beyond it packets are dropped.
const MAX_QUEUE_BYTES: usize = 64 << 20;
/// Sent bytes are removed from the front of a queue when they are so many.
const COMPACT_AFTER_BYTES: usize = 1 << 20;
/// A queue that grew beyond this gives its memory back when it is empty.
const KEEP_QUEUE_BYTES: usize = 1 << 20;
const READ_BYTES: usize = 64 * 1024;
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// For how long packets that can wait wait for others to travel with: a write costs more than most packets.
const LINGER: Duration = Duration::from_millis(10);
/// A peer whose kernel has acknowledged nothing for so long is connected anew.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// A packet that arrived: its place in the bytes of all of them.
struct Arrived {
    from: NodeId,
    to: Slot,
    packet: Range<usize>,
}

/// Packets that arrived, in order. One buffer for all of them spares each an allocation.
#[derive(Default)]
pub(crate) struct Arrivals {
    bytes: Vec<u8>,
    list: Vec<Arrived>,
}

impl Arrivals {
    fn push(&mut self, from: NodeId, to: Slot, packet: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(packet);
        self.list.push(Arrived { from, to, packet: start..self.bytes.len() });
    }

    /// True if there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Sender, receiver and bytes of each.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (NodeId, Slot, &[u8])> {
        self.list.iter().map(|arrived| (arrived.from, arrived.to, &self.bytes[arrived.packet.clone()]))
    }

    /// Forgets them, and keeps room for as many.
    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.bytes.clear();
        self.bytes.shrink_to(KEEP_QUEUE_BYTES);
    }
}

enum Link {
    Down { since: Option<Instant> },
    Up { socket: TcpStream, token: usize, established: bool },
}

struct Outgoing {
    address: SocketAddr,
    link: Link,
    queue: Vec<u8>,
    sent: usize,
    /// Until when what is queued can wait; `None` if it cannot.
    linger_until: Option<types::Instant>,
    /// How many types this process has announced to the peer on this connection.
    announced_types: u64,
    /// How many bytes have been queued since the start, by keyspace.
    bytes: BTreeMap<KeyspaceId, u64>,
}

struct Incoming {
    socket: TcpStream,
    buffer: Vec<u8>,
    greeted: bool,
}

/// All connections to and from peers.
pub(crate) struct Peers {
    seed: u64,
    /// `None` if there are no peers.
    listener: Option<TcpListener>,
    outgoing: BTreeMap<ProcessId, Outgoing>,
    incoming: BTreeMap<usize, Incoming>,
    next_token: usize,
    chunk: Box<[u8]>,
    /// How many user-defined types this process knows: see [`known_types`].
    types: u64,
}

impl Peers {
    /// Nothing is connected before [`Peers::begin`].
    pub(crate) fn new(
        seed: u64,
        listener: Option<TcpListener>,
        peers: impl Iterator<Item = (ProcessId, SocketAddr)>,
    ) -> Self {
        let down = |address| {
            let (link, bytes) = (Link::Down { since: None }, BTreeMap::new());
            let (queue, announced_types) = (Vec::new(), 0);
            Outgoing { address, link, queue, sent: 0, linger_until: None, announced_types, bytes }
        };
        Peers {
            seed,
            listener,
            outgoing: peers.map(|(process, address)| (process, down(address))).collect(),
            incoming: BTreeMap::new(),
            next_token: FIRST_TOKEN + 1,
            chunk: vec![0; READ_BYTES].into(),
            types: 0,
        }
    }

    /// Listens and connects, in the event loop of `registry` from now on.
    pub(crate) fn begin(&mut self, now: types::Instant, registry: &Registry) -> std::io::Result<()> {
        if let Some(listener) = &mut self.listener {
            registry.register(listener, Token(LISTENER), Interest::READABLE)?;
        }
        self.flush(now, registry);
        Ok(())
    }

    /// True if so much waits for the peer that what need not arrive is not to be sent.
    pub(crate) fn is_far_behind(&self, process: ProcessId) -> bool {
        let waits = |peer: &Outgoing| peer.queue.len() - peer.sent > MAX_QUEUE_BYTES / 8;
        self.outgoing.get(&process).is_some_and(waits)
    }

    /// Queues a packet; `flush` sends it. One that can wait says so by the present time.
    pub(crate) fn send(
        &mut self,
        to: ProcessId,
        from: NodeId,
        slot: Slot,
        packet: &dyn Encode,
        can_wait: Option<types::Instant>,
    ) {
        let types = self.types;
        let Some(peer) = self.outgoing.get_mut(&to) else { return };
        if matches!(peer.link, Link::Down { .. }) || peer.queue.len() - peer.sent > MAX_QUEUE_BYTES {
            return;
        }
        let start = peer.queue.len();
        peer.linger_until = match can_wait {
            Some(now) if start == 0 => Some(now + LINGER),
            Some(_) => peer.linger_until,
            None => None,
        };
        if peer.announced_types != types {
            peer.announced_types = types;
            peer.queue_frame(from, known_types::SLOT, &types);
        }
        let len = peer.queue_frame(from, slot, packet);
        if len == 0 {
            tracing::error!(%to, "a packet is too large to be sent and was dropped");
        }
        *peer.bytes.entry(slot.keyspace).or_default() += len as u64;
    }

    /// This process announces so many types to peers before it sends them another packet.
    pub(crate) fn know_types(&mut self, count: usize) {
        self.types = count as u64;
    }

    /// How many bytes of a keyspace have been queued for each peer since the start.
    pub(crate) fn sent(&self, keyspace: KeyspaceId) -> impl Iterator<Item = (ProcessId, u64)> {
        let of = move |(to, peer): (&ProcessId, &Outgoing)| Some((*to, *peer.bytes.get(&keyspace)?));
        self.outgoing.iter().filter_map(of)
    }

    /// Connects what is down and sends what is queued and cannot wait any more.
    pub(crate) fn flush(&mut self, now: types::Instant, registry: &Registry) {
        for peer in self.outgoing.values_mut() {
            if let Link::Down { since } = peer.link
                && since.is_none_or(|since| since.elapsed() >= RECONNECT_AFTER)
            {
                peer.connect(self.seed, self.next_token, registry);
                self.next_token += 1;
            }
            if peer.linger_until.is_none_or(|until| until <= now) {
                peer.write(registry);
            }
        }
    }

    /// When `flush` is due at the latest.
    pub(crate) fn deadline(&self) -> Option<types::Instant> {
        self.outgoing.values().filter_map(|peer| peer.linger_until).min()
    }

    /// Something happened to a peer's socket: hands on the packets that are complete.
    pub(crate) fn ready(&mut self, token: usize, ending: bool, registry: &Registry, arrived: &mut Arrivals) {
        if token == LISTENER {
            return self.accept(registry);
        }
        if let Some(incoming) = self.incoming.get_mut(&token) {
            if !incoming.read(self.seed, ending, &mut self.chunk, arrived)
                && let Some(mut gone) = self.incoming.remove(&token)
            {
                // A socket that cannot be deregistered is closed all the same.
                let _ = registry.deregister(&mut gone.socket);
            }
            return;
        }
        let mine =
            |peer: &&mut Outgoing| matches!(&peer.link, Link::Up { token: mine, .. } if *mine == token);
        if let Some(peer) = self.outgoing.values_mut().find(mine) {
            peer.check(registry);
            peer.write(registry);
        }
    }

    fn accept(&mut self, registry: &Registry) {
        while let Some(Ok((mut socket, _))) = self.listener.as_ref().map(TcpListener::accept) {
            let token = self.next_token;
            self.next_token += 1;
            if registry.register(&mut socket, Token(token), Interest::READABLE).is_ok() {
                self.incoming.insert(token, Incoming { socket, buffer: Vec::new(), greeted: false });
            }
        }
    }

    /// How many peers are connected.
    pub(crate) fn connected(&self) -> usize {
        self.outgoing.values().filter(|peer| peer.is_up()).count()
    }

    /// True if this peer is.
    pub(crate) fn is_connected(&self, process: ProcessId) -> bool {
        self.outgoing.get(&process).is_some_and(Outgoing::is_up)
    }
}

impl Outgoing {
    fn is_up(&self) -> bool {
        matches!(self.link, Link::Up { established: true, .. })
    }

    /// Queues a frame; how many bytes it has, or 0 for one that is too large.
    fn queue_frame(&mut self, from: NodeId, to: Slot, packet: &dyn Encode) -> usize {
        let start = self.queue.len();
        self.queue.extend_from_slice(&[0; 4]);
        Encode::encode(&from, &mut self.queue);
        Encode::encode(&to, &mut self.queue);
        packet.encode(&mut self.queue);
        let len = self.queue.len() - start - 4;
        if len > MAX_FRAME_BYTES {
            self.queue.truncate(start);
            return 0;
        }
        self.queue[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        len + 4
    }

    fn connect(&mut self, seed: u64, token: usize, registry: &Registry) {
        let connected = TcpStream::connect(self.address).and_then(|mut socket| {
            registry.register(&mut socket, Token(token), Interest::READABLE | Interest::WRITABLE)?;
            SockRef::from(&socket).set_tcp_nodelay(true)?;
            SockRef::from(&socket).set_tcp_user_timeout(Some(SILENT_AFTER))?;
            Ok(socket)
        });
        self.queue.clear();
        (self.sent, self.linger_until, self.announced_types) = (0, None, 0);
        self.link = match connected {
            Ok(socket) => {
                self.queue.extend_from_slice(MAGIC);
                self.queue.extend_from_slice(&seed.to_le_bytes());
                Link::Up { socket, token, established: false }
            }
            Err(_) => Link::Down { since: Some(Instant::now()) },
        };
    }

    fn write(&mut self, registry: &Registry) {
        let Link::Up { socket, established, .. } = &mut self.link else { return };
        while self.sent < self.queue.len() {
            match socket.write(&self.queue[self.sent..]) {
                Ok(0) => return self.down(registry),
                Ok(count) => {
                    *established = true;
                    self.sent += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    break;
                }
                Err(_) => return self.down(registry),
            }
        }
        self.linger_until = None;
        if self.sent == self.queue.len() {
            self.queue.clear();
            self.queue.shrink_to(KEEP_QUEUE_BYTES);
            self.sent = 0;
        } else if self.sent > COMPACT_AFTER_BYTES {
            self.queue.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// The peer never writes on this connection: whatever can be read is its end.
    fn check(&mut self, registry: &Registry) {
        let Link::Up { socket, .. } = &mut self.link else { return };
        let broken = match socket.read(&mut [0; 16]) {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected
            ),
        };
        let refused = socket.take_error().ok().flatten().is_some();
        if broken || refused {
            self.down(registry);
        }
    }

    fn down(&mut self, registry: &Registry) {
        if let Link::Up { socket, .. } = &mut self.link {
            // A socket that cannot be deregistered is closed all the same.
            let _ = registry.deregister(socket);
        }
        self.link = Link::Down { since: Some(Instant::now()) };
        self.queue = Vec::new();
        (self.sent, self.linger_until) = (0, None);
    }
}

impl Incoming {
    /// False when the connection is over or speaks nonsense. A read that did not fill the chunk has taken all there
    /// was: the next bytes make a new event. Only an end that was announced already must be looked for.
    fn read(&mut self, seed: u64, ending: bool, chunk: &mut [u8], arrived: &mut Arrivals) -> bool {
        loop {
            match self.socket.read(chunk) {
                Ok(0) => return false,
                Ok(count) => {
                    if !self.take(seed, &chunk[..count], arrived) {
                        return false;
                    }
                    if count < chunk.len() && !ending {
                        return true;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return error.kind() == ErrorKind::WouldBlock,
            }
        }
    }

    /// Takes the frames that `fresh` completes, and keeps the beginning of the next one.
    fn take(&mut self, seed: u64, fresh: &[u8], arrived: &mut Arrivals) -> bool {
        if self.buffer.is_empty() {
            let taken = self.take_frames(seed, fresh, arrived);
            self.buffer.extend_from_slice(&fresh[taken.unwrap_or(fresh.len())..]);
            return taken.is_some();
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(fresh);
        let taken = self.take_frames(seed, &buffer, arrived);
        buffer.drain(..taken.unwrap_or(buffer.len()));
        self.buffer = buffer;
        taken.is_some()
    }

    /// How many bytes the handshake and the complete frames take; `None` if the peer is to be turned away.
    fn take_frames(&mut self, seed: u64, bytes: &[u8], arrived: &mut Arrivals) -> Option<usize> {
        let mut taken = 0;
        if !self.greeted {
            if bytes.len() < HANDSHAKE_BYTES {
                return Some(0);
            }
            if bytes[..8] != *MAGIC || bytes[8..HANDSHAKE_BYTES] != seed.to_le_bytes() {
                tracing::warn!("a peer of another cluster or version was turned away");
                return None;
            }
            self.greeted = true;
            taken = HANDSHAKE_BYTES;
        }
        while let Some((len, rest)) = bytes[taken..].split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > MAX_FRAME_BYTES {
                tracing::warn!(len, "a peer sent an absurd length and was turned away");
                return None;
            }
            if rest.len() < len {
                break;
            }
            let mut reader = Reader::new(&rest[..len]);
            let (Ok(from), Ok(to)) = (NodeId::decode(&mut reader), Slot::decode(&mut reader)) else {
                tracing::warn!("a peer sent a frame without addresses and was turned away");
                return None;
            };
            arrived.push(from, to, reader.rest());
            taken += 4 + len;
        }
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mio::{Events, Poll};
    use types::{Incarnation, PartitionId, ReplyBuf, ReplySink};

    struct End {
        poll: Poll,
        peers: Peers,
        arrived: Arrivals,
        now: types::Instant,
    }

    impl End {
        fn new(seed: u64, listener: TcpListener, peer: (u16, SocketAddr)) -> Self {
            let poll = Poll::new().unwrap();
            let others = std::iter::once((ProcessId(peer.0), peer.1));
            let mut peers = Peers::new(seed, Some(listener), others);
            peers.begin(types::Instant(0), poll.registry()).unwrap();
            End { poll, peers, arrived: Arrivals::default(), now: types::Instant(0) }
        }

        fn turn(&mut self) {
            let mut events = Events::with_capacity(16);
            self.poll.poll(&mut events, Some(Duration::from_millis(5))).unwrap();
            for event in &events {
                let ending = event.is_read_closed() || event.is_error();
                self.peers.ready(event.token().0, ending, self.poll.registry(), &mut self.arrived);
            }
            self.peers.flush(self.now, self.poll.registry());
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
        assert!(until(&mut first, &mut second, |_, second| second.arrived.list.len() == 3));
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
        assert_eq!((second.arrived.list.len(), first.peers.deadline()), (0, Some(first.now + LINGER)));
        say(&mut first, b"now");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.list.len() == 3));
        assert_eq!(first.peers.deadline(), None);
        linger(&mut first, b"c");
        first.now = first.now + LINGER;
        assert!(until(&mut first, &mut second, |_, second| second.arrived.list.len() == 4));
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
        assert!(second.arrived.is_empty() && second.peers.incoming.values().all(|peer| !peer.greeted));
    }

    #[test]
    fn a_peer_gets_types_before_another_packet_on_every_connection() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        let slots =
            |end: &End| end.arrived.list.iter().map(|it| it.to == known_types::SLOT).collect::<Vec<bool>>();
        say(&mut first, b"before");
        first.peers.know_types(3);
        say(&mut first, b"after");
        say(&mut first, b"and again");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.list.len() == 4));
        assert_eq!(slots(&second), [false, true, false, false]);
        let (from, _, packet) = second.arrived.iter().nth(1).unwrap();
        assert_eq!((from.process, u64::decode(&mut Reader::new(packet))), (ProcessId(1), Ok(3)));
        second.arrived.clear();
        second.peers.incoming.clear();
        say(&mut first, b"lost");
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 0));
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        say(&mut first, b"found");
        assert!(until(&mut first, &mut second, |_, second| second.arrived.list.len() == 2));
        assert_eq!(slots(&second), [true, false]);
    }

    #[test]
    fn a_peer_that_comes_back_is_connected_again() {
        let (mut first, mut second) = two(7);
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        second.peers.incoming.clear();
        say(&mut first, b"lost");
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 0));
        assert!(until(&mut first, &mut second, |first, _| first.peers.connected() == 1));
        say(&mut first, b"found");
        assert!(until(&mut first, &mut second, |_, second| !second.arrived.is_empty()));
    }
}
