//! `sim`, `check` and `bench`.

use super::support::{Directory, Server, output, program, stderr, stdout};
use serde_json::Value;

/// A protocol that can be simulated.
const PROTOCOL: &str = "solo";

#[test]
fn equal_seeds_give_equal_output() {
    let arguments = ["sim", PROTOCOL, "--seeds", "2", "--json"];
    let (one, several) = (output(&[&arguments[..], &["--threads", "1"]].concat()), output(&arguments));
    assert_eq!(one.status.code(), Some(0), "{}", stderr(&one));
    assert_eq!(stdout(&one), stdout(&several));
    let summary: Value = serde_json::from_str(&stdout(&one)).unwrap();
    assert_eq!((&summary["seeds"], &summary["violations"]), (&2.into(), &0.into()));
    assert!(summary["transactions"].as_u64().unwrap() > 0);
}

#[test]
fn an_unknown_protocol_is_refused_with_those_that_there_are() {
    let refused = output(&["sim", "nonsense", "--seeds", "1"]);
    assert_eq!(refused.status.code(), Some(2));
    assert!(
        stderr(&refused).contains("nonsense") && stderr(&refused).contains(PROTOCOL),
        "{}",
        stderr(&refused)
    );
}

#[test]
fn one_seed_is_traced_and_its_history_written() {
    let directory = Directory::new("seed");
    let run = |more: &[&str]| {
        let arguments = [&["sim", PROTOCOL, "--seed", "7"], more].concat();
        program(&arguments).current_dir(&directory.0).output().unwrap()
    };
    let file = directory.0.join("sim-solo-7.jsonl");
    let quiet = run(&["--quiet"]);
    assert!(stderr(&quiet).is_empty() && !file.exists(), "{}", stderr(&quiet));

    let verbose = run(&[]);
    assert_eq!(stdout(&verbose), stdout(&quiet));
    assert!(stderr(&verbose).contains("everything is healed"), "{}", stderr(&verbose));
    assert!(stderr(&verbose).ends_with("history written to sim-solo-7.jsonl\n"), "{}", stderr(&verbose));
    let (written, requested) = (std::fs::read(&file).unwrap(), directory.file("asked.jsonl"));
    let quiet = run(&["--quiet", "--history", &requested]);
    assert_eq!(stderr(&quiet), format!("history written to {requested}\n"));
    assert_eq!(std::fs::read(&requested).unwrap(), written);
}

#[test]
fn a_simulated_history_checks_and_a_changed_one_does_not() {
    let directory = Directory::new("check");
    let history = directory.file("history.jsonl");
    let simulated = output(&["sim", PROTOCOL, "--seed", "5", "--history", &history]);
    assert_eq!(simulated.status.code(), Some(0), "{}", stderr(&simulated));

    let check = |file: &str| output(&["check", file, "--model", "strict-serializable", "--json"]);
    let good = check(&history);
    assert_eq!(good.status.code(), Some(0), "{}", stdout(&good));
    let report: Value = serde_json::from_str(&stdout(&good)).unwrap();
    assert_eq!((&report["model"], &report["ok"]), (&"strict-serializable".into(), &true.into()));

    let changed = directory.file("changed.jsonl");
    let text = std::fs::read_to_string(&history).unwrap();
    std::fs::write(&changed, change_a_reply(&text)).unwrap();
    let bad = check(&changed);
    assert_eq!(bad.status.code(), Some(1), "{}", stdout(&bad));
    let report: Value = serde_json::from_str(&stdout(&bad)).unwrap();
    assert!(!report["violations"].as_array().unwrap().is_empty());

    std::fs::write(&changed, "{\"number\":1}\n").unwrap();
    let unreadable = check(&changed);
    assert_eq!(unreadable.status.code(), Some(2));
    assert!(stderr(&unreadable).contains("changed.jsonl"), "{}", stderr(&unreadable));
}

/// The history with one reply that nobody can have seen.
fn change_a_reply(history: &str) -> String {
    let mut is_changed = false;
    let mut lines = Vec::new();
    for line in history.lines() {
        let mut transaction: Value = serde_json::from_str(line).unwrap();
        if !is_changed && transaction["outcome"] == "committed" {
            for step in transaction["steps"].as_array_mut().unwrap() {
                if !is_changed && step["blind"] == false && step["reply"].is_string() {
                    step["reply"] = "(integer) 987654321".into();
                    is_changed = true;
                }
            }
        }
        lines.push(transaction.to_string());
    }
    assert!(is_changed);
    lines.join("\n")
}

#[test]
fn two_servers_are_measured_in_turn() {
    let (ours, theirs) = (Server::start(&["--memory"]), Server::start(&["--memory"]));
    let measured = output(&[
        "bench",
        "redis",
        "--url",
        ours.address(),
        "--against",
        theirs.address(),
        "--tests",
        "set,get,txn",
        "--pipeline",
        "4",
        "--clients",
        "3",
        "--requests",
        "300",
        "--rounds",
        "1",
        "--keys",
        "50",
        "--json",
    ]);
    assert_eq!(measured.status.code(), Some(0), "{}{}", stdout(&measured), stderr(&measured));
    let text = stdout(&measured);
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = lines.iter().map(|line| line["test"].as_str().unwrap()).collect();
    assert_eq!(names, ["set", "get", "txn"]);
    for line in &lines {
        assert_eq!(line["pipeline"], 4);
        for field in ["ours", "theirs", "ratio"] {
            assert!(line[field].as_f64().unwrap() > 0.0, "{line}");
        }
    }
}

#[test]
fn a_server_that_is_not_there_is_a_failed_measurement() {
    let measured = output(&["bench", "redis", "--url", "127.0.0.1:1", "--tests", "ping", "--json"]);
    assert_eq!(measured.status.code(), Some(1));
    let line: Value = serde_json::from_str(&stdout(&measured)).unwrap();
    assert!(line["error"].as_str().unwrap().contains("127.0.0.1:1"), "{line}");
}
