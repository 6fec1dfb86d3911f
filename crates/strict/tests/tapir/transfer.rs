//! Replicas that are too far behind for the record fetch the state.

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::sync::{options, pass, replica};
use anabranch_strict::ir::{Message as Ir, Status};
use anabranch_strict::tapir::{Message, Options};
use anabranch_strict::{Mutant, Mutants};
use std::time::Duration;

const KEYS: [&str; 24] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
    "v", "w", "x",
];

fn small() -> Options {
    Options { piece_bytes: 10, sync_patience: 5, ..options() }
}

/// Every key is written, and so long ago that outcomes are forgotten.
fn filled(seed: u64, options: &Options) -> Network {
    let mut network = Network::new(seed, 1, 3, 2, options);
    for key in KEYS {
        network.one(1, &network.increment(key, true));
    }
    pass(&mut network, "a", 1000);
    assert!(replica(&network, 1, 0).points().trimmed > types::Timestamp::ZERO);
    network
}

fn assert_alike(network: &Network) {
    for (at, replica) in network.replicas() {
        assert_eq!(replica.status(), Status::Normal, "{at}");
        for key in KEYS {
            let first = crate::tapir::sync::replica(network, 1, 0).cell(key.as_bytes());
            assert_eq!(replica.cell(key.as_bytes()), first, "{key} at {at}");
        }
    }
}

/// How many pieces travel, counted by a filter that lets everything pass.
fn count_pieces(network: &mut Network) -> std::rc::Rc<std::cell::Cell<usize>> {
    let count = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = std::rc::Rc::clone(&count);
    network.filter = Some(Box::new(move |_, _, message| {
        counted.set(counted.get() + usize::from(matches!(message, Message::State { .. })));
        false
    }));
    count
}

#[test]
fn a_lost_disk_is_filled_again_in_pieces_beside_traffic() {
    let mut network = filled(1, &small());
    let pieces = count_pieces(&mut network);
    network.restart(address(3, Some(0)), 0, false);
    pass(&mut network, "b", 2000);
    network.run_for(Duration::from_secs(1));
    assert!(pieces.get() > 5, "{} pieces", pieces.get());
    assert_alike(&network);
}

#[test]
fn a_replica_that_was_away_for_long_fetches_the_state_and_does_not_disturb_the_others() {
    let mut network = filled(2, &small());
    let pieces = count_pieces(&mut network);
    network.down.insert(address(3, Some(0)));
    pass(&mut network, "b", 2000);
    network.down.remove(&address(3, Some(0)));
    pass(&mut network, "c", 2000);
    network.run_for(Duration::from_secs(1));
    assert!(pieces.get() > 5, "{} pieces", pieces.get());
    assert_alike(&network);
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert_eq!(views, [0, 0, 0], "no view was changed for that");
}

#[test]
fn one_that_restarts_after_a_long_absence_does_too() {
    let mut network = filled(3, &small());
    let pieces = count_pieces(&mut network);
    network.down.insert(address(1, Some(0)));
    network.restart(address(2, Some(0)), usize::MAX, true);
    pass(&mut network, "b", 2000);
    network.restart(address(1, Some(0)), usize::MAX, true);
    pass(&mut network, "c", 3000);
    network.run_for(Duration::from_secs(1));
    assert!(pieces.get() > 5, "{} pieces", pieces.get());
    assert_alike(&network);
}

/// A replica that fetches is struck after some pieces.
fn struck_after(pieces: usize, strike: impl Fn(&mut Network)) {
    let mut network = filled(pieces as u64, &small());
    let count = count_pieces(&mut network);
    network.restart(address(3, Some(0)), 0, false);
    let begun = network.now;
    while count.get() < pieces {
        network.run_for(Duration::from_millis(1));
        assert!(network.now - begun < Duration::from_secs(20), "{} pieces have come", count.get());
    }
    strike(&mut network);
    pass(&mut network, "c", 3000);
    network.run_for(Duration::from_secs(3));
    assert_alike(&network);
}

#[test]
fn a_crash_in_the_middle_begins_anew() {
    for pieces in crate::some_of(1..6) {
        // Its log has pieces, and it still knows that it may have forgotten.
        struck_after(pieces, |network| network.restart(address(3, Some(0)), usize::MAX, false));
    }
}

#[test]
fn a_source_that_restarts_in_the_middle_is_queried_from_the_beginning() {
    for pieces in crate::some_of(1..6) {
        struck_after(pieces, |network| network.restart(address(1, Some(0)), usize::MAX, true));
        struck_after(pieces, |network| network.restart(address(2, Some(0)), usize::MAX, true));
    }
}

#[test]
fn a_checkpoint_in_the_middle_loses_nothing() {
    for pieces in crate::some_of(1..6) {
        struck_after(pieces, |network| {
            let at = address(3, Some(0));
            let chunks = network.checkpoint(at);
            let logged = network.log_len(at);
            network.run_for(Duration::from_millis(700));
            network.restart_with(at, &chunks, logged, replica(network, 3, 0).status() == Status::Normal);
        });
    }
}

#[test]
fn a_transfer_ends_beside_checkpoints_that_come_sooner_than_it_takes() {
    let mut network = filled(12, &small());
    let (third, pieces) = (address(3, Some(0)), count_pieces(&mut network));
    network.restart(third, 0, false);
    for _ in 0..300 {
        network.checkpoint(third);
        network.run_for(Duration::from_millis(20));
    }
    assert!(pieces.get() > 5, "{} pieces", pieces.get());
    assert_alike(&network);
}

/// A replica is cut off from commits while it fetches: they are in its record, but not in the pieces it got before.
fn commits_meanwhile(mutants: Mutants) -> bool {
    let mut network = filled(9, &Options { mutants, ..small() });
    let third = address(3, Some(0));
    network.down.insert(third);
    pass(&mut network, "b", 2000);
    network.down.remove(&third);
    for _ in 0..20 {
        for key in KEYS {
            network.one(1, &network.increment(key, true));
        }
    }
    // Before another interval is closed.
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Sync { .. }))));
    network.run_for(Duration::from_millis(500));
    KEYS.iter().all(|key| {
        replica(&network, 3, 0).cell(key.as_bytes()) == replica(&network, 1, 0).cell(key.as_bytes())
    })
}

#[test]
fn what_the_record_knows_beyond_the_state_is_executed_again() {
    assert!(commits_meanwhile(Mutants::default()));
    assert!(!commits_meanwhile(Mutant::StateWithoutRecord.into()), "the mutant misses commits");
}

/// Every key is incremented while a replica fetches that hears of it in no other way, and is then read from there; all
/// replicas may object. Counts the keys whose increment was not seen.
fn incremented_while_fetching(mutants: Mutants) -> usize {
    let near = Some(types::ProcessId(3));
    let options = Options { mutants, near, quorum_reads: false, ..small() };
    let mut network = filled(10, &options);
    network.add_coordinator(3, &options);
    let third = address(3, Some(0));
    network.down.insert(third);
    pass(&mut network, "y", 2000);
    network.down.remove(&third);
    let fetching = std::rc::Rc::new(std::cell::Cell::new(false));
    let requested = std::rc::Rc::clone(&fetching);
    network.filter = Some(Box::new(move |_, to, message| {
        requested.set(requested.get() || matches!(message, Message::FetchState { .. }));
        let ir = ir_of(message);
        let commits = matches!(ir, Some(Ir::Propose { .. } | Ir::Finalize { .. } | Ir::Execute { .. }));
        to == third && (commits || requested.get() && matches!(ir, Some(Ir::Sync { .. } | Ir::Ended { .. })))
    }));
    while !fetching.get() {
        network.run_for(Duration::from_millis(1));
    }
    let ids = KEYS[1..].iter().map(|key| network.many(1, 1, &[network.increment(key, false)]));
    let ids: Vec<types::RequestId> = ids.collect();
    let before: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
    network.run_for(Duration::from_millis(300));
    network.filter = Some(Box::new(move |_, to, message| {
        to == third && matches!(ir_of(message), Some(Ir::Sync { .. } | Ir::Ended { .. }))
    }));
    let seen = KEYS[1..].iter().map(|key| text(&network.one(3, &network.get(key))));
    seen.zip(before).filter(|(seen, before)| seen != before).count()
}

#[test]
fn fetched_state_claims_to_have_seen_no_more_than_it_holds() {
    assert_eq!(incremented_while_fetching(Mutants::default()), 0);
    assert!(incremented_while_fetching(Mutant::StampsAfterKeys.into()) > 0, "the mutant misses increments");
}

/// Two replicas begin with a checkpoint in which a key is absent; the third still has it, and is read from.
fn deleted_long_ago(mutants: Mutants) -> String {
    let near = Some(types::ProcessId(3));
    let mut network = Network::new(11, 1, 3, 3, &Options { mutants, near, quorum_reads: false, ..small() });
    network.one(1, &network.set("a", "old"));
    network.run_for(Duration::from_millis(100));
    let third = address(3, Some(0));
    network.filter = Some(Box::new(move |_, to, message| to == third && ir_of(message).is_some()));
    let delete = network.step("a", datatypes::register::Operation::GetDelete, false);
    assert_eq!(text(&network.one(1, &delete)), "old");
    pass(&mut network, "b", 2000);
    for process in [1, 2] {
        let at = address(process, Some(0));
        assert!(replica(&network, process, 0).points().trimmed > types::Timestamp::ZERO);
        let (chunks, logged) = (network.checkpoint(at), network.log_len(at));
        network.restart_with(at, &chunks, logged, true);
    }
    network.run_for(Duration::from_secs(1));
    assert_eq!(replica(&network, 3, 0).status(), Status::Normal);
    text(&network.one(3, &network.get("a")))
}

#[test]
fn a_state_from_a_checkpoint_knows_that_absent_keys_may_have_been_deleted() {
    assert_eq!(deleted_long_ago(Mutants::default()), "null");
    assert_eq!(deleted_long_ago(Mutant::ForgetAbsence.into()), "old", "the mutant reads what was deleted");
}
