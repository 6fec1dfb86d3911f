//! The versions of one key: where each is visible, and on which line its value lies (TARDiS 6.1.3).

use super::line::{LONG, Line, growth};
use super::places::{Place, Places};
use crate::StateId;
use crate::dag::{Label, View};
use datatypes::Cell;
use smallvec::SmallVec;

/// How many steps along lists that are in order take as long as a lookup.
const STEPS: usize = 8;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Versions {
    /// In the order of labels.
    places: Places,
    /// Empty slots are taken again.
    lines: SmallVec<[Option<Line>; 1]>,
}

impl Versions {
    /// The place of the newest version that a view shows (TARDiS, figure 7), and how many lookups that took. The
    /// bounds of the view are asked for, or the branches of the key, whichever are fewer; where both are many, both are
    /// gone through side by side. What began after all that the view shows costs nothing.
    fn find(&self, view: &View<'_>) -> (Option<usize>, usize) {
        if let Some(at) = view.only()
            && let Some(own) = self.last_up_to(at.branch, at.sequence)
        {
            // What was written on the branch is above all that it began below.
            return (Some(own), 1);
        }
        let mut newest: Option<usize> = None;
        let mut consider = |found: usize| {
            if newest.is_none_or(|best| self.places[best].id < self.places[found].id) {
                newest = Some(found);
            }
        };
        let last = view.last_branch();
        let known = self.places.partition_point(|place| place.label.branch <= last);
        let width = view.width();
        let mut lookups = 0;
        if let Some(bounds) = view.in_order().filter(|_| known.min(width) * STEPS > known.max(width)) {
            lookups = (known + width) / STEPS + 1;
            self.join(known, bounds, consider);
        } else if known <= width {
            let mut end = known;
            while let Some(last) = end.checked_sub(1) {
                lookups += 1;
                let branch = self.places[last].label.branch;
                let found = view.bound(branch).and_then(|bound| self.last_up_to(branch, bound));
                found.into_iter().for_each(&mut consider);
                end = self.places.partition_point(|place| place.label.branch < branch);
            }
        } else {
            for (branch, bound) in view.bounds() {
                lookups += 1;
                self.last_up_to(branch, bound).into_iter().for_each(&mut consider);
            }
        }
        (newest, lookups)
    }

    fn look(&self, view: &View<'_>) -> Option<usize> {
        let (found, lookups) = self.find(view);
        view.meter().lookups(lookups);
        found
    }

    /// The last place on each of these branches up to its bound, of the first `known`.
    fn join(&self, known: usize, bounds: &[(u64, u64)], mut consider: impl FnMut(usize)) {
        let mut waiting = bounds.iter().rev().peekable();
        for (place, Place { label, .. }) in self.places[..known].iter().enumerate().rev() {
            while waiting.next_if(|(branch, _)| *branch > label.branch).is_some() {}
            let Some((branch, bound)) = waiting.peek() else { return };
            if *branch == label.branch && label.sequence <= *bound {
                consider(place);
                waiting.next();
            }
        }
    }

    /// The last version of a branch up to a sequence number.
    fn last_up_to(&self, branch: u64, sequence: u64) -> Option<usize> {
        let bound = Label { branch, sequence };
        let last = self.places.partition_point(|place| place.label <= bound).checked_sub(1)?;
        (self.places[last].label.branch == branch).then_some(last)
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
        let known = self.place_of(label);
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
        let Place { line, version, .. } = self.places[place];
        if self.line(line).is_some_and(|line| line.behind(version) > LONG) {
            self.materialize(place);
            self.close_gaps();
        }
        let Place { line, version, .. } = self.places[place];
        match self.line(line) {
            Some(line) => {
                view.meter().lookups(line.behind(version));
                line.with(version, read)
            }
            None => read(&mut Cell::ABSENT.clone()),
        }
    }

    fn line(&mut self, line: u32) -> Option<&mut Line> {
        self.lines.get_mut(line as usize).and_then(Option::as_mut)
    }

    /// Copies a version into a line of its own.
    fn materialize(&mut self, place: usize) {
        let Place { line: old, version, .. } = self.places[place];
        let cell = self.line(old).map_or(Cell::ABSENT, |line| line.with(version, |cell| cell.clone()));
        let line = self.open(Line::new(cell));
        self.forget_version(old, version);
        (self.places[place].line, self.places[place].version) = (line, 0);
    }

    fn open(&mut self, line: Line) -> u32 {
        let free = self.lines.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            if self.lines.len() == self.lines.capacity() {
                self.lines.reserve_exact(growth(self.lines.len()));
            }
            self.lines.push(None);
            self.lines.len() - 1
        });
        self.lines[slot] = Some(line);
        slot as u32
    }

    fn forget_version(&mut self, line: u32, version: u32) {
        if let Some(slot) = self.lines.get_mut(line as usize)
            && let Some(kept) = slot
            && !kept.forget(version)
        {
            *slot = None;
        }
    }

    /// Every version with its value, in the order of labels.
    pub fn each(&mut self, mut visit: impl FnMut(Label, StateId, &Cell)) {
        for place in 0..self.places.len() {
            let place = self.places[place];
            if let Some(line) = self.line(place.line) {
                line.with(place.version, |cell| visit(place.label, place.id, cell));
            }
        }
    }

    /// A version whose value is known, on a line of its own.
    pub fn restore(&mut self, label: Label, id: StateId, cell: Cell) {
        let line = self.open(Line::new(cell));
        self.insert(Place { label, id, line, version: 0 });
    }

    /// Makes a version by these effects on top of what a view shows.
    pub fn write<'e>(
        &mut self,
        view: &View<'_>,
        label: Label,
        id: StateId,
        effects: impl Iterator<Item = &'e [u8]>,
    ) {
        let (line, version) = match self.look(view) {
            None => {
                let mut line = Line::new(Cell::ABSENT);
                let (before, made) = (line.newest(), line.extend(effects));
                line.forget(before);
                (self.open(line), made)
            }
            Some(place) => {
                let Place { line, version, .. } = self.places[place];
                if self.line(line).is_some_and(|line| line.behind(version) > 0) {
                    self.materialize(place);
                    self.close_gaps();
                }
                let line = self.places[place].line;
                let made = self.line(line).map_or(version, |line| line.extend(effects));
                (line, made)
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
        self.close_gaps();
    }

    fn relabel_one(&mut self, from: Label, to: Label) {
        let (Some(source), target) = (self.early_place_of(from), self.early_place_of(to)) else { return };
        let Some(target) = target else {
            let mut place = self.places.remove(source);
            place.label = to;
            self.insert(place);
            return;
        };
        let older = if self.places[source].id < self.places[target].id { source } else { target };
        let Place { line, version, .. } = self.places[older];
        self.forget_version(line, version);
        if older == target {
            let newer = self.places[source];
            self.places[target] = Place { label: to, ..newer };
        }
        self.places.remove(source);
    }

    /// Which state wrote the version with this label.
    pub fn writer(&self, label: Label) -> Option<StateId> {
        self.place_of(label).map(|place| self.places[place].id)
    }

    /// Only versions whose labels are `meant` stay: the others no state sees.
    pub fn retain(&mut self, is_meant: impl Fn(Label) -> bool) {
        while let Some(place) = self.places.iter().position(|place| !is_meant(place.label)) {
            let Place { line, version, .. } = self.places.remove(place);
            self.forget_version(line, version);
        }
        self.close_gaps();
    }

    fn place_of(&self, label: Label) -> Option<usize> {
        self.places.binary_search_by_key(&label, |place| place.label).ok()
    }

    /// The same, where it is probably one of the first: of thousands few are looked at.
    fn early_place_of(&self, label: Label) -> Option<usize> {
        let mut most = 1;
        while self.places.get(most).is_some_and(|place| place.label < label) {
            most *= 2;
        }
        let places = &self.places[..self.places.len().min(most + 1)];
        let found = places[most / 2..].binary_search_by_key(&label, |place| place.label);
        found.ok().map(|place| most / 2 + place)
    }

    /// Versions that too many unread ones separate from the next on their line get lines of their own.
    fn close_gaps(&mut self) {
        let gap = |(line, kept): (usize, &Option<Line>)| Some((line as u32, kept.as_ref()?.before_gap()?));
        while let Some((line, version)) = self.lines.iter().enumerate().find_map(gap) {
            let found = self.places.iter().position(|place| place.line == line && place.version == version);
            match found {
                Some(place) => self.materialize(place),
                None => return debug_assert!(false, "a version that is read has a place"),
            };
        }
        if self.lines.last().is_some_and(Option::is_none) {
            self.lines.truncate(self.lines.iter().rposition(Option::is_some).map_or(0, |last| last + 1));
        }
        if let [only] = &mut self.places[..] {
            // Most keys come to have one version in the end, which needs no memory of its own.
            self.lines.swap(0, only.line as usize);
            only.line = 0;
            self.lines.truncate(1);
        }
        if self.lines.len() <= self.lines.capacity() / 2 {
            self.lines.shrink_to_fit();
        }
    }

    /// True when no state sees anything here: one version, with a label that every state sees, that says the key is
    /// absent is as good as none.
    pub fn is_void(&self, seen_by_all: Label) -> bool {
        match &self.places[..] {
            [] => true,
            [only] if only.label == seen_by_all => {
                self.lines[only.line as usize].as_ref().is_none_or(|line| line.cell().value.is_none())
            }
            _ => false,
        }
    }

    /// How many versions there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// The bytes everything occupies, the struct included.
    pub fn memory(&self) -> usize {
        let lines = if self.lines.spilled() { self.lines.capacity() * size_of::<Option<Line>>() } else { 0 };
        let steps: usize = self.lines.iter().flatten().map(Line::memory).sum();
        size_of::<Self>() + self.places.memory() + lines + steps
    }

    /// Panics unless every version has a value and every line is read.
    pub fn assert_consistent(&self) {
        assert!(self.places.is_sorted_by(|a, b| a.label < b.label), "places are in the order of labels");
        for (number, line) in self.lines.iter().enumerate() {
            let Some(line) = line else { continue };
            let on_it = self.places.iter().filter(|place| place.line as usize == number);
            assert!(on_it.clone().any(|place| place.version == line.newest()), "a newest version is read");
            assert!(
                on_it.clone().all(|place| line.behind(place.version) < line.len()),
                "versions are on their line"
            );
            assert!(line.len() <= on_it.count() * (LONG + 1), "gaps are closed");
        }
        let lines = |place: &Place| self.lines.get(place.line as usize).is_some_and(Option::is_some);
        assert!(self.places.iter().all(lines), "every version has a line");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::{Branches, Sight};
    use types::{Incarnation, ProcessId};

    #[test]
    fn the_newest_version_that_is_shown_is_found_however_many_there_are() {
        for seed in 0..500 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut versions = Versions::default();
            let all = [1, 3, 20, 200][random.usize(..4)];
            for number in 0..random.u64(1..=all) {
                let label = Label { branch: random.u64(..all), sequence: random.u64(..4) };
                if versions.place_of(label).is_none() {
                    // Ids rise along a branch.
                    let place = (label.sequence * 10 + random.u64(..10)) * 1000 + number;
                    let id = StateId::made_by(place, ProcessId(1), Incarnation(1));
                    versions.restore(label, id, Cell::ABSENT);
                }
            }
            let some = random.f64();
            let mut seen = Vec::new();
            for branch in 0..all {
                if random.f64() < some {
                    seen.push((branch, random.u64(..4)));
                }
            }
            let sight = Sight::of(seen);
            let branches = Branches::new();
            let view = sight.view(&branches);
            let shown = versions.places.iter().filter(|place| view.shows(place.label));
            assert_eq!(versions.newest(&view), shown.map(|place| place.id).max(), "seed {seed}");
        }
    }
}
