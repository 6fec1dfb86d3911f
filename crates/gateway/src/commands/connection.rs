//! Commands about the connection: who the client is, which protocol and which keyspace it uses.

use super::moving::database_number;
use super::{clients, tracking};
use crate::acl::{LogContext, User, default_user, entry_of, may_choose};
use crate::client::{ClientFilter, ClientKind};
use crate::control::Control;
use crate::describe;
use crate::flow::Flow;
use crate::host::{Host, Incident};
use crate::plan::Call;
use crate::session::Connection;
use crate::table::flag::{ADMIN, FAST, LOADING, NO_AUTH, NOSCRIPT, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local, lossy, wrong_arity};
use resp::{ProtocolVersion, parse_integer};
use types::{Error, ErrorCode, KeyspaceId, ReplySink};

/// The version of Redis whose commands, replies and errors these are.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// A client that has never authenticated is closed after so many wrong passwords.
const MOST_WRONG_PASSWORDS: u32 = 5;

const ANYTIME: u16 = NOSCRIPT | LOADING | STALE;
const HANDSHAKE: u16 = ANYTIME | FAST | NO_AUTH;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("hello", -1, HANDSHAKE, "6.0.0", "Chooses the protocol's version, authenticates and names the client", Local(hello)),
    Command::new("auth", -2, HANDSHAKE, "1.0.0", "Authenticates the client", Local(auth)),
    Command::new("ping", -1, FAST, "1.0.0", "Replies PONG, or the argument", Local(ping)),
    Command::new("echo", 2, LOADING | STALE | FAST, "1.0.0", "Replies the argument", Local(echo)),
    Command::new("select", 2, LOADING | STALE | FAST, "1.0.0", "Chooses the keyspace that the configuration maps to a number", Local(select)),
    Command::new("quit", -1, HANDSHAKE, "1.0.0", "Says OK and ends the connection", Steer(Flow::Quit)),
    Command::new("reset", 1, HANDSHAKE, "6.2.0", "Makes the connection as good as new", Steer(Flow::Reset)),
    Command::new("client", -2, 0, "2.4.0", "Commands about clients", Handler::Container).containing(CLIENT),
];

#[rustfmt::skip]
static CLIENT: &[Command] = &[
    Command::new("client|id", 2, ANYTIME, "5.0.0", "Tells the client's number", Local(client_id)),
    Command::new("client|setname", 3, ANYTIME, "2.6.9", "Names the client", Local(client_set_name)),
    Command::new("client|getname", 2, ANYTIME, "2.6.9", "Tells the client's name", Local(client_get_name)),
    Command::new("client|setinfo", 4, ANYTIME, "7.2.0", "Tells the name or the version of the client's library", Local(client_set_info)),
    Command::new("client|info", 2, ANYTIME, "6.2.0", "Describes the client", Local(client_info)),
    Command::new("client|list", -2, ANYTIME | ADMIN, "2.4.0", "Describes all clients, or some", Local(client_list)),
    Command::new("client|kill", -3, ANYTIME | ADMIN, "2.4.0", "Closes clients", Local(client_kill)),
    Command::new("client|reply", 3, ANYTIME, "3.2.0", "Chooses which replies the client is sent: all, none, or not the next one", Local(clients::reply)),
    Command::new("client|pause", -3, ANYTIME | ADMIN, "2.9.50", "Lets the commands of all clients wait for so many milliseconds, or those that may write", Local(clients::pause)),
    Command::new("client|unpause", 2, ANYTIME | ADMIN, "6.2.0", "Ends a pause", Local(clients::unpause)),
    Command::new("client|unblock", -3, ANYTIME | ADMIN, "5.0.0", "Ends the wait of a client in a blocking command, as if its time were up or with an error", Local(client_unblock)),
    Command::new("client|no-evict", 3, ANYTIME | ADMIN, "7.0.0", "Accepted: no client is evicted to save memory", Local(clients::on_or_off)),
    Command::new("client|no-touch", 3, ANYTIME, "7.2.0", "Accepted: no key has a time of its last use", Local(clients::on_or_off)),
    Command::new("client|tracking", -3, ANYTIME, "6.0.0", "Lets the client be told when keys that it has read change, or all keys with a prefix", Local(tracking::track)),
    Command::new("client|caching", 3, ANYTIME, "6.0.0", "Says whether the next command's keys are tracked, in the modes OPTIN and OPTOUT", Local(tracking::caching)),
    Command::new("client|getredir", 2, ANYTIME, "6.0.0", "Tells which client is told instead of the tracked one: 0 if it is told itself, -1 if it is not tracked", Local(tracking::get_redirection)),
    Command::new("client|trackinginfo", 2, ANYTIME, "6.2.0", "Tells how the client is tracked", Local(tracking::tracking_info)),
    Command::new("client|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

fn hello(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let mut version = control.connection.session.version;
    if call.len() > 1 {
        let text = "Protocol version is not an integer or out of range";
        let number = parse_integer(call.bytes(1)).ok_or_else(|| Error::err(text))?;
        version = ProtocolVersion::from_number(number)
            .ok_or_else(|| Error::new(ErrorCode::NoProto, "unsupported protocol version"))?;
    }
    let (mut index, mut name) = (2, None);
    while index < call.len() {
        let left = call.len() - index - 1;
        if left >= 2 && call.is(index, "AUTH") {
            authenticate(control, call.bytes(index + 1), call.bytes(index + 2))?;
            index += 3;
        } else if left >= 1 && call.is(index, "SETNAME") {
            name = Some(checked_name(call.bytes(index + 1), "Client names")?);
            index += 2;
        } else {
            return Err(Error::err(format!("Syntax error in HELLO option '{}'", lossy(call.bytes(index)))));
        }
    }
    let session = &control.connection.session;
    if !session.authenticated && control.host.authentication_required() {
        return Err(Error::new(
            ErrorCode::NoAuth,
            "HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH <user> \
             <pass> option can be used to authenticate the client and select the RESP protocol version at the \
             same time",
        ));
    }
    admit(control.connection, control.host)?;
    control.connection.session.version = version;
    if let Some(name) = name {
        control.connection.session.name = name;
        control.host.note_client(&control.own_info());
    }
    write_greeting(control.connection.session.peer.client, version, sink);
    Ok(())
}

fn write_greeting(client: u64, version: ProtocolVersion, sink: &mut dyn ReplySink) {
    let texts = |sink: &mut dyn ReplySink, name: &str, value: &str| {
        sink.bulk(name.as_bytes());
        sink.bulk(value.as_bytes());
    };
    sink.map(7);
    texts(sink, "server", "redis");
    texts(sink, "version", REDIS_VERSION);
    sink.bulk(b"proto");
    sink.integer(version.number());
    sink.bulk(b"id");
    sink.integer(client as i64);
    texts(sink, "mode", "standalone");
    texts(sink, "role", "master");
    sink.bulk(b"modules");
    sink.array(0);
}

fn authenticate(control: &mut Control<'_>, user: &[u8], password: &[u8]) -> Result<(), Error> {
    let mut found = None;
    control.host.users(&mut |users| found = users.authenticate(user, password).cloned());
    let Some(found) = found else {
        note_wrong_password(control, user);
        let connection = &mut *control.connection;
        connection.session.wrong_passwords += 1;
        connection.closing |=
            !connection.admitted && connection.session.wrong_passwords >= MOST_WRONG_PASSWORDS;
        control.host.report(Incident::WrongPassword(&connection.session.peer.address));
        let text = "invalid username-password pair or user is disabled.";
        return Err(Error::new(ErrorCode::WrongPass, text));
    };
    admit(control.connection, control.host)?;
    let session = &mut control.connection.session;
    session.set_user(found, control.host);
    session.seeks_keyspace = true;
    control.host.note_client(&control.own_info());
    Ok(())
}

fn note_wrong_password(control: &mut Control<'_>, user: &[u8]) {
    let context =
        if control.connection.session.in_transaction() { LogContext::Multi } else { LogContext::TopLevel };
    let cause = ("auth", control.call.arguments.name().to_vec());
    let entry = entry_of(control.connection, cause, user.to_vec(), context, control.now);
    control.host.acl_log(&mut |log| log.note(entry.clone()));
}

/// The client has authenticated, or need not any longer.
///
/// # Errors
/// There are too many clients; the connection ends.
pub(crate) fn admit(connection: &mut Connection, host: &mut dyn Host) -> Result<(), Error> {
    if !connection.admitted {
        if let Err(error) = host.admit() {
            connection.closing = true;
            return Err(error);
        }
        connection.admitted = true;
    }
    connection.session.authenticated = true;
    Ok(())
}

fn auth(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let (user, password) = match call.len() {
        2 if default_user(control.host).needs_no_password => {
            return Err(Error::err(
                "AUTH <password> called without any password configured for the default user. Are you sure your \
                 configuration is correct?",
            ));
        }
        2 => (&b"default"[..], call.bytes(1)),
        3 => (call.bytes(1), call.bytes(2)),
        _ => return Err(Error::syntax()),
    };
    authenticate(control, user, password)?;
    sink.simple("OK");
    Ok(())
}

fn ping(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    match control.call.len() {
        1 | 2 if control.connection.session.is_confined() => {
            sink.array(2);
            sink.bulk(b"pong");
            sink.bulk(control.call.arguments.get(1).unwrap_or_default());
        }
        1 => sink.simple("PONG"),
        2 => sink.bulk(control.call.bytes(1)),
        _ => return Err(wrong_arity(control.call.command)),
    }
    Ok(())
}

fn echo(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    sink.bulk(control.call.bytes(1));
    Ok(())
}

fn select(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let (keyspace, database) = selected(&control.call, &control.connection.session.user, control.host)?;
    control.may_track_in(keyspace)?;
    control.connection.session.select(keyspace, database);
    sink.simple("OK");
    Ok(())
}

/// The keyspace that a SELECT chooses, with its number.
///
/// # Errors
/// The number is none, or none that the configuration knows, or none that the user may choose.
pub(crate) fn selected(
    call: &Call<'_>,
    user: &User,
    host: &mut dyn Host,
) -> Result<(KeyspaceId, u64), Error> {
    let number = database_number(call, 1)?;
    let keyspace = u64::try_from(number).ok().and_then(|number| host.keyspace_of_number(number));
    let keyspace = keyspace.filter(|keyspace| may_choose(user, *keyspace, host));
    let keyspace = keyspace.ok_or_else(|| Error::err("DB index is out of range"))?;
    Ok((keyspace, number as u64))
}

fn client_id(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    // Others may name it at once.
    control.host.note_client(&control.own_info());
    sink.integer(control.connection.session.peer.client as i64);
    Ok(())
}

/// A name that fits into a line of `CLIENT LIST`.
fn checked_name(name: &[u8], what: &str) -> Result<Vec<u8>, Error> {
    if name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        Ok(name.to_vec())
    } else {
        Err(Error::err(format!("{what} cannot contain spaces, newlines or special characters.")))
    }
}

fn client_set_name(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.connection.session.name = checked_name(control.call.bytes(2), "Client names")?;
    control.host.note_client(&control.own_info());
    sink.simple("OK");
    Ok(())
}

fn client_get_name(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    match &control.connection.session.name[..] {
        [] => sink.null(),
        name => sink.bulk(name),
    }
    Ok(())
}

fn client_set_info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let session = &mut control.connection.session;
    if call.is(2, "LIB-NAME") {
        session.library = checked_name(call.bytes(3), "lib-name")?;
    } else if call.is(2, "LIB-VER") {
        session.library_version = checked_name(call.bytes(3), "lib-ver")?;
    } else {
        return Err(Error::err(format!("Unrecognized option '{}'", lossy(call.bytes(2)))));
    }
    control.host.note_client(&control.own_info());
    sink.simple("OK");
    Ok(())
}

fn client_info(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let mut line = String::new();
    control.own_info().write_line(control.now.instant, &mut line);
    line.push('\n');
    sink.text(&line);
    Ok(())
}

/// A type of client.
fn client_kind(name: &[u8]) -> Result<ClientKind, Error> {
    let is = |known: &&str| name.eq_ignore_ascii_case(known.as_bytes());
    match ["normal", "pubsub", "master", "replica", "slave"].iter().position(is) {
        Some(0) => Ok(ClientKind::Normal),
        Some(1) => Ok(ClientKind::Subscriber),
        Some(_) => Ok(ClientKind::Other),
        None => Err(Error::err(format!("Unknown client type '{}'", lossy(name)))),
    }
}

fn client_list(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let mut clients = control.clients();
    if call.len() == 4 && call.is(2, "TYPE") {
        let kind = client_kind(call.bytes(3))?;
        clients.retain(|client| kind.is_of(client.is_subscriber()));
    } else if call.len() > 3 && call.is(2, "ID") {
        let mut wanted = Vec::new();
        for index in 3..call.len() {
            wanted.push(call.integer(index).map_err(|_| Error::err("Invalid client ID"))? as u64);
        }
        clients.retain(|client| wanted.contains(&client.peer.client));
    } else if call.len() != 2 {
        return Err(Error::syntax());
    }
    let mut text = String::new();
    for client in &clients {
        client.write_line(control.now.instant, &mut text);
        text.push('\n');
    }
    sink.text(&text);
    Ok(())
}

fn client_unblock(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    let with_error = match call.len() {
        3 => false,
        4 if call.is(3, "TIMEOUT") => false,
        4 if call.is(3, "ERROR") => true,
        4 => return Err(Error::err("CLIENT UNBLOCK reason should be TIMEOUT or ERROR")),
        _ => return Err(describe::unknown_subcommand(&call)),
    };
    let client = call.integer(2)?;
    sink.integer(i64::from(u64::try_from(client).is_ok_and(|client| control.unblock(client, with_error))));
    Ok(())
}

fn client_kill(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    if call.len() == 3 {
        let filter = ClientFilter { address: Some(call.bytes(2).to_vec()), ..ClientFilter::default() };
        if control.kill(&filter) == 0 {
            return Err(Error::err("No such client"));
        }
        sink.simple("OK");
        return Ok(());
    }
    let filter = kill_filter(control)?;
    sink.integer(control.kill(&filter) as i64);
    Ok(())
}

fn kill_filter(control: &Control<'_>) -> Result<ClientFilter, Error> {
    let (call, own) = (control.call, control.connection.session.peer.client);
    let mut filter = ClientFilter { except: Some(own), ..ClientFilter::default() };
    let mut index = 2;
    while index + 1 < call.len() {
        let value = call.bytes(index + 1);
        match () {
            () if call.is(index, "ID") => {
                let number = parse_integer(value).and_then(|number| u64::try_from(number).ok());
                let number = number.filter(|number| *number > 0);
                filter.client = Some(number.ok_or_else(|| Error::err("client-id should be greater than 0"))?);
            }
            () if call.is(index, "TYPE") => filter.kind = Some(client_kind(value)?),
            () if call.is(index, "ADDR") => filter.address = Some(value.to_vec()),
            () if call.is(index, "LADDR") => filter.local_address = Some(value.to_vec()),
            () if call.is(index, "USER") => {
                let mut is_known = false;
                control.host.users(&mut |users| is_known = users.get(value).is_some());
                if !is_known {
                    return Err(Error::err(format!("No such user '{}'", lossy(value))));
                }
                filter.user = Some(value.to_vec());
            }
            () if call.is(index, "SKIPME") && value.eq_ignore_ascii_case(b"yes") => filter.except = Some(own),
            () if call.is(index, "SKIPME") && value.eq_ignore_ascii_case(b"no") => filter.except = None,
            () => return Err(Error::syntax()),
        }
        index += 2;
    }
    if index < call.len() { Err(Error::syntax()) } else { Ok(filter) }
}
