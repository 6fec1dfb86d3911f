//! What surrounds a gateway: the keyspaces that answer its requests, and the process that runs it.

use crate::client::{ClientFilter, ClientInfo};
use protocol::{Durability, Now, Replies, Request};
use types::{KeyspaceId, RequestId};

/// Implemented by the runtime, and by tests. One per worker thread, like the gateway that uses it.
pub trait Host {
    /// Hands requests to a keyspace, all at once, so that it can prefetch what they need. The callee may drain the
    /// vector or leave it as it is; the gateway clears it.
    ///
    /// Requests of one session take effect in this order. Each is answered exactly once (`Close` never), through
    /// `replies` before this returns, or later through [`crate::Gateway`]'s own [`Replies`], followed by
    /// [`crate::Gateway::settle`]. What the requests borrow is gone when this returns. A keyspace that does not
    /// exist (any more) is answered with an error. `Abort` without an open transaction is answered with `OK`.
    fn submit(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        replies: &mut dyn Replies,
    );

    /// Creates, describes, changes or drops a keyspace, or loads a type; answered like a request, at once or later.
    fn administer(&mut self, id: RequestId, command: Administration<'_>, replies: &mut dyn Replies);

    /// The present time.
    fn now(&self) -> Now;

    /// The keyspace that `SELECT number` chooses; `None` when the configuration has no such number. Number 0, the
    /// keyspace `default`, always exists.
    fn keyspace_of_number(&mut self, number: u64) -> Option<KeyspaceId>;

    /// The keyspace of this name; looked for anew if it was not known.
    fn keyspace_of_name(&mut self, name: &[u8]) -> Option<KeyspaceId>;

    /// Looks whether types have been loaded that this process has not heard of, and makes them known. False if there are none.
    fn look_for_types(&mut self) -> bool;

    /// All keyspaces, in the order in which `FLUSHALL` empties them.
    fn keyspaces(&self) -> Vec<KeyspaceId>;

    /// What is certain of every write to a keyspace that has been answered.
    fn safety(&self, keyspace: KeyspaceId) -> Safety;

    /// True when a client has to authenticate before it may do anything else.
    fn authentication_required(&self) -> bool;

    /// True when user and password match.
    fn authenticate(&self, user: &[u8], password: &[u8]) -> bool;

    /// Appends what `INFO` replies: the named sections in lower case, or the default ones when none is named.
    fn info(&self, sections: &[String], out: &mut String);

    /// Visits every configuration parameter with its value, in a fixed order.
    fn configuration(&self, visit: &mut dyn FnMut(&str, &str));

    /// Visits the clients of the process's other gateways.
    fn other_clients(&self, visit: &mut dyn FnMut(&ClientInfo));

    /// Closes the matching clients of the process's other gateways; returns how many.
    fn kill_other_clients(&mut self, filter: &ClientFilter) -> u64;
}

/// How safe an answered write is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safety {
    /// How many processes have it at least, beside one.
    pub replicas: u16,
    /// How durable it is in each of them.
    pub durability: Durability,
}

impl Safety {
    /// Nothing is certain.
    pub const NONE: Safety = Safety { replicas: 0, durability: Durability::Volatile };
}

/// What `KEYSPACE` and `TYPES LOAD` ask of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Administration<'a> {
    /// Creates a keyspace: `OK`.
    Create {
        /// Its name.
        name: &'a [u8],
        /// Its model and options.
        options: KeyspaceOptions<'a>,
    },
    /// Changes options of a keyspace: `OK`.
    Alter {
        /// Its name.
        name: &'a [u8],
        /// The options to change.
        options: KeyspaceOptions<'a>,
    },
    /// Drops a keyspace with everything in it: `OK`.
    Drop {
        /// Its name.
        name: &'a [u8],
    },
    /// Moves the replicas of a partition to these processes: `OK` once that has been asked for; `Info` tells when it is
    /// done.
    Place {
        /// The keyspace's name.
        name: &'a [u8],
        /// The partition.
        partition: u16,
        /// The numbers of the processes.
        processes: Vec<u16>,
    },
    /// Lets a partition, most of whose replicas are lost for good, go on with the one of the asked process and what
    /// others that are left have. An array of byte strings: what is known, and what is not, of what was lost.
    Recover {
        /// The keyspace's name.
        name: &'a [u8],
        /// The partition.
        partition: u16,
        /// The numbers of the other processes whose replicas are left.
        left: Vec<u16>,
    },
    /// Lets a causal keyspace go on without a region that is gone for good: `OK` once that is durable; `Info` tells when it
    /// is done.
    Evict {
        /// The keyspace's name.
        name: &'a [u8],
        /// The region's name.
        region: &'a [u8],
    },
    /// Checks a module and makes it a type, durably and for every process: `OK`.
    LoadType {
        /// Its name, well formed.
        name: &'a [u8],
        /// WebAssembly.
        module: &'a [u8],
    },
    /// The names of all keyspaces: an array of byte strings.
    List,
    /// A keyspace's name, model and options: a map.
    Info {
        /// Its name.
        name: &'a [u8],
    },
    /// The keys on which transactions of a strict keyspace are in each other's way, hottest first, and the processes that
    /// have not told: a map.
    HotKeys {
        /// The keyspace's name.
        name: &'a [u8],
        /// At most so many.
        count: usize,
        /// Forget them then.
        reset: bool,
        /// As the asked process alone has seen it.
        local: bool,
    },
    /// Which partition each key lies in, whether it exists or not: an array of numbers.
    Locate {
        /// The keyspace's name.
        name: &'a [u8],
        /// The keys.
        keys: Vec<&'a [u8]>,
    },
}

/// The options of a keyspace that a command names; the host refuses what it does not support.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeyspaceOptions<'a> {
    /// `MODEL`, in lower case: `strict`, `causal` or `branch`.
    pub model: Option<Model>,
    /// `REGIONS`, as the client spelled them: those that keep the keyspace. Empty if it does not say.
    pub regions: Vec<&'a [u8]>,
    /// Any other option with its value, as the client spelled them.
    pub others: Vec<(&'a [u8], &'a [u8])>,
}

/// How concurrent updates of a keyspace meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Model {
    /// Strictly serializable.
    Strict,
    /// Causally consistent, convergent.
    Causal,
    /// Branches on conflict.
    Branch,
}

impl Model {
    /// The model of this name, in any case.
    pub fn from_name(name: &[u8]) -> Option<Self> {
        [Model::Strict, Model::Causal, Model::Branch]
            .into_iter()
            .find(|model| model.as_str().as_bytes().eq_ignore_ascii_case(name))
    }

    /// Its name in commands.
    pub fn as_str(self) -> &'static str {
        match self {
            Model::Strict => "strict",
            Model::Causal => "causal",
            Model::Branch => "branch",
        }
    }
}
