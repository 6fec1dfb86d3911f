//! Merges by the application's handler (T13).

use crate::model::{SESSION, World, add, increment, key, operate, options, set, text, write};
use anabranch_branch::{
    Begin, Conflict, Conflicts, End, Failure, Handler, Keyspace, Mutants, Policy, Refusal, StateId,
};
use datatypes::register::Register;
use datatypes::{Cell, Value};
use mvcc::CompactKey;
use types::SessionId;

/// A handler that answers key by key.
#[derive(Debug)]
struct Rule {
    version: u64,
    answer: fn(&CompactKey, &Conflict) -> Result<Option<Cell>, Failure>,
    /// What it was shown.
    shown: Vec<(CompactKey, Conflict)>,
}

impl Handler for Rule {
    fn version(&self) -> u64 {
        self.version
    }

    fn source(&self) -> &str {
        ""
    }

    fn handle(&mut self, conflicts: &mut dyn Conflicts) -> Result<Vec<(CompactKey, Cell)>, Failure> {
        let mut answers = Vec::new();
        for key in conflicts.keys().to_vec() {
            let conflict = conflicts.conflict(&key).unwrap();
            assert_eq!(conflicts.read(&key), None, "a key in conflict has no one value");
            self.shown.push((key.clone(), conflict.clone()));
            if let Some(cell) = (self.answer)(&key, &conflict)? {
                answers.push((key, cell));
            }
        }
        Ok(answers)
    }
}

fn rule(version: u64, answer: fn(&CompactKey, &Conflict) -> Result<Option<Cell>, Failure>) -> Rule {
    Rule { version, answer, shown: Vec::new() }
}

fn register(value: &str) -> Cell {
    Cell { value: Some(Value::Register(Register::new(value.as_bytes()))), expires_at: 0 }
}

/// All that differ from the fork, joined by `+`.
fn joined(_: &CompactKey, conflict: &Conflict) -> Result<Option<Cell>, Failure> {
    let changed = conflict.branches.iter().filter(|branch| **branch != conflict.fork).map(text);
    Ok(Some(register(&changed.collect::<Vec<_>>().join("+"))))
}

fn nothing(_: &CompactKey, _: &Conflict) -> Result<Option<Cell>, Failure> {
    Ok(None)
}

fn failing(name: &CompactKey, conflict: &Conflict) -> Result<Option<Cell>, Failure> {
    if *name == key("l") { Err(Failure("it cannot".to_owned())) } else { joined(name, conflict) }
}

/// Three branches that changed `k`, of which two changed `l`, and one `m`; `n` was added to.
fn forked(world: &mut World) -> [StateId; 4] {
    let base = world.state(1, &[StateId::ROOT], &[("k", set("0")), ("l", set("0")), ("n", add(5))]);
    let a = world.state(2, &[base], &[("k", set("a")), ("l", set("a")), ("n", add(1))]);
    let b = world.state(3, &[base], &[("k", set("b")), ("l", set("b")), ("n", add(2))]);
    let c = world.state(4, &[base], &[("k", set("c")), ("m", set("c"))]);
    [base, a, b, c]
}

#[test]
fn a_handler_is_shown_the_fork_and_every_branch() {
    let mut world = World::new(Mutants::default());
    forked(&mut world);
    let mut handler = rule(7, joined);
    let heads = world.keyspace.heads();
    let merged = world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse);
    let commit = merged.outcome.unwrap();
    world.note(commit.clone());
    assert_eq!(merged.failure, None);
    let value = |world: &mut World, name: &str| world.text(commit.id, name);
    assert_eq!((value(&mut world, "k"), value(&mut world, "l")), ("a+b+c".into(), "a+b".into()));
    assert_eq!((value(&mut world, "m"), value(&mut world, "n")), ("c".into(), "6+7".into()));
    let shown = handler.shown;
    let names: Vec<&CompactKey> = shown.iter().map(|(name, _)| name).collect();
    assert_eq!(names, [&key("k"), &key("l"), &key("n")], "only those in conflict, in order");
    let n = &shown[2].1;
    let texts = |cells: &[Cell]| cells.iter().map(text).collect::<Vec<_>>();
    assert_eq!((text(&n.fork), texts(&n.forks)), ("5".into(), vec!["5".to_owned()]));
    assert_eq!(texts(&n.branches), ["6", "7", "5"], "a branch that left it alone shows the fork's");
    assert_eq!(n.merged.as_ref().map(text), Some("8".into()));
    assert_eq!(shown[0].1.merged, None, "the type's rule does not decide");
    assert_eq!(world.difference(&["k", "l", "m", "n"].map(key)), None);
}

/// Two branches wrote a key apart, a third one merged them and wrote it again, and both went on: its value follows theirs.
#[test]
fn a_value_that_follows_the_others_is_no_conflict() {
    let mut world = World::new(Mutants::default());
    let a = world.state(1, &[StateId::ROOT], &[("k", set("a"))]);
    let b = world.state(2, &[StateId::ROOT], &[("k", set("b"))]);
    let merged = world.state(3, &[a, b], &[("k", set("ab"))]);
    world.state(4, &[a], &[("m", set("a"))]);
    world.state(5, &[b], &[("n", set("b"))]);
    world.state(6, &[merged], &[("k", set("c"))]);
    let heads = world.keyspace.heads();
    assert_eq!(heads.len(), 3);
    let mut handler = rule(7, |_, conflict| Ok(conflict.merged.is_none().then(|| register("the handler's"))));
    let commit = world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse);
    let commit = commit.outcome.unwrap();
    world.note(commit.clone());
    assert_eq!(world.text(commit.id, "k"), "c");
}

#[test]
fn what_a_handler_leaves_goes_to_the_types_rules_and_then_to_the_policy() {
    let mut world = World::new(Mutants::default());
    forked(&mut world);
    let heads = world.keyspace.heads();
    let mut handler = rule(7, nothing);
    let refused = world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse);
    assert_eq!(refused.outcome, Err(Refusal::Unresolved { key: key("k"), more: 1 }));
    assert_eq!(world.keyspace.heads(), heads, "no branch is lost");
    let merged =
        world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Newest).outcome.unwrap();
    let id = merged.id;
    world.note(merged);
    assert_eq!(
        (world.text(id, "k"), world.text(id, "l"), world.text(id, "n")),
        ("c".into(), "b".into(), "8".into())
    );
}

#[test]
fn a_handler_that_fails_has_written_nothing() {
    let mut world = World::new(Mutants::default());
    forked(&mut world);
    let heads = world.keyspace.heads();
    let mut handler = rule(7, failing);
    let failure = Some(Failure("it cannot".to_owned()));
    let refused = world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse);
    assert_eq!(refused.outcome, Err(Refusal::Handler(failure.clone().unwrap())));
    assert_eq!((refused.failure, world.keyspace.heads()), (failure.clone(), heads.clone()));
    assert_eq!(world.keyspace.census().states, 5, "the root, the base and three branches");
    // Its answer for `k` is not taken either where the keyspace declares what happens.
    let merged = world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Newest);
    assert_eq!(merged.failure, failure);
    let mut other = rule(8, nothing);
    let mut twin = World::new(Mutants::default());
    forked(&mut twin);
    let plain = twin.keyspace.merge(SESSION, Policy::Newest).unwrap();
    assert_eq!(merged.outcome.unwrap(), plain, "it is the merge without a handler");
    // In a merge of an application, the keys stay open.
    let mut world = World::new(Mutants::default());
    forked(&mut world);
    let mut transaction = world.keyspace.begin_merge(SESSION, &Begin::Any).unwrap();
    operate(&mut world.keyspace, &mut transaction, "k", &write(b"mine")).unwrap();
    let refused = world.keyspace.resolve_by_handler(&mut transaction, None, &mut handler);
    assert_eq!(refused.err(), failure.map(Refusal::Handler));
    let open: Vec<CompactKey> = transaction.unresolved().cloned().collect();
    assert_eq!(open, [key("l"), key("n")]);
    assert_eq!(world.keyspace.resolve_by_handler(&mut transaction, Some(&key("n")), &mut other), Ok(()));
    operate(&mut world.keyspace, &mut transaction, "l", &write(b"mine")).unwrap();
    world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
    let made = world.commit(transaction, &End::Any).unwrap().unwrap();
    assert_eq!((world.text(made, "k"), world.text(made, "n")), ("mine".into(), "8".into()));
}

/// Corrections 53: the version takes part in the merge's identity, where a handler took part in the merge.
#[test]
fn merges_by_one_version_coincide() {
    let merged = |version: u64| {
        let mut world = World::new(Mutants::default());
        forked(&mut world);
        let heads = world.keyspace.heads();
        let mut handler = rule(version, joined);
        world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse).outcome.unwrap()
    };
    assert_eq!(merged(7), merged(7));
    assert_eq!(merged(7).writes, merged(8).writes);
    assert_ne!(merged(7).id, merged(8).id);
    // Nothing was in conflict: no handler took part.
    let joined_by = |version: u64| {
        let mut world = World::new(Mutants::default());
        world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
        world.state(2, &[StateId::ROOT], &[("l", set("0"))]);
        let heads = world.keyspace.heads();
        let mut handler = rule(version, joined);
        world.keyspace.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse).outcome.unwrap()
    };
    assert_eq!(joined_by(7), joined_by(8));
}

/// The fork, and what each branch added to it.
fn summed(_: &CompactKey, conflict: &Conflict) -> Result<Option<Cell>, Failure> {
    let number = |cell: &Cell| text(cell).parse::<i64>().unwrap_or(0);
    let fork = number(&conflict.fork);
    let added: i64 = conflict.branches.iter().map(|branch| number(branch) - fork).sum();
    Ok(Some(register(&(fork + added).to_string())))
}

/// Two sites that merge each other's branches at once, differently, and go on: the fork that a handler is shown is the
/// value of all fork points together, so what it adds up counts once (Corrections 53).
#[test]
fn a_handler_that_adds_up_counts_once_in_a_criss_cross() {
    let mut sites = [1, 2].map(|site| Keyspace::new(options(site)));
    let mut handler = rule(7, summed);
    let mut total = 0;
    for round in 0..4 {
        let mut commits = Vec::new();
        for (place, site) in sites.iter_mut().enumerate() {
            let by = 10i64.pow(round) * (place as i64 + 1);
            total += by;
            let mut transaction = site.begin(SessionId(place as u64), &Begin::Ancestor).unwrap();
            operate(site, &mut transaction, "k", &increment(by)).unwrap();
            commits.push(site.commit(transaction, &End::Serializability).unwrap().unwrap());
        }
        for (place, site) in sites.iter_mut().enumerate() {
            site.apply(&commits[1 - place]).unwrap();
        }
        let mut merges = Vec::new();
        for (place, site) in sites.iter_mut().enumerate() {
            let mut transaction = site.begin_merge(SESSION, &Begin::Any).unwrap();
            site.resolve_by_handler(&mut transaction, None, &mut handler).unwrap();
            operate(site, &mut transaction, &format!("site {place}"), &write(b"x")).unwrap();
            merges.push(site.commit(transaction, &End::Any).unwrap().unwrap());
        }
        for (place, site) in sites.iter_mut().enumerate() {
            site.apply(&merges[1 - place]).unwrap();
        }
    }
    for site in &mut sites {
        let heads = site.heads();
        let commit =
            site.merge_by_dependencies(SESSION, &heads, &mut handler, Policy::Refuse).outcome.unwrap();
        assert_eq!(text(&site.value_at(commit.id, &key("k")).unwrap()), total.to_string());
    }
    assert_eq!(sites[0].heads(), sites[1].heads());
    assert!(handler.shown.iter().any(|(_, conflict)| conflict.forks.len() == 2), "merges crossed");
}

/// A handler takes back a part of what two branches added; a third one, which is merged later, has added to the same fork.
#[test]
fn what_a_handler_makes_of_additions_is_added_to() {
    let less_one = |_: &CompactKey, conflict: &Conflict| {
        let merged: i64 = conflict.merged.as_ref().map(text).and_then(|sum| sum.parse().ok()).unwrap();
        Ok(Some(register(&(merged - 1).to_string())))
    };
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("n", add(5))]);
    let [a, b, c] = [2, 3, 4].map(|number| world.state(number, &[base], &[("n", add(10))]));
    let mut handler = rule(7, less_one);
    let commit =
        world.keyspace.merge_by_dependencies(SESSION, &[a, b], &mut handler, Policy::Refuse).outcome.unwrap();
    let merged = commit.id;
    world.note(commit);
    assert_eq!(world.text(merged, "n"), "24");
    let mut transaction = world.keyspace.begin_merge_of(SESSION, &[merged, c]).unwrap();
    world.keyspace.resolve_all(&mut transaction, Policy::Refuse);
    let all = world.commit(transaction, &End::Any).unwrap().unwrap();
    assert_eq!(world.text(all, "n"), "34");
}
