//! What peers send: connections that are only read, and the packets that came through them.

use crate::cluster::outgoing::KEEP_QUEUE_BYTES;
use crate::cluster::peers::{HANDSHAKE_BYTES, MAGIC, MAX_FRAME_BYTES};
use mio::net::TcpStream;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use types::{NodeId, Reader, Slot, Wire};

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
    pub(super) fn push(&mut self, from: NodeId, to: Slot, packet: &[u8]) {
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

/// A connection that a peer has made.
pub(super) struct Incoming {
    pub(super) socket: TcpStream,
    buffer: Vec<u8>,
    greeted: bool,
}

impl Incoming {
    pub(super) fn new(socket: TcpStream) -> Self {
        Incoming { socket, buffer: Vec::new(), greeted: false }
    }

    /// The peer has said that it belongs to the cluster.
    #[cfg(test)]
    pub(super) fn is_greeted(&self) -> bool {
        self.greeted
    }

    /// False when the connection is over or speaks nonsense. A read that did not fill the chunk has taken all there
    /// was: the next bytes make a new event. Only an end that was announced already must be looked for.
    pub(super) fn read(&mut self, seed: u64, ending: bool, chunk: &mut [u8], arrived: &mut Arrivals) -> bool {
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
