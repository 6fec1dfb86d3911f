//! Reads: operations evaluated on a snapshot, which is installed; where it may not be, `wait` sees to it (Wren, Algorithm 6, lines 1 to 12).

use super::Partition;
use crate::stable::intent::encoded;
use crate::stable::message::{Answer, CachedEffect, KeyspaceWork, Message, Outcome, Part, Work};
use crate::stable::stamp::Stamp;
use crate::stable::{Depends, Mutant, Node, Times};
use datatypes::{Cell, Context, Effect, Operation, apply, key, merge, prepare};
use mvcc::{Bounds, Store};
use protocol::{Now, Outputs};
use types::{Address, Error, KeyHash, Malformed, Reader, Reply, ReplyBuf, ReplySink, Rng};

/// About how many places of the index a scan visits at most for each requested key.
const SCAN_EFFORT: u32 = 10;

/// What comes on top of a snapshot: what the session did, and what the transaction did.
pub(super) type Overlay<'e, D> = (&'e [CachedEffect<D>], &'e [Box<[u8]>]);

/// An operation to be evaluated on a state.
pub(crate) struct Evaluation<'e, D> {
    pub(crate) hash: KeyHash,
    pub(crate) key: &'e [u8],
    /// What the session did that is not in the store, in order of place.
    pub(crate) cached: &'e [CachedEffect<D>],
    /// What the transaction did so far: it is done on top of the state first.
    pub(crate) before: &'e [Box<[u8]>],
    pub(crate) operation: &'e [u8],
    pub(crate) blind: bool,
    pub(crate) now_millis: u64,
    /// See [`Context`].
    pub(crate) site: Option<u16>,
}

/// From so many steps on a key on, the partition caches the state behind each for the next one.
const MANY: usize = 8;

/// A key's state behind what a transaction did to it, from one evaluation on the same snapshot to the next.
#[derive(Debug)]
pub(crate) struct OverlaidState {
    keeps: bool,
    cell: Option<Cell>,
    /// Behind so many effects.
    effects: usize,
}

impl OverlaidState {
    /// For so many steps.
    pub(crate) fn of(steps: usize) -> OverlaidState {
        OverlaidState { keeps: steps >= MANY, cell: None, effects: 0 }
    }
}

impl<D: Depends> Evaluation<'_, D> {
    /// Writes the result into `reply` and returns the effects to commit: the deletion of an expired key first. `bounds` say
    /// what is visible in a few words, if that is possible.
    pub(crate) fn run(
        &self,
        store: &mut Store<Stamp<D>>,
        visible: impl Fn(&Stamp<D>) -> bool,
        bounds: Option<Bounds<Stamp<D>>>,
        ahead: &mut OverlaidState,
        random: &mut Rng,
        reply: &mut ReplyBuf,
    ) -> Result<Vec<Box<[u8]>>, Malformed> {
        let operation = Operation::decode(&mut Reader::new(self.operation))?;
        let since = self.before.get(ahead.effects..).unwrap_or_default();
        let before: Vec<Effect<'_>> =
            since.iter().map(|bytes| Effect::decode(&mut Reader::new(bytes))).collect::<Result<_, _>>()?;
        // The cached state has them.
        let cached = if ahead.cell.is_some() { &[] } else { self.cached };
        let cached: Vec<(Stamp<D>, Effect<'_>)> = cached
            .iter()
            .map(|cached| Ok((cached.stamp, Effect::decode(&mut Reader::new(&cached.effect))?)))
            .collect::<Result<_, Malformed>>()?;
        let effects = if ahead.keeps {
            let cell = ahead.cell.get_or_insert_with(|| {
                store.with_later(self.hash, self.key, visible, bounds, &cached, &[], Cell::clone)
            });
            before.iter().for_each(|effect| drop(apply::<false>(cell, effect)));
            ahead.effects = self.before.len();
            self.on(cell, &operation, random, reply)
        } else {
            store.with_later(self.hash, self.key, visible, bounds, &cached, &before, |cell| {
                self.on(cell, &operation, random, reply)
            })
        };
        if self.blind && reply.as_error().is_none() {
            reply.clear();
            reply.simple("OK");
        }
        Ok(effects)
    }

    fn on(
        &self,
        cell: &Cell,
        operation: &Operation<'_>,
        random: &mut Rng,
        reply: &mut ReplyBuf,
    ) -> Vec<Box<[u8]>> {
        let (expiry, cell) = (cell.expiry(self.now_millis), cell.living(self.now_millis));
        let mut context = Context { now_millis: self.now_millis, random, site: self.site };
        let effect = prepare(&cell, operation, &mut context, reply);
        let asserted = || merge::assertion(operation).filter(|_| reply.as_error().is_none());
        let effect = asserted().or(effect);
        let deletion = expiry.filter(|_| !operation.is_read());
        deletion.into_iter().chain(effect).map(|effect| encoded(&effect)).collect()
    }
}

impl<S: Times> Partition<S> {
    pub(super) fn on_slice_req(
        &mut self,
        now: Now,
        from: Address,
        request: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Message::SliceReq { snapshot, .. } = &request else { return };
        let snapshot = *snapshot;
        self.vouch(snapshot, out);
        self.learn_stable(now, snapshot);
        if let Some(request) = self.when_installed(now, from, request, snapshot, out) {
            self.answer_slice(now, from, request, random, out);
        }
    }

    pub(super) fn answer_slice(
        &mut self,
        now: Now,
        from: Address,
        request: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Message::SliceReq { id, round, snapshot, fresh, now_millis, parts, keyspace_work } = request
        else {
            return;
        };
        let mut snapshot = snapshot;
        if fresh {
            let own = self.publishable(now);
            let own = self.promise(own, out);
            snapshot = self.freshest(snapshot, own, &parts);
        }
        let forgotten = snapshot.whole() < self.horizon.whole();
        let is_answered = [Mutant::ReadBelowHorizon, Mutant::HorizonByMaximum];
        let is_answered = is_answered.into_iter().any(|mutant| self.options.mutants.has(mutant));
        let outcome = if forgotten && !is_answered {
            Outcome::TooOld
        } else if let Some(error) = self.unlogged(snapshot, &parts, &keyspace_work) {
            Outcome::Refused { error }
        } else {
            match self.slice(snapshot, now_millis, &parts, random) {
                Ok(mut answers) => {
                    let draws = keyspace_work.iter().filter_map(|keyspace_work| match keyspace_work {
                        KeyspaceWork::Draw { step } => Some(*step),
                        _ => None,
                    });
                    for step in draws {
                        answers.push(self.draw(snapshot, now_millis, step, &parts, random));
                    }
                    let weak = keyspace_work
                        .iter()
                        .filter_map(|keyspace_work| self.keyspace_work(keyspace_work, now_millis));
                    answers.extend(weak);
                    Outcome::Done { answers, seen: self.seen_of(snapshot, &parts, &keyspace_work) }
                }
                Err(malformed) => {
                    Outcome::Refused { error: Error::err(format!("a slice holds a {malformed}")) }
                }
            }
        };
        let tells = S::OPTIMISTIC && self.evictions.recorded().next().is_none();
        let received = tells.then(|| self.version_vector(self.installed));
        self.answer(from, Message::SliceResp { id, round, outcome, received }, out);
    }

    fn slice(
        &mut self,
        snapshot: S,
        now_millis: u64,
        parts: &[Part<S>],
        random: &mut Rng,
    ) -> Result<Vec<Answer>, Malformed> {
        let mut answers = Vec::new();
        for part in parts {
            let hash = self.store.hash(&part.key);
            let (mut before, mut ahead) = (part.overlay.clone(), OverlaidState::of(part.work.len()));
            for work in &part.work {
                let (step, operation, blind) = match work {
                    Work::Effect { effect } => {
                        before.push(effect.clone());
                        continue;
                    }
                    Work::Evaluate { step, operation, blind } => (*step, operation, *blind),
                    Work::Observed { .. } | Work::Watched { .. } | Work::Candidate => continue,
                };
                if let Some(settlement) = self.settle(hash, &part.key, operation) {
                    let effects = settlement.effects();
                    answers.push(Answer { effects, ..Answer::new(step, settlement.reply) });
                    continue;
                }
                let (key, cached) = (&*part.key, part.cached.as_slice());
                let site = self.topology.site(self.region);
                let evaluation =
                    Evaluation { hash, key, cached, before: &before, operation, blind, now_millis, site };
                let mut reply = ReplyBuf::new();
                let effects = self.evaluate(snapshot, &evaluation, &mut ahead, random, &mut reply)?;
                before.extend(effects.iter().cloned());
                answers.push(Answer { effects, ..Answer::new(step, reply) });
            }
        }
        Ok(answers)
    }

    /// Evaluates an operation on a snapshot; see [`Evaluation::run`].
    fn evaluate(
        &mut self,
        snapshot: S,
        evaluation: &Evaluation<'_, S::Depends>,
        ahead: &mut OverlaidState,
        random: &mut Rng,
        reply: &mut ReplyBuf,
    ) -> Result<Vec<Box<[u8]>>, Malformed> {
        let (region, without_dependencies) =
            (self.region, self.options.mutants.has(Mutant::DependsOnNothing));
        let local_always = self.options.mutants.has(Mutant::LocalAlwaysVisible);
        let visible = |stamp: &Stamp<S::Depends>| match without_dependencies
            || (local_always && stamp.region == region)
        {
            true => snapshot.shows(&Stamp { depends_on: Default::default(), ..*stamp }, region),
            false => snapshot.shows(stamp, region),
        };
        let bounds = snapshot.bounds(region).filter(|_| !without_dependencies);
        evaluation.run(&mut self.store, visible, bounds, ahead, random, reply)
    }

    /// True if the snapshot shows a key, on top of which these effects come, that has not expired.
    pub(super) fn shows_key(
        &mut self,
        snapshot: S,
        key: &[u8],
        (cached, before): Overlay<'_, S::Depends>,
        now_millis: u64,
        random: &mut Rng,
    ) -> bool {
        let mut operation = Vec::new();
        Operation::Key(key::Operation::Exists).encode(&mut operation);
        let (hash, operation) = (self.store.hash(key), operation.as_slice());
        let (blind, site) = (false, None);
        let evaluation = Evaluation { hash, key, cached, before, operation, blind, now_millis, site };
        let mut reply = ReplyBuf::new();
        let evaluated = self.evaluate(snapshot, &evaluation, &mut OverlaidState::of(1), random, &mut reply);
        evaluated.is_ok() && reply.first() == Some(Reply::Integer(1))
    }

    fn keyspace_work(&self, keyspace_work: &KeyspaceWork, now_millis: u64) -> Option<Answer> {
        match keyspace_work {
            KeyspaceWork::CountLosses { step, cursor } => Some(self.losses().count(*step, *cursor)),
            KeyspaceWork::Losses { step, cursor, count } => Some(self.losses().list(*step, *cursor, *count)),
            _ => count_or_scan(&self.store, keyspace_work, now_millis),
        }
    }

    /// The keys that hold a value.
    pub(super) fn keys(&self) -> Vec<Box<[u8]>> {
        let (mut keys, mut cursor) = (Vec::new(), 0);
        loop {
            cursor = self.store.scan(cursor, |key, _| keys.push(key.into()));
            if cursor == 0 {
                return keys;
            }
        }
    }
}

/// How many keys there are, or a piece of their list; `None` if the step requests neither.
pub(crate) fn count_or_scan<D: Depends>(
    store: &Store<Stamp<D>>,
    keyspace_work: &KeyspaceWork,
    now_millis: u64,
) -> Option<Answer> {
    let mut reply = ReplyBuf::new();
    match keyspace_work {
        KeyspaceWork::Count { step } | KeyspaceWork::Flush { step, .. } => {
            reply.integer(store.living() as i64);
            Some(Answer::new(*step, reply))
        }
        KeyspaceWork::Scan { step, cursor, count } => {
            let (mut cursor, mut found) = (*cursor, 0);
            for _ in 0..count.max(&1).saturating_mul(SCAN_EFFORT) {
                cursor = store.scan(cursor, |key, record| {
                    if !record.cell().is_expired(now_millis) {
                        reply.bulk(key);
                        found += 1;
                    }
                });
                if cursor == 0 || found >= *count {
                    break;
                }
            }
            Some(Answer { cursor, ..Answer::new(*step, reply) })
        }
        KeyspaceWork::Draw { .. } | KeyspaceWork::CountLosses { .. } | KeyspaceWork::Losses { .. } => None,
    }
}
