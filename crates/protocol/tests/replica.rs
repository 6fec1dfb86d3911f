//! The promises of a replica: the gate, the streams, the timers, the news about the log.

use anabranch_protocol::{
    Durability, Durable, Gate, Input, Now, Outputs, Packet, Protocol, Replica, Replies,
};
use std::collections::BTreeMap;
use std::time::Duration;
use types::{
    Address, Incarnation, Instant, KeyspaceId, NodeId, PartitionId, ProcessId, Reader, ReplyBuf, ReplySink,
    RequestId, Rng, Slot, Wire,
};

/// Streams every number that it gets to its peer and notes what it hears.
#[derive(Debug, Default)]
struct Teller {
    peer: Option<Address>,
    heard: Vec<u64>,
    started: Vec<Incarnation>,
    fired: Vec<u8>,
    undone: bool,
    logged: u64,
}

impl Protocol for Teller {
    type Message = u64;
    type Timer = u8;
    type Record<'a> = u64;

    fn step(&mut self, now: Now, batch: &mut Vec<Input<'_, Self>>, _: &mut Rng, out: &mut Outputs<'_, Self>) {
        for input in batch.drain(..) {
            match input {
                Input::Message { message, .. } => {
                    self.heard.push(message);
                    out.persist(&message, Durability::Synced);
                }
                Input::PeerStarted { peer } => self.started.push(peer.incarnation),
                Input::Timer(timer) => self.fired.push(timer),
                Input::Recover(record) => {
                    let number = u64::decode(&mut Reader::new(record)).expect("a test's own record");
                    if let Some(peer) = self.peer {
                        out.stream(peer, number);
                    }
                    out.arm(number as u8, now.instant + Duration::from_micros(number));
                }
                _ => {}
            }
        }
    }

    fn checkpoint(&mut self, _: u64, _: &mut Vec<u8>) -> Option<u64> {
        None
    }

    fn logged(&mut self, records: u64) {
        self.logged = records;
    }

    fn log_failed(&mut self) -> bool {
        self.undone = true;
        true
    }
}

struct Nobody(ReplyBuf);

impl Replies for Nobody {
    fn reply(&mut self, _: RequestId) -> &mut dyn ReplySink {
        &mut self.0
    }
}

fn address(process: u16) -> Address {
    Address { process: ProcessId(process), slot: Slot::replica(KeyspaceId(0), PartitionId(0)) }
}

fn replica(process: u16, life: u32, peer: u16) -> Replica<Teller> {
    let protocol = Teller { peer: Some(address(peer)), ..Teller::default() };
    Replica::new(address(process).at(Incarnation(life)), protocol)
}

fn at(micros: u64) -> Now {
    Now { instant: Instant(micros), ..Now::default() }
}

const ALL: Durable = Durable { written: u64::MAX, synced: u64::MAX };

fn tell(replica: &mut Replica<Teller>, number: u64, now: Now) {
    let mut record = Vec::new();
    number.encode(&mut record);
    replica.step(
        now,
        &mut vec![Input::Recover(&record)],
        &mut Rng::with_seed(0),
        &mut Nobody(ReplyBuf::new()),
    );
}

fn hear(replica: &mut Replica<Teller>, from: NodeId, packet: Packet<Teller>, now: Now) {
    let mut bytes = Vec::new();
    packet.encode(&mut bytes);
    let packet = Packet::decode(&mut Reader::new(&bytes)).expect("a packet survives its binary form");
    replica
        .receive(now, from, packet, &mut Rng::with_seed(0), &mut Nobody(ReplyBuf::new()))
        .expect("well-formed messages");
}

/// Two replicas and a network that loses, repeats and reorders.
struct Pair {
    replicas: BTreeMap<u16, Replica<Teller>>,
    flying: Vec<(NodeId, Address, Packet<Teller>)>,
    random: Rng,
    now: u64,
    group: u64,
}

impl Pair {
    fn new(seed: u64) -> Self {
        let replicas = BTreeMap::from([(1, replica(1, 1, 2)), (2, replica(2, 1, 1))]);
        Pair { replicas, flying: Vec::new(), random: Rng::with_seed(seed), now: 0, group: 0 }
    }

    /// Lets time pass, logs and sends what is due.
    fn take_packets(&mut self) {
        self.now += 10_000;
        let now = at(self.now);
        for replica in self.replicas.values_mut() {
            if replica.deadline().is_some_and(|deadline| deadline <= now.instant) {
                replica.fire(now, &mut Rng::with_seed(0), &mut Nobody(ReplyBuf::new()));
            }
            if !replica.records().is_empty() {
                self.group += 1;
                replica.appended(self.group);
            }
            replica.release(now.instant, ALL);
            let from = replica.node();
            self.flying.extend(replica.packets().map(|(to, packet)| (from, to, packet)));
        }
    }

    /// The same, and then delivers one packet.
    fn turn(&mut self, lossy: bool) {
        self.take_packets();
        let now = at(self.now);
        if self.flying.is_empty() {
            return;
        }
        let (from, to, packet) = self.flying.swap_remove(self.random.usize(..self.flying.len()));
        if lossy && self.random.u8(..) < 80 {
            return;
        }
        if lossy && self.random.u8(..) < 40 {
            let mut bytes = Vec::new();
            packet.encode(&mut bytes);
            let copy = Packet::decode(&mut Reader::new(&bytes)).expect("a packet survives its binary form");
            self.flying.push((from, to, copy));
        }
        if let Some(replica) = self.replicas.get_mut(&to.process.0) {
            hear(replica, from, packet, now);
        }
    }
}

#[test]
fn a_stream_delivers_everything_once_and_in_order_over_a_bad_network() {
    for seed in 0..40 {
        let mut pair = Pair::new(seed);
        for number in 0..60u64 {
            let now = at(pair.now);
            tell(pair.replicas.get_mut(&1).expect("replica 1"), number, now);
            (0..3).for_each(|_| pair.turn(true));
        }
        (0..4000).for_each(|_| pair.turn(false));
        assert_eq!(pair.replicas[&2].protocol().heard, (0..60).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(pair.replicas[&1].unacknowledged(address(2)), 0, "seed {seed}");
        assert_eq!(pair.replicas[&2].protocol().started, [Incarnation(1)], "seed {seed}");
    }
}

/// A cut ends behind which many messages wait, and more come meanwhile: the stream goes on with each acknowledgement, and does not wait
/// for the time after which something counts as lost.
#[test]
fn a_stream_catches_up_as_fast_as_the_receiver_acknowledges() {
    const WAITING: u64 = 20_000;
    let mut pair = Pair::new(1);
    (0..20).for_each(|_| pair.turn(false));
    for number in 0..WAITING {
        let now = at(pair.now);
        tell(pair.replicas.get_mut(&1).expect("replica 1"), number, now);
        pair.turn(false);
        // Nothing arrives.
        pair.flying.clear();
    }
    let (healed, mut sent) = (pair.now, WAITING);
    while pair.replicas[&1].unacknowledged(address(2)) > 0 {
        for packet in std::mem::take(&mut pair.flying) {
            let (from, to, packet) = packet;
            let now = at(pair.now);
            hear(pair.replicas.get_mut(&to.process.0).expect("two replicas"), from, packet, now);
        }
        if sent < WAITING + 10 {
            let now = at(pair.now);
            tell(pair.replicas.get_mut(&1).expect("replica 1"), sent, now);
            sent += 1;
        }
        pair.take_packets();
    }
    assert_eq!(pair.replicas[&2].protocol().heard, Vec::from_iter(0..WAITING + 10));
    let took = Duration::from_micros(pair.now - healed);
    assert!(took < Duration::from_secs(1), "{took:?}: a round takes 10 ms, what counts as lost 200");
}

#[test]
fn a_new_life_of_the_receiver_starts_the_stream_anew_and_notifies_the_protocol() {
    let mut pair = Pair::new(7);
    tell(pair.replicas.get_mut(&1).expect("replica 1"), 1, at(0));
    (0..50).for_each(|_| pair.turn(false));
    pair.replicas.insert(2, replica(2, 2, 1));
    let now = at(pair.now);
    tell(pair.replicas.get_mut(&1).expect("replica 1"), 2, now);
    (0..200).for_each(|_| pair.turn(false));
    // 2 was meant for the earlier life: only the protocol knows what the new one lacks.
    assert_eq!(pair.replicas[&1].protocol().started, [Incarnation(1), Incarnation(2)]);
    assert_eq!(pair.replicas[&2].protocol().heard, [0u64; 0]);
    let now = at(pair.now);
    tell(pair.replicas.get_mut(&1).expect("replica 1"), 3, now);
    (0..200).for_each(|_| pair.turn(false));
    assert_eq!(pair.replicas[&2].protocol().heard, [3]);
}

#[test]
fn nothing_leaves_before_the_log_is_as_durable_as_the_record_says() {
    let mut receiver = replica(2, 1, 1);
    let sender = address(1).at(Incarnation(1));
    let (group, synced_later) = (9, Durable { written: 9, synced: 8 });
    hear(&mut receiver, sender, Packet::Datagram(5), at(0));
    tell(&mut receiver, 1, at(0));
    receiver.appended(group);
    receiver.release(Instant(0), synced_later);
    assert_eq!(receiver.packets().count(), 0, "the stream waits for the sync");
    assert!(!receiver.gate().is_open(synced_later));
    receiver.release(Instant(0), Durable { written: 9, synced: 9 });
    assert_eq!(receiver.packets().count(), 1, "its first frame, a hello");
}

#[test]
fn replies_do_not_wait_for_the_sync_of_what_messages_alone_tell_of() {
    let mut replica = replica(1, 1, 2);
    let mut persist = |group, class| {
        let replies = &mut Nobody(ReplyBuf::new());
        replica.drive(replies, |_, out| out.persist_for_messages(&7, class));
        replica.appended(group);
        [replica.gate(), replica.reply_gate()].map(|gate| (gate.written, gate.synced))
    };
    assert_eq!(persist(3, Durability::Volatile), [(0, 0), (0, 0)]);
    assert_eq!(persist(4, Durability::Synced), [(4, 4), (4, 0)]);
    assert_eq!(persist(5, Durability::Written), [(5, 4), (5, 0)]);
    replica.release(Instant(0), Durable { written: 5, synced: 3 });
    assert_eq!((replica.gate().synced, replica.reply_gate()), (4, Gate::OPEN));
}

#[test]
fn what_rests_on_logged_records_waits_for_no_others() {
    let mut replica = replica(1, 1, 2);
    let replies = &mut Nobody(ReplyBuf::new());
    for group in [3, 4] {
        replica.drive(replies, |_, out| out.persist(&7, Durability::Synced));
        replica.appended(group);
    }
    replica.logged(3);
    replica.drive(replies, |_, out| {
        assert_eq!(out.persisted(), 2);
        out.send(address(2), 1);
        out.send_logged(address(2), 2);
    });
    let mut leave = |synced, written| {
        replica.release(Instant(0), Durable { written, synced });
        let said = replica.packets().map(|(_, packet)| match packet {
            Packet::Datagram(message) => message,
            Packet::Frame(frame) => panic!("{frame:?}"),
        });
        said.collect::<Vec<u64>>()
    };
    assert!(leave(2, 3).is_empty(), "what it rests on is not synced");
    assert_eq!(leave(3, 3), [2]);
    assert_eq!(leave(4, 4), [1]);
}

#[test]
fn an_acknowledgement_waits_for_the_log_too() {
    let mut pair = Pair::new(1);
    tell(pair.replicas.get_mut(&1).expect("replica 1"), 1, at(0));
    (0..6).for_each(|_| pair.turn(false));
    let receiver = pair.replicas.get_mut(&2).expect("replica 2");
    let to_life = Incarnation(1);
    let data = anabranch_protocol::Frame::Data {
        to_life,
        number: receiver.protocol().heard.len() as u64,
        message: [7][..].into(),
    };
    hear(receiver, address(1).at(Incarnation(1)), Packet::Frame(data), at(0));
    receiver.appended(99);
    receiver.release(Instant(0), Durable { written: 99, synced: 98 });
    let acknowledged =
        |packet: &Packet<Teller>| matches!(packet, Packet::Frame(anabranch_protocol::Frame::Ack { .. }));
    assert!(!receiver.packets().any(|(_, packet)| acknowledged(&packet)));
    receiver.release(Instant(0), Durable { written: 99, synced: 99 });
    assert!(receiver.packets().any(|(_, packet)| acknowledged(&packet)));
}

#[test]
fn timers_fire_once_in_order_of_their_deadlines() {
    let mut replica = replica(1, 1, 2);
    [30, 10, 20].into_iter().for_each(|number| tell(&mut replica, number, at(0)));
    replica.fire(at(20), &mut Rng::with_seed(0), &mut Nobody(ReplyBuf::new()));
    assert_eq!(replica.protocol().fired, [10, 20]);
    replica.fire(at(40), &mut Rng::with_seed(0), &mut Nobody(ReplyBuf::new()));
    assert_eq!(replica.protocol().fired, [10, 20, 30]);
}

#[test]
fn the_protocol_learns_which_records_the_log_took_and_which_it_refused() {
    let mut replica = replica(1, 1, 2);
    let peer = address(2).at(Incarnation(1));
    hear(&mut replica, peer, Packet::Datagram(1), at(0));
    hear(&mut replica, peer, Packet::Datagram(2), at(0));
    replica.appended(1);
    hear(&mut replica, peer, Packet::Datagram(3), at(0));
    replica.appended(2);
    replica.logged(1);
    assert_eq!(replica.protocol().logged, 2);
    hear(&mut replica, peer, Packet::Datagram(4), at(0));
    assert!(replica.refused(1));
    assert!(replica.protocol().undone);
    assert!(replica.records().is_empty());
    assert_eq!(replica.protocol().logged, 4, "counting goes on after what was refused");
}
