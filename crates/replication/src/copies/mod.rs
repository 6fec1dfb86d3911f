//! Several copies of one instance of a protocol, driven by a replicated log: a *group*, which everybody else takes for
//! one instance that now and then restarts (decision 0032).
//!
//! ```text
//!   others == packets for the group's address ==> the leader's instance      the others' instances
//!                                                   step: records              |
//!                                                   |-- entry: the records --> log --> applied as in recovery
//!                                                   |<---- committed ----------|
//!          <====== what the step said =============gate opens
//! ```
//!
//! # Guarantee
//! What the group says stands on entries that survive the loss of f of 2f+1 members. To those who speak to it, a change
//! of the leader is a restart of the instance with a complete log: what the protocol does about that is all that there
//! is to be done. The leader's term is the instance's life, so that nobody listens to two.
//!
//! # How
//! - The leader owns a [`protocol::Replica`] of the instance. The records of a turn are one entry; the gate is the
//!   log's commit index in place of a journal's.
//! - A member that follows feeds the entries to its instance as [`Input::Recover`], so it is as far as a recovery would
//!   be; to lead it says [`Input::Recovered`] to it.
//! - A leader's state is ahead of the log. A deposed one goes on from it ([`Copied::demote`]): its entries are applied
//!   again when they are committed, which changes nothing. If one of another term takes their place, its state is not
//!   the log's: it takes another member's, piece by piece, and neither stands for election nor gives its own meanwhile.
//!   The last leader's state is never dropped so, since only a later leader's entries can take the place of its own.
//! - What a member gives of a state that is ahead waits, like everything else that it says, for the log.
//! - A checkpoint of a state that is ahead says up to which entry; whoever recovers from it and finds another entry in
//!   its place takes another member's state.
//!
//! What a leader says without an entry of its own term may be what an earlier leader would say: it does not know yet
//! that it has been deposed. A protocol that is copied must be right then, write a record first, or leave the question until
//! a quorum has confirmed that the member leads ([`Copied::asks_leader`]): a read index, which waits for no disk.

mod copy;
mod group_client;
mod member;
mod message;
mod rebuild;
mod routes;

pub use group_client::GroupClient;
pub use member::Member;
pub use message::Message;
pub use routes::Groups;

use crate::Mutants;
use crate::log::Change;
use protocol::{Durability, Encode, Input, Now, Outputs, Packet, Protocol};
use std::time::Duration;
use types::{Address, NodeId, Rng};

/// A protocol whose instances can be copied: recovery from all records, in order, is the whole state. Applying records
/// again in order, up to the last one that was applied, changes nothing.
pub trait Copied: Protocol + 'static {
    /// An instance as this one was before its recovery.
    fn fresh(&self) -> Self;

    /// It led and does not any more: what lasts for a life is forgotten, so that records and `Recovered` may follow.
    fn demote(&mut self);

    /// Like [`Protocol::checkpoint`], but for another member, and perhaps beside a checkpoint.
    fn piece(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64>;

    /// While `held`, nothing may be forgotten that a piece begun may still tell.
    fn hold(&mut self, held: bool);

    /// True for a question that a deposed leader must not answer. The instance gets it once a quorum has confirmed, after its
    /// arrival, that this member leads: what any leader said before it arrived is then in the instance's state.
    fn asks_leader(message: &Self::Message) -> bool;

    /// True once a record has said that the leader's state has become more than the records tell: a copy is taken from
    /// another member as soon as possible. Without one it can still lead.
    fn is_outdated(&self) -> bool;
}

/// How members are set up.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// How durable an entry is at a member before that counts for its commit.
    pub durability: Durability,
    /// The log's unit of time: leaders speak every two, followers miss them after six to twelve.
    pub tick: Duration,
    /// A known bug.
    pub mutants: Mutants,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            durability: Durability::Written,
            tick: Duration::from_millis(50),
            mutants: Mutants::default(),
        }
    }
}

/// What a node can be reminded of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    /// The log's tick.
    Tick,
    /// The instance's earliest.
    Inner,
}

/// A record: one of the log's.
pub struct Record<'a>(pub(crate) Change<'a>);

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.encode(out);
    }
}

/// A member of a group, or an instance that speaks to groups.
pub enum Node<P: Copied> {
    /// A member of a group.
    Member(Box<Member<P>>),
    /// An instance in no group.
    GroupClient(Box<GroupClient<P>>),
}

impl<P: Copied> Node<P> {
    /// The member at this address, in this life of its process, with a fresh instance.
    ///
    /// # Panics
    /// If it is in no group.
    pub fn member(node: NodeId, protocol: P, groups: Groups, options: Options) -> Self {
        Node::Member(Box::new(Member::new(node, protocol, groups, options)))
    }

    /// An instance in no group.
    pub fn group_client(node: NodeId, protocol: P, groups: Groups) -> Self {
        Node::GroupClient(Box::new(GroupClient::new(node, protocol, groups)))
    }

    /// The instance, to look at.
    pub fn protocol(&self) -> &P {
        match self {
            Node::Member(member) => member.protocol(),
            Node::GroupClient(group_client) => group_client.protocol(),
        }
    }

    /// The instance, for what is not a step.
    pub fn protocol_mut(&mut self) -> &mut P {
        match self {
            Node::Member(member) => member.protocol_mut(),
            Node::GroupClient(group_client) => group_client.protocol_mut(),
        }
    }

    /// The member, if it is one.
    pub fn as_member(&self) -> Option<&Member<P>> {
        match self {
            Node::Member(member) => Some(member),
            Node::GroupClient(_) => None,
        }
    }

    /// Something that a process says to an instance of its own, as a message.
    pub fn said(from: NodeId, to: Address, message: P::Message) -> Message<P> {
        Message::Packet { from, to, passed_on: false, packet: Packet::Datagram(message) }
    }
}

impl<P: Copied> std::fmt::Debug for Node<P> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Node::Member(member) => member.fmt(f),
            Node::GroupClient(_) => f.write_str("Guest"),
        }
    }
}

impl<P: Copied> Protocol for Node<P> {
    type Message = Message<P>;
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(
        &mut self,
        now: Now,
        batch: &mut Vec<Input<'_, Self>>,
        random: &mut Rng,
        out: &mut Outputs<'_, Self>,
    ) {
        match self {
            Node::Member(member) => member.step(now, batch, random, out),
            Node::GroupClient(group_client) => group_client.step(now, batch, random, out),
        }
    }

    fn can_wait(message: &Message<P>) -> bool {
        matches!(message, Message::Packet { packet, .. } if packet.can_wait())
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Member(member) => member.checkpoint(cursor, chunk),
            Node::GroupClient(_) => None,
        }
    }
}
