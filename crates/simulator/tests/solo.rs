//! The embedded default under crashes, power cuts and failing disks.

mod support;

use anabranch_simulator::{Mutant, Mutants, Options, run};
use support::assert_keeps_its_promise;

fn options(seeds: u64, mutants: Mutants) -> Options {
    Options { mutants, ..support::options(1, seeds) }
}

#[test]
fn solo_is_strictly_serializable() {
    assert_keeps_its_promise("solo", &options(10, Mutants::default()));
}

#[test]
fn effects_that_the_disk_refused_and_that_are_not_undone_are_caught() {
    let caught = (40..100).any(|seed| {
        let options = Options { first_seed: seed, ..options(1, Mutant::UndoLeftOut.into()) };
        !run("solo", &options).unwrap().failures.is_empty()
    });
    assert!(caught, "not caught in 60 seeds");
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let refused = run("paxos", &options(1, Mutants::default())).unwrap_err();
    assert!(refused.to_string().contains("solo"), "{refused}");
}
