//! What is known about a client beside its data: who it is, what it said about itself, how to name it in a filter.

use resp::ProtocolVersion;
use std::fmt::Write;
use std::sync::Arc;
use types::Instant;

/// What the runtime knows about a connection when it opens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The client's number, unique per process incarnation; also its session's.
    pub client: u64,
    /// The client's address, `host:port`.
    pub address: String,
    /// The address it connected to.
    pub local_address: String,
}

/// One line of `CLIENT LIST`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientInfo {
    /// See [`Peer`].
    pub peer: Peer,
    /// The name of its user.
    pub user: Arc<[u8]>,
    /// The name it gave itself; empty if none.
    pub name: Vec<u8>,
    /// The name of its library; empty if unknown.
    pub library: Vec<u8>,
    /// The version of its library; empty if unknown.
    pub library_version: Vec<u8>,
    /// When it connected.
    pub opened_at: Instant,
    /// When it last sent a command.
    pub active_at: Instant,
    /// The number of the selected keyspace; 0 when it was chosen by name.
    pub database: u64,
    /// How many commands are queued; `None` outside MULTI.
    pub queued: Option<usize>,
    /// The bytes of the queued commands.
    pub queued_bytes: usize,
    /// Replies not yet taken by the runtime, in bytes.
    pub output_bytes: usize,
    /// To how many channels, patterns and shard channels it has subscribed.
    pub subscriptions: [usize; 3],
    /// It is blocked: a command of it waits until there is something for it.
    pub blocked: bool,
    /// The last command, `client|list`.
    pub last_command: &'static str,
    /// The version of the protocol it speaks.
    pub version: ProtocolVersion,
    /// It is shown the commands of all clients.
    pub monitoring: bool,
    /// The client that gets its invalidations instead, 0 for itself; `None` if it is not tracked.
    pub redirection: Option<u64>,
    /// That client is gone.
    pub is_redirection_broken: bool,
    /// It gets invalidations of all keys with its prefixes.
    pub is_broadcast: bool,
}

impl ClientInfo {
    /// True if it has subscribed to something.
    pub fn is_subscriber(&self) -> bool {
        self.subscriptions != [0; 3]
    }

    fn flags(&self) -> String {
        let flags = [
            (self.monitoring, 'O'),
            (self.is_subscriber() && !self.monitoring, 'P'),
            (self.queued.is_some() && !self.monitoring, 'x'),
            (self.blocked, 'b'),
            (self.redirection.is_some(), 't'),
            (self.is_redirection_broken, 'R'),
            (self.is_broadcast, 'B'),
        ];
        let set: String = flags.iter().filter(|(is_set, _)| *is_set).map(|(_, letter)| letter).collect();
        if set.is_empty() { "N".to_owned() } else { set }
    }

    /// Appends the line as Redis formats it; `now` gives the ages.
    pub fn write_line(&self, now: Instant, out: &mut String) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let queued = self.queued.map_or(-1, |queued| queued as i64);
        let [channels, patterns, shards] = self.subscriptions;
        let flags = self.flags();
        let redirection = self.redirection.map_or(-1, |client| client as i64);
        let written = write!(
            out,
            "id={} addr={} laddr={} fd=-1 name={} age={} idle={} flags={flags} db={} sub={channels} psub={patterns} \
             ssub={shards} multi={queued} qbuf=0 qbuf-free=0 argv-mem=0 multi-mem={} rbs=0 rbp=0 obl={} oll=0 omem={} tot-mem=0 \
             events=r cmd={} user={} redir={redirection} resp={} lib-name={} lib-ver={}",
            self.peer.client,
            self.peer.address,
            self.peer.local_address,
            text(&self.name),
            (now - self.opened_at).as_secs(),
            (now - self.active_at).as_secs(),
            self.database,
            self.queued_bytes,
            self.output_bytes,
            self.output_bytes,
            self.last_command,
            text(&self.user),
            self.version.number(),
            text(&self.library),
            text(&self.library_version),
        );
        debug_assert!(written.is_ok(), "a string takes any text");
    }
}

/// What kind of client it is, as `CLIENT KILL TYPE` and `CLIENT LIST TYPE` ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientKind {
    /// One without subscriptions.
    Normal,
    /// One with subscriptions.
    Subscriber,
    /// A kind that is not here: a master, a replica.
    Other,
}

impl ClientKind {
    /// True for a client that has subscriptions, or has none.
    pub(crate) fn is_of(self, is_subscriber: bool) -> bool {
        match self {
            ClientKind::Normal => !is_subscriber,
            ClientKind::Subscriber => is_subscriber,
            ClientKind::Other => false,
        }
    }
}

/// Which clients `CLIENT KILL` closes: those that match every condition given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientFilter {
    /// This client.
    pub client: Option<u64>,
    /// The client at this address.
    pub address: Option<Vec<u8>>,
    /// Clients that connected to this address.
    pub local_address: Option<Vec<u8>>,
    /// Clients of this user.
    pub user: Option<Vec<u8>>,
    /// Clients of this kind.
    pub kind: Option<ClientKind>,
    /// Not this client (the asking one, unless `SKIPME no`).
    pub except: Option<u64>,
}

impl ClientFilter {
    /// True when the client is meant, which has subscriptions or none.
    pub fn matches(&self, peer: &Peer, user: &[u8], is_subscriber: bool) -> bool {
        let equal = |wanted: &Option<Vec<u8>>, got: &str| {
            wanted.as_ref().is_none_or(|wanted| wanted == got.as_bytes())
        };
        self.kind.is_none_or(|kind| kind.is_of(is_subscriber))
            && self.client.is_none_or(|client| client == peer.client)
            && equal(&self.address, &peer.address)
            && equal(&self.local_address, &peer.local_address)
            && self.user.as_ref().is_none_or(|wanted| wanted == user)
            && self.except != Some(peer.client)
    }
}
