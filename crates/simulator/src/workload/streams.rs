//! Operations on streams. A log only grows, and its one group stays: what was added and acknowledged can be checked at
//! rest. With a stream everything is done.
//!
//! Ids are the server's or given; of those given lately some are removed, acknowledged and claimed.

use super::Kind;
use datatypes::stream::{Claiming, NewId, Operation, Start, StreamId, Trim};
use datatypes::{Items, key};
use std::collections::VecDeque;
use types::Rng;

/// The group of logs; streams have one more.
pub(crate) const GROUP: &[u8] = b"g";
/// The sequence of a given id is not below this: those that servers choose begin with the region's number.
const FIRST: u64 = 100;
/// What is behind the clock at most when it is given, in milliseconds.
const AHEAD: u64 = 20;
/// So many of the ids that were given last are chosen from.
const RECENT: usize = 8;

/// Ids that clients gave, the newest last.
#[derive(Default)]
pub(super) struct Given(VecDeque<StreamId>);

impl Given {
    fn new_id(&mut self, now_millis: u64, number: u64, random: &mut Rng) -> StreamId {
        let id = StreamId::new(now_millis + random.u64(..AHEAD), FIRST + number);
        self.0.push_back(id);
        if self.0.len() > RECENT {
            self.0.pop_front();
        }
        id
    }

    fn some(&self, random: &mut Rng) -> StreamId {
        match self.0.len() {
            0 => StreamId::new(1, 0),
            len => self.0[random.usize(..len)],
        }
    }
}

/// Everything that is in a stream.
pub(super) fn entries() -> datatypes::Operation<'static> {
    let (from, to) = (StreamId::ZERO, StreamId::MAX);
    datatypes::Operation::Stream(Operation::Range { from, to, count: None, reverse: false })
}

/// What a log's group has delivered and nobody has acknowledged.
pub(super) fn pending(key: &[u8]) -> datatypes::Operation<'_> {
    datatypes::Operation::Stream(Operation::Pending { key, group: GROUP })
}

/// An addition that is never refused.
pub(super) fn addition(value: &[u8]) -> datatypes::Operation<'_> {
    datatypes::Operation::Stream(add(NewId::Next, value, None))
}

fn add(id: NewId, value: &[u8], trim: Option<Trim>) -> Operation<'_> {
    Operation::Add { id, items: Items::two(b"f", value), only_if_exists: false, trim }
}

fn group(kind: Kind, random: &mut Rng) -> &'static [u8] {
    if kind == Kind::Stream && random.u32(..3) == 0 { b"h" } else { GROUP }
}

/// A read, as it is encoded.
pub(super) fn read(key: &[u8], kind: Kind, given: &Given, random: &mut Rng) -> Vec<u8> {
    let operation = match random.u32(..6) {
        0 => Operation::Length,
        1 => Operation::Read { start: Start::After { id: given.some(random) }, count: random.u64(..3) },
        2 => Operation::Pending { key, group: group(kind, random) },
        3 => {
            let (from, to, count) = (StreamId::ZERO, given.some(random), Some(random.u64(1..4)));
            Operation::Range { from, to, count, reverse: random.bool() }
        }
        _ => return super::encode(&entries()),
    };
    super::encode(&datatypes::Operation::Stream(operation))
}

/// A write, as it is encoded. `number` is unlike that of all other writes, as `value` is.
pub(super) fn write(
    (key, kind): (&[u8], Kind),
    (value, number): (&[u8], u64),
    now_millis: u64,
    given: &mut Given,
    random: &mut Rng,
) -> Vec<u8> {
    if kind == Kind::Stream && random.u32(..4) == 0 {
        return super::encode(&rare(key, given, random));
    }
    let group = group(kind, random);
    let consumer = [&b"ann"[..], b"bob"][random.usize(..2)];
    let text = given.some(random).with_text(<[u8]>::to_vec);
    let ids = Items::one(&text);
    let operation = match random.u32(..12) {
        0 => {
            let (start, read, create) = (Start::After { id: StreamId::ZERO }, None, true);
            Operation::CreateGroup { group, start, read, create }
        }
        1..=3 => {
            let (count, no_ack) = (random.u64(..3), kind == Kind::Stream && random.u32(..6) == 0);
            Operation::ReadGroup { key, group, consumer, own_after: None, count, no_ack }
        }
        4 => {
            let (own_after, count, no_ack) = (Some(StreamId::ZERO), 0, false);
            Operation::ReadGroup { key, group, consumer, own_after, count, no_ack }
        }
        5 => Operation::Acknowledge { group, ids },
        6 => Operation::Claim { key, group, consumer, ids, claiming: Claiming::default() },
        7 => {
            let (from, min_idle_millis, count, just_ids) =
                (StreamId::ZERO, 0, random.u64(1..4), random.bool());
            Operation::AutoClaim { key, group, consumer, from, min_idle_millis, count, just_ids }
        }
        8 | 9 => add(NewId::Next, value, None),
        _ => {
            let id = NewId::Given { id: given.new_id(now_millis, number, random) };
            let trim = Trim::Length { length: random.u64(2..6), about: None };
            add(id, value, Some(trim).filter(|_| kind == Kind::Stream && random.u32(..4) == 0))
        }
    };
    super::encode(&datatypes::Operation::Stream(operation))
}

/// What would make it hard to tell what a stream must hold.
fn rare<'a>(key: &'a [u8], given: &Given, random: &mut Rng) -> datatypes::Operation<'a> {
    let group = group(Kind::Stream, random);
    let id = given.some(random);
    datatypes::Operation::Stream(match random.u32(..8) {
        0 => return datatypes::Operation::Key(key::Operation::Delete),
        1 => Operation::Trim { trim: Trim::Length { length: random.u64(..6), about: None } },
        2 => Operation::Trim { trim: Trim::Id { id, about: None } },
        3 => Operation::DestroyGroup { group },
        4 => Operation::SetGroup { key, group, start: Start::After { id }, read: None },
        5 => Operation::DeleteConsumer { key, group, consumer: b"ann" },
        _ => {
            let text = id.with_text(<[u8]>::to_vec);
            Operation::Delete { ids: Items::collect([text.as_slice()].into_iter()) }
        }
    })
}
