//! Processes tell each other where clients reach them, for clients that spread over the processes of a region (`CLUSTER`).
//!
//! Each tells every peer, once a second, the address that its configuration announces, or the first one at which it
//! listens. Where that is any address of its machine, its peers know the machine by the cluster's file.

use crate::cluster::Cluster;
use gateway::{ClusterMap, ClusterMember};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use types::{Instant, KeyspaceId, PartitionId, ProcessId, Reader, Slot, Wire};

const EVERY: Duration = Duration::from_secs(1);
/// Where processes tell each other: no keyspace has this number.
pub(super) const SLOT: Slot = Slot { keyspace: KeyspaceId(u16::MAX), partition: Some(PartitionId(6)) };

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    /// Where clients reach this process; `None` until it listens.
    own: Option<SocketAddr>,
    heard: BTreeMap<ProcessId, SocketAddr>,
    next: Instant,
}

impl Cluster {
    /// Clients reach this process here from now on.
    pub(crate) fn announce(&mut self, address: SocketAddr) {
        self.addresses.own = Some(address);
    }

    /// Tells the peers where clients reach this process, now and then. To be called at every tick.
    pub(super) fn tell_address(&mut self, now: Instant) {
        let Some(own) = self.addresses.own.filter(|_| now >= self.addresses.next) else { return };
        self.addresses.next = now + EVERY;
        let text = Box::<[u8]>::from(own.to_string().as_bytes());
        for process in self.peers.all() {
            self.peers.send(process, self.peers.node(SLOT), SLOT, &text, Some(now));
        }
    }

    /// A peer has announced where clients reach it.
    pub(super) fn hear_address(&mut self, from: ProcessId, packet: &[u8]) {
        let text = Box::<[u8]>::decode(&mut Reader::new(packet)).ok();
        let address = text.and_then(|text| std::str::from_utf8(&text).ok()?.parse().ok());
        match address {
            Some(address) => {
                self.addresses.heard.insert(from, address);
            }
            None => tracing::warn!(%from, "a packet with an address makes no sense and was dropped"),
        }
    }

    /// This process and those others of its region that have announced where clients reach them; `None` for a process
    /// by itself.
    pub(crate) fn map(&self) -> Option<ClusterMap> {
        let Addresses { own, heard, .. } = &self.addresses;
        let (me, region) = (self.life.process, self.life.region.0);
        let near = self.file.processes.iter().filter(|process| process.region == region);
        let member = |process: &super::ClusterProcess| {
            let id = ProcessId(process.id);
            let is_self = id == me;
            let address = if is_self { *own } else { heard.get(&id).copied() }?;
            let is_anywhere = address.ip().is_unspecified();
            let host = if is_anywhere { process.peer_address.ip() } else { address.ip() };
            Some(ClusterMember {
                process: process.id,
                host: host.to_string(),
                port: address.port(),
                peer_port: process.peer_address.port(),
                is_self,
                is_up: is_self || self.peers.is_connected(id),
            })
        };
        let mut members: Vec<ClusterMember> = near.filter_map(member).collect();
        members.sort_by_key(|member| member.process);
        (self.file.processes.len() > 1).then_some(ClusterMap { seed: self.file.seed, members })
    }
}
