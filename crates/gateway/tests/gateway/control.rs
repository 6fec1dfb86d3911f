//! Commands by which clients and operators say how commands are served, and what is counted of them.

use crate::support::{Harness, render};
use anabranch_gateway::{ClusterMap, ClusterMember, Config, State};

fn harness() -> Harness {
    Harness::new(Config::default())
}

fn replies_to(harness: &mut Harness, commands: &str) -> Vec<String> {
    render(&harness.ask("a", commands.as_bytes()))
}

#[test]
fn a_client_gets_the_replies_that_it_wants() {
    let mut harness = harness();
    let replies = replies_to(
        &mut harness,
        "SET k 1\r\nCLIENT REPLY OFF\r\nINCR k\r\nPING\r\nGET\r\nMGET k\r\nCLIENT REPLY ON\r\nGET k\r\n",
    );
    assert_eq!(replies, ["+OK", "+OK", "\"2\""]);
    let replies = replies_to(
        &mut harness,
        "CLIENT REPLY SKIP\r\nINCR k\r\nINCR k\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO x\r\n",
    );
    assert_eq!(replies, [":4", "\"x\""]);
    assert_eq!(replies_to(&mut harness, "CLIENT REPLY MAYBE\r\n"), ["-ERR syntax error"]);
    let replies = replies_to(&mut harness, "MULTI\r\nCLIENT REPLY OFF\r\nEXEC\r\n");
    assert!(
        replies[1].contains("inside a transaction") && replies[2].starts_with("-EXECABORT"),
        "{replies:?}"
    );
}

#[test]
fn skipped_replies_that_come_later_are_skipped_too() {
    let mut harness = harness();
    harness.host.held = Some(Vec::new());
    let replies = replies_to(&mut harness, "CLIENT REPLY SKIP\r\nINCR k\r\nINCR k\r\nGET k\r\n");
    assert_eq!(replies, [":2", "\"2\""]);
}

#[test]
fn paused_commands_wait_and_go_on() {
    let mut harness = harness();
    assert_eq!(replies_to(&mut harness, "CLIENT PAUSE 1000 WRITE\r\nGET k\r\n"), ["+OK", "nil"]);
    assert_eq!(render(&harness.send("b", b"GET k\r\nSET k 1\r\nGET k\r\n")), ["nil"]);
    let waits = harness.connection("b");
    assert_eq!(harness.gateway.state(waits), State::Waiting);
    assert!(harness.gateway.deadline().is_some());
    harness.host.now_millis += 999;
    assert_eq!(render(&harness.send("b", b"PING\r\n")), [""; 0]);
    harness.host.now_millis += 1;
    harness.release();
    assert_eq!(render(&harness.send("b", b"")), ["+OK", "\"1\"", "+PONG"]);
    assert_eq!(harness.gateway.deadline(), None);
    assert_eq!(replies_to(&mut harness, "CLIENT PAUSE 1000 WRITE\r\n"), ["+OK"]);
    assert_eq!(render(&harness.send("b", b"DEL k\r\n")), [""; 0]);
    assert_eq!(replies_to(&mut harness, "CLIENT UNPAUSE\r\n"), ["+OK"]);
    harness.release();
    assert_eq!(render(&harness.send("b", b"")), [":1"]);
}

#[test]
fn a_sleep_holds_up_its_own_connection_only() {
    let mut harness = harness();
    assert_eq!(render(&harness.send("a", b"DEBUG SLEEP 0.5\r\nPING\r\n")), [""; 0]);
    assert_eq!(render(&harness.send("b", b"PING\r\n")), ["+PONG"]);
    harness.host.now_millis += 500;
    harness.release();
    assert_eq!(render(&harness.send("a", b"")), ["+OK", "+PONG"]);
}

#[test]
fn lines_of_http_end_the_connection() {
    for line in ["POST / HTTP/1.1", "host: a"] {
        let mut harness = harness();
        assert_eq!(replies_to(&mut harness, &format!("SET k 1\r\n{line}\r\nSET k 2\r\n")), ["+OK"]);
        let connection = harness.connection("a");
        assert_eq!(harness.gateway.state(connection), State::Closing);
        assert_eq!(render(&harness.ask("b", b"GET k\r\n")), ["\"1\""]);
        assert_eq!(*harness.host.incidents.borrow(), ["CrossProtocol(\"10.0.0.1:5000\")"]);
    }
}

#[test]
fn five_wrong_passwords_end_the_connection() {
    let mut harness = harness();
    harness.host.set_password(Some("secret"));
    let replies = replies_to(&mut harness, &"AUTH wrong\r\n".repeat(6));
    assert_eq!(replies.len(), 5);
    let connection = harness.connection("a");
    assert_eq!(harness.gateway.state(connection), State::Closing);
    // Who has been let in once may err.
    let replies =
        render(&harness.ask("b", ("AUTH secret\r\n".to_owned() + &"AUTH wrong\r\n".repeat(6)).as_bytes()));
    assert_eq!(replies.len(), 7);
    let connection = harness.connection("b");
    assert!(harness.gateway.is_admitted(connection));
}

#[test]
fn commands_and_errors_are_counted() {
    let mut harness = harness();
    replies_to(
        &mut harness,
        "SET k x\r\nGET k\r\nGET k\r\nINCR k\r\nGET\r\nNOPE\r\nCLIENT ID\r\nMULTI\r\nGET k\r\nEXEC\r\n",
    );
    let counted = replies_to(&mut harness, "INFO commandstats\r\nINFO errorstats\r\n");
    let has = |line: &str| assert!(counted[0].contains(line), "{line} in {}", counted[0]);
    has("cmdstat_get:calls=3,");
    has("cmdstat_set:calls=1,");
    has("cmdstat_client|id:calls=1,");
    has("cmdstat_exec:calls=1,");
    assert!(counted[0].contains("cmdstat_get:") && counted[0].contains("rejected_calls=1,failed_calls=0"));
    let incr = counted[0].split("cmdstat_incr:").nth(1).expect("it was called");
    assert!(incr.starts_with("calls=1,") && incr.contains("rejected_calls=0,failed_calls=1"), "{incr}");
    assert!(counted[1].contains("errorstat_ERR:count=3"), "{}", counted[1]);
    replies_to(&mut harness, "CONFIG RESETSTAT\r\n");
    let counted = replies_to(&mut harness, "INFO commandstats\r\n");
    assert!(!counted[0].contains("cmdstat_get"), "{}", counted[0]);
}

#[test]
fn slow_commands_are_remembered_with_their_words() {
    let mut harness = harness();
    assert_eq!(
        replies_to(&mut harness, "SLOWLOG LEN\r\nCONFIG SET slowlog-log-slower-than 0\r\n"),
        [":0", "+OK"]
    );
    let long = "x".repeat(200);
    replies_to(&mut harness, &format!("SET k {long}\r\nGET k\r\nDEL k\r\n"));
    replies_to(&mut harness, "KEYS *\r\n");
    let log = replies_to(&mut harness, "SLOWLOG GET 2\r\n");
    let cut =
        format!("\"SET\", \"k\", \"{}... (72 more bytes)\", \"... (2 more commands)\"", "x".repeat(128));
    assert!(log[0].contains(&cut) && log[0].contains("[\"KEYS\", \"*\"]"), "{}", log[0]);
    assert!(log[0].contains("\"10.0.0.1:5000\", \"\""), "{}", log[0]);
    assert_eq!(
        replies_to(&mut harness, "SLOWLOG GET -2\r\n"),
        ["-ERR count should be greater than or equal to -1"]
    );
    assert!(replies_to(&mut harness, "LATENCY LATEST\r\n")[0].starts_with("[[\"command\", :1700000000, "));
    assert_eq!(replies_to(&mut harness, "LATENCY RESET nothing\r\nLATENCY RESET\r\n"), [":0", ":1"]);
    let emptied = replies_to(&mut harness, "SLOWLOG RESET\r\nSLOWLOG LEN\r\n");
    // The reset itself was slow, too.
    assert_eq!(emptied, ["+OK", ":1"]);
}

#[test]
fn the_process_ends_without_a_reply() {
    let mut harness = harness();
    let refused = replies_to(
        &mut harness,
        "SHUTDOWN SAVE NOSAVE\r\nSHUTDOWN ABORT NOW\r\nSHUTDOWN LATER\r\nSHUTDOWN ABORT\r\n",
    );
    assert_eq!(refused[..3], ["-ERR syntax error"; 3]);
    assert_eq!(refused[3], "-ERR No shutdown in progress.");
    assert_eq!(harness.host.shut_down, None);
    assert_eq!(replies_to(&mut harness, "SHUTDOWN NOSAVE NOW FORCE\r\n"), [""; 0]);
    assert_eq!(harness.host.shut_down, Some(false));
}

#[test]
fn a_password_that_is_taken_away_lets_in_who_waits() {
    let mut harness = harness();
    harness.host.set_password(Some("secret"));
    let refused = ["-NOAUTH Authentication required."];
    assert_eq!(replies_to(&mut harness, "GET k\r\n"), refused);
    harness.host.set_password(None);
    assert_eq!(replies_to(&mut harness, "GET k\r\n"), ["nil"]);
    harness.host.set_password(Some("another"));
    assert_eq!(replies_to(&mut harness, "GET k\r\n"), ["nil"], "who is in stays in");
    assert_eq!(render(&harness.ask("b", b"HELLO 3\r\n"))[0].split(' ').next(), Some("-NOAUTH"));
    harness.host.set_password(None);
    assert!(!render(&harness.ask("b", b"HELLO 3\r\n"))[0].starts_with('-'));
    assert_eq!(render(&harness.ask("b", b"GET k\r\n")), ["nil"]);
}

#[test]
fn other_gateways_hear_of_a_clients_name_at_once() {
    let mut harness = harness();
    replies_to(&mut harness, "CLIENT SETNAME ada\r\nGET k\r\nHELLO 2 SETNAME bob\r\nHELLO 2\r\n");
    assert_eq!(*harness.host.noted.borrow(), ["ada", "bob"]);
}

#[test]
fn passwords_are_not_among_slow_commands() {
    let mut harness = harness();
    let commands = "CONFIG SET slowlog-log-slower-than 0\r\nAUTH ada hunter2\r\nHELLO 3 AUTH ada hunter2 SETNAME x\r\n\
                    CONFIG SET requirepass hunter2 hz 10\r\nHELLO 2\r\n";
    replies_to(&mut harness, commands);
    let logged = replies_to(&mut harness, "SLOWLOG GET -1\r\n").join(" ");
    assert!(!logged.contains("hunter2"), "{logged}");
    for shown in
        ["\"AUTH\", \"(redacted)\"", "\"SETNAME\", \"x\"", "\"requirepass\", \"(redacted)\", \"hz\", \"10\""]
    {
        assert!(logged.contains(shown), "{shown} in {logged}");
    }
}

#[test]
fn a_cluster_tells_clients_whom_to_ask_for_which_slots() {
    let mut harness = harness();
    let disabled = ["-ERR This instance has cluster support disabled"];
    for command in [
        "CLUSTER SLOTS",
        "CLUSTER SHARDS",
        "CLUSTER NODES",
        "CLUSTER MYID",
        "CLUSTER INFO",
        "ASKING",
        "READONLY",
    ] {
        assert_eq!(replies_to(&mut harness, &format!("{command}\r\n")), disabled, "{command}");
    }
    let member = |process: u16, is_up| ClusterMember {
        process,
        host: format!("10.0.0.{process}"),
        port: 6379,
        peer_port: 7000,
        is_self: process == 2,
        is_up,
    };
    harness.host.cluster =
        Some(ClusterMap { seed: 0xabc, members: vec![member(1, true), member(2, true), member(3, false)] });
    let name = |process: u16| format!("0000000000000abc{process:024x}");
    let line = |process: u16, first: u16, last: u16| {
        format!("[:{first}, :{last}, [\"10.0.0.{process}\", :6379, \"{}\", []]]", name(process))
    };
    let slots = replies_to(&mut harness, "CLUSTER SLOTS\r\n");
    assert_eq!(slots, [format!("[{}, {}]", line(1, 0, 8191), line(2, 8192, 16383))]);
    let nodes = replies_to(&mut harness, "CLUSTER NODES\r\n").join("");
    for line in [
        format!("{} 10.0.0.1:6379@7000 master - 0 0 1 connected 0-8191\\n", name(1)),
        format!("{} 10.0.0.2:6379@7000 myself,master - 0 0 2 connected 8192-16383\\n", name(2)),
        format!("{} 10.0.0.3:6379@7000 master,fail - 0 0 3 disconnected\\n", name(3)),
    ] {
        assert!(nodes.contains(&line), "{line} in {nodes}");
    }
    assert_eq!(replies_to(&mut harness, "CLUSTER MYID\r\n"), [format!("\"{}\"", name(2))]);
    let shards = replies_to(&mut harness, "CLUSTER SHARDS\r\n").join("");
    assert!(shards.contains("\"slots\", [:8192, :16383]") && shards.contains("\"failed\""), "{shards}");
    let links = replies_to(&mut harness, "CLUSTER LINKS\r\n");
    assert_eq!(links, [format!("[[\"direction\", \"to\", \"node\", \"{}\"]]", name(1))]);
    assert_eq!(replies_to(&mut harness, "READONLY\r\nREADWRITE\r\nASKING\r\n"), ["+OK", "+OK", "+OK"]);
    assert!(replies_to(&mut harness, "CLUSTER INFO\r\n").join("").contains("cluster_known_nodes:3"));
}

/// The lines that a client which watches is sent, without their times.
fn watched(harness: &mut Harness, client: &str) -> Vec<String> {
    let output = String::from_utf8(harness.send(client, b"")).expect("text");
    output.lines().map(|line| line.split_once(' ').expect("a time").1.to_owned()).collect()
}

#[test]
fn who_watches_is_shown_the_commands_of_all() {
    let mut harness = harness();
    assert_eq!(replies_to(&mut harness, "GET unseen\r\nMONITOR\r\n"), ["nil", "+OK"]);
    let commands = "SET k \"a\\n\\x00\\\"\"\r\nGET k\r\nFOO\r\nGET\r\nCONFIG GET hz\r\nAUTH u hunter2\r\nSELECT 1\r\nPING\r\n";
    harness.ask("b", commands.as_bytes());
    let by = |database: u64, words: &str| format!("[{database} 10.0.0.2:5000] {words}");
    let expected = [
        by(0, "\"SET\" \"k\" \"a\\n\\x00\\\"\""),
        by(0, "\"GET\" \"k\""),
        by(0, "\"AUTH\" \"(redacted)\" \"(redacted)\""),
        by(0, "\"SELECT\" \"1\""),
        by(1, "\"PING\""),
    ];
    assert_eq!(watched(&mut harness, "a"), expected);
    let elsewhere = String::from_utf8(harness.host.monitored.clone()).expect("text");
    assert_eq!(elsewhere.lines().count(), expected.len());
    harness.ask("b", b"MULTI\r\nSET k 1\r\nINCR k\r\nEXEC\r\n");
    let expected =
        ["\"MULTI\"", "\"SET\" \"k\" \"1\"", "\"INCR\" \"k\"", "\"EXEC\""].map(|words| by(1, words));
    assert_eq!(watched(&mut harness, "a"), expected);
    let own = replies_to(&mut harness, "PING\r\n");
    assert!(own[0] == "+PONG" && own[1].ends_with("[0 10.0.0.1:5000] \"PING\""), "{own:?}");
    let refused = "MULTI\r\nMONITOR\r\nDISCARD\r\n";
    assert!(render(&harness.ask("b", refused.as_bytes()))[1].contains("inside a transaction"));
    replies_to(&mut harness, "RESET\r\n");
    assert_eq!(harness.host.monitors, 0);
    harness.ask("b", b"GET k\r\n");
    assert_eq!(watched(&mut harness, "a"), [""; 0]);
}

#[test]
fn who_watches_and_does_not_read_is_cut_off() {
    let mut harness = Harness::new(Config { max_output_bytes: 1000, ..Config::default() });
    replies_to(&mut harness, "MONITOR\r\n");
    let watcher = harness.connection("a");
    for _ in 0..1000 {
        let peer = harness.connection("b");
        harness.gateway.receive(peer, b"PING 0123456789\r\n", &mut harness.host);
        harness.gateway.output_mut(peer).expect("it is open").clear();
    }
    assert!(harness.gateway.is_cut(watcher));
    assert!(harness.gateway.output_mut(watcher).expect("it is open").len() <= 16_000);
    let mut news = Vec::new();
    harness.gateway.settle(&mut harness.host, &mut news);
    assert!(news.contains(&watcher));
    harness.gateway.close(watcher, &mut harness.host);
    assert_eq!(harness.host.monitors, 0);
}
