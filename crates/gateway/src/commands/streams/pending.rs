//! What groups have delivered and nobody has acknowledged: XACK, XPENDING, XCLAIM, XAUTOCLAIM.

use crate::commands::streams::count_or_zero;
use crate::plan::{Call, Plan};
use crate::table::lossy;
use datatypes::Items;
use datatypes::Operation::Stream;
use datatypes::stream::{Claiming, DeliveredAt, Operation, StreamId};
use types::Error;

/// XACK
pub(super) fn acknowledge<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Stream(Operation::Acknowledge { group: call.bytes(2), ids: call.items(3) }))
}

/// XPENDING
pub(super) fn list<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (key, group) = (call.bytes(1), call.bytes(2));
    if call.len() == 3 {
        return call.one(Stream(Operation::Pending { key, group }));
    }
    if !(6..=9).contains(&call.len()) {
        return Err(Error::syntax());
    }
    let (mut at, mut min_idle_millis) = (3, 0);
    if call.is(3, "IDLE") {
        min_idle_millis = count_or_zero(call, 4)?;
        if call.len() < 8 {
            return Err(Error::syntax());
        }
        at = 5;
    }
    let count = count_or_zero(call, at + 2)?;
    let (from, to) = (StreamId::parse_start(call.bytes(at))?, StreamId::parse_end(call.bytes(at + 1))?);
    let consumer = (at + 3 < call.len()).then(|| call.bytes(at + 3));
    call.one(Stream(Operation::PendingEntries { key, group, from, to, count, consumer, min_idle_millis }))
}

/// An argument as an integer, with an error of its own.
fn integer(call: &Call<'_>, index: usize, what: &str) -> Result<i64, Error> {
    let name = call.command.name.to_ascii_uppercase();
    call.integer(index).map_err(|_| Error::err(format!("Invalid {what} argument for {name}")))
}

fn min_idle(call: &Call<'_>) -> Result<u64, Error> {
    Ok(integer(call, 4, "min-idle-time")?.max(0) as u64)
}

/// XCLAIM
pub(super) fn claim<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let mut claiming = Claiming { min_idle_millis: min_idle(call)?, ..Claiming::default() };
    let is_id = |index: &usize| StreamId::parse(call.bytes(*index), 0).is_ok();
    let end = (5..call.len()).find(|index| !is_id(index)).unwrap_or(call.len());
    let mut at = end;
    while at < call.len() {
        let has_more = at + 1 < call.len();
        let millis = |what| integer(call, at + 1, what);
        match () {
            () if call.is(at, "FORCE") => claiming.force = true,
            () if call.is(at, "JUSTID") => claiming.just_ids = true,
            () if has_more && call.is(at, "IDLE") => {
                claiming.at = Some(DeliveredAt::Ago { millis: millis("IDLE option")? });
            }
            () if has_more && call.is(at, "TIME") => {
                claiming.at = Some(DeliveredAt::Time { millis: millis("TIME option")? });
            }
            () if has_more && call.is(at, "RETRYCOUNT") => {
                claiming.count = u64::try_from(millis("RETRYCOUNT option")?).ok();
            }
            () if has_more && call.is(at, "LASTID") => {
                claiming.last = Some(StreamId::parse(call.bytes(at + 1), 0)?);
            }
            () => {
                let option = lossy(call.bytes(at));
                return Err(Error::err(format!("Unrecognized XCLAIM option '{option}'")));
            }
        }
        let takes_value = !call.is(at, "FORCE") && !call.is(at, "JUSTID");
        at += 1 + usize::from(takes_value);
    }
    let ids = Items::collect(call.arguments.iter().take(end).skip(5));
    let (key, group, consumer) = (call.bytes(1), call.bytes(2), call.bytes(3));
    call.one(Stream(Operation::Claim { key, group, consumer, ids, claiming }))
}

/// XAUTOCLAIM
pub(super) fn claim_from<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let min_idle_millis = min_idle(call)?;
    let from = StreamId::parse_start(call.bytes(5))?;
    let (mut count, mut just_ids, mut at) = (100, false, 6);
    while at < call.len() {
        match () {
            () if call.is(at, "COUNT") && at + 1 < call.len() => {
                at += 1;
                let given = call.integer(at).ok().and_then(|count| u64::try_from(count).ok());
                let given = given.filter(|count| (1..=MOST).contains(count));
                count = given.ok_or_else(|| Error::err("COUNT must be > 0"))?;
            }
            () if call.is(at, "JUSTID") => just_ids = true,
            () => return Err(Error::syntax()),
        }
        at += 1;
    }
    let (key, group, consumer) = (call.bytes(1), call.bytes(2), call.bytes(3));
    call.one(Stream(Operation::AutoClaim { key, group, consumer, from, min_idle_millis, count, just_ids }))
}

/// The greatest `COUNT` that Redis takes: the memory of so many ids.
const MOST: u64 = i64::MAX as u64 / 16;
