use super::*;

const OWN: ProcessId = ProcessId(1);
const OTHER: ProcessId = ProcessId(2);

fn place(key: &str) -> Place {
    Place { keyspace: KeyspaceId(0), sought: Sought::List, key: key.as_bytes().into() }
}

fn waiter(client: u64) -> Waiter {
    Waiter { process: OWN, worker: 0, client }
}

fn at(millis: u64) -> Instant {
    Instant(millis * 1000)
}

/// Whose turns were given.
fn turns(waiters: &mut Waiters) -> Vec<u64> {
    waiters.take_turns().into_iter().map(|turn| turn.waiter.client).collect()
}

/// Waiters 1 to `count` of a line that none of them has found anything in.
fn line(count: u64, lags: bool) -> Waiters {
    let mut waiters = Waiters::new(OWN);
    (1..=count).for_each(|client| waiters.enter(&place("k"), waiter(client), lags, at(0)));
    assert_eq!(turns(&mut waiters), [1], "the first has the turn when it comes");
    waiters.missed(&place("k"), waiter(1), at(0));
    waiters
}

#[test]
fn elements_go_to_waiters_in_their_order() {
    let mut waiters = line(3, false);
    for client in 1..=3 {
        waiters.signal(&place("k"), 1, at(1));
        assert_eq!(turns(&mut waiters), [client]);
        waiters.leave(&place("k"), waiter(client), true, at(1));
        assert!(turns(&mut waiters).is_empty(), "one element, one turn");
    }
    assert!(!waiters.is_concerned() && waiters.deadline().is_none());
}

#[test]
fn several_elements_are_several_turns_one_after_the_other() {
    let mut waiters = line(4, false);
    waiters.signal(&place("k"), 2, at(1));
    waiters.signal(&place("k"), 1, at(1));
    for client in 1..=3 {
        assert_eq!(turns(&mut waiters), [client]);
        waiters.leave(&place("k"), waiter(client), true, at(1));
    }
    assert!(turns(&mut waiters).is_empty());
    assert!(waiters.has_line(&place("k")));
}

#[test]
fn who_comes_first_finds_what_nobody_signalled_and_the_next_one_does_too() {
    let mut waiters = Waiters::new(OWN);
    waiters.enter(&place("k"), waiter(1), false, at(0));
    waiters.enter(&place("k"), waiter(2), false, at(0));
    assert_eq!(turns(&mut waiters), [1]);
    waiters.leave(&place("k"), waiter(1), true, at(0));
    assert_eq!(turns(&mut waiters), [2], "more may be left");
    waiters.missed(&place("k"), waiter(2), at(0));
    assert!(turns(&mut waiters).is_empty());
}

#[test]
fn a_signal_during_a_turn_that_found_nothing_gives_another() {
    let mut waiters = line(1, false);
    waiters.signal(&place("k"), 1, at(1));
    waiters.signal(&place("k"), 1, at(1));
    assert_eq!(turns(&mut waiters), [1]);
    waiters.missed(&place("k"), waiter(1), at(1));
    assert_eq!(turns(&mut waiters), [1], "it may have looked before the second write");
    waiters.missed(&place("k"), waiter(1), at(1));
    assert!(turns(&mut waiters).is_empty());
}

#[test]
fn who_goes_passes_its_turn_on() {
    let mut waiters = line(2, false);
    waiters.signal(&place("k"), 1, at(1));
    assert_eq!(turns(&mut waiters), [1]);
    waiters.leave(&place("k"), waiter(1), false, at(1));
    assert_eq!(turns(&mut waiters), [2]);
    waiters.leave(&place("k"), waiter(1), false, at(1));
    assert!(turns(&mut waiters).is_empty());
}

#[test]
fn lists_and_sorted_sets_have_lines_of_their_own() {
    let mut waiters = line(1, false);
    let scored = Place { sought: Sought::ScoredSet, ..place("k") };
    waiters.signal(&scored, 1, at(1));
    assert!(turns(&mut waiters).is_empty());
    assert!(waiters.is_sought(&place("k")) && !waiters.is_sought(&scored));
}

#[test]
fn where_writes_show_later_a_signal_is_followed_by_more_turns() {
    let mut waiters = line(1, true);
    let mut taken = Vec::new();
    waiters.signal(&place("k"), 1, at(10));
    let mut now = at(10);
    for _ in 0..8 {
        assert_eq!(turns(&mut waiters), [1]);
        waiters.missed(&place("k"), waiter(1), now);
        now = waiters.deadline().expect("it lags");
        taken.push(now.0 / 1000);
        waiters.tick(now);
    }
    assert_eq!(taken, [15, 35, 115, 435, 1435, 2435, 3435, 4435]);
    // A turn without a signal that finds something goes on.
    waiters.enter(&place("k"), waiter(2), true, now);
    waiters.leave(&place("k"), waiter(1), true, now);
    assert_eq!(turns(&mut waiters), [1, 2]);
}

#[test]
fn many_lines_share_the_turns_without_a_signal() {
    let mut waiters = Waiters::new(OWN);
    let names: Vec<String> = (0..2 * ATTEMPTS_PER_SECOND).map(|number| number.to_string()).collect();
    for (name, client) in names.iter().zip(0..) {
        waiters.enter(&place(name), waiter(client), true, at(0));
    }
    turns(&mut waiters);
    let mut now = at(0);
    for pause in [5, 20, 80, 320, 3000, 3000] {
        waiters.missed(&place("7"), waiter(7), now);
        let due = waiters.deadline().expect("it lags");
        assert_eq!(due, Instant(now.0 + pause * 1000));
        now = due;
        waiters.tick(now);
        assert_eq!(turns(&mut waiters), [7]);
    }
}

#[test]
fn a_process_that_keeps_a_turn_is_forgotten_as_far_as_it_is_silent() {
    let mut waiters = Waiters::new(OWN);
    let of_other = |client| Waiter { process: OTHER, ..waiter(client) };
    [of_other(1), of_other(2), waiter(3), of_other(4)]
        .iter()
        .for_each(|waiter| waiters.enter(&place("k"), *waiter, true, at(0)));
    assert_eq!(turns(&mut waiters), [1]);
    waiters.enter(&place("k"), of_other(4), true, at(500));
    waiters.tick(at(1999));
    assert!(turns(&mut waiters).is_empty());
    waiters.tick(at(2000));
    assert_eq!(turns(&mut waiters), [3], "2 was silent since, too");
    waiters.leave(&place("k"), waiter(3), true, at(2000));
    assert_eq!(turns(&mut waiters), [4]);
    // The own process never loses a turn.
    let mut waiters = line(1, true);
    waiters.signal(&place("k"), 1, at(0));
    assert_eq!((turns(&mut waiters), waiters.deadline()), (vec![1], None));
}

#[test]
fn others_are_notified_now_and_then_and_believed_for_a_while() {
    let mut waiters = Waiters::new(OWN);
    assert!(waiters.must_tell(&place("k"), at(0)) && waiters.must_tell(&place("l"), at(0)));
    assert!(!waiters.must_tell(&place("k"), at(1499)) && waiters.must_tell(&place("k"), at(1500)));
    assert_eq!(waiters.announced.len(), 2);
    waiters.note_elsewhere(&place("k"), at(0));
    assert!(waiters.is_sought(&place("k")) && !waiters.has_line(&place("k")) && waiters.is_concerned());
    waiters.tick(at(9999));
    assert!(waiters.is_concerned());
    waiters.tick(at(10_000));
    assert!(!waiters.is_concerned());
    assert!(waiters.announced.is_empty() && waiters.deadline().is_none(), "what was told is forgotten, too");
}

#[test]
fn when_anything_may_be_there_the_first_of_each_line_looks() {
    let mut waiters = line(2, false);
    waiters.enter(&place("l"), waiter(3), false, at(0));
    assert_eq!(turns(&mut waiters), [3]);
    waiters.signal_all(None, at(1));
    assert_eq!(turns(&mut waiters), [1], "3 has the turn already");
    waiters.leave(&place("k"), waiter(1), true, at(1));
    assert_eq!(turns(&mut waiters), [2], "more may be there");
    waiters.missed(&place("k"), waiter(2), at(1));
    assert!(turns(&mut waiters).is_empty());
    waiters.missed(&place("l"), waiter(3), at(1));
    assert_eq!(turns(&mut waiters), [3], "it may have looked too early");
}

#[test]
fn every_process_finds_the_same_home() {
    let processes = [ProcessId(0), ProcessId(1), ProcessId(2)];
    let mut homes = [0; 3];
    for number in 0..3000 {
        let place = place(&format!("key:{number}"));
        let home = place.home(&processes, HashSeed(7)).expect("there are processes");
        let mut others = processes;
        others.reverse();
        assert_eq!(place.home(&others, HashSeed(7)), Some(home));
        let left: Vec<ProcessId> = processes.into_iter().filter(|process| *process != home).collect();
        let next = place.home(&left, HashSeed(7)).expect("there are processes");
        // Who goes takes only its own lines away.
        assert_eq!(place.home(&[home, next], HashSeed(7)), Some(home));
        homes[usize::from(home.0)] += 1;
    }
    assert!(homes.iter().all(|count| (850..1150).contains(count)), "{homes:?}");
}

/// Whatever happens in whatever order: as long as elements are there and waiters, somebody has the turn or is signalled.
#[test]
fn nobody_is_left_waiting_for_what_is_there() {
    for seed in 0..2000 {
        let mut random = types::Rng::with_seed(seed);
        let mut waiters = Waiters::new(OWN);
        let (mut elements, mut inside, mut due) = (0u64, BTreeSet::new(), Vec::new());
        for client in 0..200u64 {
            match random.u64(..4) {
                0 => {
                    inside.insert(client);
                    waiters.enter(&place("k"), waiter(client), false, at(0));
                }
                1 => {
                    let pushed = random.u64(1..4);
                    elements += pushed;
                    // Who sees nobody tells nobody.
                    if waiters.is_sought(&place("k")) {
                        waiters.signal(&place("k"), pushed, at(0));
                    }
                }
                // Somebody who does not wait takes one.
                2 => elements = elements.saturating_sub(1),
                _ => {
                    if let Some(gone) = inside.iter().next().copied().filter(|_| random.bool()) {
                        inside.remove(&gone);
                        waiters.leave(&place("k"), waiter(gone), false, at(0));
                    }
                }
            }
            due.extend(turns(&mut waiters));
            if random.bool() {
                attempt(&mut waiters, &mut due, &mut elements, &mut inside);
            }
        }
        while !due.is_empty() {
            attempt(&mut waiters, &mut due, &mut elements, &mut inside);
        }
        assert!(elements == 0 || inside.is_empty(), "seed {seed}: {elements} left, {inside:?} wait");
    }
}

fn attempt(waiters: &mut Waiters, due: &mut Vec<u64>, elements: &mut u64, inside: &mut BTreeSet<u64>) {
    if due.is_empty() {
        return;
    }
    let client = due.remove(0);
    if inside.contains(&client) && *elements > 0 {
        *elements -= 1;
        inside.remove(&client);
        waiters.leave(&place("k"), waiter(client), true, at(0));
    } else if inside.contains(&client) {
        waiters.missed(&place("k"), waiter(client), at(0));
    }
    due.extend(turns(waiters));
}

#[test]
fn a_stream_wakes_every_reader_and_one_consumer_of_each_group() {
    let mut waiters = Waiters::new(OWN);
    let line = |line| Place { sought: Sought::Entries { line }, ..place("s") };
    for (number, of) in [(1, 7), (2, 8), (3, 9), (4, 9)] {
        waiters.enter(&line(of), waiter(number), false, at(0));
    }
    assert_eq!(turns(&mut waiters), [1, 2, 3], "the first of each line looks");
    for (number, of) in [(1, 7), (2, 8), (3, 9)] {
        waiters.missed(&line(of), waiter(number), at(1));
    }
    assert!(waiters.awaits_streams() && waiters.is_sought(&line(0)));
    waiters.signal(&line(0), UNTIL_NOTHING, at(2));
    assert_eq!(turns(&mut waiters), [1, 2, 3]);
    waiters.leave(&line(9), waiter(3), true, at(3));
    assert_eq!(turns(&mut waiters), [4], "the next one of the group looks for what is left");
    for (number, of) in [(1, 7), (2, 8), (4, 9)] {
        waiters.leave(&line(of), waiter(number), true, at(4));
    }
    assert!(!waiters.awaits_streams() && !waiters.is_sought(&line(0)));
}
