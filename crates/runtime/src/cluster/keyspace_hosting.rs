//! How a process takes part in each keyspace of the cluster.

use protocol::hosted::Hosted;

/// See the module.
pub(super) enum KeyspaceHosting {
    /// Its coordinator, and the replicas that are placed here.
    Hosted(Box<dyn Hosted>),
    /// All of it, among the process's [`Locals`](crate::keyspace::Locals).
    Solo,
    /// Nothing: the process with this number keeps it by itself.
    Elsewhere(u16),
    /// Nothing: it was dropped.
    Dropped,
}

impl KeyspaceHosting {
    pub(super) fn hosted(&self) -> Option<&dyn Hosted> {
        match self {
            KeyspaceHosting::Hosted(hosted) => Some(&**hosted),
            _ => None,
        }
    }

    pub(super) fn hosted_mut(&mut self) -> Option<&mut Box<dyn Hosted>> {
        match self {
            KeyspaceHosting::Hosted(hosted) => Some(hosted),
            _ => None,
        }
    }
}
