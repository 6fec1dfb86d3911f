//! `get` and `get_trans` (COPS, sections 4.5 and 4.6).
//!
//! A get transaction takes two rounds at most (figure 7). The first reads the latest state of each partition's keys;
//! each answer tells everything that what was read depends on. If the dependencies name a newer version of a partition
//! than was read there, the coordinator reads that partition again at exactly that version. The partition has it
//! already, as whatever a visible version depends on is visible; and the second read brings no new dependencies, as a
//! version's dependencies are transitively closed (Corrections 46).

use super::{Coordinator, Phase, Running};
use crate::cops::message::{GetOutcome, Got, Message};
use crate::cops::{Cut, Dependencies, Entries, Mutant, Node, Timer};
use crate::stable::{PlannedStep, Replies, keyspace_work_of, work_of};
use protocol::{Now, Outputs};
use std::collections::BTreeMap;
use types::{Address, RequestId, SessionId, TransactionId};

impl Coordinator {
    pub(super) fn start_get(
        &mut self,
        now: Now,
        session: SessionId,
        request: RequestId,
        steps: Vec<PlannedStep>,
        out: &mut Outputs<'_, Node>,
    ) {
        let phase = Phase::Getting {
            round: 0,
            since: now.instant,
            awaited: BTreeMap::new(),
            results: BTreeMap::new(),
            second: false,
            gone: None,
        };
        let (number, running) = self.begin(now, session, request, steps, phase);
        self.first_round(now, number, running, out);
    }

    /// Asks every partition for its latest state, perhaps not for the first time.
    fn first_round(&mut self, now: Now, number: u64, mut running: Running, out: &mut Outputs<'_, Node>) {
        let round = running.round() + 1;
        let awaited = self.questions(number, &running, round);
        running.replies = running.steps.iter().map(crate::stable::known_reply).collect();
        running.numbers.clear();
        let is_answered = awaited.is_empty();
        let (since, results) = (now.instant, BTreeMap::new());
        running.phase = Phase::Getting { round, since, awaited, results, second: false, gone: None };
        match is_answered {
            true => self.answer(now, number, running, out),
            false => self.keep(now, number, running, out),
        }
    }

    /// The questions of a first round, by partition.
    fn questions(&self, number: u64, running: &Running, round: u32) -> BTreeMap<u16, Message> {
        let mut parts = work_of::<Cut>(&running.steps);
        let mut keyspace_work = keyspace_work_of(&running.steps, self.topology.partitions());
        let (id, now_millis) = (self.id(number), running.now_millis);
        let mut questions = BTreeMap::new();
        for partition in 0..self.topology.partitions() {
            let parts = parts.remove(&partition).unwrap_or_default();
            let keyspace_work = keyspace_work.remove(&partition).unwrap_or_default();
            if !parts.is_empty() || !keyspace_work.is_empty() {
                let question = Message::Get { id, round, version: None, now_millis, parts, keyspace_work };
                questions.insert(partition, question);
            }
        }
        questions
    }

    pub(super) fn on_get_resp(
        &mut self,
        now: Now,
        from: Address,
        id: TransactionId,
        answered: u32,
        outcome: GetOutcome,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some((number, (_, partition))) = self.number(id).zip(self.topology.locate(from)) else { return };
        let Some(running) = self.running.get_mut(&number) else { return };
        let Phase::Getting { round, awaited, results, gone, .. } = &mut running.phase else { return };
        if answered != *round || awaited.remove(&partition).is_none() {
            return;
        }
        let is_last = awaited.is_empty();
        match outcome {
            GetOutcome::Done { got } => {
                results.insert(partition, got);
            }
            GetOutcome::VersionGone => {
                // It comes from other regions, and may be long in coming.
                *gone = Some(partition);
                awaited.clear();
                return out.arm(Timer::Retry(number), now.instant + self.options.tick_every);
            }
            GetOutcome::Refused { error } => return self.fail(now, number, &error, out),
        }
        if is_last && let Some(running) = self.running.remove(&number) {
            self.after_round(now, number, running, out);
        }
    }

    /// A partition did not have the requested state.
    pub(super) fn begin_again(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node>) {
        if let Some(running) = self.running.remove(&number) {
            self.first_round(now, number, running, out);
        }
    }

    /// Every partition has answered: the second round, if one is needed, or the end.
    fn after_round(&mut self, now: Now, number: u64, mut running: Running, out: &mut Outputs<'_, Node>) {
        let Phase::Getting { round, since, results, second, .. } = &running.phase else { return };
        let is_late = now.instant - *since >= self.options.lease && !self.has(Mutant::LeaseIgnored);
        if is_late && !*second && results.len() > 1 {
            // What was read first may be older than what is still known of the others' dependencies.
            return self.first_round(now, number, running, out);
        }
        let missing = match *second || results.len() == 1 || self.has(Mutant::OneRound) {
            true => BTreeMap::new(),
            false => self.missing(results),
        };
        if missing.is_empty() {
            return self.finish_get(now, number, running, out);
        }
        let round = round + 1;
        let mut first = self.questions(number, &running, round);
        first.retain(|partition, _| missing.contains_key(partition));
        for (partition, question) in &mut first {
            if let Message::Get { version, .. } = question {
                *version = missing.get(partition).copied();
            }
        }
        if let Phase::Getting { round: current, awaited, second, .. } = &mut running.phase {
            (*current, *awaited, *second) = (round, first, true);
        }
        self.keep(now, number, running, out);
    }

    /// The causally correct versions (figure 7, `ccv`), of those partitions of which more is needed than was read: what was read
    /// there, and everything of theirs that something depends on that was read anywhere.
    fn missing(&self, results: &BTreeMap<u16, Got>) -> BTreeMap<u16, Entries> {
        let mut needed = Dependencies::default();
        results.values().for_each(|got| needed.join(&got.dependencies));
        let mut missing = BTreeMap::new();
        for (partition, got) in results {
            let mut version = got.written;
            for (region, at) in needed.of(*partition) {
                version.set(region, at.max(version.of(region)));
            }
            if version != got.written {
                missing.insert(*partition, version);
            }
        }
        missing
    }

    fn finish_get(&mut self, now: Now, number: u64, mut running: Running, out: &mut Outputs<'_, Node>) {
        let Phase::Getting { results, .. } = &mut running.phase else { return };
        let results = std::mem::take(results);
        let Running { session, steps, replies, numbers, .. } = &mut running;
        let mut assembled = Replies { steps, replies, numbers };
        for (partition, got) in &results {
            got.answers.iter().for_each(|answer| assembled.take(*partition, answer.clone()));
            self.note_got(*session, *partition, got);
        }
        assembled.finish(self.topology.partitions());
        self.claim(number, &running, &results, None);
        self.answer(now, number, running, out);
    }
}

impl Running {
    /// The number of the last question.
    fn round(&self) -> u32 {
        match &self.phase {
            Phase::Getting { round, .. } => *round,
            Phase::Putting { .. } | Phase::Restoring { .. } => 0,
        }
    }
}
