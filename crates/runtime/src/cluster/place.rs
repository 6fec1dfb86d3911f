//! Partitions that move to other processes, or go on after a loss, because an operator says so (Corrections 83, 84).

use crate::cluster::Cluster;
use crate::cluster::config::{ClusterConcurrency, ClusterModel, ClusterMove};
use crate::cluster::keyspace::{ReplicatedKeyspace, processes};
use crate::cluster::nodes::Nodes;
use protocol::Now;
use std::collections::BTreeSet;
use strict::ir::{self, Configuration, Status};
use strict::tapir;
use types::{Address, Error, ErrorCode, KeyspaceId, PartitionId, ProcessId, Slot};

/// How many undecided transactions a report names.
const NAMED: usize = 20;

impl Cluster {
    /// `KEYSPACE PLACE`: notes where the partition may be, and lets this process's coordinator see to it that it moves.
    pub(crate) fn place(&mut self, name: &[u8], partition: u16, to: &[u16], now: Now) -> Result<(), Error> {
        let index = self.movable(name, partition, now)?;
        let different: BTreeSet<u16> = to.iter().copied().collect();
        if different.len() != to.len() || to.len().is_multiple_of(2) {
            return Err(Error::err("a partition has 1, 3, 5 ... replicas, each on a process of its own"));
        }
        if let Some(unknown) = to.iter().find(|process| self.file.process(**process).is_none()) {
            return Err(Error::err(format!("the cluster has no process {unknown}")));
        }
        let Some(present) = self.coordinator(index).map(|known| known.configuration(partition)) else {
            return Err(Error::err("this process has no coordinator"));
        };
        let members = present.members.iter().map(|member| member.process.0).collect();
        let joining = different;
        let moved = ClusterMove { epoch: present.epoch, processes: members, joining };
        self.catalog.note_move(index, partition, &moved, &self.file)?;
        self.refresh(now);
        let processes = to.iter().map(|process| ProcessId(*process)).collect();
        if let ReplicatedKeyspace::Strict(nodes) = &mut self.keyspaces[index] {
            let message = tapir::Message::Place { shard: partition, processes, accept_loss: false };
            nodes.tell(Slot::coordinator(KeyspaceId(index as u16)), message, now);
            self.stirred = true;
        }
        Ok(())
    }

    /// `KEYSPACE RECOVER ... ACCEPT-LOSS`: this process's replica becomes the only one, in an epoch above all that the
    /// lost ones may have begun, with what those of the processes `left` have besides. Says what may be lost.
    pub(crate) fn accept_loss(
        &mut self,
        name: &[u8],
        partition: u16,
        left: &[u16],
        now: Now,
    ) -> Result<Vec<String>, Error> {
        let index = self.movable(name, partition, now)?;
        let me = self.life.process;
        let ReplicatedKeyspace::Strict(nodes) = &self.keyspaces[index] else {
            return Err(Error::err("only keyspaces without leaders do this"));
        };
        let Some(replica) = replica_of(nodes, partition) else {
            let text = format!("process {me} has no replica of partition {partition}: ask one that has");
            return Err(Error::err(text));
        };
        if replica.is_forgetful() || replica.membership().present.members.iter().all(|at| at.process != me) {
            let text = format!(
                "the replica of process {me} has forgotten what it knew, or is not one of the present ones: it cannot \
                 be what remains; ask another process"
            );
            return Err(Error::new(ErrorCode::Unavailable, text));
        }
        if replica.status() == Status::Normal && replica.membership().present.members.len() == 1 {
            return Err(Error::err("the partition has this replica only, and it serves: nothing is lost"));
        }
        let Configuration { epoch: before, members } = replica.membership().present.clone();
        are_others(left, me, &members, partition)?;
        let mut report = report(replica, left);
        let slot = Slot::replica(KeyspaceId(index as u16), PartitionId(partition));
        let processes_left: Vec<ProcessId> =
            [me].into_iter().chain(left.iter().map(|process| ProcessId(*process))).collect();
        let members = processes_left.iter().map(|process| Address { process: *process, slot }).collect();
        let configuration = Configuration { epoch: before + 1, members };
        let message = ir::Message::Reconfigure { configuration, alone: true };
        let ReplicatedKeyspace::Strict(nodes) = &mut self.keyspaces[index] else { return Ok(report) };
        nodes.tell(slot, tapir::Message::Ir { message }, now);
        if !left.is_empty() {
            // Until those that are left have answered.
            let message =
                tapir::Message::Place { shard: partition, processes: processes_left, accept_loss: true };
            nodes.tell(Slot::coordinator(KeyspaceId(index as u16)), message, now);
        }
        self.stirred = true;
        let ReplicatedKeyspace::Strict(nodes) = &self.keyspaces[index] else { return Ok(report) };
        if let Some(replica) = replica_of(nodes, partition) {
            let (present, status) = (replica.membership().present.clone(), replica.status());
            if present.epoch == before && !left.is_empty() {
                report.push(format!(
                    "asked: process {me} goes on once those of {left:?} have told what they have; KEYSPACE INFO tells \
                     the epoch. Repeat without those that do not answer, or at another process if this one lacks what \
                     others have forgotten"
                ));
                return Ok(report);
            }
            if present.epoch == before {
                let text = "the replica did not take over; look at KEYSPACE INFO and retry";
                return Err(Error::new(ErrorCode::Unavailable, text));
            }
            report.push(format!(
                "now: epoch {} on process {}, {status:?}; KEYSPACE PLACE gives it further replicas",
                present.epoch,
                processes(&present)
            ));
        }
        Ok(report)
    }

    /// `KEYSPACE EVICT ... ACCEPT-LOSS`: the keyspace goes on without a region, for good (Corrections 36). Durable when
    /// this returns; the other processes know within a tenth of a second.
    pub(crate) fn evict(&mut self, name: &[u8], region: &[u8], now: Now) -> Result<(), Error> {
        self.refresh(now);
        let (name, region) = (String::from_utf8_lossy(name), String::from_utf8_lossy(region));
        let own = self.file.region_name(self.life.region.0);
        let evicted = self.keyspace_of_name(name.as_bytes()).map(|id| &self.entry(id).evicted);
        if own == region || evicted.is_some_and(|evicted| evicted.contains(&own)) {
            let text = format!("this process is in region '{own}': ask one of a region that stays");
            return Err(Error::err(text));
        }
        self.catalog.note_eviction(&name, &region, &self.file)?;
        self.refresh(now);
        Ok(())
    }

    /// The place of a keyspace whose partitions can move.
    fn movable(&mut self, name: &[u8], partition: u16, now: Now) -> Result<usize, Error> {
        self.refresh(now);
        let text = String::from_utf8_lossy(name);
        let Some(id) = self.keyspace_of_name(name) else {
            return Err(Error::err(format!("no keyspace '{text}'; KEYSPACE LIST names them")));
        };
        let entry = &self.catalog.keyspaces()[usize::from(id.0)];
        if entry.model != ClusterModel::Strict || entry.concurrency != ClusterConcurrency::Optimistic {
            return Err(Error::err(format!(
                "keyspace '{text}' stays where it is: only partitions of strict keyspaces without leaders move"
            )));
        }
        if partition >= entry.partitions {
            let last = entry.partitions - 1;
            return Err(Error::err(format!("keyspace '{text}' has the partitions 0 to {last}")));
        }
        Ok(usize::from(id.0))
    }

    fn coordinator(&self, index: usize) -> Option<&tapir::Coordinator> {
        let ReplicatedKeyspace::Strict(nodes) = &self.keyspaces[index] else { return None };
        nodes.protocols().find_map(|node| match node {
            tapir::Node::Coordinator(coordinator) => Some(&**coordinator),
            tapir::Node::Replica(_) => None,
        })
    }
}

fn replica_of(nodes: &Nodes<tapir::Node>, partition: u16) -> Option<&tapir::Replica> {
    nodes.protocols().find_map(|node| match node {
        tapir::Node::Replica(replica) if replica.shard() == partition => Some(&**replica),
        _ => None,
    })
}

/// Fails unless these are processes, once each, that have a replica of the group beside the asked one.
fn are_others(left: &[u16], me: ProcessId, members: &[Address], partition: u16) -> Result<(), Error> {
    let different: BTreeSet<u16> = left.iter().copied().collect();
    let known = |process: &u16| *process != me.0 && members.iter().any(|member| member.process.0 == *process);
    if different.len() == left.len() && left.iter().all(known) {
        return Ok(());
    }
    Err(Error::err(format!(
        "WITH names processes, once each, that have a replica of partition {partition} beside this one"
    )))
}

/// What a replica that goes on with what others have knows, and does not know, of what the rest had.
fn report(replica: &tapir::Replica, left: &[u16]) -> Vec<String> {
    let Configuration { epoch, members } = &replica.membership().present;
    let others = processes(&replica.membership().present);
    let points = replica.points();
    let mut lines = vec![
        format!(
            "partition {}: was epoch {epoch} on processes {others}, last served here in view {}",
            replica.shard(),
            replica.last_normal() & u64::from(u32::MAX)
        ),
        format!(
            "complete: every transaction born up to {} that committed is here",
            points.base.wall().as_millis()
        ),
        format!(
            "not known: of {} replicas, transactions that committed after that without {}; they are lost here, and \
             their effects on other partitions stay",
            members.len(),
            if left.is_empty() { "this one".to_owned() } else { format!("this one and those of {left:?}") }
        ),
    ];
    if !left.is_empty() {
        lines.push(format!(
            "not known: whether those of {left:?} knew of a move; KEYSPACE INFO there says 'Sealed' if one was under way"
        ));
    }
    if replica.membership().next.is_some() {
        lines.push(
            "not known: whether the move that was under way had ended; if it had, what was written since"
                .into(),
        );
    }
    let undecided: Vec<String> = replica
        .undecided()
        .map(|(id, held)| match held {
            true => format!("undecided, settled with the other partitions: {id}"),
            false => format!("undecided, never accepted here: {id}"),
        })
        .collect();
    lines.push(format!("undecided: {}", undecided.len()));
    lines.extend(undecided.into_iter().take(NAMED));
    lines
}
