//! POCC with copies of its partitions in the simulator: it keeps its promise.

use crate::support::{assert_clean, assert_keeps_its_promise, options};
use anabranch_simulator::{Feature, Options, run};

#[test]
fn it_keeps_its_promise() {
    assert_keeps_its_promise("pocc-copies", &options(1, 3));
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(2, 3) };
    assert_clean(&run("pocc-copies", &options).unwrap());
}
