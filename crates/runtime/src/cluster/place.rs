//! Partitions that move to other processes, or go on after a loss, because an operator says so (Corrections 83, 84).

use crate::cluster::Cluster;
use protocol::model::PartitionMove;
use std::collections::BTreeSet;
use types::{Error, KeyspaceId};

impl Cluster {
    /// `KEYSPACE PLACE`: notes where the partition may be, and lets this process's coordinator see to it that it moves.
    pub(crate) fn place(&mut self, name: &[u8], partition: u16, to: &[u16]) -> Result<(), Error> {
        let (index, present) = self.movable(name, partition)?;
        let joining: BTreeSet<u16> = to.iter().copied().collect();
        if joining.len() != to.len() || to.len().is_multiple_of(2) {
            return Err(Error::err("a partition has 1, 3, 5 ... replicas, each on a process of its own"));
        }
        if let Some(unknown) = to.iter().find(|process| self.file.process(**process).is_none()) {
            return Err(Error::err(format!("the cluster has no process {unknown}")));
        }
        self.catalog.note_move(index, partition, &PartitionMove { joining, ..present })?;
        self.refresh();
        if let Some(keyspace) = self.hostings.hosted_of(KeyspaceId(index as u16)) {
            keyspace.change(&self.view, |hosted, turn| hosted.place(partition, to, turn));
        }
        Ok(())
    }

    /// `KEYSPACE RECOVER ... ACCEPT-LOSS`: this process's replica becomes the only one, in an epoch above all that the
    /// lost ones may have begun, with what those of the processes `left` have besides. Says what may be lost.
    pub(crate) fn accept_loss(
        &mut self,
        name: &[u8],
        partition: u16,
        left: &[u16],
    ) -> Result<Vec<String>, Error> {
        let (index, _) = self.movable(name, partition)?;
        let hosted = self.hostings.hosted_of(KeyspaceId(index as u16));
        let outcome = hosted.and_then(|keyspace| {
            keyspace.change(&self.view, |hosted, turn| hosted.accept_loss(partition, left, turn))
        });
        outcome.unwrap_or_else(|| Err(super::dropped()))
    }

    /// `KEYSPACE EVICT ... ACCEPT-LOSS`: the keyspace goes on without a region, for good (Corrections 36). Durable when
    /// this returns; the other processes know within a tenth of a second.
    pub(crate) fn evict(&mut self, name: &[u8], region: &[u8]) -> Result<(), Error> {
        self.refresh();
        let (name, region) = (String::from_utf8_lossy(name), String::from_utf8_lossy(region));
        let own = self.file.region_name(self.life.region.0);
        self.catalog.note_eviction(&name, &region, &own)?;
        self.refresh();
        Ok(())
    }

    /// The place of a keyspace whose partitions can move, and where this one is.
    fn movable(&mut self, name: &[u8], partition: u16) -> Result<(usize, PartitionMove), Error> {
        self.refresh();
        let text = String::from_utf8_lossy(name);
        let Some(id) = self.keyspace_of_name(name) else {
            return Err(Error::err(format!("no keyspace '{text}'; KEYSPACE LIST names them")));
        };
        let index = usize::from(id.0);
        let hosted = self.hostings.hosted_of(id);
        let present = hosted.and_then(|keyspace| keyspace.with(|hosted| hosted.present(partition))).flatten();
        let Some(present) = present else {
            return Err(Error::err(format!(
                "keyspace '{text}' stays where it is: only partitions of strict keyspaces without leaders move"
            )));
        };
        let partitions = self.partitions(id);
        if partition >= partitions {
            let last = partitions - 1;
            return Err(Error::err(format!("keyspace '{text}' has the partitions 0 to {last}")));
        }
        Ok((index, present))
    }
}
