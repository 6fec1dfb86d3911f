//! The protocols of `causal`: Wren, PaRiS and their baselines. Two to four regions and one to four partitions, now and then
//! up to six, each replica on a process of its own, with gateways beside replicas and alone. Trees are narrow, so that they are
//! deep. Where transactions may have parts in several
//! regions, each partition is in two regions at least and not always in all of them, so that a region may hold nothing.

use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use baselines::{Blocking, Cure, HybridCure, Uncoordinated};
use causal::stable::{
    KeyEffects, Message, Node, Options, Partition, RegionTopology, Scope, Stamp, Times, Topology,
};
use causal::{paris, pocc, wren};
use checker::{Level, ListedLoss};
use protocol::{Claim, CommitStamp, Conflict, SnapshotClaim, VectorClaim};
use replication::Window;
use std::marker::PhantomData;
use std::time::Duration;
use types::{
    Address, NodeId, PartitionId, ProcessId, RegionId, RegionSet, Rng, SessionId, Slot, Timestamp,
    TransactionId,
};

/// Short, so that horizons rise and what is below them is folded within a run.
const LEASE: Duration = Duration::from_secs(1);

/// In half of the runs a region counts as cut off when a request has waited for so long for what it has not sent.
const DECLARED: Duration = Duration::from_millis(300);

/// Of the state as much goes over at a time there: hardly more than a key.
const SMALL_PIECE: usize = 1;

/// One of so many deployments has more partitions.
const WIDE: u32 = 8;
/// As many more.
const MORE_PARTITIONS: u16 = 3;
/// The most there are.
const MOST_PARTITIONS: u16 = 6;

/// The shape of the trees by which regions find what is stable, and how many partitions there are now and then. It is drawn last,
/// so that nothing else of a shape depends on it.
pub(super) fn with_tree(layout: Layout, more: u16, random: &mut Rng) -> Layout {
    let fan_out = random.u16(1..=3);
    let more = if random.u32(..WIDE) == 0 { more } else { 0 };
    Layout { fan_out, partitions: (layout.partitions + more).min(MOST_PARTITIONS), ..layout }
}

/// The options of an instance in a deployment of this shape.
pub(super) fn with_fan_out(options: Options, layout: Layout) -> Options {
    // A script from before there was a choice says nothing.
    let fan_out = if layout.fan_out == 0 { options.fan_out } else { layout.fan_out };
    Options { fan_out, ..options }
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CausalDeployment<S> {
    options: Options,
    times: PhantomData<S>,
}

/// Wren, in regions that hold everything.
pub type WrenDeployment = CausalDeployment<wren::Snapshot>;
/// PaRiS.
pub type ParisDeployment = CausalDeployment<paris::Universal>;
/// POCC, in regions that hold everything.
pub type PoccDeployment = CausalDeployment<pocc::Snapshot>;
/// Cure, in regions that hold everything.
pub type CureDeployment = CausalDeployment<Cure>;
/// Cure with hybrid clocks.
pub type HybridCureDeployment = CausalDeployment<HybridCure>;
/// Blocking partial replication.
pub type BlockingDeployment = CausalDeployment<Blocking>;
/// Without causal consistency.
pub type UncoordinatedDeployment = CausalDeployment<Uncoordinated>;

/// What histories of a protocol are checked for, and how its claims are to be read.
pub trait Checked: Times {
    /// Its promise.
    const LEVEL: Level;
    /// All regions' snapshots are the same, so the rule for a region's own effects must not apply to any.
    const OF_NO_REGION: bool = false;

    /// Where an effect committed, as a checker wants to know it: whose effects have observed one another in their order.
    fn place(stamp: &Stamp<Self::Depends>) -> RegionId {
        match Self::OF_NO_REGION && !Self::MERGES {
            true => RegionId(0),
            false => RegionId(Self::group(stamp)),
        }
    }
}

impl Checked for wren::Snapshot {
    const LEVEL: Level = Level::TransactionalCausal;
}

impl Checked for paris::Universal {
    const LEVEL: Level = Level::TransactionalCausal;
    const OF_NO_REGION: bool = true;
}

impl Checked for pocc::Snapshot {
    const LEVEL: Level = Level::TransactionalCausal;
}

impl Checked for Cure {
    const LEVEL: Level = Level::TransactionalCausal;
}

impl Checked for HybridCure {
    const LEVEL: Level = Level::TransactionalCausal;
}

impl Checked for Blocking {
    const LEVEL: Level = Level::TransactionalCausal;
}

/// Replicas agree at rest, and no increment is lost.
impl Checked for Uncoordinated {
    const LEVEL: Level = Level::Convergence;
    const OF_NO_REGION: bool = true;
}

impl<S: Times> CausalDeployment<S> {
    /// One whose instances have these options, but for what the simulation decides.
    pub fn new(options: Options) -> Self {
        CausalDeployment { options, times: PhantomData }
    }

    /// A region and a partition for each process with a replica, region by region: a partition that is not everywhere is
    /// in the regions p, p + 1 and so on, as many as it has replicas.
    fn placed(layout: Layout) -> Vec<(u16, u16)> {
        let Layout { regions, partitions, replicas, .. } = layout;
        let holds = |region: u16, partition: u16| {
            !S::UNIVERSAL || (region + regions - partition % regions) % regions < replicas
        };
        let of_region = |region| {
            (0..partitions).filter(move |partition| holds(region, *partition)).map(move |p| (region, p))
        };
        (0..regions).flat_map(of_region).collect()
    }

    pub(super) fn topology(setting: Setting) -> Topology {
        let placed = Self::placed(setting.layout);
        let region = |region: u16| {
            let held = (0u16..).zip(&placed).filter(|(_, (of, _))| *of == region);
            let replica = |(process, (_, partition)): (u16, &(u16, u16))| {
                let slot = Slot::replica(KEYSPACE, PartitionId(*partition));
                (*partition, Address { process: ProcessId(process), slot })
            };
            RegionTopology { name: region.to_string(), partitions: held.map(replica).collect() }
        };
        let regions = (0..setting.layout.regions).map(region).collect();
        Topology { regions, keyspace: KEYSPACE, seed: setting.hash_seed }
    }

    /// Processes with replicas come first; then gateways, one region after the other: where a region may hold nothing,
    /// from the last one on.
    pub(super) fn region_of(layout: Layout, process: ProcessId) -> RegionId {
        let placed = Self::placed(layout);
        let gateway = || (process.0 - placed.len() as u16) % layout.regions;
        RegionId(match placed.get(usize::from(process.0)) {
            Some((region, _)) => *region,
            None if S::UNIVERSAL => layout.regions - 1 - gateway(),
            None => gateway(),
        })
    }

    /// A committed transaction of nobody knows which session, and a part of its effects.
    pub(super) fn outcome(stamp: Stamp<S::Depends>, regions: usize, effects: &[KeyEffects]) -> Claim
    where
        S: Checked,
    {
        let of_key = |key: &KeyEffects| {
            let name = key.key.clone();
            key.effects.iter().map(move |effect| (name.clone(), effect.clone())).collect::<Vec<_>>()
        };
        let (Stamp { at, transaction, depends_on, .. }, region) = (stamp, S::place(&stamp));
        let parts = if S::UNIVERSAL { S::parts(depends_on, stamp.region) } else { RegionSet::default() };
        Claim {
            session: SessionId(0),
            transaction,
            commit: Some(CommitStamp { at, depends_on: S::observed(depends_on), region, parts }),
            snapshot: None,
            effects: effects.iter().flat_map(of_key).collect(),
            vector: VectorClaim::of(Vec::new(), S::depends_by_region(depends_on, regions), S::MERGES),
            thread: None,
            requests: Vec::new(),
            branch: None,
        }
    }
}

/// What coordinators claim, as the checker is to read it.
pub(super) fn in_its_terms<S: Checked>(mut claims: Vec<Claim>) -> Vec<Claim> {
    for claim in claims.iter_mut().filter(|_| S::OF_NO_REGION) {
        if S::LEVEL == Level::Convergence {
            claim.snapshot = None;
        }
        if let Some(commit) = &mut claim.commit {
            let (transaction, region) = (claim.transaction, commit.region);
            commit.region = S::place(&Stamp { transaction, region, ..Stamp::default() });
        }
        if let Some(snapshot) = &mut claim.snapshot {
            *snapshot = SnapshotClaim { region: RegionId(u16::MAX), ..*snapshot };
        }
    }
    claims
}

/// True if a replica knows that a region is gone for good, or that its own is.
pub(super) fn has_heard<S: Times>(partition: &Partition<S>, region: RegionId) -> bool {
    partition.is_evicted() || partition.evicted().any(|(name, _)| name == region.0.to_string())
}

/// A lost write as the checker wants it.
pub(super) fn as_listed(conflict: Conflict) -> ListedLoss {
    ListedLoss {
        key: conflict.key.into(),
        name: conflict.name.into(),
        value: conflict.lost.value.into(),
        instead: conflict.winner.value.into(),
    }
}

/// A few transactions stay in memory, fewer are on their way to a region at a time; in every fourth run the spool is small too.
fn with_small_queues(options: Options, setting: Setting) -> Options {
    let window = Window { items: 16, bytes: 6_000 };
    let spill_bytes = if setting.hash_seed.0.is_multiple_of(4) { 5_000 } else { 1 << 20 };
    Options { queue_bytes: 1_000, spill_bytes, window, piece_bytes: SMALL_PIECE, ..options }
}

/// What a run's setting says of an instance's options.
pub(super) fn set(setting: Setting, options: Options) -> Options {
    let scope = if setting.shared { Scope::Process } else { Scope::Session };
    // Where it is short, cuts last for longer, and optimistic sessions go on without what is missing.
    let is_short = setting.hash_seed.0.is_multiple_of(2);
    let declare_after = if is_short { DECLARED } else { options.declare_after };
    Options { durability: setting.durability, scope, declare_after, ..options }
}

/// How many regions a message may speak of, as a deployment has at most.
const MOST_REGIONS: u16 = 4;

impl<S: Checked> Deployment for CausalDeployment<S> {
    type Protocol = Node<S>;

    fn layout(&self, random: &mut Rng) -> Layout {
        let (most_regions, most_partitions) = if S::UNIVERSAL { (MOST_REGIONS, 4) } else { (3, 3) };
        let regions = random.u16(2..=most_regions);
        let colocated = random.u32(..4) > 0;
        let layout = Layout {
            regions,
            partitions: random.u16(1..=most_partitions),
            replicas: if S::UNIVERSAL { random.u16(2..=regions) } else { 1 },
            one_partition_each: true,
            colocated,
            gateways: if colocated { random.u16(..3) } else { regions },
            ..Layout::default()
        };
        with_tree(layout, MORE_PARTITIONS, random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let placed = Self::placed(layout);
        let host = |process: u16| {
            let stores = placed.get(usize::from(process));
            Host {
                process: ProcessId(process),
                region: Self::region_of(layout, ProcessId(process)),
                partitions: stores.map(|(_, partition)| PartitionId(*partition)).into_iter().collect(),
                gateway: layout.colocated || stores.is_none(),
            }
        };
        (0..placed.len() as u16 + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node<S> {
        let NodeId { process, incarnation, slot } = node;
        let lease = self.options.lease;
        let lease = if S::UNIVERSAL && !S::MERGES { lease } else { lease.min(LEASE) };
        let pipelined = if setting.merged { self.options.pipelined } else { 1 };
        let options = Options { claims: true, pipelined, lease, ..set(setting, self.options) };
        let options = with_fan_out(options, setting.layout);
        let options = if setting.small_queues { with_small_queues(options, setting) } else { options };
        let (topology, region) = (Self::topology(setting), Self::region_of(setting.layout, process));
        match slot.partition {
            Some(partition) => Node::partition(topology, region, partition.0, options),
            None => Node::coordinator(topology, region, process, incarnation, options),
        }
    }

    fn claims(&self, instance: &mut Node<S>) -> Vec<Claim> {
        in_its_terms::<S>(instance.take_claims())
    }

    /// What is replicated has committed, whether its coordinator lived to claim it or not.
    fn claims_of_message(&self, message: &Message<S>) -> Vec<Claim> {
        let Message::Replicate { origin, id, at, depends_on, effects } = message else { return Vec::new() };
        let stamp = Stamp { at: *at, transaction: *id, region: *origin, depends_on: *depends_on };
        vec![Self::outcome(stamp, usize::from(MOST_REGIONS), effects)]
    }

    /// Where no other region is left, nothing is replicated, and a region that was behind may be given it with the state.
    fn decided(&self, instance: &mut Node<S>) -> Vec<Claim> {
        let decided = instance.take_decided().into_iter();
        decided.map(|(stamp, effects)| Self::outcome(stamp, usize::from(MOST_REGIONS), &effects)).collect()
    }

    fn spills(&self) -> bool {
        true
    }

    fn lists_losses(&self) -> bool {
        S::MERGES
    }

    fn is_causal(&self) -> bool {
        true
    }

    fn holds(&self, setting: Setting, region: RegionId, key: &[u8]) -> bool {
        let topology = Self::topology(setting);
        let partition = topology.partition_of(topology.seed.hash(key));
        topology.regions[usize::from(region.0)].partitions.contains_key(&partition)
    }

    fn losses(&self, instance: &Node<S>) -> Option<Vec<ListedLoss>> {
        Some(instance.as_partition()?.conflicts().into_iter().map(as_listed).collect())
    }

    fn undecided(&self, instance: &Node<S>) -> usize {
        match instance {
            Node::Partition(partition) => {
                partition.undecided() + partition.unreceived() + usize::from(partition.is_evicting())
            }
            // A coordinator of an evicted region asks for ever.
            Node::Coordinator(_) if S::OBSERVES => 0,
            Node::Coordinator(coordinator) => coordinator.unsettled(),
        }
    }

    fn evict(&self, region: RegionId, _: &Node<S>) -> Option<Message<S>> {
        S::EVICTS.then(|| Message::Evict { regions: vec![region] })
    }

    fn has_heard(&self, instance: &Node<S>, region: RegionId) -> bool {
        instance.as_partition().is_none_or(|partition| has_heard(partition, region))
    }

    fn gives_up_dependants(&self) -> bool {
        S::OPTIMISTIC
    }

    fn abandoned(&self, instance: &mut Node<S>) -> Vec<TransactionId> {
        instance.take_abandoned()
    }

    fn cut_of(&self, instance: &Node<S>, region: RegionId) -> Option<Timestamp> {
        instance.as_partition()?.cut_of(region)
    }

    fn level(&self) -> Level {
        S::LEVEL
    }

    /// What a clock that is hours ahead has stamped is stable when the slowest clock is there, and a partition refuses sessions
    /// that have seen it until its own is: clocks follow one another within a bound only.
    fn waits_for_clocks(&self) -> bool {
        true
    }

    /// Cure's: reads wait for the partition's clock, and are given up after some seconds.
    fn trusts_clocks(&self) -> bool {
        !S::FOLLOWS
    }

    /// Deadlines compare with clocks that the checker does not know; a lost suffix or disk is not survived yet. Where sessions know
    /// what they depend on, each is a thread of its own. One clock that
    /// leaps is enough to wait for, and where nothing comes to rest there is nothing to say of convergence.
    fn lacks(&self) -> Vec<Feature> {
        use Feature::{
            BlindExpiry, ClockLeaps, EverySecond, Eviction, Expiry, FadingRegions, FieldExpiry, Keyset,
            LostDisks, OneClockLeaps, Reconfiguration, SharedThreads,
        };
        let lacks = [
            (OneClockLeaps, true),
            (Expiry, true),
            (FieldExpiry, true),
            (BlindExpiry, true),
            (LostDisks, true),
            (EverySecond, true),
            (Keyset, true),
            (Reconfiguration, true),
            (ClockLeaps, S::LEVEL == Level::Convergence),
            (Eviction, !S::EVICTS),
            (FadingRegions, !S::EVICTS || !S::UNIVERSAL),
            (SharedThreads, S::OPTIMISTIC),
        ];
        lacks.into_iter().filter_map(|(feature, is_lacked)| is_lacked.then_some(feature)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_partition_is_in_as_many_regions_as_it_has_replicas() {
        let layout = Layout { regions: 3, partitions: 2, replicas: 2, ..Layout::default() };
        assert_eq!(ParisDeployment::placed(layout), [(0, 0), (1, 0), (1, 1), (2, 1)]);
        assert_eq!(WrenDeployment::placed(layout), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]);
        let layout = Layout { regions: 4, partitions: 1, replicas: 2, gateways: 2, ..layout };
        assert_eq!(ParisDeployment::placed(layout), [(0, 0), (1, 0)]);
        let region_of = |process| ParisDeployment::region_of(layout, ProcessId(process)).0;
        assert_eq!(
            (0..4).map(region_of).collect::<Vec<_>>(),
            [0, 1, 3, 2],
            "gateways stand where nothing is held"
        );
    }
}
