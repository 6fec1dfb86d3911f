//! Commands about the process: its role, its checkpoints, its end.

use super::connection::REDIS_VERSION;
use crate::control::Control;
use crate::describe;
use crate::diagnostics::SlowCommand;
use crate::flow::Flow;
use crate::session::{Activity, Hold};
use crate::table::flag::{ADMIN, FAST, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local};
use types::{Error, ErrorCode, ReplySink};

const OPERATOR: u16 = ADMIN | NOSCRIPT;

// The entries in the table.
#[rustfmt::skip]
pub(super) const ROLE: Command = Command::new("role", 1, NOSCRIPT | LOADING | STALE | FAST, "2.8.12", "Tells that the process is a master, without replicas in the sense of Redis", Local(role));
#[rustfmt::skip]
pub(super) const REPLICA_OF: Command = Command::new("replicaof", 3, OPERATOR | STALE, "5.0.0", "Accepts NO ONE: no process is a replica of another server, and keyspaces say where they are kept", Local(replica_of));
#[rustfmt::skip]
pub(super) const SLAVE_OF: Command = Command::new("slaveof", 3, OPERATOR | STALE, "1.0.0", "The former name of REPLICAOF", Local(replica_of));
#[rustfmt::skip]
pub(super) const LAST_SAVE: Command = Command::new("lastsave", 1, LOADING | STALE | FAST, "1.0.0", "Tells when the last checkpoint was taken, or the process started", Local(last_save));
#[rustfmt::skip]
pub(super) const SAVE: Command = Command::new("save", 1, OPERATOR | NO_MULTI, "1.0.0", "Takes a checkpoint and replies when it is on disk", Steer(Flow::Administer));
#[rustfmt::skip]
pub(super) const BACKGROUND_SAVE: Command = Command::new("bgsave", -1, OPERATOR, "1.0.0", "Asks for a checkpoint", Local(background_save));
#[rustfmt::skip]
pub(super) const BACKGROUND_REWRITE: Command = Command::new("bgrewriteaof", 1, OPERATOR, "1.0.0", "Asks for a checkpoint, which shortens the log", Local(background_rewrite));
#[rustfmt::skip]
pub(super) const SHUTDOWN: Command = Command::new("shutdown", -1, OPERATOR | LOADING | STALE | NO_MULTI, "1.0.0", "Ends the process in order", Local(shut_down));
#[rustfmt::skip]
pub(super) const LOLWUT: Command = Command::new("lolwut", -1, READONLY | FAST, "5.0.0", "Draws something and tells the versions", Local(lolwut));
#[rustfmt::skip]
pub(super) const MONITOR: Command = Command::new("monitor", 1, OPERATOR | LOADING | STALE, "1.0.0", "Shows the client the commands of all clients of the process, until RESET", Local(monitor));
#[rustfmt::skip]
pub(super) const MODULE_ENTRY: Command = Command::new("module", -2, 0, "4.0.0", "Commands about modules of Redis, of which there are none", Handler::Container).containing(MODULE);
#[rustfmt::skip]
pub(super) const DEBUG_ENTRY: Command = Command::new("debug", -2, OPERATOR | LOADING | STALE, "1.0.0", "Commands for tests, where the configuration allows them", Handler::Container).containing(DEBUG);

#[rustfmt::skip]
static MODULE: &[Command] = &[
    Command::new("module|list", 2, OPERATOR, "4.0.0", "Lists modules: none", Local(no_modules)),
    Command::new("module|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static DEBUG: &[Command] = &[
    Command::new("debug|sleep", 3, OPERATOR | LOADING | STALE, "1.0.0", "Replies after so many seconds; nobody else waits", Local(sleep)),
    Command::new("debug|error", 3, OPERATOR | LOADING | STALE, "1.0.0", "Replies this error", Local(reply_error)),
    Command::new("debug|help", 2, OPERATOR | LOADING | STALE, "1.0.0", "Lists the subcommands", Local(debug_help)),
];

fn role(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.array(3);
    sink.bulk(b"master");
    sink.integer(0);
    sink.array(0);
    Ok(())
}

/// REPLICAOF: a process follows no other one.
fn replica_of(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    if !control.call.is(1, "NO") || !control.call.is(2, "ONE") {
        return Err(Error::err(
            "a process follows no other server: start it as a process of a cluster, and let KEYSPACE CREATE say which \
             processes or regions keep a keyspace",
        ));
    }
    sink.simple("OK");
    Ok(())
}

fn last_save(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.integer(control.host.last_checkpoint_seconds() as i64);
    Ok(())
}

fn background_save(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    if control.call.len() > 2 || (control.call.len() == 2 && !control.call.is(1, "SCHEDULE")) {
        return Err(Error::syntax());
    }
    control.host.want_checkpoint()?;
    sink.simple("Background saving started");
    Ok(())
}

fn background_rewrite(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.want_checkpoint()?;
    sink.simple("Background append only file rewriting started");
    Ok(())
}

/// SHUTDOWN: replies nothing; the connection ends with the process. `NOW` and `FORCE` change nothing: there are no replicas
/// to wait for, and the end of the process waits for no client.
fn shut_down(control: &mut Control<'_>, _sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let count = |word: &str| (1..call.len()).filter(|index| call.is(*index, word)).count();
    let (save, no_save, abort) = (count("SAVE"), count("NOSAVE"), count("ABORT"));
    let known = save + no_save + abort + count("NOW") + count("FORCE");
    if known < call.len() - 1 || (save > 0 && no_save > 0) || (abort > 0 && call.len() > 2) {
        return Err(Error::syntax());
    }
    if abort > 0 {
        return Err(Error::err("No shutdown in progress."));
    }
    control.host.shut_down(no_save == 0);
    Ok(())
}

fn lolwut(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let version = env!("CARGO_PKG_VERSION");
    sink.text(&format!(
        "  o---o---o-------o      a branch\n       \\         /\n        o---o---o        and its merge\n\nRedis ver. {REDIS_VERSION}, \
         Anabranch ver. {version}\n"
    ));
    Ok(())
}

fn monitor(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.connection.session.monitoring = true;
    control.gateway.set_monitor(control.connection.id, true, control.host);
    sink.simple("OK");
    Ok(())
}

fn no_modules(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.array(0);
    Ok(())
}

fn check_debug(control: &Control<'_>) -> Result<(), Error> {
    if control.host.may_debug(&control.connection.session.peer.address) {
        return Ok(());
    }
    Err(Error::err(
        "DEBUG command not allowed. If the enable-debug-command option is set to \"local\", you can run it from a \
         local connection, otherwise you need to set this option in the configuration file, and then restart the \
         server.",
    ))
}

fn debug_help(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    check_debug(control)?;
    describe::help(control, sink)
}

/// DEBUG ERROR: for tests of what clients make of errors.
fn reply_error(control: &mut Control<'_>, _sink: &mut dyn ReplySink) -> Result<(), Error> {
    check_debug(control)?;
    Err(Error::new(ErrorCode::Scripted, crate::table::lossy(control.call.bytes(2)).into_owned()))
}

fn sleep(control: &mut Control<'_>, _sink: &mut dyn ReplySink) -> Result<(), Error> {
    /// Longer sleeps end then.
    const LONGEST_MICROS: f64 = 86_400e6;
    check_debug(control)?;
    // As in Redis, what is no number is no time.
    let seconds = control.call.float(2).unwrap_or(0.0);
    let micros = (seconds * 1e6).clamp(0.0, LONGEST_MICROS) as u64;
    let until = types::Instant(control.now.instant.0.saturating_add(micros));
    control.connection.activity = Activity::Held { until, hold: Hold::Sleep };
    // As if the whole server slept: tests of clients make slow commands of it.
    let session = &control.connection.session;
    control.host.note_slow(SlowCommand {
        number: 0,
        at_seconds: (control.now.wall.as_millis() + micros / 1000) / 1000,
        micros,
        words: (0..3).map(|index| control.call.bytes(index).to_vec()).collect(),
        address: session.peer.address.clone(),
        name: session.name.clone(),
        is_fast: false,
    });
    Ok(())
}
