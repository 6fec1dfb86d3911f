//! Commands about users: see [`crate::acl`].

use crate::acl::{CATEGORIES, Facts, LogEntry, Reason, Selector, User, check_keyspaces};
use crate::control::Control;
use crate::describe::{self, unknown_subcommand};
use crate::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::table::{self, Command, Handler, Handler::Local, lossy};
use std::sync::Arc;
use types::{Error, ReplySink};

const ANYTIME: u16 = NOSCRIPT | LOADING | STALE;
const OPERATOR: u16 = ADMIN | ANYTIME;

/// The most bits of a password that ACL GENPASS makes.
const MOST_BITS: i64 = 4096;
/// So many entries ACL LOG shows without a count.
const SHOWN_ENTRIES: i64 = 10;

/// The entry in the table.
pub(super) const ENTRY: Command =
    Command::new("acl", -2, 0, "6.0.0", "Commands about users and what they may do", Handler::Container)
        .containing(ACL);

#[rustfmt::skip]
static ACL: &[Command] = &[
    Command::new("acl|cat", -2, ANYTIME, "6.0.0", "Lists the categories of commands, or the commands of one", Local(categories)),
    Command::new("acl|deluser", -3, OPERATOR, "6.0.0", "Deletes users and closes their connections", Local(delete_users)),
    Command::new("acl|dryrun", -4, OPERATOR, "7.0.0", "Tells whether a user may execute a command, and does not execute it", Local(dry_run)),
    Command::new("acl|genpass", -2, ANYTIME, "6.0.0", "Makes a password that nobody can guess, of 256 bits or so many", Local(generate_password)),
    Command::new("acl|getuser", 3, OPERATOR, "6.0.0", "Tells the rules of a user", Local(get_user)),
    Command::new("acl|list", 2, OPERATOR, "6.0.0", "Lists the users as the file has them", Local(list)),
    Command::new("acl|load", 2, OPERATOR, "6.0.0", "Takes the users of the file, all of them or, if a line is wrong, none", Local(load)),
    Command::new("acl|log", -2, OPERATOR, "6.0.0", "Lists what users were refused, newest first: ACL LOG [count|RESET]", Local(log)),
    Command::new("acl|save", 2, OPERATOR, "6.0.0", "Writes the users to the file", Local(save)),
    Command::new("acl|setuser", -3, OPERATOR, "6.0.0", "Changes a user by rules, all of them or none, or makes one, at this process", Local(set_user)),
    Command::new("acl|users", 2, OPERATOR, "6.0.0", "Lists the names of the users", Local(names)),
    Command::new("acl|whoami", 2, ANYTIME, "6.0.0", "Tells the user of the connection", Local(who_am_i)),
    Command::new("acl|help", 2, LOADING | STALE, "6.0.0", "Lists the subcommands", Local(describe::help)),
];

fn categories(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let category = match call.len() {
        2 => {
            sink.array(CATEGORIES.len());
            CATEGORIES.iter().for_each(|name| sink.bulk(name.as_bytes()));
            return Ok(());
        }
        3 => call.bytes(2),
        _ => return Err(unknown_subcommand(&call)),
    };
    let shown = &category[..category.len().min(128)];
    let unknown = || Error::err(format!("Unknown category '{}'", lossy(shown)));
    let index = Facts::category(category).ok_or_else(unknown)?;
    let facts = Arc::clone(control.connection.session.user.facts());
    let names: Vec<&str> =
        facts.all().iter().filter(|fact| fact.is_in(index)).map(|fact| fact.command.name).collect();
    sink.array(names.len());
    names.iter().for_each(|name| sink.bulk(name.as_bytes()));
    Ok(())
}

fn set_user(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let mut outcome = Ok(());
    control.host.change_users(&mut |users| outcome = users.set(call.bytes(2), call.arguments.iter().skip(3)));
    outcome?;
    sink.simple("OK");
    Ok(())
}

fn delete_users(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let names = || control.call.arguments.iter().skip(2);
    if names().any(|name| name == b"default") {
        return Err(Error::err("The 'default' user cannot be removed"));
    }
    let mut deleted = 0;
    control.host.change_users(&mut |users| deleted = names().filter(|name| users.remove(name)).count());
    sink.integer(deleted as i64);
    Ok(())
}

/// The user of this name.
fn find(control: &Control<'_>, name: &[u8]) -> Option<Arc<User>> {
    let mut found = None;
    control.host.users(&mut |users| found = users.get(name).cloned());
    found
}

fn get_user(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let name = control.call.bytes(2);
    let Some(user) = find(control, name) else {
        sink.null();
        return Ok(());
    };
    let is_confined = !user.keyspaces.is_all();
    sink.map(6 + usize::from(is_confined));
    sink.bulk(b"flags");
    sink.set(user.flags().count());
    user.flags().for_each(|flag| sink.bulk(flag.as_bytes()));
    sink.bulk(b"passwords");
    let hashes = user.password_hashes();
    sink.array(hashes.len());
    hashes.iter().for_each(|hash| sink.bulk(hash.as_bytes()));
    write_selector(&user, &user.root, sink);
    sink.bulk(b"selectors");
    sink.array(user.selectors.len());
    for selector in &user.selectors {
        sink.map(3);
        write_selector(&user, selector, sink);
    }
    if is_confined {
        sink.bulk(b"keyspaces");
        sink.bulk(&user.keyspaces.text());
    }
    Ok(())
}

fn write_selector(user: &User, selector: &Selector, sink: &mut dyn ReplySink) {
    sink.bulk(b"commands");
    sink.bulk(selector.command_rules(user.facts()).as_bytes());
    sink.bulk(b"keys");
    sink.bulk(&selector.key_rules());
    sink.bulk(b"channels");
    sink.bulk(&selector.channel_rules());
}

fn all(control: &Control<'_>) -> Vec<Arc<User>> {
    let mut all = Vec::new();
    control.host.users(&mut |users| all = users.all().cloned().collect());
    all
}

fn list(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let all = all(control);
    sink.array(all.len());
    all.iter().for_each(|user| sink.bulk(&user.line()));
    Ok(())
}

fn names(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let all = all(control);
    sink.array(all.len());
    all.iter().for_each(|user| sink.bulk(&user.name));
    Ok(())
}

fn who_am_i(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.bulk(&control.connection.session.user.name);
    Ok(())
}

fn load(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.load_users()?;
    sink.simple("OK");
    Ok(())
}

fn save(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.host.save_users()?;
    sink.simple("OK");
    Ok(())
}

fn generate_password(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let bits = match call.len() {
        2 => 256,
        3 => call.integer(2)?,
        _ => return Err(unknown_subcommand(&call)),
    };
    if !(1..=MOST_BITS).contains(&bits) {
        return Err(Error::err(format!(
            "ACL GENPASS argument must be the number of bits for the output password, a positive number up to {MOST_BITS}"
        )));
    }
    let digits = (bits as usize).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    control.host.entropy(&mut bytes)?;
    let mut text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    text.truncate(digits);
    sink.bulk(text.as_bytes());
    Ok(())
}

fn log(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let most = match call.len() {
        2 => SHOWN_ENTRIES,
        3 if call.is(2, "RESET") => {
            control.host.acl_log(&mut |log| log.clear());
            sink.simple("OK");
            return Ok(());
        }
        3 => call.integer(2)?.max(0),
        _ => return Err(unknown_subcommand(&call)),
    };
    let mut entries: Vec<LogEntry> = Vec::new();
    control.host.acl_log(&mut |log| entries = log.entries().take(most as usize).cloned().collect());
    let now_millis = control.now.wall.as_millis();
    sink.array(entries.len());
    entries.iter().for_each(|entry| write_entry(entry, now_millis, sink));
    Ok(())
}

fn write_entry(entry: &LogEntry, now_millis: u64, sink: &mut dyn ReplySink) {
    sink.map(7);
    sink.bulk(b"count");
    sink.integer(entry.count as i64);
    let texts: [(&str, &[u8]); 4] = [
        ("reason", entry.cause.as_bytes()),
        ("context", entry.context.as_str().as_bytes()),
        ("object", &entry.object),
        ("username", &entry.user),
    ];
    for (name, value) in texts {
        sink.bulk(name.as_bytes());
        sink.bulk(value);
    }
    sink.bulk(b"age-seconds");
    sink.double(now_millis.saturating_sub(entry.at_millis) as f64 / 1000.0);
    sink.bulk(b"client-info");
    sink.bulk(entry.client.as_bytes());
}

fn dry_run(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let name = call.bytes(2);
    let user = find(control, name).ok_or_else(|| Error::err(format!("User '{}' not found", lossy(name))))?;
    let arguments = call.arguments.after(3);
    if table::command(arguments.name()).is_none() {
        return Err(Error::err(format!("Command '{}' not found", lossy(arguments.name()))));
    }
    let found = table::locate(arguments)?;
    let Err(denied) = user.check(found, arguments) else {
        // Which keyspace it would have selected nobody knows.
        match check_keyspaces(&user.keyspaces, found.0, arguments) {
            Ok(()) => sink.simple("OK"),
            Err(error) => sink.bulk(error.message.as_bytes()),
        }
        return Ok(());
    };
    let argument = lossy(arguments.get(denied.at).unwrap_or_default());
    sink.bulk(
        match denied.reason {
            Reason::Command => {
                let command = denied.command(found.0, arguments);
                format!("This user has no permissions to run the '{command}' command")
            }
            Reason::Key => format!("This user has no permissions to access the '{argument}' key"),
            Reason::Channel => format!("This user has no permissions to access the '{argument}' channel"),
            Reason::Lookup => denied.error(found.0, arguments).message.into_owned(),
        }
        .as_bytes(),
    );
    Ok(())
}
