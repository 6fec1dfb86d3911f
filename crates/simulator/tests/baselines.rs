//! The baselines of Wren, PaRiS and COPS in the simulator: they keep their promises, and mistakes in what sets them apart are
//! caught.

use crate::mistakes::{self, Bug};
use crate::support::{assert_clean, assert_keeps_its_promise, options};
use anabranch_simulator::{CausalDeployment, Checked, CopsDeployment, run_seeds};
use baselines::{Blocking, Cure, HybridCure};
use causal::cops;
use causal::stable::{self, Mutant, Mutants};
use std::ops::RangeInclusive;

#[track_caller]
fn assert_caught<S: Checked>(name: &str, seeds: RangeInclusive<u64>, mutant: Mutant) {
    mistakes::assert_caught(&Bug::new(name, mutant, &[], seeds), Mutants::from(mutant), |mutants| {
        CausalDeployment::<S>::new(stable::Options { mutants, ..stable::Options::default() })
    });
}

#[test]
fn a_read_of_what_is_not_installed_is_caught() {
    let mutant = Mutant::ReadNotInstalled;
    assert_caught::<Cure>("cure", 4..=23, mutant);
    assert_caught::<HybridCure>("h-cure", 4..=23, mutant);
    assert_caught::<Blocking>("bpr", 4..=23, mutant);
}

/// Without its vector an effect is shown before what it depends on.
#[test]
fn an_effect_shown_without_what_it_depends_on_is_caught() {
    assert_caught::<HybridCure>("h-cure", 11..=70, Mutant::DependsOnNothing);
}

#[test]
fn a_forgotten_bound_is_caught() {
    assert_caught::<Cure>("cure", 12..=61, Mutant::BoundNotRemembered);
}

/// As in the code that the thesis measured, where what commits is read from the next application on.
#[test]
fn reads_that_wait_for_applications_keep_the_promise_too() {
    fn assert_promises<S: Checked>(name: &str) {
        let applied = stable::Options { applied_reads: true, ..stable::Options::default() };
        let summary = run_seeds(name, &options(11, 2), || CausalDeployment::<S>::new(applied));
        assert_clean(&summary);
    }
    assert_promises::<Cure>("cure");
    assert_promises::<HybridCure>("h-cure");
    assert_promises::<Blocking>("bpr");
}

/// A long run.
mod soak {
    use super::*;

    /// LOG has seeds that take minutes.
    #[test]
    fn log_keeps_its_promise() {
        assert_keeps_its_promise("log", &options(1, 4));
    }

    /// A log goes on before what it lacks of a third region's.
    #[test]
    fn a_log_without_its_order_is_caught() {
        let mutant = cops::Mutant::ChecksSkipped;
        mistakes::assert_caught(
            &Bug::new("log", mutant, &[], 1..=40),
            cops::Mutants::from(mutant),
            |mutants| {
                let usual = cops::Options { conflict_bytes: 0, ..cops::Options::default() };
                CopsDeployment::new(cops::Options { serialized: true, mutants, ..usual })
            },
        );
    }

    /// The simulator's: what a dead gateway's transaction did was replicated with the state, and no claim names it.
    #[test]
    fn what_is_replicated_with_the_state_is_known() {
        assert_keeps_its_promise("cure", &options(1_000_013, 1));
    }
}
