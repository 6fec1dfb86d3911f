//! Commands that read first and decide then: turns of steps, each of which may need the replies to the one before.
//!
//! A family of commands implements [`Turns`] beside its handlers. Where a command needs whole values and computes something
//! of them, [`Compute`] is all it needs: values are read, a function sees them, and what it says is written and replied.

use crate::dialogue::Dialogue;
use crate::plan::Plan;
use datatypes::{Cell, Operation, key};
use protocol::{KeyedOperation, Step};
use std::borrow::Cow;
use std::fmt::{self, Debug};
use types::{Error, HashSeed, Reader, Reply, ReplyBuf, ReplySink};

/// A command that takes several turns. It owns what it needs of its arguments.
pub(crate) trait Turns: Debug {
    /// True when all turns are one transaction; false when it only reads, in one turn, which is exact by itself.
    fn is_atomic(&self) -> bool {
        true
    }

    /// What to ask next; at least one step.
    fn steps(&self, on: On) -> Vec<Step<'_>>;

    /// Reads the reply to the last steps, whose elements may be errors ([`first_error`]). True when the command is done
    /// and its reply is written into `sink`.
    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool;
}

/// Makes steps of operations.
#[derive(Clone, Copy, Debug)]
pub(crate) struct On {
    /// The deployment's hash seed.
    pub(crate) seed: HashSeed,
}

impl On {
    /// An operation on a key, as a step.
    pub(crate) fn key<'a>(self, key: &'a [u8], operation: Operation<'a>) -> Step<'a> {
        Step::Key(KeyedOperation { key, hash: self.seed.hash(key), operation, blind: false })
    }
}

/// The plan of a command that takes several turns.
pub(crate) fn plan<'a>(turns: impl Turns + 'static) -> Plan<'a> {
    Plan::Dialogue(Dialogue::Turns(Box::new(turns)))
}

/// The first error among the replies to a turn's steps.
pub(crate) fn first_error(reply: &ReplyBuf) -> Option<Error> {
    reply.elements().find_map(|element| match element {
        Reply::Error(error) => Some(error),
        _ => None,
    })
}

/// A command behind BLIND: what it replies is not shown, unless it is an error.
#[derive(Debug)]
pub(crate) struct Hidden(pub(crate) Box<dyn Turns>);

impl Turns for Hidden {
    fn is_atomic(&self) -> bool {
        self.0.is_atomic()
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        self.0.steps(on)
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let mut hidden = ReplyBuf::new();
        let done = self.0.on_reply(reply, &mut hidden);
        if done {
            match hidden.as_error() {
                Some(error) => sink.error(&error),
                None => sink.simple("OK"),
            }
        }
        done
    }
}

/// What a command computed of the values that it read.
#[derive(Debug, Default)]
pub(crate) struct Computed {
    /// The client's reply.
    pub(crate) reply: ReplyBuf,
    /// Keys with what is to be there from now on; [`Cell::ABSENT`] deletes.
    pub(crate) writes: Vec<(Box<[u8]>, Cell)>,
}

/// The function of a [`Compute`]: from what the keys hold, in their order, to what becomes of it. A transaction that begins
/// again calls it again.
type Function = Box<dyn FnMut(Vec<Cell>) -> Result<Computed, Error>>;

/// See the module.
pub(crate) struct Compute {
    keys: Vec<Box<[u8]>>,
    may_write: bool,
    function: Function,
    computed: Option<Computed>,
}

impl Debug for Compute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Compute").field("keys", &self.keys).field("computed", &self.computed).finish()
    }
}

impl Compute {
    /// The plan of a command that replies what `function` says of the values of `keys`.
    pub(crate) fn reading<'a>(
        keys: impl Iterator<Item = &'a [u8]>,
        function: impl FnMut(Vec<Cell>) -> Result<Computed, Error> + 'static,
    ) -> Plan<'a> {
        plan(Compute {
            keys: keys.map(Into::into).collect(),
            may_write: false,
            function: Box::new(function),
            computed: None,
        })
    }

    /// The plan of a command that writes, as one transaction, what `function` says of the values of `keys`.
    pub(crate) fn writing<'a>(
        keys: impl Iterator<Item = &'a [u8]>,
        function: impl FnMut(Vec<Cell>) -> Result<Computed, Error> + 'static,
    ) -> Plan<'a> {
        plan(Compute {
            keys: keys.map(Into::into).collect(),
            may_write: true,
            function: Box::new(function),
            computed: None,
        })
    }
}

impl Turns for Compute {
    fn is_atomic(&self) -> bool {
        self.may_write
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let Some(computed) = &self.computed else {
            return self.keys.iter().map(|key| on.key(key, Operation::Key(key::Operation::Copy))).collect();
        };
        let write = |cell: &Cell| match cell.value {
            None => key::Operation::Delete,
            Some(_) => {
                let mut bytes = Vec::new();
                cell.encode(&mut bytes);
                key::Operation::Restore(Cow::Owned(bytes))
            }
        };
        computed.writes.iter().map(|(key, cell)| on.key(key, Operation::Key(write(cell)))).collect()
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        if let Some(computed) = &self.computed {
            computed.reply.replay(sink);
            return true;
        }
        let cell = |element| match element {
            Reply::Bulk(bytes) => Cell::decode(&mut Reader::new(bytes)).unwrap_or(Cell::ABSENT),
            _ => Cell::ABSENT,
        };
        match (self.function)(reply.elements().map(cell).collect()) {
            Err(error) => sink.error(&error),
            Ok(computed) if computed.writes.is_empty() => computed.reply.replay(sink),
            Ok(computed) => {
                self.computed = Some(computed);
                return false;
            }
        }
        true
    }
}
