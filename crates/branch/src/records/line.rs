//! A line: one value of a key at its newest version there, and what takes it back to older ones. Or a fork of another line, with what
//! leads on from a version there: a large value that many go on from is not copied for each of them.

use super::lines::At;
use datatypes::{Cell, Effect, Patch, apply, exchange};
use std::collections::VecDeque;
use types::Reader;

/// More steps than these from a value to a version that is read, and it gets a value of its own.
pub(super) const LONG: usize = 8;

/// For how many more room is made where there are so many. Most keys have few versions, so by quarters, and not by doubling, nor
/// for four at once.
pub(super) fn growth(len: usize) -> usize {
    (len / 4).max(1)
}

/// What leads from one version back to the one before; on a fork, on from that one.
#[derive(Debug)]
struct Step {
    patch: Patch,
    /// How many places and forks are at the version; without any the step is only passed through.
    readers: u32,
}

/// What leads from a line's newest version to its oldest.
#[derive(Debug, Default)]
struct Steps {
    /// To each version but the oldest.
    all: VecDeque<Step>,
    /// How many of these nobody reads.
    unread: usize,
}

/// Where a line's values come from.
#[derive(Debug)]
enum Base {
    /// Its newest version is this.
    Value(Cell),
    /// Its oldest is this version of that line.
    Fork { line: u32, version: u32 },
}

/// The versions of a key along one path of the State DAG. A version is named by its number on the line; numbers go round.
#[derive(Debug)]
pub(super) struct Line {
    base: Base,
    /// The number of the oldest version, and its readers; on a fork it has none.
    oldest: u32,
    oldest_readers: u32,
    /// Most keys have one version, and need no memory for others.
    steps: Option<Box<Steps>>,
}

/// Performs effects in their binary form; returns what takes them back.
pub(super) fn perform<'e>(cell: &mut Cell, effects: impl Iterator<Item = &'e [u8]>) -> Patch {
    let mut patches = effects
        .filter_map(|bytes| Effect::decode(&mut Reader::new(bytes)).ok())
        .map(|effect| apply::<true>(cell, &effect));
    let first = patches.next().unwrap_or(Patch::Nothing);
    match patches.next() {
        None => first,
        Some(second) => Patch::Many([first, second].into_iter().chain(patches).collect()),
    }
}

impl Line {
    /// A line whose only version is this, with so many readers.
    pub fn new(cell: Cell, readers: u32) -> Self {
        Line { base: Base::Value(cell), oldest: 0, oldest_readers: readers, steps: None }
    }

    /// A line without versions that goes on from one of another line.
    pub fn fork((line, version): At) -> Self {
        Line { base: Base::Fork { line, version }, oldest: 0, oldest_readers: 0, steps: None }
    }

    /// The line and the version that it goes on from.
    pub fn fork_of(&self) -> Option<At> {
        match self.base {
            Base::Value(_) => None,
            Base::Fork { line, version } => Some((line, version)),
        }
    }

    /// Goes on from an equal version elsewhere.
    pub fn move_to(&mut self, (line, version): At) {
        self.base = Base::Fork { line, version };
    }

    /// Its newest value, if it is no fork.
    pub fn cell(&self) -> Option<&Cell> {
        match &self.base {
            Base::Value(cell) => Some(cell),
            Base::Fork { .. } => None,
        }
    }

    /// The same, taken out.
    pub fn into_cell(self) -> Option<Cell> {
        match self.base {
            Base::Value(cell) => Some(cell),
            Base::Fork { .. } => None,
        }
    }

    /// The same, to be gone back and forth with.
    pub fn cell_mut(&mut self) -> Option<&mut Cell> {
        match &mut self.base {
            Base::Value(cell) => Some(cell),
            Base::Fork { .. } => None,
        }
    }

    /// The number of the newest version.
    pub fn newest(&self) -> u32 {
        self.oldest.wrapping_add(self.steps().len() as u32)
    }

    /// How many steps a version is from where the line's values come from.
    pub fn distance(&self, version: u32) -> usize {
        match self.base {
            Base::Value(_) => self.newest().wrapping_sub(version) as usize,
            Base::Fork { .. } => self.before(version),
        }
    }

    /// How many versions are older.
    fn before(&self, version: u32) -> usize {
        version.wrapping_sub(self.oldest) as usize
    }

    fn steps(&self) -> impl ExactSizeIterator<Item = &Step> {
        self.steps.as_deref().map_or_else(Default::default, |steps| steps.all.iter())
    }

    /// Takes a value from where the line's values come from to a version.
    pub fn go(&mut self, cell: &mut Cell, version: u32) {
        let (place, is_fork) = (self.before(version), self.fork_of().is_some());
        let Some(steps) = &mut self.steps else { return };
        match is_fork {
            true => steps.all.range_mut(..place).for_each(|step| exchange(cell, &mut step.patch)),
            false => steps.all.range_mut(place..).rev().for_each(|step| exchange(cell, &mut step.patch)),
        }
    }

    /// Takes it back.
    pub fn go_back(&mut self, cell: &mut Cell, version: u32) {
        let (place, is_fork) = (self.before(version), self.fork_of().is_some());
        let Some(steps) = &mut self.steps else { return };
        match is_fork {
            true => steps.all.range_mut(..place).rev().for_each(|step| exchange(cell, &mut step.patch)),
            false => steps.all.range_mut(place..).for_each(|step| exchange(cell, &mut step.patch)),
        }
    }

    /// Makes a new version that somebody reads, which this patch leads to or from; returns its number.
    pub fn extend(&mut self, patch: Patch) -> u32 {
        let Steps { all, .. } = &mut **self.steps.get_or_insert_default();
        if all.len() == all.capacity() {
            all.reserve_exact(growth(all.len()));
        }
        all.push_back(Step { patch, readers: 1 });
        self.newest()
    }

    fn readers_mut(&mut self, version: u32) -> Option<&mut u32> {
        match self.before(version).checked_sub(1) {
            None => Some(&mut self.oldest_readers),
            Some(place) => self.steps.as_mut()?.all.get_mut(place).map(|step| &mut step.readers),
        }
    }

    /// One more view reads a version that another view reads.
    pub fn hold(&mut self, version: u32) {
        if let Some(readers) = self.readers_mut(version) {
            *readers += 1;
        }
    }

    /// One less reads a version. Returns false when nothing is left of the line.
    pub fn forget(&mut self, version: u32) -> bool {
        let is_oldest = version == self.oldest;
        let Some(readers) = self.readers_mut(version).filter(|readers| **readers > 0) else {
            debug_assert!(false, "what is forgotten was read");
            return true;
        };
        *readers -= 1;
        if *readers > 0 {
            return true;
        }
        match is_oldest {
            true => self.drop_oldest(),
            false => self.drop_newest(),
        }
    }

    /// Drops the oldest unread versions. The newest is read, so this ends there at the latest.
    fn drop_oldest(&mut self) -> bool {
        let Some(Steps { all, unread }) = self.steps.as_deref_mut() else { return false };
        while let Some(step) = all.pop_front() {
            (self.oldest, self.oldest_readers) = (self.oldest.wrapping_add(1), step.readers);
            if step.readers > 0 {
                break;
            }
            *unread -= 1;
        }
        self.shrink();
        true
    }

    /// One more version is unread: drops the newest unread ones.
    fn drop_newest(&mut self) -> bool {
        let Some(Steps { all, unread }) = self.steps.as_deref_mut() else { return true };
        *unread += 1;
        while all.back().is_some_and(|step| step.readers == 0) {
            let Some(mut step) = all.pop_back() else { break };
            *unread -= 1;
            if let Base::Value(cell) = &mut self.base {
                exchange(cell, &mut step.patch);
            }
        }
        self.shrink();
        self.steps.is_some() || self.fork_of().is_none()
    }

    /// Gives back what is not needed once that is half of it.
    fn shrink(&mut self) {
        let Some(Steps { all, .. }) = self.steps.as_deref_mut() else { return };
        if all.is_empty() {
            self.steps = None;
        } else if all.len() <= all.capacity() / 2 {
            all.shrink_to_fit();
        }
    }

    /// A version before too many unread ones: it should get a line of its own.
    pub fn before_gap(&self) -> Option<u32> {
        if self.steps.as_ref().is_none_or(|steps| steps.unread <= LONG) || self.fork_of().is_some() {
            return None;
        }
        // Of many versions before it one after the other would get a line of its own: the record retains the steps
        // instead, until the versions are few.
        let (mut last, mut unread, mut read) = (self.oldest, 0, 1);
        for (place, step) in self.steps().enumerate() {
            if step.readers == 0 {
                unread += 1;
            } else if unread > LONG {
                return Some(last);
            } else {
                (last, unread, read) = (self.oldest.wrapping_add(place as u32 + 1), 0, read + 1);
                if read > LONG {
                    return None;
                }
            }
        }
        None
    }

    /// The bytes it occupies beyond its own size.
    pub fn memory(&self) -> usize {
        let value = self.cell().and_then(|cell| cell.value.as_ref()).map_or(0, datatypes::Value::memory);
        let own = |steps: &Steps| size_of::<Steps>() + steps.all.capacity() * size_of::<Step>();
        let patches = self.steps().map(|step| step.patch.memory());
        self.steps.as_deref().map_or(0, own) + value + patches.sum::<usize>()
    }

    /// Its versions and how many read each.
    pub fn readers(&self) -> impl Iterator<Item = (u32, u32)> {
        let all = std::iter::once(self.oldest_readers).chain(self.steps().map(|step| step.readers));
        all.enumerate().map(|(place, readers)| (self.oldest.wrapping_add(place as u32), readers))
    }
}
