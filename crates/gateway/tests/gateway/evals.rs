//! Scripts of clients: which requests they become, and what happens when they meet a conflict.

use crate::support::{Harness, render};
use anabranch_gateway::Config;

/// A command in RESP.
fn eval(command: &str, source: &str, rest: &str) -> Vec<u8> {
    let words: Vec<&str> = [command, source].into_iter().chain(rest.split(' ')).collect();
    let bulks = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
    format!("*{}\r\n{}", words.len(), bulks.collect::<String>()).into_bytes()
}

/// How many requests of this kind the keyspace saw.
fn count(harness: &Harness, kind: &str) -> usize {
    harness.host.seen.iter().filter(|request| request.contains(kind)).count()
}

/// Runs a script of the client `a` with an interpreter that `b` interrupts: behind each of the first requests that the
/// script makes, `b` writes.
fn interrupted(mut harness: Harness, script: &[u8], writes: usize) -> (Vec<String>, Harness) {
    harness.send("a", b"SET n 1\r\n");
    let output = harness.interrupted(script, "Operate", b"INCR n\r\n", writes);
    (output, harness)
}

#[test]
fn a_script_begins_again_when_it_meets_a_conflict() {
    let source = "local n = redis.call('GET', KEYS[1]) redis.call('SET', KEYS[1], n * 10) return n";
    let script = eval("EVAL", source, "1 n");
    let (output, mut harness) = interrupted(Harness::new(Config::default()), &script, 3);
    assert_eq!(output, ["\"4\""], "what it replies is what the last try saw");
    assert_eq!((count(&harness, "Begin"), count(&harness, "Commit")), (3, 3));
    assert_eq!(render(&harness.send("c", b"GET n\r\n")), ["\"40\""]);
}

#[test]
fn a_script_gives_up_in_the_end_and_says_so() {
    let config = Config { max_attempts: 3, ..Config::default() };
    let script = eval("EVAL", "return redis.call('INCR', KEYS[1])", "1 n");
    let (output, _) = interrupted(Harness::new(config), &script, usize::MAX);
    assert!(output[0].starts_with("-CONFLICT key 'n' was changed"), "{output:?}");
    assert!(output[0].ends_with("(given up after 3 attempts)"), "{output:?}");
}

/// What a script read may be what no serial order shows: the gateway validates it before it sends the error
/// (Corrections 79).
#[test]
fn an_error_after_stale_reads_is_not_sent() {
    let source = "local a = redis.call('GET', KEYS[1]) local b = redis.call('GET', KEYS[1])
                  if a ~= b then error('impossible') end return a";
    let script = eval("EVAL", source, "1 n");
    let (output, harness) = interrupted(Harness::new(Config::default()), &script, 1);
    assert_eq!(output, ["\"2\""]);
    assert_eq!((count(&harness, "Begin"), count(&harness, "Abort")), (2, 0));
    // An error that remains is sent, once validation finds the reads current.
    let script = eval("EVAL", "redis.call('GET', KEYS[1]) error('so it is')", "1 n");
    let (output, harness) = interrupted(Harness::new(Config::default()), &script, 0);
    assert!(output[0].starts_with("-ERR user_script:1: so it is"), "{output:?}");
    assert_eq!((count(&harness, "Begin"), count(&harness, "Commit")), (1, 1));
    // One that has written takes nothing to the commit.
    let script = eval("EVAL", "redis.call('SET', KEYS[1], 9) error('so it is')", "1 n");
    let (output, mut harness) = interrupted(Harness::new(Config::default()), &script, 0);
    assert!(output[0].starts_with("-ERR user_script:1: so it is"), "{output:?}");
    assert_eq!((count(&harness, "Abort"), count(&harness, "Commit")), (1, 0));
    assert_eq!(render(&harness.send("a", b"GET n\r\n")), ["\"1\""]);
}

#[test]
fn the_time_is_that_of_the_first_try() {
    let mut harness = Harness::new(Config::default());
    let source = "redis.call('SET', 'k', 'v', 'EX', 10) return redis.call('TIME')[1]";
    harness.host.held = Some(Vec::new());
    let mut output = harness.send("a", &eval("EVAL", source, "0"));
    while output.is_empty() {
        harness.host.now_millis += 1000;
        harness.release();
        output = harness.send("a", b"");
    }
    assert_eq!(render(&output), ["\"1700000000\""]);
    harness.host.held = None;
    assert_eq!(render(&harness.send("a", b"EXPIRETIME k\r\n")), [":1700000010"]);
}

#[test]
fn a_script_that_may_not_write_begins_a_transaction_that_may_not() {
    let mut harness = Harness::new(Config::default());
    for script in [
        eval("EVAL_RO", "return redis.call('GET', 'k')", "0"),
        eval("EVAL", "#!lua flags=no-writes\nreturn redis.call('GET', 'k')", "0"),
    ] {
        harness.host.seen.clear();
        assert_eq!(render(&harness.send("a", &script)), ["nil"]);
        assert_eq!(count(&harness, "read_only: true"), 1);
    }
}

#[test]
fn others_are_served_while_a_script_computes() {
    let mut harness = Harness::new(Config::default());
    let script = eval("EVAL", "for i = 1, 1000000 do end return redis.call('GET', 'k')", "0");
    assert_eq!(harness.send("a", &script), b"");
    let mut turns = 0;
    loop {
        turns += 1;
        let number = format!(":{turns}");
        assert_eq!(render(&harness.send("b", b"INCR k\r\n")), [number.as_str()]);
        let output = harness.send("a", b"");
        if !output.is_empty() {
            assert_eq!(render(&output), [format!("\"{}\"", turns)]);
            break;
        }
    }
    assert!(turns > 10, "{turns}");
}

#[test]
fn a_client_that_leaves_takes_its_script_with_it() {
    let mut harness = Harness::new(Config::default());
    let script = eval("EVAL", "redis.call('SET', 'k', 1) while true do end", "0");
    assert_eq!(harness.send("a", &script), b"");
    let connection = harness.connection("a");
    harness.gateway.close(connection, &mut harness.host);
    assert!(harness.host.seen.last().is_some_and(|request| request.contains("Close")));
    assert_eq!(render(&harness.send("b", b"EXISTS k\r\n")), [":0"]);
    assert!(!harness.gateway.is_busy());
}

#[test]
fn commands_behind_a_script_wait_for_it() {
    let mut harness = Harness::new(Config::default());
    let mut sent = eval("EVAL", "for i = 1, 100000 do end return redis.call('INCR', 'k')", "0");
    sent.extend(b"INCR k\r\nGET k\r\n");
    let mut output = harness.send("a", &sent);
    while render(&output).len() < 3 {
        output.extend(harness.send("a", b""));
    }
    assert_eq!(render(&output), [":1", ":2", "\"2\""]);
}

/// Runs commands where keyspaces lend keys: the replies, how many loans were kept and how many taken back, and how many
/// transactions were requests.
fn on_lent_keys(commands: &[Vec<u8>]) -> (Vec<String>, [usize; 2], usize) {
    let mut harness = Harness::new(Config::default());
    harness.host.lends = true;
    let replies = commands.iter().flat_map(|command| render(&harness.ask("a", command))).collect();
    (replies, harness.host.loans, count(&harness, "Begin"))
}

fn inline(command: &str) -> Vec<u8> {
    format!("{command}\r\n").into_bytes()
}

#[test]
fn a_script_on_lent_keys_is_no_request() {
    let source = "redis.call('SET', 'k', ARGV[1]) return redis.call('INCR', 'k') + redis.call('TIME')[1] * 0";
    let (replies, loans, requests) = on_lent_keys(&[eval("EVAL", source, "0 5"), inline("GET k")]);
    assert_eq!((replies, loans, requests), (vec![":6".to_owned(), "\"6\"".to_owned()], [1, 0], 0));
}

#[test]
fn a_script_that_fails_on_lent_keys_leaves_nothing() {
    for failure in ["error('no')", "redis.call('LPUSH', 'k', 1)", "redis.call('NOTHING')"] {
        let source = format!("redis.call('SET', 'k', 1) redis.call('SET', 'l', 1) {failure}");
        let commands = [eval("EVAL", &source, "0"), inline("EXISTS k l")];
        let (replies, loans, requests) = on_lent_keys(&commands);
        assert!(replies[0].starts_with('-') && replies[1] == ":0", "{replies:?}");
        assert_eq!((loans, requests), ([0, 1], 0));
    }
}

#[test]
fn a_script_that_needs_more_than_keys_begins_anew_as_requests() {
    let source = "redis.call('INCR', 'k') redis.call('PUBLISH', 'c', 1) return redis.call('DBSIZE')";
    let (replies, loans, requests) = on_lent_keys(&[eval("EVAL", source, "0"), inline("GET k")]);
    assert_eq!((replies, loans, requests), (vec![":1".to_owned(), "\"1\"".to_owned()], [0, 1], 1));
}

#[test]
fn a_script_that_keeps_lent_keys_for_long_begins_anew_as_requests() {
    let source = "for i = 1, ARGV[1] do redis.call('INCR', 'k') end return redis.call('GET', 'k')";
    let (replies, loans, requests) = on_lent_keys(&[eval("EVAL", source, "0 3000")]);
    assert_eq!((replies, loans, requests), (vec!["\"3000\"".to_owned()], [0, 1], 1));
    let source = "redis.call('INCR', 'k') for i = 1, 3e7 do end return redis.call('INCR', 'k')";
    let (replies, loans, requests) = on_lent_keys(&[eval("EVAL", source, "0")]);
    assert_eq!((replies, loans, requests), (vec![":2".to_owned()], [0, 1], 1));
}

#[test]
fn a_script_that_computes_before_it_asks_for_keys_does_that_once() {
    let source = "for i = 1, 1e6 do end return redis.call('INCR', 'k')";
    let (replies, loans, requests) = on_lent_keys(&[eval("EVAL", source, "0")]);
    assert_eq!((replies, loans, requests), (vec![":1".to_owned()], [0, 1], 1));
}

#[test]
fn what_moves_a_value_is_no_request_on_lent_keys() {
    let commands =
        ["RPUSH l a b", "LMOVE l m LEFT RIGHT", "SADD s x", "SMOVE s t x", "COPY l c", "RENAME c d"]
            .map(inline);
    let (replies, loans, requests) = on_lent_keys(&commands);
    assert_eq!(replies, [":2", "\"a\"", ":1", ":1", ":1", "+OK"]);
    assert_eq!((loans, requests), ([4, 0], 0));
}

#[test]
fn a_gateway_without_an_interpreter_says_so() {
    let mut harness = Harness::new(Config::default());
    harness.gateway = anabranch_gateway::Gateway::new(Config::default());
    for command in ["EVAL 'return 1' 0", "SCRIPT LOAD x", "SCRIPT EXISTS x", "SCRIPT FLUSH"] {
        let output = harness.send("a", format!("{command}\r\n").as_bytes());
        assert_eq!(render(&output), ["-ERR this process runs no scripts"]);
    }
}
