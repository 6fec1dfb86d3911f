//! COPS and COPS-GT in the simulator: they keep their promises, and their known bugs are caught.

use crate::mistakes::{self, Bug};
use crate::support::{assert_keeps_its_promise, options};
use anabranch_simulator::{CopsDeployment, Feature, Layout, Script, run, simulate};
use causal::cops::{Mutant, Mutants, Options};
use serde_json::json;
use std::collections::BTreeSet;
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught(protocol: &str, with: &[Feature], seeds: RangeInclusive<u64>, mutant: Mutant) {
    let transactions = protocol == "cops-gt";
    mistakes::assert_caught(&Bug::new(protocol, mutant, with, seeds), Mutants::from(mutant), |mutants| {
        CopsDeployment::new(Options { transactions, mutants, ..Options::default() })
    });
}

#[test]
fn cops_keeps_its_promise() {
    assert_keeps_its_promise("cops", &options(1, 8));
}

#[test]
fn cops_gt_keeps_its_promise() {
    assert_keeps_its_promise("cops-gt", &options(1, 8));
}

#[test]
fn cops_cd_keeps_its_promise() {
    assert_keeps_its_promise("cops-cd", &options(1, 8));
}

/// Section 5.2 (Corrections 36, 48): survivors forward what they have of the region.
#[test]
fn a_region_is_lost_and_the_others_go_on() {
    for protocol in ["cops", "cops-gt"] {
        let with = vec![Feature::Eviction, Feature::Partitions];
        let summary = run(protocol, &anabranch_simulator::Options { with, ..options(1, 3) }).unwrap();
        assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    }
}

/// A region is lost, and a survivor loses power when it has the eviction and may not have synced it: the eviction is
/// sent again.
#[test]
fn a_survivor_that_forgets_the_eviction_gets_it_again() {
    for step in 0..4 {
        let mut script = Script::draw("cops", &CopsDeployment::default(), 3, &[]);
        let layout =
            Layout { regions: 2, partitions: 1, replicas: 1, one_partition_each: true, ..Layout::default() };
        script.layout = Layout { colocated: true, ..layout };
        (script.swarm.features, script.swarm.sync, script.traffic) = (BTreeSet::new(), 100_000, 2_000_000);
        let fault = |at: u64, fault: serde_json::Value| json!({ "at": at, "fault": fault }).to_string();
        let power_cut = json!({ "process": 0, "down": 50_000, "after_write": false });
        let faults = [
            fault(1_000_000, json!({ "lose-region": { "region": 1, "apart": 0, "after": 100_000 } })),
            fault(1_110_000 + 20_000 * step, json!({ "power-cut": power_cut })),
        ];
        script.set_faults(&faults).expect("faults");
        let run = simulate(CopsDeployment::default(), &script, Default::default(), false);
        assert!(run.report.ok, "at step {step}: {:#?}", run.report.violations);
    }
}

/// Section 4.4: a write is shown before what it depends on.
#[test]
fn cops_without_dependency_checks_is_caught() {
    assert_caught("cops", &[], 1..=40, Mutant::ChecksSkipped);
}

/// Section 4.3: what a session reads, its writes depend on.
#[test]
fn cops_without_dependencies_of_reads_is_caught() {
    assert_caught("cops", &[], 1..=40, Mutant::ReadsNotTracked);
}

/// Corrections 45: another region's version counts for the one that is depended on.
#[test]
fn cops_with_checks_by_version_is_caught() {
    assert_caught("cops", &[], 1..=40, Mutant::CheckByVersion);
}

/// Section 4.6: what is read together does not belong together.
#[test]
fn cops_gt_with_one_round_is_caught() {
    assert_caught("cops-gt", &[], 1..=40, Mutant::OneRound);
}

/// Corrections 49: a repeated put is written again.
#[test]
fn cops_that_writes_twice_is_caught() {
    assert_caught("cops", &[], 1..=40, Mutant::WrittenTwice);
}
