//! Commands about the configuration.

use crate::control::Control;
use crate::describe;
use crate::table::flag::{ADMIN, LOADING, NOSCRIPT, STALE};
use crate::table::{Command, Handler, Handler::Local, wrong_arity};
use datatypes::glob::Pattern;
use types::{Error, ReplySink};

const OPERATOR: u16 = ADMIN | NOSCRIPT | LOADING | STALE;

/// The entry in the table.
pub(super) const ENTRY: Command =
    Command::new("config", -2, 0, "2.0.0", "Commands about the configuration", Handler::Container)
        .containing(CONFIG);

#[rustfmt::skip]
static CONFIG: &[Command] = &[
    Command::new("config|get", -3, OPERATOR, "2.0.0", "Tells the parameters that match patterns", Local(get)),
    Command::new("config|set", -4, OPERATOR, "2.0.0", "Changes parameters, all of them or none", Local(set)),
    Command::new("config|resetstat", 2, OPERATOR, "2.0.0", "Begins to count anew what INFO tells of commands and errors", Local(reset_statistics)),
    Command::new("config|rewrite", 2, OPERATOR, "2.8.0", "Refused: the configuration file is written by operators only", Local(rewrite)),
    Command::new("config|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

fn get(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let arguments = control.arguments();
    let patterns: Vec<Pattern> =
        arguments.iter().skip(2).map(|pattern| Pattern::new(pattern, true)).collect();
    let mut found = Vec::new();
    control.host.configuration(&mut |name, value| {
        if patterns.iter().any(|pattern| pattern.matches(name.as_bytes())) {
            // As in Redis, who asks for one parameter gets its name as it was spelled.
            let spelled =
                arguments.iter().skip(2).find(|spelling| spelling.eq_ignore_ascii_case(name.as_bytes()));
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

fn set(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    let call = control.call;
    if !call.len().is_multiple_of(2) {
        return Err(wrong_arity(call.command));
    }
    let parameters: Vec<(&[u8], &[u8])> =
        (2..call.len()).step_by(2).map(|index| (call.bytes(index), call.bytes(index + 1))).collect();
    control.host.configure(&parameters)?;
    sink.simple("OK");
    Ok(())
}

fn reset_statistics(control: &mut Control<'_>, sink: &mut dyn ReplySink) -> Result<(), Error> {
    control.gateway.reset_statistics();
    control.host.reset_statistics();
    sink.simple("OK");
    Ok(())
}

fn rewrite(control: &mut Control<'_>, _sink: &mut dyn ReplySink) -> Result<(), Error> {
    Err(control.host.why_not_rewritten())
}
