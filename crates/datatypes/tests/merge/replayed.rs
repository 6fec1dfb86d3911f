//! A run of effects, performed by an index of what came before, comes to what each does that looks at all before it; and
//! costs about as much as there are effects.

use crate::fewer;
use crate::merge::script::{History, rendered};
use datatypes::merge::{Among, Contest, Origin, Performed, Replay, Trace, lost, perform};
use datatypes::{Cell, Effect, exchange};
use std::borrow::Cow;
use types::Rng;

/// An effect's group, its place, and up to where it observed the others.
#[derive(Clone, Copy, Debug)]
struct Seen {
    group: u16,
    place: usize,
    upto: usize,
}

impl Origin for Seen {
    fn group(&self) -> u16 {
        self.group
    }

    fn observed(&self, earlier: &Self) -> bool {
        self.group == earlier.group || earlier.place < self.upto
    }
}

fn seen(history: &History, place: usize) -> Seen {
    Seen { group: history.0[place].group, place, upto: history.0[place].upto }
}

const KINDS: &[&[&str]] = &[
    &[
        "SET ?",
        "SET 7 3000",
        "INCRBY 1",
        "INCRBY 5",
        "APPEND 3",
        "DEL",
        "EXPIREAT 5000",
        "PERSIST",
        "MOVEAWAY",
    ],
    &["SET word", "INCRBY 2", "APPEND x", "DEL"],
    &[
        "SET 7",
        "INCRBY 1",
        "INCRBYFLOAT 0.5",
        "SETRANGE 1 ?",
        "SETBIT 9 1",
        "SETBIT 9 0",
        "PFADD a b",
        "PFADD ?",
        "DEL",
    ],
    &["SADD a", "SADD b c", "SADD ?", "SREM a", "SREM b c", "SPOP", "DEL", "EXPIREAT 5000", "PERSIST"],
    &["HSET f ?", "HSET f x g 6", "HINCRBY f 1", "HINCRBY g 3", "HDEL f", "HDEL g f", "DEL", "EXPIREAT 5000"],
    &[
        "HSET f ?",
        "HSETAT 4000 f ?",
        "HSETAT 5000 f 1 g 2",
        "HSETKEEP f ?",
        "HEXPIREAT 6000 f",
        "HEXPIREAT 7000 f g",
        "HPERSIST f",
        "HINCRBY f 1",
        "HINCRBY g 3",
        "HDEL f",
        "HDEL g f",
        "DEL",
        "EXPIREAT 5000",
    ],
    &["ZADD ? a", "ZADD 2 b", "ZINCRBY 3 a", "ZINCRBY 1 b", "ZREM a", "ZREM b a", "DEL", "EXPIREAT 5000"],
    &[
        "RPUSH ?",
        "LPUSH ?",
        "LPOP",
        "RPOP",
        "LSET 0 ?",
        "LTRIM 0 2",
        "LTRIM 1 -1",
        "LINSERT AFTER o ?",
        "RPUSH o",
        "DEL",
    ],
    &["COUNT 1", "COUNT 5", "DEL", "EXPIREAT 5000"],
    &["RPUSH o", "RPUSH o", "LSET 0 ?", "LSET -1 ?", "LSET 0 ?", "LPUSH ?", "LPOP", "DEL"],
    &["SET word", "SET 5", "INCRBY 1", "INCRBY 1", "APPEND x", "APPEND 7", "DEL", "MOVEHERE"],
    &["HSET f ?", "HSET f x", "HINCRBY f 1", "HDEL f", "MOVEHASH f ? g 5", "MOVEHASH f w", "DEL"],
    &[
        "HSETAT 4000 f ?",
        "HSET f x",
        "HEXPIREAT 6000 f",
        "HDEL f",
        "MOVEDATED f ? g 5",
        "MOVEHASH f w",
        "DEL",
    ],
    &[
        "XADD * ?",
        "XADD * ?",
        "XADD 9000-? ?",
        "XADD 9999-1 ?",
        "XTRIM 2",
        "XDEL 9999-1 1000-0",
        "XCREATE g",
        "XDESTROY g",
        "XREAD g a",
        "XREAD g b 1",
        "XACK g 1000-0 1000-1 9999-1",
        "XCLAIM g b 1000-0 9999-1",
        "XDELCONSUMER g a",
        "DEL",
        "EXPIREAT 5000",
    ],
    &[
        "SET ?",
        "INCRBY 1",
        "XADD * ?",
        "XDEL 1000-0 1000-1",
        "SADD a",
        "SREM a",
        "RPUSH ?",
        "LPOP",
        "DEL",
        "MOVEHERE",
        "ZADD 1 a",
        "EXPIREAT 5000",
        "HSET f 1",
        "HEXPIREAT 6000 f",
        "LSET 0 ?",
        "MOVEHASH f ?",
        "MOVELIST ? o",
        "MOVESCORES 3 a",
    ],
];

/// Three groups. What stands before `base` everybody has observed from `from` on.
fn history(random: &mut Rng, commands: &[&str], base: usize, from: usize) -> History {
    let mut history = History::default();
    let rises = random.bool();
    let mut upto = [0; 3];
    for number in 0..random.usize(5..35) {
        let group = random.u16(..3);
        let known = &mut upto[usize::from(group)];
        let least = if rises { *known } else { 0 };
        if random.u32(..3) == 0 {
            *known = random.usize(least..=history.0.len().max(least));
        }
        if history.0.len() >= from {
            *known = base.max(*known);
        }
        let command = commands[random.usize(..commands.len())].replace('?', &number.to_string());
        history.tell(group, *known, &command);
    }
    history
}

/// What effects come to, each with a look at all before it: the states, and what they did to lists.
fn one_by_one(history: &History) -> Vec<(Cell, Option<Trace>)> {
    let (mut cell, mut effects) = (Cell::default(), Vec::new());
    let mut done: Vec<(Cell, Option<Trace>)> = Vec::new();
    for place in 0..history.0.len() {
        effects.push(history.effect(place));
        let known: Vec<Option<&Trace>> = done.iter().map(|(_, trace)| trace.as_ref()).chain([None]).collect();
        let sees = |later: usize, earlier: usize| history.observed(later, earlier);
        let performed = perform(&mut cell, &Among { effects: &effects, traces: &known, sees: &sees });
        done.push((cell.clone(), performed.trace));
    }
    done
}

/// An index of the effects from `base` up to `from`; those before are forgotten.
fn passed<'h>(
    history: &'h History,
    wanted: &'h [(Cell, Option<Trace>)],
    base: usize,
    from: usize,
) -> Replay<'h, Seen> {
    let mut replay = Replay::default();
    for (place, (_, trace)) in wanted.iter().enumerate().take(from).skip(base) {
        replay.pass(seen(history, place), history.effect(place), trace.as_ref().map(Cow::Borrowed));
    }
    replay
}

#[test]
fn a_run_comes_to_what_its_effects_come_to() {
    let mut compared = 0;
    for seed in 0..fewer(8000).into() {
        let mut random = Rng::with_seed(seed);
        let kind = seed as usize % KINDS.len();
        // What everybody to come has observed may be forgotten; of the rest some was performed earlier. Where types meet,
        // what is retained has observed it, too.
        let base = if random.bool() { 0 } else { random.usize(..8) };
        let from = base + random.usize(..20);
        let mixed = kind == KINDS.len() - 1;
        let history = history(&mut random, KINDS[kind], base, if mixed { base } else { from });
        let wanted = one_by_one(&history);
        let (base, from) = (base.min(history.0.len()), from.min(history.0.len()));
        let mut replay = passed(&history, &wanted, base, from);
        let mut cell = from.checked_sub(1).map_or_else(Cell::default, |last| wanted[last].0.clone());
        for (place, (after, _)) in wanted.iter().enumerate().skip(from) {
            let before = cell.clone();
            let Performed { mut patch, .. } =
                replay.perform(&mut cell, seen(&history, place), history.effect(place));
            let scene = || -> Vec<(Seen, Effect<'_>)> {
                (0..=place).map(|place| (seen(&history, place), history.effect(place))).collect()
            };
            assert_eq!(cell, *after, "seed {seed}, from {base} and {from}: {:?}", scene());
            exchange(&mut cell, &mut patch);
            assert_eq!(cell, before, "seed {seed}: what was performed can be taken back: {:?}", scene());
            exchange(&mut cell, &mut patch);
            assert_eq!(cell, *after, "seed {seed}: and done again: {:?}", scene());
            compared += 1;
        }
    }
    assert!(compared > fewer(20_000), "{compared}");
}

/// Group 1 inserts behind `o`, which it has not seen go, and pops 8, which it has not seen go either. When it pops, nothing
/// is known any more of `o`; but what was inserted still stands behind 8.
#[test]
fn an_insertion_keeps_its_place_when_the_element_before_it_is_forgotten() {
    let mut history = History::default();
    for (group, upto, words) in [
        (1, 0, "RPUSH o"),
        (0, 1, "LPOP"),
        (2, 0, "LPUSH 8"),
        (0, 3, "RPOP"),
        (1, 0, "LINSERT AFTER o 17"),
        (1, 3, "LPOP"),
    ] {
        history.tell(group, upto, words);
    }
    let wanted = one_by_one(&history);
    assert_eq!(rendered(&wanted[5].0), "[17]");
    for base in 0..=2 {
        let mut cell = wanted[4].0.clone();
        passed(&history, &wanted, base, 5).perform(&mut cell, seen(&history, 5), history.effect(5));
        assert_eq!(rendered(&cell), "[17]", "from {base}");
    }
}

#[test]
fn an_index_tells_the_losses_that_a_look_at_everything_tells() {
    let mut found = 0;
    for seed in 0..fewer(12_000).into() {
        let mut random = Rng::with_seed(seed);
        let history = history(&mut random, KINDS[seed as usize % KINDS.len()], 0, 0);
        let effects: Vec<Effect<'_>> = (0..history.0.len()).map(|place| history.effect(place)).collect();
        let sees = |later: usize, earlier: usize| history.observed(later, earlier);
        let origins = (0..effects.len()).map(|place| seen(&history, place));
        let traces = history.traces();
        let traces: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).collect();
        let contest = Contest::new(origins.zip(effects.iter().cloned()).collect(), &traces);
        for place in 0..effects.len() {
            let wanted = lost(&effects, &traces, &sees, place);
            found += wanted.len() as u32;
            assert_eq!(contest.lost(place), wanted, "seed {seed}, the effect at {place}: {effects:?}");
        }
    }
    assert!(found > fewer(2500), "{found}");
}
