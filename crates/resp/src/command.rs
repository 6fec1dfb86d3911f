//! Commands, as a client sends them.

use crate::integer::write_backwards;

/// Appends the command `arguments` (its name first) as an array of bulk strings.
///
/// ```
/// let mut out = Vec::new();
/// anabranch_resp::encode_command(&mut out, &["GET", "key"]);
/// assert_eq!(out, b"*2\r\n$3\r\nGET\r\n$3\r\nkey\r\n");
/// ```
pub fn encode_command<A: AsRef<[u8]>>(out: &mut Vec<u8>, arguments: &[A]) {
    put_header(out, b'*', arguments.len());
    for argument in arguments {
        put_bulk(out, argument.as_ref());
    }
}

/// Appends a marker, a number and the end of the line.
#[inline]
pub(crate) fn put_header(out: &mut Vec<u8>, marker: u8, number: usize) {
    // Short lengths and counts are the common case: one copy of a constant size.
    let digit = |number: usize| b'0' + number as u8;
    if number < 10 {
        out.extend_from_slice(&[marker, digit(number), b'\r', b'\n']);
    } else if number < 100 {
        out.extend_from_slice(&[marker, digit(number / 10), digit(number % 10), b'\r', b'\n']);
    } else {
        put_integer(out, marker, number as i64);
    }
}

/// Appends a marker, a signed number and the end of the line.
#[inline]
pub(crate) fn put_integer(out: &mut Vec<u8>, marker: u8, number: i64) {
    // A marker, at most twenty characters, the end of the line: put together first, copied once.
    let mut line = [0; 23];
    line[21..].copy_from_slice(b"\r\n");
    let start = write_backwards(number, &mut line[1..21]);
    line[start] = marker;
    out.extend_from_slice(&line[start..]);
}

/// Appends a bulk string.
#[inline]
pub(crate) fn put_bulk(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 25);
    put_header(out, b'$', bytes.len());
    out.extend_from_slice(bytes);
    out.extend_from_slice(b"\r\n");
}
