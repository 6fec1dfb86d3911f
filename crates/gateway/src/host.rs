//! What surrounds a gateway: the keyspaces that answer its requests, and the process that runs it.

use crate::acl::{AclLog, KeyspaceRules, Users};
use crate::client::{ClientFilter, ClientInfo};
use crate::diagnostics::{Diagnostics, SlowCommand};
use crate::functions::{FunctionLibraries, RestorePolicy};
use crate::interest::Interest;
use crate::news::{Audience, News};
use crate::notifications::{Lapsed, Notifications};
use crate::pubsub::OutputLimit;
use crate::statistics::Statistics;
use crate::tracking::TrackingFigures;
use crate::waiters::Waiters;
use protocol::{Durability, KeyedOperation, Now, Replies, Request};
use std::sync::Arc;
use types::{Error, Instant, KeyspaceId, ProcessId, ReplyBuf, RequestId};

/// Names with numbers.
pub type Figures<'f> = &'f [(&'f str, u64)];

/// Keys lent to a transaction: nobody else sees or changes them until it has ended.
pub trait Loan {
    /// Evaluates an operation of the transaction, which takes effect at once, and appends the reply. False, and nothing has
    /// happened, if this key is not to be had now: then the transaction is to begin anew as requests.
    fn operate(&mut self, operation: &KeyedOperation<'_>, reply: &mut ReplyBuf) -> bool;
}

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

    /// Lends keys of a keyspace to one transaction, whose whole course is `work`: true if what it did is to stay, false if it
    /// never happened. Meanwhile others may wait for the keys, so `work` asks the host for nothing that may wait for them.
    /// False, and nothing has happened, if the keyspace lends none: then transactions are requests.
    fn lend(&mut self, keyspace: KeyspaceId, work: &mut dyn FnMut(&mut Self, &mut dyn Loan) -> bool) -> bool
    where
        Self: Sized,
    {
        let _ = (keyspace, work);
        false
    }

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

    /// The libraries of functions. With `look`, those that other processes have loaded meanwhile are known too.
    fn functions(&mut self, look: bool) -> Arc<FunctionLibraries> {
        let _ = look;
        Arc::default()
    }

    /// For how many milliseconds a script must have run that `SCRIPT KILL` ends.
    fn busy_millis(&self) -> u64 {
        0
    }

    /// All keyspaces, in the order in which `FLUSHALL` empties them.
    fn keyspaces(&self) -> Vec<KeyspaceId>;

    /// What is certain of every write to a keyspace that has been answered.
    fn safety(&self, keyspace: KeyspaceId) -> Safety;

    /// True when a client has to authenticate before it may do anything else.
    fn authentication_required(&self) -> bool {
        let mut required = false;
        self.users(&mut |users| required = users.must_authenticate());
        required
    }

    /// Looks at the users of the process, which all its gateways share.
    fn users(&self, look: &mut dyn FnMut(&Users)) {
        look(&Users::new(None));
    }

    /// Changes them; [`Host::users_version`] is another one then.
    fn change_users(&mut self, change: &mut dyn FnMut(&mut Users)) {
        change(&mut Users::new(None));
    }

    /// How often users have changed.
    #[inline]
    fn users_version(&self) -> u64 {
        0
    }

    /// Looks at what users were refused, and changes it.
    fn acl_log(&self, work: &mut dyn FnMut(&mut AclLog)) {
        work(&mut AclLog::default());
    }

    /// Takes the users of the file in place of the present ones.
    ///
    /// # Errors
    /// There is no file, it cannot be read, or a line of it is no user: nothing has changed.
    fn load_users(&mut self) -> Result<(), Error> {
        Err(no_acl_file())
    }

    /// Writes the users to the file.
    ///
    /// # Errors
    /// There is none, or it cannot be written: it is as it was.
    fn save_users(&mut self) -> Result<(), Error> {
        Err(no_acl_file())
    }

    /// Fills `bytes` with what nobody can guess.
    ///
    /// # Errors
    /// The system has none.
    fn entropy(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        let _ = bytes;
        Err(Error::err("this process has no source of random numbers that nobody can guess"))
    }

    /// The name of a keyspace; `None` if there is none with this number.
    fn keyspace_name(&self, keyspace: KeyspaceId) -> Option<String> {
        let _ = keyspace;
        None
    }

    /// Appends what `INFO` replies: the named sections in lower case, or the default ones when none is named. `own` is
    /// what the asking gateway has counted.
    fn info(&self, sections: &[String], own: &Statistics, visible: &KeyspaceRules, out: &mut String);

    /// Adds what the process's other gateways have counted.
    fn other_statistics(&self, sum: &mut Statistics) {
        let _ = sum;
    }

    /// All gateways of the process begin to count anew; the asking one has.
    fn reset_statistics(&mut self) {}

    /// Visits every configuration parameter with its value, in a fixed order.
    fn configuration(&self, visit: &mut dyn FnMut(&str, &str));

    /// Changes configuration parameters: all of them or none.
    ///
    /// # Errors
    /// One is unknown, cannot be changed, or has no such value.
    fn configure(&mut self, parameters: &[(&[u8], &[u8])]) -> Result<(), Error> {
        let _ = parameters;
        Err(Error::err("this process has no parameters that can be changed"))
    }

    /// The processes of the cluster's region that clients may ask; `None` for a process by itself.
    fn cluster_map(&mut self) -> Option<ClusterMap> {
        None
    }

    /// Why the configuration file is not written by `CONFIG REWRITE`.
    fn why_not_rewritten(&self) -> Error {
        Error::err("The server is running without a config file")
    }

    /// A clock for measurements, in nanoseconds.
    fn clock(&self) -> u64 {
        self.now().instant.0.saturating_mul(1000)
    }

    /// Commands that take so many nanoseconds go to the slow log.
    fn slow_nanos(&self) -> u64 {
        u64::MAX
    }

    /// A command took long.
    fn note_slow(&self, command: SlowCommand) {
        let _ = command;
    }

    /// Shows what the process remembers of slow commands.
    fn diagnose(&self, work: &mut dyn FnMut(&mut Diagnostics)) {
        work(&mut Diagnostics::default());
    }

    /// What a client did that an operator should know. Reported once a minute at most.
    fn report(&self, incident: Incident<'_>) {
        let _ = incident;
    }

    /// A client has authenticated: it counts among those that are served from now on.
    ///
    /// # Errors
    /// There are too many.
    fn admit(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Until when commands wait.
    fn pause(&self) -> Pause {
        Pause::default()
    }

    /// Lets commands wait, or lets them go on.
    fn set_pause(&mut self, pause: Pause) {
        let _ = pause;
    }

    /// True if the client with this address may use `DEBUG`.
    fn may_debug(&self, address: &str) -> bool {
        let _ = address;
        false
    }

    /// Asks for a checkpoint.
    ///
    /// # Errors
    /// One is under way, or the process has no directory for it.
    fn want_checkpoint(&mut self) -> Result<(), Error> {
        Err(Error::err("this process takes no checkpoints"))
    }

    /// When the last checkpoint was taken, or the process started, in seconds since 1970.
    fn last_checkpoint_seconds(&self) -> u64 {
        0
    }

    /// Ends the process in order; with `saving`, a checkpoint saves what no log holds.
    fn shut_down(&mut self, saving: bool) {
        let _ = saving;
    }

    /// Visits what is known of the memory of the process, in bytes.
    fn memory(&self, visit: &mut dyn FnMut(&str, u64)) {
        let _ = visit;
    }

    /// Tells other gateways, which get it by [`crate::Gateway::hear`]; see [`News`].
    fn tell(&mut self, whom: Audience, news: News) {
        let _ = (whom, news);
    }

    /// Looks at what the process's gateways have subscribers of.
    fn interest(&self, look: &mut dyn FnMut(&Interest)) {
        look(&Interest::default());
    }

    /// Changes it.
    fn change_interest(&mut self, change: &mut dyn FnMut(&mut Interest)) {
        change(&mut Interest::default());
    }

    /// How much may wait to be sent to a subscriber.
    fn output_limit(&self) -> OutputLimit {
        OutputLimit::default()
    }

    /// Which events of keys are published.
    #[inline]
    fn notifications(&self) -> Notifications {
        Notifications::default()
    }

    /// True where other gateways of the process are far behind with their news.
    fn is_congested(&self) -> bool {
        false
    }

    /// This process.
    fn process(&self) -> ProcessId {
        ProcessId(0)
    }

    /// True if a message to other processes may have to say what its publisher has seen of this keyspace.
    fn may_need_context(&self, keyspace: KeyspaceId) -> bool {
        let _ = keyspace;
        false
    }

    /// True if clients watch the commands of this process.
    #[inline]
    fn is_monitored(&self) -> bool {
        false
    }

    /// So many clients of this gateway watch from now on.
    fn set_monitors(&mut self, count: usize) {
        let _ = count;
    }

    /// Shows lines to those clients of the process's other gateways that watch.
    fn monitor(&mut self, lines: &[u8]) {
        let _ = lines;
    }

    /// A client has described itself, which the process's other gateways are to show.
    fn note_client(&self, client: &ClientInfo) {
        let _ = client;
    }

    /// Visits what is known of the memory of each keyspace that the user may see: its name as `MEMORY STATS` has it, and its figures.
    fn memory_of_keyspaces(&self, visible: &KeyspaceRules, visit: &mut dyn FnMut(&str, Figures<'_>)) {
        let _ = (visible, visit);
    }

    /// How many words behind its name a command on data may have in this keyspace: it is one step, in which others wait
    /// (Corrections 87).
    fn most_words(&mut self, keyspace: KeyspaceId) -> usize {
        let _ = keyspace;
        usize::MAX
    }

    /// A command that may need more memory is about to be carried out, or queued, in this keyspace. Caches may be made to let
    /// keys go first (Corrections 81).
    ///
    /// # Errors
    /// `OOM`: there is none left.
    fn may_grow(&mut self, keyspace: KeyspaceId) -> Result<(), Error> {
        let _ = keyspace;
        Ok(())
    }

    /// Looks at who waits, and changes that: all gateways of the process share it.
    fn waiters(&self, work: &mut dyn FnMut(&mut Waiters)) {
        work(&mut Waiters::new(self.process()));
    }

    /// [`Waiters::is_concerned`], as cheaply as can be. Who entered before a write was executed is seen after it.
    fn has_waiters(&self) -> bool {
        false
    }

    /// [`Waiters::awaits_streams`], as cheaply as can be.
    fn awaits_streams(&self) -> bool {
        false
    }

    /// True if [`Host::take_lapsed`] has any.
    fn has_lapsed(&self) -> bool {
        false
    }

    /// Keys that are gone since the last call though no command has deleted them. News of them waits for what replies
    /// of this turn wait for.
    fn take_lapsed(&mut self) -> Vec<Lapsed> {
        Vec::new()
    }

    /// Which processes keep lines of those that wait in a keyspace.
    fn lines(&self, keyspace: KeyspaceId) -> Lines {
        let _ = keyspace;
        Lines { lags: false, is_strict: true, groups: vec![vec![self.process()]] }
    }

    /// True if clients of this process or of another one are tracked: the gateway then announces changes. A client
    /// tracked before a write was executed is seen after it.
    fn is_tracked(&self) -> bool {
        false
    }

    /// What this gateway has in its table of tracked clients now.
    fn note_tracking(&mut self, figures: TrackingFigures) {
        let _ = figures;
    }

    /// Clients of other processes are tracked until then, unless that is said again.
    fn note_tracked_elsewhere(&mut self, until: Instant) {
        let _ = until;
    }

    /// How many keys each gateway's table may hold.
    fn most_tracked_keys(&self) -> usize {
        usize::MAX
    }

    /// May clients be tracked that read this keyspace?
    ///
    /// # Errors
    /// Says why nobody could tell them of all changes, and what to do.
    fn may_track(&mut self, keyspace: KeyspaceId) -> Result<(), Error> {
        let _ = keyspace;
        Ok(())
    }

    /// The other processes that may write what this one's clients read, connected or not.
    fn other_processes(&self) -> Vec<ProcessId> {
        Vec::new()
    }

    /// How many gateways the process has.
    fn gateways(&self) -> u16 {
        1
    }

    /// Visits the clients of the process's other gateways.
    fn other_clients(&self, visit: &mut dyn FnMut(&ClientInfo));

    /// Closes the matching clients of the process's other gateways; returns how many.
    fn kill_other_clients(&mut self, filter: &ClientFilter) -> u64;
}

/// What a process says that keeps no users in a file.
pub fn no_acl_file() -> Error {
    Error::err(
        "This Redis instance is not configured to use an ACL file. You may want to specify users via the ACL SETUSER command and \
         then issue a CONFIG REWRITE (assuming you have a Redis configuration file set) in order to store users in the Redis \
         configuration.",
    )
}

/// Which processes keep lines of waiting clients; see [`Waiters`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lines {
    /// A write may be visible to some client later than to the one that was answered, or other processes write.
    pub lags: bool,
    /// All clients see the same: what one finds, any other would have found.
    pub is_strict: bool,
    /// The processes that share their lines, as far as they are connected: the own group first.
    pub groups: Vec<Vec<ProcessId>>,
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

/// The processes that clients of a region may ask, in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMap {
    /// Distinguishes clusters.
    pub seed: u64,
    /// This process, and the others of its region that have said where clients reach them.
    pub members: Vec<ClusterMember>,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterMember {
    /// Its number, unique for ever.
    pub process: u16,
    /// The host at which clients reach it.
    pub host: String,
    /// The port there.
    pub port: u16,
    /// The port at which its peers reach it.
    pub peer_port: u16,
    /// This process is the one that answers.
    pub is_self: bool,
    /// It is the one that tells, or this one is connected to it.
    pub is_up: bool,
}

/// What a client did that an operator should know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Incident<'a> {
    /// It sent lines of HTTP, from this address.
    CrossProtocol(&'a str),
    /// It gave a wrong password, from this address.
    WrongPassword(&'a str),
    /// It was disconnected, at this address: it has not read the messages that it subscribed to.
    SlowSubscriber(&'a str),
}

/// `CLIENT PAUSE`: commands wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pause {
    /// Until then.
    pub until: Instant,
    /// Only commands that may write.
    pub writes_only: bool,
}

impl Pause {
    /// True while commands wait.
    #[inline]
    pub fn is_on(&self, now: Instant) -> bool {
        now < self.until
    }
}

/// What `KEYSPACE`, `TYPES LOAD`, `FUNCTION` and `SAVE` ask of the process.
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
    /// Moves the replicas of a partition to these processes: `OK` once the request is sent; `Info` shows when the move
    /// is done.
    Place {
        /// The keyspace's name.
        name: &'a [u8],
        /// The partition.
        partition: u16,
        /// The numbers of the processes.
        processes: Vec<u16>,
    },
    /// Lets a partition, most of whose replicas are lost for good, go on with the replica of the receiving process and
    /// what others that are left have. An array of byte strings: what is known, and what is not, of what was lost.
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
    /// Loads a library of functions on trial and keeps it, durably and for every process: its name, as a byte string.
    LoadLibrary {
        /// Its text.
        source: &'a [u8],
        /// One of its name goes.
        replace: bool,
    },
    /// The same for several libraries, all of them or none: `OK`.
    RestoreLibraries {
        /// Their texts.
        sources: Vec<Vec<u8>>,
        /// What becomes of those that there are.
        policy: RestorePolicy,
    },
    /// Deletes a library, durably and for every process: `OK`.
    DeleteLibrary {
        /// Its name.
        name: &'a [u8],
    },
    /// Deletes all libraries, durably and for every process: `OK`.
    FlushLibraries,
    /// Takes a checkpoint: `OK` once it is on disk.
    Save,
    /// The names of all keyspaces that the user may see: an array of byte strings.
    List {
        /// Which those are.
        visible: KeyspaceRules,
    },
    /// A keyspace's name, model and options: a map.
    Info {
        /// Its name.
        name: &'a [u8],
    },
    /// The keys on which transactions of a strict keyspace are in each other's way, hottest first, and the processes
    /// that have not answered: a map.
    HotKeys {
        /// The keyspace's name.
        name: &'a [u8],
        /// At most so many.
        count: usize,
        /// Forget them then.
        reset: bool,
        /// Only what the receiving process has seen.
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
