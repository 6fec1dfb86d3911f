//! A log on a disk that fails: what the journal retains, what is undone, and what may be revealed meanwhile.

#![allow(clippy::unwrap_used, reason = "a test's helpers are tests too")]

use super::*;
use crate::keyspace::{Keyspace, Locals};
use ::journal::{LogOptions, Piece, SimulatedDisk};
use datatypes::{Operation, register};
use protocol::model;
use protocol::{Durability, Input, KeyedOperation, NoReplies, Now, Protocol, Request};
use types::{HashSeed, Incarnation, KeyHash, ProcessId, RequestId, Rng, SessionId};

const KEYSPACE: KeyspaceId = KeyspaceId(7);

fn open(disk: &SimulatedDisk) -> (Journal, Vec<Vec<u8>>) {
    let options = LogOptions { segment_bytes: 64 << 10, ..LogOptions::default() };
    let mut found = Vec::new();
    let (log, _) = Log::open(disk.mount(), &options, &mut |piece| {
        if let Piece::Record { bytes, .. } = piece {
            found.push(bytes.to_vec());
        }
        Ok(())
    })
    .unwrap();
    (Journal::new(log, 0), found)
}

/// A keyspace that the process keeps by itself, of one partition.
fn keyspace() -> Arc<Keyspace> {
    let locals = Locals::new(ProcessId(1), Incarnation(1), HashSeed(1), 1, false);
    let options = model::Solo {
        process: 1,
        partitions: None,
        durability: Durability::Written,
        eviction: None,
        max_memory: None,
    };
    locals.begin(KeyspaceId(0), "0", &options);
    locals.of(KeyspaceId(0)).unwrap()
}

fn append(journal: &Journal, partition: u16, records: &[u8]) -> u64 {
    journal.append_replica(KEYSPACE, PartitionId(partition), records).0
}

/// A record of a replica as the log has it.
fn record(partition: u16, records: &[u8]) -> Vec<u8> {
    [&[CLUSTER_RECORDS, 7, 0], partition.to_le_bytes().as_slice(), records].concat()
}

/// Syncs all there is; says how far the log is durable.
fn sync(journal: &Journal) -> Durable {
    journal.write_out();
    while journal.sync() {}
    journal.durable()
}

fn set(keyspace: &Keyspace, journal: &Journal, value: &[u8]) -> bool {
    let operation = Operation::Register(register::Operation::Set {
        value,
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    });
    let operation = KeyedOperation { key: b"key", hash: KeyHash(0), operation, blind: false };
    let request = Request::One { session: SessionId(1), operation };
    let cell = &keyspace.partitions[0];
    let mut replica = cell.replica.lock();
    let mut batch = vec![Input::Request { id: RequestId(1), request }];
    replica.step(Now::default(), &mut batch, &mut Rng::with_seed(1), &mut NoReplies::default());
    journal.append(&mut [(cell, &mut replica)])
}

#[test]
fn records_of_replicas_are_retained_and_written_before_anything_else() {
    let disk = SimulatedDisk::new();
    let (journal, _) = open(&disk);
    append(&journal, 0, b"durable");
    let before = sync(&journal);
    let first = append(&journal, 0, b"first");
    append(&journal, 1, b"second");
    disk.set_capacity(Some(disk.used()));
    disk.fail_next_write(9);
    journal.write_out();
    assert!(journal.is_suspended() && journal.failures() == 1 && journal.has_failed(first));
    let later = append(&journal, 0, b"third");
    assert!(later > first, "no group number is used twice");
    assert_eq!((sync(&journal), journal.open_group()), (before, GroupNumber(later)));
    assert!(matches!(journal.begin_checkpoint(), Err(LogError::Suspended)));

    disk.fail_next_write(0);
    assert!(!journal.retry() && journal.is_suspended());
    append(&journal, 1, b"fourth");
    assert_eq!(sync(&journal), before);
    disk.heal();
    assert!(journal.retry() && !journal.is_suspended());
    assert!(journal.durable().written >= later && journal.durable().synced == before.synced);
    assert!(append(&journal, 0, b"fifth") > journal.durable().written);
    sync(&journal);
    disk.crash(&mut Rng::with_seed(1));
    let appended = [(0, "durable"), (0, "first"), (1, "second"), (0, "third"), (1, "fourth"), (0, "fifth")];
    let expected: Vec<_> = appended.map(|(partition, text)| record(partition, text.as_bytes())).into();
    assert_eq!(open(&disk).1, expected);
}

/// A group of the retry is written and synced, the next one is refused: none of it counts before all of it does.
#[test]
fn retained_records_count_when_all_are_written() {
    let disk = SimulatedDisk::new();
    let (journal, _) = open(&disk);
    append(&journal, 0, b"durable");
    let before = sync(&journal);
    let records: Vec<Vec<u8>> = (0..12).map(|number| vec![number; RETRY_GROUP_BYTES / 3]).collect();
    disk.set_capacity(Some(disk.used()));
    let mut groups = vec![append(&journal, 0, &records[0])];
    journal.write_out();
    assert!(journal.is_suspended());
    groups.extend(records[1..].iter().map(|record| append(&journal, 0, record)));
    assert!(groups.is_sorted());
    let mut partly = 0;
    for room in 1.. {
        disk.set_capacity(Some(disk.used() + room * 200_000));
        let written = journal.with_log(|log| log.written().0);
        let healed = journal.retry();
        partly += u64::from(!healed && journal.with_log(|log| log.written().0) > written);
        if healed {
            break;
        }
        assert_eq!(sync(&journal), before);
    }
    assert!(partly > 0, "some retry wrote a part");
    assert!(groups.iter().all(|group| *group <= journal.durable().written));
    disk.heal();
    assert_eq!(sync(&journal).synced, journal.durable().written);
    disk.crash(&mut Rng::with_seed(1));
    let expected: Vec<_> =
        std::iter::once(b"durable".to_vec()).chain(records).map(|appended| record(0, &appended)).collect();
    assert!(open(&disk).1 == expected, "each record once, in order");
}

#[test]
fn of_a_group_with_both_kinds_solo_records_are_undone_and_replicas_records_are_retained() {
    let disk = SimulatedDisk::new();
    let (journal, _) = open(&disk);
    let keyspace = keyspace();
    append(&journal, 3, b"before");
    assert!(set(&keyspace, &journal, b"undone"));
    append(&journal, 3, b"after");
    assert_eq!(keyspace.len(), 1);
    disk.fail_next_write(20);
    journal.write_out();
    assert_eq!(keyspace.len(), 0);
    append(&journal, 3, b"kept");
    set(&keyspace, &journal, b"refused");
    assert_eq!(keyspace.len(), 0);

    assert!(journal.retry());
    keyspace.partitions[0].replica.lock().protocol_mut().log_healed();
    assert!(set(&keyspace, &journal, b"taken"));
    assert_eq!(keyspace.len(), 1);
    sync(&journal);
    let found = open(&disk).1;
    assert_eq!(found[..3], [record(3, b"before"), record(3, b"after"), record(3, b"kept")]);
    assert_eq!((found.len(), found[3][0]), (4, SOLO_RECORDS));
}
