//! What must hold in every state, and when everything has come to rest.

use crate::model::explore::State;
use crate::model::host::Known;
use crate::model::setup::{Act, Setup};
use crate::model::space::Space;
use std::collections::BTreeMap;
use types::{Timestamp, TransactionId};

/// What is known of each replica.
fn replicas<'s>(space: &'s Space, state: &'s State) -> impl Iterator<Item = (usize, &'s Known)> {
    let locals = state.locals[..space.setup.replicas()].iter();
    locals.map(|local| &space.locals[*local as usize].known).enumerate()
}

fn replies(space: &Space, state: &State) -> Vec<Option<Vec<String>>> {
    let mut replies = vec![None; space.setup.requests.len()];
    for local in &state.locals[space.setup.replicas()..] {
        for (request, own) in &space.locals[*local as usize].known.replies {
            replies[usize::from(*request)] = Some(own.clone());
        }
    }
    replies
}

/// How many requests are answered.
pub fn answered(space: &Space, state: &State) -> usize {
    replies(space, state).iter().flatten().count()
}

/// The values in replies to reading transactions, by request.
fn values(setup: &Setup, replies: &[Option<Vec<String>>]) -> Vec<Option<Vec<String>>> {
    let reads = replies.iter().zip(&setup.requests);
    reads.map(|(replies, request)| replies.clone().filter(|_| request.act == Act::Read)).collect()
}

/// Every transaction here writes one value to all of its keys, and those that read, read all of them: they see all of a
/// transaction or nothing.
fn is_whole(values: &[String]) -> bool {
    values.iter().all(|value| *value == values[0])
}

/// Checks a state that was come to from another one.
pub fn check(space: &Space, before: &State, after: &State) -> Result<(), String> {
    if let Some(refused) = &space.refused {
        return Err(refused.clone());
    }
    let setup = &space.setup;
    for ((instance, old), (_, new)) in replicas(space, before).zip(replicas(space, after)) {
        if new.moved {
            return Err(format!("a transaction has two places at {}", setup.address(instance)));
        }
        if new.published < old.published {
            return Err(format!("what {} says it has installed falls", setup.address(instance)));
        }
        let fresh = new.committed.iter().filter(|(id, _)| !old.committed.contains_key(*id));
        for (id, at) in fresh {
            placed_above(space, before, instance, *id, *at)?;
        }
    }
    delivered(space, after)?;
    let replies = replies(space, after);
    if !values(setup, &replies).iter().flatten().all(|values| is_whole(values)) {
        return Err(format!("clients were told {replies:?}"));
    }
    agreed(space, after)
}

/// Who reports to whom: itself, and all above it in the stabilization tree of its region.
fn with_those_above(setup: &Setup, at: usize) -> impl Iterator<Item = usize> {
    let (partitions, fan_out) = (usize::from(setup.partitions), usize::from(setup.options.fan_out));
    let first = at - at % partitions;
    let places = std::iter::successors(Some(at - first), move |place| Some(place.checked_sub(1)? / fan_out));
    places.map(move |place| first + place)
}

/// Corrections 20 and 21: nothing commits at or below what is known to be installed or stable anywhere.
fn placed_above(
    space: &Space,
    state: &State,
    at: usize,
    id: TransactionId,
    place: Timestamp,
) -> Result<(), String> {
    let setup = &space.setup;
    for above in with_those_above(setup, at) {
        let known = &space.locals[state.locals[above] as usize].known;
        let published = if above == at { known.published } else { known.vouched };
        if place <= published {
            return Err(format!(
                "{id} commits at {place:?}, but up to {published:?} was said to be installed"
            ));
        }
    }
    for (instance, local) in state.locals.iter().enumerate() {
        let stable = space.locals[*local as usize].known.stable;
        let counted = if setup.region(instance) == setup.region(at) { stable.local } else { stable.remote };
        if place <= counted {
            return Err(format!("{id} commits at {place:?}; {} reads {stable:?}", setup.address(instance)));
        }
    }
    Ok(())
}

/// Corrections 24 and 32: whoever counts a transaction of another region as received has it.
fn delivered(space: &Space, state: &State) -> Result<(), String> {
    let setup = &space.setup;
    for (instance, known) in replicas(space, state) {
        let of_partition = |other: &usize| {
            *other != instance
                && other % usize::from(setup.partitions) == instance % usize::from(setup.partitions)
        };
        let peers = (0..setup.replicas()).filter(of_partition);
        for (peer, up_to) in peers.zip(&known.received) {
            let theirs = &space.locals[state.locals[peer] as usize].known.committed;
            if let Some((id, at)) =
                theirs.iter().find(|(id, at)| *at <= up_to && !known.arrived.contains(*id))
            {
                let who = setup.address(instance);
                return Err(format!("{who} counts everything up to {up_to:?}, and lacks {id} of {at:?}"));
            }
        }
    }
    Ok(())
}

/// A transaction has one place in all of its region.
fn agreed(space: &Space, state: &State) -> Result<(), String> {
    let mut places: BTreeMap<TransactionId, Timestamp> = BTreeMap::new();
    for (_, known) in replicas(space, state) {
        for (id, at) in &known.committed {
            if *places.entry(*id).or_insert(*at) != *at {
                return Err(format!("{id} has two places"));
            }
        }
    }
    Ok(())
}

/// Once the network has been good for a while: everything is decided, everywhere alike and as the replies said, has
/// arrived, and is stable.
pub fn check_healed(space: &Space, state: &State) -> Result<(), String> {
    let setup = &space.setup;
    let mut participants: BTreeMap<TransactionId, usize> = BTreeMap::new();
    let mut last = vec![Timestamp::ZERO; usize::from(setup.regions)];
    for (instance, known) in replicas(space, state) {
        if known.undecided > 0 {
            return Err(format!("{} waits for a decision", setup.address(instance)));
        }
        let last = &mut last[usize::from(setup.region(instance))];
        for (id, at) in &known.committed {
            *participants.entry(*id).or_default() += 1;
            *last = (*at).max(*last);
        }
    }
    for (index, (replies, request)) in replies(space, state).iter().zip(&setup.requests).enumerate() {
        let Act::Write(_) = request.act else { continue };
        let process = setup.address(setup.replicas() + request.coordinator).process;
        let of_session = |index: usize| {
            setup.requests[..index].iter().filter(|a| a.coordinator == request.coordinator).count()
        };
        let number = of_session(index) as u64 + 1;
        let own = participants.iter().find(|(id, _)| id.process == process && id.number == number);
        let parts = own.map_or(0, |(_, parts)| *parts);
        let is_ok = |replies: &Vec<String>| replies.iter().all(|reply| reply == "OK");
        let wanted = if replies.as_ref().is_some_and(is_ok) {
            vec![request.keys.len()]
        } else {
            vec![0, request.keys.len()]
        };
        if !wanted.contains(&parts) {
            return Err(format!("request {index}, told {replies:?}, took effect at {parts} partitions"));
        }
    }
    delivered(space, state)?;
    for (instance, known) in replicas(space, state) {
        let (own, others): (Vec<_>, Vec<_>) =
            (0u16..).zip(&last).partition(|(region, _)| *region == setup.region(instance));
        let least = |of: Vec<(u16, &Timestamp)>| of.iter().map(|(_, at)| **at).max().unwrap_or_default();
        let (own, others) = (least(own), least(others));
        if known.stable.local < own || known.stable.remote < others {
            let who = setup.address(instance);
            return Err(format!("{who} shows {:?}, not all up to {own:?} and {others:?}", known.stable));
        }
    }
    Ok(())
}
