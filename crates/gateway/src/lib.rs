//! Sessions, the command table, transactions: what stands between a client's bytes and a keyspace's requests.
//!
//! No sockets, no threads, no clock, no entropy: bytes come in through [`Gateway::receive`], requests leave through
//! a [`Host`], replies come back through [`protocol::Replies`], at once or later, and bytes go out.
//!
//! ```text
//!   bytes --resp::Parser--> commands --table--> plans --+--> one operation: joins the batch, Request::One
//!                                                       +--> several steps: Request::Many, replies combined
//!                                                       +--> a dialogue: Begin, Operate ..., Commit, retried
//!   bytes <--resp::Encoder-- replies <--combine-- Replies <------------------------------------ keyspace
//! ```
//!
//! **The fast path.** Consecutive commands on a single key become one batch, and their replies are encoded where
//! they are to be sent from. Everything else ends the batch. A connection that waits for a reply executes nothing
//! more until it has come, so replies keep the order of commands.

mod acl;
mod blocking;
mod client;
mod combine;
mod commands;
mod control;
mod describe;
mod diagnostics;
mod dialogue;
mod documents;
mod engine;
mod exec;
mod flow;
mod functions;
mod gateway;
mod host;
mod interest;
mod interpreter;
mod loan;
mod mailbox;
mod monitor;
mod news;
mod notifications;
mod number;
mod pending_deliveries;
mod plan;
mod pubsub;
mod random_key;
mod scripting;
mod sequence;
mod session;
mod statistics;
mod subscriptions;
mod table;
mod tally;
mod task;
mod tracking;
mod turns;
mod waiters;

pub use acl::{AclLog, KeyspaceRules, Users};
pub use client::{ClientFilter, ClientInfo, ClientKind, Peer};
pub use commands::keyspaces::missing as missing_keyspace;
pub use describe::command_table_markdown;
pub use diagnostics::{Diagnostics, SlowCommand};
pub use functions::{
    Function, FunctionLibraries, FunctionLibrary, LibraryChange, MAX_FUNCTION_BYTES, RestorePolicy,
    ScriptFlags, WRONG_NAME, check_room, function_name, library_name,
};
pub use gateway::{Config, ConnectionId, Gateway, Received, State};
pub use host::{
    Administration, ClusterMap, ClusterMember, Figures, Host, Incident, KeyspaceOptions, Lines, Loan, Model,
    Pause, Safety, no_acl_file,
};
pub use interest::Interest;
pub use interpreter::{Event, Interpreter, Run, RunningFunction, Script, ScriptCall, ScriptKind, no_script};
pub use monitor::MONITOR_OUTPUTS;
pub use news::{Audience, Changes, LineNews, Message, News, SeenContext};
pub use notifications::{Lapse, Lapsed, Notifications};
pub use pubsub::OutputLimit;
pub use statistics::{Answered, Statistics};
pub use tracking::TrackingFigures;
pub use waiters::{Place, Sought, Turn, Waiter, Waiters};
