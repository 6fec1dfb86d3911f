//! The keyspaces of a process with instances, and its place in the cluster; a process by itself is a cluster of one.
//!
//! ```text
//!  clients -> gateway -> coordinator --+                    +--> log (group) --> written or synced
//!                            ^         |  packets           |          |
//!                            |         v                    |          v
//!                            +--- local replicas -- records +     gates open --> packets --> local, or peers
//! ```
//!
//! Everything is behind one lock, which a worker takes to submit what its clients sent, and then to pump: timers fire,
//! records join the log's open group, packets whose gate is open are delivered here or queued for a peer, until nothing is
//! left to do but to wait. Records are written out once for all of that (`everysec`) or handed to the syncer (`always`),
//! which wakes the worker. A reply to a client of another worker goes to that worker's inbox. The first worker owns the
//! sockets of the peers and keeps the time: it pumps when a deadline comes. While the log refuses records, so that gates stay
//! closed, clients' writes are refused, and replicas with records that it has not taken neither hear nor say anything: their
//! peers go on without them.

mod addresses;
mod catalog;
mod clocks;
mod cluster_hot_keys;
mod config;
mod describe;
mod environment;
mod hot_keys;
mod identity;
mod keyspace_hosting;
mod keyspaces;
mod known_types;
mod log_positions;
mod models;
mod news;
mod peers;
mod place;
mod recovery;
mod single_process;
mod spool;
mod view;

pub use catalog::ClusterCatalog;
pub(crate) use cluster_hot_keys::HotKeysQuestion;
pub use config::{ClusterFile, ClusterOptions, ClusterProcess};
pub(crate) use describe::{describe, section};
pub(crate) use environment::{dropped, elsewhere};
pub use models::{ClusterKeyspace, Models};
pub(crate) use peers::FIRST_TOKEN;
pub(crate) use recovery::recover;

use crate::journal::Journal;
use crate::keyspace::Locals;
use addresses::Addresses;
use catalog::Catalog;
use clocks::Clocks;
use cluster_hot_keys::Questions;
use environment::{ClusterEnvironment, refuse, refuse_writes};
use gateway::News;
use identity::Identity;
use keyspace_hosting::KeyspaceHosting;
use log_positions::LogPositions;
use mio::Registry;
use peers::{Arrivals, Peers};
use protocol::hosted::{Holdings, Hosted, Lag, Life, LogWork, Turn};
use protocol::{Durability, Durable, Gate, Now, Request};
use spool::Spools;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use types::{Error, Instant, KeyspaceId, PartitionId, ProcessId, RequestId};
pub(crate) use view::ClusterView;

/// See the module.
pub(crate) struct Cluster {
    file: ClusterFile,
    life: Life,
    catalog: Catalog,
    /// Keyspaces that are not behind this lock.
    locals: Arc<Locals>,
    view: Arc<ClusterView>,
    /// That of keyspaces that the process keeps by itself, unless they say another one.
    durability: Durability,
    /// In the catalog's order, which is that of their ids.
    keyspaces: Vec<KeyspaceHosting>,
    /// Dropped keyspaces whose clients do not know it yet.
    dropped: Vec<KeyspaceId>,
    peers: Peers,
    /// The event loop of the peers' sockets.
    registry: Option<Registry>,
    spools: Spools,
    arrived: Arrivals,
    /// News from gateways of other processes for those of this one.
    heard: Vec<(ProcessId, Arc<News>)>,
    /// See [`known_types`].
    ahead: BTreeMap<ProcessId, u64>,
    /// Something was stepped since the last pump.
    stirred: bool,
    gaps: Option<Gaps>,
    questions: Questions,
    log_positions: LogPositions,
    clocks: Clocks,
    addresses: Addresses,
}

/// This life began with gaps in its memory.
struct Gaps {
    identity: Identity,
    /// The number of the first checkpoint that holds what was missing.
    learnt: Option<u64>,
}

impl Cluster {
    /// Begins to listen and to connect, in this event loop.
    pub(crate) fn begin(&mut self, now: Instant, registry: &Registry) -> std::io::Result<()> {
        self.peers.know_types(self.catalog.known_types());
        self.view.note_functions(self.catalog.functions());
        self.registry = Some(registry.try_clone()?);
        self.peers.begin(now, registry)
    }

    /// An event of a peer's socket; `ending` if it tells of the connection's end.
    pub(crate) fn ready(&mut self, token: usize, ending: bool) {
        if let Some(registry) = &self.registry {
            self.peers.ready(token, ending, registry, &mut self.arrived);
        }
    }

    /// True if something may be due without a client's command.
    fn is_active(&self) -> bool {
        self.file.processes.len() > 1 || self.hosted().next().is_some()
    }

    fn hosted(&self) -> impl Iterator<Item = &dyn Hosted> {
        self.keyspaces.iter().filter_map(KeyspaceHosting::hosted)
    }

    fn hosted_mut(&mut self) -> impl Iterator<Item = &mut Box<dyn Hosted>> {
        self.keyspaces.iter_mut().filter_map(KeyspaceHosting::hosted_mut)
    }

    /// What is hosted of a keyspace.
    fn hosted_of(&mut self, id: KeyspaceId) -> Option<&mut Box<dyn Hosted>> {
        self.keyspaces.get_mut(usize::from(id.0)).and_then(KeyspaceHosting::hosted_mut)
    }

    /// Hands out what has arrived; the pump serves it.
    pub(crate) fn deliver(&mut self, now: Now) {
        self.stirred |= !self.arrived.is_empty();
        let mut arrived = std::mem::take(&mut self.arrived);
        for (from, to, packet) in arrived.iter() {
            if to == cluster_hot_keys::SLOT {
                self.hear(from.process, packet, now);
                continue;
            }
            if to == known_types::SLOT {
                self.hear_of_types(from.process, packet, now);
                continue;
            }
            if to == log_positions::SLOT {
                self.hear_standing(from.process, packet);
                continue;
            }
            if to == news::SLOT {
                self.hear_news(from.process, packet);
                continue;
            }
            if to == clocks::SLOT {
                self.hear_clock(from.process, packet, now);
                continue;
            }
            if to == addresses::SLOT {
                self.hear_address(from.process, packet);
                continue;
            }
            if self.ahead.contains_key(&from.process) {
                continue;
            }
            if !self.hosts(to) {
                // It was created, or is to move here, since this process last looked.
                self.refresh(now);
            }
            match self.keyspaces.get_mut(usize::from(to.keyspace.0)) {
                Some(KeyspaceHosting::Hosted(keyspace)) => {
                    if let Err(error) = keyspace.receive(from, to, packet) {
                        tracing::warn!(%from, %error, "a malformed packet was dropped");
                    }
                }
                Some(_) => {}
                None => {
                    tracing::warn!(%from, keyspace = %to.keyspace, "a packet for an unknown keyspace was dropped")
                }
            }
        }
        arrived.clear();
        self.arrived = arrived;
    }

    /// The keyspaces that were dropped since the last call: their clients wait for nothing any more.
    pub(crate) fn take_dropped(&mut self) -> Vec<KeyspaceId> {
        std::mem::take(&mut self.dropped)
    }

    /// Hands a client's requests to the keyspace's coordinator. Returns what replies wait for.
    pub(crate) fn submit(
        &mut self,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        journal: Option<&Journal>,
        turn: &mut Turn<'_>,
    ) -> Gate {
        self.stirred = true;
        if journal.is_some_and(Journal::is_suspended) {
            refuse_writes(requests, turn);
            // What is refused waits for nothing that the log keeps of the keyspace.
            if requests.is_empty() {
                return Gate::OPEN;
            }
        }
        let mut environment =
            ClusterEnvironment { journal, peers: &mut self.peers, spools: &mut self.spools };
        match self.keyspaces.get_mut(usize::from(keyspace.0)) {
            Some(KeyspaceHosting::Hosted(keyspace)) => {
                keyspace.submit(requests, &mut environment, turn);
                return keyspace.reply_gate();
            }
            Some(KeyspaceHosting::Elsewhere(process)) => refuse(requests, &elsewhere(*process), turn),
            Some(KeyspaceHosting::Dropped | KeyspaceHosting::Solo) => refuse(requests, &dropped(), turn),
            None => refuse(requests, &Error::refused("the cluster has no such keyspace"), turn),
        }
        Gate::OPEN
    }

    /// How many keyspaces there are to pump.
    pub(crate) fn count(&self) -> usize {
        self.keyspaces.len()
    }

    /// Does everything that can be done for these keyspaces without waiting. Returns what their replies wait for.
    pub(crate) fn pump(
        &mut self,
        which: Range<usize>,
        journal: Option<&Journal>,
        turn: &mut Turn<'_>,
    ) -> Gate {
        self.stirred &= which.start > 0;
        let mut environment =
            ClusterEnvironment { journal, peers: &mut self.peers, spools: &mut self.spools };
        let mut gate = Gate::OPEN;
        for keyspace in self.keyspaces[which].iter_mut().filter_map(KeyspaceHosting::hosted_mut) {
            keyspace.pump(&mut environment, turn);
            gate = gate.and(keyspace.reply_gate());
        }
        self.tell_hot_keys(turn);
        gate
    }

    /// True if something was stepped since the last pump.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// What the log has to do so that what waits may leave.
    pub(crate) fn log_work(&self, durable: Durable) -> LogWork {
        let each = self.hosted().map(|keyspace| keyspace.log_work(durable));
        each.fold(LogWork::default(), LogWork::and)
    }

    /// Sends what is queued for peers, and notes who is connected.
    pub(crate) fn flush(&mut self, now: Instant) {
        if let Some(registry) = &self.registry {
            self.peers.flush(now, registry);
            self.view.peers_connected.store(self.peers.connected(), Ordering::Relaxed);
        }
    }

    /// Does what is due now and then, ten times a second.
    pub(crate) fn tick(&mut self, now: Now, journal: Option<&Journal>, directory: Option<&Path>) {
        self.compare_clocks(now);
        self.tell_address(now.instant);
        self.refresh(now);
        self.note_backlogs(now);
        self.note_memory();
        if let (Some(journal), Some(directory)) = (journal, directory) {
            self.note_complete(directory);
            self.tell_standing(journal, now.instant);
        }
    }

    /// Notes the backlog for other processes, and the age of the knowledge of them.
    fn note_backlogs(&self, now: Now) {
        let (mut lags, mut backlogs) = (Vec::new(), Vec::new());
        for ((id, entry), hosting) in (0..).map(KeyspaceId).zip(self.catalog.keyspaces()).zip(&self.keyspaces)
        {
            let Some(keyspace) = hosting.hosted() else { continue };
            if let Some(lag) = keyspace.lag(now.wall) {
                lags.push((entry.name.clone(), Lag { sent: self.sent(id), ..lag }));
            }
            backlogs.push((entry.name.clone(), keyspace.backlog()));
        }
        *self.view.lags.lock() = lags;
        *self.view.backlogs.lock() = backlogs;
    }

    /// Notes how much memory the replicas occupy, and which caches have no room.
    pub(crate) fn note_memory(&self) {
        let (mut all, mut each) = (Holdings::default(), Vec::new());
        for (id, hosting) in (0..).map(KeyspaceId).zip(&self.keyspaces) {
            let Some(keyspace) = hosting.hosted() else { continue };
            let holdings = keyspace.holdings();
            self.locals.memory.set_full(id, holdings.is_full);
            all = all.and(holdings);
            each.push((id, holdings));
        }
        self.locals.memory.set_hosted(all);
        *self.view.holdings.lock() = each;
    }

    /// The name of a keyspace as `MEMORY STATS` has it: its number, if it has one.
    pub(crate) fn short_name(&self, id: KeyspaceId) -> String {
        match self.serves(u64::from(id.0)) {
            true => id.to_string(),
            false => self.entry(id).name.clone(),
        }
    }

    /// By region, how many bytes of a keyspace have been queued for its processes.
    fn sent(&self, id: KeyspaceId) -> BTreeMap<String, u64> {
        self.peers.sent(id).fold(BTreeMap::new(), |mut sent, (to, bytes)| {
            let region = self.file.process(to.0).map_or("", |process| process.region_name.as_str());
            *sent.entry(region.to_owned()).or_default() += bytes;
            sent
        })
    }

    /// When it must be pumped at the latest.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.stirred {
            return Some(now);
        }
        let replicas = self.hosted().filter_map(|keyspace| keyspace.deadline());
        replicas.chain(self.peers.deadline()).chain(self.questions.deadline()).min()
    }

    /// Notes in the data directory when nothing is missing any more. What was learnt is in no log: a checkpoint must hold it.
    fn note_complete(&mut self, directory: &Path) {
        let learnt = self.hosted().all(|keyspace| keyspace.is_complete());
        let Some(gaps) = &mut self.gaps else { return };
        if gaps.learnt.is_none() && learnt {
            gaps.learnt = Some(self.view.want_checkpoint());
        }
        if gaps.learnt.is_none_or(|number| self.view.installed_checkpoint() < number) {
            return;
        }
        match gaps.identity.clone().with_complete(true).save(directory) {
            Ok(()) => {
                tracing::info!("everything that was missing has been learnt from the peers");
                self.gaps = None;
            }
            Err(error) => tracing::warn!(%error, "the data directory cannot be marked as complete"),
        }
    }

    /// The replicas that a checkpoint holds.
    pub(crate) fn replicas(&self) -> Vec<(KeyspaceId, PartitionId)> {
        let of = |(id, hosting): (KeyspaceId, &KeyspaceHosting)| {
            let partitions = hosting.hosted().map(|keyspace| keyspace.partitions()).unwrap_or_default();
            partitions.into_iter().map(move |partition| (id, PartitionId(partition)))
        };
        (0..).map(KeyspaceId).zip(&self.keyspaces).flat_map(of).collect()
    }

    /// The next piece of a replica's checkpoint; see [`Hosted::checkpoint`]. Everything that it shows has been appended to the
    /// log if nothing was stepped since the last pump.
    pub(crate) fn checkpoint(
        &mut self,
        (keyspace, partition): (KeyspaceId, PartitionId),
        cursor: u64,
        chunk: &mut Vec<u8>,
    ) -> Option<u64> {
        debug_assert!(!self.stirred, "a checkpoint shows what is in the log");
        self.hosted_of(keyspace)?.checkpoint(partition, cursor, chunk)
    }
}
