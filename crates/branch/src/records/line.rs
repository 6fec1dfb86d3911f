//! A line: one value of a key at its newest version there, and what takes it back to older ones.

use datatypes::{Cell, Effect, Patch, apply, exchange};
use smallvec::SmallVec;
use std::collections::VecDeque;
use types::Reader;

/// More versions than these between two that are read, and the older one gets a line of its own.
pub(super) const LONG: usize = 8;

/// For how many more room is made where there are so many. Most keys have few versions, so by halves, and not by doubling, nor
/// for four at once.
pub(super) fn growth(len: usize) -> usize {
    (len / 2).max(1)
}

/// What leads from one version back to the one before.
#[derive(Debug)]
struct Step {
    patches: SmallVec<[Patch; 1]>,
    /// False when no version is here any more: the step is only passed through.
    is_read: bool,
}

/// The versions of a key along one path of the State DAG. A version is named by its number on the line.
#[derive(Debug)]
pub(super) struct Line {
    cell: Cell,
    /// The number of the oldest version, and whether a version is there.
    oldest: u64,
    oldest_is_read: bool,
    /// To each of the newer ones. Most keys have none, and need no memory for it.
    steps: VecDeque<Step>,
    /// How many numbers no version is at.
    unread: usize,
}

impl Line {
    /// A line whose only version is this.
    pub fn new(cell: Cell) -> Self {
        Line { cell, oldest: 0, oldest_is_read: true, steps: VecDeque::new(), unread: 0 }
    }

    /// The number of the newest version.
    pub fn newest(&self) -> u64 {
        self.oldest + self.steps.len() as u64
    }

    /// How many versions are newer.
    pub fn behind(&self, version: u64) -> usize {
        (self.newest() - version) as usize
    }

    /// The newest value.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Makes a new version by these effects, in their binary form; returns its number.
    pub fn extend<'e>(&mut self, effects: impl Iterator<Item = &'e [u8]>) -> u64 {
        let cell = &mut self.cell;
        let patches = effects
            .filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
            .map(|effect| apply::<true>(cell, &effect))
            .collect();
        if self.steps.len() == self.steps.capacity() {
            self.steps.reserve_exact(growth(self.steps.len()));
        }
        self.steps.push_back(Step { patches, is_read: true });
        self.newest()
    }

    /// Shows an older value, or the newest, to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, version: u64, read: impl FnOnce(&mut Cell) -> R) -> R {
        let place = (version - self.oldest) as usize;
        for step in self.steps.range_mut(place..).rev() {
            step.patches.iter_mut().rev().for_each(|patch| exchange(&mut self.cell, patch));
        }
        let answer = read(&mut self.cell);
        for step in self.steps.range_mut(place..) {
            step.patches.iter_mut().for_each(|patch| exchange(&mut self.cell, patch));
        }
        answer
    }

    /// Nobody reads a version any more. Returns false when nothing is left of the line.
    pub fn forget(&mut self, version: u64) -> bool {
        let is_read = match (version - self.oldest).checked_sub(1) {
            None => Some(&mut self.oldest_is_read),
            Some(place) => self.steps.get_mut(place as usize).map(|step| &mut step.is_read),
        };
        if let Some(is_read) = is_read.filter(|is_read| **is_read) {
            *is_read = false;
            self.unread += 1;
        }
        while self.steps.back().is_some_and(|step| !step.is_read) {
            let Some(mut step) = self.steps.pop_back() else { break };
            self.unread -= 1;
            step.patches.iter_mut().rev().for_each(|patch| exchange(&mut self.cell, patch));
        }
        while !self.oldest_is_read {
            let Some(step) = self.steps.pop_front() else { return false };
            (self.oldest, self.oldest_is_read, self.unread) =
                (self.oldest + 1, step.is_read, self.unread - 1);
        }
        if self.steps.is_empty() {
            self.steps = VecDeque::new();
        }
        true
    }

    /// A version before too many that nobody reads: it should get a line of its own.
    pub fn before_gap(&self) -> Option<u64> {
        if self.unread <= LONG {
            return None;
        }
        let (mut last, mut unread) = (None, 0);
        let all = std::iter::once(self.oldest_is_read).chain(self.steps.iter().map(|step| step.is_read));
        for (version, is_read) in (self.oldest..).zip(all) {
            if !is_read {
                unread += 1;
            } else if unread > LONG {
                return last;
            } else {
                (last, unread) = (Some(version), 0);
            }
        }
        None
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let value = self.cell.value.as_ref().map_or(0, datatypes::Value::memory);
        let patches = self.steps.iter().flat_map(|step| step.patches.iter()).map(Patch::memory);
        self.steps.capacity() * size_of::<Step>() + value + patches.sum::<usize>()
    }

    /// How many versions it leads through.
    pub fn len(&self) -> usize {
        self.steps.len() + 1
    }
}
