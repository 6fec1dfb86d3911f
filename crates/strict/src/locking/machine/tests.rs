//! What is kept of single commands: their results, as long as their outcomes.

use super::*;
use datatypes::register;

fn id(number: u64) -> TransactionId {
    TransactionId { number, ..TransactionId::default() }
}

/// Evaluates an increment, and applies it as the entry of this number.
fn increment(machine: &mut Machine, number: u64, floor: u64) {
    let operation = Operation::Register(register::Operation::Increment { by: 1 });
    let question = Question { key: b"k", operation: &operation, own: &[], now_millis: 1 };
    let evaluation = machine.evaluate_next(&question, &mut Rng::with_seed(1)).expect("well-formed");
    let part = super::super::single::part(0, b"k", &evaluation);
    let entry =
        Entry::Run { transaction: id(number), floor, at: Timestamp(number), part, result: evaluation.result };
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    machine.apply(number, &bytes);
}

fn integer(value: i64) -> ReplyBuf {
    let mut result = ReplyBuf::new();
    types::ReplySink::integer(&mut result, value);
    result
}

fn restored(chunk: &[u8]) -> Machine {
    let mut machine = Machine::new(HashSeed(1), false);
    machine.restore(chunk).expect("well-formed");
    machine
}

#[test]
fn results_are_known_until_nobody_asks_for_them() {
    let mut machine = Machine::new(HashSeed(1), false);
    (1..=3).for_each(|number| increment(&mut machine, number, 1));
    // The same entry again changes nothing.
    increment(&mut machine, 3, 1);
    let result = |machine: &Machine, number| machine.result(id(number)).map(|(_, it)| it.result);
    assert_eq!([1, 2, 3].map(|number| result(&machine, number)), [1, 2, 3].map(integer).map(Some));
    let mut chunk = Vec::new();
    assert!(machine.save(0, &mut chunk).is_some());
    assert_eq!(result(&restored(&chunk), 2), Some(integer(2)));
    increment(&mut machine, 4, 3);
    assert_eq!([1, 2].map(|number| result(&machine, number)), [None, None]);
    assert_eq!([3, 4].map(|number| result(&machine, number)), [3, 4].map(integer).map(Some));
}

/// Tables of earlier versions end with the outcomes.
#[test]
fn tables_without_results_are_read() {
    let mut chunk = Vec::new();
    assert!(Machine::new(HashSeed(1), false).save(0, &mut chunk).is_some());
    assert_eq!(chunk.pop(), Some(0), "there are none");
    assert!(restored(&chunk).outcomes().is_empty());
}
