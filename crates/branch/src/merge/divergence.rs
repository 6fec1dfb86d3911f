//! The divergence of heads: what only some of them see, what they changed, and which keys conflict for that reason.

use crate::changes::Written;
use crate::dag::{Dag, Label, Node, SeenBy, VisibilitySplit, VisibilitySplitter};
use mvcc::CompactKey;
use smallvec::{SmallVec, smallvec};
use std::collections::BTreeMap;
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

/// Of keys, in ascending order, the changes that not all heads see.
#[derive(Debug, Default)]
pub(crate) struct Changes(Vec<(CompactKey, Vec<Changed>)>);

impl Changes {
    /// Of a key; none, if all see the same of it.
    pub fn of(&self, key: &CompactKey) -> &[Changed] {
        self.0.binary_search_by(|(known, _)| known.cmp(key)).map_or(&[][..], |place| &self.0[place].1)
    }

    /// A key by its place, with its changes.
    pub fn at(&self, place: usize) -> Option<(&CompactKey, &[Changed])> {
        self.0.get(place).map(|(key, changed)| (key, &changed[..]))
    }

    /// How many keys there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Their keys, in ascending order.
    pub fn keys(&self) -> impl Iterator<Item = &CompactKey> {
        self.0.iter().map(|(key, _)| key)
    }

    /// Adds a key that is greater than all that are there.
    fn push(&mut self, key: CompactKey, changed: Vec<Changed>) {
        debug_assert!(self.0.last().is_none_or(|(last, _)| *last < key), "keys rise");
        self.0.push((key, changed));
    }
}

impl FromIterator<(CompactKey, Vec<Changed>)> for Changes {
    fn from_iter<I: IntoIterator<Item = (CompactKey, Vec<Changed>)>>(changes: I) -> Self {
        let mut all = Changes::default();
        changes.into_iter().for_each(|(key, changed)| all.push(key, changed));
        all
    }
}

/// The divergence of some heads: what only some of them see, and the conflicts that follow.
#[derive(Debug, Default)]
pub(crate) struct Divergence {
    pub visibility_split: VisibilitySplit,
    pub changes: Changes,
    /// The keys that two of them changed independently, in ascending order.
    pub conflicting: Vec<CompactKey>,
}

impl Divergence {
    /// Of these heads.
    pub fn of(dag: &Dag, heads: &[Node]) -> Self {
        let mut divergence_finder = DivergenceFinder::new(dag, heads);
        while divergence_finder.step(dag) {}
        divergence_finder.finish()
    }
}

/// Finds a [`Divergence`], a state or some keys at a time; what holds for [`VisibilitySplitter`] holds here.
///
/// A key is in conflict exactly if two states wrote it of which each is seen by a head that does not see the other. So every
/// state is looked at once, however many heads there are.
#[derive(Debug)]
pub(crate) struct DivergenceFinder {
    spreading: Option<VisibilitySplitter>,
    divergence: Divergence,
    /// How many of the states that are seen apart are taken down, and the last key of the next one that is.
    noted: usize,
    last: Option<CompactKey>,
    notes: Notes,
}

/// So many keys of a state are looked at at once.
const KEYS_AT_ONCE: usize = 64;

impl DivergenceFinder {
    /// Of these heads.
    pub fn new(dag: &Dag, heads: &[Node]) -> Self {
        DivergenceFinder {
            spreading: Some(VisibilitySplitter::new(dag, heads)),
            divergence: Divergence::default(),
            noted: 0,
            last: None,
            notes: Notes::default(),
        }
    }

    /// Goes on a little; false if all is known.
    pub fn step(&mut self, dag: &Dag) -> bool {
        if let Some(spreading) = &mut self.spreading {
            if spreading.step(dag) {
                return true;
            }
            self.divergence.visibility_split =
                self.spreading.take().map(|all| all.finish(dag)).unwrap_or_default();
        }
        if let Some((state, seen)) = self.divergence.visibility_split.divergent.get(self.noted) {
            let (by, label) = (self.notes.number(seen), dag.versions(*state));
            let (mut count, mut last) = (0, None);
            for (key, written) in dag.writes(*state).each_after(self.last.as_ref()).take(KEYS_AT_ONCE) {
                match self.notes.note(key, by, written, label) {
                    true => dag.meter().keys(1),
                    false => dag.meter().lookups(2),
                }
                (count, last) = (count + 1, Some(key));
            }
            let is_all = count < KEYS_AT_ONCE;
            self.last = last.filter(|_| !is_all).cloned();
            self.noted += usize::from(is_all);
            return true;
        }
        let Some((key, mut changed)) = self.notes.pop() else { return false };
        dag.meter().keys(changed.len());
        changed.sort_by_key(|changed| changed.seen.count());
        if changed.windows(2).any(|pair| pair[0].seen.exceeds(&pair[1].seen)) {
            self.divergence.conflicting.push(key.clone());
        }
        self.divergence.changes.push(key, changed);
        true
    }

    /// What was found.
    pub fn finish(self) -> Divergence {
        self.divergence
    }
}

/// Takes down who has changed which keys.
#[derive(Debug, Default)]
pub(super) struct Notes {
    /// The heads that see changes, deduplicated by number.
    seen: Vec<Arc<SeenBy>>,
    numbers: HashMap<Arc<SeenBy>, u32>,
    keys: BTreeMap<CompactKey, SmallVec<[Noted; 1]>>,
}

#[derive(Debug)]
struct Noted {
    by: u32,
    /// The most recent first.
    written: SmallVec<[Written; 1]>,
    newest: Label,
}

impl Notes {
    pub fn number(&mut self, seen: &SeenBy) -> u32 {
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
    pub fn note(&mut self, key: &CompactKey, by: u32, written: &Written, newest: Label) -> bool {
        let known = match self.keys.get_mut(key) {
            Some(known) => known,
            None => self.keys.entry(key.clone()).or_default(),
        };
        match known.iter_mut().find(|noted| noted.by == by) {
            Some(noted) => noted.written.push(written.clone()),
            None => {
                known.push(Noted { by, written: smallvec![written.clone()], newest });
                return true;
            }
        }
        false
    }

    /// Takes the first key out.
    fn pop(&mut self) -> Option<(CompactKey, Vec<Changed>)> {
        let (key, known) = self.keys.pop_first()?;
        let changed = |noted: &Noted| {
            let written = Written::all(&noted.written.iter().collect::<SmallVec<[_; 4]>>())?;
            Some(Changed { seen: self.seen[noted.by as usize].clone(), written, newest: Some(noted.newest) })
        };
        Some((key, known.iter().filter_map(changed).collect()))
    }

    pub fn into_changes(mut self) -> Changes {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

/// The keys that two of these states changed independently of each other (`findConflictWrites`), in ascending order: whoever
/// merges the states has to write them.
pub(crate) fn conflicting_keys(dag: &Dag, heads: &[Node]) -> Vec<CompactKey> {
    Divergence::of(dag, heads).conflicting
}
