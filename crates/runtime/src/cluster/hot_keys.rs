//! `KEYSPACE HOTKEYS`: on which keys transactions are in each other's way, as the replicas here have seen it.

use crate::cluster::keyspace::ReplicatedKeyspace;
use crate::cluster::{Cluster, ClusterModel};
use strict::{Heat, HotKey, Meetings};
use strict::{locking, tapir};
use types::{Error, ReplySink};

impl ReplicatedKeyspace {
    /// What the replicas here have counted: of a keyspace with leaders, those that lead.
    fn heats(&self) -> Vec<&Heat> {
        match self {
            ReplicatedKeyspace::Strict(nodes) => nodes.protocols().filter_map(of_tapir).collect(),
            ReplicatedKeyspace::Locking(nodes) => nodes.protocols().filter_map(of_leader).collect(),
            _ => Vec::new(),
        }
    }

    /// How often transactions met here.
    pub(super) fn meetings(&self) -> Meetings {
        self.heats().into_iter().fold(Meetings::default(), |sum, heat| sum.and(heat.total()))
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

impl Cluster {
    /// At most so many hot keys of a keyspace, the hottest first; they are forgotten then, if that is wanted.
    pub(crate) fn hot_keys(&mut self, name: &[u8], count: usize, reset: bool) -> Result<Vec<HotKey>, Error> {
        let text = String::from_utf8_lossy(name);
        let id = self
            .keyspace_of_name(name)
            .ok_or_else(|| Error::err(format!("no such keyspace '{text}'; KEYSPACE LIST names them")))?;
        if self.entry(id).model != ClusterModel::Strict {
            return Err(Error::err(format!(
                "keyspace '{text}' is not strict: its transactions do not wait for each other; CONFLICTS LIST and BRANCH \
                 STATE tell what they do instead"
            )));
        }
        let keyspace = &mut self.keyspaces[usize::from(id.0)];
        let mut keys: Vec<HotKey> =
            keyspace.heats().into_iter().flat_map(|heat| heat.keys()).cloned().collect();
        keys.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.key.cmp(&b.key)));
        keys.truncate(count);
        if reset {
            keyspace.reset_heat();
        }
        Ok(keys)
    }
}

/// The reply.
pub(crate) fn write_hot_keys(keys: &[HotKey], sink: &mut dyn ReplySink) {
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
