//! Transactions that choose the states of a branch keyspace: the one that they read from, and the one that they commit below
//! (TARDiS 5.1).

use super::{Plan, Shape, Workload};
use crate::faults::Swarm;
use checker::{Constraint, Constraints};
use types::Rng;

/// Clients choose from so many of the newest states in replies.
const RECENT: u32 = 12;

impl Workload {
    pub(super) fn constrained(&mut self, wall: u64, swarm: &Swarm, random: &mut Rng) -> Plan {
        let read_only = random.u32(..6) == 0;
        let count = random.usize(1..=swarm.longest);
        let steps = (0..count).map(|_| self.step(read_only, wall, swarm, random)).collect();
        let (steps_per_request, give_up) = (random.usize(1..3), random.u32(..10) == 0);
        let shape = Shape::Interactive { read_only, steps_per_request, give_up };
        let constraints = Some(Constraints { begin: begin(random), end: end(random) });
        Plan { constraints, ..Plan::new(shape, steps) }
    }
}

fn state(random: &mut Rng) -> Constraint {
    Constraint::State(random.u32(..RECENT).to_string())
}

fn begin(random: &mut Rng) -> Option<Constraint> {
    let few = Constraint::Branching(random.usize(1..4));
    match random.u32(..8) {
        0 => None,
        1 => Some(Constraint::Any),
        2 => Some(Constraint::Ancestor),
        3 => Some(Constraint::Parent),
        4 => Some(state(random)),
        5 => Some(few),
        6 => Some(Constraint::All(vec![Constraint::Ancestor, few])),
        _ => Some(Constraint::Either(vec![Constraint::Parent, Constraint::Ancestor])),
    }
}

fn end(random: &mut Rng) -> Option<Constraint> {
    let few = Constraint::Branching(random.usize(1..4));
    match random.u32(..12) {
        0 => None,
        1 => Some(Constraint::Any),
        2 => Some(Constraint::Serializability),
        3 => Some(Constraint::SnapshotIsolation),
        4 => Some(Constraint::ReadCommitted),
        5 => Some(Constraint::NoBranching),
        6 => Some(few),
        7 => Some(Constraint::Ancestor),
        8 => Some(Constraint::Parent),
        9 => Some(state(random)),
        10 => Some(Constraint::All(vec![Constraint::SnapshotIsolation, few])),
        _ => Some(Constraint::Either(vec![Constraint::Serializability, Constraint::NoBranching])),
    }
}

/// Puts states in the places of their numbers, of these, the newest last; where there are none, everything is admitted.
pub(crate) fn with_states(constraints: &Constraints, states: &[String]) -> Constraints {
    let resolved = |constraint: &Constraint| resolve(constraint, states);
    Constraints {
        begin: constraints.begin.as_ref().map(resolved),
        end: constraints.end.as_ref().map(resolved),
    }
}

fn resolve(constraint: &Constraint, states: &[String]) -> Constraint {
    let each = |constraints: &[Constraint]| constraints.iter().map(|one| resolve(one, states)).collect();
    match constraint {
        Constraint::State(number) => {
            // One that is done again has its state.
            let Ok(number) = number.parse::<usize>() else { return constraint.clone() };
            let known = states.len().checked_sub(1).map(|last| &states[last - number.min(last)]);
            known.map_or(Constraint::Any, |state| Constraint::State(state.clone()))
        }
        Constraint::All(all) => Constraint::All(each(all)),
        Constraint::Either(some) => Constraint::Either(each(some)),
        one => one.clone(),
    }
}
