//! Commands on the whole keyspace, in plans and in histories. A plan holds them as steps without a key, whose binary
//! form no operation has. Checkers know operations on keys only, and need no more: the keys of a run are few and known,
//! so that in the history KEYS becomes EXISTS of every key, and FLUSHDB becomes DEL of every key. The workload sends
//! DBSIZE only together with KEYS, and the count must match that list.

use crate::workload::Workload;
use checker::{Bytes, Check, Key, Outcome, Step, Transaction, Violation};
use datatypes::{Effect, Operation, key};
use types::{HashSeed, PartitionId};

/// What no operation's binary form begins with.
const MARK: u8 = u8::MAX;

/// A command on the whole keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysetStep {
    Keys,
    Count,
    Flush,
}

impl KeysetStep {
    /// The step of a plan.
    pub fn step(self) -> Step {
        let text = format!("{self:?}").to_uppercase();
        let operation = Bytes(vec![MARK, self as u8]);
        Step { key: Key(Vec::new()), operation, text, blind: false, reply: None, state: None }
    }

    /// What a step of a plan asks for, if it is on the whole keyspace.
    pub fn of(step: &Step) -> Option<Self> {
        match step.operation.0[..] {
            [MARK, 0] => Some(KeysetStep::Keys),
            [MARK, 1] => Some(KeysetStep::Count),
            [MARK, 2] => Some(KeysetStep::Flush),
            _ => None,
        }
    }

    pub fn as_step(self) -> protocol::Step<'static> {
        match self {
            KeysetStep::Keys => protocol::Step::Keys,
            KeysetStep::Count => protocol::Step::Count,
            KeysetStep::Flush => protocol::Step::Flush,
        }
    }
}

/// The keys of a run, to tell what was done to all of them one by one.
#[derive(Debug, Default)]
pub(crate) struct KnownKeys {
    /// Each key, and whether it exists until a client deletes it.
    keys: Vec<(Vec<u8>, bool)>,
    seed: HashSeed,
    partitions: u16,
}

impl KnownKeys {
    pub fn new(workload: &Workload, seed: HashSeed, partitions: u16) -> Self {
        KnownKeys { keys: workload.known_keys(), seed, partitions }
    }

    /// Puts the deletion of every key, or of those of a partition, in the place of what stands for it in a claim.
    pub fn expand_claim(&self, claim: &mut protocol::Claim, partition: Option<PartitionId>) {
        if claim.effects.iter().all(|(_, effect)| !effect.is_empty()) {
            return;
        }
        let here = |key: &[u8]| {
            partition.is_none_or(|partition| self.seed.hash(key).share(self.partitions.max(1)) == partition.0)
        };
        let mut deletion = Vec::new();
        Effect::DELETE.encode(&mut deletion);
        let every = self.keys.iter().filter(|(key, _)| here(key));
        let every: Vec<protocol::KeyEffect> =
            every.map(|(key, _)| (key.clone().into(), deletion.clone().into())).collect();
        let effects = std::mem::take(&mut claim.effects);
        claim.effects = effects
            .into_iter()
            .flat_map(|(key, effect)| if effect.is_empty() { every.clone() } else { vec![(key, effect)] })
            .collect();
    }

    /// Tells a transaction's steps on the whole keyspace key by key.
    pub fn expand_steps(&self, transaction: &mut Transaction, violations: &mut Vec<Violation>) {
        if transaction.steps.iter().all(|step| KeysetStep::of(step).is_none()) {
            return;
        }
        let steps = std::mem::take(&mut transaction.steps);
        let mut counted: Option<String> = None;
        for step in steps {
            match KeysetStep::of(&step) {
                None => transaction.steps.push(step),
                Some(KeysetStep::Count) => counted = step.reply,
                Some(KeysetStep::Flush) => transaction.steps.extend(self.deletions(step.reply.is_some())),
                Some(KeysetStep::Keys) => {
                    let listed = self.listed(&step);
                    let seen = listed.iter().flatten().filter(|exists| **exists).count();
                    let number = format!("(integer) {seen}");
                    // A key that is found expired in between is deleted in between.
                    let all_last = self.keys.iter().all(|(_, lasts)| *lasts);
                    if let (Some(counted), Outcome::Committed) = (counted.take(), transaction.outcome)
                        && all_last
                        && counted != number
                    {
                        let message = format!(
                            "transaction {} counted {counted} keys and listed {seen}: {}",
                            transaction.number,
                            step.reply.as_deref().unwrap_or("nothing")
                        );
                        let transactions = vec![transaction.number];
                        violations.push(Violation { check: Check::Replies, message, transactions });
                    }
                    transaction.steps.extend(self.existences(listed.as_deref()));
                }
            }
        }
    }

    /// Which of the keys a reply lists.
    fn listed(&self, step: &Step) -> Option<Vec<bool>> {
        let reply = step.reply.as_deref()?;
        let quoted = |key: &[u8]| format!("\"{}\"", key.escape_ascii());
        Some(self.keys.iter().map(|(key, _)| reply.contains(&quoted(key))).collect())
    }

    /// Whether a key with a deadline is listed depends on who has met it, so the history leaves that out.
    fn existences(&self, listed: Option<&[bool]>) -> Vec<Step> {
        let exists = |index: usize| listed.map(|listed| format!("(integer) {}", u8::from(listed[index])));
        let lasting = self.keys.iter().enumerate().filter(|(_, (_, lasts))| *lasts);
        lasting.map(|(index, (key, _))| on_key(key, key::Operation::Exists, exists(index), false)).collect()
    }

    fn deletions(&self, replied: bool) -> Vec<Step> {
        let reply = || replied.then(|| "OK".to_owned());
        self.keys.iter().map(|(key, _)| on_key(key, key::Operation::Delete, reply(), true)).collect()
    }
}

fn on_key(key: &[u8], operation: key::Operation<'_>, reply: Option<String>, blind: bool) -> Step {
    let operation = Operation::Key(operation);
    let text = checker::describe(&operation);
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    Step { key: Key(key.to_vec()), operation: Bytes(bytes), text, blind, reply, state: None }
}
