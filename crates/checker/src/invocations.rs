//! Transactions decoded: operations and effects borrowed from the history's binary forms.

use crate::history::{Outcome, Transaction};
use crate::report::{Check, Findings};
use crate::revealed::revealed;
use datatypes::{Effect, Invocation, Observation, Operation, commutes, key};
use std::collections::{BTreeMap, BTreeSet};
use types::Reader;

/// A step, decoded.
pub(crate) struct DecodedStep<'h> {
    pub key: &'h [u8],
    pub operation: Operation<'h>,
    /// What the client saw and is to be explained.
    pub observed: Option<&'h str>,
}

/// A transaction whose effects are in force, decoded.
pub(crate) struct Decoded<'h> {
    pub transaction: &'h Transaction,
    pub steps: Vec<DecodedStep<'h>>,
    pub effects: Vec<(&'h [u8], Effect<'h>)>,
}

impl<'h> Decoded<'h> {
    pub fn number(&self) -> u64 {
        self.transaction.number
    }

    /// `None` when a binary form is malformed.
    pub fn new(transaction: &'h Transaction) -> Option<Self> {
        let seen = transaction.outcome == Outcome::Committed;
        let step = |step: &'h crate::history::Step| {
            let operation = Operation::decode(&mut Reader::new(&step.operation.0)).ok()?;
            // How many losses were settled, the states do not tell.
            let settles = matches!(operation, Operation::Key(key::Operation::Resolve { .. }));
            let observed = step.reply.as_deref().filter(|_| seen && !step.blind && !settles);
            Some(DecodedStep { key: &step.key.0, operation, observed })
        };
        let effect = |(key, bytes): &'h (crate::history::Key, crate::history::Bytes)| {
            Some((key.0.as_slice(), Effect::decode(&mut Reader::new(&bytes.0)).ok()?))
        };
        Some(Decoded {
            transaction,
            steps: transaction.steps.iter().map(step).collect::<Option<_>>()?,
            effects: transaction
                .claim
                .iter()
                .flat_map(|claim| &claim.effects)
                .map(effect)
                .collect::<Option<_>>()?,
        })
    }

    /// The keys that it names, and those that it claims to have changed.
    pub fn keys(&self) -> BTreeSet<&'h [u8]> {
        let of_steps = self.steps.iter().map(|step| step.key);
        of_steps.chain(self.effects.iter().map(|(key, _)| *key)).collect()
    }

    /// What it observed and changed, key by key. A blind operation that claims no effect has found nothing to do: that
    /// was observed, though no client saw it.
    pub fn by_key(&self) -> BTreeMap<&'h [u8], Vec<Invocation<'_>>> {
        let mut keys: BTreeMap<&'h [u8], Vec<Invocation<'_>>> = BTreeMap::new();
        let idle = |step: &&DecodedStep<'_>| self.effects.iter().all(|(key, _)| *key != step.key);
        for step in self.steps.iter().filter(|step| step.observed.is_some() || idle(step)) {
            let observation = revealed(step);
            if observation != Observation::NOTHING {
                keys.entry(step.key).or_default().push(Invocation { observation, effect: None });
            }
        }
        for (key, effect) in &self.effects {
            keys.entry(key).or_default().push(Invocation::blind(effect.clone()));
        }
        keys
    }
}

/// True when some pair of the two transactions' invocations on a key does not commute in every state.
pub(crate) fn conflict(a: &[Invocation<'_>], b: &[Invocation<'_>]) -> bool {
    a.iter().any(|x| b.iter().any(|y| !commutes(x, y, None)))
}

/// Decodes what is in force; malformed forms and claims that contradict the clients are reported.
pub(crate) fn decode_all<'h>(history: &'h [Transaction], findings: &mut Findings) -> Vec<Decoded<'h>> {
    let mut decoded = Vec::new();
    for transaction in history {
        if transaction.outcome == Outcome::Aborted && transaction.place().is_some() {
            let message =
                format!("transaction {} was answered as aborted, but committed", transaction.number);
            findings.add(Check::Claims, message, vec![transaction.number]);
        }
        if !transaction.took_effect() {
            continue;
        }
        match Decoded::new(transaction) {
            Some(transaction) => decoded.push(transaction),
            None => {
                let message =
                    format!("transaction {} has a malformed operation or effect", transaction.number);
                findings.add(Check::Claims, message, vec![transaction.number]);
            }
        }
    }
    decoded
}
