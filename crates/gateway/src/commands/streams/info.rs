//! XINFO.

use crate::commands::streams::count_or_zero;
use crate::describe::unknown_subcommand;
use crate::plan::{Call, Plan};
use datatypes::Operation::Stream;
use datatypes::stream::Operation;
use types::Error;

/// How many entries `XINFO STREAM key FULL` lists.
const LISTED: u64 = 10;

fn on_key<'a>(call: &Call<'a>, operation: Operation<'a>) -> Result<Plan<'a>, Error> {
    Ok(Plan::One(call.on(call.bytes(2), Stream(operation))))
}

/// XINFO STREAM
pub(super) fn stream<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    match call.len() {
        3 => on_key(call, Operation::Describe),
        4 if call.is(3, "FULL") => on_key(call, Operation::DescribeAll { count: LISTED }),
        6 if call.is(3, "FULL") && call.is(4, "COUNT") => {
            let count = if call.integer(5)? < 0 { LISTED } else { count_or_zero(call, 5)? };
            on_key(call, Operation::DescribeAll { count })
        }
        _ => Err(unknown_subcommand(call)),
    }
}

/// XINFO GROUPS
pub(super) fn groups<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    on_key(call, Operation::DescribeGroups)
}

/// XINFO CONSUMERS
pub(super) fn consumers<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    on_key(call, Operation::DescribeConsumers { key: call.bytes(2), group: call.bytes(3) })
}
