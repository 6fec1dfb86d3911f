//! What has arrived from other processes finds its keyspace, or what processes tell each other.

use super::hosting::KeyspaceHosting;
use super::incoming::Arrivals;
use super::news;
use crate::process::Process;
use gateway::News;
use protocol::{Now, Replies};
use std::sync::Arc;
use types::{KeyspaceId, ProcessId};

/// No keyspace has this number: it is for what processes tell each other.
const NO_KEYSPACE: KeyspaceId = KeyspaceId(u16::MAX);

/// Hands out what has arrived at a worker; pumps serve it. Returns news for the gateways, in order.
pub(crate) fn deliver(
    process: &Process,
    arrived: &Arrivals,
    now: Now,
    replies: &mut dyn Replies,
) -> Vec<(ProcessId, Arc<News>)> {
    let (mut heard, mut list) = (Vec::new(), process.hostings.list());
    for (from, to, packet) in arrived.iter() {
        if to == news::SLOT {
            heard.extend(news::read(from.process, packet));
            continue;
        }
        if to.keyspace == NO_KEYSPACE {
            process.cluster.lock().hear(from.process, to, packet, now, replies);
            continue;
        }
        if process.peers.has_ahead() && process.cluster.lock().is_ahead(from.process) {
            continue;
        }
        let index = usize::from(to.keyspace.0);
        let is_here = |hosting: &KeyspaceHosting| hosting.hosted().is_none_or(|keyspace| keyspace.hosts(to));
        if !list.get(index).is_some_and(is_here) {
            // It was created, or is to move here, since this process last looked.
            process.cluster.lock().refresh();
            list = process.hostings.list();
        }
        match list.get(index) {
            Some(KeyspaceHosting::Hosted(keyspace)) => keyspace.leave(from, to, packet),
            Some(_) => {}
            None => {
                tracing::warn!(%from, keyspace = %to.keyspace, "a packet for an unknown keyspace was dropped");
            }
        }
    }
    heard
}
