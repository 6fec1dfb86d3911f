//! The client's side of one consensus operation at one shard: which results count, and when they suffice.

use super::{Operations, fast_quorum, quorum};
use crate::small_map::SmallMap;
use crate::{Mutant, Mutants};
use std::collections::BTreeSet;

#[derive(Clone, Copy, Debug)]
pub(super) struct Answer<O: Operations> {
    pub(super) view: u64,
    result: O::Result,
    finalized: bool,
}

/// The result that is being finalized on the slow path.
#[derive(Clone, Debug)]
pub(super) struct Finalizing<O: Operations> {
    view: u64,
    result: O::Result,
    confirmed: BTreeSet<usize>,
}

/// Counts replies and confirmations. A new attempt needs a new tally.
#[derive(Clone, Debug)]
pub struct Tally<O: Operations> {
    members: usize,
    fast: usize,
    pub(super) answers: SmallMap<usize, Answer<O>, 3>,
    pub(super) finalizing: Option<Finalizing<O>>,
    succeeded: Option<O::Result>,
}

impl<O: Operations> Tally<O> {
    /// For an operation sent to `members` replicas.
    pub fn new(members: usize, mutants: Mutants) -> Self {
        Tally {
            members,
            fast: if mutants.has(Mutant::WrongQuorum) { quorum(members) } else { fast_quorum(members) },
            answers: SmallMap::default(),
            finalizing: None,
            succeeded: None,
        }
    }

    /// The highest view among the replies.
    pub fn view(&self) -> u64 {
        self.answers.values().map(|answer| answer.view).max().unwrap_or(0)
    }

    /// Takes the reply of replica `member`; a later one of the same replica replaces an earlier one.
    pub fn reply(&mut self, member: usize, view: u64, result: O::Result, finalized: bool) {
        if self.answers.get(&member).is_some_and(|answer| answer.view > view) {
            return;
        }
        self.answers.insert(member, Answer { view, result, finalized });
        if self.finalizing.as_ref().is_some_and(|finalizing| finalizing.view < self.view()) {
            // The view has ended: what was chosen in it is chosen anew from the new view's replies.
            self.finalizing = None;
        }
        self.count_fast();
    }

    fn count_fast(&mut self) {
        if self.succeeded.is_some() || self.finalizing.is_some() {
            return;
        }
        let results: Vec<O::Result> = self.results().map(|(_, result, _)| result).collect();
        let enough =
            |result: &&O::Result| results.iter().filter(|other| other == result).count() >= self.fast;
        self.succeeded = results.iter().find(enough).copied();
    }

    /// The replies of the highest view: replica, result, FINALIZED.
    pub fn results(&self) -> impl Iterator<Item = (usize, O::Result, bool)> {
        let view = self.view();
        let of_view = self.answers.iter().filter(move |(_, answer)| answer.view == view);
        of_view.map(|(member, answer)| (*member, answer.result, answer.finalized))
    }

    /// How many replicas have replied in the highest view.
    pub fn replied(&self) -> usize {
        self.results().count()
    }

    /// The result with which the operation succeeded.
    pub fn succeeded(&self) -> Option<O::Result> {
        self.succeeded
    }

    /// Until when a fast quorum may still come about, if each replica that has not replied in the highest view may do
    /// so until `until(member)`; `None` if no replies can complete one.
    pub fn fast_until<T: Ord>(&self, until: impl Fn(usize) -> T) -> Option<T> {
        let results: Vec<(usize, O::Result)> =
            self.results().map(|(member, result, _)| (member, result)).collect();
        let equal = |result: &O::Result| results.iter().filter(|(_, other)| other == result).count();
        let best = results.iter().map(|(_, result)| equal(result)).max().unwrap_or(0);
        let missing = (0..self.members).filter(|member| results.iter().all(|(replied, _)| replied != member));
        let mut until: Vec<T> = missing.map(until).collect();
        until.sort_unstable();
        // The latest of those that are needed.
        let needed = self.fast.saturating_sub(best).max(1);
        if needed > until.len() { None } else { Some(until.swap_remove(until.len() - needed)) }
    }

    /// True when f+1 replies of one view are there, so that the slow path may choose.
    pub fn may_choose(&self) -> bool {
        self.replied() >= quorum(self.members)
    }

    /// The chosen result and the view it was chosen in, while it is being finalized.
    pub fn finalizing(&self) -> Option<(u64, O::Result)> {
        self.finalizing.as_ref().map(|finalizing| (finalizing.view, finalizing.result))
    }

    /// Chooses a result for the slow path. From here on the fast path is closed in this view.
    pub fn finalize(&mut self, result: O::Result) {
        self.finalizing = Some(Finalizing { view: self.view(), result, confirmed: BTreeSet::new() });
    }

    /// Takes a confirmation of the original coordinator's Finalize.
    pub fn confirm(&mut self, member: usize, view: u64, result: O::Result) {
        let Some(finalizing) = &mut self.finalizing else { return };
        if finalizing.view == view && finalizing.result == result {
            finalizing.confirmed.insert(member);
            if finalizing.confirmed.len() >= quorum(self.members) && self.succeeded.is_none() {
                self.succeeded = Some(result);
            }
        }
    }
}
