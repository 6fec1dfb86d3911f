//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod list;
mod plan;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use plan::Plan;
pub use value::{Clash, Policy, Side, three_way};

use crate::dag::{Dag, Node};
use mvcc::CompactKey;
use std::collections::BTreeSet;

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    let mut conflicting = BTreeSet::new();
    for (place, a) in heads.iter().enumerate() {
        for b in &heads[place + 1..] {
            let written = |of: Node, but: Node| -> BTreeSet<CompactKey> {
                let states = dag.beyond(&[of], &[but]);
                states
                    .iter()
                    .flat_map(|state| dag.writes(*state).iter())
                    .map(|(key, _)| key.clone())
                    .collect()
            };
            let (left, right) = (written(*a, *b), written(*b, *a));
            conflicting.extend(left.intersection(&right).cloned());
        }
    }
    conflicting
}
