//! Which requests transactions become, and what happens when they meet a conflict.

use crate::support::{Harness, render};
use anabranch_gateway::Config;

fn harness() -> Harness {
    Harness::new(Config::default())
}

/// The kinds of the requests that the keyspace saw.
fn kinds(harness: &Harness) -> Vec<String> {
    let kind = |request: &String| {
        let words = request.split(|char: char| !char.is_alphanumeric()).filter(|word| !word.is_empty());
        words.skip(1).take(1).collect()
    };
    harness.host.seen.iter().map(kind).collect()
}

#[test]
fn exec_is_one_request_when_no_command_needs_another_result() {
    let mut harness = harness();
    harness.send("a", b"MULTI\r\nSET a 1\r\nMGET a b\r\nDEL a b\r\nPING\r\nSINTER a b\r\nEXEC\r\n");
    assert_eq!(kinds(&harness), ["Many"]);
}

#[test]
fn exec_of_one_command_tells_an_error_of_the_command_from_a_refusal_of_all() {
    let mut harness = harness();
    harness.send("a", b"KEYSPACE CREATE x MODEL strict\r\nKEYSPACE USE x\r\nSET a b\r\n");
    let output = harness.send("a", b"MULTI\r\nINCR a\r\nEXEC\r\n");
    assert_eq!(render(&output)[2], "[-ERR value is not an integer or out of range]");
    harness.send("a", b"MULTI\r\nINCR a\r\n");
    harness.send("b", b"KEYSPACE DROP x\r\n");
    assert_eq!(render(&harness.send("a", b"EXEC\r\n")), ["-ERR the keyspace was dropped"]);
    harness.send("a", b"MULTI\r\nGET a\r\nINCR a\r\n");
    assert_eq!(render(&harness.send("a", b"EXEC\r\n")), ["-ERR the keyspace was dropped"]);
}

#[test]
fn exec_with_a_dialogue_is_a_transaction_of_several_requests() {
    let mut harness = harness();
    harness.send("a", b"MULTI\r\nSET a 1\r\nRENAME a b\r\nEXEC\r\n");
    assert_eq!(kinds(&harness), ["Begin", "Operate", "Operate", "Operate", "Commit"]);
}

#[test]
fn keys_outside_a_transaction_is_no_transaction() {
    let mut harness = Harness::new(Config { scan_piece: 2, ..Config::default() });
    harness.send("a", b"MSET a 1 b 2 c 3\r\nKEYS *\r\n");
    assert_eq!(kinds(&harness), ["Many", "Many", "Many"]);
}

#[test]
fn a_key_that_was_drawn_and_is_gone_is_drawn_again() {
    let mut harness = harness();
    harness.send("a", b"MSET k 1 gone 1\r\nDEL gone\r\n");
    harness.host.set_draws(&[Some("k"), Some("gone"), Some("gone")]);
    assert_eq!(render(&harness.send("a", b"RANDOMKEY\r\n")), ["\"k\""]);
    harness.host.set_draws(&[Some("k"), Some("gone")]);
    let output = harness.send("a", b"MULTI\r\nDEL x\r\nRANDOMKEY\r\nSET x 1\r\nEXEC\r\n");
    assert_eq!(render(&output)[4], "[:0, \"k\", +OK]");
}

#[test]
fn that_no_key_was_found_is_no_proof_that_there_is_none() {
    let mut harness = harness();
    harness.host.set_draws(&[None]);
    assert_eq!(render(&harness.send("a", b"RANDOMKEY\r\n")), ["nil"]);
    harness.send("a", b"SET k 1\r\n");
    harness.host.set_draws(&[None]);
    harness.host.seen.clear();
    assert_eq!(render(&harness.send("a", b"RANDOMKEY\r\n")), ["\"k\""]);
    // Nothing but a draw, a count, a piece of the keys, and whether those exist.
    assert_eq!(kinds(&harness), ["Many"; 4]);
    harness.host.set_draws(&[Some("gone"); 40]);
    let mut output = harness.send("a", b"RANDOMKEY\r\n");
    while output.is_empty() {
        // Others have their turn in between.
        output = harness.send("a", b"");
    }
    assert_eq!(render(&output), ["\"k\""]);
}

/// Stops a client behind each of its requests and lets another one write in between.
fn renamed_while_written(config: Config, writes: usize) -> (Vec<String>, Harness) {
    let mut harness = Harness::new(config);
    harness.send("a", b"SET from 1\r\n");
    let output = harness.interrupted(b"RENAME from to\r\n", "Take", b"SET from 2\r\n", writes);
    (output, harness)
}

#[test]
fn rename_is_tried_again_when_it_meets_a_conflict() {
    let (output, mut harness) = renamed_while_written(Config::default(), 2);
    assert_eq!(output, ["+OK"]);
    assert_eq!(kinds(&harness).iter().filter(|kind| *kind == "Begin").count(), 3);
    assert_eq!(render(&harness.send("c", b"MGET from to\r\n")), ["[nil, \"2\"]"]);
}

#[test]
fn rename_gives_up_in_the_end_and_says_so() {
    let (output, _) = renamed_while_written(Config { max_attempts: 3, ..Config::default() }, usize::MAX);
    assert_eq!(
        output,
        [
            "-CONFLICT key 'from' was changed by a concurrent transaction; retry the transaction (given up after 3 \
          attempts)"
        ]
    );
}

#[test]
fn a_closed_session_has_no_watches_and_no_transaction_afterwards() {
    let mut harness = harness();
    harness.send("a", b"TXN BEGIN\r\nSET k 1\r\nRESET\r\nGET k\r\n");
    assert_eq!(kinds(&harness), ["Begin", "Operate", "Close", "One"]);
    let output = harness.send("a", b"WATCH k\r\nSET k 1\r\nRESET\r\nMULTI\r\nGET k\r\nEXEC\r\n");
    assert_eq!(render(&output), ["+OK", "+OK", "+RESET", "+OK", "+QUEUED", "[\"1\"]"]);
}

#[test]
fn blind_operations_are_marked_and_join_the_batch() {
    let mut harness = harness();
    let output = harness.send("a", b"BLIND INCR n\r\nINCR n\r\nBLIND SADD s x\r\n");
    assert_eq!(render(&output), ["+OK", ":2", "+OK"]);
    assert_eq!(harness.host.batches, [3]);
    let blind: Vec<bool> = harness.host.seen.iter().map(|request| request.contains("blind: true")).collect();
    assert_eq!(blind, [true, false, true]);
}

#[test]
fn commands_sent_together_in_an_open_transaction_are_submitted_together() {
    let mut harness = harness();
    let sent = b"TXN BEGIN\r\nSET k 1\r\nGET k\r\nINCR k\r\nMGET k l\r\nGET k\r\nTXN COMMIT\r\nGET k\r\n";
    let output = render(&harness.send("a", sent));
    assert_eq!(output, ["+OK", "+OK", "\"1\"", ":2", "[\"2\", nil]", "\"2\"", "+OK", "\"2\""]);
    assert_eq!(kinds(&harness), ["Begin", "Operate", "Operate", "Operate", "Commit", "One"]);
    let steps = |request: &String| request.matches("KeyedOperation").count();
    assert_eq!(harness.host.seen.iter().map(steps).collect::<Vec<_>>(), [0, 3, 2, 1, 0, 1]);
}

#[test]
fn replies_to_commands_submitted_together_are_separate() {
    let mut harness = harness();
    harness.send("a", b"SET k word\r\n");
    let output = harness.send("a", b"TXN BEGIN\r\nINCR k\r\nGET k\r\nSMEMBERS s\r\nTXN COMMIT\r\n");
    let output = render(&output);
    assert!(output[1].contains("not an integer"), "{output:?}");
    assert_eq!((output[2].as_str(), output.len()), ("\"word\"", 5));
}
