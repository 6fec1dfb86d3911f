//! What a local cluster consists of, and where: ports, folders, the file that every process gets.

use super::ClusterExtras;
use super::place::{MAX_REGIONS, Place};
use super::relay::Relays;
use crate::cli::{ClusterLocalArguments, ClusterModel};
use anyhow::{Context, Result, bail, ensure};
use protocol::model::OptionWords;
use runtime::{ClusterCatalog, ClusterFile, ClusterKeyspace, ClusterProcess, Models};
use std::collections::BTreeSet;
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::num::NonZeroU16;
use std::ops::Range;
use std::path::{Path, PathBuf};

/// The file in the data directory that describes the cluster it belongs to.
const FILE: &str = "cluster.json";
/// The file next to it that lists the keyspaces.
const CATALOG: &str = "keyspaces.json";

/// The layout.
pub struct Layout {
    /// In order of their numbers.
    pub processes: Vec<ProcessLayout>,
    /// Where everything is kept.
    pub directory: PathBuf,
    /// Removed at the end.
    pub temporary: bool,
    /// True if the cluster is new.
    pub fresh: bool,
}

/// One process.
#[derive(Clone, Debug)]
pub struct ProcessLayout {
    /// Its number in the cluster.
    pub id: u16,
    /// Its name.
    pub place: Place,
    /// Where clients connect.
    pub client: SocketAddr,
    /// How far its clock is off, in milliseconds.
    pub clock_skew_ms: i64,
    /// Its folder.
    pub directory: PathBuf,
}

impl ProcessLayout {
    /// The cluster as this process reaches it.
    pub fn cluster_file(&self) -> PathBuf {
        self.directory.join(FILE)
    }
}

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Where free ports are looked for: below those that systems give to outgoing connections, so that none of these takes
/// one before the process that it is for has begun to listen.
const PORTS: Range<u16> = 10_000..32_768;

/// The ports that this cluster has taken.
#[derive(Default)]
struct Ports(BTreeSet<u16>);

impl Ports {
    /// One that was free a moment ago, and is no other's of this cluster.
    fn free(&mut self) -> Result<u16> {
        let from = (fresh_seed() % PORTS.len() as u64) as usize;
        let free = PORTS
            .skip(from)
            .chain(PORTS.take(from))
            .find(|port| !self.0.contains(port) && TcpListener::bind(local(*port)).is_ok());
        let port = free.with_context(|| format!("there is no free port in {PORTS:?}"))?;
        Ok(self.take(port))
    }

    /// This one, as somebody has chosen it.
    fn take(&mut self, port: u16) -> u16 {
        self.0.insert(port);
        port
    }
}

/// A number that no other cluster of this machine has.
fn fresh_seed() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Lays the cluster out, writes its files and begins its relays.
pub fn lay_out(
    arguments: &ClusterLocalArguments,
    extras: &ClusterExtras,
    relays: &mut Relays,
) -> Result<Layout> {
    let (regions, each) = (arguments.regions.get(), arguments.processes.get());
    ensure!(regions <= MAX_REGIONS, "a local cluster has at most {MAX_REGIONS} regions");
    ensure!(u32::from(regions) * u32::from(each) <= 64, "a local cluster has at most 64 processes");
    let (directory, temporary) = match &arguments.data {
        Some(directory) => (directory.clone(), false),
        None => {
            let name = format!("anabranch-{:016x}", fresh_seed());
            (std::env::temp_dir().join(name), true)
        }
    };
    std::fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create the data directory {}", directory.display()))?;
    let catalog = directory.canonicalize()?.join(CATALOG);
    let keyspace = default_keyspace(arguments, extras)?;
    let wanted = describe(arguments, catalog);
    let (file, fresh) = settle(&directory, wanted, &keyspace, extras.models)?;
    let (mut processes, mut ports) = (Vec::new(), Ports::default());
    for (index, process) in file.processes.iter().enumerate() {
        let place = Place::process(process.region, index as u16 % each);
        let port = match arguments.base_port {
            0 => ports.free()?,
            base => ports.take(base.checked_add(index as u16).context("the base port is too high")?),
        };
        let directory = directory.join(place.to_string().replace('/', "-"));
        std::fs::create_dir_all(&directory)?;
        let skew = extras.skew.iter().rev().find(|skew| skew.process == place);
        let clock_skew_ms = skew.map_or(0, |skew| skew.skew_ms);
        processes.push(ProcessLayout {
            id: process.id,
            place,
            client: local(port),
            clock_skew_ms,
            directory,
        });
    }
    for skew in &extras.skew {
        let known = processes.iter().any(|process: &ProcessLayout| process.place == skew.process);
        ensure!(known, "there is no process {}", skew.process);
    }
    let layout = Layout { processes, directory, temporary, fresh };
    let relayed = |from: Place, to: Place| {
        let delays = || arguments.delay.iter().any(|delay| delay.is_between(from, to));
        from != to && (!extras.direct || delays())
    };
    connect(&layout, &file, &mut ports, relays, relayed)?;
    for delay in &arguments.delay {
        relays.delay(delay.from, delay.to, delay.delay).map_err(anyhow::Error::msg)?;
    }
    Ok(layout)
}

/// The cluster's file, without addresses.
fn describe(arguments: &ClusterLocalArguments, catalog: PathBuf) -> ClusterFile {
    let (regions, each) = (arguments.regions.get(), arguments.processes.get());
    let process = |index: u16| {
        let region = index / each;
        let region_name = Place { region, process: None }.to_string();
        ClusterProcess { id: index + 1, region, region_name, peer_address: local(0) }
    };
    ClusterFile { seed: fresh_seed(), processes: (0..regions * each).map(process).collect(), catalog }
}

/// The keyspace `default`, as `KEYSPACE CREATE` would make it.
fn default_keyspace(arguments: &ClusterLocalArguments, extras: &ClusterExtras) -> Result<ClusterKeyspace> {
    let number = |number: NonZeroU16| number.to_string();
    let mut options = extras.options.clone();
    // A site has all keys.
    if arguments.model != ClusterModel::Branch {
        options.push(("PARTITIONS", number(arguments.partitions)));
    }
    options.extend(arguments.replicas.map(|replicas| ("REPLICAS", number(replicas))));
    options.extend(arguments.copies.map(|copies| ("COPIES", number(copies))));
    let words: Vec<_> = options.iter().map(|(name, value)| (name.as_bytes(), value.as_bytes())).collect();
    let words = OptionWords::new(Vec::new(), &words);
    let made = extras.models.keyspace("default".to_owned(), arguments.model.as_str(), &words);
    made.map_err(|error| anyhow::Error::msg(error.message))
}

/// The cluster of the data directory: the one that is there already, if it is as wanted, or a new one.
fn settle(
    directory: &Path,
    wanted: ClusterFile,
    keyspace: &ClusterKeyspace,
    models: Models,
) -> Result<(ClusterFile, bool)> {
    let path = directory.join(FILE);
    if !path.exists() {
        let catalog = ClusterCatalog {
            seed: None,
            keyspaces: vec![keyspace.clone()],
            types: Vec::new(),
            functions: Vec::new(),
        };
        catalog.check(models, &wanted.shape()).map_err(anyhow::Error::msg)?;
        catalog.save(&wanted.catalog)?;
        std::fs::write(&path, serde_json::to_vec_pretty(&wanted)?)?;
        return Ok((wanted, true));
    }
    let found = ClusterFile::load(&path).map_err(anyhow::Error::msg)?;
    let catalog =
        ClusterCatalog::load(&wanted.catalog, models, &found.shape()).map_err(anyhow::Error::msg)?;
    // Where its partitions have moved since makes it no other cluster.
    let same = |first: &ClusterKeyspace| first.was_created_as(keyspace, models);
    if found.processes != wanted.processes || !catalog.keyspaces.first().is_some_and(same) {
        bail!(
            "{} holds a cluster of other regions, processes, partitions or options; see {}",
            directory.display(),
            path.display()
        );
    }
    Ok((ClusterFile { catalog: wanted.catalog, ..found }, false))
}

/// Gives every process a port for its peers, and each of those that are to be relayed a relay to come through.
fn connect(
    layout: &Layout,
    file: &ClusterFile,
    ports: &mut Ports,
    relays: &mut Relays,
    relayed: impl Fn(Place, Place) -> bool,
) -> Result<()> {
    let peers: Vec<SocketAddr> =
        layout.processes.iter().map(|_| ports.free().map(local)).collect::<Result<_>>()?;
    for from in &layout.processes {
        let mut mine = file.clone();
        for ((to, peer), entry) in layout.processes.iter().zip(&peers).zip(&mut mine.processes) {
            entry.peer_address = match relayed(from.place, to.place) {
                false => *peer,
                true => relays.add(from.place, to.place, *peer).context("cannot relay")?,
            };
        }
        std::fs::write(from.cluster_file(), serde_json::to_vec_pretty(&mine)?)?;
    }
    Ok(())
}
