//! Replicas that are alike. Where nothing tells some replicas of a shard apart, two states of the system that differ only in
//! which of them is which are one: what holds in the one holds in the other, and one of them is visited.
//!
//! A state of an instance is opaque here, so it is renamed by letting the same happen to the other instance, with the
//! names changed: a message from one replica to another becomes that from its namesake to the other's. That this is the same
//! state but for the names is not taken for granted: messages and replies must be so.

use crate::model::host::Event;
use crate::model::setup::{Act, ClientRequest, MEMBERS, Setup};
use crate::model::space::Space;
use anabranch_strict::tapir::Message;
use types::NodeId;

/// Which instance takes the place of which.
type Renaming = Vec<usize>;

/// Not renamed yet.
const UNKNOWN: u32 = u32::MAX;

impl Setup {
    /// By shard: the replicas that nothing tells apart. None where views, restarts, routes or quorum reads may.
    fn alike(&self) -> Vec<Vec<usize>> {
        let differ = self.views > 0
            || self.restarts != (0, 0)
            || self.routes.is_some()
            || !self.heard.is_empty()
            || self.options.quorum_reads;
        if differ {
            return Vec::new();
        }
        let reads = |act: &Act| matches!(act, Act::Get | Act::Increment);
        let reads_here = |request: &ClientRequest, shard: usize| {
            let mut acts = request.acts.iter().filter(|(_, act)| reads(act));
            acts.any(|(key, _)| usize::from(self.topology.shard_of(key.as_bytes())) == shard)
        };
        let is_read_from = |shard: usize, member: usize| {
            let mut readers = self.requests.iter().filter(|request| reads_here(request, shard));
            readers.any(|request| usize::from(self.gateways[request.coordinator].near) == member)
        };
        let of_shard = |shard: usize| {
            let members = (0..MEMBERS).filter(|member| !is_read_from(shard, *member));
            let replicas = members.map(|member| shard * MEMBERS + member);
            replicas
                .filter(|replica| !self.backups.contains(replica) && !self.down.contains(replica))
                .collect()
        };
        (0..self.topology.shards.len()).map(of_shard).collect()
    }

    /// Every way to change the names of replicas that are alike, that which changes none first.
    fn renamings(&self) -> Vec<Renaming> {
        let mut all: Vec<Renaming> = vec![(0..self.instances()).collect()];
        for alike in self.alike() {
            let orders = orders(&alike);
            let apply = |renaming: &Renaming, order: &Vec<usize>| {
                let mut renaming = renaming.clone();
                alike.iter().zip(order).for_each(|(one, other)| renaming[*one] = *other);
                renaming
            };
            all = all.iter().flat_map(|known| orders.iter().map(move |order| apply(known, order))).collect();
        }
        all
    }
}

/// Every order of these, their own first.
fn orders(items: &[usize]) -> Vec<Vec<usize>> {
    let Some((first, rest)) = items.split_first() else { return vec![Vec::new()] };
    let mut found = Vec::new();
    for order in orders(rest) {
        for place in 0..=order.len() {
            let mut longer = order.clone();
            longer.insert(place, *first);
            found.push(longer);
        }
    }
    found.sort_unstable();
    found
}

/// The renamings of a setup, and what is known of them.
pub struct Symmetry {
    renamings: Vec<Renaming>,
    /// By renaming and state of an instance: the state that it becomes.
    renamed: Vec<Vec<u32>>,
}

impl Symmetry {
    /// Those of a setup; without `reduced` only the one that changes nothing.
    pub fn new(setup: &Setup, reduced: bool) -> Self {
        let mut renamings = setup.renamings();
        if !reduced {
            renamings.truncate(1);
        }
        Symmetry { renamed: vec![Vec::new(); renamings.len()], renamings }
    }

    /// The least of the states that differ from this one in names only, and how many there are.
    pub fn least(&mut self, space: &mut Space, tuple: &[u32]) -> (Vec<u32>, usize) {
        let mut least = tuple.to_vec();
        let (mut other, mut same) = (vec![0; tuple.len()], 1);
        for index in 1..self.renamings.len() {
            for (instance, local) in tuple.iter().enumerate() {
                other[self.renamings[index][instance]] = self.rename(space, index, *local);
            }
            same += usize::from(other == tuple);
            if other < least {
                least.copy_from_slice(&other);
            }
        }
        (least, self.renamings.len() / same)
    }

    /// The state of an instance under other names.
    fn rename(&mut self, space: &mut Space, index: usize, local: u32) -> u32 {
        let known = &mut self.renamed[index];
        if known.len() <= local as usize {
            known.resize(space.locals.len().max(local as usize + 1), UNKNOWN);
        }
        if known[local as usize] != UNKNOWN {
            return known[local as usize];
        }
        let renaming = self.renamings[index].clone();
        let state = &space.locals[local as usize];
        let (instance, parent, event) = (state.instance, state.parent, state.event.clone());
        let renamed = match parent {
            None => space.start(renaming[instance]),
            Some(parent) => {
                let parent = self.rename(space, index, parent);
                let event = match event {
                    Event::Deliver(message) => Event::Deliver(rename_message(space, &renaming, message)),
                    other => other,
                };
                space.step(parent, &event)
            }
        };
        self.renamed[index][local as usize] = renamed;
        assert_same(space, &renaming, local, renamed);
        renamed
    }
}

/// The same message between namesakes.
fn rename_message(space: &mut Space, renaming: &Renaming, message: u32) -> u32 {
    let sent = &space.messages[message as usize];
    let (from, to, content): (NodeId, usize, Message) = (sent.from, sent.to, sent.message.clone());
    let sender = space.setup.find(from.address()).expect("an instance sent it");
    let from = space.setup.address(renaming[sender]).at(from.incarnation);
    let to = space.setup.address(renaming[to]);
    space.number(from, to, content).expect("its namesake's is in the model too")
}

/// Messages and replies are the same but for the names.
fn assert_same(space: &mut Space, renaming: &Renaming, local: u32, renamed: u32) {
    let (sent, replies) = {
        let state = &space.locals[local as usize];
        (state.sent.clone(), state.replies.clone())
    };
    let mut sent: Vec<u32> =
        sent.into_iter().map(|message| rename_message(space, renaming, message)).collect();
    sent.sort_unstable();
    let other = &space.locals[renamed as usize];
    assert!(sent == other.sent && replies == other.replies, "replicas that are alike are told apart");
}
