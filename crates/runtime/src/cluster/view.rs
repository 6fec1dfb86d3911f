//! What all threads may know of the cluster without its lock.

use super::ClusterOptions;
use super::clocks::own_clock;
use gateway::FunctionLibraries;
use parking_lot::{Mutex, RwLock};
use protocol::Now;
use protocol::hosted::{Backlog, Holdings, Lag};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use types::{Instant, KeyspaceId, ProcessId, WallTime};

/// See the module.
pub(crate) struct ClusterView {
    pub(crate) options: ClusterOptions,
    /// When the process started.
    pub(crate) started: std::time::Instant,
    /// Of each keyspace with instances here, with its name.
    pub(crate) backlogs: Mutex<Vec<(String, Backlog)>>,
    /// Of each keyspace with instances here.
    pub(crate) holdings: Mutex<Vec<(KeyspaceId, Holdings)>>,
    /// Of each causal keyspace, with its name.
    pub(crate) lags: Mutex<Vec<(String, Lag)>>,
    /// The present wall time less the monotonic time of the process's life, in microseconds, as of the last comparison with
    /// the peers' clocks; 0 where there is none, and this process's own clock counts.
    wall_at_start: AtomicU64,
    /// By how much this process's clock is corrected, in microseconds.
    correction: AtomicI64,
    /// There are instances or peers: something may be due without a client's command.
    active: AtomicBool,
    /// When the first worker pumps at the latest, in microseconds of the process's life.
    wakes_at: AtomicU64,
    /// Checkpoints have numbers: one that is wanted, however short the log is, the last that was begun, and the last that was
    /// installed.
    checkpoint_wanted: AtomicU64,
    checkpoint_begun: AtomicU64,
    checkpoint_installed: AtomicU64,
    functions: RwLock<Arc<FunctionLibraries>>,
}

impl ClusterView {
    pub(super) fn new(options: ClusterOptions) -> Self {
        ClusterView {
            options,
            started: std::time::Instant::now(),
            backlogs: Mutex::default(),
            holdings: Mutex::default(),
            lags: Mutex::default(),
            wall_at_start: AtomicU64::new(0),
            correction: AtomicI64::new(0),
            active: AtomicBool::new(false),
            wakes_at: AtomicU64::new(0),
            checkpoint_wanted: AtomicU64::new(0),
            checkpoint_begun: AtomicU64::new(0),
            checkpoint_installed: AtomicU64::new(0),
            functions: RwLock::default(),
        }
    }

    /// The libraries of functions, as this process knows them.
    pub(crate) fn functions(&self) -> Arc<FunctionLibraries> {
        Arc::clone(&self.functions.read())
    }

    /// They are known.
    pub(super) fn note_functions(&self, known: &Arc<FunctionLibraries>) {
        if !Arc::ptr_eq(&self.functions.read(), known) {
            *self.functions.write() = Arc::clone(known);
        }
    }

    /// This process.
    pub(crate) fn process(&self) -> ProcessId {
        ProcessId(self.options.process)
    }

    /// True if the cluster has other processes.
    pub(crate) fn has_peers(&self) -> bool {
        self.options.file.processes.len() > 1
    }

    /// The clocks of the cluster show `wall` now; this process's own is corrected by so many microseconds.
    pub(super) fn set_clock(&self, wall: WallTime, now: Instant, correction: i64) {
        self.wall_at_start.store(wall.0.saturating_sub(now.0), Ordering::Relaxed);
        self.correction.store(correction, Ordering::Relaxed);
    }

    /// The present wall time: as the cluster's clocks show it, if they have been compared, else as this process's own does.
    pub(crate) fn wall(&self, now: Instant) -> WallTime {
        match self.wall_at_start.load(Ordering::Relaxed) {
            0 => WallTime(own_clock(self.options.clock_skew_ms)),
            start => WallTime(start + now.0),
        }
    }

    /// The present time.
    pub(crate) fn now(&self) -> Now {
        let instant = Instant(self.started.elapsed().as_micros() as u64);
        Now { wall: self.wall(instant), instant }
    }

    /// By how much this process's clock is corrected, in milliseconds.
    pub(crate) fn clock_correction_ms(&self) -> i64 {
        self.correction.load(Ordering::Relaxed) / 1000
    }

    /// Notes whether something may be due without a client's command.
    pub(super) fn note(&self, is_active: bool) {
        self.active.store(is_active, Ordering::Release);
    }

    /// True if there are instances or peers.
    #[inline]
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// The first worker is going to pump then. Others that note an earlier deadline afterwards wake it.
    pub(crate) fn set_wake(&self, at: Instant) {
        self.wakes_at.store(at.0, Ordering::Release);
    }

    /// When the first worker is going to pump.
    pub(crate) fn wakes_at(&self) -> Instant {
        Instant(self.wakes_at.load(Ordering::Acquire))
    }

    /// Asks for a checkpoint that begins from now on; its number.
    pub(crate) fn want_checkpoint(&self) -> u64 {
        let number = self.checkpoint_begun.load(Ordering::Acquire) + 1;
        self.checkpoint_wanted.fetch_max(number, Ordering::AcqRel);
        number
    }

    /// True if one is wanted that has not been installed.
    pub(crate) fn is_checkpoint_wanted(&self) -> bool {
        self.installed_checkpoint() < self.checkpoint_wanted.load(Ordering::Acquire)
    }

    /// A checkpoint begins; its number.
    pub(crate) fn begin_checkpoint(&self) -> u64 {
        self.checkpoint_begun.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// The checkpoint with this number counts from now on.
    pub(crate) fn install_checkpoint(&self, number: u64) {
        self.checkpoint_installed.store(number, Ordering::Release);
    }

    /// The number of the last checkpoint that counts.
    pub(crate) fn installed_checkpoint(&self) -> u64 {
        self.checkpoint_installed.load(Ordering::Acquire)
    }
}
