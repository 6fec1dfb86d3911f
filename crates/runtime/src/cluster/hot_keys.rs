//! What the replicas of this process have counted of transactions that are in each other's way, and how `KEYSPACE HOTKEYS`
//! replies it. [`super::hot_keys_of_all`] asks the other processes.

use crate::cluster::keyspace::ReplicatedKeyspace;
use crate::cluster::nodes::Nodes;
use protocol::Protocol;
use strict::{Heat, HotKey, Meetings, Sketch};
use strict::{locking, tapir};
use types::{PartitionId, ProcessId, ReplySink};

impl ReplicatedKeyspace {
    /// What the replicas here have counted: of a keyspace with leaders, those that lead.
    fn heats(&self) -> Vec<(PartitionId, &Heat)> {
        match self {
            ReplicatedKeyspace::Strict(nodes) => of_partitions(nodes, of_tapir),
            ReplicatedKeyspace::Locking(nodes) => of_partitions(nodes, of_leader),
            _ => Vec::new(),
        }
    }

    /// How often transactions met here.
    pub(super) fn meetings(&self) -> Meetings {
        self.heats().into_iter().fold(Meetings::default(), |sum, (_, heat)| sum.and(heat.total()))
    }

    /// What is counted here, which is forgotten then if that is wanted.
    pub(super) fn sketches(&mut self, reset: bool) -> Vec<Sketch> {
        let sketches = self.heats().into_iter().map(|(partition, heat)| heat.sketch(partition)).collect();
        if reset {
            self.reset_heat();
        }
        sketches
    }

    fn reset_heat(&mut self) {
        match self {
            ReplicatedKeyspace::Strict(nodes) => nodes.protocols_mut().for_each(|node| {
                if let tapir::Node::Replica(replica) = node {
                    replica.reset_heat();
                }
            }),
            ReplicatedKeyspace::Locking(nodes) => nodes.protocols_mut().for_each(|node| {
                if let locking::Node::Replica(replica) = node {
                    replica.reset_heat();
                }
            }),
            _ => {}
        }
    }
}

fn of_partitions<P: Protocol>(
    nodes: &Nodes<P>,
    heat: impl Fn(&P) -> Option<&Heat>,
) -> Vec<(PartitionId, &Heat)> {
    nodes.of_partitions().filter_map(|(partition, node)| Some((partition, heat(node)?))).collect()
}

fn of_tapir(node: &tapir::Node) -> Option<&Heat> {
    match node {
        tapir::Node::Replica(replica) => Some(replica.heat()),
        tapir::Node::Coordinator(_) => None,
    }
}

fn of_leader(node: &locking::Node) -> Option<&Heat> {
    match node {
        locking::Node::Replica(replica) => replica.heat(),
        locking::Node::Coordinator(_) => None,
    }
}

/// The reply: the keys, and the processes that have not answered.
pub(super) fn write_hot_keys(keys: &[HotKey], unanswered: &[ProcessId], sink: &mut dyn ReplySink) {
    sink.map(2);
    sink.bulk(b"keys");
    write_keys(keys, sink);
    sink.bulk(b"unanswered");
    sink.array(unanswered.len());
    unanswered.iter().for_each(|process| sink.integer(i64::from(process.0)));
}

fn write_keys(keys: &[HotKey], sink: &mut dyn ReplySink) {
    sink.array(keys.len());
    for hot in keys {
        sink.map(7);
        sink.bulk(b"key");
        sink.bulk(&hot.key);
        for (name, count) in [("count", hot.count), ("excess", hot.excess)] {
            sink.bulk(name.as_bytes());
            sink.integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
        write_meetings(hot.meetings(), sink);
        sink.bulk(b"pairs");
        sink.array(hot.pairs.len());
        for (pair, meetings) in &hot.pairs {
            sink.map(5);
            sink.bulk(b"wanted");
            sink.bulk(pair.wanted.name().as_bytes());
            sink.bulk(b"met");
            sink.bulk(pair.met.map_or("newer", |mode| mode.name()).as_bytes());
            write_meetings(*meetings, sink);
        }
    }
}

fn write_meetings(meetings: Meetings, sink: &mut dyn ReplySink) {
    let Meetings { waits, conflicts, wounds } = meetings;
    for (name, count) in [("waits", waits), ("conflicts", conflicts), ("wounds", wounds)] {
        sink.bulk(name.as_bytes());
        sink.integer(i64::try_from(count).unwrap_or(i64::MAX));
    }
}
