//! Commands on lists.

use crate::commands::{list_moves, pops};
use crate::plan::{Call, Plan};
use crate::table::flag::{BLOCKING, DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data, wrong_arity};
use datatypes::Operation::List;
use datatypes::list::{End, Operation};
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("lpush", -3, WRITE | DENYOOM | FAST, "1.0.0", "Pushes elements to the front of a list", Data(push_front)).keys(1, 1, 1),
    Command::new("rpush", -3, WRITE | DENYOOM | FAST, "1.0.0", "Pushes elements to the back of a list", Data(push_back)).keys(1, 1, 1),
    Command::new("lpushx", -3, WRITE | DENYOOM | FAST, "2.2.0", "Pushes elements to the front of a list that exists", Data(push_front_if_exists)).keys(1, 1, 1),
    Command::new("rpushx", -3, WRITE | DENYOOM | FAST, "2.2.0", "Pushes elements to the back of a list that exists", Data(push_back_if_exists)).keys(1, 1, 1),
    Command::new("lpop", -2, WRITE | FAST, "1.0.0", "Removes elements from the front of a list", Data(pop_front)).keys(1, 1, 1),
    Command::new("rpop", -2, WRITE | FAST, "1.0.0", "Removes elements from the back of a list", Data(pop_back)).keys(1, 1, 1),
    Command::new("lrange", 4, READONLY, "1.0.0", "Reads a range of a list", Data(range)).keys(1, 1, 1),
    Command::new("llen", 2, READONLY | FAST, "1.0.0", "Counts the elements of a list", Data(length)).keys(1, 1, 1),
    Command::new("lindex", 3, READONLY, "1.0.0", "Reads the element at an index", Data(index)).keys(1, 1, 1),
    Command::new("lset", 4, WRITE | DENYOOM, "1.0.0", "Replaces the element at an index", Data(put)).keys(1, 1, 1),
    Command::new("ltrim", 4, WRITE, "1.0.0", "Removes all elements but a range", Data(trim)).keys(1, 1, 1),
    Command::new("lrem", 4, WRITE, "1.0.0", "Removes elements equal to a value", Data(remove)).keys(1, 1, 1),
    Command::new("linsert", 5, WRITE | DENYOOM, "2.2.0", "Inserts an element beside another", Data(insert)).keys(1, 1, 1),
    Command::new("lpos", -3, READONLY, "6.0.6", "Tells the indexes of elements equal to a value", Data(position)).keys(1, 1, 1),
    Command::new("lmove", 5, WRITE | DENYOOM, "6.2.0", "Moves an element from an end of a list to an end of a list", Data(list_moves::between)).keys(1, 2, 1),
    Command::new("rpoplpush", 3, WRITE | DENYOOM, "1.2.0", "Moves an element from the back of a list to the front of a list", Data(list_moves::back_to_front)).keys(1, 2, 1),
    Command::new("lmpop", -4, WRITE, "7.0.0", "Removes elements from the first list that has any", Data(pops::of_lists)).counted_keys(1),
    Command::new("blpop", -3, WRITE | BLOCKING, "2.0.0", "Removes the first element of the first list that has any; waits for one", Data(pops::blocking_front)).keys(1, -2, 1),
    Command::new("brpop", -3, WRITE | BLOCKING, "2.0.0", "Removes the last element of the first list that has any; waits for one", Data(pops::blocking_back)).keys(1, -2, 1),
    Command::new("blmove", 6, WRITE | DENYOOM | BLOCKING, "6.2.0", "Moves an element from an end of a list to an end of a list; waits for one", Data(pops::blocking_move)).keys(1, 2, 1),
    Command::new("brpoplpush", 4, WRITE | DENYOOM | BLOCKING, "2.2.0", "Moves an element from the back of a list to the front of a list; waits for one", Data(pops::blocking_back_to_front)).keys(1, 2, 1),
    Command::new("blmpop", -5, WRITE | BLOCKING, "7.0.0", "Removes elements from the first list that has any; waits for some", Data(pops::blocking_of_lists)).counted_keys(2),
];

fn push<'a>(call: &Call<'a>, end: End, only_if_exists: bool) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Push { end, values: call.items(2), only_if_exists }))
}

fn push_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    push(call, End::Front, false)
}

fn push_back<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    push(call, End::Back, false)
}

fn push_front_if_exists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    push(call, End::Front, true)
}

fn push_back_if_exists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    push(call, End::Back, true)
}

fn pop<'a>(call: &Call<'a>, end: End) -> Result<Plan<'a>, Error> {
    let count = match call.len() {
        2 => None,
        3 => Some(call.count(2)?),
        _ => return Err(wrong_arity(call.command)),
    };
    call.one(List(Operation::Pop { end, count }))
}

fn pop_front<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    pop(call, End::Front)
}

fn pop_back<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    pop(call, End::Back)
}

fn range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Range { start: call.integer(2)?, stop: call.integer(3)? }))
}

fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Length))
}

fn index<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Index { index: call.integer(2)? }))
}

fn put<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Put { index: call.integer(2)?, value: call.bytes(3) }))
}

fn trim<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Trim { start: call.integer(2)?, stop: call.integer(3)? }))
}

fn remove<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(List(Operation::Remove { count: call.integer(2)?, value: call.bytes(3) }))
}

fn insert<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let before = call.is(2, "BEFORE");
    if !before && !call.is(2, "AFTER") {
        return Err(Error::syntax());
    }
    call.one(List(Operation::InsertNextTo { before, pivot: call.bytes(3), value: call.bytes(4) }))
}

fn position<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (mut rank, mut count, mut max_len) = (1, None, 0);
    for index in (3..call.len()).step_by(2) {
        let at_least_zero =
            |name| call.count(index + 1).map_err(|_| Error::err(format!("{name} can't be negative")));
        match () {
            () if index + 1 == call.len() => return Err(Error::syntax()),
            () if call.is(index, "RANK") => rank = nonzero_rank(call, index + 1)?,
            () if call.is(index, "COUNT") => count = Some(at_least_zero("COUNT")?),
            () if call.is(index, "MAXLEN") => max_len = at_least_zero("MAXLEN")?,
            () => return Err(Error::syntax()),
        }
    }
    call.one(List(Operation::Position { value: call.bytes(2), rank, count, max_len }))
}

fn nonzero_rank(call: &Call<'_>, index: usize) -> Result<i64, Error> {
    match call.integer(index)? {
        0 => Err(Error::err(
            "RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start \
             from the end of the list",
        )),
        i64::MIN => {
            let most = i64::MAX;
            Err(Error::err(format!("value is out of range, value must between -{most} and {most}")))
        }
        rank => Ok(rank),
    }
}
