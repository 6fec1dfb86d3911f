//! Messages between gateways, slow subscribers, and what waits for what.

use crate::support::{Harness, render};
use anabranch_gateway::{Audience, Config, Message, News, OutputLimit, SeenContext, State};
use std::time::Duration;
use types::{KeyspaceId, Rng};

fn harness() -> Harness {
    Harness::new(Config::default())
}

fn replies_to(harness: &mut Harness, client: &str, commands: &str) -> Vec<String> {
    render(&harness.ask(client, commands.as_bytes()))
}

fn news(channel: &str, payload: &str, token: Option<&str>) -> News {
    let bytes = |text: &str| text.as_bytes().into();
    let context = token.map(|token| SeenContext { keyspace: KeyspaceId(0), token: bytes(token) });
    let message = Message { sharded: false, channel: bytes(channel), payload: bytes(payload), context };
    News::Published { message }
}

fn heard(payload: &str) -> String {
    format!("[\"message\", \"c\", \"{payload}\"]")
}

#[test]
fn other_gateways_get_messages_that_they_may_have_subscribers_of() {
    let mut harness = harness();
    replies_to(&mut harness, "a", "SUBSCRIBE c\r\n");
    assert_eq!(replies_to(&mut harness, "b", "PUBLISH c 1\r\n"), [":1"]);
    // No other gateway of this process has subscribers; other processes may.
    assert_eq!(harness.host.sent_news, [(Audience::Elsewhere, news("c", "1", None))]);
    assert_eq!(harness.send("a", b""), b"*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n1\r\n");
}

#[test]
fn what_is_heard_reaches_subscribers_until_they_unsubscribe() {
    let mut harness = harness();
    replies_to(&mut harness, "a", "SUBSCRIBE c d\r\nPSUBSCRIBE c*\r\n");
    harness.hear(7, &news("c", "1", None));
    harness.hear(7, &news("e", "2", None));
    let both = [heard("1"), "[\"pmessage\", \"c*\", \"c\", \"1\"]".to_owned()];
    assert_eq!(render(&harness.send("a", b"")), both);
    replies_to(&mut harness, "a", "UNSUBSCRIBE\r\nPUNSUBSCRIBE\r\n");
    harness.hear(7, &news("c", "3", None));
    assert_eq!(render(&harness.send("a", b"")), [""; 0]);
    assert_eq!(harness.host.interest.counts(), [0; 3]);
}

#[test]
fn a_subscriber_that_does_not_read_is_disconnected() {
    let mut harness = harness();
    let limit = OutputLimit { hard: 1000, soft: 500, soft_for: Duration::from_secs(2) };
    harness.host.output_limit = limit;
    let payload = "x".repeat(300);
    for name in ["a", "b"] {
        replies_to(&mut harness, name, "SUBSCRIBE c\r\n");
    }
    let (slow, quick) = (harness.connection("a"), harness.connection("b"));
    // Nobody takes what `a` is sent.
    for number in 0..4 {
        assert_eq!(harness.gateway.state(slow), State::Reading, "{number}");
        harness.hear(7, &news("c", &payload, None));
        assert_eq!(render(&harness.send("b", b"")).len(), 1);
        harness.settle();
    }
    assert_eq!(harness.gateway.state(slow), State::Closing);
    assert_eq!(harness.gateway.state(quick), State::Reading);
    assert_eq!(harness.gateway.output_mut(slow).map(|output| output.capacity()), Some(0));
    assert_eq!(*harness.host.incidents.borrow(), ["SlowSubscriber(\"10.0.0.1:5000\")"]);
}

#[test]
fn a_subscriber_that_lags_for_long_is_disconnected() {
    let mut harness = harness();
    let limit = OutputLimit { hard: 0, soft: 500, soft_for: Duration::from_secs(2) };
    harness.host.output_limit = limit;
    replies_to(&mut harness, "a", "SUBSCRIBE c\r\n");
    replies_to(&mut harness, "b", "SUBSCRIBE c\r\n");
    let (slow, better) = (harness.connection("a"), harness.connection("b"));
    harness.hear(7, &news("c", &"x".repeat(600), None));
    harness.host.now_millis += 1900;
    harness.settle();
    assert_eq!(harness.gateway.state(slow), State::Reading);
    assert_eq!(render(&harness.send("b", b"")).len(), 1);
    harness.host.now_millis += 200;
    harness.settle();
    assert_eq!(harness.gateway.state(slow), State::Closing);
    assert_eq!(harness.gateway.state(better), State::Reading);
    // Who had caught up has its time anew.
    harness.hear(7, &news("c", &"x".repeat(600), None));
    harness.host.now_millis += 1900;
    harness.settle();
    assert_eq!(harness.gateway.state(better), State::Reading);
}

#[test]
fn a_closed_subscriber_is_no_receiver() {
    let mut harness = harness();
    replies_to(&mut harness, "a", "SUBSCRIBE c\r\nPSUBSCRIBE c*\r\nSSUBSCRIBE c\r\n");
    assert_eq!(harness.host.interest.counts(), [1; 3]);
    let connection = harness.connection("a");
    harness.gateway.close(connection, &mut harness.host);
    assert_eq!(harness.host.interest.counts(), [0; 3]);
    assert_eq!(replies_to(&mut harness, "b", "PUBLISH c 1\r\nSPUBLISH c 1\r\n"), [":0", ":0"]);
}

#[test]
fn a_message_carries_what_its_publisher_had_seen() {
    let mut harness = harness();
    harness.host.contexts = Some(0);
    assert_eq!(replies_to(&mut harness, "b", "PUBLISH c 1\r\nPUBLISH c 2\r\nGET k\r\n"), [":0", ":0", "nil"]);
    let sent: Vec<_> = harness.host.sent_news.drain(..).map(|(_, news)| news).collect();
    assert_eq!(sent, [news("c", "1", Some("0")), news("c", "2", Some("1"))]);
    // Messages of one transaction have one.
    replies_to(&mut harness, "b", "MULTI\r\nPUBLISH c 3\r\nPUBLISH c 4\r\nEXEC\r\n");
    let sent: Vec<_> = harness.host.sent_news.drain(..).map(|(_, news)| news).collect();
    assert_eq!(sent, [news("c", "3", Some("2")), news("c", "4", Some("2"))]);
    // A token that comes later holds its publisher up.
    let mut plain = Harness::new(Config::default());
    plain.host.contexts = Some(0);
    plain.host.held = Some(Vec::new());
    assert_eq!(replies_to(&mut plain, "b", "PUBLISH c 1\r\nPUBLISH c 2\r\n"), [":0", ":0"]);
    let sent: Vec<_> = plain.host.sent_news.drain(..).map(|(_, news)| news).collect();
    assert_eq!(sent, [news("c", "1", Some("0")), news("c", "2", Some("1"))]);
}

#[test]
fn a_message_waits_for_what_its_publisher_had_seen() {
    let mut harness = harness();
    harness.host.contexts = Some(0);
    replies_to(&mut harness, "a", "SUBSCRIBE c\r\n");
    harness.host.held = Some(Vec::new());
    harness.hear(7, &news("c", "1", Some("x")));
    harness.hear(7, &news("c", "2", None));
    harness.hear(7, &news("c", "3", Some("x")));
    harness.hear(8, &news("c", "other", None));
    harness.hear(0, &news("c", "own", Some("y")));
    assert_eq!(render(&harness.send("a", b"")), [heard("other"), heard("own")]);
    harness.release();
    let rest = [heard("1"), heard("2"), heard("3")];
    assert_eq!(render(&harness.send("a", b"")), rest, "what one has waited for the others need not");
    assert!(harness.gateway.deadline().is_none());
}

#[test]
fn a_message_waits_for_a_second_at_most() {
    let mut harness = harness();
    harness.host.contexts = Some(0);
    replies_to(&mut harness, "a", "SUBSCRIBE c\r\n");
    harness.host.held = Some(Vec::new());
    harness.hear(7, &news("c", "1", Some("x")));
    harness.host.now_millis += 600;
    harness.hear(7, &news("c", "2", Some("y")));
    assert!(harness.gateway.deadline().is_some());
    harness.host.now_millis += 399;
    harness.settle();
    assert_eq!(render(&harness.send("a", b"")), [""; 0]);
    harness.host.now_millis += 1;
    harness.settle();
    assert_eq!(render(&harness.send("a", b"")), [heard("1")]);
    harness.host.now_millis += 600;
    harness.settle();
    assert_eq!(render(&harness.send("a", b"")), [heard("2")]);
    // The answers come in the end, and nobody waits for them.
    harness.release();
    assert_eq!(render(&harness.send("a", b"")), [""; 0]);
}

#[test]
fn what_nobody_subscribes_to_waits_for_nothing() {
    let mut harness = harness();
    harness.host.contexts = Some(0);
    harness.hear(7, &news("c", "1", Some("x")));
    assert!(harness.host.seen.is_empty() && harness.gateway.deadline().is_none());
}

/// Messages come between replies, each whole, those of one publisher in order.
#[test]
fn messages_never_split_replies() {
    for seed in 0..200 {
        let mut random = Rng::with_seed(seed);
        let mut harness = harness();
        if seed % 2 == 0 {
            harness.host.held = Some(Vec::new());
        }
        replies_to(&mut harness, "a", "HELLO 3\r\nSUBSCRIBE c\r\nRPUSH l 1 2 3\r\n");
        let (mut received, mut expected, mut published) = (Vec::new(), Vec::new(), 0);
        for _ in 0..40 {
            match random.usize(..4) {
                0 => {
                    received.extend(harness.send("a", b"LRANGE l 0 -1\r\nMGET a b\r\n"));
                    expected.extend(["[\"1\", \"2\", \"3\"]", "[nil, nil]"]);
                }
                1 => {
                    received.extend(harness.send("a", b"MULTI\r\nLLEN l\r\nEXEC\r\n"));
                    expected.extend(["+OK", "+QUEUED", "[:3]"]);
                }
                2 => {
                    published += 1;
                    harness.hear(7, &news("c", &published.to_string(), None));
                }
                _ => {
                    harness.release();
                    received.extend(harness.send("a", b""));
                }
            }
        }
        received.extend(harness.ask("a", b"PING\r\n"));
        expected.push("+PONG");
        let (messages, replies): (Vec<String>, Vec<String>) =
            render(&received).into_iter().partition(|line| line.starts_with(">["));
        assert_eq!(replies, expected, "seed {seed}");
        let all: Vec<String> =
            (1..=published).map(|number| format!(">{}", heard(&number.to_string()))).collect();
        assert_eq!(messages, all, "seed {seed}");
    }
}
