//! A line: one value of a key at its newest version there, and what takes it back to older ones.

use datatypes::{Cell, Effect, Patch, apply, exchange};
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
    patch: Patch,
    /// False when no version is here any more: the step is only passed through.
    is_read: bool,
}

/// What leads back from a line's newest version, which is read, to its oldest, which is read too.
#[derive(Debug, Default)]
struct Steps {
    /// To each version but the oldest.
    all: VecDeque<Step>,
    /// How many numbers no version is at.
    unread: usize,
}

/// The versions of a key along one path of the State DAG. A version is named by its number on the line; numbers go round.
#[derive(Debug)]
pub(super) struct Line {
    cell: Cell,
    /// The number of the oldest version.
    oldest: u32,
    /// Most keys have one version, and need no memory for others.
    steps: Option<Box<Steps>>,
}

impl Line {
    /// A line whose only version is this.
    pub fn new(cell: Cell) -> Self {
        Line { cell, oldest: 0, steps: None }
    }

    /// The number of the newest version.
    pub fn newest(&self) -> u32 {
        self.oldest.wrapping_add(self.steps().count() as u32)
    }

    /// How many versions are newer.
    pub fn behind(&self, version: u32) -> usize {
        self.newest().wrapping_sub(version) as usize
    }

    /// How many versions are older.
    fn before(&self, version: u32) -> usize {
        version.wrapping_sub(self.oldest) as usize
    }

    fn steps(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.steps.as_deref().map_or_else(Default::default, |steps| steps.all.iter())
    }

    /// The newest value.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Makes a new version by these effects, in their binary form; returns its number.
    pub fn extend<'e>(&mut self, effects: impl Iterator<Item = &'e [u8]>) -> u32 {
        let cell = &mut self.cell;
        let mut patches = effects
            .filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
            .map(|effect| apply::<true>(cell, &effect));
        let first = patches.next().unwrap_or(Patch::Nothing);
        let patch = match patches.next() {
            None => first,
            Some(second) => Patch::Many([first, second].into_iter().chain(patches).collect()),
        };
        let Steps { all, .. } = &mut **self.steps.get_or_insert_default();
        if all.len() == all.capacity() {
            all.reserve_exact(growth(all.len()));
        }
        all.push_back(Step { patch, is_read: true });
        self.newest()
    }

    /// Shows an older value, or the newest, to `read`, which leaves it as it was.
    pub fn with<R>(&mut self, version: u32, read: impl FnOnce(&mut Cell) -> R) -> R {
        let place = self.before(version);
        let Some(steps) = &mut self.steps else { return read(&mut self.cell) };
        for step in steps.all.range_mut(place..).rev() {
            exchange(&mut self.cell, &mut step.patch);
        }
        let answer = read(&mut self.cell);
        for step in steps.all.range_mut(place..) {
            exchange(&mut self.cell, &mut step.patch);
        }
        answer
    }

    /// Nobody reads a version any more. Returns false when nothing is left of the line.
    pub fn forget(&mut self, version: u32) -> bool {
        let place = self.before(version).checked_sub(1);
        let Some(Steps { all, unread }) = self.steps.as_deref_mut() else { return false };
        if let Some(place) = place {
            if let Some(step) = all.get_mut(place).filter(|step| step.is_read) {
                step.is_read = false;
                *unread += 1;
            }
            while all.back().is_some_and(|step| !step.is_read) {
                let Some(mut step) = all.pop_back() else { break };
                *unread -= 1;
                exchange(&mut self.cell, &mut step.patch);
            }
        } else {
            // The newest is read, so this ends there at the latest.
            while let Some(step) = all.pop_front() {
                self.oldest = self.oldest.wrapping_add(1);
                if step.is_read {
                    break;
                }
                *unread -= 1;
            }
        }
        if all.is_empty() {
            self.steps = None;
        }
        true
    }

    /// A version before too many that nobody reads: it should get a line of its own.
    pub fn before_gap(&self) -> Option<u32> {
        if self.steps.as_ref().is_none_or(|steps| steps.unread <= LONG) {
            return None;
        }
        let (mut last, mut unread) = (self.oldest, 0);
        for (place, step) in self.steps().enumerate() {
            if !step.is_read {
                unread += 1;
            } else if unread > LONG {
                return Some(last);
            } else {
                (last, unread) = (self.oldest.wrapping_add(place as u32 + 1), 0);
            }
        }
        None
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let value = self.cell.value.as_ref().map_or(0, datatypes::Value::memory);
        let own = |steps: &Steps| size_of::<Steps>() + steps.all.capacity() * size_of::<Step>();
        let patches = self.steps().map(|step| step.patch.memory());
        self.steps.as_deref().map_or(0, own) + value + patches.sum::<usize>()
    }

    /// How many versions it leads through.
    pub fn len(&self) -> usize {
        self.steps().len() + 1
    }
}
