//! Transactions that are open while a merge is made, and commit beside it.

use crate::model::{World, increment, key, operate, options, write};
use anabranch_branch::{
    Begin, Commit, End, Keyspace, Mutant, Options, Policy, Refusal, StateId, Transaction,
};
use std::time::Duration;
use types::{Rng, SessionId};

const MERGER: SessionId = SessionId(1000);

fn session(number: u64) -> SessionId {
    SessionId(number + 1)
}

/// One site, and another one that receives everything it makes.
struct Sites {
    world: World,
    other: Keyspace,
    /// So many keys that were written beside a merge are merged with it at a time.
    keys: usize,
    /// Merges of only a piece of what somebody did beside a merge.
    pieces: usize,
}

impl Sites {
    fn new(options_of_site: Options) -> Self {
        Sites {
            world: World::with(options_of_site),
            other: Keyspace::new(options(2)),
            keys: usize::MAX,
            pieces: 0,
        }
    }

    fn begin(&mut self, number: u64) -> Transaction {
        self.world.keyspace.begin(session(number), &Begin::Ancestor).unwrap()
    }

    fn tell(&mut self, commit: Commit) -> StateId {
        self.other.apply(&commit).unwrap();
        let id = commit.id;
        self.world.note(commit);
        id
    }

    fn merge(&mut self) -> Option<Commit> {
        let heads = self.world.keyspace.heads();
        self.merge_of(&heads)
    }

    fn merge_of(&mut self, heads: &[StateId]) -> Option<Commit> {
        match self.world.keyspace.merge_of(MERGER, heads, Policy::Newest) {
            Ok(merge) => {
                self.tell(merge.clone());
                Some(merge)
            }
            Err(refusal) => {
                assert_eq!(refusal, Refusal::NothingToMerge);
                None
            }
        }
    }

    /// Returns the merge with the one that was made meanwhile, which the other site finds by itself.
    fn commit(&mut self, transaction: Transaction) -> Option<Commit> {
        let commit = self.world.keyspace.commit(transaction, &End::Serializability).unwrap()?;
        self.tell(commit.clone());
        self.rebase_onto_merge(commit.id)
    }

    /// The same for a state that was committed.
    fn rebase_onto_merge(&mut self, state: StateId) -> Option<Commit> {
        let merge = self.world.keyspace.rebase_onto_merge(MERGER, state, Policy::Newest, self.keys)?;
        let is_piece = !merge.parents.contains(&state);
        assert!(self.keys < usize::MAX || !is_piece);
        self.pieces += usize::from(is_piece);
        let found = self.other.merge_of(MERGER, &merge.parents, Policy::Newest);
        assert_eq!(found.as_ref(), Ok(&merge), "it is what the State DAG says");
        self.world.note(merge.clone());
        Some(merge)
    }
}

/// Merges in pieces: how it goes on between them.
impl Sites {
    fn begin_merging(&mut self) {
        let heads = self.world.keyspace.heads();
        match self.world.keyspace.begin_merging(MERGER, &heads, Policy::Newest) {
            Ok(_) => {}
            Err(refusal) => assert_eq!(refusal, Refusal::NothingToMerge),
        }
    }

    /// True if that completes the merge, which the other site finds by itself.
    fn go_on(&mut self, limit: Duration) -> bool {
        let Some(merge) = self.world.keyspace.go_on_merging(limit) else { return false };
        let merge = merge.unwrap();
        let found = self.other.merge_of(MERGER, &merge.parents, Policy::Newest);
        assert_eq!(found.as_ref(), Ok(&merge), "it is what is merged at once");
        self.world.note(merge);
        true
    }

    /// What was left beside the last merge is merged with it.
    fn merge_left(&mut self) -> usize {
        let mut merges = 0;
        for head in self.world.keyspace.left_to_rebase() {
            while self.rebase_onto_merge(head).is_some() {
                merges += 1;
            }
        }
        merges
    }
}

/// What happens in a run.
#[derive(Default)]
struct Counted {
    /// Merges with a merge that was made meanwhile, as soon as somebody committed beside it.
    rebased: usize,
    /// Of heads that were left beside.
    left: usize,
    /// Merges of which clients committed something between two pieces.
    passed: usize,
    /// Merges of a piece of what was done beside a merge.
    pieces: usize,
}

/// Some transactions on some keys, of clients that always have one open; merged and collected now and then. With `pieces` a
/// merge is worked out little by little, while clients go on.
fn run(seed: u64, options_of_site: Options, pieces: bool) -> Counted {
    let (mut sites, mut random) = (Sites::new(options_of_site), Rng::with_seed(seed));
    let names = ["a", "b", "c", "d", "e"];
    let mut open: Vec<Option<Transaction>> = (0..4).map(|number| Some(sites.begin(number))).collect();
    let (mut counted, mut committed) = (Counted::default(), 0);
    if pieces {
        sites.keys = [1, 2, 4, usize::MAX][random.usize(..4)];
    }
    for _ in 0..120 {
        let number = random.usize(..open.len());
        let transaction = open[number].get_or_insert_with(|| sites.begin(number as u64));
        for _ in 0..random.usize(1..3) {
            let name = names[random.usize(..names.len())];
            let text = random.u32(..100).to_string();
            let adds = name < "c" || random.bool();
            let operation = if adds { increment(random.i64(1..50)) } else { write(text.as_bytes()) };
            operate(&mut sites.world.keyspace, transaction, name, &operation).unwrap();
        }
        if random.u8(..3) == 0 {
            let next = sites.begin(number as u64);
            let transaction = open[number].replace(next).expect("it is open");
            counted.rebased += usize::from(sites.commit(transaction).is_some());
            committed += 1;
            sites.world.keyspace.abort(open[number].take().expect("it is open"));
            // It begins below what it has just committed, at once or when it has something to do.
            open[number] = (!pieces || random.bool()).then(|| sites.begin(number as u64));
        }
        if sites.world.keyspace.is_merging() {
            let nanos = random.u64(1..2_000);
            if sites.go_on(Duration::from_nanos(nanos)) {
                counted.passed += usize::from(committed > 0);
            }
        } else if pieces && random.u8(..6) == 0 {
            committed = 0;
            sites.begin_merging();
        } else if pieces && random.u8(..6) == 0 {
            counted.left += sites.merge_left();
        } else if random.u8(..8) == 0 {
            // Some of them, too: then heads see what others see.
            let heads = sites.world.keyspace.heads();
            let count = if random.bool() { heads.len() } else { heads.len().min(2) };
            sites.merge_of(&heads[..count]);
        }
        if random.u8(..4) == 0 {
            sites.world.keyspace.announce_ceiling();
            sites.world.keyspace.collect(50);
        }
    }
    while sites.world.keyspace.is_merging() {
        sites.go_on(Duration::from_nanos(1));
    }
    sites.world.keyspace.assert_consistent();
    assert_eq!(sites.world.difference(&names.map(key)), None, "seed {seed}");
    counted.pieces = sites.pieces;
    counted
}

#[test]
fn a_merge_in_pieces_is_the_one_at_once_and_what_comes_beside_is_merged_with_it() {
    let mut all = Counted::default();
    let seeds = if crate::soaks() { 300 } else { 75 };
    for seed in 0..seeds {
        let Counted { rebased, left, passed, pieces } = run(seed, options(1), true);
        all.rebased += rebased;
        all.left += left;
        all.passed += passed;
        all.pieces += pieces;
    }
    let Counted { rebased, left, passed, pieces } = all;
    assert!(6 * pieces > seeds as usize, "{pieces} pieces of what was done beside a merge were merged");
    assert!(3 * passed > 2 * seeds as usize, "clients committed during {passed} merges");
    assert!(
        3 * rebased > 2 * seeds as usize && 6 * left > seeds as usize,
        "{rebased} commits, {left} heads were merged with a merge beside them"
    );
}

#[test]
fn it_is_merged_as_whoever_looks_at_all_states_merges_it() {
    let merged: usize = (0..60).map(|seed| run(seed, options(1), false).rebased).sum();
    assert!(merged > 200, "{merged} transactions were open while heads were merged");
}

#[test]
fn others_changes_of_what_it_wrote_are_not_forgotten() {
    let mutant = Options { mutants: Mutant::ForgetMeanwhile.into(), ..options(1) };
    let all = || (0..20).map(|seed| run(seed, mutant, false).rebased).sum::<usize>();
    assert!(std::panic::catch_unwind(all).is_err());
}

/// Where clients always have a transaction open, a merge reaches back to the one before, and no farther.
#[test]
fn a_merge_is_over_the_one_before() {
    let mut sites = Sites::new(options(1));
    let (clients, rounds) = (6, 20);
    let mut before: Option<StateId> = None;
    for round in 0..rounds {
        let mut open: Vec<Transaction> = (0..clients).map(|number| sites.begin(number)).collect();
        for transaction in &mut open {
            operate(&mut sites.world.keyspace, transaction, "k", &increment(1)).unwrap();
        }
        // At first there is nothing to merge.
        let merge = sites.merge().map(|merge| merge.parents);
        let heads = sites.world.keyspace.heads();
        if let (Some(parents), Some(before)) = (&merge, before) {
            let forks = sites.world.keyspace.fork_points(parents).unwrap();
            assert_eq!(forks, [before], "round {round}");
        }
        before = merge.is_some().then(|| heads[0]);
        for transaction in open {
            assert_eq!(sites.commit(transaction).is_some(), merge.is_some(), "round {round}");
        }
    }
    sites.merge();
    let [head] = sites.world.keyspace.heads()[..] else { panic!("all is merged") };
    assert_eq!(sites.world.text(head, "k"), (clients * rounds).to_string());
}

/// As long as a transaction is open at what was merged, the merge is held; no longer.
#[test]
fn a_merge_goes_when_no_transaction_needs_it() {
    let mut sites = Sites::new(options(1));
    let mut open: Vec<Transaction> = (0..2).map(|number| sites.begin(number)).collect();
    for transaction in &mut open {
        operate(&mut sites.world.keyspace, transaction, "k", &increment(1)).unwrap();
    }
    open.into_iter().for_each(|transaction| drop(sites.commit(transaction)));
    let mut late = sites.begin(0);
    operate(&mut sites.world.keyspace, &mut late, "k", &increment(1)).unwrap();
    let merge = sites.merge().unwrap().id;
    for number in 0..50 {
        let mut transaction = sites.begin(number);
        let text = number.to_string();
        operate(&mut sites.world.keyspace, &mut transaction, "other", &write(text.as_bytes())).unwrap();
        sites.commit(transaction);
    }
    let settle = |sites: &mut Sites| {
        sites.world.keyspace.announce_ceiling();
        while sites.world.keyspace.collect(1000) > 0 {}
        sites.world.keyspace.dag().node(merge).is_some()
    };
    assert!(settle(&mut sites), "a transaction is open at one of its heads");
    assert!(sites.commit(late).is_some());
    sites.merge();
    assert!(!settle(&mut sites), "nobody needs it");
}
