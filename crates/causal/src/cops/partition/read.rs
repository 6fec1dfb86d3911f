//! `get_by_version` (COPS, section 4.5): the latest state of keys, or the one of a version for the second round of a get
//! transaction. A read never waits: whatever a visible version depends on is visible.

use super::conflicts::Concurrent;
use super::{Cut, Entries, Mutant, Node, Partition, Stamp};
use crate::cops::Dependencies;
use crate::cops::message::{GetOutcome, Got, Message, Part};
use crate::stable::{
    Answer, Evaluation, KeyspaceWork, OverlaidState, Times, Work, count_or_scan, why_unlogged,
};
use mvcc::Bounds;
use protocol::Outputs;
use types::{Address, Error, KeyHash, Malformed, RegionId, ReplyBuf, ReplySink, Rng, Timestamp};

impl Partition {
    pub(super) fn on_get(
        &mut self,
        from: Address,
        message: Message,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let Message::Get { id, round, version, now_millis, parts, keyspace_work } = message else { return };
        if version.is_some_and(|version| self.is_gone(&version)) {
            return self.answer(from, Message::GetResp { id, round, outcome: GetOutcome::VersionGone }, out);
        }
        if let Some(error) = self.unlogged(version, &parts, &keyspace_work) {
            let outcome = GetOutcome::Refused { error };
            return self.answer(from, Message::GetResp { id, round, outcome }, out);
        }
        let outcome = match self.get(version, now_millis, &parts, &keyspace_work, random) {
            Ok(got) => GetOutcome::Done { got },
            Err(malformed) => {
                GetOutcome::Refused { error: Error::err(format!("a read holds a {malformed}")) }
            }
        };
        self.answer(from, Message::GetResp { id, round, outcome }, out);
    }

    /// While the log refuses records the answer shows what the log has, and leaves.
    fn answer(&self, to: Address, message: Message, out: &mut Outputs<'_, Node>) {
        match self.unlogged.is_refusing() {
            true => out.send_logged(to, message),
            false => out.send(to, message),
        }
    }

    /// See [`why_unlogged`].
    fn unlogged(
        &self,
        version: Option<Entries>,
        parts: &[Part],
        keyspace_work: &[KeyspaceWork],
    ) -> Option<Error> {
        let is_shown = |stamp: &Stamp| version.is_none_or(|version| stamp.at <= version.of(stamp.region));
        let lacking = self.unlogged.refused();
        why_unlogged::<Cut>(&self.store, self.horizon, (parts, keyspace_work), lacking, is_shown)
    }

    pub(in crate::cops) fn on_logged(&mut self, records: u64) {
        self.unlogged.logged(records, drop);
    }

    pub(in crate::cops) fn set_refusing(&mut self, is_refusing: bool) {
        self.unlogged.set_refusing(is_refusing);
    }

    /// The state is collected, or, after a restart, not known to be complete (Corrections 46).
    fn is_gone(&self, version: &Entries) -> bool {
        let is_collected = self.horizon > version.least() && !self.has(Mutant::ReadCollected);
        is_collected || !version.is_within(&self.written)
    }

    fn get(
        &mut self,
        version: Option<Entries>,
        now_millis: u64,
        parts: &[Part],
        keyspace_work: &[KeyspaceWork],
        random: &mut Rng,
    ) -> Result<Got, Malformed> {
        let (mut answers, mut seen) = (Vec::new(), Dependencies::default());
        for part in parts {
            let hash = self.store.hash(&part.key);
            for work in &part.work {
                let Work::Evaluate { step, operation, blind } = work else { continue };
                let (key, operation) = (&*part.key, &**operation);
                let (blind, site) = (*blind, None);
                let evaluation =
                    Evaluation { hash, key, cached: &[], before: &[], operation, blind, now_millis, site };
                let mut reply = ReplyBuf::new();
                self.evaluate(version, &evaluation, &mut OverlaidState::of(1), random, &mut reply)?;
                answers.push(Answer::new(*step, reply));
            }
            self.versions(hash, &part.key, version, &mut seen);
        }
        for keyspace_work in keyspace_work {
            answers.extend(match keyspace_work {
                KeyspaceWork::Draw { step } => Some(self.draw(*step, now_millis, random)),
                KeyspaceWork::CountLosses { step, cursor } => Some(self.losses().count(*step, *cursor)),
                KeyspaceWork::Losses { step, cursor, count } => {
                    Some(self.losses().list(*step, *cursor, *count))
                }
                keyspace_work => count_or_scan(&self.store, keyspace_work, now_millis),
            });
            // Which keys there are follows from all that is visible, and from no time that was only heard.
            for (region, at) in (0u16..).map(RegionId).zip(self.shown.named().iter().copied()) {
                self.depend(region, at, &mut seen);
            }
        }
        Ok(self.got(answers, seen, version))
    }

    /// An answer, with what its reader depends on from now on.
    pub(super) fn got(&self, answers: Vec<Answer>, seen: Dependencies, version: Option<Entries>) -> Got {
        let mut dependencies = Dependencies::default();
        seen.of(self.index).for_each(|(region, at)| dependencies.join(&self.dependencies_of(region, at)));
        Got { answers, written: version.unwrap_or(self.written), seen, dependencies, stable: self.stable }
    }

    /// In COPS-GT what a version depends on, and all before it in its region's stream.
    pub(super) fn dependencies_of(&self, region: RegionId, at: Timestamp) -> Dependencies {
        self.dependencies.get(&region).map(|dependencies| dependencies.of(at)).unwrap_or_default()
    }

    /// Evaluates an operation on a state; without a version, the latest. What has concurrent values is answered by these.
    pub(super) fn evaluate(
        &mut self,
        version: Option<Entries>,
        evaluation: &Evaluation<'_, Entries>,
        ahead: &mut OverlaidState,
        random: &mut Rng,
        reply: &mut ReplyBuf,
    ) -> Result<Vec<Box<[u8]>>, Malformed> {
        if !self.options.keeps_siblings {
            return self.evaluate_shown(version, evaluation, ahead, random, reply);
        }
        match self.concurrent(version, evaluation)? {
            Concurrent::None => self.evaluate_shown(version, evaluation, ahead, random, reply),
            Concurrent::Reply(reported) => {
                reported.replay(reply);
                Ok(Vec::new())
            }
            Concurrent::Merged(merged) => {
                // What is written replaces the values that were merged, as if the handler's had been read and written.
                let before: Vec<Box<[u8]>> =
                    std::iter::once(merged).chain(evaluation.before.iter().cloned()).collect();
                let on_merged = Evaluation { before: &before, ..*evaluation };
                let mut effects =
                    self.evaluate_shown(version, &on_merged, &mut OverlaidState::of(1), random, reply)?;
                if !effects.is_empty() {
                    effects.splice(0..0, before.into_iter().take(1));
                }
                Ok(effects)
            }
        }
    }

    /// The same on the value that is shown.
    fn evaluate_shown(
        &mut self,
        version: Option<Entries>,
        evaluation: &Evaluation<'_, Entries>,
        ahead: &mut OverlaidState,
        random: &mut Rng,
        reply: &mut ReplyBuf,
    ) -> Result<Vec<Box<[u8]>>, Malformed> {
        match version {
            None => {
                let bounds = Some(self.everything());
                evaluation.run(&mut self.store, |_| true, bounds, ahead, random, reply)
            }
            Some(version) => {
                let visible = |stamp: &Stamp| stamp.at <= version.of(stamp.region);
                evaluation.run(&mut self.store, visible, None, ahead, random, reply)
            }
        }
    }

    /// Who sees all that is written here.
    pub(super) fn everything(&self) -> Bounds<Stamp> {
        let last = Stamp::last_at(Timestamp::MAX);
        Bounds { group: Cut::group_of_readers(self.region), own: last, others: last }
    }

    /// Adds the versions of a key that a state shows, but for those that every region has.
    pub(super) fn versions(
        &self,
        hash: KeyHash,
        key: &[u8],
        version: Option<Entries>,
        seen: &mut Dependencies,
    ) {
        let mut latest = Entries::default();
        let mut note = |stamp: Stamp| latest.set(stamp.region, stamp.at.max(latest.of(stamp.region)));
        match version {
            None => self.store.last_of_groups(hash, key).for_each(note),
            Some(version) => {
                let shown = self.store.stamps_beyond(hash, key, None);
                shown.filter(|stamp| stamp.at <= version.of(stamp.region)).for_each(&mut note);
            }
        }
        let named = (0u16..).map(RegionId).zip(latest.named().iter().copied());
        named.for_each(|(region, at)| self.depend(region, at, seen));
    }

    fn depend(&self, region: RegionId, at: Timestamp, seen: &mut Dependencies) {
        if at > self.stable {
            seen.add(self.index, region, at);
        }
    }

    /// A key drawn at random, with of how many, and a random number.
    fn draw(&self, step: u32, now_millis: u64, random: &mut Rng) -> Answer {
        let mut reply = ReplyBuf::new();
        reply.integer(self.store.len() as i64);
        reply.integer(random.i64(0..));
        match self.store.random_key(random, |_, record| !record.cell().is_expired(now_millis)) {
            Some(key) => reply.bulk(key),
            None => reply.null(),
        }
        Answer::new(step, reply)
    }
}
