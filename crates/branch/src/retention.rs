//! What stays of the past to be read by id although nobody begins there: ceilings by policy (TARDiS 6.3), by count and by age.

use crate::StateId;
use crate::collect::above;
use crate::dag::{Bounds, Dag};
use std::collections::{BTreeSet, BinaryHeap, VecDeque};
use std::time::Duration;
use types::Instant;

/// How much of the past a keyspace keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keep {
    /// So many of the newest states besides the heads, which share them: a whole number for each.
    pub states: usize,
    /// Whatever was a head less than so long ago, to a sixteenth.
    pub time: Duration,
}

impl Keep {
    /// So many states, however old.
    pub const fn states(states: usize) -> Keep {
        Keep { states, time: Duration::ZERO }
    }
}

/// How often the site samples the heads during the retention time.
const SAMPLES: u32 = 16;

/// See the module.
#[derive(Debug)]
pub(crate) struct Retention {
    keep: Keep,
    /// Which states were heads, and when, since retention by age is in use.
    samples: VecDeque<(Instant, Vec<StateId>)>,
    /// The newest of them that are old enough: what is above them is older.
    aged: Vec<StateId>,
    /// The heads whose newest are still to be looked for, and how many of each stay.
    unruled: Vec<StateId>,
    share: usize,
    /// What their newest stand below.
    beyond: Vec<StateId>,
    /// What retention gives up.
    given_up: Bounds,
}

impl Retention {
    pub fn new(keep: Keep) -> Self {
        Retention {
            keep,
            samples: VecDeque::new(),
            aged: Vec::new(),
            unruled: Vec::new(),
            share: 0,
            beyond: Vec::new(),
            given_up: Bounds::default(),
        }
    }

    pub fn alter(&mut self, keep: Keep) {
        self.keep = keep;
        if keep.time.is_zero() {
            (self.samples, self.aged) = (VecDeque::new(), Vec::new());
        }
    }

    /// It is that late. Returns true if the states retained by age have changed.
    pub fn tell_time(&mut self, dag: &Dag, now: Instant) -> bool {
        let Keep { time, .. } = self.keep;
        let last = self.samples.back().map(|(at, _)| *at);
        if time.is_zero() || last.is_some_and(|last| now - last < time / SAMPLES) {
            return false;
        }
        self.samples.push_back((now, dag.heads().map(|head| dag.id(head)).collect()));
        let aged = self.samples.iter().take_while(|(at, _)| now - *at >= time).count();
        if let Some((_, heads)) = self.samples.drain(..aged).next_back() {
            self.aged = heads;
        }
        aged > 0
    }

    /// Begins to look for retained states; [`Retention::step`] continues until the search is complete.
    pub fn set_out(&mut self, dag: &Dag) {
        self.beyond.clear();
        self.unruled = dag.heads().map(|head| dag.id(head)).collect();
        self.share = self.keep.states / self.unruled.len().max(1);
    }

    /// True while it is being looked for.
    pub fn is_looking(&self) -> bool {
        !self.unruled.is_empty()
    }

    /// Looks for one head's; `None` when that was the last before. Returns how many states it looked at.
    pub fn step(&mut self, dag: &Dag) -> Option<usize> {
        let work = self.rule(dag, self.unruled.last().copied()?);
        self.unruled.pop();
        if self.unruled.is_empty() {
            let beyond: Vec<_> = self.beyond.drain(..).filter_map(|id| dag.node(id)).collect();
            self.given_up = dag.seen_together(&beyond);
            if !self.keep.time.is_zero() {
                self.given_up = self.given_up.and(&above(dag, &self.aged));
            }
        }
        Some(work)
    }

    /// The states that the last search found not to be retained.
    pub fn given_up(&self) -> &Bounds {
        &self.given_up
    }

    /// What retention gives up of what a state sees that is, or was, a head: all but the newest. Returns how many
    /// states it looked at.
    fn rule(&mut self, dag: &Dag, head: StateId) -> usize {
        let Some(head) = dag.node(head).filter(|_| dag.len() > self.share) else { return 0 };
        let (mut waiting, mut met) = (BinaryHeap::from([(dag.id(head), head)]), BTreeSet::new());
        let (mut left, mut work) = (self.share.saturating_add(1), 0);
        while left > 0
            && let Some((_, node)) = waiting.pop()
        {
            (left, work) = (left - 1, work + 1);
            for parent in dag.parents(node) {
                // What has one child is met once.
                if dag.children(*parent).len() < 2 || met.insert(*parent) {
                    waiting.push((dag.id(*parent), *parent));
                }
            }
        }
        self.beyond.extend(waiting.into_iter().map(|(id, _)| id));
        work
    }
}
