//! The lock table, without phases first.

mod circles;
mod elements;
mod phases;

use super::*;
use types::Timestamp;

const NOW: Instant = Instant(1);

fn table(phasing: Option<Phasing>) -> LockTable {
    LockTable::new(LockOptions { phasing, ..LockOptions::default() }, Mutants::default())
}

fn id(number: u64) -> TransactionId {
    TransactionId { number, ..TransactionId::default() }
}

fn age(number: u64) -> Stamp {
    Stamp { at: Timestamp(number), transaction: id(number) }
}

fn lock(table: &mut LockTable, number: u64, key: &str, mode: Mode) -> bool {
    let asker = Asker { id: id(number), age: age(number), votes: false, passes: false, now: NOW };
    table.lock(asker, key.as_bytes(), &mode.into())
}

#[test]
fn modes_that_commute_are_held_together() {
    let mut table = table(None);
    assert!(lock(&mut table, 1, "k", Mode::Increment));
    assert!(lock(&mut table, 2, "k", Mode::Increment));
    assert!(!lock(&mut table, 3, "k", Mode::Observe), "a younger reader waits");
    table.release(id(1));
    table.release(id(2));
    assert_eq!(table.take_ready(NOW), [id(3)]);
    assert!(lock(&mut table, 3, "k", Mode::Observe));
}

#[test]
fn an_older_transaction_wounds_a_younger_one_that_is_not_voted_for() {
    let mut table = table(None);
    assert!(lock(&mut table, 5, "k", Mode::Write));
    assert!(lock(&mut table, 3, "k", Mode::Write));
    assert_eq!(table.take_wounded(), [(id(5), b"k".to_vec().into_boxed_slice())]);
    table.make_firm(id(3));
    assert!(!lock(&mut table, 1, "k", Mode::Observe), "the oldest waits for what was voted for");
    assert!(table.take_wounded().is_empty());
}

#[test]
fn a_younger_reader_does_not_overtake_an_older_writer_that_waits() {
    let mut table = table(None);
    assert!(lock(&mut table, 1, "k", Mode::Observe));
    assert!(!lock(&mut table, 2, "k", Mode::Write));
    assert!(!lock(&mut table, 3, "k", Mode::Observe));
    table.release(id(1));
    assert_eq!(table.take_ready(NOW), [id(2)]);
    assert!(lock(&mut table, 2, "k", Mode::Write));
    assert!(!lock(&mut table, 3, "k", Mode::Observe));
}

#[test]
fn two_readers_that_want_to_write_do_not_deadlock() {
    let mut table = table(None);
    assert!(lock(&mut table, 1, "k", Mode::Observe));
    assert!(lock(&mut table, 2, "k", Mode::Observe));
    assert!(!lock(&mut table, 2, "k", Mode::Write));
    assert!(lock(&mut table, 1, "k", Mode::Write));
    assert_eq!(table.take_wounded().len(), 1);
    assert!(!table.protects(id(2), b"k", Mode::Observe));
}
