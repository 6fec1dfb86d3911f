//! Every operation of every type, as one closed enum.

use crate::{Effect, Kind, Observation, dict, key, list, register, scored_set, set};
use types::{Malformed, Reader};

/// A typed command on one key, with its arguments, borrowed from whoever asked.
#[derive(Clone, Debug, PartialEq)]
pub enum Operation<'a> {
    /// On a key of any type.
    Key(key::Operation<'a>),
    /// On a register.
    Register(register::Operation<'a>),
    /// On a dict.
    Dict(dict::Operation<'a>),
    /// On a set.
    Set(set::Operation<'a>),
    /// On a scored set.
    ScoredSet(scored_set::Operation<'a>),
    /// On a list.
    List(list::Operation<'a>),
}

impl<'a> Operation<'a> {
    /// The type it wants, if it wants one.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Operation::Key(_) => None,
            Operation::Register(_) => Some(Kind::Register),
            Operation::Dict(_) => Some(Kind::Dict),
            Operation::Set(_) => Some(Kind::Set),
            Operation::ScoredSet(_) => Some(Kind::ScoredSet),
            Operation::List(_) => Some(Kind::List),
        }
    }

    /// True when it can never have an effect.
    pub fn is_read(&self) -> bool {
        match self {
            Operation::Key(operation) => operation.is_read(),
            Operation::Register(operation) => operation.is_read(),
            Operation::Dict(operation) => operation.is_read(),
            Operation::Set(operation) => operation.is_read(),
            Operation::ScoredSet(operation) => operation.is_read(),
            Operation::List(operation) => operation.is_read(),
        }
    }

    /// What its result, and the choice of its effect, reveal of the state, at most.
    pub fn observation(&self) -> Observation<'a> {
        match self {
            Operation::Key(operation) => operation.observation(),
            Operation::Register(operation) => operation.observation(),
            Operation::Dict(operation) => operation.observation(),
            Operation::Set(operation) => operation.observation(),
            Operation::ScoredSet(operation) => operation.observation(),
            Operation::List(operation) => operation.observation(),
        }
    }

    /// The effect that performs the operation in every state that does not refuse it, if one does: what `BLIND`
    /// commits without reading. It never refuses: what is outside its type stays as it is, and sums wrap.
    pub fn blind_effect(&self) -> Option<Effect<'a>> {
        match self {
            Operation::Key(operation) => operation.blind_effect().map(Effect::Key),
            Operation::Register(operation) => operation.blind_effect().map(Effect::Register),
            Operation::Dict(operation) => operation.blind_effect().map(Effect::Dict),
            Operation::Set(operation) => operation.blind_effect().map(Effect::Set),
            Operation::ScoredSet(operation) => operation.blind_effect().map(Effect::ScoredSet),
            Operation::List(operation) => operation.blind_effect().map(Effect::List),
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        macro_rules! tagged {
            ($tag:literal, $operation:expr) => {{
                out.push($tag);
                $operation.encode(out);
            }};
        }
        match self {
            Operation::Key(operation) => tagged!(0, operation),
            Operation::Register(operation) => tagged!(1, operation),
            Operation::Dict(operation) => tagged!(2, operation),
            Operation::Set(operation) => tagged!(3, operation),
            Operation::ScoredSet(operation) => tagged!(4, operation),
            Operation::List(operation) => tagged!(5, operation),
        }
    }

    /// Reads the binary form, borrowing byte strings from it.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Operation::Key(key::Operation::decode(input)?),
            1 => Operation::Register(register::Operation::decode(input)?),
            2 => Operation::Dict(dict::Operation::decode(input)?),
            3 => Operation::Set(set::Operation::decode(input)?),
            4 => Operation::ScoredSet(scored_set::Operation::decode(input)?),
            5 => Operation::List(list::Operation::decode(input)?),
            _ => return Err(Malformed("operation tag")),
        })
    }
}
