//! What a process does to a keyspace by itself: it asks the keyspace's coordinator, as a client would, to delete what has
//! expired and what a cache gives up. So whatever goes, goes everywhere, in one order with everything else (Corrections 69,
//! 81).

use super::Environment;
use super::hosting::Hosting;
use super::life::Turn;
use super::nodes::Nodes;
use crate::contract::Replies;
use crate::gate::Gate;
use crate::request::{KeyedOperation, Request};
use datatypes::{Operation, key};
use parking_lot::Mutex;
use std::collections::BTreeSet;
use std::time::Duration;
use types::{HashSeed, Instant, ReplyBuf, ReplySink, RequestId, SessionId};

/// How often is looked for something to do.
const EVERY: Duration = Duration::from_millis(100);
/// How soon after what was to do is done.
const SOON: Duration = Duration::from_millis(2);
/// Numbers of requests from here on are maintenance; no gateway gives them.
const FIRST: u64 = u64::MAX << 48;
/// No client's session.
const SESSION: SessionId = SessionId(0);

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MaintenanceTask {
    /// This key has expired: the next command that touches it deletes it.
    Expire(Box<[u8]>),
    /// This key of a cache goes.
    Evict(Box<[u8]>),
}

/// What is to do, and under way.
#[derive(Debug, Default)]
pub(super) struct Maintenance {
    next: Instant,
    given: u64,
    /// Requests that are not answered.
    pending: BTreeSet<u64>,
    pub(super) evicted: u64,
}

impl Maintenance {
    /// When to look again.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.pending.is_empty().then_some(self.next)
    }

    fn request<'c>(&mut self, task: &'c MaintenanceTask, seed: HashSeed) -> (RequestId, Request<'c>) {
        let (key, operation) = match task {
            MaintenanceTask::Expire(key) => (key, key::Operation::Exists),
            MaintenanceTask::Evict(key) => {
                self.evicted += 1;
                (key, key::Operation::Delete)
            }
        };
        self.given += 1;
        let id = FIRST | (self.given & !FIRST);
        self.pending.insert(id);
        let operation =
            KeyedOperation { key, hash: seed.hash(key), operation: Operation::Key(operation), blind: false };
        (RequestId(id), Request::One { session: SESSION, operation })
    }
}

/// Submits maintenance requests, if it is time and the earlier ones are done. Returns what replies wait for.
pub(super) fn run<H: Hosting>(
    maintenance: &Mutex<Maintenance>,
    hosting: &H,
    nodes: &Nodes<H::Protocol>,
    environment: &mut dyn Environment,
    turn: &mut Turn<'_>,
) -> Gate {
    {
        let mut held = maintenance.lock();
        if !held.pending.is_empty() || turn.now.instant < held.next {
            return Gate::OPEN;
        }
        held.next = turn.now.instant + EVERY;
    }
    let mut wanted = Vec::new();
    // While the log refuses records, what would be written could not be logged.
    if !environment.is_suspended() {
        nodes.look(|node| hosting.add_maintenance(node, turn, &mut wanted));
    }
    if wanted.is_empty() {
        return Gate::OPEN;
    }
    let seed = hosting.seed();
    let mut held = maintenance.lock();
    held.next = turn.now.instant + SOON;
    let mut requests: Vec<_> = wanted.iter().map(|task| held.request(task, seed)).collect();
    drop(held);
    nodes.submit(&mut requests, environment, turn)
}

/// Discards the replies to maintenance requests, and forwards all others.
pub(super) struct MaintenanceReplies<'h> {
    maintenance: &'h Mutex<Maintenance>,
    unread: ReplyBuf,
    others: &'h mut dyn Replies,
}

impl<'h> MaintenanceReplies<'h> {
    pub(super) fn new(maintenance: &'h Mutex<Maintenance>, others: &'h mut dyn Replies) -> Self {
        MaintenanceReplies { maintenance, unread: ReplyBuf::new(), others }
    }
}

impl Replies for MaintenanceReplies<'_> {
    fn reply(&mut self, id: RequestId) -> &mut dyn ReplySink {
        if id.0 < FIRST {
            return self.others.reply(id);
        }
        self.maintenance.lock().pending.remove(&id.0);
        self.unread.clear();
        &mut self.unread
    }
}
