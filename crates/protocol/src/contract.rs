//! The trait, its inputs and its outputs.

use crate::request::Request;
use crate::timers::Timers;
use serde::{Deserialize, Serialize};
use types::{Address, Instant, NodeId, ReplyBuf, ReplySink, RequestId, Rng, WallTime, Wire};

/// A replica of a partition, or a coordinator in a gateway: anything with an address that reacts to inputs.
pub trait Protocol: Sized {
    /// The messages between instances of this protocol.
    type Message: Wire;
    /// Its timers; one deadline each.
    type Timer: Copy + Ord + std::fmt::Debug;
    /// Its log records, borrowed where the caller has them.
    type Record<'a>: Encode;
    /// True if instances that log serve reads of their own process without hearing from others and without their timers.
    /// While the log refuses records they do only that: what they hear and what timers bring would have to be logged. Reads
    /// come as requests, or as messages that [`Protocol::is_read`] knows.
    const READS_ALONE: bool = false;

    /// Reacts to a batch of inputs and leaves it empty; never blocks, never fails. A step takes at most about a
    /// millisecond, one large write apart (Corrections 87).
    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    );

    /// Appends the next piece of the state, some tens of kilobytes, to `chunk`; returns where to go on, or `None`
    /// when all has been said. `cursor` 0 starts. Taken beside traffic: a piece may hold effects logged after the
    /// checkpoint began, so recovery applies a log record only to what is older than it.
    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64>;

    /// True for a message that no process waits for: the driver may delay it by some milliseconds, to batch it with
    /// others. The driver does not call this for messages of a stream.
    fn can_wait(message: &Self::Message) -> bool {
        let _ = message;
        false
    }

    /// True for a message that asks for a read. It is served also while the log refuses what the instance has persisted:
    /// nothing is persisted for it meanwhile.
    fn is_read(message: &Self::Message) -> bool {
        let _ = message;
        false
    }

    /// The log has taken the first `records` records that this instance persisted since `Recovered`: the instance may
    /// drop what would take them back.
    fn logged(&mut self, records: u64) {
        let _ = records;
    }

    /// The log refused what was persisted beyond the last `logged`: that never happened. Undoes it and refuses
    /// writes until `log_healed`. Returns false if the protocol cannot; then the process must end.
    #[must_use]
    fn log_failed(&mut self) -> bool {
        false
    }

    /// The log refuses records, and the driver retains them until the log takes them: until `log_healed`, answers must
    /// rest on logged records only.
    fn log_refuses(&mut self) {}

    /// The log takes records again.
    fn log_healed(&mut self) {}

    /// The answer of the spool about a chunk: its bytes after [`Outputs::fetch`]; or `None`, requested or not: the
    /// chunk is gone, or the spool could not store it. Like a step otherwise.
    fn spooled(&mut self, now: Now, chunk: u64, bytes: Option<&[u8]>, out: &mut Outputs<'_, Self>) {
        let _ = (now, chunk, bytes, out);
    }
}

/// What an instance asks of its spool, in this order: a place for bytes that would occupy too much memory. It lasts for
/// a life at most, and may lose anything at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpoolRequest {
    /// Keep this chunk; answered only if that fails. Numbers ascend.
    Spill {
        /// Its number.
        chunk: u64,
        /// What it is.
        bytes: Vec<u8>,
    },
    /// Tell this chunk; always answered.
    Fetch {
        /// Its number.
        chunk: u64,
    },
    /// Nothing up to this chunk, and with it, is needed any more.
    Forget {
        /// Its number.
        through: u64,
    },
}

/// A record that can be encoded.
pub trait Encode {
    /// Appends the binary form.
    fn encode(&self, out: &mut Vec<u8>);
}

impl<T: Wire> Encode for T {
    fn encode(&self, out: &mut Vec<u8>) {
        Wire::encode(self, out);
    }
}

/// The two times a step may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// May be skewed and may jump.
    pub wall: WallTime,
    /// Never goes back; for timers.
    pub instant: Instant,
}

/// Something a protocol reacts to.
#[derive(Debug)]
pub enum Input<'a, P: Protocol> {
    /// A piece of the latest checkpoint; all of them come before the log.
    Snapshot(&'a [u8]),
    /// A record of the log after the checkpoint's beginning, in order.
    Recover(&'a [u8]),
    /// Recovery is over; sent at every start, also when there was nothing to recover.
    Recovered {
        /// False when records this instance had relied on may be missing: it must learn them from its peers
        /// before it votes, stamps or serves (Corrections 67).
        complete: bool,
    },
    /// A message, from a peer's [`Outputs::send`] (perhaps again) or [`Outputs::stream`] (in order, once).
    Message {
        /// The sender, in its life.
        from: NodeId,
        /// What it said.
        message: P::Message,
    },
    /// A stream peer began a life unknown so far: what was streamed to it and not acknowledged is gone, and
    /// streaming starts anew. Also said once about every peer before its first message.
    PeerStarted {
        /// The peer in its new life.
        peer: NodeId,
    },
    /// A gateway's request.
    Request {
        /// Names the reply.
        id: RequestId,
        /// What to do.
        request: Request<'a>,
    },
    /// A timer's deadline has come; it is disarmed.
    Timer(P::Timer),
}

/// How durable a record must be before what follows it may leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Durability {
    /// Not at all: `none`.
    #[serde(rename = "none")]
    Volatile,
    /// Handed to the kernel: `everysec`.
    #[serde(rename = "everysec")]
    Written,
    /// Synced: `always`.
    #[serde(rename = "always")]
    Synced,
}

impl Durability {
    /// Its name in commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Durability::Volatile => "none",
            Durability::Written => "everysec",
            Durability::Synced => "always",
        }
    }
}

/// Finds the sink of a reply. The sender of the requests implements it.
pub trait Replies {
    /// Where the reply to `id` goes; the whole reply is written before the step ends, perhaps by several calls with
    /// no other reply between them.
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink;
}

/// A sink for steps without replies: it discards what is written.
#[derive(Debug, Default)]
pub struct NoReplies(ReplyBuf);

impl Replies for NoReplies {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        self.0.clear();
        &mut self.0
    }
}

/// A message on its way out, held behind the gate of its step.
#[derive(Debug)]
pub(crate) enum Outgoing<M> {
    Datagram { to: Address, message: M },
    Stream { to: Address, message: M },
}

/// How durable the records of some steps must be.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StrongestDurability {
    /// Before messages may leave.
    pub messages: Option<Durability>,
    /// Before replies may.
    pub replies: Option<Durability>,
}

impl StrongestDurability {
    #[inline]
    fn persisted(&mut self, for_messages: Durability, for_replies: Durability) {
        self.messages = self.messages.max(Some(for_messages));
        self.replies = self.replies.max(Some(for_replies));
    }
}

/// What a step brings about.
pub struct Outputs<'o, P: Protocol> {
    pub(crate) node: NodeId,
    pub(crate) records: &'o mut Vec<u8>,
    pub(crate) persisted: &'o mut u64,
    pub(crate) strongest: &'o mut StrongestDurability,
    pub(crate) gated: &'o mut Vec<Outgoing<P::Message>>,
    pub(crate) ungated: &'o mut Vec<(Address, P::Message)>,
    pub(crate) timers: &'o mut Timers<P::Timer>,
    pub(crate) spool: &'o mut Vec<SpoolRequest>,
    pub(crate) of_logged: &'o mut Vec<(Address, P::Message)>,
    pub(crate) reveals: &'o mut bool,
    pub(crate) replies: &'o mut dyn Replies,
}

impl<P: Protocol> Outputs<'_, P> {
    /// Who takes the step: its address and its life, as others see them.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Writes a record to the log, encoded at once, after all records before it.
    #[inline]
    pub fn persist(&mut self, record: &P::Record<'_>, class: Durability) {
        self.append(record);
        self.strongest.persisted(class, class);
    }

    /// Writes a record of which messages alone tell: replies wait until it is handed to the kernel, like what stands
    /// before it, and not for more.
    pub fn persist_for_messages(&mut self, record: &P::Record<'_>, class: Durability) {
        self.append(record);
        self.strongest.persisted(class, class.min(Durability::Written));
    }

    fn append(&mut self, record: &P::Record<'_>) {
        let start = self.records.len();
        self.records.extend_from_slice(&[0; 4]);
        record.encode(self.records);
        let len = (self.records.len() - start - 4) as u32;
        self.records[start..start + 4].copy_from_slice(&len.to_le_bytes());
        *self.persisted += 1;
    }

    /// How many records have been persisted since recovery: the number of the last one.
    pub fn persisted(&self) -> u64 {
        *self.persisted
    }

    /// Sends a message once everything persisted before is durable. It may be lost, repeated and reordered.
    pub fn send(&mut self, to: Address, message: P::Message) {
        self.gated.push(Outgoing::Datagram { to, message });
    }

    /// Appends a message to the one stream to this peer: once everything persisted before is durable, in order,
    /// exactly once while both live.
    pub fn stream(&mut self, to: Address, message: P::Message) {
        self.gated.push(Outgoing::Stream { to, message });
    }

    /// Sends a message at once: only for what vouches for nothing.
    pub fn send_now(&mut self, to: Address, message: P::Message) {
        self.ungated.push((to, message));
    }

    /// Sends a message that rests on nothing but the records that [`Protocol::logged`] has reported: it leaves once
    /// these are durable. It may be lost, repeated and reordered.
    pub fn send_logged(&mut self, to: Address, message: P::Message) {
        self.of_logged.push((to, message));
    }

    /// The sink of a reply, which leaves once everything persisted before is durable.
    #[inline]
    pub fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        *self.reveals = true;
        self.replies.reply(id)
    }

    /// The sink of a reply that rests on nothing but the records that [`Protocol::logged`] has reported.
    pub fn reply_logged(&mut self, id: RequestId) -> &mut dyn ReplySink {
        self.replies.reply(id)
    }

    /// Sets the timer's only deadline.
    pub fn arm(&mut self, timer: P::Timer, at: Instant) {
        self.timers.arm(timer, at);
    }

    /// Clears the timer's deadline.
    pub fn disarm(&mut self, timer: P::Timer) {
        self.timers.disarm(timer);
    }

    /// Moves bytes out of the memory; waits for no record, since no process learns anything from it. See
    /// [`SpoolRequest`].
    pub fn spill(&mut self, chunk: u64, bytes: Vec<u8>) {
        self.spool.push(SpoolRequest::Spill { chunk, bytes });
    }

    /// Asks for a chunk that was spilled; [`Protocol::spooled`] is the answer.
    pub fn fetch(&mut self, chunk: u64) {
        self.spool.push(SpoolRequest::Fetch { chunk });
    }

    /// Frees every chunk up to this one, and it.
    pub fn forget_spilled(&mut self, through: u64) {
        self.spool.push(SpoolRequest::Forget { through });
    }
}
