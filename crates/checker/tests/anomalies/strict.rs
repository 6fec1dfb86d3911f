//! Histories that are not strictly serializable, each by one known anomaly, and good ones that look alike.

use crate::anomalies::support::{
    Builder, DELETE, EXISTS, GET, History, MEMBERS, POP, add, increment, push, write, write_if_absent,
};
use anabranch_checker::{Check, Level, SearchOutcome, check, search_strict_order};

fn assert_good(history: &History) {
    let report = check(&history.0, Level::StrictSerializable);
    assert!(report.ok, "{:#?}", report.violations);
    assert!(matches!(search_strict_order(&history.0, 10_000), SearchOutcome::Serial(_)), "the search agrees");
}

fn assert_bad(history: &History, expected: Check) -> String {
    let report = check(&history.0, Level::StrictSerializable);
    let found = report.violations.iter().find(|violation| violation.check == expected);
    found.unwrap_or_else(|| panic!("expected {expected:?}, found {:#?}", report.violations)).message.clone()
}

fn assert_search_refuses(history: &History) {
    assert_eq!(search_strict_order(&history.0, 10_000), SearchOutcome::Impossible);
}

#[test]
fn a_serial_history_is_good() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).at(5);
    history.transaction(2, 20, 30).step("x", GET, Some("\"a\"")).step("x", write("b"), Some("OK")).at(25);
    history.transaction(1, 40, 50).step("x", GET, Some("\"b\"")).at(45);
    assert_good(&history);
}

#[test]
fn concurrent_blind_increments_may_commit_against_real_time_because_they_commute() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(1), None).at(9);
    history.transaction(2, 20, 30).step("n", increment(2), None).at(5);
    history.transaction(1, 40, 50).step("n", GET, Some("\"3\"")).at(45).at_rest();
    assert_good(&history);
}

#[test]
fn a_blind_operation_that_found_nothing_to_do_keeps_its_place_although_its_stamp_is_old() {
    let mut history = History::default();
    history.transaction(1, 0, 50).step("l", push("a"), Some("(integer) 1")).at(20);
    history.transaction(2, 0, 10).step("y", write("b"), Some("OK")).at(25);
    history.transaction(3, 30, 40).step("l", POP, None).at(5);
    assert_good(&history);
}

#[test]
fn a_blind_operation_that_overlooked_what_there_was_to_do_is_a_lost_write() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(20);
    history.transaction(2, 30, 40).step("l", POP, None).at(25);
    assert_bad(&history, Check::Effects);
}

#[test]
fn lost_update() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(1), Some("(integer) 1")).at(5);
    history.transaction(2, 0, 10).step("n", increment(1), Some("(integer) 1")).at(6);
    assert!(assert_bad(&history, Check::Replies).contains("the client saw (integer) 1"));
    assert_search_refuses(&history);
}

#[test]
fn stale_read() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).at(5);
    history.transaction(2, 20, 30).step("x", write("b"), Some("OK")).at(25);
    history.transaction(3, 40, 50).step("x", GET, Some("\"a\"")).at(15);
    let message = assert_bad(&history, Check::Order);
    assert!(message.contains("2 ended at 30 us, 3 began at 40 us"), "{message}");
    assert_search_refuses(&history);
}

#[test]
fn a_stale_read_that_took_no_place() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).at(5);
    history.transaction(2, 20, 30).step("x", write("b"), Some("OK")).at(25);
    history.transaction(3, 25, 50).step("x", GET, Some("\"a\""));
    assert_good(&history);
    history.transaction(4, 60, 70).step("x", GET, Some("\"a\""));
    assert!(assert_bad(&history, Check::Replies).contains("transaction 4 took no place"));
    assert_search_refuses(&history);
}

#[test]
fn reads_without_a_place_may_not_go_back_in_time() {
    let mut history = History::default();
    history.transaction(1, 0, 100).step("x", write("a"), Some("OK")).at(50);
    history.transaction(2, 10, 20).step("x", GET, Some("\"a\""));
    history.transaction(3, 30, 40).step("x", GET, Some("(nil)"));
    assert_bad(&history, Check::Replies);
    assert_search_refuses(&history);
}

#[test]
fn fractured_read() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).step("y", write("a"), Some("OK")).at(5);
    history.transaction(2, 0, 20).step("x", GET, Some("\"a\"")).step("y", GET, Some("(nil)")).at(15);
    assert_bad(&history, Check::Replies);
    assert_search_refuses(&history);
}

#[test]
fn real_time_inversion_through_a_third_transaction() {
    // Corrections 1, shape (b): the timestamps are a serial order, real-time order does not hold.
    let mut history = History::default();
    history.transaction(3, 0, 100).step("a", GET, Some("(nil)")).step("b", write("t3"), Some("OK")).at(7);
    history.transaction(1, 10, 20).step("a", write("t1"), Some("OK")).at(10);
    history.transaction(2, 30, 40).step("b", write("t2"), Some("OK")).at(5);
    history.transaction(4, 200, 210).step("b", GET, Some("\"t3\"")).at(205);
    assert_bad(&history, Check::Order);
    assert!(check(&history.0, Level::Serializable).ok, "serializable it is");
    assert_search_refuses(&history);
}

#[test]
fn write_skew() {
    let mut history = History::default();
    history.transaction(1, 0, 50).step("x", GET, Some("(nil)")).step("y", write("1"), Some("OK")).at(5);
    history.transaction(2, 0, 50).step("y", GET, Some("(nil)")).step("x", write("1"), Some("OK")).at(6);
    assert_bad(&history, Check::Replies);
    assert_search_refuses(&history);
}

/// A look at which keys of the keyspace there are, recorded as histories record KEYS: key by key.
fn look<'h>(transaction: Builder<'h>, a: bool, b: bool) -> Builder<'h> {
    let seen = |exists: bool| Some(if exists { "(integer) 1" } else { "(integer) 0" });
    transaction.step("a", EXISTS, seen(a)).step("b", EXISTS, seen(b))
}

/// Good if the last argument says so, else refused for its replies.
fn assert_phantom(history: &History, good: bool) {
    if good {
        return assert_good(history);
    }
    assert_bad(history, Check::Replies);
    assert_search_refuses(history);
    let report = check(&history.unclaimed(), Level::Serializable);
    assert!(!report.ok, "without claims it is no better");
}

#[test]
fn phantoms_over_the_keyset() {
    for good in [false, true] {
        // Each makes a key because it saw none.
        let mut skew = History::default();
        look(skew.transaction(1, 0, 50), false, false).step("a", write("1"), Some("OK")).at(5);
        look(skew.transaction(2, 0, 50), good, false).step("b", write("2"), Some("OK")).at(6);
        assert_phantom(&skew, good);
        // A key comes between two looks of one transaction.
        let mut twice = History::default();
        twice.transaction(1, 0, 50).step("a", write("1"), Some("OK")).at(5);
        let first = look(twice.transaction(2, 0, 50), good, false);
        look(first, true, false).at(6);
        assert_phantom(&twice, good);
        // A look sees one of two keys that come together.
        let mut half = History::default();
        half.transaction(1, 0, 50).step("a", write("1"), Some("OK")).step("b", write("1"), Some("OK")).at(5);
        look(half.transaction(2, 0, 50), true, good).at(6);
        assert_phantom(&half, good);
        // A look sees one of two keys that go together.
        let mut gone = History::default();
        gone.transaction(1, 0, 10).step("a", write("1"), Some("OK")).step("b", write("1"), Some("OK")).at(5);
        let both = gone.transaction(2, 20, 50).step("a", DELETE, Some("(integer) 1"));
        both.step("b", DELETE, Some("(integer) 1")).at(6);
        look(gone.transaction(3, 20, 50), false, !good).at(7);
        assert_phantom(&gone, good);
    }
}

/// A transaction that somebody observed takes no place, as if a view change had forgotten it.
#[test]
fn an_observed_transaction_that_vanished() {
    for vanished in [true, false] {
        let mut history = History::default();
        let first = history.transaction(1, 0, 10).step("n", increment(1), None);
        if vanished {
            first.without_effects().unknown()
        } else {
            first.at(5).unknown()
        };
        history.transaction(2, 20, 30).step("n", increment(1), Some("(integer) 2")).at(25);
        if vanished {
            assert!(assert_bad(&history, Check::Replies).contains("the client saw (integer) 2"));
        } else {
            assert_good(&history);
        }
    }
}

/// A write was answered and took no place. Nobody else wrote the key, so that what it would have changed was never there.
#[test]
fn an_acknowledged_write_that_is_nowhere_afterwards() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).without_effects();
    let message = assert_bad(&history, Check::Replies);
    assert!(message.contains("with nothing for its writes to change"), "{message}");
    history.transaction(2, 5, 30).step("x", GET, Some("(nil)")).at(25);
    assert_bad(&history, Check::Replies);
    // What finds nothing to do needs no place.
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).at(5);
    history.transaction(2, 20, 30).step("x", write_if_absent("b"), Some("(nil)"));
    history.transaction(3, 20, 30).step("y", DELETE, Some("(integer) 0"));
    history.transaction(4, 20, 30).step("x", write("a"), None).without_effects();
    let idle = &mut history.0[1];
    idle.claim.as_mut().expect("the builder made a claim").effects.clear();
    history.0[2].claim.as_mut().expect("the builder made a claim").effects.clear();
    assert_good(&history);
}

#[test]
fn duplicate_application() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(1), None).at(5);
    history.transaction(2, 20, 30).step("n", GET, Some("\"2\"")).at(25).at_rest();
    assert_bad(&history, Check::Replies);
    let message = assert_bad_totals(&history);
    assert!(message.contains("increments by 1 in all"), "{message}");
    assert_search_refuses(&history);
}

fn assert_bad_totals(history: &History) -> String {
    let report = check(&history.0, Level::Convergence);
    let found = report.violations.into_iter().find(|violation| violation.check == Check::ExactlyOnce);
    found.expect("the totals must be wrong").message
}

#[test]
fn lost_increment_and_lost_member() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(5), Some("(integer) 5")).at(5);
    history.transaction(2, 0, 10).step("s", add("m"), Some("(integer) 1")).at(6);
    history.transaction(3, 20, 30).step("n", GET, Some("(nil)")).at(25).at_rest();
    assert!(assert_bad_totals(&history).contains("increments by 5"));
    let mut history = History::default();
    history.transaction(2, 0, 10).step("s", add("m"), Some("(integer) 1")).at(6);
    history.transaction(3, 20, 30).step("s", MEMBERS, Some("{}")).at(25).at_rest();
    assert!(assert_bad_totals(&history).contains("the addition of \"m\" was committed"));
}

#[test]
fn an_unknown_outcome_counts_where_its_claim_says_so_and_may_count_in_totals() {
    for (value, committed) in [("\"1\"", true), ("(nil)", false)] {
        let mut history = History::default();
        let unknown = history.transaction(1, 0, 10).step("n", increment(1), Some("(integer) 1"));
        if committed {
            unknown.at(5).unknown()
        } else {
            unknown.without_effects().unknown()
        }
        history.transaction(2, 20, 30).step("n", GET, Some(value)).at(25).at_rest();
        assert_good(&history);
    }
}

#[test]
fn an_abort_that_committed() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(1), Some("(integer) 1")).at(5).aborted();
    assert_bad(&history, Check::Claims);
}

#[test]
fn an_effect_left_out_because_a_stale_replica_saw_nothing_to_do() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("s", add("m"), None).at(5).without_effects();
    assert_bad(&history, Check::Effects);
}

#[test]
fn gateways_that_differ_at_rest() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK")).at(5);
    history.transaction(2, 20, 30).step("x", GET, Some("\"a\"")).at(25).at_rest();
    history.transaction(3, 20, 30).step("x", GET, Some("(nil)")).at(26).at_rest();
    assert_bad(&history, Check::Convergence);
}

#[test]
fn without_claims_values_tell_the_order() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), Some("OK"));
    history.transaction(2, 20, 30).step("x", GET, Some("(nil)"));
    history.transaction(3, 40, 50).step("x", GET, Some("\"a\""));
    history.0.iter_mut().for_each(|transaction| transaction.claim = None);
    let message = assert_bad(&history, Check::Order);
    assert!(
        message.contains("2 had to see its version of x or a later one, and saw nothing there"),
        "{message}"
    );
    history.0.remove(1);
    assert_good(&history);
}

#[test]
fn where_values_name_no_version_the_search_decides_and_names_the_moment() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("s", add("m"), Some("(integer) 1"));
    history.transaction(2, 20, 30).step("s", MEMBERS, Some("{}"));
    history.transaction(3, 40, 50).step("s", MEMBERS, Some("{\"m\"}"));
    history.0 = history.unclaimed();
    assert!(assert_bad(&history, Check::Order).contains("up to 30 us"));
    assert!(check(&history.0, Level::Serializable).ok, "its own time is nobody's");
    let undecided = check(&history.0, Level::TransactionalCausal);
    assert!(undecided.ok && undecided.undecided, "sets name no versions");
    history.0.remove(1);
    assert_good(&history);
}

/// 24 transactions that add a power of two each to `n`, at once, and readers at the same time that took no place and saw all of
/// them but some.
fn beside_24_that_commute(readers: &[&[u32]]) -> History {
    let mut history = History::default();
    for power in 0..24 {
        history.transaction(1 + power, 0, 100).step("n", increment(1 << power), None).at(1 + power);
    }
    for (reader, lacks) in readers.iter().enumerate() {
        let lacks: u64 = lacks.iter().map(|power| 1 << power).sum();
        let seen = format!("\"{}\"", (1u64 << 24) - 1 - lacks);
        history.transaction(100 + reader as u64, 0, 100).step("n", GET, Some(&seen));
    }
    history
}

#[test]
fn a_reader_may_need_another_order_of_what_commutes_than_the_places_tell() {
    for lacks in 0..24 {
        let history = beside_24_that_commute(&[&[lacks], &[lacks, (lacks + 9) % 24]]);
        let report = check(&history.0, Level::StrictSerializable);
        assert!(report.ok && !report.undecided, "{lacks}: {report:?}");
    }
    let gave_up = search_strict_order(&beside_24_that_commute(&[&[12], &[12, 3]]).0, 50_000);
    assert_eq!(gave_up, SearchOutcome::GaveUp, "the search alone does not tell");
}

#[test]
fn readers_that_need_different_orders_of_what_commutes_have_none_together() {
    let report = check(&beside_24_that_commute(&[&[12], &[13]]).0, Level::StrictSerializable);
    assert!(!report.ok || report.undecided, "{report:?}");
}

#[test]
fn a_reader_that_needs_another_order_keeps_real_time() {
    let mut history = beside_24_that_commute(&[&[12]]);
    history.0[12].responded = Some(5);
    history.0[24].invoked = 6;
    let report = check(&history.0, Level::StrictSerializable);
    assert!(!report.ok || report.undecided, "what it lacks had ended before it began: {report:?}");
    // Another order would do that has it lack that one nevertheless.
    assert!(check(&history.0, Level::Serializable).ok);
}

/// A pipeline looks at a set and adds to it; that the look came first, only its number says. The readers before it need
/// the additions of others in another order than that of the places, so that all are put into the graph.
#[test]
fn of_a_pipeline_the_number_tells_which_came_first() {
    for reversed in [false, true] {
        let mut history = beside_24_that_commute(&[&[12], &[12, 3]]);
        history.transaction(50, 0, 10).step("s", add("a"), Some("(integer) 1")).at(2);
        history.transaction(60, 20, 100).step("s", MEMBERS, Some("{\"a\"}"));
        history.transaction(60, 20, 100).step("s", add("b"), Some("(integer) 1")).at(90);
        if reversed {
            let look = history.0.len() - 2;
            (history.0[look].number, history.0[look + 1].number) = (29, 28);
        }
        let report = check(&history.0, Level::StrictSerializable);
        assert_eq!(report.ok && !report.undecided, !reversed, "{report:?}");
    }
}
