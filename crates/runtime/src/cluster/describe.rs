//! What a process of a cluster says about it: a section of INFO, KEYSPACE INFO.

use crate::cluster::Cluster;
use crate::process::Process;
use gateway::KeyspaceRules;
use protocol::hosted::Backlog;
use protocol::model::{Properties, Property};
use types::{KeyspaceId, ReplySink};

/// The lines of INFO's section `cluster`. `cluster_enabled` is about Redis Cluster's way to scatter keys, which no
/// client has to know here. Of keyspaces it tells those that are `visible`.
pub(crate) fn section(process: &Process, visible: &KeyspaceRules) -> String {
    let view = &process.view;
    let options = &view.options;
    let backlogs = view.backlogs.lock();
    let seen = || backlogs.iter().filter(|(name, _)| visible.allows(name.as_bytes()));
    let conflicts: Vec<String> =
        seen().map(|(name, backlog)| format!("{name}={}", backlog.conflicts)).collect();
    let strict: String = seen().filter_map(|(name, backlog)| strict_line(name, backlog)).collect();
    let queues: String = seen().filter_map(|(name, backlog)| queue_line(name, backlog)).collect();
    let region = options.file.process(options.process).map_or("", |process| process.region_name.as_str());
    format!(
        "cluster_enabled:0\r\ncluster_process:{}\r\ncluster_region:{region}\r\ncluster_processes:{}\r\n\
         cluster_regions:{}\r\ncluster_peers_connected:{}\r\ncluster_clock_correction_ms:{}\r\n\
         cluster_conflicts:{}{strict}{queues}",
        options.process,
        options.file.processes.len(),
        options.file.regions(),
        process.peers.connected(),
        view.clock_correction_ms(),
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
    let local = process.locals.of(id);
    let durability = match &local {
        Some(keyspace) => keyspace.durability(),
        None => process.options.replicas_durability(),
    };
    let mut properties: Properties = vec![
        ("name", entry.name.as_str().into()),
        ("model", entry.model.as_str().into()),
        ("durability", durability.as_str().into()),
    ];
    properties.extend(cluster.properties(id));
    properties.push(("partitions", Property::Number(u64::from(cluster.partitions(id)))));
    if let Some(keyspace) = local {
        properties.push(("keys", Property::Number(keyspace.len() as u64)));
        properties.push(("memory_bytes", Property::Number(keyspace.memory() as u64)));
        properties.push(("evicted_keys", Property::Number(keyspace.evicted())));
        let open = keyspace.transactions.lock().len();
        properties.push(("open_transactions", Property::Number(open as u64)));
    } else {
        let hosted = cluster.hostings.hosted_of(id);
        let said = hosted.and_then(|keyspace| keyspace.with(|hosted| (hosted.holdings(), hosted.state())));
        let (held, here) = said.unwrap_or_default();
        properties.push(("keys_here", Property::Number(held.keys as u64)));
        properties.push(("memory_bytes_here", Property::Number(held.memory as u64)));
        properties.push(("evicted_keys", Property::Number(held.evicted)));
        properties.push(("partitions_here", Property::List(here)));
    }
    properties.push(("partition_processes", Property::List(cluster.placement(id))));
    sink.map(properties.len());
    for (name, value) in &properties {
        sink.bulk(name.as_bytes());
        match value {
            Property::Text(text) => sink.bulk(text.as_bytes()),
            Property::Number(number) => sink.integer(i64::try_from(*number).unwrap_or(i64::MAX)),
            Property::List(lines) => {
                sink.array(lines.len());
                lines.iter().for_each(|line| sink.bulk(line.as_bytes()));
            }
        }
    }
}
