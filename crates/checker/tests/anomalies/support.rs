//! Builds histories by hand.

use anabranch_checker::{
    Branch, Bytes, Claim, Commit, Constraint, Constraints, Key, Outcome, Snapshot, Step, Thread, Transaction,
    describe,
};
use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::stream::{NewId, StreamId};
use datatypes::{Effect, Items, Operation, key, list, register, set, stream};

/// A history under construction.
#[derive(Default)]
pub struct History(pub Vec<Transaction>);

pub const GET: Operation<'static> = Operation::Register(register::Operation::Get);
pub const MEMBERS: Operation<'static> = Operation::Set(set::Operation::Members);

pub fn write(value: &str) -> Operation<'_> {
    let (condition, deadline, reply) = (Condition::Always, Deadline::Clear, SetReply::Status);
    Operation::Register(register::Operation::Set { value: value.as_bytes(), deadline, condition, reply })
}

pub fn write_if_absent(value: &str) -> Operation<'_> {
    let (condition, deadline, reply) = (Condition::IfAbsent, Deadline::Clear, SetReply::Status);
    Operation::Register(register::Operation::Set { value: value.as_bytes(), deadline, condition, reply })
}

pub fn increment(by: i64) -> Operation<'static> {
    Operation::Register(register::Operation::Increment { by })
}

pub fn add(member: &str) -> Operation<'_> {
    Operation::Set(set::Operation::Add { members: Items::one(member.as_bytes()) })
}

pub fn push(value: &str) -> Operation<'_> {
    let values = Items::one(value.as_bytes());
    Operation::List(list::Operation::Push { end: list::End::Back, values, only_if_exists: false })
}

/// Adds to a stream.
pub fn append(value: &str) -> Operation<'_> {
    let items = Items::two(b"f", value.as_bytes());
    Operation::Stream(stream::Operation::Add { id: NewId::Next, items, only_if_exists: false, trim: None })
}

pub const ENTRIES: Operation<'static> = {
    let (from, to) = (StreamId::ZERO, StreamId::MAX);
    Operation::Stream(stream::Operation::Range { from, to, count: None, reverse: false })
};
pub const ALL_ELEMENTS: Operation<'static> = Operation::List(list::Operation::Range { start: 0, stop: -1 });
pub const POP: Operation<'static> =
    Operation::List(list::Operation::Pop { end: list::End::Back, count: None });
pub const DELETE: Operation<'static> = Operation::Key(key::Operation::Delete);
pub const EXISTS: Operation<'static> = Operation::Key(key::Operation::Exists);

impl History {
    /// The same without claims.
    pub fn unclaimed(&self) -> Vec<Transaction> {
        self.0.iter().cloned().map(|transaction| Transaction { claim: None, ..transaction }).collect()
    }

    /// A committed transaction of a session between two times; numbered from 1.
    pub fn transaction(&mut self, session: u64, invoked: u64, responded: u64) -> Builder<'_> {
        let number = self.0.len() as u64 + 1;
        self.0.push(Transaction {
            number,
            session,
            invoked,
            responded: Some(responded),
            outcome: Outcome::Committed,
            steps: Vec::new(),
            claim: Some(Claim {
                transaction: [1, 1, number],
                commit: None,
                snapshot: None,
                effects: Vec::new(),
                vector: None,
                thread: None,
                branch: None,
            }),
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: false,
        });
        Builder(self.0.last_mut().expect("just pushed"))
    }
}

/// The transaction being built.
pub struct Builder<'h>(&'h mut Transaction);

impl Builder<'_> {
    /// An operation whose reply the client saw, or none for a blind one. Claims its effect on an absent state.
    pub fn step(self, key: &str, operation: Operation<'_>, reply: Option<&str>) -> Self {
        if let Some(effect) = effect_of(&operation) {
            let mut bytes = Vec::new();
            effect.encode(&mut bytes);
            let claim = self.0.claim.as_mut().expect("the builder made a claim");
            claim.effects.push((Key(key.into()), Bytes(bytes)));
        }
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        self.0.steps.push(Step {
            key: Key(key.into()),
            operation: Bytes(bytes),
            text: describe(&operation),
            blind: reply.is_none(),
            reply: reply.map(str::to_owned),
            state: None,
        });
        self
    }

    /// Claims a place.
    pub fn at(self, at: u64) -> Self {
        self.committed(0, at, 0)
    }

    /// Claims a place in a region, with Wren's dependency time.
    pub fn committed(self, region: u16, at: u64, depends_on: u64) -> Self {
        self.0.claim.as_mut().expect("the builder made a claim").commit =
            Some(Commit { at, depends_on, region });
        self
    }

    /// Claims a snapshot.
    pub fn saw(self, region: u16, local: u64, remote: u64) -> Self {
        let claim = self.0.claim.as_mut().expect("the builder made a claim");
        claim.snapshot = Some(Snapshot { region, local, remote });
        self
    }

    /// Belongs to a thread that sessions share: it saw so many of what that took up, and was taken up at a place if it wrote.
    pub fn shares(self, seen: u64, place: Option<u64>) -> Self {
        self.0.thread = Some(1);
        let claim = self.0.claim.as_mut().expect("the builder made a claim");
        claim.thread = Some(Thread { seen, place, beyond: Vec::new() });
        self
    }

    /// Claims to have observed the transaction of this number, too.
    pub fn beyond(self, number: u64) -> Self {
        let thread = self.0.claim.as_mut().and_then(|claim| claim.thread.as_mut());
        thread.expect("it shares a thread").beyond.push([1, 1, number]);
        self
    }

    /// Claims to have read one state, and to have made another on top of it or of others.
    pub fn states(self, read: &[&str], made: Option<(&str, &[&str])>) -> Self {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        self.0.claim.as_mut().expect("the builder made a claim").branch = Some(Branch {
            read: names(read),
            state: made.map(|(state, _)| state.to_owned()),
            parents: made.map_or_else(Vec::new, |(_, parents)| names(parents)),
            handled: false,
        });
        self
    }

    /// Demanded this of the state that it reads from, and of the one that it commits below.
    pub fn demands(self, begin: Option<Constraint>, end: Option<Constraint>) -> Self {
        self.0.constraints = Some(Constraints { begin, end });
        self
    }

    /// The last step read this parent of a merge.
    pub fn of_state(self, state: &str) -> Self {
        self.0.steps.last_mut().expect("a step was added").state = Some(state.to_owned());
        self
    }

    /// The read of a system at rest.
    pub fn at_rest(self) {
        self.0.at_rest = true;
    }

    /// The client never learned the outcome.
    pub fn unknown(self) {
        self.0.outcome = Outcome::Unknown;
        self.0.responded = None;
    }

    /// The client got an error: nothing happened.
    pub fn aborted(self) {
        self.0.outcome = Outcome::Aborted;
    }

    /// No client requested it: it claims effects, and has no steps.
    pub fn unrequested(self) -> Self {
        self.0.steps.clear();
        self
    }

    /// Forgets the claimed effects.
    pub fn without_effects(self) -> Self {
        self.0.claim.as_mut().expect("the builder made a claim").effects.clear();
        self
    }
}

fn effect_of<'a>(operation: &Operation<'a>) -> Option<Effect<'a>> {
    match operation {
        Operation::Register(register::Operation::Set { value, deadline, .. }) => {
            Some(Effect::Register(register::Effect::Set { value, deadline: *deadline }))
        }
        Operation::Register(register::Operation::Increment { by }) => {
            Some(Effect::Register(register::Effect::Add { by: *by }))
        }
        Operation::Set(set::Operation::Add { members }) => {
            Some(Effect::Set(set::Effect::Add { members: members.clone() }))
        }
        Operation::List(list::Operation::Push { end, values, .. }) => {
            Some(Effect::List(list::Effect::Push { end: *end, values: values.clone() }))
        }
        Operation::Key(key::Operation::Delete) => Some(Effect::Key(key::Effect::Delete)),
        _ => None,
    }
}
