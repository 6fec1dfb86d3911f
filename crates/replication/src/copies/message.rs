//! The messages between members, and between members and clients of the group.

use crate::log;
use crate::transfer::{Ask, Piece};
use protocol::{Packet, Protocol};
use types::{Address, Malformed, NodeId, Reader, Wire};

/// A message between processes.
pub enum Message<P: Protocol> {
    /// Member to member: of the log.
    Log(log::Message),
    /// What one instance of the protocol says to another one. A group speaks, and is spoken to, by its own address.
    Packet {
        /// Who speaks; of a group, the life of its leader.
        from: NodeId,
        /// To whom.
        to: Address,
        /// True if a member that does not lead has passed it on.
        passed_on: bool,
        /// What.
        packet: Packet<P>,
    },
    /// A member that does not lead, to whom it was taken for the leader.
    Elsewhere {
        /// The group.
        group: Address,
        /// The member that leads, if that is known.
        leader: Option<usize>,
    },
    /// A member whose state is not the log's, to another: a piece of yours.
    Ask(Ask),
    /// The piece.
    Piece {
        /// Which state of the giver's it is of: another one has other cursors.
        state: u64,
        /// The last entry that the giver had applied.
        applied: u64,
        /// The piece.
        piece: Piece,
    },
}

impl<P: Protocol> std::fmt::Debug for Message<P>
where
    P::Message: std::fmt::Debug,
{
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Message::Log(message) => f.debug_tuple("Log").field(message).finish(),
            Message::Packet { from, to, packet: Packet::Datagram(message), .. } => f
                .debug_struct("Packet")
                .field("from", from)
                .field("to", to)
                .field("message", message)
                .finish(),
            Message::Packet { from, to, packet: Packet::Frame(frame), .. } => {
                f.debug_struct("Packet").field("from", from).field("to", to).field("frame", frame).finish()
            }
            Message::Elsewhere { group, leader } => {
                f.debug_struct("Elsewhere").field("group", group).field("leader", leader).finish()
            }
            Message::Ask(ask) => f.debug_tuple("Ask").field(ask).finish(),
            Message::Piece { state, applied, piece } => {
                let (cursor, next) = (piece.cursor, piece.next);
                let mut shown = f.debug_struct("Piece");
                shown.field("state", state).field("applied", applied);
                shown.field("cursor", &cursor).field("next", &next).finish_non_exhaustive()
            }
        }
    }
}

impl<P: Protocol> Wire for Message<P> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Message::Log(message) => {
                out.push(0);
                message.encode(out);
            }
            Message::Packet { from, to, passed_on, packet } => {
                out.push(1);
                (*from, *to, *passed_on).encode(out);
                packet.encode(out);
            }
            Message::Elsewhere { group, leader } => {
                out.push(2);
                (*group, *leader).encode(out);
            }
            Message::Ask(ask) => {
                out.push(3);
                ask.encode(out);
            }
            Message::Piece { state, applied, piece } => {
                out.push(4);
                (*state, *applied).encode(out);
                piece.encode(out);
            }
        }
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Message::Log(Wire::decode(input)?),
            1 => {
                let (from, to, passed_on) = Wire::decode(input)?;
                Message::Packet { from, to, passed_on, packet: Packet::decode(input)? }
            }
            2 => {
                let (group, leader) = Wire::decode(input)?;
                Message::Elsewhere { group, leader }
            }
            3 => Message::Ask(Wire::decode(input)?),
            4 => {
                let (state, applied) = Wire::decode(input)?;
                Message::Piece { state, applied, piece: Wire::decode(input)? }
            }
            _ => return Err(Malformed("message tag of a group")),
        })
    }
}
