//! The embedded default under crashes, power cuts and failing disks.

use anabranch_simulator::{Mutants, Options, run};

fn options(seeds: u64, mutants: Mutants) -> Options {
    Options { first_seed: 1, seeds, mutants, ..Options::default() }
}

#[test]
fn solo_is_strictly_serializable() {
    let summary = run("solo", &options(30, Mutants::default())).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}

#[test]
fn effects_that_the_disk_refused_and_that_are_not_undone_are_caught() {
    let mutants = Mutants { undo_left_out: true, ..Mutants::default() };
    let caught = (40..100).any(|seed| {
        let options = Options { first_seed: seed, ..options(1, mutants) };
        !run("solo", &options).unwrap().failures.is_empty()
    });
    assert!(caught, "not caught in 60 seeds");
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let refused = run("paxos", &options(1, Mutants::default())).unwrap_err();
    assert!(refused.to_string().contains("solo"), "{refused}");
}
