//! Ends of requests: replies, errors, claims.

use super::{Coordinator, Got, Mutant, Phase, Running};
use crate::cops::message::Message;
use crate::cops::{Dependencies, Node, Put};
use crate::stable::{Entries, KeyAction, PlannedStep};
use protocol::{Claim, CommitStamp, Now, Outputs, SnapshotClaim, VectorClaim};
use std::collections::BTreeMap;
use types::{Error, ErrorCode, RegionSet, Timestamp};

impl Coordinator {
    /// Writes the replies and goes on with the session.
    pub(super) fn answer(&mut self, now: Now, number: u64, running: Running, out: &mut Outputs<'_, Node>) {
        if let Some(request) = running.request {
            let sink = out.reply(request);
            running.replies.iter().for_each(|reply| reply.replay(sink));
        }
        self.end(now, number, &running, out);
    }

    /// Replies an error: nothing happened.
    pub(super) fn fail(&mut self, now: Now, number: u64, error: &Error, out: &mut Outputs<'_, Node>) {
        let Some(running) = self.running.remove(&number) else { return };
        if let Some(request) = running.request {
            out.reply(request).error(error);
        }
        self.end(now, number, &running, out);
    }

    pub(super) fn end(&mut self, now: Now, number: u64, running: &Running, out: &mut Outputs<'_, Node>) {
        let session = running.session;
        if let Phase::Putting { partition, .. } = running.phase {
            self.unsettled.remove(&(partition, number));
        }
        out.disarm(super::Timer::Retry(number));
        if let Some(state) = self.sessions.get_mut(&session) {
            state.running = state.running.filter(|other| *other != number);
        }
        self.go_on(now, session, out);
    }

    /// The request's time is over. What may have been written is sought on, without the client.
    pub(super) fn give_up(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node>) {
        let Some(running) = self.running.get(&number) else { return };
        let error = match &running.phase {
            Phase::Getting { gone: Some(partition), .. } => self.gone(*partition),
            Phase::Getting { awaited, .. } => self.unavailable(awaited),
            Phase::Restoring { awaited, .. } => not_shown(awaited),
            Phase::Putting { partition, .. } => {
                let text = format!("{} did not say whether it has written", self.whereabouts(*partition));
                let error = Error::new(ErrorCode::UnknownOutcome, text);
                return self.leave_in_doubt(now, number, &error, out);
            }
        };
        self.fail(now, number, &error, out);
    }

    fn leave_in_doubt(&mut self, now: Now, number: u64, error: &Error, out: &mut Outputs<'_, Node>) {
        let Some(running) = self.running.get_mut(&number) else { return };
        if let Some(request) = running.request.take() {
            running.in_doubt = Some(request);
            out.reply(request).error(error);
        }
        out.arm(super::Timer::Retry(number), now.instant + self.options.retry_after);
        let session = running.session;
        if self.has(Mutant::ContextCleared)
            && let Some(state) = self.sessions.get_mut(&session)
        {
            (state.running, state.context) = (None, Default::default());
            self.go_on(now, session, out);
        }
    }

    /// The partition does not know any more whether it has written: what the session does later depends on all that it may have.
    pub(super) fn end_in_doubt(
        &mut self,
        now: Now,
        number: u64,
        partition: u16,
        up_to: Timestamp,
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(running) = self.running.remove(&number) else { return };
        if let Some(state) = self.sessions.get_mut(&running.session) {
            let maybe = Dependencies::on(partition, self.region, up_to);
            state.context.got(&maybe, &Dependencies::default(), self.options.transactions);
        }
        if let Some(request) = running.request {
            let text = format!(
                "{} lost its memory before it said whether it has written; read before you repeat it",
                self.whereabouts(partition)
            );
            out.reply(request).error(&Error::new(ErrorCode::UnknownOutcome, text));
        }
        self.end(now, number, &running, out);
    }

    fn unavailable(&self, awaited: &BTreeMap<u16, Message>) -> Error {
        let silent: Vec<String> = awaited.keys().map(|partition| self.whereabouts(*partition)).collect();
        let text = format!("{} did not answer in time; nothing was done", silent.join(", "));
        Error::new(ErrorCode::Unavailable, text)
    }

    fn gone(&self, partition: u16) -> Error {
        let text = format!(
            "{} lacks writes that the other keys depend on, which it lost or has collected; nothing was done; try again when \
             all regions are connected, or read the keys one by one",
            self.whereabouts(partition)
        );
        Error::new(ErrorCode::Unavailable, text)
    }

    /// What a request saw of each key on which something of it depends.
    fn keys_seen(&self, running: &Running, results: &BTreeMap<u16, Got>) -> Vec<(Box<[u8]>, Vec<Timestamp>)> {
        let mut keys: BTreeMap<Box<[u8]>, Vec<Timestamp>> = BTreeMap::new();
        for step in &running.steps {
            if let PlannedStep::Key { key, partition, what } = step
                && observes(what)
                && let Some(got) = results.get(partition)
            {
                keys.insert((**key).into(), got.written.by_region(self.topology.regions.len()));
            }
        }
        keys.into_iter().collect()
    }

    /// Claims what a request saw and did.
    pub(super) fn claim(
        &mut self,
        number: u64,
        running: &Running,
        results: &BTreeMap<u16, Got>,
        put: Option<&Put>,
    ) {
        if !self.options.claims {
            return;
        }
        let observed = put.map_or(Entries::default(), |put| put.observed);
        let commit = put.and_then(|put| put.at).map(|at| CommitStamp {
            at,
            depends_on: observed.least(),
            region: self.region,
            parts: RegionSet::default(),
        });
        let effects = put.into_iter().flat_map(|put| &put.effects);
        let effects = effects
            .flat_map(|of_key| of_key.effects.iter().map(|effect| (of_key.key.clone(), effect.clone())));
        self.claims.push(Claim {
            session: running.session,
            transaction: self.id(number),
            commit,
            snapshot: Some(SnapshotClaim {
                region: self.region,
                local: Timestamp::ZERO,
                remote: Timestamp::ZERO,
            }),
            vector: Some(VectorClaim {
                snapshot: Vec::new(),
                depends_on: observed.by_region(self.topology.regions.len()),
                merges: true,
                keys: Some(self.keys_seen(running, results)),
            }),
            thread: None,
            effects: effects.collect(),
            requests: running.request.or(running.in_doubt).into_iter().collect(),
            branch: None,
        });
    }
}

/// True if the reply or the effect of a step depends on what the key holds.
fn observes(what: &KeyAction) -> bool {
    match what {
        KeyAction::Read { .. } | KeyAction::Observing { .. } => true,
        KeyAction::Write { effect, .. } => {
            crate::stable::effect(effect).is_some_and(|effect| effect.kind().is_some())
        }
    }
}

/// A context's dependencies have not come in time.
fn not_shown(awaited: &BTreeMap<u16, Message>) -> Error {
    let partitions: Vec<String> = awaited.keys().map(u16::to_string).collect();
    let text = format!(
        "this region has not written yet all that the context depends on (partition {}); nothing was done; try again, with a \
         longer TIMEOUT if regions are far from one another or cut off",
        partitions.join(", ")
    );
    Error::new(ErrorCode::Unavailable, text)
}
