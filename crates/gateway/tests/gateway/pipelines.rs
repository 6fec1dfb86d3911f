//! Pipelines: what becomes one batch, what waits, what a connection may do meanwhile.

use crate::support::{Harness, render};
use anabranch_gateway::{ClientFilter, Config, State};
use resp::Limits;

fn harness() -> Harness {
    Harness::new(Config::default())
}

fn slow() -> Harness {
    let mut harness = harness();
    harness.host.held = Some(Vec::new());
    harness
}

#[test]
fn consecutive_commands_on_single_keys_are_one_batch() {
    let mut harness = harness();
    let output = harness.send("a", b"SET k 1\r\nGET k\r\nINCR k\r\nHSET h f v\r\nDEL k\r\n");
    assert_eq!(render(&output), ["+OK", "\"1\"", ":2", ":1", ":1"]);
    assert_eq!(harness.host.batches, [5]);
}

#[test]
fn other_commands_end_the_batch_and_keep_the_order_of_replies() {
    let mut harness = harness();
    let output = harness.send("a", b"SET k 1\r\nPING\r\nGET k\r\nGET\r\nMGET k k\r\nGET k\r\nSET k 2\r\n");
    let error = "-ERR wrong number of arguments for 'get' command";
    assert_eq!(render(&output), ["+OK", "+PONG", "\"1\"", error, "[\"1\", \"1\"]", "\"1\"", "+OK"]);
    assert_eq!(harness.host.batches, [1, 1, 1, 2]);
}

#[test]
fn a_waiting_connection_executes_nothing_more_and_others_go_on() {
    let mut harness = slow();
    assert_eq!(render(&harness.send("a", b"SET k 1\r\nPING\r\nGET k\r\n")), [""; 0]);
    let connection = harness.connection("a");
    assert_eq!(harness.gateway.state(connection), State::Waiting);
    assert_eq!(harness.host.seen.len(), 1);
    assert_eq!(render(&harness.send("b", b"PING\r\n")), ["+PONG"]);
    assert_eq!(render(&harness.ask("a", b"ECHO x\r\n")), ["+OK", "+PONG", "\"1\"", "\"x\""]);
    assert_eq!(harness.gateway.state(connection), State::Reading);
}

#[test]
fn replies_that_come_in_any_order_leave_in_the_order_of_commands() {
    let mut harness = slow();
    let pipeline: Vec<u8> =
        (0..300).flat_map(|number| format!("SET k {number}\r\nGET k\r\n").into_bytes()).collect();
    let expected: Vec<String> =
        (0..300).flat_map(|number| ["+OK".to_owned(), format!("\"{number}\"")]).collect();
    assert_eq!(render(&harness.ask("a", &pipeline)), expected);
}

#[test]
fn a_command_in_pieces_is_executed_when_it_is_whole() {
    let mut harness = harness();
    let whole = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
    let mut output = Vec::new();
    for byte in whole {
        output.extend(harness.send("a", &[*byte]));
    }
    assert_eq!(render(&output), ["+OK", "\"hello\""]);
}

#[test]
fn a_partial_command_behind_one_that_waits_is_not_lost() {
    let mut harness = slow();
    assert!(harness.send("a", b"PING\r\nSET k 1\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1").starts_with(b"+PONG"));
    assert_eq!(render(&harness.ask("a", b"\r\nk\r\n")), ["+OK", "+PONG", "\"1\""]);
}

#[test]
fn a_protocol_error_is_the_last_reply() {
    for mut harness in [harness(), slow()] {
        let output = harness.ask("a", b"SET k 1\r\nGET k\r\n*1\r\n!bad\r\nPING\r\n");
        let error = "-ERR Protocol error: expected '$', got '!'";
        assert_eq!(render(&output), ["+OK", "\"1\"", error]);
        let connection = harness.connection("a");
        assert_eq!(harness.gateway.state(connection), State::Closing);
        assert!(harness.send("a", b"PING\r\n").is_empty());
    }
}

#[test]
fn quit_ends_the_pipeline() {
    let mut harness = harness();
    assert_eq!(render(&harness.send("a", b"PING\r\nQUIT\r\nPING\r\n")), ["+PONG", "+OK"]);
    let connection = harness.connection("a");
    assert_eq!(harness.gateway.state(connection), State::Closing);
}

#[test]
fn a_full_output_stops_the_connection_until_it_is_sent() {
    let limits = Limits { max_batch_commands: 10, ..Limits::default() };
    let mut harness = Harness::new(Config { max_output_bytes: 100, limits, ..Config::default() });
    let connection = harness.connection("a");
    let first = harness.send("a", "PING\r\n".repeat(100).as_bytes());
    assert!((100..200).contains(&first.len()), "{}", first.len());
    assert_eq!(harness.gateway.state(connection), State::Reading, "the harness took the output");
    let mut total = first.len();
    while total < 700 {
        let more = harness.send("a", b"").len();
        assert!((1..200).contains(&more));
        total += more;
    }
    assert_eq!(total, 700);
}

#[test]
fn nothing_happens_before_authentication() {
    let mut harness = harness();
    harness.host.set_password(Some("secret"));
    let refused = "-NOAUTH Authentication required.";
    assert_eq!(render(&harness.send("a", b"GET k\r\nPING\r\nMULTI\r\n")), [refused; 3]);
    let output = harness.send("a", b"NOSUCH\r\nHELLO 2\r\nAUTH wrong\r\nAUTH secret\r\nGET k\r\n");
    let lines = render(&output);
    assert!(lines[0].starts_with("-ERR unknown command"), "{lines:?}");
    assert!(lines[1].starts_with("-NOAUTH HELLO must be called"), "{lines:?}");
    assert_eq!(lines[2..], ["-WRONGPASS invalid username-password pair or user is disabled.", "+OK", "nil"]);
    let output =
        harness.send("b", b"HELLO 3 AUTH default secret SETNAME b\r\nCLIENT GETNAME\r\nRESET\r\nGET k\r\n");
    assert_eq!(render(&output)[1..], ["\"b\"", "+RESET", refused]);
}

#[test]
fn an_unauthenticated_client_may_send_short_commands_only() {
    let mut harness = harness();
    harness.host.set_password(Some("secret"));
    let long = format!("*2\r\n$4\r\nECHO\r\n$100000\r\n{}\r\n", "x".repeat(100_000));
    let pipeline = format!("AUTH secret\r\n{long}");
    assert_eq!(render(&harness.send("a", pipeline.as_bytes())).len(), 2);
    let output = harness.send("b", long.as_bytes());
    assert_eq!(render(&output), ["-ERR Protocol error: unauthenticated bulk length"]);
}

#[test]
fn a_queue_is_bounded() {
    let mut harness =
        Harness::new(Config { max_queued_commands: 2, max_queued_bytes: 200, ..Config::default() });
    let output = harness.send("a", b"MULTI\r\nSET a 1\r\nSET b 1\r\nSET c 1\r\nEXEC\r\nGET a\r\n");
    let (too_many, aborted) = (
        "-ERR 'set' exceeds the limit of 2 commands in a transaction",
        "-EXECABORT Transaction discarded because of previous errors.",
    );
    assert_eq!(render(&output), ["+OK", "+QUEUED", "+QUEUED", too_many, aborted, "nil"]);
    let long = format!("MULTI\r\nSET a {}\r\nEXEC\r\n", "x".repeat(200));
    let too_long = "-ERR 'set' exceeds the limit of 200 bytes in a transaction";
    assert_eq!(render(&harness.send("a", long.as_bytes())), ["+OK", too_long, aborted]);
}

#[test]
fn watches_are_bounded() {
    let mut harness = Harness::new(Config { max_watched_keys: 3, ..Config::default() });
    let output = harness.send("a", b"WATCH a b\r\nWATCH a b\r\nWATCH c\r\nUNWATCH\r\nWATCH a b c\r\n");
    let refused = "-ERR a session watches at most 3 keys";
    assert_eq!(render(&output), ["+OK", refused, "+OK", "+OK", "+OK"]);
}

#[test]
fn a_closed_client_gives_up_its_transaction_and_late_replies_are_dropped() {
    let mut harness = slow();
    harness.send("a", b"SELECT 3\r\nGET k\r\n");
    let connection = harness.connection("a");
    harness.gateway.close(connection, &mut harness.host);
    let closed = harness.host.seen.iter().filter(|request| request.contains("Close")).count();
    assert_eq!(closed, 2, "in the keyspaces 0 and 3");
    harness.release();
    assert_eq!(harness.gateway.connections(), 0);
    assert_eq!(harness.gateway.state(connection), State::Closing);
    assert!(harness.gateway.output_mut(connection).is_none());
}

#[test]
fn the_slot_of_a_closed_connection_is_used_again_under_another_name() {
    let mut harness = harness();
    let first = harness.connection("a");
    harness.gateway.close(first, &mut harness.host);
    let second = harness.connection("b");
    assert_ne!(first, second);
    assert_eq!(render(&harness.send("b", b"PING\r\n")), ["+PONG"]);
    assert_eq!(harness.gateway.state(first), State::Closing);
}

#[test]
fn a_killed_client_is_news_for_the_runtime() {
    let mut harness = harness();
    let (first, second) = (harness.connection("a"), harness.connection("b"));
    assert_eq!(harness.gateway.kill(&ClientFilter { client: Some(1), ..ClientFilter::default() }), 1);
    let mut news = Vec::new();
    harness.gateway.settle(&mut harness.host, &mut news);
    assert_eq!(news, [first]);
    assert_eq!(harness.gateway.state(first), State::Closing);
    assert_eq!(harness.gateway.state(second), State::Reading);
}

#[test]
fn a_long_command_lets_others_go_first() {
    let mut harness = Harness::new(Config { scan_piece: 1, ..Config::default() });
    let pairs: String = (10..40).map(|number| format!(" k{number} v")).collect();
    harness.send("a", format!("MSET{pairs}\r\n").as_bytes());
    assert!(harness.send("a", b"KEYS k1*\r\nPING\r\n").is_empty());
    let connection = harness.connection("a");
    assert_eq!(harness.gateway.state(connection), State::Waiting);
    assert!(harness.gateway.is_busy());
    assert_eq!(render(&harness.send("b", b"PING\r\n")), ["+PONG"]);
    let lines = render(&harness.ask("a", b""));
    assert_eq!(lines.len(), 2);
    assert_eq!(lines[0].matches("k1").count(), 10);
    let before = harness.host.batches.len();
    harness.send("a", b"KEYS *\r\n");
    harness.gateway.close(connection, &mut harness.host);
    harness.gateway.settle(&mut harness.host, &mut Vec::new());
    assert!(!harness.gateway.is_busy(), "it is over");
    assert!(harness.host.batches.len() < before + 25);
}

#[test]
fn requests_name_their_worker() {
    let mut harness = Harness::new(Config { worker: 5, ..Config::default() });
    harness.host.held = Some(Vec::new());
    harness.send("a", b"GET k\r\n");
    let held = harness.host.held.as_ref().expect("held back");
    assert_eq!(Config::worker_of(held[0].0), 5);
}

#[test]
fn replies_that_tell_of_the_session_only_are_known() {
    let mut harness = harness();
    let pipeline =
        b"PING\r\nSET k 1\r\nSELECT 0\r\nGET\r\nGET k\r\nMULTI\r\nGET k\r\nEXEC\r\nWATCH k\r\nDBSIZE\r\n\
        TXN BEGIN\r\nGET k\r\nTXN COMMIT\r\nUNWATCH\r\n";
    let output = harness.send("a", pipeline);
    let connection = harness.connection("a");
    let own = harness.gateway.take_own_replies(connection);
    let own: Vec<String> = own.into_iter().flat_map(|range| render(&output[range])).collect();
    let error = "-ERR wrong number of arguments for 'get' command";
    assert_eq!(own, ["+PONG", "+OK", error, "+OK", "+QUEUED", "+OK", "+OK", "+OK"]);
    assert!(harness.gateway.take_own_replies(connection).is_empty());
}

#[test]
fn a_client_that_waits_for_a_dropped_keyspace_gets_an_error_and_goes_on() {
    let mut harness = slow();
    let gone = types::Error::err("gone");
    assert_eq!(render(&harness.send("a", b"SET k 1\r\nGET k\r\nMGET k l\r\nPING\r\n")), [""; 0]);
    assert_eq!(
        render(&harness.send("b", b"MULTI\r\nSET k 1\r\nGET k\r\nEXEC\r\n")),
        ["+OK", "+QUEUED", "+QUEUED"]
    );
    assert_eq!(render(&harness.send("c", b"SELECT 3\r\nGET k\r\n")), ["+OK"]);
    // What the keyspace would have said nobody hears any more.
    harness.host.held = Some(Vec::new());
    harness.gateway.give_up_waiting(types::KeyspaceId(0), &gone, &mut harness.host);
    assert_eq!(render(&harness.send("a", b"")), ["-ERR gone", "-ERR gone"]);
    assert_eq!(render(&harness.send("b", b"")), ["-ERR gone"]);
    harness.gateway.give_up_waiting(types::KeyspaceId(0), &gone, &mut harness.host);
    assert_eq!(render(&harness.send("a", b"")), ["-ERR gone", "+PONG"]);
    assert_eq!(render(&harness.send("c", b"")), [""; 0], "it waits for another keyspace");
    harness.gateway.give_up_waiting(types::KeyspaceId(3), &gone, &mut harness.host);
    assert_eq!(render(&harness.send("c", b"")), ["-ERR gone"]);
    assert_eq!(render(&harness.send("b", b"PING\r\n")), ["+PONG"]);
}
