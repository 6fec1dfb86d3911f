//! The coordinator: one operation after another for every request, each by itself.

use super::call::Call;
use super::message::{Effects, Message, Record, Timer};
use super::node::Node;
use super::{Acknowledgements, Options};
use protocol::{Input, Now, Outputs, Request};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use strict::Topology;
use strict::ir::quorum;
use strict::validation::Stamp;
use types::{
    Error, ErrorCode, HybridClock, Incarnation, Instant, ProcessId, ReplyBuf, RequestId, Rng, TransactionId,
};

/// No foreign timestamp is ever taken over.
const CLOCK_BOUND: Duration = Duration::ZERO;

/// What a request waits for.
#[derive(Debug)]
enum Phase {
    Reading { tries: usize },
    Writing { write: Record, missing: BTreeSet<usize>, result: ReplyBuf },
}

/// A request in progress.
#[derive(Debug)]
struct Pending {
    request: RequestId,
    calls: Vec<Call>,
    /// The results of the first operations; the next one is being performed.
    results: Vec<ReplyBuf>,
    phase: Phase,
    deadline: Instant,
}

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    topology: Topology,
    process: ProcessId,
    incarnation: Incarnation,
    options: Options,
    clock: HybridClock,
    /// Numbers of operations; never reset in this life.
    counter: u64,
    pending: BTreeMap<u64, Pending>,
}

impl Coordinator {
    pub(super) fn new(
        topology: Topology,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        let clock = HybridClock::new(CLOCK_BOUND);
        Coordinator { topology, process, incarnation, options, clock, counter: 0, pending: BTreeMap::new() }
    }

    /// How many requests are in progress.
    pub fn in_progress(&self) -> usize {
        self.pending.len()
    }

    fn id(&self, number: u64) -> TransactionId {
        TransactionId { process: self.process, incarnation: self.incarnation, number }
    }

    pub(super) fn on_input(
        &mut self,
        now: Now,
        input: Input<'_, Node>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        match input {
            Input::Request { id, request } => self.on_request(now, id, &request, random, out),
            Input::Message { from, message } => {
                let (Message::ReadReply { id, .. } | Message::Written { id }) = &message else { return };
                let number = id.number;
                if *id != self.id(number) {
                    return;
                }
                let (Some((_, member)), Some(pending)) =
                    (self.topology.find(from.address()), self.pending.remove(&number))
                else {
                    return;
                };
                match message {
                    Message::ReadReply { result, effects, .. } => {
                        self.on_read_reply(now, number, pending, (result, effects), random, out);
                    }
                    _ => self.on_written(now, number, pending, member, random, out),
                }
            }
            Input::Timer(Timer::Question { number }) => self.on_question(now, number, out),
            // Coordinators have no journal.
            Input::Snapshot(_) | Input::Recover(_) | Input::Recovered { .. } | Input::PeerStarted { .. } => {}
        }
    }

    fn on_request(
        &mut self,
        now: Now,
        id: RequestId,
        request: &Request<'_>,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let calls = match request {
            Request::One { operation, .. } => vec![Call::new(&self.topology, operation)],
            Request::Many { steps, watched: false, .. } | Request::Operate { steps, .. } => {
                let call = |step: &protocol::Step<'_>| match step {
                    protocol::Step::Key(keyed) => Some(Call::new(&self.topology, keyed)),
                    _ => None,
                };
                match steps.iter().map(call).collect() {
                    Some(calls) => calls,
                    None => return refuse(id, "commands on the whole keyspace", out),
                }
            }
            Request::Many { watched: true, .. } | Request::Watch { .. } => {
                return refuse(id, "watches", out);
            }
            Request::Begin { .. } | Request::Commit { .. } | Request::Unwatch { .. } => {
                return out.reply(id).simple("OK");
            }
            Request::Abort { .. } => return refuse(id, "aborts, since what was done stays", out),
            Request::Context { .. } => return refuse(id, "contexts", out),
            Request::Own { words, .. } => return out.reply(id).error(&Request::refused(words, "strict")),
            Request::Close { .. } => return,
        };
        let deadline = now.instant + self.options.request_timeout;
        let phase = Phase::Reading { tries: 0 };
        self.perform(now, Pending { request: id, calls, results: Vec::new(), phase, deadline }, random, out);
    }

    /// Begins the next operation of a request, or replies if there is none.
    fn perform(&mut self, now: Now, mut pending: Pending, random: &mut Rng, out: &mut Outputs<'_, Node>) {
        let Some(call) = pending.calls.get(pending.results.len()) else {
            for (call, result) in pending.calls.iter().zip(&pending.results) {
                call.reply(result, out.reply(pending.request));
            }
            return;
        };
        self.counter += 1;
        // Any key may have a deadline here.
        match call.without_reading(now.wall.as_millis(), random) {
            Some(written) => self.write(now, self.counter, pending, written, out),
            None => {
                pending.phase = Phase::Reading { tries: 0 };
                self.ask(now, self.counter, pending, out);
            }
        }
    }

    /// Sends the question, perhaps once more, and waits.
    fn ask(&mut self, now: Now, number: u64, pending: Pending, out: &mut Outputs<'_, Node>) {
        let id = self.id(number);
        let Some(call) = pending.calls.get(pending.results.len()) else { return };
        let replicas = self.topology.replicas(call.shard);
        match &pending.phase {
            Phase::Reading { tries } => {
                let here = replicas.iter().position(|replica| replica.process == self.process);
                let first = here.unwrap_or(self.options.near);
                let member = (first + tries) % replicas.len().max(1);
                let (key, operation) = (call.key.clone(), call.operation.clone());
                let message = Message::Read { id, key, operation, now_millis: now.wall.as_millis() };
                replicas.get(member).into_iter().for_each(|replica| out.send(*replica, message.clone()));
            }
            Phase::Writing { write, missing, .. } => {
                for replica in missing.iter().filter_map(|member| replicas.get(*member)) {
                    out.send(*replica, Message::Write { id, write: write.clone() });
                }
            }
        }
        let again = now.instant + self.options.resend_every;
        out.arm(Timer::Question { number }, again.min(pending.deadline));
        self.pending.insert(number, pending);
    }

    fn write(
        &mut self,
        now: Now,
        number: u64,
        mut pending: Pending,
        (result, effects): (ReplyBuf, Effects),
        out: &mut Outputs<'_, Node>,
    ) {
        let Some(call) = pending.calls.get(pending.results.len()) else { return };
        let stamp = Stamp { at: self.clock.tick(now.wall), transaction: self.id(number) };
        let write = Record { key: call.key.clone(), stamp, effects };
        let missing = (0..self.topology.replicas(call.shard).len()).collect();
        pending.phase = Phase::Writing { write, missing, result };
        self.ask(now, number, pending, out);
    }

    fn on_read_reply(
        &mut self,
        now: Now,
        number: u64,
        mut pending: Pending,
        (result, effects): (ReplyBuf, Effects),
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        if !matches!(pending.phase, Phase::Reading { .. }) {
            self.pending.insert(number, pending);
            return;
        }
        if !effects.is_empty() {
            return self.write(now, number, pending, (result, effects), out);
        }
        out.disarm(Timer::Question { number });
        pending.results.push(result);
        self.perform(now, pending, random, out);
    }

    fn on_written(
        &mut self,
        now: Now,
        number: u64,
        mut pending: Pending,
        member: usize,
        random: &mut Rng,
        out: &mut Outputs<'_, Node>,
    ) {
        let shard = pending.calls.get(pending.results.len()).map_or(0, |call| call.shard);
        let members = self.topology.replicas(shard).len();
        let spared = match self.options.acknowledgements {
            Acknowledgements::All => 0,
            Acknowledgements::Quorum => members - quorum(members),
        };
        let done = match &mut pending.phase {
            Phase::Writing { missing, result, .. } => {
                missing.remove(&member);
                (missing.len() <= spared).then(|| std::mem::take(result))
            }
            Phase::Reading { .. } => None,
        };
        let Some(result) = done else {
            self.pending.insert(number, pending);
            return;
        };
        out.disarm(Timer::Question { number });
        pending.results.push(result);
        self.perform(now, pending, random, out);
    }

    /// A question is not answered in time.
    fn on_question(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node>) {
        let Some(mut pending) = self.pending.remove(&number) else { return };
        if now.instant < pending.deadline {
            if let Phase::Reading { tries } = &mut pending.phase {
                *tries += 1;
            }
            return self.ask(now, number, pending, out);
        }
        let shard = pending.calls.get(pending.results.len()).map_or(0, |call| call.shard);
        let written = pending.calls.iter().take(pending.results.len()).any(|call| !call.is_read());
        let error = if written || matches!(pending.phase, Phase::Writing { .. }) {
            let text =
                format!("shard {shard}: too few replicas acknowledged the write; look before you retry");
            Error::new(ErrorCode::UnknownOutcome, text)
        } else {
            let text = format!("shard {shard}: none of its replicas answered; nothing happened, retry later");
            Error::new(ErrorCode::Unavailable, text)
        };
        out.reply(pending.request).error(&error);
    }
}

fn refuse(id: RequestId, what: &str, out: &mut Outputs<'_, Node>) {
    let text = format!(
        "QWStore, a baseline without transactions, does not offer {what}: it has operations on single keys only"
    );
    out.reply(id).error(&Error::err(text));
}
