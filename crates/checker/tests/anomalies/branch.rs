//! Branch isolation, on histories made by hand: what a State DAG permits, and what breaks it.

use crate::anomalies::support::{DELETE, GET, History, add, increment, push, write};
use anabranch_checker::{Check, Level, ROOT, check};
use datatypes::{Items, Operation, list, set};

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
fn a_merge_without_a_request_writes_what_conflicts_and_nothing_else() {
    let mut history = three_heads();
    history
        .transaction(9, 30, 40)
        .step("x", write("lost"), OK)
        .unrequested()
        .states(&["a2", "c1", "d1"], Some(("m", &["a2", "c1", "d1"])));
    assert!(assert_bad(&history, Check::Effects).contains("writes x, which they agree about"));
    let mut history = forked();
    history
        .transaction(9, 30, 40)
        .step("x", write("ab"), OK)
        .unrequested()
        .states(&["a1", "b1"], Some(("m", &["a1", "b1"])));
    assert_good(&history);
    let mut history = forked();
    history
        .transaction(9, 30, 40)
        .step("new", write(""), OK)
        .unrequested()
        .states(&["a1", "b1"], Some(("m", &["a1", "b1"])));
    assert!(assert_bad(&history, Check::Effects).contains("disagree about x"));
}

/// Two branches from a state that holds `base`, each of which does this to `x`, and a site's merge that makes it this.
fn site_merge<'o>(
    base: Option<Operation<'o>>,
    [left, right]: [Operation<'o>; 2],
    merged: Operation<'o>,
    handled: bool,
) -> History {
    let mut history = History::default();
    let begin = history.transaction(1, 0, 10).step("y", write("b"), OK);
    let begin = base.into_iter().fold(begin, |begin, base| begin.step("x", base, None));
    begin.at(1).states(&[ROOT], Some(("s", &[ROOT])));
    history.transaction(1, 20, 30).step("x", left, None).at(2).states(&["s"], Some(("a", &["s"])));
    history.transaction(2, 20, 30).step("x", right, None).at(3).states(&["s"], Some(("b", &["s"])));
    let merge = history.transaction(9, 40, 50).step("x", DELETE, None).step("x", merged, None).unrequested();
    merge.at(4).states(&["a", "b"], Some(("m", &["a", "b"])));
    let merge = history.0.last_mut().and_then(|merge| merge.claim.as_mut()?.branch.as_mut());
    merge.expect("it claims states").handled = handled;
    history
}

#[test]
fn a_site_merges_values_by_the_rules_of_their_types() {
    let both =
        |merged| site_merge(Some(increment(10)), [increment(2), increment(3)], increment(merged), false);
    assert_good(&both(15));
    assert!(assert_bad(&both(13), Check::Effects).contains("by the rule of its type"));
    assert_bad(&both(25), Check::Effects);
    // An addition beside a write counts, too.
    assert_good(&site_merge(None, [increment(2), write("7")], write("9"), false));
    assert_bad(&site_merge(None, [increment(2), write("7")], write("7"), false), Check::Effects);
    let members = |all: &[&'static [u8]]| {
        Operation::Set(set::Operation::Add { members: Items::collect(all.iter().copied()) })
    };
    let sets = |merged| site_merge(Some(add("m")), [add("l"), add("r")], merged, false);
    assert_good(&sets(members(&[b"m", b"l", b"r"])));
    assert_bad(&sets(members(&[b"m", b"r"])), Check::Effects);
    let values = |all: &[&'static [u8]]| {
        let values = Items::collect(all.iter().copied());
        Operation::List(list::Operation::Push { end: list::End::Back, values, only_if_exists: false })
    };
    let lists = |merged| site_merge(Some(push("m")), [push("l"), push("r")], merged, false);
    assert_good(&lists(values(&[b"m", b"l", b"r"])));
    assert_bad(&lists(values(&[b"m", b"r", b"l"])), Check::Effects);
}

#[test]
fn what_the_rules_leave_open_goes_to_the_newer_side_unless_a_handler_decides() {
    let writes = |merged, handled| site_merge(None, [write("l"), write("r")], write(merged), handled);
    assert_good(&writes("r", false));
    assert_bad(&writes("l", false), Check::Effects);
    assert_good(&writes("l", true));
}

/// Two merges of the same two branches, each with a transaction on top, have two fork points in common.
#[test]
fn several_fork_points_are_merged_first() {
    let crossed = |last: i64| {
        let mut history = site_merge(None, [increment(2), increment(3)], increment(5), false);
        let merge = history
            .transaction(10, 40, 50)
            .step("x", DELETE, None)
            .step("x", increment(5), None)
            .unrequested();
        merge.at(5).states(&["a", "b"], Some(("n", &["a", "b"])));
        history
            .transaction(3, 60, 70)
            .step("x", increment(10), None)
            .at(6)
            .states(&["m"], Some(("m1", &["m"])));
        history
            .transaction(4, 60, 70)
            .step("x", increment(20), None)
            .at(7)
            .states(&["n"], Some(("n1", &["n"])));
        let merge = history
            .transaction(11, 80, 90)
            .step("x", DELETE, None)
            .step("x", increment(last), None)
            .unrequested();
        merge.at(8).states(&["m1", "n1"], Some(("p", &["m1", "n1"])));
        history
    };
    assert_good(&crossed(35));
    assert_bad(&crossed(40), Check::Effects);
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
