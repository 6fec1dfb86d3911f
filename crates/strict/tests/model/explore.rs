//! Breadth-first search over the states of the whole system.

use crate::model::properties::{Known, Properties};
use crate::model::setup::Setup;
use crate::model::space::{Allowed, Hasher, Space};
use crate::model::symmetry::Symmetry;
use hashbrown::HashTable;
use std::hash::BuildHasher;

/// The most instances and the most requests of a model.
const INSTANCES: usize = 9;
const REQUESTS: usize = 4;

/// A state of the whole system.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct State {
    tuple: [u32; INSTANCES],
    before: [u8; REQUESTS],
    instances: u8,
}

impl State {
    /// The state of each instance.
    pub fn tuple(&self) -> &[u32] {
        &self.tuple[..usize::from(self.instances)]
    }

    /// By request: which others had been answered when its client sent it, a bit each.
    pub fn before(&self) -> &[u8] {
        &self.before
    }
}

/// How a search ended.
pub struct Outcome {
    /// Different states of the whole system that were visited.
    pub states: usize,
    /// How many there are of these, with those that differ in the names of replicas that are alike.
    pub named: usize,
    /// Different states of single instances.
    pub locals: usize,
    /// Every state within the bounds of the setup was visited.
    pub exhausted: bool,
    /// The first violation, with the steps to it.
    pub violation: Option<String>,
    /// States in which nothing more can happen within the bounds.
    pub last: Vec<State>,
    /// Some others.
    pub some: Vec<State>,
    pub space: Space,
    /// How many requests were answered with success, and how many with a conflict, in some state.
    pub answered: (usize, usize),
}

/// How a state was reached first.
struct Parent {
    state: u32,
    instance: u8,
    /// The instance's state after the step: that of one of its namesakes may stand for it in the visited set.
    local: u32,
}

/// A search in progress.
struct Search {
    space: Space,
    states: Vec<State>,
    parents: Vec<Parent>,
    table: HashTable<u32>,
}

impl Search {
    fn add(&mut self, state: State, parent: Parent) -> bool {
        let hash = Hasher::default().hash_one(state);
        let Search { states, table, .. } = self;
        if table.find(hash, |known| states[*known as usize] == state).is_some() {
            return false;
        }
        let id = states.len() as u32;
        states.push(state);
        table.insert_unique(hash, id, |known| Hasher::default().hash_one(states[*known as usize]));
        self.parents.push(parent);
        true
    }

    fn allowed(&self, state: &State, instance: usize) -> Allowed {
        let Setup { requests, restarts, .. } = &self.space.setup;
        let locals = || state.tuple().iter().map(|local| &self.space.locals[*local as usize]);
        let gateway = instance.checked_sub(self.space.setup.replicas());
        let answered: u32 =
            locals().flat_map(|local| &local.replies).fold(0, |bits, (index, _)| bits | 1 << index);
        let requests = requests.iter().enumerate().fold(0, |bits, (index, request)| {
            let ready = request.after.is_none_or(|other| answered & (1 << other) != 0);
            bits | u32::from(ready && gateway == Some(request.coordinator)) << index
        });
        let used =
            locals().fold((0, 0), |used, local| (used.0 + local.restarts.0, used.1 + local.restarts.1));
        let restart = (used.0 < restarts.0, used.1 < restarts.1);
        Allowed { requests, restart: if gateway.is_none() { restart } else { (false, false) } }
    }

    /// The state after an instance has come to another state of its own.
    fn after(&self, state: &State, instance: usize, local: u32) -> State {
        let mut next = *state;
        let old = &self.space.locals[state.tuple[instance] as usize];
        let new = &self.space.locals[local as usize];
        if new.requested != old.requested {
            let replies = state.tuple().iter().flat_map(|local| &self.space.locals[*local as usize].replies);
            let answered = replies.fold(0, |bits, (index, _)| bits | 1 << index);
            for index in 0..next.before.len() {
                if (new.requested & !old.requested) & (1 << index) != 0 {
                    next.before[index] = answered;
                }
            }
        }
        next.tuple[instance] = local;
        next
    }

    /// The steps to a state, for people.
    fn trace(&self, mut at: u32) -> String {
        let mut lines = Vec::new();
        while at != 0 {
            let Parent { state, instance, local } = self.parents[at as usize];
            let before = self.states[state as usize].tuple[usize::from(instance)];
            lines.push(self.space.describe(before, local));
            at = state;
        }
        lines.reverse();
        lines.iter().enumerate().map(|(n, line)| format!("{:>3}. {line}\n", n + 1)).collect()
    }
}

/// Visits every state within the bounds of the setup, or as many as `limit`, and checks the properties in each. Of states
/// that differ only in the names of replicas that are alike, one is visited; from line to line of a trace these may change
/// their names.
pub fn explore(setup: Setup, limit: usize) -> Outcome {
    explore_with(setup, limit, true)
}

/// The same; only if `reduced` one stands for all that differ in names.
pub fn explore_with(setup: Setup, limit: usize, reduced: bool) -> Outcome {
    let mut symmetry = Symmetry::new(&setup, reduced);
    let mut space = Space::new(setup);
    let instances = space.setup.instances();
    assert!(instances <= INSTANCES && space.setup.requests.len() <= REQUESTS, "a small model");
    let mut first = State { tuple: [0; INSTANCES], before: [0; REQUESTS], instances: instances as u8 };
    (0..instances).for_each(|instance| first.tuple[instance] = space.start(instance));
    let mut search = Search { space, states: Vec::new(), parents: Vec::new(), table: HashTable::new() };
    search.add(first, Parent { state: 0, instance: 0, local: 0 });
    let mut named = 1;
    let mut properties = Properties::default();
    let (mut at, mut last, mut some, mut violation) = (0, Vec::new(), Vec::new(), None);
    let mut available = Vec::new();
    'search: while at < search.states.len() && search.states.len() < limit {
        let state = search.states[at];
        let mut moved = false;
        for instance in 0..state.tuple().len() {
            search.space.available(state.tuple(), instance, &mut available);
            let allowed = search.allowed(&state, instance);
            for local in search.space.moves(state.tuple[instance], &available, allowed).iter().copied() {
                moved = true;
                let next = search.after(&state, instance, local);
                let (least, namesakes) = symmetry.least(&mut search.space, next.tuple());
                let mut representative = next;
                representative.tuple[..least.len()].copy_from_slice(&least);
                if !search.add(representative, Parent { state: at as u32, instance: instance as u8, local }) {
                    continue;
                }
                named += namesakes;
                let known = Known { space: &search.space, state: &next };
                if let Err(broken) = properties.check(&known, state.tuple[instance], local) {
                    violation = Some(format!("{broken}\n{}", search.trace(search.states.len() as u32 - 1)));
                    break 'search;
                }
            }
        }
        if !moved {
            last.push(state);
        }
        if at.is_power_of_two() {
            some.push(state);
        }
        at += 1;
    }
    Outcome {
        states: search.states.len(),
        named,
        locals: search.space.locals.len(),
        exhausted: at == search.states.len(),
        violation,
        last,
        some,
        answered: properties.answered(),
        space: search.space,
    }
}
