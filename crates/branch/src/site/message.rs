//! What the nodes of a keyspace say to one another.

use crate::{ByValue, Commit, Piece, StateId};
use types::{ReplyBuf, wire_enum, wire_struct};

/// The one message type. Sites, and the gateways of a region with its site, use the one stream to their peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Site to site, at the beginning of a life: "this is what I have". Answered by what it lacks.
    Greeting {
        /// What it has.
        present: Present,
        /// All states that are there. What was taken out is seen by one of them that the receiver knows: by a ceiling.
        states: Vec<StateId>,
    },
    /// A state that was made, wherever it was.
    Transaction {
        /// Its transaction.
        commit: Commit,
    },
    /// A state as it is, where nobody keeps its transaction any more.
    Value {
        /// The state.
        state: ByValue,
    },
    /// "This is what I have now", regularly.
    Received {
        /// What it has.
        present: Present,
        /// How many transactions have come from the receiver of this since the last time.
        count: u64,
        /// The time of the receiver's present that the sender knows.
        known: u64,
    },
    /// The sender begins nothing above these states from now on (TARDiS 6.4).
    Ceiling {
        /// The states.
        states: Vec<StateId>,
    },
    /// Gateway of another process of the region to its site: a client asks.
    Ask {
        /// Names the answer.
        number: u64,
        /// The request in its binary form.
        request: Box<[u8]>,
    },
    /// Site to site: "I have nothing, and never began". Answered by `Joined`.
    Join,
    /// Whether the sender has begun.
    Joined {
        /// It has: it can be asked for everything.
        has_begun: bool,
    },
    /// Site to site: "tell me everything you have".
    Fetch {
        /// Names the answer.
        attempt: u64,
    },
    /// The reply to `Fetch`.
    Pieces {
        /// Of which question.
        attempt: u64,
        /// The sender's states and versions, in order.
        pieces: Vec<Piece>,
        /// That was all.
        is_last: bool,
    },
    /// The reply to `Ask`.
    Answer {
        /// Of which question.
        number: u64,
        /// The reply.
        reply: ReplyBuf,
    },
}
wire_enum!(Message {
    0 => Greeting { present, states },
    1 => Transaction { commit },
    2 => Value { state },
    3 => Received { present, count, known },
    4 => Ceiling { states },
    5 => Ask { number, request },
    6 => Answer { number, reply },
    7 => Join,
    8 => Joined { has_begun },
    9 => Fetch { attempt },
    10 => Pieces { attempt, pieces, is_last },
});

/// What a site has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Present {
    /// Its states without children; it has everything that they see.
    pub heads: Vec<StateId>,
    /// Rises whenever the site has taken states out.
    pub time: u64,
}
wire_struct!(Present { heads, time });
