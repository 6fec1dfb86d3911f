//! Wren, PaRiS and POCC with three copies of every partition in each of its regions, in different processes, driven by
//! a replicated log. COPS has the same layout.

use super::causal::{
    CausalDeployment, Checked, as_listed, has_heard, in_its_terms, set, with_fan_out, with_tree,
};
use crate::deployment::{Deployment, Host, KEYSPACE, Layout, Setting};
use crate::faults::Feature;
use causal::stable::{self, KeyEffects, RegionTopology, Stamp, Times, Topology};
use causal::{paris, pocc, wren};
use checker::{Level, ListedLoss};
use protocol::{Claim, Packet};
use replication::copies::{self, Groups};
use std::marker::PhantomData;
use std::time::Duration;
use types::{Address, Incarnation, NodeId, PartitionId, ProcessId, RegionId, Rng, Slot, Timestamp};

/// Short, so that horizons rise and what is below them is folded within a run.
const LEASE: Duration = Duration::from_secs(1);
/// How many regions there are at most.
const MOST_REGIONS: u16 = 3;
/// In how many regions a partition is that is not in all of them.
const HOLDERS: u16 = 2;
/// The copies of a partition in a region.
const COPIES: u16 = 3;

type Node<S> = copies::Node<stable::Node<S>>;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub struct CopiesDeployment<S> {
    options: stable::Options,
    copies: copies::Options,
    times: PhantomData<S>,
}

/// Wren, in regions that hold everything.
pub type WrenCopiesDeployment = CopiesDeployment<wren::Snapshot>;
/// PaRiS, with each partition in two regions.
pub type ParisCopiesDeployment = CopiesDeployment<paris::Universal>;
/// POCC, in regions that hold everything.
pub type PoccCopiesDeployment = CopiesDeployment<pocc::Snapshot>;

/// How many processes of a region have copies.
fn storing(layout: Layout) -> u16 {
    COPIES * if layout.one_partition_each { layout.partitions } else { 1 }
}

/// The members of a partition's group in a region: on processes of its own, or on the region's, the next one first.
fn members(layout: Layout, region: u16, partition: u16) -> Vec<Address> {
    let place = |copy: u16| match layout.one_partition_each {
        true => partition * COPIES + copy,
        false => (partition + copy) % COPIES,
    };
    let member = |copy: u16| Address {
        process: ProcessId(region * storing(layout) + place(copy)),
        slot: Slot::replica(KEYSPACE, PartitionId(partition)),
    };
    (0..COPIES).map(member).collect()
}

impl<S: Times> CopiesDeployment<S> {
    /// One whose instances have these options, but for what the simulation decides, and whose groups have those.
    pub fn new(options: stable::Options, copies: copies::Options) -> Self {
        CopiesDeployment { options, copies, times: PhantomData }
    }

    /// The partitions that a region holds.
    fn held(layout: Layout, region: u16) -> impl Iterator<Item = u16> {
        let Layout { regions, partitions, .. } = layout;
        let holds = move |partition: &u16| {
            !S::UNIVERSAL || (region + regions - partition % regions) % regions < HOLDERS
        };
        (0..partitions).filter(holds)
    }

    pub(super) fn groups(layout: Layout) -> Groups {
        let of_region = |region| Self::held(layout, region).map(move |held| members(layout, region, held));
        Groups::new((0..layout.regions).flat_map(of_region))
    }

    pub(super) fn topology(setting: Setting) -> Topology {
        let layout = setting.layout;
        let region = |region: u16| {
            let group = |partition: u16| (partition, members(layout, region, partition)[0]);
            let partitions = Self::held(layout, region).map(group).collect();
            RegionTopology { name: region.to_string(), partitions }
        };
        Topology {
            regions: (0..layout.regions).map(region).collect(),
            keyspace: KEYSPACE,
            seed: setting.hash_seed,
        }
    }
}

/// Processes with copies come first, region by region; then gateways, one region after the other.
pub(super) fn region_of(layout: Layout, process: ProcessId) -> RegionId {
    let all = layout.regions * storing(layout);
    RegionId(match process.0 < all {
        true => process.0 / storing(layout),
        false => (process.0 - all) % layout.regions,
    })
}

impl<S: Checked> Deployment for CopiesDeployment<S> {
    type Protocol = Node<S>;

    fn layout(&self, random: &mut Rng) -> Layout {
        // Three are many processes; but without them nothing is forwarded when one is evicted, and none lacks a partition.
        let most = random.u32(..4) == 0;
        let least = if S::UNIVERSAL { 2 } else { 1 };
        let regions = if most { MOST_REGIONS } else { random.u16(least..MOST_REGIONS) };
        let colocated = random.u32(..4) > 0;
        let partitions = random.u16(1..=if S::UNIVERSAL { 3 } else { 2 });
        let layout = Layout {
            regions,
            partitions,
            replicas: COPIES,
            one_partition_each: random.u32(..3) == 0 && !S::UNIVERSAL,
            colocated,
            gateways: if colocated { random.u16(..2) } else { regions },
            ..Layout::default()
        };
        with_tree(layout, 1, random)
    }

    fn hosts(&self, layout: Layout) -> Vec<Host> {
        let all = layout.regions * storing(layout);
        let host = |process: u16| {
            let region = region_of(layout, ProcessId(process));
            let here = |partition: &u16| {
                members(layout, region.0, *partition).iter().any(|member| member.process.0 == process)
            };
            let partitions = Self::held(layout, region.0).filter(here).map(PartitionId).collect();
            let gateway = layout.colocated || process >= all;
            Host { process: ProcessId(process), region, partitions, gateway }
        };
        (0..all + layout.gateways).map(host).collect()
    }

    fn start(&self, node: NodeId, setting: Setting, _: &mut Rng) -> Node<S> {
        let NodeId { process, incarnation, slot } = node;
        let (topology, region) = (Self::topology(setting), region_of(setting.layout, process));
        let groups = Self::groups(setting.layout);
        let options = stable::Options {
            // What a copy says waits for the group's log, whatever that waits for.
            durability: protocol::Durability::Written,
            claims: true,
            pipelined: if setting.merged { self.options.pipelined } else { 1 },
            lease: LEASE,
            copied: true,
            ..with_fan_out(set(setting, self.options), setting.layout)
        };
        let of_group = copies::Options { durability: setting.durability, ..self.copies };
        match slot.partition {
            Some(partition) => {
                let partition = stable::Node::partition(topology, region, partition.0, options);
                Node::member(node, partition, groups, of_group)
            }
            None => {
                let coordinator = stable::Node::coordinator(topology, region, process, incarnation, options);
                Node::group_client(node, coordinator, groups)
            }
        }
    }

    fn claims(&self, instance: &mut Node<S>) -> Vec<Claim> {
        in_its_terms::<S>(instance.protocol_mut().take_claims())
    }

    /// What a copy has applied is committed for good, unless it leads and waits for its log.
    fn decided(&self, instance: &mut Node<S>) -> Vec<Claim> {
        let claim = |(stamp, effects): (Stamp<S::Depends>, Vec<KeyEffects>)| {
            CausalDeployment::<S>::outcome(stamp, usize::from(MOST_REGIONS), &effects)
        };
        if instance.as_member().is_none_or(|member| member.is_ahead()) {
            return Vec::new();
        }
        instance.protocol_mut().take_decided().into_iter().map(claim).collect()
    }

    fn lists_losses(&self) -> bool {
        S::MERGES
    }

    fn is_causal(&self) -> bool {
        true
    }

    /// The leader's list is the group's.
    fn losses(&self, instance: &Node<S>) -> Option<Vec<ListedLoss>> {
        instance.as_member().filter(|member| member.is_leader())?;
        Some(instance.protocol().as_partition()?.conflicts().into_iter().map(as_listed).collect())
    }

    fn holds(&self, setting: Setting, region: RegionId, key: &[u8]) -> bool {
        let topology = Self::topology(setting);
        let partition = topology.partition_of(topology.seed.hash(key));
        topology.regions[usize::from(region.0)].partitions.contains_key(&partition)
    }

    /// Also what copies that follow have not heard the end of: they keep no more than the leader for long.
    fn undecided(&self, instance: &Node<S>) -> usize {
        let leads = instance.as_member().is_some_and(copies::Member::is_leader);
        match instance.protocol() {
            stable::Node::Partition(partition) => {
                partition.undecided() + partition.unreceived() + usize::from(leads && partition.is_evicting())
            }
            // A coordinator of an evicted region asks for ever.
            stable::Node::Coordinator(_) if S::OBSERVES && !S::OPTIMISTIC => 0,
            stable::Node::Coordinator(coordinator) => coordinator.unsettled(),
        }
    }

    /// To the group, in its own name; only the leader takes it, and the driver repeats it until the log has it.
    fn evict(&self, region: RegionId, to: &Node<S>) -> Option<copies::Message<stable::Node<S>>> {
        let group = to.as_member()?.group();
        let packet = Packet::Datagram(stable::Message::Evict { regions: vec![region] });
        let from = group.at(Incarnation(0));
        Some(copies::Message::Packet { from, to: group, passed_on: true, packet })
    }

    fn has_heard(&self, instance: &Node<S>, region: RegionId) -> bool {
        instance.protocol().as_partition().is_none_or(|partition| has_heard(partition, region))
    }

    fn cut_of(&self, instance: &Node<S>, region: RegionId) -> Option<Timestamp> {
        instance.protocol().as_partition()?.cut_of(region)
    }

    fn level(&self) -> Level {
        S::LEVEL
    }

    fn is_recovering(&self, instance: &Node<S>) -> bool {
        instance.as_member().is_some_and(copies::Member::is_lacking)
    }

    /// As without copies.
    fn waits_for_clocks(&self) -> bool {
        true
    }

    /// Deadlines compare with clocks that the checker does not know. One clock that leaps is enough to wait for.
    fn lacks(&self) -> Vec<Feature> {
        use Feature::{
            BlindExpiry, Eviction, Expiry, FadingRegions, FieldExpiry, Keyset, OneClockLeaps,
            Reconfiguration, SharedThreads,
        };
        const LACKS: &[Feature] = &[
            SharedThreads,
            Eviction,
            Expiry,
            FieldExpiry,
            BlindExpiry,
            OneClockLeaps,
            Keyset,
            Reconfiguration,
            FadingRegions,
        ];
        let offered = match (S::OPTIMISTIC, S::UNIVERSAL) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        LACKS[offered..].to_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partition_has_three_copies_in_each_of_its_regions() {
        let layout =
            Layout { regions: 3, partitions: 3, replicas: COPIES, colocated: true, ..Layout::default() };
        let hosts = ParisCopiesDeployment::default().hosts(layout);
        let held = |host: &Host| host.partitions.iter().map(|partition| partition.0).collect::<Vec<_>>();
        let held: Vec<_> = hosts.iter().map(|host| (host.region.0, held(host))).collect();
        let of = |region, partitions: [u16; 2]| vec![(region, partitions.to_vec()); 3];
        assert_eq!(held, [of(0, [0, 2]), of(1, [0, 1]), of(2, [1, 2])].concat());
        let groups = ParisCopiesDeployment::groups(layout);
        let first = members(layout, 2, 1)[0];
        assert_eq!((first.process, groups.members(first).len()), (ProcessId(7), 3));
        assert!(groups.members(members(layout, 0, 1)[0]).is_empty(), "region 0 does not hold it");
    }
}
