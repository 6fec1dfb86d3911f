//! What the tests share: hosts, clients, and replies as text.

pub mod host;
pub mod memory;

use anabranch_gateway::{Config, ConnectionId, Gateway, News, Peer, State};
use host::TestHost;
use resp::{ReplyParser, Value};
use std::collections::BTreeMap;
use types::{ProcessId, Rng};

/// A gateway with its clients and its host.
pub struct Harness {
    pub gateway: Gateway,
    pub host: TestHost,
    clients: BTreeMap<String, Client>,
    random: Rng,
}

struct Client {
    connection: ConnectionId,
    unread: Vec<u8>,
}

impl Harness {
    pub fn new(config: Config) -> Self {
        let random = Rng::with_seed(7);
        let scripts = scripts::Scripts::new(scripts::Library::default());
        let gateway = Gateway::new(config).with_interpreter(scripts);
        Harness { gateway, host: TestHost::new(), clients: BTreeMap::new(), random }
    }

    pub fn connection(&mut self, name: &str) -> ConnectionId {
        let number = self.clients.len() as u64 + 1;
        let (gateway, host) = (&mut self.gateway, &mut self.host);
        let client = self.clients.entry(name.to_owned()).or_insert_with(|| {
            let address = format!("10.0.0.{number}:5000");
            let peer = Peer { client: number, address, local_address: "10.0.0.99:6379".to_owned() };
            Client { connection: gateway.open(peer, host), unread: Vec::new() }
        });
        client.connection
    }

    /// Sends bytes and returns what comes back, without waiting for what is held back.
    pub fn send(&mut self, client: &str, bytes: &[u8]) -> Vec<u8> {
        let connection = self.connection(client);
        self.unread(client).extend_from_slice(bytes);
        self.receive(client);
        self.settle();
        let output = self.gateway.output_mut(connection).expect("it is open");
        std::mem::take(output)
    }

    /// Sends bytes and waits until everything is answered, releasing what is held back.
    pub fn ask(&mut self, client: &str, bytes: &[u8]) -> Vec<u8> {
        let mut output = self.send(client, bytes);
        let connection = self.connection(client);
        while self.gateway.state(connection) == State::Waiting && !self.is_at_rest() {
            self.release();
            output.extend(self.send(client, b""));
        }
        output
    }

    /// True if nothing more is answered unless somebody does something, or time passes.
    fn is_at_rest(&self) -> bool {
        self.host.held.as_ref().is_none_or(Vec::is_empty) && !self.gateway.is_busy()
    }

    /// What clients are answered in the end without another request, by their names; what is held back is released.
    pub fn answered(&mut self) -> Vec<(String, Vec<u8>)> {
        self.settle();
        while !self.is_at_rest() {
            self.release();
        }
        let connections: Vec<(String, ConnectionId)> =
            self.clients.iter().map(|(name, client)| (name.clone(), client.connection)).collect();
        let output = |(name, id)| (name, self.gateway.output_mut(id).map(std::mem::take).unwrap_or_default());
        connections
            .into_iter()
            .map(output)
            .filter(|(_, bytes): &(String, Vec<u8>)| !bytes.is_empty())
            .collect()
    }

    /// The client is gone.
    pub fn close(&mut self, name: &str) {
        if let Some(client) = self.clients.remove(name) {
            self.gateway.close(client.connection, &mut self.host);
        }
    }

    /// Sends a command of `a` to keyspaces that answer later: behind each of the first `writes` requests that contain `word`
    /// `b` sends `written`. What `a` is answered.
    pub fn interrupted(&mut self, command: &[u8], word: &str, written: &[u8], writes: usize) -> Vec<String> {
        self.host.held = Some(Vec::new());
        self.host.seen.clear();
        let mut output = self.send("a", command);
        let mut left = writes;
        while output.is_empty() {
            let is_meant = self.host.seen.last().is_some_and(|request| request.contains(word));
            if is_meant && left > 0 {
                self.send("b", written);
                left -= 1;
            }
            self.release();
            output = self.send("a", b"");
        }
        self.host.held = None;
        render(&output)
    }

    /// Lets the host give out what it held back.
    pub fn release(&mut self) {
        self.host.release(&mut self.gateway, &mut self.random);
        self.settle();
    }

    /// Another gateway tells this one something.
    pub fn hear(&mut self, from: u16, news: &News) {
        self.gateway.hear(ProcessId(from), news, &mut self.host);
        self.settle();
    }

    pub fn settle(&mut self) {
        let mut news = Vec::new();
        self.gateway.settle(&mut self.host, &mut news);
        let ready: Vec<String> = self
            .clients
            .iter()
            .filter(|(_, client)| news.contains(&client.connection))
            .map(|(name, _)| name.clone())
            .collect();
        ready.iter().for_each(|name| self.receive(name));
    }

    fn receive(&mut self, client: &str) {
        let Client { connection, unread } = self.clients.get_mut(client).expect("it was opened");
        let received = self.gateway.receive(*connection, unread, &mut self.host);
        unread.drain(..received.consumed);
    }

    fn unread(&mut self, client: &str) -> &mut Vec<u8> {
        &mut self.clients.get_mut(client).expect("it was opened").unread
    }
}

/// Replies as text, one a line.
pub fn render(bytes: &[u8]) -> Vec<String> {
    let (mut parser, mut rest, mut lines) = (ReplyParser::default(), bytes, Vec::new());
    while !rest.is_empty() {
        let (consumed, value) = parser.parse(rest).expect("well-formed replies");
        lines.push(text(&value.expect("whole replies")));
        rest = &rest[consumed..];
    }
    lines
}

fn quoted(bytes: &[u8]) -> String {
    format!("\"{}\"", bytes.escape_ascii())
}

fn list(open: &str, values: impl Iterator<Item = String>, close: &str) -> String {
    format!("{open}{}{close}", values.collect::<Vec<_>>().join(", "))
}

/// A reply as text: `+OK`, `-ERR ...`, `:1`, `"bytes"`, `nil`, `[...]`, `{...}`.
pub fn text(value: &Value) -> String {
    let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Null => "nil".to_owned(),
        Value::NullArray => "nil-array".to_owned(),
        Value::Simple(bytes) => format!("+{}", lossy(bytes)),
        Value::Error(bytes) => format!("-{}", lossy(bytes)),
        Value::Integer(number) => format!(":{number}"),
        Value::Bulk(bytes) => quoted(bytes),
        Value::Double(number) => format!(",{number}"),
        Value::Boolean(truth) => format!("#{truth}"),
        Value::BigNumber(bytes) => format!("({}", lossy(bytes)),
        Value::Verbatim { format: [b't', b'x', b't'], text } => format!("={}", quoted(text)),
        Value::Verbatim { format, text } => format!("={}:{}", lossy(format), quoted(text)),
        Value::Array(values) => list("[", values.iter().map(text), "]"),
        Value::Set(values) => list("~[", values.iter().map(text), "]"),
        Value::Push(values) => list(">[", values.iter().map(text), "]"),
        Value::Map(pairs) => {
            list("{", pairs.iter().map(|(key, value)| format!("{}: {}", text(key), text(value))), "}")
        }
    }
}
