//! Doing a run of effects of which some have not observed all before them.

use super::{DependencyVector, DependencyVectorOf, History, effect_of};
use crate::store::Stamp;
use datatypes::merge::{Origin, Performed, Replay, perform_plainly, stands_alone};
use datatypes::{Cell, Effect};
use std::borrow::Cow;

/// Where an effect stands, and what it observed.
#[derive(Clone, Copy)]
pub(super) struct Seen<S> {
    pub(super) stamp: S,
    pub(super) dependencies: DependencyVector<S>,
}

impl<S: Stamp> Origin for Seen<S> {
    fn group(&self) -> u16 {
        self.dependencies.group
    }

    fn observed(&self, earlier: &Self) -> bool {
        self.dependencies.shows(earlier.dependencies.group, &earlier.stamp)
    }
}

/// The latest effect of each group.
struct Latest<S>(Vec<(u16, S)>);

impl<S: Stamp> Latest<S> {
    fn note(&mut self, group: u16, stamp: S) {
        match self.0.iter_mut().find(|(known, _)| *known == group) {
            Some((_, latest)) => *latest = stamp.max(*latest),
            None => self.0.push((group, stamp)),
        }
    }

    /// True if who observed so much did not observe all.
    fn hides_some(&self, dependencies: DependencyVector<S>) -> bool {
        self.0.iter().any(|(group, latest)| !dependencies.shows(*group, latest))
    }
}

impl<S: Stamp> History<S> {
    /// Performs the effects from a place on that are shown, and then the stamped ones, on the state that the effects before
    /// the place make. Returns what each changed, and how many steps it took.
    pub(super) fn replay<'e>(
        &'e self,
        dependencies: DependencyVectorOf<S>,
        from: usize,
        cell: &mut Cell,
        shown: &dyn Fn(&S) -> bool,
        stamped: &[(S, Effect<'e>)],
    ) -> (Vec<Performed>, u64) {
        let of_run = self.entries.range(from..).filter(|entry| shown(&entry.stamp));
        let of_run = of_run.map(|entry| (entry.stamp, effect_of(entry)));
        let run: Vec<(S, Effect<'e>)> = of_run.chain(stamped.iter().cloned()).collect();
        let mut performed: Vec<Performed> = Vec::with_capacity(run.len());
        if run.is_empty() {
            return (performed, 0);
        }
        let mut latest = Latest(Vec::new());
        let mut begin = from;
        if run.iter().any(|(stamp, _)| self.may_hide_some(dependencies(stamp))) {
            // What all of the run observed is to them like what is forgotten; but where types meet it may come forth.
            begin = match self.mixes_types || cell.kind().is_some_and(|kind| Some(kind) != self.kind) {
                true => 0,
                false => self.needed_by(from, from, run.iter().map(|(stamp, _)| dependencies(stamp))),
            };
            for entry in self.entries.range(begin..from) {
                latest.note(dependencies(&entry.stamp).group, entry.stamp);
            }
        }
        let mut replay: Option<Replay<'e, Seen<S>>> = None;
        for (stamp, effect) in &run {
            let seen = Seen { stamp: *stamp, dependencies: dependencies(stamp) };
            let alone = stands_alone(cell, effect) || !latest.hides_some(seen.dependencies);
            let done = match &mut replay {
                Some(replay) => replay.perform(cell, seen, effect.clone()),
                None if alone => perform_plainly(cell, effect),
                None => {
                    let replay = replay.insert(self.replayed(dependencies, begin, from));
                    for ((stamp, effect), done) in run.iter().zip(&performed) {
                        let seen = Seen { stamp: *stamp, dependencies: dependencies(stamp) };
                        replay.pass(seen, effect.clone(), done.trace.clone().map(Cow::Owned));
                    }
                    replay.perform(cell, seen, effect.clone())
                }
            };
            latest.note(seen.dependencies.group, *stamp);
            performed.push(done);
        }
        let steps = (from - begin + run.len()) as u64 + replay.map_or(0, |replay| replay.steps());
        (performed, steps)
    }

    /// The effects from one place up to another, as ones that the state holds.
    fn replayed(&self, dependencies: DependencyVectorOf<S>, from: usize, to: usize) -> Replay<'_, Seen<S>> {
        let mut replay = Replay::default();
        for entry in self.entries.range(from..to) {
            let seen = Seen { stamp: entry.stamp, dependencies: dependencies(&entry.stamp) };
            replay.pass(seen, effect_of(entry), entry.trace.as_deref().map(Cow::Borrowed));
        }
        replay
    }
}
