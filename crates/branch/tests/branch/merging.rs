//! Merges: values by type, recursive bases, coinciding ids, unresolved keys.

use crate::model::{SESSION, World, add, encoded, increment, key, operate, options, set, text, write};
use anabranch_branch::merge::{Clash, Side, three_way};
use anabranch_branch::{Begin, Change, End, Keyspace, Mutant, Mutants, Options, Policy, Refusal, StateId};
use datatypes::list::End as ListEnd;
use datatypes::scored_set::ScoredItems;
use datatypes::stream::StreamId;
use datatypes::{
    Cell, Effect, Items, Mode, Operation, Value, apply, counter, dict, key as any, list, scored_set, stream,
    summary, top,
};
use proptest::prelude::*;
use types::{Incarnation, ProcessId, Rng};

/// What a sequence of effects makes of a cell, and how it changed it.
fn after(cell: &Cell, effects: &[Effect<'_>]) -> (Cell, Change) {
    let mut cell = cell.clone();
    effects.iter().for_each(|effect| drop(apply::<false>(&mut cell, effect)));
    (cell, effects.iter().map(Change::of).reduce(Change::and).unwrap_or(Change::Other))
}

fn state(number: u64) -> Option<StateId> {
    Some(StateId::made_by(number, ProcessId(1), Incarnation(1)))
}

/// Merges what the two sides did to a base; the right side is the newer one.
fn merged(
    base: &[Effect<'_>],
    left: &[Effect<'_>],
    right: &[Effect<'_>],
    policy: Policy,
) -> Result<Cell, Clash> {
    let base = after(&Cell::ABSENT, base).0;
    let ((left, left_change), (right, right_change)) = (after(&base, left), after(&base, right));
    let left = Side { cell: &left, change: left_change, newest: state(1) };
    let right = Side { cell: &right, change: right_change, newest: state(2) };
    let merged = three_way(&base, &left, &right, policy);
    assert_eq!(merged, three_way(&base, &right, &left, policy), "it does not matter which side is left");
    merged
}

fn put(field: &'static str, value: &'static str) -> Effect<'static> {
    Effect::Dict(dict::Effect::put(Items::two(field.as_bytes(), value.as_bytes())))
}

fn unput(field: &'static str) -> Effect<'static> {
    Effect::Dict(dict::Effect::Remove { fields: Items::one(field.as_bytes()) })
}

fn member(name: &'static str) -> Effect<'static> {
    Effect::Set(datatypes::set::Effect::Add { members: Items::one(name.as_bytes()) })
}

fn no_member(name: &'static str) -> Effect<'static> {
    Effect::Set(datatypes::set::Effect::Remove { members: Items::one(name.as_bytes()) })
}

fn score(name: &'static str, score: f64) -> Effect<'static> {
    let items = ScoredItems::one(score, name.as_bytes());
    Effect::ScoredSet(scored_set::Effect::Put { items })
}

fn more(name: &'static str, by: f64) -> Effect<'static> {
    Effect::ScoredSet(scored_set::Effect::Add { member: name.as_bytes(), by })
}

fn push(name: &'static str) -> Effect<'static> {
    Effect::List(list::Effect::Push { end: ListEnd::Back, values: Items::one(name.as_bytes()) })
}

const POP: Effect<'static> = Effect::List(list::Effect::Pop { end: ListEnd::Front, count: 1 });

fn plus(by: i64) -> Effect<'static> {
    Effect::Register(datatypes::register::Effect::Add { by })
}

fn is(value: &'static str) -> Effect<'static> {
    let deadline = datatypes::register::Deadline::Clear;
    Effect::Register(datatypes::register::Effect::Set { value: value.as_bytes(), deadline })
}

fn made_of(effects: &[Effect<'_>]) -> Result<Cell, Clash> {
    Ok(after(&Cell::ABSENT, effects).0)
}

#[test]
fn every_type_merges_by_its_rule() {
    use Policy::{Newest, Refuse};
    let refused = |base: &[Effect<'_>], left: &[Effect<'_>], right: &[Effect<'_>]| {
        assert_eq!(merged(base, left, right, Refuse), Err(Clash), "{left:?} beside {right:?}");
    };
    // Registers.
    assert_eq!(merged(&[plus(10)], &[plus(1)], &[plus(2), plus(3)], Refuse), made_of(&[plus(16)]));
    assert_eq!(merged(&[], &[plus(1)], &[plus(1)], Refuse), made_of(&[plus(2)]), "each added one");
    assert_eq!(merged(&[is("10")], &[is("5")], &[plus(1)], Refuse), made_of(&[is("6")]), "set and added");
    assert_eq!(merged(&[is("10")], &[Effect::DELETE], &[plus(1)], Refuse), made_of(&[is("1")]));
    assert_eq!(merged(&[is("x")], &[Effect::DELETE], &[is("y")], Refuse), made_of(&[is("y")]));
    assert_eq!(merged(&[is("1")], &[is("5")], &[is("5")], Refuse), made_of(&[is("5")]), "not added up");
    refused(&[is("1")], &[is("5")], &[is("6")]);
    assert_eq!(merged(&[is("1")], &[is("5")], &[is("6")], Newest), made_of(&[is("6")]));
    // Hashes, field by field.
    assert_eq!(merged(&[put("f", "1")], &[put("g", "2")], &[put("h", "3")], Refuse), {
        made_of(&[put("f", "1"), put("g", "2"), put("h", "3")])
    });
    assert_eq!(merged(&[put("f", "1"), put("g", "1")], &[unput("f")], &[put("g", "2")], Refuse), {
        made_of(&[put("g", "2")])
    });
    assert_eq!(merged(&[put("f", "1")], &[unput("f")], &[put("f", "2")], Refuse), made_of(&[put("f", "2")]));
    refused(&[put("f", "1")], &[put("f", "2")], &[put("f", "3")]);
    let hit = |by| Effect::Dict(dict::Effect::Add { field: b"hits", by });
    assert_eq!(merged(&[hit(1)], &[hit(2)], &[hit(4)], Refuse), made_of(&[hit(7)]));
    // Sets, sorted sets, lists.
    assert_eq!(merged(&[member("a"), member("b")], &[no_member("a")], &[member("c")], Refuse), {
        made_of(&[member("b"), member("c")])
    });
    assert_eq!(merged(&[score("a", 1.0)], &[score("b", 2.0)], &[score("a", 3.0)], Refuse), {
        made_of(&[score("a", 3.0), score("b", 2.0)])
    });
    refused(&[score("a", 1.0)], &[score("a", 2.0)], &[score("a", 3.0)]);
    assert_eq!(merged(&[score("a", 1.0)], &[more("a", 2.0)], &[more("a", 0.5), more("b", 4.0)], Refuse), {
        made_of(&[score("a", 3.5), score("b", 4.0)])
    });
    assert_eq!(merged(&[], &[more("a", 2.0)], &[more("a", 2.0)], Refuse), made_of(&[score("a", 4.0)]));
    refused(&[score("a", 1.0)], &[score("a", 2.0)], &[more("a", 3.0)]);
    let (up, down) = ([more("a", f64::INFINITY)], [more("a", f64::NEG_INFINITY)]);
    assert_eq!(merged(&[], &up, &down, Newest), made_of(&down));
    refused(&[], &up, &down);
    assert_eq!(merged(&[push("a")], &[push("x")], &[push("y")], Refuse), {
        made_of(&[push("a"), push("x"), push("y")])
    });
    assert_eq!(merged(&[push("a"), push("b")], &[POP, push("x")], &[POP], Refuse), {
        made_of(&[push("b"), push("x")])
    });
    // Counters, summaries, tops.
    let count = |by| Effect::Counter(counter::Effect::Add { by });
    let sums = merged(&[count(5)], &[count(1)], &[count(2)], Refuse);
    assert_eq!(sums, made_of(&[count(8)]));
    assert_eq!(merged(&[count(5)], &[Effect::DELETE], &[count(2)], Refuse), made_of(&[count(2)]));
    let number = |x: f64| {
        let numbers = summary::Numbers::new([x].into_iter()).unwrap();
        Effect::SummaryBag(summary::Effect::Add { numbers })
    };
    assert_eq!(merged(&[number(0.1)], &[number(0.2)], &[number(0.3)], Refuse), {
        made_of(&[number(0.3), number(0.2), number(0.1)])
    });
    let rank = |name: &'static str, score| {
        Effect::Top(top::Effect::Add { items: ScoredItems::one(score, name.as_bytes()) })
    };
    assert_eq!(merged(&[rank("a", 1.0)], &[rank("b", 2.0)], &[rank("a", 3.0)], Refuse), {
        made_of(&[rank("a", 3.0), rank("b", 2.0)])
    });
    // Types, deadlines.
    refused(&[], &[member("a")], &[push("a")]);
    assert_eq!(merged(&[], &[member("a")], &[push("a")], Newest), made_of(&[push("a")]));
    let until = |at| Effect::Key(any::Effect::SetDeadline(at));
    assert_eq!(merged(&[is("1")], &[until(7)], &[until(9)], Refuse), made_of(&[is("1"), until(9)]));
    assert_eq!(merged(&[is("1"), until(9)], &[until(0)], &[is("2"), until(9)], Refuse), made_of(&[is("2")]));
}

/// Ids that both gave, groups, acknowledgements.
#[test]
fn streams_merge_by_their_rule() {
    use Policy::Refuse;
    assert_eq!(merged(&[entry(1, "o")], &[entry(2, "a")], &[entry(3, "b")], Refuse), {
        made_of(&[entry(1, "o"), entry(2, "a"), entry(3, "b")])
    });
    assert_eq!(merged(&[entry(1, "o")], &[entry(2, "a")], &[entry(2, "b")], Refuse), {
        made_of(&[entry(1, "o"), entry(2, "a"), entry(2, "b")])
    });
    let trimmed = |millis| {
        let ids = [StreamId::new(millis, 0)].into_iter().collect();
        Effect::Stream(stream::Effect::Remove { ids, trims: true })
    };
    assert_eq!(merged(&[entry(1, "o")], &[trimmed(1)], &[entry(2, "b")], Refuse), {
        made_of(&[entry(1, "o"), trimmed(1), entry(2, "b")])
    });
    let began = [entry(1, "o"), entry(2, "p"), reading_group()];
    let pending = |left: &[Effect<'_>], right: &[Effect<'_>]| {
        let merged = merged(&began, left, right, Refuse).expect("no conflict");
        let Some(Value::Stream(stream)) = merged.value else { panic!("a stream") };
        let group = stream.group(b"g").expect("a group");
        let names = |owners: &stream::Owners| -> Vec<Vec<u8>> {
            owners.iter().map(|owner| owner.consumer.to_vec()).collect()
        };
        group.pending().iter().map(|(id, owners)| (id.millis, names(owners))).collect::<Vec<_>>()
    };
    let both = vec![(1, vec![b"ann".to_vec(), b"bob".to_vec()])];
    assert_eq!(pending(&[given("ann", 1)], &[given("bob", 1)]), both, "both have it");
    assert_eq!(pending(&[given("ann", 1), acknowledged(1)], &[given("bob", 1)]), []);
    let behind = [(1, vec![b"ann".to_vec()]), (2, vec![b"bob".to_vec()])];
    assert_eq!(pending(&[given("ann", 1)], &[given("ann", 1), given("bob", 2)]), behind);
}

/// A group that one side has deleted stays for what the other one delivered or acknowledged, not because that read again what
/// consumers had.
#[test]
fn a_deleted_group_stays_for_changes_and_not_for_times() {
    use Policy::Refuse;
    let base = [entry(1, "o"), reading_group(), given("ann", 1)];
    let destroy = Effect::Stream(stream::Effect::DestroyGroup { group: b"g" });
    for again in [given_at(9, "ann", &[1]), given_at(9, "ann", &[])] {
        let again = [again];
        assert_eq!(merged(&base, &[Effect::DELETE], &again, Refuse), Ok(Cell::ABSENT));
        assert_eq!(merged(&base, &again, &[Effect::DELETE], Refuse), Ok(Cell::ABSENT));
        assert_eq!(merged(&base, &again, std::slice::from_ref(&destroy), Refuse), made_of(&[entry(1, "o")]));
    }
    let group = |right: &[Effect<'_>]| {
        let merged = merged(&base, &[Effect::DELETE], right, Refuse).expect("no conflict");
        let Some(Value::Stream(stream)) = merged.value else { panic!("a stream") };
        assert!(stream.entries.is_empty());
        stream.group(b"g").map(|group| group.pending().len())
    };
    assert_eq!(group(&[acknowledged(1)]), Some(0));
    assert_eq!(group(&[given("bob", 1)]), Some(1));
}

/// One side has moved an entry, as a third one had its id. What the other one read again leaves it there.
#[test]
fn an_entry_that_one_side_moved_stays_there_beside_a_redelivery() {
    let base = [entry(1, "o"), reading_group(), given("ann", 1)];
    let ids = [StreamId::new(1, 0)].into_iter().collect();
    let removed = Effect::Stream(stream::Effect::Remove { ids, trims: true });
    let moved = [removed, entry(1, "p"), entry(1, "o")];
    let merged = merged(&base, &[given_at(9, "ann", &[1])], &moved, Policy::Refuse).expect("no conflict");
    let Some(Value::Stream(stream)) = merged.value else { panic!("a stream") };
    let values: Vec<Vec<u8>> =
        stream.entries.iter().filter_map(|entry| entry.strings().nth(1).map(<[u8]>::to_vec)).collect();
    assert_eq!(values, [b"p", b"o"]);
}

/// Who has an entry says the side that gave it to somebody else, though it was given again to its owner on the other one.
#[test]
fn an_entry_that_is_claimed_beside_a_redelivery_is_the_claimants() {
    let base = [entry(1, "o"), reading_group(), given("ann", 1)];
    let again = [given_at(9, "ann", &[1])];
    let claimed = [given("bob", 1)];
    for (left, right) in [(&again, &claimed), (&claimed, &again)] {
        let merged = merged(&base, left, right, Policy::Refuse).expect("no conflict");
        let Some(Value::Stream(stream)) = merged.value else { panic!("a stream") };
        let owners = stream.group(b"g").expect("a group").owners(StreamId::new(1, 0)).to_vec();
        assert_eq!(owners.iter().map(|owner| &*owner.consumer).collect::<Vec<_>>(), [b"bob"]);
    }
}

/// An entry under an id of this millisecond.
fn entry(millis: u64, value: &'static str) -> Effect<'static> {
    let items = Items::two(b"f", value.as_bytes());
    let (id, trimmed) = (StreamId::new(millis, 0), stream::Ids::none());
    Effect::Stream(stream::Effect::Add { id, items, trimmed })
}

fn reading_group() -> Effect<'static> {
    Effect::Stream(stream::Effect::CreateGroup { group: b"g", last: StreamId::ZERO, read: None })
}

/// A consumer gets the entry of this millisecond.
fn given(consumer: &'static str, millis: u64) -> Effect<'static> {
    given_at(7, consumer, &[millis])
}

fn given_at(now_millis: u64, consumer: &'static str, entries: &[u64]) -> Effect<'static> {
    let ids: Vec<StreamId> = entries.iter().map(|millis| StreamId::new(*millis, 0)).collect();
    let delivery = |id: &StreamId| stream::Delivery { id: *id, at_millis: now_millis, count: 1 };
    Effect::Stream(stream::Effect::Deliver {
        group: b"g",
        consumer: consumer.as_bytes(),
        now_millis,
        deliveries: ids.iter().map(delivery).collect(),
        gone: stream::Ids::none(),
        last: ids.last().copied(),
        read: None,
        shared: false,
    })
}

fn acknowledged(millis: u64) -> Effect<'static> {
    let ids = [StreamId::new(millis, 0)].into_iter().collect();
    Effect::Stream(stream::Effect::Acknowledge { group: b"g", ids })
}

fn an_effect() -> impl Strategy<Value = Effect<'static>> {
    let name = || prop::sample::select(vec!["a", "b", "c"]);
    prop_oneof![
        (-9..9i64).prop_map(plus),
        name().prop_map(is),
        (name(), prop::sample::select(vec!["1", "2"])).prop_map(|(field, value)| put(field, value)),
        name().prop_map(unput),
        name().prop_map(member),
        name().prop_map(no_member),
        (name(), 0..3u8).prop_map(|(name, number)| score(name, f64::from(number))),
        name().prop_map(push),
        Just(POP),
        (-9..9i64).prop_map(|by| Effect::Counter(counter::Effect::Add { by })),
        Just(Effect::DELETE),
        (1..5u64, name()).prop_map(|(millis, value)| entry(millis, value)),
        Just(reading_group()),
        (name(), 1..5u64).prop_map(|(consumer, millis)| given(consumer, millis)),
    ]
}

proptest! {
    #[test]
    fn a_merge_is_symmetric_and_a_side_that_did_nothing_takes_the_others(
        base in prop::collection::vec(an_effect(), 0..6),
        left in prop::collection::vec(an_effect(), 0..5),
        right in prop::collection::vec(an_effect(), 0..5),
    ) {
        let newest = merged(&base, &left, &right, Policy::Newest);
        prop_assert!(newest.is_ok(), "a policy decides everything");
        if let Ok(refused) = merged(&base, &left, &right, Policy::Refuse) {
            prop_assert_eq!(refused, newest.unwrap(), "a policy decides nothing else");
        }
        let alone = merged(&base, &left, &[], Policy::Refuse);
        prop_assert_eq!(alone, Ok(after(&after(&Cell::ABSENT, &base).0, &left).0));
    }
}

/// Two sites that fork, merge each other's branches at once and go on, several times (Corrections 53).
fn criss_cross(mutants: Mutants, work_in_merges: bool) -> (i64, String, usize) {
    let mut sites = [1, 2].map(|site| Keyspace::new(Options { mutants, ..options(site) }));
    let mut total = 0;
    for round in 0..4 {
        let mut commits = Vec::new();
        for (place, site) in sites.iter_mut().enumerate() {
            let session = types::SessionId(place as u64);
            let by = 10i64.pow(round) * (place as i64 + 1);
            total += by;
            let mut transaction = site.begin(session, &Begin::Ancestor).unwrap();
            operate(site, &mut transaction, "k", &increment(by)).unwrap();
            commits.push(site.commit(transaction, &End::Serializability).unwrap().unwrap());
        }
        for (place, site) in sites.iter_mut().enumerate() {
            site.apply(&commits[1 - place]).unwrap();
        }
        let mut merges = Vec::new();
        for (place, site) in sites.iter_mut().enumerate() {
            let mut transaction = site.begin_merge(SESSION, &Begin::Any).unwrap();
            site.resolve_all(&mut transaction, Policy::Refuse);
            if work_in_merges {
                // Merges that differ: they do not coincide, and the next round's merge has several fork points.
                operate(site, &mut transaction, &format!("site {place}"), &write(b"x")).unwrap();
            }
            merges.push(site.commit(transaction, &End::Any).unwrap().unwrap());
        }
        for (place, site) in sites.iter_mut().enumerate() {
            site.apply(&merges[1 - place]).unwrap();
        }
    }
    for site in &mut sites {
        if site.heads().len() > 1 {
            site.merge(SESSION, Policy::Refuse).unwrap();
        }
    }
    let states = sites[0].census().states;
    assert_eq!(sites[0].heads(), sites[1].heads());
    let head = sites[0].heads()[0];
    (total, text(&sites[0].value_at(head, &key("k")).unwrap()), states)
}

#[test]
fn two_sites_that_merge_the_same_heads_make_one_state() {
    let (total, value, states) = criss_cross(Mutants::default(), false);
    assert_eq!(value, total.to_string());
    assert_eq!(states, 1 + 4 * 3, "the root, and two states and one merge a round");
}

#[test]
fn a_criss_cross_counts_every_addition_once() {
    let (total, value, _) = criss_cross(Mutants::default(), true);
    assert_eq!(value, total.to_string());
}

#[test]
fn merges_with_ids_of_their_sites_do_not_coincide() {
    let caught = std::panic::catch_unwind(|| criss_cross(Mutant::MergeIdsBySite.into(), false).2);
    assert!(caught.is_err() || caught.is_ok_and(|states| states > 13));
}

#[test]
fn a_single_fork_point_counts_twice() {
    let (total, value, _) = criss_cross(Mutant::SingleForkPoint.into(), true);
    assert_ne!(value, total.to_string());
}

/// Additions of a random DAG: what every state's counter and score should be is the sum over its ancestors.
#[test]
fn a_counter_is_the_sum_of_the_additions_above_it_in_any_dag() {
    for seed in 0..80 {
        let (mut world, mut random) = (World::new(Mutants::default()), Rng::with_seed(seed));
        let mut additions = std::collections::BTreeMap::from([(StateId::ROOT, 0)]);
        for _ in 0..40 {
            let heads = world.keyspace.heads();
            let made = if random.u8(..4) == 0 && heads.len() > 1 {
                let some: Vec<StateId> = heads.iter().copied().take(2 + random.usize(..2)).collect();
                let mut transaction = world.keyspace.begin_merge_of(SESSION, &some).unwrap();
                world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
                let own = format!("{}", random.u64(..));
                operate(&mut world.keyspace, &mut transaction, "own", &write(own.as_bytes())).unwrap();
                (world.commit(transaction, &End::Any).unwrap().unwrap(), 0)
            } else {
                let retained = world.retained();
                let from = retained[retained.len() - 1 - random.usize(..retained.len().min(5))];
                let by = random.i64(1..1_000_000);
                let begin = Begin::State(from);
                let score = scored_set::Operation::Increment {
                    flags: Default::default(),
                    by: by as f64,
                    member: b"m",
                };
                let operations = [("k", increment(by)), ("z", Operation::ScoredSet(score))];
                let made = world.transact(SESSION, &begin, &operations, &End::State(from));
                (made.unwrap().unwrap(), by)
            };
            additions.insert(made.0, made.1);
            let sum: i64 = world.model.states[&made.0].ancestors.iter().map(|id| additions[id]).sum();
            assert_eq!(world.text(made.0, "k"), sum.to_string(), "seed {seed}");
            let score = match world.keyspace.value_at(made.0, &key("z")).unwrap().value {
                Some(Value::ScoredSet(scores)) => scores.score(b"m"),
                _ => None,
            };
            assert_eq!(score.unwrap_or(0.0), sum as f64, "seed {seed}");
        }
    }
}

#[test]
fn a_merge_that_leaves_a_conflicting_key_is_refused() {
    // Corrections 55.
    let fork = |world: &mut World| {
        let base = world.state(1, &[StateId::ROOT], &[("k", set("0")), ("l", set("0"))]);
        world.state(2, &[base], &[("k", set("1")), ("l", set("1"))]);
        world.state(3, &[base], &[("k", set("2")), ("l", set("2"))]);
    };
    let mut world = World::new(Mutants::default());
    fork(&mut world);
    let mut transaction = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    assert!(matches!(
        operate(&mut world.keyspace, &mut transaction, "k", &increment(1)),
        Err(Refusal::Unresolved { .. })
    ));
    operate(&mut world.keyspace, &mut transaction, "k", &write(b"3")).unwrap();
    assert_eq!(transaction.unresolved().cloned().collect::<Vec<_>>(), [key("l")]);
    let refused = world.keyspace.commit(transaction, &End::Any);
    assert_eq!(refused, Err(Refusal::Unresolved { key: key("l"), more: 0 }));
    assert_eq!(world.keyspace.merge(SESSION, Policy::Refuse).unwrap_err(), {
        Refusal::Unresolved { key: key("k"), more: 1 }
    });
    // A declared policy decides.
    let mut world = World::with(Options { policy: Policy::Newest, ..options(1) });
    fork(&mut world);
    let transaction = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    let made = world.commit(transaction, &End::Any).unwrap().unwrap();
    assert_eq!((world.text(made, "k"), world.text(made, "l")), ("2".into(), "2".into()));
    // The mutant lets one of two values win silently.
    let mut world = World::new(Mutant::LeaveConflicts.into());
    fork(&mut world);
    let transaction = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    world.commit(transaction, &End::Any).unwrap();
    let found = world.difference(&["k", "l"].map(key));
    assert!(found.is_some_and(|found| found.contains("two newest versions")));
}

/// What both sides made the same is no conflict; what both added is, since it counts twice.
#[test]
fn equal_values_are_no_conflicts() {
    let mut world = World::new(Mutants::default());
    let field = encoded(&put("f", "1"));
    let base = world.state(1, &[StateId::ROOT], &[("h", encoded(&put("g", "0"))), ("n", add(1))]);
    let same = [("h", field), ("k", set("1")), ("n", add(2))];
    world.state(2, &[base], &[&same[..], &[("l", set("1"))]].concat());
    world.state(3, &[base], &[&same[..], &[("l", set("2"))]].concat());
    let mut transaction = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    assert_eq!(transaction.unresolved().count(), 4);
    world.keyspace.resolve_agreed(&mut transaction);
    assert_eq!(transaction.unresolved().cloned().collect::<Vec<_>>(), [key("l"), key("n")]);
    world.keyspace.resolve_all(&mut transaction, Policy::Newest);
    let made = world.commit(transaction, &End::Any).unwrap().unwrap();
    assert_eq!((world.text(made, "k"), world.text(made, "n")), ("1".into(), "5".into()));
}

/// Deadlines of fields merge as those of keys do; a deadline is a change that stays beside a removal.
#[test]
fn deadlines_of_fields_merge_field_by_field() {
    let until = |field: &'static str, at_millis| {
        Effect::Dict(dict::Effect::SetDeadline { fields: Items::one(field.as_bytes()), at_millis })
    };
    let deadlines = |cell: &Cell| match &cell.value {
        Some(datatypes::Value::Dict(dict)) => {
            let mut listed: Vec<(String, u64)> = dict
                .iter()
                .map(|(field, _)| (String::from_utf8_lossy(field).into_owned(), dict.deadline(field)))
                .collect();
            listed.sort();
            listed
        }
        _ => Vec::new(),
    };
    let base = [put("f", "1"), put("g", "1"), put("h", "1"), until("h", 50)];
    let merged = |left: &[Effect<'_>], right: &[Effect<'_>]| {
        deadlines(&merged(&base, left, right, Policy::Refuse).unwrap())
    };
    let of = |f, g, h| vec![("f".to_owned(), f), ("g".to_owned(), g), ("h".to_owned(), h)];
    assert_eq!(merged(&[until("f", 70)], &[until("g", 80)]), of(70, 80, 50));
    assert_eq!(merged(&[until("f", 70)], &[until("f", 80)]), of(80, 0, 50));
    assert_eq!(merged(&[until("h", 0)], &[until("h", 80)]), of(0, 0, 0));
    assert_eq!(merged(&[until("f", 70)], &[put("f", "2")]), of(70, 0, 50));
    assert_eq!(merged(&[until("f", 70)], &[unput("f")]), of(70, 0, 50));
    assert_eq!(merged(&[until("f", 70)], &[unput("h")]), of(70, 0, 0)[..2]);
}

/// Of random changes of fields and deadlines: what leads from one value to another leads there.
#[test]
fn merges_of_deadlines_are_written_as_effects() {
    let mut random = Rng::with_seed(5);
    for _ in 0..300 {
        let mut world = World::new(Mutants::default());
        let mut change = || {
            let field = ["f", "g", "h"][random.usize(..3)];
            encoded(&match random.u32(..4) {
                0 => unput(field),
                1 => put(field, ["1", "2"][random.usize(..2)]),
                2 => Effect::Dict(dict::Effect::Add { field: field.as_bytes(), by: 1 }),
                _ => Effect::Dict(dict::Effect::SetDeadline {
                    fields: Items::one(field.as_bytes()),
                    at_millis: [0, 50, 90][random.usize(..3)],
                }),
            })
        };
        let mut base = world.state(1, &[StateId::ROOT], &[("k", encoded(&put("f", "1")))]);
        for number in 2..5 {
            base = world.state(number, &[base], &[("k", change())]);
        }
        let [a, b] = [10, 20].map(|number| {
            let first = world.state(number, &[base], &[("k", change())]);
            world.state(number + 1, &[first], &[("k", change())])
        });
        let [before, left, right] = [base, a, b].map(|at| world.keyspace.value_at(at, &key("k")).unwrap());
        let mut transaction = world.keyspace.begin_merge_of(SESSION, &[a, b]).unwrap();
        world.keyspace.resolve_all(&mut transaction, Policy::Newest);
        let made = world.commit(transaction, &End::Any).unwrap().unwrap();
        let merged = world.keyspace.value_at(made, &key("k")).unwrap();
        if left == before || right == before {
            let other = if left == before { right } else { left };
            assert_eq!(merged, other);
        }
        let mut bytes = Vec::new();
        merged.encode(&mut bytes);
        assert_eq!(Cell::decode(&mut types::Reader::new(&bytes)), Ok(merged));
    }
}

#[test]
fn additions_are_remembered_as_such_through_merges() {
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("k", add(1))]);
    let [a, b] = [2, 3].map(|number| world.state(number, &[base], &[("k", add(10))]));
    let mut transaction = world.keyspace.begin_merge_of(SESSION, &[a, b]).unwrap();
    world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
    let merged = world.commit(transaction, &End::Any).unwrap().unwrap();
    assert_eq!(world.text(merged, "k"), "21");
    let node = world.keyspace.dag().node(merged).unwrap();
    let change = world.keyspace.dag().writes(node).get(&key("k"));
    assert_eq!(change, Some(Change::Additive(Mode::Increment)));
    assert_eq!(world.commits.last().unwrap().writes[0].1, [encoded(&plus(10))]);
}

/// A merge whose newest side has the merged value already writes nothing, but what it joined were additions: those of a
/// third side are added to them.
#[test]
fn a_merge_that_changes_nothing_is_an_addition_too() {
    let hit = |by| encoded(&Effect::Dict(dict::Effect::Add { field: b"hits", by }));
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("h", hit(1))]);
    let old = world.state(2, &[base], &[("h", hit(3))]);
    let back = world.state(3, &[old], &[("h", hit(-3))]);
    let third = world.state(4, &[back], &[("h", hit(7))]);
    let new = world.state(5, &[base], &[("h", hit(10))]);
    let merge = |world: &mut World, states: &[StateId]| {
        let mut transaction = world.keyspace.begin_merge_of(SESSION, states).unwrap();
        world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
        world.commit(transaction, &End::Any).unwrap().unwrap()
    };
    let merged = merge(&mut world, &[back, new]);
    let all = merge(&mut world, &[merged, third]);
    let Some(datatypes::Value::Dict(hash)) = world.keyspace.value_at(all, &key("h")).unwrap().value else {
        panic!("it is a hash");
    };
    assert_eq!(hash.get(b"hits"), Some(&b"18"[..]));
}
