//! How tests look for seeds that show a mistake.

use std::fmt::Debug;
use std::ops::RangeInclusive;

/// Tries one seed after the other until one shows a mistake. The ranges of the tests begin with a seed that did when they were
/// measured, so that a run is short; when a change draws other features, the others are there, and the range is to be moved.
#[track_caller]
pub fn assert_shown(seeds: RangeInclusive<u64>, mistake: impl Debug, shows: impl Fn(u64) -> bool) {
    let shown = seeds.clone().find(|seed| shows(*seed));
    let Some(shown) = shown else { panic!("{mistake:?}: not caught by seeds {seeds:?}") };
    if shown != *seeds.start() {
        println!("{}: {mistake:?} is caught by seed {shown}", std::panic::Location::caller());
    }
}
