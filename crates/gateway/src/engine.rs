//! Executes a connection's commands: the fast path, and the choice of any other.

use crate::blocking::Woken;
use crate::combine::Combine;
use crate::commands::connection::admit;
use crate::commands::moving::check_destination;
use crate::commands::pubsub;
use crate::commands::transactions::behind_prefix;
use crate::control::Control;
use crate::diagnostics::SlowCommand;
use crate::flow::Flow;
use crate::gateway::Gateway;
use crate::host::{Host, Incident, Pause};
use crate::loan::Borrowed;
use crate::mailbox::InOrder;
use crate::plan::{Call, Plan};
use crate::sequence::{Commands, Sequence, Wrapper, append_command};
use crate::session::{Activity, Connection, Hold, Mode};
use crate::table::{self, Command, Handler, Planner, flag};
use crate::tally::{Waiting, words_of};
use crate::task::Task;
use crate::tracking::reads::Moment;
use protocol::{KeyedOperation, Now, Request, Step};
use resp::{Arguments, Pipeline};
use std::mem;
use types::{Error, ErrorCode, ReplySink, RequestId};

/// A connection while it executes: its gateway has taken it out of its slot meanwhile.
pub(crate) struct Engine<'e, H> {
    pub(crate) gateway: &'e mut Gateway,
    pub(crate) connection: &'e mut Connection,
    pub(crate) host: &'e mut H,
    pub(crate) now: Now,
    /// The process publishes changes of keys: commands that write are carried out one by one.
    pub(crate) notifies: bool,
    /// The keys that are lent to the transaction at work.
    pub(crate) borrowed: Option<Borrowed<'e>>,
}

/// What a command turns out to be.
enum Action<'a> {
    /// An operation that joins the batch.
    Join(KeyedOperation<'a>),
    /// An operation inside of an open transaction: the gateway submits operations that came together as one request.
    Step(KeyedOperation<'a>),
    /// Any other command on data.
    Run(Plan<'a>),
    /// A command that is answered at once.
    Local(fn(&mut Control<'_>, &mut dyn ReplySink) -> Result<(), Error>, Call<'a>),
    /// A command that steers the connection.
    Flow(Flow, Call<'a>),
    /// A command between MULTI and EXEC.
    Queue(&'static Command),
    /// A command that may wait, and whether it is one transaction.
    Wait(Call<'a>, bool),
}

impl Action<'_> {
    /// True if those who watch are shown it later: when it is executed, or, of EXEC, behind what was queued.
    fn is_shown_later(&self) -> bool {
        matches!(self, Action::Queue(_) | Action::Flow(Flow::Exec, _))
    }
}

/// No keyspace refuses a command of so many words.
pub(crate) const FEW_WORDS: usize = 1024;

/// The most operations of an open transaction in one request.
const MAX_STEPS: usize = 64;

impl<'e, H: Host> Engine<'e, H> {
    /// Executes commands of this connection.
    pub(crate) fn new(gateway: &'e mut Gateway, connection: &'e mut Connection, host: &'e mut H) -> Self {
        let (now, notifies) = (host.now(), host.notifications().is_on());
        Engine { gateway, connection, host, now, notifies, borrowed: None }
    }

    /// Executes the pipeline's commands, as far as the connection need not wait; returns how many.
    pub(crate) fn execute(&mut self, pipeline: &Pipeline, input: &[u8]) -> usize {
        let mut executed = pipeline.len();
        let batch = reuse(mem::take(&mut self.gateway.requests));
        let mut gathered = Gathered { batch, steps: Vec::new(), first: None };
        let session = self.connection.session.id();
        self.follow_user();
        let (pause, is_monitored) = (self.host.pause(), self.host.is_monitored());
        for (index, arguments) in pipeline.commands(input).enumerate() {
            let is_full = gathered.is_full(self.connection);
            if (is_full && !self.flush(&mut gathered)) || self.output_is_full() {
                executed = index;
                break;
            }
            if pause.is_on(self.now.instant) && waits_for(pause, arguments) {
                executed = index;
                if self.flush(&mut gathered) {
                    self.connection.activity = Activity::Held { until: pause.until, hold: Hold::Pause };
                }
                break;
            }
            self.connection.tally.next_command();
            let action = self.classify(arguments);
            if is_monitored && action.as_ref().is_ok_and(|action| !action.is_shown_later()) {
                self.note_monitored(arguments, false);
            }
            let action = match action {
                Ok(Action::Join(operation)) => {
                    gathered.batch.push((self.new_request(), Request::One { session, operation }));
                    self.join(&mut gathered, arguments);
                    continue;
                }
                Ok(Action::Step(operation)) => {
                    gathered.steps.push(Step::Key(operation));
                    self.join(&mut gathered, arguments);
                    continue;
                }
                other => other,
            };
            let current = self.connection.tally.current();
            if !self.flush(&mut gathered) {
                executed = index;
                break;
            }
            self.connection.tally.go_on_with(current);
            let shows_later = is_monitored && matches!(&action, Ok(Action::Flow(Flow::Exec, _)));
            self.perform(arguments, action);
            self.send_published();
            self.tell_changes();
            self.follow_user();
            if shows_later {
                self.note_monitored(arguments, false);
            }
            if self.connection.closing || !matches!(self.connection.activity, Activity::Idle) {
                executed = index + 1;
                break;
            }
        }
        self.flush(&mut gathered);
        self.gateway.requests = reuse(gathered.batch);
        self.gateway.commands += executed as u64;
        if executed > 0 {
            self.connection.session.active_at = self.now.instant;
        }
        executed
    }

    /// True if the client has to read before more of its commands are executed.
    fn output_is_full(&self) -> bool {
        self.connection.output.len() >= self.gateway.config.max_output_bytes
    }

    /// The command is among those that are handed over together.
    #[inline]
    fn join<'a>(&mut self, gathered: &mut Gathered<'a>, arguments: Arguments<'a>) {
        if gathered.first.is_none() {
            gathered.first = Some(arguments);
            self.connection.tally.begin_batch();
        }
        self.connection.tally.join();
    }

    /// Asks for what has gathered: outside of a transaction, or inside of one. False when the connection has to wait.
    fn flush(&mut self, gathered: &mut Gathered<'_>) -> bool {
        let Some(first) = gathered.first.take() else {
            return matches!(self.connection.activity, Activity::Idle);
        };
        let (began, commands) = (self.host.clock(), gathered.batch.len() + gathered.steps.len());
        if !gathered.steps.is_empty() {
            debug_assert!(gathered.batch.is_empty(), "a transaction begins when all before it is answered");
            let (len, id) = (gathered.steps.len(), self.send_steps(&gathered.steps, true));
            gathered.steps.clear();
            self.finish_or_wait(id, Task::Combine { combine: Combine::Each, len });
        }
        let may_go_on = self.submit(&mut gathered.batch);
        self.tell_changes();
        let nanos = self.host.clock().saturating_sub(began);
        self.connection.tally.count_batch(nanos, &mut self.gateway.statistics);
        if nanos >= self.host.slow_nanos() {
            let is_fast = table::command(first.name()).is_some_and(|command| command.is(flag::FAST));
            self.note_slow(nanos, words_of(first, commands - 1), is_fast);
        }
        may_go_on
    }

    /// A command that joined no batch took so long.
    fn count(&mut self, nanos: u64, words: impl FnOnce() -> Vec<Vec<u8>>) {
        let Some(number) = self.connection.tally.current() else { return };
        self.gateway.statistics.called(number, nanos);
        if nanos >= self.host.slow_nanos() {
            let is_fast = table::numbered(number.into()).is_some_and(|command| command.is(flag::FAST));
            self.note_slow(nanos, words(), is_fast);
        }
    }

    #[cold]
    fn note_slow(&mut self, nanos: u64, words: Vec<Vec<u8>>, is_fast: bool) {
        let session = &self.connection.session;
        self.host.note_slow(SlowCommand {
            number: 0,
            at_seconds: self.now.wall.as_millis() / 1000,
            micros: nanos / 1000,
            words,
            address: session.peer.address.clone(),
            name: session.name.clone(),
            is_fast,
        });
    }

    /// Submits the batch and leaves it empty. False when the connection has to wait for replies.
    fn submit(&mut self, batch: &mut Vec<(RequestId, Request<'_>)>) -> bool {
        let Some((RequestId(first), _)) = batch.first() else {
            return matches!(self.connection.activity, Activity::Idle);
        };
        let (first, batch_len) = (*first, batch.len());
        let end = first + batch_len as u64;
        let keyspace = self.connection.session.keyspace;
        batch.iter().for_each(|(id, request)| self.touch(keyspace, id.0, request));
        let awaits_streams = self.host.awaits_streams();
        let woken = batch.iter().filter_map(|(_, request)| Woken::key_of(request, awaits_streams));
        let woken: Vec<_> = woken.collect();
        let connection = &mut *self.connection;
        let mailbox = &mut self.gateway.mailbox;
        let before = connection.output.len();
        connection.tally.hand_over(first);
        let mut replies = InOrder { encoder: connection.encoder(), next: first, end, mailbox };
        self.host.submit(keyspace, batch, &mut replies);
        replies.encoder.end_reply();
        let next = replies.next;
        // What the client does not want is written, too.
        let written = connection.output.len() - before + connection.discarded.len();
        connection.plan_piece(batch_len, written, self.gateway.config.max_output_bytes);
        batch.clear();
        let is_answered = next == end || self.take_in_order(next, end);
        // Who began to wait meanwhile is seen once it is answered.
        if !woken.is_empty() && (!is_answered || self.host.has_waiters()) {
            let owned = woken.into_iter().map(|(key, what)| (keyspace, key.into(), what));
            self.connection.woken.extend(owned);
        }
        is_answered
    }

    /// Passes on the replies `next..end` as far as they have come in order. False when some are missing.
    fn take_in_order(&mut self, mut next: u64, end: u64) -> bool {
        while next < end {
            let Some(reply) = self.gateway.mailbox.take(next) else {
                self.connection.activity = Activity::Batch { next, end };
                return false;
            };
            self.connection.tally.reply_to(next);
            reply.replay(&mut self.connection.encoder());
            next += 1;
        }
        true
    }

    /// A reply has come: goes on with what the connection waits for. False when the reply is not for it.
    pub(crate) fn resume(&mut self, number: u64) -> bool {
        let began = self.host.clock();
        let resumed = self.go_on(number);
        if resumed {
            self.count_waiting(began);
            self.send_published();
        }
        resumed
    }

    /// A command that waits was worked on since `began`.
    pub(crate) fn count_waiting(&mut self, began: u64) {
        let Some(waiting) = &mut self.connection.tally.waiting else { return };
        waiting.nanos += self.host.clock().saturating_sub(began);
        if matches!(self.connection.activity, Activity::Idle)
            && let Some(Waiting { nanos, words }) = self.connection.tally.waiting.take()
        {
            self.count(nanos, || words);
        }
    }

    fn go_on(&mut self, number: u64) -> bool {
        match mem::replace(&mut self.connection.activity, Activity::Idle) {
            Activity::Batch { next, end } if (next..end).contains(&number) => {
                self.take_in_order(next, end);
                true
            }
            Activity::Task { awaiting, task } if awaiting == number => {
                self.finish_or_wait(RequestId(number), task);
                true
            }
            other => {
                self.connection.activity = other;
                false
            }
        }
    }

    /// Goes on with what the connection interrupted.
    pub(crate) fn continue_sequence(&mut self) {
        let began = self.host.clock();
        match mem::replace(&mut self.connection.activity, Activity::Idle) {
            Activity::Interrupted(sequence) => self.run_sequence(sequence),
            other => self.connection.activity = other,
        }
        self.count_waiting(began);
        self.send_published();
    }

    /// A number that no other request of the process has.
    #[inline]
    pub(crate) fn new_request(&mut self) -> RequestId {
        self.gateway.next_request += 1;
        RequestId(self.gateway.next_request)
    }

    /// A call as handlers take it.
    #[inline]
    pub(crate) fn call<'a>(&self, command: &'static Command, arguments: Arguments<'a>) -> Call<'a> {
        Call {
            arguments,
            command,
            now_millis: self.now.wall.as_millis(),
            seed: self.gateway.config.hash_seed,
            scan_piece: self.gateway.config.scan_piece,
        }
    }

    /// Plans a command on data; again, once the host has looked for it, if it names a type that nobody has heard of here.
    #[inline]
    pub(crate) fn plan<'a>(&mut self, planner: Planner, call: &Call<'a>) -> Result<Plan<'a>, Error> {
        if call.len() > FEW_WORDS {
            self.check_words(call)?;
        }
        if call.command.is(flag::OTHER_KEYSPACE) {
            check_destination(
                call,
                &self.connection.session.user,
                self.host,
                self.connection.session.keyspace,
            )?;
        }
        let mut planned = planner(call);
        if let Err(error) = &planned
            && error.code == ErrorCode::UnknownType
            && self.borrowed.is_none()
            && self.host.look_for_types()
        {
            planned = planner(call);
        }
        planned
    }

    /// Looks the command up and decides what to do, without doing it.
    #[inline]
    fn classify<'a>(&mut self, arguments: Arguments<'a>) -> Result<Action<'a>, Error> {
        let (command, number) = table::locate(arguments)?;
        let call = self.call(command, arguments);
        let session = &mut self.connection.session;
        session.last_command = command.name;
        if let Some(tracking) = &mut session.tracking {
            tracking.next_command(keeps_caching(command, &session.mode));
        }
        if !session.authenticated && !command.is(flag::NO_AUTH) {
            self.admit_unauthenticated()?;
        }
        if !self.connection.session.may_all {
            self.connection.tally.found(number);
            self.check_user((command, number), arguments)?;
        }
        if self.connection.session.is_confined() && !pubsub::is_for_subscribers(command) {
            return Err(pubsub::not_for_subscribers(command));
        }
        self.connection.tally.found(number);
        if self.is_to_queue(command) {
            // Whatever is queued takes memory until EXEC.
            self.host.may_grow(self.connection.session.keyspace)?;
        } else if command.is(flag::DENYOOM) {
            self.check_memory(command, arguments)?;
        }
        let read_only = match &self.connection.session.mode {
            Mode::Plain => {
                return match command.handler {
                    Handler::Data(planner) => Ok(match self.plan_read(planner, &call)? {
                        Plan::One(operation) if !(self.notifies && command.is(flag::WRITE)) => {
                            Action::Join(operation)
                        }
                        Plan::Dialogue(dialogue) if command.is(flag::BLOCKING) && dialogue.may_wait() => {
                            Action::Wait(call, dialogue.is_atomic())
                        }
                        plan => Action::Run(plan),
                    }),
                    Handler::Local(run) => Ok(Action::Local(run, call)),
                    Handler::Flow(flow) => Ok(Action::Flow(flow, call)),
                    Handler::Container => Err(table::wrong_arity(command)),
                };
            }
            Mode::Queueing(_) => None,
            Mode::Interactive { read_only, .. } => Some(*read_only),
        };
        self.classify_in_transaction(call, read_only)
    }

    /// Plans a command on data; a tracked client is notified when what it reads has changed.
    #[inline]
    fn plan_read<'a>(&mut self, planner: Planner, call: &Call<'a>) -> Result<Plan<'a>, Error> {
        let plan = self.plan(planner, call)?;
        self.remember(call, Moment::Before);
        Ok(plan)
    }

    /// A client that has not authenticated may go on if the password has been taken away since it came.
    #[cold]
    fn admit_unauthenticated(&mut self) -> Result<(), Error> {
        if self.host.authentication_required() {
            return Err(Error::new(ErrorCode::NoAuth, "Authentication required."));
        }
        admit(self.connection, self.host)?;
        self.connection.parser.set_authenticated(true);
        Ok(())
    }

    /// True if a command is queued until EXEC.
    #[inline]
    fn is_to_queue(&self, command: &Command) -> bool {
        matches!(self.connection.session.mode, Mode::Queueing(_))
            && !matches!(command.handler, Handler::Flow(flow) if flow.is_never_queued())
    }

    /// Refuses a command that would be too long a step for the keyspace.
    #[cold]
    fn check_words(&mut self, call: &Call<'_>) -> Result<(), Error> {
        let (words, most) = (call.len() - 1, self.host.most_words(self.connection.session.keyspace));
        if words <= most {
            return Ok(());
        }
        let key = call.command.key_indices(call.arguments).next().and_then(|index| call.arguments.get(index));
        let on = key.map(|key| format!(" on '{}'", table::lossy(key))).unwrap_or_default();
        Err(Error::err(format!(
            "'{}'{on} has {words} arguments, and a keyspace that several processes may share takes {most} in a command, as other \
             clients wait for its end. Nothing happened; send several commands, inside TXN if they belong together",
            call.command.name
        )))
    }

    /// Refuses a command that may need more memory while there is none.
    #[inline]
    pub(crate) fn check_memory(
        &mut self,
        command: &'static Command,
        arguments: Arguments<'_>,
    ) -> Result<(), Error> {
        let (behind, _) = behind_prefix(command, arguments)?;
        match behind.is(flag::DENYOOM) {
            true => self.host.may_grow(self.connection.session.keyspace),
            false => Ok(()),
        }
    }

    /// Inside a transaction: `read_only` tells whether an open one may write, `None` that commands are queued.
    fn classify_in_transaction<'a>(
        &mut self,
        call: Call<'a>,
        read_only: Option<bool>,
    ) -> Result<Action<'a>, Error> {
        let command = call.command;
        let name = command.name;
        if let Handler::Flow(flow) = command.handler
            && flow.is_never_queued()
        {
            return Ok(Action::Flow(flow, call));
        }
        if command.is(flag::NO_MULTI) {
            return Err(Error::err(format!("'{name}' is not allowed inside a transaction")));
        }
        self.check_keyspace(&call)?;
        Self::check_replies(&call)?;
        let Some(read_only) = read_only else { return Ok(Action::Queue(command)) };
        if pubsub::is_confirmed(command) {
            return Err(Error::err(format!("'{name}' is not allowed inside TXN; commit or abort it first")));
        }
        if read_only && command.is(flag::WRITE) {
            return Err(Error::err(format!("'{name}' writes, and the transaction was begun READONLY")));
        }
        match command.handler {
            Handler::Data(planner) => Ok(match self.plan_read(planner, &call)? {
                Plan::One(operation) if !(self.notifies && command.is(flag::WRITE)) => {
                    Action::Step(operation)
                }
                plan => Action::Run(plan),
            }),
            Handler::Local(run) => Ok(Action::Local(run, call)),
            Handler::Flow(flow) => Ok(Action::Flow(flow, call)),
            Handler::Container => Err(table::wrong_arity(command)),
        }
    }

    fn perform(&mut self, arguments: Arguments<'_>, action: Result<Action<'_>, Error>) {
        let own = match &action {
            Ok(Action::Join(_) | Action::Step(_) | Action::Run(_) | Action::Wait(..)) => false,
            Ok(Action::Flow(flow, _)) => flow.concerns_session(),
            Ok(Action::Local(..) | Action::Queue(_)) | Err(_) => true,
        };
        let start = self.connection.output.len();
        // What was not found, or may not be carried out, is refused and no call.
        let counts = self.connection.tally.current().is_some() && !matches!(action, Ok(Action::Queue(_)));
        let began = self.host.clock();
        self.act(arguments, action);
        let nanos = self.host.clock().saturating_sub(began);
        match self.connection.activity {
            _ if !counts => {}
            Activity::Idle | Activity::Held { .. } => self.count(nanos, || words_of(arguments, 0)),
            _ => self.connection.tally.waiting = Some(Waiting { nanos, words: words_of(arguments, 0) }),
        }
        if own {
            self.connection.note_own_reply(start);
        }
    }

    fn act(&mut self, arguments: Arguments<'_>, action: Result<Action<'_>, Error>) {
        match action {
            Ok(Action::Join(operation) | Action::Step(operation)) => {
                debug_assert!(false, "{operation:?} is asked for with others");
            }
            Ok(Action::Run(plan)) => self.run(arguments, plan),
            Ok(Action::Local(run, call)) => {
                let mut reply = mem::take(&mut self.gateway.scratch);
                self.run_local(run, call, &mut reply);
                match pubsub::is_confirmed(call.command) && reply.as_error().is_none() {
                    true => reply.replay(&mut self.connection.pushing_encoder()),
                    false => reply.replay(&mut self.connection.encoder()),
                }
                reply.clear();
                self.gateway.scratch = reply;
            }
            Ok(Action::Flow(flow, call)) => self.steer(flow, call),
            Ok(Action::Queue(command)) => self.queue(command, arguments),
            Ok(Action::Wait(call, is_atomic)) => {
                if let Err(error) = self.begin_wait(call, is_atomic) {
                    self.connection.encoder().error(&error);
                }
            }
            Err(_) if is_http(arguments.name()) => {
                self.host.report(Incident::CrossProtocol(&self.connection.session.peer.address));
                self.connection.closing = true;
            }
            Err(error) if arguments.name().eq_ignore_ascii_case(b"exec") => self.abort_exec(&error),
            Err(error) => {
                if self.connection.tally.current().is_none() {
                    self.connection.tally.reject(arguments);
                }
                if let Mode::Queueing(queue) = &mut self.connection.session.mode {
                    queue.refused = true;
                }
                self.connection.encoder().error(&error);
            }
        }
    }

    /// Runs a command that is answered at once.
    pub(crate) fn run_local(
        &mut self,
        run: fn(&mut Control<'_>, &mut dyn ReplySink) -> Result<(), Error>,
        call: Call<'_>,
        sink: &mut dyn ReplySink,
    ) {
        let mut control = Control {
            gateway: &mut *self.gateway,
            connection: &mut *self.connection,
            host: &mut *self.host,
            call,
            now: self.now,
        };
        if let Err(error) = run(&mut control, sink) {
            sink.error(&error);
        }
        let authenticated = self.connection.session.authenticated;
        self.connection.parser.set_authenticated(authenticated);
    }

    /// Carries out a command on data that does not join a batch.
    fn run(&mut self, arguments: Arguments<'_>, plan: Plan<'_>) {
        let interactive = self.connection.session.in_transaction();
        let is_published =
            self.notifies && table::find(arguments).is_ok_and(|command| command.is(flag::WRITE));
        let (steps, combine) = match plan {
            Plan::One(_) | Plan::Many { .. } if is_published => {
                let wrapper = if interactive { Wrapper::Interactive } else { Wrapper::Loose };
                let mut source = Vec::new();
                append_command(arguments, &mut source);
                let sequence = Sequence::new(Commands::new(source), wrapper, self.now, 0);
                return self.run_sequence(Box::new(sequence));
            }
            Plan::One(operation) => (vec![Step::Key(operation)], Combine::Pass),
            Plan::Many { steps, combine } => (steps, combine),
            Plan::Dialogue(dialogue) => {
                let wrapper = match (interactive, dialogue.is_atomic()) {
                    (true, _) => Wrapper::Interactive,
                    (false, true) => Wrapper::Transaction,
                    (false, false) => Wrapper::Loose,
                };
                let mut source = Vec::new();
                append_command(arguments, &mut source);
                let sequence = Sequence::new(Commands::new(source), wrapper, self.now, 0);
                return self.run_sequence(Box::new(sequence));
            }
        };
        let len = steps.len();
        let id = self.send_steps(&steps, interactive);
        self.finish_or_wait(id, Task::Combine { combine, len });
    }

    /// The client is gone: gives its transaction and its watches up.
    pub(crate) fn close_session(&mut self) {
        let session = self.connection.session.id();
        for keyspace in mem::take(&mut self.connection.session.used) {
            self.send(keyspace, Request::Close { session });
        }
    }
}

/// Commands that are handed over together.
struct Gathered<'a> {
    batch: Vec<(RequestId, Request<'a>)>,
    steps: Vec<Step<'a>>,
    /// The first of them.
    first: Option<Arguments<'a>>,
}

impl Gathered<'_> {
    /// True if no more commands of this connection may join.
    #[inline]
    fn is_full(&self, connection: &Connection) -> bool {
        self.batch.len() >= connection.piece
            || self.steps.len() >= MAX_STEPS
            || (self.first.is_some()
                && (connection.tally.is_single() || connection.session.tracking.is_some()))
    }
}

/// True if `CLIENT CACHING` is for what comes behind this command: it is for the next one, or for all of a MULTI.
fn keeps_caching(command: &Command, mode: &Mode) -> bool {
    let is_client = command.name.starts_with("client|");
    let ends = matches!(command.name, "exec" | "discard");
    is_client || command.name == "multi" || (matches!(mode, Mode::Queueing(_)) && !ends)
}

/// The words of HTTP that Redis takes for an attack: a browser was made to send what looks like commands.
fn is_http(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"post") || name.eq_ignore_ascii_case(b"host:")
}

/// True if a command waits while there is this pause.
#[cold]
fn waits_for(pause: Pause, arguments: Arguments<'_>) -> bool {
    let may_write = |command: &Command| {
        command.is(flag::WRITE | flag::MAY_REPLICATE)
            || matches!(command.handler, Handler::Flow(Flow::Exec | Flow::Commit | Flow::Eval | Flow::OwnEnd))
    };
    !pause.writes_only || table::find(arguments).is_ok_and(may_write)
}

/// An empty vector in the same memory, for requests that borrow from somewhere else.
fn reuse<'b>(mut requests: Vec<(RequestId, Request<'_>)>) -> Vec<(RequestId, Request<'b>)> {
    requests.clear();
    // Collecting an emptied vector of elements of the same size keeps its allocation.
    requests.into_iter().map(|_| unreachable!("it is empty")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_batch_keeps_its_memory() {
        let requests: Vec<(RequestId, Request<'static>)> = Vec::with_capacity(100);
        assert!(reuse(requests).capacity() >= 100);
    }
}
