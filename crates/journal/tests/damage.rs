//! Damage to files of a process that was killed, or that lost power at rest: nothing that was acknowledged as synced
//! goes without a word.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use anabranch_journal::{
    DirectoryId, Disk, GroupNumber, Log, LogError, LogOptions, Mutant, OpenError, Piece, Recovered,
    SimulatedDisk,
};
use types::{Incarnation, Rng};

/// Of 40 bytes each, so 100 with their headers.
const GROUPS: u8 = 60;

fn options() -> LogOptions {
    LogOptions { segment_bytes: 4096, fresh_id: DirectoryId(0xd15c), ..LogOptions::default() }
}

type Opened = (Log, Recovered, Vec<u8>);

fn open_with(disk: &SimulatedDisk, options: &LogOptions) -> Result<Opened, OpenError> {
    let mut found = Vec::new();
    let (log, recovered) = Log::open(disk.mount(), options, &mut |piece| {
        let (Piece::Chunk(bytes) | Piece::Record { bytes, .. }) = piece;
        found.extend_from_slice(bytes);
        Ok(())
    })?;
    Ok((log, recovered, found))
}

fn open(disk: &SimulatedDisk) -> Result<Opened, OpenError> {
    open_with(disk, &options())
}

fn content(groups: u8) -> Vec<u8> {
    (0..groups).flat_map(|number| [number; 40]).collect()
}

/// A disk with groups, all of them synced and acknowledged, over two segments; its process is dead.
fn synced() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    log.set_incarnation(Incarnation(1)).unwrap();
    for number in 0..GROUPS {
        log.append(&[number; 40]).unwrap();
        log.sync_now().unwrap();
    }
    drop(log);
    disk
}

/// The same; the log has come to rest before the power went.
fn synced_at_rest() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    for number in 0..GROUPS {
        log.append(&[number; 40]).unwrap();
        log.sync_now().unwrap();
    }
    let ticket = log.begin_idle_sync().unwrap().unwrap();
    log.finish_sync(ticket.sync()).unwrap();
    assert!(log.begin_idle_sync().unwrap().is_none(), "once is enough");
    drop(log);
    disk.crash(&mut Rng::with_seed(1));
    disk
}

/// The same, written out but not synced: the kernel has it.
fn written() -> SimulatedDisk {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    for number in 0..GROUPS {
        log.append(&[number; 40]).unwrap();
        log.write_out().unwrap();
    }
    drop(log);
    disk
}

fn segments(disk: &SimulatedDisk) -> Vec<String> {
    disk.files().into_keys().filter(|name| name.starts_with("segment-")).collect()
}

fn delete(disk: &SimulatedDisk, name: &str) {
    let mount = disk.mount();
    mount.delete(name).unwrap();
    mount.sync_directory().unwrap();
}

/// True if the directory is refused, with file and offset, and again so; false if it opens with all there was.
fn is_refused(disk: &SimulatedDisk, what: &str) -> bool {
    let refusal = |outcome| match outcome {
        Ok((_, recovered, found)) => {
            let Recovered { last, cut, .. } = recovered;
            assert!(found == content(GROUPS), "{what}: served up to group {last}, cut: {cut:?}");
            None
        }
        Err(OpenError::Corrupt { file, offset, .. }) => Some((file, offset)),
        Err(error) => panic!("{what}: {error}"),
    };
    let first = refusal(open(disk));
    assert!(first.is_none() || refusal(open(disk)) == first, "{what}: refusing changes nothing");
    first.is_some()
}

#[test]
fn any_flipped_bit_is_harmless_or_refused() {
    for build in [synced, synced_at_rest] {
        let mut refused = 0;
        for (name, size) in build().files() {
            for offset in (0..size).step_by(3) {
                let disk = build();
                assert!(disk.flip_bit(&name, offset, offset as u8));
                refused += u64::from(is_refused(&disk, &format!("{name} {offset}")));
            }
        }
        assert!(refused > u64::from(GROUPS) * 100 / 3, "{refused}");
    }
}

#[test]
fn any_zeroed_or_lost_tail_is_refused() {
    for build in [synced, synced_at_rest] {
        let newest = segments(&build()).pop().unwrap();
        // Where a group ends, and in the middle of one.
        for offset in (0..10).flat_map(|number| [64 + number * 100, 100 + number * 100]) {
            let disk = build();
            disk.overwrite(&newest, offset, &[0; 4096]);
            assert!(is_refused(&disk, &format!("zeros from {offset}")));
            let disk = build();
            disk.mount().open(&newest).unwrap().set_size(offset).unwrap();
            assert!(is_refused(&disk, &format!("cut at {offset}")));
        }
    }
}

#[test]
fn a_lost_segment_is_refused() {
    for build in [synced, synced_at_rest, written] {
        for name in segments(&build()) {
            let disk = build();
            delete(&disk, &name);
            assert!(is_refused(&disk, &name));
        }
        let disk = build();
        segments(&disk).iter().for_each(|name| delete(&disk, name));
        assert!(is_refused(&disk, "all segments"));
    }
}

/// A lost file is named, also where no other one is left that could be blamed.
#[test]
fn the_newest_segment_is_named_if_it_is_lost() {
    for build in [synced, synced_at_rest, written, behind_a_checkpoint] {
        let disk = build();
        let newest = segments(&disk).pop().unwrap();
        delete(&disk, &newest);
        let Err(OpenError::Corrupt { file, offset, what }) = open(&disk) else { panic!("{newest} is lost") };
        assert_eq!((&file, offset), (&newest, 0), "{what}");
        assert!(what.contains("missing"), "{what}");
    }
}

/// One segment is left, since a checkpoint stands above the others.
fn behind_a_checkpoint() -> SimulatedDisk {
    let disk = synced();
    let (mut log, _, _) = open(&disk).unwrap();
    let mut writer = log.begin_checkpoint().unwrap();
    writer.chunk(&content(GROUPS)).unwrap();
    let checkpoint = writer.finish().unwrap();
    log.install(checkpoint).unwrap();
    log.append(&[GROUPS; 40]).unwrap();
    log.sync_now().unwrap();
    disk
}

#[test]
fn swapped_segments_are_refused() {
    for build in [synced, synced_at_rest, written] {
        let disk = build();
        let [.., first, second] = &segments(&disk)[..] else { panic!("two segments") };
        let mount = disk.mount();
        for (from, to) in [(first.as_str(), "aside"), (second, first), ("aside", second)] {
            mount.rename(from, to).unwrap();
        }
        mount.sync_directory().unwrap();
        assert!(is_refused(&disk, "swapped"));
    }
}

#[test]
fn a_manifest_that_is_older_than_the_log_or_its_incarnation_is_refused() {
    let copy = |disk: &SimulatedDisk| {
        let mut bytes = vec![0; disk.files()["manifest"] as usize];
        disk.read("manifest", 0, &mut bytes);
        bytes
    };
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    let first = copy(&disk);
    log.set_incarnation(Incarnation(7)).unwrap();
    drop(log);
    let killed = disk.copy();
    killed.overwrite("manifest", 0, &first);
    assert!(is_refused(&killed, "an older incarnation"));
    drop(open(&disk).unwrap());
    disk.overwrite("manifest", 0, &first);
    assert!(is_refused(&disk, "an older epoch"));
}

#[test]
fn a_segment_with_older_content_is_refused() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    let name = segments(&disk).pop().unwrap();
    let mut older = vec![0; 4096];
    for number in 0..GROUPS / 2 {
        log.append(&[number; 40]).unwrap();
        log.sync_now().unwrap();
        if number == GROUPS / 4 {
            disk.read(&name, 0, &mut older);
        }
    }
    disk.overwrite(&name, 0, &older);
    assert!(is_refused(&disk, "older content"));
}

#[test]
fn without_marks_a_directory_is_refused_unless_it_never_had_any() {
    let disk = synced();
    delete(&disk, "marks");
    assert!(is_refused(&disk, "no marks"));
    // As a version without marks leaves it: no flag in the manifest, and no file.
    let mut manifest = vec![0; disk.files()["manifest"] as usize];
    disk.read("manifest", 0, &mut manifest);
    manifest[6] &= !2;
    let body = manifest.len() - 4;
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&[0; 16]);
    hasher.update(&manifest[..body]);
    manifest[body..].copy_from_slice(&hasher.finalize().to_le_bytes());
    disk.overwrite("manifest", 0, &manifest);
    assert!(!is_refused(&disk, "an older version's directory"));
    delete(&disk, "marks");
    assert!(is_refused(&disk, "it has some now"));
}

#[test]
fn a_mark_that_cannot_be_written_is_left_out_and_the_one_before_stays() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(&disk).unwrap();
    for number in 0..GROUPS {
        if number % 3 == 1 {
            disk.fail_next_mark();
        }
        log.append(&[number; 40]).unwrap();
        log.sync_now().unwrap();
        if number % 3 == 1 {
            let killed = disk.copy();
            let (_, recovered, found) = open(&killed).unwrap();
            assert_eq!((found, recovered.cut), (content(number + 1), None));
        }
    }
    drop(log);
    let last = segments(&disk).pop().unwrap();
    disk.overwrite(&last, 64, &[0; 200]);
    assert!(is_refused(&disk, "zeros"));
}

/// The kernel may drop what a failed sync could not write. The next process notices, also if the sync was that of a retry.
#[test]
fn what_the_kernel_drops_after_a_failed_sync_is_missed() {
    for retries in [false, true] {
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(&disk).unwrap();
        log.append(&[0; 40]).unwrap();
        log.sync_now().unwrap();
        for number in 1..10 {
            log.append(&[number; 40]).unwrap();
            log.write_out().unwrap();
        }
        if retries {
            log.append(&[10; 40]).unwrap();
            disk.fail_next_write(70);
            assert!(matches!(log.write_out(), Err(LogError::NotWritten { .. })));
        }
        disk.fail_next_sync();
        let outcome = if retries { log.retry() } else { log.sync_now().map(drop) };
        assert!(matches!(outcome, Err(LogError::SyncFailed(_))) && log.is_closed());
        drop(log);
        let newest = segments(&disk).pop().unwrap();
        disk.overwrite(&newest, 64 + 5 * 100, &[0; 1_000]);
        assert!(is_refused(&disk, &format!("retries: {retries}")));
    }
}

/// The order of a sync and its mark: whatever a power cut leaves, it is never refused, and what had been marked durably
/// is there.
#[test]
fn marks_never_claim_what_a_power_cut_takes() {
    for seed in 0..400 {
        let random = &mut Rng::with_seed(seed);
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(&disk).unwrap();
        let mut rested = 0;
        for number in 0..random.u8(1..GROUPS) {
            log.append(&[number; 40]).unwrap();
            match random.u8(..6) {
                0 => drop(log.sync_now().unwrap()),
                1 => {
                    log.sync_now().unwrap();
                    let ticket = log.begin_idle_sync().unwrap().unwrap();
                    rested = log.finish_sync(ticket.sync()).unwrap().0;
                }
                _ => drop(log.write_out().unwrap()),
            }
        }
        let synced = log.synced();
        disk.crash(random);
        let (_, recovered, _) = open(&disk).unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert!(recovered.last >= synced && recovered.lost.is_none(), "seed {seed}");
        assert!(synced.0 >= rested);
    }
}

#[test]
fn a_loss_is_accepted_once_and_listed() {
    let accepting = LogOptions { accept_loss: true, ..options() };
    let disk = synced();
    let (_, recovered, found) = open_with(&disk.copy(), &accepting).unwrap();
    assert_eq!((recovered.lost, found), (None, content(GROUPS)), "nothing is lost that is not damaged");

    let first = segments(&disk).remove(0);
    let offset = 64 + 20 * 100;
    assert!(disk.flip_bit(&first, offset + 70, 2));
    assert!(is_refused(&disk, "damage in the middle"));
    let (mut log, recovered, found) = open_with(&disk, &accepting).unwrap();
    assert_eq!((found, recovered.last, recovered.cut), (content(20), GroupNumber(20), None));
    let lost = recovered.lost.unwrap();
    let cut = &lost.cut;
    assert_eq!((&cut.file, cut.offset, lost.synced.0), (&first, offset, u64::from(GROUPS)));
    // The damaged group's header is intact.
    assert_eq!((cut.groups, cut.records, cut.bytes), (40, 40, 40 * 100));
    assert!(lost.to_string().contains(&first), "{lost}");
    log.append(&[77; 40]).unwrap();
    log.sync_now().unwrap();
    drop(log);
    let (_, recovered, found) = open(&disk).unwrap();
    assert_eq!((recovered.lost, recovered.cut), (None, None), "what was accepted is over");
    assert_eq!(found, [content(20), vec![77; 40]].concat());
}

#[test]
fn a_recovery_that_accepts_may_die_at_every_step() {
    let accepting = LogOptions { accept_loss: true, ..options() };
    for step in 0..30 {
        for seed in 0..30 {
            let disk = synced();
            let first = segments(&disk).remove(0);
            disk.flip_bit(&first, 64 + 20 * 100 + 70, 2);
            let mount = disk.mount();
            disk.kill_after(step);
            let survived = Log::open(mount, &accepting, &mut |_| Ok(())).is_ok();
            disk.crash(&mut Rng::with_seed(seed));
            let outcome = open(&disk);
            assert!(!survived || outcome.is_ok(), "step {step}, seed {seed}: accepted, and refused again");
            if outcome.is_err() {
                open_with(&disk, &accepting)
                    .unwrap_or_else(|error| panic!("step {step}, seed {seed}: {error}"));
            }
            let (_, recovered, found) = open(&disk).unwrap();
            assert_eq!((recovered.last, found), (GroupNumber(20), content(20)), "step {step}, seed {seed}");
        }
    }
}

/// The tests are tested too: a recovery that looks at no mark serves with less than was acknowledged.
#[test]
fn a_recovery_that_ignores_marks_is_caught() {
    let options = LogOptions { mutants: Mutant::IgnoredMarks.into(), ..options() };
    let damages: [fn(&SimulatedDisk); 2] = [
        |disk| {
            let last = segments(disk).pop().unwrap();
            delete(disk, &last);
        },
        |disk| {
            let last = segments(disk).pop().unwrap();
            disk.overwrite(&last, 64, &[0; 4000]);
        },
    ];
    for damage in damages {
        let disk = synced();
        damage(&disk);
        let (_, recovered, _) = open_with(&disk, &options).unwrap();
        assert!(recovered.last.0 < u64::from(GROUPS) && recovered.lost.is_none());
    }
}
