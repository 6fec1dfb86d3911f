//! A partition of several copies in its region: what `replication::copies` needs of a node.

use super::{Message, Node, Partition};
use replication::copies::Copied;

impl Copied for Node {
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
            Node::Partition(partition) => partition.tell(cursor, chunk),
            Node::Coordinator(_) => None,
        }
    }

    fn hold(&mut self, held: bool) {
        if let Node::Partition(partition) = self {
            partition.lend(held);
        }
    }

    /// Reads see everything that any client of the region has read before; a partition that lost records learns
    /// everything that its peers have heard.
    fn asks_leader(message: &Message) -> bool {
        matches!(message, Message::Get { .. } | Message::HoldingsQuery { .. } | Message::Ask { .. })
    }

    fn is_outdated(&self) -> bool {
        self.as_partition().is_some_and(Partition::is_outdated)
    }
}
