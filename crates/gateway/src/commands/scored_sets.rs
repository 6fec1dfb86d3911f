//! Commands on sorted sets, ranges apart: scored sets.

use super::visits::{self, Piece};
use super::{pops, scored_combined as combined, scored_ranges as ranges};
use crate::combine::Combine;
use crate::plan::{Call, Plan};
use crate::table::flag::{BLOCKING, DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data, wrong_arity};
use datatypes::Operation::ScoredSet;
use datatypes::scored_set::{AddFlags, End, Operation, ScoredItems};
use protocol::Step;
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("zadd", -4, WRITE | DENYOOM | FAST, "1.2.0", "Writes scores of members", Data(add)).keys(1, 1, 1),
    Command::new("zrem", -3, WRITE | FAST, "1.2.0", "Removes members", Data(remove)).keys(1, 1, 1),
    Command::new("zscore", 3, READONLY | FAST, "1.2.0", "Reads the score of a member", Data(score)).keys(1, 1, 1),
    Command::new("zmscore", -3, READONLY | FAST, "6.2.0", "Reads the scores of members", Data(scores)).keys(1, 1, 1),
    Command::new("zincrby", 4, WRITE | DENYOOM | FAST, "1.2.0", "Adds to the score of a member", Data(increment)).keys(1, 1, 1),
    Command::new("zcard", 2, READONLY | FAST, "1.2.0", "Counts the members", Data(length)).keys(1, 1, 1),
    Command::new("zrank", -3, READONLY | FAST, "2.0.0", "Tells the place of a member, lowest score first", Data(rank)).keys(1, 1, 1),
    Command::new("zrevrank", -3, READONLY | FAST, "2.0.0", "Tells the place of a member, highest score first", Data(reverse_rank)).keys(1, 1, 1),
    Command::new("zrange", -4, READONLY, "1.2.0", "Lists a range of members by place, score or name", Data(ranges::range)).keys(1, 1, 1),
    Command::new("zrangebyscore", -4, READONLY, "1.0.5", "Lists the members with scores in a range", Data(ranges::by_score)).keys(1, 1, 1),
    Command::new("zrevrangebyscore", -4, READONLY, "2.2.0", "Lists the members with scores in a range, highest first", Data(ranges::reverse_by_score)).keys(1, 1, 1),
    Command::new("zrangebylex", -4, READONLY, "2.8.9", "Lists the members with names in a range", Data(ranges::by_lex)).keys(1, 1, 1),
    Command::new("zrevrangebylex", -4, READONLY, "2.8.9", "Lists the members with names in a range, last first", Data(ranges::reverse_by_lex)).keys(1, 1, 1),
    Command::new("zrevrange", -4, READONLY, "1.2.0", "Lists a range of members by place, highest score first", Data(ranges::reverse)).keys(1, 1, 1),
    Command::new("zcount", 4, READONLY | FAST, "2.0.0", "Counts the members with scores in a range", Data(ranges::count)).keys(1, 1, 1),
    Command::new("zlexcount", 4, READONLY | FAST, "2.8.9", "Counts the members with names in a range", Data(ranges::lex_count)).keys(1, 1, 1),
    Command::new("zremrangebyscore", 4, WRITE, "1.2.0", "Removes the members with scores in a range", Data(ranges::remove_by_score)).keys(1, 1, 1),
    Command::new("zremrangebyrank", 4, WRITE, "2.0.0", "Removes the members with places in a range", Data(ranges::remove_by_rank)).keys(1, 1, 1),
    Command::new("zremrangebylex", 4, WRITE, "2.8.9", "Removes the members with names in a range", Data(ranges::remove_by_lex)).keys(1, 1, 1),
    Command::new("zpopmin", -2, WRITE | FAST, "5.0.0", "Removes the members with the lowest scores", Data(pop_min)).keys(1, 1, 1),
    Command::new("zpopmax", -2, WRITE | FAST, "5.0.0", "Removes the members with the highest scores", Data(pop_max)).keys(1, 1, 1),
    Command::new("zmpop", -4, WRITE, "7.0.0", "Removes the members with the lowest or the highest scores from the first sorted set that has any", Data(pops::of_scored_sets)).counted_keys(1),
    Command::new("bzpopmin", -3, WRITE | FAST | BLOCKING, "5.0.0", "Removes the member with the lowest score of the first sorted set that has any; waits for one", Data(pops::blocking_min)).keys(1, -2, 1),
    Command::new("bzpopmax", -3, WRITE | FAST | BLOCKING, "5.0.0", "Removes the member with the highest score of the first sorted set that has any; waits for one", Data(pops::blocking_max)).keys(1, -2, 1),
    Command::new("bzmpop", -5, WRITE | BLOCKING, "7.0.0", "Removes the members with the lowest or the highest scores from the first sorted set that has any; waits for some", Data(pops::blocking_of_scored_sets)).counted_keys(2),
    Command::new("zrandmember", -2, READONLY, "6.2.0", "Reads members at random", Data(random)).keys(1, 1, 1),
    Command::new("zscan", -3, READONLY, "2.8.0", "Visits the members piece by piece", Data(scan)).keys(1, 1, 1),
    Command::new("zrangestore", -5, WRITE | DENYOOM, "6.2.0", "Stores a range of members by place, score or name", Data(ranges::store)).keys(1, 2, 1),
    Command::new("zunion", -3, READONLY, "6.2.0", "Unites sorted sets", Data(combined::union)).counted_keys(1),
    Command::new("zinter", -3, READONLY, "6.2.0", "Intersects sorted sets", Data(combined::intersection)).counted_keys(1),
    Command::new("zdiff", -3, READONLY, "6.2.0", "Subtracts sorted sets from the first", Data(combined::difference)).counted_keys(1),
    Command::new("zintercard", -3, READONLY, "7.0.0", "Counts the members that all sorted sets have", Data(combined::count_intersection)).counted_keys(1),
    Command::new("zunionstore", -4, WRITE | DENYOOM, "2.0.0", "Stores the union of sorted sets", Data(combined::store_union)).keys(1, 1, 1).counted_keys(2),
    Command::new("zinterstore", -4, WRITE | DENYOOM, "2.0.0", "Stores the intersection of sorted sets", Data(combined::store_intersection)).keys(1, 1, 1).counted_keys(2),
    Command::new("zdiffstore", -4, WRITE | DENYOOM, "6.2.0", "Stores what the first sorted set has beyond the others", Data(combined::store_difference)).keys(1, 1, 1).counted_keys(2),
];

fn add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (mut flags, mut increments, mut first) = (AddFlags::default(), false, 2);
    while first < call.len() {
        match () {
            () if call.is(first, "NX") => flags.if_absent = true,
            () if call.is(first, "XX") => flags.if_present = true,
            () if call.is(first, "CH") => flags.count_changed = true,
            () if call.is(first, "INCR") => increments = true,
            () if call.is(first, "GT") => flags.if_greater = true,
            () if call.is(first, "LT") => flags.if_less = true,
            () => break,
        }
        first += 1;
    }
    let arguments = call.len() - first;
    check_add(flags, increments, arguments)?;
    let item = |index| Ok((call.float(index)?, call.bytes(index + 1)));
    if increments {
        let (by, member) = item(first)?;
        return call.one(ScoredSet(Operation::Increment { flags, by, member }));
    }
    let mut items = ScoredItems::default();
    for index in (first..call.len()).step_by(2) {
        items.push(item(index)?);
    }
    call.one(ScoredSet(Operation::Add { flags, items }))
}

fn check_add(flags: AddFlags, increments: bool, arguments: usize) -> Result<(), Error> {
    if arguments == 0 || !arguments.is_multiple_of(2) {
        return Err(Error::syntax());
    }
    if flags.if_absent && flags.if_present {
        return Err(Error::err("XX and NX options at the same time are not compatible"));
    }
    if [flags.if_greater, flags.if_less, flags.if_absent].into_iter().filter(|flag| *flag).count() > 1 {
        return Err(Error::err("GT, LT, and/or NX options at the same time are not compatible"));
    }
    if increments && arguments > 2 {
        return Err(Error::err("INCR option supports a single increment-element pair"));
    }
    Ok(())
}

fn remove<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Remove { members: call.items(2) }))
}

fn score<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Score { member: call.bytes(2) }))
}

fn scores<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Scores { members: call.items(2) }))
}

fn increment<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (flags, by, member) = (AddFlags::default(), call.float(2)?, call.bytes(3));
    call.one(ScoredSet(Operation::Increment { flags, by, member }))
}

fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(ScoredSet(Operation::Length))
}

fn rank<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    rank_of(call, false)
}

fn reverse_rank<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    rank_of(call, true)
}

fn rank_of<'a>(call: &Call<'a>, reverse: bool) -> Result<Plan<'a>, Error> {
    let member = call.bytes(2);
    match call.len() {
        3 => call.one(ScoredSet(Operation::Rank { member, reverse })),
        4 if call.is(3, "WITHSCORE") => call.one(ScoredSet(Operation::RankWithScore { member, reverse })),
        4 => Err(Error::syntax()),
        _ => Err(wrong_arity(call.command)),
    }
}

fn random<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if call.len() == 2 {
        return call.one(ScoredSet(Operation::Random { count: None, with_scores: false }));
    }
    let count = visits::random_count(call, 2)?;
    let with_scores = call.len() > 3;
    if call.len() > 4 || (with_scores && !call.is(3, "WITHSCORES")) {
        return Err(Error::syntax());
    }
    if with_scores && count > i64::MAX / 2 {
        return Err(Error::err("value is out of range"));
    }
    call.one(ScoredSet(Operation::Random { count: Some(count), with_scores }))
}

fn scan<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let plan = visits::plan(call, false, ScoredSet(Operation::Length), |piece| {
        let Piece { cursor, count, pattern, .. } = piece;
        ScoredSet(Operation::Scan { cursor, count, pattern })
    })?;
    Ok(match plan {
        Plan::One(operation) => Plan::Many { steps: vec![Step::Key(operation)], combine: Combine::Texts },
        plan => plan,
    })
}

fn pop<'a>(call: &Call<'a>, end: End) -> Result<Plan<'a>, Error> {
    let count = match call.len() {
        2 => None,
        3 => Some(call.count(2)?),
        _ => return Err(Error::syntax()),
    };
    call.one(ScoredSet(Operation::Pop { end, count }))
}

fn pop_min<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    pop(call, End::Min)
}

fn pop_max<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    pop(call, End::Max)
}
