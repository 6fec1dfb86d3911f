//! Every effect of every type, as one closed enum. The binary form is what journals and streams carry.

use crate::observation::Footprint;
use crate::{
    Kind, Mode, counter, dict, key, list, register, scored_set, set, stream, summary, top, uid, user,
};
use types::{Malformed, Reader, Wire};

/// The mutation that an operation commits.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect<'a> {
    /// On a key of any type.
    Key(key::Effect<'a>),
    /// On a register.
    Register(register::Effect<'a>),
    /// On a dict.
    Dict(dict::Effect<'a>),
    /// On a set.
    Set(set::Effect<'a>),
    /// On a scored set.
    ScoredSet(scored_set::Effect<'a>),
    /// On a list.
    List(list::Effect<'a>),
    /// On a counter.
    Counter(counter::Effect),
    /// On a summary bag.
    SummaryBag(summary::Effect),
    /// On a top.
    Top(top::Effect<'a>),
    /// On a generator of identifiers.
    UidGenerator(uid::Effect),
    /// On a stream.
    Stream(stream::Effect<'a>),
    /// On a value of a type that a user defined.
    User(user::Effect<'a>),
}

impl<'a> Effect<'a> {
    /// The deletion of the key: what expiry, DEL and the loss of a type come to.
    pub const DELETE: Effect<'static> = Effect::Key(key::Effect::Delete);

    /// The type it belongs to; `None` when it replaces or removes whatever is there.
    pub fn kind(&self) -> Option<Kind> {
        match self {
            Effect::Key(_) => None,
            Effect::Register(effect) => effect.kind(),
            Effect::Dict(_) => Some(Kind::Dict),
            Effect::Set(_) => Some(Kind::Set),
            Effect::ScoredSet(_) => Some(Kind::ScoredSet),
            Effect::List(_) => Some(Kind::List),
            Effect::Counter(_) => Some(Kind::Counter),
            Effect::SummaryBag(_) => Some(Kind::SummaryBag),
            Effect::Top(_) => Some(Kind::Top),
            Effect::UidGenerator(_) => Some(Kind::UidGenerator),
            Effect::Stream(_) => Some(Kind::Stream),
            Effect::User(effect) => Some(Kind::User(effect.of())),
        }
    }

    /// Which aspects of the state it may change.
    pub fn footprint(&self) -> Footprint<'_> {
        match self {
            Effect::Key(effect) => effect.footprint(),
            Effect::Register(effect) => effect.footprint(),
            Effect::Dict(effect) => effect.footprint(),
            Effect::Set(effect) => effect.footprint(),
            Effect::ScoredSet(effect) => effect.footprint(),
            Effect::List(effect) => effect.footprint(),
            Effect::Counter(effect) => effect.footprint(),
            Effect::SummaryBag(effect) => effect.footprint(),
            Effect::Top(effect) => effect.footprint(),
            Effect::UidGenerator(effect) => effect.footprint(),
            Effect::Stream(effect) => effect.footprint(),
            Effect::User(effect) => effect.footprint(),
        }
    }

    /// True if a key that was absent may exist after it.
    pub fn may_create(&self) -> bool {
        match self {
            Effect::Key(key::Effect::Delete | key::Effect::SetDeadline(_) | key::Effect::Resolve { .. }) => {
                false
            }
            Effect::Register(register::Effect::Delete) => false,
            Effect::Dict(dict::Effect::Remove { .. } | dict::Effect::SetDeadline { .. })
            | Effect::Set(set::Effect::Remove { .. })
            | Effect::ScoredSet(scored_set::Effect::Remove { .. }) => false,
            Effect::List(effect) => {
                matches!(effect, list::Effect::Push { .. } | list::Effect::InsertAt { .. })
            }
            Effect::Stream(effect) => effect.creates(),
            _ => true,
        }
    }

    /// True if a key that existed may be absent after it. A deadline does not remove: who finds that it has passed
    /// deletes (Corrections 69).
    pub fn may_remove(&self) -> bool {
        match self {
            Effect::Key(effect) => {
                !matches!(effect, key::Effect::SetDeadline(_) | key::Effect::Resolve { .. })
            }
            Effect::Register(register::Effect::Delete) => true,
            Effect::Dict(dict::Effect::Remove { .. })
            | Effect::Set(set::Effect::Remove { .. })
            | Effect::ScoredSet(scored_set::Effect::Remove { .. }) => true,
            Effect::List(effect) => matches!(
                effect,
                list::Effect::Pop { .. } | list::Effect::Keep { .. } | list::Effect::RemoveAt { .. }
            ),
            _ => false,
        }
    }

    /// The lock mode that it needs (Claret 5.1.1): effects in compatible modes always commute.
    pub fn mode(&self) -> Mode {
        match self {
            Effect::Register(register::Effect::Add { .. }) => Mode::Increment,
            Effect::Dict(dict::Effect::Add { .. }) => Mode::IncrementFields,
            Effect::Set(set::Effect::Add { .. }) => Mode::Add,
            Effect::Set(set::Effect::Remove { .. }) => Mode::Remove,
            Effect::Counter(counter::Effect::Add { .. }) => Mode::Count,
            Effect::SummaryBag(summary::Effect::Add { .. }) => Mode::Summarize,
            Effect::Top(top::Effect::Add { .. }) => Mode::Rank,
            Effect::UidGenerator(uid::Effect::Create) => Mode::Identify,
            Effect::User(effect) => effect.mode().map_or(Mode::Write, Mode::User),
            _ => Mode::Write,
        }
    }

    /// True when both orders leave equal states, whatever the state is and whatever other effects, each of which
    /// commutes with both, come between (Corrections 60 and 66).
    pub fn commutes_with(&self, other: &Effect<'_>) -> bool {
        match (self, other) {
            (Effect::Key(key::Effect::Resolve { .. }), _) | (_, Effect::Key(key::Effect::Resolve { .. })) => {
                true
            }
            (Effect::Key(a), Effect::Key(b)) => key::effects_commute(a, b),
            (Effect::Register(a), Effect::Register(b)) => register::effects_commute(a, b),
            (Effect::Dict(a), Effect::Dict(b)) => dict::effects_commute(a, b),
            (Effect::Set(a), Effect::Set(b)) => set::effects_commute(a, b),
            (Effect::ScoredSet(a), Effect::ScoredSet(b)) => scored_set::effects_commute(a, b),
            (Effect::List(a), Effect::List(b)) => list::effects_commute(a, b),
            (Effect::Counter(a), Effect::Counter(b)) => counter::effects_commute(a, b),
            (Effect::SummaryBag(a), Effect::SummaryBag(b)) => summary::effects_commute(a, b),
            (Effect::Top(a), Effect::Top(b)) => top::effects_commute(a, b),
            (Effect::UidGenerator(a), Effect::UidGenerator(b)) => uid::effects_commute(a, b),
            (Effect::Stream(a), Effect::Stream(b)) => stream::effects_commute(a, b),
            (Effect::User(a), Effect::User(b)) => user::effects_commute(a, b),
            _ => false,
        }
    }

    /// Appends the binary form.
    pub fn encode(&self, out: &mut Vec<u8>) {
        macro_rules! tagged {
            ($tag:literal, $effect:expr) => {{
                out.push($tag);
                $effect.encode(out);
            }};
        }
        match self {
            Effect::Key(effect) => tagged!(0, effect),
            Effect::Register(effect) => tagged!(1, effect),
            Effect::Dict(effect) => tagged!(2, effect),
            Effect::Set(effect) => tagged!(3, effect),
            Effect::ScoredSet(effect) => tagged!(4, effect),
            Effect::List(effect) => tagged!(5, effect),
            Effect::Counter(effect) => tagged!(6, effect),
            Effect::SummaryBag(effect) => tagged!(7, effect),
            Effect::Top(effect) => tagged!(8, effect),
            Effect::UidGenerator(effect) => tagged!(9, effect),
            Effect::User(effect) => tagged!(10, effect),
            Effect::Stream(effect) => tagged!(11, effect),
        }
    }

    /// Reads the binary form, borrowing byte strings from it.
    pub fn decode(input: &mut Reader<'a>) -> Result<Self, Malformed> {
        Ok(match input.byte()? {
            0 => Effect::Key(key::Effect::decode(input)?),
            1 => Effect::Register(register::Effect::decode(input)?),
            2 => Effect::Dict(dict::Effect::decode(input)?),
            3 => Effect::Set(set::Effect::decode(input)?),
            4 => Effect::ScoredSet(scored_set::Effect::decode(input)?),
            5 => Effect::List(list::Effect::decode(input)?),
            6 => Effect::Counter(counter::Effect::decode(input)?),
            7 => Effect::SummaryBag(summary::Effect::decode(input)?),
            8 => Effect::Top(top::Effect::decode(input)?),
            9 => Effect::UidGenerator(uid::Effect::decode(input)?),
            10 => Effect::User(user::Effect::decode(input)?),
            11 => Effect::Stream(stream::Effect::decode(input)?),
            _ => return Err(Malformed("effect tag")),
        })
    }
}
