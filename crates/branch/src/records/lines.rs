//! The lines of a key: those with a value, and those that are forks of another one.

use super::line::{LONG, Line, growth, perform};
use datatypes::{Cell, Value, exchange};
use smallvec::SmallVec;
use std::collections::BTreeMap;

/// What is larger is not copied for everybody who goes on from it, in bytes.
const LARGE: usize = 8 << 10;

/// A version: on which line it is, and its number there.
pub(super) type At = (u32, u32);

/// See the module. They are named by their slots.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Empty slots are taken again.
    all: Vec<Option<Line>>,
}

impl Lines {
    fn get(&self, line: u32) -> Option<&Line> {
        self.all.get(line as usize).and_then(Option::as_ref)
    }

    fn get_mut(&mut self, line: u32) -> Option<&mut Line> {
        self.all.get_mut(line as usize).and_then(Option::as_mut)
    }

    /// A line's newest value, if it is no fork.
    pub fn cell(&self, line: u32) -> Option<&Cell> {
        self.get(line)?.cell()
    }

    /// The newest values of lines that are no forks.
    pub fn cells(&self) -> impl Iterator<Item = &Cell> {
        self.all.iter().flatten().filter_map(Line::cell)
    }

    /// What a line is a fork of.
    pub fn fork_of(&self, line: u32) -> Option<At> {
        self.get(line)?.fork_of()
    }

    /// The lines that a version's value comes through, from its own to one that is no fork, each with the version there.
    fn path(&self, at: At) -> impl Iterator<Item = At> {
        std::iter::successors(Some(at), |(line, _)| self.fork_of(*line))
    }

    /// How many steps a version is from a value.
    pub fn distance(&self, at: At) -> usize {
        self.path(at).map(|(line, version)| self.get(line).map_or(0, |line| line.distance(version))).sum()
    }

    /// Shows the value of a version to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, at: At, read: impl FnOnce(&mut Cell) -> R) -> R {
        let path: SmallVec<[At; 4]> = self.path(at).collect();
        let root = path.last().map_or(at.0, |(line, _)| *line);
        let Some(cell) = self.get_mut(root).and_then(Line::cell_mut) else {
            debug_assert!(false, "a version that is read has a value");
            return read(&mut Cell::ABSENT.clone());
        };
        let mut cell = std::mem::replace(cell, Cell::ABSENT);
        for (line, version) in path.iter().rev() {
            self.get_mut(*line).into_iter().for_each(|line| line.go(&mut cell, *version));
        }
        let answer = read(&mut cell);
        for (line, version) in &path {
            self.get_mut(*line).into_iter().for_each(|line| line.go_back(&mut cell, *version));
        }
        if let Some(home) = self.get_mut(root).and_then(Line::cell_mut) {
            *home = cell;
        }
        answer
    }

    /// A line of its own for a value; returns the version.
    pub fn open(&mut self, cell: Cell, readers: u32) -> At {
        (self.put(Line::new(cell, readers)), 0)
    }

    fn put(&mut self, line: Line) -> u32 {
        let free = self.all.iter().position(Option::is_none);
        let slot = free.unwrap_or_else(|| {
            if self.all.len() == self.all.capacity() {
                self.all.reserve_exact(growth(self.all.len()));
            }
            self.all.push(None);
            self.all.len() - 1
        });
        self.all[slot] = Some(line);
        slot as u32
    }

    /// True if a version can be made on top of this one without copying it: it is the newest of its line, or large.
    pub fn may_go_on(&self, at: At) -> bool {
        self.distance(at) < LONG && (self.is_newest(at) || self.is_large(at))
    }

    /// The value that a version's comes from.
    fn root(&self, at: At) -> Option<&Value> {
        self.path(at).last().and_then(|(line, _)| self.cell(line)?.value.as_ref())
    }

    /// True if a version's value comes from one of a kind that has elements.
    pub fn is_collection(&self, at: At) -> bool {
        matches!(self.root(at), Some(Value::Set(_) | Value::Dict(_) | Value::ScoredSet(_)))
    }

    fn is_newest(&self, (line, version): At) -> bool {
        self.get(line).is_some_and(|line| line.newest() == version)
    }

    fn is_large(&self, at: At) -> bool {
        self.root(at).is_some_and(|value| value.memory() > LARGE)
    }

    /// Makes a version by these effects on top of another one.
    pub fn go_on<'e>(&mut self, at: At, effects: impl Iterator<Item = &'e [u8]>) -> At {
        if self.is_newest(at) {
            return self.extend(at.0, effects);
        }
        self.hold(at);
        let fork = self.put(Line::fork(at));
        self.extend(fork, effects)
    }

    /// Makes a version on top of the newest of a line.
    fn extend<'e>(&mut self, line: u32, effects: impl Iterator<Item = &'e [u8]>) -> At {
        let Some(newest) = self.get(line).map(Line::newest) else { return (line, 0) };
        let patch = match self.get_mut(line).and_then(Line::cell_mut) {
            Some(cell) => perform(cell, effects),
            None => self.with((line, newest), |cell| {
                let mut patch = perform(cell, effects);
                exchange(cell, &mut patch);
                patch
            }),
        };
        (line, self.get_mut(line).map_or(newest, |line| line.extend(patch)))
    }

    /// One more reads a version.
    pub fn hold(&mut self, (line, version): At) {
        self.get_mut(line).into_iter().for_each(|line| line.hold(version));
    }

    /// One less reads a version. If nothing is left of its line, that goes; returns what it was a fork of, which has one reader less.
    pub fn release(&mut self, (line, version): At) -> Option<At> {
        let slot = self.all.get_mut(line as usize)?;
        let line = slot.as_mut()?;
        if line.forget(version) {
            return None;
        }
        let fork_of = line.fork_of();
        *slot = None;
        fork_of
    }

    /// The forks of one version become forks of an equal one; returns how many.
    pub fn move_forks(&mut self, from: At, to: At) -> usize {
        let forks = self.all.iter_mut().flatten().filter(|line| line.fork_of() == Some(from));
        forks.map(|fork| fork.move_to(to)).count()
    }

    /// A version of a line before too many that nobody reads: it should get a line of its own.
    pub fn before_gap(&self, line: u32) -> Option<At> {
        Some((line, self.get(line)?.before_gap()?))
    }

    /// Takes the value out of a line that nothing is left of but its newest version.
    pub fn take(&mut self, line: u32) -> Option<Cell> {
        self.all.get_mut(line as usize)?.take()?.into_cell()
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Gives up the last slots that are empty.
    pub fn trim(&mut self) {
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
        }
        if self.all.len() <= self.all.capacity() / 2 {
            self.all.shrink_to_fit();
        }
    }

    /// Gives up all slots that are empty; returns by its old slot where each line is now.
    pub fn close_ranks(&mut self) -> Vec<u32> {
        let mut moved: Vec<u32> = Vec::with_capacity(self.all.len());
        let mut next = 0;
        for line in &self.all {
            moved.push(next);
            next += u32::from(line.is_some());
        }
        self.all.retain(|line| line.is_some());
        for line in self.all.iter_mut().flatten() {
            if let Some((of, version)) = line.fork_of() {
                line.move_to((moved[of as usize], version));
            }
        }
        self.trim();
        moved
    }

    /// The bytes they occupy beyond their own size.
    pub fn memory(&self) -> usize {
        self.all.capacity() * size_of::<Option<Line>>()
            + self.all.iter().flatten().map(Line::memory).sum::<usize>()
    }

    /// Panics unless the readers of all versions are these places and the forks.
    pub fn assert_consistent(&self, places: &[At]) {
        let forks = self.all.iter().flatten().filter_map(Line::fork_of);
        let mut readers: BTreeMap<At, u32> = BTreeMap::new();
        places.iter().copied().chain(forks).for_each(|at| *readers.entry(at).or_default() += 1);
        for (slot, line) in (0..).zip(&self.all) {
            let Some(line) = line else { continue };
            for (version, count) in line.readers() {
                assert_eq!(readers.remove(&(slot, version)).unwrap_or(0), count, "readers are counted");
            }
            let (oldest, newest) = (line.readers().next(), line.readers().last());
            assert!(newest.is_some_and(|(_, readers)| readers > 0), "a newest version is read");
            assert!(
                line.fork_of().is_some() || oldest.is_some_and(|(_, readers)| readers > 0),
                "so is an oldest"
            );
            assert!(line.before_gap().is_none(), "gaps are closed");
        }
        assert!(readers.is_empty(), "every version that is read is there");
    }
}
