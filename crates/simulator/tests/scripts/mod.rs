//! Scripts of bugs that were found, here as files.

use anabranch_simulator::{Script, replay};

/// The script shows no longer what it showed, and runs so many transactions.
#[track_caller]
pub fn assert_passes(script: &[u8], transactions: u64) {
    let summary = replay(&Script::read(script).expect("a script"), false).expect("a protocol");
    assert!(summary.failures.is_empty() && summary.undecided == 0, "{:#?}", summary.failures);
    assert_eq!(summary.transactions, transactions);
}
