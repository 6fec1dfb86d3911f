//! Failed batches: commands of a pipeline that ran as one transaction without success.
//!
//! If nothing of the transaction can have happened, the coordinator reports the failure only to the commands that it
//! concerns. It runs the others again: together, if they are of partitions that answer; each by itself, if a partition
//! refused them all. If the outcome is in doubt, commands that wrote get that error, and commands that only read get
//! their reply, unless an earlier command wrote the same key.

use super::Coordinator;
use super::ask::{Ask, KeyAction, PlannedStep};
use super::running::Running;
use super::session::Waiting;
use crate::stable::{Node, Times};
use protocol::{Now, Outputs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{Address, Error, ErrorCode, RequestId, SessionId};

/// Why a transaction had no effect.
#[derive(Debug)]
pub(super) enum FailureReason {
    /// These partitions have not answered.
    Silent(BTreeSet<u16>),
    /// Conflicts on this key; empty if it is not known which.
    Key(Box<[u8]>),
    /// It was refused.
    Refused,
    /// Its session degrades to a pessimistic one; the coordinator reports that to every waiting request.
    Degraded,
}

impl FailureReason {
    /// True if a command cannot have taken place because of it.
    fn is_about(&self, step: &PlannedStep) -> bool {
        match (self, step) {
            (FailureReason::Silent(partitions), PlannedStep::Key { partition, .. }) => {
                partitions.contains(partition)
            }
            (FailureReason::Key(busy), PlannedStep::Key { key, .. }) => **busy == **key,
            _ => false,
        }
    }
}

impl PlannedStep {
    /// The key that it writes or reads, if it is on one, and whether it only reads.
    fn touched(&self) -> Option<(&[u8], bool)> {
        match self {
            PlannedStep::Key { key, what, .. } => Some((key, matches!(what, KeyAction::Read { .. }))),
            _ => None,
        }
    }
}

impl<S: Times> Coordinator<S> {
    /// Of the queried partitions that have not answered, those with a silent replica; or else all of them.
    pub(super) fn silent_of(&self, awaited: &BTreeMap<u16, Address>) -> BTreeSet<u16> {
        let known = awaited.iter().filter(|(_, replica)| self.routes.is_silent(**replica));
        let known: BTreeSet<u16> = known.map(|(partition, _)| *partition).collect();
        if known.is_empty() { awaited.keys().copied().collect() } else { known }
    }

    /// Requests behind a transaction that partitions did not answer have waited for it, not for their own turn. Single
    /// commands of the same partitions need not wait for the same once more.
    pub(super) fn spare_queue(
        &mut self,
        now: Now,
        session: SessionId,
        reason: &FailureReason,
        error: &Error,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let (FailureReason::Silent(_), Some(state)) = (reason, self.sessions.get_mut(&session)) else {
            return;
        };
        for mut waiting in std::mem::take(&mut state.queue) {
            match &waiting.ask {
                Ask::Steps { steps, watched: false } if steps.len() == 1 && reason.is_about(&steps[0]) => {
                    out.reply(waiting.id).error(error);
                }
                _ => {
                    waiting.since = now.instant;
                    state.queue.push_back(waiting);
                }
            }
        }
    }

    /// None of a pipeline's commands has happened: the coordinator reports the failure to those that it concerns, or to
    /// all if it concerns none, and requeues the others.
    pub(super) fn run_separately(
        &mut self,
        now: Now,
        running: &mut Running<S>,
        reason: &FailureReason,
        error: &Error,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let alone = matches!(reason, FailureReason::Refused);
        let in_vain = !alone && !running.steps.iter().any(|step| reason.is_about(step));
        let requests: Vec<RequestId> = running.requests().collect();
        let mut again = VecDeque::new();
        for (id, step) in requests.into_iter().zip(std::mem::take(&mut running.steps)) {
            if in_vain || reason.is_about(&step) {
                out.reply(id).error(error);
            } else {
                let ask = Ask::Steps { steps: vec![step], watched: false };
                again.push_back(Waiting { id, ask, since: now.instant, alone });
            }
        }
        let state = self.sessions.entry(running.session).or_default();
        again.append(&mut state.queue);
        state.queue = again;
    }

    /// It is in doubt whether a transaction took effect.
    pub(super) fn leave_in_doubt(
        &mut self,
        number: u64,
        running: &mut Running<S>,
        error: &Error,
        out: &mut Outputs<'_, Node<S>>,
    ) {
        let requests: Vec<RequestId> = running.requests().collect();
        if running.riders.is_empty() {
            requests.iter().for_each(|request| out.reply(*request).error(error));
            (running.request, running.in_doubt) = (None, requests);
            return;
        }
        let evaluated = !running.steps.iter().any(PlannedStep::is_observing);
        let (mut written, mut in_doubt, mut read) = (BTreeSet::new(), Vec::new(), Vec::new());
        for ((request, step), reply) in requests.into_iter().zip(&running.steps).zip(&running.replies) {
            let Some((key, true)) = step.touched() else {
                written.extend(step.touched().map(|(key, _)| key));
                out.reply(request).error(error);
                in_doubt.push(request);
                continue;
            };
            if evaluated && !written.contains(key) {
                reply.replay(out.reply(request));
                read.push(request);
            } else {
                let text = "it is not known whether earlier commands of the pipeline took effect; read again";
                out.reply(request).error(&Error::new(ErrorCode::Unavailable, text));
            }
        }
        running.request = None;
        running.in_doubt = read;
        if !running.in_doubt.is_empty() {
            self.claim(number, running, None, &[]);
        }
        running.in_doubt = in_doubt;
    }
}
