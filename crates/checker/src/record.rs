//! Steps as a recorder writes them that sees commands and replies, and knows nothing of operations.

use crate::history::{Bytes, Key, Step};
use crate::render::describe;
use crate::touches::quoted;
use datatypes::Operation;
use datatypes::register::{self, Condition, Deadline, SetReply};

impl Step {
    /// `GET key`; `seen` is the reply, if there was one.
    pub fn get(key: &[u8], seen: Option<Option<&[u8]>>) -> Self {
        let reply = seen.map(|value| value.map_or_else(|| "(nil)".to_owned(), quoted));
        Self::new(key, &Operation::Register(register::Operation::Get), reply)
    }

    /// `SET key value`; `done` if `OK` was replied.
    pub fn set(key: &[u8], value: &[u8], done: bool) -> Self {
        let (condition, deadline, reply) = (Condition::Always, Deadline::Clear, SetReply::Status);
        let operation = Operation::Register(register::Operation::Set { value, deadline, condition, reply });
        Self::new(key, &operation, done.then(|| "OK".to_owned()))
    }

    /// `SET key value GET`; `replaced` is the reply, if there was one.
    pub fn swap(key: &[u8], value: &[u8], replaced: Option<Option<&[u8]>>) -> Self {
        let (condition, deadline, reply) = (Condition::Always, Deadline::Clear, SetReply::Old);
        let operation = Operation::Register(register::Operation::Set { value, deadline, condition, reply });
        Self::new(key, &operation, replaced.map(|value| value.map_or_else(|| "(nil)".to_owned(), quoted)))
    }

    fn new(key: &[u8], operation: &Operation<'_>, reply: Option<String>) -> Self {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        let text = describe(operation);
        Step { key: Key(key.to_vec()), operation: Bytes(bytes), text, blind: false, reply, state: None }
    }
}
