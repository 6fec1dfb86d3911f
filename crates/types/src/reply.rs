//! Replies. A protocol writes them into a [`ReplySink`]; the caller decides what becomes of them: the RESP encoder
//! writes bytes, a [`ReplyBuf`] keeps them for a message, a history or a comparison.

use crate::wire::{Malformed, Reader, Wire, put_bytes, put_varint};
use crate::{Error, wire};

/// Takes one reply, element by element, in the order of the wire. A container announces how many follow.
pub trait ReplySink {
    /// A status such as `OK`.
    fn simple(&mut self, text: &str);
    /// A byte string.
    fn bulk(&mut self, bytes: &[u8]);
    /// An integer.
    fn integer(&mut self, value: i64);
    /// A floating-point number (RESP2: its shortest decimal form as a bulk string).
    fn double(&mut self, value: f64);
    /// A floating-point number in decimal, with digits of one's own choice (RESP2: a bulk string).
    fn number(&mut self, digits: &str);
    /// An integer of any size in decimal; line breaks become blanks (RESP2: a bulk string).
    fn big_number(&mut self, digits: &[u8]);
    /// A truth value (RESP2: 1 or 0).
    fn boolean(&mut self, value: bool);
    /// Text of a format, such as `txt` or `mkd` (RESP2: a bulk string).
    fn verbatim(&mut self, format: [u8; 3], text: &[u8]);
    /// Human-readable text (RESP3: verbatim).
    fn text(&mut self, text: &str) {
        self.verbatim(*b"txt", text.as_bytes());
    }
    /// The absence of a value (RESP2: the null bulk string).
    fn null(&mut self);
    /// The absence of an array (RESP2: the null array).
    fn null_array(&mut self);
    /// An array; `len` elements follow.
    fn array(&mut self, len: usize);
    /// A map; `pairs` times a key and a value follow (RESP2: a flat array).
    fn map(&mut self, pairs: usize);
    /// A set; `len` elements follow (RESP2: an array).
    fn set(&mut self, len: usize);
    /// A list of pairs; `pairs` times [`ReplySink::pair`] and two elements follow (RESP2: a flat array).
    fn pairs(&mut self, pairs: usize);
    /// One pair of [`ReplySink::pairs`]; two elements follow.
    fn pair(&mut self);
    /// A map whose pairs RESP2 has as arrays of two; `pairs` times [`ReplySink::entry`] and two elements follow.
    fn entries(&mut self, pairs: usize);
    /// One pair of [`ReplySink::entries`]; two elements follow.
    fn entry(&mut self);
    /// A message beside the replies, such as the confirmation of a subscription; `len` elements follow (RESP2: an array).
    fn push(&mut self, len: usize) {
        self.array(len);
    }
    /// An error.
    fn error(&mut self, error: &Error);

    /// True when the reply has reached [`MAX_REPLY_BYTES`]: an error stands in its place, and what is still written is
    /// dropped. Long loops may end.
    fn is_full(&self) -> bool {
        false
    }
}

/// The most bytes of one reply, as of one value. A command that names a large value often would fill the memory.
pub const MAX_REPLY_BYTES: usize = 512 << 20;

/// What stands in place of a reply that has reached [`MAX_REPLY_BYTES`].
#[cold]
pub fn reply_too_large() -> Error {
    Error::err("the reply would be larger than 512 MiB; what the command wrote, if anything, is done")
}

/// A stored reply. Compact, comparable, and replayable into another sink.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ReplyBuf {
    bytes: Vec<u8>,
    is_full: bool,
}

/// One element of a stored reply.
#[derive(Clone, Debug, PartialEq)]
pub enum Reply<'a> {
    /// See [`ReplySink::simple`].
    Simple(&'a str),
    /// See [`ReplySink::bulk`].
    Bulk(&'a [u8]),
    /// See [`ReplySink::integer`].
    Integer(i64),
    /// See [`ReplySink::double`].
    Double(f64),
    /// See [`ReplySink::number`].
    Number(&'a str),
    /// See [`ReplySink::big_number`].
    BigNumber(&'a [u8]),
    /// See [`ReplySink::boolean`].
    Boolean(bool),
    /// See [`ReplySink::verbatim`].
    Verbatim([u8; 3], &'a [u8]),
    /// See [`ReplySink::null`].
    Null,
    /// See [`ReplySink::null_array`].
    NullArray,
    /// See [`ReplySink::array`].
    Array(usize),
    /// See [`ReplySink::map`].
    Map(usize),
    /// See [`ReplySink::set`].
    Set(usize),
    /// See [`ReplySink::pairs`].
    Pairs(usize),
    /// See [`ReplySink::pair`].
    Pair,
    /// See [`ReplySink::entries`].
    Entries(usize),
    /// See [`ReplySink::entry`].
    Entry,
    /// See [`ReplySink::push`].
    Push(usize),
    /// See [`ReplySink::error`].
    Error(Error),
}

impl Reply<'_> {
    /// Writes the element into `sink`.
    pub fn write(&self, sink: &mut dyn ReplySink) {
        match self {
            Reply::Simple(text) => sink.simple(text),
            Reply::Bulk(bytes) => sink.bulk(bytes),
            Reply::Integer(value) => sink.integer(*value),
            Reply::Double(value) => sink.double(*value),
            Reply::Number(digits) => sink.number(digits),
            Reply::BigNumber(digits) => sink.big_number(digits),
            Reply::Boolean(value) => sink.boolean(*value),
            Reply::Verbatim(format, text) => sink.verbatim(*format, text),
            Reply::Null => sink.null(),
            Reply::NullArray => sink.null_array(),
            Reply::Array(len) => sink.array(*len),
            Reply::Map(pairs) => sink.map(*pairs),
            Reply::Set(len) => sink.set(*len),
            Reply::Pairs(pairs) => sink.pairs(*pairs),
            Reply::Pair => sink.pair(),
            Reply::Entries(pairs) => sink.entries(*pairs),
            Reply::Entry => sink.entry(),
            Reply::Push(len) => sink.push(*len),
            Reply::Error(error) => sink.error(error),
        }
    }

    /// How many elements belong to this one as its direct children.
    pub fn children(&self) -> usize {
        match self {
            Reply::Array(len)
            | Reply::Set(len)
            | Reply::Pairs(len)
            | Reply::Push(len)
            | Reply::Entries(len) => *len,
            Reply::Map(pairs) => pairs.saturating_mul(2),
            Reply::Pair | Reply::Entry => 2,
            _ => 0,
        }
    }
}

impl ReplyBuf {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// True when nothing was written.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Forgets what was written and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.is_full = false;
    }

    /// How many bytes it holds.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// The elements, in order.
    pub fn elements(&self) -> impl Iterator<Item = Reply<'_>> {
        let mut reader = Reader::new(&self.bytes);
        std::iter::from_fn(move || if reader.is_empty() { None } else { element(&mut reader).ok() })
    }

    /// The first element; most replies have one only.
    pub fn first(&self) -> Option<Reply<'_>> {
        self.elements().next()
    }

    /// The error, if the reply is one.
    pub fn as_error(&self) -> Option<Error> {
        match self.first() {
            Some(Reply::Error(error)) => Some(error),
            _ => None,
        }
    }

    /// Writes everything into `sink`.
    pub fn replay(&self, sink: &mut dyn ReplySink) {
        self.elements().for_each(|element| element.write(sink));
    }

    #[inline]
    fn tagged_bytes(&mut self, tag: u8, bytes: &[u8]) {
        if self.bytes.len() + bytes.len() > MAX_REPLY_BYTES {
            return self.overflow();
        }
        self.tagged(tag, |out| put_bytes(out, bytes));
    }

    #[inline]
    fn tagged(&mut self, tag: u8, put: impl FnOnce(&mut Vec<u8>)) {
        if self.is_full {
            return;
        }
        self.bytes.push(tag);
        put(&mut self.bytes);
    }

    #[cold]
    fn overflow(&mut self) {
        if !self.is_full {
            *self = ReplyBuf::new();
            self.error(&reply_too_large());
            self.is_full = true;
        }
    }
}

fn text<'a>(input: &mut Reader<'a>) -> Result<&'a str, Malformed> {
    std::str::from_utf8(input.bytes()?).map_err(|_| Malformed("reply text"))
}

fn element<'a>(input: &mut Reader<'a>) -> Result<Reply<'a>, Malformed> {
    let count =
        |input: &mut Reader<'a>| usize::try_from(input.varint()?).map_err(|_| Malformed("reply count"));
    Ok(match input.byte()? {
        0 => Reply::Simple(text(input)?),
        1 => Reply::Bulk(input.bytes()?),
        2 => Reply::Integer(i64::decode(input)?),
        3 => Reply::Double(f64::decode(input)?),
        4 => Reply::Verbatim([input.byte()?, input.byte()?, input.byte()?], input.bytes()?),
        5 => Reply::Null,
        6 => Reply::NullArray,
        7 => Reply::Array(count(input)?),
        8 => Reply::Map(count(input)?),
        9 => Reply::Set(count(input)?),
        10 => Reply::Pairs(count(input)?),
        11 => Reply::Pair,
        12 => Reply::Error(Error::decode(input)?),
        13 => Reply::Number(text(input)?),
        14 => Reply::Entries(count(input)?),
        15 => Reply::Entry,
        16 => Reply::Push(count(input)?),
        17 => Reply::BigNumber(input.bytes()?),
        18 => Reply::Boolean(bool::decode(input)?),
        _ => return Err(Malformed("reply tag")),
    })
}

impl ReplySink for ReplyBuf {
    fn simple(&mut self, text: &str) {
        self.tagged_bytes(0, text.as_bytes());
    }
    fn bulk(&mut self, bytes: &[u8]) {
        self.tagged_bytes(1, bytes);
    }
    fn integer(&mut self, value: i64) {
        self.tagged(2, |out| value.encode(out));
    }
    fn double(&mut self, value: f64) {
        self.tagged(3, |out| value.encode(out));
    }
    fn number(&mut self, digits: &str) {
        self.tagged_bytes(13, digits.as_bytes());
    }
    fn big_number(&mut self, digits: &[u8]) {
        self.tagged_bytes(17, digits);
    }
    fn boolean(&mut self, value: bool) {
        self.tagged(18, |out| value.encode(out));
    }
    fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.bytes.len() + text.len() > MAX_REPLY_BYTES {
            return self.overflow();
        }
        self.tagged(4, |out| {
            out.extend_from_slice(&format);
            put_bytes(out, text);
        });
    }
    fn null(&mut self) {
        self.tagged(5, |_| {});
    }
    fn null_array(&mut self) {
        self.tagged(6, |_| {});
    }
    fn array(&mut self, len: usize) {
        self.tagged(7, |out| put_varint(out, len as u64));
    }
    fn map(&mut self, pairs: usize) {
        self.tagged(8, |out| put_varint(out, pairs as u64));
    }
    fn set(&mut self, len: usize) {
        self.tagged(9, |out| put_varint(out, len as u64));
    }
    fn pairs(&mut self, pairs: usize) {
        self.tagged(10, |out| put_varint(out, pairs as u64));
    }
    fn pair(&mut self) {
        self.tagged(11, |_| {});
    }
    fn entries(&mut self, pairs: usize) {
        self.tagged(14, |out| put_varint(out, pairs as u64));
    }
    fn entry(&mut self) {
        self.tagged(15, |_| {});
    }
    fn push(&mut self, len: usize) {
        self.tagged(16, |out| put_varint(out, len as u64));
    }
    fn error(&mut self, error: &Error) {
        self.tagged(12, |out| error.encode(out));
    }
    fn is_full(&self) -> bool {
        self.is_full
    }
}

impl Wire for ReplyBuf {
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, &self.bytes);
    }

    fn decode(input: &mut Reader<'_>) -> Result<Self, Malformed> {
        let bytes = input.bytes()?;
        let mut reader = wire::Reader::new(bytes);
        while !reader.is_empty() {
            element(&mut reader)?;
        }
        Ok(ReplyBuf { bytes: bytes.to_vec(), is_full: false })
    }
}
