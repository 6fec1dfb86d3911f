//! Commands on the deadlines of a hash's fields.

use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data, lossy, wrong_arity};
use datatypes::Items;
use datatypes::Operation::Dict;
use datatypes::collections::MAX_DEADLINE;
use datatypes::dict::{Operation, PutCondition};
use datatypes::key::{ExpireCondition, TimeFormat};
use datatypes::register::Deadline;
use resp::parse_integer;
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("hexpire", -6, WRITE | DENYOOM | FAST, "7.4.0", "Sets the seconds fields have left to live", Data(expire)).keys(1, 1, 1),
    Command::new("hpexpire", -6, WRITE | DENYOOM | FAST, "7.4.0", "Sets the milliseconds fields have left to live", Data(pexpire)).keys(1, 1, 1),
    Command::new("hexpireat", -6, WRITE | DENYOOM | FAST, "7.4.0", "Sets when fields expire, in seconds since 1970", Data(expire_at)).keys(1, 1, 1),
    Command::new("hpexpireat", -6, WRITE | DENYOOM | FAST, "7.4.0", "Sets when fields expire, in milliseconds since 1970", Data(pexpire_at)).keys(1, 1, 1),
    Command::new("httl", -5, READONLY | FAST, "7.4.0", "Tells the seconds fields have left to live", Data(ttl)).keys(1, 1, 1),
    Command::new("hpttl", -5, READONLY | FAST, "7.4.0", "Tells the milliseconds fields have left to live", Data(pttl)).keys(1, 1, 1),
    Command::new("hexpiretime", -5, READONLY | FAST, "7.4.0", "Tells when fields expire, in seconds since 1970", Data(expire_time)).keys(1, 1, 1),
    Command::new("hpexpiretime", -5, READONLY | FAST, "7.4.0", "Tells when fields expire, in milliseconds since 1970", Data(pexpire_time)).keys(1, 1, 1),
    Command::new("hpersist", -5, WRITE | FAST, "7.4.0", "Lets fields live for ever", Data(persist)).keys(1, 1, 1),
    Command::new("hgetex", -5, WRITE | FAST, "8.0.0", "Reads fields of a hash and sets or drops their deadlines", Data(get_and_expire)).keys(1, 1, 1),
    Command::new("hgetdel", -5, WRITE | FAST, "8.0.0", "Reads fields of a hash and deletes them", Data(get_and_delete)).keys(1, 1, 1),
    Command::new("hsetex", -6, WRITE | DENYOOM | FAST, "8.0.0", "Writes fields of a hash with a deadline", Data(set_and_expire)).keys(1, 1, 1),
];

/// The words that give a deadline: how many milliseconds the unit has, and whether it counts from now.
const TIMES: [(&str, i64, bool); 4] =
    [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)];

const NOT_POSITIVE: &str = "Number of fields must be a positive integer";

/// An argument as a deadline, in milliseconds since 1970. One that has passed is one for whoever evaluates this, too.
fn deadline(call: &Call<'_>, index: usize, unit_millis: i64, relative: bool) -> Result<u64, Error> {
    let time = call.integer(index)?;
    if time < 0 {
        return Err(Error::err("invalid expire time, must be >= 0"));
    }
    let base = if relative { call.now_millis as i64 } else { 0 };
    let at = time.checked_mul(unit_millis).and_then(|time| time.checked_add(base));
    let at = at.and_then(|at| u64::try_from(at).ok()).filter(|at| *at <= MAX_DEADLINE);
    // 0 says that there is no deadline.
    at.map(|at| if at <= call.now_millis { 1 } else { at }).ok_or_else(|| call.invalid_expiry())
}

/// The fields behind the word FIELDS, which stands at `index`, and their number.
fn fields<'a>(call: &Call<'a>, index: usize, not_positive: &'static str) -> Result<Items<'a>, Error> {
    if !call.is(index, "FIELDS") {
        return Err(Error::err("Mandatory argument FIELDS is missing or not at the right position"));
    }
    let count = (index + 1 < call.len()).then(|| parse_integer(call.bytes(index + 1))).flatten();
    let count = count.and_then(|count| usize::try_from(count).ok()).filter(|count| *count > 0);
    let count = count.ok_or_else(|| Error::err(not_positive))?;
    if count != call.len() - index - 2 {
        return Err(Error::err("The `numfields` parameter must match the number of arguments"));
    }
    Ok(call.items(index + 2))
}

fn set_deadline<'a>(call: &Call<'a>, unit_millis: i64, relative: bool) -> Result<Plan<'a>, Error> {
    let at_millis = deadline(call, 2, unit_millis, relative)?;
    let mut condition = ExpireCondition::default();
    match () {
        () if call.is(3, "NX") => condition.if_none = true,
        () if call.is(3, "XX") => condition.if_some = true,
        () if call.is(3, "GT") => condition.if_later = true,
        () if call.is(3, "LT") => condition.if_earlier = true,
        () => {}
    }
    let index = if condition == ExpireCondition::default() { 3 } else { 4 };
    let fields = fields(call, index, "Parameter `numFields` should be greater than 0")?;
    call.one(Dict(Operation::ExpireAt { fields, at_millis, condition }))
}

fn expire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1000, true)
}

fn pexpire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1, true)
}

fn expire_at<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1000, false)
}

fn pexpire_at<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    set_deadline(call, 1, false)
}

fn deadlines<'a>(call: &Call<'a>, format: TimeFormat) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Deadlines { fields: fields(call, 2, NOT_POSITIVE)?, format }))
}

fn ttl<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    deadlines(call, TimeFormat::SecondsLeft)
}

fn pttl<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    deadlines(call, TimeFormat::MillisLeft)
}

fn expire_time<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    deadlines(call, TimeFormat::SecondsAt)
}

fn pexpire_time<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    deadlines(call, TimeFormat::MillisAt)
}

fn persist<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::Persist { fields: fields(call, 2, NOT_POSITIVE)? }))
}

fn get_and_expire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if let Some((_, unit_millis, relative)) = TIMES.into_iter().find(|(word, ..)| call.is(2, word)) {
        let at_millis = deadline(call, 3, unit_millis, relative)?;
        let fields = fields(call, 4, NOT_POSITIVE)?;
        return call.one(Dict(Operation::GetAndExpire { fields, at_millis }));
    }
    if call.is(2, "PERSIST") {
        let fields = fields(call, 3, NOT_POSITIVE)?;
        return call.one(Dict(Operation::GetAndExpire { fields, at_millis: 0 }));
    }
    call.one(Dict(Operation::GetMany { fields: fields(call, 2, NOT_POSITIVE)? }))
}

fn get_and_delete<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Dict(Operation::GetAndDelete { fields: fields(call, 2, NOT_POSITIVE)? }))
}

fn set_and_expire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (mut condition, mut deadline_chosen) = (None, None);
    let mut index = 2;
    while index < call.len() {
        let time = TIMES.into_iter().find(|(word, ..)| call.is(index, word));
        if call.is(index, "FIELDS") {
            let pairs = pairs(call, index)?;
            let condition = condition.unwrap_or(PutCondition::Always);
            let deadline = deadline_chosen.unwrap_or(Deadline::Clear);
            return call.one(Dict(Operation::PutUntil { pairs, condition, deadline }));
        } else if time.is_some() || call.is(index, "KEEPTTL") {
            if deadline_chosen.is_some() {
                let text = "Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified";
                return Err(Error::err(text));
            }
            let mut chosen = Deadline::Keep;
            if let Some((_, unit_millis, relative)) = time {
                index += 1;
                if index == call.len() {
                    return Err(Error::err("missing expire time"));
                }
                chosen = Deadline::At { millis: deadline(call, index, unit_millis, relative)? };
            }
            deadline_chosen = Some(chosen);
        } else if call.is(index, "FNX") || call.is(index, "FXX") {
            if condition.is_some() {
                return Err(Error::err("Only one of FXX or FNX arguments can be specified"));
            }
            let is_absent = call.is(index, "FNX");
            condition = Some(if is_absent { PutCondition::IfAbsent } else { PutCondition::IfPresent });
        } else {
            return Err(Error::err(format!("unknown argument: {}", lossy(call.bytes(index)))));
        }
        index += 1;
    }
    Err(wrong_arity(call.command))
}

/// The fields and values behind the word FIELDS, which stands at `index`, and their number.
fn pairs<'a>(call: &Call<'a>, index: usize) -> Result<Items<'a>, Error> {
    if index + 3 >= call.len() {
        return Err(wrong_arity(call.command));
    }
    let count =
        parse_integer(call.bytes(index + 1)).filter(|count| (1..=i64::from(i32::MAX)).contains(count));
    let count = count.ok_or_else(|| Error::err("invalid number of fields"))?;
    if 2 * count as usize != call.len() - index - 2 {
        return Err(wrong_arity(call.command));
    }
    Ok(call.items(index + 2))
}
