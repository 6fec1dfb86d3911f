//! What all threads of a process share.

use crate::cluster::ClusterView;
use crate::journal::Journal;
use crate::keyspace::{Keyspace, class_of};
use crate::metadata::{KeyspaceEntry, Metadata};
use crate::options::Options;
use crate::user_types::{StoredType, add_to, register};
use gateway::{ClientFilter, ClientInfo};
use mio::Waker;
use mio::net::TcpStream;
use parking_lot::{Mutex, RwLock};
use protocol::{Durability, Now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use types::{Error, HashSeed, Incarnation, KeyspaceId, RequestId, WallTime};

/// Ends the process at once: going on could lose or falsify what was acknowledged.
pub(crate) fn fatal(reason: &str) -> ! {
    tracing::error!("{reason}");
    eprintln!("anabranch: fatal: {reason}");
    std::process::exit(70)
}

/// What other threads hand to a worker.
#[derive(Default)]
pub(crate) struct Inbox {
    pub(crate) sockets: Vec<(TcpStream, std::net::SocketAddr)>,
    pub(crate) kills: Vec<ClientFilter>,
    /// Types that a client of this worker wants to load, checked.
    pub(crate) types: Vec<(RequestId, Result<StoredType, Error>)>,
}

/// A worker as the other threads see it.
pub(crate) struct WorkerHandle {
    pub(crate) waker: Waker,
    pub(crate) inbox: Mutex<Inbox>,
    /// It holds replies until the log is more durable.
    pub(crate) awaits_log: AtomicBool,
    /// Its clients, as of its last tick.
    pub(crate) clients: Mutex<Vec<ClientInfo>>,
    pub(crate) commands: AtomicU64,
}

impl WorkerHandle {
    pub(crate) fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            fatal(&format!("cannot wake a worker: {error}"));
        }
    }
}

/// The process.
pub(crate) struct Process {
    pub(crate) options: Options,
    pub(crate) seed: HashSeed,
    pub(crate) incarnation: Incarnation,
    pub(crate) journal: Option<Journal>,
    keyspaces: RwLock<Arc<Vec<Arc<Keyspace>>>>,
    metadata: Mutex<Metadata>,
    pub(crate) workers: RwLock<Vec<Arc<WorkerHandle>>>,
    pub(crate) started: Instant,
    pub(crate) stopping: AtomicBool,
    pub(crate) clients: AtomicUsize,
    pub(crate) next_client: AtomicU64,
    pub(crate) total_connections: AtomicU64,
    pub(crate) rejected_connections: AtomicU64,
    pub(crate) checkpoints: AtomicU64,
    pub(crate) checkpoint_wanted: AtomicBool,
    /// A type is being checked.
    pub(crate) checks_type: AtomicBool,
    /// The scripts of clients.
    pub(crate) library: scripts::Library,
    pub(crate) port: AtomicUsize,
    pub(crate) cluster: Option<ClusterView>,
    clock_skew_us: i64,
}

impl Process {
    pub(crate) fn new(
        options: Options,
        metadata: Metadata,
        incarnation: Incarnation,
        keyspaces: Vec<Arc<Keyspace>>,
        journal: Option<Journal>,
    ) -> Self {
        Process {
            seed: HashSeed(metadata.seed),
            incarnation,
            journal,
            keyspaces: RwLock::new(Arc::new(keyspaces)),
            metadata: Mutex::new(metadata),
            workers: RwLock::new(Vec::new()),
            library: scripts::Library::default(),
            started: Instant::now(),
            stopping: AtomicBool::new(false),
            clients: AtomicUsize::new(0),
            next_client: AtomicU64::new(1),
            total_connections: AtomicU64::new(0),
            rejected_connections: AtomicU64::new(0),
            checkpoints: AtomicU64::new(0),
            checkpoint_wanted: AtomicBool::new(false),
            checks_type: AtomicBool::new(false),
            port: AtomicUsize::new(0),
            cluster: None,
            clock_skew_us: 0,
            options,
        }
    }

    /// Makes it a process of a cluster.
    pub(crate) fn in_cluster(self, view: ClusterView) -> Self {
        let clock_skew_us = view.options.clock_skew_ms.saturating_mul(1000);
        Process { cluster: Some(view), clock_skew_us, ..self }
    }

    /// The present time.
    pub(crate) fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_micros() as u64);
        let wall = wall.saturating_add_signed(self.clock_skew_us);
        Now { wall: WallTime(wall), instant: types::Instant(self.started.elapsed().as_micros() as u64) }
    }

    /// The keyspaces of this moment.
    pub(crate) fn keyspaces(&self) -> Arc<Vec<Arc<Keyspace>>> {
        Arc::clone(&self.keyspaces.read())
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

    /// Creates a strict keyspace.
    pub(crate) fn create(&self, name: &str, durability: Durability) -> Result<(), Error> {
        let mut metadata = self.metadata.lock();
        if metadata.keyspaces.iter().any(|entry| entry.name == name) {
            return Err(Error::err(format!("keyspace '{name}' exists already")));
        }
        let durability = self.options.effective(durability);
        let id = metadata.next_id;
        let mut changed = metadata.clone();
        changed.next_id =
            id.checked_add(1).ok_or_else(|| Error::err("65535 keyspaces have been created; no more"))?;
        changed.keyspaces.push(KeyspaceEntry::new(id, name, durability));
        self.save(&changed)?;
        *metadata = changed;
        let count = self.options.partition_count();
        let keyspace =
            Keyspace::new(KeyspaceId(id), name.to_owned(), count, durability, self.seed, self.incarnation);
        let mut keyspaces = self.keyspaces.write();
        let mut all = Vec::clone(&keyspaces);
        all.push(Arc::new(keyspace));
        *keyspaces = Arc::new(all);
        Ok(())
    }

    /// Changes the durability of a keyspace.
    pub(crate) fn alter(&self, name: &str, durability: Durability) -> Result<(), Error> {
        let mut metadata = self.metadata.lock();
        let durability = self.options.effective(durability);
        let mut changed = metadata.clone();
        let entry =
            changed.keyspaces.iter_mut().find(|entry| entry.name == name).ok_or_else(|| no_such(name))?;
        entry.durability = class_of(durability).as_str().to_owned();
        self.save(&changed)?;
        *metadata = changed;
        if let Some(keyspace) = self.keyspaces().iter().find(|keyspace| keyspace.name == name) {
            keyspace.set_durability(durability);
        }
        // What was not logged so far is in no log: only a checkpoint makes it durable.
        self.checkpoint_wanted.store(true, Ordering::Release);
        Ok(())
    }

    /// Drops a keyspace with everything in it.
    pub(crate) fn drop_keyspace(&self, name: &str) -> Result<(), Error> {
        let mut metadata = self.metadata.lock();
        let mut changed = metadata.clone();
        let index =
            changed.keyspaces.iter().position(|entry| entry.name == name).ok_or_else(|| no_such(name))?;
        if changed.keyspaces.remove(index).id < self.options.databases.max(1) {
            return Err(Error::err(format!(
                "keyspace '{name}' belongs to a SELECT number; empty it with FLUSHDB"
            )));
        }
        self.save(&changed)?;
        *metadata = changed;
        let mut keyspaces = self.keyspaces.write();
        *keyspaces = Arc::new(keyspaces.iter().filter(|keyspace| keyspace.name != name).cloned().collect());
        Ok(())
    }

    /// Makes a type known: durably first, so that whatever names it finds it.
    pub(crate) fn add_type(&self, new: StoredType) -> Result<(), Error> {
        let mut metadata = self.metadata.lock();
        let mut changed = metadata.clone();
        add_to(&mut changed.types, &new)?;
        self.save(&changed)?;
        *metadata = changed;
        register(&new).map_err(Error::err)
    }

    fn save(&self, metadata: &Metadata) -> Result<(), Error> {
        let Some(directory) = &self.options.data else { return Ok(()) };
        metadata.save(directory).map_err(|error| {
            Error::new(types::ErrorCode::Misconf, format!("the list of keyspaces cannot be saved: {error}"))
        })
    }
}

fn no_such(name: &str) -> Error {
    Error::err(format!("no such keyspace '{name}'; KEYSPACE LIST names them"))
}
