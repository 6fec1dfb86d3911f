//! Every operation of every type, as one closed enum.

use crate::{
    Cell, Effect, Invocation, Kind, Mode, Observation, counter, dict, key, list, register, scored_set, set,
    stream, summary, top, uid, user,
};
use types::{Malformed, Reader, ReplyBuf, Wire};

/// A typed command on one key, with its arguments, borrowed from the caller.
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
    /// On a counter.
    Counter(counter::Operation),
    /// On a summary bag.
    SummaryBag(summary::Operation),
    /// On a top.
    Top(top::Operation<'a>),
    /// On a generator of identifiers.
    UidGenerator(uid::Operation),
    /// On a stream.
    Stream(stream::Operation<'a>),
    /// On a value of a type that a user defined.
    User(user::Operation<'a>),
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
            Operation::Counter(_) => Some(Kind::Counter),
            Operation::SummaryBag(_) => Some(Kind::SummaryBag),
            Operation::Top(_) => Some(Kind::Top),
            Operation::UidGenerator(_) => Some(Kind::UidGenerator),
            Operation::Stream(_) => Some(Kind::Stream),
            Operation::User(operation) => Some(Kind::User(operation.of())),
        }
    }

    /// The user-defined type that it is of, or brings a value of.
    pub fn user_type(&self) -> Option<user::Type> {
        let kind = match self {
            Operation::Key(key::Operation::Restore(cell) | key::Operation::RestoreAbsent(cell)) => {
                Cell::decode(&mut Reader::new(cell)).ok().and_then(|cell| cell.kind())
            }
            operation => operation.kind(),
        };
        match kind {
            Some(Kind::User(of)) => Some(of),
            _ => None,
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
            Operation::Counter(operation) => operation.is_read(),
            Operation::SummaryBag(operation) => operation.is_read(),
            Operation::Top(operation) => operation.is_read(),
            Operation::UidGenerator(operation) => operation.is_read(),
            Operation::Stream(operation) => operation.is_read(),
            Operation::User(operation) => operation.is_read(),
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
            Operation::Counter(operation) => operation.observation(),
            Operation::SummaryBag(operation) => operation.observation(),
            Operation::Top(operation) => operation.observation(),
            Operation::UidGenerator(operation) => operation.observation(),
            Operation::Stream(operation) => operation.observation(),
            Operation::User(operation) => operation.observation(),
        }
    }

    /// An operation that observes no more than this reply to `self` has revealed, where that is less than `self` may
    /// observe: that a sum suffices, not what it is; the highest members, not those below them. In every state where
    /// it is unchanged, the reply would be the same.
    pub fn narrowed<'r>(&self, reply: &'r ReplyBuf) -> Option<Operation<'r>> {
        match self {
            Operation::Counter(operation) => operation.narrowed(reply).map(Operation::Counter),
            Operation::Top(operation) => operation.narrowed(reply).map(Operation::Top),
            Operation::User(operation) => operation.narrowed(reply).map(Operation::User),
            _ => None,
        }
    }

    /// True when [`Operation::narrowed`] may find something.
    pub fn may_narrow(&self) -> bool {
        match self {
            Operation::Counter(operation) => !matches!(operation, counter::Operation::Add { .. }),
            Operation::Top(operation) => matches!(operation, top::Operation::Range { with_scores: true, .. }),
            Operation::User(_) => true,
            _ => false,
        }
    }

    /// The lock mode that it needs to be evaluated, whether anybody sees the result or not: its effect may depend on
    /// the state. What it came to may need less ([`Invocation::mode`]).
    pub fn mode(&self) -> Mode {
        let own = if let Operation::User(operation) = self { operation.mode() } else { None };
        match own {
            Some(mode) => return Mode::User(mode),
            None if self.is_read() => return Mode::Observe,
            None => {}
        }
        let invocation = Invocation { observation: self.observation(), effect: self.blind_effect() };
        match &invocation.effect {
            Some(effect) if invocation.is_effect_only() => effect.mode(),
            _ => Mode::Write,
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
            Operation::Counter(operation) => operation.blind_effect().map(Effect::Counter),
            Operation::SummaryBag(operation) => operation.blind_effect().map(Effect::SummaryBag),
            Operation::Top(operation) => operation.blind_effect().map(Effect::Top),
            Operation::UidGenerator(operation) => operation.blind_effect().map(Effect::UidGenerator),
            Operation::Stream(operation) => operation.blind_effect().map(Effect::Stream),
            Operation::User(operation) => operation.blind_effect().map(Effect::User),
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
            Operation::Counter(operation) => tagged!(6, operation),
            Operation::SummaryBag(operation) => tagged!(7, operation),
            Operation::Top(operation) => tagged!(8, operation),
            Operation::UidGenerator(operation) => tagged!(9, operation),
            Operation::User(operation) => tagged!(10, operation),
            Operation::Stream(operation) => tagged!(11, operation),
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
            6 => Operation::Counter(counter::Operation::decode(input)?),
            7 => Operation::SummaryBag(summary::Operation::decode(input)?),
            8 => Operation::Top(top::Operation::decode(input)?),
            9 => Operation::UidGenerator(uid::Operation::decode(input)?),
            10 => Operation::User(user::Operation::decode(input)?),
            11 => Operation::Stream(stream::Operation::decode(input)?),
            _ => return Err(Malformed("operation tag")),
        })
    }
}
