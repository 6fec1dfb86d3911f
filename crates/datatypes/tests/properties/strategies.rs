//! Random cells, operations and effects of every type.

#[path = "streams.rs"]
mod streams;

use datatypes::geo::{Point, Shape};
use datatypes::list::{self, Positions};
use datatypes::register::bits::{BitRange, Change, Field, FieldStep, Overflow, Unit};
use datatypes::register::{LongDouble, Parsed, hyperloglog};
use datatypes::scored_set::{
    self, AddFlags, Center, LexBound, Listing, Order, RangeBy, ScoreBound, ScoredItems, Search,
};
use datatypes::{
    Cell, Effect, Items, Kind, Operation, apply, counter, dict, key, register, set, summary, top, uid, user,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Longer than what the packed forms of the collections hold.
const LONG: &[u8] = &[b'x'; 80];
const WORDS: [&[u8]; 9] = [b"a", b"b", b"c", b"0", b"7", b"-3", b"007", b"", LONG];
/// The last two are geohashes, of Palermo and Catania.
const SCORES: [f64; 11] = [
    0.0,
    -0.0,
    1.0,
    1.5,
    -2.0,
    1e300,
    0.1,
    f64::INFINITY,
    f64::NEG_INFINITY,
    3_479_099_956_230_698.0,
    3_479_447_370_796_909.0,
];
const DEADLINES: [u64; 2] = [2000, 3000];

pub const KINDS: [Kind; 10] = [
    Kind::Register,
    Kind::Dict,
    Kind::Set,
    Kind::ScoredSet,
    Kind::List,
    Kind::Counter,
    Kind::SummaryBag,
    Kind::Top,
    Kind::UidGenerator,
    Kind::Stream,
];

/// A type that a user defined.
pub fn auction() -> user::Type {
    static AUCTION: OnceLock<user::Type> = OnceLock::new();
    let register = || user::register("auction", 1, usertypes::Module::native::<auction::Auction>());
    *AUCTION.get_or_init(|| register().expect("it is the only one"))
}

/// Every type, and one that a user defined.
pub fn kinds() -> [Kind; 11] {
    let user = Kind::User(auction());
    std::array::from_fn(|place| KINDS.get(place).copied().unwrap_or(user))
}

/// Half of them one of two, so that two steps often name the same.
pub fn word() -> impl Strategy<Value = &'static [u8]> {
    prop_oneof![select(&WORDS[..2]), select(&WORDS[..])]
}

fn score() -> impl Strategy<Value = f64> {
    select(&SCORES[..])
}

fn summand() -> impl Strategy<Value = i64> {
    select(&[1, -3, 0, 40, i64::MAX, i64::MIN][..])
}

/// Every representation of a few strings.
fn items(len: impl Into<proptest::collection::SizeRange>) -> impl Strategy<Value = Items<'static>> {
    vec(word(), len).prop_map(|words| match words[..] {
        [word] => Items::one(word),
        [first, second] => Items::two(first, second),
        _ => Items::collect(words.into_iter()),
    })
}

fn pairs() -> impl Strategy<Value = Items<'static>> {
    vec((word(), word()), 1..4).prop_map(|pairs| match pairs[..] {
        [(field, value)] => Items::two(field, value),
        _ => Items::collect(pairs.iter().flat_map(|(field, value)| [*field, *value])),
    })
}

/// Now and then of one score, so that ranges of members mean something.
fn scored_items() -> impl Strategy<Value = ScoredItems<'static>> {
    let zero = word().prop_map(|member| (0.0, member));
    prop_oneof![
        vec((score(), word()), 1..4).prop_map(|items| items.into_iter().collect()),
        vec(zero, 1..4).prop_map(|items| items.into_iter().collect()),
    ]
}

fn index() -> impl Strategy<Value = i64> {
    prop_oneof![5 => -1..2i64, 4 => -6..6i64, 1 => select(&[i64::MIN, i64::MAX][..])]
}

pub fn key_operation() -> impl Strategy<Value = key::Operation<'static>> {
    use key::{ObjectField as F, Operation as O, TimeFormat as T};
    let condition = any::<[bool; 4]>().prop_map(|[if_none, if_some, if_later, if_earlier]| {
        key::ExpireCondition { if_none, if_some, if_later, if_earlier }
    });
    prop_oneof![
        Just(O::Delete),
        Just(O::Exists),
        Just(O::Type),
        (select(&[500, 2000, 3000][..]), condition)
            .prop_map(|(at_millis, condition)| O::ExpireAt { at_millis, condition }),
        select(&[T::SecondsLeft, T::MillisLeft, T::SecondsAt, T::MillisAt][..]).prop_map(O::Deadline),
        Just(O::Persist),
        select(&[0, 500, 3000][..]).prop_map(|at_millis| O::GetAndExpire { at_millis }),
        Just(O::Copy),
        Just(O::Take),
        cell().prop_map(|cell| O::Restore(encoded(&cell).into())),
        cell().prop_map(|cell| O::RestoreAbsent(encoded(&cell).into())),
        Just(O::Dump),
        select(&[F::Encoding, F::References, F::IdleTime, F::Frequency][..]).prop_map(O::Object),
    ]
}

pub fn register_operation() -> impl Strategy<Value = register::Operation<'static>> {
    use register::{Condition as C, Operation as O, SetReply as R};
    let condition = select(&[C::Always, C::IfAbsent, C::IfPresent][..]);
    let reply = select(&[R::Status, R::Flag, R::Old][..]);
    prop_oneof![
        1 => Just(O::Get),
        1 => (word(), deadline(), condition, reply).prop_map(|(value, deadline, condition, reply)| O::Set {
            value,
            deadline,
            condition,
            reply
        }),
        1 => word().prop_map(|value| O::Append { value }),
        1 => Just(O::Length),
        1 => summand().prop_map(|by| O::Increment { by }),
        1 => Just(O::GetDelete),
        3 => register_edit_operation(),
        3 => register_part_operation(),
    ]
}

fn register_part_operation() -> impl Strategy<Value = register::Operation<'static>> {
    use register::Operation as O;
    prop_oneof![
        (index(), index()).prop_map(|(start, end)| O::GetRange { start, end }),
        offset().prop_map(|offset| O::GetBit { offset }),
        bit_range().prop_map(|range| O::CountBits { range }),
        (any::<bool>(), bit_range()).prop_map(|(bit, range)| O::FindBit { bit, range }),
        vec(field().prop_map(|field| FieldStep { field, change: Change::Get }), 1..3)
            .prop_map(|steps| O::BitField { steps }),
        Just(O::CountDistinct),
    ]
}

fn register_edit_operation() -> impl Strategy<Value = register::Operation<'static>> {
    use register::{Operation as O, UnionReply as R};
    prop_oneof![
        (0..30u64, word()).prop_map(|(offset, value)| O::SetRange { offset, value }),
        float().prop_map(|by| O::IncrementFloat { by }),
        (offset(), any::<bool>()).prop_map(|(offset, bit)| O::SetBit { offset, bit }),
        vec(field_step(), 1..4).prop_map(|steps| O::BitField { steps }),
        (hyperloglog(), select(&[R::Changed, R::Status][..]))
            .prop_map(|(with, reply)| O::Unite { with, reply }),
    ]
}

/// The offset of a bit.
fn offset() -> impl Strategy<Value = u64> {
    select(&[0, 1, 7, 9, 70, 200][..])
}

fn bit_range() -> impl Strategy<Value = BitRange> {
    let unit = select(&[Unit::Byte, Unit::Bit][..]);
    (index(), option::of(index()), unit).prop_map(|(start, end, unit)| BitRange { start, end, unit })
}

fn field() -> impl Strategy<Value = Field> {
    (any::<bool>(), select(&[1, 4, 8, 17, 63][..]), offset()).prop_map(|(signed, bits, offset)| Field {
        signed,
        bits,
        offset,
    })
}

fn field_step() -> impl Strategy<Value = FieldStep> {
    let overflow = select(&[Overflow::Wrap, Overflow::Saturate, Overflow::Fail][..]);
    let change = (summand(), overflow, 0..5).prop_map(|(number, overflow, which)| match which {
        0 => Change::Get,
        1 | 2 => Change::Set { value: number, overflow },
        _ => Change::Add { by: number, overflow },
    });
    (field(), change).prop_map(|(field, change)| FieldStep { field, change })
}

/// A half, or a whole number.
fn float() -> impl Strategy<Value = LongDouble> {
    select(&["0.5", "-1.5", "3", "0"][..]).prop_filter_map("finite", |text| {
        match LongDouble::parse(text.as_bytes()) {
            Some(Parsed::Finite(number)) => Some(number),
            _ => None,
        }
    })
}

/// Few elements, seldom so many that the string is dense.
fn hyperloglog() -> impl Strategy<Value = Cow<'static, [u8]>> {
    let many = || (0..3000u32).map(u32::to_le_bytes);
    let dense = Just(()).prop_map(move |()| {
        let elements: Vec<[u8; 4]> = many().collect();
        hyperloglog::of_elements(elements.iter().map(|element| &element[..]))
    });
    let few = vec(word(), 0..3).prop_map(|words| hyperloglog::of_elements(words.into_iter()));
    prop_oneof![15 => few, 1 => dense].prop_map(Cow::Owned)
}

fn deadline() -> impl Strategy<Value = register::Deadline> {
    use register::Deadline as D;
    prop_oneof![Just(D::Clear), Just(D::Keep), select(&DEADLINES[..]).prop_map(|millis| D::At { millis })]
}

pub fn dict_operation() -> impl Strategy<Value = dict::Operation<'static>> {
    use dict::{Operation as O, PutReply as R};
    prop_oneof![
        4 => (pairs(), select(&[R::Added, R::Status][..])).prop_map(|(pairs, reply)| O::Put { pairs, reply }),
        1 => (word(), word()).prop_map(|(field, value)| O::PutIfAbsent { field, value }),
        1 => word().prop_map(|field| O::Get { field }),
        1 => items(1..4).prop_map(|fields| O::GetMany { fields }),
        1 => select(&[O::GetAll, O::Fields, O::Values, O::Length][..]),
        1 => word().prop_map(|field| O::Contains { field }),
        1 => word().prop_map(|field| O::FieldLength { field }),
        3 => items(1..4).prop_map(|fields| O::Delete { fields }),
        3 => (word(), summand()).prop_map(|(field, by)| O::Increment { field, by }),
        1 => (piece(), any::<bool>())
            .prop_map(|((cursor, count, pattern), values)| O::Scan { cursor, count, pattern, values }),
        1 => option::of((-4..5i64, any::<bool>())).prop_map(|chosen| O::Random {
            count: chosen.map(|(count, _)| count),
            values: chosen.is_some_and(|(_, values)| values),
        }),
        2 => (word(), long_double()).prop_map(|(field, by)| O::IncrementFloat { field, by }),
        8 => dict_deadline_operation(),
    ]
}

/// On the deadlines of fields; one of them has passed.
fn dict_deadline_operation() -> impl Strategy<Value = dict::Operation<'static>> {
    use dict::{Operation as O, PutCondition as P};
    use key::{ExpireCondition as C, TimeFormat as F};
    let none = C::default();
    let conditions = [
        none,
        C { if_none: true, ..none },
        C { if_some: true, ..none },
        C { if_later: true, ..none },
        C { if_earlier: true, ..none },
    ];
    let at = || select(&[500, 2000, 3000][..]);
    let deadline =
        prop_oneof![deadline(), Just(register::Deadline::At { millis: 500 }), deadline(), deadline()];
    prop_oneof![
        3 => (items(1..4), at(), select(conditions.to_vec()))
            .prop_map(|(fields, at_millis, condition)| O::ExpireAt { fields, at_millis, condition }),
        1 => (items(1..4), select(&[F::SecondsLeft, F::MillisLeft, F::SecondsAt, F::MillisAt][..]))
            .prop_map(|(fields, format)| O::Deadlines { fields, format }),
        1 => items(1..4).prop_map(|fields| O::Persist { fields }),
        2 => (items(1..4), select(&[0, 500, 2000, 3000][..]))
            .prop_map(|(fields, at_millis)| O::GetAndExpire { fields, at_millis }),
        1 => items(1..4).prop_map(|fields| O::GetAndDelete { fields }),
        4 => (pairs(), select(&[P::Always, P::Always, P::IfAbsent, P::IfPresent][..]), deadline)
            .prop_map(|(pairs, condition, deadline)| O::PutUntil { pairs, condition, deadline }),
    ]
}

/// Sums of a few of them are exact.
fn long_double() -> impl Strategy<Value = register::LongDouble> {
    let texts: [&[u8]; 4] = [b"1.5", b"-0.25", b"3", b"-2"];
    select(texts.to_vec()).prop_map(|text| match register::LongDouble::parse(text) {
        Some(register::Parsed::Finite(number)) => number,
        other => unreachable!("{other:?} is none of these"),
    })
}

/// A cursor, a count and a pattern of a scan.
fn piece() -> impl Strategy<Value = (u64, u64, &'static [u8])> {
    let patterns: [&[u8]; 4] = [b"*", b"[ab]", b"x*", b""];
    let cursor = prop_oneof![3 => Just(0), 1 => select(&[1, 1 << 39, u64::MAX][..])];
    (cursor, select(&[1, 2, 10, u64::MAX][..]), select(patterns.to_vec()))
}

pub fn set_operation() -> impl Strategy<Value = set::Operation<'static>> {
    use set::Operation as O;
    prop_oneof![
        4 => items(1..4).prop_map(|members| O::Add { members }),
        3 => items(1..4).prop_map(|members| O::Remove { members }),
        1 => word().prop_map(|member| O::Contains { member }),
        1 => items(1..4).prop_map(|members| O::ContainsMany { members }),
        1 => Just(O::Members),
        1 => Just(O::Length),
        2 => option::of(0..5u64).prop_map(|count| O::Pop { count }),
        1 => option::of(-4..5i64).prop_map(|count| O::Random { count }),
        1 => piece().prop_map(|(cursor, count, pattern)| O::Scan { cursor, count, pattern }),
    ]
}

fn score_bound() -> impl Strategy<Value = ScoreBound> {
    (score(), any::<bool>()).prop_map(|(score, open)| {
        if open { ScoreBound::Exclusive(score) } else { ScoreBound::Inclusive(score) }
    })
}

fn lex_bound() -> impl Strategy<Value = LexBound<'static>> {
    prop_oneof![
        Just(LexBound::Lowest),
        Just(LexBound::Highest),
        word().prop_map(LexBound::Inclusive),
        word().prop_map(LexBound::Exclusive),
    ]
}

fn range_by() -> impl Strategy<Value = RangeBy<'static>> {
    prop_oneof![
        (index(), index()).prop_map(|(start, stop)| RangeBy::Index { start, stop }),
        (score_bound(), score_bound()).prop_map(|(min, max)| RangeBy::Score { min, max }),
        (lex_bound(), lex_bound()).prop_map(|(min, max)| RangeBy::Lex { min, max }),
    ]
}

/// The flags that Redis admits together.
fn add_flags() -> impl Strategy<Value = AddFlags> {
    let none = AddFlags::default();
    let admitted = [
        none,
        AddFlags { if_absent: true, ..none },
        AddFlags { if_present: true, ..none },
        AddFlags { if_greater: true, ..none },
        AddFlags { if_less: true, ..none },
        AddFlags { if_present: true, if_less: true, ..none },
    ];
    (select(admitted.to_vec()), any::<bool>())
        .prop_map(|(flags, count_changed)| AddFlags { count_changed, ..flags })
}

fn search() -> impl Strategy<Value = Search<'static>> {
    let point = Point::new(15.0, 37.0).expect("it is on the map");
    let center =
        prop_oneof![Just(Center::Point { point }), word().prop_map(|member| Center::Member { member })];
    let shapes = [
        Shape::Circle { radius: 150.0, unit: 1000.0 },
        Shape::Circle { radius: 0.0, unit: 1.0 },
        Shape::Circle { radius: 30_000.0, unit: 1000.0 },
        Shape::Box { width: 200.0, height: 300.0, unit: 1609.34 },
    ];
    let order = select(&[Order::Any, Order::Nearest, Order::Farthest][..]);
    (center, select(shapes.to_vec()), order, option::of(0..3u64), any::<bool>())
        .prop_map(|(center, shape, order, limit, any)| Search { center, shape, order, limit, any })
}

fn listing() -> impl Strategy<Value = Listing> {
    any::<(bool, bool, bool)>().prop_map(|(distances, hashes, coordinates)| Listing {
        distances,
        hashes,
        coordinates,
    })
}

fn scored_set_read() -> impl Strategy<Value = scored_set::Operation<'static>> {
    use scored_set::Operation as O;
    prop_oneof![
        2 => (word(), any::<bool>()).prop_map(|(member, reverse)| O::RankWithScore { member, reverse }),
        2 => option::of((-4..5i64, any::<bool>())).prop_map(|chosen| O::Random {
            count: chosen.map(|(count, _)| count),
            with_scores: chosen.is_some_and(|(_, with_scores)| with_scores),
        }),
        2 => piece().prop_map(|(cursor, count, pattern)| O::Scan { cursor, count, pattern }),
        1 => items(1..4).prop_map(|members| O::Positions { members }),
        1 => items(1..4).prop_map(|members| O::Geohashes { members }),
        1 => (word(), word(), select(&[1.0, 1000.0][..]))
            .prop_map(|(from, to, unit)| O::Distance { from, to, unit }),
        3 => (search(), listing()).prop_map(|(search, listing)| O::Search { search, listing }),
        1 => (search(), any::<bool>())
            .prop_map(|(search, by_distance)| O::SearchScores { search, by_distance }),
    ]
}

pub fn scored_set_operation() -> impl Strategy<Value = scored_set::Operation<'static>> {
    use scored_set::{End, Operation as O};
    let end = select(&[End::Min, End::Max][..]);
    let limit = option::of((-1..4i64, -1..4i64));
    prop_oneof![
        6 => (add_flags(), scored_items()).prop_map(|(flags, items)| O::Add { flags, items }),
        3 => (add_flags(), score(), word()).prop_map(|(flags, by, member)| O::Increment { flags, by, member }),
        3 => items(1..4).prop_map(|members| O::Remove { members }),
        1 => word().prop_map(|member| O::Score { member }),
        1 => items(1..4).prop_map(|members| O::Scores { members }),
        1 => Just(O::Length),
        1 => (word(), any::<bool>()).prop_map(|(member, reverse)| O::Rank { member, reverse }),
        4 => (range_by(), any::<bool>(), limit, any::<bool>())
            .prop_map(|(by, reverse, limit, with_scores)| O::Range { by, reverse, limit, with_scores }),
        1 => (score_bound(), score_bound()).prop_map(|(min, max)| O::Count { min, max }),
        1 => (lex_bound(), lex_bound()).prop_map(|(min, max)| O::LexCount { min, max }),
        1 => range_by().prop_map(|by| O::RemoveRange { by }),
        1 => (end, option::of(0..4u64)).prop_map(|(end, count)| O::Pop { end, count }),
        4 => scored_set_read(),
    ]
}

fn end() -> impl Strategy<Value = list::End> {
    select(&[list::End::Front, list::End::Back][..])
}

pub fn list_operation() -> impl Strategy<Value = list::Operation<'static>> {
    use list::Operation as O;
    prop_oneof![
        6 => (end(), items(1..5), any::<bool>())
            .prop_map(|(end, values, only_if_exists)| O::Push { end, values, only_if_exists }),
        2 => (end(), option::of(0..4u64)).prop_map(|(end, count)| O::Pop { end, count }),
        1 => (index(), index()).prop_map(|(start, stop)| O::Range { start, stop }),
        1 => Just(O::Length),
        1 => index().prop_map(|index| O::Index { index }),
        2 => (index(), word()).prop_map(|(index, value)| O::Put { index, value }),
        1 => (index(), index()).prop_map(|(start, stop)| O::Trim { start, stop }),
        2 => (-3..4i64, word()).prop_map(|(count, value)| O::Remove { count, value }),
        2 => (any::<bool>(), word(), word())
            .prop_map(|(before, pivot, value)| O::InsertNextTo { before, pivot, value }),
        2 => (word(), select(&[1, 2, -1, -2, i64::MAX][..]), option::of(0..3u64), 0..5u64)
            .prop_map(|(value, rank, count, max_len)| O::Position { value, rank, count, max_len }),
    ]
}

fn counter_operation() -> impl Strategy<Value = counter::Operation> {
    use counter::Operation as O;
    let bound = || select(&[0, 1, -3, 40, i64::MAX, i64::MIN][..]);
    prop_oneof![
        3 => summand().prop_map(|by| O::Add { by }),
        1 => Just(O::Get),
        3 => (select(&[1, 3, 40, i64::MAX][..]), bound()).prop_map(|(by, floor)| O::Take { by, floor }),
        2 => (bound(), option::of(any::<bool>())).prop_map(|(bound, known)| O::AtLeast { bound, known }),
    ]
}

fn numbers() -> impl Strategy<Value = summary::Numbers> {
    let number = select(&[0.0, -0.0, 0.1, 0.2, -3.5, 1e300, -1e300, 1e-320][..]);
    vec(number, 0..4).prop_filter_map("finite", |numbers| summary::Numbers::new(numbers.into_iter()))
}

fn summary_operation() -> impl Strategy<Value = summary::Operation> {
    use summary::{Figure, Operation as O};
    prop_oneof![
        3 => numbers().prop_map(|numbers| O::Add { numbers }),
        1 => select(&Figure::ALL[..]).prop_map(|figure| O::Read { figure }),
        1 => Just(O::ReadAll),
    ]
}

/// Small ones, so that members are dropped.
fn capacity() -> impl Strategy<Value = u64> {
    select(&[1, 2, 3, 0, u64::MAX][..])
}

fn top_operation() -> impl Strategy<Value = top::Operation<'static>> {
    use top::Operation as O;
    prop_oneof![
        6 => scored_items().prop_map(|items| O::Add { items }),
        2 => capacity().prop_map(|capacity| O::Reserve { capacity }),
        2 => (index(), index(), any::<bool>())
            .prop_map(|(start, stop, with_scores)| O::Range { start, stop, with_scores }),
        1 => word().prop_map(|member| O::Score { member }),
        1 => word().prop_map(|member| O::Rank { member }),
        1 => (score(), word()).prop_map(|(score, member)| O::DownTo { score, member }),
        1 => select(&[O::Length, O::Capacity][..]),
    ]
}

fn user_operation(of: user::Type) -> impl Strategy<Value = user::Operation<'static>> {
    let call = move |name: &str, arguments: &[&[u8]]| {
        user::Operation::new(of, name.as_bytes(), arguments).expect("it has such an operation")
    };
    let amount = select(&["0", "1", "2", "3"][..]);
    prop_oneof![
        6 => (word(), amount).prop_map(move |(bidder, amount)| call("bid", &[bidder, amount.as_bytes()])),
        2 => select(&["close", "leader", "bids", "closed"][..]).prop_map(move |name| call(name, &[])),
    ]
}

/// An operation on a key that is expected to hold this type.
pub fn operation_of(kind: Kind) -> BoxedStrategy<Operation<'static>> {
    match kind {
        Kind::Register => register_operation().prop_map(Operation::Register).boxed(),
        Kind::Dict => dict_operation().prop_map(Operation::Dict).boxed(),
        Kind::Set => set_operation().prop_map(Operation::Set).boxed(),
        Kind::ScoredSet => scored_set_operation().prop_map(Operation::ScoredSet).boxed(),
        Kind::List => list_operation().prop_map(Operation::List).boxed(),
        Kind::Counter => counter_operation().prop_map(Operation::Counter).boxed(),
        Kind::SummaryBag => summary_operation().prop_map(Operation::SummaryBag).boxed(),
        Kind::Top => top_operation().prop_map(Operation::Top).boxed(),
        Kind::UidGenerator => option::of(0..3u64)
            .prop_map(|count| Operation::UidGenerator(uid::Operation::Next { count }))
            .boxed(),
        Kind::Stream => streams::operation().prop_map(Operation::Stream).boxed(),
        Kind::User(of) => user_operation(of).prop_map(Operation::User).boxed(),
    }
}

/// Any operation.
pub fn operation() -> impl Strategy<Value = Operation<'static>> {
    prop_oneof![
        1 => key_operation().prop_map(Operation::Key),
        5 => select(&KINDS[..]).prop_flat_map(operation_of),
    ]
}

fn key_effect() -> impl Strategy<Value = key::Effect<'static>> {
    use key::Effect as E;
    prop_oneof![
        Just(E::Delete),
        select(&[0, 2000, 3000][..]).prop_map(E::SetDeadline),
        cell().prop_map(|cell| E::Restore(encoded(&cell).into())),
    ]
}

fn list_effect() -> impl Strategy<Value = list::Effect<'static>> {
    use list::Effect as E;
    let place = || prop_oneof![5 => 0..2u64, 4 => 0..6u64, 1 => Just(u64::MAX)];
    prop_oneof![
        (end(), items(1..4)).prop_map(|(end, values)| E::Push { end, values }),
        (end(), place()).prop_map(|(end, count)| E::Pop { end, count }),
        (place(), word()).prop_map(|(index, value)| E::Put { index, value }),
        (place(), place()).prop_map(|(start, len)| E::Keep { start, len }),
        vec(place(), 0..4).prop_map(|positions| E::RemoveAt { positions: Positions::from_iter(positions) }),
        (place(), word()).prop_map(|(index, value)| E::InsertAt { index, value }),
    ]
}

fn register_edit() -> impl Strategy<Value = register::Effect<'static>> {
    use register::Effect as E;
    prop_oneof![
        1 => (0..30u64, word()).prop_map(|(offset, value)| E::SetRange { offset, value }),
        1 => float().prop_map(|by| E::AddFloat { by }),
        2 => (offset(), any::<bool>()).prop_map(|(offset, bit)| E::SetBit { offset, bit }),
        1 => (0..40u64, vec(field_step(), 0..3)).prop_map(|(length, steps)| E::BitField { length, steps }),
        3 => hyperloglog().prop_map(|with| E::Unite { with }),
    ]
}

/// An effect of this type.
pub fn effect_of(kind: Kind) -> BoxedStrategy<Effect<'static>> {
    match kind {
        Kind::Register => prop_oneof![
            1 => (word(), deadline())
                .prop_map(|(value, deadline)| register::Effect::Set { value, deadline }),
            1 => summand().prop_map(|by| register::Effect::Add { by }),
            1 => word().prop_map(|value| register::Effect::Append { value }),
            1 => Just(register::Effect::Delete),
            4 => register_edit(),
        ]
        .prop_map(Effect::Register)
        .boxed(),
        Kind::Dict => prop_oneof![
            pairs().prop_map(dict::Effect::put),
            (pairs(), vec(select(&[0, 2000, 3000][..]), 0..4)).prop_map(|(pairs, deadlines)| {
                let each = (0..pairs.len() / 2).map(|place| deadlines.get(place).copied().unwrap_or(0));
                dict::Effect::Put { until: dict::Until::each(each), pairs }
            }),
            (items(0..4), select(&[0, 2000, 3000][..]))
                .prop_map(|(fields, at_millis)| dict::Effect::SetDeadline { fields, at_millis }),
            items(0..4).prop_map(|fields| dict::Effect::Remove { fields }),
            (word(), summand()).prop_map(|(field, by)| dict::Effect::Add { field, by }),
        ]
        .prop_map(Effect::Dict)
        .boxed(),
        Kind::Set => prop_oneof![
            items(0..4).prop_map(|members| set::Effect::Add { members }),
            items(0..4).prop_map(|members| set::Effect::Remove { members }),
        ]
        .prop_map(Effect::Set)
        .boxed(),
        Kind::ScoredSet => prop_oneof![
            scored_items().prop_map(|items| scored_set::Effect::Put { items }),
            items(0..4).prop_map(|members| scored_set::Effect::Remove { members }),
            (word(), select(&[-1.5, 0.1, 2.0][..]))
                .prop_map(|(member, by)| scored_set::Effect::Add { member, by }),
        ]
        .prop_map(Effect::ScoredSet)
        .boxed(),
        Kind::List => list_effect().prop_map(Effect::List).boxed(),
        Kind::Counter => summand().prop_map(|by| Effect::Counter(counter::Effect::Add { by })).boxed(),
        Kind::SummaryBag => {
            numbers().prop_map(|numbers| Effect::SummaryBag(summary::Effect::Add { numbers })).boxed()
        }
        Kind::Top => prop_oneof![
            3 => scored_items().prop_map(|items| top::Effect::Add { items }),
            1 => capacity().prop_map(|capacity| top::Effect::Reserve { capacity }),
        ]
        .prop_map(Effect::Top)
        .boxed(),
        Kind::UidGenerator => Just(Effect::UidGenerator(uid::Effect::Create)).boxed(),
        Kind::Stream => streams::effect().prop_map(Effect::Stream).boxed(),
        Kind::User(of) => user_operation(of)
            .prop_filter_map("no read", |operation| operation.blind_effect().map(Effect::User))
            .boxed(),
    }
}

/// Any effect.
pub fn effect() -> impl Strategy<Value = Effect<'static>> {
    prop_oneof![
        1 => key_effect().prop_map(Effect::Key),
        9 => select(&KINDS[..]).prop_flat_map(effect_of),
    ]
}

/// A cell that holds this type, unless a few effects of the type leave nothing.
pub fn cell_of(kind: Kind) -> BoxedStrategy<Cell> {
    (vec(effect_of(kind), 1..5), select(&[0, 0, 2000, 3000][..]))
        .prop_map(|(effects, expires_at)| {
            let mut cell = Cell::ABSENT;
            for effect in &effects {
                apply::<false>(&mut cell, effect);
            }
            apply::<false>(&mut cell, &Effect::Key(key::Effect::SetDeadline(expires_at)));
            cell
        })
        .boxed()
}

/// Any cell.
pub fn cell() -> impl Strategy<Value = Cell> {
    prop_oneof![1 => Just(Cell::ABSENT), 9 => select(&KINDS[..]).prop_flat_map(cell_of)]
}

/// A cell and what is done to it, most often of the same type.
pub fn scene<S: Strategy + 'static>(
    of: impl Fn(Kind) -> S + Clone + 'static,
    any: impl Fn() -> BoxedStrategy<S::Value> + Clone + 'static,
    count: usize,
) -> impl Strategy<Value = (Cell, Vec<S::Value>)>
where
    S::Value: 'static,
{
    select(kinds().to_vec()).prop_flat_map(move |kind| {
        let step = prop_oneof![9 => of(kind).boxed(), 1 => any()];
        (prop_oneof![8 => cell_of(kind), 1 => Just(Cell::ABSENT), 1 => cell()], vec(step, count))
    })
}

pub fn encoded(cell: &Cell) -> Vec<u8> {
    let mut bytes = Vec::new();
    cell.encode(&mut bytes);
    bytes
}
