//! Commands that give a value another key: RENAMENX and COPY; and MOVE and SWAPDB, which would leave the
//! keyspace.

use crate::acl::{User, may_choose};
use crate::combine::no_such_key;
use crate::control::Control;
use crate::host::Host;
use crate::plan::{Call, Plan};
use crate::turns::{On, Turns, first_error, plan};
use datatypes::{Operation, key};
use protocol::Step;
use std::borrow::Cow;
use types::{Error, ErrorCode, KeyspaceId, Reply, ReplyBuf, ReplySink};

/// RENAMENX
pub(crate) fn rename_absent<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    Ok(Transfer::plan(call, How::RenameAbsent))
}

/// COPY
pub(crate) fn copy<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let options = CopyOptions::read(call, |_| Ok(()))?;
    if call.bytes(1) == call.bytes(2) {
        return Err(same_objects());
    }
    Ok(Transfer::plan(call, if options.replace { How::CopyOver } else { How::CopyAbsent }))
}

fn same_objects() -> Error {
    Error::err("source and destination objects are the same")
}

/// The options of COPY.
#[derive(Debug, Default)]
struct CopyOptions {
    replace: bool,
    database: Option<i64>,
}

impl CopyOptions {
    /// Reads the options in order; `check` may refuse the number of a database.
    fn read(call: &Call<'_>, mut check: impl FnMut(i64) -> Result<(), Error>) -> Result<Self, Error> {
        let (mut options, mut index) = (CopyOptions::default(), 3);
        while index < call.len() {
            if call.is(index, "REPLACE") {
                options.replace = true;
            } else if call.is(index, "DB") && index + 1 < call.len() {
                index += 1;
                let number = database_number(call, index)?;
                check(number)?;
                options.database = Some(number);
            } else {
                return Err(Error::syntax());
            }
            index += 1;
        }
        Ok(options)
    }
}

/// Refuses COPY into another keyspace than the session's. Commands become plans without a look at the
/// process's keyspaces, so the check comes before.
///
/// # Errors
/// There is no such keyspace, or it is another one.
pub(crate) fn check_destination(
    call: &Call<'_>,
    user: &User,
    host: &mut dyn Host,
    keyspace: KeyspaceId,
) -> Result<(), Error> {
    let (command, arguments) = super::transactions::behind_prefix(call.command, call.arguments)?;
    if command.name != "copy" {
        return Ok(());
    }
    let call = Call { command, arguments, ..*call };
    let options = CopyOptions::read(&call, |number| keyspace_of(number, user, host).map(drop))?;
    let Some(number) = options.database else {
        return Ok(());
    };
    if keyspace_of(number, user, host)? == keyspace {
        return Ok(());
    }
    Err(cross_keyspace(
        "COPY writes the keyspace that it reads; DUMP the value and RESTORE it in the other keyspace",
    ))
}

/// The number of a database that an argument is; whether it exists is not checked.
///
/// # Errors
/// It is no integer, or none of 32 bits.
pub(super) fn database_number(call: &Call<'_>, index: usize) -> Result<i64, Error> {
    let number = call.integer(index)?;
    let fits = i32::try_from(number).is_ok();
    let text = "value is out of range, value must between -2147483648 and 2147483647";
    fits.then_some(number).ok_or_else(|| Error::err(text))
}

fn keyspace_of(number: i64, user: &User, host: &mut dyn Host) -> Result<KeyspaceId, Error> {
    let found = u64::try_from(number).ok().and_then(|number| host.keyspace_of_number(number));
    let found = found.filter(|keyspace| may_choose(user, *keyspace, host));
    found.ok_or_else(|| Error::err("DB index is out of range"))
}

fn cross_keyspace(text: &'static str) -> Error {
    Error::new(ErrorCode::CrossKeyspace, text)
}

/// MOVE, whose two keyspaces no transaction can have.
pub(crate) fn move_away(control: &mut Control<'_>, _sink: &mut dyn ReplySink) -> Result<(), Error> {
    let number = database_number(&control.call, 2)?;
    let session = &control.connection.session;
    if keyspace_of(number, &session.user, control.host)? == session.keyspace {
        return Err(same_objects());
    }
    Err(cross_keyspace(
        "a transaction has one keyspace, MOVE writes two; DUMP the key, RESTORE it in the other, then DEL it",
    ))
}

/// SWAPDB, whose two keyspaces no transaction can have.
pub(crate) fn swap_databases(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let number =
        |index, text: &'static str| database_number(&control.call, index).map_err(|_| Error::err(text));
    let (first, second) = (number(1, "invalid first DB index")?, number(2, "invalid second DB index")?);
    let user = &control.connection.session.user;
    if keyspace_of(first, user, control.host)? == keyspace_of(second, user, control.host)? {
        sink.simple("OK");
        return Ok(());
    }
    Err(cross_keyspace(
        "a transaction has one keyspace, SWAPDB changes two; let clients choose the other one with SELECT",
    ))
}

/// A value on its way from one key to another.
#[derive(Debug)]
struct Transfer {
    from: Box<[u8]>,
    to: Box<[u8]>,
    how: How,
    /// The value in its binary form, once it is clear that it is to be written.
    value: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// The new key must be absent, the old one is deleted.
    RenameAbsent,
    /// The new key must be absent.
    CopyAbsent,
    /// What the new key holds is replaced.
    CopyOver,
}

impl Transfer {
    fn plan<'a>(call: &Call<'a>, how: How) -> Plan<'a> {
        plan(Transfer { from: call.bytes(1).into(), to: call.bytes(2).into(), how, value: None })
    }
}

impl Turns for Transfer {
    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let step = |key, operation| on.key(key, Operation::Key(operation));
        let Some(value) = &self.value else {
            let mut steps = vec![step(&self.from, key::Operation::Copy)];
            if self.how != How::CopyOver {
                steps.push(step(&self.to, key::Operation::Exists));
            }
            return steps;
        };
        let mut steps = vec![step(&self.to, key::Operation::Restore(Cow::Borrowed(value)))];
        if self.how == How::RenameAbsent {
            steps.push(step(&self.from, key::Operation::Delete));
        }
        steps
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        if self.value.is_some() {
            sink.integer(1);
            return true;
        }
        let taken = reply.elements().any(|element| element == Reply::Integer(1));
        match reply.first() {
            Some(Reply::Bulk(value)) if !taken => {
                self.value = Some(value.to_vec());
                return false;
            }
            Some(Reply::Bulk(_)) => sink.integer(0),
            _ if self.how == How::RenameAbsent => sink.error(&no_such_key()),
            _ => sink.integer(0),
        }
        true
    }
}
