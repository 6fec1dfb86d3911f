//! Counts replies without looking into them.
//!
//! Values are skipped by their length, so that a client spends a few nanoseconds on a reply whatever it holds. Only
//! version 2 of the protocol is understood: no connection of this crate asks for another.

use std::fmt;

/// Remembers how far into a reply the bytes of a connection have come.
#[derive(Debug, Default)]
pub struct Scanner {
    /// Bytes of a bulk string, with the end of its line, that are still to come.
    body: usize,
    /// Values of the reply that are still to come; 0 between replies.
    values: usize,
    /// The first error reply, and how many there were.
    errors: u64,
    first_error: Option<String>,
}

/// What some bytes held.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    /// How many bytes are done with; the others begin a line whose end has not come.
    pub consumed: usize,
    /// How many replies ended.
    pub replies: usize,
}

/// The server does not speak the protocol.
#[derive(Debug, PartialEq, Eq)]
pub struct Malformed(String);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is no reply of the Redis protocol: `{}`", self.0)
    }
}

impl Scanner {
    /// Goes through bytes that follow those consumed before.
    pub fn scan(&mut self, input: &[u8]) -> Result<Scanned, Malformed> {
        let mut scanned = Scanned::default();
        loop {
            if self.body > 0 {
                let skipped = self.body.min(input.len() - scanned.consumed);
                scanned.consumed += skipped;
                self.body -= skipped;
                if self.body > 0 {
                    return Ok(scanned);
                }
                scanned.replies += self.end_value();
                continue;
            }
            let rest = &input[scanned.consumed..];
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(scanned) };
            scanned.consumed += end + 1;
            scanned.replies += self.line(&rest[..end])?;
        }
    }

    /// The errors so far, and the first of them.
    pub fn errors(&self) -> Option<(u64, &str)> {
        self.first_error.as_deref().map(|first| (self.errors, first))
    }

    /// Takes a line without its line feed; answers how many replies it ended.
    fn line(&mut self, line: &[u8]) -> Result<usize, Malformed> {
        let malformed = || Malformed(String::from_utf8_lossy(&line[..line.len().min(40)]).into_owned());
        let (marker, text) = match line {
            [marker, text @ .., b'\r'] => (*marker, text),
            _ => return Err(malformed()),
        };
        if self.values == 0 {
            self.values = 1;
        }
        match marker {
            b'+' | b':' => {}
            b'-' => self.note_error(text),
            b'$' => {
                if let Some(length) = length(text).map_err(|NoLength| malformed())? {
                    self.body = length + 2;
                    return Ok(0);
                }
            }
            b'*' => {
                self.values += length(text).map_err(|NoLength| malformed())?.unwrap_or(0);
            }
            _ => return Err(malformed()),
        }
        Ok(self.end_value())
    }

    fn end_value(&mut self) -> usize {
        self.values -= 1;
        usize::from(self.values == 0)
    }

    fn note_error(&mut self, text: &[u8]) {
        self.errors += 1;
        if self.first_error.is_none() {
            self.first_error = Some(String::from_utf8_lossy(text).into_owned());
        }
    }
}

/// The length in a header; none for `-1`, the null value.
fn length(text: &[u8]) -> Result<Option<usize>, NoLength> {
    if text == b"-1" {
        return Ok(None);
    }
    if text.is_empty() || text.len() > 10 {
        return Err(NoLength);
    }
    let mut number = 0;
    for digit in text {
        if !digit.is_ascii_digit() {
            return Err(NoLength);
        }
        number = number * 10 + usize::from(digit - b'0');
    }
    Ok(Some(number))
}

/// Text that is no length.
struct NoLength;

#[cfg(test)]
mod tests {
    use super::*;

    const REPLIES: &[u8] =
        b"+OK\r\n:12\r\n$5\r\na\r\nbc\r\n$-1\r\n$0\r\n\r\n*0\r\n*-1\r\n*2\r\n*2\r\n:1\r\n$1\r\nx\r\n+OK\r\n-ERR no\r\n";

    #[test]
    fn replies_are_counted_whatever_they_hold() {
        let mut scanner = Scanner::default();
        let scanned = scanner.scan(REPLIES).unwrap();
        assert_eq!(scanned, Scanned { consumed: REPLIES.len(), replies: 9 });
        assert_eq!(scanner.errors(), Some((1, "ERR no")));
    }

    #[test]
    fn replies_may_come_in_pieces_of_any_size() {
        for size in 1..REPLIES.len() {
            let mut scanner = Scanner::default();
            let (mut held, mut replies) = (Vec::new(), 0);
            for piece in REPLIES.chunks(size) {
                held.extend_from_slice(piece);
                let scanned = scanner.scan(&held).unwrap();
                held.drain(..scanned.consumed);
                replies += scanned.replies;
            }
            assert_eq!((held.len(), replies), (0, 9), "{size}");
        }
    }

    #[test]
    fn an_error_inside_a_transaction_is_seen() {
        let mut scanner = Scanner::default();
        let scanned = scanner.scan(b"*2\r\n+OK\r\n-WRONGTYPE not this\r\n").unwrap();
        assert_eq!(scanned.replies, 1);
        assert_eq!(scanner.errors(), Some((1, "WRONGTYPE not this")));
    }

    #[test]
    fn what_is_no_reply_is_refused() {
        for bad in [&b"HTTP/1.1 400 Bad Request\r\n"[..], b"$x\r\n", b"*-2\r\n", b"$\r\n", b"+OK\n", b"\n"] {
            assert!(Scanner::default().scan(bad).is_err(), "{}", bad.escape_ascii());
        }
    }
}
