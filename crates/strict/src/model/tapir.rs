//! What configures replicas without leaders. An operator moves their partitions to other processes, or lets them go on
//! after a loss (Corrections 83, 84).

use super::options::{Concurrency, OptimisticOptions, Options};
use super::placement::{host_shards, topology};
use crate::Topology;
use crate::caching;
use crate::ir::{self, Configuration, Status};
use crate::tapir::{self, Coordinator, Node, Replica};
use protocol::ContentionStats;
use protocol::hosted::{Backlog, Holdings, Hosting, Life, Locked, MaintenanceTask, Nodes, Place, Turn};
use protocol::model::{ClusterShape, PartitionMove, StoredOptions, read};
use std::collections::BTreeSet;
use types::{Address, Error, ErrorCode, HashSeed, KeyspaceId, PartitionId, ProcessId, Slot};

/// How many undecided transactions a report names.
const NAMED: usize = 20;

/// See the module.
pub(super) struct TapirHosting {
    options: Options,
    cluster: ClusterShape,
    keyspace: KeyspaceId,
    life: Life,
}

/// The coordinator of a process, its replicas, and those that it was to join.
pub(super) fn nodes(
    topology: &Topology,
    options: &Options,
    optimistic: &OptimisticOptions,
    place: &Place<'_>,
) -> Nodes<Node> {
    let life = place.life;
    let set_up = set_up(optimistic, life);
    let coordinator = Node::coordinator(topology.clone(), life.process, life.incarnation, set_up.clone());
    let mut nodes = host_shards(topology, place, coordinator, |shard, index| {
        Node::replica(topology.clone(), shard, index, life.incarnation, set_up.clone())
    });
    for partition in options.joining(life.process.0) {
        nodes.host(place.address(life.process.0, partition), joining(topology, partition, optimistic, life));
    }
    nodes
}

fn set_up(optimistic: &OptimisticOptions, life: Life) -> tapir::Options {
    tapir::Options {
        durability: life.durability,
        near: Some(life.process),
        region: life.region,
        isolation: optimistic.isolation,
        clock_bound: optimistic.clocks().bound,
        skew_wait: optimistic.clocks().wait,
        ..tapir::Options::default()
    }
}

/// A replica that was to join its group.
fn joining(topology: &Topology, partition: u16, optimistic: &OptimisticOptions, life: Life) -> Node {
    let set_up = set_up(optimistic, life);
    Node::replica_at(topology.clone(), partition, life.process, life.incarnation, set_up)
}

/// The processes of a configuration, for people.
fn processes(configuration: &Configuration) -> String {
    let processes: Vec<String> =
        configuration.members.iter().map(|member| member.process.0.to_string()).collect();
    processes.join(",")
}

fn as_replica(node: &Node) -> Option<&Replica> {
    match node {
        Node::Replica(replica) => Some(replica),
        Node::Coordinator(_) => None,
    }
}

fn replicas<'n>(nodes: &'n Locked<'_, Node>) -> impl Iterator<Item = &'n Replica> {
    nodes.protocols().filter_map(as_replica)
}

fn replica_of<'n>(nodes: &'n Locked<'_, Node>, partition: u16) -> Option<&'n Replica> {
    replicas(nodes).find(|replica| replica.shard() == partition)
}

fn coordinator<'n>(nodes: &'n Locked<'_, Node>) -> Option<&'n Coordinator> {
    nodes.protocols().find_map(|node| match node {
        Node::Coordinator(coordinator) => Some(&**coordinator),
        Node::Replica(_) => None,
    })
}

impl TapirHosting {
    pub(super) fn new(options: Options, place: &Place<'_>) -> Self {
        TapirHosting { options, cluster: place.cluster.clone(), keyspace: place.keyspace, life: place.life }
    }

    /// Hosts the replicas that were invited since: they have never sent anything, so they have lost nothing.
    fn join(&self, optimistic: &OptimisticOptions, nodes: &mut Nodes<Node>, turn: &mut Turn<'_>) -> bool {
        let place = Place { cluster: &self.cluster, keyspace: self.keyspace, life: self.life };
        let mut any = false;
        for partition in self.options.joining(self.life.process.0) {
            let at = place.address(self.life.process.0, partition);
            if !nodes.hosts(at.slot) {
                let topology = topology(&self.options, &place);
                any |= nodes.join(at, joining(&topology, partition, optimistic, self.life), turn);
            }
        }
        any
    }
}

impl Hosting for TapirHosting {
    type Protocol = Node;

    const COUNTS_MEETINGS: bool = true;
    const HAS_CHORES: bool = true;

    fn add_maintenance(&self, node: &Node, turn: &mut Turn<'_>, tasks: &mut Vec<MaintenanceTask>) {
        if let Some(replica) = as_replica(node) {
            replica.add_chores(self.options.cache(), turn.now.wall.as_millis(), turn.random, tasks);
        }
    }

    fn seed(&self) -> HashSeed {
        self.cluster.seed
    }

    fn holdings(&self, node: &Node) -> Holdings {
        as_replica(node).map(|replica| replica.holdings(self.options.cache())).unwrap_or_default()
    }

    fn is_complete(&self, nodes: &Locked<'_, Node>) -> bool {
        replicas(nodes).all(|replica| match replica.status() {
            Status::Normal => true,
            status => status == Status::Outside && !replica.is_forgetful(),
        })
    }

    fn backlog(&self, nodes: &Locked<'_, Node>) -> Backlog {
        let epoch = |replica: &Replica| (replica.shard(), replica.membership().present.epoch);
        Backlog {
            epochs: replicas(nodes).map(epoch).collect(),
            recorded_groups: replicas(nodes).map(Replica::recorded).sum(),
            ..Backlog::default()
        }
    }

    fn state(&self, nodes: &Locked<'_, Node>) -> Vec<String> {
        let state = |replica: &Replica| {
            let present = &replica.membership().present;
            format!(
                "{}: {:?} in view {}, epoch {} on {}, {} prepared, {} recorded",
                replica.shard(),
                replica.status(),
                replica.view() & u64::from(u32::MAX),
                present.epoch,
                processes(present),
                replica.prepared(),
                replica.recorded()
            )
        };
        replicas(nodes).map(state).collect()
    }

    fn configure(
        &mut self,
        nodes: &mut Nodes<Node>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        self.options = read(options)?;
        let Concurrency::Optimistic(optimistic) = &self.options.concurrency else { return Ok(false) };
        let tracked = self.options.cache().and_then(|cache| caching::tracked(cache.policy));
        for node in nodes.lock().protocols_mut() {
            node.set_clocks(optimistic.clocks());
            if let Node::Replica(replica) = node {
                replica.track(tracked);
            }
        }
        Ok(self.join(optimistic, nodes, turn))
    }

    fn contention<'n>(&self, node: &'n Node) -> Option<&'n ContentionStats> {
        as_replica(node).map(Replica::contention)
    }

    fn reset_contention(&self, node: &mut Node) {
        if let Node::Replica(replica) = node {
            replica.reset_contention();
        }
    }

    fn present(&self, nodes: &Locked<'_, Node>, partition: u16) -> Option<PartitionMove> {
        let Configuration { epoch, members } = coordinator(nodes)?.configuration(partition);
        let processes = members.iter().map(|member| member.process.0).collect();
        Some(PartitionMove { epoch, processes, joining: BTreeSet::new() })
    }

    fn place(&mut self, nodes: &mut Nodes<Node>, partition: u16, processes: &[u16], turn: &mut Turn<'_>) {
        let processes = processes.iter().map(|process| ProcessId(*process)).collect();
        let message = tapir::Message::Place { shard: partition, processes, accept_loss: false };
        nodes.tell(Slot::coordinator(self.keyspace), message, turn);
    }

    fn accept_loss(
        &mut self,
        nodes: &mut Nodes<Node>,
        partition: u16,
        left: &[u16],
        turn: &mut Turn<'_>,
    ) -> Result<Vec<String>, Error> {
        let me = self.life.process;
        let locked = nodes.lock();
        let replica = remaining(&locked, partition, me)?;
        let Configuration { epoch: before, members } = replica.membership().present.clone();
        are_others(left, me, &members, partition)?;
        let mut report = report(replica, left);
        drop(locked);
        let slot = Slot::replica(self.keyspace, PartitionId(partition));
        let processes_left: Vec<ProcessId> =
            [me].into_iter().chain(left.iter().map(|process| ProcessId(*process))).collect();
        let members = processes_left.iter().map(|process| Address { process: *process, slot }).collect();
        let configuration = Configuration { epoch: before + 1, members };
        let message = ir::Message::Reconfigure { configuration, alone: true };
        nodes.tell(slot, tapir::Message::Ir { message }, turn);
        if !left.is_empty() {
            // Until those that are left have answered.
            let message =
                tapir::Message::Place { shard: partition, processes: processes_left, accept_loss: true };
            nodes.tell(Slot::coordinator(self.keyspace), message, turn);
        }
        if let Some(replica) = replica_of(&nodes.lock(), partition) {
            report.push(outcome(replica, me, before, left)?);
        }
        Ok(report)
    }
}

/// This process's replica, if it may be what remains of its group.
fn remaining<'n>(nodes: &'n Locked<'_, Node>, partition: u16, me: ProcessId) -> Result<&'n Replica, Error> {
    let Some(replica) = replica_of(nodes, partition) else {
        let text = format!("process {me} has no replica of partition {partition}: ask one that has");
        return Err(Error::err(text));
    };
    let members = &replica.membership().present.members;
    if replica.is_forgetful() || members.iter().all(|at| at.process != me) {
        let text = format!(
            "the replica of process {me} has forgotten what it knew, or is not one of the present ones: it cannot be what \
             remains; ask another process"
        );
        return Err(Error::new(ErrorCode::Unavailable, text));
    }
    if replica.status() == Status::Normal && members.len() == 1 {
        return Err(Error::err("the partition has this replica only, and it serves: nothing is lost"));
    }
    Ok(replica)
}

/// What has become of a replica that was to go on in an epoch above the one `before`.
fn outcome(replica: &Replica, me: ProcessId, before: u32, left: &[u16]) -> Result<String, Error> {
    let present = &replica.membership().present;
    if present.epoch > before {
        return Ok(format!(
            "now: epoch {} on process {}, {:?}; KEYSPACE PLACE gives it further replicas",
            present.epoch,
            processes(present),
            replica.status()
        ));
    }
    if left.is_empty() {
        let text = "the replica did not take over; look at KEYSPACE INFO and retry";
        return Err(Error::new(ErrorCode::Unavailable, text));
    }
    Ok(format!(
        "asked: process {me} goes on once the replicas of {left:?} have sent their records; KEYSPACE INFO tells the epoch. Repeat \
         without those that do not answer, or at another process if this one lacks what others have forgotten"
    ))
}

/// Fails unless these are processes, once each, that have a replica of the group besides the one that got the command.
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
fn report(replica: &Replica, left: &[u16]) -> Vec<String> {
    let present = &replica.membership().present;
    let mut lines = vec![
        format!(
            "partition {}: was epoch {} on processes {}, last served here in view {}",
            replica.shard(),
            present.epoch,
            processes(present),
            replica.last_normal() & u64::from(u32::MAX)
        ),
        format!(
            "complete: every transaction born up to {} that committed is here",
            replica.points().base.wall().as_millis()
        ),
        format!(
            "not known: of {} replicas, transactions that committed after that without {}; they are lost here, and \
             their effects on other partitions stay",
            present.members.len(),
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
