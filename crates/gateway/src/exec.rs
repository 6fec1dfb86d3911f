//! EXEC, and scripts: the commands of a transaction, from requests to replies.

use crate::combine::{Combine, copy_value, whole_error};
use crate::control::Control;
use crate::dialogue::Dialogue;
use crate::engine::Engine;
use crate::flow::Flow;
use crate::host::Host;
use crate::plan::{Call, Plan};
use crate::script::{Commands, Current, Phase, Script, Wrapper};
use crate::session::{Activity, Queue};
use crate::table::{self, Handler};
use crate::task::Task;
use datatypes::{Operation, list};
use protocol::{Request, Step};
use resp::Arguments;
use std::mem;
use types::{Error, ErrorCode, Reply, ReplyBuf, ReplySink, RequestId};

/// How many requests of one script are sent before others have their turn (Corrections 87).
const REQUESTS_PER_TURN: usize = 8;

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

/// A queued command, read.
enum Queued<'a> {
    Plan(Plan<'a>),
    Local(fn(&mut Control<'_>, &mut dyn ReplySink) -> Result<(), Error>, Call<'a>),
    /// UNWATCH, which means nothing inside a transaction.
    Nothing,
}

impl<H: Host> Engine<'_, H> {
    fn read_queued<'a>(&self, arguments: Arguments<'a>) -> Result<Queued<'a>, Error> {
        let command = table::find(arguments)?;
        let call = self.call(command, arguments);
        Ok(match command.handler {
            Handler::Data(plan) => Queued::Plan(plan(&call)?),
            Handler::Local(run) => Queued::Local(run, call),
            Handler::Flow(Flow::FlushAll) => {
                crate::commands::keys::check_flush_mode(&call)?;
                Queued::Plan(call.step(Step::Flush)?)
            }
            Handler::Flow(_) | Handler::Container => Queued::Nothing,
        })
    }

    /// Executes what was queued: as one request if no command needs another's result.
    pub(crate) fn execute_queue(&mut self, queue: Queue, watched: bool) {
        let commands = Commands::new(queue.source);
        let (mut steps, mut parts, mut one_request) = (Vec::new(), Vec::new(), true);
        for arguments in (0..commands.len()).filter_map(|index| commands.get(index)) {
            parts.push(match self.read_queued(arguments) {
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
                Ok(Queued::Local(..) | Queued::Nothing) => Part::Local,
                Err(error) => Part::Error(error),
            });
        }
        let len = steps.len();
        if !one_request || (watched && !can_tell_nil(&steps)) {
            drop(steps);
            let script = Script::new(commands, Wrapper::Exec { watched });
            return self.run_script(Box::new(script));
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
        encoder.array(exec.parts.len());
        results.replay(&mut encoder);
    }

    fn answer_queued(&mut self, commands: &Commands, index: usize, results: &mut ReplyBuf) {
        match commands.get(index).map(|arguments| self.read_queued(arguments)) {
            Some(Ok(Queued::Local(run, call))) => self.run_local(run, call, results),
            Some(Err(error)) => results.error(&error),
            _ => results.simple("OK"),
        }
    }

    /// Runs a script until it ends, has to wait, or has had its turn.
    pub(crate) fn run_script(&mut self, mut script: Box<Script>) {
        for _ in 0..REQUESTS_PER_TURN {
            let Some(id) = self.next_of_script(&mut script) else {
                return script.write_results(&mut self.connection.encoder());
            };
            let Some(reply) = self.gateway.mailbox.take(id.0) else {
                let task = Task::Script(script);
                self.connection.activity = Activity::Task { awaiting: id.0, task };
                return;
            };
            if self.on_script_reply(&mut script, &reply) {
                return;
            }
        }
        self.connection.activity = Activity::Interrupted(script);
    }

    /// Sends the script's next request; `None` when there is none left.
    fn next_of_script(&mut self, script: &mut Script) -> Option<RequestId> {
        let (session, keyspace) = (self.connection.session.id(), self.connection.session.keyspace);
        let request = match script.phase {
            Phase::Begin => Request::Begin { session, read_only: false, watched: script.is_watched() },
            Phase::Operate => match self.operate(script) {
                Some(id) => return Some(id),
                None if !script.is_transaction() => return None,
                None => {
                    script.phase = Phase::Commit;
                    Request::Commit { session }
                }
            },
            Phase::Commit => Request::Commit { session },
            Phase::Abort(_) => Request::Abort { session },
        };
        Some(self.send(keyspace, request))
    }

    /// Sends the next steps; `None` when all commands are done.
    fn operate(&mut self, script: &mut Script) -> Option<RequestId> {
        let in_transaction = script.wrapper != Wrapper::Loose;
        loop {
            if let Current::Dialogue(dialogue) = &script.current {
                let steps = dialogue.steps(self.gateway.config.hash_seed);
                script.sent = steps.len();
                if !in_transaction && dialogue.is_exact() {
                    let (session, keyspace) =
                        (self.connection.session.id(), self.connection.session.keyspace);
                    let request = Request::Many { session, steps: &steps, watched: false, multi: true };
                    return Some(self.send(keyspace, request));
                }
                return Some(self.send_steps(&steps, in_transaction));
            }
            let arguments = script.commands.get(script.position)?;
            let (steps, combine) = match self.read_queued(arguments) {
                Ok(Queued::Plan(Plan::One(operation))) => (vec![Step::Key(operation)], Combine::Pass),
                Ok(Queued::Plan(Plan::Many { steps, combine })) => (steps, combine),
                Ok(Queued::Plan(Plan::Dialogue(dialogue))) => {
                    script.current = Current::Dialogue(dialogue);
                    continue;
                }
                _ => {
                    self.answer_queued(&script.commands, script.position, &mut script.results);
                    script.position += 1;
                    continue;
                }
            };
            script.sent = steps.len();
            script.current = Current::Steps(combine);
            return Some(self.send_steps(&steps, in_transaction));
        }
    }

    /// Reads the reply to the script's last request. True when the client has its reply.
    pub(crate) fn on_script_reply(&mut self, script: &mut Script, reply: &ReplyBuf) -> bool {
        let error = match script.phase {
            Phase::Operate => whole_error(reply, script.sent),
            Phase::Abort(_) => None,
            Phase::Begin | Phase::Commit => reply.as_error(),
        };
        let may_retry = !script.is_watched() && script.attempts < self.gateway.config.max_attempts;
        let retry = matches!(&error, Some(error) if error.code == ErrorCode::Conflict) && may_retry;
        match (mem::replace(&mut script.phase, Phase::Operate), error) {
            (Phase::Begin, None) => {}
            (Phase::Operate, None) => script.take_in(reply),
            (Phase::Operate, Some(error)) if script.is_transaction() => {
                script.phase = Phase::Abort((!retry).then_some(error));
            }
            (Phase::Commit, Some(_)) if retry => script.restart(),
            (Phase::Abort(None), _) => script.restart(),
            (Phase::Commit, None) => {
                match is_nil(reply) {
                    true => self.connection.encoder().null_array(),
                    false => script.write_results(&mut self.connection.encoder()),
                }
                return true;
            }
            (Phase::Abort(Some(error)), _) | (Phase::Begin | Phase::Operate | Phase::Commit, Some(error)) => {
                self.fail_script(script, error);
                return true;
            }
        }
        false
    }

    fn fail_script(&mut self, script: &Script, error: Error) {
        let mut encoder = self.connection.encoder();
        if error.code != ErrorCode::Conflict {
            encoder.error(&error);
        } else if script.is_watched() {
            // The watches are gone with the failed attempt, so only the client can try again: nil says so.
            encoder.null_array();
        } else {
            let text = format!("{} (given up after {} attempts)", error.message, script.attempts);
            encoder.error(&Error::new(ErrorCode::Conflict, text));
        }
    }
}

/// True for the reply of a transaction that a touched watch stopped.
fn is_nil(reply: &ReplyBuf) -> bool {
    let mut elements = reply.elements();
    matches!(elements.next(), Some(Reply::NullArray)) && elements.next().is_none()
}

/// True when the reply to these steps cannot be mistaken for that of a touched watch.
fn can_tell_nil(steps: &[Step<'_>]) -> bool {
    match steps {
        [] => false,
        [Step::Key(keyed)] => !matches!(keyed.operation, Operation::List(list::Operation::Pop { .. })),
        _ => true,
    }
}
