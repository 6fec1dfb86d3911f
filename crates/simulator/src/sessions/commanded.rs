//! Clients whose gateway decides the next request: see [`crate::front`]. Every try of a transaction is one in the
//! history.

use crate::client::{Open, Stage, is_null_array, refusal};
use crate::deployment::Deployment;
use crate::front::{Ask, Turn, last_reply};
use crate::workload::{Plan, Shape};
use crate::world::World;
use checker::{Check, Outcome, Violation, render_values};
use datatypes::Operation;
use protocol::Now;
use types::{ErrorCode, Reader, ReplyBuf, RequestId};

impl<D: Deployment> World<D> {
    /// Lets a client send commands to its gateway.
    pub(super) fn command(&mut self, client: usize, plan: Plan) {
        let turn = self.front.send(client, &plan.commands, self.time_of(client));
        match turn {
            Turn::Ask(Ask::Begin { read_only }) => self.attempt(client, plan, read_only),
            turn => {
                self.recorder.no_progress(format!("{:?} came to {turn:?} at once", plan.commands));
                self.pause(client);
            }
        }
    }

    fn time_of(&self, client: usize) -> Now {
        self.processes[self.clients[client].gateway].now(self.now)
    }

    /// A client's commands are tried, or tried again.
    fn attempt(&mut self, client: usize, plan: Plan, read_only: bool) {
        let shape = match plan.shape {
            Shape::Interactive { steps_per_request, give_up, .. } => {
                Shape::Interactive { read_only, steps_per_request, give_up }
            }
            shape => shape,
        };
        let plan = Plan { shape, steps: Vec::new(), ..plan };
        let place = self.recorder.begin(self.clients[client].session, &plan, false, self.now);
        self.recorder.follows(place, self.clients[client].follows);
        let (stage, request) = (Stage::Begin, RequestId(0));
        self.clients[client].open.push(Open { plan, place, stage, request, at_rest: false, context: None });
        self.ask(client, self.clients[client].open.len() - 1);
    }

    /// A request is answered that a client's gateway made: goes on as it says.
    pub(super) fn on_commanded(&mut self, client: usize, index: usize, reply: &ReplyBuf) {
        let now = self.time_of(client);
        let open = &mut self.clients[client].open[index];
        let (place, stage) = (open.place, open.stage);
        if let Stage::Operate(from) = stage
            && refusal(reply).is_none()
        {
            self.recorder.replies(place, from, render_values(reply));
        }
        let turn = self.front.answer(client, reply, now);
        let open = &mut self.clients[client].open[index];
        match turn {
            Turn::Ask(Ask::Operate(steps)) => {
                open.stage = Stage::Operate(open.plan.steps.len());
                open.plan.steps.extend(steps.iter().cloned());
                self.recorder.extend(place, steps);
                self.ask(client, index);
            }
            Turn::Ask(Ask::Commit) => {
                open.stage = Stage::Commit;
                self.ask(client, index);
            }
            Turn::Ask(Ask::Abort) => {
                open.stage = Stage::Abort;
                self.ask(client, index);
            }
            Turn::Ask(Ask::Begin { read_only }) => {
                let open = self.clients[client].open.remove(index);
                self.waiting.remove(&open.request);
                self.recorder.end(place, outcome(stage, reply), self.now);
                self.attempt(client, open.plan, read_only);
            }
            Turn::Answered(output) => match outcome(stage, reply) {
                Outcome::Unknown => self.leave(client),
                outcome => {
                    let commands = open.plan.commands.clone();
                    if let Err(message) = self.judge_answer(place, &commands, outcome, &output) {
                        let message = format!("transaction {place}, {commands:?}: {message}");
                        let transactions = vec![place as u64];
                        let violation = Violation { check: Check::Replies, message, transactions };
                        self.recorder.violations.push(violation);
                    }
                    self.finish(client, index, outcome);
                }
            },
        }
    }

    /// The client's reply must be the result of its last try.
    fn judge_answer(
        &self,
        place: usize,
        commands: &[Vec<String>],
        outcome: Outcome,
        output: &[u8],
    ) -> Result<(), String> {
        let reply = last_reply(output, commands.len())
            .ok_or_else(|| format!("there is no reply to each command: {}", output.escape_ascii()))?;
        let steps = &self.recorder.history[place].steps;
        let of = |index: usize| steps.get(index).and_then(|step| step.reply.as_deref());
        let is_error = reply.starts_with('-');
        if outcome != Outcome::Committed {
            return if is_error { Ok(()) } else { Err(format!("nothing happened, and {reply} was told")) };
        }
        let is_own = ["-ERR", "-WRONGTYPE", "-EXECABORT"].iter().any(|code| reply.starts_with(code));
        let is_read = |step: &checker::Step| {
            let operation = Operation::decode(&mut Reader::new(&step.operation.0));
            operation.is_ok_and(|operation| operation.is_read())
        };
        let [command] = commands else {
            return if is_error && !is_own {
                Err(format!("it committed, and {reply} was told"))
            } else {
                Ok(())
            };
        };
        let expected = match (command[0].as_str(), of(0)) {
            ("RENAME", Some("(nil)")) => "-ERR no such key",
            ("RENAME", Some(_)) => "OK",
            // It failed before it wrote anything.
            (_, Some(_)) if is_own && steps.iter().all(is_read) => &reply,
            (_, Some(first)) => first,
            (_, None) => return Err("it committed without a step".to_owned()),
        };
        let keys: Vec<&[u8]> = steps.iter().map(|step| step.key.0.as_slice()).collect();
        let moves = command[1..].iter().map(String::as_bytes).take(if reply == "OK" { 2 } else { 1 });
        if command[0] == "RENAME" && !moves.eq(keys.iter().copied()) {
            return Err(format!("its {} steps are not what moves a value", steps.len()));
        }
        if reply == expected { Ok(()) } else { Err(format!("{reply} was told, not {expected}")) }
    }
}

/// What came of a try that is over with this reply.
fn outcome(stage: Stage, reply: &ReplyBuf) -> Outcome {
    match (stage, reply.as_error()) {
        (Stage::Commit, None) if !is_null_array(reply) => Outcome::Committed,
        (Stage::Commit, Some(error)) if error.code == ErrorCode::UnknownOutcome => Outcome::Unknown,
        _ => Outcome::Aborted,
    }
}
