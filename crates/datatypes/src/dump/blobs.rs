//! Elements of packed lists, and the two small formats beside them: zipmaps and sets of integers.

use super::Refusal;

/// An element of a listpack or a ziplist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Element<'a> {
    /// An integer, which stands for its decimal form.
    Integer(i64),
    /// Any bytes.
    Bytes(&'a [u8]),
}

impl Element<'_> {
    /// Calls `read` with the element's bytes.
    pub(super) fn with_bytes<R>(self, read: impl FnOnce(&[u8]) -> R) -> R {
        match self {
            Element::Integer(number) => read(itoa::Buffer::new().format(number).as_bytes()),
            Element::Bytes(bytes) => read(bytes),
        }
    }
}

/// A little-endian integer of one to eight bytes, with its sign.
pub(super) fn signed(bytes: &[u8]) -> i64 {
    let fill = if bytes.last().is_some_and(|high| high & 0x80 != 0) { 0xff } else { 0 };
    let mut all = [fill; 8];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = *from;
    }
    i64::from_le_bytes(all)
}

/// Visits the members of a set of integers, which come in ascending order.
///
/// ```text
///   bytes of each (4) | how many (4) | integers
/// ```
///
/// # Errors
/// It is none, or `visit` refuses one of them.
pub(super) fn read_intset(
    blob: &[u8],
    visit: &mut dyn FnMut(i64) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let (size, rest) = blob.split_first_chunk::<4>().ok_or(Refusal::Format)?;
    let (len, members) = rest.split_first_chunk::<4>().ok_or(Refusal::Format)?;
    let (size, len) = (u32::from_le_bytes(*size) as usize, u32::from_le_bytes(*len) as usize);
    if !matches!(size, 2 | 4 | 8) || len.checked_mul(size) != Some(members.len()) {
        return Err(Refusal::Format);
    }
    let mut before = None;
    for member in members.chunks(size).map(signed) {
        if before.is_some_and(|before| member <= before) {
            return Err(Refusal::Format);
        }
        before = Some(member);
        visit(member)?;
    }
    Ok(())
}

/// The bytes of a set of integers, given in ascending order.
pub(super) fn intset(members: &[i64]) -> Vec<u8> {
    let fits = |bits: u32| members.iter().all(|member| (member << (64 - bits)) >> (64 - bits) == *member);
    let size = if fits(16) {
        2
    } else if fits(32) {
        4
    } else {
        8
    };
    let mut out = Vec::with_capacity(8 + size * members.len());
    out.extend_from_slice(&(size as u32).to_le_bytes());
    out.extend_from_slice(&(members.len() as u32).to_le_bytes());
    members.iter().for_each(|member| out.extend_from_slice(&member.to_le_bytes()[..size]));
    out
}

/// Visits the fields and values of a zipmap, in turn; hashes of Redis 2.4 and before.
///
/// ```text
///   fields (1) | (length (1, or 0xFE and 4) | field | length | unused bytes (1) | value | unused) ... | 0xFF
/// ```
///
/// # Errors
/// It is none, or `visit` refuses one of them.
pub(super) fn read_zipmap(
    blob: &[u8],
    visit: &mut dyn FnMut(&[u8]) -> Result<(), Refusal>,
) -> Result<(), Refusal> {
    let mut rest = blob.get(1..).ok_or(Refusal::Format)?;
    while rest != [0xff] {
        let (len, behind) = zipmap_length(rest).ok_or(Refusal::Format)?;
        let (field, behind) = behind.split_at_checked(len).ok_or(Refusal::Format)?;
        let (len, behind) = zipmap_length(behind).ok_or(Refusal::Format)?;
        let (unused, behind) = behind.split_first().ok_or(Refusal::Format)?;
        let (value, behind) = behind.split_at_checked(len).ok_or(Refusal::Format)?;
        rest = behind.get(usize::from(*unused)..).ok_or(Refusal::Format)?;
        visit(field)?;
        visit(value)?;
    }
    Ok(())
}

fn zipmap_length(bytes: &[u8]) -> Option<(usize, &[u8])> {
    match bytes.split_first()? {
        (0xfe, rest) => {
            let (len, behind) = rest.split_first_chunk()?;
            Some((u32::from_le_bytes(*len) as usize, behind))
        }
        (0xff, _) => None,
        (len, rest) => Some((usize::from(*len), rest)),
    }
}
