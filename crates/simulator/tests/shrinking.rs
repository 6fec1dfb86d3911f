//! A failing seed becomes a short script that still shows why.

use anabranch_simulator::{Mutants, Script, TapirDeployment, shrink};
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
