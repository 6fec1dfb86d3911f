//! Commands on keys of any type, and on all keys.

use super::{moving, objects, sort, waiting};
use crate::combine::Combine;
use crate::dialogue::{Dialogue, Scan};
use crate::plan::{Call, Plan};
use crate::random_key::RandomKey;
use crate::table::flag::{DENYOOM, FAST, NOSCRIPT, OTHER_KEYSPACE, READONLY, WRITE};
use crate::table::{Command, Handler, Handler::Data, Handler::Local, lossy};
use datatypes::Operation;
use datatypes::glob::Pattern;
use datatypes::key::{self, ExpireCondition, TimeFormat};
use protocol::Step;
use std::collections::BTreeSet;
use types::Error;

/// The most keys that one SCAN visits, whatever COUNT asks for: a step stays short.
const MAX_SCAN_COUNT: i64 = 10_000;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("del", -2, WRITE, "1.0.0", "Deletes keys", Data(delete)).keys(1, -1, 1),
    Command::new("unlink", -2, WRITE | FAST, "4.0.0", "Deletes keys, as DEL does", Data(delete)).keys(1, -1, 1),
    Command::new("exists", -2, READONLY | FAST, "1.0.0", "Counts how many of the keys exist", Data(exists)).keys(1, -1, 1),
    Command::new("type", 2, READONLY | FAST, "1.0.0", "Tells the type of a key", Data(kind)).keys(1, 1, 1),
    Command::new("keys", 2, READONLY, "1.0.0", "Lists all keys that match a pattern", Data(keys)),
    Command::new("scan", -2, READONLY, "2.8.0", "Visits the keys of the keyspace piece by piece", Data(scan)),
    Command::new("randomkey", 1, READONLY, "1.0.0", "Tells a key that exists, drawn at random", Data(random_key)),
    Command::new("rename", 3, WRITE, "1.0.0", "Moves a value to another key, as one transaction", Data(rename)).keys(1, 2, 1),
    Command::new("renamenx", 3, WRITE | FAST, "1.0.0", "Moves a value to another key that is absent, as one transaction", Data(moving::rename_absent)).keys(1, 2, 1),
    Command::new("copy", -3, WRITE | DENYOOM | OTHER_KEYSPACE, "6.2.0", "Gives another key of the keyspace the same value, as one transaction", Data(moving::copy)).keys(1, 2, 1),
    Command::new("move", 3, WRITE | FAST, "1.0.0", "Refuses to move a key to another keyspace: a transaction has one", Local(moving::move_away)).keys(1, 1, 1),
    Command::new("touch", -2, READONLY | FAST, "3.2.1", "Counts how many of the keys exist, as EXISTS does", Data(exists)).keys(1, -1, 1),
    Command::new("object", -2, 0, "2.2.3", "Tells about the values of keys", Handler::Container).containing(objects::OBJECT),
    Command::new("sort", -2, WRITE | DENYOOM, "1.0.0", "Sorts a list, a set or a sorted set, by its elements or by what other keys hold", Data(sort::sort)).keys(1, 1, 1),
    Command::new("sort_ro", -2, READONLY, "7.0.0", "Sorts as SORT does, without STORE", Data(sort::sort_read_only)).keys(1, 1, 1),
    Command::new("dump", 2, READONLY, "2.6.0", "Tells a value in Redis's own form", Data(objects::dump)).keys(1, 1, 1),
    Command::new("restore", -4, WRITE | DENYOOM, "2.6.0", "Sets a key to a value in Redis's own form", Data(objects::restore)).keys(1, 1, 1),
    Command::new("wait", 3, NOSCRIPT, "3.0.0", "Tells how many further processes are certain to have what the session wrote, at once", Local(waiting::wait)),
    Command::new("waitaof", 4, NOSCRIPT, "7.2.0", "Tells whether what the session wrote is synced to disk, here and on how many others, at once", Local(waiting::wait_for_log)),
    Command::new("expire", -3, WRITE | FAST, "1.0.0", "Sets the seconds a key has left to live", Data(expire)).keys(1, 1, 1),
    Command::new("pexpire", -3, WRITE | FAST, "2.6.0", "Sets the milliseconds a key has left to live", Data(pexpire)).keys(1, 1, 1),
    Command::new("expireat", -3, WRITE | FAST, "1.2.0", "Sets when a key expires, in seconds since 1970", Data(expire_at)).keys(1, 1, 1),
    Command::new("pexpireat", -3, WRITE | FAST, "2.6.0", "Sets when a key expires, in milliseconds since 1970", Data(pexpire_at)).keys(1, 1, 1),
    Command::new("ttl", 2, READONLY | FAST, "1.0.0", "Tells the seconds a key has left to live", Data(ttl)).keys(1, 1, 1),
    Command::new("pttl", 2, READONLY | FAST, "2.6.0", "Tells the milliseconds a key has left to live", Data(pttl)).keys(1, 1, 1),
    Command::new("expiretime", 2, READONLY | FAST, "7.0.0", "Tells when a key expires, in seconds since 1970", Data(expire_time)).keys(1, 1, 1),
    Command::new("pexpiretime", 2, READONLY | FAST, "7.0.0", "Tells when a key expires, in milliseconds since 1970", Data(pexpire_time)).keys(1, 1, 1),
    Command::new("persist", 2, WRITE | FAST, "2.2.0", "Lets a key live for ever", Data(persist)).keys(1, 1, 1),
];

fn delete<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.each(Operation::Key(key::Operation::Delete), Combine::Sum)
}

fn exists<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.each(Operation::Key(key::Operation::Exists), Combine::Sum)
}

fn kind<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Type))
}

fn keys<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (pattern, piece) = (Pattern::for_many(call.bytes(1))?, call.scan_piece);
    Ok(Plan::Dialogue(Dialogue::Keys { pattern, cursor: 0, piece, found: BTreeSet::new() }))
}

fn scan<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let cursor = std::str::from_utf8(call.bytes(1)).ok().and_then(|text| text.parse().ok());
    let cursor = cursor.ok_or_else(|| Error::err("invalid cursor"))?;
    let mut scan = Scan { cursor, count: 10, pattern: None, kind: None, visited: None };
    for index in (2..call.len()).step_by(2) {
        if index + 1 == call.len() {
            return Err(Error::syntax());
        }
        if call.is(index, "COUNT") {
            let count = call.integer(index + 1)?;
            if count < 1 {
                return Err(Error::syntax());
            }
            scan.count = count.min(MAX_SCAN_COUNT) as u32;
        } else if call.is(index, "MATCH") {
            scan.pattern = Some(Pattern::for_many(call.bytes(index + 1))?);
        } else if call.is(index, "TYPE") {
            scan.kind = Some(call.bytes(index + 1).to_ascii_lowercase().into());
        } else {
            return Err(Error::syntax());
        }
    }
    Ok(Plan::Dialogue(Dialogue::Scan(scan)))
}

fn random_key<'a>(_call: &Call<'a>) -> Result<Plan<'a>, Error> {
    Ok(Plan::Dialogue(Dialogue::RandomKey(RandomKey::default())))
}

fn rename<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (from, to) = (call.bytes(1), call.bytes(2));
    if from == to {
        let step = Step::Key(call.on(from, Operation::Key(key::Operation::Exists)));
        return Ok(Plan::Many { steps: vec![step], combine: Combine::MustExist });
    }
    Ok(Plan::Dialogue(Dialogue::Rename { from: from.into(), to: to.into(), taken: None }))
}

fn expire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1000, call.now_millis)
}

fn pexpire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1, call.now_millis)
}

fn expire_at<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1000, 0)
}

fn pexpire_at<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1, 0)
}

fn set_deadline<'a>(call: &Call<'a>, unit_millis: i64, base_millis: u64) -> Result<Plan<'a>, Error> {
    let condition = expire_condition(call)?;
    let time = call.integer(2)?.checked_mul(unit_millis);
    let at =
        time.and_then(|time| time.checked_add(base_millis as i64)).ok_or_else(|| call.invalid_expiry())?;
    // A time in the past is like any other, and is one for whoever evaluates this too: a transaction has the time at
    // which it began.
    let at_millis = u64::try_from(at).ok().filter(|at| *at > call.now_millis).unwrap_or(0);
    call.one(Operation::Key(key::Operation::ExpireAt { at_millis, condition }))
}

fn expire_condition(call: &Call<'_>) -> Result<ExpireCondition, Error> {
    let mut condition = ExpireCondition::default();
    for index in 3..call.len() {
        match () {
            () if call.is(index, "NX") => condition.if_none = true,
            () if call.is(index, "XX") => condition.if_some = true,
            () if call.is(index, "GT") => condition.if_later = true,
            () if call.is(index, "LT") => condition.if_earlier = true,
            () => return Err(Error::err(format!("Unsupported option {}", lossy(call.bytes(index))))),
        }
    }
    if condition.if_none && (condition.if_some || condition.if_later || condition.if_earlier) {
        return Err(Error::err("NX and XX, GT or LT options at the same time are not compatible"));
    }
    if condition.if_later && condition.if_earlier {
        return Err(Error::err("GT and LT options at the same time are not compatible"));
    }
    Ok(condition)
}

fn ttl<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Deadline(TimeFormat::SecondsLeft)))
}

fn pttl<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Deadline(TimeFormat::MillisLeft)))
}

fn expire_time<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Deadline(TimeFormat::SecondsAt)))
}

fn pexpire_time<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Deadline(TimeFormat::MillisAt)))
}

fn persist<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Persist))
}

/// DBSIZE
pub(crate) fn count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.step(Step::Count)
}

/// FLUSHDB
pub(crate) fn flush<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    check_flush_mode(call)?;
    call.step(Step::Flush)
}

/// FLUSHDB and FLUSHALL take `ASYNC` or `SYNC`, which make no difference here.
///
/// # Errors
/// They were given something else.
pub(crate) fn check_flush_mode(call: &Call<'_>) -> Result<(), Error> {
    let known = call.len() == 1 || (call.len() == 2 && (call.is(1, "ASYNC") || call.is(1, "SYNC")));
    if known { Ok(()) } else { Err(Error::syntax()) }
}
