//! Synchronization: intervals are closed, outcomes forgotten, and no client gets a wrong outcome.

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Options, Replica};
use anabranch_strict::{Mutant, Mutants};
use std::time::Duration;
use types::{Address, Timestamp, WallTime};

pub fn options() -> Options {
    Options {
        sync_every: Some(Duration::from_millis(20)),
        sync_lag: Duration::from_millis(200),
        sync_patience: 1000,
        ..Options::default()
    }
}

pub fn replica(network: &Network, process: u16, shard: u16) -> &Replica {
    let at = address(process, Some(shard));
    network.replicas().find(|(of, _)| *of == at).map(|(_, replica)| replica).expect("a replica")
}

/// Lets coordinator 2 write to a key for so long.
pub fn pass(network: &mut Network, key: &'static str, millis: u64) {
    let end = network.now + Duration::from_millis(millis);
    while network.now < end {
        let reply = text(&network.one(2, &network.set(key, "x")));
        // While a view changes, the coordinator may be out of touch for longer than replicas retain outcomes here.
        assert!(reply == "OK" || reply.starts_with("UNKNOWNOUTCOME"), "{reply}");
        network.run_for(Duration::from_millis(5));
    }
}

fn bases(network: &Network) -> Vec<Timestamp> {
    network.replicas().map(|(_, replica)| replica.points().base).collect()
}

#[test]
fn the_record_and_the_histories_stay_small_however_long_the_run() {
    let mut network = Network::new(1, 2, 3, 2, &options());
    let (a, b) = network.two_keys();
    let mut sizes = Vec::new();
    for round in 0..6 {
        for _ in 0..100 {
            let steps = [network.increment(a, true), network.increment(b, true)];
            let id = network.many(1, 1, &steps);
            assert_eq!(text(&network.answer(id)), "OK OK");
        }
        network.run_for(Duration::from_millis(100));
        let most = network.replicas().map(|(_, r)| (r.recorded(), r.memory())).max().expect("replicas");
        let checkpoint = network.checkpoint(address(1, Some(0))).iter().map(Vec::len).sum::<usize>();
        sizes.push((most.0, most.1, checkpoint));
        assert_eq!(text(&network.one(2, &network.get(a))), ((round + 1) * 100).to_string());
    }
    let (first, last) = (sizes[1], sizes[5]);
    assert!(last.0 < 2 * first.0 && last.1 < 2 * first.1 && last.2 < 2 * first.2, "{sizes:?}");
}

#[test]
fn a_replica_that_missed_commits_without_crashing_fetches_them() {
    let mut network = Network::new(2, 1, 3, 2, &options());
    let third = address(3, Some(0));
    network.filter = Some(Box::new(move |_, to, message| {
        to == third
            && matches!(ir_of(message), Some(Ir::Propose { .. } | Ir::Finalize { .. } | Ir::Execute { .. }))
    }));
    for _ in 0..5 {
        network.one(1, &network.increment("a", false));
    }
    assert_eq!(replica(&network, 3, 0).recorded(), 0, "it heard nothing");
    network.run_for(Duration::from_secs(2));
    assert_eq!(replica(&network, 3, 0).cell(b"a"), replica(&network, 1, 0).cell(b"a"));
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert_eq!(views, [0, 0, 0], "no view was changed for that");
    assert!(bases(&network).iter().all(|base| *base > Timestamp::ZERO));
}

/// Only a leader closes intervals: one that does not come back is replaced, or the others would remember for ever.
#[test]
fn a_leader_that_stays_away_is_replaced_so_that_the_record_stays_small() {
    let mut network = Network::new(12, 1, 3, 2, &Options { sync_patience: 5, ..options() });
    pass(&mut network, "a", 1000);
    network.down.insert(address(1, Some(0)));
    let before = bases(&network);
    pass(&mut network, "a", 2000);
    let records: Vec<usize> = (2..4).map(|process| replica(&network, process, 0).recorded()).collect();
    pass(&mut network, "a", 4000);
    for process in 2..4 {
        let replica = replica(&network, process, 0);
        assert!(replica.points().trimmed > before[1], "process {process}");
        assert!(replica.recorded() < 2 * records[0], "{} after {records:?}", replica.recorded());
    }
}

#[test]
fn a_follower_that_hears_nobody_disturbs_nobody() {
    let mut network = Network::new(13, 1, 3, 2, &Options { sync_patience: 5, ..options() });
    let deaf = address(3, Some(0));
    pass(&mut network, "a", 300);
    network.filter = Some(Box::new(move |_, to, message| {
        to == deaf && !matches!(ir_of(message), Some(Ir::Propose { .. } | Ir::Execute { .. }))
    }));
    pass(&mut network, "a", 3000);
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert_eq!(views, [0, 0, 0]);
}

#[test]
fn nothing_is_closed_while_it_is_prepared_and_undecided() {
    let run = |mutants: Mutants| {
        let mut network = Network::new(3, 2, 3, 2, &Options { mutants, ..options() });
        let (a, b) = network.two_keys();
        // Everybody votes PREPARE-OK, and nobody hears more for a while.
        network.filter = Some(Box::new(move |from, _, message| {
            from == address(1, None) && matches!(ir_of(message), Some(Ir::Execute { .. }))
                || matches!(message, Message::Suspect { .. })
                || matches!(ir_of(message), Some(Ir::CoordinatorChange { .. }))
        }));
        let steps = [network.increment(a, false), network.increment(b, false)];
        let id = network.many(1, 1, &steps);
        assert_eq!(text(&network.answer(id)), "1 1");
        network.down.insert(address(1, None));
        let decided = network.now;
        network.run_for(Duration::from_millis(800));
        let born = Timestamp::from_wall(network.wall(network.now - decided));
        let closed = bases(&network).iter().any(|base| *base > born);
        network.filter = None;
        network.run_for(Duration::from_secs(6));
        (closed, text(&network.one(2, &network.get(a))), text(&network.one(2, &network.get(b))))
    };
    assert_eq!(run(Mutants::default()), (false, "1".to_owned(), "1".to_owned()));
    assert_ne!(run(Mutant::CloseUndecided.into()).1, "1", "the mutant loses what was acknowledged");
}

/// A transaction is proposed for the first time after the replicas have accepted to close the interval of its birth;
/// it is acknowledged, and then the view changes. Returns what its key holds in the end.
fn proposed_late(mutants: Mutants) -> String {
    let mut network = Network::new(4, 1, 3, 2, &Options { mutants, quorum_reads: false, ..options() });
    pass(&mut network, "b", 500);
    let first = address(1, None);
    let seen = std::rc::Rc::new(std::cell::Cell::new(Timestamp::MAX));
    let filter = |proposals: bool| -> crate::tapir::network::Filter {
        let seen = std::rc::Rc::clone(&seen);
        Box::new(move |from, _, message| match ir_of(message) {
            Some(Ir::Propose { born, .. }) if from == first => {
                seen.set(seen.get().min(*born));
                proposals
            }
            Some(Ir::Execute { .. }) => from == first,
            Some(Ir::SyncFinished { at, .. }) => *at >= seen.get(),
            _ => false,
        })
    };
    network.filter = Some(filter(true));
    let id = network.many(1, 1, &[network.set("a", "1")]);
    pass(&mut network, "b", 600);
    assert!(replica(&network, 1, 0).points().accepted >= seen.get(), "they accepted to close it");
    assert!(replica(&network, 1, 0).points().base < seen.get(), "it is not closed yet");
    network.filter = Some(filter(false));
    assert_eq!(text(&network.answer(id)), "OK");
    network.down.insert(first);
    network.restart(address(3, Some(0)), usize::MAX, true);
    network.filter = None;
    network.run_for(Duration::from_secs(5));
    text(&network.one(2, &network.get("a")))
}

#[test]
fn what_is_proposed_below_the_sync_point_begins_again_above_it() {
    assert_eq!(proposed_late(Mutants::default()), "1");
    assert_eq!(proposed_late(Mutant::ForgetFloor.into()), "null", "the mutant loses what was acknowledged");
}

/// A coordinator that hears nothing while its transaction is decided by a backup, and forgotten.
fn out_of_touch(mutants: Mutants) -> (String, String) {
    let prepared_timeout = Duration::from_millis(100);
    let request_timeout = Duration::from_secs(20);
    let options = Options { mutants, prepared_timeout, request_timeout, ..options() };
    let mut network = Network::new(5, 1, 3, 2, &options);
    let first = address(1, None);
    network.filter = Some(Box::new(move |_, to, message| to == first && ir_of(message).is_some()));
    let id = network.many(1, 1, &[network.increment("a", true)]);
    pass(&mut network, "b", 1500);
    network.filter = None;
    let reply = text(&network.answer(id));
    network.run_for(Duration::from_secs(1));
    (reply, text(&network.one(2, &network.get("a"))))
}

#[test]
fn a_coordinator_that_was_out_of_touch_for_long_gets_no_invented_outcome() {
    let (reply, value) = out_of_touch(Mutants::default());
    assert!(reply.starts_with("UNKNOWNOUTCOME"), "{reply}");
    assert_eq!(value, "1", "it took effect once");
    let (reply, value) = out_of_touch(Mutant::ForgottenIsAborted.into());
    assert_eq!((reply.as_str(), value.as_str()), ("OK", "2"), "the mutant runs it twice");
}

/// The coordinator dies after one shard has heard that the transaction committed. Until the other shard has too, the
/// first remembers.
fn half_settled(mutants: Mutants) -> (String, String, usize) {
    let mut network = Network::new(6, 2, 3, 2, &Options { mutants, ..options() });
    let (a, b) = network.two_keys();
    let of_second = |at: Address| at.slot == address(1, Some(1)).slot;
    network.filter = Some(Box::new(move |_, to, message| match message {
        Message::Suspect { .. } => true,
        _ => {
            let executes = matches!(ir_of(message), Some(Ir::Execute { .. } | Ir::CoordinatorChange { .. }));
            executes && of_second(to)
        }
    }));
    let steps = [network.increment(a, false), network.increment(b, false)];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "1 1");
    network.run_for(Duration::from_millis(20));
    network.down.insert(address(1, None));
    pass(&mut network, a, 1000);
    network.filter = None;
    network.run_for(Duration::from_secs(6));
    let prepared = network.replicas().map(|(_, replica)| replica.prepared()).sum();
    let value = if prepared == 0 { text(&network.one(2, &network.get(b))) } else { String::new() };
    (text(&network.one(2, &network.get(a))), value, prepared)
}

#[test]
fn a_shard_remembers_an_outcome_until_every_shard_has_executed_it() {
    assert_eq!(half_settled(Mutants::default()), ("x".to_owned(), "1".to_owned(), 0));
    let (_, _, prepared) = half_settled(Mutant::ForgetAlone.into());
    assert!(prepared > 0, "the mutant leaves the second shard in doubt for ever");
}

#[test]
fn no_timestamp_far_above_the_clock_of_the_replicas_is_accepted() {
    let options = Options { clock_bound: Duration::from_secs(10), ..options() };
    let mut network = Network::new(7, 1, 3, 2, &options);
    network.set_skew(address(1, None), 3_600_000_000);
    for process in [1, 2] {
        // Refused at first, the fast coordinator comes again by the clock of the replicas.
        assert_eq!(text(&network.one(process, &network.set("a", "1"))), "OK");
        let claims = network.node_mut(address(process, None)).take_claims();
        let at = claims[0].commit.expect("committed").at;
        assert!(at.wall() < network.wall(Duration::ZERO), "no clock was dragged along");
    }
}

const HOURS: i64 = 3 * 3_600_000_000;

fn floors(network: &Network) -> Vec<Timestamp> {
    network.replicas().map(|(_, replica)| replica.points().floor).collect()
}

/// The clock of a process leaps that leads the shard and has a gateway. What the gateway proposes first only its own
/// replica believes, which would close that alone and refuse whatever is born before.
#[test]
fn a_leader_whose_clock_leaps_closes_nothing_that_the_others_do_not_believe() {
    let mut network = Network::new(14, 1, 3, 2, &options());
    let leap = |network: &mut Network, by: i64| {
        for at in [address(1, Some(0)), address(1, None)] {
            network.set_skew(at, by);
        }
    };
    let serve = |network: &mut Network| {
        let end = network.now + Duration::from_millis(1000);
        while network.now < end {
            for process in [1, 2] {
                let began = network.now;
                assert_eq!(text(&network.one(process, &network.set("a", "1"))), "OK");
                assert!(network.now - began < Duration::from_millis(200), "{:?}", network.now - began);
            }
            network.run_for(Duration::from_millis(5));
        }
        let wall = network.wall(Duration::ZERO);
        assert!(floors(network).iter().all(|floor| floor.wall() < wall), "nobody refuses what is born now");
    };
    serve(&mut network);
    leap(&mut network, HOURS);
    serve(&mut network);
    let before = bases(&network);
    leap(&mut network, 0);
    // Until it has forgotten how old what others proposed was by its clock.
    (0..8).for_each(|_| serve(&mut network));
    assert!(bases(&network).iter().zip(before).all(|(base, before)| *base > before), "it goes on");
    let views: Vec<u64> = network.replicas().map(|(_, replica)| replica.view()).collect();
    assert_eq!(views, [0, 0, 0], "without another leader");
}

/// A replica whose clock was hours ahead has heard Sync of a leader whose clock was so, too.
#[test]
fn a_floor_that_one_replica_has_alone_holds_nobody_up() {
    let mut network = Network::new(15, 1, 3, 2, &options());
    let (leader, third) = (address(1, Some(0)), address(3, Some(0)));
    network.set_skew(third, HOURS);
    let ahead = WallTime(network.wall(Duration::ZERO).0 + HOURS as u64);
    let at = Timestamp::from_wall(ahead);
    let (above, forgettable, summary) = Default::default();
    let message = Ir::Sync { view: 0, at, above, forgettable, summary };
    network.hand(leader, third, Message::Ir { message });
    network.set_skew(third, 0);
    assert_eq!(replica(&network, 3, 0).points().floor, at);
    for process in [1, 2, 1, 2] {
        let began = network.now;
        assert_eq!(text(&network.one(process, &network.set("a", "1"))), "OK");
        assert!(network.now - began <= 6 * network.delay, "{:?}", network.now - began);
    }
    assert!(replica(&network, 1, 0).committed().all(|(_, born)| born < at), "nobody follows it");
}

/// Replica 3 asks the leader for outcomes. One more is executed after the leader has answered, the interval is closed, and
/// the first answer comes after the second question. Says whether replica 3 has it in the end.
fn answered_too_early(mutants: Mutants) -> bool {
    let mut network = Network::new(8, 1, 3, 2, &Options { mutants, sync_patience: 3, ..options() });
    let (first, third) = (address(1, Some(0)), address(3, Some(0)));
    let held: std::rc::Rc<std::cell::RefCell<Vec<Message>>> = Default::default();
    let answers = std::rc::Rc::clone(&held);
    // The last transaction is held by everybody that heard of it, and nobody learns its outcome for a while.
    let released = std::rc::Rc::new(std::cell::Cell::new(false));
    let tell = std::rc::Rc::clone(&released);
    let last = std::cell::Cell::new(None);
    network.filter = Some(Box::new(move |_, to, message| match (ir_of(message), message) {
        (Some(Ir::Propose { group, operation, .. }), _) => {
            if operation.part.invocations.iter().any(|invoked| *invoked.key == *b"last") {
                last.set(Some(*group));
            }
            to == third
        }
        (Some(Ir::Finalize { .. }), _) => to == third,
        (Some(Ir::Execute { group, .. }), _) => to == third || last.get() == Some(*group) && !tell.get(),
        (Some(Ir::CoordinatorChange { .. }), _) | (_, Message::Suspect { .. }) => true,
        (Some(Ir::Ended { .. }), _) if to == third => {
            answers.borrow_mut().push(message.clone());
            true
        }
        _ => false,
    }));
    let begun = Timestamp::from_wall(network.wall(Duration::ZERO));
    let ids = [(1, "a"), (2, "last")].map(|(of, key)| network.many(1, of, &[network.set(key, "1")]));
    assert_eq!(ids.map(|id| text(&network.answer(id))), ["OK", "OK"]);
    while held.borrow().is_empty() {
        network.run_for(Duration::from_millis(5));
    }
    let early: Vec<Message> = held.borrow_mut().drain(..).collect();
    assert!(replica(&network, 1, 0).points().base < begun, "it is undecided and in the way");
    released.set(true);
    while replica(&network, 1, 0).points().base < begun {
        network.run_for(Duration::from_millis(1));
    }
    // Replica 3 knows that the interval is closed.
    network.run_for(Duration::from_millis(20));
    for message in early {
        network.hand(first, third, message);
    }
    network.filter = None;
    network.run_for(Duration::from_secs(3));
    replica(&network, 3, 0).cell(b"last") == replica(&network, 1, 0).cell(b"last")
}

#[test]
fn an_answer_from_before_a_question_does_not_count_for_it() {
    assert!(answered_too_early(Mutants::default()));
    assert!(!answered_too_early(Mutant::StaleOutcomes.into()), "the mutant misses a commit for ever");
}

/// Clients behind links that are slower than the lag write; replicas adapt.
#[test]
fn a_lag_that_is_shorter_than_proposals_take_delays_synchronization_and_not_clients() {
    let options = Options { sync_lag: Duration::from_millis(20), ..options() };
    let mut network = Network::new(9, 1, 3, 2, &options);
    network.far = Some((types::ProcessId(4), Duration::from_millis(150)));
    network.add_coordinator(4, &options);
    for round in 1..=30 {
        assert_eq!(text(&network.one(4, &network.increment("a", true))), "OK", "round {round}");
        network.one(1, &network.set("b", "x"));
    }
    network.run_for(Duration::from_secs(2));
    assert_eq!(text(&network.one(1, &network.get("a"))), "30");
    assert!(bases(&network).iter().all(|base| *base > Timestamp::ZERO), "intervals are closed all the same");
}
