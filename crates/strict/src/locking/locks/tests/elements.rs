//! Elements of a key that have locks of their own.

use super::*;
use datatypes::Items;

const KEY: &[u8] = b"k";

fn asker(number: u64) -> Asker {
    Asker { id: id(number), age: age(number), votes: false, passes: false, now: NOW }
}

fn claim<'c>(elements: &'c [&'c [u8]]) -> Claim<'c> {
    Claim { mode: Mode::Place, elements: Items::Slices(elements) }
}

/// Changes elements.
fn place(table: &mut LockTable, number: u64, elements: &[&[u8]]) -> bool {
    table.lock(asker(number), KEY, &claim(elements))
}

fn both(mut check: impl FnMut(LockTable)) {
    [None, Some(Phasing::default())].into_iter().for_each(|phasing| check(table(phasing)));
}

#[test]
fn different_elements_are_changed_together_and_one_by_one_after_the_other() {
    both(|mut table| {
        assert!(place(&mut table, 1, &[b"x"]) && place(&mut table, 2, &[b"y"]));
        assert!(!place(&mut table, 3, &[b"z", b"x"]), "the first one has x");
        assert!(place(&mut table, 4, &[b"w"]));
        assert_eq!(table.waited_for(id(3)), Some(KEY), "whoever is told knows the key, not the lock's name");
        table.release(id(1));
        assert_eq!(table.take_ready(NOW), [id(3)]);
        assert!(place(&mut table, 3, &[b"z", b"x"]));
        assert!(table.take_wounded().is_empty());
    });
}

#[test]
fn who_looks_at_the_key_or_changes_a_dict_waits_for_all_who_change_members() {
    for other in [Mode::Observe, Mode::PlaceFields] {
        both(|mut table| {
            assert!(place(&mut table, 1, &[b"x"]) && place(&mut table, 2, &[b"y"]));
            assert!(!lock(&mut table, 3, "k", other));
            table.release(id(1));
            assert!(table.take_ready(NOW).is_empty());
            table.release(id(2));
            assert_eq!(table.take_ready(NOW), [id(3)]);
            assert!(!place(&mut table, 4, &[b"z"]));
        });
    }
}

#[test]
fn one_that_waits_for_several_elements_is_ready_each_time_it_has_one() {
    both(|mut table| {
        assert!(place(&mut table, 1, &[b"x"]) && place(&mut table, 2, &[b"y"]));
        assert!(!place(&mut table, 3, &[b"x", b"y"]));
        table.release(id(2));
        let _ = table.take_ready(NOW);
        assert!(!place(&mut table, 3, &[b"x", b"y"]), "the first one has x");
        table.release(id(1));
        assert_eq!(table.take_ready(NOW), [id(3)]);
        assert!(place(&mut table, 3, &[b"x", b"y"]));
    });
}

#[test]
fn who_changes_an_element_and_then_looks_waits_for_the_others() {
    both(|mut table| {
        assert!(place(&mut table, 1, &[b"x"]) && lock(&mut table, 1, "k", Mode::Observe));
        assert!(!place(&mut table, 2, &[b"y"]), "it has looked");
        table.release(id(1));
        assert_eq!(table.take_ready(NOW), [id(2)]);
        assert!(place(&mut table, 2, &[b"y"]) && place(&mut table, 3, &[b"z"]));
        assert!(!lock(&mut table, 3, "k", Mode::Observe), "the second one is older");
        assert!(!place(&mut table, 3, &[b"y"]), "it waits at two locks of one key");
        assert!(
            lock(&mut table, 2, "k", Mode::Observe),
            "the older one looks, and the younger one gives way"
        );
        assert_eq!(table.take_wounded(), [(id(3), KEY.into())]);
    });
}

#[test]
fn who_waits_for_an_element_gives_the_key_to_an_older_one() {
    let mut table = table(Some(Phasing::default()));
    assert!(place(&mut table, 5, &[b"x"]) && !place(&mut table, 6, &[b"x"]));
    assert!(!lock(&mut table, 3, "k", Mode::Observe), "the fifth one does not wait");
    assert_eq!(table.take_wounded(), [(id(6), KEY.into())]);
    table.release(id(5));
    assert_eq!(table.take_ready(NOW), [id(3)]);
}

#[test]
fn a_vote_among_several_does_not_wait_for_an_element() {
    let mut table = table(Some(Phasing::default()));
    let vote = |table: &mut LockTable, number: u64| {
        table.lock(Asker { votes: true, ..asker(number) }, KEY, &claim(&[b"x"]))
    };
    assert!(place(&mut table, 4, &[b"x"]));
    assert!(!vote(&mut table, 5), "an older one has it");
    assert_eq!(table.waited_for(id(5)), Some(KEY));
    table.release(id(5));
    assert!(vote(&mut table, 3));
    assert_eq!(table.take_wounded(), [(id(4), KEY.into())]);
}

#[test]
fn what_an_earlier_leader_has_voted_for_keeps_its_elements() {
    both(|mut table| {
        table.reinstate(id(1), age(1), KEY, &claim(&[b"x"]), NOW);
        assert!(place(&mut table, 2, &[b"y"]) && !place(&mut table, 3, &[b"x"]));
        assert!(
            table.is_taken(id(4), KEY, &claim(&[b"x", b"z"])) && !table.is_taken(id(4), KEY, &claim(&[b"z"]))
        );
    });
}

#[test]
fn readers_and_writers_know_of_no_elements() {
    for phasing in [None, Some(Phasing::default())] {
        let options = LockOptions { phasing, readers_and_writers: true };
        let mut table = LockTable::new(options, Mutants::default());
        assert!(place(&mut table, 1, &[b"x"]) && !place(&mut table, 2, &[b"y"]));
        assert_eq!(
            table.contention.keys()[0].pairs[0].0,
            Pair { wanted: Mode::Write, met: Some(Mode::Write) }
        );
    }
}

#[test]
fn contention_on_an_element_is_reported_for_its_key() {
    both(|mut table| {
        assert!(place(&mut table, 2, &[b"x"]) && !place(&mut table, 3, &[b"x"]));
        let [hot] = table.contention.keys() else { panic!("one key: {:?}", table.contention.keys()) };
        let pair = Pair { wanted: Mode::Place, met: Some(Mode::Place) };
        assert_eq!((&*hot.key, hot.pairs[0].0, hot.contention().waits), (KEY, pair, 1));
    });
}
