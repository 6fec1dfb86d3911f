//! Commands about the process and its command table.

use super::{keys, transactions};
use crate::control::Control;
use crate::describe;
use crate::documents::Documents;
use crate::flow::Flow;
use crate::glob;
use crate::table::flag::{ADMIN, FAST, LOADING, NOSCRIPT, READONLY, STALE, WRITE};
use crate::table::{self, Command, FAMILIES, Handler, Handler::Data, Handler::Flow as Steer, Handler::Local};
use types::{Error, ReplySink};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("dbsize", 1, READONLY | FAST, "1.0.0", "Counts the keys of the keyspace", Data(keys::count)),
    Command::new("flushdb", -1, WRITE, "1.0.0", "Deletes every key of the keyspace", Data(keys::flush)),
    Command::new("flushall", -1, WRITE, "1.0.0", "Deletes every key of every keyspace, keyspace by keyspace", Steer(Flow::FlushAll)),
    Command::new("info", -1, LOADING | STALE, "1.0.0", "Describes the process, section by section", Local(info)),
    Command::new("time", 1, LOADING | STALE | FAST, "2.6.0", "Tells the time: seconds since 1970 and microseconds", Local(time)),
    Command::new("config", -2, 0, "2.0.0", "Commands about the configuration", Handler::Container).containing(CONFIG),
    Command::new("command", -1, LOADING | STALE, "2.8.13", "Describes all commands", Local(all_commands)).containing(COMMAND),
];

#[rustfmt::skip]
static CONFIG: &[Command] = &[
    Command::new("config|get", -3, ADMIN | NOSCRIPT | LOADING | STALE, "2.0.0", "Tells the parameters that match patterns", Local(config_get)),
    Command::new("config|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static COMMAND: &[Command] = &[
    Command::new("command|count", 2, LOADING | STALE, "2.8.13", "Counts the commands", Local(command_count)),
    Command::new("command|docs", -2, LOADING | STALE, "7.0.0", "Documents commands", Local(command_docs)),
    Command::new("command|info", -2, LOADING | STALE, "2.8.13", "Describes commands", Local(command_info)),
    Command::new("command|list", -2, LOADING | STALE, "7.0.0", "Lists the names of commands", Local(command_list)),
    Command::new("command|getkeys", -4, LOADING | STALE, "2.8.13", "Tells which arguments of a command are keys", Local(command_get_keys)),
    Command::new("command|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

fn info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let sections: Vec<String> =
        control.arguments().iter().skip(1).map(|name| table::lossy(name).to_ascii_lowercase()).collect();
    let mut text = String::new();
    control.host.info(&sections, &mut text);
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

fn config_get(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let arguments = control.arguments();
    let mut found = Vec::new();
    control.host.configuration(&mut |name, value| {
        let matches = |pattern| glob::matches(pattern, name.as_bytes(), true);
        if arguments.iter().skip(2).any(matches) {
            // As in Redis, who asks for one parameter gets its name as it was spelled.
            let spelled = arguments.iter().skip(2).find(|asked| asked.eq_ignore_ascii_case(name.as_bytes()));
            let shown = spelled.unwrap_or(name.as_bytes());
            found.push((shown.to_vec(), value.to_owned()));
        }
    });
    sink.map(found.len());
    for (name, value) in &found {
        sink.bulk(name);
        sink.bulk(value.as_bytes());
    }
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

fn command_get_keys(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let inner = control.arguments().after(2);
    let name = inner.get(0).unwrap_or_default();
    if table::command(name).is_none() {
        return Err(Error::err("Invalid command specified"));
    }
    let command =
        table::find(inner).map_err(|_| Error::err("Invalid number of arguments specified for command"))?;
    let (command, inner) = transactions::behind_prefix(command, inner)
        .map_err(|_| Error::err("Invalid number of arguments specified for command"))?;
    let keys: Vec<&[u8]> = command.key_indices(inner).filter_map(|index| inner.get(index)).collect();
    if keys.is_empty() && command.key_count == 0 {
        return Err(Error::err("The command has no key arguments"));
    }
    sink.array(keys.len());
    keys.iter().for_each(|key| sink.bulk(key));
    Ok(())
}
