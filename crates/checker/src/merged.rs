//! The state of a key that effects make of which some did not observe others (Corrections 75), as some transactions see it
//! one after the other.
//!
//! What a region's transactions see of a key mostly grows at its end. [`Merged`] keeps what it performed for the last of them,
//! takes back what does not belong to the next one, and goes on from there.

use crate::history::ObservedPlace;
use datatypes::merge::{Among, Performed, Trace, perform, perform_plainly, stands_alone};
use datatypes::{Cell, Effect, Patch, exchange};
use std::collections::BTreeMap;

/// See the module. Effects come in order of place.
#[derive(Default)]
pub(crate) struct Merged<'h> {
    cell: Cell,
    commits: Vec<ObservedPlace<'h>>,
    effects: Vec<Effect<'h>>,
    traces: Vec<Option<Trace>>,
    /// The latest place of each region.
    latest: BTreeMap<u16, u64>,
    /// For each effect the number of its writer, what takes it back, and the latest place of its region before it.
    undo: Vec<(usize, Patch, Option<u64>)>,
    steps: u64,
}

impl<'h> Merged<'h> {
    /// The state that is left.
    pub fn cell(&self) -> &Cell {
        &self.cell
    }

    /// How many effects were performed or taken back so far.
    #[cfg(test)]
    fn steps(&self) -> u64 {
        self.steps
    }

    /// Takes back what writers from this number on did.
    pub fn go_back(&mut self, writer: usize) {
        while let Some((_, mut patch, latest)) = self.undo.pop_if(|(last, ..)| *last >= writer) {
            exchange(&mut self.cell, &mut patch);
            self.effects.pop();
            self.traces.pop();
            if let Some(ObservedPlace { region, .. }) = self.commits.pop() {
                match latest {
                    Some(at) => self.latest.insert(region, at),
                    None => self.latest.remove(&region),
                };
            }
            self.steps += 1;
        }
    }

    /// Performs an effect of a writer, whose number is not below those of others.
    pub fn add(&mut self, writer: usize, commit: ObservedPlace<'h>, effect: &Effect<'h>) {
        self.commits.push(commit);
        self.effects.push(effect.clone());
        let hides = |(region, at): (&u16, &u64)| *region != commit.region && !commit.reaches(*region, *at);
        let Performed { patch, trace } = if stands_alone(&self.cell, effect) || !self.latest.iter().any(hides)
        {
            perform_plainly(&mut self.cell, effect)
        } else {
            let traces: Vec<Option<&Trace>> = self.traces.iter().map(Option::as_ref).chain([None]).collect();
            let sees = |later: usize, earlier: usize| self.commits[later].observed(&self.commits[earlier]);
            perform(&mut self.cell, &Among { effects: &self.effects, traces: &traces, sees: &sees })
        };
        self.traces.push(trace);
        self.undo.push((writer, patch, self.latest.insert(commit.region, commit.at)));
        self.steps += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Claim, Commit};
    use datatypes::list::End;
    use datatypes::register::Deadline;
    use datatypes::stream::{Ids, StreamId};
    use datatypes::{Items, dict, list, register, set, stream};
    use types::Rng;

    /// A committed transaction of one of two regions that has observed the other one up to a place.
    fn claim(region: u16, at: u64, depends_on: u64) -> Claim {
        let commit = Some(Commit { at, depends_on, region });
        let (snapshot, vector, thread, effects, branch) = (None, None, None, Vec::new(), None);
        Claim { transaction: [1, 1, at], commit, snapshot, vector, thread, effects, branch }
    }

    fn effect(random: &mut Rng) -> Effect<'static> {
        let name: &[u8] = [&b"a"[..], b"b", b"c"][random.usize(..3)];
        let id = StreamId::new(random.u64(1..6), 0);
        match random.u32(..12) {
            0 => Effect::DELETE,
            1 => Effect::Set(set::Effect::Add { members: Items::one(name) }),
            2 => Effect::Set(set::Effect::Remove { members: Items::one(name) }),
            3 => Effect::Dict(dict::Effect::put(Items::two(name, b"1"))),
            4 => Effect::Dict(dict::Effect::Add { field: name, by: 1 }),
            5 | 6 => Effect::List(list::Effect::Push { end: End::Back, values: Items::one(name) }),
            7 => Effect::List(list::Effect::Pop { end: End::Front, count: 1 }),
            8 => Effect::Register(register::Effect::Add { by: 1 }),
            9 => Effect::Register(register::Effect::Set { value: name, deadline: Deadline::Clear }),
            10 => Effect::Stream(stream::Effect::Remove { ids: Ids::from_iter([id]), trims: true }),
            _ => {
                let items = Items::two(b"f", name);
                Effect::Stream(stream::Effect::Add { id, items, trimmed: Ids::none() })
            }
        }
    }

    fn add<'h>(merged: &mut Merged<'h>, writers: &'h [(Claim, Effect<'h>)], at: usize) {
        let (claim, effect) = &writers[at];
        merged.add(at, claim.place_among_concurrent().expect("it took place"), effect);
    }

    /// What is left after going back and on is what the same effects leave anew.
    #[test]
    fn going_back_leaves_nothing_behind() {
        for seed in 0..300 {
            let mut random = Rng::with_seed(seed);
            let writers: Vec<(Claim, Effect<'_>)> = (0..25)
                .map(|at| (claim(random.u16(..2), at + 1, random.u64(..=at)), effect(&mut random)))
                .collect();
            let (mut cached, mut seen) = (Merged::default(), Vec::new());
            for _ in 0..30 {
                let from = random.usize(..25);
                seen.retain(|at| *at < from);
                cached.go_back(from);
                for at in (from..25).filter(|_| random.u32(..3) > 0).collect::<Vec<_>>() {
                    add(&mut cached, &writers, at);
                    seen.push(at);
                }
                let mut anew = Merged::default();
                seen.iter().for_each(|at| add(&mut anew, &writers, *at));
                assert_eq!(cached.cell(), anew.cell(), "seed {seed}: {seen:?}");
            }
        }
    }

    /// Of two regions that see one another late, one sees all of its own.
    #[test]
    fn twice_the_history_takes_about_twice_the_steps() {
        const LATE: usize = 20;
        let steps = |count: usize| {
            let late = |at: u64| at.saturating_sub(LATE as u64);
            let addition = || Effect::Register(register::Effect::Add { by: 1 });
            let writers: Vec<(Claim, Effect<'_>)> =
                (0..count as u64).map(|at| (claim(at as u16 % 2, at + 1, late(at)), addition())).collect();
            let mut merged = Merged::default();
            for now in 0..count {
                let from = now.saturating_sub(LATE);
                merged.go_back(from);
                let is_seen = |at: &usize| *at == from || at.is_multiple_of(2);
                (from..=now).filter(is_seen).for_each(|at| add(&mut merged, &writers, at));
            }
            merged.steps()
        };
        let (once, twice) = (steps(200), steps(400));
        assert!(twice < once * 21 / 10, "{once}, then {twice}");
        assert!(once < 200 * 2 * LATE as u64, "{once}");
    }
}
