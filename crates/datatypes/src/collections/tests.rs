//! The containers against naive models, over random operations that cross from the packed to the large forms.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;

use proptest::prelude::*;
use types::Rng;

use super::*;

/// How a sequence of operations is drawn: from a seed, so that a failure is reproduced by three numbers.
#[derive(Clone, Debug)]
struct Plan {
    seed: u64,
    operations: usize,
    /// The number of distinct names.
    names: usize,
    /// Out of 100 operations, those that add.
    additions: u32,
}

fn plan() -> impl Strategy<Value = Plan> {
    let names = prop_oneof![Just(6), Just(100), Just(140), Just(700)];
    (any::<u64>(), 1usize..1500, names, 30u32..95).prop_map(|(seed, operations, names, additions)| Plan {
        seed,
        operations,
        names,
        additions,
    })
}

/// A name: mostly short, at times as long as packed forms allow, longer, or in an allocation of its own.
fn name(number: usize) -> Vec<u8> {
    let mut name = format!("name{number}").into_bytes();
    match number % 211 {
        13 => name.resize(PACKED_ELEMENT_BYTES, b'.'),
        209 => name.resize(PACKED_ELEMENT_BYTES + 1 + number, b'.'),
        210 => name.resize(1400, b'.'),
        _ => {}
    }
    name
}

fn value(rng: &mut Rng) -> Vec<u8> {
    let len = match rng.u32(..400) {
        0 => rng.usize(2000..20_000),
        1..4 => rng.usize(65..1500),
        _ => rng.usize(..65),
    };
    (0..len).map(|_| rng.u8(..)).collect()
}

fn check_map(map: &PackedMap, model: &BTreeMap<Vec<u8>, Vec<u8>>) {
    map.check_invariants();
    let content =
        map.iter().map(|(field, value)| (field.to_vec(), value.to_vec())).collect::<BTreeMap<_, _>>();
    assert_eq!((map.len(), map.iter().len()), (model.len(), model.len()));
    assert_eq!(&content, model);
    assert_eq!(map, &map.clone());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn map_is_a_map(plan in plan()) {
        let mut rng = Rng::with_seed(plan.seed);
        let (mut map, mut model) = (PackedMap::new(plan.seed), BTreeMap::new());
        for step in 0..plan.operations {
            let field = name(rng.usize(..plan.names));
            if rng.u32(..100) < plan.additions {
                let value = value(&mut rng);
                prop_assert_eq!(map.insert(&field, &value), model.insert(field, value).is_none());
            } else {
                prop_assert_eq!(map.get(&field), model.get(&field).map(|value| &value[..]));
                prop_assert_eq!(map.remove(&field), model.remove(&field).is_some());
            }
            if step.is_multiple_of(101) {
                check_map(&map, &model);
            }
        }
        check_map(&map, &model);
        // Equality is by content: another order of insertion, another seed, another form.
        let mut other = PackedMap::new(1);
        other.insert(&[7; 100], b"makes it large");
        model.iter().rev().for_each(|(field, value)| { other.insert(field, value); });
        prop_assert_ne!(&map, &other);
        other.remove(&[7; 100]);
        prop_assert_eq!(&map, &other);
    }

    #[test]
    fn fields_keep_deadlines_until_they_are_written_or_removed(plan in plan()) {
        let mut rng = Rng::with_seed(plan.seed);
        let (mut map, mut model) = (PackedMap::new(plan.seed), BTreeMap::<Vec<u8>, (Vec<u8>, u64)>::new());
        for _ in 0..plan.operations {
            let field = name(rng.usize(..plan.names));
            match rng.u32(..8) {
                0..3 => {
                    let value = value(&mut rng);
                    map.insert(&field, &value);
                    model.insert(field, (value, 0));
                }
                3 => {
                    let value = value(&mut rng);
                    map.replace(&field, &value);
                    model.entry(field).or_default().0 = value;
                }
                4..7 => {
                    let at = rng.u64(..50) * rng.u64(..2);
                    map.set_deadline(&field, at);
                    model.entry(field).and_modify(|held| held.1 = at);
                }
                _ => prop_assert_eq!(map.remove(&field), model.remove(&field).is_some()),
            }
        }
        check_map(&map, &model.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect());
        let now = rng.u64(..50);
        let dated = |passed: bool| {
            let dated = model.iter().filter(move |(_, (_, at))| *at != 0 && (*at <= now) == passed);
            dated.map(|(field, (_, at))| (*at, field.clone())).collect::<BTreeSet<_>>()
        };
        model.iter().for_each(|(field, (_, at))| assert_eq!(map.deadline(field), *at));
        let overdue = map.overdue(now).map(<[u8]>::to_vec).collect::<BTreeSet<_>>();
        prop_assert_eq!(&overdue, &dated(true).into_iter().map(|(_, field)| field).collect());
        prop_assert_eq!(map.next_deadline(now), dated(false).first().map_or(0, |(at, _)| *at));
        prop_assert_eq!(map.is_overdue(now), !model.is_empty() && overdue.len() == model.len());
        prop_assert_eq!(map.deadlines().is_some(), model.values().any(|(_, at)| *at != 0));
        for field in overdue {
            map.remove(&field);
            model.remove(&field);
        }
        check_map(&map, &model.iter().map(|(field, (value, _))| (field.clone(), value.clone())).collect());
    }

    #[test]
    fn set_is_a_set(plan in plan(), integers in any::<bool>()) {
        let mut rng = Rng::with_seed(plan.seed);
        let (mut set, mut model) = (PackedSet::new(plan.seed), BTreeSet::new());
        for step in 0..plan.operations {
            let number = rng.usize(..plan.names);
            let member = if integers && (step < plan.operations / 2 || !number.is_multiple_of(7)) {
                let scale = if step < 100 { 1 } else { [1, 1000, -1_000_000, 10_000_000_000][number % 4] };
                (number as i64 * scale).to_string().into_bytes()
            } else {
                name(number)
            };
            if rng.u32(..100) < plan.additions {
                prop_assert_eq!(set.insert(&member), model.insert(member));
            } else {
                prop_assert_eq!(set.contains(&member), model.contains(&member));
                prop_assert_eq!(set.remove(&member), model.remove(&member));
            }
        }
        set.check_invariants();
        let content = set.iter().map(|member| member.to_vec()).collect::<BTreeSet<_>>();
        prop_assert_eq!((set.len(), set.iter().len()), (model.len(), model.len()));
        prop_assert_eq!(&content, &model);
        let mut other = PackedSet::new(1);
        other.insert(b"not an integer");
        model.iter().rev().for_each(|member| { other.insert(member); });
        prop_assert_ne!(&set, &other);
        other.remove(b"not an integer");
        prop_assert_eq!(&set, &other);
    }

    #[test]
    fn list_is_a_list(plan in plan()) {
        let mut rng = Rng::with_seed(plan.seed);
        let (mut list, mut model) = (ChunkedList::new(), VecDeque::new());
        for step in 0..plan.operations {
            let (value, index) = (value(&mut rng), rng.usize(..=model.len()));
            if rng.u32(..100) < plan.additions {
                match rng.u32(..4) {
                    0 => { list.push_front(&value); model.push_front(value); }
                    1 => { list.push_back(&value); model.push_back(value); }
                    2 => { prop_assert!(list.insert(index, &value)); model.insert(index, value); }
                    _ => {
                        prop_assert_eq!(list.set(index, &value), index < model.len());
                        if let Some(old) = model.get_mut(index) { *old = value; }
                    }
                }
            } else {
                match rng.u32(..4) {
                    0 => prop_assert_eq!(list.pop_front(), model.pop_front()),
                    1 => prop_assert_eq!(list.pop_back(), model.pop_back()),
                    2 => prop_assert_eq!(list.remove(index), model.remove(index).is_some()),
                    _ => {
                        let count = rng.usize(..10).min(model.len() - index);
                        prop_assert_eq!(list.remove_range(index, count), count);
                        model.drain(index..index + count);
                    }
                }
            }
            prop_assert_eq!(list.get(index), model.get(index).map(|value| &value[..]));
            if step.is_multiple_of(101) { list.check_invariants(); }
        }
        list.check_invariants();
        prop_assert!(list.iter().eq(model.iter()));
        prop_assert!(list.iter().rev().eq(model.iter().rev()));
        let (from, count) = (rng.usize(..=model.len()), rng.usize(..200));
        prop_assert!(list.range(from, count).eq(model.iter().skip(from).take(count)));
        prop_assert!(list.range(from, count).rev().eq(model.range(from..model.len().min(from + count)).rev()));
        let rebuilt = model.iter().rev().fold(ChunkedList::new(), |mut list, value| { list.push_front(value); list });
        prop_assert_eq!(&list, &rebuilt);
        let memory = list.memory();
        list.trim(from, count);
        list.check_invariants();
        prop_assert!(list.memory() <= memory);
        prop_assert!(list.iter().eq(model.iter().skip(from).take(count)));
    }

    #[test]
    fn scored_tree_is_a_sorted_set(plan in plan(), scores in prop_oneof![Just(1), Just(5), Just(1_000_000)]) {
        let mut rng = Rng::with_seed(plan.seed);
        let (mut set, mut model) = (ScoredTree::new(plan.seed), BTreeMap::new());
        for step in 0..plan.operations {
            let member = name(rng.usize(..plan.names));
            if rng.u32(..100) < plan.additions {
                let score = score(&mut rng, scores);
                let old = model.get(&member).copied();
                prop_assert_eq!(set.insert(&member, score), old);
                model.insert(member, score);
            } else {
                prop_assert_eq!(set.score(&member), model.get(&member).copied());
                prop_assert_eq!(set.remove(&member), model.remove(&member));
            }
            if step.is_multiple_of(101) {
                set.check_invariants();
            }
        }
        let model = sorted(&model);
        check_scored(&set, &model, &mut rng, scores);
        let mut other = ScoredTree::new(1);
        model.iter().rev().for_each(|(score, member)| { other.insert(member, *score); });
        prop_assert_eq!(&set, &other);
        for (score, member) in &model {
            match rng.u32(..8) {
                0 => drop(other.remove(member)),
                1 => drop(other.insert(member, score + rng.i64(0..3) as f64)),
                _ => {}
            }
        }
        for (one, another) in [(&set, &other), (&other, &set)] {
            let differing = one.iter().filter(|(score, member)| another.score(member) != Some(*score));
            prop_assert!(one.beyond(another).eq(differing));
        }
        other = set.clone();
        while let Some((score, member)) = if rng.bool() { set.pop_first() } else { set.pop_last() } {
            prop_assert_eq!(other.remove(&member), Some(score));
            prop_assert_eq!(&set.first(), &other.first());
            prop_assert_eq!(&set.last(), &other.last());
        }
        prop_assert!(other.is_empty());
    }
}

fn score(rng: &mut Rng, scores: i64) -> f64 {
    let whole = rng.i64(-scores..=scores) as f64;
    match rng.u32(..20) {
        0 => [f64::INFINITY, f64::NEG_INFINITY, -0.0, 1e300, 5e-324][rng.usize(..5)],
        1..5 => whole / 3.0,
        _ => whole,
    }
}

fn sorted(model: &BTreeMap<Vec<u8>, f64>) -> Vec<(f64, &[u8])> {
    let mut entries = model.iter().map(|(member, &score)| (score, &member[..])).collect::<Vec<_>>();
    entries.sort_by(|a, b| a.partial_cmp(b).expect("no NaN"));
    entries
}

fn check_scored(set: &ScoredTree, model: &[(f64, &[u8])], rng: &mut Rng, scores: i64) {
    set.check_invariants();
    assert!(set.iter().eq(model.iter().copied()));
    assert!(set.iter().rev().eq(model.iter().rev().copied()));
    assert_eq!((set.first(), set.last()), (model.first().copied(), model.last().copied()));
    for (rank, (score, member)) in model.iter().enumerate() {
        assert_eq!((set.score(member), set.rank(member)), (Some(*score), Some(rank)));
        assert_eq!(set.reverse_rank(member), Some(model.len() - 1 - rank));
    }
    for _ in 0..20 {
        let (a, b) = (rng.usize(..=model.len()), rng.usize(..=model.len()));
        let ranks = a.min(b)..a.max(b);
        assert!(set.range(ranks.clone()).eq(model[ranks.clone()].iter().copied()));
        assert!(set.range(ranks.clone()).rev().eq(model[ranks].iter().rev().copied()));
        let (min, max) = (score(rng, scores), score(rng, scores));
        let within = |min: Bound<f64>, max: Bound<f64>| {
            let range = (min, max);
            model.iter().copied().filter(move |(score, _)| std::ops::RangeBounds::contains(&range, score))
        };
        for min in [Bound::Included(min), Bound::Excluded(min), Bound::Unbounded] {
            for max in [Bound::Included(max), Bound::Excluded(max), Bound::Unbounded] {
                let ranks = set.score_range(min, max);
                assert_eq!(ranks.len(), within(min, max).count());
                assert!(set.range(ranks).eq(within(min, max)));
            }
        }
    }
}

#[test]
fn who_is_not_in_an_empty_tree_has_no_rank() {
    let set = ScoredTree::new(0);
    assert_eq!((set.rank(b"nobody"), set.reverse_rank(b"nobody")), (None, None));
}

/// Numbers 0 to `len` in random order.
fn shuffled(len: usize, rng: &mut Rng) -> Vec<usize> {
    let mut numbers = (0..len).collect::<Vec<_>>();
    rng.shuffle(&mut numbers);
    numbers
}

#[test]
fn lex_ranges_follow_bytes() {
    for count in [10usize, 1000] {
        let mut set = ScoredTree::new(0);
        let members = (0..count).map(|i| format!("{i:05}").into_bytes()).collect::<Vec<_>>();
        for i in shuffled(count, &mut Rng::with_seed(1)) {
            set.insert(&members[i], 0.0);
        }
        let (low, high) = (&members[3][..], &members[count - 2][..]);
        assert_eq!(set.lex_range(Bound::Included(low), Bound::Included(high)), 3..count - 1);
        assert_eq!(set.lex_range(Bound::Excluded(low), Bound::Excluded(high)), 4..count - 2);
        assert_eq!(set.lex_range(Bound::Unbounded, Bound::Unbounded), 0..count);
        assert!(set.lex_range(Bound::Included(high), Bound::Included(low)).is_empty());
        assert_eq!(set.lex_range(Bound::Included(b"000021"), Bound::Unbounded), 3..count);
    }
}

#[test]
fn a_large_map_grows_and_shrinks() {
    let (mut map, mut model) = (PackedMap::new(9), BTreeMap::new());
    for i in 0..30_000 {
        map.insert(&name(i), format!("value {i}").as_bytes());
        model.insert(name(i), format!("value {i}").into_bytes());
    }
    check_map(&map, &model);
    let full = map.memory();
    for i in shuffled(30_000, &mut Rng::with_seed(2)).into_iter().skip(300) {
        assert!(map.remove(&name(i)));
        model.remove(&name(i));
    }
    check_map(&map, &model);
    assert!(map.memory() < full / 10, "{} of {full} bytes are left", map.memory());
}

#[test]
fn a_large_scored_tree_grows_and_shrinks() {
    for ascending in [true, false] {
        let mut rng = Rng::with_seed(3);
        let mut set = ScoredTree::new(9);
        for i in 0..20_000 {
            set.insert(&name(i), if ascending { i as f64 } else { rng.f64() });
        }
        set.check_invariants();
        let full = set.memory();
        for i in shuffled(20_000, &mut rng).into_iter().skip(300) {
            assert!(set.remove(&name(i)).is_some());
            if i.is_multiple_of(1000) {
                set.check_invariants();
            }
        }
        set.check_invariants();
        assert_eq!(set.len(), 300);
        assert!(set.memory() < full / 10, "{} of {full} bytes are left", set.memory());
    }
}

#[test]
fn a_scan_misses_nothing_that_stays() {
    let mut rng = Rng::with_seed(4);
    let (mut map, mut set, mut scored) = (PackedMap::new(1), PackedSet::new(2), ScoredTree::new(3));
    for i in 0..2000 {
        map.insert(&name(i), b"");
        set.insert(&name(i));
        scored.insert(&name(i), i as f64);
    }
    let mut seen = [BTreeSet::new(), BTreeSet::new(), BTreeSet::new()];
    let mut cursors = [0; 3];
    for round in 0.. {
        let old = cursors;
        if round == 0 || old[0] != 0 {
            cursors[0] = map.scan(old[0], 10, |field, _| _ = seen[0].insert(field.to_vec()));
        }
        if round == 0 || old[1] != 0 {
            cursors[1] = set.scan(old[1], 10, |member| _ = seen[1].insert(member.to_vec()));
        }
        if round == 0 || old[2] != 0 {
            cursors[2] = scored.scan(old[2], 10, |_, member| _ = seen[2].insert(member.to_vec()));
        }
        if cursors == [0; 3] {
            break;
        }
        // Even names stay; odd ones leave, and new ones come.
        for _ in 0..8 {
            let leaves = name(rng.usize(..1000) * 2 + 1);
            let comes = name(2000 + rng.usize(..10_000));
            map.remove(&leaves);
            set.remove(&leaves);
            scored.remove(&leaves);
            map.insert(&comes, b"");
            set.insert(&comes);
            scored.insert(&comes, rng.f64());
        }
    }
    for seen in &seen {
        assert!((0..1000).all(|i| seen.contains(&name(2 * i))));
    }
}

#[test]
fn random_elements_are_equally_likely() {
    let mut rng = Rng::with_seed(5);
    for count in [20usize, 200] {
        let (mut map, mut set, mut scored) = (PackedMap::new(1), PackedSet::new(2), ScoredTree::new(3));
        assert!(
            map.random(&mut rng).is_none()
                && set.random(&mut rng).is_none()
                && scored.random(&mut rng).is_none()
        );
        for i in 0..2 * count {
            map.insert(format!("{i}").as_bytes(), b"");
            set.insert(format!("m{i}").as_bytes());
            scored.insert(format!("{i}").as_bytes(), 1.0);
        }
        for i in 0..count {
            map.remove(format!("{i}").as_bytes());
            set.remove(format!("m{i}").as_bytes());
            scored.remove(format!("{i}").as_bytes());
        }
        let mut drawn = BTreeMap::<Vec<u8>, u32>::new();
        for _ in 0..count * 300 {
            *drawn.entry(map.random(&mut rng).expect("a field").0.to_vec()).or_default() += 1;
            *drawn.entry(set.random(&mut rng).expect("a member").to_vec()).or_default() += 1;
            *drawn.entry(scored.random(&mut rng).expect("a member").1.to_vec()).or_default() += 1;
        }
        // The names of map and sorted set coincide. Five standard deviations of 300 and 600 draws.
        assert_eq!(drawn.len(), 2 * count);
        for (name, times) in drawn {
            let (expected, slack) = if name[0] == b'm' { (300, 87) } else { (600, 123) };
            assert!(times.abs_diff(expected) < slack, "{name:?} was drawn {times} times");
        }
    }
}

#[test]
fn small_collections_are_small() {
    let (mut map, mut set, mut integers) = (PackedMap::new(1), PackedSet::new(1), PackedSet::new(1));
    let (mut list, mut scored) = (ChunkedList::new(), ScoredTree::new(1));
    assert_eq!(map.memory() + set.memory() + list.memory() + scored.memory(), 0);
    for i in 0..10 {
        let name = format!("name{i}");
        map.insert(name.as_bytes(), b"12345");
        set.insert(name.as_bytes());
        integers.insert(format!("{i}").as_bytes());
        list.push_back(name.as_bytes());
        scored.insert(name.as_bytes(), f64::from(i));
    }
    assert!(map.memory() <= 160, "map {}", map.memory());
    assert!(set.memory() <= 80, "set {}", set.memory());
    assert!(integers.is_integers() && integers.memory() <= 32, "integers {}", integers.memory());
    assert!(list.memory() <= 32 + 112, "list {}", list.memory());
    assert!(scored.memory() <= 96, "sorted set {}", scored.memory());
}

#[test]
fn zeros_are_equal_and_memory_counts_clones() {
    let mut set = ScoredTree::new(0);
    assert_eq!(set.insert(b"a", -0.0), None);
    assert_eq!(set.insert(b"a", 0.0), Some(0.0));
    assert!(set.score(b"a").is_some_and(f64::is_sign_positive));
    let mut map = PackedMap::new(0);
    for i in 0..20_000 {
        map.insert(&name(i), b"value");
    }
    let mut copy = map.clone();
    for i in 0..1000 {
        copy.insert(&name(50_000 + i), b"value");
    }
    copy.check_invariants();
    assert_eq!((map.len(), copy.len()), (20_000, 21_000));
}

/// Members that all have one hash where the hasher's own constants are public, whatever its seed: the blocks that the
/// multiplication by zero hides are free to choose.
fn colliding(count: u64) -> Vec<Vec<u8>> {
    const PUBLIC: u64 = 0xc0ac_29b7_c97c_50dd;
    let member = |number: u64| {
        let chosen = [number.to_le_bytes(), (!number).to_le_bytes()].concat();
        [&chosen[..15], &PUBLIC.to_le_bytes(), &PUBLIC.to_le_bytes()].concat()
    };
    (0..count).map(member).collect()
}

fn hashes(state: &impl BuildHasher, members: &[Vec<u8>]) -> BTreeSet<u64> {
    let hash = |member: &Vec<u8>| {
        let mut hasher = state.build_hasher();
        hasher.write(member);
        hasher.finish()
    };
    members.iter().map(hash).collect()
}

#[test]
fn members_that_collide_under_public_constants_do_not_collide_here() {
    let members = colliding(1000);
    let public = foldhash::quality::FixedState::with_seed(DEFAULT_SEED);
    assert_eq!(hashes(&public, &members).len(), 1, "the attack is real");
    for seed in [1, 2, DEFAULT_SEED] {
        let seeds: &'static Seeds = Box::leak(Box::new(Seeds::new(seed)));
        let state = foldhash::quality::SeedableRandomState::with_seed(seed, &seeds.shared);
        assert_eq!(hashes(&state, &members).len(), members.len(), "seed {seed}");
    }
    let mut set = PackedSet::default();
    members.iter().for_each(|member| assert!(set.insert(member)));
    assert_eq!(set.len(), members.len());
}

#[test]
fn the_order_of_iteration_does_not_tell_the_seed() {
    let [mut one, mut other] = [1, 2].map(PackedSet::new);
    for number in 0..5000u64 {
        let member = format!("member {}", number * 7919 % 5003);
        for set in [&mut one, &mut other] {
            if number % 3 == 2 {
                set.remove(format!("member {}", number * 31 % 5003).as_bytes());
            }
            set.insert(member.as_bytes());
        }
    }
    assert!(one.iter().map(|member| member.to_vec()).eq(other.iter().map(|member| member.to_vec())));
}

/// Clones share what they have in common: none sees what is written to another one.
#[test]
fn clones_stay_as_they_are() {
    let mut rng = Rng::with_seed(4);
    let (mut map, mut set, mut scored, mut list) =
        (PackedMap::new(9), PackedSet::new(9), ScoredTree::new(9), ChunkedList::new());
    let mut models = (BTreeMap::new(), BTreeMap::new(), VecDeque::new());
    let mut clones = Vec::new();
    for step in 0..15_000 {
        let (name, value) = (name(rng.usize(..4_000)), value(&mut rng));
        let adds = rng.u32(..10) < if step < 10_000 { 8 } else { 2 };
        if adds {
            let score = rng.f64();
            map.insert(&name, &value);
            set.insert(&name);
            scored.insert(&name, score);
            models.1.insert(name.clone(), score);
            models.0.insert(name, value.clone());
            let at = rng.usize(..=list.len());
            list.insert(at, &value);
            models.2.insert(at, value);
        } else {
            map.remove(&name);
            set.remove(&name);
            scored.remove(&name);
            models.0.remove(&name);
            models.1.remove(&name);
            if !list.is_empty() {
                let at = rng.usize(..list.len());
                list.remove(at);
                models.2.remove(at);
            }
        }
        if step % 1_250 == 0 {
            clones.push((map.clone(), set.clone(), scored.clone(), list.clone(), models.clone()));
        }
    }
    for (map, set, scored, list, models) in &clones {
        check_map(map, &models.0);
        set.check_invariants();
        assert!(set.len() == models.0.len() && models.0.keys().all(|member| set.contains(member)));
        check_scored(scored, &sorted(&models.1), &mut rng, 10);
        list.check_invariants();
        assert!(list.len() == models.2.len() && list.iter().eq(models.2.iter().map(Vec::as_slice)));
    }
}
