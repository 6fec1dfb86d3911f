//! Bytes to replies: the client's half of the protocol.

use crate::integer::parse_integer;
use crate::value::Value;

/// What a server may send before the client gives up on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// The longest byte string.
    pub max_bulk_bytes: usize,
    /// The longest line: a status, an error, a number, a header.
    pub max_line_bytes: usize,
    /// The most values in one reply, containers and what they contain.
    pub max_values: usize,
    /// How deep containers may nest.
    pub max_depth: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        ReplyLimits {
            max_bulk_bytes: 512 << 20,
            max_line_bytes: 64 << 10,
            max_values: 1 << 28,
            max_depth: 64,
        }
    }
}

/// Bytes that are no reply, or too much of one. The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReplyError {
    /// No reply starts with this byte.
    #[error("unknown reply type 0x{0:02x}")]
    UnknownType(u8),
    /// The bytes contradict the protocol; says where.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// The reply exceeds a limit; says which.
    #[error("the reply exceeds the limit on {0}")]
    TooLarge(&'static str),
}

/// Parses the replies that one connection receives, in both protocol versions.
///
/// The connection keeps a buffer of received bytes, hands [`ReplyParser::parse`] the unread part and drops what
/// was consumed. Elements are consumed as they arrive, so nothing is looked at twice. Memory is taken for what
/// has arrived, never for what is announced.
#[derive(Debug, Default)]
pub struct ReplyParser {
    limits: ReplyLimits,
    /// The containers that are not complete, outermost first.
    stack: Vec<Frame>,
    /// The byte string whose header has been consumed.
    bulk: Option<(BulkKind, usize)>,
    /// So many unread bytes hold no line end.
    scanned: usize,
    /// Values of the current reply so far.
    values: usize,
}

#[derive(Debug)]
struct Frame {
    kind: Container,
    remaining: usize,
    elements: Vec<Value>,
}

#[derive(Clone, Copy, Debug)]
enum Container {
    Array,
    Set,
    Map,
    Push,
    /// Keys and values about the value that follows; dropped.
    Attribute,
}

#[derive(Clone, Copy, Debug)]
enum BulkKind {
    String,
    Error,
    Verbatim,
}

/// What stands at the front of the unread bytes.
enum Item {
    Value(Value),
    Bulk(BulkKind, usize),
    Container(Container, usize),
}

impl ReplyParser {
    /// A parser at the start of a connection.
    pub fn new(limits: ReplyLimits) -> Self {
        ReplyParser { limits, ..ReplyParser::default() }
    }

    /// Reads at most one reply off the front of `input`, the unread bytes. Returns how many bytes were consumed,
    /// which may be some even when the reply is incomplete, and the reply.
    ///
    /// # Errors
    /// The server broke the protocol or a limit; the connection is to be closed.
    pub fn parse(&mut self, input: &[u8]) -> Result<(usize, Option<Value>), ReplyError> {
        let mut consumed = 0;
        loop {
            let unread = &input[consumed..];
            let item = match self.bulk {
                Some((kind, len)) => match read_bulk(unread, kind, len)? {
                    None => return Ok((consumed, None)),
                    Some(value) => {
                        self.bulk = None;
                        consumed += len + 2;
                        Item::Value(value)
                    }
                },
                None => match self.take_line(unread)? {
                    None => return Ok((consumed, None)),
                    Some(line) => {
                        consumed += line.len() + 2;
                        self.read_line(line)?
                    }
                },
            };
            let complete = match item {
                Item::Value(value) => self.complete(value),
                Item::Bulk(kind, len) => {
                    self.bulk = Some((kind, len));
                    None
                }
                Item::Container(kind, len) => self.open(kind, len)?,
            };
            if let Some(value) = complete {
                self.values = 0;
                return Ok((consumed, Some(value)));
            }
        }
    }

    /// The line at the front of `unread` without its end, when it is complete.
    fn take_line<'a>(&mut self, unread: &'a [u8]) -> Result<Option<&'a [u8]>, ReplyError> {
        let window = unread.get(self.scanned..).unwrap_or(&[]);
        match window.iter().position(|byte| *byte == b'\n') {
            Some(offset) => {
                let end = self.scanned + offset;
                self.scanned = 0;
                if end > self.limits.max_line_bytes {
                    return Err(ReplyError::TooLarge("the length of a line"));
                }
                unread[..end].strip_suffix(b"\r").ok_or(ReplyError::Malformed("line end")).map(Some)
            }
            None if unread.len() > self.limits.max_line_bytes => {
                Err(ReplyError::TooLarge("the length of a line"))
            }
            None => {
                self.scanned = unread.len();
                Ok(None)
            }
        }
    }

    /// Reads a line: a whole value, or the header of one.
    fn read_line(&mut self, line: &[u8]) -> Result<Item, ReplyError> {
        self.values += 1;
        if self.values > self.limits.max_values {
            return Err(ReplyError::TooLarge("the number of values"));
        }
        let (marker, rest) = line.split_first().ok_or(ReplyError::Malformed("empty line"))?;
        Ok(match marker {
            b'+' => Item::Value(Value::Simple(rest.to_vec())),
            b'-' => Item::Value(Value::Error(rest.to_vec())),
            b':' => Item::Value(Value::Integer(integer(rest)?)),
            b',' => Item::Value(Value::Double(double(rest)?)),
            b'(' => Item::Value(Value::BigNumber(big_number(rest)?)),
            b'#' if rest == b"t" => Item::Value(Value::Boolean(true)),
            b'#' if rest == b"f" => Item::Value(Value::Boolean(false)),
            b'#' => return Err(ReplyError::Malformed("boolean")),
            b'_' if rest.is_empty() => Item::Value(Value::Null),
            b'_' => return Err(ReplyError::Malformed("null")),
            b'$' if rest == b"-1" => Item::Value(Value::Null),
            b'*' if rest == b"-1" => Item::Value(Value::NullArray),
            b'$' => Item::Bulk(BulkKind::String, self.bulk_len(rest)?),
            b'!' => Item::Bulk(BulkKind::Error, self.bulk_len(rest)?),
            b'=' => Item::Bulk(BulkKind::Verbatim, self.bulk_len(rest)?),
            b'*' => Item::Container(Container::Array, len(rest)?),
            b'~' => Item::Container(Container::Set, len(rest)?),
            b'>' => Item::Container(Container::Push, len(rest)?),
            b'%' => Item::Container(Container::Map, pairs(rest)?),
            b'|' => Item::Container(Container::Attribute, pairs(rest)?),
            other => return Err(ReplyError::UnknownType(*other)),
        })
    }

    fn bulk_len(&self, digits: &[u8]) -> Result<usize, ReplyError> {
        let len = len(digits)?;
        if len > self.limits.max_bulk_bytes {
            return Err(ReplyError::TooLarge("the length of a string"));
        }
        Ok(len)
    }

    /// Starts a container; returns the reply if that completes it.
    fn open(&mut self, kind: Container, len: usize) -> Result<Option<Value>, ReplyError> {
        if self.stack.len() >= self.limits.max_depth {
            return Err(ReplyError::TooLarge("the depth of nesting"));
        }
        if len > self.limits.max_values - self.values {
            return Err(ReplyError::TooLarge("the number of values"));
        }
        let frame = Frame { kind, remaining: len, elements: Vec::new() };
        if len == 0 {
            return Ok(close(frame).and_then(|value| self.complete(value)));
        }
        self.stack.push(frame);
        Ok(None)
    }

    /// Puts a value where it belongs; returns the reply if that completes it.
    fn complete(&mut self, mut value: Value) -> Option<Value> {
        while let Some(frame) = self.stack.last_mut() {
            frame.elements.push(value);
            frame.remaining -= 1;
            if frame.remaining > 0 {
                return None;
            }
            // An attribute leaves nothing: the value that it annotates follows.
            value = self.stack.pop().and_then(close)?;
        }
        Some(value)
    }
}

/// The value that a container with all its elements is.
fn close(frame: Frame) -> Option<Value> {
    Some(match frame.kind {
        Container::Array => Value::Array(frame.elements),
        Container::Set => Value::Set(frame.elements),
        Container::Push => Value::Push(frame.elements),
        Container::Attribute => return None,
        Container::Map => {
            let mut elements = frame.elements.into_iter();
            let pair = || elements.next().zip(elements.next());
            Value::Map(std::iter::from_fn(pair).collect())
        }
    })
}

/// The byte string of `len` bytes at the front of `unread`, when it is complete.
fn read_bulk(unread: &[u8], kind: BulkKind, len: usize) -> Result<Option<Value>, ReplyError> {
    let Some(bytes) = unread.get(..len + 2) else {
        return Ok(None);
    };
    let bytes = bytes.strip_suffix(b"\r\n").ok_or(ReplyError::Malformed("string end"))?;
    Ok(Some(match kind {
        BulkKind::String => Value::Bulk(bytes.to_vec()),
        BulkKind::Error => Value::Error(bytes.to_vec()),
        BulkKind::Verbatim => match bytes {
            [a, b, c, b':', text @ ..] => Value::Verbatim { format: [*a, *b, *c], text: text.to_vec() },
            _ => return Err(ReplyError::Malformed("verbatim string")),
        },
    }))
}

fn integer(text: &[u8]) -> Result<i64, ReplyError> {
    let value = match text {
        [b'+', digits @ ..] => parse_integer(digits).filter(|value| *value >= 0),
        text => parse_integer(text),
    };
    value.ok_or(ReplyError::Malformed("integer"))
}

fn double(text: &[u8]) -> Result<f64, ReplyError> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.parse().ok())
        .ok_or(ReplyError::Malformed("floating-point number"))
}

fn big_number(text: &[u8]) -> Result<Vec<u8>, ReplyError> {
    let digits = text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text);
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(ReplyError::Malformed("big number"));
    }
    Ok(text.to_vec())
}

fn len(digits: &[u8]) -> Result<usize, ReplyError> {
    parse_integer(digits).and_then(|len| usize::try_from(len).ok()).ok_or(ReplyError::Malformed("length"))
}

fn pairs(digits: &[u8]) -> Result<usize, ReplyError> {
    len(digits)?.checked_mul(2).ok_or(ReplyError::TooLarge("the number of values"))
}
