//! A name that this process has not heard of is looked for once, wherever a command may name it.

use crate::support::{Harness, render};
use anabranch_gateway::Config;

/// What is answered to commands that name an auction which others have loaded.
fn ask(name: &'static str, commands: &[u8]) -> Vec<String> {
    let mut harness = Harness::new(Config::default());
    harness.host.unheard_of = Some(name);
    let answers = render(&harness.send("a", commands));
    assert_eq!(harness.host.unheard_of, None, "the host was asked");
    answers
}

#[test]
fn a_command_that_names_it_is_carried_out() {
    assert_eq!(ask("auction.call", b"TYPE.CALL lot auction.call bid ann 3\r\n"), ["+OK"]);
    assert_eq!(ask("auction.read", b"TYPE.READ lot auction.read leader\r\n"), ["nil"]);
}

#[test]
fn so_is_one_behind_a_prefix_in_a_transaction_or_in_a_script() {
    assert_eq!(ask("auction.blind", b"BLIND TYPE.CALL lot auction.blind bid ann 3\r\n"), ["+OK"]);
    let answers = ask("auction.exec", b"MULTI\r\nTYPE.CALL lot auction.exec bid ann 3\r\nEXEC\r\n");
    assert_eq!(answers[2], "[+OK]");
    let answers = ask("auction.txn", b"TXN BEGIN\r\nTYPE.CALL lot auction.txn bid ann 3\r\nTXN COMMIT\r\n");
    assert_eq!(answers[1], "+OK");
    let script =
        b"EVAL \"return redis.call('TYPE.CALL', KEYS[1], 'auction.eval', 'bid', 'ann', 3)\" 1 lot\r\n";
    assert_eq!(ask("auction.eval", script), ["+OK"]);
}

#[test]
fn it_can_be_described() {
    assert!(ask("auction.info", b"TYPES INFO auction.info\r\n")[0].contains("bid bidder amount:integer"));
}

#[test]
fn one_that_nobody_has_loaded_is_refused() {
    let mut harness = Harness::new(Config::default());
    let answers = render(&harness.send("a", b"TYPE.CALL lot nothing bid ann 3\r\nTYPES INFO nothing\r\n"));
    let refusal = "-ERR no type 'nothing' is loaded; TYPES LIST names those that are, TYPES LOAD loads one";
    assert_eq!(answers, [refusal, refusal]);
}
