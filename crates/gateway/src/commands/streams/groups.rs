//! XGROUP.

use crate::describe::unknown_subcommand;
use crate::plan::{Call, Plan};
use datatypes::Operation::Stream;
use datatypes::stream::{Operation, Start, StreamId};
use types::Error;

fn on_key<'a>(call: &Call<'a>, operation: Operation<'a>) -> Result<Plan<'a>, Error> {
    Ok(Plan::One(call.on(call.bytes(2), Stream(operation))))
}

/// MKSTREAM and ENTRIESREAD.
fn options(call: &Call<'_>, may_create: bool) -> Result<(bool, Option<u64>), Error> {
    let (mut create, mut read, mut at) = (false, None, 5);
    while at < call.len() {
        match () {
            () if may_create && call.is(at, "MKSTREAM") => create = true,
            () if call.is(at, "ENTRIESREAD") && at + 1 < call.len() => {
                at += 1;
                read = match call.integer(at)? {
                    -1 => None,
                    ..-1 => return Err(Error::err("value for ENTRIESREAD must be positive or -1")),
                    read => Some(read as u64),
                };
            }
            () => return Err(unknown_subcommand(call)),
        }
        at += 1;
    }
    Ok((create, read))
}

fn start(call: &Call<'_>, strict: bool) -> Result<Start, Error> {
    Ok(match call.bytes(4) {
        b"$" => Start::Last,
        text if strict => Start::After { id: StreamId::parse(text, 0)? },
        text => Start::After { id: StreamId::parse_bound(text, 0)? },
    })
}

/// XGROUP CREATE
pub(super) fn create<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (create, read) = options(call, true)?;
    let (group, start) = (call.bytes(3), start(call, true)?);
    on_key(call, Operation::CreateGroup { group, start, read, create })
}

/// XGROUP SETID
pub(super) fn set<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (_, read) = options(call, false)?;
    let (key, group, start) = (call.bytes(2), call.bytes(3), start(call, false)?);
    on_key(call, Operation::SetGroup { key, group, start, read })
}

/// XGROUP DESTROY
pub(super) fn destroy<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    on_key(call, Operation::DestroyGroup { group: call.bytes(3) })
}

/// XGROUP CREATECONSUMER
pub(super) fn create_consumer<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (key, group, consumer) = (call.bytes(2), call.bytes(3), call.bytes(4));
    on_key(call, Operation::CreateConsumer { key, group, consumer })
}

/// XGROUP DELCONSUMER
pub(super) fn delete_consumer<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let (key, group, consumer) = (call.bytes(2), call.bytes(3), call.bytes(4));
    on_key(call, Operation::DeleteConsumer { key, group, consumer })
}
