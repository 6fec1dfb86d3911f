//! Scripts of clients.

use super::functions;
use crate::control::Control;
use crate::describe;
use crate::flow::Flow;
use crate::interpreter::ScriptKind;
use crate::scripting::no_interpreter;
use crate::table::flag::{LOADING, NOSCRIPT, READONLY, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local};
use types::{Error, ErrorCode, ReplySink};

const READS: u16 = READONLY | NOSCRIPT | STALE;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("eval", -3, NOSCRIPT | STALE, "2.6.0", "Runs a script in Lua as one transaction: EVAL script numkeys [key ...] [argument ...]", Steer(Flow::Eval)).counted_keys(2),
    Command::new("evalsha", -3, NOSCRIPT | STALE, "2.6.0", "Runs a script that is kept, by its SHA-1", Steer(Flow::Eval)).counted_keys(2),
    Command::new("eval_ro", -3, READS, "7.0.0", "Runs a script that may not write", Steer(Flow::Eval)).counted_keys(2),
    Command::new("evalsha_ro", -3, READS, "7.0.0", "Runs a script that is kept and may not write, by its SHA-1", Steer(Flow::Eval)).counted_keys(2),
    Command::new("fcall", -3, NOSCRIPT | STALE, "7.0.0", "Runs a function as one transaction: FCALL function numkeys [key ...] [argument ...]", Steer(Flow::Eval)).counted_keys(2),
    Command::new("fcall_ro", -3, READS, "7.0.0", "Runs a function that may not write", Steer(Flow::Eval)).counted_keys(2),
    Command::new("function", -2, 0, "7.0.0", "Commands about libraries of functions", Handler::Container).containing(functions::FUNCTION),
    Command::new("script", -2, 0, "2.6.0", "Commands about the scripts that this process keeps", Handler::Container).containing(SCRIPT),
];

#[rustfmt::skip]
static SCRIPT: &[Command] = &[
    Command::new("script|load", 3, NOSCRIPT | STALE, "2.6.0", "Keeps a script until SCRIPT FLUSH and replies its SHA-1", Local(load)),
    Command::new("script|exists", -3, NOSCRIPT, "2.6.0", "Tells of each SHA-1 whether its script is kept", Local(exists)),
    Command::new("script|flush", -2, NOSCRIPT, "2.6.0", "Forgets all scripts that this process keeps", Local(flush)),
    Command::new("script|kill", 2, NOSCRIPT, "2.6.0", "Ends the scripts of this process that have run for longer than busy-reply-threshold; what they wrote is undone", Local(kill)),
    Command::new("script|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

fn load(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let source = control.call.bytes(2);
    let interpreter = control.gateway.interpreter.as_mut().ok_or_else(no_interpreter)?;
    sink.bulk(interpreter.load(source)?.as_bytes());
    Ok(())
}

fn exists(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let interpreter = control.gateway.interpreter.as_ref().ok_or_else(no_interpreter)?;
    sink.array(control.call.len() - 2);
    control.arguments().iter().skip(2).for_each(|name| sink.integer(interpreter.keeps(name).into()));
    Ok(())
}

fn flush(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    if call.len() > 3 || (call.len() == 3 && !call.is(2, "SYNC") && !call.is(2, "ASYNC")) {
        return Err(Error::err("SCRIPT FLUSH only support SYNC|ASYNC option"));
    }
    control.gateway.interpreter.as_mut().ok_or_else(no_interpreter)?.forget();
    sink.simple("OK");
    Ok(())
}

fn kill(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    end_scripts(control, ScriptKind::Script, sink)
}

/// SCRIPT KILL and FUNCTION KILL.
pub(super) fn end_scripts(
    control: &mut Control<'_>,
    kind: ScriptKind,
    sink: &mut dyn ReplySink,
) -> Result<(), Error> {
    let least_millis = control.host.busy_millis();
    let interpreter = control.gateway.interpreter.as_mut().ok_or_else(no_interpreter)?;
    if !interpreter.kill(kind, least_millis) {
        return Err(Error::new(ErrorCode::NotBusy, "No scripts in execution right now."));
    }
    sink.simple("OK");
    Ok(())
}
