//! Ziplists, which listpacks have replaced in Redis 7.
//!
//! ```text
//!   bytes in all (4) | place of the last element (4) | elements (2; 65535: count them) | element ... | 0xFF
//!   element:  length of the one before (1, or 0xFE and 4) | encoding | data
//! ```

use super::Refusal;
use super::blobs::{Element, signed};

const HEADER_BYTES: usize = 10;
const END: u8 = 0xFF;
const LONG: u8 = 0xFE;
const MANY: usize = u16::MAX as usize;

/// Visits the elements of a ziplist; returns how many there are.
///
/// # Errors
/// It is none, or `visit` refuses one of them.
pub(super) fn read<'a>(
    blob: &'a [u8],
    visit: &mut dyn FnMut(Element<'a>) -> Result<(), Refusal>,
) -> Result<usize, Refusal> {
    let (header, mut rest) = blob.split_at_checked(HEADER_BYTES).ok_or(Refusal::Format)?;
    let size = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
    let last = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
    let declared = usize::from(u16::from_le_bytes([header[8], header[9]]));
    if size as usize != blob.len() {
        return Err(Refusal::Format);
    }
    let (mut count, mut before) = (0, 0);
    while rest != [END] {
        let behind = read_before(rest).filter(|(len, _)| *len == before).ok_or(Refusal::Format)?.1;
        let (element, behind) = read_element(behind).ok_or(Refusal::Format)?;
        before = rest.len() - behind.len();
        rest = behind;
        count += 1;
        visit(element)?;
    }
    let is_last = last as usize == blob.len() - 1 - before;
    if is_last && (declared == count || declared == MANY) { Ok(count) } else { Err(Refusal::Format) }
}

/// The length of the element before, and what follows.
fn read_before(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes.split_first()? {
        (&LONG, rest) => {
            let (len, behind) = rest.split_first_chunk()?;
            Some((u32::from_le_bytes(*len) as usize, behind))
        }
        (&END, _) => None,
        (len, rest) => Some((usize::from(*len), rest)),
    }
}

/// An element without the length before it, and what follows.
fn read_element(bytes: &[u8]) -> Option<(Element<'_>, &[u8])> {
    let (first, rest) = bytes.split_first()?;
    let (len, rest) = match *first {
        len @ 0..=0x3f => (usize::from(len), rest),
        high @ 0x40..=0x7f => {
            let (low, rest) = rest.split_first()?;
            (usize::from(high & 0x3f) << 8 | usize::from(*low), rest)
        }
        0x80..=0xbf => {
            let (len, rest) = rest.split_first_chunk()?;
            (u32::from_be_bytes(*len) as usize, rest)
        }
        small @ 0xf1..=0xfd => return Some((Element::Integer(i64::from(small & 0x0f) - 1), rest)),
        mark => {
            let size = match mark {
                0xc0 => 2,
                0xd0 => 4,
                0xe0 => 8,
                0xf0 => 3,
                0xfe => 1,
                _ => return None,
            };
            let (number, behind) = rest.split_at_checked(size)?;
            return Some((Element::Integer(signed(number)), behind));
        }
    };
    let (text, behind) = rest.split_at_checked(len)?;
    Some((Element::Bytes(text), behind))
}
