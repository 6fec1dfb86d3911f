//! What a command on data becomes: one operation, several steps, or a dialogue.

use crate::combine::Combine;
use crate::dialogue::Dialogue;
use crate::number::parse_float;
use crate::table::Command;
use datatypes::{Items, Operation};
use protocol::{KeyedOperation, Step};
use resp::{Arguments, parse_integer};
use types::{Error, HashSeed};

/// How a command is carried out.
#[derive(Debug)]
pub(crate) enum Plan<'a> {
    /// By one operation, whose reply is the command's.
    One(KeyedOperation<'a>),
    /// By steps that need no other's result.
    Many {
        /// The steps.
        steps: Vec<Step<'a>>,
        /// What their replies become.
        combine: Combine,
    },
    /// By steps each of which may need the one before.
    Dialogue(Dialogue),
}

/// A command as its handler sees it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call<'a> {
    /// Its arguments, the name first.
    pub(crate) arguments: Arguments<'a>,
    /// Its entry in the table.
    pub(crate) command: &'static Command,
    /// Milliseconds since 1970.
    pub(crate) now_millis: u64,
    /// The deployment's hash seed.
    pub(crate) seed: HashSeed,
    /// About how many keys one step of KEYS visits.
    pub(crate) scan_piece: u32,
}

impl<'a> Call<'a> {
    /// How many arguments, the name included.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.arguments.len()
    }

    /// The argument with this index; the table's arity vouches for it, or the handler has looked.
    #[inline]
    pub(crate) fn bytes(&self, index: usize) -> &'a [u8] {
        debug_assert!(index < self.len(), "the arity was checked");
        self.arguments.get(index).unwrap_or_default()
    }

    /// True when the argument with this index is `word`, in any case.
    pub(crate) fn is(&self, index: usize, word: &str) -> bool {
        self.arguments.get(index).is_some_and(|argument| argument.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// An argument as an integer.
    ///
    /// # Errors
    /// It is none, in Redis's strict form.
    pub(crate) fn integer(&self, index: usize) -> Result<i64, Error> {
        parse_integer(self.bytes(index)).ok_or_else(Error::not_an_integer)
    }

    /// An argument that says how many.
    ///
    /// # Errors
    /// It is no integer, or negative.
    pub(crate) fn count(&self, index: usize) -> Result<u64, Error> {
        let count = parse_integer(self.bytes(index)).and_then(|count| u64::try_from(count).ok());
        count.ok_or_else(|| Error::err("value is out of range, must be positive"))
    }

    /// An argument as a number.
    ///
    /// # Errors
    /// It is none.
    pub(crate) fn float(&self, index: usize) -> Result<f64, Error> {
        parse_float(self.bytes(index)).ok_or_else(|| Error::err("value is not a valid float"))
    }

    /// The arguments from this index on.
    #[inline]
    pub(crate) fn items(&self, from: usize) -> Items<'a> {
        match self.len() - from {
            1 => Items::one(self.bytes(from)),
            2 => Items::two(self.bytes(from), self.bytes(from + 1)),
            _ => Items::collect(self.arguments.iter().skip(from)),
        }
    }

    /// An operation on a key.
    #[inline]
    pub(crate) fn on(&self, key: &'a [u8], operation: Operation<'a>) -> KeyedOperation<'a> {
        KeyedOperation { key, hash: self.seed.hash(key), operation, blind: false }
    }

    /// A plan of one operation on the command's first argument.
    #[inline]
    pub(crate) fn one(&self, operation: Operation<'a>) -> Result<Plan<'a>, Error> {
        Ok(Plan::One(self.on(self.bytes(1), operation)))
    }

    /// A plan of the same operation on every argument; a single one is not combined when `combine` would pass its
    /// reply on anyway.
    pub(crate) fn each(&self, operation: Operation<'a>, combine: Combine) -> Result<Plan<'a>, Error> {
        if self.len() == 2 && combine.passes_one_on() {
            return self.one(operation);
        }
        let keys = self.arguments.iter().skip(1);
        let steps = keys.map(|key| Step::Key(self.on(key, operation.clone()))).collect();
        Ok(Plan::Many { steps, combine })
    }

    /// A plan of one step.
    pub(crate) fn step(&self, step: Step<'a>) -> Result<Plan<'a>, Error> {
        Ok(Plan::Many { steps: vec![step], combine: Combine::Pass })
    }

    /// The error of an expiry that cannot be.
    pub(crate) fn invalid_expiry(&self) -> Error {
        Error::err(format!("invalid expire time in '{}' command", self.command.name))
    }
}
