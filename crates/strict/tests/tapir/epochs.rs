//! Shards whose replicas change (Corrections 83, 84).

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::{Message as Ir, Status, epoch_of, first_view};
use anabranch_strict::tapir::{Message, Node, Options};
use anabranch_strict::{Mutant, Mutants};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;
use types::Address;

const SECOND: Duration = Duration::from_secs(1);

/// Three replicas of a shard on processes 1 to 3, coordinators on 1 and 2, and spare replicas from process 4 on.
fn network(seed: u64, spares: u16, options: &Options) -> Network {
    let mut network = Network::new(seed, 1, 3, 2, options);
    (4..4 + spares).for_each(|process| network.add_spare(process, 0, options));
    network
}

fn count(network: &mut Network, times: u32) -> String {
    let mut last = String::new();
    for _ in 0..times {
        last = text(&network.one(1, &network.increment("a", false)));
    }
    last
}

/// The replicas on these processes serve in this epoch and hold the same.
fn assert_serving(network: &Network, processes: &[u16], epoch: u32) {
    for process in processes {
        let replica = network.replica(*process, 0);
        let state = (replica.status(), epoch_of(replica.view()), replica.prepared());
        assert_eq!(state, (Status::Normal, epoch, 0), "process {process}");
        let first = network.replica(processes[0], 0);
        assert_eq!(replica.cell(b"a"), first.cell(b"a"), "process {process}");
    }
}

#[test]
fn a_replica_is_replaced_for_good() {
    let mut network = network(1, 1, &Options::default());
    count(&mut network, 5);
    network.down.insert(address(3, Some(0)));
    network.place(2, 0, &[1, 2, 4], false);
    network.run_for(SECOND);
    assert_eq!(count(&mut network, 1), "6");
    network.run_for(SECOND);
    assert_serving(&network, &[1, 2, 4], 1);
    // One of those that have always been there may now die.
    network.down.insert(address(2, Some(0)));
    assert_eq!(count(&mut network, 5), "11");
    // Who comes back learns that it is not needed any more.
    let log = network.log_len(address(3, Some(0)));
    network.restart(address(3, Some(0)), log, true);
    network.run_for(3 * SECOND);
    assert_eq!(network.replica(3, 0).status(), Status::Outside);
    let log = network.log_len(address(2, Some(0)));
    network.restart(address(2, Some(0)), log, true);
    network.run_for(3 * SECOND);
    assert_serving(&network, &[1, 2, 4], 1);
}

/// A coordinator that has only a decision left to tell, to replicas none of which is one any more.
#[test]
fn a_decision_finds_the_replicas_that_have_taken_over() {
    let mut network = network(6, 3, &Options::default());
    let teller = address(2, None);
    network.filter = Some(Box::new(move |from, to, message| match ir_of(message) {
        Some(Ir::Execute { .. }) => from == teller,
        Some(Ir::Epoch { .. }) => to == teller,
        _ => false,
    }));
    assert_eq!(text(&network.one(2, &network.increment("a", false))), "1");
    network.place(1, 0, &[4, 5, 6], false);
    network.run_for(2 * SECOND);
    network.filter = None;
    network.run_for(3 * SECOND);
    let Node::Coordinator(coordinator) = network.node_mut(teller) else { panic!("a coordinator") };
    assert_eq!(coordinator.in_progress(), 0, "the decision is still on its way");
    assert_serving(&network, &[4, 5, 6], 1);
}

/// Nobody has a reason to speak to a replica that was replaced while it was cut off, and nobody knows any more how
/// what it still holds has ended. It only reminds the backup coordinators, which are of the other shard.
#[test]
fn who_was_replaced_while_cut_off_asks_what_follows() {
    let options = Options { sync_lag: Duration::from_millis(300), ..Options::default() };
    let mut network = Network::new(7, 2, 3, 2, &options);
    network.add_spare(4, 1, &options);
    let (a, b) = network.two_keys();
    let left = address(3, Some(1));
    network.filter = Some(Box::new(move |_, to, message| {
        to == left && matches!(ir_of(message), Some(Ir::Execute { .. }))
    }));
    let id = network.many(1, 1, &[network.set(a, "1"), network.set(b, "1")]);
    assert_eq!(text(&network.answer(id)), "OK OK");
    assert_eq!(network.replica(3, 1).prepared(), 1);
    network.filter = Some(Box::new(move |from, to, _| from == left || to == left));
    network.place(1, 1, &[1, 2, 4], false);
    network.run_for(5 * SECOND);
    network.filter = None;
    network.run_for(20 * SECOND);
    assert_eq!(network.replica(3, 1).status(), Status::Outside);
}

/// It was to join, and leads the first view of the epoch that began without it. Its log knows only of the one before.
#[test]
fn who_was_away_when_its_epoch_began_asks_once_it_is_spoken_to() {
    let mut network = network(8, 1, &Options::default());
    count(&mut network, 3);
    let joins = address(4, Some(0));
    network.filter = Some(Box::new(move |_, to, message| {
        to == joins && !matches!(ir_of(message), Some(Ir::Invite { .. }))
    }));
    network.place(1, 0, &[4, 1, 2], false);
    network.run_for(5 * SECOND);
    assert_eq!(network.replica(4, 0).status(), Status::Outside);
    network.filter = None;
    assert_eq!(count(&mut network, 1), "4");
    network.run_for(5 * SECOND);
    assert_serving(&network, &[1, 2, 4], 1);
}

#[test]
fn who_joins_after_outcomes_were_forgotten_fetches_the_state_first() {
    let options = Options { sync_lag: Duration::from_millis(300), piece_bytes: 64, ..Options::default() };
    let mut network = network(2, 1, &options);
    count(&mut network, 20);
    network.run_for(5 * SECOND);
    assert!(network.replica(1, 0).points().trimmed > types::Timestamp::ZERO);
    network.place(1, 0, &[4, 2, 1], false);
    network.run_for(5 * SECOND);
    assert_eq!(count(&mut network, 1), "21");
    network.run_for(SECOND);
    assert_serving(&network, &[1, 2, 4], 1);
}

#[test]
fn groups_grow_and_shrink_and_move_altogether() {
    let mut network = network(3, 3, &Options::default());
    let mut expected = 0;
    let moves: [&[u16]; 6] = [&[1, 2, 3, 4, 5], &[4, 5, 2], &[4], &[4, 6, 1], &[2, 3, 5], &[6, 5, 4, 3, 2]];
    for (epoch, processes) in (1..).zip(moves) {
        count(&mut network, 3);
        network.place(1, 0, processes, false);
        network.run_for(3 * SECOND);
        expected += 4;
        assert_eq!(count(&mut network, 1), expected.to_string(), "epoch {epoch}");
        network.run_for(SECOND);
        assert_serving(&network, processes, epoch);
    }
}

#[test]
fn two_operators_at_once_end_in_one_configuration() {
    for seed in 0..40 {
        let mut network = network(seed, 2, &Options::default());
        count(&mut network, 2);
        network.place(1, 0, &[1, 2, 4], false);
        network.place(2, 0, &[2, 3, 5], false);
        network.run_for(4 * SECOND);
        assert_eq!(count(&mut network, 1), "3");
        let mut epochs = std::collections::BTreeMap::new();
        for (at, replica) in network.replicas() {
            let present = replica.membership().present.clone();
            let known = epochs.entry(present.epoch).or_insert_with(|| present.members.clone());
            assert_eq!(*known, present.members, "seed {seed}: {at}");
        }
    }
}

#[test]
fn what_is_undecided_at_the_change_is_ended_after_it() {
    let options = Options { durability: protocol::Durability::Synced, ..Options::default() };
    let mut network = Network::new(5, 2, 3, 2, &options);
    (0..2).for_each(|shard| network.add_spare(4, shard, &options));
    let (a, b) = network.two_keys();
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Execute { .. }))));
    let steps = [network.set(a, "1"), network.set(b, "1")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK OK");
    network.down.insert(address(1, None));
    // The whole group of the first participant, whose replicas are the backup coordinators, is replaced one by one.
    for replica in 1..=3u16 {
        network.add_spare(4 + replica, 0, &options);
    }
    network.place(2, 0, &[5, 6, 7], false);
    network.place(2, 1, &[1, 2, 4], false);
    network.run_for(Duration::from_millis(600));
    assert_eq!(epoch_of(network.replica(5, 0).view()), 1);
    assert!(network.replica(5, 0).prepared() > 0, "handed over");
    network.filter = None;
    network.run_for(10 * SECOND);
    assert_eq!(text(&network.one(2, &network.get(a))), "1");
    assert_eq!(text(&network.one(2, &network.get(b))), "1");
    for (_, replica) in network.replicas().filter(|(_, replica)| replica.status() == Status::Normal) {
        assert_eq!(replica.prepared(), 0);
    }
}

#[test]
fn every_replica_may_die_while_the_group_changes() {
    for step in 0..30u64 {
        for victim in [1, 2, 4] {
            let mut network = network(100 + step, 1, &Options::default());
            count(&mut network, 3);
            network.place(2, 0, &[1, 2, 4], false);
            network.run_for(Duration::from_millis(2 * step));
            let at = address(victim, Some(0));
            network.down.insert(at);
            network.run_for(3 * SECOND);
            let log = network.log_len(at);
            network.restart(at, log, true);
            network.run_for(8 * SECOND);
            assert_eq!(count(&mut network, 1), "4", "{victim} after {step}");
            network.run_for(SECOND);
            assert_serving(&network, &[1, 2, 4], 1);
        }
    }
}

#[test]
fn who_forgot_recovers_in_the_new_epoch() {
    for step in 0..20u64 {
        let mut network = network(200 + step, 1, &Options::default());
        count(&mut network, 3);
        network.place(2, 0, &[1, 2, 4], false);
        network.run_for(Duration::from_millis(3 * step));
        network.restart(address(1, Some(0)), 0, false);
        network.run_for(10 * SECOND);
        assert_eq!(count(&mut network, 1), "4", "after {step}");
        network.run_for(SECOND);
        assert_serving(&network, &[1, 2, 4], epoch_of(network.replica(2, 0).view()).min(1));
        assert!(!network.replica(1, 0).is_forgetful());
    }
}

#[test]
fn a_message_of_an_earlier_epoch_is_answered_with_the_present_one() {
    let mut network = network(7, 1, &Options::default());
    count(&mut network, 1);
    network.place(2, 0, &[1, 2, 4], false);
    network.run_for(SECOND);
    let view = network.replica(1, 0).view();
    assert!(view >= first_view(1));
    for message in [Ir::StartViewChange { view: 77 }, Ir::ViewStarted { view: 9, ready: true }] {
        let (from, to) = (address(3, Some(0)), address(1, Some(0)));
        network.hand(from, to, anabranch_strict::tapir::Message::Ir { message });
    }
    network.run_for(SECOND);
    assert_serving(&network, &[1, 2, 4], 1);
    assert_eq!(network.replica(1, 0).view(), view, "nothing has changed");
}

#[test]
fn a_survivor_goes_on_alone_and_the_group_grows_again() {
    let mut network = network(8, 2, &Options::default());
    count(&mut network, 7);
    network.run_for(SECOND);
    network.down.extend([address(2, Some(0)), address(3, Some(0))]);
    network.run_for(2 * SECOND);
    network.place(1, 0, &[1], true);
    network.run_for(2 * SECOND);
    assert_eq!(count(&mut network, 1), "8");
    let epoch = epoch_of(network.replica(1, 0).view());
    assert!(epoch > 0xffff, "above every epoch that the lost may have begun");
    // One of the lost comes back empty: it has forgotten, and counts only once it knows that nothing began without it.
    network.restart(address(2, Some(0)), 0, false);
    network.run_for(2 * SECOND);
    assert_eq!(
        (network.replica(2, 0).status(), network.replica(2, 0).is_forgetful()),
        (Status::Outside, false)
    );
    network.place(1, 0, &[1, 2, 4], false);
    network.run_for(3 * SECOND);
    assert_eq!(count(&mut network, 1), "9");
    network.run_for(SECOND);
    assert_serving(&network, &[1, 2, 4], epoch + 1);
    // The other comes back with all it had: nobody counts what it says in the old epoch.
    let log = network.log_len(address(3, Some(0)));
    network.restart(address(3, Some(0)), log, true);
    network.run_for(3 * SECOND);
    assert_eq!(network.replica(3, 0).status(), Status::Outside);
    assert_eq!(count(&mut network, 1), "10");
}

/// The change is refused, and the group serves on, while who is to join does not answer.
#[test]
fn an_epoch_does_not_end_before_those_that_join_are_ready() {
    let mut network = network(9, 1, &Options::default());
    network.down.insert(address(4, Some(0)));
    network.place(2, 0, &[1, 2, 4], false);
    for _ in 0..10 {
        network.run_for(Duration::from_millis(300));
        count(&mut network, 1);
    }
    network.run_for(SECOND);
    assert_serving(&network, &[1, 2, 3], 0);
    let log = network.log_len(address(4, Some(0)));
    network.restart(address(4, Some(0)), log, true);
    network.run_for(3 * SECOND);
    assert_eq!(count(&mut network, 1), "11");
    assert_eq!(epoch_of(network.replica(4, 0).view()), 1);
}

/// Only its leader starts what is to be the last view, and tells those that join, but nobody else: the others serve on.
/// True if what they commit is lost.
fn loses_what_is_committed_beside(mutants: Mutants) -> bool {
    let options = Options { mutants, ..Options::default() };
    let mut network = network(10, 2, &options);
    count(&mut network, 3);
    network.place(1, 0, &[1, 4, 5], false);
    let [leaving, joining] = [[2u16, 3], [4, 5]].map(|pair| pair.map(|process| address(process, Some(0))));
    let (leader, coordinator) = (address(1, Some(0)), address(2, None));
    network.filter = Some(Box::new(move |from, to, message| {
        let cut = match ir_of(message) {
            Some(Ir::StartView { .. } | Ir::DoViewChange { .. } | Ir::Epoch { .. }) => from == leader,
            Some(Ir::Reconfigure { .. }) => true,
            _ => false,
        };
        let away = |at: &Address| *at == leader || joining.contains(at);
        (leaving.contains(&to) && cut)
            || (to == coordinator && away(&from))
            || (from == coordinator && away(&to))
    }));
    network.run_for(SECOND);
    assert_eq!(text(&network.one(2, &network.increment("a", false))), "4");
    network.down.insert(coordinator);
    network.filter = None;
    network.run_for(4 * SECOND);
    count(&mut network, 1) != "5"
}

#[test]
fn an_epoch_begins_only_after_the_one_before_is_sealed() {
    assert!(!loses_what_is_committed_beside(Mutants::default()));
    assert!(loses_what_is_committed_beside(Mutant::StartBeforeSealed.into()));
}

/// A shard has moved altogether, which one coordinator has not heard; then its former replicas restart. What that
/// coordinator reads, after an increment in the new epoch.
fn read_where_it_was(mutants: Mutants) -> String {
    let options = Options { mutants, ..Options::default() };
    let mut network = network(11, 3, &options);
    count(&mut network, 1);
    let behind = address(2, None);
    network.filter = Some(Box::new(move |_, to, message| {
        to == behind && matches!(ir_of(message), Some(Ir::Epoch { .. }))
    }));
    network.place(1, 0, &[4, 5, 6], false);
    network.run_for(2 * SECOND);
    assert_eq!(count(&mut network, 1), "2");
    for process in 1..4 {
        let at = address(process, Some(0));
        let log = network.log_len(at);
        network.restart(at, log, true);
    }
    network.run_for(2 * SECOND);
    network.filter = None;
    text(&network.one(2, &network.get("a")))
}

#[test]
fn who_restarts_outside_serves_no_epoch_that_is_over() {
    assert_eq!(read_where_it_was(Mutants::default()), "2");
    assert_eq!(read_where_it_was(Mutant::EpochNotDurable.into()), "1", "the mutant serves on");
}

/// A replica votes for a transaction, and is replaced before the others hear of it. One that conflicts commits in the
/// next epoch without the third replica. Only that one is proposed the first transaction then. What it reads.
fn voted_for_in_two_epochs(mutants: Mutants) -> String {
    let prepared_timeout = 30 * SECOND;
    let options = Options { mutants, prepared_timeout, ..Options::default() };
    let mut network = network(12, 2, &options);
    network.one(1, &network.set("a", "old"));
    network.run_for(SECOND);
    let [first, third] = [1, 3].map(|process| address(process, Some(0)));
    let [slow, quick] = [1, 2].map(|process| address(process, None));
    let is_vote = |message: &Message| matches!(ir_of(message), Some(Ir::Propose { .. }));
    network.filter = Some(Box::new(move |from, to, message| {
        let cut = |at: Address, other: Address| at == first && other.slot == first.slot;
        let is_epoch = matches!(ir_of(message), Some(Ir::Epoch { .. }));
        cut(from, to)
            || cut(to, from)
            || (to == slow && is_epoch)
            || (from == slow && to != first && is_vote(message))
    }));
    let id = network.many(1, 1, &[network.get("a"), network.set("b", "x")]);
    network.run_for(SECOND / 10);
    network.place(2, 0, &[4, 5, 3], false);
    network.run_for(2 * SECOND);
    network.filter = Some(Box::new(move |from, to, message| {
        let hidden =
            matches!(ir_of(message), Some(Ir::Propose { .. } | Ir::Finalize { .. } | Ir::Execute { .. }));
        (from == slow && is_vote(message)) || (from == quick && to == third && hidden)
    }));
    let other = network.many(2, 2, &[network.get("b"), network.set("a", "new")]);
    assert_eq!(text(&network.answer(other)), "null OK");
    network.filter = Some(Box::new(move |from, to, message| {
        (from == slow && to != third && is_vote(message)) || (from == quick && to == third)
    }));
    network.run_for(SECOND);
    network.filter = None;
    text(&network.answer(id))
}

#[test]
fn votes_of_two_epochs_do_not_count_together() {
    assert_eq!(voted_for_in_two_epochs(Mutants::default()), "new OK");
    assert_eq!(voted_for_in_two_epochs(Mutant::CountTwoEpochs.into()), "old OK", "the mutant commits both");
}

/// A replica that has joined votes, and loses its disk. The message that began its epoch reaches it once more, late.
/// The other replica that has voted is cut off for a second. What is read then, of four increments.
fn forgot_and_receives_its_epoch_again(mutants: Mutants) -> String {
    let mut network = network(13, 2, &Options { mutants, ..Options::default() });
    count(&mut network, 3);
    let [first, joined, last] = [1, 4, 5].map(|process| address(process, Some(0)));
    let received = Rc::new(RefCell::new(Vec::new()));
    let late = received.clone();
    network.filter = Some(Box::new(move |from, to, message| {
        if (from, to) == (first, joined) {
            late.borrow_mut().push(message.clone());
        }
        false
    }));
    network.place(1, 0, &[1, 4, 5], false);
    network.run_for(SECOND);
    assert_serving(&network, &[1, 4, 5], 1);
    network.filter = Some(Box::new(move |from, to, _| from == last || to == last));
    assert_eq!(count(&mut network, 1), "4");
    network.down.insert(first);
    network.filter = None;
    network.restart(joined, 0, false);
    received.take().into_iter().for_each(|message| network.hand(first, joined, message));
    let id = network.many(1, 1, &[network.get("a")]);
    network.run_for(SECOND);
    let log = network.log_len(first);
    network.restart(first, log, true);
    text(&network.answer(id))
}

#[test]
fn who_forgot_what_it_said_in_an_epoch_does_not_begin_it() {
    assert_eq!(forgot_and_receives_its_epoch_again(Mutants::default()), "4");
    assert_eq!(
        forgot_and_receives_its_epoch_again(Mutant::BeginForgetful.into()),
        "3",
        "the mutant loses one"
    );
}
