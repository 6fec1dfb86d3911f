//! Who is in the cluster and what it keeps: one small file, the same for every process.

use protocol::model::{ClusterShape, RegionShape};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use types::HashSeed;

/// The options of a process of a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// The cluster.
    pub file: ClusterFile,
    /// Which of its processes this is.
    pub process: u16,
    /// True at the first start of a new cluster, of all its processes: an empty data directory then means that
    /// nothing was ever said. Otherwise it means that everything was forgotten, and the process learns from its
    /// peers before it takes part.
    pub bootstrap: bool,
    /// Added to the wall clock, in milliseconds: for tests of skewed clocks.
    pub clock_skew_ms: i64,
}

/// The file of one process: who is in the cluster, and how this process reaches them. Written by `cluster local`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterFile {
    /// Distinguishes clusters: a process talks only to peers that say the same. Also the seed of the key hash.
    pub seed: u64,
    /// Every process.
    pub processes: Vec<ClusterProcess>,
    /// The file with the keyspaces, which all processes share; see `ClusterCatalog`.
    pub catalog: PathBuf,
}

/// One process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterProcess {
    /// Its number, unique for ever.
    pub id: u16,
    /// Its region's number; regions count from 0.
    pub region: u16,
    /// Its region's name.
    pub region_name: String,
    /// Where it listens for its peers.
    pub peer_address: SocketAddr,
}

impl ClusterFile {
    /// Reads and checks the file.
    ///
    /// # Errors
    /// Says what is wrong, with the file's name.
    pub fn load(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let file: ClusterFile =
            serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        file.check().map_err(|reason| format!("{}: {reason}", path.display()))?;
        Ok(file)
    }

    /// Is this a cluster that can work?
    ///
    /// # Errors
    /// Says why not.
    pub fn check(&self) -> Result<(), String> {
        let ids: BTreeSet<u16> = self.processes.iter().map(|process| process.id).collect();
        if ids.len() != self.processes.len() || ids.is_empty() {
            return Err("processes need different ids, and there must be one".to_owned());
        }
        let regions: BTreeSet<u16> = self.processes.iter().map(|process| process.region).collect();
        if regions.iter().copied().ne(0..regions.len() as u16) {
            return Err("regions are numbered from 0 without gaps".to_owned());
        }
        Ok(())
    }

    /// The process with this number.
    pub fn process(&self, id: u16) -> Option<&ClusterProcess> {
        self.processes.iter().find(|process| process.id == id)
    }

    /// The name of a region.
    pub(crate) fn region_name(&self, region: u16) -> String {
        let process = self.processes.iter().find(|process| process.region == region);
        process.map_or_else(|| region.to_string(), |process| process.region_name.clone())
    }

    /// The cluster as models see it.
    pub fn shape(&self) -> ClusterShape {
        let region = |region: u16| {
            let ids = self.processes.iter().filter(|process| process.region == region);
            let ids: BTreeSet<u16> = ids.map(|process| process.id).collect();
            RegionShape { name: self.region_name(region), processes: ids.into_iter().collect() }
        };
        ClusterShape { seed: HashSeed(self.seed), regions: (0..self.regions()).map(region).collect() }
    }

    /// How many regions there are.
    pub(crate) fn regions(&self) -> u16 {
        self.processes.iter().map(|process| process.region + 1).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(id: u16, region: u16) -> ClusterProcess {
        let peer_address = SocketAddr::from(([127, 0, 0, 1], 7000 + id));
        ClusterProcess { id, region, region_name: format!("r{region}"), peer_address }
    }

    #[test]
    fn what_cannot_work_is_refused_with_its_reason() {
        let file = |processes| ClusterFile { seed: 1, processes, catalog: PathBuf::new() };
        assert!(file(vec![process(1, 0), process(2, 0), process(3, 1)]).check().is_ok());
        let twice = file(vec![process(1, 0), process(1, 0), process(3, 0)]);
        assert!(twice.check().unwrap_err().contains("ids"));
        assert!(file(vec![process(1, 1)]).check().unwrap_err().contains("without gaps"));
    }

    #[test]
    fn models_see_regions_with_their_processes_in_order() {
        let processes = vec![process(3, 0), process(2, 1), process(1, 0)];
        let shape = ClusterFile { seed: 1, processes, catalog: PathBuf::new() }.shape();
        assert_eq!((shape.processes_of(0), shape.processes_of(1)), (&[1, 3][..], &[2][..]));
        assert_eq!((shape.region_name(1), shape.region_of_name("r0")), ("r1", Some(0)));
        assert_eq!(shape.processes(), [1, 2, 3]);
    }
}
