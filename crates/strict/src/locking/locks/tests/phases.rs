//! Phases of one key.

use super::*;
use datatypes::user;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Rng;
use usertypes::{Answer, Call, LockMode, Module, Operation as UserOperation, Reply as UserReply, UserType};

const MODES: [Mode; 4] = [Mode::Observe, Mode::Add, Mode::Count, Mode::Write];
const PHASING: Phasing =
    Phasing { members: 3, lasts: Duration::from_millis(20), patience: Duration::from_millis(250) };

fn phased(mutants: Mutants) -> LockTable {
    LockTable::new(LockOptions { phasing: Some(PHASING), ..LockOptions::default() }, mutants)
}

fn release(table: &mut LockTable, number: u64) -> Vec<TransactionId> {
    table.release(id(number));
    table.take_ready(NOW)
}

#[test]
fn an_older_reader_waits_for_the_phase_of_younger_writers() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 5, "k", Mode::Add));
    assert!(!lock(&mut table, 3, "k", Mode::Observe));
    assert!(lock(&mut table, 6, "k", Mode::Add), "the phase is open");
    assert!(lock(&mut table, 7, "k", Mode::Add));
    assert!(!lock(&mut table, 8, "k", Mode::Add), "it has had its members");
    assert!(lock(&mut table, 2, "k", Mode::Add), "older than all that wait in other modes");
    for number in [5, 6, 7] {
        assert!(release(&mut table, number).is_empty());
    }
    assert_eq!(release(&mut table, 2), [id(3)]);
    assert_eq!(release(&mut table, 3), [id(8)]);
    assert!(table.take_wounded().is_empty());
}

#[test]
fn a_phase_that_nobody_waits_for_goes_on() {
    let mut table = phased(Mutants::default());
    assert!((1..50).all(|number| lock(&mut table, number, "k", Mode::Add)));
}

#[test]
fn nobody_joins_a_phase_that_has_lasted_too_long() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 1, "k", Mode::Add));
    assert!(!lock(&mut table, 2, "k", Mode::Observe));
    let now = NOW + PHASING.lasts;
    assert!(!table.lock(
        Asker { id: id(3), age: age(3), votes: false, passes: false, now },
        b"k",
        &Mode::Add.into()
    ));
    table.release(id(1));
    assert_eq!(table.take_ready(now), [id(2)]);
}

#[test]
fn writers_follow_one_another_in_a_phase_and_then_readers_have_theirs() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 1, "k", Mode::Write));
    for number in 2..6 {
        assert!(!lock(&mut table, number, "k", Mode::Write));
    }
    assert!(!lock(&mut table, 6, "k", Mode::Observe) && !lock(&mut table, 7, "k", Mode::Observe));
    assert_eq!(release(&mut table, 1), [id(2)]);
    assert_eq!(release(&mut table, 2), [id(3)]);
    assert_eq!(release(&mut table, 3), [id(6), id(7)], "all of them together");
    assert!(release(&mut table, 6).is_empty());
    assert_eq!(release(&mut table, 7), [id(4)]);
}

#[test]
fn readers_that_want_to_write_go_before_those_that_wait_for_them() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 4, "k", Mode::Observe));
    assert!(!lock(&mut table, 6, "k", Mode::Write));
    assert!(lock(&mut table, 4, "k", Mode::Write));
    assert_eq!(release(&mut table, 4), [id(6)]);
}

#[test]
fn two_of_them_do_not_deadlock() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 4, "k", Mode::Observe) && lock(&mut table, 5, "k", Mode::Observe));
    assert!(!lock(&mut table, 5, "k", Mode::Write));
    assert!(lock(&mut table, 4, "k", Mode::Write));
    assert_eq!(table.take_wounded().len(), 1);
    assert!(!table.protects(id(5), b"k", Mode::Observe));
}

/// The shard has not heard that the earlier run is over.
#[test]
fn a_transaction_that_runs_again_takes_the_locks_of_its_earlier_run() {
    let mut table = phased(Mutants::default());
    let run = |table: &mut LockTable, number: u64, mode: Mode| {
        table.lock(
            Asker { id: id(number), age: age(3), votes: false, passes: false, now: NOW },
            b"k",
            &mode.into(),
        )
    };
    assert!(lock(&mut table, 2, "k", Mode::Add) && run(&mut table, 3, Mode::Add));
    assert!(!run(&mut table, 3, Mode::Write), "the earlier run waits for another one");
    assert!(!run(&mut table, 7, Mode::Write), "and so does the present one");
    assert_eq!(table.take_wounded(), [(id(3), b"k".to_vec().into_boxed_slice())]);
    assert_eq!(release(&mut table, 2), [id(7)]);
    assert!(release(&mut table, 7).is_empty());
}

#[test]
fn a_vote_among_several_takes_the_lock_or_does_not_wait() {
    let mut table = phased(Mutants::default());
    let vote = |table: &mut LockTable, number: u64| {
        table.lock(
            Asker { id: id(number), age: age(number), votes: true, passes: false, now: NOW },
            b"k",
            &Mode::Add.into(),
        )
    };
    assert!(lock(&mut table, 4, "k", Mode::Observe));
    assert!(!vote(&mut table, 5), "an older one has it");
    assert_eq!(table.waited_for(id(5)), Some(&b"k"[..]));
    table.release(id(5));
    assert!(vote(&mut table, 3));
    assert_eq!(table.take_wounded(), [(id(4), b"k".to_vec().into_boxed_slice())]);
}

#[test]
fn who_passes_waits_for_those_that_have_the_lock_and_for_nobody_else() {
    let mut table = phased(Mutants::default());
    let pass = |table: &mut LockTable, number: u64, mode: Mode| {
        let asker = Asker { id: id(number), age: age(number), votes: false, passes: true, now: NOW };
        table.lock(asker, b"k", &mode.into())
    };
    assert!(lock(&mut table, 1, "k", Mode::Add) && !lock(&mut table, 2, "k", Mode::Observe));
    for number in 10..20 {
        assert!(pass(&mut table, number, Mode::Add), "an older one waits, and it is no member of the phase");
        assert!(release(&mut table, number).is_empty());
    }
    assert!(lock(&mut table, 3, "k", Mode::Add) && lock(&mut table, 4, "k", Mode::Add));
    assert!(!lock(&mut table, 5, "k", Mode::Add), "the phase has had its members");
    assert!(!pass(&mut table, 9, Mode::Write));
    assert!(release(&mut table, 1).is_empty() && release(&mut table, 3).is_empty());
    assert_eq!(release(&mut table, 4), [id(9)], "before those that have waited for longer");
    assert_eq!(release(&mut table, 9), [id(2)]);
    assert_eq!(release(&mut table, 2), [id(5)]);
    assert!(table.take_wounded().is_empty());
}

#[test]
fn who_waits_for_long_behind_younger_ones_takes_their_locks() {
    let mut table = phased(Mutants::default());
    assert!(lock(&mut table, 5, "k", Mode::Add) && !lock(&mut table, 3, "k", Mode::Observe));
    table.end_overdue_phases(NOW + PHASING.patience / 2);
    assert!(table.take_wounded().is_empty());
    table.end_overdue_phases(NOW + PHASING.patience);
    assert_eq!(table.take_wounded().len(), 1);
    assert_eq!(table.take_ready(NOW), [id(3)]);
}

/// A type with lock modes that differ and may be held together: a path, where each mode stands beside its neighbours, and
/// the last one looks only.
struct Path;

impl UserType for Path {
    type State = i64;
    type Effect = i64;
    const OPERATIONS: &'static [UserOperation] = &[
        UserOperation::writes("a", &[]).in_mode("a"),
        UserOperation::writes("b", &[]).in_mode("b"),
        UserOperation::reads("c", &[]).in_mode("c"),
    ];
    const MODES: &'static [LockMode] =
        &[LockMode::new("a", &["a", "b"]), LockMode::new("b", &["c"]), LockMode::new("c", &["c"])];

    fn execute(_: &i64, _: &Call<'_>) -> Answer<i64> {
        Answer::only(UserReply::Ok)
    }
    fn apply(_: &mut i64, _: &i64) {}
    fn commute(_: &i64, _: &i64) -> bool {
        true
    }
    fn unchanged(_: &Call<'_>, _: Option<&UserReply>, _: &i64) -> bool {
        true
    }
}

fn path() -> [Mode; 3] {
    let of = user::register("path", 1, Module::native::<Path>()).expect("there is room");
    let mode = |name: &str| user::Operation::new(of, name.as_bytes(), &[]).ok().and_then(|it| it.mode());
    ["a", "b", "c"].map(|name| Mode::User(mode(name).expect("it has a mode")))
}

#[test]
fn modes_of_a_users_type_that_differ_share_a_phase_and_those_that_conflict_wait() {
    let mut table = phased(Mutants::default());
    let [a, b, c] = path();
    assert!(lock(&mut table, 1, "k", a) && lock(&mut table, 2, "k", b));
    assert!(lock(&mut table, 1, "k", c), "b stands beside it, and who has a has it alone");
    assert!(!lock(&mut table, 3, "k", c) && !lock(&mut table, 4, "k", a), "a and c are in each other's way");
    assert_eq!(release(&mut table, 1), [id(3)], "the oldest joins b");
    assert!(!lock(&mut table, 5, "k", Mode::Observe));
    assert!(release(&mut table, 2).is_empty(), "the phase has had its members");
    assert_eq!(release(&mut table, 3), [id(5)]);
    assert!(lock(&mut table, 6, "k", c), "both only look, and the phase is open");
    assert!(release(&mut table, 5).is_empty());
    assert_eq!(release(&mut table, 6), [id(4)]);
    assert!(table.take_wounded().is_empty());
}

/// Transactions of one operation in these modes come to one key and go, in any order. Every one that comes is younger
/// than all before. Fails if a transaction waits for a free lock, if conflicting modes are held together, or if a
/// transaction waits for longer than its place in its queue allows.
fn one_key(seed: u64, modes: &[Mode], mutants: Mutants) -> Result<(), String> {
    let mut random = Rng::with_seed(seed);
    let mut table = phased(mutants);
    let mut waiting: BTreeMap<u64, (Mode, usize)> = BTreeMap::new();
    let mut holding: BTreeMap<u64, Mode> = BTreeMap::new();
    let (weight, steps, usual) = (random.u64(1..4), 400, modes[random.usize(0..modes.len())]);
    for number in 1..=steps {
        let mut granted: Vec<u64> = Vec::new();
        if waiting.len() < 12 && (holding.is_empty() || random.u64(0..4) < weight) {
            let mode = if random.bool() { usual } else { modes[random.usize(0..modes.len())] };
            let before = waiting.values().filter(|(other, _)| *other == mode).count();
            // All phases before it is its queue's turn, so often as its queue needs, and whoever is there now.
            let rounds = before / PHASING.members as usize + 1;
            waiting.insert(number, (mode, rounds * modes.len() * PHASING.members as usize + holding.len()));
            if lock(&mut table, number, "k", mode) {
                granted.push(number);
            }
        } else {
            let place = random.usize(0..holding.len());
            let gone = *holding.keys().nth(place).expect("the place is below the length");
            holding.remove(&gone);
            granted.extend(release(&mut table, gone).into_iter().map(|id| id.number));
        }
        for number in granted {
            let (mode, _) = waiting.remove(&number).ok_or("granted twice")?;
            holding.insert(number, mode);
            // Who may be beside it keeps nobody from the lock; of those of the same mode each has its place.
            let is_behind =
                |other: u64, waits: Mode| other < number && (waits == mode || !waits.compatible(mode));
            for (other, left) in waiting.iter_mut().filter(|(other, left)| is_behind(**other, left.0)) {
                left.1 = left.1.checked_sub(1).ok_or(format!("{other} waits for too long"))?;
            }
        }
        let is_incompatible = |(one, mode): (&u64, &Mode)| {
            holding.iter().any(|(other, held)| other != one && !held.compatible(*mode))
        };
        if holding.iter().any(is_incompatible) {
            return Err("conflicting modes are held together".to_owned());
        }
        if holding.is_empty() && !waiting.is_empty() {
            return Err("a wake-up is lost".to_owned());
        }
        let may_hold = |wanted: &Mode| holding.values().all(|held| held.compatible(*wanted));
        let eldest = waiting.iter().next().filter(|(_, (mode, _))| may_hold(mode));
        if let Some((number, _)) = eldest {
            return Err(format!("{number}, the oldest, waits for nobody"));
        }
    }
    Ok(())
}

#[test]
fn every_waiter_has_its_turn_within_its_bound() {
    let [a, b, c] = path();
    for seed in 0..500 {
        assert_eq!(one_key(seed, &MODES, Mutants::default()), Ok(()), "seed {seed}");
        let modes = [a, b, c, Mode::Observe, Mode::Write];
        assert_eq!(one_key(seed, &modes, Mutants::default()), Ok(()), "seed {seed}, a user's type");
    }
}

#[test]
fn the_bugs_of_the_papers_phaser_are_caught() {
    let caught = |mutant: Mutant| (0..500).find_map(|seed| one_key(seed, &MODES, mutant.into()).err());
    assert_eq!(caught(Mutant::SignalOthersOnly).as_deref(), Some("a wake-up is lost"));
    for mutant in [Mutant::PhaseWithoutEnd, Mutant::LatecomersOvertake] {
        assert!(caught(mutant).is_some_and(|text| text.ends_with("too long")), "{mutant:?}");
    }
}
