//! The journal against its model: every synced group is there, what is recovered is a prefix of what was written and
//! whole, and what was cut never comes back.

use crate::common::{check, open, options, scenarios};
use anabranch_journal::{Log, LogOptions, Mutant, SimulatedDisk};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};
use types::Rng;

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn survives_crashes_and_faults(ops in scenarios()) {
        check(&ops, &options()).map_err(TestCaseError::fail)?;
    }

    #[test]
    fn survives_them_with_the_previous_checkpoint_retained(ops in scenarios()) {
        let options = LogOptions { retain_previous_checkpoint: true, ..options() };
        check(&ops, &options).map_err(TestCaseError::fail)?;
    }
}

/// The harness is tested too: a recovery that takes torn groups is caught.
#[test]
fn a_torn_group_accepted_is_caught() {
    let config = Config { cases: 600, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new(config);
    let options = LogOptions { mutants: Mutant::TornGroups.into(), ..options() };
    let outcome = runner.run(&scenarios(), |ops| check(&ops, &options).map_err(TestCaseError::fail));
    assert!(matches!(outcome, Err(TestError::Fail(..))), "the mutant survived: {outcome:?}");
}

/// A recovery that dies at any of its steps, with the power, neither loses what was synced nor spoils the next one.
#[test]
fn a_recovery_may_die_at_every_step() {
    for step in 0..32 {
        for seed in 0..60 {
            let disk = SimulatedDisk::new();
            let mut log = open(&disk, &options()).expect("a new log").log;
            for group in 0..3u8 {
                log.append(&[group; 5000]).expect("an open log");
                if group == 0 { log.sync_now().map(drop) } else { log.write_out().map(drop) }
                    .expect("a good disk");
            }
            let mount = disk.mount();
            disk.kill_after(step);
            let survived = Log::open(mount, &options(), &mut |_| Ok(())).is_ok();
            disk.crash(&mut Rng::with_seed(seed));
            let opened =
                open(&disk, &options()).unwrap_or_else(|error| panic!("step {step}, seed {seed}: {error}"));
            let found = opened.groups.len();
            assert!(found >= if survived { 3 } else { 1 }, "step {step}, seed {seed}: {found} groups");
        }
    }
}
