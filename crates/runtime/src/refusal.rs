//! Replies whose effects the log refused: each command gets an error of its own in the place of its reply, so that a
//! client that pipelines stays in step and knows which commands are meant.

use resp::{ReplyLimits, ReplyParser};
use std::ops::Range;

/// The error in place of a reply that revealed effects that were undone: its own, or others that it had read.
pub(crate) const UNDONE: &[u8] =
    b"-UNKNOWNOUTCOME the log could not be written (disk full or I/O error); what this reply told of \
    was not made durable and was undone, read before you retry\r\n";

/// The error in place of a reply that rests on records that the log has not taken for too long.
pub(crate) const RETAINED: &[u8] =
    b"-UNKNOWNOUTCOME the log cannot be written (disk full or I/O error, see the server's log); what this reply \
    told of becomes durable when it can, and is lost if the process ends before; make room on its disk, and read before \
    you retry\r\n";

/// Replaces the replies in `range` of `output`, except those in `own`, which tell of the session only, by `error`; returns how
/// many bytes the range has now. `None` if the range is not whole replies, and then nothing has changed.
pub(crate) fn replace(
    output: &mut Vec<u8>,
    range: Range<usize>,
    own: &[Range<usize>],
    error: &[u8],
) -> Option<usize> {
    let limits =
        ReplyLimits { max_bulk_bytes: usize::MAX, max_line_bytes: usize::MAX, ..ReplyLimits::default() };
    let mut parser = ReplyParser::new(limits);
    let mut replacement = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let (len, value) = parser.parse(output.get(start..range.end)?).ok()?;
        value?;
        if own.iter().any(|own| own.contains(&start)) {
            replacement.extend_from_slice(&output[start..start + len]);
        } else {
            replacement.extend_from_slice(error);
        }
        start += len;
    }
    let len = replacement.len();
    output.splice(range, replacement);
    Some(len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reply_of_the_range_becomes_an_error_except_the_sessions_own() {
        let mut output = b"+first\r\n+OK\r\n*2\r\n:1\r\n$2\r\na\n\r\n+PONG\r\n$-1\r\n+last\r\n".to_vec();
        let (from, to) = (8, output.len() - 7);
        let pong = 8 + 5 + 4 + 4 + 8;
        let own = vec![pong..pong + 7, to..to];
        let len = replace(&mut output, from..to, &own, UNDONE).expect("whole replies");
        let expected = [b"+first\r\n", UNDONE, UNDONE, b"+PONG\r\n", UNDONE, b"+last\r\n"].concat();
        assert_eq!(output, expected);
        assert_eq!(len, 3 * UNDONE.len() + 7);
    }

    #[test]
    fn half_a_reply_is_noticed() {
        let mut output = b"+OK\r\n$5\r\nab".to_vec();
        assert_eq!(replace(&mut output, 0..11, &[], UNDONE), None);
        assert_eq!(output, b"+OK\r\n$5\r\nab");
    }
}
