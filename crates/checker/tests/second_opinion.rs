//! Random small histories: what claims prove, what is inferred, what a search finds and what the definitions say must
//! agree wherever two of them speak.

use anabranch_checker::{
    Bytes, Claim, Commit, Key, Level, Outcome, SearchOutcome, Step, Transaction, check, holds_by_claims,
    holds_by_definition, infer, search_serial_order, search_strict_order,
};
use datatypes::register::{self, Condition, Deadline, SetReply};
use datatypes::{Effect, Operation};
use proptest::prelude::*;
use proptest::strategy::ValueTree;

/// One step of a plan: a key, and for a read how many versions it lags behind.
#[derive(Clone, Debug)]
enum Planned {
    Read(usize, usize),
    Write(usize),
    /// A write that asks for the value that it replaces, and gets one that lags behind.
    Swap(usize, usize),
}

#[derive(Clone, Debug)]
struct PlannedTransaction {
    session: u64,
    begin: u64,
    length: u64,
    outcome: Outcome,
    /// How far the claimed place is from the order of the plan.
    shift: u64,
    steps: Vec<Planned>,
}

fn step() -> impl Strategy<Value = Planned> {
    // Mostly fresh reads, so that many histories are good ones.
    let lag = prop_oneof![6 => Just(0usize), 2 => Just(1), 1 => 2usize..4];
    prop_oneof![
        (0usize..2, lag.clone()).prop_map(|(key, lag)| Planned::Read(key, lag)),
        (0usize..2).prop_map(Planned::Write),
        (0usize..2, lag).prop_map(|(key, lag)| Planned::Swap(key, lag)),
    ]
}

fn transaction() -> impl Strategy<Value = PlannedTransaction> {
    let outcome = prop_oneof![
        12 => Just(Outcome::Committed),
        1 => Just(Outcome::Unknown),
        1 => Just(Outcome::Aborted)
    ];
    let shift = prop_oneof![6 => Just(0u64), 1 => 1u64..30];
    (0u64..3, 0u64..25, 1u64..30, outcome, shift, prop::collection::vec(step(), 1..4)).prop_map(
        |(session, begin, length, outcome, shift, steps)| PlannedTransaction {
            session,
            begin,
            length,
            outcome,
            shift,
            steps,
        },
    )
}

fn set(value: &str, reply: SetReply) -> Operation<'_> {
    let (condition, deadline) = (Condition::Always, Deadline::Clear);
    Operation::Register(register::Operation::Set { value: value.as_bytes(), deadline, condition, reply })
}

fn bytes(encode: impl FnOnce(&mut Vec<u8>)) -> Bytes {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    Bytes(bytes)
}

/// A history as the plan says; sessions are one after another, values are unique.
fn history(plan: &[PlannedTransaction]) -> Vec<Transaction> {
    let mut values: [Vec<String>; 2] = Default::default();
    let mut free = [0u64; 3];
    let mut history = Vec::new();
    for (index, planned) in plan.iter().enumerate() {
        let number = index as u64 + 1;
        let invoked = (number * 10 + planned.begin).max(free[planned.session as usize] + 1);
        let responded = invoked + planned.length;
        free[planned.session as usize] = responded;
        let (mut steps, mut effects) = (Vec::new(), Vec::new());
        for step in &planned.steps {
            let (Planned::Read(key, _) | Planned::Write(key) | Planned::Swap(key, _)) = step;
            let name = Key(vec![b'x' + *key as u8]);
            let seen = |lag: usize| match values[*key].len().checked_sub(lag + 1) {
                Some(index) => format!("\"{}\"", values[*key][index]),
                None => "(nil)".to_owned(),
            };
            let value = format!("{number}.{}", steps.len());
            let (operation, reply) = match step {
                Planned::Read(_, lag) => (Operation::Register(register::Operation::Get), seen(*lag)),
                Planned::Write(_) => (set(&value, SetReply::Status), "OK".to_owned()),
                Planned::Swap(_, lag) => (set(&value, SetReply::Old), seen(*lag)),
            };
            let known = planned.outcome == Outcome::Committed;
            if !operation.is_read() {
                let effect = register::Effect::Set { value: value.as_bytes(), deadline: Deadline::Clear };
                effects.push((name.clone(), bytes(|out| Effect::Register(effect).encode(out))));
            }
            let is_write = !operation.is_read();
            steps.push(Step {
                key: name,
                operation: bytes(|out| operation.encode(out)),
                text: String::new(),
                blind: false,
                reply: known.then_some(reply),
                state: None,
            });
            if is_write {
                values[*key].push(value);
            }
        }
        let commit = (planned.outcome != Outcome::Aborted).then_some(Commit {
            at: number * 10 + planned.shift,
            depends_on: 0,
            region: 0,
        });
        let claim = Claim {
            transaction: [1, 1, number],
            commit,
            snapshot: None,
            effects,
            vector: None,
            thread: None,
            branch: None,
        };
        history.push(Transaction {
            number,
            session: planned.session,
            invoked,
            responded: (planned.outcome != Outcome::Unknown).then_some(responded),
            outcome: planned.outcome,
            steps,
            claim: Some(claim),
            follows: None,
            thread: None,
            given_up: false,
            loss_reported: false,
            constraints: None,
            at_rest: false,
        });
    }
    history
}

const LEVELS: [Level; 6] = [
    Level::StrictSerializable,
    Level::Serializable,
    Level::Snapshot,
    Level::TransactionalCausal,
    Level::Causal,
    Level::ReadAtomic,
];
const SESSIONS: [Level; 4] =
    [Level::ReadYourWrites, Level::MonotonicReads, Level::MonotonicWrites, Level::WritesFollowReads];
/// Whoever holds the first holds the second.
const IMPLIED: [(Level, Level); 9] = [
    (Level::StrictSerializable, Level::Serializable),
    (Level::Serializable, Level::Snapshot),
    (Level::Snapshot, Level::TransactionalCausal),
    (Level::TransactionalCausal, Level::Causal),
    (Level::TransactionalCausal, Level::ReadAtomic),
    (Level::TransactionalCausal, Level::ReadYourWrites),
    (Level::TransactionalCausal, Level::MonotonicReads),
    (Level::TransactionalCausal, Level::MonotonicWrites),
    (Level::TransactionalCausal, Level::WritesFollowReads),
];

/// What was seen of a case: how often claims proved a level, and how often one was refused.
fn judge(history: &[Transaction]) -> (usize, usize) {
    let unclaimed: Vec<Transaction> =
        history.iter().cloned().map(|transaction| Transaction { claim: None, ..transaction }).collect();
    let inferred = |level: Level| infer(&unclaimed, level);
    let (mut proven, mut refused) = (0, 0);
    for level in LEVELS.into_iter().chain(SESSIONS) {
        let verdict = inferred(level);
        refused += usize::from(verdict == Some(false));
        if holds_by_claims(history, level) {
            proven += 1;
            assert_ne!(verdict, Some(false), "{level}: claims prove it, inference refuses it");
        }
        if let (Some(inferred), Some(defined)) = (verdict, holds_by_definition(&unclaimed, level)) {
            assert_eq!(inferred, defined, "{level}: inference and definition");
        }
        // Every one of these is small enough to be decided.
        assert_eq!(verdict.is_none(), check(&unclaimed, level).undecided);
    }
    for (stronger, weaker) in IMPLIED {
        let contradiction = inferred(stronger) == Some(true) && inferred(weaker) == Some(false);
        assert!(!contradiction, "{stronger} holds and {weaker} does not");
    }
    let searches = [
        (Level::StrictSerializable, search_strict_order(&unclaimed, 50_000)),
        (Level::Serializable, search_serial_order(&unclaimed, 50_000)),
    ];
    for (level, found) in searches {
        let found = matches!(found, SearchOutcome::Serial(_));
        assert_eq!(inferred(level), Some(found), "{level}: inference and search");
    }
    (proven, refused)
}

#[test]
fn four_opinions_agree() {
    let mut runner = proptest::test_runner::TestRunner::default();
    let plans = prop::collection::vec(transaction(), 2..6);
    let (mut proven, mut refused) = (0, 0);
    for _ in 0..1000 {
        let plan = plans.new_tree(&mut runner).expect("the strategy has no filter").current();
        let history = history(&plan);
        let result = std::panic::catch_unwind(|| judge(&history));
        let (more_proven, more_refused) =
            result.unwrap_or_else(|_| panic!("the plan was {plan:#?}, the history {history:#?}"));
        proven += more_proven;
        refused += more_refused;
    }
    // The cases must reach both ends.
    assert!(proven > 500 && refused > 500, "{proven} proven, {refused} refused");
}
