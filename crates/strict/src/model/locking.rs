//! What a process shows of replicas with leaders.

use super::options::Options;
use crate::caching;
use crate::locking::{Coordinator, Node, Replica};
use protocol::ContentionStats;
use protocol::eviction::Cache;
use protocol::hosted::{Backlog, Holdings, Hosting, MaintenanceTask, Nodes, Turn};
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

fn replicas(nodes: &Nodes<Node>) -> impl Iterator<Item = &Replica> {
    nodes.protocols().filter_map(|node| match node {
        Node::Replica(replica) => Some(&**replica),
        Node::Coordinator(_) => None,
    })
}

fn coordinator(nodes: &Nodes<Node>) -> Option<&Coordinator> {
    nodes.protocols().find_map(|node| match node {
        Node::Coordinator(coordinator) => Some(&**coordinator),
        Node::Replica(_) => None,
    })
}

impl Hosting for LockingHosting {
    type Protocol = Node;

    const COUNTS_MEETINGS: bool = true;
    const HAS_CHORES: bool = true;

    fn maintenance(&self, nodes: &Nodes<Node>, turn: &mut Turn<'_>) -> Vec<MaintenanceTask> {
        let (mut maintenance, now_millis) = (Vec::new(), turn.now.wall.as_millis());
        replicas(nodes)
            .for_each(|replica| replica.add_chores(self.cache, now_millis, turn.random, &mut maintenance));
        maintenance
    }

    fn seed(&self) -> HashSeed {
        self.seed
    }

    fn holdings(&self, nodes: &Nodes<Node>) -> Holdings {
        replicas(nodes).map(|replica| replica.holdings(self.cache)).fold(Holdings::default(), Holdings::and)
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
        for node in nodes.protocols_mut() {
            if let Node::Replica(replica) = node {
                replica.track(tracked);
            }
        }
        Ok(false)
    }

    fn is_complete(&self, nodes: &Nodes<Node>) -> bool {
        replicas(nodes).all(|replica| !replica.is_forgetful())
    }

    fn backlog(&self, nodes: &Nodes<Node>) -> Backlog {
        Backlog {
            combined: coordinator(nodes).map(|coordinator| coordinator.combined()),
            ..Backlog::default()
        }
    }

    fn state(&self, nodes: &Nodes<Node>) -> Vec<String> {
        let state = |replica: &Replica| {
            let role = if replica.is_leader() { "leader" } else { "follower" };
            let (shard, term) = (replica.shard(), replica.term());
            format!("{shard}: {role} in term {term}, {} prepared", replica.prepared())
        };
        replicas(nodes).map(state).collect()
    }

    fn leader(&self, nodes: &Nodes<Node>, partition: u16) -> Option<u16> {
        coordinator(nodes)?.leader(partition).map(|leader| leader.process.0)
    }

    fn contention<'n>(&self, node: &'n Node) -> Option<&'n ContentionStats> {
        match node {
            Node::Replica(replica) => replica.contention(),
            Node::Coordinator(_) => None,
        }
    }

    fn reset_contention(&self, node: &mut Node) {
        if let Node::Replica(replica) = node {
            replica.reset_contention();
        }
    }
}
