//! What goes to a peer: a queue that any thread adds to, and a connection that one thread at a time writes to.
//!
//! The queue's lock is held for moments, also with a keyspace's lock; that of the connection while the kernel takes bytes,
//! and with no other lock but the queue's. A thread that has waited for another one's write finds everything that was queued
//! meanwhile, or that the other one has taken that, too.

use crate::cluster::known_types;
use crate::cluster::peers::{EventLoops, MAGIC, MAX_FRAME_BYTES};
use mio::net::TcpStream;
use parking_lot::Mutex;
use protocol::Encode;
use socket2::SockRef;
use std::collections::BTreeMap;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use types::{KeyspaceId, NodeId, ProcessId, Slot};

/// What may wait for one peer, in bytes; beyond it packets are dropped.
pub(super) const MAX_QUEUE_BYTES: usize = 64 << 20;
/// A queue that grew beyond this gives its memory back when it is empty.
pub(super) const KEEP_QUEUE_BYTES: usize = 1 << 20;
const RECONNECT_AFTER: Duration = Duration::from_millis(100);
/// For how long packets that can wait wait for others to travel with: a write costs more than most packets.
pub(super) const LINGER: Duration = Duration::from_millis(10);
/// A peer whose kernel has acknowledged nothing for so long is connected anew.
const SILENT_AFTER: Duration = Duration::from_secs(10);

enum Link {
    Down { since: Option<Instant> },
    Up { socket: TcpStream },
}

/// See the module.
pub(super) struct Outgoing {
    address: SocketAddr,
    queue: Mutex<Queue>,
    connection: Mutex<Connection>,
    /// The token of the connection; 0 if there is none.
    token: AtomicUsize,
    /// The kernel has taken bytes on this connection.
    established: AtomicBool,
}

/// What nobody writes yet.
#[derive(Default)]
struct Queue {
    bytes: Vec<u8>,
    /// How many bytes the connection has taken from here at last, unless all of them were sent.
    taken: usize,
    /// There is a connection, maybe one that is being established.
    is_up: bool,
    /// The kernel takes no more; an event will tell when it does.
    is_full: bool,
    /// Until when what is queued can wait; `None` if it cannot.
    linger_until: Option<types::Instant>,
    /// How many types this process has announced to the peer on this connection.
    announced_types: u64,
    /// How many bytes have been queued since the start, by keyspace.
    sent: BTreeMap<KeyspaceId, u64>,
}

struct Connection {
    link: Link,
    /// What is being written, and how much of it was.
    bytes: Vec<u8>,
    written: usize,
}

impl Outgoing {
    /// Of a peer with this address; not connected yet.
    pub(super) fn new(address: SocketAddr) -> Self {
        Outgoing {
            address,
            queue: Mutex::default(),
            connection: Mutex::new(Connection::down(None)),
            token: AtomicUsize::new(0),
            established: AtomicBool::new(false),
        }
    }

    pub(super) fn is_established(&self) -> bool {
        self.established.load(Ordering::Acquire)
    }

    /// True if this is the token of its connection.
    pub(super) fn has_token(&self, token: usize) -> bool {
        self.token.load(Ordering::Acquire) == token
    }

    /// How many bytes wait.
    pub(super) fn waiting(&self) -> usize {
        self.queue.lock().waiting()
    }

    /// How many bytes of a keyspace have been queued since the start.
    pub(super) fn sent(&self, keyspace: KeyspaceId) -> Option<u64> {
        self.queue.lock().sent.get(&keyspace).copied()
    }

    /// When `flush` is due at the latest.
    pub(super) fn deadline(&self) -> Option<types::Instant> {
        let queue = self.queue.lock();
        queue.linger_until.filter(|_| !queue.is_full)
    }

    /// Queues a packet. This process knows so many types.
    pub(super) fn send(
        &self,
        to: ProcessId,
        (from, slot): (NodeId, Slot),
        packet: &dyn Encode,
        can_wait: Option<types::Instant>,
        types: u64,
    ) {
        let mut queue = self.queue.lock();
        if !queue.is_up || queue.waiting() > MAX_QUEUE_BYTES {
            return;
        }
        queue.linger_until = match can_wait {
            Some(now) if queue.bytes.is_empty() => Some(now + LINGER),
            Some(_) => queue.linger_until,
            None => None,
        };
        if queue.announced_types != types {
            queue.announced_types = types;
            queue.add_frame(from, known_types::SLOT, &types);
        }
        let len = queue.add_frame(from, slot, packet);
        if len == 0 {
            tracing::error!(%to, "a packet is too large to be sent and was dropped");
        }
        *queue.sent.entry(slot.keyspace).or_default() += len as u64;
    }

    /// Connects what is down, and sends what is queued and cannot wait any more.
    pub(super) fn flush(&self, now: types::Instant, seed: u64, loops: &EventLoops) {
        let is_at_rest = |queue: &Queue| queue.is_up && !queue.is_due(now);
        if is_at_rest(&self.queue.lock()) {
            return;
        }
        let mut connection = self.connection.lock();
        if let Link::Down { since } = connection.link {
            if since.is_some_and(|since| since.elapsed() < RECONNECT_AFTER) {
                return;
            }
            self.connect(&mut connection, seed, loops);
        }
        self.write(&mut connection, now, loops);
    }

    /// Something happened to the connection: the kernel takes bytes again, or the peer has ended it.
    pub(super) fn ready(&self, now: types::Instant, loops: &EventLoops) {
        let mut connection = self.connection.lock();
        self.check(&mut connection, loops);
        self.queue.lock().is_full = false;
        self.write(&mut connection, now, loops);
    }

    fn connect(&self, connection: &mut Connection, seed: u64, loops: &EventLoops) {
        let connected = TcpStream::connect(self.address).and_then(|mut socket| {
            SockRef::from(&socket).set_tcp_nodelay(true)?;
            SockRef::from(&socket).set_tcp_user_timeout(Some(SILENT_AFTER))?;
            let token = loops.add_outgoing(&mut socket)?;
            Ok((socket, token))
        });
        let Ok((socket, token)) = connected else {
            connection.link = Link::Down { since: Some(Instant::now()) };
            return;
        };
        connection.link = Link::Up { socket };
        connection.bytes.clear();
        connection.bytes.extend_from_slice(MAGIC);
        connection.bytes.extend_from_slice(&seed.to_le_bytes());
        connection.written = 0;
        self.token.store(token, Ordering::Release);
        let mut queue = self.queue.lock();
        *queue = Queue { is_up: true, sent: std::mem::take(&mut queue.sent), ..Queue::default() };
    }

    /// Hands the kernel what was being written, and then what is queued and due.
    fn write(&self, connection: &mut Connection, now: types::Instant, loops: &EventLoops) {
        loop {
            if connection.written == connection.bytes.len() {
                connection.written = 0;
                connection.bytes.clear();
                connection.bytes.shrink_to(KEEP_QUEUE_BYTES);
                if !self.queue.lock().take(&mut connection.bytes, now) {
                    return;
                }
            }
            let Link::Up { socket } = &mut connection.link else { return };
            match socket.write(&connection.bytes[connection.written..]) {
                Ok(0) => return self.down(connection, loops),
                Ok(count) => {
                    self.established.store(true, Ordering::Release);
                    connection.written += count;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    // The event of the socket waits for this thread's lock.
                    self.queue.lock().is_full = true;
                    return;
                }
                Err(_) => return self.down(connection, loops),
            }
        }
    }

    /// The peer never writes on this connection: whatever can be read is its end.
    fn check(&self, connection: &mut Connection, loops: &EventLoops) {
        let Link::Up { socket } = &mut connection.link else { return };
        let broken = match socket.read(&mut [0; 16]) {
            Ok(_) => true,
            Err(error) => !matches!(
                error.kind(),
                ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::NotConnected
            ),
        };
        let refused = socket.take_error().ok().flatten().is_some();
        if broken || refused {
            self.down(connection, loops);
        }
    }

    fn down(&self, connection: &mut Connection, loops: &EventLoops) {
        if let Link::Up { socket } = &mut connection.link {
            loops.remove(socket, self.token.swap(0, Ordering::AcqRel));
        }
        self.established.store(false, Ordering::Release);
        *connection = Connection::down(Some(Instant::now()));
        let mut queue = self.queue.lock();
        *queue = Queue { sent: std::mem::take(&mut queue.sent), ..Queue::default() };
    }
}

impl Connection {
    fn down(since: Option<Instant>) -> Self {
        Connection { link: Link::Down { since }, bytes: Vec::new(), written: 0 }
    }
}

impl Queue {
    fn waiting(&self) -> usize {
        self.taken + self.bytes.len()
    }

    fn is_due(&self, now: types::Instant) -> bool {
        let is_time = self.linger_until.is_none_or(|until| until <= now);
        self.is_up && !self.is_full && !self.bytes.is_empty() && is_time
    }

    /// Moves what is due to `bytes`, which is empty; false if nothing is.
    fn take(&mut self, bytes: &mut Vec<u8>, now: types::Instant) -> bool {
        self.taken = 0;
        let is_due = self.is_due(now);
        if is_due {
            std::mem::swap(&mut self.bytes, bytes);
            (self.taken, self.linger_until) = (bytes.len(), None);
        }
        is_due
    }

    /// Adds a frame; how many bytes it has, or 0 for one that is too large.
    fn add_frame(&mut self, from: NodeId, to: Slot, packet: &dyn Encode) -> usize {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(&[0; 4]);
        Encode::encode(&from, &mut self.bytes);
        Encode::encode(&to, &mut self.bytes);
        packet.encode(&mut self.bytes);
        let len = self.bytes.len() - start - 4;
        if len > MAX_FRAME_BYTES {
            self.bytes.truncate(start);
            return 0;
        }
        self.bytes[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
        len + 4
    }
}
