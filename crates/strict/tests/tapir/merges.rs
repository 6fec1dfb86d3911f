//! Known bugs of view changes that need more replicas, or a rarer schedule, than the models have: what clients were
//! answered must be there in the next view.

use crate::network::{Network, address, ir_of, text};
use crate::scripts::assert_settled;
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Options};
use anabranch_strict::{Mutant, Mutants};
use std::time::Duration;

/// Process 2, which leads it, is told to enter view 1.
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
