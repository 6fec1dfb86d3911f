//! The keyspaces of a process with instances, and its place in the cluster; a process by itself is a cluster of one.
//!
//! ```text
//!  clients -> gateway -> coordinator --+                    +--> log (group) --> written or synced
//!                            ^         |  packets           |          |
//!                            |         v                    |          v
//!                            +--- local replicas -- records +     gates open --> packets --> local, or peers
//! ```
//!
//! A worker submits to a keyspace what its clients sent, and pumps it in the same turn: timers fire, records join the log's
//! open group, packets whose gate is open are delivered here or queued for a peer, until nothing is left to do but to wait.
//! Records are written out once for all of that (`everysec`) or handed to the syncer (`always`), which wakes the worker. A
//! reply to a client of another worker goes to that worker's inbox. The peers' sockets are spread over the workers; the first
//! worker keeps the time: it pumps when a deadline comes. While the log refuses records, so that gates stay closed, clients'
//! writes are refused, and replicas with records that it has not taken neither hear nor say anything: their peers go on
//! without them.
//!
//! # Locks
//! In this order; who holds one takes only later ones:
//!
//! | lock | guards | held |
//! |---|---|---|
//! | of the [`Cluster`] | the catalog, what processes tell each other | by `KEYSPACE`, every 100 ms; never to serve data |
//! | of a keyspace ([`hosted_keyspace`]) | which instances it has | by all that step some, together; alone to change them |
//! | of an instance ([`protocol::hosted`]) | the coordinator or a replica | for a step; several in their order, to look at |
//! | of a keyspace's notes | what its instances wait for | for moments |
//! | a mailbox, spools, the list of keyspaces, a peer's queue, the log | what they are | for moments; the log's while it is written |
//!
//! Solo keyspaces' locks come after the cluster's and before the log's. A peer's connection is locked while the kernel takes
//! bytes, by threads that hold nothing else, and before the peer's queue. Nobody holds two keyspaces.
//!
//! The order within an instance: packets of a peer come through one connection, which one worker reads into the mailbox;
//! what one step persists of a replica is one record; the time of its steps does not go back.

mod addresses;
mod catalog;
mod clocks;
mod cluster_hot_keys;
mod config;
mod delivery;
mod describe;
mod environment;
mod hosted_keyspace;
mod hosting;
mod hot_keys;
mod identity;
mod incoming;
mod keyspaces;
mod known_types;
mod log_positions;
mod models;
mod news;
mod outgoing;
mod peers;
mod place;
mod recovery;
mod single_process;
mod spool;
mod view;

pub use catalog::ClusterCatalog;
pub(crate) use cluster_hot_keys::HotKeysQuestion;
pub use config::{ClusterFile, ClusterOptions, ClusterProcess};
pub(crate) use delivery::deliver;
pub(crate) use describe::{describe, section};
pub(crate) use environment::dropped;
pub(crate) use hosted_keyspace::{HostedKeyspace, Pumped, Visit};
pub(crate) use hosting::{Hostings, KeyspaceHosting};
pub(crate) use incoming::Arrivals;
pub use models::{ClusterKeyspace, Models};
pub(crate) use peers::{FIRST_TOKEN, Peers};
pub(crate) use recovery::recover;

use crate::journal::Journal;
use crate::keyspace::Locals;
use addresses::Addresses;
use catalog::Catalog;
use clocks::Clocks;
use cluster_hot_keys::Questions;
use identity::Identity;
use log_positions::LogPositions;
use protocol::hosted::{Lag, Life};
use protocol::{Durability, Now, Replies};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use types::{KeyspaceId, ProcessId, Slot};
pub(crate) use view::ClusterView;

/// See the module.
pub(crate) struct Cluster {
    file: ClusterFile,
    life: Life,
    /// The data directory.
    directory: Option<PathBuf>,
    catalog: Catalog,
    /// The keyspaces that the process keeps by itself.
    locals: Arc<Locals>,
    view: Arc<ClusterView>,
    /// That of keyspaces that the process keeps by itself, unless they say another one.
    durability: Durability,
    hostings: Arc<Hostings>,
    peers: Arc<Peers>,
    /// See [`known_types`].
    ahead: BTreeMap<ProcessId, u64>,
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
    /// True if something may be due without a client's command.
    fn is_active(&self) -> bool {
        self.view.has_peers() || self.hosted().next().is_some()
    }

    /// What is hosted of keyspaces.
    fn hosted(&self) -> impl Iterator<Item = Arc<HostedKeyspace>> {
        let list = self.hostings.list();
        (0..list.len()).filter_map(move |index| list[index].hosted().cloned())
    }

    /// The keyspaces, with how this process takes part in them.
    pub(crate) fn hostings(&self) -> &Arc<Hostings> {
        &self.hostings
    }

    /// The connections to the other processes.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Another process has told this one something that belongs to no keyspace.
    fn hear(&mut self, from: ProcessId, to: Slot, packet: &[u8], now: Now, replies: &mut dyn Replies) {
        match to {
            cluster_hot_keys::SLOT => {
                self.hear_hot_keys(from, packet);
                self.tell_hot_keys(now.instant, replies);
            }
            known_types::SLOT => self.hear_of_types(from, packet),
            log_positions::SLOT => self.hear_standing(from, packet),
            clocks::SLOT => self.hear_clock(from, packet, now),
            addresses::SLOT => self.hear_address(from, packet),
            _ => {
                tracing::warn!(%from, keyspace = %to.keyspace, "a packet for an unknown keyspace was dropped")
            }
        }
    }

    /// Does what is due now and then, ten times a second.
    pub(crate) fn tick(
        &mut self,
        now: Now,
        journal: Option<&Journal>,
        directory: Option<&Path>,
        replies: &mut dyn Replies,
    ) {
        self.compare_clocks(now);
        self.tell_address(now.instant);
        self.tell_hot_keys(now.instant, replies);
        self.refresh();
        self.note_figures(now);
        if let (Some(journal), Some(directory)) = (journal, directory) {
            self.note_complete(directory);
            self.tell_standing(journal, now.instant);
        }
    }

    /// Notes what the instances of each keyspace say of themselves: the backlog for other processes, the age of the knowledge
    /// of them, the memory.
    fn note_figures(&self, now: Now) {
        let (mut lags, mut backlogs) = (Vec::new(), Vec::new());
        for keyspace in self.hosted() {
            keyspace.note_figures(now.wall);
            let (figures, name) = (keyspace.figures(), &self.entry(keyspace.id).name);
            if let Some(lag) = figures.lag {
                lags.push((name.clone(), Lag { sent: self.sent(keyspace.id), ..lag }));
            }
            backlogs.push((name.clone(), figures.backlog));
        }
        *self.view.lags.lock() = lags;
        *self.view.backlogs.lock() = backlogs;
        self.hostings.note_memory(&self.locals.memory, &self.view);
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

    /// Notes in the data directory when nothing is missing any more. What was learnt is in no log: a checkpoint must hold it.
    fn note_complete(&mut self, directory: &Path) {
        let learnt = self.hosted().all(|keyspace| keyspace.figures().is_complete);
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
}
