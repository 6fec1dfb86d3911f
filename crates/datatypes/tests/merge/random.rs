//! Random histories of three groups. What must come of them is said here without a state: an addition counts unless a
//! removal that observed it came, and so on.

use crate::merge::script::{History, rendered};
use datatypes::{Cell, Effect, Value, dict, key, list, register, set};
use std::collections::{BTreeMap, BTreeSet};
use types::Rng;

const GROUPS: u16 = 3;

/// Commands on keys of one type; `?` is a new value each time.
const REGISTER: &[&str] = &["SET ?", "INCRBY 1", "INCRBY 7", "INCRBY 1", "DEL", "SET 100"];
const SET: &[&str] = &["SADD a", "SADD b c", "SADD c", "SREM a", "SREM b c", "DEL", "SPOP"];
const DICT: &[&str] =
    &["HSET f 1", "HSET f 5 g 6", "HINCRBY f 1", "HINCRBY g 3", "HDEL f", "HDEL g f", "DEL"];
const LIST: &[&str] = &[
    "LPUSH ?",
    "RPUSH ?",
    "RPUSH ? !",
    "LPOP",
    "RPOP",
    "LREM 1 o",
    "LTRIM 0 2",
    "LTRIM 1 -1",
    "LINSERT BEFORE o ?",
    "LINSERT AFTER o ?",
    "DEL",
    "RPUSH o",
];
const MIXED: &[&str] = &[
    "SET ?",
    "INCRBY 1",
    "APPEND x",
    "SETRANGE 2 ?",
    "PFADD a",
    "DEL",
    "SADD a",
    "SREM a",
    "HSET f 1",
    "HDEL f",
    "RPUSH ?",
    "LPOP",
    "LSET 0 ?",
    "EXPIREAT 5000",
    "PERSIST",
    "ZADD 1 a",
    "ZINCRBY 2 a",
    "ZREM a",
    "MOVEAWAY",
    "MOVEHERE",
    "COUNT 1",
];

/// A history in which each group observes more and more of the others.
fn history(seed: u64, commands: &[&str], length: usize) -> History {
    let mut random = Rng::with_seed(seed);
    let mut history = History::default();
    let mut seen = [0usize; GROUPS as usize];
    for number in 0..length {
        let group = random.u16(..GROUPS);
        let upto = &mut seen[usize::from(group)];
        if random.u32(..3) == 0 {
            *upto = random.usize(*upto..=history.0.len());
        }
        let command = commands[random.usize(..commands.len())];
        let command = command.replace('?', &format!("{number}")).replace('!', &format!("{number}b"));
        history.tell(group, *upto, &command);
    }
    history
}

fn resets_all(effect: &Effect<'_>) -> bool {
    matches!(
        effect,
        Effect::Key(key::Effect::Delete)
            | Effect::Register(register::Effect::Set { .. } | register::Effect::Delete)
    )
}

impl History {
    /// True if an effect that observed this one satisfies `kills`.
    fn is_killed(&self, place: usize, kills: impl Fn(&Effect<'_>) -> bool) -> bool {
        (place + 1..self.0.len()).any(|later| self.observed(later, place) && kills(&self.effect(later)))
    }
}

/// Additions that no removal observed are there; members whose additions were all observed by removals are not.
#[test]
fn a_member_is_there_exactly_if_an_addition_of_it_is_live() {
    let mut contested = 0;
    for seed in 0..3000 {
        let history = history(seed, SET, 14);
        let mut wanted = BTreeSet::new();
        for place in 0..history.0.len() {
            let Effect::Set(set::Effect::Add { members }) = history.effect(place) else { continue };
            for member in members.iter() {
                let kills = |effect: &Effect<'_>| match effect {
                    Effect::Set(set::Effect::Remove { members }) => {
                        members.iter().any(|other| other == member)
                    }
                    effect => resets_all(effect),
                };
                if !history.is_killed(place, kills) {
                    wanted.insert(member.to_vec());
                }
            }
        }
        let state = history.all();
        let found: BTreeSet<Vec<u8>> = match &state.value {
            None => BTreeSet::new(),
            Some(Value::Set(set)) => set.iter().map(|member| member.to_vec()).collect(),
            other => panic!("{other:?}"),
        };
        contested += usize::from(found.len() > 1);
        assert_eq!(found, wanted, "seed {seed}: {:?}", history.0);
    }
    assert!(contested > 300, "the histories must leave something: {contested}");
}

/// Every increment counts that no SET and no DEL observed, on top of the last SET that none observed.
#[test]
fn no_increment_is_lost_but_to_who_observed_it() {
    for seed in 0..3000 {
        let history = history(seed, REGISTER, 14);
        let (mut value, mut sum, mut there) = (0i64, 0i64, false);
        for place in (0..history.0.len()).filter(|place| !history.is_killed(*place, resets_all)) {
            match history.effect(place) {
                Effect::Register(register::Effect::Set { value: written, .. }) => {
                    (value, there) = (register::parse_integer(written).expect("numbers only"), true);
                }
                Effect::Register(register::Effect::Add { by }) => (sum, there) = (sum + by, true),
                _ => {}
            }
        }
        let wanted = if there { (value + sum).to_string() } else { "nothing".into() };
        assert_eq!(rendered(&history.all()), wanted, "seed {seed}: {:?}", history.0);
    }
}

/// Each field by itself is a register of that kind.
#[test]
fn fields_are_registers_each_by_itself() {
    for seed in 0..3000 {
        let history = history(seed, DICT, 14);
        let mut wanted: BTreeMap<Vec<u8>, (i64, i64)> = BTreeMap::new();
        for place in 0..history.0.len() {
            let kills = |field: &[u8], effect: &Effect<'_>| match effect {
                Effect::Dict(dict::Effect::Put { pairs, .. }) => {
                    pairs.pairs().any(|(other, _)| other == field)
                }
                Effect::Dict(dict::Effect::Remove { fields }) => fields.iter().any(|other| other == field),
                effect => resets_all(effect),
            };
            let lives = |field: &[u8]| !history.is_killed(place, |effect| kills(field, effect));
            match history.effect(place) {
                Effect::Dict(dict::Effect::Put { pairs, .. }) => {
                    for (field, value) in pairs.pairs().filter(|(field, _)| lives(field)) {
                        let value = register::parse_integer(value).expect("numbers only");
                        wanted.entry(field.to_vec()).or_default().0 = value;
                    }
                }
                Effect::Dict(dict::Effect::Add { field, by }) if lives(field) => {
                    wanted.entry(field.to_vec()).or_default().1 += by;
                }
                _ => {}
            }
        }
        let state = history.all();
        let found: BTreeMap<Vec<u8>, i64> = match &state.value {
            None => BTreeMap::new(),
            Some(Value::Dict(dict)) => dict
                .iter()
                .map(|(f, v)| (f.to_vec(), register::parse_integer(v).expect("a number")))
                .collect(),
            other => panic!("{other:?}"),
        };
        let wanted: BTreeMap<Vec<u8>, i64> =
            wanted.into_iter().map(|(f, (base, sum))| (f, base + sum)).collect();
        assert_eq!(found, wanted, "seed {seed}: {:?}", history.0);
    }
}

/// The deadline of a field that is there is what the last effect says that nobody who had observed it replaced: whoever
/// writes the field says one, too.
#[test]
fn a_deadline_of_a_field_is_what_was_said_of_it_last() {
    const COMMANDS: &[&str] = &[
        "HSET f ?",
        "HSET f ? g ?",
        "HSETAT 4000 f ?",
        "HSETAT 5000 g ? f ?",
        "HSETKEEP f ? g ?",
        "HEXPIREAT 6000 f",
        "HEXPIREAT 7000 f g",
        "HPERSIST f",
        "HDEL f",
        "DEL",
    ];
    let (mut dated, mut undated) = (0, 0);
    for seed in 0..3000 {
        let history = history(seed, COMMANDS, 14);
        let mut wanted: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
        for place in 0..history.0.len() {
            let Effect::Dict(effect) = history.effect(place) else { continue };
            let said: Vec<(Vec<u8>, u64)> = match &effect {
                dict::Effect::Put { pairs, until } => {
                    let fields = pairs.pairs().map(|(field, _)| field.to_vec()).enumerate();
                    fields.map(|(at, field)| (field, until.of(at))).collect()
                }
                dict::Effect::SetDeadline { fields, at_millis } => {
                    fields.iter().map(|field| (field.to_vec(), *at_millis)).collect()
                }
                _ => Vec::new(),
            };
            for (field, at) in said {
                let kills = |effect: &Effect<'_>| match effect {
                    Effect::Dict(dict::Effect::Put { pairs, .. }) => {
                        pairs.pairs().any(|(other, _)| other == field)
                    }
                    Effect::Dict(dict::Effect::Remove { fields }) => {
                        fields.iter().any(|other| other == field)
                    }
                    effect => resets_all(effect),
                };
                if !history.is_killed(place, kills) {
                    wanted.insert(field, at);
                }
            }
        }
        if let Some(Value::Dict(dict)) = &history.all().value {
            for (field, _) in dict.iter() {
                assert_eq!(dict.deadline(field), wanted[field], "seed {seed}: {:?}", history.0);
                *(if dict.deadline(field) == 0 { &mut undated } else { &mut dated }) += 1;
            }
        }
    }
    assert!(dated > 500 && undated > 500, "both must come: {dated}, {undated}");
}

fn elements(cell: &Cell) -> Vec<Vec<u8>> {
    match &cell.value {
        Some(Value::List(list)) => list.iter().map(<[u8]>::to_vec).collect(),
        _ => Vec::new(),
    }
}

/// Every element is there that was inserted and that no effect took away from the list that it observed; and elements
/// stand in the order in which everybody saw them.
#[test]
fn an_element_is_there_exactly_if_nobody_who_saw_it_removed_it() {
    let mut concurrent_removals = 0;
    for seed in 0..4000 {
        let history = history(seed, LIST, 12);
        let len = history.0.len();
        // Equal elements are indistinguishable: only histories in which all differ count.
        let mut inserted: Vec<Vec<u8>> = Vec::new();
        let mut removed: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        let mut views = Vec::new();
        for place in 0..len {
            let before = elements(&history.state(|other| other < place && history.observed(place, other)));
            let after = elements(
                &history.state(|other| other == place || other < place && history.observed(place, other)),
            );
            for gone in before.iter().filter(|element| !after.contains(element)) {
                *removed.entry(gone.clone()).or_default() += 1;
            }
            match history.effect(place) {
                Effect::List(list::Effect::Push { values, .. }) => {
                    inserted.extend(values.iter().map(<[u8]>::to_vec))
                }
                Effect::List(list::Effect::InsertAt { value, .. }) => inserted.push(value.to_vec()),
                _ => {}
            }
            views.extend([before, after]);
        }
        let distinct: BTreeSet<&Vec<u8>> = inserted.iter().collect();
        if distinct.len() < inserted.len() {
            continue;
        }
        concurrent_removals += usize::from(removed.values().any(|times| *times > 1));
        let found = elements(&history.all());
        let there: BTreeSet<Vec<u8>> = found.iter().cloned().collect();
        let wanted: BTreeSet<Vec<u8>> = inserted.into_iter().filter(|e| !removed.contains_key(e)).collect();
        assert_eq!(
            there,
            wanted,
            "seed {seed}: {:?}",
            (0..len).map(|p| history.effect(p)).collect::<Vec<_>>()
        );
        assert_eq!(there.len(), found.len(), "seed {seed}: nothing is there twice");
        for view in views {
            let common: Vec<_> = view.into_iter().filter(|element| there.contains(element)).collect();
            let common_found: Vec<_> =
                found.iter().filter(|element| common.contains(element)).cloned().collect();
            assert_eq!(common_found, common, "seed {seed}: the order that somebody saw");
        }
    }
    assert!(concurrent_removals > 100, "the histories must remove concurrently: {concurrent_removals}");
}

/// All types and resets on one key: whatever is performed can be taken back (see `History::state`), and what nobody
/// observed does not vanish without a rival.
#[test]
fn types_that_meet_leave_a_state_of_one_of_them() {
    let mut kinds = BTreeSet::new();
    for seed in 0..4000 {
        let history = history(seed, MIXED, 12);
        let state = history.all();
        kinds.extend(state.kind());
        let live = |place: usize| !history.is_killed(place, |e| resets_all(e) || matches!(e, Effect::Key(_)));
        let additions = (0..history.0.len()).filter(|place| {
            let additive = matches!(
                history.effect(*place),
                Effect::Counter(_)
                    | Effect::Register(register::Effect::Add { .. })
                    | Effect::List(list::Effect::Push { .. })
            );
            additive && live(*place)
        });
        if additions.count() > 0 && state.value.is_none() {
            // A collection may have been emptied by who saw that it was of another type.
            let removes = (0..history.0.len()).any(|p| {
                !matches!(history.effect(p), Effect::List(list::Effect::Push { .. }) | Effect::Counter(_))
                    && history.effect(p).kind().is_some_and(|kind| kind != datatypes::Kind::Register)
            });
            assert!(removes, "seed {seed}: something live must be there: {:?}", history.0);
        }
    }
    assert!(kinds.len() >= 6, "all types must win sometimes: {kinds:?}");
}
