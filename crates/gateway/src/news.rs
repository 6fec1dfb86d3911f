//! News between the gateways of one cluster, which no keyspace carries.
//!
//! ```text
//!   gateway -- Host::tell --> the other workers' gateways, and those of every connected process -- Gateway::hear
//! ```
//!
//! News arrive at most once, and those of one gateway in its order. They leave when what the sender's clients were replied
//! in the same turn is as durable as promised. Nothing that a protocol promises rests on them.

use crate::waiters::Place;
use types::{KeyspaceId, ProcessId, wire_enum, wire_struct};

/// The receivers of news.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All other gateways: of this process, and of every process that it is connected to.
    Others,
    /// The other gateways of this process.
    Here,
    /// The gateways of every other process that this one is connected to.
    Elsewhere,
    /// The gateway with this number of this process, which is another one.
    Worker(u16),
    /// The gateways of this process; where it is the own one, all but the one that tells it.
    Process(ProcessId),
}

/// A piece of news.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A client has published a message.
    Published {
        /// The message.
        message: Message,
    },
    /// Of clients that wait for a key to hold something: see [`crate::Waiters`].
    Line {
        /// For what they wait.
        place: Place,
        /// What there is to tell.
        what: LineNews,
    },
    /// A blocked client waits no longer. Sent within a process.
    Unblock {
        /// Its number.
        client: u64,
        /// It gets an error, not the reply of a wait that has ended.
        with_error: bool,
    },
    /// Keys have changed: for clients with tracking. See [`crate::tracking`].
    Changed {
        /// The gateway that tells.
        worker: u16,
        /// How many changes it has announced to other processes; 0 within a process.
        number: u64,
        /// What has changed.
        changes: Changes,
    },
    /// Clients of this process are tracked: whoever changes something is to tell.
    Tracks {
        /// Processes whose news was missed.
        missed: Vec<ProcessId>,
    },
    /// To a process with tracked clients: this gateway tells of changes.
    Tells {
        /// The gateway.
        worker: u16,
        /// How many gateways its process has.
        gateways: u16,
        /// How many changes it has announced.
        number: u64,
    },
    /// A tracked client redirects its invalidations to another one. Sent within a process.
    Invalidated {
        /// The number of the receiving client.
        client: u64,
        /// The keys.
        keys: Vec<Box<[u8]>>,
        /// Anything may have changed.
        all: bool,
    },
}
wire_enum!(News {
    0 => Published { message },
    1 => Line { place, what },
    2 => Unblock { client, with_error },
    3 => Changed { worker, number, changes },
    4 => Tracks { missed },
    5 => Tells { worker, gateways, number },
    6 => Invalidated { client, keys, all },
});

/// What has changed in a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The keys.
    pub keys: Vec<Box<[u8]>>,
    /// Anything in it may have changed.
    pub all: bool,
    /// What the process had seen of a causal keyspace that tells it: the change is visible where that is.
    pub context: Option<SeenContext>,
}
wire_struct!(Changes { keyspace, keys, all, context });

/// What processes tell each other of those that wait for a key. `worker` and `client` name a waiter: of the sending
/// process, or, of a turn and of an answer, of the receiving one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LineNews {
    /// Clients of this process wait: whoever writes is to signal it.
    Sought,
    /// To the line's home: a client waits, or waits still.
    Enter {
        /// Its gateway.
        worker: u16,
        /// Its number.
        client: u64,
    },
    /// To the line's home: a client waits no longer.
    Leave {
        /// Its gateway.
        worker: u16,
        /// Its number.
        client: u64,
        /// It has taken something from here.
        served: bool,
    },
    /// To the line's home: a client that had the turn has found nothing.
    Missed {
        /// Its gateway.
        worker: u16,
        /// Its number.
        client: u64,
    },
    /// To the line's home: something was written.
    Signal {
        /// So many elements.
        elements: u64,
    },
    /// By the line's home: it is a client's turn to try.
    Turn {
        /// Its gateway.
        worker: u16,
        /// Its number.
        client: u64,
    },
    /// By the line's home: a client stands in the line.
    Entered {
        /// Its gateway.
        worker: u16,
        /// Its number.
        client: u64,
    },
}
wire_enum!(LineNews {
    0 => Sought,
    1 => Enter { worker, client },
    2 => Leave { worker, client, served },
    3 => Missed { worker, client },
    4 => Signal { elements },
    5 => Turn { worker, client },
    6 => Entered { worker, client },
});

/// A published message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// It was published by `SPUBLISH`: for subscribers of shard channels.
    pub sharded: bool,
    /// Where.
    pub channel: Box<[u8]>,
    /// What.
    pub payload: Box<[u8]>,
    /// What its publisher had seen and written of a causal keyspace, as `CONTEXT TOKEN` tells it: a subscriber that
    /// gets the message finds that in the keyspace.
    pub context: Option<SeenContext>,
}
wire_struct!(Message { sharded, channel, payload, context });

/// What a session had seen of a keyspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenContext {
    /// The keyspace.
    pub keyspace: KeyspaceId,
    /// The token.
    pub token: Box<[u8]>,
}
wire_struct!(SeenContext { keyspace, token });

#[cfg(test)]
mod tests {
    use super::*;
    use crate::waiters::Sought;
    use types::{Reader, Wire};

    fn travels(news: News) {
        let mut bytes = Vec::new();
        news.encode(&mut bytes);
        let mut reader = Reader::new(&bytes);
        assert_eq!(News::decode(&mut reader), Ok(news));
        assert!(reader.is_empty());
        assert!(News::decode(&mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
    }

    #[test]
    fn news_of_lines_travel() {
        let place = Place { keyspace: KeyspaceId(3), sought: Sought::ScoredSet, key: (*b"k").into() };
        let (worker, client) = (1, 77);
        for what in [
            LineNews::Sought,
            LineNews::Enter { worker, client },
            LineNews::Leave { worker, client, served: true },
            LineNews::Missed { worker, client },
            LineNews::Signal { elements: 3 },
            LineNews::Turn { worker, client },
            LineNews::Entered { worker, client },
        ] {
            travels(News::Line { place: place.clone(), what });
        }
        travels(News::Unblock { client, with_error: true });
    }

    #[test]
    fn changes_travel() {
        let (keyspace, token) = (KeyspaceId(3), (*b"t").into());
        let keys = vec![(*b"a").into(), (*b"").into()];
        let context = Some(SeenContext { keyspace, token });
        let changes = Changes { keyspace, keys: keys.clone(), all: false, context };
        travels(News::Changed { worker: 1, number: 7, changes });
        travels(News::Tracks { missed: vec![ProcessId(1)] });
        travels(News::Tells { worker: 1, gateways: 2, number: 7 });
        travels(News::Invalidated { client: 9, keys, all: true });
    }

    #[test]
    fn news_travel() {
        let context = Some(SeenContext { keyspace: KeyspaceId(3), token: (*b"t").into() });
        for (sharded, context) in [(false, None), (true, context)] {
            let (channel, payload) = ((*b"c").into(), (*b"").into());
            let news = News::Published { message: Message { sharded, channel, payload, context } };
            travels(news);
        }
    }
}
