//! The steps of a transaction: what was asked, what they observed and changed so far.

use super::expiring::Expiring;
use super::keyset::{KeysetCall, KeysetKind};
use crate::Topology;
use crate::part::{Invoked, USUAL_BYTES, encoded, narrowed};
use commit::{Observed, deadline_set, overwrites};
use datatypes::{Cell, Context, Effect, Operation, key, prepare};
use mvcc::CompactKey;
use protocol::{KeyEffect, KeyedOperation};
use std::collections::BTreeMap;
use types::{Instant, Reader, ReplyBuf, ReplySink, Rng};

/// An operation, owned, with its shard.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub key: CompactKey,
    pub shard: u16,
    /// The operation's binary form.
    pub operation: CompactKey,
    /// Nobody will see its result.
    pub blind: bool,
    /// For a call on the shard's keys as a whole: what it does. Then it has neither a key nor an operation.
    pub keyset: Option<KeysetCall>,
}

impl Call {
    pub fn new(topology: &Topology, keyed: &KeyedOperation<'_>) -> Self {
        let mut operation = Vec::with_capacity(USUAL_BYTES);
        keyed.operation.encode(&mut operation);
        Call {
            key: keyed.key.into(),
            shard: keyed.hash.share(topology.shards.len() as u16),
            operation: operation.into(),
            blind: keyed.blind,
            keyset: None,
        }
    }

    /// True if it deletes every key of the shard.
    pub fn is_flush(&self) -> bool {
        self.keyset.is_some_and(|keyset| keyset.kind == KeysetKind::Flush)
    }

    /// Writes its result: a blind one shows an error or `OK`.
    pub fn reply(&self, result: &ReplyBuf, sink: &mut dyn ReplySink) {
        match (self.blind, result.as_error()) {
            (true, None) => sink.simple("OK"),
            _ => result.replay(sink),
        }
    }

    /// True if it only reads.
    pub fn is_read(&self) -> bool {
        Operation::decode(&mut Reader::new(&self.operation)).is_ok_and(|operation| operation.is_read())
    }

    /// The effect that the operation has in every state, if nobody asks for more.
    fn unread<'o>(&self, operation: &Operation<'o>, may_expire: bool) -> Option<Effect<'o>> {
        let unseen = self.blind || operation.observation().is_nothing();
        let effect = if unseen { operation.blind_effect() } else { None };
        effect.filter(|effect| overwrites(effect) || !may_expire)
    }

    /// Evaluates an operation that needs no state: its result is not asked for, or reveals nothing. Where the key may
    /// expire, only one that replaces the key needs none.
    pub fn without_reading(&self, now_millis: u64, may_expire: bool, random: &mut Rng) -> Option<Done> {
        let operation = Operation::decode(&mut Reader::new(&self.operation)).ok()?;
        let blind = self.unread(&operation, may_expire)?;
        let mut result = ReplyBuf::new();
        if self.blind {
            result.simple("OK");
        } else {
            prepare(&Cell::ABSENT, &operation, &mut Context { now_millis, random }, &mut result);
        }
        // A deadline that has passed deletes; one that has not must not pass before the commit.
        let deadline = deadline_set(&blind).unwrap_or(0);
        let is_over = deadline != 0 && deadline <= now_millis;
        let (effect, expires_at) = if is_over { (Effect::DELETE, 0) } else { (blind, deadline) };
        let effect = Some(encoded(&effect));
        let invoked = Invoked { key: self.key.clone(), operation: None, effect, observed: None };
        Some(Done { result, invoked, expires_at })
    }
}

/// An operation that observes everything of a key and returns little.
pub fn observe_whole() -> Operation<'static> {
    Operation::Key(key::Operation::Deadline(key::TimeFormat::MillisAt))
}

/// The same in its binary form.
pub fn whole_key() -> CompactKey {
    let mut bytes = Vec::new();
    observe_whole().encode(&mut bytes);
    bytes.into()
}

/// A key that a session watches, and what was seen there.
#[derive(Clone, Debug)]
pub struct Watched {
    /// Observes the whole key.
    pub call: Call,
    pub observed: Option<Observed>,
    /// In milliseconds since 1970; 0 for none.
    pub expires_at: u64,
}

impl Watched {
    /// What is to be judged again.
    pub fn invoked(&self) -> Invoked {
        let (key, operation) = (self.call.key.clone(), Some(self.call.operation.clone()));
        Invoked { key, operation, effect: None, observed: self.observed.clone() }
    }
}

/// What a replica made of an operation.
#[derive(Clone, Debug)]
pub struct Answer {
    pub result: ReplyBuf,
    /// The effect to commit, in its binary form.
    pub effect: Option<Box<[u8]>>,
    pub observed: Observed,
    /// The key had expired: its deletion must commit with the transaction (Corrections 69).
    pub expired: bool,
    /// The transaction must commit before this, in milliseconds since 1970; 0 for no limit.
    pub expires_at: u64,
}

/// How far one step is.
#[derive(Clone, Debug)]
pub enum Progress {
    /// An earlier step on the same key comes first.
    Waiting,
    /// A replica was asked: how many times so far, and when last.
    Asked { tries: u32, at: Instant },
    /// Evaluated.
    Done(Done),
}

/// An evaluated step.
#[derive(Clone, Debug)]
pub struct Done {
    pub result: ReplyBuf,
    pub invoked: Invoked,
    /// The transaction must commit before this, in milliseconds since 1970; 0 for no limit.
    pub expires_at: u64,
}

/// A step of a transaction.
#[derive(Clone, Debug)]
pub struct CallStep {
    pub call: Call,
    pub progress: Progress,
}

/// See the module.
#[derive(Debug, Default)]
pub struct Steps {
    pub list: Vec<CallStep>,
    /// Deletions of keys that were found expired, with their shards; they come before everything else on their keys.
    pub expiries: BTreeMap<CompactKey, (u16, Invoked)>,
}

impl Steps {
    /// More steps, behind those that are there.
    pub fn push(&mut self, calls: impl IntoIterator<Item = Call>) {
        let waiting = |call| CallStep { call, progress: Progress::Waiting };
        self.list.extend(calls.into_iter().map(waiting));
    }

    /// Forgets what was evaluated.
    pub fn restart(&mut self) {
        self.expiries.clear();
        self.list.iter_mut().for_each(|step| step.progress = Progress::Waiting);
    }

    /// True if the step has not begun and every earlier one on its key is evaluated, reads before the last write
    /// excepted; before a look at which keys there are, every earlier one.
    pub fn is_ready(&self, index: usize) -> bool {
        let Some(CallStep { call, progress: Progress::Waiting }) = self.list.get(index) else { return false };
        let apart = |other: &CallStep| match (&call.keyset, &other.call.keyset) {
            (None, None) => other.call.key != call.key,
            (Some(_), _) => call.is_flush(),
            (None, Some(_)) => true,
        };
        let mut written = false;
        self.list[..index].iter().rev().filter(|other| !apart(other)).all(|other| match &other.progress {
            Progress::Done(done) => {
                written |= done.invoked.effect.is_some();
                true
            }
            _ => written && call.keyset.is_none() && other.call.is_read(),
        })
    }

    /// Evaluates a step that needs no replica; false if it needs one.
    pub fn evaluate_here(
        &mut self,
        index: usize,
        now_millis: u64,
        expiring: &Expiring,
        random: &mut Rng,
    ) -> bool {
        let Some(CallStep { call, .. }) = self.list.get(index) else { return false };
        if call.keyset.is_some() {
            return self.flush_here(index);
        }
        let may_expire = self.may_expire(&call.key, expiring);
        let done = call.without_reading(now_millis, may_expire, random);
        let here = done.is_some();
        if let Some(done) = done {
            self.list[index].progress = Progress::Done(done);
        }
        here
    }

    /// True if the step needs no replica to be evaluated.
    pub fn is_unread(&self, index: usize, expiring: &Expiring) -> bool {
        let Some(CallStep { call, .. }) = self.list.get(index) else { return false };
        let operation = Operation::decode(&mut Reader::new(&call.operation));
        operation.is_ok_and(|it| call.unread(&it, self.may_expire(&call.key, expiring)).is_some())
    }

    /// True if the key is known to have had a deadline, or is given one here.
    pub fn may_expire(&self, key: &[u8], expiring: &Expiring) -> bool {
        expiring.contains(key) || self.sets_deadline(key)
    }

    /// A deletion of everything needs no replica.
    fn flush_here(&mut self, index: usize) -> bool {
        let Some(step) = self.list.get_mut(index).filter(|step| step.call.is_flush()) else { return false };
        let invoked = Invoked { key: CompactKey::default(), operation: None, effect: None, observed: None };
        step.progress = Progress::Done(Done { result: ReplyBuf::new(), invoked, expires_at: 0 });
        true
    }

    /// True if a step has given the key a deadline.
    fn sets_deadline(&self, key: &[u8]) -> bool {
        let own = self.done().filter(|(step, _)| *step.call.key == *key);
        own.filter_map(|(_, done)| done.invoked.effect().ok()?).any(|effect| deadline_set(&effect).is_some())
    }

    /// True if a step of a user-defined type observes all of its key, whatever its lock mode says that it sees: it follows a
    /// blind effect of its own transaction, which an earlier step has, or will have without being evaluated.
    pub fn observes_whole(&self, index: usize, expiring: &Expiring) -> bool {
        let Some(step) = self.list.get(index) else { return false };
        let operation = Operation::decode(&mut Reader::new(&step.call.operation));
        let is_users = matches!(operation, Ok(Operation::User(_)));
        let blind =
            |other: usize| self.list[other].call.key == step.call.key && self.is_unread(other, expiring);
        is_users && !self.is_unread(index, expiring) && (self.follows_blind(index) || (0..index).any(blind))
    }

    /// True if an earlier step changes the same key and has observed nothing of it.
    fn follows_blind(&self, index: usize) -> bool {
        let Some(step) = self.list.get(index) else { return false };
        let own = self.list[..index].iter().filter(|other| other.call.key == step.call.key);
        own.filter_map(|other| match &other.progress {
            Progress::Done(done) => Some(done),
            _ => None,
        })
        .any(|done| done.invoked.observed.is_none())
    }

    /// Takes a replica's evaluation of a step.
    pub fn take(&mut self, index: usize, answer: Answer) {
        let Some(step) = self.list.get(index) else { return };
        let (key, shard) = (&step.call.key, step.call.shard);
        if answer.expired && !self.expiries.contains_key(key) {
            let deletion = Invoked {
                key: key.clone(),
                operation: Some(whole_key()),
                effect: Some(encoded(&Effect::DELETE)),
                observed: Some(answer.observed.clone()),
            };
            self.expiries.insert(key.clone(), (shard, deletion));
        }
        let operation = Operation::decode(&mut Reader::new(&step.call.operation));
        // It was evaluated for the sake of the deadline, though its result reveals nothing.
        let hidden = operation.as_ref().is_ok_and(|operation| operation.observation().is_nothing());
        // A user-defined type says what changes its results in a state. Here it is the state with a blind effect on it, which
        // may come to something else where others' effects come before it.
        let is_users = matches!(operation, Ok(Operation::User(_)));
        let whole = hidden || is_users && self.follows_blind(index);
        let observed = match operation.ok().and_then(|operation| narrowed(&operation, &answer.result)) {
            _ if whole => whole_key(),
            Some(less) => less,
            None => step.call.operation.clone(),
        };
        let invoked = Invoked {
            key: key.clone(),
            operation: Some(observed),
            effect: answer.effect,
            observed: Some(answer.observed),
        };
        // A deadline that it sets must not have passed when it commits: a slow clock would still see the key.
        let own = invoked.effect().ok().flatten().and_then(|effect| deadline_set(&effect));
        let Answer { result, expires_at, .. } = answer;
        let seen = Some(expires_at).filter(|at| *at != 0);
        let expires_at = [seen, own].into_iter().flatten().min().unwrap_or(0);
        self.list[index].progress = Progress::Done(Done { result, invoked, expires_at });
    }

    /// The key that a step is on; none of one on the whole keyspace.
    pub fn key_of(&self, index: usize) -> Option<Box<[u8]>> {
        let step = self.list.get(index).filter(|step| step.call.keyset.is_none())?;
        Some((*step.call.key).into())
    }

    /// True if the step belongs to this shard and a replica has been asked for it.
    pub fn is_asked(&self, index: usize, shard: u16) -> bool {
        let step = self.list.get(index);
        step.is_some_and(|step| step.call.shard == shard && matches!(step.progress, Progress::Asked { .. }))
    }

    /// True when every step has been evaluated.
    pub fn is_evaluated(&self) -> bool {
        self.list.iter().all(|step| matches!(step.progress, Progress::Done(_)))
    }

    /// True if nothing that was evaluated has an effect.
    pub fn is_read_only(&self) -> bool {
        self.expiries.is_empty()
            && self.done().all(|(step, done)| done.invoked.effect.is_none() && !step.call.is_flush())
    }

    /// The evaluated steps.
    pub fn done(&self) -> impl Iterator<Item = (&CallStep, &Done)> {
        self.list.iter().filter_map(|step| match &step.progress {
            Progress::Done(done) => Some((step, done)),
            _ => None,
        })
    }

    /// The steps that a replica was asked for, by index.
    pub fn asked(&self) -> impl Iterator<Item = (usize, &Call)> {
        let asked = |(_, step): &(usize, &CallStep)| matches!(step.progress, Progress::Asked { .. });
        self.list.iter().enumerate().filter(asked).map(|(index, step)| (index, &step.call))
    }

    /// The effects on a key of this shard by the steps before this one, in order.
    pub fn own_effects(&self, key: &[u8], shard: u16, before: usize) -> Vec<Box<[u8]>> {
        let expiry = self.expiries.get(key).and_then(|(_, invoked)| invoked.effect.clone());
        let mut effects: Vec<Box<[u8]>> = expiry.into_iter().collect();
        for CallStep { call, progress } in
            self.list.iter().take(before).filter(|step| step.call.shard == shard)
        {
            match progress {
                Progress::Done(_) if call.is_flush() => effects = vec![encoded(&Effect::DELETE)],
                Progress::Done(done) if call.keyset.is_none() && *call.key == *key => {
                    effects.extend(done.invoked.effect.clone());
                }
                _ => {}
            }
        }
        effects
    }

    /// All invocations on keys with their shards, in order.
    pub fn invocations(&self) -> impl Iterator<Item = (u16, &Invoked)> {
        let expiries = self.expiries.values().map(|(shard, invoked)| (*shard, invoked));
        let on_keys = self.done().filter(|(step, _)| step.call.keyset.is_none());
        expiries.chain(on_keys.map(|(step, done)| (step.call.shard, &done.invoked)))
    }

    /// All effects with their keys, in order.
    pub fn effects(&self) -> Vec<KeyEffect> {
        let expiries = self.expiries.values().map(|(_, invoked)| (false, invoked));
        let done = self.done().map(|(step, done)| (step.call.is_flush(), &done.invoked));
        let effect = |(is_flush, invoked): (bool, &Invoked)| match is_flush {
            true => Some(KeyEffect::default()),
            false => Some(((*invoked.key).into(), invoked.effect.clone()?)),
        };
        expiries.chain(done).filter_map(effect).collect()
    }

    /// The deadlines of what was found alive, in milliseconds since 1970.
    pub fn deadlines(&self) -> impl Iterator<Item = u64> {
        self.done().map(|(_, done)| done.expires_at).filter(|at| *at != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use datatypes::register;

    const READ: Operation<'static> = Operation::Register(register::Operation::Get);
    const ADD: Operation<'static> = Operation::Register(register::Operation::Increment { by: 1 });

    fn call(key: &str, operation: &Operation<'_>, blind: bool) -> Call {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        Call {
            key: key.as_bytes().into(),
            shard: u16::from(key != "a"),
            operation: bytes.into(),
            blind,
            keyset: None,
        }
    }

    fn steps(calls: impl IntoIterator<Item = Call>) -> Steps {
        let mut steps = Steps::default();
        steps.push(calls);
        steps
    }

    fn answer(effect: Option<&Effect<'_>>, expired: bool) -> Answer {
        let observed = Observed::new(commit::Stamp::ZERO, []);
        Answer { result: ReplyBuf::new(), effect: effect.map(encoded), observed, expired, expires_at: 0 }
    }

    #[test]
    fn steps_on_one_key_are_ready_one_after_the_other() {
        let mut steps = steps([call("a", &READ, false), call("b", &READ, false), call("a", &ADD, false)]);
        let ready = |steps: &Steps| (0..3).filter(|index| steps.is_ready(*index)).collect::<Vec<_>>();
        assert_eq!(ready(&steps), [0, 1]);
        steps.take(0, answer(None, false));
        assert_eq!(ready(&steps), [1, 2]);
        steps.take(2, answer(None, false));
        assert!(!steps.is_evaluated());
        steps.take(1, answer(None, false));
        assert!(steps.is_evaluated() && steps.is_read_only());
        steps.restart();
        assert_eq!(ready(&steps), [0, 1], "nothing of the first run is left");
    }

    #[test]
    fn only_what_nobody_reads_is_evaluated_without_a_replica() {
        let mut steps = steps([call("a", &ADD, true), call("a", &ADD, false), call("a", &READ, false)]);
        let mut random = Rng::with_seed(1);
        let expiring = Expiring::default();
        let here = (0..3).map(|index| steps.evaluate_here(index, 0, &expiring, &mut random));
        assert_eq!(here.collect::<Vec<bool>>(), [true, false, false]);
        let invoked: Vec<&Invoked> = steps.done().map(|(_, done)| &done.invoked).collect();
        assert!(invoked[0].operation.is_none() && invoked[0].observed.is_none(), "it observes nothing");
        assert!(invoked[0].effect.is_some());
    }

    #[test]
    fn where_the_key_may_expire_only_what_replaces_it_is_evaluated_without_a_replica() {
        let set = |deadline| {
            let (condition, reply) = (register::Condition::Always, register::SetReply::Status);
            Operation::Register(register::Operation::Set { value: b"v", deadline, condition, reply })
        };
        let at = |millis| call("a", &set(register::Deadline::At { millis }), true);
        let mut steps =
            steps([call("a", &ADD, true), at(9), call("a", &ADD, true), at(5), call("b", &ADD, true)]);
        let (mut expiring, mut random) = (Expiring::default(), Rng::with_seed(1));
        expiring.learn(b"b");
        let here = (0..5).map(|index| steps.evaluate_here(index, 5, &expiring, &mut random));
        assert_eq!(here.collect::<Vec<bool>>(), [true, true, false, true, false]);
        let effects: Vec<_> = steps.done().filter_map(|(_, done)| done.invoked.effect().ok()?).collect();
        assert_eq!(effects[2], Effect::DELETE, "a deadline that has passed deletes");
        let deadlines: Vec<u64> = steps.done().map(|(_, done)| done.expires_at).collect();
        assert_eq!(deadlines, [0, 9, 0], "it commits before the deadline that it sets");
    }

    #[test]
    fn the_deletion_of_an_expired_key_comes_before_what_is_done_to_it() {
        let mut steps = steps([call("b", &READ, false), call("a", &ADD, false)]);
        steps.take(0, answer(None, true));
        assert!(!steps.is_read_only(), "finding a key expired deletes it");
        assert_eq!(steps.own_effects(b"b", 1, 2), [encoded(&Effect::DELETE)]);
        steps.take(1, answer(Some(&Effect::DELETE), true));
        let order: Vec<(u16, bool)> =
            steps.invocations().map(|(shard, invoked)| (shard, invoked.effect.is_some())).collect();
        assert_eq!(order, [(0, true), (1, true), (1, false), (0, true)]);
        assert_eq!(steps.own_effects(b"a", 0, 2).len(), 2);
    }
}
