//! The versions of one key. Most keys have one, or for a short time a few small ones: a list of whole values. Other
//! versions are stored as the difference from one version to the next ([`IndexedVersions`]).

use super::indexed::IndexedVersions;
use super::line::{growth, perform};
use super::newest::{self, Labelled, look};
use crate::StateId;
use crate::dag::{Label, View};
use datatypes::{Cell, Value};
use std::slice;

/// More versions are no list.
const FEW: usize = 64;
/// Nor are several that have more bytes.
const SMALL: usize = 256;

/// A version with its value.
#[derive(Debug)]
pub(super) struct Version {
    label: Label,
    id: StateId,
    cell: Cell,
}

impl Labelled for Version {
    fn label(&self) -> Label {
        self.label
    }

    fn id(&self) -> StateId {
        self.id
    }
}

/// See the module.
#[derive(Debug)]
pub(super) enum Versions {
    One(Version),
    /// Small ones in the order of labels; or none.
    Few(Vec<Version>),
    Many(Box<IndexedVersions>),
}

impl Default for Versions {
    fn default() -> Self {
        Versions::Few(Vec::new())
    }
}

impl Versions {
    fn list(&self) -> Result<&[Version], &IndexedVersions> {
        match self {
            Versions::One(one) => Ok(slice::from_ref(one)),
            Versions::Few(few) => Ok(few),
            Versions::Many(indexed) => Err(indexed),
        }
    }

    fn list_mut(&mut self) -> Result<&mut [Version], &mut IndexedVersions> {
        match self {
            Versions::One(one) => Ok(slice::from_mut(one)),
            Versions::Few(few) => Ok(few),
            Versions::Many(indexed) => Err(indexed),
        }
    }

    /// The id of the newest version that a view shows.
    pub fn newest(&self, view: &View<'_>) -> Option<StateId> {
        match self.list() {
            Ok(list) => look(list, view).map(|place| list[place].id),
            Err(indexed) => indexed.newest(view),
        }
    }

    /// True if the newest version that a view shows is shown by another one too, or there is none.
    pub fn is_seen_too(&self, view: &View<'_>, by: &View<'_>) -> bool {
        match self.list() {
            Ok(list) => look(list, view).is_none_or(|place| by.shows(list[place].label)),
            Err(indexed) => indexed.is_seen_too(view, by),
        }
    }

    /// How many lookups a read takes.
    pub fn lookups(&self, view: &View<'_>) -> usize {
        match self.list() {
            Ok(list) => newest::find(list, view).1,
            Err(indexed) => indexed.lookups(view),
        }
    }

    /// Shows the value at a view to `read`, which leaves it as it was. An old value that is far behind its line's
    /// newest is copied first, so that the next read finds it at once.
    pub fn with<R>(&mut self, view: &View<'_>, read: impl FnOnce(&mut Cell) -> R) -> R {
        match self.list_mut() {
            Ok(list) => match look(list, view) {
                Some(place) => read(&mut list[place].cell),
                None => read(&mut Cell::ABSENT.clone()),
            },
            Err(indexed) => indexed.with(view, read),
        }
    }

    /// The same, with the state that wrote it.
    pub fn with_writer<R>(&mut self, view: &View<'_>, read: impl FnOnce(&Cell, Option<StateId>) -> R) -> R {
        match self.list_mut() {
            Ok(list) => match look(list, view).map(|place| &list[place]) {
                Some(Version { id, cell, .. }) => read(cell, Some(*id)),
                None => read(&Cell::ABSENT, None),
            },
            Err(indexed) => indexed.with_writer(view, read),
        }
    }

    /// The same where the label of the version is known; should it not be here, what the view shows is looked for.
    pub fn with_labelled<R>(
        &mut self,
        view: &View<'_>,
        label: Label,
        read: impl FnOnce(&Cell, Option<StateId>) -> R,
    ) -> R {
        match self {
            Versions::Many(indexed) => indexed.with_labelled(view, label, read),
            _ => self.with_writer(view, read),
        }
    }

    /// Every version with its value, in the order of labels.
    pub fn each(&mut self, mut visit: impl FnMut(Label, StateId, &Cell)) {
        match self.list_mut() {
            Ok(list) => list.iter().for_each(|version| visit(version.label, version.id, &version.cell)),
            Err(indexed) => indexed.each(visit),
        }
    }

    /// A version whose value is known.
    pub fn restore(&mut self, label: Label, id: StateId, cell: Cell) {
        let new = Version { label, id, cell };
        *self = match std::mem::take(self) {
            Versions::Few(few) if few.is_empty() => Versions::One(new),
            Versions::One(one) if is_small(&one.cell) && is_small(&new.cell) => {
                Versions::Few(with(vec![one], new))
            }
            Versions::Few(few) if few.len() < FEW && is_small(&new.cell) => Versions::Few(with(few, new)),
            known => {
                let mut indexed = known.into_several();
                indexed.restore(new.label, new.id, new.cell);
                Versions::Many(indexed)
            }
        }
    }

    /// Makes a version by these effects on top of what a view shows.
    pub fn write<'e>(
        &mut self,
        view: &View<'_>,
        label: Label,
        id: StateId,
        effects: impl Iterator<Item = &'e [u8]> + Clone,
    ) {
        if let Ok(list) = self.list() {
            let base = look(list, view).map_or(&Cell::ABSENT, |place| &list[place].cell);
            if is_small(base) {
                let mut cell = base.clone();
                let _ = perform(&mut cell, effects);
                return self.restore(label, id, cell);
            }
        }
        let mut indexed = std::mem::take(self).into_several();
        indexed.write(view, label, id, effects);
        *self = Versions::Many(indexed);
    }

    /// The versions with these labels, ancestors first, are labelled `to` from now on. The newest of them, and of what has that
    /// label already, stays.
    pub fn relabel(&mut self, from: &[Label], to: Label) {
        match self {
            Versions::One(one) if from.contains(&one.label) => one.label = to,
            Versions::One(_) => {}
            Versions::Few(few) => from.iter().for_each(|from| relabel_one(few, *from, to)),
            Versions::Many(indexed) => indexed.relabel(from, to),
        }
        self.settle();
    }

    /// Only versions whose labels are `meant` stay: the others no state sees.
    pub fn retain(&mut self, is_meant: impl Fn(Label) -> bool) {
        match self {
            Versions::One(one) if is_meant(one.label) => {}
            Versions::One(_) => *self = Versions::default(),
            Versions::Few(few) => few.retain(|version| is_meant(version.label)),
            Versions::Many(indexed) => indexed.retain(is_meant),
        }
        self.settle();
    }

    /// Which state wrote the version with this label.
    pub fn writer(&self, label: Label) -> Option<StateId> {
        match self.list() {
            Ok(list) => list.iter().find(|version| version.label == label).map(|version| version.id),
            Err(indexed) => indexed.writer(label),
        }
    }

    /// True when no state sees anything here: one version, with a label that every state sees, that says the key is
    /// absent is as good as none.
    pub fn is_void(&self, seen_by_all: Label) -> bool {
        match self.list() {
            Ok([]) => true,
            Ok([only]) => only.label == seen_by_all && only.cell.value.is_none(),
            _ => false,
        }
    }

    /// How many versions there are.
    pub fn len(&self) -> usize {
        self.list().map_or_else(IndexedVersions::len, <[Version]>::len)
    }

    /// The bytes everything occupies, its own size included.
    pub fn memory(&self) -> usize {
        let values = |list: &[Version]| {
            list.iter().filter_map(|version| version.cell.value.as_ref()).map(Value::memory).sum::<usize>()
        };
        size_of::<Self>()
            + match self {
                Versions::One(one) => values(slice::from_ref(one)),
                Versions::Few(few) => few.capacity() * size_of::<Version>() + values(few),
                Versions::Many(indexed) => size_of::<IndexedVersions>() + indexed.memory(),
            }
    }

    /// Panics unless every version has a value and every line is read.
    pub fn assert_consistent(&self) {
        match self {
            Versions::One(_) => {}
            Versions::Few(few) => {
                assert!(few.len() != 1 && few.len() <= FEW, "a list of {}", few.len());
                assert!(few.is_sorted_by(|a, b| a.label < b.label), "a list is in the order of labels");
                assert!(few.iter().all(|version| is_small(&version.cell)), "what is large is no list");
            }
            Versions::Many(indexed) => {
                assert!(indexed.len() > 1, "one version is a list");
                indexed.assert_consistent();
            }
        }
    }

    fn into_several(self) -> Box<IndexedVersions> {
        let list = match self {
            Versions::Many(indexed) => return indexed,
            Versions::One(one) => vec![one],
            Versions::Few(few) => few,
        };
        let mut indexed = IndexedVersions::default();
        list.into_iter().for_each(|version| indexed.restore(version.label, version.id, version.cell));
        Box::new(indexed)
    }

    /// Gives up what so few versions do not need.
    fn settle(&mut self) {
        match self {
            Versions::One(_) => {}
            Versions::Few(few) if few.len() == 1 => {
                if let Some(only) = few.pop() {
                    *self = Versions::One(only);
                }
            }
            Versions::Few(few) if few.len() + growth(few.len()) <= few.capacity() => few.shrink_to_fit(),
            Versions::Few(_) => {}
            Versions::Many(indexed) => {
                if let Some((label, id, cell)) = indexed.take_only() {
                    *self = Versions::One(Version { label, id, cell });
                } else if indexed.len() <= FEW / 2
                    && indexed.cells().all(is_small)
                    && let Some(few) = listed(indexed)
                {
                    *self = Versions::Few(few);
                }
            }
        }
    }
}

/// A list with one more.
fn with(mut list: Vec<Version>, new: Version) -> Vec<Version> {
    if list.len() == list.capacity() {
        list.reserve_exact(growth(list.len()));
    }
    let place = list.partition_point(|version| version.label < new.label);
    list.insert(place, new);
    list
}

/// These versions as a list, if all are small.
fn listed(indexed: &mut IndexedVersions) -> Option<Vec<Version>> {
    let (mut list, all) = (Vec::with_capacity(indexed.len()), indexed.len());
    indexed.each(|label, id, cell| {
        if is_small(cell) {
            list.push(Version { label, id, cell: cell.clone() });
        }
    });
    (list.len() == all).then_some(list)
}

/// True of what is copied sooner than taken back.
fn is_small(cell: &Cell) -> bool {
    match &cell.value {
        None => true,
        Some(value @ (Value::Register(_) | Value::Counter(_))) => value.memory() <= SMALL,
        Some(_) => false,
    }
}

fn relabel_one(list: &mut Vec<Version>, from: Label, to: Label) {
    let place_of = |label| list.iter().position(|version| version.label == label);
    let (Some(source), target) = (place_of(from), place_of(to)) else { return };
    let mut newer = list.remove(source);
    if let Some(target) = target {
        let known = list.remove(if target > source { target - 1 } else { target });
        newer = if newer.id < known.id { known } else { newer };
    }
    *list = with(std::mem::take(list), Version { label: to, ..newer });
}

#[cfg(test)]
mod tests {
    use super::super::indexed::tests::add;
    use super::*;
    use crate::dag::{Branches, PortableView};
    use datatypes::Effect;
    use datatypes::register::{self, Deadline};
    use types::{Incarnation, ProcessId};

    /// Sets a text or makes it longer.
    fn text(random: &mut fastrand::Rng) -> Box<[u8]> {
        let value = vec![random.u8(..); random.usize(1..60)];
        let effect = match random.u32(..5) {
            0 => register::Effect::Set { value: &value, deadline: Deadline::Keep },
            _ => register::Effect::Append { value: &value },
        };
        let mut bytes = Vec::new();
        Effect::Register(effect).encode(&mut bytes);
        bytes.into()
    }

    /// Versions of a small or a large value, each made on top of any other, are what they were made, whichever go meanwhile.
    #[test]
    fn versions_are_what_they_were_made() {
        for seed in 0..100 {
            let mut random = fastrand::Rng::with_seed(seed);
            let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
            let label = |number| Label { branch: number, sequence: 0 };
            let mut first = Cell::ABSENT;
            let members = [0, 3, 400][random.usize(..3)];
            for member in 0..members {
                perform(&mut first, [&*add(0, member)].into_iter());
            }
            let effect = |random: &mut fastrand::Rng| match members {
                0 => text(random),
                _ => add(random.u32(1..5), random.u32(..600)),
            };
            let mut versions = Versions::default();
            versions.restore(label(0), id(0), first.clone());
            // Of each version what it goes on from, and its value.
            let mut made: Vec<(Vec<u64>, Cell)> = vec![(vec![0], first)];
            let mut there = vec![0u64];
            let branches = Branches::new();
            for number in 1..150 {
                // Often the same ones, so that some have many that go on from them.
                let on = there[random.usize(..there.len()).min(random.usize(..there.len()))];
                let (mut seen, mut cell) = made[on as usize].clone();
                let portable = PortableView::of(seen.iter().map(|branch| (*branch, 0)).collect());
                let effects: Vec<_> = (0..random.usize(1..3)).map(|_| effect(&mut random)).collect();
                let effects = || effects.iter().map(|effect| &**effect);
                perform(&mut cell, effects());
                versions.write(&portable.view(&branches), label(number), id(number), effects());
                seen.push(number);
                made.push((seen, cell));
                there.push(number);
                if random.u32(..3) == 0 && there.len() > 1 {
                    let gone = there.swap_remove(random.usize(..there.len()));
                    match there.iter().find(|stays| made[**stays as usize].0.contains(&gone)) {
                        // As if what goes joined the class of what stays.
                        Some(stays) if random.bool() => versions.relabel(&[label(gone)], label(*stays)),
                        _ => versions.retain(|label| label.branch != gone),
                    }
                }
                if random.u32(..20) == 0 {
                    let stays = there[random.usize(..there.len())];
                    there.retain(|number| *number == stays || random.u32(..4) == 0);
                    versions.retain(|label| there.contains(&label.branch));
                }
                there.sort_unstable();
                versions.assert_consistent();
                for _ in 0..3 {
                    let (seen, cell) = &made[there[random.usize(..there.len())] as usize];
                    let portable = PortableView::of(seen.iter().map(|branch| (*branch, 0)).collect());
                    versions.with(&portable.view(&branches), |found| assert_eq!(found, cell, "seed {seed}"));
                }
                versions.assert_consistent();
            }
            let mut all = there.iter();
            versions.each(|label, _, cell| {
                assert_eq!(Some(&label.branch), all.next());
                assert_eq!(*cell, made[label.branch as usize].1, "seed {seed}");
            });
        }
    }
}
