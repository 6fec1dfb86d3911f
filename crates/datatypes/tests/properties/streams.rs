//! Random operations and effects on streams: few ids, two groups, two consumers.

use super::word;
use datatypes::Items;
use datatypes::stream::{
    Claiming, DeliveredAt, Delivery, Effect, Ids, NewId, Operation, Start, StreamId, Trim,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;

const IDS: [StreamId; 7] = [
    StreamId::new(0, 1),
    StreamId::new(5, 0),
    StreamId::new(5, 1),
    StreamId::new(5, 2),
    StreamId::new(6, 0),
    StreamId::new(1000, 0),
    StreamId::MAX,
];
/// As words.
const TEXTS: [&[u8]; 7] = [b"0-1", b"5-0", b"5-1", b"5-2", b"6-0", b"1000-0", b"x"];

fn id() -> impl Strategy<Value = StreamId> {
    prop_oneof![40 => select(&IDS[..6]), 1 => Just(StreamId::MAX)]
}

fn bound() -> impl Strategy<Value = StreamId> {
    prop_oneof![2 => Just(StreamId::ZERO), 2 => Just(StreamId::MAX), 3 => select(&IDS[..])]
}

fn ids() -> impl Strategy<Value = Ids> {
    vec(id(), 0..4).prop_map(|ids| ids.into_iter().collect())
}

fn texts() -> impl Strategy<Value = Items<'static>> {
    let text = prop_oneof![20 => select(&TEXTS[..6]), 1 => Just(TEXTS[6])];
    vec(text, 1..4).prop_map(|texts| Items::collect(texts.into_iter()))
}

/// Texts that are ids.
fn id_texts() -> impl Strategy<Value = Items<'static>> {
    vec(select(&TEXTS[..6]), 1..4).prop_map(|texts| Items::collect(texts.into_iter()))
}

/// Mostly of the same field.
fn fields() -> impl Strategy<Value = Items<'static>> {
    let field = || prop_oneof![3 => Just(&b"a"[..]), 1 => word()];
    vec((field(), word()), 1..3).prop_map(|pairs| Items::collect(pairs.into_iter().flat_map(|(f, v)| [f, v])))
}

fn group() -> impl Strategy<Value = &'static [u8]> {
    let names: [&[u8]; 3] = [b"g", b"g", b"h"];
    select(names.to_vec())
}

fn consumer() -> impl Strategy<Value = &'static [u8]> {
    let names: [&[u8]; 2] = [b"ann", b"bob"];
    select(names.to_vec())
}

fn trim() -> impl Strategy<Value = Trim> {
    let about = || option::weighted(0.3, select(&[0, 1, 100][..]));
    prop_oneof![
        (0..4u64, about()).prop_map(|(length, about)| Trim::Length { length, about }),
        (id(), about()).prop_map(|(id, about)| Trim::Id { id, about }),
    ]
}

fn start() -> impl Strategy<Value = Start> {
    prop_oneof![Just(Start::Last), bound().prop_map(|id| Start::After { id })]
}

fn claiming() -> impl Strategy<Value = Claiming> {
    let at = prop_oneof![
        (-5..500i64).prop_map(|millis| DeliveredAt::Ago { millis }),
        select(&[0, 700, 5000][..]).prop_map(|millis| DeliveredAt::Time { millis }),
    ];
    let flags = any::<(bool, bool)>();
    (select(&[0, 1, 400][..]), option::of(at), option::of(0..5u64), flags, option::weighted(0.2, id()))
        .prop_map(|(min_idle_millis, at, count, (force, just_ids), last)| Claiming {
            min_idle_millis,
            at,
            count,
            force,
            just_ids,
            last,
        })
}

fn entry_operation() -> BoxedStrategy<Operation<'static>> {
    use Operation as O;
    let new = prop_oneof![
        2 => Just(NewId::Next),
        1 => select(&[0, 5, 1000][..]).prop_map(|millis| NewId::Within { millis }),
        6 => id().prop_map(|id| NewId::Given { id }),
    ];
    prop_oneof![
        8 => (new, fields(), prop::bool::weighted(0.1), option::weighted(0.2, trim()))
            .prop_map(|(id, items, only_if_exists, trim)| O::Add { id, items, only_if_exists, trim }),
        2 => Just(O::Length),
        4 => (bound(), bound(), option::weighted(0.3, 0..3u64), any::<bool>())
            .prop_map(|(from, to, count, reverse)| O::Range { from, to, count, reverse }),
        2 => (start(), 0..3u64).prop_map(|(start, count)| O::Read { start, count }),
        3 => texts().prop_map(|ids| O::Delete { ids }),
        1 => trim().prop_map(|trim| O::Trim { trim }),
        1 => (id(), option::of(0..9u64), option::weighted(0.3, id()))
            .prop_map(|(last, added, max_deleted)| O::SetLast { last, added, max_deleted }),
    ]
    .boxed()
}

fn group_operation() -> BoxedStrategy<Operation<'static>> {
    use Operation as O;
    let key: &[u8] = b"k";
    let read = || option::of(0..5u64);
    prop_oneof![
        5 => (group(), start(), read(), any::<bool>())
            .prop_map(|(group, start, read, create)| O::CreateGroup { group, start, read, create }),
        1 => (group(), start(), read())
            .prop_map(move |(group, start, read)| O::SetGroup { key, group, start, read }),
        1 => group().prop_map(|group| O::DestroyGroup { group }),
        1 => (group(), consumer())
            .prop_map(move |(group, consumer)| O::CreateConsumer { key, group, consumer }),
        1 => (group(), consumer())
            .prop_map(move |(group, consumer)| O::DeleteConsumer { key, group, consumer }),
        1 => group().prop_map(move |group| O::FindGroup { key, group }),
        8 => (group(), consumer(), option::weighted(0.3, bound()), 0..3u64, prop::bool::weighted(0.2)).prop_map(
            move |(group, consumer, own_after, count, no_ack)| O::ReadGroup {
                key,
                group,
                consumer,
                own_after,
                count,
                no_ack
            }
        ),
        4 => (group(), texts()).prop_map(|(group, ids)| O::Acknowledge { group, ids }),
        2 => group().prop_map(move |group| O::Pending { key, group }),
        2 => (group(), bound(), bound(), 0..4u64, option::of(consumer()), select(&[0, 400][..])).prop_map(
            move |(group, from, to, count, consumer, min_idle_millis)| O::PendingEntries {
                key,
                group,
                from,
                to,
                count,
                consumer,
                min_idle_millis
            }
        ),
        4 => (group(), consumer(), id_texts(), claiming())
            .prop_map(move |(group, consumer, ids, claiming)| O::Claim { key, group, consumer, ids, claiming }),
        2 => (group(), consumer(), bound(), select(&[0, 400][..]), 1..4u64, any::<bool>()).prop_map(
            move |(group, consumer, from, min_idle_millis, count, just_ids)| O::AutoClaim {
                key,
                group,
                consumer,
                from,
                min_idle_millis,
                count,
                just_ids
            }
        ),
        3 => select(&[O::Describe, O::DescribeAll { count: 2 }, O::DescribeGroups][..]),
        1 => group().prop_map(move |group| O::DescribeConsumers { key, group }),
    ]
    .boxed()
}

pub fn operation() -> BoxedStrategy<Operation<'static>> {
    prop_oneof![entry_operation(), group_operation()].boxed()
}

fn deliveries() -> impl Strategy<Value = Vec<Delivery>> {
    let delivery = (id(), select(&[100, 900][..]), 1..3u64);
    vec(delivery.prop_map(|(id, at_millis, count)| Delivery { id, at_millis, count }), 0..3)
}

pub fn effect() -> BoxedStrategy<Effect<'static>> {
    use Effect as E;
    let few = prop_oneof![3 => Just(Ids::none()), 1 => ids()];
    let read = || option::of(0..5u64);
    prop_oneof![
        8 => (id(), fields(), few).prop_map(|(id, items, trimmed)| E::Add { id, items, trimmed }),
        4 => (ids(), any::<bool>()).prop_map(|(ids, trims)| E::Remove { ids, trims }),
        1 => (id(), option::of(0..9u64), option::of(id()))
            .prop_map(|(last, added, max_deleted)| E::SetLast { last, added, max_deleted }),
        5 => (group(), id(), read()).prop_map(|(group, last, read)| E::CreateGroup { group, last, read }),
        1 => (group(), id(), read()).prop_map(|(group, last, read)| E::SetGroup { group, last, read }),
        1 => group().prop_map(|group| E::DestroyGroup { group }),
        1 => (group(), consumer())
            .prop_map(|(group, consumer)| E::CreateConsumer { group, consumer, now_millis: 800 }),
        1 => (group(), consumer()).prop_map(|(group, consumer)| E::DeleteConsumer { group, consumer }),
        6 => (group(), consumer(), deliveries(), ids(), option::of(id()), read(), any::<bool>()).prop_map(
            |(group, consumer, deliveries, gone, last, read, shared)| E::Deliver {
                group,
                consumer,
                now_millis: 900,
                deliveries,
                gone,
                last,
                read,
                shared
            }
        ),
        4 => (group(), ids()).prop_map(|(group, ids)| E::Acknowledge { group, ids }),
    ]
    .boxed()
}
