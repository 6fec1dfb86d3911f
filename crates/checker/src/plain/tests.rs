//! The second model agrees with the type library on every operation, and notices where an effect is another one.

use super::disagreement;
use crate::history::{Outcome, Step, Transaction};
use crate::invocations::Decoded;
use crate::replay::{Cells, execute_step};
use crate::{Bytes, Key, render};
use datatypes::list::{self, End};
use datatypes::register::{self, Condition, Deadline, SetReply};
use datatypes::stream::{self, Claiming, NewId, Start, StreamId, Trim};
use datatypes::{Context, Effect, Items, Operation, counter, dict, key, prepare, set};
use proptest::prelude::*;
use types::{ReplyBuf, Rng};

const KEYS: [&[u8]; 2] = [b"x", b"y"];
const TEXTS: [&[u8]; 5] = [b"a", b"b", b"7", b"-1", b""];

fn text() -> impl Strategy<Value = &'static [u8]> {
    prop::sample::select(TEXTS.to_vec())
}

fn texts() -> impl Strategy<Value = Items<'static>> {
    prop::collection::vec(text(), 1..4).prop_map(|texts| Items::collect(texts.into_iter()))
}

fn index() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -4i64..4, 1 => Just(i64::MIN), 1 => Just(i64::MAX)]
}

fn summand() -> impl Strategy<Value = i64> {
    prop_oneof![8 => -3i64..4, 1 => Just(i64::MAX), 1 => Just(i64::MIN)]
}

fn end() -> impl Strategy<Value = End> {
    prop::sample::select(vec![End::Front, End::Back])
}

fn on_register() -> impl Strategy<Value = register::Operation<'static>> {
    use register::Operation;
    let condition = prop::sample::select(vec![Condition::Always, Condition::IfAbsent, Condition::IfPresent]);
    let reply = prop::sample::select(vec![SetReply::Status, SetReply::Flag, SetReply::Old]);
    let deadline = prop_oneof![
        Just(Deadline::Clear),
        Just(Deadline::Keep),
        (0u64..30).prop_map(|millis| Deadline::At { millis })
    ];
    prop_oneof![
        Just(Operation::Get),
        Just(Operation::Length),
        Just(Operation::GetDelete),
        text().prop_map(|value| Operation::Append { value }),
        summand().prop_map(|by| Operation::Increment { by }),
        (text(), deadline, condition, reply).prop_map(|(value, deadline, condition, reply)| Operation::Set {
            value,
            deadline,
            condition,
            reply
        }),
    ]
}

fn on_set() -> impl Strategy<Value = set::Operation<'static>> {
    use set::Operation;
    prop_oneof![
        texts().prop_map(|members| Operation::Add { members }),
        texts().prop_map(|members| Operation::Remove { members }),
        text().prop_map(|member| Operation::Contains { member }),
        texts().prop_map(|members| Operation::ContainsMany { members }),
        Just(Operation::Members),
        Just(Operation::Length),
    ]
}

fn on_dict() -> impl Strategy<Value = dict::Operation<'static>> {
    use dict::{Operation, PutReply};
    let pairs = prop::collection::vec((text(), text()), 1..3);
    let pairs =
        pairs.prop_map(|pairs| Items::collect(pairs.into_iter().flat_map(|(field, value)| [field, value])));
    let reply = prop::sample::select(vec![PutReply::Added, PutReply::Status]);
    prop_oneof![
        (pairs, reply).prop_map(|(pairs, reply)| Operation::Put { pairs, reply }),
        (text(), text()).prop_map(|(field, value)| Operation::PutIfAbsent { field, value }),
        text().prop_map(|field| Operation::Get { field }),
        texts().prop_map(|fields| Operation::GetMany { fields }),
        prop::sample::select(vec![
            Operation::GetAll,
            Operation::Fields,
            Operation::Values,
            Operation::Length
        ]),
        text().prop_map(|field| Operation::Contains { field }),
        text().prop_map(|field| Operation::FieldLength { field }),
        texts().prop_map(|fields| Operation::Delete { fields }),
        (text(), summand()).prop_map(|(field, by)| Operation::Increment { field, by }),
        on_deadlines(),
        on_deadlines(),
    ]
}

fn condition() -> impl Strategy<Value = key::ExpireCondition> {
    let flags = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    flags.prop_map(|(none, some, later, earlier)| key::ExpireCondition {
        if_none: none && !some,
        if_some: some && !none,
        if_later: later && !earlier,
        if_earlier: earlier && !later,
    })
}

fn on_deadlines() -> impl Strategy<Value = dict::Operation<'static>> {
    use dict::{Operation, PutCondition};
    let formats = [
        key::TimeFormat::SecondsLeft,
        key::TimeFormat::MillisLeft,
        key::TimeFormat::SecondsAt,
        key::TimeFormat::MillisAt,
    ];
    let conditions = [PutCondition::Always, PutCondition::IfAbsent, PutCondition::IfPresent];
    let deadline = prop_oneof![
        Just(Deadline::Clear),
        Just(Deadline::Keep),
        (1u64..30).prop_map(|millis| Deadline::At { millis }),
    ];
    prop_oneof![
        (texts(), 1u64..30, condition()).prop_map(|(fields, at_millis, condition)| Operation::ExpireAt {
            fields,
            at_millis,
            condition
        }),
        (texts(), prop::sample::select(formats.to_vec()))
            .prop_map(|(fields, format)| Operation::Deadlines { fields, format }),
        Just(Operation::FirstDeadline),
        texts().prop_map(|fields| Operation::Persist { fields }),
        (texts(), 0u64..30).prop_map(|(fields, at_millis)| Operation::GetAndExpire { fields, at_millis }),
        texts().prop_map(|fields| Operation::GetAndDelete { fields }),
        (texts(), text(), prop::sample::select(conditions.to_vec()), deadline).prop_map(
            |(fields, value, condition, deadline)| {
                let pairs = Items::collect(fields.iter().flat_map(|field| [field, value]));
                Operation::PutUntil { pairs, condition, deadline }
            }
        ),
    ]
}

fn on_list() -> impl Strategy<Value = list::Operation<'static>> {
    use list::Operation;
    prop_oneof![
        3 => (end(), texts(), any::<bool>()).prop_map(|(end, values, only_if_exists)| Operation::Push {
            end,
            values,
            only_if_exists
        }),
        1 => (end(), prop::option::of(0u64..4)).prop_map(|(end, count)| Operation::Pop { end, count }),
        1 => (index(), index()).prop_map(|(start, stop)| Operation::Range { start, stop }),
        1 => Just(Operation::Length),
        1 => index().prop_map(|index| Operation::Index { index }),
        1 => (index(), text()).prop_map(|(index, value)| Operation::Put { index, value }),
        1 => (index(), index()).prop_map(|(start, stop)| Operation::Trim { start, stop }),
        1 => (index(), text()).prop_map(|(count, value)| Operation::Remove { count, value }),
        1 => (any::<bool>(), text(), text())
            .prop_map(|(before, pivot, value)| Operation::InsertNextTo { before, pivot, value }),
    ]
}

fn on_stream() -> impl Strategy<Value = stream::Operation<'static>> {
    use stream::Operation;
    const WORDS: [&[u8]; 4] = [b"1-0", b"1-1", b"2-0", b"3"];
    let key = KEYS[0];
    let id = || (1u64..5, 0u64..2).prop_map(|(millis, sequence)| StreamId::new(millis, sequence));
    let bound = || prop_oneof![Just(StreamId::ZERO), Just(StreamId::MAX), id()];
    let start = || prop_oneof![Just(Start::Last), bound().prop_map(|id| Start::After { id })];
    let trim = || {
        let about = None;
        prop_oneof![
            (0u64..4).prop_map(move |length| Trim::Length { length, about }),
            id().prop_map(move |id| Trim::Id { id, about })
        ]
    };
    let words = || {
        let some = prop::sample::subsequence(WORDS.to_vec(), 1..3);
        some.prop_map(|words| Items::collect(words.into_iter()))
    };
    let group = || prop::sample::select(vec![&b"g"[..], b"h"]);
    let consumer = || prop::sample::select(vec![&b"ann"[..], b"bob"]);
    let count = || 0u64..3;
    prop_oneof![
        4 => (id(), text(), prop::option::weighted(0.3, trim())).prop_map(|(id, text, trim)| Operation::Add {
            id: NewId::Given { id },
            items: Items::two(b"f", text),
            only_if_exists: false,
            trim
        }),
        1 => Just(Operation::Length),
        1 => (bound(), bound(), prop::option::of(count()), any::<bool>())
            .prop_map(|(from, to, count, reverse)| Operation::Range { from, to, count, reverse }),
        1 => (start(), count()).prop_map(|(start, count)| Operation::Read { start, count }),
        1 => words().prop_map(|ids| Operation::Delete { ids }),
        1 => trim().prop_map(|trim| Operation::Trim { trim }),
        2 => (group(), start(), any::<bool>())
            .prop_map(|(group, start, create)| Operation::CreateGroup { group, start, read: None, create }),
        1 => (group(), start())
            .prop_map(move |(group, start)| Operation::SetGroup { key, group, start, read: None }),
        1 => group().prop_map(|group| Operation::DestroyGroup { group }),
        1 => (group(), consumer())
            .prop_map(move |(group, consumer)| Operation::DeleteConsumer { key, group, consumer }),
        3 => (group(), consumer(), count(), prop::bool::weighted(0.2)).prop_map(
            move |(group, consumer, count, no_ack)| Operation::ReadGroup {
                key,
                group,
                consumer,
                own_after: None,
                count,
                no_ack
            }
        ),
        1 => (group(), words()).prop_map(|(group, ids)| Operation::Acknowledge { group, ids }),
        1 => (group(), consumer(), words(), any::<bool>()).prop_map(
            move |(group, consumer, ids, just_ids)| Operation::Claim {
                key,
                group,
                consumer,
                ids,
                claiming: Claiming { just_ids, ..Claiming::default() }
            }
        ),
        1 => group().prop_map(move |group| Operation::Pending { key, group }),
    ]
}

fn on_counter() -> impl Strategy<Value = counter::Operation> {
    use counter::Operation;
    prop_oneof![
        summand().prop_map(|by| Operation::Add { by }),
        Just(Operation::Get),
        (summand(), summand()).prop_map(|(by, floor)| Operation::Take { by, floor }),
        summand().prop_map(|bound| Operation::AtLeast { bound, known: None }),
    ]
}

fn on_any() -> impl Strategy<Value = key::Operation<'static>> {
    use key::Operation;
    prop_oneof![
        Just(Operation::Delete),
        Just(Operation::Exists),
        Just(Operation::Persist),
        (0u64..30, condition())
            .prop_map(|(at_millis, condition)| Operation::ExpireAt { at_millis, condition }),
    ]
}

/// Mostly of one type for each key, so that they meet values of their own.
fn operation() -> impl Strategy<Value = Operation<'static>> {
    prop_oneof![
        on_register().prop_map(Operation::Register),
        on_set().prop_map(Operation::Set),
        on_dict().prop_map(Operation::Dict),
        on_list().prop_map(Operation::List),
        on_counter().prop_map(Operation::Counter),
        on_stream().prop_map(Operation::Stream),
        on_any().prop_map(Operation::Key),
    ]
}

fn operations() -> impl Strategy<Value = Vec<Operation<'static>>> {
    let of_one = prop_oneof![
        prop::collection::vec(on_register().prop_map(Operation::Register), 1..12),
        prop::collection::vec(on_set().prop_map(Operation::Set), 1..12),
        prop::collection::vec(on_dict().prop_map(Operation::Dict), 1..12),
        prop::collection::vec(on_list().prop_map(Operation::List), 1..12),
        prop::collection::vec(on_counter().prop_map(Operation::Counter), 1..12),
        prop::collection::vec(on_stream().prop_map(Operation::Stream), 1..16),
    ];
    (of_one, prop::collection::vec(operation(), 0..4)).prop_map(|(mut all, more)| {
        let every = all.len() / (more.len() + 1) + 1;
        more.into_iter().enumerate().for_each(|(place, one)| all.insert((place * every).min(all.len()), one));
        all
    })
}

/// A transaction of these on two keys in turn, with the replies that the library gives on nothing, at a time.
fn transaction(operations: &[Operation<'_>], now_millis: u64) -> Transaction {
    let mut random = Rng::with_seed(0);
    let mut cells = [datatypes::Cell::ABSENT, datatypes::Cell::ABSENT];
    let mut steps = Vec::new();
    for (turn, operation) in operations.iter().enumerate() {
        // Two on one key, one on the other.
        let at = usize::from(turn % 3 == 2);
        if let Some(expiry) = cells[at].expiry(now_millis) {
            datatypes::apply::<false>(&mut cells[at], &expiry);
        }
        let (mut reply, mut bytes) = (ReplyBuf::new(), Vec::new());
        let mut context = Context { now_millis, random: &mut random, site: None };
        if let Some(effect) = prepare(&cells[at], operation, &mut context, &mut reply) {
            datatypes::apply::<false>(&mut cells[at], &effect);
        }
        operation.encode(&mut bytes);
        steps.push(Step {
            key: Key(KEYS[at].to_vec()),
            operation: Bytes(bytes),
            text: String::new(),
            blind: false,
            reply: Some(render(&reply)),
            state: None,
        });
    }
    Transaction {
        number: 1,
        session: 1,
        invoked: 0,
        responded: Some(1),
        outcome: Outcome::Committed,
        steps,
        claim: None,
        follows: None,
        thread: None,
        given_up: false,
        loss_reported: false,
        constraints: None,
        at_rest: false,
    }
}

/// What the library leaves of a transaction on nothing, after `more`.
fn executed<'h>(decoded: &Decoded<'h>, now_millis: u64, more: Option<&Effect<'_>>) -> Cells<'h> {
    let mut cells = Cells::default();
    for step in &decoded.steps {
        execute_step(step, now_millis, &mut cells).expect("the replies are its own");
    }
    more.iter().for_each(|effect| cells.apply(KEYS[0], effect));
    cells
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn both_models_agree(operations in operations(), now_millis in 0u64..20) {
        let transaction = transaction(&operations, now_millis);
        let decoded = Decoded::new(&transaction).expect("it is well formed");
        let left = executed(&decoded, now_millis, None);
        prop_assert_eq!(disagreement(&decoded, None, now_millis, (&Cells::default(), &left)), None);
    }

    #[test]
    fn a_wrong_effect_and_a_wrong_reply_are_noticed(operations in operations(), wrong in 0usize..3) {
        let transaction = transaction(&operations, 0);
        let effect = [
            Effect::Register(register::Effect::Set { value: b"wrong", deadline: Deadline::Clear }),
            Effect::Set(set::Effect::Add { members: Items::one(b"wrong") }),
            Effect::List(list::Effect::Push { end: End::Back, values: Items::one(b"wrong") }),
        ];
        let decoded = Decoded::new(&transaction).expect("it is well formed");
        let (before, left) = (executed(&decoded, 0, None), executed(&decoded, 0, Some(&effect[wrong])));
        let noticed = disagreement(&decoded, None, 0, (&Cells::default(), &left)).is_some();
        prop_assert_eq!(noticed, before.cell(KEYS[0]) != left.cell(KEYS[0]));
        let mut misled = transaction.clone();
        misled.steps[0].reply = Some("\"wrong\"".into());
        let misled = Decoded::new(&misled).expect("it is well formed");
        prop_assert!(disagreement(&misled, None, 0, (&Cells::default(), &before)).is_some());
    }
}
