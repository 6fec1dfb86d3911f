//! From the data directory to replicas that take part.
//!
//! A replica may go on where it was only if nothing is missing of what it had relied on (Corrections 67). Nothing is
//! after an end in order; nor with `always`, where what was cut was never acknowledged; nor with `everysec` if the
//! kernel that took the records still runs and nothing was cut. In every other case, if a loss is accepted, and always
//! with `--memory`, it learns from its peers first; until it has, and that is synced, a next start has gaps too. An older
//! copy of a directory is found out by the peers ([`standings`](super::standings)). A directory without a journal belongs
//! to a new cluster if it was so said (`bootstrap`), else to a process that has forgotten everything.
//!
//! Each start is a new incarnation: the wall clock's seconds, but more than the last one recorded, so that a life after
//! a lost directory, an older copy of it, or one in memory never takes an earlier one's name.

use crate::cluster::catalog::Catalog;
use crate::cluster::config::ClusterOptions;
use crate::cluster::environment::unanswered;
use crate::cluster::identity::Identity;
use crate::cluster::peers::Peers;
use crate::cluster::spool::Spools;
use crate::cluster::standings::{Found, Standing, Standings};
use crate::cluster::{Cluster, ClusterView, Gaps, host};
use crate::error::StartError;
use crate::journal::{CLUSTER_RECORDS, Journal};
use crate::metadata::Metadata;
use crate::options::Options;
use crate::process::Process;
use crate::recovery::tell_missing;
use ::journal::{DirectoryId, Log, LogOptions, Piece, RealDisk};
use mio::net::TcpListener;
use protocol::Durability;
use protocol::hosted::{Hosted, Life};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Incarnation, PartitionId, ProcessId, RegionId};

/// Recovers the process `options.cluster` names, which will listen to its peers through `listener`.
pub(crate) fn recover(
    options: Options,
    cluster: ClusterOptions,
    listener: TcpListener,
) -> Result<(Process, Cluster), StartError> {
    let region = region(&options, &cluster)?;
    let me = ProcessId(cluster.process);
    let life = |incarnation| Life {
        process: me,
        region: RegionId(region),
        incarnation,
        durability: options.effective(options.durability),
        accept_loss: options.accept_loss,
        region_queue_bytes: options.region_queue_bytes,
        region_spill_bytes: if options.data.is_some() { options.region_spill_bytes } else { 0 },
    };
    let catalog = Catalog::open(&cluster.file, cluster.models).map_err(StartError::Cluster)?;
    let build = |incarnation| {
        let build = |index| host(&catalog, index, life(incarnation));
        let built: Result<Keyspaces, String> = (0..catalog.keyspaces().len()).map(build).collect();
        built.map_err(StartError::Cluster)
    };
    let Recovered { keyspaces, journal, incarnation, complete, identity, found } = match &options.data {
        Some(directory) => from_disk(&options, &cluster, directory, &build)?,
        None => {
            let incarnation = first_incarnation();
            let keyspaces = build(incarnation)?;
            let (complete, identity, found) = (cluster.bootstrap, None, None);
            Recovered { keyspaces, journal: None, incarnation, complete, identity, found }
        }
    };
    tracing::info!(process = me.0, incarnation = incarnation.0, complete, "recovered");
    let others = cluster.file.processes.iter().filter(|process| process.id != me.0);
    let peers = Peers::new(
        cluster.file.seed,
        listener,
        others.map(|process| (ProcessId(process.id), process.peer_address)),
    );
    let mut state = Cluster {
        file: cluster.file.clone(),
        life: life(incarnation),
        catalog,
        dropped: Vec::new(),
        ahead: Default::default(),
        has_remains: keyspaces.iter().any(Option::is_none),
        keyspaces,
        peers,
        spools: Spools::new(options.data.as_deref()),
        arrived: Default::default(),
        stirred: false,
        checkpoint: None,
        gaps: identity.map(|identity| Gaps { identity, learnt: None }),
        questions: Default::default(),
        standings: Standings::new(found),
    };
    if options.accept_loss && !complete {
        tracing::warn!(
            "this start accepts a loss: replicas of causal keyspaces wait a few seconds for their peers, then go on \
             with what is left; KEYSPACE INFO tells what each one held"
        );
    }
    let view = ClusterView::new(cluster);
    let metadata = Metadata::of_cluster(view.options.file.seed);
    let process = Process::new(options, metadata, incarnation, Vec::new(), journal).in_cluster(view);
    let now = process.now();
    unanswered(now, |turn| {
        state.keyspaces.iter_mut().flatten().for_each(|keyspace| keyspace.recovered(complete, turn));
    });
    Ok((process, state))
}

/// The process's region, if everything fits together.
fn region(options: &Options, cluster: &ClusterOptions) -> Result<u16, StartError> {
    cluster.file.check().map_err(StartError::Cluster)?;
    if options.data.is_some() && options.durability == Durability::Volatile {
        return Err(StartError::Cluster(
            "a process of a cluster with a data directory has durability everysec or always; without one it keeps \
             everything in memory"
                .to_owned(),
        ));
    }
    match cluster.file.process(cluster.process) {
        Some(process) => Ok(process.region),
        None => Err(StartError::Cluster(format!("the cluster's file names no process {}", cluster.process))),
    }
}

/// What is hosted, by the keyspaces' numbers.
type Keyspaces = Vec<Option<Box<dyn Hosted>>>;

/// What a start begins with.
struct Recovered {
    keyspaces: Keyspaces,
    journal: Option<Journal>,
    incarnation: Incarnation,
    complete: bool,
    /// To be saved as complete when it is, if it is not now.
    identity: Option<Identity>,
    found: Option<Found>,
}

fn from_disk(
    options: &Options,
    cluster: &ClusterOptions,
    directory: &Path,
    build: &dyn Fn(Incarnation) -> Result<Keyspaces, StartError>,
) -> Result<Recovered, StartError> {
    let journal_error = |error| StartError::Journal { directory: directory.to_owned(), error };
    let disk = RealDisk::open(directory)
        .map_err(|error| StartError::Data { directory: directory.to_owned(), error })?;
    let disk: Arc<dyn ::journal::Disk> = Arc::new(disk);
    let identity = Identity::present(cluster.file.seed, cluster.process);
    let earlier = identity.earlier(directory)?;
    let last = Log::incarnation_in(Arc::clone(&disk)).map_err(journal_error)?;
    let incarnation = Incarnation(last.0 + 1).max(first_incarnation());
    let mut keyspaces = build(incarnation)?;
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes,
        fresh_id: DirectoryId(fastrand::u128(..)),
        accept_loss: options.accept_loss,
        ..LogOptions::default()
    };
    let (mut log, recovered) =
        Log::open(disk, &log_options, &mut |piece| visit(&mut keyspaces, piece)).map_err(journal_error)?;
    tell_missing(&recovered);
    log.set_incarnation(incarnation)
        .map_err(|error| StartError::Log { directory: directory.to_owned(), error })?;
    let complete = match earlier {
        Some(earlier) if !recovered.created => {
            let same_boot = identity.is_same_boot(&earlier);
            earlier.complete && !options.accept_loss && is_kept(&recovered, options.durability, same_boot)
        }
        _ => recovered.created && cluster.bootstrap,
    };
    let identity = identity.with_complete(complete);
    identity.save(directory).map_err(|error| StartError::Data { directory: directory.to_owned(), error })?;
    let journal = Some(Journal::new(log, recovered.grown));
    let standing = Standing { life: last, synced: recovered.last.0 };
    let (identity, found) = match complete {
        true => (None, Some(Found { directory: directory.to_owned(), identity, standing })),
        false => (Some(identity), None),
    };
    Ok(Recovered { keyspaces, journal, incarnation, complete, identity, found })
}

/// True if the log holds everything that others may have relied on. What was cut although the kernel still runs was
/// damaged, or half written when the process died: with `everysec` it may have been told.
fn is_kept(recovered: &::journal::Recovered, durability: Durability, same_boot: bool) -> bool {
    let whole = recovered.cut.is_none() && same_boot;
    recovered.lost.is_none() && (recovered.clean_shutdown || durability == Durability::Synced || whole)
}

fn first_incarnation() -> Incarnation {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    Incarnation(u32::try_from(seconds).unwrap_or(u32::MAX / 2))
}

/// Hands a recovered piece to the replica it came from.
fn visit(keyspaces: &mut [Option<Box<dyn Hosted>>], piece: Piece<'_>) -> Result<(), String> {
    let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
    let [CLUSTER_RECORDS, k0, k1, p0, p1, content @ ..] = bytes else {
        return Err(
            "a record that is not of a cluster's process; was this the directory of a single one?".to_owned()
        );
    };
    let (keyspace, partition) = (u16::from_le_bytes([*k0, *k1]), PartitionId(u16::from_le_bytes([*p0, *p1])));
    let Some(keyspace) = keyspaces.get_mut(usize::from(keyspace)) else {
        return Err(format!(
            "the log has keyspace {keyspace}, which the list of keyspaces does not name; restore the list from a backup"
        ));
    };
    // What the log still has of a dropped one goes with the next checkpoint.
    let Some(keyspace) = keyspace else { return Ok(()) };
    match piece {
        Piece::Chunk(_) => keyspace.snapshot(partition, content),
        Piece::Record { .. } => keyspace.recover(partition, content),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::journal::{Cut, GroupNumber, Lost, Recovered};

    #[test]
    fn what_was_cut_is_a_gap_unless_it_was_never_acknowledged() {
        let cut = Cut { file: "segment".into(), offset: 9, groups: 1, records: 1, bytes: 90 };
        let whole = Recovered {
            created: false,
            id: DirectoryId(1),
            incarnation: Incarnation(1),
            clean_shutdown: false,
            checkpoint: GroupNumber(0),
            fell_back: false,
            grown: 0,
            last: GroupNumber(3),
            cut: None,
            lost: None,
        };
        let torn = Recovered { cut: Some(cut.clone()), ..whole.clone() };
        let lost = Lost { damage: String::new(), synced: GroupNumber(4), cut };
        let lost = Recovered { lost: Some(lost), clean_shutdown: true, ..whole.clone() };
        let kept = |recovered, durability| [true, false].map(|boot| is_kept(recovered, durability, boot));
        assert_eq!(kept(&whole, Durability::Written), [true, false]);
        assert_eq!(kept(&torn, Durability::Written), [false, false]);
        assert_eq!(kept(&whole, Durability::Synced), [true, true]);
        assert_eq!(kept(&torn, Durability::Synced), [true, true]);
        assert_eq!(kept(&lost, Durability::Synced), [false, false]);
    }
}
