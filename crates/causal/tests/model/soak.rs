//! The models that take long: `cargo xtask soak models` explores them.

use crate::model::models::*;
use crate::model::setup::Setup;

/// How many states a search visits that does not end.
const MOST: usize = 4_000_000;

/// The states closest to the beginning hold.
fn visit(setup: Setup) {
    explored(setup, MOST);
}

#[test]
fn a_reader_sees_all_of_each_of_two_transactions_or_nothing() {
    exhaust(two_writers_and_a_reader());
    visit(two_writers_and_a_reader_with_clocks());
}

#[test]
fn a_reader_sees_no_half_of_what_a_dead_coordinator_left() {
    exhaust(a_dead_coordinator());
    visit(a_dead_coordinator_and_another_writer());
}

#[test]
fn a_restart_stamps_above_what_was_published() {
    exhaust(a_restart());
    visit(a_restart_and_a_dead_coordinator());
}

#[test]
fn a_reader_sees_all_of_a_transaction_or_nothing_however_deep_the_tree() {
    exhaust(a_chain_of_partitions());
    visit(a_chain_and_a_restart());
}

#[test]
fn a_region_counts_nothing_that_it_lacks_while_a_clock_goes_on() {
    exhaust(two_regions_with_a_clock());
}

#[test]
fn a_region_counts_nothing_that_it_lacks_whoever_restarts() {
    exhaust(two_regions_and_a_restart());
    visit(two_writing_regions_and_a_restart());
}

#[test]
fn another_region_sees_all_of_a_transaction_or_nothing() {
    visit(two_regions_of_two_partitions());
}

#[test]
fn a_reader_sees_all_of_a_transaction_or_nothing() {
    exhaust(a_writer_and_a_reader());
    exhaust(a_writer_and_a_reader_with_clocks());
}
