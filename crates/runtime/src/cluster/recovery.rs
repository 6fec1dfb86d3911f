//! From the data directory to replicas that take part.
//!
//! A replica may go on where it was only if nothing is missing of what it had relied on (Corrections 67). Nothing is
//! after an end in order; nor with `always`, where what was cut was never acknowledged; nor with `everysec` if the
//! kernel that took the records still runs and nothing was cut. In every other case, if a loss is accepted, and always
//! with `--memory`, it learns from its peers first; until it has, and that is synced, a next start has gaps too. An older
//! copy of a directory is found out by the peers ([`log_positions`](super::log_positions)). A directory without a journal belongs
//! to a new cluster if it was so said (`bootstrap`), else to a process that has forgotten everything.
//!
//! Each start is a new incarnation: the wall clock's seconds, but more than the last one recorded, so that a life after
//! a lost directory, an older copy of it, or one in memory never takes an earlier one's name.

use crate::cluster::catalog::Catalog;
use crate::cluster::clocks::Clocks;
use crate::cluster::config::{ClusterFile, ClusterOptions};
use crate::cluster::hosting::{Hostings, KeyspaceHosting};
use crate::cluster::identity::Identity;
use crate::cluster::keyspaces::begin;
use crate::cluster::log_positions::{Found, LogPosition, LogPositions};
use crate::cluster::peers::Peers;
use crate::cluster::spool;
use crate::cluster::{Cluster, ClusterView, Gaps, single_process};
use crate::error::StartError;
use crate::journal::{CLUSTER_RECORDS, Journal, SOLO_RECORDS};
use crate::keyspace::Locals;
use crate::options::Options;
use crate::process::Process;
use crate::solo;
use crate::users::SharedUsers;
use ::journal::{DirectoryId, Disk, Log, LogOptions, Piece, RealDisk};
use mio::net::TcpListener;
use protocol::Durability;
use protocol::hosted::Life;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use types::{Incarnation, KeyspaceId, PartitionId, ProcessId, RegionId};

/// Recovers the process that `options` tell of, which will listen to its peers, if it has any, through `listener`.
pub(crate) fn recover(options: Options, listener: Option<TcpListener>) -> Result<Process, StartError> {
    let users = SharedUsers::new(options.password.as_deref(), options.acl_file.clone())?;
    let disk = options.data.as_deref().map(OpenDisk::open).transpose()?;
    let last = disk.as_ref().map_or(Incarnation(0), |disk| disk.last);
    let incarnation = Incarnation(last.0 + 1).max(first_incarnation());
    let (cluster, catalog) = match options.cluster.clone() {
        Some(cluster) => {
            let catalog = Catalog::open(&cluster.file, options.models).map_err(StartError::Keyspaces)?;
            (cluster, catalog)
        }
        None => single_process::open(&options, last == Incarnation(0))?,
    };
    let life = life(&options, &cluster, incarnation)?;
    let seed = catalog.cluster().seed;
    // Every process of the cluster has the same, after a restart too: a scan of a collection goes on with its cursor
    // wherever it is read. Where a process starts several servers, the first one's seed holds for all.
    datatypes::collections::seed_collections(seed.0);
    let locals =
        Arc::new(Locals::new(life.process, incarnation, seed, options.partition_count(), disk.is_none()));
    let (indices, data) = (0..catalog.keyspaces().len(), options.data.as_deref());
    data.into_iter().for_each(spool::remove_earlier);
    let keyspaces: Result<Vec<KeyspaceHosting>, String> =
        indices.map(|index| begin(&catalog, index, life, &locals, data)).collect();
    let keyspaces = keyspaces.map_err(StartError::Keyspaces)?;
    let mut has_remains = false;
    let recovered = match disk {
        Some(disk) => disk.recover(&options, &cluster, incarnation, &mut |piece| {
            visit(&keyspaces, &locals, piece, &mut has_remains)
        })?,
        None => Recovered { complete: cluster.bootstrap, whole: true, ..Recovered::default() },
    };
    let Recovered { journal, complete, whole, identity, found } = recovered;
    tracing::info!(process = life.process.0, incarnation = incarnation.0, complete, "recovered");
    if options.accept_loss && !complete {
        tracing::warn!(
            "this start accepts a loss: replicas of causal keyspaces wait a few seconds for their peers, then go on \
             with what is left; KEYSPACE INFO tells what each one held"
        );
    }
    let peers = peers(&cluster.file, life, listener, &catalog);
    solo::recovered(&locals, whole);
    let state = Cluster {
        file: cluster.file.clone(),
        life,
        directory: options.data.clone(),
        catalog,
        locals,
        view: Arc::new(ClusterView::new(cluster)),
        durability: options.durability,
        ahead: Default::default(),
        hostings: Arc::new(Hostings::new(keyspaces)),
        peers: Arc::new(peers),
        gaps: identity.map(|identity| Gaps { identity, learnt: None }),
        questions: Default::default(),
        log_positions: LogPositions::new(found),
        clocks: Clocks::default(),
        addresses: Default::default(),
    };
    let process = Process::new(options, users, journal, state);
    let cluster = process.cluster.lock();
    for keyspace in cluster.hosted() {
        keyspace.change(&process.view, |hosted, turn| hosted.recovered(complete, turn));
    }
    cluster.view.note(cluster.is_active());
    cluster.view.note_functions(cluster.catalog.functions());
    if has_remains {
        // The next checkpoint has nothing of what was dropped.
        cluster.view.want_checkpoint();
    }
    drop(cluster);
    Ok(process)
}

/// The connections to the other processes, none of which is made yet.
fn peers(file: &ClusterFile, life: Life, listener: Option<TcpListener>, catalog: &Catalog) -> Peers {
    let others = file.processes.iter().filter(|process| process.id != life.process.0);
    let others = others.map(|process| (ProcessId(process.id), process.peer_address));
    let own = (life.process, life.incarnation);
    Peers::new(file.seed, own, listener, others, Arc::clone(catalog.nameable_types()))
}

/// The process in this life, if everything fits together.
fn life(options: &Options, cluster: &ClusterOptions, incarnation: Incarnation) -> Result<Life, StartError> {
    cluster.file.check().map_err(StartError::Cluster)?;
    if options.cluster.is_some() && options.data.is_some() && options.durability == Durability::Volatile {
        return Err(StartError::Cluster(
            "a process of a cluster with a data directory has durability everysec or always; without one it keeps \
             everything in memory"
                .to_owned(),
        ));
    }
    let Some(process) = cluster.file.process(cluster.process) else {
        return Err(StartError::Cluster(format!("the cluster's file names no process {}", cluster.process)));
    };
    Ok(Life {
        process: ProcessId(process.id),
        region: RegionId(process.region),
        incarnation,
        durability: options.replicas_durability(),
        accept_loss: options.accept_loss,
        region_queue_bytes: options.region_queue_bytes,
        region_spill_bytes: if options.data.is_some() { options.region_spill_bytes } else { 0 },
    })
}

/// What a start begins with.
#[derive(Default)]
struct Recovered {
    journal: Option<Journal>,
    /// Nothing may be missing that other processes had relied on.
    complete: bool,
    /// Nothing acknowledged to clients may be missing.
    whole: bool,
    /// To be saved as complete when it is, if it is not now.
    identity: Option<Identity>,
    found: Option<Found>,
}

/// The data directory, which is this process's while it lives.
struct OpenDisk<'d> {
    directory: &'d Path,
    disk: Arc<dyn Disk>,
    /// The last life that the log has seen; 0 if there is no log.
    last: Incarnation,
}

impl<'d> OpenDisk<'d> {
    fn open(directory: &'d Path) -> Result<Self, StartError> {
        let disk = RealDisk::open(directory)
            .map_err(|error| StartError::Data { directory: directory.to_owned(), error })?;
        let disk: Arc<dyn Disk> = Arc::new(disk);
        let last = Log::incarnation_in(Arc::clone(&disk))
            .map_err(|error| StartError::Journal { directory: directory.to_owned(), error })?;
        Ok(OpenDisk { directory, disk, last })
    }

    /// Opens the log, and hands everything in it to `visit`.
    fn recover(
        self,
        options: &Options,
        cluster: &ClusterOptions,
        incarnation: Incarnation,
        visit: &mut dyn FnMut(Piece<'_>) -> Result<(), String>,
    ) -> Result<Recovered, StartError> {
        let directory = self.directory;
        let identity = Identity::present(cluster.file.seed, cluster.process);
        let earlier = identity.earlier(directory)?;
        let log_options = LogOptions {
            segment_bytes: options.segment_bytes,
            fresh_id: DirectoryId(fastrand::u128(..)),
            accept_loss: options.accept_loss,
            ..LogOptions::default()
        };
        let (mut log, recovered) = Log::open(self.disk, &log_options, visit)
            .map_err(|error| StartError::Journal { directory: directory.to_owned(), error })?;
        tell_missing(&recovered);
        log.set_incarnation(incarnation)
            .map_err(|error| StartError::Log { directory: directory.to_owned(), error })?;
        let complete = match earlier {
            // Only its own clients have relied on it, and no peer can supply what is missing.
            _ if cluster.file.processes.len() == 1 => true,
            Some(earlier) if !recovered.created => {
                let same_boot = identity.is_same_boot(&earlier);
                earlier.complete
                    && !options.accept_loss
                    && is_intact(&recovered, options.durability, same_boot)
            }
            _ => recovered.created && cluster.bootstrap,
        };
        let identity = identity.with_complete(complete);
        identity
            .save(directory)
            .map_err(|error| StartError::Data { directory: directory.to_owned(), error })?;
        let whole = (recovered.clean_shutdown || recovered.created) && recovered.lost.is_none();
        let journal = Some(Journal::new(log, recovered.grown));
        let position = LogPosition { life: self.last, synced: recovered.last.0 };
        let (identity, found) = match complete {
            true => (None, Some(Found { directory: directory.to_owned(), identity, position })),
            false => (Some(identity), None),
        };
        Ok(Recovered { journal, complete, whole, identity, found })
    }
}

/// Says what recovery did not find, or could not read.
fn tell_missing(recovered: &::journal::Recovered) {
    if let Some(cut) = &recovered.cut {
        tracing::warn!("the log ended in a torn group that is not known to have been synced: {cut}");
    }
    if let Some(lost) = &recovered.lost {
        tracing::error!("a loss is accepted: {lost}");
        eprintln!("anabranch: a loss is accepted: {lost}");
    }
}

/// True if the log holds everything that others may have relied on. What was cut although the kernel still runs was
/// damaged, or half written when the process died: with `everysec` a reply may rest on it.
fn is_intact(recovered: &::journal::Recovered, durability: Durability, same_boot: bool) -> bool {
    let whole = recovered.cut.is_none() && same_boot;
    recovered.lost.is_none() && (recovered.clean_shutdown || durability == Durability::Synced || whole)
}

fn first_incarnation() -> Incarnation {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |since| since.as_secs());
    Incarnation(u32::try_from(seconds).unwrap_or(u32::MAX / 2))
}

/// Hands a recovered piece to what it came from. Notes if that was dropped.
fn visit(
    keyspaces: &[KeyspaceHosting],
    locals: &Locals,
    piece: Piece<'_>,
    has_remains: &mut bool,
) -> Result<(), String> {
    let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
    let [tag @ (SOLO_RECORDS | CLUSTER_RECORDS), k0, k1, content @ ..] = bytes else {
        return Err("a record of an unknown kind; was the data written by a newer program?".to_owned());
    };
    let number = u16::from_le_bytes([*k0, *k1]);
    let Some(keyspace) = keyspaces.get(usize::from(number)) else {
        return Err(format!(
            "a record of keyspace {number}, which is not in the list of keyspaces; is the list older? Restore it from a \
             backup"
        ));
    };
    match (keyspace, *tag) {
        (KeyspaceHosting::Dropped, _) => {
            *has_remains = true;
            Ok(())
        }
        (KeyspaceHosting::Solo, SOLO_RECORDS) => solo::recover(locals, KeyspaceId(number), content),
        (KeyspaceHosting::Hosted(hosted), CLUSTER_RECORDS) => {
            let [p0, p1, content @ ..] = content else { return Err("a record is cut".to_owned()) };
            let partition = PartitionId(u16::from_le_bytes([*p0, *p1]));
            let recovered = hosted.with(|hosted| match piece {
                Piece::Chunk(_) => hosted.snapshot(partition, content),
                Piece::Record { .. } => hosted.recover(partition, content),
            });
            recovered.unwrap_or(Ok(()))
        }
        _ => Err(format!(
            "a record of keyspace {number}, which is kept in another way than the list of keyspaces says; is the list of \
             another directory?"
        )),
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
        let intact = |recovered, durability| [true, false].map(|boot| is_intact(recovered, durability, boot));
        assert_eq!(intact(&whole, Durability::Written), [true, false]);
        assert_eq!(intact(&torn, Durability::Written), [false, false]);
        assert_eq!(intact(&whole, Durability::Synced), [true, true]);
        assert_eq!(intact(&torn, Durability::Synced), [true, true]);
        assert_eq!(intact(&lost, Durability::Synced), [false, false]);
    }
}
