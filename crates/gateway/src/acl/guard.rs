//! Where users meet connections: every command of a session that may not do everything is looked at here, and sessions follow
//! when users change.

use super::{Denied, KeyspaceRules, LogContext, LogEntry, Reason, User};
use crate::commands::keyspaces;
use crate::engine::Engine;
use crate::flow::Flow;
use crate::gateway::Gateway;
use crate::host::Host;
use crate::session::{Connection, Mode, Session};
use crate::subscriptions::{Subscriptions, Topic};
use crate::table::{self, Command, Handler};
use resp::Arguments;
use std::sync::Arc;
use types::{Error, ErrorCode, KeyspaceId};

/// The user of connections that have not said who they are.
pub(crate) fn default_user(host: &dyn Host) -> Arc<User> {
    let mut default = None;
    host.users(&mut |users| default = Some(Arc::clone(users.default_user())));
    default.unwrap_or_else(|| unreachable!("a host shows its users"))
}

/// True if the session's user may choose this keyspace.
pub(crate) fn may_choose(user: &User, keyspace: KeyspaceId, host: &dyn Host) -> bool {
    user.keyspaces.is_all()
        || host.keyspace_name(keyspace).is_some_and(|name| user.keyspaces.allows(name.as_bytes()))
}

impl Session {
    /// It belongs to this user from now on.
    pub(crate) fn set_user(&mut self, user: Arc<User>, host: &dyn Host) {
        self.may_all = user.may_all();
        self.keyspace_is_open = may_choose(&user, self.keyspace, host);
        self.user = user;
    }

    /// It follows the changes of its user. False if its user was deleted, or may not subscribe any more to what it has
    /// subscribed to: the connection ends.
    fn follow(&mut self, id: crate::ConnectionId, subscriptions: &Subscriptions, host: &dyn Host) -> bool {
        let mut successor = None;
        host.users(&mut |users| successor = users.successor(&self.user).cloned());
        let Some(user) = successor else { return false };
        if Arc::ptr_eq(&user, &self.user) {
            return true;
        }
        self.set_user(user, host);
        if let Mode::Interactive { rules_changed, .. } = &mut self.mode {
            *rules_changed = true;
        }
        !self.is_subscriber() || {
            let may = |topic: Topic| {
                let names = subscriptions.of(topic, id);
                names.iter().all(|name| self.user.may_subscribe(name, topic == Topic::Pattern))
            };
            Topic::ALL.into_iter().all(may)
        }
    }
}

impl Connection {
    fn follow(&mut self, subscriptions: &Subscriptions, host: &dyn Host) -> bool {
        self.session.follow(self.id, subscriptions, host)
    }
}

impl Gateway {
    /// Lets the sessions follow if users have changed since it looked last.
    #[inline]
    pub(crate) fn follow_users(&mut self, host: &mut dyn Host) {
        if host.users_version() != self.users_seen {
            self.review_users(host);
        }
    }

    #[cold]
    fn review_users(&mut self, host: &mut dyn Host) {
        self.users_seen = host.users_version();
        for connection in self.slots.iter_mut().filter_map(|slot| slot.connection.as_mut()) {
            if !connection.closing && !connection.follow(&self.subscriptions, host) {
                connection.end();
                self.news.push(connection.id);
            }
        }
    }
}

impl<H: Host> Engine<'_, H> {
    /// A command may have changed users, or who the client is.
    #[inline]
    pub(crate) fn follow_user(&mut self) {
        if self.host.users_version() != self.gateway.users_seen {
            self.gateway.follow_users(&mut *self.host);
            let connection = &mut *self.connection;
            // The reply to its own command is still sent.
            connection.closing |= !connection.follow(&self.gateway.subscriptions, &*self.host);
        }
        if self.connection.session.seeks_keyspace && !self.connection.session.in_transaction() {
            self.choose_only_keyspace();
        }
    }

    /// Whose rules name one keyspace begins there.
    #[cold]
    fn choose_only_keyspace(&mut self) {
        let session = &mut self.connection.session;
        session.seeks_keyspace = false;
        if session.keyspace_is_open {
            return;
        }
        let only = session.user.keyspaces.only_one().map(<[u8]>::to_vec);
        if let Some(keyspace) = only.and_then(|name| self.host.keyspace_of_name(&name)) {
            session.select(keyspace, 0);
            self.gateway.stop_where_untold(self.connection, self.host);
        }
    }

    /// # Errors
    /// The session's user may not do this.
    #[cold]
    pub(crate) fn check_user(
        &mut self,
        found: (&'static Command, u16),
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        let context = match self.connection.session.mode {
            Mode::Queueing(_) => LogContext::Multi,
            Mode::Plain | Mode::Interactive { .. } => LogContext::TopLevel,
        };
        self.refusal(found, arguments, context).map_err(|denied| denied.error(found.0, arguments))?;
        self.check_user_keyspace(found.0, arguments)
    }

    /// Looks whether the user may do this, and notes it if not.
    fn refusal(
        &mut self,
        found: (&'static Command, u16),
        arguments: Arguments<'_>,
        context: LogContext,
    ) -> Result<(), Denied> {
        let checked = self.connection.session.user.check(found, arguments);
        if let Err(denied) = &checked {
            self.note_denied(*denied, found.0, arguments, context);
        }
        checked
    }

    /// The same for a command that a script asks for.
    ///
    /// # Errors
    /// The user may not do this: in Redis's words for scripts.
    pub(crate) fn check_user_of_script(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        if self.connection.session.may_all {
            return Ok(());
        }
        let found = table::locate(arguments)?;
        let in_words = |denied: Denied| match denied.reason {
            Reason::Command => {
                Error::err("The user executing the script can't run this command or subcommand")
            }
            Reason::Key => Error::err(
                "The user executing the script can't access at least one of the keys mentioned in the command arguments",
            ),
            Reason::Channel => Error::err(
                "The user executing the script can't publish to the channel mentioned in the command",
            ),
            Reason::Lookup => denied.error(found.0, arguments),
        };
        self.refusal(found, arguments, LogContext::Lua).map_err(in_words)?;
        self.check_user_keyspace(found.0, arguments)
    }

    /// The same for a command that was queued, when EXEC comes: rules may have changed.
    ///
    /// # Errors
    /// The user may not do this: in Redis's words for EXEC.
    pub(crate) fn check_user_of_queued(&mut self, arguments: Arguments<'_>) -> Result<(), Error> {
        if self.connection.session.may_all {
            return Ok(());
        }
        let found = table::locate(arguments)?;
        let in_words = |denied: Denied| {
            let reason = match denied.reason {
                Reason::Command => "no permission to execute the command or subcommand",
                Reason::Key => "no permission to touch the specified keys",
                Reason::Channel => {
                    "no permission to access one of the channels used as arguments to the command"
                }
                Reason::Lookup => return denied.error(found.0, arguments),
            };
            let text = format!(
                "ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is no \
                 longer allowed for the following reason: {reason}"
            );
            Error::new(ErrorCode::NoPerm, text)
        };
        self.refusal(found, arguments, LogContext::Multi).map_err(in_words)?;
        self.check_user_keyspace(found.0, arguments)
    }

    /// True if the user may do this. Writes no log entry.
    pub(crate) fn user_may(&self, found: (&'static Command, u16), arguments: Arguments<'_>) -> bool {
        self.connection.session.user.check(found, arguments).is_ok()
            && self.check_user_keyspace(found.0, arguments).is_ok()
    }

    fn note_denied(
        &mut self,
        denied: Denied,
        command: &Command,
        arguments: Arguments<'_>,
        context: LogContext,
    ) {
        let argument = || arguments.get(denied.at).unwrap_or_default().to_vec();
        let (cause, object) = match denied.reason {
            Reason::Command => ("command", denied.command(command, arguments).into()),
            Reason::Key => ("key", argument()),
            Reason::Channel => ("channel", argument()),
            Reason::Lookup => return,
        };
        let user = self.connection.session.user.name.to_vec();
        let entry = entry_of(self.connection, (cause, object), user, context, self.now);
        self.host.acl_log(&mut |log| log.note(entry.clone()));
    }

    /// Refuses what leaves the keyspaces that the user may choose. What it may not choose is as if it did not exist.
    fn check_user_keyspace(&self, command: &Command, arguments: Arguments<'_>) -> Result<(), Error> {
        let session = &self.connection.session;
        if matches!(session.mode, Mode::Interactive { rules_changed: true, .. }) && commits(command) {
            let text =
                "the rules of this user have changed since the transaction began; abort it and begin another";
            return Err(Error::new(ErrorCode::NoPerm, text));
        }
        let rules = &session.user.keyspaces;
        if !rules.is_all() && !session.keyspace_is_open && uses_keyspace(command) {
            let text = "this user may not use the selected keyspace; choose one of those that KEYSPACE LIST names, with KEYSPACE \
                        USE";
            return Err(Error::new(ErrorCode::NoPerm, text));
        }
        check_keyspaces(rules, command, arguments)
    }
}

/// Refuses what concerns keyspaces beyond the rules, whichever is selected.
///
/// # Errors
/// It names one of them, or concerns all there are.
pub(crate) fn check_keyspaces(
    rules: &KeyspaceRules,
    command: &Command,
    arguments: Arguments<'_>,
) -> Result<(), Error> {
    if rules.is_all() {
        return Ok(());
    }
    if let Some(text) = concerns_all(command) {
        return Err(Error::new(ErrorCode::NoPerm, text));
    }
    match keyspaces::named(command, arguments) {
        Some(name) if !rules.allows(name) && command.name == "keyspace|create" => {
            let text = format!("this user may not use a keyspace of the name '{}'", table::lossy(name));
            Err(Error::new(ErrorCode::NoPerm, text))
        }
        Some(name) if !rules.allows(name) => Err(keyspaces::missing(name)),
        _ => Ok(()),
    }
}

/// The error to a user who may use some keyspaces only, if this command changes something of all.
fn concerns_all(command: &Command) -> Option<&'static str> {
    match command.name {
        "flushall" => Some(
            "FLUSHALL empties every keyspace, and this user may use some only; FLUSHDB empties the selected one",
        ),
        "function|load" | "function|delete" | "function|flush" | "function|restore" | "function|kill"
        | "script|flush" | "script|kill" => Some(
            "functions and scripts are those of all keyspaces, and this user may use some only; a user of all keyspaces can do it",
        ),
        _ => None,
    }
}

/// An entry for `ACL LOG`: cause and object, of which user.
pub(crate) fn entry_of(
    connection: &Connection,
    (cause, object): (&'static str, Vec<u8>),
    user: Vec<u8>,
    context: LogContext,
    now: protocol::Now,
) -> LogEntry {
    let mut client = String::new();
    connection.info().write_line(now.instant, &mut client);
    LogEntry { count: 1, cause, context, object, user, at_millis: now.wall.as_millis(), client }
}

/// True for what reads or writes the selected keyspace.
fn uses_keyspace(command: &Command) -> bool {
    match command.handler {
        Handler::Data(_) => true,
        Handler::Flow(flow) => {
            matches!(
                flow,
                Flow::Watch
                    | Flow::Begin
                    | Flow::Own
                    | Flow::At
                    | Flow::Eval
                    | Flow::OwnBegin
                    | Flow::Context
            ) || commits(command)
        }
        Handler::Local(_) | Handler::Container => false,
    }
}

/// True for what commits the open transaction: TXN COMMIT, BRANCH COMMIT, MERGE COMMIT.
fn commits(command: &Command) -> bool {
    match command.handler {
        Handler::Flow(Flow::Commit) => true,
        Handler::Flow(Flow::OwnEnd) => command.short_name() == "commit",
        _ => false,
    }
}
