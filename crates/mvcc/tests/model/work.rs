//! What it costs to bring two halves of a history together: about as much for each effect, however many there are.

use crate::merge::{KEY, Stamp};
use crate::mvcc::{LossOptions, Store};
use datatypes::{Cell, Effect, Items, counter, dict, key, list, register, scored_set, set};
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
        0 | 1 => Effect::Dict(dict::Effect::Put { pairs: Items::two(b"hot", text) }),
        2 => Effect::Dict(dict::Effect::Add { field: b"hot", by: 1 }),
        3 => Effect::Dict(dict::Effect::Put { pairs: Items::two(text, text) }),
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
    ("deadlines", |number, text| match number % 2 {
        0 => Effect::Key(key::Effect::SetDeadline(u64::from(number) + 1)),
        _ => set_to(text),
    }),
];

fn new_store() -> Store<Stamp> {
    let mut store = Store::new(HashSeed(11), Stamp::default());
    store.merge_by(Stamp::sight);
    store.list_losses_by(LossOptions { name: |stamp| stamp.at.to_be_bytes().to_vec(), bytes: 1 << 20 });
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
    store.set_watershed(Stamp::last_at(u32::MAX));
    store.set_horizon(Some(Stamp::last_at(u32::MAX)));
    while store.fold_some(100) {}
    store.assert_consistent();
    (store.steps(), store.cell(hash, KEY, 0).clone())
}

#[test]
fn twice_the_effects_take_about_twice_the_steps() {
    for (name, script) in SCRIPTS {
        let (few, _) = steps(*script, 500, 4);
        let (many, _) = steps(*script, 4000, 4);
        assert!(many < 10 * few, "{name}: {few} steps for 1000 effects, {many} for 8000");
        assert!(many < 40 * 8000, "{name}: {many} steps for 8000 effects");
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
