//! A keyspace's instances in this process behind their lock, and what other threads leave for the next one that takes it.
//!
//! A thread that steps the instances holds the keyspace's lock. What comes meanwhile from peers, and what others want to
//! know, is in the mailbox, whose lock is held for moments. So only those wait for a long step who submit to its keyspace.
//!
//! Nothing that is due is forgotten:
//! - A worker pumps in the same turn what it has submitted to, and waits for the lock.
//! - A thread that finds the lock taken when something else is due (packets, a timer, the log) notes that in the mailbox and
//!   tries once more. It gives up if the lock is taken still: then whoever holds it has yet to look into the mailbox, since
//!   all do so after they have let go of it, and pumps.
//! - The deadline is noted with every pump. The thread that notes it wakes the timekeeper if that sleeps for longer.

#[cfg(test)]
mod tests;

use super::environment::{ClusterEnvironment, dropped, refuse, refuse_writes};
use super::incoming::Arrivals;
use super::outgoing::MAX_QUEUE_BYTES;
use super::spool::Spools;
use super::view::ClusterView;
use crate::journal::Journal;
use crate::process::Process;
use parking_lot::{Mutex, MutexGuard};
use protocol::hosted::{Backlog, Holdings, Hosted, Lag, LogWork, Turn};
use protocol::model::StoredOptions;
use protocol::{Durable, Gate, NoReplies, Now, Replies, Request};
use std::path::Path;
use types::{Instant, KeyspaceId, NodeId, PartitionId, RequestId, Rng, Slot, WallTime};

/// See the module.
pub(crate) struct HostedKeyspace {
    pub(crate) id: KeyspaceId,
    /// The keyspace's lock. `None` when it was dropped.
    instances: Mutex<Option<Instances>>,
    mailbox: Mutex<Mailbox>,
}

struct Instances {
    hosted: Box<dyn Hosted>,
    spools: Spools,
}

/// See the module.
struct Mailbox {
    /// Packets from peers, in order.
    arrived: Arrivals,
    /// The partitions that are here.
    partitions: Vec<u16>,
    /// Something was stepped, or has arrived, since the last pump.
    is_stirred: bool,
    /// Something was due while a thread had the lock.
    is_missed: bool,
    /// When the last pump wants the next one, at the latest.
    deadline: Option<Instant>,
    /// What waited for the log after the last pump.
    work: LogWork,
    /// The log before the last pump.
    log: LogState,
    /// The options as the instances were last handed them.
    options: StoredOptions,
    figures: KeyspaceFigures,
}

/// What a keyspace's instances said of themselves last.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyspaceFigures {
    pub(super) backlog: Backlog,
    pub(super) lag: Option<Lag>,
    pub(super) holdings: Holdings,
    /// Every replica here knows all it has to.
    pub(super) is_complete: bool,
}

/// How far the log is durable, and whether it refuses records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct LogState {
    durable: Durable,
    is_suspended: bool,
}

impl LogState {
    fn of(journal: Option<&Journal>) -> Self {
        journal.map_or(LogState::default(), |journal| LogState {
            durable: journal.durable(),
            is_suspended: journal.is_suspended(),
        })
    }
}

/// Why a worker looks at a keyspace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The worker has submitted something.
    Submitted,
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
    /// Something was due meanwhile that another thread has left.
    pub(crate) is_missed: bool,
}

impl HostedKeyspace {
    /// What is hosted of the keyspace, with spools below this data directory.
    pub(super) fn new(id: KeyspaceId, hosted: Box<dyn Hosted>, data: Option<&Path>) -> Self {
        let mailbox = Mailbox {
            arrived: Arrivals::default(),
            partitions: hosted.partitions(),
            is_stirred: true,
            is_missed: false,
            deadline: Some(Instant(0)),
            work: LogWork::default(),
            log: LogState::default(),
            options: StoredOptions::Null,
            figures: KeyspaceFigures::default(),
        };
        let instances = Some(Instances { hosted, spools: Spools::new(data) });
        HostedKeyspace { id, instances: Mutex::new(instances), mailbox: Mutex::new(mailbox) }
    }

    /// Hands requests to the coordinator. Returns what replies wait for.
    pub(super) fn submit(
        &self,
        process: &Process,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Gate {
        let mut held = self.instances.lock();
        // Read behind the lock, so that time does not go back from one worker to the next.
        let mut turn = Turn { now: process.now(), random, replies };
        let Some(Instances { hosted, spools }) = &mut *held else {
            refuse(requests, &dropped(), &mut turn);
            return Gate::OPEN;
        };
        let journal = process.journal.as_ref();
        if journal.is_some_and(Journal::is_suspended) {
            refuse_writes(requests, &mut turn);
            // What is refused waits for nothing that the log keeps of the keyspace.
            if requests.is_empty() {
                return Gate::OPEN;
            }
        }
        hosted.submit(
            requests,
            &mut ClusterEnvironment { journal, peers: &process.peers, spools },
            &mut turn,
        );
        self.mailbox.lock().is_stirred = true;
        hosted.reply_gate()
    }

    /// Leaves a packet from a peer, for the next pump. Too many are dropped, as a network may.
    pub(super) fn leave(&self, from: NodeId, to: Slot, packet: &[u8]) {
        let mut mailbox = self.mailbox.lock();
        if mailbox.arrived.bytes() <= MAX_QUEUE_BYTES {
            mailbox.arrived.push(from, to, packet);
        }
        mailbox.is_stirred = true;
    }

    /// Does everything that is due and can be done without waiting; `None` if nothing is, or whoever holds the lock does it.
    pub(crate) fn pump(
        &self,
        process: &Process,
        (visit, at): (Visit, Instant),
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Option<Pumped> {
        let is_due = self.mailbox.lock().is_due(visit, at, LogState::of(process.journal.as_ref()));
        let mut held = match visit {
            _ if !is_due => return None,
            Visit::Submitted => self.instances.lock(),
            Visit::Anything | Visit::Time => self.try_hold()?,
        };
        let pumped = held.as_mut().and_then(|instances| self.pump_held(instances, process, random, replies));
        drop(held);
        let is_missed = std::mem::take(&mut self.mailbox.lock().is_missed);
        let (now, gate) = pumped.unwrap_or((process.now(), Gate::OPEN));
        Some(Pumped { now, gate, is_missed })
    }

    /// The lock, unless another thread has it: that one looks into the mailbox afterwards.
    fn try_hold(&self) -> Option<MutexGuard<'_, Option<Instances>>> {
        let held = self.instances.try_lock();
        if held.is_some() {
            return held;
        }
        self.mailbox.lock().is_missed = true;
        self.instances.try_lock()
    }

    /// Pumps, unless another thread has done so meanwhile.
    fn pump_held(
        &self,
        Instances { hosted, spools }: &mut Instances,
        process: &Process,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Option<(Now, Gate)> {
        let journal = process.journal.as_ref();
        // Read before: what another thread writes while this one pumps opens gates, too.
        let (log, now) = (LogState::of(journal), process.now());
        let mut arrived = self.mailbox.lock().empty(now.instant, log)?;
        for (from, to, packet) in arrived.iter() {
            if let Err(error) = hosted.receive(from, to, packet) {
                tracing::warn!(%from, %error, "a malformed packet was dropped");
            }
        }
        arrived.clear();
        let mut environment = ClusterEnvironment { journal, peers: &process.peers, spools };
        hosted.pump(&mut environment, &mut Turn { now, random, replies });
        let (deadline, work) =
            (hosted.deadline(), journal.map(|_| hosted.log_work(log.durable)).unwrap_or_default());
        let holdings = (process.locals.memory.limit() > 0).then(|| hosted.holdings());
        let mut mailbox = self.mailbox.lock();
        if mailbox.arrived.is_empty() {
            // Its room is of use again.
            mailbox.arrived = arrived;
        }
        (mailbox.deadline, mailbox.work, mailbox.log) = (deadline, work, log);
        mailbox.figures.holdings = holdings.unwrap_or(mailbox.figures.holdings);
        Some((now, hosted.reply_gate()))
    }

    /// The next piece of a replica's checkpoint, and what replies wait for; see [`Hosted::checkpoint`]. Everything that the
    /// piece shows has been appended to the log. `seal` is called before anything else is.
    pub(crate) fn checkpoint(
        &self,
        process: &Process,
        (partition, cursor): (PartitionId, u64),
        chunk: &mut Vec<u8>,
        replies: &mut dyn Replies,
        seal: impl FnOnce(),
    ) -> (Option<u64>, Pumped) {
        let mut held = self.instances.lock();
        let is_stirred = self.mailbox.lock().is_stirred;
        let mut pumped = None;
        let next = held.as_mut().and_then(|instances| {
            if is_stirred {
                pumped = self.pump_held(instances, process, &mut Rng::new(), replies);
            }
            instances.hosted.checkpoint(partition, cursor, chunk)
        });
        seal();
        drop(held);
        let is_missed = std::mem::take(&mut self.mailbox.lock().is_missed);
        let (now, gate) = pumped.unwrap_or((process.now(), Gate::OPEN));
        (next, Pumped { now, gate, is_missed })
    }

    /// Works on the instances, unless the keyspace was dropped. The caller looks at what is due afterwards.
    pub(super) fn with<R>(&self, work: impl FnOnce(&mut dyn Hosted) -> R) -> Option<R> {
        self.instances.lock().as_mut().map(|instances| work(&mut *instances.hosted))
    }

    /// Changes the instances, in a turn without replies; as `with`.
    pub(super) fn change<R>(
        &self,
        view: &ClusterView,
        change: impl FnOnce(&mut dyn Hosted, &mut Turn<'_>) -> R,
    ) -> Option<R> {
        let mut held = self.instances.lock();
        held.as_mut().map(|instances| self.change_held(instances, view, change))
    }

    fn change_held<R>(
        &self,
        instances: &mut Instances,
        view: &ClusterView,
        change: impl FnOnce(&mut dyn Hosted, &mut Turn<'_>) -> R,
    ) -> R {
        let (hosted, mut nobody) = (&mut *instances.hosted, NoReplies::default());
        let outcome =
            change(hosted, &mut Turn { now: view.now(), random: &mut Rng::new(), replies: &mut nobody });
        let mut mailbox = self.mailbox.lock();
        mailbox.partitions = hosted.partitions();
        mailbox.is_stirred = true;
        outcome
    }

    /// Hands the instances their options. If these are the same as before and another thread has the lock, the next call does.
    pub(super) fn configure(&self, options: &StoredOptions, view: &ClusterView) -> Result<(), String> {
        let is_new = self.mailbox.lock().options != *options;
        let held = if is_new { Some(self.instances.lock()) } else { self.instances.try_lock() };
        let Some(mut held) = held else { return Ok(()) };
        let Some(instances) = &mut *held else { return Ok(()) };
        if is_new {
            self.mailbox.lock().options.clone_from(options);
        }
        let (mut nobody, now) = (NoReplies::default(), view.now());
        let mut turn = Turn { now, random: &mut Rng::new(), replies: &mut nobody };
        if instances.hosted.configure(options, &mut turn)? {
            self.change_held(instances, view, |_, _| ());
        }
        Ok(())
    }

    /// Ends it: nothing is left of it here.
    pub(super) fn end(&self) {
        *self.instances.lock() = None;
    }

    /// Notes what the instances say of themselves, unless another thread has the lock: then the figures stay.
    pub(super) fn note_figures(&self, wall: WallTime) {
        let Some(held) = self.instances.try_lock() else { return };
        let Some(Instances { hosted, .. }) = &*held else { return };
        let figures = KeyspaceFigures {
            backlog: hosted.backlog(),
            lag: hosted.lag(wall),
            holdings: hosted.holdings(),
            is_complete: hosted.is_complete(),
        };
        self.mailbox.lock().figures = figures;
    }

    /// See [`KeyspaceFigures`].
    pub(super) fn figures(&self) -> KeyspaceFigures {
        self.mailbox.lock().figures.clone()
    }

    /// How much its replicas here held when they were last looked at.
    pub(super) fn holdings(&self) -> Holdings {
        self.mailbox.lock().figures.holdings
    }

    /// The partitions that are here.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        self.mailbox.lock().partitions.clone()
    }

    /// True if the instance is here.
    pub(super) fn hosts(&self, slot: Slot) -> bool {
        let mailbox = self.mailbox.lock();
        slot.partition.is_none_or(|partition| mailbox.partitions.contains(&partition.0))
    }

    /// What the log had to do after the last pump.
    pub(super) fn log_work(&self) -> LogWork {
        self.mailbox.lock().work
    }

    /// When it must be pumped at the latest, unless whoever holds the lock does that.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let mailbox = self.mailbox.lock();
        mailbox.deadline.filter(|_| !mailbox.is_missed || !self.instances.is_locked())
    }
}

impl Mailbox {
    fn is_due(&self, visit: Visit, now: Instant, log: LogState) -> bool {
        let is_time = self.deadline.is_some_and(|deadline| deadline <= now);
        let waits = self.work != LogWork::default();
        let is_log = self.log.is_suspended != log.is_suspended || (waits && self.log.durable != log.durable);
        is_time || is_log || (visit != Visit::Time && (self.is_stirred || self.is_missed))
    }

    /// Hands out the packets, if a pump is due, which does everything that is.
    fn empty(&mut self, now: Instant, log: LogState) -> Option<Arrivals> {
        let is_due = self.is_due(Visit::Anything, now, log);
        self.is_stirred = false;
        is_due.then(|| std::mem::take(&mut self.arrived))
    }
}
