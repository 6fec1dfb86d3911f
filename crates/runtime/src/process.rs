//! What all threads of a process share.

use crate::cluster::{Cluster, ClusterView, Hostings, Peers};
use crate::guard::Guard;
use crate::health::Recent;
use crate::journal::Journal;
use crate::keyspace::{Keyspace, Locals};
use crate::options::Options;
use crate::parameters::Parameters;
use crate::user_types::StoredType;
use crate::users::SharedUsers;
use gateway::{
    ClientFilter, ClientInfo, Config, Diagnostics, Interest, LibraryChange, Message, News, Statistics,
    Waiters,
};
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};
use protocol::{Gate, Now};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use types::{Error, KeyspaceId, ProcessId, ReplyBuf, RequestId};

/// Ends the process at once: going on could lose or falsify what was acknowledged.
pub(crate) fn fatal(reason: &str) -> ! {
    tracing::error!("{reason}");
    eprintln!("anabranch: fatal: {reason}");
    std::process::exit(70)
}

/// Ends the process when the thread that holds it panics: what the thread was about may be half done, and others would go
/// on with it.
pub(crate) struct EndsWithPanic;

impl Drop for EndsWithPanic {
    fn drop(&mut self) {
        if std::thread::panicking() {
            fatal("a thread has panicked; what was acknowledged is on disk as its durability says");
        }
    }
}

/// What other threads hand to a worker.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Clients, each with its address, and whether it counts among those that are served already.
    pub(crate) sockets: Vec<(TcpStream, std::net::SocketAddr, bool)>,
    pub(crate) kills: Vec<ClientFilter>,
    /// Commands of other workers' clients, as those are shown them who watch.
    pub(crate) monitored: Vec<u8>,
    /// There were more than the worker retains.
    pub(crate) monitored_too_much: bool,
    /// Types that a client of this worker wants to load, checked.
    pub(crate) types: Vec<(RequestId, Result<StoredType, Error>)>,
    /// What has become of what clients of this worker wanted to change of the libraries of functions.
    pub(crate) libraries: Vec<(RequestId, Result<LibraryChange, Error>)>,
    /// Replies to clients of this worker that another one's step gave, and what they wait for.
    pub(crate) replies: Vec<(RequestId, ReplyBuf, Gate)>,
    /// Keyspaces that were dropped: nobody waits for them any longer.
    pub(crate) dropped: Vec<KeyspaceId>,
    /// A thread that is no worker has kept others from a keyspace.
    pub(crate) looks_at_keyspaces: bool,
    /// News from other gateways, with their processes.
    pub(crate) news: Vec<(ProcessId, Arc<News>)>,
    /// About how many bytes these are.
    news_bytes: usize,
}

/// With more bytes of news that it has not heard a worker is far behind.
pub(crate) const MANY_NEWS_BYTES: usize = 8 << 20;
/// With more bytes of them it misses further news.
pub(crate) const MOST_NEWS_BYTES: usize = 128 << 20;

/// About how much memory news take.
pub(crate) fn bytes_of(news: &News) -> usize {
    match news {
        News::Published { message: Message { channel, payload, context, .. } } => {
            let token = context.as_ref().map_or(0, |context| context.token.len());
            128 + channel.len() + payload.len() + token
        }
        News::Changed { changes, .. } => {
            let token = changes.context.as_ref().map_or(0, |context| context.token.len());
            128 + token + changes.keys.iter().map(|key| 16 + key.len()).sum::<usize>()
        }
        News::Invalidated { keys, .. } => 128 + keys.iter().map(|key| 16 + key.len()).sum::<usize>(),
        News::Line { .. } | News::Unblock { .. } | News::Tracks { .. } | News::Tells { .. } => 128,
    }
}

/// A worker as the other threads see it.
pub(crate) struct WorkerHandle {
    pub(crate) waker: Waker,
    pub(crate) inbox: Mutex<Inbox>,
    /// How many of its clients watch the commands of all.
    pub(crate) monitors: AtomicUsize,
    /// It holds replies until the log is more durable.
    pub(crate) awaits_log: AtomicBool,
    /// Its clients by number, with what they did as of its last tick; only if there are other workers.
    pub(crate) clients: Mutex<BTreeMap<u64, ClientInfo>>,
    pub(crate) commands: AtomicU64,
    /// When its loop turned last, in microseconds of the process's life.
    pub(crate) turned_at: AtomicU64,
    /// How many replies on data its clients got as of its last tick, and how many of them were `UNAVAILABLE`.
    pub(crate) answered: [AtomicU64; 2],
    /// What its commands came to as of its last tick, and how often the statistics had been reset then; only if there are
    /// other workers.
    pub(crate) statistics: Mutex<(u64, Statistics)>,
}

/// The present time in seconds since 1970.
pub(crate) fn seconds_since_1970() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

impl WorkerHandle {
    /// Hands it news from gateways of a process.
    pub(crate) fn hand_news(&self, news: impl Iterator<Item = (ProcessId, Arc<News>)>) {
        let mut inbox = self.inbox.lock();
        // Who has left others there has woken it.
        let is_awake = !inbox.news.is_empty();
        for (from, news) in news {
            if inbox.news_bytes > MOST_NEWS_BYTES && matches!(*news, News::Published { .. }) {
                // They arrive at most once, and need not.
                continue;
            }
            inbox.news_bytes += bytes_of(&news);
            inbox.news.push((from, news));
        }
        let has_news = !inbox.news.is_empty();
        drop(inbox);
        if has_news && !is_awake {
            self.wake();
        }
    }

    /// True if it is far behind with its news.
    pub(crate) fn is_congested(&self) -> bool {
        self.inbox.lock().news_bytes > MANY_NEWS_BYTES
    }

    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            fatal(&format!("cannot wake a worker: {error}"));
        }
    }
}

/// The process.
pub(crate) struct Process {
    pub(crate) options: Options,
    pub(crate) journal: Option<Journal>,
    pub(crate) locals: Arc<Locals>,
    /// Not taken to serve data: see [`crate::cluster`] for the order of locks.
    pub(crate) cluster: Mutex<Cluster>,
    pub(crate) hostings: Arc<Hostings>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) view: Arc<ClusterView>,
    pub(crate) workers: RwLock<Vec<Arc<WorkerHandle>>>,
    pub(crate) started: Instant,
    pub(crate) stopping: AtomicBool,
    pub(crate) clients: AtomicUsize,
    /// How many of them watch the commands of all.
    pub(crate) monitors: AtomicUsize,
    pub(crate) next_client: AtomicU64,
    pub(crate) total_connections: AtomicU64,
    pub(crate) rejected_connections: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    /// A type is being checked.
    pub(crate) checks_type: AtomicBool,
    /// Held while libraries of functions are loaded on trial and changed.
    pub(crate) changes_libraries: Mutex<()>,
    /// How many changes of libraries are under way, or wait for that.
    pub(crate) library_changes: AtomicUsize,
    /// The scripts of clients.
    pub(crate) library: scripts::Library,
    pub(crate) port: AtomicUsize,
    pub(crate) parameters: Parameters,
    pub(crate) users: SharedUsers,
    pub(crate) guard: Guard,
    /// Clients that have not authenticated; they are not among `clients`.
    pub(crate) unauthenticated: AtomicUsize,
    pub(crate) diagnostics: Mutex<Diagnostics>,
    /// How often statistics were reset.
    pub(crate) resets: AtomicU64,
    /// How many connections had been accepted and refused when statistics were reset.
    pub(crate) connections_at_reset: [AtomicU64; 2],
    /// When the last checkpoint was taken, or the process started, in seconds since 1970.
    pub(crate) last_checkpoint: AtomicU64,
    /// Clients that wait for a checkpoint, with its number.
    pub(crate) savers: Mutex<Vec<(RequestId, u64)>>,
    /// What only memory holds is not saved in a checkpoint at the end.
    pub(crate) ends_unsaved: AtomicBool,
    pub(crate) recent: Mutex<Recent>,
    /// What the workers' gateways have subscribers of.
    pub(crate) interest: RwLock<Interest>,
    /// Blocked clients, and those of other processes for which this one keeps lines.
    pub(crate) waiters: Mutex<Waiters>,
    /// [`Waiters::is_concerned`], and how many clients of this process are blocked.
    pub(crate) has_waiters: AtomicBool,
    /// Some of them wait for entries of streams.
    pub(crate) awaits_streams: AtomicBool,
    pub(crate) blocked: AtomicUsize,
    /// Tracked clients, the keys that they have read, pairs of both, and prefixes.
    pub(crate) tracking: [AtomicU64; 4],
    /// Until when clients of other processes are tracked, in microseconds of the process's life.
    pub(crate) tracked_until: AtomicU64,
}

impl Process {
    pub(crate) fn new(
        options: Options,
        users: SharedUsers,
        journal: Option<Journal>,
        cluster: Cluster,
    ) -> Self {
        let locals = Arc::clone(cluster.locals());
        locals.memory.set_numbered(options.databases);
        locals.memory.set_limit(options.max_memory_bytes);
        locals.memory.set_samples(options.max_memory_samples);
        locals.set_policy(options.max_memory_policy);
        let waiters = Mutex::new(Waiters::new(cluster.view().process()));
        Process {
            parameters: Parameters::new(&options),
            users,
            options,
            journal,
            locals,
            view: Arc::clone(cluster.view()),
            hostings: Arc::clone(cluster.hostings()),
            peers: Arc::clone(cluster.peers()),
            started: cluster.view().started,
            cluster: Mutex::new(cluster),
            workers: RwLock::new(Vec::new()),
            library: scripts::Library::default(),
            stopping: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            monitors: AtomicUsize::new(0),
            next_client: AtomicU64::new(1),
            total_connections: AtomicU64::new(0),
            rejected_connections: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checks_type: AtomicBool::new(false),
            changes_libraries: Mutex::new(()),
            library_changes: AtomicUsize::new(0),
            port: AtomicUsize::new(0),
            guard: Guard::default(),
            unauthenticated: AtomicUsize::new(0),
            diagnostics: Mutex::default(),
            resets: AtomicU64::new(0),
            connections_at_reset: Default::default(),
            last_checkpoint: AtomicU64::new(seconds_since_1970()),
            savers: Mutex::default(),
            ends_unsaved: AtomicBool::new(false),
            recent: Mutex::default(),
            interest: RwLock::default(),
            waiters,
            has_waiters: AtomicBool::new(false),
            awaits_streams: AtomicBool::new(false),
            tracking: Default::default(),
            tracked_until: AtomicU64::new(0),
            blocked: AtomicUsize::new(0),
        }
    }

    /// A checkpoint was taken, or could not be: tells those who wait for it.
    pub(crate) fn answer_savers(&self, outcome: Result<(), Error>) {
        let mut savers = self.savers.lock();
        let installed = self.view.installed_checkpoint();
        let done = |(_, number): &mut (RequestId, u64)| outcome.is_err() || *number <= installed;
        let replies: Vec<(RequestId, ReplyBuf)> = savers
            .extract_if(.., done)
            .map(|(id, _)| {
                let mut reply = ReplyBuf::new();
                crate::host::answer(outcome.clone(), &mut reply);
                (id, reply)
            })
            .collect();
        drop(savers);
        if !replies.is_empty() {
            self.hand_out(replies, Gate::OPEN);
        }
    }

    /// True if clients have to authenticate.
    pub(crate) fn asks_password(&self) -> bool {
        self.users.must_authenticate()
    }

    /// How many connections were accepted and how many refused since statistics were reset.
    pub(crate) fn connections_since_reset(&self) -> [u64; 2] {
        let [accepted, refused] = &self.connections_at_reset;
        let since = |count: &AtomicU64, then: &AtomicU64| {
            count.load(Ordering::Relaxed).saturating_sub(then.load(Ordering::Relaxed))
        };
        [since(&self.total_connections, accepted), since(&self.rejected_connections, refused)]
    }

    /// The present time.
    pub(crate) fn now(&self) -> Now {
        self.view.now()
    }

    /// The keyspaces that the process keeps by itself, as of this moment.
    pub(crate) fn keyspaces(&self) -> Arc<Vec<Arc<Keyspace>>> {
        self.locals.list()
    }

    /// Hands replies to the workers of the requesting clients.
    pub(crate) fn hand_out(&self, mut replies: Vec<(RequestId, ReplyBuf)>, gate: Gate) {
        for (number, worker) in (0..).zip(self.workers.read().iter()) {
            let of = |(id, _): &mut (RequestId, ReplyBuf)| Config::worker_of(*id) == number;
            let mut its = replies.extract_if(.., of).map(|(id, reply)| (id, reply, gate)).peekable();
            if its.peek().is_some() {
                worker.inbox.lock().replies.extend(its);
                worker.wake();
            }
        }
    }

    /// Lets a worker do what others have left because this thread, which is no worker, held an instance.
    pub(crate) fn let_worker_look(&self) {
        if let Some(worker) = self.workers.read().first() {
            worker.inbox.lock().looks_at_keyspaces = true;
            worker.wake();
        }
    }

    /// Tells all workers of keyspaces that were dropped.
    pub(crate) fn tell_dropped(&self, dropped: &[KeyspaceId]) {
        for worker in self.workers.read().iter().filter(|_| !dropped.is_empty()) {
            worker.inbox.lock().dropped.extend_from_slice(dropped);
            worker.wake();
        }
    }

    /// Hands all workers news from gateways of other processes.
    pub(crate) fn hand_on(&self, heard: Vec<(ProcessId, Arc<News>)>) {
        if !heard.is_empty() {
            self.workers.read().iter().for_each(|worker| worker.hand_news(heard.iter().cloned()));
        }
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Asks every thread to end.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.workers.read().iter().for_each(|worker| worker.wake());
        if let Some(journal) = &self.journal {
            journal.want_sync();
        }
    }

    /// Wakes the workers that hold replies until the log is more durable.
    pub(crate) fn wake_awaiting(&self) {
        for worker in self.workers.read().iter() {
            if worker.awaits_log.swap(false, Ordering::AcqRel) {
                worker.wake();
            }
        }
    }
}
