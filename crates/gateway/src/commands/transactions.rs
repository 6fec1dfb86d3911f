//! Transactions, and the prefix that lets writes commute by hiding what they observe.

use crate::combine::Combine;
use crate::describe;
use crate::dialogue::Dialogue;
use crate::flow::Flow;
use crate::plan::{Call, Plan};
use crate::table::flag::{DENYOOM, FAST, LOADING, NOSCRIPT, OTHER_KEYSPACE, STALE, WRITE};
use crate::table::{self, Command, Handler, Handler::Flow as Steer, Handler::Local};
use crate::turns::{self, Blind};
use protocol::Step;
use resp::Arguments;
use types::Error;

const ANYTIME: u16 = NOSCRIPT | LOADING | STALE;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("multi", 1, ANYTIME | FAST, "1.2.0", "Begins to queue commands for one transaction", Steer(Flow::Multi)),
    Command::new("exec", 1, ANYTIME, "1.2.0", "Executes the queued commands as one transaction", Steer(Flow::Exec)),
    Command::new("discard", 1, ANYTIME | FAST, "2.0.0", "Forgets the queued commands", Steer(Flow::Discard)),
    Command::new("watch", -2, ANYTIME | FAST, "2.2.0", "Lets EXEC do nothing if one of the keys changes before it", Steer(Flow::Watch)).keys(1, -1, 1),
    Command::new("unwatch", 1, ANYTIME | FAST, "2.2.0", "Forgets the watched keys; does nothing inside a transaction", Steer(Flow::Unwatch)),
    Command::new("txn", -2, ANYTIME, "anabranch 0.1.0", "Interactive transactions, whose commands are answered at once", Handler::Container).containing(TXN),
    Command::new("blind", -2, WRITE | DENYOOM | OTHER_KEYSPACE, "anabranch 0.1.0", "Writes without observing the result, so that the write commutes: BLIND INCR key", Handler::Data(blind)).keys(2, 2, 1),
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
    let Handler::Data(plan) = command.handler else { return Err(not_blind(command)) };
    if !command.is(WRITE) || command.name == call.command.name {
        return Err(not_blind(command));
    }
    let mut plan = match plan(&Call { arguments, command, ..*call })? {
        Plan::Dialogue(Dialogue::Turns(turns)) => return Ok(turns::plan(Blind(turns))),
        plan => plan,
    };
    match &mut plan {
        Plan::One(operation) => operation.blind = !operation.operation.is_read(),
        Plan::Many { steps, combine } => {
            let writes = |step: &Step<'_>| match step {
                Step::Key(keyed) => !keyed.operation.is_read(),
                Step::Flush => true,
                Step::Count | Step::Keys | Step::Random | Step::Scan { .. } | Step::Losses(_) => false,
            };
            // What only checks that a key is there (RENAME to the same name) runs as it stands.
            if steps.iter().all(writes) {
                *combine = Combine::Status;
                steps.iter_mut().for_each(|step| {
                    if let Step::Key(keyed) = step {
                        keyed.blind = true;
                    }
                });
            }
        }
        // What it writes is what it has read.
        Plan::Dialogue(_) => {}
    }
    Ok(plan)
}

fn not_blind(command: &Command) -> Error {
    let name = command.name;
    Error::err(format!("BLIND takes a command that writes data of one keyspace, and '{name}' is none"))
}

/// The command that a prefix stands before, with its arguments.
pub(crate) fn behind_prefix<'a>(
    command: &'static Command,
    arguments: Arguments<'a>,
) -> Result<(&'static Command, Arguments<'a>), Error> {
    if command.name != "blind" {
        return Ok((command, arguments));
    }
    let behind = arguments.after(1);
    Ok((table::find(behind)?, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::FAMILIES;
    use resp::{Limits, Parser, Pipeline};
    use std::collections::BTreeSet;
    use types::HashSeed;

    /// A call of every command that writes data, with other options in further lines.
    const CALLS: &str = include_str!("../../tests/writes.calls");

    fn plan<'a>(arguments: Arguments<'a>) -> Result<Plan<'a>, Error> {
        let command = table::find(arguments)?;
        let Handler::Data(plan) = command.handler else { return Err(not_blind(command)) };
        plan(&Call { arguments, command, now_millis: 1000, seed: HashSeed::default(), scan_piece: 10 })
    }

    /// Plans a line, with the prefix and without it.
    fn plans(line: &str, check: impl FnOnce(Plan<'_>, Plan<'_>)) {
        let source = format!("{line}\r\nBLIND {line}\r\n");
        let mut pipeline = Pipeline::default();
        let parsed = Parser::new(Limits::default(), true).parse(source.as_bytes(), &mut pipeline);
        assert_eq!(parsed.ok(), Some(source.len()), "{line}");
        let at = |index| pipeline.get(index, source.as_bytes()).expect("it was parsed");
        match (plan(at(0)), plan(at(1))) {
            (Ok(plain), Ok(blind)) => check(plain, blind),
            refused => panic!("{line}: {refused:?}"),
        }
    }

    #[test]
    fn every_command_that_writes_data_can_be_blind() {
        let mut seen = BTreeSet::new();
        for line in CALLS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let name = line.split(' ').next().unwrap_or_default().to_ascii_lowercase();
            plans(line, |plain, blind| match (plain, blind) {
                (Plan::One(plain), Plan::One(blind)) => {
                    assert!(blind.blind && !plain.blind, "{line}");
                    assert_eq!(plain.operation, blind.operation, "{line}");
                }
                (Plan::Many { steps: plain, .. }, Plan::Many { steps, combine }) => {
                    assert_eq!(combine, Combine::Status, "{line}");
                    assert_eq!(plain.len(), steps.len(), "{line}");
                    let is_blind = |step: &Step<'_>| match step {
                        Step::Key(keyed) => keyed.blind,
                        step => *step == Step::Flush,
                    };
                    assert!(steps.iter().all(is_blind), "{line}");
                }
                // What it writes is what it has read.
                (Plan::Dialogue(_), Plan::Dialogue(_)) => {}
                other => panic!("{line}: {other:?}"),
            });
            seen.insert(name);
        }
        let writes = FAMILIES.iter().flat_map(|family| family.commands).filter(|command| command.is(WRITE));
        let missing: Vec<&str> =
            writes.map(|command| command.name).filter(|name| !seen.contains(*name)).collect();
        // A user-defined type has to be loaded (tests/process/test_user_types.py), a prefix has no prefix, and the others are
        // not of one keyspace.
        assert_eq!(
            missing,
            ["move", "type.call", "blind", "flushall", "swapdb"],
            "writes.calls has no call of these"
        );
    }
}
