//! Types that users define: how they are loaded, shown and called.
//!
//! `TYPE LOAD name module` and `TYPE INFO name` are the same as `TYPES LOAD` and `TYPES INFO`: with one argument, `TYPE` is
//! Redis's question for the type of a key.

use crate::control::Control;
use crate::describe;
use crate::flow::Flow;
use crate::host::Administration;
use crate::plan::{Call, Plan};
use crate::table::flag::{ADMIN, DENYOOM, LOADING, NO_MULTI, NOSCRIPT, READONLY, STALE, WRITE};
use crate::table::{Command, Handler, Handler::Data, Handler::Flow as Steer, Handler::Local, lossy};
use datatypes::Operation::User;
use datatypes::user::{self, Type};
use types::{Error, ErrorCode, ReplySink};
use usertypes::abi::{Kind, OperationSpec, Spec};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("type.call", -4, WRITE | DENYOOM, "anabranch 0.1.0", "Calls an operation of a user-defined type: TYPE.CALL key type operation [argument ...]", Data(call)).keys(1, 1, 1),
    Command::new("type.read", -4, READONLY, "anabranch 0.1.0", "Calls an operation that only reads, of a user-defined type: TYPE.READ key type operation [argument ...]", Data(read)).keys(1, 1, 1),
    Command::new("types", -2, 0, "anabranch 0.1.0", "Commands about user-defined types; TYPE LOAD and TYPE INFO are the same", Handler::Container).containing(TYPES),
];

#[rustfmt::skip]
static TYPES: &[Command] = &[
    Command::new("types|load", 4, ADMIN | NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Checks a WebAssembly module and makes it a type, for ever and everywhere: TYPES LOAD name module", Steer(Flow::Administer)),
    Command::new("types|list", 2, NOSCRIPT, "anabranch 0.1.0", "Lists the user-defined types", Local(list)),
    Command::new("types|info", 3, NOSCRIPT, "anabranch 0.1.0", "Describes a user-defined type: TYPES INFO name", Local(info)),
    Command::new("types|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

fn call<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    call.one(User(operation(call)?))
}

fn read<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let operation = operation(call)?;
    if !operation.is_read() {
        let (name, of) = (operation.name(), operation.of().name());
        return Err(Error::err(format!("'{name}' of type '{of}' may change the value; TYPE.CALL calls it")));
    }
    call.one(User(operation))
}

fn operation<'a>(call: &Call<'a>) -> Result<user::Operation<'a>, Error> {
    let arguments: Vec<&[u8]> = call.arguments.iter().skip(4).collect();
    user::Operation::new(named(call.bytes(2))?, call.bytes(3), &arguments)
}

fn named(name: &[u8]) -> Result<Type, Error> {
    let unknown = || {
        let name = lossy(name);
        let text =
            format!("no type '{name}' is loaded; TYPES LIST names those that are, TYPES LOAD loads one");
        Error::new(ErrorCode::UnknownType, text)
    };
    user::find(name).ok_or_else(unknown)
}

fn list(_: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.array(user::all().count());
    user::all().for_each(|of| sink.bulk(of.name().as_bytes()));
    Ok(())
}

fn info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let name = control.call.bytes(2);
    if user::find(name).is_none() {
        control.host.look_for_types();
    }
    let of = named(name)?;
    let spec = of.module().spec();
    sink.map(4);
    sink.bulk(b"name");
    sink.bulk(of.name().as_bytes());
    sink.bulk(b"digest");
    sink.bulk(format!("{:016x}", of.digest()).as_bytes());
    sink.bulk(b"operations");
    sink.array(spec.operations.len());
    spec.operations.iter().for_each(|operation| sink.bulk(signature(spec, operation).as_bytes()));
    sink.bulk(b"modes");
    sink.array(spec.modes.len());
    for (number, mode) in (0u8..).zip(&spec.modes) {
        let others = (0u8..).zip(&spec.modes).filter(|(other, _)| spec.are_compatible(number, *other));
        let others: Vec<&str> = others.map(|(_, other)| other.name.as_str()).collect();
        sink.bulk(format!("{} beside {}", mode.name, others.join(", ")).trim_end().as_bytes());
    }
    Ok(())
}

/// `bid bidder amount:integer (mode bid)`, `leader (reads)`.
fn signature(spec: &Spec, operation: &OperationSpec) -> String {
    let mut text = operation.name.clone();
    for argument in &operation.arguments {
        text.extend([" ", argument.name.as_str()]);
        text.push_str(if argument.kind == Kind::Integer { ":integer" } else { "" });
    }
    text.push_str(if operation.reads { " (reads)" } else { "" });
    if let Some(mode) = operation.mode.and_then(|mode| spec.modes.get(usize::from(mode))) {
        text.push_str(&format!(" (mode {})", mode.name));
    }
    text
}

/// Requests to the host.
///
/// # Errors
/// The name is not well formed.
pub(crate) fn load<'a>(call: &Call<'a>) -> Result<Administration<'a>, Error> {
    let (name, module) = (call.bytes(2), call.bytes(3));
    if !usertypes::is_name(name) {
        return Err(Error::err(format!(
            "a type's name has 1 to {} lower-case letters, digits, '_', '-', '.' or '@', a letter first",
            usertypes::MAX_NAME_BYTES
        )));
    }
    if BUILT_IN.iter().any(|taken| taken.as_bytes() == name) {
        return Err(Error::err(format!("'{}' is a built-in type", lossy(name))));
    }
    Ok(Administration::LoadType { name, module })
}

/// What `TYPE key` replies for what is no user-defined type.
const BUILT_IN: [&str; 12] = [
    "none",
    "string",
    "hash",
    "set",
    "zset",
    "list",
    "counter",
    "summary",
    "top",
    "uid",
    "stream",
    "vectorset",
];
