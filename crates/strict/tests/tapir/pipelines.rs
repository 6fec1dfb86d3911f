//! Pipelines: the commands of one session that wait together run as one transaction, in their order.

use crate::tapir::network::{Network, address, text};
use anabranch_strict::ir::Status;
use anabranch_strict::tapir::Options;
use protocol::Claim;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use types::{RequestId, SessionId};

const KEYS: [&str; 5] = ["a", "b", "c", "d", "e"];

#[test]
fn a_pipeline_takes_one_round_trip_for_64_commands() {
    let mut network = Network::new(1, 2, 3, 1, &Options::default());
    let steps = (0..128).map(|n| network.increment(KEYS[n % KEYS.len()], true)).collect();
    let began = network.now;
    for id in network.pipeline(1, 1, steps) {
        assert_eq!(text(&network.answer(id)), "OK");
    }
    assert!(network.now - began <= 4 * network.delay, "{:?}", network.now - began);
    let total: u64 = KEYS.iter().map(|key| number(&text(&network.one(1, &network.get(key))))).sum();
    assert_eq!(total, 128);
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

#[test]
fn a_pipeline_sees_its_own_earlier_commands() {
    let mut network = Network::new(2, 2, 3, 1, &Options::default());
    let steps = vec![
        network.set("a", "5"),
        network.increment("a", false),
        network.get("b"),
        network.set("b", "x"),
        network.get("a"),
        network.get("b"),
    ];
    let ids = network.pipeline(1, 1, steps);
    let replies: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
    assert_eq!(replies, ["OK", "6", "null", "OK", "6", "x"]);
}

#[test]
fn pipelines_that_conflict_all_come_to_their_end() {
    let mut network = Network::new(3, 2, 3, 2, &Options::default());
    let mut ids = Vec::new();
    for session in 1..=4 {
        let steps = (0..20).map(|n| network.increment(KEYS[n % 2], false)).collect();
        ids.extend(network.pipeline(1 + (session % 2) as u16, session, steps));
    }
    let mut counted: Vec<u64> = ids.into_iter().map(|id| number(&text(&network.answer(id)))).collect();
    counted.sort_unstable();
    let expected: Vec<u64> = (1..=40).flat_map(|n| [n, n]).collect();
    assert_eq!(counted, expected, "two keys, each counted to 40 without a gap");
}

/// Sessions send pipelines of commands that change and observe, so that a claim's effects tell how many commands a
/// transaction had; meanwhile messages are lost, replicas restart and a coordinator dies.
fn random(seed: u64) -> usize {
    let options = Options { prepared_timeout: Duration::from_millis(300), ..Options::default() };
    let mut network = Network::new(seed, 2, 3, 2, &options);
    (network.loss, network.duplication, network.delay) = (20, 10, Duration::from_millis(10));
    let mut sent: BTreeMap<SessionId, VecDeque<(&'static str, RequestId)>> = BTreeMap::new();
    let mut claims: Vec<Claim> = Vec::new();
    for round in 0..24 {
        for session in 1..=4_u64 {
            // A session sends on only when all of its commands have been answered.
            let busy = sent
                .get(&SessionId(session))
                .is_some_and(|commands| commands.iter().any(|(_, id)| !network.replies.0.contains_key(id)));
            if busy {
                continue;
            }
            let keys: Vec<&'static str> =
                (0..network.rng.usize(1..=12)).map(|_| KEYS[network.rng.usize(0..KEYS.len())]).collect();
            let steps = keys.iter().map(|key| network.increment(key, false)).collect();
            let ids = network.pipeline(1 + (session % 2) as u16, session, steps);
            sent.entry(SessionId(session)).or_default().extend(keys.into_iter().zip(ids));
        }
        let pause = network.rng.u64(0..60_000);
        network.run_for(Duration::from_micros(pause));
        let well = network.replicas().all(|(_, replica)| replica.status() == Status::Normal);
        if well && round % 4 == 3 {
            let at = address(network.rng.u16(1..=3), Some(network.rng.u16(0..2)));
            network.restart(at, 0, false);
        }
    }
    network.run_for(Duration::from_secs(8));
    (1..=2).for_each(|process| claims.extend(network.node_mut(address(process, None)).take_claims()));
    verify(seed, &network, &sent, claims)
}

/// Replays the claims in the order of stamps. A transaction has the next commands of its session that were not
/// refused; every reply must be what the replay counts.
fn verify(
    seed: u64,
    network: &Network,
    sent: &BTreeMap<SessionId, VecDeque<(&'static str, RequestId)>>,
    mut claims: Vec<Claim>,
) -> usize {
    claims.sort_by_key(|claim| (claim.commit, claim.transaction));
    let answered = |id: &RequestId| network.replies.0.get(id).is_some_and(|reply| reply.as_error().is_none());
    let unknown = sent.values().flatten().filter(|(_, id)| !answered(id)).count();
    let mut left: BTreeMap<SessionId, VecDeque<(&'static str, RequestId)>> = sent
        .iter()
        .map(|(session, commands)| {
            (*session, commands.iter().filter(|(_, id)| answered(id)).copied().collect())
        })
        .collect();
    let mut counters: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut largest, mut checked) = (0, 0);
    for claim in claims {
        largest = largest.max(claim.effects.len());
        for (key, _) in &claim.effects {
            let (key_sent, id) = left
                .get_mut(&claim.session)
                .and_then(VecDeque::pop_front)
                .unwrap_or_else(|| panic!("seed {seed}: a claim without a command"));
            assert_eq!(key_sent.as_bytes(), &**key, "seed {seed}: out of the session's order");
            let counter = counters.entry(key_sent).or_default();
            let reply = number(&text(&network.replies.0[&id]));
            // Commands without a reply may have counted in between.
            assert!(
                reply > *counter && reply <= *counter + 1 + unknown as u64,
                "seed {seed}: {key_sent} is {reply}"
            );
            *counter = reply;
            checked += 1;
        }
    }
    assert!(left.values().all(VecDeque::is_empty), "seed {seed}: answered without a claim");
    assert!(largest > 1, "seed {seed}: nothing ran together");
    checked
}

#[test]
fn every_reply_fits_the_order_of_stamps_and_of_the_session() {
    let checked: usize = (1..=25).map(random).sum();
    assert!(checked > 800, "{checked} commands");
}

/// Commands of a shard that is gone fail; the others run, once.
#[test]
fn a_shard_that_is_down_fails_its_own_commands_only() {
    let mut network = Network::new(4, 2, 3, 1, &Options::default());
    let (down, up) = network.two_keys();
    network.one(1, &network.set(up, "0"));
    network.down.extend((1..=3).map(|process| address(process, Some(0))));
    let round = || [network.increment(up, false), network.get(down), network.get(up)];
    let steps = std::iter::repeat_with(round).take(5).flatten().collect();
    let ids = network.pipeline(1, 1, steps);
    let replies: Vec<String> = ids.into_iter().map(|id| text(&network.answer(id))).collect();
    for (number, replies) in replies.chunks(3).enumerate() {
        let (counted, refused) = ((number + 1).to_string(), replies[1].contains("UNAVAILABLE"));
        assert!(replies[0] == counted && refused && replies[2] == counted, "{number}: {replies:?}");
    }
}

/// Each sees those before it, and the coordinator requests none by itself.
#[test]
fn a_pipeline_on_one_key_takes_as_long_as_one_on_several() {
    let mut network = Network::new(1, 2, 3, 1, &Options::default());
    let steps = (0..64).map(|n| if n % 4 == 3 { network.get("a") } else { network.increment("a", false) });
    let ids = network.pipeline(1, 1, steps.collect());
    let began = network.now;
    let replies: Vec<u64> = ids.into_iter().map(|id| number(&text(&network.answer(id)))).collect();
    assert_eq!(replies, (0..64).map(|n| n + 1 - (n + 1) / 4).collect::<Vec<u64>>());
    assert!(network.now - began <= 4 * network.delay, "{:?}", network.now - began);
}
