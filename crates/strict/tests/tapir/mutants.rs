//! Known bugs that a script shows; the models of `tests/model` find most others.

use crate::tapir::network::{Network, address, text};
use anabranch_strict::tapir::Options;
use anabranch_strict::{Mutant, Mutants};
use datatypes::register;
use std::time::Duration;

/// Twenty blind increments while every second message comes twice; what a read finds then.
fn counted(mutants: Mutants) -> String {
    let mut network = Network::new(1, 1, 3, 2, &Options { mutants, ..Options::default() });
    (network.duplication, network.delay) = (2, Duration::from_millis(40));
    let steps = [network.increment("a", true)];
    let ids: Vec<_> = (0..20).map(|n| network.many(1 + n % 2, 1, &steps)).collect();
    ids.into_iter().for_each(|id| drop(network.answer(id)));
    network.run_for(Duration::from_secs(1));
    text(&network.one(1, &network.get("a")))
}

#[test]
fn a_repeated_commit_counts_once() {
    assert_eq!(counted(Mutants::default()), "20");
    assert_ne!(counted(Mutant::ExecuteAgain.into()), "20", "the mutant counts twice");
}

/// Writes a key that expires in a tenth of a second.
fn set_for_a_moment(network: &mut Network, value: &'static [u8]) {
    let millis = (1_700_000_000_000_000 + network.now.0) / 1000 + 100;
    let set = register::Operation::Set {
        value,
        deadline: register::Deadline::At { millis },
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    let set = network.step("a", set, false);
    network.one(1, &set);
}

/// A blind increment of a key that has expired, and that nobody has looked at since; what a read finds then.
fn counted_after_expiry(mutants: Mutants) -> String {
    let mut network = Network::new(1, 1, 3, 2, &Options { mutants, ..Options::default() });
    set_for_a_moment(&mut network, b"7");
    network.run_for(Duration::from_millis(200));
    network.one(1, &network.increment("a", true));
    text(&network.one(2, &network.get("a")))
}

#[test]
fn a_blind_write_on_an_expired_key_counts_from_nothing() {
    assert_eq!(counted_after_expiry(Mutants::default()), "1");
    assert_eq!(
        counted_after_expiry(Mutant::BlindWritesIgnoreDeadlines.into()),
        "null",
        "the mutant loses it"
    );
}

/// The key's last write was stamped by a fast clock, so the next one commits when its own deadline has passed: nothing is
/// left of it, for slow clocks neither.
#[test]
fn a_deadline_that_has_passed_at_the_commit_leaves_nothing() {
    let mut network = Network::new(1, 1, 3, 3, &Options::default());
    network.set_skew(address(2, None), 1_000_000);
    let early = network.set("a", "early");
    network.one(2, &early);
    network.run_for(Duration::from_millis(20));
    set_for_a_moment(&mut network, b"soon gone");
    network.run_for(Duration::from_millis(20));
    network.set_skew(address(3, None), -10_000_000);
    assert_eq!(text(&network.one(3, &network.get("a"))), "null");
}

/// A key expires, which a punctual clock sees; then what a clock that is ten seconds behind sees.
fn seen_by_a_slow_clock(mutants: Mutants) -> String {
    let mut network = Network::new(1, 1, 3, 2, &Options { mutants, ..Options::default() });
    set_for_a_moment(&mut network, b"soon gone");
    network.run_for(Duration::from_millis(200));
    assert_eq!(text(&network.one(1, &network.get("a"))), "null");
    network.set_skew(address(2, None), -10_000_000);
    text(&network.one(2, &network.get("a")))
}

#[test]
fn an_expiry_that_was_seen_is_seen_by_all() {
    assert_eq!(seen_by_a_slow_clock(Mutants::default()), "null");
    assert_eq!(seen_by_a_slow_clock(Mutant::ExpiryIsNoWrite.into()), "soon gone", "the mutant forgets it");
}
