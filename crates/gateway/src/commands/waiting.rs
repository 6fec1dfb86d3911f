//! WAIT and WAITAOF: on how many machines what this session has written is safe.
//!
//! A write is answered when it is as safe as its keyspace makes it, so nothing is left to wait for: both
//! commands reply at once, and what they reply holds for every write that the session has an answer to. They
//! never reply more than is certain; a caller that wants more replicas than that has waited for nothing and
//! learns so.

use crate::control::Control;
use crate::host::Safety;
use crate::plan::Call;
use protocol::Durability;
use resp::parse_integer;
use types::{Error, ReplySink};

/// WAIT
pub(crate) fn wait(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    call.integer(1)?;
    check_timeout(&call, 2)?;
    sink.integer(i64::from(safety(control).replicas));
    Ok(())
}

/// WAITAOF
pub(crate) fn wait_for_log(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let local = call.integer(1)?;
    if !(0..=1).contains(&local) {
        return Err(Error::err("value is out of range, value must between 0 and 1"));
    }
    call.count(2)?;
    check_timeout(&call, 3)?;
    let safety = safety(control);
    if local > 0 && safety.durability == Durability::Volatile {
        return Err(Error::err("WAITAOF cannot be used when numlocal is set but appendonly is disabled."));
    }
    let synced = safety.durability == Durability::Synced;
    sink.array(2);
    sink.integer(i64::from(synced));
    sink.integer(if synced { i64::from(safety.replicas) } else { 0 });
    Ok(())
}

fn safety(control: &Control<'_>) -> Safety {
    control.host.safety(control.connection.session.keyspace)
}

fn check_timeout(call: &Call<'_>, index: usize) -> Result<(), Error> {
    match parse_integer(call.bytes(index)) {
        None => Err(Error::err("timeout is not an integer or out of range")),
        Some(..0) => Err(Error::err("timeout is negative")),
        Some(_) => Ok(()),
    }
}
