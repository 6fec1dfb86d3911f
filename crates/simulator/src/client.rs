//! A client: one session, one transaction at a time. After an outcome it cannot know it goes on as a new session,
//! so that a late claim can only mean the session's last transaction.

use crate::workload::{Plan, PlannedStep, Shape};
use checker::{Outcome, render_values};
use protocol::{Input, KeyedOperation, Protocol, Request, Step};
use types::{Error, ErrorCode, Malformed, Reader, Reply, ReplyBuf, RequestId, SessionId};

/// Where an interactive transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// The whole transaction is one request.
    Whole,
    Begin,
    /// The steps from this one on are next, or under way.
    Operate(usize),
    Commit,
    Abort,
}

/// A transaction under way.
#[derive(Debug)]
pub(crate) struct Open {
    pub plan: Plan,
    /// Its place in the history.
    pub place: usize,
    pub stage: Stage,
    pub request: RequestId,
    /// True for a read of everything at the end of a run.
    pub at_rest: bool,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub session: SessionId,
    /// The process it is connected to, by its place in the list.
    pub gateway: usize,
    pub open: Option<Open>,
    /// What became of the last read of everything, for clients that do nothing else.
    pub last: Option<Outcome>,
}

/// What a client does after a reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Sends the request of its present stage.
    Ask,
    /// The transaction is over.
    End(Outcome),
}

impl Open {
    pub fn first_stage(shape: Shape) -> Stage {
        if matches!(shape, Shape::Interactive { .. }) { Stage::Begin } else { Stage::Whole }
    }

    /// True when the transaction may commit although no answer comes.
    pub fn may_commit(&self) -> bool {
        matches!(self.stage, Stage::Whole | Stage::Commit)
    }

    /// Hands the present stage's request to `feed`.
    pub fn ask<P: Protocol>(
        &self,
        session: SessionId,
        feed: impl FnOnce(&mut Vec<Input<'_, P>>),
    ) -> Result<(), Malformed> {
        let steps = match self.stage {
            Stage::Whole => &self.plan.steps[..],
            Stage::Operate(from) => &self.plan.steps[from..self.operate_end(from)],
            Stage::Begin | Stage::Commit | Stage::Abort => &[],
        };
        let operations = steps.iter().map(operation).collect::<Result<Vec<_>, _>>()?;
        let steps: Vec<Step<'_>> = operations.iter().cloned().map(Step::Key).collect();
        let watched = false;
        let request = match (self.stage, self.plan.shape) {
            (Stage::Whole, Shape::One) => Request::One { session, operation: operations[0].clone() },
            (Stage::Whole, _) => Request::Many { session, steps: &steps, watched },
            (Stage::Begin, Shape::Interactive { read_only, .. }) => {
                Request::Begin { session, read_only, watched }
            }
            (Stage::Begin, _) => Request::Begin { session, read_only: false, watched },
            (Stage::Operate(_), _) => Request::Operate { session, steps: &steps },
            (Stage::Commit, _) => Request::Commit { session },
            (Stage::Abort, _) => Request::Abort { session },
        };
        feed(&mut vec![Input::Request { id: self.request, request }]);
        Ok(())
    }

    fn operate_end(&self, from: usize) -> usize {
        let size = match self.plan.shape {
            Shape::Interactive { steps_per_request, .. } => steps_per_request,
            Shape::One | Shape::Many => self.plan.steps.len(),
        };
        (from + size).min(self.plan.steps.len())
    }

    /// Takes a reply: the first step whose replies it holds, these replies, and what comes next.
    pub fn answered(&mut self, reply: &ReplyBuf) -> (usize, Vec<String>, Next) {
        if let Some(outcome) = refusal(reply) {
            let asked = self.may_commit();
            let outcome = if outcome == Outcome::Unknown && !asked { Outcome::Aborted } else { outcome };
            return (0, Vec::new(), Next::End(outcome));
        }
        match self.stage {
            Stage::Whole => (0, render_values(reply), Next::End(Outcome::Committed)),
            Stage::Begin => {
                self.stage = Stage::Operate(0);
                (0, Vec::new(), Next::Ask)
            }
            Stage::Operate(from) => {
                let to = self.operate_end(from);
                let give_up = matches!(self.plan.shape, Shape::Interactive { give_up: true, .. });
                self.stage = match to < self.plan.steps.len() {
                    true => Stage::Operate(to),
                    false if give_up => Stage::Abort,
                    false => Stage::Commit,
                };
                (from, render_values(reply), Next::Ask)
            }
            Stage::Commit => (0, Vec::new(), Next::End(Outcome::Committed)),
            Stage::Abort => (0, Vec::new(), Next::End(Outcome::Aborted)),
        }
    }
}

/// What an error says about the outcome; `None` where there is none, or only an operation's own. A refused step refuses
/// the transaction: a log that cannot be written refuses each write in its place, and all of them.
fn refusal(reply: &ReplyBuf) -> Option<Outcome> {
    reply.elements().find_map(|element| match element {
        Reply::Error(Error { code: ErrorCode::Err | ErrorCode::WrongType, .. }) => None,
        Reply::Error(Error { code: ErrorCode::UnknownOutcome, .. }) => Some(Outcome::Unknown),
        Reply::Error(_) => Some(Outcome::Aborted),
        _ => None,
    })
}

fn operation(step: &PlannedStep) -> Result<KeyedOperation<'_>, Malformed> {
    let operation = datatypes::Operation::decode(&mut Reader::new(&step.operation))?;
    Ok(KeyedOperation { key: &step.key, hash: step.hash, operation, blind: step.blind })
}
