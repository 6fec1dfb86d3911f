//! What transactions of branch keyspaces demand of states, on histories made by hand: what keeps a demand, and what breaks it.

use crate::anomalies::support::{GET, History, write};
use anabranch_checker::Constraint::{self, Any, Branching, NoBranching, Parent, SnapshotIsolation, State};
use anabranch_checker::{Check, Level, ROOT, check};

const OK: Option<&str> = Some("OK");

fn assert_good(history: &History) {
    let report = check(&history.0, Level::Branch);
    assert!(report.ok && !report.undecided, "{:#?}", report.violations);
}

fn assert_bad(history: &History, expected: Check, demand: &str) {
    let report = check(&history.0, Level::Branch);
    let found = report.violations.iter().find(|violation| violation.check == expected);
    let message = &found.unwrap_or_else(|| panic!("expected {expected:?}, found {report:#?}")).message;
    assert!(message.contains(&format!("demanded to {demand}")), "{message}");
}

/// Two branches of site 1: session 1, which chooses its states, made `1@1.1` and `2@1.1`, one below the other; session 2
/// made `3@1.1` below the empty keyspace.
fn two_branches() -> History {
    let mut history = History::default();
    history
        .transaction(1, 0, 10)
        .step("x", write("a"), OK)
        .states(&[ROOT], Some(("1@1.1", &[ROOT])))
        .demands(Some(Any), None);
    history.transaction(1, 20, 30).step("x", write("b"), OK).states(&["1@1.1"], Some(("2@1.1", &["1@1.1"])));
    history
        .transaction(2, 40, 50)
        .step("y", write("c"), OK)
        .states(&[ROOT], Some(("3@1.1", &[ROOT])))
        .demands(Some(Any), Some(Any));
    history
}

/// The same, and then a read of session 1.
fn begins(at: &str, demanded: Constraint) -> History {
    let mut history = two_branches();
    let seen = [(ROOT, "(nil)"), ("1@1.1", "\"a\""), ("2@1.1", "\"b\""), ("3@1.1", "(nil)")];
    let seen = seen.iter().find(|(state, _)| *state == at).map(|(_, seen)| *seen);
    history.transaction(1, 60, 70).step("x", GET, seen).states(&[at], None).demands(Some(demanded), None);
    history
}

/// The same, and then a blind write of session 1 that read `1@1.1`.
fn ends(key: &str, below: &str, demanded: Constraint) -> History {
    let mut history = two_branches();
    history
        .transaction(1, 60, 70)
        .step(key, write("d"), None)
        .states(&["1@1.1"], Some(("4@1.1", &[below])))
        .demands(Some(Any), Some(demanded));
    history
}

#[test]
fn a_session_may_begin_elsewhere_if_it_says_so() {
    assert_good(&two_branches());
    for at in [ROOT, "1@1.1", "2@1.1", "3@1.1"] {
        assert_good(&begins(at, Any));
        assert_good(&begins(at, State(at.to_owned())));
    }
    assert_bad(&begins("3@1.1", Constraint::Ancestor), Check::Session, "begin at ANCESTOR");
    assert_bad(&begins("3@1.1", State("2@1.1".into())), Check::Session, "begin at STATE 2@1.1");
    assert_good(&begins("2@1.1", Parent));
    assert_bad(&begins("1@1.1", Parent), Check::Session, "begin at PARENT");
}

#[test]
fn what_a_session_had_not_chosen_itself_may_be_anothers() {
    let mut history = begins("1@1.1", Parent);
    // As long as it shares a thread, what it committed last is not what the thread did.
    history.0[0].constraints = None;
    assert_good(&history);
}

#[test]
fn a_state_has_the_children_that_its_site_has_answered_for() {
    assert_good(&begins("2@1.1", Branching(1)));
    assert_good(&begins("1@1.1", Branching(2)));
    assert_bad(&begins("1@1.1", Branching(1)), Check::Session, "begin at K 1");
    assert_good(&begins(ROOT, Branching(3)));
    assert_bad(&begins(ROOT, Branching(2)), Check::Session, "begin at K 2");
    // Its client had no answer yet.
    let mut history = begins(ROOT, Branching(2));
    history.0[2].responded = Some(65);
    assert_good(&history);
}

#[test]
fn joined_demands_hold_together_or_one_of_them() {
    let joined = || vec![Parent, State("1@1.1".into())];
    assert_good(&begins("1@1.1", Constraint::Either(joined())));
    assert_bad(
        &begins("1@1.1", Constraint::All(joined())),
        Check::Session,
        "begin at PARENT AND STATE 1@1.1",
    );
    let unknown = vec![Parent, NoBranching];
    assert_good(&begins("1@1.1", Constraint::Either(unknown)));
}

#[test]
fn a_transaction_ends_where_it_may() {
    for below in ["1@1.1", "2@1.1"] {
        assert_good(&ends("x", below, Any));
        assert_good(&ends("y", below, SnapshotIsolation));
    }
    assert_good(&ends("x", "1@1.1", SnapshotIsolation));
    assert_bad(&ends("x", "2@1.1", SnapshotIsolation), Check::Order, "commit below SNAPSHOT");
    assert_good(&ends("x", "2@1.1", NoBranching));
    assert_bad(&ends("x", "1@1.1", NoBranching), Check::Order, "commit below NOBRANCH");
    assert_bad(&ends("x", "1@1.1", Branching(1)), Check::Order, "commit below K 1");
    assert_good(&ends("x", "1@1.1", Branching(2)));
    assert_good(&ends("x", "2@1.1", Parent));
    assert_bad(&ends("x", "1@1.1", Parent), Check::Order, "commit below PARENT");
    assert_bad(&ends("x", "1@1.1", State("2@1.1".into())), Check::Order, "commit below STATE 2@1.1");
}

#[test]
fn replies_hold_below_where_a_transaction_commits_if_it_is_serializable() {
    let history = |demanded: Option<Constraint>| {
        let mut history = two_branches();
        history
            .transaction(1, 60, 70)
            .step("x", GET, Some("\"a\""))
            .step("y", write("d"), OK)
            .states(&["1@1.1"], Some(("4@1.1", &["2@1.1"])))
            .demands(Some(Any), demanded);
        history
    };
    for demanded in [Any, Constraint::ReadCommitted, SnapshotIsolation] {
        assert_good(&history(Some(demanded)));
    }
    for demanded in [None, Some(Constraint::Serializability)] {
        let report = check(&history(demanded).0, Level::Branch);
        assert!(report.violations.iter().any(|it| it.check == Check::Replies), "{report:#?}");
    }
}

#[test]
fn what_was_given_up_may_have_read_on_another_way_down() {
    let mut history = two_branches();
    history.transaction(1, 60, 70).step("x", GET, Some("\"b\"")).states(&["2@1.1"], None);
    let given_up = |history: &mut History, demanded| {
        history.transaction(1, 80, 90).demands(Some(demanded), None).aborted();
        history.transaction(1, 100, 110).step("x", GET, Some("\"b\"")).states(&["2@1.1"], None);
    };
    given_up(&mut history, Any);
    given_up(&mut history, Constraint::Ancestor);
    assert_good(&history);
    // What the session committed binds it even so.
    history.transaction(1, 120, 130).step("x", GET, Some("\"a\"")).states(&["1@1.1"], None);
    let report = check(&history.0, Level::Branch);
    assert!(report.violations.iter().any(|it| it.check == Check::Session), "{report:#?}");
}
