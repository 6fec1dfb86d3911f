//! The history format survives a round trip and refuses nonsense with the line.

use crate::anomalies::support::{GET, History, add, write};
use anabranch_checker::{Level, check, check_file, read_history, render, write_history};
use types::{ReplyBuf, ReplySink};

#[test]
fn a_history_survives_its_file_form() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("a\\b\n\u{e9}", write("v"), Some("OK")).at(5);
    history.transaction(2, 0, 10).step("s", add("m"), None).saw(1, 4, 3).committed(1, 7, 2).unknown();
    history.transaction(2, 20, 30).step("s", GET, Some("-WRONGTYPE no")).at_rest();
    let mut bytes = Vec::new();
    write_history(&history.0, &mut bytes).unwrap();
    assert_eq!(read_history(bytes.as_slice()).unwrap(), history.0);
}

#[test]
fn a_bad_line_is_named() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("v"), Some("OK")).at(5);
    let mut bytes = Vec::new();
    write_history(&history.0, &mut bytes).unwrap();
    bytes.extend_from_slice(b"{\"number\":1}\n");
    let error = read_history(bytes.as_slice()).unwrap_err();
    assert_eq!(error.line, 2);
    assert!(check_file(std::path::Path::new("/nonexistent"), Level::Convergence).unwrap_err().line == 0);
}

#[test]
fn a_malformed_operation_is_a_violation_and_no_panic() {
    let mut history = History::default();
    history.transaction(1, 0, 10).step("x", write("v"), Some("OK")).at(5);
    history.0[0].steps[0].operation.0 = vec![250, 1];
    assert!(!check(&history.0, Level::StrictSerializable).ok);
    assert!(!check(&history.0, Level::TransactionalCausal).ok);
}

#[test]
fn sets_are_rendered_sorted_and_arrays_are_not() {
    let mut reply = ReplyBuf::new();
    reply.array(2);
    reply.set(2);
    reply.bulk(b"b");
    reply.bulk(b"a");
    reply.integer(-3);
    reply.null();
    assert_eq!(render(&reply), "[{\"a\", \"b\"}, (integer) -3]; (nil)");
}
