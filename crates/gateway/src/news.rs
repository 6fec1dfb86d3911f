//! What the gateways of one cluster tell each other, beside what their keyspaces do.
//!
//! ```text
//!   gateway -- Host::tell --> the other workers' gateways, and those of every connected process -- Gateway::hear
//! ```
//!
//! News arrive at most once, and those of one gateway in its order. They leave when what the sender's clients were replied
//! in the same turn is as durable as promised. Nothing that a protocol promises rests on them.

use types::{KeyspaceId, ProcessId, wire_enum, wire_struct};

/// Who is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Audience {
    /// All other gateways: of this process, and of every process that it is connected to.
    Others,
    /// The other gateways of this process.
    Here,
    /// The gateways of every other process that this one is connected to.
    Elsewhere,
    /// The gateways of this process; where it is the own one, all but the one that tells it.
    Process(ProcessId),
}

/// What is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// A client has published a message.
    Published {
        /// The message.
        message: Message,
    },
}
wire_enum!(News {
    0 => Published { message },
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
    /// What its publisher had seen and written of a causal keyspace, as `CONTEXT TOKEN` tells it: who is told of the message
    /// is to find that there.
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
    use types::{Reader, Wire};

    #[test]
    fn news_travel() {
        let context = Some(SeenContext { keyspace: KeyspaceId(3), token: (*b"t").into() });
        for (sharded, context) in [(false, None), (true, context)] {
            let (channel, payload) = ((*b"c").into(), (*b"").into());
            let news = News::Published { message: Message { sharded, channel, payload, context } };
            let mut bytes = Vec::new();
            news.encode(&mut bytes);
            let mut reader = Reader::new(&bytes);
            assert_eq!(News::decode(&mut reader), Ok(news));
            assert!(reader.is_empty());
            assert!(News::decode(&mut Reader::new(&bytes[..bytes.len() - 1])).is_err());
        }
    }
}
