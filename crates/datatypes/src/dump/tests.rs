//! Payloads of Redis, our own ones, and what is neither.

use super::encode::{put_length, put_string, sign, sign_as};
use super::{Encoding, Refusal, decode, encode, encoding, tag};
use crate::collections::{ChunkedList, PackedMap, PackedSet, ScoredTree};
use crate::register::Register;
use crate::stream::{Entries, Stream, StreamId};
use crate::{Items, Value};
use proptest::collection::vec;
use proptest::prelude::*;

fn list<'a>(elements: impl IntoIterator<Item = &'a [u8]>) -> Value {
    let mut list = ChunkedList::new();
    elements.into_iter().for_each(|element| list.push_back(element));
    Value::List(Box::new(list))
}

fn hash<'a>(pairs: impl IntoIterator<Item = (&'a [u8], &'a [u8])>) -> Value {
    let mut dict = PackedMap::default();
    pairs.into_iter().for_each(|(field, value)| {
        dict.insert(field, value);
    });
    Value::Dict(Box::new(dict))
}

fn set<'a>(members: impl IntoIterator<Item = &'a [u8]>) -> Value {
    let mut set = PackedSet::default();
    members.into_iter().for_each(|member| {
        set.insert(member);
    });
    Value::Set(Box::new(set))
}

fn scored<'a>(members: impl IntoIterator<Item = (&'a [u8], f64)>) -> Value {
    let mut set = ScoredTree::default();
    members.into_iter().for_each(|(member, score)| {
        set.insert(member, score);
    });
    Value::ScoredSet(Box::new(set))
}

fn text(bytes: &[u8]) -> Value {
    Value::Register(Register::new(bytes))
}

/// A payload of a value that stands in the type's own bytes.
fn payload(tag: u8, value: &[u8]) -> Vec<u8> {
    let mut out = vec![tag];
    out.extend_from_slice(value);
    sign(&mut out);
    out
}

/// A payload whose value is one string.
fn blob(tag: u8, bytes: &[u8]) -> Vec<u8> {
    let mut value = Vec::new();
    put_string(bytes, &mut value);
    payload(tag, &value)
}

fn ziplist(entries: &[&[u8]]) -> Vec<u8> {
    let (mut body, mut before, mut last) = (Vec::new(), 0, 10);
    for entry in entries {
        last = 10 + body.len();
        if before < 254 {
            body.push(before as u8);
        } else {
            body.push(0xfe);
            body.extend_from_slice(&(before as u32).to_le_bytes());
        }
        body.extend_from_slice(entry);
        before = 10 + body.len() - last;
    }
    let mut out = (body.len() as u32 + 11).to_le_bytes().to_vec();
    out.extend_from_slice(&(last as u32).to_le_bytes());
    out.extend_from_slice(&(entries.len() as u16).to_le_bytes());
    out.extend_from_slice(&body);
    out.push(0xff);
    out
}

#[test]
fn examples_of_the_documentation_of_redis() {
    assert_eq!(decode(b"\x00\xc0\n\n\x00n\x9fWE\x0e\xaec\xbb"), Ok(text(b"10")));
    let ziplist =
        b"\n\x17\x17\x00\x00\x00\x12\x00\x00\x00\x03\x00\x00\xc0\x01\x00\x04\xc0\x02\x00\x04\xc0\x03\x00\xff\
        \x04\x00u#<\xc0;.\xe9\xdd";
    assert_eq!(decode(ziplist), Ok(list([&b"1"[..], b"2", b"3"])));
}

/// Fields with deadlines, a few and many.
fn dated(count: u64) -> Value {
    let mut dict = PackedMap::default();
    for number in 0..count {
        let field = format!("field {number}");
        dict.insert(field.as_bytes(), number.to_string().as_bytes());
        dict.set_deadline(field.as_bytes(), [0, 1_700_000_000_000, 1_700_000_000_500][number as usize % 3]);
    }
    Value::Dict(Box::new(dict))
}

/// In the bytes of Redis 7.4: `HSET h f 1`, `HPEXPIREAT h 1800000000000 FIELDS 1 f`, and the same in a large hash.
#[test]
fn fields_that_expire_have_the_form_of_redis_7_4() {
    let at = 1_800_000_000_000u64.to_le_bytes();
    let packed = [&b"\x81f\x02\x01\x01\xf4"[..], &at, b"\x09\xff"].concat();
    let packed = [&[6 + packed.len() as u8, 0, 0, 0, 3, 0][..], &packed].concat();
    let mut small = [&[25][..], &at, &[packed.len() as u8], &packed].concat();
    sign_as(12, &mut small);
    let mut large = [&[24][..], &at, b"\x02\x01\x01f\xc0\x01\x00\x01g\xc0\x02"].concat();
    sign_as(12, &mut large);
    let mut dict = PackedMap::default();
    dict.insert(b"f", b"1");
    dict.set_deadline(b"f", 1_800_000_000_000);
    assert_eq!(encode(&Value::Dict(Box::new(dict.clone()))), Some(small.clone()));
    assert_eq!(decode(&small), Ok(Value::Dict(Box::new(dict.clone()))));
    dict.insert(b"g", b"2");
    assert_eq!(decode(&large), Ok(Value::Dict(Box::new(dict))));
    for (count, expected) in
        [(3, Encoding::ListPackEx), (128, Encoding::ListPackEx), (129, Encoding::HashTable)]
    {
        let value = dated(count);
        assert_eq!(encoding(&value), expected);
        assert_eq!(decode(&encode(&value).expect("a hash")), Ok(value));
    }
}

#[test]
fn integers_and_strings_of_every_size() {
    let longer = [300, 16_383, 16_384, 70_000].map(|len| vec![b'x'; len]);
    let mixed: Vec<u8> =
        (0..5000u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let numbers =
        ["0", "-1", "127", "128", "-32768", "32768", "2147483647", "2147483648", "-9223372036854775808"];
    let others = ["", "007", "-0", "12345678901", "abcdefghijklmnopqrstu"];
    let short = numbers.iter().chain(&others).map(|text| text.as_bytes());
    for bytes in short.chain(longer.iter().map(Vec::as_slice)).chain([mixed.as_slice()]) {
        let dumped = encode(&text(bytes)).expect("a string");
        assert_eq!(decode(&dumped), Ok(text(bytes)), "{}", bytes.escape_ascii());
    }
    let compressed = encode(&text(&longer[3])).expect("a string");
    assert!(compressed.len() < 1000, "{}", compressed.len());
}

#[test]
fn ziplists_with_every_kind_of_element() {
    let long = [b"\x41\x2c".to_vec(), vec![b'l'; 300]].concat();
    let longer = [b"\x80\x00\x00\x40\x00".to_vec(), vec![b'm'; 16_384]].concat();
    let entries: &[&[u8]] = &[
        b"\x02ab",
        &long,
        b"\xf1",
        &longer,
        b"\xfd",
        b"\xfe\x80",
        b"\xc0\x00\x80",
        b"\xf0\x00\x00\x80",
        b"\xd0\x00\x00\x00\x80",
        b"\xe0\x00\x00\x00\x00\x00\x00\x00\x80",
    ];
    let expected = [
        &b"ab"[..],
        &long[2..],
        b"0",
        &longer[5..],
        b"12",
        b"-128",
        b"-32768",
        b"-8388608",
        b"-2147483648",
        b"-9223372036854775808",
    ];
    let whole = ziplist(entries);
    assert_eq!(decode(&blob(tag::LIST_ZIPLIST, &whole)), Ok(list(expected)));
    let mut nodes = Vec::new();
    put_length(2, &mut nodes);
    put_string(&whole, &mut nodes);
    put_string(&ziplist(&[b"\x01z"]), &mut nodes);
    let both = expected.into_iter().chain([&b"z"[..]]);
    assert_eq!(decode(&payload(tag::LIST_QUICKLIST, &nodes)), Ok(list(both)));
    let pairs = ziplist(&[b"\x01f", b"\xf2", b"\x01g", b"\x031.5"]);
    assert_eq!(decode(&blob(tag::HASH_ZIPLIST, &pairs)), Ok(hash([(&b"f"[..], &b"1"[..]), (b"g", b"1.5")])));
    assert_eq!(decode(&blob(tag::ZSET_ZIPLIST, &pairs)), Ok(scored([(&b"f"[..], 1.0), (b"g", 1.5)])));
}

#[test]
fn older_forms_of_lists_hashes_and_sorted_sets() {
    assert_eq!(decode(&payload(tag::LIST, b"\x02\x01a\xc0\x05")), Ok(list([&b"a"[..], b"5"])));
    let zipmap = b"\x02\x03foo\x03\x00bar\x05hello\x05\x01world\x00\xff";
    let expected = hash([(&b"foo"[..], &b"bar"[..]), (b"hello", b"world")]);
    assert_eq!(decode(&blob(tag::HASH_ZIPMAP, zipmap)), Ok(expected));
    let scores = scored([(&b"a"[..], 1.5), (b"b", f64::INFINITY), (b"c", f64::NEG_INFINITY)]);
    assert_eq!(decode(&payload(tag::ZSET, b"\x03\x01a\x031.5\x01b\xfe\x01c\xff")), Ok(scores));
}

#[test]
fn what_the_format_forbids_is_refused() {
    let refused: &[(u8, &[u8])] = &[
        (tag::STRING, b"\x05abc"),
        (tag::STRING, b"\x01abc"),
        (tag::STRING, b"\x80\xff\xff\xff\xffabc"),
        (tag::STRING, b"\x81\xff\xff\xff\xff\xff\xff\xff\xffabc"),
        (tag::STRING, b"\xc3\x02\x80\x7f\xff\xff\xff\x00a"),
        (tag::STRING, b"\xc4"),
        (tag::LIST, b"\x00"),
        (tag::LIST, b"\x81\xff\xff\xff\xff\xff\xff\xff\xff\x01a"),
        (tag::SET, b"\x00"),
        (tag::SET, b"\x02\x01a\x01a"),
        (tag::HASH, b"\x02\x01a\x01b\x01a\x01c"),
        (tag::ZSET, b"\x01\x01a\xfd"),
        (tag::ZSET, b"\x01\x01a\x03nan"),
        (tag::ZSET_2, b"\x01\x01a\x00\x00\x00\x00\x00\x00\xf8\x7f"),
        (tag::LIST_QUICKLIST_2, b"\x01\x03\x01a"),
        (15, b"\x00"),
        (7, b"\x00"),
        (255, b"\x00"),
    ];
    for (tag, value) in refused {
        assert_eq!(decode(&payload(*tag, value)), Err(Refusal::Format), "{tag} {}", value.escape_ascii());
    }
    let unsorted = b"\x02\x00\x00\x00\x02\x00\x00\x00\x02\x00\x01\x00";
    assert_eq!(decode(&blob(tag::SET_INTSET, unsorted)), Err(Refusal::Format));
    let odd = ziplist(&[b"\x01f", b"\xf2", b"\x01g"]);
    assert_eq!(decode(&blob(tag::HASH_ZIPLIST, &odd)), Err(Refusal::Format));
    assert_eq!(decode(&blob(tag::SET_LISTPACK, b"\x07\x00\x00\x00\x00\x00\xff")), Err(Refusal::Format));
}

#[test]
fn the_footer_is_checked() {
    let whole = encode(&text(b"value")).expect("a string");
    assert_eq!(decode(&whole), Ok(text(b"value")));
    for place in 0..whole.len() {
        let mut changed = whole.clone();
        changed[place] ^= 1;
        assert_eq!(decode(&changed), Err(Refusal::Footer), "byte {place}");
        assert_eq!(decode(&whole[..place]), Err(Refusal::Footer), "{place} bytes");
    }
}

#[test]
fn a_value_chooses_its_encoding() {
    let names = |len: usize| (0..len).map(|number| format!("m{number}").into_bytes()).collect::<Vec<_>>();
    let numbers = |len: usize| (0..len).map(|number| number.to_string().into_bytes()).collect::<Vec<_>>();
    let of = |elements: &[Vec<u8>], make: &dyn Fn(&[&[u8]]) -> Value| {
        encoding(&make(&elements.iter().map(Vec::as_slice).collect::<Vec<_>>()))
    };
    let as_set = |elements: &[&[u8]]| set(elements.iter().copied());
    let as_list = |elements: &[&[u8]]| list(elements.iter().copied());
    let as_hash = |elements: &[&[u8]]| hash(elements.iter().map(|element| (*element, &b"v"[..])));
    let as_scored = |elements: &[&[u8]]| scored(elements.iter().map(|element| (*element, 1.0)));
    let table = [
        (encoding(&text(b"12")), Encoding::Int),
        (encoding(&text(&[b'x'; 44])), Encoding::EmbStr),
        (encoding(&text(&[b'x'; 45])), Encoding::Raw),
        (of(&numbers(512), &as_set), Encoding::IntSet),
        (of(&numbers(513), &as_set), Encoding::HashTable),
        (of(&names(128), &as_set), Encoding::ListPack),
        (of(&names(129), &as_set), Encoding::HashTable),
        (of(&names(128), &as_hash), Encoding::ListPack),
        (of(&[vec![b'x'; 65]], &as_hash), Encoding::HashTable),
        (of(&names(128), &as_scored), Encoding::ListPack),
        (of(&names(129), &as_scored), Encoding::SkipList),
        (of(&[vec![b'x'; 65]], &as_scored), Encoding::SkipList),
        (of(&names(1000), &as_list), Encoding::ListPack),
        (of(&names(2000), &as_list), Encoding::QuickList),
        (of(&[vec![b'x'; 9000]], &as_list), Encoding::QuickList),
    ];
    for (index, (found, expected)) in table.into_iter().enumerate() {
        assert_eq!(found, expected, "row {index}");
    }
}

/// Elements of which some are integers, some repeat themselves, and some are long.
fn element() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(any::<u8>(), 0..20),
        2 => any::<i64>().prop_map(|number| number.to_string().into_bytes()),
        2 => (-5000i64..5000).prop_map(|number| number.to_string().into_bytes()),
        1 => (any::<u8>(), 0usize..9000).prop_map(|(byte, len)| vec![byte; len]),
    ]
}

fn value() -> impl Strategy<Value = Value> {
    let score = prop_oneof![
        any::<f64>().prop_filter("a number", |score| !score.is_nan()),
        (-100i32..100).prop_map(f64::from),
        Just(f64::INFINITY),
    ];
    prop_oneof![
        element().prop_map(|bytes| text(&bytes)),
        vec(element(), 1..200).prop_map(|all| list(all.iter().map(Vec::as_slice))),
        vec(element(), 1..200).prop_map(|all| set(all.iter().map(Vec::as_slice))),
        vec(-70_000i64..70_000, 1..600)
            .prop_map(|all| all.iter().map(|number| number.to_string().into_bytes()).collect::<Vec<_>>())
            .prop_map(|all| set(all.iter().map(Vec::as_slice))),
        vec((element(), element()), 1..200)
            .prop_map(|all| hash(all.iter().map(|(field, value)| (field.as_slice(), value.as_slice())))),
        vec((element(), score), 1..200)
            .prop_map(|all| scored(all.iter().map(|(member, score)| (member.as_slice(), *score)))),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn decoding_undoes_encoding(value in value()) {
        let payload = encode(&value).expect("a type of Redis");
        prop_assert_eq!(decode(&payload), Ok(value));
    }

    #[test]
    fn damage_behind_a_good_checksum_is_refused_or_a_value(
        value in value(),
        tag in proptest::option::of(0u8..24),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in proptest::option::of(any::<prop::sample::Index>()),
    ) {
        let payload = encode(&value).expect("a type of Redis");
        let mut damaged = payload[..payload.len() - super::FOOTER_BYTES].to_vec();
        for (place, byte) in changes {
            let place = place.index(damaged.len());
            damaged[place] = byte;
        }
        if let Some(tag) = tag {
            damaged[0] = tag;
        }
        if let Some(cut) = cut {
            damaged.truncate(cut.index(damaged.len()) + 1);
        }
        sign(&mut damaged);
        match decode(&damaged) {
            Err(refusal) => prop_assert_eq!(refusal, Refusal::Format),
            // What is taken for a value is one: it can be written and read again.
            Ok(value) => {
                let again = encode(&value).expect("a type of Redis");
                prop_assert_eq!(decode(&again), Ok(value));
            }
        }
    }

    #[test]
    fn any_bytes_behind_a_good_checksum_are_refused_or_a_value(
        tag in 0u8..24, bytes in vec(any::<u8>(), 0..300), as_blob in any::<bool>(),
    ) {
        let made = if as_blob { blob(tag, &bytes) } else { payload(tag, &bytes) };
        if let Ok(value) = decode(&made) {
            prop_assert!(encode(&value).is_some());
        }
    }
}

/// What Redis 7.0.15 dumped of a stream of four entries, of which the second was removed, with two groups.
const STREAM: &str = "13011000000000000000050000000000000001c3407b408119810000001f000301010102018474656d700585706c61636506\
    002010000020010b0701856e6f72746806050103200e070101080185736f75601080230c0101856f74686572068178020620\
    3540261fdffd02a261206c6f6e6765722074657874207468616e206120736d616c6c2069026e7465201903230501ff030801\
    0501050204020167070181ffffffffffffffff0200000000000000050000000000000001e803000000000000030000000000\
    0000070000000000000001d007000000000000010203616e6eb661782aa20100000100000000000000070000000000000001\
    03626f62af61782aa20100000100000000000000050000000000000001016808010400000a007311d73cbbc640e1";

fn hexadecimal(text: &str) -> Vec<u8> {
    let digits: Vec<u32> = text.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits.as_chunks::<2>().0.iter().map(|[high, low]| (high * 16 + low) as u8).collect()
}

#[test]
fn a_stream_of_redis_is_read_and_written_again() {
    let payload = hexadecimal(STREAM);
    let Ok(Value::Stream(stream)) = decode(&payload) else { panic!("a stream") };
    let id = StreamId::new;
    let entries: Vec<_> = stream.entries.iter().map(|entry| (entry.id, entry.strings().last())).collect();
    let text: &[u8] = b"a longer text than a small integer";
    assert_eq!(
        entries,
        [(id(5, 1), Some(&b"north"[..])), (id(7, 1), Some(&b"x"[..])), (id(8, 1), Some(text))]
    );
    assert_eq!((stream.last, stream.added, stream.max_deleted), (id(8, 1), 4, id(5, 2)));
    let group = stream.group(b"g").expect("a group");
    let owner = group.owners(id(5, 1)).first().map(|owner| (&*owner.consumer, owner.at_millis, owner.count));
    assert_eq!((group.last, group.read, owner), (id(7, 1), None, Some((&b"bob"[..], 1000, 3))));
    assert_eq!(stream.group(b"h").map(|group| (group.last, group.read)), Some((id(8, 1), Some(4))));
    let again = encode(&Value::Stream(stream.clone())).expect("a stream");
    assert_eq!(decode(&again), Ok(Value::Stream(stream)));
}

#[test]
fn streams_of_any_size_come_back() {
    let mut entries = Entries::default();
    for number in 0..350u64 {
        let value = vec![b'v'; (number % 90) as usize];
        let fields: &[&[u8]] =
            if number % 7 == 0 { &[b"other", &value, b"f", b"1"] } else { &[b"f", &value] };
        entries.insert(StreamId::new(number / 3, u64::MAX - 3 + number % 3), &Items::Slices(fields));
        let last = entries.last_id().expect("there is one");
        let value = Value::Stream(Box::new(Stream::new(entries.clone(), last, number + 1, StreamId::ZERO)));
        assert_eq!(decode(&encode(&value).expect("a stream")), Ok(value));
    }
    let payload = hexadecimal(STREAM);
    for place in 1..payload.len() - 10 {
        let mut damaged = payload[..payload.len() - 10].to_vec();
        damaged[place] ^= 0x11;
        super::encode::sign(&mut damaged);
        // Whatever it is, it ends.
        drop(decode(&damaged));
    }
}
