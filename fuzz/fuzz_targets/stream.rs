//! Any bytes behind a good checksum as the payload of a stream, and behind them what clients do to it: no panic; every state
//! reads as it was written, in our form and in Redis's, and every effect can be undone and redone.
#![no_main]

use datatypes::dump::{decode, encode, sign};
use datatypes::stream::{Claiming, NewId, Operation, Start, StreamId, Trim};
use datatypes::{Cell, Context, Items, Value, apply, exchange, prepare};
use libfuzzer_sys::fuzz_target;
use types::{Reader, ReplyBuf, Rng, Wire};

/// What RDB files call streams.
const TAGS: [u8; 3] = [15, 19, 21];
/// The bytes that choose what a client does.
const CHOICE: usize = 4;

fuzz_target!(|bytes: &[u8]| {
    let [tag, choices, rest @ ..] = bytes else { return };
    let (chosen, value) = rest.split_at((usize::from(*choices) * CHOICE).min(rest.len()));
    let mut payload = [&[TAGS[usize::from(*tag) % TAGS.len()]], value].concat();
    sign(&mut payload);
    let Ok(value) = decode(&payload) else { return };
    assert!(matches!(value, Value::Stream(_)));
    let mut cell = Cell::decode(&mut Reader::new(&written(&value))).expect("it was written");
    for (choice, now_millis) in chosen.as_chunks::<CHOICE>().0.iter().zip(1..) {
        execute(choice, now_millis, &mut cell);
    }
});

/// A cell that holds this value, in our form, which must read as the same.
fn written(value: &Value) -> Vec<u8> {
    let cell = Cell { value: Some(value.clone()), ..Cell::default() };
    let mut bytes = Vec::new();
    cell.encode(&mut bytes);
    assert_eq!(Cell::decode(&mut Reader::new(&bytes)), Ok(cell));
    bytes
}

fn execute(choice: &[u8; CHOICE], now_millis: u64, cell: &mut Cell) {
    let Some(Value::Stream(stream)) = &cell.value else { return };
    let group = stream.groups().next().map_or_else(|| b"g".to_vec(), |(name, _)| name.to_vec());
    let [_, place, low, _] = *choice;
    let entry = stream.entries.iter().nth(place.into()).map(|entry| entry.id);
    let id = entry.unwrap_or(StreamId::new(place.into(), low.into()));
    let text = id.with_text(<[u8]>::to_vec);
    let operation = datatypes::Operation::Stream(operation(choice, id, &group, &text));
    let (mut random, mut reply) = (Rng::with_seed(0), ReplyBuf::new());
    let mut context = Context { now_millis, random: &mut random, site: None };
    let Some(effect) = prepare(cell, &operation, &mut context, &mut reply) else { return };
    assert!(!operation.is_read(), "{operation:?}");
    let before = cell.clone();
    let mut patch = apply::<true>(cell, &effect);
    let after = cell.clone();
    exchange(cell, &mut patch);
    assert_eq!(*cell, before, "undone");
    exchange(cell, &mut patch);
    assert_eq!(*cell, after, "redone");
    if let Some(value) = &cell.value {
        written(value);
        let payload = encode(value).expect("a type of Redis");
        let restored = decode(&payload).expect("what was written is read");
        assert_eq!(encode(&restored), Some(payload));
    }
}

fn operation<'a>(choice: &[u8; CHOICE], id: StreamId, group: &'a [u8], text: &'a [u8]) -> Operation<'a> {
    const KEY: &[u8] = b"k";
    const CONSUMERS: [&[u8]; 2] = [b"c", b"d"];
    let [which, _, _, by] = *choice;
    let consumer = CONSUMERS[usize::from(by) % CONSUMERS.len()];
    let (count, ids, start) = (u64::from(by), Items::one(text), Start::After { id });
    let about = (by % 3 == 0).then_some(0);
    match which % 22 {
        0 => {
            let trim = Some(Trim::Length { length: count, about });
            Operation::Add {
                id: NewId::Given { id },
                items: Items::two(b"f", text),
                only_if_exists: false,
                trim,
            }
        }
        1 => Operation::Add {
            id: NewId::Next,
            items: Items::two(b"f", b"v"),
            only_if_exists: true,
            trim: None,
        },
        2 => Operation::Range { from: id, to: StreamId::MAX, count: Some(count), reverse: by % 2 == 0 },
        3 => Operation::Read { start, count },
        4 => Operation::Delete { ids },
        5 => Operation::Trim { trim: Trim::Id { id, about } },
        6 => Operation::Trim { trim: Trim::Length { length: count, about } },
        7 => Operation::SetLast { last: id, added: Some(count), max_deleted: None },
        8 => Operation::CreateGroup { group, start, read: Some(count), create: false },
        9 => Operation::SetGroup { key: KEY, group, start, read: None },
        10 => Operation::DestroyGroup { group },
        11 => Operation::CreateConsumer { key: KEY, group, consumer },
        12 => Operation::DeleteConsumer { key: KEY, group, consumer },
        13 => Operation::ReadGroup { key: KEY, group, consumer, own_after: None, count, no_ack: by % 4 == 0 },
        14 => Operation::ReadGroup { key: KEY, group, consumer, own_after: Some(id), count, no_ack: false },
        15 => Operation::Acknowledge { group, ids },
        16 => {
            let claiming = Claiming { force: by % 2 == 0, just_ids: by % 4 == 0, ..Claiming::default() };
            Operation::Claim { key: KEY, group, consumer, ids, claiming }
        }
        17 => {
            let just_ids = by % 2 == 0;
            Operation::AutoClaim {
                key: KEY,
                group,
                consumer,
                from: id,
                min_idle_millis: 0,
                count: count + 1,
                just_ids,
            }
        }
        18 => Operation::Pending { key: KEY, group },
        19 => Operation::DescribeAll { count },
        20 => Operation::DescribeConsumers { key: KEY, group },
        _ => Operation::DescribeGroups,
    }
}
