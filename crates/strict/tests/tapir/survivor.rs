//! More than f replicas are lost for good, and an operator accepts that (Corrections 84).

use crate::tapir::merges::{on_dict, put};
use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::{Message as Ir, Status, epoch_of};
use anabranch_strict::tapir::Options;
use anabranch_strict::{Mutant, Mutants};
use datatypes::dict;
use protocol::Request;
use std::time::Duration;
use types::SessionId;

const SECOND: Duration = Duration::from_secs(1);

/// Five replicas on processes 1 to 5, of which 1 and 2 are left in the end.
fn network(seed: u64) -> Network {
    let mut network = Network::new(seed, 1, 5, 2, &Options::default());
    network.add_spare(6, 0, &Options::default());
    network
}

fn lose_the_others(network: &mut Network) {
    network.filter = None;
    network.down.extend([3, 4, 5].map(|process| address(process, Some(0))));
    network.run_for(2 * SECOND);
}

/// Process 1 goes on with what these have.
fn go_on(network: &mut Network, left: &[u16]) {
    network.place(1, 0, left, true);
    network.run_for(8 * SECOND);
    let replica = network.replica(1, 0);
    assert_eq!((replica.status(), replica.prepared()), (Status::Normal, 0));
    assert!(epoch_of(replica.view()) > 0xffff, "above every epoch that the lost may have begun");
}

/// What is read of a key after that.
fn read_after(network: &mut Network, left: &[u16], key: &'static str) -> String {
    go_on(network, left);
    text(&network.one(1, &network.get(key)))
}

/// A transaction of coordinator 2 that was answered; process 1 has heard nothing of it. Of those that have, process 2 is
/// left, with its end if `ended`, else with its vote.
fn answered_without_process_1(seed: u64, ended: bool) -> Network {
    let mut network = network(seed);
    let deaf = address(1, Some(0));
    network.filter = Some(Box::new(move |_, to, message| match ir_of(message) {
        Some(Ir::Execute { .. }) => to == deaf || !ended,
        Some(_) => to == deaf,
        None => false,
    }));
    let steps = [network.set("a", "answered")];
    let id = network.many(2, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK");
    network.run_for(Duration::from_millis(20));
    network.down.insert(address(2, None));
    lose_the_others(&mut network);
    network
}

#[test]
fn what_another_that_is_left_has_executed_counts() {
    assert_eq!(read_after(&mut answered_without_process_1(1, true), &[1, 2], "a"), "answered");
    let mut network = answered_without_process_1(1, true);
    assert_eq!(read_after(&mut network, &[1], "a"), "null", "process 1 alone never had it");
}

#[test]
fn what_another_that_is_left_has_voted_for_counts() {
    assert_eq!(read_after(&mut answered_without_process_1(2, false), &[1, 2], "a"), "answered");
}

/// A field is written with the votes of processes 1, 3, 4 and 5, which the client hears before its coordinator dies; then
/// another field of the key is written with a higher stamp. What is read of the first once these have gone on.
fn field_after(mutants: Mutants, left: &[u16]) -> String {
    let mut network = Network::new(3, 1, 5, 3, &Options { mutants, ..Options::default() });
    assert_eq!(text(&network.one(2, &put(&network, b"before", b"1"))), "OK");
    network.run_for(Duration::from_millis(50));
    network.filter = Some(Box::new(|from, to, message| match ir_of(message) {
        Some(Ir::Execute { .. }) => from.process.0 == 2,
        Some(Ir::Propose { .. }) => from.process.0 == 2 && to.process.0 == 2,
        _ => false,
    }));
    assert_eq!(text(&network.one(2, &put(&network, b"field", b"answered"))), "OK");
    network.down.insert(address(2, None));
    network.set_skew(address(3, None), 100_000);
    let id = network.many(3, 3, &[put(&network, b"other", b"1")]);
    assert_eq!(text(&network.answer(id)), "OK");
    network.run_for(Duration::from_millis(50));
    network.down.insert(address(3, None));
    lose_the_others(&mut network);
    go_on(&mut network, left);
    text(&network.one(1, &on_dict(&network, dict::Operation::Get { field: b"field" })))
}

/// One of those that are left may be all that is left of a fast quorum: its vote is judged like one that may have
/// succeeded. The mutant asks for two, as among f+1, and refuses it for what has committed above it.
#[test]
fn one_vote_may_be_what_is_left_of_a_fast_quorum() {
    for left in [&[1, 2][..], &[1]] {
        assert_eq!(field_after(Mutants::default(), left), "answered");
        let field = field_after(Mutant::LostVotedAgainst.into(), left);
        assert_eq!(field, "null", "the mutant loses what it answered");
    }
}

/// Four of five have accepted a transaction that was answered; the fifth, whose clock was behind, has refused it. That one
/// and another are left.
#[test]
fn a_refusal_of_one_that_is_left_does_not_undo_what_another_has_voted_for() {
    let options = Options { clock_bound: Duration::from_millis(100), ..Options::default() };
    let mut network = Network::new(6, 1, 5, 2, &options);
    network.set_skew(address(1, Some(0)), -2_000_000);
    network.filter = Some(Box::new(|_, _, message| {
        matches!(ir_of(message), Some(Ir::Execute { .. } | Ir::Finalize { .. }))
    }));
    let id = network.many(2, 1, &[network.set("a", "answered")]);
    assert_eq!(text(&network.answer(id)), "OK");
    network.run_for(Duration::from_millis(20));
    assert_eq!((network.replica(1, 0).prepared(), network.replica(2, 0).prepared()), (0, 1));
    network.down.insert(address(2, None));
    network.set_skew(address(1, Some(0)), 0);
    lose_the_others(&mut network);
    assert_eq!(read_after(&mut network, &[1, 2], "a"), "answered");
}

#[test]
fn who_is_left_joins_again_and_one_that_does_not_answer_is_left_out() {
    let mut network = network(4);
    for _ in 0..3 {
        network.one(1, &network.increment("a", false));
    }
    network.run_for(SECOND);
    lose_the_others(&mut network);
    // Process 3 is dead: nothing changes as long as it is waited for.
    network.place(1, 0, &[1, 2, 3], true);
    network.run_for(5 * SECOND);
    assert_eq!(epoch_of(network.replica(1, 0).view()), 0);
    assert_eq!(read_after(&mut network, &[1, 2], "a"), "3");
    assert_eq!(network.replica(2, 0).status(), Status::Outside);
    let epoch = epoch_of(network.replica(1, 0).view());
    network.place(1, 0, &[1, 2, 6], false);
    network.run_for(4 * SECOND);
    for process in [1, 2, 6] {
        let replica = network.replica(process, 0);
        assert_eq!((replica.status(), epoch_of(replica.view())), (Status::Normal, epoch + 1), "{process}");
    }
    // One of the lost comes back with all it had.
    let at = address(3, Some(0));
    let log = network.log_len(at);
    network.restart(at, log, true);
    network.run_for(3 * SECOND);
    assert_eq!(network.replica(3, 0).status(), Status::Outside);
    let steps = [network.increment("a", false)];
    let request = Request::Many { session: SessionId(1), steps: &steps, watched: false, multi: true };
    let id = network.request(1, request);
    assert_eq!(text(&network.answer(id)), "4");
}

#[test]
fn only_replicas_of_the_group_are_left_of_it() {
    let mut network = network(5);
    network.one(1, &network.increment("a", false));
    lose_the_others(&mut network);
    network.place(1, 0, &[1, 6], true);
    network.run_for(3 * SECOND);
    assert_eq!(epoch_of(network.replica(1, 0).view()), 0, "process 6 never had a part in it");
}

/// The operator's command goes to both of those that are left, each with the other: one goes on, whichever it is.
#[test]
fn of_two_that_name_each_other_one_goes_on() {
    for seed in 7..12 {
        let mut network = network(seed);
        network.one(1, &network.increment("a", false));
        network.run_for(SECOND);
        lose_the_others(&mut network);
        network.place(1, 0, &[1, 2], true);
        network.place(2, 0, &[2, 1], true);
        network.run_for(8 * SECOND);
        let goes_on = |process: u16| network.replica(process, 0).status() == Status::Normal;
        assert_ne!(goes_on(1), goes_on(2), "seed {seed}");
        let outside = if goes_on(1) { 2 } else { 1 };
        assert_eq!(network.replica(outside, 0).status(), Status::Outside, "seed {seed}");
        for process in [1, 2] {
            assert_eq!(text(&network.one(process, &network.get("a"))), "1", "seed {seed}");
        }
    }
}
