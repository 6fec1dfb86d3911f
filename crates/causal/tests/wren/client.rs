//! Clients: they ask for operations, and have replies as text.

use super::world::{SEED, World};
use checker::render;
use datatypes::{Operation, register};
use protocol::{KeyedOperation, Request, Step};
use types::{Address, RequestId, SessionId};

pub const GET: Operation<'static> = Operation::Register(register::Operation::Get);

pub fn increment(by: i64) -> Operation<'static> {
    Operation::Register(register::Operation::Increment { by })
}

pub fn on<'a>(key: &'a str, operation: Operation<'a>) -> KeyedOperation<'a> {
    KeyedOperation { key: key.as_bytes(), hash: SEED.hash(key.as_bytes()), operation, blind: false }
}

pub fn step<'a>(key: &'a str, operation: Operation<'a>) -> Step<'a> {
    Step::Key(on(key, operation))
}

pub fn blind_step<'a>(key: &'a str, operation: Operation<'a>) -> Step<'a> {
    Step::Key(KeyedOperation { blind: true, ..on(key, operation) })
}

/// A key of the partition `index`, of `partitions`.
pub fn key_in(index: u16, partitions: u16, name: &str) -> String {
    let names = (0..).map(|number| format!("{name}{number}"));
    names.into_iter().find(|key| SEED.hash(key.as_bytes()).share(partitions) == index).expect("there is one")
}

/// One client of a coordinator.
#[derive(Clone, Copy)]
pub struct Client {
    pub at: Address,
    pub session: SessionId,
}

impl Client {
    pub fn new(at: Address, session: u64) -> Self {
        Client { at, session: SessionId(session) }
    }

    /// One operation, waited for.
    pub fn one(self, world: &mut World, key: &str, operation: Operation<'_>) -> String {
        let request = Request::One { session: self.session, operation: on(key, operation) };
        self.ask(world, request)
    }

    /// Several steps as one transaction, waited for.
    pub fn many(self, world: &mut World, steps: &[Step<'_>]) -> String {
        self.ask(world, Request::Many { session: self.session, steps, watched: false, multi: true })
    }

    /// Several steps that a touched watch stops, waited for.
    pub fn watched(self, world: &mut World, steps: &[Step<'_>]) -> String {
        self.ask(world, Request::Many { session: self.session, steps, watched: true, multi: true })
    }

    pub fn watch(self, world: &mut World, key: &str) -> String {
        let keys = [(key.as_bytes(), SEED.hash(key.as_bytes()))];
        self.ask(world, Request::Watch { session: self.session, keys: &keys })
    }

    pub fn begin(self, world: &mut World) -> String {
        self.ask(world, Request::Begin { session: self.session, read_only: false, watched: false })
    }

    pub fn operate(self, world: &mut World, key: &str, operation: Operation<'_>) -> String {
        let steps = [step(key, operation)];
        self.ask(world, Request::Operate { session: self.session, steps: &steps })
    }

    pub fn commit(self, world: &mut World) -> String {
        self.ask(world, Request::Commit { session: self.session })
    }

    pub fn send(self, world: &mut World, steps: &[Step<'_>]) -> RequestId {
        world.request(self.at, Request::Many { session: self.session, steps, watched: false, multi: true })
    }

    pub fn ask(self, world: &mut World, request: Request<'_>) -> String {
        let id = world.request(self.at, request);
        render(&world.await_reply(id))
    }
}
