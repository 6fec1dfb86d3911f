//! The models, and those of them that take about a second at most.

use crate::model::explore::{Outcome, explore};
use crate::model::setup::{Act, Setup};

/// One region, two partitions: a transaction that writes both, one that reads both.
pub fn a_writer_and_a_reader() -> Setup {
    Setup::new(1, 2).with(0, Act::Write(1), &[0, 1]).with(0, Act::Read, &[0, 1])
}

/// The same, and the clocks go on.
pub fn a_writer_and_a_reader_with_clocks() -> Setup {
    Setup { walls: vec![vec![0, 5], vec![0, 5]], ..a_writer_and_a_reader() }
}

/// Two transactions that write both partitions.
pub fn two_writers_and_a_reader() -> Setup {
    Setup::new(1, 2).with(0, Act::Write(1), &[0, 1]).with(0, Act::Write(2), &[0, 1]).with(
        0,
        Act::Read,
        &[0, 1],
    )
}

/// The same, and the clocks go on, one further than the other.
pub fn two_writers_and_a_reader_with_clocks() -> Setup {
    Setup { walls: vec![vec![0, 5], vec![0, 7]], ..two_writers_and_a_reader() }
}

/// The coordinator of the transaction that writes may die, and participants look for what is in doubt whenever they like.
pub fn a_dead_coordinator() -> Setup {
    Setup { mortal: 1, doubts: true, ..a_writer_and_a_reader() }
}

/// The same beside another transaction.
pub fn a_dead_coordinator_and_another_writer() -> Setup {
    Setup { mortal: 1, doubts: true, ..two_writers_and_a_reader() }
}

/// A partition restarts with its log.
pub fn a_restart() -> Setup {
    Setup { restarts: 1, ..a_writer_and_a_reader() }
}

/// A partition restarts, and the coordinator dies.
pub fn a_restart_and_a_dead_coordinator() -> Setup {
    Setup { restarts: 1, ..a_dead_coordinator() }
}

/// Two regions, one partition: both regions write its key, and one reads it.
pub fn two_regions() -> Setup {
    Setup::new(2, 1).with(0, Act::Write(1), &[0]).with(1, Act::Write(2), &[0]).with(1, Act::Read, &[0])
}

/// The same, and the clock of one region goes on.
pub fn two_regions_with_a_clock() -> Setup {
    Setup { walls: vec![vec![0, 5], vec![0]], ..two_regions() }
}

/// One region writes, and a partition restarts.
pub fn two_regions_and_a_restart() -> Setup {
    Setup { restarts: 1, ..Setup::new(2, 1).with(0, Act::Write(1), &[0]).with(1, Act::Read, &[0]) }
}

/// Both regions write, and a partition restarts.
pub fn two_writing_regions_and_a_restart() -> Setup {
    Setup { restarts: 1, ..two_regions() }
}

/// Two regions of two partitions: one writes both keys, the other reads them.
pub fn two_regions_of_two_partitions() -> Setup {
    Setup::new(2, 2).with(0, Act::Write(1), &[0, 1]).with(1, Act::Read, &[0, 1])
}

/// One region, three partitions that stand below one another in the stabilization tree: a transaction that writes the first and the
/// last, one that reads both.
pub fn a_chain_of_partitions() -> Setup {
    let mut setup = Setup::new(1, 3).with(0, Act::Write(1), &[0, 2]).with(0, Act::Read, &[0, 2]);
    setup.options.fan_out = 1;
    setup
}

/// The same, and one of them restarts.
pub fn a_chain_and_a_restart() -> Setup {
    Setup { restarts: 1, ..a_chain_of_partitions() }
}

/// Explores, demands that no property is violated, and lets some of the last states come to rest.
pub fn explored(setup: Setup, most: usize) -> Outcome {
    let requests = setup.requests.len();
    let outcome = explore(setup, most, 100);
    if let Some(violation) = &outcome.violation {
        panic!("{violation}");
    }
    println!(
        "{} states, {} of instances, {} came to rest, all {}",
        outcome.states, outcome.locals, outcome.healed, outcome.exhausted
    );
    assert_eq!(outcome.answered, requests, "each is answered, in some state all");
    outcome
}

/// Every state within the setup's bounds holds.
pub fn exhaust(setup: Setup) {
    let outcome = explored(setup, 1_000_000);
    assert!(outcome.exhausted, "more than {} states", outcome.states);
}

#[test]
fn a_region_counts_nothing_that_it_lacks() {
    exhaust(two_regions());
    exhaust(Setup { window: 2, ..two_regions() });
}
