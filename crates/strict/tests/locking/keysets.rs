//! Steps on the whole keyspace inside transactions (Corrections 78), with locks and with validation.

use crate::locking::network::Network;
use anabranch_strict::locking::{Concurrency, Options};
use anabranch_strict::{Mutant, Mutants};
use datatypes::{Items, Operation, register, set};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, SessionId};

const SESSION: SessionId = SessionId(7);
const BOTH: [Concurrency; 2] = [Concurrency::Locking, Concurrency::Optimistic];

fn network(concurrency: Concurrency, mutants: Mutants) -> Network {
    Network::new(&Options { concurrency, mutants, ..Options::default() })
}

fn put<'n>(network: &Network, key: &'n str, value: &'n [u8]) -> Step<'n> {
    let operation = register::Operation::Set {
        value,
        deadline: register::Deadline::Clear,
        condition: register::Condition::Always,
        reply: register::SetReply::Status,
    };
    network.any(key, Operation::Register(operation), false)
}

/// Adds a member to a set, or removes it, and does not ask what that did.
fn member<'n>(network: &Network, key: &'n str, member: &'n [u8], adds: bool) -> Step<'n> {
    let members = Items::one(member);
    let operation = match adds {
        true => set::Operation::Add { members },
        false => set::Operation::Remove { members },
    };
    network.any(key, Operation::Set(operation), true)
}

fn begin(network: &mut Network, process: u16) {
    let request = Request::Begin { session: SESSION, read_only: false, watched: false };
    let id = network.request(process, request);
    assert_eq!(network.answer(id), "OK");
}

fn operate(network: &mut Network, process: u16, steps: &[Step<'_>]) -> String {
    let id = network.request(process, Request::Operate { session: SESSION, steps });
    network.answer(id)
}

fn commit(network: &mut Network, process: u16) -> String {
    let id = network.request(process, Request::Commit { session: SESSION });
    network.answer(id)
}

fn send(network: &mut Network, process: u16, session: u64, steps: &[Step<'_>]) -> RequestId {
    let session = SessionId(session);
    network.request(process, Request::Many { session, steps, watched: false, multi: true })
}

#[test]
fn a_transaction_sees_the_keys_that_it_made_and_removed_itself() {
    for concurrency in BOTH {
        let mut network = network(concurrency, Mutants::default());
        let [a, b] = network.keys();
        network.text(1, 0, &[put(&network, a, b"old"), put(&network, b, b"old")]);
        let steps = [Step::Flush, put(&network, a, b"new"), Step::Count, Step::Keys];
        assert_eq!(network.text(1, 0, &steps), format!("OK OK 1 [1] {a}"), "{concurrency:?}");
        let steps = [network.get(a), network.get(b), Step::Count];
        assert_eq!(network.text(2, 0, &steps), "new null 1");
        let steps = [
            put(&network, b, b"1"),
            Step::Count,
            Step::Flush,
            Step::Count,
            put(&network, a, b"2"),
            Step::Keys,
        ];
        assert_eq!(network.text(2, 0, &steps), format!("OK 2 OK 0 OK [1] {a}"));
        assert_eq!(network.text(3, 0, &[Step::Keys]), format!("[1] {a}"));
        let steps = [network.take(a), Step::Count];
        assert_eq!(network.text(3, 0, &steps), "2 0");
    }
}

#[test]
fn scan_visits_every_shard_and_refuses_a_cursor_of_its_own_making() {
    for concurrency in BOTH {
        let mut network = network(concurrency, Mutants::default());
        let [a, b] = network.keys();
        network.text(1, 0, &[put(&network, a, b"1")]);
        let [first, second] = [0, 1 << 48].map(|cursor| Step::Scan { cursor, count: 100 });
        let reply = network.text(2, 0, &[put(&network, b, b"2"), first, second]);
        assert_eq!(reply, format!("OK [2] {} [1] {a} [2] 0 [1] {b}", 1u64 << 48));
        assert_eq!(network.text(1, 0, &[Step::Scan { cursor: 7 << 48, count: 1 }]), "ERR invalid cursor");
    }
}

/// A session looks how many keys there are; then others do this; then it writes, and commits.
fn looked_before(
    concurrency: Concurrency,
    mutants: Mutants,
    others: impl Fn(&Network) -> Step<'static>,
) -> String {
    let mut network = network(concurrency, mutants);
    let [a, b] = network.keys();
    network.text(1, 0, &[member(&network, a, b"x", true)]);
    begin(&mut network, 2);
    assert_eq!(operate(&mut network, 2, &[Step::Count]), "1");
    let meanwhile = others(&network);
    network.text(3, 0, &[meanwhile]);
    let steps = [put(&network, b, b"seen")];
    assert_eq!(operate(&mut network, 2, &steps), "OK");
    commit(&mut network, 2)
}

#[test]
fn a_look_is_judged_by_which_keys_came_and_went_only() {
    for concurrency in BOTH {
        let after =
            |mutants, others: &dyn Fn(&Network) -> Step<'static>| looked_before(concurrency, mutants, others);
        let none = Mutants::default();
        assert_eq!(
            after(none, &|network| member(network, network.keys()[0], b"y", true)),
            "OK",
            "{concurrency:?}"
        );
        let conflict = "CONFLICT keys were created";
        assert!(after(none, &|network| put(network, network.four_keys(1)[3], b"new")).starts_with(conflict));
        assert!(
            after(none, &|network| member(network, network.keys()[0], b"x", false)).starts_with(conflict)
        );
        assert!(after(none, &|_| Step::Flush).starts_with(conflict));
        let mutant = Mutant::KeysetUnvalidated.into();
        let believed = after(mutant, &|network| put(network, network.four_keys(1)[3], b"new"));
        assert_eq!(believed, "OK", "the mutant believes what it saw");
    }
}

/// Whether the key is there afterwards depends on what others put into it, though it was there all the time.
#[test]
fn a_look_depends_on_what_its_own_transaction_leaves_of_a_key() {
    for concurrency in BOTH {
        let mut network = network(concurrency, Mutants::default());
        let [a, _] = network.keys();
        network.text(1, 0, &[member(&network, a, b"x", true)]);
        begin(&mut network, 2);
        let steps = [member(&network, a, b"x", false)];
        assert_eq!(operate(&mut network, 2, &steps), "OK");
        assert_eq!(operate(&mut network, 2, &[Step::Count]), "0");
        network.text(3, 0, &[member(&network, a, b"y", true)]);
        let ended = commit(&mut network, 2);
        assert!(ended.starts_with("CONFLICT"), "{concurrency:?}: {ended}");
        assert_eq!(network.text(3, 0, &[Step::Count]), "1");
    }
}

/// A transaction over both shards is answered, and its decision on its way to the second one, where it makes a key.
#[test]
fn a_look_does_not_miss_what_was_answered() {
    for concurrency in BOTH {
        for process in [1, 2, 3] {
            let mut network = network(concurrency, Mutants::default());
            let [a, b] = network.keys();
            network.text(1, 0, &[put(&network, a, b"1"), put(&network, b, b"1")]);
            assert_eq!(network.text(process, 1, &[Step::Count]), "2", "{concurrency:?}, process {process}");
        }
    }
}

/// The same for one that cannot run again: what it sees holds, whether the other's decision is on its way when it looks or
/// when it commits.
#[test]
fn nobody_is_refused_for_what_was_answered() {
    for concurrency in BOTH {
        for process in [1, 2, 3] {
            let mut network = network(concurrency, Mutants::default());
            let [a, b] = network.keys();
            let both = [put(&network, a, b"1"), put(&network, b, b"1")];
            network.text(1, 0, &both);
            begin(&mut network, process);
            assert_eq!(
                operate(&mut network, process, &[Step::Count]),
                "2",
                "{concurrency:?}, process {process}"
            );
            network.text(1, 0, &both);
            let steps = [put(&network, network.four_keys(1)[3], b"2")];
            operate(&mut network, process, &steps);
            assert_eq!(commit(&mut network, process), "OK", "{concurrency:?}, process {process}");
        }
    }
}

/// The same with a deletion of everything.
#[test]
fn nobody_reads_what_was_deleted_with_everything() {
    for concurrency in BOTH {
        for process in [1, 2, 3] {
            let mut network = network(concurrency, Mutants::default());
            let [a, b] = network.keys();
            network.text(1, 0, &[put(&network, a, b"1"), put(&network, b, b"1")]);
            assert_eq!(network.text(1, 0, &[Step::Flush]), "OK");
            let session = SessionId(u64::from(process));
            let Step::Key(operation) = network.get(b) else { unreachable!("GET has a key") };
            let id = network.request(process, Request::One { session, operation });
            assert_eq!(network.answer(id), "null", "{concurrency:?}, process {process}");
            assert_eq!(network.text(process, 0, &[network.get(a), network.get(b)]), "null null");
        }
    }
}

/// What a session has read, and with locks holds the lock of, is deleted with everything: by who is older, or younger.
#[test]
fn a_deletion_of_everything_is_in_order_with_those_that_have_read() {
    for concurrency in BOTH {
        for flushes_first in [true, false] {
            let mut network = network(concurrency, Mutants::default());
            let [a, b] = network.keys();
            network.text(1, 0, &[put(&network, a, b"1")]);
            let [older, younger] = [2, 3];
            begin(&mut network, older);
            begin(&mut network, younger);
            let (flushes, reads) = if flushes_first { (older, younger) } else { (younger, older) };
            let steps = [network.get(a)];
            assert_eq!(operate(&mut network, reads, &steps), "1");
            assert_eq!(operate(&mut network, flushes, &[Step::Flush, Step::Count]), "OK 0");
            let flushed = commit(&mut network, flushes);
            // The other shard may have voted for it.
            network.run_for(Duration::from_millis(50));
            let steps = [put(&network, b, b"1")];
            operate(&mut network, reads, &steps);
            let read = commit(&mut network, reads);
            let keeps_off = concurrency == Concurrency::Locking && !flushes_first;
            assert_eq!(
                (flushed == "OK", read == "OK"),
                (!keeps_off, keeps_off),
                "{concurrency:?}: {flushed}, {read}"
            );
            let left = if keeps_off { "2" } else { "0" };
            assert_eq!(network.text(1, 0, &[Step::Count]), left);
        }
    }
}

/// Clients that write two keys at a time over two shards, beside one that looks at all keys or deletes them, one after the
/// other: what that one was replied, how long it waited at most, and how many of the others committed.
fn crowded(
    concurrency: Concurrency,
    write: fn(&Network, [&'static str; 2]) -> [Step<'static>; 2],
    whole: &[Step<'_>],
) -> (Vec<String>, Duration, usize) {
    let mut network = network(concurrency, Mutants::default());
    let keys = network.four_keys(2);
    let mut crowd: Vec<Option<RequestId>> = vec![None; 24];
    let mut pending: Option<(RequestId, types::Instant)> = None;
    let (mut replies, mut longest, mut commits) = (Vec::new(), Duration::ZERO, 0);
    let end = network.now + Duration::from_secs(4);
    while network.now < end {
        for (client, slot) in crowd.iter_mut().enumerate() {
            if let Some(reply) = slot.and_then(|id| network.answered(id)) {
                assert!(reply.starts_with("OK"), "{concurrency:?}: {reply}");
                commits += 1;
                *slot = None;
            }
            if slot.is_none() {
                let steps = write(&network, [keys[client % 4], keys[(client + 1) % 4]]);
                *slot = Some(send(&mut network, client as u16 % 3 + 1, client as u64, &steps));
            }
        }
        if let Some((reply, since)) = pending.and_then(|(id, since)| Some((network.answered(id)?, since))) {
            longest = longest.max(network.now - since);
            replies.push(reply);
            pending = None;
        }
        if pending.is_none() {
            let step = &whole[replies.len() % whole.len()..][..1];
            pending = Some((send(&mut network, 2, 99, step), network.now));
        }
        if !network.go_on(end) {
            break;
        }
    }
    (replies, longest, commits)
}

#[test]
fn whoever_looks_at_all_keys_gets_a_turn_in_a_crowd() {
    let comes_and_goes =
        |network: &Network, [a, b]: [&'static str; 2]| [put(network, a, b"1"), network.take(b)];
    let stays = |network: &Network, keys: [&'static str; 2]| keys.map(|key| put(network, key, b"1"));
    for concurrency in BOTH {
        for (write, whole) in [
            (comes_and_goes as fn(&Network, [&'static str; 2]) -> _, vec![Step::Count, Step::Flush]),
            (stays, vec![Step::Count]),
        ] {
            let (replies, longest, commits) = crowded(concurrency, write, &whole);
            let failed = replies.iter().filter(|reply| *reply != "OK" && reply.parse::<u64>().is_err());
            assert_eq!(failed.count(), 0, "{concurrency:?}: {replies:?}");
            assert!(longest < Duration::from_secs(2), "{concurrency:?}: {longest:?}");
            assert!(replies.len() >= 10 && commits >= 100, "{concurrency:?}: {} {commits}", replies.len());
        }
    }
}
