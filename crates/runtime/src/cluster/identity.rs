//! Whose data directory this is, and whether anything may be missing in it: a small file, so that no process ever
//! speaks with another one's memory, or with less than all of its own.

use crate::error::StartError;
use crate::files;
use serde::{Deserialize, Serialize};
use std::io::ErrorKind;
use std::path::Path;

const FILE: &str = "process.json";
const VERSION: u32 = 1;
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The file's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    version: u32,
    /// The cluster's seed.
    pub(crate) cluster: u64,
    /// The process's number.
    pub(crate) process: u16,
    /// Which run of the kernel last served it; empty where the system does not say.
    pub(crate) boot: String,
    /// False from a start with gaps in its memory until everything is learnt from the peers and synced.
    pub(crate) complete: bool,
}

impl Identity {
    /// What it must be here and now.
    pub(crate) fn present(cluster: u64, process: u16) -> Self {
        let boot = std::fs::read_to_string(BOOT_ID).unwrap_or_default().trim().to_owned();
        Identity { version: VERSION, cluster, process, boot, complete: false }
    }

    /// The same with another word about gaps.
    pub(crate) fn with_complete(self, complete: bool) -> Self {
        Identity { complete, ..self }
    }

    /// True if the same run of the kernel wrote `earlier`: then nothing that it was handed can be missing.
    pub(crate) fn is_same_boot(&self, earlier: &Identity) -> bool {
        !self.boot.is_empty() && self.boot == earlier.boot
    }

    /// The directory's file, if there is one; it must name the same process.
    pub(crate) fn earlier(&self, directory: &Path) -> Result<Option<Identity>, StartError> {
        let file = directory.join(FILE);
        let damaged = |reason: String| StartError::Metadata { file: file.clone(), reason };
        let bytes = match std::fs::read(&file) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(damaged(error.to_string())),
        };
        let earlier: Identity = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if (earlier.cluster, earlier.process) != (self.cluster, self.process) {
            return Err(StartError::Cluster(format!(
                "{} holds the data of process {} of cluster {:016x}, not of process {} of cluster {:016x}",
                directory.display(),
                earlier.process,
                earlier.cluster,
                self.process,
                self.cluster
            )));
        }
        Ok(Some(earlier))
    }

    /// Replaces the directory's file, durably.
    pub(crate) fn save(&self, directory: &Path) -> std::io::Result<()> {
        files::replace(&directory.join(FILE), self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_belongs_to_one_process_of_one_cluster() {
        let directory = std::env::temp_dir().join(format!("anabranch-identity-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let mine = Identity { complete: true, ..Identity::present(7, 3) };
        assert_eq!(mine.earlier(&directory).unwrap(), None);
        mine.save(&directory).unwrap();
        assert_eq!(mine.earlier(&directory).unwrap(), Some(mine.clone()));
        assert!(mine.is_same_boot(&Identity::present(7, 3)));
        assert!(!Identity { boot: String::new(), ..mine.clone() }.is_same_boot(&mine));
        let other = Identity::present(7, 2).earlier(&directory).unwrap_err().to_string();
        assert!(other.contains("process 3") && other.contains("process 2"), "{other}");
        std::fs::write(directory.join(FILE), b"{").unwrap();
        assert!(matches!(mine.earlier(&directory), Err(StartError::Metadata { .. })));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
