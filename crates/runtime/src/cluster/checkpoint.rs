//! Checkpoints of replicas: the worker writes one piece a turn, beside traffic; another thread makes the finished
//! checkpoint durable and installs it.

use crate::cluster::{Cluster, Written};
use crate::journal::{CLUSTER_RECORDS, Journal};
use ::journal::{CheckpointWriter, LogError};
use protocol::hosted::Hosted;
use types::PartitionId;

/// A checkpoint in progress.
pub(crate) struct Checkpoint {
    writer: CheckpointWriter,
    /// How often the log had failed when it was begun.
    failures: u64,
    /// The replicas still to be written, by keyspace and partition; the last one is under way.
    rest: Vec<(usize, PartitionId)>,
    cursor: u64,
}

impl Cluster {
    /// Begins a checkpoint, unless one is under way. Everything persisted so far has been appended.
    pub(crate) fn begin_checkpoint(&mut self, journal: &Journal) -> Result<(), LogError> {
        if self.checkpoint.is_none() {
            let of = |(index, keyspace): (usize, &Option<Box<dyn Hosted>>)| {
                let partitions = keyspace.as_ref().map(|keyspace| keyspace.partitions()).unwrap_or_default();
                partitions.into_iter().map(move |partition| (index, PartitionId(partition)))
            };
            let rest = self.keyspaces.iter().enumerate().flat_map(of).collect();
            self.has_remains = false;
            let failures = journal.failures();
            self.checkpoint =
                Some(Checkpoint { writer: journal.begin_checkpoint()?, failures, rest, cursor: 0 });
        }
        Ok(())
    }

    /// Writes the next piece of the checkpoint under way. Returns it when all is written. It is given up when the log
    /// refuses records meanwhile: it would show what the log does not have.
    pub(crate) fn continue_checkpoint(&mut self, journal: &Journal) -> Result<Option<Written>, LogError> {
        let Some(mut checkpoint) = self.checkpoint.take() else { return Ok(None) };
        if checkpoint.failures != journal.failures() {
            return Ok(None);
        }
        let Some((index, partition)) = checkpoint.rest.last().copied() else {
            return Ok(Some((checkpoint.writer, checkpoint.failures)));
        };
        let mut chunk = vec![CLUSTER_RECORDS];
        chunk.extend_from_slice(&(index as u16).to_le_bytes());
        chunk.extend_from_slice(&partition.0.to_le_bytes());
        let keyspace = self.keyspaces[index].as_mut();
        let next =
            keyspace.and_then(|keyspace| keyspace.checkpoint(partition, checkpoint.cursor, &mut chunk));
        checkpoint.writer.chunk(&chunk)?;
        checkpoint.writer.reflect(journal.open_group());
        if next.is_none() {
            checkpoint.rest.pop();
        }
        checkpoint.cursor = next.unwrap_or(0);
        self.checkpoint = Some(checkpoint);
        Ok(None)
    }
}
