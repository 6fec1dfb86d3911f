//! PaRiS in the simulator: it keeps its promise.

use anabranch_simulator::{Options, run};

#[test]
fn paris_is_transactionally_causal() {
    let summary = run("paris", &Options { first_seed: 1, seeds: 30, ..Options::default() }).unwrap();
    assert!(summary.failures.is_empty(), "{:#?}", summary.failures);
    assert!(
        summary.committed > 20 * summary.seeds,
        "{} of {} committed",
        summary.committed,
        summary.transactions
    );
}
