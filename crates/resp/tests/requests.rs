//! What a server accepts and refuses, byte for byte as recorded from Redis 7.0.15 over raw sockets.

use crate::support::{Command, Connection};
use anabranch_resp::{Limits, Parser, Pipeline, ProtocolError};

/// Input, the commands that are executed, and the reply before the connection closes ("" when it stays open).
type Case = (&'static [u8], &'static [&'static [&'static [u8]]], &'static [u8]);

const INVALID_COUNT: &[u8] = b"-ERR Protocol error: invalid multibulk length";
const INVALID_LENGTH: &[u8] = b"-ERR Protocol error: invalid bulk length";
const TOO_BIG_COUNT: &[u8] = b"-ERR Protocol error: too big mbulk count string";
const TOO_BIG_LENGTH: &[u8] = b"-ERR Protocol error: too big bulk count string";
const TOO_BIG_INLINE: &[u8] = b"-ERR Protocol error: too big inline request";
const UNBALANCED: &[u8] = b"-ERR Protocol error: unbalanced quotes in request";
const UNAUTHENTICATED_COUNT: &[u8] = b"-ERR Protocol error: unauthenticated multibulk length";
const UNAUTHENTICATED_LENGTH: &[u8] = b"-ERR Protocol error: unauthenticated bulk length";

/// Feeds the input whole and in single bytes; both must give the same.
fn check(input: &[u8], commands: &[&[&[u8]]], complaint: &[u8], limits: Limits, authenticated: bool) {
    let expected: Vec<Command> =
        commands.iter().map(|command| command.iter().map(|word| word.to_vec()).collect()).collect();
    for piece_len in [input.len(), 1] {
        let mut connection = Connection::new(limits, authenticated);
        input.chunks(piece_len).for_each(|piece| connection.receive(piece));
        let shown = input[..input.len().min(60)].escape_ascii();
        assert_eq!(connection.commands, expected, "commands of {shown} in pieces of {piece_len}");
        assert_eq!(
            connection.complaint().escape_ascii().to_string(),
            complaint.escape_ascii().to_string(),
            "reply to {shown} in pieces of {piece_len}"
        );
    }
}

fn check_all(cases: &[Case]) {
    for (input, commands, complaint) in cases {
        check(input, commands, complaint, Limits::default(), true);
    }
}

#[test]
fn counts() {
    check_all(&[
        (b"*1\r\n$4\r\nPING\r\n", &[&[b"PING"]], b""),
        (b"*-1\r\n*1\r\n$4\r\nPING\r\n", &[&[b"PING"]], b""),
        (b"*-5\r\nPING\r\n", &[&[b"PING"]], b""),
        (b"*0\r\nPING\r\n", &[&[b"PING"]], b""),
        (b"*abc\r\n", &[], INVALID_COUNT),
        (b"*\r\n", &[], INVALID_COUNT),
        (b"*01\r\n$4\r\nPING\r\n", &[], INVALID_COUNT),
        (b"*+1\r\n", &[], INVALID_COUNT),
        (b"*-0\r\nPING\r\n", &[], INVALID_COUNT),
        (b"* 1\r\n", &[], INVALID_COUNT),
        (b"*1 \r\n", &[], INVALID_COUNT),
        (b"*2147483647\r\n", &[], b""),
        (b"*2147483648\r\n", &[], INVALID_COUNT),
        (b"*9223372036854775808\r\n", &[], INVALID_COUNT),
        (b"*99999999999999999999999\r\n", &[], INVALID_COUNT),
        (b"*x\r", &[], b""),
        (b"*1\n$4\nPING\n", &[], b""),
        (b"*\x001\r\nPING\r\n", &[], b""),
    ]);
}

#[test]
fn bulk_lengths() {
    check_all(&[
        (b"*2\r\n$4\r\nECHO\r\n$0\r\n\r\n", &[&[b"ECHO", b""]], b""),
        (b"*1\r\n$0\r\n\r\n", &[&[b""]], b""),
        (b"*1\r\n$-1\r\n", &[], INVALID_LENGTH),
        (b"*1\r\n$-0\r\n", &[], INVALID_LENGTH),
        (b"*1\r\n$a\r\n", &[], INVALID_LENGTH),
        (b"*1\r\n$\r\n", &[], INVALID_LENGTH),
        (b"*1\r\n$04\r\nPING\r\n", &[], INVALID_LENGTH),
        (b"*1\r\n$536870912\r\n", &[], b""),
        (b"*1\r\n$536870913\r\n", &[], INVALID_LENGTH),
        (b"*1\r\nPING\r\n", &[], b"-ERR Protocol error: expected '$', got 'P'"),
        (b"*1\r\n:4\r\n", &[], b"-ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n\r\n", &[], b"-ERR Protocol error: expected '$', got ' '"),
        (b"*1\r\n\n\r\n", &[], b"-ERR Protocol error: expected '$', got ' '"),
        (b"*1\r\n\xff4\r\n", &[], b"-ERR Protocol error: expected '$', got '\xff'"),
        (b"*1\r\n:400\r\nabcdef", &[], b"-ERR Protocol error: expected '$', got ':'"),
        (b"*1\r\n\x00\r\n", &[], b""),
    ]);
}

#[test]
fn line_ends_are_not_looked_at() {
    check_all(&[
        (b"*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", &[&[b"PING"], &[b"PING"]], b""),
        (b"*1\rx$4\ryPING\r\n", &[&[b"PING"]], b""),
    ]);
}

#[test]
fn inline_commands() {
    check_all(&[
        (b"PING\r\n", &[&[b"PING"]], b""),
        (b"PING\n", &[&[b"PING"]], b""),
        (b"\r\n\n  \r\nPING\r\n", &[&[b"PING"]], b""),
        (b"\rPING\r\n", &[&[b"PING"]], b""),
        (b"PING \r \r\n", &[&[b"PING"]], b""),
        (b"ECHO a\rb\n", &[&[b"ECHO", b"a", b"b"]], b""),
        (b"ECHO a\x00b\r\nPING\r\n", &[], b""),
        (b"ECHO \"a b\"\r\n", &[&[b"ECHO", b"a b"]], b""),
        (b"ECHO 'a b'\r\n", &[&[b"ECHO", b"a b"]], b""),
        (b"ECHO \"\\x41\\n\\r\\t\\b\\a\\q\\\"\\\\\"\r\n", &[&[b"ECHO", b"A\n\r\t\x08\x07q\"\\"]], b""),
        (b"ECHO 'it\\'s'\r\n", &[&[b"ECHO", b"it's"]], b""),
        (b"ECHO '\\'\\n\\\\'\r\n", &[], UNBALANCED),
        (b"ECHO \"\\x4g\"\r\n", &[&[b"ECHO", b"x4g"]], b""),
        (b"ECHO \\x41\r\n", &[&[b"ECHO", b"\\x41"]], b""),
        (b"ECHO foo\"bar\"\r\n", &[&[b"ECHO", b"foobar"]], b""),
        (b"ECHO foo'bar'\r\n", &[&[b"ECHO", b"foobar"]], b""),
        (b"PI\"NG\"\r\n", &[&[b"PING"]], b""),
        (b"\"PI\"NG\r\n", &[], UNBALANCED),
        (b"ECHO \"foo\"bar\r\n", &[], UNBALANCED),
        (b"ECHO 'foo'bar\r\n", &[], UNBALANCED),
        (b"ECHO a\"b\"'c'\r\n", &[], UNBALANCED),
        (b"ECHO \"foo\r\n", &[], UNBALANCED),
        (b"ECHO 'foo\r\n", &[], UNBALANCED),
        (b"ECHO \"foo\\\r\n", &[], UNBALANCED),
        (b"ECHO \"foo\\\"\r\n", &[], UNBALANCED),
        (b"\"\"\r\n", &[&[b""]], b""),
        (b"''\r\n", &[&[b""]], b""),
        (b"ECHO \"\"\r\n", &[&[b"ECHO", b""]], b""),
        (b"ECHO a\x0bb\r\n", &[&[b"ECHO", b"a\x0bb"]], b""),
        (b"ECHO \x0ba\r\n", &[&[b"ECHO", b"a"]], b""),
        (b"ECHO \"a\"\x0bX\r\n", &[&[b"ECHO", b"a", b"X"]], b""),
        (b"ECHO \"\xff\x80\"\r\n", &[&[b"ECHO", b"\xff\x80"]], b""),
        (b"$4\r\nPING\r\n", &[&[b"$4"], &[b"PING"]], b""),
        (b" *1\r\n", &[&[b"*1"]], b""),
    ]);
}

#[test]
fn what_precedes_an_error_is_executed() {
    check_all(&[
        (b"PING\r\n*1\r\nPING\r\nPING\r\n", &[&[b"PING"]], b"-ERR Protocol error: expected '$', got 'P'"),
        (b"PING\r\n\"x\r\nPING\r\n", &[&[b"PING"]], UNBALANCED),
        (b"*2\r\n$1\r\na\r\n$1\r\nb\r\n*2\r\n$1\r\nc\r\n$x\r\n", &[&[b"a", b"b"]], INVALID_LENGTH),
    ]);
}

#[test]
fn lines_have_a_largest_length() {
    let line = |prefix: &[u8], byte: u8, len: usize, suffix: &[u8]| {
        let mut input = prefix.to_vec();
        input.extend(std::iter::repeat_n(byte, len));
        input.extend_from_slice(suffix);
        input
    };
    let cases: [(Vec<u8>, &[u8]); 9] = [
        (line(b"*", b'1', 65535, b""), b""),
        (line(b"*", b'1', 65536, b""), TOO_BIG_COUNT),
        (line(b"*", b'1', 65535, b"\r\n"), INVALID_COUNT),
        (line(b"*1\r\n$", b'1', 65535, b""), b""),
        (line(b"*1\r\n$", b'1', 65536, b""), TOO_BIG_LENGTH),
        (line(b"*1\r\n", b'a', 65537, b""), TOO_BIG_LENGTH),
        (line(b"", b'a', 65536, b""), b""),
        (line(b"", b'a', 65537, b""), TOO_BIG_INLINE),
        (line(b"ECHO \0", b'a', 65537, b"\n"), TOO_BIG_INLINE),
    ];
    for (input, complaint) in &cases {
        check(input, &[], complaint, Limits::default(), true);
    }
}

#[test]
fn a_stranger_may_send_little() {
    let strangers: &[Case] = &[
        (b"*10\r\n", &[], b""),
        (b"*11\r\n", &[], UNAUTHENTICATED_COUNT),
        (b"*-11\r\n", &[], b""),
        (b"*2147483648\r\n", &[], INVALID_COUNT),
        (b"*1\r\n$16384\r\n", &[], b""),
        (b"*1\r\n$16385\r\n", &[], UNAUTHENTICATED_LENGTH),
        (b"*1\r\n$536870913\r\n", &[], INVALID_LENGTH),
        (b"PING\r\n*12\r\n", &[&[b"PING"]], UNAUTHENTICATED_COUNT),
        (
            b"A 1 2 3 4 5 6 7 8 9 10\n",
            &[&[b"A", b"1", b"2", b"3", b"4", b"5", b"6", b"7", b"8", b"9", b"10"]],
            b"",
        ),
    ];
    for (input, commands, complaint) in strangers {
        check(input, commands, complaint, Limits::default(), false);
    }
}

#[test]
fn authentication_holds_for_the_rest_of_the_pipeline() {
    let mut input = b"AUTH pw\r\n*11\r\n".to_vec();
    (0..11).for_each(|_| input.extend_from_slice(b"$1\r\nx\r\n"));
    input.extend_from_slice(b"*1\r\n$16385\r\n");
    input.extend(std::iter::repeat_n(b'y', 16385));
    input.extend_from_slice(b"\r\n");
    let long = [b'y'; 16385];
    check(&input, &[&[b"AUTH", b"pw"], &[&b"x"[..]; 11], &[&long]], b"", Limits::default(), false);
}

/// `RESET` may take the authentication away while a long argument is on its way.
#[test]
fn an_accepted_argument_stays_accepted() {
    let mut connection = Connection::new(Limits::default(), true);
    connection.receive(b"*2\r\n$1\r\na\r\n$20000\r\n");
    connection.parser.set_authenticated(false);
    let long = vec![b'$'; 20000];
    connection.receive(&long);
    connection.receive(b"\r\nPING\r\n");
    assert_eq!(connection.error, None);
    assert_eq!(connection.commands, [vec![b"a".to_vec(), long], vec![b"PING".to_vec()]]);
}

#[test]
fn limits_are_configurable() {
    let limits = Limits {
        max_bulk_bytes: 8,
        max_arguments: 3,
        max_line_bytes: 16,
        max_command_bytes: 40,
        max_batch_commands: 2,
    };
    let cases: &[Case] = &[
        (b"*1\r\n$8\r\n12345678\r\n", &[&[b"12345678"]], b""),
        (b"*1\r\n$9\r\n", &[], INVALID_LENGTH),
        (b"*3\r\n", &[], b""),
        (b"*4\r\n", &[], INVALID_COUNT),
        (b"1234567890123456\n", &[&[b"1234567890123456"]], b""),
        (b"12345678901234567", &[], TOO_BIG_INLINE),
        (
            b"*3\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n$2\r\n12\r\n",
            &[&[b"12345678", b"12345678", b"12"]],
            b"",
        ),
        (b"*3\r\n$8\r\n12345678\r\n$8\r\n12345678\r\n$3\r\n", &[], b"-ERR Protocol error: too big request"),
        (b"1\n2\n3\n4\n5\n", &[&[b"1"], &[b"2"], &[b"3"], &[b"4"], &[b"5"]], b""),
    ];
    for (input, commands, complaint) in cases {
        check(input, commands, complaint, limits, true);
    }
}

#[test]
fn a_batch_ends_at_its_limit() {
    let mut parser = Parser::new(Limits { max_batch_commands: 2, ..Limits::default() }, true);
    let mut pipeline = Pipeline::default();
    assert_eq!(parser.parse(b"1\n2\n3\n", &mut pipeline), Ok(4));
    assert_eq!(pipeline.len(), 2);
    assert_eq!(pipeline.end_of(0), Some(2));
    assert_eq!(pipeline.end_of(2), None);
}

/// A large argument tells how much buffer it wants, and its arrival is not looked at byte by byte.
#[test]
fn a_large_argument_announces_its_need() {
    let mut parser = Parser::default();
    let mut pipeline = Pipeline::default();
    let mut unread = b"PING\r\n*2\r\n$3\r\nGET\r\n$100000000\r\n".to_vec();
    assert_eq!(parser.needed(), None);
    assert_eq!(parser.parse(&unread, &mut pipeline), Ok(6));
    unread.drain(..6);
    assert_eq!(parser.needed(), Some(25 + 100_000_000 + 2));
    for _ in 0..1000 {
        unread.extend_from_slice(&[b'*'; 1000]);
        assert_eq!(parser.parse(&unread, &mut pipeline), Ok(0));
        assert!(pipeline.is_empty());
    }
}

#[test]
fn a_connection_may_go_back_to_a_command() {
    let input = b"*1\r\n$1\r\na\r\nblock\r\n*2\r\n$1\r\nb\r\n$1\r\nc\r\n*2\r\n$4\r\nhalf";
    let mut parser = Parser::default();
    let mut pipeline = Pipeline::default();
    assert_eq!(parser.parse(input, &mut pipeline), Ok(input.len() - 12));
    let after = pipeline.end_of(1).expect("two commands");
    assert_eq!(&pipeline.get(1, input).expect("two commands")[0], b"block");
    parser.reset();
    assert_eq!(parser.parse(&input[after..], &mut pipeline), Ok(input.len() - 12 - after));
    let arguments = pipeline.get(0, &input[after..]).expect("one command");
    assert_eq!(format!("{arguments:?}"), r#"["b", "c"]"#);
    assert_eq!((arguments.get(1), arguments.get(2)), (Some(&b"c"[..]), None));
    assert_eq!(arguments.after(1).name(), b"c");
    assert!(arguments.after(2).is_empty() && arguments.after(3).is_empty());
}

#[test]
fn an_error_reads_as_its_reply() {
    let error = ProtocolError::ExpectedDollar { got: b'x' };
    assert_eq!(error.to_string(), "Protocol error: expected '$', got 'x'");
}
