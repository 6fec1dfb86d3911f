//! Replies, as a server sends them.

use std::borrow::BorrowMut;

use types::{Error, ErrorCode, ReplySink};

use crate::command::{put_bulk, put_header, put_integer};
use crate::double::format_double;

/// The version of the protocol that a connection speaks; `HELLO` changes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// Strings, errors, integers, bulk strings and arrays.
    #[default]
    Resp2,
    /// Adds null, truth values, doubles, big numbers, maps, sets, verbatim text and out-of-band pushes.
    Resp3,
}

impl ProtocolVersion {
    /// The version with this number, as `HELLO` takes it.
    pub fn from_number(number: i64) -> Option<Self> {
        match number {
            2 => Some(ProtocolVersion::Resp2),
            3 => Some(ProtocolVersion::Resp3),
            _ => None,
        }
    }

    /// 2 or 3.
    pub fn number(self) -> i64 {
        match self {
            ProtocolVersion::Resp2 => 2,
            ProtocolVersion::Resp3 => 3,
        }
    }
}

/// Writes replies into a vector of bytes, its own (`Encoder<Vec<u8>>`) or a borrowed one (`Encoder<&mut Vec<u8>>`).
///
/// It trusts its caller to follow a container with the announced elements, and nothing else.
#[derive(Clone, Debug)]
pub struct Encoder<B> {
    output: B,
    version: ProtocolVersion,
    /// How long the output may become by bulk strings.
    most: usize,
    is_full: bool,
}

impl<B: Default> Default for Encoder<B> {
    fn default() -> Self {
        Encoder {
            output: B::default(),
            version: ProtocolVersion::default(),
            most: usize::MAX,
            is_full: false,
        }
    }
}

impl<B: BorrowMut<Vec<u8>>> Encoder<B> {
    /// Appends to `output`.
    #[inline]
    pub fn new(output: B, version: ProtocolVersion) -> Self {
        Encoder { output, version, most: usize::MAX, is_full: false }
    }

    /// The version in which replies are written.
    #[inline]
    pub fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// Writes later replies in another version.
    pub fn set_version(&mut self, version: ProtocolVersion) {
        self.version = version;
    }

    /// Begins a reply of at most `most` bytes; what goes beyond is dropped, and [`ReplySink::is_full`] says so: the caller
    /// puts an error in place of the reply.
    #[inline]
    pub fn limit_reply(&mut self, most: usize) {
        self.most = self.output().len().saturating_add(most);
        self.is_full = false;
    }

    /// The bytes written so far.
    #[inline]
    pub fn output(&self) -> &Vec<u8> {
        self.output.borrow()
    }

    /// The bytes written so far, to send and clear, or to append encoded replies to.
    #[inline]
    pub fn output_mut(&mut self) -> &mut Vec<u8> {
        self.output.borrow_mut()
    }

    /// Gives the vector back.
    pub fn into_output(self) -> B {
        self.output
    }

    #[inline]
    fn is_resp3(&self) -> bool {
        self.version == ProtocolVersion::Resp3
    }

    #[inline]
    fn header(&mut self, marker: u8, number: usize) {
        put_header(self.output_mut(), marker, number);
    }

    /// A floating-point number in decimal.
    fn decimal(&mut self, digits: &[u8]) {
        if self.is_resp3() {
            let out = self.output_mut();
            out.push(b',');
            out.extend_from_slice(digits);
            out.extend_from_slice(b"\r\n");
        } else {
            put_bulk(self.output_mut(), digits);
        }
    }

    /// Appends text that must stay on one line, a blank in place of every line break (as Redis does).
    fn line(&mut self, text: &[u8]) {
        let out = self.output_mut();
        let start = out.len();
        out.extend_from_slice(text);
        for byte in &mut out[start..] {
            if matches!(byte, b'\r' | b'\n') {
                *byte = b' ';
            }
        }
    }
}

impl<B: BorrowMut<Vec<u8>>> ReplySink for Encoder<B> {
    #[inline]
    fn simple(&mut self, text: &str) {
        self.output_mut().push(b'+');
        self.line(text.as_bytes());
        self.output_mut().extend_from_slice(b"\r\n");
    }

    #[inline]
    fn bulk(&mut self, bytes: &[u8]) {
        if self.output().len() + bytes.len() > self.most {
            self.is_full = true;
            return;
        }
        put_bulk(self.output_mut(), bytes);
    }

    #[inline]
    fn is_full(&self) -> bool {
        self.is_full
    }

    #[inline]
    fn integer(&mut self, value: i64) {
        put_integer(self.output_mut(), b':', value);
    }

    fn double(&mut self, value: f64) {
        self.decimal(&format_double(value));
    }

    fn number(&mut self, digits: &str) {
        self.decimal(digits.as_bytes());
    }

    fn big_number(&mut self, digits: &[u8]) {
        if self.is_resp3() {
            self.output_mut().push(b'(');
        } else {
            self.header(b'$', digits.len());
        }
        self.line(digits);
        self.output_mut().extend_from_slice(b"\r\n");
    }

    fn boolean(&mut self, value: bool) {
        if self.is_resp3() {
            self.output_mut().extend_from_slice(if value { b"#t\r\n" } else { b"#f\r\n" });
        } else {
            self.integer(value.into());
        }
    }

    fn verbatim(&mut self, format: [u8; 3], text: &[u8]) {
        if self.is_resp3() {
            self.header(b'=', text.len() + 4);
            let out = self.output_mut();
            out.extend_from_slice(&format);
            out.push(b':');
            out.extend_from_slice(text);
            out.extend_from_slice(b"\r\n");
        } else {
            put_bulk(self.output_mut(), text);
        }
    }

    #[inline]
    fn null(&mut self) {
        let bytes: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"$-1\r\n" };
        self.output_mut().extend_from_slice(bytes);
    }

    fn null_array(&mut self) {
        let bytes: &[u8] = if self.is_resp3() { b"_\r\n" } else { b"*-1\r\n" };
        self.output_mut().extend_from_slice(bytes);
    }

    #[inline]
    fn array(&mut self, len: usize) {
        self.header(b'*', len);
    }

    fn map(&mut self, pairs: usize) {
        if self.is_resp3() {
            self.header(b'%', pairs);
        } else {
            self.header(b'*', pairs * 2);
        }
    }

    fn set(&mut self, len: usize) {
        let marker = if self.is_resp3() { b'~' } else { b'*' };
        self.header(marker, len);
    }

    fn pairs(&mut self, pairs: usize) {
        let len = if self.is_resp3() { pairs } else { pairs * 2 };
        self.header(b'*', len);
    }

    fn pair(&mut self) {
        if self.is_resp3() {
            self.header(b'*', 2);
        }
    }

    fn push(&mut self, len: usize) {
        let marker = if self.is_resp3() { b'>' } else { b'*' };
        self.header(marker, len);
    }

    fn entries(&mut self, pairs: usize) {
        let marker = if self.is_resp3() { b'%' } else { b'*' };
        self.header(marker, pairs);
    }

    fn entry(&mut self) {
        if !self.is_resp3() {
            self.header(b'*', 2);
        }
    }

    fn error(&mut self, error: &Error) {
        let out = self.output_mut();
        out.push(b'-');
        if error.code != ErrorCode::Scripted {
            out.extend_from_slice(error.code.as_str().as_bytes());
            out.push(b' ');
        }
        self.line(error.message.as_bytes());
        self.output_mut().extend_from_slice(b"\r\n");
    }
}
