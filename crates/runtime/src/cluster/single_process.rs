//! A process by itself is a cluster of one: it makes up the cluster's file, and keeps the list of keyspaces in its data
//! directory, where a later cluster file may name it. It begins with the keyspaces that `SELECT` chooses, strict ones that it
//! keeps by itself.

use super::catalog::{Catalog, ClusterCatalog, numbered_name};
use super::config::{ClusterFile, ClusterOptions, ClusterProcess};
use super::models::ClusterKeyspace;
use crate::error::StartError;
use crate::options::Options;
use crate::user_types::StoredType;
use protocol::Durability;
use protocol::model::{OptionWords, StoredOptions};
use serde::Deserialize;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use types::Error;

/// The list of keyspaces in the data directory.
const FILE: &str = "keyspaces.json";
/// The process's number, and its region's name: the first that a cluster has.
const PROCESS: u16 = 1;
const REGION: &str = "a";
/// The model of the keyspaces that it begins with.
const MODEL: &str = "strict";

/// The cluster of a process that belongs to no other, and its list of keyspaces. `is_fresh` if the data directory has no log.
pub(super) fn open(options: &Options, is_fresh: bool) -> Result<(ClusterOptions, Catalog), StartError> {
    let path = options.data.as_ref().map(|directory| directory.join(FILE));
    let content = match &path {
        Some(path) => stored(path, options, is_fresh)?,
        None => fresh(options).map_err(|error| StartError::Keyspaces(error.message.into_owned()))?,
    };
    let peer_address = SocketAddr::from(([127, 0, 0, 1], 0));
    let process = ClusterProcess { id: PROCESS, region: 0, region_name: REGION.to_owned(), peer_address };
    let file = ClusterFile {
        seed: content.seed.unwrap_or_default(),
        processes: vec![process],
        catalog: path.clone().unwrap_or_default(),
    };
    let catalog = Catalog::single_process(content, path, file.shape(), options.models, options.databases);
    let catalog = catalog.map_err(StartError::Keyspaces)?;
    Ok((ClusterOptions { file, process: PROCESS, bootstrap: true, clock_skew_ms: 0 }, catalog))
}

/// The directory's list; written now if the directory is fresh.
fn stored(path: &Path, options: &Options, is_fresh: bool) -> Result<ClusterCatalog, StartError> {
    let damaged = |reason: String| StartError::Metadata { file: path.to_owned(), reason };
    match std::fs::read(path) {
        Ok(bytes) => {
            if let Ok(earlier) = serde_json::from_slice::<LegacyCatalog>(&bytes) {
                let content = earlier.present(options).map_err(|error| damaged(error.message.into_owned()))?;
                content.save(path).map_err(|error| damaged(error.to_string()))?;
                return Ok(content);
            }
            let content: ClusterCatalog =
                serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
            match content.seed {
                Some(_) => Ok(content),
                None => Err(damaged("it names no seed, so it is not the list of a process by itself".to_owned())),
            }
        }
        Err(error) if error.kind() == ErrorKind::NotFound && is_fresh => {
            let content = fresh(options).map_err(|error| damaged(error.message.into_owned()))?;
            content.save(path).map_err(|error| damaged(error.to_string()))?;
            Ok(content)
        }
        Err(error) if error.kind() == ErrorKind::NotFound => Err(damaged(
            "it is missing, although the directory holds a log; is the directory that of a process of a cluster, which \
             starts with --cluster?"
                .to_owned(),
        )),
        Err(error) => Err(damaged(error.to_string())),
    }
}

/// The list of a new cluster of one.
fn fresh(options: &Options) -> Result<ClusterCatalog, Error> {
    let stored = solo(options, options.durability)?;
    let keyspace = |number: u16| ClusterKeyspace {
        name: numbered_name(number.into()),
        model: MODEL.to_owned(),
        options: stored.clone(),
        dropped: false,
    };
    let keyspaces = (0..options.databases.max(1)).map(keyspace).collect();
    Ok(ClusterCatalog { seed: Some(fastrand::u64(..)), keyspaces, types: Vec::new(), functions: Vec::new() })
}

/// The options of a keyspace that this process keeps by itself.
fn solo(options: &Options, durability: Durability) -> Result<StoredOptions, Error> {
    let model = options.models.named(MODEL).map_err(Error::err)?;
    let stored = model.create_solo(&OptionWords::default(), PROCESS, durability)?;
    stored.ok_or_else(|| Error::err("strict keyspaces need replicas here"))
}

/// The list as programs wrote it that knew strict keyspaces only.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyCatalog {
    #[serde(rename = "version")]
    _version: u32,
    seed: u64,
    next_id: u16,
    keyspaces: Vec<LegacyKeyspace>,
    #[serde(default)]
    types: Vec<StoredType>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LegacyKeyspace {
    id: u16,
    name: String,
    model: String,
    durability: Durability,
}

impl LegacyCatalog {
    /// The same as a list of today: a number without a keyspace is that of a dropped one.
    fn present(self, options: &Options) -> Result<ClusterCatalog, Error> {
        let keyspace = |number: u16| {
            let found = self.keyspaces.iter().find(|keyspace| keyspace.id == number);
            let durability = found.map_or(options.durability, |keyspace| keyspace.durability);
            Ok(ClusterKeyspace {
                name: found.map_or_else(|| format!("dropped{number}"), |keyspace| keyspace.name.clone()),
                model: found.map_or(MODEL, |keyspace| keyspace.model.as_str()).to_owned(),
                options: solo(options, durability)?,
                dropped: found.is_none(),
            })
        };
        let keyspaces = (0..self.next_id).map(keyspace).collect::<Result<_, Error>>()?;
        Ok(ClusterCatalog { seed: Some(self.seed), keyspaces, types: self.types, functions: Vec::new() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cluster::Models;
    use std::path::PathBuf;

    fn options(data: Option<PathBuf>) -> Options {
        let models = Models::new(&[&strict::model::Strict]);
        Options { data, models, databases: 3, ..Options::default() }
    }

    fn directory(name: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("anabranch-one-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        directory
    }

    #[test]
    fn a_fresh_directory_gets_a_list_that_stays() {
        let directory = directory("fresh");
        let options = options(Some(directory.clone()));
        let (first, _) = open(&options, true).unwrap();
        let (second, catalog) = open(&options, false).unwrap();
        assert_eq!(first.file, second.file, "the same cluster");
        let names: Vec<&str> = catalog.keyspaces().iter().map(|keyspace| &*keyspace.name).collect();
        assert_eq!(names, ["default", "db1", "db2"]);
        assert!((0..3).all(|number| catalog.serves(number)) && !catalog.serves(3));
        std::fs::remove_file(directory.join(FILE)).unwrap();
        assert!(
            open(&options, false).err().unwrap().to_string().contains("although the directory holds a log")
        );
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn memory_has_a_list_of_its_own() {
        let (cluster, mut catalog) = open(&options(None), true).unwrap();
        assert_eq!((cluster.process, cluster.file.processes.len()), (PROCESS, 1));
        catalog.create("new".to_owned(), &Default::default(), Durability::Synced).unwrap();
        assert_eq!(catalog.keyspaces()[3].name, "new");
        assert!(!catalog.serves(3), "SELECT takes three numbers");
        assert!(catalog.drop_keyspace("db2").unwrap_err().message.contains("SELECT"));
        catalog.drop_keyspace("new").unwrap();
        assert!(catalog.keyspaces()[3].dropped);
    }

    #[test]
    fn a_list_of_earlier_programs_is_read() {
        let directory = directory("earlier");
        let entry = |id: u16, name: &str| {
            format!(r#"{{"id": {id}, "name": "{name}", "model": "strict", "durability": "always"}}"#)
        };
        let (one, two) = (entry(0, "default"), entry(2, "kept"));
        let earlier = format!(r#"{{"version": 2, "seed": 77, "next_id": 4, "keyspaces": [{one}, {two}]}}"#);
        std::fs::write(directory.join(FILE), earlier).unwrap();
        for _ in 0..2 {
            let (cluster, catalog) = open(&options(Some(directory.clone())), false).unwrap();
            assert_eq!((cluster.file.seed, catalog.keyspaces().len()), (77, 4));
            let dropped: Vec<bool> = catalog.keyspaces().iter().map(|keyspace| keyspace.dropped).collect();
            assert_eq!(dropped, [false, true, false, true]);
            let entry = &catalog.keyspaces()[2];
            let solo = catalog.models().named(MODEL).unwrap().solo(&entry.options).unwrap();
            assert_eq!((&*entry.name, solo.durability), ("kept", Durability::Synced));
        }
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
