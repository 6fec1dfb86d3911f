//! The transport between processes: one TCP connection each way, frames with their addresses, no promise beyond
//! what replicas expect of a network. What cannot be sent is dropped; replicas send again.

use mio::net::{TcpListener, TcpStream};
use mio::{Interest, Registry, Token};
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use types::{NodeId, ProcessId, Reader, Slot, Wire};

/// Tokens from here on belong to peers; clients have smaller ones.
pub(crate) const FIRST_TOKEN: usize = 1 << 40;
const LISTENER: usize = FIRST_TOKEN;
const MAGIC: &[u8; 8] = b"ANBPEER1";
const HANDSHAKE_BYTES: usize = 16;
const MAX_FRAME_BYTES: usize = 1 << 30;
/// What may wait for one peer, in bytes; beyond it packets are dropped.
const MAX_QUEUE_BYTES: usize = 64 << 20;
const RECONNECT_AFTER: Duration = Duration::from_millis(100);

/// A packet that arrived.
pub(crate) struct Arrived {
    pub(crate) from: NodeId,
    pub(crate) to: Slot,
    pub(crate) packet: Vec<u8>,
}

enum Link {
    Down { since: Instant },
    Up { socket: TcpStream, token: usize },
}

struct Outgoing {
    address: SocketAddr,
    link: Link,
    queue: Vec<u8>,
    sent: usize,
}

struct Incoming {
    socket: TcpStream,
    buffer: Vec<u8>,
    greeted: bool,
}

/// All connections to and from peers.
pub(crate) struct Peers {
    seed: u64,
    listener: TcpListener,
    outgoing: BTreeMap<ProcessId, Outgoing>,
    incoming: BTreeMap<usize, Incoming>,
    next_token: usize,
}

impl Peers {
    pub(crate) fn new(
        seed: u64,
        mut listener: TcpListener,
        peers: impl Iterator<Item = (ProcessId, SocketAddr)>,
        registry: &Registry,
    ) -> std::io::Result<Self> {
        registry.register(&mut listener, Token(LISTENER), Interest::READABLE)?;
        let past = Instant::now().checked_sub(RECONNECT_AFTER).unwrap_or_else(Instant::now);
        let outgoing = peers.map(|(process, address)| {
            (process, Outgoing { address, link: Link::Down { since: past }, queue: Vec::new(), sent: 0 })
        });
        let outgoing = outgoing.collect();
        Ok(Peers { seed, listener, outgoing, incoming: BTreeMap::new(), next_token: FIRST_TOKEN + 1 })
    }

    /// Queues a packet; `flush` sends it.
    pub(crate) fn send(&mut self, to: ProcessId, from: NodeId, slot: Slot, packet: &impl Wire) {
        let Some(peer) = self.outgoing.get_mut(&to) else { return };
        if matches!(peer.link, Link::Down { .. }) || peer.queue.len() - peer.sent > MAX_QUEUE_BYTES {
            return;
        }
        let start = peer.queue.len();
        peer.queue.extend_from_slice(&[0; 4]);
        from.encode(&mut peer.queue);
        slot.encode(&mut peer.queue);
        packet.encode(&mut peer.queue);
        let len = (peer.queue.len() - start - 4) as u32;
        peer.queue[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }

    /// Connects what is down and sends what is queued.
    pub(crate) fn flush(&mut self, registry: &Registry) {
        for peer in self.outgoing.values_mut() {
            if let Link::Down { since } = peer.link {
                if since.elapsed() >= RECONNECT_AFTER {
                    peer.connect(self.seed, self.next_token, registry);
                    self.next_token += 1;
                }
            }
            peer.write(registry);
        }
    }

    /// Something happened to a peer's socket: hands on the packets that are complete.
    pub(crate) fn ready(&mut self, token: usize, registry: &Registry, arrived: &mut Vec<Arrived>) {
        if token == LISTENER {
            return self.accept(registry);
        }
        if let Some(incoming) = self.incoming.get_mut(&token) {
            if !incoming.read(self.seed, arrived) {
                if let Some(mut gone) = self.incoming.remove(&token) {
                    // A socket that cannot be deregistered is closed all the same.
                    let _ = registry.deregister(&mut gone.socket);
                }
            }
            return;
        }
        let mine = |peer: &&mut Outgoing| matches!(&peer.link, Link::Up { token: mine, .. } if *mine == token);
        if let Some(peer) = self.outgoing.values_mut().find(mine) {
            peer.check(registry);
            peer.write(registry);
        }
    }

    fn accept(&mut self, registry: &Registry) {
        while let Ok((mut socket, _)) = self.listener.accept() {
            let token = self.next_token;
            self.next_token += 1;
            if registry.register(&mut socket, Token(token), Interest::READABLE).is_ok() {
                self.incoming.insert(token, Incoming { socket, buffer: Vec::new(), greeted: false });
            }
        }
    }

    /// How many peers are connected, of how many.
    pub(crate) fn connected(&self) -> (usize, usize) {
        let up = self.outgoing.values().filter(|peer| matches!(peer.link, Link::Up { .. })).count();
        (up, self.outgoing.len())
    }
}

impl Outgoing {
    fn connect(&mut self, seed: u64, token: usize, registry: &Registry) {
        let connected = TcpStream::connect(self.address).and_then(|mut socket| {
            registry.register(&mut socket, Token(token), Interest::READABLE | Interest::WRITABLE)?;
            // Fails while the connection is not established; it only saves time.
            let _ = socket.set_nodelay(true);
            Ok(socket)
        });
        self.queue.clear();
        self.sent = 0;
        self.link = match connected {
            Ok(socket) => {
                self.queue.extend_from_slice(MAGIC);
                self.queue.extend_from_slice(&seed.to_le_bytes());
                Link::Up { socket, token }
            }
            Err(_) => Link::Down { since: Instant::now() },
        };
    }

    fn write(&mut self, registry: &Registry) {
        let Link::Up { socket, .. } = &mut self.link else { return };
        while self.sent < self.queue.len() {
            match socket.write(&self.queue[self.sent..]) {
                Ok(0) => return self.down(registry),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => break,
                Err(_) => return self.down(registry),
            }
        }
        if self.sent == self.queue.len() {
            self.queue.clear();
            self.sent = 0;
        } else if self.sent > 1 << 20 {
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
        self.link = Link::Down { since: Instant::now() };
        self.queue = Vec::new();
        self.sent = 0;
    }
}

impl Incoming {
    /// False when the connection is over or speaks nonsense.
    fn read(&mut self, seed: u64, arrived: &mut Vec<Arrived>) -> bool {
        let mut chunk = [0; 64 * 1024];
        let open = loop {
            match self.socket.read(&mut chunk) {
                Ok(0) => break false,
                Ok(count) => {
                    self.buffer.extend_from_slice(&chunk[..count]);
                    if !self.take_frames(seed, arrived) {
                        return false;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => break error.kind() == ErrorKind::WouldBlock,
            }
        };
        open
    }

    fn take_frames(&mut self, seed: u64, arrived: &mut Vec<Arrived>) -> bool {
        let mut taken = 0;
        if !self.greeted {
            if self.buffer.len() < HANDSHAKE_BYTES {
                return true;
            }
            if self.buffer[..8] != *MAGIC || self.buffer[8..16] != seed.to_le_bytes() {
                tracing::warn!("a peer of another cluster or version was turned away");
                return false;
            }
            self.greeted = true;
            taken = HANDSHAKE_BYTES;
        }
        while let Some((len, rest)) = self.buffer[taken..].split_first_chunk::<4>() {
            let len = u32::from_le_bytes(*len) as usize;
            if len > MAX_FRAME_BYTES {
                tracing::warn!(len, "a peer sent an absurd length and was turned away");
                return false;
            }
            if rest.len() < len {
                break;
            }
            let mut reader = Reader::new(&rest[..len]);
            let (Ok(from), Ok(to)) = (NodeId::decode(&mut reader), Slot::decode(&mut reader)) else { return false };
            arrived.push(Arrived { from, to, packet: reader.rest().to_vec() });
            taken += 4 + len;
        }
        self.buffer.drain(..taken);
        true
    }
}
