//! Operations that do not look at a key's deadline, beside deadlines that their replica has not seen (Corrections 69).

use crate::tapir::network::{Network, address, ir_of, text};
use anabranch_strict::tapir::Options;
use datatypes::{Items, Operation, key, set};
use protocol::{KeyedOperation, Request, Step};
use std::time::Duration;
use types::{ProcessId, SessionId};

fn step<'a>(network: &Network, operation: Operation<'a>, blind: bool) -> Step<'a> {
    Step::Key(KeyedOperation { key: b"a", hash: network.topology.seed.hash(b"a"), operation, blind })
}

fn add(member: &'static [u8]) -> Operation<'static> {
    Operation::Set(set::Operation::Add { members: Items::one(member) })
}

/// A set gets a deadline that the replica which everybody reads from does not hear of. It passes; then a member is
/// added. What that replies, and what is left.
fn added_beside_an_unseen_deadline(blind: bool) -> (String, String) {
    let near = Some(ProcessId(3));
    let mut network = Network::new(13, 1, 3, 2, &Options { near, quorum_reads: false, ..Options::default() });
    let first = step(&network, add(b"first"), false);
    assert_eq!(text(&network.one(1, &first)), "1");
    network.run_for(Duration::from_millis(100));
    let third = address(3, Some(0));
    network.filter = Some(Box::new(move |_, to, message| to == third && ir_of(message).is_some()));
    let at_millis = network.wall(Duration::ZERO).as_millis() + 100;
    let expire = Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() });
    let expire = step(&network, expire, false);
    assert_eq!(text(&network.one(1, &expire)), "1");
    network.run_for(Duration::from_millis(300));
    let second = step(&network, add(b"second"), blind);
    let reply = text(&network.one(2, &second));
    network.filter = None;
    network.run_for(Duration::from_secs(2));
    let members = step(&network, Operation::Set(set::Operation::Members), false);
    (reply, text(&network.one(1, &members)))
}

#[test]
fn a_member_added_beside_an_unseen_deadline_that_has_passed_begins_a_new_set() {
    for (blind, reply) in [(false, "1"), (true, "OK")] {
        let (replied, left) = added_beside_an_unseen_deadline(blind);
        assert_eq!(replied, reply);
        assert!(left.contains("second") && !left.contains("first"), "blind {blind}: {left}");
    }
}

/// A coordinator whose clock is two seconds ahead finds a key expired that lives for one second more; before it prepares,
/// it learns by another transaction that its clock is wrong.
#[test]
fn what_a_wrong_clock_took_for_expired_is_looked_at_again_once_the_clock_is_corrected() {
    for seed in 1..=20 {
        let options = Options { clock_bound: Duration::from_millis(100), ..Options::default() };
        let mut network = Network::new(seed, 1, 3, 4, &options);
        network.one(1, &network.set("a", "alive"));
        let at_millis = network.wall(Duration::ZERO).as_millis() + 1000;
        let expire = Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() });
        assert_eq!(text(&network.one(1, &step(&network, expire, false))), "1", "seed {seed}");
        network.run_for(Duration::from_millis(100));
        network.set_skew(address(4, None), 2_000_000);
        network.many(4, 1, &[network.set("b", "1")]);
        network.run_for(Duration::from_micros(400 * seed));
        let id = network.many(4, 2, &[network.get("a"), network.set("c", "1")]);
        assert_eq!(text(&network.answer(id)), "alive OK", "seed {seed}");
    }
}

/// A key with a deadline, and an interactive transaction on it.
struct Interactive {
    network: Network,
    at_millis: u64,
}

impl Interactive {
    const SESSION: SessionId = SessionId(9);

    /// Everybody knows the deadline, so long before it.
    fn begun(seed: u64, alive: Duration) -> Self {
        let mut network = Network::new(seed, 1, 3, 2, &Options::default());
        network.one(1, &network.set("a", "1"));
        let settled = Duration::from_millis(30);
        let at_millis = network.wall(Duration::ZERO).as_millis() + (settled + alive).as_millis() as u64;
        let expire = Operation::Key(key::Operation::ExpireAt { at_millis, condition: Default::default() });
        assert_eq!(text(&network.one(1, &step(&network, expire, false))), "1");
        network.run_for(settled);
        let mut begun = Interactive { network, at_millis };
        let begin = Request::Begin { session: Self::SESSION, read_only: false, watched: false };
        assert_eq!(begun.ask(begin), "OK");
        begun
    }

    fn ask(&mut self, request: Request<'_>) -> String {
        let id = self.network.request(2, request);
        text(&self.network.answer(id))
    }

    /// `BLIND INCR a`.
    fn increment(&mut self) {
        let steps = [self.network.increment("a", true)];
        assert_eq!(self.ask(Request::Operate { session: Self::SESSION, steps: &steps }), "OK");
    }

    /// `PEXPIRETIME a` replies the deadline: the key is alive.
    fn look(&mut self) {
        let look = Operation::Key(key::Operation::Deadline(key::TimeFormat::MillisAt));
        let steps = [step(&self.network, look, false)];
        let reply = self.ask(Request::Operate { session: Self::SESSION, steps: &steps });
        assert_eq!(reply, self.at_millis.to_string());
    }

    /// What `COMMIT` replies, and what is in the key then.
    fn commit(mut self) -> (String, String) {
        let committed = self.ask(Request::Commit { session: Self::SESSION });
        let left = text(&self.network.one(1, &self.network.get("a")));
        (committed, left)
    }
}

/// No replica takes a write unevaluated on a key that has a deadline. The write revealed nothing of the key to its
/// client.
#[test]
fn an_interactive_transaction_commits_a_blind_write_on_a_key_with_a_deadline() {
    for (seed, looks) in (1..=5).flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut interactive = Interactive::begun(seed, Duration::from_secs(10));
        interactive.increment();
        (0..u32::from(looks)).for_each(|_| interactive.look());
        assert_eq!(interactive.commit(), ("OK".to_owned(), "2".to_owned()), "seed {seed}");
    }
}

/// What was alive when the transaction began commits below the deadline, though the deadline passes before the commit
/// request, or during the vote.
#[test]
fn an_interactive_transaction_commits_a_blind_write_at_a_deadline_that_passes() {
    for pause_ms in [0, 10, 20, 60] {
        for looks in [true, false] {
            let mut interactive = Interactive::begun(1, Duration::from_millis(40));
            interactive.increment();
            (0..u32::from(looks)).for_each(|_| interactive.look());
            interactive.network.run_for(Duration::from_millis(pause_ms));
            let (committed, left) = interactive.commit();
            assert_eq!(committed, "OK", "after {pause_ms} ms");
            assert!(pause_ms < 60 || left == "null", "{left}");
        }
    }
}

/// Once somebody has deleted the key because it had expired, the client's earlier read of the key cannot be true any
/// more below that.
#[test]
fn an_interactive_transaction_that_saw_a_key_alive_conflicts_with_its_deletion() {
    let mut interactive = Interactive::begun(1, Duration::from_millis(40));
    interactive.increment();
    interactive.look();
    interactive.network.run_for(Duration::from_millis(60));
    let other = interactive.network.increment("a", false);
    assert_eq!(text(&interactive.network.one(1, &other)), "1");
    let (committed, left) = interactive.commit();
    assert!(committed.starts_with("CONFLICT key 'a'"), "{committed}");
    assert_eq!(left, "1");
}
