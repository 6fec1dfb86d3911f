//! A replicated keyspace of either model, as the thread that owns it drives it.

use crate::cluster::LogWork;
use crate::cluster::config::{ClusterFile, ClusterKeyspace};
use crate::cluster::nodes::{Context, Nodes, Turn};
use crate::cluster::placement;
use crate::journal::Journal;
use branch::site;
use causal::baselines::{Blocking, Cure, HybridCure, Uncoordinated};
use causal::stable::{self, Times, Waits};
use causal::{paris, wren};
use protocol::{Durable, Gate, Now, Request};
use replication::copies::{self, Member};
use std::collections::BTreeMap;
use strict::ir::Status;
use strict::{locking, qwstore, tapir};
use types::{
    Address, Error, Instant, KeyspaceId, NodeId, PartitionId, RegionId, RequestId, Slot, Timestamp, WallTime,
};

/// See the module. One variant per protocol: the enum dispatches and does nothing else.
pub(crate) enum ReplicatedKeyspace {
    Strict(Nodes<tapir::Node>),
    Locking(Nodes<locking::Node>),
    /// A baseline without transactions.
    QwStore(Nodes<qwstore::Node>),
    Causal(Nodes<wren::Node>),
    /// Causal, with several copies of each partition in a region.
    Copied(Nodes<copies::Node<wren::Node>>),
    /// Causal, with partitions in some of the regions only.
    Partial(Nodes<paris::Node>),
    /// Both.
    PartialCopied(Nodes<copies::Node<paris::Node>>),
    /// Causal, with the baselines of the two.
    Cure(Nodes<stable::Node<Cure>>),
    HybridCure(Nodes<stable::Node<HybridCure>>),
    Blocking(Nodes<stable::Node<Blocking>>),
    Uncoordinated(Nodes<stable::Node<Uncoordinated>>),
    Branch(Nodes<branch::Instance>),
    /// There is nothing of it any more; only its number is taken.
    Dropped,
}

/// The processes of a configuration, for people.
pub(crate) fn processes(configuration: &strict::ir::Configuration) -> String {
    let processes: Vec<String> =
        configuration.members.iter().map(|member| member.process.0.to_string()).collect();
    processes.join(",")
}

/// What the replicas of a keyspace keep for others; it shrinks as these take part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// Strict: the epochs of the partitions that have a replica here.
    pub(crate) epochs: Vec<(u16, u32)>,
    /// Strict: transactions whose outcome another replica may still ask for.
    pub(crate) recorded_groups: usize,
    /// Strict with locks: transactions of this process that committed with another one of it.
    pub(crate) combined: Option<u64>,
    /// Causal: bytes of transactions that some region may lack, in memory.
    pub(crate) queued_bytes: usize,
    /// Causal: and in the spool.
    pub(crate) spilled_bytes: u64,
    /// Causal: how often a partition here began to take its peers' state in this life.
    pub(crate) transfers: Option<u64>,
    /// Causal: writes that were lost to concurrent ones, and are listed.
    pub(crate) conflicts: usize,
    /// Causal: and those that were dropped from the list because it was full.
    pub(crate) conflicts_dropped: u64,
    /// Strict: how often transactions met at replicas here.
    pub(crate) meetings: strict::Meetings,
}

impl Backlog {
    fn of<'n, S: Times>(partitions: impl Iterator<Item = &'n stable::Partition<S>>) -> Backlog {
        let none = Backlog { transfers: Some(0), ..Backlog::default() };
        partitions.fold(none, |backlog, partition| {
            let (listed, dropped) = partition.listed_conflicts();
            Backlog {
                queued_bytes: backlog.queued_bytes + partition.queued_bytes(),
                spilled_bytes: backlog.spilled_bytes + partition.spilled_bytes(),
                transfers: backlog.transfers.map(|transfers| transfers + partition.transfers()),
                conflicts: backlog.conflicts + listed,
                conflicts_dropped: backlog.conflicts_dropped + dropped,
                ..backlog
            }
        })
    }
}

/// How old is what this process knows of a causal keyspace, in milliseconds by its wall clock, and what reads waited.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lag {
    /// The newest snapshot that its clients read: what other regions wrote since is not in it.
    pub(crate) snapshot_ms: u64,
    /// By region: what has arrived here of its partitions, the one most behind.
    pub(crate) regions: BTreeMap<String, u64>,
    /// By region: how many bytes this process has queued for its processes since it started.
    pub(crate) sent: BTreeMap<String, u64>,
    /// How much reads waited here for their snapshots, in protocols where they do.
    pub(crate) waits: Waits,
}

impl Lag {
    fn of<'n, S: Times>(nodes: impl Iterator<Item = &'n stable::Node<S>> + Clone, wall: WallTime) -> Lag {
        let age = |at: Timestamp| wall.0.saturating_sub(at.wall().0) / 1000;
        let waits = nodes.clone().filter_map(stable::Node::as_partition).map(stable::Partition::waits);
        let waits = waits.fold(Waits::default(), |all, one| Waits {
            reads: all.reads + one.reads,
            waited: all.waited + one.waited,
            micros: all.micros + one.micros,
        });
        let mut lag = Lag { waits, ..Lag::default() };
        for coordinator in nodes.clone().filter_map(stable::Node::as_coordinator) {
            lag.snapshot_ms = age(coordinator.stable().readable().whole());
        }
        let partitions = nodes.filter_map(stable::Node::as_partition);
        for (region, at) in partitions.flat_map(stable::Partition::received_of_regions) {
            let behind = lag.regions.entry(region.to_owned()).or_default();
            *behind = age(at).max(*behind);
        }
        lag
    }
}

macro_rules! each {
    ($keyspace:expr, $nodes:ident => $call:expr, $dropped:expr) => {
        match $keyspace {
            ReplicatedKeyspace::Strict($nodes) => $call,
            ReplicatedKeyspace::Locking($nodes) => $call,
            ReplicatedKeyspace::QwStore($nodes) => $call,
            ReplicatedKeyspace::Causal($nodes) => $call,
            ReplicatedKeyspace::Copied($nodes) => $call,
            ReplicatedKeyspace::Partial($nodes) => $call,
            ReplicatedKeyspace::PartialCopied($nodes) => $call,
            ReplicatedKeyspace::Cure($nodes) => $call,
            ReplicatedKeyspace::HybridCure($nodes) => $call,
            ReplicatedKeyspace::Blocking($nodes) => $call,
            ReplicatedKeyspace::Uncoordinated($nodes) => $call,
            ReplicatedKeyspace::Branch($nodes) => $call,
            ReplicatedKeyspace::Dropped => $dropped,
        }
    };
}

/// The same for keyspaces of model causal.
macro_rules! each_causal {
    ($keyspace:expr, $nodes:ident => $call:expr, $other:expr) => {
        match $keyspace {
            ReplicatedKeyspace::Causal($nodes) => $call,
            ReplicatedKeyspace::Partial($nodes) => $call,
            ReplicatedKeyspace::Cure($nodes) => $call,
            ReplicatedKeyspace::HybridCure($nodes) => $call,
            ReplicatedKeyspace::Blocking($nodes) => $call,
            ReplicatedKeyspace::Uncoordinated($nodes) => $call,
            ReplicatedKeyspace::Strict(_)
            | ReplicatedKeyspace::Locking(_)
            | ReplicatedKeyspace::QwStore(_)
            | ReplicatedKeyspace::Copied(_)
            | ReplicatedKeyspace::PartialCopied(_)
            | ReplicatedKeyspace::Branch(_)
            | ReplicatedKeyspace::Dropped => $other,
        }
    };
}

/// The same for those of them whose partitions have copies.
macro_rules! each_copied {
    ($keyspace:expr, $nodes:ident => $call:expr, $other:expr) => {
        match $keyspace {
            ReplicatedKeyspace::Copied($nodes) => $call,
            ReplicatedKeyspace::PartialCopied($nodes) => $call,
            _ => $other,
        }
    };
}

impl ReplicatedKeyspace {
    pub(crate) fn snapshot(&mut self, partition: PartitionId, chunk: &[u8]) -> Result<(), String> {
        each!(self, nodes => nodes.snapshot(partition, chunk), Ok(()))
    }

    pub(crate) fn recover(&mut self, partition: PartitionId, records: &[u8]) -> Result<(), String> {
        each!(self, nodes => nodes.recover(partition, records), Ok(()))
    }

    pub(crate) fn recovered(&mut self, complete: bool, now: Now) {
        each!(self, nodes => nodes.recovered(complete, now), ());
    }

    pub(crate) fn submit(
        &mut self,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        journal: Option<&Journal>,
        turn: &mut Turn<'_>,
    ) {
        each!(self, nodes => nodes.submit(requests, journal, turn), refuse(requests, turn));
    }

    pub(crate) fn receive(&mut self, from: NodeId, to: Slot, packet: &[u8]) {
        each!(self, nodes => nodes.receive(from, to, packet), ());
    }

    pub(crate) fn pump(&mut self, context: &mut Context<'_>, turn: &mut Turn<'_>) {
        each!(self, nodes => nodes.pump(context, turn), ());
    }

    /// True if the instance is here.
    pub(crate) fn hosts(&self, slot: Slot) -> bool {
        each!(self, nodes => nodes.hosts(slot), true)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        each!(self, nodes => nodes.deadline(), None)
    }

    /// What the log has to do for what waits here.
    pub(crate) fn log_work(&self, durable: Durable) -> LogWork {
        each!(self, nodes => nodes.log_work(durable), LogWork::default())
    }

    /// What its replies to clients wait for.
    pub(crate) fn reply_gate(&self) -> Gate {
        each!(self, nodes => nodes.reply_gate(), Gate::OPEN)
    }

    /// True when every replica here knows all it has to.
    pub(crate) fn is_complete(&self) -> bool {
        match self {
            ReplicatedKeyspace::Strict(nodes) => nodes.protocols().all(|node| match node {
                tapir::Node::Replica(replica) => {
                    replica.status() == Status::Normal
                        || (replica.status() == Status::Outside && !replica.is_forgetful())
                }
                tapir::Node::Coordinator(_) => true,
            }),
            ReplicatedKeyspace::Locking(nodes) => nodes.protocols().all(|node| match node {
                locking::Node::Replica(replica) => !replica.is_forgetful(),
                locking::Node::Coordinator(_) => true,
            }),
            // A site that has nothing yet holds what it is asked, and says so after a while.
            _ => each_copied!(
                self,
                nodes => members(nodes).all(|member| !member.is_lacking()),
                each_causal!(self, nodes => is_serving(nodes), true)
            ),
        }
    }

    /// What its replicas here keep for others.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog { meetings: self.meetings(), ..self.kept_for_others() }
    }

    fn kept_for_others(&self) -> Backlog {
        match self {
            ReplicatedKeyspace::Strict(nodes) => {
                let replicas = nodes.protocols().filter_map(|node| match node {
                    tapir::Node::Replica(replica) => Some(replica),
                    tapir::Node::Coordinator(_) => None,
                });
                Backlog {
                    epochs: replicas.clone().map(|r| (r.shard(), r.membership().present.epoch)).collect(),
                    recorded_groups: replicas.map(|replica| replica.recorded()).sum(),
                    ..Backlog::default()
                }
            }
            ReplicatedKeyspace::Locking(nodes) => {
                let combined = |node: &locking::Node| match node {
                    locking::Node::Coordinator(coordinator) => Some(coordinator.combined()),
                    locking::Node::Replica(_) => None,
                };
                Backlog { combined: nodes.protocols().find_map(combined), ..Backlog::default() }
            }
            ReplicatedKeyspace::Branch(nodes) => Backlog {
                queued_bytes: sites(nodes).map(site::Site::queued_bytes).sum(),
                ..Backlog::default()
            },
            _ => each_copied!(
                self,
                nodes => Backlog::of(led(nodes).filter_map(stable::Node::as_partition)),
                each_causal!(self, nodes => Backlog::of(causal_partitions(nodes)), Backlog::default())
            ),
        }
    }

    /// Every replica here, with what it does at present, for people.
    pub(crate) fn state(&self) -> Vec<String> {
        let strict = |node: &tapir::Node| match node {
            tapir::Node::Replica(replica) => Some(format!(
                "{}: {:?} in view {}, epoch {} on {}, {} prepared, {} recorded",
                replica.shard(),
                replica.status(),
                replica.view() & u64::from(u32::MAX),
                replica.membership().present.epoch,
                processes(&replica.membership().present),
                replica.prepared(),
                replica.recorded()
            )),
            tapir::Node::Coordinator(_) => None,
        };
        let led = |node: &locking::Node| match node {
            locking::Node::Replica(replica) => {
                let role = if replica.is_leader() { "leader" } else { "follower" };
                let (shard, term) = (replica.shard(), replica.term());
                Some(format!("{shard}: {role} in term {term}, {} prepared", replica.prepared()))
            }
            locking::Node::Coordinator(_) => None,
        };
        match self {
            ReplicatedKeyspace::Strict(nodes) => nodes.protocols().filter_map(strict).collect(),
            ReplicatedKeyspace::Locking(nodes) => nodes.protocols().filter_map(led).collect(),
            ReplicatedKeyspace::Branch(nodes) => {
                let parts = nodes.protocols().filter_map(branch::Instance::as_part);
                sites(nodes).map(branch_state).chain(parts.map(part_state)).collect()
            }
            _ => each_copied!(
                self,
                nodes => members(nodes).map(copy_state).collect(),
                each_causal!(self, nodes => causal_partitions(nodes).map(causal_state).collect(), Vec::new())
            ),
        }
    }

    /// The partitions that this process keeps.
    pub(crate) fn partitions(&self) -> Vec<u16> {
        each!(self, nodes => nodes.partitions(), Vec::new())
    }

    pub(crate) fn checkpoint(
        &mut self,
        partition: PartitionId,
        cursor: u64,
        chunk: &mut Vec<u8>,
    ) -> Option<u64> {
        each!(self, nodes => nodes.checkpoint(partition, cursor, chunk), None)
    }

    /// How old is what is known here, if the keyspace is causal.
    pub(crate) fn lag(&self, wall: WallTime) -> Option<Lag> {
        each_copied!(
            self,
            nodes => Some(Lag::of(led(nodes), wall)),
            each_causal!(self, nodes => Some(Lag::of(nodes.protocols(), wall)), None)
        )
    }

    /// Tells the replicas here which regions are gone for good. True if that was news.
    pub(crate) fn evict(
        &mut self,
        id: KeyspaceId,
        entry: &ClusterKeyspace,
        file: &ClusterFile,
        now: Now,
    ) -> bool {
        let regions = entry.evicted.iter().filter_map(|region| file.region_of_name(region));
        let regions: Vec<RegionId> = regions.map(RegionId).collect();
        match self {
            _ if regions.is_empty() => false,
            ReplicatedKeyspace::Causal(nodes) => evict(nodes, id, entry, &regions, now),
            ReplicatedKeyspace::Partial(nodes) => evict(nodes, id, entry, &regions, now),
            ReplicatedKeyspace::Copied(nodes) => evict_of_copies(nodes, id, entry, &regions, now),
            _ => false,
        }
    }

    /// Takes over what was altered.
    pub(crate) fn alter(&mut self, entry: &ClusterKeyspace) {
        match self {
            ReplicatedKeyspace::Strict(nodes) => {
                let clocks = placement::clocks(entry);
                nodes.protocols_mut().for_each(|node| node.set_clocks(clocks));
            }
            ReplicatedKeyspace::Branch(nodes) => {
                let options = placement::branching(entry);
                let sites = nodes.protocols_mut().filter_map(branch::Instance::as_site_mut);
                sites.for_each(|site| {
                    site.alter(&options);
                    if site.handler_source() != entry.branching.handler.as_deref() {
                        site.set_handler(placement::handler(entry));
                    }
                });
            }
            _ => {}
        }
    }
}

fn sites(nodes: &Nodes<branch::Instance>) -> impl Iterator<Item = &site::Site> {
    nodes.protocols().filter_map(branch::Instance::as_site)
}

fn branch_state(site: &site::Site) -> String {
    let census = site.keyspace().census();
    let joining = if site.is_joining() { "waits to hear from the other sites; " } else { "" };
    let handler = site.handler_state().map(|handler| format!(", {handler}")).unwrap_or_default();
    let parted = match site.keyspace().is_parted() {
        true => format!(
            " near, {} orders not yet on the disks of record partitions, {} requests waiting for them",
            site.keyspace().pending_orders(),
            site.waiting()
        ),
        false => String::new(),
    };
    format!(
        "site: {joining}{} states, {} heads, {} keys, {} versions{parted}, {} states ({} bytes) queued for other sites, {} of them \
         collected early, {} waiting for a parent, {} ceilings of clients{handler}",
        census.states,
        census.heads,
        census.keys,
        census.versions,
        site.unreceived(),
        site.queued_bytes(),
        census.early,
        site.orphans(),
        census.ceilings
    )
}

fn part_state(part: &branch::Part) -> String {
    format!("records: {} keys, {} versions, up to order {}", part.keys(), part.versions(), part.applied())
}

/// What a client of a dropped keyspace is told.
pub(crate) fn dropped() -> Error {
    Error::refused(
        "the keyspace was dropped with everything in it; choose another with KEYSPACE USE or SELECT",
    )
}

fn refuse(requests: &mut Vec<(RequestId, Request<'_>)>, turn: &mut Turn<'_>) {
    for (id, request) in requests.drain(..) {
        if !matches!(request, Request::Close { .. }) {
            turn.replies.reply(id).error(&dropped());
        }
    }
}

fn causal_partitions<S: Times>(
    nodes: &Nodes<stable::Node<S>>,
) -> impl Iterator<Item = &stable::Partition<S>> {
    nodes.protocols().filter_map(stable::Node::as_partition)
}

/// Tells those that have not heard.
fn evict<S: Times>(
    nodes: &mut Nodes<stable::Node<S>>,
    id: KeyspaceId,
    entry: &ClusterKeyspace,
    regions: &[RegionId],
    now: Now,
) -> bool {
    let late = late_of_evictions(nodes.protocols(), id, entry, regions);
    for (slot, _) in &late {
        nodes.tell(*slot, stable::Message::Evict { regions: regions.to_vec() }, now);
    }
    !late.is_empty()
}

/// Tells those that lead; they are told again until their logs have it.
fn evict_of_copies<S: Times>(
    nodes: &mut Nodes<copies::Node<stable::Node<S>>>,
    id: KeyspaceId,
    entry: &ClusterKeyspace,
    regions: &[RegionId],
    now: Now,
) -> bool {
    let groups = members(nodes).filter(|member| member.is_leader());
    let group_of =
        |member: &Member<stable::Node<S>>| Some((member.protocol().as_partition()?.index(), member.group()));
    let groups: BTreeMap<u16, Address> = groups.filter_map(group_of).collect();
    let late = late_of_evictions(led(nodes), id, entry, regions);
    for (slot, partition) in &late {
        let to = partition.and_then(|index| groups.get(&index).copied());
        nodes.tell_instance(*slot, to, stable::Message::Evict { regions: regions.to_vec() }, now);
    }
    !late.is_empty()
}

/// The instances that have not heard of a lost region, by their slots; a replica with its partition.
fn late_of_evictions<'n, S: Times>(
    nodes: impl Iterator<Item = &'n stable::Node<S>> + Clone,
    id: KeyspaceId,
    entry: &ClusterKeyspace,
    regions: &[RegionId],
) -> Vec<(Slot, Option<u16>)> {
    let knows = |partition: &stable::Partition<S>| {
        let known: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
        partition.is_evicted() || entry.evicted.iter().all(|region| known.contains(&&**region))
    };
    let own = nodes.clone().filter_map(stable::Node::as_coordinator).next();
    // It may be the only one of its region that is up.
    let coordinator = own.filter(|own| regions.contains(&own.region()) && !own.is_evicted());
    let late = nodes.filter_map(stable::Node::as_partition).filter(|partition| !knows(partition));
    let late = late.map(|late| (Slot::replica(id, PartitionId(late.index())), Some(late.index())));
    coordinator.map(|_| (Slot::coordinator(id), None)).into_iter().chain(late).collect()
}

fn is_serving<S: Times>(nodes: &Nodes<stable::Node<S>>) -> bool {
    causal_partitions(nodes).all(stable::Partition::is_serving)
}

fn members<S: Times>(
    nodes: &Nodes<copies::Node<stable::Node<S>>>,
) -> impl Iterator<Item = &Member<stable::Node<S>>> {
    nodes.protocols().filter_map(copies::Node::as_member)
}

/// The instances that serve here: the coordinator, and the partitions whose groups are led here.
fn led<S: Times>(
    nodes: &Nodes<copies::Node<stable::Node<S>>>,
) -> impl Iterator<Item = &stable::Node<S>> + Clone {
    let serves = |node: &&copies::Node<stable::Node<S>>| node.as_member().is_none_or(Member::is_leader);
    nodes.protocols().filter(serves).map(copies::Node::protocol)
}

/// A copy of a partition in words.
fn copy_state<S: Times>(member: &Member<stable::Node<S>>) -> String {
    let Some(partition) = member.protocol().as_partition() else { return String::new() };
    let ((own, all), index) = (member.number(), partition.index());
    let copy = own + 1;
    if member.is_leader() {
        return format!("{}; copy {copy} of {all} leads", causal_state(partition));
    }
    let what = match (member.is_lacking(), member.leader()) {
        (true, _) => "takes the state of another one".to_owned(),
        (false, Some(leader)) => format!("follows copy {}", leader + 1),
        (false, None) => "knows no leader; two of three copies choose one".to_owned(),
    };
    format!("{index}: copy {copy} of {all} {what}")
}

/// A replica of a partition in words.
fn causal_state<S: Times>(partition: &stable::Partition<S>) -> String {
    if !partition.is_serving() || partition.is_evicted() {
        return partition.why_not();
    }
    let conflicts = match partition.listed_conflicts() {
        (0, 0) => String::new(),
        (listed, 0) => format!(", {listed} conflicts listed"),
        (listed, dropped) => format!(", {listed} conflicts listed and {dropped} dropped from the full list"),
    };
    let gone: Vec<&str> = partition.evicted().map(|(region, _)| region).collect();
    format!(
        "{}: serving, {} transactions ({} bytes{}) queued for other regions{conflicts}{}{}",
        partition.index(),
        partition.unreceived(),
        partition.queued_bytes(),
        match partition.spilled_bytes() {
            0 => String::new(),
            spilled => format!(", and {spilled} in the spool"),
        },
        match partition.went_on_without() {
            [] => String::new(),
            silent => format!("; what only {} knew was given up", silent.join(", ")),
        },
        match (gone.as_slice(), partition.is_evicting()) {
            ([], _) => String::new(),
            (gone, true) => format!("; {} being evicted", gone.join(", ")),
            (gone, false) => format!("; {} evicted", gone.join(", ")),
        }
    )
}
