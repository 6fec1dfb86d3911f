//! The messages between members. The library's own messages are written field by field: its generated decoder would
//! recurse on hostile input (RUSTSEC-2024-0437).

use crate::transfer::{Ask, Piece};
use raft::eraftpb::{Entry, Message as RaftMessage, MessageType};
use types::{Incarnation, Malformed, Reader, Wire, put_bytes, wire_enum};

/// A message from member to member.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// The library's: votes, entries, heartbeats and their answers.
    Raft {
        /// The life in which the sender last forgot.
        own: Incarnation,
        /// The life in which the receiver last forgot, as far as the sender knows.
        yours: Incarnation,
        /// The message.
        message: Raft,
    },
    /// A member that lost what it acknowledged, to all: what must I hold before I vote?
    Forgot {
        /// Its life.
        life: Incarnation,
    },
    /// A member that has not forgotten, to one that has.
    VoteEligibility {
        /// The asker's life.
        life: Incarnation,
        /// The highest term seen.
        term: u64,
        /// The last entry, if the sender leads in that term.
        last: Option<u64>,
    },
    /// A member that lags, to the leader: a piece of its state.
    Ask {
        /// Which piece.
        ask: Ask,
    },
    /// The piece.
    Piece {
        /// The application's bytes.
        piece: Piece,
        /// Index and term that the giver's state stood for when it took the piece.
        base: (u64, u64),
    },
}
wire_enum!(Message {
    0 => Raft { own, yours, message },
    1 => Forgot { life },
    2 => VoteEligibility { life, term, last },
    3 => Ask { ask },
    4 => Piece { piece, base },
});

/// A message of the library.
#[derive(Clone, Debug, PartialEq)]
pub struct Raft(pub(super) RaftMessage);

impl Raft {
    /// True for what asks for a vote, or makes the receiver ask for votes.
    pub(super) fn wants_vote(&self) -> bool {
        use MessageType::{MsgRequestPreVote, MsgRequestVote, MsgTimeoutNow};
        matches!(self.0.msg_type, MsgRequestVote | MsgRequestPreVote | MsgTimeoutNow)
    }

    /// True for what announces a state in place of entries.
    pub(super) fn is_snapshot(&self) -> bool {
        self.0.msg_type == MessageType::MsgSnapshot
    }
}

const TYPES: [MessageType; 10] = [
    MessageType::MsgAppend,
    MessageType::MsgAppendResponse,
    MessageType::MsgRequestVote,
    MessageType::MsgRequestVoteResponse,
    MessageType::MsgSnapshot,
    MessageType::MsgHeartbeat,
    MessageType::MsgHeartbeatResponse,
    MessageType::MsgTimeoutNow,
    MessageType::MsgRequestPreVote,
    MessageType::MsgRequestPreVoteResponse,
];

impl Wire for Raft {
    fn encode(&self, out: &mut Vec<u8>) {
        let message = &self.0;
        let kind = TYPES.iter().position(|kind| *kind == message.msg_type).unwrap_or(TYPES.len());
        out.push(kind as u8);
        let metadata = message.get_snapshot().get_metadata();
        let numbers = [
            message.to,
            message.from,
            message.term,
            message.log_term,
            message.index,
            message.commit,
            message.commit_term,
            message.request_snapshot,
            message.reject_hint,
            metadata.index,
            metadata.term,
        ];
        numbers.iter().for_each(|number| number.encode(out));
        message.reject.encode(out);
        message.priority.encode(out);
        put_bytes(out, &message.context);
        encode_entries(&message.entries, out);
        metadata.get_conf_state().voters.encode(out);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let msg_type = *TYPES.get(usize::from(input.byte()?)).ok_or(Malformed("raft message tag"))?;
        let mut message = RaftMessage { msg_type, ..RaftMessage::default() };
        let mut numbers = [0; 11];
        for number in &mut numbers {
            *number = u64::decode(input)?;
        }
        let [to, from, term, log_term, index, commit, commit_term, request, hint, at, at_term] = numbers;
        (message.to, message.from, message.term) = (to, from, term);
        (message.log_term, message.index) = (log_term, index);
        (message.commit, message.commit_term) = (commit, commit_term);
        (message.request_snapshot, message.reject_hint) = (request, hint);
        message.reject = Wire::decode(input)?;
        message.priority = Wire::decode(input)?;
        message.context = input.bytes()?.to_vec().into();
        message.entries = decode_entries(input)?.into();
        let voters = Vec::<u64>::decode(input)?;
        if message.msg_type == MessageType::MsgSnapshot {
            let metadata = message.mut_snapshot().mut_metadata();
            (metadata.index, metadata.term) = (at, at_term);
            metadata.mut_conf_state().set_voters(voters);
        }
        Ok(Raft(message))
    }
}

/// Appends entries: how many, then index, term and bytes of each. All of them are the owner's data: members do not
/// change.
pub(super) fn encode_entries(entries: &[Entry], out: &mut Vec<u8>) {
    entries.len().encode(out);
    for entry in entries {
        entry.index.encode(out);
        entry.term.encode(out);
        put_bytes(out, &entry.data);
    }
}

pub(super) fn decode_entries(input: &mut Reader<'_>) -> Result<Vec<Entry>, Malformed> {
    let count = input.count()?;
    let mut entries = Vec::with_capacity(count);
    for _ in 0..count {
        let (index, term) = (Wire::decode(input)?, Wire::decode(input)?);
        let data = input.bytes()?.to_vec().into();
        entries.push(Entry { index, term, data, ..Entry::default() });
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_survive_the_wire() {
        let mut append = RaftMessage { msg_type: MessageType::MsgAppend, ..RaftMessage::default() };
        (append.to, append.from, append.term, append.index, append.commit) = (1, 2, 3, 4, 5);
        let data = b"entry".to_vec().into();
        append.entries = vec![Entry { index: 5, term: 3, data, ..Entry::default() }].into();
        let mut snapshot = RaftMessage { msg_type: MessageType::MsgSnapshot, ..RaftMessage::default() };
        let metadata = snapshot.mut_snapshot().mut_metadata();
        (metadata.index, metadata.term) = (7, 2);
        metadata.mut_conf_state().set_voters(vec![1, 2, 3]);
        for message in [append, snapshot] {
            let mut bytes = Vec::new();
            Raft(message.clone()).encode(&mut bytes);
            assert_eq!(Raft::decode(&mut Reader::new(&bytes)), Ok(Raft(message)));
        }
    }
}
