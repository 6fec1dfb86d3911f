//! Operations by name.

use datatypes::register::{Condition, Deadline, SetReply};
use datatypes::{Items, Operation, key, list, register, set};

pub const DELETE: Operation<'static> = Operation::Key(key::Operation::Delete);
pub const MEMBERS: Operation<'static> = Operation::Set(set::Operation::Members);

pub fn write(value: &str) -> Operation<'_> {
    let (condition, deadline, reply) = (Condition::Always, Deadline::Clear, SetReply::Status);
    Operation::Register(register::Operation::Set { value: value.as_bytes(), deadline, condition, reply })
}

pub fn write_if_absent(value: &str) -> Operation<'_> {
    let (condition, deadline, reply) = (Condition::IfAbsent, Deadline::Clear, SetReply::Status);
    Operation::Register(register::Operation::Set { value: value.as_bytes(), deadline, condition, reply })
}

pub fn add(member: &str) -> Operation<'_> {
    Operation::Set(set::Operation::Add { members: Items::one(member.as_bytes()) })
}

pub fn remove(member: &str) -> Operation<'_> {
    Operation::Set(set::Operation::Remove { members: Items::one(member.as_bytes()) })
}

pub fn push(element: &str) -> Operation<'_> {
    Operation::List(list::Operation::Push {
        end: list::End::Back,
        values: Items::one(element.as_bytes()),
        only_if_exists: false,
    })
}

pub fn pop() -> Operation<'static> {
    Operation::List(list::Operation::Pop { end: list::End::Front, count: None })
}
