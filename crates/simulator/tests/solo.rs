//! The embedded default under crashes, power cuts and failing disks.

use crate::mistakes::{self, Bug};
use crate::scripts::assert_passes;
use crate::support::{assert_keeps_its_promise, options};
use anabranch_simulator::{Feature, Mutant, Options, SoloDeployment, run};

#[test]
fn effects_that_the_disk_refused_and_that_are_not_undone_are_caught() {
    let mutant = Mutant::UndoLeftOut;
    let bug = Bug::new("solo", mutant, &[], 40..=99).of_world(mutant.into());
    mistakes::assert_caught(&bug, (), |()| SoloDeployment);
}

/// The log, which had refused a group, was tried again, and that sync failed: the process ends, as after any failed sync.
#[test]
fn a_sync_that_fails_as_the_log_heals_ends_the_process() {
    assert_passes(include_bytes!("scripts/solo-sync-fails-as-the-log-heals.jsonl"), 9);
}

/// A checkpoint is due while the log is suspended: the process lives on, and only a retry heals the log.
#[test]
fn a_checkpoint_of_a_suspended_log_ends_no_process() {
    assert_passes(include_bytes!("scripts/solo-checkpoint-of-a-suspended-log.jsonl"), 9);
}

const DAMAGES: [Feature; 3] = [Feature::FlippedBits, Feature::ZeroedTails, Feature::LostSegments];

#[test]
fn a_damaged_disk_is_refused_or_whole() {
    let options = Options { with: DAMAGES.to_vec(), ..options(1, 20) };
    assert_keeps_its_promise("solo", &options);
}

#[test]
fn a_recovery_that_ignores_the_marks_is_caught() {
    let mutant = Mutant::IgnoredMarks;
    let bug = Bug::new("solo", mutant, &DAMAGES, 1..=39).of_world(mutant.into());
    mistakes::assert_caught(&bug, (), |()| SoloDeployment);
}

#[test]
fn an_unknown_name_is_refused_with_the_known_ones() {
    let refused = run("paxos", &options(1, 1)).unwrap_err();
    assert!(refused.to_string().contains("solo"), "{refused}");
}
