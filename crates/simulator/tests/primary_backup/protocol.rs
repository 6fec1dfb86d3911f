//! The smallest honest replicated protocol, and what happens to it when one of its duties is dropped: a primary that
//! executes transactions one after another, and a backup that follows its stream of effects.
//!
//! ```text
//!   coordinator --Run, again and again--> primary --persist--> gate --Durable--> itself: the claim
//!       ^--------------------Done-----------/  \------ gate --Effects (stream)--> backup
//! ```
//!
//! An entry is a transaction's effects under its number. Each effect is a record of its own; the journal's groups keep
//! them together. A backup that starts anew, or whose primary does, gets all entries again and takes those it lacks.

use datatypes::{Cell, Context, Effect, Operation, apply, prepare};
use protocol::{Claim, CommitStamp, Durability, Encode, Input, Now, Outputs, Protocol, Request, Step};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{
    Address, Error, ErrorCode, NodeId, PartitionId, ProcessId, Reader, RegionId, ReplyBuf, ReplySink,
    RequestId, Rng, SessionId, Slot, Timestamp, TransactionId, Wire, wire_enum, wire_struct,
};

pub const PRIMARY: ProcessId = ProcessId(0);
pub const BACKUP: ProcessId = ProcessId(1);
const RETRY: Duration = Duration::from_millis(50);

type Bytes = Box<[u8]>;

pub fn replica_at(process: ProcessId) -> Address {
    Address { process, slot: Slot::replica(anabranch_simulator::KEYSPACE, PartitionId(0)) }
}

/// A duty that can be dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Mistakes {
    /// The primary does not remember what it has executed.
    pub executes_again: bool,
    /// The primary answers from a copy that misses the newest entry.
    pub stale_reads: bool,
    /// An effect of a transaction is left out on the way to the backup.
    pub loses_effects: bool,
    /// Recovery forgets the newest entry.
    pub forgets_newest: bool,
}

#[derive(Clone, Debug, Default)]
pub struct Entry {
    id: TransactionId,
    session: SessionId,
    effects: Vec<(Bytes, Bytes)>,
    reply: ReplyBuf,
}
wire_struct!(Entry { id, session, effects, reply });

#[derive(Clone, Debug)]
pub enum Message {
    Run { id: TransactionId, session: SessionId, steps: Vec<(Bytes, Bytes, bool)> },
    Done { id: TransactionId, reply: ReplyBuf },
    Effects { number: u64, entry: Entry },
    Durable { number: u64 },
}
wire_enum!(Message {
    0 => Run { id, session, steps },
    1 => Done { id, reply },
    2 => Effects { number, entry },
    3 => Durable { number },
});

/// A part of an entry: its head, or one of its effects.
pub enum Record<'a> {
    Head { number: u64, entry: &'a Entry },
    Effect { number: u64, index: u64, key: &'a [u8], effect: &'a [u8] },
}

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Record::Head { number, entry } => {
                out.push(0);
                Wire::encode(number, out);
                Wire::encode(&Entry { effects: Vec::new(), ..(*entry).clone() }, out);
            }
            Record::Effect { number, index, key, effect } => {
                out.push(1);
                Wire::encode(number, out);
                Wire::encode(index, out);
                types::put_bytes(out, key);
                types::put_bytes(out, effect);
            }
        }
    }
}

/// A replica: the primary or the backup.
#[derive(Debug)]
pub struct Replica {
    node: NodeId,
    mistakes: Mistakes,
    entries: Vec<Entry>,
    executed: BTreeMap<TransactionId, usize>,
    /// How many entries are known to be durable, and claimed.
    durable: usize,
    cells: BTreeMap<Bytes, Cell>,
    /// The cells without the newest entry.
    previous: BTreeMap<Bytes, Cell>,
    pub claims: Vec<Claim>,
}

/// A coordinator.
#[derive(Debug)]
pub struct Coordinator {
    node: NodeId,
    /// Read-only transactions go to the backup.
    pub reads_at_backup: bool,
    next: u64,
    waiting: BTreeMap<TransactionId, (RequestId, Address, Message)>,
}

#[derive(Debug)]
pub enum Node {
    Replica(Replica),
    Coordinator(Coordinator),
}

impl Node {
    pub fn replica(node: NodeId, mistakes: Mistakes) -> Self {
        let (entries, executed, claims) = (Vec::new(), BTreeMap::new(), Vec::new());
        let (cells, previous) = (BTreeMap::new(), BTreeMap::new());
        Node::Replica(Replica { node, mistakes, entries, executed, durable: 0, cells, previous, claims })
    }

    pub fn coordinator(node: NodeId, reads_at_backup: bool) -> Self {
        Node::Coordinator(Coordinator { node, reads_at_backup, next: 0, waiting: BTreeMap::new() })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Timer {
    Retry,
}

impl Protocol for Node {
    type Message = Message;
    type Timer = Timer;
    type Record<'a> = Record<'a>;

    fn step(&mut self, now: Now, batch: &mut Vec<Input<'_, Self>>, _: &mut Rng, out: &mut Outputs<'_, Self>) {
        for input in batch.drain(..) {
            match self {
                Node::Replica(replica) => replica.on_input(input, out),
                Node::Coordinator(coordinator) => coordinator.on_input(now, input, out),
            }
        }
    }

    fn checkpoint(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        let Node::Replica(replica) = self else { return None };
        let number = cursor as usize;
        if let Some(entry) = replica.entries.get(number) {
            Wire::encode(&(cursor, entry.clone()), chunk);
        }
        (number + 1 < replica.entries.len()).then_some(cursor + 1)
    }
}

impl Replica {
    fn on_input(&mut self, input: Input<'_, Node>, out: &mut Outputs<'_, Node>) {
        match input {
            Input::Snapshot(bytes) => self.on_snapshot(bytes),
            Input::Recover(bytes) => self.on_record(bytes),
            Input::Recovered { .. } => self.on_recovered(),
            Input::PeerStarted { peer } if peer.process == BACKUP && self.node.process == PRIMARY => {
                (0..self.entries.len()).for_each(|number| self.stream(number, out));
            }
            Input::Message { from, message } => self.on_message(from, message, out),
            Input::PeerStarted { .. } | Input::Request { .. } | Input::Timer(_) => {}
        }
    }

    fn on_snapshot(&mut self, bytes: &[u8]) {
        if let Ok((number, entry)) = <(u64, Entry)>::decode(&mut Reader::new(bytes))
            && number as usize == self.entries.len()
        {
            self.entries.push(entry);
        }
    }

    fn on_record(&mut self, bytes: &[u8]) {
        let mut reader = Reader::new(bytes);
        let (Ok(tag), Ok(number)) = (reader.byte(), u64::decode(&mut reader)) else { return };
        let number = number as usize;
        match tag {
            0 if number == self.entries.len() => self.entries.extend(Entry::decode(&mut reader)),
            1 if number + 1 == self.entries.len() => {
                let effects = &mut self.entries[number].effects;
                let index = u64::decode(&mut reader);
                let (Ok(index), Ok(key), Ok(effect)) = (index, reader.bytes(), reader.bytes()) else {
                    return;
                };
                // What the checkpoint held already changes nothing.
                if index as usize == effects.len() {
                    effects.push((key.into(), effect.into()));
                }
            }
            _ => {}
        }
    }

    fn on_recovered(&mut self) {
        if self.mistakes.forgets_newest {
            self.entries.pop();
        }
        for entry in std::mem::take(&mut self.entries) {
            self.take(entry);
        }
        if self.node.process == PRIMARY {
            self.claims = (0..self.entries.len()).map(|number| self.claim(number)).collect();
            self.durable = self.entries.len();
        }
    }

    /// Applies an entry.
    fn take(&mut self, entry: Entry) {
        self.previous.clone_from(&self.cells);
        for (key, effect) in &entry.effects {
            if let Ok(effect) = Effect::decode(&mut Reader::new(effect)) {
                apply::<false>(self.cells.entry(key.clone()).or_default(), &effect);
            }
        }
        self.executed.insert(entry.id, self.entries.len());
        self.entries.push(entry);
    }

    fn persist(&self, number: usize, out: &mut Outputs<'_, Node>) {
        let (entry, number) = (&self.entries[number], number as u64);
        out.persist(&Record::Head { number, entry }, Durability::Synced);
        for (index, (key, effect)) in (0..).zip(&entry.effects) {
            out.persist(&Record::Effect { number, index, key, effect }, Durability::Synced);
        }
    }

    fn stream(&self, number: usize, out: &mut Outputs<'_, Node>) {
        let mut entry = self.entries[number].clone();
        if self.mistakes.loses_effects && entry.effects.len() > 1 {
            entry.effects.pop();
        }
        out.stream(replica_at(BACKUP), Message::Effects { number: number as u64, entry });
    }

    fn claim(&self, number: usize) -> Claim {
        let entry = &self.entries[number];
        let at = Timestamp(number as u64 + 1);
        Claim {
            session: entry.session,
            transaction: entry.id,
            commit: Some(CommitStamp {
                at,
                depends_on: Timestamp::ZERO,
                region: RegionId(0),
                parts: types::RegionSet::default(),
            }),
            snapshot: None,
            effects: entry.effects.clone(),
            vector: None,
            thread: None,
            requests: Vec::new(),
            branch: None,
        }
    }

    fn on_message(&mut self, from: NodeId, message: Message, out: &mut Outputs<'_, Node>) {
        match message {
            Message::Run { id, session, steps } => self.on_run(from.address(), id, session, &steps, out),
            Message::Effects { number, entry } if number as usize == self.entries.len() => {
                self.take(entry);
                self.persist(number as usize, out);
            }
            // The log keeps the order, so that everything before is durable too.
            Message::Durable { number } if from == self.node && number as usize >= self.durable => {
                let news = self.durable..number as usize + 1;
                self.durable = news.end;
                self.claims.extend(news.map(|number| self.claim(number)).collect::<Vec<_>>());
            }
            _ => {}
        }
    }

    fn on_run(
        &mut self,
        from: Address,
        id: TransactionId,
        session: SessionId,
        steps: &[(Bytes, Bytes, bool)],
        out: &mut Outputs<'_, Node>,
    ) {
        if let Some(number) = self.executed.get(&id).copied().filter(|_| !self.mistakes.executes_again) {
            // The claim comes before the reply: the coordinator repeats what is not known to be durable.
            if number < self.durable {
                out.send(from, Message::Done { id, reply: self.entries[number].reply.clone() });
            }
            return;
        }
        let entry = self.execute(id, session, steps);
        let writes = steps.iter().any(|(_, operation, _)| {
            Operation::decode(&mut Reader::new(operation)).is_ok_and(|operation| !operation.is_read())
        });
        if writes {
            let number = self.entries.len();
            self.take(entry);
            self.persist(number, out);
            self.stream(number, out);
            out.send(self.node.address(), Message::Durable { number: number as u64 });
        } else {
            out.send(from, Message::Done { id, reply: entry.reply });
        }
    }

    fn execute(&self, id: TransactionId, session: SessionId, steps: &[(Bytes, Bytes, bool)]) -> Entry {
        let mut entry = Entry { id, session, ..Entry::default() };
        let mut cells = if self.mistakes.stale_reads { self.previous.clone() } else { self.cells.clone() };
        let mut random = Rng::with_seed(0);
        for (key, operation, blind) in steps {
            let Ok(operation) = Operation::decode(&mut Reader::new(operation)) else { continue };
            let cell = cells.entry(key.clone()).or_default();
            let mut unseen = ReplyBuf::new();
            let sink = if *blind { &mut unseen } else { &mut entry.reply };
            let mut context = Context { now_millis: 0, random: &mut random, site: None };
            if let Some(effect) = prepare(cell, &operation, &mut context, sink) {
                apply::<false>(cell, &effect);
                let mut bytes = Vec::new();
                effect.encode(&mut bytes);
                entry.effects.push((key.clone(), bytes.into()));
            }
            if *blind {
                entry.reply.simple("OK");
            }
        }
        entry
    }
}

impl Coordinator {
    fn on_input(&mut self, now: Now, input: Input<'_, Node>, out: &mut Outputs<'_, Node>) {
        match input {
            Input::Request { id, request } => self.on_request(now, id, &request, out),
            Input::Message { message: Message::Done { id, reply }, .. } => {
                if let Some((request, ..)) = self.waiting.remove(&id) {
                    reply.replay(out.reply(request));
                }
            }
            Input::Timer(Timer::Retry) => {
                for (_, to, message) in self.waiting.values() {
                    out.send(*to, message.clone());
                }
                out.arm(Timer::Retry, now.instant + RETRY);
            }
            _ => {}
        }
    }

    fn on_request(
        &mut self,
        now: Now,
        request: RequestId,
        requested: &Request<'_>,
        out: &mut Outputs<'_, Node>,
    ) {
        let single;
        let steps: &[Step<'_>] = match requested {
            Request::One { operation, .. } => {
                single = [Step::Key(operation.clone())];
                &single
            }
            Request::Many { steps, .. } => steps,
            Request::Close { .. } => return,
            _ => {
                let message = "interactive transactions are not served";
                return out.reply(request).error(&Error::new(ErrorCode::Unavailable, message));
            }
        };
        let encoded = |operation: &Operation<'_>| {
            let mut bytes = Vec::new();
            operation.encode(&mut bytes);
            bytes.into_boxed_slice()
        };
        let keyed =
            steps.iter().filter_map(|step| if let Step::Key(keyed) = step { Some(keyed) } else { None });
        let read_only = keyed.clone().all(|keyed| keyed.operation.is_read());
        let steps = keyed.map(|keyed| (keyed.key.into(), encoded(&keyed.operation), keyed.blind)).collect();
        self.next += 1;
        let NodeId { process, incarnation, .. } = self.node;
        let id = TransactionId { process, incarnation, number: self.next };
        let to = replica_at(if self.reads_at_backup && read_only { BACKUP } else { PRIMARY });
        let message = Message::Run { id, session: requested.session(), steps };
        out.send(to, message.clone());
        self.waiting.insert(id, (request, to, message));
        out.arm(Timer::Retry, now.instant + RETRY);
    }
}

/// The open requests, in their order, so that tests can look at a coordinator from outside.
pub fn unanswered(node: &Node) -> VecDeque<TransactionId> {
    match node {
        Node::Coordinator(coordinator) => coordinator.waiting.keys().copied().collect(),
        Node::Replica(_) => VecDeque::new(),
    }
}
