//! Clients in the world: what they ask, what they make of replies, silence and closed connections.

mod commanded;

use crate::client::{Client, Context, Next, Open, Stage};
use crate::deployment::Deployment;
use crate::faults::{Feature, exponential};
use crate::process::EPOCH;
use crate::process::Process;
use crate::script::{TimedPlan, stream};
use crate::trace::kind;
use crate::workload::{Passing, Plan, Shape, Watching, with_states};
use crate::world::{Event, World};
use checker::Outcome;
use protocol::{Input, Request};
use types::{Error, ErrorCode, Reply, ReplyBuf, RequestId, SessionId, Slot, Wire};

/// How long a client waits for a reply, in microseconds.
const PATIENCE: u64 = 8_000_000;
/// The empty keyspace, which has another name in histories.
const NO_STATE: &[u8] = b"0@0.0";
/// How long a client waits that finds no gateway.
const NO_GATEWAY: u64 = 50_000;
/// Of so many requests the connection breaks, where connections do.
const LOST_CONNECTIONS: f64 = 0.03;
/// How long it takes a client at most to notice that its request is lost.
const NOTICED: u64 = 500_000;

/// What is lost with a client's connection.
enum Lost {
    /// The request never arrives.
    Request,
    /// The request is served, and the reply is lost.
    Reply,
}

impl<D: Deployment> World<D> {
    /// Adds a client of this gateway, or of a random one.
    pub(crate) fn add_client(&mut self, gateway: Option<usize>) -> usize {
        let session = self.new_session();
        let client = self.clients.len();
        let mut random = stream(self.seed, "client", client as u64);
        let gateways = self.gateways();
        let gateway = gateway.unwrap_or_else(|| gateways[random.usize(..gateways.len())]);
        let (open, last, follow_up, follows, script) = (Vec::new(), None, None, None, None);
        self.clients.push(Client { session, gateway, open, last, random, follow_up, follows, script });
        client
    }

    /// Adds the clients of a run and lets them begin, each after a while.
    pub(crate) fn add_clients(&mut self, plans: Option<&[TimedPlan]>) {
        for client in 0..self.swarm.clients {
            self.add_client(None);
            let own = |plan: &&TimedPlan| plan.client == client;
            self.clients[client].script = plans.map(|plans| plans.iter().filter(own).cloned().collect());
            let delay = match &self.clients[client].script {
                None => Some(self.clients[client].random.u64(0..200_000)),
                Some(script) => script.front().map(|plan| plan.at),
            };
            if let Some(delay) = delay {
                self.after(delay, Event::Client(client));
            }
        }
    }

    /// The processes that clients may connect to.
    pub(crate) fn gateways(&self) -> Vec<usize> {
        let may = |index: &usize| self.processes[*index].host.gateway && !self.processes[*index].is_gone;
        (0..self.processes.len()).filter(may).collect()
    }

    fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    pub(crate) fn on_client(&mut self, client: usize) {
        if !self.traffic || !self.clients[client].open.is_empty() {
            return;
        }
        let wanted = match &self.clients[client].script {
            Some(script) => script.front().map(|plan| plan.gateway),
            None => Some(self.clients[client].gateway),
        };
        let Some(wanted) = wanted else { return };
        let Some(gateway) = self.living_gateway(wanted) else {
            return self.after(NO_GATEWAY, Event::Client(client));
        };
        self.connect(client, gateway);
        let plan = match &mut self.clients[client].script {
            Some(script) => script.pop_front().map(|timed| timed.plan),
            None => Some(self.draw_plan(client)),
        };
        if let Some(plan) = plan {
            self.began.push(TimedPlan { client, at: self.now, gateway, plan: plan.clone() });
            self.begin(client, plan, false);
        }
    }

    /// What a client does next, if it is not written down.
    fn draw_plan(&mut self, client: usize) -> Plan {
        let client = &mut self.clients[client];
        if let Some(plan) = client.follow_up.take() {
            return plan;
        }
        let mut plans = self.workload.plan(EPOCH + self.now, &self.swarm, &mut client.random).into_iter();
        let first = plans.next();
        client.follow_up = plans.next();
        first.unwrap_or_else(|| self.workload.small_write())
    }

    /// This gateway, or the next one that lives.
    fn living_gateway(&self, wanted: usize) -> Option<usize> {
        let lives = |index: &usize| self.processes[*index].life.is_some();
        let gateways = self.gateways();
        let later = gateways.iter().filter(|index| **index >= wanted).copied();
        later.chain(gateways.iter().copied()).find(lives)
    }

    /// Goes to a gateway, as a new session if it is another one.
    fn connect(&mut self, client: usize, gateway: usize) {
        if self.clients[client].gateway != gateway {
            self.clients[client].gateway = gateway;
            self.clients[client].session = self.new_session();
            self.clients[client].follows = None;
        }
    }

    /// Lets a client begin a transaction at its gateway.
    pub(crate) fn begin(&mut self, client: usize, plan: Plan, at_rest: bool) {
        if !plan.commands.is_empty() {
            return self.command(client, plan);
        }
        let constraints = plan.constraints.as_ref().map(|all| with_states(all, &self.states));
        let plan = Plan { constraints, ..plan };
        let pipelined = plan.shape == Shape::Pipeline;
        let plans: Vec<Plan> = match pipelined {
            false => vec![plan],
            true => (plan.steps.into_iter())
                .map(|step| Plan { watching: plan.watching, ..Plan::new(Shape::One, vec![step]) })
                .collect(),
        };
        let session = self.clients[client].session;
        let first = self.clients[client].open.len();
        for plan in plans {
            let place = self.recorder.begin(session, &plan, pipelined, self.now);
            self.recorder.follows(place, self.clients[client].follows);
            let context = self.contexts.iter().rev().find(|context| context.client != client).cloned();
            let stage = Open::first_stage(&plan, context.as_ref());
            let request = RequestId(0);
            self.clients[client].open.push(Open { plan, place, stage, request, at_rest, context });
        }
        for index in first..self.clients[client].open.len() {
            self.ask(client, index);
        }
    }

    /// Sends the request of the present stage of a client's open transaction.
    fn ask(&mut self, client: usize, index: usize) {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let Client { session, gateway, open, .. } = &mut self.clients[client];
        let (session, process) = (*session, *gateway);
        let Some(open) = open.get_mut(index) else { return };
        open.request = request;
        let (place, stage) = (open.place, open.stage);
        self.waiting.insert(request, client);
        self.trace.note(self.now, kind::REQUEST, &request.0.to_le_bytes(), || {
            let steps = &self.recorder.history[place].steps;
            let steps: Vec<String> = steps.iter().map(|step| format!("{} {}", step.key, step.text)).collect();
            format!(
                "client {client} session {session} asks p{process}, transaction {place}: {stage:?} {steps:?}"
            )
        });
        self.after(PATIENCE, Event::Timeout { client, request });
        match self.loss_of(request) {
            Some((Lost::Request, after)) => {
                self.recorder.lost(place);
                self.after(after, Event::Timeout { client, request });
            }
            Some((Lost::Reply, _)) => {
                self.unheard.insert(request);
                self.after(1, Event::Ask { process, client, request });
            }
            None => self.after(1, Event::Ask { process, client, request }),
        }
    }

    /// What of a request is lost with its client's connection, if it is, and how long after it was sent.
    fn loss_of(&self, request: RequestId) -> Option<(Lost, u64)> {
        if !self.faults || !self.swarm.has(Feature::LostConnections) {
            return None;
        }
        let mut random = stream(self.seed, "connection", request.0);
        let lost = if random.bool() { Lost::Request } else { Lost::Reply };
        (random.f64() < LOST_CONNECTIONS).then(|| (lost, random.u64(1..NOTICED)))
    }

    /// A client's request reaches its gateway.
    pub(crate) fn on_ask(&mut self, process: usize, client: usize, request: RequestId) {
        let Client { session, open, .. } = &self.clients[client];
        let Some(open) = open.iter().find(|open| open.request == request) else { return };
        let Some(replica) = self.coordinator(process) else { return };
        self.processes[process].counting = self.processes[process].condemned.is_some();
        let (session, seed) = (*session, self.setting.hash_seed);
        let place = open.place;
        let life = self.processes[process].life.as_ref().filter(|_| self.setting.shared);
        let thread = life.map(|life| (process as u64) << 32 | u64::from(life.incarnation.0));
        // The batch borrows from the request.
        let reopened = Open { plan: open.plan.clone(), context: open.context.clone(), request, ..*open };
        self.recorder.on_request(request, place, thread);
        let fed = reopened.ask::<D::Protocol>(session, seed, |batch| {
            self.step(process, replica, |replica, now, random, sink| replica.step(now, batch, random, sink));
        });
        if let Err(error) = fed {
            self.recorder.no_progress(format!("the workload made a {error}"));
        }
    }

    /// The place of a living process's coordinator among its instances, or of the replica that serves clients instead.
    fn coordinator(&self, process: usize) -> Option<usize> {
        let slot = Slot::coordinator(crate::KEYSPACE);
        let Process { life: Some(life), host, .. } = &self.processes[process] else { return None };
        let coordinator = life.replicas.iter().position(|replica| replica.node().slot == slot);
        coordinator.or((host.gateway && self.deployment.serves_at_replicas()).then_some(0))
    }

    pub(crate) fn on_close(&mut self, process: usize, session: SessionId) {
        let Some(replica) = self.coordinator(process) else { return };
        let id = RequestId(self.next_request);
        self.next_request += 1;
        let mut batch = vec![Input::Request { id, request: Request::Close { session } }];
        self.step(process, replica, |replica, now, random, sink| {
            replica.step(now, &mut batch, random, sink);
        });
    }

    pub(crate) fn on_reply(&mut self, client: usize, request: RequestId, reply: &ReplyBuf) {
        self.waiting.remove(&request);
        if is_degraded(reply) {
            self.recorder.note_degraded(request);
        }
        if self.unheard.remove(&request) {
            return self.on_timeout(client, request);
        }
        let Some(index) = self.clients[client].open.iter().position(|open| open.request == request) else {
            return;
        };
        if is_degraded(reply) {
            self.clients[client].follows = None;
        }
        let open = &mut self.clients[client].open[index];
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.trace.note(self.now, kind::REPLY, &bytes, || {
            format!("client {client} transaction {}: {}", open.place, checker::render(reply))
        });
        if !open.plan.commands.is_empty() {
            if tells_of_loss(reply) {
                let place = open.place;
                self.loss_reported(client, place);
            }
            return self.on_commanded(client, index, reply);
        }
        if open.plan.constraints.is_some()
            && let (Stage::Begin | Stage::Commit, Some(Reply::Bulk(state))) = (open.stage, reply.first())
            && state != NO_STATE
        {
            self.states.push(String::from_utf8_lossy(state).into_owned());
        }
        let (stage, context) = (open.stage, open.context.clone());
        let (place, (first, replies, next)) = (open.place, open.answered(reply));
        if tells_of_loss(reply) {
            self.loss_reported(client, place);
        }
        match (stage, context) {
            (Stage::Give, _) => self.take_down_context(client, place, reply),
            (Stage::Take, Some(context)) => self.take_over(client, place, &context, reply),
            _ => {}
        }
        self.recorder.replies(place, first, replies);
        match next {
            Next::Ask => self.ask(client, index),
            Next::End(Outcome::Unknown) => self.leave(client),
            Next::End(outcome) => self.finish(client, index, outcome),
        }
    }

    /// A client's session depended on what was given up, and begins anew; where it does, also without the context it had taken.
    fn loss_reported(&mut self, client: usize, place: usize) {
        self.recorder.loss_reported(place);
        if self.deployment.gives_up_dependants() {
            self.clients[client].follows = None;
        }
    }

    /// A client was given its session's context, for others.
    fn take_down_context(&mut self, client: usize, place: usize, reply: &ReplyBuf) {
        let gives_up = self.deployment.gives_up_dependants();
        let after = self.recorder.committed_before(place, gives_up);
        if let (Some(Reply::Bulk(token)), Some(after)) = (reply.elements().next(), after) {
            self.contexts.push(Context { token: token.to_vec(), after, client });
        }
    }

    /// A client's session knows from now on what the context's knew, unless that has not arrived in time.
    fn take_over(&mut self, client: usize, place: usize, context: &Context, reply: &ReplyBuf) {
        match reply.elements().next() {
            Some(Reply::Simple("OK")) => {
                self.clients[client].follows = Some(context.after);
                self.recorder.follows(place, Some(context.after));
            }
            Some(Reply::Error(Error { code: ErrorCode::Err, .. })) | None => {
                let message = format!("a context that was given is refused: {}", checker::render(reply));
                self.recorder.no_progress(message);
            }
            Some(_) => {}
        }
    }

    /// A transaction is over for its client.
    fn finish(&mut self, client: usize, index: usize, outcome: Outcome) {
        let open = self.clients[client].open.remove(index);
        self.waiting.remove(&open.request);
        self.clients[client].last = Some(outcome);
        self.trace.note(self.now, kind::OUTCOME, &[outcome as u8], || {
            format!("client {client} transaction {}: {outcome:?}", open.place)
        });
        self.recorder.end(open.place, outcome, self.now);
        if outcome == Outcome::Committed {
            self.clients[client].follows = None;
        }
        if self.clients[client].open.is_empty() && !open.at_rest {
            self.pause(client);
        }
    }

    /// The client will go on after a while, or at its next transaction's time.
    fn pause(&mut self, client: usize) {
        let Client { script, random, follow_up, .. } = &mut self.clients[client];
        let delay = match script {
            // What is watched is to be used soon.
            None if follow_up.is_some() => Some(1),
            None => Some(1 + exponential(random, self.swarm.think)),
            Some(script) => script.front().map(|plan| plan.at.saturating_sub(self.now).max(1)),
        };
        if let Some(delay) = delay {
            self.after(delay, Event::Client(client));
        }
    }

    /// The client closes its session, not knowing what becomes of its request, and will go on with another, perhaps
    /// elsewhere.
    fn leave(&mut self, client: usize) {
        let Client { session, gateway, ref open, .. } = self.clients[client];
        let first =
            open.first().filter(|open| open.may_commit() && !open.at_rest).map(|open| open.plan.clone());
        self.give_up(client);
        self.after(1, Event::Close { process: gateway, session });
        // Values identify writes where nothing else does.
        let retries = self.swarm.has(Feature::LostConnections) && !self.swarm.has(Feature::Registers);
        let alone = |plan: &Plan| plan.watching == Watching::Nothing && plan.passing == Passing::Nothing;
        if let Some(plan) = first.filter(|plan| retries && alone(plan)) {
            self.clients[client].follow_up = self.clients[client].random.bool().then(|| plan.again());
        }
    }

    /// Nobody will answer the client any more.
    fn give_up(&mut self, client: usize) {
        while let Some(open) = self.clients[client].open.first() {
            let outcome = open.without_answer();
            self.finish(client, 0, outcome);
        }
        self.front.close(client);
        let gateways = self.gateways();
        let Client { random, follow_up, .. } = &mut self.clients[client];
        *follow_up = None;
        self.clients[client].gateway = gateways[random.usize(..gateways.len())];
        self.clients[client].session = self.new_session();
        self.clients[client].follows = None;
    }

    pub(crate) fn on_timeout(&mut self, client: usize, request: RequestId) {
        if self.clients[client].open.iter().any(|open| open.request == request) {
            self.leave(client);
        }
    }

    /// The clients of a process that ended know no more than its silence tells.
    pub(crate) fn disconnect(&mut self, process: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].gateway == process {
                self.give_up(client);
            }
        }
    }
}

/// True for the error by which a session learns that it goes on with less than it had seen.
fn is_degraded(reply: &ReplyBuf) -> bool {
    reply.elements().any(|element| matches!(element, Reply::Error(Error { code: ErrorCode::Degraded, .. })))
}

/// True for the error by which a session learns that a region was evicted with what it had written there.
fn tells_of_loss(reply: &ReplyBuf) -> bool {
    reply
        .elements()
        .any(|element| matches!(element, Reply::Error(error) if error.message.contains("was evicted")))
}
