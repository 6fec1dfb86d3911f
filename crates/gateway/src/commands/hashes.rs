//! Commands on hashes: dicts.

use crate::commands::visits::{self, Piece, random_count};
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data, wrong_arity};
use datatypes::Operation::Dict;
use datatypes::dict::{Operation, PutReply};
use datatypes::register::{LongDouble, Parsed};
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("hset", -4, WRITE | DENYOOM | FAST, "2.0.0", "Writes fields of a hash", Data(set)).keys(1, 1, 1),
    Command::new("hsetnx", 4, WRITE | DENYOOM | FAST, "2.0.0", "Writes a field that does not exist", Data(set_if_absent)).keys(1, 1, 1),
    Command::new("hmset", -4, WRITE | DENYOOM | FAST, "2.0.0", "Writes fields of a hash", Data(set_status)).keys(1, 1, 1),
    Command::new("hget", 3, READONLY | FAST, "2.0.0", "Reads a field of a hash", Data(get)).keys(1, 1, 1),
    Command::new("hmget", -3, READONLY | FAST, "2.0.0", "Reads fields of a hash", Data(get_many)).keys(1, 1, 1),
    Command::new("hgetall", 2, READONLY, "2.0.0", "Reads all fields of a hash with their values", Data(get_all)).keys(1, 1, 1),
    Command::new("hdel", -3, WRITE | FAST, "2.0.0", "Deletes fields of a hash", Data(delete)).keys(1, 1, 1),
    Command::new("hexists", 3, READONLY | FAST, "2.0.0", "Tells whether a field exists", Data(exists)).keys(1, 1, 1),
    Command::new("hlen", 2, READONLY | FAST, "2.0.0", "Counts the fields of a hash", Data(length)).keys(1, 1, 1),
    Command::new("hincrby", 4, WRITE | DENYOOM | FAST, "2.0.0", "Adds to the integer of a field", Data(increment)).keys(1, 1, 1),
    Command::new("hincrbyfloat", 4, WRITE | DENYOOM | FAST, "2.6.0", "Adds to the number of a field", Data(increment_float)).keys(1, 1, 1),
    Command::new("hkeys", 2, READONLY, "2.0.0", "Lists the fields of a hash", Data(fields)).keys(1, 1, 1),
    Command::new("hvals", 2, READONLY, "2.0.0", "Lists the values of a hash", Data(values)).keys(1, 1, 1),
    Command::new("hstrlen", 3, READONLY | FAST, "3.2.0", "Tells the length of a field's value", Data(field_length)).keys(1, 1, 1),
    Command::new("hrandfield", -2, READONLY, "6.2.0", "Reads fields at random", Data(random)).keys(1, 1, 1),
    Command::new("hscan", -3, READONLY, "2.8.0", "Visits the fields of a hash piece by piece", Data(scan)).keys(1, 1, 1),
];

fn put<'a>(call: &Call<'a>, reply: PutReply) -> Result<Plan<'a>, Error> {
    if !call.len().is_multiple_of(2) {
        return Err(wrong_arity(call.command));
    }
    call.one(Dict(Operation::Put { pairs: call.items(2), reply }))
}

fn set<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    put(call, PutReply::Added)
}

fn set_status<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    put(call, PutReply::Status)
}

fn set_if_absent<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::PutIfAbsent { field: call.bytes(2), value: call.bytes(3) }))
}

fn get<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Get { field: call.bytes(2) }))
}

fn get_many<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::GetMany { fields: call.items(2) }))
}

fn get_all<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::GetAll))
}

fn delete<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Delete { fields: call.items(2) }))
}

fn exists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Contains { field: call.bytes(2) }))
}

fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Length))
}

fn increment<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Increment { field: call.bytes(2), by: call.integer(3)? }))
}

fn increment_float<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    match LongDouble::parse(call.bytes(3)) {
        Some(Parsed::Finite(by)) => call.one(Dict(Operation::IncrementFloat { field: call.bytes(2), by })),
        Some(Parsed::Infinite) => Err(Error::err("value is NaN or Infinity")),
        None => Err(Error::err("value is not a valid float")),
    }
}

fn fields<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Fields))
}

fn values<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Values))
}

fn field_length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::FieldLength { field: call.bytes(2) }))
}

fn random<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    /// Redis asks for as many strings.
    const MAX_PAIRS: i64 = i64::MAX / 2;
    let (count, values) = match call.len() {
        2 => (None, false),
        len => {
            let count = random_count(call, 2)?;
            match len {
                3 => (Some(count), false),
                4 if !call.is(3, "WITHVALUES") => return Err(Error::syntax()),
                4 if count > MAX_PAIRS => return Err(Error::err("value is out of range")),
                4 => (Some(count), true),
                _ => return Err(Error::syntax()),
            }
        }
    };
    call.one(Dict(Operation::Random { count, values }))
}

fn scan<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    visits::plan(call, true, Dict(Operation::Length), |piece| {
        let Piece { cursor, count, pattern, no_values } = piece;
        Dict(Operation::Scan { cursor, count, pattern, values: !no_values })
    })
}
