//! A keyspace's instances in this process, which the workers share, and what one worker leaves for the next.
//!
//! Each instance has a lock of its own ([`protocol::hosted`]). A worker that has submitted something to the keyspace attends it
//! for the rest of its turn: it pumps what its requests need, and shares that work with others that attend. A worker that
//! does not attend leaves what is due (packets, a timer, the log) to those that do. So only those work on a long step who
//! submit to its keyspace.
//!
//! Nothing that is due is forgotten:
//! - Who leaves something notes that ([`Notes::is_stirred`]). A worker looks for it when it attends no more.
//! - Who has held an instance looks afterwards whether others have left something for it ([`Pending::is_left`]).
//! - The deadline is noted with every pump. The thread that notes it wakes the timekeeper if that sleeps for longer.

#[cfg(test)]
mod tests;

use super::environment::{ClusterEnvironment, dropped, refuse, refuse_writes};
use super::spool::Spools;
use super::view::ClusterView;
use crate::journal::Journal;
use crate::process::Process;
use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use protocol::hosted::{Figures, Holdings, Hosted, LogState, LogWork, Pending, Turn};
use protocol::model::StoredOptions;
use protocol::{Gate, NoReplies, Now, Replies, Request};
use std::path::Path;
use std::time::Duration;
use types::{Instant, KeyspaceId, NodeId, PartitionId, RequestId, Rng, Slot, WallTime};

/// How long a thread waits for those that step instances before it puts off what need not be now.
const PATIENCE: Duration = Duration::from_millis(1);

/// See the module.
pub(crate) struct HostedKeyspace {
    pub(crate) id: KeyspaceId,
    /// Threads that step instances share it; one that changes which there are has it alone. `None` when it was dropped.
    hosted: RwLock<Option<Box<dyn Hosted>>>,
    spools: Mutex<Spools>,
    notes: Mutex<Notes>,
}

/// See the module.
struct Notes {
    /// The partitions that are here.
    partitions: Vec<u16>,
    /// How many workers attend.
    attending: usize,
    /// Something was stepped, has arrived or was left since the last pump began.
    is_stirred: bool,
    /// What the instances waited for after the last pump.
    pending: Pending,
    /// The options as the instances were last handed them.
    options: StoredOptions,
    figures: Figures,
    holdings: Holdings,
}

fn log_state(journal: Option<&Journal>) -> LogState {
    journal.map_or(LogState::default(), |journal| LogState {
        durable: journal.durable(),
        is_suspended: journal.is_suspended(),
    })
}

/// Why a worker looks at a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The worker attends.
    Attending,
    /// Something may have come that is nobody's.
    Anything,
    /// Time has passed, and the log has become more durable.
    Time,
}

/// What came of a pump.
pub(crate) struct Pumped {
    /// When it was.
    pub(crate) now: Now,
    /// What its replies wait for.
    pub(crate) gate: Gate,
    /// Something is due still.
    pub(crate) is_left: bool,
}

impl HostedKeyspace {
    /// What is hosted of the keyspace, with spools below this data directory.
    pub(super) fn new(id: KeyspaceId, hosted: Box<dyn Hosted>, data: Option<&Path>) -> Self {
        let notes = Notes {
            partitions: hosted.partitions(),
            attending: 0,
            is_stirred: true,
            pending: Pending::until(Some(Instant(0))),
            options: StoredOptions::Null,
            figures: Figures::default(),
            holdings: Holdings::default(),
        };
        let (hosted, spools) = (RwLock::new(Some(hosted)), Mutex::new(Spools::new(data)));
        HostedKeyspace { id, hosted, spools, notes: Mutex::new(notes) }
    }

    fn environment<'e>(&'e self, process: &'e Process) -> ClusterEnvironment<'e> {
        ClusterEnvironment { journal: process.journal.as_ref(), peers: &process.peers, spools: &self.spools }
    }

    /// Hands requests to the coordinator. Returns what replies wait for. The worker attends afterwards.
    pub(super) fn submit(
        &self,
        process: &Process,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Gate {
        let held = self.hosted.read();
        let mut turn = Turn { now: process.now(), random, replies };
        let Some(hosted) = &*held else {
            refuse(requests, &dropped(), &mut turn);
            return Gate::OPEN;
        };
        if process.journal.as_ref().is_some_and(Journal::is_suspended) {
            refuse_writes(requests, &mut turn);
            // What is refused waits for nothing that the log keeps of the keyspace.
            if requests.is_empty() {
                return Gate::OPEN;
            }
        }
        hosted.submit(requests, &mut self.environment(process), &mut turn)
    }

    /// From now on the worker pumps what it has submitted, and what others leave.
    pub(crate) fn attend(&self) {
        self.notes.lock().attending += 1;
    }

    /// The worker does so no more. True if something was left since it pumped.
    pub(crate) fn leave_off(&self) -> bool {
        let mut notes = self.notes.lock();
        notes.attending -= 1;
        notes.is_stirred
    }

    /// Leaves a packet from a peer, for the next pump.
    pub(super) fn leave(&self, from: NodeId, to: Slot, packet: &[u8]) {
        // Does not wait behind one that waits for a long step.
        if let Some(hosted) = &*self.hosted.read_recursive()
            && let Err(error) = hosted.receive(from, to, packet)
        {
            tracing::warn!(%from, %error, "a malformed packet was dropped");
        }
        self.stir();
    }

    fn stir(&self) {
        self.notes.lock().is_stirred = true;
    }

    /// Does everything that is due and can be done without waiting; `None` if nothing is, or others do it.
    pub(crate) fn pump(
        &self,
        process: &Process,
        (visit, at): (Visit, Instant),
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Option<Pumped> {
        if !self.notes.lock().begin(visit, at, log_state(process.journal.as_ref())) {
            return None;
        }
        let is_attending = visit == Visit::Attending;
        let held = if is_attending { self.hosted.read() } else { self.try_read()? };
        let hosted = held.as_deref()?;
        let now = process.now();
        let gate =
            hosted.pump(is_attending, &mut self.environment(process), &mut Turn { now, random, replies });
        if process.locals.memory.limit() > 0 {
            let holdings = hosted.holdings();
            self.notes.lock().holdings = holdings;
        }
        Some(Pumped { now, gate, is_left: self.note(hosted) })
    }

    /// The instances, unless another thread changes them, which looks at what is due afterwards.
    fn try_read(&self) -> Option<RwLockReadGuard<'_, Option<Box<dyn Hosted>>>> {
        let held = self.hosted.try_read();
        if held.is_some() {
            return held;
        }
        self.stir();
        self.hosted.try_read()
    }

    /// Notes what the instances wait for; true if something is due that no other thread sees to.
    fn note(&self, hosted: &dyn Hosted) -> bool {
        // Behind the lock of the notes, so that the last one to note has seen what the others did.
        let mut notes = self.notes.lock();
        notes.pending = hosted.pending();
        notes.is_stirred |= notes.pending.is_left;
        notes.pending.is_left
    }

    /// The next piece of a replica's checkpoint, and whether something is due now that no other thread sees to; see
    /// [`Hosted::checkpoint`].
    pub(crate) fn checkpoint(
        &self,
        process: &Process,
        at: (PartitionId, u64),
        chunk: &mut Vec<u8>,
        seal: &mut dyn FnMut(),
    ) -> (Option<u64>, bool) {
        let held = self.hosted.read();
        let Some(hosted) = held.as_deref() else {
            seal();
            return (None, false);
        };
        let next = hosted.checkpoint(at, chunk, &mut self.environment(process), seal);
        (next, self.note(hosted))
    }

    /// Looks at the instances, unless the keyspace was dropped. The caller looks at what is due afterwards.
    pub(super) fn with<R>(&self, work: impl FnOnce(&dyn Hosted) -> R) -> Option<R> {
        let held = self.hosted.read();
        let hosted = held.as_deref()?;
        let outcome = work(hosted);
        self.note(hosted);
        Some(outcome)
    }

    /// Changes the instances, in a turn without replies; as `with`.
    pub(super) fn change<R>(
        &self,
        view: &ClusterView,
        change: impl FnOnce(&mut dyn Hosted, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let mut held = self.hosted.write();
        held.as_deref_mut().map(|hosted| self.change_held(hosted, view, change))
    }

    fn change_held<R>(
        &self,
        hosted: &mut dyn Hosted,
        view: &ClusterView,
        change: impl FnOnce(&mut dyn Hosted, &mut Turn<'_>) -> R,
    ) -> R {
        let mut nobody = NoReplies::default();
        let outcome =
            change(hosted, &mut Turn { now: view.now(), random: &mut Rng::new(), replies: &mut nobody });
        let mut notes = self.notes.lock();
        notes.partitions = hosted.partitions();
        notes.is_stirred = true;
        outcome
    }

    /// Hands the instances their options. If these are the same as before and other threads step some for long, the next call
    /// does.
    pub(super) fn configure(&self, options: &StoredOptions, view: &ClusterView) -> Result<(), String> {
        let is_new = self.notes.lock().options != *options;
        let held = if is_new { Some(self.hosted.write()) } else { self.hosted.try_write_for(PATIENCE) };
        let Some(mut held) = held else { return Ok(()) };
        let Some(hosted) = held.as_deref_mut() else { return Ok(()) };
        if is_new {
            self.notes.lock().options.clone_from(options);
        }
        let (mut nobody, now) = (NoReplies::default(), view.now());
        let mut turn = Turn { now, random: &mut Rng::new(), replies: &mut nobody };
        if hosted.configure(options, &mut turn)? {
            self.change_held(hosted, view, |_, _| ());
        }
        Ok(())
    }

    /// Ends it: nothing is left of it here.
    pub(super) fn end(&self) {
        *self.hosted.write() = None;
    }

    /// Notes what the instances say of themselves, unless other threads step some for long: then the figures stay.
    pub(super) fn note_figures(&self, wall: WallTime) {
        let Some(held) = self.try_read() else { return };
        let Some(hosted) = held.as_deref() else { return };
        let (figures, holdings) = (hosted.figures(wall), hosted.holdings());
        self.note(hosted);
        let mut notes = self.notes.lock();
        notes.holdings = holdings;
        if let Some(figures) = figures {
            notes.figures = figures;
        }
    }

    /// What the instances said of themselves last.
    pub(super) fn figures(&self) -> Figures {
        self.notes.lock().figures.clone()
    }

    /// How much its replicas here held when they were last looked at.
    pub(super) fn holdings(&self) -> Holdings {
        self.notes.lock().holdings
    }

    /// The partitions that are here.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        self.notes.lock().partitions.clone()
    }

    /// True if the instance is here.
    pub(super) fn hosts(&self, slot: Slot) -> bool {
        slot.partition.is_none_or(|partition| self.notes.lock().partitions.contains(&partition.0))
    }

    /// What the log had to do after the last pump.
    pub(super) fn log_work(&self) -> LogWork {
        self.notes.lock().pending.work
    }

    /// When it must be pumped at the latest, unless a worker that attends does that.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let notes = self.notes.lock();
        notes.pending.deadline.filter(|_| notes.attending == 0 || !notes.is_stirred)
    }
}

impl Notes {
    /// True if a pump begins: it does everything that is due.
    fn begin(&mut self, visit: Visit, now: Instant, log: LogState) -> bool {
        let is_time = || self.pending.deadline.is_some_and(|deadline| deadline <= now);
        let is_due = || (visit != Visit::Time && self.is_stirred) || is_time() || self.pending.awaits(log);
        let is_attending = visit == Visit::Attending;
        if !is_attending && !is_due() {
            return false;
        }
        // Those that attend do it.
        self.is_stirred = !is_attending && self.attending > 0;
        !self.is_stirred
    }
}
