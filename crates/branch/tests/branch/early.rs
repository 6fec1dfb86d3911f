//! Optimistic collection (TARDiS 6.4): what goes without the promise of a site that is not heard comes back as it was
//! (Corrections 54).

use crate::model::{World, add, encoded, key, options, set};
use anabranch_branch::{Commit, Effects, Mutant, Mutants, Options, Owner, StateId};
use datatypes::Effect;
use mvcc::CompactKey;
use std::collections::BTreeSet;
use types::{Incarnation, Instant, ProcessId, Rng};

/// The site that is not heard.
const AWAY: ProcessId = ProcessId(7);
const HERE: ProcessId = ProcessId(1);
const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

/// A site, and what another one may do that it does not hear.
struct Cut {
    world: World,
    random: Rng,
    /// What the other site promised.
    promised: Vec<StateId>,
    /// How often a state came back.
    back: usize,
}

impl Cut {
    fn new(seed: u64, mutants: Mutants) -> Self {
        let mut world = World::with(Options { mutants, ..options(1) });
        world.keyspace.place_ceiling(Owner::Site(AWAY), vec![StateId::ROOT]);
        world.keyspace.go_without(BTreeSet::from([AWAY]));
        Cut { world, random: Rng::with_seed(seed), promised: vec![StateId::ROOT], back: 0 }
    }

    fn take(&mut self, site: ProcessId, parents: Vec<StateId>, mut keys: BTreeSet<CompactKey>) -> Commit {
        // Above the parents, though not above all that is here already.
        let above = parents.iter().map(|parent| parent.number).max().unwrap_or_default();
        let made_by = |number| StateId::made_by(number, site, Incarnation(1));
        let free = |number: &u64| !self.world.model.states.contains_key(&made_by(*number));
        let number = (above + 1 + self.random.u64(..3)..).find(free).unwrap();
        for _ in 0..1 + self.random.usize(..2) {
            keys.insert(key(KEYS[self.random.usize(..KEYS.len())]));
        }
        let is_merge = parents.len() > 1;
        let mut write = |key: CompactKey| -> (CompactKey, Effects) {
            let effect = match self.random.u8(..6) {
                0 => encoded(&Effect::DELETE),
                1..4 if !is_merge && key[..] < b"c"[..] => add(self.random.i64(1..100)),
                _ => set(&number.to_string()),
            };
            (key, vec![effect])
        };
        let writes = keys.into_iter().map(&mut write).collect();
        Commit { id: made_by(number), parents, writes }
    }

    fn keep(&mut self, commit: Commit) {
        self.world.keyspace.retained_mut().insert(commit, Instant(0));
    }

    /// A transaction of this site at a state that it may begin at.
    fn write_here(&mut self) {
        let retained = self.world.retained();
        let window = retained.len().min(1 + self.random.usize(..4));
        let parent = retained[retained.len() - 1 - self.random.usize(..window)];
        let promised = self.world.keyspace.ceiling(Owner::Site(HERE)).to_vec();
        if promised.iter().any(|state| *state != parent && self.world.model.sees(parent, *state)) {
            return;
        }
        let commit = self.take(HERE, vec![parent], BTreeSet::new());
        self.world.apply(commit.clone());
        self.keep(commit);
    }

    fn merge_here(&mut self) {
        if self.world.merge().is_ok() {
            let commit = self.world.commits.last().unwrap().clone();
            self.keep(commit);
        }
    }

    /// Where the other site may begin.
    fn possible(&self) -> Vec<StateId> {
        let is_above = |state: &StateId| {
            self.promised.iter().any(|promised| promised != state && self.world.model.sees(*state, *promised))
        };
        self.world.model.states.keys().copied().filter(|state| !is_above(state)).collect()
    }

    /// What the other site made arrives: a transaction, or a merge.
    fn hear(&mut self) {
        let possible = self.possible();
        let mut parents: BTreeSet<StateId> = (0..1 + self.random.usize(..5) / 3)
            .map(|_| possible[self.random.usize(..possible.len())])
            .collect();
        parents = self.world.model.greatest(&parents);
        let parents: Vec<StateId> = parents.into_iter().collect();
        let conflicting = self.world.model.conflicting(&parents);
        let commit = self.take(AWAY, parents, conflicting);
        let early = commit.parents.iter().filter(|parent| self.world.keyspace.retained().is_early(**parent));
        self.back += early.count();
        self.world.apply(commit.clone());
        self.keep(commit);
    }

    fn promise(&mut self) {
        self.promised = self.world.keyspace.heads();
        self.world.keyspace.place_ceiling(Owner::Site(AWAY), self.promised.clone());
        self.world.keyspace.forget_early();
    }

    fn step(&mut self) {
        match self.random.u8(..24) {
            0..10 => self.write_here(),
            10..12 => self.merge_here(),
            12..15 => _ = self.world.keyspace.announce_ceiling(),
            15 | 16 => self.hear(),
            17 if self.random.u8(..3) == 0 => self.promise(),
            _ => _ = self.world.keyspace.collect(self.random.usize(..30)),
        }
    }

    /// The first difference to the model, of what is written between states too.
    fn difference(&mut self) -> Option<String> {
        self.world.keyspace.assert_consistent();
        let retained = self.world.retained();
        for (of, but) in retained.iter().flat_map(|of| retained.iter().map(move |but| (*of, *but))) {
            let found = self.world.keyspace.written_beyond(of, but).unwrap();
            let wanted = self.world.model.written_between(but, of);
            if found.iter().collect::<BTreeSet<_>>() != wanted.iter().collect() {
                return Some(format!("{of} wrote {found:?} beyond {but}, not {wanted:?}"));
            }
        }
        self.world.difference(&KEYS.map(key))
    }
}

#[test]
fn what_was_collected_early_comes_back_as_it_was() {
    let mut back = 0;
    let seeds = if crate::soaks() { 3000 } else { 8 };
    for seed in 0..seeds {
        let mut cut = Cut::new(seed, Mutants::default());
        for step in 0..120 {
            cut.step();
            if step % 3 == 0 {
                // Whatever is on its way out has gone when a checkpoint begins: write sets are whole.
                cut.world.keyspace.begin_checkpoint();
                cut.world.keyspace.end_checkpoint();
                assert_eq!(cut.difference(), None, "seed {seed}, step {step}");
            }
        }
        back += cut.back;
        // Both promise to go on from here: no site retains anything for another.
        cut.merge_here();
        cut.world.keyspace.announce_ceiling();
        cut.promise();
        while cut.world.keyspace.collect(1000) > 0 {}
        cut.promise();
        while cut.world.keyspace.collect(1000) > 0 {}
        assert_eq!(cut.world.keyspace.census().early, 0, "seed {seed}");
        assert_eq!(cut.world.retained().len(), 1, "seed {seed}");
        assert_eq!(cut.difference(), None, "seed {seed}");
    }
    assert!(back > seeds as usize, "{back} states came back");
}

#[test]
fn a_parent_that_was_collected_early_and_is_forwarded_loses_updates() {
    let is_caught = (0..20).any(|seed| {
        let mut cut = Cut::new(seed, Mutant::ForwardParents.into());
        (0..120).any(|_| {
            cut.step();
            cut.difference().is_some()
        })
    });
    assert!(is_caught);
}

/// A site writes on the same key again and again, and another one is not heard.
#[test]
fn states_stay_few_while_a_site_is_away() {
    let mut cut = Cut::new(1, Mutants::default());
    for _ in 0..2000 {
        let head = cut.world.keyspace.heads()[0];
        let commit = cut.take(HERE, vec![head], BTreeSet::from([key("a")]));
        assert_eq!(cut.world.keyspace.apply(&commit), Ok(true));
        cut.keep(commit);
        cut.world.keyspace.announce_ceiling();
        cut.world.keyspace.collect(20);
    }
    let census = cut.world.keyspace.census();
    assert!(census.states <= 4 && census.versions <= 20, "{census:?}");
    assert!(census.early > 1900, "{census:?}");
}
