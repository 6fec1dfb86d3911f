//! Commands on HyperLogLogs: strings that tell about how many different elements were added to them.

use super::whole_strings::{self, Outcome};
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, READONLY, WRITE};
use crate::table::{Command, Handler::Data};
use datatypes::Operation::Register;
use datatypes::register::hyperloglog::{Fault, Registers, of_elements};
use datatypes::register::{Operation, UnionReply};
use std::borrow::Cow;
use types::{Error, ReplyBuf, ReplySink};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("pfadd", -2, WRITE | DENYOOM | FAST, "2.8.9", "Adds elements to a HyperLogLog", Data(add)).keys(1, 1, 1),
    Command::new("pfcount", -2, READONLY, "2.8.9", "Tells about how many different elements were added to HyperLogLogs, together", Data(count)).keys(1, -1, 1),
    Command::new("pfmerge", -2, WRITE | DENYOOM, "2.8.9", "Adds to a HyperLogLog what was added to others", Data(merge)).keys(1, -1, 1),
];

fn add<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let with = of_elements(call.arguments.iter().skip(2)).into();
    call.one(Register(Operation::Unite { with, reply: UnionReply::Changed }))
}

fn count<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if call.len() == 2 {
        return call.one(Register(Operation::CountDistinct));
    }
    let keys = call.arguments.iter().skip(1);
    Ok(whole_strings::compute(keys, None, Error::wrong_type(), |strings| {
        let mut reply = ReplyBuf::new();
        reply.integer(union(strings).map_err(Fault::error)?.count() as i64);
        Ok(Outcome::Reply(reply))
    }))
}

fn merge<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    if call.len() == 2 {
        let with = Cow::Owned(Registers::default().encode());
        return call.one(Register(Operation::Unite { with, reply: UnionReply::Status }));
    }
    let keys = call.arguments.iter().skip(2);
    Ok(whole_strings::compute(keys, Some(call.bytes(1)), Error::wrong_type(), |strings| {
        Ok(Outcome::Unite(union(strings).map_err(Fault::error)?.encode()))
    }))
}

fn union(strings: &[Option<&[u8]>]) -> Result<Registers, Fault> {
    let mut all = Registers::default();
    for string in strings.iter().flatten() {
        all.unite(&Registers::parse(string)?);
    }
    Ok(all)
}
