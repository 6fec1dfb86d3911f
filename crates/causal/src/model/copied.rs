//! What configures partitions that several processes of a region hold, as groups of copies.

use super::hosting::{EvictionTracker, HostedNode, NodeFactory, factory};
use super::options::Options;
use super::placement::{groups, topology};
use crate::stable::{self, Times, Topology};
use protocol::Durability;
use protocol::hosted::{Backlog, Holdings, Hosted, HostedNodes, Hosting, Lag, Locked, Nodes, Place, Turn};
use protocol::model::StoredOptions;
use replication::copies::{self, Member};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use types::{Address, PartitionId, Slot, WallTime};

/// The instances of a keyspace in a process, each partition of a region on several processes.
pub fn host_copies<S: Times>(
    options: &Options,
    set_up: stable::Options,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let topology = topology(options, place);
    // What a copy says waits for the group's log, however durable that is at each of them.
    let set_up = stable::Options { durability: Durability::Written, copied: true, ..set_up };
    host_groups(options, &topology, place, factory::<S>(&topology, place, set_up))
}

/// The same, whatever the protocol.
pub(super) fn host_groups<N: HostedNode>(
    options: &Options,
    topology: &Topology,
    place: &Place<'_>,
    factory: NodeFactory<N, impl Fn(u16) -> N>,
) -> Box<dyn Hosted> {
    let (groups, life) = (groups(options, place), place.life);
    let of_group = copies::Options { durability: life.durability, ..copies::Options::default() };
    let at = place.coordinator();
    let group_client =
        copies::Node::group_client(at.at(life.incarnation), factory.coordinator, groups.clone());
    let mut nodes = Nodes::new(place, at, group_client);
    for (partition, group) in topology.held(life.region) {
        if groups.members(group).iter().any(|member| member.process == life.process) {
            let at = Address { process: life.process, slot: group.slot };
            let node = (factory.partition)(partition);
            nodes.host(at, copies::Node::member(at.at(life.incarnation), node, groups.clone(), of_group));
        }
    }
    let hosting = CopyHosting::<N> { tracker: EvictionTracker::new(place), of: PhantomData };
    Box::new(HostedNodes::new(nodes, hosting))
}

struct CopyHosting<N> {
    tracker: EvictionTracker,
    of: PhantomData<fn() -> N>,
}

/// A copy, or the way to copies elsewhere.
type Copies<N> = copies::Node<N>;

fn members<'n, N: HostedNode>(nodes: &'n Locked<'_, Copies<N>>) -> impl Iterator<Item = &'n Member<N>> {
    nodes.protocols().filter_map(copies::Node::as_member)
}

/// The instances that serve here: the coordinator, and the partitions whose groups are led here.
fn led<'n, N: HostedNode>(nodes: &'n Locked<'_, Copies<N>>) -> impl Iterator<Item = &'n N> + Clone {
    let serves = |node: &&Copies<N>| node.as_member().is_none_or(Member::is_leader);
    nodes.protocols().filter(serves).map(copies::Node::protocol)
}

/// Tells the instance that one of the nodes here speaks for; of a group by the group's address.
fn tell<N: HostedNode>(
    nodes: &mut Nodes<Copies<N>>,
    to: Slot,
    group: Option<Address>,
    message: N::Message,
    turn: &mut Turn<'_>,
) {
    let from = nodes.speaker();
    let address = group.unwrap_or_else(|| from.address());
    nodes.tell(to, Copies::said(from, address, message), turn);
}

impl<N: HostedNode> Hosting for CopyHosting<N> {
    type Protocol = Copies<N>;

    fn is_complete(&self, nodes: &Locked<'_, Copies<N>>) -> bool {
        members(nodes).all(|member| !member.is_lacking())
    }

    fn backlog(&self, nodes: &Locked<'_, Copies<N>>) -> Backlog {
        N::backlog(led(nodes))
    }

    fn holdings(&self, node: &Copies<N>) -> Holdings {
        node.protocol().holdings()
    }

    fn lag(&self, nodes: &Locked<'_, Copies<N>>, wall: WallTime) -> Option<Lag> {
        Some(N::lag(led(nodes), wall))
    }

    fn state(&self, nodes: &Locked<'_, Copies<N>>) -> Vec<String> {
        members(nodes).map(copy_state).collect()
    }

    /// The process tells the leading copies, and retries until their logs have it.
    fn configure(
        &mut self,
        nodes: &mut Nodes<Copies<N>>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        let locked = nodes.lock();
        let Some(news) = N::news(&self.tracker, led(&locked), options)? else { return Ok(false) };
        let group_of = |member: &Member<N>| Some((member.protocol().index()?, member.group()));
        let led_here = members(&locked).filter(|member| member.is_leader());
        let groups: BTreeMap<u16, Address> = led_here.filter_map(group_of).collect();
        drop(locked);
        let keyspace = nodes.keyspace();
        if news.coordinator {
            tell(nodes, Slot::coordinator(keyspace), None, news.message.clone(), turn);
        }
        for partition in &news.partitions {
            let slot = Slot::replica(keyspace, PartitionId(*partition));
            tell(nodes, slot, groups.get(partition).copied(), news.message.clone(), turn);
        }
        Ok(true)
    }
}

/// A copy of a partition in words.
fn copy_state<N: HostedNode>(member: &Member<N>) -> String {
    let Some(index) = member.protocol().index() else { return String::new() };
    let (own, all) = member.number();
    let copy = own + 1;
    if member.is_leader() {
        return format!("{}; copy {copy} of {all} leads", member.protocol().state());
    }
    let what = match (member.is_lacking(), member.leader()) {
        (true, _) => "takes the state of another one".to_owned(),
        (false, Some(leader)) => format!("follows copy {}", leader + 1),
        (false, None) => "knows no leader; two of three copies choose one".to_owned(),
    };
    format!("{index}: copy {copy} of {all} {what}")
}
