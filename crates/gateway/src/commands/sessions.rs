//! Commands about sessions: what a connection has seen of a causal keyspace, and whose writes it reads at once.

use crate::describe;
use crate::flow::Flow;
use crate::plan::Call;
use crate::table::flag::{FAST, LOADING, NO_MULTI, NOSCRIPT, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local};
use protocol::ContextRequest;
use std::time::Duration;
use types::Error;

/// How long CONTEXT RESTORE waits unless it says otherwise, and at most.
const TIMEOUT_MILLIS: u64 = 5_000;
const MAX_TIMEOUT_MILLIS: u64 = 60_000;

const HERE: u16 = NOSCRIPT | NO_MULTI | FAST;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("context", -2, 0, "anabranch 0.1.0", "Commands about what a session has seen", Handler::Container).containing(CONTEXT),
    Command::new("session", -2, 0, "anabranch 0.1.0", "Commands about sessions", Handler::Container).containing(SESSION),
];

#[rustfmt::skip]
static CONTEXT: &[Command] = &[
    Command::new("context|new", 2, HERE, "anabranch 0.1.0", "Makes another context of the connection, which has seen nothing, and replies its number", Steer(Flow::Context)),
    Command::new("context|use", 3, HERE, "anabranch 0.1.0", "Goes on in another context of the connection: CONTEXT USE number, 0 for the first one", Steer(Flow::Context)),
    Command::new("context|drop", 3, HERE, "anabranch 0.1.0", "Forgets a context of the connection that is not in use: CONTEXT DROP number", Steer(Flow::Context)),
    Command::new("context|token", 2, HERE, "anabranch 0.1.0", "Replies a token of all that the session has read and written in its causal keyspace", Steer(Flow::Context)),
    Command::new("context|restore", -3, NOSCRIPT | NO_MULTI, "anabranch 0.1.0", "Waits until this process shows what another session of the keyspace had seen: CONTEXT RESTORE token [TIMEOUT milliseconds]", Steer(Flow::Context)),
    Command::new("context|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static SESSION: &[Command] = &[
    Command::new("session|scope", 3, HERE, "anabranch 0.1.0", "Whose writes the connection reads at once, in a causal keyspace: SESSION SCOPE connection|process", Steer(Flow::Context)),
    Command::new("session|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

/// Requests to the keyspace.
///
/// # Errors
/// The command is not well formed.
pub(crate) fn ask<'a>(call: &Call<'a>) -> Result<ContextRequest<'a>, Error> {
    match call.command.name {
        "context|new" => Ok(ContextRequest::New),
        "context|use" => Ok(ContextRequest::Use { context: call.count(2)? }),
        "context|drop" => Ok(ContextRequest::Drop { context: call.count(2)? }),
        "context|token" => Ok(ContextRequest::Token),
        "context|restore" => Ok(ContextRequest::Restore { token: call.bytes(2), timeout: timeout(call)? }),
        _ if call.is(2, "CONNECTION") => Ok(ContextRequest::Scope { private: true }),
        _ if call.is(2, "PROCESS") => Ok(ContextRequest::Scope { private: false }),
        _ => Err(Error::err("SESSION SCOPE is connection or process")),
    }
}

fn timeout(call: &Call<'_>) -> Result<Duration, Error> {
    let millis = match call.len() {
        3 => TIMEOUT_MILLIS,
        5 if call.is(3, "TIMEOUT") => call.count(4)?,
        _ => return Err(Error::syntax()),
    };
    if millis > MAX_TIMEOUT_MILLIS {
        return Err(Error::err(format!("TIMEOUT is at most {MAX_TIMEOUT_MILLIS} milliseconds")));
    }
    Ok(Duration::from_millis(millis))
}
