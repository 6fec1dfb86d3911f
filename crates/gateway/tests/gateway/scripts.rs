//! Sessions as scripts: what clients send, and beneath it what they receive.
//!
//! A line that is not indented is a command, in the inline form of the protocol; `b: GET k` sends it from the
//! client `b` instead of `a`, `@advance 1500` lets time pass, in milliseconds. The indented lines beneath are the
//! replies; `b: nil` is a reply to `b`, which waited for it. `@close b` lets the client `b` go. What Redis 7.0.15 has too was compared with it. `UPDATE_SCRIPTS=1` writes what comes now; commit that
//! only when every change is understood.
//!
//! Each script runs twice: over keyspaces that answer at once and lend keys, and over ones that answer later and in any order.

#![expect(clippy::disallowed_methods, reason = "the scripts are files of the repository")]

use crate::support::{Harness, render};
use std::fs;
use std::path::{Path, PathBuf};

fn split_client(line: &str) -> (&str, &str) {
    match line.split_once(": ") {
        Some((client, command)) if client.len() == 1 => (client, command),
        _ => ("a", line),
    }
}

/// What the script says when its replies are those that come now.
fn run(script: &str, answers_later: bool) -> String {
    let mut harness = Harness::new(anabranch_gateway::Config { scan_piece: 3, ..Default::default() });
    if answers_later {
        harness.host.held = Some(Vec::new());
    }
    harness.host.lends = !answers_later;
    let mut lines = Vec::new();
    for line in script.lines().filter(|line| !line.starts_with("  ")) {
        lines.push(line.to_owned());
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        if let Some(millis) = line.strip_prefix("@advance ") {
            harness.host.now_millis += millis.parse::<u64>().expect("milliseconds");
            lines.extend(late_replies(&mut harness));
            continue;
        }
        if let Some(client) = line.strip_prefix("@close ") {
            harness.close(client);
            lines.extend(late_replies(&mut harness));
            continue;
        }
        let (client, command) = split_client(line);
        let output = harness.ask(client, format!("{command}\r\n").as_bytes());
        lines.extend(render(&output).iter().map(|reply| format!("  {reply}")));
        lines.extend(late_replies(&mut harness));
    }
    lines.join("\n") + "\n"
}

/// Replies to clients that have waited for them.
fn late_replies(harness: &mut Harness) -> Vec<String> {
    let answered = harness.answered();
    let lines = |(name, output): &(String, Vec<u8>)| {
        render(output).iter().map(|reply| format!("  {name}: {reply}")).collect::<Vec<_>>()
    };
    answered.iter().flat_map(lines).collect()
}

fn scripts() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scripts");
    let entries = fs::read_dir(folder).expect("the folder of scripts");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    assert!(!paths.is_empty());
    paths
}

#[test]
fn replies_are_those_of_the_scripts() {
    let update = std::env::var_os("UPDATE_SCRIPTS").is_some();
    for path in scripts() {
        let script = fs::read_to_string(&path).expect("a script");
        let now = run(&script, false);
        if update {
            fs::write(&path, &now).expect("written");
        } else {
            assert_same(&path, &script, &now);
        }
    }
}

#[test]
fn replies_are_the_same_when_keyspaces_answer_later() {
    for path in scripts() {
        let script = fs::read_to_string(&path).expect("a script");
        assert_same(&path, &run(&script, false), &run(&script, true));
    }
}

fn assert_same(path: &Path, script: &str, now: &str) {
    let mut differing = script.lines().zip(now.lines()).enumerate().filter(|(_, (old, new))| old != new);
    if let Some((index, (old, new))) = differing.next() {
        panic!("{}:{}:\n  script: {old}\n  now:    {new}", path.display(), index + 1);
    }
    assert_eq!(script.lines().count(), now.lines().count(), "{}", path.display());
}
