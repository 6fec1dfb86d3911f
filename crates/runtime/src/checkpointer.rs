//! The thread that takes checkpoints while the process serves, so that log and recovery time stay bounded.

use crate::cluster::{HostedKeyspace, KeyspaceHosting};
use crate::journal::{CLUSTER_RECORDS, Journal, SOLO_RECORDS};
use crate::keyspace::Keyspace;
use crate::process::{Process, seconds_since_1970};
use ::journal::{CheckpointWriter, LogError};
use protocol::{Durability, Protocol, Replica};
use std::sync::atomic::Ordering;
use std::time::Duration;
use strict::solo::{Group, Solo};
use types::{Error, ErrorCode, PartitionId};

const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(crate) fn run(process: &Process, journal: &Journal) {
    let mut last_size = 0;
    while !process.is_stopping() {
        std::thread::sleep(LOOK_EVERY);
        let threshold = process.options.checkpoint_after_bytes.max(last_size);
        let is_due = process.view.is_checkpoint_wanted() || journal.grown() >= threshold;
        if journal.is_suspended() {
            process.answer_savers(Err(Error::new(ErrorCode::Misconf, "the log cannot be written")));
        } else if is_due {
            match take(process, journal) {
                Ok(size) => {
                    last_size = size;
                    process.answer_savers(Ok(()));
                }
                Err(error) => {
                    process.answer_savers(Err(Error::err(format!("the checkpoint failed: {error}"))));
                    tracing::warn!(%error, "a checkpoint failed; the log grows on and the next one is tried")
                }
            }
        }
    }
}

/// Takes a checkpoint and makes it the current one; returns its size in bytes.
pub(crate) fn take(process: &Process, journal: &Journal) -> Result<u64, LogError> {
    let (number, failures) = (process.view.begin_checkpoint(), journal.failures());
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
    for keyspace in process.hostings.list().iter().filter_map(KeyspaceHosting::hosted) {
        for partition in keyspace.partitions() {
            if journal.failures() != failures {
                return Err(LogError::Suspended);
            }
            write_replica(process, journal, (keyspace, PartitionId(partition)), &mut writer)?;
        }
    }
    let size = install(process, journal, writer, failures)?;
    process.view.install_checkpoint(number);
    Ok(size)
}

/// Makes a written checkpoint durable and the current one; returns its size in bytes. `failures` is how often the log
/// had failed when it was begun.
fn install(
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
        // A piece may show effects taken back since, or records that the log has not taken.
        return Err(LogError::Suspended);
    }
    let installation = journal.with_log(|log| log.begin_install(finished))?;
    let installed = installation.run();
    journal.with_log(|log| log.finish_install(installed))?;
    process.checkpoints.fetch_add(1, Ordering::Relaxed);
    process.last_checkpoint.store(seconds_since_1970(), Ordering::Relaxed);
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

/// Writes a replica piece by piece, so that traffic goes on in between.
fn write_replica(
    process: &Process,
    journal: &Journal,
    (keyspace, partition): (&HostedKeyspace, PartitionId),
    writer: &mut CheckpointWriter,
) -> Result<(), LogError> {
    let mut cursor = Some(0);
    while let Some(from) = cursor {
        let mut chunk = vec![CLUSTER_RECORDS];
        chunk.extend_from_slice(&keyspace.id.0.to_le_bytes());
        chunk.extend_from_slice(&partition.0.to_le_bytes());
        let mut reflect = || writer.reflect(journal.open_group());
        let (next, is_left) = keyspace.checkpoint(process, (partition, from), &mut chunk, &mut reflect);
        if is_left {
            process.let_worker_look();
        }
        cursor = next;
        writer.chunk(&chunk)?;
    }
    Ok(())
}
