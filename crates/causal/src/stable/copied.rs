//! A partition of several copies in its region: what `replication::copies` needs of a node.

use super::{Message, Node, Times};
use replication::copies::Copied;

impl<S: Times> Copied for Node<S> {
    fn fresh(&self) -> Self {
        match self {
            Node::Partition(partition) => Node::Partition(Box::new(partition.fresh())),
            Node::Coordinator(coordinator) => Node::Coordinator(Box::new(coordinator.fresh())),
        }
    }

    fn demote(&mut self) {
        if let Node::Partition(partition) = self {
            partition.demote();
        }
    }

    fn piece(&mut self, cursor: u64, chunk: &mut Vec<u8>) -> Option<u64> {
        match self {
            Node::Partition(partition) => partition.piece(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }

    fn hold(&mut self, held: bool) {
        if let Node::Partition(partition) = self {
            partition.lend(held);
        }
    }

    /// What a partition shows by itself is the newest of it in its region (POCC). Snapshots are of stable times, or wait until
    /// all that they show is here.
    fn asks_leader(message: &Self::Message) -> bool {
        matches!(message, Message::SliceReq { fresh: true, .. })
    }

    fn is_outdated(&self) -> bool {
        self.as_partition().is_some_and(super::Partition::is_outdated)
    }
}
