//! Commands on strings: registers.

use super::subsequence;
use crate::combine::Combine;
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data, wrong_arity};
use crate::turns::{self, On, Turns, first_error};
use datatypes::register::{self, Condition, Deadline, LongDouble, Parsed, SetReply};
use datatypes::{Operation, key};
use protocol::Step;
use types::{Error, Reply, ReplyBuf, ReplySink};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("get", 2, READONLY | FAST, "1.0.0", "Reads the string of a key", Data(get)).keys(1, 1, 1),
    Command::new("set", -3, WRITE | DENYOOM, "1.0.0", "Writes the string of a key, whatever it held", Data(set)).keys(1, 1, 1),
    Command::new("mget", -2, READONLY | FAST, "1.0.0", "Reads the strings of several keys, as one transaction", Data(get_many)).keys(1, -1, 1),
    Command::new("mset", -3, WRITE | DENYOOM, "1.0.1", "Writes the strings of several keys, as one transaction", Data(set_many)).keys(1, -1, 2),
    Command::new("setnx", 3, WRITE | DENYOOM | FAST, "1.0.0", "Writes the string of a key that does not exist", Data(set_if_absent)).keys(1, 1, 1),
    Command::new("setex", 4, WRITE | DENYOOM, "2.0.0", "Writes the string of a key and the seconds it has to live", Data(set_seconds)).keys(1, 1, 1),
    Command::new("psetex", 4, WRITE | DENYOOM, "2.6.0", "Writes the string of a key and the milliseconds it has to live", Data(set_millis)).keys(1, 1, 1),
    Command::new("getset", 3, WRITE | DENYOOM | FAST, "1.0.0", "Writes the string of a key and replies with the old one", Data(get_and_set)).keys(1, 1, 1),
    Command::new("getdel", 2, WRITE | FAST, "6.2.0", "Reads the string of a key and deletes the key", Data(get_and_delete)).keys(1, 1, 1),
    Command::new("append", 3, WRITE | DENYOOM | FAST, "2.0.0", "Appends to the string of a key", Data(append)).keys(1, 1, 1),
    Command::new("strlen", 2, READONLY | FAST, "2.2.0", "Tells the length of the string of a key", Data(length)).keys(1, 1, 1),
    Command::new("getex", -2, WRITE | FAST, "6.2.0", "Reads the string of a key and changes when it expires", Data(get_and_expire)).keys(1, 1, 1),
    Command::new("getrange", 4, READONLY, "2.4.0", "Reads a part of the string of a key", Data(range)).keys(1, 1, 1),
    Command::new("substr", 4, READONLY, "1.0.0", "Reads a part of the string of a key", Data(range)).keys(1, 1, 1),
    Command::new("setrange", 4, WRITE | DENYOOM, "2.2.0", "Writes over a part of the string of a key", Data(set_range)).keys(1, 1, 1),
    Command::new("msetnx", -3, WRITE | DENYOOM, "1.0.1", "Writes the strings of several keys if none of them exists", Data(set_many_if_absent)).keys(1, -1, 2),
    Command::new("lcs", -3, READONLY, "7.0.0", "Finds the longest common subsequence of two strings", Data(subsequence::plan)).keys(1, 2, 1),
    Command::new("incr", 2, WRITE | DENYOOM | FAST, "1.0.0", "Adds one to the integer of a key", Data(increment)).keys(1, 1, 1),
    Command::new("decr", 2, WRITE | DENYOOM | FAST, "1.0.0", "Subtracts one from the integer of a key", Data(decrement)).keys(1, 1, 1),
    Command::new("incrby", 3, WRITE | DENYOOM | FAST, "1.0.0", "Adds to the integer of a key", Data(increment_by)).keys(1, 1, 1),
    Command::new("decrby", 3, WRITE | DENYOOM | FAST, "1.0.0", "Subtracts from the integer of a key", Data(decrement_by)).keys(1, 1, 1),
    Command::new("incrbyfloat", 3, WRITE | DENYOOM | FAST, "2.6.0", "Adds to the floating-point number of a key", Data(increment_float)).keys(1, 1, 1),
];

fn get<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Register(register::Operation::Get))
}

fn set<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = if call.len() == 3 { SetOptions::default() } else { SetOptions::parse(call, 3)? };
    if options.persist {
        return Err(Error::syntax());
    }
    let condition = options.condition.unwrap_or(Condition::Always);
    let reply = if options.get { SetReply::Old } else { SetReply::Status };
    call.one(write(call.bytes(2), options.deadline.unwrap_or(Deadline::Clear), condition, reply))
}

/// What follows the value of a SET, or the key of a GETEX.
#[derive(Default)]
struct SetOptions {
    deadline: Option<Deadline>,
    /// The option that set the deadline, which may be repeated but not joined by another.
    deadline_option: Option<&'static str>,
    condition: Option<Condition>,
    get: bool,
    /// PERSIST, which only GETEX takes.
    persist: bool,
}

impl SetOptions {
    fn parse(call: &Call<'_>, from: usize) -> Result<Self, Error> {
        const UNITS: [(&str, i64, bool); 4] =
            [("EX", 1000, true), ("PX", 1, true), ("EXAT", 1000, false), ("PXAT", 1, false)];
        let mut options = SetOptions::default();
        let mut time = None;
        let mut index = from;
        while index < call.len() {
            let unit = UNITS.into_iter().find(|(name, ..)| call.is(index, name));
            if let Some((name, unit_millis, relative)) = unit {
                options.choose_deadline(name)?;
                if index + 1 == call.len() {
                    return Err(Error::syntax());
                }
                time = Some((index + 1, unit_millis, relative));
                index += 1;
            } else if call.is(index, "KEEPTTL") {
                options.choose_deadline("KEEPTTL")?;
                options.deadline = Some(Deadline::Keep);
            } else if call.is(index, "PERSIST") {
                options.choose_deadline("PERSIST")?;
                options.persist = true;
            } else if call.is(index, "GET") {
                options.get = true;
            } else if call.is(index, "NX") && options.condition != Some(Condition::IfPresent) {
                options.condition = Some(Condition::IfAbsent);
            } else if call.is(index, "XX") && options.condition != Some(Condition::IfAbsent) {
                options.condition = Some(Condition::IfPresent);
            } else {
                return Err(Error::syntax());
            }
            index += 1;
        }
        // The time itself is looked at when the syntax is known to be right.
        if let Some((index, unit_millis, relative)) = time {
            options.deadline = Some(deadline(call, index, unit_millis, relative)?);
        }
        Ok(options)
    }

    fn choose_deadline(&mut self, option: &'static str) -> Result<(), Error> {
        if self.deadline_option.is_some_and(|chosen| chosen != option) {
            return Err(Error::syntax());
        }
        self.deadline_option = Some(option);
        Ok(())
    }
}

/// The deadline that an argument gives: a time from now or since 1970.
fn deadline(call: &Call<'_>, index: usize, unit_millis: i64, relative: bool) -> Result<Deadline, Error> {
    let time = call.integer(index)?;
    let base = if relative { call.now_millis as i64 } else { 0 };
    let millis = time.checked_mul(unit_millis).and_then(|millis| millis.checked_add(base));
    match millis {
        Some(millis) if time > 0 => Ok(Deadline::At { millis: millis as u64 }),
        _ => Err(call.invalid_expiry()),
    }
}

fn write(value: &[u8], deadline: Deadline, condition: Condition, reply: SetReply) -> Operation<'_> {
    Operation::Register(register::Operation::Set { value, deadline, condition, reply })
}

fn get_many<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.each(Operation::Register(register::Operation::Get), Combine::Array)
}

fn set_many<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if call.len().is_multiple_of(2) {
        return Err(wrong_arity(call.command));
    }
    let step = |index| {
        let value = call.bytes(index + 1);
        let operation = write(value, Deadline::Clear, Condition::Always, SetReply::Status);
        Step::Key(call.on(call.bytes(index), operation))
    };
    let steps = (1..call.len()).step_by(2).map(step).collect();
    Ok(Plan::Many { steps, combine: Combine::Status })
}

fn set_if_absent<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(write(call.bytes(2), Deadline::Clear, Condition::IfAbsent, SetReply::Flag))
}

fn set_seconds<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(write(call.bytes(3), deadline(call, 2, 1000, true)?, Condition::Always, SetReply::Status))
}

fn set_millis<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(write(call.bytes(3), deadline(call, 2, 1, true)?, Condition::Always, SetReply::Status))
}

fn get_and_set<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(write(call.bytes(2), Deadline::Clear, Condition::Always, SetReply::Old))
}

fn get_and_delete<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Register(register::Operation::GetDelete))
}

fn get_and_expire<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = SetOptions::parse(call, 2)?;
    let at_millis = match options.deadline {
        _ if options.get || options.condition.is_some() => return Err(Error::syntax()),
        Some(Deadline::At { millis }) => millis,
        Some(Deadline::Keep | Deadline::Clear) => return Err(Error::syntax()),
        None if options.persist => 0,
        None => return get(call),
    };
    call.one(Operation::Key(key::Operation::GetAndExpire { at_millis }))
}

fn range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (start, end) = (call.integer(2)?, call.integer(3)?);
    call.one(Operation::Register(register::Operation::GetRange { start, end }))
}

fn set_range<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let value = call.bytes(3);
    let offset = u64::try_from(call.integer(2)?).map_err(|_| Error::err("offset is out of range"))?;
    let fits = offset.checked_add(value.len() as u64).is_some_and(|end| end <= register::MAX_BYTES as u64);
    // Nothing is written nowhere.
    let offset = if value.is_empty() { 0 } else { offset };
    if !fits && !value.is_empty() {
        return Err(Error::err("string exceeds maximum allowed size (proto-max-bulk-len)"));
    }
    call.one(Operation::Register(register::Operation::SetRange { offset, value }))
}

fn increment_float<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let by = match LongDouble::parse(call.bytes(2)) {
        Some(Parsed::Finite(by)) => by,
        Some(Parsed::Infinite) => return Err(Error::err("increment would produce NaN or Infinity")),
        None => return Err(Error::err("value is not a valid float")),
    };
    call.one(Operation::Register(register::Operation::IncrementFloat { by }))
}

fn set_many_if_absent<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if call.len().is_multiple_of(2) {
        return Err(wrong_arity(call.command));
    }
    let pairs = (1..call.len()).step_by(2).map(|index| [call.bytes(index), call.bytes(index + 1)]);
    Ok(turns::plan(WriteIfAbsent { pairs: pairs.map(|pair| pair.map(Into::into)).collect(), absent: false }))
}

/// MSETNX: asks whether any of the keys exists, and writes if none does.
#[derive(Debug)]
struct WriteIfAbsent {
    /// Keys and values.
    pairs: Vec<[Box<[u8]>; 2]>,
    /// None of the keys exists.
    absent: bool,
}

impl Turns for WriteIfAbsent {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let operation = |value| match self.absent {
            true => write(value, Deadline::Clear, Condition::Always, SetReply::Status),
            false => Operation::Key(key::Operation::Exists),
        };
        self.pairs.iter().map(|[key, value]| on.key(key, operation(value))).collect()
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        let exists = !self.absent && reply.elements().any(|element| element == Reply::Integer(1));
        let done = self.absent || exists;
        if done {
            sink.integer(self.absent.into());
        }
        self.absent = true;
        done
    }
}

fn append<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Register(register::Operation::Append { value: call.bytes(2) }))
}

fn length<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Register(register::Operation::Length))
}

fn add<'a>(call: &Call<'a>, by: i64) -> Result<Plan<'a>, Error> {
    call.one(Operation::Register(register::Operation::Increment { by }))
}

fn increment<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    add(call, 1)
}

fn decrement<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    add(call, -1)
}

fn increment_by<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    add(call, call.integer(2)?)
}

fn decrement_by<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let by = call.integer(2)?.checked_neg().ok_or_else(|| Error::err("decrement would overflow"))?;
    add(call, by)
}
