//! The thread that makes the log durable: at once when a reply waits for it, else every second, and once more, how far
//! it was synced, when a second has brought nothing new; and that tries again when the log could not be written.

use crate::journal::Journal;
use crate::process::Process;
use protocol::Protocol;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long after a write was refused it is tried again, and how often from then on.
const RETRY_EVERY: Duration = Duration::from_millis(500);

pub(crate) fn run(process: &Arc<Process>, journal: &Journal) {
    let every = process.options.sync_every;
    // When the log was first seen suspended, or tried again.
    let mut tried: Option<Instant> = None;
    while !process.is_stopping() {
        let wanted = journal.await_sync(if journal.is_suspended() { RETRY_EVERY } else { every });
        match tried {
            _ if !journal.is_suspended() => tried = None,
            Some(at) if at.elapsed() < RETRY_EVERY => {}
            Some(_) => {
                tried = Some(Instant::now());
                heal(process, journal);
            }
            None => tried = Some(Instant::now()),
        }
        journal.write_out();
        if !journal.sync() && !wanted {
            journal.sync_mark();
        }
        process.wake_awaiting();
    }
}

fn heal(process: &Process, journal: &Journal) {
    if !journal.retry() {
        return;
    }
    for keyspace in process.keyspaces().iter() {
        keyspace.lock_all().iter_mut().for_each(|replica| replica.protocol_mut().log_healed());
    }
    // What replicas and clients wait for may have been retained until now.
    process.workers.read().iter().for_each(|worker| worker.wake());
    tracing::info!("the log can be written again; writes are accepted");
}
