//! Transactions over two shards and four keys: in every order of their messages, all of them end.

use super::*;
use datatypes::Items;
use types::Rng;

/// A lock at a shard, of a key and perhaps of elements.
type Wanted = (usize, &'static str, Claim<'static>);

/// A transaction that locks one key after the other, then commits.
#[derive(Clone, Debug)]
struct Script {
    locks: Vec<Wanted>,
    next: usize,
    /// The attempt; each has an id of its own and the age of the first.
    attempt: u64,
    blocked_at: Option<usize>,
    over: bool,
}

/// What may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Event {
    /// A transaction asks for its next lock, or ends.
    Go(usize),
    /// A shard hears that a transaction waits elsewhere, or no more.
    SingleResult { shard: usize, id: TransactionId, waits: bool },
}

struct World {
    shards: [LockTable; 2],
    scripts: Vec<Script>,
    /// What coordinators have said and shards have not heard.
    under_way: Vec<Event>,
    wounded: u64,
}

impl World {
    fn new(phasing: Option<Phasing>, scripts: Vec<Vec<Wanted>>, mutants: Mutants) -> Self {
        let options = LockOptions { phasing, ..LockOptions::default() };
        let script = |locks| Script { locks, next: 0, attempt: 0, blocked_at: None, over: false };
        World {
            shards: [(); 2].map(|()| LockTable::new(options, mutants)),
            scripts: scripts.into_iter().map(script).collect(),
            under_way: Vec::new(),
            wounded: 0,
        }
    }

    fn id(&self, place: usize) -> TransactionId {
        id(place as u64 + 1 + 100 * self.scripts[place].attempt)
    }

    fn place(&self, of: TransactionId) -> Option<usize> {
        (0..self.scripts.len()).find(|place| self.id(*place) == of && !self.scripts[*place].over)
    }

    fn events(&self) -> Vec<Event> {
        let going = |place: &usize| !self.scripts[*place].over && self.scripts[*place].blocked_at.is_none();
        let go = (0..self.scripts.len()).filter(going).map(Event::Go);
        // A shard gets its notifications in order.
        let notified = |shard: usize| {
            let to = move |event: &&Event| matches!(event, Event::SingleResult { shard: other, .. } if *other == shard);
            self.under_way.iter().find(to).copied()
        };
        go.chain(notified(0)).chain(notified(1)).collect()
    }

    fn perform(&mut self, event: Event) {
        match event {
            Event::Go(place) => self.go(place),
            Event::SingleResult { shard, id, waits } => {
                let place = self.under_way.iter().position(|other| *other == event);
                self.under_way.remove(place.expect("it is under way"));
                self.shards[shard].set_waiting_elsewhere(id, waits);
            }
        }
        self.settle();
    }

    fn go(&mut self, place: usize) {
        let (id, age) = (self.id(place), age(place as u64 + 1));
        let script = &mut self.scripts[place];
        let Some((shard, key, claim)) = script.locks.get(script.next) else {
            script.over = true;
            return self.shards.iter_mut().for_each(|shard| shard.release(id));
        };
        let (asker, shard) = (Asker { id, age, votes: false, passes: false, now: NOW }, *shard);
        let granted = self.shards[shard].lock(asker, key.as_bytes(), claim);
        let waited = script.blocked_at.is_some();
        script.next += usize::from(granted);
        script.blocked_at = (!granted).then_some(shard);
        if waited == granted {
            self.under_way.push(Event::SingleResult { shard: 1 - shard, id, waits: !granted });
        }
    }

    /// Hands on what is free, and lets those begin again that were wounded, at once.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for shard in 0..2 {
                for (id, _) in self.shards[shard].take_wounded() {
                    quiet = false;
                    self.wounded += 1;
                    self.shards.iter_mut().for_each(|shard| shard.release(id));
                    if let Some(place) = self.place(id) {
                        let script = &mut self.scripts[place];
                        (script.next, script.blocked_at, script.attempt) = (0, None, script.attempt + 1);
                    }
                }
                for id in self.shards[shard].take_ready(NOW) {
                    quiet = false;
                    let Some(place) = self.place(id) else { continue };
                    // It may have one of several locks, and wait for the others.
                    if self.scripts[place].blocked_at == Some(shard) {
                        self.go(place);
                    }
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.scripts.iter().all(|script| script.over)
    }
}

/// Changes these elements.
fn place(elements: &'static [&'static [u8]]) -> Claim<'static> {
    Claim { mode: Mode::Place, elements: Items::Slices(elements) }
}

fn scripts(random: &mut Rng, count: usize, locks: usize) -> Vec<Vec<Wanted>> {
    let modes = [Mode::Observe, Mode::Add, Mode::Write].map(Claim::from);
    let placed = [place(&[b"x"]), place(&[b"y"]), place(&[b"x", b"y"])];
    let all = [&modes[..], &placed[..]].concat();
    // Some runs have nothing but elements.
    let claims = if random.usize(0..3) == 0 { placed.to_vec() } else { all };
    let script = |random: &mut Rng| {
        let lock = |random: &mut Rng| {
            let claim = claims[random.usize(0..claims.len())].clone();
            (random.usize(0..2), ["a", "b"][random.usize(0..2)], claim)
        };
        (0..locks).map(|_| lock(random)).collect()
    };
    (0..count).map(|_| script(random)).collect()
}

/// Runs in an order that the seed says. Returns how many were wounded.
fn run(random: &mut Rng, mut world: World) -> Result<u64, String> {
    for _ in 0..100_000 {
        let events = world.events();
        if events.is_empty() {
            let stuck = || format!("they wait for one another: {:?}", world.scripts);
            return if world.is_over() { Ok(world.wounded) } else { Err(stuck()) };
        }
        world.perform(events[random.usize(0..events.len())]);
    }
    Err("they wound one another for ever".to_owned())
}

#[test]
fn transactions_over_two_shards_end_whatever_the_order() {
    let mut wounded = [0, 0];
    for seed in 0..3000 {
        for (phasing, wounded) in [Some(Phasing::default()), None].into_iter().zip(&mut wounded) {
            let mut random = Rng::with_seed(seed);
            let (count, locks) = (random.usize(2..9), random.usize(1..5));
            let world = World::new(phasing, scripts(&mut random, count, locks), Mutants::default());
            *wounded += run(&mut random, world).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
        }
    }
    assert!(wounded[0] < wounded[1], "phases spare the younger ones: {wounded:?}");
}

#[test]
fn who_waits_and_keeps_its_locks_makes_a_circle() {
    let stuck = (0..100).any(|seed| {
        let mut random = Rng::with_seed(seed);
        let scripts = scripts(&mut random, 4, 3);
        let world = World::new(Some(Phasing::default()), scripts, Mutant::WaitersKeepLocks.into());
        run(&mut random, world).is_err()
    });
    assert!(stuck);
}

/// Every order of what three transactions with two locks each and their messages can do.
#[test]
fn every_order_of_a_few_ends() {
    use Mode::{Add, Observe, Write};
    let cases = [
        [
            [(0, "a", Observe), (1, "a", Add)],
            [(1, "a", Observe), (0, "a", Add)],
            [(0, "a", Add), (1, "a", Write)],
        ],
        [
            [(0, "a", Observe), (0, "a", Write)],
            [(0, "a", Observe), (1, "a", Write)],
            [(1, "a", Add), (0, "a", Write)],
        ],
        [
            [(0, "a", Add), (1, "a", Observe)],
            [(1, "a", Add), (0, "a", Observe)],
            [(1, "a", Add), (0, "a", Add)],
        ],
    ];
    let cases = cases.map(|case| case.map(|locks| locks.map(|(shard, key, mode)| (shard, key, mode.into()))));
    for case in cases {
        every_order_ends(case);
    }
}

/// They take as long again.
mod soak {
    use super::*;

    #[test]
    fn every_order_of_a_few_that_lock_elements_ends() {
        use Mode::{Observe, Write};
        let of_elements: [[[Wanted; 2]; 3]; 2] = [
            [
                [(0, "a", place(&[b"x", b"y"])), (0, "a", Observe.into())],
                [(0, "a", place(&[b"y"])), (1, "a", Write.into())],
                [(1, "a", Observe.into()), (0, "a", place(&[b"x"]))],
            ],
            [
                [(0, "a", place(&[b"x"])), (1, "a", place(&[b"x"]))],
                [(1, "a", place(&[b"x", b"y"])), (0, "a", place(&[b"x"]))],
                [(0, "a", Observe.into()), (1, "a", place(&[b"y"]))],
            ],
        ];
        for case in of_elements {
            every_order_ends(case);
        }
    }
}

/// Whatever the order of what three transactions with two locks each and their messages do, they end.
fn every_order_ends(case: [[Wanted; 2]; 3]) {
    let build = || {
        let scripts = case.iter().map(|locks| locks.to_vec()).collect();
        World::new(Some(Phasing { members: 1, ..Phasing::default() }), scripts, Mutants::default())
    };
    let states = explore(&build);
    assert!(states > 100, "{states}");
}

/// Goes through every state that can be reached. Returns how many there are.
fn explore(build: &dyn Fn() -> World) -> usize {
    let (mut seen, mut open): (BTreeSet<String>, Vec<Vec<Event>>) = (BTreeSet::new(), vec![Vec::new()]);
    while let Some(events) = open.pop() {
        assert!(events.len() < 100, "they wound one another for ever");
        let mut world = build();
        events.iter().for_each(|event| world.perform(*event));
        let state = format!("{:?}{:?}{:?}", world.shards, world.scripts, world.under_way);
        if !seen.insert(state) {
            continue;
        }
        let next = world.events();
        assert!(!next.is_empty() || world.is_over(), "they wait for one another: {:?}", world.scripts);
        open.extend(next.into_iter().map(|event| events.iter().copied().chain([event]).collect()));
    }
    seen.len()
}
