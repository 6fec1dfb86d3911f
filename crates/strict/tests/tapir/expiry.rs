//! Operations that do not look at a key's deadline, beside deadlines that their replica has not seen (Corrections 69).

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::tapir::Options;
use datatypes::{Items, Operation, key, set};
use protocol::{KeyedOperation, Step};
use std::time::Duration;
use types::ProcessId;

fn step<'a>(network: &Network, operation: Operation<'a>, blind: bool) -> Step<'a> {
    Step::Key(KeyedOperation { key: b"a", hash: network.topology.seed.hash(b"a"), operation, blind })
}

fn add(member: &'static [u8]) -> Operation<'static> {
    Operation::Set(set::Operation::Add { members: Items::one(member) })
}

/// A set gets a deadline that the replica which everybody reads from does not hear of. It passes; then a member is
/// added. What that replies, and what is left.
fn added_beside_an_unseen_deadline(blind: bool) -> (String, String) {
    let near = Some(ProcessId(3));
    let mut network = Network::new(13, 1, 3, 2, &Options { near, quorum_reads: false, ..Options::default() });
    let first = step(&network, add(b"first"), false);
    assert_eq!(text(&network.one(1, &first)), "1");
    network.run_for(Duration::from_millis(100));
    let third = address(3, Some(0));
    network.filter = Some(Box::new(move |_, to, message| to == third && ir_of(message).is_some()));
    let at_millis = network.wall(Duration::ZERO).as_millis() + 100;
    let expire = Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() });
    let expire = step(&network, expire, false);
    assert_eq!(text(&network.one(1, &expire)), "1");
    network.run_for(Duration::from_millis(300));
    let second = step(&network, add(b"second"), blind);
    let reply = text(&network.one(2, &second));
    network.filter = None;
    network.run_for(Duration::from_secs(2));
    let members = step(&network, Operation::Set(set::Operation::Members), false);
    (reply, text(&network.one(1, &members)))
}

#[test]
fn a_member_added_beside_an_unseen_deadline_that_has_passed_begins_a_new_set() {
    for (blind, reply) in [(false, "1"), (true, "OK")] {
        let (replied, left) = added_beside_an_unseen_deadline(blind);
        assert_eq!(replied, reply);
        assert!(left.contains("second") && !left.contains("first"), "blind {blind}: {left}");
    }
}

/// A coordinator whose clock is two seconds ahead finds a key expired that lives for one second more; before it prepares,
/// it learns by another transaction that its clock is wrong.
#[test]
fn what_a_wrong_clock_took_for_expired_is_looked_at_again_once_the_clock_is_corrected() {
    for seed in 1..=20 {
        let options = Options { clock_bound: Duration::from_millis(100), ..Options::default() };
        let mut network = Network::new(seed, 1, 3, 4, &options);
        network.one(1, &network.set("a", "alive"));
        let at_millis = network.wall(Duration::ZERO).as_millis() + 1000;
        let expire = Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() });
        assert_eq!(text(&network.one(1, &step(&network, expire, false))), "1", "seed {seed}");
        network.run_for(Duration::from_millis(100));
        network.set_skew(address(4, None), 2_000_000);
        network.many(4, 1, &[network.set("b", "1")]);
        network.run_for(Duration::from_micros(400 * seed));
        let id = network.many(4, 2, &[network.get("a"), network.set("c", "1")]);
        assert_eq!(text(&network.answer(id)), "alive OK", "seed {seed}");
    }
}
