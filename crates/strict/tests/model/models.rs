//! The models.

use crate::model::explore::{Outcome, explore, explore_with};
use crate::model::setup::{Act, Gateway, MEMBERS, Setup};
use anabranch_strict::Mutant;

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

/// The pairs of replicas: the quorums of the slow path.
const PAIRS: [u8; 3] = [0b011, 0b101, 0b110];

/// The three transactions of `inversion`, each heard by two replicas only.
fn inversion_over(quorums: [u8; 3]) -> Setup {
    Setup { timers: 1, heard: quorums.to_vec(), ..inversion() }
}

/// Every choice of a pair for each of three transactions. Only replica 1 is read from, so that two choices are the same
/// but for the names of the other two replicas.
fn choices_of_quorums() -> impl Iterator<Item = [u8; 3]> {
    let mirrored = |pair: u8| match pair {
        0b011 => 0b110,
        0b110 => 0b011,
        other => other,
    };
    let all = (0..27).map(|number: usize| [PAIRS[number % 3], PAIRS[number / 3 % 3], PAIRS[number / 9]]);
    all.filter(move |quorums| *quorums <= quorums.map(mirrored))
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

/// How many states a search visits that does not end.
const BOUND: usize = 100_000;
/// How many in a long run.
const SOAK: usize = 40_000_000;

/// Explores, demands that no property is violated, and heals some of the last states. Returns the number of states.
fn explored(setup: Setup, most: usize) -> Outcome {
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
fn exhaust(setup: Setup, answered: (usize, usize)) {
    let outcome = explored(setup, 6_000_000);
    assert!(outcome.exhausted, "more than {} states", outcome.states);
    assert_eq!(outcome.answered, answered);
}

fn is_soak() -> bool {
    std::env::var_os("ANABRANCH_SOAK").is_some()
}

/// The same in a long run; else the states closest to the beginning hold.
fn exhaust_in_soak(setup: Setup, answered: (usize, usize)) {
    if is_soak() {
        exhaust(setup, answered);
    } else {
        explored(setup, BOUND);
    }
}

/// The states closest to the beginning hold.
fn visit(setup: Setup) {
    explored(setup, if is_soak() { SOAK } else { BOUND });
}

#[test]
fn results_survive_a_view_change() {
    exhaust(a_view_change(), (1, 0));
}

#[test]
fn results_survive_a_restart() {
    exhaust(restart(), (1, 0));
}

#[test]
fn results_survive_a_replica_that_forgot() {
    exhaust(amnesia(), (1, 0));
}

#[test]
fn outcomes_survive_two_view_changes() {
    exhaust_in_soak(two_view_changes(), (1, 0));
}

#[test]
fn a_coordinator_and_a_backup_coordinator_agree() {
    exhaust(one_backup(), (1, 1));
}

#[test]
fn two_backup_coordinators_agree() {
    visit(two_backups());
}

#[test]
fn a_recovery_survives_a_view_change() {
    exhaust_in_soak(backup_and_view(), (0, 0));
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
fn stamps_do_not_run_against_real_time() {
    exhaust_in_soak(inversion(), (3, 2));
}

#[test]
fn stamps_do_not_run_against_real_time_whatever_the_quorums() {
    let mut states = 0;
    for quorums in choices_of_quorums() {
        let outcome = explore(inversion_over(quorums), 3_000_000);
        assert_eq!(outcome.violation, None, "{quorums:?}");
        assert!(outcome.exhausted, "{quorums:?}: more than {} states", outcome.states);
        assert_eq!(outcome.answered, (3, 2), "each can commit, and both that conflict can be refused");
        states += outcome.states;
    }
    println!("{states} states, all");
}

#[test]
fn validation_that_trusts_stamps_is_caught_over_some_quorums() {
    let caught = choices_of_quorums().any(|quorums| {
        let mut setup = inversion_over(quorums);
        setup.options.mutants = Mutant::TrustStamps.into();
        explore(setup, 300_000).violation.is_some()
    });
    assert!(caught, "the model sees what Corrections 1 warns of");
}

#[test]
fn quorum_reads_are_linearizable() {
    exhaust(quorum_reads(), (3, 3));
}

#[test]
fn an_observer_closes_its_base_over_blind_increments() {
    exhaust(blind_increments(), (3, 2));
}

#[test]
fn a_transaction_over_two_shards_commits() {
    exhaust(two_shards_alive(), (1, 0));
}

#[test]
fn a_transaction_over_two_shards_ends_on_both_alike() {
    // Nobody is left to be answered.
    exhaust_in_soak(two_shards(), (0, 0));
}

/// One replica of each shard is down: f = 1 has happened, and whatever else may happen is visited.
#[test]
fn nothing_is_lost_with_a_replica_down() {
    exhaust(two_view_changes_and_a_crash(), (1, 0));
    exhaust(quorum_reads_and_a_crash(), (3, 3));
    exhaust(blind_increments_and_a_crash(), (3, 2));
}

#[test]
fn the_transaction_of_a_dead_coordinator_ends_with_a_replica_down() {
    // Nobody is left to be answered.
    exhaust(two_backups_and_a_crash(), (0, 0));
    exhaust(backup_and_view_and_a_crash(), (0, 0));
    exhaust(two_shards_and_a_crash(), (0, 0));
}

#[test]
fn write_skew_does_not_happen_over_two_shards() {
    exhaust_in_soak(write_skew_over_two_shards(), (2, 2));
}

#[test]
fn one_of_two_transactions_is_left_by_its_coordinator() {
    visit(two_transactions_and_a_crash());
}

/// With names and without: the same number of states, where those that differ in names are counted again.
#[test]
fn replicas_that_are_alike_count_once() {
    for setup in [two_shards_alive(), two_increments(), write_skew(), in_turn()] {
        let whole = explore_with(setup.clone(), 3_000_000, false);
        let reduced = explore(setup, 3_000_000);
        assert!(whole.exhausted && reduced.exhausted);
        println!("{} of {}", reduced.states, whole.states);
        assert_eq!((reduced.named, reduced.answered), (whole.states, whole.answered));
    }
}

#[test]
fn one_of_two_transactions_that_meet_at_one_shard_is_left_by_its_coordinator() {
    for shard in [0, 1] {
        for acts in [&[Act::Get][..], &[Act::Set(2)], &[Act::Increment]] {
            exhaust_in_soak(another_at_one_shard(shard, acts), (1, 1));
        }
    }
}
