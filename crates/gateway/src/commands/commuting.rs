//! Commands on the types that Redis does not have: counters, summary bags, tops, generators of identifiers. Their
//! additions reply OK and observe only the type, so that they never conflict with one another.

use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::{Counter, SummaryBag, Top, UidGenerator};
use datatypes::scored_set::ScoredItems;
use datatypes::summary::{Figure, Numbers};
use datatypes::{counter, summary, top, uid};
use types::Error;

/// The most identifiers of one UID.NEXT.
const MAX_IDENTIFIERS: u64 = 10_000;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("counter.add", -2, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Adds to a counter without reading it: COUNTER.ADD key [by]", Data(counter_add)).keys(1, 1, 1),
    Command::new("counter.incr", -2, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Adds to a counter, as COUNTER.ADD does: COUNTER.INCR key [by]", Data(counter_add)).keys(1, 1, 1),
    Command::new("counter.decr", -2, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Subtracts from a counter without reading it: COUNTER.DECR key [by]", Data(counter_decr)).keys(1, 1, 1),
    Command::new("counter.take", -3, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Subtracts if so much is left, 0 unless another floor is given, and replies 1, or else 0: COUNTER.TAKE key by [floor]", Data(counter_take)).keys(1, 1, 1),
    Command::new("counter.atleast", 3, READONLY | FAST, "anabranch 0.1.0", "Tells whether the sum is at least so much, 1 or 0: COUNTER.ATLEAST key bound", Data(counter_at_least)).keys(1, 1, 1),
    Command::new("counter.get", 2, READONLY | FAST, "anabranch 0.1.0", "Reads the sum of a counter", Data(counter_get)).keys(1, 1, 1),
    Command::new("summary.add", -3, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Adds numbers to a summary", Data(summary_add)).keys(1, 1, 1),
    Command::new("summary.get", 2, READONLY | FAST, "anabranch 0.1.0", "Reads all figures of a summary", Data(summary_get)).keys(1, 1, 1),
    Command::new("summary.count", 2, READONLY | FAST, "anabranch 0.1.0", "Tells how many numbers were added", Data(summary_count)).keys(1, 1, 1),
    Command::new("summary.sum", 2, READONLY | FAST, "anabranch 0.1.0", "Sums the numbers, exactly, rounded once", Data(summary_sum)).keys(1, 1, 1),
    Command::new("summary.mean", 2, READONLY | FAST, "anabranch 0.1.0", "Tells the mean of the numbers", Data(summary_mean)).keys(1, 1, 1),
    Command::new("summary.min", 2, READONLY | FAST, "anabranch 0.1.0", "Tells the least number", Data(summary_min)).keys(1, 1, 1),
    Command::new("summary.max", 2, READONLY | FAST, "anabranch 0.1.0", "Tells the greatest number", Data(summary_max)).keys(1, 1, 1),
    Command::new("top.add", -4, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Adds members, of which those with the highest scores are kept: TOP.ADD key score member [...]", Data(top_add)).keys(1, 1, 1),
    Command::new("top.reserve", 3, WRITE | DENYOOM, "anabranch 0.1.0", "Keeps so many members from now on; 100 without it", Data(top_reserve)).keys(1, 1, 1),
    Command::new("top.range", -4, READONLY, "anabranch 0.1.0", "Lists members by place, highest score first: TOP.RANGE key start stop [WITHSCORES]", Data(top_range)).keys(1, 1, 1),
    Command::new("top.list", -2, READONLY, "anabranch 0.1.0", "Lists so many members with their scores, highest first; all without a count: TOP.LIST key [count]", Data(top_list)).keys(1, 1, 1),
    Command::new("top.rank", 3, READONLY | FAST, "anabranch 0.1.0", "Tells the place of a member that is kept, 0 for the highest", Data(top_rank)).keys(1, 1, 1),
    Command::new("top.score", 3, READONLY | FAST, "anabranch 0.1.0", "Reads the score of a member that is kept", Data(top_score)).keys(1, 1, 1),
    Command::new("top.len", 2, READONLY | FAST, "anabranch 0.1.0", "Counts the members that are kept", Data(top_len)).keys(1, 1, 1),
    Command::new("top.capacity", 2, READONLY | FAST, "anabranch 0.1.0", "Tells how many members are kept at most", Data(top_capacity)).keys(1, 1, 1),
    Command::new("uid.next", -2, WRITE | DENYOOM | FAST, "anabranch 0.1.0", "Makes unique identifiers, UUIDs of version 7: UID.NEXT key [COUNT n]", Data(uid_next)).keys(1, 1, 1),
];

fn counter_add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let by = optional(call, 2, 1)?;
    call.one(Counter(counter::Operation::Add { by }))
}

fn counter_decr<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let by = optional(call, 2, 1)?.checked_neg().ok_or_else(Error::not_an_integer)?;
    call.one(Counter(counter::Operation::Add { by }))
}

fn counter_take<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (by, floor) = (call.integer(2)?, optional(call, 3, 0)?);
    if by < 1 {
        return Err(Error::err("value is out of range, must be positive"));
    }
    call.one(Counter(counter::Operation::Take { by, floor }))
}

fn counter_at_least<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Counter(counter::Operation::AtLeast { bound: call.integer(2)?, known: None }))
}

/// The integer with this index, which is the last one if it is there.
fn optional(call: &Call<'_>, index: usize, otherwise: i64) -> Result<i64, Error> {
    match call.len() {
        len if len == index => Ok(otherwise),
        len if len == index + 1 => call.integer(index),
        _ => Err(Error::syntax()),
    }
}

fn counter_get<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Counter(counter::Operation::Get))
}

fn summary_add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let numbers = (2..call.len()).map(|index| call.float(index)).collect::<Result<Vec<f64>, Error>>()?;
    let numbers =
        Numbers::new(numbers.into_iter()).ok_or_else(|| Error::err("value is not a finite float"))?;
    call.one(SummaryBag(summary::Operation::Add { numbers }))
}

fn summary_get<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(SummaryBag(summary::Operation::ReadAll))
}

fn read_figure<'a>(call: &Call<'a>, figure: Figure) -> Result<Plan<'a>, Error> {
    call.one(SummaryBag(summary::Operation::Read { figure }))
}

fn summary_count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    read_figure(call, Figure::Count)
}

fn summary_sum<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    read_figure(call, Figure::Sum)
}

fn summary_mean<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    read_figure(call, Figure::Mean)
}

fn summary_min<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    read_figure(call, Figure::Min)
}

fn summary_max<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    read_figure(call, Figure::Max)
}

fn top_add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if !call.len().is_multiple_of(2) {
        return Err(Error::syntax());
    }
    let item = |index| Ok((call.float(index)?, call.bytes(index + 1)));
    let items = (2..call.len()).step_by(2).map(item).collect::<Result<ScoredItems<'a>, Error>>()?;
    call.one(Top(top::Operation::Add { items }))
}

fn top_reserve<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Top(top::Operation::Reserve { capacity: call.count(2)? }))
}

fn top_range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let with_scores = match call.len() {
        4 => false,
        5 if call.is(4, "WITHSCORES") => true,
        _ => return Err(Error::syntax()),
    };
    let (start, stop) = (call.integer(2)?, call.integer(3)?);
    call.one(Top(top::Operation::Range { start, stop, with_scores }))
}

fn top_list<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (start, stop) = match call.len() {
        2 => (0, -1),
        3 => match call.count(2)? {
            // No place is from 1 to 0; -1 would be the last one.
            0 => (1, 0),
            count => (0, i64::try_from(count - 1).unwrap_or(i64::MAX)),
        },
        _ => return Err(Error::syntax()),
    };
    call.one(Top(top::Operation::Range { start, stop, with_scores: true }))
}

fn top_rank<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Top(top::Operation::Rank { member: call.bytes(2) }))
}

fn top_score<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Top(top::Operation::Score { member: call.bytes(2) }))
}

fn top_len<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Top(top::Operation::Length))
}

fn top_capacity<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Top(top::Operation::Capacity))
}

fn uid_next<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let count = match call.len() {
        2 => None,
        4 if call.is(2, "COUNT") => Some(call.count(3)?),
        _ => return Err(Error::syntax()),
    };
    if count.is_some_and(|count| count > MAX_IDENTIFIERS) {
        return Err(Error::err(format!("value is out of range, must be at most {MAX_IDENTIFIERS}")));
    }
    call.one(UidGenerator(uid::Operation::Next { count }))
}
