//! What took effect without anybody's claim, beside what clients in doubt requested.

use crate::anomalies::support::{DELETE, GET, History, add, increment, write};
use anabranch_checker::{Check, Level, SearchOutcome, check, search_requested};
use datatypes::{Operation, set};

fn violations(history: &History) -> Vec<(Check, String)> {
    let report = check(&history.0, Level::StrictSerializable);
    assert!(!report.undecided);
    report.violations.into_iter().map(|violation| (violation.check, violation.message)).collect()
}

fn assert_unrequested(history: &History) {
    let found = violations(history);
    let is_meant = |(check, message): &(Check, String)| {
        *check == Check::Claims && message.contains("no client in doubt asked for that")
    };
    assert!(found.iter().any(is_meant), "{found:?}");
}

/// A client in doubt about writes of two keys, and what came of that: effects at a place that nobody claims.
fn in_doubt(came_of_it: &[(&str, &str)]) -> History {
    let mut history = History::default();
    let requested = history.transaction(1, 0, 10).step("x", write("a"), Some("OK"));
    requested.step("y", write("b"), Some("OK")).without_effects().unknown();
    let mut stray = history.transaction(9, 0, 10).at(5);
    for (key, value) in came_of_it {
        stray = stray.step(key, write(value), None);
    }
    stray.unrequested().unknown();
    history
}

#[test]
fn a_commit_of_unknown_outcome_takes_effect_on_all_its_shards_or_on_none() {
    assert_eq!(violations(&in_doubt(&[("x", "a"), ("y", "b")])), []);
    assert_unrequested(&in_doubt(&[("x", "a")]));
    assert_unrequested(&in_doubt(&[("y", "b")]));
}

#[test]
fn a_commit_of_unknown_outcome_has_the_requested_effects() {
    assert_unrequested(&in_doubt(&[("x", "a"), ("y", "c")]));
    assert_unrequested(&in_doubt(&[("x", "a"), ("y", "b"), ("z", "c")]));
}

/// An increment in doubt, and strays that add.
fn increments(in_doubt: &[i64], came_of_it: &[i64]) -> History {
    let mut history = History::default();
    for (session, by) in in_doubt.iter().enumerate() {
        let requested =
            history.transaction(session as u64, 0, 10).step("n", increment(*by), Some("(integer) 1"));
        requested.without_effects().unknown();
    }
    for (place, by) in came_of_it.iter().enumerate() {
        history
            .transaction(9, 0, 10)
            .step("n", increment(*by), None)
            .at(place as u64)
            .unrequested()
            .unknown();
    }
    history
}

#[test]
fn each_client_in_doubt_explains_one_stray() {
    assert_eq!(violations(&increments(&[1, 2], &[2, 1])), []);
    assert_unrequested(&increments(&[1], &[1, 1]));
    assert_unrequested(&increments(&[1], &[5]));
}

#[test]
fn what_several_ask_for_may_be_one_transaction() {
    assert_eq!(violations(&increments(&[1, 2, 4], &[5])), []);
    assert_unrequested(&increments(&[1, 2, 4], &[8]));
}

/// What a step does depends on the state on which the stray stands: there is nothing to delete, or to add.
#[test]
fn a_stray_is_looked_at_where_it_stands() {
    for there in [true, false] {
        let mut history = History::default();
        if there {
            history.transaction(2, 0, 10).step("s", add("m"), Some("(integer) 1")).at(1);
        }
        let requested = history.transaction(1, 20, 30).step("s", DELETE, Some("(integer) 1"));
        requested.step("y", write("b"), Some("OK")).without_effects().unknown();
        history.transaction(9, 0, 10).step("y", write("b"), None).at(25).unrequested().unknown();
        if there {
            assert_unrequested(&history);
        } else {
            assert_eq!(violations(&history), []);
        }
    }
}

/// Clocks differ: an addition with a lower place begins after something with a higher place has ended. The client in doubt found
/// the member there.
#[test]
fn a_stray_is_looked_at_behind_all_that_has_a_lower_place() {
    let mut history = History::default();
    history.transaction(2, 0, 10).step("z", write("a"), Some("OK")).at(20);
    history.transaction(3, 20, 30).step("s", add("m"), Some("(integer) 1")).at(5);
    let doubted = history.transaction(1, 0, 10).step("s", add("m"), Some("(integer) 0"));
    doubted.step("y", write("b"), Some("OK")).without_effects().unknown();
    history.transaction(9, 0, 10).step("y", write("b"), None).at(10).unrequested().unknown();
    assert_eq!(violations(&history), []);
}

#[test]
fn in_other_orders_too_no_key_and_no_plain_write_is_missing() {
    let causal = |came_of_it: &[(&str, &str)]| {
        let mut history = in_doubt(came_of_it);
        history.transaction(3, 20, 30).step("z", GET, Some("(nil)")).saw(0, 0, 0);
        let report = check(&history.0, Level::TransactionalCausal);
        report.violations.into_iter().map(|violation| violation.check).collect::<Vec<_>>()
    };
    assert_eq!(causal(&[("x", "a"), ("y", "b")]), []);
    assert_eq!(causal(&[("x", "a")]), [Check::Claims]);
    assert_eq!(causal(&[("x", "a"), ("y", "c")]), [Check::Claims]);
}

/// The search believes no effect: a request in doubt is executed, or not.
#[test]
fn a_search_of_requests_leaves_out_effects_without_a_request() {
    let read = |value: &str| {
        let mut history = in_doubt(&[("x", "a"), ("y", "c")]);
        history.transaction(2, 20, 30).step("y", GET, Some(value)).at(25);
        search_requested(&history.0, 1_000)
    };
    assert!(matches!(read("\"b\""), SearchOutcome::Serial(_)));
    assert_eq!(read("\"c\""), SearchOutcome::Impossible);
}

/// A client in doubt adds a member that is there already, another one deletes the set. That the addition did not take effect behind
/// that shows only at the end, behind 24 others in any order.
#[test]
fn a_search_does_not_come_back_to_what_changed_nothing_at_its_place() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("s", add("a"), Some("(integer) 1")).at(1);
    history.transaction(2, 20, 30).step("s", add("a"), None).at(2).without_effects().unknown();
    history.transaction(3, 40, 50).step("s", DELETE, Some("(integer) 1")).at(3);
    for place in 0..24 {
        history.transaction(4 + place, 60, 100).step("s", add(&place.to_string()), None).at(4 + place);
    }
    let contains = Operation::Set(set::Operation::Contains { member: b"a" });
    history.transaction(1, 110, 120).step("s", contains, Some("(integer) 0")).at(30);
    assert!(matches!(search_requested(&history.0, 1_000), SearchOutcome::Serial(_)));
}
