//! Histories that break transactional causal consistency, each by one known anomaly, and what it permits.

use crate::anomalies::support::{GET, History, increment, write};
use anabranch_checker::{Check, Level, check, holds_by_definition, infer};

fn assert_good(history: &History) {
    let report = check(&history.0, Level::TransactionalCausal);
    assert!(report.ok, "{:#?}", report.violations);
}

fn assert_bad(history: &History, expected: Check) -> String {
    let report = check(&history.0, Level::TransactionalCausal);
    let found = report.violations.iter().find(|violation| violation.check == expected);
    found.unwrap_or_else(|| panic!("expected {expected:?}, found {:#?}", report.violations)).message.clone()
}

#[test]
fn stale_reads_and_write_skew_are_permitted() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(0, 0, 0).committed(0, 5, 0);
    history.transaction(2, 20, 30).step("x", GET, Some("(nil)")).saw(1, 0, 0);
    history
        .transaction(3, 0, 50)
        .step("x", GET, Some("(nil)"))
        .step("y", write("1"), Some("OK"))
        .saw(0, 0, 0)
        .committed(0, 6, 0);
    history
        .transaction(4, 0, 50)
        .step("y", GET, Some("(nil)"))
        .step("x", write("1"), Some("OK"))
        .saw(0, 0, 0)
        .committed(0, 7, 0);
    assert_good(&history);
}

#[test]
fn a_session_reads_its_own_writes_before_they_are_stable() {
    let mut history = History::default();
    history
        .transaction(1, 0, 10)
        .step("n", increment(1), Some("(integer) 1"))
        .saw(0, 0, 0)
        .committed(0, 5, 0);
    history
        .transaction(1, 20, 30)
        .step("n", increment(1), Some("(integer) 2"))
        .saw(0, 1, 0)
        .committed(0, 8, 0);
    assert_good(&history);
    history.transaction(1, 40, 50).step("n", GET, Some("\"1\"")).saw(0, 2, 0);
    assert_bad(&history, Check::Replies);
}

#[test]
fn fractured_read() {
    let mut history = History::default();
    history
        .transaction(1, 0, 10)
        .step("x", write("a"), Some("OK"))
        .step("y", write("a"), Some("OK"))
        .saw(0, 0, 0)
        .committed(0, 5, 0);
    history.transaction(2, 20, 30).step("x", GET, Some("\"a\"")).step("y", GET, Some("(nil)")).saw(0, 9, 0);
    assert_bad(&history, Check::Replies);
}

#[test]
fn causal_reversal() {
    // 2 saw 1 in region 0 and wrote; 3 sees 2 but not 1, because the dependency was not carried along.
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(1, 0, 0).committed(1, 5, 0);
    history
        .transaction(2, 20, 30)
        .step("x", GET, Some("\"a\""))
        .step("y", write("b"), Some("OK"))
        .saw(0, 6, 5)
        .committed(0, 8, 0);
    history.transaction(3, 40, 50).step("y", GET, Some("\"b\"")).step("x", GET, Some("(nil)")).saw(0, 8, 4);
    let message = assert_bad(&history, Check::CausalClosure);
    assert!(message.contains("3 sees 2 and 2 saw 1"), "{message}");
}

#[test]
fn non_monotonic_session() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(0, 0, 0).committed(0, 5, 0);
    history.transaction(2, 20, 30).step("x", GET, Some("\"a\"")).saw(0, 6, 0);
    history.transaction(2, 40, 50).step("x", GET, Some("(nil)")).saw(0, 3, 0);
    assert!(assert_bad(&history, Check::Session).contains("does not see 1"));
}

#[test]
fn a_snapshot_above_stable_time() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", GET, Some("(nil)")).saw(0, 9, 0);
    history.transaction(2, 20, 30).step("y", write("a"), Some("OK")).saw(0, 0, 0).committed(0, 5, 0);
    assert!(assert_bad(&history, Check::StableTime).contains("counts 2"));
}

#[test]
fn a_place_below_what_was_seen() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(1, 0, 0).committed(1, 9, 0);
    history
        .transaction(2, 20, 30)
        .step("x", GET, Some("\"a\""))
        .step("x", write("b"), Some("OK"))
        .saw(0, 10, 9)
        .committed(0, 7, 9);
    assert_bad(&history, Check::Order);
}

#[test]
fn an_increment_applied_twice_in_one_region() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(1), None).saw(0, 0, 0).committed(0, 5, 0);
    history.transaction(2, 20, 30).step("n", GET, Some("\"1\"")).saw(0, 9, 8).at_rest();
    history.transaction(3, 20, 30).step("n", GET, Some("\"2\"")).saw(1, 9, 8).at_rest();
    assert_bad(&history, Check::Replies);
    assert_bad(&history, Check::Convergence);
    assert_bad(&history, Check::ExactlyOnce);
}

#[test]
fn what_changes_a_key_may_see_the_newest_state_of_its_region_but_not_of_others() {
    for (region, good) in [(0, true), (1, false)] {
        let mut history = History::default();
        let first = history.transaction(1, 0, 10).step("n", increment(1), Some("(integer) 1"));
        first.saw(region, 0, 0).committed(region, 5, 0);
        let second = history.transaction(2, 20, 30).step("n", increment(1), Some("(integer) 2"));
        second.saw(0, 1, 0).committed(0, 8, 0);
        if good { assert_good(&history) } else { drop(assert_bad(&history, Check::Replies)) }
    }
}

/// One session of a process writes, and another one reads afterwards.
fn read_after_an_answer(seen: u64, invoked: u64, reply: &str) -> History {
    let mut history = History::default();
    let first = history.transaction(1, 0, 10).step("x", write("a"), Some("OK"));
    first.saw(0, 0, 0).committed(0, 5, 0).shares(0, Some(1));
    history.transaction(2, invoked, 90).step("x", GET, Some(reply)).saw(0, 1, 0).shares(seen, None);
    history
}

/// Corrections 72: sessions of a process read one another's writes as soon as these are answered, and nothing else tells
/// what those saw whose requests overlap.
#[test]
fn sessions_that_share_a_thread_read_one_another_s_answered_writes() {
    assert_good(&read_after_an_answer(1, 20, "\"a\""));
    let message = assert_bad(&read_after_an_answer(0, 20, "(nil)"), Check::Session);
    assert!(message.contains("transaction 2, asked for at 20 us, does not see 1"), "{message}");
    assert_bad(&read_after_an_answer(1, 20, "(nil)"), Check::Replies);
    assert_bad(&read_after_an_answer(0, 20, "\"a\""), Check::Replies);
    for (seen, reply) in [(0, "(nil)"), (1, "\"a\"")] {
        assert_good(&read_after_an_answer(seen, 9, reply));
    }
}

/// What one session of a thread read, another one invoked later does not miss, whoever wrote it.
#[test]
fn the_snapshots_of_a_shared_thread_do_not_go_back() {
    for (invoked, good) in [(35, false), (25, true)] {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(0, 0, 0).committed(0, 5, 0);
        history.transaction(2, 20, 30).step("x", GET, Some("\"a\"")).saw(0, 6, 0).shares(0, None);
        history.transaction(3, invoked, 50).step("x", GET, Some("(nil)")).saw(0, 3, 0).shares(0, None);
        if good { assert_good(&history) } else { drop(assert_bad(&history, Check::Session)) }
    }
}

/// A session that goes on before it is known what became of its last transaction.
#[test]
fn a_session_must_see_unanswered_writes_once_its_thread_knows_them() {
    for (seen, reply, good) in [(1, "\"a\"", true), (0, "(nil)", false)] {
        let mut history = History::default();
        let first = history.transaction(1, 0, 10).step("x", write("a"), None);
        first.saw(0, 0, 0).committed(0, 5, 0).shares(0, Some(1)).unknown();
        history.transaction(1, 20, 30).step("x", GET, Some(reply)).saw(0, 1, 0).shares(seen, None);
        if good { assert_good(&history) } else { drop(assert_bad(&history, Check::Session)) }
    }
}

/// What is evaluated on the newest state sees what its thread took up after it had begun, with all that this had seen.
#[test]
fn what_was_observed_of_the_thread_beyond_its_view_is_seen_with_its_causes() {
    for (next_saw, good) in [(2, true), (1, false)] {
        let mut history = History::default();
        let first = history.transaction(1, 0, 10).step("x", write("a"), Some("OK"));
        first.saw(0, 0, 0).committed(0, 5, 0).shares(0, Some(1));
        let second = history.transaction(2, 20, 30).step("n", increment(1), Some("(integer) 1"));
        second.saw(0, 0, 0).committed(0, 6, 0).shares(1, Some(2));
        let third = history.transaction(3, 5, 40);
        let third = third.step("n", GET, Some("\"1\"")).step("x", GET, Some("\"a\""));
        third.saw(0, 0, 0).shares(0, None).beyond(2);
        let x = history.transaction(3, 50, 60).step("n", GET, Some(if good { "\"1\"" } else { "(nil)" }));
        x.saw(0, 0, 0).shares(next_saw, None);
        if good { assert_good(&history) } else { drop(assert_bad(&history, Check::Session)) }
    }
}

/// A context carries what its session saw and wrote to the session that takes it over, whichever region that is in.
#[test]
fn a_context_that_was_taken_over_is_seen() {
    let given = |remote, reply| {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).saw(0, 0, 0).committed(0, 5, 0);
        history.transaction(2, 20, 30).step("x", GET, Some(reply)).saw(1, remote + 1, remote);
        history
    };
    let mut behind = given(4, "(nil)");
    assert_good(&behind);
    behind.0[1].follows = Some(1);
    let message = assert_bad(&behind, Check::Session);
    assert!(message.contains("transaction 2 does not see 1"), "{message}");
    let mut arrived = given(5, "\"a\"");
    arrived.0[1].follows = Some(1);
    assert_good(&arrived);

    // The same without claims, and by the definition.
    let unclaimed = behind.unclaimed();
    assert_eq!(infer(&unclaimed, Level::TransactionalCausal), Some(false));
    assert_eq!(infer(&unclaimed, Level::Causal), Some(false));
    assert_eq!(holds_by_definition(&unclaimed, Level::TransactionalCausal), Some(false));
    assert_eq!(infer(&arrived.unclaimed(), Level::TransactionalCausal), Some(true));
}
