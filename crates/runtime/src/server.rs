//! Starting and ending a process.

use crate::cluster;
use crate::error::StartError;
use crate::health::Health;
use crate::options::Options;
use crate::process::{EndsWithPanic, Process, WorkerHandle};
use crate::worker::{Parts, WAKER, Worker};
use crate::{checkpointer, info, syncer};
use mio::net::TcpListener;
use mio::{Poll, Waker};
use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

const BACKLOG: i32 = 1024;

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
        info::metrics(&self.0)
    }

    /// Is it well?
    pub fn health(&self) -> Health {
        let suspended = self.0.journal.as_ref().is_some_and(|journal| journal.is_suspended());
        if self.0.is_stopping() {
            Health { ready: false, detail: "shutting down".to_owned() }
        } else if suspended {
            Health {
                ready: false,
                detail: "the log cannot be written; writes are refused, reads go on".to_owned(),
            }
        } else {
            Health { ready: true, detail: "ok".to_owned() }
        }
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
        process
            .port
            .store(addresses.first().map_or(0, |address| usize::from(address.port())), Ordering::Relaxed);
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

    /// Waits until the process was asked to end, and ends it in order: everything logged is synced, what no log
    /// holds is kept in a checkpoint, the end is marked as clean.
    pub fn wait(self) -> Result<(), journal::LogError> {
        for thread in self.workers.into_iter().chain(self.helpers) {
            if thread.join().is_err() {
                // The panic has been reported; what was acknowledged is on disk.
                std::process::exit(70);
            }
        }
        let Some(journal) = &self.process.journal else { return Ok(()) };
        let volatile = |keyspace: &crate::keyspace::Keyspace| {
            keyspace.durability() == protocol::Durability::Volatile && keyspace.len() > 0
        };
        if self.process.keyspaces().iter().any(|keyspace| volatile(keyspace)) {
            checkpointer::take(&self.process, journal)?;
        }
        journal.close()
    }
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
            awaits_log: AtomicBool::new(false),
            clients: Mutex::default(),
            commands: AtomicU64::new(0),
        };
        process.workers.write().push(Arc::new(handle));
        polls.push(poll);
    }
    let handles: Vec<_> = process.workers.read().clone();
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
