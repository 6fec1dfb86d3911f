//! What the tests of all protocols share.

use anabranch_simulator::{Options, Summary, run};

/// How many times as many seeds a soak runs.
const SOAK: u64 = 20;

/// How long traffic lasts where nobody soaks, in microseconds of virtual time.
const BRIEF: u64 = 3_000_000;

/// Whether `cargo xtask soak` runs these tests, with more of everything.
pub fn soaks() -> bool {
    std::env::var_os("ANABRANCH_SOAK").is_some()
}

/// One seed, run once and not for long: `cargo xtask test sim` explores others. `cargo xtask soak` runs twenty times as many
/// as this names, to their end.
pub fn options(first_seed: u64, seeds: u64) -> Options {
    Options { traffic: (!soaks()).then_some(BRIEF), ..whole(first_seed, seeds) }
}

/// The same, to its end.
pub fn whole(first_seed: u64, seeds: u64) -> Options {
    let seeds = if soaks() && seeds > 1 { seeds * SOAK } else { 1 };
    Options { first_seed, seeds, once: true, ..Options::default() }
}

/// Runs a protocol: it keeps its promise, and its clients get on.
pub fn assert_keeps_its_promise(protocol: &str, options: &Options) {
    assert_clean(&run(protocol, options).expect("a known protocol"));
}

/// No promise was broken, and clients got on.
pub fn assert_clean(summary: &Summary) {
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}
