//! The transactional load generator against a small store that answers as Redis does.
#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

use anabranch_bench::redis::Target;
use anabranch_bench::transactions::{Keys, RunError, Settings, Workload, compare, run, table};
use checker::{Level, Outcome, check, read_history};
use std::collections::BTreeMap;
use std::io::{BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Values with how often they changed.
type Store = Arc<Mutex<BTreeMap<String, (u64, String)>>>;

/// How the store misbehaves.
#[derive(Clone, Copy, Default, PartialEq)]
enum Fault {
    #[default]
    None,
    /// EXEC does not look at what is watched.
    NoWatch,
    /// Every so many EXECs take effect, and the connection ends before the answer.
    LostAnswer,
    /// Knows no transactions.
    Refusing,
}

fn serve(fault: Fault) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let store = Store::default();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (stream, store) = (stream.unwrap(), Arc::clone(&store));
            std::thread::spawn(move || Session { store, fault, ..Session::default() }.converse(stream));
        }
    });
    target
}

#[derive(Default)]
struct Session {
    store: Store,
    fault: Fault,
    watched: BTreeMap<String, u64>,
    queued: Option<Vec<Vec<String>>>,
    executed: u32,
}

impl Session {
    fn converse(mut self, mut stream: TcpStream) {
        stream.set_nodelay(true).unwrap();
        let (mut parser, mut pipeline) = (resp::Parser::default(), resp::Pipeline::default());
        let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
        while let Ok(got @ 1..) = stream.read(&mut buffer) {
            received.extend_from_slice(&buffer[..got]);
            let mut done = 0;
            while let Ok(consumed @ 1..) = parser.parse(&received[done..], &mut pipeline) {
                for arguments in pipeline.commands(&received[done..]) {
                    let words: Vec<String> = (0..arguments.len())
                        .map(|index| String::from_utf8_lossy(&arguments[index]).into_owned())
                        .collect();
                    let Some(reply) = self.answer(words) else { return };
                    if stream.write_all(reply.as_bytes()).is_err() {
                        return;
                    }
                }
                done += consumed;
            }
            received.drain(..done);
        }
    }

    fn answer(&mut self, words: Vec<String>) -> Option<String> {
        let name = words[0].as_str();
        if let Some(queued) = &mut self.queued
            && name != "EXEC"
        {
            queued.push(words);
            return Some("+QUEUED\r\n".into());
        }
        let store = Arc::clone(&self.store);
        let mut store = store.lock().unwrap();
        let bulk = |value: Option<&(u64, String)>| match value {
            Some((_, value)) => format!("${}\r\n{value}\r\n", value.len()),
            None => "$-1\r\n".into(),
        };
        Some(match name {
            "MULTI" if self.fault == Fault::Refusing => "-ERR unknown command\r\n".into(),
            "MULTI" => {
                self.queued = Some(Vec::new());
                "+OK\r\n".into()
            }
            "WATCH" => {
                let version = |key: &String| store.get(key).map_or(0, |(version, _)| *version);
                self.watched = words[1..].iter().map(|key| (key.clone(), version(key))).collect();
                "+OK\r\n".into()
            }
            "MGET" => {
                let values: String = words[1..].iter().map(|key| bulk(store.get(key))).collect();
                format!("*{}\r\n{values}", words.len() - 1)
            }
            "MSET" => {
                words[1..].chunks(2).for_each(|pair| set(&mut store, &pair[0], &pair[1]));
                "+OK\r\n".into()
            }
            "EXEC" => {
                let queued = self.queued.take().unwrap_or_default();
                let watched = std::mem::take(&mut self.watched);
                let changed =
                    |(key, seen): (&String, &u64)| store.get(key).map_or(0, |(now, _)| *now) != *seen;
                if self.fault != Fault::NoWatch && watched.iter().any(changed) {
                    return Some("*-1\r\n".into());
                }
                let mut replies = String::new();
                for words in &queued {
                    let old = bulk(store.get(&words[1]));
                    replies.push_str(if words.len() > 3 { &old } else { "+OK\r\n" });
                    set(&mut store, &words[1], &words[2]);
                }
                self.executed += 1;
                if self.fault == Fault::LostAnswer && self.executed > 20 {
                    return None;
                }
                format!("*{}\r\n{replies}", queued.len())
            }
            _ => "-ERR what\r\n".into(),
        })
    }
}

fn set(store: &mut BTreeMap<String, (u64, String)>, key: &str, value: &str) {
    let (version, held) = store.entry(key.to_owned()).or_default();
    *version += 1;
    value.clone_into(held);
}

fn settings(urls: Vec<Target>, workload: Workload, history: Option<&str>) -> Settings {
    let folder = std::env::temp_dir();
    let history = history.map(|name| folder.join(format!("anabranch-bench-{}-{name}", std::process::id())));
    let keys = Keys::new(20, Some(0.75));
    let duration = Duration::from_millis(400);
    Settings {
        urls,
        workload,
        keys,
        clients: 4,
        warm_up: Duration::ZERO,
        duration,
        pause: Duration::ZERO,
        txn: false,
        branch: false,
        steps: false,
        round_trip: Duration::ZERO,
        value_bytes: 64,
        history,
        run: 7,
        keyspace: None,
        prologue: Vec::new(),
    }
}

fn recorded(settings: &Settings) -> Vec<checker::Transaction> {
    let path = settings.history.as_ref().unwrap();
    let history = read_history(BufReader::new(std::fs::File::open(path).unwrap())).unwrap();
    std::fs::remove_file(path).unwrap();
    history
}

#[test]
fn what_clients_of_a_good_store_saw_is_strictly_serializable() {
    for (name, workload) in
        [("retwis", Workload::Retwis), ("rmw", Workload::ReadModifyWrite { most_keys: 3 })]
    {
        let settings = settings(vec![serve(Fault::None)], workload, Some(name));
        let (totals, _) = run(&settings).unwrap();
        let history = recorded(&settings);
        let committed = history.iter().filter(|t| t.outcome == Outcome::Committed && !t.at_rest).count();
        assert_eq!(committed as u64, totals.commits());
        assert!(totals.aborts > 0, "so few keys make conflicts");
        assert!(history.iter().any(|t| t.at_rest), "everything is read at the end");
        let report = check(&history, Level::StrictSerializable);
        assert!(report.ok && !report.undecided, "{:#?}", report.violations);
    }
}

#[test]
fn a_store_that_loses_updates_is_found_out() {
    let workload = Workload::ReadModifyWrite { most_keys: 2 };
    let settings = settings(vec![serve(Fault::NoWatch)], workload, Some("bad"));
    run(&settings).unwrap();
    let report = check(&recorded(&settings), Level::Snapshot);
    assert!(!report.ok, "lost updates must be seen");
}

#[test]
fn lost_answers_are_unknown_outcomes() {
    let workload = Workload::ReadModifyWrite { most_keys: 2 };
    let settings = settings(vec![serve(Fault::LostAnswer)], workload, Some("lost"));
    let (totals, _) = run(&settings).unwrap();
    let history = recorded(&settings);
    let unknown = history.iter().filter(|t| t.outcome == Outcome::Unknown).count() as u64;
    assert!(unknown > 0 && unknown == totals.unknown && totals.lost_connections >= unknown);
    let report = check(&history, Level::StrictSerializable);
    assert!(report.ok && !report.undecided, "{:#?}", report.violations);
}

#[test]
fn two_servers_are_measured_in_turn() {
    let settings = settings(vec![serve(Fault::None)], Workload::Retwis, None);
    let comparison = compare(&settings, Some(&serve(Fault::None)), 1).unwrap();
    let value = serde_json::to_value(&comparison).unwrap();
    assert_eq!((value["workload"].as_str(), value["by"].as_str()), (Some("retwis"), Some("watch")));
    assert!(value["throughput"].as_f64().unwrap() > 0.0 && value["ratio"].as_f64().unwrap() > 0.0);
    assert!(value["latency_us"]["p99"].as_f64().unwrap() > 0.0);
    assert!(value["kinds"]["timeline"].as_u64() > value["kinds"]["add_user"].as_u64());
    assert!(table(&comparison).contains("ratio"));
}

#[test]
fn what_no_repetition_changes_ends_the_run() {
    let refusing = settings(vec![serve(Fault::Refusing)], Workload::Retwis, None);
    assert!(run(&refusing).unwrap_err().to_string().contains("unknown command"));
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let nobody = settings(vec![closed.parse().unwrap()], Workload::Retwis, None);
    assert!(matches!(run(&nobody), Err(RunError::Connect(..))));
}
