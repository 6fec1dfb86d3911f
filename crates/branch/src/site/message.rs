//! What the nodes of a keyspace say to one another.

use crate::{ByValue, Commit, Order, Piece, StateId, Stored};
use mvcc::CompactKey;
use types::{ReplyBuf, wire_enum, wire_struct};

/// The one message type. Sites, and the gateways of a region with its site, use the one stream to their peer.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// Site to site, at the beginning of a life: "this is what I have". Answered by what it lacks.
    Greeting {
        /// What it has.
        present: SiteState,
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
        present: SiteState,
        /// How many transactions have come from the receiver of this since the last time.
        count: u64,
        /// The time of the receiver's present that the sender knows.
        known: u64,
        /// The receiver lacks more than can be on its way.
        more: bool,
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
        /// Where the session stood in an earlier life of the site.
        thread: Option<Thread>,
        /// The request in its binary form.
        request: Box<[u8]>,
    },
    /// Site to site: "I have nothing, and never began". Answered by `Joined`.
    Join,
    /// Whether the sender has begun.
    Joined {
        /// The site has begun: others can fetch everything from it.
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
        /// Where the session stands now.
        thread: Option<Thread>,
        /// The reply.
        reply: ReplyBuf,
    },
    /// Manager to record partition, at the beginning of a life. Answered by `SessionPosition`.
    Attend,
    /// Record partition to manager, at the beginning of a life of either: "send on from here".
    SessionPosition {
        /// The number of the last order that it has.
        applied: u64,
    },
    /// Manager to record partition: "do this".
    Order {
        /// Rises from order to order.
        number: u64,
        /// It.
        order: Order,
    },
    /// Record partition to manager, regularly: "everything up to here is on my disk".
    Safe {
        /// The number of the order.
        number: u64,
    },
    /// Manager to record partition: "what is there of these keys after all orders before?" Answered by `Loaded`.
    Load {
        /// Names the answer.
        question: u64,
        /// The keys.
        keys: Vec<CompactKey>,
    },
    /// The reply to `Load`.
    Loaded {
        /// Of which question.
        question: u64,
        /// The keys with all their versions.
        records: Vec<Stored>,
    },
    /// Manager to record partition: "what is there?" Answered by `Paged`.
    Page {
        /// Names the answer.
        question: u64,
        /// The last key of the page before.
        after: Option<CompactKey>,
        /// How many keys to say.
        count: u64,
    },
    /// The reply to `Page`.
    Paged {
        /// Of which question.
        question: u64,
        /// Keys with all their versions, in the order of their places.
        records: Vec<Stored>,
        /// There are no more.
        is_last: bool,
    },
}
wire_enum!(Message {
    0 => Greeting { present, states },
    1 => Transaction { commit },
    2 => Value { state },
    3 => Received { present, count, known, more },
    4 => Ceiling { states },
    5 => Ask { number, thread, request },
    6 => Answer { number, thread, reply },
    7 => Join,
    8 => Joined { has_begun },
    9 => Fetch { attempt },
    10 => Pieces { attempt, pieces, is_last },
    11 => Attend,
    12 => SessionPosition { applied },
    13 => Order { number, order },
    14 => Safe { number },
    15 => Load { question, keys },
    16 => Loaded { question, records },
    17 => Page { question, after, count },
    18 => Paged { question, records, is_last },
});

/// Where a session stands that chose a branch. The process that asks for it remembers that: its client does not go back
/// when the site restarts (Corrections 56).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thread {
    /// The state that it committed last.
    pub committed: Option<StateId>,
    /// The state that it read last.
    pub read: Option<StateId>,
}
wire_struct!(Thread { committed, read });

/// What a site has.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SiteState {
    /// Its states without children; it has everything that they see.
    pub heads: Vec<StateId>,
    /// Rises whenever the site has taken states out.
    pub time: u64,
}
wire_struct!(SiteState { heads, time });
