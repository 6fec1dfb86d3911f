//! What a process of a cluster says about it: a section of INFO, KEYSPACE INFO.

use crate::cluster::config::{ClusterConcurrency, ClusterKeyspace, ClusterModel, ClusterProtocol};
use crate::cluster::{Backlog, Cluster, ClusterView, placement};
use crate::keyspace::class_of;
use crate::process::Process;
use std::sync::atomic::Ordering::Relaxed;
use types::{KeyspaceId, ReplySink};

/// The lines of INFO's section `cluster`. `cluster_enabled` is about Redis Cluster's way to scatter keys, which no
/// client has to know here.
pub(crate) fn section(view: Option<&ClusterView>) -> String {
    let Some(view) = view else { return "cluster_enabled:0".to_owned() };
    let options = &view.options;
    let backlogs = view.backlogs.lock();
    let conflicts: Vec<String> =
        backlogs.iter().map(|(name, backlog)| format!("{name}={}", backlog.conflicts)).collect();
    let strict: String = backlogs.iter().filter_map(|(name, backlog)| strict_line(name, backlog)).collect();
    let queues: String = backlogs.iter().filter_map(|(name, backlog)| queue_line(name, backlog)).collect();
    let region = options.file.process(options.process).map_or("", |process| process.region_name.as_str());
    format!(
        "cluster_enabled:0\r\ncluster_process:{}\r\ncluster_region:{region}\r\ncluster_processes:{}\r\n\
         cluster_regions:{}\r\ncluster_peers_connected:{}\r\ncluster_conflicts:{}{strict}{queues}",
        options.process,
        options.file.processes.len(),
        options.file.regions(),
        view.peers_connected.load(Relaxed),
        conflicts.join(","),
    )
}

/// What a strict keyspace's replicas remember for each other, and in which epoch each partition's is; with locks, how many
/// transactions have committed with another one.
fn strict_line(name: &str, backlog: &Backlog) -> Option<String> {
    if let Some(combined) = backlog.combined {
        return Some(format!("\r\nstrict_{name}:combined={combined}"));
    }
    if backlog.epochs.is_empty() {
        return None;
    }
    let epochs = backlog.epochs.iter().map(|(partition, epoch)| format!(",epoch_{partition}={epoch}"));
    Some(format!(
        "\r\nstrict_{name}:recorded_groups={}{}",
        backlog.recorded_groups,
        epochs.collect::<String>()
    ))
}

/// What a causal keyspace's partitions here keep for other regions, and how often one took the state of its peers instead.
fn queue_line(name: &str, backlog: &Backlog) -> Option<String> {
    let Backlog { queued_bytes, spilled_bytes, .. } = backlog;
    let transfers = backlog.transfers?;
    Some(format!(
        "\r\nqueues_{name}:queued_bytes={queued_bytes},spilled_bytes={spilled_bytes},state_transfers={transfers}"
    ))
}

/// `KEYSPACE INFO`. The keyspace exists.
pub(crate) fn describe(process: &Process, cluster: &Cluster, id: KeyspaceId, sink: &mut dyn ReplySink) {
    let entry = cluster.entry(id);
    let here = cluster.keyspaces[usize::from(id.0)].state();
    let durability = class_of(process.options.effective(process.options.durability));
    let pairs: [(&[u8], &[u8]); 3] = [
        (b"name", entry.name.as_bytes()),
        (b"model", entry.model.as_str().as_bytes()),
        (b"durability", durability.as_str().as_bytes()),
    ];
    let placed_in: Vec<String> = match entry.is_partial() {
        true => (0..entry.partitions).map(|partition| placed(cluster, entry, partition)).collect(),
        false => Vec::new(),
    };
    let strict = entry.model == ClusterModel::Strict;
    let optimistic = strict && entry.concurrency == ClusterConcurrency::Optimistic;
    let locking = strict && entry.concurrency == ClusterConcurrency::Locking;
    let branch = entry.model == ClusterModel::Branch;
    let baseline = entry.protocol != ClusterProtocol::Usual;
    sink.map(
        pairs.len()
            + 2
            + usize::from(baseline)
            + usize::from(strict)
            + if optimistic { 3 } else { 0 }
            + if locking { 3 } else { 0 }
            + if branch { 3 } else { 0 }
            + usize::from(!placed_in.is_empty()),
    );
    for (name, value) in pairs {
        sink.bulk(name);
        sink.bulk(value);
    }
    if baseline {
        sink.bulk(b"protocol");
        sink.bulk(entry.protocol.as_str().as_bytes());
    }
    if strict {
        sink.bulk(b"concurrency");
        sink.bulk(entry.concurrency.as_str().as_bytes());
    }
    if optimistic {
        let clocks = placement::clocks(entry);
        sink.bulk(b"isolation");
        sink.bulk(entry.isolation.as_str().as_bytes());
        for (name, duration) in [("clock_bound_ms", clocks.bound), ("skew_wait_ms", clocks.wait)] {
            sink.bulk(name.as_bytes());
            sink.integer(i64::try_from(duration.as_millis()).unwrap_or(i64::MAX));
        }
    }
    if locking {
        let switch = |is_off: bool| if is_off || entry.without_locks { "off" } else { "on" };
        let (phasing, combining) = (switch(entry.without_phases), switch(entry.without_combining));
        for (name, value) in [("locks", entry.locks()), ("phasing", phasing), ("combining", combining)] {
            sink.bulk(name.as_bytes());
            sink.bulk(value.as_bytes());
        }
    }
    if branch {
        sink.bulk(b"collect");
        sink.bulk(if entry.branching.collects_early { b"optimistic" } else { b"pessimistic" });
        sink.bulk(b"keep");
        sink.integer(i64::try_from(entry.branching.keep).unwrap_or(i64::MAX));
        sink.bulk(b"keep_for_ms");
        sink.integer(i64::try_from(entry.branching.keep_for_ms.unwrap_or(0)).unwrap_or(i64::MAX));
    }
    sink.bulk(b"partitions");
    sink.integer(i64::from(entry.partitions));
    sink.bulk(b"partitions_here");
    sink.array(here.len());
    here.iter().for_each(|partition| sink.bulk(partition.as_bytes()));
    if !placed_in.is_empty() {
        sink.bulk(b"placement");
        sink.array(placed_in.len());
        placed_in.iter().for_each(|partition| sink.bulk(partition.as_bytes()));
    }
}

/// A partition and the regions that hold it.
fn placed(cluster: &Cluster, entry: &ClusterKeyspace, partition: u16) -> String {
    let holders = entry.holders(&cluster.file, partition);
    let names: Vec<String> = holders.into_iter().map(|region| cluster.file.region_name(region)).collect();
    format!("{partition}: {}", names.join(", "))
}
