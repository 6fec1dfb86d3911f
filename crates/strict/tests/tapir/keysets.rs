//! Steps on the whole keyspace inside transactions (Corrections 78).

use crate::tapir::network::{Network, address, ir_of, text};
use crate::tapir::scripts::assert_settled;
use anabranch_strict::ir;
use anabranch_strict::tapir::{Message, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, set};
use protocol::{Request, Step};
use std::time::Duration;
use types::SessionId;

fn network(mutants: Mutants) -> Network {
    Network::new(1, 2, 3, 3, &Options { mutants, ..Options::default() })
}

/// The keys of a reply, sorted, behind what comes before them.
fn sorted(reply: &str) -> String {
    let mut words: Vec<&str> = reply.split(' ').collect();
    let first = words.iter().position(|word| word.starts_with('[')).map_or(0, |place| place + 1);
    words[first..].sort_unstable();
    words.join(" ")
}

fn many(network: &mut Network, process: u16, steps: &[Step<'_>]) -> String {
    let id = network.many(process, u64::from(process), steps);
    sorted(&text(&network.answer(id)))
}

#[test]
fn a_transaction_sees_the_keys_that_it_made_and_removed_itself() {
    let mut network = network(Mutants::default());
    let (a, b) = network.two_keys();
    for key in [a, b] {
        network.one(1, &network.set(key, "old"));
    }
    let steps = [Step::Flush, network.set(a, "new"), Step::Count, Step::Keys];
    assert_eq!(many(&mut network, 1, &steps), format!("OK OK 1 [1] {a}"));
    let steps = [network.get(a), network.get(b), Step::Count];
    assert_eq!(many(&mut network, 2, &steps), "1 new null");
    let steps = [network.set(b, "1"), Step::Count, Step::Flush, Step::Count, network.set(a, "2"), Step::Keys];
    assert_eq!(many(&mut network, 2, &steps), format!("OK 2 OK 0 OK [1] {a}"));
    assert_eq!(many(&mut network, 3, &[Step::Keys]), format!("[1] {a}"));
    network.run_for(Duration::from_secs(1));
    assert_settled(&network);
}

#[test]
fn scan_visits_every_shard_inside_a_transaction_and_refuses_a_cursor_of_its_own_making() {
    let mut network = network(Mutants::default());
    let (a, b) = network.two_keys();
    network.one(1, &network.set(a, "1"));
    let first = Step::Scan { cursor: 0, count: 100 };
    let second = Step::Scan { cursor: 1 << 48, count: 100 };
    let steps = [network.set(b, "2"), first, second];
    let id = network.many(2, 2, &steps);
    let reply = text(&network.answer(id));
    assert_eq!(reply, format!("OK [2] {} [1] {a} [2] 0 [1] {b}", 1u64 << 48));
    let id = network.many(1, 1, &[Step::Scan { cursor: 7 << 48, count: 1 }]);
    assert_eq!(text(&network.answer(id)), "ERR invalid cursor");
}

/// A look from a replica that misses a new key, in a transaction that is otherwise nobody's concern. The commit has
/// not reached that replica, though everybody else has it.
fn looked_past_a_new_key(mutants: Mutants) -> String {
    let mut network = network(mutants);
    let (a, b) = network.two_keys();
    let near = address(2, Some(0));
    network.filter =
        Some(Box::new(move |_, to, message| to == near && matches!(message, Message::Ir { .. })));
    assert_eq!(text(&network.one(1, &network.set(a, "new"))), "OK");
    network.filter = None;
    // Coordinator 2 reads from the replica beside it.
    let steps = [Step::Count, network.set(b, "seen")];
    many(&mut network, 2, &steps)
}

/// Of five replicas 1 and 3 have executed an increment. A transaction looks at 1, and is proposed to all but 2, which leads
/// the next view; another increment, which commutes with the look, commits after these votes, by those of 1, 2 and 3.
/// Then 1 and 3 are lost. Whether what the look's transaction wrote was answered, and what is read of it in the new view.
fn looked_before_the_others_knew(mutants: Mutants) -> (bool, String) {
    let mut network = Network::new(14, 1, 5, 6, &Options { mutants, ..Options::default() });
    network.one(3, &network.increment("a", true));
    network.run_for(Duration::from_millis(50));
    network.filter = Some(Box::new(|from, to, message| match ir_of(message) {
        Some(ir::Message::Execute { .. }) => match from.process.0 {
            1 => true,
            3 => matches!(to.process.0, 2 | 4 | 5),
            _ => matches!(to.process.0, 4 | 5),
        },
        Some(ir::Message::Propose { .. }) => from.process.0 == 1 && to.process.0 == 2,
        Some(ir::Message::CoordinatorChange { .. }) => true,
        _ => false,
    }));
    network.one(3, &network.increment("a", true));
    network.run_for(Duration::from_millis(30));
    let looked = network.many(1, 1, &[Step::Count, network.set("b", "answered")]);
    network.run_for(Duration::from_millis(100));
    let answered = network.is_answered(looked);
    network.one(6, &network.increment("a", true));
    network.run_for(Duration::from_millis(30));
    network.down.extend([1, 3].map(|process| address(process, None)));
    network.down.extend([1, 3].map(|process| address(process, Some(0))));
    let call = Message::Ir { message: ir::Message::StartViewChange { view: 1 } };
    network.hand(address(4, Some(0)), address(2, Some(0)), call);
    network.run_for(Duration::from_millis(200));
    network.filter = None;
    network.run_for(Duration::from_secs(8));
    (answered, text(&network.one(2, &network.get("b"))))
}

/// Else a leader that lacks what the look saw could not tell that it commutes with what has committed since.
#[test]
fn replicas_accept_a_look_only_when_they_have_what_it_saw() {
    assert!(!looked_before_the_others_knew(Mutants::default()).0);
    let (answered, read) = looked_before_the_others_knew(Mutant::AcceptBlindLooks.into());
    assert_eq!((answered, &*read), (true, "null"), "the mutant loses what it answered");
}

#[test]
fn a_look_that_missed_a_key_does_not_commit() {
    assert_eq!(looked_past_a_new_key(Mutants::default()), "1 OK");
    assert_eq!(looked_past_a_new_key(Mutant::KeysetUnvalidated.into()), "0 OK", "the mutant believes it");
}

/// A set that two members were put into, of which a replica knows one; a transaction that looks there takes that one out.
#[test]
fn a_look_depends_on_what_its_own_transaction_leaves_of_a_key() {
    let mut network = network(Mutants::default());
    let (a, _) = network.two_keys();
    let hash = network.topology.seed.hash(a.as_bytes());
    let step = |operation, blind| {
        let operation = datatypes::Operation::Set(operation);
        Step::Key(protocol::KeyedOperation { key: a.as_bytes(), hash, operation, blind })
    };
    let add = |member| step(set::Operation::Add { members: Items::one(member) }, true);
    network.one(1, &add(b"x"));
    network.run_for(Duration::from_millis(50));
    let near = address(2, Some(0));
    network.filter =
        Some(Box::new(move |_, to, message| to == near && matches!(message, Message::Ir { .. })));
    network.one(1, &add(b"y"));
    network.run_for(Duration::from_millis(50));
    network.filter = None;
    let steps = [step(set::Operation::Remove { members: Items::one(b"x") }, true), Step::Keys];
    assert_eq!(many(&mut network, 2, &steps), format!("OK [1] {a}"));
}

#[test]
fn who_changes_a_key_that_exists_and_who_looks_do_not_disturb_each_other() {
    let mut network = network(Mutants::default());
    let (a, b) = network.two_keys();
    network.one(1, &network.set(a, "1"));
    let session = SessionId(7);
    let open = |network: &mut Network, request| {
        let id = network.request(2, request);
        text(&network.answer(id))
    };
    // An open transaction has looked; the key it saw is overwritten meanwhile, and counted up.
    open(&mut network, Request::Begin { session, read_only: false, watched: false });
    let steps = [Step::Count, Step::Keys];
    assert_eq!(open(&mut network, Request::Operate { session, steps: &steps }), format!("1 [1] {a}"));
    network.one(1, &network.set(a, "2"));
    network.one(3, &network.increment(a, true));
    let steps = [network.set(b, "x")];
    open(&mut network, Request::Operate { session, steps: &steps });
    assert_eq!(open(&mut network, Request::Commit { session }), "OK");
    // A key that comes does disturb it.
    open(&mut network, Request::Begin { session, read_only: false, watched: false });
    let steps = [Step::Count, network.increment(b, true)];
    assert_eq!(open(&mut network, Request::Operate { session, steps: &steps }), "2 OK");
    network.one(1, &network.set("h", "new"));
    let outcome = open(&mut network, Request::Commit { session });
    assert!(outcome.starts_with("CONFLICT keys were created, deleted or read"), "{outcome}");
    // And one that goes.
    open(&mut network, Request::Begin { session, read_only: true, watched: false });
    open(&mut network, Request::Operate { session, steps: &[Step::Keys] });
    let delete = datatypes::Operation::Key(datatypes::key::Operation::Delete);
    let hash = network.topology.seed.hash(b"h");
    let delete = Step::Key(protocol::KeyedOperation { key: b"h", hash, operation: delete, blind: false });
    assert_eq!(text(&network.one(1, &delete)), "1");
    assert!(open(&mut network, Request::Commit { session }).starts_with("CONFLICT"));
    let outcome = {
        open(&mut network, Request::Begin { session, read_only: true, watched: false });
        open(&mut network, Request::Operate { session, steps: &[Step::Flush] })
    };
    assert_eq!(outcome, "ERR the transaction is read-only");
}

#[test]
fn what_was_stamped_below_a_deletion_of_everything_and_comes_later_is_deleted_too() {
    let mut network = network(Mutants::default());
    let (a, _) = network.two_keys();
    // Replica 3 hears of the write only after the deletion that follows it.
    let slow = address(3, Some(0));
    let mut held = Vec::new();
    network.one(1, &network.set("h", "there"));
    let seen = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
    let recorded = seen.clone();
    network.filter = Some(Box::new(move |from, to, message| {
        let hold = to == slow && matches!(message, Message::Ir { .. });
        if hold {
            recorded.borrow_mut().push((from, message.clone()));
        }
        hold
    }));
    network.one(1, &network.set(a, "early"));
    network.run_for(Duration::from_millis(20));
    held.append(&mut seen.borrow_mut());
    network.filter = None;
    assert_eq!(many(&mut network, 1, &[Step::Flush]), "OK");
    network.run_for(Duration::from_millis(20));
    for (from, message) in held {
        network.hand(from, slow, message);
    }
    network.run_for(Duration::from_secs(2));
    for (at, replica) in network.replicas() {
        for key in [a, "h"] {
            let empty = {
                let mut bytes = Vec::new();
                datatypes::Cell::ABSENT.encode(&mut bytes);
                bytes
            };
            assert_eq!(replica.cell(key.as_bytes()), empty, "{key} at {at}");
        }
    }
    assert_eq!(many(&mut network, 2, &[Step::Count]), "0");
}

/// Deletions of everything, and what validation keeps of them, are part of checkpoints.
#[test]
fn a_restarted_replica_knows_of_a_deletion_of_everything() {
    let mut network = network(Mutants::default());
    let (a, b) = network.two_keys();
    network.one(1, &network.set(a, "1"));
    let steps = [network.set(b, "gone"), Step::Flush, network.set(b, "kept")];
    assert_eq!(many(&mut network, 1, &steps), "OK OK OK");
    network.run_for(Duration::from_millis(50));
    for shard in 0..2 {
        for process in 1..=3 {
            network.restart_from_checkpoint(address(process, Some(shard)));
        }
    }
    network.run_for(Duration::from_secs(1));
    let steps = [network.get(a), network.get(b), Step::Count];
    assert_eq!(many(&mut network, 1, &steps), "1 kept null");
    for shard in 0..2 {
        for process in 1..=3 {
            let at = address(process, Some(shard));
            network.restart(at, network.log_len(at), true);
        }
    }
    network.run_for(Duration::from_secs(1));
    assert_eq!(many(&mut network, 1, &[Step::Keys]), format!("[1] {b}"));
}

/// Many looks, creations and deletions at a time: every transaction creates one key of its own and counts all. Each must
/// have seen a number that nobody else saw.
#[test]
fn counts_beside_creations_are_all_different() {
    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    for seed in 0..20 {
        let options = Options { retries: 200, ..Options::default() };
        let mut network = Network::new(seed, 2, 3, 3, &options);
        network.loss = if seed % 2 == 0 { 0 } else { 20 };
        let ids: Vec<_> = (KEYS.iter().enumerate())
            .map(|(index, key)| {
                let steps = [network.set(key, "1"), Step::Count];
                network.many(1 + index as u16 % 3, 10 + index as u64, &steps)
            })
            .collect();
        let mut counts: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
        counts.sort();
        let expected: Vec<String> = (1..=8).map(|count| format!("OK {count}")).collect();
        assert_eq!(counts, expected, "seed {seed}");
    }
}

/// What so many draws in the session's open transaction come to, sorted.
fn drawn_within(network: &mut Network, session: SessionId) -> String {
    let found: std::collections::BTreeSet<String> = (0..100)
        .map(|_| {
            let id = network.request(1, Request::Operate { session, steps: &[Step::Random] });
            text(&network.answer(id))
        })
        .collect();
    found.into_iter().collect()
}

#[test]
fn keys_are_drawn_from_all_shards_and_from_what_the_transaction_wrote() {
    let mut network = network(Mutants::default());
    let (a, b) = network.two_keys();
    assert_eq!(text(&network.one(1, &Step::Random)), "0", "nothing was found, which nobody vouches for");
    // A draw is weak: it finds what the closest replica has executed.
    network.one(1, &network.set(b, "1"));
    network.run_for(Duration::from_millis(100));
    assert_eq!(text(&network.one(1, &Step::Random)), b);
    network.one(1, &network.set(a, "1"));
    network.run_for(Duration::from_millis(100));
    let found: std::collections::BTreeSet<String> =
        (0..100).map(|_| text(&network.one(1, &Step::Random))).collect();
    assert_eq!(found, [a, b].map(str::to_owned).into());
    let session = SessionId(9);
    let id = network.request(1, Request::Begin { session, read_only: false, watched: false });
    assert_eq!(text(&network.answer(id)), "OK");
    let own = ["c", "d", "e", "f", "g", "h"].into_iter().find(|key| ![a, b].contains(key)).expect("a key");
    for (steps, left) in [
        (vec![network.step(a, datatypes::register::Operation::Increment { by: 1 }, false)], vec![a, b]),
        (vec![network.set(own, "1")], vec![a, b, own]),
        (vec![delete(&network, a)], vec![b, own]),
        (vec![Step::Flush], vec!["0"]),
        (vec![network.set(b, "1")], vec![b]),
    ] {
        let id = network.request(1, Request::Operate { session, steps: &steps });
        network.answer(id);
        let mut left: Vec<&str> = left;
        left.sort_unstable();
        assert_eq!(drawn_within(&mut network, session), left.concat());
    }
    let id = network.request(1, Request::Commit { session });
    assert_eq!(text(&network.answer(id)), "OK");
    assert_eq!(many(&mut network, 2, &[Step::Keys]), format!("[1] {b}"));
    let id = network.many(1, 1, &[Step::Random, network.get(a)]);
    assert!(text(&network.answer(id)).contains("by a request of its own"));
}

fn delete(network: &Network, key: &'static str) -> Step<'static> {
    let hash = network.topology.seed.hash(key.as_bytes());
    let operation = datatypes::Operation::Key(datatypes::key::Operation::Delete);
    Step::Key(protocol::KeyedOperation { key: key.as_bytes(), hash, operation, blind: true })
}

#[test]
fn a_draw_asks_the_next_replica_and_gives_up_in_the_end() {
    let mut network = network(Mutants::default());
    let (a, _) = network.two_keys();
    network.one(1, &network.set(a, "1"));
    network.run_for(Duration::from_secs(1));
    network.down.insert(address(1, Some(0)));
    assert_eq!(text(&network.one(1, &Step::Random)), a);
    network.down.extend([address(2, Some(0)), address(3, Some(0))]);
    let reply = text(&network.one(1, &Step::Random));
    assert!(reply.starts_with("UNAVAILABLE") && reply.contains("shard 0"), "{reply}");
}
