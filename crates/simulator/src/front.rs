//! A gateway between clients and their coordinators, as servers have one: for commands that take several requests, each of
//! which needs the reply before it. RENAME, scripts in Lua (`EVAL`), and transactions that contain such.
//!
//! The gateway decides the next request; clients send it, with all that may go wrong on the way, and hand the reply
//! back.

use crate::workload::{encode, step};
use checker::Step;
use gateway::{Administration, ClientFilter, ClientInfo, Config, ConnectionId, Gateway, Host, Peer, Safety};
use protocol::{Now, Replies, Request};
use resp::{ReplyParser, Value, encode_command};
use std::collections::BTreeMap;
use types::{Error, HashSeed, KeyspaceId, ReplyBuf, RequestId};

/// How often a transaction is tried: less often than in servers, so that some are given up.
const ATTEMPTS: u32 = 5;

/// A request that carries a command out.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Ask {
    Begin { read_only: bool },
    Operate(Vec<Step>),
    Commit,
    Abort,
}

/// What comes next.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Turn {
    Ask(Ask),
    /// The command is answered, in RESP.
    Answered(Vec<u8>),
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Front {
    gateway: Gateway,
    surroundings: Surroundings,
    /// By client, its connection and the request that it waits for.
    clients: BTreeMap<usize, (ConnectionId, RequestId)>,
    connected: u64,
}

impl Front {
    pub fn new(hash_seed: HashSeed) -> Self {
        let config = Config { hash_seed, max_attempts: ATTEMPTS, ..Config::default() };
        let scripts = scripts::Scripts::new(scripts::Library::default());
        let surroundings = Surroundings { now: Now::default(), submitted: Vec::new() };
        let gateway = Gateway::new(config).with_interpreter(scripts);
        Front { gateway, surroundings, clients: BTreeMap::new(), connected: 0 }
    }

    /// A client sends commands, of which the last one is answered when all are done.
    pub fn send(&mut self, client: usize, commands: &[Vec<String>], now: Now) -> Turn {
        self.close(client);
        self.surroundings.now = now;
        self.connected += 1;
        let peer = Peer { client: self.connected, address: String::new(), local_address: String::new() };
        let connection = self.gateway.open(peer, &mut self.surroundings);
        self.clients.insert(client, (connection, RequestId(0)));
        let mut input = Vec::new();
        commands.iter().for_each(|words| encode_command(&mut input, words));
        let received = self.gateway.receive(connection, &input, &mut self.surroundings);
        debug_assert_eq!(received.consumed, input.len(), "only the last command waits");
        self.settle();
        self.turn(client)
    }

    /// A client's request has its reply.
    pub fn answer(&mut self, client: usize, reply: &ReplyBuf, now: Now) -> Turn {
        self.surroundings.now = now;
        if let Some((_, request)) = self.clients.get(&client) {
            reply.replay(self.gateway.reply(*request));
        }
        self.settle();
        self.turn(client)
    }

    /// A client is gone, or will not hear the answer.
    pub fn close(&mut self, client: usize) {
        if let Some((connection, _)) = self.clients.remove(&client) {
            self.gateway.close(connection, &mut self.surroundings);
            self.surroundings.submitted.clear();
        }
    }

    /// Goes on until there is something to ask: a script that pauses has nobody to wait for.
    fn settle(&mut self) {
        loop {
            self.gateway.settle(&mut self.surroundings, &mut Vec::new());
            if !self.gateway.is_busy() {
                return;
            }
        }
    }

    fn turn(&mut self, client: usize) -> Turn {
        let Some((connection, request)) = self.clients.get_mut(&client) else {
            return Turn::Answered(Vec::new());
        };
        let submitted = std::mem::take(&mut self.surroundings.submitted).pop();
        if let Some((id, ask)) = submitted {
            *request = id;
            return Turn::Ask(ask);
        }
        let output = self.gateway.output_mut(*connection).map(std::mem::take).unwrap_or_default();
        self.close(client);
        Turn::Answered(output)
    }
}

/// The last of so many replies, as checkers write replies; `None` if there are not so many, or one of another kind.
pub(crate) fn last_reply(mut output: &[u8], count: usize) -> Option<String> {
    let mut parser = ReplyParser::default();
    let mut replies = Vec::new();
    while !output.is_empty() {
        let (consumed, value) = parser.parse(output).ok()?;
        replies.push(value?);
        output = &output[consumed..];
    }
    let last = replies.pop().filter(|_| replies.len() + 1 == count)?;
    Some(match last {
        Value::Simple(text) => String::from_utf8(text).ok()?,
        Value::Error(text) => format!("-{}", String::from_utf8_lossy(&text)),
        Value::Integer(number) => format!("(integer) {number}"),
        Value::Bulk(bytes) => format!("\"{}\"", bytes.escape_ascii()),
        Value::Null | Value::NullArray => "(nil)".to_owned(),
        Value::Array(values) => format!("({} replies)", values.len()),
        _ => return None,
    })
}

/// The only keyspace, which takes requests down.
#[derive(Debug)]
struct Surroundings {
    now: Now,
    submitted: Vec<(RequestId, Ask)>,
}

impl Host for Surroundings {
    fn submit(
        &mut self,
        _: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    ) {
        for (id, request) in requests.drain(..) {
            match taken_down(&request) {
                Ok(Some(ask)) => self.submitted.push((id, ask)),
                Ok(None) => {}
                Err(error) => replies.reply(id).error(&error),
            }
        }
    }

    fn administer(&mut self, id: RequestId, _: Administration<'_>, replies: &mut dyn Replies) {
        replies.reply(id).error(&Error::err("there is only one keyspace here"));
    }

    fn now(&self) -> Now {
        self.now
    }

    fn keyspace_of_number(&mut self, _: u64) -> Option<KeyspaceId> {
        Some(crate::KEYSPACE)
    }

    fn keyspace_of_name(&mut self, _: &[u8]) -> Option<KeyspaceId> {
        None
    }

    fn look_for_types(&mut self) -> bool {
        false
    }

    fn keyspaces(&self) -> Vec<KeyspaceId> {
        vec![crate::KEYSPACE]
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

/// A request of a transaction; `None` for the end of a session.
fn taken_down(request: &Request<'_>) -> Result<Option<Ask>, Error> {
    Ok(match request {
        Request::Begin { read_only, .. } => Some(Ask::Begin { read_only: *read_only }),
        Request::Operate { steps, .. } => {
            let on_key = |submitted: &protocol::Step<'_>| match submitted {
                protocol::Step::Key(keyed) => Ok(step(keyed.key, encode(&keyed.operation), keyed.blind)),
                _ => Err(Error::err("the workload has such steps in plans only")),
            };
            Some(Ask::Operate(steps.iter().map(on_key).collect::<Result<_, _>>()?))
        }
        Request::Commit { .. } => Some(Ask::Commit),
        Request::Abort { .. } => Some(Ask::Abort),
        Request::Close { .. } => None,
        _ => return Err(Error::err("the workload has no such commands")),
    })
}
