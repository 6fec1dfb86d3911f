//! The cluster as placement sees it.

use types::HashSeed;

/// A region of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionShape {
    /// Its name.
    pub name: String,
    /// The numbers of its processes, in order.
    pub processes: Vec<u16>,
}

/// The regions of a cluster, by their numbers, and their processes: the same on every process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterShape {
    /// Hashes the keys of all keyspaces.
    pub seed: HashSeed,
    /// In order of their numbers.
    pub regions: Vec<RegionShape>,
}

impl ClusterShape {
    /// The numbers of all processes, in order.
    pub fn processes(&self) -> Vec<u16> {
        let mut processes: Vec<u16> =
            self.regions.iter().flat_map(|region| &region.processes).copied().collect();
        processes.sort_unstable();
        processes
    }

    /// The numbers of a region's processes, in order.
    pub fn processes_of(&self, region: u16) -> &[u16] {
        self.regions.get(usize::from(region)).map_or(&[], |region| &region.processes)
    }

    /// The name of a region.
    pub fn region_name(&self, region: u16) -> &str {
        self.regions.get(usize::from(region)).map_or("", |region| &region.name)
    }

    /// The names of all regions.
    pub fn region_names(&self) -> impl Iterator<Item = &str> {
        self.regions.iter().map(|region| &*region.name)
    }

    /// The region of a name.
    pub fn region_of_name(&self, name: &str) -> Option<u16> {
        self.region_names().position(|known| known == name).map(|region| region as u16)
    }

    /// How many regions there are.
    pub fn region_count(&self) -> u16 {
        self.regions.len() as u16
    }
}
