//! Merging (TARDiS 5.1, 6.2): which keys conflict between heads, over which fork points, and what their values become.

mod delta;
mod lens;
mod list;
mod plan;
mod value;

pub(crate) use delta::effects_between;
pub(crate) use plan::Plan;
pub use value::{Clash, Policy, Side, three_way};

use crate::changes::Written;
use crate::dag::{Dag, Label, Node, SeenBy, Spread};
use mvcc::CompactKey;
use smallvec::{SmallVec, smallvec};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

type HashMap<K, V> = hashbrown::HashMap<K, V, foldhash::quality::FixedState>;

/// What the same of several heads see of a key that other ones do not see.
#[derive(Clone, Debug)]
pub(crate) struct Changed {
    /// Who.
    pub seen: Arc<SeenBy>,
    /// What of the key was changed.
    pub written: Written,
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
            let (by, label) = (notes.number(seen), dag.versions(*state));
            for (key, written) in dag.writes(*state).each() {
                match notes.note(key, by, written, label) {
                    true => dag.meter().keys(1),
                    false => dag.meter().lookups(2),
                }
            }
        }
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
    /// Where a key is in `keys`.
    places: HashMap<&'d CompactKey, usize>,
    keys: Vec<(&'d CompactKey, SmallVec<[Noted<'d>; 2]>)>,
}

struct Noted<'d> {
    by: u32,
    /// The most recent first.
    written: SmallVec<[&'d Written; 1]>,
    newest: Label,
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

    /// A state has changed a key, of which no newer state is noted later. True if it is the first to have done so of what the same
    /// heads see.
    fn note(&mut self, key: &'d CompactKey, by: u32, written: &'d Written, newest: Label) -> bool {
        let place = *self.places.entry(key).or_insert_with(|| {
            self.keys.push((key, SmallVec::new()));
            self.keys.len() - 1
        });
        let known = &mut self.keys[place].1;
        let noted = known.iter_mut().find(|noted| noted.by == by);
        let is_first = noted.is_none();
        match noted {
            Some(noted) => noted.written.push(written),
            None => known.push(Noted { by, written: smallvec![written], newest }),
        }
        is_first
    }

    fn changes(&self) -> Changes {
        let changed = |noted: &Noted<'_>| {
            let written = Written::all(&noted.written)?;
            Some(Changed { seen: self.seen[noted.by as usize].clone(), written, newest: Some(noted.newest) })
        };
        let of_key = |(key, known): &(&CompactKey, SmallVec<_>)| {
            ((*key).clone(), known.iter().filter_map(changed).collect())
        };
        self.keys.iter().map(of_key).collect()
    }
}

/// The keys that two of these states changed independently of each other (`findConflictWrites`): whoever merges the
/// states has to write them.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> BTreeSet<CompactKey> {
    Parting::of(dag, heads).conflicting
}
