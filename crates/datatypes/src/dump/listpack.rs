//! Listpacks: short lists of strings and integers in one piece of memory.
//!
//! ```text
//!   bytes in all (4) | elements (2; 65535: count them) | element ... | 0xFF
//!   element:  encoding and data | their length, so that it can be read backwards
//! ```

use super::Refusal;
use super::blobs::Element;
use crate::register::parse_integer;

const HEADER_BYTES: usize = 6;
const END: u8 = 0xFF;
const MANY: usize = u16::MAX as usize;

/// A listpack in the making.
#[derive(Debug)]
pub(super) struct Listpack {
    bytes: Vec<u8>,
    len: usize,
}

impl Listpack {
    pub(super) fn new() -> Self {
        Listpack { bytes: vec![0; HEADER_BYTES], len: 0 }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that it takes once it is finished.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() + 1
    }

    pub(super) fn push(&mut self, element: &[u8]) {
        let start = self.bytes.len();
        match parse_integer(element) {
            Some(number) => self.push_integer(number),
            None => self.push_string(element),
        }
        let len = self.bytes.len() - start;
        put_back_length(len, &mut self.bytes);
        self.len += 1;
    }

    fn push_integer(&mut self, number: i64) {
        let bytes = number.to_le_bytes();
        let (mark, size) = match number {
            0..=127 => return self.bytes.push(number as u8),
            -4096..=4095 => {
                let folded = (number & 0x1fff) as u16 | 0xC000;
                return self.bytes.extend_from_slice(&folded.to_be_bytes());
            }
            -0x8000..=0x7fff => (0xF1, 2),
            -0x80_0000..=0x7f_ffff => (0xF2, 3),
            -0x8000_0000..=0x7fff_ffff => (0xF3, 4),
            _ => (0xF4, 8),
        };
        self.bytes.push(mark);
        self.bytes.extend_from_slice(&bytes[..size]);
    }

    fn push_string(&mut self, element: &[u8]) {
        match element.len() {
            len @ ..64 => self.bytes.push(0x80 | len as u8),
            len @ ..4096 => self.bytes.extend_from_slice(&(0xE000 | len as u16).to_be_bytes()),
            len => {
                self.bytes.push(0xF0);
                self.bytes.extend_from_slice(&(len as u32).to_le_bytes());
            }
        }
        self.bytes.extend_from_slice(element);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.push(END);
        let size = (self.bytes.len() as u32).to_le_bytes();
        let len = (self.len.min(MANY) as u16).to_le_bytes();
        self.bytes[..4].copy_from_slice(&size);
        self.bytes[4..HEADER_BYTES].copy_from_slice(&len);
        self.bytes
    }
}

/// The length of an element, seven bits a byte, the high ones first; all but the first byte are marked.
fn put_back_length(len: usize, out: &mut Vec<u8>) {
    let size = back_length_size(len);
    for place in (0..size).rev() {
        let mark = if place + 1 == size { 0 } else { 0x80 };
        out.push((len >> (7 * place)) as u8 & 0x7f | mark);
    }
}

fn back_length_size(len: usize) -> usize {
    // As Redis has it: the largest number of each size takes a byte more.
    match len {
        0..=127 => 1,
        128..16_383 => 2,
        16_383..2_097_151 => 3,
        2_097_151..268_435_455 => 4,
        _ => 5,
    }
}

/// Visits the elements of a listpack; returns how many there are.
///
/// # Errors
/// It is none, or `visit` refuses one of them.
pub(super) fn read<'a>(
    blob: &'a [u8],
    visit: &mut dyn FnMut(Element<'a>) -> Result<(), Refusal>,
) -> Result<usize, Refusal> {
    let (header, mut rest) = blob.split_at_checked(HEADER_BYTES).ok_or(Refusal::Format)?;
    let size = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let declared = usize::from(u16::from_le_bytes([header[4], header[5]]));
    if size as usize != blob.len() {
        return Err(Refusal::Format);
    }
    let (mut count, mut expected) = (0, Vec::with_capacity(5));
    while rest != [END] {
        let (element, behind) = read_element(rest).ok_or(Refusal::Format)?;
        expected.clear();
        put_back_length(rest.len() - behind.len(), &mut expected);
        rest = behind.strip_prefix(expected.as_slice()).ok_or(Refusal::Format)?;
        count += 1;
        visit(element)?;
    }
    if declared == count || declared == MANY { Ok(count) } else { Err(Refusal::Format) }
}

/// An element without the length behind it, and what follows.
fn read_element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    match *first {
        small @ 0..=0x7f => Some((Element::Integer(i64::from(small)), rest)),
        len @ 0x80..=0xbf => string(usize::from(len & 0x3f), rest),
        high @ 0xc0..=0xdf => {
            let (low, behind) = rest.split_first()?;
            let folded = i64::from(high & 0x1f) << 8 | i64::from(*low);
            let number = if folded >= 1 << 12 { folded - (1 << 13) } else { folded };
            Some((Element::Integer(number), behind))
        }
        high @ 0xe0..=0xef => {
            let (low, behind) = rest.split_first()?;
            string(usize::from(high & 0x0f) << 8 | usize::from(*low), behind)
        }
        0xf0 => {
            let (len, behind) = rest.split_first_chunk()?;
            string(u32::from_le_bytes(*len) as usize, behind)
        }
        mark @ 0xf1..=0xf4 => {
            let size = [2, 3, 4, 8][usize::from(mark - 0xf1)];
            let (number, behind) = rest.split_at_checked(size)?;
            Some((Element::Integer(super::blobs::signed(number)), behind))
        }
        _ => None,
    }
}

fn string(len: usize, rest: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (text, behind) = rest.split_at_checked(len)?;
    Some((Element::Bytes(text), behind))
}
