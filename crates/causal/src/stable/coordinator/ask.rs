//! Requests as the coordinator keeps them: owned, and with each operation classified.

use crate::stable::pledge::encoded;
use crate::stable::setup::Topology;
use crate::stable::token::Token;
use datatypes::{Cell, Context, Effect, Operation, prepare};
use mvcc::CompactKey;
use protocol::{ContextAsk, KeyedOperation, Losses, Request, Step};
use std::time::Duration;
use types::{Error, KeyHash, ReplyBuf, ReplySink, Rng};

/// A request. `T` is what a protocol's context tokens tell.
#[derive(Debug)]
pub(crate) enum Ask<T = Token> {
    Steps {
        steps: Vec<Planned>,
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
        steps: Vec<Planned>,
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
pub(crate) enum Planned {
    Key { key: CompactKey, partition: u16, what: What },
    Count,
    Flush,
    Keys,
    Random,
    Scan { cursor: u64, count: u32 },
    Losses(Losses),
}

/// What a step does to its key.
#[derive(Clone, Debug)]
pub(crate) enum What {
    /// It only reads.
    Read { operation: CompactKey, blind: bool },
    /// It writes whatever the state is, and its reply is known.
    Write { effect: Box<[u8]>, reply: ReplyBuf },
    /// It writes, and its reply or its effect depends on the state.
    Observing { operation: CompactKey, blind: bool },
}

impl Planned {
    pub(crate) fn is_observing(&self) -> bool {
        matches!(self, Planned::Key { what: What::Observing { .. }, .. })
    }

    pub(crate) fn is_write(&self) -> bool {
        match self {
            Planned::Key { what, .. } => !matches!(what, What::Read { .. }),
            Planned::Flush => true,
            Planned::Count | Planned::Keys | Planned::Random | Planned::Scan { .. } | Planned::Losses(_) => {
                false
            }
        }
    }
}

/// With which others a single command may run as one transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Company {
    /// The partition of all of them, if it is one.
    partition: Option<u16>,
    /// One of them observes and writes.
    observes: bool,
}

impl Company {
    /// What observes and writes is decided by one participant, so that nothing undecided is ever in the way of others.
    pub(super) fn join(self, other: Company) -> Option<Company> {
        let partition = self.partition.filter(|partition| other.partition == Some(*partition));
        let observes = self.observes || other.observes;
        (partition.is_some() || !observes).then_some(Company { partition, observes })
    }
}

/// The deletion of a key.
pub(super) fn deletion() -> Box<[u8]> {
    encoded(&Effect::DELETE)
}

impl<T> Ask<T> {
    /// With whom it may run, if it is a single command on a key. Observing writes only where they are evaluated at primaries.
    pub(super) fn company(&self, at_primaries: bool) -> Option<Company> {
        let Ask::Steps { steps, watched: false } = self else { return None };
        let [Planned::Key { partition, what, .. }] = steps.as_slice() else { return None };
        let observes = matches!(what, What::Observing { .. });
        (at_primaries || !observes).then_some(Company { partition: Some(*partition), observes })
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
                ContextAsk::Token => Ask::Token,
                ContextAsk::Restore { token, timeout } => {
                    Ask::Restore { token: open(token, topology), timeout: *timeout }
                }
                ContextAsk::Scope { private } => Ask::Scope { private: *private },
                ContextAsk::New => Ask::NewContext,
                ContextAsk::Use { context } => Ask::UseContext(*context),
                ContextAsk::Drop { context } => Ask::DropContext(*context),
            },
            Request::Own { words, .. } => Ask::Refused(Request::refused(words, "causal")),
            Request::Close { .. } => Ask::Close,
        }
    }
}

fn planned(step: &Step<'_>, topology: &Topology) -> Planned {
    match step {
        Step::Key(operation) => keyed(operation, topology),
        Step::Count => Planned::Count,
        Step::Flush => Planned::Flush,
        Step::Keys => Planned::Keys,
        Step::Random => Planned::Random,
        Step::Scan { cursor, count } => Planned::Scan { cursor: *cursor, count: *count },
        Step::Losses(losses) => Planned::Losses(*losses),
    }
}

fn keyed(keyed: &KeyedOperation<'_>, topology: &Topology) -> Planned {
    let what = classify(&keyed.operation, keyed.blind);
    Planned::Key { key: keyed.key.into(), partition: topology.partition_of(keyed.hash), what }
}

/// A write that observes nothing has the same reply and the same effect in every state: those it has in an absent
/// key. A blind one has the effect that needs no state, if there is one.
fn classify(operation: &Operation<'_>, blind: bool) -> What {
    let bytes = || {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        bytes.into()
    };
    if operation.is_read() {
        return What::Read { operation: bytes(), blind };
    }
    let mut reply = ReplyBuf::new();
    if blind {
        if let Some(effect) = operation.blind_effect() {
            reply.simple("OK");
            return What::Write { effect: encoded(&effect), reply };
        }
    } else if operation.observation().is_nothing() {
        let mut random = Rng::with_seed(0);
        let mut context = Context { now_millis: 0, random: &mut random, site: None };
        if let Some(effect) = prepare(&Cell::ABSENT, operation, &mut context, &mut reply) {
            return What::Write { effect: encoded(&effect), reply };
        }
    }
    What::Observing { operation: bytes(), blind }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::register::{self, Condition, Deadline, SetReply};

    #[test]
    fn what_observes_and_writes_runs_with_commands_of_its_partition_only() {
        let of = |partition, observes| Company { partition: Some(partition), observes };
        assert_eq!(of(1, true).join(of(1, false)), Some(of(1, true)));
        assert_eq!(of(1, true).join(of(2, false)), None);
        let several = of(1, false).join(of(2, false)).unwrap();
        assert_eq!(several, Company { partition: None, observes: false });
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
        assert!(matches!(classify(&set(Condition::Always), false), What::Write { .. }));
        assert!(matches!(classify(&set(Condition::IfAbsent), false), What::Observing { .. }));
        let increment = Operation::Register(register::Operation::Increment { by: 1 });
        assert!(matches!(classify(&increment, false), What::Observing { .. }));
        assert!(matches!(classify(&increment, true), What::Write { .. }));
        assert!(matches!(classify(&Operation::Register(register::Operation::Get), false), What::Read { .. }));
    }
}
