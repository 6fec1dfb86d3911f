//! Processes die one after the other, with replicas and a coordinator each: the others go on soon.

use crate::tapir::network::{Network, address};
use anabranch_strict::tapir::Options;
use protocol::Request;
use std::time::Duration;
use types::{Instant, RequestId, SessionId};

const PROCESSES: u16 = 3;
const CLIENTS: usize = 6;

/// A client that reads some keys under `WATCH` and writes them, in one transaction after the other.
struct Client {
    process: u16,
    session: u64,
    pending: Option<RequestId>,
    at: usize,
    keys: Vec<&'static str>,
}

const KEYS: [&str; 26] = [
    "a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t", "u",
    "v", "w", "x", "y", "z",
];

fn longest_silence(seed: u64, kills: usize) -> (Duration, Instant) {
    let mut network = Network::new(seed, 2, PROCESSES, PROCESSES, &Options::default());
    network.delay = Duration::from_millis(1);
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|n| Client {
            process: 1 + (n as u16 % PROCESSES),
            session: n as u64 + 1,
            pending: None,
            at: 0,
            keys: Vec::new(),
        })
        .collect();
    let mut down: Option<u16> = None;
    let (mut last, mut longest) = (network.now, (Duration::ZERO, network.now));
    let mut next_event = network.now + Duration::from_secs(2);
    let mut left = 2 * kills;
    while left > 0 || network.now < next_event {
        if network.now >= next_event {
            left -= 1;
            match down.take() {
                None => {
                    let process = 1 + network.rng.u16(0..PROCESSES);
                    for shard in [None, Some(0), Some(1)] {
                        network.down.insert(address(process, shard));
                    }
                    down = Some(process);
                    for client in clients.iter_mut().filter(|client| client.process == process) {
                        client.process = 1 + (process - 1 + 1 + network.rng.u16(0..2)) % PROCESSES;
                        client.session += 100;
                        (client.pending, client.at) = (None, 0);
                    }
                    next_event = next_event + Duration::from_millis(1500 + network.rng.u64(0..700));
                }
                Some(process) => {
                    for shard in [Some(0), Some(1), None] {
                        network.restart(address(process, shard), usize::MAX, true);
                    }
                    next_event = next_event + Duration::from_secs(2);
                }
            }
        }
        for client in &mut clients {
            if let Some(id) = client.pending {
                let Some(reply) = network.replies.0.remove(&id) else { continue };
                if client.at == 2 && reply.as_error().is_none() {
                    let silence = network.now - last;
                    if silence > longest.0 {
                        longest = (silence, network.now);
                    }
                    last = network.now;
                }
                client.at = (client.at + 1) % 3;
                client.pending = None;
            }
            if client.at == 0 {
                client.keys = (0..1 + network.rng.usize(0..3))
                    .map(|_| {
                        let draw = network.rng.f64();
                        KEYS[((draw * draw * draw) * KEYS.len() as f64) as usize]
                    })
                    .collect();
            }
            let session = SessionId(client.session);
            let keys: Vec<_> = client
                .keys
                .iter()
                .map(|key| (key.as_bytes(), network.topology.seed.hash(key.as_bytes())))
                .collect();
            let gets: Vec<_> = client.keys.iter().map(|key| network.get(key)).collect();
            let sets: Vec<_> = client.keys.iter().map(|key| network.set(key, "1")).collect();
            let request = match client.at {
                0 => Request::Watch { session, keys: &keys },
                1 => Request::Many { session, steps: &gets, watched: false, multi: false },
                _ => Request::Many { session, steps: &sets, watched: true, multi: true },
            };
            client.pending = Some(network.request(client.process, request));
        }
        network.run_for(Duration::from_micros(300));
    }
    longest
}

#[test]
fn whoever_wants_what_the_dead_held_waits_for_a_second_at_most() {
    let (seeds, kills) = if crate::soaks() { (20, 3) } else { (1, 1) };
    for seed in 1..=seeds {
        let (longest, at) = longest_silence(seed, kills);
        // A suspicion after 0.6 s, half as long again where the first backup coordinator knows nothing of it.
        assert!(
            longest < Duration::from_secs(1),
            "seed {seed}: nobody was served for {longest:?}, until {at:?}"
        );
    }
}
