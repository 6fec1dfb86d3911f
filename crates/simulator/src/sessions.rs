//! Clients in the world: what they ask, what they make of replies, silence and closed connections.

use crate::client::{Client, Next, Open};
use crate::deployment::Deployment;
use crate::faults::exponential;
use crate::trace::kind;
use crate::workload::Plan;
use crate::world::{Event, World};
use checker::Outcome;
use protocol::{Input, Request};
use types::{ReplyBuf, RequestId, SessionId, Slot, Wire};

/// How long a client waits for a reply, in microseconds.
const PATIENCE: u64 = 8_000_000;

impl<D: Deployment> World<D> {
    /// Adds a client of a random gateway.
    pub(crate) fn add_client(&mut self) -> usize {
        let gateway = self.any_gateway();
        self.add_client_of(gateway)
    }

    /// Adds a client of this gateway.
    pub(crate) fn add_client_of(&mut self, gateway: usize) -> usize {
        let session = self.new_session();
        self.clients.push(Client { session, gateway, open: None, last: None });
        self.clients.len() - 1
    }

    fn any_gateway(&mut self) -> usize {
        let gateways = self.gateways();
        gateways[self.random.usize(..gateways.len())]
    }

    /// The processes that clients may connect to.
    pub(crate) fn gateways(&self) -> Vec<usize> {
        (0..self.processes.len()).filter(|index| self.processes[*index].host.gateway).collect()
    }

    fn new_session(&mut self) -> SessionId {
        self.next_session += 1;
        SessionId(self.next_session)
    }

    pub(crate) fn on_client(&mut self, client: usize) {
        if self.traffic && self.clients[client].open.is_none() {
            let plan = self.workload.plan(&mut self.random);
            self.begin(client, plan, false);
        }
    }

    /// Lets a client begin a transaction, if its gateway lives; else it looks for another one.
    pub(crate) fn begin(&mut self, client: usize, plan: Plan, at_rest: bool) {
        let Client { session, gateway, .. } = self.clients[client];
        if self.processes[gateway].life.is_none() {
            self.clients[client].gateway = self.any_gateway();
            self.clients[client].session = self.new_session();
            return self.after(50_000, Event::Client(client));
        }
        let place = self.recorder.begin(session, &plan, self.now);
        let stage = Open::first_stage(plan.shape);
        self.clients[client].open = Some(Open { plan, place, stage, request: RequestId(0), at_rest });
        self.ask(client);
    }

    /// Sends the request of the present stage.
    fn ask(&mut self, client: usize) {
        let request = RequestId(self.next_request);
        self.next_request += 1;
        let Client { session, gateway, open: Some(open), .. } = &mut self.clients[client] else { return };
        let (session, gateway) = (*session, *gateway);
        open.request = request;
        let (place, stage) = (open.place, open.stage);
        self.waiting.insert(request, client);
        self.trace.note(self.now, kind::REQUEST, &request.0.to_le_bytes(), || {
            let steps = &self.recorder.history[place].steps;
            let steps: Vec<String> = steps.iter().map(|step| format!("{} {}", step.key, step.text)).collect();
            format!(
                "client {client} session {session} asks p{gateway}, transaction {place}: {stage:?} {steps:?}"
            )
        });
        self.after(PATIENCE, Event::Timeout { client, request });
        let Some(open) = self.clients[client].open.take() else { return };
        let asked = open.ask::<D::Protocol>(session, |batch| self.feed(gateway, batch));
        self.clients[client].open = Some(open);
        if let Err(error) = asked {
            self.recorder.no_progress(format!("the workload made a {error}"));
        }
    }

    /// Steps a gateway's coordinator.
    fn feed(&mut self, gateway: usize, batch: &mut Vec<Input<'_, D::Protocol>>) {
        let Some(life) = &self.processes[gateway].life else { return };
        let slot = Slot::coordinator(crate::KEYSPACE);
        let Some(replica) = life.replicas.iter().position(|replica| replica.node().slot == slot) else {
            return;
        };
        self.step(gateway, replica, |replica, now, random, sink| replica.step(now, batch, random, sink));
    }

    pub(crate) fn on_reply(&mut self, client: usize, request: RequestId, reply: &ReplyBuf) {
        self.waiting.remove(&request);
        let Some(open) = self.clients[client].open.as_mut().filter(|open| open.request == request) else {
            return;
        };
        let mut bytes = Vec::new();
        reply.encode(&mut bytes);
        self.trace.note(self.now, kind::REPLY, &bytes, || {
            format!("client {client} transaction {}: {}", open.place, checker::render(reply))
        });
        let (place, (first, replies, next)) = (open.place, open.answered(reply));
        self.recorder.replies(place, first, replies);
        match next {
            Next::Ask => self.ask(client),
            Next::End(outcome) => self.finish(client, outcome),
        }
    }

    /// A transaction is over for its client.
    fn finish(&mut self, client: usize, outcome: Outcome) {
        let Some(open) = self.clients[client].open.take() else { return };
        self.waiting.remove(&open.request);
        self.clients[client].last = Some(outcome);
        self.trace.note(self.now, kind::OUTCOME, &[outcome as u8], || {
            format!("client {client} transaction {}: {outcome:?}", open.place)
        });
        self.recorder.end(open.place, outcome, self.now);
        if outcome == Outcome::Unknown {
            self.leave_session(client);
        }
        if !open.at_rest {
            let pause = exponential(&mut self.random, self.swarm.think);
            self.after(pause + 1, Event::Client(client));
        }
    }

    /// The client closes its session and will go on with another, perhaps elsewhere.
    fn leave_session(&mut self, client: usize) {
        let Client { session, gateway, .. } = self.clients[client];
        let id = RequestId(self.next_request);
        self.next_request += 1;
        self.feed(gateway, &mut vec![Input::Request { id, request: Request::Close { session } }]);
        self.clients[client].session = self.new_session();
        if self.clients[client].open.is_none() {
            self.clients[client].gateway = self.any_gateway();
        }
    }

    pub(crate) fn on_timeout(&mut self, client: usize, request: RequestId) {
        let open = self.clients[client].open.as_ref().filter(|open| open.request == request);
        if let Some(may_commit) = open.map(Open::may_commit) {
            self.finish(client, if may_commit { Outcome::Unknown } else { Outcome::Aborted });
            if !may_commit {
                self.leave_session(client);
            }
        }
    }

    /// The clients of a process that ended know no more than its silence tells.
    pub(crate) fn disconnect(&mut self, process: usize) {
        for client in 0..self.clients.len() {
            if self.clients[client].gateway != process {
                continue;
            }
            match self.clients[client].open.as_ref().map(Open::may_commit) {
                Some(true) => self.finish(client, Outcome::Unknown),
                Some(false) => self.finish(client, Outcome::Aborted),
                None => {}
            }
            self.clients[client].session = self.new_session();
            self.clients[client].gateway = self.any_gateway();
        }
    }
}
