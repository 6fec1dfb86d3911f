//! Commands about the process and its command table.

use super::acl::ENTRY as ACL;
use super::configuration::ENTRY as CONFIG;
use super::diagnosis::{LATENCY_ENTRY, MEMORY_ENTRY, SLOWLOG_ENTRY};
use super::process::{
    BACKGROUND_REWRITE, BACKGROUND_SAVE, DEBUG_ENTRY as DEBUG, LAST_SAVE, LOLWUT, MODULE_ENTRY as MODULE,
    MONITOR, REPLICA_OF, ROLE, SAVE, SHUTDOWN, SLAVE_OF,
};
use super::{keys, moving, sort, transactions};
use crate::control::Control;
use crate::describe;
use crate::documents::{Documents, write_flags};
use crate::flow::Flow;
use crate::table::flag::{FAST, LOADING, READONLY, STALE, WRITE};
use crate::table::{self, Command, FAMILIES, Handler::Data, Handler::Flow as Steer, Handler::Local};
use datatypes::glob;
use resp::Arguments;
use types::{Error, ReplySink};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("dbsize", 1, READONLY | FAST, "1.0.0", "Counts the keys of the keyspace", Data(keys::count)),
    Command::new("flushdb", -1, WRITE, "1.0.0", "Deletes every key of the keyspace", Data(keys::flush)),
    Command::new("flushall", -1, WRITE, "1.0.0", "Deletes every key of every keyspace, keyspace by keyspace", Steer(Flow::FlushAll)),
    Command::new("swapdb", 3, WRITE | FAST, "4.0.0", "Refuses to swap two keyspaces: a transaction has one", Local(moving::swap_databases)),
    Command::new("info", -1, LOADING | STALE, "1.0.0", "Describes the process, section by section", Local(info)),
    Command::new("time", 1, LOADING | STALE | FAST, "2.6.0", "Tells the time: seconds since 1970 and microseconds", Local(time)),
    ROLE, REPLICA_OF, SLAVE_OF, LAST_SAVE, SAVE, BACKGROUND_SAVE, BACKGROUND_REWRITE, SHUTDOWN, LOLWUT, MODULE, MONITOR, DEBUG, ACL, CONFIG, SLOWLOG_ENTRY, LATENCY_ENTRY, MEMORY_ENTRY,
    Command::new("command", -1, LOADING | STALE, "2.8.13", "Describes all commands", Local(all_commands)).containing(COMMAND),
];

#[rustfmt::skip]
static COMMAND: &[Command] = &[
    Command::new("command|count", 2, LOADING | STALE, "2.8.13", "Counts the commands", Local(command_count)),
    Command::new("command|docs", -2, LOADING | STALE, "7.0.0", "Documents commands", Local(command_docs)),
    Command::new("command|info", -2, LOADING | STALE, "2.8.13", "Describes commands", Local(command_info)),
    Command::new("command|list", -2, LOADING | STALE, "7.0.0", "Lists the names of commands", Local(command_list)),
    Command::new("command|getkeys", -4, LOADING | STALE, "2.8.13", "Tells which arguments of a command are keys", Local(command_get_keys)),
    Command::new("command|getkeysandflags", -4, LOADING | STALE, "7.0.0", "Tells which arguments of a command are keys, and what it does with them", Local(command_get_keys_and_flags)),
    Command::new("command|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

fn info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let sections: Vec<String> =
        control.arguments().iter().skip(1).map(|name| table::lossy(name).to_ascii_lowercase()).collect();
    let mut text = String::new();
    let visible = &control.connection.session.user.keyspaces;
    control.host.info(&sections, control.gateway.statistics(), visible, &mut text);
    sink.text(&text);
    Ok(())
}

fn time(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let micros = control.now.wall.0;
    sink.array(2);
    sink.bulk((micros / 1_000_000).to_string().as_bytes());
    sink.bulk((micros % 1_000_000).to_string().as_bytes());
    Ok(())
}

fn commands() -> impl Iterator<Item = &'static Command> {
    FAMILIES.iter().flat_map(|family| family.commands)
}

/// The command or subcommand (`client|kill`) of this name.
fn named(name: &[u8]) -> Option<&'static Command> {
    match name.iter().position(|byte| *byte == b'|') {
        None => table::command(name),
        Some(bar) => table::subcommand(table::command(&name[..bar])?, &name[bar + 1..]).ok(),
    }
}

fn all_commands(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let documents = Documents::read();
    sink.array(commands().count());
    commands().for_each(|command| describe::write_info(&documents, command, sink));
    Ok(())
}

fn command_count(_control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.integer(commands().count() as i64);
    Ok(())
}

fn command_info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    if control.call.len() == 2 {
        return all_commands(control, sink);
    }
    let documents = Documents::read();
    sink.array(control.call.len() - 2);
    for name in control.arguments().iter().skip(2) {
        match named(name) {
            Some(command) => describe::write_info(&documents, command, sink),
            None => sink.null(),
        }
    }
    Ok(())
}

fn command_docs(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let described: Vec<&Command> = if control.call.len() == 2 {
        commands().collect()
    } else {
        control.arguments().iter().skip(2).filter_map(named).collect()
    };
    let documents = Documents::read();
    sink.map(described.len());
    described.into_iter().for_each(|command| describe::write_docs(&documents, command, sink));
    Ok(())
}

fn command_list(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let filter = match call.len() {
        2 => None,
        5 if call.is(2, "FILTERBY") => Some(call.bytes(4)),
        _ => return Err(Error::syntax()),
    };
    let (by_category, by_pattern) = (call.is(3, "ACLCAT"), call.is(3, "PATTERN"));
    if filter.is_some() && !by_category && !by_pattern && !call.is(3, "MODULE") {
        return Err(Error::syntax());
    }
    let fits = |command: &&Command| match filter {
        None => true,
        Some(pattern) if by_pattern => glob::matches(pattern, command.name.as_bytes(), true),
        Some(category) if by_category => {
            let is = |name: &&str| name.as_bytes()[1..].eq_ignore_ascii_case(category);
            describe::categories(command).iter().any(is)
        }
        Some(_) => false,
    };
    let all = commands().flat_map(|command| std::iter::once(command).chain(command.subcommands));
    let names: Vec<&str> = all.filter(fits).map(|command| command.name).collect();
    sink.array(names.len());
    names.iter().for_each(|name| sink.bulk(name.as_bytes()));
    Ok(())
}

/// The command that COMMAND GETKEYS asks about, with its arguments.
fn inspected_command<'c>(control: &Control<'c>) -> Result<(&'static Command, Arguments<'c>), Error> {
    let inner = control.arguments().after(2);
    let name = inner.get(0).unwrap_or_default();
    if table::command(name).is_none() {
        return Err(Error::err("Invalid command specified"));
    }
    let wrong = |_| Error::err("Invalid number of arguments specified for command");
    let command = table::find(inner).map_err(wrong)?;
    transactions::behind_prefix(command, inner).map_err(wrong)
}

fn keys_of<'a>(command: &Command, arguments: Arguments<'a>) -> Result<Vec<&'a [u8]>, Error> {
    let destination = if command.name == "sort" { sort::destination(arguments) } else { None };
    let indices = command.key_indices(arguments).chain(destination);
    let keys: Vec<&[u8]> = indices.filter_map(|index| arguments.get(index)).collect();
    if keys.is_empty() && command.key_count == 0 && command.streams_from == 0 {
        return Err(Error::err("The command has no key arguments"));
    }
    Ok(keys)
}

fn command_get_keys(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (command, arguments) = inspected_command(control)?;
    let keys = keys_of(command, arguments)?;
    sink.array(keys.len());
    keys.iter().for_each(|key| sink.bulk(key));
    Ok(())
}

fn command_get_keys_and_flags(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (command, arguments) = inspected_command(control)?;
    let keys = keys_of(command, arguments)?;
    let documents = Documents::read();
    let specifications: Vec<Vec<&str>> = documents.of(command.name).keys().map(|key| key.flags).collect();
    sink.array(keys.len());
    for (index, key) in keys.iter().enumerate() {
        // Several specifications stand for one key each; the last one for all others.
        let flags = specifications.get(index).or(specifications.last()).map_or(&[][..], Vec::as_slice);
        sink.array(2);
        sink.bulk(key);
        write_flags(flags, sink);
    }
    Ok(())
}
