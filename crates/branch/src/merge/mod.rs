//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod list;
mod plan;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use plan::Plan;
pub use value::{Clash, Policy, Side, three_way};

use crate::dag::{Dag, Node, SeenBy};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
///
/// A key is in conflict exactly if two states wrote it of which each is seen by a head that does not see the other. So every
/// state is looked at once, however many heads there are.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    let spread = dag.spread(heads);
    let mut written: BTreeMap<&CompactKey, Vec<&SeenBy>> = BTreeMap::new();
    for (state, seen) in &spread.apart {
        dag.meter().keys(dag.writes(*state).len());
        for (key, _) in dag.writes(*state).iter() {
            let writers = written.entry(key).or_default();
            if !writers.contains(&seen) {
                writers.push(seen);
            }
        }
    }
    let are_independent = |writers: &mut Vec<&SeenBy>| {
        writers.sort_by_key(|seen| seen.count());
        writers.windows(2).any(|pair| pair[0].exceeds(pair[1]))
    };
    let conflicting =
        written.into_iter().filter_map(|(key, mut writers)| are_independent(&mut writers).then_some(key));
    conflicting.cloned().collect()
}
