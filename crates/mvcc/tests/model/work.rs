//! What it costs to bring two halves of a history together: about as much for each effect, however many there are.

use crate::merge::{KEY, Stamp, encoded, made_by};
use crate::mvcc::{Bounds, LossOptions, Store};
use datatypes::stream::StreamId;
use datatypes::{Cell, Effect, Items, counter, dict, key, list, register, scored_set, set, stream};
use types::HashSeed;

/// The effect of a number, by one of two groups.
type Script = fn(u32, &[u8]) -> Effect<'_>;

fn set_to(value: &[u8]) -> Effect<'_> {
    Effect::Register(register::Effect::Set { value, deadline: register::Deadline::Clear })
}

const SCRIPTS: &[(&str, Script)] = &[
    ("increments", |_, _| Effect::Register(register::Effect::Add { by: 1 })),
    ("increments and writes", |number, text| match number % 3 {
        0 => set_to(text),
        _ => Effect::Register(register::Effect::Add { by: 1 }),
    }),
    ("writes and deletions", |number, text| match number % 4 {
        0 => Effect::DELETE,
        _ => set_to(text),
    }),
    ("members", |number, text| match number % 4 {
        0 => Effect::Set(set::Effect::Remove { members: Items::one(b"hot") }),
        1 => Effect::Set(set::Effect::Add { members: Items::one(b"hot") }),
        _ => Effect::Set(set::Effect::Add { members: Items::one(text) }),
    }),
    ("members and deletions", |number, text| match number % 8 {
        0 => Effect::DELETE,
        _ => Effect::Set(set::Effect::Add { members: Items::one(text) }),
    }),
    ("fields", |number, text| match number % 5 {
        0 | 1 => Effect::Dict(dict::Effect::put(Items::two(b"hot", text))),
        2 => Effect::Dict(dict::Effect::Add { field: b"hot", by: 1 }),
        3 => Effect::Dict(dict::Effect::put(Items::two(text, text))),
        _ => Effect::Dict(dict::Effect::Remove { fields: Items::one(b"hot") }),
    }),
    ("scores", |number, text| match number % 4 {
        0 => Effect::ScoredSet(scored_set::Effect::Remove { members: Items::one(b"hot") }),
        1 => Effect::ScoredSet(scored_set::Effect::Put {
            items: scored_set::ScoredItems::one(f64::from(number), text),
        }),
        _ => Effect::ScoredSet(scored_set::Effect::Put {
            items: scored_set::ScoredItems::one(f64::from(number), b"hot"),
        }),
    }),
    ("pushed elements", |number, text| {
        let end = if number % 2 == 0 { list::End::Front } else { list::End::Back };
        Effect::List(list::Effect::Push { end, values: Items::one(text) })
    }),
    ("counters", |_, _| Effect::Counter(counter::Effect::Add { by: 1 })),
    ("entries and their removal", |number, text| {
        Effect::Stream(match number % 4 {
            0 => stream::Effect::Remove { ids: stream::Ids::from_iter([entry(number / 2)]), trims: false },
            _ => added(number, text),
        })
    }),
    ("deliveries and acknowledgements", |number, text| {
        let (group, id, none) = (b"g", entry(number / 8), stream::Ids::none());
        Effect::Stream(match number % 8 {
            0 => added(number / 8, text),
            1 => stream::Effect::CreateGroup { group, last: StreamId::ZERO, read: None },
            2..=6 => stream::Effect::Deliver {
                group,
                consumer: [b"ann", b"bob"][number as usize % 2],
                now_millis: 7,
                deliveries: vec![stream::Delivery { id, at_millis: 7, count: 1 }],
                gone: none,
                last: Some(id),
                read: None,
                shared: false,
            },
            _ => stream::Effect::Acknowledge { group, ids: stream::Ids::from_iter([id]) },
        })
    }),
    ("deadlines", |number, text| match number % 2 {
        0 => Effect::Key(key::Effect::SetDeadline(u64::from(number) + 1)),
        _ => set_to(text),
    }),
];

/// The id of an entry.
fn entry(number: u32) -> StreamId {
    StreamId::new(u64::from(number) + 1, 0)
}

fn added(number: u32, value: &[u8]) -> stream::Effect<'_> {
    let items = Items::two(b"f", value);
    stream::Effect::Add { id: entry(number), items, trimmed: stream::Ids::none() }
}

fn new_store() -> Store<Stamp> {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.merge_by_dependencies(Stamp::dependencies);
    store.list_losses_by(LossOptions {
        name: |stamp| stamp.at.to_be_bytes().to_vec(),
        bytes: 1 << 20,
        until_replaced: false,
    });
    store.set_horizon(Some(Stamp::default()));
    store
}

/// Two groups do so much each without hearing of each other; then all of the second arrives where the first is, which
/// reads meanwhile. Returns the steps, and the state.
fn steps(script: Script, each: u32, reads: u32) -> (u64, Cell) {
    let mut store = new_store();
    let hash = store.hash(KEY);
    let stamp = |number: u32, group: u16| Stamp { at: 2 * number + u32::from(group) + 1, group, upto: 0 };
    for group in 0..2 {
        for number in 0..each {
            let text = format!("{number} by {group}");
            store.commit(
                hash,
                KEY,
                stamp(number, group),
                &script(number + u32::from(group), text.as_bytes()),
            );
            if group == 1 && number % (each / reads) == 0 {
                let visible = |stamp: &Stamp| stamp.group == 0 || stamp.at < number;
                store.with_state(hash, KEY, visible, &[], |_| ());
            }
        }
    }
    while store.refresh_some(u64::MAX) {}
    store.set_stability_frontier(Stamp::last_at(u32::MAX));
    store.set_horizon(Some(Stamp::last_at(u32::MAX)));
    while store.fold_some(100) {}
    store.assert_consistent();
    (store.steps(), store.cell(hash, KEY, 0).clone())
}

#[test]
fn twice_the_effects_take_about_twice_the_steps() {
    for (name, script) in SCRIPTS {
        let (few, _) = steps(*script, 250, 4);
        let (many, _) = steps(*script, 2000, 4);
        assert!(many < 10 * few, "{name}: {few} steps for 500 effects, {many} for 4000");
        assert!(many < 40 * 4000, "{name}: {many} steps for 4000 effects");
    }
}

/// However the halves come together, with reads in between or without, they come to the same.
#[test]
fn halves_come_together_the_same_way() {
    for (name, script) in SCRIPTS {
        let (_, seldom) = steps(*script, 200, 1);
        let (_, often) = steps(*script, 200, 100);
        assert_eq!(seldom, often, "{name}");
    }
}

/// What healing a cut took.
struct Healing {
    /// All steps.
    steps: u64,
    /// The most that a read took while nothing more was shown of the other side.
    read: u64,
    state: Cell,
}

/// Two regions did so much each while they were cut apart. Now the effects of the second arrive in the first, in their order,
/// `batch` at a time; the first goes on writing and reads each time what it shows: of the second what arrived in steps, each
/// at least half of what is missing. Then everybody has observed everything.
fn heal(script: Script, each: u32, batch: u32) -> Healing {
    let mut store = new_store();
    let hash = store.hash(KEY);
    let mut read = 0;
    let text = |number: u32, group: u16| format!("{number} by {group}");
    let commit = |store: &mut Store<Stamp>, number: u32, group: u16, upto: u32| {
        let stamp = Stamp { at: 2 * number + u32::from(group) + 1, group, upto };
        let text = text(number, group);
        store.commit(hash, KEY, stamp, &script(number + u32::from(group), text.as_bytes()));
    };
    store.show_to(0, Stamp::last_at(0));
    (0..each).for_each(|number| commit(&mut store, number, 0, 0));
    let (mut shown, mut own) = (0, each);
    for number in 0..each {
        commit(&mut store, number, 1, 0);
        if (number + 1) % batch != 0 {
            continue;
        }
        let (arrived, end) = (2 * number + 2, 2 * own + 1);
        let rises = end - arrived < 10 || 2 * (end - arrived) <= end - shown;
        shown = if rises { arrived } else { shown };
        let (own_stamp, others) = (Stamp::last_at(end), Stamp::last_at(shown));
        store.show_to(0, others);
        let before = store.steps();
        let bounds = Bounds { group: 0, own: own_stamp, others };
        let visible = |stamp: &Stamp| if stamp.group == 0 { stamp.upto <= shown } else { *stamp <= others };
        store.with_later(hash, KEY, visible, Some(bounds), &[], &[], |_| ());
        read = if rises { read } else { read.max(store.steps() - before) };
        commit(&mut store, own, 0, shown);
        own += 1;
        store.refresh_some(100);
    }
    store.show_to(0, Stamp::last_at(u32::MAX));
    while store.refresh_some(u64::MAX) {}
    store.set_stability_frontier(Stamp::last_at(u32::MAX));
    store.set_horizon(Some(Stamp::last_at(u32::MAX)));
    while store.fold_some(100) {}
    store.assert_consistent();
    Healing { steps: store.steps(), read, state: store.cell(hash, KEY, 0).clone() }
}

#[test]
fn a_cut_of_twice_the_length_takes_about_twice_the_steps_to_heal() {
    for (name, script) in SCRIPTS {
        let (few, many) = (heal(*script, 250, 10), heal(*script, 2000, 10));
        assert!(
            many.steps < 11 * few.steps,
            "{name}: {} steps for 500 effects, {} for 4000",
            few.steps,
            many.steps
        );
        assert!(many.steps < 60 * 4000, "{name}: {} steps for 4000 effects", many.steps);
        assert!(many.read < 100, "{name}: {} steps for a read that sees nothing new", many.read);
    }
}

/// However often it is read, it comes to the same.
#[test]
fn a_healed_cut_is_the_same_however_it_arrives() {
    for (name, script) in SCRIPTS {
        // As many writes of the first region beside it.
        let (often, seldom) = (heal(*script, 200, 4), heal_unread(*script, 200, 4));
        assert_eq!(often.state, seldom, "{name}");
    }
}

/// What the same effects make, in their order.
fn heal_unread(script: Script, each: u32, batch: u32) -> Cell {
    let mut shown = 0;
    let mut all: Vec<(Stamp, Vec<u8>)> = Vec::new();
    let mut note = |number: u32, group: u16, upto: u32| {
        let text = format!("{number} by {group}");
        let stamp = Stamp { at: 2 * number + u32::from(group) + 1, group, upto };
        all.push((stamp, encoded(&script(number + u32::from(group), text.as_bytes()))));
    };
    (0..each).for_each(|number| note(number, 0, 0));
    let mut own = each;
    for number in 0..each {
        note(number, 1, 0);
        if (number + 1) % batch == 0 {
            let (arrived, end) = (2 * number + 2, 2 * own + 1);
            let rises = end - arrived < 10 || 2 * (end - arrived) <= end - shown;
            shown = if rises { arrived } else { shown };
            note(own, 0, shown);
            own += 1;
        }
    }
    all.sort_by_key(|(stamp, _)| *stamp);
    made_by(all.iter())
}

/// A store that does not merge: bounds tell what a snapshot shows, however much of it there is.
#[test]
fn a_read_by_bounds_looks_only_at_what_it_does_not_see() {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.set_horizon(Some(Stamp::default()));
    let hash = store.hash(KEY);
    let stamp = |at| Stamp { at, ..Stamp::default() };
    for at in 1..=1000 {
        store.commit(hash, KEY, stamp(at), &Effect::Counter(counter::Effect::Add { by: 1 }));
    }
    let snapshot = stamp(990);
    let (visible, before) = (|stamp: &Stamp| *stamp <= snapshot, store.steps());
    let bounds = Some(Bounds { group: 0, own: snapshot, others: snapshot });
    let by_bounds = store.with_later(hash, KEY, visible, bounds, &[], &[], Cell::clone);
    assert_eq!(store.steps() - before, 0);
    assert_eq!(by_bounds, store.with_state(hash, KEY, visible, &[], Cell::clone));
    assert_eq!(store.effects_beyond(hash, KEY, bounds).count(), 10);
}
