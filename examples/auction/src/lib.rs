//! An auction whose bids commute: any number of bidders bid at once, and none of their transactions conflicts.
//!
//! The highest bid wins, of equal ones the one of the lesser name; so whatever order they come in, the winner is the same
//! one (Claret's RUBiS, section 6). A bid replies OK and not whether it leads, because then it would see the others. Whoever
//! asks for the leader has seen a bid, and conflicts only with a better one. Closing conflicts with bids, as it has to.
//!
//! Where transactions lock, bids share the lock, with each other and with whoever asks whether the auction is closed. Bids
//! of clients of one process that come at the same time combine.
//!
//! Build: `cargo build -p auction --target wasm32-unknown-unknown --profile module`

use usertypes::{Answer, Argument, Call, Codec, Input, Kind, LockMode, Operation, Reply, UserType, export};

/// The type.
#[derive(Debug)]
pub struct Auction;

export!(Auction);

/// What somebody offers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bid {
    /// In the smallest coin.
    pub amount: i64,
    /// Who.
    pub bidder: Vec<u8>,
}

impl Bid {
    /// True if it wins over another.
    fn beats(&self, other: &Bid) -> bool {
        (self.amount, &other.bidder) > (other.amount, &self.bidder)
    }
}

impl Codec for Bid {
    fn encode(&self, out: &mut Vec<u8>) {
        self.amount.encode(out);
        self.bidder.encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(Bid { amount: Codec::decode(input)?, bidder: Codec::decode(input)? })
    }
}

/// What a key holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct State {
    /// How many bids there were.
    pub bids: u64,
    /// The best of them.
    pub best: Option<Bid>,
    /// No more bids are taken.
    pub closed: bool,
}

impl Codec for State {
    fn encode(&self, out: &mut Vec<u8>) {
        self.bids.encode(out);
        self.best.encode(out);
        self.closed.encode(out);
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        Some(State {
            bids: Codec::decode(input)?,
            best: Codec::decode(input)?,
            closed: Codec::decode(input)?,
        })
    }
}

/// What an operation commits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// A bid, which counts if the auction is open.
    Bid(Bid),
    /// The end.
    Close,
}

impl Codec for Effect {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Effect::Bid(bid) => (0u8, bid.clone()).encode(out),
            Effect::Close => out.push(1),
        }
    }

    fn decode(input: &mut Input<'_>) -> Option<Self> {
        match u8::decode(input)? {
            0 => Bid::decode(input).map(Effect::Bid),
            1 => Some(Effect::Close),
            _ => None,
        }
    }
}

impl UserType for Auction {
    type State = State;
    type Effect = Effect;

    const OPERATIONS: &'static [Operation] = &[
        Operation::writes("bid", &[("bidder", Kind::Bytes, &["ann", "bob"]), ("amount", Kind::Integer, &[])])
            .in_mode("bid"),
        Operation::writes("close", &[]),
        Operation::reads("leader", &[]),
        Operation::reads("bids", &[]),
        Operation::reads("closed", &[]).in_mode("ask"),
    ];
    const MODES: &'static [LockMode] =
        &[LockMode::new("bid", &["bid", "ask"]), LockMode::new("ask", &["ask"])];
    const COMBINES: bool = true;

    fn execute(state: &State, call: &Call<'_>) -> Answer<Effect> {
        match (call.operation, call.arguments) {
            ("bid", _) if state.closed => Answer::refused("the auction is closed"),
            ("bid", [Argument::Bytes(_), Argument::Integer(..=0)]) => Answer::refused("a bid is 1 or more"),
            ("bid", [Argument::Bytes(bidder), Argument::Integer(amount)]) => {
                Answer::with(Reply::Ok, Effect::Bid(Bid { amount: *amount, bidder: bidder.clone() }))
            }
            ("close", _) if state.closed => Answer::only(Reply::Integer(0)),
            ("close", _) => Answer::with(Reply::Integer(1), Effect::Close),
            ("leader", _) => Answer::only(state.best.as_ref().map_or(Reply::Null, leader)),
            ("bids", _) => Answer::only(Reply::Integer(state.bids as i64)),
            ("closed", _) => Answer::only(Reply::Integer(i64::from(state.closed))),
            _ => Answer::refused("there is no such operation"),
        }
    }

    fn apply(state: &mut State, effect: &Effect) {
        match effect {
            Effect::Bid(bid) if !state.closed => {
                state.bids += 1;
                if state.best.as_ref().is_none_or(|best| bid.beats(best)) {
                    state.best = Some(bid.clone());
                }
            }
            Effect::Bid(_) => {}
            Effect::Close => state.closed = true,
        }
    }

    fn commute(a: &Effect, b: &Effect) -> bool {
        matches!((a, b), (Effect::Bid(_), Effect::Bid(_)) | (Effect::Close, Effect::Close))
    }

    fn unchanged(call: &Call<'_>, reply: Option<&Reply>, effect: &Effect) -> bool {
        match (call.operation, effect) {
            ("bid" | "close" | "closed", Effect::Bid(_)) | ("leader" | "bids", Effect::Close) => true,
            // It was closed already.
            ("close" | "closed", Effect::Close) => {
                *reply.unwrap_or(&Reply::Null) == Reply::Integer(i64::from(call.operation == "closed"))
            }
            ("leader", Effect::Bid(bid)) => reply.and_then(best).is_some_and(|best| !bid.beats(&best)),
            _ => false,
        }
    }

    fn blind(call: &Call<'_>) -> Option<Effect> {
        match (call.operation, call.arguments) {
            ("bid", [Argument::Bytes(bidder), Argument::Integer(amount @ 1..)]) => {
                Some(Effect::Bid(Bid { amount: *amount, bidder: bidder.clone() }))
            }
            ("close", _) => Some(Effect::Close),
            _ => None,
        }
    }

    fn combine(held: &Call<'_>, _: &Reply, next: &Call<'_>) -> Option<Answer<Effect>> {
        match (held.operation, next.operation) {
            // A bid was taken, so the auction is open.
            ("bid", "bid") => Self::blind(next).map(|bid| Answer::with(Reply::Ok, bid)),
            ("close", "close") => Some(Answer::only(Reply::Integer(0))),
            _ => None,
        }
    }
}

fn leader(best: &Bid) -> Reply {
    Reply::Array(vec![Reply::Bytes(best.bidder.clone()), Reply::Integer(best.amount)])
}

/// The bid in a reply.
fn best(reply: &Reply) -> Option<Bid> {
    match reply {
        Reply::Array(parts) => match parts.as_slice() {
            [Reply::Bytes(bidder), Reply::Integer(amount)] => {
                Some(Bid { amount: *amount, bidder: bidder.clone() })
            }
            _ => None,
        },
        _ => None,
    }
}
