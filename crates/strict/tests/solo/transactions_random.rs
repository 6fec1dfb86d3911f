//! Random transactions: the replies to a transaction are true at its snapshot, and when it commits a change, also at
//! its place after everything committed before.

use crate::solo::for_all;
use crate::solo::traffic::{Call, KEYS, Traffic, perform, traffic};
use crate::solo::world::{START_MILLIS, World, shown};
use datatypes::{Cell, Context, Operation, apply, dict, key, prepare, scored_set, set as sets};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::TestCaseResult;
use protocol::{Durability, Step};
use std::collections::BTreeMap;
use types::{ReplyBuf, Rng};

/// The cells of [`KEYS`], none of them expired.
type Cells = [Cell; KEYS.len()];

fn cells(world: &World) -> Cells {
    let mut cells = <Cells>::default();
    for (name, cell) in world.state() {
        if let Some(key) = KEYS.iter().position(|key| **key == *name) {
            cells[key] = if cell.is_expired(START_MILLIS) { Cell::ABSENT } else { cell };
        }
    }
    cells
}

/// Evaluates a call on the cells alone; the reply as text, and whether it had an effect.
fn evaluate(cells: &mut Cells, call: &Call) -> (String, bool) {
    let cell = &mut cells[call.key];
    let (mut reply, mut random) = (ReplyBuf::new(), Rng::with_seed(1));
    let unseen = call.operation.blind_effect().filter(|_| call.blind);
    let effect = unseen.clone().or_else(|| {
        let mut context = Context { now_millis: START_MILLIS, random: &mut random, site: None };
        prepare(cell, &call.operation, &mut context, &mut reply)
    });
    if let Some(effect) = &effect {
        apply::<false>(cell, effect);
    }
    if cell.is_expired(START_MILLIS) {
        *cell = Cell::ABSENT;
    }
    let error = reply.as_error().filter(|_| unseen.is_none());
    let reply = match error {
        Some(error) if call.blind => error.to_string(),
        None if call.blind => "OK".to_owned(),
        _ => shown(&reply),
    };
    (reply, effect.is_some())
}

/// What a transaction asks.
#[derive(Clone, Debug)]
enum Query {
    Call(Call),
    Keys,
    Flush,
}

impl Query {
    /// Evaluates it on the cells alone; the reply as text, and whether it had an effect.
    fn evaluate(&self, cells: &mut Cells) -> (String, bool) {
        match self {
            Query::Call(call) => evaluate(cells, call),
            Query::Keys => {
                let present = (0..KEYS.len()).filter(|key| cells[*key].value.is_some());
                let names: Vec<_> = present.map(|key| String::from_utf8_lossy(KEYS[key])).collect();
                (format!("[{}]", names.join(" ")), false)
            }
            Query::Flush => {
                *cells = Cells::default();
                ("OK".to_owned(), true)
            }
        }
    }

    fn ask(&self, world: &mut World, session: u64) -> String {
        match self {
            Query::Call(call) => world.within(session, call.keyed()),
            Query::Keys => world.operate(session, &[Step::Keys]),
            Query::Flush => world.operate(session, &[Step::Flush]),
        }
    }
}

struct Running {
    /// The snapshot with the transaction's own effects.
    seen: Cells,
    /// Its queries and the replies.
    replies: Vec<(Query, String)>,
    changes: bool,
}

/// A choice by chance cannot be compared, nor can a piece of a scan: where it ends depends on how the value came about.
fn is_random(call: &Call) -> bool {
    use {dict::Operation as D, scored_set::Operation as Z, sets::Operation as S};
    matches!(
        call.operation,
        Operation::Set(S::Pop { .. } | S::Random { .. } | S::Scan { .. })
            | Operation::Dict(D::Random { .. } | D::Scan { .. })
            | Operation::ScoredSet(Z::Random { .. } | Z::Scan { .. })
            | Operation::UidGenerator(_)
    )
}

/// A reply to compare. The order in which a set or a dict shows its elements tells only how it came about, which an
/// undone and redone state does not remember.
fn comparable(query: &Query, reply: &str) -> Vec<u8> {
    let mut bytes = reply.as_bytes().to_vec();
    let Query::Call(call) = query else {
        bytes.sort_unstable();
        return bytes;
    };
    let is_unordered = match &call.operation {
        Operation::Key(operation) => matches!(operation, key::Operation::Copy | key::Operation::Take),
        Operation::Set(operation) => matches!(operation, sets::Operation::Members),
        Operation::Dict(operation) => {
            use dict::Operation as O;
            matches!(operation, O::GetAll | O::Fields | O::Values)
        }
        _ => false,
    };
    if is_unordered {
        bytes.sort_unstable();
    }
    bytes
}

fn within(world: &mut World, running: &mut Running, session: u64, query: Query) -> TestCaseResult {
    let reply = query.ask(world, session);
    let (expected, changes) = query.evaluate(&mut running.seen);
    let same = comparable(&query, &reply) == comparable(&query, &expected);
    prop_assert!(same, "{:?} at the snapshot: {} instead of {}", query, reply, expected);
    running.changes |= changes;
    running.replies.push((query, reply));
    Ok(())
}

/// True if it committed.
fn commit(world: &mut World, running: &Running, session: u64) -> Result<bool, TestCaseError> {
    let mut present = cells(world);
    let reply = world.commit(session);
    if reply != "OK" {
        prop_assert!(reply.starts_with("CONFLICT "), "{}", reply);
        prop_assert!(running.changes, "a transaction that only read has no conflict");
        prop_assert_eq!(cells(world), present);
        return Ok(false);
    }
    if running.changes {
        for (query, reply) in &running.replies {
            let (again, _) = query.evaluate(&mut present);
            let same = comparable(query, reply) == comparable(query, &again);
            prop_assert!(same, "{:?} at the commit: {} instead of {}", query, reply, again);
        }
    }
    prop_assert_eq!(cells(world), present);
    Ok(true)
}

#[test]
fn transactions_take_place_at_one_point() {
    let (committed, conflicts) = (std::cell::Cell::new(0), std::cell::Cell::new(0));
    for_all(900, vec(traffic(), 20..90), |traffic| {
        let mut world = World::new(3, Durability::Written);
        let mut open: BTreeMap<u64, Running> = BTreeMap::new();
        for traffic in &traffic {
            match traffic {
                Traffic::Begin { session } => {
                    if perform(&mut world, traffic) == "OK" {
                        let (replies, changes) = (Vec::new(), false);
                        open.insert(*session, Running { seen: cells(&world), replies, changes });
                    }
                }
                Traffic::Within { session, call } if !is_random(call) => {
                    if let Some(running) = open.get_mut(session) {
                        within(&mut world, running, *session, Query::Call(call.clone()))?;
                    }
                }
                Traffic::Keys { session } | Traffic::FlushWithin { session } => {
                    if let Some(running) = open.get_mut(session) {
                        let is_keys = matches!(traffic, Traffic::Keys { .. });
                        let query = if is_keys { Query::Keys } else { Query::Flush };
                        within(&mut world, running, *session, query)?;
                    }
                }
                Traffic::Commit { session } => {
                    if let Some(running) = open.remove(session) {
                        let counter =
                            if commit(&mut world, &running, *session)? { &committed } else { &conflicts };
                        counter.set(counter.get() + 1);
                    }
                }
                Traffic::Abort { session } => {
                    perform(&mut world, traffic);
                    open.remove(session);
                }
                // Time stands still, so that deadlines are either over or not.
                Traffic::Within { .. } | Traffic::Idle { .. } => {}
                _ => drop(perform(&mut world, traffic)),
            }
        }
        prop_assert_eq!(World::recovered(3, &[], &world.log).state(), world.state());
        Ok(())
    });
    assert!(committed.get() > 300 && conflicts.get() > 100, "{} and {}", committed.get(), conflicts.get());
}
