//! What a server writes, in both protocol versions, and what a client reads.

use anabranch_resp::{Encoder, ProtocolVersion, ReplyError, ReplyLimits, ReplyParser, Value};
use types::{Error, ErrorCode, ReplySink};

/// Writes one of everything in both versions.
fn encode(write: impl Fn(&mut Encoder<&mut Vec<u8>>)) -> [String; 2] {
    [ProtocolVersion::Resp2, ProtocolVersion::Resp3].map(|version| {
        let mut out = Vec::new();
        write(&mut Encoder::new(&mut out, version));
        String::from_utf8(out).expect("text")
    })
}

#[test]
fn scalars() {
    assert_eq!(encode(|e| e.simple("OK")), ["+OK\r\n"; 2]);
    assert_eq!(encode(|e| e.simple("a\r\nb")), ["+a  b\r\n"; 2]);
    assert_eq!(encode(|e| e.bulk(b"")), ["$0\r\n\r\n"; 2]);
    assert_eq!(encode(|e| e.bulk(b"0123456789\r\n")), ["$12\r\n0123456789\r\n\r\n"; 2]);
    assert_eq!(encode(|e| e.integer(-12)), [":-12\r\n"; 2]);
    assert_eq!(encode(|e| e.double(0.1)), ["$19\r\n0.10000000000000001\r\n", ",0.10000000000000001\r\n"]);
    assert_eq!(encode(|e| e.double(f64::INFINITY)), ["$3\r\ninf\r\n", ",inf\r\n"]);
    assert_eq!(encode(|e| e.text("a\nb")), ["$3\r\na\nb\r\n", "=7\r\ntxt:a\nb\r\n"]);
    assert_eq!(encode(|e| e.null()), ["$-1\r\n", "_\r\n"]);
    assert_eq!(encode(|e| e.null_array()), ["*-1\r\n", "_\r\n"]);
}

#[test]
fn containers() {
    assert_eq!(encode(|e| e.array(0)), ["*0\r\n"; 2]);
    assert_eq!(encode(|e| e.array(12)), ["*12\r\n"; 2]);
    assert_eq!(encode(|e| e.map(6)), ["*12\r\n", "%6\r\n"]);
    assert_eq!(encode(|e| e.set(3)), ["*3\r\n", "~3\r\n"]);
    assert_eq!(encode(|e| e.push(3)), ["*3\r\n", ">3\r\n"]);
    let scores = |e: &mut Encoder<&mut Vec<u8>>| {
        e.pairs(1);
        e.pair();
        e.bulk(b"m");
        e.double(1.5);
    };
    // ZRANGE z 0 -1 WITHSCORES, as Redis 7.0.15 replies.
    assert_eq!(encode(scores), ["*2\r\n$1\r\nm\r\n$3\r\n1.5\r\n", "*1\r\n*2\r\n$1\r\nm\r\n,1.5\r\n"]);
}

#[test]
fn errors_stay_on_one_line() {
    let error = Error::new(ErrorCode::Conflict, "key \"a\r\nb\"\nwas written");
    assert_eq!(encode(|e| e.error(&error)), ["-CONFLICT key \"a  b\" was written\r\n"; 2]);
    assert_eq!(encode(|e| e.error(&Error::syntax())), ["-ERR syntax error\r\n"; 2]);
}

#[test]
fn an_encoder_owns_or_borrows() {
    let mut owning = Encoder::new(Vec::new(), ProtocolVersion::Resp2);
    owning.null();
    owning.set_version(ProtocolVersion::Resp3);
    owning.null();
    assert_eq!(owning.version().number(), 3);
    assert_eq!(owning.into_output(), b"$-1\r\n_\r\n");
    assert_eq!(ProtocolVersion::from_number(2), Some(ProtocolVersion::Resp2));
    assert_eq!(ProtocolVersion::from_number(4), None);
}

/// Parses whole and byte by byte; both must agree.
fn parse_with(limits: ReplyLimits, input: &[u8]) -> Result<Option<Value>, ReplyError> {
    let (consumed, whole) = ReplyParser::new(limits).parse(input)?;
    assert!(whole.is_none() || consumed == input.len());
    let mut parser = ReplyParser::new(limits);
    let (mut start, mut last) = (0, None);
    for end in 1..=input.len() {
        let (consumed, value) = parser.parse(&input[start..end])?;
        start += consumed;
        last = value;
    }
    assert_eq!(last, whole);
    Ok(whole)
}

fn parse(input: &[u8]) -> Result<Option<Value>, ReplyError> {
    parse_with(ReplyLimits::default(), input)
}

fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

#[test]
fn every_type_is_read() {
    let table: [(&[u8], Value); 22] = [
        (b"+OK\r\n", Value::Simple(b"OK".to_vec())),
        (b"-ERR no\r\n", Value::Error(b"ERR no".to_vec())),
        (b"!6\r\nERR no\r\n", Value::Error(b"ERR no".to_vec())),
        (b":-7\r\n", Value::Integer(-7)),
        (b":+7\r\n", Value::Integer(7)),
        (b"$-1\r\n", Value::Null),
        (b"_\r\n", Value::Null),
        (b"*-1\r\n", Value::NullArray),
        (b"$0\r\n\r\n", bulk("")),
        (b"$4\r\na\r\nb\r\n", bulk("a\r\nb")),
        (b",1.5e300\r\n", Value::Double(1.5e300)),
        (b",-inf\r\n", Value::Double(f64::NEG_INFINITY)),
        (b"#t\r\n", Value::Boolean(true)),
        (b"#f\r\n", Value::Boolean(false)),
        (b"(-123456789012345678901\r\n", Value::BigNumber(b"-123456789012345678901".to_vec())),
        (b"=7\r\ntxt:abc\r\n", Value::Verbatim { format: *b"txt", text: b"abc".to_vec() }),
        (b"*0\r\n", Value::Array(vec![])),
        (
            b"*2\r\n*1\r\n:1\r\n~0\r\n",
            Value::Array(vec![Value::Array(vec![Value::Integer(1)]), Value::Set(vec![])]),
        ),
        (b"%1\r\n+a\r\n%0\r\n", Value::Map(vec![(Value::Simple(b"a".to_vec()), Value::Map(vec![]))])),
        (b">1\r\n$1\r\nx\r\n", Value::Push(vec![bulk("x")])),
        (b"|1\r\n+ttl\r\n:3\r\n:5\r\n", Value::Integer(5)),
        (
            b"*2\r\n:1\r\n|0\r\n|1\r\n+a\r\n*1\r\n:9\r\n:2\r\n",
            Value::Array(vec![Value::Integer(1), Value::Integer(2)]),
        ),
    ];
    for (input, value) in table {
        assert_eq!(parse(input), Ok(Some(value)), "{}", input.escape_ascii());
    }
}

#[test]
fn what_is_incomplete_waits() {
    for input in [
        &b""[..],
        b"+OK",
        b"+OK\r",
        b"$3\r\nab",
        b"$3\r\nabc\r",
        b"*2\r\n:1\r\n",
        b"*1\r\n",
        b"|1\r\n+a\r\n+b\r\n",
    ] {
        assert_eq!(parse(input), Ok(None), "{}", input.escape_ascii());
    }
}

#[test]
fn what_is_malformed_is_refused() {
    let table: [(&[u8], ReplyError); 17] = [
        (b"x\r\n", ReplyError::UnknownType(b'x')),
        (b"\r\n", ReplyError::Malformed("empty line")),
        (b"+OK\n", ReplyError::Malformed("line end")),
        (b":\r\n", ReplyError::Malformed("integer")),
        (b":1.5\r\n", ReplyError::Malformed("integer")),
        (b":+-5\r\n", ReplyError::Malformed("integer")),
        (b",a\r\n", ReplyError::Malformed("floating-point number")),
        (b"#x\r\n", ReplyError::Malformed("boolean")),
        (b"_x\r\n", ReplyError::Malformed("null")),
        (b"(-\r\n", ReplyError::Malformed("big number")),
        (b"$-2\r\n", ReplyError::Malformed("length")),
        (b"*?\r\n", ReplyError::Malformed("length")),
        (b"$1\r\nab\r\n", ReplyError::Malformed("string end")),
        (b"=3\r\ntxt\r\n", ReplyError::Malformed("verbatim string")),
        (b"%9223372036854775807\r\n", ReplyError::TooLarge("the number of values")),
        (b"*9223372036854775807\r\n", ReplyError::TooLarge("the number of values")),
        (b"$536870913\r\n", ReplyError::TooLarge("the length of a string")),
    ];
    for (input, error) in table {
        assert_eq!(parse(input), Err(error), "{}", input.escape_ascii());
    }
}

#[test]
fn limits_hold() {
    let limits = ReplyLimits { max_bulk_bytes: 3, max_line_bytes: 8, max_values: 4, max_depth: 2 };
    let too_deep = ReplyError::TooLarge("the depth of nesting");
    let too_many = ReplyError::TooLarge("the number of values");
    let too_long = ReplyError::TooLarge("the length of a line");
    assert!(parse_with(limits, b"*1\r\n*1\r\n:1\r\n").is_ok());
    assert_eq!(parse_with(limits, b"*1\r\n*1\r\n*1\r\n"), Err(too_deep));
    assert!(parse_with(limits, b"*3\r\n:1\r\n:1\r\n:1\r\n").is_ok());
    assert_eq!(parse_with(limits, b"*4\r\n"), Err(too_many));
    assert_eq!(parse_with(limits, b"*2\r\n*2\r\n:1\r\n:1\r\n:1\r\n"), Err(too_many));
    assert!(parse_with(limits, b"+123456\r\n").is_ok());
    assert_eq!(parse_with(limits, b"+12345678"), Err(too_long));
    assert_eq!(parse_with(limits, b"+12345678\r\n"), Err(too_long));
    assert!(parse_with(limits, b"$3\r\nabc\r\n").is_ok());
    assert_eq!(parse_with(limits, b"$4\r\n"), Err(ReplyError::TooLarge("the length of a string")));
}

/// A reply may announce a billion elements: memory is taken for what arrives. (If it were taken in advance, this
/// test would not get through: sixty nested promises of 2^28 values each.)
#[test]
fn promises_cost_nothing() {
    let limits = ReplyLimits { max_values: 1 << 40, ..ReplyLimits::default() };
    let mut parser = ReplyParser::new(limits);
    let input = b"*268435456\r\n".repeat(60);
    assert_eq!(parser.parse(&input), Ok((input.len(), None)));
}

#[test]
fn values_are_easy_to_ask() {
    let array = Value::Array(vec![Value::Integer(3), bulk("x"), Value::Error(b"ERR \xff".to_vec())]);
    let elements = array.as_elements().expect("an array");
    assert_eq!(elements[0].as_integer(), Some(3));
    assert_eq!(elements[1].as_bytes(), Some(&b"x"[..]));
    assert_eq!(elements[2].as_error().as_deref(), Some("ERR \u{fffd}"));
    assert_eq!(format!("{array:?}"), r#"[3, "x", Error(ERR \xff)]"#);
}
