//! Collection: what is read stays the same, memory stays flat, other sites' and clients' promises hold.

use crate::model::{SESSION, World, increment, key, operate, options, set, write};
use crate::reading::random;
use anabranch_branch::{
    Begin, Commit, End, Keep, Keyspace, Mutant, Mutants, Options, Owner, Policy, StateId,
};
use datatypes::Operation;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{Instant, ProcessId, Rng, SessionId};

#[test]
fn reads_at_all_states_that_stay_are_the_same_before_and_after() {
    for seed in 0..60 {
        let (mut world, keys) = random(seed, 60, Mutants::default(), true);
        assert_eq!(world.difference(&keys), None, "seed {seed}");
        for _ in 0..40 {
            world.keyspace.collect(1 + seed as usize % 7);
            world.keyspace.assert_consistent();
        }
        assert_eq!(world.difference(&keys), None, "seed {seed}");
        while world.keyspace.collect(1000) > 0 {}
        assert_eq!(world.difference(&keys), None, "seed {seed}");
        world.keyspace.assert_consistent();
    }
}

/// Some sessions write, on several branches, others have not been heard for long: each stands where whoever saw its state sees.
#[test]
fn sessions_stand_at_what_took_the_identity_of_their_states() {
    let (mut joined_root, mut joined_others) = (0, 0);
    let seeds = if crate::soaks() { 100 } else { 50 };
    for seed in 0..seeds {
        let (mut world, mut random) =
            (World::with(Options { keep: Keep::states(0), ..options(1) }), Rng::with_seed(seed));
        let mut stood: BTreeMap<SessionId, StateId> = BTreeMap::new();
        for _ in 0..200 {
            let session = SessionId(10 + random.u64(..8).min(random.u64(..8)));
            match random.u8(..20) {
                0..14 => {
                    let heads = world.keyspace.heads();
                    let begin = Begin::State(heads[random.usize(..heads.len())]);
                    let end = End::All(vec![End::Serializability, End::Branching(2)]);
                    let mut both =
                        [session, SessionId(1)].map(|session| world.keyspace.begin(session, &begin).unwrap());
                    let forks = random.u8(..4) == 0;
                    for transaction in both.iter_mut().take(1 + usize::from(forks)) {
                        operate(&mut world.keyspace, transaction, "a", &increment(1)).unwrap();
                    }
                    for transaction in both {
                        world.commit(transaction, &end).unwrap();
                    }
                    stood.insert(session, world.keyspace.last_read(session).unwrap());
                }
                14 => drop(world.merge()),
                15 => drop(world.keyspace.announce_ceiling()),
                _ => drop(world.keyspace.collect(random.usize(..60))),
            }
            let (retained, root) = (world.retained(), world.keyspace.dag().root());
            for (session, was) in &stood {
                let now = world.keyspace.last_read(*session).unwrap();
                match world.keyspace.dag().node(now) == Some(root) {
                    _ if now == *was => {}
                    true => joined_root += 1,
                    false => joined_others += 1,
                }
                let sees = |state: &StateId, from: StateId| world.model.sees(from, *state);
                let differs = retained.iter().find(|state| sees(state, *was) != sees(state, now));
                assert_eq!(differs, None, "seed {seed}: {session:?} stood at {was} and stands at {now}");
            }
        }
    }
    assert!(joined_root > 10 * seeds && joined_others > 10 * seeds, "{joined_root} and {joined_others}");
}

/// A site that comes back names all the states that it has.
#[test]
fn what_a_site_lacks_takes_one_look_at_each_state_however_many_it_names() {
    let mut world = World::new(Mutants::default());
    let mut last = StateId::ROOT;
    for number in 1..=2000 {
        last = world.state(number, &[last], &[("key", crate::model::add(1))]);
    }
    let states: Vec<StateId> = world.retained();
    let (known, others) = states.split_at(1000);
    let before = world.keyspace.effort();
    assert_eq!(world.keyspace.lacking(known), others);
    let took = world.keyspace.effort() - before;
    assert!(took.lookups < 3000 && took.states < 3000, "{took:?}");
}

/// Two sessions that conflict, fork and merge, over and over.
fn steady(world: &mut Keyspace, rounds: usize, random: &mut Rng) {
    for _ in 0..rounds {
        let sessions = [1, 2].map(SessionId);
        let open = sessions.map(|session| world.begin(session, &Begin::Ancestor).unwrap());
        for mut transaction in open {
            let own = format!("key {}", random.u8(..100));
            operate(world, &mut transaction, "hot", &increment(1)).unwrap();
            operate(world, &mut transaction, &own, &write(b"some value")).unwrap();
            let member = random.u8(..50).to_string();
            let members = datatypes::Items::one(member.as_bytes());
            let sadd = Operation::Set(datatypes::set::Operation::Add { members });
            operate(world, &mut transaction, "set", &sadd).unwrap();
            world.commit(transaction, &End::Serializability).unwrap();
        }
        if world.heads().len() > 1 {
            world.merge(SessionId(3), Policy::Newest).unwrap();
        }
        // A handful of units a transaction is enough.
        world.collect(40);
    }
}

#[test]
fn memory_is_flat_under_steady_load() {
    // Figure 13 of the paper.
    let (mut world, mut random) = (Keyspace::new(options(1)), Rng::with_seed(1));
    steady(&mut world, 2000, &mut random);
    let early = world.census();
    steady(&mut world, 8000, &mut random);
    let late = world.census();
    assert!(late.states < 60 && late.branches < 60 && late.promotions < 200, "{late:?}");
    assert!(late.versions < 102 + 200, "{late:?}");
    assert!(late.memory < early.memory * 5 / 4, "{early:?} {late:?}");
    assert_eq!(world.heads().len(), 1);
    let head = world.heads()[0];
    assert_eq!(crate::model::text(&world.value_at(head, &key("hot")).unwrap()), "20000");
}

#[test]
fn an_old_branch_that_nobody_merges_costs_what_it_holds_and_no_more() {
    let (mut world, mut random) = (World::new(Mutants::default()), Rng::with_seed(1));
    let base = world.state(1, &[StateId::ROOT], &[("hot", crate::model::add(0))]);
    let old = world.state(2, &[base], &[("old", set("1"))]);
    let mut sizes = Vec::new();
    for _ in 0..2 {
        for _ in 0..2000 {
            // The other branch goes on; the fork point has to stay.
            let from = world.keyspace.heads().into_iter().find(|head| *head != old).unwrap_or(base);
            let by = increment(random.i64(1..5));
            let mut transaction = world.keyspace.begin(SESSION, &Begin::State(from)).unwrap();
            operate(&mut world.keyspace, &mut transaction, "hot", &by).unwrap();
            world.keyspace.commit(transaction, &End::State(from)).unwrap();
            world.keyspace.collect(10);
        }
        sizes.push(world.keyspace.census());
    }
    assert!(sizes[1].states <= 8 && sizes[1].versions <= 8, "{sizes:?}");
    assert!(sizes[1].memory <= sizes[0].memory + 1000, "{sizes:?}");
    assert_eq!(world.text(old, "hot"), "0");
}

#[test]
fn a_session_that_stands_at_a_state_that_went_goes_on_from_its_heir() {
    let (mut world, mut random) = (Keyspace::new(options(1)), Rng::with_seed(1));
    let idle = SessionId(9);
    let mut transaction = world.begin(idle, &Begin::Any).unwrap();
    operate(&mut world, &mut transaction, "idle", &write(b"1")).unwrap();
    let mine = world.commit(transaction, &End::Any).unwrap().unwrap().id;
    steady(&mut world, 300, &mut random);
    while world.collect(100) > 0 {}
    assert!(world.dag().node(mine).is_none(), "an idle session holds nothing");
    let mut transaction = world.begin(idle, &Begin::Ancestor).unwrap();
    let reply = operate(&mut world, &mut transaction, "idle", &crate::model::READ).unwrap();
    assert_eq!(reply.elements().next(), Some(types::Reply::Bulk(b"1")));
    world.abort(transaction);
    // Who begins at the very state it committed keeps it.
    let begin = world.begin(idle, &Begin::Parent);
    assert!(begin.is_err(), "that state has gone");
    let mut transaction = world.begin(idle, &Begin::Ancestor).unwrap();
    operate(&mut world, &mut transaction, "idle", &write(b"2")).unwrap();
    let mine = world.commit(transaction, &End::Any).unwrap().unwrap().id;
    steady(&mut world, 300, &mut random);
    while world.collect(100) > 0 {}
    let transaction = world.begin(idle, &Begin::Parent).unwrap();
    assert_eq!(world.read_states(&transaction), [mine]);
    world.abort(transaction);
    world.close(idle);
    steady(&mut world, 10, &mut random);
    while world.collect(100) > 0 {}
    assert!(world.dag().node(mine).is_none(), "a closed session holds nothing");
}

#[test]
fn a_clients_ceiling_keeps_what_is_not_above_it() {
    let mut world = World::new(Mutants::default());
    let states: Vec<StateId> = (1..6)
        .scan(StateId::ROOT, |parent, number| {
            *parent = world.state(number, &[*parent], &[("k", set(&number.to_string()))]);
            Some(*parent)
        })
        .collect();
    world.keyspace.place_ceiling(Owner::Client(SESSION), vec![states[2]]);
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained(), states[2..]);
    world.keyspace.place_ceiling(Owner::Client(SESSION), vec![states[3]]);
    assert!(world.keyspace.begin(SESSION, &Begin::State(states[2])).is_err(), "it promised not to");
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained(), states[3..]);
    world.keyspace.close(SESSION);
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained(), states[4..]);
    // A policy may keep some of the past for reading by id.
    let mut world = World::with(Options { keep: Keep::states(2), ..options(1) });
    let mut parent = StateId::ROOT;
    for number in 1..10 {
        parent = world.state(number, &[parent], &[("k", set(&number.to_string()))]);
    }
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained().len(), 3);
}

/// Whichever branch they are on: what many heads did before they were merged does not stay for that.
#[test]
fn a_policy_keeps_the_newest_of_what_a_head_sees() {
    for keep in [0, 1, 4, 20, 1000] {
        let mut world = World::with(Options { keep: Keep::states(keep), ..options(1) });
        let mut heads = [StateId::ROOT; 5];
        for number in 1..=200 {
            let head = &mut heads[number as usize % 5];
            *head = world.state(number, &[*head], &[("k", set(&number.to_string()))]);
        }
        world.merge().unwrap();
        let mut newest = world.retained();
        newest.sort_unstable();
        let newest = newest.split_off(newest.len() - 1 - keep.min(200));
        world.keyspace.close(SESSION);
        while world.keyspace.collect(10) > 0 {}
        let retained = world.retained();
        assert!(newest.iter().all(|state| retained.contains(state)), "keep {keep}");
        // Where branches part a state has to stay.
        assert!(retained.len() <= newest.len() + 1, "keep {keep}: {}", retained.len());
    }
}

/// However many heads there are: each sees as many of its newest states as the others see of theirs.
#[test]
fn heads_share_what_a_policy_keeps() {
    let mut world = World::with(Options { keep: Keep::states(20), ..options(1) });
    let mut branches = vec![vec![StateId::ROOT]; 5];
    for number in 1..=200 {
        let branch = &mut branches[number as usize % 5];
        let parent = branch[branch.len() - 1];
        branch.push(world.state(number, &[parent], &[("k", set(&number.to_string()))]));
    }
    while world.keyspace.collect(10) > 0 {}
    let retained = world.retained();
    for branch in &branches {
        let newest = &branch[branch.len() - 5..];
        assert_eq!(retained.iter().filter(|state| branch[1..].contains(state)).count(), 5);
        assert!(newest.iter().all(|state| retained.contains(state)));
    }
}

/// Whatever was a head less than so long ago can still be read; what is older goes, to a sixteenth of the time.
#[test]
fn a_policy_keeps_what_was_a_head_for_a_while() {
    const SECOND: Duration = Duration::from_secs(1);
    let keep = Keep { states: 0, time: 4 * SECOND };
    let mut world = World::with(Options { keep, ..options(1) });
    let (mut states, mut now) = (vec![StateId::ROOT], Instant(1_000));
    for number in 1..=40 {
        // A state each half of a second, noted as a head.
        let parent = states[states.len() - 1];
        states.push(world.state(number, &[parent], &[("k", set(&number.to_string()))]));
        now = now + SECOND / 2;
        world.keyspace.tell_time(now);
        while world.keyspace.collect(10) > 0 {}
        let retained = world.retained();
        let of_late = states.len().saturating_sub(9).max(1);
        assert!(states[of_late..].iter().all(|state| retained.contains(state)), "{number}: {retained:?}");
        assert!(retained.len() <= 10, "{number}: {retained:?}");
    }
    // Nobody writes any more: all but the head grows old.
    for _ in 0..40 {
        now = now + SECOND / 4;
        world.keyspace.tell_time(now);
        while world.keyspace.collect(10) > 0 {}
    }
    assert_eq!(world.retained(), states[40..]);
    // A later setting holds at once, for what comes.
    world.keyspace.alter(Policy::Refuse, Keep::states(0));
    let head = world.state(100, &[states[40]], &[("k", set("last"))]);
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained(), [head]);
    // And what is there when the setting changes stays until it is known to be older.
    world.keyspace.alter(Policy::Refuse, keep);
    let mut states = vec![head];
    for number in 101..110 {
        states.push(world.state(number, &states[states.len() - 1..], &[("k", set(&number.to_string()))]));
    }
    for quarters in 1..=16 {
        world.keyspace.tell_time(now + SECOND / 4 * quarters);
        while world.keyspace.collect(10) > 0 {}
        assert_eq!(world.retained(), states, "{quarters}");
    }
    world.keyspace.tell_time(now + 5 * SECOND);
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained(), states[9..]);
}

#[test]
fn a_site_keeps_what_it_promised_to_the_others_until_it_promises_more() {
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
    let [left, right] = [2, 3].map(|number| world.state(number, &[base], &[("k", set("1"))]));
    assert_eq!(world.keyspace.announce_ceiling(), [left, right]);
    world.state(4, &[left], &[("k", set("2"))]);
    while world.keyspace.collect(10) > 0 {}
    assert_eq!(world.retained()[..3], [base, left, right], "what was promised stays");
    assert!(world.keyspace.begin(SESSION, &Begin::State(base)).is_err(), "a fork point above the promise");
    let transaction = world.keyspace.begin(SESSION, &Begin::State(left)).unwrap();
    assert_eq!(world.keyspace.announce_ceiling(), [left, right], "a reader is never above a promise");
    world.keyspace.abort(transaction);
    world.keyspace.announce_ceiling();
    while world.keyspace.collect(10) > 0 {}
    assert!(!world.retained().contains(&left));
}

/// Somebody reads at a head that was merged: no head says any more that nothing begins above the other one.
#[test]
fn a_promise_holds_though_every_head_sees_what_is_read() {
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
    let above = world.state(2, &[base], &[("k", set("1"))]);
    let left = world.state(3, &[above], &[("k", set("2"))]);
    let right = world.state(4, &[base], &[("l", set("2"))]);
    assert_eq!(world.keyspace.announce_ceiling(), [left, right]);
    let reader = world.keyspace.begin(SESSION, &Begin::State(right)).unwrap();
    let merged = world.state(5, &[left, right], &[]);
    assert_eq!(world.keyspace.announce_ceiling(), [left, right]);
    assert!(world.keyspace.begin(SESSION, &Begin::State(above)).is_err(), "other sites have collected it");
    world.keyspace.abort(reader);
    assert_eq!(world.keyspace.announce_ceiling(), [merged]);
}

/// A deletion has joined all that there was of its key here, when an older write on another branch comes, and a merge that
/// leaves the deletion as it is.
#[test]
fn that_a_key_was_deleted_on_a_branch_is_not_forgotten() {
    let mut world = World::new(Mutants::default());
    let base = world.state(1, &[StateId::ROOT], &[("k", set("0"))]);
    let other = world.state(2, &[base], &[("l", set("0"))]);
    let written = world.state(3, &[base], &[("a", set("1"))]);
    let deletion = crate::model::encoded(&datatypes::Effect::DELETE);
    let deleted = world.state(6, &[written], &[("a", deletion)]);
    while world.keyspace.collect(10) > 0 {}
    assert!(world.keyspace.dag().node(written).is_none());
    let older = world.state(5, &[other], &[("a", set("42"))]);
    let id = StateId::made_by(7, ProcessId(8), types::Incarnation(1));
    world.apply(Commit { id, parents: vec![older, deleted], writes: vec![(key("a"), Vec::new())] });
    assert_eq!(world.text(id, "a"), "nil");
    assert_eq!(world.difference(&[key("a")]), None);
}

const SITES: usize = 3;

/// What sites tell one another.
#[derive(Clone)]
enum Word {
    Commit(Commit),
    Ceiling(Vec<StateId>),
}

/// Three sites with a stream from each to each other, in order; orphans wait for their parents.
struct Gossip {
    sites: Vec<Keyspace>,
    streams: BTreeMap<(usize, usize), VecDeque<Word>>,
    orphans: Vec<Vec<Commit>>,
}

impl Gossip {
    fn new(mutants: Mutants) -> Self {
        let site = |site: usize| {
            let mut keyspace = Keyspace::new(Options { mutants, ..options(site as u16) });
            for other in (0..SITES).filter(|other| *other != site) {
                keyspace.place_ceiling(Owner::Site(ProcessId(other as u16)), vec![StateId::ROOT]);
            }
            keyspace
        };
        let sites = (0..SITES).map(site).collect();
        Gossip { sites, streams: BTreeMap::new(), orphans: vec![Vec::new(); SITES] }
    }

    fn tell(&mut self, from: usize, word: &Word) {
        for to in (0..SITES).filter(|to| *to != from) {
            self.streams.entry((from, to)).or_default().push_back(word.clone());
        }
    }

    /// Takes the next word of a stream; false if there is none.
    fn hear(&mut self, from: usize, to: usize) -> bool {
        let Some(word) = self.streams.get_mut(&(from, to)).and_then(VecDeque::pop_front) else {
            return false;
        };
        let site = &mut self.sites[to];
        match word {
            Word::Ceiling(ceiling) => site.place_ceiling(Owner::Site(ProcessId(from as u16)), ceiling),
            Word::Commit(commit) => {
                let waiting = &mut self.orphans[to];
                waiting.push(commit);
                while let Some(place) = waiting.iter().position(|commit| site.apply(commit).is_ok()) {
                    waiting.swap_remove(place);
                }
            }
        }
        true
    }

    fn transact(&mut self, site: usize, step: usize) -> Option<Commit> {
        let keyspace = &mut self.sites[site];
        let mut transaction = keyspace.begin(SESSION, &Begin::Ancestor).unwrap();
        operate(keyspace, &mut transaction, "hot", &increment(1)).unwrap();
        operate(keyspace, &mut transaction, "last", &write(step.to_string().as_bytes())).unwrap();
        keyspace.commit(transaction, &End::Serializability).unwrap()
    }

    /// Delivers everything and merges until there is nothing to do; returns how many commits lack a parent.
    fn settle(&mut self) -> usize {
        for _ in 0..2 {
            for (from, to) in (0..SITES * SITES).map(|pair| (pair / SITES, pair % SITES)) {
                while self.hear(from, to) {}
            }
            for site in self.sites.iter_mut().filter(|site| site.heads().len() > 1) {
                site.merge(SESSION, Policy::Newest).unwrap();
            }
        }
        self.orphans.iter().map(Vec::len).sum()
    }
}

/// Sites that commit, merge, gossip, announce ceilings and collect; returns how often a parent was missing, and whether
/// all agree at the end.
fn gossip(seed: u64, mutants: Mutants) -> (usize, bool) {
    let (mut random, mut world) = (Rng::with_seed(seed), Gossip::new(mutants));
    for step in 0..400 {
        let site = random.usize(..SITES);
        let keyspace = &mut world.sites[site];
        let word = match random.u8(..10) {
            0..4 => world.transact(site, step).map(Word::Commit),
            4 if keyspace.heads().len() > 1 => {
                Some(Word::Commit(keyspace.merge(SESSION, Policy::Newest).unwrap()))
            }
            5 => Some(Word::Ceiling(keyspace.announce_ceiling())),
            6 => {
                keyspace.collect(random.usize(..30));
                None
            }
            _ => {
                let from = random.usize(..SITES);
                for _ in 0..random.usize(..5) {
                    world.hear(from, site);
                }
                None
            }
        };
        if let Some(word) = word {
            world.tell(site, &word);
        }
    }
    let lost = world.settle();
    let mut ends = world.sites.iter_mut().map(|site| {
        let heads = site.heads();
        let values = ["hot", "last"].map(|name| site.value_at(heads[0], &key(name)).unwrap());
        (heads, values)
    });
    let first = ends.next();
    (lost, ends.all(|end| Some(&end) == first.as_ref()))
}

#[test]
fn sites_that_respect_ceilings_never_lack_a_parent_and_converge() {
    for seed in 0..60 {
        assert_eq!(gossip(seed, Mutants::default()), (0, true), "seed {seed}");
    }
    assert!((0..10).any(|seed| gossip(seed, Mutant::IgnoreSites.into()) != (0, true)));
}

/// A site collects the state that another site's transaction is to be appended to (Corrections 54).
fn late_commit(mutants: Mutants) -> Option<usize> {
    let mut world = World::new(mutants);
    // The session keeps the promotion table alive.
    let begin = Begin::Any;
    let base = world.transact(SESSION, &begin, &[("k", write(b"0"))], &End::Any).unwrap().unwrap();
    let later = world.transact(SESSION, &begin, &[("k", write(b"seen"))], &End::Any).unwrap().unwrap();
    while world.keyspace.collect(3) > 0 && world.keyspace.dag().node(base).is_some() {}
    assert!(world.keyspace.dag().node(base).is_none());
    let id = StateId::made_by(9, ProcessId(7), types::Incarnation(1));
    let writes = vec![(key("k"), vec![set("never saw it")])];
    match world.keyspace.apply(&Commit { id, parents: vec![base], writes }) {
        Ok(_) => Some(world.keyspace.heads().iter().filter(|head| **head == later).count()),
        Err(missing) => {
            assert_eq!(missing.0, base);
            None
        }
    }
}

#[test]
fn a_commit_whose_parent_was_collected_is_refused_and_never_forwarded() {
    assert_eq!(late_commit(Mutants::default()), None);
    // The mutant appends it below what it never saw: an update is lost, and nobody learns of a conflict.
    assert_eq!(late_commit(Mutant::ForwardParents.into()), Some(0));
}
