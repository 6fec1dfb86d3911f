//! The journal against its model: every synced group is there, what is recovered is a prefix of what was written and
//! whole, and what was cut never comes back.

mod common;

use anabranch_journal::{LogOptions, RecoveryOptions};
use common::{check, options, scenarios};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestError, TestRunner};

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
    let options = LogOptions { recovery: RecoveryOptions { accept_torn_groups: true }, ..options() };
    let outcome = runner.run(&scenarios(), |ops| check(&ops, &options).map_err(TestCaseError::fail));
    assert!(matches!(outcome, Err(TestError::Fail(..))), "the mutant survived: {outcome:?}");
}
