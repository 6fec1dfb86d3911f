//! The results of single commands, retained as long as their outcomes, and the state that leaders evaluate on.

use super::super::single::part;
use super::*;
use crate::Invoked;
use datatypes::{Items, list, register};
use proptest::collection::vec;
use proptest::proptest;

fn id(number: u64) -> TransactionId {
    TransactionId { number, ..TransactionId::default() }
}

/// Evaluates an increment, and applies it as the entry of this number.
fn increment(machine: &mut Machine, number: u64, floor: u64) {
    let operation = Operation::Register(register::Operation::Increment { by: 1 });
    let question = Question { key: b"k", operation: &operation, own: &[], now_millis: 1 };
    let evaluation = machine.evaluate(&question, None, &mut Rng::with_seed(1)).expect("well-formed");
    apply_run(machine, number, floor, &evaluation);
}

/// Applies what a single command comes to, as the entry of its number.
fn apply_run(machine: &mut Machine, number: u64, floor: u64, evaluation: &Evaluation) {
    let part = part(vec![0], std::iter::once(&b"k"[..]), std::slice::from_ref(evaluation));
    let results =
        vec![SingleResult { result: evaluation.result.clone(), expired: evaluation.expiry.is_some() }];
    let entry = Entry::Run { transaction: id(number), floor, at: Timestamp(number), part, results };
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
    let result = |machine: &Machine, number| {
        let (_, evaluations) = machine.results(id(number))?;
        evaluations.into_iter().next().map(|evaluation| evaluation.result)
    };
    assert_eq!([1, 2, 3].map(|number| result(&machine, number)), [1, 2, 3].map(integer).map(Some));
    let mut chunk = Vec::new();
    assert!(machine.save(0, &mut chunk).is_some());
    assert_eq!(result(&restored(&chunk), 2), Some(integer(2)));
    increment(&mut machine, 4, 3);
    assert_eq!([1, 2].map(|number| result(&machine, number)), [None, None]);
    assert_eq!([3, 4].map(|number| result(&machine, number)), [3, 4].map(integer).map(Some));
}

/// Of several in one entry each gets its own again, with the deletion of what had expired where it was.
#[test]
fn results_of_one_entry_are_distinct() {
    let mut machine = Machine::new(HashSeed(1), false);
    let delete = encoded(&Effect::DELETE);
    let evaluation = |number: i64, effect: Option<&[u8]>, expired: bool| {
        let (result, effect) = (integer(number), effect.map(Box::from));
        let expiry = expired.then(|| delete.clone());
        Evaluation { result, effect, version: 0, expires_at: 0, expiry }
    };
    let all = [(1, None, false), (2, Some(&*delete), true), (3, Some(&*delete), false), (4, None, true)];
    let all = all.map(|(number, effect, expired)| evaluation(number, effect, expired)).to_vec();
    let single_result =
        |one: &Evaluation| SingleResult { result: one.result.clone(), expired: one.expiry.is_some() };
    let (part, results) =
        (part(vec![0], std::iter::repeat(&b"k"[..]), &all), all.iter().map(single_result).collect());
    let mut bytes = Vec::new();
    Entry::Run { transaction: id(1), floor: 1, at: Timestamp(1), part, results }.encode(&mut bytes);
    machine.apply(1, &bytes);
    assert_eq!(machine.results(id(1)), Some((Timestamp(1), all)));
}

/// Tables of earlier versions end with the outcomes.
#[test]
fn tables_without_results_are_read() {
    let mut chunk = Vec::new();
    assert!(Machine::new(HashSeed(1), false).save(0, &mut chunk).is_some());
    assert_eq!(chunk.pop(), Some(0), "there are none");
    assert!(restored(&chunk).outcomes().is_empty());
}

/// Applies a transaction's part, as the entry of its number.
fn apply_part(machine: &mut Machine, number: u64, part: &Part) {
    let part = Some(part.clone());
    let entry = Entry::Commit { transaction: id(number), floor: 1, at: Timestamp(number), part };
    let mut bytes = Vec::new();
    entry.encode(&mut bytes);
    machine.apply(number, &bytes);
}

/// What is on its way.
enum Waiting {
    Single(Evaluation),
    Part(Part),
}

/// A leader that carries out transactions on one key, and one to which each is applied at once.
struct Leads {
    lags: Machine,
    unapplied: Unapplied,
    on_their_way: std::collections::VecDeque<(u64, Waiting)>,
    at_once: Machine,
    number: u64,
}

impl Leads {
    fn new() -> Self {
        let [lags, at_once] = [0; 2].map(|_| Machine::new(HashSeed(1), false));
        let unapplied = Unapplied::default();
        Leads { lags, unapplied, on_their_way: Default::default(), at_once, number: 0 }
    }

    /// Evaluates an operation behind what is on its way, and behind the asker's own effects.
    fn evaluate(&mut self, operation: &Operation<'_>, own: &[Box<[u8]>], now_millis: u64) -> Evaluation {
        let question = Question { key: b"k", operation, own, now_millis };
        let random = &mut Rng::with_seed(1);
        let unapplied = self.unapplied.on(b"k");
        let found = self.lags.evaluate(&question, unapplied, random).expect("well-formed");
        let expected = self.at_once.evaluate(&question, None, random).expect("well-formed");
        assert_eq!(found, expected, "{operation:?}");
        found
    }

    /// Evaluates a single command, and puts it behind what is on its way.
    fn run(&mut self, operation: &Operation<'_>, now_millis: u64) {
        let found = self.evaluate(operation, &[], now_millis);
        self.number += 1;
        apply_run(&mut self.at_once, self.number, 1, &found);
        self.unapplied.add(id(self.number), b"k", &found);
        self.unapplied.proposed(id(self.number), smallvec::smallvec![&b"k"[..]], self.number);
        self.on_their_way.push_back((self.number, Waiting::Single(found)));
    }

    /// The same with a transaction of two steps.
    fn commit(&mut self, operations: [&Operation<'_>; 2], now_millis: u64) {
        let mut effects: Vec<Box<[u8]>> = Vec::new();
        for operation in operations {
            let found = self.evaluate(operation, &effects, now_millis);
            if effects.is_empty() {
                effects.extend(found.expiry.clone());
            }
            effects.extend(found.effect);
        }
        self.number += 1;
        let invoked = |effect| Invoked {
            key: (*b"k").as_slice().into(),
            operation: None,
            effect: Some(effect),
            observed: None,
        };
        let invocations = effects.into_iter().map(invoked).collect();
        let part = Part { participants: vec![0], invocations, ..Part::default() };
        apply_part(&mut self.at_once, self.number, &part);
        self.unapplied.add_part(id(self.number), &part, self.number);
        self.on_their_way.push_back((self.number, Waiting::Part(part)));
    }

    /// The oldest entries are applied.
    fn apply(&mut self, count: usize) {
        for _ in 0..count {
            let Some((number, waiting)) = self.on_their_way.pop_front() else { return };
            match waiting {
                Waiting::Single(evaluation) => apply_run(&mut self.lags, number, 1, &evaluation),
                Waiting::Part(part) => apply_part(&mut self.lags, number, &part),
            }
            self.unapplied.applied(id(number), true);
        }
    }

    /// True if the leader caches the state behind the entries in flight.
    fn keeps_state(&self) -> bool {
        self.unapplied.by_key.get(&b"k"[..]).is_some_and(|unapplied| unapplied.state.is_some())
    }
}

fn push(value: &[u8]) -> Operation<'_> {
    let (end, values) = (list::End::Front, Items::one(value));
    Operation::List(list::Operation::Push { end, values, only_if_exists: false })
}

proptest! {
    /// Whatever has been applied meanwhile, each is evaluated as if all before it had been.
    #[test]
    fn who_comes_behind_others_sees_them(choices in vec((0u8..9, 0u8..12, 0usize..6), 1..120)) {
        let mut leads = Leads::new();
        let value = [7; 300];
        for (now, (choice, second, applied)) in (1_000..).zip(choices) {
            let deadline = register::Deadline::At { millis: now + 5 };
            let (condition, reply) = (register::Condition::Always, register::SetReply::Old);
            let set = register::Operation::Set { value: b"5", deadline, condition, reply };
            let operation = |choice| match choice {
                0..4 => push(&value),
                4 => Operation::List(list::Operation::Pop { end: list::End::Back, count: None }),
                5 => Operation::Register(register::Operation::GetDelete),
                6 => Operation::Register(set.clone()),
                _ => Operation::Register(register::Operation::Increment { by: 1 }),
            };
            match second {
                0..9 => leads.commit([&operation(choice), &operation(second)], now),
                _ => leads.run(&operation(choice), now),
            }
            leads.apply(if applied > 4 { usize::MAX } else { applied.saturating_sub(2) });
        }
    }
}

/// The value is copied when repeating what is on its way has cost as much, and not for few; a large one that shares nothing with
/// its copies never.
#[test]
fn the_state_is_cached_where_many_entries_are_in_flight() {
    let mut leads = Leads::new();
    let increment = Operation::Register(register::Operation::Increment { by: 1 });
    leads.run(&increment, 1);
    assert!(!leads.keeps_state(), "nothing is before it");
    leads.run(&increment, 1);
    assert!(leads.keeps_state());
    leads.apply(1);
    assert!(leads.keeps_state(), "one is on its way still");
    leads.apply(1);
    assert!(!leads.keeps_state());
    type Longer = for<'a> fn(&'a [u8]) -> Operation<'a>;
    let append: Longer = |value| Operation::Register(register::Operation::Append { value });
    let cases: [(Longer, usize, bool); 3] =
        [(push, 100_000, true), (push, 2_000_000, true), (append, 2_000_000, false)];
    for (longer, bytes, copied) in cases {
        let mut leads = Leads::new();
        leads.run(&longer(&vec![7; bytes]), 1);
        leads.apply(1);
        (0..10).for_each(|_| leads.run(&longer(b"v"), 1));
        assert!(!leads.keeps_state(), "45 were repeated");
        (0..20).for_each(|_| leads.run(&longer(b"v"), 1));
        assert_eq!(leads.keeps_state(), copied, "435 were");
    }
}
