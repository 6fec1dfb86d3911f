//! The ways a client can break the protocol, in Redis's words.

/// A request that no parser can get past. The server replies with [`ProtocolError::write_reply`] and closes.
///
/// The texts and the bytes at which they appear are those of Redis 7.0 (`processMultibulkBuffer` and
/// `processInlineBuffer`), with two differences. Redis tests the length of a line against the bytes that happen
/// to be in its buffer, so a line that is too long passes when its end arrives in the same read; here the length
/// of the line alone decides. And Redis closes without a word when one command outgrows
/// `client-query-buffer-limit`; here the client is told ([`ProtocolError::TooBigCommand`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// The count after `*` is not a number, or too large.
    #[error("Protocol error: invalid multibulk length")]
    InvalidMultibulkLength,
    /// The client has not authenticated and sends more arguments than `AUTH` or `HELLO` need.
    #[error("Protocol error: unauthenticated multibulk length")]
    UnauthenticatedMultibulkLength,
    /// The line that starts with `*` has no end.
    #[error("Protocol error: too big mbulk count string")]
    TooBigMultibulkCount,
    /// The length after `$` is not a number, negative, or too large.
    #[error("Protocol error: invalid bulk length")]
    InvalidBulkLength,
    /// The client has not authenticated and sends an argument longer than any password.
    #[error("Protocol error: unauthenticated bulk length")]
    UnauthenticatedBulkLength,
    /// The line where `$` and a length are due has no end.
    #[error("Protocol error: too big bulk count string")]
    TooBigBulkCount,
    /// An argument starts with another byte than `$`.
    #[error("Protocol error: expected '$', got '{}'", char::from(*.got))]
    ExpectedDollar {
        /// The byte that stands where `$` is due.
        got: u8,
    },
    /// An inline command has no end.
    #[error("Protocol error: too big inline request")]
    TooBigInline,
    /// A quote of an inline command is not closed, or followed by something else than a blank.
    #[error("Protocol error: unbalanced quotes in request")]
    UnbalancedQuotes,
    /// One command, with all its arguments, exceeds [`crate::Limits::max_command_bytes`].
    #[error("Protocol error: too big request")]
    TooBigCommand,
}

impl ProtocolError {
    /// Appends the error reply, byte for byte as Redis sends it.
    pub fn write_reply(&self, out: &mut Vec<u8>) {
        if let ProtocolError::ExpectedDollar { got } = *self {
            out.extend_from_slice(b"-ERR Protocol error: expected '$', got '");
            out.push(if matches!(got, b'\r' | b'\n') { b' ' } else { got });
            out.extend_from_slice(b"'\r\n");
        } else {
            out.extend_from_slice(format!("-ERR {self}\r\n").as_bytes());
        }
    }

    /// True where authenticating first would have made the request acceptable.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(
            self,
            ProtocolError::UnauthenticatedMultibulkLength | ProtocolError::UnauthenticatedBulkLength
        )
    }
}
