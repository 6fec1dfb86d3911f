//! The coordinator: hosted by a gateway, it is the paper's client library (COPS, sections 4.3 to 4.6). It keeps nothing that
//! must survive: a session's context goes with its connection, or to another one as a token.
//!
//! `plan` tells which requests it can serve and how, `read` is `get` and `get_trans`, `write` is `put`, `context` hands contexts
//! over, `finish` answers and claims. Requests of one session run one after another: each put must know the version of the one before
//! (section 4.4). Sessions run beside one another.

mod context;
mod finish;
mod plan;
mod read;
mod write;

use super::dependencies::{Context, read as read_context};
use super::message::{Got, Message};
use super::{Mutant, Node, Options, Timer};
use crate::stable::{PlannedStep, Topology, retry_in, token};
use protocol::{Claim, Input, Now, Outputs};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use types::{
    Address, Error, ErrorCode, Incarnation, Instant, ProcessId, RegionId, ReplyBuf, RequestId, SessionId,
    TransactionId,
};

/// A request.
type Ask = crate::stable::Ask<Context>;

/// See the module.
#[derive(Debug)]
pub struct Coordinator {
    topology: Topology,
    region: RegionId,
    process: ProcessId,
    incarnation: Incarnation,
    options: Options,
    /// The number of the last request.
    last: u64,
    /// Puts that have not ended, each by partition and number.
    unsettled: BTreeSet<(u16, u64)>,
    /// The newest life of each partition that was heard.
    lives: BTreeMap<Address, Incarnation>,
    sessions: BTreeMap<SessionId, Session>,
    running: BTreeMap<u64, Running>,
    claims: Vec<Claim>,
}

/// A client's session: a causal thread of execution.
#[derive(Debug, Default)]
struct Session {
    /// The one that is in use.
    context: Context,
    /// Its number; it began with 0.
    number: u64,
    /// The others.
    others: BTreeMap<u64, Context>,
    /// The number of the last one that was made.
    made: u64,
    queue: VecDeque<Waiting>,
    /// The number of the request that is under way.
    running: Option<u64>,
}

/// A request that waits for its turn.
#[derive(Debug)]
struct Waiting {
    id: RequestId,
    ask: Ask,
    since: Instant,
}

/// A request under way.
#[derive(Debug)]
struct Running {
    session: SessionId,
    /// To whom the reply goes; `None` once it had to be answered with UNKNOWNOUTCOME: its outcome is still sought (Corrections 49).
    request: Option<RequestId>,
    /// The request that was answered so.
    in_doubt: Option<RequestId>,
    deadline: Instant,
    now_millis: u64,
    steps: Vec<PlannedStep>,
    /// One for each step.
    replies: Vec<ReplyBuf>,
    /// Sums of counts and cursors of scans, by step.
    numbers: BTreeMap<u32, u64>,
    phase: Phase,
}

/// What is under way.
#[derive(Debug)]
enum Phase {
    /// Reads are out.
    Getting {
        /// Which question it is.
        round: u32,
        /// When the first round began.
        since: Instant,
        /// By partition: the question, until it is answered.
        awaited: BTreeMap<u16, Message>,
        /// By partition: its last answer.
        results: BTreeMap<u16, Got>,
        /// It is the second round of a get transaction.
        second: bool,
        /// A partition that does not have the requested state: the coordinator begins the request again.
        gone: Option<u16>,
    },
    /// A write is out.
    Putting {
        /// Whose keys it writes.
        partition: u16,
        /// The question.
        question: Box<Message>,
        /// It has left more than once.
        repeated: bool,
    },
    /// Dependency checks are out, for a context that the session is given.
    Restoring {
        /// That.
        context: Context,
        /// By partition: the question, until it is answered.
        awaited: BTreeMap<u16, Message>,
    },
}

impl Coordinator {
    pub(super) fn new(
        topology: Topology,
        region: RegionId,
        process: ProcessId,
        incarnation: Incarnation,
        options: Options,
    ) -> Self {
        Coordinator {
            topology,
            region,
            process,
            incarnation,
            options,
            last: 0,
            unsettled: BTreeSet::new(),
            lives: BTreeMap::new(),
            sessions: BTreeMap::new(),
            running: BTreeMap::new(),
            claims: Vec::new(),
        }
    }

    /// One like this that has done nothing yet.
    pub(super) fn fresh(&self) -> Self {
        Coordinator::new(self.topology.clone(), self.region, self.process, self.incarnation, self.options)
    }

    /// Where it stands.
    pub fn region(&self) -> RegionId {
        self.region
    }

    /// How many requests are under way.
    pub fn unsettled(&self) -> usize {
        self.running.len()
    }

    /// What the next write of a session is checked for, and everything that it depends on.
    pub fn context(&self, session: SessionId) -> Option<&Context> {
        self.sessions.get(&session).map(|session| &session.context)
    }

    pub(super) fn take_claims(&mut self) -> Vec<Claim> {
        std::mem::take(&mut self.claims)
    }

    pub(super) fn step_one(&mut self, now: Now, input: Input<'_, Node>, out: &mut Outputs<'_, Node>) {
        match input {
            Input::Request { id, request } => {
                let open = |text: &[u8], topology: &Topology| read_context(&token::open(text, topology)?);
                let (session, ask) = (request.session(), Ask::new(&request, &self.topology, open));
                let waiting = Waiting { id, ask, since: now.instant };
                self.sessions.entry(session).or_default().queue.push_back(waiting);
                self.go_on(now, session, out);
            }
            Input::Message { from, message } => {
                let life = self.lives.entry(from.address()).or_insert(from.incarnation);
                *life = from.incarnation.max(*life);
                self.on_message(now, from.address(), message, out);
            }
            Input::Timer(Timer::Retry(number)) => self.on_retry(now, number, out),
            Input::Snapshot(_)
            | Input::Recover(_)
            | Input::Recovered { .. }
            | Input::PeerStarted { .. }
            | Input::Timer(Timer::Tick) => {}
        }
    }

    fn on_message(&mut self, now: Now, from: Address, message: Message, out: &mut Outputs<'_, Node>) {
        match message {
            Message::GetResp { id, round, outcome } => self.on_get_resp(now, from, id, round, outcome, out),
            Message::PutResp { id, outcome } => self.on_put_resp(now, id, outcome, out),
            Message::DepChecked { written, ends } => self.on_dep_checked(now, from, &written, &ends, out),
            _ => {}
        }
    }

    /// Starts the session's requests until one of them has to wait.
    fn go_on(&mut self, now: Now, session: SessionId, out: &mut Outputs<'_, Node>) {
        while let Some(state) = self.sessions.get_mut(&session).filter(|state| state.running.is_none())
            && let Some(Waiting { id, ask, .. }) = state.queue.pop_front()
        {
            self.start(now, session, id, ask, out);
        }
    }

    /// A request begins, with a number of its own.
    fn begin(
        &mut self,
        now: Now,
        session: SessionId,
        request: RequestId,
        steps: Vec<PlannedStep>,
        phase: Phase,
    ) -> (u64, Running) {
        self.last += 1;
        let state = self.sessions.entry(session).or_default();
        state.running = Some(self.last);
        let running = Running {
            session,
            request: Some(request),
            in_doubt: None,
            deadline: now.instant + self.options.give_up_after,
            now_millis: crate::stable::millis(now, state.context.latest()),
            replies: steps.iter().map(crate::stable::known_reply).collect(),
            steps,
            numbers: BTreeMap::new(),
            phase,
        };
        (self.last, running)
    }

    /// Sends the questions of a request that begins or goes on, and keeps it.
    fn keep(&mut self, now: Now, number: u64, running: Running, out: &mut Outputs<'_, Node>) {
        self.ask(&running, out);
        self.running.insert(number, running);
        out.arm(Timer::Retry(number), now.instant + self.options.retry_after);
    }

    /// Sends the questions that are not answered.
    fn ask(&self, running: &Running, out: &mut Outputs<'_, Node>) {
        let mut send = |partition: u16, question: &Message| {
            out.send(self.topology.address(self.region, partition), question.clone());
        };
        match &running.phase {
            Phase::Getting { awaited, .. } | Phase::Restoring { awaited, .. } => {
                awaited.iter().for_each(|(partition, question)| send(*partition, question));
            }
            Phase::Putting { partition, question, .. } => send(*partition, question),
        }
    }

    fn on_retry(&mut self, now: Now, number: u64, out: &mut Outputs<'_, Node>) {
        if let Some(Phase::Putting { repeated, .. }) =
            self.running.get_mut(&number).map(|running| &mut running.phase)
        {
            *repeated = true;
        }
        let Some(running) = self.running.get(&number) else { return };
        let session = running.session;
        if running.request.is_some() && running.deadline <= now.instant {
            return self.give_up(now, number, out);
        }
        if matches!(running.phase, Phase::Getting { gone: Some(_), .. }) {
            return self.begin_again(now, number, out);
        }
        if running.request.is_none() && self.is_closing(session) {
            // Nothing that the session does later could depend on it.
            let Some(running) = self.running.remove(&number) else { return };
            return self.end(now, number, &running, out);
        }
        self.ask(running, out);
        let after = retry_in(self.options.retry_after, now.instant - running.deadline);
        out.arm(Timer::Retry(number), now.instant + after);
        self.give_up_waiting(now, session, out);
    }

    /// True if the client has gone and has no other open request.
    fn is_closing(&self, session: SessionId) -> bool {
        let next = self.sessions.get(&session).and_then(|state| state.queue.front());
        next.is_some_and(|waiting| matches!(waiting.ask, Ask::Close))
    }

    /// What waits behind a put whose outcome is unknown does not wait for ever.
    fn give_up_waiting(&mut self, now: Now, session: SessionId, out: &mut Outputs<'_, Node>) {
        let patience = self.options.give_up_after;
        let goes_on = |number: u64| self.running.get(&number).is_some_and(|ahead| ahead.request.is_some());
        let Some(state) = self.sessions.get_mut(&session) else { return };
        if state.running.is_none_or(goes_on) {
            return;
        }
        let is_late = |waiting: &mut Waiting| {
            !matches!(waiting.ask, Ask::Close) && now.instant - waiting.since >= patience
        };
        while let Some(waiting) = state.queue.pop_front_if(is_late) {
            let text = "an earlier write of this session is not resolved yet; nothing was done";
            out.reply(waiting.id).error(&Error::new(ErrorCode::Unavailable, text));
        }
    }

    fn id(&self, number: u64) -> TransactionId {
        TransactionId { process: self.process, incarnation: self.incarnation, number }
    }

    /// A request of this life by its id.
    fn number(&self, id: TransactionId) -> Option<u64> {
        (id.process == self.process && id.incarnation == self.incarnation).then_some(id.number)
    }

    /// Every put at the partition with a lower number has ended.
    fn settled(&self, partition: u16) -> u64 {
        let mut unsettled = self.unsettled.range((partition, 0)..=(partition, u64::MAX));
        unsettled.next().map_or(self.last + 1, |(_, number)| *number)
    }

    /// A partition of the region in words.
    fn whereabouts(&self, partition: u16) -> String {
        format!("partition {partition} of the region")
    }

    fn has(&self, mutant: Mutant) -> bool {
        self.options.mutants.has(mutant)
    }

    /// The session has read something.
    fn note_got(&mut self, session: SessionId, partition: u16, got: &Got) {
        if self.has(Mutant::ReadsNotTracked) {
            return;
        }
        let transactions = self.options.transactions;
        if let Some(state) = self.sessions.get_mut(&session) {
            state.context.got(&got.seen, &got.dependencies, transactions);
            state.context.forget(partition, got.stable);
        }
    }
}
