//! Libraries of functions: FUNCTION. They belong to all keyspaces, so no transaction changes them.

use super::scripting::end_scripts;
use crate::control::Control;
use crate::describe;
use crate::flow::Flow;
use crate::functions::{Function, FunctionLibrary, RestorePolicy, library_name};
use crate::host::{Administration, Host};
use crate::interpreter::ScriptKind;
use crate::plan::Call;
use crate::scripting::no_interpreter;
use crate::table::flag::{DENYOOM, LOADING, NO_MULTI, NOSCRIPT, STALE, WRITE};
use crate::table::{Command, Handler::Flow as Steer, Handler::Local, lossy};
use datatypes::dump::{self, Refusal};
use datatypes::glob::Pattern;
use std::sync::Arc;
use types::{Error, ReplySink};

const CHANGES: u16 = WRITE | NOSCRIPT | NO_MULTI;

#[rustfmt::skip]
pub(super) static FUNCTION: &[Command] = &[
    Command::new("function|load", -3, CHANGES | DENYOOM, "7.0.0", "Loads a library on trial and keeps it in all processes: FUNCTION LOAD [REPLACE] source", Steer(Flow::Administer)),
    Command::new("function|delete", 3, CHANGES, "7.0.0", "Deletes a library: FUNCTION DELETE library", Steer(Flow::Administer)),
    Command::new("function|flush", -2, CHANGES, "7.0.0", "Deletes all libraries: FUNCTION FLUSH [ASYNC | SYNC]", Steer(Flow::Administer)),
    Command::new("function|restore", -3, CHANGES | DENYOOM, "7.0.0", "Loads what FUNCTION DUMP replied: FUNCTION RESTORE payload [FLUSH | APPEND | REPLACE]", Steer(Flow::Administer)),
    Command::new("function|dump", 2, NOSCRIPT, "7.0.0", "Returns all libraries in Redis's form", Local(dump)),
    Command::new("function|list", -2, NOSCRIPT, "7.0.0", "Describes the libraries: FUNCTION LIST [LIBRARYNAME pattern] [WITHCODE]", Local(list)),
    Command::new("function|stats", 2, NOSCRIPT, "7.0.0", "Tells which function of this process has run for longest, and how many libraries and functions there are", Local(stats)),
    Command::new("function|kill", 2, NOSCRIPT, "7.0.0", "Ends the functions of this process that have run for longer than busy-reply-threshold; what they wrote is undone", Local(kill)),
    Command::new("function|help", 2, LOADING | STALE, "7.0.0", "Lists the subcommands", Local(describe::help)),
];

/// Requests to the host.
///
/// # Errors
/// An option, or what is to be loaded, is not well formed; the library is there already.
pub(crate) fn administration<'a>(call: &Call<'a>, host: &mut dyn Host) -> Result<Administration<'a>, Error> {
    match call.command.short_name() {
        "load" => load(call, host),
        "delete" => Ok(Administration::DeleteLibrary { name: call.bytes(2) }),
        "restore" => restore(call),
        _ if call.len() > 3 => Err(too_many("FLUSH")),
        _ if call.len() == 3 && !call.is(2, "SYNC") && !call.is(2, "ASYNC") => {
            Err(Error::err("FUNCTION FLUSH only supports SYNC|ASYNC option"))
        }
        _ => Ok(Administration::FlushLibraries),
    }
}

fn too_many(subcommand: &str) -> Error {
    let text =
        format!("unknown subcommand or wrong number of arguments for '{subcommand}'. Try FUNCTION HELP.");
    Error::err(text)
}

fn load<'a>(call: &Call<'a>, host: &mut dyn Host) -> Result<Administration<'a>, Error> {
    let last = call.len() - 1;
    if let Some(unknown) = (2..last).find(|index| !call.is(*index, "REPLACE")) {
        return Err(Error::err(format!("Unknown option given: {}", lossy(call.bytes(unknown)))));
    }
    let (source, mut replace) = (call.bytes(last), last > 2);
    let name = library_name(source)?;
    if !replace {
        let known = host.functions(true);
        let is_same = known.iter().any(|library| library.name == name && *library.source == *source);
        // Clients that know Redis Cluster send the same library to every process.
        replace = is_same && host.cluster_map().is_some();
        if !replace {
            known.check_new(&name)?;
        }
    }
    Ok(Administration::LoadLibrary { source, replace })
}

fn restore<'a>(call: &Call<'a>) -> Result<Administration<'a>, Error> {
    if call.len() > 4 {
        return Err(too_many("RESTORE"));
    }
    let policy = match call.len() {
        3 => RestorePolicy::Append,
        _ if call.is(3, "FLUSH") => RestorePolicy::Flush,
        _ if call.is(3, "APPEND") => RestorePolicy::Append,
        _ if call.is(3, "REPLACE") => RestorePolicy::Replace,
        _ => {
            let text = "Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.";
            return Err(Error::err(text));
        }
    };
    let sources = dump::decode_functions(call.bytes(2)).map_err(|refusal| {
        Error::err(match refusal {
            Refusal::Footer => "DUMP payload version or checksum are wrong",
            Refusal::Type => "given type is not a function",
            Refusal::Format => "Failed loading library payload",
        })
    })?;
    Ok(Administration::RestoreLibraries { sources, policy })
}

fn dump(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let libraries = control.host.functions(true);
    sink.bulk(&dump::encode_functions(libraries.iter().map(|library| &*library.source)));
    Ok(())
}

/// The arguments of FUNCTION LIST.
#[derive(Default)]
struct ListOptions<'a> {
    pattern: Option<&'a [u8]>,
    with_source: bool,
}

impl<'a> ListOptions<'a> {
    fn read(call: &Call<'a>) -> Result<Self, Error> {
        let (mut options, mut index) = (ListOptions::default(), 2);
        while index < call.len() {
            if call.is(index, "WITHCODE") && !options.with_source {
                options.with_source = true;
            } else if call.is(index, "LIBRARYNAME") && options.pattern.is_none() {
                index += 1;
                if index == call.len() {
                    return Err(Error::err("library name argument was not given"));
                }
                options.pattern = Some(call.bytes(index));
            } else {
                return Err(Error::err(format!("Unknown argument {}", lossy(call.bytes(index)))));
            }
            index += 1;
        }
        Ok(options)
    }
}

fn list(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let options = ListOptions::read(&control.call)?;
    let libraries = control.host.functions(true);
    // As in Redis, the case of the pattern does not matter.
    let pattern = options.pattern.map(|pattern| Pattern::new(pattern, true));
    let fits = |library: &&Arc<FunctionLibrary>| {
        pattern.as_ref().is_none_or(|pattern| pattern.matches(library.name.as_bytes()))
    };
    sink.array(libraries.iter().filter(fits).count());
    for library in libraries.iter().filter(fits) {
        sink.map(3 + usize::from(options.with_source));
        sink.bulk(b"library_name");
        sink.bulk(library.name.as_bytes());
        sink.bulk(b"engine");
        sink.bulk(b"LUA");
        sink.bulk(b"functions");
        sink.array(library.functions.len());
        library.functions.iter().for_each(|function| show(function, sink));
        if options.with_source {
            sink.bulk(b"library_code");
            sink.bulk(&library.source);
        }
    }
    Ok(())
}

fn show(function: &Function, sink: &mut dyn ReplySink) {
    sink.map(3);
    sink.bulk(b"name");
    sink.bulk(function.name.as_bytes());
    sink.bulk(b"description");
    match &function.description {
        Some(description) => sink.bulk(description),
        None => sink.null(),
    }
    sink.bulk(b"flags");
    sink.set(function.flags.names().count());
    function.flags.names().for_each(|name| sink.simple(name));
}

fn stats(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let libraries = control.host.functions(true);
    let interpreter = control.gateway.interpreter.as_ref().ok_or_else(no_interpreter)?;
    sink.map(2);
    sink.bulk(b"running_script");
    match interpreter.longest_function() {
        None => sink.null(),
        Some(running) => {
            sink.map(3);
            sink.bulk(b"name");
            sink.bulk(running.name.as_bytes());
            sink.bulk(b"command");
            sink.array(running.command.len());
            running.command.iter().for_each(|word| sink.bulk(word));
            sink.bulk(b"duration_ms");
            sink.integer(running.millis as i64);
        }
    }
    sink.bulk(b"engines");
    sink.map(1);
    sink.bulk(b"LUA");
    sink.map(2);
    sink.bulk(b"libraries_count");
    sink.integer(libraries.iter().count() as i64);
    sink.bulk(b"functions_count");
    sink.integer(libraries.iter().map(|library| library.functions.len() as i64).sum());
    Ok(())
}

fn kill(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    end_scripts(control, ScriptKind::Function, sink)
}
