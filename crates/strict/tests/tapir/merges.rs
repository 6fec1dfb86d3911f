//! Known bugs of view changes that need more replicas, or a rarer schedule, than the models have: what clients were
//! answered must be there in the next view.

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, Operation, dict};
use protocol::{KeyedOperation, Step};
use std::time::Duration;

/// Process 2, which leads it, enters view 1.
fn change_view(network: &mut Network) {
    let call = Message::Ir { message: Ir::StartViewChange { view: 1 } };
    network.hand(address(3, Some(0)), address(2, Some(0)), call);
}

/// A value that four of five replicas accepted while the fifth held a lock against it; that one leads the next view,
/// which begins with two of the four votes. Returns what was answered and what is read in the end.
fn written_beside_a_lock_of_the_next_leader(mutants: Mutants) -> (String, String) {
    let mut network = Network::new(9, 1, 5, 3, &Options { mutants, ..Options::default() });
    // The next leader alone hears of a transaction whose coordinator dies.
    network.filter = Some(Box::new(|_, to, message| match ir_of(message) {
        Some(Ir::Propose { .. }) => to.process.0 != 2,
        Some(Ir::Finalize { .. } | Ir::Execute { .. }) => true,
        _ => false,
    }));
    let steps = [network.set("a", "in the way")];
    network.many(1, 1, &steps);
    network.run_for(Duration::from_millis(20));
    network.down.insert(address(1, None));
    // The second one is answered after four equal votes, and its coordinator dies with that.
    network.filter = Some(Box::new(|from, _, message| match ir_of(message) {
        Some(Ir::DoViewChange { .. }) => ![1, 3].contains(&from.process.0),
        Some(Ir::Finalize { .. } | Ir::Execute { .. }) => true,
        _ => false,
    }));
    let steps = [network.set("a", "answered")];
    let id = network.many(2, 2, &steps);
    let reply = text(&network.answer(id));
    network.down.insert(address(2, None));
    change_view(&mut network);
    network.run_for(Duration::from_millis(100));
    network.filter = None;
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    (reply, text(&network.one(3, &network.get("a"))))
}

#[test]
fn a_lock_of_the_leader_does_not_undo_what_succeeded_on_the_fast_path() {
    let answered = |read: &str| ("OK".to_owned(), read.to_owned());
    assert_eq!(written_beside_a_lock_of_the_next_leader(Mutants::default()), answered("answered"));
    let (reply, read) = written_beside_a_lock_of_the_next_leader(Mutant::KeepLocksInMerge.into());
    assert_eq!(reply, "OK");
    assert_ne!(read, "answered", "the mutant loses what it answered");
}

/// A value that was answered, and whose Commit only the next leader has executed: the record of the view that it starts
/// does not mention it. Then that leader is gone. Returns what the other two say.
fn read_after_a_view_that_omits_it(mutants: Mutants) -> String {
    let mut network = Network::new(10, 1, 3, 2, &Options { mutants, ..Options::default() });
    network.filter = Some(Box::new(|_, to, message| {
        to.process.0 != 2 && matches!(ir_of(message), Some(Ir::Execute { .. }))
    }));
    let steps = [network.set("a", "answered")];
    let id = network.many(1, 1, &steps);
    assert_eq!(text(&network.answer(id)), "OK");
    network.run_for(Duration::from_millis(20));
    network.down.insert(address(1, None));
    change_view(&mut network);
    network.run_for(Duration::from_millis(100));
    network.down.insert(address(2, Some(0)));
    text(&network.one(2, &network.get("a")))
}

#[test]
fn a_view_whose_record_omits_what_has_ended_frees_nothing_before_its_end_is_here() {
    assert_eq!(read_after_a_view_that_omits_it(Mutants::default()), "answered");
    let read = read_after_a_view_that_omits_it(Mutant::DropUnmentionedLocks.into());
    assert_eq!(read, "null", "the mutant has neither the lock nor the outcome");
}

pub fn on_dict(network: &Network, operation: dict::Operation<'static>) -> Step<'static> {
    let (operation, hash) = (Operation::Dict(operation), network.topology.seed.hash(b"a"));
    Step::Key(KeyedOperation { key: b"a", hash, operation, blind: false })
}

pub fn put(network: &Network, field: &'static [u8], value: &'static [u8]) -> Step<'static> {
    let pairs = Items::two(field, value);
    on_dict(network, dict::Operation::Put { pairs, reply: dict::PutReply::Status })
}

/// A field is written on the fast path, which the client hears before the coordinator dies; then a transaction commits
/// with a higher stamp, which commutes with that. Whether the field is there after a new view.
fn field_after(mutants: Mutants, steps: &dyn Fn(&Network) -> Vec<Step<'static>>) -> String {
    let mut network = Network::new(11, 1, 3, 3, &Options { mutants, ..Options::default() });
    network.filter = Some(Box::new(|from, _, message| {
        from.process.0 == 1 && matches!(ir_of(message), Some(Ir::Execute { .. }))
    }));
    let before = put(&network, b"before", b"1");
    assert_eq!(text(&network.one(2, &before)), "OK");
    network.run_for(Duration::from_millis(50));
    let answered = put(&network, b"field", b"answered");
    assert_eq!(text(&network.one(1, &answered)), "OK");
    network.down.insert(address(1, None));
    network.set_skew(address(3, None), 100_000);
    let (began, steps) = (network.now, steps(&network));
    let id = network.many(3, 3, &steps);
    network.answer(id);
    assert!(network.now - began < Duration::from_millis(500), "it did not wait for the first one's end");
    network.run_for(Duration::from_millis(50));
    change_view(&mut network);
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    let get = on_dict(&network, dict::Operation::Get { field: b"field" });
    text(&network.one(3, &get))
}

#[test]
fn what_commuted_with_a_vote_of_the_fast_path_does_not_undo_it_in_a_new_view() {
    let writes = |network: &Network| vec![put(network, b"other", b"1")];
    let looks = |network: &Network| {
        vec![on_dict(network, dict::Operation::Get { field: b"other" }), network.set("b", "1")]
    };
    for steps in [&writes as &dyn Fn(&Network) -> Vec<Step<'static>>, &looks] {
        assert_eq!(field_after(Mutants::default(), steps), "answered");
        let field = field_after(Mutant::RevalidateByModes.into(), steps);
        assert_eq!(field, "null", "the mutant loses what it answered");
    }
}

/// A field is written on the fast path, which the client hears before the coordinator dies, and nobody takes over for
/// longer than outcomes are remembered. Another field of the key was proposed before, and commits after, and above.
/// Whether the first field is there after a new view. Of five replicas, the leader of that view has missed the proposal.
fn field_after_a_long_time(members: u16, mutants: Mutants) -> String {
    let other_client = members + 1;
    let mut network =
        Network::new(13, 1, members, other_client, &Options { mutants, ..crate::tapir::sync::options() });
    let before = put(&network, b"before", b"1");
    network.set_skew(address(3, None), 100_000);
    assert_eq!(text(&network.one(3, &before)), "OK");
    network.run_for(Duration::from_millis(50));
    // Proposed below what is there, so that its vote is RETRY, of which its coordinator does not hear.
    network.filter = Some(Box::new(move |from, to, message| match ir_of(message) {
        Some(Ir::Execute { .. }) => from.process.0 == 1,
        Some(Ir::Reply { .. }) => to.process.0 == other_client,
        Some(Ir::Propose { .. }) => members == 5 && from.process.0 == 1 && to.process.0 == 2,
        _ => false,
    }));
    let other = [put(&network, b"other", b"1")];
    let id = network.many(other_client, 4, &other);
    network.run_for(Duration::from_millis(20));
    network.set_skew(address(1, None), 150_000);
    let answered = put(&network, b"field", b"answered");
    assert_eq!(text(&network.one(1, &answered)), "OK");
    network.down.insert(address(1, None));
    // Now it hears, and commits above.
    network.filter =
        Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::CoordinatorChange { .. }))));
    network.set_skew(address(other_client, None), 400_000);
    assert_eq!(text(&network.answer(id)), "OK");
    crate::tapir::sync::pass(&mut network, "b", 3000);
    let prepared = network.replicas().map(|(_, replica)| replica.prepared());
    assert!(
        prepared.eq([1, usize::from(members == 3), 1, 1, 1].into_iter().take(members.into())),
        "it is undecided"
    );
    change_view(&mut network);
    network.run_for(Duration::from_millis(200));
    network.filter = None;
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    let get = on_dict(&network, dict::Operation::Get { field: b"field" });
    text(&network.one(3, &get))
}

#[test]
fn a_vote_of_the_fast_path_is_not_undone_by_what_nobody_remembers() {
    assert_eq!(field_after_a_long_time(3, Mutants::default()), "answered");
    let field = field_after_a_long_time(3, Mutant::ForgetBelowVotes.into());
    assert_eq!(field, "null", "the mutant loses what it answered");
}

#[test]
fn a_leader_remembers_what_votes_of_others_are_judged_by() {
    assert_eq!(field_after_a_long_time(5, Mutants::default()), "answered");
    let field = field_after_a_long_time(5, Mutant::ForgetBelowOthersVotes.into());
    assert_eq!(field, "null", "the mutant loses what it answered");
}

/// The leader's clock has fallen behind by more than it believes others to be ahead, since a vote that succeeded.
#[test]
fn a_leader_whose_clock_is_behind_does_not_undo_what_succeeded_on_the_fast_path() {
    let options = Options { clock_bound: Duration::from_millis(100), ..Options::default() };
    let mut network = Network::new(12, 1, 3, 2, &options);
    network.filter = Some(Box::new(|_, _, message| matches!(ir_of(message), Some(Ir::Execute { .. }))));
    assert_eq!(text(&network.one(1, &network.set("a", "answered"))), "OK");
    network.down.insert(address(1, None));
    network.set_skew(address(2, Some(0)), -2_000_000);
    change_view(&mut network);
    network.run_for(Duration::from_millis(100));
    network.filter = None;
    network.run_for(Duration::from_secs(8));
    assert_settled(&network);
    assert_eq!(text(&network.one(2, &network.get("a"))), "answered");
}
