//! What a write costs a concurrent one, by the table; and whoever sees a value settles what becomes of it.

use crate::fewer;
use crate::merge::script::History;
use datatypes::Effect;
use datatypes::merge::{LostPart, Trace, lost};
use datatypes::{Cell, Value};
use types::Rng;

/// Everything that is lost, in words.
fn losses(history: &History) -> Vec<String> {
    let effects: Vec<Effect<'_>> = (0..history.0.len()).map(|place| history.effect(place)).collect();
    let sees = |later: usize, earlier: usize| history.observed(later, earlier);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let traces = history.traces();
    let traces: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).collect();
    let mut listed = Vec::new();
    for place in 0..effects.len() {
        for loss in lost(&effects, &traces, &sees, place) {
            let part = match &loss.part {
                LostPart::Value | LostPart::Whole | LostPart::Contents | LostPart::Deadline => String::new(),
                LostPart::Field { field } => format!("{}: ", text(field)),
                LostPart::Score { member } => format!("{}: ", text(member)),
                LostPart::Element { index } => format!("{index}: "),
            };
            listed.push(format!("{part}{} to {}", text(&loss.value), text(&loss.instead)));
        }
    }
    listed
}

/// `before; A; B => what is lost if A's place is before B's; if B's is before A's`, one if it is the same.
const TABLE: &str = "
    SET old; SET a; SET b => a to b; b to a
    SET old; SET same; SET same => none
    SET old; SET a, SET c; SET b => c to b; b to c
    SET old; SET a; DEL => none
    SET old; SET a, DEL; SET b => none
    SET 10; SET 20; INCRBY 5 => none
    SET 10; INCRBY 3; INCRBY 5 => none
    SET o; APPEND a; SET b => none
    SET 10; MOVEHERE; SET b => moved to b; b to moved
    SET o; EXPIREAT 5000; SET b => none
    SET o; EXPIREAT 5000; APPEND a => APPEND a to PEXPIREAT 5000
    SADD a; EXPIREAT 5000; SADD b => SADD b to PEXPIREAT 5000
    SADD a; EXPIREAT 5000, DEL; SADD b => none
    SADD a; EXPIREAT 5000, EXPIREAT 0; SADD b => none
    SADD a; EXPIREAT 5000; SADD b, EXPIREAT 6000 => none
    SADD a; EXPIREAT 5000; SADD b, SREM b => none
    SADD a; SADD b; EXPIREAT 5000 => SADD b to PEXPIREAT 5000
    SADD a; EXPIREAT 6000, SADD b; EXPIREAT 5000 => none
    SADD a; EXPIREAT 0, SADD b; EXPIREAT 5000 => SADD b to PEXPIREAT 5000
    SADD a; SADD b; EXPIREAT 5000, DEL => none
    SADD a; SADD b; EXPIREAT 5000, EXPIREAT 0 => none
    HSET f 1; HSET f 2; HSET f 3 => f: 2 to 3; f: 3 to 2
    HSET f 1; HSET f 2 g 5; HSET f 3 => f: 2 to 3; f: 3 to 2
    HSET f 1; HSET f 2; HDEL f => none
    HSET f 1; HSET f 2, HDEL f; HSET f 3 => none
    HSET f 1; HSET f 2; HINCRBY f 3 => none
    HSET f 1; HSET f 2; DEL => none
    HSET f 1; HSET g 2; HSET h 3 => none
    ZADD 1 a; ZADD 2 a; ZADD 3 a => a: 2 to 3; a: 3 to 2
    ZADD 1 a; ZADD 2 a; ZINCRBY 3 a => none
    ZADD 1 a; ZADD 2 a; ZREM a => none
    SADD a; SADD b; SREM a => none
    SADD a; SADD a; SADD a => none
    RPUSH a; RPUSH b; LPOP => none
    SET 10; INCRBY 5; SET word => INCRBY 5 to word
    SET 10; INCRBYFLOAT 0.5; INCRBY 5 => INCRBY 5 to INCRBYFLOAT 0.5; none
    SET abc; SETRANGE 1 x; SET b => none
    SET 10; INCRBY 5, SET 20; SET word => 20 to word; word to 20
    SET 10; INCRBY 5; SET word, SET 30 => none
    SET 10; INCRBY 5; SET word, DEL => none
    SET 10; INCRBY 5; APPEND x => none; INCRBY 5 to APPEND x
    SET 10; INCRBY 5; APPEND 7 => none
    SET 10; INCRBY 5; APPEND x, SET 30 => none
    SET 10; INCRBY 5; MOVEHERE => INCRBY 5 to moved
    HSET f 1; HINCRBY f 2; HSET f word => f: HINCRBY f 2 to word
    HSET f 1; HINCRBY f 2; HSET g word => none
    HSET f 1; HINCRBY f 2; HSET f word, HDEL f => none
    HSET f 1; HINCRBY f 2; MOVEHASH f word => f: HINCRBY f 2 to word
    HSET f 1; HINCRBY f 2; MOVEHASH f 7 => none
    HSET f 1; HSET f 2; MOVEHASH f 3 g 4 => f: 3 to 2
    HSET f 1; HSET f 2; MOVEHASH f 2 g 4 => none
    HSET f 1; HSET f 2, HDEL f; MOVEHASH f 3 g 4 => none
    HSET f 1; HDEL f; MOVEHASH f 3 => none
    HSET f 1; MOVEHASH f 2; MOVEHASH f 3 => a whole hash to a whole hash
    ZADD 1 a; ZADD 2 a; MOVESCORES 3 a => a: 3 to 2
    RPUSH o p; LSET 0 a; LSET 0 b => 0: a to b; 0: b to a
    RPUSH o p; LSET 0 a; LSET 1 b => none
    RPUSH o p; LSET 0 same; LSET 0 same => none
    RPUSH o p; LSET 1 a; LPUSH n, LSET 2 b => 1: a to b; 2: b to a
    RPUSH o p; LSET 1 a; LPUSH n, LSET 1 b => none
    RPUSH o p; LSET 0 a; LPOP => 0: a to LPOP
    RPUSH o p; LSET 0 a; LREM 1 o => 0: a to LREM
    RPUSH o p; LSET 0 a; LTRIM 1 -1 => 0: a to LTRIM
    RPUSH o p; LSET 0 a; DEL => 0: a to DEL
    RPUSH o p; LSET 0 a; SET x => 0: a to x
    RPUSH o p; LSET 0 a; MOVELIST x y => 0: a to a whole list
    RPUSH o p; LSET 0 a, LPOP; LSET 0 b => 0: b to LPOP
    RPUSH o p; LSET 0 a, LSET 0 c; LSET 0 b => 0: c to b; 0: b to c
    RPUSH o p; LSET 0 a, LPUSH n; RPUSH m => none
    ; SET a; SADD b => a to SADD b; SADD b to a
    ; SET a, DEL; SADD b => none
    ; SADD a c, SREM a, SREM c; SET b => none
    ; HSET f 1; RPUSH b => f: 1 to RPUSH b; RPUSH b to HSET f 1
    ; INCRBY 5; SADD b => INCRBY 5 to SADD b; SADD b to INCRBY 5
    ; COUNT 5; SET b => an addition to a counter to b; b to an addition to a counter
";

#[test]
fn the_table_tells_what_is_lost() {
    for line in TABLE.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (done, wanted) = line.split_once("=>").expect("=>");
        let [before, a, b] = done.split(';').collect::<Vec<_>>()[..] else { panic!("three parts: {line}") };
        let wanted: Vec<&str> = wanted.split(';').map(str::trim).collect();
        for (turn, (first, second)) in [(a, b), (b, a)].into_iter().enumerate() {
            let mut history = History::default();
            let commands =
                |part: &'static str| part.split(',').map(str::trim).filter(|words| !words.is_empty());
            commands(before).for_each(|words| history.tell(0, 0, words));
            let seen = history.0.len();
            commands(first).for_each(|words| history.tell(1, seen, words));
            commands(second).for_each(|words| history.tell(2, seen, words));
            let listed = losses(&history);
            let listed = if listed.is_empty() { "none".to_owned() } else { listed.join(", ") };
            assert_eq!(listed, wanted[turn.min(wanted.len() - 1)], "{line}, order {turn}");
        }
    }
}

fn losses_of(script: &[(u16, usize, &str)]) -> Vec<String> {
    let mut history = History::default();
    script.iter().for_each(|(group, upto, words)| history.tell(*group, *upto, words));
    losses(&history)
}

#[test]
fn who_saw_the_other_value_settles_nothing() {
    let wanted = vec!["a to b".to_owned()];
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b")]), wanted);
    // The third region had seen both, and so b.
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "SET c")]), wanted);
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "DEL")]), wanted);
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (1, 2, "SET c")]), wanted);
}

#[test]
fn who_saw_the_value_settles_it_whenever_that_is_known() {
    // The first region wrote over its own value before it had heard of the other: the last of each are concurrent.
    let wanted = vec!["b to c".to_owned()];
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (1, 0, "SET c")]), wanted);
    // A third region had heard of the first only.
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 1, "SET c")]), wanted);
    // It deleted what it saw: the other value stays, and nothing is lost.
    assert!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 1, "DEL")]).is_empty());
}

#[test]
fn a_value_that_comes_forth_again_is_not_lost() {
    // The second region deletes its own value before it has heard of the first's.
    assert!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (2, 0, "DEL")]).is_empty());
    // But if a third one had written over it meanwhile, it never comes.
    let wanted = vec!["a to b".to_owned()];
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "SET c"), (2, 0, "DEL")]), wanted);
}

/// The first region had heard of its word and of the number that was there instead; the second one removes the number, and never
/// saw the word.
#[test]
fn a_word_that_comes_forth_again_hides_an_increment() {
    let wanted = vec!["INCRBY 5 to word".to_owned()];
    assert_eq!(losses_of(&[(1, 0, "SET word"), (2, 0, "SET 10"), (1, 2, "INCRBY 5"), (2, 0, "DEL")]), wanted);
    assert_eq!(losses_of(&[(1, 0, "SET word"), (2, 0, "SET 10"), (2, 0, "DEL"), (1, 2, "INCRBY 5")]), wanted);
    // Who removes both leaves nothing that hides it.
    assert_eq!(
        losses_of(&[(1, 0, "SET word"), (2, 0, "SET 10"), (1, 2, "INCRBY 5"), (2, 2, "DEL")]),
        ["word to 10"]
    );
    let wanted = vec!["f: HINCRBY f 5 to word".to_owned()];
    assert_eq!(
        losses_of(&[(1, 0, "HSET f word"), (2, 0, "HSET f 10"), (1, 2, "HINCRBY f 5"), (2, 0, "HDEL f")]),
        wanted
    );
    assert_eq!(
        losses_of(&[(1, 0, "HSET f word"), (2, 0, "HSET f 10"), (2, 0, "HDEL f"), (1, 2, "HINCRBY f 5")]),
        wanted
    );
}

#[test]
fn a_word_in_a_whole_hash_hides_no_increment_where_a_number_was_written_beside() {
    let scripts = [
        [(1, 0, "HSET f 5"), (2, 0, "MOVEHASH f word"), (1, 0, "HINCRBY f 2")],
        [(2, 0, "MOVEHASH f word"), (1, 0, "HSET f 5"), (1, 0, "HINCRBY f 2")],
        [(1, 0, "HSET f 5"), (1, 0, "HINCRBY f 2"), (2, 0, "MOVEHASH f word")],
    ];
    for script in scripts {
        assert_eq!(losses_of(&script), ["f: word to 5"], "{script:?}");
    }
}

#[test]
fn three_regions_lose_two_of_three() {
    let wanted = vec!["a to c".to_owned(), "b to c".to_owned()];
    assert_eq!(losses_of(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 0, "SET c")]), wanted);
}

/// Registers only, by states: who writes over a value that is there has seen it.
#[test]
fn registers_by_their_states() {
    for seed in 0..fewer(20_000).into() {
        let mut random = Rng::with_seed(seed);
        let mut history = History::default();
        let mut upto = [0; 4];
        for place in 0..random.usize(2..9) {
            let group = random.usize(1..4);
            if random.u32(..3) == 0 {
                upto[group] = random.usize(upto[group]..=history.0.len());
            }
            let words = if random.u32(..4) == 0 { "DEL".to_owned() } else { format!("SET {place}") };
            history.tell(group as u16, upto[group], &words);
        }
        assert_eq!(losses(&history).len(), lost_registers(&history), "seed {seed}");
    }
}

/// How many values of a register are lost, found by looking at states.
fn lost_registers(history: &History) -> usize {
    let count = history.0.len();
    let sees = |later: usize, earlier: usize| history.observed(later, earlier);
    let writes = |place: &usize| matches!(history.effect(*place), Effect::Register(_));
    let is_lost = |of: &usize| {
        let rivals: Vec<usize> = (of + 1..count).filter(|later| !sees(*later, *of)).collect();
        let informed =
            |place: usize| place > *of && sees(place, *of) && rivals.iter().all(|rival| sees(place, *rival));
        let value = history.state(|place| place == *of);
        let deciding: Vec<usize> = (of + 1..count).filter(|place| !informed(*place)).collect();
        let observers = deciding.iter().filter(|place| sees(**place, *of));
        let shown = |to: usize| history.state(|place| place >= *of && place < to && sees(to, place));
        let (mut observed, mut settled) = (false, false);
        for observer in observers {
            let first = deciding.iter().all(|d| d >= observer || !sees(*d, *of) || !sees(*observer, *d));
            observed = true;
            settled |= first && shown(*observer) == value;
        }
        let rest = history.state(|place| place == *of || (deciding.contains(&place) && !sees(place, *of)));
        !settled && (observed || rest != value)
    };
    (0..count).filter(writes).filter(is_lost).count()
}

/// Which effects count, by their places.
type Counting<'c> = &'c dyn Fn(usize) -> bool;

/// True if what an effect says of something is lost. `is_seen` tells whether it is part of what effects make, of which these
/// count. Looks at states only.
fn is_lost_by_states(history: &History, of: usize, is_seen: &dyn Fn(Counting<'_>) -> bool) -> bool {
    let sees = |later: usize, earlier: usize| history.observed(later, earlier);
    // What hides it by itself, with all that it observed.
    let hides = |place: usize| {
        !is_seen(&|other| other == of || other == place || sees(of, other) || sees(place, other))
    };
    let mut rivals: Vec<usize> = (0..of).filter(|place| !sees(of, *place) && hides(*place)).collect();
    rivals.extend((of + 1..history.0.len()).filter(|place| !sees(*place, of)));
    let is_informed = |place: usize| {
        place > of && sees(place, of) && rivals.iter().all(|rival| *rival < place && sees(place, *rival))
    };
    let settles = |place: usize| {
        let seen = |other: usize| other < place && sees(place, other);
        sees(place, of) && is_seen(&seen) && !is_seen(&|other| other == place || seen(other))
    };
    !(of + 1..history.0.len()).any(|place| !is_informed(place) && settles(place))
        && !is_seen(&|place| !is_informed(place))
}

/// Three groups; of some effects, each with its place, what `judge` tells is compared with what is found lost of it.
fn compare_with_states(commands: &[&str], first: &[&str], judge: impl Fn(&History, usize) -> Option<bool>) {
    let mut found = 0;
    for seed in 0..fewer(12_000).into() {
        let mut random = Rng::with_seed(seed);
        let mut history = History::default();
        first.iter().for_each(|words| history.tell(0, 0, words));
        let mut upto = [first.len(); 4];
        for place in 0..random.usize(2..8) {
            let group = random.usize(1..4);
            if random.u32(..3) == 0 {
                upto[group] = random.usize(upto[group]..=history.0.len());
            }
            let words = commands[random.usize(..commands.len())];
            let words = words.replace('?', &place.to_string()).replace('^', &(1 << place).to_string());
            history.tell(group as u16, upto[group], &words);
        }
        let effects: Vec<Effect<'_>> = (0..history.0.len()).map(|place| history.effect(place)).collect();
        let sees = |later: usize, earlier: usize| history.observed(later, earlier);
        let traces = history.traces();
        let traces: Vec<Option<&Trace>> = traces.iter().map(Option::as_ref).collect();
        for place in first.len()..effects.len() {
            let Some(wanted) = judge(&history, place) else { continue };
            let losses = lost(&effects, &traces, &sees, place);
            found += u32::from(wanted);
            assert_eq!(!losses.is_empty(), wanted, "seed {seed}, {place} of {:?}, {losses:?}", history.0);
            assert!(losses.len() < 2, "seed {seed}");
        }
    }
    assert!(found > fewer(1500), "only {found} are lost");
}

/// What is lost of an element of a list: its value is not in the list.
#[test]
fn elements_by_their_states() {
    let commands =
        ["LSET 0 v?", "LSET 0 v?", "LSET -1 v?", "LPUSH ?", "LPOP", "RPOP", "DEL", "LINSERT AFTER o ?"];
    compare_with_states(&commands, &["RPUSH o p"], |history, of| {
        let Effect::List(datatypes::list::Effect::Put { value, .. }) = history.effect(of) else {
            return None;
        };
        let is_seen = |counts: Counting<'_>| match history.state(counts).value {
            Some(Value::List(list)) => list.iter().any(|element| element == value),
            _ => false,
        };
        Some(is_lost_by_states(history, of, &is_seen))
    });
}

/// An increment counts if the value is another one without it. Not judged is one that was made without a look where a word was seen:
/// nobody ever sees it.
fn judged_increment(history: &History, of: usize) -> Option<bool> {
    let is_seen =
        |counts: Counting<'_>| history.state(counts) != history.state(|place| place != of && counts(place));
    let was_seen = is_seen(&|place| place == of || (place < of && history.observed(of, place)));
    was_seen.then(|| is_lost_by_states(history, of, &is_seen))
}

#[test]
fn increments_by_their_states() {
    let commands = ["INCRBY ^", "INCRBY ^", "SET word?", "SET 1000", "APPEND x", "DEL", "MOVEHERE"];
    compare_with_states(&commands, &["SET 10"], |history, of| {
        let is_increment =
            matches!(history.effect(of), Effect::Register(datatypes::register::Effect::Add { .. }));
        is_increment.then(|| judged_increment(history, of)).flatten()
    });
    let of_fields = |history: &History, of: usize| {
        let is_increment = matches!(history.effect(of), Effect::Dict(datatypes::dict::Effect::Add { .. }));
        is_increment.then(|| judged_increment(history, of)).flatten()
    };
    let commands = ["HINCRBY f ^", "HINCRBY f ^", "HSET f word?", "HSET f 1000", "HDEL f", "DEL", "HSET g 1"];
    compare_with_states(&commands, &["HSET f 10"], of_fields);
    let commands = [
        "HINCRBY f ^",
        "HINCRBY f ^",
        "MOVEHASH f word?",
        "MOVEHASH f 7",
        "HSET f word?",
        "HSET f 1000",
        "HDEL f",
    ];
    compare_with_states(&commands, &["HSET f 10"], of_fields);
}

/// A hash that is put as a whole: one field is written by others, the other one goes with the whole.
#[test]
fn whole_hashes_by_their_states() {
    let field = |cell: Cell, field: &[u8]| match cell.value {
        Some(Value::Dict(fields)) => fields.get(field).map(<[u8]>::to_vec),
        _ => None,
    };
    let commands = ["MOVEHASH f v? g v?", "MOVEHASH f v? g v?", "HSET f ?", "HSET f ?", "HDEL f", "DEL"];
    compare_with_states(&commands, &["HSET f 10"], |history, of| {
        let Effect::Key(datatypes::key::Effect::Restore(_)) = history.effect(of) else { return None };
        let written = field(history.state(|place| place == of), b"g");
        let is_seen = |name: &'static [u8]| {
            let written = written.clone();
            move |counts: Counting<'_>| field(history.state(counts), name) == written
        };
        let whole = is_lost_by_states(history, of, &is_seen(b"g"));
        Some(whole || is_lost_by_states(history, of, &is_seen(b"f")))
    });
}
