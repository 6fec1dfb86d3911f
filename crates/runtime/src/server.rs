//! Starting and ending a process.

use crate::cluster;
use crate::error::StartError;
use crate::health::{self, Health};
use crate::options::Options;
use crate::process::{EndsWithPanic, Process, WorkerHandle};
use crate::worker::{Parts, WAKER, Worker};
use crate::{checkpointer, guard, metrics, syncer};
use mio::net::TcpListener;
use mio::{Poll, Waker};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const BACKLOG: i32 = 1024;
/// How long an orderly end waits for workers.
const STUCK_WORKERS_END: Duration = Duration::from_secs(7);
/// How much longer, once the log is synced.
const SYNCED_WORKERS_END: Duration = Duration::from_secs(1);
/// How often the process checks for a request to end.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// A running process.
pub struct Server {
    process: Arc<Process>,
    addresses: Vec<SocketAddr>,
    workers: Vec<JoinHandle<()>>,
    helpers: Vec<JoinHandle<()>>,
}

/// Asks and tells a running process, from any thread.
#[derive(Clone)]
pub struct Handle(Arc<Process>);

impl Handle {
    /// Asks the process to end in order.
    pub fn shutdown(&self) {
        self.0.stop();
    }

    /// The process's figures in Prometheus's text format.
    pub fn metrics(&self) -> String {
        metrics::write(&self.0)
    }

    /// Is it well?
    pub fn health(&self) -> Health {
        health::of(&self.0)
    }
}

impl Server {
    /// Recovers what the data directory holds and begins to serve.
    pub fn start(options: Options) -> Result<Server, StartError> {
        let options = Options { threads: options.threads.max(1), ..options };
        // Taken before recovery, so that a second server on the same port finds out at once.
        let listeners =
            options.listen.iter().map(|address| listen(*address)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<SocketAddr> =
            listeners.iter().filter_map(|listener| listener.local_addr().ok()).collect();
        let process = Arc::new(recover(options)?);
        warn_of_open_doors(&process);
        process
            .port
            .store(addresses.first().map_or(0, |address| usize::from(address.port())), Ordering::Relaxed);
        if let Some(address) = process.options.announce.or(addresses.first().copied()) {
            process.cluster.lock().announce(address);
        }
        let workers = start_workers(&process, listeners).map_err(StartError::Worker)?;
        let helpers = start_helpers(&process).map_err(StartError::Worker)?;
        Ok(Server { process, addresses, workers, helpers })
    }

    /// Where it serves.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// For other threads.
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.process))
    }

    /// Waits for the command to shut down, and shuts down in order: syncs everything logged, takes a checkpoint of what
    /// no log holds, marks the end as clean.
    pub fn wait(self) -> Result<(), journal::LogError> {
        while !self.process.is_stopping() && self.workers.iter().all(|worker| !worker.is_finished()) {
            std::thread::park_timeout(LOOK_EVERY);
        }
        let deadline = Instant::now() + STUCK_WORKERS_END;
        while self.workers.iter().any(|worker| !worker.is_finished()) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.workers.iter().any(|worker| !worker.is_finished())
            && let Some(journal) = &self.process.journal
        {
            // A worker that waits for a slow disk is not stuck.
            journal.sync_all();
            let deadline = Instant::now() + SYNCED_WORKERS_END;
            while self.workers.iter().any(|worker| !worker.is_finished()) && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        if self.workers.iter().any(|worker| !worker.is_finished()) {
            end_without_workers(&self.process);
        }
        for thread in self.workers.into_iter().chain(self.helpers) {
            if thread.join().is_err() {
                // The panic has been reported; what was acknowledged is on disk.
                std::process::exit(70);
            }
        }
        let Some(journal) = &self.process.journal else { return Ok(()) };
        if self.process.ends_unsaved.load(Ordering::Relaxed) {
            return journal.close();
        }
        let volatile = |keyspace: &crate::keyspace::Keyspace| {
            keyspace.durability() == protocol::Durability::Volatile && keyspace.len() > 0
        };
        if self.process.keyspaces().iter().any(|keyspace| volatile(keyspace)) {
            checkpointer::take(&self.process, journal)?;
        }
        journal.close()
    }
}

/// Tells whoever reads the log that there is no password where others than this machine's users may connect.
fn warn_of_open_doors(process: &Process) {
    let options = &process.options;
    let others = || options.listen.iter().filter(|address| !guard::is_local(address.ip()));
    if process.asks_password() {
        return;
    }
    for address in others() {
        match options.protected_mode && address.ip().is_unspecified() {
            true => tracing::warn!(
                %address,
                "there is no password: clients of other machines are refused here (server.protected_mode)"
            ),
            false => tracing::warn!(
                %address,
                "there is no password: everybody who can connect may do everything"
            ),
        }
    }
}

/// Ends the process though a worker does not end: what was acknowledged becomes durable, what no log holds is lost.
fn end_without_workers(process: &Process) -> ! {
    tracing::error!("a worker is busy with a client's command and does not end; the process ends without it");
    if let Some(journal) = &process.journal {
        journal.sync_all();
    }
    std::process::exit(70)
}

/// The process as its data directory left it.
fn recover(options: Options) -> Result<Process, StartError> {
    let listener = match &options.cluster {
        Some(cluster) => {
            let unknown = || StartError::Cluster(format!("its file names no process {}", cluster.process));
            Some(listen(cluster.file.process(cluster.process).ok_or_else(unknown)?.peer_address)?)
        }
        None => None,
    };
    cluster::recover(options, listener)
}

fn listen(address: SocketAddr) -> Result<TcpListener, StartError> {
    let bind = || -> std::io::Result<TcpListener> {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        socket.bind(&address.into())?;
        socket.listen(BACKLOG)?;
        Ok(TcpListener::from_std(socket.into()))
    };
    bind().map_err(|error| StartError::Listen { address, error })
}

fn start_workers(
    process: &Arc<Process>,
    listeners: Vec<TcpListener>,
) -> std::io::Result<Vec<JoinHandle<()>>> {
    let mut polls = Vec::new();
    for _ in 0..process.options.threads {
        let poll = Poll::new()?;
        let handle = WorkerHandle {
            waker: Waker::new(poll.registry(), WAKER)?,
            inbox: Mutex::default(),
            monitors: AtomicUsize::new(0),
            awaits_log: AtomicBool::new(false),
            clients: Mutex::default(),
            commands: AtomicU64::new(0),
            turned_at: AtomicU64::new(process.now().instant.0),
            answered: Default::default(),
            statistics: Mutex::default(),
        };
        process.workers.write().push(Arc::new(handle));
        polls.push(poll);
    }
    let handles: Vec<_> = process.workers.read().clone();
    let registries = polls.iter().map(|poll| poll.registry().try_clone()).collect::<Result<_, _>>()?;
    process.peers.begin(process.now().instant, registries)?;
    let mut listeners = Some(listeners);
    let mut threads = Vec::new();
    for (index, (poll, me)) in polls.into_iter().zip(handles).enumerate() {
        // The first worker accepts and deals the connections out in turn.
        let mine = listeners.take().unwrap_or_default();
        let process = Arc::clone(process);
        let parts = Parts { index, poll, listeners: mine, process, me };
        let (started, outcome) = mpsc::channel();
        // A worker never leaves its thread, and neither do the interpreters of its scripts.
        let run = move || {
            let _guard = EndsWithPanic;
            match Worker::new(parts) {
                Ok(worker) => {
                    let _ = started.send(Ok(()));
                    worker.run();
                }
                Err(error) => {
                    let _ = started.send(Err(error));
                }
            }
        };
        threads.push(std::thread::Builder::new().name(format!("worker-{index}")).spawn(run)?);
        outcome.recv().map_err(std::io::Error::other)??;
    }
    Ok(threads)
}

fn start_helpers(process: &Arc<Process>) -> std::io::Result<Vec<JoinHandle<()>>> {
    if process.journal.is_none() {
        return Ok(Vec::new());
    }
    let spawn = |name: &str, run: fn(&Arc<Process>, &crate::journal::Journal)| {
        let process = Arc::clone(process);
        std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let _guard = EndsWithPanic;
            if let Some(journal) = &process.journal {
                run(&process, journal);
            }
        })
    };
    Ok(vec![
        spawn("syncer", syncer::run)?,
        spawn("checkpointer", |process, journal| checkpointer::run(process, journal))?,
    ])
}
