//! The subcommands of CLIENT that say how the server treats the client, or all of them.

use crate::control::Control;
use crate::host::Pause;
use crate::tally::Wanted;
use resp::parse_integer;
use types::{Error, Instant, ReplySink};

/// CLIENT REPLY. What is not replied is not sent: neither is the reply to this command, unless it is `ON`.
pub(super) fn reply(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let tally = &mut control.connection.tally;
    if control.call.is(2, "ON") {
        tally.replies = Wanted::All;
        sink.simple("OK");
    } else if control.call.is(2, "OFF") {
        tally.replies = Wanted::Nothing;
    } else if !control.call.is(2, "SKIP") {
        return Err(Error::syntax());
    } else if tally.replies != Wanted::Nothing {
        tally.replies = Wanted::SkipNext;
    }
    Ok(())
}

/// CLIENT PAUSE. As in Redis, a pause that is on only ever grows, and only ever stops more.
pub(super) fn pause(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let writes_only = match call.len() {
        3 => false,
        4 if call.is(3, "WRITE") => true,
        4 if call.is(3, "ALL") => false,
        4 => return Err(Error::err("CLIENT PAUSE mode must be WRITE or ALL")),
        _ => return Err(crate::describe::unknown_subcommand(&call)),
    };
    let millis = parse_integer(call.bytes(2));
    let millis = millis.ok_or_else(|| Error::err("timeout is not an integer or out of range"))?;
    let millis = u64::try_from(millis).map_err(|_| Error::err("timeout is negative"))?;
    let (now, present) = (control.now.instant, control.host.pause());
    let until = Instant(now.0.saturating_add(millis.saturating_mul(1000)));
    control.host.set_pause(match present.is_on(now) {
        false => Pause { until, writes_only },
        true => Pause { until: until.max(present.until), writes_only: writes_only && present.writes_only },
    });
    sink.simple("OK");
    Ok(())
}

/// CLIENT UNPAUSE
pub(super) fn unpause(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.set_pause(Pause::default());
    sink.simple("OK");
    Ok(())
}

/// CLIENT NO-EVICT and CLIENT NO-TOUCH: nobody is evicted here, and no key has a time of its last use.
pub(super) fn on_or_off(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    if !control.call.is(2, "ON") && !control.call.is(2, "OFF") {
        return Err(Error::syntax());
    }
    sink.simple("OK");
    Ok(())
}
