//! The second opinion on histories whose operations do not all name versions.

use anabranch_checker::{Bytes, Key, Level, Outcome, Step, Transaction, check, check_unclaimed, describe};
use datatypes::{Items, Operation, register, set};

const LEVEL: Level = Level::TransactionalCausal;

fn step(key: &str, operation: &Operation<'_>, reply: &str) -> Step {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    let (key, reply) = (Key(key.as_bytes().to_vec()), Some(reply.to_owned()));
    Step { key, operation: Bytes(bytes), text: describe(operation), blind: false, reply, state: None }
}

fn transaction(number: u64, session: u64, outcome: Outcome, steps: Vec<Step>) -> Transaction {
    let responded = (outcome != Outcome::Unknown).then_some(number * 10 + 5);
    Transaction {
        number,
        session,
        invoked: number * 10,
        responded,
        outcome,
        steps,
        claim: None,
        follows: None,
        thread: None,
        given_up: false,
        loss_reported: false,
        constraints: None,
        at_rest: false,
    }
}

/// Session 2 sees the member that session 1 added, and then these.
fn of_a_set(then: &str) -> Vec<Transaction> {
    let add = Operation::Set(set::Operation::Add { members: Items::one(b"m") });
    let members = Operation::Set(set::Operation::Members);
    let append = Operation::Register(register::Operation::Append { value: b"x" });
    vec![
        transaction(1, 1, Outcome::Committed, vec![step("s", &add, "(integer) 1")]),
        transaction(2, 2, Outcome::Committed, vec![step("s", &members, "{\"m\"}")]),
        transaction(3, 2, Outcome::Committed, vec![step("r", &append, "(integer) 1")]),
        transaction(4, 2, Outcome::Committed, vec![step("s", &members, then)]),
    ]
}

#[test]
fn a_member_that_was_seen_does_not_vanish() {
    let good = check_unclaimed(&of_a_set("{\"m\"}"), LEVEL);
    assert!(good.ok && !good.undecided, "{good:?}");
    let bad = check_unclaimed(&of_a_set("{}"), LEVEL);
    assert!(!bad.ok, "{bad:?}");
    assert!(bad.violations[0].message.contains("s"), "{bad:?}");
}

#[test]
fn where_no_write_names_a_version_nothing_is_decided() {
    let history = &of_a_set("{}")[2..3];
    let report = check_unclaimed(history, LEVEL);
    assert!(report.ok && report.undecided, "{report:?}");
}

/// As a simulated cluster claims of what took effect while its client was in doubt, and whose claim was taken away.
#[test]
fn transactions_without_steps_may_be_dropped() {
    let mut history = vec![
        transaction(1, 1, Outcome::Committed, vec![Step::set(b"x", b"a", true)]),
        transaction(2, 2, Outcome::Unknown, Vec::new()),
        transaction(3, 2, Outcome::Committed, vec![Step::get(b"x", Some(Some(b"a")))]),
    ];
    let report = check(&history, LEVEL);
    assert!(report.ok && !report.undecided, "{report:?}");
    history[2].steps[0] = Step::get(b"x", Some(Some(b"b")));
    assert!(!check(&history, LEVEL).ok);
}
