//! Coordinators that die at every step: the replicas end what they left.

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Decided, Options};
use anabranch_strict::{Mutant, Mutants};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use types::ProcessId;

/// How many outcomes of each kind the replicas know.
fn outcomes(network: &Network) -> (usize, usize) {
    let all: Vec<Decided> = network.replicas().flat_map(|(_, r)| r.decided().map(|(_, d)| d)).collect();
    let committed = all.iter().filter(|decided| matches!(decided, Decided::Committed { .. })).count();
    (committed, all.len() - committed)
}

/// The coordinator dies after so many microseconds, having lost a message in four; later nothing is undecided, and
/// everything works.
fn die_after(micros: u64, members: u16) -> (usize, usize) {
    let mut network = Network::new(micros, 2, members, 2, &Options::default());
    network.loss = 4;
    let (a, b) = network.two_keys();
    let steps = [network.increment(a, false), network.increment(b, false)];
    network.many(1, 1, &steps);
    network.run_for(Duration::from_micros(micros));
    network.down.insert(address(1, None));
    network.loss = 0;
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    let known = outcomes(&network);
    let left: i64 = text(&network.one(2, &network.increment(a, false))).parse().expect("an integer");
    let right: i64 = text(&network.one(2, &network.increment(b, false))).parse().expect("an integer");
    assert_eq!(left, right, "both or none, dying after {micros} us");
    known
}

#[test]
fn a_coordinator_that_dies_at_any_moment_leaves_both_effects_or_none() {
    let (mut committed, mut aborted) = (0, 0);
    for micros in (0..30_000).step_by(250) {
        let known = die_after(micros, 3);
        committed += usize::from(known.0 > 0);
        aborted += usize::from(known.1 > 0);
    }
    assert!(committed > 4 && aborted > 4, "both ends were seen: {committed} and {aborted}");
}

#[test]
fn five_replicas_too() {
    for micros in (0..30_000).step_by(1500) {
        die_after(micros, 5);
    }
}

#[test]
fn a_transaction_that_may_have_committed_on_the_fast_path_is_committed_by_recovery() {
    let mut network = Network::new(4, 2, 3, 2, &Options::default());
    let (a, b) = network.two_keys();
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Execute { .. }))));
    let steps = [network.set(a, "1"), network.set(b, "1")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK OK", "every replica voted PREPARE-OK");
    network.down.insert(address(1, None));
    network.filter = None;
    network.run_for(Duration::from_secs(5));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get(a))), "1");
    assert_eq!(text(&network.one(2, &network.get(b))), "1");
}

#[test]
fn a_transaction_prepared_at_one_shard_only_is_aborted_by_recovery() {
    let mut network = Network::new(5, 2, 3, 2, &Options::default());
    let (a, b) = network.two_keys();
    let beyond = Some(types::PartitionId(1));
    network.filter = Some(Box::new(move |_, to, message| {
        to.slot.partition == beyond && matches!(ir_of(message), Some(Ir::Propose { .. }))
    }));
    let steps = [network.set(a, "1"), network.set(b, "1")];
    network.many(1, 1, &steps);
    network.run_for(Duration::from_millis(20));
    network.down.insert(address(1, None));
    network.filter = None;
    network.run_for(Duration::from_secs(5));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get(a))), "null");
    assert_eq!(outcomes(&network).0, 0);
}

#[test]
fn a_slow_coordinator_learns_what_recovery_decided() {
    let mut network = Network::new(6, 2, 3, 2, &Options::default());
    let (a, b) = network.two_keys();
    // The coordinator hears nothing for two seconds: recovery takes over, and it learns the outcome afterwards.
    network.filter = Some(Box::new(|_, to, message| to == address(1, None) && ir_of(message).is_some()));
    let steps = [network.set(a, "1"), network.set(b, "1")];
    let id = network.many(1, 1, &steps);
    network.run_for(Duration::from_secs(3));
    network.filter = None;
    assert_eq!(text(&network.answer(id)), "OK OK");
    network.run_for(Duration::from_secs(1));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get(b))), "1");
}

/// Notes the greatest round of a coordinator view that anybody asks for.
fn watch_rounds(network: &mut Network) -> Rc<Cell<u32>> {
    let highest = Rc::new(Cell::new(0));
    let seen = highest.clone();
    network.filter = Some(Box::new(move |_, _, message| {
        if let Some(Ir::CoordinatorChange { ballot, .. }) = ir_of(message) {
            seen.set(seen.get().max(ballot.round));
        }
        false
    }));
    highest
}

#[test]
fn a_coordinator_that_is_far_away_but_lives_is_not_suspected() {
    let options = Options::default();
    let mut network = Network::new(7, 2, 3, 2, &options);
    network.add_coordinator(9, &options);
    network.far = Some((ProcessId(9), Duration::from_millis(700)));
    let rounds = watch_rounds(&mut network);
    let (a, b) = network.two_keys();
    let steps = [network.increment(a, false), network.increment(b, false)];
    let id = network.many(9, 1, &steps);
    assert_eq!(text(&network.answer(id)), "1 1");
    network.run_for(Duration::from_secs(2));
    assert_settled(&network);
    assert_eq!(
        rounds.get(),
        0,
        "the replicas held it prepared for longer than the time-out, and heard from it"
    );
}

#[test]
fn backup_coordinators_far_from_each_other_do_not_take_the_promises_from_one_another() {
    for seed in 1..=20 {
        let mut network = Network::new(seed, 2, 5, 2, &Options::default());
        let (a, b) = network.two_keys();
        let steps = [network.increment(a, false), network.increment(b, false)];
        network.many(1, 1, &steps);
        network.run_for(Duration::from_millis(14));
        network.down.insert(address(1, None));
        network.delay = Duration::from_millis(900);
        let rounds = watch_rounds(&mut network);
        network.run_for(Duration::from_secs(12));
        assert_settled(&network);
        assert!(rounds.get() <= 3, "seed {seed}: {} coordinator views for one transaction", rounds.get());
    }
}

/// The backup coordinator whose messages travel, by process, and which replicas they may reach.
#[derive(Clone, Copy)]
struct Backup {
    process: u16,
    polls: &'static [u16],
    choices: &'static [u16],
}

/// Which replicas of the only shard, by process, a message that decides something may reach.
struct Routes {
    proposals: &'static [u16],
    finalizations: &'static [u16],
    backup: Option<Backup>,
    executions: bool,
}

impl Routes {
    fn set(self, network: &mut Network) {
        network.filter = Some(Box::new(move |from, to, message| {
            let to = to.process.0;
            let backup = self.backup.filter(|backup| from == address(backup.process, Some(0)));
            let passes = match ir_of(message) {
                Some(Ir::Propose { .. }) => self.proposals.contains(&to),
                Some(Ir::Finalize { ballot, .. }) if ballot.round == 0 => self.finalizations.contains(&to),
                Some(Ir::Finalize { .. }) => backup.is_some_and(|backup| backup.choices.contains(&to)),
                Some(Ir::CoordinatorChange { .. }) => backup.is_some_and(|it| it.polls.contains(&to)),
                Some(Ir::Execute { .. }) => self.executions,
                _ => true,
            };
            !passes
        }));
    }
}

/// One backup coordinator finalizes NO-VOTE at a single replica that had voted PREPARE-OK and comes no further;
/// then a conflicting transaction asks that replica; then another backup coordinator, which meets a finalized
/// PREPARE-OK of the original coordinator, commits. Returns what the second transaction replied and how many
/// transactions committed.
fn refused_beside_a_lock(mutants: Mutants) -> (String, usize) {
    let options = Options { mutants, quorum_reads: false, ..Options::default() };
    let mut network = Network::new(8, 1, 5, 2, &options);
    // Replicas 1 to 3 vote PREPARE-OK; the slow path finalizes it at 2 and 3, one too few; the coordinator dies.
    Routes { proposals: &[1, 2, 3], finalizations: &[2, 3], backup: None, executions: false }
        .set(&mut network);
    network.many(1, 1, &[network.increment("a", false)]);
    network.run_for(Duration::from_millis(200));
    network.down.insert(address(1, None));
    // Replica 1 polls itself and two that know nothing, and chooses NO-VOTE.
    let backup = Some(Backup { process: 1, polls: &[1, 4, 5], choices: &[1] });
    Routes { proposals: &[1, 2, 3], finalizations: &[], backup, executions: false }.set(&mut network);
    network.run_for(Duration::from_secs(3));
    Routes { proposals: &[1, 4, 5], finalizations: &[1, 4, 5], backup: None, executions: false }
        .set(&mut network);
    let id = network.many(2, 2, &[network.increment("a", false)]);
    network.run_for(Duration::from_millis(150));
    // Replica 2 polls 2 to 4 under a higher coordinator view.
    let backup = Some(Backup { process: 2, polls: &[2, 3, 4], choices: &[2, 3, 4] });
    Routes { proposals: &[1, 4, 5], finalizations: &[1, 4, 5], backup, executions: true }.set(&mut network);
    network.run_for(Duration::from_secs(3));
    network.filter = None;
    network.run_for(Duration::from_secs(5));
    assert_settled(&network);
    let reply = text(&network.answer(id));
    network.look();
    let committed = network.decided.values().filter(|decided| matches!(decided, Decided::Committed { .. }));
    (reply, committed.count())
}

#[test]
fn a_lock_outlives_a_refusal_that_a_later_backup_coordinator_does_not_see() {
    let (reply, committed) = refused_beside_a_lock(Mutants::default());
    assert!(committed >= 1, "the second backup coordinator committed the first transaction");
    assert_ne!(reply, "1", "the second transaction may not count from nothing beside the first");
    let mutants = Mutant::ReleaseOnAdoptedNonOk.into();
    assert_eq!(refused_beside_a_lock(mutants), ("1".to_owned(), 2), "the mutant counts from nothing twice");
}
