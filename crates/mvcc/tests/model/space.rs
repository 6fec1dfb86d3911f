//! What histories cost, and that it comes back.

use crate::Stamp;
use datatypes::{Cell, Effect, Items, dict, register, set};
use mvcc::Store;
use types::{HashSeed, wire_struct};

const ADD: Effect<'static> = Effect::Register(register::Effect::Add { by: 1 });

fn store() -> Store<Stamp> {
    Store::new(HashSeed(5), (0, false))
}

fn commit(store: &mut Store<Stamp>, key: u32, at: u32, effect: &Effect<'_>) {
    let key = key.to_be_bytes();
    store.commit(store.hash(&key), &key, (at, false), effect);
}

#[test]
fn what_a_deletion_keeps_for_its_undo_is_counted() {
    let mut store = store();
    let members: Vec<String> = (0..10_000).map(|member| format!("member {member}")).collect();
    let members = Items::collect(members.iter().map(|member| member.as_bytes()));
    commit(&mut store, 0, 1, &Effect::Set(set::Effect::Add { members }));
    let full = store.memory();
    store.set_horizon(Some((1, true)));
    commit(&mut store, 0, 2, &Effect::DELETE);
    assert!(store.is_empty());
    assert!(store.memory() >= full, "{} bytes cannot have come back yet, {full} were held", store.memory());
    store.set_horizon(None);
    store.assert_consistent();
    assert!(store.memory() < full / 20, "{} of {full} bytes are left", store.memory());
}

#[test]
fn a_key_deleted_under_a_snapshot_stays_for_it_with_its_record() {
    let mut store = store();
    let long = [b'k'; 100];
    let hash = store.hash(&long);
    (0..10_000).for_each(|key| commit(&mut store, key, 1, &ADD));
    store.commit(hash, &long, (1, false), &ADD);
    store.set_horizon(Some((1, true)));
    let others = |store: &Store<Stamp>| store.memory() - store.retained();
    let before = others(&store);
    (0..10_000).for_each(|key| commit(&mut store, key, 2, &Effect::DELETE));
    let after = others(&store);
    assert!(after + 10_000 * 48 < before, "{after} bytes are left to go of {before}");
    store.commit(hash, &long, (2, false), &Effect::DELETE);
    assert!(others(&store) + long.len() + 48 < after, "the long key counts");
    store.assert_consistent();
    (0..10_000).for_each(|key| commit(&mut store, key, 3, &ADD));
    assert_eq!(store.len(), 10_000);
    store.assert_consistent();
    store.set_horizon(None);
    while store.fold_some(100) {}
    assert_eq!(store.retained(), 0);
    store.assert_consistent();
}

#[test]
fn the_end_of_a_long_snapshot_is_cleared_up_little_by_little() {
    let mut store = store();
    let fresh = store.memory();
    store.set_horizon(Some((1, true)));
    for key in 0..20_000 {
        commit(&mut store, key, 2 + key, &ADD);
        commit(&mut store, key, 2 + key, &Effect::DELETE);
    }
    let full = store.memory();
    store.set_horizon(None);
    assert!(store.memory() > full / 2, "giving all of it back at once would be a long step");
    assert!(store.is_empty() && store.effects(store.hash(&[0; 4]), &[0; 4]).next().is_none());
    let mut rounds = 0;
    while store.fold_some(100) {
        rounds += 1;
    }
    assert!((100..200).contains(&rounds), "{rounds} rounds");
    store.assert_consistent();
    // The index keeps a little room for the next keys.
    assert!(store.memory() < fresh + 16 * 1024, "{} bytes, {fresh} when fresh", store.memory());
}

#[test]
fn a_backlog_shrinks_while_other_keys_are_committed() {
    let mut store = store();
    store.set_horizon(Some((1, true)));
    (0..5000).for_each(|key| commit(&mut store, key, 2, &ADD));
    store.set_horizon(None);
    store.set_horizon(Some((10, true)));
    (0..3000).for_each(|key| commit(&mut store, 10_000 + key, 11, &ADD));
    store.set_horizon(Some((11, true)));
    (0..3000).for_each(|key| commit(&mut store, 20_000 + key, 11, &ADD));
    assert!(!store.fold_some(1), "two are folded at every commit");
    store.assert_consistent();
}

#[test]
fn the_history_of_a_hot_key_stays_as_long_as_the_horizon_is_behind() {
    let mut store = store();
    let hash = store.hash(&0u32.to_be_bytes());
    store.set_horizon(Some((1, true)));
    let mut most = 0;
    for at in 2..20_000 {
        commit(&mut store, 0, at, &ADD);
        if at % 10 == 0 {
            store.set_horizon(Some((at.saturating_sub(50).max(1), true)));
        }
        most = most.max(store.memory());
        let above = store.effects(hash, &0u32.to_be_bytes()).count();
        assert!(above <= 62, "{above} effects above a horizon that is 60 behind");
    }
    assert!(most < 40 * 1024, "{most} bytes for a history of about a hundred small effects");
    store.assert_consistent();
}

#[test]
fn reads_of_old_snapshots_leave_no_trace_in_the_count() {
    let mut store = store();
    let key = 0u32.to_be_bytes();
    let hash = store.hash(&key);
    let numbers: Vec<[u8; 4]> = (0..2000u32).map(u32::to_be_bytes).collect();
    let all = || Items::collect(numbers.iter().map(|number| &number[..]));
    commit(&mut store, 0, 1, &Effect::Set(set::Effect::Add { members: Items::one(b"one") }));
    store.set_horizon(Some((1, true)));
    commit(&mut store, 0, 2, &Effect::Set(set::Effect::Add { members: all() }));
    commit(&mut store, 0, 3, &Effect::Set(set::Effect::Remove { members: all() }));
    for _ in 0..3 {
        for upto in 0..4 {
            let size = store.with_state(hash, &key, |stamp| stamp.0 <= upto, &[], Cell::kind);
            assert!(size.is_some());
            store.assert_consistent();
        }
    }
    commit(&mut store, 0, 4, &Effect::DELETE);
    store.set_horizon(None);
    store.assert_consistent();
}

/// Ordered by time, and as large as what the causal protocols order effects by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Wide {
    at: u64,
    transaction: (u64, u64),
    depends_on: u64,
    region: u16,
}

wire_struct!(Wide { at, transaction, depends_on, region });
impl mvcc::Stamp for Wide {}

impl Wide {
    fn at(at: u64) -> Wide {
        Wide { at, ..Wide::default() }
    }
}

fn merging() -> Store<Wide> {
    let mut store: Store<Wide> = Store::new(HashSeed(5), Wide::default());
    store.merge_by_dependencies(|stamp| mvcc::DependencyVector {
        group: stamp.region,
        upto: Wide::at(stamp.depends_on),
    });
    store.set_horizon(Some(Wide::default()));
    store
}

fn put(store: &mut Store<Wide>, key: u32, at: u64, effect: &Effect<'_>) {
    let key = key.to_be_bytes();
    store.commit(store.hash(&key), &key, Wide::at(at), effect);
}

/// While a region is silent nothing is forgotten. What short histories occupy beside their effects is what they need.
#[test]
fn short_histories_have_no_spare_room() {
    let mut store = merging();
    let deadline = register::Deadline::At { millis: 1000 };
    let set = Effect::Register(register::Effect::Set { value: b"value", deadline });
    let fresh = store.memory();
    (0..10_000).for_each(|key| put(&mut store, key, 1 + u64::from(key), &set));
    let expiring = (store.memory() - fresh) / 10_000;
    assert!(expiring < 950, "{expiring} bytes for a key that was set");
    let mut store = merging();
    for key in 0..10_000 {
        put(&mut store, key, 1 + 2 * u64::from(key), &set);
        put(&mut store, key, 2 + 2 * u64::from(key), &Effect::DELETE);
    }
    let dead = (store.memory() - fresh) / 10_000;
    assert!(dead < 1200, "{dead} bytes for a key that was set and deleted");
}

/// What is left of a key of 4 bytes that was set and deleted, or has expired, and of everything while nothing is forgotten.
#[test]
fn keys_that_are_gone_are_packed() {
    let (mut store, fresh) = (merging(), merging().memory());
    let set = |deadline| Effect::Register(register::Effect::Set { value: b"value", deadline });
    for key in 0..10_000 {
        let deadline = register::Deadline::At { millis: 1000 + u64::from(key) };
        put(&mut store, 20_000 + key, 1 + 3 * u64::from(key), &set(deadline));
        put(&mut store, key, 2 + 3 * u64::from(key), &set(register::Deadline::Clear));
        put(&mut store, key, 3 + 3 * u64::from(key), &Effect::DELETE);
    }
    store.pass_time(20_000);
    (0..20).for_each(|_| store.pack_some(1000, Wide::at(15_000)));
    let some = store.packed();
    assert_eq!(some, 5_000, "others were changed lately");
    (0..100).for_each(|_| store.pack_some(1000, Wide::at(1_000_000)));
    assert_eq!((store.packed(), store.len()), (20_000, 0));
    store.assert_consistent();
    let each = (store.memory() - fresh) / 20_000;
    assert!(each < 110, "{each} bytes for a key that is gone");
    // One is written anew, one is given back.
    put(&mut store, 0, 50_000, &set(register::Deadline::Clear));
    let key = 20_001u32.to_be_bytes();
    store.unpack(store.hash(&key), &key);
    assert_eq!((store.packed(), store.len(), store.living()), (19_998, 2, 1));
    store.assert_consistent();
    let mut found = std::collections::BTreeSet::new();
    let mut cursor = 0;
    loop {
        cursor = store.scan_all(cursor, |key| {
            found.insert(key.to_vec());
        });
        if cursor == 0 {
            break;
        }
    }
    assert_eq!((found.len(), store.known()), (20_000, 20_000));
    // When everybody has observed all, the deleted ones are forgotten, and the expired ones are there to be deleted.
    store.set_stability_frontier(Wide::at(40_000));
    store.set_horizon(Some(Wide::at(40_000)));
    while store.fold_some(100) {}
    assert_eq!((store.packed(), store.len(), store.living()), (0, 10_001, 1));
    assert_eq!(store.overdue(None, 20_000).count(), 10_000);
    store.assert_consistent();
}

#[test]
fn expired_keys_do_not_count_as_living_ones() {
    let mut store = merging();
    for key in 0..100 {
        let deadline = register::Deadline::At { millis: 1000 + u64::from(key) };
        put(
            &mut store,
            key,
            1 + u64::from(key),
            &Effect::Register(register::Effect::Set { value: b"v", deadline }),
        );
    }
    store.pass_time(1009);
    assert_eq!((store.len(), store.living()), (100, 90));
    // A later deadline, none, an earlier one, and a deletion; one is written that has expired.
    put(&mut store, 0, 200, &Effect::Key(datatypes::key::Effect::SetDeadline(2000)));
    put(&mut store, 1, 201, &Effect::Key(datatypes::key::Effect::SetDeadline(0)));
    put(&mut store, 50, 202, &Effect::Key(datatypes::key::Effect::SetDeadline(900)));
    put(&mut store, 2, 203, &Effect::DELETE);
    let deadline = register::Deadline::At { millis: 500 };
    put(&mut store, 100, 204, &Effect::Register(register::Effect::Set { value: b"v", deadline }));
    assert_eq!((store.len(), store.living()), (100, 91));
    store.assert_consistent();
    store.pass_time(1099);
    assert_eq!((store.len(), store.living()), (100, 2));
    store.pass_time(1000);
    store.assert_consistent();
    store.pass_time(3000);
    store.set_horizon(Some(Wide::at(1000)));
    assert_eq!((store.len(), store.living()), (100, 1));
    store.assert_consistent();
}

#[test]
fn a_hash_whose_fields_have_all_expired_does_not_count_as_living() {
    let mut store = merging();
    let put_until = |store: &mut Store<Wide>, key, at, field: &[u8], at_millis| {
        put(store, key, at, &Effect::Dict(dict::Effect::put(Items::two(field, b"v"))));
        let deadline = dict::Effect::SetDeadline { fields: Items::one(field), at_millis };
        put(store, key, at + 1, &Effect::Dict(deadline));
    };
    // Two fields; one; one beside one that stays; two, of which the key goes in between; two.
    for (key, fields) in
        [(0, [1000, 2000]), (1, [1000, 1000]), (2, [1000, 0]), (3, [1000, 3000]), (4, [1000, 2000])]
    {
        for (number, at_millis) in fields.into_iter().enumerate() {
            let field = [b'0' + number as u8];
            put_until(&mut store, key, 10 * u64::from(key) + 2 * number as u64 + 1, &field, at_millis);
        }
    }
    put(&mut store, 3, 100, &Effect::Key(datatypes::key::Effect::SetDeadline(2500)));
    let mut counts = Vec::new();
    for now in [999, 1000, 1999, 2000] {
        store.pass_time(now);
        store.assert_consistent();
        counts.push((store.len(), store.living()));
    }
    assert_eq!(counts, [(5, 5), (5, 4), (5, 4), (5, 2)]);
    // One gets a field again, one goes.
    put_until(&mut store, 0, 101, b"2", 9000);
    put(&mut store, 4, 103, &Effect::DELETE);
    store.assert_consistent();
    assert_eq!((store.len(), store.living()), (4, 3));
    store.pass_time(2500);
    assert_eq!((store.len(), store.living()), (4, 2));
    store.pack_some(10, Wide::at(1000));
    store.assert_consistent();
    assert_eq!((store.packed(), store.len(), store.living()), (3, 2, 2));
}
