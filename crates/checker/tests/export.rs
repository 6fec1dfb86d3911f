//! What other checkers are given: the structure of each format, and what is refused.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

use anabranch_checker::{ExportError, Format, Outcome, Step, Transaction, export};
use serde_json::Value;
use std::collections::BTreeMap;

fn transaction(number: u64, session: u64, outcome: Outcome, steps: Vec<Step>) -> Transaction {
    let invoked = number * 10;
    let responded = (outcome != Outcome::Unknown).then_some(invoked + 5);
    Transaction {
        number,
        session,
        invoked,
        responded,
        outcome,
        steps,
        claim: None,
        follows: None,
        thread: None,
        given_up: false,
        told_of_loss: false,
        at_rest: false,
    }
}

/// Formats number sessions themselves, so that they fit wherever they go.
const SECOND: u64 = u64::MAX;

/// Two sessions; 3 aborted, 4 and 5 are unknown, and only 4 was seen.
fn history() -> Vec<Transaction> {
    let write = |key: &str, value: &str, done| Step::set(key.as_bytes(), value.as_bytes(), done);
    let read = |key: &str, value: Option<&str>| Step::get(key.as_bytes(), Some(value.map(str::as_bytes)));
    vec![
        transaction(1, 1, Outcome::Committed, vec![read("x", None), write("x", "a", true)]),
        transaction(2, SECOND, Outcome::Committed, vec![read("x", Some("a")), read("y", Some("u"))]),
        transaction(3, SECOND, Outcome::Aborted, vec![write("y", "b", false)]),
        transaction(4, 1, Outcome::Unknown, vec![write("y", "u", false)]),
        transaction(5, 1, Outcome::Unknown, vec![write("x", "v", false)]),
    ]
}

fn exported(format: Format) -> String {
    let mut bytes = Vec::new();
    export(&history(), format, &mut bytes).unwrap();
    String::from_utf8(bytes).unwrap()
}

/// Plume lines as (is a write, key, value, session, transaction).
fn plume_lines() -> Vec<(bool, u64, u64, u64, i64)> {
    let text = exported(Format::Plume);
    let line = |line: &str| {
        let (name, rest) = line.split_once('(').unwrap();
        let numbers: Vec<i64> =
            rest.strip_suffix(')').unwrap().split(',').map(|n| n.parse().unwrap()).collect();
        let [key, value, session, transaction] = numbers[..] else { panic!("four numbers: {line}") };
        assert!(name == "r" || name == "w");
        (name == "w", key as u64, value as u64, session as u64, transaction)
    };
    text.lines().map(line).collect()
}

#[test]
fn plume_has_unique_values_and_an_initial_transaction_first() {
    let lines = plume_lines();
    let mut written = BTreeMap::new();
    for (_, key, value, session, transaction) in lines.iter().filter(|line| line.0) {
        assert!(written.insert((key, value), (session, transaction)).is_none(), "each value is written once");
        assert!(*value > 0, "0 is what AWDIT begins with by itself");
    }
    let reads: Vec<_> = lines.iter().filter(|line| !line.0).collect();
    assert!(
        reads.iter().all(|(_, key, value, ..)| written.contains_key(&(key, value))),
        "no value from nowhere"
    );
    let initial: Vec<_> = lines.iter().filter(|line| line.3 == 0).collect();
    assert_eq!(initial.len(), 3, "x, y and the key that only this one writes");
    assert!(initial.iter().all(|line| line.0 && line.4 == 0));
    for session in 1..=3 {
        let first = lines.iter().find(|line| line.3 == session).unwrap();
        assert_eq!((first.0, first.1), (false, 0), "session {session} begins after the initial transaction");
        assert_eq!(written[&(&0, &first.2)], (&0, &0));
    }
    assert_eq!(lines.iter().filter(|line| line.4 == -1).count(), 1, "the aborted write");
    assert_eq!(
        lines.iter().filter(|line| line.3 == 3 && line.0).count(),
        1,
        "the unknown one that was seen, alone"
    );
    let mut sessions: BTreeMap<i64, u64> = BTreeMap::new();
    for line in lines.iter().filter(|line| line.4 >= 0) {
        assert_eq!(*sessions.entry(line.4).or_insert(line.3), line.3, "a transaction has one session");
    }
}

#[test]
fn dbcop_has_sessions_of_transactions() {
    let file: Value = serde_json::from_str(&exported(Format::Dbcop)).unwrap();
    for field in ["params", "info", "start", "end"] {
        assert!(!file[field].is_null(), "{field}");
    }
    let sessions = file["data"].as_array().unwrap();
    assert_eq!(sessions.len(), 4, "the initial one, two, and the unknown one");
    let event =
        |session: usize, transaction: usize, event: usize| &sessions[session][transaction]["events"][event];
    assert_eq!(sessions[0][0]["events"].as_array().unwrap().len(), 3);
    let read = &event(1, 1, 0)["Read"];
    let initial = (0..3).map(|index| &event(0, 0, index)["Write"]).find(|write| *write == read);
    assert!(initial.is_some(), "what nobody wrote is read from the initial transaction");
    assert_eq!(event(1, 1, 1)["Write"], event(2, 1, 0)["Read"]);
    let committed: Vec<&Value> =
        sessions.iter().flat_map(|s| s.as_array().unwrap()).map(|t| &t["committed"]).collect();
    assert_eq!(committed.iter().filter(|committed| ***committed == Value::Bool(false)).count(), 1);
}

#[test]
fn porcupine_has_one_operation_a_line_on_one_clock() {
    let lines: Vec<Value> =
        exported(Format::Porcupine).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 4, "the initial operation, two, and the unknown one that was seen");
    let time = |line: &Value, name: &str| line[name].as_u64().unwrap();
    assert!(lines.iter().all(|line| time(line, "call") < time(line, "return")));
    assert!(lines[1..].iter().all(|line| time(line, "call") > time(&lines[0], "return")));
    assert!(lines.windows(2).all(|pair| time(&pair[0], "call") <= time(&pair[1], "call")));
    let clients: Vec<u64> = lines.iter().map(|line| time(line, "client")).collect();
    assert_eq!(clients, [0, 1, 2, 1]);
    assert_eq!(lines[1]["input"][0]["op"], "get");
    assert_eq!(lines[1]["input"][1]["value"], "a");
    assert_eq!(lines[1]["output"], serde_json::json!([null]));
    assert_eq!(lines[2]["output"], serde_json::json!(["a", "u"]));
    let unknown = lines.iter().find(|line| line["input"][0]["value"] == "u").unwrap();
    assert!(lines.iter().all(|line| time(line, "return") <= time(unknown, "return")), "it may happen late");
}

#[test]
fn what_a_register_cannot_say_is_refused_by_name() {
    let mut twice = history();
    twice[1].steps.push(Step::set(b"x", b"a", true));
    let error = export(&twice, Format::Plume, Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::WrittenTwice { transactions: [1, 2], .. }), "{error}");
    let operation = datatypes::Operation::Set(datatypes::set::Operation::Members);
    let mut typed = history();
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    typed[1].steps[0].operation.0 = bytes;
    typed[1].steps[0].text = "Set(Members)".into();
    typed[1].steps[0].reply = Some("{}".into());
    for (_, format) in Format::ALL {
        let mut output = Vec::new();
        let error = export(&typed, format, &mut output).unwrap_err().to_string();
        assert!(error.contains("transaction 2 did Set(Members) on x"), "{error}");
        assert!(output.is_empty(), "nothing is written of a history that is refused");
    }
}

/// As what a simulated cluster claims of a transaction whose client is in doubt.
#[test]
fn who_asked_for_nothing_is_left_out() {
    let mut more = history();
    more.push(transaction(9, 7, Outcome::Unknown, Vec::new()));
    for (_, format) in Format::ALL {
        let mut output = Vec::new();
        export(&more, format, &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), exported(format));
    }
}
