//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod list;
mod plan;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use plan::Plan;
pub use value::{Clash, Policy, Side, three_way};

use crate::Change;
use crate::dag::{Dag, Node, SeenBy, Spread};
use mvcc::CompactKey;
use std::collections::{BTreeMap, BTreeSet};

/// Of keys who sees the changes that not all see, and how they changed the key.
pub(crate) type Changes = BTreeMap<CompactKey, Vec<(SeenBy, Change)>>;

/// What some heads saw and did apart from one another.
#[derive(Debug)]
pub(crate) struct Parting {
    pub spread: Spread,
    pub changes: Changes,
    /// The keys that two of them changed independently.
    pub conflicting: BTreeSet<CompactKey>,
}

impl Parting {
    /// A key is in conflict exactly if two states wrote it of which each is seen by a head that does not see the other. So
    /// every state is looked at once, however many heads there are.
    pub fn of(dag: &Dag, heads: &[Node]) -> Self {
        let spread = dag.spread(heads);
        let mut changes = Changes::new();
        for (state, seen) in &spread.apart {
            dag.meter().keys(dag.writes(*state).len());
            for (key, change) in dag.writes(*state).iter() {
                note(&mut changes, key, seen, change);
            }
        }
        let are_independent = |writers: &mut Vec<(SeenBy, Change)>| {
            writers.sort_by_key(|(seen, _)| seen.count());
            writers.windows(2).any(|pair| pair[0].0.exceeds(&pair[1].0))
        };
        let conflicting =
            changes.iter_mut().filter_map(|(key, writers)| are_independent(writers).then_some(key));
        let conflicting = conflicting.cloned().collect();
        Parting { spread, changes, conflicting }
    }
}

/// A state that these see has changed a key.
fn note(changes: &mut Changes, key: &CompactKey, seen: &SeenBy, change: Change) {
    let Some(known) = changes.get_mut(key) else {
        changes.insert(key.clone(), vec![(seen.clone(), change)]);
        return;
    };
    match known.iter_mut().find(|(by, _)| by == seen) {
        Some((_, before)) => *before = before.and(change),
        None => known.push((seen.clone(), change)),
    }
}

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    Parting::of(dag, heads).conflicting
}
