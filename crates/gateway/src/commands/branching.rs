//! Commands that only keyspaces of the model `branch` have; these carry them out.

use crate::describe;
use crate::flow::Flow;
use crate::table::flag::{LOADING, NOSCRIPT, STALE};
use crate::table::{Command, Handler, Handler::Flow as Steer, Handler::Local};

/// The table's entries.
#[rustfmt::skip]
pub(crate) static COMMANDS: &[Command] = &[
    Command::new("branch", -2, 0, "anabranch 0.1.0", "Commands about the branches of a keyspace of the model branch", Handler::Container).containing(BRANCH),
    Command::new("merge", -2, 0, "anabranch 0.1.0", "Merges branches of a keyspace of the model branch", Handler::Container).containing(MERGE),
    Command::new("at", -3, NOSCRIPT, "anabranch 0.1.0", "Reads at a state that is kept, by its id or a name: AT state GET key", Steer(Flow::At)),
];

#[rustfmt::skip]
static BRANCH: &[Command] = &[
    Command::new("branch|begin", -2, NOSCRIPT, "anabranch 0.1.0", "Opens a transaction and replies the state it reads: BRANCH BEGIN [READONLY] [ON name|ANY|ANCESTOR|PARENT|STATE id|K n [AND|OR ...]]", Steer(Flow::OwnBegin)),
    Command::new("branch|commit", -2, NOSCRIPT, "anabranch 0.1.0", "Commits the open transaction and replies the state it made: BRANCH COMMIT [SERIALIZABLE|SNAPSHOT|READCOMMITTED|NOBRANCH|K n|ANCESTOR|PARENT|STATE id|ANY [AND|OR ...]]", Steer(Flow::OwnEnd)),
    Command::new("branch|abort", 2, NOSCRIPT, "anabranch 0.1.0", "Gives the open transaction up", Steer(Flow::OwnEnd)),
    Command::new("branch|defaults", -2, NOSCRIPT, "anabranch 0.1.0", "Sets what the session's transactions demand if they do not say: BRANCH DEFAULTS [BEGIN constraint] [COMMIT constraint]", Steer(Flow::Own)),
    Command::new("branch|name", -3, NOSCRIPT, "anabranch 0.1.0", "Gives a state, or the one that the session stands at, a name at this site: BRANCH NAME name [state]", Steer(Flow::Own)),
    Command::new("branch|ceiling", -2, NOSCRIPT, "anabranch 0.1.0", "Promises that the session begins nothing above these states, or above the one that it stands at, and keeps what is below until it promises more, takes it back or ends: BRANCH CEILING [state ...|OFF]", Steer(Flow::Own)),
    Command::new("branch|unname", 3, NOSCRIPT, "anabranch 0.1.0", "Forgets a name", Steer(Flow::Own)),
    Command::new("branch|names", 2, NOSCRIPT, "anabranch 0.1.0", "Lists the names of this site, each with its state", Steer(Flow::Own)),
    Command::new("branch|heads", 2, NOSCRIPT, "anabranch 0.1.0", "Lists the states without children, the most recent first", Steer(Flow::Own)),
    Command::new("branch|log", -2, NOSCRIPT, "anabranch 0.1.0", "Lists states, the most recent first: BRANCH LOG [FROM state] [COUNT n]", Steer(Flow::Own)),
    Command::new("branch|show", 3, NOSCRIPT, "anabranch 0.1.0", "Describes a state and names the keys that it wrote", Steer(Flow::Own)),
    Command::new("branch|diff", 4, NOSCRIPT, "anabranch 0.1.0", "Names the fork points of two states and the keys changed on either side", Steer(Flow::Own)),
    Command::new("branch|graph", -2, NOSCRIPT, "anabranch 0.1.0", "Draws the states: BRANCH GRAPH [TEXT|DOT|JSON]", Steer(Flow::Own)),
    Command::new("branch|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];

#[rustfmt::skip]
static MERGE: &[Command] = &[
    Command::new("merge|begin", -2, NOSCRIPT, "anabranch 0.1.0", "Opens a merge of all heads, or of these states, and replies which: MERGE BEGIN [ANY|state state ...]", Steer(Flow::OwnBegin)),
    Command::new("merge|forks", -2, NOSCRIPT, "anabranch 0.1.0", "Lists the fork points of the open merge, or of these states", Steer(Flow::Own)),
    Command::new("merge|conflicts", -2, NOSCRIPT, "anabranch 0.1.0", "Lists the keys that the open merge still has to write: MERGE CONFLICTS [cursor] [COUNT n]", Steer(Flow::Own)),
    Command::new("merge|get", 4, NOSCRIPT, "anabranch 0.1.0", "Shows the value of a key at a state: MERGE GET key state", Steer(Flow::Own)).keys(2, 2, 1),
    Command::new("merge|resolve", -3, NOSCRIPT, "anabranch 0.1.0", "Writes what the keyspace's handler, or the type's rule, makes of a conflicting key, or of all: MERGE RESOLVE key|ALL [HANDLER] [NEWEST]", Steer(Flow::Own)).keys(2, 2, 1),
    Command::new("merge|handler", 2, NOSCRIPT, "anabranch 0.1.0", "Shows the merge handler of the keyspace, and what came of it at this site", Steer(Flow::Own)),
    Command::new("merge|commit", -2, NOSCRIPT, "anabranch 0.1.0", "Commits the open merge and replies the state it made: MERGE COMMIT [constraint]", Steer(Flow::OwnEnd)),
    Command::new("merge|abort", 2, NOSCRIPT, "anabranch 0.1.0", "Gives the open merge up", Steer(Flow::OwnEnd)),
    Command::new("merge|help", 2, LOADING | STALE, "anabranch 0.1.0", "Lists the subcommands", Local(describe::help)),
];
