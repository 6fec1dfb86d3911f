//! EXEC, and sequences: the commands of a transaction, from requests to replies.

use crate::combine::{Combine, copy_value, whole_error};
use crate::control::Control;
use crate::dialogue::Dialogue;
use crate::engine::Engine;
use crate::flow::Flow;
use crate::host::Host;
use crate::interpreter::Event;
use crate::loan::suits_loan;
use crate::news::Message;
use crate::notifications;
use crate::plan::{Call, Plan};
use crate::sequence::{Commands, Current, Phase, Sequence, Wrapper, error_reply};
use crate::session::Activity;
use crate::table::{self, Command, Handler};
use crate::task::Task;
use crate::tracking::reads::Moment;
use datatypes::{Operation, list, scored_set, stream};
use protocol::{Request, Step};
use resp::Arguments;
use std::mem;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink, RequestId};

/// How many requests of one sequence are sent before others have their turn (Corrections 87): pieces of a keyspace, or
/// steps of a transaction, of which twice as many are sent each time that it had to begin again, up to a thousand.
const PIECES_PER_TURN: usize = 8;
const STEPS_PER_TURN: usize = 64;
const MOST_DOUBLINGS: u32 = 4;

/// An EXEC that was one request, whose reply is awaited.
#[derive(Debug)]
pub(crate) struct Exec {
    commands: Commands,
    parts: Vec<Part>,
    /// The number of steps in all parts.
    steps: usize,
    watched: bool,
}

/// What one queued command's reply is made of.
#[derive(Debug)]
enum Part {
    /// The replies to so many steps.
    Steps(Combine, usize),
    /// The reply to the only step of a dialogue.
    Dialogue(Box<Dialogue>),
    /// An error found when the command was read.
    Error(Error),
    /// It is answered here.
    Local,
}

/// A command of a sequence, read.
pub(crate) enum Queued<'a> {
    Plan(Plan<'a>),
    Local(fn(&mut Control<'_>, &mut dyn ReplySink) -> Result<(), Error>, Call<'a>),
    Script(Call<'a>),
    /// It has its reply.
    Answer(ReplyBuf),
    /// UNWATCH, which means nothing inside a transaction.
    Nothing,
    /// It is not carried out on lent keys.
    Leaves,
}

/// What a sequence does next.
pub(crate) enum Next {
    /// It waits for the reply to this request.
    Waits(RequestId),
    /// Its steps were evaluated on lent keys.
    Answered(ReplyBuf),
    /// What it needs is not done on lent keys.
    Leaves,
    /// It lets others go first.
    Pauses,
    /// It has nothing left to ask.
    Ends,
}

impl<H: Host> Engine<'_, H> {
    /// Reads the command with this index; `None` if there are not so many.
    fn read_command<'a>(
        &mut self,
        commands: &'a Commands,
        index: usize,
    ) -> Option<Result<Queued<'a>, Error>> {
        let arguments = commands.get(index)?;
        match commands.refusals.get(&index) {
            Some(refusal) => Some(Err(refusal.clone())),
            None => Some(self.read_queued(arguments)),
        }
    }

    pub(crate) fn read_queued<'a>(&mut self, arguments: Arguments<'a>) -> Result<Queued<'a>, Error> {
        self.read_found(table::find(arguments)?, arguments)
    }

    pub(crate) fn read_found<'a>(
        &mut self,
        command: &'static Command,
        arguments: Arguments<'a>,
    ) -> Result<Queued<'a>, Error> {
        if self.borrowed.is_some() && !suits_loan(command, arguments) {
            return Ok(Queued::Leaves);
        }
        let call = self.call(command, arguments);
        Ok(match command.handler {
            Handler::Data(planner) => {
                let plan = self.plan(planner, &call)?;
                Queued::Plan(if self.notifies { notifications::surrounded(plan, &call) } else { plan })
            }
            Handler::Local(run) => Queued::Local(run, call),
            Handler::Flow(Flow::FlushAll) => {
                crate::commands::keys::check_flush_mode(&call)?;
                Queued::Plan(call.step(Step::Flush)?)
            }
            Handler::Flow(Flow::Eval) => Queued::Script(call),
            Handler::Flow(_) | Handler::Container => Queued::Nothing,
        })
    }

    /// Executes what was queued: as one request if no command needs another's result.
    pub(crate) fn execute_queue(&mut self, commands: Commands, watched: bool) {
        let (mut steps, mut parts, mut one_request) = (Vec::new(), Vec::new(), true);
        for index in 0..commands.len() {
            if let Some(arguments) = commands.get(index) {
                self.remember_queued(arguments, Moment::Before);
            }
            let Some(read) = self.read_command(&commands, index) else { break };
            parts.push(match read {
                Ok(Queued::Plan(Plan::One(operation))) => {
                    steps.push(Step::Key(operation));
                    Part::Steps(Combine::Pass, 1)
                }
                Ok(Queued::Plan(Plan::Many { steps: more, combine })) => {
                    let len = more.len();
                    steps.extend(more);
                    Part::Steps(combine, len)
                }
                Ok(Queued::Plan(Plan::Dialogue(dialogue))) => match dialogue.only_step() {
                    Some(step) => {
                        steps.push(step);
                        Part::Dialogue(Box::new(dialogue))
                    }
                    None => {
                        one_request = false;
                        break;
                    }
                },
                Ok(Queued::Script(_)) => {
                    one_request = false;
                    break;
                }
                Ok(Queued::Local(..) | Queued::Nothing | Queued::Answer(_) | Queued::Leaves) => Part::Local,
                Err(error) => Part::Error(error),
            });
        }
        let len = steps.len();
        if !one_request || (watched && !can_tell_nil(&steps)) {
            drop(steps);
            let rest = (parts.len()..commands.len()).filter_map(|index| commands.get(index));
            rest.for_each(|arguments| self.remember_queued(arguments, Moment::Before));
            let seed = self.draw_seed();
            let sequence = Sequence::new(commands, Wrapper::Exec { watched }, self.now, seed);
            return self.run_sequence(Box::new(sequence));
        }
        if steps.is_empty() {
            return self.finish_exec(Exec { commands, parts, steps: len, watched }, &ReplyBuf::new());
        }
        let session = self.connection.session.id();
        let request = Request::Many { session, steps: &steps, watched, multi: true };
        let id = self.send(self.connection.session.keyspace, request);
        drop(steps);
        self.finish_or_wait(id, Task::Exec(Exec { commands, parts, steps: len, watched }));
    }

    /// Writes EXEC's reply.
    pub(crate) fn finish_exec(&mut self, mut exec: Exec, reply: &ReplyBuf) {
        if exec.watched && is_nil(reply) {
            return self.connection.encoder().null_array();
        }
        if let Some(error) = whole_error(reply, exec.steps) {
            return self.connection.encoder().error(&error);
        }
        let mut values = reply.elements();
        let mut results = ReplyBuf::new();
        for (index, part) in exec.parts.iter_mut().enumerate() {
            match part {
                Part::Steps(combine, len) if self.notifies => {
                    let mut answer = ReplyBuf::new();
                    (0..*len).for_each(|_| copy_value(&mut values, &mut answer));
                    combine.write(*len, &mut answer.elements(), &mut results);
                    let found = exec.commands.get(index).map(|command| self.events_of(command, &answer));
                    self.connection.outbox.extend(found.unwrap_or_default());
                }
                Part::Steps(combine, len) => combine.write(*len, &mut values, &mut results),
                Part::Dialogue(dialogue) => {
                    let mut answer = ReplyBuf::new();
                    copy_value(&mut values, &mut answer);
                    let done = dialogue.on_reply(&answer, &mut results);
                    debug_assert!(done, "it had one step");
                }
                Part::Error(error) => results.error(error),
                Part::Local => self.answer_queued(&exec.commands, index, &mut results),
            }
        }
        let mut encoder = self.connection.encoder();
        if !results.is_full() {
            encoder.array(exec.parts.len());
        }
        results.replay(&mut encoder);
    }

    /// A queued command, or a command that a script has called, may read keys that its client tracks.
    fn remember_queued(&mut self, arguments: Arguments<'_>, moment: Moment) {
        if self.connection.session.tracking.is_some()
            && let Ok(command) = table::find(arguments)
        {
            let call = self.call(command, arguments);
            self.remember(&call, moment);
        }
    }

    fn answer_queued(&mut self, commands: &Commands, index: usize, results: &mut ReplyBuf) {
        match self.read_command(commands, index) {
            Some(Ok(Queued::Local(run, call))) => self.run_local(run, call, results),
            Some(Err(error)) => results.error(&error),
            _ => results.simple("OK"),
        }
    }

    /// Runs a sequence until it ends, has to wait, or has had its turn.
    pub(crate) fn run_sequence(&mut self, mut sequence: Box<Sequence>) {
        sequence.changes = sequence.changes.min(self.gateway.changes);
        let present = mem::replace(&mut self.now, sequence.now);
        self.take_turn(sequence);
        self.now = present;
    }

    fn take_turn(&mut self, mut sequence: Box<Sequence>) {
        if self.borrow(&mut sequence) {
            return;
        }
        let turn = match sequence.is_transaction() {
            true => STEPS_PER_TURN << sequence.attempts.saturating_sub(1).min(MOST_DOUBLINGS),
            false => PIECES_PER_TURN,
        };
        for _ in 0..turn {
            let id = match self.next_of_sequence(&mut sequence) {
                Next::Waits(id) => id,
                Next::Pauses | Next::Answered(_) | Next::Leaves => break,
                Next::Ends => return self.conclude(&mut sequence),
            };
            let Some(reply) = self.gateway.mailbox.take(id.0) else {
                let task = Task::Sequence(sequence);
                self.connection.activity = Activity::Task { awaiting: id.0, task };
                return;
            };
            if self.on_sequence_reply(&mut sequence, reply) {
                return;
            }
        }
        self.connection.activity = Activity::Interrupted(sequence);
    }

    /// The sequence has its results.
    pub(crate) fn conclude(&mut self, sequence: &mut Sequence) {
        self.connection.outbox.take_from(&mut sequence.outbox);
        match sequence.blocked.take() {
            Some(blocked) => {
                // The client goes on waiting in the present, not when the attempt began.
                self.now = self.host.now();
                self.finish_attempt(blocked, &sequence.results);
            }
            None => sequence.write_results(&mut self.connection.encoder()),
        }
    }

    /// Sends the sequence's next request, if there is one.
    fn next_of_sequence(&mut self, sequence: &mut Sequence) -> Next {
        let (session, keyspace) = (self.connection.session.id(), self.connection.session.keyspace);
        if let Phase::Operate = sequence.phase {
            match self.operate(sequence) {
                Next::Ends if sequence.is_transaction() => {}
                next => return next,
            }
        }
        let request = match sequence.phase {
            Phase::Begin => {
                Request::Begin { session, read_only: sequence.read_only, watched: sequence.is_watched() }
            }
            Phase::Abort(_) => Request::Abort { session },
            Phase::Operate | Phase::Commit => {
                sequence.phase = Phase::Commit;
                Request::Commit { session }
            }
        };
        Next::Waits(self.send(keyspace, request))
    }

    /// Has the next steps evaluated, if there are any.
    pub(crate) fn operate(&mut self, sequence: &mut Sequence) -> Next {
        let in_transaction = sequence.wrapper != Wrapper::Loose;
        loop {
            if let Current::Dialogue(dialogue) = &sequence.current {
                let steps = dialogue.steps(self.gateway.config.hash_seed);
                sequence.sent = steps.len();
                if !in_transaction && dialogue.is_exact() {
                    let (session, keyspace) =
                        (self.connection.session.id(), self.connection.session.keyspace);
                    let request = Request::Many { session, steps: &steps, watched: false, multi: true };
                    return Next::Waits(self.send(keyspace, request));
                }
                return self.ask(&steps, in_transaction);
            }
            if let Some(next) = let_script_go_on(sequence) {
                return next;
            }
            let (read, writes) = match &sequence.running {
                Some(running) => self.read_called(running, sequence.wrote),
                None => match self.read_command(&sequence.commands, sequence.position) {
                    Some(read) => (read, true),
                    None => return Next::Ends,
                },
            };
            if let Some(arguments) = sequence.command() {
                self.remember_queued(arguments, Moment::Within(sequence.changes));
            }
            sequence.wrote |= writes && matches!(read, Ok(Queued::Plan(_)));
            let (steps, combine) = match read {
                Ok(Queued::Plan(Plan::One(operation))) => (vec![Step::Key(operation)], Combine::Pass),
                Ok(Queued::Plan(Plan::Many { steps, combine })) => (steps, combine),
                Ok(Queued::Plan(Plan::Dialogue(mut dialogue))) => {
                    if let Some(blocked) = &sequence.blocked {
                        dialogue.attempt(blocked);
                    }
                    sequence.current = Current::Dialogue(dialogue);
                    continue;
                }
                Ok(Queued::Script(call)) => {
                    let seed = sequence.seed.wrapping_add(sequence.position as u64);
                    match self.begin_script(&call, sequence.read_only, seed) {
                        Ok(running) => sequence.running = Some(running),
                        Err(error) => sequence.answer(error_reply(&error)),
                    }
                    continue;
                }
                Ok(Queued::Local(run, call)) => {
                    let mut reply = ReplyBuf::new();
                    // What a transaction publishes is its own until it has committed.
                    let is_transaction = sequence.wrapper != Wrapper::Interactive;
                    if is_transaction {
                        mem::swap(&mut self.connection.outbox, &mut sequence.outbox);
                    }
                    self.run_local(run, call, &mut reply);
                    if is_transaction {
                        mem::swap(&mut self.connection.outbox, &mut sequence.outbox);
                    }
                    sequence.answer(reply);
                    continue;
                }
                Ok(Queued::Answer(reply)) => {
                    sequence.answer(reply);
                    continue;
                }
                Ok(Queued::Leaves) => return Next::Leaves,
                Ok(Queued::Nothing) => {
                    let mut reply = ReplyBuf::new();
                    reply.simple("OK");
                    sequence.answer(reply);
                    continue;
                }
                // The host may know the type when it is asked.
                Err(error) if self.borrowed.is_some() && error.code == ErrorCode::UnknownType => {
                    return Next::Leaves;
                }
                Err(error) => {
                    sequence.answer(error_reply(&error));
                    continue;
                }
            };
            sequence.sent = steps.len();
            sequence.current = Current::Steps(combine);
            return self.ask(&steps, in_transaction);
        }
    }

    fn ask(&mut self, steps: &[Step<'_>], in_transaction: bool) -> Next {
        match self.borrowed {
            Some(_) => self.ask_borrowed(steps),
            None => Next::Waits(self.send_steps(steps, in_transaction)),
        }
    }

    /// Reads the reply to the sequence's last request. True when the client has its reply.
    pub(crate) fn on_sequence_reply(&mut self, sequence: &mut Sequence, reply: ReplyBuf) -> bool {
        let error = match sequence.phase {
            Phase::Operate => whole_error(&reply, sequence.sent),
            Phase::Abort(_) => None,
            Phase::Begin | Phase::Commit => reply.as_error(),
        };
        let may_retry = !sequence.is_watched() && sequence.attempts < self.gateway.config.max_attempts;
        let retry = matches!(&error, Some(error) if error.code == ErrorCode::Conflict) && may_retry;
        match (mem::replace(&mut sequence.phase, Phase::Operate), error) {
            (Phase::Begin, None) => {}
            (Phase::Operate, None) => self.take_answer(sequence, reply),
            (Phase::Operate, Some(error)) if sequence.is_transaction() => {
                sequence.phase = Phase::Abort((!retry).then_some(error));
            }
            (Phase::Commit, Some(_)) if retry => sequence.restart(),
            (Phase::Abort(None), _) => sequence.restart(),
            (Phase::Commit, None) => {
                match &sequence.failure {
                    _ if is_nil(&reply) => self.connection.encoder().null_array(),
                    Some(error) => self.connection.encoder().error(error),
                    None => self.conclude(sequence),
                }
                return true;
            }
            (Phase::Abort(Some(error)), _)
                if sequence.is_watched()
                    && error.code != ErrorCode::Conflict
                    && sequence.failure.is_none() =>
            {
                sequence.check_watches(error);
            }
            (Phase::Abort(Some(error)), _) | (Phase::Begin | Phase::Operate | Phase::Commit, Some(error)) => {
                self.fail_sequence(sequence, error);
                return true;
            }
        }
        false
    }

    /// The current command's steps have been evaluated.
    pub(crate) fn take_answer(&mut self, sequence: &mut Sequence, reply: ReplyBuf) {
        if !self.notifies && matches!(sequence.current, Current::Steps(Combine::Pass)) {
            return sequence.answer(reply);
        }
        let by_steps = matches!(sequence.current, Current::Steps(_));
        let Some(result) = sequence.take_in(&reply) else { return };
        if self.notifies {
            self.note_events(sequence, if by_steps { &reply } else { &result });
        }
        if let (Some(blocked), Current::Dialogue(dialogue)) = (&mut sequence.blocked, &sequence.current)
            && let Some(source) = dialogue.again()
        {
            blocked.go_on_with(source);
        }
        sequence.answer(result);
    }

    /// Notes the events of the command that a sequence has just carried out: they are published once its transaction
    /// has committed.
    fn note_events(&mut self, sequence: &mut Sequence, reply: &ReplyBuf) {
        let found = sequence.command().map(|command| self.events_of(command, reply)).unwrap_or_default();
        match sequence.is_transaction() {
            true => sequence.outbox.extend(found),
            false => self.connection.outbox.extend(found),
        }
    }

    /// The messages that tell of what a command did.
    fn events_of(&self, command: Arguments<'_>, reply: &ReplyBuf) -> Vec<Message> {
        let Ok(found) = table::find(command) else { return Vec::new() };
        let (chosen, keyspace) = (self.host.notifications(), self.connection.session.keyspace);
        notifications::messages(chosen, keyspace, (found.name, command), reply)
    }

    pub(crate) fn fail_sequence(&mut self, sequence: &mut Sequence, error: Error) {
        if let Some(blocked) = sequence.blocked.take() {
            self.now = self.host.now();
            return self.fail_attempt(blocked, &error);
        }
        let mut encoder = self.connection.encoder();
        if error.code != ErrorCode::Conflict {
            encoder.error(&error);
        } else if sequence.is_watched() {
            // The watches are gone with the failed attempt, so only the client can try again: nil says so.
            encoder.null_array();
        } else {
            let text = format!("{} (given up after {} attempts)", error.message, sequence.attempts);
            encoder.error(&Error::new(ErrorCode::Conflict, text));
        }
        if sequence.is_watched() {
            self.unwatch_keyspace(self.connection.session.keyspace);
        }
    }
}

/// Lets the script of a sequence, if it runs one, go on until there is a command to carry out; else says what comes next.
fn let_script_go_on(sequence: &mut Sequence) -> Option<Next> {
    let running = sequence.running.as_mut()?;
    match running.go_on()? {
        Event::Asks(command) => {
            running.ask(command);
            None
        }
        Event::Checks(command) => {
            running.ask_whether(command);
            None
        }
        Event::Pauses => Some(Next::Pauses),
        Event::Ends(reply) => {
            sequence.running = None;
            sequence.answer(reply);
            None
        }
        Event::Fails(error) => fail_script(sequence, error, false),
        Event::Killed(error) => fail_script(sequence, error, true),
    }
}

fn fail_script(sequence: &mut Sequence, error: Error, is_killed: bool) -> Option<Next> {
    sequence.fail(error, is_killed);
    (!matches!(sequence.phase, Phase::Operate)).then_some(Next::Ends)
}

/// True for the reply of a transaction that a touched watch stopped.
pub(crate) fn is_nil(reply: &ReplyBuf) -> bool {
    let mut elements = reply.elements();
    matches!(elements.next(), Some(Reply::NullArray)) && elements.next().is_none()
}

/// True when the reply to these steps cannot be mistaken for that of a touched watch.
fn can_tell_nil(steps: &[Step<'_>]) -> bool {
    match steps {
        [] => false,
        [Step::Key(keyed)] => !matches!(
            keyed.operation,
            Operation::List(list::Operation::Pop { .. })
                | Operation::ScoredSet(scored_set::Operation::RankWithScore { .. })
                | Operation::Stream(
                    stream::Operation::Range { .. }
                        | stream::Operation::Read { .. }
                        | stream::Operation::ReadGroup { .. }
                )
        ),
        _ => true,
    }
}
