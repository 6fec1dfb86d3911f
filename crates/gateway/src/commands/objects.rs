//! What OBJECT tells of keys, and their values in Redis's own form: DUMP and RESTORE.

use crate::combine::Combine;
use crate::describe;
use crate::plan::{Call, Plan};
use crate::table::flag::{LOADING, READONLY, STALE};
use crate::table::{Command, Handler::Data, Handler::Local};
use crate::turns;
use datatypes::dump::{self, Refusal};
use datatypes::key::{self, ObjectField};
use datatypes::{Cell, Operation};
use protocol::Step;
use types::Error;

/// The table's entries of OBJECT.
#[rustfmt::skip]
pub(crate) static OBJECT: &[Command] = &[
    Command::new("object|encoding", 3, READONLY, "2.2.3", "Tells how Redis would store the value", Data(encoding)).keys(2, 2, 1),
    Command::new("object|freq", 3, READONLY, "4.0.0", "Refuses to tell how often the key is used: that is not kept", Data(frequency)).keys(2, 2, 1),
    Command::new("object|idletime", 3, READONLY, "2.2.3", "Refuses to tell since when the key is not used: that is not kept", Data(idle_time)).keys(2, 2, 1),
    Command::new("object|refcount", 3, READONLY, "2.2.3", "Tells how many keys share the value: 1", Data(references)).keys(2, 2, 1),
    Command::new("object|help", 2, LOADING | STALE, "6.2.0", "Lists the subcommands", Local(describe::help)),
];

fn encoding<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    object(call, ObjectField::Encoding)
}

fn frequency<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    object(call, ObjectField::Frequency)
}

fn idle_time<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    object(call, ObjectField::IdleTime)
}

fn references<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    object(call, ObjectField::References)
}

fn object<'a>(call: &Call<'a>, field: ObjectField) -> Result<Plan<'a>, Error> {
    Ok(Plan::One(call.on(call.bytes(2), Operation::Key(key::Operation::Object(field)))))
}

/// DUMP
pub(crate) fn dump<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(Operation::Key(key::Operation::Dump))
}

/// RESTORE
pub(crate) fn restore<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = RestoreOptions::read(call)?;
    let expires_at = deadline(call, options.absolute)?;
    let value = dump::decode(call.bytes(3)).map_err(|refusal| match refusal {
        Refusal::Footer => Error::err("DUMP payload version or checksum are wrong"),
        Refusal::Format | Refusal::Type => Error::err("Bad data format"),
    })?;
    let restored = Cell { value: Some(value), expires_at };
    if restored.is_expired(call.now_millis) {
        // It has expired already: nothing is left to write.
        let (operation, combine) = match options.replace {
            true => (key::Operation::Delete, Combine::Status),
            false => (key::Operation::Exists, Combine::MustBeAbsent),
        };
        let step = Step::Key(call.on(call.bytes(1), Operation::Key(operation)));
        return Ok(Plan::Many { steps: vec![step], combine });
    }
    let cell = turns::encoded(&restored.living(call.now_millis))?;
    call.one(Operation::Key(match options.replace {
        true => key::Operation::Restore(cell.into()),
        false => key::Operation::RestoreAbsent(cell.into()),
    }))
}

/// When the restored key expires, in milliseconds since 1970; 0 for never.
fn deadline(call: &Call<'_>, absolute: bool) -> Result<u64, Error> {
    let invalid = || Error::err("Invalid TTL value, must be >= 0");
    let millis = u64::try_from(call.integer(2)?).map_err(|_| invalid())?;
    if absolute || millis == 0 {
        return Ok(millis);
    }
    let at = millis.checked_add(call.now_millis).filter(|at| i64::try_from(*at).is_ok());
    at.ok_or_else(invalid)
}

/// The options of RESTORE, without key and value. How long the key was idle, or how often it was used, is checked and
/// forgotten.
#[derive(Debug, Default)]
struct RestoreOptions {
    replace: bool,
    absolute: bool,
}

impl RestoreOptions {
    fn read(call: &Call<'_>) -> Result<Self, Error> {
        let (mut options, mut index) = (RestoreOptions::default(), 4);
        let (mut idle, mut frequent) = (false, false);
        while index < call.len() {
            let has_value = index + 1 < call.len();
            if call.is(index, "REPLACE") {
                options.replace = true;
            } else if call.is(index, "ABSTTL") {
                options.absolute = true;
            } else if call.is(index, "IDLETIME") && has_value && !frequent {
                index += 1;
                idle = true;
                check(call.integer(index)? >= 0, "Invalid IDLETIME value, must be >= 0")?;
            } else if call.is(index, "FREQ") && has_value && !idle {
                index += 1;
                frequent = true;
                let fits = (0..=255).contains(&call.integer(index)?);
                check(fits, "Invalid FREQ value, must be >= 0 and <= 255")?;
            } else {
                return Err(Error::syntax());
            }
            index += 1;
        }
        Ok(options)
    }
}

fn check(valid: bool, text: &'static str) -> Result<(), Error> {
    if valid { Ok(()) } else { Err(Error::err(text)) }
}
