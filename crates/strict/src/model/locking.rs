//! What a process is told of replicas with leaders.

use crate::locking::{Coordinator, Node, Replica};
use protocol::Heat;
use protocol::hosted::{Backlog, Hosting, Nodes};

/// See the module.
pub(super) struct LockingHosting;

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

    fn heat<'n>(&self, node: &'n Node) -> Option<&'n Heat> {
        match node {
            Node::Replica(replica) => replica.heat(),
            Node::Coordinator(_) => None,
        }
    }

    fn reset_heat(&self, node: &mut Node) {
        if let Node::Replica(replica) = node {
            replica.reset_heat();
        }
    }
}
