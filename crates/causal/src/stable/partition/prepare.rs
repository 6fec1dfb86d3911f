//! The participant's vote: evaluates what must see the newest state, checks what is in the way, proposes a commit
//! timestamp (Wren, Algorithm 6, lines 13 to 19; Corrections 21, 26 and 70).

use super::slices::{Evaluation, OverlaidState};
use super::{Decided, Partition, Pending, borrowed, effects_of};
use crate::stable::intent::{self, PreparedOperation, WriteIntent, encoded};
use crate::stable::message::{
    Answer, EvaluationResults, KeyEffects, KeyspaceWork, Message, Part, Vote, Work,
};
use crate::stable::record::Record;
use crate::stable::stamp::Stamp;
use crate::stable::{Depends, Mutant, Node, Times};
use datatypes::Effect;
use mvcc::Bounds;
use protocol::{Now, Outputs};
use std::borrow::Cow;
use std::collections::BTreeMap;
use types::{
    Address, Error, ErrorCode, KeyHash, RegionId, RegionSet, ReplyBuf, Rng, Timestamp, TransactionId,
};

/// What a `Prepare` requests, except for the work.
struct PrepareRequest<S> {
    id: TransactionId,
    regions: RegionSet,
    snapshot: S,
    pessimistic: bool,
    now_millis: u64,
}

impl<S: Times> PrepareRequest<S> {
    /// True if an effect is not there for a transaction in this region, although its place is (Corrections 43).
    fn hides(&self, stamp: &Stamp<S::Depends>, region: RegionId) -> bool {
        self.pessimistic && self.snapshot.hides(stamp, region)
    }
}

/// What has been worked out of a `Prepare`.
#[derive(Default)]
struct EvaluatedPrepare {
    intents: BTreeMap<Box<[u8]>, WriteIntent>,
    results: EvaluationResults,
}

fn first_key<S: Times>(parts: &[Part<S>]) -> Box<[u8]> {
    parts.first().map(|part| Box::from(&*part.key)).unwrap_or_default()
}

impl<S: Times> Partition<S> {
    pub(super) fn on_prepare(
        &mut self,
        now: Now,
        from: Address,
        message: Message<S>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let Some(message) = self.when_clock_passes(now, from, message, out) else { return };
        let Message::Prepare {
            id,
            settled,
            snapshot,
            highest,
            now_millis,
            decider,
            regions,
            alone,
            pessimistic,
            parts,
            keyspace_work,
        } = message
        else {
            return;
        };
        if !self.decisions.admit(id, settled, |decided| decided.outlives) {
            return;
        }
        let regions_lost = self.evictions.has_any(regions);
        let vote = match self.known_vote(id) {
            Some(vote) => vote,
            None if regions_lost => {
                self.on_abort(id, out);
                Vote::Aborted
            }
            None => {
                let terms = PrepareRequest { id, regions, snapshot, pessimistic, now_millis };
                match self.consider(now, &terms, highest, &parts, &keyspace_work, random) {
                    Ok(worked) if alone => self.commit_alone(now, &terms, worked, out),
                    Ok(worked) => self.propose(now, &terms, decider, worked, out),
                    Err(vote) => {
                        // The coordinator may try again under another number: a repetition of this message must not
                        // do it a second time.
                        self.on_abort(id, out);
                        vote
                    }
                }
            }
        };
        out.send(from, Message::PrepareResp { id, vote });
    }

    /// The vote on a repeated `Prepare`.
    fn known_vote(&self, id: TransactionId) -> Option<Vote<S::Depends>> {
        if let Some(decided) = self.decisions.get(id) {
            return Some(match decided.at {
                Some(at) => Vote::Committed { at, results: decided.results.clone() },
                None => Vote::Aborted,
            });
        }
        let (at, pending) = self.participant.prepared(id)?;
        Some(Vote::Prepared { at, results: pending.results.clone() })
    }

    fn consider(
        &mut self,
        now: Now,
        terms: &PrepareRequest<S>,
        highest: Timestamp,
        parts: &[Part<S>],
        keyspace_work: &[KeyspaceWork],
        random: &mut Rng,
    ) -> Result<EvaluatedPrepare, Vote<S::Depends>> {
        if let Some(region) = self.evictions.bereaves::<S>(terms.snapshot.depends_on(self.region)) {
            let error = Error::new(ErrorCode::Unavailable, self.topology.why_bereft(region));
            return Err(Vote::Refused { error });
        }
        if S::OPTIMISTIC && self.lacks_observed(terms.snapshot, parts) {
            // The state may arrive soon: the coordinator retries, as long as the client waits.
            return Err(Vote::Lacking { key: first_key(parts), raise: S::Depends::default() });
        }
        if self.clock.observe(highest, now.wall).is_err() {
            let text = format!(
                "the session's time is too far ahead of the clock of partition {}; nothing was done",
                self.index
            );
            return Err(Vote::Refused { error: Error::refused(text) });
        }
        if terms.snapshot.reach() <= self.fence {
            // It may be a repetition of what was committed, aborted or refused and is forgotten.
            return Err(Vote::TooOld);
        }
        self.learn_stable(now, terms.snapshot);
        if S::observed(terms.snapshot.depends_on(self.region)) < self.promised_dependencies {
            // The partition has promised its peers that later effects have observed more. The coordinator's lease is
            // long over.
            let raise = S::from_whole(self.promised_dependencies).depends_on(self.region);
            return Err(Vote::Conflict { key: first_key(parts), raise });
        }
        self.work_out(terms, parts, keyspace_work, random)
    }

    fn work_out(
        &mut self,
        terms: &PrepareRequest<S>,
        parts: &[Part<S>],
        keyspace_work: &[KeyspaceWork],
        random: &mut Rng,
    ) -> Result<EvaluatedPrepare, Vote<S::Depends>> {
        let mut worked = EvaluatedPrepare::default();
        for part in parts {
            self.work_out_part(terms, part, random, &mut worked)?;
        }
        for keyspace_work in keyspace_work {
            if let KeyspaceWork::Flush { step, except } = keyspace_work {
                let flushed: Vec<_> = self.keys().into_iter().filter(|key| !except.contains(key)).collect();
                for key in &flushed {
                    let operations = vec![PreparedOperation::blind(encoded(&Effect::DELETE))];
                    worked.intents.insert(key.clone(), WriteIntent { key: key.clone(), operations });
                }
                worked.results.answers.push(Answer { flushed, ..Answer::new(*step, ReplyBuf::new()) });
            }
        }
        match worked.intents.values().find(|intent| self.is_blocked(intent)) {
            Some(intent) => Err(Vote::Conflict { key: intent.key.clone(), raise: S::Depends::default() }),
            None => Ok(worked),
        }
    }

    fn work_out_part(
        &mut self,
        terms: &PrepareRequest<S>,
        part: &Part<S>,
        random: &mut Rng,
        worked: &mut EvaluatedPrepare,
    ) -> Result<(), Vote<S::Depends>> {
        let hash = self.store.hash(&part.key);
        self.store.unpack(hash, &part.key);
        let mut intent = WriteIntent { key: (*part.key).into(), operations: Vec::new() };
        let (mut before, mut ahead): (Vec<Box<[u8]>>, _) = (Vec::new(), OverlaidState::of(part.work.len()));
        let mut known = true;
        if part.work.iter().any(|work| matches!(work, Work::Evaluate { .. })) {
            self.observe_newest(terms, hash, part, &mut worked.results)?;
        }
        for work in &part.work {
            let prepared = match work {
                Work::Effect { effect } => {
                    if before.is_empty()
                        && let Some(expiry) = self.expiry(hash, &part.key, effect, terms.now_millis)
                    {
                        intent.operations.push(PreparedOperation::blind(encoded(&expiry)));
                        before.push(encoded(&expiry));
                        known = false;
                    }
                    let prepared = PreparedOperation::blind(effect.clone());
                    let decoded = intent::effect(effect);
                    if decoded.as_ref().is_some_and(|effect| effect.kind().is_some()) {
                        self.withstands_hidden(terms, hash, &part.key, &prepared)?;
                    }
                    if decoded.as_ref().is_some_and(Effect::may_remove) {
                        self.spares_hidden(terms, hash, &part.key, &prepared)?;
                    }
                    if self.is_of_another_type(terms, hash, &part.key, effect, &before) {
                        // As everywhere, what is outside its type stays as it is.
                        known = false;
                        continue;
                    }
                    prepared
                }
                Work::Evaluate { step, operation, blind } => {
                    known = false;
                    let evaluation = Evaluation {
                        hash,
                        key: &part.key,
                        cached: &[],
                        before: &before,
                        operation,
                        blind: *blind,
                        now_millis: terms.now_millis,
                        site: self.topology.site(self.region),
                    };
                    self.evaluate_newest(terms, *step, &evaluation, &mut ahead, random, &mut worked.results)?
                }
                Work::Candidate => continue,
                Work::Observed { operation, effects } => {
                    self.confirm_observed(terms, hash, part, operation, effects)?
                }
                Work::Watched { since, at_millis } => {
                    self.confirm_watched(terms, hash, part, (*since, *at_millis))?
                }
            };
            before.extend(prepared.effects.iter().cloned());
            intent.operations.push(prepared);
        }
        if !known {
            let effects = intent.effects().cloned().collect();
            worked.results.effects.push(KeyEffects { key: (*part.key).into(), effects });
        }
        worked.intents.insert((*part.key).into(), intent);
        Ok(())
    }

    /// Effects that were chosen on the snapshot: refused if something that matters to their operation came since.
    fn confirm_observed(
        &mut self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        part: &Part<S>,
        operation: &[u8],
        effects: &[Box<[u8]>],
    ) -> Result<PreparedOperation, Vote<S::Depends>> {
        let prepared =
            PreparedOperation { operation: Some(operation.into()), whole: false, effects: effects.into() };
        let stands = match self.settle(hash, &part.key, operation) {
            Some(settlement) => settlement.effects() == *effects,
            None => self.is_unchanged(terms, (terms.snapshot, S::default()), hash, part, &prepared)?,
        };
        self.withstands_hidden(terms, hash, &part.key, &prepared)?;
        if !stands || self.spares_hidden(terms, hash, &part.key, &prepared).is_err() {
            return Err(Vote::Changed { key: (*part.key).into() });
        }
        Ok(prepared)
    }

    /// A watched key: refused if it has changed or expired since, as the transaction would mix states of two times.
    fn confirm_watched(
        &self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        part: &Part<S>,
        (since, at_millis): (S, u64),
    ) -> Result<PreparedOperation, Vote<S::Depends>> {
        let prepared = PreparedOperation { whole: true, ..PreparedOperation::default() };
        if self.has_expired_since(hash, &part.key, at_millis, terms.now_millis)
            || !self.is_unchanged(terms, (since, terms.snapshot), hash, part, &prepared)?
        {
            return Err(Vote::Touched);
        }
        Ok(prepared)
    }

    /// True if the key or a field had a deadline that passed between these times, in milliseconds since 1970.
    fn has_expired_since(&self, hash: KeyHash, key: &[u8], since: u64, now: u64) -> bool {
        let record = self.store.record(hash, key);
        record.is_some_and(|record| (since + 1..=now).contains(&record.cell().next_deadline(since)))
    }

    /// The deletion of what has expired of a key: an effect there starts without it, unless it replaces everything anyway.
    fn expiry(&self, hash: KeyHash, key: &[u8], effect: &[u8], now_millis: u64) -> Option<Effect<'static>> {
        let expiry = self.store.record(hash, key)?.cell().expiry(now_millis);
        expiry.filter(|_| intent::effect(effect).is_some_and(|effect| effect.kind().is_some()))
    }

    /// True if the key, as the effect's group and the snapshot show it, holds another type than the effect is for.
    fn is_of_another_type(
        &mut self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        key: &[u8],
        effect: &[u8],
        before: &[Box<[u8]>],
    ) -> bool {
        let Some(kind) = intent::effect(effect).and_then(|effect| effect.kind()) else { return false };
        let newest = self.store.record(hash, key).and_then(|record| record.cell().kind());
        let fits = newest.is_none_or(|newest| newest == kind) && !self.store.waits(hash, key);
        if before.is_empty() && fits {
            return false;
        }
        let (region, snapshot) = (self.region, terms.snapshot);
        let group = S::group(&self.stamp(terms.id, Timestamp::MAX, terms.snapshot.depends_on(region)));
        let before: Vec<Effect<'_>> = before.iter().filter_map(|bytes| intent::effect(bytes)).collect();
        let visible = |stamp: &Stamp<S::Depends>| S::group(stamp) == group || snapshot.shows(stamp, region);
        let bounds = terms.snapshot.bounds(region).map(|bounds| Bounds {
            group,
            own: Stamp::last_at(Timestamp::MAX),
            ..bounds
        });
        let seen = self.store.with_later(hash, key, visible, bounds, &[], &before, |cell| cell.kind());
        seen.is_some_and(|seen| seen != kind)
    }

    /// What a pessimistic session writes counts as having observed all of its region before it, and of the others all up to its
    /// snapshot's entries; also what the session does not see of that. So it must be the same with it, or replace all of it
    /// (Corrections 43 and 70).
    fn withstands_hidden(
        &self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        key: &[u8],
        prepared: &PreparedOperation,
    ) -> Result<(), Vote<S::Depends>> {
        if !terms.pessimistic {
            return Ok(());
        }
        let mut effects = self.store.effects_beyond(hash, key, None);
        let in_the_way =
            effects.find(|(stamp, effect)| terms.hides(stamp, self.region) && !prepared.withstands(effect));
        let Some((stamp, _)) = in_the_way else { return Ok(()) };
        if self.has_received(S::default().with(stamp.depends_on)) {
            // Other partitions will soon have received it, too.
            return Err(Vote::Lacking { key: key.into(), raise: S::Depends::default() });
        }
        let text = format!(
            "key '{}' holds writes that this session does not see, because they depend on a region that is cut off; nothing \
             was done; SET replaces them",
            String::from_utf8_lossy(key)
        );
        Err(Vote::Refused { error: Error::new(ErrorCode::Unavailable, text) })
    }

    /// What an optimistic session writes counts as having observed all up to its snapshot's entries, too; what of that has not
    /// been shown, as it depends on something that is missing here, it must not take back: it waits for what is missing.
    fn spares_hidden(
        &self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        key: &[u8],
        prepared: &PreparedOperation,
    ) -> Result<(), Vote<S::Depends>> {
        if !S::OPTIMISTIC || terms.pessimistic {
            return Ok(());
        }
        let written = PreparedOperation { operation: None, whole: false, effects: prepared.effects.clone() };
        let hidden = self.store.effects_beyond(hash, key, None).filter(|(stamp, effect)| {
            stamp.region != self.region && self.counts_unseen(terms, stamp) && !written.withstands(effect)
        });
        match hidden.map(|(stamp, _)| stamp.depends_on).reduce(S::Depends::of_either) {
            None => Ok(()),
            Some(raise) => Err(Vote::Lacking { key: key.into(), raise }),
        }
    }

    /// True if an effect counts as observed by its place, although something is missing here that it depends on.
    fn counts_unseen(&self, terms: &PrepareRequest<S>, stamp: &Stamp<S::Depends>) -> bool {
        terms.snapshot.hides(stamp, self.region)
            || terms.snapshot.shows(stamp, self.region)
                && !self.has_received(S::default().with(stamp.depends_on))
    }

    /// The newest state shows what this region has committed and what is stable of the others. Notes what of it the
    /// snapshot does not show; what depends on more of the others than the snapshot shows needs a newer snapshot.
    fn observe_newest(
        &self,
        terms: &PrepareRequest<S>,
        hash: KeyHash,
        part: &Part<S>,
        results: &mut EvaluationResults,
    ) -> Result<(), Vote<S::Depends>> {
        if terms.snapshot.whole() < self.horizon.whole() {
            return Err(Vote::TooOld);
        }
        let newest = self.store.stamps_beyond(hash, &part.key, terms.snapshot.bounds(self.region));
        let mut raise = S::Depends::default();
        let is_there =
            |stamp: &Stamp<S::Depends>| stamp.region == self.region && !terms.hides(stamp, self.region);
        for stamp in newest.filter(is_there) {
            if !terms.snapshot.shows_all_of(stamp.depends_on) {
                raise = raise.of_either(stamp.depends_on);
            }
            let place = (stamp.at, stamp.transaction);
            let shown = terms.snapshot.shows(&stamp, self.region) || part.own.contains(&stamp.transaction);
            if !shown && results.observed.last() != Some(&place) {
                results.observed.push(place);
            }
        }
        match raise == S::Depends::default() {
            true => Ok(()),
            false => Err(Vote::Conflict { key: (*part.key).into(), raise }),
        }
    }

    fn evaluate_newest(
        &mut self,
        terms: &PrepareRequest<S>,
        step: u32,
        evaluation: &Evaluation<'_, S::Depends>,
        ahead: &mut OverlaidState,
        random: &mut Rng,
        results: &mut EvaluationResults,
    ) -> Result<PreparedOperation, Vote<S::Depends>> {
        if let Some(settlement) = self.settle(evaluation.hash, evaluation.key, evaluation.operation) {
            let prepared = PreparedOperation {
                operation: Some(evaluation.operation.into()),
                whole: false,
                effects: settlement.effects(),
            };
            results.answers.push(Answer::new(step, settlement.reply));
            return Ok(prepared);
        }
        let mut reply = ReplyBuf::new();
        let (region, snapshot) = (self.region, terms.snapshot);
        let visible = |stamp: &Stamp<S::Depends>| {
            stamp.region == region && !terms.hides(stamp, region) || snapshot.shows(stamp, region)
        };
        let bounds = terms
            .snapshot
            .bounds(region)
            .map(|bounds| Bounds { own: Stamp::last_at(Timestamp::MAX), ..bounds });
        let effects = evaluation.run(&mut self.store, visible, bounds, ahead, random, &mut reply).map_err(
            |malformed| Vote::Refused { error: Error::refused(format!("a transaction holds a {malformed}")) },
        )?;
        let prepared =
            PreparedOperation { operation: Some(evaluation.operation.into()), whole: false, effects };
        self.withstands_hidden(terms, evaluation.hash, evaluation.key, &prepared)?;
        self.spares_hidden(terms, evaluation.hash, evaluation.key, &prepared)?;
        results.answers.push(Answer::new(step, reply));
        Ok(prepared)
    }

    /// True if nothing of this region that `since` does not show matters to the operation, nor of another region what `others`
    /// shows; the session's own apart.
    fn is_unchanged(
        &self,
        terms: &PrepareRequest<S>,
        (since, others): (S, S),
        hash: KeyHash,
        part: &Part<S>,
        prepared: &PreparedOperation,
    ) -> Result<bool, Vote<S::Depends>> {
        if since.whole() < self.horizon.whole() {
            return Err(if prepared.whole { Vote::Touched } else { Vote::TooOld });
        }
        let bounds = since.bounds(self.region).filter(|_| others.whole() <= since.whole());
        let later = self.store.effects_beyond(hash, &part.key, bounds);
        let mut foreign = later.filter(|(stamp, _)| {
            (stamp.region == self.region || others.shows(stamp, self.region))
                && !since.shows(stamp, self.region)
                && !(stamp.region == self.region && terms.hides(stamp, self.region))
                && !part.own.contains(&stamp.transaction)
        });
        Ok(foreign.all(|(_, foreign)| prepared.withstands(&foreign)))
    }

    fn is_blocked(&self, intent: &WriteIntent) -> bool {
        if self.options.mutants.has(Mutant::UndecidedIgnored) {
            return false;
        }
        let holders = self.held.get(&intent.key).into_iter().flatten();
        let theirs = holders.filter_map(|id| self.participant.prepared(*id)).flat_map(|(_, p)| &p.intents);
        theirs.filter(|other| other.key == intent.key).any(|other| other.is_in_the_way_of(intent))
    }

    fn depends_on(&self, terms: &PrepareRequest<S>) -> S::Depends {
        S::with_parts(terms.snapshot.depends_on(self.region), terms.regions)
    }

    /// The proposal is above everything stamped, published or observed (Corrections 21).
    fn propose(
        &mut self,
        now: Now,
        terms: &PrepareRequest<S>,
        decider: Address,
        worked: EvaluatedPrepare,
        out: &mut Outputs<'_, Node<S>>,
    ) -> Vote<S::Depends> {
        let (id, at) = (terms.id, self.clock.tick(now.wall));
        let depends_on = self.depends_on(terms);
        let intents: Vec<WriteIntent> = worked.intents.into_values().collect();
        let results = Cow::Borrowed(&worked.results);
        let record =
            Record::Prepared { id, at, depends_on, decider, intents: Cow::Borrowed(&intents), results };
        self.persist(&record, out);
        self.hold(id, &intents);
        let results = worked.results.clone();
        self.participant.prepare(
            id,
            at,
            Pending { depends_on, decider, intents, results, since: now.instant, fenced: false },
        );
        Vote::Prepared { at, results: worked.results }
    }

    /// The only participant decides at once: its record is the decision.
    fn commit_alone(
        &mut self,
        now: Now,
        terms: &PrepareRequest<S>,
        worked: EvaluatedPrepare,
        out: &mut Outputs<'_, Node<S>>,
    ) -> Vote<S::Depends> {
        let at = self.clock.tick(now.wall);
        let stamp = self.stamp(terms.id, at, self.depends_on(terms));
        let intents: Vec<WriteIntent> = worked.intents.into_values().collect();
        let effects = effects_of(&intents);
        let results = Cow::Borrowed(&worked.results);
        self.persist(&Record::Alone { effects: borrowed(stamp, &effects), results }, out);
        self.commit_effects(stamp, effects);
        let results = worked.results;
        self.decisions.decide(terms.id, Decided { at: Some(at), outlives: false, results: results.clone() });
        Vote::Committed { at, results }
    }
}
