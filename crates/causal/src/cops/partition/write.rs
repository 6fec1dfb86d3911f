//! `put_after` of a client of the region (COPS, section 4.4): everything that it depends on is visible here, so that it is
//! evaluated, stamped, logged and visible in one step. What is written across keys of the partition has one place.

use super::{Mutant, Node, Partition, Stamp, Status};
use crate::cops::message::{Message, Part, PutOutcome};
use crate::cops::record::{Record, Written};
use crate::cops::{Dependencies, Put};
use crate::stable::{Answer, Evaluation, KeyEffects, OverlaidState, Work, effect, encoded, is_nobodys};
use datatypes::Effect;
use protocol::{Now, Outputs};
use std::borrow::Cow;
use types::{Address, Error, ErrorCode, KeyHash, ReplyBuf, Rng, Timestamp, TransactionId};

/// What has been worked out of a `PutAfter`.
#[derive(Default)]
struct EvaluatedPrepare {
    answers: Vec<Answer>,
    effects: Vec<KeyEffects>,
    /// The versions that were evaluated, or that its effects merge with.
    seen: Dependencies,
    /// The latest version of a key that it writes, with the key: it is placed above, also if it depends on nothing.
    latest: (Timestamp, Box<[u8]>),
}

impl Partition {
    pub(super) fn on_put_after(
        &mut self,
        now: Now,
        from: Address,
        message: Message,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let Message::PutAfter { id, settled, life, nearest, all, latest, now_millis, parts } = message else {
            return;
        };
        if !self.answered.admit(id, settled, |_| false) {
            return;
        }
        let known = self.answered.get(id).filter(|_| !self.has(Mutant::WrittenTwice));
        let outcome = match known.cloned() {
            Some(outcome) => outcome,
            None if life < self.fence.life => {
                let up_to = (self.status == Status::Serving).then_some(self.fence.at);
                PutOutcome::Forgotten { up_to }
            }
            None => {
                let after = (nearest, all, latest);
                let outcome = match self.put_after(now, id, after, now_millis, &parts, random, out) {
                    Ok(put) => PutOutcome::Done { put: Box::new(put) },
                    Err(error) => PutOutcome::Refused { error },
                };
                if self.answered.get(id).is_none() {
                    // It wrote nothing: a repetition that is under way must not do so afterwards.
                    self.persist(&Record::Answered(id, Cow::Borrowed(&outcome)), out);
                    self.remember(id, outcome.clone());
                }
                outcome
            }
        };
        out.send(from, Message::PutResp { id, outcome });
    }

    /// A put is idempotent: a retry gets the same answer. A put without a session is never retried.
    pub(super) fn remember(&mut self, id: TransactionId, outcome: PutOutcome) {
        if !is_nobodys(id) {
            self.answered.decide(id, outcome);
        }
    }

    fn put_after(
        &mut self,
        now: Now,
        id: TransactionId,
        (nearest, all, latest): (Dependencies, Dependencies, Timestamp),
        now_millis: u64,
        parts: &[Part],
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) -> Result<Put, Error> {
        self.admit_write()?;
        let worked = self.work_out(now_millis, parts, random)?;
        let (mut nearest, mut all) = (nearest, all);
        if !self.options.serialized {
            nearest.join(&worked.seen);
        }
        nearest.forget(self.index, self.stable);
        // A Lamport clock: later than everything that it depends on, whichever region stamped that.
        let (latest, meets) = (latest.max(worked.seen.latest()), &worked.latest);
        if self.clock.observe(latest.max(meets.0), now.wall).is_err() {
            return Err(self.too_far(latest, meets));
        }
        let got = self.got(worked.answers, worked.seen, None);
        if worked.effects.is_empty() {
            return Ok(Put { got, ..Put::default() });
        }
        all.join(&got.dependencies);
        let stamp = self.place(now, id);
        let written = Written { stamp, dependencies: all, nearest, effects: worked.effects };
        let mut put = Put { at: Some(stamp.at), got, observed: stamp.depends_on, effects: Vec::new() };
        self.write(written, &mut put, out);
        Ok(put)
    }

    /// What the session has met, or what is there of a key, was placed by a clock too far ahead (Corrections 50).
    fn too_far(&self, session: Timestamp, (latest, key): &(Timestamp, Box<[u8]>)) -> Error {
        let what = match session >= *latest {
            true => "what this session has read was".to_owned(),
            false => format!("the value of {} was", String::from_utf8_lossy(key)),
        };
        Error::refused(format!(
            "{what} written at a time that is more than {} s ahead of the clock of partition {} of region {}; nothing was done; \
             set the clocks of the regions right, then try again",
            self.options.clock_bound.as_secs(),
            self.index,
            self.topology.name(self.region)
        ))
    }

    /// # Errors
    /// It does not serve, or the queue for other regions is full.
    fn admit_write(&self) -> Result<(), Error> {
        if !self.serves() {
            return Err(self.not_serving());
        }
        if self.outbox.bytes() <= self.options.queue_bytes {
            return Ok(());
        }
        let text = format!(
            "partition {} keeps {} bytes of writes for regions that do not answer, and takes no more; nothing was done; \
             reads go on; try again when the regions are connected",
            self.index,
            self.outbox.bytes()
        );
        Err(Error::new(ErrorCode::Unavailable, text))
    }

    /// The next place: above everything stamped, reported or observed (Corrections 21).
    pub(super) fn place(&mut self, now: Now, id: TransactionId) -> Stamp {
        let at = self.clock.tick(now.wall);
        Stamp { at, transaction: id, region: self.region, depends_on: self.written }
    }

    /// Logs a version, shows it, and sends it to the other regions. `dependencies` are all that it depends on.
    pub(super) fn write(&mut self, mut written: Written, put: &mut Put, out: &mut Outputs<'_, Node>) {
        let stamp = written.stamp;
        if self.options.transactions {
            let mut all = std::mem::take(&mut written.dependencies);
            if self.has(Mutant::NearestOnly) {
                all = Dependencies::default();
            }
            all.join(&written.nearest);
            written.dependencies = self.dependencies.entry(self.region).or_default().add(stamp.at, &all);
        }
        // The log has them with the version.
        put.got.dependencies = Dependencies::default();
        put.got.seen = Dependencies::on(self.index, self.region, stamp.at);
        if self.options.claims {
            put.effects.clone_from(&written.effects);
        }
        self.persist(&Record::Put(Cow::Borrowed(&written), Cow::Borrowed(put)), out);
        put.got.dependencies = self.dependencies_of(self.region, stamp.at);
        self.remember(stamp.transaction, PutOutcome::Done { put: Box::new(put.clone()) });
        self.show(&written);
        self.outbox.push(stamp.at, stamp.transaction, written.bytes(), written);
        for peer in self.resumed() {
            self.send_due(peer, out);
        }
    }

    fn work_out(
        &mut self,
        now_millis: u64,
        parts: &[Part],
        random: &mut Rng,
    ) -> Result<EvaluatedPrepare, Error> {
        let mut worked = EvaluatedPrepare::default();
        for part in parts {
            self.work_out_part(now_millis, part, random, &mut worked)?;
        }
        Ok(worked)
    }

    fn work_out_part(
        &mut self,
        now_millis: u64,
        part: &Part,
        random: &mut Rng,
        worked: &mut EvaluatedPrepare,
    ) -> Result<(), Error> {
        let (hash, key) = (self.store.hash(&part.key), &*part.key);
        let (mut effects, mut ahead): (Vec<Box<[u8]>>, _) = (Vec::new(), OverlaidState::of(part.work.len()));
        let mut observes = false;
        for work in &part.work {
            match work {
                Work::Effect { effect } => {
                    observes |= merges(effect);
                    self.add_effect(now_millis, hash, key, effect, &mut effects);
                }
                Work::Evaluate { step, operation, blind } => {
                    observes = true;
                    if let Some(settlement) = self.settle(hash, key, operation) {
                        effects.extend(settlement.effects());
                        worked.answers.push(Answer::new(*step, settlement.reply));
                        continue;
                    }
                    let (before, blind, site) = (&effects[..], *blind, self.topology.site(self.region));
                    let evaluation =
                        Evaluation { hash, key, cached: &[], before, operation, blind, now_millis, site };
                    let mut reply = ReplyBuf::new();
                    let done = self.evaluate(None, &evaluation, &mut ahead, random, &mut reply);
                    let done =
                        done.map_err(|malformed| Error::refused(format!("a write holds a {malformed}")))?;
                    effects.extend(done);
                    worked.answers.push(Answer::new(*step, reply));
                }
                Work::Observed { .. } | Work::Candidate | Work::Watched { .. } => {
                    return Err(Error::refused("a write holds work of another protocol"));
                }
            }
        }
        if observes && !self.has(Mutant::KeyNotObserved) {
            self.versions(hash, key, None, &mut worked.seen);
        }
        if !effects.is_empty() {
            let mut there = Dependencies::default();
            self.versions(hash, key, None, &mut there);
            if there.latest() >= worked.latest.0 {
                worked.latest = (there.latest(), key.into());
            }
            worked.effects.push(KeyEffects { key: key.into(), effects });
        }
        Ok(())
    }

    /// Adds an effect that depends on no state. It starts without what has expired; one on a key of another type changes
    /// nothing.
    fn add_effect(
        &mut self,
        now_millis: u64,
        hash: KeyHash,
        key: &[u8],
        bytes: &[u8],
        effects: &mut Vec<Box<[u8]>>,
    ) {
        let Some(kind) = effect(bytes).and_then(|effect| effect.kind()) else {
            return effects.push(bytes.into());
        };
        self.store.unpack(hash, key);
        let expiry = self.store.record(hash, key).and_then(|record| record.cell().expiry(now_millis));
        if effects.is_empty() {
            effects.extend(expiry.as_ref().map(encoded));
        }
        let bounds = Some(self.everything());
        let before: Vec<Effect<'_>> = effects.iter().filter_map(|bytes| effect(bytes)).collect();
        let holds = self.store.with_later(hash, key, |_| true, bounds, &[], &before, |cell| cell.kind());
        if holds.is_none_or(|holds| holds == kind) {
            effects.push(bytes.into());
        }
    }
}

/// True if the effect is one on a value of some type, and does not replace whatever is there.
fn merges(bytes: &[u8]) -> bool {
    effect(bytes).is_some_and(|effect| effect.kind().is_some())
}
