//! A gateway with its clients, which know of the rest by what they are answered.

use bench::claret::{Dialogue, Event, Form, Next, Plan};
use bench::transactions::{End, Trouble, rest};
use gateway::{
    Administration, ClientFilter, ClientInfo, Config, ConnectionId, Gateway, Host, Peer, Safety, State,
};
use protocol::{Input, Now, Protocol, Replica, Replies, Request};
use resp::{ReplyLimits, ReplyParser, Value, encode_command};
use std::collections::VecDeque;
use types::{Error, HashSeed, KeyspaceId, RequestId, Rng};

/// The keyspaces of the process: the only one.
pub(super) struct Keyspace<'k, P: Protocol> {
    pub id: KeyspaceId,
    pub replica: &'k mut Replica<P>,
    pub now: Now,
    pub random: &'k mut Rng,
}

impl<P: Protocol> Host for Keyspace<'_, P> {
    fn submit(
        &mut self,
        _: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        let inputs = requests.drain(..).map(|(id, request)| Input::Request { id, request });
        self.replica.step(self.now, &mut inputs.collect(), self.random, replies);
    }

    fn administer(&mut self, id: RequestId, _: Administration<'_>, replies: &mut dyn Replies) {
        replies.reply(id).error(&Error::err("the keyspaces of an experiment stay as they are"));
    }

    fn now(&self) -> Now {
        self.now
    }

    fn keyspace_of_number(&mut self, number: u64) -> Option<KeyspaceId> {
        (number == 0).then_some(self.id)
    }

    fn keyspace_of_name(&mut self, _: &[u8]) -> Option<KeyspaceId> {
        None
    }

    fn look_for_types(&mut self) -> bool {
        false
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        vec![self.id]
    }

    fn safety(&self, _: KeyspaceId) -> Safety {
        Safety::NONE
    }

    fn info(&self, _: &[String], _: &gateway::Statistics, _: &gateway::KeyspaceRules, _: &mut String) {}

    fn configuration(&self, _: &mut dyn FnMut(&str, &str)) {}

    fn other_clients(&self, _: &mut dyn FnMut(&ClientInfo)) {}

    fn kill_other_clients(&mut self, _: &ClientFilter) -> u64 {
        0
    }
}

/// What the clients of a gateway have come to in a step.
#[derive(Default)]
pub(super) struct News {
    /// Requests that clients have sent, and answers that they were given.
    pub exchanged: u64,
    /// Transactions that committed, with when their first tries began.
    pub committed: Vec<(&'static str, u64)>,
    /// Tries that failed.
    pub failed: u64,
    /// Clients that rest, and until when.
    pub resting: Vec<(usize, u64)>,
}

struct Client {
    connection: ConnectionId,
    dialogue: Dialogue,
    random: Rng,
    replies: ReplyParser,
    /// How many answers are missing.
    due: usize,
    answers: Vec<Value>,
    /// What the gateway has not taken of what was sent.
    unread: Vec<u8>,
    began: u64,
    failures: u32,
    /// `TXN ABORT` is under way.
    aborting: bool,
}

/// A gateway and its clients, each a closed loop without pauses.
pub(super) struct Station {
    gateway: Gateway,
    clients: Vec<Client>,
    /// Clients that may be able to go on.
    ready: VecDeque<usize>,
}

impl Station {
    /// A gateway without clients.
    pub fn new(seed: HashSeed) -> Self {
        let gateway = Gateway::new(Config { hash_seed: seed, ..Config::default() });
        Station { gateway, clients: Vec::new(), ready: VecDeque::new() }
    }

    /// Where replies go.
    pub fn replies(&mut self) -> &mut dyn Replies {
        &mut self.gateway
    }

    /// A client comes, and does nothing yet.
    pub fn open<P: Protocol>(&mut self, number: u64, form: Form, random: Rng, host: &mut Keyspace<'_, P>) {
        let name = || format!("client:{number}");
        let peer = Peer { client: number, address: name(), local_address: "gateway:0".to_owned() };
        let connection = self.gateway.open(peer, host);
        self.clients.push(Client {
            connection,
            dialogue: Dialogue::new(form),
            random,
            replies: ReplyParser::new(ReplyLimits::default()),
            due: 0,
            answers: Vec::new(),
            unread: Vec::new(),
            began: 0,
            failures: 0,
            aborting: false,
        });
    }

    /// How many clients there are.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// What a client draws from.
    pub fn random(&mut self, client: usize) -> &mut Rng {
        &mut self.clients[client].random
    }

    /// A client begins this transaction, or tries its last one again.
    pub fn begin(&mut self, client: usize, plan: Option<Box<dyn Plan>>, now: u64) {
        let Client { dialogue, began, failures, .. } = &mut self.clients[client];
        if let Some(plan) = plan {
            dialogue.plan(plan);
            (*began, *failures) = (now, 0);
        }
        dialogue.begin();
        self.ask(client);
    }

    /// A client sends what its transaction has next.
    fn ask(&mut self, client: usize) {
        let Client { dialogue, unread, due, .. } = &mut self.clients[client];
        let commands = dialogue.ask();
        commands.iter().for_each(|command| encode_command(unread, command));
        *due = commands.len();
        self.ready.push_back(client);
    }

    /// Lets the gateway and its clients do all that they can. `next` draws the transactions of clients that have
    /// committed, with what the workload learns.
    pub fn settle<P: Protocol>(
        &mut self,
        host: &mut Keyspace<'_, P>,
        mut next: impl FnMut(Option<Event>, &mut Rng) -> Option<Box<dyn Plan>>,
    ) -> News {
        let (mut news, mut connections) = (News::default(), Vec::new());
        loop {
            self.gateway.settle(host, &mut connections);
            for connection in connections.drain(..) {
                self.ready.extend(self.clients.iter().position(|client| client.connection == connection));
            }
            let Some(client) = self.ready.pop_front() else { return news };
            if self.advance(client, host) {
                news.exchanged += 2;
                self.on_answers(client, host.now.instant.0, &mut next, &mut news);
            }
        }
    }

    /// True if all that a client has sent is answered.
    fn advance<P: Protocol>(&mut self, client: usize, host: &mut Keyspace<'_, P>) -> bool {
        let Client { connection, replies, due, answers, unread, .. } = &mut self.clients[client];
        let mut state = self.gateway.state(*connection);
        while state == State::Reading && !unread.is_empty() {
            let received = self.gateway.receive(*connection, unread, host);
            unread.drain(..received.consumed);
            state = received.state;
        }
        let Some(output) = self.gateway.output_mut(*connection) else { return false };
        let mut taken = 0;
        while let Ok((bytes, Some(reply))) = replies.parse(&output[taken..]) {
            taken += bytes;
            answers.push(reply);
        }
        output.drain(..taken);
        // A second visit finds nothing new.
        answers.len() == *due && std::mem::replace(due, usize::MAX) != usize::MAX
    }

    fn on_answers(
        &mut self,
        client: usize,
        now: u64,
        next: &mut impl FnMut(Option<Event>, &mut Rng) -> Option<Box<dyn Plan>>,
        news: &mut News,
    ) {
        let Client { dialogue, random, answers, unread, due, aborting, began, .. } =
            &mut self.clients[client];
        let answers = std::mem::take(answers);
        if std::mem::take(aborting) {
            return self.rest(client, now, news);
        }
        match dialogue.take(answers) {
            Ok(()) => match dialogue.go_on() {
                Next::Ask => self.ask(client),
                Next::Done(event) => {
                    news.committed.push((dialogue.kind(), *began));
                    if let Some(plan) = next(event, random) {
                        self.begin(client, Some(plan), now);
                    }
                }
            },
            Err(trouble) => {
                debug_assert!(matches!(trouble, Trouble::Said(End::Failed)), "{trouble:?}");
                if !dialogue.is_open() {
                    return self.rest(client, now, news);
                }
                encode_command(unread, &["TXN", "ABORT"]);
                (*due, *aborting) = (1, true);
                self.ready.push_back(client);
            }
        }
    }

    /// A try has failed: the next one comes after a random wait that doubles.
    fn rest(&mut self, client: usize, now: u64, news: &mut News) {
        let Client { random, failures, .. } = &mut self.clients[client];
        let wait = rest(*failures, random).as_micros() as u64;
        *failures += 1;
        news.failed += 1;
        news.resting.push((client, now + wait));
    }
}
