//! Branch isolation, on histories made by hand: what a State DAG permits, and what breaks it.

use crate::anomalies::support::{GET, History, increment, write};
use anabranch_checker::{Check, Level, ROOT, check};

const OK: Option<&str> = Some("OK");

fn assert_good(history: &History) {
    let report = check(&history.0, Level::Branch);
    assert!(report.ok && !report.undecided, "{:#?}", report.violations);
}

fn assert_bad(history: &History, expected: Check) -> String {
    let report = check(&history.0, Level::Branch);
    let found = report.violations.iter().find(|violation| violation.check == expected);
    found.unwrap_or_else(|| panic!("expected {expected:?}, found {:#?}", report.violations)).message.clone()
}

/// Two sessions read the empty keyspace and write the same key: two branches, then nothing of the other is seen.
fn forked() -> History {
    let mut history = History::default();
    history
        .transaction(1, 0, 10)
        .step("x", GET, Some("(nil)"))
        .step("x", write("a"), OK)
        .states(&[ROOT], Some(("a1", &[ROOT])));
    history
        .transaction(2, 0, 10)
        .step("x", GET, Some("(nil)"))
        .step("x", write("b"), OK)
        .states(&[ROOT], Some(("b1", &[ROOT])));
    history.transaction(1, 20, 30).step("x", GET, Some("\"a\"")).states(&["a1"], None);
    history.transaction(2, 20, 30).step("x", GET, Some("\"b\"")).states(&["b1"], None);
    history
}

#[test]
fn branches_are_sequential_storage_each() {
    assert_good(&forked());
    let mut history = forked();
    history.transaction(1, 40, 50).step("x", GET, Some("\"b\"")).states(&["a1"], None);
    assert!(assert_bad(&history, Check::Replies).contains("state a1 gives \"a\""));
}

#[test]
fn a_session_does_not_leave_its_branch() {
    let mut history = forked();
    history.transaction(1, 40, 50).step("x", GET, Some("\"b\"")).states(&["b1"], None);
    assert!(assert_bad(&history, Check::Session).contains("does not include a1"));
    // Having read on a branch binds as well (Corrections 56).
    let mut history = forked();
    history.transaction(3, 40, 50).step("x", GET, Some("\"a\"")).states(&["a1"], None);
    history.transaction(3, 60, 70).step("x", GET, Some("\"b\"")).states(&["b1"], None);
    assert_bad(&history, Check::Session);
}

#[test]
fn a_transaction_may_ripple_down_where_its_results_still_hold() {
    let mut history = forked();
    history.transaction(1, 40, 50).step("y", write("c"), OK).states(&["a1"], Some(("a2", &["a1"])));
    history
        .transaction(3, 40, 50)
        .step("x", GET, Some("\"a\""))
        .step("z", write("d"), OK)
        .states(&["a1"], Some(("a3", &["a2"])));
    history.transaction(3, 60, 70).step("y", GET, Some("\"c\"")).states(&["a3"], None);
    assert_good(&history);
    history
        .transaction(4, 40, 50)
        .step("y", GET, Some("(nil)"))
        .step("z", write("e"), OK)
        .states(&["a1"], Some(("a4", &["a3"])));
    assert!(assert_bad(&history, Check::Replies).contains("its parent, state a3"));
}

#[test]
fn a_commit_below_another_branch_is_refused() {
    let mut history = forked();
    history.transaction(4, 40, 50).step("y", write("c"), OK).states(&["a1"], Some(("c1", &["b1"])));
    assert!(assert_bad(&history, Check::Order).contains("read state a1"));
}

#[test]
fn a_merge_sees_both_sides_and_resolves_what_they_disagree_about() {
    let merged = |resolves: bool, y: &str| {
        let mut history = forked();
        history.transaction(2, 40, 50).step("y", write("q"), OK).states(&["b1"], Some(("b2", &["b1"])));
        let merge = history.transaction(3, 60, 70).step("x", GET, Some("\"a\"")).of_state("a1");
        let merge = merge.step("x", GET, Some("\"b\"")).of_state("b2").step("y", GET, Some(y));
        let merge = if resolves { merge.step("x", write("ab"), OK) } else { merge };
        merge.states(&["a1", "b2"], Some(("m", &["a1", "b2"])));
        if resolves {
            history.transaction(1, 80, 90).step("x", GET, Some("\"ab\"")).states(&["m"], None);
            history.transaction(2, 80, 90).step("y", GET, Some("\"q\"")).states(&["m"], None);
        }
        history
    };
    assert_good(&merged(true, "\"q\""));
    assert!(assert_bad(&merged(true, "(nil)"), Check::Replies).contains("what its parents agree on"));
    assert!(assert_bad(&merged(false, "\"q\""), Check::Effects).contains("disagree about x"));
}

/// Three heads: two that know `x` of the third's past, one of which wrote it again, and one that knows nothing of it.
fn three_heads() -> History {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), OK).states(&[ROOT], Some(("a1", &[ROOT])));
    history.transaction(1, 20, 30).step("x", write("b"), OK).states(&["a1"], Some(("a2", &["a1"])));
    history.transaction(2, 20, 30).step("y", write("c"), OK).states(&["a1"], Some(("c1", &["a1"])));
    history.transaction(3, 20, 30).step("z", write("d"), OK).states(&[ROOT], Some(("d1", &[ROOT])));
    history
}

#[test]
fn a_merge_of_three_takes_the_value_that_follows_the_others() {
    let merged = |x: &str| {
        let mut history = three_heads();
        history.transaction(9, 30, 40).states(&["a2", "c1", "d1"], Some(("m", &["a2", "c1", "d1"])));
        history.transaction(4, 40, 50).step("x", GET, Some(x)).states(&["m"], None);
        history
    };
    assert_good(&merged("\"b\""));
    assert!(assert_bad(&merged("\"a\""), Check::Replies).contains("state m gives \"b\""));
}

#[test]
fn a_merge_that_nobody_asked_for_writes_what_conflicts_and_nothing_else() {
    let mut history = three_heads();
    history
        .transaction(9, 30, 40)
        .step("x", write("lost"), OK)
        .unasked()
        .states(&["a2", "c1", "d1"], Some(("m", &["a2", "c1", "d1"])));
    assert!(assert_bad(&history, Check::Effects).contains("writes x, which they agree about"));
    let mut history = forked();
    history
        .transaction(9, 30, 40)
        .step("x", write("ab"), OK)
        .unasked()
        .states(&["a1", "b1"], Some(("m", &["a1", "b1"])));
    assert_good(&history);
    let mut history = forked();
    history
        .transaction(9, 30, 40)
        .step("new", write(""), OK)
        .unasked()
        .states(&["a1", "b1"], Some(("m", &["a1", "b1"])));
    assert!(assert_bad(&history, Check::Effects).contains("disagree about x"));
}

#[test]
fn typed_operations_are_replayed_along_the_branch() {
    let mut history = History::default();
    history
        .transaction(1, 0, 10)
        .step("n", increment(2), Some("(integer) 2"))
        .states(&[ROOT], Some(("a1", &[ROOT])));
    history
        .transaction(2, 0, 10)
        .step("n", increment(3), Some("(integer) 3"))
        .states(&[ROOT], Some(("b1", &[ROOT])));
    assert_good(&history);
    history
        .transaction(3, 20, 30)
        .step("n", increment(1), Some("(integer) 6"))
        .states(&["a1"], Some(("a2", &["a1"])));
    assert!(assert_bad(&history, Check::Replies).contains("(integer) 3"));
}

#[test]
fn claims_about_states_must_make_sense() {
    let mut twice = forked();
    twice.transaction(3, 0, 10).step("y", write("c"), OK).states(&[ROOT], Some(("a1", &[ROOT])));
    assert!(assert_bad(&twice, Check::Claims).contains("a1 was made by"));
    let mut unknown = forked();
    unknown.transaction(3, 0, 10).step("y", GET, Some("(nil)")).states(&["zz"], None);
    assert!(assert_bad(&unknown, Check::Claims).contains("which nobody made"));
    let mut circle = forked();
    circle.transaction(3, 0, 10).step("y", write("c"), OK).states(&["q"], Some(("p", &["q"])));
    circle.transaction(3, 20, 30).step("y", write("d"), OK).states(&["p"], Some(("q", &["p"])));
    assert!(assert_bad(&circle, Check::Claims).contains("its own ancestor"));
    let mut silent = forked();
    silent.transaction(3, 0, 10).step("y", GET, Some("(nil)"));
    assert!(assert_bad(&silent, Check::Claims).contains("claims no state"));
    assert!(check(&forked().unclaimed(), Level::Branch).undecided, "branches cannot be guessed");
}
