//! Claims about all inputs: pieces do not matter, nothing panics, what is written is read back.

use crate::support::{Command, Connection};
use anabranch_resp::{
    Encoder, Limits, Parser, Pipeline, ProtocolVersion, ReplyLimits, ReplyParser, Value, encode_command,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use types::ReplySink;

/// Limits low enough for random inputs to meet them.
const LOW: Limits = Limits {
    max_bulk_bytes: 1500,
    max_arguments: 6,
    max_line_bytes: 40,
    max_command_bytes: 3000,
    max_batch_commands: 3,
};

fn argument() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        8 => vec(any::<u8>(), 0..12),
        2 => vec(any::<u8>(), 90..110),
        1 => vec(any::<u8>(), 990..1010),
    ]
}

const ALMOST_REQUESTS: &[&[u8]] = &[
    b"*2\r\n",
    b"*1\r\n$4\r\nPING\r\n",
    b"*12\r\n",
    b"*-1\r\n",
    b"$3\r\nGET\r\n",
    b"$1\r\na\r\n",
    b"$0\r\n\r\n",
    b"$10\r\n0123456789\r\n",
    b"$1600\r\n",
    b"*",
    b"$",
    b"\r",
    b"\n",
    b"\r\n",
    b"\0",
    b"\"",
    b"'",
    b"\\",
    b"\\x4a",
    b"PING",
    b"AUTH\n",
    b" ",
    b"007",
    b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
];

const ALMOST_REPLIES: &[&[u8]] = &[
    b"*2\r\n",
    b"%1\r\n",
    b"|1\r\n",
    b"~3\r\n",
    b">1\r\n",
    b"$2\r\n",
    b"ab\r\n",
    b"+x\r\n",
    b":1\r\n",
    b"_\r\n",
    b"*-1\r\n",
    b"\r\n",
    b"*99999999\r\n",
    b"=5\r\ntxt:a\r\n",
    b"#t\r\n",
    b",1\r\n",
    b"\xff",
];

/// Bytes that often are almost a request.
fn noise() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => vec(select(ALMOST_REQUESTS), 0..30).prop_map(|tokens| tokens.concat()),
        1 => vec(any::<u8>(), 0..200),
    ]
}

/// Feeds `input` in pieces of the given lengths, cyclically.
fn feed(limits: Limits, authenticated: bool, input: &[u8], pieces: &[usize]) -> Connection {
    let mut connection = Connection::new(limits, authenticated);
    let mut rest = input;
    for len in pieces.iter().cycle() {
        if rest.is_empty() {
            break;
        }
        let (piece, after) = rest.split_at((*len).min(rest.len()));
        connection.receive(piece);
        rest = after;
    }
    connection
}

/// Writes a reply tree, announcing every container's length, and returns what a client must read.
fn write_tree(tree: &Value, version: ProtocolVersion, sink: &mut Encoder<Vec<u8>>) -> Value {
    let all = |elements: &[Value], sink: &mut Encoder<Vec<u8>>| -> Vec<Value> {
        elements.iter().map(|element| write_tree(element, version, sink)).collect()
    };
    let resp3 = version == ProtocolVersion::Resp3;
    match tree {
        Value::Array(elements) => {
            sink.array(elements.len());
            Value::Array(all(elements, sink))
        }
        Value::Set(elements) => {
            sink.set(elements.len());
            let elements = all(elements, sink);
            if resp3 { Value::Set(elements) } else { Value::Array(elements) }
        }
        Value::Map(pairs) => {
            sink.map(pairs.len());
            let flat: Vec<Value> =
                pairs.iter().flat_map(|(key, value)| [key.clone(), value.clone()]).collect();
            let flat = all(&flat, sink);
            if resp3 {
                Value::Map(flat.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect())
            } else {
                Value::Array(flat)
            }
        }
        scalar => write_scalar(scalar, resp3, sink),
    }
}

fn write_scalar(scalar: &Value, resp3: bool, sink: &mut Encoder<Vec<u8>>) -> Value {
    match scalar {
        Value::Integer(value) => sink.integer(*value),
        Value::Bulk(bytes) => sink.bulk(bytes),
        Value::Double(value) => {
            sink.double(*value);
            if !resp3 {
                return Value::Bulk(anabranch_resp::format_double(*value).to_vec());
            }
        }
        Value::BigNumber(digits) => {
            sink.big_number(digits);
            if !resp3 {
                return Value::Bulk(digits.clone());
            }
        }
        Value::Boolean(value) => {
            sink.boolean(*value);
            if !resp3 {
                return Value::Integer((*value).into());
            }
        }
        Value::Verbatim { format, text } => {
            sink.verbatim(*format, text);
            if !resp3 {
                return Value::Bulk(text.clone());
            }
        }
        Value::NullArray => {
            sink.null_array();
            return if resp3 { Value::Null } else { Value::NullArray };
        }
        _ => {
            sink.null();
            return Value::Null;
        }
    }
    scalar.clone()
}

fn tree() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        any::<i64>().prop_map(Value::Integer),
        argument().prop_map(Value::Bulk),
        any::<f64>().prop_filter("comparable", |value| !value.is_nan()).prop_map(Value::Double),
        "-?[0-9]{1,40}".prop_map(|digits| Value::BigNumber(digits.into_bytes())),
        any::<bool>().prop_map(Value::Boolean),
        (any::<[u8; 3]>(), argument()).prop_map(|(format, text)| Value::Verbatim { format, text }),
        Just(Value::Null),
        Just(Value::NullArray),
    ];
    scalar.prop_recursive(4, 40, 12, |element| {
        prop_oneof![
            vec(element.clone(), 0..12).prop_map(Value::Array),
            vec(element.clone(), 0..5).prop_map(Value::Set),
            vec((element.clone(), element), 0..5).prop_map(Value::Map),
        ]
    })
}

proptest! {
    #[test]
    fn commands_survive_any_split(
        commands in vec(vec(argument(), 1..12), 0..12),
        pieces in vec(1usize..300, 1..8),
    ) {
        let mut input = Vec::new();
        commands.iter().for_each(|command: &Command| encode_command(&mut input, command));
        let connection = feed(Limits::default(), true, &input, &pieces);
        prop_assert_eq!(connection.error, None);
        prop_assert_eq!(&connection.commands, &commands);
        prop_assert!(connection.unread.is_empty());
        let whole = feed(Limits::default(), true, &input, &[input.len().max(1)]);
        prop_assert_eq!(&whole.commands, &commands);
    }

    #[test]
    fn inline_words_survive_quoting(words in vec(vec(any::<u8>(), 0..9), 1..5), pieces in vec(1usize..9, 1..5)) {
        let mut input = Vec::new();
        for word in &words {
            input.extend_from_slice(b" \"");
            word.iter().for_each(|byte| input.extend_from_slice(format!("\\x{byte:02x}").as_bytes()));
            input.push(b'"');
        }
        input.extend_from_slice(b"\r\n");
        prop_assert_eq!(feed(Limits::default(), true, &input, &pieces).commands, vec![words]);
    }

    #[test]
    fn noise_is_judged_alike_in_any_pieces(
        input in noise(),
        pieces in vec(1usize..40, 1..6),
        authenticated: bool,
    ) {
        let whole = feed(LOW, authenticated, &input, &[input.len().max(1)]);
        let parts = feed(LOW, authenticated, &input, &pieces);
        prop_assert_eq!(&whole.commands, &parts.commands);
        prop_assert_eq!(whole.complaint(), parts.complaint());
        if whole.error.is_none() {
            prop_assert_eq!(whole.unread, parts.unread);
        }
    }

    /// Every argument of a multibulk command lies inside the input, at its place.
    #[test]
    fn nothing_is_consumed_beyond_the_input(input in noise()) {
        let mut pipeline = Pipeline::default();
        let mut parser = Parser::new(LOW, true);
        if let Ok(consumed) = parser.parse(&input, &mut pipeline) {
            prop_assert!(consumed <= input.len());
        }
        let mut end = 0;
        for (index, arguments) in pipeline.commands(&input).enumerate() {
            let command_end = pipeline.end_of(index).expect("it is a command");
            prop_assert!(end < command_end && command_end <= input.len());
            prop_assert!(arguments.iter().map(<[u8]>::len).sum::<usize>() < command_end - end);
            end = command_end;
        }
    }

    #[test]
    fn replies_survive_encoding(trees in vec(tree(), 1..4), resp3: bool, pieces in vec(1usize..60, 1..6)) {
        let version = if resp3 { ProtocolVersion::Resp3 } else { ProtocolVersion::Resp2 };
        let mut encoder = Encoder::new(Vec::new(), version);
        let expected: Vec<Value> = trees.iter().map(|tree| write_tree(tree, version, &mut encoder)).collect();
        let input = encoder.into_output();

        let mut parser = ReplyParser::default();
        let (mut unread, mut rest, mut values) = (Vec::new(), &input[..], Vec::new());
        for len in pieces.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (piece, after) = rest.split_at((*len).min(rest.len()));
            unread.extend_from_slice(piece);
            rest = after;
            while let (consumed, Some(value)) = parser.parse(&unread).map(|(consumed, value)| {
                unread.drain(..consumed);
                (consumed, value)
            }).expect("well-formed") {
                prop_assert!(consumed > 0);
                values.push(value);
            }
        }
        prop_assert_eq!(values, expected);
        prop_assert!(unread.is_empty());
    }

    /// What a kept reply replays is what was written directly.
    #[test]
    fn recorded_replies_replay(
        bytes in argument(),
        text in ".{0,9}",
        double in -1e9f64..1e9,
        integer: i64,
        resp3: bool,
    ) {
        let version = if resp3 { ProtocolVersion::Resp3 } else { ProtocolVersion::Resp2 };
        let mut recorded = types::ReplyBuf::new();
        let mut direct = Encoder::new(Vec::new(), version);
        for sink in [&mut recorded as &mut dyn ReplySink, &mut direct] {
            sink.map(3);
            sink.simple(&text);
            sink.bulk(&bytes);
            sink.text(&text);
            sink.pairs(1);
            sink.pair();
            sink.integer(integer);
            sink.double(double);
            sink.integer(integer);
            sink.set(3);
            sink.null();
            sink.null_array();
            sink.error(&types::Error::err(text.clone()));
        }
        let mut replayed = Encoder::new(Vec::new(), version);
        recorded.replay(&mut replayed);
        prop_assert_eq!(replayed.output(), direct.output());
        let (consumed, value) = ReplyParser::default().parse(direct.output()).expect("well-formed");
        prop_assert!(value.is_some());
        prop_assert_eq!(consumed, direct.output().len());
    }

    #[test]
    fn reply_noise_never_panics(
        tokens in vec(select(ALMOST_REPLIES), 0..40),
        tail in vec(any::<u8>(), 0..20),
    ) {
        let mut input = tokens.concat();
        input.extend_from_slice(&tail);
        let mut parser = ReplyParser::new(ReplyLimits { max_depth: 5, ..ReplyLimits::default() });
        let mut unread = &input[..];
        while let Ok((consumed, value)) = parser.parse(unread) {
            prop_assert!(consumed <= unread.len());
            unread = &unread[consumed..];
            if value.is_none() {
                break;
            }
        }
    }
}
