//! The instances' claims about a transaction whose client got no reply must agree.

use super::*;
use datatypes::{Items, register, set};
use types::{Incarnation, ProcessId};

const TRANSACTION: TransactionId =
    TransactionId { process: ProcessId(3), incarnation: Incarnation(1), number: 7 };

/// What a shard that committed the transaction tells of its effect on one key.
fn claimed(key: &str, effect: &Effect<'_>) -> protocol::Claim {
    claimed_bytes(key, encoded(effect))
}

fn claimed_bytes(key: &str, effect: Vec<u8>) -> protocol::Claim {
    let (at, none) = (Timestamp(9), Timestamp::ZERO);
    protocol::Claim {
        session: SessionId(1),
        transaction: TRANSACTION,
        commit: Some(protocol::CommitStamp {
            at,
            depends_on: none,
            region: RegionId(0),
            parts: RegionSet::default(),
        }),
        snapshot: None,
        vector: None,
        thread: None,
        effects: vec![(key.as_bytes().into(), effect.into())],
        requests: Vec::new(),
        branch: None,
    }
}

fn encoded(effect: &Effect<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    effect.encode(&mut bytes);
    bytes
}

fn plus(by: i64) -> Effect<'static> {
    Effect::Register(register::Effect::Add { by })
}

fn violations(recorder: &Recorder) -> Vec<&str> {
    recorder.violations.iter().map(|violation| &*violation.message).collect()
}

#[test]
fn a_transaction_that_took_effect_on_some_of_its_shards_only_is_caught() {
    let mut recorder = Recorder::default();
    recorder.outcome(claimed("a", &plus(1)), None);
    recorder.check_atomicity();
    assert!(violations(&recorder).is_empty());
    recorder.aborted(TRANSACTION);
    recorder.check_atomicity();
    assert!(violations(&recorder)[0].contains("some replica has ended it without effects"));
}

#[test]
fn a_transaction_with_other_effects_at_another_replica_is_caught() {
    let mut recorder = Recorder::default();
    recorder.outcome(claimed("a", &plus(1)), None);
    recorder.outcome(claimed("b", &plus(2)), None);
    recorder.outcome(claimed("a", &plus(1)), None);
    assert!(violations(&recorder).is_empty());
    recorder.outcome(claimed("a", &plus(3)), None);
    assert!(violations(&recorder)[0].contains("different effects on a"));
}

#[test]
fn a_collection_is_the_same_in_any_order() {
    let restored = |members: [&'static str; 2]| {
        let mut cell = Cell::ABSENT;
        for member in members {
            let members = Items::one(member.as_bytes());
            datatypes::apply::<false>(&mut cell, &Effect::Set(set::Effect::Add { members }));
        }
        let mut bytes = Vec::new();
        cell.encode(&mut bytes);
        encoded(&Effect::Key(key::Effect::Restore(bytes.into())))
    };
    let (one, other) = (restored(["x", "y"]), restored(["y", "x"]));
    assert_ne!(one, other);
    let mut recorder = Recorder::default();
    recorder.outcome(claimed_bytes("a", one), None);
    recorder.outcome(claimed_bytes("a", other), None);
    assert!(violations(&recorder).is_empty());
    recorder.outcome(claimed_bytes("a", restored(["x", "z"])), None);
    assert!(violations(&recorder)[0].contains("different effects on a"));
}
