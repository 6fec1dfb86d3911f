//! The versions of a key that are no list: where each is visible, and on which line its value lies (TARDiS 6.1.3).

use super::line::{LONG, perform};
use super::lines::{At, Lines};
use super::newest::{self, List};
use super::places::{Place, Places};
use crate::StateId;
use crate::dag::{Label, View};
use datatypes::Cell;

/// So many lines may have as many empty slots among them.
const FEW: usize = 4;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct IndexedVersions {
    /// In the order of labels.
    places: Places,
    lines: Lines,
    /// Of a state that many began below, what its view shows: its label, and that of the version. Versions that states write
    /// later it does not see.
    shown: std::cell::Cell<Option<(Label, Option<Label>)>>,
}

/// Effects on a collection of more bytes than this (a merge's, of what many have done) are many: to take them back for whoever reads
/// what was before takes longer than to copy it.
const MUCH: usize = 256;

impl IndexedVersions {
    fn look(&self, view: &View<'_>) -> Option<usize> {
        let (found, lookups) = self.find(view);
        view.meter().lookups(lookups);
        found
    }

    /// The place of the newest version that a view shows, and how many lookups that took: few, however many branches
    /// an ancestor sees that others began below too.
    fn find(&self, view: &View<'_>) -> (Option<usize>, usize) {
        if let Some(own) = newest::own(&self.places, view) {
            return (Some(own), 1);
        }
        let Some((ancestor, besides)) =
            view.by_ancestor().filter(|(_, besides)| besides.len() < self.places.len())
        else {
            return newest::find_elsewhere(&self.places, view);
        };
        let (mut newest, lookups) = self.find_shown(&ancestor);
        for (branch, bound) in besides {
            if let Some(found) = newest::last_up_to(&self.places, *branch, *bound) {
                newest = newest::newer(&self.places, newest, found);
            }
        }
        debug_assert_eq!(
            newest,
            newest::find_elsewhere(&self.places, view).0,
            "the same, looked for on all branches"
        );
        (newest, 1 + lookups + besides.len())
    }

    /// The same for such an ancestor.
    fn find_shown(&self, view: &View<'_>) -> (Option<usize>, usize) {
        let of = view.only();
        match self.shown.get().filter(|(known, _)| Some(*known) == of) {
            Some((_, None)) => return (None, 1),
            Some((_, Some(label))) => {
                if let Some(place) = self.places.place_of(label) {
                    return (Some(place), 1);
                }
            }
            None => {}
        }
        let (found, lookups) = newest::find(&self.places, view);
        self.shown.set(of.map(|of| (of, found.map(|place| self.places[place].label))));
        (found, lookups)
    }

    /// The id of the newest version that a view shows.
    pub fn newest(&self, view: &View<'_>) -> Option<StateId> {
        self.look(view).map(|place| self.places[place].id)
    }

    /// True if the newest version that a view shows is shown by another one too, or there is none.
    pub fn is_seen_too(&self, view: &View<'_>, by: &View<'_>) -> bool {
        self.look(view).is_none_or(|place| by.shows(self.places[place].label))
    }

    /// How many lookups a read takes.
    pub fn lookups(&self, view: &View<'_>) -> usize {
        self.find(view).1
    }

    /// Shows the value at a view to `read`, which leaves it as it was. An old value that is far behind its line's
    /// newest is copied first, so that the next read finds it at once.
    pub fn with<R>(&mut self, view: &View<'_>, read: impl FnOnce(&mut Cell) -> R) -> R {
        match self.look(view) {
            Some(place) => self.with_place(view, place, read),
            None => read(&mut Cell::ABSENT.clone()),
        }
    }

    /// The same, with the state that wrote it.
    pub fn with_writer<R>(&mut self, view: &View<'_>, read: impl FnOnce(&Cell, Option<StateId>) -> R) -> R {
        let place = self.look(view);
        self.with_found(view, place, read)
    }

    /// The same where the label of the version is known; should it not be here, what the view shows is looked for.
    pub fn with_labelled<R>(
        &mut self,
        view: &View<'_>,
        label: Label,
        read: impl FnOnce(&Cell, Option<StateId>) -> R,
    ) -> R {
        view.meter().lookups(1);
        let known = self.places.place_of(label);
        debug_assert!(known.is_none() || known == self.find(view).0, "the view shows this version");
        let place = known.or_else(|| self.look(view));
        self.with_found(view, place, read)
    }

    fn with_found<R>(
        &mut self,
        view: &View<'_>,
        place: Option<usize>,
        read: impl FnOnce(&Cell, Option<StateId>) -> R,
    ) -> R {
        match place {
            Some(place) => {
                let id = self.places[place].id;
                self.with_place(view, place, |cell| read(cell, Some(id)))
            }
            None => read(&Cell::ABSENT, None),
        }
    }

    fn with_place<R>(&mut self, view: &View<'_>, place: usize, read: impl FnOnce(&mut Cell) -> R) -> R {
        self.bring_near(place);
        let at = self.places[place].at();
        view.meter().lookups(self.lines.distance(at));
        self.lines.with(at, read)
    }

    /// A version that is far from its value gets a nearer one: one that all forks of a version have in common, if that is what is far.
    fn bring_near(&mut self, place: usize) {
        let at = self.places[place].at();
        if self.lines.distance(at) <= LONG {
            return;
        }
        let forked = self.lines.fork_of(at.0).filter(|forked| self.lines.distance(*forked) > LONG / 2);
        self.copy(forked.unwrap_or(at));
        self.shrink();
        self.bring_near(place);
    }

    /// Copies a version into a line of its own, where its readers find it from then on.
    fn copy(&mut self, old: At) {
        let cell = self.lines.with(old, |cell| cell.clone());
        let new = self.lines.open(cell, 0);
        let mut readers = self.lines.move_forks(old, new);
        for place in self.places.iter_mut().filter(|place| place.at() == old) {
            (place.line, place.version) = new;
            readers += 1;
        }
        for _ in 0..readers {
            self.lines.hold(new);
        }
        // Only without any reader may it be looked for gaps: one that still has some might be copied again.
        for _ in 1..readers {
            self.lines.release(old);
        }
        self.forget(old);
    }

    /// One less reads a version. A version that too many unread ones separate from the next on its line gets a line of its own.
    fn forget(&mut self, at: At) {
        let mut next = Some(at);
        while let Some(at) = next {
            next = self.lines.release(at);
            if let Some(before_gap) = self.lines.before_gap(at.0) {
                self.copy(before_gap);
            }
        }
    }

    /// Every version with its value, in the order of labels.
    pub fn each(&mut self, mut visit: impl FnMut(Label, StateId, &Cell)) {
        for place in 0..self.places.len() {
            let place = self.places[place];
            self.lines.with(place.at(), |cell| visit(place.label, place.id, cell));
        }
    }

    /// A version whose value is known, on a line of its own.
    pub fn restore(&mut self, label: Label, id: StateId, cell: Cell) {
        let (line, version) = self.lines.open(cell, 1);
        self.shown.take();
        self.insert(Place { label, id, line, version });
    }

    /// Makes a version by these effects on top of what a view shows.
    pub fn write<'e>(
        &mut self,
        view: &View<'_>,
        label: Label,
        id: StateId,
        effects: impl Iterator<Item = &'e [u8]> + Clone,
    ) {
        let (line, version) = match self.look(view) {
            None => {
                let mut cell = Cell::ABSENT;
                let _ = perform(&mut cell, effects);
                self.lines.open(cell, 1)
            }
            Some(place) => {
                let at = self.places[place].at();
                if effects.clone().map(<[u8]>::len).sum::<usize>() > MUCH && self.lines.is_collection(at) {
                    let mut cell = self.lines.with(at, |cell| cell.clone());
                    let _ = perform(&mut cell, effects);
                    let (line, version) = self.lines.open(cell, 1);
                    return self.insert(Place { label, id, line, version });
                }
                if !self.lines.may_go_on(at) {
                    self.copy(at);
                    self.shrink();
                }
                self.lines.go_on(self.places[place].at(), effects)
            }
        };
        self.insert(Place { label, id, line, version });
    }

    fn insert(&mut self, new: Place) {
        let at = self.places.partition_point(|place| place.label < new.label);
        self.places.insert(at, new);
    }

    /// The versions with these labels, ancestors first, are labelled `to` from now on. The newest of them, and of what has that
    /// label already, stays.
    pub fn relabel(&mut self, from: &[Label], to: Label) {
        from.iter().for_each(|from| self.relabel_one(*from, to));
        self.shrink();
    }

    fn relabel_one(&mut self, from: Label, to: Label) {
        self.shown.take();
        let (Some(source), target) = (self.places.early_place_of(from), self.places.early_place_of(to))
        else {
            return;
        };
        let Some(target) = target else {
            let mut place = self.places.remove(source);
            place.label = to;
            self.insert(place);
            return;
        };
        let older = if self.places[source].id < self.places[target].id { source } else { target };
        let at = self.places[older].at();
        if older == target {
            let newer = self.places[source];
            self.places[target] = Place { label: to, ..newer };
        }
        self.places.remove(source);
        self.forget(at);
    }

    /// Which state wrote the version with this label.
    pub fn writer(&self, label: Label) -> Option<StateId> {
        self.places.place_of(label).map(|place| self.places[place].id)
    }

    /// Only versions whose labels are `meant` stay: the others no state sees.
    pub fn retain(&mut self, is_meant: impl Fn(Label) -> bool) {
        self.shown.take();
        let mut next = 0;
        while next < self.places.len() {
            if is_meant(self.places[next].label) {
                next += 1;
            } else {
                let at = self.places.remove(next).at();
                self.forget(at);
            }
        }
        self.shrink();
    }

    /// Gives back what is not needed.
    fn shrink(&mut self) {
        if let Some(only) = self.places.only()
            && self.lines.fork_of(only.line).is_some()
        {
            self.copy(only.at());
        }
        self.lines.trim();
        // Most keys come to have one version in the end, which needs no memory of its own.
        let (lines, places) = (self.lines.len(), self.places.len());
        if places == 1 && lines > 1 || lines > FEW && lines > 2 * places {
            let moved = self.lines.close_ranks();
            self.places.iter_mut().for_each(|place| place.line = moved[place.line as usize]);
        }
    }

    /// The values that versions come from.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.lines.cells()
    }

    /// Takes out the version that is the only one left.
    pub fn take_only(&mut self) -> Option<(Label, StateId, Cell)> {
        let Place { label, id, line, .. } = self.places.only()?;
        let cell = self.lines.take(line)?;
        *self = IndexedVersions::default();
        Some((label, id, cell))
    }

    /// How many versions there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The bytes that they occupy beyond its own size.
    pub fn memory(&self) -> usize {
        self.places.memory() + self.lines.memory()
    }

    /// Panics unless every version has a value and every line is read.
    pub fn assert_consistent(&self) {
        assert!(
            self.places.iter().is_sorted_by(|a, b| a.label < b.label),
            "places are in the order of labels"
        );
        self.lines.assert_consistent(&self.places.iter().map(Place::at).collect::<Vec<_>>());
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::dag::{Branches, PortableView};
    use datatypes::Effect;
    use datatypes::scored_set::{self, ScoredItems};
    use types::{Incarnation, ProcessId};

    pub fn add(score: u32, member: u32) -> Box<[u8]> {
        let member = member.to_le_bytes();
        let items = ScoredItems::one(f64::from(score), &member);
        let mut bytes = Vec::new();
        Effect::ScoredSet(scored_set::Effect::Put { items }).encode(&mut bytes);
        bytes.into()
    }

    #[test]
    fn a_large_value_is_not_copied_for_everybody_who_goes_on_from_it() {
        let (mut cell, branches) = (Cell::ABSENT, Branches::new());
        (0..1_000).for_each(|member| drop(perform(&mut cell, [&*add(0, member)].into_iter())));
        let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
        let label = |branch| Label { branch, sequence: 0 };
        let mut versions = IndexedVersions::default();
        versions.restore(label(0), id(0), cell);
        let once = versions.memory();
        for number in 1..=100 {
            let effects = [add(1, number as u32)];
            let (portable, effects) =
                (PortableView::of(vec![(0, 0)]), effects.iter().map(|effect| &**effect));
            versions.write(&portable.view(&branches), label(number), id(number), effects);
        }
        assert!(versions.memory() < 2 * once, "{} and {once}", versions.memory());
        versions.retain(|label| label.branch == 7);
        versions.assert_consistent();
        assert_eq!(versions.lines.len(), 1);
        assert_eq!(versions.lines.fork_of(0), None);
    }

    #[test]
    fn a_version_before_a_gap_that_a_place_and_a_fork_read_is_copied_once() {
        let (mut cell, branches) = (Cell::ABSENT, Branches::new());
        (0..1_000).for_each(|member| drop(perform(&mut cell, [&*add(0, member)].into_iter())));
        let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
        let label = |branch, sequence| Label { branch, sequence };
        let mut versions = IndexedVersions::default();
        versions.restore(label(0, 0), id(0), cell);
        let write = |versions: &mut IndexedVersions, seen: Label, own: Label, number: u64| {
            let portable = PortableView::of(vec![(seen.branch, seen.sequence)]);
            let effects = [add(1, number as u32)];
            versions.write(
                &portable.view(&branches),
                own,
                id(number),
                effects.iter().map(|effect| &**effect),
            );
        };
        write(&mut versions, label(0, 0), label(0, 1), 1);
        write(&mut versions, label(0, 0), label(1, 0), 2);
        for sequence in 2..20 {
            write(&mut versions, label(0, sequence - 1), label(0, sequence), sequence + 1);
        }
        versions.retain(|label| label.branch == 1 || [0, 19].contains(&label.sequence));
        versions.assert_consistent();
        assert_eq!(versions.len(), 3);
    }

    #[test]
    fn who_reads_some_old_versions_one_after_the_other_does_not_copy_all_older_ones() {
        let (mut cell, branches) = (Cell::ABSENT, Branches::new());
        (0..1_000).for_each(|member| drop(perform(&mut cell, [&*add(0, member)].into_iter())));
        let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
        let label = |sequence| Label { branch: 0, sequence };
        let mut versions = IndexedVersions::default();
        versions.restore(label(0), id(0), cell);
        for number in 1..=1_000 {
            let (portable, effects) = (PortableView::of(vec![(0, number - 1)]), [add(1, number as u32)]);
            versions.write(
                &portable.view(&branches),
                label(number),
                id(number),
                effects.iter().map(|effect| &**effect),
            );
        }
        for number in 500..520 {
            let portable = PortableView::of(vec![(0, number)]);
            versions.with(&portable.view(&branches), |_| ());
        }
        versions.assert_consistent();
        assert!(versions.lines.len() < 50, "{} lines, {} bytes", versions.lines.len(), versions.memory());
    }
}
