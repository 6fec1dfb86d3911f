//! The steps of a transaction: the operations, what they observed and what they changed so far.

use super::call::{Call, whole_key};
use super::expiring::Expiring;
use crate::part::{Invoked, Unobserved, encoded, narrowed};
use crate::validation::{Observed, deadline_set, overwrites};
use datatypes::{Effect, Operation};
use mvcc::CompactKey;
use protocol::KeyEffect;
use std::collections::{BTreeMap, BTreeSet};
use types::{Instant, Reader, ReplyBuf, Rng};

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
    /// The deletion of what had expired of the key, in its binary form: it must commit with the transaction
    /// (Corrections 69).
    pub expiry: Option<Box<[u8]>>,
    /// The transaction must commit before this, in milliseconds since 1970; 0 for no limit.
    pub expires_at: u64,
}

/// How far one step is.
#[derive(Clone, Debug)]
pub enum Progress {
    /// An earlier step on the same key comes first.
    Waiting,
    /// The coordinator has sent the step to a replica: how many times so far, and when last.
    Requested { tries: u32, at: Instant },
    /// Left to the last shard: it evaluates the step and decides.
    Deferred,
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
    /// The step before it on the same key, and the one behind it.
    earlier: Option<u32>,
    later: Option<u32>,
    /// How many steps on the same key come before it.
    depth: u32,
    /// The coordinator sends it together with the step before it.
    chained: bool,
    /// What the transaction does to the key without having observed it, this step included, once it is evaluated.
    unobserved: Unobserved,
}

impl CallStep {
    fn done(&self) -> Option<&Done> {
        match &self.progress {
            Progress::Done(done) => Some(done),
            Progress::Waiting | Progress::Requested { .. } | Progress::Deferred => None,
        }
    }

    /// True if the coordinator can ask for votes without evaluating the step.
    fn is_settled(&self) -> bool {
        matches!(self.progress, Progress::Done(_) | Progress::Deferred)
    }

    /// True if a question of its own is open for it.
    fn is_question(&self) -> bool {
        matches!(self.progress, Progress::Requested { .. }) && !self.chained
    }
}

/// Of so many steps one on a key is found by looking at each.
const FEW: usize = 16;

/// See the module. Whatever is done for each step, and whenever one is answered, takes no longer where there are many.
#[derive(Debug, Default)]
pub struct Steps {
    list: Vec<CallStep>,
    /// Deletions of keys that were found expired, with their shards; they come before everything else on their keys.
    pub expiries: BTreeMap<CompactKey, (u16, Invoked)>,
    /// The last step on each key, where there are more than a few.
    last: BTreeMap<CompactKey, u32>,
    /// The steps on the keys as a whole.
    keysets: Vec<u32>,
    /// Keys that a step has given a deadline.
    deadlines: BTreeSet<CompactKey>,
    /// The first step that is not evaluated.
    evaluated: usize,
    /// The number of open requests: a chain counts as one.
    questions: usize,
    /// The first step that `next_ready` has not examined yet.
    begun: usize,
    /// Steps before that one that may be able to begin now.
    freed: Vec<u32>,
}

impl Steps {
    /// More steps, behind those that are there.
    pub fn push(&mut self, calls: impl IntoIterator<Item = Call>) {
        calls.into_iter().for_each(|call| self.push_one(call));
    }

    /// One more step, which is evaluated.
    pub fn push_done(&mut self, call: Call, done: Done) {
        self.push_one(call);
        self.set(self.list.len() - 1, Progress::Done(done));
    }

    fn push_one(&mut self, call: Call) {
        let place = self.list.len();
        let earlier = match call.keyset {
            None => self.last_on(&call.key),
            Some(_) => {
                self.keysets.push(place as u32);
                None
            }
        };
        let mut depth = 0;
        if let Some(earlier) = earlier {
            let earlier = &mut self.list[earlier];
            (earlier.later, depth) = (Some(place as u32), earlier.depth + 1);
        }
        let (progress, earlier) = (Progress::Waiting, earlier.map(|place| place as u32));
        let unobserved = Unobserved::Nothing;
        self.list.push(CallStep { call, progress, earlier, later: None, depth, chained: false, unobserved });
        if place == FEW {
            (0..=place).for_each(|place| self.remember(place));
        } else if place > FEW {
            self.remember(place);
        }
    }

    fn remember(&mut self, place: usize) {
        let CallStep { call, .. } = &self.list[place];
        if call.keyset.is_none() {
            self.last.insert(call.key.clone(), place as u32);
        }
    }

    /// The last step on a key.
    fn last_on(&self, key: &[u8]) -> Option<usize> {
        let is_on = |step: &CallStep| step.call.keyset.is_none() && *step.call.key == *key;
        match self.list.len() > FEW {
            true => self.last.get(key).map(|place| *place as usize),
            false => self.list.iter().rposition(is_on),
        }
    }

    /// Keeps so many steps, the first ones, and gives the others away.
    pub fn split_off(&mut self, length: usize) -> Vec<CallStep> {
        let others = self.list.split_off(length);
        let is_left = |place: &u32| (*place as usize) < length;
        self.list.iter_mut().for_each(|step| step.later = step.later.filter(is_left));
        self.last.clear();
        if length > FEW {
            (0..length).for_each(|place| self.remember(place));
        }
        self.freed.retain(is_left);
        self.keysets.retain(is_left);
        (self.evaluated, self.begun) = (self.evaluated.min(length), self.begun.min(length));
        self.questions = self.list.iter().filter(|step| step.is_question()).count();
        others
    }

    /// Forgets what was evaluated.
    pub fn restart(&mut self) {
        self.expiries.clear();
        self.deadlines.clear();
        self.freed.clear();
        (self.evaluated, self.begun, self.questions) = (0, 0, 0);
        for step in &mut self.list {
            (step.progress, step.chained) = (Progress::Waiting, false);
        }
    }

    /// Opens the steps again that were not evaluated and are on keys that have a deadline, as is known by now; false if there
    /// are none. What later steps found stays.
    pub fn reopen_unread(&mut self, expiring: &Expiring) -> bool {
        let is_unread = |step: &CallStep| {
            step.done().is_some_and(|done| done.invoked.ignores_expiry()) && expiring.contains(&step.call.key)
        };
        let unread: Vec<usize> = (0..self.list.len()).filter(|place| is_unread(&self.list[*place])).collect();
        for place in &unread {
            self.set(*place, Progress::Waiting);
            self.freed.push(*place as u32);
        }
        !unread.is_empty()
    }

    /// Leaves the steps of a shard, none of which has begun, to the end; those of no other.
    pub fn defer(&mut self, shard: Option<u16>) {
        for step in &mut self.list {
            match (&step.progress, Some(step.call.shard) == shard) {
                (Progress::Waiting, true) => step.progress = Progress::Deferred,
                (Progress::Deferred, false) => step.progress = Progress::Waiting,
                _ => {}
            }
        }
        self.evaluated = self.list.iter().position(|step| !step.is_settled()).unwrap_or(self.list.len());
    }

    /// Those that are left to the end, by index.
    pub fn deferred(&self) -> impl Iterator<Item = (usize, &Call)> {
        let deferred = |(_, step): &(usize, &CallStep)| matches!(step.progress, Progress::Deferred);
        self.list.iter().enumerate().filter(deferred).map(|(index, step)| (index, &step.call))
    }

    /// The steps.
    pub fn list(&self) -> &[CallStep] {
        &self.list
    }

    /// The steps on this key before the one with this index, the latest first.
    pub fn before(&self, index: usize, key: &[u8]) -> impl Iterator<Item = &CallStep> {
        self.places_before(index, key).map(|place| &self.list[place])
    }

    fn places_before(&self, index: usize, key: &[u8]) -> impl Iterator<Item = usize> {
        let own = self.list.get(index).filter(|step| *step.call.key == *key && step.call.keyset.is_none());
        let latest = match own {
            Some(step) => step.earlier,
            None => self.last_on(key).map(|place| place as u32),
        };
        let on_key = std::iter::successors(latest, |place| self.list[*place as usize].earlier);
        on_key.map(|place| place as usize).skip_while(move |place| *place >= index)
    }

    /// How far a step is now.
    pub fn set(&mut self, index: usize, progress: Progress) {
        let unobserved = match progress {
            Progress::Done(_) => self.unobserved_before(index),
            _ => Unobserved::Nothing,
        };
        let Some(step) = self.list.get_mut(index) else { return };
        let was_question = step.is_question();
        step.progress = progress;
        self.questions = self.questions + usize::from(step.is_question()) - usize::from(was_question);
        step.chained &= matches!(step.progress, Progress::Requested { .. });
        let Progress::Done(done) = &step.progress else {
            self.evaluated = self.evaluated.min(index);
            return;
        };
        step.unobserved = unobserved;
        if let Ok(Some(effect)) = done.invoked.effect() {
            step.unobserved = unobserved.then(&effect, done.invoked.observed.is_some());
            if deadline_set(&effect).is_some() {
                self.deadlines.insert(step.call.key.clone());
            }
        }
        self.freed.extend(step.later.filter(|later| (*later as usize) < self.begun));
        if index == self.evaluated {
            let left = self.list[index..].iter().position(|step| !step.is_settled());
            self.evaluated = left.map_or(self.list.len(), |left| index + left);
            let waits = |next: &u32| {
                let step = self.list.get(*next as usize);
                (*next as usize) < self.begun && step.is_some_and(|step| step.call.keyset.is_some())
            };
            // A look at which keys there are has waited for all of those.
            self.freed.extend(Some(self.evaluated as u32).filter(waits));
        }
    }

    /// A step that has not begun and can: every earlier one on its key is evaluated, reads before the last write excepted;
    /// before a look at which keys there are, every earlier one. Returns each step once; the caller begins it then.
    pub fn next_ready(&mut self) -> Option<usize> {
        while let Some(freed) = self.freed.pop() {
            if self.is_ready(freed as usize) {
                return Some(freed as usize);
            }
        }
        while self.begun < self.list.len() {
            self.begun += 1;
            if self.is_ready(self.begun - 1) {
                return Some(self.begun - 1);
            }
        }
        None
    }

    /// See [`Steps::next_ready`]. Whatever is evaluated could begin, so that only the one before on the key matters.
    fn is_ready(&self, index: usize) -> bool {
        let Some(step) = self.list.get(index) else { return false };
        let is_done = |place: u32| self.list[place as usize].done().is_some();
        let is_free = match step.call.keyset {
            None => step.earlier.is_none_or(is_done),
            Some(_) => step.call.is_flush() || self.evaluated >= index,
        };
        is_free && matches!(step.progress, Progress::Waiting)
    }

    /// Requests steps that have to be evaluated behind a requested step on its key, together with that step: `first`
    /// of them at first, later as many as were evaluated before, so that a request describes no more evaluated steps
    /// than it asks for. A deletion of everything between two steps ends the chain, because its effect is not known
    /// yet.
    pub fn ask_behind(&mut self, index: usize, at: Instant, first: usize, expiring: &Expiring) {
        let mut last = index;
        for _ in 0..first.max(self.list[index].depth as usize) {
            let Some(next) = self.list[last].later.map(|later| later as usize) else { return };
            let waits = matches!(self.list[next].progress, Progress::Waiting);
            let mut between = self.keysets.iter().map(|place| *place as usize);
            let flushed =
                between.any(|place| last < place && place < next && self.list[place].call.is_flush());
            if !waits || flushed || self.is_unread(next, expiring) {
                return;
            }
            self.list[next].chained = true;
            self.set(next, Progress::Requested { tries: 1, at });
            last = next;
        }
    }

    /// True if the coordinator sends a step together with the one before it on its key.
    pub fn is_chained(&self, index: usize) -> bool {
        self.list.get(index).is_some_and(|step| step.chained)
    }

    /// The steps chained behind a step on its key, which the coordinator sends together with it.
    pub fn chain(&self, index: usize) -> impl Iterator<Item = (u32, &Call)> {
        let later = |place: &u32| self.list[*place as usize].later;
        let behind = std::iter::successors(self.list.get(index).and_then(|step| step.later), later);
        let steps = behind.map(|place| (place, &self.list[place as usize]));
        steps.take_while(|(_, step)| step.chained).map(|(place, step)| (place, &step.call))
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
            self.set(index, Progress::Done(done));
        }
        here
    }

    /// True if the step needs no replica to be evaluated.
    pub fn is_unread(&self, index: usize, expiring: &Expiring) -> bool {
        self.list.get(index).is_some_and(|step| self.is_call_unread(&step.call, expiring))
    }

    fn is_call_unread(&self, call: &Call, expiring: &Expiring) -> bool {
        let operation = Operation::decode(&mut Reader::new(&call.operation));
        operation.is_ok_and(|it| call.unread(&it, self.may_expire(&call.key, expiring)).is_some())
    }

    /// True if the key is known to have had a deadline, or is given one here.
    pub fn may_expire(&self, key: &[u8], expiring: &Expiring) -> bool {
        expiring.contains(key) || self.deadlines.contains(key)
    }

    /// A deletion of everything needs no replica.
    fn flush_here(&mut self, index: usize) -> bool {
        if !self.list.get(index).is_some_and(|step| step.call.is_flush()) {
            return false;
        }
        let invoked = Invoked { key: CompactKey::default(), operation: None, effect: None, observed: None };
        self.set(index, Progress::Done(Done { result: ReplyBuf::new(), invoked, expires_at: 0 }));
        true
    }

    /// True if a step of a user-defined type observes all of its key, whatever its lock mode says that it sees: it follows a
    /// blind effect of its own transaction, which an earlier step has, or will have without being evaluated.
    pub fn observes_whole(&self, index: usize, expiring: &Expiring) -> bool {
        let Some(step) = self.list.get(index) else { return false };
        let operation = Operation::decode(&mut Reader::new(&step.call.operation));
        let is_users = matches!(operation, Ok(Operation::User(_)));
        let mut earlier = self.before(index, &step.call.key);
        is_users
            && !self.is_unread(index, expiring)
            && (self.unobserved_before(index) != Unobserved::Nothing
                || earlier.any(|step| self.is_call_unread(&step.call, expiring)))
    }

    /// What earlier steps do to the same key without having observed it. Of those before a step that is evaluated only reads can
    /// be left.
    fn unobserved_before(&self, index: usize) -> Unobserved {
        let Some(step) = self.list.get(index) else { return Unobserved::Nothing };
        let mut earlier = self.before(index, &step.call.key);
        earlier.find(|step| step.done().is_some()).map_or(Unobserved::Nothing, |step| step.unobserved)
    }

    /// Takes a replica's evaluation of a step.
    pub fn take(&mut self, index: usize, answer: Answer) {
        let Some(step) = self.list.get(index) else { return };
        let (key, shard) = (&step.call.key, step.call.shard);
        if let Some(expiry) = &answer.expiry
            && !self.expiries.contains_key(key)
        {
            let deletion = Invoked {
                key: key.clone(),
                operation: Some(whole_key()),
                effect: Some(expiry.clone()),
                observed: Some(answer.observed.clone()),
            };
            self.expiries.insert(key.clone(), (shard, deletion));
        }
        let operation = Operation::decode(&mut Reader::new(&step.call.operation));
        // It was evaluated for the sake of the deadline, though its result reveals nothing.
        let hidden = operation.as_ref().is_ok_and(|operation| operation.observation().is_nothing());
        let unobserved = self.unobserved_before(index);
        let whole = hidden || operation.as_ref().is_ok_and(|operation| unobserved.widens(operation));
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
        self.set(index, Progress::Done(Done { result, invoked, expires_at }));
    }

    /// The key that a step is on; none of one on the whole keyspace.
    pub fn key_of(&self, index: usize) -> Option<Box<[u8]>> {
        let step = self.list.get(index).filter(|step| step.call.keyset.is_none())?;
        Some((*step.call.key).into())
    }

    /// True if the step belongs to this shard and the coordinator has sent it to a replica.
    pub fn is_requested(&self, index: usize, shard: u16) -> bool {
        let step = self.list.get(index);
        step.is_some_and(|step| {
            step.call.shard == shard && matches!(step.progress, Progress::Requested { .. })
        })
    }

    /// How many more requests may be open: at first `first` together, later as many as steps have been evaluated.
    pub fn room(&self, first: usize) -> usize {
        first.max(self.evaluated).saturating_sub(self.questions)
    }

    /// True when every step has been evaluated that is not left to the end.
    pub fn is_evaluated(&self) -> bool {
        self.evaluated == self.list.len()
    }

    /// True if nothing that was evaluated has an effect.
    pub fn is_read_only(&self) -> bool {
        self.expiries.is_empty()
            && self.done().all(|(step, done)| done.invoked.effect.is_none() && !step.call.is_flush())
    }

    /// The evaluated steps.
    pub fn done(&self) -> impl Iterator<Item = (&CallStep, &Done)> {
        self.list.iter().filter_map(|step| Some((step, step.done()?)))
    }

    /// The steps that the coordinator has sent to a replica and that are open, by index.
    pub fn requested(&self) -> impl Iterator<Item = (usize, &Call)> {
        let requested = |(_, step): &(usize, &CallStep)| matches!(step.progress, Progress::Requested { .. });
        let open = self.list.iter().enumerate().skip(self.evaluated);
        open.filter(requested).map(|(index, step)| (index, &step.call))
    }

    /// What the steps before this one do to a key of this shard: their effects in order, from the last one that leaves nothing of
    /// what was there.
    pub fn own_effects(&self, key: &[u8], shard: u16, before: usize) -> Vec<Box<[u8]>> {
        let flushes = |place: &usize| {
            let CallStep { call, progress, .. } = &self.list[*place];
            *place < before && call.shard == shard && call.is_flush() && matches!(progress, Progress::Done(_))
        };
        let flushed = self.keysets.iter().rev().map(|place| *place as usize).find(flushes);
        let places = self.places_before(before, key).take_while(|place| flushed.is_none_or(|it| it < *place));
        let mut effects = Vec::new();
        for invoked in places.filter_map(|place| Some(&self.list[place].done()?.invoked)) {
            effects.extend(invoked.effect.clone());
            if invoked.effect().ok().flatten().is_some_and(|effect| overwrites(&effect)) {
                effects.reverse();
                return effects;
            }
        }
        effects.extend(match flushed {
            Some(_) => Some(encoded(&Effect::DELETE)),
            None => self.expiries.get(key).and_then(|(_, invoked)| invoked.effect.clone()),
        });
        effects.reverse();
        effects
    }

    /// True if it looks at which keys there are, or deletes all.
    pub fn has_keyset(&self) -> bool {
        !self.keysets.is_empty()
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
    use super::super::keyset::{KeysetCall, KeysetKind, KeysetReadKind};
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

    const REQUESTED: Progress = Progress::Requested { tries: 1, at: Instant(0) };

    fn keyset_call(kind: KeysetKind) -> Call {
        let keyset = Some(KeysetCall { kind, last_of: None });
        Call { keyset, operation: CompactKey::default(), ..call("", &READ, false) }
    }

    /// The steps that can begin, and do.
    fn ready(steps: &mut Steps) -> Vec<usize> {
        let ready: Vec<usize> = std::iter::from_fn(|| steps.next_ready()).collect();
        ready.iter().for_each(|index| steps.set(*index, REQUESTED));
        ready
    }

    fn answer(effect: Option<&Effect<'_>>, expired: bool) -> Answer {
        let observed = Observed::new(crate::validation::Stamp::ZERO, []);
        let expiry = expired.then(|| encoded(&Effect::DELETE));
        Answer { result: ReplyBuf::new(), effect: effect.map(encoded), observed, expiry, expires_at: 0 }
    }

    #[test]
    fn steps_on_one_key_are_ready_one_after_the_other() {
        let mut steps = steps([call("a", &READ, false), call("b", &READ, false), call("a", &ADD, false)]);
        assert_eq!(ready(&mut steps), [0, 1]);
        steps.take(0, answer(None, false));
        assert_eq!(ready(&mut steps), [2]);
        steps.take(2, answer(None, false));
        assert!(!steps.is_evaluated());
        steps.take(1, answer(None, false));
        assert!(steps.is_evaluated() && steps.is_read_only());
        steps.restart();
        assert_eq!(ready(&mut steps), [0, 1], "nothing of the first run is left");
    }

    /// A step that has not begun can, as a look at every one before it says.
    fn can_begin(steps: &Steps, index: usize) -> bool {
        let step = &steps.list[index];
        let is_before = |other: &&CallStep| match (step.call.keyset, other.call.keyset) {
            (None, None) => other.call.key == step.call.key,
            (None, Some(_)) => false,
            (Some(_), _) => !step.call.is_flush(),
        };
        let mut written = false;
        let mut before = steps.list[..index].iter().rev().filter(is_before);
        let is_free = before.all(|other| match other.done() {
            Some(done) => {
                written |= done.invoked.effect.is_some();
                true
            }
            None => written && step.call.keyset.is_none() && other.call.is_read(),
        });
        is_free && matches!(step.progress, Progress::Waiting)
    }

    /// What the steps before it do to its key, as a look at each says.
    fn effects_before(steps: &Steps, index: usize) -> Vec<Box<[u8]>> {
        let own = &steps.list[index].call;
        let mut effects = Vec::new();
        for step in &steps.list[..index] {
            match step.done() {
                Some(_) if step.call.is_flush() && step.call.shard == own.shard => {
                    effects = vec![encoded(&Effect::DELETE)];
                }
                Some(done) if step.call.keyset.is_none() && step.call.key == own.key => {
                    if done.invoked.effect().unwrap().is_some_and(|effect| overwrites(&effect)) {
                        effects.clear();
                    }
                    effects.extend(done.invoked.effect.clone());
                }
                _ => {}
            }
        }
        effects
    }

    /// Some steps have begun without a request to a replica.
    #[test]
    fn what_can_begin_is_what_a_look_at_every_step_says() {
        let expiring = Expiring::default();
        for seed in 0..300 {
            let mut random = Rng::with_seed(seed);
            let keys = ["a", "b", "c", ""];
            let any = |random: &mut Rng| match random.u8(..12) {
                0 => keyset_call(KeysetKind::Flush),
                1 => keyset_call(KeysetKind::KeysetRead(KeysetReadKind::Count)),
                2..=5 => call(keys[random.usize(..4)], &READ, false),
                6..=8 => call(keys[random.usize(..4)], &ADD, true),
                _ => call(keys[random.usize(..4)], &ADD, false),
            };
            let length = 1 + random.usize(..40);
            let mut steps = steps((0..length).map(|_| any(&mut random)));
            let head = 1 + random.usize(..length);
            assert_eq!(steps.split_off(head).len(), length - head);
            steps.push((0..random.usize(..20)).map(|_| any(&mut random)));
            while !steps.is_evaluated() {
                let mut requested = Vec::new();
                while let Some(index) = steps.next_ready() {
                    assert!(can_begin(&steps, index), "seed {seed}: step {index} of {steps:?}");
                    assert!(!requested.contains(&index), "seed {seed}: step {index} twice of {steps:?}");
                    let Call { key, shard, keyset, .. } = &steps.list[index].call;
                    if keyset.is_none() {
                        assert_eq!(steps.own_effects(key, *shard, index), effects_before(&steps, index));
                    }
                    if !steps.evaluate_here(index, 0, &expiring, &mut random) {
                        requested.push(index);
                    }
                }
                requested.iter().for_each(|index| steps.set(*index, REQUESTED));
                let mut left = (0..steps.list.len()).filter(|index| can_begin(&steps, *index));
                assert_eq!(left.next(), None, "seed {seed}: {steps:?}");
                let open: Vec<usize> = steps.requested().map(|(index, _)| index).collect();
                let Some(index) = open.get(random.usize(..open.len().max(1))) else { continue };
                let written = (!steps.list[*index].call.is_read()).then_some(Effect::DELETE);
                steps.take(*index, answer(written.as_ref(), false));
            }
        }
    }

    #[test]
    fn what_is_left_to_the_end_holds_up_nobody_and_is_known_last() {
        let mut steps = steps([call("b", &READ, false), call("a", &ADD, false), call("b", &ADD, false)]);
        steps.defer(Some(1));
        let deferred = |steps: &Steps| steps.deferred().map(|(index, _)| index).collect::<Vec<usize>>();
        assert_eq!(deferred(&steps), [0, 2]);
        assert_eq!(ready(&mut steps), [1]);
        assert!(!steps.is_evaluated());
        steps.take(1, answer(None, false));
        assert!(steps.is_evaluated() && steps.invocations().count() == 1);
        steps.take(0, answer(None, false));
        steps.take(2, answer(Some(&Effect::DELETE), false));
        assert!(steps.is_evaluated() && deferred(&steps).is_empty() && steps.invocations().count() == 3);
        steps.restart();
        steps.defer(Some(0));
        assert_eq!((deferred(&steps), steps.is_evaluated()), (vec![1], false));
        steps.defer(None);
        assert_eq!(ready(&mut steps), [0, 1], "nothing is left");
    }

    /// A chain stays as it is while it is in flight, whatever else changes: a retry sends the same chain.
    #[test]
    fn chained_steps_stay_chained() {
        let flush = || keyset_call(KeysetKind::Flush);
        let list =
            [call("a", &ADD, false), call("b", &ADD, false), call("a", &READ, false), call("a", &ADD, false)];
        let mut steps =
            steps(list.into_iter().chain([call("a", &ADD, true), flush(), call("b", &ADD, false)]));
        let (expiring, at) = (Expiring::default(), Instant(0));
        let chain = |steps: &Steps, index| steps.chain(index).map(|(step, _)| step).collect::<Vec<u32>>();
        steps.set(0, REQUESTED);
        steps.ask_behind(0, at, 1, &expiring);
        assert_eq!(chain(&steps, 0), [2], "no more than that");
        steps.restart();
        ready(&mut steps);
        assert!(!steps.is_chained(2), "nothing of the first run is left");
        steps.ask_behind(0, at, 9, &expiring);
        assert_eq!(chain(&steps, 0), [2, 3], "what needs no evaluation ends it");
        steps.ask_behind(1, at, 9, &expiring);
        assert!(chain(&steps, 1).is_empty(), "and so does a deletion of everything");
        steps.set(2, Progress::Requested { tries: 2, at });
        assert_eq!((chain(&steps, 0), steps.is_chained(2)), (vec![2, 3], true));
        steps.take(0, answer(None, false));
        assert_eq!(chain(&steps, 0), [2, 3], "the answer names them");
        steps.take(2, answer(None, false));
        assert!(!steps.is_chained(2) && steps.is_chained(3));
    }

    /// However many steps are sent for one key, as much room is left for others; and the coordinator repeats evaluated
    /// steps no more often than it sends as many new ones.
    #[test]
    fn longer_chains_are_requested_after_more_answers() {
        let (expiring, at, keys) = (Expiring::default(), Instant(0), ["a", "b", "c"]);
        let mut steps = steps((0..3_000).map(|place| call(keys[place % 3], &ADD, false)));
        let mut questions = 0;
        while !steps.is_evaluated() {
            let ready = ready(&mut steps);
            assert_eq!(ready.len(), 3);
            ready.iter().for_each(|index| steps.ask_behind(*index, at, 8, &expiring));
            assert_eq!(steps.room(8), 5.max(steps.evaluated.saturating_sub(3)));
            questions += ready.len();
            let requested: Vec<usize> = steps.requested().map(|(index, _)| index).collect();
            requested.iter().for_each(|index| steps.take(*index, answer(None, false)));
        }
        assert_eq!(questions, 24, "9, then as many as there are before: 9, 18, 36 and so on");
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
        let added = Effect::Register(register::Effect::Add { by: 1 });
        steps.take(1, answer(Some(&added), true));
        let order: Vec<(u16, bool)> =
            steps.invocations().map(|(shard, invoked)| (shard, invoked.effect.is_some())).collect();
        assert_eq!(order, [(0, true), (1, true), (1, false), (0, true)]);
        assert_eq!(steps.own_effects(b"a", 0, 2), [encoded(&Effect::DELETE), encoded(&added)]);
    }
}
