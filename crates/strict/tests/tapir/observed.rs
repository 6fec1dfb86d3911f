//! What a transaction has observed: of what others hold undecided, and behind effects of its own.

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::ir::Message as Ir;
use anabranch_strict::tapir::{Message, Options};
use datatypes::{Items, Operation, register, set, user};
use protocol::Request;
use std::time::Duration;
use types::{ProcessId, SessionId};

/// A transaction is answered on the fast path, and only the replica beside its coordinator hears of its end. Another one observes
/// it there, is accepted by those that hold it undecided, since what was observed is decided, and executed by them. Then
/// that process dies, and the others begin a view.
fn observed_and_undecided(seed: u64) -> (String, String, String) {
    let mut network = Network::new(seed, 1, 3, 3, &Options::default());
    let first = std::cell::Cell::new(None);
    network.filter = Some(Box::new(move |_, to, message| match ir_of(message) {
        Some(Ir::Execute { group, .. }) => {
            let of = first.get().unwrap_or(*group);
            first.set(Some(of));
            of == *group && to.process.0 != 1
        }
        _ => false,
    }));
    let one = text(&network.one(1, &network.increment("a", false)));
    network.run_for(Duration::from_millis(5));
    let two = text(&network.one(1, &network.increment("a", false)));
    network.run_for(Duration::from_millis(5));
    network.down.extend([address(1, None), address(1, Some(0))]);
    network.filter = None;
    let call = Message::Ir { message: Ir::StartViewChange { view: 1 } };
    network.hand(address(3, Some(0)), address(2, Some(0)), call);
    network.run_for(Duration::from_secs(8));
    (one, two, text(&network.one(2, &network.get("a"))))
}

#[test]
fn what_somebody_observed_is_not_refused_by_the_next_view() {
    for seed in 1..20 {
        let expected = ("1".to_owned(), "2".to_owned(), "2".to_owned());
        assert_eq!(observed_and_undecided(seed), expected, "seed {seed}");
    }
}

/// In an interactive transaction: `BLIND APPEND k x`, and whether `k` has the member `m`. Meanwhile another one
/// changes `k`. Returns the replies to the first one, on the member and at its commit.
fn behind_an_append(before: &[Operation<'_>], meanwhile: &Operation<'_>) -> (String, String) {
    let mut network = Network::new(1, 1, 3, 2, &Options::default());
    let key = network.key_of(0);
    for operation in before {
        network.one(1, &network.on(key, operation.clone(), false));
    }
    network.run_for(Duration::from_millis(50));
    let session = SessionId(7);
    let open = |network: &mut Network, request| {
        let id = network.request(2, request);
        text(&network.answer(id))
    };
    open(&mut network, Request::Begin { session, read_only: false, watched: false });
    let append = network.step(key, register::Operation::Append { value: b"x" }, true);
    let contains = network.on(key, Operation::Set(set::Operation::Contains { member: b"m" }), false);
    let steps = [append, contains];
    let reply = open(&mut network, Request::Operate { session, steps: &steps });
    network.one(1, &network.on(key, meanwhile.clone(), false));
    network.run_for(Duration::from_millis(50));
    let outcome = open(&mut network, Request::Commit { session });
    (reply, outcome)
}

#[test]
fn a_reply_behind_a_blind_effect_of_another_type_depends_on_whether_the_key_is_there() {
    let add = |member| Operation::Set(set::Operation::Add { members: Items::one(member) });
    let remove = |member| Operation::Set(set::Operation::Remove { members: Items::one(member) });
    let (reply, outcome) = behind_an_append(&[], &add(b"other"));
    assert!(reply.starts_with("OK WRONGTYPE") && outcome.starts_with("CONFLICT"), "{reply}, {outcome}");
    let (reply, outcome) = behind_an_append(&[add(b"other")], &remove(b"other"));
    assert!(reply == "OK 0" && outcome.starts_with("CONFLICT"), "{reply}, {outcome}");
    let (reply, outcome) =
        behind_an_append(&[add(b"one"), add(b"two")], &Operation::Set(set::Operation::Length));
    assert!(reply == "OK 0" && outcome == "OK", "{reply}, {outcome}");
}

fn of_auction(name: &str, arguments: &[&[u8]]) -> Operation<'static> {
    let auction = user::register("auction", 1, usertypes::Module::native::<auction::Auction>());
    let operation = user::Operation::new(auction.expect("there is room"), name.as_bytes(), arguments);
    Operation::User(operation.expect("it has such an operation"))
}

/// The replica that everybody reads from does not hear that an auction is closed, and hears of a bid after that, which comes to
/// nothing. To close an auction changes no leader, but whoever has seen that bid must not commit.
#[test]
fn a_bid_after_an_unseen_close_is_no_leader() {
    let near = Some(ProcessId(3));
    let mut network = Network::new(7, 1, 3, 2, &Options { near, quorum_reads: false, ..Options::default() });
    let key = network.key_of(0);
    let bid = |bidder: &str, amount: &str| of_auction("bid", &[bidder.as_bytes(), amount.as_bytes()]);
    assert_eq!(text(&network.one(1, &network.on(key, bid("ann", "5"), false))), "OK");
    network.run_for(Duration::from_millis(300));
    let closing = std::cell::Cell::new(None);
    network.filter = Some(Box::new(move |_, to, message| match ir_of(message) {
        Some(Ir::Propose { group, .. } | Ir::Finalize { group, .. } | Ir::Execute { group, .. }) => {
            let of = closing.get().unwrap_or(*group);
            closing.set(Some(of));
            of == *group && to == address(3, Some(0))
        }
        Some(_) => to == address(3, Some(0)),
        None => false,
    }));
    assert_eq!(text(&network.one(1, &network.on(key, of_auction("close", &[]), false))), "1");
    assert_eq!(text(&network.one(1, &network.on(key, bid("bob", "9"), true))), "OK");
    network.run_for(Duration::from_millis(5));
    let leader = network.on(key, of_auction("leader", &[]), false);
    let reply = text(&network.one(2, &leader));
    assert!(reply.contains("ann"), "{reply}");
}
