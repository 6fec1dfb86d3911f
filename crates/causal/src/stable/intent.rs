//! Write intents: what a transaction does to a key at a participant, and when two of one region conflict.
//!
//! The rule for read-modify-write (Corrections 70): a write whose result is observed, or whose effect depends on the
//! state, is evaluated at the partition's primary in the region. From its `Prepare` to its decision no operation that
//! does not commute with it may prepare on the key, and it may not prepare while an undecided operation does not
//! commute with it. Blind writes never conflict: their places order them. Other regions take no part: exclusion holds
//! in one region only.

use datatypes::{Aspect, Effect, Invocation, Observation, Operation, commutes};
use types::{Reader, wire_struct};

/// What one transaction does to one key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WriteIntent {
    /// The key.
    pub key: Box<[u8]>,
    /// What it does, in order.
    pub operations: Vec<PreparedOperation>,
}
wire_struct!(WriteIntent { key, operations });

/// One thing that a transaction does to a key.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PreparedOperation {
    /// The binary form of the operation, if its result or its effect depends on the state.
    pub operation: Option<Box<[u8]>>,
    /// True if the whole key is observed: it is watched.
    pub whole: bool,
    /// The binary forms of the effects.
    pub effects: Vec<Box<[u8]>>,
}
wire_struct!(PreparedOperation { operation, whole, effects });

/// An effect's binary form, read. Messages and records are checked where they arrive.
pub(crate) fn effect(bytes: &[u8]) -> Option<Effect<'_>> {
    Effect::decode(&mut Reader::new(bytes)).ok()
}

/// An effect's binary form.
pub(crate) fn encoded(effect: &Effect<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes.into()
}

impl PreparedOperation {
    /// A write that depends on no state.
    pub(super) fn blind(effect: Box<[u8]>) -> Self {
        PreparedOperation { operation: None, whole: false, effects: vec![effect] }
    }

    fn is_observing(&self) -> bool {
        self.whole || self.operation.is_some()
    }

    fn invocations(&self) -> Vec<Invocation<'_>> {
        let operation =
            self.operation.as_ref().and_then(|bytes| Operation::decode(&mut Reader::new(bytes)).ok());
        let observation = match operation {
            _ if self.whole => Observation::any(Aspect::Whole),
            Some(operation) => operation.observation(),
            None => Observation::NOTHING,
        };
        let observed = Invocation { observation, effect: None };
        let effects = self.effects.iter().filter_map(|bytes| effect(bytes)).map(Invocation::blind);
        std::iter::once(observed).chain(effects).collect()
    }

    /// True if an effect that came between leaves the result and the effects what they were.
    pub(super) fn withstands(&self, foreign: &Effect<'_>) -> bool {
        let foreign = Invocation::blind(foreign.clone());
        self.invocations().iter().all(|mine| commutes(mine, &foreign, None))
    }

    fn is_in_the_way_of(&self, other: &PreparedOperation) -> bool {
        if !self.is_observing() && !other.is_observing() {
            return false;
        }
        let theirs = other.invocations();
        self.invocations().iter().any(|mine| theirs.iter().any(|other| !commutes(mine, other, None)))
    }
}

impl WriteIntent {
    /// True when two intents on the same key conflict: they may not be undecided together.
    pub(super) fn is_in_the_way_of(&self, other: &WriteIntent) -> bool {
        self.operations
            .iter()
            .any(|mine| other.operations.iter().any(|prepared| mine.is_in_the_way_of(prepared)))
    }

    /// Its effects, in order.
    pub(super) fn effects(&self) -> impl Iterator<Item = &Box<[u8]>> {
        self.operations.iter().flat_map(|prepared| &prepared.effects)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::register;

    fn prepared(
        operation: Option<register::Operation<'_>>,
        effect: register::Effect<'_>,
    ) -> PreparedOperation {
        let operation = operation.map(|operation| {
            let mut bytes = Vec::new();
            Operation::Register(operation).encode(&mut bytes);
            bytes.into()
        });
        PreparedOperation { operation, whole: false, effects: vec![encoded(&Effect::Register(effect))] }
    }

    fn intent(prepared: PreparedOperation) -> WriteIntent {
        WriteIntent { key: b"k".to_vec().into(), operations: vec![prepared] }
    }

    #[test]
    fn blind_writes_are_never_in_each_others_way() {
        let set = |value| {
            let deadline = register::Deadline::Clear;
            intent(prepared(None, register::Effect::Set { value, deadline }))
        };
        assert!(!set(b"a").is_in_the_way_of(&set(b"b")));
    }

    #[test]
    fn an_observed_increment_keeps_others_away_and_a_blind_one_does_not() {
        let observed =
            intent(prepared(Some(register::Operation::Increment { by: 1 }), register::Effect::Add { by: 1 }));
        let blind = intent(prepared(None, register::Effect::Add { by: 1 }));
        assert!(observed.is_in_the_way_of(&blind) && blind.is_in_the_way_of(&observed));
        assert!(observed.is_in_the_way_of(&observed));
        assert!(!blind.is_in_the_way_of(&blind));
    }

    #[test]
    fn a_watched_key_is_observed_as_a_whole() {
        let watched = intent(PreparedOperation { whole: true, ..PreparedOperation::default() });
        let blind = intent(prepared(None, register::Effect::Add { by: 1 }));
        assert!(watched.is_in_the_way_of(&blind));
        assert!(!watched.is_in_the_way_of(&watched), "two who only watch do not meet");
    }
}
