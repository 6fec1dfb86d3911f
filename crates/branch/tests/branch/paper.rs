//! What the paper shows, by its sections and figures.

use crate::model::{READ, SESSION, World, increment, key, operate, set, text, write};
use anabranch_branch::{Begin, End, Mutant, Mutants, Owner, Policy, Refusal, StateId};
use types::{Reply, SessionId};

const OTHER: SessionId = SessionId(2);

fn world() -> World {
    World::new(Mutants::default())
}

fn names(keys: &[&str]) -> Vec<mvcc::CompactKey> {
    keys.iter().map(|name| key(name)).collect()
}

/// A transaction of `session` that starts at this state and goes nowhere else.
fn at(world: &mut World, session: SessionId, from: StateId, name: &str, value: &str) -> StateId {
    let operations = [(name, write(value.as_bytes()))];
    world.transact(session, &Begin::State(from), &operations, &End::State(from)).unwrap().unwrap()
}

#[test]
fn section_2_a_reader_of_one_branch_sees_nothing_of_the_other() {
    // Alice and Bruno edit the page's content; Carlo and Davide follow one of them each.
    let mut world = world();
    let page =
        world.state(1, &[StateId::ROOT], &[("content", set("")), ("image", set("")), ("links", set(""))]);
    let alice = at(&mut world, SESSION, page, "content", "for");
    let bruno = at(&mut world, OTHER, page, "content", "against");
    let carlo = at(&mut world, SESSION, alice, "links", "praise");
    let davide = at(&mut world, OTHER, bruno, "image", "derogatory");
    let seen = |world: &mut World, state| {
        ["content", "links", "image"].map(|name| world.text(state, name)).join(",")
    };
    assert_eq!(seen(&mut world, carlo), "for,praise,");
    assert_eq!(seen(&mut world, davide), "against,,derogatory");
    // Who merges learns where it began, and which objects conflict; the indirect ones are in the branches' write sets.
    assert_eq!(world.keyspace.fork_points(&[carlo, davide]), Ok(vec![page]));
    assert_eq!(world.keyspace.conflicting(&[carlo, davide]), Ok(names(&["content"])));
}

#[test]
fn figure_3_a_counter_merges_by_the_differences_to_the_fork_point() {
    let mut world = world();
    let base = world.transact(SESSION, &Begin::Ancestor, &[("n", increment(5))], &End::Serializability);
    let base = base.unwrap().unwrap();
    let up = world.transact(SESSION, &Begin::State(base), &[("n", increment(3))], &End::State(base));
    let down = world.transact(OTHER, &Begin::State(base), &[("n", increment(-1))], &End::State(base));
    let (up, down) = (up.unwrap().unwrap(), down.unwrap().unwrap());
    // The application's own merge, as the figure has it.
    let mut merge = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    let parents = world.keyspace.read_states(&merge);
    assert_eq!(parents, {
        let mut both = vec![up, down];
        both.sort();
        both
    });
    let fork = world.keyspace.fork_points(&parents).unwrap()[0];
    let number = |world: &mut World, state| world.text(state, "n").parse::<i64>().unwrap();
    let at_fork = number(&mut world, fork);
    let sum = parents.iter().fold(at_fork, |sum, parent| sum + number(&mut world, *parent) - at_fork);
    operate(&mut world.keyspace, &mut merge, "n", &write(sum.to_string().as_bytes())).unwrap();
    let merged = world.commit(merge, &End::Serializability).unwrap().unwrap();
    assert_eq!((at_fork, world.text(merged, "n").as_str()), (5, "7"));
    assert_eq!(world.keyspace.heads(), [merged]);
}

#[test]
fn figure_4_a_merge_resolves_several_objects_at_once() {
    // Two customers buy the last game; the merge keeps one cart and apologizes to the other, in one state.
    let mut world = world();
    let shop = world.state(1, &[StateId::ROOT], &[("stock", set("1"))]);
    let buy = |world: &mut World, session, who: &str| {
        let operations = [("stock", increment(-1)), (who, write(b"game")), ("last", write(who.as_bytes()))];
        world.transact(session, &Begin::State(shop), &operations, &End::State(shop)).unwrap().unwrap()
    };
    let (alice, bruno) = (buy(&mut world, SESSION, "alice"), buy(&mut world, OTHER, "bruno"));
    let mut merge = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    assert_eq!(world.keyspace.conflicting(&[alice, bruno]), Ok(names(&["last", "stock"])));
    world.keyspace.resolve(&mut merge, &key("stock"), Policy::Refuse).unwrap();
    let left = operate(&mut world.keyspace, &mut merge, "stock", &READ).unwrap();
    assert_eq!(left.elements().next(), Some(Reply::Bulk(b"-1")), "oversold");
    operate(&mut world.keyspace, &mut merge, "stock", &write(b"0")).unwrap();
    operate(&mut world.keyspace, &mut merge, "alice", &write(b"apology")).unwrap();
    operate(&mut world.keyspace, &mut merge, "last", &write(b"bruno")).unwrap();
    let merged = world.commit(merge, &End::Serializability).unwrap().unwrap();
    let seen = ["stock", "alice", "bruno", "last"].map(|name| world.text(merged, name));
    assert_eq!(seen, ["0", "apology", "game", "bruno"]);
    assert_eq!(world.text(alice, "alice"), "game", "branches stay as they were");
}

#[test]
fn section_5_1_begin_constraints() {
    let mut world = world();
    let base = at(&mut world, SESSION, StateId::ROOT, "k", "0");
    let mine = at(&mut world, SESSION, base, "k", "mine");
    let theirs = at(&mut world, OTHER, base, "k", "theirs");
    let below_mine = world.state(9, &[mine], &[("l", set("1"))]);
    let mut begins_at = |session, begin: &Begin| -> Result<StateId, Refusal> {
        let transaction = world.keyspace.begin(session, begin)?;
        let state = world.keyspace.read_states(&transaction)[0];
        world.keyspace.abort(transaction);
        Ok(state)
    };
    assert_eq!(begins_at(SESSION, &Begin::Any), Ok(below_mine), "the most recent leaf");
    assert_eq!(begins_at(SESSION, &Begin::Ancestor), Ok(below_mine));
    assert_eq!(begins_at(OTHER, &Begin::Ancestor), Ok(theirs));
    assert_eq!(begins_at(SESSION, &Begin::Parent), Ok(mine), "the very state");
    assert_eq!(begins_at(SESSION, &Begin::State(base)), Ok(base));
    assert_eq!(begins_at(SESSION, &Begin::Branching(1)), Ok(below_mine));
    let all = Begin::All(vec![Begin::Ancestor, Begin::State(theirs)]);
    assert_eq!(begins_at(SESSION, &all), Err(Refusal::NoReadState));
    let either = Begin::Either(vec![Begin::State(theirs), Begin::Parent]);
    assert_eq!(begins_at(SESSION, &either), Ok(theirs), "breadth first: leaves come before their parents");
    assert_eq!(begins_at(SessionId(3), &Begin::Parent), Err(Refusal::NoReadState), "it never committed");
}

#[test]
fn section_5_1_end_constraints() {
    // While a transaction reads r and writes w, another one on its branch writes `between`.
    let outcome = |between: &str, end: &End| {
        let mut world = world();
        let base = world.state(1, &[StateId::ROOT], &[("r", set("0")), ("w", set("0"))]);
        let mut transaction = world.keyspace.begin(SESSION, &Begin::Any).unwrap();
        operate(&mut world.keyspace, &mut transaction, "r", &READ).unwrap();
        operate(&mut world.keyspace, &mut transaction, "w", &write(b"1")).unwrap();
        let other = world.state(2, &[base], &[(between, set("2"))]);
        match world.commit(transaction, end) {
            Ok(made) => match world.model.states[&made.unwrap()].parents[0] {
                parent if parent == other => "behind",
                _ => "fork",
            },
            Err(Refusal::NoCommitState) => "refused",
            Err(error) => panic!("{error}"),
        }
    };
    let both = |a, b| End::All(vec![a, b]);
    assert_eq!(["r", "w", "x"].map(|key| outcome(key, &End::Serializability)), ["fork", "behind", "behind"]);
    assert_eq!(
        ["r", "w", "x"].map(|key| outcome(key, &End::SnapshotIsolation)),
        ["behind", "fork", "behind"]
    );
    assert_eq!(["r", "w"].map(|key| outcome(key, &End::ReadCommitted)), ["behind", "behind"]);
    assert_eq!(outcome("r", &both(End::Serializability, End::NoBranching)), "refused");
    assert_eq!(outcome("w", &both(End::Serializability, End::NoBranching)), "behind");
    assert_eq!(outcome("r", &both(End::Serializability, End::Branching(2))), "fork");
    assert_eq!(outcome("r", &both(End::Serializability, End::Branching(1))), "refused");
    let either = End::Either(vec![End::Serializability, End::SnapshotIsolation]);
    assert_eq!(["r", "w"].map(|key| outcome(key, &either)), ["behind", "behind"]);
    assert_eq!(outcome("r", &End::Parent), "refused", "the session committed nothing");
}

#[test]
fn section_5_1_snapshot_isolation_permits_write_skew_on_a_branch() {
    let skew = |end: &End| {
        let mut world = world();
        world.state(1, &[StateId::ROOT], &[("a", set("1")), ("b", set("1"))]);
        let [mut first, mut second] =
            [SESSION, OTHER].map(|id| world.keyspace.begin(id, &Begin::Any).unwrap());
        for (transaction, name) in [(&mut first, "a"), (&mut second, "b")] {
            operate(&mut world.keyspace, transaction, "a", &READ).unwrap();
            operate(&mut world.keyspace, transaction, "b", &READ).unwrap();
            operate(&mut world.keyspace, transaction, name, &write(b"0")).unwrap();
        }
        world.commit(first, end).unwrap();
        world.commit(second, end).unwrap();
        world.keyspace.heads().len()
    };
    assert_eq!(skew(&End::SnapshotIsolation), 1);
    assert_eq!(skew(&End::Serializability), 2, "serializability forks instead");
}

#[test]
fn figure_6_a_commit_ripples_down_until_a_state_stops_it() {
    // s4 <- s6 <- s11 <- s12, and s12 wrote what the transaction read: it commits below s11.
    let mut world = world();
    let s4 = world.state(4, &[StateId::ROOT], &[("x", set("0"))]);
    let mut transaction = world.keyspace.begin(SESSION, &Begin::State(s4)).unwrap();
    operate(&mut world.keyspace, &mut transaction, "x", &READ).unwrap();
    operate(&mut world.keyspace, &mut transaction, "y", &write(b"1")).unwrap();
    let s6 = world.state(6, &[s4], &[("u", set("1"))]);
    let s11 = world.state(11, &[s6], &[("v", set("1"))]);
    let s12 = world.state(12, &[s11], &[("x", set("1"))]);
    let made = world.commit(transaction, &End::Serializability).unwrap().unwrap();
    assert_eq!(world.model.states[&made].parents, [s11]);
    assert_eq!(world.keyspace.heads(), [s12, made]);
    let mut drawn = String::new();
    world.keyspace.dag().draw(&mut drawn).unwrap();
    let expected = [
        "* 12@9.1 <- 11@9.1  1 key",
        "* 12@1.1 <- 11@9.1  1 key",
        "Y 11@9.1 <- 6@9.1  1 key",
        "| 6@9.1 <- 4@9.1  1 key",
        "| 4@9.1 <- 0@0.0  1 key",
        "| 0@0.0",
    ];
    assert_eq!(drawn.lines().collect::<Vec<_>>(), expected);
    assert!(made > s11, "ids rise along the branch");
}

#[test]
fn section_6_1_4_read_only_transactions_make_no_state_and_writes_never_wait() {
    let mut world = world();
    let base = at(&mut world, SESSION, StateId::ROOT, "k", "0");
    let states = world.keyspace.census().states;
    let read = world.transact(SESSION, &Begin::Ancestor, &[("k", READ)], &End::Serializability);
    assert_eq!((read, world.keyspace.census().states), (Ok(None), states));
    // Ten open transactions that all read and write one key: all commit.
    let open: Vec<_> = (0..10).map(|id| world.keyspace.begin(SessionId(id), &Begin::Any).unwrap()).collect();
    for mut transaction in open {
        operate(&mut world.keyspace, &mut transaction, "k", &increment(1)).unwrap();
        world.commit(transaction, &End::Serializability).unwrap().unwrap();
    }
    assert_eq!((world.keyspace.heads().len(), world.text(base, "k").as_str()), (10, "0"));
    let merged = world.merge().unwrap();
    assert_eq!(world.text(merged, "k"), "10");
}

#[test]
fn section_5_1_a_session_reads_its_writes_and_never_goes_back() {
    // Corrections 56: a read leaves no state, and the next begin must not choose another branch.
    let seen = |mutants: Mutants| {
        let mut world = World::new(mutants);
        let base = world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
        world.state(2, &[base], &[("k", set("first"))]);
        let mut values = Vec::new();
        for number in 3..5 {
            let mut transaction = world.keyspace.begin(SESSION, &Begin::Ancestor).unwrap();
            let reply = operate(&mut world.keyspace, &mut transaction, "k", &READ).unwrap();
            values.push(format!("{:?}", reply.elements().next()));
            world.commit(transaction, &End::Serializability).unwrap();
            world.state(number, &[base], &[("k", set("later"))]);
        }
        values
    };
    let values = seen(Mutants::default());
    assert_eq!(values[0], values[1]);
    let values = seen(Mutant::ForgetReads.into());
    assert_ne!(values[0], values[1], "the mutant goes to another branch");
}

#[test]
fn figure_8_compression_leaves_fork_points_and_what_is_read() {
    // s0 <- s1 <- s2; s2 forks into s3 <- s5 <- s7 and s4 <- s6 <- s8. A reader holds s5.
    let mut world = world();
    let mut add = |number, parent: &[StateId], name: &str| world.state(number, parent, &[(name, set("v"))]);
    let s1 = add(1, &[StateId::ROOT], "d");
    let s2 = add(2, &[s1], "a");
    let s3 = add(3, &[s2], "b");
    let s4 = add(4, &[s2], "c");
    let (s5, s6) = (add(5, &[s3], "b"), add(6, &[s4], "c"));
    let (s7, s8) = (add(7, &[s5], "a"), add(8, &[s6], "a"));
    let reader = world.keyspace.begin(SESSION, &Begin::State(s5)).unwrap();
    world.keyspace.place_ceiling(Owner::Client(OTHER), vec![s7, s8]);
    while world.keyspace.collect(3) > 0 {}
    assert_eq!(world.retained(), [s2, s5, s7, s8]);
    assert_eq!(world.difference(&names(&["a", "b", "c", "d"])), None);
    assert_eq!(text(&world.keyspace.value_at(s8, &key("d")).unwrap()), "v", "d's state has gone, d has not");
    world.keyspace.abort(reader);
    while world.keyspace.collect(3) > 0 {}
    assert_eq!(world.retained(), [s2, s7, s8]);
    assert_eq!(world.keyspace.value_at(s5, &key("a")), Err(Refusal::UnknownState(s5)));
}
