//! Commutativity of invocations (Claret 5.1, table 2), in one rule for all types.
//!
//! An invocation observes some aspects of the state and may change some. Two invocations commute when
//!
//! 1. their effects commute with each other, and
//! 2. neither effect changes an aspect that the other invocation observed.
//!
//! A blind invocation observes nothing. A type says only which aspects its operations observe, which its effects
//! change, and which effects commute; the rule is checked against executions in both orders by property tests.

use crate::{Cell, Effect, Items, Kind, Mode, Operation, user};

/// A part of a key's state that a result can reveal or an effect can change.
#[derive(Clone, Debug, PartialEq)]
pub enum Aspect<'a> {
    /// Whether the key exists.
    Existence,
    /// How many elements a collection has, or the length of a register.
    Size,
    /// These elements: fields, members. Their presence and their value.
    Elements(Items<'a>),
    /// When it expires.
    Expiry,
    /// A sum, upwards: seen by whoever saw it below a bound.
    Rise,
    /// A sum, downwards: seen by whoever saw it reach a bound.
    Fall,
    /// The order of scored members down to this one: seen by whoever saw the highest, as many as were requested.
    DownTo {
        /// The score.
        score: f64,
        /// The member.
        member: &'a [u8],
    },
    /// Members that were added with scores, this one at most.
    UpTo {
        /// The score.
        score: f64,
        /// The member.
        member: &'a [u8],
    },
    /// What a call of a user-defined type saw, which its module knows.
    Invoked(user::Operation<'a>),
    /// Everything.
    Whole,
}

impl Aspect<'_> {
    /// True when a change of `self` may change what `other` shows.
    fn touches(&self, other: &Aspect<'_>) -> bool {
        match (self, other) {
            (Aspect::Whole, _) | (_, Aspect::Whole) => true,
            (Aspect::Elements(a), Aspect::Elements(b)) => a.intersects(b),
            // At the last member itself too: a read of the order down to it need not have seen that it is there.
            (Aspect::UpTo { score: added, member: by }, Aspect::DownTo { score: lowest, member: last }) => {
                (added, by) >= (lowest, last)
            }
            (a, b) => std::mem::discriminant(a) == std::mem::discriminant(b),
        }
    }
}

/// What an effect may change: a few aspects of a value of one type.
#[derive(Clone, Debug, PartialEq)]
pub struct Footprint<'a> {
    /// The aspects.
    pub aspects: smallvec::SmallVec<[Aspect<'a>; 3]>,
}

impl<'a> Footprint<'a> {
    /// Everything.
    pub fn whole() -> Self {
        Footprint { aspects: smallvec::smallvec![Aspect::Whole] }
    }

    /// These elements of a collection, whose size and existence change with them.
    pub fn elements(items: Items<'a>) -> Self {
        Footprint { aspects: smallvec::smallvec![Aspect::Existence, Aspect::Size, Aspect::Elements(items)] }
    }
}

/// What an operation's result and the choice of its effect reveal of the state, at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation<'a> {
    /// The type that the operation requires: a result reveals that the key holds it or nothing (or the refusal reveals
    /// that it does not). `None` when the operation takes any type.
    pub kind: Option<Kind>,
    /// The aspect; `None` when the result reveals nothing but, where `kind` is given, the type.
    pub aspect: Option<Aspect<'a>>,
}

impl<'a> Observation<'a> {
    /// Nothing is revealed: what `BLIND` leaves of an operation.
    pub const NOTHING: Observation<'static> = Observation { kind: None, aspect: None };

    /// An aspect of a key of any type.
    pub fn any(aspect: Aspect<'a>) -> Self {
        Observation { kind: None, aspect: Some(aspect) }
    }

    /// An aspect of a key of this type.
    pub fn of(kind: Kind, aspect: Aspect<'a>) -> Self {
        Observation { kind: Some(kind), aspect: Some(aspect) }
    }

    /// Only that the key holds this type or nothing: an unconditional write that the type check may refuse.
    pub fn only_kind(kind: Kind) -> Self {
        Observation { kind: Some(kind), aspect: None }
    }

    /// True when it reveals nothing.
    pub fn is_nothing(&self) -> bool {
        self.kind.is_none() && self.aspect.is_none()
    }

    /// The lock mode that protects it; `None` for nothing.
    pub fn mode(&self) -> Option<Mode> {
        match &self.aspect {
            Some(Aspect::Invoked(call)) => Some(call.mode().map_or(Mode::Observe, Mode::User)),
            _ => (!self.is_nothing()).then_some(Mode::Observe),
        }
    }

    /// True when the result that revealed this would be the same after `effect`.
    pub fn unchanged_by(&self, effect: &Effect<'_>) -> bool {
        if self.kind.is_some() && self.kind != effect.kind() {
            return false;
        }
        let Some(aspect) = &self.aspect else { return true };
        if let Aspect::Invoked(call) = aspect {
            return call.unchanged_by(effect);
        }
        !effect.footprint().aspects.iter().any(|changed| changed.touches(aspect))
    }
}

/// An operation that was evaluated: what it observed and what it changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Invocation<'a> {
    /// What its result revealed.
    pub observation: Observation<'a>,
    /// What it commits.
    pub effect: Option<Effect<'a>>,
}

impl<'a> Invocation<'a> {
    /// An operation whose result is seen, with the effect that `prepare` returned.
    pub fn observed(operation: &Operation<'a>, effect: Option<Effect<'a>>) -> Self {
        Invocation { observation: operation.observation(), effect }
    }

    /// An effect whose result nobody sees.
    pub fn blind(effect: Effect<'a>) -> Self {
        Invocation { observation: Observation::NOTHING, effect: Some(effect) }
    }

    /// True when it observed at most the type that its own effect has: nothing in a mode that the effect's is compatible
    /// with changes that, so the effect's mode is all that others need to know of it.
    pub fn is_effect_only(&self) -> bool {
        let kind = self.effect.as_ref().map(Effect::kind);
        self.observation.aspect.is_none() && self.observation.kind.is_none_or(|it| kind == Some(Some(it)))
    }

    /// The lock mode it needs; `None` if it neither observes nor changes anything.
    pub fn mode(&self) -> Option<Mode> {
        let Some(effect) = &self.effect else { return self.observation.mode() };
        let changes = effect.mode();
        // A user-defined operation's mode says of what it sees and of what it does that others may do as much.
        let both = |seen: Mode| if seen == changes { changes } else { Mode::Write };
        match self.observation.mode() {
            Some(seen) if !self.is_effect_only() => Some(both(seen)),
            _ => Some(changes),
        }
    }

    /// The mode in which it stands in the way of what others change; `None` if they need only know its effect.
    pub fn observed_mode(&self) -> Option<Mode> {
        self.observation.mode().filter(|_| !self.is_effect_only())
    }
}

/// True when executing `a` and `b` in either order gives the same results and equal states. Without `state`
/// the answer holds in every state and jointly (Corrections 66); with the committed state, which only the owner
/// of a key may pass, disjoint insertions and removals commute too while the key has no deadline.
pub fn commutes(a: &Invocation<'_>, b: &Invocation<'_>, state: Option<&Cell>) -> bool {
    let effects = match (&a.effect, &b.effect) {
        (Some(x), Some(y)) => {
            x.commutes_with(y) || state.is_some_and(|cell| disjoint_without_deadline(x, y, cell))
        }
        _ => true,
    };
    effects
        && b.effect.as_ref().is_none_or(|effect| a.observation.unchanged_by(effect))
        && a.effect.as_ref().is_none_or(|effect| b.observation.unchanged_by(effect))
}

/// An insertion beside a removal of other elements: they commute unless the removal may empty the collection
/// first and so drop a deadline that would have outlived the insertion.
fn disjoint_without_deadline(a: &Effect<'_>, b: &Effect<'_>, cell: &Cell) -> bool {
    let elements = |effect: &Effect<'_>, other: &Effect<'_>| {
        let mine = effect.footprint().aspects;
        let theirs = other.footprint().aspects;
        let only = |aspects: &[Aspect<'_>]| {
            aspects.iter().any(|a| matches!(a, Aspect::Elements(_))) && !aspects.contains(&Aspect::Whole)
        };
        only(&mine)
            && only(&theirs)
            && !mine.iter().any(|x| {
                matches!(x, Aspect::Elements(_))
                    && theirs.iter().any(|y| matches!(y, Aspect::Elements(_)) && x.touches(y))
            })
    };
    cell.expires_at == 0 && a.kind().is_some() && a.kind() == b.kind() && elements(a, b)
}
