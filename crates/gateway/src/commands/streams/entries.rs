//! XADD and what else is done to entries.

use crate::commands::streams::count_or_zero;
use crate::plan::{Call, Plan};
use crate::table::wrong_arity;
use datatypes::Operation::Stream;
use datatypes::stream::{NewId, Operation, StreamId, Trim};
use types::Error;

/// How many entries a trimming that need not be exact removes, by default: 100 chunks of 100.
const MOST_TRIMMED: u64 = 10_000;

/// What stands before the id of XADD, or behind the key of XTRIM.
#[derive(Debug, Default)]
struct Options {
    only_if_exists: bool,
    trim: Option<Trim>,
    id: Option<NewId>,
}

/// Reads the options; returns the index of what follows them.
fn options(call: &Call<'_>, adds: bool) -> Result<(Options, usize), Error> {
    let mut options = Options::default();
    let (mut approximate, mut limit) = (false, None);
    let mut at = 2;
    while at < call.len() {
        let has_more = at + 1 < call.len();
        match () {
            () if adds && call.bytes(at) == b"*" => {
                options.id = Some(NewId::Next);
                break;
            }
            () if has_more && (call.is(at, "MAXLEN") || call.is(at, "MINID")) => {
                let by_length = call.is(at, "MAXLEN");
                if options.trim.is_some() {
                    let text = "syntax error, MAXLEN and MINID options at the same time are not compatible";
                    return Err(Error::err(text));
                }
                approximate = at + 2 < call.len() && call.bytes(at + 1) == b"~";
                at += 1 + usize::from(approximate || at + 2 < call.len() && call.bytes(at + 1) == b"=");
                options.trim = Some(strategy(call, at, by_length)?);
            }
            () if has_more && call.is(at, "LIMIT") => {
                at += 1;
                let given = u64::try_from(call.integer(at)?);
                limit = Some(given.map_err(|_| Error::err("The LIMIT argument must be >= 0."))?);
            }
            () if adds && call.is(at, "NOMKSTREAM") => options.only_if_exists = true,
            () if adds => {
                options.id = Some(given(call.bytes(at))?);
                break;
            }
            () => return Err(Error::syntax()),
        }
        at += 1;
    }
    check(&options, adds, approximate, limit)?;
    let about = approximate.then(|| limit.unwrap_or(MOST_TRIMMED));
    options.trim = options.trim.map(|trim| match trim {
        Trim::Length { length, .. } => Trim::Length { length, about },
        Trim::Id { id, .. } => Trim::Id { id, about },
    });
    Ok((options, at))
}

fn strategy(call: &Call<'_>, at: usize, by_length: bool) -> Result<Trim, Error> {
    if !by_length {
        return Ok(Trim::Id { id: StreamId::parse(call.bytes(at), 0)?, about: None });
    }
    let length = u64::try_from(call.integer(at)?);
    let length = length.map_err(|_| Error::err("The MAXLEN argument must be >= 0."))?;
    Ok(Trim::Length { length, about: None })
}

fn check(options: &Options, adds: bool, approximate: bool, limit: Option<u64>) -> Result<(), Error> {
    let refusal = match () {
        () if limit.is_some_and(|limit| limit > 0) && options.trim.is_none() => {
            "LIMIT cannot be used without specifying a trimming strategy"
        }
        () if !adds && options.trim.is_none() => "XTRIM must be called with a trimming strategy",
        () if limit.is_some() && !approximate => "LIMIT cannot be used without the special ~ option",
        () => return Ok(()),
    };
    Err(Error::err(format!("syntax error, {refusal}")))
}

/// An id, or `milliseconds-*`.
fn given(text: &[u8]) -> Result<NewId, Error> {
    match text.strip_suffix(b"-*") {
        Some(millis) if !millis.contains(&b'-') => {
            let millis = StreamId::parse(millis, 0)?.millis;
            Ok(NewId::Within { millis })
        }
        _ => Ok(NewId::Given { id: StreamId::parse(text, 0)? }),
    }
}

/// XADD
pub(super) fn add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (options, at) = options(call, true)?;
    // The id, then pairs.
    let is_whole = call.len() >= at + 3 && !(call.len() - at).is_multiple_of(2);
    let Some(id) = options.id.filter(|_| is_whole) else {
        return Err(wrong_arity(call.command));
    };
    if id == (NewId::Given { id: StreamId::ZERO }) {
        return Err(Error::err("The ID specified in XADD must be greater than 0-0"));
    }
    let Options { only_if_exists, trim, .. } = options;
    call.one(Stream(Operation::Add { id, items: call.items(at + 1), only_if_exists, trim }))
}

/// XTRIM
pub(super) fn trim<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let trim = options(call, false)?.0.trim.ok_or_else(Error::syntax)?;
    call.one(Stream(Operation::Trim { trim }))
}

/// XLEN
pub(super) fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Stream(Operation::Length))
}

/// XRANGE
pub(super) fn range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    within(call, (2, 3), false)
}

/// XREVRANGE
pub(super) fn range_back<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    within(call, (3, 2), true)
}

fn within<'a>(call: &Call<'a>, (start, end): (usize, usize), reverse: bool) -> Result<Plan<'a>, Error> {
    let (from, to) = (StreamId::parse_start(call.bytes(start))?, StreamId::parse_end(call.bytes(end))?);
    let mut count = None;
    for at in (4..call.len()).step_by(2) {
        if !call.is(at, "COUNT") || at + 1 == call.len() {
            return Err(Error::syntax());
        }
        count = Some(count_or_zero(call, at + 1)?);
    }
    call.one(Stream(Operation::Range { from, to, count, reverse }))
}

/// XDEL
pub(super) fn delete<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Stream(Operation::Delete { ids: call.items(2) }))
}

/// XSETID
pub(super) fn set_last<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let last = StreamId::parse(call.bytes(2), 0)?;
    let (mut added, mut max_deleted) = (None, None);
    for at in (3..call.len()).step_by(2) {
        match () {
            () if at + 1 == call.len() => return Err(Error::syntax()),
            () if call.is(at, "ENTRIESADDED") => {
                let given = u64::try_from(call.integer(at + 1)?);
                added = Some(given.map_err(|_| Error::err("entries_added must be positive"))?);
            }
            () if call.is(at, "MAXDELETEDID") => {
                let id = StreamId::parse(call.bytes(at + 1), 0)?;
                if last < id {
                    return Err(Error::err(
                        "The ID specified in XSETID is smaller than the provided max_deleted_entry_id",
                    ));
                }
                max_deleted = Some(id).filter(|id| *id != StreamId::ZERO);
            }
            () => return Err(Error::syntax()),
        }
    }
    call.one(Stream(Operation::SetLast { last, added, max_deleted }))
}
