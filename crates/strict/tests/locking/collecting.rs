//! The first participant decides: its leader collects the votes of the others, or gets its Prepare last.

use crate::locking::network::{DELAY, Network};
use anabranch_strict::locking::{Concurrency, Coordinates, Options};
use protocol::Request;
use std::time::Duration;
use types::SessionId;

const PROCESSES: [u16; 3] = [1, 2, 3];

/// Who dies, and when.
#[derive(Clone, Copy, Debug)]
struct Death {
    concurrency: Concurrency,
    coordinates: Coordinates,
    /// After so many messages one after the other.
    after: u32,
    /// This shard's replica on this process: which participant is the first says the transaction's number.
    replica: (u16, u16),
    /// The coordinator too, and for good.
    coordinator: bool,
}

/// What is answered to a transaction over both shards, if anything, and to the same one later.
fn with(death: Death) -> (Option<String>, String) {
    let Death { concurrency, coordinates, replica: (shard, process), .. } = death;
    let mut network = Network::new(&Options { concurrency, coordinates, ..Options::default() });
    let [a, b] = network.keys();
    let steps = [network.increment(a), network.increment(b)];
    let request = Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true };
    let id = network.request(1, request);
    network.run_for(DELAY * death.after);
    network.down.insert(network.replica(process, shard));
    if death.coordinator {
        network.down.insert(network.coordinator(1));
    }
    network.run_for(Duration::from_secs(4));
    let again = network.text(2, 0, &steps);
    (network.answered(id), again)
}

/// Every moment at which a replica may die, the leader or not.
fn deaths(coordinator: bool) -> impl Iterator<Item = Death> {
    let kinds = [
        (Concurrency::Locking, Coordinates::Participant),
        (Concurrency::Optimistic, Coordinates::Participant),
        (Concurrency::Locking, Coordinates::LastAgent),
    ];
    let of = move |(concurrency, coordinates)| {
        let each = move |replica| {
            (0..10).map(move |after| Death { concurrency, coordinates, after, replica, coordinator })
        };
        PROCESSES.into_iter().flat_map(|process| [(0, process), (1, process)]).flat_map(each)
    };
    kinds.into_iter().flat_map(of)
}

/// Whatever is lost with a leader that had voted, was collecting votes, or had decided: the client hears what has become of it, and
/// it has.
#[test]
fn leaders_may_die_at_any_moment() {
    for death in crate::some_of(deaths(false)) {
        assert_eq!(with(death), (Some("1 1".to_owned()), "2 2".to_owned()), "{death:?}");
    }
}

/// Nobody speaks for the transaction any more: all of it has happened or nothing, and nobody waits for it.
#[test]
fn leaders_may_die_with_the_coordinator() {
    let (mut undone, mut done) = (0, 0);
    for death in crate::some_of(deaths(true)) {
        match with(death).1.as_str() {
            "1 1" => undone += 1,
            "2 2" => done += 1,
            other => panic!("{death:?}: {other}"),
        }
    }
    assert!(undone > 0 && done > 0, "{undone} without effect, {done} with: it died too soon or too late");
}

/// How many messages a transaction over both shards takes, its end at the other participant included.
fn messages(coordinates: Coordinates) -> u64 {
    let mut network =
        Network::new(&Options { coordinates, tick: Duration::from_millis(200), ..Options::default() });
    let [a, b] = network.keys();
    // The coordinator learns who leads.
    assert_eq!(network.text(1, 0, &[network.increment(a), network.increment(b)]), "1 1");
    network.run_for(DELAY * 20);
    let before = network.sent();
    assert_eq!(network.text(1, 0, &[network.increment(a), network.increment(b)]), "2 2");
    network.run_for(DELAY * 20);
    network.sent() - before
}

#[test]
fn the_first_participant_writes_its_vote_with_the_decision() {
    // An entry less: that it is there and committed at two followers, with their answers. Of what coordinators say and hear,
    // the answers to two votes and the two decisions are a vote and a decision between leaders.
    assert_eq!(messages(Coordinates::Client), messages(Coordinates::Participant) + 8 + 2);
    // The same entry, and the first participant's vote with its question.
    assert_eq!(messages(Coordinates::Client), messages(Coordinates::LastAgent) + 8 + 2);
}

/// The reply comes when the entries of the votes and of the decision are written, one after the other.
#[test]
fn a_coordinating_leader_saves_the_way_back_to_the_coordinator() {
    let took = |coordinates| {
        let mut network = Network::new(&Options { coordinates, ..Options::default() });
        let [a, b] = network.keys();
        let began = network.now;
        assert_eq!(network.text(1, 0, &[network.increment(a), network.increment(b)]), "1 1");
        network.now - began
    };
    assert_eq!(took(Coordinates::Client), took(Coordinates::Participant) + DELAY);
    assert_eq!(took(Coordinates::Client), took(Coordinates::LastAgent));
}

/// What is there in the end of a transaction whose coordinator's time is over while nobody of one participant answers,
/// from this moment on; `None` if its client hears more than that the outcome is unknown.
fn given_up_at_its_deadline(
    coordinates: Coordinates,
    (gateway, shard): (u16, u16),
    quarters: u32,
) -> Option<String> {
    let options = Options { coordinates, request_timeout: Duration::from_secs(2), ..Options::default() };
    let mut network = Network::new(&options);
    let [a, b] = network.keys();
    let steps = [network.increment(a), network.increment(b)];
    let request = Request::Many { session: SessionId(7), steps: &steps, watched: false, multi: true };
    let id = network.request(gateway, request);
    network.run_for(DELAY / 4 * quarters);
    network.stop(shard);
    network.run_for(options.request_timeout + 2 * DELAY);
    let unknown = network.answered(id).is_some_and(|answer| answer.starts_with("UNKNOWNOUTCOME"));
    network.down.clear();
    network.run_for(Duration::from_secs(4));
    unknown.then(|| network.text(gateway, 0, &[network.get(a), network.get(b)]))
}

/// The first participant may have decided: the coordinator sends no abort to other shards before the first participant
/// has confirmed it.
#[test]
fn a_coordinator_whose_time_is_over_tells_nobody_but_the_leader_that_may_have_decided() {
    for coordinates in [Coordinates::Participant, Coordinates::LastAgent] {
        let cases = PROCESSES.into_iter().flat_map(|gateway| [(gateway, 0), (gateway, 1)]);
        let ended: Vec<String> = cases
            .flat_map(|case| crate::some_of(0..60).map(move |quarters| (case, quarters)))
            .filter_map(|(case, quarters)| given_up_at_its_deadline(coordinates, case, quarters))
            .collect();
        assert!(
            ended.iter().all(|keys| ["1 1", "null null"].contains(&keys.as_str())),
            "in halves: {ended:?}"
        );
        assert!(ended.contains(&"1 1".to_owned()), "none had decided: {coordinates:?}, {ended:?}");
    }
}
