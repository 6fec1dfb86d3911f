//! Section 4.3: contexts, and their tokens.

use super::client::step;
use super::operations::write;
use super::scenes::{client, get, key, nearest, options, restore, set, token, world};
use super::world::{coordinator, replica};
use anabranch_causal::cops::{Mutant, Options};
use protocol::{ContextRequest, Request};

/// A session goes on in another region, to which its write is slow: returns the reply, and what the session reads
/// there then.
pub fn token_elsewhere(mutant: Option<Mutant>, millis: u64) -> (String, String) {
    let mut world = world(2, options(false, mutant));
    let (here, there) = (client(0, 1), client(1, 2));
    world.part(replica(0, 0), replica(1, 0));
    set(&mut world, here, &key(0), "v");
    let token = token(&mut world, here);
    let reply = restore(&mut world, there, &token, millis);
    (reply, get(&mut world, there, &key(0)))
}

#[test]
fn a_token_waits_for_what_it_depends_on() {
    let mut world = world(2, Options::default());
    let (here, there) = (client(0, 1), client(1, 2));
    set(&mut world, here, &key(0), "v");
    let token = token(&mut world, here);
    assert_eq!(get(&mut world, there, &key(0)), "(nil)", "it is on its way");
    assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
    assert_eq!(get(&mut world, there, &key(0)), "v");
}

/// Nothing else is waited for: another partition's writes need not come.
#[test]
fn a_token_waits_for_nothing_else() {
    let mut world = world(2, Options::default());
    let (here, there, other) = (client(0, 1), client(1, 2), client(0, 3));
    world.part(replica(0, 1), replica(1, 1));
    set(&mut world, other, &key(1), "not read");
    set(&mut world, here, &key(0), "v");
    let token = token(&mut world, here);
    assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
    assert_eq!(get(&mut world, there, &key(0)), "v");
}

#[test]
fn a_token_that_cannot_be_served_in_time_is_refused() {
    let (reply, read) = token_elsewhere(None, 300);
    assert!(reply.starts_with("-UNAVAILABLE this region has not written yet"), "{reply}");
    assert_eq!(read, "(nil)", "the session goes on as it was");
}

/// What a session takes over, its writes depend on.
#[test]
fn a_token_is_part_of_the_context() {
    let mut world = world(3, Options::default());
    let (here, there, last) = (client(0, 1), client(1, 2), client(2, 3));
    world.part(replica(0, 0), replica(2, 0));
    set(&mut world, here, &key(0), "v");
    let token = token(&mut world, here);
    assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
    set(&mut world, there, &key(1), "after");
    world.run_ms(500);
    assert_eq!(get(&mut world, last, &key(1)), "(nil)");
    world.heal();
    world.run_ms(500);
    assert_eq!(
        (get(&mut world, last, &key(1)), get(&mut world, last, &key(0))),
        ("after".into(), "v".into())
    );
}

/// What every region has is no dependency any more; who takes it over writes later than it all the same.
#[test]
fn a_token_of_what_every_region_has_brings_its_lamport_time() {
    let mut world = world(2, Options::default());
    world.host(replica(0, 0)).skew = 3_000_000;
    let (fast, there) = (client(0, 1), client(1, 2));
    set(&mut world, fast, &key(0), "fast");
    world.run_ms(500);
    assert_eq!(get(&mut world, fast, &key(0)), "fast");
    assert_eq!(nearest(&world, fast), 0);
    let token = token(&mut world, fast);
    assert_eq!(restore(&mut world, there, &token, 1_000), "OK");
    let latest = |client: super::client::Client| {
        let coordinator = world.node(client.at).as_coordinator().expect("it is one");
        coordinator.context(client.session).expect("it has asked").latest()
    };
    assert!(latest(there) >= latest(fast), "its next write is stamped above this");
}

#[test]
fn what_is_no_token_is_refused() {
    let mut world = world(2, Options::default());
    let own = client(0, 1);
    set(&mut world, own, &key(0), "v");
    let mut forged = token(&mut world, own);
    forged.replace_range(8..9, if &forged[8..9] == "0" { "1" } else { "0" });
    for text in ["", "x", "0123456789abcdef0123", &forged] {
        let refused = restore(&mut world, own, text, 100);
        assert!(refused.starts_with("-ERR this is no context of this keyspace"), "{text}: {refused}");
    }
}

/// Connections are threads of their own: what one has seen is no dependency of another one (Corrections 72).
#[test]
fn sessions_of_a_process_do_not_depend_on_one_another() {
    let mut world = world(2, Options::default());
    let at = coordinator(0, 0);
    let (one, other) = (super::client::Client::new(at, 1), super::client::Client::new(at, 2));
    let there = client(1, 3);
    world.part(replica(0, 0), replica(1, 0));
    set(&mut world, one, &key(0), "slow");
    set(&mut world, other, &key(1), "fast");
    world.run_ms(300);
    assert_eq!(get(&mut world, there, &key(1)), "fast");
}

fn context(
    world: &mut super::world::World,
    client: super::client::Client,
    ask: ContextRequest<'_>,
) -> String {
    client.ask(world, Request::Context { session: client.session, ask })
}

/// Section 4.3: a process has many threads of execution; they do not depend on one another.
#[test]
fn a_connection_has_contexts_that_do_not_depend_on_one_another() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    world.part(replica(0, 0), replica(1, 0));
    set(&mut world, own, &key(0), "slow");
    assert_eq!(context(&mut world, own, ContextRequest::New), "(integer) 1");
    assert_eq!(context(&mut world, own, ContextRequest::Use { context: 1 }), "OK");
    set(&mut world, own, &key(1), "fast");
    assert_eq!(context(&mut world, own, ContextRequest::Use { context: 0 }), "OK");
    set(&mut world, own, &key(2), "after slow");
    world.run_ms(300);
    assert_eq!(get(&mut world, there, &key(1)), "fast");
    assert_eq!(get(&mut world, there, &key(2)), "(nil)");
    assert!(context(&mut world, own, ContextRequest::Drop { context: 0 }).contains("is in use"));
    assert_eq!(context(&mut world, own, ContextRequest::Drop { context: 1 }), "OK");
    assert!(context(&mut world, own, ContextRequest::Use { context: 1 }).contains("no context 1"));
}

/// Requests of a session that come together are served one after the other.
#[test]
fn each_put_knows_the_version_of_the_one_before() {
    let mut world = world(2, Options::default());
    let (own, there) = (client(0, 1), client(1, 2));
    world.part(replica(0, 0), replica(1, 0));
    let (first, second) = (key(0), key(1));
    let ids =
        [(&first, "1"), (&second, "2")].map(|(key, value)| own.send(&mut world, &[step(key, write(value))]));
    ids.into_iter().for_each(|id| drop(world.await_reply(id)));
    world.run_ms(300);
    assert_eq!(get(&mut world, there, &second), "(nil)", "it depends on the first");
    world.request(own.at, Request::Close { session: own.session });
}
