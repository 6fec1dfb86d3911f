//! What the tests of all protocols share.

use anabranch_simulator::{Options, run};

/// So many seeds, from this one on, each once: `cargo xtask test sim` runs its seeds twice.
pub fn options(first_seed: u64, seeds: u64) -> Options {
    Options { first_seed, seeds, once: true, ..Options::default() }
}

/// Runs a protocol: it keeps its promise, and its clients get on.
pub fn assert_keeps_its_promise(protocol: &str, options: &Options) {
    let summary = run(protocol, options).expect("a known protocol");
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}
