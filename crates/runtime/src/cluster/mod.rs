//! Replicated keyspaces in a real process.
//!
//! One worker thread owns everything: the clients' connections, the coordinator of every keyspace, the replicas
//! placed on this process, and the connections to the peers. There are no locks and no queues between them.
//!
//! ```text
//!  clients -> gateway -> coordinator --+                    +--> log (group) --> written or synced
//!                            ^         |  packets           |          |
//!                            |         v                    |          v
//!                            +--- local replicas -- records +     gates open --> packets --> local, or peers
//! ```
//!
//! A turn of the loop delivers what has arrived, executes what clients sent, and then pumps: timers fire, records
//! join the log's open group, packets whose gate is open are delivered here or queued for a peer, until nothing is
//! left to do but to wait. Records are written out once for all of that (`everysec`) or handed to the syncer
//! (`always`), which wakes the worker. While the log refuses records, so that gates stay closed, clients' writes are
//! refused, and replicas with records that it has not taken neither hear nor say anything: their peers go on without them.

mod catalog;
mod checkpoint;
mod config;
mod describe;
mod environment;
mod hot_keys;
mod hot_keys_of_all;
mod identity;
mod known_types;
mod models;
mod peers;
mod place;
mod recovery;
mod spool;
mod standings;

pub use catalog::ClusterCatalog;
pub use config::{ClusterFile, ClusterOptions, ClusterProcess};
pub(crate) use describe::{describe, section};
pub(crate) use environment::dropped;
pub(crate) use hot_keys_of_all::HotKeysQuestion;
pub use models::{ClusterKeyspace, Models};
pub(crate) use peers::FIRST_TOKEN;
pub(crate) use recovery::recover;

use crate::journal::Journal;
use crate::user_types::{self, StoredType};
use ::journal::CheckpointWriter;
use catalog::Catalog;
use checkpoint::Checkpoint;
use environment::{Surroundings, refuse, refuse_writes, unanswered};
use gateway::KeyspaceOptions;
use hot_keys_of_all::Questions;
use identity::Identity;
use mio::Registry;
use parking_lot::Mutex;
use peers::{Arrivals, Peers};
use protocol::hosted::{Backlog, Hosted, Lag, Life, LogWork, Place, Turn};
use protocol::model::Properties;
use protocol::{Gate, Now, Request};
use spool::Spools;
use standings::Standings;
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use types::{Error, HashSeed, Instant, KeyspaceId, ProcessId, RequestId, Slot};

/// What other threads may know of the cluster.
pub(crate) struct ClusterView {
    pub(crate) options: ClusterOptions,
    pub(crate) peers_connected: AtomicUsize,
    /// Of each keyspace, with its name.
    pub(crate) backlogs: Mutex<Vec<(String, Backlog)>>,
    /// Of each causal keyspace, with its name.
    pub(crate) lags: Mutex<Vec<(String, Lag)>>,
    /// The size of the last checkpoint, in bytes.
    pub(crate) checkpoint_bytes: AtomicU64,
    /// A checkpoint that is written and waits to be installed.
    written: Mutex<Option<Written>>,
    installing: AtomicBool,
}

/// A checkpoint that is written, and how often the log had failed when it was begun.
pub(crate) type Written = (CheckpointWriter, u64);

impl ClusterView {
    pub(crate) fn new(options: ClusterOptions) -> Self {
        ClusterView {
            options,
            peers_connected: AtomicUsize::new(0),
            backlogs: Mutex::default(),
            lags: Mutex::default(),
            checkpoint_bytes: AtomicU64::new(0),
            written: Mutex::new(None),
            installing: AtomicBool::new(false),
        }
    }

    /// Hands a written checkpoint to the thread that installs it.
    pub(crate) fn hand_over(&self, written: Option<Written>) {
        if written.is_some() {
            self.installing.store(true, Ordering::Release);
            *self.written.lock() = written;
        }
    }

    /// True while a written checkpoint is not installed.
    pub(crate) fn is_installing(&self) -> bool {
        self.installing.load(Ordering::Acquire)
    }

    /// The checkpoint to install, if there is one.
    pub(crate) fn take_written(&self) -> Option<Written> {
        self.written.lock().take()
    }

    /// It is installed, or has failed; its size in bytes if it counts.
    pub(crate) fn installed(&self, bytes: Option<u64>) {
        if let Some(bytes) = bytes {
            self.checkpoint_bytes.store(bytes, Ordering::Relaxed);
        }
        self.installing.store(false, Ordering::Release);
    }
}

/// See the module.
pub(crate) struct Cluster {
    file: ClusterFile,
    life: Life,
    catalog: Catalog,
    /// In the catalog's order, which is that of their ids; of one that was dropped only its number is taken.
    keyspaces: Vec<Option<Box<dyn Hosted>>>,
    /// Keyspaces whose clients have not been told that they were dropped.
    dropped: Vec<KeyspaceId>,
    /// The log has records of a keyspace that was dropped; the next checkpoint does not.
    has_remains: bool,
    peers: Peers,
    spools: Spools,
    arrived: Arrivals,
    /// See [`known_types`].
    ahead: BTreeMap<ProcessId, u64>,
    /// Something was stepped since the last pump.
    stirred: bool,
    checkpoint: Option<Checkpoint>,
    gaps: Option<Gaps>,
    questions: Questions,
    standings: Standings,
}

/// This life began with gaps in its memory.
struct Gaps {
    identity: Identity,
    /// The group that holds the last of what was missing.
    learnt: Option<u64>,
}

impl Cluster {
    /// Begins to listen and to connect, in this event loop.
    pub(crate) fn begin(&mut self, now: Instant, registry: &Registry) -> std::io::Result<()> {
        self.peers.know_types(self.catalog.known_types());
        self.peers.begin(now, registry)
    }

    /// An event of a peer's socket; `ending` if it tells of the connection's end.
    pub(crate) fn ready(&mut self, token: usize, ending: bool, registry: &Registry) {
        self.peers.ready(token, ending, registry, &mut self.arrived);
    }

    /// Hands out what has arrived; the pump serves it.
    pub(crate) fn deliver(&mut self, now: Now) {
        self.stirred |= !self.arrived.is_empty();
        let mut arrived = std::mem::take(&mut self.arrived);
        for (from, to, packet) in arrived.iter() {
            if to == hot_keys_of_all::SLOT {
                self.hear(from.process, packet, now);
                continue;
            }
            if to == known_types::SLOT {
                self.hear_of_types(from.process, packet, now);
                continue;
            }
            if to == standings::SLOT {
                self.hear_standing(from.process, packet);
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
                Some(Some(keyspace)) => {
                    if let Err(error) = keyspace.receive(from, to, packet) {
                        tracing::warn!(%from, %error, "a malformed packet was dropped");
                    }
                }
                Some(None) => {}
                None => {
                    tracing::warn!(%from, keyspace = %to.keyspace, "a packet for an unknown keyspace was dropped")
                }
            }
        }
        arrived.clear();
        self.arrived = arrived;
    }

    /// True if the instance is here, or its keyspace was dropped.
    fn hosts(&self, slot: Slot) -> bool {
        let keyspace = self.keyspaces.get(usize::from(slot.keyspace.0));
        keyspace.is_some_and(|keyspace| keyspace.as_ref().is_none_or(|keyspace| keyspace.hosts(slot)))
    }

    /// Begins to serve the keyspaces that were created elsewhere since, and ends those that were dropped. This process
    /// has never said anything for a new one, so it misses nothing of it.
    pub(crate) fn refresh(&mut self, now: Now) {
        self.catalog.refresh();
        self.note_types();
        for index in 0..self.catalog.keyspaces().len() {
            if index == self.keyspaces.len() {
                self.begin_keyspace(index, now);
            } else if self.catalog.keyspaces()[index].dropped {
                self.end_keyspace(index);
            }
            self.configure(index, now);
        }
    }

    /// Hosts what is to be here of a new keyspace.
    fn begin_keyspace(&mut self, index: usize, now: Now) {
        let mut keyspace = host(&self.catalog, index, self.life).unwrap_or_else(|reason| {
            tracing::error!(%reason, "a keyspace cannot be served");
            None
        });
        if let Some(keyspace) = &mut keyspace {
            unanswered(now, |turn| keyspace.recovered(true, turn));
        }
        self.keyspaces.push(keyspace);
        self.stirred = true;
    }

    /// Ends a keyspace that was dropped, unless it has ended.
    fn end_keyspace(&mut self, index: usize) {
        if self.keyspaces[index].take().is_none() {
            return;
        }
        let id = KeyspaceId(index as u16);
        tracing::info!(keyspace = self.entry(id).name, "dropped");
        self.spools.drop_keyspace(id);
        self.dropped.push(id);
        self.has_remains = true;
        // Begun before, it may be of a keyspace that is no more.
        self.checkpoint = None;
        self.stirred = true;
    }

    /// Hands a keyspace's options to what is hosted of it.
    fn configure(&mut self, index: usize, now: Now) {
        let (Some(keyspace), entry) = (&mut self.keyspaces[index], &self.catalog.keyspaces()[index]) else {
            return;
        };
        match unanswered(now, |turn| keyspace.configure(&entry.options, turn)) {
            Ok(stirred) => self.stirred |= stirred,
            Err(reason) => tracing::error!(keyspace = entry.name, %reason, "options cannot be used"),
        }
    }

    /// `KEYSPACE CREATE`: durable, and known to every process that is asked for it, when this returns.
    pub(crate) fn create(
        &mut self,
        name: String,
        options: &KeyspaceOptions<'_>,
        now: Now,
    ) -> Result<(), Error> {
        self.catalog.create(name, options)?;
        self.refresh(now);
        Ok(())
    }

    /// `KEYSPACE ALTER`: durable when this returns; the other processes know within a tenth of a second.
    pub(crate) fn alter(&mut self, name: &str, options: &KeyspaceOptions<'_>, now: Now) -> Result<(), Error> {
        self.catalog.alter(name, options)?;
        self.refresh(now);
        Ok(())
    }

    /// `KEYSPACE DROP`: durable when this returns, and nothing is left here; the other processes know within a tenth
    /// of a second.
    pub(crate) fn drop_keyspace(&mut self, name: &str, now: Now) -> Result<(), Error> {
        self.catalog.drop_keyspace(name)?;
        self.refresh(now);
        Ok(())
    }

    /// `TYPES LOAD`: durable, and known to every process that meets the name, when this returns.
    pub(crate) fn add_type(&mut self, new: &StoredType, now: Now) -> Result<(), Error> {
        self.catalog.add_type(new)?;
        self.refresh(now);
        user_types::register(new).map_err(Error::err)
    }

    /// The keyspaces that were dropped since the last call: their clients wait for nothing any more.
    pub(crate) fn take_dropped(&mut self) -> Vec<KeyspaceId> {
        std::mem::take(&mut self.dropped)
    }

    /// True if a checkpoint would rid the log of what was dropped.
    pub(crate) fn has_remains(&self) -> bool {
        self.has_remains
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
        }
        let mut environment = Surroundings { journal, peers: &mut self.peers, spools: &mut self.spools };
        match self.keyspaces.get_mut(usize::from(keyspace.0)) {
            Some(Some(keyspace)) => {
                keyspace.submit(requests, &mut environment, turn);
                return keyspace.reply_gate();
            }
            Some(None) => refuse(requests, &dropped(), turn),
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
        let mut environment = Surroundings { journal, peers: &mut self.peers, spools: &mut self.spools };
        let mut gate = Gate::OPEN;
        for keyspace in self.keyspaces[which].iter_mut().flatten() {
            keyspace.pump(&mut environment, turn);
            gate = gate.and(keyspace.reply_gate());
        }
        self.tell_hot_keys(turn);
        gate
    }

    /// True when requests came since the last pump.
    pub(crate) fn is_stirred(&self) -> bool {
        self.stirred
    }

    /// What the log has to do so that what waits may leave.
    pub(crate) fn log_work(&self, journal: &Journal) -> LogWork {
        let durable = journal.durable();
        let each = self.keyspaces.iter().flatten().map(|keyspace| keyspace.log_work(durable));
        each.fold(LogWork::default(), LogWork::and)
    }

    /// Sends what is queued for peers, and notes who is connected.
    pub(crate) fn flush(&mut self, now: Instant, registry: &Registry, view: &ClusterView) {
        self.peers.flush(now, registry);
        view.peers_connected.store(self.peers.connected(), Ordering::Relaxed);
    }

    /// Notes what is kept for others, and how old is what is known of them.
    pub(crate) fn note_backlogs(&self, now: Now, view: &ClusterView) {
        let (mut lags, mut backlogs) = (Vec::new(), Vec::new());
        for ((id, entry), keyspace) in
            (0..).map(KeyspaceId).zip(self.catalog.keyspaces()).zip(&self.keyspaces)
        {
            let Some(keyspace) = keyspace else { continue };
            if let Some(lag) = keyspace.lag(now.wall) {
                lags.push((entry.name.clone(), Lag { sent: self.sent(id), ..lag }));
            }
            backlogs.push((entry.name.clone(), keyspace.backlog()));
        }
        *view.lags.lock() = lags;
        *view.backlogs.lock() = backlogs;
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
        if self.stirred || self.checkpoint.is_some() {
            return Some(now);
        }
        let replicas = self.keyspaces.iter().flatten().filter_map(|keyspace| keyspace.deadline());
        replicas.chain(self.peers.deadline()).chain(self.questions.deadline()).min()
    }

    /// Notes in the data directory when nothing is missing any more.
    pub(crate) fn note_complete(&mut self, journal: &Journal, directory: &Path) {
        let Some(gaps) = &mut self.gaps else { return };
        if gaps.learnt.is_none() && self.keyspaces.iter().flatten().all(|keyspace| keyspace.is_complete()) {
            gaps.learnt = Some(journal.open_group().0);
            // What was learnt is in no log: until a checkpoint holds it, a restart learns it again.
            if let Err(error) = self.begin_checkpoint(journal) {
                tracing::warn!(%error, "no checkpoint of what was learnt; the next one will hold it");
            }
        }
        let Some(gaps) = &mut self.gaps else { return };
        match gaps.learnt {
            Some(group) if journal.durable().synced >= group => {
                let identity = gaps.identity.clone().with_complete(true);
                match identity.save(directory) {
                    Ok(()) => {
                        tracing::info!("everything that was missing has been learnt from the peers");
                        self.gaps = None;
                    }
                    Err(error) => tracing::warn!(%error, "the data directory cannot be marked as complete"),
                }
            }
            Some(_) => journal.want_sync(),
            None => {}
        }
    }

    /// The keyspace's number in the catalog.
    pub(crate) fn keyspace_of_name(&self, name: &[u8]) -> Option<KeyspaceId> {
        self.served().find(|(_, keyspace)| keyspace.name.as_bytes() == name).map(|(id, _)| id)
    }

    /// True if the keyspace with this number is served.
    pub(crate) fn serves(&self, number: u64) -> bool {
        let entry = usize::try_from(number).ok().and_then(|index| self.catalog.keyspaces().get(index));
        entry.is_some_and(|entry| !entry.dropped)
    }

    /// The keyspaces that are served here, with their numbers.
    pub(crate) fn served(&self) -> impl Iterator<Item = (KeyspaceId, &ClusterKeyspace)> {
        let entries = (0..).map(KeyspaceId).zip(self.catalog.keyspaces());
        entries.filter(|(_, entry)| !entry.dropped)
    }

    /// What hashes keys into partitions.
    pub(crate) fn seed(&self) -> HashSeed {
        HashSeed(self.file.seed)
    }

    /// How many numbers are taken.
    pub(crate) fn numbers(&self) -> usize {
        self.catalog.keyspaces().len()
    }

    /// A keyspace's entry.
    pub(crate) fn entry(&self, id: KeyspaceId) -> &ClusterKeyspace {
        &self.catalog.keyspaces()[usize::from(id.0)]
    }

    /// How many partitions a keyspace has.
    pub(crate) fn partitions(&self, id: KeyspaceId) -> u16 {
        let entry = self.entry(id);
        self.catalog.models().named(&entry.model).map_or(0, |model| model.partitions(&entry.options))
    }

    /// What a keyspace's options are, for people.
    fn properties(&self, id: KeyspaceId) -> Properties {
        let (entry, cluster) = (self.entry(id), self.catalog.cluster());
        let model = self.catalog.models().named(&entry.model);
        model.map(|model| model.describe(&entry.options, cluster)).unwrap_or_default()
    }
}

/// What a process hosts of the keyspace with this number; nothing if it was dropped.
fn host(catalog: &Catalog, index: usize, life: Life) -> Result<Option<Box<dyn Hosted>>, String> {
    let entry = &catalog.keyspaces()[index];
    if entry.dropped {
        return Ok(None);
    }
    let place = Place { cluster: catalog.cluster(), keyspace: KeyspaceId(index as u16), life };
    let hosted = catalog.models().named(&entry.model).and_then(|model| model.host(&entry.options, &place));
    hosted.map(Some).map_err(|reason| entry.reason(&reason))
}
