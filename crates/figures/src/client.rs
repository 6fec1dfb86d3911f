//! A closed-loop client: runs one transaction after another, step by step, as the paper's clients do.

use bench::transactions::{Keys, PlannedStep, Workload};
use datatypes::{Operation, register};
use protocol::{KeyedOperation, Request, Step};
use types::{HashSeed, Rng, SessionId};

/// The length of the values, in bytes.
const VALUE: [u8; 64] = [7; 64];
/// After so many failed tries the wait is drawn from the widest window.
const DOUBLINGS: u32 = 6;

/// Which transactions are run.
#[derive(Clone, Debug)]
pub enum Load {
    /// Transactions of this mix, on these keys.
    Mix(Workload, Keys),
    /// Only this kind of a mix.
    Only(&'static str, Workload, Keys),
    /// Reads and writes one key of each of so many shards.
    Shards(u16, Keys),
}

impl Load {
    fn draw(&self, shard_of: &dyn Fn(u32) -> u16, random: &mut Rng) -> PlannedStep {
        match self {
            Load::Mix(workload, keys) => workload.draw(keys, 0, random),
            Load::Only(kind, workload, keys) => loop {
                let planned = workload.draw(keys, 0, random);
                if planned.kind == *kind {
                    return planned;
                }
            },
            Load::Shards(count, keys) => {
                let mut drawn: Vec<u32> = Vec::new();
                while drawn.len() < usize::from(*count) {
                    let key = keys.draw(random);
                    if drawn.iter().all(|other| shard_of(*other) != shard_of(key)) {
                        drawn.push(key);
                    }
                }
                PlannedStep { kind: "rmw", reads: drawn.clone(), writes: drawn }
            }
        }
    }
}

/// A client and its transaction.
#[derive(Debug)]
pub(crate) struct Client {
    session: SessionId,
    planned: PlannedStep,
    /// How many of its requests have been sent: the first begins, the last commits.
    sent: usize,
    /// When the first try began.
    pub began: u64,
    pub tries: u32,
    /// Far messages on the way of what was waited for, one after the other.
    pub hops: u32,
    random: Rng,
}

/// The name of a key.
pub(crate) fn key_name(key: u32) -> [u8; 5] {
    let [a, b, c, d] = key.to_be_bytes();
    [b'k', a, b, c, d]
}

impl Client {
    pub fn new(number: u64, random: Rng) -> Self {
        let planned = PlannedStep { kind: "", reads: Vec::new(), writes: Vec::new() };
        Client { session: SessionId(number), planned, sent: 0, began: 0, tries: 0, hops: 0, random }
    }

    /// Begins the next transaction.
    pub fn plan(&mut self, now: u64, load: &Load, shard_of: &dyn Fn(u32) -> u16) {
        self.planned = load.draw(shard_of, &mut self.random);
        (self.began, self.tries, self.hops) = (now, 0, 0);
        self.restart();
    }

    /// Begins the same one again.
    pub fn restart(&mut self) {
        (self.sent, self.tries) = (0, self.tries + 1);
    }

    /// True if the request under way is the last one.
    pub fn is_committing(&self) -> bool {
        self.sent == self.planned.reads.len() + self.planned.writes.len() + 2
    }

    /// How long to wait before the next try, in microseconds: the more conflicts, the longer.
    pub fn backoff(&mut self, window: u64) -> u64 {
        self.random.u64(0..=window << self.tries.min(DOUBLINGS))
    }

    /// Calls `send` with the next request.
    pub fn ask(&mut self, seed: HashSeed, send: impl FnOnce(Request<'_>)) {
        let session = self.session;
        let PlannedStep { reads, writes, .. } = &self.planned;
        let step = self.sent;
        self.sent += 1;
        if step == 0 {
            return send(Request::Begin { session, read_only: writes.is_empty(), watched: false });
        }
        let read = reads.get(step - 1);
        let Some(key) = read.or_else(|| writes.get(step - 1 - reads.len())) else {
            return send(Request::Commit { session });
        };
        let operation = match read {
            Some(_) => register::Operation::Get,
            None => register::Operation::Set {
                value: &VALUE,
                deadline: register::Deadline::Clear,
                condition: register::Condition::Always,
                reply: register::SetReply::Status,
            },
        };
        let (name, operation) = (key_name(*key), Operation::Register(operation));
        let keyed = KeyedOperation { key: &name, hash: seed.hash(&name), operation, blind: false };
        send(Request::Operate { session, steps: &[Step::Key(keyed)] });
    }
}
