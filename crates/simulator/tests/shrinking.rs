//! A failing seed becomes a short script that still shows why.

use anabranch_simulator::{Mutants, Options, Script, TapirDeployment, TardisDeployment, run_script, shrink};
use strict::{Mutant, tapir};

#[test]
fn a_failing_seed_is_shrunk_to_a_short_script() {
    let build = || TapirDeployment {
        options: tapir::Options { mutants: Mutant::CommitWithoutEffects.into(), ..tapir::Options::default() },
        ..TapirDeployment::default()
    };
    let shrunk = (1..20).find_map(|seed| {
        let script = Script::draw("tapir", &build(), seed, &[]);
        shrink(script, Mutants::default(), 300, build)
    });
    let shrunk = shrunk.expect("the mutant is caught within 20 seeds");
    let (faults, transactions) = (shrunk.script.faults(), shrunk.script.transactions());
    assert!(faults <= 3 && faults <= shrunk.before.0, "{faults} of {} faults", shrunk.before.0);
    assert!(transactions * 5 <= shrunk.before.1, "{transactions} of {} transactions", shrunk.before.1);
    assert!(!shrunk.violations.is_empty());

    // The file says the same.
    let text = shrunk.script.lines().join("\n");
    let again = shrink(Script::read(text.as_bytes()).unwrap(), Mutants::default(), 1, build).unwrap();
    assert_eq!(again.violations, shrunk.violations);
}

/// Half a minute of simulated forks.
mod soak {
    use super::*;

    #[test]
    fn a_seed_that_panics_is_shrunk_to_a_script_that_panics() {
        let mutants = branch::Mutant::ForgetMeanwhile.into();
        let build = || TardisDeployment {
            options: branch::site::Options { mutants, ..Default::default() },
            ..TardisDeployment::forking()
        };
        let panics = |script: &Script| {
            let options = Options { once: true, ..Options::default() };
            let failures = run_script(script, &options, build).failures;
            failures.iter().flat_map(|failure| &failure.violations).any(|v| v.message.starts_with("panicked"))
        };
        let draw = |seed| Script::draw("tardis-forking", &build(), seed, &[]);
        let script = (1..20).map(draw).find(panics).expect("some seed panics");
        let shrunk = shrink(script, Mutants::default(), 12, build).expect("it panics");
        let (transactions, before) = (shrunk.script.transactions(), shrunk.before.1);
        assert!(transactions > 0 && transactions < before, "{transactions} of {before} transactions");
        let text = shrunk.script.lines().join("\n");
        assert!(panics(&Script::read(text.as_bytes()).unwrap()));
    }
}
