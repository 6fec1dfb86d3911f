//! Commands on streams.

mod entries;
mod groups;
mod info;
mod pending;
mod reading;

pub(crate) use reading::{has_block, waits_for};

use crate::describe;
use crate::plan::Call;
use crate::table::flag::{BLOCKING, DENYOOM, FAST, LOADING, READONLY, STALE, WRITE};
use crate::table::{Command, Handler, Handler::Data, Handler::Local};
use types::Error;

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("xadd", -5, WRITE | DENYOOM | FAST, "5.0.0", "Puts an entry behind the last one of a stream", Data(entries::add)).keys(1, 1, 1),
    Command::new("xlen", 2, READONLY | FAST, "5.0.0", "Counts the entries of a stream", Data(entries::length)).keys(1, 1, 1),
    Command::new("xrange", -4, READONLY, "5.0.0", "Reads the entries from one id to another", Data(entries::range)).keys(1, 1, 1),
    Command::new("xrevrange", -4, READONLY, "5.0.0", "Reads the entries from one id back to another", Data(entries::range_back)).keys(1, 1, 1),
    Command::new("xdel", -3, WRITE | FAST, "5.0.0", "Removes entries from a stream", Data(entries::delete)).keys(1, 1, 1),
    Command::new("xtrim", -4, WRITE, "5.0.0", "Removes the oldest entries of a stream", Data(entries::trim)).keys(1, 1, 1),
    Command::new("xsetid", -3, WRITE | DENYOOM | FAST, "5.0.0", "Sets the last id that a stream has given", Data(entries::set_last)).keys(1, 1, 1),
    Command::new("xread", -4, READONLY | BLOCKING, "5.0.0", "Reads the entries behind an id of each stream; waits for some", Data(reading::read)).streams_from(1),
    Command::new("xreadgroup", -7, WRITE | BLOCKING, "5.0.0", "Delivers entries of streams to a consumer of a group; waits for some", Data(reading::read_group)).streams_from(4),
    Command::new("xack", -4, WRITE | FAST, "5.0.0", "Acknowledges entries that a group has delivered", Data(pending::acknowledge)).keys(1, 1, 1),
    Command::new("xpending", -3, READONLY, "5.0.0", "Tells what a group has delivered and nobody acknowledged", Data(pending::list)).keys(1, 1, 1),
    Command::new("xclaim", -6, WRITE | FAST, "5.0.0", "Hands delivered entries to another consumer", Data(pending::claim)).keys(1, 1, 1),
    Command::new("xautoclaim", -6, WRITE | FAST, "6.2.0", "Hands entries that were delivered long ago to another consumer", Data(pending::claim_from)).keys(1, 1, 1),
    Command::new("xgroup", -2, 0, "5.0.0", "Manages the groups of a stream", Handler::Container).containing(XGROUP),
    Command::new("xinfo", -2, 0, "5.0.0", "Tells about streams and their groups", Handler::Container).containing(XINFO),
];

/// The table's entries of XGROUP.
#[rustfmt::skip]
static XGROUP: &[Command] = &[
    Command::new("xgroup|create", -5, WRITE | DENYOOM, "5.0.0", "Creates a group", Data(groups::create)).keys(2, 2, 1),
    Command::new("xgroup|setid", -5, WRITE, "5.0.0", "Sets up to where a group has read", Data(groups::set)).keys(2, 2, 1),
    Command::new("xgroup|destroy", 4, WRITE, "5.0.0", "Removes a group", Data(groups::destroy)).keys(2, 2, 1),
    Command::new("xgroup|createconsumer", 5, WRITE | DENYOOM, "6.2.0", "Creates a consumer of a group", Data(groups::create_consumer)).keys(2, 2, 1),
    Command::new("xgroup|delconsumer", 5, WRITE, "5.0.0", "Removes a consumer of a group", Data(groups::delete_consumer)).keys(2, 2, 1),
    Command::new("xgroup|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

/// The table's entries of XINFO.
#[rustfmt::skip]
static XINFO: &[Command] = &[
    Command::new("xinfo|stream", -3, READONLY, "5.0.0", "Tells about a stream", Data(info::stream)).keys(2, 2, 1),
    Command::new("xinfo|groups", 3, READONLY, "5.0.0", "Tells about the groups of a stream", Data(info::groups)).keys(2, 2, 1),
    Command::new("xinfo|consumers", 4, READONLY, "5.0.0", "Tells about the consumers of a group", Data(info::consumers)).keys(2, 2, 1),
    Command::new("xinfo|help", 2, LOADING | STALE, "5.0.0", "Lists the subcommands", Local(describe::help)),
];

/// An argument as a count that is not negative; a negative one counts as 0.
fn count_or_zero(call: &Call<'_>, index: usize) -> Result<u64, Error> {
    Ok(call.integer(index)?.max(0) as u64)
}
