//! The models, and those of them that take about a second at most.

use crate::model::explore::{Outcome, explore};
use crate::model::setup::{Act, Gateway, MEMBERS, Setup};

pub const PUNCTUAL: Gateway = Gateway { skew: 0, near: 0, dies: false };
/// A clock that is ahead; one that is behind.
pub const FAST: Gateway = Gateway { skew: 1_000_000, ..PUNCTUAL };
pub const SLOW: Gateway = Gateway { skew: -1_000_000, near: 1, ..PUNCTUAL };
pub const DYING: Gateway = Gateway { dies: true, ..PUNCTUAL };

pub fn one(gateway: Gateway) -> Setup {
    Setup::new(1).with(gateway, &[("a", Act::Set(1))])
}

/// A result through one view change, on the fast and the slow path.
pub fn a_view_change() -> Setup {
    Setup { timers: 1, views: 1, ..one(PUNCTUAL) }
}

/// Outcomes through two view changes.
pub fn two_view_changes() -> Setup {
    Setup { views: 2, once: true, acknowledgements: true, ..one(PUNCTUAL) }
}

/// A replica forgets everything.
pub fn amnesia() -> Setup {
    Setup { timers: 1, restarts: (0, 1), once: true, ..one(PUNCTUAL) }
}

/// A replica restarts with its log.
pub fn restart() -> Setup {
    Setup { timers: 1, restarts: (1, 0), ..one(PUNCTUAL) }
}

/// A backup coordinator beside a coordinator that lives.
pub fn one_backup() -> Setup {
    Setup { timers: 1, backups: vec![0], once: true, ..one(PUNCTUAL) }
}

/// A coordinator dies; two backup coordinators race.
pub fn two_backups() -> Setup {
    Setup { backups: vec![0, 1], once: true, ..one(DYING) }
}

/// A coordinator dies, a backup coordinator recovers, the view changes.
pub fn backup_and_view() -> Setup {
    Setup { backups: vec![0], views: 1, once: true, ..one(DYING) }
}

/// Two increments meet.
pub fn two_increments() -> Setup {
    Setup { once: true, ..Setup::new(1) }
        .with(FAST, &[("a", Act::Increment)])
        .with(SLOW, &[("a", Act::Increment)])
}

/// One after the other, the second with a clock behind.
pub fn in_turn() -> Setup {
    Setup { once: true, ..Setup::new(1) }
        .with(FAST, &[("a", Act::Increment)])
        .with(SLOW, &[("a", Act::Increment)])
        .after(0)
}

/// Each reads what the other writes.
pub fn write_skew() -> Setup {
    Setup { once: true, ..Setup::new(1) }
        .with(FAST, &[("a", Act::Get), ("b", Act::Set(1))])
        .with(SLOW, &[("b", Act::Get), ("a", Act::Set(2))])
}

/// Corrections 1, the second shape: the order of stamps runs against real time over a third transaction.
pub fn inversion() -> Setup {
    Setup { once: true, ..Setup::new(1) }
        .with(Gateway { skew: 0, ..SLOW }, &[("a", Act::Get), ("b", Act::Set(3))])
        .with(FAST, &[("a", Act::Set(1))])
        .with(SLOW, &[("b", Act::Set(2))])
        .after(1)
}

/// A write, then quorum reads one after the other.
pub fn quorum_reads() -> Setup {
    let mut setup = Setup { once: true, ..Setup::new(1) }
        .with(FAST, &[("a", Act::Set(1))])
        .with(SLOW, &[("a", Act::Get)])
        .with(PUNCTUAL, &[("a", Act::Get)])
        .after(1);
    setup.options.quorum_reads = true;
    setup
}

/// Blind increments out of order and an observer.
pub fn blind_increments() -> Setup {
    Setup { once: true, ..Setup::new(1) }
        .with(SLOW, &[("a", Act::Blind)])
        .with(FAST, &[("a", Act::Blind)])
        .with(PUNCTUAL, &[("a", Act::Get)])
        .after(0)
}

/// Two shards, a dying coordinator, a backup coordinator.
pub fn two_shards() -> Setup {
    let setup = Setup { backups: vec![0], once: true, ..Setup::new(2) };
    let (a, b) = (setup.key_of(0), setup.key_of(1));
    setup.with(DYING, &[(a, Act::Set(1)), (b, Act::Set(1))])
}

/// The same, with one replica of each shard down.
pub fn two_shards_and_a_crash() -> Setup {
    Setup { down: vec![2, MEMBERS + 2], ..two_shards() }
}

/// Replica 2 of the only shard is down.
fn with_a_crash(setup: Setup) -> Setup {
    Setup { down: vec![2], ..setup }
}

/// The race of two backup coordinators, one replica down.
pub fn two_backups_and_a_crash() -> Setup {
    with_a_crash(two_backups())
}

/// A recovery and a view change, one replica down.
pub fn backup_and_view_and_a_crash() -> Setup {
    with_a_crash(backup_and_view())
}

/// Two view changes, one replica down.
pub fn two_view_changes_and_a_crash() -> Setup {
    Setup { timers: 1, ..with_a_crash(two_view_changes()) }
}

/// A write and two quorum reads, one replica down.
pub fn quorum_reads_and_a_crash() -> Setup {
    Setup { timers: 1, ..with_a_crash(quorum_reads()) }
}

/// Blind increments and an observer, one replica down.
pub fn blind_increments_and_a_crash() -> Setup {
    Setup { timers: 1, ..with_a_crash(blind_increments()) }
}

/// Over two shards, each reads what the other writes; one replica of each is down.
pub fn write_skew_over_two_shards() -> Setup {
    let setup = Setup { timers: 1, once: true, down: vec![2, MEMBERS + 2], ..Setup::new(2) };
    let (a, b) = (setup.key_of(0), setup.key_of(1));
    setup.with(FAST, &[(a, Act::Get), (b, Act::Set(1))]).with(SLOW, &[(b, Act::Get), (a, Act::Set(2))])
}

/// Two transactions over two shards: the coordinator of one dies, a backup coordinator ends it; one replica of each shard
/// is down.
pub fn two_transactions_and_a_crash() -> Setup {
    let setup = two_shards_and_a_crash();
    let (a, b) = (setup.key_of(0), setup.key_of(1));
    Setup { timers: 1, ..setup }.with(PUNCTUAL, &[(a, Act::Get), (b, Act::Set(2))])
}

/// The same, where the other transaction is at one of the two shards only.
pub fn another_at_one_shard(shard: u16, acts: &[Act]) -> Setup {
    let setup = two_shards_and_a_crash();
    let key = setup.key_of(shard);
    let acts: Vec<(&'static str, Act)> = acts.iter().map(|act| (key, *act)).collect();
    Setup { timers: 1, ..setup }.with(PUNCTUAL, &acts)
}

/// Two shards, a coordinator that lives.
pub fn two_shards_alive() -> Setup {
    let setup = Setup { once: true, ..Setup::new(2) };
    let (a, b) = (setup.key_of(0), setup.key_of(1));
    setup.with(PUNCTUAL, &[(a, Act::Set(1)), (b, Act::Set(1))])
}

/// Explores, demands that no property is violated, and heals some of the last states. Returns the number of states.
pub fn explored(setup: Setup, most: usize) -> Outcome {
    let mut outcome = explore(setup, most);
    if let Some(violation) = &outcome.violation {
        panic!("{violation}");
    }
    let healed = outcome.heal(100).unwrap_or_else(|violation| panic!("after healing: {violation}"));
    println!(
        "{} states ({} with names), {} of instances, {} messages, healed {healed}, all {}",
        outcome.states,
        outcome.named,
        outcome.locals,
        outcome.space.messages.len(),
        outcome.exhausted
    );
    outcome
}

/// Every state within the setup's bounds holds, and so many requests are answered: with success, with a conflict.
pub fn exhaust(setup: Setup, answered: (usize, usize)) {
    let outcome = explored(setup, 6_000_000);
    assert!(outcome.exhausted, "more than {} states", outcome.states);
    assert_eq!(outcome.answered, answered);
}

#[test]
fn two_increments_that_meet_count_twice_or_conflict() {
    exhaust(two_increments(), (2, 2));
}

#[test]
fn increments_in_turn_count_twice_whatever_their_clocks() {
    exhaust(in_turn(), (2, 1));
}

#[test]
fn write_skew_does_not_happen() {
    exhaust(write_skew(), (2, 2));
}

#[test]
fn a_transaction_over_two_shards_commits() {
    exhaust(two_shards_alive(), (1, 0));
}
