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
use types::{Error, HashSeed, MAX_REPLY_BYTES, Reader, Reply, ReplyBuf, ReplySink};

/// A command that takes several turns. It owns what it needs of its arguments.
pub(crate) trait Turns: Debug {
    /// True when all turns are one transaction; false when it takes one turn, which is exact by itself.
    fn is_atomic(&self) -> bool {
        true
    }

    /// A blocked client tries again: keys of other types hold nothing that it waits for, and are no error.
    fn skip_other_types(&mut self) {}

    /// Of a blocking command: false if it was called so that it does not wait.
    fn may_wait(&self) -> bool {
        true
    }

    /// Of a blocking command: others wait in front. It takes nothing; it replies what is wrong with its keys, else nothing.
    fn only_look(&mut self) {}

    /// Of a blocking command that has found nothing: what to attempt from now on, in RESP, if that is another command.
    fn again(&self) -> Option<Vec<u8>> {
        None
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

/// A command whose client learns only that it was carried out, or why not: what `BLIND` makes of another.
#[derive(Debug)]
pub(crate) struct Blind(pub(crate) Box<dyn Turns>);

impl Turns for Blind {
    fn is_atomic(&self) -> bool {
        self.0.is_atomic()
    }

    fn skip_other_types(&mut self) {
        self.0.skip_other_types();
    }

    fn may_wait(&self) -> bool {
        self.0.may_wait()
    }

    fn only_look(&mut self) {
        self.0.only_look();
    }

    fn again(&self) -> Option<Vec<u8>> {
        self.0.again()
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        self.0.steps(on)
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        let mut result = ReplyBuf::new();
        let done = self.0.on_reply(reply, &mut result);
        match result.as_error() {
            Some(error) => sink.error(&error),
            None if done => sink.simple("OK"),
            None => {}
        }
        done
    }
}

/// The first error among the replies to a turn's steps.
pub(crate) fn first_error(reply: &ReplyBuf) -> Option<Error> {
    reply.elements().find_map(|element| match element {
        Reply::Error(error) => Some(error),
        _ => None,
    })
}

/// What a command computed of the values that it read.
#[derive(Debug, Default)]
pub(crate) struct Computed {
    /// The client's reply.
    pub(crate) reply: ReplyBuf,
    /// Keys with what is to be there from now on; [`Cell::ABSENT`] deletes.
    pub(crate) writes: Vec<(Box<[u8]>, Cell)>,
}

/// What is to be at a key from now on, in its binary form; without one the key is deleted.
#[derive(Debug)]
pub(crate) struct Replacement(Option<Vec<u8>>);

impl Replacement {
    /// # Errors
    /// See [`encoded`].
    pub(crate) fn new(cell: &Cell) -> Result<Self, Error> {
        cell.value.as_ref().map(|_| encoded(cell)).transpose().map(Replacement)
    }

    /// The operation that leaves it.
    pub(crate) fn operation(&self) -> Operation<'_> {
        Operation::Key(match &self.0 {
            None => key::Operation::Delete,
            Some(bytes) => key::Operation::Restore(Cow::Borrowed(bytes)),
        })
    }
}

/// A whole value in its binary form.
///
/// # Errors
/// It has more bytes than a reply: neither the log nor a message between processes takes what is much larger.
pub(crate) fn encoded(cell: &Cell) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    cell.encode(&mut bytes);
    if bytes.len() > MAX_REPLY_BYTES {
        return Err(Error::err("the value would be larger than 512 MiB"));
    }
    Ok(bytes)
}

/// The function of a [`Compute`]: from what the keys hold, in their order, to what becomes of it.
type Function = Box<dyn FnMut(Vec<Cell>) -> Result<Computed, Error>>;

/// Keys with what is to be there.
type Writes = Vec<(Box<[u8]>, Replacement)>;

/// See the module.
pub(crate) struct Compute {
    keys: Vec<Box<[u8]>>,
    may_write: bool,
    function: Function,
    /// The client's reply, and what is being written.
    computed: Option<(ReplyBuf, Writes)>,
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
        Compute::plan(keys, false, Box::new(function))
    }

    /// The plan of a command that writes, as one transaction, what `function` says of the values of `keys`.
    pub(crate) fn writing<'a>(
        keys: impl Iterator<Item = &'a [u8]>,
        function: impl FnMut(Vec<Cell>) -> Result<Computed, Error> + 'static,
    ) -> Plan<'a> {
        Compute::plan(keys, true, Box::new(function))
    }

    fn plan<'a>(keys: impl Iterator<Item = &'a [u8]>, may_write: bool, function: Function) -> Plan<'a> {
        let keys = keys.map(Into::into).collect();
        plan(Compute { keys, may_write, function, computed: None })
    }

    /// Lets the function see the values. True if there is nothing to write: then the reply is written.
    fn compute(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> Result<bool, Error> {
        let cell = |element| match element {
            Reply::Bulk(bytes) => Cell::decode(&mut Reader::new(bytes)).unwrap_or(Cell::ABSENT),
            _ => Cell::ABSENT,
        };
        let Computed { reply, writes } = (self.function)(reply.elements().map(cell).collect())?;
        if writes.is_empty() {
            reply.replay(sink);
            return Ok(true);
        }
        let writes = writes.into_iter().map(|(key, cell)| Ok((key, Replacement::new(&cell)?)));
        self.computed = Some((reply, writes.collect::<Result<Writes, Error>>()?));
        Ok(false)
    }
}

impl Turns for Compute {
    fn is_atomic(&self) -> bool {
        self.may_write
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        match &self.computed {
            None => self.keys.iter().map(|key| on.key(key, Operation::Key(key::Operation::Copy))).collect(),
            Some((_, writes)) => writes.iter().map(|(key, what)| on.key(key, what.operation())).collect(),
        }
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(&error);
            return true;
        }
        if let Some((reply, _)) = &self.computed {
            reply.replay(sink);
            return true;
        }
        self.compute(reply, sink).unwrap_or_else(|error| {
            sink.error(&error);
            true
        })
    }
}
