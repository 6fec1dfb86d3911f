//! From the data directory to partitions that serve.

use crate::error::StartError;
use crate::journal::{Journal, SOLO_RECORDS};
use crate::keyspace::Keyspace;
use crate::metadata::Metadata;
use crate::options::Options;
use crate::process::Process;
use crate::user_types;
use ::journal::{DirectoryId, Disk, Log, LogOptions, Piece, RealDisk, Recovered};
use protocol::{Input, NoReplies, Now, Replica};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use strict::solo::{Group, Record, Solo};
use types::{HashSeed, Incarnation, KeyspaceId, Rng, WallTime};

/// Opens the data directory, if there is one, and recovers everything in it.
pub(crate) fn recover(options: Options) -> Result<Process, StartError> {
    let Some(directory) = options.data.clone() else {
        let durability = options.effective(options.durability);
        let metadata = Metadata::fresh(options.databases, durability, fastrand::u64(..));
        let keyspaces = build(&options, &metadata, Incarnation(1));
        return Ok(finish(Process::new(options, metadata, Incarnation(1), into_list(keyspaces), None), true));
    };
    let data = |error| StartError::Data { directory: directory.clone(), error };
    let disk: Arc<dyn Disk> = Arc::new(RealDisk::open(&directory).map_err(data)?);
    let refused = |error| StartError::Journal { directory: directory.clone(), error };
    let is_fresh = Log::incarnation_in(Arc::clone(&disk)).map_err(refused)? == Incarnation(0);
    let metadata = load_metadata(&directory, &options, is_fresh)?;
    user_types::register_all(&metadata.types).map_err(StartError::Type)?;
    let log_options = LogOptions {
        segment_bytes: options.segment_bytes,
        fresh_id: DirectoryId(fastrand::u128(..)),
        accept_loss: options.accept_loss,
        ..LogOptions::default()
    };
    // The incarnation is known only after the log is open; recovery itself says nothing to anybody.
    let mut keyspaces = build(&options, &metadata, Incarnation(0));
    let mut records = 0u64;
    let opened = Log::open(disk, &log_options, &mut |piece| {
        records += 1;
        visit(&mut keyspaces, &metadata, piece)
    });
    let (mut log, recovered) = opened.map_err(refused)?;
    tell_missing(&recovered);
    let incarnation = Incarnation(recovered.incarnation.0 + 1);
    log.set_incarnation(incarnation)
        .map_err(|error| StartError::Log { directory: directory.clone(), error })?;
    tracing::info!(
        pieces = records,
        incarnation = incarnation.0,
        clean = recovered.clean_shutdown,
        "recovered"
    );
    let journal = Some(Journal::new(log, recovered.grown));
    let complete = (recovered.clean_shutdown || recovered.created) && recovered.lost.is_none();
    Ok(finish(Process::new(options, metadata, incarnation, into_list(keyspaces), journal), complete))
}

/// Says what recovery did not find, or could not read.
pub(crate) fn tell_missing(recovered: &Recovered) {
    if let Some(cut) = &recovered.cut {
        tracing::warn!("the log ended in a torn group that is not known to have been synced: {cut}");
    }
    if let Some(lost) = &recovered.lost {
        tracing::error!("a loss is accepted: {lost}");
        eprintln!("anabranch: a loss is accepted: {lost}");
    }
}

fn load_metadata(directory: &Path, options: &Options, is_fresh: bool) -> Result<Metadata, StartError> {
    if let Some(metadata) = Metadata::load(directory, is_fresh)? {
        return Ok(metadata);
    }
    let metadata = Metadata::fresh(options.databases, options.durability, fastrand::u64(..));
    let saved = metadata.save(directory);
    saved.map_err(|error| StartError::Data { directory: directory.to_owned(), error })?;
    Ok(metadata)
}

type Keyspaces = BTreeMap<KeyspaceId, Keyspace>;

fn build(options: &Options, metadata: &Metadata, incarnation: Incarnation) -> Keyspaces {
    let (count, seed) = (options.partition_count(), HashSeed(metadata.seed));
    let keyspace = |entry: &crate::metadata::KeyspaceEntry| {
        let durability = options.effective(entry.durability().unwrap_or(options.durability));
        let id = KeyspaceId(entry.id);
        (id, Keyspace::new(id, entry.name.clone(), count, durability, seed, incarnation))
    };
    metadata.keyspaces.iter().map(keyspace).collect()
}

fn into_list(keyspaces: Keyspaces) -> Vec<Arc<Keyspace>> {
    keyspaces.into_values().map(Arc::new).collect()
}

/// Routes a recovered piece by keyspace and key, however many partitions there are now.
fn visit(keyspaces: &mut Keyspaces, metadata: &Metadata, piece: Piece<'_>) -> Result<(), String> {
    // A checkpoint's chunk has the form of a record: states of keys instead of effects.
    let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
    let [SOLO_RECORDS, low, high, records @ ..] = bytes else {
        return Err("a record of an unknown kind; was the data written by a newer program?".to_owned());
    };
    let id = u16::from_le_bytes([*low, *high]);
    if id >= metadata.next_id {
        return Err(format!(
            "a record of keyspace {id}, which is not in the list of keyspaces; is the list older?"
        ));
    }
    // The records of a keyspace that was dropped since have no home.
    let Some(keyspace) = keyspaces.get_mut(&KeyspaceId(id)) else {
        return Ok(());
    };
    for record in Record::split(records) {
        let record = record.map_err(|error| error.to_string())?;
        let count = keyspace.partitions.len();
        match Record::key_of(record).map_err(|error| error.to_string())? {
            Some(key) => feed(keyspace, Group::index_of(HashSeed(metadata.seed).hash(key), count), record)?,
            None => (0..count).try_for_each(|index| feed(keyspace, index, record))?,
        }
    }
    Ok(())
}

fn feed(keyspace: &Keyspace, index: usize, record: &[u8]) -> Result<(), String> {
    let mut replica = keyspace.partitions[index].replica.lock();
    input(&mut replica, Input::Recover(record));
    let unreadable = replica.protocol().unreadable();
    unreadable.map_or(Ok(()), |what| {
        Err(format!(
            "a record of keyspace '{}' cannot be read: {what}; is the list of keyspaces older?",
            keyspace.name
        ))
    })
}

fn input(replica: &mut Replica<Solo>, input: Input<'_, Solo>) {
    let now = Now { wall: WallTime(0), instant: types::Instant(0) };
    replica.step(now, &mut vec![input], &mut Rng::with_seed(0), &mut NoReplies::default());
}

fn finish(process: Process, complete: bool) -> Process {
    for keyspace in process.keyspaces().iter() {
        for cell in &keyspace.partitions {
            input(&mut cell.replica.lock(), Input::Recovered { complete });
        }
    }
    process
}
