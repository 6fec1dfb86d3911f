//! COPS and COPS-GT with copies of their partitions in the simulator: they keep their promises.

use crate::support::{assert_clean, assert_keeps_its_promise, options};
use anabranch_simulator::{Feature, Options, run};

#[test]
fn cops_keeps_its_promise() {
    assert_keeps_its_promise("cops-copies", &options(1, 3));
}

#[test]
fn cops_gt_keeps_its_promise() {
    assert_keeps_its_promise("cops-gt-copies", &options(1, 3));
}

#[test]
fn a_minority_loses_its_disks_and_nothing_is_lost() {
    let options = Options { with: vec![Feature::LostDisks, Feature::Kills], ..options(2, 3) };
    assert_clean(&run("cops-copies", &options).unwrap());
}
