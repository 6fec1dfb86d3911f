//! Lists of lost writes that leave one out or invent one.

use crate::anomalies::support::History;
use anabranch_checker::{Bytes, Key, ListedLoss, Violation, check_losses};
use datatypes::merge::LostPart;
use datatypes::register::Deadline;
use datatypes::{Effect, Items, key, list, register, set};
use std::collections::BTreeMap;
use types::{Incarnation, ProcessId, Timestamp, TransactionId, Wire};

/// A write at a time in a region, which had observed the other region's up to another time.
fn writes(history: &mut History, region: u16, at: u64, depends_on: u64, effect: &Effect<'_>) {
    history.transaction(u64::from(region), at, at + 1).committed(region, at, depends_on);
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    let last = history.0.last_mut().and_then(|transaction| transaction.claim.as_mut());
    last.expect("just claimed").effects.push((Key(b"k".to_vec()), Bytes(bytes)));
}

fn push(value: &str) -> Effect<'_> {
    Effect::List(list::Effect::Push { end: list::End::Back, values: Items::one(value.as_bytes()) })
}

fn replace(index: u64, value: &str) -> Effect<'_> {
    Effect::List(list::Effect::Put { index, value: value.as_bytes() })
}

const POP: Effect<'static> = Effect::List(list::Effect::Pop { end: list::End::Front, count: 1 });

fn set_to(value: &str) -> Effect<'_> {
    Effect::Register(register::Effect::Set { value: value.as_bytes(), deadline: Deadline::Clear })
}

/// What a region lists as lost of the transaction that committed at a time.
fn loss(number: u64, at: u64, part: &LostPart, value: &str, instead: &str) -> ListedLoss {
    let transaction = TransactionId { process: ProcessId(1), incarnation: Incarnation(1), number };
    let mut name = Vec::new();
    (Timestamp(at), transaction).encode(&mut name);
    part.encode(&mut name);
    ListedLoss { key: b"k".to_vec(), name, value: value.into(), instead: instead.into() }
}

fn violations(history: &History, listed: &[ListedLoss]) -> Vec<Violation> {
    check_losses(&history.0, &BTreeMap::from([(0, listed.to_vec())]), &|_, _| true, false)
}

/// Only this list is right.
fn assert_lost(history: &History, wanted: &[ListedLoss]) {
    assert!(violations(history, wanted).is_empty(), "{:?}", violations(history, wanted));
    if !wanted.is_empty() {
        assert!(!violations(history, &[]).is_empty(), "what is left out is noticed");
    }
    let invented = loss(1, 1, &LostPart::Value, "never", "written");
    assert!(!violations(history, &[wanted, &[invented]].concat()).is_empty(), "what is invented is noticed");
}

#[test]
fn an_element_that_two_regions_replace() {
    let mut history = History::default();
    writes(&mut history, 0, 1, 0, &push("o"));
    writes(&mut history, 0, 2, 0, &push("p"));
    writes(&mut history, 0, 10, 0, &replace(1, "a"));
    writes(&mut history, 1, 11, 5, &replace(0, "c"));
    assert_lost(&history, &[]);
    writes(&mut history, 1, 12, 5, &replace(1, "b"));
    assert_lost(&history, &[loss(3, 10, &LostPart::Element { index: 1 }, "a", "b")]);
}

#[test]
fn an_element_that_another_region_removes_whichever_is_earlier() {
    for (first, second) in [(10, 12), (12, 10)] {
        let mut history = History::default();
        writes(&mut history, 0, 1, 0, &push("o"));
        writes(&mut history, 0, first, 0, &replace(0, "a"));
        writes(&mut history, 1, second, 5, &POP);
        assert_lost(&history, &[loss(2, first, &LostPart::Element { index: 0 }, "a", "LPOP")]);
        // Who had seen it removes it knowingly.
        let mut history = History::default();
        writes(&mut history, 0, 1, 0, &push("o"));
        writes(&mut history, 0, 10, 0, &replace(0, "a"));
        writes(&mut history, 1, 12, 11, &POP);
        assert_lost(&history, &[]);
    }
}

#[test]
fn an_increment_beside_a_word_whichever_is_earlier() {
    for (first, second) in [(10, 12), (12, 10)] {
        let mut history = History::default();
        writes(&mut history, 0, 1, 0, &set_to("7"));
        writes(&mut history, 0, first, 0, &Effect::Register(register::Effect::Add { by: 5 }));
        writes(&mut history, 1, second, 5, &set_to("8"));
        assert_lost(&history, &[]);
        history.0.pop();
        writes(&mut history, 1, second, 5, &set_to("word"));
        assert_lost(&history, &[loss(2, first, &LostPart::Contents, "INCRBY 5", "word")]);
    }
}

#[test]
fn an_addition_that_goes_with_an_unseen_deadline_whichever_is_earlier() {
    let add = |member: &'static [u8]| Effect::Set(set::Effect::Add { members: Items::one(member) });
    let expire = |at| Effect::Key(key::Effect::SetDeadline(at));
    for (first, second) in [(10, 12), (12, 10)] {
        let mut history = History::default();
        writes(&mut history, 0, 1, 0, &add(b"a"));
        writes(&mut history, 0, first, 0, &add(b"b"));
        writes(&mut history, 1, second, 5, &expire(9000));
        let lost = loss(2, first, &LostPart::Deadline, "SADD b", "PEXPIREAT 9000");
        assert_lost(&history, &[lost]);
        // Who had seen the addition says for how long it stays.
        writes(&mut history, 0, 14, 0, &expire(8000));
        assert_lost(&history, &[]);
        // Who adds to what is to go anyway knows that it goes.
        let mut history = History::default();
        writes(&mut history, 0, 1, 0, &expire(8000));
        writes(&mut history, 0, first, 0, &add(b"b"));
        writes(&mut history, 1, second, 0, &expire(9000));
        assert_lost(&history, &[]);
    }
}
