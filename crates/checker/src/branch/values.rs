//! The value that an automatic merge must give to a key: the values of its parents, merged over their fork points by
//! the types' rules.
//!
//! The value of one state is what it sees. The value of several, in the order of their places, is that of all but the last,
//! merged with the last over the value of what both have in common, which may be several states again (Corrections 53).

use super::Dag;
use super::rules::{Change, Judge, together};
use crate::invocations::Decoded;
use crate::plain::{Held, Key};
use datatypes::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

pub(super) type Place = Option<(u64, [u64; 3])>;

/// What a state made of a key.
#[derive(Clone, Debug)]
pub(super) struct Version {
    /// `None` if it is of no plain type.
    key: Option<Key>,
    /// The place of the state whose value it is.
    newest: Place,
    /// How it was changed; `None` where a merge left it as one of its parents had it.
    change: Option<Change>,
}

/// By key and state.
pub(super) type Versions<'h> = BTreeMap<&'h [u8], BTreeMap<&'h str, Version>>;

/// A key's value at some states.
#[derive(Clone, Debug, Default)]
pub(super) struct Resolved {
    pub held: Option<Held>,
    newest: Place,
    /// How it was changed since the states parted, on all sides together.
    pub change: Option<Change>,
    /// True if the rules left something open.
    pub is_chosen: bool,
}

/// Some states, in the order of their places, with what each sees, and what it has in common with those before it.
pub(super) struct Layer<'h> {
    states: Vec<&'h str>,
    pasts: Vec<BTreeSet<&'h str>>,
    bases: Vec<Vec<&'h str>>,
}

/// The layers that a merge needs.
pub(super) type Layers<'h> = BTreeMap<Vec<&'h str>, Rc<Layer<'h>>>;

impl<'d, 'h> Dag<'d, 'h> {
    fn place(&self, id: &str) -> Place {
        self.states[id].maker.and_then(|maker| maker.transaction.place())
    }

    /// A transaction on one branch has made these cells.
    pub(super) fn note_made(&mut self, id: &'h str, maker: &Decoded<'h>, cell: impl Fn(&[u8]) -> Cell) {
        let newest = self.place(id);
        for key in maker.effects.iter().map(|(key, _)| *key).collect::<BTreeSet<_>>() {
            let effects = maker.effects.iter().filter(|(other, _)| *other == key);
            let change = Change::all(effects.map(|(_, effect)| Change::of(effect)));
            let version = Version { key: Key::read(&cell(key)), newest, change };
            self.versions.entry(key).or_default().insert(id, version);
        }
    }

    /// A merge has written a key, which its parents had changed like this.
    pub(super) fn note_merged(&mut self, id: &'h str, key: &'h [u8], cell: &Cell, change: Option<Change>) {
        let change = Some(change.unwrap_or(Change::Otherwise));
        let version = Version { key: Key::read(cell), newest: self.place(id), change };
        self.versions.entry(key).or_default().insert(id, version);
    }

    /// A merge has left a key as this parent had it.
    pub(super) fn note_left(&mut self, id: &'h str, key: &'h [u8], parent: &'h str) {
        if let Some(version) = self.version(parent, key).cloned() {
            self.versions.entry(key).or_default().insert(id, Version { change: None, ..version });
        }
    }

    /// The version that a state sees.
    fn version(&self, id: &'h str, key: &[u8]) -> Option<&Version> {
        let versions = self.versions.get(key)?;
        let mut id = id;
        loop {
            match versions.get(id) {
                Some(version) => return Some(version),
                // Parents that changed it apart are looked after by their merge.
                None => id = self.states[id].parents.first()?,
            }
        }
    }

    /// The value of a key at some states together; nothing where that is not judged.
    pub(super) fn resolve(
        &self,
        states: &[&'h str],
        key: &[u8],
        layers: &mut Layers<'h>,
    ) -> Option<Resolved> {
        if let [one] = states {
            let Some(version) = self.version(one, key) else { return Some(Resolved::default()) };
            let held = version.key.as_ref().filter(|key| !key.has_deadline())?.held.clone();
            return Some(Resolved { held, newest: version.newest, change: None, is_chosen: false });
        }
        let layer = self.layer(states, layers);
        let mut all = self.resolve(&layer.states[..1], key, layers)?;
        for (index, state) in layer.states.iter().enumerate().skip(1) {
            let [lacked, own] = self.changes(&layer, index, key);
            let here = self.resolve(&[state], key, layers)?;
            all = match (lacked, own) {
                (lacked, None) => Resolved { change: all.change.or(lacked), ..all },
                (None, own) => Resolved { change: own, ..here },
                (Some(lacked), Some(own)) => {
                    let base = self.resolve(&layer.bases[index], key, layers)?;
                    let is_known = all.newest.is_some() || here.newest.is_some();
                    let left_is_newer = is_known.then_some(all.newest > here.newest);
                    let mut judge = Judge { left_is_newer, was_consulted: false };
                    let held = together(&base.held, (&all.held, lacked), (&here.held, own), &mut judge)?;
                    Resolved {
                        held,
                        newest: all.newest.max(here.newest),
                        change: Change::all(all.change.into_iter().chain([lacked, own])),
                        is_chosen: all.is_chosen || base.is_chosen || judge.was_consulted,
                    }
                }
            };
        }
        Some(all)
    }

    /// How a key was changed by what a state of a layer does not see of those before it, and by what it alone sees.
    fn changes(&self, layer: &Layer<'h>, index: usize, key: &[u8]) -> [Option<Change>; 2] {
        let sees = |at: usize, id: &str| layer.pasts[at].contains(id);
        let before = |id: &str| (0..index).any(|at| sees(at, id));
        let changed = |is_meant: &dyn Fn(&str) -> bool| {
            let versions = self.versions.get(key).into_iter().flatten();
            Change::all(versions.filter(|(id, _)| is_meant(id)).filter_map(|(_, version)| version.change))
        };
        [changed(&|id| before(id) && !sees(index, id)), changed(&|id| !before(id) && sees(index, id))]
    }

    fn layer(&self, states: &[&'h str], layers: &mut Layers<'h>) -> Rc<Layer<'h>> {
        let mut states = states.to_vec();
        states.sort_by_key(|id| self.place(id));
        if let Some(known) = layers.get(&states) {
            return Rc::clone(known);
        }
        let pasts: Vec<BTreeSet<&'h str>> = states.iter().map(|id| self.past(id)).collect();
        let mut before: BTreeSet<&'h str> = BTreeSet::new();
        let mut bases = Vec::new();
        for past in &pasts {
            let common: BTreeSet<&'h str> = past.intersection(&before).copied().collect();
            let parents = common.iter().flat_map(|id| &self.states[id].parents);
            let below: BTreeSet<&str> = parents.copied().collect();
            bases.push(common.iter().filter(|id| !below.contains(*id)).copied().collect());
            before.extend(past);
        }
        let layer = Rc::new(Layer { states: states.clone(), pasts, bases });
        layers.insert(states, Rc::clone(&layer));
        layer
    }
}
