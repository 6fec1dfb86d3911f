//! Models for the rarer bugs: most messages are lost, those that arrive lead to a place where a rule matters.
//! Instances 0 to 2 are the replicas, those after them the coordinators; the leader of view n is replica n mod 3.

use crate::model::models::{DYING, FAST, PUNCTUAL, SLOW, one};
use crate::model::setup::{Act, Setup};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Transactions};

const SET: &[(&str, Act)] = &[("a", Act::Set(1))];

fn ir(message: &Message) -> Option<&Ir<Transactions>> {
    match message {
        Message::Ir { message } => Some(message),
        _ => None,
    }
}

/// A write on the slow path, then a quorum read.
pub fn write_then_quorum_read() -> Setup {
    let mut setup = Setup { timers: 1, once: true, ..Setup::new(1) }
        .with(FAST, SET)
        .with(SLOW, &[("a", Act::Get)])
        .after(0);
    setup.options.quorum_reads = true;
    setup
}

/// Replicas say when they have executed an outcome.
pub fn acknowledged() -> Setup {
    Setup { timers: 1, acknowledgements: true, ..one(PUNCTUAL) }
}

/// A replica forgets its vote, and a backup coordinator asks it.
pub fn amnesia_and_backup() -> Setup {
    Setup { backups: vec![1], restarts: (0, 1), once: true, ..one(PUNCTUAL) }
}

/// The second transaction needs a second attempt, of which replica 0 never hears.
pub fn two_attempts() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { attempt, .. }) => to != 0 || (from == 4 && *attempt == 1),
        Some(Ir::Execute { group, .. }) => to != 0 && group.process.0 == 1,
        Some(Ir::CoordinatorChange { .. }) => to != 2,
        Some(Ir::Finalize { .. }) => from != 3 || to != 0,
        _ => true,
    };
    let setup = Setup { timers: 1, backups: vec![0], once: true, routes: Some(arrives), ..Setup::new(1) };
    setup.with(FAST, SET).with(SLOW, &[("a", Act::Set(2))]).after(0)
}

/// Replicas 0 and 1 confirm; view 1 begins with 1 and 2, view 2 with 2 and 0, which has not heard of view 1.
pub fn two_leaders() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { .. } | Ir::Finalize { .. }) => to != 2,
        Some(Ir::DoViewChange { view, .. }) => from == if *view == 1 { 2 } else { 0 },
        Some(Ir::StartView { .. }) => to == 2,
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    Setup { timers: 1, views: 2, once: true, routes: Some(arrives), ..one(PUNCTUAL) }
}

/// Replica 2 has a result of view 0 that view 1 decides otherwise, and leads view 2.
pub fn slept_through_a_view() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { .. }) => from == 4 || to == 0,
        Some(Ir::Finalize { view: 0, .. }) => to != 0,
        Some(Ir::DoViewChange { .. }) => from == 0,
        Some(Ir::StartView { view, .. }) => to == 0 && *view == 1,
        Some(Ir::StartViewChange { .. }) => to == 0,
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    let setup = Setup { timers: 1, views: 2, once: true, routes: Some(arrives), ..Setup::new(1) };
    setup.with(DYING, SET).with(PUNCTUAL, &[("a", Act::Set(2))])
}

/// A backup coordinator chooses in view 0, another in view 1.
pub fn late_choice() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::CoordinatorChange { ballot, .. }) => to != if ballot.round == 1 { 2 } else { 1 },
        Some(Ir::Finalize { ballot, .. }) => to != if ballot.round == 1 { 2 } else { 1 },
        Some(Ir::DoViewChange { .. }) => from == 2,
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    Setup { backups: vec![0, 2], views: 1, once: true, routes: Some(arrives), ..one(DYING) }
}

/// Two backup coordinators ask different replicas.
pub fn two_polls() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { .. }) => to != 2,
        Some(Ir::CoordinatorChange { .. }) => to != if from == 0 { 2 } else { 0 },
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    Setup { backups: vec![0, 1], once: true, routes: Some(arrives), ..one(DYING) }
}

/// The coordinator hears of a refusal, a backup coordinator of two acceptances.
pub fn refusal_and_backup() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { .. }) => from == 4 || to == 1,
        Some(Ir::Reply { .. }) => from != 2,
        Some(Ir::CoordinatorChange { .. }) => to != 1,
        Some(Ir::Finalize { ballot, .. }) => ballot.round > 0 && to != 1,
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    let setup = Setup { backups: vec![0], once: true, routes: Some(arrives), ..Setup::new(1) };
    setup.with(DYING, SET).with(PUNCTUAL, &[("a", Act::Set(2))])
}

/// Everybody refuses, then what stood in the way ends, then the view changes.
pub fn refusal_and_view() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::DoViewChange { .. }) => from == 0,
        Some(Ir::Execute { .. }) => to == 1,
        Some(Ir::Finalize { .. }) => false,
        _ => true,
    };
    let setup = Setup { views: 1, once: true, routes: Some(arrives), ..Setup::new(1) };
    setup.with(SLOW, SET).with(FAST, &[("a", Act::Set(2))])
}

/// A refusal is finalized before any attempt was seen; replica 2 has seen one.
pub fn promise_and_view() -> Setup {
    let arrives = |from, to, message: &Message| match ir(message) {
        Some(Ir::Propose { .. }) => to != 1,
        Some(Ir::CoordinatorChange { .. } | Ir::Finalize { .. }) => to != 2,
        Some(Ir::DoViewChange { .. }) => from == 2,
        Some(Ir::Execute { .. }) => false,
        _ => true,
    };
    Setup { backups: vec![0], views: 1, once: true, routes: Some(arrives), ..one(DYING) }
}
