//! What a write costs a concurrent one, by the table; and whoever sees a value settles what becomes of it.

use crate::script::History;
use datatypes::Effect;
use datatypes::merge::{LostPart, lost};
use types::Rng;

/// Everything that is lost, in words.
fn losses(history: &History) -> Vec<String> {
    let effects: Vec<Effect<'_>> = (0..history.0.len()).map(|place| history.effect(place)).collect();
    let sees = |later: usize, earlier: usize| history.observed(later, earlier);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut told = Vec::new();
    for place in 0..effects.len() {
        for loss in lost(&effects, &sees, place) {
            let part = match &loss.part {
                LostPart::Value | LostPart::Contents => String::new(),
                LostPart::Field { field } => format!("{}: ", text(field)),
                LostPart::Score { member } => format!("{}: ", text(member)),
            };
            told.push(format!("{part}{} to {}", text(&loss.value), text(&loss.instead)));
        }
    }
    told
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
            let told = losses(&history);
            let told = if told.is_empty() { "none".to_owned() } else { told.join(", ") };
            assert_eq!(told, wanted[turn.min(wanted.len() - 1)], "{line}, order {turn}");
        }
    }
}

fn told(script: &[(u16, usize, &str)]) -> Vec<String> {
    let mut history = History::default();
    script.iter().for_each(|(group, upto, words)| history.tell(*group, *upto, words));
    losses(&history)
}

#[test]
fn who_saw_the_other_value_settles_nothing() {
    let wanted = vec!["a to b".to_owned()];
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b")]), wanted);
    // The third region had seen both, and so b.
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "SET c")]), wanted);
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "DEL")]), wanted);
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (1, 2, "SET c")]), wanted);
}

#[test]
fn who_saw_the_value_settles_it_whenever_that_is_known() {
    // The first region wrote over its own value before it had heard of the other: the last of each are concurrent.
    let wanted = vec!["b to c".to_owned()];
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (1, 0, "SET c")]), wanted);
    // A third region had heard of the first only.
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 1, "SET c")]), wanted);
    // It deleted what it saw: the other value stays, and nothing is lost.
    assert!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 1, "DEL")]).is_empty());
}

#[test]
fn a_value_that_comes_forth_again_is_not_lost() {
    // The second region deletes its own value before it has heard of the first's.
    assert!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (2, 0, "DEL")]).is_empty());
    // But if a third one had written over it meanwhile, it never comes.
    let wanted = vec!["a to b".to_owned()];
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 2, "SET c"), (2, 0, "DEL")]), wanted);
}

#[test]
fn three_regions_lose_two_of_three() {
    let wanted = vec!["a to c".to_owned(), "b to c".to_owned()];
    assert_eq!(told(&[(1, 0, "SET a"), (2, 0, "SET b"), (3, 0, "SET c")]), wanted);
}

/// Registers only, by states: who writes over a value that is there has seen it.
#[test]
fn registers_by_their_states() {
    for seed in 0..20_000 {
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
