//! What a process shows of replicas with leaders.

use super::options::Options;
use crate::caching;
use crate::locking::{Coordinator, Node, Replica};
use protocol::ContentionStats;
use protocol::eviction::Cache;
use protocol::hosted::{Backlog, Holdings, Hosting, Locked, MaintenanceTask, Nodes, Turn};
use protocol::model::{StoredOptions, read};
use types::HashSeed;

/// See the module.
pub(super) struct LockingHosting {
    seed: HashSeed,
    cache: Option<Cache>,
}

impl LockingHosting {
    /// Of keyspaces whose keys are hashed with `seed`; no cache, until its options say so.
    pub(super) fn new(seed: HashSeed) -> Self {
        LockingHosting { seed, cache: None }
    }
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

fn coordinator<'n>(nodes: &'n Locked<'_, Node>) -> Option<&'n Coordinator> {
    nodes.protocols().find_map(|node| match node {
        Node::Coordinator(coordinator) => Some(&**coordinator),
        Node::Replica(_) => None,
    })
}

impl Hosting for LockingHosting {
    type Protocol = Node;

    const COUNTS_MEETINGS: bool = true;
    const HAS_CHORES: bool = true;

    fn add_maintenance(&self, node: &Node, turn: &mut Turn<'_>, tasks: &mut Vec<MaintenanceTask>) {
        if let Some(replica) = as_replica(node) {
            replica.add_chores(self.cache, turn.now.wall.as_millis(), turn.random, tasks);
        }
    }

    fn seed(&self) -> HashSeed {
        self.seed
    }

    fn holdings(&self, node: &Node) -> Holdings {
        as_replica(node).map(|replica| replica.holdings(self.cache)).unwrap_or_default()
    }

    fn configure(
        &mut self,
        nodes: &mut Nodes<Node>,
        options: &StoredOptions,
        _: &mut Turn<'_>,
    ) -> Result<bool, String> {
        // Models of the laboratory store more, and have no caches.
        self.cache = read::<Options>(options).ok().and_then(|options| options.cache());
        let tracked = self.cache.and_then(|cache| caching::tracked(cache.policy));
        for node in nodes.lock().protocols_mut() {
            if let Node::Replica(replica) = node {
                replica.track(tracked);
            }
        }
        Ok(false)
    }

    fn is_complete(&self, nodes: &Locked<'_, Node>) -> bool {
        replicas(nodes).all(|replica| !replica.is_forgetful())
    }

    fn backlog(&self, nodes: &Locked<'_, Node>) -> Backlog {
        Backlog {
            combined: coordinator(nodes).map(|coordinator| coordinator.combined()),
            ..Backlog::default()
        }
    }

    fn state(&self, nodes: &Locked<'_, Node>) -> Vec<String> {
        let state = |replica: &Replica| {
            let role = if replica.is_leader() { "leader" } else { "follower" };
            let (shard, term) = (replica.shard(), replica.term());
            format!("{shard}: {role} in term {term}, {} prepared", replica.prepared())
        };
        replicas(nodes).map(state).collect()
    }

    fn leader(&self, nodes: &Locked<'_, Node>, partition: u16) -> Option<u16> {
        coordinator(nodes)?.leader(partition).map(|leader| leader.process.0)
    }

    fn contention<'n>(&self, node: &'n Node) -> Option<&'n ContentionStats> {
        as_replica(node).and_then(Replica::contention)
    }

    fn reset_contention(&self, node: &mut Node) {
        if let Node::Replica(replica) = node {
            replica.reset_contention();
        }
    }
}
