//! What a client may take from one session to another (Corrections 35), and whose writes a session reads at once.

use crate::wren::client::{Client, GET, blind_step, increment};
use crate::wren::operations::write;
use crate::wren::world::{World, coordinator};
use anabranch_causal::wren::Options;
use protocol::{ContextRequest, Request};
use std::time::Duration;

/// Two regions of two partitions with two coordinators each, at rest.
fn world() -> World {
    let mut world = World::new(2, 2, 2, Options::default(), 1);
    world.run_ms(200);
    world
}

fn token(world: &mut World, client: Client) -> String {
    let reply = client.ask(world, Request::Context { session: client.session, ask: ContextRequest::Token });
    reply.trim_matches('"').to_owned()
}

fn restore(world: &mut World, client: Client, token: &str, millis: u64) -> String {
    let ask = ContextRequest::Restore { token: token.as_bytes(), timeout: Duration::from_millis(millis) };
    client.ask(world, Request::Context { session: client.session, ask })
}

fn scope(world: &mut World, client: Client, private: bool) -> String {
    client.ask(world, Request::Context { session: client.session, ask: ContextRequest::Scope { private } })
}

#[test]
fn a_session_goes_on_at_another_process_and_in_another_region() {
    for elsewhere in [coordinator(0, 1), coordinator(1, 0)] {
        let mut world = world();
        let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(elsewhere, 2));
        here.one(&mut world, "k", write("v"));
        let token = token(&mut world, here);
        assert_eq!(there.one(&mut world, "k", GET), "(nil)", "it is not there yet");
        assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
        assert_eq!(there.one(&mut world, "k", GET), "\"v\"");
    }
}

/// What the session has only read goes along too.
#[test]
fn a_context_holds_what_was_read() {
    let mut world = world();
    let (writer, reader) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 1), 2));
    let there = Client::new(coordinator(1, 0), 3);
    world.run_ms(100);
    writer.one(&mut world, "k", write("v"));
    world.run_ms(15);
    assert_eq!(reader.one(&mut world, "k", GET), "\"v\"");
    let token = token(&mut world, reader);
    assert_eq!(there.one(&mut world, "k", GET), "(nil)", "it is on its way");
    assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
    assert_eq!(there.one(&mut world, "k", GET), "\"v\"");
}

#[test]
fn a_context_that_does_not_arrive_in_time_is_refused() {
    let mut world = world();
    let (here, there) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(1, 0), 2));
    world.cut(0, 1);
    here.one(&mut world, "k", write("v"));
    let token = token(&mut world, here);
    let refused = restore(&mut world, there, &token, 300);
    assert!(refused.starts_with("-UNAVAILABLE this region does not show yet"), "{refused}");
    assert_eq!(there.one(&mut world, "k", GET), "(nil)", "the session goes on as it was");
    world.heal();
    assert_eq!(restore(&mut world, there, &token, 3_000), "OK");
    assert_eq!(there.one(&mut world, "k", GET), "\"v\"");
}

#[test]
fn what_is_no_context_is_refused() {
    let mut world = world();
    let client = Client::new(coordinator(0, 0), 1);
    let mut forged = token(&mut world, client);
    forged.replace_range(8..9, if &forged[8..9] == "0" { "1" } else { "0" });
    for text in ["", "x", "0123456789abcdef0123", &forged] {
        let refused = restore(&mut world, client, text, 100);
        assert!(refused.starts_with("-ERR this is no context of this keyspace"), "{text}: {refused}");
    }
    client.begin(&mut world);
    let token = token(&mut world, client);
    let refused = restore(&mut world, client, &token, 100);
    assert!(refused.starts_with("-ERR a transaction is open"), "{refused}");
}

#[test]
fn a_session_of_its_own_reads_others_writes_when_they_are_stable() {
    let mut world = world();
    let (one, other) = (Client::new(coordinator(0, 0), 1), Client::new(coordinator(0, 0), 2));
    other.one(&mut world, "before", write("v"));
    assert_eq!(scope(&mut world, one, true), "OK");
    assert_eq!(one.one(&mut world, "before", GET), "\"v\"", "what it could read it still can");
    other.one(&mut world, "k", write("v"));
    assert_eq!(one.one(&mut world, "k", GET), "(nil)");
    one.many(&mut world, &[blind_step("own", increment(1))]);
    assert_eq!(one.one(&mut world, "own", GET), "\"1\"");
    assert_eq!(other.one(&mut world, "own", GET), "(nil)");
    assert_eq!(scope(&mut world, one, false), "OK");
    assert_eq!(one.one(&mut world, "k", GET), "\"v\"");
    assert_eq!(other.one(&mut world, "own", GET), "\"1\"", "what it wrote is the process's");
    world.run_ms(100);
    assert_eq!(one.one(&mut world, "own", GET), "\"1\"", "and counted once");
}
