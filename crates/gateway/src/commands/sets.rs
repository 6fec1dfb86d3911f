//! Commands on sets.

use crate::combine::Combine;
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::Set;
use datatypes::set::Operation;
use protocol::Step;
use types::Error;

/// The most members that one SRANDMEMBER repeats. Redis would fill its memory.
const MAX_REPEATED: i64 = 10_000_000;

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
        3 => match call.integer(2)? {
            i64::MIN => {
                let most = i64::MAX;
                let text = format!("value is out of range, value must between -{most} and {most}");
                return Err(Error::err(text));
            }
            count if count < -MAX_REPEATED => return Err(Error::err("value is out of range")),
            count => Some(count),
        },
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
