//! Reads: what a transaction asks of partitions on its snapshot (Wren, Algorithm 4, lines 8 to 20, and Algorithm 5,
//! lines 7 to 16; Corrections 37 and 72).

use super::ask::{KeyAction, PlannedStep, deletion};
use super::draw;
use super::replies::{Replies, keyspace_work_of, known_reply};
use super::rerun::FailureReason;
use super::running::{Kind, Obstacle, Phase, Running};
use super::session::{Done, Open};
use super::{Coordinator, millis};
use crate::stable::message::{Answer, CachedEffect, Message, Outcome, Part, Work};
use crate::stable::{Mutant, Node, Timer, Times};
use mvcc::CompactKey;
use protocol::{Losses, Now, Outputs};
use std::collections::BTreeMap;
use types::{Address, Error, ErrorCode, RegionSet, RequestId, Rng, SessionId, TransactionId};

/// What a transaction sees of a key beyond its snapshot: of its thread's cache, and its own effects.
type Seen<S> = (Vec<CachedEffect<<S as Times>::Depends>>, Vec<Box<[u8]>>);

/// Work on keys, by partition and in the order of the keys' first mention.
pub(crate) type Parts<S> = BTreeMap<u16, Vec<Part<S>>>;

/// Puts work together by key. Transactions of a few keys are searched one by one, larger ones by an index.
pub(super) struct Gathering<S: Times> {
    pub(super) parts: Parts<S>,
    /// Where the keys of a partition are in its list, as far as it has been indexed.
    places: BTreeMap<u16, BTreeMap<CompactKey, usize>>,
}

/// A partition with more keys is indexed.
const SEARCHED: usize = 16;

impl<S: Times> Gathering<S> {
    /// Goes on with `parts`.
    pub(super) fn of(parts: Parts<S>) -> Self {
        Gathering { parts, places: BTreeMap::new() }
    }

    /// The work on a key, made if there is none.
    pub(super) fn part(&mut self, partition: u16, key: &[u8]) -> &mut Part<S> {
        let of_partition = self.parts.entry(partition).or_default();
        let known = if of_partition.len() <= SEARCHED {
            of_partition.iter().position(|part| *part.key == *key)
        } else {
            let places = self.places.entry(partition).or_default();
            let added = (places.len()..).zip(&of_partition[places.len()..]);
            places.extend(added.map(|(place, part)| (part.key.clone(), place)));
            places.get(&CompactKey::new(key)).copied()
        };
        let place = known.unwrap_or_else(|| {
            of_partition.push(Part {
                key: key.into(),
                cached: Vec::new(),
                overlay: Vec::new(),
                own: Vec::new(),
                work: Vec::new(),
            });
            of_partition.len() - 1
        });
        &mut of_partition[place]
    }
}

/// The work of all steps on keys. A flush deletes, in its place, every key that the transaction mentions.
pub(crate) fn work_of<S: Times>(steps: &[PlannedStep]) -> Parts<S> {
    let mut gathering = Gathering::of(Parts::new());
    if steps.iter().any(|step| matches!(step, PlannedStep::Flush)) {
        for step in steps {
            if let PlannedStep::Key { key, partition, .. } = step {
                gathering.part(*partition, key);
            }
        }
    }
    for (number, step) in (0u32..).zip(steps) {
        match step {
            PlannedStep::Key { key, partition, what } => {
                let work = match what {
                    KeyAction::Read { operation, blind } | KeyAction::Observing { operation, blind } => {
                        Work::Evaluate { step: number, operation: operation.clone(), blind: *blind }
                    }
                    KeyAction::Write { effect, .. } => Work::Effect { effect: effect.clone() },
                };
                gathering.part(*partition, key).work.push(work);
            }
            PlannedStep::Flush => {
                let all = gathering.parts.values_mut().flatten();
                all.for_each(|part| part.work.push(Work::Effect { effect: deletion() }));
            }
            PlannedStep::Count
            | PlannedStep::Keys
            | PlannedStep::Random
            | PlannedStep::Scan { .. }
            | PlannedStep::Losses(_) => {}
        }
    }
    gathering.parts
}

impl<S: Times> Running<S> {
    /// The end of an interactive transaction.
    pub(super) fn of_commit(session: SessionId, request: RequestId, open: Open<S>) -> Self {
        let (snapshot, epoch, now_millis) = (open.snapshot, open.epoch, open.now_millis);
        let running = Running::new(session, request, Kind::Commit(open), Vec::new());
        Running { snapshot, epoch, now_millis, ..running }
    }

    /// A transaction that has not begun.
    pub(super) fn new(
        session: SessionId,
        request: RequestId,
        kind: Kind<S>,
        steps: Vec<PlannedStep>,
    ) -> Self {
        let replies = steps.iter().map(known_reply).collect();
        Running {
            session,
            request: Some(request),
            riders: Vec::new(),
            in_doubt: Vec::new(),
            kind,
            deadline: types::Instant::default(),
            snapshot: Default::default(),
            seen: Default::default(),
            epoch: 0,
            beyond: Vec::new(),
            now_millis: 0,
            steps,
            watches: BTreeMap::new(),
            replies,
            numbers: BTreeMap::new(),
            chosen: BTreeMap::new(),
            attempts: 0,
            regions: RegionSet::default(),
            phase: Phase::Slices { round: 0, awaited: BTreeMap::new() },
        }
    }
}

impl<S: Times> Coordinator<S> {
    pub(super) fn start_steps(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        riders: Vec<RequestId>,
        steps: Vec<PlannedStep>,
        watched: bool,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let of_losses = |step: &PlannedStep| matches!(step, PlannedStep::Losses(_));
        if (!S::MERGES || self.options.conflict_bytes == 0) && steps.iter().any(of_losses) {
            return out.reply(id).error(&Losses::none());
        }
        let mut running = Running { riders, ..Running::new(session, id, Kind::OneShot, steps) };
        running.deadline = now.instant + self.options.give_up_after;
        if watched {
            running.watches = std::mem::take(&mut self.sessions.entry(session).or_default().watches);
            if running.watches.values().any(|watch| watch.deadline <= now.instant) {
                return out.reply(id).null_array();
            }
        }
        self.attempt(now, running, out);
    }

    /// Begins a transaction, or begins it again: with a number, a snapshot and a view of the cache of its own.
    pub(super) fn attempt(&mut self, now: Now, mut running: Running<S>, out: &mut Outputs<'_, Node<S>>) {
        let number = self.new_number();
        if let Kind::OneShot = running.kind {
            running.snapshot = match S::OPTIMISTIC {
                true => self.snapshot_for(now, &mut running),
                false => self.snapshot(now, running.session),
            };
            let thread = self.thread(running.session);
            running.epoch = thread.epoch;
            running.now_millis = millis(now, thread.highest);
            if running.attempts > 0 {
                running.replies = running.steps.iter().map(known_reply).collect();
                running.numbers.clear();
            }
        }
        self.sessions.entry(running.session).or_default().running = Some(number);
        out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
        if let Kind::Commit(_) = running.kind {
            return self.prepare(now, number, running, out);
        }
        let questions = self.questions(number, &running);
        if questions.is_empty() {
            return self.after_slices(now, number, running, out);
        }
        let targets = match self.targets(questions.iter().map(|(partition, _)| partition)) {
            Ok(targets) => targets,
            Err(silent) => return self.fail_early(now, number, running, silent, out),
        };
        for (partition, question) in questions {
            out.send(targets[&partition], question);
        }
        running.phase = Phase::Slices { round: 0, awaited: targets };
        self.running.insert(number, running);
    }

    /// The replica to ask of each of these partitions.
    ///
    /// # Errors
    /// Names a partition that has none that answers.
    pub(super) fn targets<'p>(
        &mut self,
        partitions: impl Iterator<Item = &'p u16>,
    ) -> Result<BTreeMap<u16, Address>, u16> {
        let mut targets = BTreeMap::new();
        for partition in partitions {
            targets.insert(*partition, self.routes.target(*partition).ok_or(*partition)?);
        }
        Ok(targets)
    }

    /// Ends a transaction that was about to go on, because a partition has no replica that answers: nothing happened.
    pub(super) fn fail_early(
        &mut self,
        now: Now,
        number: u64,
        running: Running<S>,
        silent: u16,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        self.running.insert(number, running);
        let text = format!("{} cannot be reached; nothing was done", self.whereabouts(silent));
        let reason = FailureReason::Silent([silent].into());
        self.fail(now, number, reason, Error::new(ErrorCode::Unavailable, text), out);
    }

    /// Asks again what has not been answered, the next replica where there is one. False if that is in vain, because
    /// all replicas of a partition are silent.
    pub(super) fn ask_again(&mut self, number: u64, out: &mut Outputs<'_, Node<S>>) -> bool {
        let Some(running) = self.running.get(&number) else { return true };
        let questions = self.questions(number, running);
        let Some(Running { phase: Phase::Slices { awaited, .. }, .. }) = self.running.get_mut(&number) else {
            return true;
        };
        for (partition, question) in questions {
            if let Some(replica) = awaited.get_mut(&partition) {
                *replica = self.routes.next(partition, *replica);
                out.send(*replica, question);
            }
        }
        awaited.values().all(|replica| !self.routes.is_silent(*replica))
    }

    /// The request to each partition. In one region, a transaction with an observing write reads its keys at the
    /// primaries, when it prepares: one snapshot could not show what they observe. Where parts may be in several
    /// regions, the newest states there would not belong together: it reads its snapshot, and has that validated.
    fn questions(&self, number: u64, running: &Running<S>) -> Vec<(u16, Message<S>)> {
        let at_primaries = S::OBSERVES
            && matches!(running.kind, Kind::OneShot)
            && running.steps.iter().any(PlannedStep::is_observing);
        let mut parts = if at_primaries { Parts::new() } else { work_of(&running.steps) };
        if running.draws() {
            let mut gathering = Gathering::of(parts);
            for (partition, key) in self.candidates(number, running) {
                gathering.part(partition, &key).work.push(Work::Candidate);
            }
            parts = gathering.parts;
        }
        for of_partition in parts.values_mut() {
            let asks = |work: &Work<S>| matches!(work, Work::Evaluate { .. } | Work::Candidate);
            of_partition.retain(|part| part.work.iter().any(asks));
            of_partition.iter_mut().for_each(|part| {
                (part.cached, part.overlay) = self.overlay(running, &part.key);
            });
        }
        let mut keyspace_work = keyspace_work_of(&running.steps, self.topology.partitions());
        let mut questions = Vec::new();
        for partition in 0..self.topology.partitions() {
            let parts = parts.remove(&partition).unwrap_or_default();
            let keyspace_work = keyspace_work.remove(&partition).unwrap_or_default();
            if !parts.is_empty() || !keyspace_work.is_empty() {
                let (id, snapshot, now_millis) = (self.id(number), running.snapshot, running.now_millis);
                let fresh = self.is_fresh(running);
                let message =
                    Message::SliceReq { id, round: 0, snapshot, fresh, now_millis, parts, keyspace_work };
                questions.push((partition, message));
            }
        }
        questions
    }

    /// What a transaction sees of a key beyond its snapshot: its thread's cache, then its own writes.
    fn overlay(&self, running: &Running<S>, key: &[u8]) -> Seen<S> {
        let thread = self.threads.get(&self.thread_key(running.session));
        let epoch = if self.options.mutants.has(Mutant::CacheUnversioned) { u64::MAX } else { running.epoch };
        let cached = thread.map(|thread| thread.overlay(key, running.snapshot.reach(), epoch).0);
        let open = self.sessions.get(&running.session).and_then(|state| state.open.as_ref());
        let own =
            open.filter(|_| matches!(running.kind, Kind::Operate)).into_iter().flat_map(|open| &open.done);
        let own = own.filter(|done| *done.key == *key).flat_map(Done::effects).cloned();
        (cached.unwrap_or_default(), own.collect())
    }

    pub(super) fn on_slice_resp(
        &mut self,
        now: Now,
        from: Address,
        id: TransactionId,
        round: u32,
        outcome: Outcome<S::Depends>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some((number, partition)) = self.number(id).zip(self.partition_at(from)) else { return };
        let Some(running) = self.running.get_mut(&number) else { return };
        let Phase::Slices { round: current, awaited } = &mut running.phase else { return };
        if *current != round || !awaited.contains_key(&partition) {
            return;
        }
        let is_refused = |outcome: &Outcome<S::Depends>| match outcome {
            Outcome::Refused { error } => error.code == ErrorCode::Unavailable,
            Outcome::Done { .. } | Outcome::TooOld => false,
        };
        if is_refused(&outcome) && self.routes.has_choice(partition) {
            // The coordinator soon queries the next replica.
            return;
        }
        awaited.remove(&partition);
        let last = awaited.is_empty();
        match outcome {
            Outcome::Done { answers, seen } => {
                running.seen = seen.map_or(running.seen, |seen| running.seen.with(seen));
                answers.into_iter().for_each(|answer| running.take_answer(partition, answer));
                if last && let Some(running) = self.running.remove(&number) {
                    self.after_slices(now, number, running, out);
                }
            }
            Outcome::TooOld if matches!(running.kind, Kind::OneShot) => {
                self.begin_again(now, number, Obstacle::Aborted, random, out);
            }
            Outcome::TooOld => {
                let text = "the transaction's snapshot is no longer kept; begin it again";
                let error = Error::new(ErrorCode::SnapshotTooOld, text);
                self.fail(now, number, FailureReason::Refused, error, out);
            }
            Outcome::Refused { error } => self.fail(now, number, FailureReason::Refused, error, out),
        }
    }

    /// All reads are answered.
    fn after_slices(
        &mut self,
        now: Now,
        number: u64,
        mut running: Running<S>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        running.assembled().finish(self.topology.partitions());
        self.track(running.session, running.seen);
        if running.draws() && self.own_keys(&running).count() > draw::CANDIDATES {
            running.doubt_draws();
        }
        match running.kind {
            Kind::OneShot
                if running.steps.iter().any(PlannedStep::is_write) || !running.watches.is_empty() =>
            {
                self.prepare(now, number, running, out);
            }
            Kind::Operate => {
                if let Some(open) =
                    self.sessions.get_mut(&running.session).and_then(|state| state.open.as_mut())
                {
                    running.add_writes(open);
                }
                self.answer(now, number, running, out);
            }
            Kind::Watch => {
                self.add_watches(now, &running);
                self.answer(now, number, running, out);
            }
            _ => {
                self.claim(number, &running, None, &[]);
                self.answer(now, number, running, out);
            }
        }
    }

    pub(super) fn operate(
        &mut self,
        now: Now,
        session: SessionId,
        id: RequestId,
        steps: Vec<PlannedStep>,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(open) = self.sessions.get(&session).and_then(|state| state.open.as_ref()) else {
            return out.reply(id).error(&self.missing(session));
        };
        let refusal = steps.iter().find_map(|step| match step {
            PlannedStep::Key { .. } if open.read_only && step.is_write() => {
                Some("the transaction was begun READONLY; writes are refused")
            }
            PlannedStep::Key { .. } | PlannedStep::Random => None,
            _ => Some(
                "commands on the whole keyspace cannot be part of an interactive transaction; run them outside of it",
            ),
        });
        if let Some(text) = refusal {
            return out.reply(id).error(&Error::err(text));
        }
        let mut running = Running::new(session, id, Kind::Operate, steps);
        (running.snapshot, running.epoch, running.now_millis) = (open.snapshot, open.epoch, open.now_millis);
        running.deadline = now.instant + self.options.give_up_after;
        self.attempt(now, running, out);
    }
}

impl<S: Times> Running<S> {
    pub(super) fn take_answer(&mut self, partition: u16, mut answer: Answer) {
        if let Some(PlannedStep::Key { .. }) = self.steps.get(answer.step as usize) {
            self.chosen.insert(answer.step, std::mem::take(&mut answer.effects));
        }
        self.assembled().take(partition, answer);
    }

    fn assembled(&mut self) -> Replies<'_> {
        Replies { steps: &self.steps, replies: &mut self.replies, numbers: &mut self.numbers }
    }

    /// The writes of a transaction that read its snapshot, by key and in order.
    pub(super) fn chosen_parts(&self) -> Parts<S> {
        let mut gathering = Gathering::of(Parts::new());
        for (number, step) in (0u32..).zip(&self.steps) {
            match step {
                PlannedStep::Key { key, partition, what } => {
                    let chosen = || self.chosen.get(&number).cloned().unwrap_or_default();
                    gathering.part(*partition, key).work.extend(what.chosen(chosen));
                }
                PlannedStep::Flush => {
                    let all = gathering.parts.values_mut().flatten();
                    all.for_each(|part| part.work.push(Work::Effect { effect: deletion() }));
                }
                PlannedStep::Count
                | PlannedStep::Keys
                | PlannedStep::Random
                | PlannedStep::Scan { .. }
                | PlannedStep::Losses(_) => {}
            }
        }
        let mut parts = gathering.parts;
        for of_partition in parts.values_mut() {
            of_partition.retain(|part| !part.work.is_empty());
        }
        parts.retain(|_, of_partition| !of_partition.is_empty());
        parts
    }

    /// Adds the writes of these steps to the interactive transaction, in order.
    fn add_writes(&mut self, open: &mut Open<S>) {
        for (number, step) in (0u32..).zip(&self.steps) {
            let PlannedStep::Key { key, partition, what } = step else { continue };
            let chosen = self.chosen.remove(&number).unwrap_or_default();
            let Some(work) = what.chosen(|| chosen) else { continue };
            open.done.push(Done { key: key.clone(), partition: *partition, work });
        }
    }
}

impl KeyAction {
    /// What a step that was evaluated on a snapshot does to its key; `None` if it only read.
    fn chosen<S>(&self, effects: impl FnOnce() -> Vec<Box<[u8]>>) -> Option<Work<S>> {
        match self {
            KeyAction::Read { .. } => None,
            KeyAction::Write { effect, .. } => Some(Work::Effect { effect: effect.clone() }),
            KeyAction::Observing { operation, .. } => {
                Some(Work::Observed { operation: operation.clone(), effects: effects() })
            }
        }
    }
}
