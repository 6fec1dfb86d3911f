//! The last shard of a transaction evaluates its steps and decides, and holds nothing over a round trip.

use crate::locking::network::{DELAY, Network};
use crate::locking::singles::send;
use anabranch_strict::locking::{Coordinates, LastShard, Options};
use datatypes::{Items, Operation, set};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, SessionId};

const PATIENCE: Duration = Duration::from_millis(20);
const SESSION: SessionId = SessionId(7);

fn options() -> Options {
    let last_shard = LastShard { crowded: 0, after: 0, patience: PATIENCE };
    Options { last_shard: Some(last_shard), ..Options::default() }
}

/// Those, and the same where the last shard's leader collects the votes, as over several regions.
fn both() -> [Options; 2] {
    [options(), Options { coordinates: Coordinates::Participant, ..options() }]
}

/// Every coordinator learns that this key is more contended than others, so that its shard is the last.
fn heat(network: &mut Network, hot: &'static str) {
    for process in 1..=3 {
        let steps = [network.get(hot), network.get(hot), network.get(hot)];
        (0..3).for_each(|_| drop(network.text(process, 50, &steps)));
    }
}

/// Transactions on one hot key and one of their own each: how long they took, all of them together.
fn together(options: &Options, clients: usize) -> Duration {
    let mut network = Network::new(options);
    let [_, hot] = network.keys();
    heat(&mut network, hot);
    let cold = network.of_shard(0);
    let began = network.now;
    let requests: Vec<RequestId> = (0..clients)
        .map(|client| {
            let steps = [network.increment(hot), network.increment(cold[client]), network.increment(hot)];
            send(&mut network, client as u16 % 3 + 1, client as u64, &steps)
        })
        .collect();
    let mut replies: Vec<String> = requests.into_iter().map(|id| network.answer(id)).collect();
    let took = network.now - began;
    replies.sort_unstable_by_key(|reply| reply.split(' ').next().and_then(|first| first.parse::<u32>().ok()));
    let expected = (0..clients).map(|place| format!("{} 1 {}", 2 * place + 1, 2 * place + 2));
    assert_eq!(replies, Vec::from_iter(expected), "each sees those before it");
    took
}

#[test]
fn a_hot_key_is_not_held_over_a_round_trip() {
    let [took, collected] = both().map(|options| together(&options, 7));
    assert!(took <= DELAY * 10, "there, votes, the decision, each with a round of its log: {took:?}");
    assert!(collected <= DELAY * 9, "votes go to the last shard: {collected:?}");
    let before = together(&Options { last_shard: None, combining: None, ..Options::default() }, 7);
    assert!(before > DELAY * 30, "each waits for the one before it: {before:?}");
}

/// What is not shown waits for those only who have what it would change.
#[test]
fn it_is_carried_out_beside_those_that_it_does_not_disturb() {
    for options in both() {
        let mut network = Network::new(&options);
        let [cold, hot] = network.keys();
        heat(&mut network, hot);
        let add = |member| Operation::Set(set::Operation::Add { members: Items::one(member) });
        let begin = network.request(1, Request::Begin { session: SESSION, read_only: false, watched: false });
        assert_eq!(network.answer(begin), "OK");
        let length = network.any(hot, Operation::Set(set::Operation::Length), false);
        let read =
            network.request(1, Request::Operate { session: SESSION, steps: std::slice::from_ref(&length) });
        assert_eq!(network.answer(read), "0");
        let looks = [network.increment(cold), length.clone()];
        let began = network.now;
        assert_eq!(network.text(2, 2, &looks), "1 0");
        assert!(network.now - began < DELAY * 12);
        let adds = [network.increment(cold), network.any(hot, add(b"x"), true)];
        let waits = send(&mut network, 3, 3, &adds);
        network.run_for(PATIENCE * 10);
        assert_eq!(network.answered(waits), None, "the session has read how many there are");
        let commit = network.request(1, Request::Commit { session: SESSION });
        assert_eq!(network.answer(commit), "OK");
        assert_eq!(network.answer(waits), "2 OK");
        assert_eq!(network.text(2, 2, &looks), "3 1");
    }
}

/// A session has the last shard's key and asks for what has been voted for: one of the two has to give way.
#[test]
fn who_waits_for_one_that_waits_for_its_votes_is_taken_back() {
    for (options, patience) in both().into_iter().zip([PATIENCE, PATIENCE]) {
        let mut network = Network::new(&options);
        let [cold, hot] = network.keys();
        heat(&mut network, hot);
        let begin = network.request(1, Request::Begin { session: SESSION, read_only: false, watched: false });
        assert_eq!(network.answer(begin), "OK");
        let operate = |network: &mut Network, key: &'static str| {
            let steps = [network.increment(key)];
            network.request(1, Request::Operate { session: SESSION, steps: &steps })
        };
        let has = operate(&mut network, hot);
        assert_eq!(network.answer(has), "1");
        let steps = [network.increment(cold), network.increment(hot)];
        let waits = send(&mut network, 2, 2, &steps);
        network.run_for(DELAY * 8);
        let asks = operate(&mut network, cold);
        let began = network.now;
        assert_eq!(network.answer(asks), "1");
        assert!(network.now - began < patience + DELAY * 8, "{:?}", network.now - began);
        let commit = network.request(1, Request::Commit { session: SESSION });
        assert_eq!(network.answer(commit), "OK");
        assert_eq!(network.answer(waits), "2 2");
    }
}

/// A process is gone at any moment between the question and the answer: each command takes effect once, and its client
/// gets the result.
#[test]
fn each_counts_once_whoever_is_gone() {
    let cases = (1..=3).flat_map(|process| (0..16).map(move |when| (process, when)));
    for (process, when) in cases {
        for (shard, options) in [0, 1].into_iter().flat_map(|shard| both().map(|options| (shard, options))) {
            let mut network = Network::new(&options);
            let keys = network.keys();
            heat(&mut network, keys[1]);
            let steps = keys.map(|key| network.increment(key));
            let requests: Vec<RequestId> =
                (0..6).map(|session| send(&mut network, session as u16 % 3 + 1, session, &steps)).collect();
            network.run_for(DELAY * when / 2);
            let replica = network.replica(process, shard);
            network.down.insert(replica);
            network.run_for(Duration::from_secs(4));
            let mut answers: Vec<String> = requests.iter().filter_map(|id| network.answered(*id)).collect();
            answers.sort_unstable();
            let expected = Vec::from_iter((1..=6).map(|count| format!("{count} {count}")));
            assert_eq!(answers, expected, "shard {shard} of {process} is gone after {when} half delays");
            network.down.remove(&replica);
            network.run_for(Duration::from_secs(1));
            let reads = keys.map(|key| network.get(key));
            assert_eq!(network.text(2, 0, &reads), "6 6");
        }
    }
}

/// The coordinator is cut off, and then from the last shard's leader only. Another shard, which has queried the last
/// one meanwhile, says that the transaction has committed: what its steps came to only the last shard can say (seed
/// 184 of locking, with types).
#[test]
fn results_come_from_the_last_shard_whoever_says_that_it_has_committed() {
    for cut in (500..1_000).step_by(20) {
        let mut network = Network::new(&options());
        let [cold, hot] = network.keys();
        heat(&mut network, hot);
        if network.leader(0) == network.leader(1) {
            network.depose(network.leader(0), 0);
        }
        let (other, last) = (network.leader(0), network.leader(1));
        let third = 6 - other - last;
        let steps: [Step<'_>; 2] = [network.increment(cold), network.take(hot)];
        assert_eq!(network.text(third, 1, &steps), "1 null", "it knows both leaders");
        let steps = [network.increment(cold), network.increment(hot)];
        let sent = send(&mut network, third, 2, &steps);
        // The question to the last shard has arrived.
        network.run_for(DELAY * 7);
        assert_eq!(network.answered(sent), None);
        network.cut_off = Some(third);
        network.run_for(Duration::from_millis(cut));
        (network.cut_off, network.cut_pair) = (None, Some([third, last]));
        network.run_for(Duration::from_millis(500));
        assert_eq!(network.answered(sent), None, "cut off for {cut} ms");
        network.cut_pair = None;
        assert_eq!(network.answer(sent), "2 1");
        assert_eq!(network.text(1, 3, &[network.get(cold), network.get(hot)]), "2 1");
    }
}

/// The coordinator is cut off when another shard has voted, which makes the last one put an abort into its log. Before that is replicated the
/// coordinator is back, and asks the last one to decide: nobody is evaluated behind what the transaction would have done.
#[test]
fn an_abort_that_is_in_the_log_is_overtaken_by_nothing() {
    for (last_shard, start) in
        [options().last_shard, None].into_iter().flat_map(|it| (0..20).map(move |start| (it, start)))
    {
        let mut network = Network::new(&Options { last_shard, ..Options::default() });
        let [cold, hot] = network.keys();
        heat(&mut network, hot);
        if network.leader(0) == network.leader(1) {
            network.depose(network.leader(0), 0);
        }
        let near = network.leader(1);
        let third = 6 - network.leader(0) - near;
        let steps = [network.increment(cold), network.increment(hot)];
        assert_eq!(network.text(third, 1, &steps), "1 1", "it knows both leaders");
        network.run_for(DELAY * 15 * start);
        let sent = send(&mut network, third, 2, &steps);
        network.run_for(DELAY * 4);
        network.cut_off = Some(third);
        network.run_for(DELAY * 640);
        network.stop_followers(1, true);
        network.run_for(DELAY * 90);
        let single = [network.increment(hot)];
        let between = send(&mut network, near, 3, &single);
        network.run_for(DELAY * 5);
        // Its coordinator retries 750 ms after its first request.
        network.cut_off = None;
        network.run_for(DELAY * 40);
        network.stop_followers(1, false);
        let answers = (network.answer(between), network.answer(sent));
        assert_eq!(network.text(near, 4, &single), "4", "{last_shard:?} {start}: {answers:?}");
        assert_eq!(network.text(near, 4, &[network.get(hot)]), "4", "{last_shard:?} {start}: {answers:?}");
    }
}
