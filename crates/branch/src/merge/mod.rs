//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod list;
mod plan;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use plan::Plan;
pub use value::{Clash, Policy, Side, three_way};

use crate::Change;
use crate::dag::{Dag, Label, Node, SeenBy, Spread};
use mvcc::CompactKey;
use smallvec::SmallVec;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type HashMap<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;

/// What the same of several heads see of a key that other ones do not see.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// Who.
    pub seen: Arc<SeenBy>,
    /// How the key was changed.
    pub change: Change,
    /// The label of the newest version of that, where it is known.
    pub newest: Option<Label>,
}

/// Of keys the changes that not all heads see.
pub(crate) type Changes = BTreeMap<CompactKey, Vec<Changed>>;

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
        let mut notes = Notes::default();
        for (state, seen) in &spread.apart {
            let writes = dag.writes(*state);
            dag.meter().lookups(2 * writes.len());
            let (by, label) = (notes.number(seen), dag.versions(*state));
            writes.iter().for_each(|(key, change)| notes.note(key, by, change, label));
        }
        dag.meter().keys(notes.keys.len());
        let mut changes = notes.changes();
        let are_independent = |writers: &mut Vec<Changed>| {
            writers.sort_by_key(|writer| writer.seen.count());
            writers.windows(2).any(|pair| pair[0].seen.exceeds(&pair[1].seen))
        };
        let conflicting =
            changes.iter_mut().filter_map(|(key, writers)| are_independent(writers).then_some(key));
        let conflicting = conflicting.cloned().collect();
        Parting { spread, changes, conflicting }
    }
}

/// Takes down who has changed which keys.
#[derive(Default)]
struct Notes<'d> {
    /// Who sees changes; what all of one number see is one.
    seen: Vec<Arc<SeenBy>>,
    numbers: HashMap<Arc<SeenBy>, u32>,
    keys: HashMap<&'d CompactKey, SmallVec<[(u32, Change, Label); 2]>>,
}

impl<'d> Notes<'d> {
    fn number(&mut self, seen: &SeenBy) -> u32 {
        if let Some(number) = self.numbers.get(seen) {
            return *number;
        }
        let (seen, number) = (Arc::new(seen.clone()), self.seen.len() as u32);
        self.seen.push(seen.clone());
        self.numbers.insert(seen, number);
        number
    }

    /// A state has changed a key, of which no newer state was noted.
    fn note(&mut self, key: &'d CompactKey, by: u32, change: Change, label: Label) {
        let known = self.keys.entry(key).or_default();
        match known.iter_mut().find(|(other, ..)| *other == by) {
            Some((_, before, _)) => *before = before.and(change),
            None => known.push((by, change, label)),
        }
    }

    fn changes(&self) -> Changes {
        let named = |(by, change, label): &(u32, Change, Label)| Changed {
            seen: self.seen[*by as usize].clone(),
            change: *change,
            newest: Some(*label),
        };
        let of_key =
            |(key, known): (&&CompactKey, &SmallVec<_>)| ((*key).clone(), known.iter().map(named).collect());
        self.keys.iter().map(of_key).collect()
    }
}

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    Parting::of(dag, heads).conflicting
}
