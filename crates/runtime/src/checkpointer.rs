//! The thread that takes checkpoints beside traffic, so that log and recovery time stay bounded.

use crate::cluster::ClusterView;
use crate::journal::{Journal, SOLO_RECORDS};
use crate::keyspace::Keyspace;
use crate::process::Process;
use ::journal::{CheckpointWriter, LogError};
use protocol::{Durability, Protocol, Replica};
use std::sync::atomic::Ordering;
use std::time::Duration;
use strict::solo::{Group, Solo};

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(process: &Process, journal: &Journal) {
    let mut last_size = 0;
    while !process.is_stopping() {
        std::thread::sleep(LOOK_EVERY);
        let threshold = process.options.checkpoint_after_bytes.max(last_size);
        let wanted = process.checkpoint_wanted.swap(false, Ordering::AcqRel);
        if (wanted || journal.grown() >= threshold) && !journal.is_suspended() {
            match take(process, journal) {
                Ok(size) => last_size = size,
                Err(error) => {
                    tracing::warn!(%error, "a checkpoint failed; the log grows on and the next one is tried")
                }
            }
        }
    }
}

/// In a process of a cluster the worker writes checkpoints; this installs them.
pub(crate) fn run_for_replicas(process: &Process, journal: &Journal, view: &ClusterView) {
    while !process.is_stopping() {
        std::thread::sleep(LOOK_EVERY);
        if let Some((writer, failures)) = view.take_written() {
            let installed = install(process, journal, writer, failures);
            if let Err(error) = &installed {
                tracing::warn!(%error, "a checkpoint failed; the log grows on and the next one is tried");
            }
            view.installed(installed.ok());
        }
    }
}

/// Takes a checkpoint and makes it the current one; returns its size in bytes.
pub(crate) fn take(process: &Process, journal: &Journal) -> Result<u64, LogError> {
    let failures = journal.failures();
    let mut writer = journal.begin_checkpoint()?;
    for keyspace in process.keyspaces().iter() {
        // Without a log to repair it, a checkpoint must be one snapshot (nothing half-applied).
        let snapshot = keyspace.durability() == Durability::Volatile;
        if snapshot {
            with_group(keyspace, |transactions, group| transactions.pin(process.now(), group));
        }
        let written = write_keyspace(keyspace, journal, &mut writer);
        if snapshot {
            with_group(keyspace, |transactions, group| transactions.unpin(group));
        }
        written?;
    }
    install(process, journal, writer, failures)
}

/// Makes a written checkpoint durable and the current one; returns its size in bytes. `failures` is how often the log
/// had failed when it was begun.
pub(crate) fn install(
    process: &Process,
    journal: &Journal,
    writer: CheckpointWriter,
    failures: u64,
) -> Result<u64, LogError> {
    let finished = writer.finish()?;
    let size = finished.size();
    while journal.durable().synced < finished.reflects().0 {
        journal.write_out();
        if !journal.sync() {
            std::thread::sleep(Duration::from_millis(1));
        }
        if journal.failures() != failures {
            break;
        }
    }
    if journal.failures() != failures {
        // A piece may show what was taken back since, or is kept.
        return Err(LogError::Suspended);
    }
    let installation = journal.with_log(|log| log.begin_install(finished))?;
    let installed = installation.run();
    journal.with_log(|log| log.finish_install(installed))?;
    process.checkpoints.fetch_add(1, Ordering::Relaxed);
    tracing::info!(bytes = size, "checkpoint");
    Ok(size)
}

fn with_group(keyspace: &Keyspace, work: impl FnOnce(&mut strict::solo::Transactions, &mut Group<'_, '_>)) {
    let mut transactions = keyspace.transactions.lock();
    let mut guards = keyspace.lock_all();
    let mut partitions: Vec<&mut Replica<Solo>> = guards.iter_mut().map(|guard| &mut **guard).collect();
    work(&mut transactions, &mut Group::new(&mut partitions));
}

fn write_keyspace(
    keyspace: &Keyspace,
    journal: &Journal,
    writer: &mut CheckpointWriter,
) -> Result<(), LogError> {
    let mut chunk = Vec::new();
    for cell in &keyspace.partitions {
        let mut cursor = Some(0);
        while let Some(from) = cursor {
            chunk.clear();
            chunk.push(SOLO_RECORDS);
            chunk.extend_from_slice(&keyspace.id.0.to_le_bytes());
            // Piece by piece, so that traffic goes on in between.
            cursor = cell.replica.lock().protocol_mut().checkpoint(from, &mut chunk);
            writer.chunk(&chunk)?;
        }
        writer.reflect(journal.open_group());
    }
    Ok(())
}
