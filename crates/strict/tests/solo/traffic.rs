//! Random requests.

use crate::solo::strategies::{KINDS, operation, operation_of};
use crate::solo::world::{World, blind, keyed, shown};
use datatypes::Operation;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{KeyedOperation, Request, Step};
use types::SessionId;

/// One key for each type, and one for anything.
pub const KEYS: [&[u8]; 6] =
    [b"register", b"dict", b"set", b"scores", b"list", b"a key that no record holds inside itself"];

/// How many sessions run interactive transactions.
const SESSIONS: u64 = 3;

/// An operation on one of [`KEYS`].
#[derive(Clone, Debug)]
pub struct Call {
    pub key: usize,
    pub operation: Operation<'static>,
    pub blind: bool,
}

impl Call {
    pub fn keyed(&self) -> KeyedOperation<'static> {
        let keyed = keyed(KEYS[self.key], self.operation.clone());
        if self.blind { blind(keyed) } else { keyed }
    }
}

#[derive(Clone, Debug)]
pub enum Traffic {
    One(Call),
    Many(Vec<Call>),
    /// A transaction on lent partitions, whose effects stay or are taken back.
    Lent {
        calls: Vec<Call>,
        stays: bool,
    },
    Flush,
    Begin {
        session: u64,
    },
    Within {
        session: u64,
        call: Call,
    },
    /// KEYS in a transaction.
    Keys {
        session: u64,
    },
    /// FLUSHDB in a transaction.
    FlushWithin {
        session: u64,
    },
    Commit {
        session: u64,
    },
    Abort {
        session: u64,
    },
    /// Time passes, in steps of housekeeping.
    Idle {
        rounds: usize,
    },
}

pub fn call() -> impl Strategy<Value = Call> {
    (0..KEYS.len(), prop::bool::weighted(0.2)).prop_flat_map(|(key, blind)| {
        let operation = match KINDS.get(key) {
            Some(kind) => prop_oneof![9 => operation_of(*kind), 2 => operation()].boxed(),
            None => operation().boxed(),
        };
        operation.prop_map(move |operation| Call { key, operation, blind })
    })
}

pub fn traffic() -> impl Strategy<Value = Traffic> {
    let session = || 1..=SESSIONS;
    prop_oneof![
        20 => call().prop_map(Traffic::One),
        4 => vec(call(), 1..5).prop_map(Traffic::Many),
        5 => (vec(call(), 1..5), any::<bool>()).prop_map(|(calls, stays)| Traffic::Lent { calls, stays }),
        1 => Just(Traffic::Flush),
        3 => session().prop_map(|session| Traffic::Begin { session }),
        10 => (session(), call()).prop_map(|(session, call)| Traffic::Within { session, call }),
        2 => session().prop_map(|session| Traffic::Keys { session }),
        1 => session().prop_map(|session| Traffic::FlushWithin { session }),
        3 => session().prop_map(|session| Traffic::Commit { session }),
        1 => session().prop_map(|session| Traffic::Abort { session }),
        1 => (1..6usize).prop_map(|rounds| Traffic::Idle { rounds }),
    ]
}

/// The reply as text, where there is one.
pub fn perform(world: &mut World, traffic: &Traffic) -> String {
    match traffic {
        Traffic::One(call) => world.one(call.keyed()),
        Traffic::Many(calls) => {
            let steps: Vec<Step<'_>> = calls.iter().map(|call| Step::Key(call.keyed())).collect();
            world.many(0, false, &steps)
        }
        Traffic::Lent { calls, stays } => {
            let (before, records) = (world.state(), world.records());
            let operations: Vec<KeyedOperation<'_>> = calls.iter().map(Call::keyed).collect();
            let reply = world.lent(&operations, *stays);
            if !stays {
                assert_eq!((world.state(), world.records()), (before, records), "it never happened");
            }
            reply
        }
        Traffic::Flush => world.many(0, false, &[Step::Flush]),
        Traffic::Begin { session } => {
            let session = SessionId(*session);
            shown(&world.ask(Request::Begin { session, read_only: false, watched: false }))
        }
        Traffic::Within { session, call } => world.within(*session, call.keyed()),
        Traffic::Keys { session } => world.operate(*session, &[Step::Keys]),
        Traffic::FlushWithin { session } => world.operate(*session, &[Step::Flush]),
        Traffic::Commit { session } => world.commit(*session),
        Traffic::Abort { session } => {
            world.abort(*session);
            String::new()
        }
        Traffic::Idle { rounds } => {
            world.idle(*rounds);
            String::new()
        }
    }
}
