//! What transactions read of a key, and which effects their observed sets name.

use super::Shard;
use crate::Mutant;
use crate::part::{Invoked, encoded};
use crate::tapir::message::{Evaluation, Reading};
use crate::validation::{Access, Observed, Stamp};
use datatypes::{Cell, Context, Effect, Operation, apply, prepare};
use mvcc::CompactKey;
use smallvec::SmallVec;
use types::{KeyHash, Malformed, Reader, ReplyBuf, Rng, TransactionId};

/// A read to evaluate.
pub(in crate::tapir) struct Question<'q> {
    pub transaction: TransactionId,
    pub key: &'q [u8],
    pub operation: &'q [u8],
    pub own: &'q [Box<[u8]>],
    pub now_millis: u64,
}

impl Shard {
    /// Evaluates an operation on the newest state and the asker's own effects, and others each behind those before it.
    pub(in crate::tapir) fn read<'q>(
        &mut self,
        question: &Question<'q>,
        then: impl Iterator<Item = &'q CompactKey>,
        random: &mut Rng,
    ) -> Result<SmallVec<[Evaluation; 1]>, Malformed> {
        let (key, now_millis) = (question.key, question.now_millis);
        let hash = self.store.hash(key);
        let operations = std::iter::once(question.operation).chain(then.map(|operation| &**operation));
        let decoded = operations.map(|bytes| Operation::decode(&mut Reader::new(bytes)));
        let operations: SmallVec<[Operation<'q>; 1]> = decoded.collect::<Result<_, _>>()?;
        let decoded = question.own.iter().map(|bytes| Effect::decode(&mut Reader::new(bytes)));
        let mut own: Vec<Effect<'_>> = decoded.collect::<Result<_, _>>()?;
        let stored = self.store.cell(hash, key, 0);
        let (expiry, expires_at) = (stored.expiry(now_millis), stored.living(now_millis).next_deadline(0));
        if let Some(expiry) = &expiry
            && own.first() != Some(expiry)
        {
            own.insert(0, expiry.clone());
        }
        self.store.touch(hash, now_millis);
        let observed = self.observed(hash, key);
        let expiry = expiry.filter(|_| !self.mutants.has(Mutant::ExpiryIsNoWrite)).as_ref().map(encoded);
        let is_flushing = self.is_flushing_for(question);
        let mut evaluated: SmallVec<[Evaluation; 1]> = SmallVec::with_capacity(operations.len());
        let mut evaluate = |operation: &Operation<'q>, cell: &Cell, random: &mut Rng| {
            let mut result = ReplyBuf::new();
            // What the operation finds alive, perhaps by an own effect, must be alive when it commits.
            let cell = cell.living(now_millis);
            let alive = [expires_at, cell.next_deadline(0)].into_iter().filter(|at| *at != 0).min();
            let effect =
                prepare(&cell, operation, &mut Context { now_millis, random, site: None }, &mut result);
            let (observed, expires_at, pending) = (observed.clone(), alive.unwrap_or(0), is_flushing);
            let (bytes, expiry) = (effect.as_ref().map(encoded), expiry.clone());
            evaluated.push(Evaluation { result, effect: bytes, observed, expiry, expires_at, pending });
            effect
        };
        match operations.as_slice() {
            [only] if own.is_empty() => drop(evaluate(only, self.store.cell(hash, key, 0), random)),
            [only] => {
                self.store.with_state(hash, key, |_| true, &own, |cell| drop(evaluate(only, cell, random)));
            }
            _ => {
                let mut state = self.store.with_state(hash, key, |_| true, &own, Cell::clone);
                for operation in &operations {
                    if let Some(effect) = evaluate(operation, &state, random) {
                        apply::<false>(&mut state, &effect);
                    }
                }
            }
        }
        for (operation, evaluation) in operations.iter().zip(&mut evaluated) {
            let invocation = datatypes::Invocation::observed(operation, None);
            let look = Access { invocation, observed: Some(&evaluation.observed) };
            evaluation.pending |= self
                .prepared_on(key, question.transaction)
                .any(|undecided| undecided.is_in_the_way_of(&look));
        }
        Ok(evaluated)
    }

    /// The effects on a key that are held here.
    fn observed(&self, hash: KeyHash, key: &[u8]) -> Observed {
        let closed = self.keys.get(key).map_or(Stamp::ZERO, |state| state.closed).max(self.closed);
        let closed = closed.max(self.keyset.flushed());
        let newest = self.newest_effect(hash, key);
        let closed = if self.mutants.has(Mutant::ObservedByMaximum) { closed.max(newest) } else { closed };
        let newer = (newest > closed).then(|| self.store.effects(hash, key).rev().map(|(stamp, _)| stamp));
        Observed::new(closed, newer.into_iter().flatten().take_while(|stamp| *stamp > closed))
    }

    /// The transaction prepared here that would change what a reading sees. Nothing if there are several: they do not
    /// conflict with one another, and there will be others when they have ended.
    pub(in crate::tapir) fn in_the_way_of(
        &self,
        asker: TransactionId,
        reading: &Reading,
    ) -> Option<TransactionId> {
        let mut others = self.prepared_on(&reading.key, asker).peekable();
        others.peek()?;
        let operation = Operation::decode(&mut Reader::new(&reading.operation)).ok()?;
        // No transaction has seen prepared effects.
        let unseen = Observed::new(Stamp::ZERO, []);
        let look =
            Access { invocation: datatypes::Invocation::observed(&operation, None), observed: Some(&unseen) };
        let others = others.filter(|other| other.is_in_the_way_of(&look));
        let mut others = others.map(|other| other.stamp.transaction);
        let only = others.next()?;
        others.all(|other| other == only).then_some(only)
    }

    /// True if it has observed all effects on its key that are here.
    pub(super) fn is_complete(&self, invoked: &Invoked) -> bool {
        let Some(observed) = &invoked.observed else { return false };
        let effects = self.store.effects(self.store.hash(&invoked.key), &invoked.key).rev();
        effects
            .map(|(stamp, _)| stamp)
            .take_while(|stamp| *stamp > observed.base())
            .all(|it| observed.contains(it))
    }
}
