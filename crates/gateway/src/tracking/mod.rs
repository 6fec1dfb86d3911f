//! Client-side caching: `CLIENT TRACKING`. A client that has read a key is notified once when it has changed.
//!
//! ```text
//!   read  --> its keys enter the gateway's table --> a request to the keyspace
//!   write --> answered --> its keys are touched --Host::tell--> every gateway --> the clients in its table
//! ```
//!
//! A key enters the table before its value is read, and the gateway announces a change when its write has been
//! answered: a client that was not in the table then reads what was written. An invalidation for a client whose read
//! is under way goes behind the reply, so that the client never caches a value after its invalidation. [`changes`]
//! collects what connections write, [`peers`] sees to it that nothing other processes tell is missed unnoticed,
//! [`push`] sends.

pub(crate) mod changes;
pub(crate) mod peers;
mod push;
pub(crate) mod reads;
mod table;

pub(crate) use push::Pushed;
pub(crate) use table::Table;

use std::collections::BTreeSet;
use types::KeyspaceId;

/// How many keys read in one transaction are remembered; with more, the gateway invalidates everything at its end.
const MOST_INSIDE: usize = 10_000;

/// How a client is tracked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tracking {
    /// The client that gets the invalidations instead; 0 for itself.
    pub(crate) redirect: u64,
    /// It gets invalidations of all keys with its prefixes, whether it has read them or not.
    pub(crate) broadcast: bool,
    /// Keys are remembered only behind `CLIENT CACHING yes`.
    pub(crate) opt_in: bool,
    /// Keys are remembered unless behind `CLIENT CACHING no`.
    pub(crate) opt_out: bool,
    /// It gets no invalidations of its own writes.
    pub(crate) no_loop: bool,
    /// `CLIENT CACHING` was given, for the next command.
    pub(crate) caching: bool,
    /// It was given for the present command.
    pub(crate) given: bool,
    /// The client that notifications are redirected to is gone.
    pub(crate) is_broken: bool,
    /// With `broadcast`; in order.
    pub(crate) prefixes: BTreeSet<Box<[u8]>>,
    /// What it has read in its open transaction, where it may see what others never do.
    inside: Inside,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Inside {
    keys: BTreeSet<Box<[u8]>>,
    is_full: bool,
}

impl Tracking {
    /// The next command comes. `keeps` is true of one that leaves `CLIENT CACHING` to those behind it.
    pub(crate) fn next_command(&mut self, keeps: bool) {
        self.given = self.caching;
        self.caching &= keeps;
    }

    /// True if keys that the present command reads are remembered.
    fn remembers(&self) -> bool {
        match (self.broadcast, self.opt_in, self.opt_out) {
            (true, ..) => false,
            (false, true, _) => self.given,
            (false, false, true) => !self.given,
            (false, false, false) => true,
        }
    }

    /// True if a key has one of the prefixes.
    fn covers(&self, key: &[u8]) -> bool {
        self.prefixes.iter().any(|prefix| key.starts_with(prefix))
    }

    /// A key was read in the open transaction.
    fn note_inside(&mut self, key: &[u8]) {
        match self.inside.keys.len() < MOST_INSIDE {
            true => drop(self.inside.keys.insert(key.into())),
            false => self.inside.is_full = true,
        }
    }

    /// What was read in the transaction that is over.
    fn take_inside(&mut self) -> Option<Pushed> {
        let Inside { keys, is_full } = std::mem::take(&mut self.inside);
        match (is_full, keys.is_empty()) {
            (true, _) => Some(Pushed::All),
            (false, true) => None,
            (false, false) => Some(Pushed::Keys(keys.into_iter().collect())),
        }
    }
}

/// What a connection has written, or may have.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Touched {
    /// A key.
    Key(KeyspaceId, Box<[u8]>),
    /// Anything in a keyspace.
    All(KeyspaceId),
}

impl Touched {
    fn keyspace(&self) -> KeyspaceId {
        let (Touched::Key(keyspace, _) | Touched::All(keyspace)) = self;
        *keyspace
    }
}

/// How many clients, keys, and pairs of a key and a client, and prefixes a gateway has in its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TrackingFigures {
    /// Tracked clients.
    pub clients: u64,
    /// Keys.
    pub keys: u64,
    /// Pairs of a key and a client that has read it.
    pub items: u64,
    /// Prefixes, each once.
    pub prefixes: u64,
}
