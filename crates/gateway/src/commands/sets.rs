//! Commands on sets.

use crate::combine::Combine;
use crate::commands::set_stores;
use crate::commands::visits::{self, Piece, random_count};
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::Set;
use datatypes::set::Operation;
use protocol::Step;
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("sadd", -3, WRITE | DENYOOM | FAST, "1.0.0", "Adds members to a set", Data(add)).keys(1, 1, 1),
    Command::new("srem", -3, WRITE | FAST, "1.0.0", "Removes members from a set", Data(remove)).keys(1, 1, 1),
    Command::new("sismember", 3, READONLY | FAST, "1.0.0", "Tells whether a set has a member", Data(contains)).keys(1, 1, 1),
    Command::new("smismember", -3, READONLY | FAST, "6.2.0", "Tells which of the members a set has", Data(contains_many)).keys(1, 1, 1),
    Command::new("smembers", 2, READONLY, "1.0.0", "Lists the members of a set", Data(members)).keys(1, 1, 1),
    Command::new("scard", 2, READONLY | FAST, "1.0.0", "Counts the members of a set", Data(length)).keys(1, 1, 1),
    Command::new("spop", -2, WRITE | FAST, "1.0.0", "Removes members at random", Data(pop)).keys(1, 1, 1),
    Command::new("srandmember", -2, READONLY, "1.0.0", "Reads members at random", Data(random)).keys(1, 1, 1),
    Command::new("sinter", -2, READONLY, "1.0.0", "Intersects sets", Data(intersection)).keys(1, -1, 1),
    Command::new("sunion", -2, READONLY, "1.0.0", "Unites sets", Data(union)).keys(1, -1, 1),
    Command::new("sdiff", -2, READONLY, "1.0.0", "Subtracts sets from the first", Data(difference)).keys(1, -1, 1),
    Command::new("sintercard", -3, READONLY, "7.0.0", "Counts the members that all sets have", Data(set_stores::intersection_size)).counted_keys(1),
    Command::new("sinterstore", -3, WRITE | DENYOOM, "1.0.0", "Intersects sets and keeps the result", Data(set_stores::store_intersection)).keys(1, -1, 1),
    Command::new("sunionstore", -3, WRITE | DENYOOM, "1.0.0", "Unites sets and keeps the result", Data(set_stores::store_union)).keys(1, -1, 1),
    Command::new("sdiffstore", -3, WRITE | DENYOOM, "1.0.0", "Subtracts sets from the first and keeps the result", Data(set_stores::store_difference)).keys(1, -1, 1),
    Command::new("smove", 4, WRITE | FAST, "1.0.0", "Takes a member out of a set and puts it into another one", Data(set_stores::between)).keys(1, 2, 1),
    Command::new("sscan", -3, READONLY, "2.8.0", "Visits the members of a set piece by piece", Data(scan)).keys(1, 1, 1),
];

fn add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::Add { members: call.items(2) }))
}

fn remove<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::Remove { members: call.items(2) }))
}

fn contains<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::Contains { member: call.bytes(2) }))
}

fn contains_many<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::ContainsMany { members: call.items(2) }))
}

fn members<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::Members))
}

fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Set(Operation::Length))
}

fn pop<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let count = match call.len() {
        2 => None,
        3 => Some(call.count(2)?),
        _ => return Err(Error::syntax()),
    };
    call.one(Set(Operation::Pop { count }))
}

fn random<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let count = match call.len() {
        2 => None,
        3 => Some(random_count(call, 2)?),
        _ => return Err(Error::syntax()),
    };
    call.one(Set(Operation::Random { count }))
}

/// The sets are read in one transaction and combined here.
fn combined<'a>(call: &Call<'a>, combine: Combine) -> Result<Plan<'a>, Error> {
    let keys = call.arguments.iter().skip(1);
    let steps = keys.map(|key| Step::Key(call.on(key, Set(Operation::Members)))).collect();
    Ok(Plan::Many { steps, combine })
}

fn intersection<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    combined(call, Combine::Intersection)
}

fn union<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    combined(call, Combine::Union)
}

fn difference<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    combined(call, Combine::Difference)
}

fn scan<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    visits::plan(call, false, Set(Operation::Length), |piece| {
        let Piece { cursor, count, pattern, .. } = piece;
        Set(Operation::Scan { cursor, count, pattern })
    })
}
