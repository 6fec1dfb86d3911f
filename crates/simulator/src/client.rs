//! A client: one session, and at a time one transaction, or a pipeline of small ones. After an outcome it cannot know
//! it goes on as a new session, so that a late claim can only mean the session's last transactions.

use crate::keyset::KeysetStep;
use crate::script::TimedPlan;
use crate::workload::{Passing, Plan, Shape, Watching};
use checker::{Constraints, Outcome, render_values};
use protocol::{ContextRequest, Input, KeyedOperation, Protocol, Request, Step};
use std::collections::VecDeque;
use std::time::Duration;
use types::{
    Error, ErrorCode, HashSeed, KeyHash, Malformed, Reader, Reply, ReplyBuf, RequestId, Rng, SessionId,
};

/// How long a session waits at its gateway for what a context has seen.
const CONTEXT_TIMEOUT: Duration = Duration::from_secs(3);

/// Where a transaction stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Its session asks for its causal context.
    Give,
    /// Its session takes one over.
    Take,
    /// Its keys are being watched.
    Watch,
    /// The whole transaction is one request.
    KeyspaceWork,
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
    /// True for requests after the end of traffic.
    pub at_rest: bool,
    /// What its session takes over.
    pub context: Option<Context>,
}

/// A causal context as a client was given it.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub token: Vec<u8>,
    /// The last transaction that is part of it, by its place in the history.
    pub after: usize,
    /// Whose it is.
    pub client: usize,
}

/// A client.
#[derive(Debug)]
pub(crate) struct Client {
    pub session: SessionId,
    /// The process it is connected to, by its place in the list.
    pub gateway: usize,
    pub open: Vec<Open>,
    /// What became of the last transaction, for clients that act when traffic is over.
    pub last: Option<Outcome>,
    pub random: Rng,
    /// What it does after the present transaction, in the same session.
    pub follow_up: Option<Plan>,
    /// The last transaction of the context that its session has taken over since it last committed anything.
    pub follows: Option<usize>,
    /// What it does, if that is written down.
    pub script: Option<VecDeque<TimedPlan>>,
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
    /// `context` is what there is for it to take over.
    pub fn first_stage(plan: &Plan, context: Option<&Context>) -> Stage {
        match (plan.passing, context) {
            (Passing::Give, _) => Stage::Give,
            (Passing::Take, Some(_)) => Stage::Take,
            _ => Open::own_stage(plan),
        }
    }

    fn own_stage(plan: &Plan) -> Stage {
        match plan.shape {
            _ if plan.watching == Watching::First => Stage::Watch,
            Shape::Interactive { .. } => Stage::Begin,
            _ => Stage::KeyspaceWork,
        }
    }

    /// True when the transaction may commit although no answer comes.
    pub fn may_commit(&self) -> bool {
        matches!(self.stage, Stage::KeyspaceWork | Stage::Commit)
    }

    /// What is known of the outcome when no answer will come.
    pub fn without_answer(&self) -> Outcome {
        if self.may_commit() { Outcome::Unknown } else { Outcome::Aborted }
    }

    /// Hands the present stage's request to `feed`.
    pub fn ask<P: Protocol>(
        &self,
        session: SessionId,
        seed: HashSeed,
        feed: impl FnOnce(&mut Vec<Input<'_, P>>),
    ) -> Result<(), Malformed> {
        let steps = match self.stage {
            Stage::KeyspaceWork => &self.plan.steps[..],
            Stage::Operate(from) => &self.plan.steps[from..self.operate_end(from)],
            _ => &[],
        };
        let steps = steps.iter().map(|step| decoded(step, seed)).collect::<Result<Vec<_>, _>>()?;
        let keys: Vec<(&[u8], KeyHash)> =
            self.plan.steps.iter().map(|step| (&step.key.0[..], seed.hash(&step.key.0))).collect();
        let watched = self.plan.watching == Watching::Heeded;
        let words = self.branch_words();
        let words: Vec<&[u8]> = words.iter().map(String::as_bytes).collect();
        let token = self.context.as_ref().map_or(&[][..], |context| &context.token);
        let request = match (self.stage, self.plan.shape) {
            (Stage::Begin | Stage::Commit | Stage::Abort, _) if !words.is_empty() => {
                Request::Own { session, words: &words, steps: &[] }
            }
            (Stage::Give, _) => Request::Context { session, ask: ContextRequest::Token },
            (Stage::Take, _) => {
                Request::Context { session, ask: ContextRequest::Restore { token, timeout: CONTEXT_TIMEOUT } }
            }
            (Stage::Watch, _) => Request::Watch { session, keys: &keys },
            (Stage::KeyspaceWork, shape) => match (shape, &steps[..]) {
                (Shape::One, [Step::Key(only)]) => Request::One { session, operation: only.clone() },
                _ => Request::Many { session, steps: &steps, watched, multi: true },
            },
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

    /// The words that begin or end a transaction which chooses its states; else none.
    fn branch_words(&self) -> Vec<String> {
        let Some(Constraints { begin, end }) = &self.plan.constraints else { return Vec::new() };
        let read_only = matches!(self.plan.shape, Shape::Interactive { read_only: true, .. });
        let (command, demanded) = match self.stage {
            Stage::Begin if read_only => ("BRANCH BEGIN READONLY", begin),
            Stage::Begin => ("BRANCH BEGIN", begin),
            Stage::Commit => ("BRANCH COMMIT", end),
            Stage::Abort => ("BRANCH ABORT", &None),
            _ => return Vec::new(),
        };
        let demanded = demanded.as_ref().map(ToString::to_string).unwrap_or_default();
        command.split(' ').chain(demanded.split_whitespace()).map(str::to_owned).collect()
    }

    fn operate_end(&self, from: usize) -> usize {
        let size = match self.plan.shape {
            Shape::Interactive { steps_per_request, .. } => steps_per_request,
            Shape::One | Shape::Many | Shape::Pipeline => self.plan.steps.len(),
        };
        (from + size.max(1)).min(self.plan.steps.len())
    }

    /// True if this reply ends a transaction that is one request, and it took place.
    pub fn is_done_by(&self, reply: &ReplyBuf) -> bool {
        let stopped = self.plan.watching == Watching::Heeded && is_null_array(reply);
        self.stage == Stage::KeyspaceWork && refusal(reply).is_none() && !stopped
    }

    /// Takes a reply: the first step whose replies it holds, these replies, and what comes next.
    pub fn answered(&mut self, reply: &ReplyBuf) -> (usize, Vec<String>, Next) {
        let ends_here = matches!(self.stage, Stage::Begin | Stage::Commit | Stage::Abort);
        let is_refused = self.plan.constraints.is_some() && ends_here && reply.as_error().is_some();
        if let Some(outcome) = refusal(reply).or(is_refused.then_some(Outcome::Aborted)) {
            let outcome = if outcome == Outcome::Unknown { self.without_answer() } else { outcome };
            return (0, Vec::new(), Next::End(outcome));
        }
        match self.stage {
            Stage::Give | Stage::Take => {
                self.stage = Open::own_stage(&self.plan);
                (0, Vec::new(), Next::Ask)
            }
            Stage::Watch => {
                self.stage = Stage::KeyspaceWork;
                (0, Vec::new(), Next::Ask)
            }
            Stage::KeyspaceWork if self.plan.watching == Watching::Heeded && is_null_array(reply) => {
                (0, Vec::new(), Next::End(Outcome::Aborted))
            }
            Stage::KeyspaceWork => (0, render_values(reply), Next::End(Outcome::Committed)),
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
            // `BRANCH BEGIN` heeds what the session watches, whatever the plan says.
            Stage::Commit if is_null_array(reply) => (0, Vec::new(), Next::End(Outcome::Aborted)),
            Stage::Commit => (0, Vec::new(), Next::End(Outcome::Committed)),
            Stage::Abort => (0, Vec::new(), Next::End(Outcome::Aborted)),
        }
    }
}

/// What an error says about the outcome; `None` where there is none, or only an operation's own. A refused step refuses
/// the transaction: a log that cannot be written refuses each write in its place, and all of them.
pub(crate) fn refusal(reply: &ReplyBuf) -> Option<Outcome> {
    reply.elements().find_map(|element| match element {
        Reply::Error(Error {
            code:
                ErrorCode::Err
                | ErrorCode::WrongType
                | ErrorCode::Siblings
                | ErrorCode::BusyKey
                | ErrorCode::BusyGroup
                | ErrorCode::NoGroup
                | ErrorCode::InvalidObject,
            ..
        }) => None,
        Reply::Error(Error { code: ErrorCode::UnknownOutcome, .. }) => Some(Outcome::Unknown),
        Reply::Error(_) => Some(Outcome::Aborted),
        _ => None,
    })
}

/// What a watched transaction that was stopped replies.
pub(crate) fn is_null_array(reply: &ReplyBuf) -> bool {
    let mut elements = reply.elements();
    matches!(elements.next(), Some(Reply::NullArray)) && elements.next().is_none()
}

fn decoded(step: &checker::Step, seed: HashSeed) -> Result<Step<'_>, Malformed> {
    if let Some(keyset) = KeysetStep::of(step) {
        return Ok(keyset.as_step());
    }
    let operation = datatypes::Operation::decode(&mut Reader::new(&step.operation.0))?;
    let hash = seed.hash(&step.key.0);
    Ok(Step::Key(KeyedOperation { key: &step.key.0, hash, operation, blind: step.blind }))
}
