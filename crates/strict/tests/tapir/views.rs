//! View changes, and replicas that come back with all, some or none of their log.

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::ir::{Message as Ir, Status};
use anabranch_strict::tapir::Options;
use std::time::Duration;

fn statuses(network: &Network) -> Vec<Status> {
    network.replicas().map(|(_, replica)| replica.status()).collect()
}

#[test]
fn a_replica_that_lost_its_log_learns_everything_before_it_serves() {
    let mut network = Network::new(1, 1, 3, 2, &Options::default());
    for _ in 0..5 {
        network.one(1, &network.increment("a", false));
    }
    network.restart(address(2, Some(0)), 0, false);
    let statuses_now = statuses(&network);
    assert_eq!(statuses_now.iter().filter(|s| **s == Status::Recovering).count(), 1);
    network.run_for(Duration::from_secs(3));
    assert!(statuses(&network).iter().all(|status| *status == Status::Normal));
    let cells: Vec<Vec<u8>> = network.replicas().map(|(_, replica)| replica.cell(b"a")).collect();
    assert!(cells.iter().all(|cell| *cell == cells[0]), "the newcomer has it all");
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert!(views.iter().all(|view| *view == views[0] && *view > 0), "{views:?}");
    assert_eq!(text(&network.one(1, &network.increment("a", false))), "6");
}

#[test]
fn a_replica_with_its_log_catches_up_by_a_new_view() {
    let mut network = Network::new(2, 1, 3, 2, &Options::default());
    network.down.insert(address(3, Some(0)));
    for _ in 0..5 {
        network.one(1, &network.increment("a", false));
    }
    network.run_for(Duration::from_secs(90));
    let log = network.log_len(address(3, Some(0)));
    network.restart(address(3, Some(0)), log, true);
    network.run_for(Duration::from_secs(3));
    // The first start was of an empty replica; to learn what it missed it needs the others' view.
    assert_eq!(text(&network.one(1, &network.increment("a", false))), "6");
    network.run_for(Duration::from_secs(3));
    assert_settled(&network);
}

#[test]
fn what_may_have_succeeded_on_the_fast_path_survives_a_view_change() {
    let mut network = Network::new(3, 2, 3, 2, &Options::default());
    let (a, b) = network.two_keys();
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Execute { .. }))));
    let steps = [network.set(a, "1"), network.set(b, "1")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK OK");
    network.down.insert(address(1, None));
    network.filter = None;
    network.restart(address(2, Some(0)), 0, false);
    network.restart(address(3, Some(1)), 0, false);
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get(a))), "1");
    assert_eq!(text(&network.one(2, &network.get(b))), "1");
}

#[test]
fn a_result_finalized_on_the_slow_path_survives_a_view_change_without_the_third_replica() {
    let mut network = Network::new(4, 1, 3, 2, &Options::default());
    network.down.insert(address(3, Some(0)));
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Execute { .. }))));
    assert_eq!(text(&network.one(1, &network.set("a", "1"))), "OK");
    network.down.insert(address(1, None));
    network.filter = None;
    // One of the two that confirmed forgets; the third has never heard of it.
    network.restart(address(3, Some(0)), 1000, true);
    network.restart(address(2, Some(0)), 0, false);
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get("a"))), "1");
}

#[test]
fn more_than_f_that_forgot_stay_silent() {
    let mut network = Network::new(5, 1, 3, 2, &Options::default());
    assert_eq!(text(&network.one(1, &network.set("a", "1"))), "OK");
    network.run_for(Duration::from_millis(100));
    network.restart(address(1, Some(0)), 0, false);
    network.restart(address(2, Some(0)), 0, false);
    network.run_for(Duration::from_secs(3));
    assert_eq!(statuses(&network).iter().filter(|status| **status == Status::Recovering).count(), 2);
    let reply = text(&network.one(1, &network.get("a")));
    assert!(reply.starts_with("UNAVAILABLE"), "{reply}");
}

#[test]
fn a_checkpoint_and_a_log_that_overlap_recover_the_same_state() {
    let mut network = Network::new(6, 1, 3, 2, &Options::default());
    for _ in 0..5 {
        network.one(1, &network.increment("a", false));
        network.one(1, &network.increment("b", true));
    }
    network.run_for(Duration::from_secs(1));
    let before: Vec<_> = network.replicas().map(|(_, r)| (r.cell(b"a"), r.cell(b"b"))).collect();
    network.restart_from_checkpoint(address(2, Some(0)));
    let after: Vec<_> = network.replicas().map(|(_, r)| (r.cell(b"a"), r.cell(b"b"))).collect();
    assert_eq!(before, after);
    network.run_for(Duration::from_secs(3));
    assert_eq!(text(&network.one(1, &network.increment("a", false))), "6");
}

#[test]
fn a_leader_that_alone_knows_an_outcome_does_not_hold_the_locks_that_newer_records_still_have() {
    let mut network = Network::new(7, 1, 3, 2, &Options::default());
    let [first, second, third] = [1, 2, 3].map(|process| address(process, Some(0)));
    // Only the first replica hears that the transaction has committed; then it is cut off for a view.
    network.filter = Some(Box::new(move |_, to, message| {
        to != first && matches!(ir_of(message), Some(Ir::Execute { .. }))
    }));
    assert_eq!(text(&network.one(1, &network.set("a", "1"))), "OK");
    network.down.insert(address(1, None));
    network.run_for(Duration::from_millis(20));
    network.down.insert(first);
    network.filter = Some(Box::new(move |_, to, message| {
        to == first && matches!(ir_of(message), Some(Ir::StartView { view: 1, .. }))
    }));
    network.restart(third, 1000, true);
    network.run_for(Duration::from_millis(20));
    let prepared: Vec<(Status, u64, usize)> =
        network.replicas().map(|(_, r)| (r.status(), r.view(), r.prepared())).collect();
    assert_eq!(prepared, [(Status::Normal, 0, 0), (Status::Normal, 1, 1), (Status::Normal, 1, 1)]);
    // The leader of view 2 is down: the first replica leads view 3, with a record of view 0 and one of view 1.
    network.down.insert(third);
    network.down.remove(&first);
    network.restart(second, 1000, true);
    network.run_for(Duration::from_secs(2));
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert_eq!(views[..2], [3, 3], "the first replica has led");
    network.filter = None;
    network.restart(third, 1000, true);
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get("a"))), "1");
}
