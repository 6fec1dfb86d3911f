//! Transactions, and the prefix that makes writes commute.

use crate::describe;
use crate::flow::Flow;
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, LOADING, NOSCRIPT, STALE, WRITE};
use crate::table::{self, Command, Handler, Handler::Flow as Steer, Handler::Local};
use types::Error;

const ANYTIME: u16 = NOSCRIPT | LOADING | STALE;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("multi", 1, ANYTIME | FAST, "1.2.0", "Begins to queue commands for one transaction", Steer(Flow::Multi)),
    Command::new("exec", 1, ANYTIME, "1.2.0", "Executes the queued commands as one transaction", Steer(Flow::Exec)),
    Command::new("discard", 1, ANYTIME | FAST, "2.0.0", "Forgets the queued commands", Steer(Flow::Discard)),
    Command::new("watch", -2, ANYTIME | FAST, "2.2.0", "Lets EXEC do nothing if one of the keys changes before it", Steer(Flow::Watch)).keys(1, -1, 1),
    Command::new("unwatch", 1, ANYTIME | FAST, "2.2.0", "Forgets the watched keys", Steer(Flow::Unwatch)),
    Command::new("txn", -2, ANYTIME, "anabranch 0.1.0", "Interactive transactions, whose commands are answered at once", Handler::Container).containing(TXN),
    Command::new("blind", -3, WRITE | DENYOOM, "anabranch 0.1.0", "Writes without observing the result, so that the write commutes: BLIND INCR key", Handler::Data(blind)).keys(2, 2, 1),
];

#[rustfmt::skip]
static TXN: &[Command] = &[
    Command::new("txn|begin", -2, ANYTIME, "anabranch 0.1.0", "Opens a transaction: TXN BEGIN [READONLY]", Steer(Flow::Begin)),
    Command::new("txn|commit", 2, ANYTIME, "anabranch 0.1.0", "Commits the open transaction, or replies CONFLICT", Steer(Flow::Commit)),
    Command::new("txn|abort", 2, ANYTIME, "anabranch 0.1.0", "Gives the open transaction up", Steer(Flow::Abort)),
    Command::new("txn|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

fn blind<'a>(call: &Call<'a>) -> Result<Plan<'a>, Error> {
    let arguments = call.arguments.after(1);
    let command = table::find(arguments)?;
    let refused = || {
        Error::err(format!("BLIND takes a command that writes a single key, and '{}' is none", command.name))
    };
    let Handler::Data(plan) = command.handler else { return Err(refused()) };
    if command.name == call.command.name {
        return Err(refused());
    }
    match plan(&Call { arguments, command, ..*call })? {
        Plan::One(mut operation) if !operation.operation.is_read() => {
            operation.blind = true;
            Ok(Plan::One(operation))
        }
        _ => Err(refused()),
    }
}
