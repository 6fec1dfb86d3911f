//! Damage: refused below what is known synced, cut above it, never a panic.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use anabranch_journal::{
    DirectoryId, Disk, FORMAT_VERSION, GroupNumber, Log, LogOptions, OpenError, Piece, Recovered,
    SimulatedDisk,
};
use proptest::prelude::*;

const ID: DirectoryId = DirectoryId(0xfeed);
const SEGMENT: &str = "segment-0000000100000000";

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 4096,
        fresh_id: ID,
        retain_previous_checkpoint: true,
        ..LogOptions::default()
    }
}

fn open(disk: &SimulatedDisk) -> Result<(Log, Recovered, Vec<u8>), OpenError> {
    let mut found = Vec::new();
    let (log, recovered) = Log::open(disk.mount(), &options(), &mut |piece| {
        let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
        found.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok((log, recovered, found))
}

/// Appends each byte as a group of 100 bytes and syncs it.
fn append(log: &mut Log, bytes: &[u8]) {
    for byte in bytes {
        log.append(&[*byte; 40]).unwrap();
        log.sync_now().unwrap();
    }
}

/// The offset of the nth group of `append` in its segment.
fn group_offset(index: u64) -> u64 {
    64 + index * 100
}

fn corrupt_at(result: Result<(Log, Recovered, Vec<u8>), OpenError>) -> (String, u64) {
    match result {
        Err(OpenError::Corrupt { file, offset, .. }) => (file, offset),
        Err(error) => panic!("another error: {error}"),
        Ok((_, recovered, _)) => panic!("opened: {recovered:?}"),
    }
}

#[test]
fn damage_below_the_synced_position_is_refused_with_file_and_offset() {
    for place in [2, 20, 54, 60, 99] {
        let disk = SimulatedDisk::new();
        append(&mut open(&disk).unwrap().0, b"abcd");
        assert!(disk.flip_bit(SEGMENT, group_offset(1) + place, 3));
        assert_eq!(corrupt_at(open(&disk)), (SEGMENT.to_owned(), group_offset(1)));
        assert_eq!(
            corrupt_at(open(&disk)),
            (SEGMENT.to_owned(), group_offset(1)),
            "refusing changes nothing"
        );
    }
}

#[test]
fn damage_above_the_synced_position_is_cut_and_what_was_cut_stays_away() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    append(&mut log, b"a");
    for byte in *b"bcd" {
        log.append(&[byte; 40]).unwrap();
        log.write_out().unwrap();
    }
    disk.flip_bit(SEGMENT, group_offset(1) + 70, 0);
    let (mut log, recovered, found) = open(&disk).unwrap();
    assert_eq!((found, recovered.last), (vec![b'a'; 40], GroupNumber(1)));
    let cut = recovered.cut.unwrap();
    assert_eq!((cut.file.as_str(), cut.offset), (SEGMENT, group_offset(1)));
    append(&mut log, b"x");
    disk.flip_bit(SEGMENT, group_offset(1) + 70, 0);
    let (_, recovered, found) = open(&disk).unwrap();
    assert_eq!((found, recovered.last), ([[b'a'; 40], [b'x'; 40]].concat(), GroupNumber(2)));
}

#[test]
fn a_missing_segment_or_manifest_is_refused() {
    let disk = SimulatedDisk::new();
    append(&mut open(&disk).unwrap().0, &[1; 100]);
    disk.mount().delete("segment-0000000100000001").unwrap();
    assert_eq!(corrupt_at(open(&disk)).0, SEGMENT);
    disk.mount().delete("manifest").unwrap();
    assert_eq!(corrupt_at(open(&disk)).0, "manifest");
}

#[test]
fn after_an_orderly_end_any_flipped_bit_is_harmless_or_refused() {
    let build = || {
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(&disk).unwrap();
        append(&mut log, &[1; 45]);
        let mut writer = log.begin_checkpoint().unwrap();
        writer.chunk(&[1; 45 * 40]).unwrap();
        let checkpoint = writer.finish().unwrap();
        log.install(checkpoint).unwrap();
        append(&mut log, &[2; 5]);
        log.close().unwrap();
        (disk, [vec![1; 45 * 40], vec![2; 5 * 40]].concat())
    };
    let mut refused = 0;
    for (name, size) in build().0.files() {
        for offset in 0..size {
            let (disk, content) = build();
            assert!(disk.flip_bit(&name, offset, offset as u8));
            match open(&disk) {
                Ok((_, _, found)) => assert!(found == content, "{name} {offset}"),
                Err(OpenError::Corrupt { .. }) => refused += 1,
                Err(error) => panic!("{name} {offset}: {error}"),
            }
        }
    }
    // The checkpoint, five groups, the segment's header and the manifest, at the least.
    assert!(refused > 45 * 40 + 5 * 100 + 64 + 44, "{refused}");
}

/// Sets the version of the header at `offset` and mends its checksum.
fn set_version(disk: &SimulatedDisk, name: &str, (offset, size): (u64, usize), id: &[u8]) {
    let mut header = vec![0; size];
    assert_eq!(disk.read(name, offset, &mut header), size);
    header[4..6].copy_from_slice(&(FORMAT_VERSION + 1).to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(id);
    hasher.update(&header[..size - 4]);
    header[size - 4..].copy_from_slice(&hasher.finalize().to_le_bytes());
    assert!(disk.overwrite(name, offset, &header));
}

#[test]
fn a_newer_version_is_named_not_cut() {
    let (group, seed) = ((group_offset(0), 56), ID.0.to_le_bytes());
    let cases = [(SEGMENT, (0, 64), [0; 16]), (SEGMENT, group, seed), ("manifest", (0, 48), [0; 16])];
    for (name, place, seed) in cases {
        let disk = SimulatedDisk::new();
        append(&mut open(&disk).unwrap().0, b"ab");
        set_version(&disk, name, place, if name == "manifest" { &[0; 16] } else { &seed });
        match open(&disk) {
            Err(OpenError::NewerVersion { file, found }) => {
                assert_eq!((file.as_str(), found), (name, FORMAT_VERSION + 1));
            }
            Err(error) => panic!("{name}: {error}"),
            Ok(_) => panic!("{name} of a newer version was read"),
        }
    }
}

#[test]
fn a_segment_of_another_directory_is_refused() {
    let (disk, other) = (SimulatedDisk::new(), SimulatedDisk::new());
    append(&mut open(&disk).unwrap().0, b"ab");
    let foreign = LogOptions { fresh_id: DirectoryId(1), ..options() };
    append(&mut Log::open(other.mount(), &foreign, &mut |_| Ok(())).unwrap().0, b"cd");
    let mut bytes = vec![0; 4096];
    other.read(SEGMENT, 0, &mut bytes);
    disk.overwrite(SEGMENT, 0, &bytes);
    assert!(matches!(open(&disk), Err(OpenError::Foreign { file }) if file == SEGMENT));
}

#[test]
fn a_piece_that_the_caller_rejects_is_named_with_its_place() {
    let disk = SimulatedDisk::new();
    append(&mut open(&disk).unwrap().0, b"ab");
    let outcome = Log::open(disk.mount(), &options(), &mut |piece| match piece {
        Piece::Record { group: GroupNumber(2), .. } => Err("an unknown record".to_owned()),
        _ => Ok(()),
    });
    let Err(error) = outcome else { panic!("accepted") };
    assert_eq!(error.to_string(), format!("{SEGMENT}, offset {}: an unknown record", group_offset(1)));
}

#[test]
fn bytes_that_a_client_stored_never_pass_for_a_group() {
    let disk = SimulatedDisk::new();
    append(&mut open(&disk).unwrap().0, b"ab");
    let mut copied = vec![0; 300];
    disk.read(SEGMENT, 64, &mut copied);
    let (mut log, _, before) = open(&disk).unwrap();
    log.append(&copied).unwrap();
    log.sync_now().unwrap();
    let expected = [before, copied].concat();
    assert_eq!(open(&disk).unwrap().2, expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arbitrary_bytes_in_any_file_never_panic(
        which in 0usize..5,
        offset in 0u64..3000,
        bytes in proptest::collection::vec(any::<u8>(), 0..2000),
        cut in proptest::option::of(0u64..5000),
    ) {
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(&disk).unwrap();
        append(&mut log, &[1; 20]);
        let mut writer = log.begin_checkpoint().unwrap();
        writer.chunk(&[2; 2000]).unwrap();
        let checkpoint = writer.finish().unwrap();
        log.install(checkpoint).unwrap();
        append(&mut log, &[3; 60]);
        let name = disk.files().keys().nth(which).unwrap().clone();
        disk.overwrite(&name, offset, &bytes);
        if let Some(size) = cut {
            disk.mount().open(&name).unwrap().set_size(size).unwrap();
        }
        if let Ok((mut log, _, found)) = open(&disk) {
            append(&mut log, b"z");
            let again = open(&disk).unwrap().2;
            prop_assert_eq!(again, [found, vec![b'z'; 40]].concat());
        }
    }
}
