//! What a process is told of partitions that several processes of a region keep, as groups of copies.

use super::hosting::{Evicting, backlog, lag, partition_state};
use super::options::Options;
use super::placement::{groups, topology};
use crate::stable::{self, Message, Node, Times};
use protocol::Durability;
use protocol::hosted::{Backlog, Hosted, HostedNodes, Hosting, Lag, Nodes, Place, Turn};
use protocol::model::StoredOptions;
use replication::copies::{self, Member};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use types::{Address, PartitionId, Slot, WallTime};

/// A copy, or the way to copies elsewhere.
type Copies<S> = copies::Node<Node<S>>;

/// The instances of a keyspace in a process, each partition of a region on several processes.
pub fn host_copies<S: Times>(
    options: &Options,
    set_up: stable::Options,
    place: &Place<'_>,
) -> Box<dyn Hosted> {
    let (topology, groups, life) = (topology(options, place), groups(options, place), place.life);
    let of_group = copies::Options { durability: life.durability, ..copies::Options::default() };
    // What a copy says waits for the group's log, however durable that is at each of them.
    let set_up = stable::Options { durability: Durability::Written, copied: true, ..set_up };
    let at = place.coordinator();
    let coordinator =
        Node::<S>::coordinator(topology.clone(), life.region, life.process, life.incarnation, set_up);
    let guest = Copies::guest(at.at(life.incarnation), coordinator, groups.clone());
    let mut nodes = Nodes::new(place, at, guest);
    for (partition, group) in topology.held(life.region) {
        if groups.members(group).iter().any(|member| member.process == life.process) {
            let at = Address { process: life.process, slot: group.slot };
            let node = Node::partition(topology.clone(), life.region, partition, set_up);
            nodes.host(at, Copies::member(at.at(life.incarnation), node, groups.clone(), of_group));
        }
    }
    Box::new(HostedNodes::new(nodes, CopyHosting::<S> { evicting: Evicting::new(place), of: PhantomData }))
}

struct CopyHosting<S> {
    evicting: Evicting,
    of: PhantomData<fn() -> S>,
}

fn members<S: Times>(nodes: &Nodes<Copies<S>>) -> impl Iterator<Item = &Member<Node<S>>> {
    nodes.protocols().filter_map(copies::Node::as_member)
}

/// The instances that serve here: the coordinator, and the partitions whose groups are led here.
fn led<S: Times>(nodes: &Nodes<Copies<S>>) -> impl Iterator<Item = &Node<S>> + Clone {
    let serves = |node: &&Copies<S>| node.as_member().is_none_or(Member::is_leader);
    nodes.protocols().filter(serves).map(copies::Node::protocol)
}

/// Tells the instance that one of the nodes here speaks for; of a group by the group's address.
fn tell<S: Times>(
    nodes: &mut Nodes<Copies<S>>,
    to: Slot,
    group: Option<Address>,
    message: Message<S>,
    turn: &mut Turn<'_>,
) {
    let Some(from) = nodes.speaker() else { return };
    let address = group.unwrap_or_else(|| from.address());
    nodes.tell(to, Copies::said(from, address, message), turn);
}

impl<S: Times> Hosting for CopyHosting<S> {
    type Protocol = Copies<S>;

    fn is_complete(&self, nodes: &Nodes<Copies<S>>) -> bool {
        members(nodes).all(|member| !member.is_lacking())
    }

    fn backlog(&self, nodes: &Nodes<Copies<S>>) -> Backlog {
        backlog(led(nodes))
    }

    fn lag(&self, nodes: &Nodes<Copies<S>>, wall: WallTime) -> Option<Lag> {
        Some(lag(led(nodes), wall))
    }

    fn state(&self, nodes: &Nodes<Copies<S>>) -> Vec<String> {
        members(nodes).map(copy_state).collect()
    }

    /// Those that lead are told, again and again until their logs have it.
    fn configure(
        &mut self,
        nodes: &mut Nodes<Copies<S>>,
        options: &StoredOptions,
        turn: &mut Turn<'_>,
    ) -> Result<bool, String> {
        let Some(news) = self.evicting.news(led(nodes), options)? else { return Ok(false) };
        let group_of =
            |member: &Member<Node<S>>| Some((member.protocol().as_partition()?.index(), member.group()));
        let led_here = members(nodes).filter(|member| member.is_leader());
        let groups: BTreeMap<u16, Address> = led_here.filter_map(group_of).collect();
        let keyspace = nodes.keyspace();
        if news.coordinator {
            tell(nodes, Slot::coordinator(keyspace), None, news.message(), turn);
        }
        for partition in &news.partitions {
            let slot = Slot::replica(keyspace, PartitionId(*partition));
            tell(nodes, slot, groups.get(partition).copied(), news.message(), turn);
        }
        Ok(true)
    }
}

/// A copy of a partition in words.
fn copy_state<S: Times>(member: &Member<Node<S>>) -> String {
    let Some(partition) = member.protocol().as_partition() else { return String::new() };
    let ((own, all), index) = (member.number(), partition.index());
    let copy = own + 1;
    if member.is_leader() {
        return format!("{}; copy {copy} of {all} leads", partition_state(partition));
    }
    let what = match (member.is_lacking(), member.leader()) {
        (true, _) => "takes the state of another one".to_owned(),
        (false, Some(leader)) => format!("follows copy {}", leader + 1),
        (false, None) => "knows no leader; two of three copies choose one".to_owned(),
    };
    format!("{index}: copy {copy} of {all} {what}")
}
