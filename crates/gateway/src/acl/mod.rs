//! Users and what they may do: Redis's access control lists, and which keyspaces a user may choose.
//!
//! ```text
//!   ACL SETUSER, the file --rules--> User: flags, passwords, keyspaces, selectors (commands, keys, channels)
//!   a command --> Session::may_all? --yes--> goes on                          (one branch, the default user)
//!                                   --no---> keyspace? --> some selector allows command, keys and channels?
//! ```
//!
//! [`Users`] is shared by all gateways of a process. A user is never changed: another one takes its place, and the gateways,
//! which compare a version at every read of a connection and every turn, let their sessions follow. What a user may do is
//! worked out when its rules change; a command is looked up in a bit set.
//!
//! **Selectors.** As in Redis, a command is allowed if one selector alone allows all of it: the command, every key, every
//! channel. What is reported otherwise is what went furthest.
//!
//! **Keyspaces.** `keyspace:pattern`, a rule of ours, says which keyspaces a user may choose and see; without one it is all of
//! them. It is of the user, not of a selector. A keyspace that a user may not choose is as if it did not exist.
//!
//! **What is not here.** The file is read and written by the host. There are no users that all processes of a cluster share.

mod check;
mod facts;
mod file;
mod guard;
mod keyspaces;
mod log;
mod password;
mod selector;
#[cfg(test)]
mod tests;
mod user;
mod users;

pub(crate) use check::{Denied, Reason};
pub(crate) use facts::{CATEGORIES, Facts};
pub(crate) use guard::{check_keyspaces, default_user, entry_of, may_choose};
pub use keyspaces::KeyspaceRules;
pub use log::AclLog;
pub(crate) use log::{Context as LogContext, Entry as LogEntry};
pub(crate) use selector::Selector;
pub(crate) use user::User;
pub use users::Users;
