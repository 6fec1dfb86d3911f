//! Transactions as clients carry them out, and where they come from.

use resp::Value;

/// A command with its arguments.
pub type Command = Vec<Vec<u8>>;

/// A command from words with spaces between them.
pub(super) fn words(text: &str) -> Command {
    text.split(' ').map(|word| word.as_bytes().to_vec()).collect()
}

/// What a step asks.
#[derive(Debug, Default)]
pub struct Batch {
    /// In any order: none needs another one's reply.
    pub commands: Vec<Command>,
    /// No step comes after it.
    pub last: bool,
}

impl Batch {
    /// The last step.
    pub fn last(commands: Vec<Command>) -> Self {
        Batch { commands, last: true }
    }

    /// A step after which others come.
    pub fn first(commands: Vec<Command>) -> Self {
        Batch { commands, last: false }
    }
}

/// A transaction that was drawn. All chance is in it already: its further tries ask the same, but for what replies change.
pub trait Plan {
    /// What it is called in reports.
    fn kind(&self) -> &'static str;
    /// The step after so many that were answered.
    fn step(&self, replies: &[Vec<Value>]) -> Batch;
    /// What the workload learns from its commit.
    fn outcome(&self, _replies: &[Vec<Value>]) -> Option<Event> {
        None
    }
}

/// Operations that do not depend on one another.
pub(super) struct OneStep {
    pub kind: &'static str,
    pub commands: Vec<Command>,
}

impl Plan for OneStep {
    fn kind(&self) -> &'static str {
        self.kind
    }

    fn step(&self, _: &[Vec<Value>]) -> Batch {
        Batch::last(self.commands.clone())
    }
}

/// What a workload learns.
#[derive(Debug, PartialEq, Eq)]
pub enum Event {
    /// A user has seen these posts, and how often each was reposted.
    Seen {
        /// Who.
        user: u32,
        /// The posts.
        posts: Vec<(String, i64)>,
    },
    /// The auction of this slot is over.
    Closed {
        /// Which.
        slot: u32,
    },
    /// This item is auctioned in the slot now.
    Opened {
        /// Which.
        slot: u32,
        /// Its name.
        item: String,
    },
}

/// A workload in progress: what its transactions draw from.
pub trait Source {
    /// What fills the keyspace.
    fn load(&self) -> Box<dyn Iterator<Item = Command> + '_>;
    /// The next transaction of any client.
    fn draw(&mut self, random: &mut fastrand::Rng) -> Box<dyn Plan>;
    /// A transaction has committed.
    fn learn(&mut self, _event: Event, _random: &mut fastrand::Rng) {}
}

/// A reply of a step; `Null` if there is none.
pub(super) fn reply(replies: &[Vec<Value>], step: usize, at: usize) -> &Value {
    replies.get(step).and_then(|of| of.get(at)).unwrap_or(&Value::Null)
}

/// The elements of a reply, as text.
pub(super) fn texts(reply: &Value) -> Vec<String> {
    let elements = reply.as_elements().unwrap_or_default();
    elements.iter().filter_map(text).collect()
}

pub(super) fn text(value: &Value) -> Option<String> {
    value.as_bytes().map(|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// What one of a hundred draws falls on, by shares of a hundred.
pub(super) fn share<T: Copy>(shares: &[(T, u8)], random: &mut fastrand::Rng) -> T {
    debug_assert_eq!(shares.iter().map(|(_, share)| u32::from(*share)).sum::<u32>(), 100);
    let mut drawn = random.u8(..100);
    for (what, share) in shares {
        if drawn < *share {
            return *what;
        }
        drawn -= share;
    }
    shares[shares.len() - 1].0
}
