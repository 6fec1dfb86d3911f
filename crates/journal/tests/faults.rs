//! Full disks, I/O errors, failed syncs, large groups, recycled files, and the real disk.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use anabranch_journal::{
    DirectoryId, Disk, GroupNumber, Log, LogError, LogOptions, OpenError, Piece, RealDisk, Recovered,
    SimulatedDisk,
};
use std::sync::Arc;
use types::{Incarnation, Rng};

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        spare_segments: 2,
        fresh_id: DirectoryId(5),
        ..LogOptions::default()
    }
}

fn open(disk: Arc<dyn Disk>) -> (Log, Recovered, Vec<Vec<u8>>) {
    let mut found = Vec::new();
    let (log, recovered) = Log::open(disk, &options(), &mut |piece| {
        if let Piece::Record { bytes, .. } = piece {
            found.push(bytes.to_vec());
        }
        Ok(())
    })
    .unwrap();
    (log, recovered, found)
}

fn crash_and_open(disk: &SimulatedDisk) -> (Log, Recovered, Vec<Vec<u8>>) {
    disk.crash(&mut Rng::with_seed(3));
    open(disk.mount())
}

#[test]
fn a_full_disk_suspends_the_log_until_space_is_back() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    log.append(b"kept").unwrap();
    log.sync_now().unwrap();
    disk.set_capacity(Some(disk.used() + 4096));
    let lost = log.append(&[7; 12_000]).unwrap();
    let error = log.write_out().unwrap_err();
    assert!(matches!(error, LogError::NotWritten { group, .. } if group == lost));
    assert!(error.to_string().contains("segment-"), "{error}");
    assert!(log.is_suspended());
    assert!(matches!(log.append(b"refused"), Err(LogError::Suspended)));
    assert!(matches!(log.write_out(), Err(LogError::Suspended)));
    assert_eq!(log.written(), log.synced());

    disk.set_capacity(None);
    log.retry().unwrap();
    let next = log.append(b"after").unwrap();
    assert!(next > lost, "a number that failed is not used again");
    assert_eq!(log.sync_now().unwrap(), next);
    let (_, recovered, found) = crash_and_open(&disk);
    assert_eq!(found, [b"kept".to_vec(), b"after".to_vec()]);
    assert_eq!(recovered.last, next);
}

/// Wherever a first start ends, for want of space or because the process is killed, the next one succeeds.
#[test]
fn a_first_start_may_fail_anywhere() {
    for room in (0..20_000).step_by(500) {
        let disk = SimulatedDisk::new();
        disk.set_capacity(Some(room));
        let refused = Log::open(disk.mount(), &options(), &mut |_| Ok(())).err();
        disk.set_capacity(None);
        let (_, recovered, _) = open(disk.mount());
        assert_eq!(recovered.last, GroupNumber(0), "{room} bytes of room: {refused:?}");
    }
    for operations in 0..60 {
        let disk = SimulatedDisk::new();
        let mounted = disk.mount();
        disk.kill_after(operations);
        let killed = Log::open(mounted, &options(), &mut |_| Ok(())).err();
        disk.heal();
        let (_, recovered, _) = open(disk.mount());
        assert_eq!(recovered.last, GroupNumber(0), "after {operations} operations: {killed:?}");
    }
}

/// Wherever the disk fails to read, that is an error, and not the end of the log.
#[test]
fn a_disk_that_cannot_be_read_loses_nothing() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    let records: Vec<Vec<u8>> = (0..40).map(|number| vec![number; 1_500]).collect();
    for record in &records {
        log.append(record).unwrap();
        log.sync_now().unwrap();
    }
    let mut reads = 0;
    loop {
        disk.fail_read(reads);
        match Log::open(disk.mount(), &options(), &mut |_| Ok(())) {
            Err(OpenError::Disk(error)) => {
                assert!(error.to_string().contains("injected read error"), "{error}")
            }
            Err(error) => panic!("after {reads} reads: {error}"),
            Ok(_) => break,
        }
        reads += 1;
    }
    assert!(reads > 5, "several segments were to be read, not {reads} times");
    disk.heal();
    let (_, recovered, found) = open(disk.mount());
    assert_eq!((found, recovered.cut), (records, None));
}

/// Were a header's room enough, small writes would be taken and large ones refused in turn.
#[test]
fn a_retry_asks_for_as_much_as_was_refused() {
    // In this segment, and in one of its own.
    for bytes in [12_000, 50_000] {
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(disk.mount());
        log.append(b"kept").unwrap();
        log.sync_now().unwrap();
        let used = disk.used();
        disk.set_capacity(Some(used));
        log.append(&vec![7; bytes]).unwrap();
        assert!(matches!(log.write_out(), Err(LogError::NotWritten { .. })));
        for room in [0, 4096] {
            disk.set_capacity(Some(used + room));
            assert!(matches!(log.retry(), Err(LogError::Disk(_))), "{room} bytes for {bytes}");
            assert!(log.is_suspended());
        }
        disk.set_capacity(Some(used + 64_000));
        log.retry().unwrap();
        log.append(&vec![8; bytes]).unwrap();
        log.sync_now().unwrap();
        assert_eq!(crash_and_open(&disk).2, [b"kept".to_vec(), vec![8; bytes]]);
    }
}

/// For state that cannot be undone: its records are appended again, before anything newer, as often as it takes.
#[test]
fn refused_records_are_handed_back_once_and_can_be_appended_again() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    let records: Vec<Vec<u8>> = vec![b"first".to_vec(), Vec::new(), vec![3; 12_000], b"last".to_vec()];
    for record in &records {
        log.append(record).unwrap();
    }
    for _ in 0..3 {
        disk.fail_next_write(6_000);
        assert!(matches!(log.write_out(), Err(LogError::NotWritten { .. })));
        let refused = log.take_refused();
        assert_eq!(refused, records);
        assert_eq!(log.take_refused(), Vec::<Vec<u8>>::new());
        log.retry().unwrap();
        for record in &refused {
            log.append(record).unwrap();
        }
    }
    log.append(b"newer").unwrap();
    log.sync_now().unwrap();
    assert_eq!(crash_and_open(&disk).2, [records, vec![b"newer".to_vec()]].concat());
}

#[test]
fn a_retry_fails_as_long_as_the_disk_does() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    log.append(&[1; 600]).unwrap();
    disk.fail_next_write(100);
    assert!(matches!(log.write_out(), Err(LogError::NotWritten { .. })));
    disk.fail_next_write(0);
    assert!(matches!(log.retry(), Err(LogError::Disk(_))));
    assert!(log.is_suspended());
    log.retry().unwrap();
    log.append(b"after").unwrap();
    log.sync_now().unwrap();
    assert_eq!(crash_and_open(&disk).2, [b"after".to_vec()]);
}

#[test]
fn a_group_that_failed_whole_on_the_medium_stays_away_after_a_retry() {
    let disk = SimulatedDisk::new();
    for seed in 0..200 {
        let (mut log, _, before) = open(disk.mount());
        log.append(b"never promised").unwrap();
        disk.fail_next_write(usize::MAX);
        assert!(matches!(log.write_out(), Err(LogError::NotWritten { .. })));
        log.retry().unwrap();
        disk.crash(&mut Rng::with_seed(seed));
        assert_eq!(open(disk.mount()).2, before);
    }
}

#[test]
fn a_failed_sync_closes_the_log_for_good() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    log.append(b"kept").unwrap();
    log.sync_now().unwrap();
    log.append(b"written").unwrap();
    log.write_out().unwrap();
    let ticket = log.begin_sync().unwrap().unwrap();
    assert!(log.begin_sync().unwrap().is_none(), "one sync at a time");
    disk.fail_next_sync();
    let finished = ticket.sync();
    assert!(!finished.is_ok());
    assert!(matches!(log.finish_sync(finished), Err(LogError::SyncFailed(_))));
    assert!(log.is_closed());
    assert!(matches!(log.append(b"x"), Err(LogError::Closed)));
    assert!(matches!(log.write_out(), Err(LogError::Closed)));
    assert!(matches!(log.begin_sync(), Err(LogError::Closed)));
    assert!(matches!(log.retry(), Err(LogError::Closed)));
    assert!(matches!(log.begin_checkpoint(), Err(LogError::Closed)));
    assert!(matches!(log.set_incarnation(Incarnation(1)), Err(LogError::Closed)));
    assert_eq!(log.synced(), GroupNumber(1));
    assert!(matches!(log.close(), Err(LogError::Closed)));
    assert!(crash_and_open(&disk).2.starts_with(&[b"kept".to_vec()]));
}

/// What a failed sync left in the kernel can be read by the next process, but a sync there makes none of it durable:
/// recovery writes it once more before it calls it synced.
#[test]
fn what_a_failed_sync_left_is_durable_once_it_is_recovered() {
    for seed in 0..100 {
        let disk = SimulatedDisk::new();
        let (mut log, _, _) = open(disk.mount());
        log.append(&[1; 3000]).unwrap();
        log.sync_now().unwrap();
        // Enough for two segments.
        for byte in 2..6 {
            log.append(&[byte; 5000]).unwrap();
            log.write_out().unwrap();
        }
        disk.fail_next_sync();
        assert!(matches!(log.sync_now(), Err(LogError::SyncFailed(_))));
        drop(log);
        let (_, killed, found) = open(disk.mount());
        assert_eq!((killed.last, found.len()), (GroupNumber(5), 5), "a process that ends loses nothing");
        disk.crash(&mut Rng::with_seed(seed));
        let (_, recovered, again) = open(disk.mount());
        assert_eq!((recovered.last, again), (killed.last, found), "seed {seed}");
    }
}

#[test]
fn a_sync_runs_on_another_thread_while_the_log_takes_appends() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    let first = log.append(b"first").unwrap();
    log.write_out().unwrap();
    let ticket = log.begin_sync().unwrap().unwrap();
    assert_eq!(ticket.upto(), first);
    let flusher = std::thread::spawn(move || ticket.sync());
    let second = log.append(b"second").unwrap();
    log.write_out().unwrap();
    assert_eq!(log.finish_sync(flusher.join().unwrap()).unwrap(), first);
    assert_eq!((log.written(), log.synced()), (second, first));
    assert_eq!(log.sync_now().unwrap(), second);
    assert!(log.begin_sync().unwrap().is_none(), "nothing left to sync");
}

#[test]
fn what_is_appended_between_two_writes_is_one_group_and_a_dropped_record_leaves_no_trace() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    let group = log.append(b"a").unwrap();
    let mut dropped = log.record().unwrap();
    dropped.buffer().extend_from_slice(b"half");
    drop(dropped);
    assert_eq!(log.append_with(|buffer| buffer.extend_from_slice(b"b")).unwrap(), group);
    assert_eq!(log.append(b"").unwrap(), group);
    assert_eq!(log.sync_now().unwrap(), group);
    assert_eq!(log.open_bytes(), 0);
    assert_eq!(crash_and_open(&disk).2, [b"a".to_vec(), b"b".to_vec(), Vec::new()]);
}

#[test]
fn a_group_larger_than_a_segment_gets_a_larger_segment() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    let large = vec![9; 100_000];
    for record in [b"before".as_slice(), &large, b"after"] {
        log.append(record).unwrap();
        log.sync_now().unwrap();
    }
    assert_eq!(crash_and_open(&disk).2, [b"before".to_vec(), large, b"after".to_vec()]);
}

#[test]
fn an_orderly_end_is_known_and_the_incarnation_survives() {
    let disk = SimulatedDisk::new();
    let (mut log, recovered, _) = open(disk.mount());
    assert!(recovered.created);
    assert_eq!((log.directory_id(), recovered.id), (DirectoryId(5), DirectoryId(5)));
    log.set_incarnation(Incarnation(4)).unwrap();
    log.append(b"x").unwrap();
    log.close().unwrap();
    let (log, recovered, found) = open(disk.mount());
    assert!(recovered.clean_shutdown && !recovered.created && recovered.cut.is_none());
    assert_eq!((found, log.incarnation()), (vec![b"x".to_vec()], Incarnation(4)));
    drop(log);
    assert!(!open(disk.mount()).1.clean_shutdown, "the mark ends with the next opening");
}

#[test]
fn truncated_segments_are_used_again_and_their_number_is_bounded() {
    let disk = SimulatedDisk::new();
    let (mut log, _, _) = open(disk.mount());
    for round in 0..20u8 {
        for _ in 0..10 {
            log.append(&[round; 3000]).unwrap();
            log.sync_now().unwrap();
        }
        let checkpoint = log.begin_checkpoint().unwrap().finish().unwrap();
        log.install(checkpoint).unwrap();
        let files = disk.files();
        let count = |prefix| files.keys().filter(|name| name.starts_with(prefix)).count();
        assert_eq!((count("segment-"), count("checkpoint-")), (1, 1), "{files:?}");
        assert_eq!(count("spare-"), 2, "{files:?}");
    }
    assert!(crash_and_open(&disk).2.is_empty());
}

#[test]
fn the_real_disk_keeps_a_log_and_admits_one_process() {
    let directory = std::env::temp_dir().join(format!("anabranch-journal-{}", std::process::id()));
    let disk = Arc::new(RealDisk::open(&directory).unwrap());
    let error = RealDisk::open(&directory).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ResourceBusy);
    assert!(error.to_string().contains(&directory.display().to_string()), "{error}");
    let (mut log, _, _) = open(disk.clone());
    for round in 0..3u8 {
        for _ in 0..10 {
            log.append(&[round; 4000]).unwrap();
            log.sync_now().unwrap();
        }
        if round < 2 {
            let checkpoint = log.begin_checkpoint().unwrap().finish().unwrap();
            log.install(checkpoint).unwrap();
        }
    }
    drop(log);
    drop(disk);
    let (mut log, recovered, found) = open(Arc::new(RealDisk::open(&directory).unwrap()));
    assert_eq!((found, recovered.last), (vec![vec![2; 4000]; 10], GroupNumber(30)));
    log.close().unwrap();
    std::fs::remove_dir_all(&directory).unwrap();
}

#[test]
fn the_parts_move_between_threads() {
    fn sendable<T: Send>() {}
    sendable::<Log>();
    sendable::<anabranch_journal::SyncTicket>();
    sendable::<anabranch_journal::CheckpointWriter>();
    sendable::<anabranch_journal::Installation>();
}
