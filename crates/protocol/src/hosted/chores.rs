//! What a process does to a keyspace by itself: it asks the keyspace's coordinator, as a client would, to delete what has
//! expired and what a cache gives up. So whatever goes, goes everywhere, in one order with everything else (Corrections 69,
//! 81).

use super::Environment;
use super::hosting::Hosting;
use super::life::Turn;
use super::nodes::Nodes;
use crate::contract::Replies;
use crate::request::{KeyedOperation, Request};
use datatypes::{Operation, key};
use std::collections::BTreeSet;
use std::time::Duration;
use types::{HashSeed, Instant, ReplyBuf, ReplySink, RequestId, SessionId};

/// How often is looked for something to do.
const EVERY: Duration = Duration::from_millis(100);
/// How soon after what was to do is done.
const SOON: Duration = Duration::from_millis(2);
/// Numbers of requests from here on are chores; no gateway gives them.
const FIRST: u64 = u64::MAX << 48;
/// No client's session.
const SESSION: SessionId = SessionId(0);

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Chore {
    /// This key has expired: whoever looks at it deletes it.
    Expire(Box<[u8]>),
    /// This key of a cache goes.
    Evict(Box<[u8]>),
}

/// What is to do, and under way.
#[derive(Debug, Default)]
pub(super) struct Chores {
    next: Instant,
    given: u64,
    /// Requests that are not answered.
    asked: BTreeSet<u64>,
    pub(super) evicted: u64,
}

impl Chores {
    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.is_empty().then_some(self.next)
    }

    /// Asks for what is to do, if it is time and all that was asked before is done.
    pub(super) fn run<H: Hosting>(
        &mut self,
        hosting: &H,
        nodes: &mut Nodes<H::Protocol>,
        environment: &mut dyn Environment,
        turn: &mut Turn<'_>,
    ) {
        if !self.asked.is_empty() || turn.now.instant < self.next {
            return;
        }
        self.next = turn.now.instant + EVERY;
        // What would be written could not be logged.
        let wanted = match environment.is_suspended() {
            true => Vec::new(),
            false => hosting.chores(nodes, turn),
        };
        if wanted.is_empty() {
            return;
        }
        self.next = turn.now.instant + SOON;
        let seed = hosting.seed();
        let mut requests: Vec<_> = wanted.iter().map(|chore| self.request(chore, seed)).collect();
        let mut heard = Heard::new(self, turn.replies);
        let mut turn = Turn { now: turn.now, random: turn.random, replies: &mut heard };
        nodes.submit(&mut requests, environment, &mut turn);
    }

    fn request<'c>(&mut self, chore: &'c Chore, seed: HashSeed) -> (RequestId, Request<'c>) {
        let (key, operation) = match chore {
            Chore::Expire(key) => (key, key::Operation::Exists),
            Chore::Evict(key) => {
                self.evicted += 1;
                (key, key::Operation::Delete)
            }
        };
        self.given += 1;
        let id = FIRST | (self.given & !FIRST);
        self.asked.insert(id);
        let operation =
            KeyedOperation { key, hash: seed.hash(key), operation: Operation::Key(operation), blind: false };
        (RequestId(id), Request::One { session: SESSION, operation })
    }
}

/// Takes the replies to chores, which nobody reads, and passes on all others.
pub(super) struct Heard<'h> {
    asked: &'h mut BTreeSet<u64>,
    unread: ReplyBuf,
    others: &'h mut dyn Replies,
}

impl<'h> Heard<'h> {
    pub(super) fn new(chores: &'h mut Chores, others: &'h mut dyn Replies) -> Self {
        Heard { asked: &mut chores.asked, unread: ReplyBuf::new(), others }
    }
}

impl Replies for Heard<'_> {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        if id.0 < FIRST {
            return self.others.reply(id);
        }
        self.asked.remove(&id.0);
        self.unread.clear();
        &mut self.unread
    }
}
