//! Blocked clients are served in the order in which they came, however often each looks by itself.

use crate::support::{Harness, render};
use anabranch_gateway::{Audience, Config, LineNews, News, Place, Sought};
use types::{KeyspaceId, ProcessId};

const NAMES: [&str; 8] = ["c", "d", "e", "f", "g", "h", "i", "j"];
/// The process that keeps the lines in the tests with a cluster.
const HOME: u16 = 1;

/// Who was answered, by name.
fn answered(harness: &mut Harness) -> Vec<String> {
    harness.answered().into_iter().map(|(name, _)| name).collect()
}

/// Lets so many milliseconds pass; who is served then finds `command` of the client `b` done at the same moment.
fn later(harness: &mut Harness, millis: u64, command: &[u8]) -> Vec<String> {
    harness.host.now_millis += millis;
    harness.send("b", command);
    answered(harness)
}

#[test]
fn a_consumer_that_looks_by_itself_does_not_overtake_another() {
    let mut harness = Harness::new(Config::default());
    harness.send("b", b"XGROUP CREATE s g $ MKSTREAM\r\n");
    for name in NAMES {
        let command = format!("XREADGROUP GROUP g {name} BLOCK 0 STREAMS s >\r\n");
        assert_eq!(harness.send(name, command.as_bytes()), b"");
    }
    for name in NAMES {
        // All who wait are due to look when the entry comes.
        assert_eq!(later(&mut harness, 2000, b"XADD s * f v\r\n"), [name]);
    }
}

#[test]
fn a_consumer_that_looks_by_itself_learns_that_its_stream_is_gone() {
    let mut harness = Harness::new(Config::default());
    harness.send("b", b"XGROUP CREATE s g $ MKSTREAM\r\n");
    harness.send("b", b"PEXPIRE s 5000\r\n");
    for name in NAMES {
        let command = format!("XREADGROUP GROUP g {name} BLOCK 0 STREAMS s >\r\n");
        harness.send(name, command.as_bytes());
    }
    assert!(later(&mut harness, 4000, b"PING\r\n").is_empty());
    // Nobody signals that a stream has expired.
    harness.host.now_millis += 2000;
    for (_, output) in harness.answered() {
        assert_eq!(render(&output), ["-UNBLOCKED the stream key no longer exists"]);
    }
    assert_eq!(harness.host.waiters.borrow().blocked(), 0);
}

/// How often this client's process sent this to the home of the lines since the last call.
fn sent_to_home(harness: &mut Harness, what: &LineNews) -> usize {
    let sent = std::mem::take(&mut harness.host.sent_news);
    let is_it = |(whom, news): &&(Audience, News)| {
        *whom == Audience::Process(ProcessId(HOME))
            && matches!(news, News::Line { what: other, .. } if other == what)
    };
    sent.iter().filter(is_it).count()
}

fn place(sought: Sought, key: &str) -> Place {
    Place { keyspace: KeyspaceId(0), key: key.as_bytes().into(), sought }
}

/// A process of a cluster where another process keeps the lines.
fn with_home() -> Harness {
    let mut harness = Harness::new(Config::default());
    harness.host.sharing = vec![ProcessId(HOME)];
    harness.connection("b");
    harness
}

#[test]
fn a_client_whose_home_answers_waits_for_its_turn() {
    let mut harness = with_home();
    harness.send("c", b"BLPOP l 0\r\n");
    let (worker, client) = (0, 2);
    let line = |what| News::Line { place: place(Sought::List, "l"), what };
    assert_eq!(sent_to_home(&mut harness, &LineNews::Enter { worker, client }), 1);
    harness.send("b", b"RPUSH l 1 2\r\n");
    for _ in 0..10 {
        harness.hear(HOME, &line(LineNews::Entered { worker, client }));
        assert!(later(&mut harness, 2000, b"PING\r\n").is_empty(), "others may wait in front");
        assert_eq!(sent_to_home(&mut harness, &LineNews::Enter { worker, client }), 1);
    }
    assert_eq!(render(&harness.send("b", b"LLEN l\r\n")), [":2"]);
    harness.hear(HOME, &line(LineNews::Turn { worker, client }));
    assert_eq!(answered(&mut harness), ["c"]);
    assert_eq!(sent_to_home(&mut harness, &LineNews::Leave { worker, client, served: true }), 1);
}

#[test]
fn a_client_whose_home_is_silent_attempts_by_itself() {
    let mut harness = with_home();
    harness.send("c", b"BLPOP l 0\r\n");
    harness.send("b", b"RPUSH l 1 2\r\n");
    assert!(later(&mut harness, 2000, b"PING\r\n").is_empty());
    assert_eq!(later(&mut harness, 2000, b"PING\r\n"), ["c"]);
}

#[test]
fn where_clients_see_different_states_each_attempts_by_itself() {
    let mut harness = with_home();
    harness.host.is_strict = false;
    harness.send("c", b"BLPOP l 0\r\n");
    harness.send("b", b"RPUSH l 1\r\n");
    assert_eq!(later(&mut harness, 2000, b"PING\r\n"), ["c"], "the first of the line may not see it yet");
}

#[test]
fn who_comes_where_others_wait_elsewhere_takes_what_is_there() {
    let mut harness = with_home();
    harness.hear(HOME, &News::Line { place: place(Sought::List, "l"), what: LineNews::Sought });
    // The home and those who wait there may be gone, and nobody may wait long enough to learn that.
    harness.send("b", b"RPUSH l 1\r\n");
    assert_eq!(render(&harness.send("c", b"BLPOP l 1\r\n")), ["[\"l\", \"1\"]"]);
}

#[test]
fn a_client_that_changes_homes_waits_for_the_answer_of_the_new_one() {
    let mut harness = with_home();
    harness.send("c", b"BLPOP l 0\r\n");
    harness.send("b", b"RPUSH l 1\r\n");
    harness.host.sharing = vec![ProcessId(HOME + 1)];
    assert!(later(&mut harness, 2000, b"PING\r\n").is_empty());
    assert!(later(&mut harness, 2000, b"PING\r\n").is_empty());
    let what = LineNews::Turn { worker: 0, client: 2 };
    harness.hear(HOME + 1, &News::Line { place: place(Sought::List, "l"), what });
    assert_eq!(answered(&mut harness), ["c"]);
}

#[test]
fn the_home_of_a_line_answers_who_waits_there() {
    let mut harness = Harness::new(Config::default());
    let (worker, client) = (3, 77);
    let what = LineNews::Enter { worker, client };
    harness.hear(HOME, &News::Line { place: place(Sought::List, "l"), what });
    assert_eq!(sent_to_home(&mut harness, &LineNews::Entered { worker, client }), 1);
}
