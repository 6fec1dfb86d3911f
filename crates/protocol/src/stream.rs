//! Sequenced streams: to one peer, in order, exactly once while both ends live, over a network that loses,
//! repeats and reorders.
//!
//! A frame names both ends' incarnations. Frames to an unknown or an earlier life are answered by `Hello`, which
//! tells the present one; a stream to a new life starts at number 0, and the replica notifies the protocol, because
//! only the protocol knows what the peer lacks. Acknowledgements are cumulative and leave behind the receiver's gate,
//! so that what was acknowledged is durable there.

use crate::contract::Protocol;
use crate::replica::Packet;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Address, Incarnation, Instant, Malformed, NodeId, Reader, Wire};

/// After how long without an acknowledgement frames are sent again.
const RESEND_AFTER: Duration = Duration::from_millis(200);
/// How many unacknowledged frames are sent again at first. Each acknowledgement lets twice as many follow, up to what a receiver keeps.
const RESEND_WINDOW: u64 = 256;
/// How many frames ahead of the expected one a receiver keeps.
const REORDER_WINDOW: u64 = 4096;

/// One stream message between two instances.
#[derive(Clone, Debug, PartialEq)]
pub enum Frame {
    /// "This is my life; which is yours?" Answered by `Welcome`.
    Hello,
    /// The answer to `Hello` and to frames meant for another life.
    Welcome,
    /// The message with this number, for this life of the receiver.
    Data {
        /// The receiver's incarnation that the stream is for.
        to_life: Incarnation,
        /// Counts from 0.
        number: u64,
        /// The message's binary form.
        message: Box<[u8]>,
    },
    /// Every message below `expected` is processed and durable.
    Ack {
        /// The receiver's, to whom this goes back.
        to_life: Incarnation,
        /// The next number expected.
        expected: u64,
    },
}
types::wire_enum!(Frame {
    0 => Hello,
    1 => Welcome,
    2 => Data { to_life, number, message },
    3 => Ack { to_life, expected },
});

/// The sending half.
#[derive(Debug, Default)]
struct Sender {
    /// The number of the first frame in `unacknowledged`.
    first: u64,
    unacknowledged: VecDeque<Box<[u8]>>,
    resend_at: Option<Instant>,
    /// While frames are sent again.
    retransmission: Option<Retransmission>,
}

/// Frames are sent again in order: those before `next` have been, and so many may be on their way.
#[derive(Clone, Copy, Debug)]
struct Retransmission {
    next: u64,
    window: u64,
}

/// The receiving half.
#[derive(Debug, Default)]
struct Receiver {
    expected: u64,
    early: BTreeMap<u64, Box<[u8]>>,
    acknowledge: bool,
}

#[derive(Debug, Default)]
struct Peer {
    life: Option<Incarnation>,
    sender: Sender,
    receiver: Receiver,
}

/// What arrived from a peer and is to be handed to the protocol, in order.
#[derive(Debug)]
pub(crate) enum Arrival<M> {
    Started(NodeId),
    Message(NodeId, M),
}

/// All streams of one replica.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    peers: BTreeMap<Address, Peer>,
}

impl Streams {
    /// Appends a message to the stream to `to`; its first transmission goes to `packets` at once if the peer's
    /// life is known, else after the answer to a `Hello`.
    pub(crate) fn push<P: Protocol>(
        &mut self,
        to: Address,
        message: &P::Message,
        now: Instant,
        packets: &mut Vec<(Address, Packet<P>)>,
    ) {
        let peer = self.peers.entry(to).or_default();
        let mut bytes = Vec::new();
        message.encode(&mut bytes);
        let number = peer.sender.first + peer.sender.unacknowledged.len() as u64;
        peer.sender.unacknowledged.push_back(bytes.into());
        peer.sender.resend_at.get_or_insert(now + RESEND_AFTER);
        match peer.life {
            // It follows when those before it have arrived.
            Some(_) if peer.sender.retransmission.is_some() => {}
            Some(to_life) => {
                let message = peer.sender.unacknowledged[(number - peer.sender.first) as usize].clone();
                packets.push((to, Packet::Frame(Frame::Data { to_life, number, message })));
            }
            None if number == 0 => packets.push((to, Packet::Frame(Frame::Hello))),
            None => {}
        }
    }

    /// Takes a frame; `mine` is this replica's life.
    pub(crate) fn receive<P: Protocol>(
        &mut self,
        from: NodeId,
        frame: Frame,
        mine: Incarnation,
        now: Instant,
        arrivals: &mut Vec<Arrival<P::Message>>,
        packets: &mut Vec<(Address, Packet<P>)>,
    ) -> Result<(), Malformed> {
        let address = from.address();
        let peer = self.peers.entry(address).or_default();
        if peer.life > Some(from.incarnation) {
            return Ok(());
        }
        if peer.life != Some(from.incarnation) {
            peer.restart(from, now, arrivals, packets);
        }
        match frame {
            Frame::Hello => packets.push((address, Packet::Frame(Frame::Welcome))),
            Frame::Welcome => {}
            Frame::Data { to_life, .. } | Frame::Ack { to_life, .. } if to_life != mine => {
                packets.push((address, Packet::Frame(Frame::Welcome)));
            }
            Frame::Data { number, message, .. } => {
                peer.receiver.take::<P>(from, number, message, arrivals)?
            }
            Frame::Ack { expected, .. } => {
                peer.sender.acknowledged(expected, now);
                peer.sender.send_more(address, from.incarnation, packets);
            }
        }
        Ok(())
    }

    /// Appends the acknowledgements due; the caller holds them behind the gate.
    pub(crate) fn acknowledgements(&mut self, mut each: impl FnMut(Address, Frame)) {
        for (address, peer) in &mut self.peers {
            if let (true, Some(to_life)) = (std::mem::take(&mut peer.receiver.acknowledge), peer.life) {
                each(*address, Frame::Ack { to_life, expected: peer.receiver.expected });
            }
        }
    }

    /// The life of the peer that is known, if any is.
    pub(crate) fn life(&self, peer: Address) -> Option<Incarnation> {
        self.peers.get(&peer)?.life
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.peers.values().filter_map(|peer| peer.sender.resend_at).min()
    }

    /// Sends again what has waited too long for its acknowledgement.
    pub(crate) fn resend<P: Protocol>(&mut self, now: Instant, packets: &mut Vec<(Address, Packet<P>)>) {
        for (address, peer) in &mut self.peers {
            if peer.sender.resend_at.is_none_or(|at| at > now) {
                continue;
            }
            match peer.life {
                Some(life) => peer.sender.send_all(*address, life, now, packets),
                None => {
                    peer.sender.resend_at = Some(now + RESEND_AFTER);
                    packets.push((*address, Packet::Frame(Frame::Hello)));
                }
            }
        }
    }

    /// How many messages wait for an acknowledgement of this peer.
    pub(crate) fn unacknowledged(&self, peer: Address) -> usize {
        self.peers.get(&peer).map_or(0, |peer| peer.sender.unacknowledged.len())
    }
}

impl Peer {
    /// The peer is in a new life. Messages queued before the peer's first life was known are sent to it; messages for
    /// an earlier life are dropped.
    fn restart<P: Protocol>(
        &mut self,
        from: NodeId,
        now: Instant,
        arrivals: &mut Vec<Arrival<P::Message>>,
        packets: &mut Vec<(Address, Packet<P>)>,
    ) {
        if self.life.is_some() {
            self.sender = Sender::default();
        }
        self.receiver = Receiver::default();
        self.life = Some(from.incarnation);
        arrivals.push(Arrival::Started(from));
        self.sender.send_all(from.address(), from.incarnation, now, packets);
    }
}

impl Sender {
    fn send_all<P: Protocol>(
        &mut self,
        to: Address,
        to_life: Incarnation,
        now: Instant,
        packets: &mut Vec<(Address, Packet<P>)>,
    ) {
        self.resend_at = (!self.unacknowledged.is_empty()).then(|| now + RESEND_AFTER);
        self.retransmission = Some(Retransmission { next: self.first, window: RESEND_WINDOW });
        self.send_more(to, to_life, packets);
    }

    /// Sends again what there is room for; whatever comes once all has been sent goes at once.
    fn send_more<P: Protocol>(
        &mut self,
        to: Address,
        to_life: Incarnation,
        packets: &mut Vec<(Address, Packet<P>)>,
    ) {
        let Some(retransmission) = &mut self.retransmission else { return };
        let end = self.first + self.unacknowledged.len() as u64;
        retransmission.next = retransmission.next.max(self.first);
        let last = end.min(self.first + retransmission.window);
        for number in retransmission.next..last {
            let message = self.unacknowledged[(number - self.first) as usize].clone();
            packets.push((to, Packet::Frame(Frame::Data { to_life, number, message })));
        }
        retransmission.next = retransmission.next.max(last);
        if retransmission.next == end {
            self.retransmission = None;
        }
    }

    fn acknowledged(&mut self, expected: u64, now: Instant) {
        let done = expected.saturating_sub(self.first).min(self.unacknowledged.len() as u64);
        self.unacknowledged.drain(..done as usize);
        self.first += done;
        if done > 0 {
            self.resend_at = (!self.unacknowledged.is_empty()).then(|| now + RESEND_AFTER);
            if let Some(retransmission) = &mut self.retransmission {
                retransmission.window = (retransmission.window * 2).min(REORDER_WINDOW);
            }
        }
    }
}

impl Receiver {
    fn take<P: Protocol>(
        &mut self,
        from: NodeId,
        number: u64,
        message: Box<[u8]>,
        arrivals: &mut Vec<Arrival<P::Message>>,
    ) -> Result<(), Malformed> {
        self.acknowledge = true;
        if number < self.expected || number > self.expected + REORDER_WINDOW {
            return Ok(());
        }
        self.early.insert(number, message);
        while let Some(message) = self.early.remove(&self.expected) {
            self.expected += 1;
            arrivals.push(Arrival::Message(from, P::Message::decode(&mut Reader::new(&message))?));
        }
        Ok(())
    }
}
