//! Checkpoints beside traffic: what counts, what is ignored, what is refused.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use anabranch_journal::{
    DirectoryId, FinishedCheckpoint, GroupNumber, Log, LogError, LogOptions, OpenError, Piece, Recovered,
    SimulatedDisk,
};
use types::Rng;

fn options(retain_previous_checkpoint: bool) -> LogOptions {
    LogOptions {
        segment_bytes: 4096,
        fresh_id: DirectoryId(9),
        retain_previous_checkpoint,
        ..LogOptions::default()
    }
}

struct Opened {
    log: Log,
    recovered: Recovered,
    chunks: Vec<String>,
    records: Vec<String>,
}

fn open_with(disk: &SimulatedDisk, options: &LogOptions) -> Result<Opened, OpenError> {
    let (mut chunks, mut records) = (Vec::new(), Vec::new());
    let (log, recovered) = Log::open(disk.mount(), options, &mut |piece| {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|error| error.to_string());
        match piece {
            Piece::Chunk(bytes) => chunks.push(text(bytes)?),
            Piece::Record { bytes, .. } => records.push(text(bytes)?),
        }
        Ok(())
    })?;
    Ok(Opened { log, recovered, chunks, records })
}

fn open(disk: &SimulatedDisk) -> Opened {
    open_with(disk, &options(false)).unwrap()
}

fn append(log: &mut Log, record: &str) -> GroupNumber {
    log.append(record.as_bytes()).unwrap();
    log.sync_now().unwrap()
}

fn write_checkpoint(log: &mut Log, chunks: &[&str]) -> FinishedCheckpoint {
    let mut writer = log.begin_checkpoint().unwrap();
    chunks.iter().for_each(|chunk| writer.chunk(chunk.as_bytes()).unwrap());
    writer.finish().unwrap()
}

fn install(log: &mut Log, chunks: &[&str]) {
    let checkpoint = write_checkpoint(log, chunks);
    log.install(checkpoint).unwrap();
}

/// The names of the checkpoint files, oldest first.
fn checkpoints(disk: &SimulatedDisk) -> Vec<String> {
    disk.files().into_keys().filter(|name| name.starts_with("checkpoint-")).collect()
}

#[test]
fn chunks_come_first_then_the_records_after_the_start() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    append(&mut log, "below");
    let mut writer = log.begin_checkpoint().unwrap();
    assert_eq!(writer.base(), GroupNumber(1));
    writer.chunk(b"one").unwrap();
    append(&mut log, "during");
    writer.chunk(b"two").unwrap();
    let finished = writer.finish().unwrap();
    let installation = log.begin_install(finished).unwrap();
    append(&mut log, "beside");
    log.finish_install(installation.run()).unwrap();
    append(&mut log, "after");
    disk.crash(&mut Rng::with_seed(1));
    let opened = open(&disk);
    assert_eq!(opened.chunks, ["one", "two"]);
    assert_eq!(opened.records, ["during", "beside", "after"]);
    assert_eq!(opened.recovered.checkpoint, GroupNumber(1));
}

#[test]
fn the_open_group_is_below_the_checkpoint() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    let group = log.append(b"applied, not written").unwrap();
    let checkpoint = write_checkpoint(&mut log, &["state"]);
    assert_eq!(checkpoint.reflects(), group);
    let refusal = log.begin_install(checkpoint).err().unwrap();
    assert!(matches!(refusal, LogError::NotSynced { needed, .. } if needed == group), "{refusal}");
}

#[test]
fn a_checkpoint_that_reflects_later_groups_waits_for_their_sync() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    append(&mut log, "below");
    let mut writer = log.begin_checkpoint().unwrap();
    let later = log.append(b"later").unwrap();
    writer.reflect(later);
    let finished = writer.finish().unwrap();
    log.write_out().unwrap();
    assert!(matches!(log.begin_install(finished), Err(LogError::NotSynced { .. })));
}

#[test]
fn an_unfinished_or_uninstalled_checkpoint_is_ignored_and_deleted() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    append(&mut log, "a");
    write_checkpoint(&mut log, &["never installed"]);
    let mut unfinished = log.begin_checkpoint().unwrap();
    unfinished.chunk(b"half").unwrap();
    let opened = open(&disk);
    drop(unfinished);
    assert_eq!((opened.chunks.len(), opened.records), (0, vec!["a".to_owned()]));
    assert!(checkpoints(&disk).is_empty());
    let mut log = opened.log;
    drop(log.begin_checkpoint().unwrap());
    assert!(checkpoints(&disk).is_empty(), "a dropped writer deletes its file");
}

#[test]
fn a_disk_error_spoils_the_checkpoint_and_not_the_log() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    append(&mut log, "a");
    let mut writer = log.begin_checkpoint().unwrap();
    disk.fail_next_write(3);
    let error = writer.chunk(b"lost").unwrap_err();
    assert!(error.to_string().starts_with("cannot write checkpoint-"), "{error}");
    drop(writer);
    let checkpoint = write_checkpoint(&mut log, &["x"]);
    disk.fail_next_write(3);
    assert!(matches!(log.install(checkpoint), Err(LogError::Disk(_))));
    append(&mut log, "b");
    install(&mut log, &["good"]);
    disk.crash(&mut Rng::with_seed(2));
    let opened = open(&disk);
    assert_eq!((opened.chunks, opened.records.len()), (vec!["good".to_owned()], 0));
}

#[test]
fn a_damaged_checkpoint_is_refused_with_file_and_offset() {
    let disk = SimulatedDisk::new();
    let mut log = open(&disk).log;
    append(&mut log, "a");
    install(&mut log, &["state"]);
    let name = checkpoints(&disk).remove(0);
    disk.flip_bit(&name, 64 + 40 + 2, 1);
    let error = open_with(&disk, &options(false)).err().unwrap();
    assert_eq!(error.to_string(), format!("{name} is corrupt at offset 64: a chunk is damaged"));
    disk.flip_bit(&name, 64 + 40 + 2, 1);
    assert_eq!(open(&disk).chunks, ["state"]);
}

#[test]
fn the_previous_checkpoint_serves_where_it_was_retained() {
    let retained = options(true);
    let disk = SimulatedDisk::new();
    let mut log = open_with(&disk, &retained).unwrap().log;
    append(&mut log, "zero");
    install(&mut log, &["first"]);
    append(&mut log, "one");
    install(&mut log, &["second"]);
    append(&mut log, "two");
    // The retained one survives a restart in which it was not needed.
    let mut opened = open_with(&disk, &retained).unwrap();
    assert_eq!((opened.chunks, opened.records), (vec!["second".to_owned()], vec!["two".to_owned()]));
    append(&mut opened.log, "three");
    let names = checkpoints(&disk);
    assert_eq!(names.len(), 2);
    disk.flip_bit(&names[1], 70, 0);
    let mut opened = open_with(&disk, &retained).unwrap();
    assert!(opened.recovered.fell_back);
    assert_eq!(
        (opened.chunks, opened.records),
        (vec!["first".to_owned()], ["one", "two", "three"].map(str::to_owned).to_vec())
    );
    assert_eq!(checkpoints(&disk), names[..1]);
    install(&mut opened.log, &["third"]);
    assert_eq!(open_with(&disk, &retained).unwrap().chunks, ["third"]);
}

#[test]
fn falling_back_is_refused_if_the_log_in_between_is_damaged() {
    let retained = options(true);
    let disk = SimulatedDisk::new();
    let mut log = open_with(&disk, &retained).unwrap().log;
    install(&mut log, &["first"]);
    append(&mut log, "one");
    install(&mut log, &["second"]);
    append(&mut log, "two");
    let segment = disk.files().into_keys().find(|name| name.starts_with("segment-")).unwrap();
    disk.flip_bit(&segment, 64 + 56 + 4, 0);
    assert_eq!(open_with(&disk, &retained).unwrap().chunks, ["second"], "not needed, not looked at");
    let newest = checkpoints(&disk).pop().unwrap();
    disk.flip_bit(&newest, 70, 0);
    let error = open_with(&disk, &retained).err().unwrap();
    assert!(matches!(&error, OpenError::Corrupt { file, offset: 64, .. } if *file == segment), "{error}");
}
