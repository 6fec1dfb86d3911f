//! Requests as the coordinator keeps them: owned, and with each operation classified.

use crate::stable::intent::encoded;
use crate::stable::setup::Topology;
use crate::stable::token::Token;
use datatypes::{Cell, Context, Effect, Operation, prepare};
use mvcc::CompactKey;
use protocol::{ContextRequest, KeyedOperation, Losses, Request, Step};
use std::time::Duration;
use types::{Error, KeyHash, ReplyBuf, ReplySink, Rng};

/// A request. `T` is what a protocol's context tokens tell.
#[derive(Debug)]
pub(crate) enum Ask<T = Token> {
    Steps {
        steps: Vec<PlannedStep>,
        watched: bool,
    },
    Watch {
        keys: Vec<(Box<[u8]>, u16)>,
    },
    Unwatch,
    Begin {
        read_only: bool,
        watched: bool,
    },
    Operate {
        steps: Vec<PlannedStep>,
    },
    Commit,
    Abort,
    Token,
    /// No token if the text is none.
    Restore {
        token: Option<T>,
        timeout: Duration,
    },
    Scope {
        private: bool,
    },
    NewContext,
    UseContext(u64),
    DropContext(u64),
    Refused(Error),
    Close,
}

/// One step of a transaction.
#[derive(Clone, Debug)]
pub(crate) enum PlannedStep {
    Key { key: CompactKey, partition: u16, what: KeyAction },
    Count,
    Flush,
    Keys,
    Random,
    Scan { cursor: u64, count: u32 },
    Losses(Losses),
}

/// What a step does to its key.
#[derive(Clone, Debug)]
pub(crate) enum KeyAction {
    /// It only reads.
    Read { operation: CompactKey, blind: bool },
    /// It writes whatever the state is, and its reply is known.
    Write { effect: Box<[u8]>, reply: ReplyBuf },
    /// It writes, and its reply or its effect depends on the state.
    Observing { operation: CompactKey, blind: bool },
}

impl PlannedStep {
    pub(crate) fn is_observing(&self) -> bool {
        matches!(self, PlannedStep::Key { what: KeyAction::Observing { .. }, .. })
    }

    pub(crate) fn is_write(&self) -> bool {
        match self {
            PlannedStep::Key { what, .. } => !matches!(what, KeyAction::Read { .. }),
            PlannedStep::Flush => true,
            PlannedStep::Count
            | PlannedStep::Keys
            | PlannedStep::Random
            | PlannedStep::Scan { .. }
            | PlannedStep::Losses(_) => false,
        }
    }
}

/// With which others a single command may run as one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Batching {
    /// The partition of all of them, if it is one.
    partition: Option<u16>,
    /// One of them observes and writes.
    observes: bool,
}

impl Batching {
    /// What observes and writes is decided by one participant, so that nothing undecided is ever in the way of others.
    pub(super) fn join(self, other: Batching) -> Option<Batching> {
        let partition = self.partition.filter(|partition| other.partition == Some(*partition));
        let observes = self.observes || other.observes;
        (partition.is_some() || !observes).then_some(Batching { partition, observes })
    }
}

/// The deletion of a key.
pub(super) fn deletion() -> Box<[u8]> {
    encoded(&Effect::DELETE)
}

impl<T> Ask<T> {
    /// With whom it may run, if it is a single command on a key. Observing writes only where they are evaluated at primaries.
    pub(super) fn batching(&self, at_primaries: bool) -> Option<Batching> {
        let Ask::Steps { steps, watched: false } = self else { return None };
        let [PlannedStep::Key { partition, what, .. }] = steps.as_slice() else { return None };
        let observes = matches!(what, KeyAction::Observing { .. });
        (at_primaries || !observes).then_some(Batching { partition: Some(*partition), observes })
    }

    /// Copies what the request borrows. `open` reads a token.
    pub(crate) fn new(
        request: &Request<'_>,
        topology: &Topology,
        open: impl Fn(&[u8], &Topology) -> Option<T>,
    ) -> Self {
        if let Err(refusal) = request.refuse_user_types("causal") {
            return Ask::Refused(refusal);
        }
        let plan = |steps: &[Step<'_>]| steps.iter().map(|step| planned(step, topology)).collect();
        let place = |(key, hash): &(&[u8], KeyHash)| (Box::from(*key), topology.partition_of(*hash));
        match request {
            Request::One { operation, .. } => {
                Ask::Steps { steps: vec![keyed(operation, topology)], watched: false }
            }
            Request::Many { steps, watched, .. } => Ask::Steps { steps: plan(steps), watched: *watched },
            Request::Watch { keys, .. } => Ask::Watch { keys: keys.iter().map(place).collect() },
            Request::Unwatch { .. } => Ask::Unwatch,
            Request::Begin { read_only, watched, .. } => {
                Ask::Begin { read_only: *read_only, watched: *watched }
            }
            Request::Operate { steps, .. } => Ask::Operate { steps: plan(steps) },
            Request::Commit { .. } => Ask::Commit,
            Request::Abort { .. } => Ask::Abort,
            Request::Context { ask, .. } => match ask {
                ContextRequest::Token => Ask::Token,
                ContextRequest::Restore { token, timeout } => {
                    Ask::Restore { token: open(token, topology), timeout: *timeout }
                }
                ContextRequest::Scope { private } => Ask::Scope { private: *private },
                ContextRequest::New => Ask::NewContext,
                ContextRequest::Use { context } => Ask::UseContext(*context),
                ContextRequest::Drop { context } => Ask::DropContext(*context),
            },
            Request::Own { words, .. } => Ask::Refused(Request::refused(words, "causal")),
            Request::Close { .. } => Ask::Close,
        }
    }
}

fn planned(step: &Step<'_>, topology: &Topology) -> PlannedStep {
    match step {
        Step::Key(operation) => keyed(operation, topology),
        Step::Count => PlannedStep::Count,
        Step::Flush => PlannedStep::Flush,
        Step::Keys => PlannedStep::Keys,
        Step::Random => PlannedStep::Random,
        Step::Scan { cursor, count } => PlannedStep::Scan { cursor: *cursor, count: *count },
        Step::Losses(losses) => PlannedStep::Losses(*losses),
    }
}

fn keyed(keyed: &KeyedOperation<'_>, topology: &Topology) -> PlannedStep {
    let what = classify(&keyed.operation, keyed.blind);
    PlannedStep::Key { key: keyed.key.into(), partition: topology.partition_of(keyed.hash), what }
}

/// A write that observes nothing has the same reply and the same effect in every state: those it has in an absent
/// key. A blind one has the effect that needs no state, if there is one.
fn classify(operation: &Operation<'_>, blind: bool) -> KeyAction {
    let bytes = || {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        bytes.into()
    };
    if operation.is_read() {
        return KeyAction::Read { operation: bytes(), blind };
    }
    let mut reply = ReplyBuf::new();
    if blind {
        if let Some(effect) = operation.blind_effect() {
            reply.simple("OK");
            return KeyAction::Write { effect: encoded(&effect), reply };
        }
    } else if operation.observation().is_nothing() {
        let mut random = Rng::with_seed(0);
        let mut context = Context { now_millis: 0, random: &mut random, site: None };
        if let Some(effect) = prepare(&Cell::ABSENT, operation, &mut context, &mut reply) {
            return KeyAction::Write { effect: encoded(&effect), reply };
        }
    }
    KeyAction::Observing { operation: bytes(), blind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::register::{self, Condition, Deadline, SetReply};

    #[test]
    fn what_observes_and_writes_runs_with_commands_of_its_partition_only() {
        let of = |partition, observes| Batching { partition: Some(partition), observes };
        assert_eq!(of(1, true).join(of(1, false)), Some(of(1, true)));
        assert_eq!(of(1, true).join(of(2, false)), None);
        let several = of(1, false).join(of(2, false)).unwrap();
        assert_eq!(several, Batching { partition: None, observes: false });
        assert_eq!(several.join(of(1, true)), None);
        assert_eq!(several.join(of(1, false)), Some(several));
    }

    #[test]
    fn only_writes_that_observe_something_need_the_primary() {
        let set = |condition| {
            let (value, deadline) = (b"v".as_slice(), Deadline::Clear);
            Operation::Register(register::Operation::Set {
                value,
                deadline,
                condition,
                reply: SetReply::Status,
            })
        };
        assert!(matches!(classify(&set(Condition::Always), false), KeyAction::Write { .. }));
        assert!(matches!(classify(&set(Condition::IfAbsent), false), KeyAction::Observing { .. }));
        let increment = Operation::Register(register::Operation::Increment { by: 1 });
        assert!(matches!(classify(&increment, false), KeyAction::Observing { .. }));
        assert!(matches!(classify(&increment, true), KeyAction::Write { .. }));
        assert!(matches!(
            classify(&Operation::Register(register::Operation::Get), false),
            KeyAction::Read { .. }
        ));
    }
}
