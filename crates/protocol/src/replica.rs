//! A protocol instance with its timers, its streams and its durability gate; pure, and owned by either driver.

use crate::contract::{Input, Now, Outgoing, Outputs, Protocol, Replies, SpoolRequest, StrongestDurability};
use crate::gate::{Durable, Gate};
use crate::stream::{Arrival, Frame, Streams};
use crate::timers::Timers;
use std::collections::VecDeque;
use types::{Address, Instant, Malformed, NodeId, Reader, Rng, Wire};

/// How many datagrams one step takes: some tenths of a millisecond (Corrections 87).
const MOST_INPUTS: usize = 64;

/// What travels between two replicas.
#[derive(Debug)]
pub enum Packet<P: Protocol> {
    /// A message that may be lost, repeated and reordered.
    Datagram(P::Message),
    /// A frame of the stream between the two.
    Frame(Frame),
}

impl<P: Protocol> Packet<P> {
    /// See [`Protocol::can_wait`].
    pub fn can_wait(&self) -> bool {
        matches!(self, Packet::Datagram(message) if P::can_wait(message))
    }

    /// See [`Protocol::is_read`].
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Packet::Datagram(message) if P::is_read(message))
    }
}

impl<P: Protocol> Wire for Packet<P> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Packet::Datagram(message) => {
                out.push(0);
                message.encode(out);
            }
            Packet::Frame(frame) => {
                out.push(1);
                frame.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        match input.byte()? {
            0 => Ok(Packet::Datagram(P::Message::decode(input)?)),
            1 => Ok(Packet::Frame(Frame::decode(input)?)),
            _ => Err(Malformed("packet tag")),
        }
    }
}

/// A held output: it leaves when its gate is open, after everything held before it.
#[derive(Debug)]
enum Held<M> {
    Message(Outgoing<M>),
    Frame(Address, Frame),
}

/// How much a replica had persisted at some moment; see [`Replica::forget_since`].
#[derive(Clone, Copy, Debug)]
pub struct Persisted {
    bytes: usize,
    records: u64,
    strongest: StrongestDurability,
}

/// Known bugs of the driver, each to be caught by the simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// Messages do not wait for the log.
    Ungated,
}

/// The bug of a replica's driver, or none.
pub type Mutants = types::Mutants<Mutant>;

/// See the crate's documentation for what a driver owes it.
#[derive(Debug)]
pub struct Replica<P: Protocol> {
    node: NodeId,
    protocol: P,
    timers: Timers<P::Timer>,
    streams: Streams,
    /// Records of steps since the last `appended`.
    records: Vec<u8>,
    /// How many records were persisted since recovery.
    persisted: u64,
    /// Up to which record each group of the log that is not known to be written reaches.
    groups: VecDeque<(u64, u64)>,
    strongest: StrongestDurability,
    /// Outputs of steps whose records have no group number yet.
    fresh: Vec<Outgoing<P::Message>>,
    fresh_frames: Vec<(Address, Frame)>,
    held: VecDeque<(Gate, Held<P::Message>)>,
    gate: Gate,
    reply_gate: Gate,
    /// The newest group of which the protocol knows that the log has it; what rests on no later one, and its gates.
    logged: u64,
    of_logged: Vec<(Address, P::Message)>,
    held_of_logged: VecDeque<(Gate, Address, P::Message)>,
    /// Replies since `begin_turn` may rest on all that was persisted.
    reveals: bool,
    packets: Vec<(Address, Packet<P>)>,
    ungated: Vec<(Address, P::Message)>,
    spool: Vec<SpoolRequest>,
    mutants: Mutants,
}

impl<P: Protocol> Replica<P> {
    /// A replica at this address in this life. Its first inputs are those of recovery.
    pub fn new(node: NodeId, protocol: P) -> Self {
        Replica {
            node,
            protocol,
            timers: Timers::new(),
            streams: Streams::default(),
            records: Vec::new(),
            persisted: 0,
            groups: VecDeque::new(),
            strongest: StrongestDurability::default(),
            fresh: Vec::new(),
            fresh_frames: Vec::new(),
            held: VecDeque::new(),
            gate: Gate::OPEN,
            reply_gate: Gate::OPEN,
            logged: 0,
            of_logged: Vec::new(),
            held_of_logged: VecDeque::new(),
            reveals: true,
            packets: Vec::new(),
            ungated: Vec::new(),
            spool: Vec::new(),
            mutants: Mutants::NONE,
        }
    }

    /// The same with a known bug.
    pub fn with_mutants(self, mutants: Mutants) -> Self {
        Replica { mutants, ..self }
    }

    /// Its address and life.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The protocol, without everything that was around it.
    pub fn into_protocol(self) -> P {
        self.protocol
    }

    /// The protocol, to look at.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The protocol, for what is not a step: checkpoints and the log's own news.
    pub fn protocol_mut(&mut self) -> &mut P {
        &mut self.protocol
    }

    /// Reacts to a batch of inputs and leaves it empty.
    #[inline]
    pub fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, P>>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) {
        self.drive(replies, |protocol, out| protocol.step(now, batch, random, out));
        debug_assert!(batch.is_empty(), "a step consumes its batch");
    }

    /// A step whose input is a call: for requests that several replicas, held together, serve as one.
    #[inline]
    pub fn drive<R>(
        &mut self,
        replies: &mut dyn Replies,
        react: impl FnOnce(&mut P, &mut Outputs<'_, P>) -> R,
    ) -> R {
        let mut out = Outputs {
            node: self.node,
            records: &mut self.records,
            persisted: &mut self.persisted,
            strongest: &mut self.strongest,
            gated: &mut self.fresh,
            ungated: &mut self.ungated,
            timers: &mut self.timers,
            spool: &mut self.spool,
            of_logged: &mut self.of_logged,
            reveals: &mut self.reveals,
            replies,
        };
        let answer = react(&mut self.protocol, &mut out);
        if !self.ungated.is_empty() {
            self.packets.extend(self.ungated.drain(..).map(|(to, message)| (to, Packet::Datagram(message))));
        }
        answer
    }

    /// Takes a packet: a datagram becomes an input, a frame becomes as many as it completes. A malformed stream
    /// message is an error of the peer's software: the caller reports it and drops the packet.
    pub fn receive(
        &mut self,
        now: Now,
        from: NodeId,
        packet: Packet<P>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Result<(), Malformed> {
        self.receive_all(now, std::iter::once((from, packet)), random, replies)
    }

    /// Takes packets that came together: consecutive datagrams become one batch of inputs.
    pub fn receive_all(
        &mut self,
        now: Now,
        packets: impl Iterator<Item = (NodeId, Packet<P>)>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Result<(), Malformed> {
        let mut batch: Vec<Input<'_, P>> = Vec::with_capacity(packets.size_hint().0.min(MOST_INPUTS));
        let mut outcome = Ok(());
        for (from, packet) in packets {
            match packet {
                Packet::Datagram(message) => {
                    batch.push(Input::Message { from, message });
                    if batch.len() >= MOST_INPUTS {
                        self.step(now, &mut batch, random, replies);
                    }
                }
                Packet::Frame(frame) => {
                    // What came before may stream to the peer's earlier life.
                    if !batch.is_empty() {
                        self.step(now, &mut batch, random, replies);
                    }
                    outcome = outcome.and(self.receive_frame(now, from, frame, &mut batch));
                }
            }
        }
        if !batch.is_empty() {
            self.step(now, &mut batch, random, replies);
        }
        self.streams.acknowledgements(|to, frame| self.fresh_frames.push((to, frame)));
        outcome
    }

    fn receive_frame(
        &mut self,
        now: Now,
        from: NodeId,
        frame: Frame,
        batch: &mut Vec<Input<'_, P>>,
    ) -> Result<(), Malformed> {
        if self.streams.life(from.address()).is_some_and(|life| life < from.incarnation) {
            self.forget_streamed(from.address());
        }
        let (mut arrivals, life) = (Vec::new(), self.node.incarnation);
        let outcome =
            self.streams.receive::<P>(from, frame, life, now.instant, &mut arrivals, &mut self.packets);
        batch.extend(arrivals.into_iter().map(|arrival| match arrival {
            Arrival::Started(peer) => Input::PeerStarted { peer },
            Arrival::Message(from, message) => Input::Message { from, message },
        }));
        outcome
    }

    /// What was to be streamed to an earlier life of a peer and still waits for the log is gone like what was streamed:
    /// in front of what the protocol streams to the new life, a heartbeat would vouch for what is yet to be repeated.
    fn forget_streamed(&mut self, peer: Address) {
        let stays =
            |message: &Outgoing<P::Message>| !matches!(message, Outgoing::Stream { to, .. } if *to == peer);
        self.fresh.retain(stays);
        self.held.retain(|(_, held)| !matches!(held, Held::Message(message) if !stays(message)));
    }

    /// The requests of steps to the spool since the last call, in order. A driver without a spool answers each `Spill`
    /// and `Fetch` with [`Replica::spooled`] and `None`.
    pub fn spool_requests(&mut self) -> Vec<SpoolRequest> {
        std::mem::take(&mut self.spool)
    }

    /// See [`Protocol::spooled`]. Like a step.
    pub fn spooled(&mut self, now: Now, chunk: u64, bytes: Option<&[u8]>, replies: &mut dyn Replies) {
        self.drive(replies, |protocol, out| protocol.spooled(now, chunk, bytes, out));
    }

    /// Fires every timer whose deadline has come and sends again what has waited too long.
    pub fn fire(&mut self, now: Now, random: &mut Rng, replies: &mut dyn Replies) {
        let mut batch = Vec::new();
        while let Some(timer) = self.timers.pop(now.instant) {
            batch.push(Input::Timer(timer));
        }
        if !batch.is_empty() {
            self.step(now, &mut batch, random, replies);
        }
        self.streams.resend(now.instant, &mut self.packets);
    }

    /// When `fire` is due next.
    pub fn deadline(&self) -> Option<Instant> {
        [self.timers.next(), self.streams.deadline()].into_iter().flatten().min()
    }

    /// The records persisted since the last `appended`, each with its length (four bytes, little-endian) before
    /// it. The driver puts all of them into one group of its log.
    pub fn records(&self) -> &[u8] {
        &self.records
    }

    /// How much it has persisted so far.
    pub fn persisted(&self) -> Persisted {
        Persisted { bytes: self.records.len(), records: self.persisted, strongest: self.strongest }
    }

    /// What it has persisted since then, all of it after the last `appended`, is not for the log: the protocol has taken
    /// it back, and nobody else has learned of it.
    pub fn forget_since(&mut self, then: Persisted) {
        debug_assert!(then.bytes <= self.records.len(), "nothing was appended since");
        self.records.truncate(then.bytes);
        (self.persisted, self.strongest) = (then.records, then.strongest);
    }

    /// The records are in the log's group with this number; what the steps sent is now held behind it.
    pub fn appended(&mut self, group: u64) {
        let StrongestDurability { messages, replies } = std::mem::take(&mut self.strongest);
        self.gate = self.gate.and(Gate::of(group, messages));
        self.reply_gate = self.reply_gate.and(Gate::of(group, replies));
        self.records.clear();
        match self.groups.back_mut() {
            Some((last, reached)) if *last == group => *reached = self.persisted,
            _ => self.groups.push_back((group, self.persisted)),
        }
    }

    /// The log has written this group and all before it.
    pub fn logged(&mut self, group: u64) {
        self.logged = self.logged.max(group);
        let mut reached = None;
        while self.groups.front().is_some_and(|(number, _)| *number <= group) {
            reached = self.groups.pop_front();
        }
        if let Some((_, records)) = reached {
            self.protocol.logged(records);
        }
    }

    /// True if nothing that it persisted waits for the log to write beyond this group.
    pub fn is_logged(&self, written: u64) -> bool {
        self.groups.back().is_none_or(|(group, _)| *group <= written)
    }

    /// The log refused the records of every group beyond `written`, and takes none until it is healed: what they
    /// did is undone, and what was to be sent is not. False if the protocol cannot undo; then the process must end.
    #[must_use]
    pub fn refused(&mut self, written: u64) -> bool {
        self.logged(written);
        self.groups.clear();
        self.records.clear();
        self.strongest = StrongestDurability::default();
        self.fresh.clear();
        self.fresh_frames.clear();
        self.held.retain(|(gate, _)| gate.written <= written);
        // What was refused gates nothing that comes after.
        for gate in [&mut self.gate, &mut self.reply_gate] {
            *gate = gate.up_to(written);
        }
        let undone = self.protocol.log_failed();
        // Records count on: the protocol has dropped those that were refused.
        self.protocol.logged(self.persisted);
        undone
    }

    /// What messages of the last step wait for.
    #[inline]
    pub fn gate(&self) -> Gate {
        self.gate
    }

    /// What replies of the last step wait for.
    #[inline]
    pub fn reply_gate(&self) -> Gate {
        self.reply_gate
    }

    /// From now on replies count for `turn_gate`.
    pub(crate) fn begin_turn(&mut self) {
        self.reveals = false;
    }

    /// What replies since `begin_turn` wait for: no more than what the log has taken, if they rest on nothing else.
    pub(crate) fn turn_gate(&self) -> Gate {
        if self.reveals { self.reply_gate } else { self.reply_gate.up_to(self.logged) }
    }

    /// Moves fresh outputs behind the gate, and releases what waits behind an open one. Called after `appended`
    /// and whenever the log became more durable.
    pub fn release(&mut self, now: Instant, durable: Durable) {
        debug_assert!(self.records.is_empty(), "records are appended before outputs are released");
        for gate in [&mut self.gate, &mut self.reply_gate] {
            if gate.is_open(durable) {
                *gate = Gate::OPEN;
            }
        }
        let gate = if self.mutants.has(Mutant::Ungated) { Gate::OPEN } else { self.gate };
        let of_logged = gate.up_to(self.logged);
        self.held_of_logged.extend(self.of_logged.drain(..).map(|(to, message)| (of_logged, to, message)));
        while let Some((_, to, message)) =
            self.held_of_logged.pop_front_if(|(gate, ..)| gate.is_open(durable))
        {
            self.packets.push((to, Packet::Datagram(message)));
        }
        let messages = self.fresh.drain(..).map(Held::Message);
        let fresh = messages.chain(self.fresh_frames.drain(..).map(|(to, frame)| Held::Frame(to, frame)));
        let (streams, packets) = (&mut self.streams, &mut self.packets);
        let mut leave = |held| match held {
            Held::Message(Outgoing::Datagram { to, message }) => {
                packets.push((to, Packet::Datagram(message)))
            }
            Held::Message(Outgoing::Stream { to, message }) => streams.push::<P>(to, &message, now, packets),
            Held::Frame(to, frame) => packets.push((to, Packet::Frame(frame))),
        };
        if self.held.is_empty() && gate.is_open(durable) {
            return fresh.for_each(leave);
        }
        self.held.extend(fresh.map(|held| (gate, held)));
        while let Some((_, held)) = self.held.pop_front_if(|(gate, _)| gate.is_open(durable)) {
            leave(held);
        }
    }

    /// Takes the packets that may leave now.
    pub fn packets(&mut self) -> impl Iterator<Item = (Address, Packet<P>)> + '_ {
        self.packets.drain(..)
    }

    /// How many stream messages this peer has not acknowledged.
    pub fn unacknowledged(&self, peer: Address) -> usize {
        self.streams.unacknowledged(peer)
    }
}
