//! How a process takes part in each keyspace of the cluster. What is hosted is behind a lock of its own.

use super::environment::{dropped, elsewhere, refuse};
use super::hosted_keyspace::HostedKeyspace;
use super::view::ClusterView;
use crate::memory::Memory;
use crate::process::Process;
use parking_lot::{Mutex, RwLock};
use protocol::hosted::{Holdings, LogWork, Turn};
use protocol::{Gate, Replies, Request};
use std::sync::Arc;
use types::{Error, Instant, KeyspaceId, RequestId, Rng};

/// See the module.
#[derive(Clone)]
pub(crate) enum KeyspaceHosting {
    /// Its coordinator, and the replicas that are placed here.
    Hosted(Arc<HostedKeyspace>),
    /// All of it, among the process's [`Locals`](crate::keyspace::Locals).
    Solo,
    /// Nothing: the process with this number keeps it by itself.
    Elsewhere(u16),
    /// Nothing: it was dropped.
    Dropped,
}

impl KeyspaceHosting {
    pub(crate) fn hosted(&self) -> Option<&Arc<HostedKeyspace>> {
        match self {
            KeyspaceHosting::Hosted(hosted) => Some(hosted),
            _ => None,
        }
    }
}

/// All keyspaces. Whoever holds the cluster's lock changes the list; others look at it as of a moment.
#[derive(Default)]
pub(crate) struct Hostings {
    /// In the catalog's order, which is that of their ids.
    list: RwLock<Arc<Vec<KeyspaceHosting>>>,
    /// Dropped keyspaces whose clients do not know it yet.
    dropped: Mutex<Vec<KeyspaceId>>,
}

impl Hostings {
    pub(super) fn new(list: Vec<KeyspaceHosting>) -> Self {
        Hostings { list: RwLock::new(Arc::new(list)), dropped: Mutex::default() }
    }

    /// Those of this moment.
    pub(crate) fn list(&self) -> Arc<Vec<KeyspaceHosting>> {
        Arc::clone(&self.list.read())
    }

    /// How many keyspaces there have been.
    pub(super) fn count(&self) -> usize {
        self.list.read().len()
    }

    /// One of them.
    pub(super) fn of(&self, id: KeyspaceId) -> Option<KeyspaceHosting> {
        self.list.read().get(usize::from(id.0)).cloned()
    }

    /// What is hosted of a keyspace.
    pub(super) fn hosted_of(&self, id: KeyspaceId) -> Option<Arc<HostedKeyspace>> {
        self.list.read().get(usize::from(id.0)).and_then(KeyspaceHosting::hosted).cloned()
    }

    /// Takes over the next keyspace.
    pub(super) fn begin(&self, hosting: KeyspaceHosting) {
        Arc::make_mut(&mut self.list.write()).push(hosting);
    }

    /// Nobody serves the keyspace any more: its clients are to hear of it.
    pub(super) fn end(&self, id: KeyspaceId) {
        Arc::make_mut(&mut self.list.write())[usize::from(id.0)] = KeyspaceHosting::Dropped;
        self.dropped.lock().push(id);
    }

    /// The keyspaces that were dropped since the last call: their clients wait for nothing any more.
    pub(crate) fn take_dropped(&self) -> Vec<KeyspaceId> {
        std::mem::take(&mut self.dropped.lock())
    }

    /// Hands clients' requests to the keyspace's coordinator. Returns what replies wait for.
    pub(crate) fn submit(
        &self,
        process: &Process,
        keyspace: KeyspaceId,
        requests: &mut Vec<(RequestId, Request<'_>)>,
        random: &mut Rng,
        replies: &mut dyn Replies,
    ) -> Gate {
        let error = match self.of(keyspace) {
            Some(KeyspaceHosting::Hosted(keyspace)) => {
                return keyspace.submit(process, requests, random, replies);
            }
            Some(KeyspaceHosting::Elsewhere(process)) => elsewhere(process),
            Some(KeyspaceHosting::Dropped | KeyspaceHosting::Solo) => dropped(),
            None => Error::refused("the cluster has no such keyspace"),
        };
        refuse(requests, &error, &mut Turn { now: process.now(), random, replies });
        Gate::OPEN
    }

    /// What the log has to do so that what waits may leave.
    pub(crate) fn log_work(&self) -> LogWork {
        let list = self.list();
        let each = list.iter().filter_map(KeyspaceHosting::hosted).map(|keyspace| keyspace.log_work());
        each.fold(LogWork::default(), LogWork::and)
    }

    /// When one of them must be pumped at the latest though nobody does anything with it.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.list()
            .iter()
            .filter_map(KeyspaceHosting::hosted)
            .filter_map(|keyspace| keyspace.deadline())
            .min()
    }

    /// Notes how much memory the replicas occupied when they were last looked at, and which caches have no room.
    pub(crate) fn note_memory(&self, memory: &Memory, view: &ClusterView) {
        let (mut all, mut each) = (Holdings::default(), Vec::new());
        for keyspace in self.list().iter().filter_map(KeyspaceHosting::hosted) {
            let holdings = keyspace.holdings();
            memory.set_full(keyspace.id, holdings.is_full);
            all = all.and(holdings);
            each.push((keyspace.id, holdings));
        }
        memory.set_hosted(all);
        *view.holdings.lock() = each;
    }
}
