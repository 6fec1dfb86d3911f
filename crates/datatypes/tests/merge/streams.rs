//! Random histories of three groups on a stream, which take their ids by themselves. What must come of them is said here
//! without a state, as far as effects name entries that only one of them added.

use crate::fewer;
use crate::merge::script::History;
use datatypes::stream::{Effect as Stream, StreamId};
use datatypes::{Cell, Effect, Value, key};
use std::collections::{BTreeMap, BTreeSet};
use types::Rng;

const GROUPS: u16 = 3;
const COMMANDS: &[&str] = &[
    "XADD * ?",
    "XADD * ?",
    "XADD * ?",
    "XDEL 1000-0 1000-65537",
    "XTRIM 2",
    "XCREATE g",
    "XREAD g a",
    "XREAD g b 1",
    "XREAD g c",
    "XACK g 1000-0 1000-65536",
    "XACK g 1000-1 1000-2",
    "XCLAIM g b 1000-0 1000-1 1000-2",
];

/// A history in which each group observes more and more of the others. The consumer group is there from the beginning.
fn history(seed: u64) -> History {
    let mut random = Rng::with_seed(seed);
    let mut history = History::default();
    history.tell(0, 0, "XCREATE g");
    let mut seen = [1usize; GROUPS as usize];
    for number in 0..18 {
        let group = random.u16(..GROUPS);
        let upto = &mut seen[usize::from(group)];
        if random.u32(..3) == 0 {
            *upto = random.usize(*upto..=history.0.len());
        }
        let command = COMMANDS[random.usize(..COMMANDS.len())].replace('?', &number.to_string());
        history.tell(group, *upto, &command);
    }
    history
}

fn stream(cell: &Cell) -> &datatypes::stream::Stream {
    match &cell.value {
        Some(Value::Stream(stream)) => stream,
        other => panic!("{other:?}"),
    }
}

/// An effect on the stream, by its place.
fn each(history: &History, mut visit: impl FnMut(usize, &Stream<'_>)) {
    for place in 0..history.0.len() {
        match history.effect(place) {
            Effect::Stream(effect) => visit(place, &effect),
            Effect::Key(key::Effect::Delete) => panic!("no key is deleted here"),
            other => panic!("{other:?}"),
        }
    }
}

/// No two entries share an id, none is lost but to who saw it, and those of one region keep their order.
#[test]
fn every_entry_is_there_that_nobody_removed_who_saw_it() {
    let mut met = 0;
    for seed in 0..fewer(3000).into() {
        let history = history(seed);
        let (mut added, mut removed) = (BTreeMap::new(), BTreeSet::new());
        each(&history, |place, effect| match effect {
            Stream::Add { id, items, .. } => {
                let value = items.iter().nth(1).expect("a value").to_vec();
                assert!(added.insert(*id, value).is_none(), "seed {seed}: {id:?} was given twice");
                assert_eq!(id.sequence % 65_536, u64::from(history.0[place].group));
            }
            Stream::Remove { ids, .. } => removed.extend(ids.iter()),
            _ => {}
        });
        added.retain(|id, _| !removed.contains(id));
        let state = history.all();
        let found: BTreeMap<StreamId, Vec<u8>> = stream(&state)
            .entries
            .iter()
            .map(|entry| (entry.id, entry.strings().nth(1).expect("a value").to_vec()))
            .collect();
        met += u32::from(found.len() > 2);
        assert_eq!(found, added, "seed {seed}: {:?}", history.0);
    }
    assert!(met > fewer(300), "the histories must leave something: {met}");
}

/// What was acknowledged stays so unless it was delivered again by somebody who saw that; what was delivered and not
/// acknowledged is pending; the group has read up to the last that anybody was given.
#[test]
fn an_entry_is_pending_exactly_if_it_was_delivered_and_nobody_acknowledged_it() {
    let (mut shared, mut acknowledged) = (0, 0);
    for seed in 0..fewer(3000).into() {
        let history = history(seed);
        let (mut delivered, mut gone, mut last) = (BTreeSet::new(), BTreeSet::new(), StreamId::ZERO);
        each(&history, |_, effect| match effect {
            Stream::Deliver { deliveries, gone: dropped, last: upto, .. } => {
                delivered.extend(deliveries.iter().map(|delivery| delivery.id));
                gone.extend(dropped.iter());
                last = last.max(upto.unwrap_or_default());
            }
            Stream::Acknowledge { ids, .. } => gone.extend(ids.iter()),
            _ => {}
        });
        let state = history.all();
        let group = stream(&state).group(b"g").expect("nobody destroys it");
        let pending: BTreeSet<StreamId> = group.pending().keys().copied().collect();
        // What a claim found removed from the stream is not acknowledged for those who did not see that.
        let dropped: BTreeSet<StreamId> = delivered.difference(&gone).copied().collect();
        assert!(
            pending.is_superset(&dropped) && pending.is_subset(&delivered),
            "seed {seed}: {:?}",
            history.0
        );
        let mut acks = BTreeSet::new();
        each(&history, |_, effect| {
            if let Stream::Acknowledge { ids, .. } = effect {
                acks.extend(ids.iter());
            }
        });
        assert!(pending.is_disjoint(&acks), "seed {seed}: {:?}", history.0);
        assert_eq!(group.last, last, "seed {seed}");
        shared += u32::from(group.pending().values().any(|owners| owners.len() > 1));
        acknowledged += acks.len() as u32;
    }
    assert!(shared > fewer(100) && acknowledged > fewer(300), "{shared} {acknowledged}");
}
