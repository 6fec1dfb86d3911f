//! A user-defined type with lock modes of its own: transactions whose operations commute share a phase. Without them each
//! that may write has the key to itself.

use crate::locking::network::Network;
use anabranch_strict::locking::{Combining, LockOptions, Options};
use datatypes::{Operation, user};
use protocol::{Request, Step};
use std::time::Duration;
use types::{RequestId, Rng, SessionId};
use usertypes::{Answer, Call, Kind, Module, Operation as Declared, Reply, UserType};

/// The auction as it would be without lock modes, and without combining.
struct Plain;

impl UserType for Plain {
    type State = auction::State;
    type Effect = auction::Effect;
    const OPERATIONS: &'static [Declared] = &[
        Declared::writes("bid", &[("bidder", Kind::Bytes, &[]), ("amount", Kind::Integer, &[])]),
        Declared::writes("close", &[]),
        Declared::reads("leader", &[]),
        Declared::reads("bids", &[]),
        Declared::reads("closed", &[]),
    ];

    fn execute(state: &auction::State, call: &Call<'_>) -> Answer<auction::Effect> {
        auction::Auction::execute(state, call)
    }
    fn apply(state: &mut auction::State, effect: &auction::Effect) {
        auction::Auction::apply(state, effect);
    }
    fn commute(a: &auction::Effect, b: &auction::Effect) -> bool {
        auction::Auction::commute(a, b)
    }
    fn unchanged(call: &Call<'_>, reply: Option<&Reply>, effect: &auction::Effect) -> bool {
        auction::Auction::unchanged(call, reply, effect)
    }
}

fn with_modes() -> user::Type {
    user::register("auction", 1, Module::native::<auction::Auction>()).expect("there is room")
}

fn without() -> user::Type {
    user::register("auction-plain", 2, Module::native::<Plain>()).expect("there is room")
}

/// How many transactions were answered in half a second: of bidders, who bid on two of four lots and want to know whether the
/// bids were taken, and of those who look at the leaders of two.
fn crowd(of: user::Type, [bidders, onlookers]: [u64; 2], options: &Options) -> [usize; 2] {
    let mut network = Network::new(options);
    // A transaction on one shard is one message, and waits for no lock of another such one.
    let (lots, mut random) = (network.four_keys(2), Rng::with_seed(1));
    let mut sent: Vec<Option<RequestId>> = vec![None; (bidders + onlookers) as usize];
    let mut answered = [0; 2];
    let limit = network.now + Duration::from_millis(500);
    loop {
        for (session, sent) in (0..).zip(&mut sent) {
            let looks = session >= bidders;
            if let Some(id) = sent {
                let Some(reply) = network.answered(*id) else { continue };
                assert!(!reply.contains("ERR") && !reply.contains("CONFLICT"), "{reply}");
                answered[usize::from(looks)] += 1;
            }
            let (bidder, amount) = (format!("b{session}"), random.u64(1..1000).to_string());
            let bid: [&[u8]; 2] = [bidder.as_bytes(), amount.as_bytes()];
            let operation = match looks {
                true => user::Operation::new(of, b"leader", &[]),
                false => user::Operation::new(of, b"bid", &bid),
            };
            let operation = operation.expect("it has such an operation");
            let steps: [Step<'_>; 2] = [0, 1].map(|shard| {
                network.any(lots[random.usize(0..2) * 2 + shard], Operation::User(operation.clone()), false)
            });
            let session_id = SessionId(session);
            let request = Request::Many { session: session_id, steps: &steps, watched: false, multi: true };
            *sent = Some(network.request(session as u16 % 3 + 1, request));
        }
        if !network.go_on(limit) {
            return answered;
        }
    }
}

/// Messages take a millisecond and nothing else takes time, so there is room for as many rounds either way.
#[test]
fn bids_that_share_a_mode_run_side_by_side() {
    let options = Options { combining: None, ..Options::default() };
    let [alone, _] = crowd(without(), [24, 0], &options);
    let [together, _] = crowd(with_modes(), [24, 0], &options);
    assert!(together > 4 * alone, "{together} and {alone}");
    let [few, _] = crowd(without(), [24, 8], &options);
    let [many, looks] = crowd(with_modes(), [24, 8], &options);
    assert!(many > 2 * few && looks > 0, "{many} and {few}, {looks} looks");
    let readers_and_writers = LockOptions { readers_and_writers: true, ..LockOptions::default() };
    let baseline = Options { locks: readers_and_writers, ..options };
    let [of_baseline, _] = crowd(with_modes(), [24, 0], &baseline);
    assert!(of_baseline < together / 4, "{of_baseline} and {together}");
}

/// Bids of one process's clients that come at the same time share a lock and a commit, where the type says what the second
/// one of them comes to.
#[test]
fn bids_combine() {
    let combining = Options { combining: Some(Combining::default()), ..Options::default() };
    let [combined, _] = crowd(with_modes(), [24, 0], &combining);
    let [separate, _] = crowd(without(), [24, 0], &combining);
    assert!(combined > 2 * separate, "{combined} and {separate}");
}

/// What follows a blind effect of its own transaction has seen more than its mode protects (decision 0033).
#[test]
fn a_look_after_a_blind_bid_of_its_own_is_answered_in_the_first_run() {
    let call = |name: &str, arguments: &[&[u8]]| {
        let operation = user::Operation::new(with_modes(), name.as_bytes(), arguments);
        Operation::User(operation.expect("it has such an operation"))
    };
    let (low, high) = (call("bid", &[b"ann", b"3"]), call("bid", &[b"bob", b"5"]));
    for combining in [None, Some(Combining::default())] {
        // Who is refused may not run again.
        let options = Options { combining, retries: 0, ..Options::default() };
        for (after, reply) in
            [(high.clone(), "OK"), (call("closed", &[]), "0"), (call("leader", &[]), "[2] ann 3")]
        {
            let mut network = Network::new(&options);
            let lot = network.four_keys(1)[0];
            let steps = [network.any(lot, low.clone(), true), network.any(lot, after.clone(), false)];
            assert_eq!(network.text(1, 0, &steps), format!("OK {reply}"), "{after:?}");
        }
    }
}
