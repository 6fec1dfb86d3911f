//! What other checkers are given: the structure of each format, and what is left out.

#![expect(clippy::unwrap_used, reason = "the helpers of tests fail by panicking")]

use anabranch_checker::{Bytes, ExportError, Format, Key, LeftOut, Outcome, Step, Transaction, export};
use datatypes::{Items, Operation, dict, list, register, set};
use serde_json::{Value, json};
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
        loss_reported: false,
        constraints: None,
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
    exported_of(&history(), format).0
}

fn exported_of(history: &[Transaction], format: Format) -> (String, LeftOut) {
    let mut bytes = Vec::new();
    let left_out = export(history, format, &mut bytes).unwrap();
    (String::from_utf8(bytes).unwrap(), left_out)
}

/// A step whose reply was seen.
fn step(key: &str, operation: &Operation<'_>, reply: &str) -> Step {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    let text = format!("{operation:?}");
    let (key, reply) = (Key(key.as_bytes().to_vec()), Some(reply.to_owned()));
    Step { key, operation: Bytes(bytes), text, blind: false, reply, state: None }
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
    assert!(committed.iter().all(|committed| **committed == Value::Bool(true)), "DBCop counts aborted ones");
}

#[test]
fn porcupine_has_one_operation_a_line_on_one_clock() {
    let lines = operations(&history());
    assert_eq!(lines.len(), 3, "two, and the unknown one that was seen");
    let time = |line: &Value, name: &str| line[name].as_u64().unwrap();
    assert!(lines.iter().all(|line| time(line, "call") < time(line, "return")));
    assert!(lines.windows(2).all(|pair| time(&pair[0], "call") <= time(&pair[1], "call")));
    let clients: Vec<u64> = lines.iter().map(|line| time(line, "client")).collect();
    assert_eq!(clients, [0, 1, 0]);
    assert_eq!(lines[0]["input"][0], json!({"op": "get", "key": "x"}));
    assert_eq!(lines[0]["input"][1], json!({"op": "put", "key": "x", "value": "a"}));
    assert_eq!(lines[0]["output"], json!([null]));
    assert_eq!(lines[1]["output"], json!(["a", "u"]));
    let unknown = lines.iter().find(|line| line["input"][0]["value"] == "u").unwrap();
    assert!(lines.iter().all(|line| time(line, "return") <= time(unknown, "return")), "it may happen late");
}

fn operations(history: &[Transaction]) -> Vec<Value> {
    let (text, _) = exported_of(history, Format::Porcupine);
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Lists, sets and counters, with a read that no format knows.
fn typed() -> Vec<Transaction> {
    let push = |value: &'static [u8]| {
        let (end, values) = (list::End::Back, Items::one(value));
        Operation::List(list::Operation::Push { end, values, only_if_exists: false })
    };
    let add = |member: &'static [u8]| Operation::Set(set::Operation::Add { members: Items::one(member) });
    let elements = Operation::List(list::Operation::Range { start: 0, stop: -1 });
    let members = Operation::Set(set::Operation::Members);
    let increment = Operation::Register(register::Operation::Increment { by: 5 });
    let first = Operation::List(list::Operation::Index { index: 0 });
    vec![
        transaction(1, 1, Outcome::Committed, vec![step("l", &push(b"a"), "(integer) 1")]),
        transaction(2, 2, Outcome::Committed, vec![step("l", &push(b"b"), "(integer) 2")]),
        transaction(
            3,
            1,
            Outcome::Committed,
            vec![
                step("s", &add(b"m"), "(integer) 1"),
                step("l", &elements, "[\"a\", \"b\"]"),
                step("s", &members, "{\"m\"}"),
                step("n", &increment, "(integer) 5"),
                step("l", &first, "\"a\""),
            ],
        ),
        transaction(4, 2, Outcome::Unknown, vec![step("s", &add(b"late"), "(integer) 1")]),
    ]
}

#[test]
fn each_element_is_a_variable_where_only_versions_are_known() {
    let (text, left_out) = exported_of(&typed(), Format::Plume);
    // Variables: l a, l b, s late, s m. The unknown addition was not seen, so it is left out; the read of s shows only that.
    let lines = [
        "w(0,1,0,0)",
        "w(1,2,0,0)",
        "w(2,3,0,0)",
        "w(3,4,0,0)",
        "w(4,5,0,0)", //
        "r(0,1,1,1)",
        "w(1,6,1,2)",
        "w(4,8,1,3)",
        "r(1,6,1,3)",
        "r(2,7,1,3)",
        "r(3,4,1,3)", //
        "r(0,1,2,4)",
        "w(2,7,2,5)",
    ];
    assert_eq!(text.lines().collect::<Vec<_>>(), lines);
    assert_eq!(left_out.keys.keys().collect::<Vec<_>>(), ["n"]);
    assert!(left_out.keys["n"].starts_with("transaction 3 did Register(Increment"), "{left_out}");
    assert_eq!((left_out.of_keys, left_out.elements, left_out.reads), (3, 0, 1));
    // An element that two added names neither of them.
    let mut twice = typed();
    let added = twice[0].steps.clone();
    twice[1].steps.extend(added);
    let (_, left_out) = exported_of(&twice, Format::Plume);
    assert_eq!((left_out.keys.len(), left_out.elements), (1, 1), "{left_out}");
}

#[test]
fn porcupine_executes_lists_sets_and_counters() {
    let lines = operations(&typed());
    assert_eq!(lines[0]["input"], json!([{"op": "rpush", "key": "l", "values": ["a"]}]));
    assert_eq!(lines[0]["output"], json!([1]));
    let input = json!([
        {"op": "sadd", "key": "s", "values": ["m"]},
        {"op": "lrange", "key": "l"},
        {"op": "smembers", "key": "s"},
        {"op": "incr", "key": "n", "by": 5},
    ]);
    assert_eq!(lines[2]["input"], input);
    assert_eq!(lines[2]["output"], json!([1, ["a", "b"], ["m"], 5]));
    // What a set holds may be seen otherwise than by its elements, so the export holds what may have been added.
    assert_eq!(lines[3]["input"], json!([{"op": "sadd", "key": "s", "values": ["late"], "blind": true}]));
    assert_eq!((lines.len(), &lines[3]["output"]), (4, &json!([])));
}

/// DBCop refuses, of a good transaction, what it reads twice, reads of its own, and overwrites itself.
#[test]
fn only_accesses_between_transactions_are_exported() {
    let read = |value: &str| Step::get(b"x", Some(Some(value.as_bytes())));
    let write = |value: &str| Step::set(b"x", value.as_bytes(), true);
    let steps = vec![read("a"), read("a"), write("b"), read("b"), write("c"), read("c")];
    let good = [
        transaction(1, 1, Outcome::Committed, vec![write("a")]),
        transaction(2, 1, Outcome::Committed, steps),
    ];
    let of_second = |history: &[Transaction]| {
        let (text, _) = exported_of(history, Format::Plume);
        text.lines()
            .filter(|line| line.ends_with(",1,3)"))
            .map(|line| line[..3].to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(of_second(&good), ["r(1", "w(1"]);
    let mut bad = good.clone();
    bad[1].steps[3] = read("a");
    assert_eq!(of_second(&bad), ["r(1", "r(1", "w(1"], "it does not read its own write");
    bad[1].steps[1] = Step::get(b"x", Some(None));
    assert_eq!(of_second(&bad), ["r(1", "r(1", "r(1", "w(1"], "it reads two versions");
}

#[test]
fn a_key_that_no_format_knows_is_left_out_by_name() {
    let mut more = history();
    more[0].steps.push(Step::set(b"z", b"1", true));
    more[1].steps.push(Step::set(b"z", b"1", true));
    let (_, left_out) = exported_of(&more, Format::Plume);
    assert_eq!(left_out.keys["z"], "transactions 1 and 2 both wrote \"1\"");
    assert!(exported_of(&more, Format::Porcupine).1.is_nothing(), "it executes operations");
    let put = Operation::Dict(dict::Operation::Delete { fields: Items::one(b"f") });
    let strange = [transaction(1, 1, Outcome::Committed, vec![step("d", &put, "(integer) 1")])];
    for (_, format) in Format::ALL {
        let mut output = Vec::new();
        let error = export(&strange, format, &mut output).unwrap_err();
        assert!(matches!(error, ExportError::Nothing(_)), "{error}");
        assert!(error.to_string().contains("d: transaction 1 did Dict(Delete"), "{error}");
        assert!(output.is_empty(), "nothing is written of a history that is refused");
    }
    more[0].given_up = true;
    let error = export(&more, Format::Plume, Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::GivenUp { transaction: 1 }), "{error}");
}

/// As what a simulated cluster claims of a transaction whose client is in doubt.
#[test]
fn transactions_without_steps_are_left_out() {
    let mut more = history();
    more.push(transaction(9, 7, Outcome::Unknown, Vec::new()));
    for (_, format) in Format::ALL {
        let mut output = Vec::new();
        export(&more, format, &mut output).unwrap();
        assert_eq!(String::from_utf8(output).unwrap(), exported(format));
    }
}
