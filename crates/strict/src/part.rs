//! What a transaction did on a shard: the invocations that replicas judge, keep and apply.

use crate::KeyedEffects;
use crate::validation::{Access, Observed, Stamp, Undecided, overwrites};
use datatypes::{Effect, Invocation, Kind, Observation, Operation};
use mvcc::CompactKey;
use std::sync::OnceLock;
use types::{Malformed, Reader, ReplyBuf, Wire, wire_struct};

/// One evaluated operation of a transaction on one key.
#[derive(Clone, Debug, PartialEq)]
pub struct Invoked {
    /// The key.
    pub key: CompactKey,
    /// The operation in its binary form, for what it observes, or one that observes as much as its reply revealed;
    /// `None` if nobody sees its result (blind).
    pub operation: Option<CompactKey>,
    /// The effect in its binary form, if it changes anything.
    pub effect: Option<Box<[u8]>>,
    /// The exact effects that its evaluation saw; `None` if it was not evaluated on a replica's state.
    pub observed: Option<Observed>,
}
wire_struct!(Invoked { key, operation, effect, observed });

impl Invoked {
    /// What it observes and changes.
    pub fn access(&self) -> Result<Access<'_>, Malformed> {
        let observation = match &self.operation {
            Some(bytes) => Operation::decode(&mut Reader::new(bytes))?.observation(),
            None => Observation::NOTHING,
        };
        Ok(Access {
            invocation: Invocation { observation, effect: self.effect()? },
            observed: self.observed.as_ref(),
        })
    }

    /// True if it was not evaluated, though it matters whether the key has expired (Corrections 69).
    pub fn ignores_expiry(&self) -> bool {
        let keeps = |effect: Option<Effect<'_>>| effect.is_some_and(|effect| !overwrites(&effect));
        self.observed.is_none() && self.effect().is_ok_and(keeps)
    }

    /// True if it depends on what others have put into the key whether that exists afterwards.
    fn takes(&self) -> bool {
        self.effect().map_or(true, |effect| effect.is_some_and(|effect| takes(&effect)))
    }

    /// What it changes.
    pub fn effect(&self) -> Result<Option<Effect<'_>>, Malformed> {
        self.effect.as_ref().map(|bytes| Effect::decode(&mut Reader::new(bytes))).transpose()
    }
}

/// What a transaction did with the keys of a shard as a whole (Corrections 78).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeysetAccess {
    /// What each look at which keys there are has seen: the exact effects that may have created or removed one.
    pub observed: Vec<Observed>,
    /// It deletes every key, after so many of the part's invocations and before the others.
    pub flushed_after: Option<u32>,
}
wire_struct!(KeysetAccess { observed, flushed_after });

/// A shard's part of a transaction, and who else takes part.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Part {
    /// Every participant shard; the replicas of the first are the backup coordinators, and its leader writes the decision.
    pub participants: Vec<u16>,
    /// The invocations on this shard's keys, in the order of the transaction.
    pub invocations: Vec<Invoked>,
    /// What it did with the shard's keys as a whole, if it did.
    pub keyset: Option<KeysetAccess>,
    /// Where each key is among the invocations.
    pub places: Places,
}
wire_struct!(Part { participants, invocations, keyset, places });

/// Of so many invocations those on a key are found by looking at each.
const FEW: usize = 16;

/// The invocations' places in the order of their keys: computed at the first use, once nothing is added any more, and
/// neither sent nor compared.
#[derive(Clone, Debug, Default)]
pub struct Places(OnceLock<Vec<u32>>);

impl PartialEq for Places {
    fn eq(&self, _: &Places) -> bool {
        true
    }
}

impl Wire for Places {
    fn encode(&self, _: &mut Vec<u8>) {}

    fn decode(_: &mut Reader<'_>) -> Result<Places, Malformed> {
        Ok(Places::default())
    }
}

impl Part {
    /// True if it deletes every key of the shard.
    pub fn flushes(&self) -> bool {
        self.keyset.as_ref().is_some_and(|keyset| keyset.flushed_after.is_some())
    }

    /// True if it looked at which keys there are, and depends on what it saw.
    pub fn looks(&self) -> bool {
        self.keyset.as_ref().is_some_and(|keyset| !keyset.observed.is_empty())
    }

    /// The keys of which it depends on what others have put into them whether they exist afterwards.
    pub fn taken_from(&self) -> impl Iterator<Item = &[u8]> {
        self.invocations.iter().filter(|invoked| invoked.takes()).map(|invoked| &*invoked.key)
    }

    /// True if the key is one of those.
    pub fn takes_from(&self, key: &[u8]) -> bool {
        self.on_key(key).any(Invoked::takes)
    }

    /// The invocations on a key, in order.
    pub fn on_key<'p>(&'p self, key: &'p [u8]) -> impl Iterator<Item = &'p Invoked> + Clone + use<'p> {
        let (all, places) = match self.invocations.len() <= FEW {
            true => (&self.invocations[..], &[][..]),
            false => (&[][..], self.places_of(key)),
        };
        let listed = all.iter().filter(move |invoked| *invoked.key == *key);
        listed.chain(places.iter().map(|place| &self.invocations[*place as usize]))
    }

    fn places_of(&self, key: &[u8]) -> &[u32] {
        let key_at = |place: &u32| &*self.invocations[*place as usize].key;
        let places = self.places.0.get_or_init(|| {
            let mut places: Vec<u32> = (0..self.invocations.len() as u32).collect();
            places.sort_by_key(key_at);
            places
        });
        let first = places.partition_point(|place| key_at(place) < key);
        let count = places[first..].partition_point(|place| key_at(place) == key);
        &places[first..first + count]
    }

    /// Everything that it observed.
    pub fn observations(&self) -> impl Iterator<Item = &Observed> {
        let looks = self.keyset.iter().flat_map(|keyset| &keyset.observed);
        self.invocations.iter().filter_map(|invoked| invoked.observed.as_ref()).chain(looks)
    }

    /// Its accesses to a key, while it is prepared at this stamp.
    pub fn undecided_on<'p>(
        &'p self,
        key: &'p [u8],
        stamp: Stamp,
    ) -> impl Iterator<Item = Undecided<'p>> + use<'p> {
        let on_key = self.on_key(key);
        let changes = on_key.clone().any(|invoked| invoked.effect.is_some());
        on_key.filter_map(move |invoked| Some(Undecided { stamp, changes, access: invoked.access().ok()? }))
    }

    /// Its effects, in order; one without bytes, on a key without bytes, deletes every key of the shard.
    pub fn effects(&self) -> KeyedEffects {
        let flushed_after = self.keyset.as_ref().and_then(|keyset| keyset.flushed_after);
        let mut effects = Vec::new();
        for (index, invoked) in self.invocations.iter().enumerate() {
            if flushed_after == Some(index as u32) {
                effects.push(Default::default());
            }
            effects.extend(invoked.effect.clone().map(|effect| ((*invoked.key).into(), effect)));
        }
        if flushed_after.is_some_and(|after| after as usize >= self.invocations.len()) {
            effects.push(Default::default());
        }
        effects
    }
}

/// True if whether a key exists after an effect depends on how much was there before.
pub(crate) fn takes(effect: &Effect<'_>) -> bool {
    effect.may_remove() && !overwrites(effect)
}

/// The types of the effects that a transaction has on a key without having observed the key.
///
/// A later step of the transaction sees the key with these effects on it. Whether an effect does anything depends on the
/// key's type: `BLIND APPEND k x` makes a string of an absent key and leaves a set alone. Concurrent effects of the
/// step's own type decide of which type the key is, and so whether an effect of another type does anything. Therefore
/// a step behind an effect of another type observes the whole key, whatever its operation observes by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) enum Unobserved {
    /// There is none, or one of the transaction's own effects leaves nothing of what was there.
    #[default]
    Nothing,
    /// All are of this type.
    Of(Kind),
    /// They are of several types, or of any type.
    Mixed,
}

impl Unobserved {
    /// With one more effect behind them, which observed something or not.
    pub fn then(self, effect: &Effect<'_>, is_observed: bool) -> Self {
        match (self, effect.kind()) {
            _ if overwrites(effect) => Unobserved::Nothing,
            _ if is_observed => self,
            (Unobserved::Nothing, Some(kind)) => Unobserved::Of(kind),
            (Unobserved::Of(only), Some(kind)) if only == kind => self,
            _ => Unobserved::Mixed,
        }
    }

    /// True if an operation behind them observes the whole key, whatever it observes by itself. One of a user-defined type
    /// always does: its module says what changes a result in a state, which here is one with these effects on it.
    pub fn widens(self, operation: &Operation<'_>) -> bool {
        let observation = operation.observation();
        match self {
            Unobserved::Nothing => false,
            _ if matches!(operation, Operation::User(_)) => true,
            Unobserved::Of(kind) => !observation.is_nothing() && observation.kind != Some(kind),
            Unobserved::Mixed => !observation.is_nothing(),
        }
    }
}

/// Most operations and effects are not longer in their binary form.
pub(crate) const USUAL_BYTES: usize = 96;

/// The binary form of an effect.
pub(crate) fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(USUAL_BYTES);
    effect.encode(&mut bytes);
    bytes.into()
}

/// The binary form of an operation that observes no more than the reply revealed, where that is less.
pub(crate) fn narrowed(operation: &Operation<'_>, reply: &ReplyBuf) -> Option<CompactKey> {
    let mut bytes = Vec::new();
    operation.narrowed(reply)?.encode(&mut bytes);
    Some(bytes.into())
}
