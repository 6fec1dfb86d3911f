//! Commands that read the strings of one key or several, compute something of them, and perhaps write one.

use crate::plan::Plan;
use crate::turns::{On, Turns, first_error, plan};
use datatypes::register::{Condition, Deadline, Operation as Register, SetReply, UnionReply};
use datatypes::{Operation, key};
use protocol::Step;
use std::borrow::Cow;
use std::fmt::{self, Debug};
use types::{Error, Reply, ReplyBuf, ReplySink};

/// What is computed of the strings.
pub(crate) enum Outcome {
    /// A reply.
    Reply(ReplyBuf),
    /// The key gets this string, and the reply is its length. An empty one deletes the key.
    Write(Vec<u8>),
    /// The key's HyperLogLog is united with this one, and the reply is `OK`.
    Unite(Vec<u8>),
}

/// The function of a command: from what the keys hold, in their order; `None` for those that are absent.
type Function = Box<dyn Fn(&[Option<&[u8]>]) -> Result<Outcome, Error>>;

/// See the module.
struct WholeStrings {
    keys: Vec<Box<[u8]>>,
    /// What is written.
    target: Option<Box<[u8]>>,
    /// What is replied where a key holds another type.
    wrong_type: Error,
    function: Function,
    computed: Option<Outcome>,
}

impl Debug for WholeStrings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WholeStrings").field("keys", &self.keys).field("target", &self.target).finish()
    }
}

/// The plan of a command that computes something of the strings of `keys`, and writes it to `target`, if there is one.
pub(crate) fn compute<'a>(
    keys: impl Iterator<Item = &'a [u8]>,
    target: Option<&'a [u8]>,
    wrong_type: Error,
    function: impl Fn(&[Option<&[u8]>]) -> Result<Outcome, Error> + 'static,
) -> Plan<'a> {
    let (keys, target) = (keys.map(Into::into).collect(), target.map(Into::into));
    plan(WholeStrings { keys, target, wrong_type, function: Box::new(function), computed: None })
}

impl Turns for WholeStrings {
    fn is_atomic(&self) -> bool {
        self.target.is_some()
    }

    fn steps(&self, on: On) -> Vec<Step<'_>> {
        let (Some(outcome), Some(target)) = (&self.computed, &self.target) else {
            let get = || Operation::Register(Register::Get);
            return self.keys.iter().map(|key| on.key(key, get())).collect();
        };
        let operation = match outcome {
            Outcome::Write(value) if !value.is_empty() => Operation::Register(Register::Set {
                value,
                deadline: Deadline::Clear,
                condition: Condition::Always,
                reply: SetReply::Status,
            }),
            Outcome::Unite(with) => {
                let (with, reply) = (Cow::Borrowed(&with[..]), UnionReply::Status);
                Operation::Register(Register::Unite { with, reply })
            }
            Outcome::Write(_) | Outcome::Reply(_) => Operation::Key(key::Operation::Delete),
        };
        vec![on.key(target, operation)]
    }

    fn on_reply(&mut self, reply: &ReplyBuf, sink: &mut dyn ReplySink) -> bool {
        if let Some(error) = first_error(reply) {
            sink.error(if error == Error::wrong_type() { &self.wrong_type } else { &error });
            return true;
        }
        match &self.computed {
            Some(Outcome::Write(value)) => {
                sink.integer(value.len() as i64);
                return true;
            }
            Some(_) => {
                sink.simple("OK");
                return true;
            }
            None => {}
        }
        let string = |element| match element {
            Reply::Bulk(bytes) => Some(bytes),
            _ => None,
        };
        let strings: Vec<Option<&[u8]>> = reply.elements().map(string).collect();
        match (self.function)(&strings) {
            Err(error) => sink.error(&error),
            Ok(Outcome::Reply(reply)) => reply.replay(sink),
            Ok(outcome) => {
                self.computed = Some(outcome);
                return false;
            }
        }
        true
    }
}
