//! What the gateways of the cluster's processes tell each other travels with the packets of their replicas, and no
//! process stores it: a process that is not connected, or lags far behind, misses it.

use super::Cluster;
use super::peers::Peers;
use gateway::{Audience, Model, News};
use protocol::Encode;
use std::collections::BTreeMap;
use std::sync::Arc;
use types::{Error, KeyspaceId, PartitionId, ProcessId, Reader, Slot, Wire};

/// Where gateways tell each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(4)) };

/// What was encoded once for all peers.
struct Encoded(Vec<u8>);

impl Encode for Encoded {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }
}

impl Peers {
    /// Queues news for the peers among the receivers; [`Peers::flush`] sends them.
    pub(crate) fn tell(&self, whom: Audience, news: &News) {
        let mut packet = Encoded(Vec::new());
        Wire::encode(news, &mut packet.0);
        for peer in self.all() {
            let is_meant = match whom {
                Audience::Others | Audience::Elsewhere => true,
                Audience::Here | Audience::Worker(_) => false,
                Audience::Process(process) => process == peer,
            };
            // News do not hold up replicas.
            if is_meant && !self.is_far_behind(peer) {
                self.send(peer, self.node(SLOT), SLOT, &packet, None);
            }
        }
    }
}

/// News that have come from a gateway of another process.
pub(super) fn read(from: ProcessId, packet: &[u8]) -> Option<(ProcessId, Arc<News>)> {
    match News::decode(&mut Reader::new(packet)) {
        Ok(news) => Some((from, Arc::new(news))),
        Err(error) => {
            tracing::warn!(%from, %error, "malformed news were dropped");
            None
        }
    }
}

impl Cluster {
    /// The processes that this one is connected to, and itself, by regions if each has lines of waiting clients of its own:
    /// the own region's first. Of a strict keyspace an element goes to one client of all; others promise no such thing
    /// beyond a region, so nobody waits for another region there. Says, too, whether it is a strict keyspace.
    pub(crate) fn sharing(&self, keyspace: KeyspaceId) -> (bool, Vec<Vec<ProcessId>>) {
        let entry = self.catalog.keyspaces().get(usize::from(keyspace.0));
        let is_strict = entry.is_some_and(|entry| entry.model == Model::Strict.as_str());
        let own = self.life.process;
        let own_region = self.file.process(own.0).map(|process| process.region);
        let mut regions: BTreeMap<(bool, u16), Vec<ProcessId>> = BTreeMap::new();
        for process in &self.file.processes {
            let id = ProcessId(process.id);
            if id == own || self.peers.is_connected(id) {
                let is_other = Some(process.region) != own_region;
                let group = if is_strict { (false, 0) } else { (is_other, process.region) };
                regions.entry(group).or_default().push(id);
            }
        }
        (is_strict, regions.into_values().collect())
    }

    /// May clients that read this keyspace be tracked? `is_solo` says that this process keeps it by itself.
    ///
    /// # Errors
    /// Nobody could tell them of all changes.
    pub(crate) fn may_track(&self, keyspace: KeyspaceId, is_solo: bool) -> Result<(), Error> {
        let entry = self.entry(keyspace);
        let is = |name: &str, value: &str| {
            entry.options.get(name).and_then(|found| found.as_str()).is_some_and(|found| found == value)
        };
        let isolation = entry.options.pointer("/concurrency/optimistic/isolation");
        let is_serializable = isolation.and_then(|found| found.as_str()) == Some("serializable");
        let why = if entry.model == Model::Branch.as_str() {
            "heads move and merge without a command that could tell what has changed in the session's own"
        } else if is("protocol", "pocc") || is("protocol", "cops") {
            "with this PROTOCOL each session sees writes at another time, so the server cannot know when a change is visible to it; \
             PROTOCOL wren and paris can"
        } else if is_serializable {
            "ISOLATION serializable may show what was before an answered change after it; ISOLATION strict does not"
        } else if !is_solo && entry.options.get("eviction").is_some_and(|policy| !policy.is_null()) {
            "it has replicas and lets keys go by itself (EVICTION), which it does not report"
        } else {
            return Ok(());
        };
        Err(Error::err(format!(
            "clients that use keyspace '{}' are not tracked: {why}. Cache what is read from a strict or causal keyspace that \
             evicts nothing, or let what is cached here end with a time of its own",
            entry.name
        )))
    }
}
