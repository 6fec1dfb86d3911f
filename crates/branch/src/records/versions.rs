//! The versions of one key: where each is visible, and on which line its value lies (TARDiS 6.1.3).

use super::line::{LONG, Line, growth, perform};
use super::places::{Place, Places};
use crate::StateId;
use crate::dag::{Label, View};
use datatypes::{Cell, exchange};
use smallvec::SmallVec;

/// What is larger is not copied for everybody who goes on from it, in bytes.
const LARGE: usize = 8 << 10;
/// So many lines may have as many empty slots among them.
const FEW: usize = 4;
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
        self.bring_near(place);
        let Place { line, version, .. } = self.places[place];
        view.meter().lookups(self.distance(line, version));
        self.with_version(line, version, read)
    }

    fn line(&mut self, line: u32) -> Option<&mut Line> {
        self.lines.get_mut(line as usize).and_then(Option::as_mut)
    }

    fn line_at(&self, line: u32) -> Option<&Line> {
        self.lines.get(line as usize).and_then(Option::as_ref)
    }

    /// The lines that a version's value comes through, from its own to one that is no fork, each with the version there.
    fn path(&self, line: u32, version: u32) -> impl Iterator<Item = (u32, u32)> {
        let above = |(line, _): &(u32, u32)| self.line_at(*line)?.fork_of();
        std::iter::successors(Some((line, version)), above)
    }

    /// How many steps a version is from a value.
    fn distance(&self, line: u32, version: u32) -> usize {
        let on_line = |(line, version)| self.line_at(line).map_or(0, |line| line.distance(version));
        self.path(line, version).map(on_line).sum()
    }

    /// Shows the value of a version to `read`, which leaves it as it was.
    fn with_version<R>(&mut self, line: u32, version: u32, read: impl FnOnce(&mut Cell) -> R) -> R {
        let path: SmallVec<[(u32, u32); 4]> = self.path(line, version).collect();
        let root = path.last().map_or(line, |(line, _)| *line);
        let Some(cell) = self.line(root).and_then(Line::cell_mut) else {
            debug_assert!(false, "a version that is read has a value");
            return read(&mut Cell::ABSENT.clone());
        };
        let mut cell = std::mem::replace(cell, Cell::ABSENT);
        for (line, version) in path.iter().rev() {
            self.line(*line).into_iter().for_each(|line| line.go(&mut cell, *version));
        }
        let answer = read(&mut cell);
        for (line, version) in &path {
            self.line(*line).into_iter().for_each(|line| line.go_back(&mut cell, *version));
        }
        if let Some(home) = self.line(root).and_then(Line::cell_mut) {
            *home = cell;
        }
        answer
    }

    /// A version that is far from its value gets a nearer one: one that all forks of a version have in common, if that is what is far.
    fn bring_near(&mut self, place: usize) {
        let Place { line, version, .. } = self.places[place];
        if self.distance(line, version) <= LONG {
            return;
        }
        match self.line_at(line).and_then(Line::fork_of) {
            Some((above, forked)) if self.distance(above, forked) > LONG / 2 => self.copy(above, forked),
            _ => self.copy(line, version),
        }
        self.shrink();
        self.bring_near(place);
    }

    /// Copies a version into a line of its own; whoever reads it reads it there.
    fn copy(&mut self, old: u32, version: u32) {
        let cell = self.with_version(old, version, |cell| cell.clone());
        let new = self.open(Line::new(cell, 0));
        let mut readers = 0;
        for place in self.places.iter_mut().filter(|place| (place.line, place.version) == (old, version)) {
            (place.line, place.version) = (new, 0);
            readers += 1;
        }
        for fork in self.lines.iter_mut().flatten().filter(|line| line.fork_of() == Some((old, version))) {
            fork.move_to(new, 0);
            readers += 1;
        }
        for _ in 0..readers {
            self.line(new).into_iter().for_each(|line| line.hold(0));
            self.forget_version(old, version);
        }
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

    /// One less reads a version, and if nothing is left of its line, what that is a fork of. A version that too many unread ones
    /// separate from the next on its line gets a line of its own.
    fn forget_version(&mut self, line: u32, version: u32) {
        let mut next = Some((line, version));
        while let Some((line, version)) = next.take() {
            if let Some(slot) = self.lines.get_mut(line as usize)
                && let Some(kept) = slot
                && !kept.forget(version)
            {
                next = kept.fork_of();
                *slot = None;
            }
            if let Some(before_gap) = self.line_at(line).and_then(Line::before_gap) {
                self.copy(line, before_gap);
            }
        }
    }

    /// Every version with its value, in the order of labels.
    pub fn each(&mut self, mut visit: impl FnMut(Label, StateId, &Cell)) {
        for place in 0..self.places.len() {
            let Place { label, id, line, version } = self.places[place];
            self.with_version(line, version, |cell| visit(label, id, cell));
        }
    }

    /// A version whose value is known, on a line of its own.
    pub fn restore(&mut self, label: Label, id: StateId, cell: Cell) {
        let line = self.open(Line::new(cell, 1));
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
                let mut cell = Cell::ABSENT;
                let _ = perform(&mut cell, effects);
                (self.open(Line::new(cell, 1)), 0)
            }
            Some(place) => {
                let line = self.line_to_extend(place);
                self.extend(line, effects)
            }
        };
        self.insert(Place { label, id, line, version });
    }

    /// The line that goes on from what a place shows: its own, if nothing does yet.
    fn line_to_extend(&mut self, place: usize) -> u32 {
        let Place { line, version, .. } = self.places[place];
        let (far, is_newest) = (self.distance(line, version), self.newest_on(line) == version);
        if is_newest && far < LONG {
            return line;
        }
        let root = self.path(line, version).last().and_then(|(line, _)| self.line_at(line));
        let value = root.and_then(Line::cell).and_then(|cell| cell.value.as_ref());
        if far < LONG && value.is_some_and(|value| value.memory() > LARGE) {
            self.line(line).into_iter().for_each(|line| line.hold(version));
            return self.open(Line::fork(line, version));
        }
        self.copy(line, version);
        self.shrink();
        self.line_to_extend(place)
    }

    fn newest_on(&self, line: u32) -> u32 {
        self.line_at(line).map_or(0, Line::newest)
    }

    /// Makes a version by these effects on top of the newest of a line.
    fn extend<'e>(&mut self, line: u32, effects: impl Iterator<Item = &'e [u8]>) -> (u32, u32) {
        let Some(newest) = self.line_at(line).map(Line::newest) else { return (line, 0) };
        let patch = match self.line(line).and_then(Line::cell_mut) {
            Some(cell) => perform(cell, effects),
            None => self.with_version(line, newest, |cell| {
                let mut patch = perform(cell, effects);
                exchange(cell, &mut patch);
                patch
            }),
        };
        (line, self.line(line).map_or(newest, |line| line.extend(patch)))
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
        let (Some(source), target) = (self.early_place_of(from), self.early_place_of(to)) else { return };
        let Some(target) = target else {
            let mut place = self.places.remove(source);
            place.label = to;
            self.insert(place);
            return;
        };
        let older = if self.places[source].id < self.places[target].id { source } else { target };
        let Place { line, version, .. } = self.places[older];
        if older == target {
            let newer = self.places[source];
            self.places[target] = Place { label: to, ..newer };
        }
        self.places.remove(source);
        self.forget_version(line, version);
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
        self.shrink();
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

    /// Gives back what is not needed.
    fn shrink(&mut self) {
        if let [Place { line, version, .. }] = self.places[..]
            && self.line_at(line).is_some_and(|line| line.fork_of().is_some())
        {
            self.copy(line, version);
        }
        while self.lines.last().is_some_and(Option::is_none) {
            self.lines.pop();
        }
        if self.lines.len() > FEW && self.lines.len() > 2 * self.places.len() {
            self.close_ranks();
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

    /// Gives lines the slots that are empty.
    fn close_ranks(&mut self) {
        let mut moved: Vec<u32> = Vec::with_capacity(self.lines.len());
        let mut next = 0;
        for line in &self.lines {
            moved.push(next);
            next += u32::from(line.is_some());
        }
        self.lines.retain(|line| line.is_some());
        for place in self.places.iter_mut() {
            place.line = moved[place.line as usize];
        }
        for line in self.lines.iter_mut().flatten() {
            if let Some((of, version)) = line.fork_of() {
                line.move_to(moved[of as usize], version);
            }
        }
    }

    /// True when no state sees anything here: one version, with a label that every state sees, that says the key is
    /// absent is as good as none.
    pub fn is_void(&self, seen_by_all: Label) -> bool {
        match &self.places[..] {
            [] => true,
            [only] if only.label == seen_by_all => self.lines[only.line as usize]
                .as_ref()
                .and_then(Line::cell)
                .is_none_or(|cell| cell.value.is_none()),
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
            let forks = self.lines.iter().flatten().filter_map(Line::fork_of);
            let forks = forks.filter(|(line, _)| *line as usize == number).map(|(_, version)| version);
            let mut readers: Vec<u32> = on_it.map(|place| place.version).chain(forks).collect();
            for (version, count) in line.readers() {
                let before = readers.len();
                readers.retain(|reader| *reader != version);
                assert_eq!(before - readers.len(), count as usize, "readers are counted");
            }
            assert!(readers.is_empty(), "versions are on their line");
            let (oldest, newest) = (line.readers().next(), line.readers().last());
            assert!(newest.is_some_and(|(_, readers)| readers > 0), "a newest version is read");
            assert!(
                line.fork_of().is_some() || oldest.is_some_and(|(_, readers)| readers > 0),
                "so is an oldest"
            );
            assert!(line.before_gap().is_none(), "gaps are closed");
        }
        let lines = |place: &Place| self.lines.get(place.line as usize).is_some_and(Option::is_some);
        assert!(self.places.iter().all(lines), "every version has a line");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dag::{Branches, Sight};
    use datatypes::Effect;
    use datatypes::scored_set::{self, ScoredItems};
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

    fn add(score: u32, member: u32) -> Box<[u8]> {
        let member = member.to_le_bytes();
        let items = ScoredItems::one(f64::from(score), &member);
        let mut bytes = Vec::new();
        Effect::ScoredSet(scored_set::Effect::Put { items }).encode(&mut bytes);
        bytes.into()
    }

    /// Versions of a small or a large value, each made on top of any other, are what they were made, whichever go meanwhile.
    #[test]
    fn versions_are_what_they_were_made() {
        for seed in 0..300 {
            let mut random = fastrand::Rng::with_seed(seed);
            let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
            let label = |number| Label { branch: number, sequence: 0 };
            let mut first = Cell::ABSENT;
            for member in 0..[3, 400][random.usize(..2)] {
                perform(&mut first, [&*add(0, member)].into_iter());
            }
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
                let sight = Sight::of(seen.iter().map(|branch| (*branch, 0)).collect());
                let effects: Vec<_> =
                    (0..random.usize(1..3)).map(|_| add(random.u32(1..5), random.u32(..600))).collect();
                let effects = || effects.iter().map(|effect| &**effect);
                perform(&mut cell, effects());
                versions.write(&sight.view(&branches), label(number), id(number), effects());
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
                    let sight = Sight::of(seen.iter().map(|branch| (*branch, 0)).collect());
                    versions.with(&sight.view(&branches), |found| assert_eq!(found, cell, "seed {seed}"));
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

    #[test]
    fn a_large_value_is_not_copied_for_everybody_who_goes_on_from_it() {
        let (mut cell, branches) = (Cell::ABSENT, Branches::new());
        (0..1_000).for_each(|member| drop(perform(&mut cell, [&*add(0, member)].into_iter())));
        let id = |number| StateId::made_by(number + 1, ProcessId(1), Incarnation(1));
        let label = |branch| Label { branch, sequence: 0 };
        let mut versions = Versions::default();
        versions.restore(label(0), id(0), cell);
        let once = versions.memory();
        for number in 1..=100 {
            let effects = [add(1, number as u32)];
            let (sight, effects) = (Sight::of(vec![(0, 0)]), effects.iter().map(|effect| &**effect));
            versions.write(&sight.view(&branches), label(number), id(number), effects);
        }
        assert!(versions.memory() < 2 * once, "{} and {once}", versions.memory());
        versions.retain(|label| label.branch == 7);
        versions.assert_consistent();
        assert_eq!(versions.lines.len(), 1);
        assert!(versions.lines.iter().flatten().all(|line| line.fork_of().is_none()));
    }
}
