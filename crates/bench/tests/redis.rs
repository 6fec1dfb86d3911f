//! The load generator against a small server that counts its requests.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

use anabranch_bench::redis::{
    LoadError, Numbers, Plan, Server, Settings, TESTS, Target, Template, compare, run,
};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

type Counts = Arc<Mutex<BTreeMap<String, u64>>>;

/// Starts a server; `answer` makes the reply to a command from its arguments, none to hang up.
fn serve(answer: fn(&[String]) -> Option<&'static str>) -> (Target, Counts) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let counts = Counts::default();
    let shared = Arc::clone(&counts);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, counts) = (stream.unwrap(), Arc::clone(&shared));
            std::thread::spawn(move || converse(stream, &counts, answer));
        }
    });
    (target, counts)
}

/// Answers one connection until either side ends it.
fn converse(mut stream: TcpStream, counts: &Counts, answer: fn(&[String]) -> Option<&'static str>) {
    stream.set_nodelay(true).unwrap();
    let (mut parser, mut pipeline) = (resp::Parser::default(), resp::Pipeline::default());
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(got @ 1..) = stream.read(&mut buffer) {
        received.extend_from_slice(&buffer[..got]);
        let mut replies = String::new();
        let mut done = 0;
        while let Ok(consumed @ 1..) = parser.parse(&received[done..], &mut pipeline) {
            for arguments in pipeline.commands(&received[done..]) {
                let words: Vec<String> = (0..arguments.len())
                    .map(|index| String::from_utf8_lossy(&arguments[index]).into_owned())
                    .collect();
                *counts.lock().unwrap().entry(words[0].clone()).or_default() += 1;
                let Some(reply) = answer(&words) else { return };
                replies.push_str(reply);
            }
            done += consumed;
        }
        received.drain(..done);
        // Replies leave in small pieces, so that they are cut anywhere.
        for piece in replies.as_bytes().chunks(7) {
            if stream.write_all(piece).is_err() {
                return;
            }
        }
    }
}

fn redis_like(words: &[String]) -> Option<&'static str> {
    Some(match words[0].as_str() {
        "GET" => "$6\r\nva\r\nue\r\n",
        "EXEC" => "*4\r\n$1\r\na\r\n$-1\r\n+OK\r\n+OK\r\n",
        "DEL" | "LPUSH" | "SADD" => ":1\r\n",
        "LRANGE" => "*2\r\n$1\r\na\r\n$1\r\nb\r\n",
        _ => "+OK\r\n",
    })
}

fn template(name: &str, copies: usize) -> Template {
    Template::of(name.parse().unwrap_or(&TESTS[0]), b"value", copies)
}

#[test]
fn exactly_the_planned_requests_are_sent_and_answered() {
    let (target, counts) = serve(redis_like);
    let plan = Plan { clients: 5, pipeline: 16, requests: 1003 };
    let numbers = &mut Numbers::random(100, 1);
    let measurement = run(&target, plan, &mut template("txn", 16), numbers).unwrap();
    assert_eq!(measurement.requests, 1003);
    assert_eq!(measurement.latency.len(), 1003);
    assert!(measurement.rate() > 0.0);
    let counts = counts.lock().unwrap();
    let expected = [("EXEC", 1003), ("GET", 2006), ("MULTI", 1003), ("SET", 2006)];
    assert_eq!(*counts, expected.map(|(name, count)| (name.to_owned(), count)).into());
}

#[test]
fn both_servers_get_the_same_work() {
    let (ours, our_counts) = serve(redis_like);
    let (theirs, their_counts) = serve(redis_like);
    let server = |target| Server { target, pid: Some(std::process::id()) };
    let settings = Settings {
        ours: server(ours),
        theirs: Some(server(theirs)),
        tests: vec!["lrange_100".parse().unwrap()],
        pipelines: vec![4],
        clients: 3,
        requests: Some(200),
        rounds: 2,
        keys: 50,
        value_bytes: 3,
    };
    let comparison = compare(&settings, settings.tests[0], 4).unwrap();
    assert!(comparison.ratio.is_some() && comparison.ours_cpu_us.is_some());
    // A warm-up of a tenth, then two measurements of ours and one of theirs in every round; contents before each.
    let counted = |counts: &Counts, name: &str| counts.lock().unwrap()[name];
    assert_eq!(counted(&our_counts, "LRANGE"), 20 + 4 * 200);
    assert_eq!(counted(&their_counts, "LRANGE"), 20 + 2 * 200);
    assert_eq!((counted(&our_counts, "LPUSH"), counted(&our_counts, "DEL")), (5 * 50, 5));
    assert_eq!((counted(&their_counts, "LPUSH"), counted(&their_counts, "DEL")), (3 * 50, 3));
}

#[test]
fn error_replies_are_no_result() {
    let (target, _) = serve(|words| Some(if words[0] == "PING" { "-ERR no\r\n" } else { "+OK\r\n" }));
    let plan = Plan { clients: 2, pipeline: 3, requests: 10 };
    let error = run(&target, plan, &mut template("ping", 3), &mut Numbers::random(1, 1)).unwrap_err();
    assert!(matches!(&error, LoadError::Refused { count: 10, first, .. } if first == "ERR no"), "{error}");
}

#[test]
fn a_lost_connection_and_a_foreign_protocol_are_distinct_errors() {
    let plan = Plan { clients: 1, pipeline: 1, requests: 1 };
    let fails = |target: &Target| {
        run(target, plan, &mut template("ping", 1), &mut Numbers::random(1, 1)).unwrap_err()
    };
    let (hangs_up, _) = serve(|_| None);
    assert!(matches!(fails(&hangs_up), LoadError::Lost { .. }));
    let (foreign, _) = serve(|_| Some("HTTP/1.1 400 Bad Request\r\n"));
    assert!(matches!(fails(&foreign), LoadError::Protocol { .. }));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    assert!(matches!(fails(&closed.parse().unwrap()), LoadError::Connect { .. }));
}

#[test]
fn a_password_is_said_first() {
    let (target, counts) = serve(|words| {
        Some(if words[0] == "AUTH" && words[1] != "right" { "-WRONGPASS no\r\n" } else { "+OK\r\n" })
    });
    let with = |password: &str| -> Target { format!("redis://:{password}@{target}").parse().unwrap() };
    let plan = Plan { clients: 2, pipeline: 1, requests: 4 };
    let load = |target: &Target| run(target, plan, &mut template("ping", 1), &mut Numbers::random(1, 1));
    assert_eq!(load(&with("right")).unwrap().requests, 4);
    let refused = load(&with("wrong")).unwrap_err();
    assert!(refused.to_string().contains("WRONGPASS"), "{refused}");
    assert_eq!(counts.lock().unwrap()["AUTH"], 3);
}
