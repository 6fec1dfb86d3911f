//! Inline commands: a line of words, for people with telnet.

use crate::error::ProtocolError;
use crate::pipeline::Span;

/// Splits `line` into words by Redis's rules (`sdssplitargs`) and appends them, without quotes and escapes, to
/// `text` and their places to `spans`. `line` has neither its end nor a NUL byte.
///
/// Blanks separate words. A word may hold a quoted part, after which it ends. Between double quotes `\n \r \t \b
/// \a` and `\xHH` mean a byte and any other escaped byte itself; between single quotes only `\'` is an escape.
pub(crate) fn split(line: &[u8], text: &mut Vec<u8>, spans: &mut Vec<Span>) -> Result<(), ProtocolError> {
    let mut rest = line;
    loop {
        let blanks = rest.iter().take_while(|byte| is_space(**byte)).count();
        rest = &rest[blanks..];
        if rest.is_empty() {
            return Ok(());
        }
        let start = text.len();
        rest = word(rest, text)?;
        spans.push(Span { start: start as u32, len: (text.len() - start) as u32 });
    }
}

/// The words of a line, without quotes and escapes; `None` if a quote is not closed.
pub fn split_words(line: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (mut text, mut spans) = (Vec::new(), Vec::new());
    split(line, &mut text, &mut spans).ok()?;
    let word = |span: &Span| text[span.start as usize..][..span.len as usize].to_vec();
    Some(spans.iter().map(word).collect())
}

/// Appends the word at the front of `line` and returns what follows it.
fn word<'a>(line: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    let mut rest = line;
    while let [byte, after @ ..] = rest {
        match byte {
            b' ' | b'\n' | b'\r' | b'\t' => break,
            b'"' => return double_quoted(after, text).and_then(closed),
            b'\'' => return single_quoted(after, text).and_then(closed),
            byte => text.push(*byte),
        }
        rest = after;
    }
    Ok(rest)
}

/// A closing quote must end the word.
fn closed(rest: &[u8]) -> Result<&[u8], ProtocolError> {
    match rest.first() {
        Some(byte) if !is_space(*byte) => Err(ProtocolError::UnbalancedQuotes),
        _ => Ok(rest),
    }
}

fn double_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [b'"', after @ ..] => return Ok(after),
            [b'\\', b'x', high, low, after @ ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                text.push(hex(*high) << 4 | hex(*low));
                rest = after;
            }
            [b'\\', escaped, after @ ..] => {
                text.push(match escaped {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 0x08,
                    b'a' => 0x07,
                    other => *other,
                });
                rest = after;
            }
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

fn single_quoted<'a>(mut rest: &'a [u8], text: &mut Vec<u8>) -> Result<&'a [u8], ProtocolError> {
    loop {
        match rest {
            [b'\'', after @ ..] => return Ok(after),
            [b'\\', b'\'', after @ ..] => {
                text.push(b'\'');
                rest = after;
            }
            [byte, after @ ..] => {
                text.push(*byte);
                rest = after;
            }
            [] => return Err(ProtocolError::UnbalancedQuotes),
        }
    }
}

/// C's `isspace`, which unlike Rust's ASCII white space includes the vertical tab.
fn is_space(byte: u8) -> bool {
    byte.is_ascii_whitespace() || byte == 0x0b
}

/// The value of a byte that is a hexadecimal digit.
fn hex(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'f' => digit - b'a' + 10,
        _ => digit - b'A' + 10,
    }
}
