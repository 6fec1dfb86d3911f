//! Every known anomaly against every level: what each must see, and what it must tolerate.

use crate::anomalies::support::{
    ALL_ELEMENTS, DELETE, ENTRIES, GET, History, POP, append, increment, push, write, write_if_absent,
};
use anabranch_checker::{Level, check, holds_by_claims, holds_by_definition, infer};

/// What a level makes of an anomaly.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verdict {
    Refuses,
    Permits,
    /// What clients saw does not tell.
    Open,
}

use Level::{
    Causal, MonotonicReads, MonotonicWrites, ReadAtomic, ReadYourWrites, Serializable, Snapshot,
    StrictSerializable, TransactionalCausal, WritesFollowReads,
};

const LEVELS: [Level; 10] = [
    StrictSerializable,
    Serializable,
    Snapshot,
    TransactionalCausal,
    Causal,
    ReadAtomic,
    ReadYourWrites,
    MonotonicReads,
    MonotonicWrites,
    WritesFollowReads,
];

/// Asserts which of the levels refuse a history and which leave it open; all others must permit it. Neither claims
/// nor the definition may say otherwise.
fn assert_verdicts(name: &str, history: &History, refused_by: &[Level], open_to: &[Level]) {
    let unclaimed = history.unclaimed();
    for level in LEVELS {
        let expected = match (refused_by.contains(&level), open_to.contains(&level)) {
            (true, _) => Verdict::Refuses,
            (_, true) => Verdict::Open,
            _ => Verdict::Permits,
        };
        let inferred = match infer(&unclaimed, level) {
            Some(true) => Verdict::Permits,
            Some(false) => Verdict::Refuses,
            None => Verdict::Open,
        };
        assert_eq!(inferred, expected, "{name} under {level}: {:#?}", check(&unclaimed, level).violations);
        let report = check(&unclaimed, level);
        assert_eq!((report.ok, report.undecided), (expected != Verdict::Refuses, expected == Verdict::Open));
        for violation in report.violations {
            assert!(
                !violation.message.is_empty() && !violation.transactions.is_empty(),
                "{name}: {violation}"
            );
        }
        if let Some(holds) = holds_by_definition(&unclaimed, level) {
            assert_eq!(holds, expected == Verdict::Permits, "{name} under {level}, by definition");
        }
        if expected == Verdict::Refuses {
            assert!(!holds_by_claims(&history.0, level), "{name} under {level}, by claims");
            assert!(!check(&history.0, level).ok, "{name} under {level}, with claims");
        }
    }
}

const ATOMIC: [Level; 5] = [StrictSerializable, Serializable, Snapshot, TransactionalCausal, ReadAtomic];
const ALL_TRANSACTIONAL: [Level; 6] =
    [StrictSerializable, Serializable, Snapshot, TransactionalCausal, Causal, ReadAtomic];
const SESSIONS: [Level; 4] = [ReadYourWrites, MonotonicReads, MonotonicWrites, WritesFollowReads];
const OK: Option<&str> = Some("OK");
const NIL: Option<&str> = Some("(nil)");
const A: Option<&str> = Some("\"a\"");
const B: Option<&str> = Some("\"b\"");

#[test]
fn a_serial_history_is_permitted_by_all() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", GET, NIL).step("x", write("a"), OK).at(1);
    history.transaction(2, 20, 30).step("x", GET, A).step("x", write("b"), OK).step("x", GET, B).at(2);
    history.transaction(1, 40, 50).step("x", GET, B).at(3);
    assert_verdicts("serial", &history, &[], &[]);
    assert!(holds_by_claims(&history.0, StrictSerializable) && holds_by_claims(&history.0, Causal));
}

#[test]
fn reads_of_what_never_was() {
    let mut aborted = History::default();
    aborted.transaction(1, 0, 10).step("x", write("a"), OK).aborted();
    aborted.transaction(2, 20, 30).step("x", GET, A).at(2);
    assert_verdicts("aborted read", &aborted, &ALL_TRANSACTIONAL, &SESSIONS);
    let mut dirty = History::default();
    dirty.transaction(1, 0, 40).step("x", write("a"), OK).aborted();
    dirty.transaction(2, 20, 30).step("x", GET, A).step("y", write("b"), OK).at(2);
    assert_verdicts("dirty read", &dirty, &ALL_TRANSACTIONAL, &SESSIONS);
    let mut nobody = History::default();
    nobody.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    nobody.transaction(2, 20, 30).step("x", GET, B).at(2);
    assert_verdicts("a value that nobody wrote", &nobody, &ALL_TRANSACTIONAL, &SESSIONS);
    let mut future = History::default();
    future.transaction(1, 0, 10).step("x", GET, A).step("x", write("a"), OK).at(1);
    let refused = ATOMIC.into_iter().chain([Causal]).collect::<Vec<_>>();
    assert_verdicts("its own future", &future, &refused, &SESSIONS);
    let mut forgotten = History::default();
    forgotten.transaction(1, 0, 10).step("x", write("a"), OK).step("x", GET, NIL).at(1);
    assert_verdicts("its own write forgotten", &forgotten, &refused, &[]);
}

#[test]
fn intermediate_read() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), OK).step("x", write("b"), OK).at(1);
    history.transaction(2, 0, 30).step("x", GET, A).at(2);
    assert_verdicts("intermediate read", &history, &ATOMIC, &[]);
}

#[test]
fn lost_update() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", GET, NIL).step("x", write("a"), OK).at(1);
    history.transaction(2, 0, 10).step("x", GET, NIL).step("x", write("b"), OK).at(2);
    assert_verdicts("lost update", &history, &[StrictSerializable, Serializable, Snapshot], &[]);
    let mut counter = History::default();
    counter.transaction(1, 0, 10).step("n", increment(1), Some("(integer) 1")).at(1);
    counter.transaction(2, 0, 10).step("n", increment(1), Some("(integer) 1")).at(2);
    let weaker: Vec<Level> = LEVELS[3..].to_vec();
    assert_verdicts("lost increment", &counter, &LEVELS[..3], &weaker);
    let mut list = History::default();
    list.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(1);
    list.transaction(2, 0, 10).step("l", push("b"), Some("(integer) 1")).at(2);
    assert_verdicts("lost append", &list, &LEVELS[..3], &weaker);
}

#[test]
fn lists_tell_their_order() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(1);
    history.transaction(2, 0, 10).step("l", push("b"), Some("(integer) 2")).at(2);
    history.transaction(3, 0, 30).step("l", ALL_ELEMENTS, Some("[\"a\"]")).at(1);
    let weaker: Vec<Level> = LEVELS[3..].to_vec();
    assert_verdicts("appended in order", &history, &[], &weaker);
    history.transaction(3, 40, 50).step("l", ALL_ELEMENTS, Some("[\"b\", \"a\"]")).at(3);
    assert_verdicts("appended in another order", &history, &LEVELS[..3], &weaker);
    let mut twice = History::default();
    twice.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(1);
    twice.transaction(2, 20, 30).step("l", ALL_ELEMENTS, Some("[\"a\", \"a\"]")).at(2);
    assert_verdicts("appended twice", &twice, &LEVELS[..3], &weaker);
}

#[test]
fn what_an_unnamed_write_may_have_left_is_not_judged() {
    let mut list = History::default();
    list.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(1);
    list.transaction(1, 20, 30).step("l", push("b"), Some("(integer) 2")).at(2);
    list.transaction(1, 40, 50).step("l", POP, Some("\"b\"")).at(3);
    list.transaction(1, 60, 70).step("l", ALL_ELEMENTS, Some("[\"a\"]")).at(4);
    list.transaction(1, 80, 90).step("l", push("c"), Some("(integer) 2")).at(5);
    assert_verdicts("popped list", &list, &[], &LEVELS[2..]);
    let mut counter = History::default();
    counter.transaction(1, 0, 10).step("n", increment(5), None).at(1);
    let twice = counter.transaction(2, 20, 30).step("n", GET, Some("\"5\""));
    twice.step("n", increment(0), Some("(integer) 5")).at(2);
    assert_verdicts("equal sums", &counter, &[], &LEVELS[2..]);
}

#[test]
fn write_skew() {
    let mut history = History::default();
    history.transaction(1, 0, 50).step("x", GET, NIL).step("y", write("1"), OK).at(1);
    history.transaction(2, 0, 50).step("y", GET, NIL).step("x", write("1"), OK).at(2);
    assert_verdicts("write skew", &history, &[StrictSerializable, Serializable], &[]);
}

#[test]
fn long_fork() {
    let mut history = History::default();
    history.transaction(1, 0, 50).step("x", write("a"), OK).at(1);
    history.transaction(2, 0, 50).step("y", write("b"), OK).at(2);
    history.transaction(3, 0, 50).step("x", GET, A).step("y", GET, NIL).at(3);
    history.transaction(4, 0, 50).step("y", GET, B).step("x", GET, NIL).at(4);
    assert_verdicts("long fork", &history, &[StrictSerializable, Serializable, Snapshot], &[]);
}

#[test]
fn fractured_reads() {
    let mut history = History::default();
    history.transaction(1, 0, 50).step("x", write("a"), OK).step("y", write("b"), OK).at(1);
    history.transaction(2, 0, 50).step("x", GET, A).step("y", GET, NIL).at(2);
    assert_verdicts("fractured read", &history, &ATOMIC, &[]);
    let mut skew = History::default();
    skew.transaction(1, 0, 90).step("x", write("a"), OK).step("y", write("a"), OK).at(1);
    skew.transaction(2, 0, 90).step("x", write("b"), OK).step("y", write("b"), OK).at(2);
    skew.transaction(3, 0, 90).step("x", GET, A).step("y", GET, B).at(3);
    assert_verdicts("read skew, dirty write", &skew, &ATOMIC, &[]);
    let mut twice = History::default();
    twice.transaction(1, 0, 50).step("x", write("a"), OK).at(1);
    twice.transaction(2, 0, 50).step("x", GET, NIL).step("x", GET, A).at(2);
    assert_verdicts("non-repeatable read", &twice, &ATOMIC, &[]);
    let mut circle = History::default();
    circle.transaction(1, 0, 50).step("x", write("a"), OK).step("y", GET, B).at(1);
    circle.transaction(2, 0, 50).step("y", write("b"), OK).step("x", GET, A).at(2);
    assert_verdicts("circular information flow", &circle, &ATOMIC, &[]);
}

#[test]
fn broken_sessions() {
    let ordered = [StrictSerializable, Serializable, Snapshot, TransactionalCausal, Causal];
    let with = |level: Level| ordered.into_iter().chain([level]).collect::<Vec<_>>();
    let mut own = History::default();
    own.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    own.transaction(1, 20, 30).step("x", GET, NIL).at(2);
    let refused: Vec<Level> = with(ReadYourWrites).into_iter().chain([ReadAtomic]).collect();
    assert_verdicts("its own write is not there", &own, &refused, &[]);
    let mut back = History::default();
    back.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    back.transaction(2, 20, 30).step("x", GET, A).at(2);
    back.transaction(2, 40, 50).step("x", GET, NIL).at(3);
    assert_verdicts("non-monotonic read", &back, &with(MonotonicReads), &[]);
    let mut writes = History::default();
    writes.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    writes.transaction(1, 20, 30).step("y", write("b"), OK).at(2);
    writes.transaction(2, 40, 50).step("y", GET, B).at(3);
    writes.transaction(2, 60, 70).step("x", GET, NIL).at(4);
    assert_verdicts("writes of a session out of order", &writes, &with(MonotonicWrites), &[]);
    let mut causes = History::default();
    causes.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    causes.transaction(2, 20, 30).step("x", GET, A).step("y", write("b"), OK).at(2);
    causes.transaction(3, 40, 50).step("y", GET, B).at(3);
    causes.transaction(3, 60, 70).step("x", GET, NIL).at(4);
    assert_verdicts("an effect without its cause", &causes, &with(WritesFollowReads), &[]);
}

/// As by a view change that forgets what some replica had answered from: the first client has no reply.
#[test]
fn an_observed_transaction_vanishes() {
    let ordered = [StrictSerializable, Serializable, Snapshot, TransactionalCausal, Causal];
    for (last, number) in [(NIL, "(nil)"), (A, "\"1\"")] {
        let vanished = last == NIL;
        let refused = |by: &[Level]| if vanished { by.to_vec() } else { Vec::new() };
        let mut history = History::default();
        history.transaction(1, 0, 10).step("x", write("a"), None).at(1).unknown();
        history.transaction(2, 20, 30).step("x", GET, A).step("y", write("b"), OK).at(2);
        history.transaction(3, 40, 50).step("y", GET, B).step("x", GET, last).at(3);
        let by = ordered.into_iter().chain([WritesFollowReads]).collect::<Vec<_>>();
        assert_verdicts("vanished, its successor is there", &history, &refused(&by), &[]);
        let mut history = History::default();
        history.transaction(1, 0, 10).step("x", write("a"), None).at(1).unknown();
        history.transaction(2, 20, 30).step("x", GET, A).at(2);
        history.transaction(3, 40, 50).step("x", GET, last).at(3);
        assert_verdicts("vanished without a trace", &history, &refused(&[StrictSerializable]), &[]);
        let mut history = History::default();
        history.transaction(1, 0, 10).step("n", increment(1), None).at(1).unknown();
        history.transaction(2, 20, 30).step("n", GET, Some("\"1\"")).at(2);
        history.transaction(2, 40, 50).step("n", GET, Some(number)).at(3);
        let report = check(&history.unclaimed(), Serializable);
        assert_eq!(
            (report.ok, report.undecided),
            (!vanished, false),
            "an increment: {:?}",
            report.violations
        );
    }
}

#[test]
fn real_time_violations() {
    let mut stale = History::default();
    stale.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    stale.transaction(2, 20, 30).step("x", GET, NIL).at(2);
    assert_verdicts("stale read", &stale, &[StrictSerializable], &[]);
    let mut blind = History::default();
    blind.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    blind.transaction(2, 20, 30).step("x", write("b"), OK).at(2);
    blind.transaction(3, 40, 50).step("x", GET, A).at(3);
    assert_verdicts("stale read after blind writes", &blind, &[StrictSerializable], &[]);
}

#[test]
fn resurrected_delete() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    history.transaction(1, 20, 30).step("x", DELETE, Some("(integer) 1")).at(2);
    history.transaction(1, 40, 50).step("x", GET, A).at(3);
    assert_verdicts("resurrected delete", &history, &ALL_TRANSACTIONAL, &[]);
    history.0.iter_mut().for_each(|t| {
        let claim = t.claim.as_mut().unwrap();
        let at = claim.commit.unwrap().at;
        claim.snapshot = Some(anabranch_checker::Snapshot { region: 0, local: at - 1, remote: 0 });
    });
    assert!(!check(&history.0, TransactionalCausal).ok, "snapshots are replayed, whatever the operations");
}

#[test]
fn what_may_have_written_nothing_is_nobodys_version() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("a"), OK).at(1);
    history.transaction(1, 20, 30).step("x", write_if_absent("b"), NIL).at(2);
    history.transaction(1, 40, 50).step("x", GET, A).at(3);
    assert_verdicts("refused write", &history, &[], &LEVELS[2..]);
}

#[test]
fn a_lost_and_a_repeated_operation_are_found_at_rest() {
    for (reply, good) in [("[\"a\"]", false), ("[\"a\", \"b\"]", true), ("[\"a\", \"b\", \"b\"]", false)] {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("l", push("a"), Some("(integer) 1")).at(1);
        history.transaction(2, 0, 10).step("l", push("b"), Some("(integer) 2")).at(2);
        history.transaction(3, 20, 30).step("l", ALL_ELEMENTS, Some(reply)).at(3).at_rest();
        assert_eq!(check(&history.unclaimed(), Level::ExactlyOnce).ok, good, "{reply}");
    }
    for (reply, good) in [("\"1\"", false), ("\"2\"", true), ("\"3\"", false)] {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("n", increment(1), None).at(1);
        history.transaction(2, 0, 10).step("n", increment(1), None).at(2);
        history.transaction(3, 20, 30).step("n", GET, Some(reply)).at(3).at_rest();
        assert_eq!(check(&history.unclaimed(), Level::ExactlyOnce).ok, good, "{reply}");
    }
    // Two heads gave one id: the newer one's entry is behind it, where nothing is free between.
    for (reply, good) in [
        ("[[\"1-0\", [\"f\", \"a\"]], [\"1-1\", [\"f\", \"b\"]]]", true),
        ("[[\"1-0\", [\"f\", \"b\"]], [\"1-1\", [\"f\", \"a\"]]]", true),
        ("[[\"1-0\", [\"f\", \"a\"]], [\"1-2\", [\"f\", \"b\"]]]", false),
        ("[[\"0-9\", [\"f\", \"a\"]], [\"1-0\", [\"f\", \"b\"]]]", false),
        ("[[\"1-0\", [\"f\", \"a\"]]]", false),
        ("[[\"1-0\", [\"f\", \"a\"]], [\"1-1\", [\"f\", \"b\"]], [\"1-2\", [\"f\", \"b\"]]]", false),
    ] {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("s", append("a"), Some("\"1-0\"")).at(1);
        history.transaction(2, 0, 10).step("s", append("b"), Some("\"1-0\"")).at(2);
        history.transaction(3, 20, 30).step("s", ENTRIES, Some(reply)).at(3).at_rest();
        assert_eq!(check(&history.unclaimed(), Level::ExactlyOnce).ok, good, "{reply}");
    }
    let empty = check(&History::default().0, Level::ExactlyOnce);
    assert!(empty.ok && !empty.undecided);
}

/// An increment that started from nothing did not read the 0 that another one leaves later.
#[test]
fn an_increment_from_nothing_is_no_read_of_a_written_zero() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("n", increment(-1), Some("(integer) -1")).at(1);
    history.transaction(2, 20, 30).step("n", increment(1), Some("(integer) 0")).at(2);
    history.transaction(3, 40, 50).step("n", increment(2), Some("(integer) 2")).at(3);
    for level in LEVELS {
        let report = check(&history.unclaimed(), level);
        assert!(report.ok, "{level}: {:?}", report.violations);
    }
}

#[test]
fn an_unknown_outcome_may_have_happened_or_not() {
    for (seen, good) in [(NIL, true), (A, true), (B, false)] {
        let mut history = History::default();
        history.transaction(1, 0, 10).step("x", write("a"), None).unknown();
        history.transaction(2, 20, 30).step("x", GET, seen).at(2);
        assert_eq!(check(&history.unclaimed(), StrictSerializable).ok, good, "{seen:?}");
    }
    let mut half = History::default();
    half.transaction(1, 0, 10).step("x", write("a"), None).step("y", write("b"), None).unknown();
    half.transaction(2, 20, 30).step("x", GET, A).step("y", GET, NIL).at(2);
    assert!(!check(&half.unclaimed(), Serializable).ok, "if it happened it happened whole");
}
#[test]
fn readers_tell_the_order_of_blind_writes_in_a_history_too_large_to_search() {
    // On each key two blind writes overlap; the second's reader ends before the first's reader begins, and the first
    // is invoked first. Only the readers say that the second came first.
    let mut history = History::default();
    for number in 0..200u64 {
        let (key, at) = (format!("k{number}"), number * 10);
        history.transaction(1000 + number, at, 100_000).step(&key, write("a"), OK).at(1);
        history.transaction(2000 + number, at + 1, 100_000).step(&key, write("b"), OK).at(2);
        history.transaction(3000 + number, at + 2, at + 4).step(&key, GET, B).at(3);
        history.transaction(4000 + number, at + 6, at + 8).step(&key, GET, A).at(4);
    }
    assert_eq!(infer(&history.unclaimed(), StrictSerializable), Some(true));
    history.transaction(5000, 90_000, 90_010).step("k0", GET, B).at(5);
    assert_eq!(infer(&history.unclaimed(), StrictSerializable), Some(false));
}
