//! Commands that steer the connection: transactions, watches, the end.

use crate::acl::default_user;
use crate::combine::Combine;
use crate::commands::transactions::behind_prefix;
use crate::engine::Engine;
use crate::host::Host;
use crate::plan::{Call, Plan};
use crate::sequence::{Commands, append_command};
use crate::session::{Mode, Queue, Session};
use crate::table::flag::{DENYOOM, WRITE};
use crate::table::{self, Command, Handler};
use crate::tally::Wanted;
use crate::task::{After, Task};
use protocol::{ContextRequest, Request, Step};
use resp::Arguments;
use std::sync::Arc;
use types::{Error, ErrorCode, KeyHash, KeyspaceId, ReplySink};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// MULTI
    Multi,
    /// EXEC
    Exec,
    /// DISCARD
    Discard,
    /// WATCH
    Watch,
    /// UNWATCH
    Unwatch,
    /// TXN BEGIN
    Begin,
    /// TXN COMMIT
    Commit,
    /// TXN ABORT
    Abort,
    /// QUIT
    Quit,
    /// RESET
    Reset,
    /// FLUSHALL
    FlushAll,
    /// What only keyspaces of one model have, in or out of a transaction: BRANCH HEADS, MERGE GET
    Own,
    /// AT, before a command that reads
    At,
    /// EVAL, EVALSHA, FCALL and their like that only read
    Eval,
    /// BRANCH BEGIN, MERGE BEGIN
    OwnBegin,
    /// BRANCH COMMIT, BRANCH ABORT, MERGE COMMIT, MERGE ABORT
    OwnEnd,
    /// KEYSPACE CREATE, ALTER, DROP, LIST, INFO, TYPES LOAD, FUNCTION LOAD, DELETE, FLUSH, RESTORE
    Administer,
    /// CONTEXT NEW, USE, DROP, TOKEN and RESTORE, SESSION SCOPE
    Context,
}

impl Flow {
    /// True when its reply tells of the session only: nothing that a log refuses makes it wrong.
    pub(crate) fn concerns_session(self) -> bool {
        !matches!(
            self,
            Flow::Exec
                | Flow::Commit
                | Flow::FlushAll
                | Flow::Own
                | Flow::At
                | Flow::Eval
                | Flow::OwnBegin
                | Flow::OwnEnd
        )
    }

    /// True when it is carried out at once between MULTI and EXEC too.
    pub(crate) fn is_never_queued(self) -> bool {
        !matches!(self, Flow::Unwatch | Flow::FlushAll | Flow::Eval | Flow::Administer | Flow::Context)
    }
}

impl<H: Host> Engine<'_, H> {
    /// Carries the command out.
    pub(crate) fn steer(&mut self, flow: Flow, call: Call<'_>) {
        let outcome = match flow {
            Flow::Multi => self.multi(),
            Flow::Exec => self.exec(),
            Flow::Discard => self.discard(),
            Flow::Watch => self.watch(call),
            Flow::Unwatch => self.unwatch(),
            Flow::Begin => self.begin(call),
            Flow::Commit => self.end(call, After::Ended, |session| Request::Commit { session }),
            Flow::Abort => self.end(call, After::Aborted, |session| Request::Abort { session }),
            Flow::Quit => self.quit(),
            Flow::Reset => self.reset(),
            Flow::FlushAll => self.flush_all_command(call),
            Flow::Own => self.own(call, After::Nothing),
            Flow::At => self.at(call),
            Flow::Eval => self.eval(call),
            Flow::OwnBegin => self.own_begin(call),
            Flow::OwnEnd => self.own_end(call),
            Flow::Administer => self.administer(call),
            Flow::Context => self.context(call),
        };
        if let Err(error) = outcome {
            self.connection.encoder().error(&error);
        }
    }

    /// Queues a command until EXEC.
    pub(crate) fn queue(&mut self, command: &'static Command, arguments: Arguments<'_>) {
        let (most, most_bytes) =
            (self.gateway.config.max_queued_commands, self.gateway.config.max_queued_bytes);
        let Mode::Queueing(queue) = &mut self.connection.session.mode else { return };
        let bytes: usize = arguments.iter().map(|argument| argument.len() + 16).sum();
        if queue.len >= most || queue.source.len() + bytes > most_bytes {
            queue.refused = true;
            let limit = if queue.len >= most { most } else { most_bytes };
            let unit = if queue.len >= most { "commands" } else { "bytes" };
            let text = format!("'{}' exceeds the limit of {limit} {unit} in a transaction", command.name);
            return self.connection.encoder().error(&Error::err(text));
        }
        // A refused queue is never executed.
        if !queue.refused {
            append_command(arguments, &mut queue.source);
        }
        queue.grows |= behind_prefix(command, arguments).is_ok_and(|(command, _)| command.is(DENYOOM));
        queue.len += 1;
        self.connection.encoder().simple("QUEUED");
    }

    /// Refuses a command that would leave the keyspace of the transaction (Corrections 77).
    pub(crate) fn check_keyspace(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let target = match call.command.name {
            "flushall" if self.host.keyspaces().len() > 1 => {
                return Err(cross_keyspace("FLUSHALL empties every keyspace, a transaction has one"));
            }
            "select" => {
                crate::commands::connection::selected(call, &self.connection.session.user, self.host).ok()
            }
            "keyspace|use" => crate::commands::keyspaces::used(call, self.host).ok().map(|id| (id, 0)),
            _ => None,
        };
        match target {
            Some((keyspace, _)) if keyspace != self.connection.session.keyspace => {
                Err(cross_keyspace("a transaction has one keyspace; end it before choosing another"))
            }
            _ => Ok(()),
        }
    }

    /// Refuses a command that would leave an EXEC without its reply.
    pub(crate) fn check_replies(call: &Call<'_>) -> Result<(), Error> {
        match call.command.name {
            "client|reply" | "debug|sleep" | "monitor" => {
                let name = call.command.name.replace('|', " ").to_ascii_uppercase();
                Err(Error::err(format!("{name} inside a transaction is not allowed")))
            }
            _ => Ok(()),
        }
    }

    fn multi(&mut self) -> Result<(), Error> {
        let session = &mut self.connection.session;
        match session.mode {
            Mode::Queueing(_) => return Err(Error::err("MULTI calls can not be nested")),
            Mode::Interactive { .. } => return Err(Error::err("MULTI inside TXN is not allowed")),
            Mode::Plain => check_watch(session)?,
        }
        session.mode = Mode::Queueing(Queue::default());
        self.connection.encoder().simple("OK");
        Ok(())
    }

    fn exec(&mut self) -> Result<(), Error> {
        let session = &mut self.connection.session;
        let Mode::Queueing(queue) = &mut session.mode else {
            return Err(Error::err("EXEC without MULTI"));
        };
        if queue.grows
            && !queue.refused
            && let Err(error) = self.host.may_grow(session.keyspace)
        {
            self.abort_exec(&error);
            return Ok(());
        }
        let queue = std::mem::take(queue);
        session.mode = Mode::Plain;
        if queue.refused {
            let text = "Transaction discarded because of previous errors.";
            self.connection.encoder().error(&Error::new(ErrorCode::ExecAbort, text));
            self.forget_watches();
            return Ok(());
        }
        let watched = session.watching.take().is_some();
        let commands = Commands::new(queue.source);
        for arguments in (0..commands.len()).filter_map(|index| commands.get(index)) {
            if let Ok((_, number)) = table::locate(arguments) {
                self.gateway.statistics.counted(number);
            }
            if self.host.is_monitored() {
                self.note_monitored(arguments, false);
            }
        }
        let commands = self.with_refusals(commands);
        self.execute_queue(commands, watched);
        Ok(())
    }

    /// Notes which of the queued commands the user may not execute any more.
    fn with_refusals(&mut self, mut commands: Commands) -> Commands {
        if !self.connection.session.may_all {
            let check = |index| Some((index, self.check_user_of_queued(commands.get(index)?).err()?));
            let refusals = (0..commands.len()).filter_map(check).collect();
            commands.refusals = refusals;
        }
        commands
    }

    /// EXEC itself was not well formed: Redis discards the transaction and says why.
    pub(crate) fn abort_exec(&mut self, error: &Error) {
        if let Mode::Queueing(_) = self.connection.session.mode {
            self.connection.session.mode = Mode::Plain;
        }
        let reason = if error.code == ErrorCode::Err { error.message.to_string() } else { error.to_string() };
        let text = format!("Transaction discarded because of: {reason}");
        self.connection.encoder().error(&Error::new(ErrorCode::ExecAbort, text));
        self.forget_watches();
    }

    fn discard(&mut self) -> Result<(), Error> {
        let session = &mut self.connection.session;
        if !matches!(session.mode, Mode::Queueing(_)) {
            return Err(Error::err("DISCARD without MULTI"));
        }
        session.mode = Mode::Plain;
        self.connection.encoder().simple("OK");
        self.forget_watches();
        Ok(())
    }

    /// Forgets the watches after the client has its reply.
    pub(crate) fn forget_watches(&mut self) {
        if let Some(watching) = self.connection.session.watching.take() {
            self.unwatch_keyspace(watching.keyspace);
        }
    }

    /// Lets a keyspace forget what the session watches there.
    pub(crate) fn unwatch_keyspace(&mut self, keyspace: KeyspaceId) {
        let session = self.connection.session.id();
        let id = self.send(keyspace, Request::Unwatch { session });
        self.finish_or_wait(id, Task::Ignore);
    }

    fn watch(&mut self, call: Call<'_>) -> Result<(), Error> {
        let session = &self.connection.session;
        match session.mode {
            Mode::Queueing(_) => return Err(Error::err("WATCH inside MULTI is not allowed")),
            Mode::Interactive { .. } => return Err(Error::err("WATCH inside TXN is not allowed")),
            Mode::Plain => check_watch(session)?,
        }
        let (added, most) = (call.len() - 1, self.gateway.config.max_watched_keys);
        if session.watching.map_or(0, |watching| watching.keys) + added > most {
            return Err(Error::err(format!("a session watches at most {most} keys")));
        }
        let keys: Vec<(&[u8], KeyHash)> =
            call.arguments.iter().skip(1).map(|key| (key, call.seed.hash(key))).collect();
        let request = Request::Watch { session: session.id(), keys: &keys };
        let id = self.send(session.keyspace, request);
        self.finish_or_wait(id, Task::Forward(After::Watched(added)));
        Ok(())
    }

    fn unwatch(&mut self) -> Result<(), Error> {
        self.connection.encoder().simple("OK");
        // What an open transaction watches belongs to it, as to one that is queued.
        if !matches!(self.connection.session.mode, Mode::Interactive { .. }) {
            self.forget_watches();
        }
        Ok(())
    }

    fn begin(&mut self, call: Call<'_>) -> Result<(), Error> {
        let session = &self.connection.session;
        match session.mode {
            Mode::Queueing(_) => return Err(Error::err("TXN inside MULTI is not allowed")),
            Mode::Interactive { .. } => return Err(Error::err("TXN calls can not be nested")),
            Mode::Plain => check_watch(session)?,
        }
        let read_only = call.is(2, "READONLY");
        if call.len() > 3 || (call.len() == 3 && !read_only) {
            return Err(Error::syntax());
        }
        let watched = session.watching.is_some();
        let request = Request::Begin { session: session.id(), read_only, watched };
        let id = self.send(session.keyspace, request);
        self.finish_or_wait(id, Task::Forward(After::Began { read_only }));
        Ok(())
    }

    fn end(
        &mut self,
        call: Call<'_>,
        after: After,
        request: fn(types::SessionId) -> Request<'static>,
    ) -> Result<(), Error> {
        let session = &self.connection.session;
        if !matches!(session.mode, Mode::Interactive { .. }) {
            let name = call.command.short_name().to_ascii_uppercase();
            return Err(Error::err(format!("TXN {name} without TXN BEGIN")));
        }
        let id = self.send(session.keyspace, request(session.id()));
        self.finish_or_wait(id, Task::Forward(after));
        Ok(())
    }

    /// Passes a command on, as it is, to the keyspace.
    fn own(&mut self, call: Call<'_>, after: After) -> Result<(), Error> {
        let session = &self.connection.session;
        if let Mode::Queueing(_) = session.mode {
            let name = call.command.name.replace('|', " ").to_ascii_uppercase();
            return Err(Error::err(format!("{name} inside MULTI is not allowed")));
        }
        let words: Vec<&[u8]> = call.arguments.iter().collect();
        let id =
            self.send(session.keyspace, Request::Own { session: session.id(), words: &words, steps: &[] });
        self.finish_or_wait(id, Task::Forward(after));
        Ok(())
    }

    /// `AT state command`: the command, which must read only, at that state.
    fn at(&mut self, call: Call<'_>) -> Result<(), Error> {
        let session = &self.connection.session;
        if session.in_transaction() {
            return Err(Error::err("AT inside a transaction is not allowed: it reads the state it began at"));
        }
        let (command, arguments) = (table::find(call.arguments.after(2))?, call.arguments.after(2));
        let refused = || {
            let name = command.name.replace('|', " ").to_ascii_uppercase();
            Error::err(format!("AT takes a command that reads data in one step, and '{name}' is none"))
        };
        let Handler::Data(planner) = command.handler else { return Err(refused()) };
        if command.is(WRITE) {
            return Err(refused());
        }
        let (steps, combine) = match self.plan(planner, &Call { arguments, command, ..call })? {
            Plan::One(operation) => (vec![Step::Key(operation)], Combine::Pass),
            Plan::Many { steps, combine } => (steps, combine),
            Plan::Dialogue(_) => return Err(refused()),
        };
        let session = &self.connection.session;
        let request = Request::Own { session: session.id(), words: &[b"AT", call.bytes(1)], steps: &steps };
        let id = self.send(session.keyspace, request);
        self.finish_or_wait(id, Task::Combine { combine, len: steps.len() });
        Ok(())
    }

    fn own_begin(&mut self, call: Call<'_>) -> Result<(), Error> {
        let session = &self.connection.session;
        if let Mode::Interactive { .. } = session.mode {
            return Err(Error::err("a transaction is open; commit or abort it before the next one"));
        }
        check_watch(session)?;
        let read_only = call.is(2, "READONLY");
        self.own(call, After::Began { read_only })
    }

    fn own_end(&mut self, call: Call<'_>) -> Result<(), Error> {
        if !matches!(self.connection.session.mode, Mode::Interactive { .. }) {
            let name = call.command.name.replace('|', " ").to_ascii_uppercase();
            return Err(Error::err(format!("{name} without BRANCH BEGIN or MERGE BEGIN")));
        }
        if call.command.short_name() == "abort" {
            self.connection.outbox.clear();
        }
        self.own(call, After::Ended)
    }

    fn quit(&mut self) -> Result<(), Error> {
        self.connection.encoder().simple("OK");
        self.connection.closing = true;
        Ok(())
    }

    /// The connection is as if it were new.
    fn reset(&mut self) -> Result<(), Error> {
        self.close_session();
        self.gateway.unsubscribe_all(&mut *self.connection, &mut *self.host);
        self.connection.outbox.clear();
        self.gateway.set_monitor(self.connection.id, false, self.host);
        self.gateway.stop_tracking(self.connection, self.host);
        let authenticated = !self.host.authentication_required();
        let user = default_user(self.host);
        let keyspace = self.host.keyspace_of_number(0).unwrap_or_default();
        let connection = &mut *self.connection;
        let old = &connection.session;
        let mut session = Session::new(old.peer.clone(), keyspace, user, authenticated, old.opened_at);
        session.active_at = old.active_at;
        // They still tell which library is behind the connection, as in Redis.
        session.library.clone_from(&old.library);
        session.library_version.clone_from(&old.library_version);
        session.wrong_passwords = old.wrong_passwords;
        session.set_user(Arc::clone(&session.user), &*self.host);
        connection.session = session;
        connection.parser.set_authenticated(authenticated);
        connection.tally.replies = Wanted::All;
        connection.encoder().simple("RESET");
        Ok(())
    }

    fn flush_all_command(&mut self, call: Call<'_>) -> Result<(), Error> {
        crate::commands::keys::check_flush_mode(&call)?;
        let mut keyspaces = self.host.keyspaces();
        if self.connection.session.in_transaction() {
            // Only one keyspace: `check_keyspace` saw to it.
            let id = self.send_steps(&[Step::Flush], true);
            self.finish_or_wait(id, Task::Combine { combine: Combine::Pass, len: 1 });
        } else {
            keyspaces.reverse();
            self.flush_all(keyspaces);
        }
        Ok(())
    }

    fn context(&mut self, call: Call<'_>) -> Result<(), Error> {
        let ask = crate::commands::sessions::ask(&call)?;
        if let ContextRequest::Scope { private } = ask {
            if private && self.connection.session.tracking.is_some() {
                return Err(crate::commands::tracking::stable_only());
            }
            self.connection.session.reads_stable_only |= private;
        }
        let session = self.connection.session.id();
        let id = self.send(self.connection.session.keyspace, Request::Context { session, ask });
        self.finish_or_wait(id, Task::Forward(After::Nothing));
        Ok(())
    }

    fn administer(&mut self, call: Call<'_>) -> Result<(), Error> {
        let command = match call.command.name.starts_with("function|") {
            true => crate::commands::functions::administration(&call, self.host)?,
            false => {
                crate::commands::keyspaces::administration(&call, &self.connection.session.user.keyspaces)?
            }
        };
        let id = self.new_request();
        self.host.administer(id, command, &mut self.gateway.mailbox);
        self.finish_or_wait(id, Task::Forward(After::Nothing));
        Ok(())
    }
}

/// Refuses a transaction in another keyspace than that of the watched keys (Corrections 77).
fn check_watch(session: &Session) -> Result<(), Error> {
    match session.watching {
        Some(watching) if watching.keyspace != session.keyspace => {
            Err(cross_keyspace("keys are watched in another keyspace; UNWATCH first"))
        }
        _ => Ok(()),
    }
}

fn cross_keyspace(text: &'static str) -> Error {
    Error::new(ErrorCode::CrossKeyspace, text)
}
