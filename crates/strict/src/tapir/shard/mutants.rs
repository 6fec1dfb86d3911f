//! A known bug to build in: bounded subtractions that are validated by their bounds, not by whether they commute.
//!
//! Each pair of them may fit where three do not, and quorums meet in pairs only (Corrections 66). So the rule is that a
//! bounded subtraction that has succeeded observes that the sum does not fall.

use super::Shard;
use crate::Mutant;
use crate::part::Part;
use datatypes::{Effect, Operation, Value, counter};
use types::{Reader, TransactionId};

/// A bounded subtraction that has succeeded: the least sum that lets it, and what it adds.
#[derive(Clone, Copy, Debug)]
pub(super) struct BoundedSubtraction {
    bound: i64,
    by: i64,
}

impl BoundedSubtraction {
    /// What a part does to a key, if that is one bounded subtraction and nothing else.
    fn of(part: &Part, key: &[u8]) -> Option<BoundedSubtraction> {
        let mut on_key = part.on_key(key);
        let only = on_key.next().filter(|_| on_key.next().is_none())?;
        let operation = Operation::decode(&mut Reader::new(only.operation.as_ref()?)).ok()?;
        match (operation, only.effect().ok()??) {
            (
                Operation::Counter(counter::Operation::AtLeast { bound, known: Some(true) }),
                Effect::Counter(counter::Effect::Add { by }),
            ) => Some(BoundedSubtraction { bound, by }),
            _ => None,
        }
    }

    /// True if either may come first.
    fn fits_with(self, other: BoundedSubtraction, sum: i128) -> bool {
        let after = |first: BoundedSubtraction, second: BoundedSubtraction| {
            sum + i128::from(first.by) >= i128::from(second.bound)
        };
        after(self, other) && after(other, self)
    }
}

impl Shard {
    /// With the bug: the part's bounded subtraction of a key.
    pub(super) fn bounded(&self, part: &Part, key: &[u8]) -> Option<BoundedSubtraction> {
        self.mutants.has(Mutant::PairwiseBounds).then(|| BoundedSubtraction::of(part, key)).flatten()
    }

    /// True if a prepared subtraction and this one fit together.
    pub(super) fn fits_with_prepared(
        &self,
        take: BoundedSubtraction,
        other: TransactionId,
        key: &[u8],
    ) -> bool {
        let other =
            self.prepared.get(&other).and_then(|prepared| BoundedSubtraction::of(&prepared.part, key));
        other.is_some_and(|other| take.fits_with(other, self.sum(key)))
    }

    /// True if a missed effect is a subtraction that leaves enough for this one.
    pub(super) fn fits_after(&self, take: BoundedSubtraction, effect: &Effect<'_>, key: &[u8]) -> bool {
        matches!(effect, Effect::Counter(_)) && self.sum(key) >= i128::from(take.bound)
    }

    fn sum(&self, key: &[u8]) -> i128 {
        match &self.store.cell(self.store.hash(key), key, 0).value {
            Some(Value::Counter(counter)) => counter.sum(),
            _ => 0,
        }
    }
}
