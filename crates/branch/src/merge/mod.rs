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
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};

/// Which of some states see a state, a bit for each.
type Seen = SmallVec<[u64; 2]>;

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
///
/// A key is in conflict exactly if two states wrote it of which each is seen by a head that does not see the other. So every
/// state is looked at once, however many heads there are.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    let mut written: BTreeMap<&CompactKey, Vec<Seen>> = BTreeMap::new();
    dag.ascend(heads, |state| {
        let mut seen: Seen = smallvec![0; heads.len().div_ceil(64)];
        for (place, head) in heads.iter().enumerate() {
            seen[place / 64] |= u64::from(dag.sees(state, *head)) << (place % 64);
        }
        let is_common = count(&seen) == heads.len();
        if !is_common {
            for (key, _) in dag.writes(state).iter() {
                let writers = written.entry(key).or_default();
                if !writers.contains(&seen) {
                    writers.push(seen.clone());
                }
            }
        }
        !is_common
    });
    let are_independent = |writers: &mut Vec<Seen>| {
        writers.sort_by_key(count);
        writers.windows(2).any(|pair| pair[0].iter().zip(&pair[1]).any(|(few, many)| few & !many != 0))
    };
    let conflicting =
        written.into_iter().filter_map(|(key, mut writers)| are_independent(&mut writers).then_some(key));
    conflicting.cloned().collect()
}

fn count(seen: &Seen) -> usize {
    seen.iter().map(|bits| bits.count_ones() as usize).sum()
}
