//! Any session gives the same replies however its bytes arrive and whenever its keyspaces answer, and no bytes
//! make the gateway panic.

use crate::support::Harness;
use anabranch_gateway::{Config, State};
use proptest::prelude::*;
use proptest::sample::select;

/// Commands that a session may consist of: every family, every kind of plan, every mode of a session.
const COMMANDS: &[&str] = &[
    "GET", "SET", "INCR", "MGET", "MSET", "DEL", "EXISTS", "RENAME", "KEYS", "SCAN", "DBSIZE", "FLUSHDB",
    "FLUSHALL", "HSET", "HGETALL", "LPUSH", "LPOP", "LRANGE", "SADD", "SPOP", "SINTER", "SUNION", "ZADD",
    "ZRANGE", "ZPOPMIN", "EXPIRE", "TTL", "MULTI", "EXEC", "EXEC", "DISCARD", "WATCH", "UNWATCH", "TXN",
    "BLIND", "SELECT", "KEYSPACE", "PING", "HELLO", "RESET", "CLIENT", "COMMAND", "NOSUCH",
];

const ARGUMENTS: &[&str] = &[
    "a",
    "b",
    "c",
    "0",
    "1",
    "-1",
    "2",
    "10",
    "*",
    "x y",
    "",
    "INCR",
    "BEGIN",
    "COMMIT",
    "ABORT",
    "READONLY",
    "GETNAME",
    "COUNT",
    "USE",
    "CREATE",
    "default",
    "MODEL",
    "strict",
    "NX",
    "EX",
    "WITHSCORES",
    "MATCH",
    "TYPE",
    "hash",
];

fn command() -> impl Strategy<Value = Vec<u8>> {
    (select(COMMANDS), prop::collection::vec(select(ARGUMENTS), 0..4)).prop_map(|(name, arguments)| {
        let mut bytes = Vec::new();
        let all: Vec<&str> = std::iter::once(name).chain(arguments).collect();
        resp::encode_command(&mut bytes, &all);
        bytes
    })
}

fn harness(answers_later: bool) -> Harness {
    let mut harness = Harness::new(Config { scan_piece: 1, max_output_bytes: 200, ..Config::default() });
    harness.host.held = answers_later.then(Vec::new);
    harness
}

/// Sends the bytes in these pieces and waits for all replies.
fn replies(harness: &mut Harness, bytes: &[u8], pieces: &[usize]) -> Vec<u8> {
    let (mut rest, mut output) = (bytes, Vec::new());
    for len in pieces.iter().chain([&usize::MAX]) {
        let (piece, after) = rest.split_at((*len).min(rest.len()));
        output.extend(harness.send("a", piece));
        rest = after;
    }
    let connection = harness.connection("a");
    loop {
        let more = harness.ask("a", b"");
        output.extend_from_slice(&more);
        if more.is_empty() && harness.gateway.state(connection) != State::Waiting {
            return output;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn arrival_and_delay_change_nothing(
        commands in prop::collection::vec(command(), 0..40),
        pieces in prop::collection::vec(1usize..60, 0..20),
    ) {
        let bytes = commands.concat();
        let expected = replies(&mut harness(false), &bytes, &[]);
        prop_assert_eq!(&expected, &replies(&mut harness(false), &bytes, &pieces));
        prop_assert_eq!(&expected, &replies(&mut harness(true), &bytes, &[]));
        prop_assert_eq!(&expected, &replies(&mut harness(true), &bytes, &pieces));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes: Vec<u8>, commands in prop::collection::vec(command(), 0..10), at in 0usize..200) {
        let mut mixed = commands.concat();
        let at = at.min(mixed.len());
        mixed.splice(at..at, bytes);
        replies(&mut harness(false), &mixed, &[7, 11]);
        replies(&mut harness(true), &mixed, &[7, 11]);
    }
}
